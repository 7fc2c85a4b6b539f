//! What a MoE layer takes of each PE's memory, known before anything is allocated.

use super::{MAX_EXPERTS, experts_per_pe};
use crate::config::Config;
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::layout::{ContextLayout, ContextRoom, PadLayout, default_max_splits};
use crate::model::memory::INTERNAL_SEGMENT;
use crate::model::pool;
use crate::splits::out_rows_bound;

/// A MoE layer as its dispatch and combine see it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layer {
    /// PEs, W.
    pub pes: usize,
    /// Tokens that one PE brings at most, T.
    pub tokens: usize,
    /// Elements of a row.
    pub hidden: usize,
    /// Different experts that a token chooses, K.
    pub top_k: usize,
    /// Experts over all PEs, E.
    pub experts: usize,
    /// Element type of a row.
    pub dtype: DType,
    /// Each expert's rows start at a multiple of so many rows (`major_align`).
    pub align: usize,
}

/// How many rows the dispatch output has room for, beside the padding.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Room {
    /// For whatever a router does: every token of every PE chooses as many experts of one PE as it can.
    Worst,
    /// For so many times the rows that an even routing brings, at most the worst case. More rows than that are an error of
    /// the dispatch on every PE ([`Fault::OutputRows`](crate::Fault::OutputRows)), with nothing written.
    Even(f64),
}

/// Who reaches an allocation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Made with `Team::empty`: peers write it.
    Symmetric,
    /// Made with `World::local`, or with whatever allocator the caller has.
    Local,
    /// Pads and contexts, which the library makes by itself.
    Internal,
}

/// One allocation of each PE.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Allocation {
    /// What it is for.
    pub name: &'static str,
    /// Who reaches it.
    pub kind: Kind,
    /// Rows, for those that hold rows.
    pub rows: Option<u64>,
    /// Bytes asked for.
    pub bytes: u64,
}

/// What a layer takes of each PE's memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Footprint {
    /// Experts a PE, `ne = ⌈E/W⌉`.
    pub experts_per_pe: usize,
    /// Splits that each PE publishes in a dispatch, `W·ne`.
    pub splits: usize,
    /// Splits that the context takes, made for them with `Team::new_context` where it is not the team's own.
    pub max_splits: usize,
    /// Channels of a signal pad. 0: the settings' pads are too small for so many PEs.
    pub channels: usize,
    /// Bytes of a row.
    pub row_bytes: u64,
    /// Rows that a PE sends in a dispatch at most, `T·K`, and gets back in the combine.
    pub rows_sent: u64,
    /// Rows that the busiest PE receives if every expert is chosen equally often, rounded up.
    pub rows_even: u64,
    /// Rows that one PE can receive at most, `W·T·min(K, ne)`, without padding.
    pub rows_worst: u64,
    /// Everything that each PE allocates. Outputs are equal on all, since symmetric memory is.
    pub allocations: Vec<Allocation>,
    /// Bytes that the backend is asked for, rounded as it does: symmetric, local and internal segments.
    pub segments: [u64; 3],
}

impl Layer {
    /// The rows and bytes of each PE, for a dispatch with `all_to_all_vdev_2d` and a combine with its offset form, on two
    /// handles, with the pads and pools of `config`; contexts have room for pushed elements unless its backend is `host`.
    /// `granularity` is what the backend rounds segments to: the page of `host`, 2 MiB on NVIDIA's GPUs.
    ///
    /// ```
    /// use symm_core::moe::{Layer, Room};
    /// use symm_core::{Config, DType};
    ///
    /// let layer =
    ///     Layer { pes: 8, tokens: 128, hidden: 7168, top_k: 8, experts: 256, dtype: DType::BF16, align: 1 };
    /// let f = layer.footprint(&Config::default(), Room::Worst, 2 << 20)?;
    /// assert_eq!((f.rows_sent, f.rows_even, f.rows_worst), (1024, 1024, 8192));
    /// # Ok::<(), symm_core::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] naming the field, its value and its limits; so, too, for a layer of which a PE's memory would have more
    /// than 2^63 - 1 bytes.
    pub fn footprint(&self, config: &Config, room: Room, granularity: u64) -> Result<Footprint> {
        let counted = self.counted(config, room, granularity)?;
        if counted.bytes() <= MAX_BYTES {
            return Ok(counted);
        }
        let why = "no PE has more than 2^63 - 1 bytes";
        Err(match self.max_tokens(config, room, granularity, MAX_BYTES)? {
            Some(most) => Error::argument(
                OP,
                "tokens",
                self.tokens,
                format!("at most {most} for the rest as it is: {why}"),
            ),
            None => {
                Error::argument(OP, "hidden", self.hidden, format!("less, or fewer pes or experts: {why}"))
            }
        })
    }

    /// The footprint with counts that saturate.
    fn counted(&self, config: &Config, room: Room, granularity: u64) -> Result<Footprint> {
        self.check(room, granularity)?;
        let (pes, tokens, k) = (self.pes as u64, self.tokens as u64, self.top_k as u64);
        let ne = experts_per_pe(self.experts, self.pes);
        let row_bytes = self.hidden as u64 * self.dtype.size() as u64;
        let rows_sent = tokens.saturating_mul(k);
        let all = u128::from(pes) * u128::from(rows_sent) * ne as u128;
        let rows_even = u64::try_from(all.div_ceil(self.experts as u128)).unwrap_or(u64::MAX);
        let rows_worst = pes.saturating_mul(tokens).saturating_mul(k.min(ne as u64));
        let rows = match room {
            Room::Worst => rows_worst,
            // The cast saturates.
            Room::Even(factor) => ((rows_even as f64 * factor).ceil() as u64).min(rows_worst),
        };
        let capacity = out_rows_bound(rows, ne as u64, self.align as u64);
        let splits = self.pes * ne;
        let own = default_max_splits(self.pes);
        let pad = PadLayout::new(self.pes, config.signal_pad_bytes, config.signals);
        let of_rows = |name, kind, rows: u64| Allocation {
            name,
            kind,
            rows: Some(rows),
            bytes: rows.saturating_mul(row_bytes),
        };
        let pushed = if config.backend == "host" { 0 } else { config.all_reduce_push };
        let pushed = ContextRoom::for_sums(pushed, config.all_reduce_push_pair, self.pes);
        let context = |layout: ContextLayout| layout.with_room(pushed).bytes;
        let other = |name, kind, bytes: usize| Allocation { name, kind, rows: None, bytes: bytes as u64 };
        let mut allocations = vec![
            of_rows("dispatch input", Kind::Local, rows_sent),
            of_rows("dispatch output", Kind::Symmetric, capacity),
            of_rows("combine output", Kind::Symmetric, rows_sent),
            other("splits to send", Kind::Local, 8 * splits),
            other("splits and offsets received by the dispatch", Kind::Local, 16 * splits),
            other("splits and offsets received by the combine", Kind::Local, 16 * splits),
            other("team's context", Kind::Internal, context(ContextLayout::for_team(self.pes))),
            other("pad of the dispatch's handle", Kind::Internal, pad.bytes),
            other("pad of the combine's handle", Kind::Internal, pad.bytes),
        ];
        if splits > own {
            let bytes = context(ContextLayout::new(self.pes, splits));
            allocations.push(other("context for so many splits", Kind::Internal, bytes));
        }
        let segments = [
            (Kind::Symmetric, config.pool_bytes),
            (Kind::Local, config.pool_bytes),
            (Kind::Internal, INTERNAL_SEGMENT),
        ]
        .map(|(kind, segment)| {
            let of_kind = allocations.iter().filter(|a| a.kind == kind);
            let bytes = of_kind.map(|a| usize::try_from(a.bytes).unwrap_or(usize::MAX));
            let rounded = |s: usize| (s as u64).checked_next_multiple_of(granularity).unwrap_or(u64::MAX);
            pool::segments(segment, bytes).into_iter().map(rounded).fold(0, u64::saturating_add)
        });
        Ok(Footprint {
            experts_per_pe: ne,
            splits,
            max_splits: own.max(splits),
            channels: pad.channels,
            row_bytes,
            rows_sent,
            rows_even,
            rows_worst,
            allocations,
            segments,
        })
    }

    /// The most tokens a PE for which [`footprint`](Self::footprint) stays within `bytes` a PE, everything else as here;
    /// `None` if not even one does.
    ///
    /// # Errors
    /// As there.
    pub fn max_tokens(
        &self,
        config: &Config,
        room: Room,
        granularity: u64,
        bytes: u64,
    ) -> Result<Option<usize>> {
        let fits = |tokens: usize| {
            let layer = Layer { tokens, ..*self };
            layer.counted(config, room, granularity).map(|f| f.bytes() <= bytes)
        };
        if !fits(1)? {
            return Ok(None);
        }
        // Bytes never fall when tokens are added, so halving finds the border: `low` fits, `high` does not.
        let (mut low, mut high) = (1, MAX_TOKENS + 1);
        while high - low > 1 {
            let middle = low + (high - low) / 2;
            if fits(middle)? { low = middle } else { high = middle }
        }
        Ok(Some(low))
    }

    fn check(&self, room: Room, granularity: u64) -> Result<()> {
        for (argument, got, most) in [
            ("pes", self.pes, 1 << 20),
            ("tokens", self.tokens, MAX_TOKENS),
            ("hidden", self.hidden, 1 << 40),
            ("experts", self.experts, MAX_EXPERTS),
            ("top_k", self.top_k, self.experts),
            ("align", self.align, i32::MAX as usize),
        ] {
            if got == 0 || got > most {
                return Err(Error::argument(OP, argument, got, format!("a number from 1 to {most}")));
            }
        }
        if let Room::Even(factor) = room
            && !(factor.is_finite() && factor > 0.0)
        {
            return Err(Error::argument(OP, "room", factor, "a factor above 0"));
        }
        if granularity == 0 {
            return Err(Error::argument(OP, "granularity", granularity, "1 or more"));
        }
        Ok(())
    }
}

const OP: &str = "footprint";
/// Far above what a PE can hold, and far below where a count of rows could not be written down.
const MAX_TOKENS: usize = 1 << 40;
/// More has no address.
const MAX_BYTES: u64 = i64::MAX as u64;

impl Footprint {
    /// Bytes of all segments of a PE.
    pub fn bytes(&self) -> u64 {
        self.segments.iter().copied().fold(0, u64::saturating_add)
    }

    /// Rows of the dispatch output, padding included.
    pub fn capacity(&self) -> u64 {
        let output = self.allocations.iter().find(|a| a.name == "dispatch output");
        output.and_then(|a| a.rows).unwrap_or(0)
    }
}
