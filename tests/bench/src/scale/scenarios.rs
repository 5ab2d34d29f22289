//! The scenarios: many copies of podset, restarted; many small plugins with objects, first with their own kinds alone,
//! then all reading the same one; one plugin with many keys that read the same. Each measures all hosts.

use std::fs;
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use super::figures::{Figures, Unit};
use super::side::{Side, Spent, Work, total};
use crate::operator::Operator;
use crate::programs::Host;
use crate::reader::{self, Components, LISTS, Read};
use crate::variant;

mod cluster;
pub(super) mod identities;

/// CPU targets for restarts of the podsets, and of a thousand plugins with objects.
const PODSETS_CPU_S: f64 = 1.0;
const FLEET_CPU_S: f64 = 5.0;
/// Target for the anonymous memory of one more idle plugin.
const IDLE_KIB: f64 = 16.0;
/// Changes of a kind, each of which is awaited.
const CHANGES: usize = 3;
/// Sizes of batches of cheap events, up to one that costs [`ENOUGH`].
const BATCHES: [usize; 4] = [20, 80, 320, 1_280];
/// Fifty clock ticks, the precision of CPU times.
const ENOUGH: Duration = Duration::from_millis(500);
/// Time of the measurement of an idle host.
const AT_REST: Duration = Duration::from_secs(10);
const KIB: f64 = 1024.0;

/// Starts and restarts copies of podset, each with a kind of its own, from a folder.
pub(super) async fn podsets(hosts: &[Host], plugins: usize, rounds: usize) -> Result<Figures> {
    let title = format!(
        "{plugins} podsets with kinds of their own from a folder: a first start, then restarts (medians of {rounds})"
    );
    let mut figures = figures(title, hosts);
    let (mut sides, mut alone) = (Vec::new(), Vec::new());
    for (number, host) in hosts.iter().enumerate() {
        let side = Side::new(host, hosts.len() > 1).await?;
        variant::write(host, side.folder.path(), 1)?;
        stop(side.start("one podset", Work::default()).await?.0).await?;
        let (operator, one) = side.start("one podset, restarted", Work::default()).await?;
        stop(operator).await?;
        alone.push(one.spent.anonymous_bytes);
        variant::write(host, side.folder.path(), plugins)?;
        let (operator, start) = side.start(&format!("{plugins} podsets"), Work::default()).await?;
        stop(operator).await?;
        start.rows(&mut figures, number, "first start", None);
        side.pause()?;
        sides.push(side);
    }
    for round in 0..rounds {
        for (number, side) in turns(&sides, round) {
            side.resume()?;
            let (operator, restart) = side.start(&format!("{plugins} podsets, restarted"), Work::default()).await?;
            stop(operator).await?;
            restart.rows(&mut figures, number, "restart", Some(PODSETS_CPU_S));
            idle_row(&mut figures, number, alone[number], restart.spent.anonymous_bytes, plugins);
            side.pause()?;
        }
    }
    Ok(figures)
}

/// Small plugins with objects: idle, converging, restarted, and with events; then the same while every key lists
/// the Nodes.
pub(super) async fn fleet(hosts: &[Host], plugins: usize, objects: usize, rounds: usize) -> Result<Figures> {
    let title = format!(
        "{plugins} small plugins with kinds of their own x {objects} objects, {} Nodes (medians of {rounds})",
        cluster::NODES
    );
    let resync = Work { calls: plugins * objects, statuses: 0 };
    let mut figures = figures(title, hosts);
    let mut sides = Vec::new();
    for (number, host) in hosts.iter().enumerate() {
        let side = Side::new(host, hosts.len() > 1).await?;
        cluster::set_up(&side.cluster, true).await?;
        write_plugins(&side, 1, true)?;
        let (operator, one) = side.start("one plugin", Work::default()).await?;
        stop(operator).await?;
        write_plugins(&side, plugins, true)?;
        let (operator, start) = side.start(&format!("{plugins} plugins without objects"), Work::default()).await?;
        start.rows(&mut figures, number, "first start, no objects", None);
        let bytes = start.spent.anonymous_bytes;
        idle_row(&mut figures, number, one.spent.anonymous_bytes, bytes, plugins);
        at_rest(&side, &operator, &mut figures, number).await?;
        stop(operator).await?;
        converge(&side, plugins, objects, &mut figures, number).await?;
        side.pause()?;
        sides.push(side);
    }
    for round in 0..rounds {
        for (number, side) in turns(&sides, round) {
            side.resume()?;
            let what = "restart, keys read nothing";
            let (operator, restart) = side.start(what, resync).await?;
            restart.rows(&mut figures, number, what, Some(FLEET_CPU_S));
            own_events(side, &operator, (plugins, objects), &mut figures, number).await?;
            beats(side, &operator, (Read::Node, plugins), "that nobody lists", &mut figures, number).await?;
            stop(operator).await?;
            side.pause()?;
        }
    }
    for side in &sides {
        write_configurations(side, plugins)?;
    }
    for round in 0..rounds {
        for (number, side) in turns(&sides, round) {
            side.resume()?;
            let what = "restart, all keys list the Nodes";
            let (operator, restart) = side.start(what, resync).await?;
            restart.rows(&mut figures, number, what, Some(FLEET_CPU_S));
            for read in Read::ALL {
                let keys = read.readers(plugins) * objects;
                read_events(side, &operator, (read, plugins), keys, &mut figures, number).await?;
            }
            stop(operator).await?;
            side.pause()?;
        }
    }
    Ok(figures)
}

/// One plugin with many objects, each of which lists the same Nodes.
pub(super) async fn keys(hosts: &[Host], keys: usize, rounds: usize) -> Result<Figures> {
    let title = format!("{keys} keys of one plugin that list the same {} Nodes (medians of {rounds})", cluster::NODES);
    let mut figures = figures(title, hosts);
    let mut sides = Vec::new();
    for (number, host) in hosts.iter().enumerate() {
        let side = Side::new(host, hosts.len() > 1).await?;
        cluster::set_up(&side.cluster, false).await?;
        write_plugins(&side, 1, false)?;
        write_configurations(&side, 1)?;
        // The first start registers the CRD of its objects.
        stop(side.start("one plugin", Work::default()).await?.0).await?;
        converge(&side, 1, keys, &mut figures, number).await?;
        side.pause()?;
        sides.push(side);
    }
    for round in 0..rounds {
        for (number, side) in turns(&sides, round) {
            side.resume()?;
            let resync = Work { calls: keys, statuses: 0 };
            let (operator, restart) = side.start("restart", resync).await?;
            restart.rows(&mut figures, number, "restart", None);
            read_events(side, &operator, (Read::Node, 1), keys, &mut figures, number).await?;
            stop(operator).await?;
            side.pause()?;
        }
    }
    Ok(figures)
}

/// The hosts with their numbers; each round starts with another one.
fn turns<'a, 'h>(sides: &'a [Side<'h>], round: usize) -> impl Iterator<Item = (usize, &'a Side<'h>)> {
    (0..sides.len()).map(move |turn| (turn + round) % sides.len()).map(|number| (number, &sides[number]))
}

fn figures(title: String, hosts: &[Host]) -> Figures {
    Figures::new(title, hosts.iter().map(|host| host.name.clone()))
}

async fn stop(operator: Operator) -> Result<()> {
    operator.stop().await.context("end the host")
}

fn write_plugins(side: &Side<'_>, plugins: usize, samples: bool) -> Result<()> {
    let components = Components::new(side.host.test_guest("reader")?)?;
    for plugin in 0..plugins {
        let path = side.folder.path().join(format!("{}.wasm", reader::name(plugin)));
        fs::write(&path, components.of(plugin, samples)?).with_context(|| format!("write {}", path.display()))?;
    }
    Ok(())
}

/// Makes every key list the kinds that its plugin reads.
fn write_configurations(side: &Side<'_>, plugins: usize) -> Result<()> {
    for plugin in 0..plugins {
        let path = side.folder.path().join(format!("{}.yaml", reader::name(plugin)));
        fs::write(&path, LISTS).with_context(|| format!("write {}", path.display()))?;
    }
    Ok(())
}

fn idle_row(figures: &mut Figures, host: usize, alone: u64, all: u64, plugins: usize) {
    if plugins > 1 {
        let each = (all as f64 - alone as f64) / (plugins - 1) as f64 / KIB;
        figures.add_for(host, "anonymous memory of one more idle plugin", Unit::Kib, each, IDLE_KIB);
    }
}

async fn at_rest(side: &Side<'_>, operator: &Operator, figures: &mut Figures, host: usize) -> Result<()> {
    let (before, api_server) = (operator.usage()?, side.cluster.api_server_usage()?);
    tokio::time::sleep(AT_REST).await;
    let share = |now: Duration, then: Duration| now.saturating_sub(then).as_secs_f64() * 1e3 / AT_REST.as_secs_f64();
    let (after, api_after) = (operator.usage()?, side.cluster.api_server_usage()?);
    figures.add(host, "at rest, CPU a second", Unit::Milliseconds, share(after.cpu, before.cpu));
    let name = "at rest, API server CPU a second";
    figures.add(host, name, Unit::Milliseconds, share(api_after.cpu, api_server.cpu));
    Ok(())
}

/// Starts the host with new objects; it has to reconcile each and write its status.
async fn converge(side: &Side<'_>, plugins: usize, objects: usize, figures: &mut Figures, host: usize) -> Result<()> {
    side.progress(&format!("create {plugins} x {objects} objects"));
    cluster::create_objects(&side.cluster, plugins, objects).await?;
    let what = "start to converged";
    let (operator, start) = side.start(what, Work { calls: plugins * objects, statuses: plugins * objects }).await?;
    start.rows(figures, host, what, None);
    let each = start.spent.anonymous_bytes as f64 / (plugins * objects) as f64 / KIB;
    figures.add(host, "converged: anonymous memory by objects", Unit::Kib, each);
    stop(operator).await
}

/// Labels objects of the plugins' own kinds: each event wakes one key.
async fn own_events(
    side: &Side<'_>,
    operator: &Operator,
    (plugins, objects): (usize, usize),
    figures: &mut Figures,
    host: usize,
) -> Result<()> {
    let what = "a change of one object of its own kind";
    side.progress(what);
    let mut sent = 0;
    let (spent, events) = enough(side, operator, async |_| {
        sent += 1;
        // Spread over the plugins.
        let (plugin, number) = (sent * 7_919 % plugins, sent % objects);
        cluster::label_object(&side.cluster, plugin, number, sent).await
    })
    .await?;
    spent.event_rows(figures, host, what, events);
    Ok(())
}

/// Events of a kind that some keys list: heartbeats, then changes of queried fields.
async fn read_events(
    side: &Side<'_>,
    operator: &Operator,
    (read, plugins): (Read, usize),
    keys: usize,
    figures: &mut Figures,
    host: usize,
) -> Result<()> {
    beats(side, operator, (read, plugins), &format!("that {keys} keys list"), figures, host).await?;
    let what = format!("a change of {} that {keys} keys list", named(read, plugins));
    side.progress(&what);
    let mut all: Option<Spent> = None;
    for _ in 0..CHANGES {
        let spent =
            side.phase(operator, Work { calls: keys, statuses: 0 }, cluster::change(&side.cluster, read)).await?;
        ensure!(total(&spent.writes) == 0.0, "a change of a kind that is only read caused writes: {:?}", spent.writes);
        all = Some(match all {
            None => spent,
            Some(before) => before.and(spent),
        });
    }
    let all = all.context("there was no change")?;
    all.event_rows(figures, host, &what, CHANGES);
    figures.add(host, format!("{what}: s until at rest"), Unit::Seconds, all.wall.as_secs_f64() / CHANGES as f64);
    Ok(())
}

/// Heartbeats: events that change no queried field.
async fn beats(
    side: &Side<'_>,
    operator: &Operator,
    (read, plugins): (Read, usize),
    who: &str,
    figures: &mut Figures,
    host: usize,
) -> Result<()> {
    let what = format!("a heartbeat of {} {who}", named(read, plugins));
    side.progress(&what);
    let mut sent = 0;
    let (spent, events) = enough(side, operator, async |_| {
        sent += 1;
        cluster::beat(&side.cluster, read, sent).await
    })
    .await?;
    spent.event_rows(figures, host, &what, events);
    Ok(())
}

fn named(read: Read, plugins: usize) -> String {
    let object = if read == Read::Node { "a Node" } else { "a Sample" };
    match read.readers(plugins) {
        1 => format!("{object} (1 plugin)"),
        readers => format!("{object} ({readers} plugins)"),
    }
}

/// Sends events in ever larger batches until one costs enough to be measured, and returns that one.
async fn enough(
    side: &Side<'_>,
    operator: &Operator,
    mut send: impl AsyncFnMut(usize) -> Result<()>,
) -> Result<(Spent, usize)> {
    let mut last = None;
    for events in BATCHES {
        let spent = side
            .phase(operator, Work::default(), async {
                for event in 0..events {
                    send(event).await?;
                }
                Ok(())
            })
            .await?;
        let is_enough = spent.cpu >= ENOUGH;
        last = Some((spent, events));
        if is_enough {
            break;
        }
    }
    last.context("there was no batch")
}
