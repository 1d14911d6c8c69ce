// SPDX-License-Identifier: Apache-2.0
#include "launch/std_fds.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/magic.h>
#include <linux/major.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/vfs.h>
#include <termios.h>

#include "sys/files.h"

#ifndef PID_FS_MAGIC
#define PID_FS_MAGIC 0x50494446 /* since Linux 6.9 */
#endif

#ifndef SO_PASSRIGHTS
#define SO_PASSRIGHTS 83 /* since Linux 6.16 */
#endif

enum {
	FD_LINK_MAX = 32,	 /* "/proc/self/fd/N" */
	SCM_RIGHTS_MAX = 253,	 /* in one message: the kernel's limit */
	UNNAMED_MAX = 256 << 20, /* bytes that are copied; more: refused */
};

static const char *const names[] = { "input", "output", "error" };

static bool is_connected_unix_socket(int fd)
{
	struct sockaddr_storage peer;
	socklen_t size = sizeof(int), peer_size = sizeof(peer);
	int domain = 0, type = 0;

	if (getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &size) < 0 ||
	    getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &size) < 0)
		return false;
	return domain == AF_UNIX && (type == SOCK_STREAM || type == SOCK_SEQPACKET) &&
	       getpeername(fd, (struct sockaddr *)&peer, &peer_size) == 0;
}

/* The near side of a terminal: a pty's master types for whoever is at its other side, and
 * behind the majors that aren't here are modems. */
static bool is_terminal(dev_t device)
{
	enum { CONSOLE_MINORS = 2, BOARD_SERIAL_MAJOR = 204, HYPERVISOR_MAJOR = 229 };
	unsigned int number = major(device);

	switch (number) {
	case TTYAUX_MAJOR:
		return minor(device) < CONSOLE_MINORS;
	case TTY_MAJOR:
	case PTY_SLAVE_MAJOR:
	case BOARD_SERIAL_MAJOR:
	case HYPERVISOR_MAJOR:
		return true;
	default:
		return number >= UNIX98_PTY_SLAVE_MAJOR &&
		       number < UNIX98_PTY_SLAVE_MAJOR + UNIX98_PTY_MAJOR_COUNT;
	}
}

static bool is_harmless(int fd, const struct stat *st)
{
	const unsigned int number = minor(st->st_rdev);
	const int flags = fcntl(fd, F_GETFL);
	struct statfs fs;

	if (flags < 0 || (flags & O_PATH))
		return false;
	switch (st->st_mode & S_IFMT) {
	case S_IFREG:
		/* The kernel shows namespaces and processes as files, too. */
		return fstatfs(fd, &fs) == 0 && fs.f_type != NSFS_MAGIC &&
		       fs.f_type != PID_FS_MAGIC;
	case S_IFIFO:
		return true;
	case S_IFCHR:
		/* Of the memory devices: null, zero, full, random and urandom. */
		if (major(st->st_rdev) == MEM_MAJOR)
			return number == 3 || number == 5 || number == 7 || number == 8 ||
			       number == 9;
		return is_terminal(st->st_rdev) && isatty(fd);
	case S_IFSOCK:
		return is_connected_unix_socket(fd);
	default:
		return false;
	}
}

static bool message_has_fds(struct msghdr *m)
{
	bool has = m->msg_flags & MSG_CTRUNC;

	for (struct cmsghdr *c = CMSG_FIRSTHDR(m); c; c = CMSG_NXTHDR(m, c)) {
		int fd;

		if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS)
			continue;
		has = true;
		for (size_t at = 0; CMSG_LEN(at + sizeof(fd)) <= c->cmsg_len;
		     at += sizeof(fd)) {
			memcpy(&fd, CMSG_DATA(c) + at, sizeof(fd));
			close(fd);
		}
	}
	return has;
}

/* Who holds the other end could pass in a socket that is connected to anywhere. Nobody
 * can from now on, where the kernel has that (Linux 6.16); what waits already is looked
 * for, and left there. An older kernel says ENOPROTOOPT. The seccomp list keeps it so. */
static bool lets_fds_in(int fd, const struct stat *st)
{
	const int no = 0, start = 0, off = -1;
	char bytes[4096], control[CMSG_SPACE(sizeof(int) * SCM_RIGHTS_MAX)];
	bool has = false;

	if (!S_ISSOCK(st->st_mode))
		return false;
	if (setsockopt(fd, SOL_SOCKET, SO_PASSRIGHTS, &no, sizeof(no)) < 0 &&
	    errno != ENOPROTOOPT)
		return true;
	if (setsockopt(fd, SOL_SOCKET, SO_PEEK_OFF, &start, sizeof(start)) < 0)
		return true;
	while (!has) {
		struct iovec iov = { bytes, sizeof(bytes) };
		struct msghdr m = { .msg_iov = &iov,
				    .msg_iovlen = 1,
				    .msg_control = control,
				    .msg_controllen = sizeof(control) };

		if (recvmsg(fd, &m, MSG_PEEK | MSG_DONTWAIT | MSG_CMSG_CLOEXEC) <= 0)
			break;
		has = message_has_fds(&m);
	}
	return setsockopt(fd, SOL_SOCKET, SO_PEEK_OFF, &off, sizeof(off)) < 0 || has;
}

int std_fds_check(int control_fd, struct err *err)
{
	struct stat st;

	for (int fd = 0; fd < 3; fd++) {
		if (fd == control_fd || fstat(fd, &st) < 0)
			return err_set(
				err, -EPERM,
				"standard %s (descriptor %d) is closed; redirect it, for "
				"instance to /dev/null",
				names[fd], fd);
		if (!is_harmless(fd, &st))
			return err_set(
				err, -EPERM,
				"standard %s (descriptor %d) is a network socket, a unix "
				"socket without a peer, a directory or a device, which "
				"would lead out of the sandbox; connect it through a "
				"pipe (| cat)",
				names[fd], fd);
		if (lets_fds_in(fd, &st))
			return err_set(
				err, -EPERM,
				"standard %s (descriptor %d) is a unix socket in which "
				"descriptors wait, which would lead out of the sandbox; "
				"connect it through a pipe (| cat)",
				names[fd], fd);
	}
	return 0;
}

/* --- what the command could change --- */

/* Could the command open it for writing, or give itself the right to? */
static bool can_be_changed(int fd, bool root)
{
	char link[FD_LINK_MAX];
	struct stat st;

	if (fstat(fd, &st) < 0)
		return true;
	if (root)
		return st.st_mode & S_IWOTH;
	snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
	return st.st_uid == geteuid() || faccessat(AT_FDCWD, link, W_OK, AT_EACCESS) == 0;
}

unsigned int std_fds_changeable(bool root)
{
	unsigned int found = 0;

	for (int fd = 0; fd < 3; fd++)
		found |= can_be_changed(fd, root) ? 1U << fd : 0;
	return found;
}

bool std_fds_has_changeable_pipe(bool root)
{
	const int flags = fcntl(STDIN_FILENO, F_GETFL);
	struct stat st;

	return flags >= 0 && (flags & O_ACCMODE) != O_WRONLY &&
	       fstat(STDIN_FILENO, &st) == 0 && S_ISFIFO(st.st_mode) &&
	       can_be_changed(STDIN_FILENO, root);
}

/* The descriptor's own mount is one of the caller's namespace, which can't be copied
 * here: its path leads to that of this namespace.
 * Return: the file, open for reading on a mount that is read-only, or -errno. */
static int open_readonly(int of, const char *link)
{
	struct mount_attr attr = { .attr_set = MOUNT_ATTR_RDONLY };
	char path[PATH_MAX], tree_link[FD_LINK_MAX];
	ssize_t n = readlink(link, path, sizeof(path) - 1);
	CLEAN(fd) int again = -1;
	CLEAN(fd) int tree = -1;
	int fd, r;

	if (n < 0)
		return -errno;
	path[n] = '\0';
	r = path_reopen(of, path, &again);
	if (r < 0)
		return r;
	tree = open_tree(again, "", OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC | AT_EMPTY_PATH);
	if (tree < 0)
		return -errno;
	if (mount_setattr(tree, "", AT_EMPTY_PATH, &attr, sizeof(attr)) < 0)
		return -errno;
	snprintf(tree_link, sizeof(tree_link), "/proc/self/fd/%d", tree);
	fd = open(tree_link, O_RDONLY | O_CLOEXEC | O_NOCTTY);
	return fd < 0 ? -errno : fd;
}

/* A file without a name, as shells make one for a here-document, has no path to a mount.
 * Return: a copy that nobody can write to, or -errno. */
static int copy_unnamed(int of, off_t size)
{
	CLEAN(fd) int copy = memfd_create("weir-input", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	off_t from = 0;
	ssize_t n = 1;

	if (copy < 0)
		return -errno;
	if (size > UNNAMED_MAX)
		return -EFBIG;
	while (n > 0 && from < size)
		n = sendfile(copy, of, &from, (size_t)(size - from));
	if (n < 0 || fcntl(copy, F_ADD_SEALS,
			   F_SEAL_SEAL | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE) < 0)
		return -errno;
	return TAKE_FD(copy);
}

static int replace_fd(int fd, const char *link, const struct stat *st)
{
	off_t place = lseek(fd, 0, SEEK_CUR);
	CLEAN(fd)
	int file = st->st_nlink > 0 ? open_readonly(fd, link)
				    : copy_unnamed(fd, st->st_size);

	if (file < 0)
		return file;
	if (place < 0 || lseek(file, place, SEEK_SET) < 0 || dup2(file, fd) < 0)
		return -errno;
	return 0;
}

/* Nobody writes to standard input, which a caller may have open for both. */
static bool is_for_reading(int fd, int flags)
{
	const int access = flags & O_ACCMODE;

	return access == O_RDONLY || (access == O_RDWR && fd == STDIN_FILENO);
}

int std_fds_protect(unsigned int changeable, struct err *err)
{
	char link[FD_LINK_MAX];
	struct stat st;
	int r;

	for (int fd = 0; fd < 3; fd++) {
		const int flags = fcntl(fd, F_GETFL);

		if (flags < 0 || fstat(fd, &st) < 0)
			return err_sys(err, -errno, "cannot look at standard %s",
				       names[fd]);
		snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
		if (!is_for_reading(fd, flags) || !S_ISREG(st.st_mode))
			continue;
		r = replace_fd(fd, link, &st);
		if (r < 0 && ((flags & O_ACCMODE) != O_RDONLY || (changeable & 1U << fd)))
			return err_sys(err, r,
				       "cannot keep the command from changing the file "
				       "that is standard %s (descriptor %d); connect it "
				       "through a pipe (cat FILE |)",
				       names[fd], fd);
	}
	return 0;
}

int std_fds_enter_terminal(int slave, struct err *err)
{
	if (setsid() < 0 || ioctl(slave, TIOCSCTTY, 0) < 0)
		return err_sys(err, -errno, "cannot enter the command's terminal");
	for (int fd = 0; fd <= 2; fd++)
		if (isatty(fd) && dup3(slave, fd, 0) < 0)
			return err_sys(err, -errno, "cannot pass the command's terminal");
	return 0;
}

void std_state_read(struct std_state *ret)
{
	for (int fd = 0; fd < 3; fd++) {
		socklen_t size = sizeof(ret->send_timeout[fd]);
		struct termios t;

		ret->stop[fd] = tcgetattr(fd, &t) == 0 ? t.c_cc[VSTOP] : 0;
		ret->flags[fd] = fcntl(fd, F_GETFL);
		ret->send_timeout[fd] = (struct timeval){ 0 };
		(void)!getsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &ret->send_timeout[fd],
				  &size);
	}
}

/* Far behind the end the kernel takes no byte. */
static void leave_hole(int fd)
{
	struct stat st;

	if (fstat(fd, &st) == 0 && S_ISREG(st.st_mode) &&
	    lseek(fd, 0, SEEK_CUR) > st.st_size)
		lseek(fd, 0, SEEK_END);
}

/* Stopped by the byte @stop alone, and going on: any byte can be in what a terminal sends
 * when the command asks it. */
static void start_terminal(int fd, cc_t stop)
{
	struct termios t;

	if (tcgetattr(fd, &t) < 0)
		return;
	if (t.c_cc[VSTOP] != stop) {
		t.c_cc[VSTOP] = stop;
		(void)!tcsetattr(fd, TCSANOW, &t);
	}
	/* The second call starts only what the first has stopped. */
	(void)!tcflow(fd, TCOOFF);
	(void)!tcflow(fd, TCOON);
}

void std_state_restore(const struct std_state *s)
{
	const struct sigaction ignore = { .sa_handler = SIG_IGN };

	sigaction(SIGTTOU, &ignore, NULL);
	sigaction(SIGTSTP, &ignore, NULL);
	sigaction(SIGXFSZ, &ignore, NULL);
	for (int fd = 0; fd < 3; fd++) {
		if (s->flags[fd] < 0)
			continue;
		(void)!fcntl(fd, F_SETFL, s->flags[fd]);
		/* What is no socket has no such limit. */
		(void)!setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &s->send_timeout[fd],
				  sizeof(s->send_timeout[fd]));
		if ((s->flags[fd] & O_ACCMODE) != O_RDONLY)
			leave_hole(fd);
		start_terminal(fd, s->stop[fd]);
	}
}
