-- The number of a review task that has gone is never another's.
CREATE TABLE review_number (
  last INTEGER NOT NULL                   -- the highest of those that went
) STRICT;
INSERT INTO review_number SELECT coalesce(max(id), 0) FROM review;
CREATE TRIGGER review_went AFTER DELETE ON review BEGIN
  UPDATE review_number SET last = max(last, OLD.id);
END;
