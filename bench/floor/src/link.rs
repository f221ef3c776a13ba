//! The sockets to the Python loop. A frame is its length in four bytes, little-endian, and that many
//! bytes of JSON; an empty frame ends a stream.

use std::io;
use std::ops::{Deref, DerefMut};
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

/// A socket in use; it is free again when this is dropped.
pub(crate) struct Lease {
    link: Option<Link>,
    links: Links,
}

/// One socket to the loop.
pub(crate) struct Link {
    socket: UnixStream,
    unsent: BytesMut,
    unread: BytesMut,
    /// Whether an answer has been asked for and not been read to its end.
    owed: bool,
}

impl Links {
    pub(crate) async fn accept(listener: &UnixListener, count: usize) -> io::Result<Self> {
        let mut free = Vec::with_capacity(count);
        for _ in 0..count {
            let (socket, _) = listener.accept().await?;
            free.push(Link {
                socket,
                unsent: BytesMut::new(),
                unread: BytesMut::new(),
                owed: false,
            });
        }
        Ok(Self {
            free: Arc::new(Mutex::new(free)),
            count: Arc::new(Semaphore::new(count)),
        })
    }

    pub(crate) async fn take(&self) -> Lease {
        self.count
            .acquire()
            .await
            .expect("it is never closed")
            .forget();
        let link = self
            .free
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .pop();
        Lease {
            link: Some(link.expect("one is free for each permit")),
            links: self.clone(),
        }
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.links
            .free
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .extend(self.link.take());
        self.links.count.add_permits(1);
    }
}

impl Deref for Lease {
    type Target = Link;

    fn deref(&self) -> &Link {
        self.link.as_ref().expect("present until dropped")
    }
}

impl DerefMut for Lease {
    fn deref_mut(&mut self) -> &mut Link {
        self.link.as_mut().expect("present until dropped")
    }
}

impl Link {
    /// One round trip.
    pub(crate) async fn exchange(&mut self, body: &[u8]) -> io::Result<Bytes> {
        if self.owed {
            // A caller has left before its answer. The loop must get rid of it before it reads again.
            self.socket.write_all_buf(&mut self.unsent).await?;
            self.answer().await?;
        }
        self.send(body).await?;
        self.answer().await
    }

    async fn answer(&mut self) -> io::Result<Bytes> {
        loop {
            if let Some(frame) = self.frame() {
                self.owed = false;
                return Ok(frame);
            }
            self.read().await?;
        }
    }

    async fn send(&mut self, body: &[u8]) -> io::Result<()> {
        self.unsent.reserve(HEAD + body.len());
        self.unsent
            .put_u32_le(u32::try_from(body.len()).map_err(io::Error::other)?);
        self.unsent.put_slice(body);
        self.owed = true;
        self.socket.write_all_buf(&mut self.unsent).await
    }

    async fn read(&mut self) -> io::Result<()> {
        self.unread.reserve(READ);
        match self.socket.read_buf(&mut self.unread).await? {
            0 => Err(io::ErrorKind::UnexpectedEof.into()),
            _ => Ok(()),
        }
    }

    fn frame(&mut self) -> Option<Bytes> {
        let head = self.unread.first_chunk::<HEAD>()?;
        let length = u32::from_le_bytes(*head) as usize;
        if self.unread.len() < HEAD + length {
            self.unread.reserve(HEAD + length);
            return None;
        }
        self.unread.advance(HEAD);
        Some(self.unread.split_to(length).freeze())
    }

    /// What has come, as server-sent events in one piece.
    fn events(&mut self, index: &mut usize) -> Bytes {
        let mut events = BytesMut::with_capacity(2 * READ);
        while let Some(token) = self.frame() {
            if token.is_empty() {
                self.owed = false;
                break;
            }
            events.put_slice(b"event: output\ndata: {\"chunk\":");
            events.put_slice(&token);
            events.put_slice(format!(",\"index\":{index}}}\n\n").as_bytes());
            *index += 1;
        }
        events.freeze()
    }
}

/// The frames of one answer as server-sent events, as they come. The reader must stay to the end.
pub(crate) fn stream(lease: Lease, body: Bytes) -> impl Stream<Item = io::Result<Bytes>> {
    unfold(
        (lease, Some(body), 0),
        async |(mut lease, mut body, mut index)| {
            match body.take() {
                Some(body) => lease.send(&body).await.ok()?,
                None if !lease.owed => return None,
                None => {}
            }
            let read = lease.read().await;
            let events = read.map(|()| lease.events(&mut index));
            Some((events, (lease, body, index)))
        },
    )
}
