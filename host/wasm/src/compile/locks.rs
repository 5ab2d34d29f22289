//! Files of the compile cache that are locked while somebody works on them: drafts, and the locks of components. The kernel
//! releases a lock when its process ends, in whatever container, so a host knows what is under way and what a dead one has
//! left. What the files are for is for `folder.rs` and `cache.rs`.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use tempfile::NamedTempFile;

/// How often the lock of another host is tried.
const PAUSE: Duration = Duration::from_millis(50);
/// The extension of files that are being written.
const DRAFT: &str = "draft";
/// The extension of the locks of components.
const LOCK: &str = "lock";

/// A new file with a lock.
pub(super) fn locked_draft(folder: &Path) -> io::Result<NamedTempFile> {
    let file = tempfile::Builder::new().prefix(".").suffix(&format!(".{DRAFT}")).tempfile_in(folder)?;
    // Where there are no locks, another host that starts may remove it.
    let _ = file.as_file().try_lock();
    Ok(file)
}

/// Removes a draft or a lock if the host that made it has ended. Whether it did.
pub(super) fn remove_left_over(path: &Path) -> bool {
    let is_made = path.extension().is_some_and(|extension| extension == DRAFT || extension == LOCK);
    let file = is_made.then(|| File::open(path).ok()).flatten();
    // Removed while it is locked, so that nobody else has it.
    file.is_some_and(|file| file.try_lock().is_ok() && fs::remove_file(path).is_ok())
}

/// The right of one thread of one host to compile a component, until it is dropped or its process ends.
#[derive(Debug)]
pub(super) struct Lock {
    path: PathBuf,
    /// Open, which is what keeps the lock.
    _file: File,
}

impl Drop for Lock {
    fn drop(&mut self) {
        // While it is locked, so that nobody else has it.
        let _ = fs::remove_file(&self.path);
    }
}

/// Takes the lock of an entry, and waits while another has it. None when it takes longer, or there are no locks here.
pub(super) fn lock(entry: &Path, most: Duration) -> Option<Lock> {
    let (path, began) = (entry.with_extension(LOCK), Instant::now());
    loop {
        let file = OpenOptions::new().create(true).append(true).mode(0o600).open(&path).ok()?;
        match file.try_lock() {
            // Its former owner may have removed it since it was opened.
            Ok(()) if is_at(&file, &path) => return Some(Lock { path, _file: file }),
            Ok(()) => {}
            Err(TryLockError::WouldBlock) if began.elapsed() < most => thread::sleep(PAUSE),
            Err(_) => return None,
        }
    }
}

/// Whether another has the lock of an entry.
pub(super) fn is_locked(entry: &Path) -> bool {
    let file = File::open(entry.with_extension(LOCK));
    file.is_ok_and(|file| matches!(file.try_lock(), Err(TryLockError::WouldBlock)))
}

fn is_at(file: &File, path: &Path) -> bool {
    let (Ok(file), Ok(there)) = (file.metadata(), fs::metadata(path)) else { return false };
    (file.dev(), file.ino()) == (there.dev(), there.ino())
}
