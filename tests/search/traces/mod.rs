//! Traces of real engines and their servers in the terms of the specifications in `spec/`. TLC then checks that each is a
//! behavior of the specification, and refuses those of an engine or server with a fault.
//!
//! `cargo xtask spec` writes the traces with the test [`write`] and runs TLC.

mod quorum;
mod single;

use std::fs;
use std::path::Path;

use crate::faults::Fault;
use crate::world::Plan;

/// The number of traces of the code, and of a world with a fault.
const TRACES: u64 = 200;
const FAULTY: u64 = 50;

/// The worlds whose traces are written, by the names of their instances in `xtask/src/spec/instances.rs`.
const WORLDS: &[(&str, Plan, Fault)] = &[
    ("traces", single::TRACED, Fault::None),
    ("traces-anybody", single::TRACED, Fault::ReleasesAnybody),
    ("traces-forgotten", single::TRACED, Fault::LeavesForgotten),
    ("traces-last-first", single::TRACED, Fault::LastFirst),
    ("traces-same-ids", single::TRACED, Fault::LeaseIdsAgain),
    ("traces-same-token", single::TRACED, Fault::TokensStandStill),
    ("traces-twice", single::TRACED, Fault::RepeatsCountTwice),
    ("quorum-traces", quorum::PLAN, Fault::None),
    ("quorum-traces-lost", quorum::PLAN, Fault::DataLost),
    (
        "quorum-traces-same-token",
        quorum::PLAN,
        Fault::TokensStandStill,
    ),
    ("quorum-traces-votes", quorum::PLAN, Fault::VotesTwice),
    ("timed-traces", single::TIMED, Fault::None),
    ("timed-traces-alive", single::TIMED, Fault::LivenessIgnored),
    ("timed-traces-late", single::TIMED, Fault::ActsLate),
    ("timed-traces-longer", single::TIMED, Fault::RenewsForLonger),
    ("timed-traces-slow", single::TIMED, Fault::TicksLate),
    ("timed-traces-untold", single::TIMED, Fault::LossesUntold),
];

/// Writes the module `TraceData` of each world into a folder of its name, in the one that the environment names.
#[test]
#[ignore = "cargo xtask spec runs it"]
fn write() {
    let to = std::env::var_os("LEASEHOLD_TRACES_TO").expect("cargo xtask spec sets it");
    for (name, plan, fault) in WORLDS {
        let plan = Plan {
            fault: *fault,
            ..*plan
        };
        let walk = |seed| match plan.servers {
            1 => single::Walk::new(plan).walk(seed),
            _ => quorum::Walk::new(plan).walk(seed),
        };
        let count = match fault {
            Fault::None => TRACES,
            _ => FAULTY,
        };
        let traces: Vec<_> = (0..count).map(walk).collect();
        let text = format!(
            "---- MODULE TraceData ----\nTraces == <<\n{}\n>>\n====\n",
            traces.join(",\n")
        );
        let folder = Path::new(&to).join(name);
        fs::create_dir_all(&folder).expect("the folder can be made");
        fs::write(folder.join("TraceData.tla"), text).expect("the file can be written");
    }
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
