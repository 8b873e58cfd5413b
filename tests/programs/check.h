/* Small checks whose output can be compared between Linux and a sandbox, byte by byte.
 *
 * A program is a list of checks. Each runs in a child process of its own, in an empty directory, so that
 * one that crashes or hangs costs only itself. It prints lines `area.check expression: result`, and results
 * that are the same on every run: values, errnos, bytes; never pids, addresses or times.
 *
 *   T(e)         the value of e, or -1 and its errno
 *   Y(e)         whether e holds: yes or no
 *   S(e, n)      n bytes at e, escaped
 *   CHILD(...)   runs statements in a child; gives its exit code, or 1000 and the signal that killed it
 */
#ifndef CHECK_H
#define CHECK_H
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <limits.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <ucontext.h>
#include <unistd.h>

static const char *current = "";
static int out_fd = 1;

__attribute__((format(printf, 2, 3), unused)) static void say(const char *what, const char *fmt, ...)
{
	char line[2048];
	int n = snprintf(line, sizeof line, "%s.%s %s: ", AREA, current, what);
	va_list ap;
	va_start(ap, fmt);
	n += vsnprintf(line + n, sizeof line - n - 1, fmt, ap);
	va_end(ap);
	line[n++] = '\n';
	if (write(out_fd, line, n) != n)
		_exit(99);
}

__attribute__((unused)) static void report(const char *what, long r, int e)
{
	if (r == -1 && e)
		say(what, "-1 %s", strerrorname_np(e) ? strerrorname_np(e) : "?");
	else
		say(what, "%ld", r);
}

__attribute__((unused)) static void bytes(const char *what, const void *p, long n)
{
	char buf[1024];
	const unsigned char *b = p;
	int at = 0;
	for (long i = 0; i < n && at < 1000; i++)
		at += sprintf(buf + at, b[i] >= 32 && b[i] < 127 && b[i] != '\\' ? "%c" : "\\x%02x", b[i]);
	buf[at] = 0;
	say(what, "\"%s\"", buf);
}

#define T(e) do { errno = 0; long r_ = (long)(e); int e_ = errno; report(#e, r_, e_); } while (0)
#define Y(e) say(#e, "%s", (e) ? "yes" : "no")
#define S(e, n) bytes(#e, e, n)
#define CHILD(...) ({ \
	pid_t p_ = fork(); \
	if (p_ == 0) { __VA_ARGS__; _exit(0); } \
	int st_ = 0; \
	while (waitpid(p_, &st_, 0) < 0 && errno == EINTR) {} \
	WIFEXITED(st_) ? WEXITSTATUS(st_) : 1000 + WTERMSIG(st_); })

struct check {
	const char *name;
	void (*run)(void);
};

#define CHECK(n) { #n, n }

__attribute__((unused)) static void put(const char *path, const char *text)
{
	int fd = open(path, O_CREAT | O_TRUNC | O_WRONLY, 0644);
	if (fd < 0 || write(fd, text, strlen(text)) != (ssize_t)strlen(text))
		say("put", "failed: %s", strerrorname_np(errno));
	close(fd);
}

__attribute__((unused)) static void ms(int n)
{
	struct timespec t = { n / 1000, n % 1000 * 1000000L };
	while (nanosleep(&t, &t) && errno == EINTR) {}
}

__attribute__((unused)) static long long clock_ms(clockid_t c)
{
	struct timespec t = { 0, 0 };
	clock_gettime(c, &t);
	return t.tv_sec * 1000LL + t.tv_nsec / 1000000;
}

/* Uses so much CPU time. */
__attribute__((unused)) static void spin(int for_ms)
{
	long long end = clock_ms(CLOCK_THREAD_CPUTIME_ID) + for_ms;
	while (clock_ms(CLOCK_THREAD_CPUTIME_ID) < end)
		for (volatile int i = 0; i < 100000; i++) {}
}

__attribute__((unused)) static long long now_ms(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1000LL + t.tv_nsec / 1000000;
}

/* Gives up root, where we are root: what follows is the same for everyone. */
__attribute__((unused)) static void drop_root(void)
{
	if (geteuid() != 0)
		return;
	if (syscall(SYS_setgroups, 0, NULL) || syscall(SYS_setresgid, 65534, 65534, 65534) ||
	    syscall(SYS_setresuid, 65534, 65534, 65534))
		say("drop_root", "failed: %s", strerrorname_np(errno));
}

/* One write of a text to a file that there is: 0, or -1 with errno. */
/* Where settings may be changed: on Linux they are the machine's, and what it would say is written down. */
#include <sys/utsname.h>
__attribute__((unused)) static int may_change(void)
{
	struct utsname u;
	return !uname(&u) && strstr(u.release, "cloister") != NULL;
}

static int set_to(const char *path, const char *text)
{
	int fd = open(path, O_WRONLY);
	int r = fd < 0 ? -1 : write(fd, text, strlen(text)), e = errno;
	if (fd >= 0)
		close(fd);
	errno = e;
	return r;
}

__attribute__((unused)) static int write_text(const char *path, const char *text)
{
	return set_to(path, text) < 0 ? -1 : 0;
}

static int remove_one(const char *p, const struct stat *s, int kind, struct FTW *f)
{
	(void)s, (void)kind, (void)f;
	return remove(p);
}

static int run_all(int argc, char **argv, const struct check *list, size_t count)
{
	char top[] = "/tmp/check-XXXXXX";
	close_range(3, ~0U, 0);
	umask(022);
	for (int s = 1; s < 32; s++)
		signal(s, SIG_DFL);
	sigset_t none;
	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
	/* Root without groups, so that a user's groups make no difference. */
	if (!mkdtemp(top) || chdir(top)) {
		perror("mkdtemp");
		return 2;
	}
	chmod(top, 0755);
	for (size_t i = 0; i < count; i++) {
		if (argc > 1) {
			int wanted = 0;
			for (int a = 1; a < argc; a++)
				wanted |= !strcmp(argv[a], list[i].name);
			if (!wanted)
				continue;
		}
		current = list[i].name;
		mkdir(current, 0777);
		chmod(current, 0777);
		pid_t p = fork();
		if (p == 0) {
			if (chdir(current))
				_exit(98);
			alarm(20);
			list[i].run();
			_exit(0);
		}
		int st = 0;
		if (p < 0 || waitpid(p, &st, 0) != p)
			say("harness", "cannot run: %s", strerrorname_np(errno));
		else if (WIFSIGNALED(st))
			say("harness", "killed by signal %d", WTERMSIG(st));
		else if (WEXITSTATUS(st))
			say("harness", "exit status %d", WEXITSTATUS(st));
		nftw(current, remove_one, 16, FTW_DEPTH | FTW_PHYS);
	}
	if (chdir("/") || nftw(top, remove_one, 16, FTW_DEPTH | FTW_PHYS)) {}
	return 0;
}

#define MAIN(list) \
	int main(int argc, char **argv) { return run_all(argc, argv, list, sizeof list / sizeof *list); }
#endif
