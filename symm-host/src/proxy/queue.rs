//! Order of delivery.
//!
//! A message may go when its delay is over and every message of its lane to the same PE with an earlier generation is
//! delivered. A put without a flag may be *held*: nobody can tell whether it arrived, so it goes only when something
//! is ordered after it (a message of a later generation to the same PE) or somebody asks (quiet, barrier, a marker).

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::{Duration, Instant};

use symm_core::Pe;

use super::{Lane, Message};

/// Lane and PE: what generations order.
type Route = (u64, Pe);

#[derive(Debug)]
pub(super) struct Queue {
    seed: u64,
    delay: Duration,
    hurry: bool,
    taken: u64,
    /// Numbers of messages not delivered yet.
    open: BTreeSet<u64>,
    /// What may go, by time; `ready` holds the messages by number.
    heap: BinaryHeap<Reverse<(Instant, u64)>>,
    ready: BTreeMap<u64, Entry>,
    routes: BTreeMap<Route, Ordered>,
}

/// Puts of one route that are not delivered, by generation.
#[derive(Debug, Default)]
struct Ordered {
    generations: BTreeMap<u64, Generation>,
}

#[derive(Debug, Default)]
struct Generation {
    /// Messages not delivered, wherever they are.
    open: usize,
    /// Those that wait for an earlier generation.
    blocked: Vec<Entry>,
    /// Those that are held back.
    held: Vec<Entry>,
}

#[derive(Debug)]
struct Entry {
    number: u64,
    generation: u64,
    lane: Arc<Lane>,
    /// Delay from when it may go.
    delay: Duration,
    hold: bool,
    message: Message,
}

/// A message taken out for delivery.
#[derive(Debug)]
pub(super) struct Due {
    number: u64,
    route: Route,
    generation: u64,
    /// The lane whose outstanding puts this one counts in.
    pub(super) put_of: Option<Arc<Lane>>,
    pub(super) message: Message,
}

#[cfg(test)]
impl Due {
    /// The message's number in the queue, from 1.
    pub(super) fn number(&self) -> u64 {
        self.number
    }
}

/// A well-mixed number from three (splitmix64's finisher).
fn mix(seed: u64, lane: u64, index: u64) -> u64 {
    let mut x = seed ^ lane.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ index.wrapping_mul(0xC2B2_AE3D_27D4_EB4F);
    for factor in [0xBF58_476D_1CE4_E5B9_u64, 0x94D0_49BB_1331_11EB] {
        x = (x ^ (x >> 30)).wrapping_mul(factor);
    }
    x ^ (x >> 31)
}

impl Queue {
    /// Delays are between 0 and `delay`.
    pub(super) fn new(seed: u64, delay: Duration) -> Self {
        Queue {
            seed,
            delay,
            hurry: false,
            taken: 0,
            open: BTreeSet::new(),
            heap: BinaryHeap::new(),
            ready: BTreeMap::new(),
            routes: BTreeMap::new(),
        }
    }

    /// Takes a message with its generation and its number in the lane.
    pub(super) fn take(
        &mut self,
        now: Instant,
        lane: Arc<Lane>,
        (generation, index): (u64, u64),
        message: Message,
    ) {
        let random = mix(self.seed, lane.id, index);
        let nanos = u64::try_from(self.delay.as_nanos()).unwrap_or(u64::MAX);
        let delay = Duration::from_nanos(((u128::from(random >> 2) * u128::from(nanos)) >> 62) as u64);
        // One in four of those that may be held.
        let hold = message.is_plain() && random & 3 == 0;
        self.taken += 1;
        let entry = Entry { number: self.taken, generation, lane, delay, hold, message };
        self.open.insert(entry.number);
        if !entry.message.is_put() {
            self.ripen(now, entry);
            return;
        }
        let route = (entry.lane.id, entry.message.target());
        let generations = &mut self.routes.entry(route).or_default().generations;
        let first = generations.keys().next().copied().unwrap_or(generation);
        let mine = generations.entry(generation).or_default();
        mine.open += 1;
        if generation > first {
            mine.blocked.push(entry);
            // Something is ordered after the earlier ones now.
            self.let_go(now, route..=route, generation);
        } else if hold && !self.hurry {
            mine.held.push(entry);
        } else {
            self.ripen(now, entry);
        }
    }

    /// Lets a message go after its delay.
    fn ripen(&mut self, now: Instant, entry: Entry) {
        let delay = if self.hurry { Duration::ZERO } else { entry.delay };
        self.heap.push(Reverse((now + delay, entry.number)));
        self.ready.insert(entry.number, entry);
    }

    /// Ripens what is held on some routes in generations before `end`.
    fn let_go(&mut self, now: Instant, which: RangeInclusive<Route>, end: u64) {
        let mut free = Vec::new();
        for ordered in self.routes.range_mut(which).map(|(_, o)| o) {
            for generation in ordered.generations.range_mut(..end).map(|(_, g)| g) {
                free.append(&mut generation.held);
                for e in &mut generation.blocked {
                    e.hold = false;
                }
            }
        }
        free.into_iter().for_each(|e| self.ripen(now, e));
    }

    /// Lets go of what a lane, or every lane, holds back.
    pub(super) fn flush(&mut self, now: Instant, lane: Option<u64>) {
        let (first, last) = lane.map_or((0, u64::MAX), |id| (id, id));
        self.let_go(now, (first, Pe(0))..=(last, Pe(u32::MAX)), u64::MAX);
    }

    /// From now on nothing is delayed or held.
    pub(super) fn hurry(&mut self, now: Instant) {
        self.hurry = true;
        self.flush(now, None);
        self.heap = self.ready.keys().map(|number| Reverse((now, *number))).collect();
    }

    /// Number of the last message taken.
    pub(super) fn taken(&self) -> u64 {
        self.taken
    }

    /// Lowest number not delivered.
    pub(super) fn oldest(&self) -> Option<u64> {
        self.open.first().copied()
    }

    /// PEs that something is still on its way to, in ascending order.
    pub(super) fn targets(&self) -> Vec<Pe> {
        let routes = self.routes.iter().filter(|(_, o)| !o.generations.is_empty()).map(|((_, pe), _)| *pe);
        let gets = self.ready.values().map(|e| e.message.target());
        routes.chain(gets).collect::<BTreeSet<_>>().into_iter().collect()
    }

    /// When the next message is due.
    pub(super) fn next_due(&self) -> Option<Instant> {
        self.heap.peek().map(|Reverse((at, _))| *at)
    }

    /// Takes out a message that is due.
    pub(super) fn next(&mut self, now: Instant) -> Option<Due> {
        let number = match self.heap.peek() {
            Some(Reverse((at, number))) if *at <= now => *number,
            _ => return None,
        };
        self.heap.pop();
        let e = self.ready.remove(&number)?;
        let route = (e.lane.id, e.message.target());
        let put_of = e.message.is_put().then_some(e.lane);
        Some(Due { number, route, generation: e.generation, put_of, message: e.message })
    }

    /// Notes a delivery: the next generation of its route may go when its own is done.
    pub(super) fn delivered(&mut self, now: Instant, due: &Due) {
        self.open.remove(&due.number);
        if due.put_of.is_none() {
            return;
        }
        let Some(ordered) = self.routes.get_mut(&due.route) else { return };
        let Some(generation) = ordered.generations.get_mut(&due.generation) else { return };
        generation.open -= 1;
        if generation.open > 0 {
            return;
        }
        ordered.generations.remove(&due.generation);
        // Whether anything is ordered after the generation that is next.
        let last = ordered.generations.len() == 1;
        let Some(mut next) = ordered.generations.first_entry() else {
            self.routes.remove(&due.route);
            return;
        };
        let mut free = std::mem::take(&mut next.get_mut().blocked);
        if last && !self.hurry {
            let held = free.extract_if(.., |e| e.hold).collect::<Vec<_>>();
            next.get_mut().held.extend(held);
        }
        free.into_iter().for_each(|e| self.ripen(now, e));
    }
}
