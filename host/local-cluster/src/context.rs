//! What every part of the API server knows of the request that it works on. It must not know what the request is about.

use std::cell::RefCell;

use jiff::Timestamp;

use crate::halt::Answer;
use crate::user::User;

/// What every verb knows of the request besides its objects.
pub(crate) struct Context<'a> {
    pub(crate) user: User,
    /// The field manager of writes.
    pub(crate) manager: String,
    pub(crate) dry_run: bool,
    /// What webhooks said to earlier tries.
    pub(crate) answers: &'a [Answer],
    pub(crate) now: Timestamp,
    /// `Warning` headers for the client.
    pub(crate) warnings: RefCell<Vec<String>>,
}

impl Context<'_> {
    pub(crate) fn warn(&self, warning: impl Into<String>) {
        let warning = warning.into();
        let mut warnings = self.warnings.borrow_mut();
        if !warnings.contains(&warning) {
            warnings.push(warning);
        }
    }
}

impl<'a> Context<'a> {
    /// The context of a part of the cluster that acts by itself, such as a controller.
    pub(crate) fn system(name: &str, answers: &'a [Answer], now: Timestamp) -> Self {
        let groups = vec!["system:masters".to_owned(), "system:authenticated".to_owned()];
        Self {
            user: User { name: name.to_owned(), groups, ..User::default() },
            manager: name.rsplit(':').next().unwrap_or(name).to_owned(),
            dry_run: false,
            answers,
            now,
            warnings: RefCell::default(),
        }
    }
}
