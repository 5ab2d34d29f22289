//! Files that are there as a whole or not at all, and only for this user, whatever the umask. It must not know what they hold.

use std::fs::{DirBuilder, File, OpenOptions};
use std::io::Write as _;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::Path;

use anyhow::{Context, Result, ensure};
use tempfile::NamedTempFile;

/// What others may not do with a folder of keys: put their own in the place of ours.
const OTHERS_WRITE: u32 = 0o022;

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

/// Opens a file to add to it. Its mode is 0600 if it is new.
pub(crate) fn append(path: &Path) -> std::io::Result<File> {
    OpenOptions::new().append(true).create(true).mode(0o600).open(path)
}

/// Makes a folder with the mode 0700, or finds one in which only this user can write.
pub(crate) fn folder(path: &Path) -> Result<()> {
    let made = DirBuilder::new().recursive(true).mode(0o700).create(path);
    made.with_context(|| format!("create the folder {}", path.display()))?;
    let found = std::fs::metadata(path).with_context(|| format!("look at the folder {}", path.display()))?;
    let others_write = found.mode() & OTHERS_WRITE != 0;
    ensure!(!others_write, "others may write into the folder {}: chmod go-w it, or name another", path.display());
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::fs::{Permissions, set_permissions};
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn a_folder_that_others_may_write_is_refused_and_one_that_they_may_read_is_not() {
        let parent = tempfile::tempdir().unwrap();
        let state = parent.path().join("a/state");
        let mode = || std::fs::metadata(&state).unwrap().mode() & 0o777;
        folder(&state).unwrap();
        assert_eq!(mode(), 0o700);
        for (given, is_fine) in [(0o755, true), (0o775, false), (0o757, false)] {
            set_permissions(&state, Permissions::from_mode(given)).unwrap();
            assert_eq!((folder(&state).is_ok(), mode()), (is_fine, given), "{given:o}");
        }
    }
}
