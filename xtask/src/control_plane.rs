//! Builds the control plane's binaries and shows the progress.

use std::time::Duration;

use anyhow::{Context, Result};
use indicatif::{ProgressBar, ProgressStyle};
use mortise_control_plane::{Binaries, Progress, print_progress};

use crate::terminal;

pub(crate) fn binaries() -> Result<Binaries> {
    let built = if terminal::can_animate() { with_spinner() } else { Binaries::ensure(&mut print_progress()) };
    built.context("build the control plane")
}

fn with_spinner() -> Result<Binaries> {
    let style = ProgressStyle::with_template("{spinner} {wide_msg}").context("parse the spinner's template")?;
    let spinner = ProgressBar::new_spinner().with_style(style);
    spinner.enable_steady_tick(Duration::from_millis(100));
    let binaries = Binaries::ensure(&mut |progress| match progress {
        Progress::Built { .. } => spinner.println(progress.to_string()),
        Progress::Waiting { .. } | Progress::Building { .. } => spinner.set_message(progress.to_string()),
    });
    spinner.finish_and_clear();
    binaries
}
