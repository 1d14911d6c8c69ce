-- SPDX-License-Identifier: Apache-2.0
-- The allowed name that a denied one could be taken for, when it was denied; and that of a review task.
ALTER TABLE event ADD COLUMN looks_like TEXT;
ALTER TABLE review ADD COLUMN looks_like TEXT;
