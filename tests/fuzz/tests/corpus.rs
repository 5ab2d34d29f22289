//! Every input of the corpus passes its target, whole and cut off. It runs without the fuzzer, so a plain `cargo test` shows an
//! input that fails again.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use mortise_fuzz::TARGETS;

/// Inputs that a target has at least: fewer reach too little of it for a minute to be of use.
const LEAST_INPUTS: usize = 20;
/// The largest input in git, so that the folder stays small.
const MAX_BYTES: usize = 8 << 10;
/// Beginnings of an input that are run too.
const CUTS: usize = 8;

fn inputs(target: &str) -> Vec<(String, Vec<u8>)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus").join(target);
    let entries = fs::read_dir(&folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let paths = entries.map(|entry| entry.expect("the folder can be read").path());
    paths.map(|path| (path.display().to_string(), fs::read(&path).expect("an input can be read"))).collect()
}

#[test]
fn every_input_of_the_corpus_passes_its_target_whole_and_cut_off() {
    for target in TARGETS {
        let inputs = inputs(target.name);
        assert!(inputs.len() >= LEAST_INPUTS, "{} has {} inputs", target.name, inputs.len());
        for (path, input) in inputs {
            assert!(input.len() <= MAX_BYTES, "{path} has {} bytes", input.len());
            println!("{path}");
            for cut in 0..CUTS {
                (target.run)(&input[..input.len() * cut / CUTS]);
            }
            (target.run)(&input);
        }
    }
}

#[test]
fn every_folder_of_the_corpus_is_of_a_target() {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus");
    let names = fs::read_dir(corpus).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    assert_eq!(names.collect::<BTreeSet<_>>(), TARGETS.map(|target| target.name.to_owned()).into());
}
