/* Calls that a sandbox may answer, or do, where they are made: others change the answer, send signals, wait. */
#define AREA "lanes3"
#include "check.h"
#include <linux/filter.h>
#include <linux/futex.h>
#include <linux/seccomp.h>
#include <stdatomic.h>
#include <sys/utsname.h>

#ifndef SS_AUTODISARM
#define SS_AUTODISARM (1 << 31)
#endif

#define OFTEN 600
#define PRIV FUTEX_PRIVATE_FLAG

static void *shared(size_t n)
{
	return mmap(NULL, n, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
}

/* One call site for each. */
#define SITE(name, number) static __attribute__((noinline)) long name(long a) { long r_; \
	asm volatile("mov %1, %%eax\n\tsyscall" : "=&a"(r_) : "i"(number), "D"(a) : "rcx", "r11", "memory"); return r_; }
SITE(ppid, SYS_getppid)
SITE(pgrp, SYS_getpgrp)
SITE(pgid, SYS_getpgid)
SITE(sid, SYS_getsid)
SITE(yield, SYS_sched_yield)

static void warm(void)
{
	for (int i = 0; i < OFTEN; i++)
		ppid(0), pgrp(0), pgid(0), sid(0), yield(0);
}

static void identity(void)
{
	warm();
	Y(ppid(0) == getppid() && pgrp(0) == getpgid(getpid()) && pgid(0) == pgrp(0) && sid(0) == getsid(getpid()));
	Y(pgid(0x7700000000L) == pgrp(0) && sid(0x7700000000L) == sid(0));
	T(pgid(-1));
	T(sid(0x3fffffff));
	Y(pgid(getppid()) == getpgid(getppid()) && sid(1) == getsid(1));
	T(setpgid(0, 0));
	Y(pgrp(0) == getpid() && pgid(0) == getpid() && sid(0) != getpid());
	T(CHILD(
		if (pgrp(0) != getppid() || ppid(0) != getppid()) _exit(1);
		if (setsid() != getpid()) _exit(2);
		if (pgrp(0) != getpid() || pgid(0) != getpid() || sid(0) != getpid()) _exit(3)));
	T(yield(0));
}

/* What another has changed is seen by calls that begin after its call returned. */
struct watch {
	_Atomic int ready, changed, stop;
	_Atomic long bad, right;
};
static struct watch *watch;
static long (*watched)(long);
static volatile long expected;

static void *watcher(void *p)
{
	(void)p;
	for (int i = 0; i < OFTEN; i++)
		watched(0);
	watch->ready++;
	while (!watch->stop) {
		int after = watch->changed;
		long is = watched(0);
		if (after)
			*(is == expected ? &watch->right : &watch->bad) += 1;
	}
	return NULL;
}

/* Watches by two threads, and ends the process. */
static void watch_twice(void)
{
	pthread_t t;
	pthread_create(&t, NULL, watcher, NULL);
	watcher(NULL);
	pthread_join(t, NULL);
	_exit(0);
}

/* Until the watchers have seen it often, or something else once. */
static void it_has_changed(void)
{
	watch->changed = 1;
	while (watch->right < 20 && !watch->bad)
		sched_yield();
	watch->stop = 1;
}

static void set_by_parent(void)
{
	watch = shared(4096);
	int bad = 0;
	long long begun = now_ms();
	for (int round = 0; round < 30 && now_ms() < begun + 6000; round++) {
		memset(watch, 0, sizeof *watch);
		watched = round & 1 ? pgrp : pgid;
		pid_t c = fork();
		if (c == 0) {
			expected = getpid();
			watch_twice();
		}
		while (watch->ready < 2)
			ms(1);
		bad += setpgid(c, c) != 0;
		it_has_changed();
		waitpid(c, NULL, 0);
		bad += watch->bad;
	}
	T(bad);
}

static void parent_ends(void)
{
	watch = shared(4096);
	int bad = 0;
	long long begun = now_ms();
	watched = ppid;
	T(prctl(PR_SET_CHILD_SUBREAPER, 1));
	expected = getpid();
	for (int round = 0; round < 30 && now_ms() < begun + 6000; round++) {
		memset(watch, 0, sizeof *watch);
		pid_t c = fork();
		if (c == 0) {
			if (fork() == 0) {
				watch_twice();
			}
			while (watch->ready < 2)
				ms(1);
			_exit(0);
		}
		waitpid(c, NULL, 0);
		it_has_changed();
		while (wait(NULL) > 0) {}
		bad += watch->bad;
	}
	T(bad);
}

static void namespaces(void)
{
	warm();
	T(CHILD(
		if (unshare(CLONE_NEWUSER | CLONE_NEWPID)) _exit(50);
		int c = CHILD(
			warm();
			if (ppid(0) || pgrp(0) || sid(0)) _exit(1);
			if (getpid() != 1) _exit(2);
			int d = CHILD(
				warm();
				if (ppid(0) != 1) _exit(1);
				if (setsid() != 2 || pgrp(0) != 2 || sid(0) != 2) _exit(2));
			if (d) _exit(10 + d));
		_exit(c)));
}

/* Masks. */
static sigset_t of(int s)
{
	sigset_t r;
	sigemptyset(&r);
	if (s)
		sigaddset(&r, s);
	return r;
}

static __attribute__((noinline)) long mask(long how, const void *set, void *old, long size)
{
	register long r10 asm("r10") = size;
	long r;
	asm volatile("mov $14, %%eax\n\tsyscall" : "=&a"(r) : "D"(how), "S"(set), "d"(old), "r"(r10) : "rcx", "r11", "memory");
	return r;
}

static unsigned long blocked_now(void)
{
	unsigned long m = 99;
	mask(0, NULL, &m, 8);
	return m;
}

static unsigned long in_status(void)
{
	FILE *f = fopen("/proc/self/status", "r");
	char line[256];
	unsigned long m = 99;
	while (fgets(line, sizeof line, f))
		sscanf(line, "SigBlk: %lx", &m);
	fclose(f);
	return m;
}

static void warm_mask(void)
{
	unsigned long m = 0, old;
	for (int i = 0; i < OFTEN; i++)
		mask(i & 1, &m, &old, 8);
}

#define BIT(s) (1UL << ((s) - 1))

static void *mask_in_thread(void *p)
{
	*(unsigned long *)p = blocked_now();
	return NULL;
}

static volatile unsigned long frame_mask, handler_mask;
static void look(int s, siginfo_t *i, void *p)
{
	(void)s; (void)i;
	ucontext_t *u = p;
	memcpy((void *)&frame_mask, &u->uc_sigmask, 8);
	handler_mask = blocked_now();
}

static void masks(void)
{
	for (int hot = 0; hot < 2; hot++) {
		unsigned long a = BIT(SIGUSR1) | BIT(SIGKILL) | BIT(SIGSTOP) | BIT(40), b = BIT(SIGUSR1), old = 7, none = 0;
		T(mask(SIG_BLOCK, &a, &old, 8));
		T(old);
		T(blocked_now());
		T(in_status());
		T(mask(SIG_UNBLOCK, &b, &old, 8));
		T(old);
		T(blocked_now());
		T(mask(SIG_SETMASK, &b, NULL, 8));
		T(blocked_now());
		/* What is given out lies where the set is. */
		a = BIT(SIGUSR2);
		T(mask(SIG_BLOCK, &a, &a, 8));
		T(a);
		T(blocked_now());
		a = BIT(SIGUSR2);
		T(mask(3, &a, &old, 8));
		T(mask(-1, &a, &old, 8));
		T(mask(-1, NULL, &old, 8));
		T(mask(0x300000001L, &b, NULL, 8));
		T(blocked_now());
		T(mask(0, &a, &old, 4));
		T(mask(0, NULL, NULL, 0x100000008L));
		T(mask(0, NULL, NULL, 8));
		T(mask(0, (void *)8, &old, 8));
		T(mask(0, (void *)-8, &old, 8));
		T(mask(0, (void *)-1, &old, 8));
		T(mask(0, (void *)0x7ffe00000000, &old, 8));
		T(mask(0, (void *)0x7fffffffeffc, &old, 8));
		T(mask(0, (void *)0x800000000000, &old, 8));
		T(blocked_now());
		/* The mask is changed all the same. */
		T(mask(SIG_SETMASK, &b, (void *)8, 8));
		T(blocked_now());
		T(mask(SIG_SETMASK, &none, (void *)"text", 8));
		T(blocked_now());
		T(mask(SIG_SETMASK, &a, (void *)0x7ffe00000000, 8));
		T(blocked_now());
		/* Pages that nobody has touched, that are shared with a child, across two. */
		char *p = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		T(mask(SIG_SETMASK, p, p + 4096, 8));
		T(*(unsigned long *)(p + 4096));
		T(mask(SIG_BLOCK, &b, p + 4092, 8));
		T(mask(SIG_BLOCK, p + 4092, p + 4093, 8));
		T(CHILD(if (mask(SIG_SETMASK, &a, p, 8) || *(unsigned long *)p != b || blocked_now() != a) _exit(1)));
		T(*(unsigned long *)p);
		T(blocked_now());
		munmap(p + 4096, 4096);
		T(mask(SIG_SETMASK, &none, p + 4092, 8));
		T(blocked_now());
		munmap(p, 4096);
		/* Who is made has it. */
		T(mask(SIG_SETMASK, &a, NULL, 8));
		pthread_t t;
		unsigned long there = 0;
		pthread_create(&t, NULL, mask_in_thread, &there);
		pthread_join(t, NULL);
		T(there);
		T(CHILD(_exit(blocked_now() != a || in_status() != a)));
		int fds[2];
		pipe(fds);
		if (fork() == 0) {
			dup2(fds[1], 1);
			execl("/bin/grep", "grep", "SigBlk", "/proc/self/status", NULL);
			_exit(1);
		}
		char line[64] = { 0 };
		read(fds[0], line, 63);
		wait(NULL);
		S(line, 25);
		/* A handler's, and what comes back. */
		struct sigaction act = { .sa_sigaction = look, .sa_flags = SA_SIGINFO };
		act.sa_mask = of(SIGHUP);
		sigaction(SIGUSR1, &act, NULL);
		raise(SIGUSR1);
		T(frame_mask);
		T(handler_mask);
		T(blocked_now());
		kill(getpid(), SIGUSR2);
		sigset_t got;
		sigpending(&got);
		T(sigismember(&got, SIGUSR2));
		sigset_t wanted = of(SIGUSR2);
		T(sigtimedwait(&wanted, NULL, &(struct timespec){ 0, 0 }));
		T(mask(SIG_SETMASK, &b, NULL, 8));
		kill(getpid(), SIGUSR1);
		sigset_t nothing = of(0);
		T(ppoll(NULL, 0, &(struct timespec){ 5, 0 }, &nothing));
		T(frame_mask);
		T(blocked_now());
		kill(getpid(), SIGUSR1);
		frame_mask = 0;
		T(mask(SIG_UNBLOCK, &b, NULL, 8));
		T(handler_mask);
		T(frame_mask);
		T(mask(SIG_SETMASK, &none, NULL, 8));
		warm_mask();
	}
	/* SIGSTOP and SIGKILL work whatever is blocked. */
	unsigned long all = ~0UL;
	T(CHILD(warm_mask(); mask(SIG_SETMASK, &all, NULL, 8); kill(getpid(), SIGKILL); pause()));
	T(CHILD(warm_mask(); mask(SIG_SETMASK, &all, NULL, 8); kill(getpid(), SIGTERM); mask(SIG_UNBLOCK, &all, NULL, 8); _exit(3)));
}

/* Signals that are sent while threads block and unblock them: each arrives. */
static _Atomic long seen, sent;
static _Atomic int stop, up;
static void count_one(int s)
{
	(void)s;
	seen++;
}

static _Atomic int tids[4];
static void *toggle(void *p)
{
	unsigned long one = BIT(SIGUSR1), old;
	long bad = 0;
	tids[(long)p] = syscall(SYS_gettid);
	mask(SIG_BLOCK, &one, NULL, 8);
	up++;
	while (!stop) {
		bad += mask(SIG_UNBLOCK, &one, &old, 8) != 0 || !(old & one);
		bad += mask(SIG_BLOCK, &one, &old, 8) != 0 || (old & one);
		bad += mask(SIG_UNBLOCK, &one, &old, 8) != 0 || !(old & one);
		unsigned long m = one;
		bad += mask(SIG_SETMASK, &m, &m, 8) != 0 || (m & one);
	}
	return (void *)bad;
}

/* Sends as often, each when the one before has arrived; gives how many did not. */
static long send_all(int n, int threads, int to_process)
{
	/* As many as there is time for, where the machine is busy. */
	long long begun = now_ms();
	for (long i = 0; i < n && now_ms() < begun + 2000; i++) {
		long before = seen;
		if (to_process)
			kill(getpid(), SIGUSR1);
		else
			syscall(SYS_tgkill, getpid(), tids[i % threads], SIGUSR1);
		long long end = now_ms() + 4000;
		for (int k = 0; seen == before; k++)
			if (k % 100 == 99) {
				sched_yield();
				if (now_ms() > end)
					return n - i;
			}
	}
	return 0;
}

static void none_is_lost(void)
{
	signal(SIGUSR1, count_one);
	unsigned long one = BIT(SIGUSR1);
	mask(SIG_BLOCK, &one, NULL, 8);
	for (int threads = 1; threads <= 2; threads++) {
		pthread_t t[3];
		stop = up = 0;
		for (long i = 0; i < threads; i++)
			pthread_create(&t[i], NULL, toggle, (void *)i);
		while (up < threads)
			sched_yield();
		T(send_all(300, threads, 1));
		T(send_all(300, threads, 0));
		stop = 1;
		long bad = 0;
		for (int i = 0; i < threads; i++) {
			void *r;
			pthread_join(t[i], &r);
			bad += (long)r;
		}
		T(bad);
	}
}

/* By another process, and by a timer, to one thread that toggles and others that always block, or that end. */
static void *blocks_always(void *p)
{
	(void)p;
	while (!stop)
		ms(1);
	return NULL;
}

static void *blocks_at_last(void *p)
{
	unsigned long one = BIT(SIGUSR1);
	(void)p;
	for (int i = 0; i < 30; i++) {
		mask(SIG_UNBLOCK, &one, NULL, 8);
		mask(SIG_BLOCK, &one, NULL, 8);
	}
	return NULL;
}

static void from_outside(void)
{
	struct { _Atomic long seen; _Atomic int up, stop; } *s = shared(4096);
	pid_t c = fork();
	if (c == 0) {
		unsigned long one = BIT(SIGUSR1);
		mask(SIG_BLOCK, &one, NULL, 8);
		signal(SIGUSR1, count_one);
		pthread_t t, u;
		pthread_create(&t, NULL, blocks_always, NULL);
		warm_mask();
		mask(SIG_BLOCK, &one, NULL, 8);
		s->up = 1;
		for (int i = 0; !s->stop; i++) {
			mask(SIG_UNBLOCK, &one, NULL, 8);
			mask(SIG_BLOCK, &one, NULL, 8);
			s->seen = seen;
			if (i % 500 == 0) {
				pthread_create(&u, NULL, blocks_at_last, NULL);
				pthread_join(u, NULL);
			}
		}
		stop = 1;
		pthread_join(t, NULL);
		_exit(0);
	}
	while (!s->up)
		ms(1);
	long lost = 0;
	for (int i = 0; i < 400 && !lost; i++) {
		long before = s->seen;
		kill(c, SIGUSR1);
		long long end = now_ms() + 4000;
		while (s->seen == before && !lost) {
			lost = now_ms() > end;
			sched_yield();
		}
	}
	T(lost);
	s->stop = 1;
	int st;
	waitpid(c, &st, 0);
	T(st);
}

/* A storm of signals, at every instruction: each call is done once. */
static void storm(void)
{
	signal(SIGALRM, count_one);
	struct itimerval v = { { 0, 211 }, { 0, 211 } };
	unsigned long a = BIT(SIGUSR1), b = BIT(SIGUSR2), old;
	long bad = 0;
	int word = 0;
	seen = 0;
	warm_mask();
	warm();
	for (int i = 0; i < OFTEN; i++)
		syscall(SYS_futex, &word, FUTEX_WAKE | PRIV, 1, NULL, NULL, 0);
	mask(SIG_SETMASK, &a, NULL, 8);
	setitimer(ITIMER_REAL, &v, NULL);
	while (seen < 3000)
		for (int i = 0; i < 100; i++) {
			unsigned long m = b;
			bad += mask(SIG_BLOCK, &m, &m, 8) != 0 || m != a;
			bad += mask(SIG_UNBLOCK, &b, &old, 8) != 0 || old != (a | b);
			m = a;
			bad += mask(SIG_SETMASK, &m, &m, 8) != 0 || m != a;
			bad += syscall(SYS_futex, &word, FUTEX_WAKE | PRIV, 1, NULL, NULL, 0) != 0;
			bad += yield(0) != 0 || ppid(0) != getppid() || pgid(0) != pgrp(0);
		}
	memset(&v, 0, sizeof v);
	setitimer(ITIMER_REAL, &v, NULL);
	T(bad);
}

/* Futexes. */
static __attribute__((noinline)) long futex(void *a, int op, long v, void *t, void *b, long v3)
{
	return syscall(SYS_futex, a, op, v, t, b, v3);
}

static int word, other;
static void wakes(void)
{
	for (int i = 0; i < OFTEN; i++)
		futex(&word, FUTEX_WAKE | PRIV, 1, NULL, NULL, 0);
	T(futex(&word, FUTEX_WAKE | PRIV, 1, NULL, NULL, 0));
	T(futex(&word, FUTEX_WAKE_BITSET | PRIV, 1, NULL, NULL, -1));
	T(futex(&word, FUTEX_WAKE_BITSET | PRIV, 1, NULL, NULL, 0));
	T(futex(&word, FUTEX_WAKE | PRIV, -1, NULL, NULL, 0));
	T(futex((char *)&word + 1, FUTEX_WAKE | PRIV, 1, NULL, NULL, 0));
	T(futex((char *)&word + 2, FUTEX_WAKE_BITSET | PRIV, 1, NULL, NULL, 1));
	T(futex((void *)8, FUTEX_WAKE | PRIV, 1, NULL, NULL, 0));
	T(futex(NULL, FUTEX_WAKE | PRIV, 1, NULL, NULL, 0));
	T(futex(NULL, FUTEX_WAKE, 1, NULL, NULL, 0));
	T(futex((void *)0x800000000000, FUTEX_WAKE | PRIV, 1, NULL, NULL, 0));
	T(futex((void *)-4, FUTEX_WAKE | PRIV, 1, NULL, NULL, 0));
	/* Nothing need be there, at the end, either. */
	T(futex((void *)0x7ff000000000, FUTEX_WAKE | PRIV, 1, NULL, NULL, 0));
	T(futex((void *)0x7ffe10002000, FUTEX_WAKE | PRIV, 1, NULL, NULL, 0));
	T(futex((void *)0x7fffffffeffc, FUTEX_WAKE_BITSET | PRIV, 1, NULL, NULL, -1));
	T(futex((void *)0x7ffffffff004, FUTEX_WAKE | PRIV, 1, NULL, NULL, 0));
	T(futex((void *)0x7ffe10002000, FUTEX_WAIT | PRIV, 0, NULL, NULL, 0));
	T(futex(&word, FUTEX_WAKE | PRIV | FUTEX_CLOCK_REALTIME, 1, NULL, NULL, 0));
	T(futex(&word, 77 | PRIV, 1, NULL, NULL, 0));
}

static void *wait_for(void *p)
{
	int *w = p;
	up++;
	while (*(volatile int *)w == 0)
		futex(w, FUTEX_WAIT | PRIV, 0, NULL, NULL, 0);
	return NULL;
}

static void *ball[2];
static _Atomic int turn;
static _Atomic long rounds;
static void *player(void *p)
{
	int me = (long)p;
	for (int i = 0; i < 20000; i++) {
		for (int spin = i % 7 * 10; turn != me;)
			if (spin-- <= 0)
				futex(&turn, FUTEX_WAIT | PRIV, !me, NULL, NULL, 0);
		turn = !me;
		rounds++;
		/* Where the other looks, and does not wait, there is nobody. */
		futex(&turn, FUTEX_WAKE | PRIV, 1, NULL, NULL, 0);
	}
	return NULL;
}

static void no_wake_up_is_lost(void)
{
	pthread_t t[2];
	for (int i = 0; i < OFTEN; i++)
		futex(&word, FUTEX_WAKE | PRIV, 1, NULL, NULL, 0);
	for (long i = 0; i < 2; i++)
		pthread_create(&t[i], NULL, player, (void *)i);
	long was = -1, lost = 0;
	while (rounds < 40000) {
		if (rounds == was)
			break;
		was = rounds;
		for (int i = 0; i < 40 && rounds == was; i++)
			ms(100);
	}
	lost = rounds < 40000;
	T(lost);
	if (lost)
		_exit(1);
	pthread_join(t[0], NULL);
	pthread_join(t[1], NULL);
}

static void requeued(void)
{
	for (int i = 0; i < OFTEN; i++)
		futex(&other, FUTEX_WAKE | PRIV, 1, NULL, NULL, 0);
	long wrong = 0;
	for (int round = 0; round < 60; round++) {
		pthread_t t[2];
		word = other = up = 0;
		for (int i = 0; i < 2; i++)
			pthread_create(&t[i], NULL, wait_for, &word);
		long moved = 0;
		long long end = now_ms() + 4000;
		while (moved < 2 && now_ms() < end)
			moved += futex(&word, FUTEX_CMP_REQUEUE | PRIV, 0, (void *)2, &other, 0);
		word = 1;
		wrong += moved != 2;
		/* How many it wakes is not asked: Linux may have woken one by itself. */
		futex(&other, FUTEX_WAKE | PRIV, 9, NULL, NULL, 0);
		for (int i = 0; i < 2; i++) {
			struct timespec soon;
			clock_gettime(CLOCK_REALTIME, &soon);
			soon.tv_sec += 4;
			if (pthread_timedjoin_np(t[i], NULL, &soon))
				_exit(60);
		}
	}
	T(wrong);
}

/* A process that has its parent's memory wakes its threads, and one of its own does not. */
static int waker(void *p)
{
	*(int *)p = 1;
	for (int i = 0; i < OFTEN; i++)
		if (futex(p, FUTEX_WAKE | PRIV, 1, NULL, NULL, 0) == 1)
			return 0;
	return 1;
}

static void by_processes(void)
{
	long wrong = 0;
	char *stack = malloc(65536);
	for (int i = 0; i < OFTEN; i++)
		futex(&word, FUTEX_WAKE | PRIV, 1, NULL, NULL, 0);
	for (int round = 0; round < 20; round++) {
		pthread_t t;
		word = up = 0;
		pthread_create(&t, NULL, wait_for, &word);
		while (!up)
			sched_yield();
		ms(5);
		wrong += CHILD(word = 1; _exit(futex(&word, FUTEX_WAKE | PRIV, 1, NULL, NULL, 0)));
		int st = -1;
		waitpid(clone(waker, stack + 65536, CLONE_VM | SIGCHLD, &word), &st, 0);
		wrong += st != 0;
		pthread_join(t, NULL);
	}
	T(wrong);
}

/* Locks of the C library. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t cond = PTHREAD_COND_INITIALIZER;
static long total, tickets;
static void *locks(void *p)
{
	(void)p;
	for (int i = 0; i < 20000; i++) {
		pthread_mutex_lock(&lock);
		total++;
		if (i % 3 == 0)
			tickets++, pthread_cond_signal(&cond);
		else if (i % 3 == 1)
			tickets++, pthread_cond_broadcast(&cond);
		pthread_mutex_unlock(&lock);
	}
	return NULL;
}

static void *takes_tickets(void *p)
{
	long n = 0;
	(void)p;
	while (n < 10000) {
		pthread_mutex_lock(&lock);
		while (tickets == 0)
			pthread_cond_wait(&cond, &lock);
		tickets--;
		n++;
		pthread_mutex_unlock(&lock);
	}
	return NULL;
}

static void locked(void)
{
	pthread_t t[5];
	for (int i = 0; i < 5; i++)
		pthread_create(&t[i], NULL, i < 3 ? locks : takes_tickets, NULL);
	for (int i = 0; i < 5; i++)
		pthread_join(t[i], NULL);
	T(total);
}

/* Alternate signal stacks. */
static char alt[2][65536] __attribute__((aligned(4096)));

static __attribute__((noinline)) long stack(const void *new, void *old)
{
	long r;
	asm volatile("mov $131, %%eax\n\tsyscall" : "=&a"(r) : "D"(new), "S"(old) : "rcx", "r11", "memory");
	return r;
}

/* The same with another stack pointer. */
static __attribute__((noinline)) long stack_at(const void *sp, const void *new, void *old)
{
	long r;
	asm volatile("mov %%rsp, %%rbx\n\tmov %3, %%rsp\n\tmov $131, %%eax\n\tsyscall\n\tmov %%rbx, %%rsp"
		: "=&a"(r) : "D"(new), "S"(old), "r"(sp) : "rbx", "rcx", "r11", "memory");
	return r;
}

static int which(const void *p)
{
	return p == alt[0] ? 1 : p == alt[1] ? 2 : p ? 3 : 0;
}

/* Everything of a stack in one number: flags, what pads them, size, and whose. */
static long told(const stack_t *s)
{
	return (s->ss_flags & 0x7fffffff) + (s->ss_flags < 0 ? 10 : 0) + (((const int *)s)[3] ? 100 : 0) +
		which(s->ss_sp) * 1000 + s->ss_size * 10000;
}

static long stack_now(void)
{
	stack_t s;
	memset(&s, 0x55, sizeof s);
	long r = stack(NULL, &s);
	return r ? r : told(&s);
}

static long use(int i, int flags, size_t size)
{
	stack_t s;
	memset(&s, 0x55, sizeof s);
	s.ss_sp = alt[i], s.ss_flags = flags, s.ss_size = size;
	return stack(&s, NULL);
}

static void warm_stack(void)
{
	for (int i = 0; i < OFTEN; i++)
		use(0, SS_DISABLE, 0), stack_now(), stack_at(alt[1] + 4096, NULL, NULL);
}

static volatile long there, there_now, there_set, there_frame;
static void on_stack(int s, siginfo_t *i, void *p)
{
	(void)s; (void)i;
	char here;
	there = &here >= alt[0] && &here < alt[0] + 65536 ? 1 : &here >= alt[1] && &here < alt[1] + 65536 ? 2 : 0;
	there_now = stack_now();
	/* Linux leaves there what pads it. */
	stack_t f = ((ucontext_t *)p)->uc_stack;
	((int *)&f)[3] = 0;
	there_frame = told(&f);
	there_set = use(!(there - 1), 0, 65536);
}

static void raised(void)
{
	there = there_now = there_set = there_frame = -1;
	raise(SIGUSR1);
	T(there);
	T(there_now);
	T(there_frame);
	T(there_set);
	T(stack_now());
}

/* A signal for one whose stack pointer is near the alternate stack's ends: what is below the red zone decides. */
static volatile long frame_at;
static void near_top(int s, siginfo_t *i, void *p)
{
	(void)s; (void)i;
	frame_at = alt[0] + 65536 - (char *)p < 16384 ? 1 : 2;
}

static __attribute__((noinline)) long raised_at(const void *sp)
{
	long r;
	frame_at = 0;
	asm volatile("mov %%rsp, %%rbx\n\tmov %3, %%rsp\n\tsyscall\n\tmov %%rbx, %%rsp"
		: "=a"(r) : "D"((long)getpid()), "S"((long)SIGUSR1), "r"(sp), "0"((long)SYS_kill) : "rbx", "rcx", "r11", "memory");
	return frame_at;
}

static void stack_ends(void)
{
	struct sigaction act = { .sa_sigaction = near_top, .sa_flags = SA_SIGINFO | SA_ONSTACK };
	sigaction(SIGUSR1, &act, NULL);
	for (int flags = 0; flags < 2; flags++) {
		for (int at = 8; at < 65536 + 400; at += at == 264 ? 32768 - 264 : at == 32768 ? 32768 - 256 : 16) {
			use(0, flags ? SS_AUTODISARM : 0, 65536);
			/* Where the frame has no room. */
			if (flags == 0 && at > 128 && at < 32768)
				continue;
			T(raised_at(alt[0] + at));
		}
		for (int at = 104; at < 180; at += 8)
			T(CHILD(use(0, flags ? SS_AUTODISARM : 0, 65536); _exit(raised_at(alt[0] + at))));
	}
	use(0, SS_DISABLE, 0);
}

static void *stack_in_thread(void *p)
{
	*(long *)p = stack_now();
	use(1, 0, 65536);
	return NULL;
}

static volatile long in_clone;
static int stack_in_clone(void *p)
{
	(void)p;
	in_clone = stack_now();
	return 0;
}

static void stacks(void)
{
	struct sigaction act = { .sa_sigaction = on_stack, .sa_flags = SA_SIGINFO | SA_ONSTACK };
	struct sigaction plain = { .sa_sigaction = on_stack, .sa_flags = SA_SIGINFO };
	char *own = malloc(65536);
	sigaction(SIGUSR1, &act, NULL);
	for (int hot = 0; hot < 2; hot++) {
		stack_t s = { .ss_sp = alt[1], .ss_size = 65536 }, o;
		T(stack_now());
		T(stack(NULL, NULL));
		T(use(0, 0, 65536));
		T(stack_now());
		T(use(1, SS_ONSTACK, 60000));
		T(stack_now());
		raised();
		T(use(0, SS_AUTODISARM, 65536));
		T(stack_now());
		raised();
		T(use(1, SS_ONSTACK | SS_AUTODISARM, 65536));
		T(stack_now());
		raised();
		T(use(0, 3, 65536));
		T(use(0, 4, 65536));
		T(use(0, 0x40000000, 65536));
		T(use(0, SS_AUTODISARM | 3, 65536));
		T(use(0, 0, 0));
		T(use(0, SS_ONSTACK, 2047));
		T(use(0, 4, 2047));
		T(stack_now());
		/* Disarmed by every handler, wherever it runs. */
		sigaction(SIGUSR1, &plain, NULL);
		raised();
		T(use(1, SS_DISABLE, 99));
		raised();
		sigaction(SIGUSR1, &act, NULL);
		T(stack_now());
		T(use(1, SS_DISABLE | SS_AUTODISARM, 99));
		T(stack_now());
		raised();
		/* Both. */
		T(use(0, 0, 65536));
		T(stack(&s, &o));
		T(told(&o));
		s.ss_sp = alt[0];
		T(stack(&s, &s));
		T(told(&s));
		T(stack_now());
		/* Where the stack pointer is. */
		T(stack_at(alt[0], NULL, &o));
		T(told(&o));
		T(stack_at(alt[0] + 8, NULL, &o));
		T(told(&o));
		T(stack_at(alt[0] + 65536, NULL, &o));
		T(told(&o));
		T(stack_at(alt[0] + 65544, NULL, &o));
		T(told(&o));
		T(stack_at(alt[0] + 8, &s, NULL));
		T(stack_at(alt[0] + 8, (void *)8, NULL));
		T(stack_at(alt[0] + 8, &s, &o));
		T(stack_at(alt[0], &s, NULL));
		T(stack_now());
		/* Bad pointers. */
		void *bad[] = { (void *)8, (void *)-8, (void *)-1, (void *)-24, (void *)0x7ffe00000000, (void *)0x7ffdfffffff0,
			(void *)0x7fffffffeff0, (void *)0x800000000000 };
		for (int i = 0; i < 8; i++) {
			T(stack(bad[i], NULL));
			T(stack(NULL, bad[i]));
			T(stack(&s, bad[i]));
		}
		T(stack_now());
		T(stack(NULL, (void *)"text of some length, which is not written"));
		/* Pages that nobody has touched, shared with a child, across two, and one of them. */
		char *p = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		T(stack(NULL, p + 4090));
		T(told((stack_t *)memcpy(&o, p + 4090, sizeof o)));
		T(CHILD(if (stack(p + 4090, NULL) || stack(NULL, p + 4080) || memcmp(p + 4080, p + 4090, 6)) _exit(1)));
		T(stack(p + 4090, NULL));
		T(stack_now());
		munmap(p + 4096, 4096);
		T(stack(p + 4090, NULL));
		T(stack(NULL, p + 4090));
		T(stack_now());
		munmap(p, 4096);
		/* Who is made. */
		T(use(1, SS_AUTODISARM, 65536));
		pthread_t t;
		long its = 0;
		pthread_create(&t, NULL, stack_in_thread, &its);
		pthread_join(t, NULL);
		T(its);
		T(stack_now());
		T(CHILD(_exit(stack_now() != 10 + 2000 + 655360000)));
		T(waitpid(clone(stack_in_clone, own + 65536, CLONE_VM | CLONE_VFORK | SIGCHLD, NULL), NULL, 0) > 0);
		T(in_clone);
		T(waitpid(clone(stack_in_clone, own + 65536, CLONE_VM | SIGCHLD, NULL), NULL, 0) > 0);
		T(in_clone);
		T(CHILD(use(0, 0, 65536); execl("/proc/self/exe", "lanes3", "after_exec", NULL)));
		T(CHILD(use(0, SS_AUTODISARM, 65536); execl("/proc/self/exe", "lanes3", "after_exec", NULL)));
		T(use(0, SS_DISABLE, 0));
		warm_stack();
	}
}

static void after_exec(void)
{
	T(stack_now());
}

/* The stack that has just been set is the next signal's, and in a handler there it cannot be changed. */
static _Atomic long bad_stacks;
static _Atomic int alarms;
static void look_where(int s, siginfo_t *i, void *p)
{
	(void)s; (void)i;
	char here;
	stack_t *f = &((ucontext_t *)p)->uc_stack, o;
	char *on = f->ss_sp;
	alarms++;
	if (on && !(&here > on && &here < on + 65536))
		bad_stacks++;
	if (stack(NULL, &o) || o.ss_sp != on || o.ss_flags != (on ? SS_ONSTACK : SS_DISABLE))
		bad_stacks++;
	if (on && use(0, 0, 65536) != -EPERM)
		bad_stacks++;
}

static void stack_storm(void)
{
	struct sigaction act = { .sa_sigaction = look_where, .sa_flags = SA_SIGINFO | SA_ONSTACK };
	struct itimerval v = { { 0, 211 }, { 0, 211 } };
	warm_stack();
	sigaction(SIGALRM, &act, NULL);
	sigaction(SIGUSR1, &act, NULL);
	setitimer(ITIMER_REAL, &v, NULL);
	long bad = 0, raises = 0;
	for (int i = 0; alarms < 3000; i++) {
		long now = (i & 1 ? 2000 : 1000) + 655360000;
		bad += use(i & 1, 0, 65536) != 0 || stack_now() != now;
		if (i % 16 == 0)
			raise(SIGUSR1);
		bad += stack_now() != now;
		if (i % 3 == 0)
			bad += use(0, SS_DISABLE, 0) != 0 || stack_now() != SS_DISABLE;
	}
	memset(&v, 0, sizeof v);
	setitimer(ITIMER_REAL, &v, NULL);
	T(bad);
	T(bad_stacks);
}

/* Threads that set and unset theirs at once, as runtimes' threads do. */
static void *has_a_stack(void *p)
{
	char *mine = p;
	long bad = 0;
	stack_t s = { .ss_sp = mine, .ss_size = 65536 }, o;
	for (int i = 0; i < 3; i++) {
		bad += stack(NULL, &o) || o.ss_flags != SS_DISABLE || o.ss_sp || o.ss_size;
		s.ss_flags = 0;
		bad += stack(&s, NULL) != 0;
		bad += stack(NULL, &o) || o.ss_flags || o.ss_sp != mine || o.ss_size != 65536;
		syscall(SYS_tgkill, getpid(), syscall(SYS_gettid), SIGUSR1);
		s.ss_flags = SS_DISABLE;
		bad += stack(&s, NULL) != 0;
	}
	return (void *)bad;
}

static void stacks_of_threads(void)
{
	struct sigaction act = { .sa_sigaction = look_where, .sa_flags = SA_SIGINFO | SA_ONSTACK };
	sigaction(SIGUSR1, &act, NULL);
	long bad = 0;
	for (int i = 0; i < 200; i++) {
		pthread_t t[2];
		for (int k = 0; k < 2; k++)
			pthread_create(&t[k], NULL, has_a_stack, alt[k]);
		for (int k = 0; k < 2; k++) {
			void *r;
			pthread_join(t[k], &r);
			bad += (long)r;
		}
	}
	T(bad);
	T(bad_stacks);
	T(alarms);
}

/* The system's names. */
SITE(names, SYS_uname)

static void warm_names(void)
{
	struct utsname u;
	for (int i = 0; i < OFTEN; i++)
		names((long)&u);
}

static void own_names(void)
{
	if (unshare(CLONE_NEWUTS) && unshare(CLONE_NEWUSER | CLONE_NEWUTS))
		_exit(50);
}

static void unames(void)
{
	char cold[400], hot[400];
	own_names();
	T(sethostname("a", 1));
	T(setdomainname("b.c", 3));
	memset(cold, 'x', sizeof cold), memset(hot, 'x', sizeof hot);
	T(names((long)(cold + 5)));
	warm_names();
	T(names((long)(hot + 5)));
	T(memcmp(cold, hot, sizeof cold));
	S(hot, 12);
	S(hot + 5 + 65, 8);
	S(hot + 5 + 4 * 65, 12);
	S(hot + 5 + 5 * 65, 75);
	/* As long as can be, and none. */
	char longest[64];
	memset(longest, 'h', 64);
	T(sethostname(longest, 64));
	T(sethostname(longest, 65));
	T(setdomainname("", 0));
	for (int i = 0; i < 2; i++) {
		memset(hot, 'x', sizeof hot);
		T(names((long)hot));
		S(hot + 65, 65);
		S(hot + 5 * 65, 3);
		warm_names();
	}
	long bad[] = { 8, -8, -1, -390, 0, 0x7ffe00000000, 0x7ffdfffffff0, 0x7fffffffef00, 0x800000000000 };
	for (int i = 0; i < 9; i++)
		T(names(bad[i]));
	T(names((long)"text"));
	char *p = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	T(names((long)p + 4000));
	T(memcmp(p + 4000, hot, 390));
	T(CHILD(if (names((long)p + 3800) || memcmp(p + 3800, hot, 390)) _exit(1)));
	munmap(p + 4096, 4096);
	T(names((long)p + 4000));
	T(names((long)p + 4096 - 390));
	T(memcmp(p + 4096 - 390, hot, 390));
	/* No instruction of it is seen by a signal. */
	signal(SIGALRM, count_one);
	struct itimerval v = { { 0, 211 }, { 0, 211 } };
	setitimer(ITIMER_REAL, &v, NULL);
	long wrong = 0;
	for (seen = 0; seen < 1500;) {
		memset(cold, 'x', 390);
		wrong += names((long)cold) != 0 || memcmp(cold, hot, 390);
	}
	memset(&v, 0, sizeof v);
	setitimer(ITIMER_REAL, &v, NULL);
	T(wrong);
}

/* The number that the host is called by, or the domain. */
static long host_number(long a)
{
	struct utsname u;
	(void)a;
	return names((long)&u) ? -1 : atol(u.nodename);
}

static long domain_number(long a)
{
	struct utsname u;
	(void)a;
	return names((long)&u) ? -1 : atol(u.domainname);
}

static int name_it(int way, long number)
{
	char text[24];
	int n = sprintf(text, "%ld", number);
	switch (way) {
	case 0: return sethostname(text, n);
	case 1: return setdomainname(text, n);
	}
	/* Who is not root there may not. */
	return write_text("/proc/sys/kernel/hostname", text) ? sethostname(text, n) : 0;
}

static void names_are_new(void)
{
	watch = shared(4096);
	int bad = 0;
	long long begun = now_ms();
	own_names();
	for (int round = 0; round < 30 && now_ms() < begun + 9000; round++) {
		memset(watch, 0, sizeof *watch);
		watched = round % 3 == 1 ? domain_number : host_number;
		bad += name_it(round % 3, 1000 + round) != 0;
		expected = 2000 + round;
		if (round & 1) {
			/* By a thread. */
			pthread_t t[2];
			for (int i = 0; i < 2; i++)
				pthread_create(&t[i], NULL, watcher, NULL);
			while (watch->ready < 2)
				ms(1);
			bad += name_it(round % 3, expected) != 0;
			it_has_changed();
			for (int i = 0; i < 2; i++)
				pthread_join(t[i], NULL);
		} else {
			/* By another process. */
			pid_t c = fork();
			if (c == 0) {
				watch_twice();
			}
			while (watch->ready < 2)
				ms(1);
			bad += name_it(round % 3, expected) != 0;
			it_has_changed();
			waitpid(c, NULL, 0);
		}
		bad += watch->bad;
	}
	T(bad);
}

/* A thread's namespace is its own, where it unshares it or goes into another. */
static _Atomic int step;
static void *names_elsewhere(void *p)
{
	int back = *(int *)p;
	warm_names();
	T(host_number(0));
	T(unshare(CLONE_NEWUTS));
	T(host_number(0));
	T(name_it(0, 2));
	T(host_number(0));
	step = 1;
	while (step != 2)
		sched_yield();
	/* The others have another name now. */
	T(host_number(0));
	T(CHILD(_exit(host_number(0))));
	T(setns(back, CLONE_NEWUTS));
	T(host_number(0));
	return NULL;
}

static void names_of_threads(void)
{
	own_names();
	T(name_it(0, 1));
	int back = open("/proc/self/ns/uts", O_RDONLY);
	pthread_t t;
	warm_names();
	pthread_create(&t, NULL, names_elsewhere, &back);
	while (step != 1)
		sched_yield();
	T(host_number(0));
	T(name_it(0, 3));
	T(host_number(0));
	step = 2;
	pthread_join(t, NULL);
	T(CHILD(
		warm_names();
		if (host_number(0) != 3) _exit(1);
		pid_t c = syscall(SYS_clone, CLONE_NEWUTS | SIGCHLD, 0, 0, 0, 0);
		if (c == 0)
			_exit(name_it(0, 4) || host_number(0) != 4);
		int st;
		waitpid(c, &st, 0);
		_exit(st || host_number(0) != 3)));
}

/* Filters see all of them. */
static void filters(void)
{
	static const int numbers[] = { SYS_rt_sigprocmask, SYS_futex, SYS_sched_yield, SYS_getppid, SYS_getsid,
		SYS_uname, SYS_sigaltstack };
	struct utsname u;
	unsigned long none = 0;
	for (int i = 0; i < OFTEN; i++)
		mask(0, &none, NULL, 8), futex(&word, FUTEX_WAKE | PRIV, 1, NULL, NULL, 0), yield(0), ppid(0), sid(0);
	warm_names();
	warm_stack();
	for (int i = 0; i < 7; i++) {
		struct sock_filter f[] = {
			BPF_STMT(BPF_LD | BPF_W | BPF_ABS, 0),
			BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, numbers[i], 0, 1),
			BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | (70 + i)),
			BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
		};
		struct sock_fprog prog = { 4, f };
		T(CHILD(
			prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
			syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &prog);
			long r[] = { mask(0, &none, NULL, 8), futex(&word, FUTEX_WAKE | PRIV, 1, NULL, NULL, 0), yield(0), ppid(0), sid(0),
				names((long)&u), stack(NULL, NULL) };
			if (i == 1) r[1] = r[1] == -1 ? -errno : 0;
			for (int k = 0; k < 7; k++)
				if (k != i && r[k] < 0) _exit(1);
			_exit(-r[i])));
	}
}

static const struct check all[] = {
	CHECK(identity), CHECK(set_by_parent), CHECK(parent_ends), CHECK(namespaces), CHECK(masks), CHECK(none_is_lost),
	CHECK(from_outside), CHECK(storm), CHECK(wakes), CHECK(no_wake_up_is_lost), CHECK(requeued), CHECK(by_processes),
	CHECK(locked), CHECK(stacks), CHECK(stack_ends), CHECK(after_exec), CHECK(stack_storm), CHECK(stacks_of_threads), CHECK(unames),
	CHECK(names_are_new), CHECK(names_of_threads), CHECK(filters),
};
MAIN(all)
