//! Output for people: errors, sizes, kinds, capabilities.

use std::fmt::Write as _;
use std::io::{ErrorKind, Write as _};

use anyhow::Context;
use mortise_core::object::Kind;

/// Prints to standard output. A reader that closes it early, such as `head`, is no error.
pub fn print(text: &str) -> anyhow::Result<()> {
    match std::io::stdout().write_all(text.as_bytes()) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => Err(error).context("cannot print the output"),
        _ => Ok(()),
    }
}

/// An error for a person: what failed, then each cause on a line of its own, except one that repeats the end of the
/// line above.
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

pub fn size(bytes: u64) -> String {
    const KIB: u64 = 1 << 10;
    const MIB: u64 = 1 << 20;
    match bytes {
        0..KIB => format!("{bytes} bytes"),
        KIB..MIB => format!("{:.1} KiB", bytes as f64 / KIB as f64),
        _ => format!("{:.2} MiB", bytes as f64 / MIB as f64),
    }
}

pub fn kind(kind: &Kind) -> String {
    format!("{} ({})", kind.kind, kind.api_version)
}

/// What a component can do through its imports: each capability, with the imports that grant it.
pub fn capabilities(imports: &[String]) -> Vec<(&'static str, Vec<&str>)> {
    let mut lines: Vec<(&str, Vec<&str>)> = Vec::new();
    for import in imports {
        let meaning = meaning(import.split('@').next().unwrap_or(import));
        match lines.iter_mut().find(|(known, _)| *known == meaning) {
            Some((_, granting)) => granting.push(import),
            None => lines.push((meaning, vec![import])),
        }
    }
    lines
}

fn meaning(name: &str) -> &'static str {
    match name {
        "mortise:host/cluster" => "reads objects of the kinds that its manifest declares",
        "mortise:host/config" => "reads its own configuration",
        "mortise:host/log" | "wasi:cli/stdout" | "wasi:cli/stderr" => "writes log lines, within bounds",
        "mortise:host/clock" => "reads the time, which is constant during a call",
        "mortise:host/schedule" => "evaluates cron expressions",
        "mortise:host/objects" | "mortise:host/http" | "mortise:plugin/desired" => "types only",
        _ if name.starts_with("wasi:clocks/") => "reads the time, which is constant during a call",
        _ if name.starts_with("wasi:random/") => "seeds its hash maps, with the same seed in every call",
        _ if name.starts_with("wasi:filesystem/") => "has an empty file system",
        _ if name.starts_with("wasi:sockets/") => "has no network",
        _ if name.starts_with("wasi:") => "required by its language's runtime; no effect",
        _ => "unknown to this host",
    }
}

#[cfg(test)]
mod tests {
    use anyhow::anyhow;

    use super::*;

    #[test]
    fn a_failure_names_what_failed_and_every_cause_once() {
        let error = Err::<(), _>(anyhow!("connection refused"))
            .context("asking 127.0.0.1:1: connection refused")
            .context("cannot push podset.wasm")
            .expect_err("an error");
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
    fn imports_are_grouped_by_capability() {
        let imports =
            ["wasi:cli/stdout@0.2.6", "mortise:host/cluster@0.2.0", "mortise:host/log@0.2.0", "wasi:sockets/tcp@0.2.6"];
        let imports = imports.map(str::to_owned);
        assert_eq!(
            capabilities(&imports),
            [
                ("writes log lines, within bounds", vec!["wasi:cli/stdout@0.2.6", "mortise:host/log@0.2.0"]),
                ("reads objects of the kinds that its manifest declares", vec!["mortise:host/cluster@0.2.0"]),
                ("has no network", vec!["wasi:sockets/tcp@0.2.6"]),
            ]
        );
    }
}
