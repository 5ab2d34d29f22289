//! Plans: the writes that are missing between a snapshot and an outcome.
//!
//! [`prepare`] checks an outcome once and names its children; [`diff`] compares the prepared outcome with a snapshot,
//! as often as needed. Both are pure; neither knows queues or retries.

pub use self::actions::{ActionDiff, Memory, Sent, diff as diff_actions, evictions};
pub use self::adoption::Taken;
pub use self::applied::Applied;
pub use self::body::child_key;
pub use self::children::{Diff, Written, compare_beforehand, deletes_of_tracked, diff};
pub use self::found::{Creates, UnknownCreate, UnknownCreates, is_child};
pub use self::parsing::Parsing;
pub use self::prepare::prepare;
pub use self::prepared::{Action, Body, Prepared, PreparedAction, PreparedChild, Reserved};

mod actions;
mod adoption;
mod applied;
mod body;
mod children;
mod exact;
mod existing;
mod fault;
mod found;
mod generated;
mod metadata;
mod name;
mod parsing;
mod prepare;
mod prepared;
mod requests;
mod rollout;

#[cfg(test)]
mod tests;
