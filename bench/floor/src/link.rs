//! The sockets to the Python loop. A frame is its length in four bytes, little-endian, and that many
//! bytes of JSON; an empty frame ends a stream.

use std::io;
use std::sync::{Arc, Mutex, PoisonError};

use bytes::{Buf as _, BufMut as _, Bytes, BytesMut};
use futures_util::stream::{Stream, unfold};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::Semaphore;

const HEAD: usize = 4;
const READ: usize = 64 * 1024;

/// The sockets that are free.
#[derive(Clone)]
pub(crate) struct Links {
    free: Arc<Mutex<Vec<Link>>>,
    count: Arc<Semaphore>,
}

/// One socket to the loop.
pub(crate) struct Link {
    socket: UnixStream,
    buffer: BytesMut,
    /// The place of the next token in its stream.
    index: usize,
}

impl Links {
    pub(crate) async fn accept(listener: &UnixListener, count: usize) -> io::Result<Self> {
        let mut free = Vec::with_capacity(count);
        for _ in 0..count {
            let (socket, _) = listener.accept().await?;
            free.push(Link { socket, buffer: BytesMut::with_capacity(READ), index: 0 });
        }
        Ok(Self { free: Arc::new(Mutex::new(free)), count: Arc::new(Semaphore::new(count)) })
    }

    pub(crate) async fn take(&self) -> Link {
        self.count.acquire().await.expect("it is never closed").forget();
        self.free.lock().unwrap_or_else(PoisonError::into_inner).pop().expect("one is free for each permit")
    }

    pub(crate) fn give_back(&self, link: Link) {
        self.free.lock().unwrap_or_else(PoisonError::into_inner).push(link);
        self.count.add_permits(1);
    }
}

impl Link {
    /// One round trip.
    pub(crate) async fn exchange(&mut self, body: &[u8]) -> io::Result<Bytes> {
        self.send(body).await?;
        loop {
            if let Some(frame) = self.frame() {
                return Ok(frame);
            }
            self.read().await?;
        }
    }

    /// The frames of one answer as server-sent events; what came in one read leaves in one piece.
    pub(crate) fn tokens(self, links: Links, body: Bytes) -> impl Stream<Item = io::Result<Bytes>> {
        unfold(Some((self, links, Some(body))), async |state| {
            let (mut link, links, body) = state?;
            if let Some(body) = body {
                link.index = 0;
                if let Err(error) = link.send(&body).await {
                    return Some((Err(error), None));
                }
            }
            if let Err(error) = link.read().await {
                return Some((Err(error), None));
            }
            let mut events = BytesMut::with_capacity(2 * READ);
            while let Some(token) = link.frame() {
                if token.is_empty() {
                    links.give_back(link);
                    return Some((Ok(events.freeze()), None));
                }
                events.put_slice(b"event: output\ndata: {\"chunk\":");
                events.put_slice(&token);
                events.put_slice(format!(",\"index\":{}}}\n\n", link.index).as_bytes());
                link.index += 1;
            }
            Some((Ok(events.freeze()), Some((link, links, None))))
        })
    }

    async fn send(&mut self, body: &[u8]) -> io::Result<()> {
        let mut frame = Vec::with_capacity(HEAD + body.len());
        frame.put_u32_le(u32::try_from(body.len()).map_err(io::Error::other)?);
        frame.put_slice(body);
        self.socket.write_all(&frame).await
    }

    async fn read(&mut self) -> io::Result<()> {
        self.buffer.reserve(READ);
        match self.socket.read_buf(&mut self.buffer).await? {
            0 => Err(io::ErrorKind::UnexpectedEof.into()),
            _ => Ok(()),
        }
    }

    fn frame(&mut self) -> Option<Bytes> {
        let head = self.buffer.first_chunk::<HEAD>()?;
        let length = u32::from_le_bytes(*head) as usize;
        if self.buffer.len() < HEAD + length {
            self.buffer.reserve(HEAD + length);
            return None;
        }
        self.buffer.advance(HEAD);
        Some(self.buffer.split_to(length).freeze())
    }
}
