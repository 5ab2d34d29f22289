//! The forms of names, keys and other texts. Input: a text. Output: what is wrong with it, in the API server's words. It must
//! not know where the text is.

/// What is wrong with a text; nothing if it is right.
pub(crate) type Format = fn(&str) -> Vec<String>;

const LABEL: &str = "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start \
                     and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is \
                     '[a-z0-9]([-a-z0-9]*[a-z0-9])?')";
const SUBDOMAIN: &str = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and \
                         must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation \
                         is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')";
const WILDCARD: &str = "a wildcard DNS-1123 subdomain must start with '*.', followed by a valid DNS subdomain, which must \
                        consist of lower case alphanumeric characters, '-' or '.' and end with an alphanumeric character \
                        (e.g. '*.example.com', regex used for validation is \
                        '\\*\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')";
const LABEL_KEY: &str = "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an \
                         alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation \
                         is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')";
const LABEL_VALUE: &str = "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', \
                           and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or \
                           '12345', regex used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')";
const CONFIG_KEY: &str = "a valid config key must consist of alphanumeric characters, '-', '_' or '.' (e.g. 'key.name',  or \
                          'KEY_NAME',  or 'key-name', regex used for validation is '[-._a-zA-Z0-9]+')";
const PERCENT: &str = "a valid percent string must be a numeric string followed by an ending '%' (e.g. '1%',  or '93%', \
                       regex used for validation is '[0-9]+%')";
const HEADER: &str = "a valid HTTP header must consist of alphanumeric characters or '-' (e.g. 'X-Header-Name', regex used \
                      for validation is '[-A-Za-z0-9]+')";
const ENV: &str = "a valid environment variable name must consist only of printable ASCII characters other than '='";
/// How long a DNS label, and the name part of a label's key, may be.
const MAX_LABEL: usize = 63;
/// How long a DNS subdomain may be.
const MAX_SUBDOMAIN: usize = 253;

fn longer(text: &str, most: usize, unit: &str) -> Option<String> {
    (text.len() > most).then(|| format!("must be no more than {most} {unit}"))
}

fn ends_with_alphanumerics(text: &str, inner: fn(u8) -> bool, outer: fn(u8) -> bool) -> bool {
    let bytes = text.as_bytes();
    match (bytes.first(), bytes.last()) {
        (Some(first), Some(last)) => outer(*first) && outer(*last) && bytes.iter().all(|byte| inner(*byte)),
        _ => false,
    }
}

fn lower(byte: u8) -> bool {
    byte.is_ascii_lowercase() || byte.is_ascii_digit()
}

fn is_label(text: &str) -> bool {
    ends_with_alphanumerics(text, |byte| lower(byte) || byte == b'-', lower)
}

fn is_subdomain(text: &str) -> bool {
    text.split('.').all(is_label)
}

fn is_key(text: &str) -> bool {
    let inner = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    ends_with_alphanumerics(text, inner, |byte| byte.is_ascii_alphanumeric())
}

/// A DNS label: names of Namespaces and containers.
pub(crate) fn label(text: &str) -> Vec<String> {
    let mut wrong: Vec<String> = longer(text, MAX_LABEL, "characters").into_iter().collect();
    if !is_label(text) {
        wrong.push(if is_subdomain(text) { "must not contain dots" } else { LABEL }.to_owned());
    }
    wrong
}

/// A DNS subdomain: most names.
pub(crate) fn subdomain(text: &str) -> Vec<String> {
    let mut wrong: Vec<String> = longer(text, MAX_SUBDOMAIN, "characters").into_iter().collect();
    if !is_subdomain(text) {
        wrong.push(SUBDOMAIN.to_owned());
    }
    wrong
}

/// A DNS subdomain after `*.`.
pub(crate) fn wildcard(text: &str) -> Vec<String> {
    let mut wrong: Vec<String> = longer(text, MAX_SUBDOMAIN, "characters").into_iter().collect();
    if !text.strip_prefix("*.").is_some_and(is_subdomain) {
        wrong.push(WILDCARD.to_owned());
    }
    wrong
}

/// What can stand between slashes in a path: names in RBAC.
pub(crate) fn path_segment(text: &str) -> Vec<String> {
    if text == "." || text == ".." {
        return vec![format!("may not be '{text}'")];
    }
    let wrong = ["/", "%"].into_iter().filter(|part| text.contains(part));
    wrong.map(|part| format!("may not contain '{part}'")).collect()
}

/// A label's key: a name with an optional DNS subdomain before a slash.
pub(crate) fn qualified(text: &str) -> Vec<String> {
    let mut wrong = Vec::new();
    let name = match text.split_once('/') {
        None => text,
        Some((_, name)) if name.contains('/') => {
            let more = "with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')";
            return vec![format!("a valid label key {LABEL_KEY} {more}")];
        }
        Some((prefix, name)) => {
            if prefix.is_empty() {
                wrong.push("prefix part must be non-empty".to_owned());
            } else if let Some(long) = longer(prefix, MAX_SUBDOMAIN, "bytes") {
                wrong.push(format!("prefix part {long}"));
            } else if !is_subdomain(prefix) {
                wrong.push(format!("prefix part {SUBDOMAIN}"));
            }
            name
        }
    };
    if name.is_empty() {
        wrong.push("name part must be non-empty".to_owned());
    } else if let Some(long) = longer(name, MAX_LABEL, "bytes") {
        wrong.push(format!("name part {long}"));
    }
    if !is_key(name) {
        wrong.push(format!("name part {LABEL_KEY}"));
    }
    wrong
}

/// A label's value.
pub(crate) fn label_value(text: &str) -> Vec<String> {
    let mut wrong: Vec<String> = longer(text, MAX_LABEL, "bytes").into_iter().collect();
    if !text.is_empty() && !is_key(text) {
        wrong.push(LABEL_VALUE.to_owned());
    }
    wrong
}

/// A key of a ConfigMap or a Secret.
pub(crate) fn config_key(text: &str) -> Vec<String> {
    let mut wrong: Vec<String> = longer(text, MAX_SUBDOMAIN, "characters").into_iter().collect();
    if text.is_empty() || !text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-._".contains(&byte)) {
        wrong.push(CONFIG_KEY.to_owned());
    }
    match text {
        "." | ".." => wrong.push(format!("must not be '{text}'")),
        _ if text.starts_with("..") => wrong.push("must not start with '..'".to_owned()),
        _ => {}
    }
    wrong
}

/// The name of a container's port.
pub(crate) fn port_name(text: &str) -> Vec<String> {
    let rules = [
        (
            text.is_empty() || !text.bytes().all(|byte| lower(byte) || byte == b'-'),
            "must contain only alpha-numeric characters (a-z, 0-9), and hyphens (-)",
        ),
        (!text.bytes().any(|byte| byte.is_ascii_lowercase()), "must contain at least one letter (a-z)"),
        (text.contains("--"), "must not contain consecutive hyphens"),
        (text.starts_with('-') || text.ends_with('-'), "must not begin or end with a hyphen"),
    ];
    let wrong = rules.into_iter().filter(|(broken, _)| *broken).map(|(_, words)| words.to_owned());
    longer(text, 15, "characters").into_iter().chain(wrong).collect()
}

/// The name of an environment variable.
pub(crate) fn env_name(text: &str) -> Vec<String> {
    let fine = |c: char| (c == ' ' || c.is_ascii_graphic()) && c != '=';
    if text.chars().all(fine) { Vec::new() } else { vec![ENV.to_owned()] }
}

/// A percentage.
pub(crate) fn percent(text: &str) -> Vec<String> {
    let digits = text.strip_suffix('%').unwrap_or_default();
    let fine = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    if fine { Vec::new() } else { vec![PERCENT.to_owned()] }
}

/// The name of an HTTP header.
pub(crate) fn header(text: &str) -> Vec<String> {
    let fine = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-');
    if fine { Vec::new() } else { vec![HEADER.to_owned()] }
}

/// The name of a webhook: at least three labels.
pub(crate) fn fully_qualified(text: &str) -> Vec<String> {
    let wrong = subdomain(text);
    if !wrong.is_empty() {
        return vec![wrong.join(",")];
    }
    let short = text.split('.').count() < 3;
    short.then(|| "should be a domain with at least three segments separated by dots".to_owned()).into_iter().collect()
}

/// The base of a generated name: its last dash is followed by letters later.
pub(crate) fn before_suffix(text: &str) -> String {
    match text.strip_suffix('-').filter(|rest| !rest.is_empty()) {
        Some(rest) => {
            let mut kept: Vec<char> = rest.chars().collect();
            kept.pop();
            kept.push('a');
            kept.into_iter().collect()
        }
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_form_has_its_words() {
        let cases: &[(Format, &str, &[&str])] = &[
            (label, "a-1", &[]),
            (label, "a.b", &["must not contain dots"]),
            (label, "A", &[LABEL]),
            (subdomain, "a.b-c.1", &[]),
            (subdomain, "a..b", &[SUBDOMAIN]),
            (path_segment, "system:a", &[]),
            (path_segment, "a/b%", &["may not contain '/'", "may not contain '%'"]),
            (qualified, "example.com/MyName", &[]),
            (
                qualified,
                "/",
                &["prefix part must be non-empty", "name part must be non-empty", &format!("name part {LABEL_KEY}")],
            ),
            (label_value, "", &[]),
            (label_value, "a b", &[LABEL_VALUE]),
            (config_key, "..a", &["must not start with '..'"]),
            (config_key, "a/b", &[CONFIG_KEY]),
            (port_name, "http", &[]),
            (port_name, "80", &["must contain at least one letter (a-z)"]),
            (port_name, "a--b-", &["must not contain consecutive hyphens", "must not begin or end with a hyphen"]),
            (percent, "25%", &[]),
            (percent, "25", &[PERCENT]),
            (env_name, "my.NAME 1", &[]),
            (env_name, "a=b", &[ENV]),
            (fully_qualified, "a.b", &["should be a domain with at least three segments separated by dots"]),
        ];
        for (form, text, wanted) in cases {
            assert_eq!(form(text), *wanted, "{text}");
        }
        assert_eq!(label(&"a".repeat(64)), ["must be no more than 63 characters"]);
        assert_eq!(label_value(&"a".repeat(64)), ["must be no more than 63 bytes"]);
        assert_eq!(before_suffix("web-"), "wea");
    }
}
