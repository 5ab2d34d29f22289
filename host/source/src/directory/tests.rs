//! The events of a real directory.

use std::fs;
use std::sync::mpsc::{Receiver, channel};
use std::thread::JoinHandle;

use mortise_core::component::Unreadable;

use super::*;

/// Bound of every wait; each takes well below a second.
const DEADLINE: Duration = Duration::from_secs(20);

struct Watched {
    directory: tempfile::TempDir,
    events: Receiver<SourceEvent>,
    stop: Option<Stop>,
    thread: Option<JoinHandle<()>>,
}

fn wasm(content: &str) -> Vec<u8> {
    let mut bytes = b"\0asm\x0d\0\x01\0\0".to_vec();
    bytes.push(u8::try_from(content.len()).unwrap());
    bytes.extend_from_slice(content.as_bytes());
    bytes
}

impl Watched {
    fn open(prepare: impl FnOnce(&Path)) -> Self {
        let directory = tempfile::tempdir().unwrap();
        prepare(directory.path());
        let (opened, stop) = Directory::open(directory.path()).unwrap();
        let (sender, events) = channel();
        let thread = std::thread::spawn(move || opened.run(|event| drop(sender.send(event))));
        Self { directory, events, stop: Some(stop), thread: Some(thread) }
    }

    fn path(&self, file: &str) -> PathBuf {
        self.directory.path().join(file)
    }

    fn next(&self) -> String {
        words(self.events.recv_timeout(DEADLINE).unwrap())
    }
}

fn words(event: SourceEvent) -> String {
    match event {
        SourceEvent::Found { offer, origin: Origin::File(path) } => {
            let bytes = read(&path, &offer.digest).unwrap().expect("the file is as it was offered");
            format!("found {} {} {}", offer.name, String::from_utf8_lossy(&bytes[10..]), offer.config)
        }
        SourceEvent::Found { origin, .. } => panic!("{origin:?} is no file"),
        SourceEvent::Unreadable(Unreadable { name, refusal, .. }) => format!("unreadable {name} {}", refusal.reason),
        SourceEvent::Gone(name) => format!("gone {name}"),
        SourceEvent::Listed => "listed".to_owned(),
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        self.stop.take();
        self.thread.take().unwrap().join().unwrap();
    }
}

#[test]
fn existing_files_are_reported_before_listed() {
    let watched = Watched::open(|path| {
        fs::write(path.join("a.wasm"), wasm("one")).unwrap();
        fs::write(path.join("a.yaml"), "x: 1").unwrap();
        fs::write(path.join("Bad_Name.wasm"), wasm("two")).unwrap();
        fs::write(path.join(".hidden.wasm"), wasm("three")).unwrap();
        fs::write(path.join("notes.txt"), "nothing").unwrap();
        fs::create_dir(path.join("folder.wasm")).unwrap();
    });
    assert_eq!(watched.next(), "unreadable Bad_Name InvalidName");
    assert_eq!(watched.next(), r#"found a one {"x":1}"#);
    assert_eq!(watched.next(), "listed");
}

#[test]
fn changes_renames_configuration_and_removal_are_reported() {
    let watched = Watched::open(|_| {});
    assert_eq!(watched.next(), "listed");
    fs::write(watched.path("a.wasm"), wasm("one")).unwrap();
    assert_eq!(watched.next(), "found a one {}");
    // An atomic save: a rename over the file.
    fs::write(watched.path("a.wasm.tmp"), wasm("two")).unwrap();
    fs::rename(watched.path("a.wasm.tmp"), watched.path("a.wasm")).unwrap();
    assert_eq!(watched.next(), "found a two {}");
    fs::write(watched.path("a.yaml"), "x: 1").unwrap();
    assert_eq!(watched.next(), r#"found a two {"x":1}"#);
    fs::write(watched.path("a.yaml"), "- 1").unwrap();
    assert_eq!(watched.next(), "unreadable a InvalidConfig");
    fs::remove_file(watched.path("a.yaml")).unwrap();
    assert_eq!(watched.next(), "found a two {}");
    fs::rename(watched.path("a.wasm"), watched.path("b.wasm")).unwrap();
    assert_eq!(watched.next(), "gone a");
    assert_eq!(watched.next(), "found b two {}");
    fs::remove_file(watched.path("b.wasm")).unwrap();
    assert_eq!(watched.next(), "gone b");
}

#[test]
fn a_file_that_is_being_written_is_offered_once_and_complete() {
    let watched = Watched::open(|_| {});
    assert_eq!(watched.next(), "listed");
    let whole = wasm("a component of some length");
    // The first half is unchanged for longer than SETTLE, so it is read and found to be incomplete.
    fs::write(watched.path("a.wasm"), &whole[..12]).unwrap();
    assert!(watched.events.recv_timeout(Duration::from_millis(600)).is_err(), "half a file is not offered");
    let mut file = fs::OpenOptions::new().append(true).open(watched.path("a.wasm")).unwrap();
    std::io::Write::write_all(&mut file, &whole[12..]).unwrap();
    drop(file);
    assert_eq!(watched.next(), "found a a component of some length {}");
}

#[test]
fn an_unreadable_directory_does_not_count_as_listed() {
    let outside = tempfile::tempdir().unwrap();
    let (here, away) = (outside.path().join("plugins"), outside.path().join("away"));
    fs::create_dir(&here).unwrap();
    fs::write(here.join("a.wasm"), wasm("one")).unwrap();
    let (opened, stop) = Directory::open(&here).unwrap();
    // As with a mount or rights that come late.
    fs::rename(&here, &away).unwrap();
    let (sender, events) = channel();
    let thread = std::thread::spawn(move || opened.run(|event| drop(sender.send(event))));
    let early = events.recv_timeout(Duration::from_millis(500));
    assert!(early.is_err(), "an event of an unreadable directory: {early:?}");
    fs::rename(&away, &here).unwrap();
    // Triggers a scan; the next would only come after SCAN_INTERVAL.
    fs::write(here.join("notes.txt"), "nothing").unwrap();
    assert_eq!(words(events.recv_timeout(DEADLINE).unwrap()), "found a one {}");
    assert_eq!(words(events.recv_timeout(DEADLINE).unwrap()), "listed");
    drop(stop);
    thread.join().unwrap();
}

#[test]
fn a_file_that_keeps_changing_does_not_delay_listed_for_ever_and_is_read_once_stable() {
    let writing = Arc::new(AtomicBool::new(true));
    let mut writer = None;
    let watched = Watched::open(|path| {
        fs::write(path.join("calm.wasm"), wasm("one")).unwrap();
        let (busy, writing) = (path.join("busy.wasm"), Arc::clone(&writing));
        fs::write(&busy, wasm("")).unwrap();
        writer = Some(std::thread::spawn(move || {
            // Another size each time, and never unchanged for as long as SETTLE.
            for length in (0..100).cycle().take_while(|_| writing.load(Ordering::Acquire)) {
                fs::write(&busy, wasm(&"x".repeat(length))).unwrap();
                std::thread::sleep(Duration::from_millis(10));
            }
            fs::write(&busy, wasm("two")).unwrap();
        }));
    });
    assert_eq!(watched.next(), "found calm one {}");
    assert_eq!(watched.next(), "unreadable busy StillBeingWritten");
    assert_eq!(watched.next(), "listed");
    writing.store(false, Ordering::Release);
    writer.unwrap().join().unwrap();
    assert_eq!(watched.next(), "found busy two {}");
}

/// A pipe, a device or a folder instead of a file, and huge files.
#[test]
#[cfg(unix)]
fn irregular_and_huge_files_are_refused_and_the_others_are_served() {
    let sparse = |path: &Path, bytes: u64| File::create(path).unwrap().set_len(bytes).unwrap();
    let watched = Watched::open(|path| {
        for name in ["device", "folder", "large-config", "pipe", "whole"] {
            fs::write(path.join(format!("{name}.wasm")), wasm("one")).unwrap();
        }
        std::os::unix::fs::symlink("/dev/zero", path.join("device.yaml")).unwrap();
        fs::create_dir(path.join("folder.yaml")).unwrap();
        sparse(&path.join("large.wasm"), 1 << 34);
        sparse(&path.join("large-config.yaml"), 1 << 34);
        pipe(&path.join("pipe.yaml"));
        // A pipe is ignored, as is a folder of that name.
        pipe(&path.join("piped.wasm"));
    });
    for expected in [
        "unreadable device UnreadableFile",
        "unreadable folder UnreadableFile",
        "unreadable large ComponentTooLarge",
        "unreadable large-config InvalidConfig",
        "unreadable pipe UnreadableFile",
        "found whole one {}",
        "listed",
    ] {
        assert_eq!(watched.next(), expected);
    }
    fs::remove_file(watched.path("pipe.yaml")).unwrap();
    fs::write(watched.path("pipe.yaml"), "x: 1").unwrap();
    assert_eq!(watched.next(), r#"found pipe one {"x":1}"#);
}

/// The standard library cannot make one.
#[cfg(unix)]
fn pipe(path: &Path) {
    let made = std::process::Command::new("mkfifo").arg(path).status().unwrap();
    assert!(made.success(), "mkfifo {}: {made}", path.display());
}

#[test]
fn reading_a_growing_file_stops_at_the_limit() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("a.wasm");
    fs::write(&path, [7; 10]).unwrap();
    assert_eq!(read_bounded(&path, 10).unwrap(), Some(vec![7; 10]));
    assert_eq!(read_bounded(&path, 9).unwrap(), None);
    // Its reported size is 0.
    #[cfg(target_os = "linux")]
    assert_eq!(read_bounded(Path::new("/proc/self/status"), 9).unwrap(), None);
}

#[test]
fn a_component_that_a_file_no_longer_holds_is_not_returned() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("a.wasm");
    fs::write(&path, wasm("one")).unwrap();
    let digest = digest::of(&wasm("one"));
    assert_eq!(read(&path, &digest).unwrap(), Some(wasm("one")));
    fs::write(&path, wasm("two")).unwrap();
    assert_eq!(read(&path, &digest).unwrap(), None);
    fs::remove_file(&path).unwrap();
    assert_eq!(read(&path, &digest).unwrap(), None);
    fs::create_dir(&path).unwrap();
    assert!(read(&path, &digest).is_err(), "an unreadable file is an error, not a missing one");
}

#[test]
fn the_error_for_a_missing_directory_names_it() {
    let error = Directory::open(Path::new("/nonexistent/plugins")).unwrap_err().to_string();
    assert!(error.contains("/nonexistent/plugins") && error.contains("--plugin-dir"), "{error}");
}
