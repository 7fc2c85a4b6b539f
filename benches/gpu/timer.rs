//! Times of calls that all PEs make together.

use anyhow::Result;
use symm::{AnyStream, DType, Graph, Handle, Local, Options, Stream, Tensor, World};
use symm_cuda::Event;

/// Repeats of a graph's replay, and of an eager call, that count.
const REPEATS: usize = 21;
/// Those before, which do not.
const WARM_UP: usize = 5;
/// What a GPU does before it meets the others, long enough for the host to enqueue all that follows: so many fills, in a graph, of
/// memory that leaves most of the GPU's cache to the calls.
const FILLS: usize = 24;
const FILLED: usize = 8 << 20;
/// Bytes of one fill that does as long and leaves them none of it.
const FILLED_COLD: usize = 256 << 20;

/// What a call takes.
#[derive(Clone, Copy)]
pub(crate) struct Times {
    pub(crate) graph_us: f64,
    pub(crate) eager_us: f64,
}

pub(crate) struct Timer<'a> {
    pub(crate) world: &'a World,
    pub(crate) stream: Stream,
    meeting: Handle,
    /// The memory that `busy` fills.
    _filled: Local,
    busy: Graph,
    values: (Tensor, Handle),
}

impl<'a> Timer<'a> {
    /// `cold`: calls begin with nothing of theirs in the GPU's cache.
    pub(crate) fn new(world: &'a World, cold: bool) -> Result<Self> {
        let team = world.team();
        let stream = world.stream()?;
        let (bytes, fills) = if cold { (FILLED_COLD, 1) } else { (FILLED, FILLS) };
        let filled = world.local(DType::U8, bytes)?;
        stream.begin_capture()?;
        let enqueued = (0..fills).try_for_each(|_| stream.fill(&filled.span(), 0));
        let busy = stream.end_capture();
        enqueued?;
        let values = team.empty(&[world.n_pes()], DType::F64)?;
        let handle = values.rendezvous(team)?;
        Ok(Timer {
            world,
            stream,
            meeting: team.empty(&[8], DType::U8)?.rendezvous(team)?,
            _filled: filled,
            busy: busy?,
            values: (values, handle),
        })
    }

    /// Meets the other PEs, with nothing left in the stream.
    pub(crate) fn meet(&self) -> Result<()> {
        self.world.team().barrier(&self.stream, Options::default())?;
        Ok(self.stream.synchronize()?)
    }

    /// The largest of everybody's value.
    pub(crate) fn maximum(&self, mine: f64) -> Result<f64> {
        let value = self.world.local(DType::F64, 1)?;
        self.stream.write(&value.span(), &[mine])?;
        self.world.team().all_gather(&self.stream, &value.span(), &self.values.1, Options::default())?;
        let all: Vec<f64> = self.stream.read(&self.values.0.span())?;
        // The next round's values must not arrive before everybody has read these.
        self.meet()?;
        Ok(all.into_iter().fold(f64::MIN, f64::max))
    }

    fn record(&self, event: &Event) -> Result<()> {
        let AnyStream::Cuda(raw) = self.stream.raw() else { anyhow::bail!("a stream of another backend") };
        Ok(event.record(raw)?)
    }

    /// Median over repeats of the µs between two events around `body`, the maximum over PEs; `before` is enqueued first.
    fn median(&self, before: impl Fn() -> Result<()>, body: impl Fn() -> Result<()>) -> Result<f64> {
        let (start, end) = (Event::timed()?, Event::timed()?);
        let mut all = Vec::new();
        for repeat in 0..WARM_UP + REPEATS {
            self.meet()?;
            before()?;
            self.record(&start)?;
            body()?;
            self.record(&end)?;
            self.stream.synchronize()?;
            let us = self.maximum(f64::from(end.milliseconds_since(&start)?) * 1e3)?;
            if repeat >= WARM_UP {
                all.push(us);
            }
        }
        all.sort_by(f64::total_cmp);
        Ok(all[all.len() / 2])
    }

    /// µs that one of `calls` calls in a graph takes. The GPUs meet right before the clock starts: meeting on the host is not
    /// enough, since one PE's launch comes some µs after the other's.
    pub(crate) fn graph(&self, calls: usize, body: impl Fn() -> Result<()>) -> Result<f64> {
        self.stream.begin_capture()?;
        let captured = (0..calls).try_for_each(|_| body());
        let graph = self.stream.end_capture();
        captured?;
        let graph = graph?;
        let before = || {
            // SAFETY: the graph fills memory that this keeps.
            unsafe { self.stream.launch(&self.busy)? };
            Ok(self.meeting.barrier(&self.stream, 0, None)?)
        };
        let replay = || {
            // SAFETY: callers keep what they captured until `median` returns, which synchronises; all PEs replay in the same
            // order.
            unsafe { self.stream.launch(&graph)? };
            Ok(())
        };
        let us = self.median(before, replay)?;
        Ok(us / calls as f64)
    }

    /// µs of one eager call.
    pub(crate) fn eager(&self, body: impl Fn() -> Result<()>) -> Result<f64> {
        self.median(|| Ok(()), body)
    }

    /// Both times of a call.
    pub(crate) fn both(&self, calls: usize, body: impl Fn() -> Result<()>) -> Result<Times> {
        let graph_us = self.graph(calls, &body)?;
        Ok(Times { graph_us, eager_us: self.eager(&body)? })
    }
}
