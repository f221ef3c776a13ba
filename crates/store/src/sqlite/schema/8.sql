-- The attempts of a job before the last one, as a JSON list of objects with number, started_at, ended_at and end.
-- NULL for a job that was given to a model at most once, and for attempts of servers of an earlier layout.
ALTER TABLE jobs ADD COLUMN earlier_attempts TEXT;
