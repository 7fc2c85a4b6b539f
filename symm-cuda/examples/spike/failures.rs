//! Bad splits, outputs that are too small, a PE that stays away: what every PE gets, and that it works again afterwards.

use std::time::{Duration, Instant};

use anyhow::{Result, bail, ensure};
use serde_json::{Map, Value, json};
use symm_core::dtype::DType;
use symm_core::model::{AllToAllVdev, Handle, Local, Options};
use symm_core::{Backend, Error, Fault, Pe};

use crate::pe::{Me, same};

const NE: usize = 4;
const ROW: usize = 64;
const POISON: u8 = 0xEE;

struct Setup<B: Backend> {
    out: Handle<B>,
    small: Handle<B>,
    input: Local<B>,
    splits: Local<B>,
    result: Local<B>,
}

impl<B: Backend> Setup<B> {
    fn new(me: &Me<B>) -> Result<Self> {
        let n = me.n() * NE;
        Ok(Setup {
            out: me.symmetric(me.n() * n * ROW * 8)?,
            small: me.symmetric(ROW * 2)?,
            input: me.local(&vec![me.pe() as u8; n * ROW * 4])?,
            splits: me.world.local(DType::I64, n)?,
            result: me.local(&vec![-1i64; 2 * n])?,
        })
    }

    fn call(&self, me: &Me<B>, output: &Handle<B>, limit: Duration) -> symm_core::Result<()> {
        let (input, splits, result) = (self.input.span(), self.splits.span(), self.result.span());
        let options = Options { timeout: Some(limit), ..Options::default() };
        let args = AllToAllVdev {
            input: &input,
            output,
            in_splits: &splits,
            out_splits_offsets: &result,
            row: ROW,
            options,
        };
        me.world.team().context().all_to_all_vdev_2d(&me.stream, &args, 1)
    }

    fn set(&self, me: &Me<B>, splits: &[i64]) -> Result<()> {
        Ok(me.stream.write(&self.splits.span(), splits)?)
    }
}

pub(crate) fn run<B: Backend>(me: &Me<B>, figures: &mut Map<String, Value>) -> Result<()> {
    let t = Setup::new(me)?;
    let (w, n) = (me.n(), me.n() * NE);
    let long = Duration::from_secs(10);
    let good = vec![2i64; n];
    let last = w - 1;

    let faults: [(&str, Vec<i64>, Fault); 2] = [
        ("negative split", bad(&good, 3, -7), Fault::NegativeSplit { index: 3, value: -7 }),
        (
            "too many rows",
            bad(&good, 1, 1000),
            Fault::InputRows { needed: 1000 + 2 * (n as u64 - 1), rows: 4 * n as u64 },
        ),
    ];
    for (what, splits, fault) in faults {
        t.set(me, if me.pe() == last { &splits } else { &good })?;
        me.stream.fill(&t.out.span(), POISON)?;
        t.call(me, &t.out, long)?;
        invalid(me, what, last, &fault, me.stream.synchronize())?;
        after(me, &t, what)?;
    }
    // Two rows fit; every PE is sent 2·ne·W. The lowest PE is named by all.
    t.set(me, &good)?;
    me.stream.fill(&t.out.span(), POISON)?;
    t.call(me, &t.small, long)?;
    let fault = Fault::OutputRows { needed: 2 * n as u64, capacity: 2 };
    invalid(me, "small output", 0, &fault, me.stream.synchronize())?;
    after(me, &t, "small output")?;

    stay_away(me, &t, &good, figures)
}

fn bad(good: &[i64], index: usize, value: i64) -> Vec<i64> {
    let mut splits = good.to_vec();
    splits[index] = value;
    splits
}

fn invalid<B: Backend>(
    me: &Me<B>,
    what: &str,
    pe: usize,
    fault: &Fault,
    got: symm_core::Result<()>,
) -> Result<()> {
    match got {
        Err(Error::PeerInvalid { pe: at, what: f, .. }) if at == Pe::from(pe) && f == *fault => Ok(()),
        other => bail!("PE {}: {what}: got {other:?}, expected PeerInvalid at PE {pe}: {fault}", me.pe()),
    }
}

/// After a bad verdict: nothing was written, row 0 is zero, the next call fails, and recovery brings all back.
fn after<B: Backend>(me: &Me<B>, t: &Setup<B>, what: &str) -> Result<()> {
    let n = me.n() * NE;
    let next = t.call(me, &t.out, Duration::from_secs(1));
    ensure!(next.is_err(), "{what}: the next call was accepted");
    let out: Vec<u8> = me.stream.read(&t.out.span())?;
    same(what, &out, &vec![POISON; out.len()])?;
    let row: Vec<i64> = me.stream.read(&t.result.span().slice(0, n)?)?;
    ensure!(row.iter().all(|v| *v == 0), "{what}: row 0 is {row:?}, expected zeroes");
    works_again(me, t, what)
}

fn works_again<B: Backend>(me: &Me<B>, t: &Setup<B>, what: &str) -> Result<()> {
    let n = me.n() * NE;
    me.world.team().recover()?;
    t.set(me, &vec![2; n])?;
    t.call(me, &t.out, Duration::from_secs(10))?;
    me.stream.synchronize()?;
    let row: Vec<i64> = me.stream.read(&t.result.span())?;
    let expected: Vec<i64> =
        (0..2).flat_map(|k| (0..n as i64).map(move |c| if k == 0 { 2 } else { 2 * c })).collect();
    ensure!(row == expected, "{what}: after recovery {row:?}, expected {expected:?}");
    let out: Vec<u8> = me.stream.read(&t.out.span().slice(0, 2 * n * ROW)?)?;
    let rows: Vec<u8> = (0..n).flat_map(|c| vec![(c % me.n()) as u8; 2 * ROW]).collect();
    same(&format!("{what}: after recovery"), &out, &rows)
}

/// The last PE comes late: the others time out and name it, it finds that they gave up, and all recover.
fn stay_away<B: Backend>(
    me: &Me<B>,
    t: &Setup<B>,
    good: &[i64],
    figures: &mut Map<String, Value>,
) -> Result<()> {
    let last = me.n() - 1;
    if last == 0 {
        return Ok(());
    }
    let limit = Duration::from_millis(300);
    t.set(me, good)?;
    me.meet()?;
    if me.pe() == last {
        std::thread::sleep(Duration::from_millis(1500));
    }
    let began = Instant::now();
    t.call(me, &t.out, limit)?;
    let got = me.stream.synchronize();
    let waited = began.elapsed();
    let Err(Error::Timeout { late, .. }) = &got else {
        bail!("PE {}: stay away: got {got:?}, expected Timeout", me.pe())
    };
    ensure!(*late == [Pe::from(last)], "PE {}: late are {late:?}, expected PE {last}", me.pe());
    if me.pe() == last {
        ensure!(
            waited < Duration::from_millis(200),
            "the late PE waited {waited:?} for peers that gave up long ago"
        );
    } else {
        let fits = waited >= limit && waited < limit + Duration::from_millis(200);
        ensure!(fits, "a limit of {limit:?} took {waited:?}");
    }
    if me.pe() == 0 {
        figures.insert("timeout_300ms_took_ms".to_owned(), json!(waited.as_secs_f64() * 1e3));
    }
    ensure!(t.call(me, &t.out, limit).is_err(), "the call after a timeout was accepted");

    // The context lives: copies and kernels that are no collectives run.
    let area = t.input.span().slice(0, 4096.min(t.input.len()))?;
    let copy = me.world.local(DType::U8, area.len())?;
    me.stream.copy(&copy.span(), &area)?;
    same("copy after a timeout", &me.stream.read::<u8>(&copy.span())?, &vec![me.pe() as u8; area.len()])?;

    works_again(me, t, "stay away")
}
