//! Validates the schedule of a CronTab before the API server stores it.

use mortise_sdk::prelude::*;

use crate::CronTab;

/// A valid expression: an error with it is an error of the zone.
const GOOD: &str = "@yearly";

pub(crate) fn check(tab: &CronTab, review: &Review<CronTab>) -> Verdict {
    let schedule = |tab: &CronTab| (tab.spec.cron_spec.clone(), tab.spec.time_zone.clone());
    // An invalid schedule that was stored before must not block changes of other fields.
    if review.old.as_ref().is_some_and(|old| schedule(old) == schedule(tab)) {
        return Verdict::allowed();
    }
    let (cron_spec, zone) = (&tab.spec.cron_spec, tab.spec.time_zone.as_deref().unwrap_or("UTC"));
    let now = review.now_unix_ms();
    let wrong = |field: &str, why: &str| Violation::new(field, ["Invalid value: ", why].concat()).into();
    if let Err(error) = review.next_tick(GOOD, zone, now) {
        return wrong("spec.timeZone", error.message());
    }
    match review.next_tick(cron_spec, zone, now) {
        Ok(Some(_)) => Verdict::allowed(),
        Ok(None) => Verdict::allowed().warning(["spec.cronSpec never fires: ", cron_spec].concat()),
        Err(error) => wrong("spec.cronSpec", error.message()),
    }
}
