/* Pid namespaces, and namespaces as files. What needs root makes a user namespace first where we are not. */
#define AREA "pidns"
#include "check.h"
#include <grp.h>
#include <linux/sched.h>
#include <sys/mount.h>
#ifndef NS_GET_USERNS
#define NS_GET_USERNS 0xb701
#define NS_GET_PARENT 0xb702
#define NS_GET_NSTYPE 0xb703
#define NS_GET_OWNER_UID 0xb704
#endif

/* Rights to make namespaces. */
static void rights(void)
{
	if (geteuid() != 0 && unshare(CLONE_NEWUSER))
		say("rights", "none: %s", strerrorname_np(errno));
}

static pid_t ns_fork(int flags)
{
	struct clone_args a = { .flags = flags, .exit_signal = SIGCHLD };
	return syscall(SYS_clone3, &a, sizeof a);
}

static int finish(pid_t p)
{
	int st = 0;
	while (waitpid(p, &st, 0) != p)
		if (errno != EINTR)
			return -1;
	return WIFEXITED(st) ? WEXITSTATUS(st) : 1000 + WTERMSIG(st);
}

static void numbers(void)
{
	rights();
	pid_t p = ns_fork(CLONE_NEWPID);
	if (p == 0) {
		T(getpid());
		T(gettid());
		T(getppid());
		T(getpgrp());
		T(getsid(0));
		T(getpgid(1));
		T(getpgid(2));
		T(setsid());
		T(getpgrp());
		T(kill(getppid(), 0) == 0);
		T(kill(2, 0));
		T(kill(12345, 0));
		pid_t c = fork();
		if (c == 0) {
			T(getpid());
			T(getppid());
			T(getpgrp());
			T(setpgid(0, 0));
			T(getpgrp());
			_exit(7);
		}
		int st;
		T(waitpid(c, &st, 0));
		T(c);
		T(WEXITSTATUS(st));
		c = fork();
		if (c == 0)
			_exit(0);
		siginfo_t i = { 0 };
		T(waitid(P_ALL, 0, &i, WEXITED));
		T(i.si_pid);
		T(waitpid(-1, NULL, 0));
		_exit(3);
	}
	T(finish(p));
	Y(p > 0);
}

static void unshared(void)
{
	rights();
	T(unshare(CLONE_NEWPID));
	Y(getpid() > 1);
	char a[64] = "", b[64] = "";
	readlink("/proc/self/ns/pid", a, 63);
	T(readlink("/proc/self/ns/pid_for_children", b, 63));
	T(unshare(CLONE_NEWPID));
	pthread_t t;
	T(pthread_create(&t, NULL, (void *(*)(void *))pause, NULL));
	pid_t p = fork();
	if (p == 0) {
		T(getpid());
		pid_t c = fork();
		if (c == 0) {
			T(getpid());
			pause();
		}
		ms(300);
		_exit(4);
	}
	ms(100);
	readlink("/proc/self/ns/pid_for_children", b, 63);
	Y(strcmp(a, b) != 0 && strncmp(b, "pid:[", 5) == 0);
	pid_t q = fork();
	if (q == 0) {
		T(getpid() > 1);
		T(getppid());
		pause();
	}
	/* Everything ends with process 1, which waits for those that others must reap. */
	T(finish(q));
	T(finish(p));
	T(fork());
	T(fork());
}

static void nested(void)
{
	rights();
	pid_t p = ns_fork(CLONE_NEWPID);
	if (p == 0) {
		pid_t in = 0;
		int up[2], down[2];
		pipe(up), pipe(down);
		pid_t q = ns_fork(CLONE_NEWPID);
		if (q == 0) {
			T(getpid());
			pid_t r = fork();
			if (r == 0) {
				T(getpid());
				write(up[1], "x", 1);
				pause();
			}
			char c;
			read(down[0], &c, 1);
			_exit(5);
		}
		char c;
		read(up[0], &c, 1);
		T(q);
		/* The grandchild has a number here too. */
		T(kill(3, 0));
		T(kill(4, 0));
		T(getpgid(3) == getpgid(0));
		T(kill(3, SIGUSR1));
		ms(30);
		write(down[1], "x", 1);
		T(finish(q));
		T(kill(3, 0));
		_exit(6);
	}
	T(finish(p));
}

static volatile int got, from;
static void handler(int s, siginfo_t *i, void *x)
{
	got++;
	from = i->si_pid;
}

static void init_signals(void)
{
	rights();
	int up[2], down[2];
	pipe(up), pipe(down);
	pid_t p = ns_fork(CLONE_NEWPID);
	if (p == 0) {
		struct sigaction a = { .sa_sigaction = handler, .sa_flags = SA_SIGINFO };
		sigaction(SIGUSR1, &a, NULL);
		pid_t c = fork();
		if (c == 0) {
			T(kill(1, SIGKILL));
			T(kill(1, SIGSTOP));
			T(kill(1, SIGTERM));
			T(kill(1, SIGUSR2));
			T(kill(1, SIGUSR1));
			T(kill(-1, SIGKILL));
			_exit(0);
		}
		T(finish(c));
		T(got);
		T(from);
		T(kill(1, SIGTERM));
		T(raise(SIGINT));
		T(kill(-1, SIGTERM));
		got = from = 0;
		write(up[1], "x", 1);
		char ch;
		while (read(down[0], &ch, 1) < 0) {}
		T(got);
		T(from);
		/* From above, without a handler: nothing; then SIGKILL. */
		write(up[1], "y", 1);
		while (1)
			pause();
	}
	char ch;
	read(up[0], &ch, 1);
	T(kill(p, SIGUSR1));
	T(kill(p, SIGTERM));
	ms(30);
	write(down[1], "x", 1);
	read(up[0], &ch, 1);
	T(kill(p, SIGSTOP));
	int st;
	T(waitpid(p, &st, WUNTRACED) == p && WIFSTOPPED(st));
	T(kill(p, SIGCONT));
	T(kill(p, SIGKILL));
	T(finish(p));
	p = ns_fork(CLONE_NEWPID);
	if (p == 0) {
		*(volatile int *)0 = 1;
		_exit(0);
	}
	T(finish(p));
	p = ns_fork(CLONE_NEWPID);
	if (p == 0) {
		sigset_t s;
		sigfillset(&s);
		sigprocmask(SIG_SETMASK, &s, NULL);
		T(kill(1, SIGTERM));
		sigpending(&s);
		T(sigismember(&s, SIGTERM));
		sigemptyset(&s);
		sigprocmask(SIG_SETMASK, &s, NULL);
		_exit(9);
	}
	T(finish(p));
}

static void orphans(void)
{
	rights();
	pid_t p = ns_fork(CLONE_NEWPID);
	if (p == 0) {
		int pi[2];
		pipe(pi);
		pid_t c = fork();
		if (c == 0) {
			pid_t d = fork();
			if (d == 0) {
				while (getppid() == 2)
					ms(5);
				int pp = getppid();
				write(pi[1], &pp, 4);
				_exit(11);
			}
			_exit(10);
		}
		int pp;
		T(finish(c));
		read(pi[0], &pp, 4);
		T(pp);
		int st;
		T(wait(&st));
		T(WEXITSTATUS(st));
		/* A subreaper in between. */
		c = fork();
		if (c == 0) {
			T(prctl(PR_SET_CHILD_SUBREAPER, 1));
			pid_t d = fork();
			if (d == 0) {
				pid_t e = fork();
				if (e == 0) {
					while (getppid() != 4)
						ms(5);
					_exit(12);
				}
				_exit(0);
			}
			T(finish(d));
			T(wait(&st));
			T(WEXITSTATUS(st));
			_exit(0);
		}
		T(finish(c));
		T(c);
		T(wait(&st));
		_exit(0);
	}
	T(finish(p));
	/* A subreaper outside does not reach in. */
	T(prctl(PR_SET_CHILD_SUBREAPER, 1));
	p = ns_fork(CLONE_NEWPID);
	if (p == 0) {
		pid_t c = fork();
		if (c == 0) {
			if (fork() == 0) {
				while (getppid() != 1)
					ms(5);
				_exit(14);
			}
			_exit(0);
		}
		finish(c);
		int st;
		T(wait(&st));
		T(WEXITSTATUS(st));
		_exit(0);
	}
	T(finish(p));
	T(wait(NULL));
}

static void flags(void)
{
	rights();
	T(ns_fork(CLONE_NEWPID | CLONE_THREAD | CLONE_SIGHAND | CLONE_VM));
	T(syscall(SYS_clone, CLONE_NEWIPC | CLONE_SYSVSEM | SIGCHLD, 0, 0, 0, 0));
	T(syscall(SYS_clone, CLONE_NEWNS | CLONE_FS | SIGCHLD, 0, 0, 0, 0));
	T(syscall(SYS_clone, CLONE_NEWUSER | CLONE_FS | SIGCHLD, 0, 0, 0, 0));
	T(unshare(0x01000000));
	T(unshare(CLONE_SYSVSEM));
	T(unshare(0));
	pid_t p = ns_fork(CLONE_NEWPID);
	if (p == 0) {
		struct clone_args a = { .flags = CLONE_PARENT };
		T(syscall(SYS_clone3, &a, sizeof a));
		_exit(0);
	}
	T(finish(p));
	int tid = 0, ptid = 0;
	p = syscall(SYS_clone, CLONE_NEWPID | CLONE_PARENT_SETTID | CLONE_CHILD_SETTID | SIGCHLD, 0, &ptid, &tid, 0);
	if (p == 0) {
		ms(20);
		T(tid);
		_exit(0);
	}
	T(finish(p));
	Y(p > 1 && ptid == p);
	/* Too deep. */
	int depth = 0;
	while (unshare(CLONE_NEWPID) == 0) {
		p = fork();
		if (p) {
			_exit(finish(p));
		}
		depth++;
	}
	report("too deep", -1, errno);
	/* 32 in all; those around the test count. */
	Y(depth >= 26 && depth <= 32);
}

static void by_root(void)
{
	if (geteuid() == 0)
		drop_root();
	T(unshare(CLONE_NEWPID));
	T(unshare(CLONE_NEWUTS));
	T(unshare(CLONE_NEWIPC));
	T(unshare(CLONE_NEWNET));
	T(unshare(CLONE_NEWNS));
	T(ns_fork(CLONE_NEWPID));
	T(ns_fork(CLONE_NEWNET));
}

static void entering(void)
{
	rights();
	int up[2], down[2];
	pipe(up), pipe(down);
	pid_t p = ns_fork(CLONE_NEWPID);
	if (p == 0) {
		write(up[1], "x", 1);
		char c;
		read(down[0], &c, 1);
		_exit(0);
	}
	char c, path[64];
	read(up[0], &c, 1);
	sprintf(path, "/proc/%d/ns/pid", p);
	int fd = open(path, O_RDONLY);
	Y(fd >= 0);
	int own = open("/proc/self/ns/pid", O_RDONLY);
	T(setns(fd, CLONE_NEWUTS));
	T(setns(fd, CLONE_NEWPID));
	pid_t q = fork();
	if (q == 0) {
		T(getpid());
		T(getppid());
		T(setns(own, 0));
		_exit(0);
	}
	T(finish(q));
	/* Back to one's own, for children. */
	T(setns(own, CLONE_NEWPID));
	q = fork();
	if (q == 0) {
		Y(getpid() > 5 && getppid() > 1);
		_exit(0);
	}
	T(finish(q));
	/* By a pidfd. */
	int pfd = syscall(SYS_pidfd_open, p, 0);
	T(setns(pfd, 0));
	T(setns(pfd, 0x40000000 | 0x100));
	T(setns(pfd, CLONE_NEWPID));
	q = fork();
	if (q == 0) {
		T(getpid());
		_exit(0);
	}
	T(finish(q));
	write(down[1], "x", 1);
	T(finish(p));
	T(fork());
	T(setns(pfd, CLONE_NEWPID));
	T(setns(-1, 0));
	T(setns(0, CLONE_NEWPID));
	T(setns(open("/dev/null", O_RDONLY), 0));
}

static void files(void)
{
	static const char *names[] = { "pid", "uts", "ipc", "net", "mnt", "user", "cgroup", "time", "pid_for_children" };
	struct stat st, lst, first = { 0 };
	for (unsigned i = 0; i < sizeof names / sizeof *names; i++) {
		char path[64], text[64] = "", want[64];
		sprintf(path, "/proc/self/ns/%s", names[i]);
		say("name", "%s", names[i]);
		T(readlink(path, text, 63) > 0);
		int fd = open(path, O_RDONLY);
		T(fd >= 0);
		T(fstat(fd, &st));
		stat(path, &lst);
		Y(st.st_ino == lst.st_ino && st.st_dev == lst.st_dev);
		if (!i)
			first = st;
		Y(st.st_dev == first.st_dev);
		T(st.st_mode);
		sprintf(want, "%.*s:[%lu]", (int)strcspn(names[i], "_"), names[i], (unsigned long)st.st_ino);
		Y(!strcmp(want, text));
		T(ioctl(fd, NS_GET_NSTYPE));
		uid_t u = 77;
		T(ioctl(fd, NS_GET_OWNER_UID, &u));
		T(u);
		char c;
		T(read(fd, &c, 1));
		T(ioctl(fd, 0xb799));
		char link[64] = "", self[64];
		sprintf(self, "/proc/self/fd/%d", fd);
		readlink(self, link, 63);
		Y(!strcmp(link, text));
		close(fd);
		T(open(path, O_RDWR));
	}
	lstat("/proc/self/ns/pid", &st);
	T(st.st_mode);
	stat("/proc/self/ns", &st);
	T(st.st_mode);
}

static void relations(void)
{
	rights();
	pid_t p = ns_fork(CLONE_NEWPID);
	if (p == 0) {
		int fd = open("/proc/self/ns/uts", O_RDONLY);
		/* /proc is the outer one's, and has a number for it. */
		T(fd < 0);
		ms(100);
		_exit(0);
	}
	/* It has said so by then. */
	ms(50);
	char path[64];
	sprintf(path, "/proc/%d/ns/pid", p);
	int fd = open(path, O_RDONLY);
	int parent = ioctl(fd, NS_GET_PARENT);
	Y(parent >= 0);
	struct stat a, b;
	fstat(parent, &a);
	stat("/proc/self/ns/pid", &b);
	Y(a.st_ino == b.st_ino);
	int owner = ioctl(fd, NS_GET_USERNS);
	Y(owner >= 0);
	fstat(owner, &a);
	stat("/proc/self/ns/user", &b);
	Y(a.st_ino == b.st_ino);
	int uts = open("/proc/self/ns/uts", O_RDONLY);
	T(ioctl(uts, NS_GET_PARENT));
	T(finish(p));
}

static void line(const char *path, const char *key)
{
	FILE *f = fopen(path, "r");
	char buf[256];
	while (f && fgets(buf, sizeof buf, f))
		if (!strncmp(buf, key, strlen(key)))
			bytes(key, buf, strlen(buf) - 1);
	if (f)
		fclose(f);
}

static void mounted(void)
{
	rights();
	pid_t p = ns_fork(CLONE_NEWPID | CLONE_NEWNS);
	if (p == 0) {
		pid_t q = ns_fork(CLONE_NEWPID);
		if (q == 0) {
			pause();
			_exit(0);
		}
		mount(NULL, "/", NULL, 0x44000, NULL);
		mkdir("proc", 0755);
		T(mount("proc", "proc", "proc", 0, NULL));
		char b[64] = "";
		T(readlink("proc/self", b, 63));
		S(b, strlen(b));
		DIR *d = opendir("proc");
		struct dirent *e;
		while ((e = readdir(d)))
			if (e->d_name[0] >= '0' && e->d_name[0] <= '9')
				say("entry", "%s", e->d_name);
		closedir(d);
		line("proc/1/status", "Pid:");
		line("proc/1/status", "PPid:");
		line("proc/1/status", "NSpid:");
		line("proc/2/status", "NSpid:");
		line("proc/2/status", "NStgid:");
		line("proc/2/status", "PPid:");
		line("proc/2/stat", "2 (pidns) S 1 0 0");
		T(access("proc/3", F_OK));
		T(access("proc/2/task/2", F_OK));
		T(access("proc/2/task/1", F_OK));
		kill(2, SIGKILL);
		T(finish(2));
		T(umount2("proc", 2));
		_exit(0);
	}
	T(finish(p));
}

/* What an ordinary user sees of a mount of proc. Process 2 is root's. */
static void ordinary(void)
{
	struct stat st;
	int seen = 0, others = 0;
	if (setgroups(0, NULL) || setresgid(1000, 1000, 1000) || setresuid(1000, 1000, 1000))
		_exit(errno);
	DIR *d = opendir("proc");
	for (struct dirent *e; d && (e = readdir(d));)
		if (e->d_name[0] >= '0' && e->d_name[0] <= '9')
			seen++;
		else
			others += e->d_name[0] != '.';
	say("processes", "%d %s", seen, others == 2 ? "alone" : "with files");
	T(stat("proc/2", &st));
	T(open("proc/2", O_RDONLY));
	T(open("proc/2/status", O_RDONLY));
	T(open("proc/2/task/2/status", O_RDONLY));
	T(open("proc/self/status", O_RDONLY));
	T(access("proc/uptime", F_OK));
}

static void look(const char *options)
{
	char b[512] = "";
	say("options", "%s", options);
	if (mount("proc", "proc", "proc", 0, options)) {
		say("mount", "%s", strerrorname_np(errno));
		return;
	}
	FILE *f = fopen("/proc/self/mounts", "r");
	while (f && fgets(b, sizeof b, f))
		if (strstr(b, "/proc proc rw") && !strstr(b, " /proc proc"))
			say("shown", "%s", strstr(b, " proc rw"));
	if (f)
		fclose(f);
	T(CHILD(ordinary()));
	T(access("proc/2/status", R_OK));
	T(mount("", "proc", "", MS_REMOUNT, "hidepid=0"));
	T(CHILD(setresuid(1000, 1000, 1000); T(access("proc/2/status", R_OK))));
	T(umount2("proc", 2));
}

static void hidden(void)
{
	static const char *const options[] = { "hidepid=0", "hidepid=1", "hidepid=2", "hidepid=4", "hidepid=invisible,gid=1000", "hidepid=ptraceable,gid=1000", "hidepid=noaccess", "subset=pid", "hidepid=3", "hidepid=no", "subset=all", "colour=red" };
	rights();
	pid_t p = ns_fork(CLONE_NEWPID | CLONE_NEWNS);
	if (p == 0) {
		if (fork() == 0) {
			pause();
			_exit(0);
		}
		mount(NULL, "/", NULL, 0x44000, NULL);
		mkdir("proc", 0755);
		for (size_t i = 0; i < sizeof options / sizeof *options; i++)
			look(options[i]);
		_exit(0);
	}
	T(finish(p));
}

static int processes(DIR *d)
{
	int n = 0;
	rewinddir(d);
	for (struct dirent *e; (e = readdir(d));)
		n += e->d_name[0] >= '0' && e->d_name[0] <= '9';
	return n;
}

/* The zombies of others are hidden, too; a listing is the reader's, and a remount all or nothing. */
static void hidden_more(void)
{
	rights();
	pid_t p = ns_fork(CLONE_NEWPID | CLONE_NEWNS);
	if (p == 0) {
		pid_t z = fork();
		if (z == 0)
			_exit(3);
		siginfo_t si;
		waitid(P_PID, z, &si, WEXITED | WNOWAIT);
		mount(NULL, "/", NULL, 0x44000, NULL);
		mkdir("proc", 0755);
		T(mount("proc", "proc", "proc", 0, "hidepid=2"));
		DIR *d = opendir("proc");
		T(processes(d));
		T(access("proc/2/stat", F_OK));
		T(CHILD(
			setresgid(1000, 1000, 1000), setgroups(0, NULL), setresuid(1000, 1000, 1000);
			prctl(PR_SET_DUMPABLE, 1);
			T(access("proc/1", F_OK));
			T(access("proc/2", F_OK));
			T(processes(d));
			pid_t own = fork();
			if (own == 0)
				_exit(4);
			waitid(P_PID, own, &si, WEXITED | WNOWAIT);
			T(access("proc/4", F_OK));
			T(processes(d))));
		T(mount("", "proc", "", MS_REMOUNT, "hidepid=0,colour=red"));
		T(CHILD(setresgid(1000, 1000, 1000), setgroups(0, NULL), setresuid(1000, 1000, 1000); T(access("proc/1", F_OK)); T(access("proc/2", F_OK))));
		T(mount("", "proc", "", MS_REMOUNT, "hidepid=1"));
		T(CHILD(setresgid(1000, 1000, 1000), setgroups(0, NULL), setresuid(1000, 1000, 1000); T(access("proc/2", F_OK)); T(access("proc/2/stat", F_OK))));
		_exit(0);
	}
	T(finish(p));
}

/* Mount namespaces, each of which is mounted in the one before, as far as that goes: all end with the first. */
static void chained(void)
{
	enum { LENGTH = 1500 };
	char x = 0, path[64];
	rights();
	put("f", "");
	char *file = realpath("f", NULL);
	pid_t first = fork();
	if (first == 0) {
		int done[2], up[2], down[2];
		pipe(done);
		unshare(CLONE_NEWNS);
		mount(NULL, "/", NULL, 0x44000, NULL);
		for (int level = 0;; level++) {
			pipe(up), pipe(down);
			pid_t p = fork();
			if (p == 0) {
				x = unshare(CLONE_NEWNS) ? errno : 0;
				umount(file);
				write(up[1], &x, 1), read(down[0], &x, 1);
				close(up[0]), close(up[1]), close(down[0]), close(down[1]);
				if (!x && level < LENGTH)
					continue;
				write(done[1], "x", 1);
				_exit(0);
			}
			read(up[0], &x, 1);
			sprintf(path, "/proc/%d/ns/mnt", p);
			if (!x && mount(path, file, NULL, MS_BIND, NULL))
				x = errno;
			write(down[1], &x, 1);
			if (level == 0)
				read(done[0], &x, 1);
			_exit(0);
		}
	}
	T(finish(first));
	ms(500);
	T(unshare(CLONE_NEWNS));
}

static void messages(void)
{
	rights();
	int sv[2], on = 1;
	T(socketpair(AF_UNIX, SOCK_DGRAM, 0, sv));
	setsockopt(sv[0], SOL_SOCKET, SO_PASSCRED, &on, sizeof on);
	setsockopt(sv[1], SOL_SOCKET, SO_PASSCRED, &on, sizeof on);
	pid_t p = ns_fork(CLONE_NEWPID);
	char buf[8], ctl[128];
	struct iovec io = { buf, 8 };
	struct msghdr m = { .msg_iov = &io, .msg_iovlen = 1, .msg_control = ctl };
	if (p == 0) {
		write(sv[1], "in", 2);
		ms(100);
		m.msg_controllen = sizeof ctl;
		T(recvmsg(sv[1], &m, 0));
		struct cmsghdr *c = CMSG_FIRSTHDR(&m);
		T(((struct ucred *)CMSG_DATA(c))->pid);
		/* A claim, in the own numbers. */
		struct ucred me = { 1, getuid(), getgid() };
		m.msg_controllen = CMSG_SPACE(sizeof me);
		c->cmsg_level = SOL_SOCKET, c->cmsg_type = SCM_CREDENTIALS, c->cmsg_len = CMSG_LEN(sizeof me);
		memcpy(CMSG_DATA(c), &me, sizeof me);
		io.iov_len = 2;
		/* Told after what the other end has to say of it. */
		long sent = sendmsg(sv[1], &m, 0);
		ms(150);
		T(sent);
		ms(100);
		int fd = open("lock", O_RDWR | O_CREAT, 0600);
		fcntl(fd, F_SETOWN, 1);
		T(fcntl(fd, F_GETOWN));
		T(fcntl(fd, F_SETOWN, 2));
		T(fcntl(fd, F_SETOWN, -1));
		pause();
	}
	m.msg_controllen = sizeof ctl;
	T(recvmsg(sv[0], &m, 0));
	Y(((struct ucred *)CMSG_DATA(CMSG_FIRSTHDR(&m)))->pid == p);
	write(sv[0], "out", 3);
	m.msg_controllen = sizeof ctl;
	T(recvmsg(sv[0], &m, 0));
	Y(((struct ucred *)CMSG_DATA(CMSG_FIRSTHDR(&m)))->pid == p);
	ms(600);
	kill(p, SIGKILL);
	T(finish(p));
}

static void siblings(void)
{
	rights();
	/* A sender that is not to be seen has no number; and a pidfd does not reach aside. */
	int pi[2];
	pipe(pi);
	pid_t p = ns_fork(CLONE_NEWPID);
	if (p == 0) {
		struct sigaction a = { .sa_sigaction = handler, .sa_flags = SA_SIGINFO };
		sigaction(SIGUSR1, &a, NULL);
		from = -1;
		write(pi[1], "x", 1);
		while (!got)
			pause();
		T(from);
		_exit(0);
	}
	char c;
	read(pi[0], &c, 1);
	int fd = syscall(SYS_pidfd_open, p, 0);
	pid_t q = ns_fork(CLONE_NEWPID);
	if (q == 0) {
		T(syscall(SYS_pidfd_send_signal, fd, SIGUSR1, NULL, 0));
		_exit(0);
	}
	T(finish(q));
	kill(p, SIGKILL);
	T(finish(p));
}

static void threads(void)
{
	rights();
	pid_t p = ns_fork(CLONE_NEWPID);
	if (p == 0) {
		pthread_t t;
		pthread_create(&t, NULL, (void *(*)(void *))syscall, (void *)SYS_gettid);
		void *tid;
		pthread_join(t, &tid);
		T((long)tid);
		/* A group lives on without its leader's process; the number stays in use. */
		pid_t c = fork();
		if (c == 0) {
			setpgid(0, 0);
			if (fork() == 0) {
				ms(100);
				_exit(getpgrp());
			}
			_exit(0);
		}
		T(finish(c));
		int st;
		T(wait(&st));
		T(WEXITSTATUS(st));
		_exit(0);
	}
	T(finish(p));
}

static const struct check list[] = {
	CHECK(numbers), CHECK(unshared), CHECK(nested), CHECK(init_signals), CHECK(orphans), CHECK(flags),
	CHECK(by_root), CHECK(entering), CHECK(files), CHECK(relations), CHECK(mounted), CHECK(hidden), CHECK(hidden_more), CHECK(chained), CHECK(messages),
	CHECK(siblings), CHECK(threads),
};
MAIN(list)
