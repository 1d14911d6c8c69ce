// SPDX-License-Identifier: Apache-2.0
#include "sys/home.h"

#include <pwd.h>

#include "sys/id_map.h"

static const char *variable(const char *name)
{
	const char *value = getenv(name);

	return value && value[0] == '/' ? value : NULL;
}

const char *home_directory(void)
{
	const struct passwd *user = id_map_is_root() ? getpwuid(0) : NULL;

	if (!user)
		return id_map_is_root() ? "/root" : variable("HOME");
	return user->pw_dir[0] == '/' ? user->pw_dir : "/root";
}

char *home_config(struct arena *arena, const char *name)
{
	const char *config = id_map_is_root() ? NULL : variable("XDG_CONFIG_HOME");
	const char *home = config ? NULL : home_directory();

	if (config)
		return arena_printf(arena, "%s/weir/%s", config, name);
	return home ? arena_printf(arena, "%s/.config/weir/%s", home, name) : NULL;
}
