//! Negative controls: each breaks one promise on purpose, and the checks must see it.

use crate::plan::Sabotage;
use crate::world::World;

#[test]
fn the_latest_of_the_deadlines_is_caught() {
    must_be_caught(Sabotage::LatestDeadline, "I1");
}

#[test]
fn counters_that_are_not_raised_are_caught() {
    must_be_caught(Sabotage::NothingRaised, "I2");
}

#[test]
fn releases_of_what_was_given_since_are_caught() {
    must_be_caught(Sabotage::ReleasesMixedUp, "I1");
}

#[test]
fn servers_whose_clocks_are_too_fast_are_caught() {
    must_be_caught(Sabotage::FastServers, "I1");
}

#[test]
fn locks_that_are_not_given_back_are_caught() {
    must_be_caught(Sabotage::ReleasesForgotten, "I6");
}

#[test]
fn servers_that_act_late_are_caught() {
    must_be_caught(Sabotage::NotAfterIgnored, "I6");
}

#[test]
fn a_loss_that_is_told_late_is_caught() {
    must_be_caught(Sabotage::TicksWithheld, "I4");
}

#[test]
fn a_line_that_serves_the_last_first_is_caught() {
    must_be_caught(Sabotage::LastFirst, "I7");
}

#[test]
fn servers_that_vote_at_once_though_they_forgot_are_caught() {
    must_be_caught(Sabotage::NoQuarantine, "I1");
}

#[test]
fn a_quarantine_that_is_measured_by_the_clock_of_one_server_is_caught() {
    must_be_caught(Sabotage::OneClock, "I1");
}

#[test]
fn servers_that_are_asked_only_at_connecting_whether_they_forgot_are_caught() {
    must_be_caught(Sabotage::NothingChecked, "I1");
}

#[test]
fn servers_that_do_not_tell_one_process_from_another_are_caught() {
    must_be_caught(Sabotage::ProcessesMixedUp, "I1");
}

#[test]
fn a_forced_release_that_names_no_tenure_is_caught() {
    must_be_caught(Sabotage::ForcesAnyTenure, "I1");
}

#[test]
fn an_owner_that_takes_what_is_not_its_own_is_caught() {
    must_be_caught(Sabotage::ReclaimsAnyTenure, "I1");
}

/// The checks see a promise broken, within some runs.
fn must_be_caught(sabotage: Sabotage, promise: &str) {
    let violations = (0..4_000).filter_map(|seed| World::run(seed, sabotage, false).err());
    let mut others = Vec::new();
    for violation in violations {
        if violation.promise == promise {
            return;
        }
        others.push(violation);
    }
    panic!("{sabotage:?} went unnoticed; instead: {others:#?}");
}
