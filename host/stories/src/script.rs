//! Story files: given objects, steps of others' acts, and what must hold after each. YAML comes in, sentences about what does
//! not hold come out, with a transcript. It must not know where files are.
//!
//! `script/file.rs` is a file's form, `script/acts.rs` and `script/holds.rs` have the words of its two lists,
//! `script/run.rs` plays a script once, and `script/runs.rs` several times.

mod acts;
mod file;
mod holds;
mod named;
mod partial;
mod period;
mod run;
mod runs;

pub use self::file::{Other, Script, Step};
pub use self::run::kinds_of;
pub use self::runs::{Checked, check};
