//! What went wrong with a bucket, in our words.

use object_store::Error;
use object_store::client::{HttpError, HttpErrorKind};
use pando_data::BlockError;

/// Where credentials are asked for on a machine of the provider, when none are given.
const INSTANCE_CREDENTIALS: &str = "169.254.169.254";

/// What an error means, for whoever has to do something about it. `place`: the bucket's URL.
pub(crate) fn explain(place: &str, e: &Error) -> BlockError {
    let text = whole(e);
    if no_bucket(e) {
        return BlockError::Missing(format!("{place}: there is no such bucket"));
    }
    if text.contains(INSTANCE_CREDENTIALS) {
        return BlockError::Denied(format!(
            "{place}: no credentials are given, and this machine has none"
        ));
    }
    let denied = ["InvalidAccessKeyId", "SignatureDoesNotMatch", "AccessDenied"];
    if matches!(e, Error::Unauthenticated { .. } | Error::PermissionDenied { .. })
        || denied.iter().any(|d| text.contains(d))
    {
        return BlockError::Denied(format!("{place}: {}", short(&text)));
    }
    if ["QuotaExceeded", "StorageFull", "XMinioStorageFull"]
        .iter()
        .any(|f| text.contains(f))
    {
        return BlockError::NoSpace;
    }
    let connection = sources(e).find_map(|s| s.downcast_ref::<HttpError>().map(HttpError::kind));
    match connection {
        Some(
            HttpErrorKind::Connect
            | HttpErrorKind::Timeout
            | HttpErrorKind::Request
            | HttpErrorKind::Interrupted,
        ) => BlockError::Unreachable(format!("{place}: {}", short(&text))),
        _ => BlockError::Device(format!("{place}: {}", short(&text))),
    }
}

/// Whether the bucket is not there, and not just an object in it.
pub(crate) fn no_bucket(e: &Error) -> bool {
    whole(e).contains("NoSuchBucket")
}

/// Whether a server does not know conditions of writes.
pub(crate) fn no_conditions(e: &Error) -> bool {
    let text = whole(e);
    matches!(e, Error::NotImplemented { .. })
        || text.contains("NotImplemented")
        || text.contains("501 Not Implemented")
}

fn sources(e: &Error) -> impl Iterator<Item = &(dyn std::error::Error + 'static)> {
    let first: &(dyn std::error::Error + 'static) = e;
    std::iter::successors(Some(first), |e| e.source())
}

/// An error with all its causes.
fn whole(e: &Error) -> String {
    let mut text = String::new();
    for s in sources(e) {
        let next = s.to_string();
        // Most say their causes themselves.
        if !text.contains(&next) {
            if !text.is_empty() {
                text.push_str(": ");
            }
            text.push_str(&next);
        }
    }
    text
}

/// One line of bounded length.
fn short(text: &str) -> String {
    const ENOUGH: usize = 400;
    let line: String = text.split_whitespace().collect::<Vec<_>>().join(" ");
    match line.char_indices().nth(ENOUGH) {
        Some((end, _)) => format!("{}...", &line[..end]),
        None => line,
    }
}
