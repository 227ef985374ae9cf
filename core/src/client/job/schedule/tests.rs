use std::time::Duration;

use jiff::Timestamp;
use leasehold_engine::{Error, ErrorKind};
use serde_json::Value;

use super::Schedule;

/// Makes the schedule of a case in `tests/vectors/schedules.json`.
fn schedule(case: &Value) -> Result<Schedule, Error> {
    if let Some(period) = case["every"].as_u64() {
        return Schedule::every(Duration::from_millis(period));
    }
    let [text, zone] = ["cron", "timeZone"].map(|field| case[field].as_str().expect(field));
    Schedule::cron(text, zone)
}

fn cases(list: &str) -> Vec<Value> {
    let vectors: Value =
        serde_json::from_str(&crate::vectors("schedules.json")).expect("the vectors are JSON");
    vectors[list].as_array().expect("a list").clone()
}

fn rows(case: &Value, field: &str) -> Vec<Value> {
    case[field].as_array().expect("a list").clone()
}

fn millis(time: &Value) -> u64 {
    let time = time.as_str().expect("a time");
    let time: Timestamp = time.parse().expect("a time");
    u64::try_from(time.as_millisecond()).expect("a time after 1970")
}

fn tick(expected: &Value) -> Option<u64> {
    (!expected.is_null()).then(|| millis(expected))
}

/// Catches a due time that depends on the language of the runner: two runners would run two ticks.
#[test]
fn ticks_are_those_of_javascript() {
    let mut wrong = Vec::new();
    for case in cases("schedules") {
        let schedule = schedule(&case).expect("a valid schedule");
        let mut check = |row: &Value, expected: Option<u64>, ours: Option<u64>| {
            if ours != expected {
                wrong.push(format!("{}: {row}: got {ours:?}", case["shows"]));
            }
        };
        for row in rows(&case, "next") {
            check(&row, tick(&row[1]), schedule.next(millis(&row[0])));
        }
        for row in rows(&case, "latest") {
            check(&row, tick(&row[1]), schedule.latest(millis(&row[0])));
        }
        for row in rows(&case, "between") {
            let (from, to) = (millis(&row[0]), millis(&row[1]));
            check(
                &row,
                row[2].as_u64(),
                Some(schedule.between(from, to, 10_000)),
            );
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn what_is_no_schedule_is_refused_in_both_languages() {
    for case in cases("refused") {
        let error = schedule(&case).expect_err(&case.to_string());
        assert_eq!(error.kind(), ErrorKind::Config, "{case}: {error}");
    }
}
