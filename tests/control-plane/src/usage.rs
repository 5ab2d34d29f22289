//! The CPU time and memory of a process, from /proc, for the benchmarks. Linux only.

use std::fs;
use std::time::Duration;

use anyhow::{Context, Result};

/// CPU time and memory of one process, without its children.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Usage {
    /// CPU time since it started, user and system together, in steps of one clock tick (10 ms on most machines).
    pub cpu: Duration,
    /// Anonymous resident memory: heap and stacks.
    pub anonymous_bytes: u64,
    /// All resident memory.
    pub resident_bytes: u64,
}

/// Reads the usage of the process `pid`.
pub fn usage_of(pid: u32) -> Result<Usage> {
    let read = |name: &str| {
        let path = format!("/proc/{pid}/{name}");
        fs::read_to_string(&path).with_context(|| format!("read {path}"))
    };
    let ticks = cpu_ticks(&read("stat")?).with_context(|| format!("parse /proc/{pid}/stat"))?;
    let status = read("status")?;
    let bytes = |name: &str| kilobytes(&status, name).with_context(|| format!("find {name} in /proc/{pid}/status"));
    let per_second = rustix::param::clock_ticks_per_second();
    Ok(Usage {
        cpu: Duration::from_millis(ticks * 1000 / per_second),
        anonymous_bytes: bytes("RssAnon:")? * 1024,
        resident_bytes: bytes("VmRSS:")? * 1024,
    })
}

/// Fields 14 and 15, counted from after the process's name, which is in parentheses and may contain blanks.
fn cpu_ticks(stat: &str) -> Option<u64> {
    let (_, after_name) = stat.rsplit_once(')')?;
    let mut fields = after_name.split_whitespace().skip(11);
    let (user, system) = (fields.next()?, fields.next()?);
    Some(user.parse::<u64>().ok()? + system.parse::<u64>().ok()?)
}

fn kilobytes(status: &str, name: &str) -> Option<u64> {
    let line = status.lines().find(|line| line.starts_with(name))?;
    line.split_whitespace().nth(1)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpu_ticks_are_found_after_a_name_with_blanks_and_parentheses() {
        let stat = "42 (a) b (c) S 1 42 42 0 -1 4194560 100 0 0 0 70 30 0 0 20 0 1 0 100 1000 200";
        assert_eq!(cpu_ticks(stat), Some(100));
    }

    #[test]
    fn this_process_uses_memory() {
        let usage = usage_of(std::process::id()).unwrap();
        assert!(usage.resident_bytes >= usage.anonymous_bytes && usage.anonymous_bytes > 0, "{usage:?}");
    }
}
