//! What the effect ledger and the schedules tell: effects nobody knows about, plans nobody looks at.

use super::Finding;
use super::look::{Look, answered};
use crate::config::ClaimShape;
use crate::dialect::Statements;
use crate::effect::EffectState;
use crate::error::Result;
use crate::plan::slots::Plan;
use crate::plan::{plain, runs as plan};
use crate::time::{Timestamp, micros};
use crate::value::Value;
use std::time::Duration;

/// What is counted stops here.
const CAP: i64 = 1_000;
/// A look that is later than a slot's grace and this is taken for missing.
const LATE: Duration = Duration::from_secs(300);

pub(super) async fn look(look: &mut Look<'_>) -> Result<()> {
    // The shape says nothing about these statements.
    let statements = Statements::new(look.shared.flavor(), ClaimShape::SkipLocked, &look.shared.names).ledger;
    let prefix = look.shared.config.prefix.as_str().to_owned();
    let mut unknown = 0;
    let of_state = vec![EffectState::Unknown.name().into(), Value::Int(i64::MAX), Value::Int(CAP)];
    for (sql, values) in [(&statements.list_effects_of_state, of_state), (&statements.lapsed_effects, vec![Value::Int(CAP)])] {
        unknown += answered(look.session.query(&plain(sql, values)).await)?.map_or(0, |rows| rows.len());
    }
    if unknown > 0 {
        let count = if unknown >= CAP as usize { format!("{CAP} or more") } else { unknown.to_string() };
        look.find(
            Finding::warning("effects-unknown", format!("{prefix}effects"), format!("effects that may have happened: {count}"))
                .so("they are not sent again before somebody has said whether they have")
                .mend("rowclaim effects list --state unknown, then rowclaim effects resolve"),
        );
    }
    let schedules = answered(look.session.query(&plain(&statements.list_schedules, vec![Value::Int(CAP)])).await)?;
    for row in schedules.unwrap_or_default() {
        let (record, now) = plan::schedule(&row)?;
        let Ok(plan) = Plan::parse(&record.request.cron, &record.request.zone) else { continue };
        let Some(next) = plan.next_after(record.accounted_until).filter(|_| record.paused_at.is_none()) else { continue };
        let late = Timestamp(next.0.saturating_add(micros(record.request.grace + LATE)));
        if late < now {
            let minutes = now.0.saturating_sub(next.0) / 60_000_000;
            let message =
                format!("schedule {:?}: a slot is due for {minutes} minutes and nobody has looked", record.request.task);
            look.find(
                Finding::warning("schedule-unattended", format!("{prefix}schedules"), message)
                    .so("the task does not run")
                    .mend("have run_due called each minute, or put `rowclaim schedule tick` into a crontab"),
            );
        }
    }
    Ok(())
}
