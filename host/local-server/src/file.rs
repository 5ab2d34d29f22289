//! Files that are there as a whole or not at all, and only for this user. It must not know what they hold.

use std::io::Write as _;
use std::path::Path;

use anyhow::{Context, Result};
use tempfile::NamedTempFile;

/// Replaces a file in one step; a reader sees the old or the new text. Its mode is 0600.
pub(crate) fn replace(path: &Path, text: &[u8]) -> Result<()> {
    let write = || -> Result<()> {
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let mut file = NamedTempFile::new_in(folder)?;
        file.write_all(text)?;
        file.persist(path)?;
        Ok(())
    };
    write()
        .with_context(|| format!("write {}: choose a file in a folder that exists and may be written", path.display()))
}
