-- A cancel is a promise, also when the server dies before the job has stopped.

ALTER TABLE jobs ADD COLUMN cancel_asked INTEGER NOT NULL DEFAULT 0;
