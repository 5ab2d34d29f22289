//! A guest that does what a host must survive: `spec.mode` selects the misbehaviour. `ok` behaves, so that a test can
//! see that the host still works.

use std::collections::BTreeMap;
use std::time::Duration;

use mortise_sdk::info;
use mortise_sdk::prelude::*;

/// Misbehaves by its mode.
#[derive(CustomResource, Serialize, Deserialize, JsonSchema, Clone, Debug)]
#[resource(group = "test.mortise.dev", version = "v1", kind = "Hostile", plural = "hostiles", status = HostileStatus)]
pub struct HostileSpec {
    /// The misbehaviour.
    pub mode: Mode,
    /// Of `fill`: the size of the status, and of the child.
    #[serde(default)]
    pub bytes: u32,
}

/// The last result.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug)]
pub struct HostileStatus {
    /// The mode of the last call that returned.
    pub mode: Mode,
    /// Of `fill`: maps with an empty key each, a tree of which takes a hundred times their text.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub filling: Vec<BTreeMap<String, u8>>,
}

/// The modes.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Copy, PartialEq, Eq, Debug)]
#[serde(rename_all = "kebab-case")]
pub enum Mode {
    /// Behaves: one ConfigMap.
    Ok,
    /// Never returns.
    Loop,
    /// Allocates 4 GiB.
    Alloc,
    /// Panics.
    Trap,
    /// Recurses without end.
    Stack,
    /// Calls the host without end.
    Hostcalls,
    /// Returns 64 MB.
    Output,
    /// Logs without end.
    LogFlood,
    /// Sets owner references.
    OwnerReferences,
    /// Returns a child in another namespace.
    OtherNamespace,
    /// Returns a child of a kind that it does not own.
    OtherKind,
    /// Returns a child with an invalid name.
    InvalidName,
    /// Returns a child twice.
    DuplicateChild,
    /// Returns a child that is not JSON.
    InvalidJson,
    /// Returns a child that is not UTF-8.
    InvalidUtf8,
    /// Reads a kind that it does not declare.
    UndeclaredRead,
    /// Breaks no rule, and fills every bound with the content that costs most, each second.
    Fill,
    /// Fails with a retry.
    Retry,
    /// Fails terminally.
    Terminal,
}

/// Bytes of the outcome of `output`. The memory limit below allows them.
const OUTPUT_BYTES: usize = 64_000_000;

#[reconciler(owns("v1/ConfigMap"), limits(memory_bytes = 268435456))]
fn reconcile(object: &Hostile, cx: &Context) -> Result<Outcome<HostileStatus>, Failure> {
    let mode = object.spec.mode;
    match mode {
        Mode::Ok => {
            Ok(one(json!({})).status(&HostileStatus { mode, filling: Vec::new() }).ready(true, "Ok", "it behaves"))
        }
        Mode::Loop => spin(),
        Mode::Alloc => Err(Failure::terminal(allocate().to_string())),
        Mode::Trap => panic!("it traps because spec.mode is trap"),
        Mode::Stack => Err(Failure::terminal(recurse(0).to_string())),
        Mode::Hostcalls => call_without_end(cx),
        Mode::Output => Ok(Outcome::children([Child::new("config", Json::raw(long_object()))])),
        Mode::LogFlood => log_without_end(),
        Mode::OwnerReferences => Ok(one(json!({"ownerReferences": [
            {"apiVersion": "v1", "kind": "ConfigMap", "name": "somebody", "uid": "6e5c7c8e-0000-4000-8000-000000000000"},
        ]}))),
        Mode::OtherNamespace => Ok(one(json!({"namespace": "kube-system"}))),
        Mode::OtherKind => Ok(Outcome::children([Child::new("secret", json!({"apiVersion": "v1", "kind": "Secret"}))])),
        Mode::InvalidName => Ok(one(json!({"name": "Not/A Name"}))),
        Mode::DuplicateChild => Ok(Outcome::children([config(json!({})), config(json!({}))])),
        Mode::InvalidJson => Ok(Outcome::children([Child::new("config", Json::raw("{\"apiVersion\":\"v1\","))])),
        Mode::InvalidUtf8 => Ok(Outcome::children([Child::new("config", Json::raw(invalid_utf8()))])),
        Mode::UndeclaredRead => {
            let secrets: Vec<Object> = cx.list(&Query::of_kind("v1", "Secret"))?;
            Ok(Outcome::new().ready(true, "Read", secrets.len().to_string()))
        }
        Mode::Fill => fill(object, cx),
        Mode::Retry => Err(Failure::retry("it fails for now because spec.mode is retry")),
        Mode::Terminal => Err(Failure::terminal("it fails for good because spec.mode is terminal")),
    }
}

/// Reads of one call, as many as the host remembers, each with so long a selector that they have the 512 KiB that it keeps.
const QUERIES: usize = 1_000;
const SELECTOR_BYTES: usize = 500;
/// Lines of one call, as many as the host takes.
const LINES: usize = 100;
/// Events of one call, as many as the host takes.
const EVENTS: usize = 16;
/// The longest name of an object, and the longest message of an Event.
const NAME_BYTES: usize = 253;
const MESSAGE_BYTES: usize = 1_024;

fn fill(object: &Hostile, cx: &Context) -> Result<Outcome<HostileStatus>, Failure> {
    let (mode, bytes, now) = (object.spec.mode, object.spec.bytes as usize, cx.now_unix_ms());
    let name = object.metadata.name.as_str();
    let longest = format!("{}/", ["d"; 126].join("."));
    for number in 0..QUERIES {
        let first = format!("{name}-{number}={}", "v".repeat(63));
        let selector = format!("{first},{longest}{first}").chars().take(SELECTOR_BYTES).collect::<String>();
        cx.count(&Query::<Object>::of_kind("v1", "ConfigMap").selector(selector))?;
    }
    for line in 0..LINES {
        info!("line {line} of {name}: {}", "x".repeat(1_000));
    }
    let filling = vec![BTreeMap::from([(String::new(), 0)]); bytes / r#"{"":0},"#.len()];
    let data: BTreeMap<String, &str> =
        (0..bytes / r#""k00000":"","#.len()).map(|key| (format!("k{key:05}"), "")).collect();
    let child = Child::new("config", json!({"apiVersion": "v1", "kind": "ConfigMap", "data": data}));
    let mut outcome = Outcome::children([child]).status(&HostileStatus { mode, filling });
    for number in 0..EVENTS {
        let about = format!("{number}-{now}-");
        let message = format!("{about}{}", "m".repeat(MESSAGE_BYTES - about.len()));
        let long = format!("{about}{}", "n".repeat(NAME_BYTES - about.len()));
        let regarding = ObjectKey::new("v1", "ConfigMap", object.metadata.namespace.as_deref(), &long);
        outcome = outcome.event(Event::warning("Full", message).regarding(regarding));
    }
    Ok(outcome.requeue_after(Duration::from_secs(1)))
}

fn config(metadata: Value) -> Child {
    let object = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"from": "hostile"}});
    Child::new("config", &object)
}

fn one(metadata: Value) -> Outcome<HostileStatus> {
    Outcome::children([config(metadata)])
}

fn spin() -> ! {
    loop {
        std::hint::spin_loop();
    }
}

/// More than a 32-bit memory in total, in blocks that fit.
fn allocate() -> usize {
    let blocks: Vec<Vec<u8>> = (0..64).map(|block| vec![block; 64 << 20]).collect();
    std::hint::black_box(blocks).len()
}

fn recurse(depth: u64) -> u64 {
    let frame = std::hint::black_box([depth; 64]);
    if frame[0] == u64::MAX { 0 } else { frame[1] + std::hint::black_box(recurse(frame[2] + 1)) }
}

fn call_without_end(cx: &Context) -> ! {
    loop {
        std::hint::black_box(cx.now_unix_ms());
    }
}

fn log_without_end() -> ! {
    for line in 0_u64.. {
        info!("line {line} of a flood: {}", "x".repeat(200));
    }
    spin()
}

fn long_object() -> String {
    let (head, tail) = ("{\"apiVersion\":\"v1\",\"kind\":\"ConfigMap\",\"data\":{\"long\":\"", "\"}}");
    let mut text = String::with_capacity(OUTPUT_BYTES);
    text.push_str(head);
    text.extend(std::iter::repeat_n('x', OUTPUT_BYTES - head.len() - tail.len()));
    text.push_str(tail);
    text
}

#[expect(unsafe_code, reason = "a guest written in another language may return any bytes")]
fn invalid_utf8() -> String {
    // SAFETY: unsound on purpose; the string is returned to the host and never read here.
    unsafe { String::from_utf8_unchecked(b"{\"apiVersion\":\"v1\",\"kind\":\"\xff\xfe\"}".to_vec()) }
}
