//! Texts that a guest wrote, or that repeat one, made fit for where they are shown: without characters that change what a
//! terminal or a log shows of others, and cut, with a mark, where the destination ends. Text in, text out. It must not know
//! who wrote a text, and when.

use std::borrow::Cow;

use crate::limits::{MAX_MESSAGE_BYTES, MAX_MESSAGE_CHARS};

/// The end of a text that was cut.
const MARK: char = '…';

/// The message of a condition: `maxLength` of metav1.Condition, which counts characters.
pub const CONDITION: Destination = Destination { has_lines: true, most: Most::Chars(32_768) };
/// The note of an Event: the API server's bound. One line, because `kubectl describe` prints Events as rows.
pub const EVENT_NOTE: Destination = Destination { has_lines: false, most: Most::Bytes(1_024) };
/// One warning of a webhook. The API server cuts at 256 characters when all of a response have more than 4,096, and drops one
/// that has a control character.
pub const WARNING: Destination = Destination { has_lines: false, most: Most::Chars(256) };
/// A refusal of admission or of conversion, and each of its causes. The API server has no bound of its own; kubectl prints it
/// in one line.
pub const DENIAL: Destination = Destination { has_lines: false, most: Most::Chars(1_024) };
/// The path of a field in a refusal, and a plugin's name and version in its manifest: as long as the longest name.
pub const FIELD: Destination = Destination { has_lines: false, most: Most::Chars(253) };
/// What the API server says of a request. It may repeat what a guest wrote.
pub const MESSAGE: Destination = Destination { has_lines: true, most: Most::Chars(MAX_MESSAGE_CHARS) };
/// A fault or a denial in one line, which becomes part of other messages.
pub const FAULT: Destination = Destination { has_lines: false, most: Most::Bytes(MAX_MESSAGE_BYTES) };
/// A failure that a guest returned, and the message of `Stalled`: each key keeps its own, so it is shorter than a condition's.
pub const FAILURE: Destination = Destination { has_lines: true, most: Most::Bytes(4 << 10) };
/// Why a component is refused: a trap with its detail. Three conditions of a Plugin object may have it.
pub const REFUSAL: Destination = Destination { has_lines: true, most: Most::Bytes(16 << 10) };
/// A message, a name or a value of a guest's log line.
pub const LOG: Destination = Destination { has_lines: false, most: Most::Bytes(8 << 10) };
/// What a message shows of a longer text, such as a patch.
pub const EXCERPT: Destination = Destination { has_lines: false, most: Most::Bytes(512) };

/// Where a text is shown.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Destination {
    /// Whether it may have line breaks and tabs.
    has_lines: bool,
    most: Most,
}

/// The length of a text, with its mark.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Most {
    Bytes(usize),
    Chars(usize),
}

impl Destination {
    /// The text as it is shown here. A control character, with the rest of a terminal's escape sequence, becomes a space;
    /// invisible characters and marks of direction are left out. A text that is shown twice is the same.
    ///
    /// ```
    /// assert_eq!(mortise_core::text::FAULT.text("a\u{1b}[31mb\u{202e}\nc"), "a b c");
    /// ```
    pub fn text<'a>(&self, text: &'a str) -> Cow<'a, str> {
        if self.most.has(text) && text.chars().all(|char| self.shows(char)) {
            return Cow::Borrowed(text);
        }
        let mut shown = String::with_capacity(text.len().min(usize::try_from(self.most.count()).unwrap_or_default()));
        let mut rest = text;
        let mut left = self.most.count();
        // A guest may write 4 MiB, of which a destination shows little.
        while let Some(char) = rest.chars().next().filter(|_| left >= 0) {
            rest = &rest[char.len_utf8()..];
            if self.shows(char) {
                shown.push(char);
                left -= self.most.takes(char);
            } else if !is_invisible(char) {
                rest = after_sequence(char, rest);
                let is_end = self.has_lines && char == '\r' && rest.starts_with('\n');
                if !is_end && !shown.ends_with(char::is_whitespace) {
                    shown.push(' ');
                    left -= 1;
                }
            }
        }
        if left >= 0 {
            shown.truncate(shown.trim_end().len());
        } else {
            shown.truncate(self.most.cut_at(&shown));
            shown.push(MARK);
        }
        Cow::Owned(shown)
    }

    /// The same of a text that is owned.
    pub fn own(&self, text: String) -> String {
        match self.text(&text) {
            Cow::Borrowed(_) => text,
            Cow::Owned(shown) => shown,
        }
    }

    fn shows(&self, char: char) -> bool {
        let is_break = matches!(char, '\u{2028}' | '\u{2029}');
        (self.has_lines && matches!(char, '\n' | '\t')) || !(char.is_control() || is_break || is_invisible(char))
    }
}

impl Most {
    fn has(self, text: &str) -> bool {
        match self {
            Self::Bytes(most) => text.len() <= most,
            Self::Chars(most) => text.len() <= most || text.chars().nth(most).is_none(),
        }
    }

    fn count(self) -> isize {
        let (Self::Bytes(most) | Self::Chars(most)) = self;
        most.cast_signed()
    }

    /// What a character takes of it.
    fn takes(self, char: char) -> isize {
        match self {
            Self::Bytes(_) => char.len_utf8().cast_signed(),
            Self::Chars(_) => 1,
        }
    }

    /// Where to cut a longer text, so that the mark has its place.
    fn cut_at(self, text: &str) -> usize {
        match self {
            Self::Bytes(most) => text.floor_char_boundary(most - MARK.len_utf8()),
            Self::Chars(most) => text.char_indices().nth(most - 1).map_or(text.len(), |(at, _)| at),
        }
    }
}

/// Format characters (Unicode's category Cf, without the visible signs of the Arabic scripts) and blank letters: they
/// reverse, join or hide what is beside them, so that a text looks like another one.
fn is_invisible(char: char) -> bool {
    matches!(char,
        '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{115f}' | '\u{1160}' | '\u{180e}' | '\u{200b}'..='\u{200f}'
        | '\u{202a}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{3164}' | '\u{feff}' | '\u{ffa0}'
        | '\u{fff9}'..='\u{fffb}' | '\u{1bca0}'..='\u{1bca3}' | '\u{1d173}'..='\u{1d17a}' | '\u{e0000}'..='\u{e007f}')
}

/// Skips the rest of a control sequence (ECMA-48: parameters, intermediates, a final byte) that the character begins. The
/// text of other sequences stays: without ESC it is only text.
fn after_sequence(char: char, rest: &str) -> &str {
    let sequence = match char {
        '\u{1b}' => rest.strip_prefix('['),
        '\u{9b}' => Some(rest),
        _ => None,
    };
    let Some(sequence) = sequence else { return rest };
    let body = sequence
        .trim_start_matches(|char| matches!(char, '0'..='?'))
        .trim_start_matches(|char| matches!(char, ' '..='/'));
    body.strip_prefix(|char| matches!(char, '@'..='~')).unwrap_or(body)
}

#[cfg(test)]
mod tests;
