//! A guest's log lines, and its text on stdout and stderr. Everything is cut to a bound, and control characters are
//! removed, because it ends up in other people's terminals and log files.

use mortise_core::limits::CallLimits;

/// Bytes of a message or a field; the rest is cut.
const MAX_TEXT_BYTES: usize = 8 << 10;
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
        let message = sanitised(message);
        let fields: Vec<_> =
            fields.iter().take(MAX_FIELDS).map(|(name, value)| (sanitised(name), sanitised(value))).collect();
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

/// The text without control characters (terminal escapes, NUL, bidirectional overrides), cut to a bound.
pub(crate) fn sanitised(text: &str) -> String {
    let cut = &text[..text.floor_char_boundary(MAX_TEXT_BYTES)];
    let mut clean = String::with_capacity(cut.len());
    let mut rest = cut;
    while let Some(at) = rest.find(is_unwanted) {
        clean.push_str(&rest[..at]);
        rest = skip_escape(&rest[at..]);
        if !clean.ends_with(' ') {
            clean.push(' ');
        }
    }
    clean.push_str(rest);
    if cut.len() < text.len() {
        clean.push('…');
    }
    clean
}

fn is_unwanted(c: char) -> bool {
    c.is_control() || matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{2028}' | '\u{2029}')
}

/// Skips the unwanted character that a text begins with, and the rest of a terminal escape sequence.
fn skip_escape(text: &str) -> &str {
    let mut chars = text.chars();
    let sequence = match chars.next() {
        Some('\u{1b}') => chars.as_str().strip_prefix('['),
        Some('\u{9b}') => Some(chars.as_str()),
        _ => None,
    };
    sequence.map_or(chars.as_str(), |parameters| {
        let body = parameters.trim_start_matches(|c: char| c.is_ascii_digit() || matches!(c, ';' | '?' | ':'));
        let mut body = body.chars();
        body.next();
        body.as_str()
    })
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
    fn terminal_escapes_and_line_breaks_do_not_reach_the_log() {
        assert_eq!(sanitised("a\u{1b}[31;1mred\u{1b}[0m\r\nb\0c\u{202e}d"), "a red b c d");
        assert_eq!(sanitised("plain ünïcode — text"), "plain ünïcode — text");
    }

    #[test]
    fn a_long_message_is_cut_at_a_character() {
        let text = sanitised(&"ü".repeat(MAX_TEXT_BYTES));
        assert!(text.len() <= MAX_TEXT_BYTES + '…'.len_utf8() && text.ends_with("ü…"), "{} bytes", text.len());
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
