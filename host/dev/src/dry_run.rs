//! `mortise dev --dry-run`: what plugins would write to a cluster. `copy.rs` reads what they read; the host, which is the same
//! as ever, runs on the copy until nothing happens any more; then the objects that it wrote are compared with what they were.
//! It must not write to the cluster that was copied, nor know where the copy is served.

mod changes;
mod copy;

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use mortise_core::object::ObjectRef;
use mortise_runtime::config::Config;
use mortise_runtime::log::print_error;
use mortise_runtime::observer::Attachment;
use tokio::runtime::Builder;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio::sync::oneshot;
use tokio::time::timeout;

use crate::components::{self, Component};
use crate::event::Event;
use crate::observer::Observed;
use crate::{samples, session};

pub use self::copy::Copied;

/// Nothing more is expected after such a pause: a call takes milliseconds, and the host's own waits are shorter.
const QUIET: Duration = Duration::from_secs(3);
/// How long the host may take until nothing happens any more: plugins that change things without end do not come to rest.
const DEADLINE: Duration = Duration::from_secs(120);

/// Runs the host with the plugins on the cluster of a kubeconfig, which serves the copy, until nothing happens any more. Gives
/// a unified diff of what it wrote; empty if it wrote nothing.
///
/// # Errors
/// A plugin that the host refuses, a host that does not come to rest, or a cluster that cannot be reached.
pub fn run(plugins: &[Component], copy: &Copied, kubeconfig: &Path, host: Config) -> anyhow::Result<String> {
    let components = host.plugin_dir.clone().context("a dry run needs a folder for components")?;
    put(plugins, &components)?;
    let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build().context("starting I/O")?;
    runtime.block_on(async {
        let client = session::client(kubeconfig).await?;
        samples::ensure_namespace(&client, &host.namespace.to_string()).await?;
        let (sender, mut events) = unbounded_channel();
        let (stop, stopped) = oneshot::channel();
        let attachment = Attachment { observer: Arc::new(Observed::new(sender)), stop: stopped };
        let running = tokio::spawn(mortise_runtime::run_attached(host, attachment));
        let written = at_rest(&mut events, plugins.len()).await;
        let _ = stop.send(());
        running.await.context("the host's task ended")??;
        changes::text(&client, copy, &written?).await
    })
}

/// Puts the components, and no others, where the host finds them.
fn put(plugins: &[Component], folder: &Path) -> anyhow::Result<()> {
    if folder.exists() {
        std::fs::remove_dir_all(folder).with_context(|| format!("cannot empty {}", folder.display()))?;
    }
    components::make_folder(folder)?;
    for Component { name, file, .. } in plugins {
        let component = std::fs::read(file).with_context(|| format!("cannot read {}", file.display()))?;
        components::put(folder, name, &component)?;
    }
    Ok(())
}

/// Waits until all plugins serve and nothing happens any more; the objects that were written meanwhile.
async fn at_rest(events: &mut UnboundedReceiver<Event>, plugins: usize) -> anyhow::Result<BTreeSet<ObjectRef>> {
    let (began, mut serving, mut written) = (Instant::now(), BTreeSet::new(), BTreeSet::new());
    loop {
        ensure!(began.elapsed() < DEADLINE, "the plugins still write after {} s", DEADLINE.as_secs());
        match timeout(QUIET, events.recv()).await {
            Ok(Some(Event::Serves { plugin, .. })) => drop(serving.insert(plugin)),
            Ok(Some(Event::Refused { plugin, reason, message })) => bail!("{plugin}: refused: {reason}: {message}"),
            Ok(Some(Event::Writes { write, .. })) => drop(written.insert(write.target)),
            Ok(Some(Event::WriteFailed { target, message })) => {
                print_error(&format!("a write of {target} failed: {message}\n"))
            }
            Ok(Some(Event::Fault { object, message, detail })) => {
                print_error(&format!("{object}: {message}\n{detail}\n"))
            }
            Ok(Some(Event::Note(note))) => print_error(&format!("{note}\n")),
            Ok(Some(_)) => {}
            Ok(None) => bail!("the host ended: its log says why"),
            Err(_) if serving.len() < plugins => {}
            Err(_) => return Ok(written),
        }
    }
}
