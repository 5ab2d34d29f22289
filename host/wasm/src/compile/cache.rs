//! The compile cache on disk: artifacts with their components' trials, refusals, and compilations that have begun.
//! Native code runs as it is found, so the folder belongs to this user alone, each record has a code that only a host
//! with its key can make (`mac.rs`), and an artifact's sha256 is verified before use, unless the kernel shows that the
//! file has not changed since the last time. What does not match is compiled again.
//!
//! The folder is bounded in bytes and entries; `eviction.rs` decides what a full one loses.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::fs::{self, DirBuilder, DirEntry, File};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::SystemTime;

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
    /// This many compilations have begun and not ended: the host died.
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
    folder: PathBuf,
    /// Part of our file names: artifacts of other engines and versions are in the same folder.
    engine: String,
    seal: Seal,
    /// Trials by other builds of the host are void: they may scan, link and try differently.
    host: String,
    opened: SystemTime,
    /// Open artifacts, by their records; some may have been closed since.
    in_use: Mutex<HashMap<PathBuf, Weak<File>>>,
    pub(super) bounds: Bounds,
}

impl Cache {
    /// Opens the folder, creating it for this user alone.
    pub(super) fn open(
        folder: &Path,
        key_file: Option<&Path>,
        compatibility: u64,
        host: String,
    ) -> Result<Self, CompileError> {
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(folder)
            .map_err(|source| host_error(format!("create the compile cache {}", folder.display()), source))?;
        let metadata = fs::metadata(folder)
            .map_err(|source| host_error(format!("read the mode of the compile cache {}", folder.display()), source))?;
        let foreign = metadata.uid() != rustix::process::geteuid().as_raw();
        if foreign || metadata.mode() & 0o022 != 0 {
            let why = if foreign { "it belongs to another user" } else { "others may write into it" };
            return Err(host_error(
                format!("use the compile cache {}", folder.display()),
                io::Error::new(io::ErrorKind::PermissionDenied, format!("{why}; native code is run from it")),
            ));
        }
        let cache = Self {
            folder: folder.to_owned(),
            engine: format!("{}-{compatibility:016x}", env!("CARGO_PKG_VERSION")),
            seal: Seal::open(key_file, folder, &draft_prefix())?,
            host,
            opened: SystemTime::now(),
            in_use: Mutex::default(),
            bounds: BOUNDS,
        };
        cache.remove_leftovers();
        Ok(cache)
    }

    /// What is known about a component. An unusable entry counts as none.
    pub(super) fn find(&self, digest: &Digest) -> Option<Entry> {
        match self.record(digest)? {
            Record::Compiled { code, stamp, trial } => {
                let Some((file, seen)) = self.intact(digest, &code, &stamp) else {
                    warn!(%digest, folder = %self.folder.display(), "a compiled component is damaged; it is compiled again");
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
        let mut file = File::open(self.record_path(digest)).ok()?;
        let mut record = Vec::new();
        file.read_to_end(&mut record).ok()?;
        // The time of last use. Without it the record is evicted earlier or later, which does no harm.
        let _ = file.set_modified(SystemTime::now());
        match self.unseal(digest, &record) {
            Ok(record) => Some(record),
            Err(error) => {
                warn!(%digest, error, "an entry of the compile cache does not count; the component is compiled again");
                None
            }
        }
    }

    fn unseal(&self, digest: &Digest, file: &[u8]) -> Result<Record, String> {
        let unreadable = |error: serde_json::Error| format!("it cannot be read: {error}");
        let Sealed { mac, record } = serde_json::from_slice(file).map_err(unreadable)?;
        if !self.seal.is_of(&mac, &self.stem(digest), record.get()) {
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

    /// Records that a compilation begins, in case it kills the host. `count` includes it.
    pub(super) fn begin(&self, digest: &Digest, count: u32) -> Result<(), CompileError> {
        self.write_record(digest, &Record::Attempted { count })?;
        eviction::for_record(&self.entries(), self.bounds).iter().for_each(|record| remove(record));
        Ok(())
    }

    /// A temporary file in the folder.
    pub(super) fn draft(&self) -> Result<Draft, CompileError> {
        let file = tempfile::Builder::new().prefix(&draft_prefix()).suffix(".draft").tempfile_in(&self.folder);
        let file = file
            .map_err(|source| host_error(format!("write into the compile cache {}", self.folder.display()), source))?;
        Ok(Draft { file, hasher: Hasher::default(), bytes: 0 })
    }

    /// Stores an artifact: first the code, then the record with its sha256. Without space the artifact is returned and
    /// not kept.
    pub(super) fn store(&self, digest: &Digest, draft: Draft) -> Result<Arc<File>, CompileError> {
        let Draft { file: draft, hasher, bytes } = draft;
        let path = self.artifact_path(digest);
        let failed = |source| host_error(format!("write {} into the compile cache", path.display()), source);
        // Read-only, and open also when its path is gone.
        let file = File::open(draft.path()).map_err(failed)?;
        let Some(evicted) = eviction::for_artifact(&self.entries(), self.bounds, self.opened, bytes) else {
            warn!(
                %digest, bytes, bound_bytes = self.bounds.bytes,
                "the compile cache is full of components in use; this one is compiled again at the next start"
            );
            self.forget(digest);
            return Ok(Arc::new(file));
        };
        for record in evicted {
            debug!(record = %record.display(), "evicting an entry of the compile cache");
            remove(&record);
        }
        // Else a power failure might leave a file of this length with other content.
        draft.as_file().sync_data().map_err(failed)?;
        draft.persist(&path).map_err(|error| failed(error.error))?;
        let (code, stamp) = (hasher.finish().to_string(), stamp(&file).map_err(failed)?);
        self.write_record(digest, &Record::Compiled { code, stamp, trial: None })?;
        Ok(self.mark_in_use(digest, file))
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
        self.write_record(digest, &record)
    }

    pub(super) fn forget(&self, digest: &Digest) {
        remove(&self.record_path(digest));
    }

    fn write_record(&self, digest: &Digest, record: &Record) -> Result<(), CompileError> {
        let path = self.record_path(digest);
        let failed = |source| host_error(format!("write {} into the compile cache", path.display()), source);
        let mut draft = self.draft()?.file;
        let record = serde_json::value::to_raw_value(record).expect("a record is plain data");
        let sealed = Sealed { mac: self.seal.of(&self.stem(digest), record.get()), record };
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
        self.folder.join(format!("{}.json", self.stem(digest)))
    }

    pub(super) fn artifact_path(&self, digest: &Digest) -> PathBuf {
        self.folder.join(format!("{}.cwasm", self.stem(digest)))
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

    /// Removes what a host that died has left: drafts, and code without a record. Drafts of other live processes stay.
    fn remove_leftovers(&self) {
        for path in self.files().map(|file| file.path()) {
            let is_leftover = match path.extension().and_then(OsStr::to_str) {
                Some("draft") => !writer_of(&path).is_some_and(is_another_process),
                Some("cwasm") => !path.with_extension("json").exists(),
                _ => false,
            };
            if is_leftover {
                debug!(path = %path.display(), "removing the leftovers of an interrupted compilation");
                let _ = fs::remove_file(&path);
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
        fs::read_dir(&self.folder).into_iter().flatten().flatten()
    }
}

/// A file that is being written; dropping it deletes it.
#[derive(Debug)]
pub(super) struct Draft {
    file: NamedTempFile,
    hasher: Hasher,
    pub(super) bytes: u64,
}

impl Write for Draft {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.file.write(bytes)?;
        self.hasher.update(&bytes[..written]);
        self.bytes += written as u64;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
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

/// How names of this process's drafts begin.
fn draft_prefix() -> String {
    format!(".{}-", std::process::id())
}

/// The process id in the name of a draft.
fn writer_of(draft: &Path) -> Option<u32> {
    draft.file_name()?.to_str()?.strip_prefix('.')?.split('-').next()?.parse().ok()
}

/// Whether this is another, live process. In a container the host has the same id after each restart.
fn is_another_process(pid: u32) -> bool {
    pid != std::process::id() && Path::new("/proc").join(pid.to_string()).exists()
}
