/* What one user may have, and that it is no other user's: counts by user, not by process or by sandbox. Needs root. */
#define AREA "quotas"
#include "check.h"
#include <sys/inotify.h>
#include <sys/mount.h>

/* Two users of each check's own: what the last one's held goes a moment after it. */
static uid_t A, B;
static void users(int n) { A = 54000 + 2 * n, B = A + 1; }

static long setting(const char *path)
{
	char b[64] = "";
	int fd = open(path, O_RDONLY);
	if (fd < 0 || read(fd, b, sizeof b - 1) <= 0)
		return -1;
	close(fd);
	return atol(b);
}
static void become(uid_t u)
{
	if (geteuid() == 0 && (syscall(SYS_setresgid, u, u, u) || syscall(SYS_setresuid, u, u, u)))
		_exit(97);
}
static void limit(int what, long n)
{
	struct rlimit r = {n, n};
	if (setrlimit(what, &r))
		say("setrlimit", "failed: %s", strerrorname_np(errno));
}
/* Runs a function as a user who goes on to hold what it took, until the end of the check; its result. */
static int held_by(uid_t u, int (*f)(void))
{
	int p[2], r = -1;
	pipe(p);
	if (fork() == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		become(u);
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		r = f();
		write(p[1], &r, sizeof r);
		for (;;)
			pause();
	}
	close(p[1]);
	read(p[0], &r, sizeof r);
	close(p[0]);
	return r;
}
#define AS(u, ...) CHILD(become(u); __VA_ARGS__)

static void pipes(void)
{
	users(0);
	long soft = setting("/proc/sys/fs/pipe-user-pages-soft");
	long n = soft / 16 + 4;
	int p[2] = {-1, -1};
	Y(soft > 0);
	Y(setting("/proc/sys/fs/pipe-user-pages-hard") >= 0);
	limit(RLIMIT_NOFILE, 2 * n + 64);
	become(A);
	for (long i = 0; i < n; i++)
		if (pipe(p))
			break;
	T(fcntl(p[0], F_GETPIPE_SZ));
	T(fcntl(p[0], F_SETPIPE_SZ, 65536));
	T(fcntl(p[0], F_SETPIPE_SZ, 4096));
	T(fcntl(p[0], F_GETPIPE_SZ));
	fcntl(p[1], F_SETFL, O_NONBLOCK);
	char b[20000] = {0};
	T(write(p[1], b, sizeof b));
}

static int many_inotifies(void)
{
	int n = 0;
	while (inotify_init1(0) >= 0)
		n++;
	return errno == EMFILE ? n : -2;
}
static void inotifies(void)
{
	users(1);
	limit(RLIMIT_NOFILE, 4096);
	long most = setting("/proc/sys/fs/inotify/max_user_instances");
	Y(held_by(A, many_inotifies) == most);
	T(AS(A, _exit(inotify_init1(0) < 0 ? errno : 0)));
	T(AS(B, _exit(inotify_init1(0) < 0 ? errno : 0)));
}

static int send_one(int s)
{
	int fd = 0;
	char c = 0, b[CMSG_SPACE(sizeof fd)] = {0};
	struct iovec v = {&c, 1};
	struct msghdr m = {.msg_iov = &v, .msg_iovlen = 1, .msg_control = b, .msg_controllen = sizeof b};
	struct cmsghdr *h = CMSG_FIRSTHDR(&m);
	h->cmsg_level = SOL_SOCKET, h->cmsg_type = SCM_RIGHTS, h->cmsg_len = CMSG_LEN(sizeof fd);
	memcpy(CMSG_DATA(h), &fd, sizeof fd);
	return sendmsg(s, &m, MSG_DONTWAIT);
}
static int many_files(void)
{
	int s[2], n = 0;
	limit(RLIMIT_NOFILE, 20);
	if (socketpair(AF_UNIX, SOCK_STREAM, 0, s))
		return -3;
	while (send_one(s[0]) == 1)
		n++;
	return errno == ETOOMANYREFS ? n : -errno;
}
static int one_file(void)
{
	int s[2];
	limit(RLIMIT_NOFILE, 20);
	if (socketpair(AF_UNIX, SOCK_STREAM, 0, s))
		return 99;
	return send_one(s[0]) == 1 ? 0 : errno;
}
static void files_in_flight(void)
{
	users(2);
	T(held_by(A, many_files));
	T(AS(A, _exit(one_file())));
	T(AS(B, _exit(one_file())));
	T(CHILD(_exit(one_file())));
}

static int four_tasks(void)
{
	int n = 0;
	limit(RLIMIT_NPROC, 4);
	for (pid_t p; (p = fork()) >= 0; n++)
		if (p == 0) {
			prctl(PR_SET_PDEATHSIG, SIGKILL);
			for (;;)
				pause();
		}
	return errno == EAGAIN ? n : -errno;
}
static int may_fork(void)
{
	limit(RLIMIT_NPROC, 4);
	pid_t p = fork();
	if (p == 0)
		_exit(0);
	return p < 0 ? errno : 0;
}
static void tasks(void)
{
	users(3);
	T(held_by(A, four_tasks));
	T(AS(A, _exit(may_fork())));
	T(AS(B, _exit(may_fork())));
	/* A namespace of its own is no way out. */
	T(AS(A, if (unshare(CLONE_NEWUSER)) _exit(errno == EPERM || errno == ENOSPC ? EAGAIN : errno); _exit(may_fork())));
	/* Who changes to such a user, becomes no other program. */
	T(CHILD(limit(RLIMIT_NPROC, 4); become(A); execl("/bin/true", "true", (char *)0); _exit(errno)));
	T(CHILD(limit(RLIMIT_NPROC, 4); become(B); execl("/bin/true", "true", (char *)0); _exit(errno)));
}

static int queue_signals(int most)
{
	sigset_t s;
	union sigval v = {0};
	int n = 0;
	limit(RLIMIT_SIGPENDING, 10);
	sigfillset(&s);
	sigprocmask(SIG_BLOCK, &s, 0);
	while (n < most && sigqueue(getpid(), SIGRTMIN, v) == 0)
		n++;
	return n;
}
static int some_signals(void)
{
	return queue_signals(6);
}
static int more_signals(void)
{
	return queue_signals(50);
}
static void queued_signals(void)
{
	users(4);
	T(held_by(A, some_signals));
	T(AS(A, _exit(more_signals())));
	T(AS(B, _exit(more_signals())));
}
static void timers(void)
{
	users(5);
	T(AS(A, {
		int n = 0;
		timer_t t;
		struct sigevent e = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGUSR1};
		limit(RLIMIT_SIGPENDING, 3);
		while (n < 50 && timer_create(CLOCK_MONOTONIC, &e, &t) == 0)
			n++;
		_exit(n + (errno == EAGAIN ? 100 : 0));
	}));
}

static void settings(void)
{
	users(6);
	Y(setting("/proc/sys/fs/epoll/max_user_watches") > 1000);
	Y(setting("/proc/sys/user/max_user_namespaces") > 100);
	Y(setting("/proc/sys/user/max_net_namespaces") > 100);
	Y(setting("/proc/sys/user/max_inotify_instances") > 0);
	T(AS(A, _exit(open("/proc/sys/user/max_user_namespaces", O_WRONLY) < 0 ? errno : 0)));
}

/* A long call ends when its caller does. */
static void killed_read(void)
{
	size_t n = 1ul << 30;
	pid_t p = fork();
	if (p == 0) {
		char *m = mmap(0, n, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
		int fd = open("/dev/urandom", O_RDONLY);
		read(fd, m, n);
		_exit(0);
	}
	ms(200);
	long long t = now_ms();
	kill(p, SIGKILL);
	waitpid(p, 0, 0);
	Y(now_ms() - t < 300);
}

/* What a mount costs does not grow with their number. */
static void nested_mounts(void)
{
	if (unshare(CLONE_NEWNS) || mount("none", "/", 0, MS_REC | MS_PRIVATE, 0))
		return;
	long long t = now_ms();
	int n = 0;
	while (n < 6000 && !mkdir("d", 0755) && !mount("none", "d", "tmpfs", 0, "size=4k") && !chdir("d"))
		n++;
	t = now_ms() - t;
	T(n);
	// What the calls cost by themselves, three for a mount, is the platform's.
	long long calls = now_ms();
	for (int i = 0; i < 3 * n; i++)
		syscall(SYS_getppid);
	calls = now_ms() - calls;
	Y(t - calls < 1500);
}

static const struct check all[] = {
	CHECK(pipes), CHECK(inotifies), CHECK(files_in_flight), CHECK(tasks), CHECK(queued_signals), CHECK(timers),
	CHECK(settings), CHECK(killed_read), CHECK(nested_mounts),
};
MAIN(all)
