-- The files of Replicate's API. Their contents are elsewhere, named by their digests. A row names a content
-- from before it is written, so that it is not collected.
CREATE TABLE tidegate.files (
    account     text    COLLATE "C" NOT NULL,
    id          text    COLLATE "C" NOT NULL,
    sha256      text    COLLATE "C" NOT NULL,
    size        bigint  NOT NULL,
    job         text    COLLATE "C",                     -- of an output file
    weights_of  text    COLLATE "C",                     -- the trained version
    created_at  bigint  NOT NULL DEFAULT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint,
    expires_at  bigint,
    is_complete boolean NOT NULL DEFAULT false,          -- the content is written
    json        text    NOT NULL,                        -- all of the metadata
    PRIMARY KEY (account, id)
);

CREATE INDEX files_content    ON tidegate.files (sha256);
CREATE INDEX files_expiring   ON tidegate.files (expires_at) WHERE expires_at IS NOT NULL;
CREATE INDEX files_of_jobs    ON tidegate.files (created_at) WHERE job IS NOT NULL;
CREATE INDEX files_incomplete ON tidegate.files (created_at) WHERE NOT is_complete;
CREATE INDEX files_of_weights ON tidegate.files (weights_of) WHERE weights_of IS NOT NULL;
