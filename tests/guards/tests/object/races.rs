//! Races between reading and putting, and lost replies.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use leasehold::fence::object::FencedStore;
use leasehold::{Error, ErrorKind};
use leasehold_guard_tests::conformance::token;
use leasehold_guard_tests::moto::Moto;
use object_store::ObjectStoreExt;
use object_store::path::Path;
use object_store::{ObjectStore, PutResult};
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;
use tokio::time::timeout;

use crate::memory;
use crate::odd::{Odd, OddStore, Pause};

const LIMIT: Duration = Duration::from_secs(60);

type Put = JoinHandle<Result<PutResult, Error>>;

/// Starts a writer with token 33 that has read and not yet put.
async fn paused(store: Arc<dyn ObjectStore>, path: &Path, sealed: bool) -> (Put, Pause) {
    let pause = Pause::new();
    let store = FencedStore::new(OddStore::new(store, Odd::Pauses(pause.clone())));
    let store = if sealed { store } else { store.unsealed() };
    let path = path.clone();
    let put = tokio::spawn(async move { store.put(&path, token(33), "late").await });
    let read = timeout(LIMIT, pause.read.acquire()).await;
    read.expect("the writer reads")
        .expect("the semaphore stays open")
        .forget();
    (put, pause)
}

async fn resumed(put: Put, pause: &Pause) -> Result<PutResult, Error> {
    // Its second read, after the lost race, needs no permission.
    pause.go.add_permits(10);
    let put = timeout(LIMIT, put).await.expect("the writer goes on");
    put.expect("no panic")
}

/// A holder is paused between the check and the write, and the next holder writes meanwhile.
async fn a_paused_writer(store: Arc<dyn ObjectStore>, existed: bool) {
    let path = Path::from(format!("paused/{existed}"));
    let fenced = FencedStore::new(store.clone());
    if existed {
        let first = fenced.put(&path, token(32), "first").await;
        first.expect("the first passes");
    }
    let (put, pause) = paused(store, &path, true).await;
    let newer = fenced.put(&path, token(34), "newer").await;
    newer.expect("the newer passes");
    let error = resumed(put, &pause).await.expect_err("the write is stale");
    let stale = error.stale_token().expect("the error has its details");
    assert_eq!((stale.offered, stale.highest), (token(33), token(34)));
    let object = fenced.get(&path).await.expect("a read");
    assert_eq!(object.expect("an object").bytes, "newer");
}

#[tokio::test]
async fn a_paused_writer_is_refused() {
    a_paused_writer(memory(), false).await;
    a_paused_writer(memory(), true).await;
    let moto = Moto::start().await;
    a_paused_writer(moto.store(), false).await;
    a_paused_writer(moto.store(), true).await;
}

/// A newer holder puts the same content again. If the etag were a hash of the content alone, it would equal
/// the one that the paused older writer has read, whose put would then pass.
async fn the_same_content_again(store: Arc<dyn ObjectStore>, sealed: bool) -> Option<Error> {
    let path = Path::from(format!("same content/{sealed}"));
    let fenced = FencedStore::new(store.clone());
    let fenced = if sealed { fenced } else { fenced.unsealed() };
    let first = fenced.put(&path, token(32), "same").await;
    first.expect("the first passes");
    let (put, pause) = paused(store, &path, sealed).await;
    let newer = fenced.put(&path, token(34), "same").await;
    newer.expect("the newer passes");
    resumed(put, &pause).await.err()
}

#[tokio::test]
async fn an_etag_that_recurs_does_not_let_a_stale_write_pass() {
    let moto = Moto::start().await;
    let error = the_same_content_again(moto.store(), true).await;
    let error = error.expect("the seal makes the etags differ");
    assert_eq!(error.kind(), ErrorKind::StaleToken, "{error}");
    // The negative control: without the seal the stale write passes. If this fails, the server's etags are no
    // longer hashes of the content, and the promise above is not tested.
    let error = the_same_content_again(moto.store(), false).await;
    assert_eq!(error, None, "the hash of the content recurs");
    // In memory each put has a new etag.
    let error = the_same_content_again(memory(), false).await;
    assert!(error.is_some_and(|error| error.kind() == ErrorKind::StaleToken));
}

/// Catches a write that is half done when its writer is killed after the check: the put is the only effect.
#[tokio::test]
async fn a_writer_killed_after_the_check_wrote_nothing() {
    let (store, path) = (memory(), Path::from("gone"));
    let fenced = FencedStore::new(store.clone());
    let first = fenced.put(&path, token(32), "first").await;
    first.expect("the first passes");
    let (put, _pause) = paused(store, &path, true).await;
    put.abort();
    assert!(put.await.expect_err("the task was aborted").is_cancelled());
    let object = fenced.get(&path).await.expect("a read");
    let object = object.expect("an object");
    assert_eq!(
        (&object.bytes[..], object.token),
        (&b"first"[..], Some(token(32)))
    );
    // Its token, 33, was not accepted either.
    let older = fenced.put(&path, token(32), "second").await;
    older.expect("32 is still the greatest");
}

fn append(to: &FencedStore, path: &Path) -> impl Future<Output = Result<PutResult, Error>> {
    let (store, path) = (to.clone(), path.clone());
    async move {
        let change = |old: Option<&[u8]>| [old.unwrap_or_default(), b"x"].concat().into();
        store.update(&path, token(33), change).await
    }
}

/// Catches an update that is applied twice. Clients of cloud stores retry by themselves when a server fails,
/// and then find an etag that their own first attempt has changed.
#[tokio::test]
async fn an_update_with_a_lost_reply_is_applied_once() {
    let (store, path) = (memory(), Path::from("once"));
    let times = Arc::new(Semaphore::new(1));
    let odd = OddStore::new(store.clone(), Odd::AnswersTwice(times.clone()));
    let fenced = FencedStore::new(odd);
    let result = append(&fenced, &path).await.expect("the update was done");
    assert_eq!(times.available_permits(), 0, "an answer was lost");
    let meta = store.head(&path).await.expect("an object");
    assert_eq!(result.e_tag, meta.e_tag);
    times.add_permits(1);
    append(&fenced, &path).await.expect("the update was done");
    let object = fenced.get(&path).await.expect("a read");
    assert_eq!(object.expect("an object").bytes, "xx");
}

/// Catches a lost reply that is reported as a failure. If the client does not retry, it is unknown whether
/// the put was done, and the program may try again.
#[tokio::test]
async fn a_reply_that_never_arrives_is_a_timeout() {
    let path = Path::from("unknown");
    let odd = Odd::NeverAnswers(Arc::new(Semaphore::new(1)));
    let fenced = FencedStore::new(OddStore::new(memory(), odd));
    let error = fenced.put(&path, token(33), "x").await;
    let error = error.expect_err("there was no answer");
    assert_eq!(error.kind(), ErrorKind::Timeout, "{error}");
    assert!(error.is_transient());
    let stale = fenced.put(&path, token(32), "older").await;
    stale.expect_err("the put was done, so 33 was accepted");
    let again = fenced.put(&path, token(33), "x").await;
    again.expect("an equal token passes");
}

/// Catches a writer that retries without a bound: one that loses every race gives up with an error that says
/// so.
#[tokio::test]
async fn the_number_of_tries_is_bounded() {
    let path = Path::from("busy");
    let fenced = FencedStore::new(OddStore::new(memory(), Odd::AlwaysLate)).attempts(4);
    let error = timeout(LIMIT, fenced.put(&path, token(33), "x")).await;
    let error = error
        .expect("the call ends")
        .expect_err("the writer lost every race");
    assert_eq!(error.kind(), ErrorKind::Overloaded);
    assert_eq!(
        error.to_string(),
        "the write to the resource \"busy\" lost against other writers 4 times in a row; try again later"
    );
    assert!(error.is_transient());
}
