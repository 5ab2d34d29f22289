//! The checkout, and the files that `cargo xtask` has built in it.

use std::path::{Path, PathBuf};

pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("this package is in the checkout").to_owned()
}

/// A file under target/.
pub fn built(path: &str) -> PathBuf {
    let file = root().join("target").join(path);
    assert!(file.exists(), "target/{path} is missing: `cargo xtask test` builds it before it runs the tests");
    file
}
