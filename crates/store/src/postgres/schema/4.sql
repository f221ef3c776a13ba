-- The epoch of the queue with which jobs are marked as queued; empty before the first record. It has one row.
CREATE TABLE tidegate.queue_epoch (
    only_row    boolean PRIMARY KEY DEFAULT true CHECK (only_row),
    epoch       text    COLLATE "C" NOT NULL,
    is_complete boolean NOT NULL                         -- the marks of earlier epochs were removed
);

INSERT INTO tidegate.queue_epoch (epoch, is_complete) VALUES ('', false);
