-- SPDX-License-Identifier: Apache-2.0
-- Each change of a review task has a number, the last one stands in the task: whoever copies tasks elsewhere asks for those
-- behind the number that it has.
ALTER TABLE review ADD COLUMN change INTEGER NOT NULL DEFAULT 0;
CREATE TABLE review_change (last INTEGER NOT NULL) STRICT;
INSERT INTO review_change SELECT coalesce(max(id), 0) FROM review;
UPDATE review SET change = id;
CREATE INDEX review_by_change ON review (change);
CREATE TRIGGER review_opened AFTER INSERT ON review BEGIN
  UPDATE review_change SET last = last + 1;
  UPDATE review SET change = (SELECT last FROM review_change) WHERE id = NEW.id;
END;
CREATE TRIGGER review_changed AFTER UPDATE OF port, protocol, packets, rows, last_ts, state, who, decided_ts ON review BEGIN
  UPDATE review_change SET last = last + 1;
  UPDATE review SET change = (SELECT last FROM review_change) WHERE id = NEW.id;
END;
