//! One PE of a bench, from meeting the others to the end.

use std::process::ExitCode;

use symm::bootstrap::Group;
use symm::{Backend, Builder, Config, DType, Pe, Reach, World};
use symm_core::Deadline;

use super::args::{Args, Request};
use super::buffers::{Buffers, Limits};
use super::data::Value;
use super::measure::{Way, measure};
use super::op::Op;
use super::report::Setup;
use super::say::{Output, Said};
use crate::cli::args::human;
use crate::cli::error::{Class, Failure};
use crate::cli::machine::cpu;
use crate::cli::meet::{agree, meet};
use crate::cli::memory;

pub(super) const DEFAULT_PES: usize = 2;
/// Largest size that is taken unasked, if it fits.
const DEFAULT_MAX: usize = 64 << 20;
/// Of the memory that is available, a bench takes one part in so many unasked.
const SHARE: u64 = 2;
/// Id of the group over which PEs compare notes.
const GROUP: u64 = u64::from_le_bytes(*b"symmbnch");
/// Test hook: the PE with this number makes a value wrong before each check, so that tests can see it found.
const CORRUPT: &str = "SYMM_BENCH_CORRUPT";

/// Runs this process as the PE that `config`, or what started it, says it is.
pub(super) fn run(args: &Args, config: &Config, output: &mut dyn Output) -> ExitCode {
    let mut config = config.clone();
    let group = match meet(&mut config, GROUP) {
        Ok(group) => group,
        Err(e) => return output.end(config.pe.unwrap_or(0), Err(e.into())),
    };
    let (pe, config) = (group.bootstrap().pe().0, &config);
    let deadline = || Deadline::after(config.init_timeout);
    let prepared = args.request().and_then(|request| {
        let n = group.bootstrap().n_pes();
        if let Some(pes) = request.pes.filter(|pes| *pes != n) {
            let expected = format!("absent or {n}, the number of PEs that the launcher started");
            return Err(Failure::argument("pes", pes, expected));
        }
        // Of PEs that `symm bench` itself started it is their number.
        if let Some(each) = request.each.filter(|each| *each != 1 && *each != n) {
            return Err(Failure::argument("ngpus", each, "1: each process of the launcher's is one PE"));
        }
        let sizes = prepare(&request, config, n)?;
        Ok((request, sizes))
    });
    let result = agree(&group, prepared, deadline()).and_then(|(request, sizes)| {
        let world = Builder::from_config(config.clone()).init_over(group.bootstrap().clone())?;
        let wrong = match request.dtype {
            DType::F32 => rows::<f32>(&world, &group, &request, &sizes, output),
            DType::F64 => rows::<f64>(&world, &group, &request, &sizes, output),
            DType::F16 => rows::<half::f16>(&world, &group, &request, &sizes, output),
            DType::BF16 => rows::<half::bf16>(&world, &group, &request, &sizes, output),
            DType::I8 => rows::<i8>(&world, &group, &request, &sizes, output),
            DType::I16 => rows::<i16>(&world, &group, &request, &sizes, output),
            DType::I32 => rows::<i32>(&world, &group, &request, &sizes, output),
            DType::I64 => rows::<i64>(&world, &group, &request, &sizes, output),
            DType::U16 => rows::<u16>(&world, &group, &request, &sizes, output),
            DType::U32 => rows::<u32>(&world, &group, &request, &sizes, output),
            DType::U64 => rows::<u64>(&world, &group, &request, &sizes, output),
            // What else the request may name is bytes.
            _ => rows::<u8>(&world, &group, &request, &sizes, output),
        }?;
        Ok((wrong, world))
    });
    let (result, world) = match result {
        Ok((wrong, world)) => (Ok(wrong), Some(world)),
        Err(f) => (Err(f), None),
    };
    let bad_input = matches!(&result, Err(f) if f.class == Class::Input);
    let code = output.end(pe, result);
    // The result stands; that a peer is gone by now changes nothing.
    let left = match &world {
        Some(world) => world.finalize(),
        None if bad_input => group.barrier("leave", deadline()),
        None => Ok(()),
    };
    if let Err(e) = left {
        log::debug!("PE {pe}: leaving: {e}");
    }
    group.bootstrap().close();
    code
}

/// The sizes, once it is known that they fit.
pub(super) fn prepare(request: &Request, config: &Config, pes: usize) -> Result<Vec<usize>, Failure> {
    config.check()?;
    if request.root >= pes {
        return Err(Failure::argument(
            "root",
            request.root,
            format!("a rank below {pes}, the number of PEs"),
        ));
    }
    corrupt()?;
    // On GPUs their own memory counts, and says so itself.
    let on_host = memory::on_host(config);
    memory::check_pes(config, pes, on_host)?;
    let available = if on_host { memory::available().unwrap_or(u64::MAX) } else { u64::MAX };
    let needed = |bytes: usize| {
        let limits = Limits { bytes, ..limits(request, bytes) };
        Buffers::<f32>::bytes(request.op.forms(), &limits, pes).saturating_mul(pes as u64)
    };
    let refuse = |name: &str, bytes: usize| {
        let needed = human(needed(bytes));
        let mut f = Failure::new(
            Class::Input,
            "Memory",
            format!(
                "--{name} {bytes} on {pes} PEs needs {needed}, this machine has {} available",
                human(available)
            ),
        );
        f.error.field = Some(name.to_owned());
        f
    };
    if needed(request.min) > available {
        return Err(refuse("minbytes", request.min));
    }
    let max = match request.max {
        Some(max) if needed(max) > available => return Err(refuse("maxbytes", max)),
        Some(max) => max,
        None => {
            let mut max = DEFAULT_MAX;
            while max > request.min && needed(max) > available / SHARE {
                max /= 2;
            }
            max.max(request.min)
        }
    };
    Ok(request.sizes(max))
}

fn limits(request: &Request, bytes: usize) -> Limits {
    Limits {
        bytes,
        row: request.row.min(bytes.max(request.dtype.size())),
        experts: if has_experts(request.op) { request.experts } else { 1 },
        root: request.root,
        max_blocks: request.max_blocks,
    }
}

fn has_experts(op: Op) -> bool {
    op.has_splits() && op != Op::Vdev
}

fn corrupt() -> Result<Option<u32>, Failure> {
    let Ok(text) = std::env::var(CORRUPT) else { return Ok(None) };
    let wrong = || Failure::new(Class::Input, "Setting", format!("{CORRUPT} is {text:?}, expected a PE"));
    text.parse().map(Some).map_err(|_| wrong())
}

fn rows<T: Value>(
    world: &World,
    group: &Group,
    request: &Request,
    sizes: &[usize],
    output: &mut dyn Output,
) -> Result<u64, Failure> {
    let largest = sizes.iter().copied().max().unwrap_or(0);
    let limits = limits(request, largest);
    let first = world.pe() == Pe(0);
    if first {
        output.say(Said::Setup(setup(world, request, &limits)));
    }
    let buffers = Buffers::<T>::new(world, request.op.forms(), limits)?;
    let way = Way {
        iterations: request.iterations,
        warm_up: request.warm_up,
        graph: request.graph,
        check: request.check,
        corrupt: corrupt()? == Some(world.pe().0),
    };
    let mut wrong = 0;
    for size in sizes {
        for op in request.op.forms() {
            let mut plan = buffers.plan_buffers(*op)?;
            let row = measure(world, group, &buffers.case(*op, *size, plan.as_mut())?, &way)?;
            wrong += row.wrong.unwrap_or(0);
            if first {
                output.say(Said::Row(row));
            }
        }
    }
    Ok(wrong)
}

fn setup(world: &World, request: &Request, limits: &Limits) -> Setup {
    let peers = (0..world.n_pes()).map(Pe::from).filter(|pe| *pe != world.pe());
    let reached: Vec<Reach> = peers.map(|pe| world.reach(pe)).collect();
    let reach = match (reached.contains(&Reach::Direct), reached.contains(&Reach::Network)) {
        (true, true) => "direct+network",
        (false, true) => "network",
        // A PE alone reaches itself directly.
        (_, false) => "direct",
    };
    Setup {
        op: request.op.forms().iter().map(|op| op.name()).collect::<Vec<_>>().join(" and "),
        backend: world.backend().name().to_owned(),
        why: world.backend().why().to_owned(),
        reach: reach.to_owned(),
        pes: world.n_pes(),
        dtype: request.dtype.name().to_owned(),
        redop: "sum".to_owned(),
        root: request.root,
        graph: request.graph,
        row: (request.op.has_splits() || request.op.has_blocks()).then_some(limits.row),
        experts: has_experts(request.op).then_some(limits.experts),
        cpu: cpu(),
        cores: std::thread::available_parallelism().map_or(0, usize::from),
    }
}
