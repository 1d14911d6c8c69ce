// SPDX-License-Identifier: Apache-2.0
/* container/remains - taking containers away, and no other's: a name, or a label, which
 * an image passes on, says little of whose a container is. */
#pragma once

#include "container/docker.h"

/* Both containers of the run with the label weir.run=@nonce, the app's first. Return: 0
 * also where there is none; -errno with @err. */
int remains_remove(const struct docker *e, const char *nonce, struct err *err) MUST_CHECK;
/* The container @id of that run is found by its label, and can be read: an image's own
 * labels can make of both what nobody reads. Return: 0, or -errno with @err. */
int remains_check(const struct docker *e, const char *nonce, const char *id,
		  struct err *err) MUST_CHECK;
/* What runs have left that were killed together with their watchers: the app's container,
 * and the guard's, which has ended by itself. An engine removes the app's first. */
void remains_sweep(const struct docker *e);
