//! Delivers every operation twice, at once and later, as if a client or a proxy repeated unanswered requests.
//!
//! It runs on the model only, since other tests compare the script with the model.

use std::collections::BTreeMap;
use std::time::Duration;

use leasehold_engine::FencingToken;
use leasehold_engine::protocol::{
    Accept, AskYield, Claim, Command, ForceRelease, LeaseId, LockKey, Op, Reclaim, Release, Renew,
    Retire, YieldRequest,
};
use leasehold_engine::time::ServerTime;
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};

use crate::model::{Flaw, Model};
use crate::samples;
use crate::sequence::{Planned, claims, planned_on};

const CASES: u32 = 3_000;

/// The essential state of a name: the holder and its token, and the waiters in order.
type State = (Option<(LeaseId, FencingToken)>, Vec<String>);

struct Run {
    model: Model,
    key: LockKey,
    now: ServerTime,
    /// The greatest token so far.
    last: Option<FencingToken>,
    /// The claim of each lease, which an acquisition keeps.
    of_lease: BTreeMap<LeaseId, Claim>,
}

impl Run {
    fn state(&self) -> State {
        let holder = self.model.lease_of(self.now, &self.key);
        let holder = holder.zip(self.model.token_of(self.now, &self.key));
        let line = self.model.line(self.now, &self.key).into_iter();
        (holder, line.map(|place| place.member).collect())
    }

    fn expires(&self) -> Option<u64> {
        let tenure = self.model.tenure(self.now, &self.key)?;
        Some(tenure.expires.millis())
    }

    fn request(&self) -> Option<YieldRequest> {
        let tenure = self.model.tenure(self.now, &self.key)?;
        tenure.request.clone()
    }

    fn execute(&mut self, op: &Op) {
        self.model.execute(self.now, std::slice::from_ref(op));
        self.last = self.last.max(self.model.token_of(self.now, &self.key));
    }

    /// Returns an operation that a client might send: with the lease's earlier claim, if any, and without a
    /// token that no lease has had yet.
    fn op(&mut self, planned: &Planned, claims: &[Claim]) -> Option<Op> {
        let only = std::slice::from_ref(&self.key);
        let mut op = planned.at(self.now, only, claims, &self.model);
        if let Command::Acquire(leasehold_engine::protocol::Acquire { claim, .. })
        | Command::Accept(Accept { claim, .. })
        | Command::Release(Release { claim, .. }) = &mut op.command
        {
            let own = self.of_lease.entry(claim.lease);
            *claim = own.or_insert_with(|| claim.clone()).clone();
        }
        let named = match &op.command {
            Command::Acquire(acquire) => match acquire.reclaims {
                Reclaim::From(token) => Some(token),
                Reclaim::Ask | Reclaim::Never | Reclaim::Propose(_) => None,
            },
            Command::ForceRelease(ForceRelease { token, .. })
            | Command::Accept(Accept { token, .. })
            | Command::AskYield(AskYield { token, .. }) => Some(*token),
            _ => None,
        };
        Some(op).filter(|_| named.is_none_or(|token| Some(token) <= self.last))
    }

    fn passes(&mut self, micros: u64) {
        self.now = self.now + Duration::from_micros(micros);
    }
}

/// Returns the lease that an operation is about, if any.
fn asker(op: &Op) -> Option<LeaseId> {
    match &op.command {
        Command::Acquire(acquire) => Some(acquire.claim.lease),
        Command::Release(Release { claim, .. }) | Command::Accept(Accept { claim, .. }) => {
            Some(claim.lease)
        }
        Command::Renew(Renew { lease, .. }) | Command::Retire(Retire { lease, .. }) => Some(*lease),
        _ => None,
    }
}

/// Returns the tenure that an operation asks to yield, if any.
fn asks(op: &Op) -> Option<FencingToken> {
    match &op.command {
        Command::AskYield(AskYield { token, .. }) => Some(*token),
        _ => None,
    }
}

fn check(
    flaw: Flaw,
    claims: &[Claim],
    steps: &[(Planned, u64, bool)],
) -> Result<(), TestCaseError> {
    let mut run = Run {
        model: Model::new(flaw),
        key: samples::key("twice"),
        now: ServerTime::from_micros(1_700_000_000_000_000),
        last: None,
        of_lease: BTreeMap::new(),
    };
    let mut earlier: Option<Op> = None;
    for (planned, pause, later) in steps {
        run.passes(*pause);
        let Some(op) = run.op(planned, claims) else {
            continue;
        };
        run.execute(&op);
        let once = run.state();
        run.execute(&op);
        prop_assert_eq!(&run.state(), &once, "delivered twice at once: {:?}", op);
        // A second delivery must not take from others what they have by now.
        if let Some(earlier) = earlier.take_if(|_| *later) {
            let holder = once.0.filter(|(lease, _)| Some(*lease) != asker(&earlier));
            let (tenure, until) = (once.0, run.expires());
            let request = run.request();
            run.execute(&earlier);
            let after = run.state().0;
            let stays = holder.is_none() || after == holder;
            prop_assert!(stays, "{:?} became {:?} by {:?}", holder, after, earlier);
            let is_meant = tenure.is_some_and(|(_, token)| asks(&earlier) == Some(token));
            let is_asked = after == tenure && run.request() != request && !is_meant;
            prop_assert!(
                !is_asked,
                "{:?} was asked to yield by {:?}",
                tenure,
                earlier
            );
            let shortened = after == tenure && run.expires() < until;
            prop_assert!(!shortened, "{:?} was cut short by {:?}", tenure, earlier);
        }
        earlier.get_or_insert(op);
    }
    Ok(())
}

fn run(flaw: Flaw) -> Result<(), String> {
    let steps = vec((planned_on(0), 0..3_000_u64, any::<bool>()), 1..=20);
    let config = Config {
        cases: CASES,
        failure_persistence: None,
        ..Config::default()
    };
    let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &[0; 32]);
    TestRunner::new_with_rng(config, rng)
        .run(&(vec(claims(), 6), steps), |(claims, steps)| {
            check(flaw, &claims, &steps)
        })
        .map_err(|error| error.to_string())
}

/// Catches an operation that affects another holder when it is delivered a second time.
#[test]
fn a_second_delivery_has_no_effect() {
    run(Flaw::Nothing).unwrap_or_else(|error| panic!("{error}"));
}

/// The negative control.
#[test]
fn a_second_delivery_that_affects_the_next_holder_is_found() {
    for flaw in [
        Flaw::ForceReleasesAnybody,
        Flaw::AsksAnybody,
        Flaw::ReclaimsAnyTenure,
        Flaw::ReleasesForOthers,
        Flaw::RetryTakesNewToken,
        Flaw::RetiresAnybody,
        Flaw::AcceptsAnybody,
    ] {
        assert!(run(flaw).is_err(), "{flaw:?} was not found");
    }
}
