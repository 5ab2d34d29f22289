//! Parses a cron expression into bit sets, or into a sentence that says what is wrong and where. Knows neither calendar
//! nor zones.
//!
//! The grammar is that of Vixie's cron with what Kubernetes' CronJob accepts beside it: five fields; `*` and `?`;
//! numbers, ranges, steps (`*/5`, `10-30/5`, `10/5` for "from 10 on") and lists of them; the first three letters of
//! months and weekdays in any case; Sunday as 0 and 7; and the macros, except `@reboot` and `@every`, which name no
//! wall time.

/// The longest expression. A list of every minute has 170 bytes; nobody wrote a longer one by hand.
const MAX_BYTES: usize = 1024;
/// How much of a too long expression the error quotes.
const QUOTED_CHARS: usize = 60;

const MONTHS: &[&str] = &["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"];
const WEEKDAYS: &[&str] = &["sun", "mon", "tue", "wed", "thu", "fri", "sat"];

const MACROS: [(&str, &str); 7] = [
    ("@yearly", "0 0 1 1 *"),
    ("@annually", "0 0 1 1 *"),
    ("@monthly", "0 0 1 * *"),
    ("@weekly", "0 0 * * 0"),
    ("@daily", "0 0 * * *"),
    ("@midnight", "0 0 * * *"),
    ("@hourly", "0 * * * *"),
];

/// A set of wall minutes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Expression {
    /// Bits 0 to 59.
    pub(crate) minutes: u64,
    /// Bits 0 to 23.
    pub(crate) hours: u64,
    /// Bits 1 to 31.
    pub(crate) days: u64,
    /// Bits 1 to 12.
    pub(crate) months: u64,
    /// Bits 0 to 6, from Sunday on.
    pub(crate) weekdays: u64,
    /// How days of the month and of the week combine.
    pub(crate) day_rule: DayRule,
}

/// Vixie's rule for the two day fields.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum DayRule {
    /// A field begins with `*`: a day must match both.
    Both,
    /// Both are restricted: a day must match either.
    Either,
}

struct Field {
    name: &'static str,
    min: u8,
    max: u8,
    /// Names of the values from `min` on.
    names: &'static [&'static str],
}

const MINUTE: Field = Field { name: "minute", min: 0, max: 59, names: &[] };
const HOUR: Field = Field { name: "hour", min: 0, max: 23, names: &[] };
const DAY: Field = Field { name: "day of month", min: 1, max: 31, names: &[] };
const MONTH: Field = Field { name: "month", min: 1, max: 12, names: MONTHS };
const WEEKDAY: Field = Field { name: "day of week", min: 0, max: 7, names: WEEKDAYS };

impl Expression {
    /// Parses an expression; ignores blanks around it.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        if text.len() > MAX_BYTES {
            let begin: String = text.chars().take(QUOTED_CHARS).collect();
            return Err(format!("{begin:?}... is not a cron expression: it is longer than {MAX_BYTES} bytes"));
        }
        expression(text.trim()).map_err(|why| format!("{text:?} is not a cron expression: {why}"))
    }
}

fn expression(text: &str) -> Result<Expression, String> {
    if text.starts_with('@') {
        let known = MACROS.iter().find(|(name, _)| name.eq_ignore_ascii_case(text));
        let names = MACROS.map(|(name, _)| name).join(", ");
        let (_, meaning) = known.ok_or_else(|| format!("the macros are {names}"))?;
        return expression(meaning);
    }
    if text.starts_with("TZ=") || text.starts_with("CRON_TZ=") {
        return Err("a time zone is not part of the expression but a field of its own".to_owned());
    }
    let fields: Vec<&str> = text.split_whitespace().collect();
    let [minute, hour, day, month, weekday] = fields[..] else {
        let count = fields.len();
        let hint = if count > 5 { "; there are no fields for seconds and years" } else { "" };
        return Err(format!(
            "it has {count} fields instead of five: minute, hour, day of month, month, day of week{hint}"
        ));
    };
    let weekdays = WEEKDAY.parse(weekday)?;
    let is_open = |field: &str| field.starts_with(['*', '?']);
    Ok(Expression {
        minutes: MINUTE.parse(minute)?,
        hours: HOUR.parse(hour)?,
        days: DAY.parse(day)?,
        months: MONTH.parse(month)?,
        // 7 is Sunday as well.
        weekdays: (weekdays | weekdays >> 7) & 0x7f,
        day_rule: if is_open(day) || is_open(weekday) { DayRule::Both } else { DayRule::Either },
    })
}

impl Field {
    fn parse(&self, text: &str) -> Result<u64, String> {
        let bits = text.split(',').try_fold(0, |bits, item| Ok(bits | self.item(item)?));
        bits.map_err(|why: String| format!("{} {text:?}: {why}", self.name))
    }

    /// `*`, a value or a range, with or without a step.
    fn item(&self, item: &str) -> Result<u64, String> {
        let (range, step) = match item.split_once('/') {
            Some((range, step)) => (range, Some(step)),
            None => (item, None),
        };
        let (first, last) = match (range, range.split_once('-')) {
            ("*" | "?", _) => (self.min, self.max),
            (_, Some((first, last))) => self.range(first, last)?,
            (value, None) => {
                let first = self.value(value)?;
                (first, if step.is_some() { self.max } else { first })
            }
        };
        let step = step.map_or(Ok(1), |step| match number(step) {
            Some(0) | None => Err(format!("the step {step:?} is not a number above 0")),
            Some(step) => Ok(step),
        })?;
        Ok((first..=last).step_by(usize::from(step)).fold(0, |bits, value| bits | 1 << value))
    }

    fn range(&self, first: &str, last: &str) -> Result<(u8, u8), String> {
        let (from, to) = (self.value(first)?, self.value(last)?);
        match to {
            // A week may end on Sunday: fri-sun.
            0 if self.max == WEEKDAY.max && from > 0 => Ok((from, WEEKDAY.max)),
            _ if from > to => Err(format!("the range {first}-{last} ends before it begins")),
            _ => Ok((from, to)),
        }
    }

    fn value(&self, text: &str) -> Result<u8, String> {
        if let Some(at) = self.names.iter().position(|name| name.eq_ignore_ascii_case(text)) {
            return Ok(self.min + at as u8);
        }
        let Some(value) = number(text) else {
            let names =
                if self.names.is_empty() { String::new() } else { format!(", nor one of {}", self.names.join(", ")) };
            return Err(format!("{text:?} is not a number{names}"));
        };
        if !(self.min..=self.max).contains(&value) {
            return Err(format!("{text} is not within {} and {}", self.min, self.max));
        }
        Ok(value)
    }
}

/// An unsigned decimal number. One that does not fit is above every bound.
fn number(text: &str) -> Option<u8> {
    let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    is_number.then(|| text.parse().unwrap_or(u8::MAX))
}
