//! What the guard of Redis costs.

use std::time::Instant;

use fred::prelude::*;
use fred::types::{ClusterHash, CustomCommand};
use fred::util::sha1_hash;
use leasehold::fence::redis::{Fenced, FencedRedis, Script};
use leasehold_guard_tests::conformance::token;
use leasehold_tests::RedisServer;

use crate::{Row, Rows};

const ROUNDS: usize = 9;
/// In each round, of each kind; one after the other on one connection.
const WRITES: usize = 1_000;

const TRANSFER: &str = "redis.call('DECRBY', KEYS[1], ARGV[1])
    return redis.call('INCRBY', KEYS[2], ARGV[1])";

/// Guarded writes as a ratio to unguarded ones.
pub(crate) async fn measure(rows: &mut Rows) {
    let server = RedisServer::start().await;
    let client = Builder::from_config(Config::from_url(&server.url()).expect("a valid URL"))
        .build()
        .expect("the settings are valid");
    client.init().await.expect("the server answers");
    let redis = FencedRedis::new(client.clone());
    let redis = redis.resource("r", token(34)).expect("a valid name");
    rows.push(sets(&client, &redis).await);
    rows.push(hashes(&client, &redis).await);
    rows.push(scripts(&client, &redis).await);
}

async fn sets(client: &Client, redis: &Fenced) -> Row {
    let plain = async || {
        let _: () = client
            .set("k", "v", None, None, false)
            .await
            .expect("it is written");
    };
    let guarded = async || redis.set("k", "v").await.expect("it is written");
    compare("Redis, SET", plain, guarded).await
}

async fn hashes(client: &Client, redis: &Fenced) -> Row {
    let plain = async || {
        let _: () = client.hset("h", ("f", "v")).await.expect("it is written");
    };
    let guarded = async || {
        redis.hset("h", "f", "v").await.expect("it is written");
    };
    compare("Redis, HSET", plain, guarded).await
}

/// The same script, without and behind the check.
async fn scripts(client: &Client, redis: &Fenced) -> Row {
    let load = CustomCommand::new_static("SCRIPT", ClusterHash::FirstKey, false);
    let _: () = client
        .custom(load, vec!["LOAD", TRANSFER])
        .await
        .expect("it is loaded");
    let sha = sha1_hash(TRANSFER);
    let plain = async || {
        let run = CustomCommand::new_static("EVALSHA", ClusterHash::FirstKey, false);
        let args = vec![sha.as_str(), "2", "a", "b", "1"];
        let _: i64 = client.custom(run, args).await.expect("it is written");
    };
    let script = Script::new(TRANSFER);
    let guarded = async || {
        let keys = vec!["a", "b"];
        let _: i64 = redis.script(&script, keys, 1).await.expect("it is written");
    };
    compare("Redis, a script of two writes", plain, guarded).await
}

/// In turn, so that what else the machine does is in both.
async fn compare(what: &str, plain: impl AsyncFn(), guarded: impl AsyncFn()) -> Row {
    let (mut plains, mut guardeds) = (Vec::new(), Vec::new());
    // One round of each is to warm up.
    for round in 0..=ROUNDS {
        let (one, other) = (timed(&plain).await, timed(&guarded).await);
        if round > 0 {
            plains.extend(one);
            guardeds.extend(other);
        }
    }
    Row {
        what: what.to_owned(),
        plain: median(plains),
        guarded: median(guardeds),
    }
}

/// Of each write, in microseconds.
async fn timed(write: &impl AsyncFn()) -> Vec<f64> {
    let mut times = Vec::with_capacity(WRITES);
    for _ in 0..WRITES {
        let began = Instant::now();
        write().await;
        times.push(began.elapsed().as_secs_f64() * 1e6);
    }
    times
}

fn median(mut times: Vec<f64>) -> f64 {
    times.sort_by(f64::total_cmp);
    times[times.len() / 2]
}
