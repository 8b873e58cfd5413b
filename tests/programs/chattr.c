/* The flags of chattr(1): on tmpfs, and on what the working directory is on. */
#define AREA "chattr"
#include "check.h"
#include <linux/fs.h>
#include <sys/statfs.h>
#include <sys/syscall.h>
#include <sys/xattr.h>

int mount(const char *, const char *, const char *, unsigned long, const void *);

/* What tmpfs knows of them: other file systems have more. */
#define KNOWN (FS_IMMUTABLE_FL | FS_APPEND_FL | FS_NODUMP_FL | FS_NOATIME_FL)

static int flags_of(const char *name)
{
	int fd = open(name, O_RDONLY | O_NONBLOCK), f = 0;
	int r = ioctl(fd, FS_IOC_GETFLAGS, &f), e = errno;
	close(fd), errno = e;
	return r ? -1 : f & KNOWN;
}

static int set(const char *name, int flags)
{
	int fd = open(name, O_RDONLY | O_NONBLOCK), f = 0;
	ioctl(fd, FS_IOC_GETFLAGS, &f);
	f = (f & ~KNOWN) | flags;
	int r = ioctl(fd, FS_IOC_SETFLAGS, &f), e = errno;
	close(fd), errno = e;
	return r;
}

static int own(void)
{
	return geteuid() || unshare(CLONE_NEWNS) || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) || mkdir("w", 0755) ||
	       mount("w", "w", "tmpfs", 0, NULL) || chdir("w");
}

static void changes(const char *f)
{
	struct timespec now[2] = { { 0, UTIME_NOW }, { 0, UTIME_NOW } }, then[2] = { { 1, 1 }, { 1, 1 } };
	T(open(f, O_WRONLY));
	T(open(f, O_RDWR | O_APPEND) >= 0);
	T(open(f, O_RDONLY) >= 0);
	T(open(f, O_RDONLY | O_TRUNC));
	T(access(f, W_OK));
	T(truncate(f, 0));
	T(chmod(f, 0600));
	T(chown(f, 1, 1));
	T(utimensat(AT_FDCWD, f, NULL, 0));
	T(utimensat(AT_FDCWD, f, now, 0));
	T(utimensat(AT_FDCWD, f, then, 0));
	T(setxattr(f, "user.a", "b", 1, 0));
	T(removexattr(f, "user.b"));
	T(link(f, "other"));
	T(rename(f, "other"));
	T(unlink(f));
	put("over", "x");
	T(rename("over", f));
	T(unlink("over"));
}

static void immutable(void)
{
	put("f", "0123456789");
	setxattr("f", "user.b", "c", 1, 0);
	int fd = open("f", O_RDWR), r = open("f", O_RDONLY);
	T(flags_of("f"));
	T(set("f", FS_IMMUTABLE_FL));
	T(flags_of("f"));
	changes("f");
	T(fchmod(fd, 0600));
	T(fallocate(fd, 0, 0, 100));
	struct stat s;
	stat("f", &s);
	T(s.st_size); T(s.st_mode & 0777);
	loff_t at = 0, to = 0;
	put("from", "abc");
	int from = open("from", O_RDONLY);
	T(copy_file_range(from, &at, fd, &to, 3, 0));
	T(set("f", 0));
	T(open("f", O_RDWR) >= 0);
	T(unlink("f"));
	/* No names in what cannot be changed. */
	mkdir("d", 0777), put("d/f", "x"), mkdir("d/sub", 0777);
	T(set("d", FS_IMMUTABLE_FL));
	T(open("d/f", O_RDWR) >= 0);
	T(open("d/new", O_CREAT | O_RDWR, 0644));
	T(open("d", O_TMPFILE | O_RDWR, 0644));
	T(mkdir("d/new", 0755));
	T(symlink("a", "d/new"));
	T(mknod("d/new", S_IFIFO | 0644, 0));
	T(link("from", "d/new"));
	T(rename("from", "d/new"));
	T(unlink("d/f"));
	T(rmdir("d/sub"));
	T(rmdir("d"));
	T(rename("d", "e"));
	T(set("d", 0));
	T(rename("d", "e"));
}

static void append_only(void)
{
	put("f", "0123456789");
	int before = open("f", O_RDWR);
	T(set("f", FS_APPEND_FL));
	changes("f");
	T(open("f", O_RDWR | O_APPEND | O_TRUNC));
	int fd = open("f", O_RDWR | O_APPEND);
	T(write(fd, "more", 4));
	T(fcntl(fd, F_SETFL, 0));
	T(fcntl(before, F_SETFL, O_APPEND));
	T(fcntl(fd, F_SETFL, O_APPEND | O_NONBLOCK));
	T(ftruncate(fd, 0));
	T(fallocate(fd, FALLOC_FL_KEEP_SIZE, 0, 100));
	T(fallocate(fd, FALLOC_FL_KEEP_SIZE | FALLOC_FL_PUNCH_HOLE, 0, 4));
	T(mmap(0, 4096, PROT_READ, MAP_SHARED, fd, 0) == MAP_FAILED ? errno : 0);
	T(mmap(0, 4096, PROT_READ, MAP_PRIVATE, fd, 0) == MAP_FAILED ? errno : 0);
	T(set("f", 0));
	T(fcntl(fd, F_SETFL, 0));
	T(ftruncate(fd, 3));
	T(unlink("f"));
	mkdir("d", 0777), put("d/f", "x");
	T(set("d", FS_APPEND_FL));
	put("d/new", "y");
	T(access("d/new", F_OK));
	T(unlink("d/f"));
	T(rename("d/f", "d/g"));
	T(rename("d/f", "g"));
	T(open("d/f", O_RDWR) >= 0);
	T(set("d", 0));
}

static void others(void)
{
	put("f", "x"), mkdir("d", 0755);
	mkfifo("p", 0644);
	T(set("f", FS_NODUMP_FL | FS_NOATIME_FL));
	T(flags_of("f"));
	T(flags_of("p"));
	/* Reading it is not noted. */
	struct timespec old[2] = { { 1, 0 }, { 2, 0 } };
	struct stat st;
	char b;
	put("t", "x"), put("u", "x");
	T(set("t", FS_NOATIME_FL));
	for (const char *name = "t"; name; name = *name == 't' ? "u" : NULL) {
		utimensat(AT_FDCWD, name, old, 0);
		read(open(name, O_RDONLY), &b, 1);
		stat(name, &st);
		T(st.st_atim.tv_sec == 1);
	}
	/* What a directory passes on. */
	T(set("d", FS_NODUMP_FL | FS_NOATIME_FL | FS_APPEND_FL));
	put("d/f", "x"), mkdir("d/d", 0755);
	T(flags_of("d/f")); T(flags_of("d/d"));
	T(set("d", 0));
	/* By the other call. */
	struct fsxattr x = { 0 };
	int fd = open("f", O_RDWR);
	T(ioctl(fd, FS_IOC_FSGETXATTR, &x));
	T(x.fsx_xflags & 0xf8);
	x.fsx_xflags = (x.fsx_xflags & ~0xf8) | FS_XFLAG_APPEND;
	T(ioctl(fd, FS_IOC_FSSETXATTR, &x));
	T(flags_of("f"));
	struct statx s;
	T(statx(AT_FDCWD, "f", 0, STATX_BASIC_STATS, &s));
	T(s.stx_attributes & (KNOWN & ~FS_NOATIME_FL));
	T(s.stx_attributes_mask & (KNOWN & ~FS_NOATIME_FL));
	T(statx(fd, "", AT_EMPTY_PATH, STATX_BASIC_STATS, &s));
	T(s.stx_attributes & (KNOWN & ~FS_NOATIME_FL));
	/* Who may. */
	T(set("f", 0));
	chown("f", 1000, 1000), chmod(".", 0777);
	T(CHILD(drop_root(); _exit(set("f", FS_IMMUTABLE_FL) == -1 && errno == EPERM)));
	T(CHILD(setresuid(1000, 1000, 1000); _exit(set("f", FS_IMMUTABLE_FL) == -1 && errno == EPERM)));
	T(CHILD(setresuid(1000, 1000, 1000); _exit(set("f", FS_NODUMP_FL) ? errno : 0)));
	T(CHILD(setresuid(1001, 1001, 1001); _exit(set("f", FS_NOATIME_FL) == -1 && errno == EPERM)));
	T(flags_of("f"));
	int n = FS_NODUMP_FL, o = open("f", O_PATH);
	T(ioctl(o, FS_IOC_SETFLAGS, &n));
	T(ioctl(fd, FS_IOC_SETFLAGS, (void *)8));
	T(ioctl(fd, FS_IOC_GETFLAGS, (void *)8));
}

static void on_tmpfs(void)
{
	T(own());
	T(CHILD(mkdir("1", 0777); chdir("1"); immutable()));
	T(CHILD(mkdir("2", 0777); chdir("2"); append_only()));
	T(CHILD(mkdir("3", 0777); chdir("3"); others()));
	/* What it has not. */
	put("f", "x");
	int fd = open("f", O_RDWR), f = 0x800000;
	T(ioctl(fd, FS_IOC_GETFLAGS, &f)); T(f);
	f = FS_SYNC_FL;
	T(ioctl(fd, FS_IOC_SETFLAGS, &f));
	f = FS_NOCOW_FL | FS_IMMUTABLE_FL;
	T(ioctl(fd, FS_IOC_SETFLAGS, &f));
	struct fsxattr x = { .fsx_projid = 4 };
	T(ioctl(fd, FS_IOC_FSSETXATTR, &x));
	struct statfs s;
	int size = 0, p[2];
	pipe(p), fstatfs(fd, &s);
	T(ioctl(fd, FIGETBSZ, &size)); Y(size == s.f_bsize);
	T(ioctl(p[0], FIGETBSZ, &size)); T(size);
	long long taken = -1;
	T(ioctl(fd, FIOQSIZE, &taken)); T(taken);
	T(ioctl(p[0], FIOQSIZE, &taken));
	int m = syscall(SYS_memfd_create, "m", 0);
	T(ioctl(m, FS_IOC_GETFLAGS, &f)); T(f);
	int proc = open("/proc/self/stat", O_RDONLY), null = open("/dev/null", O_RDWR);
	T(ioctl(proc, FS_IOC_GETFLAGS, &f));
	T(ioctl(null, FS_IOC_GETFLAGS, &f));
	T(ioctl(p[0], FS_IOC_GETFLAGS, &f));
}

static void on_overlay(void)
{
	T(own());
	mkdir("l", 0755), mkdir("u", 0755), mkdir("w", 0755), mkdir("m", 0755);
	put("l/low", "low"), put("l/low2", "low"), put("l/fixed", "fixed");
	mkdir("l/d", 0755), put("l/d/f", "f"), put("l/d/g", "g"), put("l/d/gone", "gone");
	T(set("l/fixed", FS_IMMUTABLE_FL));
	T(mount("o", "m", "overlay", 0, "lowerdir=l,upperdir=u,workdir=w"));
	T(chdir("m"));
	T(CHILD(mkdir("1", 0777); chdir("1"); immutable()));
	T(CHILD(mkdir("2", 0777); chdir("2"); append_only()));
	T(CHILD(mkdir("3", 0777); chdir("3"); others()));
	T(flags_of("low"));
	T(set("low", FS_IMMUTABLE_FL));
	T(flags_of("low"));
	T(flags_of("../l/low"));
	T(open("low", O_WRONLY));
	T(unlink("low"));
	T(flags_of("fixed"));
	T(open("fixed", O_WRONLY));
	T(unlink("fixed"));
	T(set("low2", FS_NODUMP_FL));
	T(flags_of("low2"));
	T(open("low2", O_WRONLY) >= 0);
	T(flags_of("low2"));
	T(set("low", 0));
	T(unlink("low"));
	/* What is in such a directory can be changed, though it is copied for that. */
	T(unlink("d/gone"));
	T(set("d", FS_IMMUTABLE_FL));
	T(flags_of("d"));
	T(flags_of("../u/d"));
	T(open("d/f", O_WRONLY | O_APPEND) >= 0);
	T(chmod("d/g", 0600));
	T(open("d/new", O_CREAT | O_WRONLY, 0600));
	T(unlink("d/f"));
	T(set("d", FS_APPEND_FL));
	T(flags_of("d"));
	T(open("d/gone", O_CREAT | O_WRONLY, 0600) >= 0);
	T(open("d/new", O_CREAT | O_WRONLY, 0600) >= 0);
	T(unlink("d/new"));
	char text[8] = "";
	T(lgetxattr("../u/d", "trusted.overlay.protattr", text, 8));
	S(text, 8);
	T(lgetxattr("d", "trusted.overlay.protattr", text, 8));
	T(set("d", 0));
	T(lgetxattr("../u/d", "trusted.overlay.protattr", text, 8));
	T(unlink("d/new"));
	/* Flags that the upper tree's file has, whoever gave it them. */
	put("mine", "mine");
	T(set("../u/mine", FS_IMMUTABLE_FL));
	T(open("mine", O_WRONLY));
	T(open("mine", O_RDONLY) >= 0);
	T(chmod("mine", 0600));
	T(setxattr("mine", "user.a", "b", 1, 0));
	T(set("../u/mine", FS_APPEND_FL));
	T(open("mine", O_WRONLY));
	T(open("mine", O_WRONLY | O_APPEND) >= 0);
	T(chmod("mine", 0600));
	T(set("../u/mine", 0));
}

static const struct check all[] = { CHECK(immutable), CHECK(append_only), CHECK(others), CHECK(on_tmpfs), CHECK(on_overlay) };
MAIN(all)
