//! Calls of small guests, one for each way in which a call can end.

use std::sync::Arc;
use std::time::Duration;

use mortise_core::contract::{CallResult, GuestFault, Outcome};
use mortise_core::conversion::{self, Conversion};
use mortise_core::dependencies::{Dependency, MAX_DEPENDENCY_BYTES};
use mortise_core::dynamic_kind::{KindState, KindStates};
use mortise_core::kind_pattern::{Groups, KindPattern};
use mortise_core::limits::{CallLimits, MAX_DEADLINE_MS};
use mortise_core::manifest::Exports;
use mortise_core::object::Kind;
use mortise_core::store::Snapshot;
use mortise_core::view::{Access, View};

use super::CallCompletion;
use crate::engine::{Engine, EngineOptions, Pooling};
use crate::log::LogLevel;
use crate::scan::prescan;
use crate::testing::{OBJECT, access, guest, idle_guest, idle_guest_of, idle_guest_with, load, object, view, view_of};
use crate::wasi::HASH_SEED;

use self::contention::later;

mod contention;
mod hostile;

fn engine() -> Engine {
    Engine::new(EngineOptions::default()).unwrap()
}

/// The default limits, with the longest deadline: the machine may be busy.
fn unhurried() -> CallLimits {
    CallLimits { deadline_ms: MAX_DEADLINE_MS, ..CallLimits::default() }
}

/// Calls a guest whose reconcile has this body.
fn call(reconcile: &str, limits: &CallLimits) -> CallCompletion {
    load(&engine(), &guest("i32.const 8", reconcile)).unwrap().call(OBJECT, view(), limits)
}

fn fault(reconcile: &str, limits: &CallLimits) -> GuestFault {
    match call(reconcile, limits).result {
        CallResult::Fault(fault) => fault,
        other => panic!("the call ended with {other:?}"),
    }
}

fn dependencies(completion: &CallCompletion) -> Vec<&Dependency> {
    completion.reads.iter().map(|(dependency, _)| dependency).collect()
}

#[test]
fn a_guest_that_wants_nothing_returns_an_empty_outcome() {
    let plugin = load(&engine(), &idle_guest()).unwrap();
    assert_eq!(&**plugin.manifest(), "{}");
    let completion = plugin.call(OBJECT, view(), &unhurried());
    assert_eq!(completion.result, CallResult::Done(Outcome::default()));
    assert_eq!(completion.stats.memory_bytes, 2 << 16);
    assert_eq!(completion.stats.host_calls, 0);
    assert!(dependencies(&completion).is_empty());
}

#[test]
fn g1_nothing_that_a_call_leaves_in_memory_reaches_the_next_call() {
    // Traps if it finds the last call's mark: on either engine, in many calls, as slots are reused.
    let wasm = guest(
        "i32.const 8",
        "(if (i32.load (i32.const 60000)) (then unreachable)) (i32.store (i32.const 60000) (i32.const 1)) i32.const 64",
    );
    for pooling in [Pooling::Probe, Pooling::OnDemand] {
        let engine = Engine::new(EngineOptions { pooling, ..EngineOptions::default() }).unwrap();
        let plugin = load(&engine, &wasm).unwrap();
        for _ in 0..100 {
            let completion = plugin.call(OBJECT, view(), &unhurried());
            assert_eq!(completion.result, CallResult::Done(Outcome::default()));
        }
    }
}

#[test]
fn a_plugin_without_calls_gives_its_memory_back_and_is_called_again_though_its_file_is_gone() {
    // `load` removes the artifact's file before it returns.
    let plugin = load(&engine(), &idle_guest()).unwrap();
    assert!(!plugin.artifact.is_linked(), "there was no call yet");
    for _ in 0..2 {
        let completion = plugin.call(OBJECT, view(), &unhurried());
        assert_eq!(completion.result, CallResult::Done(Outcome::default()));
        plugin.release(Duration::from_secs(3600));
        assert!(plugin.artifact.is_linked(), "it was called within the hour");
        plugin.release(Duration::ZERO);
        assert!(!plugin.artifact.is_linked());
    }
}

#[test]
fn g2_a_trap_carries_its_name_and_a_backtrace_with_names() {
    let GuestFault::Trap { message, detail } = fault("call $give_up unreachable", &unhurried()) else {
        panic!("not a trap");
    };
    assert_eq!(message, "wasm `unreachable` instruction executed");
    assert!(detail.contains("give_up"), "no function name in: {detail}");
}

#[test]
fn g2_a_backtrace_is_bounded_and_has_no_control_characters() {
    for (name, shown) in [(r"\1b[31mred".to_owned(), "red".to_owned()), ("long".repeat(10_000), "long".repeat(1_000))] {
        let body = format!(r#"call $"{name}" unreachable) (func $"{name}" unreachable"#);
        let GuestFault::Trap { detail, .. } = fault(&body, &unhurried()) else { panic!("not a trap") };
        assert!(detail.contains(&shown) && !detail.contains('\u{1b}') && detail.len() < 20_000, "{detail}");
    }
}

#[test]
fn g2_endless_recursion_is_named() {
    let recursion = "(call $again (i32.const 0) (i32.const 0) (i32.const 0))";
    let GuestFault::Trap { message, .. } = fault(recursion, &unhurried()) else { panic!("not a trap") };
    assert!(message.starts_with("call stack exhausted (one function calls itself"), "{message}");
}

#[test]
fn g2_an_endless_loop_ends_at_the_deadline() {
    let limits = CallLimits { deadline_ms: 30, ..unhurried() };
    let completion = call("(loop $l (br $l)) unreachable", &limits);
    assert_eq!(completion.result, CallResult::Fault(GuestFault::Deadline { limit_ms: 30 }));
    assert!(completion.stats.elapsed.as_millis() >= 30, "ended after {:?}", completion.stats.elapsed);
}

#[test]
fn g2_memory_beyond_the_limit_is_its_own_fault_and_not_a_trap() {
    let grow = "(if (i32.eq (memory.grow (i32.const 1024)) (i32.const -1)) (then unreachable)) i32.const 64";
    assert_eq!(fault(grow, &unhurried()), GuestFault::Memory { limit_bytes: 64 << 20 });
    let roomy = CallLimits { memory_bytes: 128 << 20, ..unhurried() };
    assert_eq!(call(grow, &roomy).result, CallResult::Done(Outcome::default()));
    // A guest that handles the refusal is not at fault.
    let copes = "(drop (memory.grow (i32.const 65000))) i32.const 64";
    assert_eq!(call(copes, &unhurried()).result, CallResult::Done(Outcome::default()));
}

#[test]
fn g2_the_initial_memory_counts_too() {
    let limits = CallLimits { memory_bytes: 1 << 16, ..unhurried() };
    assert_eq!(fault("i32.const 64", &limits), GuestFault::Memory { limit_bytes: 1 << 16 });
}

/// Returns Ok(outcome) whose status is the text at this address.
fn status(pointer: u32, len: u32) -> String {
    format!(
        "(i32.store8 (i32.const 84) (i32.const 1)) (i32.store (i32.const 88) (i32.const {pointer}))
         (i32.store (i32.const 92) (i32.const {len})) (i32.const 60)"
    )
}

#[test]
fn the_outcome_reaches_the_host() {
    let CallResult::Done(outcome) = call(&status(0, 2), &unhurried()).result else { panic!("no outcome") };
    assert_eq!(outcome.status.as_deref(), Some("{}"));
}

#[test]
fn g2_an_outcome_over_the_limit_is_refused_whole() {
    let limits = CallLimits { output_bytes: 4_096, ..unhurried() };
    assert_eq!(fault(&status(0, 4_097), &limits), GuestFault::OutputTooLarge { limit_bytes: 4_096 });
}

#[test]
fn an_outcome_that_is_not_utf_8_or_outside_of_memory_is_a_bad_outcome() {
    for reconcile in
        [format!("(i32.store8 (i32.const 200) (i32.const 255)) {}", status(200, 1)), status(131_000, 1_000)]
    {
        let fault = fault(&reconcile, &unhurried());
        assert!(matches!(fault, GuestFault::BadOutcome { .. }), "{fault:?}");
    }
}

/// Reads the children of the kind of [`OBJECT`].
const OWNED: &str = "(call $owned (local.get $view) (i32.const 1024) (i32.const 14) (i32.const 1038) (i32.const 5)
    (i32.const 0) (i32.const 0) (i32.const 512))";

#[test]
fn r4_a_read_of_a_kind_that_is_not_listed_yet_ends_the_call_without_a_fault_and_is_its_dependency() {
    let thing = Kind::new("example.com/v1", "Thing");
    let all = KindPattern { groups: Groups::One("example.com".into()), version: None };
    let access = Arc::new(Access::new(Vec::new(), 1 << 20).with_patterns(vec![all]));
    let wasm =
        guest("i32.const 8", &format!("{OWNED} (i32.load8_u (i32.const 512)) (if (then unreachable)) i32.const 64"));
    let plugin = load(&engine(), &wasm).unwrap();
    let completion = plugin.call(OBJECT, view_of(&access), &unhurried());
    assert_eq!(completion.result, CallResult::Waits(thing.clone()));
    assert_eq!(dependencies(&completion), [&Dependency::Kind(thing.clone())]);

    let listed = KindStates::new([(thing.clone(), KindState::Current)].into());
    let snapshot = Snapshot::of(std::slice::from_ref(&thing), []);
    let view = View::new(snapshot, object(), Arc::clone(&access), 1, Arc::from("{}")).with_kinds(listed);
    assert_eq!(plugin.call(OBJECT, view, &unhurried()).result, CallResult::Done(Outcome::default()));

    // The error of the read has the fifth case.
    let wasm = guest(
        "i32.const 8",
        &format!("{OWNED} (i32.ne (i32.load8_u (i32.const 520)) (i32.const 4)) (if (then unreachable)) i32.const 64"),
    );
    let gone = KindStates::new([(thing, KindState::NotServed("no".to_owned()))].into());
    let completion = load(&engine(), &wasm).unwrap().call(OBJECT, view_of(&access).with_kinds(gone), &unhurried());
    assert_eq!(completion.result, CallResult::Done(Outcome::default()));
}

#[test]
fn g2_host_calls_and_log_lines_are_bounded() {
    let emit = "(call $emit (i32.const 3) (i32.const 0) (i32.const 2) (i32.const 0) (i32.const 0))";
    let completion = call(&format!("{}i32.const 64", emit.repeat(5)), &CallLimits { log_lines: 2, ..unhurried() });
    assert_eq!(completion.result, CallResult::Done(Outcome::default()));
    assert_eq!(completion.logs.len(), 2);
    assert_eq!((completion.logs[0].level, &*completion.logs[0].message), (LogLevel::Warn, "{}"));
    assert_eq!((completion.dropped_logs, completion.stats.host_calls), (3, 5));

    let few = CallLimits { host_calls: 4, ..unhurried() };
    let fault = fault(&format!("{}i32.const 64", emit.repeat(5)), &few);
    assert!(fault.message().contains("more than 4 calls into the host"), "{fault:?}");
}

#[test]
fn g2_the_bytes_of_one_host_call_are_bounded() {
    let limits = CallLimits { output_bytes: 1_000, ..unhurried() };
    let emit = "(call $emit (i32.const 3) (i32.const 0) (i32.const 2000) (i32.const 0) (i32.const 0)) i32.const 64";
    let fault = fault(emit, &limits);
    assert!(matches!(fault, GuestFault::HostCallsTooLarge { .. }), "{fault:?}");
}

/// A reconcile that reads its children this many times, each time with this many different field paths of a thousand
/// bytes.
fn reads(queries: u32, paths: u32) -> String {
    format!(
        "(local $n i32) (local $i i32)
         (memory.fill (i32.const 2048) (i32.const 120) (i32.const 1000))
         (loop $path
           (i32.store (i32.add (i32.const 4096) (i32.shl (local.get $i) (i32.const 3)))
             (i32.add (i32.const 2048) (local.get $i)))
           (i32.store (i32.add (i32.const 4100) (i32.shl (local.get $i) (i32.const 3)))
             (i32.sub (i32.const 1000) (local.get $i)))
           (local.set $i (i32.add (local.get $i) (i32.const 1)))
           (br_if $path (i32.lt_u (local.get $i) (i32.const {paths}))))
         (loop $read
           (i32.store8 (i32.const 2100) (i32.add (i32.const 97) (i32.rem_u (local.get $n) (i32.const 26))))
           (i32.store8 (i32.const 2101) (i32.add (i32.const 97) (i32.div_u (local.get $n) (i32.const 26))))
           (call $owned (local.get $view) (i32.const 1024) (i32.const 14) (i32.const 1038) (i32.const 5)
             (i32.const 4096) (i32.const {paths}) (i32.const 512))
           (local.set $n (i32.add (local.get $n) (i32.const 1)))
           (br_if $read (i32.lt_u (local.get $n) (i32.const {queries}))))
         i32.const 64"
    )
}

#[test]
fn g2_the_queries_of_a_call_are_bounded_in_bytes() {
    let fault = fault(&reads(300, 15), &unhurried());
    assert!(matches!(fault, GuestFault::HostCallsTooLarge { .. }), "{fault:?}");
    assert!(fault.message().contains("more than 4194304 bytes together"), "{fault:?}");
    let completion = call(&reads(200, 15), &unhurried());
    assert_eq!(completion.result, CallResult::Done(Outcome::default()));
}

#[test]
fn g2_what_the_host_keeps_of_many_long_queries_is_bounded() {
    let access = access();
    for (queries, paths, remembered) in [(1, 1, 1), (10, 2, 10), (250, 15, 0), (600, 1, 0)] {
        let plugin = load(&engine(), &guest("i32.const 8", &reads(queries, paths))).unwrap();
        let completion = plugin.call(OBJECT, view_of(&access), &unhurried());
        assert_eq!(completion.result, CallResult::Done(Outcome::default()));
        assert_eq!((completion.stats.host_calls, completion.reads.iter().len()), (queries, remembered));
        assert!(completion.reads.bytes() <= MAX_DEPENDENCY_BYTES, "{} for the object", completion.reads.bytes());
        assert!(access.bytes() <= 1 << 20, "{} for the controller", access.bytes());
        // Without single dependencies the whole kind wakes the object.
        assert!(remembered > 0 || completion.reads.whole_kinds().count() > 0);
    }
}

#[test]
fn g5_time_is_an_input_only_of_a_call_that_reads_it() {
    let completion = call("(drop (call $now)) i32.const 64", &unhurried());
    assert_eq!(dependencies(&completion), [&Dependency::Now]);
}

#[test]
fn the_next_time_of_a_schedule_is_a_host_call_and_no_dependency() {
    // The requeue time is the rest of the hour.
    let next = |zone_len: u32| {
        format!(
            "(call $next (i32.const 1048) (i32.const 7) (i32.const 1055) (i32.const {zone_len}) (call $now) (i32.const 512))"
        )
    };
    let in_utc = format!(
        "{} (i32.store8 (i32.const 116) (i32.const 1))
         (i32.store (i32.const 120) (i32.wrap_i64 (i64.sub (i64.load (i32.const 528)) (call $now)))) i32.const 64",
        next(3)
    );
    let completion = call(&in_utc, &unhurried());
    let CallResult::Done(outcome) = &completion.result else { panic!("{completion:?}") };
    assert_eq!(outcome.requeue_after_ms, Some(2_799_877), "from 22:13:20.123 to 23:00");
    assert_eq!(completion.stats.host_calls, 3);
    assert_eq!(dependencies(&completion), [&Dependency::Now], "a schedule is no input");

    // The status is the error.
    let nowhere = format!(
        "{} (i32.store8 (i32.const 84) (i32.load8_u (i32.const 512))) (i32.store (i32.const 88) (i32.load (i32.const 520)))
         (i32.store (i32.const 92) (i32.load (i32.const 524))) (i32.const 60)",
        next(2)
    );
    let CallResult::Done(outcome) = call(&nowhere, &unhurried()).result else { panic!("no outcome") };
    let why = "\"UT\" is not a time zone of the IANA database, such as \"UTC\" or \"Europe/Berlin\"";
    assert_eq!(outcome.status.as_deref(), Some(why));

    let two = CallLimits { host_calls: 2, ..unhurried() };
    assert!(fault(&in_utc, &two).message().contains("more than 2 calls into the host"));
}

#[test]
fn g5_the_seed_of_hash_maps_is_the_same_in_every_call() {
    // The requeue time is the seed's first quarter.
    let wasm = guest(
        "i32.const 8",
        "(i32.store8 (i32.const 116) (i32.const 1)) (call $seed (i32.const 2048)) (i32.store (i32.const 120) (i32.load (i32.const 2048)))
         i32.const 64",
    );
    let plugin = load(&engine(), &wasm).unwrap();
    let draw = |object: &str| match plugin.call(object, view(), &unhurried()).result {
        CallResult::Done(outcome) => outcome.requeue_after_ms.unwrap(),
        other => panic!("{other:?}"),
    };
    let first = HASH_SEED.0 & u64::from(u32::MAX);
    assert_eq!([OBJECT, "{}"].map(|object| u64::from(draw(object))), [first; 2]);
}

#[test]
fn g2_an_engine_with_fuel_counts_it_and_ends_a_call_over_its_limit() {
    let engine = Engine::new(EngineOptions { fuel: true, ..EngineOptions::default() }).unwrap();
    let idle = load(&engine, &idle_guest()).unwrap();
    let used = |plugin: &super::Plugin| plugin.call(OBJECT, view(), &unhurried()).stats.fuel_used.unwrap();
    assert!(used(&idle) > 0 && used(&idle) == used(&idle));
    let endless = load(&engine, &guest("i32.const 8", "(loop $l (br $l)) unreachable")).unwrap();
    let limits = CallLimits { fuel: Some(10_000), ..unhurried() };
    let completion = endless.call(OBJECT, view(), &limits);
    assert_eq!(completion.result, CallResult::Fault(GuestFault::Fuel { limit: 10_000 }));
}

#[test]
fn g7_a_component_that_returns_no_manifest_is_refused() {
    let refusal = load(&engine(), &guest("call $give_up unreachable", "i32.const 64")).unwrap_err();
    assert_eq!(refusal.reason, "ManifestFailed");
    assert!(refusal.said.contains("unreachable") && refusal.said.contains("give_up"), "{refusal}");
    assert!(!refusal.message.contains("unreachable") && refusal.to_string().contains("unreachable"), "{refusal}");
}

#[test]
fn g7_types_that_do_not_fit_the_contract_are_refused_before_the_first_call() {
    // A valid component, whose manifest is a number.
    let text = r#"(component
        (core module $m (func (export "manifest") (result i32) i32.const 7))
        (core instance $i (instantiate $m))
        (func $manifest (result u32) (canon lift (core func $i "manifest")))
        (instance $r (export "manifest" (func $manifest)) (export "reconcile" (func $manifest)))
        (export "mortise:plugin/reconciler@0.2.0" (instance $r)))"#;
    let refusal = load(&engine(), &wat::parse_str(text).unwrap()).unwrap_err();
    assert_eq!(refusal.reason, "ContractMismatch", "{}", refusal.message);
}

/// The guest that does nothing, with one more interface whose functions have this type and trap.
fn exporting(interface: &str, functions: &[&str], signature: &str) -> Vec<u8> {
    let exports: String = functions.iter().map(|name| format!(r#"(export "{name}" (func $more))"#)).collect();
    let more = format!(
        r#"(core module $more (func (export "more") (param i32 i32 i32 i32) (result i32) unreachable))
           (core instance $more (instantiate $more))
           (func $more {signature} (canon lift (core func $more "more") (memory $memory) (realloc $realloc)))
           (instance $more {exports}) (export "{interface}" (instance $more)))"#
    );
    idle_guest_with(&more)
}

#[test]
fn g7_an_optional_interface_is_exported_whole_and_with_the_contracts_types_or_refused() {
    const CONVERSION: &str = "mortise:plugin/conversion@0.2.0";
    const CONVERT: &str =
        r#"(param "object" string) (param "to-api-version" string) (result (result string (error string)))"#;
    let plugin = load(&engine(), &exporting(CONVERSION, &["convert"], CONVERT)).unwrap();
    assert_eq!(plugin.exports(), Exports { admission: false, conversion: true });
    assert_eq!(load(&engine(), &idle_guest()).unwrap().exports(), Exports::default());

    let refused = |interface, functions: &[&str], words: &str| {
        let refusal = load(&engine(), &exporting(interface, functions, CONVERT)).unwrap_err();
        assert_eq!(refusal.reason, "ContractMismatch");
        assert!(refusal.message.contains(words), "{}", refusal.message);
    };
    refused(CONVERSION, &["turn"], "exports mortise:plugin/conversion@0.2.0 without its function convert");
    refused("mortise:plugin/admission@0.2.0", &["mutate"], "admission@0.2.0 without its function validate");
    let unfit = "export mortise:plugin/admission@0.2.0 does not fit the contract";
    refused("mortise:plugin/admission@0.2.0", &["mutate", "validate"], unfit);
    let other = r#"(param "object" string) (param "to-api-version" string) (result string)"#;
    let refusal = load(&engine(), &exporting(CONVERSION, &["convert"], other)).unwrap_err();
    assert!(refusal.message.contains("export mortise:plugin/conversion@0.2.0 does not fit"), "{}", refusal.message);
}

#[test]
fn a_conversion_that_traps_is_the_guests_fault_and_one_of_a_component_without_it_the_hosts() {
    let request = conversion::ConversionRequest {
        object: OBJECT.into(),
        to_api_version: "example.com/v2".into(),
        now_unix_ms: 0,
        config: "{}".into(),
    };
    let signature =
        r#"(param "object" string) (param "to-api-version" string) (result (result string (error string)))"#;
    let wasm = exporting("mortise:plugin/conversion@0.2.0", &["convert"], signature);
    let result = load(&engine(), &wasm).unwrap().review(&request, &unhurried(), later()).result;
    assert!(matches!(&result, Err(GuestFault::Trap { .. })), "{result:?}");
    let result = load(&engine(), &idle_guest()).unwrap().review(&request, &unhurried(), later()).result;
    assert!(matches!(&result, Ok(Conversion::HostFault(why)) if why.contains("does not export")), "{result:?}");
}

#[test]
fn a_guest_of_a_later_patch_that_uses_nothing_new_runs() {
    let plugin = load(&engine(), &idle_guest_of("0.2.7")).unwrap();
    let completion = plugin.call(OBJECT, view(), &unhurried());
    assert_eq!(completion.result, CallResult::Done(Outcome::default()));
}

#[test]
fn a_guest_may_drop_its_snapshot_early() {
    let completion = call("(call $drop (local.get $view)) (drop (call $now)) i32.const 64", &unhurried());
    assert_eq!(completion.result, CallResult::Done(Outcome::default()));
}

#[test]
fn a_module_of_several_tables_runs_wherever_instances_live() {
    let text = |tables: usize| {
        let tables = "(table 10 funcref)".repeat(tables);
        format!("i32.const 64) {tables} (func (result i32) i32.const 0")
    };
    for pooling in [Pooling::Probe, Pooling::ProbeForOne, Pooling::OnDemand] {
        let engine = Engine::new(EngineOptions { pooling, ..EngineOptions::default() }).unwrap();
        for tables in [2, 4] {
            let wasm = guest("i32.const 8", &text(tables));
            prescan(&wasm).unwrap();
            let completion = load(&engine, &wasm).unwrap().call(OBJECT, view(), &unhurried());
            assert_eq!(completion.result, CallResult::Done(Outcome::default()), "{tables} tables, {pooling:?}");
        }
    }
    // The scan refuses one more, for any engine.
    let refusal = prescan(&guest("i32.const 8", &text(5))).unwrap_err();
    assert_eq!(refusal.reason, "TooManyTables", "{}", refusal.message);
}

#[test]
fn the_pools_of_a_trial_refuse_what_those_of_a_host_refuse() {
    // Each global takes sixteen bytes: more than an instance's MiB beside its memory.
    let globals = "(global (mut i64) (i64.const 0))".repeat(70_000);
    let wasm = guest("i32.const 8", &format!("i32.const 64) {globals} (func (result i32) i32.const 0"));
    for pooling in [Pooling::Probe, Pooling::ProbeForOne] {
        let engine = Engine::new(EngineOptions { pooling, ..EngineOptions::default() }).unwrap();
        if engine.pooled() {
            assert_eq!(load(&engine, &wasm).unwrap_err().reason, "ArtifactUnusable", "{pooling:?}");
        }
    }
}
