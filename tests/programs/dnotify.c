/* Notices of changes in directories: F_NOTIFY. */
#define AREA "dnotify"
#include "check.h"

static volatile int hits, hit_sig, hit_code, hit_fd;
static volatile long hit_band;

static void on(int s, siginfo_t *i, void *c)
{
	(void)c;
	hits++;
	hit_sig = s;
	hit_code = i->si_code;
	hit_fd = i->si_fd;
	hit_band = i->si_band;
}
static void handle(int sig)
{
	struct sigaction a = { .sa_sigaction = on, .sa_flags = SA_SIGINFO | SA_RESTART };
	sigaction(sig, &a, NULL);
}
static void came(const char *what, int fd)
{
	say(what, "%d times, signal %d, code %d, band %#lx, %s", hits, hit_sig, hit_code, hit_band,
	    hit_fd == fd ? "its descriptor" : "another descriptor");
	hits = hit_sig = hit_code = hit_fd = 0;
	hit_band = 0;
}
/* How often it signals; a real-time signal queues. */
#define N(e) do { hits = 0; long r_ = (long)(e); int e_ = r_ < 0 ? errno : 0; \
	say(#e, "%d, %s", (int)hits, e_ ? strerrorname_np(e_) : "done"); hits = 0; } while (0)
static const int RT = 34 + 5;

static int dir(const char *name)
{
	mkdir(name, 0755);
	return open(name, O_RDONLY | O_DIRECTORY);
}
static int watch(int fd, unsigned long mask)
{
	handle(RT);
	return fcntl(fd, F_SETSIG, RT) | fcntl(fd, F_NOTIFY, mask);
}
static int make(const char *name)
{
	int fd = open(name, O_CREAT | O_EXCL | O_WRONLY, 0644);
	return fd < 0 ? -1 : close(fd);
}
static int add(const char *name)
{
	int fd = open(name, O_WRONLY | O_APPEND), r = write(fd, "x", 1);
	close(fd);
	return r;
}
static int look(const char *name)
{
	char b[8];
	int fd = open(name, O_RDONLY), r = read(fd, b, sizeof b);
	close(fd);
	return r;
}
static int list(const char *name)
{
	DIR *d = opendir(name);
	int n = 0;
	while (d && readdir(d))
		n++;
	return d ? closedir(d) : -1;
}

static void calls(void)
{
	int d = dir("d"), p[2];
	put("f", "text");
	int f = open("f", O_RDONLY), o = open("d", O_PATH);
	pipe(p);
	T(fcntl(d, F_NOTIFY, DN_CREATE));
	T(fcntl(d, F_NOTIFY, 0));
	T(fcntl(d, F_NOTIFY, 0));
	T(fcntl(d, F_NOTIFY, DN_MULTISHOT));
	T(fcntl(d, F_NOTIFY, 0x40));
	T(fcntl(d, F_NOTIFY, 0x1234500));
	T(fcntl(f, F_NOTIFY, DN_CREATE));
	T(fcntl(f, F_NOTIFY, 0));
	T(fcntl(p[0], F_NOTIFY, DN_CREATE));
	T(fcntl(p[0], F_NOTIFY, 0));
	T(fcntl(o, F_NOTIFY, DN_CREATE));
	T(fcntl(-1, F_NOTIFY, DN_CREATE));
	T(CHILD(drop_root(); int r = fcntl(d, F_NOTIFY, DN_CREATE); _exit(r < 0 ? errno : 0)));
	Y(fcntl(d, F_GETOWN) == getpid());
	T(fcntl(d, F_SETOWN, 0));
	T(fcntl(d, F_NOTIFY, DN_CREATE));
	Y(fcntl(d, F_GETOWN) == getpid());
	char text[32] = "";
	int s = open("/proc/sys/fs/dir-notify-enable", O_RDONLY);
	read(s, text, sizeof text - 1);
	S(text, strlen(text));
}

static void once(void)
{
	int d = dir("d");
	handle(SIGIO);
	T(fcntl(d, F_NOTIFY, DN_CREATE));
	T(make("d/a"));
	came("SIGIO", 0);
	T(make("d/b"));
	came("only once", 0);
	T(watch(d, DN_CREATE));
	T(make("d/c"));
	came("with information", d);
	T(make("d/e"));
	came("only once", 0);
	T(watch(d, DN_CREATE | DN_MULTISHOT));
	T(make("d/f"));
	came("many", d);
	T(make("d/g"));
	came("times", d);
	T(fcntl(d, F_NOTIFY, 0));
	T(make("d/h"));
	came("taken back", 0);
	T(watch(d, DN_CREATE | DN_MULTISHOT));
	T(watch(d, DN_DELETE));
	N(make("d/i"));
	N(unlink("d/i"));
	N(unlink("d/h"));
	T(fcntl(d, F_NOTIFY, DN_MULTISHOT));
	N(unlink("d/g"));
	/* What is once, and what stays, are one. */
	T(watch(d, DN_CREATE));
	T(watch(d, DN_DELETE | DN_MULTISHOT));
	N(make("d/j"));
	N(make("d/k"));
	N(unlink("d/k"));
}

static void kind(const char *what, unsigned long mask)
{
	current = what;
	int d = dir(what);
	chdir(what);
	put("old", "text");
	put("other", "text");
	mkdir("sub", 0755);
	put("sub/x", "text");
	T(watch(d, mask | DN_MULTISHOT));
	N(make("new"));
	N(look("new"));
	N(look("old"));
	N(add("old"));
	N(truncate("old", 1));
	int fd = open("old", O_RDWR);
	N(ftruncate(fd, 2));
	N(fallocate(fd, 0, 0, 10));
	N(pwrite(fd, "x", 1, 0));
	char b[4];
	N(pread(fd, b, 1, 0));
	N(pread(fd, b, 1, 1000));
	N(fchmod(fd, 0600));
	N(fsetxattr(fd, "user.x", "y", 1, 0));
	N(fremovexattr(fd, "user.x"));
	struct timespec now[2] = { { 1, 0 }, { 2, 0 } };
	N(futimens(fd, now));
	struct timespec atime[2] = { { 1, 0 }, { 0, UTIME_OMIT } };
	N(futimens(fd, atime));
	struct timespec mtime[2] = { { 0, UTIME_OMIT }, { 1, 0 } };
	N(futimens(fd, mtime));
	N(close(fd));
	N(chmod("old", 0700));
	N(chown("old", getuid(), getgid()));
	N(link("old", "hard"));
	N(symlink("old", "soft"));
	N(rename("old", "newer"));
	N(rename("newer", "other"));
	N(rename("other", "sub/away"));
	N(rename("sub/away", "back"));
	N(rename("sub/x", "sub/y"));
	N(syscall(SYS_renameat2, AT_FDCWD, "back", AT_FDCWD, "soft", 2));
	N(unlink("hard"));
	N(unlink("soft"));
	N(mkdir("made", 0700));
	N(rmdir("made"));
	N(mkfifo("fifo", 0600));
	N(unlink("fifo"));
	N(list("."));
	N(list("sub"));
	N(make("sub/deep"));
	N(unlink("sub/deep"));
	N(chmod("sub", 0700));
	N(chmod(".", 0711));
	N(utimensat(AT_FDCWD, ".", NULL, 0));
	int t = open(".", O_TMPFILE | O_RDWR, 0600);
	N(t >= 0 ? 0 : -1);
	N(write(t, "x", 1));
	N(linkat(AT_FDCWD, "new", AT_FDCWD, "again", 0));
	close(t);
	hits = 0;
	chdir("..");
	close(d);
}
static void access_(void) { kind("access", DN_ACCESS); }
static void modify(void) { kind("modify", DN_MODIFY); }
static void create(void) { kind("create", DN_CREATE); }
static void delete(void) { kind("delete", DN_DELETE); }
static void rename_(void) { kind("rename", DN_RENAME); }
static void attrib(void) { kind("attrib", DN_ATTRIB); }
static void all_kinds(void) { kind("all", 0x3f); }

static void ends(void)
{
	int d = dir("d");
	T(watch(d, DN_CREATE | DN_MULTISHOT));
	N(make("d/a"));
	/* Any close by the table that asked ends it. */
	int e = dup(d);
	close(e);
	N(make("d/b"));
	T(watch(d, DN_CREATE | DN_MULTISHOT));
	T(CHILD(close(d); _exit(0)));
	N(make("d/c"));
	T(CHILD(fcntl(d, F_NOTIFY, 0); _exit(0)));
	N(make("d/e"));
	e = dup(d);
	dup2(1, e);
	N(make("d/f"));
	/* Two files, two notices. */
	int x = open("d", O_RDONLY);
	T(watch(d, DN_CREATE | DN_MULTISHOT));
	T(watch(x, DN_CREATE | DN_MULTISHOT));
	N(make("d/g"));
	close(x);
	N(make("d/h"));
	/* A child's own, on the same file. */
	pid_t p = fork();
	if (!p) {
		watch(d, DN_CREATE | DN_MULTISHOT);
		kill(getpid(), SIGSTOP);
		_exit(0);
	}
	int st;
	waitpid(p, &st, WUNTRACED);
	N(make("d/i"));
	kill(p, SIGCONT);
	waitpid(p, &st, 0);
	N(make("d/j"));
	close(d);
	N(make("d/k"));
	/* The descriptor by which it was asked for last. */
	d = open("d", O_RDONLY);
	e = dup(d);
	T(watch(d, DN_CREATE | DN_MULTISHOT));
	T(watch(e, DN_CREATE | DN_MULTISHOT));
	make("d/l");
	came("by the copy", e);
	/* A directory that goes. */
	int g = dir("gone");
	T(watch(g, 0x3f | DN_MULTISHOT));
	N(rmdir("gone"));
	T(fcntl(g, F_NOTIFY, DN_CREATE));
	T(fcntl(g, F_NOTIFY, 0));
}

static void owners(void)
{
	int d = dir("d");
	pid_t p = fork();
	if (!p) {
		ms(3000);
		_exit(7);
	}
	T(fcntl(d, F_SETOWN, p));
	T(fcntl(d, F_SETSIG, SIGTERM));
	T(fcntl(d, F_NOTIFY, DN_CREATE));
	Y(fcntl(d, F_GETOWN) == p);
	make("d/a");
	int st;
	waitpid(p, &st, 0);
	T(WIFSIGNALED(st) ? WTERMSIG(st) : -1);
	T(hits);
	/* By another process. */
	int e = open("d", O_RDONLY);
	T(watch(e, DN_CREATE | DN_MULTISHOT));
	T(CHILD(_exit(make("d/b") ? errno : 0)));
	came("another's", e);
	T(CHILD(drop_root(); chdir("d"); _exit(look("a") < 0 ? errno : 0)));
	came("nothing", 0);
	/* Blocked, they queue. */
	sigset_t set;
	sigemptyset(&set);
	sigaddset(&set, RT);
	sigprocmask(SIG_BLOCK, &set, NULL);
	for (char name[8] = "d/q0"; name[3] < '3'; name[3]++)
		make(name);
	siginfo_t si;
	struct timespec none = { 0, 0 };
	for (int i = 0; i < 4; i++) {
		int s = sigtimedwait(&set, &si, &none);
		say("queue", "%s", s == RT ? "one" : "none");
		if (s > 0)
			Y(si.si_fd == e && si.si_code == POLL_MSG);
	}
}

static void places(void)
{
	mkdir("/dev/shm/dnotify-check", 0755);
	int d = open("/dev/shm/dnotify-check", O_RDONLY);
	T(watch(d, 0x3f | DN_MULTISHOT));
	N(make("/dev/shm/dnotify-check/a"));
	N(rename("/dev/shm/dnotify-check/a", "/dev/shm/dnotify-check/b"));
	N(unlink("/dev/shm/dnotify-check/b"));
	T(rmdir("/dev/shm/dnotify-check"));
	int p = open("/proc/self", O_RDONLY);
	T(fcntl(p, F_NOTIFY, DN_ACCESS));
	int e = open("/etc", O_RDONLY);
	T(watch(e, DN_ACCESS | DN_MULTISHOT));
	N(look("/etc/passwd"));
}

static const struct check all[] = {
	CHECK(calls), CHECK(once), CHECK(access_), CHECK(modify), CHECK(create), CHECK(delete), CHECK(rename_),
	CHECK(attrib), CHECK(all_kinds), CHECK(ends), CHECK(owners), CHECK(places),
};
MAIN(all)
