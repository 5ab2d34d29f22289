//! Where a person is on the screen, and what keys do. Input: the model and keys. Output: what a person asks for. It must not
//! know what is drawn.

use mortise_core::object::ObjectRef;
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

use crate::model::{Model, Reconcile, Row, outline};

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
