//! Ten calls captured once, replayed a thousand times with other splits each time.

use anyhow::{Result, ensure};
use serde_json::{Map, Value, json};
use symm_core::Backend;
use symm_core::capability::Capabilities;
use symm_core::dtype::DType;
use symm_core::model::{AllToAllVdev, Options};
use symm_core::oracle;

use crate::pe::{Me, same};
use crate::vdev::Case;

const REPLAYS: usize = 1000;
const NE: usize = 16;
const ROW: usize = 1024;
const K: usize = 6;

pub(crate) fn run<B: Backend>(me: &Me<B>, figures: &mut Map<String, Value>) -> Result<()> {
    let (w, r, s) = (me.n(), me.pe(), &me.stream);
    let n = w * NE;
    let rows = n * K;
    let capacity = (w * rows + NE * 8) * ROW;
    // Two of everything: neighbouring calls use different splits, inputs and outputs, and so both slots of the context.
    let outs = [me.symmetric(capacity)?, me.symmetric(capacity)?];
    let inputs = [me.world.local(DType::U8, rows * ROW)?, me.world.local(DType::U8, rows * ROW)?];
    let splits = [me.local(&vec![0i64; n])?, me.local(&vec![0i64; n])?];
    let results = [me.local(&vec![-1i64; 2 * n])?, me.local(&vec![-1i64; 2 * n])?];
    let spans: Vec<_> = (0..2).map(|i| (inputs[i].span(), splits[i].span(), results[i].span())).collect();
    let calls = || {
        for call in 0..10 {
            let (input, in_splits, result) = &spans[call % 2];
            let args = AllToAllVdev {
                input,
                output: &outs[call % 2],
                in_splits,
                out_splits_offsets: result,
                row: ROW,
                options: Options::default(),
            };
            me.world.team().context().all_to_all_vdev_2d(s, &args, 8)?;
        }
        Ok(())
    };
    let graph =
        me.world.capabilities().contains(Capabilities::GRAPH).then(|| me.capture(calls)).transpose()?;
    for replay in 0..REPLAYS {
        let cases: Vec<Case> =
            (0..2).map(|i| Case::new(w, n, K, ROW, (100 + 2 * replay + i) as u64)).collect();
        for (i, case) in cases.iter().enumerate() {
            s.write(&splits[i].span(), &case.splits[r])?;
            s.write(&inputs[i].span().slice(0, case.inputs[r].len())?, &case.inputs[r])?;
        }
        // A backend without graphs runs the same calls; that tests this test.
        graph.as_ref().map_or_else(calls, |g| me.launch(g))?;
        s.synchronize()?;
        for (i, case) in cases.iter().enumerate() {
            let got: Vec<i64> = s.read(&results[i].span())?;
            let total: usize = case.splits.iter().flatten().sum::<i64>() as usize;
            let bytes = (total + NE * 8) * ROW;
            // Padding keeps what an earlier replay left there: only received rows are compared.
            let mut expected = vec![vec![0; bytes]; w];
            let table = oracle::all_to_all_vdev_2d(&case.inputs, &case.splits, ROW, NE, 8, &mut expected);
            ensure!(got == table[r], "replay {replay}, set {i}: {got:?}, expected {:?}", table[r]);
            if replay % 10 != 0 {
                continue;
            }
            let data: Vec<u8> = s.read(&outs[i].span().slice(0, bytes)?)?;
            for c in 0..n {
                let (count, start) = (got[c] as usize * ROW, got[n + c] as usize * ROW);
                same(
                    &format!("replay {replay}, set {i}, column {c}"),
                    &data[start..start + count],
                    &expected[r][start..start + count],
                )?;
            }
        }
    }
    figures.insert("graph_replays".to_owned(), json!(REPLAYS));
    Ok(())
}
