//! How things are put to a person: errors, sizes, kinds.

use std::fmt::Write;

use mortise_core::object::Kind;

/// An error as a person reads it: what failed, then each cause on a line of its own. A cause that only repeats the end
/// of the line above is left out.
pub fn failure(error: &anyhow::Error) -> String {
    let mut text = format!("error: {error}\n");
    let mut above = error.to_string();
    for cause in error.chain().skip(1) {
        let cause = cause.to_string();
        if !above.ends_with(&cause) {
            // Writing to a string does not fail.
            let _ = writeln!(text, "  because: {}", cause.replace('\n', "\n    "));
        }
        above = cause;
    }
    text
}

/// "105 213 bytes" is hard to compare, "103 KiB" is not.
pub fn size(bytes: u64) -> String {
    const KIB: u64 = 1 << 10;
    const MIB: u64 = 1 << 20;
    match bytes {
        0..KIB => format!("{bytes} bytes"),
        KIB..MIB => format!("{:.1} KiB", bytes as f64 / KIB as f64),
        _ => format!("{:.2} MiB", bytes as f64 / MIB as f64),
    }
}

/// "PodSet (app.example.com/v1alpha1)".
pub fn kind(kind: &Kind) -> String {
    format!("{} ({})", kind.kind, kind.api_version)
}

/// What an import lets a component do, for somebody who decides whether to trust it.
pub fn capability(import: &str) -> String {
    let name = import.split('@').next().unwrap_or(import);
    let meaning = match name {
        "mortise:host/cluster" => "read objects of the kinds that its manifest declares",
        "mortise:host/clock" => "know the time, fixed for each call",
        "mortise:host/config" => "read its own configuration",
        "mortise:host/log" => "write log lines, within bounds",
        "mortise:host/objects" => "(types only)",
        _ if name.starts_with("wasi:random/") => "draw random numbers, the same for the same object",
        _ if name.starts_with("wasi:clocks/") => "know the time, fixed for each call",
        _ if name.starts_with("wasi:filesystem/") => "nothing: there are no files",
        _ if name.starts_with("wasi:sockets/") => "nothing: there is no network",
        "wasi:cli/stdout" | "wasi:cli/stderr" => "write text that becomes log lines, within bounds",
        _ if name.starts_with("wasi:") => "nothing that leaves the call",
        _ => "unknown to this host",
    };
    format!("{import}: {meaning}")
}

#[cfg(test)]
mod tests {
    use anyhow::{Context, anyhow};

    use super::*;

    #[test]
    fn a_failure_names_what_failed_and_every_cause_once() {
        let error = Err::<(), _>(anyhow!("connection refused"))
            .context("asking 127.0.0.1:1: connection refused")
            .context("cannot push podset.wasm")
            .expect_err("it is one");
        assert_eq!(
            failure(&error),
            "error: cannot push podset.wasm\n  because: asking 127.0.0.1:1: connection refused\n"
        );
    }

    #[test]
    fn sizes_have_the_unit_that_fits() {
        assert_eq!([size(12), size(105_213), size(18 << 20)], ["12 bytes", "102.7 KiB", "18.00 MiB"]);
    }

    #[test]
    fn every_capability_says_what_it_gives() {
        assert!(capability("mortise:host/cluster@0.1.0").contains("kinds that its manifest declares"));
        assert!(capability("wasi:sockets/tcp@0.2.3").contains("no network"));
        assert!(capability("evil:thing/all").contains("unknown"));
    }
}
