use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::task::{Context, Wake, Waker};
use std::thread;

use futures::FutureExt;
use futures::executor::block_on;
use leasehold_engine::ErrorKind;
use proptest::prelude::*;

use super::*;

fn token(number: u64) -> FencingToken {
    FencingToken::new(number).expect("a token of the tests is valid")
}

fn json(gate: &Gate) -> serde_json::Value {
    serde_json::to_value(gate).expect("a gate serializes")
}

fn restored(saved: serde_json::Value) -> Gate {
    serde_json::from_value(saved).expect("a gate comes back")
}

/// The rule without a capacity.
#[derive(Default)]
struct Model(HashMap<u8, u64>);

impl Model {
    fn accepts(&self, resource: u8, number: u64) -> bool {
        self.0.get(&resource).is_none_or(|seen| *seen <= number)
    }
}

/// Fails if the gate accepts what the model refuses, or refuses what it allows at full capacity. On `restart`
/// the gate is stored and restored, and `spoil` may change the stored state.
fn compare(
    capacity: usize,
    steps: &[(u8, u64, bool)],
    spoil: impl Fn(&mut serde_json::Value),
) -> Result<(), String> {
    let (mut gate, mut model) = (Gate::with_capacity(capacity), Model::default());
    for (step, &(resource, number, restart)) in steps.iter().enumerate() {
        if restart {
            let mut saved = json(&gate);
            spoil(&mut saved);
            gate = restored(saved);
        }
        let allowed = model.accepts(resource, number);
        let accepted = gate.check(&resource.to_string(), token(number)).is_ok();
        if accepted && !allowed {
            return Err(format!(
                "step {step}: {number} passed for resource {resource}"
            ));
        }
        if allowed && !accepted && capacity >= 8 {
            return Err(format!("step {step}: refused although all is remembered"));
        }
        if accepted {
            model.0.insert(resource, number);
        }
    }
    Ok(())
}

fn steps() -> impl Strategy<Value = Vec<(u8, u64, bool)>> {
    prop::collection::vec((0..8u8, 1..30u64, any::<bool>()), 1..120)
}

proptest! {
    /// Catches an eviction that opens a hole, a state that does not come back whole, and a gate
    /// that refuses although it forgot nothing.
    #[test]
    fn a_gate_never_accepts_a_token_that_the_rule_refuses(capacity in 1..10usize, steps in steps()) {
        compare(capacity, &steps, |_| ()).map_err(TestCaseError::fail)?;
    }
}

/// The negative control of the test above: a gate that evicts resources without a floor.
#[test]
fn the_model_finds_a_gate_without_a_floor() {
    let mut runner = proptest::test_runner::TestRunner::deterministic();
    let found = runner.run(&(1..7usize, steps()), |(capacity, steps)| {
        let forget = |saved: &mut serde_json::Value| saved["floor"] = serde_json::Value::Null;
        compare(capacity, &steps, forget).map_err(TestCaseError::fail)
    });
    found.expect_err("old tokens of forgotten resources pass");
}

#[test]
fn the_least_recently_used_resource_is_evicted() {
    let gate = Gate::with_capacity(2);
    gate.check("a", token(10)).expect("it is the first");
    gate.check("b", token(20)).expect("it is the first");
    gate.check("a", token(10)).expect("it is equal");
    gate.check("c", token(30)).expect("it is the first");
    // Catches first in, first out: then "a" would be gone, with the floor at 10.
    assert_eq!(
        json(&gate),
        serde_json::json!({"capacity": 2, "floor": 20, "seen": [["a", 10], ["c", 30]]})
    );
    let error = gate.check("d", token(19)).expect_err("it may be an old b");
    let stale = error.stale_token().expect("a refusal has details");
    assert_eq!((stale.offered, stale.highest), (token(19), token(20)));
    gate.check("a", token(10))
        .expect("what is remembered is not under the floor");
    gate.check("b", token(20)).expect("its holder writes on");
}

#[test]
fn a_resource_in_use_is_not_evicted() {
    let gate = Gate::with_capacity(1);
    let entered = block_on(gate.enter("a", token(1))).expect("it is free");
    let error = gate.check("b", token(2)).expect_err("there is no place");
    assert_eq!(error.kind(), ErrorKind::Overloaded);
    drop(entered);
    gate.check("b", token(2)).expect("there is one now");
    assert_eq!(gate.highest("a"), Some(token(1)), "it is the floor");
}

#[test]
fn a_spoiled_state_is_refused() {
    for bad in [
        r#"{"capacity": 0, "floor": null, "seen": []}"#,
        r#"{"capacity": 1, "floor": null, "seen": [["a", 1], ["b", 1]]}"#,
        r#"{"capacity": 9, "floor": null, "seen": [["a", 1], ["a", 2]]}"#,
        r#"{"capacity": 9, "floor": null, "seen": [["", 1]]}"#,
        r#"{"capacity": 9, "floor": null, "seen": [["a", 0]]}"#,
        r#"{"capacity": 9, "floor": null, "seen": [["a", 9007199254740992]]}"#,
        r#"{"capacity": 9, "floor": 0, "seen": []}"#,
        r#"{"capacity": 9, "seen": [], "more": 1}"#,
        r#"{"capacity": 9, "floor": null}"#,
    ] {
        let read: Result<Gate, _> = serde_json::from_str(bad);
        assert!(read.is_err(), "{bad} was taken");
    }
}

#[test]
fn a_state_with_a_write_under_way_is_whole() {
    let gate = Gate::new();
    gate.check("b", token(2)).expect("it is the first");
    let _entered = block_on(gate.enter("a", token(1))).expect("it is free");
    let gate = restored(json(&gate));
    assert_eq!(gate.highest("a"), Some(token(1)));
    let entered = block_on(gate.enter("a", token(1)));
    drop(entered.expect("nobody writes after a restart"));
}

/// Catches a permit that is not exclusive, and a lost wake-up: the threads would hang.
#[test]
fn one_thread_at_a_time_writes() {
    let gate = Gate::new();
    let (inside, last) = (AtomicUsize::new(0), AtomicU64::new(0));
    thread::scope(|scope| {
        for writer in 0..8 {
            let (gate, inside, last) = (&gate, &inside, &last);
            scope.spawn(move || {
                for step in 0..500 {
                    let number = step * 8 + (writer * 5 + step) % 8 + 1;
                    let written = gate.guard("a", token(number), || {
                        assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0, "two are inside");
                        thread::yield_now();
                        let before = last.swap(number, Ordering::SeqCst);
                        assert!(before <= number, "{number} after {before}");
                        inside.fetch_sub(1, Ordering::SeqCst);
                    });
                    if let Err(error) = written {
                        assert_eq!(error.kind(), ErrorKind::StaleToken, "{error}");
                    }
                }
            });
        }
    });
    assert_eq!(
        gate.highest("a").map(FencingToken::get),
        Some(last.into_inner())
    );
}

#[test]
fn a_write_holds_up_its_own_resource_only() {
    let gate = Gate::new();
    gate.guard("a", token(5), || {
        gate.guard("b", token(1), || ()).expect("b is free");
        gate.check("a", token(5))
            .expect("a check waits for nothing");
        let error = gate.guard("a", token(4), || ());
        let error = error.expect_err("a stale one is refused without waiting");
        assert_eq!(error.kind(), ErrorKind::StaleToken);
        let waits = gate.enter("a", token(5)).now_or_never();
        assert!(waits.is_none(), "two are inside");
    })
    .expect("a is free");
}

#[test]
fn a_write_that_panics_lets_the_next_one_in() {
    let gate = Gate::new();
    let panics =
        std::panic::AssertUnwindSafe(|| gate.guard("a", token(1), || panic!("as it must")));
    std::panic::catch_unwind(panics).expect_err("the write panics");
    gate.guard("a", token(1), || ()).expect("a is free");
}

/// Counts its wake-ups.
#[derive(Default)]
struct Count(AtomicUsize);

impl Wake for Count {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

impl Count {
    fn get(&self) -> usize {
        self.0.load(Ordering::SeqCst)
    }
}

#[test]
fn waiters_are_served_in_order_or_refused_at_once() {
    let gate = Gate::new();
    let counts: [Arc<Count>; 3] = Default::default();
    let wakers = counts.clone().map(Waker::from);
    let mut contexts: Vec<_> = wakers.iter().map(Context::from_waker).collect();
    let entered = block_on(gate.enter("a", token(1))).expect("it is free");
    let mut first = Box::pin(gate.enter("a", token(1)));
    let mut second = Box::pin(gate.enter("a", token(1)));
    assert!(first.poll_unpin(&mut contexts[0]).is_pending());
    assert!(second.poll_unpin(&mut contexts[1]).is_pending());
    drop(entered);
    assert_eq!((counts[0].get(), counts[1].get()), (1, 0));
    assert!(
        second.poll_unpin(&mut contexts[1]).is_pending(),
        "it overtook"
    );
    // Catches a waiter that leaves without waking the next one.
    drop(first);
    assert_eq!(counts[1].get(), 1);

    let mut newer = Box::pin(gate.enter("a", token(2)));
    let newer = newer.poll_unpin(&mut contexts[2]);
    assert!(
        newer.is_ready(),
        "nobody is inside, and the waiter is stale"
    );
    assert_eq!(counts[1].get(), 2, "the stale waiter is woken at once");
    let refused = second
        .as_mut()
        .now_or_never()
        .expect("it is refused at once");
    let error = refused.expect_err("it is stale");
    assert_eq!(
        error.stale_token().map(|stale| stale.highest),
        Some(token(2))
    );
}

/// Catches a slot that is lost, or given to two resources, when its resource is forgotten.
#[test]
fn a_write_that_was_withdrawn_leaves_nothing_behind() {
    let gate = Gate::with_capacity(2);
    let enter = |resource, number| block_on(Entering::new(&gate, resource, token(number)));
    let first = enter("a", 34).expect("it is free");
    let mut second = Box::pin(gate.enter("a", token(34)));
    let mut context = Context::from_waker(Waker::noop());
    assert!(second.poll_unpin(&mut context).is_pending());
    first.withdraw();
    drop(block_on(second).expect("it is its turn"));
    assert_eq!(gate.highest("a"), Some(token(34)), "the second has written");

    let withdrawn = enter("b", 9).expect("it is free");
    withdrawn.withdraw();
    assert_eq!(gate.highest("b"), None);
    for resource in ["c", "d"] {
        let permit = enter(resource, 8).expect("the place of b is free");
        permit.withdraw();
    }
    let checked = enter("e", 7).expect("it is free");
    gate.check("e", token(8)).expect("it is greater");
    checked.withdraw();
    let kept = serde_json::json!({"capacity": 2, "floor": null, "seen": [["a", 34], ["e", 8]]});
    assert_eq!(json(&gate), kept, "a check counts for good");
}

/// Catches a waiter that is refused for a token that no longer counts.
#[test]
fn a_waiter_enters_again_if_the_newer_write_was_withdrawn() {
    for between in [None, Some(20)] {
        let gate = Gate::new();
        let enter = |number| Box::pin(Entering::new(&gate, "a", token(number)));
        let mut context = Context::from_waker(Waker::noop());
        let first = block_on(enter(33)).expect("it is free");
        let (mut waiter, mut newer) = (enter(33), enter(34));
        assert!(waiter.poll_unpin(&mut context).is_pending());
        assert!(newer.poll_unpin(&mut context).is_pending());
        first.withdraw();
        block_on(newer).expect("it is its turn").withdraw();
        if let Some(between) = between {
            drop(block_on(enter(between)).expect("it is free"));
        }
        drop(block_on(waiter).expect("the newer one wrote nothing"));
        assert_eq!(gate.highest("a"), Some(token(33)));
    }
}

#[test]
fn the_line_is_bounded() {
    let gate = Gate::new();
    let _entered = block_on(gate.enter("a", token(1))).expect("it is free");
    let mut context = Context::from_waker(Waker::noop());
    let mut waiting: Vec<_> = (0..Gate::MAX_WAITING)
        .map(|_| Box::pin(gate.enter("a", token(1))))
        .collect();
    for future in &mut waiting {
        assert!(future.poll_unpin(&mut context).is_pending());
    }
    let error = block_on(gate.enter("a", token(1))).expect_err("the line is full");
    assert_eq!(error.kind(), ErrorKind::Overloaded);
    waiting.pop();
    let mut late = Box::pin(gate.enter("a", token(1)));
    assert!(
        late.poll_unpin(&mut context).is_pending(),
        "a place is free"
    );
    drop(late);
    let newer = gate.enter("a", token(2)).now_or_never();
    assert!(newer.is_none(), "a newer one has the line for itself");
}
