-- SPDX-License-Identifier: Apache-2.0
-- The store of Weir 0.1.0, which is version 12: those before it were never released. Times are milliseconds since 1970.

-- Which file this is: whoever copies its rows elsewhere has to know one from another.
CREATE TABLE store (
  id TEXT NOT NULL                  -- 32 hexadecimal digits
) STRICT;
INSERT INTO store VALUES (lower(hex(randomblob(16))));

-- Events, one row for what was folded in a short window.
CREATE TABLE event (
  id          INTEGER PRIMARY KEY,
  ts          INTEGER NOT NULL,     -- of the first occurrence
  sandbox     TEXT NOT NULL,        -- '' when it has no name
  action      INTEGER NOT NULL,     -- 1 allow, 2 deny, 3 panic, 4 change, 5 limit, 6 fail, 7 ask
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
  command     TEXT,
  allowable   INTEGER,              -- a rule for just this would have let it through: only that opens a review task
  advice      TEXT,                 -- the value of --allow that would have
  looks_like  TEXT                  -- the allowed name that this one could be taken for
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

-- What was denied, summed by the hour and by one property: a day's denials are counted from some thousand rows, however many
-- events there were. An hour goes when its events go.
CREATE TABLE denied (
  kind    INTEGER NOT NULL,         -- 1 destination, 2 address, 3 name, 4 sandbox, 5 rule, 6 process
  hour    INTEGER NOT NULL,         -- since 1970
  key     TEXT NOT NULL,            -- '' for the default action and for an unknown process
  packets INTEGER NOT NULL,
  rows    INTEGER NOT NULL,
  last_ts INTEGER NOT NULL,
  PRIMARY KEY (kind, hour, key)
) STRICT, WITHOUT ROWID;

-- An event and each property that it is summed by; one without a name has no row of that kind. What a batch brought is found by
-- its numbers: an index by action, in which a million others stand, is the wrong way there.
CREATE VIEW denied_written (id, ts, sandbox, packets, kind, key) AS
  SELECT e.id, e.ts, e.sandbox, e.packets, k.column1,
    CASE k.column1 WHEN 1 THEN coalesce(e.name, e.remote_ip, '') WHEN 2 THEN e.remote_ip WHEN 3 THEN e.name
      WHEN 4 THEN e.sandbox WHEN 5 THEN coalesce(e.rule, '') ELSE coalesce(e.command, '') END
  FROM event e NOT INDEXED CROSS JOIN (VALUES (1), (2), (3), (4), (5), (6)) k
  WHERE e.action = 2;

-- What was let through, as table denied.
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
CREATE VIEW activity_written (id, ts, action, packets, bytes, scope) AS
  SELECT e.id, e.ts, e.action, e.packets, e.bytes, iif(k.column1 = 1, '*', '=' || e.sandbox)
  FROM event e NOT INDEXED CROSS JOIN (VALUES (1), (2)) k;

-- What a sandbox was denied and a rule could allow, for somebody to decide: one row for each sandbox and destination.
CREATE TABLE review (
  id          INTEGER PRIMARY KEY,
  sandbox     TEXT NOT NULL,
  destination TEXT NOT NULL,              -- name or address; '': more than a sandbox may have tasks for
  is_name     INTEGER NOT NULL,
  port        INTEGER,                    -- of the last denial, where it had one
  protocol    INTEGER,
  packets     INTEGER NOT NULL,
  rows        INTEGER NOT NULL,
  first_ts    INTEGER NOT NULL,
  last_ts     INTEGER NOT NULL,
  state       INTEGER NOT NULL DEFAULT 1, -- 1 open, 2 accepted, 3 dismissed
  who         TEXT,                       -- decided it
  decided_ts  INTEGER,
  change      INTEGER NOT NULL DEFAULT 0, -- the number of its last change: whoever copies tasks asks for those behind one
  told        INTEGER NOT NULL DEFAULT 0, -- who has been told that it is open: 1 the webhooks, 2 the command
  advice      TEXT,                       -- the value of --allow that its rule is made of
  looks_like  TEXT,
  UNIQUE (sandbox, destination)
) STRICT;
CREATE INDEX review_by_state ON review (state, last_ts);
CREATE INDEX review_by_change ON review (change);
CREATE INDEX review_untold ON review (id) WHERE state = 1 AND told < 3;

CREATE TABLE review_change (last INTEGER NOT NULL) STRICT;
INSERT INTO review_change VALUES (0);
CREATE TRIGGER review_opened AFTER INSERT ON review BEGIN
  UPDATE review_change SET last = last + 1;
  UPDATE review SET change = (SELECT last FROM review_change) WHERE id = NEW.id;
END;
CREATE TRIGGER review_changed AFTER UPDATE OF port, protocol, packets, rows, last_ts, state, who, decided_ts ON review BEGIN
  UPDATE review_change SET last = last + 1;
  UPDATE review SET change = (SELECT last FROM review_change) WHERE id = NEW.id;
END;
-- A task that opens again is news again.
CREATE TRIGGER review_reopened AFTER UPDATE OF state ON review WHEN NEW.state = 1 AND OLD.state <> 1 BEGIN
  UPDATE review SET told = 0 WHERE id = NEW.id;
END;

-- The number of a task that has gone is never another's.
CREATE TABLE review_number (
  last INTEGER NOT NULL                   -- the highest of those that went
) STRICT;
INSERT INTO review_number VALUES (0);
CREATE TRIGGER review_went AFTER DELETE ON review BEGIN
  UPDATE review_number SET last = max(last, OLD.id);
END;

-- Tries to tell somebody of a review task, until all of them are told.
CREATE TABLE review_try (
  review INTEGER NOT NULL,
  whom   INTEGER NOT NULL,                -- 2 the command, 4 and on a webhook
  tries  INTEGER NOT NULL,                -- that were begun
  after  INTEGER,                         -- not again before; NULL: it was told
  PRIMARY KEY (review, whom)
) STRICT, WITHOUT ROWID;
CREATE TRIGGER review_try_went AFTER DELETE ON review BEGIN
  DELETE FROM review_try WHERE review = OLD.id;
END;
CREATE TRIGGER review_try_anew AFTER UPDATE OF told ON review WHEN NEW.told IN (0, 3) BEGIN
  DELETE FROM review_try WHERE review = NEW.id;
END;

-- What the store believes of the wall clock: see events/sqlite_file.h.
CREATE TABLE age (
  trusted_ms INTEGER NOT NULL,            -- a time that has surely come
  doubted_ms INTEGER NOT NULL             -- the wall clock is far ahead of that since this time of its own; 0: it isn't
) STRICT;
