//! Runs the table over all configurations, prints and counts.

use std::collections::VecDeque;
use std::io::Write;
use std::process::ExitCode;
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use super::Case;
use super::expected;
use super::group::{Group, Verdict};
use super::select::{Configuration, Selection};

/// Prints one line.
pub(crate) fn say(line: &str) {
    // A closed pipe must not end the run by a panic; the exit code still tells.
    let _ = writeln!(std::io::stdout().lock(), "{line}");
}

#[derive(Debug, Default)]
struct Report {
    passed: usize,
    failed: Vec<String>,
    skipped: usize,
    quiet: bool,
    /// One entry a case, for `--json`.
    cases: Vec<serde_json::Value>,
}

impl Report {
    fn add(&mut self, other: Report) {
        self.passed += other.passed;
        self.failed.extend(other.failed);
        self.skipped += other.skipped;
        self.cases.extend(other.cases);
    }

    fn take(&mut self, name: &str, verdict: Verdict, required: bool, began: Instant) {
        let ms = began.elapsed().as_millis();
        let (outcome, why) = match &verdict {
            Verdict::Pass => ("passed", None),
            Verdict::Skip(why) if !required => ("skipped", Some(why)),
            Verdict::Skip(why) | Verdict::Fail(why) => ("failed", Some(why)),
        };
        self.cases.push(serde_json::json!({ "name": name, "outcome": outcome, "ms": ms, "why": why }));
        match verdict {
            Verdict::Pass => {
                self.passed += 1;
                if !self.quiet {
                    say(&format!("test {name} ... ok ({ms} ms)"));
                }
            }
            Verdict::Skip(why) if required => {
                say(&format!("test {name} ... FAILED: skipped, but SYMM_REQUIRE names its backend: {why}"));
                self.failed.push(name.to_owned());
            }
            Verdict::Skip(why) => {
                say(&format!("test {name} ... skipped: {why}"));
                self.skipped += 1;
            }
            Verdict::Fail(why) => {
                say(&format!("test {name} ... FAILED ({ms} ms)\n{}", why.trim_end()));
                self.failed.push(name.to_owned());
            }
        }
    }

    /// One line for many cases that are skipped for one reason.
    fn skip_all(&mut self, configuration: &Configuration, names: &[String], why: &str, required: bool) {
        let n = names.len();
        let outcome = if required { "failed" } else { "skipped" };
        let case = |name| serde_json::json!({ "name": name, "outcome": outcome, "why": why });
        self.cases.extend(names.iter().map(case));
        if required {
            say(&format!(
                "test {configuration} ({n} cases) ... FAILED: SYMM_REQUIRE names its backend: {why}"
            ));
            self.failed.extend_from_slice(names);
        } else {
            say(&format!("test {configuration} ({n} cases) ... skipped: {why}"));
            self.skipped += n;
        }
    }
}

/// Why no case can run in a configuration, whatever the machine.
fn senseless(c: &Configuration) -> Option<String> {
    let few = c.n_pes < c.nodes as usize;
    few.then(|| format!("{} PEs do not fill {} nodes", c.n_pes, c.nodes))
}

/// Runs the host backend's configurations two at a time: half of their time is deadlines that pass. Those with most PEs meet those with
/// fewest. Other backends' configurations run alone: they share GPUs.
fn run_configurations(cases: &[Case], selection: &Selection) -> Report {
    let new = || Report { quiet: selection.quiet, ..Report::default() };
    let all = selection.configurations();
    let (host, others): (Vec<_>, Vec<_>) = all.iter().enumerate().partition(|(_, c)| c.backend == "host");
    let (host, done) = (Mutex::new(VecDeque::from(host)), Mutex::new(Vec::new()));
    let run = |(number, c): (usize, &Configuration)| {
        let mut report = new();
        run_configuration(cases, c, selection, &mut report);
        done.lock().unwrap_or_else(PoisonError::into_inner).push((number, report));
    };
    let next = |last: bool| {
        let mut waiting = host.lock().unwrap_or_else(PoisonError::into_inner);
        if last { waiting.pop_back() } else { waiting.pop_front() }
    };
    std::thread::scope(|scope| {
        for last in [false, true] {
            let (run, next) = (&run, &next);
            scope.spawn(move || std::iter::from_fn(|| next(last)).for_each(run));
        }
    });
    others.into_iter().for_each(run);
    let mut done = done.into_inner().unwrap_or_else(PoisonError::into_inner);
    done.sort_by_key(|(number, _)| *number);
    let mut report = new();
    done.into_iter().for_each(|(_, part)| report.add(part));
    report
}

fn run_configuration(cases: &[Case], c: &Configuration, selection: &Selection, report: &mut Report) {
    let full = |case: &Case| format!("{c}/{}", case.name);
    let takes = |case: &Case| c.has(case) && selection.takes(&full(case));
    let mut chosen: Vec<usize> = (0..cases.len()).filter(|i| takes(&cases[*i])).collect();
    // Cases with a group of their own come last, so that one group runs at a time: NVIDIA MPS serves so many clients, and NVSHMEM's
    // jobs of one host meet in memory of one name.
    chosen.sort_by_key(|i| cases[*i].own.is_some());
    if chosen.is_empty() {
        return;
    }
    let required = selection.requires(&c.backend);
    let names: Vec<String> = chosen.iter().map(|i| full(&cases[*i])).collect();
    if let Some(why) = senseless(c) {
        // No machine could run these, so they are no loss of a required backend.
        return report.skip_all(c, &names, &why, false);
    }
    let mut shared: Option<Group> = None;
    for (done, (i, name)) in chosen.iter().zip(&names).enumerate() {
        let case = &cases[*i];
        let began = Instant::now();
        if c.n_pes < case.min_pes {
            let why = format!("needs {} PEs", case.min_pes);
            report.take(name, Verdict::Skip(why), false, began);
            continue;
        }
        let lacks = case.needs - expected::capabilities(&c.backend, c.nodes);
        if !lacks.is_empty() {
            let why = format!("{} is not expected to have {lacks:?}", c.backend);
            report.take(name, Verdict::Skip(why), false, began);
            continue;
        }
        let group = match (case.own, shared.take()) {
            (None, Some(group)) => Ok(group),
            (own, kept) => {
                if let Some(group) = kept {
                    end(c, group, required, report);
                }
                Group::start(c, own.unwrap_or_default())
            }
        };
        let mut group = match group {
            Ok(group) => group,
            Err(Verdict::Skip(why)) if c.backend != "host" => {
                return report.skip_all(c, &names[done..], &why, required);
            }
            // The host backend runs everywhere: there is no reason to skip it.
            Err(Verdict::Skip(why)) => {
                report.take(name, Verdict::Fail(why), required, began);
                continue;
            }
            Err(verdict) => {
                report.take(name, verdict, required, began);
                continue;
            }
        };
        let verdict = group.run(*i, case.limit);
        let failed = matches!(verdict, Verdict::Fail(_));
        if failed {
            // PEs of a failed case may be anywhere: the rest gets new processes.
            report.take(name, verdict, required, began);
        } else if case.own.is_some() {
            let verdict = group.end().map_or_else(Verdict::Fail, |()| verdict);
            report.take(name, verdict, required, began);
        } else {
            report.take(name, verdict, required, began);
            shared = Some(group);
        }
    }
    if let Some(group) = shared {
        end(c, group, required, report);
    }
}

/// Ends the group that cases have shared, which is a case itself.
fn end(c: &Configuration, group: Group, required: bool, report: &mut Report) {
    let began = Instant::now();
    let verdict = group.end().map_or_else(Verdict::Fail, |()| Verdict::Pass);
    report.take(&format!("{c}/group::ends"), verdict, required, began);
}

/// Runs what is selected; the exit code says whether all of it passed.
pub(crate) fn run_all(cases: &[Case], selection: &Selection) -> ExitCode {
    if selection.list {
        for c in selection.configurations() {
            let names = cases.iter().filter(|case| c.has(case)).map(|case| format!("{c}/{}", case.name));
            names.filter(|n| selection.takes(n)).for_each(|n| say(&format!("{n}: test")));
        }
        return ExitCode::SUCCESS;
    }
    let began = Instant::now();
    let report = run_configurations(cases, selection);
    if !report.failed.is_empty() {
        say(&format!("\nfailed:\n    {}", report.failed.join("\n    ")));
    }
    say(&format!("\nconformance: {:.1} s", began.elapsed().as_secs_f64()));
    say(&format!("{} passed, {} failed, {} skipped", report.passed, report.failed.len(), report.skipped));
    if let Some(path) = &selection.json {
        let (passed, failed) = (report.passed, report.failed.len());
        let counts = serde_json::json!({ "passed": passed, "failed": failed, "skipped": report.skipped });
        let seconds = began.elapsed().as_secs_f64();
        let all = serde_json::json!({ "seconds": seconds, "counts": counts, "cases": report.cases });
        if let Err(e) = std::fs::write(path, format!("{all:#}\n")) {
            say(&format!("conformance: {path}: {e}"));
            return ExitCode::FAILURE;
        }
    }
    // A filter that leaves nothing is how `cargo test NAME` looks for a test elsewhere; without one, nothing run is a failure.
    let ran = report.passed > 0 || (report.skipped == 0 && selection.is_narrowed());
    if report.failed.is_empty() && ran { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
