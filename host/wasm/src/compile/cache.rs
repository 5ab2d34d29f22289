//! Compiled components on disk, and which components failed. Native code is run as it is found, so the folder belongs
//! to this user alone, every artifact's sha256 is compared before its path is given out, and what does not match is
//! forgotten and compiled again.

use std::fs::{self, DirBuilder, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::SystemTime;

use mortise_core::digest;
use mortise_core::event::{Digest, Refusal};
use serde::{Deserialize, Serialize};
use tracing::{debug, warn};

use super::{CompileError, host_error};

/// Components that are remembered. Each artifact has some 0.5 MiB (Rust) to 35 MiB (Python).
const MAX_ENTRIES: usize = 200;
/// Reasons that a refusal by the compiler can have; a stored one must be among them.
const REASONS: [&str; 2] = ["CompileFailed", "TooCostlyToCompile"];

/// What is known about a component.
#[derive(Debug)]
pub(super) enum Entry {
    /// Its artifact is here.
    Compiled(PathBuf),
    /// It does not compile.
    Refused(Refusal),
}

/// The file beside an artifact, or in its place.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
enum Record {
    Compiled { code: String },
    Refused { reason: String, message: String },
}

/// The folder.
#[derive(Debug)]
pub(super) struct Cache {
    folder: PathBuf,
    /// Artifacts of other engines and versions stand beside ours, under other names.
    engine: String,
    writes: AtomicU64,
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
        Ok(Self { folder: folder.to_owned(), engine, writes: AtomicU64::new(0) })
    }

    /// What is known about a component. An entry that cannot be used is as good as none.
    pub(super) fn find(&self, digest: &Digest) -> Option<Entry> {
        let record = fs::read(self.record_path(digest)).ok()?;
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
            Err(error) => {
                warn!(%digest, %error, "an entry of the compile cache cannot be read; the component is compiled again");
                None
            }
        }
    }

    /// Stores an artifact: first the code, then the record that vouches for it.
    pub(super) fn store(&self, digest: &Digest, code: &[u8]) -> Result<PathBuf, CompileError> {
        let path = self.artifact_path(digest);
        self.write(&path, code)?;
        self.write_record(digest, &Record::Compiled { code: digest::of(code).to_string() })?;
        self.prune();
        Ok(path)
    }

    /// Remembers that a component does not compile.
    pub(super) fn store_refusal(&self, digest: &Digest, refusal: &Refusal) -> Result<(), CompileError> {
        let record = Record::Refused { reason: refusal.reason.to_owned(), message: refusal.message.clone() };
        self.write_record(digest, &record)
    }

    fn write_record(&self, digest: &Digest, record: &Record) -> Result<(), CompileError> {
        self.write(&self.record_path(digest), &serde_json::to_vec(record).expect("a record is plain data"))
    }

    fn stem(&self, digest: &Digest) -> String {
        format!("{}-{}", digest.0.trim_start_matches("sha256:"), self.engine)
    }

    fn record_path(&self, digest: &Digest) -> PathBuf {
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
            drop(file);
            fs::rename(&draft, path)
        };
        attempt().map_err(|source| {
            let _ = fs::remove_file(&draft);
            host_error(format!("write {} into the compile cache", path.display()), source)
        })
    }

    /// Removes the oldest entries beyond the bound. What is loaded stays mapped.
    fn prune(&self) {
        let Ok(files) = fs::read_dir(&self.folder) else { return };
        let mut artifacts: Vec<(SystemTime, PathBuf)> = files
            .flatten()
            .map(|file| {
                (file.metadata().and_then(|data| data.modified()).unwrap_or(SystemTime::UNIX_EPOCH), file.path())
            })
            .filter(|(_, path)| path.extension().is_some_and(|extension| extension == "json"))
            .collect();
        artifacts.sort();
        let excess = artifacts.len().saturating_sub(MAX_ENTRIES);
        for (_, record) in artifacts.into_iter().take(excess) {
            debug!(record = %record.display(), "forgetting an old entry of the compile cache");
            let _ = fs::remove_file(&record);
            let _ = fs::remove_file(record.with_extension("cwasm"));
        }
    }
}
