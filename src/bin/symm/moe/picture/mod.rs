//! A job that ran, as one picture: who sends how much to whom, each expert's load, the time of each phase.
//!
//! | file | what |
//! |---|---|
//! | `draw` | marks, text and colours |
//! | `matrix`, `load`, `phases` | the three panels |
//! | `page` | the picture with the table, as one HTML file |

mod draw;
mod load;
mod matrix;
mod page;
mod phases;

use serde::{Deserialize, Serialize};
use symm::moe::{experts_per_pe, owner_of_token};

use super::prepare::Job;
use super::report::{Done, Report, counted};
use draw::{Canvas, Style};

pub(super) use page::page;

/// Rows and columns that the matrix has at most; with more PEs a cell stands for several.
const MOST_CELLS: usize = 64;
/// Bars that the load has at most; with more experts a bar stands for several.
const MOST_BARS: usize = 512;

/// What the picture needs beside the report.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Picture {
    /// PEs that a cell stands for.
    pes_a_cell: usize,
    /// Bytes of one dispatch from the PEs of a row to those of a column.
    traffic: Vec<Vec<u64>>,
    /// Experts that a bar stands for.
    experts_a_bar: usize,
    experts_a_pe: usize,
    /// Rows of the busiest expert of each bar.
    load: Vec<u64>,
}

impl Picture {
    pub(super) fn new(job: &Job) -> Self {
        let (trace, pes) = (&job.trace, job.pes);
        let pes_a_cell = pes.div_ceil(MOST_CELLS);
        let cells = pes.div_ceil(pes_a_cell);
        let ne = experts_per_pe(trace.experts, pes);
        let mut traffic = vec![vec![0u64; cells]; cells];
        for (token, ids) in trace.ids.chunks_exact(trace.top_k).enumerate() {
            let from = owner_of_token(token, trace.tokens, pes) / pes_a_cell;
            for to in ids.iter().filter_map(|id| usize::try_from(*id).ok()).map(|e| e / ne / pes_a_cell) {
                traffic[from][to] += job.row_bytes() as u64;
            }
        }
        let experts_a_bar = trace.experts.div_ceil(MOST_BARS).max(1);
        let busiest = |bar: &[u64]| bar.iter().copied().max().unwrap_or(0);
        let load = job.counts.load.chunks(experts_a_bar).map(busiest).collect();
        Picture { pes_a_cell, traffic, experts_a_bar, experts_a_pe: ne, load }
    }

    /// The picture as an SVG file.
    pub(super) fn svg(&self, done: &Done) -> String {
        let r = &done.report;
        let mut c = Canvas::new(1200.0, 860.0);
        let title = format!(
            "{} tokens to {} experts, top-{}, on {} PE{}",
            draw::count(r.tokens as u64),
            draw::count(r.experts as u64),
            r.top_k,
            r.pes,
            if r.pes == 1 { "" } else { "s" }
        );
        c.text(40.0, 50.0, &title, Style::Title);
        c.text(40.0, 76.0, &subtitle(done), Style::Quiet);
        self.matrix(&mut c, (40.0, 110.0), r);
        self.load(&mut c, (620.0, 110.0), r);
        phases::phases(&mut c, (40.0, 590.0), done);
        c.finish()
    }
}

fn subtitle(done: &Done) -> String {
    let r: &Report = &done.report;
    let verdict = if r.verified { "every value verified" } else { "VALUES DIFFER" };
    format!(
        "{}, {verdict} · rows of {} {} · backend {}, reach {} · trace {}",
        counted(r.steps, "step"),
        r.hidden,
        r.dtype,
        r.backend,
        r.reach,
        done.trace
    )
}
