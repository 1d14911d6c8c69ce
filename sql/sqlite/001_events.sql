-- SPDX-License-Identifier: Apache-2.0
-- Events, one row for what was folded in a short window. Times are milliseconds since 1970. Action 6 is fail.
CREATE TABLE event (
  id          INTEGER PRIMARY KEY,
  ts          INTEGER NOT NULL,     -- of the first occurrence
  sandbox     TEXT NOT NULL,        -- '' when it has no name
  action      INTEGER NOT NULL,     -- 1 allow, 2 deny, 3 panic, 4 change, 5 limit
  layer       INTEGER NOT NULL,     -- 1 dns, 2 address, 3 name, 4 launch
  remote_ip   TEXT,
  remote_port INTEGER,
  protocol    INTEGER,              -- the IP protocol's number
  name        TEXT,
  rule        TEXT,                 -- NULL: the default action
  rule_file   TEXT,
  rule_line   INTEGER,
  packets     INTEGER NOT NULL,
  bytes       INTEGER NOT NULL,
  reason      TEXT,
  query_type  INTEGER,
  limit_id    INTEGER,              -- which limit was reached
  uid         INTEGER,
  pid         INTEGER,
  command     TEXT
) STRICT;

-- Each search ends with "newest first", so each index ends with the time.
CREATE INDEX event_by_ts ON event (ts);
CREATE INDEX event_by_action ON event (action, ts, packets); -- counted without the rows
CREATE INDEX event_by_sandbox ON event (sandbox, ts);
CREATE INDEX event_by_address ON event (remote_ip, ts) WHERE remote_ip IS NOT NULL;
CREATE INDEX event_by_name ON event (name, ts) WHERE name IS NOT NULL;

-- What ever happened. These stay when old rows go.
CREATE TABLE counter (
  action  INTEGER NOT NULL,
  layer   INTEGER NOT NULL,
  packets INTEGER NOT NULL,
  rows    INTEGER NOT NULL,
  PRIMARY KEY (action, layer)
) STRICT, WITHOUT ROWID;
