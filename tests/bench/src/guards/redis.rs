//! The cost of the guard of Redis: one write after the other on one connection.

use fred::prelude::*;
use fred::types::{ClusterHash, CustomCommand};
use fred::util::sha1_hash;
use leasehold::fence::redis::{Fenced, FencedRedis, Script};
use leasehold_guard_tests::conformance::token;
use leasehold_tests::RedisServer;

use super::{Bench, micros};

const TRANSFER: &str = "redis.call('DECRBY', KEYS[1], ARGV[1])
    return redis.call('INCRBY', KEYS[2], ARGV[1])";

/// Measures guarded writes as a ratio to unguarded ones.
pub(super) async fn measure(bench: &Bench) {
    let server = RedisServer::start().await;
    let client = Builder::from_config(Config::from_url(&server.url()).expect("a valid URL"))
        .build()
        .expect("the settings are valid");
    client.init().await.expect("the server answers");
    let redis = FencedRedis::new(client.clone());
    let redis = redis.resource("r", token(34)).expect("a valid name");
    sets(bench, &client, &redis).await;
    hashes(bench, &client, &redis).await;
    scripts(bench, &client, &redis).await;
}

async fn sets(bench: &Bench, client: &Client, redis: &Fenced) {
    let plain = async || {
        micros(async {
            let set = client.set("k", "v", None, None, false).await;
            let () = set.expect("it is written");
        })
        .await
    };
    let guarded =
        async || micros(async { redis.set("k", "v").await.expect("it is written") }).await;
    bench.compare("Redis: SET", plain, guarded).await;
}

async fn hashes(bench: &Bench, client: &Client, redis: &Fenced) {
    let plain = async || {
        micros(async {
            let _: () = client.hset("h", ("f", "v")).await.expect("it is written");
        })
        .await
    };
    let guarded = async || {
        micros(async {
            redis.hset("h", "f", "v").await.expect("it is written");
        })
        .await
    };
    bench.compare("Redis: HSET", plain, guarded).await;
}

/// Measures the same script with the check and without it.
async fn scripts(bench: &Bench, client: &Client, redis: &Fenced) {
    let load = CustomCommand::new_static("SCRIPT", ClusterHash::FirstKey, false);
    let _: () = client
        .custom(load, vec!["LOAD", TRANSFER])
        .await
        .expect("it is loaded");
    let sha = sha1_hash(TRANSFER);
    let plain = async || {
        micros(async {
            let run = CustomCommand::new_static("EVALSHA", ClusterHash::FirstKey, false);
            let args = vec![sha.as_str(), "2", "a", "b", "1"];
            let _: i64 = client.custom(run, args).await.expect("it is written");
        })
        .await
    };
    let script = Script::new(TRANSFER);
    let guarded = async || {
        micros(async {
            let keys = vec!["a", "b"];
            let _: i64 = redis.script(&script, keys, 1).await.expect("it is written");
        })
        .await
    };
    let what = "Redis: a script of two writes";
    bench.compare(what, plain, guarded).await;
}
