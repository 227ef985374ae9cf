//! The suite of all guards, and a guard of two calls that must fail it.

use std::sync::Arc;

use fred::prelude::*;
use fred::types::{ClusterHash, CustomCommand};
use leasehold::fence::Gate;
use leasehold::fence::redis::{FencedRedis, Script};
use leasehold::{Error, FencingToken};
use leasehold_guard_tests::conformance::{Guarded, conforms, token};
use leasehold_tests::{Admin, RedisServer, Resp};
use tokio::sync::Mutex;

/// The number of connections: writers of different tokens use different ones.
const CLIENTS: u64 = 4;
const WRITE: &str = "redis.call('SET', KEYS[1], ARGV[2])
    redis.call('RPUSH', KEYS[2], ARGV[1] .. ' ' .. ARGV[2])";

/// A register that is a key with the resource's name, with its history in a list on the same slot.
struct Registers<C> {
    clients: Vec<C>,
    admin: Mutex<Admin>,
}

impl<C> Registers<C> {
    async fn new(server: &RedisServer, make: impl AsyncFn() -> C) -> Arc<Self> {
        let mut clients = Vec::new();
        for _ in 0..CLIENTS {
            clients.push(make().await);
        }
        let admin = Mutex::new(Admin::connect(server).await);
        Arc::new(Self { clients, admin })
    }

    fn client(&self, token: FencingToken) -> &C {
        let index = usize::try_from(token.get() % CLIENTS).expect("there are few");
        &self.clients[index]
    }

    async fn recorded(&self, resource: &str) -> Vec<(u64, u64)> {
        let history = beside(resource, "history");
        let range = ["LRANGE", &history, "0", "-1"];
        let Resp::Array(lines) = self.admin.lock().await.command(&range).await else {
            panic!("LRANGE answers with an array");
        };
        let entry = |line: &Resp| {
            let line = line.as_string()?;
            let (token, value) = line.split_once(' ')?;
            Some((token.parse().ok()?, value.parse().ok()?))
        };
        let read = lines.iter().map(entry);
        read.collect::<Option<_>>()
            .expect("the scripts write pairs of numbers")
    }

    async fn register(&self, resource: &str) -> Option<u64> {
        let text = self.admin.lock().await.string(&["GET", resource]).await;
        text.map(|text| text.parse().expect("the scripts write numbers"))
    }
}

/// Returns a key on the slot of the resource.
fn beside(resource: &str, what: &str) -> String {
    if resource.contains('{') {
        format!("{resource}:{what}")
    } else {
        format!("{{{resource}}}:{what}")
    }
}

impl Guarded for Registers<FencedRedis> {
    async fn write(&self, resource: &str, token: FencingToken, value: u64) -> Result<(), Error> {
        let redis = self.client(token).resource(resource, token)?;
        let keys = vec![resource.to_owned(), beside(resource, "history")];
        let args = vec![token.to_string(), value.to_string()];
        redis.script(WRITE, keys, args).await
    }

    async fn history(&self, resource: &str) -> Vec<(u64, u64)> {
        self.recorded(resource).await
    }

    async fn read(&self, resource: &str) -> Option<u64> {
        self.register(resource).await
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn keys_of_a_server_are_guarded() {
    let server = RedisServer::start().await;
    let store = Registers::new(&server, async || super::guard(&server.url()).await).await;
    conforms(store, "server", 40).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn keys_of_a_cluster_are_guarded() {
    let (server, url) = super::cluster::node().await;
    let store = Registers::new(&server, async || super::guard(&url).await).await;
    conforms(store, "cluster", 20).await;
}

/// Wrong on purpose: reads the fence, then raises it and writes.
struct InTwoCalls(Client);

impl Guarded for Registers<InTwoCalls> {
    async fn write(&self, resource: &str, token: FencingToken, value: u64) -> Result<(), Error> {
        let InTwoCalls(client) = self.client(token);
        let gate = Gate::new();
        let fence = format!("fence of {resource}");
        let seen: Option<u64> = client.get(&fence).await.expect("the server answers");
        if let Some(seen) = seen {
            gate.check(resource, FencingToken::new(seen)?)?;
        }
        gate.check(resource, token)?;
        let _: () = client
            .set(&fence, token.to_string(), None, None, false)
            .await
            .expect("the server answers");
        let history = beside(resource, "history");
        let (token, value) = (token.to_string(), value.to_string());
        let args = vec![WRITE, "2", resource, &history, &token, &value];
        let eval = CustomCommand::new_static("EVAL", ClusterHash::FirstKey, false);
        let _: () = client.custom(eval, args).await.expect("the server answers");
        Ok(())
    }

    async fn history(&self, resource: &str) -> Vec<(u64, u64)> {
        self.recorded(resource).await
    }

    async fn read(&self, resource: &str) -> Option<u64> {
        self.register(resource).await
    }
}

/// The negative control: when writers race, the suite fails with a guard of two calls. Without a race it
/// passes.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_separate_check_does_not_conform() {
    let server = RedisServer::start().await;
    let store = Registers::new(&server, async || {
        InTwoCalls(super::client(&server.url()).await)
    })
    .await;
    conforms(store.clone(), "alone", 0).await;
    let raced = tokio::spawn(conforms(store, "raced", 500)).await;
    let found = raced.expect_err("the suite notices a stale write");
    let panic = found.into_panic();
    let message = panic.downcast_ref::<String>().map_or("", String::as_str);
    assert!(message.contains("accepted out of order"), "{message}");
}

/// Catches a guard that does not take a lease's token, or that lets an earlier holder write after a later
/// one.
#[tokio::test]
async fn a_guarded_write_from_a_lease_is_one_line() {
    let server = RedisServer::start().await;
    let locker = leasehold::Locker::with_fred(super::client(&server.url()).await)
        .await
        .expect("the server is new enough");
    let redis = super::guard(&server.url()).await;
    let lock = locker.lock("orders/42").expect("a valid name");
    let lease = lock.acquire().await.expect("a free lock");
    let write = async |token, value: &str| {
        redis
            .resource("orders/42", token)?
            .set("orders/42", value)
            .await
    };
    write(lease.token(), "first").await.expect("a held lock");
    let paused = lease.token();
    lease.release().await.expect("the lock was held");
    let lease = lock.acquire().await.expect("a free lock");
    write(lease.token(), "second").await.expect("a held lock");
    let refused = super::refusal(write(paused, "late").await);
    assert_eq!(refused, (paused.get(), lease.token().get()));
}

/// Catches a difference between a prepared script and one given as text: for the server they are the same.
#[tokio::test]
async fn a_kept_script_is_guarded_too() {
    let server = RedisServer::start().await;
    let redis = super::guard(&server.url()).await;
    let kept = Script::new("return redis.call('INCR', KEYS[1])");
    for (number, sum) in [(2, 1), (2, 2), (3, 3)] {
        let redis = redis.resource("r", token(number)).expect("a valid name");
        let read: Result<u64, _> = redis.script(&kept, "n", ()).await;
        assert_eq!(read, Ok(sum));
    }
    let redis = redis.resource("r", token(2)).expect("a valid name");
    let read: Result<u64, _> = redis.script(&kept, "n", ()).await;
    assert_eq!(super::refusal(read), (2, 3));
}
