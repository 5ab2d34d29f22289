//! Plugins in a directory: `<name>.wasm` with an optional `<name>.yaml`. File system notifications come in; offers,
//! refusals and removals go out. `directory/folder.rs` decides when to read a file and when it is complete; this file
//! does the I/O.
//!
//! A notification only triggers a scan, and every decision follows from scans, so a lost, repeated or reordered
//! notification costs nothing but time.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::fs::File;
use std::io::{ErrorKind, Read as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use mortise_core::digest;
use mortise_core::digest::Digest;
use mortise_core::limits::MAX_COMPONENT_BYTES;
use mortise_core::refusal::Refusal;
use notify::event::{AccessKind, AccessMode, EventKind, ModifyKind, RenameMode};
use notify::{RecommendedWatcher, RecursiveMode, Watcher as _};
use thiserror::Error;

use crate::component::{Component, MAX_CONFIG_BYTES, check_name, config, config_too_large};
use crate::fingerprint::{Fingerprint, too_large};
use crate::{Origin, Place, SourceEvent};

mod folder;

use folder::{Folder, MAX_WAIT, Stamp, Stamps};

/// Interval of scans without a notification: network file systems send none, and notification queues overflow. A scan
/// reads names, sizes and times only.
const SCAN_INTERVAL: Duration = Duration::from_secs(10);
/// Plugins per directory, ten times what a host is built for. More files mean that the directory is the wrong one.
const MAX_FILES: usize = 10_000;

/// Why a directory cannot be watched.
#[derive(Debug, Error)]
pub enum DirectoryError {
    /// It does not exist or is not a directory.
    #[error("the plugin directory {path} cannot be read; create it, or name another with --plugin-dir")]
    Unreadable {
        /// The directory.
        path: PathBuf,
        /// The cause.
        source: std::io::Error,
    },
    /// The system provides no notifications.
    #[error("the plugin directory {path} cannot be watched")]
    Unwatchable {
        /// The directory.
        path: PathBuf,
        /// The cause; on Linux mostly an exhausted fs.inotify.max_user_watches or max_user_instances.
        source: notify::Error,
    },
}

/// A watched directory.
#[derive(Debug)]
pub struct Directory {
    path: PathBuf,
    changes: Receiver<()>,
    /// Plugins whose file was renamed into its place since the last scan.
    renamed: Arc<Mutex<BTreeSet<String>>>,
    stopped: Arc<AtomicBool>,
    /// Dropping it ends the notifications.
    _watcher: RecommendedWatcher,
}

/// Whether [`SourceEvent::Listed`] was sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Listing {
    /// The directory was not readable yet.
    Unread,
    /// It was read; `Listed` is sent at this time at the latest.
    Due(Instant),
    Sent,
}

/// Stops [`Directory::run`] when dropped.
#[derive(Debug)]
pub struct Stop {
    stopped: Arc<AtomicBool>,
    wake: SyncSender<()>,
}

impl Drop for Stop {
    fn drop(&mut self) {
        self.stopped.store(true, Ordering::Release);
        // A full channel holds a wake-up already.
        let _ = self.wake.try_send(());
    }
}

impl Directory {
    /// Starts to watch a directory.
    pub fn open(path: &Path) -> Result<(Self, Stop), DirectoryError> {
        std::fs::read_dir(path).map_err(|source| DirectoryError::Unreadable { path: path.to_owned(), source })?;
        // One pending notification is as good as many: it only triggers a scan.
        let (wake, changes) = sync_channel(1);
        let unwatchable = |source| DirectoryError::Unwatchable { path: path.to_owned(), source };
        let (sender, renamed) = (wake.clone(), Arc::<Mutex<BTreeSet<String>>>::default());
        let seen = renamed.clone();
        let mut watcher = notify::recommended_watcher(move |event: notify::Result<notify::Event>| {
            if let Ok(event) = &event {
                seen.lock().unwrap_or_else(PoisonError::into_inner).extend(renamed_to(event));
            }
            if event.as_ref().map_or(true, |event| is_change(event.kind)) {
                let _ = sender.try_send(());
            }
        })
        .map_err(unwatchable)?;
        watcher.watch(path, RecursiveMode::NonRecursive).map_err(unwatchable)?;
        let stopped = Arc::new(AtomicBool::new(false));
        let stop = Stop { stopped: stopped.clone(), wake };
        Ok((Self { path: path.to_owned(), changes, renamed, stopped, _watcher: watcher }, stop))
    }

    /// Reports the contents of the directory and every change to `sink`, until its [`Stop`] is dropped. It blocks,
    /// reads and hashes files, so it needs a thread of its own.
    pub fn run(self, mut sink: impl FnMut(SourceEvent)) {
        let mut folder = Folder::default();
        let mut listing = Listing::Unread;
        while !self.stopped.load(Ordering::Acquire) {
            let renamed = std::mem::take(&mut *self.renamed.lock().unwrap_or_else(PoisonError::into_inner));
            let wait = match self.list() {
                Ok(found) => {
                    let wait = self.update(&mut folder, found, &renamed, &mut sink);
                    self.report_listed(&mut listing, &mut folder, wait, &mut sink)
                }
                Err(error) => {
                    // Plugins stay, and `Listed` is not sent: an unreadable directory is not an empty one, and the
                    // receiver of an empty list would remove its plugins.
                    tracing::warn!(
                        directory = %self.path.display(), %error, retry_s = SCAN_INTERVAL.as_secs(),
                        "cannot read the plugin directory"
                    );
                    None
                }
            };
            match self.changes.recv_timeout(wait.unwrap_or(SCAN_INTERVAL)) {
                Ok(()) | Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return,
            }
        }
    }

    /// Sends `Listed` once every file is stable, or after [`MAX_WAIT`]: one file that never stops changing must not
    /// keep all others from serving. Returns the time to the next scan.
    fn report_listed(
        &self,
        listing: &mut Listing,
        folder: &mut Folder,
        wait: Option<Duration>,
        sink: &mut impl FnMut(SourceEvent),
    ) -> Option<Duration> {
        let now = Instant::now();
        let due = match *listing {
            Listing::Sent => return wait,
            Listing::Unread => now + MAX_WAIT,
            Listing::Due(due) => due,
        };
        match wait {
            Some(wait) if now < due => {
                *listing = Listing::Due(due);
                Some(wait.min(due - now))
            }
            _ => {
                for name in folder.give_up_on_unreported() {
                    sink(self.event(&name, Err(still_written())));
                }
                *listing = Listing::Sent;
                sink(SourceEvent::Listed);
                wait
            }
        }
    }

    fn event(&self, name: &str, read: Result<Component, Refusal>) -> SourceEvent {
        let path = self.path.join(format!("{name}.wasm"));
        let source = format!("file {}", path.display());
        SourceEvent::of(
            Place { name, source: &source, version: "", only_named: false, tenant: None },
            Origin::File(path),
            read,
        )
    }

    /// Processes the result of a scan. Returns the time to the next one, if some file needs it.
    fn update(
        &self,
        folder: &mut Folder,
        found: BTreeMap<String, Stamps>,
        renamed: &BTreeSet<String>,
        sink: &mut impl FnMut(SourceEvent),
    ) -> Option<Duration> {
        let now = Instant::now();
        for name in folder.observe(now, found, renamed) {
            sink(SourceEvent::Gone(name.as_str().into()));
        }
        for (name, stamps) in folder.due(now) {
            let (read, whole) = match self.fingerprint(&name) {
                Ok((Fingerprint { digest, whole, .. }, config)) => {
                    (digest.map(|digest| Component { digest, config }), whole)
                }
                Err(refusal) => (Err(refusal), true),
            };
            // The file changed during the read: it is read again once it is stable.
            if stamps_of(&self.path, &name).as_ref() != Some(&stamps) {
                continue;
            }
            if folder.settle(now, &name, whole) {
                sink(self.event(&name, read));
            }
        }
        folder.next_scan(now)
    }

    fn fingerprint(&self, name: &str) -> Result<(Fingerprint, Arc<str>), Refusal> {
        check_name(name)?;
        let unreadable = |path: &Path, error: std::io::Error| {
            Refusal::new("UnreadableFile", format!("file {} cannot be read: {error}", path.display()))
        };
        let wasm = self.path.join(format!("{name}.wasm"));
        let seen = match open_regular(&wasm).map_err(|error| unreadable(&wasm, error))? {
            (_, bytes) if bytes > MAX_COMPONENT_BYTES as u64 => return Err(too_large()),
            (file, _) => Fingerprint::of(file).map_err(|error| unreadable(&wasm, error))?,
        };
        let yaml = self.path.join(format!("{name}.yaml"));
        let place = format!("file {name}.yaml");
        let text = match read_bounded(&yaml, MAX_CONFIG_BYTES) {
            Ok(bytes) => Some(bytes.ok_or_else(|| config_too_large(&place))?),
            Err(error) if error.kind() == ErrorKind::NotFound => None,
            Err(error) => return Err(unreadable(&yaml, error)),
        };
        let text = text.map(String::from_utf8).transpose();
        let text = text.map_err(|error| unreadable(&yaml, std::io::Error::new(ErrorKind::InvalidData, error)))?;
        Ok((seen, text.map_or_else(|| Ok("{}".into()), |yaml| config(&yaml, &place))?))
    }

    fn list(&self) -> std::io::Result<BTreeMap<String, Stamps>> {
        let mut found = BTreeMap::new();
        for entry in std::fs::read_dir(&self.path)? {
            let path = entry?.path();
            if path.extension() != Some(OsStr::new("wasm")) {
                continue;
            }
            // Editors write hidden temporary files.
            let Some(name) = path.file_stem().and_then(OsStr::to_str).filter(|name| !name.starts_with('.')) else {
                continue;
            };
            if found.len() == MAX_FILES {
                tracing::warn!(directory = %self.path.display(), "more than {MAX_FILES} plugins; the host ignores the others");
                break;
            }
            if let Some(stamps) = stamps_of(&self.path, name) {
                found.insert(name.to_owned(), stamps);
            }
        }
        Ok(found)
    }
}

/// Reports a file that could not be read yet, so that the plugin does not count as removed.
fn still_written() -> Refusal {
    Refusal::new(
        "StillBeingWritten",
        format!(
            "the file has kept changing for {} s; the host reads it once it is stable: write it under another name, then \
             rename it",
            MAX_WAIT.as_secs()
        ),
    )
}

/// Reading a file sends a notification too, and every scan would trigger the next.
fn is_change(kind: EventKind) -> bool {
    match kind {
        EventKind::Access(access) => access == AccessKind::Close(AccessMode::Write),
        _ => true,
    }
}

/// The plugin whose file has its name by this rename.
fn renamed_to(event: &notify::Event) -> Option<String> {
    let to = matches!(event.kind, EventKind::Modify(ModifyKind::Name(RenameMode::To | RenameMode::Both)));
    let path = event.paths.last().filter(|path| to && path.extension() == Some(OsStr::new("wasm")))?;
    Some(path.file_stem()?.to_str()?.to_owned())
}

/// The component of this digest; None when the file no longer has it, or no longer exists.
pub fn read(path: &Path, digest: &Digest) -> std::io::Result<Option<Vec<u8>>> {
    match read_bounded(path, MAX_COMPONENT_BYTES) {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        read => Ok(read?.filter(|bytes| digest::of(bytes) == *digest)),
    }
}

/// The content of a regular file; None when it is larger than `limit`, even if it grows during the read.
fn read_bounded(path: &Path, limit: usize) -> std::io::Result<Option<Vec<u8>>> {
    let (file, length) = open_regular(path)?;
    if length > limit as u64 {
        return Ok(None);
    }
    let mut bytes = Vec::with_capacity(usize::try_from(length).unwrap_or(limit));
    file.take(limit as u64 + 1).read_to_end(&mut bytes)?;
    Ok((bytes.len() <= limit).then_some(bytes))
}

/// A regular file and its length. Refuses a pipe, which would block, and a device, which may have no end.
fn open_regular(path: &Path) -> std::io::Result<(File, u64)> {
    let file = open_at_once(path)?;
    let metadata = file.metadata()?;
    if !metadata.is_file() {
        return Err(std::io::Error::new(ErrorKind::InvalidInput, "it is no regular file"));
    }
    Ok((file, metadata.len()))
}

/// Opens a file to read it. O_NONBLOCK, since opening a pipe would wait for a writer.
#[cfg(unix)]
fn open_at_once(path: &Path) -> std::io::Result<File> {
    let mut options = File::options();
    std::os::unix::fs::OpenOptionsExt::custom_flags(&mut options, libc::O_NONBLOCK);
    options.read(true).open(path)
}

#[cfg(not(unix))]
fn open_at_once(path: &Path) -> std::io::Result<File> {
    File::open(path)
}

/// None when the file does not exist.
fn stamps_of(directory: &Path, name: &str) -> Option<Stamps> {
    let wasm = stamp(&directory.join(format!("{name}.wasm")))?;
    Some(Stamps { wasm, config: stamp(&directory.join(format!("{name}.yaml"))) })
}

fn stamp(path: &Path) -> Option<Stamp> {
    let metadata = std::fs::metadata(path).ok().filter(std::fs::Metadata::is_file)?;
    let modified = metadata.modified().unwrap_or(SystemTime::UNIX_EPOCH);
    Some(Stamp { bytes: metadata.len(), modified, file: file_id(&metadata) })
}

/// The inode: distinguishes a file from one renamed over it within the clock's resolution.
#[cfg(unix)]
fn file_id(metadata: &std::fs::Metadata) -> u64 {
    std::os::unix::fs::MetadataExt::ino(metadata)
}

#[cfg(not(unix))]
fn file_id(_: &std::fs::Metadata) -> u64 {
    0
}

#[cfg(test)]
mod tests;
