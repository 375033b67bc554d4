//! A request's body: of the right type, of a bounded size, within a bounded time.

use crate::fault::Fault;
use axum::body::Bytes;
use axum::extract::{FromRequest, Request};
use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use std::time::Duration;

/// The API server takes no request over 3 MiB, so no object is bigger; the fourth is for the envelope around it.
pub(crate) const LIMIT: usize = 4 << 20;

/// As long as our configurations let the API server wait for us, and it began sooner: nobody waits for who is slower.
const TIME: Duration = Duration::from_secs(10);

/// Reads the whole body, or says what is wrong with it.
pub(crate) async fn read(request: Request) -> Result<Bytes, Fault> {
    check_type(&request)?;
    let body = tokio::time::timeout(TIME, Bytes::from_request(request, &())).await;
    match body.map_err(|_| Fault::TooSlow)? {
        Ok(bytes) if bytes.is_empty() => Err(Fault::EmptyBody),
        Ok(bytes) => Ok(bytes),
        Err(rejection) if rejection.status() == StatusCode::PAYLOAD_TOO_LARGE => Err(Fault::TooLarge(LIMIT)),
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
    use axum::body::Body;

    fn request(content_type: &str, body: Body) -> Request {
        Request::builder()
            .header(CONTENT_TYPE, content_type)
            .body(body)
            .unwrap()
    }

    #[tokio::test]
    async fn json_with_parameters_is_json() {
        let read = read(request("Application/JSON; charset=utf-8", Body::from("{}"))).await;
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
            let fault = read(request(wrong, Body::from("{}"))).await.unwrap_err();
            assert!(matches!(fault, Fault::WrongType), "{wrong}: {fault}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_body_that_never_ends_is_given_up() {
        let endless = Body::from_stream(futures::stream::pending::<Result<Bytes, std::io::Error>>());
        let fault = read(request("application/json", endless)).await.unwrap_err();
        assert!(matches!(fault, Fault::TooSlow), "{fault}");
    }

    #[tokio::test]
    async fn a_connection_that_breaks_is_told_from_a_body_that_is_too_large() {
        let broken = futures::stream::once(async { Err::<Bytes, _>(std::io::Error::other("reset")) });
        let fault = read(request("application/json", Body::from_stream(broken)))
            .await
            .unwrap_err();
        assert!(matches!(fault, Fault::CutOff), "{fault}");
    }
}
