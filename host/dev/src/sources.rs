//! Notices saves. Input: the folders of plugins. Output: the plugins whose sources changed, once for each burst of writes. It
//! must not build.

use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, SystemTime};

use anyhow::Context;
use notify::event::{AccessKind, AccessMode};
use notify::{EventKind, RecommendedWatcher, RecursiveMode, Watcher as _};

use crate::project::Plugin;

/// An editor writes a file in several steps within some milliseconds.
const BURST: Duration = Duration::from_millis(30);

/// Saves of the plugins' sources, until it is dropped.
pub(crate) struct Saves {
    _watcher: RecommendedWatcher,
    paths: Receiver<PathBuf>,
    plugins: Vec<Plugin>,
}

impl Saves {
    pub(crate) fn watch(plugins: &[Plugin]) -> anyhow::Result<Self> {
        let (sender, paths) = channel();
        let mut watcher = notify::recommended_watcher(move |event: notify::Result<notify::Event>| {
            let Ok(event) = event else { return };
            let wrote = match event.kind {
                EventKind::Access(kind) => kind == AccessKind::Close(AccessMode::Write),
                EventKind::Create(_) | EventKind::Modify(_) | EventKind::Remove(_) => true,
                EventKind::Any | EventKind::Other => false,
            };
            if wrote {
                // An error means that the session has ended.
                event.paths.into_iter().for_each(|path| drop(sender.send(path)));
            }
        })
        .context("cannot watch folders for changes")?;
        for folder in plugins.iter().flat_map(|plugin| &plugin.sources) {
            watcher
                .watch(folder, RecursiveMode::Recursive)
                .with_context(|| format!("cannot watch {} for changes", folder.display()))?;
        }
        Ok(Self { _watcher: watcher, paths, plugins: plugins.to_vec() })
    }

    /// Waits for the next save; None when nothing was saved for this long. The time is that of the file.
    pub(crate) fn next(&self, wait: Duration) -> Option<Vec<(usize, SystemTime)>> {
        let mut saved: Vec<(usize, SystemTime)> = Vec::new();
        let mut wait = wait;
        while let Ok(path) = self.paths.recv_timeout(wait) {
            for (at, _) in self.plugins.iter().enumerate().filter(|(_, plugin)| is_source(plugin, &path)) {
                if !saved.iter().any(|(known, _)| *known == at) {
                    let time = path.metadata().and_then(|metadata| metadata.modified());
                    saved.push((at, time.unwrap_or_else(|_| SystemTime::now())));
                }
                wait = BURST;
            }
        }
        (!saved.is_empty()).then_some(saved)
    }
}

/// Whether a path is a source of the plugin: not what cargo or an editor makes.
fn is_source(plugin: &Plugin, path: &Path) -> bool {
    let below = plugin.sources.iter().filter_map(|folder| path.strip_prefix(folder).ok());
    below.into_iter().any(|path| {
        let parts: Vec<&str> = path.iter().filter_map(|part| part.to_str()).collect();
        let hidden = parts.iter().any(|part| part.starts_with('.') || *part == "target");
        let kind = path.extension().and_then(|extension| extension.to_str());
        !hidden && matches!(kind, Some("rs" | "toml" | "json" | "yaml" | "wit"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plugin(folder: &Path) -> Plugin {
        Plugin {
            name: "a".to_owned(),
            folder: folder.to_owned(),
            artifact: "a.wasm".to_owned(),
            target: folder.join("target"),
            samples: Vec::new(),
            sources: vec![folder.to_owned()],
        }
    }

    #[test]
    fn sources_are_reported_from_what_tools_write() {
        let plugin = plugin(Path::new("/p"));
        for path in ["/p/src/lib.rs", "/p/Cargo.toml", "/p/samples/a.yaml"] {
            assert!(is_source(&plugin, Path::new(path)), "{path}");
        }
        for path in ["/p/target/x.rs", "/p/.git/x.toml", "/p/src/.lib.rs.swp", "/p/src/lib.rs~", "/q/src/lib.rs"] {
            assert!(!is_source(&plugin, Path::new(path)), "{path}");
        }
    }

    #[test]
    fn a_burst_of_writes_is_one_save() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path().canonicalize().unwrap();
        let saves = Saves::watch(&[plugin(&folder)]).unwrap();
        for text in ["a", "b", "c"] {
            std::fs::write(folder.join("lib.rs"), text).unwrap();
        }
        let saved = saves.next(Duration::from_secs(10)).expect("the save is noticed");
        assert_eq!(saved.iter().map(|(at, _)| *at).collect::<Vec<_>>(), [0]);
        assert!(saves.next(Duration::from_millis(1)).is_none(), "once");
    }
}
