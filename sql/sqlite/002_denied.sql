-- SPDX-License-Identifier: Apache-2.0
-- Whether a rule for just this would have let it through: only that opens a review task.
ALTER TABLE event ADD COLUMN allowable INTEGER;

-- Which file this is: whoever copies its rows elsewhere has to know one from another.
CREATE TABLE store (
  id TEXT NOT NULL                  -- 32 hexadecimal digits
) STRICT;
INSERT INTO store VALUES (lower(hex(randomblob(16))));

-- What was denied, summed by the hour and by one property: a day's denials are counted from
-- some thousand rows, however many events there were. An hour goes when its events go.
CREATE TABLE denied (
  kind    INTEGER NOT NULL,         -- 1 destination, 2 address, 3 name, 4 sandbox, 5 rule, 6 process
  hour    INTEGER NOT NULL,         -- since 1970
  key     TEXT NOT NULL,            -- '' for the default action and for an unknown process
  packets INTEGER NOT NULL,
  rows    INTEGER NOT NULL,
  last_ts INTEGER NOT NULL,
  PRIMARY KEY (kind, hour, key)
) STRICT, WITHOUT ROWID;

-- An event and each property that it is summed by; one without a name has no row of that kind.
CREATE VIEW denied_event (id, ts, sandbox, packets, kind, key) AS
  SELECT e.id, e.ts, e.sandbox, e.packets, k.column1,
    CASE k.column1 WHEN 1 THEN coalesce(e.name, e.remote_ip, '') WHEN 2 THEN e.remote_ip WHEN 3 THEN e.name
      WHEN 4 THEN e.sandbox WHEN 5 THEN coalesce(e.rule, '') ELSE coalesce(e.command, '') END
  FROM event e CROSS JOIN (VALUES (1), (2), (3), (4), (5), (6)) k
  WHERE e.action = 2;

-- Events that are still to be summed, by their numbers: of a file that has many that takes its time, a slice after the other.
CREATE TABLE unsummed (
  next INTEGER NOT NULL,
  last INTEGER NOT NULL
) STRICT;
INSERT INTO unsummed SELECT min(id), max(id) FROM event HAVING count(*) > 0;
