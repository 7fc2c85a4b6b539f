//! What figures are told with.

/// The processor's name.
pub(crate) fn cpu() -> String {
    let info = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = info.lines().find(|l| l.starts_with("model name")).and_then(|l| l.split(':').nth(1));
    model.unwrap_or("unknown").trim().to_owned()
}
