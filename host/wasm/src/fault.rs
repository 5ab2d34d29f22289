//! From wasmtime's errors and the call's state to mortise-core's [`GuestFault`]: which bound the call exceeded, or
//! where the guest trapped.

use std::fmt::{self, Write};

use mortise_core::contract::GuestFault;
use mortise_core::limits::CallLimits;
use mortise_core::text::{FAULT, LOG};
use wasmtime::{Trap, WasmBacktrace};
use wasmtime_wasi::I32Exit;

use crate::state::{CallState, QueriesTooLarge, TooManyHostCalls};

/// Bytes of a backtrace and of stderr in a fault. A panic's takes some 2 KiB; conditions are cut shorter.
const MAX_DETAIL_BYTES: usize = 8 << 10;
/// Frames of one function on top of the stack that count as endless recursion. The backtrace has 24.
const RECURSION_FRAMES: usize = 16;

/// The fault behind a failed call.
pub(crate) fn of(error: &wasmtime::Error, state: &CallState, limits: &CallLimits) -> GuestFault {
    if let Some(over) = error.downcast_ref::<TooManyHostCalls>() {
        return GuestFault::TooManyHostCalls { message: over.to_string() };
    }
    if let Some(over) = error.downcast_ref::<QueriesTooLarge>() {
        return GuestFault::HostCallsTooLarge { message: over.to_string() };
    }
    match error.downcast_ref::<Trap>() {
        Some(Trap::Interrupt) => return GuestFault::Deadline { limit_ms: limits.deadline_ms },
        Some(Trap::OutOfFuel) => return GuestFault::Fuel { limit: limits.fuel.unwrap_or_default() },
        _ => {}
    }
    if state.limiter.denied {
        return GuestFault::Memory { limit_bytes: limits.memory_bytes };
    }
    let backtrace = error.downcast_ref::<WasmBacktrace>();
    if is_too_much_data(error) {
        return match backtrace {
            // Guest code was running: the data came with a host call.
            Some(_) => GuestFault::HostCallsTooLarge {
                message: format!("one call into the host carried more than {} bytes", limits.output_bytes),
            },
            None => GuestFault::OutputTooLarge { limit_bytes: limits.output_bytes },
        };
    }
    let trapped = backtrace.is_some() || error.is::<Trap>() || error.is::<I32Exit>();
    if !trapped {
        // No guest code was running: what it returned breaks the contract (bad UTF-8, pointers outside its memory,
        // unknown variants).
        return GuestFault::bad_outcome(format!("{error:#}"));
    }
    let stderr = state.wasi.stderr();
    let mut message = trap_message(error, &stderr);
    if backtrace.is_some_and(is_recursion) {
        message.push_str(" (one function calls itself without end, until the stack is used up)");
    }
    GuestFault::Trap { message, detail: detail(backtrace, &stderr) }
}

/// True when one function fills the top of the stack. A guest's own stack is in its memory, so overflowing it shows as
/// an access out of bounds, and its author would look for a wrong pointer.
fn is_recursion(backtrace: &WasmBacktrace) -> bool {
    let mut functions = backtrace.frames().iter().map(wasmtime::FrameInfo::func_index);
    let top = functions.next();
    functions.take_while(|function| Some(*function) == top).count() >= RECURSION_FRAMES
}

/// True when the guest passed too many bytes to the host at once. The type of this error is private to wasmtime.
fn is_too_much_data(error: &wasmtime::Error) -> bool {
    error.chain().any(|cause| cause.to_string().contains("fuel allocated for hostcalls has been exhausted"))
}

/// The guest's last words on stderr (G6), else the trap's name.
fn trap_message(error: &wasmtime::Error, stderr: &str) -> String {
    if let Some(words) = last_words(stderr) {
        return FAULT.own(words);
    }
    match (error.downcast_ref::<Trap>(), error.downcast_ref::<I32Exit>()) {
        (Some(trap), _) => FAULT.text(trap.to_string().trim_start_matches("wasm trap: ")).into_owned(),
        (_, Some(exit)) => format!("the guest exited with status {}", exit.0),
        _ => FAULT.own(error.root_cause().to_string()),
    }
}

/// The line of stderr that says why: a panic's place and message, else the last line.
fn last_words(stderr: &str) -> Option<String> {
    let lines: Vec<&str> = stderr.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    // Rust: "thread '<unnamed>' panicked at src/lib.rs:27:39:", and the message on the next line.
    if let Some(at) = lines.iter().rposition(|line| line.contains("panicked at ")) {
        let place = lines[at].split_once("panicked at ").map_or(lines[at], |(_, place)| place);
        let message = lines.get(at + 1).filter(|_| place.ends_with(':')).copied().unwrap_or_default();
        return Some(format!("panicked at {place} {message}").trim_end().to_owned());
    }
    // Go: "panic: message", and goroutines after it.
    if let Some(panic) = lines.iter().rev().find(|line| line.starts_with("panic: ")) {
        return Some((*panic).to_owned());
    }
    lines.last().map(|line| (*line).to_owned())
}

fn detail(backtrace: Option<&WasmBacktrace>, stderr: &str) -> String {
    let mut parts = Vec::new();
    let lines = |text: &str| {
        text.lines().filter(|line| !line.trim().is_empty()).map(|line| LOG.text(line).into_owned()).collect::<Vec<_>>()
    };
    if let Some(backtrace) = backtrace {
        let mut text = Bounded(String::new());
        // An error means that the rest is left out.
        let _ = write!(text, "{backtrace}");
        parts.push(lines(&text.0).join("\n"));
    }
    let tail = lines(&stderr[stderr.ceil_char_boundary(stderr.len().saturating_sub(MAX_DETAIL_BYTES))..]);
    if !tail.is_empty() {
        parts.push(format!("stderr:\n  {}", tail.join("\n  ")));
    }
    parts.join("\n")
}

/// Text up to [`MAX_DETAIL_BYTES`]: the names of a guest's functions are as long as it likes.
struct Bounded(String);

impl Write for Bounded {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let end = text.floor_char_boundary(MAX_DETAIL_BYTES - self.0.len());
        self.0.push_str(&text[..end]);
        if end == text.len() { Ok(()) } else { Err(fmt::Error) }
    }
}

#[cfg(test)]
mod tests {
    use super::last_words;

    #[test]
    fn g6_the_last_words_of_each_language_are_found() {
        let rust = "\nthread '<unnamed>' (1) panicked at src/lib.rs:27:39:\nreplicas is 666\nnote: run with\n";
        assert_eq!(last_words(rust).unwrap(), "panicked at src/lib.rs:27:39: replicas is 666");
        let go = "panic: replicas is 666\n\ngoroutine 1 [running]:\nmain.reconcile()\n\tpodset.go:36\n";
        assert_eq!(last_words(go).unwrap(), "panic: replicas is 666");
        let python = "Traceback (most recent call last):\n  File \"/0/app.py\", line 13\nValueError: replicas is 666\n";
        assert_eq!(last_words(python).unwrap(), "ValueError: replicas is 666");
        assert_eq!(last_words(" \n\n"), None);
    }
}
