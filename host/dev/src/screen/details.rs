//! The long texts of the screen: one reconcile, the diff of an outcome, the log. Input: the model. Output: lines with a style.
//! It must not know where they are drawn.

use mortise_core::object::ObjectRef;
use ratatui::style::{Color, Style, Stylize as _};
use ratatui::text::Line;
use serde_json::Value;
use similar::{ChangeTag, TextDiff};

use crate::event::Wrote;
use crate::model::{Model, Reconcile};

/// Lines of context around a change.
const CONTEXT: usize = 2;

/// All of one reconcile.
pub(super) fn reconcile(reconcile: &Reconcile) -> Vec<Line<'static>> {
    let mut lines = vec![Line::from(reconcile.object.to_string()).bold()];
    let mut section = |title: &str, items: Vec<String>| {
        if !items.is_empty() {
            lines.push(Line::from(title.to_owned()).cyan());
            lines.extend(items.into_iter().map(|item| Line::from(format!("  {item}"))));
        }
    };
    section("woken by", reconcile.woken_by.iter().cloned().collect());
    section("read", reconcile.reads.clone());
    section("logged", reconcile.logs.clone());
    section("wrote", reconcile.writes.iter().map(|write| format!("{} {}", write.verb, write.target)).collect());
    if let Some((result, elapsed_ms)) = reconcile.ended {
        section(
            "ended",
            vec![format!("{result:?} after {elapsed_ms} ms, of which {} us in the plugin", reconcile.guest_us)],
        );
    }
    if let Some(fault) = &reconcile.fault {
        lines.extend(fault.lines().map(|line| Line::from(line.to_owned()).red()));
    }
    lines
}

/// What the last reconcile of an object that wrote anything changed.
pub(super) fn diff(model: &Model, object: &ObjectRef) -> Vec<Line<'static>> {
    let mut newest = model.reconciles.iter().rev().filter(|reconcile| reconcile.object == *object);
    let Some(found) = newest.find(|reconcile| !reconcile.writes.is_empty()) else {
        return vec![Line::from(format!("no outcome of {object} wrote anything in this session"))];
    };
    found.writes.iter().flat_map(of_write).collect()
}

fn of_write(write: &Wrote) -> Vec<Line<'static>> {
    let mut lines = vec![Line::from(format!("{} {}", write.verb, write.target)).bold()];
    let before: Value = write.before.as_deref().and_then(|text| serde_json::from_str(text).ok()).unwrap_or_default();
    let sent: Value = serde_json::from_str(&write.body).unwrap_or_default();
    let (old, new) = match write.verb {
        "delete" => (yaml(&before), String::new()),
        // Of what was there, only the fields that are sent are compared: the rest stays as it is.
        _ => (yaml(&among(&before, &sent)), yaml(&sent)),
    };
    let diff = TextDiff::from_lines(&old, &new);
    for group in diff.grouped_ops(CONTEXT) {
        for change in group.iter().flat_map(|op| diff.iter_changes(op)) {
            let (sign, style) = match change.tag() {
                ChangeTag::Delete => ("-", Style::new().fg(Color::Red)),
                ChangeTag::Insert => ("+", Style::new().fg(Color::Green)),
                ChangeTag::Equal => (" ", Style::new()),
            };
            lines.push(Line::styled(format!("  {sign} {}", change.value().trim_end()), style));
        }
    }
    lines
}

/// The part of an object that has the shape of another value.
fn among(object: &Value, shape: &Value) -> Value {
    match (object, shape) {
        (Value::Object(object), Value::Object(shape)) => {
            let kept = shape.iter().filter_map(|(key, shape)| Some((key.clone(), among(object.get(key)?, shape))));
            Value::Object(kept.collect())
        }
        _ => object.clone(),
    }
}

fn yaml(value: &Value) -> String {
    if value.is_null() {
        return String::new();
    }
    serde_saphyr::to_string(value).unwrap_or_else(|_| value.to_string())
}

/// The log, newest last, with seconds since the start.
pub(super) fn logs(model: &Model, passes: impl Fn(&str) -> bool) -> Vec<Line<'static>> {
    let lines = model.lines.iter().filter(|(_, line)| passes(line));
    lines
        .flat_map(|(at_ms, text)| {
            let at = format!("{:8.3} ", crate::plain::seconds(*at_ms));
            text.lines().map(move |line| Line::from(format!("{at}{line}"))).collect::<Vec<_>>()
        })
        .collect()
}
