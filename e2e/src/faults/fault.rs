//! What may befall a request.

use std::time::Duration;

use bytes::Bytes;
use http::{
    Response, StatusCode,
    header::{CONTENT_TYPE, RETRY_AFTER},
};

use super::{Asked, gate::Hold, kubernetes};

/// What befalls a request. Composed by making several rules.
#[derive(Debug, Clone)]
pub enum Fault {
    /// Before it is sent to the server.
    Before(Act),
    /// When the server has answered, before the client hears of it.
    After(Act),
    /// While the body of the answer flows.
    Body(Flow),
    /// So many bytes of the request's own body are sent, then both connections break.
    CutUpload(usize),
}

/// What is done to a request, or to its answer.
#[derive(Debug, Clone)]
pub enum Act {
    /// The client's connection breaks.
    Break,
    /// The client's connection falls silent, without a FIN.
    Silence,
    /// It waits this long.
    Delay(Duration),
    /// The client gets this instead.
    Reply(Reply),
    /// The client is told that what it knows is too old, as Kubernetes would say it.
    Expire,
    /// It waits at a [`super::Gate`].
    #[doc(hidden)]
    Hold(Hold),
}

/// What is done to the body of an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Flow {
    /// After so many bytes the connection breaks.
    Cut(usize),
    /// After so many bytes the connection falls silent, without a FIN.
    Stall(usize),
    /// So many bytes a second.
    Trickle(usize),
}

impl Fault {
    /// `drop-req`: it never arrives at the server; the client's connection breaks.
    pub fn drop_request() -> Self {
        Self::Before(Act::Break)
    }

    /// `drop-resp`: the server has applied it and answered; the client's connection breaks before the answer.
    pub fn drop_answer() -> Self {
        Self::After(Act::Break)
    }

    /// It never arrives; the client gets this status, with a `Status` object as Kubernetes sends it.
    pub fn status(code: u16) -> Self {
        Self::Before(Act::Reply(Reply::status(code)))
    }

    /// It never arrives; 429 with `Retry-After` in seconds.
    pub fn throttled(retry_after: u32) -> Self {
        Self::Before(Act::Reply(Reply::status(429).retry_after(retry_after)))
    }

    /// It never arrives; the client gets this instead.
    pub fn reply(reply: Reply) -> Self {
        Self::Before(Act::Reply(reply))
    }

    /// The server has applied it and answered; the client gets this instead.
    pub fn reply_applied(reply: Reply) -> Self {
        Self::After(Act::Reply(reply))
    }

    /// It waits this long before it is sent.
    pub fn slow(delay: Duration) -> Self {
        Self::Before(Act::Delay(delay))
    }

    /// Its answer waits this long.
    pub fn slow_answer(delay: Duration) -> Self {
        Self::After(Act::Delay(delay))
    }

    /// The body of the answer flows with so many bytes a second.
    pub fn trickle(bytes_per_second: usize) -> Self {
        Self::Body(Flow::Trickle(bytes_per_second))
    }

    /// After so many bytes of the answer's body the connection breaks. (Of a large one that the client is slow to
    /// read, it may get fewer.)
    pub fn cut(bytes: usize) -> Self {
        Self::Body(Flow::Cut(bytes))
    }

    /// The server gets so many bytes of the request's body, then both connections break.
    pub fn cut_upload(bytes: usize) -> Self {
        Self::CutUpload(bytes)
    }

    /// After so many bytes of the answer's body the connection falls silent, without a FIN.
    pub fn stall(bytes: usize) -> Self {
        Self::Body(Flow::Stall(bytes))
    }

    /// It never arrives; the connection falls silent, without a FIN.
    pub fn blackhole() -> Self {
        Self::Before(Act::Silence)
    }

    /// The server has applied it and answered; the connection falls silent, without a FIN.
    pub fn blackhole_answer() -> Self {
        Self::After(Act::Silence)
    }

    /// A watch gets an `ERROR` event with code 410 and ends; a list, or its `continue`, gets 410.
    pub fn expired() -> Self {
        Self::Before(Act::Expire)
    }
}

/// An answer that no server gave.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reply {
    /// The HTTP code.
    pub code: StatusCode,
    /// Seconds for the header `Retry-After`.
    pub retry_after: Option<u32>,
    /// The header `Content-Type`.
    pub content_type: &'static str,
    /// The body.
    pub body: Bytes,
}

impl Reply {
    /// A `Status` object of Kubernetes with this code; 500 for a number that is no code.
    pub fn status(code: u16) -> Self {
        let code = StatusCode::from_u16(code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        Self { code, retry_after: None, content_type: "application/json", body: kubernetes::status(code) }
    }

    /// Any answer.
    pub fn new(code: StatusCode, content_type: &'static str, body: impl Into<Bytes>) -> Self {
        Self { code, retry_after: None, content_type, body: body.into() }
    }

    /// With `Retry-After` in seconds.
    #[must_use]
    pub fn retry_after(self, seconds: u32) -> Self {
        Self { retry_after: Some(seconds), ..self }
    }

    pub(super) fn expired(asked: &Asked) -> Self {
        if kubernetes::is_watch(asked) {
            Self::new(StatusCode::OK, "application/json", kubernetes::expired_event())
        } else {
            Self::status(410)
        }
    }

    pub(super) fn response(self) -> Response<Bytes> {
        let mut response = Response::new(self.body);
        *response.status_mut() = self.code;
        response.headers_mut().insert(CONTENT_TYPE, http::HeaderValue::from_static(self.content_type));
        if let Some(seconds) = self.retry_after {
            response.headers_mut().insert(RETRY_AFTER, seconds.into());
        }
        response
    }
}
