//! Statements that one connection runs many times per second: they are prepared under a name, so that
//! PostgreSQL does not parse and plan them each time.
//!
//! PostgreSQL plans a prepared statement for the tables as they are at that time, so a statement is prepared
//! again every second. A statement that is run less often is not prepared.
//!
//! A pooler that lends its connections for one transaction loses the names, or mixes them up with those of
//! other processes. So a transaction with prepared statements is committed only if it runs in the session in
//! which they were prepared, and after the first sign of a pooler none is prepared any more.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use futures_util::future::{join, try_join_all};
use tokio_postgres::types::Type;
use tokio_postgres::{Client, SimpleQueryMessage, Statement};

use super::error::PgError;

/// How often statements are prepared again.
const PERIOD: Duration = Duration::from_secs(1);
/// How long a prepared statement is used. It is longer than the period, which ends only after a transaction.
const LIFETIME: Duration = Duration::from_secs(2);
/// A statement with fewer runs in a period is not prepared: that would cost more than it saves.
const MIN_RUNS: u32 = 32;

/// The repeated statements of one connection.
#[derive(Default)]
pub(super) struct RepeatedStatements {
    state: Mutex<Option<State>>,
}

struct State {
    /// By the address of the text: comparing the texts would take longer.
    statements: HashMap<usize, RepeatedStatement>,
    period_began: Instant,
    /// The session in which the statements are prepared.
    session: Option<SessionId>,
    /// Whether the current transaction has run a prepared statement.
    was_used: bool,
}

struct RepeatedStatement {
    sql: &'static str,
    types: Vec<Type>,
    runs: u32,
    prepared: Option<Statement>,
}

/// The process of PostgreSQL that runs a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct SessionId(i32);

impl SessionId {
    /// The session of a reply to statements whose last column is `pg_backend_pid()`.
    pub(super) fn of_reply(reply: &[SimpleQueryMessage]) -> Option<Self> {
        reply.iter().find_map(|message| match message {
            SimpleQueryMessage::Row(row) => row.get(row.len() - 1)?.parse().ok().map(Self),
            _ => None,
        })
    }
}

impl RepeatedStatements {
    /// Statements of a connection that has one user, which calls [`RepeatedStatements::prepare`] between its
    /// transactions. Without it, none is prepared.
    pub(super) fn enable(&self) {
        self.lock().get_or_insert_with(|| State {
            statements: HashMap::new(),
            period_began: Instant::now(),
            session: None,
            was_used: false,
        });
    }

    /// The prepared form of a statement, if there is one.
    pub(super) fn get(
        &self,
        sql: &'static str,
        types: impl Iterator<Item = Type>,
    ) -> Option<Statement> {
        let mut state = self.lock();
        let state = state.as_mut()?;
        let is_usable = state.period_began.elapsed() < LIFETIME;
        let statement = state
            .statements
            .entry(sql.as_ptr() as usize)
            .or_insert_with(|| RepeatedStatement {
                sql,
                types: types.collect(),
                runs: 0,
                prepared: None,
            });
        statement.runs += 1;
        let prepared = statement.prepared.clone().filter(|_| is_usable)?;
        state.was_used = true;
        Some(prepared)
    }

    /// Refuses the commit of a transaction that ran prepared statements in another session.
    pub(super) fn check_session(&self, session: Option<SessionId>) -> Result<(), PgError> {
        let mut state = self.lock();
        let Some(state) = state.as_mut() else {
            return Ok(());
        };
        if std::mem::take(&mut state.was_used) && state.session != session {
            return Err(PgError::OtherSession);
        }
        Ok(())
    }

    /// Prepares no more statements.
    pub(super) fn disable(&self) {
        *self.lock() = None;
    }

    /// Forgets the prepared statements.
    pub(super) fn forget(&self) {
        if let Some(state) = self.lock().as_mut() {
            state.session = None;
            state.was_used = false;
            state.statements.clear();
        }
    }

    /// At the end of a period, prepares the statements that were run often in it. No transaction may be open.
    pub(super) async fn prepare(&self, client: &Client) -> Result<(), PgError> {
        let Some(frequent) = self.end_period() else {
            return Ok(());
        };
        let begin = client.simple_query("BEGIN; SELECT pg_backend_pid()");
        let statements = frequent.iter().map(|(sql, types)| async move {
            let prepared = client.prepare_typed(sql, types).await?;
            Ok::<_, PgError>((sql.as_ptr() as usize, prepared))
        });
        let (begun, prepared) = join(begin, try_join_all(statements)).await;
        let session = SessionId::of_reply(&begun?);
        let prepared = prepared?;
        client.batch_execute("COMMIT").await?;
        if let Some(state) = self.lock().as_mut() {
            state.session = session;
            for (key, prepared) in prepared {
                if let Some(statement) = state.statements.get_mut(&key) {
                    statement.prepared = Some(prepared);
                }
            }
        }
        Ok(())
    }

    /// Begins the next period if this one is over. Returns the statements to prepare.
    fn end_period(&self) -> Option<Vec<(&'static str, Vec<Type>)>> {
        let mut state = self.lock();
        let state = state.as_mut()?;
        if state.period_began.elapsed() < PERIOD {
            return None;
        }
        state.period_began = Instant::now();
        // A statement that is dropped is deallocated in the database.
        state
            .statements
            .retain(|_, statement| statement.runs >= MIN_RUNS);
        let begin_period = |statement: &mut RepeatedStatement| {
            statement.runs = 0;
            statement.prepared = None;
            (statement.sql, statement.types.clone())
        };
        let frequent: Vec<_> = state.statements.values_mut().map(begin_period).collect();
        Some(frequent).filter(|frequent| !frequent.is_empty())
    }

    fn lock(&self) -> MutexGuard<'_, Option<State>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
