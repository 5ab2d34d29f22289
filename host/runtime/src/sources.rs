//! Merges the sources of plugins. Where two have a plugin of one name, the first of [`Source`] takes precedence; the
//! other is used once the first no longer has it.
//!
//! Events of sources come in, events for the engine come out, with the origins of their components.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use mortise_core::component::Unreadable;
use mortise_core::digest::Digest;
use mortise_core::event::Event;
use mortise_kube::client::ApiServer;
use mortise_source::directory::Directory;
use mortise_source::{Origin, SourceEvent};
use tokio::sync::Notify;
use tokio::time::sleep;

use crate::config::Config;
use crate::input::{Input, Source, SourceInput};
use crate::inputs::Inputs;
use crate::supervise::Supervisor;

mod config_maps;
mod listing;
mod tenants;
mod turns;

#[cfg(test)]
mod tests;

pub(crate) use self::tenants::TenantSources;

/// How long the other sources wait for the first list of one with precedence. A folder is read every ten seconds and
/// counts as listed three seconds after it could be read: one that is not listed by now is unreadable.
const FIRST_LISTING: Duration = Duration::from_secs(15);

pub(crate) fn of(config: &Config) -> Vec<Source> {
    let directory = config.plugin_dir.is_some().then_some(Source::Directory);
    directory.into_iter().chain([Source::ConfigMaps]).collect()
}

/// Starts every source. `read_again` has the ConfigMaps listed again.
pub(crate) fn start(
    config: &Config,
    api: &ApiServer,
    inputs: &Inputs,
    read_again: Arc<Notify>,
    supervisor: &Supervisor,
) -> anyhow::Result<()> {
    config_maps::start(&config.namespace, api, inputs, read_again, supervisor)?;
    let Some(path) = &config.plugin_dir else { return Ok(()) };
    let (directory, stop) = Directory::open(path)?;
    let overdue = inputs.clone();
    supervisor.spawn("the deadline of the plugin folder's first list", async move {
        sleep(FIRST_LISTING).await;
        // An error means that the loop has ended.
        let _ = overdue.send(Input::ListingDue(Source::Directory)).await;
    });
    let inputs = inputs.clone();
    supervisor.thread("mortise-plugin-dir", move || {
        // Dropping it would end the watch of the folder.
        let _stop = stop;
        directory.run(|event| {
            // An error means that the loop has ended.
            let _ = inputs.blocking_send(Input::Source(SourceInput { source: Source::Directory, event }));
        });
        Ok(())
    })
}

/// The plugins of every source.
#[derive(Debug)]
pub(crate) struct Offers {
    by_name: BTreeMap<Arc<str>, BTreeMap<Source, Reading>>,
    /// Sources that have not been listed yet.
    unlisted: Vec<Source>,
    /// Those of them that lower ones wait for, no longer than [`FIRST_LISTING`]; else a restart would begin with the
    /// wrong one of two plugins.
    waited_for: Vec<Source>,
    /// Of the sources that wait, each plugin's newest event.
    held: BTreeMap<(Source, Arc<str>), SourceEvent>,
    /// Sources that were listed while they waited.
    held_listed: Vec<Source>,
    listed_sent: bool,
    /// Plugins that their first source has lost, with their place there. They serve until the next source is read
    /// again.
    leaving: BTreeMap<Arc<str>, Arc<str>>,
}

/// A plugin in one source.
#[derive(Clone, Debug)]
enum Reading {
    Plugin { place: Arc<str> },
    Unreadable(Unreadable),
}

#[derive(Debug)]
pub(crate) enum SourceOutput {
    /// For the engine, with the origin of a component, which must be recorded first.
    Event(Box<Event>, Option<(Digest, Origin)>),
    /// List this source again: a plugin of it is no longer hidden by another source's.
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
            listed_sent: false,
            leaving: BTreeMap::new(),
        }
    }

    pub(crate) fn take(&mut self, input: SourceInput) -> Vec<SourceOutput> {
        let source = input.source;
        if self.waits(source) {
            self.hold(input);
            return Vec::new();
        }
        let listed = matches!(input.event, SourceEvent::Listed);
        let mut outputs = self.take_now(input);
        if listed {
            outputs.extend(self.stop_waiting_for(source));
        }
        outputs
    }

    /// The deadline of a source's first list. If it was not listed, the others stop waiting. It still counts as
    /// unlisted, and its plugins are taken later.
    pub(crate) fn listing_due(&mut self, source: Source) -> Vec<SourceOutput> {
        if !self.waited_for.contains(&source) {
            return Vec::new();
        }
        tracing::warn!(
            waited_s = FIRST_LISTING.as_secs(),
            "{source} could not be listed yet; plugins of other sources wait no longer"
        );
        self.stop_waiting_for(source)
    }

    fn waits(&self, source: Source) -> bool {
        self.waited_for.iter().any(|&first| first < source)
    }

    /// The engine knows no plugin of a source that waits, so a plugin that is removed meanwhile needs no event.
    fn hold(&mut self, SourceInput { source, event }: SourceInput) {
        let name = match &event {
            SourceEvent::Found { offer, .. } => offer.name.clone(),
            SourceEvent::Unreadable(unreadable) => unreadable.name.clone(),
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
        // Events of a source that still waits are held again.
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
            SourceEvent::Unreadable(found) => {
                self.set(source, found.name.clone(), Reading::Unreadable(found.clone()), unreadable(found))
            }
            SourceEvent::Gone(name) => self.remove(source, &name),
            SourceEvent::Listed => self.listed(source),
        }
    }

    fn set(&mut self, source: Source, name: Arc<str>, reading: Reading, output: SourceOutput) -> Vec<SourceOutput> {
        let readings = self.by_name.entry(name.clone()).or_default();
        let before = readings.first_key_value().map(|(&first, reading)| (first, reading.place().clone()));
        readings.insert(source, reading);
        if let Some(place) = self.leaving.remove(&name) {
            return vec![gone(&name, &place), output];
        }
        match before {
            Some((first, _)) if first < source => {
                tracing::warn!(plugin = %name, "{source} have a plugin of this name; {first} has one too and takes precedence");
                Vec::new()
            }
            Some((first, place)) if first > source => vec![gone(&name, &place), output],
            _ => vec![output],
        }
    }

    /// When the next source has a plugin, it must be read again, and the lost one serves until then.
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
            Some((_, Reading::Unreadable(next))) => vec![gone(name, &place), unreadable(next.clone())],
            None => {
                self.by_name.remove(name);
                vec![gone(name, &place)]
            }
        }
    }

    fn listed(&mut self, source: Source) -> Vec<SourceOutput> {
        self.unlisted.retain(|&unlisted| unlisted != source);
        if !self.unlisted.is_empty() || self.listed_sent {
            return Vec::new();
        }
        self.listed_sent = true;
        vec![SourceOutput::Event(Event::SourcesListed.into(), None)]
    }
}

fn gone(name: &Arc<str>, place: &Arc<str>) -> SourceOutput {
    SourceOutput::Event(Event::PluginGone { name: name.clone(), source: place.clone() }.into(), None)
}

fn unreadable(unreadable: Unreadable) -> SourceOutput {
    SourceOutput::Event(Event::PluginUnreadable(unreadable).into(), None)
}

impl Reading {
    fn place(&self) -> &Arc<str> {
        match self {
            Self::Plugin { place } | Self::Unreadable(Unreadable { source: place, .. }) => place,
        }
    }
}
