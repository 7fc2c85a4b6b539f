//! How many rows each expert gets.

use super::super::report::Report;
use super::Picture;
use super::draw::{Anchor, Canvas, MARK, PES, RULE, Style, count, tick};

const WIDTH: f64 = 462.0;
const HEIGHT: f64 = 350.0;

impl Picture {
    pub(super) fn load(&self, c: &mut Canvas, (x, y): (f64, f64), r: &Report) {
        let mean = r.rows as f64 / r.experts.max(1) as f64;
        let busiest = self.load.iter().copied().max().unwrap_or(0);
        c.text(x, y + 16.0, "Rows that each expert gets", Style::Head);
        let over = r.load.max_over_mean;
        let busiest_says = format!("busiest {} rows, {over:.2} × the mean", count(busiest));
        let text = if self.experts_a_bar > 1 {
            format!("a bar: the busiest of {} experts; {busiest_says}", self.experts_a_bar)
        } else {
            format!("{busiest_says}; shades tell PEs apart")
        };
        c.text(x, y + 38.0, &text, Style::Quiet);
        let (left, top) = (x + 56.0, y + 86.0);
        let most = (busiest as f64).max(mean).max(1.0) * 1.04;
        let height = |rows: f64| HEIGHT * rows / most;
        let step = tick(most, 6.0);
        let mut mark = 0.0;
        while mark <= most {
            let at = top + HEIGHT - height(mark);
            c.line((left, at), (left + WIDTH, at), RULE, 1.0);
            c.text_at((left - 8.0, at + 4.5), &count(mark as u64), Style::Quiet, Anchor::End);
            mark += step;
        }
        let bar = WIDTH / self.load.len().max(1) as f64;
        let gap = if bar > 4.0 { bar * 0.15 } else { 0.0 };
        for (i, rows) in self.load.iter().enumerate() {
            let expert = i * self.experts_a_bar;
            let pe = expert / self.experts_a_pe.max(1);
            let at = (left + i as f64 * bar + gap / 2.0, top + HEIGHT - height(*rows as f64));
            let says = format!("expert {expert} on PE {pe}: {} rows", count(*rows));
            c.rectangle(at, (bar - gap, height(*rows as f64)), PES[pe % 2], &says);
        }
        c.line((left, top + HEIGHT), (left + WIDTH, top + HEIGHT), super::draw::INK, 1.0);
        self.owners(c, (left, top + HEIGHT), r);
        let at = top + HEIGHT - height(mean);
        c.line((left, at), (left + WIDTH, at), MARK, 2.0);
        let end = left + WIDTH + 7.0;
        c.text_at((end, at - 2.0), "mean", Style::Normal, Anchor::Start);
        c.text_at((end, at + 14.0), &count(mean.round() as u64), Style::Normal, Anchor::Start);
    }

    /// Below the bars: whose experts they are.
    fn owners(&self, c: &mut Canvas, (left, bottom): (f64, f64), r: &Report) {
        let expert = WIDTH / (self.load.len() * self.experts_a_bar).max(1) as f64;
        let pe_width = expert * self.experts_a_pe as f64;
        let every = (44.0 / pe_width).ceil().max(1.0) as usize;
        let owners = r.experts.div_ceil(self.experts_a_pe.max(1));
        for pe in 0..owners {
            let start = left + pe as f64 * pe_width;
            let end = (start + pe_width).min(left + expert * r.experts as f64);
            c.rectangle((start, bottom + 4.0), (end - start, 6.0), PES[pe % 2], &format!("PE {pe}"));
            if pe % every == 0 {
                c.text_at(
                    ((start + end) / 2.0, bottom + 26.0),
                    &format!("PE {pe}"),
                    Style::Normal,
                    Anchor::Middle,
                );
            }
        }
    }
}
