-- SPDX-License-Identifier: Apache-2.0
-- Who has been told that a task is open: 1 the webhooks, 2 the command. One that opens again is news again.
ALTER TABLE review ADD COLUMN told INTEGER NOT NULL DEFAULT 0;
UPDATE review SET told = 3;
CREATE INDEX review_untold ON review (id) WHERE state = 1 AND told < 3;
CREATE TRIGGER review_reopened AFTER UPDATE OF state ON review WHEN NEW.state = 1 AND OLD.state <> 1 BEGIN
  UPDATE review SET told = 0 WHERE id = NEW.id;
END;
