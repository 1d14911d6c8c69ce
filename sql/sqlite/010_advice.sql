-- SPDX-License-Identifier: Apache-2.0
-- The value of --allow that would have let a denial through, and the one that a review task's rule is made of.
ALTER TABLE event ADD COLUMN advice TEXT;
ALTER TABLE review ADD COLUMN advice TEXT;
UPDATE review SET advice = iif(is_name = 1, destination, iif(port IS NULL, NULL, iif(instr(destination, ':'), '[' || destination || ']',
  destination) || iif(protocol = 17, ':udp/', ':tcp/') || port)) WHERE destination <> '';
