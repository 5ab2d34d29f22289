//! cron's own documentation, Kubernetes' CronJob, the jumps of zones' clocks, and the errors of invalid expressions.

use jiff::Timestamp;
use jiff::civil::DateTime;
use jiff::tz::TimeZoneDatabase;

use super::{latest, next};
use crate::calendar::MONTHS;

mod oracle;

fn ms(at: &str) -> u64 {
    let at: Timestamp = at.parse().unwrap_or_else(|error| panic!("{at}: {error}"));
    at.as_millisecond().try_into().unwrap()
}

fn rfc3339(unix_ms: u64) -> String {
    Timestamp::from_millisecond(unix_ms.try_into().unwrap()).unwrap().to_string()
}

fn ticks(expression: &str, zone: &str, after: &str, count: usize) -> Vec<String> {
    let (mut found, mut after) = (Vec::new(), ms(after));
    while found.len() < count
        && let Some(tick) = next(expression, zone, after).unwrap()
    {
        found.push(rfc3339(tick));
        after = tick;
    }
    found
}

/// The first ticks in UTC after the beginning of 2026, which is a Thursday: "01-05 00:00".
#[track_caller]
fn check(expression: &str, expected: &[&str]) {
    let found = ticks(expression, "UTC", "2026-01-01T00:00:00Z", expected.len());
    let expected: Vec<String> = expected.iter().map(|tick| format!("2026-{}:00Z", tick.replace(' ', "T"))).collect();
    assert_eq!(found, expected, "{expression}");
}

#[test]
fn the_examples_of_crontab_5_fire_as_it_says() {
    check("5 0 * * *", &["01-01 00:05", "01-02 00:05"]);
    check("15 14 1 * *", &["01-01 14:15", "02-01 14:15"]);
    check("0 22 * * 1-5", &["01-01 22:00", "01-02 22:00", "01-05 22:00"]);
    check("23 0-23/2 * * *", &["01-01 00:23", "01-01 02:23"]);
    check("5 4 * * sun", &["01-04 04:05", "01-11 04:05"]);
    check("0 4 8-14 * *", &["01-08 04:00", "01-09 04:00"]);
    check("10 2,12 * * *", &["01-01 02:10", "01-01 12:10", "01-02 02:10"]);
    check("0-10,20,50-52 0 2 1 *", &["01-02 00:00", "01-02 00:01"]);
}

#[test]
fn both_days_restricted_means_either_and_a_star_means_both() {
    // "30 4 1,15 * 5": on the 1st and 15th of each month, plus every Friday.
    check("30 4 1,15 * 5", &["01-01 04:30", "01-02 04:30", "01-09 04:30", "01-15 04:30", "01-16 04:30"]);
    check("0 0 13 * 5", &["01-02 00:00", "01-09 00:00", "01-13 00:00"]);
    // A field that begins with a star is not restricted, also one with a step: odd days that are Mondays.
    check("0 0 */2 * mon", &["01-05 00:00", "01-19 00:00", "02-09 00:00"]);
    check("0 0 1-7 * */7", &["01-04 00:00", "02-01 00:00", "03-01 00:00"]);
    check("0 0 ? * mon", &["01-05 00:00", "01-12 00:00"]);
    check("0 0 13 * ?", &["01-13 00:00", "02-13 00:00"]);
}

#[test]
fn numbers_ranges_steps_lists_and_names_are_read_alike() {
    check("*/20 * * * *", &["01-01 00:20", "01-01 00:40", "01-01 01:00"]);
    check("50/5 0 * * *", &["01-01 00:50", "01-01 00:55", "01-02 00:50"]);
    check("10-30/10 1 * * *", &["01-01 01:10", "01-01 01:20", "01-01 01:30", "01-02 01:10"]);
    check("0 0 1 MAR,nov *", &["03-01 00:00", "11-01 00:00"]);
    check("0 0 1 2-4/2 *", &["02-01 00:00", "04-01 00:00"]);
    check("0 0 * * 7", &["01-04 00:00", "01-11 00:00"]);
    check("0 0 * * 0", &["01-04 00:00", "01-11 00:00"]);
    check("0 0 * * fri-sun", &["01-02 00:00", "01-03 00:00", "01-04 00:00", "01-09 00:00"]);
    check("0 0 * * 5-7", &["01-02 00:00", "01-03 00:00", "01-04 00:00", "01-09 00:00"]);
    check("0 0 31 * *", &["01-31 00:00", "03-31 00:00", "05-31 00:00"]);
    check("0 0 1-31/99 * *", &["02-01 00:00", "03-01 00:00"]);
    // The sample of the CRD tutorial: every minute of the weekdays 0 and 5.
    check(" * * * * */5", &["01-02 00:00", "01-02 00:01"]);
    check("\t0  12\t* * * \n", &["01-01 12:00", "01-02 12:00"]);
}

#[test]
fn macros_mean_what_the_manual_says() {
    check("@monthly", &["02-01 00:00", "03-01 00:00"]);
    check("@weekly", &["01-04 00:00", "01-11 00:00"]);
    check("@daily", &["01-02 00:00", "01-03 00:00"]);
    check(" @midnight ", &["01-02 00:00", "01-03 00:00"]);
    check("@Hourly", &["01-01 01:00", "01-01 02:00"]);
    for yearly in ["@yearly", "@annually"] {
        let expected = ["2027-01-01T00:00:00Z", "2028-01-01T00:00:00Z"];
        assert_eq!(ticks(yearly, "UTC", "2026-01-01T00:00:00Z", 2), expected);
    }
}

#[test]
fn rare_days_are_found_however_far_they_are_and_impossible_ones_never() {
    let expected = ["2028-02-29T00:00:00Z", "2032-02-29T00:00:00Z"];
    assert_eq!(ticks("0 0 29 2 *", "UTC", "2026-01-01T00:00:00Z", 2), expected);
    // 2100 is no leap year.
    assert_eq!(ticks("0 0 29 2 *", "UTC", "2096-03-01T00:00:00Z", 1), ["2104-02-29T00:00:00Z"]);
    // A 29 February that is a Sunday: both fields, since the weekdays begin with a star.
    assert_eq!(ticks("0 0 29 2 */7", "UTC", "2026-01-01T00:00:00Z", 1), ["2032-02-29T00:00:00Z"]);
    for never in ["0 0 30 2 *", "0 0 31 4,6,9,11 *"] {
        assert_eq!(next(never, "Europe/Berlin", ms("2026-01-01T00:00:00Z")), Ok(None), "{never}");
        assert_eq!(latest(never, "UTC", 0, ms("2026-01-01T00:00:00Z")), Ok(None), "{never}");
    }
}

#[test]
fn a_tick_is_strictly_after_one_bound_and_at_or_before_the_other() {
    let (noon, hour) = (ms("2026-01-01T12:00:00Z"), 3_600_000);
    assert_eq!(next("@hourly", "UTC", noon - 1), Ok(Some(noon)));
    assert_eq!(next("@hourly", "UTC", noon), Ok(Some(noon + hour)));
    assert_eq!(latest("@hourly", "UTC", noon - 1, noon), Ok(Some((noon, 1))));
    assert_eq!(latest("@hourly", "UTC", noon, noon + hour - 1), Ok(None));
    assert_eq!(latest("@hourly", "UTC", noon, noon), Ok(None));
    assert_eq!(latest("@hourly", "UTC", noon + hour, noon), Ok(None), "bounds the wrong way round hold nothing");
    assert_eq!(latest("*/30 * * * *", "UTC", noon, noon + hour), Ok(Some((noon + hour, 2))));
}

#[test]
fn a_zone_shifts_what_an_expression_means() {
    let expected = ["2026-01-04T23:30:00Z", "2026-01-05T23:30:00Z"];
    assert_eq!(ticks("30 8 * * mon-fri", "Asia/Tokyo", "2026-01-04T00:00:00Z", 2), expected);
    assert_eq!(ticks("0 0 * * *", "Asia/Kathmandu", "2026-01-04T00:00:00Z", 1), ["2026-01-04T18:15:00Z"]);
    assert_eq!(ticks("0 0 * * *", "Etc/GMT+12", "2026-01-04T00:00:00Z", 1), ["2026-01-04T12:00:00Z"]);
}

/// Checks the ticks of a day, as the zone's clock shows them.
#[track_caller]
fn check_day(expression: &str, zone: &str, day: &str, expected: &[&str]) {
    let clock = TimeZoneDatabase::bundled().get(zone).unwrap();
    let noon: DateTime = format!("{day}T12:00").parse().unwrap();
    let noon = clock.to_timestamp(noon).unwrap().as_millisecond() as u64;
    let (mut after, end) = (noon - 14 * 3_600_000, noon + 11 * 3_600_000);
    let (from, mut found) = (after, Vec::new());
    while let Some(tick) = next(expression, zone, after).unwrap().filter(|tick| *tick <= end) {
        let shown = Timestamp::from_millisecond(tick as i64).unwrap().to_zoned(clock.clone());
        found.push(format!("{} {}", shown.strftime("%d %H:%M"), shown.offset()));
        after = tick;
    }
    assert_eq!(found, expected, "{expression} in {zone}");
    let last = if found.is_empty() { None } else { Some((after, found.len() as u64)) };
    assert_eq!(latest(expression, zone, from, end), Ok(last), "{expression} in {zone}");
}

#[test]
fn a_repeated_wall_time_runs_once() {
    // Berlin sets its clocks back from 03:00 to 02:00.
    check_day("30 2 * * *", "Europe/Berlin", "2026-10-25", &["25 02:30 +02"]);
    check_day("15,45 2 25 * *", "Europe/Berlin", "2026-10-25", &["25 02:15 +02", "25 02:45 +02"]);
    check_day(
        "15/30 1-3 25 * *",
        "Europe/Berlin",
        "2026-10-25",
        &["25 01:15 +02", "25 01:45 +02", "25 02:15 +02", "25 02:45 +02", "25 03:15 +01", "25 03:45 +01"],
    );
    // Lord Howe Island sets its clocks back by half an hour, from 02:00 to 01:30.
    check_day(
        "*/30 1-2 5 4 *",
        "Australia/Lord_Howe",
        "2026-04-05",
        &["05 01:00 +11", "05 01:30 +11", "05 02:00 +10:30", "05 02:30 +10:30"],
    );
}

#[test]
fn a_skipped_wall_time_runs_at_the_first_valid_instant() {
    // Berlin sets its clocks forward from 02:00 to 03:00.
    check_day("30 2 * * *", "Europe/Berlin", "2026-03-29", &["29 03:00 +02"]);
    check_day("*/20 2 * * *", "Europe/Berlin", "2026-03-29", &["29 03:00 +02"]);
    check_day("30 1-3 29 * *", "Europe/Berlin", "2026-03-29", &["29 01:30 +01", "29 03:00 +02", "29 03:30 +02"]);
    check_day("0 2,3 29 * *", "Europe/Berlin", "2026-03-29", &["29 03:00 +02"]);
    check_day("15 2 4 10 *", "Australia/Lord_Howe", "2026-10-04", &["04 02:30 +11"]);
    // Cairo's days in spring begin at 01:00.
    check_day("0 0 24 4 *", "Africa/Cairo", "2026-04-24", &["24 01:00 +03"]);
}

#[test]
fn a_day_that_a_zone_skipped_runs_when_the_next_one_begins() {
    // Samoa went from the end of 29 December to the beginning of 31 December 2011.
    let after = "2011-12-30T09:00:00Z";
    assert_eq!(ticks("0 12 30 12 *", "Pacific/Apia", after, 1), ["2011-12-30T10:00:00Z"]);
    let all = latest("0 */6 30-31 12 *", "Pacific/Apia", ms(after), ms("2011-12-31T00:00:00Z"));
    assert_eq!(all, Ok(Some((ms("2011-12-30T22:00:00Z"), 3))), "the skipped four and the first are one instant");
}

#[test]
fn ten_years_of_missed_minutes_cost_no_more_than_one() {
    let (from, until) = (ms("2016-01-01T00:00:00Z"), ms("2026-01-01T00:00:00Z"));
    assert_eq!(latest("* * * * *", "UTC", from, until), Ok(Some((until, 3653 * 1440))));
    // Ten hours each year are shown twice and fire once.
    let before = MONTHS.get();
    let found = latest("* * * * *", "Europe/Berlin", from, until).unwrap().unwrap();
    assert_eq!(found, (until, 3653 * 1440 - 10 * 60));
    let looks = MONTHS.get() - before;
    // Each month once, and the few of each jump of the clock; there are 5,259,600 minutes.
    assert!(looks <= 10 * 12 + 20 * 8, "{looks} looks at months");
}

#[test]
fn the_end_of_time_is_no_error() {
    let end = ms("9999-12-30T22:00:00Z");
    assert_eq!(next("* * * * *", "Asia/Tokyo", u64::MAX), Ok(None));
    assert_eq!(next("0 0 31 12 *", "UTC", end), Ok(None));
    assert_eq!(latest("* * * * *", "UTC", u64::MAX - 1, u64::MAX), Ok(None));
    let all = latest("0 0 1 1 *", "UTC", 0, u64::MAX).unwrap();
    assert_eq!(all, Some((ms("9999-01-01T00:00:00Z"), 8029)));
    for zone in ["Pacific/Kiritimati", "Etc/GMT+12", "America/New_York"] {
        let (last, count) = latest("@daily", zone, 0, u64::MAX).unwrap().unwrap();
        assert!(last <= end && count > 8_000 * 365, "{zone}: {count} up to {}", rfc3339(last));
        assert_eq!(next("@daily", zone, last), Ok(None), "{zone}");
    }
}

#[test]
fn ticks_may_have_seconds_where_a_zones_offset_had() {
    // Monrovia was 44 minutes and 30 seconds behind until 7 January 1972.
    let after = "1972-01-01T00:00:00Z";
    assert_eq!(ticks("0 0 * * *", "Africa/Monrovia", after, 1), ["1972-01-01T00:44:30Z"]);
    let skipped = ticks("15,30,45 0 7 1 *", "Africa/Monrovia", after, 2);
    assert_eq!(skipped, ["1972-01-07T00:44:30Z", "1972-01-07T00:45:00Z"]);
}

#[track_caller]
fn check_error(expression: &str, why: &str) {
    let error = next(expression, "UTC", 0).unwrap_err();
    assert_eq!(error, format!("{expression:?} is not a cron expression: {why}"));
    assert_eq!(latest(expression, "UTC", 0, 1), Err(error));
}

#[test]
fn an_expression_that_does_not_parse_is_quoted_with_what_is_wrong_and_where() {
    let five = "instead of five: minute, hour, day of month, month, day of week";
    check_error("", &format!("it has 0 fields {five}"));
    check_error("* * * *", &format!("it has 4 fields {five}"));
    check_error("0 0 0 * * *", &format!("it has 6 fields {five}; there are no fields for seconds and years"));
    check_error("60 * * * *", "minute \"60\": 60 is not within 0 and 59");
    check_error("* 24 * * *", "hour \"24\": 24 is not within 0 and 23");
    check_error("* * 0 * *", "day of month \"0\": 0 is not within 1 and 31");
    check_error("* * * 13 *", "month \"13\": 13 is not within 1 and 12");
    check_error("* * * * 8", "day of week \"8\": 8 is not within 0 and 7");
    check_error(
        "* * * * 99999999999999999999",
        "day of week \"99999999999999999999\": 99999999999999999999 is not within 0 and 7",
    );
    check_error("a * * * *", "minute \"a\": \"a\" is not a number");
    check_error("-1 * * * *", "minute \"-1\": \"\" is not a number");
    check_error("+1 * * * *", "minute \"+1\": \"+1\" is not a number");
    check_error("1,,2 * * * *", "minute \"1,,2\": \"\" is not a number");
    check_error("5-1 * * * *", "minute \"5-1\": the range 5-1 ends before it begins");
    check_error("* * * * sat-mon", "day of week \"sat-mon\": the range sat-mon ends before it begins");
    check_error("*/0 * * * *", "minute \"*/0\": the step \"0\" is not a number above 0");
    check_error("*/ * * * *", "minute \"*/\": the step \"\" is not a number above 0");
    check_error("*/5/5 * * * *", "minute \"*/5/5\": the step \"5/5\" is not a number above 0");
    check_error("*5 * * * *", "minute \"*5\": \"*5\" is not a number");
    let months = "jan, feb, mar, apr, may, jun, jul, aug, sep, oct, nov, dec";
    check_error("* * * januar *", &format!("month \"januar\": \"januar\" is not a number, nor one of {months}"));
    let macros = "the macros are @yearly, @annually, @monthly, @weekly, @daily, @midnight, @hourly";
    check_error("@every 5m", macros);
    check_error("@reboot", macros);
    check_error("TZ=UTC 0 0 * * *", "a time zone is not part of the expression but a field of its own");
    check_error("* * \u{1f550} * *", "day of month \"\u{1f550}\": \"\u{1f550}\" is not a number");
    let long = next(&"*,".repeat(1000), "UTC", 0).unwrap_err();
    assert!(
        long.starts_with("\"*,*,") && long.ends_with("... is not a cron expression: it is longer than 1024 bytes"),
        "{long}"
    );
}

#[test]
fn a_zone_that_the_database_does_not_have_is_quoted() {
    for zone in ["", "Mars/Olympus", "Local", "Etc/Unknown", "UTC+1", "../etc/passwd"] {
        let error = next("* * * * *", zone, 0).unwrap_err();
        let expected =
            format!("{zone:?} is not a time zone of the IANA database, such as \"UTC\" or \"Europe/Berlin\"");
        assert_eq!(error, expected);
    }
}
