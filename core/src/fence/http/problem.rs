//! Refusals as problem documents (RFC 9457), in both directions.

use std::borrow::Cow;

use ::http::header::{CONTENT_TYPE, HeaderValue, RETRY_AFTER};
use ::http::{Response, StatusCode};
use leasehold_engine::{Error, ErrorKind, FencingToken};
use serde::{Deserialize, Serialize};

use super::FenceBody;

// RFC 9457 recommends absolute URIs for types. They need not be addresses.
const STALE: &str = "urn:leasehold:stale-token";
const REQUIRED: &str = "urn:leasehold:token-required";
const BAD: &str = "urn:leasehold:bad-request";
const OVERLOADED: &str = "urn:leasehold:overloaded";

#[derive(Serialize, Deserialize)]
pub(super) struct Problem<'a> {
    #[serde(rename = "type")]
    kind: Cow<'a, str>,
    #[serde(default)]
    title: Cow<'a, str>,
    status: u16,
    #[serde(default)]
    detail: String,
    #[serde(flatten)]
    stale: Option<Stale>,
}

#[derive(Serialize, Deserialize)]
struct Stale {
    resource: String,
    offered: FencingToken,
    highest: FencingToken,
}

impl Problem<'static> {
    pub(super) fn required() -> Self {
        let detail =
            "the request lacks the header Fencing-Token: set it to the token of your lease";
        Self::new(
            StatusCode::PRECONDITION_REQUIRED,
            REQUIRED,
            "No fencing token",
            detail,
        )
    }

    pub(super) fn bad(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, BAD, "Bad fencing token", detail)
    }

    fn new(
        status: StatusCode,
        kind: &'static str,
        title: &'static str,
        detail: impl Into<String>,
    ) -> Self {
        Self {
            kind: kind.into(),
            title: title.into(),
            status: status.as_u16(),
            detail: detail.into(),
            stale: None,
        }
    }
}

/// The refusal for an error of the gate.
impl From<Error> for Problem<'static> {
    fn from(error: Error) -> Self {
        let detail = error.to_string();
        let Some(stale) = error.stale_token() else {
            return match error.kind() {
                ErrorKind::Overloaded => Self::new(
                    StatusCode::SERVICE_UNAVAILABLE,
                    OVERLOADED,
                    "Too many writes",
                    detail,
                ),
                _ => Self::new(StatusCode::BAD_REQUEST, BAD, "Bad resource", detail),
            };
        };
        let mut problem = Self::new(StatusCode::CONFLICT, STALE, "Stale fencing token", detail);
        problem.stale = Some(Stale {
            resource: stale.resource.clone(),
            offered: stale.offered,
            highest: stale.highest,
        });
        problem
    }
}

impl<B> From<Problem<'_>> for Response<FenceBody<B>> {
    fn from(problem: Problem<'_>) -> Self {
        let text = serde_json::to_vec(&problem).expect("texts and numbers become JSON");
        let mut response = Response::new(FenceBody::problem(text.into()));
        *response.status_mut() =
            StatusCode::from_u16(problem.status).expect("it was made from a status");
        let headers = response.headers_mut();
        headers.insert(
            CONTENT_TYPE,
            HeaderValue::from_static("application/problem+json"),
        );
        if problem.kind == OVERLOADED {
            headers.insert(RETRY_AFTER, HeaderValue::from_static("1"));
        }
        response
    }
}

/// Turns a refusal of a [`FenceLayer`](super::FenceLayer) back into an error.
///
/// Returns `None` if the response is not a refusal. 409 gives [`StaleToken`](ErrorKind::StaleToken) with its
/// [details](Error::stale_token), 428 and 400 give [`Config`](ErrorKind::Config), 503 gives
/// [`Overloaded`](ErrorKind::Overloaded).
///
/// ```
/// use http::StatusCode;
///
/// let body = br#"{"type": "urn:leasehold:stale-token", "status": 409,
///     "resource": "/account/7", "offered": 33, "highest": 34}"#;
/// let error = leasehold::fence::http::refusal(StatusCode::CONFLICT, body).unwrap();
/// assert_eq!(error.stale_token().unwrap().highest.get(), 34);
///
/// let other = leasehold::fence::http::refusal(StatusCode::CONFLICT, b"no such user");
/// assert!(other.is_none());
/// ```
pub fn refusal(status: StatusCode, body: &[u8]) -> Option<Error> {
    // Do not parse the body of any other response: it may be large.
    let (kind, type_) = match status {
        StatusCode::CONFLICT => (ErrorKind::StaleToken, STALE),
        StatusCode::PRECONDITION_REQUIRED => (ErrorKind::Config, REQUIRED),
        StatusCode::BAD_REQUEST => (ErrorKind::Config, BAD),
        StatusCode::SERVICE_UNAVAILABLE => (ErrorKind::Overloaded, OVERLOADED),
        _ => return None,
    };
    let problem: Problem<'_> = serde_json::from_slice(body).ok()?;
    if problem.kind != type_ {
        return None;
    }
    match (kind, problem.stale) {
        (ErrorKind::StaleToken, Some(details)) => Some(Error::stale(
            &details.resource,
            details.offered,
            details.highest,
        )),
        (ErrorKind::StaleToken, None) => None,
        _ => Some(Error::new(kind, problem.detail)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ::http::HeaderMap;

    fn sent(problem: Problem<'static>) -> (StatusCode, HeaderMap, Vec<u8>) {
        let body = serde_json::to_vec(&problem).expect("it becomes JSON");
        let response = Response::<FenceBody<String>>::from(problem);
        (response.status(), response.headers().clone(), body)
    }

    /// Catches a response of the layer that `refusal` does not turn back into the error.
    #[test]
    fn every_refusal_is_read_back() {
        let token = |number| FencingToken::new(number).expect("it is a token");
        let error = Error::stale("a \"b\"", token(1), token(2));
        let (status, _, body) = sent(error.clone().into());
        assert_eq!(status, StatusCode::CONFLICT);
        let read = refusal(status, &body).expect("it is a refusal");
        assert_eq!(read.stale_token(), error.stale_token());

        let (status, headers, body) = sent(Error::new(ErrorKind::Overloaded, "full").into());
        assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE);
        assert_eq!(headers[RETRY_AFTER], "1");
        let read = refusal(status, &body).expect("it is a refusal");
        assert!(read.is_transient() && read.kind() == ErrorKind::Overloaded);

        for (problem, expected) in [(Problem::required(), 428), (Problem::bad("what"), 400)] {
            let (status, headers, body) = sent(problem);
            assert_eq!(status, expected);
            assert_eq!(headers[CONTENT_TYPE], "application/problem+json");
            let read = refusal(status, &body).expect("it is a refusal");
            assert_eq!(read.kind(), ErrorKind::Config);
        }
    }

    #[test]
    fn answers_of_others_are_not_refusals() {
        let stale = |members: &str| format!(r#"{{"type": "{STALE}", "status": 409{members}}}"#);
        for (status, body) in [
            (409, stale("")),
            (
                409,
                stale(r#", "resource": "a", "offered": 0, "highest": 1"#),
            ),
            (409, r#"{"type": "about:blank", "status": 409}"#.to_owned()),
            (400, stale("")),
            (
                412,
                stale(r#", "resource": "a", "offered": 1, "highest": 2"#),
            ),
            (409, String::new()),
        ] {
            let status = StatusCode::from_u16(status).expect("it is a status");
            assert!(
                refusal(status, body.as_bytes()).is_none(),
                "{body} was taken"
            );
        }
    }
}
