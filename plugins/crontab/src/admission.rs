//! What is asked about a CronTab before it is stored: whether its schedule means something. It starts no Job.

use mortise_sdk::prelude::*;

use crate::CronTab;

/// Fires in every zone there is: whatever is wrong with it is wrong with the zone.
const GOOD: &str = "@yearly";

pub(crate) fn check(tab: &CronTab, review: &Review<CronTab>) -> Verdict {
    let schedule = |tab: &CronTab| (tab.spec.cron_spec.clone(), tab.spec.time_zone.clone());
    // One that is stored already, from before it was checked, keeps nobody from changing what else there is.
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
