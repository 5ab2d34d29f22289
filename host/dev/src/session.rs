//! A session of `mortise dev`: starts the host in this process, builds the plugins, applies their samples, and does so again
//! at each save. Input: folders and a cluster. Output: a screen or lines. It must not decide what is shown.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::io::{IsTerminal as _, Write as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant, SystemTime};

use anyhow::Context;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config as ClientConfig};
use mortise_core::digest;
use mortise_core::object::ObjectRef;
use mortise_runtime::config::Config;
use mortise_runtime::observer::Attachment;
use tokio::runtime::{Builder, Handle};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::oneshot;

use crate::build::{self, Outcome};
use crate::event::Event;
use crate::model::Model;
use crate::observer::Observed;
use crate::project::{self, Plugin};
use crate::screen::Ask;
use crate::sources::Saves;
use crate::{clock, components, plain, samples, terminal};

/// How often the builder looks whether the session has ended.
const LOOK: Duration = Duration::from_millis(200);
/// Threads for the host's and this session's requests.
const IO_THREADS: usize = 1;

/// What a session works on.
#[derive(Debug)]
pub struct Options {
    /// Folders of plugins; of workspaces, all their plugins.
    pub folders: Vec<PathBuf>,
    /// The cluster.
    pub kubeconfig: PathBuf,
    /// What the first line of the screen says: where the cluster is.
    pub title: String,
    /// Lines instead of a screen, also on a terminal.
    pub plain: bool,
    /// Apply no samples.
    pub no_samples: bool,
    /// The host's configuration; its plugin folder is where this session puts components.
    pub host: Config,
}

/// Runs until a person quits, a signal ends the host, or the host fails.
///
/// # Errors
/// A folder without a plugin, a cluster that cannot be reached, or what ended the host.
pub fn run(options: Options) -> anyhow::Result<()> {
    let started = Instant::now();
    let plugins = project::find(&options.folders)?;
    let components = options.host.plugin_dir.clone().context("a session needs a folder for components")?;
    components::make_folder(&components)?;
    remove_stale(&components, &plugins)?;
    let runtime =
        Builder::new_multi_thread().worker_threads(IO_THREADS).enable_all().build().context("starting I/O")?;
    let client = runtime.block_on(client(&options.kubeconfig))?;
    runtime.block_on(samples::ensure_namespace(&client, &options.host.namespace.to_string()))?;
    let (sender, events) = unbounded_channel();
    let (stop, stopped) = oneshot::channel();
    let attachment = Attachment { observer: Arc::new(Observed::new(sender.clone())), stop: stopped };
    let host = runtime.spawn(mortise_runtime::run_attached(options.host, attachment));
    let ended = Arc::new(AtomicBool::new(false));
    let builder = Builds {
        plugins,
        components,
        events: sender,
        client: client.clone(),
        runtime: runtime.handle().clone(),
        ended: ended.clone(),
        no_samples: options.no_samples,
        has_served: RefCell::default(),
    };
    let builder = builder.start()?;
    let shows_screen = !options.plain && std::io::stdout().is_terminal();
    let shown = if shows_screen {
        let handle = runtime.handle().clone();
        screen(events, started, options.title, client, handle)
    } else {
        // A closed pipe ends the session at its next line.
        let _ = writeln!(std::io::stdout(), "{}", options.title);
        lines(&runtime, events, started, host_ended(&host))
    };
    let _ = stop.send(());
    ended.store(true, Ordering::Relaxed);
    let host = runtime.block_on(host).context("the host's task ended")?;
    // The builder waits for cargo at most.
    let _ = builder.join();
    runtime.shutdown_background();
    shown.and(host)
}

fn host_ended(host: &tokio::task::JoinHandle<anyhow::Result<()>>) -> impl Fn() -> bool + '_ {
    || host.is_finished()
}

pub(crate) async fn client(kubeconfig: &Path) -> anyhow::Result<Client> {
    let file = kubeconfig.display();
    let read = Kubeconfig::read_from(kubeconfig).with_context(|| format!("cannot use the kubeconfig {file}"))?;
    let config = ClientConfig::from_custom_kubeconfig(read, &KubeConfigOptions::default()).await;
    let config = config.with_context(|| format!("cannot use the kubeconfig {file}"))?;
    Client::try_from(config).with_context(|| format!("cannot connect to the cluster of {file}"))
}

/// Removes components of plugins that this session does not have.
fn remove_stale(components: &Path, plugins: &[Plugin]) -> anyhow::Result<()> {
    for entry in std::fs::read_dir(components).with_context(|| format!("cannot read {}", components.display()))? {
        let path = entry.context("reading the folder of components")?.path();
        let stem = path.file_stem().and_then(|stem| stem.to_str()).unwrap_or_default();
        if !plugins.iter().any(|plugin| plugin.name == stem) {
            std::fs::remove_file(&path).with_context(|| format!("cannot remove {}", path.display()))?;
        }
    }
    Ok(())
}

fn screen(
    mut events: UnboundedReceiver<Event>,
    started: Instant,
    title: String,
    client: Client,
    runtime: Handle,
) -> anyhow::Result<()> {
    terminal::show(&mut events, started, title, |asked| {
        if let Ask::Reconcile(object) = asked {
            ask(&runtime, client.clone(), object, started);
        }
    })
}

fn ask(runtime: &Handle, client: Client, object: ObjectRef, started: Instant) {
    runtime.spawn(async move {
        // A failure shows: nothing is reconciled.
        let _ = samples::ask_for_reconcile(&client, &object, clock::since(started).to_string()).await;
    });
}

fn lines(
    runtime: &tokio::runtime::Runtime,
    mut events: UnboundedReceiver<Event>,
    started: Instant,
    ended: impl Fn() -> bool,
) -> anyhow::Result<()> {
    let mut model = Model::default();
    while !ended() {
        let next = runtime.block_on(async { tokio::time::timeout(LOOK, events.recv()).await });
        let event = match next {
            Ok(Some(event)) => event,
            Ok(None) => break,
            Err(_) => continue,
        };
        let reported = plain::reported(&event);
        model.take(clock::since(started), event);
        if let Some(line) = reported.and_then(|reported| plain::line(&model, &reported)) {
            let at = plain::seconds(clock::since(started));
            let mut out = std::io::stdout().lock();
            // A closed pipe ends the session.
            if writeln!(out, "{at:8.3} {line}").and_then(|()| out.flush()).is_err() {
                break;
            }
        }
    }
    Ok(())
}

/// The thread that builds plugins.
struct Builds {
    plugins: Vec<Plugin>,
    components: PathBuf,
    events: UnboundedSender<Event>,
    client: Client,
    runtime: Handle,
    ended: Arc<AtomicBool>,
    no_samples: bool,
    /// Plugins whose component was given to the host in this session.
    has_served: RefCell<BTreeSet<String>>,
}

impl Builds {
    fn start(self) -> anyhow::Result<JoinHandle<()>> {
        let saves = Saves::watch(&self.plugins)?;
        let name = "mortise-builds".to_owned();
        thread::Builder::new().name(name).spawn(move || self.run(&saves)).context("starting the thread that builds")
    }

    fn run(&self, saves: &Saves) {
        let mut built: Vec<Option<SystemTime>> = Vec::new();
        for plugin in &self.plugins {
            built.push(Some(SystemTime::now()));
            if self.build(plugin) && !self.no_samples {
                self.apply_samples(plugin);
            }
            if self.has_ended() {
                return;
            }
        }
        while !self.has_ended() {
            for (at, saved) in saves.next(LOOK).unwrap_or_default() {
                let Some(plugin) = self.plugins.get(at) else { continue };
                // cargo saw a file that was saved before the last build began.
                if built[at].is_some_and(|begun| saved < begun) {
                    continue;
                }
                built[at] = Some(SystemTime::now());
                self.send(Event::Saved { plugin: plugin.name.clone() });
                self.build(plugin);
            }
        }
    }

    fn has_ended(&self) -> bool {
        self.ended.load(Ordering::Relaxed)
    }

    fn send(&self, event: Event) {
        // An error means that the session has ended.
        let _ = self.events.send(event);
    }

    /// Builds a plugin and gives it to the host; says whether it could.
    fn build(&self, plugin: &Plugin) -> bool {
        let name = plugin.name.clone();
        self.send(Event::Building { plugin: name.clone() });
        let progress = |status| self.send(Event::Progress { plugin: name.clone(), status });
        match build::build(plugin, progress) {
            Outcome::Built { component, elapsed_ms } => match self.hand_over(plugin, &component, elapsed_ms) {
                Ok(event) => {
                    self.send(event);
                    true
                }
                Err(error) => {
                    self.send(Event::BuildFailed { plugin: name, output: format!("{error:#}") });
                    false
                }
            },
            Outcome::Failed { output } => {
                self.send(Event::BuildFailed { plugin: name, output });
                false
            }
        }
    }

    /// Puts a component where the host finds it, at once and whole, if it is not there already; what there is to show.
    fn hand_over(&self, plugin: &Plugin, component: &Path, elapsed_ms: u64) -> anyhow::Result<Event> {
        let target = self.components.join(format!("{}.wasm", plugin.name));
        let cannot_read = || format!("cannot read {}", component.display());
        let built = std::fs::read(component).with_context(cannot_read)?;
        if self.has_served.borrow().contains(&plugin.name) && std::fs::read(&target).is_ok_and(|served| served == built)
        {
            return Ok(Event::Unchanged { plugin: plugin.name.clone() });
        }
        components::put(&self.components, &plugin.name, &built)?;
        self.has_served.borrow_mut().insert(plugin.name.clone());
        let bytes = u64::try_from(built.len()).unwrap_or(u64::MAX);
        Ok(Event::Built { plugin: plugin.name.clone(), elapsed_ms, digest: digest::of(&built).to_string(), bytes })
    }

    fn apply_samples(&self, plugin: &Plugin) {
        for file in plugin.samples.clone() {
            let (client, events) = (self.client.clone(), self.events.clone());
            self.runtime.spawn(async move {
                let result = samples::apply(&client, &file).await.map_err(|error| format!("{error:#}"));
                let name = file.file_name().unwrap_or_default().to_string_lossy().into_owned();
                let _ = events.send(Event::Sample { file: name, result });
            });
        }
    }
}
