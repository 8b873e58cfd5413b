/* kill(2) of many reaches those that are made meanwhile.
 *
 * A link of a chain makes the next and ends, again and again: at each moment one or two of it live. If a signal goes only
 * to those that were there when it was sent, and one has made its child since, the chain goes on. On Linux none is made
 * in between (the list's lock; fork(2) begins anew where a signal has come). */
#define AREA "killmany"
#include "check.h"

enum { CHAINS = 6 };

static double now(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec + t.tv_nsec / 1e9;
}

/* Ends by itself in the end, so that a failure leaves nothing behind. */
static void chain(double end)
{
	while (now() < end) {
		pid_t p = fork();
		if (p > 0)
			_exit(0);
		/* Too many wait to be reaped. */
		if (p < 0)
			sched_yield();
	}
	_exit(0);
}

/* Reaps until nobody is left; whether that came about. */
static int all_end(double patience)
{
	double end = now() + patience;
	for (;;) {
		pid_t p = waitpid(-1, NULL, WNOHANG);
		if (p < 0)
			return errno == ECHILD;
		if (now() > end)
			return 0;
		if (p == 0)
			usleep(200);
	}
}

/* A group of chains, which one call ends; whether it did. */
static int ended_by(int sig, int everybody, int delay)
{
	int ready[2];
	char c;
	if (pipe(ready))
		return 0;
	pid_t leader = fork();
	if (leader == 0) {
		setpgid(0, 0);
		double end = now() + 20;
		for (int i = 0; i < CHAINS; i++)
			if (fork() == 0) {
				if (write(ready[1], "", 1) != 1)
					_exit(1);
				chain(end);
			}
		for (;;)
			pause();
	}
	close(ready[1]);
	for (int i = 0; i < CHAINS; i++)
		if (read(ready[0], &c, 1) != 1)
			break;
	close(ready[0]);
	usleep(delay);
	if (kill(everybody ? -1 : -leader, sig))
		return 0;
	return all_end(8);
}

static int all_ended(int sig, int everybody)
{
	double end = now() + 0.6;
	prctl(PR_SET_CHILD_SUBREAPER, 1);
	for (int i = 0; i < 200 && now() < end; i++)
		if (!ended_by(sig, everybody, 300 + 97 * (i % 13)))
			return 0;
	return 1;
}

/* In a pid namespace, where -1 means these alone. */
static int contained(int sig, int everybody)
{
	int status;
	pid_t outer = fork();
	if (outer == 0) {
		if (unshare(CLONE_NEWPID) && unshare(CLONE_NEWUSER | CLONE_NEWPID))
			_exit(2);
		pid_t init = fork();
		if (init == 0) {
			pid_t p = fork();
			if (p == 0)
				_exit(all_ended(sig, everybody));
			while (waitpid(-1, &status, 0) != p)
				;
			_exit(WIFEXITED(status) ? WEXITSTATUS(status) : 3);
		}
		waitpid(init, &status, 0);
		_exit(WIFEXITED(status) ? WEXITSTATUS(status) : 4);
	}
	waitpid(outer, &status, 0);
	return WIFEXITED(status) ? WEXITSTATUS(status) : 5;
}

static void group(void)
{
	T(contained(SIGKILL, 0));
	T(contained(SIGTERM, 0));
}

static void everybody(void)
{
	T(contained(SIGKILL, 1));
	T(contained(SIGTERM, 1));
}

/* To all that one may not signal: no error, and nobody ends. */
static int in_vain(int sig)
{
	int status, got = 5;
	pid_t outer = fork();
	if (outer == 0) {
		if (unshare(CLONE_NEWPID))
			_exit(2);
		pid_t init = fork();
		if (init == 0) {
			pid_t other = fork();
			if (other == 0)
				for (;;)
					pause();
			pid_t p = fork();
			if (p == 0) {
				if (setuid(54321))
					_exit(3);
				int r = kill(-1, sig);
				_exit(r == 0 ? 10 : 20 + errno % 100);
			}
			while (waitpid(p, &status, 0) != p)
				;
			got = WIFEXITED(status) ? WEXITSTATUS(status) : 4;
			_exit(waitpid(other, &status, WNOHANG) == 0 ? got : 6);
		}
		waitpid(init, &status, 0);
		_exit(WIFEXITED(status) ? WEXITSTATUS(status) : 7);
	}
	waitpid(outer, &status, 0);
	return WIFEXITED(status) ? WEXITSTATUS(status) : 8;
}

static void not_allowed(void)
{
	T(in_vain(0));
	T(in_vain(SIGTERM));
}

static const struct check all[] = { CHECK(group), CHECK(everybody), CHECK(not_allowed) };
MAIN(all)
