//! `mortise dev`: a host in this process, plugins that are built again at every save, and what happens on a screen or as
//! lines. `session.rs` starts the parts and is the only place that knows all of them; `model.rs` is what they tell.
//!
//! It must not know how a host decides anything: it sees events and effects as they pass.

mod backtrace;
mod build;
mod clock;
mod components;
mod dry_run;
mod event;
mod model;
mod new;
mod observer;
mod plain;
mod project;
mod samples;
mod screen;
mod session;
mod sources;
mod terminal;

pub use components::{Component, components};
pub use dry_run::{Copied, run as dry_run};
pub use new::{NewPlugin, create};
pub use session::{Options, run};
