-- The database of a data folder that tidegate wrote with layout 4, before its types were renamed; made by that
-- program with the model tests/models/upgrade and killed with SIGKILL while one job ran and one waited.
-- Its webhooks went to http://127.0.0.1:9. The bytes of its files are in `files`.

PRAGMA application_id = 1953064037;
PRAGMA user_version = 4;

CREATE TABLE jobs (
    number       INTEGER PRIMARY KEY AUTOINCREMENT, -- the order of acceptance; never given twice
    account      TEXT    NOT NULL,
    id           TEXT    NOT NULL,
    kind         TEXT    NOT NULL,
    model        TEXT    NOT NULL,
    version      TEXT    NOT NULL,
    deployment   TEXT,
    face         TEXT    NOT NULL,
    hook         TEXT,                              -- JSON
    context      TEXT    NOT NULL,                  -- JSON
    files        TEXT    NOT NULL,                  -- JSON: pointers into the input
    secrets      TEXT    NOT NULL,                  -- JSON: fields of the input
    status       TEXT    NOT NULL,
    attempt      INTEGER NOT NULL DEFAULT 0,
    created_at   INTEGER NOT NULL,
    deadline     INTEGER,
    started_at   INTEGER,
    completed_at INTEGER,
    data_removed INTEGER NOT NULL DEFAULT 0, cancel_asked INTEGER NOT NULL DEFAULT 0, destination TEXT,
    UNIQUE (account, id)
) STRICT;

CREATE TABLE inputs (
    number INTEGER PRIMARY KEY REFERENCES jobs (number) ON DELETE CASCADE,
    json   BLOB NOT NULL
) STRICT;

CREATE TABLE endings (
    number  INTEGER PRIMARY KEY REFERENCES jobs (number) ON DELETE CASCADE,
    output  BLOB,                                   -- JSON
    logs    TEXT NOT NULL,
    error   TEXT,
    metrics TEXT NOT NULL                           -- JSON
) STRICT;

CREATE TABLE letters (
    number     INTEGER PRIMARY KEY,
    id         TEXT    NOT NULL UNIQUE,
    account    TEXT    NOT NULL,
    job        TEXT    NOT NULL,
    hook       TEXT    NOT NULL,                    -- JSON
    created_at INTEGER NOT NULL,
    attempts   INTEGER NOT NULL,
    next_at    INTEGER NOT NULL
, model      TEXT NOT NULL DEFAULT '', settled_at INTEGER, given_up   TEXT) STRICT;

CREATE TABLE bodies (
    number INTEGER PRIMARY KEY REFERENCES letters (number) ON DELETE CASCADE,
    body   BLOB NOT NULL
) STRICT;

CREATE TABLE documents (
    shelf TEXT NOT NULL,
    name  TEXT NOT NULL,
    json  BLOB NOT NULL,
    PRIMARY KEY (shelf, name)
) STRICT, WITHOUT ROWID;

CREATE INDEX jobs_listed ON jobs (account, kind, created_at);
CREATE INDEX jobs_open   ON jobs (number) WHERE completed_at IS NULL;
CREATE INDEX jobs_over   ON jobs (data_removed, completed_at) WHERE completed_at IS NOT NULL;
CREATE INDEX letters_next    ON letters (next_at)    WHERE settled_at IS NULL;
CREATE INDEX letters_settled ON letters (settled_at) WHERE settled_at IS NOT NULL;
CREATE INDEX letters_about   ON letters (job);

INSERT INTO jobs (number, account, id, kind, model, version, deployment, face, hook, context, files, secrets, status, attempt, created_at, deadline, started_at, completed_at, data_removed, cancel_asked, destination) VALUES (1, 'ann', 'cog-succeeded', 'prediction', 'ann/upgrade', '6ee243b5ad125063caf3d83eb12c75e9e41490e4fc3e9e68f6203dc8e4ec8bea', NULL, 'cog', '{"url":"http://127.0.0.1:9/ok","events":["completed"]}', '{}', '[]', '[]', 'succeeded', 1, 1794813843558947, NULL, 1794813843563920, 1794813843566062, 0, 0, NULL);
INSERT INTO jobs (number, account, id, kind, model, version, deployment, face, hook, context, files, secrets, status, attempt, created_at, deadline, started_at, completed_at, data_removed, cancel_asked, destination) VALUES (2, 'ann', 'cog-failed', 'prediction', 'ann/upgrade', '6ee243b5ad125063caf3d83eb12c75e9e41490e4fc3e9e68f6203dc8e4ec8bea', NULL, 'cog', '{"url":"http://127.0.0.1:9/gone","events":["completed"]}', '{}', '[]', '[]', 'failed', 1, 1794813843598556, NULL, 1794813843602250, 1794813843691507, 0, 0, NULL);
INSERT INTO jobs (number, account, id, kind, model, version, deployment, face, hook, context, files, secrets, status, attempt, created_at, deadline, started_at, completed_at, data_removed, cancel_asked, destination) VALUES (3, 'ann', 'cog-canceled', 'prediction', 'ann/upgrade', '6ee243b5ad125063caf3d83eb12c75e9e41490e4fc3e9e68f6203dc8e4ec8bea', NULL, 'cog', NULL, '{}', '[]', '[]', 'canceled', 1, 1794813843729147, NULL, 1794813843738069, 1794813844247677, 0, 1, NULL);
INSERT INTO jobs (number, account, id, kind, model, version, deployment, face, hook, context, files, secrets, status, attempt, created_at, deadline, started_at, completed_at, data_removed, cancel_asked, destination) VALUES (4, 'ann', 'cog-pending-webhook', 'prediction', 'ann/upgrade', '6ee243b5ad125063caf3d83eb12c75e9e41490e4fc3e9e68f6203dc8e4ec8bea', NULL, 'cog', '{"url":"http://127.0.0.1:9/unavailable","events":["completed"]}', '{}', '[]', '[]', 'succeeded', 1, 1794813844311793, NULL, 1794813844322070, 1794813844328661, 0, 0, NULL);
INSERT INTO jobs (number, account, id, kind, model, version, deployment, face, hook, context, files, secrets, status, attempt, created_at, deadline, started_at, completed_at, data_removed, cancel_asked, destination) VALUES (5, 'ann', '76767rsnsmc4f029jbpxkpkne6', 'prediction', 'ann/upgrade', '6ee243b5ad125063caf3d83eb12c75e9e41490e4fc3e9e68f6203dc8e4ec8bea', 'ann/app#2', 'replicate', NULL, '{}', '[]', '[]', 'succeeded', 1, 1794813844466253, NULL, 1794813844466274, 1794813844468799, 0, 0, NULL);
INSERT INTO jobs (number, account, id, kind, model, version, deployment, face, hook, context, files, secrets, status, attempt, created_at, deadline, started_at, completed_at, data_removed, cancel_asked, destination) VALUES (6, 'ann', '4fy92xv5s1673vqvj8qdsxxqbe', 'training', 'ann/upgrade', '6ee243b5ad125063caf3d83eb12c75e9e41490e4fc3e9e68f6203dc8e4ec8bea', NULL, 'replicate', NULL, '{}', '[]', '[]', 'succeeded', 1, 1794813844490371, NULL, 1794813844490395, 1794813844552378, 0, 0, 'ann/tuned');
INSERT INTO jobs (number, account, id, kind, model, version, deployment, face, hook, context, files, secrets, status, attempt, created_at, deadline, started_at, completed_at, data_removed, cancel_asked, destination) VALUES (7, 'ann', '493qwsggpvb27m73qbnbn5k0wf', 'prediction', 'ann/tuned', '16cacea83ae37e1452c6b6a273ba47978e443356f6e2d8e1604234537d425422', NULL, 'replicate', NULL, '{}', '[]', '[]', 'succeeded', 1, 1794813844577998, NULL, 1794813844888806, 1794813844892062, 0, 0, NULL);
INSERT INTO jobs (number, account, id, kind, model, version, deployment, face, hook, context, files, secrets, status, attempt, created_at, deadline, started_at, completed_at, data_removed, cancel_asked, destination) VALUES (8, 'ann', 'cog-running', 'prediction', 'ann/upgrade', '6ee243b5ad125063caf3d83eb12c75e9e41490e4fc3e9e68f6203dc8e4ec8bea', NULL, 'cog', NULL, '{}', '[]', '[]', 'processing', 1, 1794813846400163, NULL, 1794813846404288, NULL, 0, 0, NULL);
INSERT INTO jobs (number, account, id, kind, model, version, deployment, face, hook, context, files, secrets, status, attempt, created_at, deadline, started_at, completed_at, data_removed, cancel_asked, destination) VALUES (9, 'ann', '3es9zys1y12tyb0vqhasqawda9', 'prediction', 'ann/upgrade', '6ee243b5ad125063caf3d83eb12c75e9e41490e4fc3e9e68f6203dc8e4ec8bea', NULL, 'replicate', '{"url":"http://127.0.0.1:9/waiting","events":["completed"],"origin":"http://127.0.0.1:5000/"}', '{}', '[]', '[]', 'queued', 0, 1794813847421434, NULL, NULL, NULL, 0, 0, NULL);

INSERT INTO sqlite_sequence (name, seq) VALUES ('jobs', 9);

INSERT INTO inputs (number, json) VALUES (1, CAST('{"text": "one"}' AS BLOB));
INSERT INTO inputs (number, json) VALUES (2, CAST('{"text": "two", "fail": "no luck"}' AS BLOB));
INSERT INTO inputs (number, json) VALUES (3, CAST('{"text": "three", "seconds": 20}' AS BLOB));
INSERT INTO inputs (number, json) VALUES (4, CAST('{"text": "four"}' AS BLOB));
INSERT INTO inputs (number, json) VALUES (5, CAST('{"text": "five"}' AS BLOB));
INSERT INTO inputs (number, json) VALUES (6, CAST('{"word": "salve"}' AS BLOB));
INSERT INTO inputs (number, json) VALUES (7, CAST('{"text": "six"}' AS BLOB));
INSERT INTO inputs (number, json) VALUES (8, CAST('{"text": "seven", "seconds": 3}' AS BLOB));
INSERT INTO inputs (number, json) VALUES (9, CAST('{"text": "eight"}' AS BLOB));

INSERT INTO endings (number, output, logs, error, metrics) VALUES (1, CAST('"echo one"' AS BLOB), 'text: one
', NULL, '{"predict_time":0.007110323}');
INSERT INTO endings (number, output, logs, error, metrics) VALUES (2, NULL, 'text: two
', 'Prediction failed: Prediction failed: ValueError: no luck', '{"predict_time":0.092946682}');
INSERT INTO endings (number, output, logs, error, metrics) VALUES (3, NULL, 'text: three
', NULL, '{"predict_time":0.518528687}');
INSERT INTO endings (number, output, logs, error, metrics) VALUES (4, CAST('"echo four"' AS BLOB), 'text: four
', NULL, '{"predict_time":0.016864892}');
INSERT INTO endings (number, output, logs, error, metrics) VALUES (5, CAST('"echo five"' AS BLOB), 'text: five
', NULL, '{"predict_time":0.002543415}');
INSERT INTO endings (number, output, logs, error, metrics) VALUES (6, CAST('{"version":"ann/tuned:16cacea83ae37e1452c6b6a273ba47978e443356f6e2d8e1604234537d425422","weights":"tidegate-file:2vdbvhq74gqs4dxpgsdfhve9bx"}' AS BLOB), '', NULL, '{"predict_time":0.062004247}');
INSERT INTO endings (number, output, logs, error, metrics) VALUES (7, CAST('"salve six"' AS BLOB), 'text: six
', NULL, '{"predict_time":0.314061518}');

INSERT INTO letters (number, id, account, job, hook, created_at, attempts, next_at, model, settled_at, given_up) VALUES (1, 'msg_1c5e7mq0dsszywt3fzj6av0qxh', 'ann', 'cog-succeeded', '{"url":"http://127.0.0.1:9/ok","events":["completed"]}', 1794813843566066, 1, 1794813843566066, 'ann/upgrade', 1794813843659282, NULL);
INSERT INTO letters (number, id, account, job, hook, created_at, attempts, next_at, model, settled_at, given_up) VALUES (2, 'msg_6dsknq6fmsdbprdc5hhqyq22b5', 'ann', 'cog-failed', '{"url":"http://127.0.0.1:9/gone","events":["completed"]}', 1794813843691571, 1, 1794813843691571, 'ann/upgrade', 1794813843702902, 'the receiver says that it is gone');
INSERT INTO letters (number, id, account, job, hook, created_at, attempts, next_at, model, settled_at, given_up) VALUES (3, 'msg_3xa925zft4zbdakmv7wdey4fgb', 'ann', 'cog-pending-webhook', '{"url":"http://127.0.0.1:9/unavailable","events":["completed"]}', 1794813844328665, 5, 1794813849972897, 'ann/upgrade', NULL, NULL);

INSERT INTO bodies (number, body) VALUES (1, CAST('{"id":"cog-succeeded","logs":"text: one\n","metrics":{"predict_time":0.007110323},"output":"echo one","status":"succeeded"}' AS BLOB));
INSERT INTO bodies (number, body) VALUES (2, CAST('{"error":"Prediction failed: Prediction failed: ValueError: no luck","id":"cog-failed","logs":"text: two\n","metrics":{"predict_time":0.092946682},"status":"failed"}' AS BLOB));
INSERT INTO bodies (number, body) VALUES (3, CAST('{"id":"cog-pending-webhook","logs":"text: four\n","metrics":{"predict_time":0.016864892},"output":"echo four","status":"succeeded"}' AS BLOB));

INSERT INTO documents (shelf, name, json) VALUES ('deployments', 'ann/app', CAST('{"name":"app","created_at":"2026-11-16T07:24:04.446309356Z","number":2,"released_at":"2026-11-16T07:24:04.45443457Z","release":{"model":"ann/upgrade","version":"6ee243b5ad125063caf3d83eb12c75e9e41490e4fc3e9e68f6203dc8e4ec8bea","hardware":"local","min_instances":0,"max_instances":2},"past":[{"number":1,"released_at":"2026-11-16T07:24:04.446309356Z","release":{"model":"ann/upgrade","version":"6ee243b5ad125063caf3d83eb12c75e9e41490e4fc3e9e68f6203dc8e4ec8bea","hardware":"local","min_instances":0,"max_instances":1}}]}' AS BLOB));
INSERT INTO documents (shelf, name, json) VALUES ('files', 'ann/2jgzhsw1h8wqs5wtj30ehmfdq4', CAST('{"id":"2jgzhsw1h8wqs5wtj30ehmfdq4","name":"word.txt","content_type":"text/plain","size":5,"sha256":"f9afe0ca8d925f21494d6832ca2b3d7841caaed2df478889f8478cd750aaeb34","md5":"d21a891233c1e4d010c92d60592138fd","metadata":{},"created_at":"2026-11-16T07:24:04.537178947Z","weights_of":"ann/tuned:e36008cd7d88441f74ce31aca444edb9aba300243f04899cfd7b5f7300951c27"}' AS BLOB));
INSERT INTO documents (shelf, name, json) VALUES ('files', 'ann/2vdbvhq74gqs4dxpgsdfhve9bx', CAST('{"id":"2vdbvhq74gqs4dxpgsdfhve9bx","name":"word.txt","content_type":"text/plain","size":5,"sha256":"f9afe0ca8d925f21494d6832ca2b3d7841caaed2df478889f8478cd750aaeb34","md5":"d21a891233c1e4d010c92d60592138fd","metadata":{},"created_at":"2026-11-16T07:24:04.537178947Z","job":"4fy92xv5s1673vqvj8qdsxxqbe"}' AS BLOB));
INSERT INTO documents (shelf, name, json) VALUES ('files', 'ann/32t7sazdg1ra3mtjvewtzrar0a', CAST('{"id":"32t7sazdg1ra3mtjvewtzrar0a","name":"numbers.txt","content_type":"text/plain","size":6,"sha256":"14c5e74c4b96ccef41cd94db73a9ec3348038ac094feca4fd897cecffa07cdae","md5":"c0710d6b4f15dfa88f600b0e6b624077","metadata":{"set": 1},"created_at":"2026-11-16T07:24:04.42202403Z","expires_at":"2126-10-23T07:24:04.411470853Z"}' AS BLOB));
INSERT INTO documents (shelf, name, json) VALUES ('models', 'ann/tuned', CAST('{"owner":"ann","name":"tuned","account":"ann","created_at":"2026-11-16T07:24:04.430842856Z","visibility":"private","hardware":"local","description":"trained here","github_url":null,"paper_url":null,"license_url":null,"cover_image_url":null,"weights_url":null,"readme":null}' AS BLOB));
INSERT INTO documents (shelf, name, json) VALUES ('replicate', 'files-secret', CAST('[199,219,174,92,26,50,22,65,180,97,188,48,240,83,13,41,45,203,197,140,111,143,115,182,104,253,229,173,251,65,255,223]' AS BLOB));
INSERT INTO documents (shelf, name, json) VALUES ('replicate', 'stream-secret', CAST('[98,165,46,234,121,233,36,192,209,241,215,229,151,137,41,249,190,200,29,96,124,222,31,71,212,169,166,186,22,45,96,9]' AS BLOB));
INSERT INTO documents (shelf, name, json) VALUES ('replicate', 'webhook-secret', CAST('"whsec_OeRL8NbAWqSqdEW7AhHaJSm4cn5j48scHsAA+a5futA="' AS BLOB));
INSERT INTO documents (shelf, name, json) VALUES ('trained', 'ann/tuned:e36008cd7d88441f74ce31aca444edb9aba300243f04899cfd7b5f7300951c27', CAST('{"model":"ann/tuned","account":"ann","training":"4fy92xv5s1673vqvj8qdsxxqbe","source":"ann/upgrade","weights":{"file":{"id":"2jgzhsw1h8wqs5wtj30ehmfdq4","name":"word.txt","sha256":"f9afe0ca8d925f21494d6832ca2b3d7841caaed2df478889f8478cd750aaeb34"}},"created_at":"2026-11-16T07:24:04.541986813Z","ids":["16cacea83ae37e1452c6b6a273ba47978e443356f6e2d8e1604234537d425422"]}' AS BLOB));
