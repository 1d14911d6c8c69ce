-- SPDX-License-Identifier: Apache-2.0
-- What a batch brought is found by its numbers: an index by action, in which a million others stand, is the wrong way there.
CREATE VIEW denied_written (id, ts, sandbox, packets, kind, key) AS
  SELECT e.id, e.ts, e.sandbox, e.packets, k.column1,
    CASE k.column1 WHEN 1 THEN coalesce(e.name, e.remote_ip, '') WHEN 2 THEN e.remote_ip WHEN 3 THEN e.name
      WHEN 4 THEN e.sandbox WHEN 5 THEN coalesce(e.rule, '') ELSE coalesce(e.command, '') END
  FROM event e NOT INDEXED CROSS JOIN (VALUES (1), (2), (3), (4), (5), (6)) k
  WHERE e.action = 2;

-- As in 002, for a file whose events were summed at once.
CREATE TABLE IF NOT EXISTS unsummed (
  next INTEGER NOT NULL,
  last INTEGER NOT NULL
) STRICT;
