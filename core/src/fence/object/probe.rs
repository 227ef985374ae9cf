//! Tests whether a store obeys the conditions of puts.

use bytes::Bytes;
use leasehold_engine::{Error, ErrorKind, FencingToken};
use object_store::path::Path;
use object_store::{
    Attributes, Error as StoreError, ObjectStoreExt, PutMode, PutResult, UpdateVersion,
};

use super::error::wrap;
use super::{FencedStore, Put, random};

impl FencedStore {
    /// Checks whether the store can be guarded.
    ///
    /// The store must keep metadata, must not overwrite an object when asked to create, and must refuse a put
    /// on an outdated etag. The check writes about six times to an object of its own, with a random name
    /// below `scratch`, and deletes it.
    ///
    /// It puts one after the other, so it does not detect a store that violates conditions only when two puts
    /// arrive at once.
    ///
    /// Errors: [`Unsupported`](ErrorKind::Unsupported), with what is missing, if the store cannot be guarded;
    /// otherwise the store's error.
    ///
    /// ```
    /// # #[tokio::main] async fn main() -> Result<(), leasehold::Error> {
    /// # use std::sync::Arc;
    /// # use leasehold::fence::object::FencedStore;
    /// # use object_store::{memory::InMemory, path::Path};
    /// let store = FencedStore::new(Arc::new(InMemory::new()));
    /// store.probe(&Path::from("scratch")).await?;
    /// # Ok(()) }
    /// ```
    pub async fn probe(&self, scratch: &Path) -> Result<(), Error> {
        let path = scratch
            .clone()
            .join(format!("leasehold-probe-{:016x}", random()));
        let found = self.probe_at(&path).await;
        // Ignore a failed cleanup: the verdict counts, and listings show the leftover object.
        let _ = self.inner().delete(&path).await;
        found
    }

    async fn probe_at(&self, path: &Path) -> Result<(), Error> {
        let first = self.try_put(path, 1, "first", PutMode::Create).await;
        let first = first.map_err(|error| wrap(path, error))?;
        if self.highest(path).await? != Some(number(1)) {
            return Err(lacks("it does not keep the metadata of objects"));
        }
        let again = self.try_put(path, 2, "again", PutMode::Create).await;
        refused(
            path,
            again,
            "it overwrote an object that it was asked to create (PutMode::Create)",
        )?;

        let second = self.try_put(path, 2, "second", on(&first)).await;
        let second = second.map_err(|error| wrap(path, error))?;
        let late = self.try_put(path, 1, "late", on(&first)).await;
        refused(
            path,
            late,
            "it accepted a put with an outdated etag (PutMode::Update)",
        )?;

        // Put the same content under another token: the etag must change.
        let third = self.try_put(path, 3, "second", on(&second)).await;
        third.map_err(|error| wrap(path, error))?;
        let late = self.try_put(path, 2, "late", on(&second)).await;
        refused(
            path,
            late,
            "it gives equal content the same etag; use the guard without `unsealed`",
        )
    }

    async fn try_put(
        &self,
        path: &Path,
        token: u64,
        content: &'static str,
        mode: PutMode,
    ) -> Result<PutResult, StoreError> {
        let put = Put {
            content: Bytes::from_static(content.as_bytes()),
            attributes: Attributes::new(),
            gone: false,
        };
        self.put_if(path, number(token), "probe", put, mode).await
    }
}

fn number(token: u64) -> FencingToken {
    FencingToken::new(token).expect("1 to 3 are tokens")
}

fn on(put: &PutResult) -> PutMode {
    PutMode::Update(UpdateVersion {
        e_tag: put.e_tag.clone(),
        version: put.version.clone(),
    })
}

/// Fails unless the store refused a put because its condition did not hold.
fn refused(path: &Path, put: Result<PutResult, StoreError>, fault: &str) -> Result<(), Error> {
    match put {
        Ok(_) => Err(lacks(fault)),
        Err(StoreError::Precondition { .. } | StoreError::AlreadyExists { .. }) => Ok(()),
        Err(error) => Err(wrap(path, error)),
    }
}

fn lacks(what: &str) -> Error {
    let message = format!("the object store cannot be guarded: {what}");
    Error::new(ErrorKind::Unsupported, message)
}
