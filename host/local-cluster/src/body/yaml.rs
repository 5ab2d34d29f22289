//! YAML as the API server reads it. Input: bytes. Output: a value, with what a strict reading says of keys that are there
//! twice. It must not know requests.

use serde_json::Value;

use super::json::{self, Document};

/// What the errors of Go's conversion to JSON begin with.
pub(super) const CONVERTING: &str = "error converting YAML to JSON: ";

/// Reads one document; of keys that are there twice, the last counts. The faults are in the words of Go's YAML decoder.
pub(super) fn read(bytes: &[u8]) -> Result<(Document, Vec<String>), String> {
    if let Ok(document) = json::read(bytes) {
        let faults = twice(document.duplicates.iter().map(|path| {
            let name = path.rsplit('.').next().unwrap_or_default();
            // All lines of JSON that clients send are the first.
            (1, name.to_owned())
        }));
        return Ok((Document { value: document.value, duplicates: Vec::new() }, faults));
    }
    let text = std::str::from_utf8(bytes).map_err(|_| "yaml: control characters are not allowed".to_owned())?;
    let text = first_document(text);
    let lenient = serde_saphyr::options! { duplicate_keys: serde_saphyr::DuplicateKeyPolicy::LastWins };
    let strict: Result<Value, _> = serde_saphyr::from_str(text);
    let (value, faults) = match strict {
        Ok(value) => (value, Vec::new()),
        Err(strict) => {
            let value: Result<Value, _> = serde_saphyr::from_str_with_options(text, lenient);
            let line = strict.location().map_or(1, |location| location.line());
            let words = |error: &serde_saphyr::Error| {
                let text = error.to_string();
                let first = text.lines().next().unwrap_or_default().to_owned();
                format!("{CONVERTING}yaml: line {line}: {first}")
            };
            let value = value.map_err(|error| words(&error))?;
            let name = text.lines().nth(usize::try_from(line).unwrap_or(1).saturating_sub(1)).unwrap_or_default();
            let name = name.trim_start_matches(['-', ' ']).split(':').next().unwrap_or_default().to_owned();
            (value, twice(std::iter::once((line, name))))
        }
    };
    Ok((Document { value, duplicates: Vec::new() }, faults))
}

/// Of several documents, Go's decoder reads the first that has something in it.
fn first_document(text: &str) -> &str {
    let says = |line: &str| !line.trim().is_empty() && !line.starts_with(['#', '%']);
    let ends = text.match_indices("\n---").map(|(at, _)| at).find(|at| {
        let after = text[at + 4..].chars().next();
        after.is_none_or(char::is_whitespace) && text[..*at].lines().any(|line| says(line) && line.trim() != "---")
    });
    ends.map_or(text, |end| &text[..end])
}

/// The fault that Go's decoder makes of all keys that are there twice.
fn twice(keys: impl Iterator<Item = (u64, String)>) -> Vec<String> {
    let lines: Vec<String> =
        keys.map(|(line, name)| format!("  line {line}: key {name:?} already set in map")).collect();
    if lines.is_empty() {
        return Vec::new();
    }
    vec![format!("{CONVERTING}yaml: unmarshal errors:\n{}", lines.join("\n"))]
}
