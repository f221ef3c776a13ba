-- The API process that owns each endpoint: it hands out the jobs of the endpoint to workers. The number of the
-- term grows with each change of owner.
CREATE TABLE tidegate.endpoint_owners (
    endpoint    text   COLLATE "C" PRIMARY KEY,
    holder      text   COLLATE "C" NOT NULL,
    url         text   NOT NULL,                         -- where other processes reach the owner
    term        bigint NOT NULL,
    alive_until bigint NOT NULL
);
