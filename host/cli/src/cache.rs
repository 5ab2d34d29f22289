//! Folders in which nobody but this user may write, with the mode 0700 if they are new: that of compiled plugins, which it
//! chooses, and that of a session. The host executes what is in them.

use std::fs::DirBuilder;
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use anyhow::Context;

/// The given folder, or else the first of the usual ones that can be made. Refuses one that others could write into. Without
/// one that can be made now it is the first: the host does without until it can be.
pub fn folder(given: Option<PathBuf>) -> anyhow::Result<PathBuf> {
    if let Some(given) = given {
        // The host does without until it can be made.
        let _ = found(&given)?;
        return Ok(given);
    }
    let mut refused = None;
    for candidate in candidates() {
        match found(&candidate) {
            Ok(Ok(())) => return Ok(candidate),
            Ok(Err(_)) => {}
            Err(error) => refused = Some(error),
        }
    }
    match (refused, candidates().into_iter().next()) {
        (None, Some(first)) => Ok(first),
        (refused, _) => Err(refused.unwrap_or_else(|| anyhow::anyhow!("neither $HOME nor /var/cache is usable")))
            .context("no folder for compiled plugins can be made; name one with --cache-dir"),
    }
}

fn candidates() -> Vec<PathBuf> {
    // The XDG specification treats an empty variable as absent.
    let variable = |name| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let user = variable("XDG_CACHE_HOME").or_else(|| Some(variable("HOME")?.join(".cache")));
    let folders = [user, Some(PathBuf::from("/var/cache")), Some(std::env::temp_dir())];
    folders.into_iter().flatten().filter(|folder| folder.is_absolute()).map(|folder| folder.join("mortise")).collect()
}

/// Makes such a folder, or finds one.
pub fn make(folder: &Path) -> anyhow::Result<()> {
    found(folder)?.with_context(|| format!("cannot make {}", folder.display()))
}

/// The folder is there, or was made; else the machine's error.
fn found(folder: &Path) -> anyhow::Result<io::Result<()>> {
    let name = folder.display();
    // Does not follow a link: its owner could point it elsewhere later.
    let made = DirBuilder::new().recursive(true).mode(0o700).create(folder);
    let metadata = match made.and_then(|()| std::fs::symlink_metadata(folder)) {
        Ok(metadata) => metadata,
        Err(error) => return Ok(Err(error)),
    };
    if !metadata.is_dir() {
        anyhow::bail!("{name} is not a folder; if it is a link, name its target");
    }
    if metadata.uid() != rustix::process::geteuid().as_raw() {
        anyhow::bail!("the folder {name} belongs to another user, who could put native code into it");
    }
    if metadata.permissions().mode() & 0o022 != 0 {
        anyhow::bail!(
            "other users may write into the folder {name}, and the host executes its files; name a folder of your own"
        );
    }
    Ok(Ok(()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_that_everybody_may_write_is_refused() {
        let root = std::env::temp_dir().join(format!("mortise-cache-test-{}", std::process::id()));
        let open = root.join("open");
        make(&open).unwrap();
        assert_eq!(std::fs::metadata(&open).unwrap().permissions().mode() & 0o777, 0o700);
        std::fs::set_permissions(&open, std::fs::Permissions::from_mode(0o777)).unwrap();
        let error = folder(Some(open)).expect_err("an open folder").to_string();
        assert!(error.contains("other users may write"), "{error}");
        std::fs::remove_dir_all(&root).unwrap();
    }

    #[test]
    fn f32_a_folder_that_cannot_be_made_now_does_not_end_the_start() {
        let file = std::env::temp_dir().join(format!("mortise-cache-file-{}", std::process::id()));
        std::fs::write(&file, "").unwrap();
        assert_eq!(folder(Some(file.join("cache"))).unwrap(), file.join("cache"));
        std::fs::remove_file(&file).unwrap();
    }
}
