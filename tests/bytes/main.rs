//! Hostile bytes: whatever a server, a publisher or a caller sends is read or refused, and nothing panics, grows
//! without bound, or shows a secret.
//!
//! Each property runs on thousands of inputs, most of them valid ones with a few changes. They are the same in each run;
//! `LEASEHOLD_CASES=1000000 cargo test -p leasehold-tests --release --test bytes` tries a million random ones.

mod calls;
mod changes;
mod inputs;

use std::fmt::Debug;

use proptest::strategy::Strategy;
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};

/// How many inputs each property is tried with in the test command, where they are the same each time.
const CASES: u32 = 2_000;

/// Tries a property with random inputs, and shrinks the first one for which it panics.
fn for_all<T: Debug>(inputs: impl Strategy<Value = T>, property: impl Fn(T)) {
    let asked = std::env::var("LEASEHOLD_CASES").ok();
    let asked = asked.map(|cases| cases.parse().expect("LEASEHOLD_CASES is a number"));
    let config = Config {
        cases: asked.unwrap_or(CASES),
        failure_persistence: None,
        ..Config::default()
    };
    let mut runner = if asked.is_some() {
        TestRunner::new(config)
    } else {
        let same = TestRng::deterministic_rng(RngAlgorithm::ChaCha);
        TestRunner::new_with_rng(config, same)
    };
    let tried = runner.run(&inputs, |input| {
        property(input);
        Ok(())
    });
    if let Err(error) = tried {
        panic!("{error}");
    }
}
