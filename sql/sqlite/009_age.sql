-- What the store believes of the wall clock: see events/sqlite_tidy.h.
CREATE TABLE age (
  trusted_ms INTEGER NOT NULL,            -- a time that has surely come
  doubted_ms INTEGER NOT NULL             -- the wall clock is far ahead of that since this time of its own; 0: it isn't
) STRICT;
