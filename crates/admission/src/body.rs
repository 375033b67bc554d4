//! Reads the body of a request: JSON only, with a limit on the size, on the time, and on the memory of all bodies together.
//!
//! A replica may use 256 MiB. A review usually has a few ten KiB, but may have 4 MiB. A client that sends bodies and does not end
//! them must use up neither the memory nor the part of the memory that is for reviews of the usual size. A decoded object reserves no memory:
//! the decoder keeps only the fields that a rule reads (`placement::bounded`), and the process has one thread.

use crate::review::RequestError;
use axum::body::{Bytes, HttpBody};
use axum::extract::rejection::BytesRejection;
use axum::extract::{FromRequest, Request};
use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// The timeout in the webhook configurations. The API server starts its timeout earlier, so it no longer waits for a body that
/// takes longer.
const TIMEOUT: Duration = Duration::from_secs(10);

/// The API server accepts no request over 3 MiB, so no object is bigger; the fourth MiB is for the envelope around it.
pub(crate) const LIMIT: usize = 4 << 20;
/// A body up to this size waits only for other bodies up to this size.
const USUAL: usize = 64 << 10;
/// The memory for bodies up to this size, and also the memory for larger bodies.
const MEMORY: usize = 32 << 20;
/// The bytes that one permit stands for.
const UNIT: usize = 1 << 10;

/// A body and the permit for its memory, which is released when the body is dropped.
#[derive(Debug)]
pub(crate) struct Body {
    pub(crate) bytes: Bytes,
    _permit: Option<OwnedSemaphorePermit>,
}

/// Reads the whole body as soon as there is memory for its size.
pub(crate) async fn read(request: Request, memory: &BodyMemory) -> Result<Body, RequestError> {
    check_type(&request)?;
    let size = request.body().size_hint().exact();
    let size = size.and_then(|size| usize::try_from(size).ok());
    let read = async {
        let permit = memory.reserve(size).await;
        let bytes = Bytes::from_request(request, &()).await?;
        Ok(Body {
            bytes,
            _permit: permit,
        })
    };
    match tokio::time::timeout(TIMEOUT, read)
        .await
        .map_err(|_| RequestError::TooSlow)?
    {
        Ok(body) if body.bytes.is_empty() => Err(RequestError::EmptyBody),
        Ok(body) => Ok(body),
        Err::<_, BytesRejection>(rejection) if rejection.status() == StatusCode::PAYLOAD_TOO_LARGE => {
            Err(RequestError::TooLarge(LIMIT))
        }
        Err(_) => Err(RequestError::CutOff),
    }
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

/// The memory for the bodies that are read and decided at the same time.
#[derive(Clone, Debug)]
pub(crate) struct BodyMemory {
    usual: Arc<Semaphore>,
    large: Arc<Semaphore>,
}

impl Default for BodyMemory {
    fn default() -> Self {
        let memory = || Arc::new(Semaphore::new(MEMORY / UNIT));
        Self {
            usual: memory(),
            large: memory(),
        }
    }
}

impl BodyMemory {
    /// Reserves memory for a body of this size, and waits if there is less. A body of unknown size reserves memory for the largest body.
    pub(crate) async fn reserve(&self, size: Option<usize>) -> Option<OwnedSemaphorePermit> {
        let size = size.unwrap_or(LIMIT).min(LIMIT);
        let memory = if size <= USUAL { &self.usual } else { &self.large };
        let units = u32::try_from(size.div_ceil(UNIT)).ok()?;
        memory.clone().acquire_many_owned(units).await.ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::body::Body as Sent;
    use futures::FutureExt;

    async fn read(request: Request) -> Result<Bytes, RequestError> {
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
        assert_eq!(read.unwrap(), "{}");
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

    #[test]
    fn a_body_of_the_usual_size_does_not_wait_for_large_bodies() {
        let memory = BodyMemory::default();
        let taken: Vec<_> = (0..8)
            .map(|_| memory.reserve(None).now_or_never().unwrap())
            .collect();
        assert!(memory.reserve(Some(USUAL + 1)).now_or_never().is_none());
        let usual: Vec<_> = (0..512)
            .map(|_| memory.reserve(Some(USUAL)).now_or_never().unwrap())
            .collect();
        assert!(memory.reserve(Some(USUAL)).now_or_never().is_none());
        drop((taken, usual));
        assert!(memory.reserve(Some(LIMIT * 2)).now_or_never().is_some());
    }
}
