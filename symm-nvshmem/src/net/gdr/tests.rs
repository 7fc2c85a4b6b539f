//! Every row of the tables, over machines that are made up.

use super::*;

type Settings = [(&'static str, &'static str)];

const UCX_SET: (&str, &str) = ("NVSHMEM_REMOTE_TRANSPORT", "ucx");
const NONE: DmaBuf = DmaBuf { version: 13000, call: true, exports: true, maps: false };
const ALL: DmaBuf = DmaBuf { version: MAPPING_DRIVER, call: true, exports: true, maps: true };
/// Releases without a mapping of their own, and with one.
const OLD: [Version; 3] = [release(4, 5), release(6, 5), release(7, 0)];
const NEW: [Version; 2] = [release(8, 0), release(9, 1)];

const fn release(minor: u32, patch: u32) -> Version {
    Version { major: 3, minor, patch }
}

fn value<'a>(settings: &'a Settings) -> impl Fn(&str) -> Option<String> + 'a {
    |name| settings.iter().find(|(n, _)| *n == name).map(|(_, v)| (*v).to_owned())
}

fn reason(settings: &Settings) -> Option<&'static str> {
    needed(value(settings)).map(|needed| needed.reason)
}

/// With GDRCopy here or not, and this driver.
fn decided(version: Version, settings: &Settings, has_gdrcopy: bool, driver: DmaBuf) -> Result<(), String> {
    let gdrcopy = || if has_gdrcopy { Ok(()) } else { Err("no GDRCopy here".to_owned()) };
    decide(version, value(settings), gdrcopy, || driver)
}

#[track_caller]
fn refused(result: Result<(), String>, says: &[&str]) {
    let why = result.expect_err("no signal can be updated");
    for words in says {
        assert!(why.contains(words), "'{words}' is not in: {why}");
    }
}

#[test]
fn the_settings_say_whether_a_mapping_is_needed() {
    for without in [
        &[][..],
        &[("NVSHMEM_REMOTE_TRANSPORT", "")],
        &[("NVSHMEM_REMOTE_TRANSPORT", "ibrc"), ("NVSHMEM_DISABLE_IB_NATIVE_ATOMICS", "0")],
        &[("NVSHMEM_REMOTE_TRANSPORT", "ibdevx")],
        &[("NVSHMEM_REMOTE_TRANSPORT", "gpunetio")],
        &[("NVSHMEM_REMOTE_TRANSPORT", "libfabric"), ("NVSHMEM_LIBFABRIC_PROVIDER", "cxi")],
        &[("NVSHMEM_REMOTE_TRANSPORT", "none")],
        &[UCX_SET, ("NVSHMEM_IB_ENABLE_IBGDA", "1")],
        &[("NVSHMEM_IB_ENABLE_IBGDA", "1"), ("NVSHMEM_IBGDA_NIC_HANDLER", "cpu_host_memory")],
    ] {
        assert_eq!(reason(without), None, "{without:?}");
        // Then nothing is looked for, whatever is missing.
        for version in OLD.into_iter().chain(NEW) {
            assert_eq!(decided(version, without, false, NONE), Ok(()), "{without:?}");
        }
    }
    for (with, named) in [
        (&[("NVSHMEM_REMOTE_TRANSPORT", "UCX")][..], "ucx"),
        (&[UCX_SET, ("NVSHMEM_IB_ENABLE_IBGDA", "false")], "ucx"),
        (&[("NVSHMEM_DISABLE_IB_NATIVE_ATOMICS", "true")], "NATIVE_ATOMICS"),
        (&[("NVSHMEM_REMOTE_TRANSPORT", "libfabric"), ("NVSHMEM_LIBFABRIC_PROVIDER", "efa")], "efa"),
        (&[("NVSHMEM_IB_ENABLE_IBGDA", "1"), ("NVSHMEM_IBGDA_NIC_HANDLER", "CPU")], "NIC_HANDLER=cpu"),
    ] {
        assert!(reason(with).is_some_and(|why| why.contains(named)), "{with:?}: {:?}", reason(with));
        for version in OLD {
            assert_eq!(decided(version, with, true, NONE), Ok(()), "{with:?}");
            refused(decided(version, with, false, ALL), &[named, "need GDRCopy because", "no GDRCopy here"]);
        }
        for version in NEW {
            assert_eq!(decided(version, with, true, NONE), Ok(()), "{with:?}");
            assert_eq!(decided(version, with, false, ALL), Ok(()), "{with:?}");
            refused(decided(version, with, false, NONE), &[named, "no GDRCopy here", "CUDA 13.3"]);
        }
    }
}

#[test]
fn switches_are_read_as_nvshmem_reads_them() {
    for on in ["1", "true", "yes", "on", "off", ""] {
        assert!(is_on(Some(on.to_owned())), "{on}");
    }
    for off in ["0", "false", "False", "no", "N"] {
        assert!(!is_on(Some(off.to_owned())), "{off}");
    }
    assert!(!is_on(None));
}

#[test]
fn an_old_release_takes_gdrcopy_only() {
    for version in OLD {
        let why = decided(version, &[UCX_SET], false, ALL).expect_err("there is no GDRCopy");
        assert!(why.contains("ibrc") && !why.contains("DMA-BUF") && !why.contains("13.3"), "{why}");
        // It does not know the switch.
        assert_eq!(decided(version, &[UCX_SET, (INTERNAL, "1")], true, NONE), Ok(()));
        let off = decided(version, &[UCX_SET, ("NVSHMEM_DISABLE_GDRCOPY", "1")], true, ALL);
        refused(off, &["NVSHMEM_DISABLE_GDRCOPY is set"]);
        assert_eq!(decided(version, &[UCX_SET, ("NVSHMEM_DISABLE_GDRCOPY", "no")], true, NONE), Ok(()));
    }
}

#[test]
fn what_the_own_mapping_lacks_is_named_with_every_way_out() {
    let ways = [
        "GDRCopy 2.x with its driver",
        "driver of CUDA 13.3 (R610) or newer",
        "NVSHMEM_REMOTE_TRANSPORT=ibrc",
    ];
    let name = |driver, named: &[&str], not: &[&str]| {
        let why = decided(release(8, 0), &[UCX_SET], false, driver).expect_err("something is missing");
        let lacks = why.split("lacks ").nth(1).and_then(|w| w.split(". Each").next()).expect("a list");
        assert!(named.iter().all(|n| lacks.contains(n)) && !not.iter().any(|n| lacks.contains(n)), "{why}");
        refused(Err(why), &ways);
    };
    for version in [0, 12080, 13000, 13020, MAPPING_DRIVER - 1] {
        let of = format!("this one is of {}.{}", version / 1000, version % 1000 / 10);
        name(DmaBuf { version, ..ALL }, &[&of], &["124", "152"]);
    }
    assert_eq!(decided(release(8, 0), &[UCX_SET], false, DmaBuf { version: 14000, ..ALL }), Ok(()));
    name(DmaBuf { exports: false, ..ALL }, &["attribute 124"], &["13.3", "152", "cuMem"]);
    name(DmaBuf { maps: false, ..ALL }, &["attribute 152"], &["13.3", "124", "cuMem"]);
    name(DmaBuf { call: false, ..ALL }, &["cuMemGetHandleForAddressRange"], &["13.3", "124", "152"]);
    name(DmaBuf { exports: false, maps: false, ..ALL }, &["attribute 124", "attribute 152"], &["13.3"]);
}

#[test]
fn with_the_switch_for_the_own_mapping_gdrcopy_does_not_count() {
    let settings = [UCX_SET, (INTERNAL, "1")];
    for version in NEW {
        assert_eq!(decided(version, &settings, true, ALL), Ok(()));
        let unset = format!("with {INTERNAL} unset");
        refused(decided(version, &settings, true, NONE), &["GDRCopy does not count", "CUDA 13.3", &unset]);
        assert_eq!(decided(version, &[UCX_SET, (INTERNAL, "0")], true, NONE), Ok(()));
    }
}

#[test]
fn without_gdrcopy_by_setting_the_own_mapping_is_off_too() {
    for version in NEW {
        for internal in ["0", "1"] {
            let settings = [UCX_SET, ("NVSHMEM_DISABLE_GDRCOPY", "1"), (INTERNAL, internal)];
            refused(
                decided(version, &settings, true, ALL),
                &["NVSHMEM_DISABLE_GDRCOPY is set, which switches off both"],
            );
        }
    }
}

#[test]
fn the_own_mapping_is_not_taken_for_a_heap_in_host_memory() {
    let host = (HEAP_KIND, "sysmem");
    refused(
        decided(release(8, 0), &[UCX_SET, host], false, ALL),
        &["lacks a heap in GPU memory", "with NVSHMEM_HEAP_KIND unset"],
    );
    // GDRCopy's stand-in over made-up hosts maps it.
    assert_eq!(decided(release(8, 0), &[UCX_SET, host], true, NONE), Ok(()));
    assert_eq!(decided(release(8, 0), &[UCX_SET, (HEAP_KIND, "DEVICE")], false, ALL), Ok(()));
    // IBGDA's CPU maps queues, which are in GPU memory all the same.
    let queues = [("NVSHMEM_IB_ENABLE_IBGDA", "1"), ("NVSHMEM_IBGDA_NIC_HANDLER", "cpu"), host];
    assert_eq!(decided(release(8, 0), &queues, false, ALL), Ok(()));
}

#[test]
fn nothing_is_asked_that_does_not_count() {
    let unasked = || -> DmaBuf { panic!("the driver was asked") };
    assert_eq!(decide(release(8, 0), value(&[UCX_SET]), || Ok(()), unasked), Ok(()));
    let gdrcopy = || -> Result<(), String> { panic!("GDRCopy was opened") };
    assert_eq!(decide(release(8, 0), value(&[UCX_SET, (INTERNAL, "1")]), gdrcopy, || ALL), Ok(()));
    let no = || Err("no GDRCopy here".to_owned());
    refused(
        decide(release(7, 0), value(&[UCX_SET]), no, || panic!("the driver was asked")),
        &["no GDRCopy here"],
    );
}
