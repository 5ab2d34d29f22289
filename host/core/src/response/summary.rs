//! What may be said of an error response whose message may repeat an object: names, fields and reasons, and of the API
//! server's sentences the part without values. The message of a patch that does not fit, for one, has the whole patched
//! object, and a webhook says what it likes.

/// Most fields that are named: one is the rule, and a message is read by a person.
const MAX_FIELDS: usize = 8;
/// Sentences that the API server begins, and where its own words end.
const OWN_WORDS: [(&str, &str); 6] = [
    ("User \"", ": "),
    ("exceeded quota: ", ", "),
    ("unable to create new content in namespace ", ": "),
    ("ValidatingAdmissionPolicy '", ": "),
    ("admission webhook \"", ": "),
    ("Internal error occurred: failed calling webhook \"", ": "),
];

/// "Invalid: Secret "a", immutable (FieldValueInvalid)", of the kind and name of an object and of fields with what is wrong
/// there.
pub(super) fn of<'a>(
    reason: &str,
    message: &str,
    (kind, name): (&str, &str),
    causes: impl Iterator<Item = (&'a str, &'a str)>,
) -> String {
    let mut said = Vec::new();
    said.extend(own_words(message).or_else(|| unknown_fields(message)).map(str::to_owned));
    if !name.is_empty() {
        said.push(format!("{kind} {name:?}"));
    }
    let fields = causes.filter(|(field, _)| !field.is_empty()).take(MAX_FIELDS);
    said.extend(fields.map(|(field, reason)| format!("{field} ({reason})")));
    let said = said.join(", ");
    if reason.is_empty() || said.is_empty() { [reason, &said].concat() } else { format!("{reason}: {said}") }
}

/// What the API server says itself, before the words of somebody else. Only a message that begins so is known to: in the
/// middle of one, an object may contain any words.
fn own_words(message: &str) -> Option<&str> {
    // secrets "a" is forbidden: exceeded quota: ...
    let sentence = match message.split_once("\" is forbidden: ") {
        Some((about, sentence))
            if about.split_once(" \"").is_some_and(|(kind, name)| is_name(kind) && is_name(name)) =>
        {
            sentence
        }
        _ => message,
    };
    let (begin, end) = OWN_WORDS.iter().find(|(begin, _)| sentence.starts_with(begin))?;
    let rest = &sentence[begin.len()..];
    let length = rest.find(end).unwrap_or(rest.len());
    Some(&sentence[..begin.len() + length])
}

/// What a message says at its end of fields that the API server does not know: their paths are the request's own. All that
/// follows the last mention has to be that, since an object may have it in a value.
fn unknown_fields(message: &str) -> Option<&str> {
    let (_, end) = message.rsplit_once(": strict decoding error: ")?;
    let is_path = |path: &str| path.chars().all(|char| char.is_ascii_alphanumeric() || "._-[]/".contains(char));
    let is_field = |part: &str| {
        let path = part.strip_prefix("unknown field \"").or_else(|| part.strip_prefix("duplicate field \""));
        path.and_then(|path| path.strip_suffix('"')).is_some_and(is_path)
    };
    end.split(", ").all(is_field).then_some(end)
}

fn is_name(text: &str) -> bool {
    !text.contains(|char: char| char.is_whitespace() || char == '"')
}

#[cfg(test)]
mod tests {
    use super::super::Refused;

    #[track_caller]
    fn check(status: serde_json::Value, expected: &str) {
        let refused = Refused::from_status(status.to_string().as_bytes()).unwrap();
        assert_eq!(refused.summary, expected);
    }

    #[test]
    fn g8_a_summary_has_names_fields_and_reasons_and_no_value() {
        let object = r#"{"data":{"a":"c2VjcmV0"},"metadata":{"annotations":{"a":"x \" is forbidden: User \"s3cret"}}}"#;
        let invalid =
            |field: &str| serde_json::json!({"reason": "FieldValueInvalid", "message": object, "field": field});
        let status =
            |reason: &str, message: &str| serde_json::json!({"reason": reason, "message": message, "code": 422});
        let mut patch = status("Invalid", &format!("\"\" is invalid: patch: Invalid value: {object:?}: no"));
        patch["details"] = serde_json::json!({"causes": [invalid("patch")]});
        check(patch.clone(), "Invalid: patch (FieldValueInvalid)");
        patch["details"]["kind"] = "Secret".into();
        patch["details"]["name"] = "a".into();
        patch["details"]["causes"] = (0..10).map(|at| invalid(&format!("data[{at}]"))).collect();
        let fields: Vec<_> = (0..8).map(|at| format!("data[{at}] (FieldValueInvalid)")).collect();
        check(patch, &format!("Invalid: Secret \"a\", {}", fields.join(", ")));
        check(status("BadRequest", object), "BadRequest");
        let strict = r#"strict decoding error: unknown field "spec.pause", unknown field "spec.a[0].b-c""#;
        let of_patch = format!("patch: Invalid value: {object:?}: {strict}");
        check(status("Invalid", &of_patch), &format!("Invalid: {}", &strict["strict decoding error: ".len()..]));
        for hidden in
            [format!("{of_patch}: x"), format!("{of_patch} s3cret"), format!("{of_patch}, unknown field \"s3 cret\"")]
        {
            check(status("Invalid", &hidden), "Invalid");
        }
        for (message, shown) in [
            (
                r#"admission webhook "a.example.com" denied the request: s3cret"#,
                r#"admission webhook "a.example.com" denied the request"#,
            ),
            (
                r#"admission webhook "a.example.com" denied the request without explanation"#,
                r#"admission webhook "a.example.com" denied the request without explanation"#,
            ),
            (
                r#"Internal error occurred: failed calling webhook "a": an error on the server ("s3cret")"#,
                r#"Internal error occurred: failed calling webhook "a""#,
            ),
            (r#"secrets "a" is forbidden: exceeded quota: few, requested: secrets=1"#, "exceeded quota: few"),
            (
                r#"secrets "a" is forbidden: ValidatingAdmissionPolicy 'p' with binding 'b' denied request: s3cret"#,
                "ValidatingAdmissionPolicy 'p' with binding 'b' denied request",
            ),
            (
                r#"secrets "a" is forbidden: unable to create new content in namespace ns because it is being terminated"#,
                "unable to create new content in namespace ns because it is being terminated",
            ),
            (
                r#"secrets "a" is forbidden: User "system:serviceaccount:b:c" cannot patch resource "secrets" in API group "" in the namespace "ns": RBAC: role "x" not found"#,
                r#"User "system:serviceaccount:b:c" cannot patch resource "secrets" in API group "" in the namespace "ns""#,
            ),
        ] {
            check(status("Forbidden", message), &format!("Forbidden: {shown}"));
        }
        check(
            status("", r#"admission webhook "a" denied the request: s3cret"#),
            r#"admission webhook "a" denied the request"#,
        );
        check(status("Forbidden", r#"the s3cret "a" is forbidden: User "s3cret""#), "Forbidden");
    }
}
