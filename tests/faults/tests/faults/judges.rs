//! Histories that are broken on purpose.

use leasehold_faults::checks::Round;
use leasehold_faults::fault::{Fault, Injected};
use leasehold_faults::history::{Entry, Event, Kind, Outcome};
use leasehold_faults::porcupine::Porcupine;
use leasehold_faults::store::Served;
use leasehold_faults::topology::Topology;
use leasehold_faults::usage::Use;

use crate::folder_of;

const MILLI: u64 = 1_000_000;
/// The time from one lease to the next.
const TURN: u64 = 100 * MILLI;

/// Returns a history of leases one after the other, in turns by two clients. Each reads and writes.
fn good(leases: u64) -> Round {
    let mut round = Round {
        topology: Topology::One,
        usage: Use::Locks,
        entries: Vec::new(),
        served: Vec::new(),
        faults: Vec::new(),
    };
    for turn in 0..leases {
        turn_of(&mut round, turn);
    }
    round
}

fn turn_of(round: &mut Round, turn: u64) {
    let (begin, token) = (turn * TURN, 1_000 + turn * 10);
    let client = format!("rust-{}.0/0", turn % 2);
    let mut add =
        |millis: u64, op: u64, event: Event, kind: Option<Kind>, value: Option<String>| {
            let is_back = event == Event::Return;
            let has_token = is_back || kind != Some(Kind::Acquire);
            round.entries.push(Entry {
                at: begin + millis * MILLI,
                client: client.clone(),
                op: turn * 10 + op,
                event,
                kind,
                name: "a".to_owned(),
                reads: false,
                generation: None,
                token: has_token.then_some(token),
                value,
                outcome: is_back.then_some(Outcome::Ok),
                text: None,
                late: None,
                unseen: None,
            });
        };
    let written = |turn: u64| format!("value-{turn}");
    let before = turn.checked_sub(1).map(written).unwrap_or_default();
    add(1, 1, Event::Call, Some(Kind::Acquire), None);
    add(2, 1, Event::Return, Some(Kind::Acquire), None);
    add(3, 2, Event::Call, Some(Kind::Read), None);
    add(5, 2, Event::Return, Some(Kind::Read), Some(before));
    add(40, 0, Event::Valid, None, None);
    add(50, 3, Event::Call, Some(Kind::Write), Some(written(turn)));
    add(52, 3, Event::Return, Some(Kind::Write), None);
    for (millis, writes) in [(4, false), (51, true)] {
        round.served.push(Served {
            at: begin + millis * MILLI,
            name: "a".to_owned(),
            token,
            writes,
            accepted: true,
        });
    }
}

/// Returns the verdicts of both judges: true if they accept the round.
fn accepted(round: &Round, name: &str) -> [bool; 2] {
    let folder = folder_of(name);
    let porcupine = Porcupine::build(&folder).expect("Go is installed");
    let (history, report) = (folder.join("history.jsonl"), folder.join("porcupine.html"));
    let lines = round.entries.iter().map(serde_json::to_string);
    let lines: Vec<_> = lines
        .collect::<Result<_, _>>()
        .expect("entries have a JSON form");
    std::fs::write(&history, lines.join("\n")).expect("a file can be written");
    let judged = porcupine.judge(&history, &report).expect("Porcupine runs");
    [round.judge().violations.is_empty(), judged.is_ok]
}

#[test]
fn both_judges_accept_a_good_history() {
    let round = good(20);
    assert_eq!(round.leases().len(), 20);
    assert_eq!(accepted(&round, "good"), [true, true]);
}

/// Catches judges that do not compare tokens.
#[test]
fn both_judges_refuse_two_swapped_tokens() {
    let mut round = good(20);
    let swapped = |token: u64| match token {
        1_050 => 1_080,
        1_080 => 1_050,
        other => other,
    };
    for entry in &mut round.entries {
        entry.token = entry.token.map(swapped);
    }
    for served in &mut round.served {
        served.token = swapped(served.token);
    }
    assert_eq!(accepted(&round, "swapped"), [false, false]);
}

/// Returns a history in which the lease of the sixth turn writes and is valid during that of the seventh.
fn overlapping() -> Round {
    let mut round = good(20);
    let (token, later) = (1_050, TURN);
    for entry in &mut round.entries {
        let is_late = entry.event == Event::Valid || entry.kind == Some(Kind::Write);
        if entry.token == Some(token) && is_late {
            entry.at += later;
        }
    }
    for served in &mut round.served {
        if served.token == token && served.writes {
            served.at += later;
        }
    }
    round.entries.sort_by_key(|entry| entry.at);
    round.served.sort_by_key(|served| served.at);
    round
}

/// Catches judges that see each lease alone.
#[test]
fn both_judges_refuse_two_leases_that_overlap() {
    let round = overlapping();
    let verdict = round.judge();
    assert!(verdict.violations.iter().any(|text| text.starts_with("I1")));
    assert!(verdict.violations.iter().any(|text| text.starts_with("I3")));
    assert_eq!(verdict.stale_writes, 1);
    assert_eq!(accepted(&round, "overlapping"), [false, false]);
}

/// Catches an excuse for every overlap, and one that no fault gives.
#[test]
fn an_overlap_is_excused_only_by_a_fault_that_ends_exclusion() {
    let overlaps_with = |kind: Fault, name: Option<&str>, topology: Topology| {
        let mut round = overlapping();
        round.topology = topology;
        round.faults.push(Injected {
            kind,
            target: "server 1".to_owned(),
            name: name.map(str::to_owned),
            capacity: None,
            at: 5 * TURN + 10 * MILLI,
            until: 5 * TURN + 11 * MILLI,
        });
        let verdict = round.judge();
        let mut violations = verdict.violations.iter();
        (
            violations.any(|text| text.starts_with("I1")),
            verdict.excused,
        )
    };
    assert_eq!(
        overlaps_with(Fault::FlushAll, None, Topology::One),
        (false, 1)
    );
    assert_eq!(
        overlaps_with(Fault::FlushAll, None, Topology::Quorum),
        (true, 0)
    );
    assert_eq!(
        overlaps_with(Fault::Del, Some("a"), Topology::One),
        (false, 1)
    );
    assert_eq!(
        overlaps_with(Fault::Del, Some("b"), Topology::One),
        (true, 0)
    );
    assert_eq!(
        overlaps_with(Fault::CutLink, None, Topology::One),
        (true, 0)
    );
    assert_eq!(
        overlaps_with(Fault::RestartServer, None, Topology::One),
        (true, 0)
    );
    assert_eq!(
        overlaps_with(Fault::RestartServer, None, Topology::Sentinel),
        (false, 1)
    );
}

/// Returns a good history in which a loss is told at this time, this late.
fn with_loss(at: u64, late: i64, unseen: u64) -> Round {
    let mut round = good(3);
    let valid = round
        .entries
        .iter()
        .find(|entry| entry.event == Event::Valid);
    let mut lost = valid.expect("leases are valid").clone();
    lost.event = Event::Lost;
    lost.at = at;
    lost.late = Some(late);
    lost.unseen = Some(unseen);
    round.entries.push(lost);
    round.entries.sort_by_key(|entry| entry.at);
    round
}

/// Catches a check of losses that takes any lateness, or none of a process that was stopped.
#[test]
fn a_late_loss_is_refused_unless_the_process_was_stopped() {
    let verdict = |late: i64, unseen: u64| with_loss(60 * MILLI, late, unseen).judge().violations;
    assert!(verdict(-1, 10 * MILLI).is_empty());
    assert!(verdict(900_000_000, 1_000 * MILLI).is_empty());
    let late = verdict(900_000_000, 10 * MILLI);
    assert!(late[0].starts_with("I4"), "{late:?}");
}

/// Catches a lease that is lost and valid again.
#[test]
fn a_lease_that_comes_back_is_refused() {
    let verdict = with_loss(30 * MILLI, -1, 0).judge();
    assert!(
        verdict.violations[0].starts_with("I5"),
        "{:?}",
        verdict.violations
    );
}

/// Catches a store that refuses what it should accept.
#[test]
fn a_refusal_without_a_reason_is_refused() {
    let mut round = good(3);
    round.served[3].accepted = false;
    let last = round
        .entries
        .iter_mut()
        .rfind(|entry| entry.token == Some(1_010));
    last.expect("an entry of the second lease").outcome = Some(Outcome::Stale);
    assert_eq!(accepted(&round, "refusal"), [false, false]);
}
