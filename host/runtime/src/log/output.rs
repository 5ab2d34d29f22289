//! Where lines go: into a bounded queue, from which a thread of its own writes them. So nothing that logs waits for a
//! terminal, a pipe or a disk, and none of them ends the host: what cannot be written is dropped and counted. Records come in
//! from any thread; lines go out in their order.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::io::{self, Write};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use mortise_core::heap::allocation;

use super::budget::{Budget, Dropped, MINUTE_MS};
use super::record::one_line;

/// Bytes of lines that wait: what all may log in a minute, twice. A pipe whose reader is slow for seconds loses nothing.
const MAX_WAITING: usize = 4 << 20;
/// What a line has in the queue beside its text, which may be short: its place, in a queue that is half empty.
const PLACE_BYTES: usize = 2 * size_of::<Vec<u8>>();

/// What was dropped since the last report.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub(super) struct Report {
    /// Over the budget, by share.
    pub over: Vec<(Arc<str>, Dropped)>,
    /// That could not be written.
    pub unwritten: Dropped,
}

/// The queue. Clones share it.
#[derive(Clone, Debug)]
pub(super) struct Output {
    queue: Arc<Mutex<Queue>>,
    /// A line waits, or the thread has nothing left to write.
    changed: Arc<Condvar>,
    began: Instant,
}

#[derive(Debug, Default)]
struct Queue {
    waiting: VecDeque<Vec<u8>>,
    bytes: usize,
    is_writing: bool,
    budget: Budget,
    unwritten: Dropped,
    /// How many of them were reported, and when.
    reported: Dropped,
    reported_ms: u64,
}

thread_local! {
    /// The plugin or controller that the lines of this thread are about.
    static ABOUT: RefCell<Option<Arc<str>>> = const { RefCell::new(None) };
}

/// Logs lines about a plugin, which its budget pays, or one of its controllers.
pub(super) fn about<R>(plugin: &Arc<str>, log: impl FnOnce() -> R) -> R {
    let before = ABOUT.replace(Some(Arc::clone(plugin)));
    let logged = log();
    ABOUT.set(before);
    logged
}

impl Output {
    /// Starts the thread that writes to `target`. `report` logs what was dropped, after each minute in which something was.
    pub(super) fn start(
        target: impl Write + Send + 'static,
        report: impl Fn(Report) + Send + 'static,
    ) -> io::Result<Self> {
        let output = Self { queue: Arc::default(), changed: Arc::default(), began: Instant::now() };
        let thread = output.clone();
        thread::Builder::new().name("mortise-log".to_owned()).spawn(move || thread.run(target, report))?;
        Ok(output)
    }

    fn run(&self, mut target: impl Write, report: impl Fn(Report)) {
        let mut is_torn = false;
        loop {
            let (lines, due) = self.next();
            if let Some(due) = due {
                // Its lines join the queue.
                report(due);
            }
            for line in lines {
                // What follows a line that was written in part begins anew.
                let ends = if is_torn { target.write_all(b"\n") } else { Ok(()) };
                is_torn = ends.and_then(|()| target.write_all(&line)).is_err();
                if is_torn {
                    self.lock().unwritten.add(1, line.len() as u64);
                }
            }
        }
    }

    /// Waits for lines, or until a report is due.
    fn next(&self) -> (VecDeque<Vec<u8>>, Option<Report>) {
        let mut queue = self.lock();
        loop {
            let now_ms = self.now_ms();
            let due_ms = queue.due_ms();
            if !queue.waiting.is_empty() || due_ms.is_some_and(|due_ms| due_ms <= now_ms) {
                queue.is_writing = true;
                queue.bytes = 0;
                return (std::mem::take(&mut queue.waiting), queue.report(now_ms));
            }
            queue.is_writing = false;
            self.changed.notify_all();
            let wait = due_ms.map_or(Duration::MAX, |due_ms| Duration::from_millis(due_ms - now_ms));
            queue = match wait {
                Duration::MAX => self.changed.wait(queue).unwrap_or_else(PoisonError::into_inner),
                wait => self.changed.wait_timeout(queue, wait).unwrap_or_else(PoisonError::into_inner).0,
            };
        }
    }

    /// Waits until all lines are written, for this long at most.
    pub(super) fn flush(&self, most: Duration) {
        let is_busy = |queue: &mut Queue| queue.is_writing || !queue.waiting.is_empty();
        drop(self.changed.wait_timeout_while(self.lock(), most, is_busy));
    }

    /// What was dropped since the start: over the budget, by share, and what could not be written.
    pub(super) fn dropped(&self) -> (Vec<(Arc<str>, Dropped)>, Dropped) {
        let queue = self.lock();
        (queue.budget.dropped(), queue.unwritten)
    }

    fn now_ms(&self) -> u64 {
        u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    fn lock(&self) -> MutexGuard<'_, Queue> {
        // Each change leaves a queue that is whole, so a panic under the lock does too.
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Queue {
    fn due_ms(&self) -> Option<u64> {
        let unwritten_ms = (self.unwritten != self.reported).then_some(self.reported_ms + MINUTE_MS);
        self.budget.due_ms().into_iter().chain(unwritten_ms).min()
    }

    fn report(&mut self, now_ms: u64) -> Option<Report> {
        self.due_ms().filter(|due_ms| *due_ms <= now_ms)?;
        let (before, now) = (std::mem::replace(&mut self.reported, self.unwritten), self.unwritten);
        self.reported_ms = now_ms;
        let unwritten = Dropped { lines: now.lines - before.lines, bytes: now.bytes - before.bytes };
        Some(Report { over: self.budget.report(now_ms), unwritten })
    }
}

/// tracing writes a record with one call, and ends it with a line break. It never fails: tracing would print the failure, to
/// the same place.
impl Write for &Output {
    fn write(&mut self, record: &[u8]) -> io::Result<usize> {
        let line = one_line(record);
        let mut queue = self.lock();
        let (now_ms, bytes) = (self.now_ms(), line.len());
        let waiting = queue.bytes + allocation(bytes) + PLACE_BYTES;
        if !ABOUT.with_borrow(|about| queue.budget.spend(now_ms, about.as_ref(), bytes as u64)) {
            // The thread may have nothing to write, and waits for the report.
            self.changed.notify_all();
        } else if waiting > MAX_WAITING {
            queue.unwritten.add(1, bytes as u64);
        } else {
            queue.bytes = waiting;
            queue.waiting.push_back(line.into_owned());
            self.changed.notify_all();
        }
        Ok(record.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::fs::OpenOptions;
    use std::sync::mpsc;

    use super::*;
    use crate::allocations::counted;
    use crate::testing::check_counted;

    const DEADLINE: Duration = Duration::from_secs(30);

    fn output(target: impl Write + Send + 'static) -> Output {
        Output::start(target, |_| {}).unwrap()
    }

    fn log(output: &Output, lines: u64, line: &str) {
        let record = format!("{line}\n");
        (0..lines).for_each(|_| (&mut &*output).write_all(record.as_bytes()).unwrap());
    }

    fn unwritten(output: &Output) -> u64 {
        output.flush(DEADLINE);
        output.dropped().1.lines
    }

    #[test]
    fn f32_a_full_disk_or_a_closed_pipe_takes_lines_away_and_ends_nothing() {
        let full = output(OpenOptions::new().write(true).open("/dev/full").unwrap());
        log(&full, 3, "a line");
        assert_eq!(unwritten(&full), 3);

        let (reader, writer) = io::pipe().unwrap();
        let closed = output(writer);
        drop(reader);
        log(&closed, 5, "a line");
        assert_eq!(unwritten(&closed), 5);
    }

    /// A queue of short lines had twenty times the bytes that were counted.
    #[test]
    fn f32_lines_that_wait_have_the_bytes_that_are_counted_however_short_they_are() {
        for bytes in [1, 80, 2_100] {
            let line = "x".repeat(bytes);
            let (count, output) = counted(|| {
                // Nothing writes them.
                let output = Output { queue: Arc::default(), changed: Arc::default(), began: Instant::now() };
                for plugin in 0..60_000 {
                    about(&plugin.to_string().into(), || log(&output, 1, &line));
                }
                output.lock().budget = Budget::default();
                output
            });
            assert!(output.lock().unwritten.lines > 0, "the queue is full");
            check_counted(&format!("log: lines of {bytes} bytes"), output.lock().bytes, &count);
        }
    }

    #[test]
    fn f32_a_pipe_that_nobody_reads_blocks_nothing_that_logs_and_its_lines_come_when_it_is_read() {
        let (mut reader, writer) = io::pipe().unwrap();
        let blocked = output(writer);
        let line = "x".repeat(1_023);
        for plugin in 0..10_000 {
            about(&plugin.to_string().into(), || log(&blocked, 1, &line));
        }
        let lost = blocked.dropped();
        assert!(lost.1.lines > 0, "the queue has a bound: {lost:?}");
        let waiting = blocked.lock().bytes;
        assert!(waiting <= MAX_WAITING, "{waiting}");
        // Reads on until the writer's end is closed with the process.
        let (sender, came) = mpsc::channel();
        thread::spawn(move || io::copy(&mut reader, &mut Counted(sender)));
        blocked.flush(DEADLINE);
        let came: usize = came.try_iter().sum();
        assert_eq!(came / 1_024 + usize::try_from(lost.1.lines).unwrap(), 10_000);
    }

    struct Counted(mpsc::Sender<usize>);

    impl Write for Counted {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.send(bytes.len()).map_err(io::Error::other)?;
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    /// Takes some bytes, then none for a while, as a disk that is full and is emptied.
    struct Filling(Arc<Mutex<(Vec<u8>, usize)>>);

    impl Write for Filling {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let (written, room) = &mut *self.0.lock().unwrap();
            let taken = bytes.len().min(*room);
            if taken == 0 {
                return Err(io::ErrorKind::StorageFull.into());
            }
            *room -= taken;
            written.extend_from_slice(&bytes[..taken]);
            Ok(taken)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn after_a_line_that_was_written_in_part_the_next_one_begins_anew() {
        let disk = Arc::new(Mutex::new((Vec::new(), 10)));
        let output = output(Filling(Arc::clone(&disk)));
        log(&output, 2, "a line");
        assert_eq!(unwritten(&output), 1);
        disk.lock().unwrap().1 = 100;
        log(&output, 1, "the next");
        output.flush(DEADLINE);
        assert_eq!(String::from_utf8_lossy(&disk.lock().unwrap().0), "a line\na l\nthe next\n");
    }

    #[test]
    fn q4_the_lines_of_a_plugin_are_paid_by_it_and_the_hosts_own_are_not() {
        let output = output(io::sink());
        let line = "x".repeat(1_023);
        about(&"loud/Foo".into(), || log(&output, 300, &line));
        log(&output, 300, &line);
        output.flush(DEADLINE);
        let (over, unwritten) = output.dropped();
        assert_eq!((over.len(), &*over[0].0, over[0].1.lines, unwritten.lines), (1, "loud", 44, 0));
    }

    #[test]
    fn what_was_dropped_is_reported_after_its_minute() {
        let mut queue = Queue::default();
        queue.unwritten.add(2, 20);
        assert!(!queue.budget.spend(0, Some(&"loud".into()), 1 << 30));
        assert_eq!((queue.due_ms(), queue.report(MINUTE_MS - 1)), (Some(MINUTE_MS), None));
        let report = queue.report(MINUTE_MS).unwrap();
        assert_eq!((report.over.len(), report.unwritten), (1, Dropped { lines: 2, bytes: 20 }));
        assert_eq!((queue.due_ms(), queue.report(5 * MINUTE_MS)), (None, None));
    }
}
