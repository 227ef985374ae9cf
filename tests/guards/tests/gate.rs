//! The gate under the conformance suite.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use leasehold::fence::Gate;
use leasehold::{Error, FencingToken, Locker};
use leasehold_guard_tests::conformance::{Guarded, conforms, token};

/// Registers in memory.
#[derive(Default)]
struct Registers(Mutex<HashMap<String, Vec<(u64, u64)>>>);

impl Registers {
    fn write(&self, resource: &str, token: FencingToken, value: u64) {
        let mut registers = self.0.lock().expect("no writer panics");
        let history = registers.entry(resource.to_owned()).or_default();
        history.push((token.get(), value));
    }

    fn history(&self, resource: &str) -> Vec<(u64, u64)> {
        let registers = self.0.lock().expect("no writer panics");
        registers.get(resource).cloned().unwrap_or_default()
    }

    fn read(&self, resource: &str) -> Option<u64> {
        Some(self.history(resource).last()?.1)
    }
}

/// A way to write to the registers.
#[derive(Copy, Clone)]
enum Way {
    Guard,
    Enter,
    /// Wrong on purpose: nothing is held between the check and the write.
    CheckThenWrite,
}

struct Store {
    gate: Gate,
    registers: Registers,
    way: Way,
}

impl Store {
    fn shared(way: Way) -> Arc<Self> {
        let (gate, registers) = (Gate::new(), Registers::default());
        Arc::new(Self {
            gate,
            registers,
            way,
        })
    }
}

impl Guarded for Store {
    async fn write(&self, resource: &str, token: FencingToken, value: u64) -> Result<(), Error> {
        match self.way {
            Way::Guard => self.gate.guard(resource, token, || {
                std::thread::yield_now();
                self.registers.write(resource, token, value);
            }),
            Way::Enter => {
                let _entered = self.gate.enter(resource, token).await?;
                tokio::task::yield_now().await;
                self.registers.write(resource, token, value);
                Ok(())
            }
            Way::CheckThenWrite => {
                self.gate.check(resource, token)?;
                tokio::task::yield_now().await;
                self.registers.write(resource, token, value);
                Ok(())
            }
        }
    }

    async fn history(&self, resource: &str) -> Vec<(u64, u64)> {
        self.registers.history(resource)
    }

    async fn read(&self, resource: &str) -> Option<u64> {
        self.registers.read(resource)
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn guarded_writes_conform() {
    conforms(Store::shared(Way::Guard), "guard", 200).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn entered_writes_conform() {
    conforms(Store::shared(Way::Enter), "enter", 200).await;
}

/// The negative control: the suite fails if the check and the write are not one step.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_check_alone_does_not_conform() {
    let suite = tokio::spawn(conforms(Store::shared(Way::CheckThenWrite), "check", 200));
    let error = suite.await.expect_err("older writes land after newer ones");
    let panic = error.into_panic();
    let message = panic.downcast_ref::<String>().expect("an assertion failed");
    assert!(message.contains("accepted out of order"), "{message}");
}

/// Catches a gate that does not take a lease's token, and one that a restart opens.
#[tokio::test]
async fn a_lease_writes_through_a_gate_across_a_restart() {
    let locker = Locker::in_memory();
    let lock = locker.lock("account/7").expect("the name is valid");
    let first = lock.acquire().await.expect("a free lock");
    let (older, gate) = (first.token(), Gate::new());
    first.release().await.expect("a held lock");
    let lease = lock.acquire().await.expect("a free lock");
    gate.guard("account/7", lease.token(), || ())
        .expect("the newest token");

    let saved = serde_json::to_string(&gate).expect("a gate serializes");
    let gate: Gate = serde_json::from_str(&saved).expect("a gate deserializes");
    let refused = gate.guard("account/7", older, || ());
    let error = refused.expect_err("a newer token wrote before the restart");
    let stale = error.stale_token().expect("a refusal has its details");
    assert_eq!((stale.offered, stale.highest), (older, lease.token()));
    gate.check("account/8", token(1))
        .expect("other resources are free");
}

/// Catches a permit that is lost because a waker panics while it is given: no one could write to the resource
/// again.
#[test]
fn a_waker_that_panics_does_not_close_the_resource() {
    use std::future::Future;
    use std::task::{Context, Wake, Waker};

    struct Panics;
    impl Wake for Panics {
        fn wake(self: Arc<Self>) {
            panic!("on purpose");
        }
    }

    let gate = Gate::new();
    let mut idle = Context::from_waker(Waker::noop());
    let panics = Waker::from(Arc::new(Panics));
    let mut holder = Box::pin(gate.enter("a", token(1)));
    let std::task::Poll::Ready(entered) = holder.as_mut().poll(&mut idle) else {
        panic!("the resource is free");
    };
    let mut first = Box::pin(gate.enter("a", token(1)));
    assert!(first.as_mut().poll(&mut idle).is_pending());
    let mut second = Box::pin(gate.enter("a", token(1)));
    let mut context = Context::from_waker(&panics);
    assert!(second.as_mut().poll(&mut context).is_pending());
    // It is the first's turn, which does not poll. So the newer one is admitted, and both are woken.
    drop(entered.expect("a free resource"));
    let mut newer = Box::pin(gate.enter("a", token(2)));
    let woken = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        newer.as_mut().poll(&mut idle).is_ready()
    }));
    woken.expect_err("the waker panics");
    drop(newer);
    let mut next = Box::pin(gate.enter("a", token(2)));
    assert!(
        next.as_mut().poll(&mut idle).is_ready(),
        "the resource is free"
    );
}
