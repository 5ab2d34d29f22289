//! Files that are there as a whole or not at all, and only for this user, whatever the umask. It must not know what they hold.

use std::fs::{DirBuilder, File, OpenOptions, Permissions};
use std::io::Write as _;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::Path;

use anyhow::{Context, Result, ensure};
use tempfile::NamedTempFile;

/// What others may not do with a folder of keys: put their own in the place of ours.
const OTHERS_WRITE: u32 = 0o022;
/// The same of a folder in which a single file of ours is: those of one group share their folders, and where only the owner of a
/// file may replace it, as in `/tmp`, others may have theirs.
const ALL_WRITE: u32 = 0o002;
const STICKY: u32 = 0o1000;
/// What others may not do with a file of requests.
const OTHERS: u32 = 0o077;

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

/// Opens a file to add to it. Its mode is 0600, also if it was there with another; a device or a pipe has its own.
pub(crate) fn append(path: &Path) -> std::io::Result<File> {
    let file = OpenOptions::new().append(true).create(true).mode(0o600).open(path)?;
    let found = file.metadata()?;
    if found.is_file() && found.mode() & OTHERS != 0 {
        file.set_permissions(Permissions::from_mode(0o600))?;
    }
    Ok(file)
}

/// Whether nobody else may put a file of his in the place of this one.
pub(crate) fn ensure_ours(path: &Path) -> Result<()> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    // One that is not there is the error of who writes.
    let Ok(found) = std::fs::metadata(folder) else { return Ok(()) };
    let all_write = found.mode() & ALL_WRITE != 0 && found.mode() & STICKY == 0;
    ensure!(
        !all_write,
        "everybody may write into the folder {}, and replace {}: chmod o-w the folder, or name another file",
        folder.display(),
        path.display()
    );
    Ok(())
}

/// Makes a folder with the mode 0700, or finds one of this user's in which nobody else can write.
pub(crate) fn folder(path: &Path) -> Result<()> {
    let made = DirBuilder::new().recursive(true).mode(0o700).create(path);
    made.with_context(|| format!("create the folder {}", path.display()))?;
    let found = std::fs::metadata(path).with_context(|| format!("look at the folder {}", path.display()))?;
    let others_write = found.mode() & OTHERS_WRITE != 0;
    ensure!(!others_write, "others may write into the folder {}: chmod go-w it, or name another", path.display());
    let is_own = found.uid() == rustix::process::geteuid().as_raw();
    ensure!(
        is_own,
        "the folder {} belongs to another user, who may write into it: name one of your own",
        path.display()
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::fs::set_permissions;

    use super::*;

    #[test]
    fn a_file_that_was_there_is_this_users_alone_from_now_on() {
        let parent = tempfile::tempdir().unwrap();
        let path = parent.path().join("audit.jsonl");
        std::fs::write(&path, "before\n").unwrap();
        set_permissions(&path, Permissions::from_mode(0o666)).unwrap();
        append(&path).unwrap().write_all(b"after\n").unwrap();
        assert_eq!(std::fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "before\nafter\n");
        append(Path::new("/dev/null")).unwrap();
    }

    #[test]
    fn a_file_in_a_folder_where_everybody_may_replace_it_is_refused() {
        let parent = tempfile::tempdir().unwrap();
        let path = parent.path().join("kubeconfig");
        for (mode, is_fine) in [(0o755, true), (0o775, true), (0o777, false), (0o1777, true), (0o757, false)] {
            set_permissions(parent.path(), Permissions::from_mode(mode)).unwrap();
            assert_eq!(ensure_ours(&path).is_ok(), is_fine, "{mode:o}");
        }
        ensure_ours(&parent.path().join("none/kubeconfig")).unwrap();
    }

    #[test]
    fn a_folder_of_another_user_is_refused() {
        let given = tempfile::tempdir().unwrap();
        // Only root may give a folder away; of everybody else root's are another's.
        let given_away = std::os::unix::fs::chown(given.path(), Some(65_534), None).is_ok();
        let of_another = if given_away { given.path() } else { Path::new("/usr") };
        let error = folder(of_another).unwrap_err().to_string();
        assert!(error.contains("belongs to another user"), "{error}");
    }

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
