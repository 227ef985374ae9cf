//! What the guard of object stores costs.

use std::sync::Arc;
use std::time::Instant;

use leasehold::fence::object::FencedStore;
use leasehold_guard_tests::conformance::token;
use leasehold_guard_tests::moto::Moto;
use object_store::memory::InMemory;
use object_store::path::Path;
use object_store::{GetOptions, ObjectStore};

use crate::{Row, Rows};

/// What is written, in bytes.
const LENGTH: usize = 1_024;

/// Guarded writes as a ratio to unguarded ones.
pub(crate) async fn measure(rows: &mut Rows) {
    let memory = Arc::new(InMemory::new());
    rows.push(compare("object_store in memory: put of 1 KiB", memory, 2_000, false).await);
    let moto = Moto::start().await;
    let s3 = moto.store();
    rows.push(
        compare(
            "object_store on S3 (moto): put of 1 KiB",
            s3.clone(),
            200,
            false,
        )
        .await,
    );
    // Of the guard's two requests, the second is the plain put; this is the bound from below.
    rows.push(compare("the same, plain with a HEAD before the put", s3, 200, true).await);
}

/// One plain put and one guarded one in turn, each over an object that exists.
async fn compare(what: &str, store: Arc<dyn ObjectStore>, times: usize, head: bool) -> Row {
    let fenced = FencedStore::new(store.clone());
    let (plain_path, guarded_path) = (Path::from("overhead/plain"), Path::from("overhead/guarded"));
    let content = "x".repeat(LENGTH);
    let (mut plain, mut guarded) = (Vec::new(), Vec::new());
    for step in 0..=times {
        let began = Instant::now();
        if head && step > 0 {
            let options = GetOptions {
                head: true,
                ..GetOptions::default()
            };
            let found = store.get_opts(&plain_path, options).await;
            found.expect("it is there since the first round");
        }
        let put = store.put(&plain_path, content.clone().into()).await;
        put.expect("the store takes it");
        plain.push(micros(began));
        let began = Instant::now();
        let put = fenced.put(&guarded_path, token(33), content.clone()).await;
        put.expect("the token is the only one");
        guarded.push(micros(began));
    }
    Row {
        what: what.to_owned(),
        plain: median(plain),
        guarded: median(guarded),
    }
}

fn micros(began: Instant) -> f64 {
    began.elapsed().as_secs_f64() * 1e6
}

fn median(mut times: Vec<f64>) -> f64 {
    times.sort_by(f64::total_cmp);
    times[times.len() / 2]
}
