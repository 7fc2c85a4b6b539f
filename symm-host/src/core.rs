//! What the streams, handles and contexts of one PE share.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use symm_core::backend::Reach;
use symm_core::model::WaitBook;
use symm_core::{Config, Pe, Result};

use crate::context::ContextInner;
use crate::proxy::{Lane, Proxy};
use crate::segment::{Map, Owned, Segment};
use crate::stream::{Inner, Stream, Worker};
use crate::wait::{Doorbell, Patience};

/// One PE's side of the backend.
#[derive(Debug)]
pub(crate) struct Core {
    pe: Pe,
    reach: Vec<Reach>,
    bells: Vec<Doorbell>,
    patience: Patience,
    worker: Worker,
    proxy: Option<Proxy>,
    next_lane: AtomicU64,
    streams: Mutex<Vec<Weak<Inner>>>,
    contexts: Mutex<Vec<Weak<ContextInner>>>,
    segments: Mutex<Vec<Weak<Owned>>>,
    waits: WaitBook,
    /// Whether contexts have the planned form.
    plans: bool,
}

/// The made-up node of a PE.
fn node(pe: usize, n: usize, nodes: u32) -> u128 {
    pe as u128 * u128::from(nodes) / n as u128
}

impl Core {
    /// `controls` are the mapped control segments in PE order.
    pub(crate) fn new(pe: Pe, controls: Vec<Arc<Map>>, config: &Config) -> Result<Self> {
        let n = controls.len();
        let mine = node(pe.index(), n, config.host_nodes);
        let reach: Vec<Reach> = (0..n)
            .map(|p| if node(p, n, config.host_nodes) == mine { Reach::Direct } else { Reach::Network })
            .collect();
        let bells: Vec<Doorbell> = controls.into_iter().map(Doorbell::of).collect();
        let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        let proxy =
            reach.contains(&Reach::Network).then(|| Proxy::start(pe, bells.clone(), config)).transpose()?;
        Ok(Core {
            pe,
            reach,
            patience: Patience::new(n, cores),
            worker: Worker::new(bells[pe.index()].clone()),
            bells,
            proxy,
            next_lane: AtomicU64::new(0),
            streams: Mutex::default(),
            contexts: Mutex::default(),
            segments: Mutex::default(),
            waits: WaitBook::new(n),
            plans: config.host_plans,
        })
    }

    pub(crate) fn reach(&self, pe: Pe) -> Reach {
        // A number outside the world is nobody's memory.
        self.reach.get(pe.index()).copied().unwrap_or(Reach::Network)
    }

    /// How all peers but this PE are reached.
    pub(crate) fn peers(&self) -> impl Iterator<Item = Reach> + '_ {
        self.reach.iter().enumerate().filter(|(p, _)| *p != self.pe.index()).map(|(_, r)| *r)
    }

    /// Waits by the PE that was waited for.
    pub(crate) fn waits(&self) -> &WaitBook {
        &self.waits
    }

    pub(crate) fn has_plans(&self) -> bool {
        self.plans
    }

    /// This PE's own doorbell.
    pub(crate) fn doorbell(&self) -> &Doorbell {
        &self.bells[self.pe.index()]
    }

    /// Rings a PE's doorbell after a flag was written there.
    pub(crate) fn ring(&self, pe: Pe) {
        if let Some(bell) = self.bells.get(pe.index()) {
            bell.ring();
        }
    }

    /// Rings everybody whose memory this PE may have written without the library knowing whose.
    pub(crate) fn ring_direct(&self) {
        for (bell, _) in self.bells.iter().zip(&self.reach).filter(|(_, reach)| **reach == Reach::Direct) {
            bell.ring();
        }
    }

    pub(crate) fn patience(&self) -> Patience {
        self.patience
    }

    pub(crate) fn worker(&self) -> &Worker {
        &self.worker
    }

    /// The proxy; there is one exactly if some peer is reached by the network.
    pub(crate) fn proxy(&self) -> Option<&Proxy> {
        self.proxy.as_ref()
    }

    /// A new sequence of messages as the proxy orders them. Numbered in the order of calls, so that equal call
    /// sequences get equal delays.
    pub(crate) fn lane(&self) -> Arc<Lane> {
        Arc::new(Lane::new(self.next_lane.fetch_add(1, Ordering::Relaxed)))
    }

    /// Registers a new stream.
    pub(crate) fn stream(self: &Arc<Self>) -> Stream {
        let stream = Stream::new(Arc::clone(self), self.lane());
        register(&self.streams, &stream.0);
        stream
    }

    /// Streams that exist now.
    pub(crate) fn streams(&self) -> Vec<Stream> {
        live(&self.streams).into_iter().map(Stream).collect()
    }

    /// Registers a new context.
    pub(crate) fn add_context(&self, context: &Arc<ContextInner>) {
        register(&self.contexts, context);
    }

    /// Registers a new segment.
    pub(crate) fn add_segment(&self, segment: &Segment) {
        register(&self.segments, &segment.0);
    }

    /// Segments that exist now.
    pub(crate) fn segments(&self) -> Vec<Segment> {
        live(&self.segments).into_iter().map(Segment).collect()
    }

    /// Contexts that exist now.
    pub(crate) fn contexts(&self) -> Vec<Arc<ContextInner>> {
        live(&self.contexts)
    }
}

fn register<T>(list: &Mutex<Vec<Weak<T>>>, item: &Arc<T>) {
    let mut list = list.lock().unwrap_or_else(PoisonError::into_inner);
    list.retain(|w| w.strong_count() > 0);
    list.push(Arc::downgrade(item));
}

fn live<T>(list: &Mutex<Vec<Weak<T>>>) -> Vec<Arc<T>> {
    list.lock().unwrap_or_else(PoisonError::into_inner).iter().filter_map(Weak::upgrade).collect()
}

#[cfg(test)]
mod tests {
    use super::node;

    #[test]
    fn nodes_are_contiguous_and_even() {
        let nodes = |n: usize, k| (0..n).map(|p| node(p, n, k)).collect::<Vec<_>>();
        assert_eq!(nodes(4, 1), [0, 0, 0, 0]);
        assert_eq!(nodes(4, 2), [0, 0, 1, 1]);
        assert_eq!(nodes(5, 2), [0, 0, 0, 1, 1]);
        assert_eq!(nodes(3, 3), [0, 1, 2]);
        assert_eq!(nodes(2, 5), [0, 2]);
    }
}
