//! What the engine has let go and whose memory takes long to be freed: a hundred thousand objects take some tens of
//! milliseconds. It must not know what it is.

use std::fmt::{self, Debug, Formatter};

/// Something large that nobody needs any more. Who receives it frees it where nothing waits for that.
pub struct Garbage(Box<dyn Send>);

impl Garbage {
    pub(crate) fn new(it: impl Send + 'static) -> Self {
        Self(Box::new(it))
    }

    /// Frees its memory, which may take long.
    pub fn free(self) {
        drop(self.0);
    }
}

impl Debug for Garbage {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        formatter.write_str("Garbage")
    }
}
