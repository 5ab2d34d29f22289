//! The compile cache on disk: artifacts with their components' trials, refusals, and compilations that have begun.
//! Native code runs as it is found, so the folder belongs to this user alone, each record has a code that only a host
//! with its key can make (`mac.rs`), and an artifact's sha256 is verified before use, unless the kernel shows that the
//! file has not changed since the last time. What does not match is compiled again.
//!
//! The folder is bounded in bytes and entries; `eviction.rs` decides what a full one loses.

use std::collections::HashMap;
use std::fs::{self, DirEntry, File};
use std::io::{self, Read, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, SystemTime};

use mortise_core::digest::{Digest, Hasher};
use mortise_core::manifest::Exports;
use mortise_core::refusal::Refusal;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use tempfile::NamedTempFile;
use tracing::{debug, warn};

use super::artifact::Trial;
use super::error::{CompileError, host_error};
use super::eviction::{self, BOUNDS, Bounds, Candidate};
use super::folder::{Draft, Folder, Written};
use super::locks::{self, Lock, locked_draft};
use super::mac::Seal;

/// The reasons of refusals by the compiler; others in a record are ignored.
const REASONS: [&str; 2] = ["CompileFailed", "TooCostlyToCompile"];
/// Bytes of an artifact that are in memory at once while it is hashed.
const CHUNK_BYTES: usize = 64 << 10;

/// What is known about a component.
#[derive(Debug)]
pub(super) enum Entry {
    /// It has an artifact, and was tried if there is a trial.
    Compiled(Arc<File>, Option<Trial>),
    /// It does not compile.
    Refused(Refusal),
    /// So many times a host ended when the compiler of this component had much memory. The last may be under way.
    Attempted(u32),
}

/// A record's file, beside an artifact or without one.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Sealed {
    /// The [`Seal`]'s code of the record, for the name of the file.
    mac: String,
    record: Box<RawValue>,
}

/// What a record says.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
enum Record {
    Compiled {
        /// The artifact's sha256.
        code: String,
        /// The [`stamp`] of the file when it was verified.
        #[serde(default)]
        stamp: String,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        trial: Option<Tried>,
    },
    Refused {
        reason: String,
        message: String,
    },
    Attempted {
        count: u32,
    },
}

/// A [`Trial`] by a host.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Tried {
    host: String,
    component_bytes: u64,
    admission: bool,
    conversion: bool,
    manifest: Arc<str>,
}

#[derive(Debug)]
pub(super) struct Cache {
    folder: Folder,
    /// Part of our file names: artifacts of other engines and versions are in the same folder.
    engine: String,
    /// Trials by other builds of the host are void: they may scan, link and try differently.
    host: String,
    opened: SystemTime,
    /// Open artifacts, by their records; some may have been closed since.
    in_use: Mutex<HashMap<PathBuf, Weak<File>>>,
    pub(super) bounds: Bounds,
}

impl Cache {
    /// The cache in a folder.
    pub(super) fn open(
        folder: &Path,
        key_file: Option<&Path>,
        compatibility: u64,
        host: String,
    ) -> Result<Self, CompileError> {
        let cache = Self {
            folder: Folder::open(folder, key_file)?,
            engine: format!("{}-{compatibility:016x}", env!("CARGO_PKG_VERSION")),
            host,
            opened: SystemTime::now(),
            in_use: Mutex::default(),
            bounds: BOUNDS,
        };
        cache.remove_leftovers();
        Ok(cache)
    }

    /// Whether the folder could be used last.
    pub(super) fn is_usable(&self) -> Arc<AtomicBool> {
        self.folder.is_usable()
    }

    /// What is known about a component. An unusable entry counts as none.
    pub(super) fn find(&self, digest: &Digest) -> Option<Entry> {
        match self.record(digest)? {
            Record::Compiled { code, stamp, trial } => {
                let Some((file, seen)) = self.intact(digest, &code, &stamp) else {
                    warn!(%digest, folder = %self.folder.path().display(), "a compiled component is damaged; it is compiled again");
                    self.forget(digest);
                    return None;
                };
                let known = trial.as_ref().filter(|trial| trial.host == self.host).map(|trial| Trial {
                    component_bytes: trial.component_bytes,
                    exports: Exports { admission: trial.admission, conversion: trial.conversion },
                    manifest: Arc::clone(&trial.manifest),
                });
                // The volume was copied, say. Without the new stamp every start would hash the file again.
                if seen != stamp
                    && let Err(error) = self.write_record(digest, &Record::Compiled { code, stamp: seen, trial })
                {
                    warn!(%digest, %error, "a verified artifact cannot be recorded; the next start verifies it again");
                }
                Some(Entry::Compiled(self.mark_in_use(digest, file), known))
            }
            Record::Refused { reason, message } => {
                let reason = REASONS.into_iter().find(|known| *known == reason)?;
                Some(Entry::Refused(Refusal::new(reason, message)))
            }
            Record::Attempted { count } => Some(Entry::Attempted(count)),
        }
    }

    fn record(&self, digest: &Digest) -> Option<Record> {
        let folder = self.folder.get()?;
        let mut file = File::open(self.record_path(digest)).ok()?;
        let mut record = Vec::new();
        file.read_to_end(&mut record).ok()?;
        // The time of last use. Without it the record is evicted earlier or later, which does no harm.
        let _ = file.set_modified(SystemTime::now());
        match self.unseal(&folder.seal, digest, &record) {
            Ok(record) => Some(record),
            Err(error) => {
                warn!(%digest, error, "an entry of the compile cache does not count; the component is compiled again");
                None
            }
        }
    }

    fn unseal(&self, seal: &Seal, digest: &Digest, file: &[u8]) -> Result<Record, String> {
        let unreadable = |error: serde_json::Error| format!("it cannot be read: {error}");
        let Sealed { mac, record } = serde_json::from_slice(file).map_err(unreadable)?;
        if !seal.is_of(&mac, &self.stem(digest), record.get()) {
            return Err("it was not written for this component by a host with this key".to_owned());
        }
        serde_json::from_str(record.get()).map_err(unreadable)
    }

    /// The artifact and its stamp, if it matches its record.
    fn intact(&self, digest: &Digest, code: &str, known_stamp: &str) -> Option<(File, String)> {
        let mut file = File::open(self.artifact_path(digest)).ok()?;
        let stamp = stamp(&file).ok()?;
        if stamp == known_stamp {
            return Some((file, stamp));
        }
        let (mut hasher, mut chunk) = (Hasher::default(), vec![0; CHUNK_BYTES]);
        loop {
            match file.read(&mut chunk).ok()? {
                0 => break,
                read => hasher.update(&chunk[..read]),
            }
        }
        (*hasher.finish().0 == *code).then_some((file, stamp))
    }

    /// The right to compile a component; None if another host has it for longer than this, or the folder has no locks.
    pub(super) fn lock(&self, digest: &Digest, most: Duration) -> Option<Lock> {
        self.folder.get()?;
        locks::lock(&self.record_path(digest), most)
    }

    /// Records that so many compilations may have killed the host, the present one among them.
    pub(super) fn attempt(&self, digest: &Digest, count: u32) -> Result<(), CompileError> {
        self.write_record_alone(digest, &Record::Attempted { count })
    }

    /// A file for an artifact.
    pub(super) fn draft(&self) -> Result<Draft, CompileError> {
        self.folder.draft()
    }

    /// Stores an artifact. Where it cannot be kept it is returned alone, and compiled again at the next start.
    pub(super) fn store(&self, digest: &Digest, draft: Draft) -> Result<Arc<File>, CompileError> {
        let bytes = draft.bytes;
        let (draft, code) = match draft.end() {
            Written::InFolder(draft, code) => (draft, code),
            Written::InMemory(file) => {
                self.forget(digest);
                return Ok(file);
            }
        };
        // Read-only, and open also when its path is gone.
        let file = File::open(draft.path()).or_else(|_| draft.as_file().try_clone());
        let failed = |source| host_error("open native code in the compile cache".to_owned(), source);
        let file = file.map_err(failed)?;
        match self.keep(digest, draft, code, &file, bytes) {
            Ok(true) => Ok(self.mark_in_use(digest, file)),
            Ok(false) => {
                warn!(
                    %digest, bytes, bound_bytes = self.bounds.bytes,
                    "the compile cache is full of components in use; this one is compiled again at the next start"
                );
                self.forget(digest);
                Ok(Arc::new(file))
            }
            Err(error) => {
                warn!(%digest, %error, "a component is not in the compile cache, and is compiled again at the next start");
                self.forget(digest);
                Ok(Arc::new(file))
            }
        }
    }

    /// Keeps an artifact: first the code, then the record with its sha256. Whether there is space.
    fn keep(
        &self,
        digest: &Digest,
        draft: NamedTempFile,
        code: Digest,
        file: &File,
        bytes: u64,
    ) -> Result<bool, CompileError> {
        let path = self.artifact_path(digest);
        let failed = |source| host_error(format!("write {} into the compile cache", path.display()), source);
        let Some(evicted) = eviction::for_artifact(&self.entries(), self.bounds, self.opened, bytes) else {
            return Ok(false);
        };
        for record in evicted {
            debug!(record = %record.display(), "evicting an entry of the compile cache");
            remove(&record);
        }
        // Else a power failure might leave a file of this length with other content.
        draft.as_file().sync_data().map_err(failed)?;
        draft.persist(&path).map_err(|error| failed(error.error))?;
        let stamp = stamp(file).map_err(failed)?;
        self.write_record(digest, &Record::Compiled { code: code.to_string(), stamp, trial: None })?;
        Ok(true)
    }

    /// Records the trial of a component if its artifact is cached.
    pub(super) fn accept(&self, digest: &Digest, trial: &Trial) -> Result<(), CompileError> {
        let Some(Record::Compiled { code, stamp, .. }) = self.record(digest) else { return Ok(()) };
        let trial = Tried {
            host: self.host.clone(),
            component_bytes: trial.component_bytes,
            admission: trial.exports.admission,
            conversion: trial.exports.conversion,
            manifest: Arc::clone(&trial.manifest),
        };
        self.write_record(digest, &Record::Compiled { code, stamp, trial: Some(trial) })
    }

    pub(super) fn store_refusal(&self, digest: &Digest, refusal: &Refusal) -> Result<(), CompileError> {
        let record = Record::Refused { reason: refusal.reason.to_owned(), message: refusal.message.clone() };
        self.write_record_alone(digest, &record)
    }

    /// A record without an artifact, of which there are so many.
    fn write_record_alone(&self, digest: &Digest, record: &Record) -> Result<(), CompileError> {
        self.write_record(digest, record)?;
        eviction::for_record(&self.entries(), self.bounds).iter().for_each(|record| remove(record));
        Ok(())
    }

    pub(super) fn forget(&self, digest: &Digest) {
        remove(&self.record_path(digest));
    }

    fn write_record(&self, digest: &Digest, record: &Record) -> Result<(), CompileError> {
        let path = self.record_path(digest);
        let failed = |source| host_error(format!("write {} into the compile cache", path.display()), source);
        let away = || failed(io::Error::new(io::ErrorKind::NotFound, "its folder cannot be used"));
        let folder = self.folder.get().ok_or_else(away)?;
        let mut draft = locked_draft(self.folder.path()).map_err(failed)?;
        let record = serde_json::value::to_raw_value(record).expect("a record is plain data");
        let sealed = Sealed { mac: folder.seal.of(&self.stem(digest), record.get()), record };
        draft.write_all(&serde_json::to_vec(&sealed).expect("a record is plain data")).map_err(failed)?;
        draft.as_file().set_modified(SystemTime::now()).map_err(failed)?;
        // A rename, so that no reader sees half of it.
        draft.persist(&path).map_err(|error| failed(error.error))?;
        Ok(())
    }

    fn stem(&self, digest: &Digest) -> String {
        format!("{}-{}", digest.0.trim_start_matches("sha256:"), self.engine)
    }

    pub(super) fn record_path(&self, digest: &Digest) -> PathBuf {
        self.folder.path().join(format!("{}.json", self.stem(digest)))
    }

    pub(super) fn artifact_path(&self, digest: &Digest) -> PathBuf {
        self.folder.path().join(format!("{}.cwasm", self.stem(digest)))
    }

    /// The artifact is in use until the returned file is dropped.
    fn mark_in_use(&self, digest: &Digest, file: File) -> Arc<File> {
        let file = Arc::new(file);
        self.in_use().insert(self.record_path(digest), Arc::downgrade(&file));
        file
    }

    fn in_use(&self) -> MutexGuard<'_, HashMap<PathBuf, Weak<File>>> {
        // Each change is one insertion or removal, so a panic under the lock leaves it whole.
        self.in_use.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Removes what a host that died has left: drafts, locks, and code without a record. What is under way in other hosts stays.
    fn remove_leftovers(&self) {
        for path in self.files().map(|file| file.path()) {
            let is_code = path.extension().is_some_and(|extension| extension == "cwasm");
            let is_orphan = is_code && !path.with_extension("json").exists() && !locks::is_locked(&path);
            if locks::remove_left_over(&path) || (is_orphan && fs::remove_file(&path).is_ok()) {
                debug!(path = %path.display(), "removed the leftovers of an interrupted compilation");
            }
        }
    }

    /// Every entry of the folder, also those of other engines.
    fn entries(&self) -> Vec<Candidate> {
        let mut in_use = self.in_use();
        in_use.retain(|_, file| file.strong_count() > 0);
        let records = self.files().filter(|file| file.path().extension().is_some_and(|extension| extension == "json"));
        let entries = records.filter_map(|file| {
            let (metadata, record) = (file.metadata().ok()?, file.path());
            let artifact = fs::metadata(record.with_extension("cwasm")).ok();
            Some(Candidate {
                used: metadata.modified().unwrap_or(SystemTime::UNIX_EPOCH),
                bytes: metadata.len() + artifact.as_ref().map_or(0, fs::Metadata::len),
                has_artifact: artifact.is_some(),
                in_use: in_use.contains_key(&record),
                record,
            })
        });
        entries.collect()
    }

    /// The files of the folder. An unreadable folder counts as empty: a write into it returns the error.
    fn files(&self) -> impl Iterator<Item = DirEntry> {
        fs::read_dir(self.folder.path()).into_iter().flatten().flatten()
    }
}

/// Differs after every change or replacement of a file: only the kernel sets the ctime.
fn stamp(file: &File) -> io::Result<String> {
    let file = file.metadata()?;
    let (modified, changed) = ((file.mtime(), file.mtime_nsec()), (file.ctime(), file.ctime_nsec()));
    let (device, inode) = (file.dev(), file.ino());
    Ok(format!("{} bytes of {modified:?} in inode {inode} of device {device} since {changed:?}", file.len()))
}

/// Removes an entry, the record first, so that no record is left without its code.
fn remove(record: &Path) {
    let _ = fs::remove_file(record);
    let _ = fs::remove_file(record.with_extension("cwasm"));
}
