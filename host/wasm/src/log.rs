//! A guest's log lines, and its text on stdout and stderr. Everything is cut to a bound, and control characters are
//! removed, because it ends up in other people's terminals and log files.

use mortise_core::limits::CallLimits;
use mortise_core::text::LOG;

/// Fields of one line; further ones are dropped.
const MAX_FIELDS: usize = 32;

/// The severity of a log line.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum LogLevel {
    /// Every step.
    Trace,
    /// For the plugin's author.
    Debug,
    /// For an operator.
    Info,
    /// Something is off.
    Warn,
    /// Something failed.
    Error,
}

/// One line that a guest logged.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LogLine {
    /// Lines from stdout are Info, from stderr Warn.
    pub level: LogLevel,
    /// The text, without control characters.
    pub message: String,
    /// Names and values.
    pub fields: Vec<(String, String)>,
}

/// The bounded log of one call.
#[derive(Debug)]
pub(crate) struct Log {
    lines: Vec<LogLine>,
    dropped: u64,
    lines_left: u32,
    bytes_left: u64,
}

impl Log {
    pub(crate) fn new(limits: &CallLimits) -> Self {
        Self { lines: Vec::new(), dropped: 0, lines_left: limits.log_lines, bytes_left: limits.log_bytes }
    }

    /// Keeps a line, or counts it as dropped when the log is full.
    pub(crate) fn add(&mut self, level: LogLevel, message: &str, fields: &[(String, String)]) {
        let shown = |text: &str| LOG.text(text).into_owned();
        let message = shown(message);
        let fields: Vec<_> = fields.iter().take(MAX_FIELDS).map(|(name, value)| (shown(name), shown(value))).collect();
        let bytes = message.len() + fields.iter().map(|(name, value)| name.len() + value.len()).sum::<usize>();
        match (self.lines_left.checked_sub(1), self.bytes_left.checked_sub(bytes as u64)) {
            (Some(lines), Some(bytes)) => {
                (self.lines_left, self.bytes_left) = (lines, bytes);
                self.lines.push(LogLine { level, message, fields });
            }
            _ => self.dropped += 1,
        }
    }

    /// Adds each line of stdout or stderr.
    pub(crate) fn add_text(&mut self, level: LogLevel, text: &str) {
        for line in text.lines().filter(|line| !line.trim().is_empty()) {
            self.add(level, line, &[]);
        }
    }

    /// The lines, and how many were dropped.
    pub(crate) fn into_parts(self) -> (Vec<LogLine>, u64) {
        (self.lines, self.dropped)
    }
}

/// The end of what was written to one stream: errors come last.
#[derive(Debug)]
pub(crate) struct Tail {
    bytes: Vec<u8>,
    capacity: usize,
    cut: bool,
}

impl Tail {
    pub(crate) fn new(capacity: usize) -> Self {
        Self { bytes: Vec::new(), capacity, cut: false }
    }

    /// Appends, and cuts the beginning off at twice the capacity.
    pub(crate) fn write(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(&bytes[bytes.len().saturating_sub(self.capacity)..]);
        if self.bytes.len() > self.capacity.saturating_mul(2) {
            self.trim();
        }
    }

    fn trim(&mut self) {
        let excess = self.bytes.len().saturating_sub(self.capacity);
        if excess > 0 {
            self.bytes.drain(..excess);
            self.cut = true;
        }
    }

    pub(crate) fn text(&mut self) -> String {
        self.trim();
        let text = String::from_utf8_lossy(&self.bytes);
        if self.cut { format!("…{text}") } else { text.into_owned() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_and_its_fields_are_one_line_each_and_cut() {
        let mut log = Log::new(&CallLimits::default());
        let flood = "ü".repeat(8 << 10);
        log.add(LogLevel::Info, "ok\n2026-11-27T00:00:00Z ERROR forged\u{1b}[2J", &[("a\nb".to_owned(), flood)]);
        let (lines, _) = log.into_parts();
        assert_eq!(lines[0].message, "ok 2026-11-27T00:00:00Z ERROR forged");
        let (name, value) = &lines[0].fields[0];
        assert_eq!((&**name, value.len()), ("a b", (8 << 10) - 1));
        assert!(value.ends_with("ü…"));
    }

    #[test]
    fn a_log_flood_is_cut_by_lines_and_by_bytes_and_counted() {
        let limits = CallLimits { log_lines: 2, log_bytes: 10, ..CallLimits::default() };
        let mut log = Log::new(&limits);
        for message in ["four", "12345678", "fits", "no"] {
            log.add(LogLevel::Info, message, &[]);
        }
        let (lines, dropped) = log.into_parts();
        assert_eq!(lines.iter().map(|line| &*line.message).collect::<Vec<_>>(), ["four", "fits"]);
        assert_eq!(dropped, 2);
    }

    #[test]
    fn a_tail_keeps_the_end_of_what_was_written() {
        let mut tail = Tail::new(4);
        for chunk in ["abc", "def", "0123456789", "gh"] {
            tail.write(chunk.as_bytes());
        }
        assert_eq!(tail.text(), "…89gh");
    }
}
