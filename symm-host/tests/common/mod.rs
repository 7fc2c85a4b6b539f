//! A world of PEs that are threads, with handles and contexts made the way the model makes them.
#![allow(dead_code, reason = "each test file uses its part")]

use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::Duration;

use symm_core::backend::{Addr, ContextParts, Exchange, ExchangeOutput, Export, Form, HandleParts, Region};
use symm_core::bootstrap::{Bootstrap, Group, local};
use symm_core::layout::{ContextLayout, PadLayout};
use symm_core::{Backend, Config, DType, Deadline, Error, Fault, Pe};
use symm_host::{Host, RawContext, RawHandle, Segment, Status, Stream};

pub(crate) const LIMIT: Duration = Duration::from_secs(20);
pub(crate) const SOON: Duration = Duration::from_millis(80);

pub(crate) fn config(nodes: u32) -> Config {
    let mut c = Config::default();
    c.host_nodes = nodes;
    c.host_seed = 7;
    c
}

/// Runs `body` on `n` threads, one a PE; a panic of one is the test's.
pub(crate) fn world(n: usize, config: &Config, body: impl Fn(&One) + Sync) {
    let boots = local(n);
    std::thread::scope(|scope| {
        let threads: Vec<_> = boots
            .into_iter()
            .enumerate()
            .map(|(pe, boot)| {
                let body = &body;
                scope.spawn(move || {
                    let host = Arc::new(Host::init(&boot, config).expect("init"));
                    let members = (0..n).map(Pe::from).collect();
                    let group = Group::new(Arc::clone(&boot), 1, members).expect("group");
                    let one = One { host, boot, group, pe, n };
                    body(&one);
                    one.meet();
                    one.host.finalize().expect("finalize");
                    one.boot.close();
                })
            })
            .collect();
        let panics: Vec<_> = threads.into_iter().filter_map(|t| t.join().err()).collect();
        if let Some(panic) = panics.into_iter().next() {
            std::panic::resume_unwind(panic);
        }
    });
}

/// Runs `body` at one node and with every PE on a node of its own.
pub(crate) fn both(n: usize, body: impl Fn(&One) + Sync) {
    for nodes in [1, n as u32] {
        world(n, &config(nodes), &body);
    }
}

pub(crate) struct One {
    pub(crate) host: Arc<Host>,
    pub(crate) boot: Arc<dyn Bootstrap>,
    pub(crate) group: Group,
    pub(crate) pe: usize,
    pub(crate) n: usize,
}

pub(crate) struct Buffer {
    pub(crate) raw: RawHandle,
    pub(crate) segment: Segment,
    pub(crate) status: Status,
    pub(crate) bytes: usize,
}

impl One {
    pub(crate) fn meet(&self) {
        self.group.barrier("test", Deadline::after(LIMIT)).expect("meet");
    }

    pub(crate) fn stream(&self) -> Stream {
        self.host.stream().expect("stream")
    }

    pub(crate) fn sync(&self, stream: &Stream) {
        self.host.synchronize(stream).expect("synchronize");
    }

    pub(crate) fn next(&self) -> usize {
        (self.pe + 1) % self.n
    }

    pub(crate) fn prev(&self) -> usize {
        (self.pe + self.n - 1) % self.n
    }

    /// Exports a segment to everybody and imports everybody's.
    fn regions(&self, segment: &Segment) -> Vec<Region<Host>> {
        let tag = self.group.next_tag();
        let export = self.host.export(segment).expect("export");
        let fds: Vec<_> = export.fds.iter().map(AsFd::as_fd).collect();
        for pe in (0..self.n).filter(|p| *p != self.pe) {
            self.boot.send(Pe::from(pe), tag, &export.bytes, &fds).expect("send");
        }
        (0..self.n)
            .map(|pe| {
                let mapping = if pe == self.pe {
                    self.host.own(segment)
                } else {
                    let m = self.boot.recv(Pe::from(pe), tag, Deadline::after(LIMIT)).expect("recv");
                    self.host.import(Pe::from(pe), &Export { bytes: m.payload, fds: m.fds }).expect("import")
                };
                Region { pe: Pe::from(pe), mapping, offset: 0 }
            })
            .collect()
    }

    pub(crate) fn status(&self) -> Status {
        self.host.status().expect("status")
    }

    /// A handle over the world with its own status.
    pub(crate) fn buffer(&self, bytes: usize) -> Buffer {
        self.buffer_of(bytes, &self.status())
    }

    pub(crate) fn buffer_of(&self, bytes: usize, status: &Status) -> Buffer {
        let pad = PadLayout::new(self.n, 4096, 16);
        let segment = self.host.allocate(bytes).expect("allocate");
        let pads = self.host.allocate(pad.bytes).expect("allocate");
        let parts = HandleParts {
            my_rank: self.pe,
            members: (0..self.n).map(Pe::from).collect(),
            data: self.regions(&segment),
            data_bytes: bytes,
            pads: self.regions(&pads),
            pad,
            status: status.clone(),
        };
        let raw = self.host.bind_handle(parts).expect("bind_handle");
        self.meet();
        Buffer { raw, segment, status: status.clone(), bytes }
    }

    pub(crate) fn context(&self, status: &Status, max_splits: usize) -> RawContext {
        self.context_and_copies(status, max_splits).0
    }

    /// A context, with its layout and every PE's copy of it by load and store.
    pub(crate) fn context_and_copies(
        &self,
        status: &Status,
        max_splits: usize,
    ) -> (RawContext, ContextLayout, Vec<Region<Host>>) {
        let layout = ContextLayout::new(self.n, max_splits);
        let segment = self.host.allocate(layout.bytes).expect("allocate");
        let regions = self.regions(&segment);
        let parts = ContextParts {
            my_rank: self.pe,
            members: (0..self.n).map(Pe::from).collect(),
            regions: regions.clone(),
            layout,
            status: status.clone(),
        };
        let raw = self.host.bind_context(parts).expect("bind_context");
        self.meet();
        (raw, layout, regions)
    }

    pub(crate) fn error(&self, status: &Status) -> Option<Error> {
        let members: Vec<_> = (0..self.n).map(Pe::from).collect();
        status.as_ref().failure().map(|f| f.to_error("host", &members))
    }

    pub(crate) fn ok(&self, status: &Status) {
        assert_eq!(self.error(status), None, "PE {}", self.pe);
    }
}

impl Buffer {
    pub(crate) fn addr(&self, host: &Host, offset: usize) -> Addr {
        host.base(&self.segment).offset(offset)
    }

    pub(crate) fn read<T: bytemuck::Pod>(&self, host: &Host, offset: usize, n: usize) -> Vec<T> {
        let from = self.addr(host, offset).as_ptr::<T>();
        assert!(offset + n * size_of::<T>() <= self.bytes);
        // SAFETY: inside the segment; the test reads when nobody writes.
        (0..n).map(|i| unsafe { from.add(i).read_volatile() }).collect()
    }

    pub(crate) fn write<T: bytemuck::Pod>(&self, host: &Host, offset: usize, values: &[T]) {
        assert!(offset + size_of_val(values) <= self.bytes);
        let to = self.addr(host, offset).as_ptr::<T>();
        // SAFETY: inside the segment; the test writes when nobody reads.
        unsafe { std::ptr::copy_nonoverlapping(values.as_ptr(), to, values.len()) };
    }
}

/// Arguments of one collective of i32 rows of `cols` elements.
pub(crate) struct Call<'a> {
    pub(crate) form: Form,
    pub(crate) cols: usize,
    pub(crate) ne: usize,
    pub(crate) align: usize,
    pub(crate) input: &'a [i32],
    pub(crate) output: Option<(&'a Buffer, usize)>,
    pub(crate) splits: &'a [i64],
    pub(crate) result: &'a mut [i64],
    pub(crate) invalid: bool,
    pub(crate) limit: Duration,
}

impl Call<'_> {
    pub(crate) fn barrier() -> Call<'static> {
        Call {
            form: Form::Barrier,
            cols: 0,
            ne: 1,
            align: 1,
            input: &[],
            output: None,
            splits: &[],
            result: &mut [],
            invalid: false,
            limit: LIMIT,
        }
    }

    pub(crate) fn run(&mut self, one: &One, stream: &Stream, context: &RawContext) {
        let address = |empty: bool, a: Addr| if empty { Addr::NULL } else { a };
        let exchange = Exchange {
            takes: &[],
            average: false,
            scratch: Addr::NULL,
            moves: &[],
            moves_table: Addr::NULL,
            form: self.form,
            dtype: DType::I32,
            row_bytes: 4 * self.cols,
            ne: self.ne,
            major_align: self.align,
            input: Addr::of(self.input.as_ptr()),
            in_rows: self.input.len().checked_div(self.cols).unwrap_or(0),
            output: self.output.map(|(b, rows)| ExchangeOutput { handle: &b.raw, id: 5, offset: 0, rows }),
            in_splits: address(self.splits.is_empty(), Addr::of(self.splits.as_ptr())),
            out_splits_offsets: address(self.result.is_empty(), Addr::of(self.result.as_mut_ptr())),
            result: Addr::NULL,
            root: 0,
            lead: 0,
            invalid: self.invalid,
            refused: Fault::REFUSED,
            max_blocks: 0,
            limit: self.limit,
        };
        // SAFETY: the slices outlive the synchronisation that every test does before it drops them.
        unsafe { one.host.exchange(stream, context, &exchange) }.expect("exchange");
    }
}

/// A small generator, so that tests repeat.
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % n.max(1)
    }
}
