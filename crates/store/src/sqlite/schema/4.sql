-- What a training gives becomes a version of a model, also when the server dies before it is over.

ALTER TABLE jobs ADD COLUMN destination TEXT; -- owner/name
