//! Reads the body of a request: JSON only, with a limit on the size, on the time, and on the memory of all bodies together. A response
//! keeps the memory of its request.
//!
//! A replica may use 384 MiB. A review usually has a few ten KiB, but may have 4 MiB. Bodies of the usual size wait for nothing: the
//! limit on connections bounds their memory. Larger bodies wait until there is memory, after their first 64 KiB: a client that sends
//! nothing reserves nothing. A decoded object reserves no memory: the decoder keeps only the fields that a rule reads
//! (`placement::bounded`), and the process has one thread.

use crate::review::RequestError;
use axum::body::{Bytes, HttpBody};
use axum::extract::Request;
use axum::http::header::CONTENT_TYPE;
use futures::StreamExt;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// The timeout in the webhook configurations. The API server starts its timeout earlier, so it no longer waits for a body that
/// takes longer.
const TIMEOUT: Duration = Duration::from_secs(10);

/// The API server accepts no request over 3 MiB, so no object is bigger; the fourth MiB is for the envelope around it.
pub(crate) const LIMIT: usize = 4 << 20;
/// A body up to this size waits for no other body.
const USUAL: usize = 64 << 10;
/// The memory for larger bodies.
const MEMORY: usize = 32 << 20;
/// The bytes that one permit stands for.
const UNIT: usize = 1 << 10;

/// A body and the permit for its memory, which is released when the body is dropped.
#[derive(Debug)]
pub(crate) struct Body {
    pub(crate) bytes: Vec<u8>,
    _permit: Option<OwnedSemaphorePermit>,
}

impl AsRef<[u8]> for Body {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Body {
    /// The body of the response, which keeps the memory of the request reserved until the client has received the response.
    pub(crate) fn answered(self, bytes: Vec<u8>) -> Bytes {
        Bytes::from_owner(Self { bytes, ..self })
    }
}

/// Reads the whole body as soon as there is memory for its size.
pub(crate) async fn read(request: Request, memory: &BodyMemory) -> Result<Body, RequestError> {
    check_type(&request)?;
    let size = request.body().size_hint().exact();
    let size = size.and_then(|size| usize::try_from(size).ok());
    if size.is_some_and(|size| size > LIMIT) {
        return Err(RequestError::TooLarge(LIMIT));
    }
    let read = collected(request.into_body(), size, memory);
    let body = tokio::time::timeout(TIMEOUT, read).await;
    let body = body.map_err(|_| RequestError::TooSlow)??;
    if body.bytes.is_empty() {
        Err(RequestError::EmptyBody)
    } else {
        Ok(body)
    }
}

/// Each piece is copied, because a list of many small pieces would need much more memory than their bytes.
async fn collected(
    body: axum::body::Body,
    size: Option<usize>,
    memory: &BodyMemory,
) -> Result<Body, RequestError> {
    let (mut bytes, mut permit) = (Vec::with_capacity(size.unwrap_or_default().min(USUAL)), None);
    let mut pieces = body.into_data_stream();
    while let Some(piece) = pieces.next().await {
        let piece = piece.map_err(|_| RequestError::CutOff)?;
        let length = bytes.len() + piece.len();
        if length > LIMIT {
            return Err(RequestError::TooLarge(LIMIT));
        }
        if length > USUAL && permit.is_none() {
            permit = memory.reserve(size).await;
            bytes.reserve_exact(size.unwrap_or_default().saturating_sub(bytes.len()));
        }
        bytes.extend_from_slice(&piece);
    }
    Ok(Body {
        bytes,
        _permit: permit,
    })
}

fn check_type(request: &Request) -> Result<(), RequestError> {
    let value = request.headers().get(CONTENT_TYPE);
    let json = value.and_then(|v| v.to_str().ok()).is_some_and(is_json);
    if json {
        Ok(())
    } else {
        Err(RequestError::WrongType)
    }
}

fn is_json(content_type: &str) -> bool {
    let essence = content_type.split(';').next().unwrap_or_default();
    essence.trim().eq_ignore_ascii_case("application/json")
}

/// The memory for the large bodies that are read and decided at the same time.
#[derive(Clone, Debug)]
pub(crate) struct BodyMemory(Arc<Semaphore>);

impl Default for BodyMemory {
    fn default() -> Self {
        Self(Arc::new(Semaphore::new(MEMORY / UNIT)))
    }
}

impl BodyMemory {
    /// Reserves memory for a body of this size if the body is large, and waits if there is less. A body of unknown size reserves memory
    /// for the largest body.
    pub(crate) async fn reserve(&self, size: Option<usize>) -> Option<OwnedSemaphorePermit> {
        let size = size.unwrap_or(LIMIT).min(LIMIT);
        if size <= USUAL {
            return None;
        }
        let units = u32::try_from(size.div_ceil(UNIT)).ok()?;
        self.0.clone().acquire_many_owned(units).await.ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::body::Body as Sent;
    use futures::FutureExt;

    async fn read(request: Request) -> Result<Vec<u8>, RequestError> {
        super::read(request, &BodyMemory::default())
            .await
            .map(|body| body.bytes)
    }

    fn request(content_type: &str, body: Sent) -> Request {
        Request::builder()
            .header(CONTENT_TYPE, content_type)
            .body(body)
            .unwrap()
    }

    #[tokio::test]
    async fn a_json_content_type_with_parameters_is_accepted() {
        let read = read(request("Application/JSON; charset=utf-8", Sent::from("{}"))).await;
        assert_eq!(read.unwrap(), b"{}");
    }

    #[tokio::test]
    async fn a_body_of_another_content_type_is_rejected() {
        for wrong in [
            "text/plain",
            "application/jsonp",
            "application/vnd.kubernetes.protobuf",
            "",
        ] {
            let error = read(request(wrong, Sent::from("{}"))).await.unwrap_err();
            assert!(matches!(error, RequestError::WrongType), "{wrong}: {error}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_body_that_never_ends_times_out() {
        let endless = Sent::from_stream(futures::stream::pending::<Result<Bytes, std::io::Error>>());
        let error = read(request("application/json", endless)).await.unwrap_err();
        assert!(matches!(error, RequestError::TooSlow), "{error}");
    }

    #[tokio::test]
    async fn a_broken_connection_is_distinguished_from_a_body_that_is_too_large() {
        let broken = futures::stream::once(async { Err::<Bytes, _>(std::io::Error::other("reset")) });
        let error = read(request("application/json", Sent::from_stream(broken)))
            .await
            .unwrap_err();
        assert!(matches!(error, RequestError::CutOff), "{error}");
    }

    #[tokio::test]
    async fn a_body_of_which_nothing_arrives_reserves_no_memory() {
        let memory = BodyMemory::default();
        let stalled = || {
            let endless = Sent::from_stream(futures::stream::pending::<Result<Bytes, std::io::Error>>());
            Box::pin(super::read(request("application/json", endless), &memory))
        };
        let mut stalled: Vec<_> = (0..8).map(|_| stalled()).collect();
        for read in &mut stalled {
            assert!(read.now_or_never().is_none());
        }
        assert!(memory.reserve(None).now_or_never().is_some());
    }

    #[tokio::test]
    async fn a_large_body_waits_for_memory() {
        let memory = BodyMemory::default();
        let taken: Vec<_> = (0..8).map(|_| memory.reserve(None).now_or_never()).collect();
        let read = || {
            let large = Sent::from(vec![b' '; USUAL + 1]);
            super::read(request("application/json", large), &memory)
        };
        assert!(read().now_or_never().is_none());
        drop(taken);
        assert!(read().now_or_never().is_some());
    }

    #[test]
    fn a_body_that_declares_too_many_bytes_is_rejected_at_once() {
        let memory = BodyMemory::default();
        let _taken: Vec<_> = (0..8).map(|_| memory.reserve(None).now_or_never()).collect();
        let large = Sent::from(vec![b' '; LIMIT + 1]);
        let read = super::read(request("application/json", large), &memory).now_or_never();
        let error = read.expect("no wait").unwrap_err();
        assert!(matches!(error, RequestError::TooLarge(_)), "{error}");
    }

    #[test]
    fn a_response_that_a_client_does_not_read_keeps_the_memory_of_its_request() {
        let memory = BodyMemory::default();
        let unread = || {
            let permit = memory.reserve(None).now_or_never().unwrap();
            let request = Body {
                bytes: vec![1],
                _permit: permit,
            };
            request.answered(vec![2])
        };
        let unread: Vec<_> = (0..8).map(|_| unread()).collect();
        assert!(unread.iter().all(|response| response[..] == [2]));
        assert!(memory.reserve(Some(USUAL + 1)).now_or_never().is_none());
        drop(unread);
        assert!(memory.reserve(None).now_or_never().is_some());
    }

    #[test]
    fn a_body_of_the_usual_size_does_not_wait_for_large_bodies() {
        let memory = BodyMemory::default();
        let taken: Vec<_> = (0..8)
            .map(|_| memory.reserve(None).now_or_never().unwrap())
            .collect();
        assert!(memory.reserve(Some(USUAL + 1)).now_or_never().is_none());
        assert!(memory.reserve(Some(USUAL)).now_or_never().unwrap().is_none());
        drop(taken);
        assert!(memory.reserve(Some(LIMIT * 2)).now_or_never().is_some());
    }
}
