//! Traces of real engines and their servers in the terms of the specifications in `spec/`. TLC then checks that each is a
//! behavior of the specification, and refuses those of an engine or server with a fault.
//!
//! `cargo xtask spec` writes the traces with the test [`write`] and runs TLC.

mod quorum;
mod single;

use crate::faults::Fault;
use crate::world::Plan;

/// The number of traces of the code, and of a world with a fault.
const TRACES: u64 = 200;
const FAULTY: u64 = 50;

/// The worlds whose traces are written, by the names of their instances in `xtask/src/spec/instances.rs`.
const WORLDS: &[(&str, Plan)] = &[
    ("traces", single::TRACED),
    ("traces-anybody", single::of(Fault::ReleasesAnybody)),
    ("traces-forgotten", single::of(Fault::LeavesForgotten)),
    ("traces-last-first", single::of(Fault::LastFirst)),
    ("traces-same-ids", single::of(Fault::LeaseIdsAgain)),
    ("traces-same-token", single::of(Fault::TokensStandStill)),
    ("traces-twice", single::of(Fault::RepeatsCountTwice)),
    ("quorum-traces", quorum::PLAN),
    ("quorum-traces-lost", quorum::of(Fault::DataLost)),
    (
        "quorum-traces-same-token",
        quorum::of(Fault::TokensStandStill),
    ),
    ("quorum-traces-votes", quorum::of(Fault::VotesTwice)),
    ("timed-traces", single::TIMED),
    ("timed-traces-alive", single::timed(Fault::LivenessIgnored)),
    ("timed-traces-late", single::timed(Fault::ActsLate)),
    ("timed-traces-longer", single::timed(Fault::RenewsForLonger)),
    ("timed-traces-slow", single::timed(Fault::TicksLate)),
    ("timed-traces-untold", single::timed(Fault::LossesUntold)),
];

/// Writes the module `TraceData` of the world that the environment names into the file that it names.
#[test]
#[ignore = "cargo xtask spec runs it"]
fn write() {
    let variable = |name| std::env::var(name).expect("cargo xtask spec sets it");
    let of = variable("LEASEHOLD_TRACES_OF");
    let known = WORLDS.iter().find(|(name, _)| *name == of);
    let (_, plan) = known.unwrap_or_else(|| panic!("there is no world `{of}`"));
    let is_faulty = plan.fault != Fault::None;
    let walk = |seed| match plan.servers {
        1 => single::Walk::new(*plan).walk(seed),
        _ => quorum::Walk::new(*plan).walk(seed),
    };
    let traces: Vec<_> = (0..if is_faulty { FAULTY } else { TRACES })
        .map(walk)
        .collect();
    let text = format!(
        "---- MODULE TraceData ----\nTraces == <<\n{}\n>>\n====\n",
        traces.join(",\n")
    );
    std::fs::write(variable("LEASEHOLD_TRACES_TO"), text).expect("the folder exists");
}

/// Without a fault no promise is broken on these walks either.
#[test]
fn walks_keep_every_promise() {
    for seed in 0..TRACES {
        for plan in [single::TRACED, single::TIMED] {
            let mut walk = single::Walk::new(plan);
            walk.walk(seed);
            assert!(walk.is_kept, "seed {seed} of {plan:?}");
        }
        let mut walk = quorum::Walk::new(quorum::PLAN);
        walk.walk(seed);
        assert!(walk.is_kept, "seed {seed} of a quorum");
    }
}
