//! Memory with guards on both sides, poisoned before use.

use symm::{DType, Handle, Local, Result, Span, Stream, Team, Tensor, World};

use super::{Outcome, Stop};
use crate::pattern;

/// Elements of guard on each side; odd, so that small types begin at odd addresses.
const GUARD: usize = 67;

/// Fails, naming the first wrong byte, unless two byte strings are equal.
#[track_caller]
pub(crate) fn same(what: &str, got: &[u8], want: &[u8]) -> Outcome {
    if got.len() != want.len() {
        return Err(Stop::fail(format!("{what}: {} bytes, expected {}", got.len(), want.len())));
    }
    if got == want {
        return Ok(());
    }
    let Some(i) = (0..got.len()).find(|i| got[*i] != want[*i]) else { return Ok(()) };
    let n = (i..got.len()).filter(|i| got[*i] != want[*i]).count();
    let (g, w, len) = (got[i], want[i], got.len());
    Err(Stop::fail(format!(
        "{what}: first wrong byte {i} is {g:#04x}, expected {w:#04x}; {n} of {len} differ"
    )))
}

/// Elements of one type between two guards, all poisoned with a seed.
#[derive(Debug)]
pub(crate) struct Guarded {
    /// The elements.
    pub(crate) span: Span,
    /// Guards and elements as bytes.
    whole: Span,
    guard: usize,
    poison: Vec<u8>,
    _keep: Option<Local>,
}

/// `span` as another number of elements of another type from byte `offset` on.
fn reinterpret(span: &Span, offset: usize, dtype: DType, len: usize) -> Span {
    assert!(offset + len * dtype.size() <= span.bytes());
    // SAFETY: inside `span` (asserted). Its memory is freed only after its owner, kept beside the result, is dropped and
    // every stream of this PE has passed that point.
    unsafe { Span::from_raw(span.addr().offset(offset), dtype, len) }
}

impl Guarded {
    /// Memory of this PE that no peer reaches.
    pub(crate) fn local(world: &World, stream: &Stream, dtype: DType, len: usize, seed: u64) -> Result<Self> {
        let bytes = (len + 2 * GUARD) * dtype.size();
        let local = world.local(DType::U8, bytes)?;
        let whole = local.span();
        let span = reinterpret(&whole, GUARD * dtype.size(), dtype, len);
        Self::poisoned(stream, (world.pe().index(), seed), (whole, span), GUARD * dtype.size(), Some(local))
    }

    fn poisoned(
        stream: &Stream,
        (pe, seed): (usize, u64),
        (whole, span): (Span, Span),
        guard: usize,
        keep: Option<Local>,
    ) -> Result<Self> {
        let g = Guarded { poison: pattern::poison(seed, pe, whole.bytes()), span, whole, guard, _keep: keep };
        stream.write(&g.whole, &g.poison)?;
        Ok(g)
    }

    /// Bytes of the elements.
    pub(crate) fn bytes(&self) -> usize {
        self.span.bytes()
    }

    /// What the elements hold at first.
    pub(crate) fn poison(&self) -> &[u8] {
        &self.poison[self.guard..self.guard + self.bytes()]
    }

    /// What such memory of PE `pe`, made with `seed`, holds at first.
    pub(crate) fn poison_of(&self, seed: u64, pe: usize) -> Vec<u8> {
        let end = self.guard + self.bytes();
        pattern::poison(seed, pe, end).split_off(self.guard)
    }

    /// Writes the elements, in stream order.
    pub(crate) fn set(&self, stream: &Stream, bytes: &[u8]) -> Result<()> {
        stream.write(&reinterpret(&self.whole, self.guard, DType::U8, self.bytes()), bytes)
    }

    /// The elements, in stream order.
    pub(crate) fn get(&self, stream: &Stream) -> Result<Vec<u8>> {
        stream.read(&reinterpret(&self.whole, self.guard, DType::U8, self.bytes()))
    }

    /// i64 elements, in stream order.
    pub(crate) fn get_i64(&self, stream: &Stream) -> Result<Vec<i64>> {
        let bytes = self.get(stream)?;
        Ok(bytes.as_chunks::<8>().0.iter().map(|b| i64::from_le_bytes(*b)).collect())
    }

    /// Compares the elements, and both guards with their poison, in stream order.
    #[track_caller]
    pub(crate) fn check(&self, stream: &Stream, what: &str, want: &[u8]) -> Outcome {
        let all: Vec<u8> = stream.read(&self.whole)?;
        let end = self.guard + self.bytes();
        same(&format!("{what}: guard before"), &all[..self.guard], &self.poison[..self.guard])?;
        same(&format!("{what}: guard behind"), &all[end..], &self.poison[end..])?;
        same(what, &all[self.guard..end], want)
    }
}

/// Symmetric elements between guards that are part of the same allocation.
#[derive(Debug)]
pub(crate) struct Symmetric {
    /// View of the elements.
    pub(crate) tensor: Tensor,
    /// Of the view.
    pub(crate) handle: Handle,
    /// The memory here.
    pub(crate) mem: Guarded,
}

impl Symmetric {
    /// Allocates, poisons and rendezvouses over `team`.
    pub(crate) fn new(
        world: &World,
        stream: &Stream,
        team: &Team,
        dtype: DType,
        len: usize,
        seed: u64,
    ) -> Result<Self> {
        let whole = team.empty(&[len + 2 * GUARD], dtype)?;
        let tensor = whole.view(GUARD, &[len])?;
        let bytes = reinterpret(&whole.span(), 0, DType::U8, whole.span().bytes());
        let me = (world.pe().index(), seed);
        let mem = Guarded::poisoned(stream, me, (bytes, tensor.span()), GUARD * dtype.size(), None)?;
        // Nobody may write before everybody's poison is in place.
        stream.synchronize()?;
        let handle = tensor.rendezvous(team)?;
        Ok(Symmetric { tensor, handle, mem })
    }

    /// What PE `pe`'s elements hold at first.
    pub(crate) fn poison_of(&self, seed: u64, pe: usize) -> Vec<u8> {
        self.mem.poison_of(seed, pe)
    }
}
