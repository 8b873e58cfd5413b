/* overlay by mount(2): layers, whiteouts, copy-up. */
#define AREA "overlay"
#include "check.h"
#include <sys/inotify.h>
#include <sys/mount.h>
#include <sys/xattr.h>

static int ready(const char *options)
{
	if (geteuid() || unshare(CLONE_NEWNS) || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL))
		return 0;
	mkdir("t", 0755);
	T(mount("t", "t", "tmpfs", 0, NULL));
	chdir("t");
	mkdir("l1", 0755), mkdir("l2", 0755), mkdir("up", 0755), mkdir("work", 0755), mkdir("m", 0755);
	put("l1/f", "one");
	put("l2/f", "two");
	put("l2/g", "below");
	chmod("l2/g", 0640);
	mkdir("l1/d", 0755), mkdir("l2/d", 0700), mkdir("l2/e", 0755);
	put("l1/d/a", "a1"), put("l2/d/a", "a2"), put("l2/d/b", "b2"), put("l2/e/x", "x");
	symlink("g", "l2/link");
	mkfifo("l2/fifo", 0600);
	T(mount("o", "m", "overlay", 0, options));
	return 1;
}

static const char *get(const char *path)
{
	static char b[200];
	int fd = open(path, O_RDONLY), n = fd < 0 ? sprintf(b, "%s", strerrorname_np(errno)) : read(fd, b, 199);
	b[n < 0 ? 0 : n] = 0;
	close(fd);
	return b;
}
#define SHOW(p) say(p, "%s", get(p))

static int by_name(const void *a, const void *b)
{
	return strcmp(*(char **)a, *(char **)b);
}

static void list(const char *path)
{
	char *v[50], all[500] = "";
	int n = 0;
	DIR *d = opendir(path);
	if (!d) {
		say(path, "%s", strerrorname_np(errno));
		return;
	}
	struct dirent *e;
	while ((e = readdir(d)) && n < 50)
		v[n++] = strdup(e->d_name);
	closedir(d);
	qsort(v, n, sizeof *v, by_name);
	for (int i = 0; i < n; i++)
		strcat(strcat(all, v[i]), " ");
	say(path, "%s", all);
}

static void whiteout(const char *path)
{
	struct stat s;
	say(path, "%s", lstat(path, &s) ? strerrorname_np(errno) : S_ISCHR(s.st_mode) && !s.st_rdev ? "whiteout" : "file");
}

#define FULL "lowerdir=l1:l2,upperdir=up,workdir=work"

static void reading(void)
{
	if (!ready(FULL))
		return;
	list("m"), list("m/d"), list("m/e");
	SHOW("m/f"), SHOW("m/g"), SHOW("m/d/a"), SHOW("m/d/b"), SHOW("m/link"), SHOW("m/none");
	struct stat s, t;
	T(stat("m/d", &s));
	T(s.st_mode);
	T(s.st_nlink);
	T(stat("m/g", &s));
	T(s.st_mode);
	stat("m", &t);
	Y(s.st_dev == t.st_dev);
	list("up"), list("work");
	T(access("m/fifo", F_OK));
}

static void writing(void)
{
	if (!ready(FULL))
		return;
	struct stat s, t;
	stat("m/g", &s);
	int old = open("m/g", O_RDONLY);
	int fd = open("m/g", O_WRONLY | O_APPEND);
	T(write(fd, "+up", 3));
	close(fd);
	SHOW("m/g"), SHOW("l2/g"), SHOW("up/g");
	char b[20] = "";
	T(pread(old, b, 19, 0));
	S(b, strlen(b));
	stat("m/g", &t);
	Y(s.st_ino == t.st_ino && s.st_mode == t.st_mode);
	list("up");
	T(chmod("m/d/b", 0600));
	list("up/d");
	SHOW("up/d/b");
	stat("up/d", &s);
	T(s.st_mode);
	put("m/new", "new");
	put("m/e/new", "new");
	list("up"), list("up/e"), list("m/e");
	T(truncate("m/f", 1));
	SHOW("m/f"), SHOW("l1/f");
	T(setxattr("m/d/a", "user.x", "y", 1, 0));
	T(getxattr("up/d/a", "user.x", b, 20));
	T(chown("m/link", 0, 0));
	T(lchown("m/link", 5, 5));
	lstat("up/link", &s);
	T(S_ISLNK(s.st_mode) && s.st_uid == 5);
	fd = open("m/e/x", O_RDWR | O_TRUNC);
	T(fstat(fd, &s));
	T(s.st_size);
	T(write(fd, "map", 3));
	char *p = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	Y(p != MAP_FAILED && !memcmp(p, "map", 3));
	p[0] = 'M';
	SHOW("m/e/x");
	SHOW("up/e/x");
}

static void removing(void)
{
	if (!ready(FULL))
		return;
	T(unlink("m/g"));
	whiteout("up/g");
	SHOW("m/g");
	list("m");
	T(unlink("m/g"));
	T(rmdir("m/d"));
	T(unlink("m/d/a"));
	SHOW("m/d/a");
	whiteout("up/d/a");
	T(unlink("m/d/b"));
	list("m/d");
	T(rmdir("m/d"));
	whiteout("up/d");
	list("m");
	/* What comes back hides what was. */
	T(mkdir("m/d", 0755));
	list("m/d");
	char b[8];
	T(getxattr("up/d", "trusted.overlay.opaque", b, 8));
	T(getxattr("m/d", "trusted.overlay.opaque", b, 8));
	put("m/g", "again");
	SHOW("m/g"), SHOW("up/g");
	T(mknod("m/white", S_IFCHR, 0));
	T(symlink("f", "m/s"));
	SHOW("m/s");
	T(unlink("m/s"));
	whiteout("up/s");
	T(unlink("m/f"));
	T(link("m/g", "m/f"));
	SHOW("m/f");
	struct stat s, t;
	stat("m/f", &s), stat("m/g", &t);
	T(s.st_nlink);
	Y(s.st_ino == t.st_ino);
	T(link("m/e/x", "m/y"));
	SHOW("m/y");
	SHOW("up/e/x");
}

static void moving(void)
{
	if (!ready(FULL))
		return;
	T(rename("m/g", "m/h"));
	SHOW("m/h"), SHOW("m/g"), SHOW("up/h");
	whiteout("up/g");
	T(rename("m/h", "m/f"));
	SHOW("m/f");
	whiteout("up/h");
	T(rename("m/d", "m/dd"));
	T(rename("m/e", "m/ee"));
	T(mkdir("m/n", 0755));
	put("m/n/in", "in");
	T(rename("m/n", "m/nn"));
	SHOW("m/nn/in");
	T(rename("m/nn", "m/d"));
	T(unlink("m/e/x"));
	T(rename("m/nn", "m/e"));
	list("m/e");
	SHOW("m/e/in");
	char b[8];
	T(getxattr("up/e", "trusted.overlay.opaque", b, 8));
	put("m/p", "p"), put("m/q", "q");
	T(syscall(SYS_renameat2, AT_FDCWD, "m/p", AT_FDCWD, "m/q", 2));
	SHOW("m/p"), SHOW("m/q");
	T(syscall(SYS_renameat2, AT_FDCWD, "m/p", AT_FDCWD, "m/q", 1));
	T(rename("m/link", "m/d/link"));
	whiteout("up/link");
	T(rename("m/d/a", "up/a"));
	list("m"), list("up"), list("m/d");
}

static void again(void)
{
	if (!ready(FULL))
		return;
	unlink("m/g");
	put("m/d/b", "changed");
	unlink("m/d/a");
	mkdir("m/z", 0755);
	T(umount("m"));
	T(mount("o", "m", "overlay", 0, FULL));
	list("m"), list("m/d");
	SHOW("m/d/b"), SHOW("m/g");
	T(umount("m"));
	/* The upper tree as a layer below. */
	T(mount("o", "m", "overlay", 0, "lowerdir=up:l1:l2"));
	list("m"), list("m/d");
	SHOW("m/d/b");
	T(open("m/new", O_CREAT | O_WRONLY, 0644));
	T(unlink("m/f"));
	T(chmod("m/f", 0600));
	T(open("m/f", O_RDWR));
	T(umount("m"));
}

static void refused(void)
{
	if (!ready(FULL))
		return;
	T(umount("m"));
	T(mount("o", "m", "overlay", 0, "lowerdir=l1,upperdir=up"));
	T(mount("o", "m", "overlay", 0, "lowerdir=none,upperdir=up,workdir=work"));
	T(mount("o", "m", "overlay", 0, "upperdir=up,workdir=work"));
	T(mount("o", "m", "overlay", 0, "lowerdir=l1,upperdir=up,workdir=up"));
	T(mount("o", "m", "overlay", 0, "lowerdir=l1"));
	T(mount("o", "m", "overlay", 0, "lowerdir=l1,nonsense"));
	T(mount("o", "m", "overlay", 0, "lowerdir=l1/f:l2"));
	mkdir("a:b", 0755);
	put("a:b/c", "c");
	T(mount("o", "m", "overlay", 0, "lowerdir=a\\:b,upperdir=up,workdir=work"));
	SHOW("m/c");
}

static void stacked(void)
{
	if (!ready("lowerdir=l1:l2"))
		return;
	mkdir("m2", 0755), mkdir("m3", 0755), mkdir("m4", 0755);
	T(mount("o", "m2", "overlay", 0, "lowerdir=m:l1"));
	SHOW("m2/g");
	T(mount("o", "m3", "overlay", 0, "lowerdir=m2:l1"));
	T(mount("o", "m4", "overlay", 0, "lowerdir=l1:m2"));
}

/* A file that lies deep is copied up with all that leads to it. */
static void deep(void)
{
	if (!ready("lowerdir=l1:l2"))
		return;
	T(umount("m"));
	const int n = 1500;
	int top = open(".", O_RDONLY), wrong = 0;
	chdir("l1");
	for (int i = 0; i < n; i++)
		wrong += mkdir("n", 0755) || chdir("n");
	put("deep", "below");
	fchdir(top);
	T(mount("o", "m", "overlay", 0, FULL));
	chdir("m");
	for (int i = 0; i < n; i++)
		wrong += chdir("n") != 0;
	put("deep", "above");
	SHOW("deep");
	fchdir(top);
	chdir("up");
	for (int i = 0; i < n; i++)
		wrong += chdir("n") != 0;
	SHOW("deep");
	T(wrong);
	fchdir(top);
}

static void set(const char *path, const char *text)
{
	int fd = open(path, O_WRONLY);
	Y(write(fd, text, strlen(text)) > 0);
	close(fd);
}

/* Who mounts as its own namespace's root gets nothing to see that it did not before. */
static void ordinary(void)
{
	if (!ready("lowerdir=l1:l2"))
		return;
	T(umount("m"));
	put("l2/secret", "secret");
	chmod("l2/secret", 0600);
	put("l2/d/x", "x");
	chmod("l2/d", 0711);
	mkdir("l1/d2", 0711);
	T(chown("up", 65534, 65534));
	T(chown("work", 65534, 65534));
	mkdir("up/d", 0755);
	T(chown("up/d", 65534, 65534));
	mkdir("over", 0755);
	T(mount("t", "over", "tmpfs", 0, NULL));
	chmod(".", 0777);
	drop_root();
	prctl(PR_SET_DUMPABLE, 1);
	T(unshare(CLONE_NEWUSER | CLONE_NEWNS));
	set("/proc/self/setgroups", "deny");
	set("/proc/self/uid_map", "0 65534 1\n");
	set("/proc/self/gid_map", "0 65534 1\n");
	/* There is what is mounted over. */
	T(mount("o", "m", "overlay", 0, "lowerdir=.:l1"));
	T(mount("o", "m", "overlay", 0, "lowerdir=l2,upperdir=up,workdir=work,userxattr"));
	SHOW("m/secret");
	T(rename("m/secret", "m/mine"));
	T(chmod("m/secret", 0666));
	SHOW("m/f");
	list("m/d");
	list("work/work");
}

/* Watches of a directory that is in both trees end with it. */
static void watched(void)
{
	char b[4096];
	if (!ready("lowerdir=l1:l2,upperdir=up,workdir=work"))
		return;
	T(chmod("m/d", 0711));
	int fd = inotify_init1(IN_NONBLOCK), d = open("m/d", O_RDONLY);
	T(inotify_add_watch(fd, "m/d", IN_DELETE_SELF | IN_MOVE_SELF));
	T(unlink("m/d/a"));
	T(unlink("m/d/b"));
	T(rmdir("m/d"));
	struct stat st;
	T(fstat(d, &st));
	T(st.st_nlink);
	close(d);
	usleep(20000);
	int n = read(fd, b, sizeof b);
	for (int at = 0; at < n; at += sizeof(struct inotify_event) + ((struct inotify_event *)(b + at))->len)
		T(((struct inotify_event *)(b + at))->mask);
	T(n);
	T(inotify_rm_watch(fd, 1));
}

static const struct check list_[] = {
	CHECK(reading), CHECK(writing), CHECK(removing), CHECK(moving), CHECK(again), CHECK(refused),
	CHECK(stacked), CHECK(deep), CHECK(ordinary), CHECK(watched),
};
MAIN(list_)
