//! Compiled components on disk with what their trials have shown, which components failed, and which are being compiled.
//! Native code is run as it is found, so the folder belongs to this user alone, and an artifact is given out only as it was
//! delivered: its sha256 is compared, unless the kernel says that the file was not changed since that was done last. What
//! does not match is forgotten and compiled again.
//!
//! The folder has a bound in bytes and in entries; `room.rs` says what goes when it is full.

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
use tempfile::NamedTempFile;
use tracing::{debug, warn};

use super::artifact::Trial;
use super::error::{CompileError, host_error};
use super::room::{self, BOUNDS, Bounds, Kept};

/// Reasons that a refusal by the compiler can have; a stored one must be among them.
const REASONS: [&str; 2] = ["CompileFailed", "TooCostlyToCompile"];
/// Bytes of an artifact that are in memory at once while its digest is made.
const CHUNK_BYTES: usize = 64 << 10;

/// What is known about a component.
#[derive(Debug)]
pub(super) enum Entry {
    /// Its artifact is here, and what the trial of it by this host has shown, if there was one.
    Compiled(Arc<File>, Option<Trial>),
    /// It does not compile.
    Refused(Refusal),
    /// So many compilations of it were begun and never ended: the host died first.
    Attempted(u32),
}

/// The file beside an artifact, or in its place.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
enum Record {
    Compiled {
        /// The artifact's sha256.
        code: String,
        /// The [`stamp`] of the file that had it.
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

/// A [`Trial`], and by which host.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Tried {
    host: String,
    component_bytes: u64,
    admission: bool,
    conversion: bool,
    manifest: Arc<str>,
}

/// The folder.
#[derive(Debug)]
pub(super) struct Cache {
    folder: PathBuf,
    /// Artifacts of other engines and versions stand beside ours, under other names.
    engine: String,
    /// Trials by another host are not believed: it may link, scan and try in another way.
    host: String,
    opened: SystemTime,
    /// The artifacts that were given out, by their records, of which some are still in use.
    given_out: Mutex<HashMap<PathBuf, Weak<File>>>,
    pub(super) bounds: Bounds,
}

impl Cache {
    /// Opens the folder, creating it for this user alone.
    pub(super) fn open(folder: &Path, compatibility: u64, host: String) -> Result<Self, CompileError> {
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(folder)
            .map_err(|source| host_error(format!("create the compile cache {}", folder.display()), source))?;
        let metadata = fs::metadata(folder)
            .map_err(|source| host_error(format!("look at the compile cache {}", folder.display()), source))?;
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
            host,
            opened: SystemTime::now(),
            given_out: Mutex::default(),
            bounds: BOUNDS,
        };
        cache.remove_leftovers();
        Ok(cache)
    }

    /// What is known about a component. An entry that cannot be used is as good as none.
    pub(super) fn find(&self, digest: &Digest) -> Option<Entry> {
        match self.record(digest)? {
            Record::Compiled { code, stamp, trial } => {
                let Some(file) = self.intact(digest, &code, &stamp) else {
                    warn!(%digest, folder = %self.folder.display(), "a compiled component is damaged; it is compiled again");
                    self.forget(digest);
                    return None;
                };
                let trial = trial.filter(|trial| trial.host == self.host).map(|trial| Trial {
                    component_bytes: trial.component_bytes,
                    exports: Exports { admission: trial.admission, conversion: trial.conversion },
                    manifest: trial.manifest,
                });
                Some(Entry::Compiled(self.give_out(digest, file), trial))
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
        // The age of a record is the time since it was last of use. One that cannot be made younger goes at another time.
        let _ = file.set_modified(SystemTime::now());
        match serde_json::from_slice(&record) {
            Ok(record) => Some(record),
            Err(error) => {
                warn!(%digest, %error, "an entry of the compile cache cannot be read; the component is compiled again");
                None
            }
        }
    }

    /// The artifact, if it is what its record says.
    fn intact(&self, digest: &Digest, code: &str, known_stamp: &str) -> Option<File> {
        let mut file = File::open(self.artifact_path(digest)).ok()?;
        let stamp = stamp(&file).ok()?;
        if stamp == known_stamp {
            return Some(file);
        }
        let (mut hasher, mut chunk) = (Hasher::default(), vec![0; CHUNK_BYTES]);
        loop {
            match file.read(&mut chunk).ok()? {
                0 => break,
                read => hasher.update(&chunk[..read]),
            }
        }
        (*hasher.finish().0 == *code).then_some(file)
    }

    /// Remembers that a component is about to be compiled, in case that the host dies of it. The count is with this one.
    pub(super) fn begin(&self, digest: &Digest, count: u32) -> Result<(), CompileError> {
        self.write_record(digest, &Record::Attempted { count })?;
        room::for_record(&self.kept(), self.bounds).iter().for_each(|record| remove(record));
        Ok(())
    }

    /// Where the code of a component is written while its compiler runs.
    pub(super) fn draft(&self) -> Result<Draft, CompileError> {
        let prefix = format!(".{}-", std::process::id());
        let file = tempfile::Builder::new().prefix(&prefix).suffix(".draft").tempfile_in(&self.folder);
        let file = file
            .map_err(|source| host_error(format!("write into the compile cache {}", self.folder.display()), source))?;
        Ok(Draft { file, hasher: Hasher::default(), bytes: 0 })
    }

    /// Stores an artifact: first the code, then the record that vouches for it. What there is no room for is given out and
    /// not kept.
    pub(super) fn store(&self, digest: &Digest, draft: Draft) -> Result<Arc<File>, CompileError> {
        let Draft { file: draft, hasher, bytes } = draft;
        let path = self.artifact_path(digest);
        let failed = |source| host_error(format!("write {} into the compile cache", path.display()), source);
        // Open for reading alone, whatever becomes of its name.
        let file = File::open(draft.path()).map_err(failed)?;
        let Some(removed) = room::for_artifact(&self.kept(), self.bounds, self.opened, bytes) else {
            warn!(
                %digest, bytes, bound_bytes = self.bounds.bytes,
                "the compile cache is full of components in use; this one is compiled again at the next start"
            );
            self.forget(digest);
            return Ok(Arc::new(file));
        };
        for record in removed {
            debug!(record = %record.display(), "forgetting an entry of the compile cache");
            remove(&record);
        }
        // Else a machine that fails might leave a file of this length with something else in it.
        draft.as_file().sync_data().map_err(failed)?;
        draft.persist(&path).map_err(|error| failed(error.error))?;
        let (code, stamp) = (hasher.finish().to_string(), stamp(&file).map_err(failed)?);
        self.write_record(digest, &Record::Compiled { code, stamp, trial: None })?;
        Ok(self.give_out(digest, file))
    }

    /// Remembers what the trial of a component has shown, if its artifact is kept.
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

    /// Remembers that a component does not compile.
    pub(super) fn store_refusal(&self, digest: &Digest, refusal: &Refusal) -> Result<(), CompileError> {
        let record = Record::Refused { reason: refusal.reason.to_owned(), message: refusal.message.clone() };
        self.write_record(digest, &record)
    }

    /// Forgets what is known about a component.
    pub(super) fn forget(&self, digest: &Digest) {
        remove(&self.record_path(digest));
    }

    fn write_record(&self, digest: &Digest, record: &Record) -> Result<(), CompileError> {
        let path = self.record_path(digest);
        let failed = |source| host_error(format!("write {} into the compile cache", path.display()), source);
        let mut draft = self.draft()?.file;
        draft.write_all(&serde_json::to_vec(record).expect("a record is plain data")).map_err(failed)?;
        draft.as_file().set_modified(SystemTime::now()).map_err(failed)?;
        // Renamed, so that no reader ever sees half of it.
        draft.persist(&path).map_err(|error| failed(error.error))?;
        Ok(())
    }

    fn stem(&self, digest: &Digest) -> String {
        format!("{}-{}", digest.0.trim_start_matches("sha256:"), self.engine)
    }

    /// The file that says what is known about a component.
    pub(super) fn record_path(&self, digest: &Digest) -> PathBuf {
        self.folder.join(format!("{}.json", self.stem(digest)))
    }

    pub(super) fn artifact_path(&self, digest: &Digest) -> PathBuf {
        self.folder.join(format!("{}.cwasm", self.stem(digest)))
    }

    /// Notes that an artifact is in use for as long as somebody has what this returns.
    fn give_out(&self, digest: &Digest, file: File) -> Arc<File> {
        let file = Arc::new(file);
        self.given_out().insert(self.record_path(digest), Arc::downgrade(&file));
        file
    }

    fn given_out(&self) -> MutexGuard<'_, HashMap<PathBuf, Weak<File>>> {
        // Each change is one insertion or removal, so a panic under the lock leaves it whole.
        self.given_out.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Removes what a host that died has left: drafts, and code that no record vouches for. Drafts of other processes that
    /// are alive stay.
    fn remove_leftovers(&self) {
        for path in self.files().map(|file| file.path()) {
            let is_leftover = match path.extension().and_then(OsStr::to_str) {
                Some("draft") => !writer_of(&path).is_some_and(is_another_process),
                Some("cwasm") => !path.with_extension("json").exists(),
                _ => false,
            };
            if is_leftover {
                debug!(path = %path.display(), "removing what was left of an interrupted compilation");
                let _ = fs::remove_file(&path);
            }
        }
    }

    /// Every entry of the folder, those of other engines too.
    fn kept(&self) -> Vec<Kept> {
        let mut given_out = self.given_out();
        given_out.retain(|_, file| file.strong_count() > 0);
        let records = self.files().filter(|file| file.path().extension().is_some_and(|extension| extension == "json"));
        let kept = records.filter_map(|file| {
            let (metadata, record) = (file.metadata().ok()?, file.path());
            let artifact = fs::metadata(record.with_extension("cwasm")).ok();
            Some(Kept {
                used: metadata.modified().unwrap_or(SystemTime::UNIX_EPOCH),
                bytes: metadata.len() + artifact.as_ref().map_or(0, fs::Metadata::len),
                has_artifact: artifact.is_some(),
                in_use: given_out.contains_key(&record),
                record,
            })
        });
        kept.collect()
    }

    /// The files of the folder. One that cannot be read is as good as empty: writing into it says why.
    fn files(&self) -> impl Iterator<Item = DirEntry> {
        fs::read_dir(&self.folder).into_iter().flatten().flatten()
    }
}

/// An artifact that is being written; it is gone when it is dropped.
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

/// What changes when anybody changes a file, or puts another in its place. The ctime is the kernel's own, so nobody sets it back.
fn stamp(file: &File) -> io::Result<String> {
    let file = file.metadata()?;
    let (modified, changed) = ((file.mtime(), file.mtime_nsec()), (file.ctime(), file.ctime_nsec()));
    Ok(format!("{} bytes of {modified:?} in inode {} since {changed:?}", file.len(), file.ino()))
}

/// Removes an entry: first the record, so that nothing vouches for code that is half gone.
fn remove(record: &Path) {
    let _ = fs::remove_file(record);
    let _ = fs::remove_file(record.with_extension("cwasm"));
}

/// The process in the name of a draft.
fn writer_of(draft: &Path) -> Option<u32> {
    draft.file_name()?.to_str()?.strip_prefix('.')?.split('-').next()?.parse().ok()
}

/// Whether a process of this number is alive and another one. In a container the host has the same number each time.
fn is_another_process(pid: u32) -> bool {
    pid != std::process::id() && Path::new("/proc").join(pid.to_string()).exists()
}
