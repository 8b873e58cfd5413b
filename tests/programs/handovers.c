/* Wake-ups of tasks that hand over to each other again and again, and then do something else. */
#define AREA "handovers"
#include "check.h"
#include <linux/futex.h>
#include <sys/eventfd.h>

enum { OFTEN = 300 };

static int there[2], back[2];

static void ping(void)
{
	char c = 'p';
	if (write(there[1], &c, 1) != 1 || read(back[0], &c, 1) != 1)
		_exit(98);
}

/* Answers each byte by one, until there are no more. */
static void *pong(void *unused)
{
	char c;
	while (read(there[0], &c, 1) == 1)
		if (write(back[1], &c, 1) != 1)
			break;
	return unused;
}

/* A partner, which has been woken by short calls so often that its waker is known for them. */
static pthread_t partner(void)
{
	pthread_t t;
	if (pipe(there) || pipe(back) || pthread_create(&t, NULL, pong, NULL))
		_exit(97);
	for (int i = 0; i < OFTEN; i++)
		ping();
	return t;
}

static double now(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec + t.tv_nsec / 1e9;
}

static void *drains(void *fd)
{
	static char buf[4096];
	long n, sum = 0;
	while ((n = read(*(int *)fd, buf, sizeof buf)) > 0)
		sum += n;
	return (void *)sum;
}

/* (Calls of many pieces: their wake-ups do not wait for the answer.) */
static void one_that_moves_much(void)
{
	static char big[1 << 20];
	pthread_t t = partner(), r;
	int p[2], s[2];
	void *sum;
	pipe(p);
	pthread_create(&r, NULL, drains, &p[0]);
	for (int i = 0; i < 20; i++)
		ping();
	T(write(p[1], big, sizeof big));
	close(p[1]);
	pthread_join(r, &sum);
	T((long)sum);
	socketpair(AF_UNIX, SOCK_STREAM, 0, s);
	pthread_create(&r, NULL, drains, &s[0]);
	for (int i = 0; i < 20; i++)
		ping();
	T(send(s[1], big, sizeof big, 0));
	close(s[1]);
	pthread_join(r, &sum);
	T((long)sum);
	close(there[1]);
	pthread_join(t, NULL);
}

/* The partner runs though its waker computes. */
static volatile int stop, ran;

static void *notes(void *unused)
{
	char c;
	while (read(there[0], &c, 1) == 1) {
		if (c == 'x') {
			ran = 1;
			break;
		}
		if (write(back[1], &c, 1) != 1)
			break;
	}
	return unused;
}

static void one_that_computes(void)
{
	pthread_t t;
	int late = 0;
	for (int round = 0; round < 5; round++) {
		ran = 0;
		if (pipe(there) || pipe(back) || pthread_create(&t, NULL, notes, NULL))
			_exit(97);
		for (int i = 0; i < OFTEN; i++)
			ping();
		write(there[1], "x", 1);
		double end = now() + 5;
		while (!ran && now() < end)
			;
		late += !ran;
		pthread_join(t, NULL);
		for (int i = 0; i < 2; i++)
			close(there[i]), close(back[i]);
	}
	T(late);
}

/* Its last call before it ends. */
static void *last_call(void *unused)
{
	for (int i = 0; i < OFTEN; i++)
		ping();
	write(there[1], "x", 1);
	syscall(SYS_exit, 0);
	return unused;
}

static void one_that_ends(void)
{
	pthread_t t, w;
	char c;
	partner();
	pthread_create(&w, NULL, last_call, NULL);
	T(read(back[0], &c, 1));
	/* And with its whole process: the partner is in another. */
	pipe(there);
	pipe(back);
	pthread_create(&t, NULL, pong, NULL);
	T(CHILD({
		for (int i = 0; i < OFTEN; i++)
			ping();
		write(there[1], "x", 1);
		kill(getpid(), SIGKILL);
	}));
	T(read(back[0], &c, 1));
	T(c == 'x');
}

/* Stopped, and interrupted by signals, while it hands over. */
static volatile int signals;

static void count(int n)
{
	signals++;
	(void)n;
}

static void one_with_signals(void)
{
	struct sigaction a = { .sa_handler = count, .sa_flags = SA_RESTART };
	sigaction(SIGUSR1, &a, NULL);
	int status;
	pid_t p = fork();
	if (p == 0) {
		pthread_t t = partner();
		for (int i = 0; i < 20000 || signals < 1; i++)
			ping();
		close(there[1]);
		pthread_join(t, NULL);
		_exit(7);
	}
	for (int i = 0; i < 40; i++) {
		ms(1);
		kill(p, SIGUSR1);
		kill(p, i % 2 ? SIGSTOP : SIGCONT);
	}
	kill(p, SIGCONT);
	T(waitpid(p, &status, 0) == p);
	T(WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status));
}

/* Futexes: all that one call wakes run. */
static int word;
static volatile int arrived, places;

static void *sleeps(void *unused)
{
	while (__atomic_load_n(&word, __ATOMIC_SEQ_CST) == 0) {
		__atomic_fetch_add(&arrived, 1, __ATOMIC_SEQ_CST);
		syscall(SYS_futex, &word, FUTEX_WAIT_PRIVATE, 0, NULL, NULL, 0);
	}
	__atomic_fetch_add(&places, 1, __ATOMIC_SEQ_CST);
	return unused;
}

static void all_are_woken(void)
{
	pthread_t t = partner(), s[8];
	for (int i = 0; i < 8; i++) {
		pthread_create(&s[i], NULL, sleeps, NULL);
		while (arrived < i + 1)
			sched_yield();
		ms(10);
	}
	for (int i = 0; i < 20; i++)
		ping();
	__atomic_store_n(&word, 1, __ATOMIC_SEQ_CST);
	T(syscall(SYS_futex, &word, FUTEX_WAKE_PRIVATE, 100, NULL, NULL, 0));
	for (int i = 0; i < 8; i++)
		pthread_join(s[i], NULL);
	T(places);
	close(there[1]);
	pthread_join(t, NULL);
}

/* By all that hands over: each to the next, through processes. */
static void through_all_kinds(void)
{
	int p[2], s[2], e = eventfd(0, 0);
	char c = 'x';
	uint64_t n = 1;
	pipe(p);
	socketpair(AF_UNIX, SOCK_SEQPACKET, 0, s);
	for (int i = 0; i < 3; i++) {
		if (fork())
			continue;
		for (int k = 0; k < 2000; k++) {
			if (i == 0 && (read(p[0], &c, 1) != 1 || send(s[0], &c, 1, 0) != 1))
				_exit(1);
			if (i == 1 && (recv(s[1], &c, 1, 0) != 1 || write(e, &n, 8) != 8))
				_exit(1);
			if (i == 2 && (write(p[1], &c, 1) != 1 || read(e, &n, 8) != 8 || n != 1))
				_exit(1);
		}
		_exit(0);
	}
	int status, bad = 0;
	for (int i = 0; i < 3; i++) {
		T(wait(&status) > 0);
		bad += status != 0;
	}
	T(bad);
}

static const struct check all[] = {
	CHECK(one_that_moves_much), CHECK(one_that_computes), CHECK(one_that_ends),
	CHECK(one_with_signals), CHECK(all_are_woken), CHECK(through_all_kinds),
};
MAIN(all)
