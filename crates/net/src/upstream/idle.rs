//! The HTTP/1.1 connections to one address that wait for their next request.
//!
//! One runtime waits for the events of a connection. If a task of another runtime used it, each event would
//! wake a thread. So each runtime uses its own connections first. Without one it takes over the connection of
//! another runtime before it opens one: a backend that serves few connections at a time, or has a thread for
//! each, gets no more of them than requests that ran at the same time.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::runtime::{Handle, Id};
use tokio::time::Instant;

use super::http1::Http1Connection;

/// The connections without a request.
pub(super) struct IdleConnections {
    limit: Duration,
    max_idle: usize,
    /// There are a few runtimes only, so a list is searched faster than a hash table.
    by_runtime: Mutex<Vec<(Id, OwnConnections)>>,
}

/// The connections of one runtime. The one that was used last is at the back and is used first.
type OwnConnections = VecDeque<IdleConnection>;

struct IdleConnection {
    connection: Box<Http1Connection>,
    since: Instant,
}

impl IdleConnections {
    /// Keeps at most `max_idle` connections, for at most `limit`.
    pub(super) fn new(limit: Duration, max_idle: usize) -> Self {
        Self {
            limit,
            max_idle,
            by_runtime: Mutex::default(),
        }
    }

    /// An open connection for the runtime of the caller: one of its own, or else one of another runtime.
    pub(super) fn take(&self) -> Option<Box<Http1Connection>> {
        let runtime = Handle::current().id();
        self.take_of(runtime)
            .or_else(|| self.take_over_for(runtime))
    }

    /// An open connection of a runtime. If there is none, its list is empty then.
    fn take_of(&self, runtime: Id) -> Option<Box<Http1Connection>> {
        loop {
            let IdleConnection {
                mut connection,
                since,
            } = self.change(runtime, VecDeque::pop_back)?;
            if since.elapsed() >= self.limit {
                // All others have been idle for longer.
                drop(self.change(runtime, std::mem::take));
                return None;
            }
            if connection.is_idle() {
                return Some(connection);
            }
        }
    }

    /// An open connection of the other runtime that has most of them; it moves to this one.
    fn take_over_for(&self, runtime: Id) -> Option<Box<Http1Connection>> {
        loop {
            let other = self
                .by_runtime()
                .iter()
                .filter(|(id, connections)| *id != runtime && !connections.is_empty())
                .max_by_key(|(_, connections)| connections.len())
                .map(|(id, _)| *id)?;
            if let Some(mut connection) = self.take_of(other) {
                connection.move_here();
                return Some(connection);
            }
        }
    }

    /// Keeps a connection for the next request, or closes it.
    pub(super) fn keep(&self, mut connection: Box<Http1Connection>) {
        if !connection.is_idle() {
            return;
        }
        let (runtime, since) = (connection.runtime(), Instant::now());
        let surplus = {
            let mut by_runtime = self.by_runtime();
            connections_of(&mut by_runtime, runtime)
                .push_back(IdleConnection { connection, since });
            let kept: usize = by_runtime.iter().map(|(_, own)| own.len()).sum();
            (kept > self.max_idle).then(|| connections_of(&mut by_runtime, runtime).pop_front())
        };
        drop(surplus);
    }

    /// Closes the connections that have been idle for too long. Returns whether there are no others.
    pub(super) fn sweep(&self) -> bool {
        let mut expired = Vec::new();
        let is_empty = {
            let mut by_runtime = self.by_runtime();
            by_runtime.retain_mut(|(_, own)| {
                while own
                    .front()
                    .is_some_and(|first| first.since.elapsed() >= self.limit)
                {
                    expired.extend(own.pop_front());
                }
                !own.is_empty()
            });
            by_runtime.is_empty()
        };
        drop(expired);
        is_empty
    }

    /// Changes the connections of a runtime. Connections are closed outside of the lock, by the caller.
    fn change<T>(&self, runtime: Id, change: impl FnOnce(&mut OwnConnections) -> T) -> T {
        change(connections_of(&mut self.by_runtime(), runtime))
    }

    fn by_runtime(&self) -> MutexGuard<'_, Vec<(Id, OwnConnections)>> {
        self.by_runtime
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

fn connections_of(by_runtime: &mut Vec<(Id, OwnConnections)>, runtime: Id) -> &mut OwnConnections {
    let index = match by_runtime.iter().position(|(id, _)| *id == runtime) {
        Some(index) => index,
        None => {
            by_runtime.push((runtime, OwnConnections::new()));
            by_runtime.len() - 1
        }
    };
    &mut by_runtime[index].1
}
