/* Calls about the machine: its clock, ports, start and end, terminals; barriers between its CPUs; chosen numbers. */
#define AREA "privileged"
#include "check.h"
#include <linux/reboot.h>
#include <linux/sched.h>
#include <sys/timex.h>

static void clock_(void)
{
	drop_root();
	struct timex t;
	memset(&t, 0, sizeof t);
	Y(syscall(SYS_adjtimex, &t) >= 0);
	T(t.tick);
	T(t.tolerance);
	Y(t.time.tv_sec > 1000000000);
	T(t.modes);
	t.modes = ADJ_TICK;
	T(syscall(SYS_adjtimex, &t));
	t.modes = ADJ_OFFSET_SINGLESHOT;
	T(syscall(SYS_adjtimex, &t));
	t.modes = ADJ_OFFSET_SS_READ;
	Y(syscall(SYS_adjtimex, &t) >= 0);
	t.modes = 0x8000;
	T(syscall(SYS_adjtimex, &t));
	T(syscall(SYS_adjtimex, (void *)1));
	t.modes = 0;
	Y(syscall(SYS_clock_adjtime, CLOCK_REALTIME, &t) >= 0);
	T(syscall(SYS_clock_adjtime, CLOCK_MONOTONIC, &t));
	T(syscall(SYS_clock_adjtime, CLOCK_THREAD_CPUTIME_ID, &t));
	T(syscall(SYS_clock_adjtime, CLOCK_TAI, &t));
	T(syscall(SYS_clock_adjtime, 10, &t));
	T(syscall(SYS_clock_adjtime, 99, &t));
	T(syscall(SYS_clock_adjtime, -1, &t));
	T(syscall(SYS_clock_adjtime, -6, &t));
	T(syscall(SYS_clock_adjtime, 0, (void *)1));
	t.modes = ADJ_STATUS;
	T(syscall(SYS_clock_adjtime, 0, &t));
	struct timeval v = { 1, 0 };
	int zone[2] = { 0, 0 };
	T(syscall(SYS_settimeofday, &v, NULL));
	T(syscall(SYS_settimeofday, NULL, NULL));
	T(syscall(SYS_settimeofday, NULL, zone));
	T(syscall(SYS_settimeofday, (void *)1, NULL));
	T(syscall(SYS_settimeofday, &v, (void *)1));
	v.tv_usec = -1;
	T(syscall(SYS_settimeofday, &v, NULL));
	v.tv_usec = 1000001;
	T(syscall(SYS_settimeofday, &v, (void *)1));
	v.tv_usec = 1000000;
	T(syscall(SYS_settimeofday, &v, NULL));
	T(syscall(SYS_settimeofday, &v, (void *)1));
	v = (struct timeval) { -1, 0 };
	T(syscall(SYS_settimeofday, &v, NULL));
	struct timespec s = { 1, 0 };
	T(syscall(SYS_clock_settime, CLOCK_REALTIME, &s));
	T(syscall(SYS_clock_settime, CLOCK_MONOTONIC, &s));
	T(syscall(SYS_clock_settime, CLOCK_MONOTONIC, (void *)1));
	T(syscall(SYS_clock_settime, CLOCK_REALTIME, (void *)1));
	T(syscall(SYS_clock_settime, CLOCK_PROCESS_CPUTIME_ID, &s));
	s.tv_nsec = 1000000000;
	T(syscall(SYS_clock_settime, CLOCK_REALTIME, &s));
}

static void machine(void)
{
	drop_root();
	T(syscall(SYS_vhangup));
	T(syscall(SYS_reboot, 1, 2, 3, NULL));
	T(syscall(SYS_reboot, LINUX_REBOOT_MAGIC1, LINUX_REBOOT_MAGIC2, LINUX_REBOOT_CMD_RESTART, NULL));
}

static int in_namespace(unsigned cmd)
{
	struct clone_args a = { .flags = CLONE_NEWPID, .exit_signal = SIGCHLD };
	pid_t p = syscall(SYS_clone3, &a, sizeof a);
	if (p == 0) {
		if (!fork()) {
			/* Not the first process. */
			syscall(SYS_reboot, LINUX_REBOOT_MAGIC1, LINUX_REBOOT_MAGIC2B, cmd, NULL);
			_exit(9);
		}
		int st;
		wait(&st);
		_exit(errno == EINTR ? 8 : WEXITSTATUS(st));
	}
	int st = 0;
	waitpid(p, &st, 0);
	return WIFSIGNALED(st) ? 1000 + WTERMSIG(st) : WEXITSTATUS(st);
}

static void restart(void)
{
	if (geteuid())
		return;
	T(in_namespace(LINUX_REBOOT_CMD_RESTART));
	T(in_namespace(LINUX_REBOOT_CMD_RESTART2));
	T(in_namespace(LINUX_REBOOT_CMD_POWER_OFF));
	T(in_namespace(LINUX_REBOOT_CMD_HALT));
	T(in_namespace(LINUX_REBOOT_CMD_CAD_OFF));
	T(in_namespace(12345));
}

/* Barriers. */
static volatile int stop;
static void *runner(void *p)
{
	while (!stop) {}
	return p;
}

static void barriers(void)
{
#define B(cmd, flags, cpu) syscall(SYS_membarrier, cmd, flags, cpu)
	Y((B(0, 0, 0) & 0x27e) == 0x27e);
	T(B(0, 1, 0));
	T(B(512, 0, 0));
	T(B(8, 0, 0));
	T(B(32, 0, 0));
	T(B(128, 0, 0));
	T(B(2, 0, 0));
	T(B(16, 1, 0));
	T(B(16, 0, 0));
	T(B(64, 0, 0));
	T(B(256, 0, 0));
	T(B(4, 0, 0));
	T(B(512, 0, 0));
	pthread_t t;
	pthread_create(&t, NULL, runner, NULL);
	T(B(8, 0, 0));
	T(B(32, 0, 0));
	T(B(128, 0, 0));
	T(B(128, 1, 0));
	T(B(128, 1, 100000));
	T(B(128, 2, 0));
	T(B(8, 1, 0));
	T(B(1024, 0, 0));
	T(B(24, 0, 0));
	stop = 1;
	pthread_join(t, NULL);
	T(CHILD(_exit(B(512, 0, 0) >> 2)));
}

static long chosen(pid_t *ids, size_t n, uint64_t flags)
{
	struct clone_args a = { .flags = flags, .exit_signal = SIGCHLD, .set_tid = (uintptr_t)ids, .set_tid_size = n };
	pid_t p = syscall(SYS_clone3, &a, sizeof a);
	if (p == 0)
		_exit(getpid() == ids[0] ? 0 : 1);
	if (p < 0)
		return -1;
	int st;
	waitpid(p, &st, 0);
	return st;
}

static void numbers(void)
{
	pid_t ids[40] = { 31000, 31001 };
	struct clone_args a = { .set_tid = (uintptr_t)ids };
	T(syscall(SYS_clone3, &a, sizeof a));
	a = (struct clone_args) { .set_tid_size = 1 };
	T(syscall(SYS_clone3, &a, sizeof a));
	T(chosen(ids, 33, 0));
	T(chosen((pid_t *)8, 1, 0));
	if (!geteuid()) {
		/* In a namespace, whose numbers nobody else has. */
		unshare(CLONE_NEWPID);
		pid_t first = fork();
		if (!first) {
			T(chosen(ids, 1, 0));
			T(chosen(ids, 1, 0));
			ids[0] = 1;
			T(chosen(ids, 1, 0));
			ids[0] = 0;
			T(chosen(ids, 1, 0));
			ids[0] = -5;
			T(chosen(ids, 1, 0));
			ids[0] = 1 << 22;
			T(chosen(ids, 1, 0));
			ids[0] = getpid();
			T(chosen(ids, 1, 0));
			ids[0] = 77;
			T(chosen(ids, 20, 0));
			/* A new namespace: its first is process 1, its number here the second. */
			ids[0] = 2;
			T(chosen(ids, 1, CLONE_NEWPID));
			ids[0] = 1;
			ids[1] = 4321;
			T(chosen(ids, 2, CLONE_NEWPID));
			ids[0] = 500;
			drop_root();
			T(chosen(ids, 1, 0));
			_exit(0);
		}
		waitpid(first, NULL, 0);
	}
}

static void modules(void)
{
	uint64_t ids[16];
	uint32_t size = sizeof ids;
	T(syscall(461, ids, &size, 1));
	T(syscall(461, ids, (void *)1, 0));
	T(syscall(459, 0, ids, &size, 0));
	T(syscall(459, 100, ids, NULL, 0));
	T(syscall(460, 100, ids, 8, 0));
	T(syscall(460, 100, ids, 64, 1));
	T(syscall(460, 100, ids, 5000, 0));
}

static const struct check checks[] = {
	CHECK(clock_), CHECK(machine), CHECK(restart), CHECK(barriers), CHECK(numbers), CHECK(modules),
};

MAIN(checks)
