//! `--plot` and `--report`.

use std::path::Path;

use serde_json::Value;

use super::{file, launched, made_up, moe, run, text};

/// The rectangles of a picture that say something when they are pointed at, as their texts.
fn says(svg: &str) -> Vec<String> {
    let document = roxmltree::Document::parse(svg).expect("well-formed XML");
    let titles = document.descendants().filter(|n| n.has_tag_name("title") && n.parent_element().is_some());
    titles.filter_map(|n| n.text()).map(str::to_owned).collect()
}

#[test]
fn a_picture_has_a_cell_for_each_pair_a_bar_for_each_expert_and_every_phase() {
    let trace = made_up(400, 10, 2, |_, _| ());
    let (routes, plot) = (file("a<b&c.jsonl", &trace), file("moe.svg", ""));
    let page = file("moe.html", "");
    let path = |p: &Path| p.to_str().expect("a name in UTF-8").to_owned();
    let args = [
        "--routes",
        &path(&routes),
        "--plot",
        &path(&plot),
        "--report",
        &path(&page),
        "--hidden",
        "24",
        "--steps",
        "3",
    ];
    for launcher in [false, true] {
        let out =
            run(if launcher { launched("3", &args) } else { moe(&[&args[..], &["--pes", "3"]].concat()) });
        assert_eq!((out.status.code(), text(&out.stderr)), (Some(0), String::new()));
        let svg = std::fs::read_to_string(&plot).expect("written");
        let says = says(&svg);
        let count = |start: &str, part: &str| {
            says.iter().filter(|s| s.starts_with(start) && s.contains(part)).count()
        };
        assert_eq!((count("PE ", " to PE "), count("expert ", " rows")), (9, 10), "{says:?}");
        for phase in ["permute", "dispatch", "combine", "reduce"] {
            assert_eq!(count(&format!("{phase}: median"), "p99"), 1, "{phase}");
        }
        // Loads are those of the trace, and ne is 4: expert 9 belongs to PE 2.
        let of_nine = trace.lines().filter(|l| {
            let ids = &serde_json::from_str::<Value>(l).expect("own line")["topk_ids"];
            ids.as_array().is_some_and(|ids| ids.contains(&9.into()))
        });
        assert!(says.contains(&format!("expert 9 on PE 2: {} rows", of_nine.count())), "{says:?}");
        let html = std::fs::read_to_string(&page).expect("written");
        assert!(
            html.contains("<svg") && html.contains("every value verified") && html.contains("a&lt;b&amp;c")
        );
        assert!(
            !html.contains("src=") && !html.contains("<link") && !html.contains("<script"),
            "self-contained"
        );
    }
    // A failure leaves the files as they were.
    let before = std::fs::read(&plot).expect("written");
    assert_eq!(run(moe(&["--plot", &path(&plot), "--dtype", "f7"])).status.code(), Some(2));
    assert_eq!(std::fs::read(&plot).expect("still there"), before);
    let out = run(moe(&["--plot", "/nowhere/at/all.svg"]));
    assert_eq!((out.status.code(), text(&out.stderr).lines().count()), (Some(2), 1));
}
