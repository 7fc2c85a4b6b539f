//! A plan as a table and as JSON.

use std::fmt::{self, Write};

use serde_json::{Value, json};
use symm::moe::{Allocation, Footprint, Kind, Layer, Room};

use super::Request;
use crate::cli::args::human;

pub(super) struct Report {
    layer: Layer,
    room: Room,
    memory: Option<(u64, bool)>,
    footprint: Footprint,
    /// The most tokens a PE that fit the memory.
    fitting: Option<usize>,
}

impl Report {
    pub(super) fn new(request: &Request, footprint: Footprint, fitting: Option<usize>) -> Self {
        Report { layer: request.layer, room: request.room, memory: request.memory, footprint, fitting }
    }

    fn fits(&self) -> Option<bool> {
        self.memory.map(|(bytes, _)| self.footprint.bytes() <= bytes)
    }

    /// Whether it does not fit what the user said there is.
    pub(super) fn refused(&self) -> bool {
        self.fits() == Some(false) && self.memory.is_some_and(|(_, asked)| asked)
    }

    pub(super) fn json(&self) -> String {
        let (l, f) = (&self.layer, &self.footprint);
        let allocation = |a: &Allocation| json!({ "name": a.name, "kind": kind(a.kind), "rows": a.rows, "bytes": a.bytes });
        let [symmetric, local, internal] = f.segments;
        let value: Value = json!({
            "pes": l.pes, "tokens": l.tokens, "hidden": l.hidden, "top_k": l.top_k, "experts": l.experts,
            "dtype": l.dtype.name(), "align": l.align,
            "capacity_factor": match self.room { Room::Worst => None, Room::Even(factor) => Some(factor) },
            "experts_per_pe": f.experts_per_pe, "row_bytes": f.row_bytes,
            "rows_sent": f.rows_sent, "rows_even": f.rows_even, "rows_worst": f.rows_worst, "capacity": f.capacity(),
            "allocations": f.allocations.iter().map(allocation).collect::<Vec<_>>(),
            "segments": { "symmetric": symmetric, "local": local, "internal": internal },
            "bytes_a_pe": f.bytes(), "bytes_all_pes": f.bytes().saturating_mul(l.pes as u64),
            "limits": { "splits": f.splits, "max_splits": f.max_splits, "channels": f.channels,
                "memory_a_pe": self.memory.map(|(bytes, _)| bytes), "fits": self.fits(), "max_tokens": self.fitting },
        });
        format!("{value:#}\n")
    }

    pub(super) fn table(&self) -> String {
        let mut text = String::new();
        // Writing to a String cannot fail.
        let _ = self.write_table(&mut text);
        text
    }

    fn write_table(&self, t: &mut impl Write) -> fmt::Result {
        let (l, f) = (&self.layer, &self.footprint);
        writeln!(
            t,
            "{} PEs, {} tokens each to {} of {} experts ({} a PE), rows of {} {} ({})",
            l.pes,
            l.tokens,
            l.top_k,
            l.experts,
            f.experts_per_pe,
            l.hidden,
            l.dtype,
            human(f.row_bytes)
        )?;
        writeln!(
            t,
            "  rows      each PE sends {} at most; the busiest receives {} of an even routing,",
            f.rows_sent, f.rows_even
        )?;
        let room = match self.room {
            Room::Worst => "the output has room for any routing".to_owned(),
            Room::Even(factor) => format!("the output has room for {factor} times an even one"),
        };
        writeln!(t, "            {} of the worst; {room}", f.rows_worst)?;
        writeln!(t)?;
        writeln!(t, "  {:<46}{:<11}{:>12}{:>16}{:>12}", "each PE allocates", "", "rows", "bytes", "")?;
        for a in &f.allocations {
            let rows = a.rows.map(|r| r.to_string()).unwrap_or_default();
            writeln!(
                t,
                "  {:<46}{:<11}{rows:>12}{:>16}{:>12}",
                a.name,
                kind(a.kind),
                a.bytes,
                human(a.bytes)
            )?;
        }
        let [symmetric, local, internal] = f.segments;
        for (name, bytes) in
            [("symmetric", symmetric), ("local", local), ("internal", internal), ("", f.bytes())]
        {
            let what = if name.is_empty() { "in all, a PE" } else { "segments, rounded up" };
            writeln!(t, "  {what:<46}{name:<11}{:>12}{bytes:>16}{:>12}", "", human(bytes))?;
        }
        let all = f.bytes().saturating_mul(l.pes as u64);
        writeln!(t, "  {:<57}{:>12}{all:>16}{:>12}", "in all, the job", "", human(all))?;
        writeln!(t)?;
        let context = if f.splits > l.pes.saturating_mul(32).max(1024) {
            "more than the team's own context takes: make one with Team::new_context"
        } else {
            "within the team's own context"
        };
        writeln!(t, "  splits    {} a PE, {context}", f.splits)?;
        let short = if f.channels == 0 { ": too few, raise SYMM_SIGNAL_PAD_BYTES" } else { "" };
        writeln!(t, "  channels  {} in each signal pad{short}", f.channels)?;
        let Some((bytes, asked)) = self.memory else {
            return writeln!(t, "  memory    --memory BYTES says what a PE has");
        };
        let whose = if asked { "a PE has" } else { "this machine has for each PE" };
        let verdict = match (f.bytes() <= bytes, asked) {
            (true, _) => "fits",
            (false, true) => "DOES NOT FIT",
            (false, false) => "would not fit here",
        };
        let most = match self.fitting {
            Some(tokens) => format!("up to {tokens} tokens a PE would"),
            None => "not even one token a PE would".to_owned(),
        };
        writeln!(t, "  memory    {whose} {}: {verdict}; {most}", human(bytes))
    }
}

fn kind(kind: Kind) -> &'static str {
    match kind {
        Kind::Symmetric => "symmetric",
        Kind::Local => "local",
        Kind::Internal => "internal",
    }
}
