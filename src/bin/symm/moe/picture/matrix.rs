//! Who sends how much to whom.

use super::super::report::Report;
use super::Picture;
use super::draw::{Anchor, Canvas, QUIET, Style, bytes, figure, shade, unit};

/// Room for the names of rows and columns.
const NAMES: f64 = 64.0;
const SIDE: f64 = 344.0;
/// Cells of this many PEs and fewer have their figure in them.
const FIGURES: usize = 10;
/// Marks of the colour scale.
const SCALE: usize = 40;

impl Picture {
    pub(super) fn matrix(&self, c: &mut Canvas, (x, y): (f64, f64), r: &Report) {
        let cells = self.traffic.len();
        let most = self.traffic.iter().flatten().copied().max().unwrap_or(0).max(1);
        let (wire, local) = (bytes(r.wire_bytes as f64), bytes(r.local_bytes as f64));
        let (scale, unit) = unit(most as f64);
        c.text(x, y + 16.0, &format!("{unit} of one dispatch, from PE to PE"), Style::Head);
        c.text(x, y + 38.0, &format!("{wire} go to other PEs, {local} stay (dashed)"), Style::Quiet);
        let (left, top) = (x + NAMES, y + 92.0);
        let cell = SIDE / cells as f64;
        let name = |i: usize| {
            let first = i * self.pes_a_cell;
            let last = (first + self.pes_a_cell).min(r.pes) - 1;
            if first == last { first.to_string() } else { format!("{first}–{last}") }
        };
        // As many names as there is room for.
        let every = |room: f64| (room / cell).ceil().max(1.0) as usize;
        let (down, across) = (every(22.0), every(16.0 + 8.0 * name(cells - 1).chars().count() as f64));
        c.text_at((left + SIDE / 2.0, top - 27.0), "to PE", Style::Quiet, Anchor::Middle);
        c.text_up((x + 12.0, top + SIDE / 2.0), "from PE");
        for (from, row) in self.traffic.iter().enumerate() {
            let middle = (from as f64 + 0.5) * cell;
            if from % down == 0 {
                c.text_at((left - 8.0, top + middle + 4.5), &name(from), Style::Normal, Anchor::End);
            }
            if from % across == 0 {
                c.text_at((left + middle, top - 8.0), &name(from), Style::Normal, Anchor::Middle);
            }
            for (to, n) in row.iter().enumerate() {
                let at = (left + to as f64 * cell, top + from as f64 * cell);
                let (fill, dark) = shade(*n as f64 / most as f64);
                let says = format!("PE {} to PE {}: {}", name(from), name(to), bytes(*n as f64));
                c.rectangle(at, (cell, cell), &fill, &says);
                if cells <= FIGURES {
                    let style = if dark { Style::Inverse } else { Style::Normal };
                    let middle = (at.0 + cell / 2.0, at.1 + cell / 2.0 + 4.5);
                    c.text_at(middle, &figure(*n as f64 / scale), style, Anchor::Middle);
                }
            }
        }
        for (i, row) in self.traffic.iter().enumerate() {
            let at = i as f64 * cell;
            let (inset, dark) = ((cell / 16.0).min(4.0), shade(row[i] as f64 / most as f64).1);
            let size = cell - 2.0 * inset;
            c.dashes((left + at + inset, top + at + inset), size, if dark { "#ffffff" } else { QUIET });
        }
        c.outline((left, top), (SIDE, SIDE));
        let (bar, step) = (left + SIDE + 24.0, SIDE / SCALE as f64);
        for i in 0..SCALE {
            let share = 1.0 - (i as f64 + 0.5) / SCALE as f64;
            let says = bytes(share * most as f64);
            c.rectangle((bar, top + i as f64 * step), (14.0, step + 0.5), &shade(share).0, &says);
        }
        c.text(bar + 20.0, top + 11.0, &bytes(most as f64), Style::Quiet);
        c.text(bar + 20.0, top + SIDE / 2.0 + 4.5, &bytes(most as f64 / 2.0), Style::Quiet);
        c.text(bar + 20.0, top + SIDE, "0", Style::Quiet);
    }
}
