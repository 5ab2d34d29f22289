//! Each record of the log is one line. A record's text comes in, one line comes out: no message, of whatever library or
//! plugin, can look like a second record.

use std::borrow::Cow;

pub(super) fn one_line(record: &[u8]) -> Cow<'_, [u8]> {
    let is_break = |byte: &u8| matches!(byte, b'\n' | b'\r');
    let Some((end, text)) = record.split_last().filter(|(_, text)| text.iter().any(is_break)) else {
        return Cow::Borrowed(record);
    };
    let joined = text.iter().map(|byte| if is_break(byte) { b' ' } else { *byte });
    Cow::Owned(joined.chain([*end]).collect())
}

#[cfg(test)]
mod tests {
    use std::io::{self, Write};
    use std::sync::{Arc, Mutex};

    use super::*;

    #[derive(Clone, Default)]
    struct Written(Arc<Mutex<Vec<u8>>>);

    impl Write for Written {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().extend_from_slice(&one_line(bytes));
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_message_with_line_breaks_is_one_record() {
        let written = Written::default();
        let to = written.clone();
        let log = tracing_subscriber::fmt().with_writer(move || to.clone()).with_ansi(false).finish();
        tracing::subscriber::with_default(log, || {
            tracing::warn!(detail = "a\nb", "no\r\n2026-11-27T00:00:00.000000Z  INFO the plugin serves\u{1b}[2J");
            tracing::warn!("again");
        });
        let text = String::from_utf8(written.0.lock().unwrap().clone()).unwrap();
        assert_eq!(text.lines().count(), 2, "{text}");
        assert!(text.lines().next().unwrap().contains("no  2026-11-27T00:00:00.000000Z  INFO the plugin serves"));
        assert!(!text.contains('\u{1b}') && text.ends_with("again\n"), "{text}");
    }
}
