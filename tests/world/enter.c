/* SPDX-License-Identifier: Apache-2.0 */
/* Become who a test wants, by steps, and then run a program. One exec() in the place of
 * nsenter's, unshare's, a shell's, mount's and setpriv's: tests start thousands of
 * programs.
 *
 *   enter [net PATH] [cgroup PATH] [mounts] [bind FROM TO]... [nnp] [user UID GID GROUPS
 * BOUNDING INHERITABLE] -- PROGRAM...
 *
 * GROUPS: numbers with commas between them, or -. The capabilities are masks; all that
 * are inheritable are ambient too.
 */
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <linux/capability.h>
#include <sched.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

static void need(int done, const char *what)
{
	if (done >= 0)
		return;
	fprintf(stderr, "enter: %s: %s\n", what, strerror(errno));
	_exit(126);
}

static void net(const char *path)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);

	need(fd, path);
	need(setns(fd, CLONE_NEWNET), path);
	close(fd);
}

static void cgroup(const char *path)
{
	int fd = open(path, O_WRONLY | O_CLOEXEC);

	need(fd, path);
	need((int)write(fd, "0", 1), path);
	close(fd);
}

static void mounts(void)
{
	need(unshare(CLONE_NEWNS), "unshare");
	need(mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL), "make private");
}

static void capabilities(uint64_t inheritable)
{
	struct __user_cap_header_struct head = { _LINUX_CAPABILITY_VERSION_3, 0 };
	struct __user_cap_data_struct caps[2];

	need((int)syscall(SYS_capget, &head, caps), "capget");
	for (int i = 0; i < 2; i++)
		caps[i].inheritable = (uint32_t)(inheritable >> 32 * i);
	need((int)syscall(SYS_capset, &head, caps), "capset");
}

static void user(char **words)
{
	uint64_t bounding = strtoull(words[3], NULL, 16),
		 inheritable = strtoull(words[4], NULL, 16);
	uid_t uid = (uid_t)strtoul(words[0], NULL, 10);
	gid_t gid = (gid_t)strtoul(words[1], NULL, 10), groups[64];
	size_t count = 0;

	for (char *word = strtok(words[2], ",-"); word && count < 64;
	     word = strtok(NULL, ","))
		groups[count++] = (gid_t)strtoul(word, NULL, 10);
	for (unsigned int cap = 0; cap < 64; cap++)
		if (!(bounding >> cap & 1) && prctl(PR_CAPBSET_READ, cap, 0, 0, 0) >= 0)
			need(prctl(PR_CAPBSET_DROP, cap, 0, 0, 0), "bounding set");
	capabilities(inheritable);
	need(setgroups(count, groups), "setgroups");
	need(setresgid(gid, gid, gid), "setresgid");
	need(prctl(PR_SET_KEEPCAPS, 1, 0, 0, 0), "keep capabilities");
	need(setresuid(uid, uid, uid), "setresuid");
	for (unsigned int cap = 0; uid && cap < 64; cap++)
		if (inheritable >> cap & 1)
			need(prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_RAISE, cap, 0, 0),
			     "ambient");
}

int main(int argc, char **argv)
{
	char **word = argv + 1;

	for (; word - argv + 1 < argc && strcmp(*word, "--"); word++) {
		if (!strcmp(*word, "net"))
			net(*++word);
		else if (!strcmp(*word, "cgroup"))
			cgroup(*++word);
		else if (!strcmp(*word, "mounts"))
			mounts();
		else if (!strcmp(*word, "bind"))
			need(mount(word[1], word[2], NULL, MS_BIND, NULL), word[2]),
				word += 2;
		else if (!strcmp(*word, "nnp"))
			need(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), "no new privileges");
		else if (!strcmp(*word, "user"))
			user(word + 1), word += 5;
		else
			errno = EINVAL, need(-1, *word);
	}
	execvp(word[1], word + 1);
	fprintf(stderr, "enter: %s: %s\n", word[1], strerror(errno));
	return errno == ENOENT ? 127 : 126;
}
