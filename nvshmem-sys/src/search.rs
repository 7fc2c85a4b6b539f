//! Where an NVSHMEM library may be, in the order of who said so most clearly.

use std::env;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

use crate::SONAME;

/// The variable that is an order.
pub(crate) const ONLY: &str = "SYMM_NVSHMEM_LIB";

/// A file to try, or the bare name for the dynamic loader's own search.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Candidate {
    pub(crate) file: PathBuf,
    pub(crate) because: &'static str,
}

/// All places, in order. `variable` is the environment.
///
/// `SYMM_NVSHMEM_LIB` is an order and excludes every other place; the other variables say where an installation is, and the
/// search goes on where it is not.
pub(crate) fn candidates(variable: impl Fn(&str) -> Option<OsString>) -> Vec<Candidate> {
    let set = |name: &str| variable(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    if let Some(asked) = set(ONLY) {
        let file = if asked.is_dir() { asked.join(SONAME) } else { asked };
        return vec![Candidate { file, because: ONLY }];
    }
    let mut found = Vec::new();
    for because in ["NVSHMEM_HOME", "NVSHMEM_PATH"] {
        if let Some(home) = set(because) {
            found.extend(
                ["lib", "lib64", ""].map(|sub| Candidate { file: home.join(sub).join(SONAME), because }),
            );
        }
    }
    for because in ["VIRTUAL_ENV", "CONDA_PREFIX"] {
        if let Some(prefix) = set(because) {
            found.extend(wheels(&prefix).map(|file| Candidate { file, because }));
            // conda's own package.
            found.push(Candidate { file: prefix.join("lib").join(SONAME), because });
        }
    }
    found.push(Candidate { file: PathBuf::from(SONAME), because: "the dynamic loader's search path" });
    let triplet = format!("{}-linux-gnu", env::consts::ARCH);
    let packages = [
        // NVIDIA's packages: one folder for each major release of CUDA.
        format!("/usr/lib/{triplet}/nvshmem/13"),
        format!("/usr/lib/{triplet}/nvshmem/12"),
        "/usr/lib64/nvshmem/13".to_owned(),
        "/usr/lib64/nvshmem/12".to_owned(),
        // Archives and builds from source, as NVIDIA's guides place them.
        "/usr/local/nvshmem/lib".to_owned(),
        "/opt/nvshmem/lib".to_owned(),
        "/opt/nvidia/nvshmem/lib".to_owned(),
    ];
    let because = "a folder that packages use";
    found.extend(packages.map(|folder| Candidate { file: Path::new(&folder).join(SONAME), because }));
    found
}

/// The wheel's library below a Python environment's prefix, for every Python in it.
fn wheels(prefix: &Path) -> impl Iterator<Item = PathBuf> + use<> {
    let mut pythons: Vec<_> = std::fs::read_dir(prefix.join("lib"))
        .into_iter()
        .flatten()
        .flatten()
        .filter(|entry| entry.file_name().to_string_lossy().starts_with("python3"))
        .map(|entry| entry.path().join("site-packages/nvidia/nvshmem/lib").join(SONAME))
        .collect();
    pythons.sort();
    pythons.into_iter()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn places(environment: &[(&str, &str)]) -> Vec<(String, &'static str)> {
        let all =
            candidates(|name| environment.iter().find(|(n, _)| *n == name).map(|(_, value)| value.into()));
        all.into_iter().map(|place| (place.file.to_string_lossy().into_owned(), place.because)).collect()
    }

    #[test]
    fn the_order_names_one_place() {
        let asked = places(&[("SYMM_NVSHMEM_LIB", "/a/b.so"), ("NVSHMEM_HOME", "/c")]);
        assert_eq!(asked, [("/a/b.so".to_owned(), ONLY)]);
        let folder = std::env::temp_dir();
        let asked = places(&[("SYMM_NVSHMEM_LIB", &folder.to_string_lossy())]);
        assert_eq!(asked, [(folder.join(SONAME).to_string_lossy().into_owned(), ONLY)]);
    }

    #[test]
    fn named_installations_come_before_the_loader_and_packages() {
        let found = places(&[("NVSHMEM_PATH", "/p"), ("NVSHMEM_HOME", "/h"), ("SYMM_NVSHMEM_LIB", "")]);
        let at = |file: &str| found.iter().position(|(f, _)| f == file).unwrap();
        assert_eq!(at("/h/lib/libnvshmem_host.so.3"), 0);
        assert!(at("/h/lib/libnvshmem_host.so.3") < at("/p/lib/libnvshmem_host.so.3"));
        assert!(at("/p/libnvshmem_host.so.3") < at(SONAME));
        assert!(at(SONAME) < at("/usr/local/nvshmem/lib/libnvshmem_host.so.3"));
    }

    #[test]
    fn a_python_environment_is_searched_for_the_wheel() {
        let prefix = std::env::temp_dir().join(format!("nvshmem-sys-prefix-{}", std::process::id()));
        for python in ["python3.9", "python3.11", "other"] {
            std::fs::create_dir_all(prefix.join("lib").join(python)).unwrap();
        }
        let found = places(&[("VIRTUAL_ENV", &prefix.to_string_lossy())]);
        std::fs::remove_dir_all(&prefix).unwrap();
        let wheels: Vec<_> = found.iter().filter(|(f, _)| f.contains("site-packages")).collect();
        assert_eq!(wheels.len(), 2, "{found:?}");
        assert!(wheels.iter().all(|(_, because)| *because == "VIRTUAL_ENV"));
        assert!(
            wheels[0].0.ends_with("lib/python3.11/site-packages/nvidia/nvshmem/lib/libnvshmem_host.so.3")
        );
    }
}
