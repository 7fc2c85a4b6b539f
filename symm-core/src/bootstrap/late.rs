//! Who is late in an exchange along a tree.
//!
//! A PE that waits knows only that its neighbour has sent nothing, which may be because somebody behind it is late. So it
//! asks: whoever is in the exchange says whom it waits for, and these are asked next. Around one that has not come, its
//! other neighbours are asked, because nobody else may be waiting for those behind it.

use std::collections::BTreeSet;
use std::time::Duration;

use super::{Group, Presence, Tag};
use crate::deadline::Deadline;
use crate::pe::Pe;

/// Time that all questions may take, and one round of them.
const LIMIT: Duration = Duration::from_millis(500);
const ROUND: Duration = Duration::from_millis(250);
/// Most PEs that are asked: each may need a connection.
const MOST: usize = 1024;

impl Group {
    /// The members that have not come to the exchange `tag`, as far as they can be found from `waits_for` on.
    ///
    /// A PE that does not answer in time counts as late: it is stopped, or not there.
    pub(super) fn find_late(&self, tag: Tag, waits_for: &[Pe]) -> Vec<Pe> {
        let limit = Deadline::after(LIMIT);
        let mut asked: BTreeSet<Pe> = [self.members()[self.my_rank()]].into();
        let mut late = Vec::new();
        let mut round = waits_for.to_vec();
        while !round.is_empty() && asked.len() < MOST && !limit.passed() {
            asked.extend(&round);
            let answers = self.bootstrap().ask(&round, tag, Deadline::after(ROUND.min(limit.left())));
            let mut next = BTreeSet::new();
            for (pe, answer) in round.iter().zip(answers) {
                match answer {
                    Some(Presence::WaitsFor(others)) => next.extend(others),
                    Some(Presence::Past) => {}
                    Some(Presence::NotYet) | None => {
                        late.push(*pe);
                        next.extend(self.neighbours(*pe));
                    }
                }
            }
            // Only members: an answer is what a peer wrote.
            round = next.difference(&asked).filter(|pe| self.members().contains(pe)).copied().collect();
        }
        if late.is_empty() {
            // Everybody answered that it came, at the last moment: what this PE waited for is all that can be said.
            late = waits_for.to_vec();
        }
        late
    }

    fn neighbours(&self, pe: Pe) -> Vec<Pe> {
        let Some(rank) = self.members().iter().position(|m| *m == pe) else { return Vec::new() };
        let place = self.place(rank);
        place.children().chain(place.parent()).map(|rank| self.members()[rank]).collect()
    }
}
