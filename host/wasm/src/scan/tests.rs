//! What the scan refuses, and its messages.

use super::*;
use crate::testing::{idle_guest, idle_guest_of};

fn refusal(bytes: &[u8]) -> Refusal {
    prescan(bytes).unwrap_err()
}

/// Checks the reason and that the message has this in it.
#[track_caller]
fn check(bytes: &[u8], reason: &str, part: &str) {
    let refusal = refusal(bytes);
    assert_eq!(refusal.reason, reason, "{}", refusal.message);
    assert!(refusal.message.contains(part), "{}", refusal.message);
}

fn wat(text: &str) -> Vec<u8> {
    wat::parse_str(text).unwrap()
}

/// A component with one core function.
fn with_function(locals: usize, body: &str) -> Vec<u8> {
    wat(&format!("(component (core module (func (local {}) {body})))", "i32 ".repeat(locals)))
}

#[test]
fn a_plugin_passes_and_shows_what_it_imports_and_exports() {
    let wasm = idle_guest();
    let scan = prescan(&wasm).unwrap();
    assert_eq!(scan.digest, mortise_core::digest::of(&wasm));
    assert!(scan.imports.iter().any(|import| import == "mortise:host/clock@0.2.0"), "{:?}", scan.imports);
    assert_eq!(scan.exports, ["mortise:plugin/reconciler@0.2.0"]);
    assert_eq!((scan.sizes.modules, scan.sizes.memory_bytes), (2, 2 << 16));
    assert_eq!(scan.sizes.component_bytes, wasm.len() as u64);
    assert!(scan.sizes.functions > 0 && scan.sizes.code_bytes > 0 && scan.sizes.data_bytes > 0);
}

#[test]
fn what_is_not_a_component_is_named() {
    check(b"", "NotWebAssembly", "empty");
    check(b"\x7fELF\x02\x01\x01", "NotWebAssembly", "native code");
    check(b"\x1f\x8b\x08", "NotWebAssembly", "gzip");
    check(b"(component)", "NotWebAssembly", "text");
    check(b"<html>", "NotWebAssembly", "\\0asm");
    check(&wat("(module)"), "NotAComponent", "core WebAssembly module");
}

#[test]
fn a_truncated_component_is_refused_at_every_length() {
    let wasm = idle_guest();
    let full = prescan(&wasm).unwrap();
    for len in 8..wasm.len() {
        match prescan(&wasm[..len]) {
            // A cut between two sections does not show; what passes has lost only its names.
            Ok(scan) => {
                assert_eq!((scan.exports, scan.sizes.code_bytes), (full.exports.clone(), full.sizes.code_bytes))
            }
            Err(refusal) => {
                assert!(["Malformed", "WrongWorld"].contains(&refusal.reason), "{len} bytes: {}", refusal.message);
            }
        }
    }
    check(&wasm[..wasm.len() - 1], "Malformed", "cut short");
}

#[test]
fn no_single_wrong_byte_makes_the_scan_panic() {
    let wasm = idle_guest();
    for at in 0..wasm.len() {
        for value in [0, 0x7f, 0xff, wasm[at] ^ 1] {
            let mut damaged = wasm.clone();
            damaged[at] = value;
            let _ = prescan(&damaged);
        }
    }
}

#[test]
fn an_unknown_import_is_refused_by_its_name() {
    check(&wat(r#"(component (import "wasi:http/types@0.2.6" (instance)))"#), "UnknownImport", "wasi:http/types@0.2.6");
    check(&wat(r#"(component (import "env" (func)))"#), "UnknownImport", "imports env,");
    for random in ["wasi:random/random@0.2.6", "wasi:random/insecure@0.2.6"] {
        let why = format!("imports {random}, random numbers, which the host does not provide");
        check(&wat(&format!("(component (import {random:?} (instance)))")), "UnknownImport", &why);
    }
    check(&wat(r#"(component (import "mortise:host/cluster@0.3.0" (instance)))"#), "UnknownImport", "version 0.2 ");
    check(&wat(r#"(component (import "wasi:cli/stdout@0.3.0" (instance)))"#), "UnknownImport", "wasi:cli/stdout@0.3.0");
}

#[test]
fn a_wrong_world_is_refused_with_what_is_missing() {
    check(&wat("(component)"), "WrongWorld", "exports nothing");
    let other = wat(r#"(component (instance $i) (export "wasi:cli/run@0.2.6" (instance $i)))"#);
    check(&other, "WrongWorld", "wasi:cli/run@0.2.6");
    let later = wat(r#"(component (instance $i) (export "mortise:plugin/reconciler@0.3.0" (instance $i)))"#);
    check(&later, "WrongWorld", "speaks version 0.2");
    assert!(prescan(&idle_guest_of("0.2.9")).is_ok());
}

/// A component that exports a reconciler and one interface more.
fn exporting(interface: &str) -> Vec<u8> {
    wat(&format!(
        r#"(component (instance $i) (export "mortise:plugin/reconciler@0.2.0" (instance $i))
           (export "{interface}" (instance $i)))"#
    ))
}

#[test]
fn optional_interfaces_may_be_exported_in_versions_that_the_host_speaks() {
    for interface in ["mortise:plugin/admission", "mortise:plugin/conversion"] {
        assert!(prescan(&exporting(&format!("{interface}@0.2.7"))).is_ok());
        check(&exporting(&format!("{interface}@0.3.0")), "WrongWorld", "speaks version 0.2");
    }
}

#[test]
fn nesting_is_bounded_in_number_and_depth() {
    let many = "(core module)".repeat(101);
    check(&wat(&format!("(component {many})")), "TooManyModules", "100");
    let deep = format!("{}{}", "(component ".repeat(7), ")".repeat(7));
    check(&wat(&deep), "NestedTooDeep", "5 deep");
}

#[test]
fn memories_and_tables_that_the_host_never_grants_are_refused() {
    check(&wat("(component (core module (memory 4097)))"), "MemoryTooLarge", "268500992 bytes");
    check(&wat("(component (core module (memory i64 1)))"), "UnsupportedFeature", "64-bit");
    check(&wat("(component (core module (memory 1 1 shared)))"), "UnsupportedFeature", "shared");
    check(&wat("(component (core module (table 4294967295 funcref)))"), "TableTooLarge", "4294967295 elements");
}

#[test]
fn tables_are_bounded_in_number_for_a_module_and_for_all_of_them() {
    let module = |tables: usize| format!("(core module {})", "(table 1 funcref)".repeat(tables));
    let component = |modules: String| wat(&format!("(component {modules})"));
    check(&component(module(5)), "TooManyTables", "a module with 5 tables; a plugin may have at most 4");
    check(&component(module(4).repeat(51)), "TooManyTables", "together 204 tables; a plugin may have at most 200");
    check(&component(module(4).repeat(50)), "WrongWorld", "does not export");
}

#[test]
fn h6_nested_loops_over_many_locals_are_refused_before_a_compiler_sees_them() {
    let bomb = format!("{}{}", "loop ".repeat(400), "end ".repeat(400));
    check(&with_function(400, &bomb), "TooCostlyToCompile", "nests 400 loops over 400 locals");
    let small = format!("{}{}", "loop ".repeat(100), "end ".repeat(100));
    check(&with_function(100, &small), "WrongWorld", "does not export");
}

#[test]
fn h6_many_costly_functions_are_refused_together() {
    let function = format!("(func (local {}) {}{})", "i32 ".repeat(140), "loop ".repeat(140), "end ".repeat(140));
    check(&wat(&format!("(component (core module {}))", function.repeat(11))), "TooCostlyToCompile", "together");
}

/// A component with a function type `$many` that takes and returns this many numbers, and a function with this body.
fn with_many(values: usize, body: &str) -> Vec<u8> {
    let many = "i32 ".repeat(values);
    wat(&format!(
        "(component (core module (type $many (func (param {many}) (result {many}))) (type $give (func (result {many})))
           (func $pass (type $many) {gets}) (func (local i32) {body})))",
        gets = (0..values).map(|local| format!("local.get {local} ")).collect::<String>(),
    ))
}

#[test]
fn h6_blocks_branches_and_calls_that_pass_many_values_are_refused_before_a_compiler_sees_them() {
    let (push, drop) = ("i32.const 1 ".repeat(500), "drop ".repeat(500));
    let times = |count: usize, text: &str| text.repeat(count);
    let deep = format!("{} {push} {} {drop}", times(40, "block (type $give) "), times(40, "end "));
    let targets: String = (0..40).map(|depth| format!("{depth} ")).collect();
    let table = format!("local.get 0 if {push} local.get 0 br_table {targets} 40 end ");
    let in_deep = deep.replacen(&push, &format!("{} {push}", times(10, &table)), 1);
    for (what, body) in [
        ("parameters of loops", format!("{push} {} {drop}", times(500, "loop (type $many) end "))),
        ("parameters of ifs", format!("{push} {} {drop}", times(500, "local.get 0 if (type $many) end "))),
        ("results of calls", format!("{push} {} {drop}", times(500, "call $pass "))),
        ("branches", format!("block (type $give) {push} {} end {drop}", times(500, "local.get 0 br_if 0 "))),
        ("tables of branches", in_deep),
    ] {
        let message = refusal(&with_many(500, &body)).message;
        assert!(message.contains("function 1 of the component passes more than 100000 values"), "{what}: {message}");
    }
    check(&with_many(500, &deep), "WrongWorld", "does not export");
}

#[test]
fn h6_branches_that_carry_many_locals_are_refused_before_a_compiler_sees_them() {
    let set = |locals: usize| (0..locals).map(|local| format!("i32.const 1 local.set {local} ")).collect::<String>();
    let table = |entries: usize| format!("local.get 0 br_table {}", "0 ".repeat(entries));
    // Each entry of the table carries what the other branch may have changed.
    let block = |locals, entries| {
        format!("block local.get 0 if local.get 0 br_if 1 {} end {} end", set(locals), table(entries))
    };
    check(
        &with_function(100, &block(100, 60_000)),
        "TooCostlyToCompile",
        "branches that carry more than 2000000 locals",
    );
    check(&with_function(100, &block(100, 2_000)), "WrongWorld", "does not export");
    // Set in inner blocks, they count for the outer ones once.
    let nested = format!(
        "{} {} {}",
        "block ".repeat(300),
        format!("{} local.get 0 br_if 299 ", set(300)).repeat(20),
        "end ".repeat(300)
    );
    check(&with_function(300, &nested), "WrongWorld", "does not export");
    let together = format!("(func (local {}) {})", "i32 ".repeat(100), block(100, 15_000)).repeat(14);
    check(&wat(&format!("(component (core module {together}))")), "TooCostlyToCompile", "together have branches");
}

#[test]
fn h6_parameters_are_locals() {
    let bomb = format!("{}{}", "loop ".repeat(400), "end ".repeat(400));
    let function = format!("(func (param {}) {bomb})", "i32 ".repeat(400));
    check(&wat(&format!("(component (core module {function}))")), "TooCostlyToCompile", "400 loops over 400 locals");
}

#[test]
fn signatures_of_one_module_do_not_count_for_the_next() {
    let many = "i32 ".repeat(500);
    let first = format!("(core module (type (func (param {many}) (result {many}))))");
    let loops = "block end ".repeat(1_000);
    let second = format!("(core module (import \"a\" \"b\" (func)) (func {loops} call 0))");
    check(&wat(&format!("(component {first} {second})")), "WrongWorld", "does not export");
}

#[test]
fn h9_a_function_with_very_many_locals_or_blocks_is_refused() {
    check(&with_function(20_000, ""), "TooCostlyToCompile", "20000 locals");
    let deep = format!("{}{}", "block ".repeat(5_001), "end ".repeat(5_001));
    check(&with_function(1, &deep), "TooCostlyToCompile", "5001 blocks");
}

#[test]
fn a_component_over_the_size_limit_is_refused_by_its_size() {
    let mut large = idle_guest();
    large.resize(MAX_COMPONENT_BYTES + 1, 0);
    check(&large, "TooLarge", "41943041 bytes");
}
