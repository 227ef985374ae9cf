//! Negative controls: each breaks one promise on purpose, and the checks must see it.

use crate::plan::Plan;
use crate::random::Random;
use crate::sabotage::Sabotage;
use crate::world::World;

/// Writes one test per sabotage for one kind of store. Where few seeds show the damage, `from` is near one that does.
macro_rules! controls {
    ($plan:ident, $($name:ident: $sabotage:ident breaks $promise:literal $(from $first:literal)?,)*) => {
        mod $plan {
            use super::{Plan, Sabotage, must_be_caught};

            $(
                #[test]
                fn $name() {
                    let first = 0 $(+ $first)?;
                    must_be_caught(Plan::$plan, Sabotage::$sabotage, $promise, first);
                }
            )*
        }
    };
}

controls! {
    single,
    a_server_that_acts_late_is_caught: NotAfterIgnored breaks "I6",
    a_program_that_goes_on_after_its_deadline_is_caught: DeadlinesIgnored breaks "I1",
    clocks_that_drift_apart_are_caught: SlowClocks breaks "I1",
    a_lease_that_lasts_longer_than_its_program_asked_for_is_caught: RenewalsForLonger breaks "I8",
    renewals_that_take_the_lock_again_are_caught: RenewalsTake breaks "I5",
    tokens_that_fall_back_are_caught: TokensFallBack breaks "I2",
    a_loss_that_is_told_late_is_caught: TicksWithheld breaks "I4",
    locks_that_are_not_given_back_are_caught: ReleasesForgotten breaks "I6",
    a_line_that_serves_the_last_first_is_caught: LastFirst breaks "I7",
    a_wrong_notion_of_the_servers_clock_is_caught: WrongAnchor breaks "I1",
    places_that_are_not_given_up_are_caught: LeavesForgotten breaks "I6",
    waiters_that_are_silent_and_told_nothing_starve: HeartbeatsForgotten breaks "liveness",
    a_subscription_that_is_reported_too_early_is_caught: EarlyBarrier breaks "I7",
    a_forced_release_that_names_no_tenure_is_caught: ForceReleasesAnybody breaks "I1",
    a_request_to_yield_that_names_no_tenure_is_caught: AsksAnybody breaks "yield",
    an_owner_that_names_no_tenure_is_caught: ReclaimsAnyTenure breaks "I1",
    a_server_that_forgets_completed_ticks_is_caught: CompletionsForgotten breaks "I9",
}

controls! {
    passing,
    a_ticket_that_takes_any_tenure_is_caught: AcceptsAnyTenure breaks "I1",
    a_sender_that_goes_on_is_caught: SendersGoOn breaks "I1",
    an_age_that_begins_anew_with_each_holder_is_caught: TicketsAgeless breaks "age",
}

controls! {
    sharing,
    a_store_that_counts_is_caught: StoreCounts breaks "I1",
    a_slot_that_is_given_twice_is_caught: SlotsTwice breaks "I1",
    readers_that_overtake_a_writer_are_caught: ReadersOvertake breaks "I7",
    a_capacity_of_a_client_that_is_in_force_is_caught: ClientsCapacity breaks "capacity",
    a_shrink_that_ends_permits_is_caught: ShrinksRevoke breaks "resize",
    a_renewal_by_its_process_is_caught: RenewsByProcess breaks "I5",
    readers_that_do_not_know_the_last_writer_are_caught: GenerationsForgotten breaks "generation",
    permits_that_are_not_given_back_are_caught: ReleasesForgotten breaks "I6",
    a_loss_that_is_told_late_is_caught: TicksWithheld breaks "I4",
}

controls! {
    aged,
    a_lease_that_outlives_its_longest_time_is_caught: AgesForgotten breaks "age",
    a_name_that_is_free_at_once_is_caught: NamesNotKept breaks "age",
}

controls! {
    aged_quorum,
    a_line_that_serves_the_last_first_is_caught: LastFirst breaks "I7",
    a_name_that_is_free_at_once_is_caught: NamesNotKept breaks "age",
}

controls! {
    cluster,
    a_clock_that_is_taken_for_another_servers_is_caught: AnswersMisnamed breaks "I6",
    a_push_by_another_servers_clock_is_caught: PushesMisnamed breaks "I1",
}

controls! {
    quorum,
    the_latest_of_the_deadlines_is_caught: LatestDeadline breaks "I1",
    counters_that_are_not_raised_are_caught: NothingRaised breaks "I2",
    releases_of_what_was_given_since_are_caught: ReleasesMixedUp breaks "I1" from 1_550,
    servers_whose_clocks_are_too_fast_are_caught: FastServers breaks "I1",
    locks_that_are_not_given_back_are_caught: ReleasesForgotten breaks "I6",
    servers_that_act_late_are_caught: NotAfterIgnored breaks "I6",
    a_loss_that_is_told_late_is_caught: TicksWithheld breaks "I4",
    a_line_that_serves_the_last_first_is_caught: LastFirst breaks "I7",
    servers_that_vote_at_once_though_they_forgot_are_caught: NoQuarantine breaks "I1",
    a_quarantine_that_is_measured_by_the_clock_of_one_server_is_caught: OneClock breaks "I1" from 2_750,
    servers_that_are_asked_only_at_connecting_whether_they_forgot_are_caught: NothingChecked breaks "I1",
    servers_that_do_not_tell_one_process_from_another_are_caught: ProcessesMixedUp breaks "I1" from 1_750,
    a_forced_release_that_names_no_tenure_is_caught: ForceReleasesAnybody breaks "I1",
    an_owner_that_takes_what_is_not_its_own_is_caught: ReclaimsAnyTenure breaks "I1",
}

/// Runs seeds from this one on until the checks report the broken promise. Panics if none does.
fn must_be_caught(
    plan: fn(&mut Random, Sabotage) -> Plan,
    sabotage: Sabotage,
    promise: &str,
    first: u64,
) {
    let seeds = first..first + 4_000;
    let violations = seeds.filter_map(|seed| World::run(plan, seed, sabotage, false).err());
    let mut others = Vec::new();
    for violation in violations {
        if violation.promise == promise {
            return;
        }
        others.push(violation);
    }
    panic!("the checks missed {sabotage:?} and reported instead: {others:#?}");
}
