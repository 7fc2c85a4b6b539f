//! Variables that look like settings and are none.

use std::collections::BTreeSet;
use std::sync::Once;

/// Variables that other parts of this project read; the last is how `symm moe` and `symm bench` find their parent.
const ELSEWHERE: [&str; 5] =
    ["SYMM_NVSHMEM_LIB", "SYMM_NVJITLINK_LIB", "SYMM_KERNELS", "SYMM_CUDA_ARCHS", "SYMM_PARENT"];
/// Most letters by which a name may differ from that of a setting to be taken for it.
const NEAR: usize = 3;

/// Writes a warning, once in a process, for each variable of the environment that is almost a setting: nothing reads it, so
/// whoever set it would never know. `known`: the settings' names; `pe`: this PE's number, where the settings say it, which a
/// launcher's do not.
pub(crate) fn warn(known: &BTreeSet<String>, pe: Option<u32>) {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let set = std::env::vars_os().filter_map(|(name, _)| name.into_string().ok());
        let who = pe.map_or_else(|| "this process".to_owned(), |pe| format!("PE {pe}"));
        for (name, meant) in misspelt(set, known) {
            log::warn!("{}: {name} is set, and nothing reads it: is {meant} meant?", who);
        }
    });
}

/// Names that begin as settings do and are none, each with the setting that is nearest.
fn misspelt(set: impl Iterator<Item = String>, known: &BTreeSet<String>) -> Vec<(String, String)> {
    let known: BTreeSet<&str> = known.iter().map(String::as_str).chain(ELSEWHERE).collect();
    let unknown = set.filter(|name| name.starts_with("SYMM") && !known.contains(name.as_str()));
    let nearest = |name: String| {
        let distance = |other: &&&str| strsim::damerau_levenshtein(&name, other);
        let meant = known.iter().filter(|other| other.starts_with("SYMM_")).min_by_key(distance)?;
        (strsim::damerau_levenshtein(&name, meant) <= NEAR).then(|| (name.clone(), (*meant).to_owned()))
    };
    unknown.filter_map(nearest).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_almost_a_setting_is_named_with_it() {
        let known = ["SYMM_N_PES", "SYMM_TIMEOUT_MS", "SYMM_STATS", "SYMM_HEAP", "SYMM_PORT", "MASTER_PORT"];
        let known = known.map(str::to_owned).into();
        let set = [
            "SYMM_NPES",
            "SYMM_TIMEOUT",
            "SYMM_STAT",
            "SYMMSTATS",
            "SYMM_STATS",
            "SYMM_NVSHMEM_LIB",
            "SYMM_PARENT",
            "SYMM_OF_MY_OWN",
            "MASTER_PRT",
        ];
        let found = misspelt(set.iter().map(|s| (*s).to_owned()), &known);
        let pairs: Vec<(&str, &str)> = found.iter().map(|(a, b)| (a.as_str(), b.as_str())).collect();
        let expected = [
            ("SYMM_NPES", "SYMM_N_PES"),
            ("SYMM_TIMEOUT", "SYMM_TIMEOUT_MS"),
            ("SYMM_STAT", "SYMM_STATS"),
            ("SYMMSTATS", "SYMM_STATS"),
        ];
        assert_eq!(pairs, expected);
    }
}
