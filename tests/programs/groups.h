/* Control groups of a check's own, in a mount of its own. */
#ifndef GROUPS_H
#define GROUPS_H
#include "check.h"
#include <sys/mount.h>

static char path[256];

/* A file's path in the group. */
static const char *at(const char *name)
{
	static char p[4][512];
	static int i;
	i = (i + 1) % 4;
	sprintf(p[i], "%s/%s", path, name);
	return p[i];
}

/* A mount of the tree, and in it a group of this test's own. */
static int ready(void)
{
	if (unshare(CLONE_NEWNS) || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL)) {
		T(-1);
		return 0;
	}
	mkdir("c", 0755);
	if (mount("c", "c", "cgroup2", 0, NULL)) {
		T(-1);
		return 0;
	}
	getcwd(path, 200);
	sprintf(path + strlen(path), "/c/check-%s-%s-%d", AREA, current, getpid());
	T(mkdir(path, 0755));
	return 1;
}

static void done(void)
{
	write_text(at("../cgroup.procs"), "0");
	T(rmdir(path));
}
#endif
