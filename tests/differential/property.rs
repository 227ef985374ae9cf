//! Random sequences on the real server and on the model.

use std::cell::RefCell;
use std::env;
use std::io::{self, Write as _};
use std::time::Instant;

use proptest::strategy::Strategy;
use proptest::test_runner::{Config, RngAlgorithm, TestCaseError, TestError, TestRng, TestRunner};
use tokio::runtime::{Builder, Runtime};

use crate::compare::{Ground, Report, compare};
use crate::model::Flaw;
use crate::sequence::{Sequence, plain_sequences, sequences};

/// Enough sequences to reach every branch.
const CASES: u32 = 700;
/// How often as many sequences run until every branch was reached.
const ROUNDS: u8 = 4;
/// A wrong model is found much earlier.
const CONTROL_CASES: u32 = 200;

struct Bench {
    runtime: Runtime,
    state: RefCell<(Ground, Report)>,
}

impl Bench {
    fn new() -> Self {
        let runtime = Builder::new_current_thread().enable_all().build();
        let runtime = runtime.expect("a runtime can be made");
        let ground = runtime.block_on(Ground::start());
        let state = RefCell::new((ground, Report::default()));
        Self { runtime, state }
    }

    /// Runs the same sequences for the same seed, and shrinks the first that fails.
    fn run(
        &self,
        sequences: &impl Strategy<Value = Sequence>,
        flaw: Flaw,
        (cases, round): (u32, u8),
        shrink: u32,
    ) -> Result<(), TestError<Sequence>> {
        let config = Config {
            cases,
            failure_persistence: None,
            max_shrink_iters: shrink,
            ..Config::default()
        };
        let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &seed(round));
        TestRunner::new_with_rng(config, rng).run(sequences, |sequence| {
            let (ground, report) = &mut *self.state.borrow_mut();
            self.runtime
                .block_on(compare(ground, flaw, &sequence, report))
                .map_err(TestCaseError::fail)
        })
    }
}

/// Returns a fixed seed for each round, unless `LEASEHOLD_SEED` names another.
fn seed(round: u8) -> [u8; 32] {
    let mut seed = [0; 32];
    if let Ok(number) = env::var("LEASEHOLD_SEED") {
        let number: u64 = number.parse().expect("LEASEHOLD_SEED is a number");
        seed[..8].copy_from_slice(&number.to_le_bytes());
    }
    seed[31] = round;
    seed
}

/// Prints past the test harness, which would capture the text.
fn say(text: &str) {
    writeln!(io::stderr(), "{text}").expect("standard error takes text");
}

#[test]
fn the_script_and_the_model_do_the_same() {
    let cases = env::var("LEASEHOLD_CASES").map_or(CASES, |cases| {
        cases.parse().expect("LEASEHOLD_CASES is a number")
    });
    let (bench, start) = (Bench::new(), Instant::now());
    // A branch that a busy machine does not reach in the first round is reached in a later one.
    for round in 0..ROUNDS {
        if let Err(error) = bench.run(&sequences(), Flaw::Nothing, (cases, round), 2_000) {
            let seed = env::var("LEASEHOLD_SEED").unwrap_or_else(|_| "0".to_owned());
            panic!("the script and the model differ (LEASEHOLD_SEED={seed}): {error}");
        }
        if bench.state.borrow().1.coverage.missed().is_empty() {
            break;
        }
    }
    let (_, report) = &*bench.state.borrow();
    say(&format!(
        "differential: {}; {cases} sequences, {} operations, {} pushes, {} repeated because \
         an expiry was close, {:.1?}",
        report.coverage.summary(),
        report.operations,
        report.pushes,
        report.unclear,
        start.elapsed()
    ));
    assert!(
        report.given_up * 20 <= usize::try_from(cases).expect("a small number"),
        "{} sequences could not be compared: is the machine overloaded?",
        report.given_up
    );
    let missed = report.coverage.missed();
    assert!(
        missed.is_empty() || cases < CASES,
        "not reached in {cases} sequences: {missed:#?}"
    );
}

#[test]
fn every_wrong_model_is_found() {
    let bench = Bench::new();
    for flaw in Flaw::ALL {
        match bench.run(&sequences(), flaw, (CONTROL_CASES, 0), 0) {
            Err(TestError::Fail(reason, _)) if reason.message().contains(flaw.shows()) => {}
            other => panic!("{flaw:?} was not found: {other:?}"),
        }
    }
}

/// A machine that is too busy for leases of some milliseconds keeps an extra step now and then, because
/// shrinking does not drop what it cannot compare. So there are several tries.
#[test]
fn a_difference_is_shrunk_to_its_essential_steps() {
    let bench = Bench::new();
    let shrink = |_| match bench.run(&plain_sequences(), Flaw::RenewalTakesGone, (CASES, 0), 500) {
        Err(TestError::Fail(reason, sequence)) => (reason, sequence),
        _ => panic!("the wrong model was not found"),
    };
    let is_shrunk = |(_, sequence): &(_, Sequence)| sequence.steps.len() == 1;
    let found = (0..6).map(shrink).find(is_shrunk);
    let (reason, _) = found.expect("one of six is shrunk to one step");
    let text = reason.message();
    assert!(
        text.contains("step 0") && text.contains("Ok(Gone), the model Ok(Renewed"),
        "{text}"
    );
}
