/* Clocks, sleeping, timers. */
#define AREA "timers"
#include "check.h"
#include <sys/times.h>
#include <sys/timerfd.h>

#define MS 1000000L

static void clocks(void)
{
	struct timespec a, b;
	struct timeval v;
	/* Not the alarm clocks, which need a device. */
	for (int c = 0; c < 12; c += c == 7 ? 4 : 1) {
		char what[16];
		sprintf(what, "clock %d", c);
		errno = 0;
		int r = syscall(SYS_clock_gettime, c, &a);
		report(what, r, errno);
	}
	T(syscall(SYS_clock_gettime, 99, &a));
	T(syscall(SYS_clock_gettime, -100, &a));
	T(clock_gettime(CLOCK_MONOTONIC, &a));
	T(clock_gettime(CLOCK_MONOTONIC, &b));
	Y(b.tv_sec > a.tv_sec || (b.tv_sec == a.tv_sec && b.tv_nsec >= a.tv_nsec));
	clock_gettime(CLOCK_REALTIME, &a);
	T(gettimeofday(&v, NULL));
	Y(v.tv_sec - a.tv_sec < 2 && a.tv_sec > 1700000000);
	Y(time(NULL) - a.tv_sec < 2);
	T(clock_getres(CLOCK_MONOTONIC, &a));
	T(a.tv_nsec);
	T(clock_getres(CLOCK_MONOTONIC_COARSE, &a));
	Y(a.tv_nsec >= 1000000);
	T(clock_getres(CLOCK_MONOTONIC, NULL));
	T(syscall(SYS_clock_getres, 99, &a));
	T(CHILD(drop_root(); _exit(clock_settime(CLOCK_REALTIME, &b) == -1 ? errno : 0)));
	T(CHILD(drop_root(); _exit(clock_settime(CLOCK_MONOTONIC, &b) == -1 ? errno : 0)));
	T(CHILD(drop_root(); _exit(settimeofday(&v, NULL) == -1 ? errno : 0)));
	clockid_t id;
	T(clock_getcpuclockid(0, &id));
	T(clock_gettime(id, &a));
	T(clock_getcpuclockid(getpid(), &id));
	T(clock_gettime(id, &a));
	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &a);
	for (volatile long i = 0; i < 20000000; i++) {}
	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &b);
	Y((b.tv_sec - a.tv_sec) * 1000 + (b.tv_nsec - a.tv_nsec) / MS >= 2);
	T(syscall(SYS_time, NULL) > 0);
	T(syscall(SYS_gettimeofday, (void *)8, NULL));
}

static void sleeping(void)
{
	struct timespec t = { 0, 20 * MS }, bad = { 0, 1000 * MS }, neg = { -1, 0 };
	long long s = now_ms();
	T(nanosleep(&t, NULL));
	Y(now_ms() - s >= 20);
	T(nanosleep(&bad, NULL));
	T(nanosleep(&neg, NULL));
	T(nanosleep((void *)8, NULL));
	T(clock_nanosleep(CLOCK_MONOTONIC, 0, &t, NULL));
	T(clock_nanosleep(CLOCK_REALTIME, 0, &bad, NULL));
	T(clock_nanosleep(99, 0, &t, NULL));
	T(clock_nanosleep(CLOCK_THREAD_CPUTIME_ID, 0, &t, NULL));
	struct timespec past = { 1, 0 }, to;
	T(clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &past, NULL));
	clock_gettime(CLOCK_REALTIME, &to);
	to.tv_nsec += 20 * MS;
	if (to.tv_nsec >= 1000 * MS)
		to.tv_nsec -= 1000 * MS, to.tv_sec++;
	s = now_ms();
	T(clock_nanosleep(CLOCK_REALTIME, TIMER_ABSTIME, &to, NULL));
	Y(now_ms() - s >= 18);
	T(usleep(1000));
	T(sleep(0));
	t.tv_nsec = 0;
	T(nanosleep(&t, NULL));
}

static struct itimerspec every(long first, long then)
{
	struct itimerspec t = { { then / 1000, then % 1000 * MS }, { first / 1000, first % 1000 * MS } };
	return t;
}

static void timerfds(void)
{
	uint64_t n = 0;
	struct itimerspec t = every(20, 0), o;
	int f = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC);
	T(fcntl(f, F_GETFD));
	T(read(f, &n, 8));
	T(timerfd_gettime(f, &o));
	T(o.it_value.tv_sec + o.it_value.tv_nsec);
	T(timerfd_settime(f, 0, &t, &o));
	T(o.it_value.tv_nsec);
	T(timerfd_gettime(f, &o));
	Y(o.it_value.tv_nsec > 0 && o.it_value.tv_nsec <= 20 * MS);
	T(read(f, &n, 8));
	struct pollfd p = { f, POLLIN };
	T(poll(&p, 1, 0));
	T(poll(&p, 1, 2000));
	T(read(f, &n, 7));
	T(read(f, &n, 8));
	T(n);
	T(read(f, &n, 8));
	T(timerfd_gettime(f, &o));
	T(o.it_value.tv_nsec);
	t = every(1, 5);
	timerfd_settime(f, 0, &t, NULL);
	ms(60);
	T(read(f, &n, 8));
	Y(n >= 10 && n <= 40);
	timerfd_gettime(f, &o);
	T(o.it_interval.tv_nsec);
	t = every(0, 5);
	T(timerfd_settime(f, 0, &t, &o));
	Y(o.it_value.tv_nsec > 0);
	ms(10);
	T(read(f, &n, 8));
	struct timespec now;
	clock_gettime(CLOCK_MONOTONIC, &now);
	t = every(1, 0);
	t.it_value = now;
	T(timerfd_settime(f, TFD_TIMER_ABSTIME, &t, NULL));
	ms(2);
	T(read(f, &n, 8));
	T(n);
	t.it_value.tv_nsec = 1000 * MS;
	T(timerfd_settime(f, 0, &t, NULL));
	t = every(1, 0);
	T(timerfd_settime(f, 0x100, &t, NULL));
	T(timerfd_settime(0, 0, &t, NULL));
	T(timerfd_settime(f, 0, (void *)8, NULL));
	T(timerfd_gettime(0, &o));
	T(timerfd_create(99, 0));
	T(timerfd_create(CLOCK_PROCESS_CPUTIME_ID, 0));
	T(timerfd_create(CLOCK_MONOTONIC, 0x1000));
	T(write(f, &n, 8));
	int b = timerfd_create(CLOCK_REALTIME, 0);
	t = every(15, 0);
	timerfd_settime(b, 0, &t, NULL);
	long long s = now_ms();
	T(read(b, &n, 8));
	Y(now_ms() - s >= 14);
	t = every(15, 0);
	timerfd_settime(b, 0, &t, NULL);
	T(CHILD(read(b, &n, 8); _exit(n)));
}

static volatile int count, code, value, overrun;
static timer_t timer;
static void on(int s, siginfo_t *i, void *c)
{
	(void)s, (void)c;
	count++, code = i->si_code, value = i->si_value.sival_int, overrun = i->si_overrun;
}

static void posix_timers(void)
{
	struct sigaction a = { .sa_sigaction = on, .sa_flags = SA_SIGINFO };
	struct sigevent e = { .sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGRTMIN, .sigev_value.sival_int = 55 };
	struct itimerspec t = every(10, 0), o;
	sigaction(SIGRTMIN, &a, NULL);
	sigaction(SIGALRM, &a, NULL);
	T(timer_create(CLOCK_MONOTONIC, &e, &timer));
	T(timer_gettime(timer, &o));
	T(o.it_value.tv_nsec);
	T(syscall(SYS_timer_settime, timer, 0, NULL, NULL));
	T(syscall(SYS_timer_settime, timer, 0, (void *)8, NULL));
	T(timer_settime(timer, 0, &t, &o));
	while (!count)
		pause();
	T(count * 1000 + value);
	T(code);
	T(timer_getoverrun(timer));
	t = every(1, 2);
	sigset_t m;
	sigemptyset(&m);
	sigaddset(&m, SIGRTMIN);
	sigprocmask(SIG_BLOCK, &m, NULL);
	count = 0;
	T(timer_settime(timer, 0, &t, NULL));
	ms(40);
	t = every(0, 0);
	siginfo_t i;
	T(sigwaitinfo(&m, &i) == SIGRTMIN);
	Y(i.si_overrun >= 5);
	T(timer_settime(timer, 0, &t, NULL));
	sigprocmask(SIG_UNBLOCK, &m, NULL);
	T(timer_delete(timer));
	T(timer_delete(timer));
	T(timer_settime(timer, 0, &t, NULL));
	e.sigev_notify = SIGEV_NONE;
	T(timer_create(CLOCK_MONOTONIC, &e, &timer));
	t = every(5000, 0);
	T(timer_settime(timer, 0, &t, NULL));
	T(timer_gettime(timer, &o));
	T(o.it_value.tv_sec);
	T(CHILD(_exit(timer_gettime(timer, &o) == -1 && errno == EINVAL)));
	T(timer_create(CLOCK_REALTIME, NULL, &timer));
	count = 0;
	t = every(5, 0);
	timer_settime(timer, 0, &t, NULL);
	while (!count)
		pause();
	T(code);
	e.sigev_notify = SIGEV_SIGNAL, e.sigev_signo = 99;
	T(timer_create(CLOCK_MONOTONIC, &e, &timer));
	e.sigev_notify = 77, e.sigev_signo = SIGRTMIN;
	T(timer_create(CLOCK_MONOTONIC, &e, &timer));
	T(timer_create(99, NULL, &timer));
	e.sigev_notify = SIGEV_THREAD_ID;
	e._sigev_un._tid = gettid();
	T(timer_create(CLOCK_MONOTONIC, &e, &timer));
	count = 0;
	t = every(5, 0);
	timer_settime(timer, 0, &t, NULL);
	while (!count)
		pause();
	T(code);
	t = every(1, 0);
	struct timespec now;
	clock_gettime(CLOCK_MONOTONIC, &now);
	t.it_value = now;
	count = 0;
	T(timer_settime(timer, TIMER_ABSTIME, &t, NULL));
	while (!count)
		ms(1);
	T(count);
	t.it_value.tv_nsec = -1;
	T(timer_settime(timer, 0, &t, NULL));
	T(syscall(SYS_timer_gettime, 12345, &o));
	T(syscall(SYS_timer_getoverrun, 12345));
}

static void intervals(void)
{
	struct itimerval t = { { 0, 5000 }, { 0, 1000 } }, o;
	struct sigaction a = { .sa_sigaction = on, .sa_flags = SA_SIGINFO };
	sigaction(SIGALRM, &a, NULL);
	T(getitimer(ITIMER_REAL, &o) == 0 && o.it_value.tv_sec > 0);
	T(setitimer(ITIMER_REAL, &t, NULL));
	while (count < 5)
		pause();
	T(code);
	t.it_value.tv_usec = t.it_interval.tv_usec = 0;
	T(setitimer(ITIMER_REAL, &t, &o));
	T(o.it_interval.tv_usec);
	T(setitimer(ITIMER_REAL, NULL, &o));
	T(ualarm(1000, 0));
	count = 0;
	while (!count)
		pause();
	T(count);
	T(alarm(3));
	T(alarm(1) >= 2);
	count = 0;
	while (!count)
		pause();
	T(count);
	T(alarm(0));
}

static void accuracy(void)
{
	/* Ten short sleeps take at least their time, and not very much more. */
	long long s = now_ms();
	for (int i = 0; i < 10; i++)
		ms(5);
	long long d = now_ms() - s;
	Y(d >= 50 && d < 1500);
	s = now_ms();
	for (int i = 0; i < 10; i++)
		poll(NULL, 0, 5);
	d = now_ms() - s;
	Y(d >= 50 && d < 1500);
}

static void *sleeps(void *p)
{
	ms(*(int *)p);
	return NULL;
}

static void together(void)
{
	pthread_t t[20];
	int n = 50;
	long long s = now_ms();
	for (int i = 0; i < 20; i++)
		pthread_create(&t[i], NULL, sleeps, &n);
	for (int i = 0; i < 20; i++)
		pthread_join(t[i], NULL);
	long long d = now_ms() - s;
	Y(d >= 50 && d < 600);
}

static int spun[2];
static void *spins(void *p)
{
	struct rusage r;
	char c;
	spin(200);
	getrusage(RUSAGE_THREAD, &r);
	Y(r.ru_utime.tv_sec * 1000 + r.ru_utime.tv_usec / 1000 >= 100);
	write(spun[1], "x", 1);
	read(spun[0], &c, 1);
	return p;
}

static long long millis(struct timeval a, struct timeval b)
{
	return (a.tv_sec + b.tv_sec) * 1000LL + (a.tv_usec + b.tv_usec) / 1000;
}
static void *waits_for_ever(void *p)
{
	for (;;)
		pause();
	return p;
}

/* Each thread has its CPU time, and a process the sum. */
static void cpu_time(void)
{
	pthread_t t;
	clockid_t c;
	int up[2], down[2];
	char x;
	struct rusage r;
	pipe(up);
	pipe(down);
	spun[0] = down[0];
	spun[1] = up[1];
	pthread_create(&t, NULL, spins, NULL);
	read(up[0], &x, 1);
	Y(clock_ms(CLOCK_THREAD_CPUTIME_ID) < 100);
	Y(clock_ms(CLOCK_PROCESS_CPUTIME_ID) >= 190);
	T(pthread_getcpuclockid(t, &c));
	Y(clock_ms(c) >= 190);
	getrusage(RUSAGE_THREAD, &r);
	Y(r.ru_utime.tv_sec * 1000 + r.ru_utime.tv_usec / 1000 < 100);
	getrusage(RUSAGE_SELF, &r);
	Y(r.ru_utime.tv_sec * 1000 + r.ru_utime.tv_usec / 1000 >= 100);
	write(down[1], "x", 1);
	pthread_join(t, NULL);
	/* It is joined a moment before it is gone. */
	ms(50);
	struct timespec ts;
	T(clock_gettime(c, &ts));
	Y(clock_ms(CLOCK_PROCESS_CPUTIME_ID) >= 190);
	T(clock_gettime(~(getppid()) << 3 | 6, &ts));
	T(clock_gettime(~(getppid()) << 3 | 2, &ts));
	T(clock_gettime(~0 << 3 | 3, &ts));
	/* Children count when they were waited for. */
	getrusage(RUSAGE_CHILDREN, &r);
	Y(r.ru_utime.tv_sec == 0 && r.ru_utime.tv_usec < 50000);
	T(CHILD(spin(200)));
	getrusage(RUSAGE_CHILDREN, &r);
	Y(r.ru_utime.tv_sec * 1000 + r.ru_utime.tv_usec / 1000 >= 100);
	/* Also where many threads end at once. */
	int counted = 0;
	for (int i = 0; i < 15; i++) {
		int status;
		pid_t p = fork();
		if (p == 0) {
			for (int k = 0; k < 3; k++)
				pthread_create(&t, NULL, waits_for_ever, NULL);
			spin(20);
			_exit(0);
		}
		wait4(p, &status, 0, &r);
		counted += millis(r.ru_utime, r.ru_stime) >= 10;
	}
	T(counted);
}

/* Uses CPU time of both kinds. */
static void burn(int for_ms)
{
	char b[4096];
	int zero = open("/dev/zero", O_RDONLY);
	long long end = clock_ms(CLOCK_THREAD_CPUTIME_ID) + for_ms;
	while (clock_ms(CLOCK_THREAD_CPUTIME_ID) < end)
		for (int i = 0; i < 50; i++)
			read(zero, b, sizeof b);
	close(zero);
}

static void *burns(void *arg)
{
	burn(200);
	return arg;
}

/* What a new thread has used by all accounts: nothing. */
static void *begins(void *arg)
{
	struct rusage r;
	getrusage(RUSAGE_THREAD, &r);
	long long *most = arg, all[] = { clock_ms(CLOCK_THREAD_CPUTIME_ID), millis(r.ru_utime, r.ru_stime) };
	for (int i = 0; i < 2; i++)
		if (all[i] > *most)
			*most = all[i];
	return arg;
}

/* A new thread or process starts at zero, whoever was there before. */
static void cpu_begins(void)
{
	long long most = 0;
	pthread_t t;
	for (int i = 0; i < 4; i++) {
		pthread_create(&t, NULL, burns, NULL);
		pthread_join(t, NULL);
		pthread_create(&t, NULL, begins, &most);
		pthread_join(t, NULL);
	}
	Y(most < 60);
	struct rusage r;
	struct tms m;
	for (int i = 0; i < 3; i++) {
		T(CHILD(burn(200)));
		T(CHILD(
			times(&m);
			getrusage(RUSAGE_SELF, &r);
			_exit((m.tms_utime + m.tms_stime >= 6) | (m.tms_cutime + m.tms_cstime != 0) << 1 |
			      (clock_ms(CLOCK_PROCESS_CPUTIME_ID) >= 60) << 2 | (millis(r.ru_utime, r.ru_stime) >= 60) << 3)));
	}
	/* And nothing is lost. */
	getrusage(RUSAGE_SELF, &r);
	Y(millis(r.ru_utime, r.ru_stime) >= 700);
	getrusage(RUSAGE_CHILDREN, &r);
	Y(millis(r.ru_utime, r.ru_stime) >= 500 && millis(r.ru_utime, r.ru_stime) < 5000);
	/* Limits count from zero, too. */
	struct rlimit l = { 1, 2 };
	T(CHILD(
		setrlimit(RLIMIT_CPU, &l);
		for (int i = 0; i < 3; i++) {
			pthread_create(&t, NULL, burns, NULL);
			pthread_join(t, NULL);
		}));
}

static volatile int xcpu;
static void on_xcpu(int s)
{
	(void)s;
	xcpu++;
}

/* RLIMIT_CPU: SIGXCPU at the soft limit, SIGKILL at the hard one; children have it. */
static void cpu_limit(void)
{
	struct rlimit l = { 1, 2 };
	T(CHILD(
		signal(SIGXCPU, on_xcpu);
		setrlimit(RLIMIT_CPU, &l);
		while (!xcpu)
			for (volatile int i = 0; i < 100000; i++) {}
		getrlimit(RLIMIT_CPU, &l);
		_exit(l.rlim_cur)));
	l.rlim_cur = 1;
	T(setrlimit(RLIMIT_CPU, &l));
	T(CHILD(for (;;) {}));
	T(CHILD(signal(SIGXCPU, SIG_IGN); for (;;) {}));
}

static const struct check all[] = {
	CHECK(clocks), CHECK(sleeping), CHECK(timerfds), CHECK(posix_timers), CHECK(intervals), CHECK(accuracy),
	CHECK(together), CHECK(cpu_time), CHECK(cpu_begins), CHECK(cpu_limit),
};
MAIN(all)
