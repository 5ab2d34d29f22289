//! Events as lines, for where there is no terminal. Input: events. Output: text. It must not keep anything but the
//! model.

use crate::event::Event;
use crate::model::{Model, State, sample_line};

/// The line of an event that the model has taken already; none for what a person need not read.
pub(crate) fn line(model: &Model, event: &Reported) -> Option<String> {
    match event {
        Reported::Plugin(name) => plugin(model, name),
        Reported::Line(line) => Some(line.clone()),
        Reported::Reconciled(object) => {
            let reconcile = model.reconciles.iter().rev().find(|reconcile| reconcile.object.to_string() == *object)?;
            let (result, elapsed_ms) = reconcile.ended?;
            let why = reconcile.woken_by.as_deref().map(|by| format!(", woken by {by}")).unwrap_or_default();
            let writes: Vec<String> =
                reconcile.writes.iter().map(|write| format!("{} {}", write.verb, write.target)).collect();
            let writes = if writes.is_empty() { String::new() } else { format!(": {}", writes.join(", ")) };
            Some(format!("reconciled {object} in {elapsed_ms} ms ({result:?}{why}){writes}"))
        }
    }
}

/// What of an event is reported, taken before the model takes the event.
pub(crate) enum Reported {
    Plugin(String),
    Reconciled(String),
    Line(String),
}

/// What of an event is reported; none for what the line of its reconcile has.
pub(crate) fn reported(event: &Event) -> Option<Reported> {
    match event {
        Event::Building { plugin }
        | Event::Progress { plugin, .. }
        | Event::Built { plugin, .. }
        | Event::Unchanged { plugin }
        | Event::BuildFailed { plugin, .. }
        | Event::Serves { plugin, .. }
        | Event::Refused { plugin, .. } => Some(Reported::Plugin(plugin.clone())),
        Event::Reconciled { object, skipped: false, .. } => Some(Reported::Reconciled(object.to_string())),
        Event::Sample { file, result } => Some(Reported::Line(sample_line(file, result))),
        Event::Fault { object, message, detail, .. } if detail.is_empty() => {
            Some(Reported::Line(format!("{object}: {message}")))
        }
        Event::Fault { object, message, detail, .. } => Some(Reported::Line(format!("{object}: {message}\n{detail}"))),
        Event::WriteFailed { target, message } => {
            Some(Reported::Line(format!("a write of {target} failed: {message}")))
        }
        Event::Called { object, logs, .. } if !logs.is_empty() => {
            let lines: Vec<String> = logs.iter().map(|line| format!("{object}: {line}")).collect();
            Some(Reported::Line(lines.join("\n")))
        }
        Event::Note(note) => Some(Reported::Line(note.clone())),
        _ => None,
    }
}

fn plugin(model: &Model, name: &str) -> Option<String> {
    let plugin = model.plugins.get(name)?;
    Some(match &plugin.state {
        State::Building(None) => format!("{name}: building"),
        State::Building(Some(status)) => format!("{name}: building: {status}"),
        State::Loading => format!("{name}: built, {} KB", plugin.bytes / 1_000),
        State::BuildFailed(output) => {
            let serves = if plugin.serves { "; the version before serves on" } else { "" };
            format!("{name}: does not build{serves}\n{output}")
        }
        State::Refused(why) => format!("{name}: refused: {why}"),
        State::Serves => match plugin.swapped {
            Some(swap) => format!(
                "{name}: serves, {:.2} s after the save (cargo {:.2} s, mortise {} ms)",
                seconds(swap.total_ms),
                seconds(swap.build_ms),
                swap.load_ms
            ),
            None => format!("{name}: serves"),
        },
    })
}

pub(crate) fn seconds(ms: u64) -> f64 {
    // Milliseconds of a session are far below 2^52.
    #[expect(clippy::cast_precision_loss, reason = "see above")]
    let ms = ms as f64;
    ms / 1_000.0
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::tests::built;

    #[test]
    fn a_broken_build_says_that_the_old_version_serves() {
        let mut model = Model::default();
        let mut lines = Vec::new();
        let plugin = || "podset".to_owned();
        for (at, event) in [
            (0, Event::Building { plugin: plugin() }),
            (500, Event::Progress { plugin: plugin(), status: "Compiling serde v1.0.2, crate 7".to_owned() }),
            (900, built("d", 890)),
            (950, Event::Serves { plugin: plugin(), digest: "d".to_owned(), reload: false }),
            (2_000, Event::Saved { plugin: plugin() }),
            (2_500, Event::BuildFailed { plugin: plugin(), output: "error[E0308]: mismatched types".to_owned() }),
        ] {
            let reported = reported(&event);
            model.take(at, event);
            lines.extend(reported.and_then(|reported| line(&model, &reported)));
        }
        expect_test::expect![[r#"
            podset: building
            podset: building: Compiling serde v1.0.2, crate 7
            podset: built, 207 KB
            podset: serves, 0.95 s after the save (cargo 0.89 s, mortise 50 ms)
            podset: does not build; the version before serves on
            error[E0308]: mismatched types"#]]
        .assert_eq(&lines.join("\n"));
    }
}
