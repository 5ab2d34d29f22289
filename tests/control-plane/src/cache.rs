//! The cache of built binaries: outside the checkout, so that `cargo clean` does not cost minutes of Go builds, and
//! with one lock file per entry, since two test runs may want the same binaries at once.

use std::env;
use std::fs::{self, File, TryLockError};
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use sha2::{Digest, Sha256};

use crate::progress::Progress;

/// Longer than any cold build of one module on a slow machine; after it the other process counts as hung.
const LOCK_DEADLINE: Duration = Duration::from_secs(3600);

/// The cache directory: `$MORTISE_CACHE`, which must be writable if set, else the first writable one of the user's
/// cache directory and the checkout's `target/`.
pub(crate) fn directory(checkout: &Path) -> Result<PathBuf> {
    if let Some(named) = env::var_os("MORTISE_CACHE").filter(|path| !path.is_empty()) {
        let path = PathBuf::from(named);
        probe(&path).with_context(|| format!("MORTISE_CACHE={} cannot be written", path.display()))?;
        return Ok(path);
    }
    let set = |name| env::var_os(name).filter(|path| !path.is_empty()).map(PathBuf::from);
    let candidates =
        [set("XDG_CACHE_HOME").map(|path| path.join("mortise")), set("HOME").map(|path| path.join(".cache/mortise"))];
    for path in candidates.into_iter().flatten() {
        if probe(&path).is_ok() {
            return Ok(path);
        }
    }
    let path = checkout.join("target/cache");
    probe(&path).with_context(|| {
        format!("no cache directory is writable, not even {}: set MORTISE_CACHE to one that is", path.display())
    })?;
    Ok(path)
}

fn probe(path: &Path) -> std::io::Result<()> {
    fs::create_dir_all(path)?;
    tempfile::tempfile_in(path).map(drop)
}

/// The name of a cache entry: the hash of its inputs, which are length-prefixed so that no two lists collide.
pub(crate) fn key(parts: &[&[u8]]) -> String {
    let mut hash = Sha256::new();
    for part in parts {
        hash.update((part.len() as u64).to_le_bytes());
        hash.update(part);
    }
    // 64 bits are enough for the few versions of one machine.
    hash.finalize().iter().take(8).map(|byte| format!("{byte:02x}")).collect()
}

/// Takes the entry's lock, and reports while another process holds it. Dropping the file or a crash releases it.
pub(crate) fn lock(path: &Path, what: &str, report: &mut dyn FnMut(Progress<'_>)) -> Result<File> {
    let file = File::create(path).with_context(|| format!("create lock file {}", path.display()))?;
    let start = Instant::now();
    loop {
        match file.try_lock() {
            Ok(()) => return Ok(file),
            Err(TryLockError::WouldBlock) => {}
            Err(TryLockError::Error(error)) => {
                return Err(error).with_context(|| format!("lock {}", path.display()));
            }
        }
        let elapsed = start.elapsed();
        if elapsed > LOCK_DEADLINE {
            bail!("another process has held {} for {} s: end it, then try again", path.display(), elapsed.as_secs());
        }
        report(Progress::Waiting { what, elapsed });
        sleep(Duration::from_millis(500));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_differ_when_bytes_move_between_parts() {
        assert_ne!(key(&[b"ab", b"c"]), key(&[b"a", b"bc"]));
        assert_eq!(key(&[b"ab", b"c"]), key(&[b"ab", b"c"]));
        assert_eq!(key(&[b"x"]).len(), 16);
    }

    #[test]
    fn a_held_lock_is_waited_for_and_reported() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("entry.lock");
        let held = std::cell::RefCell::new(Some(lock(&path, "first", &mut |_| {}).unwrap()));
        let mut reports = 0;
        lock(&path, "second", &mut |progress| {
            assert!(matches!(progress, Progress::Waiting { what: "second", .. }));
            reports += 1;
            held.borrow_mut().take();
        })
        .unwrap();
        assert_eq!(reports, 1);
    }
}
