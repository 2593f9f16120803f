//! One plain HTTP GET, without a client library: the admin server is ours and on this machine.

use std::time::Duration;

use anyhow::{Context, Result};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    time::timeout,
};

const PATIENCE: Duration = Duration::from_secs(5);

/// The status code and the body.
pub(crate) async fn get(address: &str, path: &str) -> Result<(u16, String)> {
    timeout(PATIENCE, answer(address, path)).await.with_context(|| format!("http://{address}{path}"))?
}

async fn answer(address: &str, path: &str) -> Result<(u16, String)> {
    let mut stream = TcpStream::connect(address).await?;
    // HTTP/1.0: the body ends with the connection and is never in chunks.
    stream.write_all(format!("GET {path} HTTP/1.0\r\nHost: {address}\r\n\r\n").as_bytes()).await?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await?;
    let (head, body) = answer.split_once("\r\n\r\n").context("not an HTTP answer")?;
    let code = head.split(' ').nth(1).context("an HTTP answer without a status")?.parse()?;
    Ok((code, body.to_owned()))
}
