//! What `fuzz/` runs, with a stable compiler: noise, and messages with something wrong in them.

use proptest::prelude::*;
use symm_core::bootstrap::read_noise;

/// A frame's header: magic, kind, descriptors, announced length, tag; and bytes after it.
fn frame() -> impl Strategy<Value = Vec<u8>> {
    let lengths = prop_oneof![0..40_u64, Just(1 << 30), Just((1 << 30) + 1), any::<u64>()];
    let body = prop::collection::vec(any::<u8>(), 0..60);
    (0..8_u16, 0..3_u16, lengths, any::<u64>(), any::<u64>(), body).prop_map(
        |(kind, fds, length, team, seq, body)| {
            let mut bytes = b"symf".to_vec();
            bytes.extend(kind.to_le_bytes());
            bytes.extend(fds.to_le_bytes());
            [length, team, seq].iter().for_each(|word| bytes.extend(word.to_le_bytes()));
            bytes.extend(body);
            bytes
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn noise_harms_nobody(noise in prop::collection::vec(any::<u8>(), 0..700)) {
        read_noise(&noise);
    }

    #[test]
    fn greetings_with_something_wrong(noise in prop::collection::vec(any::<u8>(), 0..700)) {
        read_noise(&[&b"symmboot"[..], &noise].concat());
    }

    #[test]
    fn frames_with_something_wrong(frames in prop::collection::vec(frame(), 0..6)) {
        read_noise(&frames.concat());
    }
}

/// What is announced is not allocated before it comes.
#[test]
fn a_gigabyte_that_is_only_announced() {
    let mut header = b"symf".to_vec();
    header.extend(1_u16.to_le_bytes());
    header.extend(0_u16.to_le_bytes());
    [1_u64 << 30, 7, 7].iter().for_each(|word| header.extend(word.to_le_bytes()));
    // The peak of the address space: what was allocated and given back counts, too. Threads of other tests add 64 MiB each.
    let peak = || {
        let status = std::fs::read_to_string("/proc/self/status").expect("Linux has it");
        let line = status.lines().find(|l| l.starts_with("VmPeak:")).expect("the line is there");
        let kib = line.split_whitespace().nth(1).and_then(|n| n.parse::<usize>().ok());
        kib.expect("it is a number") << 10
    };
    let before = peak();
    (0..100).for_each(|_| read_noise(&header));
    let more = peak() - before;
    assert!(more < 512 << 20, "{more} bytes more");
}
