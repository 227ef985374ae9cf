//! An exhaustive search of small worlds: a few real engines, one in-memory server or the three of a quorum, and a
//! network that loses, repeats, delays and reorders.
//!
//! The search does every action in every state: a call, the execution of any request under way, the arrival
//! of any reply or push, a step of time, a crash. It checks the promises of `leasehold` (I1, I2 and I4 to I8)
//! after each one. From each state it also checks that each waiter gets the lock and the name becomes free
//! once nothing new happens. The simulation in `tests/simulation` draws long schedules at random; this search
//! leaves out none of the short ones.
//!
//! `cargo test -p leasehold-search --release -- --ignored --nocapture` searches larger worlds, and tells the
//! shortest story of each control.

mod checks;
mod controls;
mod faults;
mod program;
mod search;
mod traces;
mod world;

use faults::Fault;
use search::search;
use world::{Plan, Wakes};

/// A world in which nothing may happen yet.
const EMPTY: Plan = Plan {
    servers: 1,
    clients: 2,
    calls: 1,
    tries: false,
    renews: false,
    steps: &[500, 2_500],
    passes: 0,
    wakes: Wakes::InTime,
    repeats: 0,
    cancels: 0,
    crashes: 0,
    flushes: 0,
    // Just within the drift margin, which is 2,000.
    faster: 1_900,
    hears: true,
    fault: Fault::None,
    depth: 0,
};

/// No bound: the search ends when it has seen every state.
const ANY: usize = usize::MAX;

/// Searches a world, in which no promise may be broken. Prints the number of states and the depth.
fn keeps(name: &str, plan: Plan) {
    let began = std::time::Instant::now();
    let found = search(plan);
    if let Some((violation, story)) = found.violation {
        let story = story.join("\n  ");
        panic!(
            "{name}: {} is broken: {}\n  {story}",
            violation.promise, violation.what
        );
    }
    let end = if found.complete { "all" } else { "bounded" };
    let (states, depth) = (found.states, found.depth);
    println!(
        "{name}: {states} states, depth {depth} ({end}), {:.1?}",
        began.elapsed()
    );
}

/// Writes one test per world.
macro_rules! worlds {
    ($($(#[$attribute:meta])+ $name:ident { $($bound:ident: $value:expr),* };)*) => {
        $(
            $(#[$attribute])+
            fn $name() {
                keeps(stringify!($name), Plan { $($bound: $value,)* ..EMPTY });
            }
        )*
    };
}

worlds! {
    #[test] two_clients { cancels: 1, depth: ANY };
    #[test] two_clients_that_ask_twice { tries: true, calls: 2, cancels: 1, depth: 9 };
    #[test] two_clients_and_a_network_that_repeats { repeats: 1, depth: ANY };
    #[test] two_clients_that_crash { crashes: 1, depth: ANY };
    #[test] two_clients_while_time_passes { passes: 2, steps: &[500, 1_999], depth: 8 };
    #[test] two_clients_with_all_faults { passes: 1, repeats: 1, cancels: 1, crashes: 1, depth: 7 };
    #[test] two_clients_that_renew { passes: 3, renews: true, steps: &[700], depth: 9 };
    #[test] two_clients_whose_renewals_are_lost { passes: 1, renews: true, steps: &[1_999], depth: 7 };
    #[test] two_clients_without_pushes { passes: 2, hears: false, depth: 7 };
    #[test] two_clients_of_a_server_that_loses_its_data { passes: 1, flushes: 1, depth: 7 };
    #[test] two_clients_of_a_slow_server { passes: 2, faster: -1_900, steps: &[1_001, 2_500], depth: 7 };
    #[test] three_clients { clients: 3, depth: 13 };
    #[test] a_quorum { servers: 3, depth: 10 };
    #[test] a_quorum_while_time_passes { servers: 3, passes: 1, depth: 5 };
    #[test] a_quorum_of_which_a_server_loses_its_data { servers: 3, flushes: 1, depth: 6 };
    #[test] a_quorum_with_all_faults { servers: 3, repeats: 1, cancels: 1, crashes: 1, depth: 5 };
}

/// Worlds that take minutes.
mod large {
    use super::{ANY, EMPTY, Plan, keeps};

    worlds! {
        #[test] #[ignore = "a minute"] silence { passes: 1, hears: false, depth: ANY };
        #[test] #[ignore = "a minute"] time { passes: 1, depth: ANY };
        #[test] #[ignore = "a minute"] all_faults { passes: 2, repeats: 1, cancels: 1, crashes: 1, depth: 8 };
        #[test] #[ignore = "a minute"] renewals { passes: 3, renews: true, steps: &[700, 2_500], depth: 9 };
        #[test] #[ignore = "a minute"] three_clients { clients: 3, depth: ANY };
        #[test] #[ignore = "a minute"] three_clients_and_time { clients: 3, passes: 1, depth: 10 };
        #[test] #[ignore = "a minute"] a_quorum { servers: 3, depth: 17 };
        #[test] #[ignore = "a minute"] a_quorum_and_time { servers: 3, passes: 1, depth: 7 };
        #[test] #[ignore = "a minute"] a_quorum_that_loses_data { servers: 3, flushes: 1, depth: 8 };
        #[test] #[ignore = "a minute"] a_quorum_of_three_clients { servers: 3, clients: 3, depth: 10 };
        #[test] #[ignore = "a minute"] a_quorum_that_renews { servers: 3, renews: true, passes: 1, steps: &[700], depth: 8 };
    }
}
