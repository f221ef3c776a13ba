-- The foreign keys of inputs and ends cost a query and a row lock for each job. A trigger deletes the rows of
-- deleted jobs instead.
ALTER TABLE tidegate.inputs DROP CONSTRAINT inputs_number_fkey;
ALTER TABLE tidegate.ends DROP CONSTRAINT ends_number_fkey;

CREATE FUNCTION tidegate.delete_data_of_jobs() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    DELETE FROM tidegate.inputs i USING deleted WHERE i.number = deleted.number;
    DELETE FROM tidegate.ends e USING deleted WHERE e.number = deleted.number;
    RETURN NULL;
END
$$;

CREATE TRIGGER jobs_deleted AFTER DELETE ON tidegate.jobs REFERENCING OLD TABLE AS deleted
    FOR EACH STATEMENT EXECUTE FUNCTION tidegate.delete_data_of_jobs();
