//! The keys that a call touches, and their slots in a cluster.

use std::collections::BTreeSet;

use leasehold_engine::protocol::{self, Command, Counter, LockKey, Reply};
use leasehold_engine::{FencingToken, Name};
use leasehold_tests::{Admin, Monitor, RedisServer, Resp};

use crate::real::Real;
use crate::samples::{
    FLOOR, acquire, ask_yield, batch, every_operation, force_release, inspect, key, list, raise,
    release, renew, token, wait,
};

/// Names that reveal a wrong hash tag or a missing escape.
const NAMES: [&str; 9] = [
    "n",
    "{",
    "}",
    "{}",
    "a}{b",
    "}{",
    "nul\0\r\n",
    "🔒",
    "x}:line",
];

async fn cluster() -> RedisServer {
    RedisServer::config()
        .args(["--cluster-enabled", "yes"])
        .start()
        .await
}

#[tokio::test]
async fn a_large_batch_is_answered_in_order() {
    let mut real = Real::start().await;
    let keys: Vec<LockKey> = (0..128)
        .map(|number| key(&format!("name {number}")))
        .collect();
    let take = |(number, key): (usize, &LockKey)| {
        let lease = u32::try_from(number).expect("there are 128 numbers");
        Command::Acquire(acquire(key, lease, Counter::Dense))
    };
    // Each lock gets its own token: its number plus 1.
    for (last, key) in keys.iter().enumerate() {
        if last > 0 {
            let set = ["HSET", key.lock(), "t", &last.to_string()];
            real.admin.int(&set).await;
        }
    }
    let takes: Vec<Command> = keys.iter().enumerate().map(take).collect();
    let held = real.run(&batch(takes.clone())).await.expect("an answer");
    assert_eq!(held.replies.len(), 128);
    for (number, reply) in (1..).zip(&held.replies) {
        let Ok(Reply::Held(held)) = reply else {
            panic!("the lock was free: {reply:?}");
        };
        assert_eq!(FencingToken::new(number).ok(), Some(held.token));
    }
    assert_eq!(real.admin.int(&["DBSIZE"]).await, 128);

    // Each release has its own token, and no lock is freed by another's.
    let ends = keys.iter().zip(0..).map(|(key, lease)| release(key, lease));
    let released = real.run(&batch(ends)).await.expect("an answer");
    assert_eq!(released.replies, vec![Ok(Reply::Released); 128]);
    assert_eq!(real.admin.int(&["DBSIZE"]).await, 128);
}

#[tokio::test]
async fn a_call_touches_its_declared_keys_only() {
    let mut real = Real::start().await;
    let mut monitor = Monitor::start(&real.server).await;
    let key = key("watched");
    let mut dense = acquire(&key, 2, Counter::Dense);
    let mut commands = every_operation(&key, 1);
    commands.extend([
        Command::Acquire(dense.clone()),
        Command::Acquire(dense.clone()),
    ]);
    dense.claim.lease = protocol::LeaseId(3);
    commands.extend([
        Command::Acquire(dense),
        renew(&key, 3),
        ask_yield(&key),
        renew(&key, 3),
        raise(&key, 3, token(7)),
        release(&key, 2),
        inspect(&key),
    ]);
    commands.extend([
        Command::Acquire(acquire(&key, 2, FLOOR)),
        wait(&key, 3),
        wait(&key, 4),
        wait(&key, 5),
        inspect(&key),
        release(&key, 5),
        Command::Acquire(acquire(&key, 6, FLOOR)),
        force_release(&key),
        release(&key, 3),
        release(&key, 4),
        list(),
    ]);
    for command in commands {
        monitor.clear().await;
        let batch = batch([command]);
        let call = protocol::encode(&batch);
        let declared: BTreeSet<_> = call.keys().map(str::to_owned).collect();
        real.run(&batch).await.expect("an answer");
        // A message goes to a channel, and a walk over the keys to no key in particular.
        let touched: BTreeSet<String> = monitor
            .matching(" lua] ")
            .await
            .iter()
            .filter(|line| !line.contains("\"PUBLISH\"") && !line.contains("\"SCAN\""))
            .filter_map(|line| line.split('"').nth(3).map(str::to_owned))
            .collect();
        if declared.is_empty() {
            // A walk reads the keys that it found on its server.
            let found = BTreeSet::from([key.lock().to_owned()]);
            assert!(touched.is_subset(&found), "{batch:?}: {touched:?}");
            continue;
        }
        assert!(
            !touched.is_empty(),
            "the monitor shows the commands of scripts"
        );
        assert!(
            touched.is_subset(&declared),
            "{batch:?}: {touched:?}, {declared:?}"
        );
    }
}

#[tokio::test]
async fn all_keys_of_a_name_live_on_one_slot() {
    let server = cluster().await;
    let mut admin = Admin::connect(&server).await;
    let mut slots = BTreeSet::new();
    for name in NAMES {
        for namespace in ["ns", "a}b", "{", "a:b{}"] {
            let key = Name::new(name).and_then(|name| LockKey::new(namespace, &name));
            let key = key.expect("a valid name and namespace");
            let lock = admin.int(&["CLUSTER", "KEYSLOT", key.lock()]).await;
            let line = admin.int(&["CLUSTER", "KEYSLOT", &key.line()]).await;
            assert_eq!(lock, line, "{key:?}");
            assert_eq!(lock, i64::from(key.slot()), "{key:?}");
            slots.insert(lock);
        }
    }
    assert!(slots.len() > 25, "36 names that share few slots: {slots:?}");
}

/// A cluster node refuses a script that touches a key outside the slot of its declared keys.
#[tokio::test]
async fn a_cluster_node_runs_a_batch_on_one_name() {
    let server = cluster().await;
    let mut admin = Admin::connect(&server).await;
    admin.ok(&["CLUSTER", "ADDSLOTSRANGE", "0", "16383"]).await;
    leasehold_tests::eventually(
        std::time::Duration::from_secs(10),
        "the cluster",
        async || {
            let info = admin.string(&["CLUSTER", "INFO"]).await;
            info.is_some_and(|info| info.contains("cluster_state:ok"))
        },
    )
    .await;
    let call = |names: &[&str]| {
        let commands = names.iter().flat_map(|name| {
            let (wait, end) = (wait(&key(name), 2), release(&key(name), 1));
            [every_operation(&key(name), 1), vec![wait, end]].concat()
        });
        let batch = batch(commands.collect::<Vec<_>>());
        let call = protocol::encode(&batch);
        let count = call.keys().len().to_string();
        let head = ["EVAL", protocol::SCRIPT, &count].map(str::to_owned);
        let rest = call.keys().chain(call.args()).map(str::to_owned);
        let args: Vec<String> = head.into_iter().chain(rest).collect();
        (batch, args)
    };
    for name in NAMES {
        let (batch, args) = call(&[name]);
        let Resp::Array(fields) = admin.command(&args).await else {
            panic!("the cluster refuses {name:?}");
        };
        let fields: Vec<String> = fields.iter().filter_map(Resp::as_string).collect();
        let answer = protocol::decode(&batch, &fields).expect("the answer has the expected form");
        assert!(answer.replies.iter().all(Result::is_ok), "{answer:?}");
    }
    let answer = admin.command(&call(&["n", "another"]).1).await;
    assert!(
        matches!(&answer, Resp::Error(error) if error.starts_with("CROSSSLOT")),
        "{answer:?}"
    );
}
