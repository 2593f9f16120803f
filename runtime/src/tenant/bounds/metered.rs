//! The body of an answer, counted and timed while it is read.

use std::{
    pin::Pin,
    task::{Context, Poll, ready},
    time::Duration,
};

use axum::body::Bytes;
use http_body::{Body, Frame, SizeHint};
use tokio::{
    sync::OwnedSemaphorePermit,
    time::{Instant, Sleep, sleep_until},
};
use tower::BoxError;

use super::super::weight;
use crate::client::TimedOut;

/// A watch that ended sooner was not one.
const BRIEF: Duration = Duration::from_millis(500);

/// The server sent more than is read.
#[derive(Debug, thiserror::Error)]
#[error("{0} is larger than kMetal reads")]
pub(in super::super) struct TooLarge(&'static str);

/// The server ended a watch that had hardly begun.
#[derive(Debug, thiserror::Error)]
#[error("the watch ended as soon as it had begun")]
struct TooBrief;

/// Time is up for a watch.
#[derive(Debug, thiserror::Error)]
#[error("the watch did not end when it was due")]
struct Overdue;

/// What is being counted.
enum Meter {
    Answer {
        left: usize,
        late: Option<TimedOut>,
        /// Given back with the last byte.
        _turn: Option<OwnedSemaphorePermit>,
    },
    Stream {
        began: Instant,
        /// Allowed to one event, and what is left of it for the present one.
        event: usize,
        event_left: usize,
        left: usize,
    },
}

/// See the module.
pub(in super::super) struct Metered<B> {
    inner: Pin<Box<B>>,
    deadline: Pin<Box<Sleep>>,
    meter: Meter,
}

impl<B> Metered<B> {
    /// An ordinary answer.
    pub(super) fn answer(
        inner: B,
        deadline: Instant,
        late: TimedOut,
        limit: usize,
        turn: Option<OwnedSemaphorePermit>,
    ) -> Self {
        let meter = Meter::Answer { left: limit, late: Some(late), _turn: turn };
        Self { inner: Box::pin(inner), deadline: Box::pin(sleep_until(deadline)), meter }
    }

    /// The events of a watch, one a line.
    pub(super) fn stream(inner: B, deadline: Instant, event: usize, all: usize) -> Self {
        let meter = Meter::Stream { began: Instant::now(), event, event_left: event, left: all };
        Self { inner: Box::pin(inner), deadline: Box::pin(sleep_until(deadline)), meter }
    }
}

impl Meter {
    fn count(&mut self, data: &[u8]) -> Result<(), TooLarge> {
        match self {
            Self::Answer { left, .. } => take(left, data).ok_or(TooLarge("the answer")),
            Self::Stream { event, event_left, left, .. } => {
                for (nth, line) in data.split(|byte| *byte == b'\n').enumerate() {
                    if nth > 0 {
                        *event_left = *event;
                    }
                    take(event_left, line).ok_or(TooLarge("an event of the watch"))?;
                }
                take(left, data).ok_or(TooLarge("what the watch brought"))
            }
        }
    }

    fn late(&mut self) -> BoxError {
        match self {
            Self::Answer { late, .. } => late.take().map_or_else(|| Overdue.into(), Into::into),
            Self::Stream { .. } => Overdue.into(),
        }
    }

    /// The end of the body, or its failure.
    fn end(&self, failure: Option<BoxError>) -> Option<BoxError> {
        match self {
            // Not the failure itself: a watcher takes an unexpected end for an ordinary one, and goes on at once.
            Self::Stream { began, .. } if began.elapsed() < BRIEF => Some(TooBrief.into()),
            _ => failure,
        }
    }
}

fn take(left: &mut usize, data: &[u8]) -> Option<()> {
    *left = left.checked_sub(weight::of_text(data))?;
    Some(())
}

impl<B> Body for Metered<B>
where
    B: Body<Data = Bytes>,
    B::Error: Into<BoxError>,
{
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let this = &mut *self;
        if this.deadline.as_mut().poll(cx).is_ready() {
            return Poll::Ready(Some(Err(this.meter.late())));
        }
        let outcome = match ready!(this.inner.as_mut().poll_frame(cx)) {
            Some(Ok(frame)) => match frame.data_ref().map(|data| this.meter.count(data)) {
                Some(Err(error)) => Some(Err(error.into())),
                _ => Some(Ok(frame)),
            },
            Some(Err(error)) => this.meter.end(Some(error.into())).map(Err),
            None => this.meter.end(None).map(Err),
        };
        Poll::Ready(outcome)
    }

    fn is_end_stream(&self) -> bool {
        // Never told before the end is reached: whether it is one depends on the time.
        matches!(self.meter, Meter::Answer { .. }) && self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}
