// SPDX-License-Identifier: Apache-2.0
/* HOW IT WORKS
 *
 * The file is written beside its place, checked (`nft -c`), loaded (`nft -f`, one
 * transaction: packets meet the old rules or the new ones), and takes its place then. If
 * loading fails everything is as it was. A file of that name that doesn't begin as ours
 * do, and a table of that name without a file of ours, are somebody else's: nothing is
 * done to them. */
#include "tools/render_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/exit_status.h"
#include "base/log.h"
#include "sys/files.h"
#include "sys/program_path.h"

#define FOLDER "/etc/nftables.d"

enum { PATH_SIZE = sizeof(FOLDER) + RENDER_ID_MAX + 32, HEAD_SIZE = 256 };

static int failed(const char *what, const char *path, int error)
{
	log_error("cannot %s %s: %s", what, path, strerror(-error));
	return RUN_STATUS_FAILED;
}

/* ---- nft ---- */

/* Return: its exit status, or -errno. */
static int nft(const char *const *args, bool quiet)
{
	char *const environment[] = { NULL };
	char path[PROGRAM_PATH_SIZE];
	int status = 0, null, r = program_path("nft", path, NULL);
	pid_t pid;

	if (r < 0)
		return -ENOENT;
	pid = fork();
	if (pid == 0) {
		null = quiet ? open("/dev/null", O_WRONLY | O_CLOEXEC) : -1;
		if (null >= 0 && (dup2(null, 1) < 0 || dup2(null, 2) < 0))
			_exit(127);
		execve(path, (char *const *)(uintptr_t)args, environment);
		_exit(127);
	}
	if (pid < 0)
		return -errno;
	while (waitpid(pid, &status, 0) < 0)
		if (errno != EINTR)
			return -errno;
	if (!WIFEXITED(status))
		return -ECHILD;
	return WEXITSTATUS(status) == 127 ? -ENOENT : WEXITSTATUS(status);
}

static bool nft_has_table(const char *table)
{
	const char *const args[] = { "nft", "-t", "list", "table", "inet", table, NULL };

	return nft(args, true) == 0;
}

/* Return: the exit status of ours, 0 when it went well. */
static int nft_must(const char *const *args, const char *what)
{
	int r = nft(args, false);

	if (r == -ENOENT)
		log_error("nft is not installed (Debian, Ubuntu: apt install nftables)");
	else if (r != 0)
		log_error("nft could not %s", what);
	return r == 0 ? 0 : RUN_STATUS_FAILED;
}

/* ---- files ---- */

static void path_of(const char *id, char ret[PATH_SIZE])
{
	snprintf(ret, PATH_SIZE, FOLDER "/weir-%s.nft", id);
}

/* Return: 1, it is one of ours; 0, there is none; -EEXIST, somebody else's; -errno. */
static int look(const char *id, const char *path)
{
	char head[HEAD_SIZE + 1] = "", first[HEAD_SIZE];
	const struct file_how how = { .anybodys = true };
	CLEAN(fd) int fd = file_open(AT_FDCWD, path, &how, NULL);
	size_t size = 0;
	int r;

	if (fd == -EINVAL || fd == -ELOOP)
		return -EEXIST;
	if (fd < 0)
		return fd == -ENOENT ? 0 : fd;
	r = file_read_at(fd, 0, head, HEAD_SIZE, &size);
	if (r < 0)
		return r;
	snprintf(first, sizeof(first), RENDER_FIRST_LINE "%s by weir ", id);
	return strncmp(head, first, strlen(first)) == 0 ? 1 : -EEXIST;
}

/* Return: 0, or the exit status. */
static int make_folder(void)
{
	if (mkdir(FOLDER, 0755) == 0) {
		log_warning("made " FOLDER
			    "; for the rules to be loaded at boot, /etc/nftables.conf "
			    "needs the line: include \"" FOLDER "/*.nft\"");
		return 0;
	}
	return errno == EEXIST ? 0 : failed("make", FOLDER, -errno);
}

static int write_file(const char *path, const char *text, size_t size)
{
	CLEAN(fd) int fd = file_create(AT_FDCWD, path, 0644);
	int r = fd < 0 ? fd : file_write_all(fd, text, size);

	if (r == 0 && fsync(fd) < 0)
		r = -errno;
	if (fd >= 0 && r < 0)
		(void)!unlink(path);
	return r;
}

/* So that the name outlives a power cut, too. */
static void sync_folder(void)
{
	CLEAN(fd) int fd = open(FOLDER, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	if (fd >= 0)
		(void)!fsync(fd);
}

/* ---- public ---- */

static int must_be_root(const char *verb)
{
	if (geteuid() == 0)
		return 0;
	log_error("%s needs root", verb);
	return RUN_STATUS_FAILED;
}

/* Return: 0, or the exit status. */
static int may_replace(const char *id, const char *path)
{
	char table[RENDER_TABLE_SIZE];
	int r = look(id, path);

	render_table_name(id, table);
	if (r == 1)
		return 0;
	if (r == -EEXIST) {
		log_error("%s is not one of Weir's: take another --id", path);
		return RUN_STATUS_FAILED;
	}
	if (r < 0)
		return failed("read", path, r);
	if (!nft_has_table(table))
		return 0;
	log_error("there is a table inet %s without %s: take another --id, or `weir "
		  "teardown %s` first",
		  table, path, id);
	return RUN_STATUS_FAILED;
}

static int load_and_place(const char *fresh, const char *path)
{
	const char *const check[] = { "nft", "-c", "-f", fresh, NULL };
	const char *const load[] = { "nft", "-f", fresh, NULL };
	int status = nft_must(check, "take the rules; nothing was changed");

	if (status == 0)
		status = nft_must(load, "load the rules; nothing was changed");
	if (status == 0 && rename(fresh, path) < 0)
		status = failed("write", path, -errno);
	return status;
}

int render_install(const char *id, const char *text, size_t size)
{
	char path[PATH_SIZE], fresh[PATH_SIZE];
	int status = must_be_root("--install"), r;

	path_of(id, path);
	snprintf(fresh, sizeof(fresh), FOLDER "/.weir-%s.new", id);
	if (status == 0)
		status = make_folder();
	if (status == 0)
		status = may_replace(id, path);
	if (status != 0)
		return status;
	r = write_file(fresh, text, size);
	if (r < 0)
		return failed("write", fresh, r);
	status = load_and_place(fresh, path);
	if (status != 0)
		(void)!unlink(fresh);
	sync_folder();
	return status;
}

int render_teardown(const char *id)
{
	char path[PATH_SIZE], table[RENDER_TABLE_SIZE];
	const char *const args[] = { "nft", "delete", "table", "inet", table, NULL };
	int r, status = must_be_root("teardown");
	bool has_table;

	path_of(id, path);
	render_table_name(id, table);
	if (status != 0)
		return status;
	r = look(id, path);
	if (r == -EEXIST)
		log_error("%s is not one of Weir's", path);
	else if (r < 0)
		return failed("read", path, r);
	if (r < 0)
		return RUN_STATUS_FAILED;
	has_table = nft_has_table(table);
	if (r == 0 && !has_table) {
		log_error("there is nothing of that id: neither %s nor a table inet %s",
			  path, table);
		return RUN_STATUS_FAILED;
	}
	/* The file first: should what follows fail, the rules are closed yet, and a boot
	 * finds what a person asked for. */
	if (r == 1 && unlink(path) < 0)
		return failed("remove", path, -errno);
	sync_folder();
	return has_table ? nft_must(args, "take the table away") : 0;
}
