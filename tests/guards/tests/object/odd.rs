//! Stores that misbehave or are slow.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use futures::stream::BoxStream;
use object_store::path::Path;
use object_store::{
    Attributes, CopyOptions, Error, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta,
    ObjectStore, PutMode, PutMultipartOptions, PutOptions, PutPayload, PutResult, Result,
};
use tokio::sync::Semaphore;

/// A misbehavior of a store.
#[derive(Clone, Debug)]
pub(crate) enum Odd {
    /// It ignores the condition of a put, and gives others time between reading and putting.
    IgnoresConditions,
    /// It obeys `PutMode::Create` and ignores the etag of an update.
    IgnoresEtags,
    /// It accepts metadata and loses it.
    LosesMetadata,
    /// The first put is done and its reply is lost. The client retries by itself and finds its own object.
    AnswersTwice(Arc<Semaphore>),
    /// The first put is done and its reply is lost.
    NeverAnswers(Arc<Semaphore>),
    /// Another writer is always faster.
    AlwaysLate,
    /// It waits after a read until the test lets it go on.
    Pauses(Pause),
}

/// A pause of a writer between reading and putting.
#[derive(Clone, Debug)]
pub(crate) struct Pause {
    pub(crate) read: Arc<Semaphore>,
    pub(crate) go: Arc<Semaphore>,
}

impl Pause {
    pub(crate) fn new() -> Self {
        let none = || Arc::new(Semaphore::new(0));
        Self {
            read: none(),
            go: none(),
        }
    }
}

/// A store with one misbehavior.
#[derive(Clone, Debug)]
pub(crate) struct OddStore {
    inner: Arc<dyn ObjectStore>,
    odd: Odd,
}

impl OddStore {
    pub(crate) fn new(inner: Arc<dyn ObjectStore>, odd: Odd) -> Arc<Self> {
        Arc::new(Self { inner, odd })
    }
}

impl fmt::Display for OddStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "an odd {}", self.inner)
    }
}

#[async_trait]
impl ObjectStore for OddStore {
    async fn put_opts(
        &self,
        path: &Path,
        payload: PutPayload,
        mut options: PutOptions,
    ) -> Result<PutResult> {
        let update = matches!(options.mode, PutMode::Update(_));
        match &self.odd {
            Odd::IgnoresConditions => options.mode = PutMode::Overwrite,
            Odd::IgnoresEtags if update => options.mode = PutMode::Overwrite,
            Odd::LosesMetadata => options.attributes = Attributes::new(),
            Odd::AlwaysLate => return Err(precondition(path)),
            _ => {}
        }
        let result = self.inner.put_opts(path, payload, options).await;
        match &self.odd {
            Odd::AnswersTwice(times) if times.try_acquire().is_ok_and(used) => {
                result.and(Err(precondition(path)))
            }
            Odd::NeverAnswers(times) if times.try_acquire().is_ok_and(used) => {
                let source = "operation timed out".into();
                let store = "odd";
                result.and(Err(Error::Generic { store, source }))
            }
            _ => result,
        }
    }

    async fn get_opts(&self, path: &Path, options: GetOptions) -> Result<GetResult> {
        let found = self.inner.get_opts(path, options).await;
        match &self.odd {
            Odd::IgnoresConditions => {
                for _ in 0..8 {
                    tokio::task::yield_now().await;
                }
            }
            Odd::Pauses(pause) => {
                pause.read.add_permits(1);
                let go = pause.go.acquire().await;
                go.expect("the semaphore stays open").forget();
            }
            _ => {}
        }
        found
    }

    async fn get_ranges(&self, path: &Path, ranges: &[Range<u64>]) -> Result<Vec<Bytes>> {
        self.inner.get_ranges(path, ranges).await
    }

    async fn put_multipart_opts(
        &self,
        path: &Path,
        options: PutMultipartOptions,
    ) -> Result<Box<dyn MultipartUpload>> {
        self.inner.put_multipart_opts(path, options).await
    }

    fn delete_stream(
        &self,
        paths: BoxStream<'static, Result<Path>>,
    ) -> BoxStream<'static, Result<Path>> {
        self.inner.delete_stream(paths)
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        self.inner.list(prefix)
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        self.inner.list_with_delimiter(prefix).await
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        self.inner.copy_opts(from, to, options).await
    }
}

fn used(permit: tokio::sync::SemaphorePermit<'_>) -> bool {
    permit.forget();
    true
}

fn precondition(path: &Path) -> Error {
    Error::Precondition {
        path: path.to_string(),
        source: "the etag differs".into(),
    }
}
