//! A store in memory that takes its time between two calls, and may break one of the promises of such stores.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use async_trait::async_trait;
use futures_util::stream::BoxStream;
use object_store::memory::InMemory;
use object_store::path::Path;
use object_store::{
    Attributes, CopyOptions, Error, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta, ObjectStore, ObjectStoreExt,
    PutMode, PutMultipartOptions, PutOptions, PutPayload, PutResult, Result,
};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Flaw {
    None,
    /// ETags are made from the content, as those of S3.
    TagsOfContent,
    /// Conditions of updates are not looked at.
    UpdatesAnything,
    /// Objects that are there are overwritten by new ones.
    CreatesOver,
    DropsAttributes,
    NoTags,
}

#[derive(Debug)]
pub(super) struct Odd {
    inner: InMemory,
    flaw: Flaw,
    /// From now on somebody else is always faster.
    pub(super) hopeless: AtomicBool,
    pub(super) puts: AtomicUsize,
}

impl Odd {
    pub(super) fn new(flaw: Flaw) -> Self {
        Self { inner: InMemory::new(), flaw, hopeless: AtomicBool::new(false), puts: AtomicUsize::new(0) }
    }

    async fn tag_of_content(&self, location: &Path) -> Option<String> {
        let mut hasher = DefaultHasher::new();
        self.inner.get(location).await.ok()?.bytes().await.ok()?.hash(&mut hasher);
        Some(format!("\"{:x}\"", hasher.finish()))
    }

    fn conflict(location: &Path) -> Error {
        Error::Precondition { path: location.to_string(), source: "another one".into() }
    }
}

impl std::fmt::Display for Odd {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Odd({:?})", self.flaw)
    }
}

#[async_trait]
impl ObjectStore for Odd {
    async fn put_opts(&self, location: &Path, payload: PutPayload, mut options: PutOptions) -> Result<PutResult> {
        tokio::task::yield_now().await;
        self.puts.fetch_add(1, Ordering::Relaxed);
        if self.hopeless.load(Ordering::Relaxed) {
            return Err(Self::conflict(location));
        }
        match (self.flaw, &options.mode) {
            (Flaw::DropsAttributes, _) => options.attributes = Attributes::new(),
            (Flaw::UpdatesAnything, PutMode::Update(_)) | (Flaw::CreatesOver, PutMode::Create) => {
                options.mode = PutMode::Overwrite
            }
            (Flaw::TagsOfContent, PutMode::Update(read)) => {
                if self.tag_of_content(location).await != read.e_tag {
                    return Err(Self::conflict(location));
                }
                options.mode = PutMode::Overwrite;
            }
            _ => {}
        }
        self.inner.put_opts(location, payload, options).await
    }

    async fn get_opts(&self, location: &Path, options: GetOptions) -> Result<GetResult> {
        tokio::task::yield_now().await;
        let mut found = self.inner.get_opts(location, options).await?;
        match self.flaw {
            Flaw::TagsOfContent => found.meta.e_tag = self.tag_of_content(location).await,
            Flaw::NoTags => found.meta.e_tag = None,
            _ => {}
        }
        Ok(found)
    }

    async fn put_multipart_opts(&self, location: &Path, options: PutMultipartOptions) -> Result<Box<dyn MultipartUpload>> {
        self.inner.put_multipart_opts(location, options).await
    }

    fn delete_stream(&self, locations: BoxStream<'static, Result<Path>>) -> BoxStream<'static, Result<Path>> {
        self.inner.delete_stream(locations)
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
