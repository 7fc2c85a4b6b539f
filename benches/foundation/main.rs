//! Benches of the foundation on this machine: `cargo bench --bench foundation`.
//!
//! Without a launcher the program starts itself as 2 and then as 4 PEs; under one it is a PE. PE 0 alone runs criterion: it
//! broadcasts (case, iterations) and the others serve, so that every iteration is one of all PEs. A time is the maximum
//! over PEs. Afterwards the figures that are ratios are taken again in alternation, so that both sides see the same
//! machine, and written as JSON if `SYMM_BENCH_JSON` names a folder.

mod cases;
#[path = "../common/mod.rs"]
mod common;
mod job;
mod results;

use std::process::ExitCode;
use std::time::Duration;

use cases::Case;
use criterion::Criterion;
use job::Job;

fn main() -> ExitCode {
    common::exit("foundation", if std::env::var_os("SYMM_PE").is_some() { pe() } else { parent() })
}

fn parent() -> symm::Result<ExitCode> {
    if common::asks(&["--help", "-h", "--list"]) {
        for case in Case::ALL {
            println!("{}: bench", case.name());
        }
        if !common::asks(&["--list"]) {
            println!(
                "\nRuns 2 and 4 PEs; SYMM_BENCH_JSON=FOLDER writes figures; other flags are criterion's."
            );
        }
        return Ok(ExitCode::SUCCESS);
    }
    common::start("foundation", &[2, 4])
}

fn pe() -> symm::Result<ExitCode> {
    let world = symm::init()?;
    let job = Job::new(&world)?;
    if world.pe().0 == 0 {
        let mut criterion = Criterion::default()
            .configure_from_args()
            .sample_size(20)
            .warm_up_time(Duration::from_millis(300))
            .measurement_time(Duration::from_secs(2));
        let mut group = criterion.benchmark_group(format!("host, {} PEs", world.n_pes()));
        for case in Case::ALL.into_iter().filter(|c| c.runs_on(world.n_pes())) {
            group.bench_function(case.name(), |b| {
                b.iter_custom(|iterations| {
                    job.lead(case, iterations).expect("a bench's operations should not fail")
                });
            });
        }
        group.finish();
        let figures = results::measure(&job)?;
        criterion.final_summary();
        job.end()?;
        results::report(&world, &figures);
    } else {
        job.serve()?;
    }
    world.finalize()?;
    Ok(ExitCode::SUCCESS)
}
