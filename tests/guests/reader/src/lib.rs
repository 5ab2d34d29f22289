//! A plugin whose manifest and queries are data that whoever uses it writes over two placeholders in its bytes, so that a
//! thousand small plugins with kinds of their own come out of one build. It reports one status whatever it has read: a
//! change of what it reads costs calls and no writes.
//!
//! It implements the contract itself, because the SDK's macros derive the manifest that is written here.

use std::hint::black_box;

use mortise_sdk::__private::bindings;

use bindings::exports::mortise::plugin::reconciler::{Failure, Guest, Outcome};
use bindings::mortise::host::cluster::{Query, Snapshot};
use bindings::mortise::host::config;
use bindings::mortise::plugin::desired::{Condition, ConditionStatus};

/// Longest manifest.
const MANIFEST_BYTES: usize = 4096;
/// Longest list of kinds.
const KINDS_BYTES: usize = 256;

/// The manifest.
static MANIFEST: [u8; MANIFEST_BYTES] = placeholder(b"<the manifest>");
/// What is listed when the configuration says so: an apiVersion and a kind a line.
static KINDS: [u8; KINDS_BYTES] = placeholder(b"<the kinds>");
/// The fields of every query; a heartbeat is in none of them.
const FIELDS: [&str; 2] = ["metadata.name", "spec.unschedulable"];

/// Blanks behind the marker: zeros would be left out of the component, and blanks end a text as well.
const fn placeholder<const N: usize>(marker: &[u8]) -> [u8; N] {
    let mut bytes = [b' '; N];
    let mut at = 0;
    while at < marker.len() {
        bytes[at] = marker[at];
        at += 1;
    }
    bytes
}

/// The text in a placeholder; what stood there at build time must not be taken for what stands there now.
fn text(placeholder: &'static [u8]) -> &'static str {
    std::str::from_utf8(black_box(placeholder)).map_or("", str::trim)
}

struct Reader;

impl Guest for Reader {
    fn manifest() -> String {
        text(&MANIFEST).to_owned()
    }

    fn reconcile(_object: String, view: Snapshot) -> Result<Outcome, Failure> {
        if config::get().contains("\"lists\":true") {
            for line in text(&KINDS).lines() {
                let Some((api_version, kind)) = line.split_once(' ') else { continue };
                let query = Query {
                    api_version: api_version.to_owned(),
                    kind: kind.to_owned(),
                    namespace: None,
                    selector: None,
                    field_selector: Vec::new(),
                    fields: FIELDS.map(str::to_owned).to_vec(),
                    limit: None,
                };
                black_box(view.list(&query).map_err(|_| Failure::Retry(["list ", line].concat()))?);
            }
        }
        let ready = Condition {
            name: "Ready".to_owned(),
            status: ConditionStatus::True,
            reason: "Read".to_owned(),
            message: String::new(),
        };
        Ok(Outcome {
            children: None,
            actions: Vec::new(),
            status: Some(r#"{"phase":"Read"}"#.to_owned()),
            conditions: vec![ready],
            events: Vec::new(),
            requeue_after_ms: None,
            finalized: false,
        })
    }
}

bindings::export_component!(Reader);
