/* The mount API by descriptors, mount(2)'s shared subtrees: open_tree, move_mount, fsopen, fsconfig, fsmount, fspick,
 * mount_setattr, statmount, listmount. As root, in a mount namespace of the check's own. */
#define AREA "mounts"
#include "check.h"
#include <linux/mount.h>
#include <linux/stat.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/statvfs.h>

int mount(const char *, const char *, const char *, unsigned long, const void *);
int umount2(const char *, int);
#define MNT_DETACH 2

#ifndef OPEN_TREE_CLONE
#define OPEN_TREE_CLONE 1
#endif
#define CLONE_ OPEN_TREE_CLONE
#ifndef AT_RECURSIVE
#define AT_RECURSIVE 0x8000
#endif
#define BENEATH 0x200
#define SET_GROUP 0x100
#define F_EMPTY 4
#define T_EMPTY 0x40

#define open_tree(d, p, f) syscall(428, d, p, f)
#define move_mount(d, p, e, q, f) syscall(429, d, p, e, q, f)
#define fsopen(n, f) syscall(430, n, f)
#define fsconfig(d, c, k, v, a) syscall(431, d, c, k, v, a)
#define fsmount(d, f, a) syscall(432, d, f, a)
#define fspick(d, p, f) syscall(433, d, p, f)
#define setattr(d, p, f, a, n) syscall(442, d, p, f, a, n)

struct attr { uint64_t set, clr, propagation, user; };

/* A namespace of one's own with private mounts, and a tmpfs to work in. */
static void own(void)
{
	if (geteuid() || unshare(CLONE_NEWNS) || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) || mkdir("w", 0755) ||
	    mount("w", "w", "tmpfs", 0, NULL) || chdir("w"))
		say("own", "failed: %s", strerrorname_np(errno));
}

/* The line of mountinfo of what is mounted at a name in the working directory: its place, options and fields. */
static void info(const char *name)
{
	char cwd[512], want[700], line[4096];
	if (!getcwd(cwd, sizeof cwd))
		return;
	snprintf(want, sizeof want, "%s%s%s", cwd, *name ? "/" : "", name);
	FILE *f = fopen("/proc/self/mountinfo", "r");
	int n = 0;
	while (f && fgets(line, sizeof line, f)) {
		char root[1024], at[1024];
		int end = 0;
		if (sscanf(line, "%*d %*d %*s %1023s %1023s %n", root, at, &end) != 2 || strcmp(at, want))
			continue;
		char *rest = line + end;
		rest[strcspn(rest, "\n")] = 0;
		/* Groups are numbered by what else there is. */
		for (char *p = rest; (p = strpbrk(p, ":")); p++)
			for (char *q = p + 1; *q >= '0' && *q <= '9'; q++)
				*q = 'N';
		char *size = strstr(rest, " - ");
		say(name, "%s %.*s%.8s", root, (int)(size - rest), rest, size);
		n++;
	}
	if (!n)
		say(name, "not mounted");
	if (f)
		fclose(f);
}

static int there(const char *path)
{
	return access(path, F_OK) == 0;
}

/* What a context has to say. */
static void log_of(int fd)
{
	char b[300];
	ssize_t n;
	while ((n = read(fd, b, sizeof b)) > 0)
		bytes("log", b, n);
	say("log", "%s", n ? strerrorname_np(errno) : "end");
}

static int tmpfs(const char *size)
{
	int fd = fsopen("tmpfs", 1);
	if (size)
		fsconfig(fd, 1, "size", size, 0);
	fsconfig(fd, 6, NULL, NULL, 0);
	int m = fsmount(fd, 1, 0);
	close(fd);
	return m;
}

static void context(void)
{
	own();
	T(fsopen("nonsense", 0));
	T(fsopen("tmpfs", 2));
	T(fsopen((char *)1, 0));
	int fd = fsopen("tmpfs", 1);
	T(fcntl(fd, F_GETFD));
	T(fcntl(fd, F_GETFL) & O_ACCMODE);
	char link[64], text[64] = "";
	sprintf(link, "/proc/self/fd/%d", fd);
	T(readlink(link, text, sizeof text));
	S(text, strlen(text));
	T(fsconfig(-1, 0, "ro", NULL, 0));
	T(fsconfig(999, 0, "ro", NULL, 0));
	T(fsconfig(0, 0, "ro", NULL, 0));
	T(fsconfig(fd, 9, NULL, NULL, 0));
	T(fsconfig(fd, 0, NULL, NULL, 0));
	T(fsconfig(fd, 0, "ro", "x", 0));
	T(fsconfig(fd, 1, "size", NULL, 0));
	T(fsconfig(fd, 2, "size", "x", 0));
	T(fsconfig(fd, 3, "size", "x", -1));
	T(fsconfig(fd, 5, "size", NULL, -1));
	T(fsconfig(fd, 5, "size", NULL, 999));
	T(fsconfig(fd, 6, "x", NULL, 0));
	log_of(fd);
	T(fsconfig(fd, 0, "nonsense", NULL, 0));
	T(fsconfig(fd, 1, "size", "much", 0));
	log_of(fd);
	T(fsconfig(fd, 1, "size", "1m", 0));
	T(fsconfig(fd, 1, "source", "here", 0));
	T(fsconfig(fd, 1, "source", "there", 0));
	log_of(fd);
	char b[4];
	fsconfig(fd, 0, "nonsense", NULL, 0);
	T(read(fd, b, sizeof b));
	T(read(fd, b, sizeof b));
	for (int i = 0; i < 12; i++)
		fsconfig(fd, 0, "nonsense", NULL, 0);
	log_of(fd);
	char longer[300];
	memset(longer, 'a', sizeof longer);
	longer[255] = 0;
	T(fsconfig(fd, 1, "mode", longer, 0));
	longer[255] = 'a';
	longer[299] = 0;
	T(fsconfig(fd, 1, "mode", longer, 0));
	T(fsconfig(fd, 1, longer, "1", 0));
	T(fsmount(fd, 1, 0));
	T(fsconfig(fd, 7, NULL, NULL, 0));
	T(fsconfig(fd, 6, NULL, NULL, 0));
	T(fsconfig(fd, 6, NULL, NULL, 0));
	T(fsconfig(fd, 1, "size", "2m", 0));
	T(fsmount(fd, 2, 0));
	T(fsmount(fd, 1, 0x30));
	T(fsmount(fd, 1, 0x100000));
	T(fsmount(0, 1, 0));
	int m = fsmount(fd, 1, MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV | MOUNT_ATTR_NOATIME);
	Y(m >= 0);
	T(fcntl(m, F_GETFD));
	Y(fcntl(m, F_GETFL) & O_PATH);
	T(fsmount(fd, 1, 0));
	mkdir("m", 0755);
	T(mkdirat(m, "in", 0755));
	T(move_mount(m, "", AT_FDCWD, "m", 0));
	T(move_mount(m, "", AT_FDCWD, "m", F_EMPTY));
	info("m");
	Y(there("m/in"));
	struct statvfs v;
	T(statvfs("m", &v));
	T(v.f_blocks * v.f_bsize);
	T(move_mount(m, "", AT_FDCWD, "m", F_EMPTY));
	/* The context goes on as one of what is mounted. */
	T(fsconfig(fd, 1, "size", "2m", 0));
	T(fsconfig(fd, 0, "ro", NULL, 0));
	T(fsconfig(fd, 7, NULL, NULL, 0));
	T(statvfs("m", &v));
	T(v.f_blocks * v.f_bsize);
	T(mkdir("m/more", 0755));
	T(fsconfig(fd, 0, "rw", NULL, 0));
	T(fsconfig(fd, 7, NULL, NULL, 0));
	T(mkdir("m/more", 0755));
	close(m);
	T(umount2("m", 0));
	close(fd);
}

static void pick(void)
{
	own();
	mkdir("m", 0755);
	mount("x", "m", "tmpfs", 0, "size=1m");
	mkdir("m/d", 0755);
	symlink("m", "l");
	T(fspick(AT_FDCWD, "m", 16));
	T(fspick(AT_FDCWD, "m/d", 0));
	T(fspick(AT_FDCWD, "nothing", 0));
	T(fspick(AT_FDCWD, "", 0));
	T(fspick(AT_FDCWD, "l", 2));
	int fd = fspick(AT_FDCWD, "l", 1);
	Y(fd >= 0);
	T(fcntl(fd, F_GETFD));
	T(fsconfig(fd, 6, NULL, NULL, 0));
	T(fsmount(fd, 0, 0));
	T(fsconfig(fd, 1, "size", "2m", 0));
	T(fsconfig(fd, 7, NULL, NULL, 0));
	struct statvfs v;
	statvfs("m", &v);
	T(v.f_blocks * v.f_bsize);
	int file = open("m/f", O_CREAT | O_RDWR, 0644);
	T(ftruncate(file, 1 << 20));
	T(fallocate(file, 0, 0, 1 << 20));
	T(fsconfig(fd, 1, "size", "4k", 0));
	T(fsconfig(fd, 7, NULL, NULL, 0));
	log_of(fd);
	T(fsconfig(fd, 1, "size", "4m", 0));
	close(fd);
	/* Read-only, while it is written to, and after that. */
	fd = fspick(AT_FDCWD, "m", 0);
	T(fsconfig(fd, 0, "ro", NULL, 0));
	T(fsconfig(fd, 7, NULL, NULL, 0));
	close(fd);
	close(file);
	fd = fspick(AT_FDCWD, "m", 0);
	T(fsconfig(fd, 0, "ro", NULL, 0));
	T(fsconfig(fd, 7, NULL, NULL, 0));
	T(open("m/f", O_RDWR));
	close(fd);
	fd = open("m", O_PATH);
	Y(fspick(fd, "", 8) >= 0);
}

static void trees(void)
{
	own();
	mkdir("a", 0755);
	mkdir("b", 0755);
	mount("a", "a", "tmpfs", 0, NULL);
	mkdir("a/x", 0755);
	mkdir("a/y", 0755);
	mount("ax", "a/x", "tmpfs", 0, NULL);
	put("a/x/file", "1");
	T(open_tree(AT_FDCWD, "a", 2));
	T(open_tree(AT_FDCWD, "a", AT_RECURSIVE));
	T(open_tree(AT_FDCWD, "", CLONE_));
	T(open_tree(AT_FDCWD, "nothing", CLONE_));
	int plain = open_tree(AT_FDCWD, "a/x", O_CLOEXEC);
	Y(plain >= 0);
	Y(fcntl(plain, F_GETFL) & O_PATH);
	Y(faccessat(plain, "file", F_OK, 0) == 0);
	/* A clone without what is below, and with it. */
	int one = open_tree(AT_FDCWD, "a", CLONE_), all = open_tree(AT_FDCWD, "a", CLONE_ | AT_RECURSIVE | O_CLOEXEC);
	T(fcntl(one, F_GETFD));
	T(fcntl(all, F_GETFD));
	T(faccessat(one, "x/file", F_OK, 0));
	T(faccessat(all, "x/file", F_OK, 0));
	/* It shows the same files. */
	put("a/y/new", "2");
	T(faccessat(one, "y/new", F_OK, 0));
	T(move_mount(one, "", AT_FDCWD, "b", F_EMPTY));
	info("b");
	T(access("b/x/file", F_OK));
	T(umount2("b", 0));
	close(one);
	T(umount2("b", 0));
	T(move_mount(all, "", AT_FDCWD, "b", F_EMPTY));
	T(access("b/x/file", F_OK));
	close(all);
	info("b");
	info("b/x");
	T(umount2("b", 0));
	T(umount2("b", MNT_DETACH));
	/* A directory as the root; a file on a file only. */
	int sub = open_tree(AT_FDCWD, "a/y", CLONE_);
	T(move_mount(sub, "", AT_FDCWD, "a/y/new", F_EMPTY));
	T(move_mount(sub, "", AT_FDCWD, "b", F_EMPTY));
	info("b");
	Y(there("b/new"));
	umount2("b", MNT_DETACH);
	int file = open_tree(AT_FDCWD, "a/y/new", CLONE_);
	T(move_mount(file, "", AT_FDCWD, "b", F_EMPTY));
	T(move_mount(file, "", AT_FDCWD, "a/x/file", F_EMPTY));
	info("a/x/file");
	/* What was closed is gone; what was opened in it stays. */
	int t = open_tree(AT_FDCWD, "a", CLONE_ | AT_RECURSIVE);
	int in = openat(t, "x", O_RDONLY | O_DIRECTORY);
	close(t);
	T(faccessat(in, "file", F_OK, 0));
	T(umount2("a/x/file", 0));
	/* A clone of a clone, a tree in a tree. */
	t = open_tree(AT_FDCWD, "a", CLONE_ | AT_RECURSIVE);
	int u = open_tree(t, "x", CLONE_);
	Y(u >= 0);
	int mem = tmpfs(NULL);
	T(mkdirat(mem, "in", 0755));
	T(move_mount(mem, "", t, "y", F_EMPTY));
	T(faccessat(t, "y/in", F_OK, 0));
	T(move_mount(t, "y", AT_FDCWD, "b", 0));
	T(move_mount(t, "", t, "y", F_EMPTY));
	T(move_mount(t, "", AT_FDCWD, "b", F_EMPTY));
	T(access("b/y/in", F_OK));
	T(move_mount(AT_FDCWD, "b/y", AT_FDCWD, "a/y", 0));
	Y(there("a/y/in"));
	T(move_mount(AT_FDCWD, "b", AT_FDCWD, "b/y", 0));
	/* Not what is no mount. */
	T(move_mount(AT_FDCWD, "b/y", AT_FDCWD, "a", 0));
	T(move_mount(AT_FDCWD, "b", AT_FDCWD, "a", 0x1000));
	T(move_mount(AT_FDCWD, "b", AT_FDCWD, "a", BENEATH | SET_GROUP));
	T(move_mount(AT_FDCWD, "b", -1, "nothing", 0));
	/* mount(2) and a detached tree. */
	t = tmpfs(NULL);
	char at[40];
	sprintf(at, "/proc/self/fd/%d", t);
	mkdirat(t, "q", 0755);
	T(mount(at, "b", NULL, MS_BIND, NULL));
	strcat(at, "/q");
	T(mount("a", at, NULL, MS_BIND, NULL));
	T(mount("t", at, "tmpfs", 0, NULL));
	T(umount2(at, 0));
}

static void beneath(void)
{
	own();
	mkdir("m", 0755);
	mount("low", "m", "tmpfs", 0, NULL);
	put("m/low", "");
	int t = tmpfs(NULL);
	mkdirat(t, "new", 0755);
	int below = tmpfs(NULL);
	T(move_mount(below, "", AT_FDCWD, ".", F_EMPTY | BENEATH));
	mkdir("d", 0755);
	T(move_mount(t, "", AT_FDCWD, "d", F_EMPTY | BENEATH));
	T(move_mount(t, "", AT_FDCWD, "m", F_EMPTY | BENEATH));
	Y(there("m/low"));
	T(umount2("m", 0));
	Y(there("m/new"));
	T(umount2("m", 0));
	T(umount2("m", 0));
	/* Beneath the topmost. */
	mount("1", "m", "tmpfs", 0, NULL);
	mount("2", "m", "tmpfs", 0, NULL);
	put("m/two", "");
	t = tmpfs(NULL);
	mkdirat(t, "new", 0755);
	T(move_mount(t, "", AT_FDCWD, "m", F_EMPTY | BENEATH));
	umount2("m", 0);
	Y(there("m/new"));
	/* One of this namespace. */
	mount("3", "d", "tmpfs", 0, NULL);
	put("d/three", "");
	T(move_mount(AT_FDCWD, "d", AT_FDCWD, "m", BENEATH));
	T(access("d/three", F_OK));
	umount2("m", 0);
	Y(there("m/three"));
	T(move_mount(AT_FDCWD, "m", AT_FDCWD, "m", BENEATH));
}

static void attributes(void)
{
	own();
	mkdir("a", 0755);
	mount("a", "a", "tmpfs", 0, NULL);
	mkdir("a/x", 0755);
	mkdir("a/d", 0755);
	mount("x", "a/x", "tmpfs", 0, NULL);
	struct attr a = { 0 };
	T(setattr(AT_FDCWD, "a", 0, &a, 31));
	T(setattr(AT_FDCWD, "a", 0, &a, 4097));
	T(setattr(AT_FDCWD, "nothing", 0, &a, 32));
	char big[64] = { 0 };
	T(setattr(AT_FDCWD, "a", 0, big, 64));
	big[40] = 1;
	T(setattr(AT_FDCWD, "a", 0, big, 64));
	T(setattr(AT_FDCWD, "a", 0x100000, &a, 32));
	a.set = MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV | MOUNT_ATTR_NOEXEC | MOUNT_ATTR_NODIRATIME |
		0x200000;
	T(setattr(AT_FDCWD, "nothing", 0, &a, 32));
	T(setattr(AT_FDCWD, "a/d", 0, &a, 32));
	T(setattr(AT_FDCWD, "a", 0, &a, 32));
	info("a");
	info("a/x");
	a = (struct attr) { .clr = MOUNT_ATTR_RDONLY | MOUNT_ATTR_NODIRATIME, .set = MOUNT_ATTR_NOSUID };
	T(setattr(AT_FDCWD, "a", AT_RECURSIVE, &a, 32));
	info("a");
	info("a/x");
	a = (struct attr) { .set = MOUNT_ATTR_NOATIME };
	T(setattr(AT_FDCWD, "a", 0, &a, 32));
	a = (struct attr) { .set = MOUNT_ATTR_NOATIME, .clr = MOUNT_ATTR_NOATIME };
	T(setattr(AT_FDCWD, "a", 0, &a, 32));
	a = (struct attr) { .set = MOUNT_ATTR_NOATIME, .clr = MOUNT_ATTR__ATIME };
	T(setattr(AT_FDCWD, "a", 0, &a, 32));
	info("a");
	a = (struct attr) { .set = MOUNT_ATTR_STRICTATIME, .clr = MOUNT_ATTR__ATIME };
	T(setattr(AT_FDCWD, "a", 0, &a, 32));
	info("a");
	a = (struct attr) { .set = 0x30, .clr = MOUNT_ATTR__ATIME };
	T(setattr(AT_FDCWD, "a", 0, &a, 32));
	a = (struct attr) { .clr = MOUNT_ATTR__ATIME };
	T(setattr(AT_FDCWD, "a", 0, &a, 32));
	info("a");
	a = (struct attr) { .set = 0x400 };
	T(setattr(AT_FDCWD, "a", 0, &a, 32));
	a = (struct attr) { .propagation = MS_SHARED | MS_SLAVE };
	T(setattr(AT_FDCWD, "a", 0, &a, 32));
	a = (struct attr) { .propagation = MS_REC };
	T(setattr(AT_FDCWD, "a", 0, &a, 32));
	a = (struct attr) { .propagation = MS_SHARED };
	T(setattr(AT_FDCWD, "a", AT_RECURSIVE, &a, 32));
	info("a");
	info("a/x");
	a = (struct attr) { .propagation = MS_UNBINDABLE };
	T(setattr(AT_FDCWD, "a", 0, &a, 32));
	info("a");
	info("a/x");
	/* Users of an idmapped mount: what is checked before the file system. */
	a = (struct attr) { .set = 0x100000, .user = 999 };
	T(setattr(AT_FDCWD, "a", 0, &a, 32));
	a.user = 1ull << 40;
	T(setattr(AT_FDCWD, "a", 0, &a, 32));
	a.user = open("/proc/self/ns/mnt", O_RDONLY);
	T(setattr(AT_FDCWD, "a", 0, &a, 32));
	a.user = open("/proc/self/ns/user", O_RDONLY);
	T(setattr(AT_FDCWD, "a", 0, &a, 32));
	a = (struct attr) { .clr = 0x100000 };
	T(setattr(AT_FDCWD, "a", 0, &a, 32));
	/* Not read-only while it is written to: none of a tree. */
	int fd = open("a/x/f", O_CREAT | O_RDWR, 0644);
	a = (struct attr) { .set = MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOEXEC, .clr = MOUNT_ATTR_NOSUID };
	T(setattr(AT_FDCWD, "a", AT_RECURSIVE, &a, 32));
	info("a");
	T(mount(NULL, "a/x", NULL, MS_REMOUNT | MS_BIND | MS_RDONLY, NULL));
	T(mount(NULL, "a/x", NULL, MS_REMOUNT | MS_RDONLY, NULL));
	T(setattr(AT_FDCWD, "a", 0, &a, 32));
	close(fd);
	T(setattr(AT_FDCWD, "a", AT_RECURSIVE, &a, 32));
	info("a");
	info("a/x");
	T(open("a/x/f", O_RDWR));
	/* A detached tree. */
	int t = tmpfs(NULL);
	a = (struct attr) { .set = MOUNT_ATTR_RDONLY };
	T(setattr(t, "", 0, &a, 32));
	T(setattr(t, "", AT_EMPTY_PATH, &a, 32));
	T(mkdirat(t, "q", 0755));
	/* With open_tree. */
	a = (struct attr) { .set = MOUNT_ATTR_NOSYMFOLLOW, .clr = MOUNT_ATTR_RDONLY };
	t = syscall(467, AT_FDCWD, "a/x", CLONE_, &a, 32);
	if (t >= 0 || errno != ENOSYS) {
		Y(t >= 0);
		mkdir("b", 0755);
		T(move_mount(t, "", AT_FDCWD, "b", F_EMPTY));
		info("b");
		info("a/x");
	}
}

static void shared(void)
{
	own();
	mkdir("a", 0755);
	mkdir("b", 0755);
	mkdir("c", 0755);
	mount("a", "a", "tmpfs", 0, NULL);
	mkdir("a/x", 0755);
	mkdir("a/y", 0755);
	T(mount(NULL, "a/x", NULL, MS_SHARED, NULL));
	T(mount(NULL, "a", NULL, MS_SHARED | MS_NOSUID, NULL));
	T(mount(NULL, "a", NULL, MS_SHARED | MS_SLAVE, NULL));
	T(mount(NULL, "a", NULL, MS_SHARED, NULL));
	info("a");
	T(mount("a", "b", NULL, MS_BIND, NULL));
	info("b");
	T(mount("a", "c", NULL, MS_BIND, NULL));
	T(mount(NULL, "c", NULL, MS_SLAVE, NULL));
	info("c");
	/* To peers and slaves. */
	T(mount("x", "b/x", "tmpfs", 0, NULL));
	put("b/x/file", "");
	Y(there("a/x/file"));
	Y(there("c/x/file"));
	info("a/x");
	info("b/x");
	info("c/x");
	/* Not from a slave. */
	T(mount("y", "c/y", "tmpfs", 0, NULL));
	put("c/y/file", "");
	Y(there("a/y/file"));
	info("c/y");
	/* Beneath what a slave has there. */
	T(mount("y", "a/y", "tmpfs", 0, NULL));
	put("a/y/peer", "");
	Y(there("b/y/peer"));
	Y(there("c/y/file"));
	T(umount2("c/y", 0));
	Y(there("c/y/peer"));
	/* Taken down everywhere. */
	T(umount2("a/x", 0));
	Y(there("b/x/file"));
	Y(there("c/x/file"));
	int fd = open("c/y/peer", O_RDONLY);
	T(umount2("a/y", 0));
	close(fd);
	T(umount2("a/y", 0));
	Y(there("c/y/peer"));
	/* A slave that is shared. */
	T(mount(NULL, "c", NULL, MS_SHARED, NULL));
	info("c");
	mkdir("d", 0755);
	T(mount("c", "d", NULL, MS_BIND, NULL));
	info("d");
	T(mount("x", "a/x", "tmpfs", 0, NULL));
	info("c/x");
	info("d/x");
	T(umount2("a/x", MNT_DETACH));
	info("d/x");
	/* Another namespace, as a peer and as a slave. */
	int p[2];
	(void)!pipe(p);
	pid_t child = fork();
	if (!child) {
		unshare(CLONE_NEWNS);
		mount(NULL, "d", NULL, MS_SLAVE, NULL);
		(void)!write(p[1], "", 1);
		pause();
	}
	char c;
	(void)!read(p[0], &c, 1);
	T(mount("x", "a/x", "tmpfs", 0, NULL));
	put("a/x/late", "");
	char path[600], cwd[400];
	snprintf(path, sizeof path, "/proc/%d/root%s/b/x/late", child, getcwd(cwd, sizeof cwd));
	Y(there(path));
	snprintf(path, sizeof path, "/proc/%d/root%s/d/x/late", child, cwd);
	Y(there(path));
	kill(child, SIGKILL);
	waitpid(child, NULL, 0);
	/* Moving, and what cannot be. */
	mkdir("m", 0755);
	mount("m", "m", "tmpfs", 0, NULL);
	put("m/moved", "");
	T(mount("m", "a/y", NULL, MS_MOVE, NULL));
	Y(there("b/y/moved"));
	info("d/y");
	T(mount("a/y", "m", NULL, MS_MOVE, NULL));
	T(mount(NULL, "a/y", NULL, MS_PRIVATE, NULL));
	info("a/y");
	info("b/y");
	T(umount2("b/y", 0));
	info("a/y");
	/* Unbindable. */
	mount("m", "m", "tmpfs", 0, NULL);
	T(mount(NULL, "m", NULL, MS_UNBINDABLE, NULL));
	info("m");
	T(mount("m", "a/y", NULL, MS_BIND, NULL));
	T(mount("m", "a/y", NULL, MS_MOVE, NULL));
	/* The last of a group: its slaves become its master's. */
	T(mount(NULL, "c", NULL, MS_PRIVATE, NULL));
	info("c");
	info("d");
	T(mount(NULL, "d", NULL, MS_SLAVE, NULL));
	info("d");
	T(umount2("b", MNT_DETACH));
	T(mount(NULL, "a", NULL, MS_PRIVATE, NULL));
	info("d");
}

static void groups(void)
{
	own();
	const char *dirs[] = { "a", "b", "c", "o" };
	for (int i = 0; i < 4; i++)
		mkdir(dirs[i], 0755);
	mount("a", "a", "tmpfs", 0, NULL);
	mkdir("a/x", 0755);
	mkdir("a/y", 0755);
	mount("a", "b", NULL, MS_BIND, NULL);
	mount("o", "o", "tmpfs", 0, NULL);
	T(move_mount(AT_FDCWD, "a", AT_FDCWD, "b", SET_GROUP));
	mount(NULL, "a", NULL, MS_SHARED, NULL);
	T(move_mount(AT_FDCWD, "a", AT_FDCWD, "o", SET_GROUP));
	T(move_mount(AT_FDCWD, "a/x", AT_FDCWD, "b", SET_GROUP));
	T(move_mount(AT_FDCWD, "a", AT_FDCWD, "b", SET_GROUP));
	info("b");
	T(move_mount(AT_FDCWD, "a", AT_FDCWD, "b", SET_GROUP));
	T(mount("t", "a/x", "tmpfs", 0, NULL));
	info("b/x");
	mount("a/y", "c", NULL, MS_BIND, NULL);
	mount(NULL, "c", NULL, MS_PRIVATE, NULL);
	T(move_mount(AT_FDCWD, "c", AT_FDCWD, "b", SET_GROUP));
	T(move_mount(AT_FDCWD, "a", AT_FDCWD, "c", SET_GROUP));
	info("c");
	/* A detached tree that is shared. */
	int t = open_tree(AT_FDCWD, "a", CLONE_);
	T(mount("t", "b/y", "tmpfs", 0, NULL));
	put("b/y/file", "");
	T(faccessat(t, "y/file", F_OK, 0));
	T(umount2("b/y", 0));
	T(faccessat(t, "y/file", F_OK, 0));
	close(t);
	T(mount("t", "b/y", "tmpfs", 0, NULL));
	T(umount2("a/y", 0));
}

struct req { uint32_t size, fd; uint64_t id, param, ns; };
struct sm {
	uint32_t size, opts; uint64_t mask; uint32_t major, minor; uint64_t magic; uint32_t flags, type;
	uint64_t id, parent; uint32_t old, old_parent; uint64_t attr, propagation, group, master, from;
	uint32_t root, point; uint64_t ns; uint32_t sub, source, n, array, sn, sarray; uint64_t supported;
	uint32_t un, u, gn, g; uint64_t spare[43]; char str[2000];
};

static uint64_t unique(const char *path)
{
	struct statx x;
	memset(&x, 0, sizeof x);
	syscall(SYS_statx, AT_FDCWD, path, 0, 0x4000, &x);
	return x.stx_mask & 0x4000 ? x.stx_mnt_id : 0;
}

static void tell(void)
{
	own();
	mkdir("a", 0755);
	mount("src", "a", "tmpfs", MS_NOSUID | MS_NOATIME, "size=1m,mode=700");
	mkdir("a/x", 0755);
	mount("a/x", "a/x", NULL, MS_BIND, NULL);
	mount(NULL, "a", NULL, MS_SHARED, NULL);
	uint64_t w = unique("."), a = unique("a"), x = unique("a/x");
	Y(w > 1ull << 31);
	Y(w < a && a < x);
	static struct sm s;
	struct req r = { 24, 0, a, 0, 0 };
	T(syscall(457, &r, &s, sizeof s, 1));
	r.size = 23;
	T(syscall(457, &r, &s, sizeof s, 0));
	r.size = 5000;
	T(syscall(457, &r, &s, sizeof s, 0));
	r.size = 24;
	r.id = 1;
	T(syscall(457, &r, &s, sizeof s, 0));
	r.id = 1ull << 60;
	T(syscall(457, &r, &s, sizeof s, 0));
	r.id = a;
	T(syscall(457, &r, &s, sizeof s, 0));
	T(s.size);
	T(s.mask);
	r.param = 0x7;
	memset(&s, 0, sizeof s);
	T(syscall(457, &r, &s, sizeof s, 0));
	T(s.size);
	T(s.mask);
	T(s.magic);
	T(s.flags);
	Y(s.id == a && s.parent == w);
	T(s.attr);
	T(s.propagation);
	Y(s.group > 0);
	T(s.master);
	T(s.from);
	r.param = 0x2b8;
	T(syscall(457, &r, &s, 512, 0));
	T(syscall(457, &r, &s, 530, 0));
	memset(&s, 0, sizeof s);
	T(syscall(457, &r, &s, sizeof s, 0));
	T(s.mask);
	S(s.str + s.type, strlen(s.str + s.type));
	S(s.str + s.root, strlen(s.str + s.root));
	char *end = strrchr(s.str + s.point, '/');
	S(end, strlen(end));
	S(s.str + s.source, strlen(s.str + s.source));
	r.id = x;
	memset(&s, 0, sizeof s);
	T(syscall(457, &r, &s, sizeof s, 0));
	S(s.str + s.root, strlen(s.str + s.root));
	r.param = 2;
	T(syscall(457, &r, &s, sizeof s, 0));
	Y(s.parent == a);
	T(s.propagation);
	T(syscall(457, &r, &s, 64, 0));
	T(s.size);
	r.param = 0x40;
	T(syscall(457, &r, &s, sizeof s, 0));
	uint64_t ns = 0;
	int fd = open("/proc/self/ns/mnt", O_RDONLY);
	T(ioctl(fd, 0x8008b705, &ns));
	Y(ns == s.ns);
	/* Lists. */
	uint64_t ids[200];
	r = (struct req) { 24, 0, w, 0, 0 };
	T(syscall(458, &r, ids, 200, 2));
	T(syscall(458, &r, ids, 2000000, 0));
	T(syscall(458, &r, ids, 200, 0));
	Y(ids[0] == a && ids[1] == x);
	T(syscall(458, &r, ids, 1, 0));
	r.param = a;
	T(syscall(458, &r, ids, 200, 0));
	Y(ids[0] == x);
	r.param = 7;
	T(syscall(458, &r, ids, 200, 0));
	r.param = 0;
	T(syscall(458, &r, ids, 200, 1));
	Y(ids[0] == x && ids[1] == a);
	r.id = x;
	T(syscall(458, &r, ids, 200, 0));
	r.id = -1ull;
	Y(syscall(458, &r, ids, 200, 0) >= 4);
	r.size = 32;
	r.ns = ns;
	Y(syscall(458, &r, ids, 200, 0) >= 4);
	r.ns = 12345;
	T(syscall(458, &r, ids, 200, 0));
	T(chroot("a"));
	r = (struct req) { 24, 0, w, 2, 0 };
	Y(syscall(457, &r, &s, sizeof s, 0) == 0);
	drop_root();
	T(syscall(457, &r, &s, sizeof s, 0));
	T(syscall(458, &r, ids, 200, 0));
	r.id = -1ull;
	r.param = 0;
	T(syscall(458, &r, ids, 200, 0));
}

/* Who may. */
static void rights(void)
{
	own();
	mkdir("m", 0777);
	mount("m", "m", "tmpfs", MS_NOSUID | MS_NODEV, NULL);
	mkdir("m/x", 0777);
	mkdir("m/n", 0777);
	mount("m", "m/x", "tmpfs", 0, NULL);
	int t = open_tree(AT_FDCWD, "m", CLONE_), f = fsopen("tmpfs", 0);
	fsconfig(f, 6, NULL, NULL, 0);
	struct attr a = { .set = MOUNT_ATTR_RDONLY };
	pid_t child = fork();
	if (!child) {
		drop_root();
		T(fsopen("tmpfs", 0));
		T(fsopen("tmpfs", 0x100));
		T(fspick(AT_FDCWD, "m", 0x100));
		T(fsmount(f, 0x100, 0));
		T(open_tree(AT_FDCWD, "m", CLONE_));
		Y(open_tree(AT_FDCWD, "m", 0) >= 0);
		T(move_mount(t, "", AT_FDCWD, "m", F_EMPTY | 0x1000));
		T(setattr(AT_FDCWD, "m", 0, &a, 32));
		/* Its own user and mount namespace: what was there is locked. */
		T(unshare(CLONE_NEWUSER | CLONE_NEWNS));
		T(setattr(AT_FDCWD, "m", 0, &a, 32));
		a = (struct attr) { .clr = MOUNT_ATTR_NOSUID };
		T(setattr(AT_FDCWD, "m", 0, &a, 32));
		a = (struct attr) { .clr = MOUNT_ATTR__ATIME, .set = MOUNT_ATTR_NOATIME };
		T(setattr(AT_FDCWD, "m", 0, &a, 32));
		T(open_tree(AT_FDCWD, "m", CLONE_));
		int all = open_tree(AT_FDCWD, "m", CLONE_ | AT_RECURSIVE);
		Y(all >= 0);
		a = (struct attr) { .clr = MOUNT_ATTR_NODEV };
		T(setattr(all, "", AT_EMPTY_PATH, &a, 32));
		T(move_mount(AT_FDCWD, "m/x", AT_FDCWD, "m/n", 0));
		T(move_mount(all, "", AT_FDCWD, "m/n", F_EMPTY));
		T(umount2("m/n/x", 0));
		T(umount2("m/n", 0));
		/* The trees of who was there before. */
		T(move_mount(t, "", AT_FDCWD, "m/n", F_EMPTY));
		T(fsconfig(f, 7, NULL, NULL, 0));
		int g = fsopen("tmpfs", 0);
		Y(g >= 0);
		T(fsconfig(g, 6, NULL, NULL, 0));
		int m = fsmount(g, 0, 0);
		T(move_mount(m, "", AT_FDCWD, "m/n", F_EMPTY));
		T(umount2("m/n", MNT_DETACH));
		g = fsopen("devtmpfs", 0);
		T(fsconfig(g, 6, NULL, NULL, 0));
		g = fsopen("mqueue", 0);
		T(fsconfig(g, 6, NULL, NULL, 0));
		g = fsopen("proc", 0);
		T(fsconfig(g, 6, NULL, NULL, 0));
		/* A slave of what it came from. */
		g = fspick(AT_FDCWD, "m", 0);
		Y(g >= 0);
		T(fsconfig(g, 0, "ro", NULL, 0));
		T(fsconfig(g, 7, NULL, NULL, 0));
		_exit(0);
	}
	waitpid(child, NULL, 0);
}

/* What a locked mount hides stays hidden, though it be made unbindable. */
static void hidden(void)
{
	own();
	mkdir("p", 0777);
	mkdir("q", 0777);
	mkdir("p/secret", 0777);
	mkdir("p/u", 0777);
	put("p/secret/f", "");
	put("p/u/under", "");
	mount("s", "p/secret", "tmpfs", 0, NULL);
	T(mount(NULL, "p/secret", NULL, MS_UNBINDABLE, NULL));
	pid_t child = fork();
	if (!child) {
		drop_root();
		T(unshare(CLONE_NEWUSER | CLONE_NEWNS));
		for (int i = 0; i < 2; i++) {
			struct attr a = { .propagation = i ? MS_PRIVATE : MS_UNBINDABLE };
			T(setattr(AT_FDCWD, "p/secret", 0, &a, 32));
			int t = open_tree(AT_FDCWD, "p", CLONE_ | AT_RECURSIVE);
			T(t < 0 ? -1 : 0);
			T(t < 0 ? 2 : faccessat(t, "secret/f", F_OK, 0));
			T(open_tree(AT_FDCWD, "p", CLONE_));
			T(mount("p", "q", NULL, MS_BIND, NULL));
			T(mount("p", "q", NULL, MS_BIND | MS_REC, NULL));
			T(access("q/secret/f", F_OK));
			umount2("q", MNT_DETACH);
			/* One that hides it below one that is left out. */
			T(mount("p", "q", NULL, MS_BIND | MS_REC, NULL));
			T(mount(NULL, "q", NULL, MS_UNBINDABLE, NULL));
			T(mount(".", "p/u", NULL, MS_BIND | MS_REC, NULL));
			T(access("p/u/p/secret/f", F_OK));
			umount2("p/u", MNT_DETACH);
			umount2("q", MNT_DETACH);
		}
		/* One of its own is left out. */
		T(mount("u", "p/u", "tmpfs", 0, NULL));
		T(mount(NULL, "p/u", NULL, MS_UNBINDABLE, NULL));
		T(mount("p", "q", NULL, MS_BIND | MS_REC, NULL));
		T(access("q/u/under", F_OK));
		T(access("q/secret/f", F_OK));
		_exit(0);
	}
	waitpid(child, NULL, 0);
}

/* No mount namespace holds itself. */
static void loops(void)
{
	/* Linux 6.18 numbers namespaces in the order of their making on each CPU alone. */
	cpu_set_t one = { { 1 } };
	sched_setaffinity(0, sizeof one, &one);
	own();
	put("f", "");
	mkdir("a", 0755);
	mkdir("b", 0755);
	mount("a", "a", "tmpfs", 0, NULL);
	put("a/f", "");
	char at[64];
	T(mount("/proc/self/ns/mnt", "f", NULL, MS_BIND, NULL));
	int t = open_tree(AT_FDCWD, "/proc/self/ns/mnt", CLONE_);
	Y(t >= 0);
	sprintf(at, "/proc/self/fd/%d", t);
	T(mount(at, "f", NULL, MS_BIND, NULL));
	T(mount(at, "f", NULL, MS_BIND | MS_REC, NULL));
	T(move_mount(t, "", AT_FDCWD, "f", F_EMPTY));
	int p[2], q[2];
	(void)!pipe(p);
	(void)!pipe(q);
	pid_t child = syscall(SYS_clone, CLONE_FILES | SIGCHLD, 0, 0, 0, 0);
	if (!child) {
		char c;
		unshare(CLONE_NEWNS);
		(void)!write(p[1], "", 1);
		(void)!read(q[0], &c, 1);
		/* Of this one and of the older one, by trees that the older one made. */
		T(mount(at, "f", NULL, MS_BIND, NULL));
		sprintf(at, "/proc/self/fd/%d", c);
		T(mount(at, "f", NULL, MS_BIND, NULL));
		T(move_mount(c, "", AT_FDCWD, "f", F_EMPTY));
		_exit(0);
	}
	char c, path[64];
	(void)!read(p[0], &c, 1);
	sprintf(path, "/proc/%d/ns/mnt", child);
	int u = open_tree(AT_FDCWD, path, CLONE_);
	Y(u >= 0);
	T(mount(path, "f", NULL, MS_BIND, NULL));
	T(umount2("f", 0));
	sprintf(at, "/proc/self/fd/%d", u);
	T(mount(at, "f", NULL, MS_BIND, NULL));
	T(umount2("f", 0));
	/* Not where it would go on to others. */
	mount(NULL, "a", NULL, MS_SHARED, NULL);
	T(mount(path, "a/f", NULL, MS_BIND, NULL));
	T(umount2("a/f", 0));
	mount("a", "b", NULL, MS_BIND, NULL);
	T(mount(path, "a/f", NULL, MS_BIND, NULL));
	T(move_mount(u, "", AT_FDCWD, "a/f", F_EMPTY));
	u = open_tree(AT_FDCWD, path, CLONE_);
	c = u;
	(void)!write(q[1], &c, 1);
	waitpid(child, NULL, 0);
}

/* A new mount of a kernel's file system allows no more than the one that is there. */
static void revealing(void)
{
	own();
	mkdir("m", 0777);
	T(mount(NULL, "/sys", NULL, MS_REMOUNT | MS_BIND | MS_RDONLY | MS_RELATIME, NULL));
	pid_t child = fork();
	if (!child) {
		drop_root();
		T(unshare(CLONE_NEWUSER | CLONE_NEWNS | CLONE_NEWNET));
		T(mount("x", "m", "sysfs", 0, NULL));
		T(mount("x", "m", "sysfs", MS_RDONLY | MS_NOATIME, NULL));
		T(mount("x", "m", "sysfs", MS_RDONLY | MS_NODIRATIME, NULL));
		T(mount("x", "m", "sysfs", MS_RDONLY, NULL));
		info("m");
		T(mount(NULL, "m", NULL, MS_REMOUNT | MS_BIND, NULL));
		T(mount(NULL, "m", NULL, MS_REMOUNT | MS_BIND | MS_RDONLY | MS_NOATIME, NULL));
		T(mount(NULL, "m", NULL, MS_REMOUNT | MS_BIND | MS_RDONLY | MS_NOSUID, NULL));
		T(mount(NULL, "m", NULL, MS_REMOUNT, NULL));
		T(mount(NULL, "m", NULL, MS_REMOUNT | MS_RDONLY, NULL));
		struct attr a = { .clr = MOUNT_ATTR_RDONLY };
		T(setattr(AT_FDCWD, "m", 0, &a, 32));
		info("m");
		T(umount2("m", 0));
		int f = fsopen("sysfs", 0);
		T(fsconfig(f, 6, NULL, NULL, 0));
		T(fsmount(f, 0, 0));
		T(fsmount(f, 0, MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOATIME));
		int m = fsmount(f, 0, MOUNT_ATTR_RDONLY);
		Y(m >= 0);
		T(setattr(m, "", AT_EMPTY_PATH, &a, 32));
		T(move_mount(m, "", AT_FDCWD, "m", F_EMPTY));
		T(mount(NULL, "m", NULL, MS_REMOUNT | MS_BIND, NULL));
		_exit(0);
	}
	waitpid(child, NULL, 0);
}

static int lines_of(const char *path, const char *with)
{
	char line[8192];
	FILE *f = fopen(path, "r");
	int n = 0;
	while (f && fgets(line, sizeof line, f))
		n += !*with || strstr(line, with);
	if (f)
		fclose(f);
	return n;
}

/* Names that would end a line or a field of what is shown. */
static void shown(void)
{
	own();
	const char *bad = "l\n99 1 0:99 \\ % rw,x - ext4 %dev rw";
	const char *good = "=l\\01299\\0401\\0400:99\\040\\134\\040%\\040rw\\054x\\040-\\040ext4\\040%dev\\040rw";
	mkdir(bad, 0755);
	mkdir("l2", 0755);
	mkdir("m", 0755);
	int n = lines_of("/proc/self/mountinfo", ""), k = lines_of("/proc/mounts", "");
	int f = fsopen("overlay", 0);
	T(fsconfig(f, 1, "lowerdir+", bad, 0));
	T(fsconfig(f, 1, "lowerdir+", "l2", 0));
	T(fsconfig(f, 1, "source", "a #b", 0));
	T(fsconfig(f, 6, NULL, NULL, 0));
	int m = fsmount(f, 0, 0);
	T(move_mount(m, "", AT_FDCWD, "m", F_EMPTY));
	T(lines_of("/proc/self/mountinfo", "") - n);
	T(lines_of("/proc/mounts", "") - k);
	T(lines_of("/proc/self/mountinfo", good));
	T(lines_of("/proc/mounts", good));
	T(lines_of("/proc/self/mountinfo", " a\\040\\043b "));
	T(lines_of("/proc/mounts", "a\\040\\043b "));
	/* As a list, and each as it was given. */
	static struct sm s;
	struct req r = { 24, 0, unique("m"), 0x80 | 0x400, 0 };
	T(syscall(457, &r, &s, sizeof s, 0));
	Y(strstr(s.str + s.opts, good));
	int found = 0;
	char *at = s.str + s.array;
	for (unsigned i = 0; i < s.n; i++, at += strlen(at) + 1)
		found += strstr(at, bad) != NULL;
	T(found);
}

/* Layers of an overlay, by path and by descriptor. */
static void layers(void)
{
	own();
	const char *dirs[] = { "l1", "l2", "up", "work", "m", "o,p" };
	for (int i = 0; i < 6; i++)
		mkdir(dirs[i], 0755);
	put("l1/one", "");
	put("l2/two", "");
	put("o,p/comma", "");
	int f = fsopen("overlay", 0);
	T(fsconfig(f, 1, "lowerdir+", "nothing", 0));
	T(fsconfig(f, 1, "lowerdir+", "", 0));
	T(fsconfig(f, 1, "lowerdir+", "l1", 0));
	T(fsconfig(f, 1, "upperdir", "up", 0));
	T(fsconfig(f, 1, "workdir", "work", 0));
	T(fsconfig(f, 0, "userxattr", NULL, 0));
	T(fsconfig(f, 1, "lowerdir+", "o,p", 0));
	T(fsconfig(f, 1, "xino", "nonsense", 0));
	T(fsconfig(f, 6, NULL, NULL, 0));
	int m = fsmount(f, 0, 0);
	T(move_mount(m, "", AT_FDCWD, "m", F_EMPTY));
	Y(there("m/one"));
	Y(there("m/comma"));
	put("m/new", "");
	Y(there("up/new"));
	umount2("m", MNT_DETACH);
	close(m);
	close(f);
	f = fsopen("overlay", 0);
	int d = open("l2", O_PATH);
	T(fsconfig(f, 5, "lowerdir+", NULL, d));
	T(fsconfig(f, 1, "lowerdir+", "l1", 0));
	T(fsconfig(f, 6, NULL, NULL, 0));
	m = fsmount(f, 0, 0);
	T(faccessat(m, "two", F_OK, 0));
	T(faccessat(m, "one", F_OK, 0));
	T(mkdirat(m, "q", 0755));
}

/* Handles of files, on a tmpfs. */
struct handle { unsigned n; int type; unsigned char b[128]; };

static void handles(void)
{
	own();
	mkdir("d", 0700);
	mkdir("d/e", 0755);
	put("d/e/f", "text");
	symlink("d/e/f", "l");
	struct handle h = { 0 }, k = { .n = 128 };
	int id = 0;
	uint64_t unique_id = 0;
#define to(p, h, id, f) syscall(SYS_name_to_handle_at, AT_FDCWD, p, h, id, f)
#define by(d, h, f) syscall(SYS_open_by_handle_at, d, h, f)
	T(to("d/e/f", &h, &id, 0));
	T(h.n);
	T(h.type);
	Y(id > 0);
	T(to("d/e/f", &k, &id, 0x100));
	T(to("d/e/f", &k, &id, 0x202));
	T(to("", &k, &id, 0));
	T(to("nothing", &k, &id, 0));
	T(to("d/e/f", (void *)1, &id, 0));
	T(to("d/e/f", &k, (void *)1, 0));
	h.n = 129;
	T(to("d/e/f", &h, &id, 0));
	k.n = 128;
	T(to("d/e/f", &k, &unique_id, 1));
	Y(unique_id == unique("d"));
	T(k.n);
	T(k.type);
	char b[10] = "";
	int fd = by(AT_FDCWD, &k, O_RDONLY | O_CLOEXEC);
	T(fcntl(fd, F_GETFD));
	T(read(fd, b, sizeof b));
	S(b, 4);
	char at[64], name[600] = "";
	sprintf(at, "/proc/self/fd/%d", fd);
	T(readlink(at, name, sizeof name) > 0);
	char *end = strrchr(name, 'd');
	S(end, end ? (long)strlen(end) : 0);
	/* Of a link, of what it leads to, of a directory, and of one that is open. */
	h.n = 128;
	T(to("l", &h, &id, 0));
	T(memcmp(&h, &k, 8 + 12) != 0);
	T(to("l", &h, &id, AT_SYMLINK_FOLLOW));
	T(memcmp(h.b, k.b, 12));
	h.n = 128;
	T(to("d", &h, &id, 0));
	int dir = by(AT_FDCWD, &h, O_RDONLY | O_DIRECTORY);
	T(faccessat(dir, "e/f", F_OK, 0));
	T(faccessat(dir, "../l", F_OK, 0));
	T(syscall(SYS_name_to_handle_at, dir, "", &h, &id, AT_EMPTY_PATH));
	T(by(dir, &h, O_WRONLY));
	T(by(999, &h, O_RDONLY));
	int ends[2];
	T(pipe(ends));
	T(by(ends[0], &h, O_RDONLY));
	h.n = 0;
	T(by(AT_FDCWD, &h, O_RDONLY));
	h.n = 129;
	T(by(AT_FDCWD, &h, O_RDONLY));
	h.n = 12;
	h.type = -1;
	T(by(AT_FDCWD, &h, O_RDONLY));
	h.type = 77;
	T(by(AT_FDCWD, &h, O_RDONLY));
	h.type = 1;
	memset(h.b + 4, 0x55, 8);
	T(by(AT_FDCWD, &h, O_RDONLY));
	T(by(AT_FDCWD, (void *)1, O_RDONLY));
	close(fd);
	rename("d/e/f", "moved");
	fd = by(AT_FDCWD, &k, O_RDONLY);
	T(read(fd, b, sizeof b));
	close(fd);
	T(chmod("moved", 0));
	unlink("moved");
	T(by(AT_FDCWD, &k, O_RDONLY));
	/* To compare alone. */
	h.n = 128;
	T(syscall(SYS_name_to_handle_at, AT_FDCWD, "/proc/self/status", &h, &id, 0));
	T(syscall(SYS_name_to_handle_at, AT_FDCWD, "/proc/uptime", &h, &id, 0x200));
	T(h.type);
	T(h.n);
	T(by(AT_FDCWD, &h, O_RDONLY));
	drop_root();
	h.n = 128;
	T(to("l", &h, &id, 0));
	T(by(AT_FDCWD, &h, O_RDONLY));
	T(by(AT_FDCWD, &h, O_PATH));
}

static int told(int fd)
{
	struct pollfd p = { fd, POLLIN | POLLPRI };
	poll(&p, 1, 0);
	return p.revents;
}

/* Who has the list of mounts open is told, once each time, that it has changed. */
static void changes(void)
{
	own();
	int fd = open("/proc/self/mountinfo", O_RDONLY), other = open("/proc/self/mounts", O_RDONLY);
	T(told(fd));
	mkdir("a", 0755), mkdir("b", 0755);
	T(mount("t", "a", "tmpfs", 0, NULL));
	T(told(fd));
	T(told(fd));
	T(told(other));
	int ep = epoll_create1(0);
	struct epoll_event e = { EPOLLPRI | EPOLLET, { .u32 = 7 } };
	T(epoll_ctl(ep, EPOLL_CTL_ADD, fd, &e));
	T(epoll_wait(ep, &e, 1, 0));
	T(mount(NULL, "a", NULL, MS_REMOUNT | MS_BIND | MS_RDONLY, NULL));
	T(epoll_wait(ep, &e, 1, 1000));
	T(e.events);
	T(epoll_wait(ep, &e, 1, 0));
	T(mount("a", "b", NULL, MS_BIND, NULL));
	T(epoll_wait(ep, &e, 1, 1000));
	struct attr a = { .set = MOUNT_ATTR_NOEXEC };
	T(setattr(AT_FDCWD, "b", 0, &a, sizeof a));
	T(told(other));
	T(told(other));
	T(umount2("b", 0));
	T(told(other));
	/* Who waits is woken. */
	pid_t p = fork();
	if (p == 0) {
		usleep(50000);
		_exit(mount("t", "b", "tmpfs", 0, NULL) != 0);
	}
	T(told(fd));
	struct pollfd f = { fd, POLLPRI };
	T(poll(&f, 1, 2000));
	T(f.revents);
	int st;
	waitpid(p, &st, 0);
	T(WEXITSTATUS(st));
	/* Not of another namespace's, nor of a mount that is in none. */
	p = fork();
	if (p == 0)
		_exit(unshare(CLONE_NEWNS) || mount("u", "a", "tmpfs", 0, NULL));
	waitpid(p, &st, 0);
	T(WEXITSTATUS(st));
	T(told(fd));
	int d = open_tree(AT_FDCWD, "a", CLONE_);
	T(told(fd));
	T(move_mount(d, "", AT_FDCWD, "b", F_EMPTY));
	T(told(fd));
	close(d);
	T(told(fd));
	int n = open("/proc/self/status", O_RDONLY);
	T(epoll_ctl(ep, EPOLL_CTL_ADD, n, &e));
	close(n), close(fd), close(other), close(ep);
}

/* What stands for a descriptor may stand for another soon: nothing is mounted on it. */
static void ephemeral(void)
{
	char link[64], path[64], info[64];
	own();
	put("foo", "foo"), put("bar", "bar");
	int fd = open("foo", O_RDONLY);
	sprintf(link, "/proc/self/fd/%d", fd);
	sprintf(info, "/proc/self/fdinfo/%d", fd);
	int held = open(link, O_PATH | O_NOFOLLOW);
	sprintf(path, "/proc/self/fd/%d", held);
	T(mount("bar", path, "", MS_BIND, NULL));
	T(mount("bar", info, "", MS_BIND, NULL));
	int tree = open_tree(AT_FDCWD, "bar", OPEN_TREE_CLONE);
	T(move_mount(tree, "", held, "", F_EMPTY | T_EMPTY));
	T(move_mount(tree, "", AT_FDCWD, info, F_EMPTY));
	T(move_mount(tree, "", AT_FDCWD, link, F_EMPTY));
	T(mount("bar", "/proc/self/comm", "", MS_BIND, NULL));
	T(umount2("/proc/self/comm", MNT_DETACH));
}

static const struct check checks[] = {
	CHECK(handles), CHECK(changes),
	CHECK(context), CHECK(pick), CHECK(trees), CHECK(beneath), CHECK(attributes), CHECK(shared), CHECK(groups), CHECK(tell),
	CHECK(rights), CHECK(layers), CHECK(hidden), CHECK(loops), CHECK(revealing), CHECK(ephemeral), CHECK(shown),
};

MAIN(checks)
