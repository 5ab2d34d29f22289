//! The folder of the compile cache, and the files that are made in it. It may be away, full or read-only, for a while or
//! for good: then there is no cache, and code is in memory, within a bound. What is in the folder is for `cache.rs`.

use std::fs::{self, DirBuilder, File};
use std::io::{self, Read, Seek, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use mortise_core::digest::{Digest, Hasher};
use tempfile::NamedTempFile;
use tracing::{info, warn};

use super::error::{CompileError, host_error};
use super::locks::locked_draft;
use super::mac::Seal;

/// Bytes of code that is nowhere but in memory: a hundred plugins in Rust. A host that has more waits for its folder.
const MAX_MEMORY_BYTES: u64 = 64 << 20;

/// The folder. It is looked at before each use, since it may be another one than before.
#[derive(Debug)]
pub(super) struct Folder {
    path: PathBuf,
    /// Where the key is, if not in the folder.
    key_file: Option<PathBuf>,
    opened: Mutex<Option<Arc<Opened>>>,
    /// Whether the last use found it, shared with those who show it.
    is_usable: Arc<AtomicBool>,
    memory: Arc<Memory>,
}

/// A folder that only this user may write into, with the key of its entries.
#[derive(Debug)]
pub(super) struct Opened {
    device: u64,
    inode: u64,
    pub(super) seal: Seal,
}

impl Folder {
    /// Opens the folder, creating it for this user alone.
    ///
    /// # Errors
    /// When others may write into it, or the file of its key cannot be used: a person has to change that. Any other fault may
    /// end by itself.
    pub(super) fn open(path: &Path, key_file: Option<&Path>) -> Result<Self, CompileError> {
        let folder = Self {
            path: path.to_owned(),
            key_file: key_file.map(Path::to_owned),
            opened: Mutex::default(),
            is_usable: Arc::new(AtomicBool::new(true)),
            memory: Arc::default(),
        };
        match folder.try_open() {
            Ok(opened) => *folder.lock() = Some(Arc::new(opened)),
            Err(Unusable::ByPerson(error)) => return Err(error),
            Err(Unusable::Now(error)) => folder.lost(&error),
        }
        Ok(folder)
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Whether the last use found it.
    pub(super) fn is_usable(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.is_usable)
    }

    /// The folder as it is now; None while it cannot be used. Logs when that changes.
    pub(super) fn get(&self) -> Option<Arc<Opened>> {
        let known = self.lock().clone();
        let is_same = |opened: &Arc<Opened>| {
            fs::metadata(&self.path).is_ok_and(|now| (now.dev(), now.ino()) == (opened.device, opened.inode))
        };
        if let Some(opened) = known.filter(is_same) {
            return Some(opened);
        }
        match self.try_open() {
            Ok(opened) => {
                if !self.is_usable.swap(true, Ordering::Relaxed) {
                    info!(folder = %self.path.display(), "the compile cache can be used");
                }
                let opened = Arc::new(opened);
                *self.lock() = Some(Arc::clone(&opened));
                Some(opened)
            }
            Err(Unusable::ByPerson(error) | Unusable::Now(error)) => {
                *self.lock() = None;
                self.lost(&error);
                None
            }
        }
    }

    fn lost(&self, error: &CompileError) {
        if self.is_usable.swap(false, Ordering::Relaxed) {
            warn!(%error, "there is no compile cache until that ends; components are compiled anew at each start");
        }
    }

    fn try_open(&self) -> Result<Opened, Unusable> {
        let name = self.path.display();
        let now = |doing: String| move |source| Unusable::Now(host_error(doing, source));
        let created = DirBuilder::new().recursive(true).mode(0o700).create(&self.path);
        created.map_err(now(format!("create the compile cache {name}")))?;
        let metadata = fs::metadata(&self.path).map_err(now(format!("read the mode of the compile cache {name}")))?;
        let foreign = metadata.uid() != rustix::process::geteuid().as_raw();
        if foreign || metadata.mode() & 0o022 != 0 {
            let why = if foreign { "it belongs to another user" } else { "others may write into it" };
            let why = io::Error::new(io::ErrorKind::PermissionDenied, format!("{why}; native code is run from it"));
            return Err(Unusable::ByPerson(host_error(format!("use the compile cache {name}"), why)));
        }
        let seal = Seal::open(self.key_file.as_deref(), &self.path);
        let seal = seal.map_err(if self.key_file.is_some() { Unusable::ByPerson } else { Unusable::Now })?;
        Ok(Opened { device: metadata.dev(), inode: metadata.ino(), seal })
    }

    /// A file that nobody else sees until it is kept; without a folder that takes it, in memory.
    pub(super) fn draft(&self) -> Result<Draft, CompileError> {
        let place = self.get().and_then(|_| locked_draft(&self.path).ok()).map(Place::Folder);
        let place = place.map_or_else(|| memory_file().map(Place::Memory), Ok);
        let failed = |source| host_error(format!("write into the compile cache {}", self.path.display()), source);
        let place = place.map_err(failed)?;
        Ok(Draft { place, hasher: Hasher::default(), bytes: 0, counted: Counted::new(&self.memory) })
    }

    fn lock(&self) -> MutexGuard<'_, Option<Arc<Opened>>> {
        // Each change replaces the value, so a panic under the lock leaves it whole.
        self.opened.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Why a folder cannot be used.
enum Unusable {
    ByPerson(CompileError),
    Now(CompileError),
}

/// Code that is in memory alone: of drafts, and of files as long as they are open.
#[derive(Debug, Default)]
struct Memory(Mutex<InMemory>);

#[derive(Debug, Default)]
struct InMemory {
    of_drafts: u64,
    files: Vec<(Weak<File>, u64)>,
}

impl Memory {
    fn lock(&self) -> MutexGuard<'_, InMemory> {
        // Each change is one number or one file, so a panic under the lock leaves it whole.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What a draft has in memory, until it is dropped.
#[derive(Debug)]
struct Counted {
    memory: Arc<Memory>,
    bytes: u64,
}

impl Counted {
    fn new(memory: &Arc<Memory>) -> Self {
        Self { memory: Arc::clone(memory), bytes: 0 }
    }

    fn grow(&mut self, more: u64) -> io::Result<()> {
        let mut memory = self.memory.lock();
        memory.files.retain(|(file, _)| file.strong_count() > 0);
        let of_files: u64 = memory.files.iter().map(|(_, bytes)| bytes).sum();
        if of_files + memory.of_drafts + more > MAX_MEMORY_BYTES {
            let message = "the folder takes no more, and components in memory have as much as they may";
            return Err(io::Error::new(io::ErrorKind::StorageFull, message));
        }
        memory.of_drafts += more;
        drop(memory);
        self.bytes += more;
        Ok(())
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.memory.lock().of_drafts -= self.bytes;
    }
}

/// A file that is being written; dropping it deletes it.
#[derive(Debug)]
pub(super) struct Draft {
    place: Place,
    hasher: Hasher,
    pub(super) bytes: u64,
    counted: Counted,
}

#[derive(Debug)]
enum Place {
    Folder(NamedTempFile),
    Memory(File),
}

/// What was written.
pub(super) enum Written {
    /// With its sha256.
    InFolder(NamedTempFile, Digest),
    InMemory(Arc<File>),
}

impl Draft {
    pub(super) fn end(self) -> Written {
        match self.place {
            Place::Folder(file) => Written::InFolder(file, self.hasher.finish()),
            Place::Memory(file) => {
                let file = Arc::new(file);
                self.counted.memory.lock().files.push((Arc::downgrade(&file), self.bytes));
                Written::InMemory(file)
            }
        }
    }

    /// Continues in memory when the folder has no room.
    fn move_to_memory(&mut self) -> io::Result<()> {
        let Place::Folder(file) = &mut self.place else { return Ok(()) };
        let mut memory = memory_file()?;
        self.counted.grow(self.bytes)?;
        file.rewind()?;
        io::copy(&mut Read::by_ref(file).take(self.bytes), &mut memory)?;
        self.place = Place::Memory(memory);
        Ok(())
    }
}

impl Write for Draft {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if let Place::Folder(file) = &mut self.place {
            match file.write(bytes) {
                Err(error) if has_no_room(&error) => self.move_to_memory()?,
                written => {
                    let written = written?;
                    self.hasher.update(&bytes[..written]);
                    self.bytes += written as u64;
                    return Ok(written);
                }
            }
        }
        let Place::Memory(file) = &mut self.place else { unreachable!("it was moved to memory") };
        self.counted.grow(bytes.len() as u64)?;
        let written = file.write(bytes)?;
        self.bytes += written as u64;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn has_no_room(error: &io::Error) -> bool {
    use io::ErrorKind::{FileTooLarge, QuotaExceeded, ReadOnlyFilesystem, StorageFull};

    matches!(error.kind(), StorageFull | QuotaExceeded | ReadOnlyFilesystem | FileTooLarge)
}

/// A file that has no name, which ends with its last user.
#[cfg(target_os = "linux")]
fn memory_file() -> io::Result<File> {
    use rustix::fs::{MemfdFlags, memfd_create};

    Ok(memfd_create("mortise-component", MemfdFlags::CLOEXEC)?.into())
}

#[cfg(not(target_os = "linux"))]
fn memory_file() -> io::Result<File> {
    tempfile::tempfile()
}

#[cfg(test)]
mod tests {
    use std::fs::OpenOptions;
    use std::os::unix::fs::FileExt;

    use tempfile::TempPath;

    use super::*;

    /// A draft on a disk that is full.
    fn on_full_disk(folder: &Path) -> Draft {
        let full = OpenOptions::new().read(true).write(true).open("/dev/full").unwrap();
        let path = TempPath::try_from_path(folder.join(".0.draft")).unwrap();
        let place = Place::Folder(NamedTempFile::from_parts(full, path));
        Draft { place, hasher: Hasher::default(), bytes: 0, counted: Counted::new(&Arc::default()) }
    }

    #[test]
    fn f32_on_a_full_disk_code_continues_in_memory_within_a_bound() {
        let folder = tempfile::tempdir().unwrap();
        let mut draft = on_full_disk(folder.path());
        draft.write_all(b"native ").unwrap();
        draft.write_all(b"code").unwrap();
        let Written::InMemory(file) = draft.end() else { panic!("it is on the full disk") };
        let mut code = [0; 11];
        file.read_exact_at(&mut code, 0).unwrap();
        assert_eq!(&code, b"native code");

        let mut draft = on_full_disk(folder.path());
        let chunk = vec![0; 1 << 20];
        let written = (0..).take_while(|_| draft.write_all(&chunk).is_ok()).count();
        assert_eq!(written as u64, MAX_MEMORY_BYTES >> 20);
    }

    #[test]
    fn code_in_memory_counts_as_long_as_it_is_open() {
        let memory = Arc::<Memory>::default();
        let draft = |bytes| {
            let mut draft = in_memory(&memory);
            draft.write_all(&vec![0; bytes]).map(|()| draft.end())
        };
        let first = draft(40 << 20).unwrap();
        assert!(draft(40 << 20).is_err());
        drop(first);
        assert!(draft(40 << 20).is_ok());
    }

    fn in_memory(memory: &Arc<Memory>) -> Draft {
        let place = Place::Memory(memory_file().unwrap());
        Draft { place, hasher: Hasher::default(), bytes: 0, counted: Counted::new(memory) }
    }

    /// Each of the two that compile at once had the whole bound.
    #[test]
    fn f32_drafts_in_memory_have_their_bound_together_and_what_is_dropped_counts_no_more() {
        let memory = Arc::<Memory>::default();
        let mut drafts = [in_memory(&memory), in_memory(&memory)];
        let chunk = vec![0; 1 << 20];
        let mut written = 0;
        while drafts.iter_mut().all(|draft| draft.write_all(&chunk).is_ok()) {
            written += 2;
        }
        assert_eq!(written, MAX_MEMORY_BYTES >> 20);
        let [first, second] = drafts;
        drop(first);
        let mut third = in_memory(&memory);
        assert_eq!((0..).take_while(|_| third.write_all(&chunk).is_ok()).count() as u64, MAX_MEMORY_BYTES >> 21);
        drop((second.end(), third));
        assert_eq!(memory.lock().of_drafts, 0);
    }
}
