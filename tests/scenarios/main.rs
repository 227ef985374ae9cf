//! The scenarios of `tests/vectors`, which every host of the engine must pass.

mod acts;
mod format;
mod handles;
mod manage;
mod redis;
mod streams;
mod text;
mod world;

use std::fs;
use std::time::Duration;

use format::{Scenario, StoreKind, read_json, vectors};
use futures::{StreamExt, stream};
use leasehold_tests::Stopwatch;
use serde_json::{Value, json};
use world::Failed;

/// How many scenarios run at the same time: more would disturb one another.
const AT_ONCE: usize = 4;

/// If the machine stands still for this long, short leases are lost, and a scenario may fail for that.
const STILL: Duration = Duration::from_millis(100);
/// The most runs of a scenario. It runs again as long as the machine stood still during the run.
const ATTEMPTS: usize = 4;

/// Runs a scenario that should fail at this step, or nowhere. Runs it again if the result differs and the
/// machine stood still.
async fn outcome(scenario: &Scenario, store: StoreKind, step: Option<u64>) -> Option<Failed> {
    for _ in 1..ATTEMPTS {
        let watch = Stopwatch::start();
        let failed = world::run(scenario, store).await.err();
        let is = failed.as_ref().map(|failed| failed.step as u64);
        if is == step || watch.stalled() < STILL {
            return failed;
        }
    }
    world::run(scenario, store).await.err()
}

async fn all_pass_on(store: StoreKind) {
    let scenarios = Scenario::all();
    assert!(!scenarios.is_empty(), "there are no scenarios");
    let of_store = scenarios
        .iter()
        .filter(|(_, scenario)| scenario.stores.contains(&store));
    let failures: Vec<_> = stream::iter(of_store)
        .map(async |(name, scenario)| {
            let failed = outcome(scenario, store, None).await?;
            Some(format!("{name}: step {}: {}", failed.step, failed.why))
        })
        .buffer_unordered(AT_ONCE)
        .filter_map(async |failure| failure)
        .collect()
        .await;
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn all_scenarios_pass_on_redis() {
    all_pass_on(StoreKind::Redis).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn all_scenarios_pass_in_memory() {
    all_pass_on(StoreKind::Memory).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn all_scenarios_pass_on_a_quorum() {
    all_pass_on(StoreKind::Quorum).await;
}

/// The negative control: each kind of expectation can fail, and fails where it is wrong.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn wrong_scenarios_fail_where_they_are_wrong() {
    let Value::Array(scenarios) = read_json(&vectors().join("wrong_scenarios.json")) else {
        panic!("the file has a list");
    };
    for mut value in scenarios {
        let fields = value.as_object_mut().expect("scenarios are objects");
        let name = fields.remove("name").expect("a scenario has a name");
        let fails = fields.remove("fails").and_then(|step| step.as_u64());
        let scenario = match Scenario::read(value) {
            Err(why) => {
                assert_eq!(fails, Some(0), "{name} is refused: {why}");
                continue;
            }
            Ok(scenario) => scenario,
        };
        for store in &scenario.stores {
            let failed = outcome(&scenario, *store, fails).await;
            let failed = failed.expect("the scenario fails");
            let step = u64::try_from(failed.step).ok();
            assert_eq!(step, fails, "{name} on {store:?}: {}", failed.why);
            assert_ne!(step, Some(0), "{name} is not refused: {}", failed.why);
        }
    }
}

/// Catches a step that one host knows and another does not: each is compared with the description.
#[test]
fn the_steps_match_their_description() {
    let text = fs::read_to_string(vectors().join("README.md")).expect("the description exists");
    let (_, steps) = text
        .split_once("\n## Steps\n")
        .expect("it has a section Steps");
    let (steps, _) = steps.split_once("\n## ").expect("another section follows");
    let rows = steps.lines().filter_map(|line| line.strip_prefix("| `"));
    let mut described: Vec<_> = rows.filter_map(|row| row.split('`').next()).collect();
    // The error of serde for an unknown step lists all known ones.
    let step = json!({ "do": "" });
    let error = serde_json::from_value::<format::Act>(step)
        .err()
        .expect("there is no such step");
    let error = error.to_string();
    let mut known: Vec<_> = error.split('`').skip(3).step_by(2).collect();
    described.sort_unstable();
    known.sort_unstable();
    assert_eq!(described, known);
}
