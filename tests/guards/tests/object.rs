//! The guard of object stores: in memory, and on an S3-compatible server.

#[path = "object/errors.rs"]
mod errors;
#[path = "object/odd.rs"]
mod odd;
#[path = "object/races.rs"]
mod races;

use std::sync::Arc;

use leasehold::fence::object::FencedStore;
use leasehold::{Error, FencingToken};
use leasehold_guard_tests::conformance::{Guarded, conforms};
use leasehold_guard_tests::moto::Moto;
use object_store::ObjectStore;
use object_store::memory::InMemory;
use object_store::path::Path;

use odd::{Odd, OddStore};

/// Registers whose objects are the list of their writes, so that history and write are one step.
struct Registers(FencedStore);

impl Guarded for Registers {
    async fn write(&self, resource: &str, token: FencingToken, value: u64) -> Result<(), Error> {
        let path = path(resource);
        let line = format!("{token} {value}\n");
        let append = |old: Option<&[u8]>| [old.unwrap_or_default(), line.as_bytes()].concat();
        let written = self.0.update(&path, token, |old| append(old).into()).await;
        written.map(|_| ())
    }

    async fn history(&self, resource: &str) -> Vec<(u64, u64)> {
        let object = self.0.get(&path(resource)).await.expect("a read");
        let bytes = object.map(|object| object.bytes).unwrap_or_default();
        let text = std::str::from_utf8(&bytes).expect("the object is text");
        text.lines()
            .map(|line| {
                let (token, value) = line.split_once(' ').expect("a line has both");
                let number = |text: &str| text.parse().expect("the text is a number");
                (number(token), number(value))
            })
            .collect()
    }

    async fn read(&self, resource: &str) -> Option<u64> {
        let history = self.history(resource).await;
        history.last().map(|(_, value)| *value)
    }
}

fn path(resource: &str) -> Path {
    Path::parse(resource).expect("the names of the suite are paths")
}

fn memory() -> Arc<dyn ObjectStore> {
    Arc::new(InMemory::new())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn memory_conforms() {
    let store = Arc::new(Registers(FencedStore::new(memory())));
    conforms(store, "sealed", 100).await;
    let store = Arc::new(Registers(FencedStore::new(memory()).unsealed()));
    conforms(store, "unsealed", 100).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn an_s3_compatible_store_conforms() {
    let moto = Moto::start().await;
    let store = Arc::new(Registers(FencedStore::new(moto.store())));
    conforms(store, "sealed", 3).await;
}

/// The negative control: without the condition of the put the suite fails.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_store_that_ignores_conditions_fails_the_suite() {
    let store = OddStore::new(memory(), Odd::IgnoresConditions);
    let store = Arc::new(Registers(FencedStore::new(store)));
    let suite = tokio::spawn(conforms(store, "control", 10));
    let failed = suite.await.expect_err("the suite notices");
    let panic = failed.into_panic();
    let message = panic.downcast_ref::<String>().map_or("", String::as_str);
    assert!(
        message.contains("accepted out of order") || message.contains("counted other writes"),
        "{message}"
    );
}
