//! A guard for HTTP services, as `tower` layers.
//!
//! The server's [`FenceLayer`] reads the header `Fencing-Token` and a resource from each request and refuses
//! a stale token. It keeps the tokens in a [`Gate`](super::Gate), so on its own it suits a service that keeps
//! its own state. The client's [`TokenLayer`] sets the header. Other clients set it by hand: a
//! [`FencingToken`](crate::FencingToken) converts into a header value.
//!
//! ```
//! # #[tokio::main] async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! use std::{convert::Infallible, sync::Arc};
//! use http::{Request, Response, StatusCode};
//! use leasehold::{fence::{http::{FENCING_TOKEN, FenceLayer}, Gate}, FencingToken};
//! use tower::{Layer, ServiceExt};
//!
//! let token = FencingToken::new(34)?; // lease.token()
//! let paused = FencingToken::new(33)?; // of a holder whose lease was lost meanwhile
//!
//! let layer = FenceLayer::by_path(Arc::new(Gate::new()));
//! let service = layer.layer(tower::service_fn(async |_: Request<String>| {
//!     Ok::<_, Infallible>(Response::new(String::from("written")))
//! }));
//! let request = |token| Request::put("/account/7").header(FENCING_TOKEN, token).body(String::new());
//! let response = service.clone().oneshot(request(token)?).await?;
//! assert_eq!(response.status(), StatusCode::OK);
//! let response = service.oneshot(request(paused)?).await?;
//! assert_eq!(response.status(), StatusCode::CONFLICT);
//! # Ok(()) }
//! ```
//!
//! # The header
//!
//! `Fencing-Token: 34`, once, in plain digits. It is not an Integer of Structured Fields (RFC 9651): those
//! have at most 15 digits, and a token can have 16.
//!
//! # Authentication comes first
//!
//! The gate believes every token that it sees. A client that sends the greatest token, 2^53-1, for a resource
//! blocks that resource for every holder. A client that sends that token for many made-up resources fills the
//! gate's table: the [floor](super::Gate#capacity-and-eviction) rises, and the gate blocks every resource. So
//! authenticate outside of the layer, and let each client write only to resources that it has a right to. Put
//! the layer on the routes that write, not around the whole service.
//!
//! If the inner service answers 401, 403, 404, 405 or 410, the layer assumes that the request was not carried
//! out. If the gate did not remember the resource before, it does not remember it for this request, and the
//! floor does not rise to its token. A resource that it remembers keeps the greatest token that it has seen.
//! A handler that gives one of these answers must not have written. With
//! [`check_only`](FenceLayer::check_only) every token counts, because the layer does not wait for the answer.
//!
//! # Responses
//!
//! A refusal is a problem document of RFC 9457, `application/problem+json`:
//!
//! | status | type | when |
//! |---|---|---|
//! | 409 | `urn:leasehold:stale-token` | a greater token was seen; members `resource`, `offered`, `highest` |
//! | 428 | `urn:leasehold:token-required` | the request has no token |
//! | 400 | `urn:leasehold:bad-request` | the token is malformed or given more than once; the resource is
//! empty or too long |
//! | 503 | `urn:leasehold:overloaded` | [too many](super::Gate::MAX_WAITING) writes wait for the resource, or
//! the gate is [full](super::Gate::with_capacity) of resources that are being written to; with `Retry-After:
//! 1` |
//!
//! [`refusal`] turns them back into an [`Error`](crate::Error).
//!
//! ## Why 409 and not 412
//!
//! 412 Precondition Failed (RFC 9110, 15.5.13) answers `If-Match` and similar headers, a condition that the
//! client chose. It means: fetch the current validator and try again. Clients and libraries do so by
//! themselves. A holder with a stale token must *not* try again: its lease is over. Also, a service behind
//! the layer may use `If-Match` itself, and its 412 would look the same.
//!
//! 409 Conflict (15.5.10) fits: the request conflicts with the state of the resource, which a newer holder
//! has. Kubernetes likewise answers 409 if a `resourceVersion` is out of date. There is precedent for 412
//! too: Azure's blob storage answers it to a wrong lease ID. 409 may also mean other things, so check the
//! problem's `type`, not only the status.
//!
//! A *missing* token is 428 Precondition Required (RFC 6585), which exists to keep clients from writing
//! without a precondition.
//!
//! # How atomic it is
//!
//! By default the layer holds the resource from the check until the inner service's future completes. A newer
//! request waits for an older one in progress. An older one that waits is refused as soon as a newer one
//! arrives. So a handler is guarded if it has written by the time it returns. Work that goes on after that is
//! *not* guarded:
//!
//! - tasks that the handler spawned and did not await
//! - `spawn_blocking` work of a canceled request; a server drops the future when the client disconnects
//! - writes in the body's stream
//! - a statement that a database is still executing when the future is dropped
//!
//! If the state is in a store, or if several instances of a service share it, guard it at the store: the gate
//! is in the memory of one process.
//!
//! An older holder that is slow, or that stalls while it sends its body, delays the newer one. Put a timeout
//! *inside* of this layer: it drops the inner future, and the next request goes on.
//!
//! With [`check_only`](FenceLayer::check_only) the layer holds nothing. It checks each request on arrival,
//! and an older request that passed can write *after* a newer one. Use it for services that check again at
//! the write and want to refuse early.

mod body;
mod layer;
mod problem;
mod token;

pub use body::FenceBody;
pub use layer::{FenceFuture, FenceLayer, Fenced, written_path};
pub use problem::refusal;
pub use token::{SetToken, TokenLayer};

use ::http::header::HeaderName;

/// The name of the header, `Fencing-Token`.
pub const FENCING_TOKEN: HeaderName = HeaderName::from_static("fencing-token");
