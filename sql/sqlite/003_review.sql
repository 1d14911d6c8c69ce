-- SPDX-License-Identifier: Apache-2.0
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
  UNIQUE (sandbox, destination)
) STRICT;
CREATE INDEX review_by_state ON review (state, last_ts);
