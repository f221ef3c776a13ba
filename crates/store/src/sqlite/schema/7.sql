-- The nonce of the last lease of a job, 32 hexadecimal digits. NULL: it was never leased, or by a server of an
-- earlier layout.
ALTER TABLE jobs ADD COLUMN lease_nonce TEXT;

-- The nonce under which the end was recorded; NULL for ends of an earlier layout.
ALTER TABLE jobs ADD COLUMN end_nonce TEXT;
