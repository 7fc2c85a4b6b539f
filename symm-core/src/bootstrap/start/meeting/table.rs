//! What PE 0 of a meeting knows: whose cards have come, and who waits for which.

use std::collections::BTreeMap;
use std::net::TcpStream;

use super::{Arrival, NAMED, News, send};
use crate::error::Error;
use crate::pe::Pe;

/// What PE 0 knows.
#[derive(Default)]
pub(super) struct Table {
    cards: BTreeMap<Pe, Vec<u8>>,
    /// Those who wait for cards, by the first that is missing: a card that comes concerns nobody else.
    waiting: BTreeMap<Pe, Vec<Waiter>>,
    /// Those whose cards have all come.
    ready: Vec<Waiter>,
    /// PEs that have got what they wanted.
    pub(super) served: usize,
    /// Who is talking.
    pub(super) guests: usize,
    pub(super) impossible: Option<Error>,
}

/// One who waits for cards.
struct Waiter {
    stream: TcpStream,
    wanted: Vec<u32>,
    /// How many of the first ones have come.
    come: usize,
}

impl Table {
    /// As it is before anybody has come: PE 0 has its own card, and takes the others from here.
    pub(super) fn new(card: &[u8]) -> Self {
        Table { cards: [(Pe(0), card.to_vec())].into(), served: 1, ..Table::default() }
    }

    pub(super) fn missing(&self, n_pes: usize) -> Vec<Pe> {
        (0..n_pes).map(Pe::from).filter(|pe| !self.cards.contains_key(pe)).collect()
    }

    pub(super) fn cards(&self, wanted: &[u32]) -> Option<Vec<Vec<u8>>> {
        wanted.iter().map(|pe| self.cards.get(&Pe(*pe)).cloned()).collect()
    }

    /// Somebody has come. Returns whether for the first time.
    pub(super) fn arrive(&mut self, pe: Pe, stream: TcpStream, Arrival { card, wanted }: Arrival) -> bool {
        let first = self.cards.insert(pe, card).is_none();
        let waited = self.waiting.remove(&pe).unwrap_or_default();
        for waiter in waited.into_iter().chain([Waiter { stream, wanted, come: 0 }]) {
            self.place(waiter);
        }
        first
    }

    /// Cards stay once they have come, so nobody looks for one twice.
    fn place(&mut self, mut waiter: Waiter) {
        let missing = |pe: &u32| !self.cards.contains_key(&Pe(*pe));
        match waiter.wanted[waiter.come..].iter().position(missing) {
            None => self.ready.push(waiter),
            Some(more) => {
                waiter.come += more;
                let pe = Pe(waiter.wanted[waiter.come]);
                self.waiting.entry(pe).or_default().push(waiter);
            }
        }
    }

    /// Gives those who wait what has come, or, if it is time for that, the news.
    pub(super) fn serve(&mut self, n_pes: usize, news: bool) {
        let left = |why: String| log::warn!("PE 0: one who waited for the others hung up: {why}");
        if let Some(e) = &self.impossible {
            let message = News::Impossible(e.to_string());
            let all = std::mem::take(&mut self.waiting).into_values().flatten();
            for mut waiter in all.chain(std::mem::take(&mut self.ready)) {
                // Who left is told by whoever runs it.
                send(&mut waiter.stream, &message).unwrap_or_else(left);
            }
            return;
        }
        for mut waiter in std::mem::take(&mut self.ready) {
            let Some(cards) = self.cards(&waiter.wanted) else { continue };
            match send(&mut waiter.stream, &News::Cards(cards)) {
                Ok(()) => self.served += 1,
                Err(why) => left(why),
            }
        }
        if news {
            let missing = self.missing(n_pes).into_iter().take(NAMED).map(|pe| pe.0).collect();
            let message = News::Missing(missing);
            for waiters in self.waiting.values_mut() {
                waiters.retain_mut(|waiter| send(&mut waiter.stream, &message).map_err(left).is_ok());
            }
        }
    }
}
