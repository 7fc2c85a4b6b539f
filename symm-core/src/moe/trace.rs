//! Routing traces: JSON lines, as route loggers of inference engines write them.

use std::io::{BufRead, Read};

use serde_json::{Map, Value};

/// Most experts a trace may have. Arrays have one entry for each expert, so one wild id must not decide their size.
pub const MAX_EXPERTS: usize = 1 << 20;

/// Longest line of a trace, in bytes: a file without line ends, such as a device, must not be read into memory for ever.
const MAX_LINE: usize = 64 << 20;

/// How a router sent n tokens of one layer to E experts, k choices a token.
#[derive(Clone, Debug, PartialEq)]
pub struct Trace {
    /// n: lines of the layer, in the order of the file; a token that occurs twice counts twice.
    pub tokens: usize,
    /// k, 1 or more.
    pub top_k: usize,
    /// E: `num_experts` of the metadata, else the largest id plus one.
    pub experts: usize,
    /// `[n, k]` ids, −1 for a choice not made.
    pub ids: Vec<i32>,
    /// `[n, k]` weights, finite and 0 or more; 1/k where a line has none.
    pub weights: Vec<f32>,
    /// Row length that the metadata name.
    pub hidden: Option<usize>,
    /// The layer.
    pub layer: i64,
}

/// A trace that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{file}:{line}: {field}: {message}")]
pub struct TraceError {
    /// Name given to [`Trace::parse`].
    pub file: String,
    /// Line, counted from 1; for what the whole file lacks, its last.
    pub line: usize,
    /// Field at fault; `line` if a line is no JSON object and no field can be named.
    pub field: String,
    /// What is wrong.
    pub message: String,
}

/// An error before the file's name and the line are known.
struct Problem {
    field: String,
    message: String,
}

fn problem<T>(field: &str, message: impl Into<String>) -> Result<T, Problem> {
    Err(Problem { field: field.to_owned(), message: message.into() })
}

impl Trace {
    /// Reads a trace. `name` stands in errors.
    ///
    /// Lines of type `meta` (before the routes) may give `num_experts`, `hidden` and a default `layer`; lines of type
    /// `route` have `topk_ids`, `layer` and perhaps `topk_weights`. Blank lines, other types and other fields are
    /// ignored. `layer` selects one layer and must be given if the file has several; routes of other layers are
    /// skipped before the number and range of their ids are looked at.
    ///
    /// # Errors
    /// The first line that breaks a rule: broken JSON (NaN included), more than 64 MiB, a field that is missing or of another type, an
    /// id below −1 or not below `num_experts`, another number of ids than the layer's first line, another number of weights
    /// than ids, a weight that is negative or not finite. For the whole file: no routes, no routes of `layer`,
    /// several layers without `layer`.
    pub fn parse(name: &str, mut text: impl BufRead, layer: Option<i64>) -> Result<Trace, TraceError> {
        let mut reader = Reader::new(layer);
        let mut bytes = Vec::new();
        let mut line = 0;
        let error = |line: usize, p: Problem| TraceError {
            file: name.to_owned(),
            line: line.max(1),
            field: p.field,
            message: p.message,
        };
        loop {
            bytes.clear();
            match text.by_ref().take(MAX_LINE as u64 + 1).read_until(b'\n', &mut bytes) {
                Ok(0) => break,
                Ok(n) if n > MAX_LINE => {
                    let message = format!("is longer than {MAX_LINE} bytes");
                    return Err(error(line + 1, Problem { field: "line".to_owned(), message }));
                }
                Ok(_) => line += 1,
                Err(e) => {
                    return Err(error(
                        line + 1,
                        Problem { field: "line".to_owned(), message: e.to_string() },
                    ));
                }
            }
            reader.line(line, &bytes).map_err(|p| error(line, p))?;
        }
        reader.finish(line).map_err(|(line, p)| error(line, p))
    }
}

/// What has been read so far.
struct Reader {
    wanted: Option<i64>,
    /// Layers seen, each with its first line, in the order of the file.
    layers: Vec<(i64, usize)>,
    meta_layer: Option<i64>,
    num_experts: Option<usize>,
    hidden: Option<usize>,
    top_k: usize,
    ids: Vec<i32>,
    weights: Vec<f32>,
    largest: i32,
}

impl Reader {
    fn new(wanted: Option<i64>) -> Self {
        Reader {
            wanted,
            layers: Vec::new(),
            meta_layer: None,
            num_experts: None,
            hidden: None,
            top_k: 0,
            ids: Vec::new(),
            weights: Vec::new(),
            largest: -1,
        }
    }

    fn line(&mut self, line: usize, bytes: &[u8]) -> Result<(), Problem> {
        if bytes.trim_ascii().is_empty() {
            return Ok(());
        }
        // Without the line's end, so that JSON which stops too early does so in this line.
        let bytes = bytes.trim_ascii_end();
        let value: Value = serde_json::from_slice(bytes).map_err(|e| {
            let text = e.to_string();
            let (cause, column) = (text.split(" at line ").next().unwrap_or_default(), e.column());
            Problem {
                field: field_before(bytes, column)
                    .filter(|field| !field.is_empty())
                    .unwrap_or_else(|| "line".to_owned()),
                message: format!("broken JSON: {cause} at column {column}"),
            }
        })?;
        let Value::Object(object) = value else { return problem("line", "expected a JSON object") };
        match object.get("type") {
            Some(Value::String(kind)) if kind == "meta" => self.meta(&object),
            Some(Value::String(kind)) if kind == "route" => self.route(line, &object),
            Some(Value::String(_)) => Ok(()),
            Some(other) => problem("type", format!("is {other}, expected a string")),
            None => problem("type", "missing"),
        }
    }

    fn meta(&mut self, object: &Map<String, Value>) -> Result<(), Problem> {
        if let Some(experts) = count(object, "num_experts")? {
            if experts > MAX_EXPERTS {
                return problem("num_experts", format!("is {experts}, at most {MAX_EXPERTS} are supported"));
            }
            match self.num_experts {
                Some(known) if known != experts => {
                    return problem("num_experts", format!("is {experts}, earlier metadata have {known}"));
                }
                None if !self.layers.is_empty() => {
                    return problem("num_experts", "must come before the first route");
                }
                _ => self.num_experts = Some(experts),
            }
        }
        if let Some(hidden) = count(object, "hidden")? {
            self.hidden = Some(hidden);
        }
        if let Some(layer) = integer(object, "layer")? {
            self.meta_layer = Some(layer);
        }
        Ok(())
    }

    fn route(&mut self, line: usize, object: &Map<String, Value>) -> Result<(), Problem> {
        let Some(layer) = integer(object, "layer")?.or(self.meta_layer) else {
            return problem("layer", "missing, and the metadata name none");
        };
        if !self.layers.iter().any(|(known, _)| *known == layer) {
            self.layers.push((layer, line));
        }
        // Without a wanted layer the first one is read; that there are others is told at the end, with all of them.
        if self.wanted.or(self.layers.first().map(|(first, _)| *first)) != Some(layer) {
            return Ok(());
        }
        let ids = array(object, "topk_ids")?;
        let Some(ids) = ids else { return problem("topk_ids", "missing") };
        if ids.is_empty() {
            return problem("topk_ids", "is empty, expected one id or more");
        }
        if self.top_k == 0 {
            self.top_k = ids.len();
        } else if ids.len() != self.top_k {
            return problem("topk_ids", format!("has {} ids, earlier lines have {}", ids.len(), self.top_k));
        }
        for id in ids {
            let id = self.id(id)?;
            self.largest = self.largest.max(id);
            self.ids.push(id);
        }
        match array(object, "topk_weights")? {
            None => {
                let equal = 1.0 / self.top_k as f32;
                self.weights.extend(std::iter::repeat_n(equal, self.top_k));
            }
            Some(weights) if weights.len() != self.top_k => {
                return problem(
                    "topk_weights",
                    format!("has {} weights for {} ids", weights.len(), self.top_k),
                );
            }
            Some(weights) => {
                for weight in weights {
                    self.weights.push(parse_weight(weight)?);
                }
            }
        }
        Ok(())
    }

    fn id(&self, value: &Value) -> Result<i32, Problem> {
        let limit = self.num_experts.unwrap_or(MAX_EXPERTS);
        if !value.is_i64() && !value.is_u64() {
            return problem("topk_ids", format!("holds {value}, expected integers"));
        }
        value
            .as_i64()
            .filter(|id| *id >= -1 && *id < limit as i64)
            .and_then(|id| i32::try_from(id).ok())
            .map_or_else(|| problem("topk_ids", format!("holds {value}, expected -1 to {}", limit - 1)), Ok)
    }

    fn finish(self, lines: usize) -> Result<Trace, (usize, Problem)> {
        let list = || self.layers.iter().map(|(l, _)| l.to_string()).collect::<Vec<_>>().join(", ");
        let at =
            |line, field: &str, message: String| Err((line, Problem { field: field.to_owned(), message }));
        let layer = match (self.wanted, self.layers.as_slice()) {
            (_, []) => return at(lines, "route", "the file has no routes".to_owned()),
            (None, [(layer, _)]) => *layer,
            (None, [_, (_, second), ..]) => {
                return at(*second, "layer", format!("several layers, choose one of {}", list()));
            }
            (Some(layer), layers) if layers.iter().any(|(known, _)| *known == layer) => layer,
            (Some(layer), _) => {
                return at(lines, "layer", format!("no routes of layer {layer}; there are {}", list()));
            }
        };
        // `largest` is -1 if no token chose an expert, so the sum is 0 or more.
        let experts = self.num_experts.unwrap_or(self.largest.saturating_add(1).unsigned_abs() as usize);
        if experts == 0 {
            return at(lines, "topk_ids", "no token chose an expert and there is no num_experts".to_owned());
        }
        Ok(Trace {
            tokens: self.ids.len() / self.top_k,
            top_k: self.top_k,
            experts,
            ids: self.ids,
            weights: self.weights,
            hidden: self.hidden,
            layer,
        })
    }
}

/// A field that holds a count of 1 or more; null is absent.
fn count(object: &Map<String, Value>, field: &str) -> Result<Option<usize>, Problem> {
    match object.get(field) {
        None | Some(Value::Null) => Ok(None),
        Some(value) => match value.as_u64().and_then(|n| usize::try_from(n).ok()) {
            Some(n) if n > 0 => Ok(Some(n)),
            _ => problem(field, format!("is {value}, expected an integer of 1 or more")),
        },
    }
}

/// A field that holds an integer; null is absent.
fn integer(object: &Map<String, Value>, field: &str) -> Result<Option<i64>, Problem> {
    match object.get(field) {
        None | Some(Value::Null) => Ok(None),
        Some(value) => value
            .as_i64()
            .map_or_else(|| problem(field, format!("is {value}, expected an integer")), |n| Ok(Some(n))),
    }
}

/// A field that holds an array; null is absent.
fn array<'a>(object: &'a Map<String, Value>, field: &str) -> Result<Option<&'a Vec<Value>>, Problem> {
    match object.get(field) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::Array(values)) => Ok(Some(values)),
        Some(other) => problem(field, format!("is {other}, expected an array")),
    }
}

fn parse_weight(value: &Value) -> Result<f32, Problem> {
    let Some(number) = value.as_f64() else {
        return problem("topk_weights", format!("holds {value}, expected numbers"));
    };
    // The nearest f32; what is too large for one becomes infinite and is refused with the rest.
    let weight = number as f32;
    if weight.is_finite() && weight >= 0.0 {
        Ok(weight)
    } else {
        problem("topk_weights", format!("holds {value}, expected finite f32 of 0 or more"))
    }
}

/// The field in whose value a JSON error at `column` (from 1) lies: the last string before it that a colon follows.
fn field_before(line: &[u8], column: usize) -> Option<String> {
    let text = String::from_utf8_lossy(line.get(..column.min(line.len()))?).into_owned();
    let mut field = None;
    let mut parts = text.split('"').skip(1);
    while let (Some(string), Some(after)) = (parts.next(), parts.next()) {
        if after.trim_start().starts_with(':') {
            field = Some(string.to_owned());
        }
    }
    field
}
