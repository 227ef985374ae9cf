//! The rules of every guard: a write is refused if a greater token was seen for its resource, an equal token
//! passes, and once a token was accepted no smaller one ever passes.

use std::collections::BTreeMap;
use std::future::Future;
use std::sync::Arc;

use leasehold::{Error, ErrorKind, FencingToken};
use leasehold_tests::Random;

/// A store with one register for each resource, behind a guard.
pub trait Guarded: Send + Sync + 'static {
    /// Writes a value under a token, and records it in the history in the same atomic step.
    fn write(
        &self,
        resource: &str,
        token: FencingToken,
        value: u64,
    ) -> impl Future<Output = Result<(), Error>> + Send;

    /// Returns every accepted write with its token, in the order in which the store accepted them. The store
    /// itself recorded it in the same transaction, script or object.
    fn history(&self, resource: &str) -> impl Future<Output = Vec<(u64, u64)>> + Send;

    /// Returns the value in the register.
    fn read(&self, resource: &str) -> impl Future<Output = Option<u64>> + Send;
}

/// Returns a valid token.
pub fn token(number: u64) -> FencingToken {
    FencingToken::new(number).expect("a token of the tests is valid")
}

/// Runs the whole suite. Writers race `rounds` times. Each resource name starts with `prefix`, so several
/// runs can share a store.
pub async fn conforms<G: Guarded>(store: Arc<G>, prefix: &str, rounds: u64) {
    one_writer_after_the_other(&*store, prefix).await;
    tokens_at_the_limits(&*store, prefix).await;
    bad_resources(&*store).await;
    for round in 0..rounds {
        writers_race(&store, &format!("{prefix}/race {round}"), round).await;
    }
}

async fn one_writer_after_the_other<G: Guarded>(store: &G, prefix: &str) {
    let resource = format!("{prefix}/it's \"42\" {{é}} %");
    store
        .write(&resource, token(33), 1)
        .await
        .expect("the first write passes");
    store
        .write(&resource, token(33), 2)
        .await
        .expect("an equal token passes");
    store
        .write(&resource, token(35), 3)
        .await
        .expect("a greater token passes");
    let error = store
        .write(&resource, token(34), 4)
        .await
        .expect_err("a smaller token is refused");
    assert_eq!(error.kind(), ErrorKind::StaleToken, "{error}");
    let stale = error.stale_token().expect("a refusal has its details");
    assert_eq!(stale.resource, resource);
    assert_eq!((stale.offered, stale.highest), (token(34), token(35)));
    assert_eq!(
        store.read(&resource).await,
        Some(3),
        "a refused write leaves no trace"
    );
    assert_eq!(store.history(&resource).await, [(33, 1), (33, 2), (35, 3)]);
    let other = format!("{prefix}/other");
    store
        .write(&other, token(1), 5)
        .await
        .expect("each resource has its own tokens");
    assert_eq!(store.read(&other).await, Some(5));
}

async fn tokens_at_the_limits<G: Guarded>(store: &G, prefix: &str) {
    let resource = format!("{prefix}/limits");
    let most = FencingToken::MAX.get();
    store
        .write(&resource, token(1), 1)
        .await
        .expect("1 is a valid token");
    store
        .write(&resource, token(most - 1), 2)
        .await
        .expect("large tokens pass");
    store
        .write(&resource, token(most), 3)
        .await
        .expect("the largest token passes");
    // Catches a guard that compares rounded numbers, or text.
    let error = store
        .write(&resource, token(most - 1), 4)
        .await
        .expect_err("a token smaller by one is refused");
    assert_eq!(
        error.stale_token().map(|stale| stale.highest),
        Some(token(most))
    );
    let nine = format!("{prefix}/nine");
    store
        .write(&nine, token(10), 1)
        .await
        .expect("the first write passes");
    store
        .write(&nine, token(9), 2)
        .await
        .expect_err("9 is less than 10");
}

async fn bad_resources<G: Guarded>(store: &G) {
    for resource in [String::new(), "x".repeat(513)] {
        let error = store
            .write(&resource, token(1), 1)
            .await
            .expect_err("a bad name is refused");
        assert_eq!(error.kind(), ErrorKind::Config, "{error}");
    }
}

/// Races sixteen writers with tokens in a random order; each writes until it is refused or done.
async fn writers_race<G: Guarded>(store: &Arc<G>, resource: &str, seed: u64) {
    let mut tokens: Vec<u64> = (1..=16).collect();
    shuffle(&mut tokens, seed);
    let writers: Vec<_> = tokens
        .into_iter()
        .map(|number| {
            let (store, resource) = (store.clone(), resource.to_owned());
            tokio::spawn(async move {
                let mut accepted = 0;
                for step in 0..3 {
                    match store
                        .write(&resource, token(number), number * 10 + step)
                        .await
                    {
                        Ok(()) => accepted += 1,
                        Err(error) if error.kind() == ErrorKind::StaleToken => break,
                        Err(error) => panic!("writer {number}: {error}"),
                    }
                    tokio::task::yield_now().await;
                }
                (number, accepted)
            })
        })
        .collect();
    let mut accepted = BTreeMap::new();
    for writer in writers {
        let (number, count) = writer.await.expect("no writer panics");
        accepted.insert(number, count);
    }
    let history = store.history(resource).await;
    let tokens: Vec<_> = history.iter().map(|(token, _)| *token).collect();
    assert!(tokens.is_sorted(), "accepted out of order: {tokens:?}");
    for (number, count) in &accepted {
        let recorded = tokens.iter().filter(|token| *token == number).count();
        assert_eq!(
            recorded, *count,
            "writer {number} counted other writes than the store: {history:?}"
        );
    }
    assert_eq!(
        accepted.get(&16),
        Some(&3),
        "the last token is the greatest"
    );
    assert_eq!(
        store.read(resource).await,
        Some(162),
        "the last write has the greatest token"
    );
}

/// Shuffles by the method of Fisher and Yates: the same order for the same seed.
fn shuffle(items: &mut [u64], seed: u64) {
    let mut random = Random::new(seed);
    for last in (1..items.len()).rev() {
        let other = random.below(last as u64 + 1);
        let other = usize::try_from(other).expect("the number is less than 16");
        items.swap(last, other);
    }
}
