// SPDX-License-Identifier: Apache-2.0
#include "tools/tools.h"

#include <errno.h>
#include <string.h>

#include "base/exit_status.h"
#include "base/jansson.h"
#include "base/log.h"
#include "policy/load.h"
#include "sys/files.h"
#include "sys/options.h"
#include "sys/print.h"

/* === `weir profile` === */

enum {
	PROFILES_MAX = 512, /* what is over is not listed, and said to be */
	NAME_COLUMNS = 16,
	STATUS_FAILED = 1,
};

struct profile {
	const char *name, *path, *title; /* in the arena */
};

struct profiles {
	struct arena arena;
	struct profile items[PROFILES_MAX];
	size_t count;
	bool more, out_of_memory;
};

/* --- finding them --- */

/* The first comment that isn't a licence says what the profile is for: of "# notebook:
 * default, and what notebooks need. Meant for …" what stands behind the name, to the end
 * of the sentence or the line. */
static struct text title_of(struct text text, struct text name)
{
	static const char licence[] = "SPDX-";
	struct text line;
	const char *end;

	while (text_split(&text, '\n', &line)) {
		line = text_trim(line);
		if (line.len < 2 || line.ptr[0] != '#')
			continue;
		line = text_trim((struct text){ line.ptr + 1, line.len - 1 });
		if (line.len == 0 || memmem(line.ptr, line.len, licence, strlen(licence)))
			continue;
		if (line.len > name.len + 1 &&
		    memcmp(line.ptr, name.ptr, name.len) == 0 &&
		    line.ptr[name.len] == ':')
			line = text_trim((struct text){ line.ptr + name.len + 1,
							line.len - name.len - 1 });
		end = memmem(line.ptr, line.len, ". ", 2);
		if (end)
			line.len = (size_t)(end - line.ptr);
		else if (line.len > 0 && line.ptr[line.len - 1] == '.')
			line.len--;
		return line;
	}
	return (struct text){ "", 0 };
}

/* The folder that is searched first is added first; it hides the same name in a later
 * one. */
static void add(struct profiles *p, struct text name, const char *path, struct text text)
{
	struct profile profile;

	profile.name = arena_text(&p->arena, name);
	profile.path = arena_text(&p->arena, text_of(path));
	profile.title = arena_text(&p->arena, text_of(TEXT_SHOWN(title_of(text, name))));
	if (!profile.name || !profile.path || !profile.title)
		p->out_of_memory = true;
	for (size_t i = 0; profile.name && i < p->count; i++)
		if (strcmp(p->items[i].name, profile.name) == 0)
			return;
	if (p->out_of_memory)
		return;
	if (p->count == PROFILES_MAX)
		p->more = true;
	else
		p->items[p->count++] = profile;
}

static void add_folder(struct profiles *p, const char *folder)
{
	static const char suffix[] = ".yaml";
	const size_t suffix_len = sizeof(suffix) - 1;
	CLEAN(directory) DIR *dir = folder ? opendir(folder) : NULL;
	struct dirent *entry;

	while (dir && (entry = readdir(dir))) {
		const size_t len = strlen(entry->d_name);
		struct text text = { "", 0 };
		struct err err = { 0 };
		const char *path;

		if (len <= suffix_len || entry->d_name[0] == '.' ||
		    strcmp(entry->d_name + len - suffix_len, suffix) != 0)
			continue;
		path = arena_printf(&p->arena, "%s/%s", folder, entry->d_name);
		if (path && cli_read_owned(path, &p->arena, &text, &err) < 0)
			log_warning("%s", err.text);
		else if (path)
			add(p, (struct text){ entry->d_name, len - suffix_len }, path,
			    text);
	}
}

static int by_name(const void *a, const void *b)
{
	return strcmp(((const struct profile *)a)->name,
		      ((const struct profile *)b)->name);
}

static int find_all(struct profiles *p)
{
	const struct policy_embedded *e;

	add_folder(p, cli_user_profiles(&p->arena));
	add_folder(p, CLI_ETC_PROFILES);
	for (size_t i = 0; (e = policy_embedded_at(i)); i++) {
		const char *path = arena_printf(&p->arena, POLICY_BUILT_IN "%s", e->name);

		if (path)
			add(p, text_of(e->name), path, e->text);
		else
			p->out_of_memory = true;
	}
	if (p->out_of_memory)
		return -ENOMEM;
	qsort(p->items, p->count, sizeof(p->items[0]), by_name);
	return 0;
}

/* --- showing them --- */

static int list_json(const struct profiles *p)
{
	json_t *all = json_array();

	for (size_t i = 0; i < p->count; i++)
		json_array_append_new(all, json_pack("{s:s, s:s, s:s}", "name",
						     p->items[i].name, "path",
						     p->items[i].path, "title",
						     p->items[i].title));
	return print_json(all, 0, stdout);
}

static void list_text(const struct profiles *p)
{
	const unsigned int width = term_width(stdout);

	for (size_t i = 0; i < p->count; i++) {
		const struct profile *item = &p->items[i];
		int column = printf("%-*s  ", NAME_COLUMNS, item->name);

		term_wrap(stdout, item->title[0] ? item->title : item->path,
			  (unsigned int)column, NAME_COLUMNS + 2, width);
	}
	if (p->more)
		puts("… and more");
}

static int list_profiles(bool json)
{
	CLEAN(mem) struct profiles *p = calloc(1, sizeof(*p));
	int r = p ? find_all(p) : -ENOMEM;

	if (r == 0 && json)
		r = list_json(p);
	else if (r == 0)
		list_text(p);
	if (p)
		arena_done(&p->arena);
	if (r < 0)
		log_error("cannot list the profiles: %s", strerror(-r));
	return run_status_of(r);
}

static int show(const char *name, bool json)
{
	CLEAN(arena) struct arena arena = { 0 };
	struct err err = { 0 };
	const char *path;
	struct text text;
	int r = cli_profile_load(&arena, name, &text, &path, &err);

	if (r < 0)
		return log_end(RUN_STATUS_BAD_INPUT, "'%s': %s", SHOWN(name), err.text);
	if (!json) {
		fwrite(text.ptr, 1, text.len, stdout);
		return 0;
	}
	r = print_json(json_pack("{s:s, s:s, s:s%}", "name", name, "path", path, "text",
				 text.ptr, text.len),
		       0, stdout);
	return r < 0 ? RUN_STATUS_FAILED : 0;
}

/* --- the verb --- */

static const struct cli_option profile_options[] = {
	{ "json", NULL, "print JSON", .kind = OPTION_FLAG },
};
const struct cli_options cli_profile_options = {
	OPTION_ROWS(profile_options),
	.usage = "usage: weir profile list [OPTION]...\n"
		 "       weir profile show [OPTION]... NAME\n\n"
		 "List the profiles that --profile and `extends` know, or print one.\n",
};

static int bad_profile_usage(const char *why)
{
	return log_end(RUN_STATUS_BAD_INPUT,
		       "%s; `weir help profile` lists what there is", why);
}

int cli_profile(int argc, char **argv)
{
	const char *word = argc > 1 ? argv[1] : "";
	struct err err = { 0 };
	bool json = false;
	int first;

	if (strcmp(word, "list") != 0 && strcmp(word, "show") != 0)
		return bad_profile_usage("profile needs a verb: list or show");
	first = cli_options_parse(&cli_profile_options, &json, argc - 1, argv + 1, NULL,
				  &err);
	if (first < 0)
		return bad_profile_usage(err.text);
	if (strcmp(word, "list") == 0)
		return argc - 1 > first ? bad_profile_usage("list takes no argument")
					: list_profiles(json);
	if (argc - 1 != first + 1)
		return bad_profile_usage("show takes one profile");
	return show(argv[first + 1], json);
}
