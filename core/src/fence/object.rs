//! A guard of an object store: conditional puts, with the token in the object itself.
//!
//! # How it decides
//!
//! A guarded write reads the object's etag and token, refuses if that token is greater, and else
//! puts the new object, with its token, *on condition* that the object still has that etag (or
//! that there still is none). The store checks the condition in the same step as the put, so there
//! is nothing between check and write: whoever is paused, killed or cut off after the reading has
//! written nothing, and a put that arrives late meets another etag. If another writer was faster,
//! the object is read anew, and the rule is asked again.
//!
//! # Why objects end in blanks
//!
//! An etag must never come back under a smaller token. On Amazon S3 and most that are like it the
//! etag is the MD5 of the *content*, whatever the metadata: if a writer with a newer token puts
//! the same bytes again, the etag is the same, and the condition of an older, paused writer holds
//! although it must not. Hence a [`FencedStore`] puts the token into the content too: 54 bytes at
//! the end, blanks, tabs and a line feed. [`get`](FencedStore::get) takes them off. Other readers
//! see them; JSON, XML, CSV, TOML, source code and most text do not mind. Where etags or
//! generations are new for every put (Google's, Azure's, S3 Express, memory), or where your content
//! holds the token anyway, [`unsealed`](FencedStore::unsealed) leaves the content as it is.
//!
//! # Which stores can
//!
//! | store | |
//! |---|---|
//! | `InMemory` | yes, unsealed too |
//! | `AmazonS3`, and what is compatible and has conditional writes | yes; `S3ConditionalPut::ETagMatch`, which is the default |
//! | `GoogleCloudStorage`, `MicrosoftAzure` | by their documentation, unsealed too; not tested here |
//! | `LocalFileSystem` | no: in `object_store` 0.14 it has neither metadata nor `PutMode::Update` |
//! | an S3-compatible store that ignores `If-Match` | no; [`probe`](FencedStore::probe) finds that out |
//!
//! A store that cannot answers the first guarded write with
//! [`ErrorKind::Unsupported`]. For one that does not say so, and silently puts,
//! call [`probe`](FencedStore::probe) once.
//!
//! # What it relies on
//!
//! - Everyone who writes to an object does so through this guard, and all alike sealed or unsealed.
//!   A plain put removes the token, a plain delete (or a lifecycle rule) the object with it; after
//!   that any token passes.
//! - An object without a token was never fenced: the first guarded write to it passes.
//! - A write is one put: at most what the store takes in one, 5 GB on S3.

mod error;
mod probe;
mod seal;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
#[cfg(doc)]
use leasehold_engine::ErrorKind;
use leasehold_engine::{Error, FencingToken};
use object_store::path::Path;
use object_store::{
    Attribute, Attributes, Error as StoreError, Extensions, GetOptions, ObjectMeta, ObjectStore,
    PutMode, PutOptions, PutResult, UpdateVersion,
};

use super::check_resource;
use super::conditional::{Before, write_within};
use super::random::random;
use error::{no_version, unlike_ours, wrap};

// Letters only: Azure takes no hyphens in the names of metadata.
const TOKEN: Attribute = Attribute::Metadata(std::borrow::Cow::Borrowed("leaseholdtoken"));
/// Which call wrote the object, so that one whose answer was lost knows its own write.
const WRITE: Attribute = Attribute::Metadata(std::borrow::Cow::Borrowed("leaseholdwrite"));
/// How many bytes at the end of the content are the seal.
const SEAL: Attribute = Attribute::Metadata(std::borrow::Cow::Borrowed("leaseholdseal"));
/// The object is what a delete left.
const GONE: Attribute = Attribute::Metadata(std::borrow::Cow::Borrowed("leaseholdgone"));

/// The longest pause before a lost race is run again.
const LONGEST_PAUSE: Duration = Duration::from_millis(250);

/// A guard over an object store. The resource is the object: its path names it.
///
/// See the [module](self) for how it decides and which stores can. Clones share the store.
///
/// ```
/// # #[tokio::main] async fn main() -> Result<(), leasehold::Error> {
/// use std::sync::Arc;
/// use leasehold::{FencingToken, fence::object::FencedStore};
/// use object_store::{memory::InMemory, path::Path};
///
/// let store = FencedStore::new(Arc::new(InMemory::new()));
/// let path = Path::from("reports/today.json");
/// let (older, newer) = (FencingToken::new(33)?, FencingToken::new(34)?); // of two leases
/// store.put(&path, newer, r#"{"sold": 7}"#).await?;
/// let error = store.put(&path, older, r#"{"sold": 6}"#).await.unwrap_err();
/// assert_eq!(error.stale_token().unwrap().highest, newer);
/// assert_eq!(store.get(&path).await?.unwrap().bytes, r#"{"sold": 7}"#);
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct FencedStore {
    store: Arc<dyn ObjectStore>,
    sealed: bool,
    attempts: u32,
}

/// An object, as [`FencedStore::get`] answers it.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Object {
    /// The content, without the seal.
    pub bytes: Bytes,
    /// The token of its last guarded write, and the greatest; `None` if it was never fenced.
    pub token: Option<FencingToken>,
    /// What the store says of it. The size includes the seal.
    pub meta: ObjectMeta,
}

/// What a guarded write finds before it.
struct Seen {
    version: UpdateVersion,
    token: Option<FencingToken>,
    write: Option<String>,
    attributes: Attributes,
    /// Without the seal; `None` if it was not asked for or is what a delete left.
    content: Option<Bytes>,
    meta: ObjectMeta,
}

impl Seen {
    /// What this call's own put gave, if it is what is there: the store's client tries again by
    /// itself if an answer is lost, and then meets its own first try.
    fn is_of(&self, write: &str) -> Option<PutResult> {
        let own = self.write.as_deref() == Some(write);
        own.then(|| PutResult {
            e_tag: self.version.e_tag.clone(),
            version: self.version.version.clone(),
            extensions: Extensions::default(),
        })
    }
}

/// What a guarded write puts.
struct Put {
    content: Bytes,
    attributes: Attributes,
    gone: bool,
}

impl FencedStore {
    /// Guards a store. No I/O.
    pub fn new(store: Arc<dyn ObjectStore>) -> Self {
        Self {
            store,
            sealed: true,
            attempts: 64,
        }
    }

    /// Leaves the content as it is. Only right if an etag or generation never comes back under a
    /// smaller token: see the [module](self); [`probe`](Self::probe) checks it.
    #[must_use]
    pub fn unsealed(mut self) -> Self {
        self.sealed = false;
        self
    }

    /// How often a write is tried if other writers are faster each time; 64 by default, at
    /// least 1. Between two tries it pauses for a random time of at most 250 ms.
    #[must_use]
    pub fn attempts(mut self, attempts: u32) -> Self {
        self.attempts = attempts.max(1);
        self
    }

    /// The store behind the guard. Do not write through it to what is guarded.
    pub fn inner(&self) -> &Arc<dyn ObjectStore> {
        &self.store
    }

    /// Puts an object, if no greater token wrote to it: a small read and one put.
    ///
    /// The answer is the store's, with the new etag. Errors:
    /// [`StaleToken`](ErrorKind::StaleToken), and nothing of it is left;
    /// [`Config`](ErrorKind::Config) for an empty path or one above 512 bytes;
    /// [`Unsupported`](ErrorKind::Unsupported) if the store has no conditional puts;
    /// [`WrongType`](ErrorKind::WrongType) if the object's token is not one;
    /// [`Overloaded`](ErrorKind::Overloaded) if others were faster
    /// [every time](Self::attempts), and nothing was written; else what the store says, and for
    /// [`Unavailable`](ErrorKind::Unavailable) and [`Timeout`](ErrorKind::Timeout) whether it
    /// wrote is unknown: the same put with the same token may be tried again.
    ///
    /// It waits for as long as the store's client lets a request take. If the call is dropped, the
    /// object is either put or not, and the rule holds.
    ///
    /// ```
    /// # #[tokio::main] async fn main() -> Result<(), leasehold::Error> {
    /// # use std::sync::Arc;
    /// # use leasehold::{FencingToken, fence::object::FencedStore};
    /// # use object_store::{memory::InMemory, path::Path};
    /// # let store = FencedStore::new(Arc::new(InMemory::new()));
    /// let token = FencingToken::new(34)?; // lease.token()
    /// store.put(&Path::from("reports/today.json"), token, "{}").await?;
    /// # Ok(()) }
    /// ```
    pub async fn put(
        &self,
        path: &Path,
        token: FencingToken,
        bytes: impl Into<Bytes>,
    ) -> Result<PutResult, Error> {
        self.put_with(path, token, bytes, Attributes::new()).await
    }

    /// [`put`](Self::put) with attributes of yours, such as the content type. Those that begin
    /// with `leasehold` are the guard's.
    ///
    /// ```
    /// # #[tokio::main] async fn main() -> Result<(), leasehold::Error> {
    /// # use std::sync::Arc;
    /// # use leasehold::{FencingToken, fence::object::FencedStore};
    /// # use object_store::{memory::InMemory, path::Path};
    /// use object_store::{Attribute, Attributes};
    ///
    /// # let store = FencedStore::new(Arc::new(InMemory::new()));
    /// # let (path, token) = (Path::from("page.html"), FencingToken::new(33)?);
    /// let html = Attributes::from_iter([(Attribute::ContentType, "text/html")]);
    /// store.put_with(&path, token, "<p>7", html).await?;
    /// # Ok(()) }
    /// ```
    pub async fn put_with(
        &self,
        path: &Path,
        token: FencingToken,
        bytes: impl Into<Bytes>,
        attributes: Attributes,
    ) -> Result<PutResult, Error> {
        let content = bytes.into();
        let put = |_: Option<&Seen>| Put {
            content: content.clone(),
            attributes: attributes.clone(),
            gone: false,
        };
        self.write(path, token, false, put).await
    }

    /// Reads an object, lets `change` make the new content of the old, and puts that: in one step,
    /// because the put fails if anybody wrote in between. `change` gets `None` if there is no object,
    /// and is called again after a lost race. The object's attributes stay. (Where an etag is that
    /// of the content, one thing goes unnoticed: that another task with the *same* token put the
    /// same content with other attributes, or deleted an empty object.)
    ///
    /// Errors are those of [`put`](Self::put). If the store's answer is lost and the call finds
    /// its own write in place, it does not apply the change twice; if another writer *with the same
    /// token* has written on top of it by then, the call cannot know, and does.
    ///
    /// ```
    /// # #[tokio::main] async fn main() -> Result<(), leasehold::Error> {
    /// # use std::sync::Arc;
    /// # use leasehold::{FencingToken, fence::object::FencedStore};
    /// # use object_store::{memory::InMemory, path::Path};
    /// # let store = FencedStore::new(Arc::new(InMemory::new()));
    /// # let (path, token) = (Path::from("log"), FencingToken::new(33)?);
    /// for line in ["one\n", "two\n"] {
    ///     store
    ///         .update(&path, token, |old| {
    ///             [old.unwrap_or_default(), line.as_bytes()].concat().into()
    ///         })
    ///         .await?;
    /// }
    /// assert_eq!(store.get(&path).await?.unwrap().bytes, "one\ntwo\n");
    /// # Ok(()) }
    /// ```
    pub async fn update(
        &self,
        path: &Path,
        token: FencingToken,
        mut change: impl FnMut(Option<&[u8]>) -> Bytes,
    ) -> Result<PutResult, Error> {
        let put = |seen: Option<&Seen>| Put {
            content: change(seen.and_then(|seen| seen.content.as_deref())),
            attributes: seen.map(|seen| seen.attributes.clone()).unwrap_or_default(),
            gone: false,
        };
        self.write(path, token, true, put).await
    }

    /// Deletes an object, and keeps its token: what remains is an empty object that
    /// [`get`](Self::get) answers as none. Object stores have no place for the token of an object
    /// that is not there, so listings still show it. To be rid of it, delete it through
    /// [`inner`](Self::inner) once no older lease can be at work; after that any token passes.
    ///
    /// Errors are those of [`put`](Self::put); to delete what is not there is none.
    ///
    /// ```
    /// # #[tokio::main] async fn main() -> Result<(), leasehold::Error> {
    /// # use std::sync::Arc;
    /// # use leasehold::{FencingToken, fence::object::FencedStore};
    /// # use object_store::{memory::InMemory, path::Path};
    /// # let store = FencedStore::new(Arc::new(InMemory::new()));
    /// # let (path, older, newer) = (Path::from("a"), FencingToken::new(33)?, FencingToken::new(34)?);
    /// store.delete(&path, newer).await?;
    /// assert!(store.get(&path).await?.is_none());
    /// assert!(store.put(&path, older, "late").await.is_err());
    /// # Ok(()) }
    /// ```
    pub async fn delete(&self, path: &Path, token: FencingToken) -> Result<(), Error> {
        let put = |_: Option<&Seen>| Put {
            content: Bytes::new(),
            attributes: Attributes::new(),
            gone: true,
        };
        self.write(path, token, false, put).await.map(|_| ())
    }

    /// Reads an object, with the token that wrote it; `None` if there is none or it was deleted.
    ///
    /// Errors: [`WrongType`](ErrorKind::WrongType) if the object has the guard's metadata but not
    /// its content (somebody rewrote it and kept the metadata); else what the store says.
    pub async fn get(&self, path: &Path) -> Result<Option<Object>, Error> {
        check_resource(path.as_ref())?;
        let seen = self.read(path, true).await?;
        Ok(seen.and_then(|seen| {
            Some(Object {
                bytes: seen.content?,
                token: seen.token,
                meta: seen.meta,
            })
        }))
    }

    /// The greatest token that wrote to an object, deleted ones included; `None` if it was never
    /// fenced. Errors are those of [`get`](Self::get).
    ///
    /// ```
    /// # #[tokio::main] async fn main() -> Result<(), leasehold::Error> {
    /// # use std::sync::Arc;
    /// # use leasehold::{FencingToken, fence::object::FencedStore};
    /// # use object_store::{memory::InMemory, path::Path};
    /// # let store = FencedStore::new(Arc::new(InMemory::new()));
    /// # let (path, token) = (Path::from("a"), FencingToken::new(33)?);
    /// assert_eq!(store.highest(&path).await?, None);
    /// store.put(&path, token, "x").await?;
    /// assert_eq!(store.highest(&path).await?, Some(token));
    /// # Ok(()) }
    /// ```
    pub async fn highest(&self, path: &Path) -> Result<Option<FencingToken>, Error> {
        check_resource(path.as_ref())?;
        Ok(self.read(path, false).await?.and_then(|seen| seen.token))
    }

    /// Reads, asks the rule, and puts on condition that nobody wrote since.
    async fn write(
        &self,
        path: &Path,
        token: FencingToken,
        whole: bool,
        mut put: impl FnMut(Option<&Seen>) -> Put,
    ) -> Result<PutResult, Error> {
        let write = &format!("{:016x}{:016x}", random(), random());
        let read = || async move {
            let Some(seen) = self.read(path, whole).await? else {
                return Ok(Before::Absent);
            };
            if let Some(result) = seen.is_of(write) {
                return Ok(Before::Done(result));
            }
            if seen.version.e_tag.is_none() && seen.version.version.is_none() {
                return Err(no_version(path));
            }
            let token = seen.token;
            Ok(Before::Present {
                token,
                version: seen,
            })
        };
        let mut attempt = 0;
        let put = |seen: Option<Seen>| {
            let content = put(seen.as_ref());
            let mode = match seen {
                Some(seen) => PutMode::Update(seen.version),
                None => PutMode::Create,
            };
            attempt += 1;
            async move {
                match self.put_if(path, token, write, content, mode).await {
                    Ok(result) => return Ok(Some(result)),
                    Err(StoreError::Precondition { .. } | StoreError::AlreadyExists { .. }) => {}
                    Err(error) => return Err(wrap(path, error)),
                }
                if attempt < self.attempts {
                    tokio::time::sleep(pause(attempt)).await;
                }
                Ok(None)
            }
        };
        write_within(self.attempts, path.as_ref(), token, read, put).await
    }

    /// One conditional put of an object with its token.
    async fn put_if(
        &self,
        path: &Path,
        token: FencingToken,
        write: &str,
        put: Put,
        mode: PutMode,
    ) -> Result<PutResult, StoreError> {
        let Put {
            mut content,
            mut attributes,
            gone,
        } = put;
        attributes.remove(&SEAL);
        attributes.remove(&GONE);
        attributes.insert(TOKEN, token.to_string().into());
        attributes.insert(WRITE, write.to_owned().into());
        if self.sealed {
            content = seal::put_on(&content, token);
            attributes.insert(SEAL, seal::BYTES.to_string().into());
        }
        if gone {
            attributes.insert(GONE, "1".into());
        }
        let options = PutOptions {
            mode,
            attributes,
            ..PutOptions::default()
        };
        self.store.put_opts(path, content.into(), options).await
    }

    /// What is there now; without the content if it is not wanted whole.
    async fn read(&self, path: &Path, whole: bool) -> Result<Option<Seen>, Error> {
        let options = GetOptions {
            head: !whole,
            ..GetOptions::default()
        };
        let found = match self.store.get_opts(path, options).await {
            Err(StoreError::NotFound { .. }) => return Ok(None),
            found => found.map_err(|error| wrap(path, error))?,
        };
        let (meta, mut attributes) = (found.meta.clone(), found.attributes.clone());
        let token = match take(&mut attributes, &TOKEN) {
            Some(text) => Some(text.parse().map_err(|_| unlike_ours(path, "token"))?),
            None => None,
        };
        let sealed = take(&mut attributes, &SEAL).is_some();
        let gone = take(&mut attributes, &GONE).is_some();
        let write = take(&mut attributes, &WRITE);
        let mut content = None;
        if whole {
            let bytes = found.bytes().await.map_err(|error| wrap(path, error))?;
            content = Some(match token.filter(|_| sealed) {
                Some(token) => {
                    seal::take_off(bytes, token).ok_or_else(|| unlike_ours(path, "seal"))?
                }
                None => bytes,
            });
        }
        Ok(Some(Seen {
            version: UpdateVersion {
                e_tag: meta.e_tag.clone(),
                version: meta.version.clone(),
            },
            token,
            write,
            attributes: if gone { Attributes::new() } else { attributes },
            content: content.filter(|_| !gone),
            meta,
        }))
    }
}

impl fmt::Debug for FencedStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FencedStore")
            .field("store", &format_args!("{}", self.store))
            .field("sealed", &self.sealed)
            .field("attempts", &self.attempts)
            .finish()
    }
}

/// Takes one of the guard's attributes out of the user's.
fn take(attributes: &mut Attributes, name: &Attribute) -> Option<String> {
    attributes
        .remove(name)
        .map(|value| value.as_ref().to_owned())
}

/// A random time that may grow from 2 ms on, so that those who lost do not meet again.
fn pause(lost: u32) -> Duration {
    let most = Duration::from_millis(1 << lost.min(8)).min(LONGEST_PAUSE);
    let micros = u64::try_from(most.as_micros()).expect("a quarter of a second fits");
    Duration::from_micros(random() % micros)
}
