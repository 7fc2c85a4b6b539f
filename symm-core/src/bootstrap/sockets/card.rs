//! Where a PE can be reached.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::OnceLock;

use rustix::net::{SocketAddrAny, SocketAddrUnix};
use rustix::process::getuid;
use serde::{Deserialize, Serialize};

use crate::bootstrap::tree::Packed;
use crate::error::{Error, Result};
use crate::pe::Pe;

/// Most TCP addresses that a PE names.
const MAX_ADDRESSES: usize = 8;

/// What a PE tells the others of itself, so that they can connect to it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Card {
    /// Equal for PEs that can reach each other's abstract sockets: one boot of one machine, one network namespace.
    host: u64,
    uid: u32,
    /// Where it listens for PEs of other hosts; none if all are on one.
    tcp: Vec<SocketAddr>,
}

impl Card {
    /// This process's, listening at `port` of these addresses.
    pub(crate) fn here(addresses: &[IpAddr], port: u16) -> Self {
        let tcp = addresses.iter().take(MAX_ADDRESSES).map(|ip| SocketAddr::new(*ip, port)).collect();
        Card { host: host(), uid: getuid().as_raw(), tcp }
    }

    pub(crate) fn encode(&self) -> Vec<u8> {
        postcard::to_stdvec(self).expect("plain structs should encode")
    }

    pub(crate) fn decode(from: Pe, bytes: &[u8]) -> Result<Card> {
        postcard::from_bytes(bytes).map_err(|e| Error::Bootstrap {
            call: "addresses",
            why: format!("what PE {from} says of where it is does not decode: {e}"),
        })
    }

    /// Whether that PE's abstract sockets can be reached from here.
    pub(super) fn is_here(&self) -> bool {
        self.host == host()
    }
}

/// Tells hosts, and network namespaces of one host, apart.
fn host() -> u64 {
    static HOST: OnceLock<u64> = OnceLock::new();
    *HOST.get_or_init(|| {
        let boot = std::fs::read("/proc/sys/kernel/random/boot_id");
        let namespace = rustix::fs::stat("/proc/self/ns/net");
        match (boot, namespace) {
            (Ok(boot), Ok(namespace)) => {
                let words = [namespace.st_dev.to_le_bytes(), namespace.st_ino.to_le_bytes()];
                boot.iter()
                    .chain(words.iter().flatten())
                    .fold(0xcbf2_9ce4_8422_2325, |h, b| (h ^ u64::from(*b)).wrapping_mul(0x100_0000_01b3))
            }
            // Equal to nobody's, so that TCP is used.
            _ => super::secret::nonce().map_or(u64::from(std::process::id()), |n| {
                n.iter().take(8).fold(0, |h, b| h << 8 | u64::from(*b))
            }),
        }
    })
}

/// An address to connect to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Address {
    /// Name of an abstract socket.
    Unix(String),
    Tcp(SocketAddr),
}

impl Address {
    pub(super) fn sockaddr(&self) -> Result<SocketAddrAny> {
        match self {
            Address::Unix(name) => unix(name).map(Into::into),
            Address::Tcp(addr) => Ok((*addr).into()),
        }
    }
}

impl std::fmt::Display for Address {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Address::Unix(name) => write!(f, "@{name}"),
            Address::Tcp(addr) => write!(f, "{addr}"),
        }
    }
}

/// Name of the abstract socket at which a PE of this user listens.
pub(super) fn name(job: &str, pe: Pe) -> String {
    format!("symm-mem/{}/{job}/{pe}", getuid().as_raw())
}

pub(super) fn unix(name: &str) -> Result<SocketAddrUnix> {
    SocketAddrUnix::new_abstract_name(name.as_bytes()).map_err(|e| Error::system("sockaddr_un", e))
}

/// What is known of where the PEs are.
pub(super) enum Directory {
    /// All are on this host, so a PE's address follows from its number.
    OneHost,
    Cards(Cards),
}

/// Cards, as they become known: some before the world meets, then all.
pub(super) struct Cards {
    early: BTreeMap<Pe, Card>,
    all: OnceLock<Packed>,
    /// Abstract sockets are not used.
    pub(super) tcp_only: bool,
}

impl Cards {
    pub(super) fn new(early: BTreeMap<Pe, Card>, tcp_only: bool) -> Self {
        Cards { early, all: OnceLock::new(), tcp_only }
    }

    fn card(&self, pe: Pe) -> Option<Card> {
        match self.all.get() {
            Some(all) => Card::decode(pe, all.part(pe.index())?).ok(),
            None => self.early.get(&pe).cloned(),
        }
    }
}

impl Directory {
    /// Addresses of `pe` in the order in which they are tried; `None` if it is not known where it is.
    pub(super) fn addresses(&self, job: &str, pe: Pe) -> Option<Vec<Address>> {
        let here = || vec![Address::Unix(name(job, pe))];
        match self {
            Directory::OneHost => Some(here()),
            Directory::Cards(cards) => {
                let card = cards.card(pe)?;
                let unix = card.is_here() && !cards.tcp_only;
                Some(if unix { here() } else { card.tcp.into_iter().map(Address::Tcp).collect() })
            }
        }
    }

    /// Takes in everybody's cards.
    pub(super) fn complete(&self, all: Packed, n_pes: usize) -> Result<()> {
        if let Directory::Cards(cards) = self {
            for i in 0..n_pes {
                Card::decode(Pe::from(i), all.part(i).unwrap_or_default())?;
            }
            // Set once only: a world meets once.
            let _ = cards.all.set(all);
        }
        Ok(())
    }

    /// Whether `pe` is on this host, and reached by abstract sockets.
    pub(super) fn is_here(&self, pe: Pe) -> bool {
        match self {
            Directory::OneHost => true,
            Directory::Cards(cards) => !cards.tcp_only && cards.card(pe).is_some_and(|card| card.is_here()),
        }
    }
}

/// The addresses under which other hosts may reach this one: of interfaces that are up, loopback only if there is nothing
/// else. `names`: only interfaces whose names begin with one of these.
///
/// # Errors
/// [`Error::System`]; [`Error::Setting`] if no interface has such a name.
pub(crate) fn interfaces(names: Option<&str>) -> Result<Vec<IpAddr>> {
    let prefixes: Vec<&str> = names.into_iter().flat_map(|n| n.split(',')).map(str::trim).collect();
    let wanted = |name: &str| prefixes.is_empty() || prefixes.iter().any(|p| name.starts_with(p));
    let all = list()?;
    let mut found: Vec<IpAddr> = all.into_iter().filter(|(name, _)| wanted(name)).map(|(_, ip)| ip).collect();
    if found.is_empty()
        && let Some(names) = names
    {
        return Err(Error::Setting {
            name: "SYMM_IFNAME",
            got: names.to_owned(),
            expected: "beginnings of names of interfaces that are up and have an address".to_owned(),
        });
    }
    if prefixes.is_empty() && found.iter().any(|ip| !ip.is_loopback()) {
        found.retain(|ip| !ip.is_loopback());
    }
    if found.is_empty() {
        found.push(Ipv4Addr::LOCALHOST.into());
    }
    // IPv4 first: every host of a cluster has it.
    found.sort_by_key(|ip| ip.is_ipv6());
    Ok(found)
}

/// Name and address of every interface that is up, without those that hold on one link only.
fn list() -> Result<Vec<(String, IpAddr)>> {
    let mut first: *mut libc::ifaddrs = std::ptr::null_mut();
    // SAFETY: `first` is a live place for the list's head.
    if unsafe { libc::getifaddrs(&raw mut first) } != 0 {
        let e = rustix::io::Errno::from_io_error(&std::io::Error::last_os_error());
        return Err(Error::system("getifaddrs", e.unwrap_or(rustix::io::Errno::INVAL)));
    }
    let mut all = Vec::new();
    let mut next = first;
    // SAFETY: entries of the list are live until `freeifaddrs`, and the last one's `ifa_next` is null.
    while let Some(entry) = unsafe { next.as_ref() } {
        next = entry.ifa_next;
        if entry.ifa_addr.is_null() || entry.ifa_flags & libc::IFF_UP as u32 == 0 {
            continue;
        }
        // SAFETY: names of entries are C strings that live as long as the list.
        let name = unsafe { std::ffi::CStr::from_ptr(entry.ifa_name) }.to_string_lossy().into_owned();
        // SAFETY: the address is not null, and its family says which structure it is.
        let ip = unsafe {
            match i32::from((*entry.ifa_addr).sa_family) {
                libc::AF_INET => {
                    let addr = (*entry.ifa_addr.cast::<libc::sockaddr_in>()).sin_addr;
                    Some(IpAddr::from(addr.s_addr.to_ne_bytes()))
                }
                libc::AF_INET6 => {
                    Some((*entry.ifa_addr.cast::<libc::sockaddr_in6>()).sin6_addr.s6_addr.into())
                }
                _ => None,
            }
        };
        let on_one_link = |ip: &IpAddr| matches!(ip, IpAddr::V6(v6) if v6.is_unicast_link_local());
        all.extend(ip.filter(|ip| !on_one_link(ip)).map(|ip| (name, ip)));
    }
    // SAFETY: the list came from `getifaddrs` and is not used any more.
    unsafe { libc::freeifaddrs(first) };
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_card_comes_back_and_knows_its_host() {
        let card = Card::here(&[Ipv4Addr::LOCALHOST.into()], 7);
        assert_eq!(Card::decode(Pe(0), &card.encode()), Ok(card.clone()));
        assert!(card.is_here());
        assert!(!Card { host: card.host ^ 1, ..card.clone() }.is_here());
        assert!(Card::decode(Pe(0), &card.encode()[..4]).is_err());
    }

    #[test]
    fn interfaces_are_chosen_by_name() {
        assert!(!interfaces(None).expect("some").is_empty());
        assert_eq!(interfaces(Some("lo")).expect("loopback")[0], IpAddr::from(Ipv4Addr::LOCALHOST));
        assert!(matches!(interfaces(Some("nosuch")), Err(Error::Setting { name: "SYMM_IFNAME", .. })));
    }
}
