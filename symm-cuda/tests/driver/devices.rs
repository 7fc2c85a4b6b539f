//! Which GPU a PE gets, what works between GPUs that do not see each other, whose context is current, and no driver at all.

use std::path::Path;
use std::process::exit;
use std::sync::Arc;

use cudarc::driver::sys;
use symm_core::backend::{SignalOp, SignalUpdate};
use symm_core::bootstrap::{Bootstrap, local};
use symm_core::model::World;
use symm_core::{Config, DType, Error, Pe, Result};
use symm_cuda::embed::{DmaBuf, Gpu};
use symm_cuda::{Cuda, device_count};

use crate::scenarios::{config, each, expect, has_kernels, opens, unavailable};
use crate::{LIBRARIES, NOT_HERE, Scenario};

const FOUR: (&str, &str) = ("FAKE_GPUS", "4");

pub(crate) const ALL: &[Scenario] = &[
    ("no_driver", &[(LIBRARIES, "none")], no_driver),
    ("no_driver_but_its_names", &[(LIBRARIES, "garbage")], no_driver_but_its_names),
    ("one_gpu_of_several_pes", &[("FAKE_GPUS", "1")], one_gpu_of_several_pes),
    ("pes_by_turns_over_hosts", &[FOUR], pes_by_turns_over_hosts),
    ("a_gpu_that_is_named", &[FOUR], a_gpu_that_is_named),
    ("a_gpu_that_is_not_there", &[], a_gpu_that_is_not_there),
    ("a_gpu_that_two_pes_name", &[], a_gpu_that_two_pes_name),
    ("one_visible_gpu_a_pe", &[], || {
        signals(&[&[0], &[1]], "by store", Some("is not known: it is not visible here"));
    }),
    ("one_visible_gpu_a_pe_that_nvml_does_not_know", &[("FAKE_NVML", "2")], || {
        signals(&[&[0], &[1]], "by store", Some("NVML (libnvidia-ml.so.1) does not know it"));
    }),
    ("one_visible_gpu_a_pe_over_nvlink", &[("FAKE_NVML", "1")], || signals(&[&[0], &[1]], "", None)),
    ("one_visible_gpu_a_pe_over_pcie", &[("FAKE_NVML", "0")], || {
        signals(&[&[0], &[1]], "by store", Some("has no atomics (PCIe)"));
    }),
    ("all_gpus_visible_over_nvlink", &[], || signals(&[&[0, 1], &[0, 1]], "", None)),
    ("all_gpus_visible_over_pcie", &[("FAKE_NO_ATOMICS", "1")], || {
        signals(&[&[0, 1], &[0, 1]], "by store", Some("has no atomics (PCIe)"));
    }),
    ("the_callers_context_stays", &[], the_callers_context_stays),
    ("dma_buf_of_an_old_driver", &[("FAKE_DMA_BUF", "2")], || dma_buf(13000, true, false)),
    ("dma_buf_that_is_not_mapped", &[("FAKE_DMA_BUF", "1"), ("FAKE_VERSION", "13030")], || {
        dma_buf(13030, true, false);
    }),
    ("dma_buf_of_a_gpu_without", &[("FAKE_VERSION", "13030")], || dma_buf(13030, false, false)),
    ("dma_buf", &[("FAKE_DMA_BUF", "2"), ("FAKE_VERSION", "13040")], || dma_buf(13040, true, true)),
    ("inspection", &[], || inspection(None)),
    ("inspection_with_nvlink", &[("FAKE_NVML", "1")], || inspection(Some(true))),
    ("inspection_without_nvlink", &[("FAKE_NVML", "0")], || inspection(Some(false))),
];

/// What a backend that embeds this one is told of DMA-BUF.
fn dma_buf(version: i32, exports: bool, maps: bool) {
    if !has_kernels() {
        return;
    }
    let gpu = Gpu::offer(&config()).and_then(|offer| Gpu::open(Pe(0), &[offer]));
    let gpu = gpu.expect("the driver in host memory has a GPU");
    let uuid = gpu.uuid();
    let cuda = gpu.into_backend(&[uuid], &config()).expect("the driver in host memory starts");
    assert_eq!(cuda.dma_buf(), DmaBuf { version, call: true, exports, maps });
}

/// What driver and NVML say of two GPUs.
fn inspection(nvlink: Option<bool>) {
    let found = symm_cuda::inspect();
    assert_eq!((found.driver, found.gpus.len()), (Some((13, 0)), 2));
    let gpu = &found.gpus[1];
    assert_eq!((gpu.ordinal, gpu.name.as_str()), (1, "fake GPU 1"));
    assert_eq!(gpu.uuid, "GPU-02000000-0000-0000-0000-000000000000");
    assert_eq!((gpu.compute_capability, gpu.multiprocessors, gpu.memory), ((9, 0), 132, 1 << 30));
    assert_eq!(gpu.free, nvlink.map(|_| 3 << 28));
    assert_eq!((gpu.handles_posix_fd, gpu.handles_fabric), (Some(true), Some(false)));
    let links: Vec<_> = found.links.iter().map(|l| (l.from, l.to, l.access, l.atomics, l.nvlink)).collect();
    assert_eq!(links, [(0, 1, true, true, nvlink), (1, 0, true, true, nvlink)]);
    assert_eq!(found.unavailable.is_none(), symm_kernels::built(), "{found:?}");
}

/// Whether a driver in place of which nothing was put is found all the same.
fn no_driver() {
    if ["/usr/lib/x86_64-linux-gnu", "/usr/lib64", "/usr/lib"]
        .iter()
        .any(|f| Path::new(f).join("libcuda.so.1").exists())
    {
        println!("this machine has a driver");
        exit(NOT_HERE);
    }
    no_driver_but_its_names();
}

/// Neither a panic nor a wait: everybody is told, and whoever only asks is told too.
fn no_driver_but_its_names() {
    assert_eq!(device_count(), Ok(0));
    let found = symm_cuda::inspect();
    assert!(found.gpus.is_empty() && found.driver.is_none(), "{found:?}");
    assert_eq!(found.unavailable.as_deref(), Some("libcuda was not found: no NVIDIA driver"));
    unavailable("libcuda was not found: no NVIDIA driver");
}

/// Runs a world on threads that see the given GPUs each.
fn each_sees<'a, T: Send>(
    visible: &[&'a [i32]],
    config: impl Fn(usize) -> Config + Sync,
    body: impl Fn(World<Cuda>) -> Result<T> + Sync,
) -> Vec<Result<T>> {
    // SAFETY: the driver is the one in host memory, which this process has loaded or loads now.
    let driver = unsafe { libloading::Library::new("libcuda.so") }.expect("the driver in host memory");
    // SAFETY: the function is declared so there.
    let see = unsafe { driver.get::<unsafe extern "C" fn(*const i32, i32)>("fake_see") };
    let see = *see.expect("the driver in host memory has it");
    std::thread::scope(|scope| {
        let (config, body) = (&config, &body);
        let pe = |(boot, gpus): (Arc<dyn Bootstrap>, &'a [i32])| {
            scope.spawn(move || {
                // SAFETY: as many numbers as are said.
                unsafe { see(gpus.as_ptr(), i32::try_from(gpus.len()).expect("few GPUs")) };
                let config = config(boot.pe().index());
                World::<Cuda>::init(boot, config).and_then(body)
            })
        };
        let threads: Vec<_> = local(visible.len()).into_iter().zip(visible.iter().copied()).map(pe).collect();
        threads.into_iter().map(|t| t.join().expect("no PE should panic")).collect()
    })
}

/// The number of the GPU whose context is current here, which `init` left so on a thread that had none.
fn current_gpu() -> i32 {
    let mut device = -1;
    // SAFETY: a valid place.
    assert_eq!(unsafe { sys::cuCtxGetDevice(&raw mut device) }, sys::CUresult::CUDA_SUCCESS);
    device
}

fn gpus_taken(visible: &[&[i32]], config: impl Fn(usize) -> Config + Sync) -> Vec<i32> {
    let gpus = each_sees(visible, config, |world| world.finalize().map(|()| current_gpu()));
    gpus.into_iter().map(|gpu| gpu.expect("every PE has a GPU")).collect()
}

fn names(device: Option<u32>) -> Config {
    let mut config = config();
    config.device = device;
    config
}

fn pes_by_turns_over_hosts() {
    if has_kernels() {
        let (one, other): (&[i32], &[i32]) = (&[0, 1], &[2, 3]);
        assert_eq!(gpus_taken(&[one, other, one, other], |_| config()), [0, 2, 1, 3]);
        assert_eq!(gpus_taken(&[one, one, other, other], |_| config()), [0, 1, 2, 3]);
        assert_eq!(gpus_taken(&[&[3], &[1], &[0], &[2]], |_| config()), [3, 1, 0, 2]);
    }
}

fn a_gpu_that_is_named() {
    if has_kernels() {
        let all: &[i32] = &[0, 1, 2, 3];
        assert_eq!(gpus_taken(&[all, all, all], |pe| names([None, Some(0), None][pe])), [1, 0, 2]);
        assert_eq!(gpus_taken(&[all, all], |pe| names(Some([3, 2][pe]))), [3, 2]);
    }
}

fn a_gpu_that_is_not_there() {
    let wanted = [
        "PE 0: SYMM_DEVICE (or Builder::device) is 2, expected a number from 0 to 1",
        "CUDA_VISIBLE_DEVICES",
    ];
    expect(&opens(&names(Some(2))), |e| matches!(e, Error::Unavailable { .. }), &wanted);
}

fn refused(e: &Error) -> bool {
    matches!(e, Error::Unsupported { capability: "PEER_LOAD_STORE", .. })
}

const SAME: [&str; 4] =
    ["PE 0 and PE 1 have the same GPU", "SYMM_DEVICE", "CUDA_VISIBLE_DEVICES", "SYMM_ALLOW_SHARED_GPU=1"];

fn a_gpu_that_two_pes_name() {
    if has_kernels() {
        expect(&opens(&names(Some(1))), refused, &SAME);
    }
}

fn one_gpu_of_several_pes() {
    if !has_kernels() {
        return;
    }
    expect(&opens(&config()), refused, &SAME);
    let mut allowed = config();
    allowed.allow_shared_gpu = true;
    assert_eq!(opens(&allowed), [Ok(()), Ok(())]);
}

/// Pad signals work between any two PEs; `by` says how slots are raised. What adds to a signal works, or is refused with these words.
fn signals(visible: &[&[i32]], by: &str, no_add: Option<&str>) {
    if !has_kernels() {
        return;
    }
    let list = std::env::temp_dir().join(format!("symm-signals-{}", std::process::id()));
    // SAFETY: no other thread runs yet.
    unsafe { std::env::set_var("FAKE_LAUNCHES", &list) };
    let results = each_sees(
        visible,
        |_| config(),
        |world| {
            let stream = world.stream()?;
            let handle = world.team().empty(&[64], DType::U8)?.rendezvous(world.team())?;
            let (me, other) = (handle.rank(), 1 - handle.rank());
            let row = world.local(DType::U8, 16)?;
            handle.put_signal(&stream, other, 0, None)?;
            handle.wait_signal(&stream, other, 0, None)?;
            handle.put_signal(&stream, me, 1, None)?;
            let update = |op| SignalUpdate { index: 0, op, value: 1 };
            handle.put_with_signal(&stream, other, 0, &row.span(), update(SignalOp::Set))?;
            let added = handle.put_with_signal(&stream, other, 0, &row.span(), update(SignalOp::Add));
            let as_expected = match (&added, no_add) {
                (Ok(()), None) => true,
                (Err(e @ Error::Unsupported { .. }), Some(words)) => e.to_string().contains(words),
                _ => false,
            };
            assert!(as_expected, "{added:?}, expected {no_add:?}");
            handle.put_with_signal(&stream, me, 0, &row.span(), update(SignalOp::Add))?;
            world.finalize()
        },
    );
    assert_eq!(results, [Ok(()), Ok(())]);
    let launched = std::fs::read_to_string(&list).expect("kernels were launched");
    std::fs::remove_file(&list).expect("our own file");
    let of_slots =
        |by: &str| launched.lines().filter(|l| *l == format!("symm_pad_signal {by}").trim_end()).count();
    // Each PE: one signal to the other, one wait and one signal to itself.
    let (stored, swapped) = (of_slots("by store"), of_slots(""));
    assert_eq!((stored, swapped), if by.is_empty() { (0, 6) } else { (2, 4) }, "{launched}");
}

/// A context of the caller's that is current stays so over every call, on a thread that opened the world and on another.
fn the_callers_context_stays() {
    if !has_kernels() {
        return;
    }
    let results = each(local(2), &config(), |world| {
        let other = 1 - i32::try_from(world.pe().0).expect("few PEs");
        let mut context = std::ptr::null_mut();
        // SAFETY: the driver is the one in host memory, whose contexts are plain memory.
        let retained = unsafe { sys::cuDevicePrimaryCtxRetain(&raw mut context, other) };
        assert_eq!(retained, sys::CUresult::CUDA_SUCCESS);
        let theirs = context as usize;
        let work = || -> Result<()> {
            // SAFETY: as above.
            unsafe { sys::cuCtxSetCurrent(theirs as sys::CUcontext) };
            let stays = |what: &str| assert_eq!(current_gpu(), other, "after {what}");
            let stream = world.stream()?;
            stays("stream");
            let row = world.local(DType::U8, 4096)?;
            stays("local");
            stream.write(&row.span(), &[1u8; 4096])?;
            stays("write");
            stream.fill(&row.span(), 2)?;
            stays("fill");
            let got: Vec<u8> = stream.read(&row.span())?;
            assert_eq!(got, [2; 4096]);
            stays("read");
            let tensor = world.team().empty(&[4096], DType::U8)?;
            stays("empty");
            let handle = tensor.rendezvous(world.team())?;
            stays("rendezvous");
            handle.put(&stream, 1 - handle.rank(), 0, &row.span())?;
            stays("put");
            handle.barrier(&stream, 0, None)?;
            stays("barrier");
            world.team().barrier(&stream, symm_core::model::Options::default())?;
            stays("barrier of the team");
            stream.synchronize()?;
            stays("synchronize");
            drop((tensor, handle, row, stream));
            stays("drop");
            world.team().recover()?;
            stays("recover");
            Ok(())
        };
        work()?;
        std::thread::scope(|scope| scope.spawn(work).join().expect("no panic"))?;
        assert_eq!(current_gpu(), other);
        world.finalize()
    });
    assert_eq!(results, [Ok(()), Ok(())]);
}
