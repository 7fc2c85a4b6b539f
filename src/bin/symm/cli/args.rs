//! Numbers and sizes as people write them, and arguments that do not parse.

use std::ffi::OsString;
use std::fmt::Display;
use std::path::PathBuf;
use std::str::FromStr;

use super::error::{Class, Failure};
use super::say::{self, Json};

/// A whole number from `low` to `high`; `None` if the option was not given.
pub(crate) fn number<T>(name: &'static str, text: Option<&str>, low: T, high: T) -> Result<Option<T>, Failure>
where
    T: FromStr + PartialOrd + Display + Copy,
{
    let Some(text) = text else { return Ok(None) };
    match text.parse::<T>() {
        Ok(n) if n >= low && n <= high => Ok(Some(n)),
        _ => Err(Failure::argument(name, text, format!("a whole number from {low} to {high}"))),
    }
}

/// Bytes: a whole number, with K, M, G or T for powers of 1024; `None` if the option was not given.
pub(crate) fn bytes(name: &'static str, text: Option<&str>) -> Result<Option<u64>, Failure> {
    let Some(text) = text else { return Ok(None) };
    let digits = text.trim_end_matches(|c: char| !c.is_ascii_digit());
    let shift = match text[digits.len()..].to_ascii_lowercase().as_str() {
        "" | "b" => Some(0),
        "k" | "kb" | "kib" => Some(10),
        "m" | "mb" | "mib" => Some(20),
        "g" | "gb" | "gib" => Some(30),
        "t" | "tb" | "tib" => Some(40),
        _ => None,
    };
    let value = shift.and_then(|s| digits.parse::<u64>().ok()?.checked_mul(1 << s));
    value.map(Some).ok_or_else(|| Failure::argument(name, text, "bytes, such as 8, 64K, 16M or 2G"))
}

/// Bytes as people read them, with three digits.
pub(crate) fn human(bytes: u64) -> String {
    let (mut value, mut unit) = (bytes as f64, "B");
    for next in ["KiB", "MiB", "GiB", "TiB", "PiB"] {
        if value < 1024.0 {
            break;
        }
        (value, unit) = (value / 1024.0, next);
    }
    let digits = if unit == "B" || value >= 100.0 { 0 } else { 2 - usize::from(value >= 10.0) };
    format!("{value:.digits$} {unit}")
}

/// Says what is wrong with arguments that do not parse, as any other bad input; returns the exit code.
pub(crate) fn usage(command: &str, e: &clap::Error) -> i32 {
    let text = e.to_string();
    let first: Vec<&str> = text.lines().take_while(|l| !l.trim().is_empty()).map(str::trim).collect();
    let message = first.join(" ");
    let message = message.strip_prefix("error: ").unwrap_or(&message);
    let failure = Failure::new(Class::Input, "Usage", format!("{message} (see symm {command} --help)"));
    // The code of bad input, whatever became of the printing.
    let _ = Json::new(json_of(std::env::args_os()).as_deref()).write(&failure.json());
    say::complain(command, &failure);
    2
}

/// The value of `--json` in arguments that did not parse as a whole.
fn json_of(args: impl Iterator<Item = OsString>) -> Option<PathBuf> {
    let mut args = args.skip_while(|a| a != "--json" && !a.as_encoded_bytes().starts_with(b"--json="));
    let flag = args.next()?;
    match flag.to_str().and_then(|f| f.strip_prefix("--json=")) {
        Some(value) => Some(PathBuf::from(value)),
        None => args.next().map(PathBuf::from),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_take_units_and_refuse_what_is_none() {
        let of = |text| bytes("b", Some(text)).map(Option::unwrap_or_default);
        for (text, expected) in [
            ("8", 8),
            ("0", 0),
            ("4K", 4096),
            ("4kib", 4096),
            ("3M", 3 << 20),
            ("2G", 2 << 30),
            ("1T", 1 << 40),
        ] {
            assert_eq!(of(text), Ok(expected), "{text}");
        }
        for text in ["", "K", "-1", "1.5M", "8 x", "99999999999999999999", "9999999999999G", "1E"] {
            assert_eq!(of(text).map_err(|f| f.error.field), Err(Some("b".to_owned())), "{text}");
        }
        assert_eq!(bytes("b", None), Ok(None));
    }

    #[test]
    fn bytes_are_written_with_three_digits() {
        for (bytes, text) in
            [(0, "0 B"), (1023, "1023 B"), (1024, "1.00 KiB"), (15 << 20, "15.0 MiB"), (3 << 37, "384 GiB")]
        {
            assert_eq!(human(bytes), text);
        }
    }

    #[test]
    fn json_is_found_in_arguments_that_do_not_parse() {
        let of = |args: &[&str]| json_of(args.iter().map(OsString::from));
        assert_eq!(of(&["symm", "bench", "--nope", "--json", "-"]), Some(PathBuf::from("-")));
        assert_eq!(of(&["symm", "bench", "--json=x", "--nope"]), Some(PathBuf::from("x")));
        assert_eq!(of(&["symm", "bench", "--nope"]), None);
    }
}
