-- The schedule of the outbox is in the store: servers claim the messages that are due.

ALTER TABLE letters ADD COLUMN receiver    TEXT NOT NULL DEFAULT ''; -- host and port
ALTER TABLE letters ADD COLUMN retry_until INTEGER; -- NULL in rows of earlier layouts: created_at and the window of the server
ALTER TABLE letters ADD COLUMN holder      TEXT;    -- the server that sends it; its claim ends at next_at

UPDATE letters SET receiver = coalesce((
    SELECT substr(authority, instr(authority, '@') + 1)
    FROM (SELECT substr(rest, 1, instr(rest, '/') - 1) AS authority
          FROM (SELECT substr(url, instr(url, '://') + 3) || '/' AS rest
                FROM (SELECT json_extract(letters.hook, '$.url') AS url WHERE json_valid(letters.hook))))), '');

DROP INDEX letters_next;
CREATE INDEX letters_due      ON letters (receiver, next_at) WHERE settled_at IS NULL;
CREATE INDEX letters_claimed  ON letters (holder) WHERE holder IS NOT NULL;
CREATE INDEX letters_retrying ON letters (model) WHERE settled_at IS NULL AND attempts > 0;
