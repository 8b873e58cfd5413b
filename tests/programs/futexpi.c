/* futex(2)'s requeue to locks that inherit priorities. */
#define AREA "futexpi"
#include "check.h"
#include <linux/futex.h>

#define PRIV FUTEX_PRIVATE_FLAG

static long futex(int *a, int op, int v, const struct timespec *t, int *b, int v3)
{
	return syscall(SYS_futex, a, op, v, t, b, v3);
}

/* Condition variables that pass their waiters on to a lock. */
#define WAIT_PI (11 | PRIV)
#define REQUEUE_PI (12 | PRIV)
static int cond, lock;
static volatile int waiting, got[4];
static struct timespec *until;

static void *pi_waiter(void *p)
{
	int i = (int)(long)p;
	__sync_fetch_and_add(&waiting, 1);
	long r = futex(&cond, WAIT_PI | (until ? 256 : 0), 7, until, &lock, 0);
	got[i] = r < 0 ? errno : 1000;
	if (r == 0) {
		if ((lock & 0x3fffffff) != (int)syscall(SYS_gettid))
			got[i] = 2000;
		ms(5);
		if (!__sync_bool_compare_and_swap(&lock, (int)syscall(SYS_gettid), 0))
			futex(&lock, FUTEX_UNLOCK_PI | PRIV, 0, NULL, NULL, 0);
	}
	return NULL;
}

static void begin(pthread_t *t, int n)
{
	cond = 7;
	waiting = 0;
	for (long i = 0; i < n; i++) {
		got[i] = 0;
		pthread_create(t + i, NULL, pi_waiter, (void *)i);
		while (waiting <= i) {}
		ms(30);
	}
}

static void requeue_pi(void)
{
	pthread_t t[4];
	lock = 0;
	T(futex(&cond, WAIT_PI, 1, NULL, &lock, 0));
	T(futex(&cond, WAIT_PI, 0, NULL, &cond, 0));
	T(futex(&cond, WAIT_PI, 0, NULL, (int *)2, 0));
	T(futex(&cond, REQUEUE_PI, 1, (void *)1, &cond, 0));
	T(futex(&cond, REQUEUE_PI, 2, (void *)1, &lock, 0));
	T(futex(&cond, REQUEUE_PI, 0, (void *)1, &lock, 0));
	T(futex(&cond, REQUEUE_PI, 1, (void *)-1, &lock, 0));
	T(futex(&cond, REQUEUE_PI, 1, (void *)1, &lock, 5));
	T(futex(&cond, REQUEUE_PI, 1, (void *)1, &lock, 0));
	struct timespec past = { 1, 0 };
	T(futex(&cond, WAIT_PI | 256, 0, &past, &lock, 0));
	/* The lock is free: the first has it at once, others in turn. */
	begin(t, 3);
	T(futex(&cond, 1 | PRIV, 1, NULL, NULL, 0));
	T(futex(&cond, 3 | PRIV, 0, (void *)1, &lock, 0));
	int other = 0;
	T(futex(&cond, REQUEUE_PI, 1, (void *)1, &other, 7));
	T(futex(&cond, REQUEUE_PI, 1, (void *)1000, &lock, 7));
	for (int i = 0; i < 3; i++) {
		pthread_join(t[i], NULL);
		T(got[i]);
	}
	T(lock);
	/* It is taken: they get it after us. */
	begin(t, 2);
	T(futex(&lock, FUTEX_LOCK_PI | PRIV, 0, NULL, NULL, 0));
	T(futex(&cond, REQUEUE_PI, 1, (void *)0, &lock, 7));
	ms(20);
	T(got[0]);
	T(futex(&cond, REQUEUE_PI, 1, (void *)10, &lock, 7));
	Y(lock < 0);
	T(futex(&lock, FUTEX_UNLOCK_PI | PRIV, 0, NULL, NULL, 0));
	for (int i = 0; i < 2; i++) {
		pthread_join(t[i], NULL);
		T(got[i]);
	}
	T(lock);
	/* Time that ends before the requeue, and after it. */
	struct timespec soon;
	clock_gettime(CLOCK_REALTIME, &soon);
	soon.tv_sec += 1;
	until = &soon;
	begin(t, 1);
	pthread_join(t[0], NULL);
	T(got[0] == ETIMEDOUT);
	clock_gettime(CLOCK_REALTIME, &soon);
	soon.tv_sec += 1;
	begin(t, 1);
	T(futex(&lock, FUTEX_LOCK_PI | PRIV, 0, NULL, NULL, 0));
	T(futex(&cond, REQUEUE_PI, 1, (void *)10, &lock, 7));
	pthread_join(t[0], NULL);
	T(got[0] == ETIMEDOUT);
	T(futex(&lock, FUTEX_UNLOCK_PI | PRIV, 0, NULL, NULL, 0));
	T(lock);
	until = NULL;
	/* A waiter of another kind. */
	lock = 1 << 22;
	begin(t, 1);
	T(futex(&cond, REQUEUE_PI, 1, (void *)10, &lock, 7));
	lock = 0;
	T(futex(&cond, REQUEUE_PI, 1, (void *)10, &lock, 7));
	pthread_join(t[0], NULL);
	T(got[0]);
}

static pthread_mutex_t mutex;
static pthread_cond_t variable = PTHREAD_COND_INITIALIZER;
static int turns;

static void *turn(void *p)
{
	pthread_mutex_lock(&mutex);
	for (int i = 0; i < 200; i++) {
		while (turns % 4 != (long)p)
			pthread_cond_wait(&variable, &mutex);
		turns++;
		pthread_cond_broadcast(&variable);
	}
	pthread_mutex_unlock(&mutex);
	return NULL;
}

/* glibc's condition variables with a lock that inherits priorities. */
static void pi_conditions(void)
{
	pthread_mutexattr_t a;
	pthread_mutexattr_init(&a);
	T(pthread_mutexattr_setprotocol(&a, PTHREAD_PRIO_INHERIT));
	pthread_mutex_init(&mutex, &a);
	pthread_t t[4];
	for (long i = 0; i < 4; i++)
		pthread_create(t + i, NULL, turn, (void *)i);
	for (int i = 0; i < 4; i++)
		pthread_join(t[i], NULL);
	T(turns);
}

static const struct check all[] = {
	CHECK(requeue_pi), CHECK(pi_conditions),
};
MAIN(all)
