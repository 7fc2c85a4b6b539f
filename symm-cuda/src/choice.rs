//! Which GPU each PE takes: worked out by all PEs alike from what each of them sees.
//!
//! GPUs are known by UUID, so it does not matter how PEs are numbered over hosts, whether each sees all GPUs of its host or its
//! own only, or which of them share a network namespace.

use std::collections::HashMap;

use symm_core::{Error, Pe, Result};

use crate::device::{device, uuid_of};
use crate::result::BACKEND;

/// Bytes of a UUID.
const UUID: usize = 16;

/// What one PE can have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Offer {
    /// Number of the GPU that its settings name, among those it sees.
    wanted: Option<u32>,
    /// UUIDs of the GPUs that it sees, in their order.
    visible: Vec<[u8; UUID]>,
}

impl Offer {
    /// That of this process, of whose GPUs `wanted` is asked for.
    ///
    /// # Errors
    /// `Unavailable` without a driver or a GPU, or if there is no such GPU.
    pub(crate) fn here(wanted: Option<u32>) -> Result<Self> {
        let count = crate::device::start_driver()?;
        if let Some(wrong) = wanted.filter(|n| *n >= count) {
            let last = count - 1;
            let why = format!(
                "SYMM_DEVICE (or Builder::device) is {wrong}, expected a number from 0 to {last}: \
                 this process sees {count} GPUs (CUDA_VISIBLE_DEVICES)"
            );
            return Err(Error::Unavailable { backend: BACKEND.to_owned(), why });
        }
        let ordinals = 0..i32::try_from(count).unwrap_or(i32::MAX);
        let visible = ordinals.map(|n| device(n).and_then(uuid_of)).collect::<Result<_>>()?;
        Ok(Offer { wanted, visible })
    }

    pub(crate) fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = self.wanted.map_or(u64::MAX, u64::from).to_le_bytes().to_vec();
        self.visible.iter().for_each(|uuid| bytes.extend(uuid));
        bytes
    }

    /// `None` if a PE sent something else.
    pub(crate) fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let (wanted, rest) = bytes.split_first_chunk()?;
        let wanted = match u64::from_le_bytes(*wanted) {
            u64::MAX => None,
            n => Some(u32::try_from(n).ok()?),
        };
        let (visible, []) = rest.as_chunks::<UUID>() else { return None };
        let fits = wanted.is_none_or(|n| (n as usize) < visible.len());
        (fits && !visible.is_empty()).then(|| Offer { wanted, visible: visible.to_vec() })
    }

    /// The GPU that this PE takes whatever the others do.
    fn settled(&self) -> Option<usize> {
        self.wanted.map(|n| n as usize).or_else(|| (self.visible.len() == 1).then_some(0))
    }
}

/// The number of the GPU that each PE takes, among those it sees. Who names one, or sees one only, has that; the others, in PE
/// order, each take the first of those that the fewest have taken. So PEs of one host that see the same GPUs take them in their
/// order, whatever their numbers in the world are.
pub(crate) fn choose(offers: &[Offer]) -> Vec<usize> {
    let mut taken: HashMap<[u8; UUID], usize> = HashMap::new();
    for (offer, at) in offers.iter().filter_map(|o| Some((o, o.settled()?))) {
        *taken.entry(offer.visible[at]).or_default() += 1;
    }
    let mut pick = |offer: &Offer| {
        let count = |at: &usize| taken.get(&offer.visible[*at]).copied().unwrap_or(0);
        // Of several minima this is the first. There is one: an offer has a GPU.
        let at = (0..offer.visible.len()).min_by_key(count).unwrap_or(0);
        *taken.entry(offer.visible[at]).or_default() += 1;
        at
    };
    offers.iter().map(|offer| offer.settled().unwrap_or_else(|| pick(offer))).collect()
}

/// The number of the GPU that `pe` takes, from what all PEs said, in PE order.
///
/// # Errors
/// `Bootstrap` if a PE said something else.
pub(crate) fn chosen(pe: Pe, said: &[Vec<u8>]) -> Result<i32> {
    let offers = said.iter().map(|bytes| Offer::from_bytes(bytes)).collect::<Option<Vec<_>>>();
    let mine = offers.and_then(|offers| choose(&offers).get(pe.index()).copied());
    mine.and_then(|at| i32::try_from(at).ok()).ok_or_else(|| Error::Bootstrap {
        call: "init",
        why: "a PE said something else than the GPUs that it sees".to_owned(),
    })
}

/// Why two PEs of one GPU are refused, and what can be done.
pub fn same_gpu(a: Pe, b: Pe) -> String {
    let (a, b) = (a.min(b), a.max(b));
    format!(
        "PE {a} and PE {b} have the same GPU: SYMM_DEVICE (or Builder::device) and CUDA_VISIBLE_DEVICES give each PE its own where \
         there are enough; SYMM_ALLOW_SHARED_GPU=1 allows it"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    /// GPUs by one byte each.
    fn offer(wanted: Option<u32>, visible: &[u8]) -> Offer {
        Offer { wanted, visible: visible.iter().map(|n| [*n; UUID]).collect() }
    }

    fn sees(visible: &[u8]) -> Offer {
        offer(None, visible)
    }

    #[test]
    fn pes_of_a_host_take_its_gpus_in_their_order() {
        let host = [1, 2, 3, 4];
        assert_eq!(choose(&[sees(&host), sees(&host), sees(&host), sees(&host)]), [0, 1, 2, 3]);
        let (a, b) = ([1, 2], [3, 4]);
        assert_eq!(choose(&[sees(&a), sees(&a), sees(&b), sees(&b)]), [0, 1, 0, 1], "by blocks");
        assert_eq!(choose(&[sees(&a), sees(&b), sees(&a), sees(&b)]), [0, 0, 1, 1], "by turns");
        assert_eq!(choose(&[sees(&a), sees(&a), sees(&a), sees(&b)]), [0, 1, 0, 0], "more PEs than GPUs");
        assert_eq!(choose(&[sees(&[1, 2]), sees(&[2, 1])]), [0, 0], "listed in another order");
    }

    #[test]
    fn who_names_a_gpu_or_sees_one_only_has_it() {
        let host = [1, 2, 3];
        assert_eq!(choose(&[sees(&[1]), sees(&[2]), sees(&[3])]), [0, 0, 0]);
        assert_eq!(choose(&[sees(&host), offer(Some(0), &host), sees(&host)]), [1, 0, 2]);
        assert_eq!(choose(&[sees(&[1, 2]), sees(&[1])]), [1, 0]);
        assert_eq!(choose(&[offer(Some(2), &host), offer(Some(2), &host)]), [2, 2]);
    }

    #[test]
    fn offers_travel() {
        for o in [sees(&[1]), offer(Some(1), &[1, 2]), offer(Some(0), &[7])] {
            assert_eq!(Offer::from_bytes(&o.to_bytes()), Some(o));
        }
        let beyond = offer(Some(2), &[1, 2]).to_bytes();
        for wrong in [&[][..], &[0xff; 8], &[0xff; 23], &[0; 25], &beyond] {
            assert_eq!(Offer::from_bytes(wrong), None, "{wrong:?}");
            assert!(chosen(Pe(0), &[wrong.to_vec()]).is_err());
        }
        assert_eq!(chosen(Pe(1), &[sees(&[1, 2]).to_bytes(), sees(&[1, 2]).to_bytes()]), Ok(1));
    }
}
