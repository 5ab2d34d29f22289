//! What an author reads of a trap's backtrace. Input: the detail of a fault. Output: the same without the standard library's
//! frames. It must not know what trapped.

/// Where the standard library's sources were when it was built.
const LIBRARY: &str = "/rustc/";

/// The detail without frames that have no line or one of the standard library; whole, if that leaves none.
pub(crate) fn shortened(detail: &str) -> String {
    let (mut kept, mut frame, mut frames) = (Vec::new(), Vec::new(), 0);
    for line in detail.lines().chain([""]) {
        if is_place(line) && !frame.is_empty() {
            frame.push(line);
            continue;
        }
        let is_own = frame.iter().any(|line| is_place(line)) && !frame.iter().any(|line| line.contains(LIBRARY));
        if is_own {
            frames += 1;
            kept.append(&mut frame);
        }
        frame.clear();
        if is_frame(line) {
            frame.push(line);
        } else if !line.is_empty() {
            kept.push(line);
        }
    }
    if frames == 0 { detail.to_owned() } else { kept.join("\n") }
}

/// `  12:   0x486b - podset::reconcile`.
fn is_frame(line: &str) -> bool {
    line.trim_start().split_once(':').is_some_and(|(number, _)| number.parse::<u32>().is_ok())
}

/// `      at podset/src/lib.rs:78:5`.
fn is_place(line: &str) -> bool {
    line.trim_start().starts_with("at ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_of_the_standard_library_are_left_out() {
        let detail = "error while executing at wasm backtrace:\n    0:  0x34ae8 - abort\n    1:  0x1 - std::abort\n         \
                      at /rustc/1/library/std/src/process.rs:2533:5\n   12:   0x486b - podset::reconcile\n         \
                      at podset/src/lib.rs:78:76\nstderr:\n  panicked";
        let own = "error while executing at wasm backtrace:\n   12:   0x486b - podset::reconcile\n         \
                   at podset/src/lib.rs:78:76\nstderr:\n  panicked";
        assert_eq!(shortened(detail), own);
    }

    #[test]
    fn a_backtrace_without_lines_is_left_whole() {
        let detail =
            "error while executing at wasm backtrace:\n    0:  0x34ae8 - abort\n    1:  0x1 - podset::reconcile";
        assert_eq!(shortened(detail), detail);
    }
}
