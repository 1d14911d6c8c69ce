// SPDX-License-Identifier: Apache-2.0
/* replay - run a fuzz target over every file of a corpus directory, once, without a
 * fuzzer: the corpus as a test. Exit 1 when the directory holds no file. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

#include "base/macros.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static int replay_file(int dir, const char *name)
{
	CLEAN(fd) int fd = openat(dir, name, O_RDONLY | O_CLOEXEC);
	CLEAN(mem) uint8_t *bytes = NULL;
	struct stat st;

	if (fd < 0 || fstat(fd, &st) < 0)
		return -errno;
	if (!S_ISREG(st.st_mode))
		return 0;
	bytes = malloc((size_t)st.st_size + 1);
	if (!bytes || read(fd, bytes, (size_t)st.st_size) != st.st_size)
		return -EIO;
	LLVMFuzzerTestOneInput(bytes, (size_t)st.st_size);
	return 1;
}

int main(int argc, char **argv)
{
	DIR *dir = argc == 2 ? opendir(argv[1]) : NULL;
	int files = 0;

	if (!dir) {
		fprintf(stderr, "usage: replay DIRECTORY\n");
		return 2;
	}
	for (struct dirent *e; (e = readdir(dir));) {
		int r = replay_file(dirfd(dir), e->d_name);

		if (r < 0) {
			fprintf(stderr, "cannot read %s\n", e->d_name);
			return 1;
		}
		files += r;
	}
	closedir(dir);
	printf("%d inputs\n", files);
	return files > 0 ? 0 : 1;
}
