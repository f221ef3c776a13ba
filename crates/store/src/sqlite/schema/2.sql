-- Letters are kept for a while after they are settled, so that they can be looked up and sent again.

ALTER TABLE letters ADD COLUMN model      TEXT NOT NULL DEFAULT ''; -- of older letters it is not known
ALTER TABLE letters ADD COLUMN settled_at INTEGER; -- absent as long as it is to be sent
ALTER TABLE letters ADD COLUMN given_up   TEXT;    -- why; absent when somebody has taken it

DROP INDEX letters_next;
CREATE INDEX letters_next    ON letters (next_at)    WHERE settled_at IS NULL;
CREATE INDEX letters_settled ON letters (settled_at) WHERE settled_at IS NOT NULL;
CREATE INDEX letters_about   ON letters (job);
