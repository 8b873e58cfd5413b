/* Files, directories, links, attributes, locks. */
#define AREA "files"
#include "check.h"
#include <linux/openat2.h>
#include <sys/file.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/inotify.h>
#include <sys/sendfile.h>
#include <sys/timerfd.h>
#include <sys/statfs.h>
#include <sys/sysmacros.h>
#include <sys/xattr.h>
#ifndef RENAME_NOREPLACE
#define RENAME_NOREPLACE 1
#define RENAME_EXCHANGE 2
#endif

static void open_errors(void)
{
	char name[300], path[5000];
	put("f", "text");
	mkdir("d", 0755);
	symlink("f", "l");
	symlink("loop", "loop");
	memset(name, 'a', 256), name[256] = 0;
	memset(path, '/', 4999), path[4999] = 0;
	T(open("missing", O_RDONLY));
	T(open("", O_RDONLY));
	T(open((char *)8, O_RDONLY));
	T(open("f", O_CREAT | O_EXCL | O_RDWR, 0644));
	T(open("l", O_CREAT | O_EXCL | O_RDWR, 0644));
	T(open("d", O_WRONLY));
	T(open("d", O_RDWR));
	T(open("d", O_CREAT, 0644));
	T(open("f", O_DIRECTORY));
	T(open("f/x", O_RDONLY));
	T(open("f/", O_RDONLY));
	T(open("f/.", O_RDONLY));
	T(open("new/", O_CREAT | O_RDWR, 0644));
	T(open("d/", O_CREAT | O_RDWR, 0644));
	T(open("l", O_NOFOLLOW));
	T(open("loop", O_RDONLY));
	T(open("loop/x", O_RDONLY));
	T(open(name, O_RDONLY));
	T(open(path, O_RDONLY));
	T(openat(77, "f", O_RDONLY));
	T(openat(-1, "/", O_RDONLY));
	int fd = open("f", O_RDONLY);
	T(openat(fd, "x", O_RDONLY));
	T(open("d", O_TMPFILE | O_RDONLY, 0600));
	T(open("f", O_TMPFILE | O_RDWR, 0600));
	T(open("f", O_RDONLY | O_CREAT | O_DIRECTORY, 0600));
}

static void open_modes(void)
{
	char b[8] = "";
	put("f", "text");
	int r = open("f", O_RDONLY), w = open("f", O_WRONLY), p = open("f", O_PATH), d = open(".", O_RDONLY);
	T(write(r, "x", 1));
	T(read(w, b, 1));
	T(read(p, b, 1));
	T(write(p, b, 1));
	T(read(d, b, 1));
	T(write(d, b, 1));
	T(lseek(p, 0, SEEK_SET));
	T(fchmod(p, 0600));
	T(ftruncate(p, 0));
	T(fsync(p));
	T(ioctl(p, FIONREAD, b));
	T(fcntl(p, F_GETFL) & O_PATH ? 1 : 0);
	struct stat s;
	T(fstat(p, &s));
	T(s.st_size);
	int trunc = open("f", O_RDWR | O_TRUNC);
	T(fstat(trunc, &s));
	T(s.st_size);
	int t = open(".", O_TMPFILE | O_RDWR, 0600);
	T(fstat(t, &s));
	T(s.st_nlink);
	T(s.st_mode & 07777);
	T(write(t, "abc", 3));
	char proc[64];
	sprintf(proc, "/proc/self/fd/%d", t);
	T(linkat(AT_FDCWD, proc, AT_FDCWD, "named", AT_SYMLINK_FOLLOW));
	T(stat("named", &s));
	T(s.st_size);
	int x = open(".", O_TMPFILE | O_RDWR | O_EXCL, 0600);
	sprintf(proc, "/proc/self/fd/%d", x);
	T(linkat(AT_FDCWD, proc, AT_FDCWD, "never", AT_SYMLINK_FOLLOW));
}

static void creation_mode(void)
{
	struct stat s;
	umask(027);
	T(close(open("f", O_CREAT | O_WRONLY, 0777)));
	stat("f", &s);
	T(s.st_mode & 07777);
	T(s.st_mode >> 12);
	mkdir("d", 0777);
	stat("d", &s);
	T(s.st_mode & 07777);
	T(umask(022));
	mkfifo("p", 0666);
	stat("p", &s);
	T(s.st_mode & 07777);
	T(S_ISFIFO(s.st_mode));
	symlink("x", "l");
	lstat("l", &s);
	T(s.st_mode & 07777);
	T(s.st_size);
	T(mknod("r", S_IFREG | 0600, 0));
	T(mknod("r", S_IFREG | 0600, 0));
	T(mknod("z", S_IFDIR | 0600, 0));
	T(mknod("z", 0170000 | 0600, 0));
	T(mknod("r2", 0600, 0));
	T(mknod("s", S_IFSOCK | 0600, 0));
	stat("s", &s);
	T(S_ISSOCK(s.st_mode));
	T(open("s", O_RDWR));
}

static void read_write(void)
{
	char b[64] = "";
	int fd = open("f", O_CREAT | O_RDWR, 0644);
	T(write(fd, "hello world", 11));
	T(read(fd, b, 10));
	T(lseek(fd, 0, SEEK_SET));
	T(read(fd, b, 5));
	S(b, 5);
	T(read(fd, b, 50));
	S(b, 6);
	T(read(fd, b, 50));
	T(pread(fd, b, 5, 6));
	S(b, 5);
	T(pread(fd, b, 5, 100));
	T(pread(fd, b, 5, -1));
	T(pwrite(fd, b, 5, -1));
	T(pwrite(fd, "J", 1, 0));
	T(lseek(fd, 0, SEEK_CUR));
	T(read(fd, (void *)8, 5));
	T(lseek(fd, 0, SEEK_SET));
	T(read(fd, (void *)8, 5));
	T(write(fd, (void *)8, 5));
	T(write(fd, NULL, 0));
	T(read(fd, b, 0));
	T(read(99, b, 1));
	T(pwrite(fd, "end", 3, 20));
	T(pread(fd, b, 50, 0));
	S(b, 23);
}

/* Long reads and writes at the position that threads share: each as a whole, none twice, none left out. */
#define LONG (20 << 20)
#define TURNS 3
struct in_turns {
	int fd, writes, byte, torn, done;
	char *buf;
};

static void *take_turns(void *arg)
{
	struct in_turns *t = arg;
	memset(t->buf, t->byte, LONG);
	for (int i = 0; i < TURNS; i++) {
		ssize_t n = t->writes ? write(t->fd, t->buf, LONG) : read(t->fd, t->buf, LONG);
		t->done += n == LONG;
		for (int at = 0; !t->writes && at < LONG; at += 4096)
			t->torn += t->buf[at] != t->buf[0];
	}
	return NULL;
}

static void two_in_turns(int fd, int writes)
{
	struct in_turns t[2] = { { fd, writes, 'a' }, { fd, writes, 'b' } };
	pthread_t id[2];
	lseek(fd, 0, SEEK_SET);
	for (int i = 0; i < 2; i++) {
		t[i].buf = mmap(NULL, LONG, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		pthread_create(&id[i], NULL, take_turns, &t[i]);
	}
	for (int i = 0; i < 2; i++) {
		pthread_join(id[i], NULL);
		munmap(t[i].buf, LONG);
	}
	T(t[0].done + t[1].done);
	T(t[0].torn + t[1].torn);
	T(lseek(fd, 0, SEEK_CUR) == 2L * TURNS * LONG);
}

static void long_transfers(void)
{
	int fd = open("f", O_CREAT | O_RDWR, 0644);
	two_in_turns(fd, 1);
	two_in_turns(fd, 0);
	char b;
	T(read(fd, &b, 1));
}

static void vectors(void)
{
	char a[4] = "", b[8] = "";
	int fd = open("f", O_CREAT | O_RDWR, 0644);
	struct iovec w[3] = { { "one", 3 }, { NULL, 0 }, { "two", 3 } };
	struct iovec r[2] = { { a, 2 }, { b, 8 } };
	T(writev(fd, w, 3));
	T(preadv(fd, r, 2, 1));
	S(a, 2);
	S(b, 3);
	T(readv(fd, r, 0));
	T(readv(fd, r, -1));
	T(readv(fd, r, 1025));
	T(readv(fd, (void *)8, 1));
	struct iovec bad[1] = { { b, (size_t)-1 } };
	T(readv(fd, bad, 1));
	T(writev(fd, bad, 1));
	struct iovec part[2] = { { "xy", 2 }, { (void *)8, 4 } };
	T(pwritev(fd, part, 2, 0));
	T(pwritev(fd, part, 2, -1));
	T(syscall(SYS_preadv2, fd, r, 2, 0L, 0L, 0));
	T(syscall(SYS_preadv2, fd, r, 2, -1L, 0L, 0));
	T(syscall(SYS_preadv2, fd, r, 2, 0L, 0L, 0x10000));
	T(syscall(SYS_pwritev2, fd, w, 3, 0L, 0L, 0x10));
	struct stat s;
	fstat(fd, &s);
	T(s.st_size);
}

static void append(void)
{
	char b[16] = "";
	int fd = open("f", O_CREAT | O_RDWR | O_APPEND, 0644);
	write(fd, "abc", 3);
	T(lseek(fd, 0, SEEK_SET));
	T(write(fd, "def", 3));
	T(lseek(fd, 0, SEEK_CUR));
	T(pwrite(fd, "ghi", 3, 0));
	T(lseek(fd, 0, SEEK_CUR));
	T(pread(fd, b, 16, 0));
	S(b, 9);
	T(fcntl(fd, F_SETFL, 0));
	T(pwrite(fd, "X", 1, 0));
	T(pread(fd, b, 16, 0));
	S(b, 9);
	T(fcntl(fd, F_GETFL) & O_APPEND);
}

/* Writers of one file, each with an open file of its own: lines stay whole and in each one's order, and what is
   before each one's position is its own. */
static void append_together(void)
{
	enum { WRITERS = 3, LINES = 400, LEN = 16 };
	char b[LEN + 1], own[LEN + 1];
	int fd = open("f", O_CREAT | O_RDWR, 0644);
	for (int w = 0; w < WRITERS; w++)
		if (fork() == 0) {
			int wrong = 0, f = open("f", O_RDWR | (w ? O_APPEND : 0));
			for (int i = 0; i < LINES; i++) {
				sprintf(b, "%d %013d\n", w, i);
				struct iovec v = {b, LEN};
				/* The first one by a flag of each call. */
				long n = w ? write(f, b, LEN) : syscall(SYS_pwritev2, f, &v, 1, -1L, -1L, 0x10);
				pread(f, own, LEN, lseek(f, 0, SEEK_CUR) - LEN);
				wrong += n != LEN || memcmp(b, own, LEN);
			}
			_exit(wrong != 0);
		}
	int failed = 0, st;
	while (wait(&st) > 0)
		failed += st != 0;
	T(failed);
	T(lseek(fd, 0, SEEK_END));
	int next[WRITERS] = {0}, wrong = 0;
	for (int i = 0; i < WRITERS * LINES; i++) {
		int w = -1, n = -1;
		memset(b, 0, sizeof b);
		pread(fd, b, LEN, i * LEN);
		sscanf(b, "%d %d", &w, &n);
		wrong += w < 0 || w >= WRITERS || n != next[w]++;
	}
	T(wrong);
	/* Nothing moves where nothing is written. */
	int a = open("f", O_RDWR | O_APPEND);
	T(lseek(a, 5, SEEK_SET));
	T(write(a, b, 0));
	struct iovec none = {b, 0}, one = {b, 1};
	T(pwritev(a, &none, 1, 3));
	T(lseek(a, 0, SEEK_CUR));
	T(syscall(SYS_pwritev2, fd, &none, 1, -1L, -1L, 0x10));
	T(syscall(SYS_pwritev2, fd, &one, 1, 2L, 0L, 0x10));
	T(lseek(fd, 0, SEEK_CUR));
	T(syscall(SYS_pwritev2, fd, &one, 1, -1L, -1L, 0x10));
	T(lseek(fd, 0, SEEK_CUR));
	/* The length is as others left it. */
	T(ftruncate(fd, 7));
	T(write(a, "x", 1));
	T(lseek(a, 0, SEEK_CUR));
	T(fallocate(fd, 0, 0, 5000));
	T(write(a, "x", 1));
	T(lseek(a, 0, SEEK_CUR));
}

static void seeking(void)
{
	int p[2], fd = open("f", O_CREAT | O_RDWR, 0644);
	pipe(p);
	ftruncate(fd, 100);
	T(lseek(fd, 10, SEEK_SET));
	T(lseek(fd, 10, SEEK_CUR));
	T(lseek(fd, -10, SEEK_END));
	T(lseek(fd, -200, SEEK_END));
	T(lseek(fd, -1, SEEK_SET));
	T(lseek(fd, 1000, SEEK_END));
	T(lseek(fd, 0, 9));
	T(lseek(fd, 200, SEEK_DATA));
	T(lseek(fd, 200, SEEK_HOLE));
	T(lseek(fd, LONG_MAX, SEEK_CUR));
	T(lseek(p[0], 0, SEEK_CUR));
	T(lseek(99, 0, SEEK_CUR));
	write(fd, "x", 1);
	T(lseek(fd, 0, SEEK_HOLE) >= 0);
}

static void sparse(void)
{
	struct stat s;
	char b[4] = "zzzz";
	int fd = open("f", O_CREAT | O_RDWR, 0644);
	T(pwrite(fd, "end", 3, 1L << 32));
	fstat(fd, &s);
	T(s.st_size);
	T(pread(fd, b, 4, 1 << 20));
	S(b, 4);
	T(pread(fd, b, 4, (1L << 32) + 1));
	S(b, 2);
	T(s.st_blocks < 1000);
}

static void truncation(void)
{
	struct stat s;
	char b[8] = "";
	put("f", "abcdef");
	mkdir("d", 0755);
	int fd = open("f", O_RDWR), r = open("f", O_RDONLY);
	T(ftruncate(fd, 3));
	T(ftruncate(fd, 6));
	T(pread(fd, b, 8, 0));
	S(b, 6);
	T(ftruncate(fd, -1));
	T(ftruncate(r, 0));
	T(ftruncate(99, 0));
	T(truncate("f", 2));
	stat("f", &s);
	T(s.st_size);
	T(truncate("f", -1));
	T(truncate("d", 0));
	T(truncate("missing", 0));
	T(truncate("f/x", 0));
	int p[2];
	pipe(p);
	T(ftruncate(p[1], 0));
}

static void attributes(void)
{
	struct stat s;
	put("f", "abc");
	symlink("f", "l");
	T(stat("missing", &s));
	T(stat("", &s));
	T(stat("f", (void *)8));
	T(stat("f/", &s));
	T(lstat("l", &s));
	T(S_ISLNK(s.st_mode));
	T(s.st_size);
	T(fstatat(AT_FDCWD, "l", &s, 0));
	T(S_ISREG(s.st_mode));
	T(fstatat(AT_FDCWD, "l", &s, AT_SYMLINK_NOFOLLOW));
	T(S_ISLNK(s.st_mode));
	T(fstatat(AT_FDCWD, "f", &s, 0x40000));
	int fd = open("f", O_RDONLY);
	T(fstatat(fd, "", &s, AT_EMPTY_PATH));
	T(s.st_size);
	T(fstatat(fd, "", &s, 0));
	T(fstatat(AT_FDCWD, "", &s, AT_EMPTY_PATH));
	T(S_ISDIR(s.st_mode));
	T(fstat(99, &s));
	struct statx x;
	T(statx(AT_FDCWD, "f", 0, STATX_BASIC_STATS, &x));
	T(x.stx_size);
	T(x.stx_nlink);
	T((x.stx_mask & STATX_BASIC_STATS) == STATX_BASIC_STATS);
	T(statx(AT_FDCWD, "f", AT_STATX_FORCE_SYNC | AT_STATX_DONT_SYNC, STATX_SIZE, &x));
	T(statx(AT_FDCWD, "f", 0, STATX__RESERVED, &x));
	struct statfs fs;
	T(statfs(".", &fs));
	T(fs.f_namelen);
	T(fstatfs(fd, &fs));
	T(statfs("missing", &fs));
	T(statfs("/proc/self/ns/net", &fs));
	T(fs.f_type);
	int pair[2], sock = socket(AF_UNIX, SOCK_STREAM, 0), ns = open("/proc/self/ns/mnt", O_RDONLY);
	pipe(pair);
	for (int i = 0; i < 4; i++) {
		int of = i == 0 ? pair[0] : i == 1 ? sock : i == 2 ? ns : epoll_create1(0);
		char name[64];
		T(fstatfs(of, &fs));
		T(fs.f_type);
		sprintf(name, "/proc/self/fd/%d", of);
		T(statfs(name, &fs));
		T(fs.f_type);
		close(of);
	}
	close(pair[1]);
	stat("/dev/null", &s);
	T(S_ISCHR(s.st_mode));
	T(major(s.st_rdev) * 1000 + minor(s.st_rdev));
}

static void permissions(void)
{
	struct stat s;
	put("f", "abc");
	T(chmod("f", 0640));
	stat("f", &s);
	T(s.st_mode & 07777);
	int fd = open("f", O_RDWR);
	T(fchmod(fd, 04755));
	fstat(fd, &s);
	T(s.st_mode & 07777);
	T(chmod("f", 0177777));
	stat("f", &s);
	T(s.st_mode & 07777);
	T(chmod("missing", 0600));
	T(fchmod(99, 0600));
	symlink("f", "l");
	T(fchmodat(AT_FDCWD, "l", 0600, 0));
	T(CHILD(drop_root(); _exit(fcntl(fd, F_SETFL, O_NOATIME) == 0)));
	stat("f", &s);
	T(s.st_mode & 07777);
	T(chown("f", -1, -1));
	T(fchown(fd, getuid(), getgid()));
	T(lchown("l", -1, -1));
	T(fchownat(AT_FDCWD, "f", -1, -1, 0x40000));
	T(chown("missing", -1, -1));
	chmod("f", 0600);
	T(access("f", F_OK));
	T(access("f", R_OK | W_OK));
	T(access("f", X_OK));
	T(access("f", 8));
	T(access("missing", F_OK));
	T(access("f/x", F_OK));
	T(faccessat(AT_FDCWD, "f", R_OK, AT_EACCESS));
	T(syscall(SYS_faccessat2, AT_FDCWD, "f", R_OK, 0x40000));
	chmod("f", 0000);
	chmod(".", 0777);
	T(CHILD(drop_root(); _exit(open("f", O_RDONLY) == -1 && errno == EACCES)));
	mkdir("d", 0700);
	put("d/x", "");
	if (getuid() == 0)
		chown("d", 1, 1);
	chmod("d", 0000);
	T(CHILD(drop_root(); _exit(open("d/x", O_RDONLY) == -1 && errno == EACCES)));
	T(CHILD(drop_root(); _exit(unlink("d/x") == -1 && errno == EACCES)));
	chmod("d", 0700);
}

static void sticky(void)
{
	mkdir("d", 0777);
	chmod("d", 01777);
	put("d/f", "");
	if (getuid() != 0)
		chmod("d", 0555);
	T(CHILD(drop_root(); _exit(unlink("d/f") == -1 && (errno == EPERM || errno == EACCES))));
	T(CHILD(drop_root(); _exit(rename("d/f", "d/g") == -1 && (errno == EPERM || errno == EACCES))));
	chmod("d", 0777);
	struct stat s;
	mkdir("g", 0777);
	chmod("g", 02777);
	mkdir("g/sub", 0755);
	stat("g/sub", &s);
	T(s.st_mode & 07777);
	close(open("g/f", O_CREAT | O_WRONLY, 0755));
	stat("g/f", &s);
	T(s.st_mode & 07777);
}

static void directories(void)
{
	put("f", "");
	T(mkdir("d", 0755));
	T(mkdir("d", 0755));
	T(mkdir("d/", 0755));
	T(mkdir("f", 0755));
	T(mkdir("f/x", 0755));
	T(mkdir("a/b", 0755));
	T(mkdir("new/", 0755));
	T(mkdir("", 0755));
	T(mkdir(".", 0755));
	T(mkdir("/", 0755));
	put("d/x", "");
	T(rmdir("d"));
	T(rmdir("f"));
	T(rmdir("d/."));
	T(rmdir("d/.."));
	T(rmdir("missing"));
	T(unlink("d"));
	T(unlink("new/"));
	T(unlink("f/"));
	T(unlink("missing"));
	T(unlinkat(AT_FDCWD, "new", AT_REMOVEDIR));
	T(unlinkat(AT_FDCWD, "f", AT_REMOVEDIR));
	T(unlinkat(AT_FDCWD, "f", 0x1000));
	T(unlink("d/x"));
	T(rmdir("d"));
	T(rmdir("/"));
}

static int by_name(const void *a, const void *b)
{
	return strcmp(*(char **)a, *(char **)b);
}

static void list(const char *what)
{
	char *names[64], all[1024] = "";
	int n = 0;
	DIR *d = opendir(".");
	for (struct dirent *e; (e = readdir(d)) && n < 64;)
		names[n++] = strdup(e->d_name);
	closedir(d);
	qsort(names, n, sizeof *names, by_name);
	for (int i = 0; i < n; i++)
		strcat(strcat(all, names[i]), " ");
	say(what, "%s", all);
}

static void listing(void)
{
	list("empty");
	put("a", "");
	mkdir("b", 0755);
	symlink("a", "c");
	mkfifo("d", 0644);
	list("four");
	char types[8] = "", buf[2048];
	DIR *d = opendir(".");
	for (struct dirent *e; (e = readdir(d));)
		if (e->d_name[0] != '.')
			types[e->d_name[0] - 'a'] = '0' + e->d_type;
	S(types, 4);
	rewinddir(d);
	int n = 0;
	while (readdir(d))
		n++;
	T(n);
	unlink("a");
	rewinddir(d);
	for (n = 0; readdir(d);)
		n++;
	T(n);
	closedir(d);
	list("three");
	int fd = open(".", O_RDONLY), f = open("d", O_RDWR);
	T(syscall(SYS_getdents64, fd, buf, 10));
	T(syscall(SYS_getdents64, f, buf, sizeof buf));
	T(syscall(SYS_getdents64, 99, buf, sizeof buf));
	T(syscall(SYS_getdents64, fd, (void *)8, sizeof buf));
	T(syscall(SYS_getdents64, fd, buf, sizeof buf) > 0);
	T(syscall(SYS_getdents64, fd, buf, sizeof buf));
	T(lseek(fd, 0, SEEK_SET));
	T(syscall(SYS_getdents64, fd, buf, sizeof buf) > 0);
	char name[32];
	for (int i = 0; i < 500; i++)
		sprintf(name, "many%d", i), close(open(name, O_CREAT | O_WRONLY, 0644));
	d = opendir(".");
	for (n = 0; readdir(d);)
		n++;
	T(n);
	closedir(d);
	/* Removing while reading. */
	d = opendir(".");
	n = 0;
	for (struct dirent *e; (e = readdir(d));)
		if (!strncmp(e->d_name, "many", 4))
			n += unlink(e->d_name) == 0;
	T(n);
	closedir(d);
}

static void working_directory(void)
{
	char b[256], before[256];
	put("f", "");
	mkdir("d", 0755);
	mkdir("d/e", 0755);
	T(syscall(SYS_getcwd, before, sizeof before) > 0);
	T(chdir("d/e"));
	T(syscall(SYS_getcwd, b, sizeof b) > 0);
	Y(!strcmp(b + strlen(before), "/d/e"));
	T(syscall(SYS_getcwd, b, 3));
	T(chdir("../../f"));
	T(chdir("missing"));
	T(chdir(""));
	T(rmdir("../e"));
	T(syscall(SYS_getcwd, b, sizeof b));
	T(open("x", O_CREAT | O_WRONLY, 0644));
	T(mkdir("x", 0755));
	T(open(".", O_RDONLY) >= 0);
	T(chdir(".."));
	T(chdir("/.."));
	syscall(SYS_getcwd, b, sizeof b);
	S(b, 1);
	T(fchdir(99));
	int fd = open(before, O_RDONLY);
	T(fchdir(fd));
	int f = open("f", O_RDONLY), o = open("d", O_PATH);
	T(fchdir(f));
	T(fchdir(o));
}

static void links(void)
{
	struct stat s;
	char b[64] = "";
	put("f", "abc");
	mkdir("d", 0755);
	T(link("f", "g"));
	stat("g", &s);
	T(s.st_nlink);
	T(link("f", "g"));
	T(link("d", "h"));
	T(link("missing", "h"));
	T(link("f", "missing/h"));
	T(symlink("f", "l"));
	T(symlink("f", "l"));
	T(symlink("", "m"));
	T(readlink("l", b, sizeof b));
	S(b, 1);
	symlink("a long target", "long");
	T(readlink("long", b, 6));
	S(b, 6);
	T(readlink("f", b, sizeof b));
	T(readlink("l", b, 0));
	T(readlink("missing", b, sizeof b));
	T(link("l", "l2"));
	lstat("l2", &s);
	T(S_ISLNK(s.st_mode));
	T(linkat(AT_FDCWD, "l", AT_FDCWD, "l3", AT_SYMLINK_FOLLOW));
	lstat("l3", &s);
	T(S_ISREG(s.st_mode));
	T(linkat(AT_FDCWD, "f", AT_FDCWD, "l4", 1));
	T(unlink("f"));
	stat("g", &s);
	T(s.st_nlink);
	symlink("target", "dangling");
	T(open("dangling", O_RDONLY));
	T(open("dangling", O_CREAT | O_EXCL | O_RDWR, 0644));
	T(open("dangling", O_CREAT | O_RDWR, 0644));
	T(stat("target", &s));
	symlink("d", "dl");
	T(open("dl/", O_RDONLY) >= 0);
	T(rmdir("dl"));
	T(rmdir("dl/"));
	T(unlink("dl"));
	symlink("../links/./d/..//g", "winding");
	T(stat("winding", &s));
}

static void renaming(void)
{
	struct stat s;
	put("f", "f");
	put("g", "gg");
	mkdir("d", 0755);
	mkdir("e", 0755);
	put("e/x", "");
	T(rename("f", "g"));
	stat("g", &s);
	T(s.st_size);
	T(stat("f", &s));
	T(rename("g", "d"));
	T(rename("d", "g"));
	T(rename("d", "e"));
	T(rename("e", "d"));
	T(stat("d/x", &s));
	T(rename("d", "d/sub"));
	T(rename("d", "d/x/y"));
	T(rename("missing", "z"));
	T(rename("g", "missing/z"));
	T(rename("g", "g"));
	T(rename(".", "z"));
	T(rename("d/..", "z"));
	T(rename("g", "z/"));
	T(rename("d", "z/"));
	link("g", "h");
	T(rename("g", "h"));
	T(stat("g", &s));
	put("i", "iii");
	T(renameat2(AT_FDCWD, "g", AT_FDCWD, "i", RENAME_NOREPLACE));
	T(renameat2(AT_FDCWD, "g", AT_FDCWD, "j", RENAME_NOREPLACE));
	T(renameat2(AT_FDCWD, "j", AT_FDCWD, "i", RENAME_EXCHANGE));
	stat("j", &s);
	T(s.st_size);
	T(renameat2(AT_FDCWD, "j", AT_FDCWD, "nope", RENAME_EXCHANGE));
	T(renameat2(AT_FDCWD, "j", AT_FDCWD, "z", RENAME_EXCHANGE));
	stat("j", &s);
	T(S_ISDIR(s.st_mode));
	T(renameat2(AT_FDCWD, "j", AT_FDCWD, "i", RENAME_EXCHANGE | RENAME_NOREPLACE));
	T(renameat2(AT_FDCWD, "j", AT_FDCWD, "i", 0x100));
	list("left");
}

static void unlinked(void)
{
	struct stat s;
	char b[8] = "", link[64], to[512] = "";
	int fd = open("f", O_CREAT | O_RDWR, 0644);
	write(fd, "abc", 3);
	T(unlink("f"));
	fstat(fd, &s);
	T(s.st_nlink);
	T(pread(fd, b, 8, 0));
	T(write(fd, "def", 3));
	sprintf(link, "/proc/self/fd/%d", fd);
	int n = readlink(link, to, sizeof to);
	Y(n > 10 && !strcmp(to + n - 10, " (deleted)"));
	int again = open(link, O_RDONLY);
	Y(again >= 0);
	T(read(again, b, 8));
	S(b, 6);
	T(linkat(AT_FDCWD, link, AT_FDCWD, "back", AT_SYMLINK_FOLLOW));
}

static void times(void)
{
	struct stat s;
	put("f", "abc");
	struct timespec t[2] = { { 1000, 123456789 }, { 2000, 5 } };
	T(utimensat(AT_FDCWD, "f", t, 0));
	stat("f", &s);
	T(s.st_atim.tv_sec);
	T(s.st_mtim.tv_sec);
	T(s.st_mtim.tv_nsec);
	t[0].tv_nsec = UTIME_OMIT, t[1].tv_sec = 3000, t[1].tv_nsec = 0;
	T(utimensat(AT_FDCWD, "f", t, 0));
	stat("f", &s);
	T(s.st_atim.tv_sec);
	T(s.st_mtim.tv_sec);
	t[1].tv_nsec = UTIME_NOW;
	T(utimensat(AT_FDCWD, "f", t, 0));
	stat("f", &s);
	Y(s.st_mtim.tv_sec > 1000000000);
	t[1].tv_nsec = 1000000000;
	T(utimensat(AT_FDCWD, "f", t, 0));
	T(utimensat(AT_FDCWD, "missing", NULL, 0));
	T(utimensat(AT_FDCWD, "f", NULL, 0x40000));
	int fd = open("f", O_RDWR);
	struct timespec u[2] = { { 1, 0 }, { 2, 0 } };
	/* Without a path: the descriptor's file, but not the working directory. */
	T(syscall(SYS_utimensat, AT_FDCWD, NULL, u, 0));
	T(syscall(SYS_utimes, NULL, NULL));
	T(syscall(SYS_futimesat, AT_FDCWD, NULL, NULL));
	T(syscall(SYS_utimensat, fd, NULL, u, AT_SYMLINK_NOFOLLOW));
	T(syscall(SYS_utimensat, -1, NULL, u, 0));
	T(futimens(fd, u));
	fstat(fd, &s);
	T(s.st_mtim.tv_sec);
	write(fd, "x", 1);
	fstat(fd, &s);
	Y(s.st_mtim.tv_sec > 2);
	Y(s.st_ctim.tv_sec > 2);
	symlink("f", "l");
	T(utimensat(AT_FDCWD, "l", u, AT_SYMLINK_NOFOLLOW));
	lstat("l", &s);
	T(s.st_mtim.tv_sec);
}

static void extended(void)
{
	char b[64];
	put("f", "");
	T(setxattr("f", "user.a", "value", 5, 0));
	T(getxattr("f", "user.a", b, sizeof b));
	T(getxattr("f", "user.a", b, 0));
	T(getxattr("f", "user.a", b, 2));
	T(getxattr("f", "user.b", b, sizeof b));
	T(setxattr("f", "user.a", "x", 1, XATTR_CREATE));
	T(setxattr("f", "user.b", "x", 1, XATTR_REPLACE));
	T(setxattr("f", "user.a", "x", 1, 3));
	T(setxattr("f", "user.b", "", 0, 0));
	T(removexattr("f", "user.a"));
	T(removexattr("f", "user.a"));
	T(setxattr("f", "nothing", "x", 1, 0));
	T(setxattr("f", "", "x", 1, 0));
	T(getxattr("missing", "user.a", b, 4));
	T(fgetxattr(99, "user.a", b, 4));
}

static void flocks(void)
{
	int a = open("f", O_CREAT | O_RDWR, 0644), b = open("f", O_RDWR), c = dup(a);
	T(flock(a, LOCK_EX));
	T(flock(b, LOCK_EX | LOCK_NB));
	T(flock(b, LOCK_SH | LOCK_NB));
	T(flock(c, LOCK_EX | LOCK_NB));
	T(flock(a, LOCK_SH));
	T(flock(b, LOCK_SH | LOCK_NB));
	T(flock(a, LOCK_EX | LOCK_NB));
	T(flock(b, LOCK_UN));
	T(flock(c, LOCK_UN));
	T(flock(b, LOCK_EX | LOCK_NB));
	close(b);
	T(flock(a, LOCK_EX | LOCK_NB));
	T(flock(a, 0));
	T(flock(99, LOCK_SH));
	T(CHILD(int d = open("f", O_RDWR); _exit(flock(d, LOCK_SH | LOCK_NB) == -1 && errno == EWOULDBLOCK)));
	T(CHILD(_exit(flock(a, LOCK_UN) == 0)));
	T(CHILD(int d = open("f", O_RDWR); _exit(flock(d, LOCK_EX | LOCK_NB) == 0)));
}

static int lock(int fd, int cmd, int type, off_t start, off_t len)
{
	struct flock l = { .l_type = type, .l_whence = SEEK_SET, .l_start = start, .l_len = len };
	int r = fcntl(fd, cmd, &l);
	return r ? r : cmd == F_GETLK || cmd == F_OFD_GETLK ? l.l_type : 0;
}

static void record_locks(void)
{
	int a = open("f", O_CREAT | O_RDWR, 0644), r = open("f", O_RDONLY), w = open("f", O_WRONLY);
	T(lock(a, F_SETLK, F_WRLCK, 0, 10));
	T(lock(a, F_GETLK, F_WRLCK, 0, 10));
	T(CHILD(_exit(lock(a, F_GETLK, F_WRLCK, 0, 10) == F_WRLCK)));
	T(CHILD(_exit(lock(a, F_SETLK, F_WRLCK, 5, 1) == -1 && errno == EAGAIN)));
	T(CHILD(_exit(lock(a, F_SETLK, F_WRLCK, 10, 1) == 0)));
	T(lock(a, F_SETLK, F_UNLCK, 3, 2));
	T(CHILD(_exit(lock(a, F_SETLK, F_WRLCK, 3, 2) == 0)));
	T(CHILD(_exit(lock(a, F_SETLK, F_RDLCK, 2, 2) == -1)));
	T(CHILD(struct flock l = { .l_type = F_WRLCK }; fcntl(a, F_GETLK, &l);
		_exit(l.l_start == 0 && l.l_len == 3 && l.l_pid == getppid())));
	T(lock(r, F_SETLK, F_WRLCK, 0, 1));
	T(lock(w, F_SETLK, F_RDLCK, 0, 1));
	T(lock(a, F_SETLK, 7, 0, 1));
	T(lock(a, F_SETLK, F_WRLCK, -1, 1));
	T(lock(99, F_SETLK, F_WRLCK, 0, 1));
	/* Closing any descriptor of the file drops the locks. */
	close(dup(r));
	T(CHILD(_exit(lock(a, F_SETLK, F_WRLCK, 0, 10) == 0)));
	int b = open("f", O_RDWR);
	T(lock(a, F_OFD_SETLK, F_WRLCK, 0, 0));
	T(lock(b, F_OFD_SETLK, F_RDLCK, 0, 1));
	T(lock(b, F_OFD_GETLK, F_RDLCK, 0, 1));
	T(lock(b, F_SETLK, F_RDLCK, 0, 1));
	T(lock(a, F_OFD_SETLK, F_UNLCK, 0, 0));
	T(lock(b, F_OFD_SETLK, F_RDLCK, 0, 1));
	/* Waiting. */
	T(lock(a, F_OFD_SETLK, F_UNLCK, 0, 0));
	T(lock(b, F_OFD_SETLK, F_UNLCK, 0, 0));
	T(lock(a, F_SETLK, F_WRLCK, 0, 1));
	pid_t p = fork();
	if (!p) {
		_exit(lock(a, F_SETLKW, F_WRLCK, 0, 1) == 0 ? 7 : 8);
	}
	ms(30);
	T(waitpid(p, NULL, WNOHANG));
	lock(a, F_SETLK, F_UNLCK, 0, 1);
	int st;
	waitpid(p, &st, 0);
	T(WEXITSTATUS(st));
}

static void *wait_for_lock(void *arg)
{
	long r = lock((long)arg, F_SETLKW, F_WRLCK, 0, 10);
	return (void *)(long)(r == -1 ? errno : r);
}

/* A descriptor that is closed while its lock is waited for leaves no lock behind. */
static void lock_and_close(void)
{
	int hold = open("f", O_CREAT | O_RDWR, 0644), go[2];
	pipe(go);
	pid_t p = fork();
	if (p == 0) {
		char c;
		lock(hold, F_SETLK, F_WRLCK, 0, 10);
		write(go[1], "x", 1);
		ms(200);
		_exit(0);
	}
	char c;
	read(go[0], &c, 1);
	pthread_t t;
	void *r;
	pthread_create(&t, NULL, wait_for_lock, (void *)(long)hold);
	ms(80);
	close(hold);
	pthread_join(t, &r);
	T((long)r);
	waitpid(p, NULL, 0);
	T(CHILD(int f = open("f", O_RDWR); _exit(lock(f, F_SETLK, F_WRLCK, 0, 1) == 0)));
}

static void removed_directory(void)
{
	char b[512];
	mkdir("d", 0755);
	int d = open("d", O_RDONLY);
	T(rmdir("d"));
	T(syscall(SYS_getdents64, d, b, sizeof b));
	T(openat(d, "x", O_CREAT | O_RDWR, 0600));
}

static void deadlock(void)
{
	int fd = open("f", O_CREAT | O_RDWR, 0644), ready[2];
	pipe(ready);
	lock(fd, F_SETLK, F_WRLCK, 0, 1);
	pid_t p = fork();
	if (!p) {
		lock(fd, F_SETLK, F_WRLCK, 1, 1);
		write(ready[1], "x", 1);
		_exit(lock(fd, F_SETLKW, F_WRLCK, 0, 1) == 0 ? 1 : 2);
	}
	char b;
	read(ready[0], &b, 1);
	ms(50);
	T(lock(fd, F_SETLKW, F_WRLCK, 1, 1));
	lock(fd, F_SETLK, F_UNLCK, 0, 1);
	int st;
	waitpid(p, &st, 0);
	T(WEXITSTATUS(st));
}

static void allocation(void)
{
	struct stat s;
	char b[8192];
	int fd = open("f", O_CREAT | O_RDWR, 0644), r = open("f", O_RDONLY), p[2];
	pipe(p);
	T(fallocate(fd, 0, 0, 100));
	fstat(fd, &s);
	T(s.st_size);
	T(fallocate(fd, FALLOC_FL_KEEP_SIZE, 0, 10000));
	fstat(fd, &s);
	T(s.st_size);
	memset(b, 'x', sizeof b);
	pwrite(fd, b, 8192, 0);
	T(fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 100, 4096));
	pread(fd, b, 8192, 0);
	Y(b[99] == 'x' && b[100] == 0 && b[4195] == 0 && b[4196] == 'x');
	T(fallocate(fd, FALLOC_FL_PUNCH_HOLE, 0, 10));
	T(fallocate(fd, 0, -1, 10));
	T(fallocate(fd, 0, 0, 0));
	T(fallocate(r, 0, 0, 10));
	T(fallocate(p[1], 0, 0, 10));
	T(fallocate(99, 0, 0, 10));
	T(posix_fadvise(fd, 0, 0, POSIX_FADV_SEQUENTIAL));
	T(posix_fadvise(fd, 0, 0, 99));
	T(posix_fadvise(p[0], 0, 0, 0));
	T(fsync(fd));
	T(fdatasync(fd));
	T(fsync(p[0]));
	T(fsync(99));
	T(syncfs(fd));
	T(sync_file_range(fd, 0, 10, 2));
	T(sync_file_range(fd, 0, 10, 64));
	int null = open("/dev/null", O_RDWR), dir = open(".", O_RDONLY), ends[2];
	pipe(ends);
	T(sync_file_range(null, 0, 10, 2));
	T(sync_file_range(ends[0], 0, 10, 2));
	T(sync_file_range(ends[0], -1, 10, 2));
	T(sync_file_range(dir, 0, 10, 2));
}

static void copying(void)
{
	char b[32] = "";
	put("a", "0123456789");
	int in = open("a", O_RDWR), out = open("b", O_CREAT | O_RDWR, 0644), p[2];
	pipe(p);
	off_t o = 2, q = 4;
	T(sendfile(out, in, &o, 3));
	T(o);
	T(lseek(in, 0, SEEK_CUR));
	T(sendfile(out, in, NULL, 100));
	T(lseek(in, 0, SEEK_CUR));
	T(pread(out, b, 32, 0));
	S(b, 13);
	T(sendfile(p[1], in, &o, 2));
	T(read(p[0], b, 32));
	S(b, 2);
	T(sendfile(in, in, NULL, -1));
	o = -1;
	T(sendfile(out, in, &o, 1));
	o = 0;
	T(copy_file_range(in, &o, out, &q, 5, 0));
	T(o);
	T(q);
	T(copy_file_range(in, &o, out, &q, 5, 1));
	o = 0, q = 2;
	T(copy_file_range(in, &o, in, &q, 5, 0));
	T(copy_file_range(p[0], NULL, out, NULL, 5, 0));
	T(copy_file_range(99, NULL, out, NULL, 5, 0));
	T(pread(out, b, 32, 0));
	S(b, 13);
}

/* What sendfile and splice may read from, and write to: files of every kind. Where there is something to read it
 * has been made so, and what has nothing does not block. */
static void copying_kinds(void)
{
	static const char *names[] = { "file", "pipe", "socket", "eventfd", "directory", "zero", "null", "proc", "memfd", "epoll",
		"timerfd", "inotify", "terminal" };
	int p[2], s[2], fds[] = { open("k", O_CREAT | O_RDWR, 0644), -1, -1, eventfd(5, EFD_NONBLOCK), open(".", O_RDONLY),
		open("/dev/zero", O_RDWR), open("/dev/null", O_RDWR), open("/proc/version", O_RDONLY), memfd_create("m", 0),
		epoll_create1(0), timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK), inotify_init1(IN_NONBLOCK),
		open("/dev/ptmx", O_RDWR | O_NOCTTY | O_NONBLOCK) };
	pipe2(p, O_NONBLOCK);
	socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, s);
	fds[1] = p[0], fds[2] = s[0];
	write(fds[8], "0123456789", 10);
	for (unsigned i = 0; i < sizeof fds / sizeof *fds; i++) {
		char what[100];
		int out[2], to, ends[2];
		pwrite(fds[0], "0123456789", 10, 0), lseek(fds[0], 0, SEEK_SET), lseek(fds[8], 0, SEEK_SET);
		if (i == 1) write(p[1], "in the pipe", 11);
		if (i == 2) write(s[1], "in the socket", 13);
		pipe2(out, O_NONBLOCK);
		socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, ends);
		to = open("to", O_CREAT | O_RDWR | O_TRUNC, 0644);
		struct { const char *name; int fd; } outs[] = { { "file", to }, { "pipe", out[1] }, { "socket", ends[0] },
			{ "eventfd", fds[3] }, { "null", fds[6] } };
		for (unsigned j = 0; j < sizeof outs / sizeof *outs; j++) {
			errno = 0;
			long n = sendfile(outs[j].fd, fds[i], NULL, 4);
			snprintf(what, sizeof what, "sendfile from %s to %s", names[i], outs[j].name);
			report(what, n, errno);
		}
		errno = 0;
		long n = splice(fds[i], NULL, out[1], NULL, 4, SPLICE_F_NONBLOCK);
		snprintf(what, sizeof what, "splice from %s", names[i]);
		report(what, n, errno);
		off_t o = 0;
		errno = 0;
		n = sendfile(to, fds[i], &o, 4);
		snprintf(what, sizeof what, "sendfile from %s at an offset", names[i]);
		report(what, n, errno);
		errno = 0;
		n = sendfile(to, fds[i], NULL, 0);
		snprintf(what, sizeof what, "sendfile of nothing from %s", names[i]);
		report(what, n, errno);
		close(out[0]), close(out[1]), close(ends[0]), close(ends[1]), close(to);
	}
}

/* Transfers that would end beyond the largest offset. */
static void largest_offset(void)
{
	static char big[9 << 20];
	struct iovec two[] = { { big, 10 }, { big, 10 } };
	long end = LONG_MAX - 15;
	int f = open("f", O_CREAT | O_RDWR, 0644);
	put("/dev/shm/largest", "0123456789");
	int shm = open("/dev/shm/largest", O_RDWR);
	unlink("/dev/shm/largest");
	for (int i = 0; i < 2; i++) {
		int fd = i ? shm : f;
		T(pread(fd, big, 20, end));
		T(pwrite(fd, big, 20, end));
		T(preadv(fd, two, 2, end));
		T(pwritev(fd, two, 2, end));
		T(pread(fd, big, sizeof big, LONG_MAX - (5 << 20)));
		T(pwrite(fd, big, sizeof big, LONG_MAX - (5 << 20)));
		T(pread(fd, big, 0, end));
	}
	lseek(shm, end, SEEK_SET);
	T(read(shm, big, 20));
	T(write(shm, big, 20));
	T(writev(shm, two, 2));
	T(readv(shm, two, 2));
	T(lseek(shm, 0, SEEK_CUR) == end);
	struct stat s;
	fstat(shm, &s);
	T(s.st_size);
}

/* Places that splice does not take: an end that moves, and offsets of what has none. */
static void splice_places(void)
{
	int p[2], s[2];
	pipe2(p, O_NONBLOCK), socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, s);
	int appends = open("a", O_CREAT | O_RDWR | O_APPEND, 0644), tty = open("/dev/ptmx", O_RDWR | O_NOCTTY | O_NONBLOCK);
	loff_t o = 0;
	T(splice(p[0], NULL, appends, NULL, 4, 0));
	write(p[1], "in the pipe", 11), write(s[1], "in the socket", 13);
	T(splice(p[0], NULL, appends, NULL, 4, 0));
	T(splice(p[0], NULL, appends, &o, 4, 0));
	T(splice(p[0], NULL, s[0], &o, 4, 0));
	T(splice(p[0], NULL, tty, &o, 4, 0));
	T(splice(s[0], &o, p[1], NULL, 4, 0));
	T(splice(tty, &o, p[1], NULL, 4, SPLICE_F_NONBLOCK));
	T(splice(p[0], &o, s[0], NULL, 4, 0));
	T(lseek(appends, 0, SEEK_END));
	T(o);
	int n = 0;
	T(ioctl(p[0], FIONREAD, &n));
	T(n);
}

/* What copies obeys RLIMIT_FSIZE too. (In a child: the limit is on our own output as well.) */
static void copying_limited(void)
{
	put("from", "0123456789");
	int from = open("from", O_RDONLY), to = open("to", O_CREAT | O_RDWR, 0644), p[2];
	pipe(p);
	T(CHILD(signal(SIGXFSZ, SIG_IGN); struct rlimit r = { 8, 8 }; setrlimit(RLIMIT_FSIZE, &r);
		off_t o = 0; lseek(to, 6, SEEK_SET);
		int n = sendfile(to, from, &o, 9);
		n = n * 10 + sendfile(to, from, &o, 9);
		_exit(n + 10)));
	T(CHILD(signal(SIGXFSZ, SIG_IGN); struct rlimit r = { 8, 8 }; setrlimit(RLIMIT_FSIZE, &r);
		loff_t o = 0, at = 5;
		_exit(copy_file_range(from, &o, to, &at, 9, 0))));
	T(CHILD(signal(SIGXFSZ, SIG_IGN); struct rlimit r = { 8, 8 }; setrlimit(RLIMIT_FSIZE, &r);
		_exit(fallocate(to, 0, 0, 9) == -1 && errno == EFBIG)));
	T(CHILD(signal(SIGXFSZ, SIG_IGN); struct rlimit r = { 8, 8 }; setrlimit(RLIMIT_FSIZE, &r);
		loff_t at = 7; write(p[1], "abc", 3);
		_exit(splice(p[0], NULL, to, &at, 3, 0))));
	struct stat s;
	fstat(to, &s);
	T(s.st_size);
}

static void openat2s(void)
{
	struct open_how h = { .flags = O_RDONLY };
	mkdir("d", 0755);
	put("d/f", "x");
	put("g", "x");
	symlink("f", "d/l");
	symlink("../g", "d/out");
	symlink("/g", "d/abs");
	int d = open("d", O_RDONLY);
	T(syscall(SYS_openat2, d, "f", &h, sizeof h) >= 0);
	h.resolve = RESOLVE_BENEATH;
	T(syscall(SYS_openat2, d, "l", &h, sizeof h) >= 0);
	T(syscall(SYS_openat2, d, "out", &h, sizeof h));
	T(syscall(SYS_openat2, d, "../g", &h, sizeof h));
	T(syscall(SYS_openat2, d, "/etc", &h, sizeof h));
	h.resolve = RESOLVE_IN_ROOT;
	T(syscall(SYS_openat2, d, "../f", &h, sizeof h) >= 0);
	T(syscall(SYS_openat2, d, "/f", &h, sizeof h) >= 0);
	T(syscall(SYS_openat2, d, "abs", &h, sizeof h));
	h.resolve = RESOLVE_NO_SYMLINKS;
	T(syscall(SYS_openat2, d, "l", &h, sizeof h));
	h.resolve = RESOLVE_NO_MAGICLINKS;
	T(syscall(SYS_openat2, d, "/proc/self/fd/0", &h, sizeof h));
	h.resolve = 0x1000;
	T(syscall(SYS_openat2, d, "f", &h, sizeof h));
	h.resolve = 0, h.mode = 0600;
	T(syscall(SYS_openat2, d, "f", &h, sizeof h));
	h.mode = 0, h.flags = 1ULL << 40;
	T(syscall(SYS_openat2, d, "f", &h, sizeof h));
	h.flags = 0;
	T(syscall(SYS_openat2, d, "f", &h, 8));
	struct { struct open_how h; long more; } big = { h, 0 };
	T(syscall(SYS_openat2, d, "f", &big, sizeof big) >= 0);
	big.more = 1;
	T(syscall(SYS_openat2, d, "f", &big, sizeof big));
}

static void memfds(void)
{
	char b[8] = "", name[300];
	struct stat s;
	int fd = memfd_create("m", MFD_ALLOW_SEALING | MFD_CLOEXEC);
	T(write(fd, "abc", 3));
	T(fcntl(fd, F_GET_SEALS));
	T(fcntl(fd, F_ADD_SEALS, F_SEAL_GROW));
	T(ftruncate(fd, 10));
	T(write(fd, "defg", 4));
	T(ftruncate(fd, 2));
	int page = memfd_create("p", MFD_ALLOW_SEALING);
	ftruncate(page, 3 * 4096 + 5), fcntl(page, F_ADD_SEALS, F_SEAL_GROW);
	char *five = calloc(5, 4096);
	T(write(page, five, 5 * 4096));
	T(lseek(page, 0, SEEK_CUR));
	T(write(page, five, 5));
	T(write(page, five, 6));
	T(pwrite(page, five, 5 * 4096, 100));
	T(pwritev(page, (struct iovec[]){ { five, 10 }, { five, 4 * 4096 } }, 2, 4090));
	T(fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK));
	T(ftruncate(fd, 1));
	T(fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE));
	T(pwrite(fd, "x", 1, 0));
	T(mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0) == MAP_FAILED ? -1 : 0);
	T(pread(fd, b, 8, 0));
	T(fcntl(fd, F_ADD_SEALS, F_SEAL_SEAL));
	T(fcntl(fd, F_ADD_SEALS, F_SEAL_SEAL));
	T(fcntl(fd, F_GET_SEALS));
	int plain = memfd_create("n", 0);
	T(fcntl(plain, F_GET_SEALS));
	T(fcntl(plain, F_ADD_SEALS, F_SEAL_GROW));
	T(fcntl(plain, F_GETFD));
	T(fcntl(fd, F_GETFD));
	memset(name, 'a', 299), name[299] = 0;
	T(memfd_create(name, 0));
	T(memfd_create("x", 0x1000));
	fstat(plain, &s);
	T(S_ISREG(s.st_mode));
	int f = open("f", O_CREAT | O_RDWR, 0644);
	T(fcntl(f, F_ADD_SEALS, 0x100));
}

static void devices(void)
{
	char b[16] = "xxxx";
	int null = open("/dev/null", O_RDWR), zero = open("/dev/zero", O_RDWR), full = open("/dev/full", O_RDWR);
	T(write(null, "abc", 3));
	T(read(null, b, 4));
	T(read(zero, b, 4));
	S(b, 4);
	T(write(zero, "abc", 3));
	T(write(full, "abc", 3));
	T(read(full, b, 4));
	T(lseek(null, 5, SEEK_SET));
	T(ftruncate(null, 0));
	int r = open("/dev/urandom", O_RDONLY);
	T(read(r, b, 16));
	T(syscall(SYS_getrandom, b, 16, 0));
	T(syscall(SYS_getrandom, b, 16, 0x100));
	T(syscall(SYS_getrandom, (void *)8, 16, 0));
	T(open("/dev/nothing", O_RDWR));
	T(ioctl(null, TCGETS, b));
}

/* How a number is written to /proc. */
static void proc_numbers(void)
{
	static const char *texts[] = { "5", "6\n", " 7 \n", "0x10", "021", "+18", "0X13", "20x", "", "\n", "0x", "--5", "+ 5", "99999999999", "08", "0" };
	static const struct { const char *text; int len; } ended[] = { { "9\0", 2 }, { "9\0x", 3 }, { "\0", 1 }, { "1\0\n", 3 } };
	char was[16] = "";
	for (unsigned i = 0; i < sizeof texts / sizeof *texts; i++) {
		int fd = open("/proc/self/oom_score_adj", O_RDWR);
		errno = 0;
		long r = write(fd, texts[i], strlen(texts[i]));
		report("write", r, errno);
		memset(was, 0, sizeof was);
		pread(fd, was, 15, 0);
		S(was, 6);
		close(fd);
	}
	int fd = open("/proc/self/oom_score_adj", O_RDWR), comm = open("/proc/self/comm", O_RDWR);
	for (unsigned i = 0; i < sizeof ended / sizeof *ended; i++)
		T(pwrite(fd, ended[i].text, ended[i].len, 0));
	T(write(comm, "ab\0cd", 5));
	memset(was, 0, sizeof was);
	T(pread(comm, was, 15, 0));
	S(was, 8);
	close(fd);
	close(comm);
}

static void proc_self(void)
{
	char b[4096], t[4096], name[64];
	int fd = open("f", O_CREAT | O_RDWR, 0644);
	sprintf(name, "/proc/self/fd/%d", fd);
	int n = readlink(name, b, sizeof b - 1);
	b[n > 0 ? n : 0] = 0;
	Y(!strcmp(b + strlen(b) - 2, "/f"));
	Y(readlink("/proc/self/exe", b, sizeof b) > 0);
	n = readlink("/proc/self/cwd", b, sizeof b - 1);
	b[n > 0 ? n : 0] = 0;
	Y(getcwd(t, sizeof t) && !strcmp(b, t));
	sprintf(t, "%d", getpid());
	n = readlink("/proc/self", b, sizeof b - 1);
	b[n > 0 ? n : 0] = 0;
	Y(!strcmp(b, t));
	T(open("/proc/self/nothing", O_RDONLY));
	T(open("/proc/999999999", O_RDONLY));
	T(mkdir("/proc/x", 0755) == -1);
	int c = open("/proc/self/cmdline", O_RDONLY);
	Y(read(c, b, sizeof b) > 0);
	c = open("/proc/self/comm", O_RDWR);
	T(write(c, "renamed", 7));
	T(pread(c, b, 100, 0));
	S(b, 8);
	c = open("/proc/self/status", O_RDONLY);
	Y(read(c, b, sizeof b) > 100 && !strncmp(b, "Name:\trenamed\n", 14));
	T(open("/proc/self/fd/99", O_RDONLY));
	Y(open("/proc/self/task", O_DIRECTORY) >= 0);
}

static const struct check all[] = {
	CHECK(open_errors), CHECK(open_modes), CHECK(creation_mode), CHECK(read_write), CHECK(long_transfers), CHECK(vectors),
	CHECK(append), CHECK(append_together), CHECK(seeking), CHECK(sparse), CHECK(truncation), CHECK(attributes),
	CHECK(permissions), CHECK(sticky), CHECK(directories), CHECK(listing), CHECK(working_directory),
	CHECK(links), CHECK(renaming), CHECK(unlinked), CHECK(times), CHECK(extended), CHECK(flocks),
	CHECK(record_locks), CHECK(lock_and_close), CHECK(removed_directory), CHECK(deadlock), CHECK(allocation), CHECK(copying), CHECK(copying_kinds), CHECK(largest_offset), CHECK(splice_places), CHECK(copying_limited), CHECK(openat2s),
	CHECK(memfds), CHECK(devices), CHECK(proc_self), CHECK(proc_numbers),
};
MAIN(all)
