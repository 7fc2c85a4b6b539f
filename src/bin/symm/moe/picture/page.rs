//! The picture with the table, as one HTML file that needs nothing else.

use maud::{DOCTYPE, PreEscaped, html};

use super::super::report::Done;
use super::Picture;
use super::draw::{bytes, count, time};

const STYLE: &str = "
body { font: 15px/1.5 Inter, 'Helvetica Neue', Helvetica, Arial, sans-serif; color: #1f2933; margin: 0; background: #fff }
main { max-width: 1200px; margin: 0 auto; padding: 16px }
svg { width: 100%; height: auto }
table { border-collapse: collapse; margin: 8px 40px 24px }
th, td { padding: 4px 14px; border-bottom: 1px solid #d5dbe3; text-align: right; font-variant-numeric: tabular-nums }
th:first-child, td:first-child { text-align: left }
p { color: #5f6c7b; margin: 0 40px 8px }
";

/// The page.
pub(in super::super) fn page(picture: &Picture, done: &Done) -> String {
    let r = &done.report;
    let facts = [
        ("trace", done.trace.clone()),
        ("tokens", format!("{} to {} experts, top-{}", count(r.tokens as u64), r.experts, r.top_k)),
        ("row", format!("{} {}", r.hidden, r.dtype)),
        ("PEs", format!("{}, backend {}, reach {}", r.pes, r.backend, r.reach)),
        ("steps", r.steps.to_string()),
        ("result", if r.verified { "every value verified".to_owned() } else { "VALUES DIFFER".to_owned() }),
        ("rows of a dispatch", count(r.rows)),
        ("to other PEs", bytes(r.wire_bytes as f64)),
        ("stay", bytes(r.local_bytes as f64)),
        ("busiest expert", format!("{:.2} of the mean", r.load.max_over_mean)),
        ("idlest expert", format!("{:.2} of the mean", r.load.min_over_mean)),
    ];
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                title { "symm moe: " (r.tokens) " tokens, " (r.experts) " experts, " (r.pes) " PEs" }
                style { (PreEscaped(STYLE)) }
            }
            body {
                main {
                    (PreEscaped(picture.svg(done)))
                    table {
                        tr { th { "phase" } th { "p50" } th { "p99" } th { "longest" } th { "GB/s" } th { "of copies" } }
                        @for (name, us, rate) in done.phases() {
                            tr {
                                td { (name) } td { (time(us.p50)) } td { (time(us.p99)) } td { (time(us.max)) }
                                @match rate {
                                    Some(rate) => { td { (format!("{:.2}", rate.gbps)) } td { (format!("{:.0} %", 100.0 * rate.fraction)) } },
                                    None => { td {} td {} },
                                }
                            }
                        }
                    }
                    p { (format!("Copies: {:.2} GB/s, {}.", r.ceiling_gbps, done.ceiling())) }
                    table {
                        @for (name, value) in &facts { tr { td { (name) } td { (value) } } }
                    }
                }
            }
        }
    };
    page.into_string()
}
