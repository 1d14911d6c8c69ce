-- SPDX-License-Identifier: Apache-2.0
-- What happened, summed by the minute: a week is drawn from some ten thousand rows, however many events there were. Scope '*' is
-- every sandbox, '=ID' the one of that name.
CREATE TABLE activity (
  scope   TEXT NOT NULL,
  minute  INTEGER NOT NULL,         -- since 1970
  action  INTEGER NOT NULL,
  packets INTEGER NOT NULL,
  bytes   INTEGER NOT NULL,
  PRIMARY KEY (scope, minute, action)
) STRICT, WITHOUT ROWID;
CREATE INDEX activity_by_minute ON activity (minute);
-- An event and each scope that it is summed in. By its number, as in 005.
CREATE VIEW activity_written (id, ts, action, packets, bytes, scope) AS
  SELECT e.id, e.ts, e.action, e.packets, e.bytes, iif(k.column1 = 1, '*', '=' || e.sandbox)
  FROM event e NOT INDEXED CROSS JOIN (VALUES (1), (2)) k;

-- What was let through, summed by the hour and by one property, as table denied is.
CREATE TABLE allowed (
  kind    INTEGER NOT NULL,         -- 1 destination, 2 address, 3 name, 4 sandbox
  hour    INTEGER NOT NULL,
  key     TEXT NOT NULL,
  packets INTEGER NOT NULL,
  bytes   INTEGER NOT NULL,
  rows    INTEGER NOT NULL,
  last_ts INTEGER NOT NULL,
  PRIMARY KEY (kind, hour, key)
) STRICT, WITHOUT ROWID;
CREATE VIEW allowed_written (id, ts, packets, bytes, kind, key) AS
  SELECT e.id, e.ts, e.packets, e.bytes, k.column1,
    CASE k.column1 WHEN 1 THEN coalesce(e.name, e.remote_ip, '') WHEN 2 THEN e.remote_ip WHEN 3 THEN e.name ELSE e.sandbox END
  FROM event e NOT INDEXED CROSS JOIN (VALUES (1), (2), (3), (4)) k
  WHERE e.action = 1;

-- As unsummed in 002, for these two tables.
CREATE TABLE unsummed_activity (
  next INTEGER NOT NULL,
  last INTEGER NOT NULL
) STRICT;
INSERT INTO unsummed_activity SELECT min(id), max(id) FROM event HAVING count(*) > 0;
