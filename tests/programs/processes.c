/* Processes: fork, exec, wait, groups, sessions, limits, threads. */
#define AREA "processes"
#include "check.h"
#include <sys/file.h>
#include <linux/sched.h>
#include <sys/personality.h>
#include <sys/utsname.h>
#include <sys/times.h>
#ifndef P_PIDFD
#define P_PIDFD 3
#endif

static void exits(void)
{
	T(CHILD(_exit(0)));
	T(CHILD(_exit(7)));
	T(CHILD(_exit(256 + 3)));
	T(CHILD(_exit(-1)));
	T(CHILD(syscall(SYS_exit, 9)));
	T(CHILD(pthread_exit(NULL)));
	T(CHILD(kill(getpid(), SIGKILL)));
	int st = 0x55;
	pid_t p = fork();
	if (!p)
		_exit(5);
	T(waitpid(p, &st, 0) == p);
	T(st);
	T(waitpid(p, &st, 0));
}

static void waiting(void)
{
	int st, go[2];
	char b;
	pipe(go);
	T(waitpid(-1, &st, 0));
	T(waitpid(-1, &st, WNOHANG));
	T(waitpid(1, &st, WNOHANG));
	T(waitpid(-1, &st, 0x1000));
	T(waitpid(INT_MIN, &st, 0));
	pid_t p = fork();
	if (!p) {
		read(go[0], &b, 1);
		_exit(4);
	}
	T(waitpid(p, &st, WNOHANG));
	T(waitpid(0, &st, WNOHANG));
	T(waitpid(-getpgrp(), &st, WNOHANG));
	T(waitpid(p + 100000, &st, WNOHANG));
	write(go[1], "x", 1);
	siginfo_t i;
	memset(&i, 0, sizeof i);
	T(waitid(P_PID, p, &i, WEXITED | WNOWAIT));
	T(i.si_code * 1000 + i.si_status);
	Y(i.si_pid == p);
	T(i.si_signo);
	T(kill(p, 0));
	T(kill(p, SIGTERM));
	T(waitid(P_ALL, 0, &i, WEXITED));
	T(i.si_status);
	T(waitid(P_ALL, 0, &i, WEXITED));
	T(waitid(P_ALL, 0, &i, 0));
	T(waitid(77, 0, &i, WEXITED));
	T(waitid(P_PID, 0, &i, WEXITED));
	T(kill(p, 0));
	struct rusage u;
	p = fork();
	if (!p) {
		for (volatile int n = 0; n < 30000000; n++) {}
		_exit(0);
	}
	T(wait4(p, &st, 0, &u) == p);
	Y(u.ru_utime.tv_sec * 1000000 + u.ru_utime.tv_usec + u.ru_stime.tv_usec > 1000);
	p = fork();
	if (!p)
		_exit(1);
	memset(&i, 1, sizeof i);
	ms(20);
	T(waitid(P_PID, p, &i, WSTOPPED | WNOHANG));
	T(i.si_signo);
	T(wait(NULL) == p);
}

static void many(void)
{
	int sum = 0, st;
	pid_t p[20];
	for (int i = 0; i < 20; i++)
		if (!(p[i] = fork()))
			_exit(i);
	for (int i = 19; i >= 0; i--) {
		waitpid(p[i], &st, 0);
		sum += WEXITSTATUS(st) == i;
	}
	T(sum);
	for (int i = 0; i < 20; i++)
		if (!fork())
			_exit(i);
	sum = 0;
	while (wait(&st) > 0)
		sum += WEXITSTATUS(st);
	T(sum);
	T(CHILD(_exit(CHILD(_exit(CHILD(_exit(3)) + 1)) + 1)));
}

static void inherited(void)
{
	char b[8] = "";
	int fd = open("f", O_CREAT | O_RDWR, 0644);
	write(fd, "abcdef", 6);
	lseek(fd, 0, SEEK_SET);
	T(CHILD(read(fd, b, 2)));
	T(read(fd, b, 2));
	S(b, 2);
	T(CHILD(umask(0)));
	T(umask(022));
	T(CHILD(chdir("/")));
	T(access("f", F_OK));
	T(CHILD(close(fd)));
	T(lseek(fd, 0, SEEK_CUR));
	T(CHILD(setpriority(PRIO_PROCESS, 0, 5); _exit(CHILD(_exit(getpriority(PRIO_PROCESS, 0))))));
	prctl(PR_SET_NAME, "a-name");
	T(CHILD(char n[16]; prctl(PR_GET_NAME, n); _exit(!strcmp(n, "a-name"))));
	pid_t me = getpid();
	T(CHILD(_exit(getppid() == me && getpid() != me && gettid() == getpid())));
	T(CHILD(_exit(getpgrp() == getpgid(me) && getsid(0) == getsid(me))));
}

static void orphans(void)
{
	int p[2], q[2];
	char b;
	pipe(p), pipe(q);
	pid_t me = getpid();
	T(prctl(PR_SET_CHILD_SUBREAPER, 1));
	int on = 0;
	T(prctl(PR_GET_CHILD_SUBREAPER, &on));
	T(on);
	if (!fork()) {
		if (!fork()) {
			read(q[0], &b, 1);
			b = getppid() == me;
			write(p[1], &b, 1);
			_exit(6);
		}
		_exit(5);
	}
	int st;
	wait(&st);
	T(WEXITSTATUS(st));
	write(q[1], "x", 1);
	read(p[0], &b, 1);
	T(b);
	wait(&st);
	T(WEXITSTATUS(st));
	/* The signal at the parent's death. */
	if (!fork()) {
		if (!fork()) {
			prctl(PR_SET_PDEATHSIG, SIGUSR1);
			int s = 0;
			prctl(PR_GET_PDEATHSIG, &s);
			b = s;
			write(p[1], &b, 1);
			for (;;)
				pause();
		}
		read(q[0], &b, 1);
		_exit(0);
	}
	read(p[0], &b, 1);
	T(b);
	write(q[1], "x", 1);
	wait(&st);
	wait(&st);
	T(WIFSIGNALED(st) ? WTERMSIG(st) : -1);
}

static void script(const char *name, const char *text)
{
	put(name, text);
	chmod(name, 0755);
}

static long run(const char *path, char **argv, char **envp)
{
	pid_t p = fork();
	if (!p) {
		execve(path, argv, envp);
		_exit(errno + 100);
	}
	int st;
	waitpid(p, &st, 0);
	return WIFEXITED(st) ? WEXITSTATUS(st) : 1000 + WTERMSIG(st);
}

static void executing(void)
{
	char *sh[] = { "sh", "-c", "exit $#", "a", "b", "c", NULL };
	char *env[] = { "FOO=17", NULL };
	char *get[] = { "sh", "-c", "exit $FOO", NULL };
	char *none[] = { "x", NULL };
	T(run("/bin/sh", sh, NULL));
	T(run("/bin/sh", get, env));
	T(run("missing", none, NULL) - 100);
	T(run("", none, NULL) - 100);
	T(run("/", none, NULL) - 100);
	T(run("/etc/passwd/x", none, NULL) - 100);
	put("plain", "not a program");
	T(run("plain", none, NULL) - 100);
	chmod("plain", 0755);
	T(run("plain", none, NULL) - 100);
	put("empty", "");
	chmod("empty", 0755);
	T(run("empty", none, NULL) - 100);
	script("s", "#!/bin/sh\nexit 21\n");
	T(run("s", none, NULL));
	script("args", "#!/bin/sh -e\nfalse\nexit 1\n");
	T(run("args", none, NULL));
	script("bad", "#!/no/such\nexit 21\n");
	T(run("bad", none, NULL) - 100);
	script("dir", "#!/\n");
	T(run("dir", none, NULL) - 100);
	script("blank", "#!  \n");
	T(run("blank", none, NULL) - 100);
	char outer[300], inner[300], b[256];
	getcwd(b, sizeof b);
	snprintf(inner, sizeof inner, "#!%s/s\n", b);
	script("nested", inner);
	T(run("nested", none, NULL));
	snprintf(outer, sizeof outer, "#!%s/loop\n", b);
	script("loop", outer);
	T(run("loop", none, NULL) - 100);
	symlink("s", "l");
	T(run("l", none, NULL));
	char *no[] = { NULL };
	T(run("s", no, NULL));
	T(run((char *)8, none, NULL) - 100);
	T(run("s", (char **)8, NULL) - 100);
	put("elf", "\177ELF\2\1\1");
	chmod("elf", 0755);
	T(run("elf", none, NULL) - 100);
	T(CHILD(int fd = open("/bin/sh", O_RDONLY); fexecve(fd, sh, env); _exit(99)));
	T(CHILD(int fd = open("s", O_RDONLY | O_CLOEXEC); fexecve(fd, none, env); _exit(errno)));
	T(CHILD(syscall(SYS_execveat, AT_FDCWD, "l", none, env, AT_SYMLINK_NOFOLLOW); _exit(errno)));
	int w = open("s", O_WRONLY);
	T(run("s", none, NULL) - 100);
	close(w);
}

static void big_arguments(void)
{
	static char *many[20001];
	char *one = malloc(200000);
	memset(one, 'a', 199999);
	one[131071] = 0;
	char *a[] = { "sh", "-c", "exit ${#0}", one, NULL };
	T(run("/bin/sh", a, NULL));
	one[131071] = 'a', one[131072] = 0;
	T(run("/bin/sh", a, NULL) - 100);
	many[0] = "sh", many[1] = "-c", many[2] = "test $# = 19996; exit $?";
	for (int i = 3; i < 20000; i++)
		many[i] = "x";
	T(run("/bin/sh", many, NULL));
	one[100000] = 0;
	for (int i = 3; i < 200; i++)
		many[i] = one;
	T(run("/bin/sh", many, NULL) - 100);
}

/* Field n, from 3 on, of a process's or a thread's stat. */
static long stat_field(const char *path, int n)
{
	char b[4096];
	int fd = open(path, O_RDONLY), k = read(fd, b, sizeof b - 1);
	close(fd);
	b[k > 0 ? k : 0] = 0;
	char *at = strrchr(b, ')');
	for (int i = 2; at && i < n; i++)
		at = strchr(at + 1, ' ');
	return at ? atol(at) : -100;
}

static void *execs_later(void *p)
{
	/* Two ticks after the main thread. */
	usleep(30000);
	prctl(PR_SET_TIMERSLACK, 12345);
	execv("/bin/sh", p);
	return p;
}

static void over_exec(void)
{
	int fd = open("f", O_CREAT | O_RDWR, 0644), ce = open("f", O_RDWR | O_CLOEXEC);
	char cmd[256];
	char *a[] = { "sh", "-c", cmd, NULL };
	sprintf(cmd, "test -e /proc/self/fd/%d", fd);
	T(run("/bin/sh", a, NULL));
	sprintf(cmd, "test -e /proc/self/fd/%d", ce);
	T(run("/bin/sh", a, NULL));
	pid_t p = fork();
	if (!p) {
		sprintf(cmd, "test $$ = %d", getpid());
		execv("/bin/sh", a);
	}
	int st;
	waitpid(p, &st, 0);
	T(WEXITSTATUS(st));
	sprintf(cmd, "read x < /proc/$$/comm; test $x = sh");
	prctl(PR_SET_NAME, "other");
	T(run("/bin/sh", a, NULL));
	sprintf(cmd, "test $(umask) = 0022");
	T(run("/bin/sh", a, NULL));
	/* exec by a thread that is not the main one: the pid stays. */
	T(CHILD(
		sprintf(cmd, "test $$ = %d && exit 33", getpid());
		pthread_t t;
		void *exec(void *v) { execv("/bin/sh", v); return NULL; }
		pthread_create(&t, NULL, exec, a);
		for (;;) pause()));
	/* Nor does the time at which it began change; what the thread has set for itself stays. */
	T(CHILD(
		sprintf(cmd, "read x < /proc/$$/stat; set -- ${x##*)}; test ${20} = %ld || exit 34; "
			"test -e /proc/$$/timerslack_ns || exit 35; read x < /proc/$$/timerslack_ns; test $x = 12345 && exit 36",
			stat_field("/proc/self/stat", 22));
		pthread_t t;
		pthread_create(&t, NULL, execs_later, a);
		for (;;) pause()));
}

static void vforked(void)
{
	volatile int x = 0;
	int st;
	pid_t p = vfork();
	if (!p) {
		x = 5;
		_exit(3);
	}
	T(x);
	waitpid(p, &st, 0);
	T(WEXITSTATUS(st));
	p = vfork();
	if (!p) {
		execl("/bin/sh", "sh", "-c", "exit 8", NULL);
		_exit(99);
	}
	waitpid(p, &st, 0);
	T(WEXITSTATUS(st));
	p = vfork();
	if (!p) {
		execl("missing", "x", NULL);
		x = errno;
		_exit(1);
	}
	T(x == ENOENT);
	waitpid(p, &st, 0);
}

static char child_stack[65536] __attribute__((aligned(16)));
static int shared_value, shared_fd;

static int clone_child(void *p)
{
	shared_value += *(int *)p;
	close(shared_fd);
	return 11;
}

static void cloning(void)
{
	int st, n = 5;
	char *top = child_stack + sizeof child_stack;
	shared_fd = open("f", O_CREAT | O_RDWR, 0644);
	pid_t p = clone(clone_child, top, CLONE_VM | SIGCHLD, &n);
	waitpid(p, &st, 0);
	T(WEXITSTATUS(st));
	T(shared_value);
	T(fcntl(shared_fd, F_GETFD));
	p = clone(clone_child, top, CLONE_VM | CLONE_FILES | SIGCHLD, &n);
	waitpid(p, &st, 0);
	T(shared_value);
	T(fcntl(shared_fd, F_GETFD));
	p = clone(clone_child, top, SIGCHLD, &n);
	waitpid(p, &st, 0);
	T(shared_value);
	p = clone(clone_child, top, CLONE_VM, &n);
	T(waitpid(p, &st, 0));
	T(waitpid(p, &st, __WCLONE) == p);
	T(clone(clone_child, top, CLONE_SIGHAND | SIGCHLD, &n));
	T(clone(clone_child, top, CLONE_THREAD | SIGCHLD, &n));
	T(clone(clone_child, top, CLONE_FS | CLONE_NEWNS | SIGCHLD, &n));
	int tid = 0;
	p = clone(clone_child, top, CLONE_PARENT_SETTID | SIGCHLD, &n, &tid);
	Y(tid == p);
	waitpid(p, &st, 0);
	struct clone_args c = { .exit_signal = SIGCHLD };
	p = syscall(SYS_clone3, &c, sizeof c);
	if (!p)
		_exit(12);
	waitpid(p, &st, 0);
	T(WEXITSTATUS(st));
	int pidfd = -1;
	c.flags = CLONE_PIDFD, c.pidfd = (long)&pidfd;
	p = syscall(SYS_clone3, &c, sizeof c);
	if (!p)
		_exit(13);
	struct pollfd pf = { pidfd, POLLIN };
	T(poll(&pf, 1, 5000));
	siginfo_t i;
	T(waitid(P_PIDFD, pidfd, &i, WEXITED));
	T(i.si_status);
	T(syscall(SYS_clone3, &c, 8));
	c.flags = 1ULL << 60;
	T(syscall(SYS_clone3, &c, sizeof c));
	c.flags = 0, c.exit_signal = 1000;
	T(syscall(SYS_clone3, &c, sizeof c));
	/* What the parent is told by is field 38. */
	c.exit_signal = SIGUSR1;
	signal(SIGUSR1, SIG_IGN);
	p = syscall(SYS_clone3, &c, sizeof c);
	if (!p)
		pause();
	char path[64];
	sprintf(path, "/proc/%d/stat", p);
	T(stat_field(path, 38));
	kill(p, SIGKILL);
	waitpid(p, &st, __WALL);
	T(stat_field("/proc/self/stat", 38));
}

static void pidfds(void)
{
	siginfo_t i;
	pid_t p = fork();
	if (!p)
		for (;;)
			pause();
	int fd = syscall(SYS_pidfd_open, p, 0);
	Y(fd >= 0);
	T(fcntl(fd, F_GETFD));
	struct pollfd pf = { fd, POLLIN };
	T(poll(&pf, 1, 0));
	T(syscall(SYS_pidfd_send_signal, fd, 0, NULL, 0));
	T(syscall(SYS_pidfd_send_signal, fd, SIGTERM, NULL, 0));
	T(poll(&pf, 1, 5000));
	T(pf.revents & POLLIN);
	T(waitid(P_PIDFD, fd, &i, WEXITED));
	T(i.si_status);
	T(syscall(SYS_pidfd_send_signal, fd, SIGTERM, NULL, 0));
	T(waitid(P_PIDFD, fd, &i, WEXITED));
	T(syscall(SYS_pidfd_open, 999999999, 0));
	T(syscall(SYS_pidfd_open, -1, 0));
	T(syscall(SYS_pidfd_open, getpid(), 0x1000));
	T(syscall(SYS_pidfd_send_signal, 0, SIGTERM, NULL, 0));
	int self = syscall(SYS_pidfd_open, getpid(), 0), f = open("f", O_CREAT | O_RDWR, 0644);
	int copy = syscall(SYS_pidfd_getfd, self, f, 0);
	T(write(copy, "x", 1));
	T(lseek(f, 0, SEEK_CUR));
	T(syscall(SYS_pidfd_getfd, self, 99, 0));
}

/* PIDFD_GET_INFO (Linux 6.13, the status 6.15). */
struct pidfd_told {
	unsigned long mask, cgroup;
	int pid, tgid, ppid;
	unsigned owner[8];
	int code, more[20];
};
#define GET_INFO(size) _IOC(_IOC_READ | _IOC_WRITE, 0xff, 11, size)
static void pidfd_info(void)
{
	struct pidfd_told i = { 0 };
	pid_t p = fork();
	if (!p)
		for (;;)
			pause();
	int fd = syscall(SYS_pidfd_open, p, 0);
	if (ioctl(fd, GET_INFO(64), &i))
		goto out;
	/* Control groups and core dumps are left out. */
	T(i.mask & 3);
	Y(i.pid == p && i.tgid == p && i.ppid == getpid());
	Y(i.owner[0] == getuid() && i.owner[3] == getegid() && i.owner[6] == geteuid());
	T(i.code);
	i.mask = 8;
	T(ioctl(fd, GET_INFO(64), &i));
	T(i.mask & 0xb);
	T(ioctl(fd, GET_INFO(56), &i));
	T(ioctl(fd, _IOC(_IOC_READ, 0xff, 11, 64), &i));
	T(ioctl(fd, GET_INFO(64), NULL));
	T(ioctl(fd, GET_INFO(64), 8));
	memset(&i, 0xee, sizeof i);
	T(ioctl(fd, GET_INFO(sizeof i), &i));
	T(i.more[19]);
	kill(p, SIGTERM);
	siginfo_t s;
	waitid(P_PID, p, &s, WEXITED | WNOWAIT);
	i.mask = 8;
	T(ioctl(fd, GET_INFO(64), &i));
	T(i.mask & 0xb);
	T(CHILD(unshare(CLONE_NEWPID); if (!fork()) _exit(ioctl(fd, GET_INFO(64), &i) != -1);
		int r; wait(&r); _exit(WEXITSTATUS(r))));
	waitpid(p, NULL, 0);
	i.mask = 8;
	T(ioctl(fd, GET_INFO(64), &i));
	T(i.mask & 0xb);
	T(i.code);
	T(i.pid);
	i.mask = 3;
	T(ioctl(fd, GET_INFO(64), &i));
	return;
out:
	kill(p, SIGKILL);
	waitpid(p, NULL, 0);
}

/* waitid(2) of a pidfd that does not wait. */
static void pidfd_nonblocking(void)
{
	siginfo_t i = { 0 };
	pid_t p = fork();
	if (!p)
		for (;;)
			pause();
	int fd = syscall(SYS_pidfd_open, p, O_NONBLOCK);
	T(waitid(P_PIDFD, fd, &i, WEXITED));
	T(waitid(P_PIDFD, fd, &i, WEXITED | WNOHANG));
	T(i.si_pid);
	kill(p, SIGTERM);
	T(waitid(P_PID, p, &i, WEXITED | WNOWAIT));
	T(waitid(P_PIDFD, fd, &i, WEXITED));
	T(i.si_status);
	T(waitid(P_PIDFD, fd, &i, WEXITED));
}

/* A child's timer slack, and what it goes back to. */
static void slack(void)
{
	T(prctl(PR_GET_TIMERSLACK));
	T(prctl(PR_SET_TIMERSLACK, 70000));
	T(CHILD(_exit(prctl(PR_GET_TIMERSLACK) / 1000)));
	T(CHILD(prctl(PR_SET_TIMERSLACK, 9000); prctl(PR_SET_TIMERSLACK, 0); _exit(prctl(PR_GET_TIMERSLACK) / 1000)));
	T(prctl(PR_SET_TIMERSLACK, 0));
	T(prctl(PR_GET_TIMERSLACK));
	T(prctl(PR_SET_THP_DISABLE, 0, 1, 0, 0));
	T(prctl(PR_GET_THP_DISABLE, 1, 1, 0, 0));
	T(prctl(PR_GET_THP_DISABLE, 0, 0, 0, 0));
}

static void groups(void)
{
	int p[2];
	char b;
	pipe(p);
	T(CHILD(_exit(setsid() == getpid() && getsid(0) == getpid() && getpgrp() == getpid())));
	T(CHILD(setpgid(0, 0); _exit(setsid() == -1 && errno == EPERM)));
	T(CHILD(_exit(setpgid(0, 0) == 0 && getpgid(0) == getpid())));
	T(CHILD(setsid(); _exit(setpgid(0, 0) == -1 && errno == EPERM)));
	T(setpgid(0, -1));
	T(setpgid(999999999, 0));
	T(setpgid(0, 999999999));
	T(getpgid(999999999));
	T(getsid(999999999));
	pid_t c = fork();
	if (!c) {
		read(p[0], &b, 1);
		_exit(0);
	}
	T(setpgid(c, c));
	Y(getpgid(c) == c);
	T(kill(-c, SIGTERM));
	int st;
	T(waitpid(-c, &st, 0) == c);
	T(WTERMSIG(st));
	T(kill(-c, SIGTERM));
	c = fork();
	if (!c) {
		setpgid(0, 0);
		write(p[1], "x", 1);
		execl("/bin/sh", "sh", "-c", "read x", NULL);
	}
	read(p[0], &b, 1);
	ms(100);
	T(setpgid(c, getpgrp()));
	kill(c, SIGKILL);
	waitpid(c, &st, 0);
	signal(SIGUSR1, SIG_IGN);
	T(CHILD(setpgid(0, 0); signal(SIGUSR1, SIG_DFL); kill(0, SIGUSR1)));
}

static void limits(void)
{
	struct rlimit r = { 0, 0 }, o;
	T(getrlimit(RLIMIT_NOFILE, &r));
	Y(r.rlim_cur <= r.rlim_max && r.rlim_cur > 10);
	T(getrlimit(99, &r));
	r.rlim_cur = 20;
	T(setrlimit(RLIMIT_NOFILE, &r));
	int n = 0;
	while (open("/dev/null", O_RDONLY) >= 0)
		n++;
	Y(errno == EMFILE);
	T(n);
	T(dup(0));
	T(dup2(0, 25));
	T(pipe((int[2]){ 0, 0 }));
	T(fcntl(0, F_DUPFD, 25));
	T(CHILD(struct rlimit c; getrlimit(RLIMIT_NOFILE, &c); _exit(c.rlim_cur)));
	close_range(3, ~0U, 0);
	r.rlim_cur = 5, r.rlim_max = 4;
	T(setrlimit(RLIMIT_NOFILE, &r));
	T(prlimit(0, RLIMIT_FSIZE, NULL, &o));
	r.rlim_cur = 10, r.rlim_max = RLIM_INFINITY;
	/* Nothing is printed under the limit: our own output may be a file. */
	long got[6];
	int e[6];
	int fd = open("f", O_CREAT | O_RDWR, 0644);
	signal(SIGXFSZ, SIG_IGN);
	prlimit(0, RLIMIT_FSIZE, &r, NULL);
	got[0] = write(fd, "0123456789abc", 13), e[0] = errno;
	got[1] = write(fd, "x", 1), e[1] = errno;
	got[2] = pwrite(fd, "x", 1, 100), e[2] = errno;
	got[3] = ftruncate(fd, 100), e[3] = errno;
	got[4] = ftruncate(fd, 5), e[4] = errno;
	got[5] = CHILD(signal(SIGXFSZ, SIG_DFL); pwrite(fd, "x", 1, 100));
	prlimit(0, RLIMIT_FSIZE, &o, NULL);
	for (int i = 0; i < 6; i++)
		report("file size", got[i], e[i]);
	T(CHILD(drop_root(); struct rlimit h; getrlimit(RLIMIT_CORE, &h); h.rlim_max = h.rlim_cur = 0;
		setrlimit(RLIMIT_CORE, &h); h.rlim_max = 100; _exit(setrlimit(RLIMIT_CORE, &h) == -1 && errno == EPERM)));
	T(prlimit(999999999, RLIMIT_FSIZE, NULL, &o));
}

static void status_line(const char *name)
{
	char line[200];
	FILE *f = fopen("/proc/self/status", "r");
	while (f && fgets(line, sizeof line, f))
		if (!strncmp(line, name, strlen(name))) {
			line[strcspn(line, "\n")] = 0;
			say("status", "%s", line);
		}
	fclose(f);
}

static void priorities(void)
{
	T(getpriority(PRIO_PROCESS, 0));
	T(setpriority(PRIO_PROCESS, 0, 3));
	T(getpriority(PRIO_PROCESS, 0));
	T(setpriority(PRIO_PROCESS, 0, 100));
	T(getpriority(PRIO_PROCESS, 0));
	T(CHILD(drop_root(); _exit(setpriority(PRIO_PROCESS, 0, 0) == -1 ? errno : 0)));
	T(getpriority(9, 0));
	T(getpriority(PRIO_PROCESS, 999999999));
	T(sched_getscheduler(0));
	T(sched_get_priority_max(SCHED_FIFO));
	T(sched_get_priority_min(SCHED_OTHER));
	T(sched_get_priority_max(99));
	struct sched_param s = { 0 };
	/* What is looked at first. */
	T(sched_setscheduler(0, SCHED_OTHER, NULL));
	T(sched_setscheduler(0, -1, (void *)8));
	T(sched_setscheduler(0, SCHED_OTHER, (void *)8));
	T(sched_setscheduler(-1, SCHED_OTHER, &s));
	T(sched_setscheduler(999999, SCHED_OTHER, NULL));
	T(sched_setscheduler(999999, SCHED_OTHER, &s));
	T(sched_setparam(0, NULL));
	T(sched_setparam(-1, &s));
	T(sched_getparam(0, NULL));
	T(sched_getparam(-1, &s));
	T(sched_getparam(999999, NULL));
	T(sched_getparam(999999, (void *)8));
	T(sched_getparam(0, (void *)8));
	T(sched_setscheduler(0, SCHED_BATCH, &s));
	T(sched_getscheduler(0));
	T(sched_getparam(0, &s));
	T(sched_setscheduler(0, SCHED_IDLE | SCHED_RESET_ON_FORK, &s));
	T(sched_getscheduler(0));
	char line[4096] = "";
	int fd = open("/proc/self/stat", O_RDONLY);
	read(fd, line, sizeof line - 1);
	close(fd);
	char *at = strrchr(line, ')');
	for (int k = 2; at && k < 41; k++)
		at = strchr(at + 1, ' ');
	T(at ? atoi(at) : -1);
	T(sched_setparam(0, &s));
	T(sched_getscheduler(0));
	T(CHILD(_exit(sched_getscheduler(0))));
	T(CHILD(drop_root(); _exit(sched_setscheduler(0, SCHED_IDLE | SCHED_RESET_ON_FORK, &s) ? errno : 0)));
	T(CHILD(setpriority(PRIO_PROCESS, 0, -5); sched_setscheduler(0, SCHED_BATCH | SCHED_RESET_ON_FORK, &s); drop_root();
		pid_t c = fork(); if (!c) _exit(getpriority(PRIO_PROCESS, 0) + 100); int w; waitpid(c, &w, 0); _exit(WEXITSTATUS(w))));
	T(CHILD(sched_setscheduler(0, SCHED_BATCH | SCHED_RESET_ON_FORK, &s); drop_root();
		_exit(sched_setscheduler(0, SCHED_BATCH, &s) ? errno : 0)));
	T(CHILD(sched_setscheduler(0, SCHED_BATCH | SCHED_RESET_ON_FORK, &s); _exit(sched_setscheduler(0, SCHED_BATCH, &s) ? errno : 0)));
	T(sched_setscheduler(0, SCHED_BATCH, &s));
	T(sched_yield());
	cpu_set_t c;
	T(sched_getaffinity(0, sizeof c, &c));
	Y(CPU_COUNT(&c) > 0);
	T(syscall(SYS_sched_getaffinity, 0, 4, &c));
	T(sched_setaffinity(0, sizeof c, &c));
	CPU_ZERO(&c);
	T(sched_setaffinity(0, sizeof c, &c));
	CPU_SET(0, &c);
	T(sched_setaffinity(0, sizeof c, &c));
	CPU_ZERO(&c);
	T(sched_getaffinity(0, sizeof c, &c));
	T(CPU_COUNT(&c));
	T(CHILD(cpu_set_t d; sched_getaffinity(0, sizeof d, &d); _exit(CPU_COUNT(&d))));
	status_line("Cpus_allowed:"), status_line("Cpus_allowed_list:");
	static const int priorities[] = { 2 << 13 | 3, 3 << 13, 1 << 13 | 5, 0, 2 << 13 | 9, 7 << 13, 0 };
	for (unsigned i = 0; i < sizeof priorities / sizeof *priorities; i++) {
		T(syscall(SYS_ioprio_set, 1, 0, priorities[i]));
		T(syscall(SYS_ioprio_get, 1, 0));
		T(CHILD(_exit(syscall(SYS_ioprio_get, 1, 0) >> 8)));
	}
	setpgid(0, 0);
	T(syscall(SYS_ioprio_get, 2, 0));
	T(syscall(SYS_ioprio_set, 2, 0, 2 << 13 | 1));
	T(syscall(SYS_ioprio_get, 2, 0));
	unsigned cpu = 9999;
	T(syscall(SYS_getcpu, &cpu, NULL, NULL));
	Y(cpu < 9999);
}

struct attr {
	unsigned size;
	int policy;
	unsigned long flags;
	int nice;
	unsigned priority;
	unsigned long runtime, deadline, period;
	unsigned util_min, util_max, more[8];
};
#define SETATTR(pid, a, flags) syscall(SYS_sched_setattr, pid, a, flags)
#define GETATTR(pid, a, size, flags) syscall(SYS_sched_getattr, pid, a, size, flags)
static void set_attr(const char *what, struct attr a)
{
	errno = 0;
	report(what, SETATTR(0, &a, 0), errno);
	struct attr b = { 0 };
	GETATTR(0, &b, 56, 0);
	say(what, "size %u policy %d flags %lu nice %d priority %u", b.size, b.policy, b.flags, b.nice, b.priority);
}

/* sched_setattr(2) and sched_getattr(2). */
static void attributes(void)
{
	struct attr a;
	memset(&a, 0xee, sizeof a);
	T(GETATTR(0, &a, 47, 0));
	T(GETATTR(0, &a, 4097, 0));
	T(GETATTR(0, &a, 56, 1));
	T(GETATTR(-1, &a, 56, 0));
	T(GETATTR(999999, &a, 56, 0));
	T(GETATTR(0, NULL, 56, 0));
	T(GETATTR(0, (void *)8, 56, 0));
	T(GETATTR(0, &a, 48, 0));
	T(a.size);
	T(a.util_min == 0xeeeeeeee);
	T(a.nice);
	T(a.policy);
	T(a.flags);
	T(a.priority);
	Y(a.runtime > 0);
	T(a.deadline);
	memset(&a, 0xee, sizeof a);
	T(GETATTR(0, &a, sizeof a, 0));
	T(a.size);
	T(a.more[0]);
	T(a.more[7]);
	set_attr("nice", (struct attr){ .size = 48, .nice = 4 });
	set_attr("more than there is", (struct attr){ .size = 48, .nice = 400 });
	set_attr("batch", (struct attr){ .size = 56, .policy = SCHED_BATCH, .nice = 7 });
	set_attr("of no size", (struct attr){ .policy = SCHED_BATCH, .nice = 8 });
	set_attr("too small", (struct attr){ .size = 47 });
	set_attr("too large", (struct attr){ .size = 4097 });
	set_attr("larger", (struct attr){ .size = sizeof a, .nice = 9 });
	a = (struct attr){ .size = sizeof a, .more[3] = 1 };
	T(SETATTR(0, &a, 0));
	T(a.size == 56 || a.size == 64);
	a = (struct attr){ .size = 8 };
	T(SETATTR(0, &a, 0));
	Y(a.size >= 56);
	set_attr("on fork", (struct attr){ .size = 48, .flags = 1, .nice = 10 });
	T(CHILD(_exit(getpriority(PRIO_PROCESS, 0))));
	set_attr("keeps the policy", (struct attr){ .size = 48, .policy = SCHED_BATCH, .flags = 8, .nice = 11 });
	set_attr("keeps the rest", (struct attr){ .size = 48, .policy = SCHED_IDLE, .flags = 0x10, .nice = 12 });
	set_attr("idle", (struct attr){ .size = 48, .policy = SCHED_IDLE, .nice = 12 });
	set_attr("keeps both, on fork", (struct attr){ .size = 48, .flags = 0x19, .nice = 13 });
	set_attr("normal", (struct attr){ .size = 48, .nice = 14 });
	set_attr("flags", (struct attr){ .size = 48, .flags = 1 << 20 });
	set_attr("policy", (struct attr){ .size = 48, .policy = 4 });
	set_attr("negative", (struct attr){ .size = 48, .policy = -1 });
	set_attr("priority", (struct attr){ .size = 48, .priority = 1 });
	set_attr("priority of none", (struct attr){ .size = 48, .policy = SCHED_FIFO });
	set_attr("priority of 100", (struct attr){ .size = 48, .policy = SCHED_FIFO, .priority = 100 });
	set_attr("deadline of none", (struct attr){ .size = 48, .policy = 6 });
	set_attr("bounds without room", (struct attr){ .size = 48, .flags = 0x20 });
	T(SETATTR(0, NULL, 0));
	T(SETATTR(0, (void *)8, 0));
	a = (struct attr){ .size = 48 };
	T(SETATTR(-1, &a, 0));
	T(SETATTR(0, &a, 1));
	T(SETATTR(999999, &a, 0));
	T(CHILD(
		setpriority(PRIO_PROCESS, 0, 5);
		drop_root();
		a.nice = 4;
		_exit(SETATTR(0, &a, 0) ? errno : 0)));
	T(CHILD(
		setpriority(PRIO_PROCESS, 0, 5);
		drop_root();
		a.nice = 6;
		_exit(SETATTR(0, &a, 0) ? errno : 0)));
}

/* The columns of /proc/self/stat that tell of scheduling. */
static void stat_line(void)
{
	char line[4096] = "";
	int fd = open("/proc/self/stat", O_RDONLY), k = 2, priority = 0, nice = 0, rt = 0, policy = 0;
	read(fd, line, sizeof line - 1);
	close(fd);
	for (char *at = strrchr(line, ')'); at && k < 43; at = strchr(at + 1, ' '), k++) {
		int n = atoi(at + 1);
		*(k == 18 ? &priority : k == 19 ? &nice : k == 40 ? &rt : k == 41 ? &policy : &(int){ 0 }) = n;
	}
	say("stat", "%d %d %d %d", priority, nice, rt, policy);
}

/* Policies that need rights: they are kept and told. */
static void real_time(void)
{
	struct sched_param p = { 10 };
	struct timespec t = { 9, 9 };
	if (sched_setscheduler(0, SCHED_FIFO, &p))
		return;
	T(sched_getscheduler(0));
	p.sched_priority = 0;
	T(sched_getparam(0, &p));
	T(p.sched_priority);
	stat_line();
	T(sched_rr_get_interval(0, &t));
	T(t.tv_sec * 1000000000 + t.tv_nsec);
	T(CHILD(_exit(sched_getscheduler(0))));
	T(getpriority(PRIO_PROCESS, 0));
	T(syscall(SYS_ioprio_get, 1, 0));
	for (int n = -1; n < 102; n += n == 1 || n == 98 ? 1 : n < 1 ? 1 : 97) {
		p.sched_priority = n;
		say("priority", "%d", n);
		T(sched_setparam(0, &p));
	}
	p.sched_priority = 0;
	T(sched_setscheduler(0, SCHED_RR, &p));
	p.sched_priority = 5;
	T(sched_setscheduler(0, SCHED_OTHER, &p));
	T(sched_setscheduler(0, SCHED_RR | SCHED_RESET_ON_FORK, &p));
	T(sched_getscheduler(0));
	T(sched_rr_get_interval(0, &t));
	T(t.tv_sec * 1000000000 + t.tv_nsec);
	T(CHILD(stat_line(); _exit(sched_getscheduler(0))));
	set_attr("keeps the rest", (struct attr){ .size = 48, .policy = SCHED_FIFO, .flags = 0x10, .nice = 12 });
	set_attr("keeps both", (struct attr){ .size = 48, .flags = 0x18, .nice = 12 });
	set_attr("keeps the policy", (struct attr){ .size = 48, .flags = 8, .priority = 7 });
	set_attr("FIFO", (struct attr){ .size = 48, .policy = SCHED_FIFO, .flags = 1, .priority = 8 });
	set_attr("bounds", (struct attr){ .size = 56, .policy = SCHED_FIFO, .flags = 0x61, .priority = 8 });
	T(setpriority(PRIO_PROCESS, 0, 3));
	stat_line();
	set_attr("FIFO for all", (struct attr){ .size = 48, .policy = SCHED_FIFO, .priority = 8 });
	/* What needs no rights. */
	T(CHILD(drop_root(); p.sched_priority = 7; _exit(sched_setparam(0, &p) ? errno : 0)));
	T(CHILD(drop_root(); p.sched_priority = 9; _exit(sched_setparam(0, &p) ? errno : 0)));
	T(CHILD(drop_root(); p.sched_priority = 7; _exit(sched_setscheduler(0, SCHED_RR, &p) ? errno : 0)));
	T(CHILD(drop_root(); p.sched_priority = 0; _exit(sched_setscheduler(0, SCHED_OTHER, &p) ? errno : 0)));
}

/* A share of its own. */
static void deadlines(void)
{
	const unsigned long ms = 1000000;
	struct attr a = { .size = 48, .policy = 6, .runtime = 10 * ms, .deadline = 30 * ms }, b = a;
	if (SETATTR(0, &a, 0))
		return;
	T(GETATTR(0, &b, 56, 0));
	T(b.policy); T(b.runtime); T(b.deadline); T(b.period); T(b.flags); T(b.priority); T(b.nice);
	stat_line();
	errno = 0;
	T(fork() == -1 ? -1 : 0);
	struct timespec t = { 9, 9 };
	T(sched_rr_get_interval(0, &t));
	T(t.tv_sec + t.tv_nsec);
	cpu_set_t one;
	CPU_ZERO(&one);
	CPU_SET(0, &one);
	if (sysconf(_SC_NPROCESSORS_ONLN) > 1)
		T(sched_setaffinity(0, sizeof one, &one));
	set_attr("too short", (struct attr){ .size = 48, .policy = 6, .runtime = 1000, .deadline = 30 * ms });
	set_attr("too long", (struct attr){ .size = 48, .policy = 6, .runtime = 31 * ms, .deadline = 30 * ms });
	set_attr("later", (struct attr){ .size = 48, .policy = 6, .runtime = ms, .deadline = 30 * ms, .period = 20 * ms });
	set_attr("often", (struct attr){ .size = 48, .policy = 6, .runtime = 10000, .deadline = 50000 });
	set_attr("seldom", (struct attr){ .size = 48, .policy = 6, .runtime = ms, .deadline = 5000 * ms });
	set_attr("priority", (struct attr){ .size = 48, .policy = 6, .runtime = ms, .deadline = 5 * ms, .priority = 1 });
	set_attr("again", (struct attr){ .size = 48, .policy = 6, .flags = 3, .runtime = ms, .deadline = 5 * ms });
	T(CHILD(stat_line(); _exit(sched_getscheduler(0))));
	set_attr("no more", (struct attr){ .size = 48, .nice = 1 });
	T(CHILD(drop_root(); _exit(SETATTR(0, &a, 0) ? errno : 0)));
}

/* What a new program's memory looks like. */
static long layout(void)
{
	static const char *const where[] = { "[stack]", "[heap]", "libc" };
	long sum = 0;
	char line[512];
	FILE *f = popen("exec cat /proc/self/maps", "r");
	while (fgets(line, sizeof line, f))
		for (int i = 0; i < 3; i++)
			if (strstr(line, where[i]))
				sum = sum * 31 + strtol(line, NULL, 16);
	pclose(f);
	return sum;
}
static int runs(void *p)
{
	char line[256], want[32];
	int r = -1;
	sprintf(want, "%lx-", (long)p);
	FILE *f = fopen("/proc/self/maps", "r");
	while (fgets(line, sizeof line, f))
		if (!strncmp(line, want, strlen(want)))
			r = strchr(line, 'x') != NULL;
	fclose(f);
	return r;
}
static void personalities(void)
{
	struct utsname u, v;
	char b[32] = "";
	T(personality(0xffffffff));
	uname(&u);
	Y(layout() == layout());
	T(personality(ADDR_NO_RANDOMIZE));
	T(personality(0xffffffff));
	Y(layout() == layout());
	T(CHILD(_exit(personality(0xffffffff) >> 16)));
	int fd = open("/proc/self/personality", O_RDONLY);
	read(fd, b, sizeof b - 1);
	close(fd);
	S(b, 10);
	T(personality(PER_LINUX32));
	uname(&v);
	S(v.machine, 8);
	T(strcmp(u.release, v.release));
	T(system("uname -m | grep -qx i686"));
	T(personality(UNAME26));
	uname(&v);
	S(v.release, 4);
	S(v.machine, 8);
	/* Readable is executable, but where that is forbidden; until the next program. */
	T(personality(READ_IMPLIES_EXEC));
	void *p = mmap(NULL, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	T(runs(p));
	void *q = mmap(NULL, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	T(runs(q));
	T(mprotect(q, 4096, PROT_READ | PROT_WRITE));
	T(runs(q));
	fd = open("/proc/self/status", O_RDONLY);
	T(mmap(NULL, 4096, PROT_READ, MAP_PRIVATE, fd, 0) != MAP_FAILED);
	close(fd);
	T(system("exec grep -qx 00400000 /proc/self/personality"));
	T(personality(STICKY_TIMEOUTS));
	struct timeval t = { 0, 20000 };
	T(select(0, NULL, NULL, NULL, &t));
	T(t.tv_usec);
	T(personality(0));
	T(select(0, NULL, NULL, NULL, &t));
	T(t.tv_usec);
	T(personality(0x12345678));
	T(personality(0));
}

static void prctls(void)
{
	char name[16];
	T(prctl(PR_SET_NAME, "a very long name indeed"));
	prctl(PR_GET_NAME, name);
	S(name, 15);
	Y((access("/proc/sys/kernel/yama/ptrace_scope", F_OK) == 0) == (prctl(PR_SET_PTRACER, -1L, 0, 0, 0) == 0));
	T(prctl(PR_GET_DUMPABLE));
	T(prctl(PR_SET_DUMPABLE, 0));
	T(prctl(PR_GET_DUMPABLE));
	T(prctl(PR_SET_DUMPABLE, 7));
	T(prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0));
	T(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0));
	T(prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0));
	T(prctl(PR_SET_NO_NEW_PRIVS, 0, 0, 0, 0));
	T(prctl(PR_SET_PDEATHSIG, 99));
	T(prctl(PR_GET_SECCOMP));
	T(prctl(PR_GET_KEEPCAPS));
	T(prctl(PR_SET_TIMERSLACK, 12345));
	T(prctl(PR_GET_TIMERSLACK));
	T(prctl(99999));
	T(prctl(PR_SET_NAME, 8));
	T(prctl(PR_CAPBSET_READ, 999));
	T(personality(0xffffffff));
	unsigned long fs = 0;
	T(syscall(SYS_arch_prctl, 0x1003, &fs));
	Y(fs != 0);
	T(syscall(SYS_arch_prctl, 0x9999, &fs));
}

static void system_info(void)
{
	struct utsname u;
	struct rusage r;
	struct tms t;
	T(uname(&u));
	S(u.sysname, 5);
	S(u.machine, 6);
	T(getrusage(RUSAGE_SELF, &r));
	T(getrusage(RUSAGE_CHILDREN, &r));
	T(getrusage(99, &r));
	Y(times(&t) != -1);
	Y(sysconf(_SC_NPROCESSORS_ONLN) > 0);
	T(syscall(SYS_sysinfo, (void *)8));
	T(syscall(SYS_set_tid_address, 0) == gettid());
	T(syscall(9999));
	T(syscall(SYS_uselib, 0));
	T(CHILD(drop_root(); _exit(sethostname("x", 1) == -1 ? errno : 0)));
	T(CHILD(drop_root(); _exit(syscall(SYS_reboot, 1, 2, 3, NULL) == -1)));
	T(CHILD(drop_root(); _exit(syscall(SYS_mount, "a", "/", "tmpfs", 0, NULL) == -1 ? errno : 0)));
	T(CHILD(drop_root(); _exit(chroot("/") == -1 ? errno : 0)));
}

static void *add(void *p)
{
	__atomic_fetch_add((int *)p, 1, __ATOMIC_SEQ_CST);
	return (void *)5;
}
static __thread int mine = 3;
static void *tls(void *p)
{
	mine += (long)p;
	return (void *)(long)mine;
}
static void *ids(void *p)
{
	((int *)p)[0] = getpid(), ((int *)p)[1] = gettid(), ((int *)p)[2] = getppid();
	return NULL;
}
static void *exit_all(void *p)
{
	_exit((long)p);
}
static void *forks(void *p)
{
	(void)p;
	return (void *)(long)CHILD(_exit(44));
}
static void *sleeper(void *p)
{
	(void)p;
	for (;;)
		pause();
}

static void threads(void)
{
	pthread_t t[20];
	void *r;
	int n = 0, id[3];
	for (int i = 0; i < 20; i++)
		pthread_create(&t[i], NULL, add, &n);
	for (int i = 0; i < 20; i++)
		pthread_join(t[i], &r);
	T(n);
	T((long)r);
	pthread_create(&t[0], NULL, tls, (void *)4);
	pthread_join(t[0], &r);
	T((long)r * 10 + mine);
	pthread_create(&t[0], NULL, ids, id);
	pthread_join(t[0], NULL);
	Y(id[0] == getpid() && id[1] != getpid() && id[2] == getppid());
	T(CHILD(pthread_create(&t[0], NULL, exit_all, (void *)55); for (;;) pause()));
	T(CHILD(pthread_create(&t[0], NULL, sleeper, NULL); _exit(56)));
	T(CHILD(pthread_create(&t[0], NULL, exit_all, (void *)57); ms(0); pthread_exit(NULL)));
	pthread_create(&t[0], NULL, forks, NULL);
	pthread_join(t[0], &r);
	T((long)r);
	T(CHILD(pthread_create(&t[0], NULL, sleeper, NULL); execl("/bin/sh", "sh", "-c", "exit 58", NULL)));
	T(CHILD(pthread_create(&t[0], NULL, sleeper, NULL); ms(5); *(volatile int *)8 = 1));
	pthread_create(&t[0], NULL, sleeper, NULL);
	T(pthread_cancel(t[0]));
	T(pthread_join(t[0], &r));
	Y(r == PTHREAD_CANCELED);
	int count = 0;
	pthread_create(&t[0], NULL, sleeper, NULL);
	/* Who was waited for is told of as gone a moment before it is. */
	for (int tries = 0; count != 2 && tries < 1000; tries++) {
		DIR *d = opendir("/proc/self/task");
		count = 0;
		for (struct dirent *e; d && (e = readdir(d));)
			count += e->d_name[0] != '.';
		if (d)
			closedir(d);
		ms(1);
	}
	T(count);
}

/* Twice as many every 2 ms: bounded, since on a busy machine it is long until the exec ends them. */
static void *makes_threads(void *p)
{
	static _Atomic int made;
	for (;;) {
		if (made++ >= 300)
			pause();
		pthread_t t;
		pthread_attr_t a;
		pthread_attr_init(&a);
		pthread_attr_setstacksize(&a, 65536);
		pthread_attr_setdetachstate(&a, PTHREAD_CREATE_DETACHED);
		if (pthread_create(&t, &a, makes_threads, p))
			pause();
		usleep(2000);
	}
}
static void *execs(void *p)
{
	execl("/bin/true", "true", NULL);
	return p;
}

/* execve while other threads make threads, and while another thread calls it too. */
static void exec_among_threads(void)
{
	int bad = 0;
	for (int i = 0; i < 10; i++)
		bad += CHILD(
			pthread_t t;
			for (int n = 0; n < 3; n++)
				pthread_create(&t, NULL, makes_threads, NULL);
			usleep(3000);
			execl("/bin/true", "true", NULL)) != 0;
	T(bad);
	for (int i = 0; i < 10; i++)
		bad += CHILD(
			pthread_t t;
			for (int n = 0; n < 4; n++)
				pthread_create(&t, NULL, execs, NULL);
			pthread_join(t, NULL);
			pause()) != 0;
	T(bad);
}

static void *execs_bound(void *p)
{
	cpu_set_t first;
	CPU_ZERO(&first);
	CPU_SET(0, &first);
	sched_setaffinity(0, sizeof first, &first);
	syscall(SYS_set_mempolicy, 3, &(unsigned long){ 1 }, 8);
	syscall(SYS_ioprio_set, 1, 0, 3 << 13);
	execl("/bin/sh", "sh", "-c", "r=0; grep -q '^Cpus_allowed_list:.0$' /proc/self/status && r=$((r + 1)); "
		"grep -q interleave /proc/self/numa_maps && r=$((r + 2)); ionice | grep -q idle && r=$((r + 4)); exit $r", NULL);
	return p;
}

/* What a thread has set for itself is the program's that it becomes. */
static void exec_keeps(void)
{
	T(CHILD(pthread_t t; pthread_create(&t, NULL, execs_bound, NULL); pause()));
}

/* A pidfd means its process, also when that is gone. */
static void pidfd_gone(void)
{
	siginfo_t i;
	pid_t k = fork();
	if (k == 0)
		_exit(3);
	int f = syscall(SYS_pidfd_open, k, 0);
	ms(20);
	T(syscall(SYS_pidfd_send_signal, f, SIGTERM, NULL, 0));
	T(waitid(P_PIDFD, f, &i, WEXITED));
	T(i.si_status);
	T(waitid(P_PIDFD, f, &i, WEXITED));
	T(syscall(SYS_pidfd_send_signal, f, SIGTERM, NULL, 0));
	T(syscall(SYS_pidfd_getfd, f, 1, 0));
	T(syscall(SYS_setns, -1, 0));
	T(syscall(SYS_setns, 1, 0));
}

static void user_limit(void)
{
	drop_root();
	T(syscall(SYS_get_robust_list, getppid(), &(long){ 0 }, &(long){ 0 }));
	struct rlimit r = { 0, 0 };
	T(setrlimit(RLIMIT_NPROC, &r));
	T(fork() == -1 ? -1 : 0);
	pthread_t t;
	T(pthread_create(&t, NULL, execs, NULL));
}

/* A number is written in one way. */
static void names(void)
{
	static const char *const names[] = { "/proc/01", "/proc/+1", "/proc/00", "/proc/0", "/proc/self/fd/01", "/proc/self/fd/+1",
		"/proc/self/fd/00", "/proc/self/fd/0", "/proc/self/fd/1 ", "/proc/self/fd/-1", "/proc/self/fd/", "/proc/self/fdinfo/01",
		"/dev/pts/ptmx", "/dev/pts/000", "/dev/pts/+0" };
	struct stat st;
	char own[64];
	for (size_t i = 0; i < sizeof names / sizeof *names; i++)
		say(names[i], "%s", lstat(names[i], &st) ? strerrorname_np(errno) : "there");
	for (int i = 0; i < 3; i++) {
		sprintf(own, "/proc/self/task/%s%d", (const char *[]){ "", "0", "+" }[i], getpid());
		say((const char *[]){ "task", "task 0", "task +" }[i], "%s", lstat(own, &st) ? strerrorname_np(errno) : "there");
	}
	unsigned long m[128];
	T(syscall(SYS_sched_getaffinity, -1, sizeof m, m));
	T(syscall(SYS_sched_getaffinity, -1, 3, m));
	T(syscall(SYS_sched_getaffinity, 999999, 3, m));
	T(syscall(SYS_sched_getaffinity, 999999, sizeof m, m));
	T(syscall(SYS_sched_setaffinity, -1, sizeof m, m));
	T(sched_getscheduler(-1));
}

/* What is told of a process that nobody has waited for. */
static void zombie(void)
{
	int hold[2];
	pipe(hold);
	/* Its start is told in ticks of 10 ms since boot, and a sandbox boots in less. */
	usleep(20000);
	pid_t p = fork();
	if (p == 0) {
		prctl(PR_SET_NAME, "gone (with) it");
		signal(SIGUSR1, SIG_IGN);
		errno = 0;
		if (nice(7) != -1 || errno == 0)
			_exit(3);
		_exit(4);
	}
	siginfo_t si;
	T(waitid(P_PID, p, &si, WEXITED | WNOWAIT));
	T(si.si_status);
	char path[64], b[4096];
	sprintf(path, "/proc/%d/comm", p);
	int fd = open(path, O_RDONLY), n = read(fd, b, sizeof b - 1);
	bytes("comm", b, n > 0 ? n : 0);
	sprintf(path, "/proc/%d/stat", p);
	fd = open(path, O_RDONLY), n = read(fd, b, sizeof b - 1);
	b[n > 0 ? n : 0] = 0;
	char *at = strchr(b, '('), *end = strrchr(b, ')');
	if (at && end) {
		bytes("stat", at, end - at + 1);
		long f[30] = { 0 };
		int k = 4;
		for (char *w = strtok(end + 4, " "); w && k < 30; w = strtok(NULL, " "))
			f[k++] = atol(w);
		say("stat", "%c %d %ld %ld %ld %ld", end[2], f[4] == getpid(), f[18], f[19], f[20], f[23]);
		Y(f[22] > 0);
	}
	/* Its main thread is there until it is waited for. */
	sprintf(path, "/proc/%d/task/%d/stat", p, p);
	T(access(path, F_OK));
	sprintf(path, "/proc/%d/task", p);
	DIR *d = opendir(path);
	for (struct dirent *e; d && (e = readdir(d));)
		if (e->d_name[0] != '.')
			say("task", "%d", atoi(e->d_name) == p);
	struct stat dir;
	T(stat(path, &dir));
	T(dir.st_nlink);
	sprintf(path, "/proc/%d/status", p);
	FILE *f = fopen(path, "r");
	while (f && fgets(b, sizeof b, f)) {
		static const char *const told[] = { "Name", "Umask", "State", "TracerPid", "Uid", "Gid", "FDSize", "Vm", "Rss", "CoreDumping",
			"THP", "Threads", "SigPnd", "SigBlk", "SigIgn", "SigCgt", "NoNewPrivs", "Seccomp:" };
		b[strcspn(b, "\n")] = 0;
		for (size_t i = 0; i < sizeof told / sizeof *told; i++)
			if (!strncmp(b, told[i], strlen(told[i])))
				say("status", "%s", b);
	}
}

/* What each kind of sleep looks like from outside. */
static int sleep_fd[2], sleep_fifo[2];
static void s_pause(void) { pause(); }
static void s_read(void) { char c; read(sleep_fd[0], &c, 1); }
static void s_splice(void) { splice(sleep_fd[0], NULL, sleep_fifo[1], NULL, 10, 0); }
static void s_flock(void) { flock(open("held", O_RDWR), LOCK_EX); }
static void s_setlkw(void)
{
	struct flock l = { .l_type = F_WRLCK, .l_len = 1 };
	fcntl(open("held", O_RDWR), F_SETLKW, &l);
}
static void s_fifo(void) { open("fifo", O_RDONLY); }
static void s_signal(void)
{
	sigset_t set;
	sigemptyset(&set);
	sigaddset(&set, SIGUSR2);
	sigprocmask(SIG_BLOCK, &set, NULL);
	sigtimedwait(&set, NULL, NULL);
}
static void s_suspend(void)
{
	sigset_t set;
	sigemptyset(&set);
	sigsuspend(&set);
}
static void s_futex(void)
{
	int word = 0;
	syscall(SYS_futex, &word, 0, 0, NULL, NULL, 0);
}
static void s_nanosleep(void) { sleep(100); }
static void s_poll(void) { poll(NULL, 0, -1); }
static void s_wait(void)
{
	pid_t p = fork();
	if (p == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		pause();
	}
	waitpid(p, NULL, 0);
}
static void s_vfork(void)
{
	if (vfork() == 0) {
		char c;
		/* Ends with the check's last descriptor. */
		read(sleep_fd[0], &c, 1);
		_exit(0);
	}
}
static void s_stopped(void) { raise(SIGSTOP); }
static void s_runs(void)
{
	for (;;)
		;
}

static void states(void)
{
	static const struct {
		const char *name;
		void (*run)(void);
		char want;
	} ways[] = { { "pause", s_pause, 'S' }, { "read", s_read, 'S' }, { "splice", s_splice, 'S' }, { "flock", s_flock, 'S' },
		{ "F_SETLKW", s_setlkw, 'S' }, { "open of a FIFO", s_fifo, 'S' }, { "sigtimedwait", s_signal, 'S' },
		{ "sigsuspend", s_suspend, 'S' }, { "futex", s_futex, 'S' }, { "nanosleep", s_nanosleep, 'S' },
		{ "poll", s_poll, 'S' }, { "wait", s_wait, 'S' }, { "vfork", s_vfork, 'D' }, { "stopped", s_stopped, 'T' },
		{ "loop", s_runs, 'R' } };
	struct flock l = { .l_type = F_WRLCK, .l_len = 1 };
	pipe(sleep_fd), pipe(sleep_fifo);
	mkfifo("fifo", 0600);
	int held = open("held", O_RDWR | O_CREAT, 0600);
	flock(held, LOCK_EX), fcntl(held, F_SETLK, &l);
	for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
		pid_t p = fork();
		if (p < 0) {
			say(ways[i].name, "%s", "no process");
			continue;
		}
		if (p == 0) {
			prctl(PR_SET_PDEATHSIG, SIGKILL);
			close(sleep_fd[1]);
			ways[i].run();
			_exit(0);
		}
		char path[64], b[512], seen = '?', line[80] = "";
		sprintf(path, "/proc/%d/stat", p);
		for (int k = 0; k < 500; k++, usleep(10000)) {
			int fd = open(path, O_RDONLY), n = read(fd, b, sizeof b - 1);
			close(fd);
			b[n > 0 ? n : 0] = 0;
			char *end = strrchr(b, ')');
			seen = end ? end[2] : '?';
			if (seen == ways[i].want && k > 2)
				break;
		}
		sprintf(path, "/proc/%d/status", p);
		FILE *f = fopen(path, "r");
		while (f && fgets(line, sizeof line, f) && strncmp(line, "State:", 6))
			;
		if (f)
			fclose(f);
		line[strcspn(line, "\n")] = 0;
		say(ways[i].name, "%c %s", seen, line);
		kill(p, SIGKILL);
		waitpid(p, NULL, 0);
	}
}

static const struct check all[] = {
	CHECK(names), CHECK(zombie), CHECK(states),
	CHECK(exits), CHECK(waiting), CHECK(many), CHECK(inherited), CHECK(orphans), CHECK(executing),
	CHECK(big_arguments), CHECK(over_exec), CHECK(vforked), CHECK(cloning), CHECK(pidfds), CHECK(pidfd_info), CHECK(pidfd_nonblocking), CHECK(slack), CHECK(groups),
	CHECK(limits), CHECK(priorities), CHECK(attributes), CHECK(real_time), CHECK(deadlines), CHECK(personalities), CHECK(prctls), CHECK(system_info), CHECK(threads),
	CHECK(exec_among_threads), CHECK(exec_keeps), CHECK(pidfd_gone), CHECK(user_limit),
};
MAIN(all)
