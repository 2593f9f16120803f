//! One request and its answer on their way through the proxy.

use std::sync::Arc;

use anyhow::anyhow;
use bytes::Bytes;
use http::{Request, Response, header::TRANSFER_ENCODING};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;

use super::{
    Asked, Fault, Reply,
    body::{self, Broken, Passing},
    fault::Act,
    line::Line,
    state::Place,
};

/// How an exchange goes on after something was done to it.
enum Next {
    On,
    Instead(Reply),
}

/// Passes one request on and its answer back. An error breaks the client's connection.
pub(super) async fn exchange(
    line: Arc<Line>,
    request: Request<Incoming>,
) -> Result<Response<Passing>, Broken> {
    let asked = Asked::of(&request);
    let (place, faults) = line.state.arrive(&asked);
    let told = line.begin(&asked);
    let under_way = UnderWay(line.clone());

    // Here and not in the task below: while it waits to be sent, a client that goes away takes its request along.
    for fault in &faults {
        if let Fault::Before(act) = fault
            && let Next::Instead(reply) = befall(&line, &asked, act).await?
        {
            return Ok(instead(&line, place, reply));
        }
    }
    let (mut after, mut flows, mut uploaded) = (Vec::new(), Vec::new(), None);
    for fault in faults {
        match fault {
            Fault::Before(_) => {}
            Fault::After(act) => after.push(act),
            Fault::Body(flow) => flows.push(flow),
            Fault::CutUpload(bytes) => uploaded = Some(bytes),
        }
    }
    // From here on it is carried through, whether the client waits or not.
    let request = request.map(|body| body::upload(body, uploaded));
    let carried = tokio::spawn(carry(line.clone(), place, asked, request, after));
    match carried.await.map_err(|error| Broken(error.into()))?? {
        Carried::Instead(reply) => Ok(instead(&line, place, reply)),
        Carried::Answer(mut response) => {
            line.state.client_was_told(place, response.status().as_u16());
            // hyper says how it frames what it sends.
            response.headers_mut().remove(TRANSFER_ENCODING);
            Ok(response.map(|body| body::passing(body, line, &flows, told, under_way)))
        }
    }
}

/// What came of asking the server.
enum Carried {
    Answer(Response<Incoming>),
    Instead(Reply),
}

async fn carry(
    line: Arc<Line>,
    place: Place,
    asked: Asked,
    request: Request<Passing>,
    after: Vec<Act>,
) -> Result<Carried, Broken> {
    let response = line.ask(request).await.map_err(Broken)?;
    line.state.server_said(place, response.status().as_u16());
    for act in &after {
        if let Next::Instead(reply) = befall(&line, &asked, act).await? {
            return Ok(Carried::Instead(reply));
        }
    }
    Ok(Carried::Answer(response))
}

async fn befall(line: &Line, asked: &Asked, act: &Act) -> Result<Next, Broken> {
    match act {
        Act::Break => Err(Broken(anyhow!("planted"))),
        Act::Silence => {
            line.fall_silent().await;
            Err(Broken(anyhow!("planted")))
        }
        Act::Delay(delay) => {
            tokio::time::sleep(*delay).await;
            Ok(Next::On)
        }
        Act::Reply(reply) => Ok(Next::Instead(reply.clone())),
        Act::Expire => Ok(Next::Instead(Reply::expired(asked))),
        Act::Hold(hold) => {
            if hold.passed().await {
                Ok(Next::On)
            } else {
                Err(Broken(anyhow!("abandoned")))
            }
        }
    }
}

fn instead(line: &Line, place: Place, reply: Reply) -> Response<Passing> {
    line.state.client_was_told(place, reply.code.as_u16());
    reply.response().map(|body: Bytes| Full::new(body).map_err(|never| match never {}).boxed_unsync())
}

/// While this lives, the exchange is under way.
pub(super) struct UnderWay(Arc<Line>);

impl Drop for UnderWay {
    fn drop(&mut self) {
        self.0.end();
    }
}
