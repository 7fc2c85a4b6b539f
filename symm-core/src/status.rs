//! The status word of a team: written by whoever sees a failure first, read without a synchronisation.
//!
//! The record is plain words so that a GPU kernel can write it into mapped host memory. `code` is written last
//! (release) and read first (acquire); the first writer wins by a compare-and-swap on `claim`.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::error::{Error, Fault, Field};
use crate::pe::Pe;

/// Nothing failed.
pub const OK: u64 = 0;
/// A deadline passed.
pub const TIMEOUT: u64 = 1;
/// A PE's process is gone.
pub const PEER_FAILED: u64 = 2;
/// A PE brought something invalid.
pub const PEER_INVALID: u64 = 3;
/// A call of the backend's own library failed while an operation ran.
pub const BACKEND_LOST: u64 = 4;

/// Fault codes inside a record of kind [`PEER_INVALID`].
pub mod fault {
    /// [`Fault::Operation`](crate::Fault::Operation)
    pub const OPERATION: u64 = 1;
    /// [`Fault::Form`](crate::Fault::Form); with a [`Field`](crate::error::Field)'s code, shifted by 8,
    /// [`Fault::Differs`](crate::Fault::Differs)
    pub const FORM: u64 = 2;
    /// [`Fault::Output`](crate::Fault::Output)
    pub const OUTPUT: u64 = 3;
    /// [`Fault::Argument`](crate::Fault::Argument); with the name's code, shifted by 8
    pub const ARGUMENT: u64 = 4;
    /// [`Fault::NegativeSplit`](crate::Fault::NegativeSplit)
    pub const NEGATIVE_SPLIT: u64 = 5;
    /// [`Fault::InputRows`](crate::Fault::InputRows)
    pub const INPUT_ROWS: u64 = 6;
    /// [`Fault::OutputRows`](crate::Fault::OutputRows)
    pub const OUTPUT_ROWS: u64 = 7;
}

/// Phases of an operation, as records carry them; [`phase_name`] gives their words.
pub mod phase {
    /// Waiting for all members to arrive.
    pub const ARRIVAL: u64 = 0;
    /// Waiting for all senders' data.
    pub const DONE: u64 = 1;
    /// Waiting for a signal or a pad slot.
    pub const SIGNAL: u64 = 2;
    /// Waiting for the receiver to consume the previous signal.
    pub const CREDIT: u64 = 3;
    /// Waiting for the context's previous operation on this PE.
    pub const TICKET: u64 = 4;
    /// Waiting for outstanding puts and gets.
    pub const QUIET: u64 = 5;
    /// Waiting for all members to have got the sums of this PE.
    pub const GATHERED: u64 = 6;
    /// No wait's own end: a member said that it gave the team up because a deadline passed there.
    pub const GIVEN_UP: u64 = 7;
}

/// The word for a [`phase`].
pub fn phase_name(phase: u64) -> &'static str {
    match phase {
        phase::ARRIVAL => "arrival",
        phase::DONE => "done",
        phase::SIGNAL => "signal",
        phase::CREDIT => "credit",
        phase::TICKET => "ticket",
        phase::QUIET => "quiet",
        phase::GATHERED => "gathered",
        phase::GIVEN_UP => "given up",
        _ => "unknown",
    }
}

/// A failure before it is written: the fields of a [`StatusRecord`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Failure {
    /// [`TIMEOUT`], [`PEER_FAILED`], [`PEER_INVALID`] or [`BACKEND_LOST`].
    pub code: u64,
    /// Operation ([`crate::backend::op_name`]).
    pub op: u64,
    /// [`phase`], or the [`fault`] code for [`PEER_INVALID`].
    pub phase: u64,
    /// PE at fault (world number); for a timeout, the lowest that is late.
    pub pe: u64,
    /// Late PEs of a timeout as a bit set by *rank*, first 64 ranks.
    pub late: u64,
    /// Value waited for, or the fault's first number.
    pub expected: u64,
    /// Value seen last, or the fault's second number.
    pub got: u64,
    /// Nanoseconds waited.
    pub waited_ns: u64,
}

/// Status of a team; 128 bytes, 64-byte aligned, the same layout in `kernels/include/symm/status.cuh`.
#[derive(Debug, Default)]
#[repr(C, align(64))]
pub struct StatusRecord {
    /// 0, or the failure's code; written last.
    pub code: AtomicU64,
    /// 0 until the first failure claims the record.
    pub claim: AtomicU64,
    /// See [`Failure::op`].
    pub op: AtomicU64,
    /// See [`Failure::phase`].
    pub phase: AtomicU64,
    /// See [`Failure::pe`].
    pub pe: AtomicU64,
    /// See [`Failure::late`].
    pub late: AtomicU64,
    /// See [`Failure::expected`].
    pub expected: AtomicU64,
    /// See [`Failure::got`].
    pub got: AtomicU64,
    /// See [`Failure::waited_ns`].
    pub waited_ns: AtomicU64,
    reserved: [AtomicU64; 7],
}

const _: () = assert!(size_of::<StatusRecord>() == 128);

impl StatusRecord {
    /// Whether no failure is set. One relaxed load; safe to call while operations run.
    pub fn is_ok(&self) -> bool {
        self.code.load(Ordering::Acquire) == OK
    }

    /// Sets the failure unless one is set already; returns whether this one was taken.
    pub fn set(&self, f: &Failure) -> bool {
        if self.claim.compare_exchange(0, 1, Ordering::AcqRel, Ordering::Acquire).is_err() {
            return false;
        }
        self.op.store(f.op, Ordering::Relaxed);
        self.phase.store(f.phase, Ordering::Relaxed);
        self.pe.store(f.pe, Ordering::Relaxed);
        self.late.store(f.late, Ordering::Relaxed);
        self.expected.store(f.expected, Ordering::Relaxed);
        self.got.store(f.got, Ordering::Relaxed);
        self.waited_ns.store(f.waited_ns, Ordering::Relaxed);
        self.code.store(f.code, Ordering::Release);
        true
    }

    /// The failure that is set, if any.
    pub fn failure(&self) -> Option<Failure> {
        let code = self.code.load(Ordering::Acquire);
        (code != OK).then(|| Failure {
            code,
            op: self.op.load(Ordering::Relaxed),
            phase: self.phase.load(Ordering::Relaxed),
            pe: self.pe.load(Ordering::Relaxed),
            late: self.late.load(Ordering::Relaxed),
            expected: self.expected.load(Ordering::Relaxed),
            got: self.got.load(Ordering::Relaxed),
            waited_ns: self.waited_ns.load(Ordering::Relaxed),
        })
    }

    /// Clears the record; only `recover` may, after every member's operations have ended.
    pub fn clear(&self) {
        self.code.store(OK, Ordering::Release);
        self.claim.store(0, Ordering::Release);
    }
}

impl Failure {
    /// The failure as the error users get; `members` are the team's PEs in rank order.
    pub fn to_error(&self, backend: &'static str, members: &[Pe]) -> Error {
        let op = crate::backend::op_name(self.op);
        let pe = Pe::from(usize::try_from(self.pe).unwrap_or(usize::MAX));
        match self.code {
            TIMEOUT => {
                let mut late: Vec<Pe> = members
                    .iter()
                    .enumerate()
                    .filter(|(rank, _)| *rank < 64 && self.late >> rank & 1 == 1)
                    .map(|(_, pe)| *pe)
                    .collect();
                if late.is_empty() {
                    late.push(pe);
                }
                // Kernels write the epoch that a member gave up where one that waits itself writes an earlier one, of the late member.
                let collective = [phase::ARRIVAL, phase::DONE, phase::GATHERED].contains(&self.phase);
                let told = collective && self.expected == self.got;
                Error::Timeout {
                    op,
                    phase: phase_name(if told { phase::GIVEN_UP } else { self.phase }),
                    late,
                    expected: self.expected,
                    got: self.got,
                    waited: Duration::from_nanos(self.waited_ns),
                }
            }
            PEER_INVALID => Error::PeerInvalid { op, pe, what: self.fault() },
            BACKEND_LOST => Error::Backend {
                backend,
                call: op,
                code: i64::from_ne_bytes(self.expected.to_ne_bytes()),
                text: "the operation could not be completed".to_owned(),
            },
            _ => Error::PeerFailed { pe, why: "its connection closed".to_owned() },
        }
    }

    /// The fault of a record of kind [`PEER_INVALID`]: its code is in `phase`, its numbers in `expected` and `got`.
    pub fn fault(&self) -> Fault {
        let (code, detail) = (self.phase & 0xff, self.phase >> 8);
        match code {
            fault::OPERATION => Fault::Operation {
                expected: u32::try_from(self.expected).unwrap_or(u32::MAX),
                got: u32::try_from(self.got).unwrap_or(u32::MAX),
            },
            fault::FORM => match field(detail) {
                Some(what) => Fault::Differs { what, expected: self.expected, got: self.got },
                None => Fault::Form,
            },
            fault::OUTPUT => Fault::Output,
            fault::NEGATIVE_SPLIT => Fault::NegativeSplit {
                index: self.expected,
                value: i64::from_ne_bytes(self.got.to_ne_bytes()),
            },
            fault::INPUT_ROWS => Fault::InputRows { needed: self.expected, rows: self.got },
            fault::OUTPUT_ROWS => Fault::OutputRows { needed: self.expected, capacity: self.got },
            fault::ARGUMENT => {
                let name = usize::try_from(detail).ok().and_then(|place| ARGUMENTS.get(place));
                let got = match self.got {
                    POSITIVE => Some(i128::from(self.expected)),
                    NEGATIVE => Some(i128::from(i64::from_ne_bytes(self.expected.to_ne_bytes()))),
                    _ => None,
                };
                Fault::Argument { name: name.copied().unwrap_or_default(), got }
            }
            _ => Fault::REFUSED,
        }
    }

    /// A [`PEER_INVALID`] failure of operation `op` at `pe`.
    pub fn invalid(op: u64, pe: Pe, what: &Fault) -> Failure {
        let [phase, expected, got] = words(what);
        Failure { code: PEER_INVALID, op, phase, pe: u64::from(pe.0), expected, got, ..Failure::default() }
    }
}

/// A fault as records and headers carry it: its [`fault`] code, and two numbers. Kernels pass on all three as they are.
pub fn words(what: &Fault) -> [u64; 3] {
    let (code, a, b) = match *what {
        Fault::Operation { expected, got } => (fault::OPERATION, u64::from(expected), u64::from(got)),
        Fault::Differs { what, expected, got } => (fault::FORM | code(what) << 8, expected, got),
        Fault::Form => (fault::FORM, 0, 0),
        Fault::Output => (fault::OUTPUT, 0, 0),
        Fault::Argument { name, got } => {
            let place = ARGUMENTS.iter().zip(0u64..).find(|(known, _)| **known == name);
            let code = fault::ARGUMENT | place.map_or(0, |(_, place)| place) << 8;
            match (got.map(u64::try_from), got.map(i64::try_from)) {
                (Some(Ok(got)), _) => (code, got, POSITIVE),
                (_, Some(Ok(got))) => (code, u64::from_ne_bytes(got.to_ne_bytes()), NEGATIVE),
                _ => (code, 0, 0),
            }
        }
        Fault::NegativeSplit { index, value } => {
            (fault::NEGATIVE_SPLIT, index, u64::from_ne_bytes(value.to_ne_bytes()))
        }
        Fault::InputRows { needed, rows } => (fault::INPUT_ROWS, needed, rows),
        Fault::OutputRows { needed, capacity } => (fault::OUTPUT_ROWS, needed, capacity),
    };
    [code, a, b]
}

/// The second number of an argument's fault, where the first one is its value: one of 0 or more, or one below.
const POSITIVE: u64 = 1;
const NEGATIVE: u64 = 2;

/// Where input and output have different types, either may be the wrong one.
pub(crate) const DTYPES: &str = "dtype of input and output";

/// Names of arguments that a collective may refuse. A name's place is its code in a record; no name is the first.
const ARGUMENTS: [&str; 30] = [
    "",
    "input",
    "output",
    "out",
    "buffer",
    "symm_buffer",
    "local_input",
    "in_splits",
    "out_splits_offsets",
    "row",
    "major_align",
    "root",
    "last_dim",
    "rows",
    "cols",
    "row_stride",
    "dim",
    "offsets",
    "dst_ranks",
    "scatter_dim",
    "gather_dim",
    "in_tile",
    "in_tiles",
    "out_tile",
    "roots",
    "op",
    "stream",
    "ne",
    "len",
    DTYPES,
];

/// The field of a code, and the code of a field: its place in [`Field::ALL`], counted from 1.
fn field(code: u64) -> Option<Field> {
    let place = usize::try_from(code.checked_sub(1)?).ok()?;
    Field::ALL.get(place).copied()
}

fn code(field: Field) -> u64 {
    Field::ALL.iter().zip(1..).find(|(f, _)| **f == field).map_or(0, |(_, code)| code)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dtype::DType;

    #[test]
    fn the_first_failure_stays() {
        let s = StatusRecord::default();
        assert!(s.is_ok() && s.failure().is_none());
        let a =
            Failure { code: TIMEOUT, late: 0b101, expected: 7, got: 6, waited_ns: 9, ..Failure::default() };
        assert!(s.set(&a));
        assert!(!s.set(&Failure { code: PEER_FAILED, ..Failure::default() }));
        assert_eq!(s.failure(), Some(a));
        let members = [Pe(4), Pe(5), Pe(9)];
        match a.to_error("host", &members) {
            Error::Timeout { late, expected, got, .. } => {
                assert_eq!((late, expected, got), (vec![Pe(4), Pe(9)], 7, 6))
            }
            e => panic!("{e}"),
        }
        s.clear();
        assert!(s.is_ok());
    }

    /// What a kernel writes when a member has given up the epoch, and when its own deadline passed.
    #[test]
    fn a_deadline_of_another_member_is_told_apart() {
        let told = Failure { code: TIMEOUT, late: 2, expected: 7, got: 7, ..Failure::default() };
        for (failure, phase) in [(told, "given up"), (Failure { got: 6, ..told }, "arrival")] {
            match failure.to_error("cuda", &[Pe(4), Pe(5)]) {
                Error::Timeout { phase: p, late, .. } => assert_eq!((p, late), (phase, vec![Pe(5)])),
                e => panic!("{e}"),
            }
        }
        // A wait_until for another value than the signal has.
        let own = Failure { phase: phase::SIGNAL, ..told };
        assert!(matches!(own.to_error("cuda", &[Pe(4), Pe(5)]), Error::Timeout { phase: "signal", .. }));
    }

    #[test]
    fn faults_survive_the_record() {
        for what in [
            Fault::Operation { expected: 3, got: 4 },
            Fault::Form,
            Fault::Output,
            Fault::REFUSED,
            Fault::Argument { name: "root", got: None },
            Fault::Argument { name: DTYPES, got: None },
            Fault::Argument { name: "root", got: Some(u64::MAX.into()) },
            Fault::Argument { name: "root", got: Some(0) },
            Fault::Argument { name: "root", got: Some(i64::MIN.into()) },
            Fault::NegativeSplit { index: 2, value: -5 },
            Fault::InputRows { needed: 9, rows: 8 },
            Fault::OutputRows { needed: 11, capacity: 10 },
        ] {
            let f = Failure::invalid(1, Pe(3), &what);
            assert_eq!(f.fault(), what);
        }
        for what in Field::ALL {
            let what = Fault::Differs { what, expected: 6, got: u64::MAX };
            assert_eq!(Failure::invalid(1, Pe(3), &what).fault(), what);
        }
        let unknown = Failure { phase: fault::FORM | 99 << 8, ..Failure::default() };
        assert_eq!(unknown.fault(), Fault::Form);
    }

    /// What a member reads that gave another root, type or shape than rank 0.
    #[test]
    fn what_differs_is_said_with_both_values() {
        let said = |what, expected, got| Fault::Differs { what, expected, got }.to_string();
        assert_eq!(said(Field::Root, 0, 2), "root is 2, expected rank 0's 0");
        let (f32s, i32s) = (u64::from(DType::F32.code()), u64::from(DType::I32.code()));
        assert_eq!(said(Field::DType, f32s, i32s), "dtype is i32, expected rank 0's f32");
        assert!(said(Field::Shape, 0, 0).ends_with("differs from rank 0's"));
    }
}
