-- SPDX-License-Identifier: Apache-2.0
-- Review tasks as they stand in each store: what was denied and a rule could allow. Weir writes them and reads nothing from
-- here: tasks are decided by its API and its command line, so that no row of a database opens a way out.
INSERT INTO sandbox_egress_schema VALUES (2) ON CONFLICT DO NOTHING;
CREATE TABLE IF NOT EXISTS sandbox_egress_review (
  store       UUID NOT NULL,    -- which file it is in, and its number there
  task        BIGINT NOT NULL,
  analysis_id TEXT,             -- the sandbox
  destination TEXT,             -- name or address; NULL: more than a sandbox may have tasks for
  remote_port INT,              -- of the last denial, where it had one
  protocol    TEXT,
  packets     BIGINT,
  events      BIGINT,
  first_ts    TIMESTAMPTZ,
  last_ts     TIMESTAMPTZ,
  state       TEXT CHECK (state IN ('open', 'accepted', 'dismissed')),
  who         TEXT,             -- decided it
  decided_ts  TIMESTAMPTZ,
  rule        JSONB,            -- that accepting adds
  PRIMARY KEY (store, task)
);
CREATE INDEX IF NOT EXISTS sandbox_egress_review_state ON sandbox_egress_review (state, last_ts);
ALTER TABLE sandbox_egress_store
  ADD COLUMN IF NOT EXISTS reviewed BIGINT NOT NULL DEFAULT 0;  -- the number of the last change of a task

-- What was denied, by the hour.
CREATE OR REPLACE VIEW sandbox_egress_denied AS
  SELECT date_trunc('hour', ts, 'UTC') AS hour, analysis_id, layer, fqdn_pinned, remote_ip, remote_port, protocol,
    sum(packets) AS packets, count(*) AS events, max(ts) AS last_ts
  FROM sandbox_egress_event WHERE action = 'deny' GROUP BY 1, 2, 3, 4, 5, 6, 7;
