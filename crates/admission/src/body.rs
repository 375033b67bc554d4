//! Reads the body of a request: JSON only, with a limit on the size and on the time.

use crate::fault::Fault;
use crate::room::{LIMIT, Room};
use axum::body::{Bytes, HttpBody};
use axum::extract::rejection::BytesRejection;
use axum::extract::{FromRequest, Request};
use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use std::time::Duration;
use tokio::sync::OwnedSemaphorePermit;

/// The timeout in the webhook configurations. The API server starts its timeout earlier, so it no longer waits for a body that
/// takes longer.
const TIME: Duration = Duration::from_secs(10);

/// A body and the permit for its memory, which is released when the body is dropped.
#[derive(Debug)]
pub(crate) struct Body {
    pub(crate) bytes: Bytes,
    _room: Option<OwnedSemaphorePermit>,
}

/// Reads the whole body as soon as there is room for its size.
pub(crate) async fn read(request: Request, room: &Room) -> Result<Body, Fault> {
    check_type(&request)?;
    let size = request.body().size_hint().exact();
    let size = size.and_then(|size| usize::try_from(size).ok());
    let read = async {
        let taken = room.take(size).await;
        let bytes = Bytes::from_request(request, &()).await?;
        Ok(Body { bytes, _room: taken })
    };
    match tokio::time::timeout(TIME, read)
        .await
        .map_err(|_| Fault::TooSlow)?
    {
        Ok(body) if body.bytes.is_empty() => Err(Fault::EmptyBody),
        Ok(body) => Ok(body),
        Err::<_, BytesRejection>(rejection) if rejection.status() == StatusCode::PAYLOAD_TOO_LARGE => {
            Err(Fault::TooLarge(LIMIT))
        }
        Err(_) => Err(Fault::CutOff),
    }
}

fn check_type(request: &Request) -> Result<(), Fault> {
    let value = request.headers().get(CONTENT_TYPE);
    let json = value.and_then(|v| v.to_str().ok()).is_some_and(is_json);
    if json { Ok(()) } else { Err(Fault::WrongType) }
}

fn is_json(content_type: &str) -> bool {
    let essence = content_type.split(';').next().unwrap_or_default();
    essence.trim().eq_ignore_ascii_case("application/json")
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::body::Body as Sent;

    async fn read(request: Request) -> Result<Bytes, Fault> {
        super::read(request, &Room::default())
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
    async fn json_with_parameters_is_json() {
        let read = read(request("Application/JSON; charset=utf-8", Sent::from("{}"))).await;
        assert_eq!(read.unwrap(), "{}");
    }

    #[tokio::test]
    async fn other_types_are_refused() {
        for wrong in [
            "text/plain",
            "application/jsonp",
            "application/vnd.kubernetes.protobuf",
            "",
        ] {
            let fault = read(request(wrong, Sent::from("{}"))).await.unwrap_err();
            assert!(matches!(fault, Fault::WrongType), "{wrong}: {fault}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_body_that_never_ends_is_given_up() {
        let endless = Sent::from_stream(futures::stream::pending::<Result<Bytes, std::io::Error>>());
        let fault = read(request("application/json", endless)).await.unwrap_err();
        assert!(matches!(fault, Fault::TooSlow), "{fault}");
    }

    #[tokio::test]
    async fn a_connection_that_breaks_is_told_from_a_body_that_is_too_large() {
        let broken = futures::stream::once(async { Err::<Bytes, _>(std::io::Error::other("reset")) });
        let fault = read(request("application/json", Sent::from_stream(broken)))
            .await
            .unwrap_err();
        assert!(matches!(fault, Fault::CutOff), "{fault}");
    }
}
