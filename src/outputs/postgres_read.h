// SPDX-License-Identifier: Apache-2.0
/* outputs/postgres_read - the service of weir-postgres that reads events back, for who
 * carries no libpq.
 *
 * Its arguments: the connection string; the wall clock of the first event in
 * milliseconds; where it is about one sandbox, the name of that. Events that are equal
 * but for their time, sandbox and rule are one. It writes struct event after struct event
 * to the descriptor INHERITED_FIRST. The last one has the action EVENT_NONE, without
 * which they aren't whole; its `packets` are the occurrences in events that were too many
 * to be read. */
#pragma once

#define POSTGRES_READ "read"
