// SPDX-License-Identifier: Apache-2.0
/* Any text as TOML: it is refused with a fault that has a place in the text, or it is a
 * tree within the limits whose keys differ. */
#include <string.h>

#include "policy/node.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(bool good)
{
	if (!good)
		__builtin_trap();
}

static void check(const struct node *n, int depth, uint32_t lines)
{
	size_t count = 0;

	require(depth <= 3 * NODE_DEPTH_MAX && n->line >= 1 && n->line <= lines);
	for (const struct node *c = n->first; c; c = c->next, count++) {
		check(c, depth + 1, lines);
		for (const struct node *o = c->next; n->kind == NODE_MAP && o;
		     o = o->next)
			require(o->key.len != c->key.len ||
				memcmp(o->key.ptr, c->key.ptr, c->key.len) != 0);
	}
	require(count == n->count);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	CLEAN(arena) struct arena arena = { 0 };
	struct faults faults = { 0 };
	const struct node_source source = { .arena = &arena,
					    .faults = &faults,
					    .file = "f",
					    .text = { (const char *)data, size },
					    .foreign = true };
	struct node *root = NULL;
	uint32_t lines = 1;

	for (size_t i = 0; i < size; i++)
		lines += data[i] == '\n';
	if (node_read_toml(&source, &root) < 0) {
		require(faults.count > 0 && faults.items[0].line >= 1 &&
			faults.items[0].line <= lines);
	} else if (root) {
		check(root, 0, lines);
	}
	faults_done(&faults);
	return 0;
}
