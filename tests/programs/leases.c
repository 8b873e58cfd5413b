/* Leases of files: F_SETLEASE, F_GETLEASE, what breaks them, and who is told. */
#define AREA "leases"
#include "check.h"
#include <sys/file.h>

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
static void came(const char *when, int fd)
{
	for (int i = 0; i < 200 && !hits; i++)
		ms(5);
	ms(10);
	say(when, "%d times, signal %d, code %d, band %#lx, %s", hits, hit_sig, hit_code, hit_band,
	    hit_fd == fd ? "its descriptor" : "another descriptor");
	hits = hit_sig = hit_code = hit_fd = 0;
	hit_band = 0;
}
static int file(const char *name, int flags)
{
	put(name, "text");
	return open(name, flags);
}
static int set(int fd, int kind) { return fcntl(fd, F_SETLEASE, kind); }
static int get(int fd) { return fcntl(fd, F_GETLEASE); }
static pid_t opener(const char *name, int flags)
{
	pid_t p = fork();
	if (p)
		return p;
	int fd = open(name, flags, 0600);
	_exit(fd < 0 ? errno : 0);
}
static int ends(pid_t p)
{
	int st = 0;
	for (int i = 0; i < 400; i++, ms(5))
		if (waitpid(p, &st, WNOHANG) == p)
			return WIFEXITED(st) ? WEXITSTATUS(st) : 1000 + WTERMSIG(st);
	kill(p, SIGKILL);
	waitpid(p, &st, 0);
	return -2;
}
/* Whether it has not ended, for a while. */
static int still(pid_t p)
{
	for (int i = 0; i < 20; i++, ms(5)) {
		siginfo_t si;
		memset(&si, 0, sizeof si);
		if (waitid(P_PID, p, &si, WEXITED | WNOHANG | WNOWAIT) == 0 && si.si_pid == p)
			return 0;
	}
	return 1;
}
static int by_text(const void *a, const void *b)
{
	return strcmp(a, b);
}
/* The lines of a file in /proc/locks, without their numbers, processes and places, in an order of
 * their own: Linux has a list for each CPU. */
static void shown(const char *what, int fd)
{
	struct stat st;
	fstat(fd, &st);
	char line[256], place[64], all[8][96];
	int n = 0;
	FILE *f = fopen("/proc/locks", "r");
	snprintf(place, sizeof place, ":%lu ", (unsigned long)st.st_ino);
	while (f && n < 8 && fgets(line, sizeof line, f)) {
		if (!strstr(line, place))
			continue;
		char a[20], b[20], c[20], from[20], to[20];
		int pid;
		if (sscanf(line, "%*d: %19s %19s %19s %d %*s %19s %19s", a, b, c, &pid, from, to) != 6)
			continue;
		snprintf(all[n++], sizeof *all, "[%s %s %s %s %.10s %.10s]", a, b, c,
			 pid == getpid() ? "own" : "other", from, to);
	}
	if (f)
		fclose(f);
	qsort(all, n, sizeof *all, by_text);
	char found[sizeof all] = "";
	for (int i = 0; i < n; i++)
		strcat(found, all[i]);
	say(what, "%s", n ? found : "none");
}

static void who(void)
{
	int fd = file("f", O_RDONLY);
	T(get(fd));
	T(set(fd, F_RDLCK));
	T(get(fd));
	T(set(fd, F_RDLCK));
	T(set(fd, F_UNLCK));
	T(get(fd));
	T(set(fd, F_UNLCK));
	T(set(fd, 3));
	T(set(fd, -1));
	T(set(fd, 7777));
	T(get(-1));
	T(set(-1, F_RDLCK));
	T(set(-1, 7));
	int dir = open(".", O_RDONLY), path = open("f", O_PATH), p[2];
	pipe(p);
	T(set(dir, F_RDLCK));
	T(set(dir, F_UNLCK));
	T(get(dir));
	T(set(path, F_RDLCK));
	T(get(path));
	T(set(p[0], F_RDLCK));
	T(set(p[0], F_UNLCK));
	T(get(p[0]));
	mkfifo("fifo", 0600);
	int fifo = open("fifo", O_RDWR);
	T(set(fifo, F_RDLCK));
	int null = open("/dev/null", O_RDONLY);
	T(set(null, F_RDLCK));
	int s = socket(AF_UNIX, SOCK_STREAM, 0);
	T(set(s, F_RDLCK));
	T(get(s));
	chmod("f", 0666);
	T(CHILD(drop_root(); int r = set(fd, F_RDLCK); _exit(r < 0 ? errno : 0)));
	T(CHILD(drop_root(); int r = set(fd, F_UNLCK); _exit(r < 0 ? errno : 0)));
	T(CHILD(drop_root(); int r = set(fd, 9); _exit(r < 0 ? errno : 0)));
	T(CHILD(drop_root(); int r = set(dir, F_RDLCK); _exit(r < 0 ? errno : 0)));
	T(CHILD(drop_root(); int r = get(fd); _exit(r < 0 ? errno : 10 + r)));
	if (geteuid() == 0)
		chown("f", 65534, 65534);
	T(CHILD(drop_root(); int r = set(fd, F_RDLCK); _exit(r < 0 ? errno : 0)));
	T(get(fd));
	T(set(fd, F_UNLCK));
}

static void conflicts(void)
{
	handle(SIGIO);
	int r = file("f", O_RDONLY), r2 = open("f", O_RDONLY);
	T(set(r, F_WRLCK));
	T(set(r, F_RDLCK));
	T(set(r2, F_RDLCK));
	T(get(r2));
	T(set(r, F_WRLCK));
	close(r2);
	T(set(r, F_WRLCK));
	T(get(r));
	T(set(r, F_RDLCK));
	T(get(r));
	T(set(r, F_UNLCK));
	int w = open("f", O_WRONLY);
	T(set(r, F_RDLCK));
	T(set(w, F_RDLCK));
	T(set(w, F_WRLCK));
	close(r);
	T(set(w, F_WRLCK));
	T(set(w, F_RDLCK));
	T(get(w));
	T(set(w, F_UNLCK));
	close(w);
	int rw = open("f", O_RDWR);
	T(set(rw, F_RDLCK));
	T(set(rw, F_WRLCK));
	T(set(rw, F_UNLCK));
	int path = open("f", O_PATH);
	T(set(rw, F_WRLCK));
	T(set(rw, F_UNLCK));
	close(path);
	/* What is mapped stays open. */
	int m = open("f", O_RDONLY);
	void *at = mmap(NULL, 4096, PROT_READ, MAP_PRIVATE, m, 0);
	close(m);
	T(set(rw, F_WRLCK));
	munmap(at, 4096);
	T(set(rw, F_WRLCK));
	T(set(rw, F_UNLCK));
	close(rw);
	/* Links to it are the same file. */
	link("f", "g");
	int g = open("g", O_RDONLY), f = open("f", O_RDONLY);
	T(set(f, F_WRLCK));
	close(g);
	T(set(f, F_WRLCK));
	close(f);
	/* A third mode, for ioctl alone. */
	f = open("f", O_RDONLY);
	T(set(f, F_WRLCK));
	int odd = open("f", 3 | O_NONBLOCK);
	Y(odd < 0 && errno == EAGAIN);
	close(f);
}

static void copies(void)
{
	handle(SIGIO);
	int a = file("f", O_RDONLY), b = dup(a);
	T(set(a, F_WRLCK));
	T(get(b));
	close(a);
	T(get(b));
	T(set(b, F_RDLCK));
	T(get(b));
	T(CHILD(_exit(get(b))));
	T(CHILD(_exit(set(b, F_UNLCK))));
	T(get(b));
	T(set(b, F_WRLCK));
	T(CHILD(close(b); _exit(0)));
	T(get(b));
	close(b);
	a = open("f", O_RDWR | O_NONBLOCK);
	T(a >= 0);
	T(set(a, F_WRLCK));
	pid_t p = fork();
	if (!p) {
		ms(100);
		_exit(0);
	}
	close(a);
	/* The child has it still. */
	T(open("f", O_RDONLY | O_NONBLOCK));
	waitpid(p, NULL, 0);
	int c = open("f", O_RDONLY | O_NONBLOCK);
	Y(c >= 0);
}

static void broken_by_open(void)
{
	handle(SIGIO);
	int r = file("f", O_RDONLY);
	T(set(r, F_RDLCK));
	Y(fcntl(r, F_GETOWN) == getpid());
	int again = open("f", O_RDONLY);
	Y(again >= 0);
	close(again);
	T(hits);
	T(open("f", O_WRONLY | O_NONBLOCK));
	came("a writer", 0);
	T(get(r));
	T(open("f", O_RDWR | O_NONBLOCK));
	ms(20);
	T(hits);
	shown("breaking", r);
	/* Others may not have one meanwhile. */
	int r2 = open("f", O_RDONLY | O_NONBLOCK);
	Y(r2 >= 0);
	T(set(r2, F_RDLCK));
	T(set(r, F_RDLCK));
	T(get(r));
	T(set(r, F_UNLCK));
	T(fcntl(r, F_GETOWN));
	int w = open("f", O_WRONLY | O_NONBLOCK);
	Y(w >= 0);
	close(w);
	close(r2);
	T(set(r, F_WRLCK));
	shown("held", r);
	T(open("f", O_RDONLY | O_NONBLOCK));
	came("a reader", 0);
	T(get(r));
	shown("to be a reader's", r);
	T(set(r, F_RDLCK));
	T(get(r));
	shown("a reader's", r);
	r2 = open("f", O_RDONLY | O_NONBLOCK);
	Y(r2 >= 0);
	T(open("f", O_WRONLY | O_NONBLOCK));
	came("then a writer", 0);
	T(get(r));
	T(open("f", O_RDONLY | O_NONBLOCK) >= 0);
	T(set(r, F_UNLCK));
	shown("none", r);
}

static void both(void)
{
	handle(SIGIO);
	int r = file("f", O_RDONLY);
	T(set(r, F_WRLCK));
	T(open("f", O_RDONLY | O_NONBLOCK));
	came("first a reader", 0);
	T(get(r));
	T(open("f", O_WRONLY | O_NONBLOCK));
	came("then a writer", 0);
	T(get(r));
	T(set(r, F_RDLCK));
	T(get(r));
	T(open("f", O_RDONLY | O_NONBLOCK) >= 0);
	T(open("f", O_WRONLY | O_NONBLOCK));
	T(set(r, F_UNLCK));
	T(get(r));
}

static void information(void)
{
	handle(SIGRTMIN + 2);
	int r = file("f", O_RDONLY);
	T(fcntl(r, F_SETSIG, SIGRTMIN + 2));
	T(set(r, F_RDLCK));
	T(open("f", O_WRONLY | O_NONBLOCK));
	came("with information", r);
	T(set(r, F_UNLCK));
	T(fcntl(r, F_GETSIG));
	T(fcntl(r, F_GETOWN));
	/* The descriptor by which it was set last. */
	int d = dup(r);
	T(fcntl(r, F_SETSIG, SIGRTMIN + 2));
	T(set(r, F_RDLCK));
	T(set(d, F_RDLCK));
	T(open("f", O_WRONLY | O_NONBLOCK));
	came("by the copy", d);
	T(set(r, F_UNLCK));
	/* The owner that there is stays. */
	pid_t p = fork();
	if (!p) {
		ms(2000);
		_exit(7);
	}
	T(fcntl(r, F_SETOWN, p));
	T(fcntl(r, F_SETSIG, SIGTERM));
	T(set(r, F_RDLCK));
	Y(fcntl(r, F_GETOWN) == p);
	T(open("f", O_WRONLY | O_NONBLOCK));
	T(ends(p));
	T(hits);
	T(set(r, F_UNLCK));
	T(fcntl(r, F_SETSIG, SIGUSR1));
	T(fcntl(r, F_SETOWN, 0));
	handle(SIGUSR1);
	T(set(r, F_WRLCK));
	T(open("f", O_RDONLY | O_NONBLOCK));
	came("a signal chosen before", r);
}

static void waiting(void)
{
	handle(SIGIO);
	int r = file("f", O_RDONLY);
	T(set(r, F_WRLCK));
	pid_t p = opener("f", O_RDONLY);
	came("an open", 0);
	T(still(p));
	T(get(r));
	T(set(r, F_RDLCK));
	T(ends(p));
	T(get(r));
	p = opener("f", O_WRONLY);
	came("a writer", 0);
	T(still(p));
	T(set(r, F_UNLCK));
	T(ends(p));
	T(set(r, F_RDLCK));
	p = opener("f", O_RDWR);
	came("another", 0);
	T(still(p));
	close(r);
	T(ends(p));
	/* What O_TRUNC takes away is there until then. */
	r = open("f", O_RDONLY);
	T(set(r, F_RDLCK));
	p = opener("f", O_WRONLY | O_TRUNC);
	came("a cutter", 0);
	T(still(p));
	struct stat st;
	fstat(r, &st);
	T(st.st_size);
	T(set(r, F_UNLCK));
	T(ends(p));
	fstat(r, &st);
	T(st.st_size);
	/* Signals end the wait. */
	T(set(r, F_RDLCK));
	p = opener("f", O_WRONLY);
	came("one to be killed", 0);
	kill(p, SIGTERM);
	T(ends(p));
	T(get(r));
	T(set(r, F_UNLCK));
	/* Two at once. */
	T(set(r, F_RDLCK));
	p = opener("f", O_WRONLY);
	pid_t q = opener("f", O_WRONLY);
	came("two", 0);
	T(still(p) && still(q));
	T(set(r, F_UNLCK));
	T(ends(p) + ends(q));
}

static void restarts(void)
{
	handle(SIGIO);
	int r = file("f", O_RDONLY);
	T(set(r, F_RDLCK));
	pid_t p = fork();
	if (!p) {
		handle(SIGUSR1);
		int fd = open("f", O_WRONLY);
		_exit(fd < 0 ? errno : 40 + hits);
	}
	came("an open", 0);
	kill(p, SIGUSR1);
	T(still(p));
	T(set(r, F_UNLCK));
	T(ends(p));
	T(set(r, F_RDLCK));
	p = fork();
	if (!p) {
		struct sigaction a = { .sa_sigaction = on, .sa_flags = SA_SIGINFO };
		sigaction(SIGUSR1, &a, NULL);
		int fd = open("f", O_WRONLY);
		_exit(fd < 0 ? errno : 40 + hits);
	}
	came("an open", 0);
	kill(p, SIGUSR1);
	T(ends(p));
	T(set(r, F_UNLCK));
}

static void others(void)
{
	handle(SIGIO);
	int r = file("f", O_RDONLY);
	T(set(r, F_RDLCK));
	pid_t p = fork();
	if (!p)
		_exit(truncate("f", 1) ? errno : 0);
	came("truncate", 0);
	T(still(p));
	struct stat st;
	fstat(r, &st);
	T(st.st_size);
	T(get(r));
	T(set(r, F_UNLCK));
	T(ends(p));
	fstat(r, &st);
	T(st.st_size);
	/* These do not. */
	T(set(r, F_WRLCK));
	T(chmod("f", 0700));
	T(link("f", "g"));
	T(rename("g", "h"));
	T(unlink("h"));
	T(stat("f", &st));
	T(access("f", R_OK));
	int path = open("f", O_PATH);
	Y(path >= 0);
	close(path);
	T(utimensat(AT_FDCWD, "f", NULL, 0));
	T(hits);
	T(get(r));
	T(unlink("f"));
	T(get(r));
	T(hits);
	close(r);
	/* Files of programs. */
	int in = open("/proc/self/exe", O_RDONLY), out = open("prog", O_CREAT | O_WRONLY, 0755);
	static char buf[1 << 20];
	for (ssize_t n; (n = read(in, buf, sizeof buf)) > 0;)
		write(out, buf, n);
	close(out);
	close(in);
	r = open("prog", O_RDONLY);
	T(set(r, F_WRLCK));
	p = fork();
	if (!p) {
		execl("./prog", "prog", "nothing.of.that.name", NULL);
		_exit(99);
	}
	came("a program", 0);
	T(still(p));
	T(set(r, F_UNLCK));
	ends(p);
}

static void shows(void)
{
	int r = file("f", O_RDONLY);
	shown("nothing", r);
	T(set(r, F_RDLCK));
	shown("a lease", r);
	T(flock(r, LOCK_SH));
	struct flock l = { F_RDLCK, SEEK_SET, 2, 3, 0 };
	T(fcntl(r, F_SETLK, &l));
	T(set(r, F_UNLCK));
	shown("locks", r);
	T(flock(r, LOCK_UN));
	l.l_len = 0;
	l.l_start = 0;
	T(fcntl(r, F_SETLK, &l));
	shown("all of it", r);
	l.l_type = F_UNLCK;
	T(fcntl(r, F_SETLK, &l));
	T(fcntl(r, F_OFD_SETLK, &l));
	l.l_type = F_RDLCK;
	T(fcntl(r, F_OFD_SETLK, &l));
	shown("an open file's", r);
	char text[32] = "";
	int fd = open("/proc/sys/fs/leases-enable", O_RDONLY);
	read(fd, text, sizeof text - 1);
	S(text, strlen(text));
	close(fd);
	fd = open("/proc/sys/fs/lease-break-time", O_RDONLY);
	memset(text, 0, sizeof text);
	read(fd, text, sizeof text - 1);
	S(text, strlen(text));
	struct stat st;
	T(stat("/proc/sys/fs/lease-break-time", &st));
	T(st.st_mode & 07777);
	T(stat("/proc/locks", &st));
	T(st.st_mode & 07777);
}

static void places(void)
{
	handle(SIGIO);
	int m = memfd_create("m", 0);
	T(set(m, F_RDLCK));
	T(set(m, F_UNLCK));
	int s = open("/dev/shm/leases-check", O_CREAT | O_EXCL | O_RDWR, 0600);
	close(s);
	s = open("/dev/shm/leases-check", O_RDONLY);
	T(set(s, F_WRLCK));
	T(open("/dev/shm/leases-check", O_RDONLY | O_NONBLOCK));
	came("tmpfs", 0);
	T(set(s, F_UNLCK));
	unlink("/dev/shm/leases-check");
	/* A file without a name. */
	int t = open(".", O_TMPFILE | O_RDWR, 0600);
	T(set(t, F_WRLCK));
	char name[64];
	snprintf(name, sizeof name, "/proc/self/fd/%d", t);
	T(open(name, O_RDONLY | O_NONBLOCK));
	came("O_TMPFILE", 0);
	T(get(t));
	T(set(t, F_UNLCK));
	int again = open(name, O_RDONLY | O_NONBLOCK);
	Y(again >= 0);
	/* A file that was there before us. */
	int e = open("/etc/passwd", O_RDONLY);
	T(set(e, F_RDLCK));
	T(get(e));
	T(set(e, F_UNLCK));
	int p = open("/proc/self/status", O_RDONLY);
	T(set(p, F_RDLCK));
	T(get(p));
	T(set(p, F_UNLCK));
}

static void made(void)
{
	handle(SIGIO);
	int fd = open("new", O_CREAT | O_RDWR, 0600);
	T(set(fd, F_WRLCK));
	T(open("new", O_CREAT | O_RDWR | O_NONBLOCK, 0600));
	came("O_CREAT", 0);
	T(set(fd, F_UNLCK));
	T(set(fd, F_WRLCK));
	T(open("new", O_CREAT | O_EXCL | O_RDWR | O_NONBLOCK, 0600));
	ms(20);
	T(hits);
	T(set(fd, F_UNLCK));
	/* One of two leases given up. */
	close(fd);
	int a = open("new", O_RDONLY), b = open("new", O_RDONLY);
	T(set(a, F_RDLCK));
	T(set(b, F_RDLCK));
	pid_t p = opener("new", O_WRONLY);
	for (int i = 0; i < 200 && hits < 1; i++)
		ms(5);
	ms(20);
	T(get(a));
	T(get(b));
	T(set(a, F_UNLCK));
	T(still(p));
	close(b);
	T(ends(p));
}

static const struct check all[] = {
	CHECK(who), CHECK(conflicts), CHECK(copies), CHECK(broken_by_open), CHECK(both), CHECK(information),
	CHECK(waiting), CHECK(restarts), CHECK(others), CHECK(shows), CHECK(places), CHECK(made),
};
MAIN(all)
