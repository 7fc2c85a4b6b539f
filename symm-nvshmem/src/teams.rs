//! NVSHMEM's own teams, for a user's kernels that call its collectives.
//!
//! Nothing of this crate uses them: NVSHMEM's waits have no deadline, and its teams need every PE of the parent to take part, where a
//! team of ours needs its members only. So one is made when it is asked for, and kept: asking again for the same members finds it, and
//! what NVSHMEM holds is bounded by how many different subsets were asked for. They end with NVSHMEM, in `finalize`; nothing of them
//! ends, or waits, in a drop.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use symm_core::bootstrap::{Bootstrap, Group};
use symm_core::{Deadline, Error, Pe, Result};

use crate::backend::Nvshmem;
use crate::error::{BACKEND, lock, unsupported};
use crate::library::bounded;

/// Id of the group over which teams are made.
const TEAM: u64 = u64::from_le_bytes(*b"nvshmemT");
const OP: &str = "nvshmem team";
const CAPABILITY: &str = "NVSHMEM_TEAM";

/// `NVSHMEM_TEAM_WORLD`.
const WORLD: i32 = nvshmem_sys::NVSHMEM_TEAM_WORLD;

/// The members of an arithmetic subset of the world, as NVSHMEM names them: the first, from each to the next, how many.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Strided {
    pub(crate) start: i32,
    pub(crate) stride: i32,
    pub(crate) size: i32,
}

impl Strided {
    /// `None` if the members, in the order of their ranks, are no rising arithmetic sequence.
    fn of(members: &[Pe]) -> Option<Self> {
        let number = |pe: &Pe| i32::try_from(pe.0).ok();
        let (start, size) = (number(members.first()?)?, i32::try_from(members.len()).ok()?);
        let stride = match members.get(1) {
            None => 1,
            Some(second) => number(second)?.checked_sub(start).filter(|stride| *stride > 0)?,
        };
        let steps = members
            .windows(2)
            .all(|pair| number(&pair[1]).zip(number(&pair[0])).is_some_and(|(b, a)| b - a == stride));
        steps.then_some(Strided { start, stride, size })
    }

    /// The rank of a PE, if it is a member.
    fn rank(self, pe: Pe) -> Option<i32> {
        let from = i32::try_from(pe.0).ok()?.checked_sub(self.start).filter(|from| *from >= 0)?;
        (from % self.stride == 0 && from / self.stride < self.size).then_some(from / self.stride)
    }

    fn bytes(self) -> Vec<u8> {
        [self.start, self.stride, self.size].iter().flat_map(|n| n.to_le_bytes()).collect()
    }
}

/// The teams made so far; `None` for one that this PE is no member of.
#[derive(Debug)]
pub(crate) struct Teams {
    group: Group,
    made: Mutex<HashMap<Strided, Option<i32>>>,
}

impl Teams {
    pub(crate) fn new(boot: &Arc<dyn Bootstrap>) -> Result<Self> {
        let everybody = (0..boot.n_pes()).map(Pe::from).collect();
        Ok(Teams { group: Group::new(boot.clone(), TEAM, everybody)?, made: Mutex::default() })
    }
}

/// What all PEs asked for, if that is the same and can be made.
fn agreed(all: &[Vec<u8>], limited: bool) -> Result<()> {
    if let Some(pe) = all.iter().position(|said| *said != all[0]) {
        let why = format!("PE 0 and PE {pe} name other members");
        return Err(Error::Bootstrap { call: OP, why });
    }
    if limited {
        // Not the world's either: a collective over it ends the process.
        let why = "several PEs share a GPU without MPS, or each with all of its threads (CUDA_MPS_ACTIVE_THREAD_PERCENTAGE): NVSHMEM has \
                   no collectives then, so no team"
            .to_owned();
        return Err(unsupported(CAPABILITY, why));
    }
    Ok(())
}

impl Nvshmem {
    /// NVSHMEM's team (`nvshmem_team_t`) of these members, for kernels of the caller's that call NVSHMEM's collectives: `None` on a PE
    /// that is no member. `members` is what [`Team::members`](symm_core::model::Team::members) says; a rank here is the rank there.
    ///
    /// It is made by `nvshmem_team_split_strided` when it is first asked for, found again after that, and ends with the world. The
    /// operations of this library need none of it, whatever the members.
    ///
    /// # Collective
    /// Over the *world*, with the same members on every PE. Streams are idle: NVSHMEM waits for the whole GPU.
    ///
    /// # Errors
    /// On every PE: `Unsupported` if the members are no rising arithmetic sequence of PEs, or several PEs share a GPU
    /// in a way that has no NVSHMEM collectives;
    /// [`Error::Bootstrap`] if PEs name different members; [`Error::Backend`] if NVSHMEM makes none (`NVSHMEM_MAX_TEAMS` says how many
    /// there may be); `Unavailable` if it does not return within [`Config::init_timeout`](symm_core::Config::init_timeout).
    pub fn team(&self, members: &[Pe]) -> Result<Option<i32>> {
        let deadline = Deadline::after(self.init_timeout);
        let n = self.teams.group.len();
        let mine = Strided::of(members).filter(|s| s.size as usize <= n);
        let said = mine.map(Strided::bytes).ok_or_else(|| {
            "its members are no rising arithmetic sequence of PEs, as NVSHMEM's teams are".to_owned()
        });
        let all = self
            .teams
            .group
            .agree(OP, said, deadline, |pe, why| unsupported(CAPABILITY, format!("PE {pe}: {why}")))?;
        let Some(strided) = mine else {
            return Err(Error::Bootstrap {
                call: OP,
                why: "a verdict that this PE does not know".to_owned(),
            });
        };
        agreed(&all, self.library.is_limited())?;
        if strided.size as usize == n {
            return Ok(Some(WORLD));
        }
        // All PEs have made the same teams so far, since each took part in all.
        if let Some(team) = lock(&self.teams.made).get(&strided) {
            return Ok(*team);
        }
        let (library, rank) = (self.library, strided.rank(self.boot.pe()));
        let made =
            bounded(&self.cuda, "nvshmem_team_split_strided", deadline, move || library.team(strided, rank))?;
        let said = made.as_ref().map(|_| Vec::new()).map_err(Clone::clone);
        self.teams.group.agree(OP, said, deadline, |pe, why| Error::Backend {
            backend: BACKEND,
            call: "nvshmem_team_split_strided",
            code: -1,
            text: format!("PE {pe}: {why}"),
        })?;
        let team = made.ok().flatten();
        lock(&self.teams.made).insert(strided, team);
        Ok(team)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(members: &[u32]) -> Option<(i32, i32, i32)> {
        let members: Vec<Pe> = members.iter().map(|pe| Pe(*pe)).collect();
        Strided::of(&members).map(|s| (s.start, s.stride, s.size))
    }

    #[test]
    fn rising_arithmetic_sequences_are_teams_of_nvshmem() {
        assert_eq!(of(&[0, 1, 2, 3]), Some((0, 1, 4)));
        assert_eq!(of(&[1, 3, 5]), Some((1, 2, 3)));
        assert_eq!(of(&[6]), Some((6, 1, 1)));
        for other in [&[][..], &[3, 1], &[2, 2], &[0, 1, 3], &[0, 2, 1], &[0, u32::MAX]] {
            assert_eq!(of(other), None, "{other:?}");
        }
    }

    #[test]
    fn ranks_follow_the_sequence() {
        let s = Strided { start: 1, stride: 3, size: 3 };
        let ranks: Vec<_> = (0..12).map(|pe| s.rank(Pe(pe))).collect();
        let expected = [None, Some(0), None, None, Some(1), None, None, Some(2), None, None, None, None];
        assert_eq!(ranks, expected);
    }

    #[test]
    fn what_pes_ask_for_must_agree_and_be_possible() {
        let (a, b) = (Strided { start: 0, stride: 2, size: 2 }, Strided { start: 1, stride: 1, size: 2 });
        let all = |s: Strided| vec![s.bytes(); 4];
        let whole = Strided { start: 0, stride: 1, size: 4 };
        for team in [a, whole] {
            assert!(agreed(&all(team), false).is_ok());
            assert_eq!(agreed(&all(team), true).map_err(|e| e.kind()), Err("Unsupported"));
        }
        let mut mixed = all(a);
        mixed[3] = b.bytes();
        let why = agreed(&mixed, false).expect_err("another subset").to_string();
        assert!(why.contains("PE 0 and PE 3"), "{why}");
    }
}
