//! The protocol that ships, under a model checker, with every order it relies on taken away in turn.
//!
//! Each model runs `symm_host::protocol` on loom's atomics over all interleavings and all values that the memory
//! model allows. [`must_hold`] runs it as it is; [`must_fail`] runs it with releases, acquires or fences removed and
//! expects loom to find a data race, a wrong value or a lost wake-up: a model that passes then would prove nothing.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::Ordering::{self, AcqRel, Acquire, Relaxed, Release};

use loom::cell::UnsafeCell;
use loom::sync::atomic::{AtomicU32, AtomicU64};
use loom::sync::{Arc, Condvar, Mutex};
use loom::thread;
use symm_core::backend::{Cmp, SignalOp};
use symm_host::protocol::cells::{Fence, Word};
use symm_host::protocol::{barrier, doorbell, exchange, signal};

/// Removes releases if `R`, acquires if `A`.
fn weaken<const R: bool, const A: bool>(order: Ordering) -> Ordering {
    match order {
        Release if R => Relaxed,
        Acquire if A => Relaxed,
        AcqRel if R && A => Relaxed,
        AcqRel if R => Acquire,
        AcqRel if A => Release,
        other => other,
    }
}

macro_rules! word {
    ($name:ident, $atomic:ident, $value:ty) => {
        #[derive(Debug)]
        struct $name<const R: bool, const A: bool>($atomic);

        impl<const R: bool, const A: bool> $name<R, A> {
            fn new() -> Self {
                $name($atomic::new(0))
            }
        }

        impl<const R: bool, const A: bool> Word<$value> for $name<R, A> {
            fn load(&self, order: Ordering) -> $value {
                self.0.load(weaken::<R, A>(order))
            }
            fn store(&self, value: $value, order: Ordering) {
                self.0.store(value, weaken::<R, A>(order));
            }
            fn fetch_add(&self, value: $value, order: Ordering) -> $value {
                self.0.fetch_add(value, weaken::<R, A>(order))
            }
            fn fetch_max(&self, value: $value, order: Ordering) -> $value {
                self.0.fetch_max(value, weaken::<R, A>(order))
            }
            fn compare_exchange(
                &self,
                current: $value,
                new: $value,
                success: Ordering,
                failure: Ordering,
            ) -> Result<$value, $value> {
                self.0.compare_exchange(current, new, weaken::<R, A>(success), weaken::<R, A>(failure))
            }
        }
    };
}

word!(W32, AtomicU32, u32);
word!(W64, AtomicU64, u64);

/// Plain memory whose every unordered access loom reports.
#[derive(Debug)]
struct Data(UnsafeCell<u64>);

// SAFETY: loom checks each access of the cell; that is what the models are for.
unsafe impl Sync for Data {}
// SAFETY: as above.
unsafe impl Send for Data {}

impl Data {
    fn new() -> Self {
        Data(UnsafeCell::new(0))
    }
    fn set(&self, value: u64) {
        // SAFETY: loom fails the model if this is not the only access.
        self.0.with_mut(|p| unsafe { *p = value });
    }
    fn get(&self) -> u64 {
        // SAFETY: loom fails the model if a write is concurrent.
        self.0.with(|p| unsafe { *p })
    }
}

fn until(mut holds: impl FnMut() -> bool) {
    while !holds() {
        thread::yield_now();
    }
}

fn check(preemptions: Option<usize>, model: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = preemptions;
    builder.check(model);
}

fn must_fail(name: &str, preemptions: Option<usize>, model: impl Fn() + Sync + Send + 'static) {
    let found = catch_unwind(AssertUnwindSafe(|| check(preemptions, model)));
    let found = found.expect_err(&format!("{name}: the model does not depend on what was removed"));
    let text = found.downcast_ref::<String>().cloned();
    let text = text.or_else(|| found.downcast_ref::<&str>().map(ToString::to_string)).unwrap_or_default();
    let genuine = ["Causality violation", "assertion", "deadlock"].iter().any(|word| text.contains(word));
    assert!(genuine, "{name}: loom gave up instead of finding a fault: {text}");
}

/// Runs a model as it ships, then without releases, then without acquires.
macro_rules! model {
    ($name:ident, $bound:expr, $model:ident) => {
        #[test]
        fn $name() {
            check($bound, $model::<false, false>);
            must_fail(concat!(stringify!($name), " without release"), $bound, $model::<true, false>);
            must_fail(concat!(stringify!($name), " without acquire"), $bound, $model::<false, true>);
        }
    };
}

// ---- put_with_signal and wait_until ----

fn set_announces_its_data<const R: bool, const A: bool>() {
    let s = Arc::new((Data::new(), W64::<R, A>::new()));
    let t = Arc::clone(&s);
    let sender = thread::spawn(move || signal::put_with_signal(|| t.0.set(7), &t.1, SignalOp::Set, 1));
    until(|| signal::compares(&s.1, Cmp::Eq, 1).is_ok());
    assert_eq!(s.0.get(), 7);
    sender.join().expect("thread");
}
model!(put_with_signal_set, None, set_announces_its_data);

fn adds_announce_all_their_data<const R: bool, const A: bool>() {
    let s = Arc::new(([Data::new(), Data::new()], W64::<R, A>::new()));
    let senders = [0, 1].map(|i| {
        let t = Arc::clone(&s);
        thread::spawn(move || signal::put_with_signal(|| t.0[i].set(7), &t.1, SignalOp::Add, 1))
    });
    until(|| signal::compares(&s.1, Cmp::Ge, 2).is_ok());
    assert_eq!([s.0[0].get(), s.0[1].get()], [7, 7]);
    senders.into_iter().for_each(|t| t.join().expect("thread"));
}
model!(put_with_signal_add, Some(3), adds_announce_all_their_data);

// ---- put_signal and wait_signal of the pad ----

fn a_slot_carries_data_there<const R: bool, const A: bool>() {
    let s = Arc::new((Data::new(), W32::<R, A>::new()));
    let t = Arc::clone(&s);
    let sender = thread::spawn(move || {
        t.0.set(7);
        assert!(signal::raise(&t.1));
    });
    until(|| signal::consume(&s.1));
    assert_eq!(s.0.get(), 7);
    sender.join().expect("thread");
}
model!(pad_slot_forward, None, a_slot_carries_data_there);

fn an_idle_slot_ends_the_receivers_use<const R: bool, const A: bool>() {
    let s = Arc::new((Data::new(), W32::<R, A>::new()));
    assert!(signal::raise(&s.1));
    let t = Arc::clone(&s);
    let receiver = thread::spawn(move || {
        assert_eq!(t.0.get(), 0);
        until(|| signal::consume(&t.1));
    });
    // The second raise succeeds only when the first was consumed: what the receiver read before may be overwritten.
    until(|| signal::raise(&s.1));
    s.0.set(1);
    receiver.join().expect("thread");
}
model!(pad_slot_backward, None, an_idle_slot_ends_the_receivers_use);

fn credits_stand_for_the_slot<const R: bool, const A: bool>() {
    struct Pad<const R: bool, const A: bool> {
        data: Data,
        slot: W32<R, A>,
        credit: W32<R, A>,
        sent: W32<R, A>,
        consumed: W32<R, A>,
    }
    let [slot, credit, sent, consumed] = std::array::from_fn(|_| W32::new());
    let s = Arc::new(Pad::<R, A> { data: Data::new(), slot, credit, sent, consumed });
    let t = Arc::clone(&s);
    let receiver = thread::spawn(move || {
        for round in 1..=2 {
            until(|| signal::consume(&t.slot));
            assert_eq!(t.data.get(), round);
            signal::give_credit(&t.credit, signal::count(&t.consumed));
        }
    });
    for round in 1..=2 {
        until(|| signal::take_credit(&s.credit, &s.sent).is_ok());
        s.data.set(round);
        signal::deliver_raise(&s.slot);
    }
    receiver.join().expect("thread");
}
model!(pad_credit, Some(3), credits_stand_for_the_slot);

#[test]
fn one_credit_is_taken_once() {
    check(None, || {
        let s = Arc::new([W32::<false, false>::new(), W32::new()]);
        let takers = [0, 1].map(|_| {
            let t = Arc::clone(&s);
            thread::spawn(move || signal::take_credit(&t[0], &t[1]).is_ok())
        });
        let taken = takers.map(|t| usize::from(t.join().expect("thread")));
        assert_eq!(taken[0] + taken[1], 1);
    });
}

// ---- the barrier of a handle ----

fn barriers_in_a_row<const R: bool, const A: bool>() {
    struct Pe<const R: bool, const A: bool> {
        data: Data,
        word: W64<R, A>,
        counter: W64<R, A>,
    }
    let pe = || Pe::<R, A> { data: Data::new(), word: W64::new(), counter: W64::new() };
    let pes = Arc::new([pe(), pe()]);
    let run = |pes: &[Pe<R, A>; 2], me: usize| {
        let (mine, other) = (&pes[me], &pes[1 - me]);
        let meet = |expected: u64| {
            let epoch = barrier::begin(&mine.counter);
            assert_eq!(epoch, expected);
            barrier::announce(&other.word, epoch);
            until(|| barrier::arrived(&mine.word, epoch).is_ok());
        };
        mine.data.set(1);
        meet(1);
        assert_eq!(other.data.get(), 1);
        meet(2);
        mine.data.set(2);
    };
    let theirs = Arc::clone(&pes);
    let t = thread::spawn(move || run(&theirs, 1));
    run(&pes, 0);
    t.join().expect("thread");
}
model!(handle_barrier, Some(3), barriers_in_a_row);

// ---- arrival and slots ----

struct Exchange<const R: bool, const A: bool> {
    /// By parity: what the peer published here.
    slots: [Data; 2],
    arrival: W64<R, A>,
    output: Data,
    done: W64<R, A>,
}

impl<const R: bool, const A: bool> Exchange<R, A> {
    fn new() -> Self {
        Exchange {
            slots: [Data::new(), Data::new()],
            arrival: W64::new(),
            output: Data::new(),
            done: W64::new(),
        }
    }
}

/// `epochs` operations that move nothing, on `parities` slots.
fn arrivals<const R: bool, const A: bool>(epochs: u64, parities: u64) {
    let pes = Arc::new([Exchange::<R, A>::new(), Exchange::new()]);
    let run = move |pes: &[Exchange<R, A>; 2], me: usize| {
        let (mine, other) = (&pes[me], &pes[1 - me]);
        for epoch in 1..=epochs {
            let slot = (epoch % parities) as usize;
            exchange::publish(|| other.slots[slot].set(epoch), &other.arrival, epoch);
            until(|| exchange::reached(&mine.arrival, epoch).is_ok());
            assert_eq!(mine.slots[slot].get(), epoch);
        }
    };
    let theirs = Arc::clone(&pes);
    let t = thread::spawn(move || run(&theirs, 1));
    run(&pes, 0);
    t.join().expect("thread");
}

fn three_epochs_on_two_slots<const R: bool, const A: bool>() {
    arrivals::<R, A>(3, 2);
}
model!(arrival_and_slot_parity, Some(3), three_epochs_on_two_slots);

#[test]
fn one_slot_is_not_enough() {
    must_fail("one slot", Some(2), || arrivals::<false, false>(2, 1));
}

// ---- done flags ----

/// Two operations whose data go to the same output; `arrive` tells whether pushes wait for the arrival.
fn pushes<const R: bool, const A: bool>(arrive: bool) {
    let pes = Arc::new([Exchange::<R, A>::new(), Exchange::new()]);
    let run = move |pes: &[Exchange<R, A>; 2], me: usize| {
        let (mine, other) = (&pes[me], &pes[1 - me]);
        for epoch in 1..=2 {
            exchange::publish(|| (), &other.arrival, epoch);
            until(|| !arrive || exchange::reached(&mine.arrival, epoch).is_ok());
            exchange::finish(|| other.output.set(10 * epoch + me as u64), &other.done, epoch);
            until(|| exchange::reached(&mine.done, epoch).is_ok());
            assert_eq!(mine.output.get(), 10 * epoch + 1 - me as u64);
        }
    };
    let theirs = Arc::clone(&pes);
    let t = thread::spawn(move || run(&theirs, 1));
    run(&pes, 0);
    t.join().expect("thread");
}

fn two_pushes<const R: bool, const A: bool>() {
    pushes::<R, A>(true);
}
model!(done_flags, Some(3), two_pushes);

#[test]
fn arrival_says_that_the_output_may_be_written() {
    must_fail("push before arrival", Some(2), || pushes::<false, false>(false));
}

// ---- gathered flags ----

/// The two-shot form with an output of its own: each PE leaves sums in its buffer, where the other gets them; behind the
/// operation the buffer is its owner's again, if the owner `waits` for the other's gathered flag.
fn gathers<const R: bool, const A: bool>(waits: bool) {
    struct Pe<const R: bool, const A: bool> {
        buffer: Data,
        done: W64<R, A>,
        gathered: W64<R, A>,
    }
    let pe = || Pe::<R, A> { buffer: Data::new(), done: W64::new(), gathered: W64::new() };
    let pes = Arc::new([pe(), pe()]);
    let run = move |pes: &[Pe<R, A>; 2], me: usize| {
        let (mine, other) = (&pes[me], &pes[1 - me]);
        exchange::finish(|| mine.buffer.set(10 + me as u64), &other.done, 1);
        until(|| exchange::reached(&mine.done, 1).is_ok());
        exchange::finish(|| assert_eq!(other.buffer.get(), 11 - me as u64), &other.gathered, 1);
        until(|| !waits || exchange::reached(&mine.gathered, 1).is_ok());
        mine.buffer.set(99);
    };
    let theirs = Arc::clone(&pes);
    let t = thread::spawn(move || run(&theirs, 1));
    run(&pes, 0);
    t.join().expect("thread");
}

fn a_buffer_is_ones_own_again<const R: bool, const A: bool>() {
    gathers::<R, A>(true);
}
model!(gathered_flags, Some(3), a_buffer_is_ones_own_again);

#[test]
fn done_flags_do_not_say_that_sums_were_got() {
    must_fail("a buffer written before all have got its sums", Some(2), || gathers::<false, false>(false));
}

// ---- aborts ----

fn an_abort_carries_its_cause<const R: bool, const A: bool>() {
    let s = Arc::new((W64::<R, A>::new(), W64::<R, A>::new()));
    let t = Arc::clone(&s);
    let peer = thread::spawn(move || exchange::abort(&t.0, &t.1, 4, 99));
    assert_eq!(exchange::aborted(&s.0, &s.1, 3), None, "a later epoch is not this one's end");
    until(|| match exchange::aborted(&s.0, &s.1, 4) {
        Some(cause) => {
            assert_eq!(cause, 99);
            true
        }
        None => false,
    });
    peer.join().expect("thread");
}
model!(aborted, None, an_abort_carries_its_cause);

// ---- tickets ----

fn streams_take_turns<const R: bool, const A: bool>() {
    let s = Arc::new((Data::new(), W64::<R, A>::new(), W64::<R, A>::new()));
    let run = |s: &(Data, W64<R, A>, W64<R, A>)| {
        let epoch = exchange::take_ticket(&s.1);
        until(|| exchange::my_turn(&s.2, epoch).is_ok());
        assert_eq!(s.0.get(), epoch - 1);
        s.0.set(epoch);
        exchange::complete(&s.2, epoch);
    };
    let t = Arc::clone(&s);
    let other = thread::spawn(move || run(&t));
    run(&s);
    other.join().expect("thread");
}
model!(tickets, None, streams_take_turns);

// ---- the doorbell ----

struct Full;
impl Fence for Full {
    fn full() {
        loom::sync::atomic::fence(Ordering::SeqCst);
    }
}

struct Missing;
impl Fence for Missing {
    fn full() {}
}

/// A waiter that sleeps without a time limit: a lost wake-up is a deadlock. The futex is a lock and a condition.
fn no_wake_up_is_lost<Ringer: Fence + 'static, Waiter: Fence + 'static>() {
    struct Bell {
        flag: W64<false, false>,
        sequence: W32<false, false>,
        waiters: W32<false, false>,
        bucket: Mutex<()>,
        woken: Condvar,
    }
    let bell = Arc::new(Bell {
        flag: W64::new(),
        sequence: W32::new(),
        waiters: W32::new(),
        bucket: Mutex::new(()),
        woken: Condvar::new(),
    });
    let b = Arc::clone(&bell);
    let ringer = thread::spawn(move || {
        b.flag.store(1, Release);
        if doorbell::ring::<Ringer>(&b.sequence, &b.waiters) {
            let _bucket = b.bucket.lock().expect("lock");
            b.woken.notify_all();
        }
    });
    while exchange::reached(&bell.flag, 1).is_err() {
        let key = doorbell::enlist::<Waiter>(&bell.sequence, &bell.waiters);
        if exchange::reached(&bell.flag, 1).is_err() {
            let bucket = bell.bucket.lock().expect("lock");
            if bell.sequence.load(Relaxed) == key {
                drop(bell.woken.wait(bucket).expect("lock"));
            }
        }
        doorbell::leave(&bell.waiters);
    }
    ringer.join().expect("thread");
}

#[test]
fn doorbell_loses_no_wake_up() {
    check(Some(3), no_wake_up_is_lost::<Full, Full>);
    must_fail("a ring without its fence", Some(3), no_wake_up_is_lost::<Missing, Full>);
    must_fail("a waiter without its fence", Some(3), no_wake_up_is_lost::<Full, Missing>);
}
