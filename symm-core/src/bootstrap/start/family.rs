//! Which family of variables a process was started with.

use std::fmt;

use crate::config::Config;
use crate::error::{Error, Result};

/// The families of variables by which a process learns who it is, in the order in which they are looked for.
///
/// A family is there when one of its variables that nobody sets by accident is; then all that it needs must be, and
/// [`Error::Setting`] names the one that is not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Family {
    /// `SYMM_PE`, `SYMM_N_PES`, with `SYMM_JOB` (one host) or `SYMM_ADDR` (any): the builder, `symm run`.
    Symm,
    /// `PMIX_NAMESPACE`, `PMIX_RANK`: Open MPI's `mpirun`, `srun --mpi=pmix`. Needs `libpmix.so.2`, no MPI.
    Pmix,
    /// `PMI_FD`, `PMI_RANK`, `PMI_SIZE`: MPICH's `mpirun` (hydra).
    Pmi,
    /// `RANK`, `WORLD_SIZE`, `MASTER_ADDR`, `MASTER_PORT`: torchrun, or set by hand.
    Torchrun,
    /// `SLURM_PROCID`, `SLURM_STEP_NUM_TASKS`, `SLURM_JOB_ID`, `SLURM_STEP_ID`: `srun` on one node, without PMIx.
    Slurm,
    /// MPI itself, where the application has initialised it or `SYMM_BOOTSTRAP=mpi` asks for it (feature `mpi`).
    Mpi,
}

impl fmt::Display for Family {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Family::Symm => "symm",
            Family::Pmix => "pmix",
            Family::Pmi => "pmi",
            Family::Torchrun => "torchrun",
            Family::Slurm => "slurm",
            Family::Mpi => "mpi",
        })
    }
}

/// Variables that a family needs, after those by which it is recognised.
const RULES: [(Family, &[&str], &[&str]); 4] = [
    (Family::Pmix, &["PMIX_NAMESPACE", "PMIX_RANK"], &["PMIX_NAMESPACE", "PMIX_RANK"]),
    (Family::Pmi, &["PMI_FD", "PMI_RANK", "PMI_SIZE"], &["PMI_FD", "PMI_RANK", "PMI_SIZE"]),
    (Family::Torchrun, &["RANK", "WORLD_SIZE"], &["RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"]),
    (Family::Slurm, &["SLURM_STEP_NUM_TASKS"], &["SLURM_PROCID", "SLURM_JOB_ID", "SLURM_STEP_ID"]),
];

/// Numbers of processes that launchers set of which only MPI itself can make use, or nobody.
const OTHERS: [(&str, &str); 3] = [
    ("OMPI_COMM_WORLD_SIZE", "Open MPI's mpirun without PMIx"),
    ("MV2_COMM_WORLD_SIZE", "MVAPICH's launcher"),
    ("PALS_SIZE", "PALS"),
];

impl Family {
    /// The family that `config` names or that is there; `None` for a process that nobody started as one of several.
    ///
    /// # Errors
    /// [`Error::Setting`] naming a variable that is missing, or what to set where none fits.
    pub fn find(config: &Config, env: impl Fn(&str) -> Option<String>) -> Result<Option<Family>> {
        let get = |name: &str| env(name).filter(|v| !v.is_empty());
        let named = RULES.iter().find(|(family, ..)| family.to_string() == config.bootstrap);
        match (config.bootstrap.as_str(), named) {
            ("alone", _) => return Ok(None),
            ("mpi", _) => return Ok(Some(Family::Mpi)),
            ("symm", _) if config.n_pes.is_none() => {
                return Err(missing("SYMM_N_PES", "a number, since SYMM_BOOTSTRAP=symm"));
            }
            (_, Some((family, _, needs))) => return complete(*family, needs, get),
            _ if config.n_pes.is_some() => return Ok(Some(Family::Symm)),
            _ => {}
        }
        for (family, signs, needs) in RULES {
            if signs.iter().any(|name| get(name).is_some()) {
                match (family, get("SLURM_STEP_NUM_TASKS").as_deref()) {
                    // One task is a program that was started through srun, and no more.
                    (Family::Slurm, Some("1")) => continue,
                    _ => return complete(family, needs, get),
                }
            }
        }
        for (name, launcher) in OTHERS {
            if get(name).is_some_and(|n| n != "1") {
                let expected = format!(
                    "a number, with SYMM_PE and SYMM_ADDR, since {name} is set, and {launcher} does not tell the PEs how to find \
                     each other; else install PMIx and use mpirun or srun --mpi=pmix, or build with the feature `mpi` \
                     (SYMM_BOOTSTRAP=alone starts a world of one PE)"
                );
                return Err(missing("SYMM_N_PES", &expected));
            }
        }
        Ok(None)
    }
}

/// The family, once everything that it needs is there.
fn complete(
    family: Family,
    needs: &'static [&'static str],
    get: impl Fn(&str) -> Option<String>,
) -> Result<Option<Family>> {
    // Alone, torchrun's variables need no address.
    let alone = family == Family::Torchrun && get("WORLD_SIZE").as_deref() == Some("1");
    let needs = if alone { &needs[..2] } else { needs };
    match needs.iter().find(|name| get(name).is_none()) {
        Some(name) => {
            // Its sign may be a leftover of something else: then there is a way on without the whole family.
            let why = match needs.iter().find(|other| get(other).is_some()) {
                Some(other) => format!("its value, since {other} is set"),
                None => "its value".to_owned(),
            };
            let expected = format!("{why} ({family}; SYMM_BOOTSTRAP=alone starts a world of one PE)");
            Err(missing(name, &expected))
        }
        None => Ok(Some(family)),
    }
}

fn missing(name: &'static str, expected: &str) -> Error {
    Error::Setting { name, got: String::new(), expected: expected.to_owned() }
}

/// A variable's number.
pub(super) fn number(env: &impl Fn(&str) -> Option<String>, name: &'static str, below: u64) -> Result<u64> {
    let text = env(name).unwrap_or_default();
    match text.trim().parse::<u64>() {
        Ok(n) if n < below => Ok(n),
        _ => Err(Error::Setting { name, got: text, expected: format!("a number below {below}") }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn find(vars: &[(&str, &str)]) -> Result<Option<Family>> {
        let get = |n: &str| vars.iter().find(|(k, _)| *k == n).map(|(_, v)| (*v).to_owned());
        Family::find(&Config::from_lookup(get)?, get)
    }

    const SYMM: [(&str, &str); 3] = [("SYMM_PE", "0"), ("SYMM_N_PES", "2"), ("SYMM_JOB", "j")];
    const PMIX: [(&str, &str); 2] = [("PMIX_NAMESPACE", "n"), ("PMIX_RANK", "0")];
    const PMI: [(&str, &str); 3] = [("PMI_FD", "5"), ("PMI_RANK", "0"), ("PMI_SIZE", "2")];
    const TORCH: [(&str, &str); 4] =
        [("RANK", "0"), ("WORLD_SIZE", "2"), ("MASTER_ADDR", "a"), ("MASTER_PORT", "1")];
    const SLURM: [(&str, &str); 4] =
        [("SLURM_STEP_NUM_TASKS", "2"), ("SLURM_PROCID", "1"), ("SLURM_JOB_ID", "7"), ("SLURM_STEP_ID", "0")];

    #[test]
    fn families_are_taken_in_order() {
        let families = [Family::Symm, Family::Pmix, Family::Pmi, Family::Torchrun, Family::Slurm];
        let vars: [&[(&str, &str)]; 5] = [&SYMM, &PMIX, &PMI, &TORCH, &SLURM];
        for first in 0..5 {
            let there: Vec<_> = vars[first..].concat();
            assert_eq!(find(&there), Ok(Some(families[first])));
        }
        assert_eq!(find(&[]), Ok(None));
        assert_eq!(find(&[("SLURM_STEP_NUM_TASKS", "1"), ("SLURM_PROCID", "0")]), Ok(None));
        assert_eq!(find(&[("RANK", "0"), ("WORLD_SIZE", "1")]), Ok(Some(Family::Torchrun)));
    }

    #[test]
    fn a_half_set_family_names_what_is_missing_even_if_another_is_whole() {
        for (vars, first) in [(&PMIX[..], 2), (&PMI, 3), (&TORCH, 2), (&SLURM, 1)] {
            for missing in 0..vars.len() {
                let mut there = vars.to_vec();
                there.remove(missing);
                // Without any of its signs, it is not there at all.
                let signs = if missing < first { first - 1 } else { first };
                if signs == 0 {
                    continue;
                }
                match find(&there) {
                    Err(Error::Setting { name, .. }) => assert_eq!(name, vars[missing].0),
                    other => panic!("{there:?}: {other:?}"),
                }
            }
        }
        let half = [&PMIX[..1], &TORCH].concat();
        assert!(matches!(find(&half), Err(Error::Setting { name: "PMIX_RANK", .. })));
    }

    /// Both by name: what is missing, and what it is missed by. Where that is a leftover, the way on is told, too.
    #[test]
    fn a_half_set_family_says_what_it_was_found_by() {
        let said = find(&[("RANK", "0")]).expect_err("half a family should be refused").to_string();
        assert_eq!(
            said,
            "setting WORLD_SIZE is not set, expected its value, since RANK is set (torchrun; SYMM_BOOTSTRAP=alone starts a \
             world of one PE)"
        );
        let said = find(&[("SYMM_BOOTSTRAP", "pmi")]).expect_err("nothing is there").to_string();
        assert!(said.starts_with("setting PMI_FD is not set, expected its value (pmi;"), "{said}");
    }

    #[test]
    fn a_named_family_goes_before_those_that_are_there() {
        let with =
            |name, vars: &[(&'static str, &'static str)]| find(&[&[("SYMM_BOOTSTRAP", name)], vars].concat());
        assert_eq!(with("torchrun", &[&PMIX[..], &TORCH].concat()), Ok(Some(Family::Torchrun)));
        assert_eq!(with("alone", &PMIX), Ok(None));
        assert_eq!(with("mpi", &PMIX), Ok(Some(Family::Mpi)));
        assert!(matches!(with("pmi", &PMIX), Err(Error::Setting { name: "PMI_FD", .. })));
        assert!(matches!(with("symm", &PMIX), Err(Error::Setting { name: "SYMM_N_PES", .. })));
    }

    #[test]
    fn a_launcher_that_tells_nothing_gets_an_answer() {
        let said = find(&[("OMPI_COMM_WORLD_SIZE", "4")]).expect_err("nothing else is there").to_string();
        let begin = "setting SYMM_N_PES is not set, expected a number, with SYMM_PE and SYMM_ADDR, since OMPI_COMM_WORLD_SIZE \
                     is set, and Open MPI's mpirun without PMIx does not tell";
        assert!(said.starts_with(begin) && said.contains("SYMM_BOOTSTRAP=alone"), "{said}");
        assert_eq!(find(&[("OMPI_COMM_WORLD_SIZE", "1")]), Ok(None));
    }
}
