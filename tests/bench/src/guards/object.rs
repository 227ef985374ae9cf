//! The cost of the guard of object stores: a put over an existing object.

use std::sync::Arc;

use leasehold::fence::object::FencedStore;
use leasehold_guard_tests::conformance::token;
use leasehold_guard_tests::moto::Moto;
use object_store::memory::InMemory;
use object_store::path::Path;
use object_store::{ObjectStore, ObjectStoreExt};

use super::{Bench, micros};

/// The length of the object in bytes.
const LENGTH: usize = 1_024;

/// Measures guarded writes as a ratio to unguarded ones.
pub(super) async fn memory(bench: &Bench) {
    let store = Arc::new(InMemory::new());
    of(bench, "object_store in memory: put of 1 KiB", store, false).await;
}

/// Measures guarded writes as a ratio to unguarded ones, over HTTP.
pub(super) async fn s3(bench: &Bench) {
    let moto = Moto::start().await;
    let what = "object_store on S3 (moto): put of 1 KiB";
    of(bench, what, moto.store(), false).await;
    // The guard makes two requests, a HEAD and the put. This shows its cost beyond both.
    of(
        bench,
        "  the same, plain with a HEAD before it",
        moto.store(),
        true,
    )
    .await;
}

async fn of(bench: &Bench, what: &str, store: Arc<dyn ObjectStore>, head: bool) {
    let fenced = FencedStore::new(store.clone());
    let (plain_path, guarded_path) = (Path::from("overhead/plain"), Path::from("overhead/guarded"));
    let content = "x".repeat(LENGTH);
    let put = store.put(&plain_path, content.clone().into()).await;
    put.expect("the store takes it");
    let plain = async || {
        micros(async {
            if head {
                let found = store.head(&plain_path).await;
                found.expect("it is there");
            }
            let put = store.put(&plain_path, content.clone().into()).await;
            put.expect("the store takes it");
        })
        .await
    };
    let guarded = async || {
        micros(async {
            let put = fenced.put(&guarded_path, token(33), content.clone()).await;
            put.expect("the token is the only one");
        })
        .await
    };
    bench.compare(what, plain, guarded).await;
}
