//! The terminal: draws the screen and reads keys, until a person quits. Input: events. Output: what a person asks for. It must
//! not know what events mean.

use std::time::{Duration, Instant};

use anyhow::Context;
use ratatui::crossterm::event::{self, Event as Input, KeyEventKind};
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::sync::mpsc::error::TryRecvError;

use crate::clock;
use crate::event::Event;
use crate::model::Model;
use crate::screen::{Ask, View, draw};

/// How long a frame stays when nothing happens; keys interrupt it.
const FRAME: Duration = Duration::from_millis(50);

/// Shows events until a person quits or the session ends. `ask` is called for what a person asks.
pub(crate) fn show(
    events: &mut UnboundedReceiver<Event>,
    started: Instant,
    title: String,
    mut ask: impl FnMut(Ask),
) -> anyhow::Result<()> {
    let mut terminal = ratatui::try_init().context("cannot use the terminal; --plain prints lines instead")?;
    let result = (|| {
        let (mut model, mut view) = (Model::default(), View { title, ..View::default() });
        loop {
            loop {
                match events.try_recv() {
                    Ok(event) => model.take(clock::since(started), event),
                    Err(TryRecvError::Empty) => break,
                    Err(TryRecvError::Disconnected) => return Ok(()),
                }
            }
            terminal.draw(|frame| draw(frame, &model, &view)).context("drawing the screen")?;
            if !event::poll(FRAME).context("reading keys")? {
                continue;
            }
            if let Input::Key(key) = event::read().context("reading keys")?
                && key.kind != KeyEventKind::Release
            {
                match view.key(key, &model) {
                    Some(Ask::Quit) => return Ok(()),
                    Some(asked) => ask(asked),
                    None => {}
                }
            }
        }
    })();
    ratatui::restore();
    result
}
