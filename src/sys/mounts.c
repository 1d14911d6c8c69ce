// SPDX-License-Identifier: Apache-2.0
#include "sys/mounts.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/text.h"
#include "sys/files.h"

bool path_is_within(const char *path, const char *top)
{
	size_t len = strlen(top);

	if (len == 1)
		return true;
	return strncmp(path, top, len) == 0 && (path[len] == '\0' || path[len] == '/');
}

int path_clean(const char *path, char ret[PATH_MAX])
{
	size_t len = 0;

	while (*path) {
		const size_t n = strcspn(path, "/");

		if (n == 2 && strncmp(path, "..", 2) == 0)
			return -EINVAL;
		if (len + n + 2 > PATH_MAX)
			return -ENAMETOOLONG;
		if (n > 1 || (n == 1 && *path != '.'))
			len += (size_t)snprintf(ret + len, PATH_MAX - len, "/%.*s",
						(int)n, path);
		path += n;
		path += *path == '/';
	}
	ret[len] = '\0';
	return 0;
}

/* The first mount that sorts at @path or after it. */
static size_t lower_bound(const struct mounts *m, const char *path)
{
	size_t low = 0, high = m->count;

	while (low < high) {
		size_t middle = low + (high - low) / 2;

		if (strcmp(m->list[middle].path, path) < 0)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

bool mounts_has_below(const struct mounts *m, const char *path)
{
	char prefix[PATH_MAX + 1];
	size_t n = (size_t)snprintf(prefix, sizeof(prefix), "%s/", path[1] ? path : ""),
	       i;

	if (n >= sizeof(prefix))
		return false;
	i = lower_bound(m, prefix);
	/* "/" sorts at its own prefix and isn't below itself. */
	while (i < m->count && strcmp(m->list[i].path, prefix) == 0)
		i++;
	return i < m->count && strncmp(m->list[i].path, prefix, n) == 0;
}

const struct mount *mounts_find(const struct mounts *m, const char *path)
{
	size_t i = lower_bound(m, path);

	return i < m->count && strcmp(m->list[i].path, path) == 0 ? &m->list[i] : NULL;
}

const struct mount *mounts_holding(const struct mounts *m, const char *path)
{
	const struct mount *found = NULL;

	/* Sorted: of those that hold it, the longest comes last. */
	for (size_t i = 0; i < m->count; i++)
		if (path_is_within(path, m->list[i].path))
			found = &m->list[i];
	return found;
}

const struct mount *mounts_numbered(const struct mounts *m, uint64_t id)
{
	for (size_t i = 0; i < m->count; i++)
		if (m->list[i].id == id)
			return &m->list[i];
	return NULL;
}

const struct mount *mounts_containing(const struct mounts *m, const char *path)
{
	struct statx st;

	if (statx(AT_FDCWD, path, AT_SYMLINK_NOFOLLOW | AT_NO_AUTOMOUNT, STATX_MNT_ID,
		  &st) < 0 ||
	    !(st.stx_mask & STATX_MNT_ID))
		return NULL;
	return mounts_numbered(m, st.stx_mnt_id);
}

bool mounts_is_hidden(const struct mounts *m, const struct mount *x)
{
	for (size_t depth = 0; x && depth < m->count; depth++) {
		const struct mount *parent = mounts_numbered(m, x->parent);

		for (const struct mount *y = m->list; y < m->list + m->count; y++) {
			/* On top of it, or at a directory that it was mounted below of
			 * before. */
			if ((y->parent == x->id && strcmp(y->path, x->path) == 0) ||
			    (y != x && y->parent == x->parent &&
			     path_is_within(x->path, y->path)))
				return true;
		}
		x = parent == x ? NULL : parent;
	}
	return false;
}

/* @path, which lies below @from, as it is called below @to. */
static bool rename_below(const char *path, const char *from, const char *to,
			 char ret[PATH_MAX])
{
	const char *rest = path + (from[1] ? strlen(from) : 0);
	int n;

	if (strcmp(rest, "/") == 0)
		rest = "";
	n = snprintf(ret, PATH_MAX, "%s%s", to[1] || !rest[0] ? to : "", rest);
	return n < PATH_MAX;
}

bool mount_inside(const struct mount *m, const char *path, char ret[PATH_MAX])
{
	return rename_below(path, m->path, m->root, ret);
}

bool mount_shows(const struct mount *m, const char *inside, char ret[PATH_MAX])
{
	return path_is_within(inside, m->root) &&
	       rename_below(inside, m->root, m->path, ret);
}

static bool begin_parts(const struct mounts *m, const char *path, uint64_t id,
			struct mount_part *part)
{
	const struct mount *of = mounts_numbered(m, id);

	if (!of || !mount_inside(of, path, part->inside))
		return false;
	part->of = of;
	part->path = path;
	return true;
}

bool mounts_next_part(const struct mounts *m, const char *path, uint64_t id,
		      struct mount_part *part)
{
	if (!part->of)
		return begin_parts(m, path, id, part);
	while (part->next < m->count) {
		const struct mount *x = &m->list[part->next++];

		if (!path_is_within(x->path, path) || strcmp(x->path, path) == 0)
			continue;
		part->of = x;
		part->path = x->path;
		snprintf(part->inside, sizeof(part->inside), "%s", x->root);
		return true;
	}
	return false;
}

bool mount_shows_part(const struct mount *m, const struct mount_part *part,
		      char ret[PATH_MAX])
{
	if (m == part->of || m->device != part->of->device)
		return false;
	if (mount_shows(m, part->inside, ret))
		return true;
	snprintf(ret, PATH_MAX, "%s", m->path);
	return path_is_within(m->root, part->inside);
}

bool mount_is_of_kernel(const struct mount *m)
{
	static const char *const types[] = {
		"proc",	      "sysfs",	    "cgroup",	"cgroup2",     "devpts",
		"devtmpfs",   "mqueue",	    "autofs",	"nsfs",	       "debugfs",
		"tracefs",    "securityfs", "configfs", "binfmt_misc", "efivarfs",
		"rpc_pipefs", "bpf",	    "pstore",	"fusectl",     "selinuxfs",
		"resctrl",    "binder",
	};

	return TEXT_FIND(text_of(m->type), types) != NULL;
}

static int compare_mounts(const void *a, const void *b)
{
	const struct mount *x = a, *y = b;
	int r = strcmp(x->path, y->path);

	if (r != 0)
		return r;
	/* Mounted on one another: the later line is the one on top. */
	return x->path < y->path ? -1 : 1;
}

/* "\040" and the like, as the kernel writes space, tab, newline and backslash. */
static void unescape(char *s)
{
	char *out = s;

	while (*s) {
		if (s[0] == '\\' && s[1] >= '0' && s[1] <= '3' && s[2] >= '0' &&
		    s[2] <= '7' && s[3] >= '0' && s[3] <= '7') {
			*out++ = (char)((s[1] - '0') << 6 | (s[2] - '0') << 3 |
					(s[3] - '0'));
			s += 4;
		} else {
			*out++ = *s++;
		}
	}
	*out = '\0';
}

/* One line: "36 35 98:0 /root /mnt/point opts [tags...] - type source opts". */
static bool parse_line(char *line, struct mount *ret)
{
	enum { ID, PARENT, DEVICE, ROOT, POINT, FIELDS };
	char *rest = strstr(line, " - "), *fields[FIELDS];
	const char *device, *end;
	uint32_t major, minor;
	struct mount m;

	if (!rest)
		return false;
	*rest = '\0';
	rest += strlen(" - ");
	m.type = strsep(&rest, " ");
	for (size_t i = 0; i < FIELDS; i++) {
		fields[i] = strsep(&line, " ");
		if (!fields[i])
			return false;
	}
	/* "254:0" */
	device = fields[DEVICE];
	end = device + strlen(device);
	if (!parse_u32(&device, end, 0xfff, &major) || device == end ||
	    *device++ != ':' || !parse_u32(&device, end, 0xfffff, &minor) ||
	    device != end)
		return false;
	m.device = major << 20 | minor;
	if (fields[POINT][0] != '/' ||
	    !text_to_u32(text_of(fields[ID]), UINT32_MAX, &m.id) ||
	    !text_to_u32(text_of(fields[PARENT]), UINT32_MAX, &m.parent))
		return false;
	unescape(fields[POINT]);
	unescape(fields[ROOT]);
	m.path = fields[POINT];
	m.root = fields[ROOT];
	*ret = m;
	return true;
}

static bool is_below_another(const struct mounts *m, size_t first, size_t end, size_t n)
{
	for (size_t i = first; i < end; i++)
		if (i != n && m->list[i].parent == m->list[n].id)
			return true;
	return false;
}

/* Of the mounts on one another at one place the top is kept. */
static void remove_duplicates(struct mounts *m)
{
	size_t kept = 0, end;

	for (size_t first = 0; first < m->count; first = end) {
		size_t top = first;

		for (end = first; end < m->count &&
				  strcmp(m->list[end].path, m->list[first].path) == 0;)
			end++;
		for (size_t i = first; i < end; i++)
			if (!is_below_another(m, first, end, i))
				top = i;
		m->list[kept++] = m->list[top];
	}
	m->count = kept;
}

int mounts_parse(char *text, bool all, struct mounts *ret, struct err *err)
{
	CLEAN(mem) struct mount *list = NULL;
	struct mounts m = { 0 };
	size_t lines = 1;
	char *line;

	for (const char *end = text; (end = strchr(end, '\n')); end++)
		lines++;
	m.list = list = calloc(lines, sizeof(*list));
	if (!list)
		return err_sys(err, -ENOMEM, "cannot read the mount table");
	while ((line = strsep(&text, "\n"))) {
		if (line[0] == '\0')
			continue;
		if (!parse_line(line, &list[m.count++]))
			return err_set(err, -EBADMSG,
				       "cannot understand the mount table");
	}
	qsort(m.list, m.count, sizeof(*m.list), compare_mounts);
	if (!all)
		remove_duplicates(&m);
	*ret = m;
	list = NULL;
	return 0;
}

int mounts_read(bool all, struct mounts *ret, struct err *err)
{
	CLEAN(file_bytes) struct file_bytes text = { 0 };
	CLEAN(fd) int fd = open("/proc/self/mountinfo", O_RDONLY | O_CLOEXEC);
	int r = fd < 0 ? -errno : file_read_fd(fd, SIZE_MAX - 1, &text);

	if (r < 0)
		return err_sys(err, r, "cannot read /proc/self/mountinfo");
	r = mounts_parse(text.bytes, all, ret, err);
	if (r == 0)
		ret->text = TAKE_PTR(text.bytes);
	return r;
}

void mounts_done(struct mounts *m)
{
	free(m->list);
	free(m->text);
	*m = (struct mounts){ 0 };
}
