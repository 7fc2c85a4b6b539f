//! From NVSHMEM's headers to `bindings.rs`: bindgen reads the declarations, [`functions`] turns the functions into a table
//! that is filled from the library at run time.
//!
//! The build script is the only caller, so what `ci/gen-bindings` commits and what a user generates with
//! `build-from-headers` come from the same code.

mod functions;

use std::env;
use std::path::PathBuf;

/// Functions that exist only inside kernels. The headers' `__device__` is empty for a C++ compiler, so they look like
/// host functions there; the library does not export them. Of the queue pairs (3.6) only `nvshmemx_qp_create` is the host's.
const DEVICE_ONLY: &str = ".*_(warp|warpgroup|block)|nvshmemx_qp_([^c].*|c[^r].*)";

/// Functions with one version for each element type (`nvshmem_float_put`, `nvshmemx_int8_sum_reduce_on_stream`, …): about
/// 1,370 of the library's exports. Data are moved as bytes here (`putmem`, `getmem`), with the same meaning.
const TYPED: &str = "nvshmemx?_(bfloat16|char|double|float|half|int|int8|int16|int32|int64|long|longlong|ptrdiff|schar\
                     |short|size|uchar|uint|uint8|uint16|uint32|uint64|ulong|ulonglong|ushort)_.*";

/// Declared for the host, exported by no release.
const NOT_EXPORTED: [&str; 2] = ["nvshmem_realloc", "nvshmemx_signal_op"];

/// Writes `bindings.rs` into the build script's `OUT_DIR`.
pub(crate) fn run() -> Result<(), String> {
    for name in ["NVSHMEM_HOME", "CUDA_HOME", "LIBCLANG_PATH"] {
        println!("cargo::rerun-if-env-changed={name}");
    }
    println!("cargo::rerun-if-changed=generate");
    let nvshmem = folder("NVSHMEM_HOME", "include/nvshmem_host.h")?;
    let cuda = folder("CUDA_HOME", "include/cuda_runtime.h")?;
    let out = PathBuf::from(env::var_os("OUT_DIR").ok_or("OUT_DIR is not set: not run by cargo")?);
    let text = functions::table(&declarations(&nvshmem, &cuda)?)?;
    std::fs::write(out.join("bindings.rs"), text).map_err(|e| format!("{}: {e}", out.display()))
}

/// A folder that an environment variable names, which must hold `file`.
fn folder(variable: &str, file: &str) -> Result<PathBuf, String> {
    let value = env::var_os(variable)
        .ok_or(format!("feature build-from-headers needs {variable}, the folder that holds {file}"))?;
    let folder = PathBuf::from(value);
    match folder.join(file).is_file() {
        true => Ok(folder),
        false => Err(format!("{variable} is {}, which does not hold {file}", folder.display())),
    }
}

/// The headers' declarations as Rust text, functions in `extern` blocks.
fn declarations(nvshmem: &std::path::Path, cuda: &std::path::Path) -> Result<String, String> {
    let mut builder = bindgen::builder()
        .header_contents("wrapper.hpp", "#include <nvshmem_host.h>\n")
        .clang_args(["-x", "c++", "-std=c++17"])
        .clang_arg(format!("-I{}", nvshmem.join("include").display()))
        .clang_arg(format!("-isystem{}", cuda.join("include").display()))
        .allowlist_function("nvshmemx?_.*")
        .blocklist_function(DEVICE_ONLY)
        .blocklist_function(TYPED)
        .blocklist_type("double2|__half|half|__nv_bfloat16")
        .allowlist_type("nvshmemx?_(init_attr|init_args|uniqueid|uniqueid_args|team_uniqueid|team_config)_.*")
        .allowlist_type("flags|nvshmemx_status|nvshmemx_init_status_t|nvshmemx_signal_op_t|nvshmem_team_id_t")
        .allowlist_type("nvshmemi_cmp_type|nvshmemi_thread_support")
        .allowlist_var("NVSHMEM_VENDOR_(MAJOR|MINOR|PATCH)_VERSION|NVSHMEM_(MAJOR|MINOR)_VERSION")
        .allowlist_var("NVSHMEM_MAX_NAME_LEN|NVSHMEM_TEAM_CONFIG_MASK_.*|NVSHMEM_INIT_ATTR_VER")
        .prepend_enum_name(false)
        // The headers' text is NVIDIA's: declarations only.
        .generate_comments(false)
        .use_core()
        .rust_target(bindgen::RustTarget::stable(85, 0).map_err(|e| e.to_string())?)
        .rust_edition(bindgen::RustEdition::Edition2024)
        .formatter(bindgen::Formatter::None);
    for name in NOT_EXPORTED {
        builder = builder.blocklist_function(name);
    }
    builder.generate().map(|bindings| bindings.to_string()).map_err(|e| format!("bindgen: {e}"))
}
