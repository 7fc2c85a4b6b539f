use crate::moe::{MAX_EXPERTS, Trace, TraceError};

fn parse(text: &str) -> Result<Trace, TraceError> {
    Trace::parse("t.jsonl", text.as_bytes(), None)
}

const META: &str = r#"{"type":"meta","model":"m","num_experts":8,"hidden":384,"extra":[1]}"#;

fn route(ids: &str, weights: &str) -> String {
    format!(
        r#"{{"type":"route","req_id":"r0","token_idx":0,"layer":3,"topk_ids":{ids},"topk_weights":{weights}}}"#
    )
}

/// Parses the lines behind a good first route and returns (line, field, message) of the error.
fn refused(line: &str) -> (usize, String, String) {
    let text = format!("{META}\n\n{}\n{line}\n", route("[0, 7]", "[0.5, 0.5]"));
    let e = parse(&text).expect_err(line);
    assert_eq!(e.file, "t.jsonl");
    assert_eq!(e.to_string(), format!("t.jsonl:{}: {}: {}", e.line, e.field, e.message));
    (e.line, e.field, e.message)
}

#[test]
fn a_good_trace() {
    let text = format!(
        "\n{META}\r\n{}\n{{\"type\":\"note\",\"layer\":99}}\n{}\n{}",
        route("[1, -1]", "[0.75, 0]"),
        route("[7, 0]", "[1, 0.25]"),
        r#"{"type":"route","layer":3,"topk_ids":[7,0]}"#
    );
    let t = parse(&text).expect("the trace should be good");
    assert_eq!((t.tokens, t.top_k, t.experts, t.hidden, t.layer), (3, 2, 8, Some(384), 3));
    assert_eq!(t.ids, [1, -1, 7, 0, 7, 0]);
    assert_eq!(t.weights, [0.75, 0.0, 1.0, 0.25, 0.5, 0.5]);
}

#[test]
fn without_metadata_the_largest_id_of_the_layer_counts() {
    let other = r#"{"type":"route","layer":4,"topk_ids":[50,1,2]}"#;
    let text = format!("{}\n{other}\n{}", route("[5, 1]", "[1, 0]"), route("[5, 1]", "[1, 0]"));
    let t = Trace::parse("t", text.as_bytes(), Some(3)).expect("layer 3 should be good");
    assert_eq!((t.tokens, t.top_k, t.experts, t.hidden), (2, 2, 6, None));
    let t = Trace::parse("t", text.as_bytes(), Some(4)).expect("layer 4 should be good");
    assert_eq!((t.tokens, t.top_k, t.experts, t.layer), (1, 3, 51, 4));
    assert_eq!(t.weights, [1.0 / 3.0; 3]);
    let e = parse(&text).expect_err("two layers need a choice");
    assert_eq!((e.line, e.field.as_str()), (2, "layer"));
    assert!(e.message.contains("3, 4"), "{e}");
    let e = Trace::parse("t", text.as_bytes(), Some(5)).expect_err("there is no layer 5");
    assert!(e.message.contains("layer 5") && e.message.contains("3, 4"), "{e}");
}

#[test]
fn the_layer_may_come_from_the_metadata() {
    let lines = "{\"type\":\"meta\",\"layer\":2}\n{\"type\":\"route\",\"topk_ids\":[1]}\n";
    assert_eq!(parse(lines).expect("the metadata name a layer").layer, 2);
    let e = parse(lines.lines().nth(1).expect("line 2")).expect_err("no layer at all");
    assert_eq!((e.line, e.field.as_str()), (1, "layer"));
}

#[test]
fn bad_lines_name_their_line_and_field() {
    for (line, field) in [
        (route("[0, 8]", "[0.5, 0.5]"), "topk_ids"),
        (route("[0, -2]", "[0.5, 0.5]"), "topk_ids"),
        (route("[0, 18446744073709551615]", "[0.5, 0.5]"), "topk_ids"),
        (route("[0, 1.0]", "[0.5, 0.5]"), "topk_ids"),
        (route("[0, \"1\"]", "[0.5, 0.5]"), "topk_ids"),
        (route("[0, null]", "[0.5, 0.5]"), "topk_ids"),
        (route("[0]", "[0.5]"), "topk_ids"),
        (route("[0, 1, 2]", "[0.5, 0.5, 0]"), "topk_ids"),
        (route("[]", "[]"), "topk_ids"),
        (route("3", "[1]"), "topk_ids"),
        (route("null", "[1]"), "topk_ids"),
        (route("[0, 1]", "[0.5]"), "topk_weights"),
        (route("[0, 1]", "[0.5, 0.25, 0.25]"), "topk_weights"),
        (route("[0, 1]", "[0.5, -0.1]"), "topk_weights"),
        (route("[0, 1]", "[0.5, NaN]"), "topk_weights"),
        (route("[0, 1]", "[0.5, Infinity]"), "topk_weights"),
        (route("[0, 1]", "[0.5, 1e39]"), "topk_weights"),
        (route("[0, 1]", "[0.5, 1e999]"), "topk_weights"),
        (route("[0, 1]", "[0.5, \"x\"]"), "topk_weights"),
        (route("[0, 1]", "{}"), "topk_weights"),
        (r#"{"type":"route","layer":3}"#.to_owned(), "topk_ids"),
        (r#"{"type":"route","topk_ids":[0,1]}"#.to_owned(), "layer"),
        (r#"{"type":"route","layer":"x","topk_ids":[0,1]}"#.to_owned(), "layer"),
        (r#"{"type":7}"#.to_owned(), "type"),
        (r#"{"layer":3,"topk_ids":[0,1]}"#.to_owned(), "type"),
        (r#"[1, 2]"#.to_owned(), "line"),
        ("not JSON".to_owned(), "line"),
        (r#"{"type":"meta","num_experts":9}"#.to_owned(), "num_experts"),
        (r#"{"type":"meta","num_experts":"8"}"#.to_owned(), "num_experts"),
        (r#"{"type":"meta","num_experts":0}"#.to_owned(), "num_experts"),
        (format!(r#"{{"type":"meta","num_experts":{}}}"#, MAX_EXPERTS + 1), "num_experts"),
        (r#"{"type":"meta","hidden":-1}"#.to_owned(), "hidden"),
    ] {
        let (at, name, message) = refused(&line);
        assert_eq!((at, name.as_str()), (4, field), "{line}: {message}");
    }
    let (_, _, message) = refused(&route("[0, 8]", "[0.5, 0.5]"));
    assert!(message.contains('8') && message.contains("-1 to 7"), "{message}");
    let cut = &route("[0, 1]", "[0.5, 0.5]")[..70];
    assert!(refused(cut).2.contains("broken JSON"));
}

#[test]
fn what_a_whole_file_lacks() {
    for text in ["", "\n \n", META] {
        let e = parse(text).expect_err("there are no routes");
        assert_eq!((e.line >= 1, e.field.as_str()), (true, "route"), "{e}");
    }
    let e = parse(r#"{"type":"route","layer":0,"topk_ids":[-1]}"#).expect_err("no id at all");
    assert!(e.message.contains("no token chose an expert"));
    let e = parse(&format!("{{\"type\":\"route\",\"layer\":0,\"topk_ids\":[{MAX_EXPERTS}]}}"))
        .expect_err("a wild id");
    assert_eq!(e.field, "topk_ids");
    let late = format!("{}\n{META}", route("[0]", "[1]"));
    assert_eq!(parse(&late).expect_err("metadata come first").field, "num_experts");
    let bytes: &[u8] = b"{\"type\":\"route\",\"x\":\"\xff\"}";
    assert_eq!(Trace::parse("t", bytes, None).expect_err("no UTF-8").line, 1);
}

#[test]
fn a_file_without_line_ends_is_not_read_for_ever() {
    let endless = std::io::BufReader::new(std::io::repeat(0));
    let e = Trace::parse("zeros", endless, None).unwrap_err();
    assert_eq!((e.line, e.field.as_str()), (1, "line"), "{e}");
    assert!(e.message.contains("longer than"), "{e}");
}

#[test]
fn a_field_without_a_name_is_not_named() {
    assert_eq!(refused(r#"{"type":"route","":x}"#).1, "line");
}

#[test]
fn a_failing_reader_is_an_error() {
    struct Broken;
    impl std::io::Read for Broken {
        fn read(&mut self, _: &mut [u8]) -> std::io::Result<usize> {
            Err(std::io::Error::other("the disk is gone"))
        }
    }
    let e = Trace::parse("t", std::io::BufReader::new(Broken), None).expect_err("nothing can be read");
    assert_eq!((e.line, e.message.as_str()), (1, "the disk is gone"));
}
