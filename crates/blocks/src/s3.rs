//! Blocks as objects of a bucket.
//!
//! `PREFIX/xx/INO-GENERATION/BLOCK` ([`pando_data::names`]), each a block's bytes with its checksum at the
//! end ([`pando_data::sealed`]): an object is always written whole, and checked whole before a byte of it is
//! believed. So a change of a part of a block reads it, and writes it anew, if it is still what was read
//! (`If-Match`): so two mounts may write parts of one block at the same time. Blocks that were read or
//! written lately are kept; each use asks whether the object is still the same (`If-None-Match`), so nothing
//! stale is served. Of a file that is read in order the next block is fetched ahead.
//!
//! An object named `pando-blocks` shows that this part of a bucket is a block store, and whose
//! ([`crate::mark`]): a wrong prefix is noticed, and not taken for an empty store.

use crate::trouble::{explain, no_bucket, no_conditions};
use crate::{BUCKET, mark, runtime};
use bytes::Bytes;
use futures_util::{StreamExt, TryStreamExt};
use object_store::aws::{AmazonS3, AmazonS3Builder, AmazonS3ConfigKey};
use object_store::path::Path;
use object_store::{
    ClientOptions, Error, GetOptions, ObjectStore, ObjectStoreExt, PutMode, PutPayload, PutResult,
    RetryConfig, UpdateVersion,
};
use pando_data::{BlockError, Blocks, FileKey, Listing, LocalFuture, StoredBlock, StoredFile, names, sealed};
use pando_env::promise;
use pando_types::{FsId, Timestamp};
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::runtime::Handle;
use tokio::sync::{Mutex as SlotMutex, Semaphore};

/// An object above this is sent in parts of this size.
const PART: usize = 8 << 20;
/// Requests under way at once.
const AT_ONCE: usize = 16;
/// Blocks that are kept: 64 MiB of the usual size.
const RECENT: usize = 16;
/// One try of a request, and of a connection.
const REQUEST: Duration = Duration::from_secs(30);
const CONNECT: Duration = Duration::from_secs(5);
/// A part of a block that others write at the same time is tried again so often.
const RACES: u32 = 100;
/// The same if the connection is lost meanwhile.
const LOST: u32 = 3;

/// What a store goes by besides its place.
#[derive(Clone, Debug)]
pub struct S3Settings {
    /// Names and values, as in an environment; those that begin with `AWS_` count.
    pub environment: Vec<(String, String)>,
    /// After so long a request that fails for reasons that may pass is given up.
    pub give_up: Duration,
    /// It is tried again so often at most.
    pub tries: usize,
    /// Whose blocks they are.
    pub fs: Option<FsId>,
}

impl S3Settings {
    /// Those of this process.
    pub fn of_process() -> S3Settings {
        let text = |(name, value): (std::ffi::OsString, std::ffi::OsString)| {
            Some((name.into_string().ok()?, value.into_string().ok()?))
        };
        S3Settings {
            environment: std::env::vars_os().filter_map(text).collect(),
            give_up: Duration::from_secs(30),
            tries: 10,
            fs: None,
        }
    }

    /// For this filesystem.
    pub fn of(mut self, fs: FsId) -> S3Settings {
        self.fs = Some(fs);
        self
    }
}

type Result<T> = std::result::Result<T, BlockError>;

/// Blocks in a bucket. Clones share connections and what is kept.
#[derive(Clone, Debug)]
pub struct S3Blocks(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    place: String,
    store: AmazonS3,
    prefix: String,
    block_size: u32,
    handle: Handle,
    fs: Option<FsId>,
    /// The mark has been seen.
    found: AtomicBool,
    /// It does not know conditions of writes.
    unconditional: AtomicBool,
    requests: Semaphore,
    recent: Mutex<VecDeque<(Key, Slot)>>,
}

type Key = (FileKey, u64);
/// A block as it was when it had this tag. Locked while it is asked for, so that others wait for the same
/// answer.
type Slot = Arc<SlotMutex<Option<Kept>>>;

#[derive(Debug)]
struct Kept {
    tag: String,
    data: Bytes,
}

impl S3Blocks {
    /// The blocks of `s3://BUCKET/PREFIX`, with credentials and endpoint of the environment (`AWS_*`).
    /// Nothing is asked. A write of `block_size` bytes (if it is not 0) is a whole block.
    pub fn open(place: &str, block_size: u32) -> Result<S3Blocks> {
        S3Blocks::open_with(place, block_size, &S3Settings::of_process())
    }

    /// The same with settings of one's own.
    pub fn open_with(place: &str, block_size: u32, settings: &S3Settings) -> Result<S3Blocks> {
        let wrong =
            |why: String| BlockError::Missing(format!("\"{place}\" is not a place for blocks: {why}"));
        let rest = place
            .strip_prefix(BUCKET)
            .ok_or_else(|| wrong("it is neither file:FOLDER nor s3://BUCKET/PREFIX".into()))?;
        let (bucket, prefix) = rest.split_once('/').unwrap_or((rest, ""));
        let prefix = prefix.trim_end_matches('/');
        if bucket.is_empty() {
            return Err(wrong("the bucket has no name".into()));
        }
        Path::parse(prefix).map_err(|e| wrong(e.to_string()))?;
        // The program has one provider of cryptography; a second call changes nothing.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let mut builder = AmazonS3Builder::new();
        for (name, value) in &settings.environment {
            if name.starts_with("AWS_")
                && let Ok(key) = name.to_ascii_lowercase().parse::<AmazonS3ConfigKey>()
            {
                builder = builder.with_config(key, value);
            }
        }
        let endpoint = [AmazonS3ConfigKey::S3Endpoint, AmazonS3ConfigKey::Endpoint]
            .iter()
            .find_map(|key| builder.get_config_value(key));
        // Plain HTTP is for who asks for it.
        let plain = endpoint.is_some_and(|e| e.starts_with("http://"));
        let options = ClientOptions::new()
            .with_timeout(REQUEST)
            .with_connect_timeout(CONNECT)
            .with_allow_http(plain);
        let retry = RetryConfig {
            max_retries: settings.tries,
            retry_timeout: settings.give_up,
            ..RetryConfig::default()
        };
        let store = builder
            .with_bucket_name(bucket)
            .with_client_options(options)
            .with_retry(retry)
            .build()
            .map_err(|e| explain(place, &e))?;
        Ok(S3Blocks(Arc::new(Inner {
            place: place.to_owned(),
            store,
            prefix: prefix.to_owned(),
            block_size,
            handle: runtime::handle()?,
            fs: settings.fs,
            found: AtomicBool::new(false),
            unconditional: AtomicBool::new(false),
            requests: Semaphore::new(AT_ONCE),
            recent: Mutex::new(VecDeque::new()),
        })))
    }

    /// Makes an empty store. There must be a bucket, and nothing under the prefix.
    pub fn create(&self) -> LocalFuture<Result<()>> {
        self.ask(|s| async move { s.create().await })
    }

    /// Whether it is there and can be read.
    pub fn check(&self) -> LocalFuture<Result<()>> {
        self.ask(|s| async move { s.check().await })
    }

    /// Runs on the bucket's thread.
    fn ask<T: Send + 'static, F: Future<Output = Result<T>> + Send + 'static>(
        &self,
        what: impl FnOnce(Arc<Inner>) -> F + Send + 'static,
    ) -> LocalFuture<Result<T>> {
        let (promise, answer) = promise();
        let inner = self.0.clone();
        self.0
            .handle
            .spawn(async move { promise.keep(what(inner).await) });
        Box::pin(async move {
            let gone = || Err(BlockError::Device("the bucket's thread has ended".into()));
            answer.await.unwrap_or_else(gone)
        })
    }
}

/// On condition that it is still what had this tag.
fn as_it_is(tag: &str) -> PutMode {
    PutMode::Update(UpdateVersion {
        e_tag: Some(tag.to_owned()),
        version: None,
    })
}

impl Inner {
    fn path(&self, rest: &str) -> Path {
        // Both were parsed or are made of digits.
        Path::from(format!("{}/{rest}", self.prefix))
    }

    fn folder(&self, file: FileKey) -> String {
        format!(
            "{}/{}",
            names::part_name(names::part(file)),
            names::file_name(file)
        )
    }

    fn block(&self, (file, block): Key) -> Path {
        self.path(&format!("{}/{block}", self.folder(file)))
    }

    fn explain(&self, e: &Error) -> BlockError {
        explain(&self.place, e)
    }

    async fn create(&self) -> Result<()> {
        let _turn = self.requests.acquire().await;
        let mark = self.path(mark::NAME);
        let prefix = self.path("");
        let mut found = self.store.list(Some(&prefix));
        while let Some(object) = found.next().await {
            let object = object.map_err(|e| self.explain(&e))?;
            if object.location != mark {
                return Err(BlockError::Missing(format!(
                    "{} is not empty (there is {}): say another prefix",
                    self.place, object.location
                )));
            }
        }
        let text = mark::text(self.fs);
        match self.put(&mark, text.clone().into(), PutMode::Create).await? {
            Some(_) => Ok(()),
            // Another's, or ours before a crash.
            None => {
                self.judge_mark(&mark).await?;
                self.put(&mark, text.into(), PutMode::Overwrite).await.map(drop)
            }
        }
    }

    /// Whether the mark is ours. `Ok(false)`: it does not say whose it is.
    async fn judge_mark(&self, mark: &Path) -> Result<bool> {
        let found = self.store.get(mark).await.map_err(|e| self.explain(&e))?;
        let text = found.bytes().await.map_err(|e| self.explain(&e))?;
        mark::judge(&self.place, &text, self.fs)
    }

    /// Before the first use: zeros are right where nothing was written, and wrong where we look in the wrong
    /// place.
    async fn sure(&self) -> Result<()> {
        match self.found.load(Ordering::Relaxed) {
            true => Ok(()),
            false => self.check().await,
        }
    }

    async fn check(&self) -> Result<()> {
        let mark = self.path(mark::NAME);
        match self.store.head(&mark).await {
            Ok(_) if self.fs.is_none() => {
                self.found.store(true, Ordering::Relaxed);
                Ok(())
            }
            Ok(_) => {
                if !self.judge_mark(&mark).await?
                    && let Err(e) = self
                        .put(&mark, mark::text(self.fs).into(), PutMode::Overwrite)
                        .await
                {
                    // Whoever may not write there reads all the same.
                    tracing::warn!("the bucket's mark stays without a filesystem: {e}");
                }
                self.found.store(true, Ordering::Relaxed);
                Ok(())
            }
            Err(e @ Error::NotFound { .. }) => {
                // The answer to HEAD has no body that says which of them it is.
                let prefix = self.path("");
                match self.store.list(Some(&prefix)).next().await {
                    Some(Err(list)) if no_bucket(&list) => Err(self.explain(&list)),
                    _ if no_bucket(&e) => Err(self.explain(&e)),
                    _ => Err(BlockError::Missing(format!(
                        "{} is not a block store: it has no object \"{}\"",
                        self.place,
                        mark::NAME
                    ))),
                }
            }
            Err(e) => Err(self.explain(&e)),
        }
    }

    /// Where a block is kept, the latest first.
    fn slot(&self, key: Key) -> Slot {
        let mut recent = self.recent.lock().unwrap_or_else(PoisonError::into_inner);
        let slot = match recent.iter().position(|(k, _)| *k == key) {
            Some(at) => recent.remove(at).map(|(_, slot)| slot),
            None => None,
        };
        let slot = slot.unwrap_or_default();
        recent.push_front((key, slot.clone()));
        recent.truncate(RECENT);
        slot
    }

    fn is_recent(&self, key: Key) -> bool {
        let recent = self.recent.lock().unwrap_or_else(PoisonError::into_inner);
        recent.iter().any(|(k, _)| *k == key)
    }

    /// Forgets blocks of a file.
    fn forget(&self, file: FileKey, from: u64, to: u64) {
        let mut recent = self.recent.lock().unwrap_or_else(PoisonError::into_inner);
        recent.retain(|((f, b), _)| *f != file || *b < from || *b >= to);
    }

    /// A block's bytes as they are now; empty, if there is none.
    async fn fetch(&self, key: Key, kept: &mut Option<Kept>) -> Result<Bytes> {
        Ok(self.fetch_to_change(key, kept).await?.0)
    }

    /// The same, and on what condition they may be replaced.
    async fn fetch_to_change(&self, key: Key, kept: &mut Option<Kept>) -> Result<(Bytes, PutMode)> {
        let _turn = self.requests.acquire().await;
        let options = GetOptions {
            if_none_match: kept.as_ref().map(|k| k.tag.clone()),
            ..GetOptions::default()
        };
        let path = self.block(key);
        let answer = match self.store.get_opts(&path, options).await {
            Err(Error::NotModified { .. }) => {
                return Ok(match kept {
                    Some(k) => (k.data.clone(), as_it_is(&k.tag)),
                    None => (Bytes::new(), PutMode::Overwrite),
                });
            }
            Err(e) if matches!(e, Error::NotFound { .. }) && !no_bucket(&e) => {
                *kept = None;
                return Ok((Bytes::new(), PutMode::Create));
            }
            other => other.map_err(|e| self.explain(&e))?,
        };
        let tag = answer.meta.e_tag.clone();
        let object = answer.bytes().await.map_err(|e| self.explain(&e))?;
        *kept = None;
        let len = sealed::check(&object)
            .map_err(|e| BlockError::Damaged(format!("object {path} of {}: {e}", self.place)))?;
        let data = object.slice(..len);
        let mode = tag.as_deref().map_or(PutMode::Overwrite, as_it_is);
        *kept = tag.map(|tag| Kept {
            tag,
            data: data.clone(),
        });
        Ok((data, mode))
    }

    /// `None`: the condition does not hold.
    async fn put(&self, path: &Path, object: Bytes, mode: PutMode) -> Result<Option<PutResult>> {
        // In parts there are no conditions.
        if object.len() <= PART {
            let mode = match self.unconditional.load(Ordering::Relaxed) {
                true => PutMode::Overwrite,
                false => mode,
            };
            let put = |mode: PutMode| {
                let payload = PutPayload::from_bytes(object.clone());
                self.store.put_opts(path, payload, mode.into())
            };
            return match put(mode.clone()).await {
                Err(Error::Precondition { .. } | Error::AlreadyExists { .. })
                    if mode != PutMode::Overwrite =>
                {
                    Ok(None)
                }
                Err(e) if mode != PutMode::Overwrite && no_conditions(&e) => {
                    tracing::warn!(
                        "{} knows no conditions of writes: two mounts must not write parts of one block at the same time",
                        self.place
                    );
                    self.unconditional.store(true, Ordering::Relaxed);
                    put(PutMode::Overwrite)
                        .await
                        .map(Some)
                        .map_err(|e| self.explain(&e))
                }
                done => done.map(Some).map_err(|e| self.explain(&e)),
            };
        }
        let mut upload = self
            .store
            .put_multipart(path)
            .await
            .map_err(|e| self.explain(&e))?;
        let mut failed = None;
        for from in (0..object.len()).step_by(PART) {
            let part = object.slice(from..(from + PART).min(object.len()));
            if let Err(e) = upload.put_part(PutPayload::from_bytes(part)).await {
                failed = Some(e);
                break;
            }
        }
        let done = match failed {
            None => upload.complete().await,
            Some(e) => Err(e),
        };
        if done.is_err() {
            // Parts that nobody completes are kept, and paid for; the bucket's rules may do it too.
            let _ = upload.abort().await;
        }
        done.map(Some).map_err(|e| self.explain(&e))
    }

    /// Changes a block by what is there.
    async fn change(
        &self,
        key: Key,
        kept: &mut Option<Kept>,
        change: impl Fn(&Bytes) -> Option<Vec<u8>>,
    ) -> Result<()> {
        let mut lost = 0;
        for _ in 0..RACES {
            let (data, mode) = self.fetch_to_change(key, kept).await?;
            let Some(all) = change(&data) else {
                return Ok(());
            };
            match self.store(key, all, kept, mode).await {
                Ok(true) => return Ok(()),
                Ok(false) => {}
                // Whether it was written is seen when it is looked at again.
                Err(BlockError::Unreachable(_)) if lost < LOST => lost += 1,
                Err(e) => return Err(e),
            }
        }
        Err(BlockError::Device(format!(
            "{}: others write the same block all the time",
            self.place
        )))
    }

    /// False: it is not what it was when the condition was made.
    async fn store(&self, key: Key, data: Vec<u8>, kept: &mut Option<Kept>, mode: PutMode) -> Result<bool> {
        let _turn = self.requests.acquire().await;
        // Until it is known what is there.
        *kept = None;
        let len = data.len();
        let object = Bytes::from(sealed::seal(data));
        let Some(put) = self.put(&self.block(key), object.clone(), mode).await? else {
            return Ok(false);
        };
        *kept = put.e_tag.map(|tag| Kept {
            tag,
            data: object.slice(..len),
        });
        Ok(true)
    }

    async fn read(self: Arc<Inner>, key: Key, offset: u32, len: u32) -> Result<Vec<u8>> {
        self.sure().await?;
        let (file, block) = key;
        let in_order = block > 0 && self.is_recent((file, block - 1));
        let slot = self.slot(key);
        let data = self.fetch(key, &mut *slot.lock().await).await?;
        let next = (file, block.wrapping_add(1));
        if in_order && data.len() == self.block_size as usize && !self.is_recent(next) {
            let (ahead, slot) = (self.clone(), self.slot(next));
            self.handle.spawn(async move {
                // Whoever reads it asks again, and hears what is wrong.
                let _ = ahead.fetch(next, &mut *slot.lock().await).await;
            });
        }
        let from = (offset as usize).min(data.len());
        let to = (offset as usize).saturating_add(len as usize).min(data.len());
        Ok(data[from..to].to_vec())
    }

    async fn write(&self, key: Key, offset: u32, data: Vec<u8>) -> Result<()> {
        self.sure().await?;
        let slot = self.slot(key);
        let mut kept = slot.lock().await;
        let whole = self.block_size > 0 && offset == 0 && data.len() >= self.block_size as usize;
        if whole {
            let stored = self.store(key, data, &mut kept, PutMode::Overwrite).await;
            return stored.map(drop);
        }
        if data.is_empty() {
            return Ok(());
        }
        let over = |old: &Bytes| {
            let (mut all, from) = (old.to_vec(), offset as usize);
            if all.len() < from + data.len() {
                all.resize(from + data.len(), 0);
            }
            all[from..from + data.len()].copy_from_slice(&data);
            Some(all)
        };
        self.change(key, &mut kept, over).await
    }

    async fn truncate(&self, key: Key, len: u32) -> Result<()> {
        self.sure().await?;
        if len == 0 {
            return self.remove(key.0, key.1, key.1.saturating_add(1)).await;
        }
        let slot = self.slot(key);
        let mut kept = slot.lock().await;
        let cut = |old: &Bytes| (old.len() > len as usize).then(|| old[..len as usize].to_vec());
        self.change(key, &mut kept, cut).await
    }

    /// Names come in the order of their digits, so all of a file are looked through.
    async fn stored(&self, file: FileKey, from: u64, to: u64) -> Result<Vec<StoredBlock>> {
        self.sure().await?;
        let _turn = self.requests.acquire().await;
        let folder = self.path(&self.folder(file));
        let mut objects = self.store.list(Some(&folder));
        let mut found = Vec::new();
        while let Some(object) = objects.next().await {
            let object = object.map_err(|e| self.explain(&e))?;
            let number = object.location.filename().and_then(|n| n.parse::<u64>().ok());
            let bytes = object.size.saturating_sub(sealed::SEAL as u64);
            let bytes = u32::try_from(bytes).unwrap_or(u32::MAX);
            let number = number.filter(|n| (from..to).contains(n));
            found.extend(number.map(|number| StoredBlock { number, bytes }));
        }
        found.sort_unstable_by_key(|block| block.number);
        Ok(found)
    }

    async fn remove(&self, file: FileKey, from: u64, to: u64) -> Result<()> {
        self.sure().await?;
        let _turn = self.requests.acquire().await;
        self.forget(file, from, to);
        if to <= from {
            return Ok(());
        }
        let gone: Result<Vec<Path>> = if to - from == 1 {
            Ok(vec![self.block((file, from))])
        } else {
            let folder = self.path(&self.folder(file));
            let objects = self.store.list(Some(&folder));
            objects
                .map_err(|e| self.explain(&e))
                .try_filter_map(|o| async move {
                    let number = o.location.filename().and_then(|n| n.parse::<u64>().ok());
                    Ok(number.filter(|n| (from..to).contains(n)).map(|_| o.location))
                })
                .try_collect()
                .await
        };
        let gone = futures_util::stream::iter(gone?.into_iter().map(Ok)).boxed();
        let mut removed = self.store.delete_stream(gone);
        while let Some(result) = removed.next().await {
            match result {
                Err(e) if !matches!(e, Error::NotFound { .. }) || no_bucket(&e) => {
                    return Err(self.explain(&e));
                }
                _ => {}
            }
        }
        Ok(())
    }

    async fn files(&self, part: u8) -> Result<Vec<StoredFile>> {
        self.sure().await?;
        let _turn = self.requests.acquire().await;
        let folder = self.path(&names::part_name(part));
        let mut found: Vec<StoredFile> = Vec::new();
        let mut objects = self.store.list(Some(&folder));
        while let Some(object) = objects.next().await {
            let object = object.map_err(|e| self.explain(&e))?;
            let names: Vec<_> = object.location.parts().collect();
            let [.., file, block] = names.as_slice() else {
                continue;
            };
            let (Some(file), Ok(_)) = (names::parse_file(file.as_ref()), block.as_ref().parse::<u64>())
            else {
                continue;
            };
            let time = object.last_modified;
            let written = Timestamp {
                secs: time.timestamp(),
                nanos: time.timestamp_subsec_nanos().min(999_999_999),
            };
            // They come in order of their names.
            if found.last().is_none_or(|f| f.file != file) {
                found.push(StoredFile::new(file, written));
            }
            if let Some(last) = found.last_mut() {
                last.add(object.size, written);
            }
        }
        Ok(found)
    }
}

impl Blocks for S3Blocks {
    fn read(&self, file: FileKey, block: u64, offset: u32, len: u32) -> LocalFuture<Result<Vec<u8>>> {
        self.ask(move |s| s.read((file, block), offset, len))
    }

    fn write(&self, file: FileKey, block: u64, offset: u32, data: Vec<u8>) -> LocalFuture<Result<()>> {
        self.ask(move |s| async move { s.write((file, block), offset, data).await })
    }

    fn truncate(&self, file: FileKey, block: u64, len: u32) -> LocalFuture<Result<()>> {
        self.ask(move |s| async move { s.truncate((file, block), len).await })
    }

    /// An object that was put is there to stay.
    fn sync(&self, _file: FileKey, _blocks: Vec<u64>) -> LocalFuture<Result<()>> {
        Box::pin(std::future::ready(Ok(())))
    }

    fn present(&self, file: FileKey, from: u64, to: u64) -> LocalFuture<Result<Vec<u64>>> {
        self.ask(move |s| async move {
            let stored = s.stored(file, from, to).await?;
            Ok(stored.iter().map(|block| block.number).collect())
        })
    }

    fn stored(&self, file: FileKey, from: u64, to: u64) -> LocalFuture<Result<Vec<StoredBlock>>> {
        self.ask(move |s| async move { s.stored(file, from, to).await })
    }

    fn remove(&self, file: FileKey, from: u64, to: u64) -> LocalFuture<Result<()>> {
        self.ask(move |s| async move { s.remove(file, from, to).await })
    }

    /// Buckets have no end that they would tell.
    fn room(&self) -> LocalFuture<Result<Option<u64>>> {
        Box::pin(std::future::ready(Ok(None)))
    }
}

impl Listing for S3Blocks {
    fn files(&self, part: u8) -> LocalFuture<Result<Vec<StoredFile>>> {
        self.ask(move |s| async move { s.files(part).await })
    }
}
