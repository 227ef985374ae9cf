//! The body of a response.

use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use pin_project::pin_project;

/// The body of the inner service's response, or of a refusal.
#[pin_project]
#[derive(Debug)]
pub struct FenceBody<B>(#[pin] Kind<B>);

#[pin_project(project = Projection)]
#[derive(Debug)]
enum Kind<B> {
    Inner(#[pin] B),
    Problem(Option<Bytes>),
}

impl<B> FenceBody<B> {
    pub(super) fn inner(body: B) -> Self {
        Self(Kind::Inner(body))
    }

    pub(super) fn problem(text: Bytes) -> Self {
        Self(Kind::Problem(Some(text)))
    }
}

impl<B: Body<Data = Bytes>> Body for FenceBody<B> {
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        match self.project().0.project() {
            Projection::Inner(body) => body.poll_frame(context),
            Projection::Problem(text) => Poll::Ready(text.take().map(|text| Ok(Frame::data(text)))),
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.0 {
            Kind::Inner(body) => body.is_end_stream(),
            Kind::Problem(text) => text.is_none(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.0 {
            Kind::Inner(body) => body.size_hint(),
            Kind::Problem(text) => {
                SizeHint::with_exact(text.as_ref().map_or(0, |text| text.len() as u64))
            }
        }
    }
}
