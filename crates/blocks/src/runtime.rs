//! The thread on which requests to a bucket run.

use pando_data::BlockError;
use std::sync::OnceLock;
use tokio::runtime::{Builder, Handle};

/// The runtime of this process, whose one thread is started with the first use.
pub(crate) fn handle() -> Result<Handle, BlockError> {
    static RUNTIME: OnceLock<Result<Handle, String>> = OnceLock::new();
    let started = RUNTIME.get_or_init(|| {
        let runtime = Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(|e| e.to_string())?;
        let handle = runtime.handle().clone();
        std::thread::Builder::new()
            .name("pando-s3".into())
            .spawn(move || runtime.block_on(std::future::pending::<()>()))
            .map_err(|e| e.to_string())?;
        Ok(handle)
    });
    started
        .clone()
        .map_err(|e| BlockError::Device(format!("cannot start a thread for the bucket: {e}")))
}
