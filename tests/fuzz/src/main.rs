//! The fuzzer: libFuzzer's own main function, which calls the target that the environment names. It must not know what a
//! target does.
#![no_main]

use std::env;
use std::sync::LazyLock;

use mortise_fuzz::{Target, target};

/// The environment variable with the name of the target: libFuzzer reads the arguments.
const VARIABLE: &str = "MORTISE_FUZZ_TARGET";

static TARGET: LazyLock<Target> = LazyLock::new(|| {
    let name = env::var(VARIABLE).unwrap_or_default();
    target(&name).unwrap_or_else(|| panic!("{VARIABLE} is {name:?}, which is no target; use `cargo xtask fuzz`"))
});

libfuzzer_sys::fuzz_target!(|input: &[u8]| (TARGET.run)(input));
