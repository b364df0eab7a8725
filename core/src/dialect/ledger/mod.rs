//! The statements of effects, runs and schedules; those of leases are with the claims'.

pub(super) mod mysql;
pub(super) mod sqlite;

super::statements! {
    LedgerTexts, Ledger:

    /// One effect.
    effect,
    /// Records an effect that is being sent for the first time.
    insert_effect,
    /// Hands an effect that stands as it was read to the next sender.
    take_effect,
    /// Extends the lease of an effect's sender.
    renew_effect,
    /// What the sender found out.
    settle_effect,
    /// Marks an effect whose sender is gone.
    lapse_effect,
    /// Effects whose sender is gone.
    lapsed_effects,
    /// What a person found out about an effect that is unknown, or whose sender is gone.
    resolve_effect,
    /// Effects before an id, newest first.
    list_effects,
    /// Effects of one state before an id, newest first.
    list_effects_of_state,

    /// The run of a task's slot.
    run_of_slot,
    /// How often people ran a slot again.
    reruns,
    /// What an earlier try of the same begin has written.
    run_of_token,
    /// Records a run that starts.
    insert_run,
    /// Records a slot that is not run.
    insert_skipped,
    /// Records a slot that is not run unless it has a row.
    insert_skipped_once,
    /// Ends a run of its owner.
    finish_run,
    /// Ends the earlier runs of a task whose lease has gone to another.
    lose_earlier_runs,
    /// Runs that have started and whose lease is over.
    lapsed_runs,
    /// Marks a run whose lease is over.
    lose_run,
    /// One run by id.
    run,
    /// Runs of a task before an id, newest first.
    list_runs,
    /// The newest runs of a task by slot.
    last_run,

    /// One schedule, and the clock; locks it until COMMIT.
    lock_schedule,
    /// One schedule, and the clock.
    schedule,
    /// Records a schedule.
    insert_schedule,
    /// Changes a schedule; slots that were due before are not made up for by the new plan.
    change_schedule,
    /// Deletes a schedule.
    delete_schedule,
    /// Every schedule, and the clock.
    list_schedules,
    /// Slots up to here have their rows.
    account_schedule,
    /// Asks for a run at once.
    ask_schedule,
    /// The run that was asked for has its row.
    clear_asked,
    /// Stops a schedule.
    pause_schedule,
    /// Starts a schedule again.
    resume_schedule,

    /// Reserves the next place of a limit, unless it is too far away.
    reserve,
    /// How long it is until the place that was reserved just now, or until the next one.
    reserved,
    /// Records a limit, its first place taken.
    insert_limit,

    /// Effects that have ended and are old enough to go; what is unknown stays.
    prunable_effects,
    /// Deletes effects that have ended.
    prune_effects,
    /// Runs that are old enough to go.
    prunable_runs,
    /// Deletes runs that have ended.
    prune_runs,
}
