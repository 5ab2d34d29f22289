//! The screen: what is drawn of a model, and what keys do. Input: the model and keys. Output: a frame, and what a person asks
//! for. It must not know how events come or what is done with what is asked.

mod details;
mod draw;
mod view;

pub(crate) use self::draw::draw;
pub(crate) use self::view::{Ask, View};

#[cfg(test)]
pub(crate) mod tests {
    use mortise_core::object::ObjectRef;
    use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

    use super::view::Opened;
    use super::*;
    use crate::event::{Event, Shown, Wrote};
    use crate::model::Model;
    use crate::model::tests::{built, reference};

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
            built("sha256:51ab", 900),
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
