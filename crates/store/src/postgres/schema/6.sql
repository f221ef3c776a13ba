-- The attempts of a job before the last one, as a JSON list of objects with number, started_at, ended_at, end and
-- director. NULL for a job that was given to a model at most once. Programs write it only with the statements
-- that overwrite the last attempt.
ALTER TABLE tidegate.jobs ADD COLUMN earlier_attempts jsonb;

-- When the last lease was found to have expired.
ALTER TABLE tidegate.jobs ADD COLUMN lease_expired_at bigint;
