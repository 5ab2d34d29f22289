//! Draws the screen. Input: the model and the view. Output: a frame. It must not change either.

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Style, Stylize as _};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, List, ListItem, ListState, Paragraph, Wrap};

use super::details;
use super::view::{Focus, Opened, View};
use crate::model::{Model, Plugin, State};

/// Rows of the list of plugins with its frame; more are scrolled away, since objects matter more.
const MAX_PLUGIN_ROWS: u16 = 8;
/// Rows of the newest log lines.
const LOG_ROWS: u16 = 8;

pub(crate) fn draw(frame: &mut Frame<'_>, model: &Model, view: &View) {
    let plugins = u16::try_from(model.plugins.len()).unwrap_or(u16::MAX).saturating_add(2).min(MAX_PLUGIN_ROWS);
    let broken = broken(model);
    let below = if broken.is_some() { Constraint::Percentage(50) } else { Constraint::Length(LOG_ROWS) };
    let [title, top, middle, bottom, keys] = Layout::vertical([
        Constraint::Length(1),
        Constraint::Length(plugins),
        Constraint::Min(3),
        below,
        Constraint::Length(1),
    ])
    .areas(frame.area());
    frame.render_widget(Line::from(vec![Span::from("mortise dev ").bold(), Span::from(view.title.clone())]), title);
    let rows = model.plugins.iter().map(|(name, plugin)| ListItem::new(plugin_row(name, plugin)));
    frame.render_widget(List::new(rows).block(Block::bordered().title("plugins")), top);
    let opened = opened(model, view);
    match opened {
        Some((name, lines)) => text(frame, middle.union(bottom), name, lines, view.scroll),
        None => {
            let [left, right] =
                Layout::horizontal([Constraint::Percentage(45), Constraint::Percentage(55)]).areas(middle);
            objects(frame, left, model, view);
            reconciles(frame, right, model, view);
            match broken {
                Some((name, output)) => {
                    let lines = output.lines().map(|line| Line::from(plain(line))).collect();
                    text(frame, bottom, format!("{name} does not work"), lines, 0);
                }
                None => newest_lines(frame, bottom, model, view),
            }
        }
    }
    frame.render_widget(hint(view), keys);
}

/// The first plugin that does not build or is refused, with why.
fn broken(model: &Model) -> Option<(&str, &str)> {
    model.plugins.iter().find_map(|(name, plugin)| match &plugin.state {
        State::BuildFailed(why) | State::Refused(why) => Some((name.as_str(), why.as_str())),
        State::Building(_) | State::Loading | State::Serves => None,
    })
}

fn opened(model: &Model, view: &View) -> Option<(String, Vec<Line<'static>>)> {
    match view.opened {
        Opened::Nothing => None,
        Opened::Reconcile => {
            let found = view.reconciles(model).nth(view.reconcile)?;
            Some(("reconcile".to_owned(), details::reconcile(found)))
        }
        Opened::Diff => {
            let object = view.selected(model)?;
            Some((format!("last outcome of {object}"), details::diff(model, &object)))
        }
        Opened::Logs => Some(("log".to_owned(), details::logs(model, |line| view.passes(line)))),
    }
}

fn plugin_row(name: &str, plugin: &Plugin) -> Line<'static> {
    let (word, color) = match &plugin.state {
        State::Building(_) => ("building", Color::Yellow),
        State::Loading => ("loading", Color::Yellow),
        State::BuildFailed(_) if plugin.serves => ("does not build; the version before serves", Color::Red),
        State::BuildFailed(_) => ("does not build", Color::Red),
        State::Refused(_) if plugin.serves => ("refused; the version before serves", Color::Red),
        State::Refused(_) => ("refused", Color::Red),
        State::Serves => ("serves", Color::Green),
    };
    let mut spans = vec![Span::from(format!("{name:<20} ")).bold(), Span::styled(word, Style::new().fg(color))];
    if let State::Building(Some(status)) = &plugin.state {
        spans.push(Span::from(format!("  {}", plain(status))).dim());
    }
    if let Some(swap) = plugin.swapped {
        let [total, build] = [swap.total_ms, swap.build_ms].map(crate::plain::seconds);
        spans.push(Span::from(format!("  {total:.2} s (cargo {build:.2} s, mortise {} ms)", swap.load_ms)).dim());
    }
    if plugin.reloads > 0 {
        spans.push(Span::from(format!("  reload {}", plugin.reloads)).dim());
    }
    Line::from(spans)
}

fn objects(frame: &mut Frame<'_>, area: Rect, model: &Model, view: &View) {
    let rows = view.rows(model);
    let items = rows.iter().map(|row| {
        let color = match row.state.as_str() {
            "Ready" | "Running" | "Active" | "Succeeded" => Color::Green,
            "Failed" | "Stalled" => Color::Red,
            _ => Color::Yellow,
        };
        let name = format!("{}{} {} ", "  ".repeat(row.depth), row.object.kind.kind, row.object.name);
        ListItem::new(Line::from(vec![Span::from(name), Span::styled(row.state.clone(), Style::new().fg(color))]))
    });
    let items: Vec<ListItem<'_>> = items.collect();
    list(frame, area, "objects", items, view.focus == Focus::Objects, view.object);
}

fn reconciles(frame: &mut Frame<'_>, area: Rect, model: &Model, view: &View) {
    let items = view.reconciles(model).map(|reconcile| {
        let end = match (&reconcile.fault, reconcile.ended) {
            (Some(_), _) => Span::from("fault").red(),
            (None, None) => Span::from("runs").yellow(),
            (None, Some((result, elapsed_ms))) => Span::from(format!("{result:?} {elapsed_ms} ms")),
        };
        let why = reconcile.woken_by.as_deref().map(|by| format!("  by {by}")).unwrap_or_default();
        let what = format!(
            "{:8.3} {}  r{} w{}  ",
            crate::plain::seconds(reconcile.at_ms),
            reconcile.object.name,
            reconcile.reads.len(),
            reconcile.writes.len()
        );
        ListItem::new(Line::from(vec![Span::from(what), end, Span::from(why).dim()]))
    });
    let items: Vec<ListItem<'_>> = items.collect();
    list(frame, area, "reconciles", items, view.focus == Focus::Reconciles, view.reconcile);
}

fn list(frame: &mut Frame<'_>, area: Rect, title: &str, items: Vec<ListItem<'_>>, has_focus: bool, at: usize) {
    let border = if has_focus { Style::new().fg(Color::Cyan) } else { Style::new() };
    let count = items.len();
    let selected = Style::new().reversed();
    let list = List::new(items)
        .block(Block::bordered().border_style(border).title(title.to_owned()))
        .highlight_style(if has_focus { selected } else { Style::new() });
    let mut state = ListState::default().with_selected((count > 0).then(|| at.min(count.saturating_sub(1))));
    frame.render_stateful_widget(list, area, &mut state);
}

fn newest_lines(frame: &mut Frame<'_>, area: Rect, model: &Model, view: &View) {
    let lines = details::logs(model, |line| view.passes(line));
    let rows = usize::from(area.height.saturating_sub(2));
    let newest = lines.into_iter().rev().take(rows).collect::<Vec<_>>().into_iter().rev().collect();
    text(frame, area, "log".to_owned(), newest, 0);
}

fn text(frame: &mut Frame<'_>, area: Rect, title: String, lines: Vec<Line<'static>>, scroll: u16) {
    let paragraph = Paragraph::new(lines).block(Block::bordered().title(title)).wrap(Wrap { trim: false });
    frame.render_widget(paragraph.scroll((scroll, 0)), area);
}

/// A line without the colours that cargo wrote for a terminal.
fn plain(line: &str) -> String {
    let mut text = String::with_capacity(line.len());
    let mut escape = false;
    for letter in line.chars() {
        match letter {
            '\u{1b}' => escape = true,
            'm' if escape => escape = false,
            _ if escape => {}
            letter => text.push(letter),
        }
    }
    text
}

fn hint(view: &View) -> Line<'static> {
    if view.types_filter {
        return Line::from(format!("/{}", view.filter)).yellow();
    }
    let filter = if view.filter.is_empty() { String::new() } else { format!("  [filter {}]", view.filter) };
    let keys = "enter opens a reconcile  r reconcile now  d diff  l log  / filter  tab other list  esc back  q quit";
    Line::from(format!("{keys}{filter}")).dim()
}

#[cfg(test)]
mod tests {
    use expect_test::{Expect, expect};
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;

    use super::*;
    use crate::event::Event;
    use crate::screen::tests::session;

    #[track_caller]
    fn check(model: &Model, view: &View, expected: &Expect) {
        let mut terminal = Terminal::new(TestBackend::new(110, 24)).unwrap();
        terminal.draw(|frame| draw(frame, model, view)).unwrap();
        let buffer = terminal.backend().buffer();
        let rows = buffer.content().chunks(110);
        let text: Vec<String> = rows
            .map(|row| row.iter().map(ratatui::buffer::Cell::symbol).collect::<String>().trim_end().to_owned())
            .collect();
        expected.assert_eq(&text.join("\n"));
    }

    #[test]
    fn the_screen_shows_plugins_objects_reconciles_and_the_log() {
        check(
            &session(),
            &View { title: "https://127.0.0.1:6443".to_owned(), ..View::default() },
            &expect![[r#"
            mortise dev https://127.0.0.1:6443
            ┌plugins─────────────────────────────────────────────────────────────────────────────────────────────────────┐
            │podset               serves  0.00 s (cargo 0.90 s, mortise 0 ms)  reload 1                                  │
            └────────────────────────────────────────────────────────────────────────────────────────────────────────────┘
            ┌objects─────────────────────────────────────────┐┌reconciles────────────────────────────────────────────────┐
            │PodSet default/web Ready                        ││   1.000 default/web  r1 w1  Success 4 ms  by Pod default/│
            │  Pod default/web-x7k2p Running                 ││                                                          │
            │                                                ││                                                          │
            │                                                ││                                                          │
            │                                                ││                                                          │
            │                                                ││                                                          │
            │                                                ││                                                          │
            │                                                ││                                                          │
            │                                                ││                                                          │
            └────────────────────────────────────────────────┘└──────────────────────────────────────────────────────────┘
            ┌log─────────────────────────────────────────────────────────────────────────────────────────────────────────┐
            │   1.000 PodSet default/web: info one Pod runs                                                              │
            │                                                                                                            │
            │                                                                                                            │
            │                                                                                                            │
            │                                                                                                            │
            │                                                                                                            │
            └────────────────────────────────────────────────────────────────────────────────────────────────────────────┘
            enter opens a reconcile  r reconcile now  d diff  l log  / filter  tab other list  esc back  q quit"#]],
        );
    }

    #[test]
    fn a_compiler_error_is_on_the_screen() {
        let mut model = session();
        let output = "\u{1b}[31merror[E0308]\u{1b}[0m: mismatched types\n --> src/lib.rs:7:5".to_owned();
        model.take(2_000, Event::BuildFailed { plugin: "podset".to_owned(), output });
        check(
            &model,
            &View::default(),
            &expect![[r#"
            mortise dev
            ┌plugins─────────────────────────────────────────────────────────────────────────────────────────────────────┐
            │podset               does not build; the version before serves  0.00 s (cargo 0.90 s, mortise 0 ms)  reload │
            └────────────────────────────────────────────────────────────────────────────────────────────────────────────┘
            ┌objects─────────────────────────────────────────┐┌reconciles────────────────────────────────────────────────┐
            │PodSet default/web Ready                        ││   1.000 default/web  r1 w1  Success 4 ms  by Pod default/│
            │  Pod default/web-x7k2p Running                 ││                                                          │
            │                                                ││                                                          │
            │                                                ││                                                          │
            │                                                ││                                                          │
            └────────────────────────────────────────────────┘└──────────────────────────────────────────────────────────┘
            ┌podset does not work────────────────────────────────────────────────────────────────────────────────────────┐
            │error[E0308]: mismatched types                                                                              │
            │ --> src/lib.rs:7:5                                                                                         │
            │                                                                                                            │
            │                                                                                                            │
            │                                                                                                            │
            │                                                                                                            │
            │                                                                                                            │
            │                                                                                                            │
            │                                                                                                            │
            │                                                                                                            │
            └────────────────────────────────────────────────────────────────────────────────────────────────────────────┘
            enter opens a reconcile  r reconcile now  d diff  l log  / filter  tab other list  esc back  q quit"#]],
        );
    }

    #[test]
    fn a_reconcile_opens() {
        check(
            &session(),
            &View { opened: Opened::Reconcile, ..View::default() },
            &expect![[r#"
            mortise dev
            ┌plugins─────────────────────────────────────────────────────────────────────────────────────────────────────┐
            │podset               serves  0.00 s (cargo 0.90 s, mortise 0 ms)  reload 1                                  │
            └────────────────────────────────────────────────────────────────────────────────────────────────────────────┘
            ┌reconcile───────────────────────────────────────────────────────────────────────────────────────────────────┐
            │PodSet default/web                                                                                          │
            │woken by                                                                                                    │
            │  Pod default/web-x7k2p                                                                                     │
            │read                                                                                                        │
            │  its own v1/Pod                                                                                            │
            │logged                                                                                                      │
            │  info one Pod runs                                                                                         │
            │wrote                                                                                                       │
            │  apply Pod default/web-x7k2p                                                                               │
            │ended                                                                                                       │
            │  Success after 4 ms, of which 87 us in the plugin                                                          │
            │                                                                                                            │
            │                                                                                                            │
            │                                                                                                            │
            │                                                                                                            │
            │                                                                                                            │
            │                                                                                                            │
            └────────────────────────────────────────────────────────────────────────────────────────────────────────────┘
            enter opens a reconcile  r reconcile now  d diff  l log  / filter  tab other list  esc back  q quit"#]],
        );
    }

    #[test]
    fn the_diff_of_an_outcome_has_what_changed() {
        check(
            &session(),
            &View { opened: Opened::Diff, ..View::default() },
            &expect![[r#"
            mortise dev
            ┌plugins─────────────────────────────────────────────────────────────────────────────────────────────────────┐
            │podset               serves  0.00 s (cargo 0.90 s, mortise 0 ms)  reload 1                                  │
            └────────────────────────────────────────────────────────────────────────────────────────────────────────────┘
            ┌last outcome of PodSet default/web──────────────────────────────────────────────────────────────────────────┐
            │apply Pod default/web-x7k2p                                                                                 │
            │    metadata:                                                                                               │
            │      labels:                                                                                               │
            │  -     app: old                                                                                            │
            │  +     app: new                                                                                            │
            │                                                                                                            │
            │                                                                                                            │
            │                                                                                                            │
            │                                                                                                            │
            │                                                                                                            │
            │                                                                                                            │
            │                                                                                                            │
            │                                                                                                            │
            │                                                                                                            │
            │                                                                                                            │
            │                                                                                                            │
            │                                                                                                            │
            └────────────────────────────────────────────────────────────────────────────────────────────────────────────┘
            enter opens a reconcile  r reconcile now  d diff  l log  / filter  tab other list  esc back  q quit"#]],
        );
    }
}
