//! The rotation of the webhooks' certificate authorities. Lifetimes and the time come in, the next step comes out; keys
//! and certificates are made and stored elsewhere.
//!
//! A new authority is trusted before it issues: every webhook's caBundle first gets both, and the new one issues when
//! all API servers can have read that. The old one stays trusted until it expires, because another replica may still
//! serve a certificate of it. So no call fails during a rotation.

/// The lifetime of an authority. One year bounds the use of a leaked key, and the rotation needs no person.
pub const AUTHORITY_MS: u64 = 365 * DAY_MS;
/// The lifetime of the host's certificate. It takes a millisecond to make and is only kept in memory.
pub const LEAF_MS: u64 = 30 * DAY_MS;
/// Certificates are valid from this long before they are made, because clocks differ and are set back by an hour.
pub const BACKDATED_MS: u64 = 2 * 3_600 * 1_000;
/// How long a new authority is trusted before it issues. API servers read webhook configurations within a second or
/// two, and finish their open handshakes soon after.
pub const PROPAGATION_MS: u64 = 30 * 1_000;

const DAY_MS: u64 = 24 * 3_600 * 1_000;

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

    /// When to renew.
    pub fn renew_at_ms(self) -> u64 {
        renew_at_ms(self.from_ms, self.until_ms.saturating_sub(self.from_ms))
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
        None if now_ms >= issuing.renew_at_ms() => return Step::Prepare,
        None => issuing.renew_at_ms(),
        Some(next) => {
            let promote_at_ms = next.from_ms + BACKDATED_MS + PROPAGATION_MS;
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
    const HOUR_MS: u64 = 3_600 * 1_000;

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
        assert_eq!(step(promote_at_ms, &authorities), expires, "some webhook does not trust it yet");
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
        assert_eq!(step(31 * HOUR_MS, &authorities), Step::Promote, "some webhooks trust it, and none a new one");
    }

    #[test]
    fn a_step_never_waits_for_a_past_time() {
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
