//! Finding out whether a store keeps the conditions that it is given.

use bytes::Bytes;
use leasehold_engine::{Error, ErrorKind, FencingToken};
use object_store::path::Path;
use object_store::{
    Attributes, Error as StoreError, ObjectStoreExt, PutMode, PutResult, UpdateVersion,
};

use super::error::wrap;
use super::{FencedStore, Put, random};

impl FencedStore {
    /// Finds out whether the store can be guarded: whether it keeps metadata, and refuses to put
    /// over what exists when asked to create, and on an etag that is out of date. It writes about
    /// six times to an object of its own, of a random name below `scratch`, and deletes it.
    ///
    /// [`Unsupported`](ErrorKind::Unsupported), with what is missing, if it cannot be; else what
    /// the store says if it fails. It writes one put after the other, so a store that keeps
    /// conditions, but not when two puts arrive at once, passes.
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
        // If the verdict is out, that it could not be tidied up is no news; listings show it.
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
            "it puts over what exists, although told to create",
        )?;

        let second = self.try_put(path, 2, "second", on(&first)).await;
        let second = second.map_err(|error| wrap(path, error))?;
        let late = self.try_put(path, 1, "late", on(&first)).await;
        refused(path, late, "it puts although the etag is out of date")?;

        // The same content under another token: does the condition still tell them apart?
        let third = self.try_put(path, 3, "second", on(&second)).await;
        third.map_err(|error| wrap(path, error))?;
        let late = self.try_put(path, 2, "late", on(&second)).await;
        refused(
            path,
            late,
            "it gives the same content the same etag, so the content must be sealed",
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

/// A put whose condition does not hold must fail because of it.
fn refused(path: &Path, put: Result<PutResult, StoreError>, else_what: &str) -> Result<(), Error> {
    match put {
        Ok(_) => Err(lacks(else_what)),
        Err(StoreError::Precondition { .. } | StoreError::AlreadyExists { .. }) => Ok(()),
        Err(error) => Err(wrap(path, error)),
    }
}

fn lacks(what: &str) -> Error {
    let message = format!("the object store cannot be guarded: {what}");
    Error::new(ErrorKind::Unsupported, message)
}
