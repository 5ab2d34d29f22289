//! Guests that mean harm, or are broken in the same way. Each ends as a fault of its own, in bounded time and memory.

use std::time::Duration;

use super::*;
use crate::testing::text_of;

/// Far more than one fill of all memory, which nothing interrupts, on a machine that is busy.
const SOON: Duration = Duration::from_secs(10);

#[test]
fn h4_filling_all_of_the_memory_again_and_again_ends_at_the_deadline() {
    let fill = "(drop (memory.grow (i32.const 1022)))
        (loop $l (memory.fill (i32.const 0) (i32.const 7) (i32.const 67108864)) (br $l)) unreachable";
    let completion = call(fill, &CallLimits { deadline_ms: 100, ..unhurried() });
    assert_eq!(completion.result, CallResult::Fault(GuestFault::Deadline { limit_ms: 100 }));
    assert_eq!(completion.stats.memory_bytes, 64 << 20);
    assert!(completion.stats.elapsed < SOON, "it ended after {:?}", completion.stats.elapsed);
}

/// A component whose strings are UTF-16. The reconciled object reaches it so, and its outcome is read so.
fn utf16_guest(reconcile: &str) -> Vec<u8> {
    let braces =
        "(i32.store (i32.const 300) (i32.const 0x007d007b)) (i32.store (i32.const 8) (i32.const 300)) i32.const 8";
    let text = text_of("0.2.0", braces, reconcile)
        .replace(r#"manifest") (memory"#, r#"manifest") string-encoding=utf16 (memory"#);
    wat::parse_str(text.replace(r#"reconcile") (memory"#, r#"reconcile") string-encoding=utf16 (memory"#)).unwrap()
}

#[test]
fn h13_text_in_utf_16_is_read_or_is_a_fault_of_its_guest() {
    let returned = |reconcile: &str| {
        let plugin = load(&engine(), &utf16_guest(reconcile)).unwrap();
        assert_eq!(&**plugin.manifest(), "{}");
        plugin.call(OBJECT, view(), &unhurried()).result
    };
    let braces = format!("(i32.store (i32.const 200) (i32.const 0x007d007b)) {}", status(200, 2));
    let CallResult::Done(outcome) = returned(&braces) else { panic!("no outcome") };
    assert_eq!(outcome.status.as_deref(), Some("{}"));
    for (what, reconcile) in [
        ("half of a surrogate pair", format!("(i32.store16 (i32.const 200) (i32.const 0xd800)) {}", status(200, 1))),
        ("a pointer between two units", status(201, 2)),
        ("a length beyond the memory", status(200, 0x7fff_ffff)),
        ("a length whose bytes overflow", status(200, 0xffff_ffff)),
    ] {
        let result = returned(&reconcile);
        assert!(
            matches!(&result, CallResult::Fault(GuestFault::BadOutcome { .. } | GuestFault::OutputTooLarge { .. })),
            "{what}: {result:?}"
        );
    }
}

/// A component whose reconcile can call `$stdout`, which returns a handle of WASI's output.
fn printing_guest(reconcile: &str) -> Vec<u8> {
    let imports = r#"
  (import "wasi:io/streams@0.2.6" (instance $streams (export "output-stream" (type (sub resource)))))
  (alias export $streams "output-stream" (type $output))
  (import "wasi:cli/stdout@0.2.6" (instance $out
    (alias outer 1 $output (type $o)) (export "output-stream" (type $stream (eq $o)))
    (export "get-stdout" (func (result (own $stream))))))
  (core func $stdout (canon lower (func $out "get-stdout")))
  (core module $libc"#;
    let text = text_of("0.2.0", "i32.const 8", reconcile)
        .replace("\n  (core module $libc", imports)
        .replace(
            r#"(import "host" "drop""#,
            r#"(import "host" "stdout" (func $stdout (result i32))) (import "host" "drop""#,
        )
        .replace(r#"(export "drop" (func $drop))"#, r#"(export "stdout" (func $stdout)) (export "drop" (func $drop))"#);
    wat::parse_str(text).unwrap()
}

#[test]
fn h30_handles_that_are_never_dropped_end_the_call_at_their_bound() {
    let few = "(drop (call $stdout))".repeat(10);
    let plugin = load(&engine(), &printing_guest(&format!("{few} i32.const 64"))).unwrap();
    assert_eq!(plugin.call(OBJECT, view(), &unhurried()).result, CallResult::Done(Outcome::default()));

    let plugin = load(&engine(), &printing_guest("(loop $l (drop (call $stdout)) (br $l)) unreachable")).unwrap();
    for _ in 0..3 {
        let completion = plugin.call(OBJECT, view(), &unhurried());
        let CallResult::Fault(GuestFault::Trap { message, .. }) = &completion.result else { panic!("{completion:?}") };
        assert!(message.contains("resource table"), "{message}");
    }
}

#[test]
fn h31_p20_equal_inputs_give_equal_outcomes_on_every_engine_also_where_the_processor_decides() {
    // 0 / 0 has another sign on x86-64 than on aarch64, unless it is made canonical.
    let divide = "(local $zero f64) (i32.store8 (i32.const 116) (i32.const 1))
        (i64.store (i32.const 256) (i64.reinterpret_f64 (f64.div (local.get $zero) (local.get $zero))))
        (i32.store (i32.const 120) (i32.load (i32.const 260))) i32.const 64";
    for pooling in [Pooling::Probe, Pooling::OnDemand] {
        let engine = Engine::new(EngineOptions { pooling, ..EngineOptions::default() }).unwrap();
        let plugin = load(&engine, &guest("i32.const 8", divide)).unwrap();
        for _ in 0..100 {
            let CallResult::Done(outcome) = plugin.call(OBJECT, view(), &unhurried()).result else {
                panic!("no outcome")
            };
            assert_eq!(outcome.requeue_after_ms, Some(0x7ff8_0000), "the sign and exponent of the canonical NaN");
        }
    }
}
