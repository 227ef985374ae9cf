//! Killed writers leave no write half done.

use std::env;
use std::path::Path;

use leasehold::fence::redis::Script;
use leasehold_guard_tests::conformance::token;
use leasehold_tests::{Child, eventually};

use super::{FENCE, LIMIT, Store, guard, refusal};

const URL: &str = "LEASEHOLD_TEST_WRITER_URL";

/// Writes all keys. After half a write they would differ from one another or from the fence.
const ALL: &str = "for _, key in ipairs(KEYS) do redis.call('SET', key, ARGV[1]) end";
const KEYS: [&str; 3] = ["a", "b", "c"];

/// The writer process: the test below starts this program again with only this test and the URL.
#[tokio::test]
async fn writer() {
    let Ok(url) = env::var(URL) else { return };
    let redis = guard(&url).await;
    let script = Script::new(ALL);
    for number in 1.. {
        let redis = redis.resource("r", token(number)).expect("a valid name");
        let written: Result<(), _> = redis.script(&script, KEYS.to_vec(), number).await;
        written.expect("there is no other writer");
    }
}

#[tokio::test]
async fn a_killed_writer_leaves_no_half_done_write() {
    let mut store = Store::start().await;
    let program = env::current_exe().expect("the test knows its program");
    let program = program.to_str().expect("the path is UTF-8");
    let url = format!("{URL}={}", store.server.url());
    let (_, here) = module_path!()
        .split_once("::")
        .expect("the path has a module");
    let writer = format!("{here}::writer");
    let mut at_least = 0;
    for round in 0..10 {
        store.admin.flushall().await;
        // `env` becomes the program, so that the process is the writer itself.
        let args = [url.as_str(), program, "--exact", &writer];
        let mut writer = Child::spawn(Path::new("/usr/bin/env"), args);
        let enough = 50 + 37 * round;
        eventually(LIMIT, "some writes", async || {
            let written = store.get("a").await;
            written.is_some_and(|written| written.parse::<u64>().expect("a number") >= enough)
        })
        .await;
        writer.kill9();
        // Once the server has seen the end of the connection, it has executed all that was sent before.
        eventually(LIMIT, "its connection ends", async || {
            let clients = store.admin.info("clients", "connected_clients").await;
            clients.as_deref() == Some("2")
        })
        .await;
        let fence = store.get(FENCE).await.expect("there were writes");
        for key in KEYS {
            assert_eq!(store.get(key).await.as_ref(), Some(&fence), "of {key}");
        }
        let last: u64 = fence.parse().expect("the fence is a token");
        assert_eq!(
            refusal(store.under(last - 1).set("a", "late").await),
            (last - 1, last)
        );
        at_least += last;
    }
    assert!(at_least > 500, "the writers wrote: {at_least}");
}
