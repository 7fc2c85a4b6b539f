//! Rows as a table that grows, and as JSON.

use serde::{Deserialize, Serialize};
use serde_json::json;

use super::measure::Row;

/// What all rows have in common.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Setup {
    pub(super) op: String,
    pub(super) backend: String,
    /// Why it was chosen.
    pub(super) why: String,
    /// `direct`, `network` or both, between any two PEs.
    pub(super) reach: String,
    pub(super) pes: usize,
    pub(super) dtype: String,
    pub(super) redop: String,
    pub(super) root: usize,
    /// Operations of the graph that was replayed.
    pub(super) graph: Option<u64>,
    /// Bytes of a row and experts a PE, in the forms that have them.
    pub(super) row: Option<usize>,
    pub(super) experts: Option<usize>,
    pub(super) cpu: String,
    pub(super) cores: usize,
}

impl Setup {
    /// The lines above the first row.
    pub(super) fn head(&self) -> String {
        let mut text = format!(
            "# {} on {} PEs, {} cores ({})\n# backend {}, reach {}\n",
            self.op, self.pes, self.cores, self.cpu, self.why, self.reach
        );
        if let (Some(row), experts) = (self.row, self.experts) {
            let experts = experts.map(|e| format!(", {e} experts a PE")).unwrap_or_default();
            text += &format!("# rows of {row} bytes{experts}\n");
        }
        if let Some(n) = self.graph {
            text += &format!("# replayed from graphs of {n}\n");
        }
        text += &format!(
            "# {:>10} {:>12} {:>6} {:>6} {:>5}  {:<name$}{:>11}{:>11}{:>8}{:>8}{:>9}{:>8}\n",
            "size",
            "count",
            "type",
            "redop",
            "root",
            "",
            "time",
            "min",
            "algbw",
            "busbw",
            "of copy",
            "#wrong",
            name = self.name_width()
        );
        text + &format!(
            "# {:>10} {:>12} {:>6} {:>6} {:>5}  {:<name$}{:>11}{:>11}{:>8}{:>8}{:>9}{:>8}\n",
            "(B)",
            "(elements)",
            "",
            "",
            "",
            "",
            "(us)",
            "(us)",
            "(GB/s)",
            "(GB/s)",
            "(%)",
            "",
            name = self.name_width()
        )
    }

    /// Width of the column with the operation's name.
    fn name_width(&self) -> usize {
        self.op.split(" and ").map(str::len).max().unwrap_or(0).max(19) + 1
    }

    /// A row of the table.
    pub(super) fn line(&self, r: &Row) -> String {
        let redop = if r.op.contains("reduce") { self.redop.as_str() } else { "none" };
        let root = if ["broadcast", "tile_reduce"].contains(&r.op.as_str()) {
            self.root.to_string()
        } else {
            "-1".to_owned()
        };
        let fraction = r.fraction.map_or_else(|| "-".to_owned(), |f| format!("{:.0}", 100.0 * f));
        let wrong = r.wrong.map_or_else(|| "N/A".to_owned(), |n| n.to_string());
        format!(
            "  {:>10} {:>12} {:>6} {:>6} {:>5}  {:<name$}{:>11.2}{:>11.2}{:>8.2}{:>8.2}{:>9}{:>8}\n",
            r.size,
            r.count,
            self.dtype,
            redop,
            root,
            r.op,
            r.p50_us,
            r.min_us,
            r.algbw,
            r.busbw,
            fraction,
            wrong,
            name = self.name_width()
        )
    }

    /// The `--json` text.
    pub(super) fn json(&self, rows: &[Row]) -> String {
        let mut all = serde_json::to_value(self).expect("plain structs should encode");
        all["version"] = json!(env!("CARGO_PKG_VERSION"));
        all["wrong"] = json!(rows.iter().map(|r| r.wrong).sum::<Option<u64>>());
        all["rows"] = json!(rows);
        format!("{all:#}\n")
    }
}
