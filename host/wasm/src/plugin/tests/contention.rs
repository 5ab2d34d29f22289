//! Calls on a machine that has much else to do. None of that is a guest's fault.

use std::time::Instant;

use super::*;
use crate::compile::CompileError;
use crate::testing::busy;

/// More than an epoch of processor time on any machine.
const LOOPS: u32 = 200_000_000;

/// An instant after which nobody waits for a call, long after any test's.
pub(super) fn later() -> Instant {
    Instant::now() + Duration::from_secs(60)
}

#[cfg(target_os = "linux")]
#[test]
fn g2_a_call_that_gets_a_ninth_of_a_core_ends_as_one_that_has_it_alone() {
    use crate::testing::contended;

    let plugin = load(&engine(), &guest("i32.const 8", &format!("{} i32.const 64", busy(LOOPS)))).unwrap();
    let alone = contended(0, || plugin.call(OBJECT, view(), &unhurried()).stats);
    let used_ms = u64::try_from((alone.elapsed - alone.waited).as_millis()).unwrap();
    // Its calls do not take the same time each, and others use the core too.
    let limits = CallLimits { deadline_ms: 4 * used_ms, ..CallLimits::default() };
    let late = Instant::now() + Duration::from_secs(60);
    loop {
        let completion = contended(8, || plugin.call(OBJECT, view(), &limits));
        assert_eq!(completion.result, CallResult::Done(Outcome::default()), "{limits:?}: {:?}", completion.stats);
        if completion.stats.elapsed.as_millis() > u128::from(limits.deadline_ms) {
            assert!(completion.stats.waited > Duration::ZERO, "{:?}", completion.stats);
            return;
        }
        assert!(Instant::now() < late, "the core was never contended: {:?}", completion.stats);
    }
}

#[test]
fn g2_a_call_that_nobody_waits_for_ends_by_no_fault_of_its_guest() {
    let plugin = load(&engine(), &guest("i32.const 8", "(loop $l (br $l)) unreachable")).unwrap();
    let completion = plugin.call_until(OBJECT, view(), &unhurried(), Instant::now());
    let CallResult::HostFault(message) = &completion.result else { panic!("{completion:?}") };
    assert!(message.contains("of the 10000 ms that it may use") && message.contains("not at fault"), "{message}");
}

#[test]
fn g7_a_component_whose_manifest_the_machine_has_no_time_for_is_not_refused() {
    let plugin = load(&engine(), &guest(&format!("{} i32.const 8", busy(LOOPS)), "i32.const 64")).unwrap();
    let linked = plugin.artifact.linked(&plugin.engine).unwrap();
    let error = plugin.read_manifest(&linked, Instant::now()).unwrap_err();
    assert!(matches!(&error, CompileError::Host { .. }) && error.to_string().contains("not at fault"), "{error}");
    assert_eq!(plugin.read_manifest(&linked, later()).unwrap(), "{}");
}
