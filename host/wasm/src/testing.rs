//! Guests in WebAssembly text for this crate's tests, compiled in process: the binary's tests run the compile child.

use std::sync::Arc;
use std::time::Duration;

use mortise_core::call::Check;
use mortise_core::digest;
use mortise_core::manifest::Manifest;
use mortise_core::object::{Interner, Kind, Object};
use mortise_core::refusal::Refusal;
use mortise_core::store::Snapshot;
use mortise_core::view::{Access, View};

use crate::compile::{Artifact, CompileError};
use crate::engine::{Engine, compiling};
use crate::plugin::Plugin;

/// The time of [`view`].
pub(crate) const NOW_UNIX_MS: u64 = 1_700_000_000_123;
/// The reconciled object of [`view`].
pub(crate) const OBJECT: &str = r#"{"apiVersion":"example.com/v1","kind":"Thing",
    "metadata":{"name":"a","namespace":"n","uid":"u-1","resourceVersion":"5"}}"#;

pub(crate) fn check() -> Check {
    let manifest = r#"{"apiVersion":"mortise.dev/v1alpha1","kind":"PluginManifest","name":"thing","version":"1",
        "controllers":[{"for":{"apiVersion":"example.com/v1","kind":"Thing"}}]}"#;
    let manifest = Manifest::parse(manifest).unwrap();
    Check {
        spec: Arc::new(manifest.controllers[0].clone()),
        reserved: None,
        before: None,
        manager: "mortise/test".into(),
        snapshot: Snapshot::default(),
    }
}

/// A component whose functions have these bodies, in core WebAssembly text. Both return a pointer into memory, which is
/// zero but for the manifest `{}` at 0 with its pointer and length at 8, the apiVersion and kind of [`OBJECT`] at 1024,
/// and a cron expression and a zone at 1048. A reconcile that returns 64 returns an empty outcome.
pub(crate) fn guest(manifest: &str, reconcile: &str) -> Vec<u8> {
    wat::parse_str(text_of("0.2.0", manifest, reconcile)).unwrap()
}

/// A component that does nothing.
pub(crate) fn idle_guest() -> Vec<u8> {
    idle_guest_of("0.2.0")
}

/// The same for a version of the contract.
pub(crate) fn idle_guest_of(version: &str) -> Vec<u8> {
    wat::parse_str(text_of(version, "i32.const 8", "i32.const 64")).unwrap()
}

/// The same with more text before its end.
pub(crate) fn idle_guest_with(more: &str) -> Vec<u8> {
    let text = text_of("0.2.0", "i32.const 8", "i32.const 64");
    let body = text.trim_end().strip_suffix(')').expect("the template is one component");
    wat::parse_str([body, more].concat()).unwrap()
}

pub(crate) fn text_of(version: &str, manifest: &str, reconcile: &str) -> String {
    TEMPLATE.replace("$VERSION", version).replace("$MANIFEST", manifest).replace("$RECONCILE", reconcile)
}

/// The body of a function that counts up to this number.
pub(crate) fn busy(loops: u32) -> String {
    format!(
        "(local $busy i32)
         (loop $l (br_if $l (i32.lt_u (local.tee $busy (i32.add (local.get $busy) (i32.const 1))) (i32.const {loops}))))"
    )
}

/// Runs this on one core, with threads that spin there meanwhile.
#[cfg(target_os = "linux")]
pub(crate) fn contended<R: Send>(threads: usize, run: impl FnOnce() -> R + Send) -> R {
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::thread;

    use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

    let allowed = sched_getaffinity(None).unwrap();
    let mut core = CpuSet::new();
    core.set((0..CpuSet::MAX_CPU).find(|core| allowed.is_set(*core)).expect("this thread has a core"));
    let on_core = || sched_setaffinity(None, &core).unwrap();
    let ended = AtomicBool::new(false);
    thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                on_core();
                while !ended.load(Ordering::Relaxed) {
                    std::hint::spin_loop();
                }
            });
        }
        let ran = scope.spawn(|| {
            on_core();
            run()
        });
        let ran = ran.join();
        ended.store(true, Ordering::Relaxed);
        ran.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

pub(crate) fn load(engine: &Engine, wasm: &[u8]) -> Result<Plugin, Refusal> {
    let code = compiling(engine.profile()).unwrap().precompile_component(wasm).unwrap();
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), code).unwrap();
    let file = Arc::new(file.reopen().unwrap());
    let loaded = engine.load(Artifact { digest: digest::of(wasm), file, cached: false, elapsed: Duration::ZERO });
    loaded.map_err(|error| match error {
        CompileError::Refused(refusal) => refusal,
        CompileError::Host { .. } => panic!("{error}"),
    })
}

/// [`OBJECT`], decoded.
pub(crate) fn object() -> Arc<Object> {
    Arc::new(Object::decode(OBJECT.as_bytes(), &mut Interner::default()).unwrap())
}

/// A view of nothing but [`OBJECT`].
pub(crate) fn view() -> View {
    view_of(&access())
}

/// Access to the kind of [`OBJECT`].
pub(crate) fn access() -> Arc<Access> {
    Arc::new(Access::new(vec![Kind::new("example.com/v1", "Thing")], 1 << 20))
}

/// The same view as [`view`] for another call of the same controller.
pub(crate) fn view_of(access: &Arc<Access>) -> View {
    let snapshot = Snapshot::of(&access.readable, []);
    View::new(snapshot, object(), Arc::clone(access), NOW_UNIX_MS, Arc::from(r#"{"color":"red"}"#))
}

const TEMPLATE: &str = r#"
(component
  (import "mortise:host/cluster@$VERSION" (instance $cluster
    (export "snapshot" (type $s (sub resource)))
    (type $e (variant (case "undeclared" string) (case "denied" string) (case "too-large" u64) (case "invalid" string)
      (case "not-served" string)))
    (export "access-error" (type $error (eq $e)))
    (export "[method]snapshot.owned" (func (param "self" (borrow $s)) (param "api-version" string)
      (param "kind" string) (param "fields" (list string)) (result (result string (error $error)))))))
  (import "mortise:host/clock@$VERSION" (instance $clock (export "now" (func (result u64)))))
  (import "mortise:host/schedule@$VERSION" (instance $schedule
    (export "next" (func (param "expression" string) (param "zone" string) (param "after" u64)
      (result (result (option u64) (error string)))))))
  (import "mortise:host/log@$VERSION" (instance $log
    (type $l (enum "trace" "debug" "info" "warn" "error"))
    (export "level" (type $level (eq $l)))
    (export "emit" (func
      (param "level" $level) (param "message" string) (param "fields" (list (tuple string string)))))))
  (import "wasi:random/insecure-seed@0.2.6" (instance $seed
    (export "insecure-seed" (func (result (tuple u64 u64))))))
  (import "mortise:plugin/desired@$VERSION" (instance $desired
    (type $key' (record (field "api-version" string) (field "kind" string) (field "namespace" (option string))
      (field "name" string)))
    (type $handling' (enum "managed" "create-once" "keep"))
    (export "handling" (type $handling (eq $handling')))
    (type $tls' (record (field "names" (list string)) (field "lifetime-seconds" u32)))
    (export "tls" (type $tls (eq $tls')))
    (type $recipe' (variant (case "alphanumeric" u32) (case "bytes" u32) (case "tls" $tls)))
    (export "recipe" (type $recipe (eq $recipe')))
    (type $generated' (record (field "at" string) (field "value" $recipe) (field "rotation" string)))
    (export "generated" (type $generated (eq $generated')))
    (type $child' (record (field "key" string) (field "object" string) (field "handling" $handling)
      (field "or-skip" bool) (field "adopt" bool) (field "group" u32) (field "exact" (list string))
      (field "generated" (list $generated))))
    (export "child" (type $child (eq $child')))
    (type $apply' (record (field "object" string) (field "force" bool)))
    (export "apply" (type $apply (eq $apply')))
    (export "object-key" (type $key (eq $key')))
    (type $patch-kind' (enum "merge" "json-patch" "strategic"))
    (export "patch-kind" (type $patch-kind (eq $patch-kind')))
    (type $patch' (record (field "target" $key) (field "kind" $patch-kind) (field "body" string)
      (field "subresource" (option string))))
    (export "patch" (type $patch (eq $patch')))
    (type $propagation' (enum "background" "foreground" "orphan"))
    (export "propagation" (type $propagation (eq $propagation')))
    (type $delete' (record (field "target" $key) (field "propagation" $propagation)))
    (export "delete" (type $delete (eq $delete')))
    (type $action' (variant (case "apply" $apply) (case "patch" $patch) (case "delete" $delete) (case "evict" $key)))
    (export "action" (type $action (eq $action')))
    (type $status' (enum "true" "false" "unknown"))
    (export "condition-status" (type $status (eq $status')))
    (type $condition' (record (field "name" string) (field "status" $status) (field "reason" string)
      (field "message" string)))
    (export "condition" (type $condition (eq $condition')))
    (type $severity' (enum "normal" "warning"))
    (export "severity" (type $severity (eq $severity')))
    (type $event' (record (field "severity" $severity) (field "reason" string) (field "message" string)
      (field "regarding" (option $key))))
    (export "event" (type $event (eq $event')))
    (type $method' (enum "get" "head" "post" "put" "patch" "delete"))
    (export "method" (type $method (eq $method')))
    (type $header' (record (field "name" string) (field "value" string)))
    (export "header" (type $header (eq $header')))
    (type $secret' (record (field "name" string) (field "prefix" string) (field "secret" string) (field "key" string)))
    (export "secret-header" (type $secret (eq $secret')))
    (type $request' (record (field "key" string) (field "method" $method) (field "url" string)
      (field "headers" (list $header)) (field "secret-headers" (list $secret)) (field "body" (list u8))
      (field "timeout-ms" (option u32)) (field "refresh-after-ms" (option u32))))
    (export "request" (type $request (eq $request')))
    (type $outcome' (record (field "children" (option (list $child))) (field "actions" (list $action))
      (field "status" (option string)) (field "conditions" (list $condition)) (field "events" (list $event))
      (field "requeue-after-ms" (option u32)) (field "finalized" bool) (field "requests" (list $request))))
    (export "outcome" (type (eq $outcome')))
    (type $failure' (variant (case "retry" string) (case "terminal" string)))
    (export "failure" (type (eq $failure')))))
  (alias export $cluster "snapshot" (type $snapshot))
  (alias export $desired "outcome" (type $outcome))
  (alias export $desired "failure" (type $failure))

  (core module $libc
    (memory (export "memory") 2)
    (data (i32.const 0) "{}")
    (data (i32.const 8) "\00\00\00\00\02\00\00\00")
    (data (i32.const 1024) "example.com/v1Thing")
    (data (i32.const 1048) "@hourlyUTC")
    (global $top (mut i32) (i32.const 65536))
    (func (export "realloc") (param i32 i32 i32 i32) (result i32)
      (global.set $top (i32.and (i32.add (global.get $top) (i32.const 7)) (i32.const -8)))
      (global.get $top)
      (global.set $top (i32.add (global.get $top) (local.get 3)))))
  (core instance $libc (instantiate $libc))
  (alias core export $libc "memory" (core memory $memory))
  (alias core export $libc "realloc" (core func $realloc))
  (core func $emit (canon lower (func $log "emit") (memory $memory)))
  (core func $now (canon lower (func $clock "now")))
  (core func $next (canon lower (func $schedule "next") (memory $memory) (realloc $realloc)))
  (core func $seed (canon lower (func $seed "insecure-seed") (memory $memory)))
  (core func $drop (canon resource.drop $snapshot))
  (core func $owned (canon lower (func $cluster "[method]snapshot.owned") (memory $memory) (realloc $realloc)))

  (core module $main
    (import "libc" "memory" (memory 2))
    (import "host" "emit" (func $emit (param i32 i32 i32 i32 i32)))
    (import "host" "now" (func $now (result i64)))
    (import "host" "next" (func $next (param i32 i32 i32 i32 i64 i32)))
    (import "host" "seed" (func $seed (param i32)))
    (import "host" "drop" (func $drop (param i32)))
    (import "host" "owned" (func $owned (param i32 i32 i32 i32 i32 i32 i32 i32)))
    (func $give_up unreachable)
    (func (export "manifest") (result i32) $MANIFEST)
    (func $again (export "reconcile") (param $object i32) (param $object_len i32) (param $view i32) (result i32)
      $RECONCILE))
  (core instance $main (instantiate $main
    (with "libc" (instance (export "memory" (memory $memory))))
    (with "host" (instance (export "emit" (func $emit)) (export "now" (func $now)) (export "seed" (func $seed))
      (export "next" (func $next))
      (export "drop" (func $drop)) (export "owned" (func $owned))))))

  (func $manifest (result string)
    (canon lift (core func $main "manifest") (memory $memory) (realloc $realloc)))
  (func $reconcile (param "object" string) (param "view" (own $snapshot)) (result (result $outcome (error $failure)))
    (canon lift (core func $main "reconcile") (memory $memory) (realloc $realloc)))
  (instance $reconciler (export "manifest" (func $manifest)) (export "reconcile" (func $reconcile)))
  (export "mortise:plugin/reconciler@$VERSION" (instance $reconciler)))
"#;
