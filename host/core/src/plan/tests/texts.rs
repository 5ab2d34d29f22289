//! A guest's texts at the edge of what their destinations take, as the worker hands them to the event loop.

use std::sync::Arc;

use super::*;
use crate::call::{Check, Conclusion};
use crate::contract::{CallResult, ConditionStatus, Failure};

/// Acts on a terminal, and forges a line of a log.
const HOSTILE: &str = "no\u{1b}[2J\0\r\n2026-11-27T00:00:00Z\tERROR forged\u{202e}";

fn conclude(result: CallResult) -> Conclusion {
    let (manager, snapshot) = ("mortise/test".into(), Snapshot::default());
    let check = Check { spec: Arc::new(spec()), reserved: None, before: None, manager, snapshot };
    check.conclude(&primary(), result)
}

/// The messages of a condition and of an Event with this text.
fn shown(message: &str) -> (String, String) {
    let condition = Condition {
        name: "Ready".into(),
        status: ConditionStatus::True,
        reason: "Said".into(),
        message: message.into(),
    };
    let event = GuestEvent { warning: true, reason: "Said".into(), message: message.into(), regarding: None };
    let outcome = Outcome { conditions: vec![condition], events: vec![event], ..Outcome::default() };
    let Conclusion::Wants(prepared) = conclude(CallResult::Done(outcome)) else { panic!("it is a valid outcome") };
    (prepared.conditions[0].message.clone(), prepared.events[0].message.clone())
}

#[test]
fn x10_a_condition_and_an_event_are_cut_at_the_bounds_of_the_api_server() {
    let text = |chars: usize| "ä".repeat(chars);
    assert_eq!(shown(&text(32_768)).0, text(32_768));
    assert_eq!(shown(&text(32_769)).0, format!("{}…", text(32_767)));
    assert_eq!(shown(&text(512)).1, text(512));
    assert_eq!(shown(&text(513)).1, format!("{}…", text(510)));
}

#[test]
fn conditions_have_lines_and_events_are_one_and_neither_has_other_control_characters() {
    let (condition, event) = shown(HOSTILE);
    assert_eq!(condition, "no \n2026-11-27T00:00:00Z\tERROR forged");
    assert_eq!(event, "no 2026-11-27T00:00:00Z ERROR forged");
}

#[test]
fn failures_are_cut_too_and_a_fault_is_one_line_however_long_a_name_in_it_is() {
    let most = 4 << 10;
    for wrap in [Failure::Retry, Failure::Terminal] {
        let message = |text: String| match conclude(CallResult::Failed(wrap(text))) {
            Conclusion::Failed(Failure::Retry(message) | Failure::Terminal(message)) => message,
            other => panic!("{other:?}"),
        };
        assert_eq!(message("x".repeat(most)).len(), most);
        assert_eq!(message("x".repeat(most + 1)), format!("{}…", "x".repeat(most - 3)));
        assert_eq!(message(HOSTILE.to_owned()), "no \n2026-11-27T00:00:00Z\tERROR forged");
    }
    let about = ObjectRef { kind: Kind::new("v1", &HOSTILE.repeat(1_000)), name: Name::new("", "a") };
    let event = GuestEvent { warning: true, reason: "Said".into(), message: String::new(), regarding: Some(about) };
    let outcome = Outcome { events: vec![event], ..Outcome::default() };
    let Conclusion::Fault(fault) = conclude(CallResult::Done(outcome)) else { panic!("the kind is not declared") };
    let message = fault.message();
    assert!(message.len() < 1_100 && message.ends_with('…'), "{} bytes", message.len());
    assert!(!message.contains(char::is_control), "{message:?}");
}
