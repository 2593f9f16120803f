//! Bodies on their way: an answer's is passed on piece by piece, cut, stalled, slowed or finished early; a request's is
//! passed on or cut.

use std::{sync::Arc, time::Duration};

use anyhow::anyhow;
use bytes::Bytes;
use futures::stream;
use http_body_util::{BodyExt, StreamBody, combinators::UnsyncBoxBody};
use hyper::body::{Frame, Incoming};
use tokio::sync::watch;

use super::{exchange::UnderWay, fault::Flow, line::Line};

/// What is passed on.
pub(super) type Passing = UnsyncBoxBody<Bytes, Broken>;

/// The client's connection is to break, or the server's has broken.
#[derive(Debug)]
pub(super) struct Broken(pub(super) anyhow::Error);

impl std::fmt::Display for Broken {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:#}", self.0)
    }
}

impl std::error::Error for Broken {}

/// What was sent before a break must have left us: hyper sends it when the body has nothing more at the moment.
const TO_BE_SENT: Duration = Duration::from_millis(20);
/// Pieces of a slowed body a second.
const PIECES: usize = 20;

/// The body of a request as it is passed on: whole, or so many bytes of it.
pub(super) fn upload(body: Incoming, bytes: Option<usize>) -> Passing {
    let body = body.map_err(|error| Broken(error.into()));
    let Some(bytes) = bytes else { return body.boxed_unsync() };
    let frames = stream::try_unfold((body, bytes), async |(mut body, left)| {
        let frame = if left == 0 { None } else { body.frame().await };
        let Some(frame) = frame else {
            tokio::time::sleep(TO_BE_SENT).await;
            return Err(Broken(anyhow!("cut")));
        };
        let mut data = frame?.into_data().unwrap_or_default();
        data.truncate(left);
        let left = left - data.len();
        Ok(Some((Frame::data(data), (body, left))))
    });
    StreamBody::new(frames).boxed_unsync()
}

struct Passage {
    body: Incoming,
    line: Arc<Line>,
    /// Where it ends, and whether silently.
    end: Option<(usize, bool)>,
    pace: Option<usize>,
    finish: watch::Receiver<Option<Bytes>>,
    rest: Bytes,
    at_line_end: bool,
    finished: bool,
    _under_way: UnderWay,
}

/// The body as it is passed on.
pub(super) fn passing(
    body: Incoming,
    line: Arc<Line>,
    flows: &[Flow],
    finish: watch::Receiver<Option<Bytes>>,
    under_way: UnderWay,
) -> Passing {
    let end = flows.iter().filter_map(|flow| match flow {
        Flow::Cut(bytes) => Some((*bytes, false)),
        Flow::Stall(bytes) => Some((*bytes, true)),
        Flow::Trickle(_) => None,
    });
    let pace = flows.iter().filter_map(|flow| match flow {
        Flow::Trickle(bytes) => Some(*bytes),
        _ => None,
    });
    let passage = Passage {
        body,
        line,
        end: end.min(),
        pace: pace.min(),
        finish,
        rest: Bytes::new(),
        at_line_end: true,
        finished: false,
        _under_way: under_way,
    };
    let frames = stream::try_unfold(passage, async |mut passage| {
        let frame = passage.next().await?;
        Ok(frame.map(|frame| (frame, passage)))
    });
    StreamBody::new(frames).boxed_unsync()
}

impl Passage {
    async fn next(&mut self) -> Result<Option<Frame<Bytes>>, Broken> {
        if self.finished {
            return Ok(None);
        }
        if let Some((0, silently)) = self.end {
            tokio::time::sleep(TO_BE_SENT).await;
            if silently {
                self.line.fall_silent().await;
            }
            return Err(Broken(anyhow!("cut")));
        }
        if self.rest.is_empty() {
            let frame = tokio::select! {
                biased;
                // Between two events of a watch, never within one.
                Ok(last) = self.finish.wait_for(Option::is_some), if self.at_line_end => {
                    self.finished = true;
                    return Ok(last.clone().map(Frame::data));
                }
                frame = self.body.frame() => frame,
            };
            let Some(frame) = frame else { return Ok(None) };
            match frame.map_err(|error| Broken(error.into()))?.into_data() {
                Ok(data) => self.rest = data,
                Err(trailers) => return Ok(Some(trailers)),
            }
        }
        let most = self.end.map_or(usize::MAX, |(left, _)| left);
        let piece = self.pace.map_or(usize::MAX, |pace| (pace / PIECES).max(1));
        let data = self.rest.split_to(self.rest.len().min(most).min(piece));
        if let Some((left, _)) = &mut self.end {
            *left -= data.len();
        }
        if let Some(pace) = self.pace {
            let bytes = u32::try_from(data.len()).unwrap_or(u32::MAX);
            tokio::time::sleep(
                Duration::from_secs(1) * bytes / u32::try_from(pace.max(1)).unwrap_or(u32::MAX),
            )
            .await;
        }
        self.at_line_end = data.last().is_none_or(|last| *last == b'\n') && self.rest.is_empty();
        Ok(Some(Frame::data(data)))
    }
}
