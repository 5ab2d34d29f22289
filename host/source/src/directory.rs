//! Plugins in a directory, `<name>.wasm` with an optional `<name>.yaml` beside it: what the file system says comes in,
//! offers and disappearances go out. The decisions, when a file is looked at again and when it is whole, are in
//! `directory/folder.rs`; here is what touches files.
//!
//! The kernel's notifications only say when to look: every decision is made from what a look finds, so a notification
//! that is lost, doubled or out of order changes nothing but the moment.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs::File;
use std::io::{ErrorKind, Read as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::time::{Duration, Instant, SystemTime};

use mortise_core::digest;
use mortise_core::digest::Digest;
use mortise_core::limits::MAX_COMPONENT_BYTES;
use mortise_core::refusal::Refusal;
use notify::event::{AccessKind, AccessMode, EventKind};
use notify::{RecommendedWatcher, RecursiveMode, Watcher as _};
use thiserror::Error;

use crate::component::{Component, MAX_CONFIG_BYTES, check_name, config, config_too_large};
use crate::fingerprint::{Fingerprint, too_large};
use crate::{Origin, SourceEvent};

mod folder;

use folder::{Folder, PATIENCE, Stamp, Stamps};

/// Looks without a notification: network file systems send none, and queues of notifications overflow. A look reads
/// names, sizes and times only.
const LOOK_EVERY: Duration = Duration::from_secs(10);
/// Plugins of one directory, ten times what a host is built for; more is a directory of something else.
const MAX_FILES: usize = 10_000;

/// Why a directory cannot be watched.
#[derive(Debug, Error)]
pub enum DirectoryError {
    /// It is not there, or is a file.
    #[error("the plugin directory {path} cannot be read; create it, or name another with --plugin-dir")]
    Unreadable {
        /// The directory.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// The system gives no notifications.
    #[error("the plugin directory {path} cannot be watched")]
    Unwatchable {
        /// The directory.
        path: PathBuf,
        /// Why; on Linux mostly that fs.inotify.max_user_watches or max_user_instances is used up.
        source: notify::Error,
    },
}

/// A directory that is being watched.
#[derive(Debug)]
pub struct Directory {
    path: PathBuf,
    changes: Receiver<()>,
    stopped: Arc<AtomicBool>,
    /// Notifications come for as long as this lives.
    _watcher: RecommendedWatcher,
}

/// Whether [`SourceEvent::Listed`] was told.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Listing {
    /// The directory could not be read yet.
    Unread,
    /// It was read, and is told as listed at this moment at the latest.
    Due(Instant),
    /// It was told.
    Reported,
}

/// Ends [`Directory::run`] when it is dropped.
#[derive(Debug)]
pub struct Stop {
    stopped: Arc<AtomicBool>,
    wake: SyncSender<()>,
}

impl Drop for Stop {
    fn drop(&mut self) {
        self.stopped.store(true, Ordering::Release);
        // When a wake-up is already waiting, that one will do.
        let _ = self.wake.try_send(());
    }
}

impl Directory {
    /// Begins to watch a directory.
    pub fn open(path: &Path) -> Result<(Self, Stop), DirectoryError> {
        std::fs::read_dir(path).map_err(|source| DirectoryError::Unreadable { path: path.to_owned(), source })?;
        // One waiting notification is as good as many: it only says that there is something to look at.
        let (wake, changes) = sync_channel(1);
        let unwatchable = |source| DirectoryError::Unwatchable { path: path.to_owned(), source };
        let sender = wake.clone();
        let mut watcher = notify::recommended_watcher(move |event: notify::Result<notify::Event>| {
            if event.as_ref().map_or(true, |event| says_something_changed(event.kind)) {
                let _ = sender.try_send(());
            }
        })
        .map_err(unwatchable)?;
        watcher.watch(path, RecursiveMode::NonRecursive).map_err(unwatchable)?;
        let stopped = Arc::new(AtomicBool::new(false));
        let stop = Stop { stopped: stopped.clone(), wake };
        Ok((Self { path: path.to_owned(), changes, stopped, _watcher: watcher }, stop))
    }

    /// Tells what the directory holds and whatever changes in it, until its [`Stop`] is dropped. It blocks, reads and
    /// hashes files, so it runs on a thread of its own.
    pub fn run(self, mut sink: impl FnMut(SourceEvent)) {
        let mut folder = Folder::default();
        let mut listing = Listing::Unread;
        while !self.stopped.load(Ordering::Acquire) {
            let wait = match self.list() {
                Ok(found) => {
                    let wait = self.look(&mut folder, found, &mut sink);
                    self.tell_listed(&mut listing, &mut folder, wait, &mut sink)
                }
                Err(error) => {
                    // What was offered stays, and nothing counts as listed: a directory that cannot be read is not an
                    // empty one, and whoever is told that it is takes its plugins away.
                    tracing::warn!(
                        directory = %self.path.display(), %error, retry_s = LOOK_EVERY.as_secs(),
                        "the plugin directory cannot be read"
                    );
                    None
                }
            };
            match self.changes.recv_timeout(wait.unwrap_or(LOOK_EVERY)) {
                Ok(()) | Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return,
            }
        }
    }

    /// Says that everything was told as soon as everything has come to rest, or when the patience with what does not is
    /// at its end: one file that is written without end must not keep all others from serving. Gives back how long to
    /// wait for the next look.
    fn tell_listed(
        &self,
        listing: &mut Listing,
        folder: &mut Folder,
        wait: Option<Duration>,
        sink: &mut impl FnMut(SourceEvent),
    ) -> Option<Duration> {
        let now = Instant::now();
        let due = match *listing {
            Listing::Reported => return wait,
            Listing::Unread => now + PATIENCE,
            Listing::Due(due) => due,
        };
        match wait {
            Some(wait) if now < due => {
                *listing = Listing::Due(due);
                Some(wait.min(due - now))
            }
            _ => {
                for name in folder.give_up_on_untold() {
                    sink(self.event(&name, Err(still_written())));
                }
                *listing = Listing::Reported;
                sink(SourceEvent::Listed);
                wait
            }
        }
    }

    fn event(&self, name: &str, read: Result<Component, Refusal>) -> SourceEvent {
        let path = self.path.join(format!("{name}.wasm"));
        SourceEvent::of(name, &format!("file {}", path.display()), Origin::File(path), read)
    }

    /// Takes what was found into account, and says when something has to be looked at again.
    fn look(
        &self,
        folder: &mut Folder,
        found: BTreeMap<String, Stamps>,
        sink: &mut impl FnMut(SourceEvent),
    ) -> Option<Duration> {
        let now = Instant::now();
        for name in folder.observe(now, found) {
            sink(SourceEvent::Gone(name.as_str().into()));
        }
        for (name, stamps) in folder.due(now) {
            let (read, whole) = match self.fingerprint(&name) {
                Ok((Fingerprint { digest, whole, .. }, config)) => {
                    (digest.map(|digest| Component { digest, config }), whole)
                }
                Err(refusal) => (Err(refusal), true),
            };
            // What changed while it was read is read again when it has come to rest.
            if stamps_of(&self.path, &name).as_ref() != Some(&stamps) {
                continue;
            }
            if folder.settle(now, &name, whole) {
                sink(self.event(&name, read));
            }
        }
        folder.next_look(now)
    }

    /// Passes over a component, and reads its configuration.
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
        let text = match read_bounded(&yaml, MAX_CONFIG_BYTES) {
            Ok(bytes) => Some(bytes.ok_or_else(config_too_large)?),
            Err(error) if error.kind() == ErrorKind::NotFound => None,
            Err(error) => return Err(unreadable(&yaml, error)),
        };
        let text = text.map(String::from_utf8).transpose();
        let text = text.map_err(|error| unreadable(&yaml, std::io::Error::new(ErrorKind::InvalidData, error)))?;
        Ok((seen, text.map_or_else(|| Ok("{}".into()), |yaml| config(&yaml))?))
    }

    fn list(&self) -> std::io::Result<BTreeMap<String, Stamps>> {
        let mut found = BTreeMap::new();
        for entry in std::fs::read_dir(&self.path)? {
            let path = entry?.path();
            if path.extension() != Some(OsStr::new("wasm")) {
                continue;
            }
            // Editors write hidden files beside the one that they replace.
            let Some(name) = path.file_stem().and_then(OsStr::to_str).filter(|name| !name.starts_with('.')) else {
                continue;
            };
            if found.len() == MAX_FILES {
                tracing::warn!(directory = %self.path.display(), "more than {MAX_FILES} plugins, the rest is not read");
                break;
            }
            if let Some(stamps) = stamps_of(&self.path, name) {
                found.insert(name.to_owned(), stamps);
            }
        }
        Ok(found)
    }
}

/// Told of a file that stands there and could not be read, so that it does not count as gone.
fn still_written() -> Refusal {
    Refusal::new(
        "StillBeingWritten",
        format!(
            "the file changes all the time, for {} s by now; it is read as soon as it stays as it is for a moment: write \
             it under another name and rename it",
            PATIENCE.as_secs()
        ),
    )
}

/// Reading a file is a notification too, and would make every look the cause of the next.
fn says_something_changed(kind: EventKind) -> bool {
    match kind {
        EventKind::Access(access) => access == AccessKind::Close(AccessMode::Write),
        _ => true,
    }
}

/// The component of this digest; None when the file holds it no longer, or is gone.
///
/// # Errors
/// When the file is there and cannot be read.
pub fn read(path: &Path, digest: &Digest) -> std::io::Result<Option<Vec<u8>>> {
    match read_bounded(path, MAX_COMPONENT_BYTES) {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        read => Ok(read?.filter(|bytes| digest::of(bytes) == *digest)),
    }
}

/// What a regular file holds; None when that is more than `limit`. A file that grows while it is read is cut at the limit,
/// whatever its size was said to be.
fn read_bounded(path: &Path, limit: usize) -> std::io::Result<Option<Vec<u8>>> {
    let (file, length) = open_regular(path)?;
    if length > limit as u64 {
        return Ok(None);
    }
    let mut bytes = Vec::with_capacity(usize::try_from(length).unwrap_or(limit));
    file.take(limit as u64 + 1).read_to_end(&mut bytes)?;
    Ok((bytes.len() <= limit).then_some(bytes))
}

/// A regular file and its length. Anything else under the name is an error: a pipe would be waited for and a device read
/// without end.
fn open_regular(path: &Path) -> std::io::Result<(File, u64)> {
    let file = open_at_once(path)?;
    let metadata = file.metadata()?;
    if !metadata.is_file() {
        return Err(std::io::Error::new(ErrorKind::InvalidInput, "it is no regular file"));
    }
    Ok((file, metadata.len()))
}

/// Opens a file to read it. Opening a pipe would wait for a writer; asked not to block, it does not.
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

/// None when there is no such file, or no longer.
fn stamps_of(directory: &Path, name: &str) -> Option<Stamps> {
    let wasm = stamp(&directory.join(format!("{name}.wasm")))?;
    Some(Stamps { wasm, config: stamp(&directory.join(format!("{name}.yaml"))) })
}

fn stamp(path: &Path) -> Option<Stamp> {
    let metadata = std::fs::metadata(path).ok().filter(std::fs::Metadata::is_file)?;
    let modified = metadata.modified().unwrap_or(SystemTime::UNIX_EPOCH);
    Some(Stamp { bytes: metadata.len(), modified, file: file_id(&metadata) })
}

/// Tells a file from the one that was renamed over it within the clock's resolution.
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
