-- SPDX-License-Identifier: Apache-2.0
-- Events of any number of sidecars. The first eight columns are what dashboards know; the others may be NULL, and a table
-- that is there already gets them.
-- Weir runs these files by itself where its role may; else somebody who may runs them in order.
CREATE TABLE IF NOT EXISTS sandbox_egress_schema (version INT PRIMARY KEY);
INSERT INTO sandbox_egress_schema VALUES (1) ON CONFLICT DO NOTHING;
CREATE TABLE IF NOT EXISTS sandbox_egress_event (
  id          BIGSERIAL PRIMARY KEY,
  analysis_id TEXT,             -- the sandbox
  ts          TIMESTAMPTZ,      -- of the first occurrence
  action      TEXT CHECK (action IN ('allow', 'deny', 'panic')),
  remote_ip   INET,
  remote_port INT,
  fqdn_pinned TEXT,             -- the name that was asked for or shown
  raw_pkts    INT               -- 2147483647 for more; packets has all
);
ALTER TABLE sandbox_egress_event
  ADD COLUMN IF NOT EXISTS layer TEXT,
  ADD COLUMN IF NOT EXISTS protocol TEXT,
  ADD COLUMN IF NOT EXISTS rule TEXT,
  ADD COLUMN IF NOT EXISTS rule_file TEXT,
  ADD COLUMN IF NOT EXISTS rule_line BIGINT,
  ADD COLUMN IF NOT EXISTS packets BIGINT,
  ADD COLUMN IF NOT EXISTS bytes BIGINT,
  ADD COLUMN IF NOT EXISTS reason TEXT,
  ADD COLUMN IF NOT EXISTS query_type INT,
  ADD COLUMN IF NOT EXISTS limit_id INT,
  ADD COLUMN IF NOT EXISTS uid BIGINT,
  ADD COLUMN IF NOT EXISTS pid BIGINT,
  ADD COLUMN IF NOT EXISTS command TEXT,
  ADD COLUMN IF NOT EXISTS store UUID,        -- which file it was stored in first, and its number there:
  ADD COLUMN IF NOT EXISTS store_row BIGINT;  -- no two rows have the same
CREATE UNIQUE INDEX IF NOT EXISTS sandbox_egress_event_once ON sandbox_egress_event (store, store_row);
CREATE INDEX IF NOT EXISTS sandbox_egress_event_ts ON sandbox_egress_event (ts);
CREATE INDEX IF NOT EXISTS sandbox_egress_event_analysis ON sandbox_egress_event (analysis_id, ts);

-- Events of other actions: changes of policy, limits that were reached, failures of what is allowed.
CREATE TABLE IF NOT EXISTS sandbox_egress_notice (
  id          BIGSERIAL PRIMARY KEY,
  analysis_id TEXT,
  ts          TIMESTAMPTZ,
  action      TEXT,
  remote_ip   INET,
  remote_port INT,
  fqdn_pinned TEXT,
  raw_pkts    INT,
  layer       TEXT,
  protocol    TEXT,
  rule        TEXT,
  rule_file   TEXT,
  rule_line   BIGINT,
  packets     BIGINT,
  bytes       BIGINT,
  reason      TEXT,
  query_type  INT,
  limit_id    INT,
  uid         BIGINT,
  pid         BIGINT,
  command     TEXT,
  store       UUID,
  store_row   BIGINT
);
CREATE UNIQUE INDEX IF NOT EXISTS sandbox_egress_notice_once ON sandbox_egress_notice (store, store_row);
CREATE INDEX IF NOT EXISTS sandbox_egress_notice_ts ON sandbox_egress_notice (ts);

-- How far each store has been copied. It changes in the transaction that brings the rows.
CREATE TABLE IF NOT EXISTS sandbox_egress_store (
  store   UUID PRIMARY KEY,
  sent    BIGINT NOT NULL,            -- the number of the last row
  missed  BIGINT NOT NULL DEFAULT 0,  -- rows that were let go before they could be copied
  refused BIGINT NOT NULL DEFAULT 0,  -- rows that the server would not take
  at      TIMESTAMPTZ NOT NULL DEFAULT now()
);
