//! Stores that cannot be guarded, servers that fail, and objects without a guard's format.

use std::sync::Arc;

use leasehold::ErrorKind;
use leasehold::fence::object::FencedStore;
use leasehold_guard_tests::conformance::token;
use leasehold_guard_tests::moto::{Moto, s3};
use object_store::aws::S3ConditionalPut;
use object_store::local::LocalFileSystem;
use object_store::path::Path;
use object_store::{Attribute, Attributes, ObjectStore, ObjectStoreExt, PutOptions};

use crate::memory;
use crate::odd::{Odd, OddStore};

/// Returns the error of the probe for a store that cannot be guarded.
async fn verdict(store: FencedStore) -> String {
    let error = store.probe(&Path::from("scratch")).await;
    let error = error.expect_err("the store cannot be guarded");
    assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
    error.to_string()
}

#[tokio::test]
async fn the_probe_finds_stores_that_cannot_be_guarded() {
    let moto = Moto::start().await;
    let scratch = Path::from("scratch");
    for store in [
        FencedStore::new(memory()),
        FencedStore::new(memory()).unsealed(),
        FencedStore::new(moto.store()),
    ] {
        let found = store.probe(&scratch).await;
        found.unwrap_or_else(|error| panic!("{store:?}: {error}"));
        let left = store.inner().list_with_delimiter(Some(&scratch)).await;
        assert!(
            left.expect("the store lists").objects.is_empty(),
            "{store:?}"
        );
    }
    let odd = |odd| FencedStore::new(OddStore::new(memory(), odd));
    for (store, says) in [
        (
            FencedStore::new(moto.store()).unsealed(),
            "without `unsealed`",
        ),
        (odd(Odd::IgnoresConditions), "asked to create"),
        (odd(Odd::IgnoresEtags), "outdated etag"),
        (odd(Odd::LosesMetadata), "metadata"),
    ] {
        let name = format!("{store:?}");
        let verdict = verdict(store).await;
        assert!(verdict.contains(says), "{name}: {verdict}");
    }
}

/// Catches an outdated table in the documentation. `object_store` 0.14 refuses attributes and
/// `PutMode::Update` for local files; when it supports them, this test fails.
#[tokio::test]
async fn local_files_cannot_be_guarded_and_the_error_says_so() {
    let folder = tempfile::tempdir().expect("a folder for the test");
    let store = LocalFileSystem::new_with_prefix(folder.path()).expect("the folder exists");
    let store = FencedStore::new(Arc::new(store));
    let path = Path::from("a");
    let error = store.put(&path, token(33), "x").await;
    let error = error.expect_err("the store has no metadata");
    assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
    assert!(error.to_string().contains("PutMode::Update"), "{error}");
    assert!(store.get(&path).await.expect("a read").is_none());
    assert!(verdict(store).await.contains("LocalFileSystem"));
    let left = folder
        .path()
        .read_dir()
        .expect("the folder still exists")
        .count();
    assert_eq!(left, 0, "nothing was written");
}

#[tokio::test]
async fn a_missing_server_is_unavailable() {
    // No program listens on port 1, since only root may.
    let store = s3("http://127.0.0.1:1", "b", 0).build();
    let store = FencedStore::new(Arc::new(store.expect("the settings are complete")));
    let error = store.put(&Path::from("a"), token(33), "x").await;
    let error = error.expect_err("no server is up");
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error:?}");
    assert!(!format!("{error} {error:?}").contains("hunter2"));
}

#[tokio::test]
async fn disabled_conditional_puts_are_unsupported() {
    let moto = Moto::start().await;
    let store = s3(moto.url(), "leasehold", 0).with_conditional_put(S3ConditionalPut::Disabled);
    let store = FencedStore::new(Arc::new(store.build().expect("the settings are complete")));
    let error = store.put(&Path::from("a"), token(33), "x").await;
    assert_eq!(
        error.expect_err("the put is unsupported").kind(),
        ErrorKind::Unsupported
    );
    let store = s3(moto.url(), "no-such-bucket", 0).build();
    let store = FencedStore::new(Arc::new(store.expect("the settings are complete")));
    let error = store.put(&Path::from("a"), token(33), "x").await;
    let error = error.expect_err("there is no bucket");
    assert_eq!(error.kind(), ErrorKind::Store, "{error}");
}

#[tokio::test]
async fn paths_are_checked_before_anything_is_sent() {
    let store = FencedStore::new(OddStore::new(memory(), Odd::AlwaysLate));
    for path in [Path::default(), Path::from("x".repeat(513))] {
        let put = store.put(&path, token(33), "x").await.err();
        let delete = store.delete(&path, token(33)).await.err();
        let get = store.get(&path).await.err();
        let highest = store.highest(&path).await.err();
        for error in [put, delete, get, highest] {
            let error = error.expect("a bad path is refused");
            assert_eq!(error.kind(), ErrorKind::Config, "{error}");
        }
    }
}

async fn objects_of_others(store: Arc<dyn ObjectStore>) {
    let (plain, strange) = (Path::from("others/plain"), Path::from("others/strange"));
    let fenced = FencedStore::new(store.clone());
    store.put(&plain, "x".into()).await.expect("a put");
    let object = fenced.get(&plain).await.expect("a read");
    let object = object.expect("an object");
    assert_eq!((&object.bytes[..], object.token), (&b"x"[..], None));
    let first = fenced.put(&plain, token(1), "y").await;
    first.expect("the object was never fenced");
    assert_eq!(
        fenced.highest(&plain).await.expect("a read"),
        Some(token(1))
    );

    // Metadata that is not a token, and a guard's metadata on other content.
    for (number, readable) in [
        ("0", false),
        ("9007199254740992", false),
        ("33x", false),
        ("33", true),
    ] {
        let name = |name: &'static str| Attribute::Metadata(name.into());
        let attributes = Attributes::from_iter([
            (name("leaseholdtoken"), number),
            (name("leaseholdseal"), "54"),
        ]);
        let options = PutOptions::from(attributes);
        let put = store.put_opts(&strange, "not sealed".into(), options).await;
        put.expect("a put");
        let error = fenced
            .get(&strange)
            .await
            .expect_err("the object is not a guard's");
        assert_eq!(error.kind(), ErrorKind::WrongType, "{error}");
        let put = fenced.put(&strange, token(34), "z").await;
        assert_eq!(put.is_ok(), readable, "{number}: {put:?}");
    }
}

#[tokio::test]
async fn objects_of_others_are_adopted_or_refused() {
    objects_of_others(memory()).await;
    let moto = Moto::start().await;
    objects_of_others(moto.store()).await;
}

async fn keeps_token_and_attributes(store: Arc<dyn ObjectStore>) {
    let path = Path::from("kept");
    let fenced = FencedStore::new(store.clone());
    let json = Attributes::from_iter([(Attribute::ContentType, "application/json")]);
    let put = fenced.put_with(&path, token(33), "{}", json).await;
    put.expect("the first passes");
    let update = |old: Option<&[u8]>| [old.expect("an object"), b" "].concat().into();
    let put = fenced.update(&path, token(33), update).await;
    put.expect("an equal token passes");
    let found = store.get(&path).await.expect("an object");
    let kind = found.attributes.get(&Attribute::ContentType).cloned();
    assert_eq!(kind.as_deref(), Some("application/json"));
    // A reader without a guard still sees the JSON.
    let bytes = found.bytes().await.expect("a read");
    assert_eq!(bytes.len(), 3 + 54);
    assert!(bytes.starts_with(b"{}") && bytes.trim_ascii() == b"{}");

    fenced
        .delete(&path, token(35))
        .await
        .expect("35 is greater");
    assert!(fenced.get(&path).await.expect("a read").is_none());
    assert_eq!(
        fenced.highest(&path).await.expect("a read"),
        Some(token(35))
    );
    let late = fenced.put(&path, token(34), "late").await;
    let late = late.expect_err("the token outlives the content");
    assert_eq!(late.kind(), ErrorKind::StaleToken);
    let empty = |old: Option<&[u8]>| {
        assert_eq!(old, None, "a deleted object is gone");
        "anew".into()
    };
    let anew = fenced.update(&path, token(35), empty).await;
    anew.expect("the one that deleted may put");
    let object = fenced.get(&path).await.expect("a read");
    assert_eq!(object.expect("an object").bytes, "anew");
}

#[tokio::test]
async fn a_delete_keeps_the_token_and_an_update_the_attributes() {
    keeps_token_and_attributes(memory()).await;
    let moto = Moto::start().await;
    keeps_token_and_attributes(moto.store()).await;
}
