// SPDX-License-Identifier: Apache-2.0
#include "cli/verbs.h"
#include "main/control.h"

int main(int argc, char **argv)
{
	const struct cli_hooks hooks = { .run = control_run };

	return cli_main(argc, argv, &hooks);
}
