//! What PE 0 of a meeting knows: whose cards have come, and who waits for which.

use std::collections::BTreeMap;
use std::net::TcpStream;

use rustix::io::Errno;
use rustix::net::{RecvFlags, recv};

use super::{Arrival, HELD, NAMED, News, send};
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
    pe: Pe,
    stream: TcpStream,
    /// It had hung up when it was looked at last.
    gone: bool,
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
        for waiter in waited.into_iter().chain([Waiter { pe, stream, gone: false, wanted, come: 0 }]) {
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
        // Until all have come none can be through with the start, and who still waits here is told who is missing, and who died.
        let all_came = self.cards.len() >= n_pes;
        if self.impossible.is_none() && (all_came || n_pes > HELD) {
            self.hand_out();
        }
        if news && self.impossible.is_none() {
            self.look(n_pes);
        }
        if self.impossible.is_none() && news {
            self.tell(&News::Missing(self.named(n_pes)));
        }
        if let Some(e) = &self.impossible {
            let message = match e {
                Error::PeerFailed { pe, why } => News::Failed(pe.0, why.clone()),
                e => News::Impossible(e.to_string()),
            };
            self.tell(&message);
            (self.waiting, self.ready) = Default::default();
        }
    }

    /// Says that this PE waits no longer, and for whom it did.
    pub(super) fn give_up(&mut self, n_pes: usize) {
        self.tell(&News::GaveUp(self.named(n_pes)));
    }

    fn named(&self, n_pes: usize) -> Vec<u32> {
        self.missing(n_pes).into_iter().take(NAMED).map(|pe| pe.0).collect()
    }

    fn hand_out(&mut self) {
        for mut waiter in std::mem::take(&mut self.ready) {
            let Some(cards) = self.cards(&waiter.wanted) else { continue };
            match send(&mut waiter.stream, &News::Cards(cards)) {
                Ok(()) => self.served += 1,
                Err(why) => self.lost(waiter.pe, &format!("it hung up before all PEs had met: {why}")),
            }
        }
    }

    /// Looks who has hung up; who had at the last look, too, has failed. One whose own deadline passed a moment before this
    /// PE's is so not taken for the cause.
    fn look(&mut self, n_pes: usize) {
        let mut failed = None;
        for waiter in self.waiting.values_mut().flatten().chain(&mut self.ready) {
            let ended = match recv(&waiter.stream, &mut [0; 1], RecvFlags::PEEK | RecvFlags::DONTWAIT) {
                Ok((_, bytes)) => bytes == 0,
                Err(e) => e != Errno::AGAIN && e != Errno::INTR,
            };
            if std::mem::replace(&mut waiter.gone, ended) && ended {
                failed = failed.or(Some(waiter.pe));
            }
        }
        if let Some(pe) = failed {
            let missing = self.missing(n_pes);
            let first = missing.first().map_or_else(String::new, |pe| format!("PE {pe}"));
            let more =
                if missing.len() > 1 { format!(" and {} more", missing.len() - 1) } else { String::new() };
            self.lost(pe, &format!("its connection closed while PE 0 still waited for {first}{more}"));
        }
    }

    /// One that came is gone: the world cannot be made any more.
    fn lost(&mut self, pe: Pe, why: &str) {
        self.impossible.get_or_insert_with(|| Error::PeerFailed { pe, why: why.to_owned() });
    }

    /// To all who wait. Who has left is seen at the next look.
    fn tell(&mut self, message: &News) {
        for waiter in self.waiting.values_mut().flatten().chain(&mut self.ready) {
            if let Err(why) = send(&mut waiter.stream, message) {
                log::debug!("PE 0: PE {} hung up: {why}", waiter.pe);
            }
        }
    }
}
