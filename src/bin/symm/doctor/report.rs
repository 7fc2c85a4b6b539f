//! The findings as text.

use std::fmt::{self, Write};

use super::Findings;
use super::backends::Backend;
use crate::cli::args::human;

pub(super) fn text(found: &Findings) -> String {
    let mut text = String::new();
    // Writing to a String cannot fail.
    let _ = write(&mut text, found);
    text
}

fn write(t: &mut impl Write, found: &Findings) -> fmt::Result {
    let features = if found.features.is_empty() { "none".to_owned() } else { found.features.join(", ") };
    writeln!(t, "symm-mem {}, features: {features}", found.version)?;
    machine(t, found)?;
    gpus(t, found)?;
    writeln!(t, "\nlibraries")?;
    for l in &found.libraries {
        match &l.path {
            Some(path) => {
                let version = l.version.as_deref().unwrap_or("(no version)");
                writeln!(t, "  {} {:<10}{version}: {} ({})", tick(true), l.name, path.display(), l.why)?;
            }
            None => {
                let why = short(&l.why);
                let why = if why.ends_with("No such file or directory") { "not found" } else { &why };
                writeln!(t, "  {} {:<10}{why} ({})", tick(false), l.name, l.purpose)?;
            }
        }
    }
    writeln!(t, "\nlaunchers")?;
    writeln!(t, "  {} {:<13}this program", tick(true), "symm run")?;
    for l in &found.launchers {
        match &l.path {
            Some(path) => {
                let version = l.version.as_deref().map(|v| format!("{v}: ")).unwrap_or_default();
                writeln!(t, "  {} {:<13}{version}{}", tick(true), l.name, path.display())?;
            }
            None => writeln!(t, "  {} {:<13}not in PATH", tick(false), l.name)?,
        }
    }
    writeln!(t, "\nbackends")?;
    for b in &found.backends {
        backend(t, b)?;
    }
    let auto = &found.auto;
    writeln!(t)?;
    if auto.runs {
        writeln!(t, "auto takes {}", auto.why)
    } else {
        writeln!(t, "auto takes nothing that runs: {}", short(&auto.why))
    }
}

fn machine(t: &mut impl Write, found: &Findings) -> fmt::Result {
    let m = &found.machine;
    let number = |n: Option<usize>| n.map_or_else(|| "?".to_owned(), |n| n.to_string());
    let bytes = |n: Option<u64>| n.map_or_else(|| "?".to_owned(), human);
    writeln!(t, "\nmachine")?;
    writeln!(t, "  system     {}", m.system)?;
    writeln!(
        t,
        "  processor  {}: cores for this process {}, sockets {}, NUMA nodes {}",
        m.cpu,
        m.cores,
        number(m.sockets),
        number(m.numa_nodes)
    )?;
    writeln!(t, "  memory     {}, of which {} can be taken", bytes(m.memory), bytes(m.memory_available))?;
    writeln!(t, "\nlimits")?;
    for l in &found.limits {
        let written = |n| if l.bytes { human(n) } else { n.to_string() };
        let soft = l.soft.map_or_else(|| "unlimited".to_owned(), written);
        writeln!(t, "  {} {:<15}{soft:>12}  {}", tick(!l.low), l.name, l.note)?;
    }
    if !found.settings.is_empty() {
        writeln!(t, "\nsettings")?;
    }
    found.settings.iter().try_for_each(|s| writeln!(t, "  {}={}", s.name, s.value))
}

fn gpus(t: &mut impl Write, found: &Findings) -> fmt::Result {
    let g = &found.gpus;
    writeln!(t, "\nGPUs")?;
    if let Some(module) = &g.kernel_module {
        let driver = g.driver.as_deref().map(|d| format!(", CUDA {d}")).unwrap_or_default();
        let needed = g.needed.as_deref().map(|n| format!(" (the backend needs {n})")).unwrap_or_default();
        writeln!(t, "  driver {module}{driver}{needed}")?;
    }
    // A GPU alone would not help.
    if g.kernels == Some(false) {
        writeln!(t, "  {} kernels: not in this build, which found no nvcc", tick(false))?;
    }
    for (i, gpu) in g.gpus.iter().enumerate() {
        let kind = gpu
            .compute_capability
            .as_deref()
            .map(|c| format!(", compute capability {c}"))
            .unwrap_or_default();
        let free = gpu.free.map(|m| format!(", {} free", human(m))).unwrap_or_default();
        let memory = gpu.memory.map(|m| format!(", {}{free}", human(m))).unwrap_or_default();
        writeln!(t, "  {} {i}: {}, {}{kind}{memory}", tick(true), gpu.name, gpu.pci)?;
        let of = |wanted: Option<bool>| {
            let names = gpu.offers.iter().filter(|(_, has)| *has == wanted).map(|(name, _)| name.as_str());
            names.collect::<Vec<_>>().join(", ")
        };
        let (has, lacks) = (of(Some(true)), of(Some(false)));
        if !has.is_empty() {
            writeln!(t, "       has {has}")?;
        }
        if !lacks.is_empty() {
            writeln!(t, "       lacks {lacks}")?;
        }
        for h in &gpu.handles {
            let found = h.why.as_deref().unwrap_or("exported, imported, and what was written was found");
            writeln!(t, "    {} {}: {}", tick(h.work), h.name, short(found))?;
        }
    }
    for l in &g.links {
        let nvlink = match l.nvlink {
            Some(true) => " (NVLink)",
            Some(false) => " (no NVLink)",
            None => "",
        };
        writeln!(t, "  {} {} to {}: {}{nvlink}", tick(l.kind != "none"), l.from, l.to, l.kind)?;
    }
    if !g.gpus.is_empty() {
        let several = g.imex_channels > 0;
        let what = if several { "" } else { ": no memory handle of another host can be imported" };
        writeln!(t, "  {} IMEX channels: {}{what}", tick(several), g.imex_channels)?;
    }
    match &g.why {
        Some(why) => writeln!(t, "  {} {}", tick(false), short(why)),
        None => Ok(()),
    }
}

fn backend(t: &mut impl Write, b: &Backend) -> fmt::Result {
    if b.runs {
        writeln!(t, "  {} {:<10}runs: {}", tick(true), b.name, b.capabilities.join(", "))
    } else {
        writeln!(t, "  {} {:<10}{}", tick(false), b.name, short(&b.why))
    }
}

fn tick(yes: bool) -> &'static str {
    if yes { "ok" } else { "--" }
}

/// One line. Where something was looked for fills several: the JSON has it.
fn short(text: &str) -> String {
    let line = text.replace(['\n', '\r'], " ");
    line.split(" Tried:").next().unwrap_or_default().to_owned()
}
