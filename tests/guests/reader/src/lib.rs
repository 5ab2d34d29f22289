//! A plugin whose manifest and queries a benchmark writes over two placeholders in its bytes, so that one build makes a
//! thousand small plugins with kinds of their own. Its status does not depend on what it reads: a change there costs
//! calls and no writes.
//!
//! It implements the contract itself, since the SDK's macros would derive the manifest.

use std::hint::black_box;

use mortise_sdk::__private::bindings;

use bindings::exports::mortise::plugin::reconciler::{Failure, Guest, Outcome};
use bindings::mortise::host::cluster::{Query, Snapshot};
use bindings::mortise::host::config;
use bindings::mortise::plugin::desired::{Condition, ConditionStatus};

const MANIFEST_BYTES: usize = 4096;
const KINDS_BYTES: usize = 256;

static MANIFEST: [u8; MANIFEST_BYTES] = placeholder(b"<the manifest>");
/// The kinds to list if the configuration says so: one line of apiVersion and kind each.
static KINDS: [u8; KINDS_BYTES] = placeholder(b"<the kinds>");
/// The fields of every query; a heartbeat changes none of them.
const FIELDS: [&str; 2] = ["metadata.name", "spec.unschedulable"];

/// Padded with blanks, since the component would not contain zeros, and `trim` removes blanks.
const fn placeholder<const N: usize>(marker: &[u8]) -> [u8; N] {
    let mut bytes = [b' '; N];
    let mut at = 0;
    while at < marker.len() {
        bytes[at] = marker[at];
        at += 1;
    }
    bytes
}

/// The text in a placeholder. black_box: the compiler must not assume the bytes of the build.
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
                    namespaces: Vec::new(),
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
            requests: Vec::new(),
        })
    }
}

bindings::export_component!(Reader);
