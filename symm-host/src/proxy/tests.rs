//! Order of delivery, without the thread: messages are taken out as if any time had passed.

use std::sync::Arc;
use std::time::{Duration, Instant};

use symm_core::Pe;
use symm_core::backend::{Region, SignalOp};

use super::deliver::{Message, Update, Write};
use super::queue::Queue;
use super::{Fetch, Lane, Reply};
use crate::backend::Host;
use crate::memory::Area;
use crate::segment::Segment;

const DELAY: Duration = Duration::from_millis(5);

struct Bench {
    queue: Queue,
    area: Area,
    lanes: Vec<Arc<Lane>>,
    now: Instant,
    /// Number of the next message.
    next: u64,
}

impl Bench {
    fn new(seed: u64) -> Self {
        let mapping = Segment::allocate(4096).unwrap().own();
        let area = Area::of(&Region::<Host> { pe: Pe(1), mapping, offset: 0 }, 4096).unwrap();
        Bench {
            queue: Queue::new(seed, DELAY),
            area,
            lanes: (0..3).map(|i| Arc::new(Lane::new(i))).collect(),
            now: Instant::now(),
            next: 0,
        }
    }

    /// Takes a put; returns its number, counted from 1 like the queue's own.
    fn put(&mut self, lane: usize, to: u32, generation: u64, flag: bool) -> u64 {
        let update = flag.then(|| (self.area.place(0, 8), Update::Signal(SignalOp::Add, 1)));
        let data = Some((self.area.place(8, 8), vec![1; 8].into()));
        self.next += 1;
        let message = Message::Put(Write { to: Pe(to), data, update });
        self.queue.take(self.now, Arc::clone(&self.lanes[lane]), (generation, self.next), message);
        self.next
    }

    /// Delivers all that may go; returns the numbers in order.
    fn run(&mut self) -> Vec<u64> {
        let mut order = Vec::new();
        while let Some(due) = self.queue.next(self.now + 10 * DELAY) {
            due.message.deliver();
            order.push(due.number());
            self.queue.delivered(self.now, &due);
        }
        order
    }
}

fn position(order: &[u64], number: u64) -> usize {
    order.iter().position(|n| *n == number).expect("the message should have been delivered")
}

#[test]
fn generations_are_ordered_for_each_lane_and_pe_and_nothing_else_is() {
    let mut overtaken = [0; 3];
    for seed in 0..50 {
        let mut b = Bench::new(seed);
        let first = b.put(0, 1, 0, true);
        let fenced = b.put(0, 1, 1, true);
        let same_generation = b.put(0, 1, 1, true);
        let other_pe = b.put(0, 2, 1, true);
        let other_lane = b.put(1, 1, 0, true);
        let order = b.run();
        assert_eq!(order.len(), 5);
        assert!(position(&order, first) < position(&order, fenced).min(position(&order, same_generation)));
        for (count, (a, b)) in
            overtaken.iter_mut().zip([(fenced, same_generation), (first, other_pe), (first, other_lane)])
        {
            *count += usize::from(position(&order, b) < position(&order, a));
        }
        assert_eq!(b.area.word64(0).load(std::sync::atomic::Ordering::Relaxed), 5, "adds are never lost");
        assert_eq!(b.queue.oldest(), None);
    }
    assert!(overtaken.iter().all(|n| *n > 5), "free messages must overtake each other: {overtaken:?}");
}

#[test]
fn plain_puts_are_held_until_asked_for_or_followed() {
    let (mut held, mut total) = (0, 0);
    for seed in 0..40 {
        let mut b = Bench::new(seed);
        for _ in 0..8 {
            b.put(0, 1, 0, false);
            b.put(1, 1, 0, false);
        }
        total += 16;
        let early = b.run();
        held += 16 - early.len();
        // A fence with nothing behind it holds; a message of a later generation to the same PE lets go.
        b.put(0, 2, 1, true);
        assert_eq!(b.run().len(), 1);
        let last = b.put(0, 1, 1, true);
        let order = b.run();
        assert_eq!(order.last(), Some(&last));
        let mine = (1..=16).filter(|n| n % 2 == 1);
        assert!(mine.clone().all(|n| early.contains(&n) || order.contains(&n)));
        b.queue.flush(b.now, Some(1));
        let rest = b.run();
        assert_eq!(early.len() + order.len() + rest.len(), 17);
        assert_eq!((b.queue.oldest(), b.queue.targets()), (None, Vec::new()));
    }
    assert!(held > total / 8 && held < total / 2, "{held} of {total} held");
}

#[test]
fn plain_puts_behind_a_fence_may_be_held_too_and_flush_reaches_them() {
    let mut held = 0;
    for seed in 0..40 {
        let mut b = Bench::new(seed);
        b.put(0, 1, 0, true);
        for _ in 0..6 {
            b.put(0, 1, 1, false);
        }
        held += 7 - b.run().len();
        b.queue.flush(b.now, None);
        b.run();
        assert_eq!(b.queue.oldest(), None);

        // A flush that comes while they still wait for the fence counts as well.
        b.put(0, 1, 2, true);
        for _ in 0..6 {
            b.put(0, 1, 3, false);
        }
        b.queue.flush(b.now, Some(0));
        assert_eq!(b.run().len(), 7);
    }
    assert!(held > 20, "{held}");
}

#[test]
fn gets_wait_for_nothing_and_bring_the_bytes() {
    let mut b = Bench::new(1);
    b.area.word64(16).store(77, std::sync::atomic::Ordering::Relaxed);
    let reply = Arc::<Reply>::default();
    let fetch = Fetch { from: Pe(1), place: b.area.place(16, 8), bytes: 8, reply: Arc::clone(&reply) };
    b.queue.take(b.now, Arc::clone(&b.lanes[0]), (9, 0), Message::Get(fetch));
    assert_eq!(reply.take(), None);
    assert_eq!(b.queue.targets(), [Pe(1)]);
    b.run();
    assert_eq!(reply.take(), Some(77_u64.to_ne_bytes().to_vec()));
}

#[test]
fn hurry_ends_delays_and_holds() {
    let mut b = Bench::new(5);
    for generation in 0..4 {
        b.put(0, 1, generation, false);
        b.put(0, 1, generation, true);
    }
    b.queue.hurry(b.now);
    b.put(0, 1, 4, false);
    let mut n = 0;
    while let Some(due) = b.queue.next(b.now) {
        due.message.deliver();
        b.queue.delivered(b.now, &due);
        n += 1;
    }
    assert_eq!(n, 9);
}

#[test]
fn delays_are_a_function_of_the_seed() {
    let order = |seed| {
        let mut b = Bench::new(seed);
        for _ in 0..30 {
            b.put(0, 1, 0, true);
        }
        b.run()
    };
    assert_eq!(order(4), order(4));
    assert_ne!(order(4), order(5));
}
