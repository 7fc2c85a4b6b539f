//! The scenarios.

use std::os::fd::BorrowedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use cudarc::driver::sys;
use symm_core::bootstrap::{Bootstrap, Liveness, Message, Tag, local};
use symm_core::capability::Capabilities;
use symm_core::model::{Options, World};
use symm_core::{Config, DType, Deadline, Error, Pe, Result};
use symm_cuda::{Cuda, device_count, inspect, try_handles};

use crate::Scenario;

pub(crate) const ALL: &[Scenario] = &[
    ("driver_too_old", &[("FAKE_VERSION", "12080")], || {
        unavailable("supports CUDA 12.8, needed is 13.0: install driver 580")
    }),
    ("no_gpu", &[("FAKE_GPUS", "0")], no_gpu),
    ("driver_does_not_start", &[("FAKE_FAIL", "cuInit=999")], || unavailable("cuInit")),
    ("gpu_too_old", &[("FAKE_CAPABILITY", "75")], || unavailable("compute capability 7.x, needed is 8.0")),
    ("no_handles_to_share", &[("FAKE_NO_FD", "1")], || {
        unavailable("no memory handles that another process can import")
    }),
    ("context_cannot_be_made", &[("FAKE_FAIL", "cuDevicePrimaryCtxRetain=2")], || {
        unavailable("cuDevicePrimaryCtxRetain")
    }),
    ("kernels_do_not_load", &[("FAKE_FAIL", "cuModuleLoadData=209")], || unavailable("cuModuleLoadData")),
    ("import_fails", &[("FAKE_FAIL", "cuMemImportFromShareableHandle=101")], || {
        unreachable_peer("cannot import memory of PE", "101")
    }),
    ("access_is_refused", &[("FAKE_FAIL", "cuMemSetAccess=217")], || unreachable_peer("test page", "217")),
    ("out_of_memory", &[("FAKE_BYTES", "67108864")], out_of_memory),
    ("no_memory_for_contexts", &[("FAKE_FAIL", "cuMemAlloc_v2=2")], || {
        no_memory_at_start("cuMemAlloc_v2", "of its 1073741824 bytes free")
    }),
    ("no_pinned_memory", &[("FAKE_FAIL", "cuMemHostAlloc=2")], || {
        no_memory_at_start("cuMemHostAlloc", "bytes free, to be pinned")
    }),
    ("stream_of_another_context", &[], stream_of_another_context),
    ("launch_fails", &[("FAKE_FAIL", "cuLaunchKernelEx=719")], launch_fails),
    ("descriptors_by_default", &[("FAKE_FABRIC", "1")], descriptors_by_default),
    ("fabric_handles", &[("FAKE_FABRIC", "1")], fabric_handles),
    ("fabric_handles_fall_back", &[("FAKE_FABRIC", "0")], fabric_handles_fall_back),
    ("fabric_between_hosts", &[("FAKE_FABRIC", "1")], fabric_between_hosts),
    ("no_fabric_between_hosts", &[("FAKE_FABRIC", "0")], no_fabric_between_hosts),
    ("handles_that_work", &[("FAKE_FABRIC", "1")], || handles_are_tried(&[], &[])),
    ("handles_without_fabric", &[], || handles_are_tried(&[], &["the GPU has no fabric handles"])),
    ("handles_without_descriptors", &[("FAKE_FABRIC", "1"), ("FAKE_NO_FD", "1")], || {
        handles_are_tried(&["the GPU has no file descriptors"], &[])
    }),
    ("handles_that_are_refused", &[("FAKE_FABRIC", "1"), ("FAKE_FABRIC_FAIL", "cuMemCreate=800")], || {
        handles_are_tried(&[], &["memory with a fabric handle", "cuMemCreate", "800", "IMEX channel"])
    }),
    ("handles_of_other_memory", &[("FAKE_FABRIC", "1"), ("FAKE_OTHER_MEMORY", "1")], || {
        let other = &["imported memory has 0x0 where its owner wrote"];
        handles_are_tried(other, other)
    }),
    ("rounds_leave_nothing", &[], rounds_leave_nothing),
    ("captures_of_others_go_on", &[], captures_of_others_go_on),
    ("copy_engines", &[("FAKE_COPIES", "1")], copy_engines),
    ("small_sums_are_pushed", &[("FAKE_GPUS", "3")], small_sums_are_pushed),
];

/// Runs a world of each bootstrap on a thread; results in PE order.
pub(crate) fn each<T: Send>(
    boots: Vec<Arc<dyn Bootstrap>>,
    config: &Config,
    body: impl Fn(World<Cuda>) -> Result<T> + Sync,
) -> Vec<Result<T>> {
    std::thread::scope(|scope| {
        let pe = |boot| scope.spawn(|| World::<Cuda>::init(boot, config.clone()).and_then(&body));
        let threads: Vec<_> = boots.into_iter().map(pe).collect();
        threads.into_iter().map(|t| t.join().expect("no PE should panic")).collect()
    })
}

pub(crate) fn config() -> Config {
    let mut config = Config::default();
    config.init_timeout = Duration::from_secs(20);
    config.timeout = Duration::from_secs(20);
    config
}

/// A world of two that opens and closes.
pub(crate) fn opens(config: &Config) -> Vec<Result<()>> {
    each(local(2), config, |world| world.finalize())
}

pub(crate) fn expect<T: std::fmt::Debug>(
    results: &[Result<T>],
    wanted: impl Fn(&Error) -> bool,
    what: &[&str],
) {
    for result in results {
        let error = result.as_ref().expect_err("an error on every PE");
        let said = error.to_string();
        assert!(wanted(error) && what.iter().all(|w| said.contains(w)), "{error:?}, wanted {what:?}");
    }
}

/// `init` fails on both PEs with `Unavailable` and these words.
pub(crate) fn unavailable(what: &str) {
    // A build that could not run kernels says so before it makes a context.
    let needs_kernels = ["cuModule", "cuDevicePrimaryCtx"].iter().any(|call| what.contains(call));
    let what = if symm_kernels::built() || !needs_kernels { what } else { "without nvcc" };
    expect(&opens(&config()), |e| matches!(e, Error::Unavailable { .. }), &[what]);
}

fn no_gpu() {
    assert_eq!(device_count(), Ok(0));
    unavailable("no GPU is visible");
}

/// Whether this build has kernels, so that a world can open; says so if not.
pub(crate) fn has_kernels() -> bool {
    if !symm_kernels::built() {
        unavailable("without nvcc");
    }
    symm_kernels::built()
}

fn unreachable_peer(what: &str, code: &str) {
    if has_kernels() {
        let refused = |e: &Error| matches!(e, Error::Unsupported { capability: "PEER_LOAD_STORE", .. });
        expect(&opens(&config()), refused, &["PE 0", what, code]);
    }
}

fn out_of_memory() {
    if !has_kernels() {
        return;
    }
    let results = each(local(2), &config(), |world| {
        let large = world.team().empty(&[100 << 20], DType::U8);
        assert!(
            matches!(&large, Err(Error::OutOfMemory { requested, why, .. })
                if *requested >= 100 << 20 && why.contains("cuMemCreate") && why.contains("of its 67108864 bytes free")),
            "{large:?}"
        );
        // Nobody was left waiting, and what fits works.
        world.team().empty(&[4096], DType::U8)?.rendezvous(world.team())?;
        world.finalize()
    });
    assert_eq!(results, [Ok(()), Ok(())]);
}

/// Both PEs' `init` fails for want of memory, and says of how much.
fn no_memory_at_start(call: &str, free: &str) {
    if has_kernels() {
        let wanted = |e: &Error| matches!(e, Error::OutOfMemory { requested, .. } if *requested > 0);
        expect(&opens(&config()), wanted, &[call, "code 2", free]);
    }
}

fn stream_of_another_context() {
    if !has_kernels() {
        return;
    }
    let results = each(local(2), &config(), |world| {
        let (mut own, mut other) = (std::ptr::null_mut(), std::ptr::null_mut());
        let mut context = std::ptr::null_mut();
        let device = i32::try_from(world.pe().0).expect("few PEs");
        // SAFETY: the driver is the fake one, whose contexts and streams are plain memory.
        unsafe {
            assert_eq!(
                sys::cuDevicePrimaryCtxRetain(&raw mut context, 1 - device),
                sys::CUresult::CUDA_SUCCESS
            );
            sys::cuCtxSetCurrent(context);
            sys::cuStreamCreate(&raw mut other, 1);
            sys::cuDevicePrimaryCtxRetain(&raw mut context, device);
            sys::cuCtxSetCurrent(context);
            sys::cuStreamCreate(&raw mut own, 1);
        }
        // SAFETY: both streams live until the process ends.
        let (fine, wrong) =
            unsafe { (world.stream_from_raw(own.cast()), world.stream_from_raw(other.cast())) };
        drop(fine?);
        assert!(matches!(&wrong, Err(Error::InvalidArgument { argument: "stream", .. })), "{wrong:?}");
        world.finalize()
    });
    assert_eq!(results, [Ok(()), Ok(())]);
}

fn launch_fails() {
    if !has_kernels() {
        return;
    }
    let results = each(local(2), &config(), |world| {
        let stream = world.stream()?;
        let handle = world.team().empty(&[64], DType::U8)?.rendezvous(world.team())?;
        let failed = handle.barrier(&stream, 0, None);
        let call = |e: &Error| matches!(e, Error::Backend { call: "cuLaunchKernelEx", code: 719, .. });
        assert!(failed.as_ref().is_err_and(call), "{failed:?}");
        world.finalize()
    });
    assert_eq!(results, [Ok(()), Ok(())]);
}

/// Two PEs see each other's memory; returns what `World::stats` says of memory handles.
fn shared_memory(boots: Vec<Arc<dyn Bootstrap>>, handle: &str) -> Vec<Result<Vec<String>>> {
    let mut config = config();
    config.handle = handle.to_owned();
    let one_host = boots.iter().all(|b| (0..b.n_pes()).all(|pe| b.passes_fds(Pe::from(pe))));
    each(boots, &config, |world| {
        let handle = world.team().empty(&[4096], DType::U8)?.rendezvous(world.team())?;
        let (me, other) = (handle.rank(), 1 - handle.rank());
        let at = |rank: usize| handle.buffer_ptrs()[rank].expect("both are direct").0 as *mut u64;
        // SAFETY: the fake driver's memory is this process's, mapped twice; each PE writes a word of its own.
        unsafe { at(other).add(me).write_volatile(0x5151 + me as u64) };
        world.team().recover()?;
        // SAFETY: as above; the other PE has written before it came to `recover`.
        let seen = unsafe { at(me).add(other).read_volatile() };
        assert_eq!(seen, 0x5151 + other as u64);
        let said = world.stats().fallbacks.into_iter().filter(|s| s.starts_with("memory handles")).collect();
        // The end of a process is proven on one host only.
        assert_eq!(world.capabilities().contains(Capabilities::WITHOUT), one_host);
        world.finalize().map(|()| said)
    })
}

fn descriptors_by_default() {
    if has_kernels() {
        assert_eq!(shared_memory(local(2), "auto"), [Ok(vec![]), Ok(vec![])]);
        assert_eq!(shared_memory(local(2), "fd"), [Ok(vec![]), Ok(vec![])]);
    }
}

fn fabric_handles() {
    if has_kernels() {
        assert_eq!(shared_memory(local(2), "fabric"), [Ok(vec![]), Ok(vec![])]);
    }
}

fn fabric_handles_fall_back() {
    if !has_kernels() {
        return;
    }
    for said in shared_memory(local(2), "fabric") {
        let said = said.expect("descriptors are left");
        assert!(said.len() == 1 && said[0].contains("PE 0: the GPU has no fabric handles"), "{said:?}");
    }
}

fn fabric_between_hosts() {
    if has_kernels() {
        assert_eq!(shared_memory(two_hosts(), "auto"), [Ok(vec![]), Ok(vec![])]);
    }
}

fn no_fabric_between_hosts() {
    if !has_kernels() {
        return;
    }
    for setting in ["auto", "fabric", "fd"] {
        let results = shared_memory(two_hosts(), setting);
        let refused = |e: &Error| matches!(e, Error::Unsupported { capability: "PEER_LOAD_STORE", .. });
        expect(&results, refused, &["PE 0 and PE 1 are not on one host"]);
        assert!(
            setting == "fd"
                || results[1]
                    .as_ref()
                    .is_err_and(|e| e.to_string().contains("the GPU has no fabric handles"))
        );
    }
}

/// Both GPUs say the same of descriptors and fabric handles: that they work, or why not, with these words. Needs no kernels.
fn handles_are_tried(fd: &[&str], fabric: &[&str]) {
    let is = |tried: &std::result::Result<(), String>, words: &[&str]| match tried {
        Ok(()) => words.is_empty(),
        Err(why) => !words.is_empty() && words.iter().all(|w| why.contains(w)),
    };
    for gpu in 0..2 {
        let tried = try_handles(gpu).expect("the GPU can be opened");
        assert!(is(&tried.posix_fd, fd) && is(&tried.fabric, fabric), "{tried:?}");
    }
    let none = try_handles(2);
    assert!(
        matches!(&none, Err(Error::Unavailable { why, .. }) if why == "GPU 2 is not visible"),
        "{none:?}"
    );
    let found = inspect();
    assert_eq!(found.gpus.iter().map(|g| g.name.as_str()).collect::<Vec<_>>(), ["fake GPU 0", "fake GPU 1"]);
}

/// 1,000 times memory is allocated, shared and freed; descriptors and address space are those of round 50.
fn rounds_leave_nothing() {
    if !has_kernels() {
        return;
    }
    let figures = || {
        let fds = std::fs::read_dir("/proc/self/fd").expect("Linux has it").count();
        let status = std::fs::read_to_string("/proc/self/statm").expect("Linux has it");
        let pages: usize = status.split(' ').next().and_then(|n| n.parse().ok()).expect("a number of pages");
        (fds, pages)
    };
    let results = each(local(2), &config(), |world| {
        let mut early = (0, 0);
        for round in 0..1000 {
            world.team().empty(&[9 << 20], DType::U8)?.rendezvous(world.team())?;
            if round == 50 {
                early = figures();
            }
        }
        let late = figures();
        // The other PE, a thread of this process, is at most one round away: a segment, mapped by both, more or less.
        assert!(
            late.0 <= early.0 + 4 && late.1 <= early.1 + 4 * (10 << 20) / 4096,
            "{early:?} became {late:?}"
        );
        world.finalize()
    });
    assert_eq!(results, [Ok(()), Ok(())]);
}

/// What the library does beside somebody's capture in the strictest mode does not end it.
fn captures_of_others_go_on() {
    if !has_kernels() {
        return;
    }
    // SAFETY: the driver is the one in host memory, which this process has loaded or loads now.
    let driver = unsafe { libloading::Library::new("libcuda.so") }.expect("the driver in host memory");
    // SAFETY: the functions are declared so there.
    let (begin, end) = unsafe {
        (
            driver.get::<unsafe extern "C" fn()>("fake_begin_capture"),
            driver.get::<unsafe extern "C" fn() -> i32>("fake_end_capture"),
        )
    };
    let (begin, end) = (*begin.expect("it has this"), *end.expect("it has this"));
    let results = each(local(1), &config(), |world| {
        let early = (world.stream()?, world.local(DType::U8, 1 << 20)?);
        // SAFETY: no preconditions.
        unsafe { begin() };
        drop(early);
        drop((world.local(DType::U8, 1 << 20)?, world.stream()?));
        drop(world.team().empty(&[1 << 20], DType::U8)?.rendezvous(world.team())?);
        world.team().reclaim()?;
        // SAFETY: no preconditions.
        assert_eq!(unsafe { end() }, 1, "the capture was ended");
        world.finalize()
    });
    assert_eq!(results, [Ok(())]);
}

/// A file that the driver lists launches in, from now on.
fn launches() -> PathBuf {
    let list = std::env::temp_dir().join(format!("symm-launches-{}", std::process::id()));
    // SAFETY: no other thread runs yet.
    unsafe { std::env::set_var("FAKE_LAUNCHES", &list) };
    list
}

/// What was listed, once.
fn listed(list: &Path) -> Vec<String> {
    let launched = std::fs::read_to_string(list).expect("kernels were launched");
    std::fs::remove_file(list).expect("our own file");
    launched.lines().map(str::to_owned).collect()
}

/// What copy engines move, a small block of one's own behind the peers', a large one by a stream beside.
fn copy_engines() {
    if !has_kernels() {
        return;
    }
    let list = launches();
    for pes in [1, 2] {
        for (bytes, large) in [(4096, false), (4 << 20, true)] {
            let results = each(local(pes), &config(), |world| {
                let (team, stream) = (world.team(), world.stream()?);
                let input = team.empty(&[bytes], DType::U8)?.rendezvous(team)?;
                let output = world.local(DType::U8, pes * bytes)?;
                stream.write(&input.span(), &vec![team.rank() as u8 + 1; bytes])?;
                // Everybody has written.
                team.recover()?;
                team.low_contention_all_gather(&stream, &input, &output.span(), Options::default())?;
                let got: Vec<u8> = stream.read(&output.span())?;
                assert!(
                    got.chunks(bytes).enumerate().all(|(r, block)| block.iter().all(|b| *b == r as u8 + 1))
                );
                team.recover()?;
                world.finalize()
            });
            assert_eq!(results, vec![Ok(()); pes]);
            let mut got = listed(&list);
            // PEs are threads, whose lines mix.
            got.sort();
            let copy = |beside| format!("copy {bytes}{}", if beside { " beside" } else { "" });
            let mut wanted = vec![copy(large); pes];
            wanted.extend(vec![copy(false); pes * (pes - 1)]);
            wanted.extend(vec!["symm_take_copy".to_owned(); 2 * pes]);
            wanted.sort();
            assert_eq!(got, wanted);
        }
    }
}

fn small_sums_are_pushed() {
    if !has_kernels() {
        return;
    }
    let list = launches();
    // PEs, bytes that the settings allow, elements, kernel.
    for (pes, most, pair, numel, kernel) in [
        (2, 0, 8192, 8, "symm_reduce_bf16"),
        (2, 4096, 0, 2048, "symm_pushed_bf16_pair"),
        (2, 4096, 0, 2049, "symm_reduce_bf16"),
        (2, 4096, 8192, 2049, "symm_pushed_bf16_pair"),
        (2, 4096, 8192, 4097, "symm_reduce_bf16"),
        (2, 1 << 20, 0, 1 << 19, "symm_pushed_bf16_pair"),
        (3, 1 << 20, 8 << 20, 1 << 19, "symm_pushed_bf16"),
        (3, 1 << 20, 8 << 20, 1 << 20, "symm_reduce_bf16"),
        (3, 1 << 20, 0, 8, "symm_pushed_bf16"),
        (1, 1 << 20, 8 << 20, 8, "symm_reduce_bf16"),
    ] {
        let mut config = config();
        (config.all_reduce_push, config.all_reduce_push_pair) = (most, pair);
        let results = each(local(pes), &config, |world| {
            let stream = world.stream()?;
            let buffer = world.team().empty(&[numel], DType::BF16)?.rendezvous(world.team())?;
            let out = world.local(DType::BF16, numel)?;
            world.team().context().one_shot_all_reduce_out(
                &stream,
                &buffer,
                &out.span(),
                Options::default(),
            )?;
            world.team().context().two_shot_all_reduce(&stream, &buffer, Options::default())?;
            world.finalize()
        });
        assert_eq!(results, vec![Ok(()); pes]);
        assert_eq!(
            listed(&list),
            vec![kernel; 2 * pes],
            "{pes} PEs, {most} and {pair} bytes allowed, {numel} elements"
        );
    }
}

/// Two PEs that pass no descriptors to each other.
fn two_hosts() -> Vec<Arc<dyn Bootstrap>> {
    local(2).into_iter().map(|inner| Arc::new(Apart { inner }) as Arc<dyn Bootstrap>).collect()
}

#[derive(Debug)]
struct Apart {
    inner: Arc<dyn Bootstrap>,
}

impl Bootstrap for Apart {
    fn pe(&self) -> Pe {
        self.inner.pe()
    }
    fn n_pes(&self) -> usize {
        self.inner.n_pes()
    }
    fn passes_fds(&self, pe: Pe) -> bool {
        pe == self.pe()
    }
    fn send(&self, to: Pe, tag: Tag, payload: &[u8], fds: &[BorrowedFd<'_>]) -> Result<()> {
        assert!(fds.is_empty(), "a descriptor for another host");
        self.inner.send(to, tag, payload, fds)
    }
    fn recv(&self, from: Pe, tag: Tag, deadline: Deadline) -> Result<Message> {
        self.inner.recv(from, tag, deadline)
    }
    fn watch(&self, observer: Arc<dyn Liveness>) {
        self.inner.watch(observer);
    }
    fn failed(&self) -> Vec<Pe> {
        self.inner.failed()
    }
    fn close(&self) {
        self.inner.close();
    }
    fn abandon(&self, why: &str) {
        self.inner.abandon(why);
    }
}
