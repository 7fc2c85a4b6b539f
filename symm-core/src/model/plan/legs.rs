//! What members agree on when they make a plan: where all rows go, there and back.

use serde::{Deserialize, Serialize};

use crate::backend::{Backend, Form};
use crate::error::{Error, Fault, Field, Result};
use crate::layout::Header;
use crate::model::log::{FNV_START, fnv};
use crate::model::setup::{Step, absence};
use crate::model::team::TeamInner;
use crate::pe::Pe;
use crate::splits::{self, Move, Published};
use crate::status::{self, Failure};

/// One direction.
#[derive(Debug)]
pub(super) struct Leg {
    pub(super) moves: Vec<Move>,
    /// `out_splits_offsets`.
    pub(super) result: Vec<i64>,
    /// Rows that the input must have: the end of the last one that is sent.
    pub(super) in_rows: usize,
    /// Rows that the output must have.
    pub(super) out_rows: usize,
    /// The same on all members, of this plan and direction.
    pub(super) digest: usize,
}

/// What members agree on.
pub(super) struct Agreed {
    /// There and back.
    pub(super) legs: [Leg; 2],
    /// The first member that lacks the planned form, and why.
    pub(super) without: Option<(Pe, String)>,
}

/// Why a member brings no splits.
#[derive(Debug, Serialize, Deserialize)]
enum Absent {
    /// An argument was refused there; [`status::words`] of the fault.
    Refused([u64; 3]),
    /// The team has failed there.
    Failed((String, String)),
}

/// Exchanges the splits, or this member's refusal to have any. `without`: why this member has no planned form.
pub(super) fn agree<B: Backend>(
    team: &TeamInner<B>,
    form: Form,
    (ne, major_align): (usize, usize),
    mine: Result<Vec<i64>>,
    without: Option<&'static str>,
) -> Result<Agreed> {
    team.world.check_open(super::OP)?;
    let (setup, shape) = (team.setup(super::OP), (form.code(), ne as u64, major_align as u64));
    if let Err(failed) = team.failure() {
        // Members that have not failed wait for this one.
        setup.tell(Step::Agree, &(shape, Err::<Vec<i64>, _>(Absent::Failed(absence(&failed))), without));
        return Err(failed);
    }
    let splits = mine.as_ref().map_err(|e| Absent::Refused(status::words(&e.refusal())));
    type Message = ((u64, u64, u64), Result<Vec<i64>, Absent>, Option<String>);
    let all: Vec<Message> = setup.gather(Step::Agree, &(shape, splits, without))?;
    mine?;
    let members = team.group.members();
    let invalid = |rank: usize, what| Error::PeerInvalid { op: super::OP, pe: members[rank], what };
    let mut splits = Vec::with_capacity(all.len());
    for (rank, (theirs, their_splits, _)) in all.iter().enumerate() {
        let their_splits = match their_splits {
            Ok(splits) => splits,
            Err(Absent::Refused([phase, expected, got])) => {
                let refused = Failure { phase: *phase, expected: *expected, got: *got, ..Failure::default() };
                return Err(invalid(rank, refused.fault()));
            }
            Err(Absent::Failed((stage, why))) => {
                let (stage, why) = (stage.clone(), why.clone());
                return Err(Error::Setup { op: super::OP, pe: members[rank], stage, why });
            }
        };
        same_plan(all[0].0, *theirs).map_err(|fault| invalid(rank, fault))?;
        // By their own number of experts, which is rank 0's by now: all members must name the same one.
        if usize::try_from(theirs.1).ok().and_then(|ne| ne.checked_mul(all.len())) != Some(their_splits.len())
        {
            return Err(invalid(rank, Fault::Form));
        }
        splits.push(their_splits.as_slice());
    }
    let legs = legs(team.group.my_rank(), form, (ne, major_align), &splits);
    let (there, back) = legs.map_err(|(rank, fault)| invalid(rank, fault))?;
    let without = all.iter().zip(members).find_map(|((.., why), pe)| Some((*pe, why.clone()?)));
    Ok(Agreed { legs: [there, back], without })
}

/// Form, experts a rank and `major_align` must be rank 0's.
fn same_plan(first: (u64, u64, u64), theirs: (u64, u64, u64)) -> Result<(), Fault> {
    let code = |form: u64| u32::try_from(form).unwrap_or(u32::MAX);
    let differs = |what, expected, got| Err(Fault::Differs { what, expected, got });
    match (first, theirs) {
        ((a, ..), (b, ..)) if a != b => Err(Fault::Operation { expected: code(a), got: code(b) }),
        ((_, a, _), (_, b, _)) if a != b => differs(Field::Experts, a, b),
        ((.., a), (.., b)) if a != b => differs(Field::MajorAlign, a, b),
        _ => Ok(()),
    }
}

/// Both directions for `me`, from everybody's splits.
fn legs(
    me: usize,
    form: Form,
    (ne, major_align): (usize, usize),
    splits: &[&[i64]],
) -> Result<(Leg, Leg), (usize, Fault)> {
    let header = |form: Form, major_align: usize| Header {
        form: form.code(),
        row_bytes: 1,
        ne: ne as u64,
        major_align: major_align as u64,
        n_splits: (splits.len() * ne) as u64,
        // What each call's buffers hold is checked when it is made.
        in_rows: i64::MAX as u64,
        out_rows: i64::MAX as u64,
        ..Header::default()
    };
    let there: Vec<Published<'_>> =
        splits.iter().map(|s| Published { header: header(form, major_align), splits: s }).collect();
    splits::verdict(0, &there)?;
    let results: Vec<Vec<i64>> = (0..splits.len())
        .map(|rank| {
            let mut result = vec![0; 2 * splits.len() * ne];
            splits::out_splits_offsets(rank, &there, &mut result);
            result
        })
        .collect();
    let columns = splits.len() * ne;
    let form = Form::AllToAllVdev2dOffset;
    let back: Vec<Published<'_>> =
        results.iter().map(|r| Published { header: header(form, 1), splits: &r[..columns] }).collect();
    splits::verdict(0, &back)?;
    let numbers = splits.iter().flat_map(|s| s.iter()).flat_map(|n| n.to_le_bytes()).collect::<Vec<u8>>();
    let digest = |which: u8| {
        let shape = [ne as u64, major_align as u64, u64::from(which)];
        let hash = shape.iter().fold(FNV_START, |h, n| fnv(h, &n.to_le_bytes()));
        usize::try_from(fnv(hash, &numbers) | 1).unwrap_or(1)
    };
    let leg = |published: &[Published<'_>], offsets: Option<&[i64]>, which: u8| {
        let mut moves = Vec::new();
        splits::moves(me, published, offsets, &mut moves);
        let mut result = vec![0; 2 * columns];
        splits::out_splits_offsets(me, published, &mut result);
        let rows = |n: u64| usize::try_from(n).unwrap_or(usize::MAX);
        let in_rows = moves.iter().map(|m| m.src_row.saturating_add(m.rows)).max().unwrap_or(0);
        Leg {
            in_rows: rows(in_rows),
            out_rows: rows(splits::out_rows_needed(me, published)),
            moves,
            result,
            digest: digest(which),
        }
    };
    Ok((leg(&there, None, 0), leg(&back, Some(&results[me][columns..]), 1)))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The worked example of `all_to_all_vdev_2d` with an alignment of 8, there and back.
    #[test]
    fn the_worked_example() {
        let splits: [&[i64]; 2] = [&[5, 1, 0, 3], &[7, 2, 4, 0]];
        let (there, back) = legs(0, Form::AllToAllVdev2d, (2, 8), &splits).unwrap();
        assert_eq!(there.result, [5, 7, 1, 2, 0, 5, 16, 17]);
        assert_eq!((there.in_rows, there.out_rows), (9, 19));
        assert_eq!(back.result, [5, 1, 0, 3, 0, 5, 6, 6]);
        assert_eq!((back.in_rows, back.out_rows), (19, 9));
        let to_1 = Move { rank: 1, src_row: 6, dst_row: 8, rows: 3 };
        assert_eq!(there.moves[0], to_1);
        // What came from PE 1, seven rows behind the five of PE 0, and two behind its one.
        let from_1 =
            [(5, 0, 7), (17, 7, 2)].map(|(src_row, dst_row, rows)| Move { rank: 1, src_row, dst_row, rows });
        assert_eq!(back.moves[..2], from_1);
        let (other, _) = legs(1, Form::AllToAllVdev2d, (2, 8), &splits).unwrap();
        assert_eq!(other.digest, there.digest);
        assert_ne!(back.digest, there.digest);
    }

    #[test]
    fn a_negative_split_is_found_by_all() {
        let splits: [&[i64]; 2] = [&[5, 1], &[7, -2]];
        let what = Fault::NegativeSplit { index: 1, value: -2 };
        for me in [0, 1] {
            assert_eq!(legs(me, Form::AllToAllVdev, (1, 1), &splits).err(), Some((1, what.clone())));
        }
    }
}
