//! Tests of what events look like, and of their names.

use super::*;
use crate::error::ErrorKind;

#[derive(serde::Deserialize)]
struct Vectors {
    reasons: Vec<Vector>,
}

#[derive(serde::Deserialize)]
struct Vector {
    code: String,
    says: String,
    #[serde(default)]
    only: String,
}

/// Checks the codes and words that all languages share.
#[test]
fn reasons_have_their_codes_and_words() {
    let Vectors { reasons } =
        serde_json::from_str(&crate::vectors("codes.json")).expect("the vectors are of this shape");
    let ours = LossReason::ALL.iter();
    let ours = ours.map(|reason| (reason.code().to_owned(), reason.to_string()));
    let theirs = reasons.into_iter().filter(|vector| vector.only.is_empty());
    let theirs = theirs.map(|vector| (vector.code, vector.says));
    assert_eq!(ours.collect::<Vec<_>>(), theirs.collect::<Vec<_>>());
}

/// The JSON is an interface: log readers and the JavaScript binding depend on it. The words are for
/// people.
#[test]
#[expect(clippy::too_many_lines, reason = "it has a case for each event")]
fn the_json_and_the_words_of_every_event_are_fixed() {
    let name = || Name::new("a/b").expect("a valid name");
    let token = FencingToken::new(34).expect("a valid token");
    let remaining = Duration::from_micros(29_940_999);
    let cases = [
        (
            LeaseEvent::Waiting {
                name: name(),
                position: None,
            },
            r#"{"type":"waiting","name":"a/b"}"#,
            "lock \"a/b\": a caller waits in line",
        ),
        (
            LeaseEvent::Waiting {
                name: name(),
                position: Some(2),
            },
            r#"{"type":"waiting","name":"a/b","position":2}"#,
            "lock \"a/b\": a caller waits in line at position 2",
        ),
        (
            LeaseEvent::Acquired {
                name: name(),
                token,
                remaining,
            },
            r#"{"type":"acquired","name":"a/b","token":34,"remaining":29940}"#,
            "lock \"a/b\": the lease with token 34 is held for another 29.94s",
        ),
        (
            LeaseEvent::Renewed {
                name: name(),
                token,
                remaining,
            },
            r#"{"type":"renewed","name":"a/b","token":34,"remaining":29940}"#,
            "lock \"a/b\": the lease with token 34 was renewed for 29.94s",
        ),
        (
            LeaseEvent::AtRisk {
                name: name(),
                token,
                remaining,
                error: Error::new(ErrorKind::Timeout, "no answer"),
            },
            r#"{"type":"atRisk","name":"a/b","token":34,"remaining":29940,"error":{"code":"timeout","message":"no answer"}}"#,
            "lock \"a/b\": the lease with token 34 is at risk, with 29.94s remaining: no answer",
        ),
        (
            LeaseEvent::AtRisk {
                name: name(),
                token,
                remaining,
                error: Error::bad_option("patience", "is short"),
            },
            r#"{"type":"atRisk","name":"a/b","token":34,"remaining":29940,"error":{"code":"config","message":"patience is short"}}"#,
            "lock \"a/b\": the lease with token 34 is at risk, with 29.94s remaining: patience is short",
        ),
        (
            LeaseEvent::Begun {
                name: name(),
                token,
                tick: 900_000,
            },
            r#"{"type":"begun","name":"a/b","token":34,"tick":900000}"#,
            "lock \"a/b\": the lease with token 34 has begun tick 900000",
        ),
        (
            LeaseEvent::Missed {
                name: name(),
                token,
                first: 300_000,
                ticks: 2,
            },
            r#"{"type":"missed","name":"a/b","token":34,"first":300000,"ticks":2}"#,
            "lock \"a/b\": the lease with token 34 has found 2 missed ticks, from 300000 on",
        ),
        (
            LeaseEvent::Completed {
                name: name(),
                token,
                tick: 900_000,
            },
            r#"{"type":"completed","name":"a/b","token":34,"tick":900000}"#,
            "lock \"a/b\": the lease with token 34 has completed tick 900000",
        ),
        (
            LeaseEvent::Wanted {
                name: name(),
                token,
                by: "deploy".into(),
                within: remaining,
            },
            r#"{"type":"wanted","name":"a/b","token":34,"by":"deploy","within":29940}"#,
            "lock \"a/b\": the lease with token 34 is wanted by \"deploy\" within 29.94s",
        ),
        (
            LeaseEvent::Lost {
                name: name(),
                token,
                reason: LossReason::Superseded,
            },
            r#"{"type":"lost","name":"a/b","token":34,"reason":"superseded"}"#,
            "lock \"a/b\": the lease with token 34 was lost: somebody else holds the lock",
        ),
        (
            LeaseEvent::Released {
                name: name(),
                token,
            },
            r#"{"type":"released","name":"a/b","token":34}"#,
            "lock \"a/b\": the lease with token 34 was released",
        ),
        (
            LeaseEvent::Passed {
                name: name(),
                token,
            },
            r#"{"type":"passed","name":"a/b","token":34}"#,
            "lock \"a/b\": the lease with token 34 was passed on",
        ),
        (
            LeaseEvent::ClockDrift {
                drift_margin: 96_153,
            },
            r#"{"type":"clockDrift","driftMargin":96153}"#,
            "the store's clock and this machine's run at different rates; the drift margin is now 96153 ppm",
        ),
        (
            LeaseEvent::Quarantined {
                server: 2,
                remaining,
            },
            r#"{"type":"quarantined","server":2,"remaining":29940}"#,
            "server 2 of the quorum may have forgotten locks and does not vote for 29.94s",
        ),
        (
            LeaseEvent::Readmitted { server: 2 },
            r#"{"type":"readmitted","server":2}"#,
            "server 2 of the quorum votes again",
        ),
        (
            LeaseEvent::Lagged { missed: 3 },
            r#"{"type":"lagged","missed":3}"#,
            "this reader was too slow and missed 3 events",
        ),
    ];
    for (event, json, words) in cases {
        assert_eq!(
            serde_json::to_string(&event).expect("an event serializes"),
            json
        );
        assert_eq!(event.to_string(), words);
    }
}
