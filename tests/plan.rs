//! `symm plan`, and whether what it says is what a job takes.

use std::process::{Command, Output, Stdio};

use serde_json::Value;
use symm::moe::{Layer, Room};
use symm::{AllToAllVdev, Config, DType, Error, Fault, Options};

fn plan(args: &[&str]) -> Output {
    let mut c = Command::new(env!("CARGO_BIN_EXE_symm"));
    for name in ["SYMM_PE", "SYMM_N_PES", "SYMM_JOB", "SYMM_POOL_BYTES", "SYMM_SIGNAL_PAD_BYTES", "RUST_LOG"]
    {
        c.env_remove(name);
    }
    c.arg("plan").args(args).stdin(Stdio::null()).output().expect("symm starts")
}

const DEEPSEEK: [&str; 10] =
    ["--pes", "8", "--tokens", "128", "--hidden", "7168", "--topk", "8", "--experts", "256"];

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn json(args: &[&str]) -> Value {
    let out = plan(&[&DEEPSEEK[..], args, &["--json", "-"]].concat());
    assert_eq!(text(&out.stderr), "");
    serde_json::from_slice(&out.stdout).expect("JSON alone")
}

#[test]
fn a_known_layer_has_the_rows_that_one_counts_by_hand() {
    let r = json(&[]);
    // 128 tokens send 8 rows each; one PE may get all choices of all 1024 tokens; 32 experts take one more row each.
    assert_eq!(
        (&r["rows_sent"], &r["rows_even"], &r["rows_worst"]),
        (&1024.into(), &1024.into(), &8192.into())
    );
    assert_eq!(r["capacity"], 8192 + 32);
    assert_eq!(r["allocations"][1]["bytes"], (8192 + 32) * 7168 * 2);
    assert_eq!((&r["limits"]["splits"], &r["limits"]["max_splits"]), (&256.into(), &1024.into()));
    let bytes = r["bytes_a_pe"].as_u64().expect("a number");
    assert_eq!(r["bytes_all_pes"], 8 * bytes);
    let even = json(&["--capacity-factor", "1.25", "--dtype", "f8e4m3", "--on", "gpu"]);
    assert_eq!(even["capacity"], 1280 + 32);
    assert_eq!(even["row_bytes"], 7168);
    assert_eq!(even["segments"]["symmetric"].as_u64().map(|b| b % (2 << 20)), Some(0));
    assert!(even["limits"]["memory_a_pe"].is_null());
}

#[test]
fn the_table_has_every_figure_of_the_json() {
    let out = plan(&DEEPSEEK);
    assert_eq!((out.status.code(), text(&out.stderr)), (Some(0), String::new()));
    let (table, r) = (text(&out.stdout), json(&[]));
    for key in ["rows_sent", "rows_worst", "capacity", "bytes_a_pe", "bytes_all_pes"] {
        assert!(table.contains(&r[key].to_string()), "{key} {} is missing in\n{table}", r[key]);
    }
}

#[test]
fn a_layer_that_does_not_fit_says_how_many_tokens_would() {
    let args = |memory| [&DEEPSEEK[..], &["--memory", memory]].concat();
    let out = plan(&args("100M"));
    assert_eq!(out.status.code(), Some(1));
    assert!(text(&out.stdout).contains("DOES NOT FIT; up to "), "{}", text(&out.stdout));
    assert_eq!(plan(&args("1G")).status.code(), Some(0));
    let most = json(&["--memory", "100M"])["limits"]["max_tokens"].to_string();
    // This machine's own memory is no verdict on a plan: nobody said that the job runs here.
    let mut large = DEEPSEEK;
    large[3] = "100000000";
    let out = plan(&large);
    assert_eq!(out.status.code(), Some(0), "{}", text(&out.stderr));
    assert!(text(&out.stdout).contains("would not fit here; up to "), "{}", text(&out.stdout));
    let with = |tokens: &str| {
        let mut args = args("100M");
        args[3] = tokens;
        plan(&args).status.code()
    };
    assert_eq!(with(&most), Some(0));
    assert_eq!(with(&(most.parse::<u64>().expect("a number") + 1).to_string()), Some(1));
}

#[test]
fn bad_arguments_are_one_line_and_an_error_object() {
    for (args, field) in [
        (&["--pes", "0"][..], "pes"),
        (&["--tokens", "-1"], "tokens"),
        (&["--hidden", "x"], "hidden"),
        (&["--topk", "257"], "topk"),
        (&["--experts", "0"], "experts"),
        (&["--dtype", "f7"], "dtype"),
        (&["--align", "0"], "align"),
        (&["--capacity-factor", "0"], "capacity-factor"),
        (&["--memory", "much"], "memory"),
        (&["--on", "tpu"], "on"),
    ] {
        // The later of two equal options would be a usage error, so the default is replaced.
        let mut all = DEEPSEEK.to_vec();
        match all.iter().position(|a| *a == args[0]) {
            Some(at) => all[at + 1] = args[1],
            None => all.extend(args),
        }
        let out = plan(&[&all[..], &["--json", "-"]].concat());
        assert_eq!(
            (out.status.code(), text(&out.stderr).lines().count()),
            (Some(2), 1),
            "{}",
            text(&out.stderr)
        );
        let r: Value = serde_json::from_slice(&out.stdout).expect("JSON alone");
        assert_eq!((&r["error"]["kind"], &r["error"]["field"]), (&"Argument".into(), &field.into()), "{r}");
    }
    let mut large = DEEPSEEK.to_vec();
    for (option, value) in [("--tokens", "1000000000000"), ("--hidden", "1000000000000")] {
        let at = large.iter().position(|a| *a == option).expect("an option of the layer");
        large[at + 1] = value;
    }
    let out = plan(&[&large[..], &["--json", "-"]].concat());
    let r: Value = serde_json::from_slice(&out.stdout).expect("JSON alone");
    assert_eq!((out.status.code(), &r["error"]["field"]), (Some(2), &"tokens".into()), "{r}");
    let out = plan(&["--pes", "2", "--json", "-"]);
    assert_eq!((out.status.code(), text(&out.stderr).lines().count()), (Some(2), 1), "{}", text(&out.stderr));
    let r: Value = serde_json::from_slice(&out.stdout).expect("JSON alone");
    assert_eq!(r["error"]["kind"], "Usage");
}

/// The worst routing there is, on an output of `rows` rows: all tokens choose the experts of PE 0.
fn worst(layer: Layer, rows: usize) -> symm::Result<()> {
    symm::threads(layer.pes, move |world| {
        let (team, stream) = (world.team(), world.stream()?);
        let f = layer.footprint(world.config(), Room::Worst, 4096)?;
        let row = layer.hidden;
        let output = team.empty(&[rows, row], DType::BF16)?.rendezvous(team)?;
        let input = world.local(DType::BF16, f.rows_sent as usize * row)?;
        stream.fill(&input.span(), 1)?;
        let splits = world.local(DType::I64, f.splits)?;
        let mut to = vec![0i64; f.splits];
        to[..layer.top_k].fill(layer.tokens as i64);
        stream.write(&splits.span(), &to)?;
        let received = world.local(DType::I64, 2 * f.splits)?;
        let args = AllToAllVdev {
            input: &input.span(),
            output: &output,
            in_splits: &splits.span(),
            out_splits_offsets: &received.span(),
            row,
            options: Options::default(),
        };
        team.all_to_all_vdev_2d(&stream, &args, layer.align)?;
        stream.synchronize()?;
        let got: Vec<i64> = stream.read(&received.span())?;
        let rows: i64 = got[..f.splits].iter().sum();
        assert_eq!(rows as u64, if world.pe().0 == 0 { f.rows_worst } else { 0 });
        world.finalize()
    })
}

#[test]
fn an_output_of_the_planned_rows_takes_the_worst_routing_and_a_smaller_one_does_not() {
    let layer = Layer { pes: 3, tokens: 10, hidden: 8, top_k: 2, experts: 6, dtype: DType::BF16, align: 4 };
    let f = layer.footprint(&Config::default(), Room::Worst, 4096).expect("a plan");
    worst(layer, f.capacity() as usize).expect("it fits");
    // Without room for the padding of two experts, 30 rows each.
    let refused = worst(layer, f.rows_worst as usize);
    assert!(matches!(refused, Err(Error::PeerInvalid { what: Fault::OutputRows { .. }, .. })), "{refused:?}");
}
