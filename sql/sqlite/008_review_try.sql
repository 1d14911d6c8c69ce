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
