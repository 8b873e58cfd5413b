/* Landlock: rulesets, files by place, names that move, ports, scopes, tracing (landlock(7)). */
#define AREA "landlock"
#include "check.h"
#include <arpa/inet.h>
#include <linux/fs.h>
#include <netinet/in.h>
#include <sys/mount.h>
#include <sys/ptrace.h>

/* Our own names: headers may be older than the calls. */
#define EXECUTE (1ULL << 0)
#define WRITE_FILE (1ULL << 1)
#define READ_FILE (1ULL << 2)
#define READ_DIR (1ULL << 3)
#define REMOVE_DIR (1ULL << 4)
#define REMOVE_FILE (1ULL << 5)
#define MAKE_CHAR (1ULL << 6)
#define MAKE_DIR (1ULL << 7)
#define MAKE_REG (1ULL << 8)
#define MAKE_SOCK (1ULL << 9)
#define MAKE_FIFO (1ULL << 10)
#define MAKE_BLOCK (1ULL << 11)
#define MAKE_SYM (1ULL << 12)
#define REFER (1ULL << 13)
#define TRUNCATE (1ULL << 14)
#define IOCTL_DEV (1ULL << 15)
#define ALL_FS 0xffffULL
#define BIND_TCP 1ULL
#define CONNECT_TCP 2ULL
#define UNIX_SCOPE 1ULL
#define SIGNAL_SCOPE 2ULL

struct attr {
	uint64_t fs, net, scoped;
};
struct beneath {
	uint64_t allowed;
	int32_t fd;
} __attribute__((packed));
struct port {
	uint64_t allowed, port;
};

static int create(const struct attr *a, size_t size, unsigned flags)
{
	return syscall(444, a, size, flags);
}
static int add(int fd, int type, const void *attr, unsigned flags)
{
	return syscall(445, fd, type, attr, flags);
}
static int restrict_self(int fd, unsigned flags)
{
	return syscall(446, fd, flags);
}
static int ruleset(uint64_t fs, uint64_t net, uint64_t scoped)
{
	struct attr a = { fs, net, scoped };
	return create(&a, sizeof a, 0);
}
static int allow(int fd, const char *path, uint64_t allowed)
{
	struct beneath b = { allowed, open(path, O_PATH | O_CLOEXEC) };
	int r = add(fd, 1, &b, 0), e = errno;
	close(b.fd);
	errno = e;
	return r;
}
static int allow_port(int fd, uint64_t port, uint64_t allowed)
{
	struct port p = { allowed, port };
	return add(fd, 2, &p, 0);
}
static int enforce(int fd)
{
	prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
	int r = restrict_self(fd, 0), e = errno;
	close(fd);
	errno = e;
	return r;
}
/* A domain of one rule, or of none. */
static int confine(uint64_t handled, const char *path, uint64_t allowed)
{
	int fd = ruleset(handled, 0, 0);
	if (path && allow(fd, path, allowed))
		return -1;
	return enforce(fd);
}
static int opens(const char *path, int flags)
{
	int fd = open(path, flags | O_CLOEXEC, 0644), e = errno;
	if (fd >= 0)
		close(fd);
	errno = e;
	return fd < 0 ? -1 : 0;
}
static void tree(void)
{
	mkdir("a", 0755), mkdir("a/sub", 0755), mkdir("b", 0755), mkdir("b/sub", 0755), mkdir("c", 0755);
	put("a/f", "aaaa"), put("a/g", "gggg"), put("a/sub/f", "subs"), put("b/f", "bbbb"), put("c/f", "cccc");
}

static void versions(void)
{
	Y(create(NULL, 0, 1) >= 6);
	T(create(NULL, 8, 1));
	T(create((void *)8, 0, 1));
	T(create(NULL, 0, 4));
	T(create(NULL, 0, 3));
	T(create(NULL, 0, 2));
}

static void creating(void)
{
	struct attr a = { 1, 0, 0 };
	struct { struct attr a; uint64_t more[2]; } longer = { { 1, 0, 0 }, { 0, 0 } };
	T(create(NULL, 24, 0));
	T(create((void *)8, 24, 0));
	T(create(&a, 0, 0));
	T(create(&a, 7, 0));
	T(create(&a, 4097, 0));
	T(create(&a, 8, 0) > 2);
	T(create(&a, 16, 0) > 2);
	T(create(&longer.a, sizeof longer, 0) > 2);
	longer.more[1] = 1;
	T(create(&longer.a, sizeof longer, 0));
	T(ruleset(0, 0, 0));
	T(ruleset(1 << 16, 0, 0));
	T(ruleset(1ULL << 63, 0, 0));
	T(ruleset(0, 4, 0));
	T(ruleset(0, 0, 4));
	int fd = ruleset(ALL_FS, 3, 3);
	T(fcntl(fd, F_GETFD));
	T(fcntl(fd, F_GETFL));
	char link[64], to[64] = "";
	sprintf(link, "/proc/self/fd/%d", fd);
	Y(readlink(link, to, sizeof to - 1) > 0);
	S(to, strlen(to));
	char c;
	T(read(fd, &c, 1));
	T(write(fd, &c, 1));
	T(lseek(fd, 0, SEEK_SET));
	T(ioctl(fd, FIONREAD, &c));
}

static void rules(void)
{
	tree();
	int fd = ruleset(READ_FILE | READ_DIR | TRUNCATE | MAKE_REG, BIND_TCP, 0), r, p[2];
	struct beneath b = { READ_FILE, open("a", O_PATH) };
	struct port port = { BIND_TCP, 80 };
	T(add(fd, 1, &b, 1));
	T(add(-1, 1, &b, 1));
	T(add(-1, 1, &b, 0));
	T(add(1, 1, &b, 0));
	T(add(fd, 0, &b, 0));
	T(add(fd, 3, &b, 0));
	T(add(fd, 1, NULL, 0));
	T(add(fd, 1, &b, 0));
	T(add(fd, 1, &b, 0));
	b.allowed = 0;
	T(add(fd, 1, &b, 0));
	b.allowed = EXECUTE;
	T(add(fd, 1, &b, 0));
	b.allowed = 1 << 16;
	T(add(fd, 1, &b, 0));
	b.allowed = READ_FILE, b.fd = -1;
	T(add(fd, 1, &b, 0));
	b.fd = AT_FDCWD;
	T(add(fd, 1, &b, 0));
	b.fd = fd;
	T(add(fd, 1, &b, 0));
	r = pipe(p), b.fd = p[0];
	T(add(fd, 1, &b, 0));
	b.fd = socket(AF_UNIX, SOCK_STREAM, 0);
	T(add(fd, 1, &b, 0));
	b.fd = syscall(SYS_memfd_create, "m", 0);
	T(add(fd, 1, &b, 0));
	b.fd = open("/proc/self/ns/net", O_RDONLY);
	T(add(fd, 1, &b, 0));
	b.fd = open("a/f", O_RDONLY);
	T(add(fd, 1, &b, 0));
	b.allowed = READ_DIR;
	T(add(fd, 1, &b, 0));
	b.allowed = MAKE_REG | READ_FILE;
	T(add(fd, 1, &b, 0));
	b.allowed = TRUNCATE | READ_FILE;
	T(add(fd, 1, &b, 0));
	T(add(fd, 2, &port, 0));
	T(add(fd, 2, &port, 4));
	T(add(fd, 2, NULL, 0));
	port.port = 65535;
	T(add(fd, 2, &port, 0));
	port.port = 65536;
	T(add(fd, 2, &port, 0));
	port.port = 0, port.allowed = 0;
	T(add(fd, 2, &port, 0));
	port.allowed = CONNECT_TCP;
	T(add(fd, 2, &port, 0));
	port.allowed = 8;
	T(add(fd, 2, &port, 0));
	/* Opened anew it is another file, if that can be. */
	char link[64];
	sprintf(link, "/proc/self/fd/%d", fd);
	T(open(link, O_RDONLY));
	(void)r;
}

static void restricting(void)
{
	int fd = ruleset(EXECUTE, 0, 0), p = open("/", O_PATH);
	T(restrict_self(fd, 1U << 31));
	T(restrict_self(-1, 0));
	T(restrict_self(1, 0));
	T(restrict_self(p, 0));
	drop_root();
	T(restrict_self(fd, 0));
	T(restrict_self(-1, 1U << 31));
	prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
	T(restrict_self(fd, 1U << 31));
	/* As many layers as there may be. */
	int n = 0;
	while (restrict_self(fd, 0) == 0 && n < 100)
		n++;
	say("layers", "%d %s", n, strerrorname_np(errno));
	T(CHILD(_exit(restrict_self(fd, 0) == -1 ? errno : 0)));
	/* A ruleset of another process's can be one's own, too. */
}

static void reading(void)
{
	tree();
	T(confine(READ_FILE | READ_DIR, "a", READ_FILE | READ_DIR));
	T(opens("a/f", O_RDONLY));
	T(opens("a/f", O_RDWR));
	T(opens("a/f", O_WRONLY));
	T(opens("a/sub/f", O_RDONLY));
	T(opens("a/sub", O_RDONLY));
	T(opens("a/sub/../../b/f", O_RDONLY));
	T(opens("b/../a/f", O_RDONLY));
	T(opens("b/f", O_RDONLY));
	T(opens("b/f", O_WRONLY));
	T(opens("b/f", O_RDWR));
	T(opens("b/f", O_PATH));
	T(opens("b/f", 3));
	T(opens("b", O_RDONLY | O_DIRECTORY));
	T(opens("b", O_PATH));
	T(opens(".", O_RDONLY));
	T(opens("/", O_RDONLY));
	T(opens("b/none", O_RDONLY));
	T(opens("b/new", O_CREAT | O_WRONLY));
	T(opens("b/new2", O_CREAT | O_RDWR));
	T(access("b/new2", F_OK));
	T(opens("a/new", O_CREAT | O_RDWR));
	T(opens("b/f", O_WRONLY | O_TRUNC));
	struct stat st;
	T(stat("b/f", &st));
	T(st.st_size);
	T(access("b/f", R_OK));
	T(chdir("b"));
	T(chmod("f", 0600));
	T(rename("f", "f2"));
	T(link("f2", "f"));
	T(unlink("f2"));
	T(mkdir("d", 0700));
	T(rmdir("d"));
	T(truncate("f", 1));
	T(opens("/dev/null", O_RDONLY));
	T(opens("/proc/self/status", O_RDONLY));
}

static void writing(void)
{
	tree();
	int early = open("b/f", O_RDWR);
	T(confine(WRITE_FILE | TRUNCATE, "a", WRITE_FILE | TRUNCATE));
	T(opens("a/f", O_WRONLY | O_TRUNC));
	T(truncate("a/f", 3));
	T(opens("b/f", O_WRONLY));
	T(opens("b/f", O_RDONLY));
	T(opens("b/f", O_RDONLY | O_TRUNC));
	T(truncate("b/f", 3));
	/* What was open before stays as it was. */
	T(ftruncate(early, 2));
	T(write(early, "x", 1));
	int n = open("c/new", O_CREAT | O_RDONLY, 0600);
	Y(n >= 0);
	T(opens("c/new2", O_CREAT | O_WRONLY));
	T(opens("c", O_TMPFILE | O_RDWR));
	T(opens("a", O_TMPFILE | O_RDWR));
	int m = syscall(SYS_memfd_create, "m", 0);
	T(ftruncate(m, 100));
	char link[64];
	sprintf(link, "/proc/self/fd/%d", m);
	T(opens(link, O_RDWR | O_TRUNC));
	T(truncate(link, 10));
	sprintf(link, "/proc/self/fd/%d", early);
	T(opens(link, O_RDWR));
	T(fallocate(early, 0, 0, 100));
}

static void truncating(void)
{
	tree();
	int fd = ruleset(TRUNCATE, 0, 0);
	allow(fd, "a", TRUNCATE);
	T(enforce(fd));
	T(opens("b/f", O_WRONLY));
	T(opens("b/f", O_WRONLY | O_TRUNC));
	T(opens("b/f", O_RDONLY | O_TRUNC));
	T(opens("a/f", O_WRONLY | O_TRUNC));
	/* A file that was made is empty already. */
	T(opens("b/new", O_WRONLY | O_TRUNC | O_CREAT));
	T(opens("b/new", O_WRONLY | O_TRUNC | O_CREAT));
	T(truncate("b/f", 0));
	T(truncate("a/f", 0));
	int a = open("a/g", O_RDWR), b = open("b/f", O_RDWR);
	T(ftruncate(a, 1));
	T(ftruncate(b, 1));
	T(ftruncate(dup(b), 1));
	T(write(b, "12345678", 8));
	T(fallocate(b, 0, 0, 50));
	T(CHILD(_exit(ftruncate(b, 1) == -1 ? errno : 0)));
	/* The file knows what its opener was denied, whoever has it. */
	T(confine(TRUNCATE, NULL, 0));
	T(ftruncate(a, 2));
	T(truncate("a/g", 2));
}

static void creations(void)
{
	tree();
	uint64_t make = MAKE_CHAR | MAKE_DIR | MAKE_REG | MAKE_SOCK | MAKE_FIFO | MAKE_BLOCK | MAKE_SYM | REMOVE_DIR | REMOVE_FILE;
	T(confine(make, "a", make));
	struct sockaddr_un sa = { AF_UNIX, "a/sock" };
	int s = socket(AF_UNIX, SOCK_STREAM, 0);
	T(mkdir("a/d", 0700));
	T(mknod("a/r", S_IFREG | 0600, 0));
	T(mknod("a/r0", 0600, 0));
	T(mkfifo("a/p", 0600));
	T(mknod("a/c", S_IFCHR | 0600, 0));
	T(symlink("x", "a/l"));
	T(bind(s, (void *)&sa, sizeof sa));
	T(opens("a/o", O_CREAT | O_EXCL | O_RDWR));
	T(unlink("a/r"));
	T(rmdir("a/d"));
	s = socket(AF_UNIX, SOCK_STREAM, 0);
	strcpy(sa.sun_path, "b/sock");
	T(mkdir("b/d", 0700));
	T(mkdir("b/sub", 0700));
	T(mkdir("b/none/sub", 0700));
	T(mknod("b/r", S_IFREG | 0600, 0));
	T(mknod("b/f", S_IFREG | 0600, 0));
	T(mkfifo("b/p", 0600));
	T(mknod("b/c", S_IFCHR | 0600, 0));
	T(symlink("x", "b/l"));
	T(symlink("x", "b/l/"));
	T(bind(s, (void *)&sa, sizeof sa));
	T(opens("b/o", O_CREAT | O_EXCL | O_RDWR));
	T(opens("b/o", O_CREAT | O_RDONLY));
	T(opens("b/f", O_CREAT | O_RDONLY));
	T(opens("b", O_TMPFILE | O_RDWR));
	T(unlink("b/f"));
	T(unlink("b/none"));
	T(unlink("b/sub"));
	T(rmdir("b/sub"));
	T(rmdir("b/f"));
	T(rmdir("b/none"));
	T(unlink("a/sub/f"));
	T(rmdir("a/sub"));
	/* Who may not do it anyway. */
	drop_root();
	T(mkdir("/none", 0700));
	T(unlink("/etc/passwd"));
}

static void making_one(void)
{
	T(confine(MAKE_REG, NULL, 0));
	T(opens("o", O_CREAT | O_RDWR));
	T(mkfifo("p", 0600));
	T(mkdir("d", 0700));
	T(symlink("x", "l"));
	T(mknod("r", S_IFREG | 0600, 0));
	T(mknod("r", 0600, 0));
	T(rename("d", "e"));
	T(rename("p", "q"));
	T(opens(".", O_TMPFILE | O_RDWR));
}

static int runs(const char *path)
{
	return CHILD(execl(path, path, NULL); _exit(errno));
}

static int copy_true(const char *to)
{
	char b[65536];
	int in = open("/bin/true", O_RDONLY), out = open(to, O_WRONLY | O_CREAT, 0755), n;
	while ((n = read(in, b, sizeof b)) > 0)
		if (write(out, b, n) != n)
			return -1;
	close(in), close(out);
	return 0;
}

static void executing(void)
{
	tree();
	copy_true("a/true"), copy_true("b/true");
	put("b/script", "#!/bin/true\n"), put("a/script", "#!/bin/true\n");
	chmod("a/script", 0755), chmod("b/script", 0755);
	int early = open("b/true", O_RDONLY), fd = ruleset(EXECUTE, 0, 0);
	allow(fd, "a", EXECUTE), allow(fd, "/lib64", EXECUTE), allow(fd, "/usr", EXECUTE), allow(fd, "/lib", EXECUTE), allow(fd, "/bin", EXECUTE);
	T(enforce(fd));
	T(runs("a/true"));
	T(runs("b/true"));
	T(runs("a/script"));
	T(runs("b/script"));
	T(opens("b/true", O_RDONLY));
	char *none[] = { "x", NULL };
	T(CHILD(fexecve(early, none, none); _exit(errno)));
	void *p = mmap(NULL, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE, early, 0);
	Y(p != MAP_FAILED);
	fd = ruleset(EXECUTE | READ_FILE, 0, 0);
	allow(fd, "a", EXECUTE), allow(fd, "/usr", EXECUTE | READ_FILE), allow(fd, "/lib64", EXECUTE | READ_FILE), allow(fd, "/lib", EXECUTE | READ_FILE);
	T(enforce(fd));
	T(runs("a/true"));
	T(opens("a/true", O_PATH));
}

static void inherited(void)
{
	tree();
	T(confine(READ_FILE, "a", READ_FILE));
	T(CHILD(_exit(opens("b/f", O_RDONLY) ? errno : 0)));
	T(CHILD(_exit(opens("a/f", O_RDONLY) ? errno : 0)));
	/* Capabilities and ids change nothing. */
	T(CHILD(drop_root(); _exit(opens("b/f", O_RDONLY) ? errno : 0)));
	/* A child's layer is its own. */
	T(CHILD(_exit(confine(READ_FILE, "a/sub", READ_FILE) ? 99 : opens("a/f", O_RDONLY) ? errno : 0)));
	T(opens("a/f", O_RDONLY));
	T(CHILD(execl("/bin/cat", "cat", "b/f", NULL); _exit(errno)));
}

static void *thread_confined(void *arg)
{
	int *r = arg;
	r[0] = confine(READ_FILE, NULL, 0);
	r[1] = opens("a/f", O_RDONLY) ? errno : 0;
	return NULL;
}

static void threads(void)
{
	tree();
	int r[2];
	pthread_t t;
	pthread_create(&t, NULL, thread_confined, r);
	pthread_join(t, NULL);
	T(r[0]);
	T(r[1] == EACCES);
	T(opens("a/f", O_RDONLY));
}

static void layers(void)
{
	tree();
	int fd = ruleset(READ_FILE, 0, 0);
	allow(fd, "a", READ_FILE);
	T(restrict_self(fd, 0) == 0 || enforce(dup(fd)) == 0);
	T(opens("a/f", O_RDONLY));
	/* What comes later to the ruleset is not in the domain. */
	T(allow(fd, "b", READ_FILE));
	T(opens("b/f", O_RDONLY));
	/* A layer can take away, and not give. */
	int g = ruleset(READ_FILE | WRITE_FILE, 0, 0);
	allow(g, "b", READ_FILE | WRITE_FILE), allow(g, "a/sub", READ_FILE);
	T(enforce(g));
	T(opens("a/f", O_RDONLY));
	T(opens("a/sub/f", O_RDONLY));
	T(opens("a/sub/f", O_WRONLY));
	T(opens("b/f", O_RDONLY));
	T(opens("b/f", O_WRONLY));
	/* Rights add up on the way. */
	int h = ruleset(READ_FILE | WRITE_FILE | TRUNCATE, 0, 0);
	allow(h, "a", READ_FILE), allow(h, "a/sub", WRITE_FILE), allow(h, "a/sub/f", TRUNCATE);
	allow(h, "b", WRITE_FILE);
	T(enforce(h));
	T(opens("a/sub/f", O_RDONLY));
	T(opens("b/f", O_WRONLY));
	T(opens("b/f", O_WRONLY | O_TRUNC));
	T(truncate("a/sub/f", 0));
}

static void links(void)
{
	tree();
	link("a/f", "c/hard");
	symlink("../a/f", "b/soft");
	T(confine(READ_FILE, "a/f", READ_FILE));
	T(opens("a/f", O_RDONLY));
	/* By the file, whatever its name. */
	T(opens("c/hard", O_RDONLY));
	T(opens("b/soft", O_RDONLY));
	T(opens("a/g", O_RDONLY));
	T(unlink("a/f"));
	T(opens("c/hard", O_RDONLY));
	put("a/f", "new");
	T(opens("a/f", O_RDONLY));
	T(rename("c/hard", "c/harder"));
	T(opens("c/harder", O_RDONLY));
}

#define MOVE (MAKE_REG | MAKE_DIR | REMOVE_FILE | REMOVE_DIR | REFER)

static int renameat_(const char *a, const char *b, unsigned flags)
{
	return syscall(SYS_renameat2, AT_FDCWD, a, AT_FDCWD, b, flags);
}

static void not_handled(void)
{
	/* Any right about files denies what would be REFER. */
	tree();
	T(confine(EXECUTE, NULL, 0));
	T(rename("a/f", "a/h"));
	T(link("a/h", "a/f"));
	T(rename("a/f", "b/h"));
	T(rename("a/f", "b/f"));
	T(link("a/f", "b/h"));
	T(rename("a/sub", "b/sub"));
	T(rename("a", "b/a"));
	T(renameat_("a/f", "b/f", RENAME_EXCHANGE));
	T(renameat_("a/f", "b/f", RENAME_NOREPLACE));
	T(rename("a/none", "b/h"));
	T(link("a/none", "b/h"));
	T(link("a/f", "b/f"));
	T(unlink("a/f"));
	T(rename("a/g", "a/sub/g"));
	T(rename("a/sub/f", "a/k"));
}

static void only_net(void)
{
	tree();
	int fd = ruleset(0, BIND_TCP, 0);
	T(enforce(fd));
	T(rename("a/f", "b/h"));
	T(opens("b/h", O_RDWR));
	/* Beside a layer that is about files, too? */
	fd = ruleset(REFER, 0, 0);
	allow(fd, ".", REFER);
	T(enforce(fd));
	T(rename("b/h", "a/f"));
}

static void refer(void)
{
	tree();
	int fd = ruleset(REFER, 0, 0);
	T(allow(fd, "a", REFER));
	T(allow(fd, "b", REFER));
	T(enforce(fd));
	T(rename("a/f", "b/h"));
	T(link("b/h", "a/f"));
	T(rename("a/sub", "b/moved"));
	T(renameat_("a/g", "b/f", RENAME_EXCHANGE));
	T(rename("a/f", "c/h"));
	T(rename("c/f", "a/h"));
	T(link("c/f", "b/k"));
	T(rename("a/g", "b/sub/g"));
	T(renameat_("c/f", "a/f", RENAME_EXCHANGE));
}

static void refer_and_rights(void)
{
	tree();
	int fd = ruleset(MOVE | READ_FILE | WRITE_FILE, 0, 0);
	allow(fd, "a", MOVE | READ_FILE);
	allow(fd, "b", MOVE | READ_FILE | WRITE_FILE);
	allow(fd, "c", REFER | MAKE_REG | READ_FILE);
	T(enforce(fd));
	/* It would gain the right to be written. */
	T(rename("a/f", "b/h"));
	T(link("a/f", "b/h"));
	T(rename("a/sub", "b/moved"));
	T(renameat_("a/f", "b/f", RENAME_EXCHANGE));
	/* It would lose it. */
	T(link("b/f", "a/l"));
	T(rename("b/f", "a/h"));
	T(rename("b/sub", "a/moved"));
	/* Nothing can be removed from c; only the right kind can be made there. */
	T(rename("c/f", "a/x"));
	T(link("c/f", "a/y"));
	T(link("a/g", "c/y"));
	T(rename("a/sub", "c/sub"));
	T(rename("a/g", "c/f"));
	T(rename("a/g", "c/z"));
	T(rename("c/z", "c/zz"));
	T(rename("c/z", "c/f"));
	T(link("c/f", "c/ff"));
}

static void refer_denied_first(void)
{
	/* EACCES is told before EXDEV. */
	tree();
	T(confine(REFER | MAKE_REG | REMOVE_FILE, "a", MAKE_REG | REMOVE_FILE));
	T(rename("a/f", "b/h"));
	T(link("a/f", "b/h"));
	T(link("b/f", "a/h"));
	T(rename("b/f", "a/h"));
	T(rename("a/f", "a/sub/g"));
	T(link("a/f", "a/sub/g"));
	T(rename("a/f", "a/sub/f"));
	T(rename("a/sub", "b/s"));
	T(rename("a/f", "a/f2"));
	T(rename("b/f", "b/f2"));
	T(renameat_("a/f2", "b/f", RENAME_EXCHANGE));
	T(rename("b/f", "b/f"));
	T(renameat_("a/f2", "a/g", RENAME_EXCHANGE));
}

static void refer_file_rule(void)
{
	/* What the file itself is granted goes with it. */
	tree();
	int fd = ruleset(MOVE | READ_FILE | WRITE_FILE, 0, 0);
	allow(fd, "a", MOVE), allow(fd, "b", MOVE | WRITE_FILE);
	allow(fd, "a/f", WRITE_FILE), allow(fd, "a/sub", WRITE_FILE);
	T(enforce(fd));
	T(rename("a/f", "b/h"));
	T(rename("a/g", "b/g"));
	T(rename("a/sub", "b/s"));
	T(opens("b/h", O_WRONLY));
	T(opens("b/h", O_RDONLY));
}

static void refer_layers(void)
{
	tree();
	int fd = ruleset(MOVE, 0, 0);
	allow(fd, ".", MOVE);
	T(enforce(fd));
	T(rename("a/f", "b/h"));
	fd = ruleset(MOVE, 0, 0);
	allow(fd, "a", MOVE), allow(fd, "b", MOVE & ~REFER);
	T(enforce(fd));
	T(rename("a/g", "b/g"));
	T(rename("a/g", "a/sub/g"));
	T(rename("b/h", "b/sub/h"));
	T(confine(READ_FILE, ".", READ_FILE));
	T(rename("a/sub/g", "a/g"));
	T(rename("a/sub/f", "a/sub/f2"));
}

static void mounts(void)
{
	if (unshare(CLONE_NEWNS) || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL))
		return;
	tree();
	mkdir("t", 0755), mkdir("bind", 0755);
	T(mount("none", "t", "tmpfs", 0, NULL));
	put("t/f", "tttt"), mkdir("t/d", 0755), put("t/d/f", "dddd");
	T(mount("a", "bind", NULL, MS_BIND, NULL));
	int tfd = open("t", O_PATH), fd = ruleset(READ_FILE, 0, 0);
	allow(fd, "a", READ_FILE), allow(fd, "t/d", READ_FILE);
	int tree_ = syscall(SYS_open_tree, AT_FDCWD, "t", 1);
	T(enforce(fd));
	/* A bind mount's files are the same. */
	T(opens("bind/f", O_RDONLY));
	T(opens("bind/sub/f", O_RDONLY));
	T(opens("t/d/f", O_RDONLY));
	T(opens("t/f", O_RDONLY));
	T(openat(tree_, "d/f", O_RDONLY) >= 0);
	T(openat(tree_, "f", O_RDONLY));
	T(mount("none", "c", "tmpfs", 0, NULL));
	T(mount("a", "c", NULL, MS_BIND, NULL));
	T(mount(NULL, "t", NULL, MS_REMOUNT | MS_BIND | MS_RDONLY, NULL));
	T(mount(NULL, "t", NULL, MS_SHARED, NULL));
	T(mount("t", "c", NULL, MS_MOVE, NULL));
	T(mount("a", "none", NULL, MS_BIND, NULL));
	T(umount("t"));
	T(umount2("t", MNT_DETACH));
	T(umount("none"));
	T(syscall(SYS_pivot_root, "t", "t/d"));
	T(syscall(SYS_move_mount, tree_, "", AT_FDCWD, "c", 4));
	int sb = syscall(SYS_fsopen, "tmpfs", 0);
	T(syscall(SYS_fsconfig, sb, 6, NULL, NULL, 0));
	int m = syscall(SYS_fsmount, sb, 0, 0);
	Y(m >= 0);
	T(syscall(SYS_move_mount, m, "", AT_FDCWD, "c", 4));
	T(openat(m, "new", O_CREAT | O_WRONLY, 0600) >= 0);
	T(openat(m, "new", O_RDONLY));
	T(syscall(SYS_open_tree, AT_FDCWD, "t", 1) >= 0);
	T(chroot("t"));
	(void)tfd;
}

static void mounts_beneath(void)
{
	/* Rules are found over mounts; what a mount hides does not count. */
	if (unshare(CLONE_NEWNS) || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL))
		return;
	tree();
	mkdir("a/m", 0755), mkdir("c/m", 0755);
	int hidden = open("c/m", O_PATH);
	T(mount("none", "a/m", "tmpfs", 0, NULL));
	T(mount("none", "c/m", "tmpfs", 0, NULL));
	put("a/m/f", "mmmm"), put("c/m/f", "mmmm");
	int fd = ruleset(READ_FILE, 0, 0);
	struct beneath b = { READ_FILE, hidden };
	allow(fd, "a", READ_FILE);
	T(add(fd, 1, &b, 0));
	T(enforce(fd));
	T(opens("a/m/f", O_RDONLY));
	T(opens("c/m/f", O_RDONLY));
	int net = ruleset(0, BIND_TCP, 0);
	T(CHILD(_exit(enforce(net))));
}

static void mounts_net_only(void)
{
	if (unshare(CLONE_NEWNS) || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL))
		return;
	mkdir("t", 0755);
	T(enforce(ruleset(0, BIND_TCP, SIGNAL_SCOPE)));
	T(mount("none", "t", "tmpfs", 0, NULL));
	T(umount("t"));
}

static void disconnected(void)
{
	if (unshare(CLONE_NEWNS) || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL))
		return;
	mkdir("t", 0755);
	T(mount("none", "t", "tmpfs", 0, NULL));
	mkdir("t/x", 0755), mkdir("t/x/y", 0755), mkdir("t/z", 0755), mkdir("bind", 0755);
	put("t/x/y/f", "ffff");
	T(mount("t/x", "bind", NULL, MS_BIND, NULL));
	int in = open("bind/y", O_RDONLY | O_DIRECTORY);
	T(rename("t/x/y", "t/z/y"));
	int fd = ruleset(READ_FILE, 0, 0), w = ruleset(READ_FILE, 0, 0);
	allow(fd, "bind", READ_FILE);
	allow(w, "t", READ_FILE);
	T(CHILD(_exit(enforce(fd) ? 99 : openat(in, "f", O_RDONLY) < 0 ? errno : 0)));
	T(CHILD(_exit(enforce(w) ? 99 : openat(in, "f", O_RDONLY) < 0 ? errno : 0)));
	T(CHILD(_exit(confine(READ_FILE, NULL, 0) ? 99 : openat(in, "f", O_RDONLY) < 0 ? errno : 0)));
	T(CHILD(_exit(confine(READ_FILE, "t/x", READ_FILE) ? 99 : openat(in, "f", O_RDONLY) < 0 ? errno : 0)));
}

static void internal(void)
{
	/* What nobody can mount is not denied. */
	int p[2], r = pipe(p), m = syscall(SYS_memfd_create, "m", 0);
	T(confine(ALL_FS, "/proc", READ_DIR));
	char link[64];
	sprintf(link, "/proc/self/fd/%d", p[0]);
	T(opens(link, O_RDONLY | O_NONBLOCK));
	sprintf(link, "/proc/self/fd/%d", p[1]);
	T(opens(link, O_WRONLY));
	sprintf(link, "/proc/self/fd/%d", m);
	T(opens(link, O_RDWR));
	T(opens("/proc/self/ns/net", O_RDONLY));
	T(opens("/proc/self/ns/mnt", O_RDONLY));
	T(opens("/proc/self/status", O_RDONLY));
	T(opens("/proc/self", O_RDONLY | O_DIRECTORY));
	T(pipe(p));
	T(write(p[1], "x", 1));
	T(socketpair(AF_UNIX, SOCK_STREAM, 0, p));
	T(syscall(SYS_memfd_create, "n", 0) >= 0);
	T(syscall(SYS_shmget, 0, 4096, 0600) >= 0);
	Y(mmap(NULL, 4096, 3, MAP_SHARED | MAP_ANONYMOUS, -1, 0) != MAP_FAILED);
	(void)r;
}

static void devices(void)
{
	int early = open("/dev/ptmx", O_RDWR | O_NOCTTY), n, r;
	int fd = ruleset(IOCTL_DEV, 0, 0);
	allow(fd, "/dev/null", IOCTL_DEV);
	T(enforce(fd));
	T(ioctl(early, TIOCGPTN, &n));
	int pt = open("/dev/ptmx", O_RDWR | O_NOCTTY), zero = open("/dev/zero", O_RDWR), null = open("/dev/null", O_RDWR);
	struct winsize w;
	r = 0;
	T(ioctl(pt, TIOCGPTN, &n));
	T(ioctl(pt, TIOCGWINSZ, &w));
	T(ioctl(pt, FIONREAD, &n));
	T(ioctl(pt, 0x12345678, &n));
	T(ioctl(pt, FIOCLEX));
	T(ioctl(pt, FIONBIO, &r));
	T(ioctl(pt, FIOASYNC, &r));
	T(ioctl(zero, TCGETS, &n));
	T(ioctl(null, TCGETS, &n));
	T(ioctl(zero, FIGETBSZ, &n) == 0 || errno != EACCES);
	put("f", "ffff");
	int f = open("f", O_RDWR), p[2];
	T(ioctl(f, FIONREAD, &n));
	T(ioctl(f, TCGETS, &n));
	T(pipe(p));
	T(ioctl(p[0], FIONREAD, &n));
	T(ioctl(dup(zero), TCGETS, &n));
}

static void terminals(void)
{
	int early = open("/dev/ptmx", O_RDWR | O_NOCTTY), zero = 0;
	T(ioctl(early, TIOCSPTLCK, &zero));
	T(confine(READ_FILE, "/dev/ptmx", READ_FILE));
	/* The other side is opened by its own place. */
	T(ioctl(early, 0x5441 /* TIOCGPTPEER */, O_RDWR | O_NOCTTY));
	T(ioctl(early, 0x5441, O_WRONLY | O_NOCTTY) >= 0);
}

static struct sockaddr_in in4(int port)
{
	struct sockaddr_in a = { AF_INET, htons(port), { htonl(INADDR_LOOPBACK) } };
	return a;
}

static int tcp(void)
{
	int s = socket(AF_INET, SOCK_STREAM, 0), on = 1;
	setsockopt(s, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
	return s;
}

static void ports(void)
{
	int server = tcp(), s;
	struct sockaddr_in a = in4(24601), b = in4(24602), c = in4(24603);
	struct sockaddr_in6 six = { AF_INET6, htons(24601), 0, IN6ADDR_LOOPBACK_INIT, 0 };
	bind(server, (void *)&a, sizeof a), listen(server, 5);
	int other = tcp();
	bind(other, (void *)&c, sizeof c), listen(other, 5);
	int fd = ruleset(0, BIND_TCP | CONNECT_TCP, 0);
	T(allow_port(fd, 24601, CONNECT_TCP));
	T(allow_port(fd, 24602, BIND_TCP));
	T(enforce(fd));
	T(connect(tcp(), (void *)&a, sizeof a));
	T(connect(tcp(), (void *)&c, sizeof c));
	T(bind(tcp(), (void *)&b, sizeof b));
	T(bind(tcp(), (void *)&a, sizeof a));
	T(listen(tcp(), 5));
	s = tcp();
	struct sockaddr_in any = { AF_INET };
	T(bind(s, (void *)&any, sizeof any));
	T(connect(s, (void *)&a, 15));
	T(connect(s, (void *)&a, 1));
	T(connect(s, (void *)&a, 0));
	T(bind(s, (void *)&a, 15));
	T(bind(s, (void *)&a, 1));
	T(connect(s, (void *)&six, sizeof six));
	T(bind(s, (void *)&six, sizeof six));
	a.sin_family = AF_UNSPEC;
	T(connect(s, (void *)&a, sizeof a));
	T(bind(s, (void *)&a, sizeof a));
	a.sin_addr.s_addr = 0;
	T(bind(s, (void *)&a, sizeof a));
	b.sin_family = AF_UNSPEC, b.sin_addr.s_addr = 0;
	T(bind(s, (void *)&b, sizeof b));
	/* Others' ports are not TCP's. */
	a = in4(24601);
	int u = socket(AF_INET, SOCK_DGRAM, 0);
	T(bind(u, (void *)&a, sizeof a));
	T(connect(u, (void *)&c, sizeof c));
	struct sockaddr_un un = { AF_UNIX, "sock" };
	T(bind(socket(AF_UNIX, SOCK_STREAM, 0), (void *)&un, sizeof un));
	T(opens("f", O_CREAT | O_RDWR));
	int acc = accept(server, NULL, NULL);
	Y(acc >= 0);
	int s6 = socket(AF_INET6, SOCK_STREAM, 0);
	if (s6 >= 0) {
		six.sin6_port = htons(24603);
		T(connect(s6, (void *)&six, sizeof six));
		T(connect(s6, (void *)&six, 20));
		T(bind(s6, (void *)&six, sizeof six));
		T(connect(s6, (void *)&a, sizeof a));
	}
}

static void ports_layers(void)
{
	struct sockaddr_in a = in4(24611);
	int fd = ruleset(0, BIND_TCP, 0);
	allow_port(fd, 24611, BIND_TCP);
	T(enforce(fd));
	int s = tcp();
	T(bind(s, (void *)&a, sizeof a));
	T(listen(s, 1));
	T(connect(tcp(), (void *)&a, sizeof a));
	fd = ruleset(0, CONNECT_TCP, 0);
	T(enforce(fd));
	close(s);
	s = tcp();
	T(bind(s, (void *)&a, sizeof a));
	T(listen(s, 1));
	T(connect(tcp(), (void *)&a, sizeof a));
	T(enforce(ruleset(0, BIND_TCP, 0)));
	T(bind(tcp(), (void *)&a, sizeof a));
}

static socklen_t abstract(struct sockaddr_un *a, const char *name)
{
	memset(a, 0, sizeof *a);
	a->sun_family = AF_UNIX;
	int n = sprintf(a->sun_path + 1, "%s-%d-%d", name, getppid(), getpid());
	return offsetof(struct sockaddr_un, sun_path) + 1 + n;
}

static void unix_sockets(void)
{
	struct sockaddr_un a, d, path = { AF_UNIX, "sock" }, own;
	socklen_t an = abstract(&a, "stream"), dn = abstract(&d, "dgram"), on = abstract(&own, "own");
	int stream = socket(AF_UNIX, SOCK_STREAM, 0), dgram = socket(AF_UNIX, SOCK_DGRAM, 0), named = socket(AF_UNIX, SOCK_STREAM, 0);
	bind(stream, (void *)&a, an), listen(stream, 5), bind(dgram, (void *)&d, dn);
	bind(named, (void *)&path, sizeof path), listen(named, 5);
	int early = socket(AF_UNIX, SOCK_DGRAM, 0);
	connect(early, (void *)&d, dn);
	T(enforce(ruleset(0, 0, UNIX_SCOPE)));
	T(connect(socket(AF_UNIX, SOCK_STREAM, 0), (void *)&a, an));
	T(connect(socket(AF_UNIX, SOCK_STREAM, 0), (void *)&path, sizeof path));
	T(connect(socket(AF_UNIX, SOCK_DGRAM, 0), (void *)&d, dn));
	T(sendto(socket(AF_UNIX, SOCK_DGRAM, 0), "x", 1, 0, (void *)&d, dn));
	T(send(early, "x", 1, 0));
	T(sendto(early, "x", 1, 0, (void *)&d, dn));
	T(connect(early, (void *)&d, dn));
	a.sun_path[1]++;
	T(connect(socket(AF_UNIX, SOCK_STREAM, 0), (void *)&a, an));
	/* Inside of the domain it may be. */
	int inside = socket(AF_UNIX, SOCK_STREAM, 0);
	T(bind(inside, (void *)&own, on));
	T(listen(inside, 5));
	T(connect(socket(AF_UNIX, SOCK_STREAM, 0), (void *)&own, on));
	T(CHILD(_exit(connect(socket(AF_UNIX, SOCK_STREAM, 0), (void *)&own, on) ? errno : 0)));
	T(CHILD(enforce(ruleset(0, BIND_TCP, 0)); _exit(connect(socket(AF_UNIX, SOCK_STREAM, 0), (void *)&own, on) ? errno : 0)));
	T(CHILD(enforce(ruleset(0, 0, UNIX_SCOPE)); _exit(connect(socket(AF_UNIX, SOCK_STREAM, 0), (void *)&own, on) ? errno : 0)));
	int pair[2];
	T(socketpair(AF_UNIX, SOCK_DGRAM, 0, pair));
	T(send(pair[0], "x", 1, 0));
}

static void signals(void)
{
	pid_t outside = fork();
	if (outside == 0) {
		/* Nobody will be able to end it. */
		sleep(2);
		_exit(0);
	}
	T(enforce(ruleset(0, 0, SIGNAL_SCOPE)));
	T(kill(outside, 0));
	T(kill(outside, SIGCONT));
	T(kill(outside, SIGKILL));
	T(syscall(SYS_tgkill, outside, outside, SIGKILL));
	T(syscall(SYS_rt_sigqueueinfo, outside, SIGKILL, &(siginfo_t){ .si_code = SI_QUEUE }));
	T(syscall(SYS_pidfd_send_signal, syscall(SYS_pidfd_open, outside, 0), SIGKILL, NULL, 0));
	T(kill(getppid(), 0));
	T(kill(getpid(), 0));
	T(raise(0));
	pid_t in = fork();
	if (in == 0) {
		/* Out of the narrower domain. */
		int r = kill(getppid(), 0);
		enforce(ruleset(0, 0, SIGNAL_SCOPE));
		_exit(r == 0 && kill(getppid(), 0) == -1 && errno == EPERM && kill(getpid(), 0) == 0 ? 7 : 1);
	}
	int st;
	waitpid(in, &st, 0);
	T(WEXITSTATUS(st));
	in = fork();
	if (in == 0) {
		enforce(ruleset(0, 0, SIGNAL_SCOPE));
		pause();
	}
	T(kill(in, SIGTERM));
	waitpid(in, &st, 0);
	T(WTERMSIG(st));
	/* A group: as far as it may. */
	T(CHILD(setpgid(0, 0); if (fork() == 0) { sleep(2); _exit(0); } signal(SIGTERM, SIG_IGN); _exit(kill(0, SIGTERM) ? errno : 0)));
}

static void *other_domain(void *arg)
{
	enforce(ruleset(0, 0, SIGNAL_SCOPE));
	*(int *)arg = syscall(SYS_tgkill, getpid(), getpid(), 0) ? errno : 0;
	return NULL;
}

static void signals_of_threads(void)
{
	int r = -1;
	pthread_t t;
	pthread_create(&t, NULL, other_domain, &r);
	pthread_join(t, NULL);
	T(r);
}

static volatile int io_came;
static void on_io(int s)
{
	io_came++;
}

static void signals_of_files(void)
{
	signal(SIGIO, on_io);
	int p[2], q[2];
	socketpair(AF_UNIX, SOCK_STREAM, 0, p), socketpair(AF_UNIX, SOCK_STREAM, 0, q);
	pid_t parent = getpid();
	T(CHILD(
		enforce(ruleset(0, 0, SIGNAL_SCOPE));
		if (fcntl(p[0], F_SETOWN, parent) || fcntl(p[0], F_SETFL, O_ASYNC))
			_exit(errno);
		_exit(write(p[1], "x", 1) == 1 ? 0 : errno)));
	ms(50);
	T(io_came);
	T(CHILD(
		if (fcntl(q[0], F_SETOWN, parent) || fcntl(q[0], F_SETFL, O_ASYNC))
			_exit(errno);
		enforce(ruleset(0, 0, SIGNAL_SCOPE));
		_exit(write(q[1], "x", 1) == 1 ? 0 : errno)));
	ms(50);
	T(io_came);
}

static int traced(void (*parent)(void), void (*child)(void))
{
	int c[2], st, r;
	char x;
	if (pipe(c))
		return -1;
	pid_t p = fork();
	if (p == 0) {
		if (child)
			child();
		if (write(c[1], "x", 1)) {}
		pause();
		_exit(0);
	}
	if (read(c[0], &x, 1)) {}
	if (parent)
		parent();
	r = ptrace(PTRACE_ATTACH, p, 0, 0) ? errno : 0;
	char path[64];
	sprintf(path, "/proc/%d/mem", p);
	int e = open(path, O_RDWR) < 0 ? errno : 0;
	struct iovec l = { &x, 1 };
	struct iovec far = { (void *)&current, 1 };
	int m = syscall(SYS_process_vm_readv, p, &l, 1, &far, 1, 0) < 0 ? errno : 0;
	kill(p, SIGKILL);
	waitpid(p, &st, 0);
	say("traced", "attach %s, mem %s, memory %s", r ? strerrorname_np(r) : "0", e ? strerrorname_np(e) : "0", m ? strerrorname_np(m) : "0");
	return 0;
}

static void some_domain(void)
{
	enforce(ruleset(MAKE_BLOCK, 0, 0));
}

static void traces(void)
{
	T(CHILD(traced(NULL, NULL)));
	T(CHILD(traced(NULL, some_domain)));
	T(CHILD(traced(some_domain, NULL)));
	T(CHILD(traced(some_domain, some_domain)));
	T(CHILD(some_domain(); traced(NULL, NULL)));
	T(CHILD(some_domain(); traced(NULL, some_domain)));
	T(CHILD(some_domain(); traced(some_domain, NULL)));
	T(CHILD(some_domain(); _exit(ptrace(PTRACE_TRACEME, 0, 0, 0) ? errno : 0)));
	/* The parent's is narrower. */
	int c[2];
	T(pipe(c));
	T(CHILD(
		pid_t p = fork();
		if (p == 0) {
			char x;
			if (read(c[0], &x, 1)) {}
			_exit(ptrace(PTRACE_TRACEME, 0, 0, 0) ? errno : 0);
		}
		int st;
		some_domain();
		if (write(c[1], "x", 1)) {}
		waitpid(p, &st, 0);
		_exit(WEXITSTATUS(st))));
	/* Into one's parent, from a domain. */
	T(CHILD(some_domain(); char b[64]; sprintf(b, "/proc/%d/mem", getppid()); _exit(open(b, O_RDWR) < 0 ? errno : 0)));
	T(CHILD(some_domain(); char b[64]; sprintf(b, "/proc/%d/status", getppid()); _exit(open(b, O_RDONLY) < 0 ? errno : 0)));
	T(CHILD(some_domain(); char b[64]; sprintf(b, "/proc/%d/fd/1", getppid()); _exit(readlink(b, b, 64) < 0 ? errno : 0)));
}

static void queues(void)
{
	struct { long flags, max, size, cur, r[4]; } at = { 0, 1, 8 };
	char name[64];
	sprintf(name, "ll-%d", getpid());
	T(confine(READ_FILE | MAKE_REG | REMOVE_FILE, NULL, 0));
	T(syscall(SYS_mq_open, name, O_CREAT | O_WRONLY, 0600, &at) >= 0);
	T(syscall(SYS_mq_open, name, O_RDONLY, 0, NULL));
	T(syscall(SYS_mq_unlink, name));
}

static void by_handle(void)
{
	tree();
	int dir = open("b", O_PATH);
	T(confine(READ_FILE, "a", READ_FILE));
	T(openat(dir, "f", O_RDONLY));
	T(openat(dir, "../a/f", O_RDONLY) >= 0);
	char link[64];
	int f = openat(dir, "f", O_PATH);
	sprintf(link, "/proc/self/fd/%d", f);
	T(opens(link, O_RDONLY));
	T(opens(link, O_PATH));
	T(opens(link, O_WRONLY));
}

static void passed(void)
{
	/* A ruleset is enforced by who gets it. */
	tree();
	int fd = ruleset(READ_FILE, 0, 0);
	allow(fd, "a", READ_FILE);
	T(CHILD(enforce(fd); _exit(opens("b/f", O_RDONLY) ? errno : 0)));
	T(opens("b/f", O_RDONLY));
	T(CHILD(_exit(allow(fd, "b", READ_FILE) ? errno : 0)));
	T(enforce(fd));
	T(opens("b/f", O_RDONLY));
	T(opens("c/f", O_RDONLY));
}

static void modules(void)
{
	uint64_t ids[32];
	uint32_t size = sizeof ids;
	int n = syscall(461, ids, &size, 0), landlock = 0, caps = 0;
	for (int i = 0; i < n; i++)
		landlock |= ids[i] == 110, caps |= ids[i] == 100;
	T(landlock);
	T(caps);
}

static const struct check list[] = {
	CHECK(versions), CHECK(creating), CHECK(rules), CHECK(restricting), CHECK(reading), CHECK(writing), CHECK(truncating),
	CHECK(creations), CHECK(making_one), CHECK(executing), CHECK(inherited), CHECK(threads), CHECK(layers), CHECK(links),
	CHECK(not_handled), CHECK(only_net), CHECK(refer), CHECK(refer_and_rights), CHECK(refer_denied_first),
	CHECK(refer_file_rule), CHECK(refer_layers), CHECK(mounts), CHECK(mounts_beneath), CHECK(mounts_net_only),
	CHECK(disconnected), CHECK(internal), CHECK(devices), CHECK(terminals), CHECK(ports), CHECK(ports_layers), CHECK(unix_sockets),
	CHECK(signals), CHECK(signals_of_threads), CHECK(signals_of_files), CHECK(traces), CHECK(queues), CHECK(by_handle),
	CHECK(passed), CHECK(modules),
};
MAIN(list)
