//! One connection of a client and its one connection to the server.
//!
//! Silence is made by no longer polling the client's side: the kernel still acknowledges what comes, nobody reads
//! it, nobody answers, nobody closes. That is what a firewall that forgot the connection looks like from inside.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use anyhow::{Result, anyhow};
use bytes::Bytes;
use http::{Request, Response};
use hyper::{
    body::Incoming,
    client::conn::http1::{self as client, SendRequest},
    server::conn::http1 as server,
    service::service_fn,
};
use hyper_util::rt::TokioIo;
use tokio::{
    net::{TcpListener, TcpStream},
    sync::{Mutex as AsyncMutex, Notify, watch},
    task::JoinSet,
};

use super::{
    Asked, Door, Select,
    body::Passing,
    exchange,
    state::State,
    tls::{Serving, Upstream},
};

/// How a connection is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Mood {
    Fine,
    Silent,
    Broken,
}

/// The exchange that is under way on a connection.
#[derive(Debug)]
struct Current {
    asked: Asked,
    finish: watch::Sender<Option<Bytes>>,
}

/// A connection.
#[derive(Debug)]
pub(super) struct Line {
    pub(super) state: Arc<State>,
    upstream: Upstream,
    mood: watch::Sender<Mood>,
    current: Mutex<Option<Current>>,
    sender: AsyncMutex<Option<SendRequest<Passing>>>,
    server_gone: Arc<Notify>,
}

impl Line {
    /// Whether such an exchange is under way on it.
    pub(super) fn is_busy_with(&self, select: &Select) -> bool {
        self.current().as_ref().is_some_and(|current| select.takes(&current.asked))
    }

    pub(super) fn is_silent(&self) -> bool {
        *self.mood.borrow() == Mood::Silent
    }

    /// Changes its mood; `false` if it was so already.
    pub(super) fn strike(&self, mood: Mood) -> bool {
        let new = |old: &mut Mood| *old != Mood::Broken && std::mem::replace(old, mood) != mood;
        self.mood.send_if_modified(new)
    }

    /// Ends the answer that is under way with these last bytes.
    pub(super) fn finish(&self, last: &Bytes) -> bool {
        let current = self.current();
        current.as_ref().is_some_and(|current| current.finish.send(Some(last.clone())).is_ok())
    }

    /// An exchange begins; what is received tells when its answer is to be finished.
    pub(super) fn begin(&self, asked: &Asked) -> watch::Receiver<Option<Bytes>> {
        let (finish, told) = watch::channel(None);
        *self.current() = Some(Current { asked: asked.clone(), finish });
        told
    }

    /// The exchange is over.
    pub(super) fn end(&self) {
        *self.current() = None;
    }

    /// Falls silent; returns when it is broken.
    pub(super) async fn fall_silent(&self) {
        self.strike(Mood::Silent);
        let _ = self.mood.subscribe().wait_for(|mood| *mood == Mood::Broken).await;
    }

    /// Asks the server, on this connection's own connection to it.
    pub(super) async fn ask(&self, request: Request<Passing>) -> Result<Response<Incoming>> {
        let mut slot = self.sender.lock().await;
        if slot.is_none() {
            let stream = TokioIo::new(self.upstream.connect().await?);
            let (sender, connection) = client::handshake(stream).await?;
            let gone = self.server_gone.clone();
            tokio::spawn(async move {
                let _ = connection.await;
                gone.notify_one();
            });
            *slot = Some(sender);
        }
        let sender = slot.as_mut().ok_or_else(|| anyhow!("no connection"))?;
        sender.ready().await?;
        Ok(sender.send_request(request).await?)
    }

    fn current(&self) -> MutexGuard<'_, Option<Current>> {
        self.current.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Serves all connections; when this is dropped, all of them break.
pub(super) async fn accept(
    listener: TcpListener,
    serving: Arc<Serving>,
    upstream: Upstream,
    state: Arc<State>,
) {
    let mut lines = JoinSet::new();
    loop {
        tokio::select! {
            Some(_) = lines.join_next() => {}
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => {
                    lines.spawn(receive(stream, serving.clone(), upstream.clone(), state.clone()));
                }
                // Out of file descriptors, most likely: the test will see it; others may close.
                Err(_) => tokio::time::sleep(Duration::from_millis(10)).await,
            },
        }
    }
}

async fn receive(stream: TcpStream, serving: Arc<Serving>, upstream: Upstream, state: Arc<State>) {
    let mut door = state.watch_door();
    let met = *door.borrow_and_update();
    match met {
        Door::Shut => return,
        Door::Silent => {
            let _ = door.wait_for(|door| *door != Door::Silent).await;
            return;
        }
        Door::Open => {}
    }
    let Ok(stream) = serving.receive(stream).await else { return };
    let line = Arc::new(Line {
        state: state.clone(),
        upstream,
        mood: watch::Sender::new(Mood::Fine),
        current: Mutex::default(),
        sender: AsyncMutex::default(),
        server_gone: Arc::default(),
    });
    state.connected(&line);
    let mut mood = line.mood.subscribe();
    let service = service_fn(|request| exchange::exchange(line.clone(), request));
    let mut builder = server::Builder::new();
    // The server's own headers pass.
    builder.auto_date_header(false);
    let mut connection = std::pin::pin!(builder.serve_connection(TokioIo::new(stream), service));
    loop {
        tokio::select! {
            biased;
            _ = mood.wait_for(|mood| *mood != Mood::Fine) => break,
            _ = connection.as_mut() => return,
            // What is under way is finished first.
            () = line.server_gone.notified() => connection.as_mut().graceful_shutdown(),
        }
    }
    // Silent: neither read nor written nor closed, until it is broken.
    let _ = mood.wait_for(|mood| *mood == Mood::Broken).await;
}
