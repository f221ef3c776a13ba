-- Copies the first job of the benchmark :count times, with numbers from :first. The copies are not in the queue.
WITH template AS (
    SELECT account, kind, model, version, api, context, files, secrets, policies
    FROM tidegate.jobs ORDER BY number LIMIT 1
), added AS (
    INSERT INTO tidegate.jobs (account, kind, model, version, api, context, files, secrets, policies,
                               status, id, created_at)
    SELECT template.*, 'starting', 'copy' || n, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint
    FROM template, generate_series(:first, :first + :count - 1) n
    RETURNING number, id
)
INSERT INTO tidegate.inputs
SELECT number, convert_to('{"number": ' || substr(id, 5) || '}', 'UTF8') FROM added;
ANALYZE;
