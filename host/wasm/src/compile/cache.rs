//! Compiled components on disk, which components failed, and which are being compiled. Native code is run as it is
//! found, so the folder belongs to this user alone, every artifact's sha256 is compared before its path is given out,
//! and what does not match is forgotten and compiled again.
//!
//! The folder has a bound in entries and in bytes; what was used longest ago goes first.

use std::ffi::OsStr;
use std::fs::{self, DirBuilder, DirEntry, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::SystemTime;

use mortise_core::digest;
use mortise_core::digest::Digest;
use mortise_core::refusal::Refusal;
use serde::{Deserialize, Serialize};
use tracing::{debug, warn};

use super::error::{CompileError, host_error};

/// How much is kept.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bounds {
    /// Components.
    pub(super) entries: usize,
    /// All of their files together.
    pub(super) bytes: u64,
}

/// Each artifact has some 0.5 MiB (Rust) to 35 MiB (Python). The volume that deploy/ gives to the folder has 1 GiB, and a
/// Pod whose volume is full is evicted: the rest is for artifacts that were removed here and are still mapped.
pub(super) const BOUNDS: Bounds = Bounds { entries: 200, bytes: 768 << 20 };
/// Reasons that a refusal by the compiler can have; a stored one must be among them.
const REASONS: [&str; 2] = ["CompileFailed", "TooCostlyToCompile"];

/// What is known about a component.
#[derive(Debug)]
pub(super) enum Entry {
    /// Its artifact is here.
    Compiled(PathBuf),
    /// It does not compile.
    Refused(Refusal),
    /// So many compilations of it were begun and never ended: the host died first.
    Attempted(u32),
}

/// The file beside an artifact, or in its place.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
enum Record {
    Compiled { code: String },
    Refused { reason: String, message: String },
    Attempted { count: u32 },
}

/// The folder.
#[derive(Debug)]
pub(super) struct Cache {
    folder: PathBuf,
    /// Artifacts of other engines and versions stand beside ours, under other names.
    engine: String,
    writes: AtomicU64,
    pub(super) bounds: Bounds,
}

impl Cache {
    /// Opens the folder, creating it for this user alone.
    pub(super) fn open(folder: &Path, compatibility: u64) -> Result<Self, CompileError> {
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
        let engine = format!("{}-{compatibility:016x}", env!("CARGO_PKG_VERSION"));
        let cache = Self { folder: folder.to_owned(), engine, writes: AtomicU64::new(0), bounds: BOUNDS };
        cache.remove_leftovers();
        cache.prune(0);
        Ok(cache)
    }

    /// What is known about a component. An entry that cannot be used is as good as none.
    pub(super) fn find(&self, digest: &Digest) -> Option<Entry> {
        let path = self.record_path(digest);
        let record = fs::read(&path).ok()?;
        // The age of a record is the time since it was last of use. One that cannot be made younger goes sooner.
        let _ = OpenOptions::new().write(true).open(&path).and_then(|file| file.set_modified(SystemTime::now()));
        match serde_json::from_slice(&record) {
            Ok(Record::Compiled { code }) => {
                let path = self.artifact_path(digest);
                let intact = fs::read(&path).is_ok_and(|found| *digest::of(&found).0 == *code);
                if !intact {
                    warn!(%digest, path = %path.display(), "a compiled component is damaged; it is compiled again");
                }
                intact.then_some(Entry::Compiled(path))
            }
            Ok(Record::Refused { reason, message }) => {
                let reason = REASONS.into_iter().find(|known| *known == reason)?;
                Some(Entry::Refused(Refusal::new(reason, message)))
            }
            Ok(Record::Attempted { count }) => Some(Entry::Attempted(count)),
            Err(error) => {
                warn!(%digest, %error, "an entry of the compile cache cannot be read; the component is compiled again");
                None
            }
        }
    }

    /// Remembers that a component is about to be compiled, in case that the host dies of it. The count is with this one.
    pub(super) fn begin(&self, digest: &Digest, count: u32) -> Result<(), CompileError> {
        self.write_record(digest, &Record::Attempted { count })?;
        self.prune(0);
        Ok(())
    }

    /// Stores an artifact: first the code, then the record that vouches for it.
    pub(super) fn store(&self, digest: &Digest, code: &[u8]) -> Result<PathBuf, CompileError> {
        let path = self.artifact_path(digest);
        self.prune(code.len() as u64);
        self.write(&path, code)?;
        self.write_record(digest, &Record::Compiled { code: digest::of(code).to_string() })?;
        Ok(path)
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
        self.write(&self.record_path(digest), &serde_json::to_vec(record).expect("a record is plain data"))
    }

    fn stem(&self, digest: &Digest) -> String {
        format!("{}-{}", digest.0.trim_start_matches("sha256:"), self.engine)
    }

    /// The file that says what is known about a component.
    pub(super) fn record_path(&self, digest: &Digest) -> PathBuf {
        self.folder.join(format!("{}.json", self.stem(digest)))
    }

    fn artifact_path(&self, digest: &Digest) -> PathBuf {
        self.folder.join(format!("{}.cwasm", self.stem(digest)))
    }

    /// Writes a file under another name and renames it, so that no reader ever sees half of it.
    fn write(&self, path: &Path, bytes: &[u8]) -> Result<(), CompileError> {
        let number = self.writes.fetch_add(1, Ordering::Relaxed);
        let draft = self.folder.join(format!(".{}-{number}.draft", std::process::id()));
        let attempt = || {
            let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&draft)?;
            file.write_all(bytes)?;
            file.set_modified(SystemTime::now())?;
            drop(file);
            fs::rename(&draft, path)
        };
        attempt().map_err(|source| {
            let _ = fs::remove_file(&draft);
            host_error(format!("write {} into the compile cache", path.display()), source)
        })
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

    /// Removes what was used longest ago until the folder has room for so many bytes more. What is loaded stays mapped.
    fn prune(&self, more_bytes: u64) {
        let mut entries: Vec<(SystemTime, PathBuf, u64)> = self
            .files()
            .filter(|file| file.path().extension().is_some_and(|extension| extension == "json"))
            .filter_map(|file| {
                let (record, path) = (file.metadata().ok()?, file.path());
                let code_bytes = fs::metadata(path.with_extension("cwasm")).map_or(0, |code| code.len());
                Some((record.modified().unwrap_or(SystemTime::UNIX_EPOCH), path, record.len() + code_bytes))
            })
            .collect();
        entries.sort();
        let mut count = entries.len();
        let mut bytes = entries.iter().map(|(_, _, bytes)| bytes).sum::<u64>() + more_bytes;
        for (_, record, entry_bytes) in entries {
            if count <= self.bounds.entries && bytes <= self.bounds.bytes {
                break;
            }
            debug!(record = %record.display(), "forgetting an old entry of the compile cache");
            remove(&record);
            count -= 1;
            bytes -= entry_bytes;
        }
    }

    /// The files of the folder. One that cannot be read is as good as empty: writing into it says why.
    fn files(&self) -> impl Iterator<Item = DirEntry> {
        fs::read_dir(&self.folder).into_iter().flatten().flatten()
    }
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
