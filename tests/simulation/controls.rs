//! Negative controls: each breaks one promise on purpose, and the checks must see it.

use crate::plan::Sabotage;
use crate::world::World;

#[test]
fn a_server_that_acts_late_is_caught() {
    must_be_caught(Sabotage::NotAfterIgnored, "I6");
}

#[test]
fn a_program_that_goes_on_after_its_deadline_is_caught() {
    must_be_caught(Sabotage::DeadlinesIgnored, "I1");
}

#[test]
fn clocks_that_drift_apart_are_caught() {
    must_be_caught(Sabotage::SlowClocks, "I1");
}

#[test]
fn a_lease_that_lasts_longer_than_its_program_asked_for_is_caught() {
    must_be_caught(Sabotage::RenewalsForLonger, "I8");
}

#[test]
fn renewals_that_take_the_lock_again_are_caught() {
    must_be_caught(Sabotage::RenewalsTake, "I5");
}

#[test]
fn tokens_that_fall_back_are_caught() {
    must_be_caught(Sabotage::TokensFallBack, "I2");
}

#[test]
fn a_loss_that_is_told_late_is_caught() {
    must_be_caught(Sabotage::TicksWithheld, "I4");
}

#[test]
fn locks_that_are_not_given_back_are_caught() {
    must_be_caught(Sabotage::ReleasesForgotten, "I6");
}

#[test]
fn a_line_that_serves_the_last_first_is_caught() {
    must_be_caught(Sabotage::LastFirst, "I7");
}

#[test]
fn a_wrong_notion_of_the_servers_clock_is_caught() {
    must_be_caught(Sabotage::WrongAnchor, "I1");
}

#[test]
fn places_that_are_not_given_up_are_caught() {
    must_be_caught(Sabotage::LeavesForgotten, "I6");
}

#[test]
fn waiters_that_are_silent_and_told_nothing_starve() {
    must_be_caught(Sabotage::HeartbeatsForgotten, "liveness");
}

#[test]
fn a_subscription_that_is_reported_too_early_is_caught() {
    must_be_caught(Sabotage::EarlyBarrier, "I7");
}

#[test]
fn a_forced_release_that_names_no_tenure_is_caught() {
    must_be_caught(Sabotage::ForceReleasesAnybody, "I1");
}

#[test]
fn an_owner_that_names_no_tenure_is_caught() {
    must_be_caught(Sabotage::ReclaimsAnyTenure, "I1");
}

#[test]
fn a_clock_that_is_taken_for_another_servers_is_caught() {
    must_be_caught(Sabotage::AnswersMisnamed, "I6");
}

#[test]
fn a_push_by_another_servers_clock_is_caught() {
    must_be_caught(Sabotage::PushesMisnamed, "I1");
}

/// The checks see a promise broken, within some runs.
fn must_be_caught(sabotage: Sabotage, promise: &str) {
    let violations = (0..1_000).filter_map(|seed| World::run(seed, sabotage, false).err());
    let mut others = Vec::new();
    for violation in violations {
        if violation.promise == promise {
            return;
        }
        others.push(violation);
    }
    panic!("{sabotage:?} went unnoticed; instead: {others:#?}");
}
