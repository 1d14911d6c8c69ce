// SPDX-License-Identifier: Apache-2.0
#include "container/options.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "container/container.h"
#include "container/volumes.h"
#include "event/json.h"
#include "outputs/client.h"
#include "sys/confine.h"

#define WEIR_IMAGE "weir:latest"

enum {
	PIDS_LIMIT = 4096,
	PIDS_MOST = 4194304, /* the kernel's largest number of a process */
};

#define IN(KIND, field) OPTION_IN(KIND, struct container_spec, field)

static const struct cli_option options[] = {
	{ "image", "IMAGE", "the image; it has to be there already",
	  IN(TEXT_ONCE, image) },
	POLICY_ARGS_ROWS(struct container_spec, policy),
	POLICY_VERIFY_ROW(
		struct container_spec, policy,
		"what is checked of connections, whatever the policy says (tls)"),
	{ "engine", "any|docker|podman", "whose API is asked (whichever is there)",
	  IN(WORD, engine) },
	{ "guard", "auto|sidecar|daemon",
	  "what guards it (the daemon where one runs, else a sidecar)", IN(WORD, guard) },
	{ "weir-image", "IMAGE", "the image of the sidecar (" WEIR_IMAGE ")",
	  IN(TEXT_ONCE, weir_image) },
	{ "socket", "PATH", "where the daemon's API is (/run/weir/weir.sock)",
	  IN(TEXT, socket) },
	{ "id", "NAME", "what the sandbox is called, and its container (weir-RANDOM)",
	  IN(TEXT_ONCE, id) },
	{ "network", "NAME", "a network of the engine's (its default one)",
	  IN(TEXT_ONCE, network) },
	{ "interactive", NULL, "standard input is the command's", IN(FLAG, interactive) },
	{ "tty", NULL, "the command has a terminal", IN(FLAG, tty) },
	{ "set-env", "NAME=VALUE", "set a variable; may be repeated", .separator = ' ',
	  IN(LIST, set_env) },
	{ "pass-env", "NAME", "a variable that is passed from here; may be repeated",
	  .separator = ' ', IN(LIST, pass_env) },
	{ "volume", "FROM:TO[:ro]", "mount a directory or a volume; may be repeated",
	  .separator = ' ', IN(LIST, volumes) },
	{ "workdir", "PATH", "the directory inside that the command starts in",
	  IN(TEXT_ONCE, workdir) },
	{ "user", "USER[:GROUP]", "who the command runs as (the image's)",
	  IN(TEXT_ONCE, user) },
	{ "entrypoint", "PATH", "the program, in place of the image's",
	  IN(TEXT_ONCE, entrypoint) },
	{ "cap-add", "NAME",
	  "a capability more; none that leads past the filter; may be repeated",
	  .separator = ' ', IN(LIST, caps) },
	{ "pids-limit", "N",
	  "processes and threads that there may be in the container (4096)",
	  IN(NUMBER, pids_limit), .least = 1, .most = PIDS_MOST },
	{ "privileged", NULL, "refused: such a container can take the filter away",
	  IN(FLAG, privileged) },
	{ "info-fd", "N",
	  "write a line of JSON there before the command starts; end with its reader",
	  IN(NUMBER, info_fd), .least = 3, .most = INT_MAX },
};

const struct cli_options cli_container_options = {
	OPTION_ROWS(options),
	.usage = "usage: weir container run --image IMAGE [OPTION]... [--] [COMMAND "
		 "[ARG]...]\n\n"
		 "Run a container of Docker or podman that reaches what its policy "
		 "lists.\nWithout a policy everything is denied.\n",
	.notes = "Exit status: the command's; 126 or 127 it can't be started; 2 bad "
		 "input; 125\nWeir's own failure. Nothing is left behind.\n",
};

/* -- what is refused ----------------------------------------------------------------- */

static void refuse(struct err *err, const char *what, const char *name, const char *why)
{
	struct err one = { 0 };

	err_set(&one, -EINVAL, "%s%s%s%s %s", what, name ? " '" : "",
		name ? SHOWN(name) : "", name ? "'" : "", why);
	(void)!err_also(err, &one);
}

static bool is_network_of(const char *network, const char *kind)
{
	return network && strncmp(network, kind, strlen(kind)) == 0;
}

/* -- what can't be said in JSON ------------------------------------------------------ */

static void check_text(const char *option, const char *text, struct err *err)
{
	if (text && !jtext_is_utf8(text_of(text)))
		refuse(err, option, text, "is not UTF-8, as the engine wants it");
}

static void check_list(const char *option, const struct option_list *list,
		       struct err *err)
{
	for (size_t i = 0; i < list->count; i++)
		check_text(option, list->items[i], err);
}

static void check_texts(const struct container_spec *s, struct err *err)
{
	check_text("--image", s->image, err);
	check_text("--weir-image", s->weir_image, err);
	check_text("--user", s->user, err);
	check_text("--workdir", s->workdir, err);
	check_text("--entrypoint", s->entrypoint, err);
	check_list("--set-env", &s->set_env, err);
	check_list("--pass-env", &s->pass_env, err);
	check_list("--volume", &s->volumes, err);
	for (size_t i = 0; i < s->pass_env.count; i++) {
		const char *value = getenv(s->pass_env.items[i]);

		if (value && !jtext_is_utf8(text_of(value))) /* it may be a secret */
			refuse(err, "--pass-env", s->pass_env.items[i],
			       "has a value that is not UTF-8, as the engine wants it");
	}
	for (size_t i = 0; s->argv[i]; i++)
		check_text("the command's argument", s->argv[i], err);
}

int container_check(const struct container_spec *s, struct err *err)
{
	if (!s->image)
		refuse(err, "--image", NULL, "is missing");
	if (s->guard == CONTAINER_GUARD_SIDECAR && s->socket)
		refuse(err, "--socket", NULL, "and --guard sidecar exclude each other");
	if (!ipc_is_sandbox_name(s->id) || !s->id[0] || strchr("-_.", s->id[0]))
		refuse(err, "--id", s->id,
		       "is not " DAEMON_ID_IS ", nor '-' or '_' there");
	for (size_t i = 0; i < s->set_env.count; i++)
		if (!strchr(s->set_env.items[i], '='))
			refuse(err, "--set-env", s->set_env.items[i],
			       "is not NAME=VALUE");
	if (s->info_fd > 0 && fcntl((int)s->info_fd, F_GETFD) < 0)
		refuse(err, "--info-fd", NULL, "is not an open descriptor");
	for (size_t i = 0; i < s->volumes.count; i++)
		if (!volume_is_well_formed(s->volumes.items[i]))
			refuse(err, "--volume", s->volumes.items[i],
			       "is not FROM:TO[:ro]: FROM an absolute path or a volume's "
			       "name, TO an absolute path");
	check_texts(s, err);
	/* What leads past the filter, or takes it away. */
	if (s->privileged)
		refuse(err, "--privileged", NULL,
		       "is refused: such a container can take the filter away");
	for (size_t i = 0; i < s->caps.count; i++)
		if (capability_undoes_filter(text_of(s->caps.items[i])) ||
		    capability_is(text_of(s->caps.items[i]), "NET_RAW"))
			refuse(err, "--cap-add", s->caps.items[i],
			       "is refused: with it the container can take the filter "
			       "away, or send past it");
	if (s->network && strcmp(s->network, "host") == 0)
		refuse(err, "--network", s->network,
		       "is refused: a container on the host's network has no filter of "
		       "its own");
	else if (is_network_of(s->network, "container:") ||
		 is_network_of(s->network, "ns:"))
		refuse(err, "--network", s->network,
		       "is refused: that network belongs to another container, whose "
		       "policy it would share");
	else if (s->network && strcmp(s->network, "none") == 0)
		refuse(err, "--network", s->network,
		       "has nothing to guard: the engine alone does as well");
	else if (s->network && strspn(s->network, TEXT_NAME_LETTERS) < strlen(s->network))
		refuse(err, "--network", s->network, "is not a network's name");
	return err->code;
}

int container_parse(int argc, char **argv, struct container_spec *ret, struct err *err)
{
	uint64_t number;
	int first;

	*ret = (struct container_spec){ .policy.verify = POLICY_VERIFY_TLS,
					.pids_limit = PIDS_LIMIT };
	first = cli_options_parse(&cli_container_options, ret, argc, argv, NULL, err);
	if (first < 0)
		return first;
	ret->argv = argv + first;
	if (!ret->weir_image)
		ret->weir_image = WEIR_IMAGE;
	if (ret->id)
		return 0;
	if (getrandom(&number, sizeof(number), 0) != sizeof(number))
		return err_sys(err, -errno, "cannot get a random number");
	/* 48 random bits. */
	snprintf(ret->made_id, sizeof(ret->made_id), "weir-%012llx",
		 (unsigned long long)(number >> 16));
	ret->id = ret->made_id;
	return 0;
}
