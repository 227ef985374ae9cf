//! Shared names: twenty processes in both languages under faults, and histories that are broken on purpose.
//!
//! `LEASEHOLD_FAULT_SECONDS=30 cargo test -p leasehold-faults --test faults shared:: -- --nocapture` makes the rounds
//! longer.

use leasehold_faults::checks::Round;
use leasehold_faults::fault::{Fault, Injected};
use leasehold_faults::history::{Entry, Event, Kind, Outcome};
use leasehold_faults::topology::Topology;
use leasehold_faults::usage::{CAPACITY, Use};
use leasehold_faults::{Options, Summary, run};

use crate::options;

const MILLI: u64 = 1_000_000;
/// How long a round lasts by default, in seconds.
const SECONDS: u64 = 7;

fn seconds() -> u64 {
    let asked = std::env::var("LEASEHOLD_FAULT_SECONDS").ok();
    asked.map_or(SECONDS, |text| text.parse().expect("a number of seconds"))
}

async fn summary(usage: Use, options: Options) -> Summary {
    let options = Options { usage, ..options };
    run(&options).await.expect("the round can be played")
}

/// Checks that the round had the faults that matter most, and these.
fn had(summary: &Summary, more: &[Fault]) {
    let common = [Fault::KillClient, Fault::StopClient, Fault::FlushAll];
    for kind in common.iter().chain(more) {
        assert!(summary.faults.contains_key(kind), "no {}", kind.name());
    }
}

/// Catches more holders than slots, a slot with two holders, a token of a slot that falls, and a late holder that the
/// guard lets through.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn twenty_processes_share_the_slots_of_a_semaphore() {
    let summary = summary(Use::Semaphore, options("faults-semaphore", seconds())).await;
    assert!(summary.is_ok(), "{summary}");
    had(&summary, &[Fault::Resize]);
}

/// Catches a writer beside another holder, and a reader that knows an older writer than one before it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn twenty_processes_are_readers_and_writers() {
    let summary = summary(Use::Readers, options("faults-readers", seconds())).await;
    assert!(summary.is_ok(), "{summary}");
    had(&summary, &[]);
}

/// Lets half of the clients use another namespace, and checks that the judge finds these violations.
async fn found_if_divided(usage: Use, kinds: &[&str]) {
    let options = Options {
        divided: true,
        ..options(&format!("faults-{usage}-divided"), 3)
    };
    let summary = summary(usage, options).await;
    for kind in kinds {
        let mut violations = summary.violations.iter();
        assert!(
            violations.any(|text| text.contains(kind)),
            "no {kind} {summary}"
        );
    }
}

/// Catches judges that find nothing: half of the clients have a semaphore of their own.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_semaphores_for_the_same_slots_are_found() {
    found_if_divided(Use::Semaphore, &["capacity: ", "I1: "]).await;
}

/// Catches judges that find nothing: half of the clients know other writers.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn writers_that_do_not_exclude_each_other_are_found() {
    found_if_divided(Use::Readers, &["I1: ", "generation: "]).await;
}

fn empty(usage: Use) -> Round {
    Round {
        topology: Topology::One,
        usage,
        entries: Vec::new(),
        served: Vec::new(),
        faults: Vec::new(),
    }
}

/// A lease in a history. Times are in milliseconds.
#[derive(Clone, Copy)]
struct Seen {
    name: &'static str,
    token: u64,
    call: u64,
    back: u64,
    valid: u64,
    reads: bool,
    generation: Option<u64>,
}

/// Returns the lease of a slot, called a millisecond before it returned.
fn slot(name: &'static str, token: u64, back: u64, valid: u64) -> Seen {
    Seen {
        name,
        token,
        call: back - 1,
        back,
        valid,
        reads: false,
        generation: None,
    }
}

fn reader(token: u64, generation: Option<u64>, back: u64, valid: u64) -> Seen {
    Seen {
        reads: true,
        generation,
        ..slot("a", token, back, valid)
    }
}

fn writer(token: u64, back: u64, valid: u64) -> Seen {
    Seen {
        generation: Some(token),
        ..slot("a", token, back, valid)
    }
}

fn round(usage: Use, leases: &[Seen], faults: &[Injected]) -> Round {
    let mut round = empty(usage);
    round.faults = faults.to_vec();
    for (number, lease) in leases.iter().enumerate() {
        let mut add = |at: u64, event: Event, kind: Option<Kind>| {
            let is_back = event == Event::Return;
            let is_call = event == Event::Call;
            round.entries.push(Entry {
                at: at * MILLI,
                client: format!("rust-{number}.0/0"),
                op: 1,
                event,
                kind,
                name: if is_call { "a" } else { lease.name }.to_owned(),
                reads: is_back && lease.reads,
                generation: lease.generation.filter(|_| is_back),
                token: (!is_call).then_some(lease.token),
                value: None,
                outcome: is_back.then_some(Outcome::Ok),
                text: None,
                late: None,
                unseen: None,
            });
        };
        add(lease.call, Event::Call, Some(Kind::Acquire));
        add(lease.back, Event::Return, Some(Kind::Acquire));
        add(lease.valid, Event::Valid, None);
    }
    round.entries.sort_by_key(|entry| entry.at);
    round
}

fn fault(kind: Fault, capacity: Option<u32>, at: u64, until: u64) -> Injected {
    Injected {
        kind,
        target: "a".to_owned(),
        name: capacity.is_some().then(|| "a".to_owned()),
        capacity,
        at: at * MILLI,
        until: until.saturating_mul(MILLI),
    }
}

fn resize(capacity: u32, at: u64, until: u64) -> Injected {
    fault(Fault::Resize, Some(capacity), at, until)
}

/// Returns the begins of the violations, and the number of excused overlaps.
fn found(round: &Round) -> (Vec<String>, u64) {
    let verdict = round.judge();
    let kinds = verdict.violations.iter().map(|text| {
        let (kind, _) = text.split_once(':').expect("a violation has a kind");
        kind.to_owned()
    });
    (kinds.collect(), verdict.excused)
}

fn of_slots(leases: &[Seen], faults: &[Injected]) -> (Vec<String>, u64) {
    found(&round(Use::Semaphore, leases, faults))
}

const FULL: [(&str, u64); 3] = [("a#0", 10), ("a#1", 11), ("a#2", 12)];

/// Returns three holders of a semaphore of three, from the tenth millisecond to the fiftieth.
fn full() -> Vec<Seen> {
    let slots = FULL.into_iter();
    slots
        .map(|(name, token)| slot(name, token, token, 50))
        .collect()
}

/// Catches a judge that allows a fourth holder, and one that does not know a capacity in force: one whose change is on
/// its way, or has no answer.
#[test]
fn one_holder_too_many_is_refused() {
    let capacity = || vec!["capacity".to_owned(); 2];
    let mut leases = full();
    assert_eq!(CAPACITY, 3);
    assert_eq!(of_slots(&leases, &[]), (vec![], 0));
    leases.push(slot("a#3", 20, 20, 40));
    // The slot and the number of holders.
    assert_eq!(of_slots(&leases, &[]), (capacity(), 0));
    assert_eq!(of_slots(&leases, &[resize(4, 2, 4)]), (vec![], 0));
    assert_eq!(of_slots(&leases, &[resize(4, 20, 30)]), (vec![], 0));
    assert_eq!(of_slots(&leases, &[resize(4, 21, 30)]), (capacity(), 0));
    assert_eq!(of_slots(&leases, &[resize(4, 2, u64::MAX)]), (vec![], 0));
    let back = [resize(4, 2, 4), resize(3, 5, 6)];
    assert_eq!(of_slots(&leases, &back), (capacity(), 0));
    // One that waited alone since before the capacity shrank was not admitted after the others.
    leases[3].call = 5;
    assert_eq!(of_slots(&leases, &back), (vec!["capacity".to_owned()], 0));
    for lease in &mut leases {
        lease.call = 5;
    }
    assert_eq!(of_slots(&leases, &back), (vec![], 0));
}

/// Catches a judge that takes draining for a violation, and one that allows a new holder meanwhile.
#[test]
fn holders_of_a_shrunken_semaphore_only_drain() {
    let mut leases = full();
    let shrunk = [resize(2, 15, 16)];
    assert_eq!(of_slots(&leases, &shrunk), (vec![], 0));
    leases[0].valid = 20;
    leases.push(slot("a#0", 30, 30, 40));
    let refused = of_slots(&leases, &shrunk);
    assert_eq!(refused, (vec!["capacity".to_owned()], 0));
    leases[1].valid = 25;
    leases[2].valid = 25;
    leases.push(slot("a#2", 35, 35, 40));
    let refused = of_slots(&leases, &shrunk);
    assert_eq!(refused, (vec!["capacity".to_owned()], 0));
}

/// Catches a client that takes all slots for one resource, and a slot whose tokens fall.
#[test]
fn each_slot_has_one_holder_and_its_tokens_grow() {
    let mut leases = full();
    for lease in &mut leases {
        lease.name = "a#0";
    }
    assert_eq!(of_slots(&leases, &[]).0, ["I1"; 3]);
    let mut leases = full();
    leases.push(slot("a#1", 9, 60, 70));
    assert_eq!(of_slots(&leases, &[]).0, ["I2"]);
}

/// Catches an excuse after `FLUSHALL` for holders that the server knows, and one that lasts longer than a lease.
#[test]
fn flushall_excuses_only_the_holders_before_it() {
    let ttl = u64::try_from(Use::Semaphore.ttl().as_millis()).expect("a short time");
    let flush = [fault(Fault::FlushAll, None, 30, 31)];
    let mut leases = full();
    leases.push(slot("a#0", 40, 40, 60));
    assert_eq!(of_slots(&leases, &flush), (vec![], 2));
    leases.extend(["a#1", "a#2", "a#3"].map(|name| slot(name, 41, 41, 60)));
    let (violations, _) = of_slots(&leases, &flush);
    assert_eq!(violations, ["capacity"; 2]);
    let mut leases = full();
    leases[0].valid = 31 + ttl;
    assert_eq!(of_slots(&leases, &flush), (vec![], 0));
    leases[0].valid += 1;
    assert_eq!(of_slots(&leases, &flush).0, ["I5"]);
}

/// Catches a judge that takes readers for writers, and one that allows a writer beside a reader or another writer.
#[test]
fn a_writer_beside_another_holder_is_refused() {
    let judge = |leases: &[Seen]| found(&round(Use::Readers, leases, &[])).0;
    let readers = [reader(10, None, 10, 50), reader(11, None, 11, 50)];
    assert!(judge(&readers).is_empty());
    assert_eq!(judge(&[readers[0], writer(20, 20, 30)]), ["I1"]);
    assert_eq!(
        judge(&[writer(5, 5, 20), reader(10, Some(5), 10, 50)]),
        ["I1"]
    );
    assert_eq!(judge(&[writer(5, 5, 20), writer(6, 15, 20)]), ["I1"]);
}

/// Catches a judge that does not compare generations, and one that forgets what a server forgets.
#[test]
fn a_generation_that_falls_is_refused() {
    let judge = |leases: &[Seen], faults: &[Injected]| {
        let violations = found(&round(Use::Readers, leases, faults)).0;
        violations.join(" ")
    };
    let (first, second) = (writer(5, 5, 6), writer(15, 15, 16));
    let after = |generation: Option<u64>| reader(30, generation, 30, 40);
    assert_eq!(judge(&[first, second, after(Some(15))], &[]), "");
    assert_eq!(judge(&[first, second, after(Some(5))], &[]), "generation");
    assert_eq!(judge(&[first, after(None)], &[]), "generation");
    let readers = [reader(20, Some(15), 20, 40), after(Some(5))];
    assert_eq!(judge(&readers, &[]), "generation");
    assert_eq!(judge(&[after(Some(31))], &[]), "generation");
    let flush = [fault(Fault::FlushAll, None, 20, 21)];
    assert_eq!(judge(&[first, after(None)], &flush), "");
    let flush = [fault(Fault::FlushAll, None, 2, 3)];
    assert_eq!(judge(&[first, after(None)], &flush), "generation");
}
