//! The components of plugins' folders, for commands that run them once. Input: folders. Output: plugins with their components,
//! built as a session builds them. It must not know what they are for.

use std::fs::{self, DirBuilder, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};

use crate::build::{self, Outcome};
use crate::project;

/// A plugin with its component.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Component {
    /// The plugin's name.
    pub name: String,
    /// Its package's folder.
    pub folder: PathBuf,
    /// The component's file.
    pub file: PathBuf,
}

/// Builds the plugins of these folders; of a workspace's folder, all of its plugins. With `built`, a folder of components that
/// are named after their plugins, nothing is built.
///
/// # Errors
/// A folder without a plugin, or what cargo printed.
pub fn components(folders: &[PathBuf], built: Option<&Path>) -> anyhow::Result<Vec<Component>> {
    let mut components = Vec::new();
    for plugin in project::find(folders)? {
        let file = match built {
            Some(folder) => folder.join(format!("{}.wasm", plugin.name)),
            None => match build::build(&plugin, |_| ()) {
                Outcome::Built { component, .. } => component,
                Outcome::Failed { output } => bail!("{} does not build:\n{output}", plugin.name),
            },
        };
        components.push(Component { name: plugin.name, folder: plugin.folder, file });
    }
    Ok(components)
}

/// Makes the folder in which the host finds components; others can neither read nor write it.
pub(crate) fn make_folder(folder: &Path) -> anyhow::Result<()> {
    let made = DirBuilder::new().recursive(true).mode(0o700).create(folder);
    made.with_context(|| format!("cannot make {}", folder.display()))
}

/// Puts a component where the host finds it, at once and whole, as a file of this user alone.
pub(crate) fn put(folder: &Path, plugin: &str, component: &[u8]) -> anyhow::Result<()> {
    let (target, partial) = (folder.join(format!("{plugin}.wasm")), folder.join(format!(".{plugin}.partial")));
    let write = || -> io::Result<()> {
        let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&partial)?;
        file.write_all(component)?;
        fs::rename(&partial, &target)
    };
    write().with_context(|| format!("cannot write {}", target.display()))
}
