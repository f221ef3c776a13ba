-- Times are microseconds since 1970. The account '' is the anonymous one. In text columns U+0000, which
-- PostgreSQL cannot store, is escaped with U+0001. Columns with JSON are `text`, because `jsonb` changes it.
-- Large values are beside the jobs: an update of a row writes all of it again.

CREATE TABLE tidegate.jobs (
    number           bigint  GENERATED ALWAYS AS IDENTITY PRIMARY KEY, -- grows in the order of acceptance
    account          text    COLLATE "C" NOT NULL,
    id               text    COLLATE "C" NOT NULL,
    kind             text    NOT NULL,
    model            text    COLLATE "C" NOT NULL,
    version          text    NOT NULL,
    deployment       text,
    api              text    NOT NULL,
    hook             text,                               -- JSON
    context          text    NOT NULL,                   -- JSON
    files            text    NOT NULL,                   -- JSON: pointers into the input
    secrets          text    NOT NULL,                   -- JSON: fields of the input
    destination      text,
    policies         text    NOT NULL,                   -- JSON
    status           text    NOT NULL,
    attempt          integer NOT NULL DEFAULT 0,         -- the number of the last lease
    released         integer NOT NULL DEFAULT 0,         -- leases that were given back and do not count
    lease_nonce      text,                               -- of the last lease; NULL: none, or given back
    lease_holder     text    COLLATE "C",                -- NULL: no lease, or one of the server itself
    lease_boot       bigint,
    lease_expired    boolean NOT NULL DEFAULT false,
    end_nonce        text,
    cancel_requested boolean NOT NULL DEFAULT false,
    queued           boolean NOT NULL DEFAULT false,     -- known to be in the queue
    waiting_since    bigint  NOT NULL DEFAULT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint,
    created_at       bigint  NOT NULL,
    deadline         bigint,
    started_at       bigint,
    completed_at     bigint,
    data_removed     boolean NOT NULL DEFAULT false,
    UNIQUE (account, id)
);

CREATE INDEX jobs_listed   ON tidegate.jobs (account, kind, created_at, number);
CREATE INDEX jobs_open     ON tidegate.jobs (number) WHERE completed_at IS NULL;
CREATE INDEX jobs_unqueued ON tidegate.jobs (number) WHERE completed_at IS NULL AND NOT queued;
CREATE INDEX jobs_leased   ON tidegate.jobs (lease_holder)
    WHERE completed_at IS NULL AND lease_holder IS NOT NULL AND NOT lease_expired;
CREATE INDEX jobs_over     ON tidegate.jobs (data_removed, completed_at) WHERE completed_at IS NOT NULL;

CREATE TABLE tidegate.inputs (
    number bigint PRIMARY KEY REFERENCES tidegate.jobs (number) ON DELETE CASCADE,
    json   bytea  NOT NULL
);

CREATE TABLE tidegate.ends (
    number  bigint PRIMARY KEY REFERENCES tidegate.jobs (number) ON DELETE CASCADE,
    output  bytea,                                       -- JSON
    logs    text   NOT NULL,
    error   text,
    metrics text   NOT NULL,                             -- JSON
    remote  text                                         -- JSON
);

-- The webhook messages about jobs. They outlive their jobs.
CREATE TABLE tidegate.outbox (
    number      bigint  GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    id          text    COLLATE "C" NOT NULL UNIQUE,
    account     text    COLLATE "C" NOT NULL,
    job         text    COLLATE "C" NOT NULL,
    model       text    COLLATE "C" NOT NULL,
    receiver    text    COLLATE "C" NOT NULL,            -- host and port
    hook        text    NOT NULL,                        -- JSON
    interim     boolean NOT NULL DEFAULT false,          -- about a running job; deleted when it is settled
    created_at  bigint  NOT NULL,
    attempts    integer NOT NULL,
    next_at     bigint  NOT NULL,                        -- when it is due, or when its claim ends
    retry_until bigint,
    holder      text    COLLATE "C",                     -- the server that sends it
    settled_at  bigint,
    given_up    text
);

CREATE INDEX outbox_due      ON tidegate.outbox (receiver, next_at) WHERE settled_at IS NULL;
CREATE INDEX outbox_retrying ON tidegate.outbox (model) WHERE settled_at IS NULL AND attempts > 0;
CREATE INDEX outbox_settled  ON tidegate.outbox (settled_at) WHERE settled_at IS NOT NULL;
CREATE INDEX outbox_about    ON tidegate.outbox (job);

CREATE TABLE tidegate.outbox_bodies (
    number bigint PRIMARY KEY REFERENCES tidegate.outbox (number) ON DELETE CASCADE,
    body   bytea  NOT NULL
);

CREATE TABLE tidegate.documents (
    namespace text  COLLATE "C" NOT NULL,
    name      text  COLLATE "C" NOT NULL,
    json      bytea NOT NULL,
    PRIMARY KEY (namespace, name)
);

-- The processes that take leases, by name: the one that started last, and how long it lives without a
-- heartbeat.
CREATE TABLE tidegate.holders (
    name        text   COLLATE "C" PRIMARY KEY,
    boot        bigint NOT NULL,
    alive_until bigint NOT NULL
);

-- One row: when the cluster last looked for expired leases. Time in which it did not look does not count.
CREATE TABLE tidegate.pulse (
    is_single boolean PRIMARY KEY DEFAULT true CHECK (is_single),
    at        bigint  NOT NULL
);
INSERT INTO tidegate.pulse (at) VALUES (0);
