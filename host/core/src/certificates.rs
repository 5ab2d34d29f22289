//! The rotation of the webhooks' certificate authorities. Lifetimes and the time come in, the next step comes out; keys
//! and certificates are made and stored elsewhere.
//!
//! A new authority is trusted before it issues: every webhook's caBundle first gets both, and the new one issues when
//! all API servers can have read that. The old one stays trusted until it expires, because another replica may still
//! serve a certificate of it. So no call fails during a rotation.

use crate::time::Now;

/// The lifetime of an authority. One year bounds the use of a leaked key, and the rotation needs no person.
pub const AUTHORITY_MS: u64 = 365 * DAY_MS;
/// The lifetime of the host's certificate. It takes a millisecond to make and is only kept in memory.
pub const LEAF_MS: u64 = 30 * DAY_MS;
/// Certificates are valid from this long before they are made: what a host makes whose clock is ahead by less than that, those
/// whose clocks are right accept at once. Nothing else depends on it: authorities and certificates change by their ends.
pub const BACKDATED_MS: u64 = 2 * AUTHORITY_MS;
/// How long a new authority is trusted before it issues. API servers read webhook configurations within a second or
/// two, and finish their open handshakes soon after.
pub const PROPAGATION_MS: u64 = 30 * 1_000;

const DAY_MS: u64 = 24 * 3_600 * 1_000;
/// What the wall clock may differ from the steady one between two looks, which are a minute apart: summer time, and a
/// correction after a suspension.
const JUMP_MS: u64 = 2 * 3_600 * 1_000;
/// How long a jump lasts before it is believed. Renewals are due ten days before an end, so none is late.
const BELIEVED_MS: u64 = 10 * 60 * 1_000;

/// The validity of a certificate, in Unix milliseconds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Validity {
    /// Not before.
    pub from_ms: u64,
    /// Not after.
    pub until_ms: u64,
}

impl Validity {
    /// The validity of a certificate that is made now.
    pub fn beginning(now_ms: u64, lifetime_ms: u64) -> Self {
        Self { from_ms: now_ms.saturating_sub(BACKDATED_MS), until_ms: now_ms.saturating_add(lifetime_ms) }
    }

    /// When to renew what lasts so long: when a third of that is left for retries.
    pub fn renew_at_ms(self, lifetime_ms: u64) -> u64 {
        self.until_ms.saturating_sub(lifetime_ms / 3)
    }

    /// Whether it is valid at a time.
    pub fn holds_at(self, now_ms: u64) -> bool {
        (self.from_ms..self.until_ms).contains(&now_ms)
    }
}

/// When to renew what lasts so long: after two thirds, so that a third is left for retries.
pub fn renew_at_ms(from_ms: u64, lifetime_ms: u64) -> u64 {
    from_ms.saturating_add(lifetime_ms / 3 * 2)
}

/// The time by which certificates change: the wall clock's, but for a jump that the steady clock does not confirm, until it has
/// lasted. A clock that is wrong for a minute so makes no authority that the API server does not accept.
#[derive(Clone, Default, Debug)]
pub struct Calendar {
    /// When both clocks were last believed.
    believed: Option<Now>,
    /// When the jump was first seen, by the steady clock.
    jumped_ms: Option<u64>,
}

impl Calendar {
    /// The time in Unix milliseconds.
    pub fn time(&mut self, now: Now) -> u64 {
        if let Some(before) = self.believed {
            let expected_ms = before.unix_ms.saturating_add(now.mono_ms.saturating_sub(before.mono_ms));
            if expected_ms.abs_diff(now.unix_ms) > JUMP_MS {
                let jumped_ms = *self.jumped_ms.get_or_insert(now.mono_ms);
                if now.mono_ms.saturating_sub(jumped_ms) < BELIEVED_MS {
                    return expected_ms;
                }
            }
        }
        *self = Self { believed: Some(now), jumped_ms: None };
        now.unix_ms
    }
}

/// The existing authorities.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Authorities {
    /// Issues.
    pub issuing: Option<Validity>,
    /// Trusted, and the next to issue.
    pub next: Option<Validity>,
    /// Issued before, and is still trusted.
    pub previous: Option<Validity>,
    /// Whether every webhook trusts `next`.
    pub next_is_trusted: bool,
}

/// The next step of the rotation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Step {
    /// Make an authority that issues at once, because no valid one exists.
    Create,
    /// Make the next authority, and add it to every caBundle.
    Prepare,
    /// Let the next authority issue; the previous one stays trusted.
    Promote,
    /// Remove the previous authority, which has expired.
    Forget,
    /// Nothing before this time.
    Wait {
        /// Unix milliseconds.
        until_ms: u64,
    },
}

/// Decides the next step.
pub fn step(now_ms: u64, authorities: &Authorities) -> Step {
    let holds = |validity: &Validity| validity.holds_at(now_ms);
    let next = authorities.next.filter(holds);
    let Some(issuing) = authorities.issuing.filter(holds) else {
        return if next.is_some() { Step::Promote } else { Step::Create };
    };
    if authorities.previous.is_some_and(|previous| !holds(&previous)) {
        return Step::Forget;
    }
    let until_ms = match next {
        None if now_ms >= issuing.renew_at_ms(AUTHORITY_MS) => return Step::Prepare,
        None => issuing.renew_at_ms(AUTHORITY_MS),
        Some(next) => {
            let promote_at_ms = next.until_ms.saturating_sub(AUTHORITY_MS) + PROPAGATION_MS;
            if authorities.next_is_trusted && now_ms >= promote_at_ms {
                return Step::Promote;
            }
            // The caller steps again when `next_is_trusted` changes.
            if now_ms < promote_at_ms { promote_at_ms } else { issuing.until_ms }
        }
    };
    let forget_at_ms = authorities.previous.map_or(u64::MAX, |previous| previous.until_ms);
    Step::Wait { until_ms: until_ms.min(forget_at_ms).min(issuing.until_ms) }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NONE: Authorities = Authorities { issuing: None, next: None, previous: None, next_is_trusted: false };
    /// Long after [`BACKDATED_MS`].
    const BEGIN_MS: u64 = 10 * AUTHORITY_MS;
    const RENEWED_MS: u64 = AUTHORITY_MS / 3 * 2;

    fn day(day: u64) -> u64 {
        BEGIN_MS + day * DAY_MS
    }

    fn made_on(made: u64) -> Option<Validity> {
        Some(Validity::beginning(day(made), AUTHORITY_MS))
    }

    #[test]
    fn without_a_valid_authority_one_is_made_that_issues_at_once() {
        assert_eq!(step(day(0), &NONE), Step::Create);
        let expired = Authorities { issuing: made_on(0), ..NONE };
        assert_eq!(step(day(365), &expired), Step::Create, "it expired while the host was down");
        let clock_went_back = Authorities { issuing: made_on(731), ..NONE };
        assert_eq!(step(day(0), &clock_went_back), Step::Create);
    }

    #[test]
    fn at_two_thirds_of_its_life_the_next_is_prepared_and_issues_only_when_everybody_trusts_it() {
        let mut authorities = Authorities { issuing: made_on(0), ..NONE };
        let renew_at_ms = authorities.issuing.unwrap().renew_at_ms(AUTHORITY_MS);
        assert_eq!(renew_at_ms.abs_diff(day(0) + RENEWED_MS), 0);
        assert_eq!(step(renew_at_ms - 1, &authorities), Step::Wait { until_ms: renew_at_ms });
        assert_eq!(step(renew_at_ms, &authorities), Step::Prepare);

        authorities.next = Some(Validity::beginning(renew_at_ms, AUTHORITY_MS));
        let promote_at_ms = renew_at_ms + PROPAGATION_MS;
        assert_eq!(step(renew_at_ms, &authorities), Step::Wait { until_ms: promote_at_ms });
        let expires = Step::Wait { until_ms: day(365) };
        assert_eq!(step(promote_at_ms, &authorities), expires, "some webhook does not trust it yet");
        authorities.next_is_trusted = true;
        assert_eq!(step(promote_at_ms - 1, &authorities), Step::Wait { until_ms: promote_at_ms });
        assert_eq!(step(promote_at_ms, &authorities), Step::Promote);
    }

    #[test]
    fn an_authority_that_was_dated_back_by_hours_is_renewed_at_the_same_time() {
        let before = Some(Validity { from_ms: day(0) - 2 * 3_600 * 1_000, until_ms: day(365) });
        let wait = step(day(1), &Authorities { issuing: before, ..NONE });
        assert_eq!(wait, step(day(1), &Authorities { issuing: made_on(0), ..NONE }));
        let next = Authorities { issuing: made_on(0), next: before, next_is_trusted: true, ..NONE };
        assert_eq!(step(day(0) + PROPAGATION_MS, &next), Step::Promote);
    }

    #[test]
    fn an_authority_is_trusted_as_long_as_it_lives_and_then_forgotten() {
        let authorities = Authorities { issuing: made_on(243), previous: made_on(0), ..NONE };
        assert_eq!(step(day(244), &authorities), Step::Wait { until_ms: day(365) });
        assert_eq!(step(day(365), &authorities), Step::Forget);
    }

    #[test]
    fn a_prepared_authority_takes_over_when_the_one_before_has_expired() {
        let authorities = Authorities { issuing: made_on(0), next: made_on(300), ..NONE };
        assert_eq!(step(day(366), &authorities), Step::Promote, "some webhooks trust it, and none a new one");
    }

    #[test]
    fn a_step_never_waits_for_a_past_time() {
        for today in 0..900 {
            for next_is_trusted in [false, true] {
                let all = [None, made_on(0), made_on(243)];
                for (issuing, next) in all.iter().flat_map(|issuing| all.iter().map(move |next| (*issuing, *next))) {
                    let authorities = Authorities { issuing, next, previous: made_on(0), next_is_trusted };
                    if let Step::Wait { until_ms } = step(day(today), &authorities) {
                        assert!(until_ms > day(today), "on {today}: {authorities:?}");
                    }
                }
            }
        }
    }

    #[test]
    fn a_certificate_of_a_clock_that_is_ahead_holds_at_the_right_time() {
        for lifetime_ms in [AUTHORITY_MS, LEAF_MS] {
            assert!(Validity::beginning(day(400), lifetime_ms).holds_at(day(0)));
            assert!(Validity::beginning(day(0), lifetime_ms).holds_at(day(1)), "and one of a clock that is behind");
        }
    }

    #[test]
    fn a_jump_of_the_wall_clock_that_does_not_last_changes_no_certificate_in_either_direction() {
        let minute = |minute: u64, jump_ms: i64| Now {
            mono_ms: 7 + minute * 60_000,
            unix_ms: (day(0) + minute * 60_000).saturating_add_signed(jump_ms),
        };
        let days = |days: i64| days * DAY_MS.cast_signed();
        for jump_ms in [days(400), days(-400), days(1)] {
            let mut calendar = Calendar::default();
            let authorities = Authorities { issuing: made_on(0), ..NONE };
            let mut time = |at, jump_ms| calendar.time(minute(at, jump_ms));
            assert_eq!(time(0, 0), minute(0, 0).unix_ms);
            for at in 1..=10 {
                let now_ms = time(at, jump_ms);
                assert_eq!(now_ms, minute(at, 0).unix_ms);
                assert!(matches!(step(now_ms, &authorities), Step::Wait { .. }));
            }
            assert_eq!(time(10, 0), minute(10, 0).unix_ms, "it was wrong");
            for at in 11..21 {
                assert_eq!(time(at, jump_ms), minute(at, 0).unix_ms, "it is wrong again");
            }
            assert_eq!(time(21, jump_ms), minute(21, jump_ms).unix_ms, "it lasts");
            assert_eq!(time(22, jump_ms), minute(22, jump_ms).unix_ms);
        }
        let mut calendar = Calendar::default();
        for (at, jump_ms) in [(0, 0), (1, 3_600_000), (2, 0), (3, -3_600_000)] {
            assert_eq!(calendar.time(minute(at, jump_ms)), minute(at, jump_ms).unix_ms, "an hour is no jump");
        }
    }
}
