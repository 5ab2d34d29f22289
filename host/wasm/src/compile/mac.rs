//! The seal of the compile cache: a message authentication code over each record, with a key that the compiler process
//! cannot read. Bytes come in, a code comes out; what a record says is for `cache.rs`.
//!
//! A record names its artifact's sha256 and its trial, and the code covers its digest too. So an artifact, a manifest
//! or a refusal counts only for the component that it was made from, and only when a host with this key has written it.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use ring::hmac;
use ring::rand::{SecureRandom, SystemRandom};
use tracing::warn;

use super::error::{CompileError, host_error};
use super::locks::locked_draft;

/// Bytes of a key that a host makes: as many as HMAC-SHA256 uses of one.
const KEY_BYTES: usize = 32;
/// Most bytes of a key file. A key that a person made may be a line of text.
const MAX_KEY_BYTES: u64 = 4 << 10;
/// The key's file in the folder of the cache.
const KEY_FILE: &str = "key";

#[derive(Debug)]
pub(super) struct Seal(hmac::Key);

impl Seal {
    /// The key of this file; without one that of the folder, which is made when it is missing.
    pub(super) fn open(file: Option<&Path>, folder: &Path) -> Result<Self, CompileError> {
        let bytes = match file {
            Some(file) => read(file).and_then(|key| if key.len() < KEY_BYTES { Err(too_short()) } else { Ok(key) }),
            None => key_in(folder),
        };
        let bytes = bytes.map_err(|source| {
            let file = file.map_or_else(|| folder.join(KEY_FILE), Path::to_owned);
            host_error(format!("use the key of the compile cache, {}", file.display()), source)
        })?;
        Ok(Self(hmac::Key::new(hmac::HMAC_SHA256, &bytes)))
    }

    /// The code of a record of this name, in hexadecimal digits.
    pub(super) fn of(&self, name: &str, record: &str) -> String {
        let tag = hmac::sign(&self.0, &message(name, record));
        tag.as_ref().iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// Whether a host with this key has written the record for this name.
    pub(super) fn is_of(&self, code: &str, name: &str, record: &str) -> bool {
        let digits = code.as_bytes().chunks(2).map(|digits| std::str::from_utf8(digits).ok());
        let tag: Option<Vec<u8>> = digits.map(|digits| u8::from_str_radix(digits?, 16).ok()).collect();
        tag.is_some_and(|tag| hmac::verify(&self.0, &message(name, record), &tag).is_ok())
    }
}

/// A name has no line break, so no two pairs of name and record are one message.
fn message(name: &str, record: &str) -> Vec<u8> {
    [name, "\n", record].concat().into_bytes()
}

fn too_short() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("it has fewer than {KEY_BYTES} bytes"))
}

fn read(file: &Path) -> io::Result<Vec<u8>> {
    let mut key = Vec::new();
    File::open(file)?.take(MAX_KEY_BYTES).read_to_end(&mut key)?;
    Ok(key)
}

/// Hosts that start at once in one folder use the key of the first.
fn key_in(folder: &Path) -> io::Result<Vec<u8>> {
    let path: PathBuf = folder.join(KEY_FILE);
    if let Some(key) = usable(&path)? {
        return Ok(key);
    }
    let mut key = [0; KEY_BYTES];
    SystemRandom::new().fill(&mut key).map_err(|_| io::Error::other("the system has no random numbers"))?;
    // For this user alone, and complete before it has its name.
    let mut draft = locked_draft(folder)?;
    draft.write_all(&key)?;
    match draft.persist_noclobber(&path) {
        Ok(_) => Ok(key.to_vec()),
        Err(error) if error.error.kind() == io::ErrorKind::AlreadyExists => usable(&path)?.ok_or_else(too_short),
        Err(error) => Err(error.error),
    }
}

/// The key of a file; None when there is none, or when it is none that a host would have left, which is removed.
fn usable(path: &Path) -> io::Result<Option<Vec<u8>>> {
    let metadata = match std::fs::symlink_metadata(path) {
        Ok(metadata) => metadata,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    let own = metadata.uid() == rustix::process::geteuid().as_raw() && metadata.mode() & 0o077 == 0;
    if metadata.is_file() && own && metadata.len() == KEY_BYTES as u64 {
        return read(path).map(Some);
    }
    warn!(
        path = %path.display(),
        "the key of the compile cache is damaged or readable by others; a new one is made, and components are compiled \
         again"
    );
    std::fs::remove_file(path)?;
    Ok(None)
}
