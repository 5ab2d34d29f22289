//! An expression on the calendar, in wall time: its first minute from one on, its last before one, and the number
//! between two. Every day has 24 hours here.
//!
//! The days of a month are bits of one word, so each step is a month, of which the calendar has 4800 before it repeats;
//! the minutes of a day are two words and need no steps.

use std::ops::Range;

use jiff::civil::{Date, DateTime};

use crate::expression::{DayRule, Expression};

/// Whole minutes of a wall clock.
pub(crate) type Walls = Range<DateTime>;

/// The months of 400 years, which are exactly 20,871 weeks: the calendar repeats, weekdays included. A schedule that
/// does not fire within them never does.
const CYCLE_MONTHS: i32 = 400 * 12;
const HOUR: u32 = 60;

#[cfg(test)]
thread_local! {
    /// Months that this thread has looked at.
    pub(crate) static MONTHS: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
}
/// One bit for the first day of each of the six weeks that a month may touch.
const WEEKS: u64 = 1 | 1 << 7 | 1 << 14 | 1 << 21 | 1 << 28 | 1 << 35;

impl Expression {
    /// The first wall minute at or after one.
    pub(crate) fn first_from(&self, from: DateTime) -> Option<DateTime> {
        let (date, minute) = (from.date(), minute_of(from));
        if self.has(date)
            && let Some(found) = self.first_minute_from(minute)
        {
            return Some(at(date, found));
        }
        Some(at(self.first_day_after(date)?, self.first_minute_from(0)?))
    }

    /// The last wall minute before one.
    pub(crate) fn last_before(&self, to: DateTime) -> Option<DateTime> {
        let (date, minute) = (to.date(), minute_of(to));
        if self.has(date)
            && let Some(found) = self.last_minute_before(minute)
        {
            return Some(at(date, found));
        }
        Some(at(self.last_day_before(date)?, self.last_minute_before(24 * HOUR)?))
    }

    /// The number of wall minutes in the range.
    pub(crate) fn count(&self, walls: Walls) -> u64 {
        let before = |wall: DateTime| if self.has(wall.date()) { self.minutes_before(minute_of(wall)) } else { 0 };
        if walls.is_empty() {
            return 0;
        }
        // The first day and those between in full, less what precedes the start, plus the part of the last day.
        let days = self.days_between(walls.start.date(), walls.end.date());
        days * self.minutes_before(24 * HOUR) + before(walls.end) - before(walls.start)
    }

    fn days_between(&self, from: Date, to: Date) -> u64 {
        let days_before = |date: Date| {
            let before = (1 << date.day()) - 1;
            u64::from((self.days_of(Month::of(date)) & before).count_ones())
        };
        let (first, last) = (Month::of(from), Month::of(to));
        let months = last.0 - first.0;
        let count = |months: i32| -> u64 {
            (0..months).map(|n| u64::from(self.days_of(Month(first.0 + n)).count_ones())).sum()
        };
        let in_cycles = match u64::from((months / CYCLE_MONTHS).unsigned_abs()) {
            0 => 0,
            cycles => cycles * count(CYCLE_MONTHS),
        };
        in_cycles + count(months % CYCLE_MONTHS) + days_before(to) - days_before(from)
    }

    fn has(&self, date: Date) -> bool {
        self.days_of(Month::of(date)) >> date.day() & 1 == 1
    }

    fn first_day_after(&self, date: Date) -> Option<Date> {
        let mut month = Month::of(date);
        let later = u64::MAX << (date.day() + 1);
        let mut days = self.days_of(month) & later;
        for _ in 0..=CYCLE_MONTHS {
            if days != 0 {
                return month.day(days.trailing_zeros());
            }
            month = Month(month.0 + 1);
            days = self.days_of(month);
        }
        None
    }

    fn last_day_before(&self, date: Date) -> Option<Date> {
        let mut month = Month::of(date);
        let mut days = self.days_of(month) & ((1 << date.day()) - 1);
        for _ in 0..=CYCLE_MONTHS {
            if days != 0 {
                return month.day(days.ilog2());
            }
            month = Month(month.0 - 1);
            days = self.days_of(month);
        }
        None
    }

    /// The days of a month, as bits 1 to 31.
    fn days_of(&self, month: Month) -> u64 {
        #[cfg(test)]
        MONTHS.set(MONTHS.get() + 1);
        if self.months >> month.number() & 1 == 0 {
            return 0;
        }
        let Some(first) = month.day(1) else { return 0 };
        let existing = (1 << (first.days_in_month() + 1)) - 1;
        let by_weekday = (self.weekdays * WEEKS) >> first.weekday().to_sunday_zero_offset() << 1;
        let days = match self.day_rule {
            DayRule::Both => self.days & by_weekday,
            DayRule::Either => self.days | by_weekday,
        };
        days & existing
    }

    /// The number of minutes of a day before this one.
    fn minutes_before(&self, minute: u32) -> u64 {
        let (hour, minute) = (minute / HOUR, minute % HOUR);
        let per_hour = u64::from(self.minutes.count_ones());
        let hours = u64::from((self.hours & ((1 << hour) - 1)).count_ones());
        let in_hour = u64::from((self.minutes & ((1 << minute) - 1)).count_ones());
        hours * per_hour + (self.hours >> hour & 1) * in_hour
    }

    fn first_minute_from(&self, minute: u32) -> Option<u32> {
        let (hour, minute) = (minute / HOUR, minute % HOUR);
        let left = self.minutes & (u64::MAX << minute);
        if self.hours >> hour & 1 == 1 && left != 0 {
            return Some(hour * HOUR + left.trailing_zeros());
        }
        let hours = self.hours & (u64::MAX << (hour + 1));
        (hours != 0).then(|| hours.trailing_zeros() * HOUR + self.minutes.trailing_zeros())
    }

    fn last_minute_before(&self, minute: u32) -> Option<u32> {
        let (hour, minute) = (minute / HOUR, minute % HOUR);
        let passed = self.minutes & ((1 << minute) - 1);
        if self.hours >> hour & 1 == 1 && passed != 0 {
            return Some(hour * HOUR + passed.ilog2());
        }
        let hours = self.hours & ((1 << hour) - 1);
        (hours != 0).then(|| hours.ilog2() * HOUR + self.minutes.ilog2())
    }
}

fn minute_of(wall: DateTime) -> u32 {
    wall.hour().unsigned_abs() as u32 * HOUR + wall.minute().unsigned_abs() as u32
}

fn at(date: Date, minute: u32) -> DateTime {
    date.at((minute / HOUR) as i8, (minute % HOUR) as i8, 0, 0)
}

/// A month, counted from January of year 0.
#[derive(Clone, Copy)]
struct Month(i32);

impl Month {
    fn of(date: Date) -> Self {
        Self(i32::from(date.year()) * 12 + i32::from(date.month()) - 1)
    }

    /// 1 to 12.
    fn number(self) -> i32 {
        self.0.rem_euclid(12) + 1
    }

    /// One of its days; None outside the range of dates.
    fn day(self, day: u32) -> Option<Date> {
        Date::new(i16::try_from(self.0.div_euclid(12)).ok()?, self.number() as i8, i8::try_from(day).ok()?).ok()
    }
}
