//! Negative controls: each world has one fault, and the search must find the promise that it breaks.

use crate::EMPTY;
use crate::faults::Fault;
use crate::search::search;
use crate::world::Plan;

const CONTROL: Plan = Plan { depth: 16, ..EMPTY };

/// Writes one test per fault.
macro_rules! controls {
    ($($name:ident: $fault:ident breaks $promise:literal in { $($bound:ident: $value:expr),* };)*) => {
        $(
            #[test]
            fn $name() {
                let plan = Plan { fault: Fault::$fault, $($bound: $value,)* ..CONTROL };
                must_break(plan, $promise);
            }
        )*
    };
}

controls! {
    a_lease_that_counts_from_the_reply_is_caught: CountsFromReply breaks "I1" in { passes: 2, steps: &[1_500, 1_000] };
    a_program_that_goes_on_is_caught: GoesOn breaks "I1" in { passes: 1 };
    a_loss_that_is_told_late_is_caught: TicksLate breaks "I4" in { passes: 1 };
    a_loss_that_is_not_told_is_caught: LossesUntold breaks "I4" in { passes: 1 };
    a_lease_for_longer_than_asked_is_caught: RenewsForLonger breaks "I8" in {};
    lease_ids_that_come_again_are_caught: LeaseIdsAgain breaks "I2" in { calls: 2 };
    a_request_that_acts_late_is_caught: ActsLate breaks "I6" in { passes: 1 };
    a_release_of_anybody_is_caught: ReleasesAnybody breaks "I1" in { calls: 2, cancels: 1, hears: false };
    a_waiter_that_stays_in_line_is_caught: LeavesForgotten breaks "I6" in { cancels: 1 };
    a_renewal_that_takes_the_lock_is_caught: RenewalsTake breaks "I5" in { renews: true, passes: 2, steps: &[700, 1_400] };
    tokens_that_fall_back_are_caught: TokensFallBack breaks "I2" in { flushes: 1 };
    tokens_that_stand_still_are_caught: TokensStandStill breaks "I2" in {};
    a_dead_waiter_that_counts_as_alive_is_caught: LivenessIgnored breaks "I6" in { crashes: 1 };
    a_line_that_serves_the_last_first_is_caught: LastFirst breaks "I7" in { clients: 3 };
    a_try_that_overtakes_is_caught: TriesOvertake breaks "I7" in { tries: true, calls: 2, passes: 1, steps: &[2_010] };
    a_repeat_that_counts_twice_is_caught: RepeatsCountTwice breaks "I1" in { repeats: 1 };
    a_server_that_loses_its_data_is_caught: DataLost breaks "I1" in { flushes: 1 };
    a_server_that_votes_twice_is_caught: VotesTwice breaks "I2" in { servers: 3 };
    a_server_that_loses_a_vote_unnoticed_is_caught: DataLost breaks "I2" in { servers: 3, flushes: 1 };
    a_server_whose_clock_is_too_fast_is_caught: None breaks "I1" in { faster: 100_000, passes: 1, steps: &[1_900] };
}

/// Searches until a promise is broken, which must be this one. Prints the story.
fn must_break(plan: Plan, promise: &str) {
    let found = search(plan);
    let Some((violation, story)) = found.violation else {
        panic!("{:?} is not caught in {} states", plan.fault, found.states);
    };
    let (depth, states, what) = (found.depth, found.states, violation.what);
    let story = story.join("\n  ");
    println!(
        "{:?} breaks {} after {depth} actions ({states} states): {what}\n  {story}",
        plan.fault, violation.promise
    );
    assert_eq!(
        violation.promise, promise,
        "{:?} breaks another promise",
        plan.fault
    );
}
