//! The screen: what is drawn of a model, and what keys do. Input: the model and keys. Output: a frame, and what a person asks
//! for. It must not know how events come or what is done with what is asked.

mod details;
mod draw;

use mortise_core::object::ObjectRef;
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

use crate::model::{Model, Reconcile, Row, outline};

pub(crate) use self::draw::draw;

/// Which list the arrow keys move in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Focus {
    #[default]
    Objects,
    Reconciles,
}

/// What covers the lists.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Opened {
    #[default]
    Nothing,
    /// All of one reconcile.
    Reconcile,
    /// What the last outcome of an object changed.
    Diff,
    /// All log lines.
    Logs,
}

/// Where a person is on the screen.
#[derive(Clone, Debug, Default)]
pub(crate) struct View {
    pub(crate) focus: Focus,
    pub(crate) opened: Opened,
    /// The selected row of each list.
    pub(crate) object: usize,
    /// Counted from the newest.
    pub(crate) reconcile: usize,
    /// Lines that are scrolled away in what is opened.
    pub(crate) scroll: u16,
    pub(crate) filter: String,
    /// Keys go to the filter.
    pub(crate) types_filter: bool,
    /// What the first line says: where the cluster is.
    pub(crate) title: String,
}

/// What a person asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Ask {
    Quit,
    /// Reconcile this object now.
    Reconcile(ObjectRef),
}

impl View {
    /// The rows of the outline that pass the filter.
    pub(crate) fn rows(&self, model: &Model) -> Vec<Row> {
        let mut rows = outline(&model.objects, &model.reconciled);
        rows.retain(|row| self.passes(&row.object.to_string()));
        rows
    }

    /// The reconciles that pass the filter, newest first.
    pub(crate) fn reconciles<'a>(&'a self, model: &'a Model) -> impl Iterator<Item = &'a Reconcile> {
        model.reconciles.iter().rev().filter(|reconcile| self.passes(&reconcile.object.to_string()))
    }

    pub(crate) fn passes(&self, text: &str) -> bool {
        self.filter.is_empty() || text.to_lowercase().contains(&self.filter.to_lowercase())
    }

    /// The object that `r` and `d` are about: the selected one, or that of the selected reconcile.
    pub(crate) fn selected(&self, model: &Model) -> Option<ObjectRef> {
        match self.focus {
            Focus::Objects => {
                let rows = self.rows(model);
                // Of a child its owner.
                let at = self.object.min(rows.len().checked_sub(1)?);
                rows[..=at].iter().rev().find(|row| row.depth == 0).map(|row| row.object.clone())
            }
            Focus::Reconciles => self.reconciles(model).nth(self.reconcile).map(|reconcile| reconcile.object.clone()),
        }
    }

    /// Takes a key.
    pub(crate) fn key(&mut self, key: KeyEvent, model: &Model) -> Option<Ask> {
        if key.modifiers.contains(KeyModifiers::CONTROL) && key.code == KeyCode::Char('c') {
            return Some(Ask::Quit);
        }
        if self.types_filter {
            self.filter_key(key.code);
            return None;
        }
        match key.code {
            KeyCode::Char('q') => return Some(Ask::Quit),
            KeyCode::Char('r') => return self.selected(model).map(Ask::Reconcile),
            KeyCode::Char('d') => self.open(Opened::Diff),
            KeyCode::Char('l') => self.open(Opened::Logs),
            KeyCode::Char('/') => self.types_filter = true,
            KeyCode::Enter => {
                if self.focus == Focus::Objects {
                    self.focus_on_reconcile(model);
                }
                self.open(Opened::Reconcile);
            }
            KeyCode::Esc if self.opened != Opened::Nothing => self.open(Opened::Nothing),
            KeyCode::Esc => self.filter.clear(),
            KeyCode::Tab | KeyCode::BackTab => {
                self.focus = if self.focus == Focus::Objects { Focus::Reconciles } else { Focus::Objects };
            }
            KeyCode::Down | KeyCode::Char('j') => self.step(1, model),
            KeyCode::Up | KeyCode::Char('k') => self.step(-1, model),
            KeyCode::PageDown => self.step(10, model),
            KeyCode::PageUp => self.step(-10, model),
            _ => {}
        }
        None
    }

    fn filter_key(&mut self, key: KeyCode) {
        match key {
            KeyCode::Enter => self.types_filter = false,
            KeyCode::Esc => {
                self.types_filter = false;
                self.filter.clear();
            }
            KeyCode::Backspace => drop(self.filter.pop()),
            KeyCode::Char(letter) => self.filter.push(letter),
            _ => {}
        }
        (self.object, self.reconcile) = (0, 0);
    }

    /// Opens something, or closes it when it is open.
    fn open(&mut self, opened: Opened) {
        self.opened = if self.opened == opened { Opened::Nothing } else { opened };
        self.scroll = 0;
    }

    /// Selects the newest reconcile of the selected object.
    fn focus_on_reconcile(&mut self, model: &Model) {
        let Some(object) = self.selected(model) else { return };
        let found = self.reconciles(model).position(|reconcile| reconcile.object == object);
        self.reconcile = found.unwrap_or(self.reconcile);
    }

    fn step(&mut self, by: i32, model: &Model) {
        if self.opened != Opened::Nothing {
            self.scroll = self.scroll.saturating_add_signed(i16::try_from(by).unwrap_or_default());
            return;
        }
        let (at, count) = match self.focus {
            Focus::Objects => (self.object, self.rows(model).len()),
            Focus::Reconciles => (self.reconcile, self.reconciles(model).count()),
        };
        let moved = at.saturating_add_signed(isize::try_from(by).unwrap_or_default()).min(count.saturating_sub(1));
        match self.focus {
            Focus::Objects => self.object = moved,
            Focus::Reconciles => self.reconcile = moved,
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::event::{Event, Shown, Wrote};
    use crate::model::tests::reference;

    fn press(view: &mut View, model: &Model, keys: &str) -> Option<Ask> {
        let mut asked = None;
        for letter in keys.chars() {
            let code = match letter {
                '\n' => KeyCode::Enter,
                '\t' => KeyCode::Tab,
                '\u{1b}' => KeyCode::Esc,
                letter => KeyCode::Char(letter),
            };
            asked = view.key(KeyEvent::new(code, KeyModifiers::NONE), model);
        }
        asked
    }

    /// A session with one PodSet, one Pod and a reconcile that changed it.
    pub(crate) fn session() -> Model {
        let mut model = Model::default();
        let (set, pod) = (reference("PodSet", "web"), reference("Pod", "web-x7k2p"));
        let plugin = || "podset".to_owned();
        let shown = |owner: Option<&ObjectRef>, json: &str| {
            Some(Shown { json: json.into(), owner: owner.cloned(), terminates: false })
        };
        let ready = r#"{"status": {"conditions": [{"type": "Ready", "status": "True"}]}}"#;
        let write = Wrote {
            verb: "apply",
            target: pod.clone(),
            body: r#"{"metadata": {"labels": {"app": "new"}}}"#.into(),
            before: Some(r#"{"metadata": {"labels": {"app": "old"}}}"#.into()),
        };
        for event in [
            Event::Saved { plugin: plugin() },
            Event::Building { plugin: plugin() },
            Event::Built { plugin: plugin(), elapsed_ms: 900, bytes: 207_013 },
            Event::Serves { plugin: plugin(), digest: "sha256:51ab".to_owned(), reload: true },
            Event::Object { object: set.clone(), state: shown(None, ready) },
            Event::Object { object: pod.clone(), state: shown(Some(&set), r#"{"status": {"phase": "Running"}}"#) },
            Event::Calls { object: set.clone(), woken_by: Some(pod.to_string()) },
            Event::Called {
                object: set.clone(),
                elapsed_us: 87,
                reads: vec!["its own v1/Pod".to_owned()],
                logs: vec!["info one Pod runs".to_owned()],
            },
            Event::Writes { object: set.clone(), write },
            Event::Reconciled {
                object: set,
                result: mortise_core::observation::ReconcileResult::Success,
                elapsed_ms: 4,
                writes: 1,
                skipped: false,
            },
        ] {
            model.take(1_000, event);
        }
        model
    }

    #[test]
    fn keys_select_open_filter_and_ask() {
        let model = session();
        let mut view = View::default();
        assert_eq!(press(&mut view, &model, "jr"), Some(Ask::Reconcile(reference("PodSet", "web"))), "of the owner");
        assert_eq!(press(&mut view, &model, "\n"), None);
        assert_eq!(view.opened, Opened::Reconcile);
        press(&mut view, &model, "\u{1b}d");
        assert_eq!(view.opened, Opened::Diff);
        press(&mut view, &model, "\u{1b}/nothing\n");
        assert!(view.rows(&model).is_empty() && view.reconciles(&model).next().is_none());
        assert_eq!(press(&mut view, &model, "r"), None, "nothing is selected");
        press(&mut view, &model, "\u{1b}");
        assert_eq!(view.rows(&model).len(), 2);
        assert_eq!(press(&mut view, &model, "q"), Some(Ask::Quit));
    }

    #[test]
    fn a_letter_of_a_filter_is_no_command() {
        let model = session();
        let mut view = View::default();
        assert_eq!(press(&mut view, &model, "/q"), None);
        assert_eq!(view.filter, "q");
    }
}
