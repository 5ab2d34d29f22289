//! Matching labels, and the position of syntax errors.

use super::*;

fn labels(text: &str) -> Labels {
    let pairs = text.split_whitespace().map(|pair| pair.split_once('=').unwrap());
    Vec::from_iter(pairs.map(|(key, value)| (key.into(), value.into()))).into()
}

/// The selector's normal form, and the label sets that it matches.
fn check(selector: &str, expected: &str) {
    const SETS: [&str; 5] = ["", "app=web", "app=db", "app=web tier=front", "tier= legacy=yes"];
    let selector = Selector::parse(selector).unwrap();
    let matched: Vec<_> =
        SETS.iter().filter(|set| selector.matches(&labels(set))).map(|set| format!("[{set}]")).collect();
    assert_eq!(format!("{selector}: {}", matched.join(" ")), expected);
    assert_eq!(Selector::parse(&selector.to_string()).unwrap(), selector);
}

#[test]
fn selectors_match_as_in_kubernetes() {
    check("", ": [] [app=web] [app=db] [app=web tier=front] [tier= legacy=yes]");
    check("  ", ": [] [app=web] [app=db] [app=web tier=front] [tier= legacy=yes]");
    check("app=web", "app=web: [app=web] [app=web tier=front]");
    check("app == web", "app=web: [app=web] [app=web tier=front]");
    check("app!=web", "app!=web: [] [app=db] [tier= legacy=yes]");
    check("app in (web, db)", "app in (db,web): [app=web] [app=db] [app=web tier=front]");
    check("app in (web,web)", "app=web: [app=web] [app=web tier=front]");
    check("app notin (db,web)", "app notin (db,web): [] [tier= legacy=yes]");
    check("tier", "tier: [app=web tier=front] [tier= legacy=yes]");
    check("!tier", "!tier: [] [app=web] [app=db]");
    check("! tier", "!tier: [] [app=web] [app=db]");
    check("tier=", "tier=: [tier= legacy=yes]");
    check("tier in ()", "tier=: [tier= legacy=yes]");
    check("tier in (,front)", "tier in (,front): [app=web tier=front] [tier= legacy=yes]");
    check("app=web , !tier", "app=web,!tier: [app=web]");
    check("app,tier!=front", "app,tier!=front: [app=web] [app=db]");
}

#[test]
fn a_key_may_be_a_word_of_the_syntax_and_may_have_a_prefix() {
    check("in", "in: ");
    check("notin in (in)", "notin=in: ");
    check("app.kubernetes.io/managed-by=mortise", "app.kubernetes.io/managed-by=mortise: ");
}

#[test]
fn required_labels_are_the_terms_with_one_value() {
    let selector = Selector::parse("a=1,b!=2,c in (3),d in (4,5),e,!f").unwrap();
    assert_eq!(selector.required().collect::<Vec<_>>(), [("a", "1"), ("c", "3")]);
}

#[test]
fn errors_name_the_selector_and_the_position() {
    let check = |selector: &str, at: usize, problem: &str| {
        let error = Selector::parse(selector).unwrap_err();
        assert_eq!(error.to_string(), format!("the label selector {selector:?} is invalid at byte {at}: {problem}"));
    };
    check("app=web,", 8, "a term is expected after the comma");
    check(",app", 0, "a label key is expected");
    check("app web", 4, "one of =, ==, !=, in, notin, a comma or the end is expected");
    check("app>5", 3, "one of =, ==, !=, in, notin, a comma or the end is expected");
    check("app=a=b", 5, "a comma or the end is expected");
    check("app in web", 7, "an opening parenthesis is expected");
    check("app in (a", 9, "a comma or a closing parenthesis is expected");
    check("app in (a b)", 10, "a comma or a closing parenthesis is expected");
    check("app=a/b", 4, NOT_A_VALUE);
    check("app=-a", 4, NOT_A_VALUE);
    check("app=ü", 4, "a comma or the end is expected");
    check("-app", 0, "this is not a label key");
    check("a/b/c", 0, "this is not a label key");
    check("/a", 0, "this is not a label key");
    check("a/", 0, "this is not a label key");
    check("Example.com/a", 0, "this is not a label key");
    check(&"k".repeat(64), 0, "this is not a label key");
    check(&format!("app={}", "v".repeat(64)), 4, NOT_A_VALUE);
    assert!(Selector::parse(&"a,".repeat(5_000)).unwrap_err().to_string().contains("longer than 8192 bytes"));
    assert!(Selector::parse(&["a"; 64].join(",")).is_ok());
    check(&["a"; 65].join(","), 128, "it has more than 64 terms");
}
