//! Each destination at its edge, and what no destination shows.

use super::*;

const ALL: [Destination; 11] =
    [CONDITION, EVENT_NOTE, WARNING, DENIAL, FIELD, MESSAGE, FAULT, FAILURE, REFUSAL, LOG, EXCERPT];

fn length(destination: Destination, text: &str) -> (usize, usize) {
    match destination.most {
        Most::Bytes(most) => (text.len(), most),
        Most::Chars(most) => (text.chars().count(), most),
    }
}

#[test]
fn a_text_of_the_longest_length_stays_and_one_beyond_it_is_cut_with_a_mark() {
    for destination in ALL {
        let (_, most) = length(destination, "");
        let longest = "x".repeat(most);
        assert!(matches!(destination.text(&longest), Cow::Borrowed(_)), "{destination:?}");
        let cut = destination.text(&format!("{longest}x")).into_owned();
        assert_eq!(length(destination, &cut).0, most, "{destination:?}");
        assert!(cut.ends_with("x…"), "{destination:?}");
    }
}

#[test]
fn a_character_across_the_bound_is_left_out_whole() {
    for destination in ALL {
        for wide in ["ä", "€", "🦀"] {
            for before in 0..4 {
                let (_, most) = length(destination, "");
                let text = format!("{}{}", "x".repeat(before), wide.repeat(most + 1));
                let cut = destination.text(&text).into_owned();
                let (found, most) = length(destination, &cut);
                assert!(found <= most && found + '🦀'.len_utf8() > most, "{destination:?}: {found}");
                assert!(cut.ends_with(&format!("{wide}…")), "{destination:?}");
            }
        }
    }
    let of_condition = "ä".repeat(32_768);
    assert_eq!(CONDITION.text(&of_condition), of_condition, "a schema counts characters");
}

#[test]
fn nothing_that_acts_on_a_terminal_or_hides_is_shown_anywhere() {
    let all = (0..=0x0f_ffff).filter_map(char::from_u32);
    let acts = |char: &char| char.is_control() || is_invisible(*char) || matches!(char, '\u{2028}' | '\u{2029}');
    for char in all.filter(acts) {
        for destination in ALL {
            let shown = destination.text(&format!("aä{char}äb")).into_owned();
            let is_kept = destination.has_lines && matches!(char, '\n' | '\t');
            assert_eq!(shown.contains(char), is_kept, "{char:?} in {destination:?}: {shown:?}");
            assert!(shown.starts_with('a') && shown.ends_with('b'), "{char:?}: {shown:?}");
        }
    }
}

#[test]
fn a_line_has_no_second_one_and_lines_have_no_other_control_characters() {
    let text = "red \u{1b}[1;31mred\u{1b}[0m\r\nb\0c\u{202e}d\u{9b}2Je \u{1b}]0;title\u{7}f\tg\u{200b}h\n";
    assert_eq!(FAULT.text(text), "red red b cd e ]0;title f gh");
    assert_eq!(CONDITION.text(text), "red red \nb cd e ]0;title f\tgh");
    assert_eq!(FAULT.text("2026-11-27T00:00:00Z  INFO ok\n2026-11-27T00:00:01Z ERROR forged").lines().count(), 1);
    assert_eq!(LOG.text("plain ünïcode — text ⚠"), "plain ünïcode — text ⚠");
    assert_eq!(LOG.text("\u{1b}["), "");
    assert_eq!(LOG.text("a\rb"), "a b");
}

#[test]
fn a_text_that_is_shown_twice_is_the_same() {
    let pieces = ["\u{1b}", "[", "31", "m", "a", " ", "\n", "\r", "\u{202e}", "\u{9b}", "ä", "\t", "…"];
    let mut seed = 1_u64;
    for _ in 0..2_000 {
        let mut text = String::new();
        for _ in 0..40 {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            text.push_str(pieces[(seed >> 33) as usize % pieces.len()]);
        }
        for destination in [FAULT, CONDITION, Destination { has_lines: false, most: Most::Bytes(16) }] {
            let once = destination.text(&text).into_owned();
            assert_eq!(destination.text(&once), once, "{text:?}");
        }
    }
}

#[test]
fn what_is_not_shown_of_a_long_text_is_not_copied() {
    let text = format!("\u{1b}{}", "x".repeat(4 << 20));
    assert!(FAULT.own(text).capacity() <= 2 * MAX_MESSAGE_BYTES);
}
