//! Which planned times of a schedule are due, and what becomes of each. Pure; the time is an argument.
//!
//! Daylight saving: a fixed time in the hour that is skipped runs at the first moment after it; a fixed time in the hour that
//! comes twice runs the first time. Expressions with `*` or steps in minute or hour follow the real time and so run in both.

use crate::error::{Error, Result};
use crate::runs::Missed;
use crate::time::{Timestamp, Zone, micros};
use croner::Cron;
use std::time::Duration;

/// Slots looked at in one pass: two months of minutes.
const MOST_SLOTS: usize = 100_000;
/// Missed slots that get a row each; the older ones share one.
const ROWS_EACH: usize = 1_000;

/// A cron expression in its zone.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    cron: Cron,
    zone: Zone,
}

impl Plan {
    /// # Errors
    /// `Invalid` for an expression or a zone that is none, and for a time that never comes.
    pub(crate) fn parse(cron: &str, zone: &str) -> Result<Self> {
        let zone = Zone::parse(zone).map_err(|e| Error::invalid(e.message()))?;
        if cron.len() > 191 {
            return Err(Error::invalid("the cron expression must have at most 191 bytes"));
        }
        let parsed: Cron = cron.parse().map_err(|e| Error::invalid(format!("cron expression {cron:?}: {e}")))?;
        Ok(Plan { cron: parsed, zone })
    }

    /// The first slot after an instant; `None` when there is none.
    pub(crate) fn next_after(&self, at: Timestamp) -> Option<Timestamp> {
        let at = jiff::Timestamp::from_microsecond(at.0).ok()?.to_zoned(self.zone.time_zone());
        let next = self.cron.find_next_occurrence(&at, false).ok()?;
        Some(Timestamp(next.timestamp().as_microsecond()))
    }

    /// The slots after `after` up to `until`, oldest first, at most [`MOST_SLOTS`].
    fn slots(&self, after: Timestamp, until: Timestamp) -> Vec<Timestamp> {
        let next = |at: &Timestamp| self.next_after(*at).filter(|slot| *slot <= until && slot > at);
        std::iter::successors(next(&after), next).take(MOST_SLOTS).collect()
    }
}

/// What is asked of a schedule at a time.
pub(crate) struct Look {
    pub accounted_until: Timestamp,
    pub now: Timestamp,
    pub is_paused: bool,
    pub missed: Missed,
    pub catch_up_for: Option<Duration>,
    pub grace: Duration,
}

/// A skipped slot, or several that end with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Skipped {
    pub slot: Timestamp,
    pub slots: i64,
}

/// What becomes of the slots that are due.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Due {
    /// Recorded, not run: missed, or disabled when the schedule is paused.
    pub skipped: Vec<Skipped>,
    /// Run next.
    pub slot: Option<Timestamp>,
    /// With this, every slot before `slot`, or up to here, has its row.
    pub accounted_until: Option<Timestamp>,
}

pub(crate) fn due(plan: &Plan, look: &Look) -> Due {
    let slots = plan.slots(look.accounted_until, look.now);
    let Some(newest) = slots.last().copied() else { return Due::default() };
    let age = |slot: Timestamp| look.now.0.saturating_sub(slot.0);
    let is_on_time = |slot: Timestamp| age(slot) <= micros(look.grace);
    let may_run = |slot: Timestamp| is_on_time(slot) || look.catch_up_for.is_none_or(|span| age(slot) <= micros(span));
    let slot = match look.missed {
        _ if look.is_paused => None,
        Missed::Skip => Some(newest).filter(|slot| is_on_time(*slot)),
        Missed::Once => Some(newest).filter(|slot| may_run(*slot)),
        Missed::All => slots.iter().copied().find(|slot| may_run(*slot)),
    };
    let before: Vec<Timestamp> = slots.iter().copied().filter(|other| slot.is_none_or(|slot| *other < slot)).collect();
    let each = before.len().saturating_sub(ROWS_EACH);
    let (shared, single) = before.split_at(each);
    let shared = shared.last().map(|last| Skipped { slot: *last, slots: i64::try_from(shared.len()).unwrap_or(i64::MAX) });
    let single = single.iter().map(|slot| Skipped { slot: *slot, slots: 1 });
    Due { skipped: shared.into_iter().chain(single).collect(), slot, accounted_until: before.last().copied() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn next(cron: &str, zone: &str, after: i64, count: usize) -> Vec<i64> {
        let plan = Plan::parse(cron, zone).unwrap();
        let mut at = Timestamp(after * 1_000_000);
        let mut slots = Vec::new();
        for _ in 0..count {
            at = plan.next_after(at).unwrap();
            slots.push(at.0 / 1_000_000);
        }
        slots
    }

    // 81
    #[test]
    fn midnight_in_a_zone_is_its_own_after_the_clocks_have_changed() {
        assert_eq!(next("0 0 * * *", "Europe/Copenhagen", 1_554_501_600, 1), [1_554_588_000]);
    }

    // 126
    #[test]
    fn a_fixed_time_runs_once_on_the_days_the_clocks_change() {
        // 2026-11-01: 01:30 comes twice in New York; the first is 05:30Z, and the next is a day later.
        assert_eq!(next("30 1 * * *", "America/New_York", 1_793_491_200, 2), [1_793_511_000, 1_793_601_000]);
        // 2027-03-14: 02:30 does not come; it runs at 03:00, 07:00Z.
        assert_eq!(next("30 2 * * *", "America/New_York", 1_804_999_000, 2), [1_805_007_600, 1_805_092_200]);
        // Each half hour follows the real time: the doubled hour has four.
        let half_hours = next("*/30 * * * *", "America/New_York", 1_793_509_200 - 1, 5);
        assert!(half_hours.windows(2).all(|pair| pair[1] - pair[0] == 1_800), "{half_hours:?}");
    }

    fn look(missed: Missed) -> Look {
        let now = Timestamp(1_700_000_400_000_000);
        Look {
            accounted_until: Timestamp(now.0 - 7 * 86_400_000_000),
            now,
            is_paused: false,
            missed,
            catch_up_for: None,
            grace: Duration::from_secs(90),
        }
    }

    // 127
    #[test]
    fn after_a_week_away_each_policy_accounts_for_every_slot() {
        let plan = Plan::parse("*/15 * * * *", "UTC").unwrap();
        let total = |due: &Due| due.skipped.iter().map(|skipped| skipped.slots).sum::<i64>();
        let skip = due(&plan, &look(Missed::Skip));
        assert_eq!((total(&skip), skip.slot), (672, None));
        let once = due(&plan, &look(Missed::Once));
        assert_eq!(
            (total(&once), once.slot),
            (671, plan.slots(look(Missed::Once).accounted_until, look(Missed::Once).now).last().copied())
        );
        let all = due(&plan, &look(Missed::All));
        assert_eq!((total(&all), all.accounted_until), (0, None));
        assert_eq!(all.slot, plan.next_after(look(Missed::All).accounted_until));
        let window = due(&plan, &Look { catch_up_for: Some(Duration::from_secs(3_600)), ..look(Missed::All) });
        assert_eq!(total(&window), 668, "an hour holds four");
        let paused = due(&plan, &Look { is_paused: true, ..look(Missed::All) });
        assert_eq!((total(&paused), paused.slot), (672, None));
    }

    #[test]
    fn a_slot_within_the_grace_is_on_time_and_older_slots_share_a_row() {
        let plan = Plan::parse("* * * * *", "UTC").unwrap();
        let due = due(&plan, &look(Missed::Skip));
        assert_eq!(due.slot, Some(Timestamp(1_700_000_400_000_000)));
        assert_eq!(due.skipped.len(), 1_001);
        assert_eq!(due.skipped[0].slots, 7 * 1_440 - 1_001);
    }

    #[test]
    fn nonsense_is_refused() {
        for cron in ["", "* * * *", "61 * * * *", "every day", "* * * * * * * *", "0 25 * * *"] {
            assert!(Plan::parse(cron, "UTC").is_err(), "{cron}");
        }
        for zone in ["", "Mars/Olympus", "+25:00", "8"] {
            assert!(Plan::parse("* * * * *", zone).is_err(), "{zone}");
        }
        assert!(Plan::parse("0 0 30 2 *", "UTC").unwrap().next_after(Timestamp(0)).is_none(), "never comes");
    }
}
