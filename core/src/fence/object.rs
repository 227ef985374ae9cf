//! A guard for object stores: conditional puts, with the token in the object itself.
//!
//! # How it decides
//!
//! A guarded write takes these steps:
//!
//! 1. It reads the object's etag and token, and refuses if that token is greater.
//! 2. It puts the new object, with its token, *on condition* that the object still has that etag, or still
//!    does not exist.
//! 3. If another writer was faster, it starts again.
//!
//! The store checks the condition in the same step as the put, so nothing can come between check and write. A
//! writer that is paused, killed or cut off after step 1 has written nothing, and a put that arrives late
//! finds another etag.
//!
//! # Why objects end in whitespace
//!
//! An etag must never come back under a smaller token. On Amazon S3 and most compatible stores the etag is
//! the MD5 of the *content*, whatever the metadata. If a writer with a newer token puts the same bytes again,
//! the etag stays the same, and the condition of an older, paused writer wrongly holds.
//!
//! Hence a [`FencedStore`] puts the token into the content too, as a *seal*: 54 bytes at the end, spaces,
//! tabs and a line feed. [`get`](FencedStore::get) removes the seal; other readers see it. JSON, XML, CSV,
//! TOML, source code and most text tolerate it. Use [`unsealed`](FencedStore::unsealed), which leaves the
//! content unchanged, where every put gets a new etag or generation (Google, Azure, S3 Express, memory) or
//! where your content includes the token anyway.
//!
//! # Supported stores
//!
//! | store | supported |
//! |---|---|
//! | `InMemory` | yes, unsealed too |
//! | `AmazonS3`, and compatible stores with conditional writes | yes, with `S3ConditionalPut::ETagMatch`, the
//! default |
//! | `GoogleCloudStorage`, `MicrosoftAzure` | according to their documentation, unsealed too; not tested here
//! |
//! | `LocalFileSystem` | no: in `object_store` 0.14 it has neither metadata nor `PutMode::Update` |
//! | an S3-compatible store that ignores `If-Match` | no; [`probe`](FencedStore::probe) detects it |
//!
//! On an unsupported store the first guarded write fails with [`ErrorKind::Unsupported`]. A store that
//! silently ignores conditions does not fail, so call [`probe`](FencedStore::probe) once.
//!
//! # Requirements
//!
//! - Every writer of an object uses this guard, and all of them are sealed or all unsealed. A plain put
//!   removes the token; a plain delete or a lifecycle rule removes the object with it. After that any token
//!   passes.
//! - An object without a token was never fenced: the first guarded write to it passes.
//! - A write is one put, so its size is limited to what the store takes in one: 5 GB on S3.

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

// Letters only: Azure does not allow hyphens in the names of metadata.
const TOKEN: Attribute = Attribute::Metadata(std::borrow::Cow::Borrowed("leaseholdtoken"));
/// Identifies the call that wrote the object, so that a call whose reply was lost recognizes its own write.
const WRITE: Attribute = Attribute::Metadata(std::borrow::Cow::Borrowed("leaseholdwrite"));
/// The number of bytes at the end of the content that form the seal.
const SEAL: Attribute = Attribute::Metadata(std::borrow::Cow::Borrowed("leaseholdseal"));
/// Marks an object that a guarded delete left behind.
const GONE: Attribute = Attribute::Metadata(std::borrow::Cow::Borrowed("leaseholdgone"));

/// The longest pause before another attempt after a lost race.
const LONGEST_PAUSE: Duration = Duration::from_millis(250);

/// A guard over an object store, where each object is a resource and its path is the name.
///
/// The [module](self) explains how it decides and which stores it supports. Clones share the store.
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

/// An object as [`FencedStore::get`] returns it.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Object {
    /// The content, without the seal.
    pub bytes: Bytes,
    /// The token of its last guarded write, which is also the greatest; `None` if it was never fenced.
    pub token: Option<FencingToken>,
    /// The store's metadata. The size includes the seal.
    pub meta: ObjectMeta,
}

/// The object that a guarded write finds.
struct Seen {
    version: UpdateVersion,
    token: Option<FencingToken>,
    write: Option<String>,
    attributes: Attributes,
    /// The content without the seal; `None` if it was not read or the object was deleted.
    content: Option<Bytes>,
    meta: ObjectMeta,
}

impl Seen {
    /// Returns the result of this call's own put, if that is what the object holds. The store's client
    /// retries by itself after a lost reply and then meets its own first try.
    fn is_of(&self, write: &str) -> Option<PutResult> {
        let own = self.write.as_deref() == Some(write);
        own.then(|| PutResult {
            e_tag: self.version.e_tag.clone(),
            version: self.version.version.clone(),
            extensions: Extensions::default(),
        })
    }
}

/// The object that a guarded write puts.
struct Put {
    content: Bytes,
    attributes: Attributes,
    gone: bool,
}

impl FencedStore {
    /// Returns a guard for a store. No I/O.
    pub fn new(store: Arc<dyn ObjectStore>) -> Self {
        Self {
            store,
            sealed: true,
            attempts: 64,
        }
    }

    /// Writes objects without the seal, so that their content stays unchanged.
    ///
    /// This is correct only if an etag or generation never comes back under a smaller token: see the
    /// [module](self). [`probe`](Self::probe) checks that.
    #[must_use]
    pub fn unsealed(mut self) -> Self {
        self.sealed = false;
        self
    }

    /// Sets how often a write is tried while other writers are faster; 64 by default, at least 1.
    ///
    /// Between attempts it pauses for a random time of at most 250 ms.
    #[must_use]
    pub fn attempts(mut self, attempts: u32) -> Self {
        self.attempts = attempts.max(1);
        self
    }

    /// Returns the store behind the guard. Do not write to guarded objects through it.
    pub fn inner(&self) -> &Arc<dyn ObjectStore> {
        &self.store
    }

    /// Puts an object unless a greater token has written to it, with a small read and one put.
    ///
    /// Returns the store's result, with the new etag.
    ///
    /// Errors:
    ///
    /// - [`StaleToken`](ErrorKind::StaleToken) if a greater token has written; this call wrote nothing
    /// - [`Config`](ErrorKind::Config) if the path is empty or longer than 512 bytes
    /// - [`Unsupported`](ErrorKind::Unsupported) if the store has no conditional puts
    /// - [`WrongType`](ErrorKind::WrongType) if the token in the object's metadata is invalid
    /// - [`Overloaded`](ErrorKind::Overloaded) if others were faster in [every attempt](Self::attempts);
    ///   nothing was written
    /// - [`Unavailable`](ErrorKind::Unavailable) or [`Timeout`](ErrorKind::Timeout) if there was no reply.
    ///   Then it is unknown whether it wrote; the same put may be repeated with the same token
    /// - otherwise the store's error
    ///
    /// It has no timeout of its own: the store's client limits each request.
    ///
    /// Cancel safe: if the future is dropped, the object was put or not, and the rule holds.
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

    /// Like [`put`](Self::put), with attributes such as the content type.
    ///
    /// Attributes whose names begin with `leasehold` belong to the guard.
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

    /// Reads an object, computes the new content with `change`, and puts it, atomically.
    ///
    /// The put fails if anyone wrote in between; then the call starts again, and `change` runs again.
    /// `change` gets `None` if there is no object. The object's attributes stay.
    ///
    /// Where the etag depends only on the content, one case goes unnoticed: another task with the *same*
    /// token put the same content with other attributes, or deleted an empty object.
    ///
    /// Errors: those of [`put`](Self::put). If the store's reply is lost and the call finds its own write in
    /// place, it does not apply the change twice. If another writer *with the same token* has written over it
    /// by then, the call cannot know and applies the change again.
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

    /// Deletes an object and keeps its token.
    ///
    /// An empty object remains, which [`get`](Self::get) reports as `None` and which listings still show:
    /// object stores have no place for the token of a missing object. To remove it, delete it through
    /// [`inner`](Self::inner) once no older lease can be at work. After that any token passes.
    ///
    /// Errors: those of [`put`](Self::put). Deleting a missing object is not an error.
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

    /// Reads an object with the token that wrote it; `None` if it does not exist or was deleted.
    ///
    /// Errors: [`Config`](ErrorKind::Config) if the path is empty or longer than 512 bytes;
    /// [`WrongType`](ErrorKind::WrongType) if the object has the guard's metadata but an invalid token or no
    /// seal, because something else rewrote it and kept the metadata; otherwise the store's error.
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

    /// Returns the greatest token that wrote to an object, also if it was deleted; `None` if it was never
    /// fenced.
    ///
    /// Errors: those of [`get`](Self::get).
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

    /// Reads, applies the rule, and puts on condition that nobody has written since.
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

    /// Does one conditional put of an object with its token.
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

    /// Reads the object, with its content only if `whole`.
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

/// Takes one of the guard's attributes out of the user's attributes.
fn take(attributes: &mut Attributes, name: &Attribute) -> Option<String> {
    attributes
        .remove(name)
        .map(|value| value.as_ref().to_owned())
}

/// Returns a random pause, so that losers of a race do not collide again. Its limit doubles from 2 ms on.
fn pause(lost: u32) -> Duration {
    let most = Duration::from_millis(1 << lost.min(8)).min(LONGEST_PAUSE);
    let micros = u64::try_from(most.as_micros()).expect("a quarter of a second fits");
    Duration::from_micros(random() % micros)
}
