//! The ports, as calls of the writer and of the readers.

use async_trait::async_trait;
use bytes::Bytes;
use jiff::Timestamp;
use tidegate_core::record::{JobRecord, JobSpec, JobSummary, OutboxMessage, SettledMessage};
use tidegate_core::store::{
    Documents, Inserted, JobFilter, JobFinish, JobQuery, Page, Reopened, SendOutcome, Store,
    StoreError,
};
use tidegate_core::{Account, JobId};

use super::{SqliteStore, documents, jobs, list, outbox, summaries};

/// What a change writes besides what it carries, near enough.
const SMALL: usize = 512;

#[async_trait]
impl Store for SqliteStore {
    async fn insert(&self, spec: JobSpec) -> Result<Inserted, StoreError> {
        self.writer
            .change(SMALL + spec.input.len(), move |conn| {
                jobs::insert(conn, &spec)
            })
            .await
    }

    async fn replace(&self, spec: JobSpec) -> Result<Inserted, StoreError> {
        self.writer
            .change(SMALL + spec.input.len(), move |conn| {
                jobs::replace(conn, &spec)
            })
            .await
    }

    async fn begin(
        &self,
        account: &Account,
        id: &JobId,
        at: Timestamp,
    ) -> Result<Option<u32>, StoreError> {
        let (account, id) = (account.clone(), id.clone());
        self.writer
            .change(SMALL, move |conn| jobs::begin(conn, &account, &id, at))
            .await
    }

    async fn ask_cancel(&self, account: &Account, id: &JobId) -> Result<bool, StoreError> {
        let (account, id) = (account.clone(), id.clone());
        self.writer
            .change(SMALL, move |conn| jobs::ask_cancel(conn, &account, &id))
            .await
    }

    async fn finish(&self, finish: JobFinish) -> Result<bool, StoreError> {
        self.writer
            .change(size(&finish), move |conn| jobs::finish(conn, &finish))
            .await
    }

    async fn get(&self, account: &Account, id: &JobId) -> Result<Option<JobRecord>, StoreError> {
        let (account, id) = (account.clone(), id.clone());
        self.readers
            .ask(move |conn| jobs::get(conn, &account, &id))
            .await
    }

    async fn list(&self, query: JobQuery) -> Result<Page<JobRecord>, StoreError> {
        self.readers.ask(move |conn| list::page(conn, &query)).await
    }

    async fn recent(&self, wanted: JobFilter) -> Result<Vec<JobSummary>, StoreError> {
        self.readers
            .ask(move |conn| summaries::recent(conn, &wanted))
            .await
    }

    async fn open(&self, after: u64, limit: usize) -> Result<Vec<(u64, JobRecord)>, StoreError> {
        let found = self
            .readers
            .ask(move |conn| jobs::open(conn, after, limit))
            .await?;
        Ok(found
            .into_iter()
            .map(|(number, record)| (number.unsigned_abs(), record))
            .collect())
    }

    async fn remove_data(&self, over_before: Timestamp, limit: usize) -> Result<usize, StoreError> {
        self.writer
            .change(SMALL * limit.min(SMALL), move |conn| {
                jobs::remove_data(conn, over_before, limit)
            })
            .await
    }

    async fn forget(&self, over_before: Timestamp, limit: usize) -> Result<usize, StoreError> {
        self.writer
            .change(SMALL * limit.min(SMALL), move |conn| {
                jobs::forget(conn, over_before, limit)
            })
            .await
    }

    async fn pending_messages(
        &self,
        after: u64,
        limit: usize,
    ) -> Result<Vec<(u64, OutboxMessage)>, StoreError> {
        let found = self
            .readers
            .ask(move |conn| outbox::to_be_sent(conn, after, limit))
            .await?;
        Ok(found
            .into_iter()
            .map(|(number, letter)| (number.unsigned_abs(), letter))
            .collect())
    }

    async fn record_attempt(&self, id: &str, tried: SendOutcome) -> Result<(), StoreError> {
        let id = id.to_owned();
        self.writer
            .change(SMALL, move |conn| outbox::tried(conn, &id, &tried))
            .await
    }

    async fn settled_messages(
        &self,
        account: Option<Account>,
        job: Option<JobId>,
        limit: usize,
    ) -> Result<Vec<SettledMessage>, StoreError> {
        self.readers
            .ask(move |conn| outbox::settled(conn, account.as_ref(), job.as_ref(), limit))
            .await
    }

    async fn reopen_message(
        &self,
        id: &str,
        account: Option<Account>,
        at: Timestamp,
    ) -> Result<Reopened, StoreError> {
        let id = id.to_owned();
        self.writer
            .change(SMALL, move |conn| {
                outbox::reopen(conn, &id, account.as_ref(), at)
            })
            .await
    }
}

fn size(finish: &JobFinish) -> usize {
    let output = finish.completion.output.as_ref().map_or(0, Bytes::len);
    let letter = finish.letter.as_ref().map_or(0, |letter| letter.body.len());
    SMALL + output + finish.completion.logs.len() + letter
}

#[async_trait]
impl Documents for SqliteStore {
    async fn put(&self, shelf: &str, name: &str, json: Bytes) -> Result<(), StoreError> {
        let (shelf, name) = (shelf.to_owned(), name.to_owned());
        self.writer
            .change(SMALL + json.len(), move |conn| {
                documents::put(conn, &shelf, &name, &json)
            })
            .await
    }

    async fn put_new(&self, shelf: &str, name: &str, json: Bytes) -> Result<Bytes, StoreError> {
        let (shelf, name) = (shelf.to_owned(), name.to_owned());
        self.writer
            .change(SMALL + json.len(), move |conn| {
                documents::put_new(conn, &shelf, &name, &json)
            })
            .await
    }

    async fn swap(
        &self,
        shelf: &str,
        name: &str,
        was: &Bytes,
        json: Bytes,
    ) -> Result<bool, StoreError> {
        let (shelf, name, was) = (shelf.to_owned(), name.to_owned(), was.clone());
        self.writer
            .change(SMALL + json.len(), move |conn| {
                documents::swap(conn, &shelf, &name, &was, &json)
            })
            .await
    }

    async fn fetch(&self, shelf: &str, name: &str) -> Result<Option<Bytes>, StoreError> {
        let (shelf, name) = (shelf.to_owned(), name.to_owned());
        self.readers
            .ask(move |conn| documents::fetch(conn, &shelf, &name))
            .await
    }

    async fn remove(&self, shelf: &str, name: &str) -> Result<bool, StoreError> {
        let (shelf, name) = (shelf.to_owned(), name.to_owned());
        self.writer
            .change(SMALL, move |conn| documents::remove(conn, &shelf, &name))
            .await
    }

    async fn all(&self, shelf: &str, prefix: &str) -> Result<Vec<(String, Bytes)>, StoreError> {
        let (shelf, prefix) = (shelf.to_owned(), prefix.to_owned());
        self.readers
            .ask(move |conn| documents::all(conn, &shelf, &prefix))
            .await
    }
}
