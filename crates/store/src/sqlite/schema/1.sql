-- Moments are microseconds since 1970. The account '' is nobody's in particular.
-- What is large lies beside the jobs: a change of a row writes all of it again.

CREATE TABLE jobs (
    number       INTEGER PRIMARY KEY AUTOINCREMENT, -- the order of acceptance; never given twice
    account      TEXT    NOT NULL,
    id           TEXT    NOT NULL,
    kind         TEXT    NOT NULL,
    model        TEXT    NOT NULL,
    version      TEXT    NOT NULL,
    deployment   TEXT,
    face         TEXT    NOT NULL,
    hook         TEXT,                              -- JSON
    context      TEXT    NOT NULL,                  -- JSON
    files        TEXT    NOT NULL,                  -- JSON: pointers into the input
    secrets      TEXT    NOT NULL,                  -- JSON: fields of the input
    status       TEXT    NOT NULL,
    attempt      INTEGER NOT NULL DEFAULT 0,
    created_at   INTEGER NOT NULL,
    deadline     INTEGER,
    started_at   INTEGER,
    completed_at INTEGER,
    data_removed INTEGER NOT NULL DEFAULT 0,
    UNIQUE (account, id)
) STRICT;

CREATE INDEX jobs_listed ON jobs (account, kind, created_at);
CREATE INDEX jobs_open   ON jobs (number) WHERE completed_at IS NULL;
CREATE INDEX jobs_over   ON jobs (data_removed, completed_at) WHERE completed_at IS NOT NULL;

CREATE TABLE inputs (
    number INTEGER PRIMARY KEY REFERENCES jobs (number) ON DELETE CASCADE,
    json   BLOB NOT NULL
) STRICT;

CREATE TABLE endings (
    number  INTEGER PRIMARY KEY REFERENCES jobs (number) ON DELETE CASCADE,
    output  BLOB,                                   -- JSON
    logs    TEXT NOT NULL,
    error   TEXT,
    metrics TEXT NOT NULL                           -- JSON
) STRICT;

-- The last messages about jobs. They outlive their jobs.
CREATE TABLE letters (
    number     INTEGER PRIMARY KEY,
    id         TEXT    NOT NULL UNIQUE,
    account    TEXT    NOT NULL,
    job        TEXT    NOT NULL,
    hook       TEXT    NOT NULL,                    -- JSON
    created_at INTEGER NOT NULL,
    attempts   INTEGER NOT NULL,
    next_at    INTEGER NOT NULL
) STRICT;

CREATE INDEX letters_next ON letters (next_at);

CREATE TABLE bodies (
    number INTEGER PRIMARY KEY REFERENCES letters (number) ON DELETE CASCADE,
    body   BLOB NOT NULL
) STRICT;

CREATE TABLE documents (
    shelf TEXT NOT NULL,
    name  TEXT NOT NULL,
    json  BLOB NOT NULL,
    PRIMARY KEY (shelf, name)
) STRICT, WITHOUT ROWID;
