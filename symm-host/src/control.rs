//! The control segment of a PE: its doorbell and the test page, exchanged once at `init`.

use std::hash::{BuildHasher, Hasher};
use std::os::fd::AsFd;
use std::sync::Arc;

use symm_core::backend::Export;
use symm_core::bootstrap::{Bootstrap, Group, Tag};
use symm_core::{Deadline, Error, Pe, Result};

use crate::NAME;
use crate::segment::{Map, Mapping, Segment};

/// Offset of the doorbell's sequence.
pub(crate) const DOORBELL: usize = 0;
/// Offset of the count of waiters; a line of its own, so that writers who only look keep it in their cache.
pub(crate) const WAITERS: usize = 64;
/// Offset of the nonce, on the test page.
const NONCE: usize = 4096;
/// Bytes of the segment.
pub(crate) const BYTES: usize = 8192;

/// Team id of the exchange at `init`; the model's teams count from 0 and never reach it.
const TEAM: u64 = u64::MAX - u64::from_le_bytes(*b"host\0\0\0\0");

/// Maps every PE's control segment, its own included, in PE order.
///
/// # Errors
/// The same on all PEs: `Unsupported` naming the lowest PE that could not import another's test page, `Unavailable`
/// naming one that could not make its own. `Timeout` and `PeerFailed` name who did not come.
pub(crate) fn exchange(boot: &Arc<dyn Bootstrap>, deadline: Deadline) -> Result<Vec<Arc<Map>>> {
    let n = boot.n_pes();
    let me = boot.pe();
    let group = Group::new(Arc::clone(boot), TEAM, (0..n).map(Pe::from).collect())?;
    let tag = group.next_tag();
    let nonce = std::collections::hash_map::RandomState::new().build_hasher().finish();
    let own = make(nonce);
    let mut trouble = own.as_ref().err().map(|e| Trouble { with: me, why: e.to_string() });
    offer(boot, tag, own.as_ref().ok(), nonce)?;
    let mut maps = Vec::with_capacity(n);
    let mut late = Vec::new();
    for pe in (0..n).map(Pe::from) {
        if pe == me {
            maps.extend(own.as_ref().ok().map(|(segment, _)| segment.own().map));
            continue;
        }
        match boot.recv(pe, tag, deadline) {
            Ok(message) => match accept(boot, pe, message.payload, message.fds) {
                Ok(map) => maps.push(map),
                Err(why) => trouble = trouble.or(Some(Trouble { with: pe, why })),
            },
            Err(Error::Timeout { .. }) => late.push(pe),
            Err(e) => return Err(e),
        }
    }
    if !late.is_empty() {
        let (expected, got) = (n as u64, (n - late.len()) as u64);
        return Err(Error::Timeout {
            op: "init",
            phase: "exchange",
            late,
            expected,
            got,
            waited: deadline.waited(),
        });
    }
    agree(&group, trouble, deadline)?;
    Ok(maps)
}

/// What one PE could not do.
struct Trouble {
    /// Whose page it is about; the PE's own if it could not make one.
    with: Pe,
    why: String,
}

fn make(nonce: u64) -> Result<(Segment, Export)> {
    let segment = Segment::allocate(BYTES)?;
    // SAFETY: the segment is longer than this offset, aligned to a page, and no peer has it yet.
    unsafe { segment.base().as_ptr::<u8>().add(NONCE).cast::<u64>().write(nonce) };
    let export = segment.export()?;
    Ok((segment, export))
}

/// Sends every peer this PE's page; an empty message where there is none, or where a descriptor cannot go.
fn offer(boot: &Arc<dyn Bootstrap>, tag: Tag, own: Option<&(Segment, Export)>, nonce: u64) -> Result<()> {
    let (n, me) = (boot.n_pes(), boot.pe());
    for step in 1..n {
        let to = Pe::from((me.index() + step) % n);
        match own.filter(|_| boot.passes_fds(to)) {
            Some((_, export)) => {
                let mut payload = nonce.to_le_bytes().to_vec();
                payload.extend_from_slice(&export.bytes);
                let fds: Vec<_> = export.fds.iter().map(AsFd::as_fd).collect();
                boot.send(to, tag, &payload, &fds)?;
            }
            None => boot.send(to, tag, &[], &[])?,
        }
    }
    Ok(())
}

fn accept(
    boot: &Arc<dyn Bootstrap>,
    from: Pe,
    mut payload: Vec<u8>,
    fds: Vec<std::os::fd::OwnedFd>,
) -> Result<Arc<Map>, String> {
    if !boot.passes_fds(from) {
        return Err(
            "no descriptors can be passed between them (another host or network namespace)".to_owned()
        );
    }
    if payload.len() < 8 {
        return Err("it offered no page".to_owned());
    }
    let bytes = payload.split_off(8);
    let nonce = <[u8; 8]>::try_from(payload.as_slice()).map(u64::from_le_bytes).unwrap_or_default();
    let map = Mapping::import(from, &Export { bytes, fds }, true).map_err(|e| e.to_string())?.map;
    if map.bytes() < BYTES {
        return Err(format!("its page has {} bytes, expected {BYTES}", map.bytes()));
    }
    // SAFETY: the mapping is at least BYTES long and aligned; the owner wrote the nonce before it sent the descriptor.
    let found = unsafe { map.base().add(NONCE).cast::<u64>().read() };
    if found != nonce {
        return Err("the test page does not show what its owner wrote".to_owned());
    }
    Ok(map)
}

/// All-gathers who had trouble with whom; every PE returns the same error.
fn agree(group: &Group, trouble: Option<Trouble>, deadline: Deadline) -> Result<()> {
    let mine = trouble.map_or_else(Vec::new, |t| {
        let mut bytes = t.with.0.to_le_bytes().to_vec();
        bytes.extend_from_slice(t.why.as_bytes());
        bytes
    });
    let all = group.all_gather("init", &mine, deadline)?;
    let reports = all.iter().enumerate().filter_map(|(pe, report)| {
        let (with, why) = report.split_first_chunk::<4>()?;
        Some((pe, Pe(u32::from_le_bytes(*with)), String::from_utf8_lossy(why)))
    });
    let reports: Vec<_> = reports.collect();
    // A PE without a page of its own is the cause of what others report of it.
    if let Some((pe, _, why)) = reports.iter().find(|(pe, with, _)| with.index() == *pe) {
        return Err(Error::Unavailable {
            backend: NAME.to_owned(),
            why: format!("PE {pe} could not make its control page: {why}"),
        });
    }
    if let Some((pe, with, why)) = reports.first() {
        return Err(Error::Unsupported {
            backend: NAME,
            capability: "PEs that cannot map each other's memory",
            why: format!(
                "PE {pe} cannot import the test page of PE {with}: {why}; all PEs must be on one machine"
            ),
        });
    }
    Ok(())
}
