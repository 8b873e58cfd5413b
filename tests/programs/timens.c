/* Time namespaces (time_namespaces(7)): offsets of CLOCK_MONOTONIC and CLOCK_BOOTTIME. */
#define AREA "timens"
#include "check.h"
#include <linux/futex.h>
#include <linux/sched.h>
#include <sys/ioctl.h>
#include <sys/sysinfo.h>
#include <sys/timerfd.h>

#ifndef CLONE_NEWTIME
#define CLONE_NEWTIME 0x80
#endif

#define OFFSETS "/proc/self/timens_offsets"
/* Far enough that nothing else explains it. */
#define DAY 86400

static void show(const char *what, const char *path)
{
	char b[256];
	int fd = open(path, O_RDONLY), n = read(fd, b, sizeof b - 1);
	close(fd);
	if (n < 0)
		say(what, "-1 %s", strerrorname_np(errno));
	else
		bytes(what, b, n);
}

static long ns_of(const char *path)
{
	struct stat st;
	return stat(path, &st) ? -1 : (long)st.st_ino;
}

/* Seconds of a clock by the library, whose answer comes from the vDSO where there is one. */
static long now(clockid_t c)
{
	struct timespec t = { 0 };
	return clock_gettime(c, &t) ? -1 : t.tv_sec;
}
static long now_by_call(clockid_t c)
{
	struct timespec t = { 0 };
	return syscall(SYS_clock_gettime, c, &t) ? -1 : t.tv_sec;
}

/* Whether a is within two seconds of b. */
static int near(long a, long b)
{
	return labs(a - b) <= 2;
}

static long base[12];
static const int clocks[] = { CLOCK_REALTIME, CLOCK_MONOTONIC, CLOCK_MONOTONIC_RAW, CLOCK_REALTIME_COARSE, CLOCK_MONOTONIC_COARSE,
	CLOCK_BOOTTIME, CLOCK_TAI };

static void remember(void)
{
	for (int i = 0; i < 12; i++)
		base[i] = now_by_call(i);
}

static void compare(const char *what)
{
	char b[200];
	int n = 0;
	for (int i = 0; i < sizeof clocks / sizeof *clocks; i++) {
		int c = clocks[i];
		long a = now(c) - base[c], d = now_by_call(c) - base[c];
		n += sprintf(b + n, " %d:%ld", c, (a + (a < 0 ? -43200 : 43200)) / DAY);
		if (!near(a, d))
			n += sprintf(b + n, "(%ld)", d);
	}
	say(what, "days%s", b);
}

/* A namespace for children, with days added. */
static int prepare(int monotonic, int boottime)
{
	char b[100];
	if (unshare(CLONE_NEWTIME))
		return -1;
	sprintf(b, "monotonic %d 0\nboottime %d 0\n", monotonic * DAY, boottime * DAY);
	return write_text(OFFSETS, b);
}

static void making(void)
{
	long own = ns_of("/proc/self/ns/time");
	show("before", OFFSETS);
	T(unshare(CLONE_NEWTIME));
	Y(ns_of("/proc/self/ns/time") == own);
	Y(ns_of("/proc/self/ns/time_for_children") != own);
	show("new", OFFSETS);
	T(write_text(OFFSETS, "monotonic 10 5\nboottime -1 7"));
	show("set", OFFSETS);
	T(write_text(OFFSETS, "1 86400 0\n"));
	show("set", OFFSETS);
	T(write_text(OFFSETS, "7 0 999999999"));
	show("set", OFFSETS);
	/* One that is made of it has its offsets. */
	T(unshare(CLONE_NEWTIME));
	show("copied", OFFSETS);
	T(CHILD(_exit(ns_of("/proc/self/ns/time") == ns_of("/proc/self/ns/time_for_children") ? 1 : 2)));
	T(write_text(OFFSETS, "1 1 0"));
	T(write_text(OFFSETS, "1"));
	show("frozen", OFFSETS);
	T(ns_of("/proc/self/ns/time") == own);
	T(unshare(CLONE_NEWTIME));
	T(write_text(OFFSETS, "1 1 0"));
}

static void writing(void)
{
	T(write_text(OFFSETS, "1 1 0"));
	T(unshare(CLONE_NEWTIME));
	T(write_text(OFFSETS, ""));
	T(write_text(OFFSETS, "\n"));
	T(write_text(OFFSETS, "monotonic"));
	T(write_text(OFFSETS, "monotonic 1"));
	T(write_text(OFFSETS, "realtime 1 1"));
	T(write_text(OFFSETS, "0 1 1"));
	T(write_text(OFFSETS, "4 1 1"));
	T(write_text(OFFSETS, "1 x 1"));
	T(write_text(OFFSETS, "1 1 1000000000"));
	T(write_text(OFFSETS, "1 1 999999999"));
	T(write_text(OFFSETS, "1 1 -1"));
	T(write_text(OFFSETS, "1 -1 0\n"));
	T(write_text(OFFSETS, "1 -100000000000 0"));
	T(write_text(OFFSETS, "1 9223372036 0"));
	T(write_text(OFFSETS, "1 9223372037 0"));
	T(write_text(OFFSETS, "1 99999999999999999999 0"));
	T(write_text(OFFSETS, "1 4000000000 0"));
	T(write_text(OFFSETS, "1 5 5\n7 6 6\n"));
	T(write_text(OFFSETS, "7 5 5\n7 6 6"));
	show("the last", OFFSETS);
	T(write_text(OFFSETS, "1 5 5\n\n7 6 6\n"));
	T(write_text(OFFSETS, " 1  9   9  \n"));
	show("spaces", OFFSETS);
	int fd = open(OFFSETS, O_RDWR);
	T(write(fd, "1 1 1\n7 2 2\n1 3 3\n", 18));
	show("two lines", OFFSETS);
	T(write(fd, "1 1 1\n", 6));
	struct stat st;
	T(stat(OFFSETS, &st));
	T(st.st_mode);
	drop_root();
	T(write_text(OFFSETS, "1 1 0"));
	T(unshare(CLONE_NEWTIME));
	T(unshare(CLONE_NEWUSER));
	T(unshare(CLONE_NEWTIME));
}

static void in_child(void)
{
	remember();
	T(prepare(3, 5));
	compare("maker");
	T(CHILD(compare("child")));
	/* And those of theirs. */
	T(CHILD(CHILD(compare("grandchild"))));
	T(CHILD(prepare(0, 0); compare("child, set again"); CHILD(compare("grandchild"))));
	compare("maker");
}

static void backwards(void)
{
	remember();
	T(unshare(CLONE_NEWTIME));
	T(write_text(OFFSETS, "monotonic -1 0"));
	T(CHILD(struct timespec t; clock_gettime(CLOCK_MONOTONIC, &t); _exit(near(t.tv_sec, base[1] - 1) ? 1 : 2)));
}

static void coarse(void)
{
	/* Nothing is lost below the second. */
	T(unshare(CLONE_NEWTIME));
	T(write_text(OFFSETS, "monotonic 86400 500000000\nboottime 0 1"));
	struct timespec a, b;
	clock_gettime(CLOCK_MONOTONIC, &a);
	int p[2];
	T(pipe(p));
	T(CHILD(clock_gettime(CLOCK_MONOTONIC, &b); if (write(p[1], &b, sizeof b)) {}));
	T(read(p[0], &b, sizeof b));
	long long d = (b.tv_sec - a.tv_sec - 86400) * 1000000000LL + b.tv_nsec - a.tv_nsec;
	Y(d > 500000000 && d < 900000000);
	struct timespec r;
	T(CHILD(_exit(clock_getres(CLOCK_MONOTONIC, &r) ? 1 : r.tv_nsec)));
}

static void in_exec(void)
{
	/* Who runs a program comes to the namespace of its children. */
	remember();
	char self[200] = "", arg[100];
	if (readlink("/proc/self/exe", self, sizeof self - 1) < 0)
		return;
	sprintf(arg, "%ld %ld", base[1], base[7]);
	T(prepare(3, 5));
	T(CHILD(execl(self, self, "--told", arg, NULL); _exit(errno)));
	T(CHILD(prepare(7, 8); execl(self, self, "--told", arg, NULL); _exit(errno)));
	/* vfork: the memory stays in its time until then. */
	pid_t p = vfork();
	if (p == 0) {
		execl(self, self, "--told", arg, NULL);
		_exit(errno);
	}
	int st;
	T(waitpid(p, &st, 0) == p);
	T(WEXITSTATUS(st));
	compare("maker");
	/* The maker itself. */
	execl(self, self, "--told", arg, NULL);
}

static int told(const char *arg)
{
	current = "in_exec";
	sscanf(arg, "%ld %ld", &base[1], &base[7]);
	long a = now(CLOCK_MONOTONIC) - base[1], b = now(CLOCK_BOOTTIME) - base[7];
	say("program", "days %ld %ld, %s", (a + 43200) / DAY, (b + 43200) / DAY,
	    ns_of("/proc/self/ns/time") == ns_of("/proc/self/ns/time_for_children") ? "inside" : "outside");
	return 5;
}

static long clone3(uint64_t flags)
{
	struct clone_args a = { .flags = flags, .exit_signal = SIGCHLD };
	return syscall(SYS_clone3, &a, sizeof a);
}

static void by_clone(void)
{
	remember();
	pid_t p = clone3(CLONE_NEWTIME);
	Y(p >= 0);
	if (p == 0) {
		show("child's", OFFSETS);
		say("same", "%d", ns_of("/proc/self/ns/time") == ns_of("/proc/self/ns/time_for_children"));
		T(write_text(OFFSETS, "1 1 0"));
		_exit(3);
	}
	int st;
	waitpid(p, &st, 0);
	T(WEXITSTATUS(st));
	show("maker's", OFFSETS);
	T(prepare(2, 2));
	p = clone3(CLONE_NEWTIME);
	if (p == 0) {
		compare("child");
		_exit(0);
	}
	waitpid(p, &st, 0);
	T(clone3(CLONE_NEWTIME | 0x40));
	T(clone3(CLONE_NEWTIME | CLONE_VM | CLONE_SIGHAND | CLONE_THREAD) < 0);
	drop_root();
	T(clone3(CLONE_NEWTIME));
}

static void *thread(void *a)
{
	*(long *)a = now(CLOCK_MONOTONIC);
	return NULL;
}

static void threads(void)
{
	remember();
	T(prepare(3, 3));
	long t = 0;
	pthread_t p;
	int e = pthread_create(&p, NULL, thread, &t);
	T(e);
	if (e == 0) {
		pthread_join(p, NULL);
		Y(near(t, base[1]));
	}
	int in = open("/proc/self/ns/time_for_children", O_RDONLY);
	T(setns(in, CLONE_NEWTIME));
	e = pthread_create(&p, NULL, thread, &t);
	T(e);
	if (e == 0) {
		pthread_join(p, NULL);
		Y(near(t, base[1] + 3 * DAY));
	}
}

static void *waits(void *a)
{
	pause();
	return NULL;
}

static void joining(void)
{
	remember();
	int old = open("/proc/self/ns/time", O_RDONLY);
	T(prepare(3, 5));
	int new = open("/proc/self/ns/time_for_children", O_RDONLY);
	T(ioctl(new, 0xb703));
	T(setns(new, CLONE_NEWUTS));
	T(setns(new, CLONE_NEWTIME));
	compare("inside");
	T(write_text(OFFSETS, "1 1 0"));
	Y(ns_of("/proc/self/ns/time") == ns_of("/proc/self/ns/time_for_children"));
	T(CHILD(compare("child")));
	T(setns(old, 0));
	compare("back");
	T(CHILD(compare("child")));
	T(setns(new, 0));
	compare("inside");
	/* That of a process. */
	pid_t p = fork();
	if (p == 0) {
		pause();
		_exit(0);
	}
	T(setns(old, 0));
	int pidfd = syscall(SYS_pidfd_open, p, 0);
	T(setns(pidfd, CLONE_NEWTIME));
	compare("its");
	kill(p, SIGKILL);
	pthread_t t;
	pthread_create(&t, NULL, waits, NULL);
	T(setns(old, 0));
	T(CHILD(drop_root(); _exit(setns(old, 0) ? errno : 0)));
}

static int deadline(clockid_t c, int in_ms, struct timespec *t)
{
	clock_gettime(c, t);
	t->tv_nsec += in_ms * 1000000L;
	t->tv_sec += t->tv_nsec / 1000000000;
	t->tv_nsec %= 1000000000;
	return 0;
}

static void took(const char *what, long long from)
{
	long long n = clock_ms(CLOCK_REALTIME) - from;
	say(what, "%s", n < 40 ? "at once" : n < 3000 ? "in time" : "too late");
}

static void sleeps(clockid_t c)
{
	struct timespec t, past;
	long long from = clock_ms(CLOCK_REALTIME);
	deadline(c, 60, &t);
	T(clock_nanosleep(c, TIMER_ABSTIME, &t, NULL));
	took("absolute", from);
	deadline(c, 0, &past), past.tv_sec -= 10;
	from = clock_ms(CLOCK_REALTIME);
	T(clock_nanosleep(c, TIMER_ABSTIME, &past, NULL));
	took("past", from);
	from = clock_ms(CLOCK_REALTIME);
	struct timespec rel = { 0, 60000000 };
	T(clock_nanosleep(c, 0, &rel, NULL));
	took("relative", from);
	/* timerfd */
	int fd = timerfd_create(c, 0);
	struct itimerspec its = { .it_value = t };
	uint64_t n = 0;
	from = clock_ms(CLOCK_REALTIME);
	deadline(c, 60, &its.it_value);
	T(timerfd_settime(fd, TFD_TIMER_ABSTIME, &its, NULL));
	struct itimerspec left;
	timerfd_gettime(fd, &left);
	Y(left.it_value.tv_sec == 0 && left.it_value.tv_nsec > 0);
	T(read(fd, &n, 8));
	took("timerfd", from);
	from = clock_ms(CLOCK_REALTIME);
	its.it_value = past;
	T(timerfd_settime(fd, TFD_TIMER_ABSTIME, &its, NULL));
	T(read(fd, &n, 8));
	took("timerfd past", from);
	from = clock_ms(CLOCK_REALTIME);
	its.it_value = rel;
	T(timerfd_settime(fd, 0, &its, NULL));
	T(read(fd, &n, 8));
	took("timerfd relative", from);
	/* POSIX timers */
	timer_t timer;
	sigset_t set;
	sigemptyset(&set), sigaddset(&set, SIGUSR1), sigprocmask(SIG_BLOCK, &set, NULL);
	struct sigevent ev = { .sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGUSR1 };
	T(timer_create(c, &ev, &timer));
	from = clock_ms(CLOCK_REALTIME);
	its.it_interval = (struct timespec){ 0 };
	deadline(c, 60, &its.it_value);
	T(timer_settime(timer, TIMER_ABSTIME, &its, NULL));
	timer_gettime(timer, &left);
	Y(left.it_value.tv_sec == 0 && left.it_value.tv_nsec > 0);
	T(sigwaitinfo(&set, NULL) == SIGUSR1);
	took("timer", from);
	from = clock_ms(CLOCK_REALTIME);
	its.it_value = past;
	T(timer_settime(timer, TIMER_ABSTIME, &its, NULL));
	T(sigwaitinfo(&set, NULL) == SIGUSR1);
	took("timer past", from);
	its.it_value = (struct timespec){ 0 };
	T(timer_settime(timer, TIMER_ABSTIME, &its, NULL));
	timer_gettime(timer, &left);
	T(left.it_value.tv_sec);
}

static void sleeping(void)
{
	T(prepare(3, 5));
	T(CHILD(sleeps(CLOCK_MONOTONIC)));
	T(CHILD(sleeps(CLOCK_BOOTTIME)));
	T(CHILD(sleeps(CLOCK_REALTIME)));
	T(CHILD(prepare(0, 0); CHILD(sleeps(CLOCK_MONOTONIC))));
}

static void futexes(void)
{
	T(prepare(3, 5));
	T(CHILD(
		unsigned word = 0;
		struct timespec t;
		long long from = clock_ms(CLOCK_REALTIME);
		deadline(CLOCK_MONOTONIC, 60, &t);
		T(syscall(SYS_futex, &word, FUTEX_WAIT_BITSET_PRIVATE, 0, &t, NULL, -1));
		took("bitset", from);
		from = clock_ms(CLOCK_REALTIME);
		deadline(CLOCK_REALTIME, 60, &t);
		T(syscall(SYS_futex, &word, FUTEX_WAIT_BITSET_PRIVATE | FUTEX_CLOCK_REALTIME, 0, &t, NULL, -1));
		took("realtime", from);
		from = clock_ms(CLOCK_REALTIME);
		t = (struct timespec){ 0, 60000000 };
		T(syscall(SYS_futex, &word, FUTEX_WAIT_PRIVATE, 0, &t, NULL, 0));
		took("relative", from);
		struct { uint64_t val, uaddr; uint32_t flags, r; } w = { 0, (uint64_t)&word, 2, 0 };
		from = clock_ms(CLOCK_REALTIME);
		deadline(CLOCK_MONOTONIC, 60, &t);
		T(syscall(449, &w, 1, 0, &t, CLOCK_MONOTONIC));
		took("waitv", from);
		pthread_mutexattr_t a;
		pthread_cond_t cond;
		pthread_condattr_t ca;
		pthread_mutex_t m = PTHREAD_MUTEX_INITIALIZER;
		pthread_condattr_init(&ca);
		pthread_condattr_setclock(&ca, CLOCK_MONOTONIC);
		pthread_cond_init(&cond, &ca);
		from = clock_ms(CLOCK_REALTIME);
		deadline(CLOCK_MONOTONIC, 60, &t);
		pthread_mutex_lock(&m);
		T(pthread_cond_timedwait(&cond, &m, &t));
		took("condition", from)));
}

static double uptime(void)
{
	double up = -1;
	FILE *f = fopen("/proc/uptime", "r");
	if (f && fscanf(f, "%lf", &up)) {}
	fclose(f);
	return up;
}

static long btime(void)
{
	char line[256];
	long n = -1;
	FILE *f = fopen("/proc/stat", "r");
	while (fgets(line, sizeof line, f))
		sscanf(line, "btime %ld", &n);
	fclose(f);
	return n;
}

static long started(const char *path)
{
	char b[1024] = "";
	int fd = open(path, O_RDONLY);
	if (read(fd, b, sizeof b - 1) < 0)
		return -1;
	close(fd);
	char *p = strrchr(b, ')');
	long long n = -1;
	for (int i = 0; i < 20 && p; i++)
		p = strchr(p + 1, ' ');
	if (p)
		sscanf(p, " %lld", &n);
	return n / sysconf(_SC_CLK_TCK);
}

static void told_times(void)
{
	struct sysinfo s;
	sysinfo(&s);
	long up = uptime(), info = s.uptime, boot = btime(), start = started("/proc/self/stat");
	char path[64];
	sprintf(path, "/proc/%d/stat", getpid());
	T(prepare(3, 5));
	Y(near(uptime(), up));
	Y(near(started(path), start));
	T(CHILD(
		sysinfo(&s);
		Y(near(uptime(), up + 5 * DAY));
		Y(near(s.uptime, info + 5 * DAY));
		Y(near(btime(), boot - 5 * DAY));
		Y(near(started(path), start + 5 * DAY));
		Y(near(time(NULL), now_by_call(CLOCK_REALTIME)))));
}

/* sysinfo(2) counts a second that has begun. */
static void rounded(void)
{
	struct sysinfo s;
	char b[64] = "";
	int short_of = 0;
	for (int i = 0; i < 5; i++, usleep(130000)) {
		int fd = open("/proc/uptime", O_RDONLY);
		read(fd, b, sizeof b - 1);
		close(fd);
		sysinfo(&s);
		short_of += s.uptime < atof(b);
	}
	T(short_of);
}

static void many(void)
{
	/* Processes that come after are in no one's time but their own. */
	remember();
	T(CHILD(prepare(3, 5); for (int i = 0; i < 20; i++) CHILD(_exit(0))));
	int wrong = 0;
	for (int i = 0; i < 20; i++)
		wrong += CHILD(_exit(near(now(CLOCK_MONOTONIC), base[1]) ? 0 : 1)) != 0;
	T(wrong);
	T(CHILD(unshare(CLONE_NEWTIME); CHILD(compare("no offsets"))));
}

static void limits(void)
{
	/* In a user namespace of one's own, too. */
	drop_root();
	prctl(PR_SET_DUMPABLE, 1);
	remember();
	T(unshare(CLONE_NEWUSER | CLONE_NEWTIME));
	T(write_text(OFFSETS, "1 86400 0\n7 86400 0"));
	T(CHILD(compare("child")));
}

static const struct check list[] = {
	CHECK(making), CHECK(writing), CHECK(in_child), CHECK(backwards), CHECK(coarse), CHECK(in_exec), CHECK(by_clone), CHECK(threads),
	CHECK(joining), CHECK(sleeping), CHECK(futexes), CHECK(told_times), CHECK(rounded), CHECK(many), CHECK(limits),
};

int main(int argc, char **argv)
{
	if (argc == 3 && !strcmp(argv[1], "--told"))
		return told(argv[2]);
	return run_all(argc, argv, list, sizeof list / sizeof *list);
}
