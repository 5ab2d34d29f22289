//! Schedules of CronJobs. Input: a schedule's text. Output: what is wrong with it, in the words of the parser that the API
//! server uses. It must not know when a schedule is due.

const FIELDS: &[(i64, i64, &[&str])] = &[
    (0, 59, &[]),
    (0, 23, &[]),
    (1, 31, &[]),
    (1, 12, &["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"]),
    (0, 6, &["sun", "mon", "tue", "wed", "thu", "fri", "sat"]),
];
const DESCRIPTORS: &[&str] = &["@yearly", "@annually", "@monthly", "@weekly", "@daily", "@midnight", "@hourly"];

/// What is wrong with a schedule.
pub(super) fn wrong(text: &str) -> Vec<String> {
    let mut wrong: Vec<String> = parse(text).err().into_iter().collect();
    if text.contains("TZ") {
        wrong.push("cannot use TZ or CRON_TZ in schedule, use timeZone field instead".to_owned());
    }
    wrong
}

fn parse(text: &str) -> Result<(), String> {
    let text = match text.strip_prefix("CRON_TZ=").or_else(|| text.strip_prefix("TZ=")) {
        Some(rest) => rest.split_once(' ').map_or("", |(_, rest)| rest).trim(),
        None => text,
    };
    if text.starts_with('@') {
        let every = text.strip_prefix("@every ").is_some_and(|wait| wait.ends_with(['h', 'm', 's']));
        let known = DESCRIPTORS.contains(&text) || every;
        return if known { Ok(()) } else { Err(format!("unrecognized descriptor: {text}")) };
    }
    let fields: Vec<&str> = text.split_whitespace().collect();
    if fields.len() != FIELDS.len() {
        return Err(format!("expected exactly 5 fields, found {}: [{}]", fields.len(), fields.join(" ")));
    }
    for (field, (low, high, names)) in fields.iter().zip(FIELDS) {
        for part in field.split(',').filter(|part| !part.is_empty()) {
            range(part, *low, *high, names)?;
        }
    }
    Ok(())
}

fn range(text: &str, low: i64, high: i64, names: &[&str]) -> Result<(), String> {
    let (span, step) = match text.split('/').collect::<Vec<_>>().as_slice() {
        [span] => (*span, None),
        [span, step] => (*span, Some(*step)),
        _ => return Err(format!("too many slashes: {text}")),
    };
    let value = |part: &str| {
        let at = names.iter().position(|name| name.eq_ignore_ascii_case(part));
        at.and_then(|at| i64::try_from(at).ok()).map_or_else(|| number(part), |at| Ok(at + low))
    };
    let (start, end) = match span.split('-').collect::<Vec<_>>().as_slice() {
        ["*" | "?"] => (low, high),
        [one] if step.is_some() => (value(one)?, high),
        [one] => (value(one)?, value(one)?),
        [first, last] => (value(first)?, value(last)?),
        _ => return Err(format!("too many hyphens: {text}")),
    };
    if step.map(number).transpose()? == Some(0) {
        return Err(format!("step of range should be a positive number: {text}"));
    }
    if start < low {
        return Err(format!("beginning of range ({start}) below minimum ({low}): {text}"));
    }
    if end > high {
        return Err(format!("end of range ({end}) above maximum ({high}): {text}"));
    }
    if start > end {
        return Err(format!("beginning of range ({start}) beyond end of range ({end}): {text}"));
    }
    Ok(())
}

fn number(text: &str) -> Result<i64, String> {
    match text.parse::<i64>() {
        Ok(number) if number < 0 => Err(format!("negative number ({number}) not allowed: {text}")),
        Ok(number) => Ok(number),
        Err(_) => Err(format!("failed to parse int from {text}: strconv.Atoi: parsing {text:?}: invalid syntax")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn schedules_are_refused_in_the_words_of_their_parser() {
        for text in ["*/5 * * * *", "0 0 1,15 jan-MAR mon", "@hourly", "@every 1h30m", "5-10/2 ? * * 0"] {
            assert!(wrong(text).is_empty(), "{text}");
        }
        let cases = [
            ("* * * *", "expected exactly 5 fields, found 4: [* * * *]"),
            ("60 * * * *", "end of range (60) above maximum (59): 60"),
            ("* * 0 * *", "beginning of range (0) below minimum (1): 0"),
            ("* * * * x", "failed to parse int from x: strconv.Atoi: parsing \"x\": invalid syntax"),
            ("*/0 * * * *", "step of range should be a positive number: */0"),
            ("@never", "unrecognized descriptor: @never"),
        ];
        for (text, wanted) in cases {
            assert_eq!(wrong(text), [wanted], "{text}");
        }
    }
}
