//! When the certificates by which the API server knows the host's webhooks change. Lifetimes and the time come in, the next
//! step goes out; keys and certificates are made and kept elsewhere.
//!
//! An authority is believed before it is used. A new one is first trusted beside the old, in every webhook's caBundle, and
//! issues only when all API servers can have heard of that; the old one stays trusted for as long as it lives, because
//! another replica may still answer with a certificate of its. So no call fails while authorities change.

/// How long an authority lives. A year: it is replaced without anybody noticing, and a key that got out ends by itself.
pub const AUTHORITY_MS: u64 = 365 * DAY_MS;
/// How long a certificate of the host lives. It costs a millisecond to make and is kept nowhere but in memory.
pub const LEAF_MS: u64 = 30 * DAY_MS;
/// Certificates begin this long before they are made, because clocks differ, and one that is set back by an hour makes none
/// of them a certificate of the future.
pub const BACKDATED_MS: u64 = 2 * 3_600 * 1_000;
/// How long a new authority is trusted before it issues: API servers take webhook configurations over within a second or
/// two, and connections that were being made meanwhile have long been used.
pub const PROPAGATION_MS: u64 = 30 * 1_000;

const DAY_MS: u64 = 24 * 3_600 * 1_000;

/// From when until when a certificate is valid, in Unix milliseconds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Validity {
    /// From this moment on.
    pub from_ms: u64,
    /// Until this one.
    pub until_ms: u64,
}

impl Validity {
    /// That of a certificate which is made now.
    pub fn beginning(now_ms: u64, lifetime_ms: u64) -> Self {
        Self { from_ms: now_ms.saturating_sub(BACKDATED_MS), until_ms: now_ms.saturating_add(lifetime_ms) }
    }

    /// When it is time for the next one: at two thirds of its life, so that a third is left for whatever goes wrong.
    pub fn renew_at_ms(self) -> u64 {
        self.from_ms + self.until_ms.saturating_sub(self.from_ms) / 3 * 2
    }

    /// Whether it is valid at a moment.
    pub fn holds_at(self, now_ms: u64) -> bool {
        (self.from_ms..self.until_ms).contains(&now_ms)
    }
}

/// The authorities that there are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Authorities {
    /// The one that issues.
    pub issuing: Option<Validity>,
    /// The one that will: trusted already.
    pub next: Option<Validity>,
    /// The one that issued before it, and is still trusted.
    pub previous: Option<Validity>,
    /// Every webhook is known to trust the next one.
    pub next_is_trusted: bool,
}

/// What to do about them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Step {
    /// Make one that issues at once: there is none that anybody could believe.
    Create,
    /// Make the next one, and have it trusted.
    Prepare,
    /// Let the next one issue, and keep trusting the one before.
    Promote,
    /// Trust the previous one no longer: it has expired.
    Forget,
    /// Nothing before this moment.
    Wait {
        /// Unix milliseconds.
        until_ms: u64,
    },
}

/// The next step.
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
        None if now_ms >= issuing.renew_at_ms() => return Step::Prepare,
        None => issuing.renew_at_ms(),
        Some(next) => {
            let promote_at_ms = next.from_ms + BACKDATED_MS + PROPAGATION_MS;
            if authorities.next_is_trusted && now_ms >= promote_at_ms {
                return Step::Promote;
            }
            // Whoever has it trusted comes back with that.
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
    const HOUR_MS: u64 = 3_600 * 1_000;

    /// Made at the hour, for so many hours.
    fn made_at(hour: u64, hours: u64) -> Option<Validity> {
        Some(Validity::beginning(hour * HOUR_MS, hours * HOUR_MS))
    }

    #[test]
    fn without_a_valid_authority_one_is_made_that_issues_at_once() {
        assert_eq!(step(HOUR_MS, &NONE), Step::Create);
        let expired = Authorities { issuing: made_at(0, 24), ..NONE };
        assert_eq!(step(24 * HOUR_MS, &expired), Step::Create, "it expired while the host was down");
        let clock_went_back = Authorities { issuing: made_at(48, 24), ..NONE };
        assert_eq!(step(HOUR_MS, &clock_went_back), Step::Create);
    }

    #[test]
    fn at_two_thirds_of_its_life_the_next_is_prepared_and_issues_only_when_everybody_trusts_it() {
        let mut authorities = Authorities { issuing: made_at(0, 30), ..NONE };
        let renew_at_ms = authorities.issuing.unwrap().renew_at_ms();
        assert_eq!(renew_at_ms.div_ceil(HOUR_MS), 20);
        assert_eq!(step(renew_at_ms - 1, &authorities), Step::Wait { until_ms: renew_at_ms });
        assert_eq!(step(renew_at_ms, &authorities), Step::Prepare);

        authorities.next = Some(Validity::beginning(renew_at_ms, 30 * HOUR_MS));
        let promote_at_ms = renew_at_ms + PROPAGATION_MS;
        assert_eq!(step(renew_at_ms, &authorities), Step::Wait { until_ms: promote_at_ms });
        let expires = Step::Wait { until_ms: 30 * HOUR_MS };
        assert_eq!(step(promote_at_ms, &authorities), expires, "a webhook that could not be written does not trust it");
        authorities.next_is_trusted = true;
        assert_eq!(step(promote_at_ms - 1, &authorities), Step::Wait { until_ms: promote_at_ms });
        assert_eq!(step(promote_at_ms, &authorities), Step::Promote);
    }

    #[test]
    fn an_authority_is_trusted_as_long_as_it_lives_and_then_forgotten() {
        let authorities = Authorities { issuing: made_at(20, 30), previous: made_at(0, 30), ..NONE };
        assert_eq!(step(21 * HOUR_MS, &authorities), Step::Wait { until_ms: 30 * HOUR_MS });
        assert_eq!(step(30 * HOUR_MS, &authorities), Step::Forget);
    }

    #[test]
    fn a_prepared_authority_takes_over_when_the_one_before_has_expired() {
        let authorities = Authorities { issuing: made_at(0, 30), next: made_at(25, 30), ..NONE };
        assert_eq!(step(31 * HOUR_MS, &authorities), Step::Promote, "it is believed at least as much as a new one");
    }

    #[test]
    fn a_step_never_waits_for_what_is_past() {
        for hour in 0..80 {
            for next_is_trusted in [false, true] {
                let all = [None, made_at(0, 30), made_at(20, 30)];
                for (issuing, next) in all.iter().flat_map(|issuing| all.iter().map(move |next| (*issuing, *next))) {
                    let authorities = Authorities { issuing, next, previous: made_at(0, 24), next_is_trusted };
                    if let Step::Wait { until_ms } = step(hour * HOUR_MS, &authorities) {
                        assert!(until_ms > hour * HOUR_MS, "at {hour}: {authorities:?}");
                    }
                }
            }
        }
    }
}
