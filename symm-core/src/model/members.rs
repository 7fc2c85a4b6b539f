//! Who makes a team: its id, and whether its members mean the same one.

use super::log::{FNV_START, fnv};
use super::setup::{decode, encode};
use super::world::WorldInner;
use crate::backend::Backend;
use crate::bootstrap::Group;
use crate::deadline::Deadline;
use crate::error::{Error, Result};
use crate::pe::Pe;

/// Mixed into a team's id for the meeting in which its members compare their lists of members.
const LISTS: u64 = u64::from_le_bytes(*b"lists...");

fn in_order(members: &[Pe]) -> Vec<Pe> {
    let mut sorted = members.to_vec();
    sorted.sort_unstable();
    sorted
}

impl<B: Backend> WorldInner<B> {
    /// Id of the next team of these members in whichever order, equal on all of them: a hash of who they are and of how many
    /// such teams there were, so that a team's making never depends on teams that some members are not in.
    pub(crate) fn next_team_id(&self, members: &[Pe]) -> u64 {
        let sorted = in_order(members);
        let hash = sorted.iter().fold(FNV_START, |h, pe| fnv(h, &pe.0.to_le_bytes()));
        let mut counts = self.team_counts.lock();
        let count = counts.entry(sorted).or_insert(0);
        *count += 1;
        fnv(hash, &count.to_le_bytes())
    }

    /// Whether all members of the team `id` order themselves alike, the same on all. They meet in PE order, which does not depend on
    /// what they say.
    pub(crate) fn compare_lists(&self, op: &'static str, id: u64, members: &[Pe]) -> Result<()> {
        let group = Group::new(self.boot.clone(), id ^ LISTS, in_order(members))?;
        let mine: Vec<u32> = members.iter().map(|pe| pe.0).collect();
        let all = group.all_gather(op, &encode(&mine), Deadline::after(self.config.init_timeout))?;
        for (bytes, pe) in all.iter().zip(group.members()) {
            let theirs: Vec<u32> = decode(op, *pe, bytes)?;
            if theirs != mine {
                let theirs: Vec<Pe> = theirs.into_iter().map(Pe).collect();
                let expected = format!("the same order on every member: PE {pe} has {theirs:?}");
                return Err(Error::argument(op, "members", format!("{members:?}"), expected));
            }
        }
        Ok(())
    }
}
