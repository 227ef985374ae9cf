//! Hostile bytes: whatever a server, a publisher or a caller sends is read or refused, and nothing panics, grows
//! without bound, or shows a secret.
//!
//! Each property runs on thousands of random inputs, most of them valid ones with a few changes.
//! `LEASEHOLD_CASES=1000000 cargo test -p leasehold-tests --release --test bytes` runs a million of each.

mod calls;
mod changes;
mod inputs;

use std::fmt::Debug;

use proptest::strategy::Strategy;
use proptest::test_runner::{Config, TestRunner};

/// How many inputs each property is tried with in the test command.
const CASES: u32 = 2_000;

/// Tries a property with random inputs, and shrinks the first one for which it panics.
fn for_all<T: Debug>(inputs: impl Strategy<Value = T>, property: impl Fn(T)) {
    let cases = std::env::var("LEASEHOLD_CASES").ok();
    let cases = cases.map_or(CASES, |cases| {
        cases.parse().expect("LEASEHOLD_CASES is a number")
    });
    let config = Config {
        cases,
        failure_persistence: None,
        ..Config::default()
    };
    let tried = TestRunner::new(config).run(&inputs, |input| {
        property(input);
        Ok(())
    });
    if let Err(error) = tried {
        panic!("{error}");
    }
}
