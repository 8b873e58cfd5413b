/* Timers and sleeps on CPU clocks. */
#define AREA "cputime"
#include "check.h"

#define MS 1000000L
/* By the inverted id, whether a thread's, and PROF, VIRT or SCHED. */
#define CLOCK_OF(id, thread, kind) ((clockid_t)(~(unsigned)(id) << 3 | (thread) << 2 | (kind)))

static volatile int hits, hit_in, hit_code, hit_value, hit_over;
static void on(int s, siginfo_t *i, void *c)
{
	(void)s, (void)c;
	hits++;
	hit_in = gettid();
	hit_code = i->si_code;
	hit_value = i->si_value.sival_int;
	hit_over += i->si_overrun;
}
static void handle(int sig)
{
	struct sigaction a = { .sa_sigaction = on, .sa_flags = SA_SIGINFO | SA_RESTART };
	sigaction(sig, &a, NULL);
}
static int make(clockid_t c, int notify, int sig, int tid, timer_t *t)
{
	struct sigevent e = { .sigev_notify = notify, .sigev_signo = sig, .sigev_value.sival_int = 77 };
	e._sigev_un._tid = tid;
	int id = 0;
	int r = syscall(SYS_timer_create, c, &e, &id);
	*t = (timer_t)(long)id;
	return r;
}
static int set(timer_t t, int flags, long long value_ms, long long every_ms)
{
	struct itimerspec i = {
		{ every_ms / 1000, every_ms % 1000 * MS }, { value_ms / 1000, value_ms % 1000 * MS },
	};
	return timer_settime(t, flags, &i, NULL);
}

static int other(void)
{
	int p = fork();
	if (p == 0)
		for (;;)
			pause();
	return p;
}
static void end(int p)
{
	kill(p, SIGKILL);
	waitpid(p, NULL, 0);
}

static void *waits(void *p)
{
	*(int *)p = gettid();
	for (;;)
		pause();
	return p;
}

/* Which clocks a timer may follow. */
static void which(void)
{
	timer_t t;
	int tid = 0, p = other();
	pthread_t th;
	pthread_create(&th, NULL, waits, &tid);
	while (!*(volatile int *)&tid)
		ms(1);
	for (int c = 0; c < 12; c++) {
		/* The alarm clocks need a device. */
		if (c == 8 || c == 9)
			continue;
		char what[32];
		sprintf(what, "timer on clock %d", c);
		errno = 0;
		report(what, make(c, SIGEV_NONE, 0, 0, &t), errno);
	}
	for (int kind = 0; kind < 4; kind++)
		for (int thread = 0; thread < 2; thread++) {
			int whose[] = { 0, getpid(), tid, p, 1, 999999, -1 };
			for (int i = 0; i < 7; i++) {
				char what[48];
				sprintf(what, "kind %d %s %d", kind, thread ? "thread" : "process", i);
				errno = 0;
				report(what, make(CLOCK_OF(whose[i], thread, kind), SIGEV_NONE, 0, 0, &t), errno);
			}
		}
	T(make(CLOCK_PROCESS_CPUTIME_ID, SIGEV_SIGNAL, 0, 0, &t));
	T(make(CLOCK_PROCESS_CPUTIME_ID, SIGEV_SIGNAL, 65, 0, &t));
	T(make(CLOCK_PROCESS_CPUTIME_ID, 9, SIGUSR1, 0, &t));
	T(make(CLOCK_PROCESS_CPUTIME_ID, SIGEV_THREAD_ID, SIGUSR1, p, &t));
	T(make(CLOCK_PROCESS_CPUTIME_ID, SIGEV_THREAD_ID, SIGUSR1, tid, &t));
	T(syscall(SYS_timer_create, CLOCK_PROCESS_CPUTIME_ID, NULL, 8));
	T(syscall(SYS_timer_create, CLOCK_PROCESS_CPUTIME_ID, 8, &t));
	end(p);
}

/* On the process's clock: when, how often, and what is told. */
static void process(void)
{
	timer_t t;
	struct itimerspec i;
	handle(SIGUSR1);
	T(make(CLOCK_PROCESS_CPUTIME_ID, SIGEV_SIGNAL, SIGUSR1, 0, &t));
	T(timer_gettime(t, &i));
	T(i.it_value.tv_sec + i.it_value.tv_nsec + i.it_interval.tv_nsec);
	T(set(t, 0, 40, 0));
	T(timer_gettime(t, &i));
	Y(i.it_value.tv_sec == 0 && i.it_value.tv_nsec > 0 && i.it_value.tv_nsec <= 41 * MS);
	/* Sleeping uses nothing. */
	ms(80);
	T(hits);
	long long from = clock_ms(CLOCK_PROCESS_CPUTIME_ID);
	while (!hits && clock_ms(CLOCK_PROCESS_CPUTIME_ID) < from + 3000) {}
	T(hits);
	Y(clock_ms(CLOCK_PROCESS_CPUTIME_ID) - from >= 30);
	T(hit_code == SI_TIMER);
	T(hit_value);
	T(timer_gettime(t, &i));
	T(i.it_value.tv_sec + i.it_value.tv_nsec);
	spin(60);
	T(hits);
	/* Again and again. */
	hits = hit_over = 0;
	T(set(t, 0, 10, 10));
	from = clock_ms(CLOCK_PROCESS_CPUTIME_ID);
	spin(300);
	Y(hits >= 5 && hits + hit_over <= (clock_ms(CLOCK_PROCESS_CPUTIME_ID) - from) / 10 + 1);
	T(timer_gettime(t, &i));
	Y(i.it_value.tv_nsec > 0 && i.it_value.tv_nsec <= 11 * MS);
	T(i.it_interval.tv_nsec);
	/* Its interval is still told where it stands still. */
	i.it_value.tv_nsec = 0;
	T(timer_settime(t, 0, &i, NULL));
	T(timer_gettime(t, &i));
	T(i.it_value.tv_nsec);
	T(i.it_interval.tv_nsec);
	/* At a time that is over: at once. */
	hits = 0;
	T(set(t, TIMER_ABSTIME, 1, 0));
	spin(30);
	T(hits);
	T(set(t, TIMER_ABSTIME, clock_ms(CLOCK_PROCESS_CPUTIME_ID) + 50, 0));
	T(hits);
	spin(120);
	T(hits);
	/* Blocked meanwhile: one signal, and the rest is its overrun. */
	sigset_t s;
	sigemptyset(&s);
	sigaddset(&s, SIGUSR1);
	sigprocmask(SIG_BLOCK, &s, NULL);
	hits = hit_over = 0;
	T(set(t, 0, 5, 5));
	spin(200);
	sigprocmask(SIG_UNBLOCK, &s, NULL);
	Y(hits == 1 && hit_over >= 10);
	Y(timer_getoverrun(t) >= 10);
	T(timer_delete(t));
	hits = 0;
	spin(30);
	T(hits);
	T(timer_gettime(t, &i));
}

static volatile int stop;
static void *burns(void *p)
{
	*(volatile int *)p = gettid();
	while (!stop) {}
	return p;
}

/* On a thread's clock: what others use does not count. */
static void thread(void)
{
	timer_t mine, its;
	int tid = 0;
	pthread_t th;
	handle(SIGUSR1);
	handle(SIGUSR2);
	pthread_create(&th, NULL, burns, &tid);
	while (!*(volatile int *)&tid)
		ms(1);
	T(make(CLOCK_THREAD_CPUTIME_ID, SIGEV_THREAD_ID, SIGUSR1, gettid(), &mine));
	T(set(mine, 0, 50, 0));
	ms(300);
	T(hits);
	spin(120);
	T(hits);
	Y(hit_in == gettid());
	hits = 0;
	T(make(CLOCK_OF(tid, 1, 2), SIGEV_THREAD_ID, SIGUSR2, tid, &its));
	T(set(its, 0, 50, 50));
	for (int i = 0; i < 400 && hits < 3; i++)
		ms(10);
	Y(hits >= 3);
	Y(hit_in == tid);
	stop = 1;
	pthread_join(th, NULL);
	ms(50);
	struct itimerspec i;
	T(timer_gettime(its, &i));
	T(i.it_value.tv_nsec);
	T(set(its, 0, 50, 50));
	T(timer_delete(its));
	/* Application code alone. */
	T(make(CLOCK_OF(0, 1, 1), SIGEV_SIGNAL, SIGUSR1, 0, &mine));
	hits = 0;
	T(set(mine, 0, 50, 0));
	for (volatile long k = 0; k < 2000000000 && !hits; k++) {}
	T(hits);
}

/* Of another process, which may end. */
static void others(void)
{
	timer_t t;
	int p = fork();
	if (p == 0)
		for (;;) {}
	handle(SIGUSR1);
	T(make(CLOCK_OF(p, 0, 2), SIGEV_SIGNAL, SIGUSR1, 0, &t));
	T(set(t, 0, 50, 50));
	for (int i = 0; i < 500 && hits < 3; i++)
		ms(10);
	Y(hits >= 3);
	T(set(t, 0, 0, 0));
	struct timespec s = { 0, 50 * MS };
	T(clock_nanosleep(CLOCK_OF(p, 0, 2), 0, &s, NULL));
	T(set(t, 0, 5000, 50));
	end(p);
	struct itimerspec i;
	T(timer_gettime(t, &i));
	T(i.it_value.tv_nsec);
	T(i.it_interval.tv_nsec);
	T(set(t, 0, 50, 50));
	T(clock_nanosleep(CLOCK_OF(p, 0, 2), 0, &s, NULL));
	T(timer_delete(t));
	/* Children do not inherit it, nor does a new program keep it. */
	T(make(CLOCK_PROCESS_CPUTIME_ID, SIGEV_SIGNAL, SIGKILL, 0, &t));
	T(set(t, 0, 100, 0));
	T(CHILD(spin(200)));
	T(set(t, 0, 0, 0));
}

static void *sleeps(void *p)
{
	struct timespec s = { 0, 100 * MS };
	*(long *)p = clock_nanosleep(CLOCK_PROCESS_CPUTIME_ID, 0, &s, NULL);
	stop = 1;
	return p;
}
static volatile int rings;
static void ring(int s)
{
	(void)s;
	rings++;
}

static void sleeping(void)
{
	struct timespec s = { 0, 50 * MS }, bad = { 0, 1000 * MS }, left = { 9, 9 };
	int tid = 0, p = other();
	for (int c = 2; c < 8; c++) {
		if (c == 7)
			continue;
		char what[32];
		sprintf(what, "sleep on clock %d", c);
		errno = 0;
		if (c != 2)
			report(what, syscall(SYS_clock_nanosleep, c, 0, &s, NULL), errno);
	}
	T(syscall(SYS_clock_nanosleep, CLOCK_OF(0, 1, 2), 0, &s, NULL));
	T(syscall(SYS_clock_nanosleep, CLOCK_OF(gettid(), 1, 2), 0, &s, NULL));
	T(syscall(SYS_clock_nanosleep, CLOCK_OF(p, 1, 2), 0, &s, NULL));
	T(syscall(SYS_clock_nanosleep, CLOCK_OF(999999, 0, 2), 0, &s, NULL));
	T(syscall(SYS_clock_nanosleep, CLOCK_OF(0, 0, 3), 0, &s, NULL));
	T(syscall(SYS_clock_nanosleep, CLOCK_PROCESS_CPUTIME_ID, 0, &bad, NULL));
	T(syscall(SYS_clock_nanosleep, CLOCK_PROCESS_CPUTIME_ID, 0, 8, NULL));
	/* Over already. */
	struct timespec one = { 0, 1 };
	T(syscall(SYS_clock_nanosleep, CLOCK_PROCESS_CPUTIME_ID, TIMER_ABSTIME, &one, NULL));
	end(p);
	/* Until another thread has used so much. */
	pthread_t th, sl;
	long r = -1;
	long long from = clock_ms(CLOCK_PROCESS_CPUTIME_ID);
	pthread_create(&sl, NULL, sleeps, &r);
	pthread_create(&th, NULL, burns, &tid);
	pthread_join(sl, NULL);
	T(r);
	Y(clock_ms(CLOCK_PROCESS_CPUTIME_ID) - from >= 90);
	pthread_join(th, NULL);
	/* Interrupted: nobody uses anything, so all of it is left. */
	struct sigaction a = { .sa_handler = ring };
	sigaction(SIGALRM, &a, NULL);
	struct itimerval in = { { 0, 0 }, { 0, 50000 } };
	s.tv_sec = 5;
	setitimer(ITIMER_REAL, &in, NULL);
	T(syscall(SYS_clock_nanosleep, CLOCK_PROCESS_CPUTIME_ID, 0, &s, &left));
	Y(left.tv_sec == 5 || (left.tv_sec == 4 && left.tv_nsec > 900 * MS));
	T(rings);
	s.tv_sec += 1000;
	left.tv_sec = 9;
	setitimer(ITIMER_REAL, &in, NULL);
	T(syscall(SYS_clock_nanosleep, CLOCK_PROCESS_CPUTIME_ID, TIMER_ABSTIME, &s, &left));
	T(left.tv_sec);
	setitimer(ITIMER_REAL, &in, NULL);
	s.tv_sec = 5;
	T(syscall(SYS_clock_nanosleep, CLOCK_PROCESS_CPUTIME_ID, 0, &s, 8));
}

/* setitimer's two. */
static void intervals(void)
{
	struct itimerval i = { { 0, 20000 }, { 0, 20000 } }, o;
	handle(SIGVTALRM);
	handle(SIGPROF);
	for (int w = ITIMER_VIRTUAL; w <= ITIMER_PROF; w++) {
		hits = 0;
		T(setitimer(w, &i, NULL));
		ms(60);
		T(hits);
		for (volatile long k = 0; k < 4000000000 && hits < 3; k++) {}
		Y(hits >= 3);
		T(getitimer(w, &o));
		Y(o.it_value.tv_usec > 0 && o.it_value.tv_usec <= 30000);
		T(o.it_interval.tv_usec);
		struct itimerval none = { { 3, 0 }, { 0, 0 } };
		T(setitimer(w, &none, &o));
		T(o.it_interval.tv_usec);
		T(getitimer(w, &o));
		T(o.it_value.tv_sec + o.it_value.tv_usec);
		T(o.it_interval.tv_sec);
		hits = 0;
		spin(60);
		T(hits);
	}
	T(setitimer(3, &i, NULL));
	T(getitimer(3, &o));
	/* A thread that is to take it sleeps, and another works. */
	int tid = 0;
	pthread_t th;
	stop = hits = 0;
	pthread_create(&th, NULL, burns, &tid);
	T(setitimer(ITIMER_PROF, &i, NULL));
	for (int k = 0; k < 300 && hits < 3; k++)
		ms(10);
	Y(hits >= 3);
	stop = 1;
	pthread_join(th, NULL);
}

/* Many threads and timers at once, and all of them expire. */
static volatile int counts[8];
static void count(int s, siginfo_t *i, void *c)
{
	(void)s, (void)c;
	counts[i->si_value.sival_int]++;
}
static void *worker(void *p)
{
	int n = (long)p;
	timer_t t;
	struct sigevent e = {
		.sigev_notify = SIGEV_THREAD_ID, .sigev_signo = SIGRTMIN + n, .sigev_value.sival_int = n,
	};
	e._sigev_un._tid = gettid();
	int id;
	if (syscall(SYS_timer_create, CLOCK_THREAD_CPUTIME_ID, &e, &id))
		return "no timer";
	t = (timer_t)(long)id;
	set(t, 0, 10, 10);
	spin(150);
	/* Sleeps now and then. */
	for (int k = 0; k < 10; k++) {
		ms(2);
		spin(10);
	}
	timer_delete(t);
	return NULL;
}
static void together(void)
{
	pthread_t th[8];
	struct sigaction a = { .sa_sigaction = count, .sa_flags = SA_SIGINFO | SA_RESTART };
	for (int n = 0; n < 8; n++)
		sigaction(SIGRTMIN + n, &a, NULL);
	for (long n = 0; n < 8; n++)
		pthread_create(th + n, NULL, worker, (void *)n);
	int ok = 0;
	for (int n = 0; n < 8; n++) {
		void *r;
		pthread_join(th[n], &r);
		ok += r == NULL && counts[n] >= 8 && counts[n] <= 40;
	}
	T(ok);
}

static const struct check all[] = {
	CHECK(which), CHECK(process), CHECK(thread), CHECK(others), CHECK(sleeping), CHECK(intervals), CHECK(together),
};
MAIN(all)
