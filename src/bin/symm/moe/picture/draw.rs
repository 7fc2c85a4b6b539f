//! Marks, text and colours of the picture. Lengths are pixels, the origin is at the top left.

use svg::node::element::{Line, Rectangle, Text, Title};
use svg::{Document, Node};

/// What a text is.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Style {
    Title,
    /// Head of a panel.
    Head,
    Normal,
    /// Explains.
    Quiet,
    /// In a cell or on a bar that is dark.
    Inverse,
}

/// Where a text is relative to its point.
#[derive(Clone, Copy)]
pub(super) enum Anchor {
    Start,
    Middle,
    End,
}

pub(super) const INK: &str = "#1f2933";
pub(super) const QUIET: &str = "#5f6c7b";
pub(super) const RULE: &str = "#d5dbe3";
/// Bars of PEs with even and odd numbers.
pub(super) const PES: [&str; 2] = ["#2f6fb5", "#7fb2e5"];
/// What asks for attention: the mean, the ceiling.
pub(super) const MARK: &str = "#d1495b";

pub(super) struct Canvas {
    document: Document,
}

impl Canvas {
    pub(super) fn new(width: f64, height: f64) -> Self {
        let document = Document::new()
            .set("viewBox", (0, 0, width, height))
            .set("width", width)
            .set("height", height)
            .set("font-family", "Inter, 'Helvetica Neue', Helvetica, Arial, 'DejaVu Sans', sans-serif")
            .add(Rectangle::new().set("width", width).set("height", height).set("fill", "#ffffff"));
        Canvas { document }
    }

    fn add(&mut self, node: impl Into<Box<dyn Node>>) {
        self.document.append(node);
    }

    pub(super) fn text(&mut self, x: f64, y: f64, text: &str, style: Style) {
        self.text_at((x, y), text, style, Anchor::Start);
    }

    pub(super) fn text_at(&mut self, (x, y): (f64, f64), text: &str, style: Style, anchor: Anchor) {
        let (size, weight, fill) = match style {
            Style::Title => (24, 600, INK),
            Style::Head => (16, 600, INK),
            Style::Normal => (13, 400, INK),
            Style::Quiet => (13, 400, QUIET),
            Style::Inverse => (13, 400, "#ffffff"),
        };
        let anchor = match anchor {
            Anchor::Start => "start",
            Anchor::Middle => "middle",
            Anchor::End => "end",
        };
        let node = Text::new(text)
            .set("x", round(x))
            .set("y", round(y))
            .set("font-size", size)
            .set("font-weight", weight)
            .set("fill", fill)
            .set("text-anchor", anchor);
        self.add(node);
    }

    /// A text that runs upwards, its middle at the point.
    pub(super) fn text_up(&mut self, (x, y): (f64, f64), text: &str) {
        let node = Text::new(text)
            .set("transform", format!("translate({} {}) rotate(-90)", round(x), round(y)))
            .set("font-size", 13)
            .set("fill", QUIET)
            .set("text-anchor", "middle");
        self.add(node);
    }

    /// A filled rectangle; `says` is shown by viewers that point at it.
    pub(super) fn rectangle(&mut self, at: (f64, f64), (width, height): (f64, f64), fill: &str, says: &str) {
        let node = Rectangle::new()
            .set("x", round(at.0))
            .set("y", round(at.1))
            .set("width", round(width.max(0.0)))
            .set("height", round(height.max(0.0)))
            .set("fill", fill)
            .add(Title::new(says));
        self.add(node);
    }

    /// The border of a rectangle.
    pub(super) fn outline(&mut self, at: (f64, f64), (width, height): (f64, f64)) {
        let node = Rectangle::new()
            .set("x", round(at.0))
            .set("y", round(at.1))
            .set("width", round(width))
            .set("height", round(height))
            .set("fill", "none")
            .set("stroke", RULE);
        self.add(node);
    }

    /// The dashed border of a square.
    pub(super) fn dashes(&mut self, at: (f64, f64), side: f64, stroke: &str) {
        let node = Rectangle::new()
            .set("x", round(at.0))
            .set("y", round(at.1))
            .set("width", round(side))
            .set("height", round(side))
            .set("fill", "none")
            .set("stroke", stroke)
            .set("stroke-width", if side > 20.0 { 1.5 } else { 0.7 })
            .set("stroke-dasharray", if side > 20.0 { "5 4" } else { "2 1.5" });
        self.add(node);
    }

    pub(super) fn line(&mut self, from: (f64, f64), to: (f64, f64), stroke: &str, width: f64) {
        let node = Line::new()
            .set("x1", round(from.0))
            .set("y1", round(from.1))
            .set("x2", round(to.0))
            .set("y2", round(to.1))
            .set("stroke", stroke)
            .set("stroke-width", width);
        self.add(node);
    }

    pub(super) fn finish(self) -> String {
        format!("{}\n", self.document)
    }
}

/// A tenth of a pixel is enough, and keeps files small.
fn round(x: f64) -> f64 {
    (x * 10.0).round() / 10.0
}

/// From white to dark blue, for a share from 0 to 1; and whether text on it must be light.
pub(super) fn shade(share: f64) -> (String, bool) {
    const STOPS: [[f64; 3]; 4] =
        [[244.0, 247.0, 251.0], [166.0, 201.0, 236.0], [58.0, 122.0, 190.0], [11.0, 53.0, 107.0]];
    let at = share.clamp(0.0, 1.0) * (STOPS.len() - 1) as f64;
    let low = (at as usize).min(STOPS.len() - 2);
    let mix = |k: usize| STOPS[low][k] + (STOPS[low + 1][k] - STOPS[low][k]) * (at - low as f64);
    let [r, g, b] = [0, 1, 2].map(|k| mix(k).round());
    (format!("#{:02x}{:02x}{:02x}", r as u8, g as u8, b as u8), share > 0.55)
}

/// A whole number with a comma before every three digits.
pub(super) fn count(n: u64) -> String {
    let digits = n.to_string();
    let mut text = String::new();
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Bytes, in units of 1000, with three digits.
pub(super) fn bytes(n: f64) -> String {
    scaled(n, &["B", "kB", "MB", "GB", "TB"])
}

/// A time given in µs, with three digits.
pub(super) fn time(us: f64) -> String {
    scaled(us, &["µs", "ms", "s"])
}

fn scaled(mut value: f64, units: &[&str]) -> String {
    let mut unit = 0;
    while value >= 999.5 && unit + 1 < units.len() {
        value /= 1000.0;
        unit += 1;
    }
    let whole = unit == 0 && value.fract() == 0.0;
    let number = if whole { format!("{value:.0}") } else { figure(value) };
    format!("{number} {}", units[unit])
}

/// Three digits.
pub(super) fn figure(value: f64) -> String {
    let digits = if value >= 99.95 { 0 } else { 2 - usize::from(value >= 9.995) };
    format!("{value:.digits$}")
}

/// The unit in which so many bytes have up to three digits before the point, and its bytes.
pub(super) fn unit(bytes: f64) -> (f64, &'static str) {
    let units = [(1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB")];
    units.into_iter().find(|(scale, _)| bytes >= *scale).unwrap_or((1.0, "Bytes"))
}

/// [`time`] of a mark of an axis: without zeros that say nothing.
pub(super) fn mark(us: f64) -> String {
    let text = time(us);
    match text.split_once(' ') {
        Some((number, unit)) if number.contains('.') => {
            format!("{} {unit}", number.trim_end_matches('0').trim_end_matches('.'))
        }
        _ => text,
    }
}

/// A round number of which about `marks` make up `most`.
pub(super) fn tick(most: f64, marks: f64) -> f64 {
    if most <= 0.0 {
        return 1.0;
    }
    let power = 10f64.powf((most / marks).log10().floor());
    let step = [1.0, 2.0, 5.0, 10.0].into_iter().map(|s| s * power).find(|s| most / s <= marks);
    step.unwrap_or(power)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_have_three_digits() {
        assert_eq!(
            (bytes(0.0), bytes(999.0), bytes(1000.0)),
            ("0 B".into(), "999 B".into(), "1.00 kB".into())
        );
        assert_eq!(
            (bytes(123_456_789.0), time(41.5), time(12_345.0)),
            ("123 MB".into(), "41.5 µs".into(), "12.3 ms".into())
        );
        assert_eq!(
            (count(1), count(1000), count(1_234_567)),
            ("1".into(), "1,000".into(), "1,234,567".into())
        );
    }

    #[test]
    fn marks_are_round_numbers() {
        assert_eq!((tick(100.0, 5.0), tick(1234.0, 5.0), tick(7.0, 5.0)), (20.0, 500.0, 2.0));
        assert_eq!(tick(0.0, 5.0), 1.0);
        assert_eq!(
            (mark(20_000.0), mark(2500.0), mark(300.0)),
            ("20 ms".into(), "2.5 ms".into(), "300 µs".into())
        );
    }

    #[test]
    fn shades_go_from_light_to_dark() {
        assert_eq!((shade(0.0).0.as_str(), shade(1.0).0.as_str()), ("#f4f7fb", "#0b356b"));
        assert!(!shade(0.3).1 && shade(0.9).1);
    }
}
