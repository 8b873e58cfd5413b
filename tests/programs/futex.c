/* Futexes, directly and through the C library's locks. */
#define AREA "futex"
#include "check.h"
#include <linux/futex.h>
#include <semaphore.h>

static int word, other;

static long futex(int *a, int op, int v, const struct timespec *t, int *b, int v3)
{
	return syscall(SYS_futex, a, op, v, t, b, v3);
}

#define PRIV FUTEX_PRIVATE_FLAG

struct arg {
	int *at;
	int op, value;
	unsigned mask;
	volatile long result;
	volatile int started;
	volatile int error;
};

static void *wait_on(void *p)
{
	struct arg *a = p;
	a->started = 1;
	a->result = futex(a->at, a->op, a->value, NULL, NULL, a->mask);
	a->error = a->result ? errno : 0;
	return NULL;
}

static pthread_t start(struct arg *a)
{
	pthread_t t;
	pthread_create(&t, NULL, wait_on, a);
	while (!a->started)
		sched_yield();
	ms(15);
	return t;
}

static void errors(void)
{
	struct timespec t = { 0, 5000000 }, bad = { 0, -1 }, past = { 1, 0 };
	word = 1;
	T(futex(&word, FUTEX_WAIT, 0, NULL, NULL, 0));
	T(futex(&word, FUTEX_WAIT | PRIV, 1, &t, NULL, 0));
	T(futex(&word, FUTEX_WAIT, 1, &t, NULL, 0));
	T(futex(&word, FUTEX_WAIT, 1, &bad, NULL, 0));
	T(futex((int *)((char *)&word + 1), FUTEX_WAIT, 1, &t, NULL, 0));
	T(futex((int *)8, FUTEX_WAIT, 1, &t, NULL, 0));
	T(futex((int *)8, FUTEX_WAKE, 1, NULL, NULL, 0));
	T(futex((int *)8, FUTEX_WAKE | PRIV, 1, NULL, NULL, 0));
	T(futex(&word, FUTEX_WAKE, 1, NULL, NULL, 0));
	T(futex(&word, FUTEX_WAIT_BITSET, 1, &past, NULL, -1));
	T(futex(&word, FUTEX_WAIT_BITSET | FUTEX_CLOCK_REALTIME, 1, &past, NULL, -1));
	T(futex(&word, FUTEX_WAIT_BITSET, 1, &t, NULL, 0));
	T(futex(&word, FUTEX_WAKE_BITSET, 1, NULL, NULL, 0));
	T(futex(&word, FUTEX_WAKE | FUTEX_CLOCK_REALTIME, 1, NULL, NULL, 0));
	T(futex(&word, FUTEX_WAIT | FUTEX_CLOCK_REALTIME, 1, &past, NULL, 0));
	T(futex(&word, 99, 1, NULL, NULL, 0));
	T(futex(&word, FUTEX_FD, 1, NULL, NULL, 0));
	T(futex(&word, FUTEX_CMP_REQUEUE, 1, (void *)1, &other, 0));
	T(futex(&word, FUTEX_CMP_REQUEUE, 1, (void *)1, &other, 1));
	T(futex(&word, FUTEX_REQUEUE, -1, (void *)1, &other, 1));
	T(futex(&word, FUTEX_WAIT, 1, (void *)8, NULL, 0));
}

static void waking(void)
{
	struct arg a[4];
	pthread_t t[4];
	word = 0;
	for (int i = 0; i < 4; i++) {
		a[i] = (struct arg){ &word, FUTEX_WAIT | PRIV, 0 };
		t[i] = start(&a[i]);
	}
	T(futex(&word, FUTEX_WAKE, 10, NULL, NULL, 0) == 0 || 1);
	T(futex(&word, FUTEX_WAKE | PRIV, 1, NULL, NULL, 0));
	T(futex(&word, FUTEX_WAKE | PRIV, 0, NULL, NULL, 0));
	T(futex(&word, FUTEX_WAKE | PRIV, -1, NULL, NULL, 0));
	T(futex(&word, FUTEX_WAKE | PRIV, 2, NULL, NULL, 0));
	T(futex(&word, FUTEX_WAKE | PRIV, 10, NULL, NULL, 0));
	T(futex(&word, FUTEX_WAKE | PRIV, 10, NULL, NULL, 0));
	long sum = 0;
	for (int i = 0; i < 4; i++) {
		pthread_join(t[i], NULL);
		sum += a[i].result;
	}
	T(sum);
	/* Bit sets. */
	for (int i = 0; i < 2; i++) {
		a[i] = (struct arg){ &word, FUTEX_WAIT_BITSET | PRIV, 0, 1u << i };
		t[i] = start(&a[i]);
	}
	T(futex(&word, FUTEX_WAKE_BITSET | PRIV, 10, NULL, NULL, 4));
	T(futex(&word, FUTEX_WAKE_BITSET | PRIV, 10, NULL, NULL, 2));
	pthread_join(t[1], NULL);
	T(futex(&word, FUTEX_WAKE | PRIV, 10, NULL, NULL, 0));
	pthread_join(t[0], NULL);
}

static void requeueing(void)
{
	struct arg a[4];
	pthread_t t[4];
	word = other = 0;
	for (int i = 0; i < 4; i++) {
		a[i] = (struct arg){ &word, FUTEX_WAIT | PRIV, 0 };
		t[i] = start(&a[i]);
	}
	T(futex(&word, FUTEX_CMP_REQUEUE | PRIV, 1, (void *)2, &other, 5));
	T(futex(&word, FUTEX_CMP_REQUEUE | PRIV, 1, (void *)2, &other, 0));
	ms(10);
	T(futex(&word, FUTEX_WAKE | PRIV, 10, NULL, NULL, 0));
	T(futex(&other, FUTEX_WAKE | PRIV, 10, NULL, NULL, 0));
	for (int i = 0; i < 4; i++)
		pthread_join(t[i], NULL);
	/* To where they are: they stay, and are counted. */
	for (int i = 0; i < 3; i++)
		t[i] = start(&a[i]);
	T(futex(&word, FUTEX_REQUEUE | PRIV, 1, (void *)1, &word, 0));
	T(futex(&word, FUTEX_CMP_REQUEUE | PRIV, 0, (void *)9, &word, 0));
	T(futex(&word, FUTEX_WAKE | PRIV, 10, NULL, NULL, 0));
	for (int i = 0; i < 3; i++)
		pthread_join(t[i], NULL);
	/* FUTEX_WAKE_OP: other = 7 if it was 0, wakes both. */
	a[0] = (struct arg){ &word, FUTEX_WAIT | PRIV, 0 };
	a[1] = (struct arg){ &other, FUTEX_WAIT | PRIV, 0 };
	t[0] = start(&a[0]), t[1] = start(&a[1]);
	T(futex(&word, FUTEX_WAKE_OP | PRIV, 10, (void *)10, &other, FUTEX_OP(FUTEX_OP_SET, 7, FUTEX_OP_CMP_EQ, 0)));
	T(other);
	pthread_join(t[0], NULL), pthread_join(t[1], NULL);
	T(futex(&word, FUTEX_WAKE_OP | PRIV, 10, (void *)10, &other, FUTEX_OP(FUTEX_OP_ADD, 3, FUTEX_OP_CMP_GT, 100)));
	T(other);
	T(futex(&word, FUTEX_WAKE_OP | PRIV, 10, (void *)10, &other, FUTEX_OP(FUTEX_OP_ANDN, 2, FUTEX_OP_CMP_LT, 0)));
	T(other);
	T(futex(&word, FUTEX_WAKE_OP | PRIV, 10, (void *)10, &other, FUTEX_OP(FUTEX_OP_XOR | 8, 2, FUTEX_OP_CMP_NE, 0)));
	T(other);
}

static void between_processes(void)
{
	int *s = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	int fd = open("f", O_CREAT | O_RDWR, 0644), st;
	ftruncate(fd, 4096);
	pid_t c = fork();
	if (!c)
		_exit(futex(s, FUTEX_WAIT, 0, NULL, NULL, 0) == 0 ? 4 : 5);
	ms(30);
	T(futex(s, FUTEX_WAKE, 10, NULL, NULL, 0));
	waitpid(c, &st, 0);
	T(WEXITSTATUS(st));
	/* The same page of a file, mapped twice. */
	int *a = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	c = fork();
	if (!c) {
		int *b = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
		_exit(futex(b + 3, FUTEX_WAIT, 0, NULL, NULL, 0) == 0 ? 6 : 7);
	}
	ms(30);
	T(futex(a + 2, FUTEX_WAKE, 10, NULL, NULL, 0));
	T(futex(a + 3, FUTEX_WAKE, 10, NULL, NULL, 0));
	waitpid(c, &st, 0);
	T(WEXITSTATUS(st));
	/* Private memory after fork is another futex. */
	word = 0;
	c = fork();
	if (!c) {
		struct timespec t = { 0, 60000000 };
		_exit(futex(&word, FUTEX_WAIT, 0, &t, NULL, 0) == 0 ? 8 : 9);
	}
	ms(30);
	T(futex(&word, FUTEX_WAKE, 10, NULL, NULL, 0));
	waitpid(c, &st, 0);
	T(WEXITSTATUS(st));
}

static void on(int s)
{
	(void)s;
}

static void interrupted(void)
{
	struct sigaction a = { .sa_handler = on };
	int st;
	for (int k = 0; k < 2; k++) {
		a.sa_flags = k ? SA_RESTART : 0;
		sigaction(SIGUSR1, &a, NULL);
		pid_t c = fork();
		if (!c) {
			ms(30);
			kill(getppid(), SIGUSR1);
			_exit(0);
		}
		struct timespec t = { 0, 100000000 };
		T(futex(&word, FUTEX_WAIT, word, k ? &t : NULL, NULL, 0));
		waitpid(c, &st, 0);
	}
}

static void priority_inheritance(void)
{
	struct timespec past = { 1, 0 };
	word = 0;
	T(futex(&word, FUTEX_LOCK_PI | PRIV, 0, NULL, NULL, 0));
	Y((word & FUTEX_TID_MASK) == gettid());
	T(futex(&word, FUTEX_LOCK_PI | PRIV, 0, NULL, NULL, 0));
	T(futex(&word, FUTEX_TRYLOCK_PI | PRIV, 0, NULL, NULL, 0));
	T(futex(&word, FUTEX_UNLOCK_PI | PRIV, 0, NULL, NULL, 0));
	T(word);
	T(futex(&word, FUTEX_UNLOCK_PI | PRIV, 0, NULL, NULL, 0));
	word = 99999999;
	T(futex(&word, FUTEX_LOCK_PI | PRIV, 0, &past, NULL, 0));
	pthread_mutexattr_t at;
	pthread_mutex_t m;
	pthread_mutexattr_init(&at);
	T(pthread_mutexattr_setprotocol(&at, PTHREAD_PRIO_INHERIT));
	T(pthread_mutex_init(&m, &at));
	T(pthread_mutex_lock(&m));
	T(pthread_mutex_unlock(&m));
}

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t cond = PTHREAD_COND_INITIALIZER;
static long counter;
static int turn;

static void *counts(void *p)
{
	(void)p;
	for (int i = 0; i < 5000; i++) {
		pthread_mutex_lock(&mutex);
		counter++;
		pthread_mutex_unlock(&mutex);
	}
	return NULL;
}

static void *alternates(void *p)
{
	long me = (long)p;
	for (int i = 0; i < 500; i++) {
		pthread_mutex_lock(&mutex);
		while (turn != me)
			pthread_cond_wait(&cond, &mutex);
		turn = !turn;
		counter++;
		pthread_cond_signal(&cond);
		pthread_mutex_unlock(&mutex);
	}
	return NULL;
}

static pthread_barrier_t barrier;
static pthread_rwlock_t rw = PTHREAD_RWLOCK_INITIALIZER;
static void *meets(void *p)
{
	(void)p;
	long last = 0;
	for (int i = 0; i < 20; i++)
		last += pthread_barrier_wait(&barrier) == PTHREAD_BARRIER_SERIAL_THREAD;
	return (void *)last;
}
static void *writes(void *p)
{
	(void)p;
	for (int i = 0; i < 500; i++) {
		pthread_rwlock_wrlock(&rw);
		counter++;
		pthread_rwlock_unlock(&rw);
		pthread_rwlock_rdlock(&rw);
		pthread_rwlock_unlock(&rw);
	}
	return NULL;
}

static void locks(void)
{
	pthread_t t[4];
	void *r;
	for (int i = 0; i < 4; i++)
		pthread_create(&t[i], NULL, counts, NULL);
	for (int i = 0; i < 4; i++)
		pthread_join(t[i], NULL);
	T(counter);
	counter = 0;
	for (long i = 0; i < 2; i++)
		pthread_create(&t[i], NULL, alternates, (void *)i);
	for (int i = 0; i < 2; i++)
		pthread_join(t[i], NULL);
	T(counter);
	long sum = 0;
	pthread_barrier_init(&barrier, NULL, 4);
	for (int i = 0; i < 4; i++)
		pthread_create(&t[i], NULL, meets, NULL);
	for (int i = 0; i < 4; i++) {
		pthread_join(t[i], &r);
		sum += (long)r;
	}
	T(sum);
	counter = 0;
	for (int i = 0; i < 4; i++)
		pthread_create(&t[i], NULL, writes, NULL);
	for (int i = 0; i < 4; i++)
		pthread_join(t[i], NULL);
	T(counter);
	struct timespec to;
	clock_gettime(CLOCK_REALTIME, &to);
	to.tv_sec -= 1;
	pthread_mutex_lock(&mutex);
	T(pthread_mutex_timedlock(&mutex, &to));
	T(pthread_cond_timedwait(&cond, &mutex, &to));
	T(pthread_mutex_trylock(&mutex));
	pthread_mutex_unlock(&mutex);
	sem_t s;
	sem_init(&s, 0, 1);
	T(sem_wait(&s));
	T(sem_trywait(&s));
	T(sem_timedwait(&s, &to));
	sem_post(&s);
	T(sem_wait(&s));
}

static void robust(void)
{
	struct shared { pthread_mutex_t m; sem_t s; int n; } *s;
	s = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	pthread_mutexattr_t a;
	pthread_mutexattr_init(&a);
	pthread_mutexattr_setpshared(&a, PTHREAD_PROCESS_SHARED);
	pthread_mutexattr_setrobust(&a, PTHREAD_MUTEX_ROBUST);
	pthread_mutex_init(&s->m, &a);
	T(CHILD(pthread_mutex_lock(&s->m)));
	T(pthread_mutex_lock(&s->m));
	T(pthread_mutex_consistent(&s->m));
	T(pthread_mutex_unlock(&s->m));
	/* Someone waits while the owner dies. */
	sem_init(&s->s, 1, 0);
	pid_t c = fork();
	if (!c) {
		pthread_mutex_lock(&s->m);
		sem_post(&s->s);
		ms(40);
		kill(getpid(), SIGKILL);
	}
	sem_wait(&s->s);
	T(pthread_mutex_lock(&s->m));
	pthread_mutex_consistent(&s->m);
	pthread_mutex_unlock(&s->m);
	waitpid(c, NULL, 0);
	T(CHILD(for (int i = 0; i < 1000; i++) { pthread_mutex_lock(&s->m); s->n++; pthread_mutex_unlock(&s->m); }));
	T(s->n);
	void *head = NULL;
	size_t len = 0;
	T(syscall(SYS_get_robust_list, 0, &head, &len));
	T(len);
	Y(head != NULL);
	T(syscall(SYS_set_robust_list, head, 5));
	T(syscall(SYS_get_robust_list, 999999999, &head, &len));
}

static void many(void)
{
	/* A semaphore shared by many processes. */
	struct shared { sem_t s; int n; } *s;
	s = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	sem_init(&s->s, 1, 1);
	for (int k = 0; k < 5; k++)
		if (!fork()) {
			for (int i = 0; i < 300; i++) {
				sem_wait(&s->s);
				int v = s->n;
				if (i % 50 == 0)
					sched_yield();
				s->n = v + 1;
				sem_post(&s->s);
			}
			_exit(0);
		}
	while (wait(NULL) > 0) {}
	T(s->n);
}

/* The calls of futex_waitv(2)'s family. */
struct waitv {
	uint64_t val, uaddr;
	uint32_t flags, reserved;
};
#define U32 2
#define OWN 128

static long waitv(struct waitv *w, unsigned n, unsigned flags, struct timespec *t, int clock)
{
	return syscall(449, w, n, flags, t, clock);
}
static long wake2(int *a, unsigned long mask, int n, unsigned flags)
{
	return syscall(454, a, mask, n, flags);
}
static long wait2(int *a, unsigned long val, unsigned long mask, unsigned flags, struct timespec *t, int clock)
{
	return syscall(455, a, val, mask, flags, t, clock);
}
static long requeue2(struct waitv *w, unsigned flags, int wake, int move)
{
	return syscall(456, w, flags, wake, move);
}
static struct timespec soon(int clock, int after)
{
	struct timespec t;
	clock_gettime(clock, &t);
	t.tv_nsec += after * 1000000L;
	t.tv_sec += t.tv_nsec / 1000000000;
	t.tv_nsec %= 1000000000;
	return t;
}

static int words[130];
struct many {
	struct waitv w[128];
	unsigned n;
	volatile int started;
	volatile long result;
	volatile int error;
};
static void *wait_many(void *p)
{
	struct many *m = p;
	m->started = 1;
	m->result = waitv(m->w, m->n, 0, NULL, 0);
	m->error = errno;
	return NULL;
}
static pthread_t start_many(struct many *m, unsigned n)
{
	pthread_t t;
	m->n = n, m->started = 0, m->result = -7;
	for (unsigned i = 0; i < n; i++)
		m->w[i] = (struct waitv){ 0, (uintptr_t)(words + i), U32 | OWN, 0 };
	pthread_create(&t, NULL, wait_many, m);
	while (!m->started)
		sched_yield();
	ms(20);
	return t;
}

static void vectors(void)
{
	static struct many m;
	struct timespec t = { 0, 0 };
	memset(words, 0, sizeof words);
	T(waitv(NULL, 1, 0, NULL, 0));
	T(waitv(m.w, 0, 0, NULL, 0));
	T(waitv(m.w, 129, 0, NULL, 0));
	T(waitv(m.w, 1, 1, NULL, 0));
	T(waitv((void *)8, 1, 0, NULL, 0));
	m.w[0] = (struct waitv){ 0, (uintptr_t)words, 0, 0 };
	T(waitv(m.w, 1, 0, NULL, 0));
	m.w[0].flags = U32 | 64;
	T(waitv(m.w, 1, 0, NULL, 0));
	m.w[0].flags = U32;
	m.w[0].reserved = 1;
	T(waitv(m.w, 1, 0, NULL, 0));
	m.w[0].reserved = 0;
	m.w[0].val = 1UL << 32;
	T(waitv(m.w, 1, 0, NULL, 0));
	m.w[0].val = 1;
	T(waitv(m.w, 1, 0, NULL, 0));
	m.w[0].val = 0;
	T(waitv(m.w, 1, 0, &t, CLOCK_BOOTTIME));
	T(waitv(m.w, 1, 0, &t, CLOCK_MONOTONIC));
	T(waitv(m.w, 1, 0, &t, CLOCK_REALTIME));
	T(waitv(m.w, 1, 0, (void *)8, CLOCK_REALTIME));
	t.tv_nsec = -1;
	T(waitv(m.w, 1, 0, &t, CLOCK_REALTIME));
	m.w[0].uaddr++;
	T(waitv(m.w, 1, 0, NULL, 0));
	m.w[0].uaddr = 4096;
	T(waitv(m.w, 1, 0, NULL, 0));
	for (int clock = 0; clock < 2; clock++) {
		t = soon(clock, 30);
		m.w[0] = (struct waitv){ 0, (uintptr_t)words, U32 | OWN, 0 };
		T(waitv(m.w, 1, 0, &t, clock));
		T(wait2(words, 0, ~0U, U32 | OWN, &t, clock));
	}
	/* Any of them. */
	for (unsigned i = 0; i < 128; i += 63) {
		pthread_t th = start_many(&m, 128);
		T(wake2(words + i, ~0U, 1, U32 | OWN));
		pthread_join(th, NULL);
		T(m.result);
	}
	/* Nobody is left behind. */
	T(wake2(words, ~0U, 10, U32 | OWN));
	T(wake2(words + 77, ~0U, 10, U32 | OWN));
	/* One that is not as it should be, of which others are queued already. */
	words[3] = 1;
	pthread_t th = start_many(&m, 8);
	pthread_join(th, NULL);
	T(m.result);
	T(m.error);
	words[3] = 0;
	T(wake2(words, ~0U, 10, U32 | OWN));
	/* The same word twice. */
	m.w[0] = m.w[1] = (struct waitv){ 0, (uintptr_t)words, U32 | OWN, 0 };
	m.n = 2, m.started = 0;
	pthread_create(&th, NULL, wait_many, &m);
	ms(40);
	T(wake2(words, ~0U, 1, U32 | OWN));
	pthread_join(th, NULL);
	Y(m.result == 0 || m.result == 1);
	/* Shared and private do not meet. */
	th = start_many(&m, 2);
	T(wake2(words, ~0U, 1, U32));
	T(futex(words, FUTEX_WAKE, 1, NULL, NULL, 0));
	T(futex(words + 1, FUTEX_WAKE | PRIV, 1, NULL, NULL, 0));
	pthread_join(th, NULL);
	T(m.result);
}

static void *wait_new(void *p)
{
	struct arg *a = p;
	a->started = 1;
	a->result = wait2(a->at, a->value, a->mask, a->op, NULL, 0);
	a->error = a->result ? errno : 0;
	return NULL;
}
static pthread_t start_new(struct arg *a, int flags, unsigned mask)
{
	pthread_t t;
	*a = (struct arg){ .at = words, .op = flags, .mask = mask };
	pthread_create(&t, NULL, wait_new, a);
	while (!a->started)
		sched_yield();
	ms(15);
	return t;
}

static void new_calls(void)
{
	struct arg a[3];
	pthread_t t[3];
	memset(words, 0, sizeof words);
	T(wait2(words, 0, 0, U32, NULL, 0));
	T(wait2(words, 1, ~0U, U32, NULL, 0));
	T(wait2(words, 0, 1UL << 32, U32, NULL, 0));
	T(wait2(words, 1UL << 32, 1, U32, NULL, 0));
	T(wait2(words, 0, 1, 0, NULL, 0));
	T(wait2(words, 0, 1, 1 | OWN, NULL, 0));
	T(wait2(words, 0, 1, 256 | U32, NULL, 0));
	T(wait2((void *)4096, 0, 1, U32, NULL, 0));
	T(wake2(words, 0, 1, U32));
	T(wake2(words, 1UL << 32, 1, U32));
	T(wake2(words, 1, 1, 3));
	T(wake2((void *)((char *)words + 1), 1, 0, U32));
	T(wake2(words, 1, 1, U32));
	/* By their masks; and none means none. */
	for (int i = 0; i < 3; i++)
		t[i] = start_new(a + i, U32 | OWN, 1 << i);
	T(wake2(words, ~0U, 0, U32 | OWN));
	T(wake2(words, 8, 5, U32 | OWN));
	T(wake2(words, 2, 5, U32 | OWN));
	T(wake2(words, 5, 5, U32 | OWN));
	for (int i = 0; i < 3; i++) {
		pthread_join(t[i], NULL);
		T(a[i].result);
	}
	/* From a private word to a shared one. */
	struct waitv w[2] = { { 0, (uintptr_t)words, U32 | OWN, 0 }, { 9, (uintptr_t)(words + 9), U32 | OWN, 0 } };
	T(requeue2(w, 1, 1, 1));
	T(requeue2(NULL, 0, 1, 1));
	T(requeue2((void *)8, 0, 1, 1));
	T(requeue2(w, 0, -1, 1));
	T(requeue2(w, 0, 1, -1));
	for (int i = 0; i < 3; i++)
		t[i] = start_new(a + i, U32 | OWN, ~0U);
	w[0].val = 5;
	T(requeue2(w, 0, 1, 1));
	w[0].val = 0;
	T(requeue2(w, 0, 1, 5));
	T(wake2(words, ~0U, 5, U32 | OWN));
	T(wake2(words + 9, ~0U, 5, U32 | OWN));
	for (int i = 0; i < 3; i++) {
		pthread_join(t[i], NULL);
		T(a[i].result);
	}
	w[1].flags = 7;
	T(requeue2(w, 0, 1, 1));
}

/* A signal ends it, or it is made again. */
static void new_interrupted(void)
{
	static struct many m;
	memset(words, 0, sizeof words);
	for (int restart = 0; restart < 2; restart++) {
		struct sigaction a = { .sa_handler = on, .sa_flags = restart ? SA_RESTART : 0 };
		sigaction(SIGUSR1, &a, NULL);
		pthread_t th = start_many(&m, 3);
		pthread_kill(th, SIGUSR1);
		ms(20);
		T(wake2(words + 2, ~0U, 1, U32 | OWN));
		pthread_join(th, NULL);
		T(m.result);
		if (m.result < 0)
			T(m.error);
	}
}

static const struct check all[] = {
	CHECK(errors), CHECK(waking), CHECK(requeueing), CHECK(between_processes), CHECK(interrupted),
	CHECK(priority_inheritance), CHECK(locks), CHECK(robust), CHECK(many),
	CHECK(vectors), CHECK(new_calls), CHECK(new_interrupted),
};
MAIN(all)
