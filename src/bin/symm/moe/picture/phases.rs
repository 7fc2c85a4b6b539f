//! How long each phase of a step takes.

use super::super::report::{Done, Rate};
use super::draw::{Anchor, Canvas, INK, MARK, PES, RULE, Style, tick, time};

const WIDTH: f64 = 760.0;
const BAR: f64 = 26.0;
const PITCH: f64 = 42.0;

pub(super) fn phases(c: &mut Canvas, (x, y): (f64, f64), done: &Done) {
    let r = &done.report;
    let all = done.phases();
    c.text(x, y + 16.0, "Time of each phase of a step", Style::Head);
    let text = format!(
        "bar: median of {} steps, the slowest PE of each; thin line: to the 99th percentile; red: as plain copies would take, at {:.1} GB/s",
        r.steps, r.ceiling_gbps
    );
    c.text(x, y + 38.0, &text, Style::Quiet);
    let (left, top) = (x + 84.0, y + 62.0);
    let bottom = top + PITCH * all.len() as f64;
    let most = all.iter().map(|(_, q, _)| q.p99).fold(0.0, f64::max).max(1e-3) * 1.02;
    let width = |us: f64| WIDTH * us / most;
    let step = tick(most, 8.0);
    let mut mark = 0.0;
    while mark <= most {
        c.line((left + width(mark), top), (left + width(mark), bottom), RULE, 1.0);
        let text = if mark == 0.0 { "0".to_owned() } else { super::draw::mark(mark) };
        c.text_at((left + width(mark), bottom + 18.0), &text, Style::Quiet, Anchor::Middle);
        mark += step;
    }
    for (i, (name, q, rate)) in all.into_iter().enumerate() {
        let at = top + i as f64 * PITCH + (PITCH - BAR) / 2.0;
        let middle = at + BAR / 2.0;
        c.text_at((left - 10.0, middle + 4.5), name, Style::Normal, Anchor::End);
        let says = format!("{name}: median {}, p99 {}, longest {}", time(q.p50), time(q.p99), time(q.max));
        c.rectangle((left, at), (width(q.p50), BAR), PES[0], &says);
        c.line((left + width(q.p50), middle), (left + width(q.p99), middle), INK, 1.5);
        c.line((left + width(q.p99), middle - 6.0), (left + width(q.p99), middle + 6.0), INK, 1.5);
        let mut text = time(q.p50);
        if let Some(Rate { gbps, fraction }) = rate {
            let ceiling = left + width(q.p50 * fraction).min(WIDTH);
            c.line((ceiling, at - 4.0), (ceiling, at + BAR + 4.0), MARK, 2.5);
            text += &format!(" · {gbps:.1} GB/s, {:.0} % of the copies", 100.0 * fraction);
        }
        c.text_at((left + WIDTH + 20.0, middle + 4.5), &text, Style::Normal, Anchor::Start);
    }
    c.line((left, top), (left, bottom), INK, 1.0);
}
