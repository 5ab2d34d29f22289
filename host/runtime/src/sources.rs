//! Several sources of plugins as one. Each tells what it has; where two have a plugin of one name, the one that stands
//! first in [`Source`] is taken and the other comes back when the first no longer has it.
//!
//! Readings of sources flow in, the driver's events flow out, with where the components are that they are about.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use mortise_core::digest::Digest;
use mortise_core::event::Event;
use mortise_core::refusal::Refusal;
use mortise_kube::client::ApiServer;
use mortise_source::directory::Directory;
use mortise_source::{Origin, SourceEvent};
use tokio::sync::{Notify, mpsc};
use tokio::time::sleep;

use crate::config::Config;
use crate::event_loop::Input;
use crate::supervise::Supervisor;

mod config_maps;

#[cfg(test)]
mod tests;

/// How long a source that goes first is waited for by those behind it. A folder is told as listed three seconds after it
/// could be read, whatever is going on in it, and is looked at every ten: one that is not by now cannot be read, and every
/// plugin of every other source would stand still for it.
const FIRST_LISTING: Duration = Duration::from_secs(15);

/// The sources that a configuration asks for.
pub(crate) fn of(config: &Config) -> Vec<Source> {
    let directory = config.plugin_dir.is_some().then_some(Source::Directory);
    directory.into_iter().chain([Source::ConfigMaps]).collect()
}

/// Starts every source; each tells the event loop what it has, and the ConfigMaps tell it anew whenever they are to be
/// read again.
pub(crate) fn start(
    config: &Config,
    api: &ApiServer,
    inputs: &mpsc::Sender<Input>,
    read_again: Arc<Notify>,
    supervisor: &Supervisor,
) -> anyhow::Result<()> {
    config_maps::start(&config.namespace, api, inputs, read_again, supervisor)?;
    let Some(path) = &config.plugin_dir else { return Ok(()) };
    let (directory, stop) = Directory::open(path)?;
    let (overdue, alarm) = (inputs.clone(), supervisor.alarm("the deadline of the plugin folder's first listing"));
    tokio::spawn(async move {
        let _alarm = alarm;
        sleep(FIRST_LISTING).await;
        // A loop that has ended waits for no folder.
        let _ = overdue.send(Input::ListingDue(Source::Directory)).await;
    });
    let inputs = inputs.clone();
    supervisor.thread("mortise-plugin-dir", move || {
        // Held, so that the directory is watched for as long as the process runs.
        let _stop = stop;
        directory.run(|event| {
            // A loop that has ended wants to know nothing.
            let _ = inputs.blocking_send(Input::Source(SourceInput { source: Source::Directory, event }));
        });
        Ok(())
    })
}

/// A source, in the order of precedence.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Source {
    /// A folder that the command line names: somebody at this machine wants exactly that.
    Directory,
    /// ConfigMaps of the host's namespace.
    ConfigMaps,
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Directory => "the plugin folder",
            Self::ConfigMaps => "the ConfigMaps",
        })
    }
}

/// What a source told.
#[derive(Clone, Debug)]
pub(crate) struct SourceInput {
    pub(crate) source: Source,
    pub(crate) event: SourceEvent,
}

/// What every source has.
#[derive(Debug)]
pub(crate) struct Offers {
    by_name: BTreeMap<Arc<str>, BTreeMap<Source, Reading>>,
    /// Sources that have not been listed yet.
    unlisted: Vec<Source>,
    /// Those of them that the ones behind them wait for; else a restart would begin with the wrong one of two plugins. A
    /// folder is listed within moments, and waited for no longer than [`FIRST_LISTING`].
    waited_for: Vec<Source>,
    /// What the sources that wait have told: of each plugin the newest reading only.
    held: BTreeMap<(Source, Arc<str>), SourceEvent>,
    /// Sources that were listed while they waited.
    held_listed: Vec<Source>,
    listed_told: bool,
    /// Plugins whose first source has gone and that are asked for anew from the next one, with the place where they
    /// stood: they go on serving until the answer comes.
    leaving: BTreeMap<Arc<str>, Arc<str>>,
}

/// What a source has of one plugin.
#[derive(Clone, Debug)]
enum Reading {
    Plugin { place: Arc<str> },
    Unreadable { place: Arc<str>, refusal: Refusal },
}

/// What follows from what a source told.
#[derive(Debug)]
pub(crate) enum SourceOutput {
    /// For the driver, with where a component is, which has to be known before the event.
    Event(Box<Event>, Option<(Digest, Origin)>),
    /// This source is to tell all that it has once more: a plugin of it comes out from behind another source's.
    ReadAgain(Source),
}

impl Offers {
    pub(crate) fn new(sources: &[Source]) -> Self {
        Self {
            by_name: BTreeMap::new(),
            unlisted: sources.to_vec(),
            waited_for: sources.to_vec(),
            held: BTreeMap::new(),
            held_listed: Vec::new(),
            listed_told: false,
            leaving: BTreeMap::new(),
        }
    }

    /// Takes in what a source told; what comes out is for the driver.
    pub(crate) fn take(&mut self, input: SourceInput) -> Vec<SourceOutput> {
        let source = input.source;
        if self.waits(source) {
            self.hold(input);
            return Vec::new();
        }
        let listed = matches!(input.event, SourceEvent::Listed);
        let mut found = self.take_now(input);
        if listed {
            found.extend(self.stop_waiting_for(source));
        }
        found
    }

    /// The time for a source's first listing is over. When it has not been listed, the others go on without it; that it
    /// has no plugins is not believed, and what it has is taken when it tells.
    pub(crate) fn listing_due(&mut self, source: Source) -> Vec<SourceOutput> {
        if !self.waited_for.contains(&source) {
            return Vec::new();
        }
        tracing::warn!(
            waited_s = FIRST_LISTING.as_secs(),
            "{source} could not be listed yet; plugins from elsewhere begin without waiting for it any longer"
        );
        self.stop_waiting_for(source)
    }

    fn waits(&self, source: Source) -> bool {
        self.waited_for.iter().any(|&first| first < source)
    }

    /// Nothing of a source that waits was told, so a plugin that goes meanwhile leaves nothing to tell.
    fn hold(&mut self, SourceInput { source, event }: SourceInput) {
        let name = match &event {
            SourceEvent::Found { offer, .. } => offer.name.clone(),
            SourceEvent::Unreadable { name, .. } => name.clone(),
            SourceEvent::Gone(name) => {
                self.held.remove(&(source, name.clone()));
                return;
            }
            SourceEvent::Listed => return self.held_listed.push(source),
        };
        self.held.insert((source, name), event);
    }

    fn stop_waiting_for(&mut self, source: Source) -> Vec<SourceOutput> {
        self.waited_for.retain(|&waited_for| waited_for != source);
        let held = std::mem::take(&mut self.held).into_iter().map(|((source, _), event)| SourceInput { source, event });
        let listed = std::mem::take(&mut self.held_listed).into_iter();
        let listed = listed.map(|source| SourceInput { source, event: SourceEvent::Listed });
        // Whoever still waits for another is held anew.
        held.chain(listed).flat_map(|input| self.take(input)).collect()
    }

    fn take_now(&mut self, input: SourceInput) -> Vec<SourceOutput> {
        let SourceInput { source, event } = input;
        match event {
            SourceEvent::Found { offer, origin } => {
                let reading = Reading::Plugin { place: offer.source.clone() };
                let (name, found) = (offer.name.clone(), Some((offer.digest.clone(), origin)));
                self.set(source, name, reading, SourceOutput::Event(Event::PluginFound(offer).into(), found))
            }
            SourceEvent::Unreadable { name, source: place, refusal } => {
                let told = unreadable(&name, &place, &refusal);
                self.set(source, name, Reading::Unreadable { place, refusal }, told)
            }
            SourceEvent::Gone(name) => self.remove(source, &name),
            SourceEvent::Listed => self.listed(source),
        }
    }

    fn set(&mut self, source: Source, name: Arc<str>, reading: Reading, told: SourceOutput) -> Vec<SourceOutput> {
        let readings = self.by_name.entry(name.clone()).or_default();
        let before = readings.first_key_value().map(|(&first, reading)| (first, reading.place().clone()));
        readings.insert(source, reading);
        if let Some(place) = self.leaving.remove(&name) {
            return vec![gone(&name, &place), told];
        }
        match before {
            Some((first, _)) if first < source => {
                tracing::warn!(plugin = %name, "{source} have a plugin of this name, but {first} has it too and goes first");
                Vec::new()
            }
            Some((first, place)) if first > source => vec![gone(&name, &place), told],
            _ => vec![told],
        }
    }

    /// What was first has gone. The next one's offer is not here, so until it comes the plugin stays as it was.
    fn remove(&mut self, source: Source, name: &Arc<str>) -> Vec<SourceOutput> {
        let Some(readings) = self.by_name.get_mut(name) else { return Vec::new() };
        let was_first = readings.keys().next() == Some(&source);
        let Some(removed) = readings.remove(&source).filter(|_| was_first) else { return Vec::new() };
        let place = self.leaving.remove(name).unwrap_or_else(|| removed.place().clone());
        match readings.first_key_value() {
            Some((&next, Reading::Plugin { .. })) => {
                self.leaving.insert(name.clone(), place);
                vec![SourceOutput::ReadAgain(next)]
            }
            Some((_, Reading::Unreadable { place: next, refusal })) => {
                vec![gone(name, &place), unreadable(name, next, refusal)]
            }
            None => {
                self.by_name.remove(name);
                vec![gone(name, &place)]
            }
        }
    }

    fn listed(&mut self, source: Source) -> Vec<SourceOutput> {
        self.unlisted.retain(|&unlisted| unlisted != source);
        if !self.unlisted.is_empty() || self.listed_told {
            return Vec::new();
        }
        self.listed_told = true;
        vec![SourceOutput::Event(Event::SourcesListed.into(), None)]
    }
}

fn gone(name: &Arc<str>, place: &Arc<str>) -> SourceOutput {
    SourceOutput::Event(Event::PluginGone { name: name.clone(), source: place.clone() }.into(), None)
}

fn unreadable(name: &Arc<str>, place: &Arc<str>, refusal: &Refusal) -> SourceOutput {
    let (name, source, refusal) = (name.clone(), place.clone(), refusal.clone());
    SourceOutput::Event(Event::PluginUnreadable { name, source, refusal }.into(), None)
}

impl Reading {
    fn place(&self) -> &Arc<str> {
        match self {
            Self::Plugin { place } | Self::Unreadable { place, .. } => place,
        }
    }
}
