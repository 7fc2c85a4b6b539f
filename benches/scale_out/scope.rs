//! Puts and gets by one thread, one warp, one block of a user's own kernel (`scope.cu`), each to or from the next PE's memory, one after
//! another, each delivered before the next begins. The operations of the library are launches of many blocks; this is what a kernel that
//! communicates by itself gets.

use std::time::{Duration, Instant};

#[cfg(feature = "cuda")]
use symm::{Backend, DType};
use symm::{Handle, Local, Options, Result, Stream, World};

/// Which file has the kernels; without it these rows are left out.
#[cfg(feature = "cuda")]
const IMAGE: &str = "SCALE_OUT_SCOPES";

/// Who moves the bytes.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Scope {
    Thread,
    Warp,
    Block,
}

/// Which way.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Way {
    Put,
    Get,
}

impl Scope {
    pub(crate) fn name(self, way: Way) -> &'static str {
        match (way, self) {
            (Way::Put, Scope::Thread) => "put_by_a_thread",
            (Way::Put, Scope::Warp) => "put_by_a_warp",
            (Way::Put, Scope::Block) => "put_by_a_block",
            (Way::Get, Scope::Thread) => "get_by_a_thread",
            (Way::Get, Scope::Warp) => "get_by_a_warp",
            (Way::Get, Scope::Block) => "get_by_a_block",
        }
    }

    #[cfg(feature = "cuda")]
    fn threads(self) -> u32 {
        match self {
            Scope::Thread => 1,
            Scope::Warp => 32,
            Scope::Block => 512,
        }
    }

    pub(crate) fn sizes(self) -> Vec<usize> {
        match self {
            Scope::Thread => vec![8, 4 << 10],
            Scope::Warp | Scope::Block => vec![8, 4 << 10, 64 << 10, BYTES],
        }
    }
}

/// The most that is moved at once.
const BYTES: usize = 1 << 20;
const WORDS: usize = BYTES / 4;

fn pattern(rank: usize) -> Vec<u32> {
    (0..WORDS).map(|i| (i as u32).wrapping_mul(0x9E37_79B1) ^ (rank as u32 + 1)).collect()
}

pub(crate) struct Scopes {
    world: World,
    stream: Stream,
    handle: Handle,
    mine: Local,
    #[cfg(feature = "cuda")]
    kernels: [crate::kernels::Kernel; 2],
}

impl Scopes {
    /// `None` without kernels, or where the backend launches none.
    ///
    /// # Collective
    /// Over the world.
    #[cfg(feature = "cuda")]
    pub(crate) fn new(world: &World) -> Result<Option<Self>> {
        let Some(image) = std::env::var(IMAGE).ok().filter(|file| !file.is_empty()) else { return Ok(None) };
        if world.backend().name() == "host" {
            return Ok(None);
        }
        let load = |name| crate::kernels::Kernel::load(&image, name).map_err(failed);
        let team = world.team();
        Ok(Some(Scopes {
            kernels: [load(c"scoped_puts")?, load(c"scoped_gets")?],
            handle: team.empty(&[WORDS], DType::U32)?.rendezvous(team)?,
            mine: world.local(DType::U32, WORDS)?,
            stream: world.stream()?,
            world: world.clone(),
        }))
    }

    #[cfg(not(feature = "cuda"))]
    pub(crate) fn new(_world: &World) -> Result<Option<Self>> {
        Ok(None)
    }

    fn meet(&self) -> Result<()> {
        self.world.team().barrier(&self.stream, Options::default())?;
        self.stream.synchronize()
    }

    /// Fresh buffers: what is moved is this PE's pattern, where it goes is zero.
    ///
    /// # Collective
    /// Over the world.
    pub(crate) fn reset(&self, way: Way) -> Result<()> {
        let (from, to) = match way {
            Way::Put => (self.mine.span(), self.handle.span()),
            Way::Get => (self.handle.span(), self.mine.span()),
        };
        self.stream.write(&from, &pattern(self.handle.rank()))?;
        self.stream.fill(&to, 0)?;
        self.meet()
    }

    /// So many calls, in one launch; the time of this PE.
    ///
    /// # Collective
    /// Over the world.
    pub(crate) fn run(&self, scope: Scope, way: Way, bytes: usize, calls: u64) -> Result<Duration> {
        let began = Instant::now();
        self.launch(scope, way, bytes, calls)?;
        self.stream.synchronize()?;
        Ok(began.elapsed())
    }

    #[cfg(feature = "cuda")]
    fn launch(&self, scope: Scope, way: Way, bytes: usize, calls: u64) -> Result<()> {
        let (h, mine) = (&self.handle, self.mine.span().addr().0);
        let peer = (h.rank() + 1) % h.world_size();
        let mut values = [peer as u64, mine, bytes as u64, calls];
        let kernel = &self.kernels[usize::from(way == Way::Get)];
        // SAFETY: a handle and four 8-byte parameters, as the kernels have; both live as long as this, which waits for the launch.
        unsafe { kernel.launch_on(h, &self.stream, (1, scope.threads()), &mut values) }.map_err(failed)
    }

    #[cfg(not(feature = "cuda"))]
    fn launch(&self, _: Scope, _: Way, _: usize, _: u64) -> Result<()> {
        Ok(())
    }

    /// How many words came wrong.
    ///
    /// # Collective
    /// Over the world, after all have run.
    pub(crate) fn wrong(&self, way: Way, bytes: usize) -> Result<usize> {
        let (me, n) = (self.handle.rank(), self.handle.world_size());
        let (to, writer) = match way {
            Way::Put => (self.handle.span(), (me + n - 1) % n),
            Way::Get => (self.mine.span(), (me + 1) % n),
        };
        let got: Vec<u32> = self.stream.read(&to)?;
        self.stream.synchronize()?;
        let moved = bytes / 4;
        let expected = pattern(writer).into_iter().take(moved).chain(std::iter::repeat(0));
        let wrong = got.iter().zip(expected).filter(|(got, expected)| *got != expected).count();
        self.meet()?;
        Ok(wrong)
    }
}

#[cfg(feature = "cuda")]
fn failed(e: impl std::fmt::Display) -> symm::Error {
    symm::Error::Bootstrap { call: "bench kernel", why: e.to_string() }
}
