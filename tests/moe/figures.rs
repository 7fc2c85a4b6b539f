//! The figures of a result.

use serde_json::Value;

use super::{file, made_up, moe, n, routes, verified};

#[test]
fn the_result_has_these_keys_and_its_figures_agree() {
    let r = verified(moe(&["--dtype", "f32", "--align", "16"]));
    let mut keys: Vec<&str> = r.as_object().expect("an object").keys().map(String::as_str).collect();
    keys.sort_unstable();
    let expected = "backend ceiling_gbps combine_us dispatch_us dtype experts fraction gbps hidden in_a_row load local_bytes permute_us \
                    pes reach reduce_us rows steps tokens top_k verified wire_bytes";
    assert_eq!(keys, expected.split_whitespace().collect::<Vec<_>>());
    assert_eq!((n(&r["pes"]), r["dtype"].as_str()), (4, Some("f32")));
    let f =
        |path: &str| r.pointer(path).and_then(Value::as_f64).unwrap_or_else(|| panic!("no number at {path}"));
    for phase in ["permute", "dispatch", "combine", "reduce"] {
        let [p50, p99, max] = ["p50", "p99", "max"].map(|q| f(&format!("/{phase}_us/{q}")));
        assert!(0.0 < p50 && p50 <= p99 && p99 <= max, "{phase}: {p50} {p99} {max}");
    }
    let bytes = f("/wire_bytes") + f("/local_bytes");
    for way in ["dispatch", "combine"] {
        let gbps = bytes / f(&format!("/{way}_us/p50")) / 1e3;
        assert!((f(&format!("/gbps/{way}")) / gbps - 1.0).abs() < 1e-9, "{way}");
        let fraction = f(&format!("/gbps/{way}")) / f("/ceiling_gbps");
        assert!((f(&format!("/fraction/{way}")) / fraction - 1.0).abs() < 1e-9, "{way}");
    }
}

#[test]
fn short_calls_are_measured_in_a_row_too() {
    let path = file("short.jsonl", &made_up(32, 8, 2, |_, _| ()));
    let mut c = moe(&routes(&path));
    c.args(["--pes", "2"]);
    let r = verified(c);
    let f =
        |path: &str| r.pointer(path).and_then(Value::as_f64).unwrap_or_else(|| panic!("no number at {path}"));
    assert!((4..=50).contains(&n(&r["in_a_row"]["calls"])), "{r}");
    let bytes = f("/wire_bytes") + f("/local_bytes");
    for way in ["dispatch", "combine"] {
        let gbps = bytes / f(&format!("/in_a_row/us/{way}")) / 1e3;
        assert!((f(&format!("/in_a_row/gbps/{way}")) / gbps - 1.0).abs() < 1e-9, "{way}");
        let fraction = f(&format!("/in_a_row/gbps/{way}")) / f("/in_a_row/ceiling_gbps");
        assert!((f(&format!("/in_a_row/fraction/{way}")) / fraction - 1.0).abs() < 1e-9, "{way}");
    }
}
