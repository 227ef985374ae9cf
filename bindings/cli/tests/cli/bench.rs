//! `leasehold bench` measures, and ends in time.

use std::time::Duration;

use leasehold_tests::{Admin, RedisServer};

use crate::program::{leasehold, on, output};

#[tokio::test]
async fn it_measures_for_a_bounded_time_and_leaves_nothing_for_long() {
    let server = RedisServer::start().await;
    let args = ["bench", "--time", "600ms", "--callers", "8"];
    let ran = output(on(&server, args));
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert!(ran.took < Duration::from_secs(5), "{ran:?}");
    assert!(
        ran.stdout.contains("p99") && ran.stdout.contains("█"),
        "{ran:?}"
    );
    let ran = output(on(&server, args.iter().copied().chain(["--json"])));
    let lines: Vec<_> = ran.stdout.lines().collect();
    assert_eq!(lines.len(), 3, "{ran:?}");
    for (line, name) in lines.iter().zip(["latency", "pairs", "handoff"]) {
        assert!(
            line.starts_with(&format!(r#"{{"bench":"{name}","callers":"#)),
            "{line}"
        );
        assert!(!line.contains(r#""count":0,"#), "{line}");
    }
    let mut admin = Admin::connect(&server).await;
    let keys = admin.keys("*").await;
    assert!(!keys.is_empty());
    for key in keys {
        let left = admin.int(&["PTTL", &key]).await;
        assert!((0..=31_000).contains(&left), "{key} stays for {left} ms");
    }
}

#[test]
fn bounds_are_checked() {
    for args in [
        ["--time", "1h"],
        ["--time", "-1s"],
        ["--callers", "0"],
        ["--callers", "100000"],
    ] {
        let ran = output(leasehold(
            ["bench", "--url", "memory://"].iter().chain(&args),
        ));
        assert_eq!(ran.code, Some(64), "{args:?}: {ran:?}");
    }
}
