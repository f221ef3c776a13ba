-- How a job is treated where the APIs differ; NULL for jobs recorded before: the defaults of their API.
ALTER TABLE jobs ADD COLUMN policies TEXT; -- a JSON object

-- What is known about the remote worker that ran a job; NULL for jobs that ran here. In rows of earlier
-- layouts these facts are among the metrics.
ALTER TABLE endings ADD COLUMN remote TEXT; -- a JSON object
