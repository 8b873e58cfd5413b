/* Control groups, version 2: the tree and the core's files. The pids controller is not everywhere on Linux: what is
 * checked of it prints the same line where it is not there. */
#define AREA "cgroups"
#include "check.h"
#include "groups.h"
#include <linux/sched.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/fanotify.h>
#include <sys/inotify.h>

static int set(const char *name, const char *text)
{
	return write_text(at(name), text);
}

static int setn(const char *name, long n)
{
	char b[32];
	sprintf(b, "%ld\n", n);
	return set(name, b);
}

static const char *get(const char *name)
{
	static char b[2][1024];
	static int i;
	i ^= 1;
	int fd = open(at(name), O_RDONLY);
	int n = fd < 0 ? -1 : read(fd, b[i], 1023);
	if (n < 0)
		n = sprintf(b[i], "-1 %s", strerrorname_np(errno));
	b[i][n] = 0;
	close(fd);
	return b[i];
}

static void show(const char *name)
{
	const char *t = get(name);
	bytes(name, t, strlen(t));
}

static pid_t child(void)
{
	pid_t p = fork();
	if (p == 0) {
		while (1)
			pause();
	}
	return p;
}

static void tree(void)
{
	if (geteuid() || !ready())
		return;
	show("cgroup.events");
	show("cgroup.type");
	show("cgroup.procs");
	show("cgroup.max.depth");
	show("cgroup.max.descendants");
	show("cgroup.freeze");
	show("cgroup.subtree_control");
	T(open(at("cgroup.kill"), O_RDONLY) >= 0);
	T(access(at("../cgroup.events"), F_OK));
	T(access(at("../cgroup.freeze"), F_OK));
	T(access(at("../cgroup.procs"), F_OK));
	T(mkdir(path, 0755));
	T(mkdir(at("a"), 0755));
	T(mkdir(at("a/b"), 0755));
	T(mkdir(at("new\nline"), 0755));
	T(mkdir(at("cgroup.procs"), 0755));
	T(strncmp(get("cgroup.stat"), "nr_descendants 2\n", 17));
	T(rmdir(at("a")));
	T(unlink(at("a/b")));
	T(unlink(at("cgroup.procs")));
	T(rmdir(at("cgroup.procs")));
	T(open(at("file"), O_CREAT | O_WRONLY, 0644));
	T(set("cgroup.max.descendants", "2"));
	T(mkdir(at("x"), 0755));
	T(set("cgroup.max.descendants", "max"));
	T(set("cgroup.max.depth", "1"));
	T(mkdir(at("a/x"), 0755));
	T(mkdir(at("x"), 0755));
	show("cgroup.max.depth");
	T(set("cgroup.max.depth", "x"));
	struct stat st;
	T(stat(path, &st));
	T(st.st_nlink);
	T(st.st_mode);
	T(stat(at("cgroup.procs"), &st));
	T(st.st_mode);
	T(stat(at("cgroup.kill"), &st));
	T(st.st_mode);
	T(stat(at("cgroup.events"), &st));
	T(st.st_mode);
	int fd = open(at("x"), O_RDONLY | O_DIRECTORY), f = open(at("x/cgroup.events"), O_RDONLY);
	T(rmdir(at("x")));
	char c;
	T(read(f, &c, 1));
	T(openat(fd, "cgroup.procs", O_RDONLY));
	T(mkdirat(fd, "y", 0755));
	T(rmdir(at("a/b")));
	T(rmdir(at("a")));
	T(set("cgroup.subtree_control", "+nothing"));
	T(set("cgroup.type", "domain"));
	done();
}

static void moving(void)
{
	if (geteuid() || !ready())
		return;
	T(mkdir(at("a"), 0755));
	pid_t p = child();
	/* A text ends at its first 0. */
	int procs = open(at("cgroup.procs"), O_WRONLY);
	T(write(procs, "0\0x", 3));
	T(write(procs, "\0", 1));
	close(procs);
	set("../cgroup.procs", "0");
	T(setn("a/cgroup.procs", p));
	Y(atoi(get("a/cgroup.procs")) == p);
	Y(atoi(get("a/cgroup.threads")) == p);
	show("cgroup.procs");
	show("cgroup.events");
	show("a/cgroup.events");
	T(rmdir(at("a")));
	char f[64], b[256] = "", want[300];
	sprintf(f, "/proc/%d/cgroup", p);
	int fd = open(f, O_RDONLY);
	read(fd, b, 255);
	char *v2 = strstr(b, "0::");
	v2[strcspn(v2, "\n")] = 0;
	sprintf(want, "%s/a", strstr(path, "/c/") + 2);
	Y(strlen(v2) > strlen(want) - 1 && !strcmp(v2 + strlen(v2) - strlen(want), want));
	T(set("a/cgroup.procs", "x"));
	T(set("a/cgroup.procs", "999999999"));
	T(set("a/cgroup.procs", "-5"));
	T(set("cgroup.procs", "0"));
	Y(atoi(get("cgroup.procs")) == getpid());
	/* Children begin where their parents are. */
	pid_t q = child();
	T(kill(q, SIGKILL));
	T(waitpid(q, NULL, 0) == q);
	T(setn("a/cgroup.threads", getpid()));
	T(setn("cgroup.threads", getpid()));
	kill(p, SIGKILL);
	siginfo_t i;
	waitid(P_PID, p, &i, WEXITED | WNOWAIT);
	show("a/cgroup.events");
	show("a/cgroup.procs");
	T(setn("cgroup.procs", p));
	T(rmdir(at("a")));
	waitpid(p, NULL, 0);
	done();
}

static void born_into(void)
{
	if (geteuid() || !ready())
		return;
	int fd = open(path, O_RDONLY | O_DIRECTORY);
	struct clone_args a = { .flags = CLONE_INTO_CGROUP, .exit_signal = SIGCHLD, .cgroup = fd };
	pid_t p = syscall(SYS_clone3, &a, sizeof a);
	if (p == 0) {
		Y(atoi(get("cgroup.procs")) == getpid());
		_exit(0);
	}
	T(waitpid(p, NULL, 0) == p);
	T(syscall(SYS_clone3, &a, 64));
	a.cgroup = open("/dev/null", O_RDONLY);
	T(syscall(SYS_clone3, &a, sizeof a));
	a.cgroup = 12345;
	T(syscall(SYS_clone3, &a, sizeof a));
	a.cgroup = fd;
	done();
	T(syscall(SYS_clone3, &a, sizeof a));
}

static void killing(void)
{
	if (geteuid() || !ready())
		return;
	T(mkdir(at("a"), 0755));
	pid_t p = child(), q = child();
	T(setn("cgroup.procs", p));
	T(setn("a/cgroup.procs", q));
	T(set("cgroup.kill", "0"));
	T(set("cgroup.kill", "2"));
	T(set("cgroup.kill", "x"));
	T(set("cgroup.kill", "1"));
	int st;
	T(waitpid(p, &st, 0) == p && WTERMSIG(st) == SIGKILL);
	T(waitpid(q, &st, 0) == q && WTERMSIG(st) == SIGKILL);
	show("cgroup.events");
	T(rmdir(at("a")));
	done();
}

static volatile int *shared;

static void freezing(void)
{
	if (geteuid() || !ready())
		return;
	shared = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	T(mkdir(at("a"), 0755));
	pid_t p = fork();
	if (p == 0) {
		while (1)
			(*shared)++, usleep(100);
	}
	pid_t q = child();
	T(setn("a/cgroup.procs", p));
	T(setn("a/cgroup.procs", q));
	ms(20);
	T(set("cgroup.freeze", "1"));
	ms(200);
	show("cgroup.freeze");
	show("a/cgroup.freeze");
	show("cgroup.events");
	show("a/cgroup.events");
	int n = *shared;
	ms(50);
	Y(n > 0 && *shared == n);
	T(set("a/cgroup.freeze", "1"));
	T(set("cgroup.freeze", "0"));
	ms(100);
	show("cgroup.events");
	show("a/cgroup.events");
	Y(*shared == n);
	T(set("a/cgroup.freeze", "0"));
	ms(100);
	show("a/cgroup.events");
	Y(*shared > n);
	/* What is moved in is frozen; out, it goes on. A frozen one can be killed. */
	T(mkdir(at("b"), 0755));
	T(set("b/cgroup.freeze", "1"));
	show("b/cgroup.events");
	T(setn("b/cgroup.procs", p));
	ms(100);
	n = *shared;
	ms(50);
	Y(*shared == n);
	T(setn("cgroup.procs", p));
	ms(100);
	Y(*shared > n);
	T(setn("b/cgroup.procs", p));
	ms(50);
	T(kill(p, SIGKILL));
	int st;
	T(waitpid(p, &st, 0) == p && WTERMSIG(st) == SIGKILL);
	T(kill(q, SIGKILL));
	T(waitpid(q, &st, 0) == q);
	T(set("cgroup.freeze", "2"));
	T(set("cgroup.freeze", "x"));
	T(rmdir(at("a")));
	T(rmdir(at("b")));
	done();
}

static void namespace(void)
{
	if (geteuid() || !ready())
		return;
	T(mkdir(at("a"), 0755));
	pid_t p = fork();
	if (p == 0) {
		T(set("a/cgroup.procs", "0"));
		T(unshare(CLONE_NEWCGROUP));
		char b[256] = "";
		int fd = open("/proc/self/cgroup", O_RDONLY);
		read(fd, b, 255);
		char *v2 = strstr(b, "0::");
		v2[strcspn(v2, "\n")] = 0;
		S(v2, strlen(v2));
		close(fd);
		mkdir("in", 0755);
		T(mount("c", "in", "cgroup2", 0, NULL));
		T(access("in/cgroup.events", F_OK));
		T(mkdir("in/below", 0755));
		T(access(at("a/below"), F_OK));
		/* Out of its root is out of sight. */
		T(set("cgroup.procs", "0"));
		fd = open("in/below/cgroup.procs", O_WRONLY);
		T(write(fd, "0", 1));
		fd = open("/proc/self/cgroup", O_RDONLY);
		memset(b, 0, sizeof b);
		read(fd, b, 255);
		v2 = strstr(b, "0::");
		v2[strcspn(v2, "\n")] = 0;
		S(v2, strlen(v2));
		_exit(0);
	}
	T(waitpid(p, NULL, 0) == p);
	T(rmdir(at("a/below")));
	T(rmdir(at("a")));
	done();
}

static void pids(void)
{
	if (geteuid() || !ready())
		return;
	int good = 0, all = 0;
	prctl(PR_SET_CHILD_SUBREAPER, 1);
#define G(e) do { all++; if (e) good++; else fprintf(stderr, "pids: not %s\n", #e); } while (0)
	if (strstr(get("../cgroup.controllers"), "pids")) {
		G(access(at("pids.max"), F_OK) && set("../cgroup.subtree_control", "+pids") == 0);
		G(!strcmp(get("../cgroup.subtree_control"), "pids\n") && !strcmp(get("cgroup.controllers"), "pids\n"));
		G(!strcmp(get("pids.max"), "max\n") && !strcmp(get("pids.current"), "0\n"));
		G(set("pids.max", "x") == -1 && errno == EINVAL);
		G(set("pids.max", "-1") == -1 && errno == EINVAL);
		G(set("pids.max", "3") == 0 && !strcmp(get("pids.max"), "3\n"));
		pid_t p = fork();
		if (p == 0) {
			set("cgroup.procs", "0");
			pid_t a = child(), b = child(), c = fork();
			int e = errno;
			_exit(a > 0 && b > 0 && c == -1 && e == EAGAIN ? 0 : 1);
		}
		int st;
		waitpid(p, &st, 0);
		G(WIFEXITED(st) && WEXITSTATUS(st) == 0);
		G(!strcmp(get("pids.events"), "max 1\n") && !strcmp(get("pids.current"), "2\n"));
		G(!strcmp(get("pids.peak"), "3\n"));
		G(set("cgroup.kill", "1") == 0);
		for (int i = 0; i < 100 && strncmp(get("cgroup.events"), "populated 0", 11); i++)
			ms(10);
		/* Until it is waited for, a process counts. */
		G(!strcmp(get("pids.current"), "2\n"));
		while (waitpid(-1, NULL, 0) > 0) {}
		G(!strcmp(get("pids.current"), "0\n"));
		/* Threads count, too. */
		p = fork();
		if (p == 0) {
			set("cgroup.procs", "0");
			pthread_t t[3];
			int n = 0;
			for (int i = 0; i < 3; i++)
				n += pthread_create(&t[i], NULL, (void *(*)(void *))pause, NULL) == 0;
			_exit(n);
		}
		waitpid(p, &st, 0);
		G(WEXITSTATUS(st) == 2);
		G(!strncmp(get("cgroup.procs"), "", 1));
		/* Inherited: a limit above holds below. */
		G(mkdir(at("a"), 0755) == 0 && access(at("a/pids.max"), F_OK) == -1);
		G(set("cgroup.subtree_control", "+pids") == 0 && access(at("a/pids.max"), F_OK) == 0);
		G(set("pids.max", "1") == 0);
		p = fork();
		if (p == 0) {
			set("a/cgroup.procs", "0");
			_exit(fork() == -1 && errno == EAGAIN ? 0 : 1);
		}
		waitpid(p, &st, 0);
		G(WEXITSTATUS(st) == 0);
		G(!strcmp(get("a/pids.events"), "max 0\n") && !strcmp(get("pids.events"), "max 3\n"));
		G(set("../cgroup.subtree_control", "-pids") == -1 && errno == EBUSY);
		G(set("cgroup.subtree_control", "-pids") == 0 && access(at("a/pids.max"), F_OK) == -1);
		G(rmdir(at("a")) == 0);
		set("../cgroup.subtree_control", "-pids");
	}
	Y(good == all);
	done();
}

/* What poll(2) says of a file, of what is told of changes: after a moment. */
static int told(int fd, int wait)
{
	struct pollfd p = { fd, POLLIN | POLLPRI };
	struct pollfd changed = { fd, POLLPRI };
	poll(&changed, 1, wait);
	poll(&p, 1, 0);
	return p.revents;
}

static int reread(int fd)
{
	char b[256];
	return pread(fd, b, sizeof b, 0) > 0;
}

static int modified(int ino)
{
	char b[4096];
	int n = read(ino, b, sizeof b), all = 0;
	for (char *e = b; n > 0 && e < b + n; e += sizeof(struct inotify_event) + ((struct inotify_event *)e)->len)
		all |= ((struct inotify_event *)e)->mask & IN_MODIFY;
	return all;
}

/* cgroup.events tells when it changes: by poll, by epoll, by inotify. */
static void changes(void)
{
	if (geteuid() || !ready())
		return;
	T(mkdir(at("a"), 0755));
	int fd = open(at("a/cgroup.events"), O_RDONLY), above = open(at("cgroup.events"), O_RDONLY);
	int other = open(at("a/cgroup.procs"), O_RDONLY);
	T(told(fd, 0));
	Y(reread(fd) && reread(above) && told(above, 0) == POLLIN);
	T(told(fd, 0));
	T(told(other, 0));
	reread(other);
	int ino = inotify_init1(IN_NONBLOCK);
	Y(inotify_add_watch(ino, at("a/cgroup.events"), IN_MODIFY) > 0);
	int ep = epoll_create1(0);
	struct epoll_event e = { EPOLLPRI | EPOLLET, { .u32 = 7 } };
	T(epoll_ctl(ep, EPOLL_CTL_ADD, fd, &e));
	pid_t p = child();
	T(setn("a/cgroup.procs", p));
	T(told(fd, 1000));
	T(told(above, 1000));
	ms(50);
	Y(modified(ino) == IN_MODIFY);
	T(epoll_wait(ep, &e, 1, 1000));
	T(e.events);
	Y(reread(fd));
	T(told(fd, 0));
	/* A second process changes nothing, nor does its end. */
	ms(50);
	pid_t q = child();
	T(setn("a/cgroup.procs", q));
	kill(q, SIGKILL);
	waitpid(q, NULL, 0);
	ms(50);
	T(told(fd, 0));
	Y(modified(ino) == 0);
	T(set("a/cgroup.freeze", "1"));
	T(told(fd, 1000));
	ms(50);
	reread(fd);
	T(told(fd, 0));
	T(set("a/cgroup.freeze", "0"));
	T(told(fd, 1000));
	ms(50);
	reread(fd);
	kill(p, SIGKILL);
	waitpid(p, NULL, 0);
	T(told(fd, 1000));
	Y(modified(ino) == IN_MODIFY);
	T(told(other, 0));
	char b[256] = "";
	pread(fd, b, 255, 0);
	bytes("events", b, strlen(b));
	close(fd), close(above), close(other), close(ino), close(ep);
	/* The file goes with its group; its watch does not, and says nothing. */
	ino = inotify_init1(IN_NONBLOCK);
	Y(inotify_add_watch(ino, at("a/cgroup.events"), IN_MODIFY | IN_DELETE_SELF) > 0);
	T(rmdir(at("a")));
	ms(50);
	char gone[4096];
	int n = read(ino, gone, sizeof gone), last = 0;
	for (char *g = gone; n > 0 && g < gone + n; g += sizeof(struct inotify_event))
		last |= ((struct inotify_event *)g)->mask & (IN_IGNORED | IN_DELETE_SELF);
	T(last);
	T(inotify_rm_watch(ino, 1));
	close(ino);
	done();
}

/* How often a directory's watch says that cgroup.events was modified. */
static int named(int ino)
{
	static char b[1 << 16];
	int n = read(ino, b, sizeof b), all = 0;
	for (char *p = b; n > 0 && p < b + n; p += sizeof(struct inotify_event) + ((struct inotify_event *)p)->len) {
		struct inotify_event *e = (void *)p;
		all += e->mask == IN_MODIFY && e->len && !strcmp(e->name, "cgroup.events");
	}
	return all;
}

/* How many events a group has that this process did not cause, and the kind of the last one's record. */
static int by_others(int g)
{
	static char b[1 << 16] __attribute__((aligned(8)));
	int n = read(g, b, sizeof b), all = 0, kind = 0;
	for (char *p = b; n > 0 && p < b + n; p += ((struct fanotify_event_metadata *)p)->event_len) {
		struct fanotify_event_metadata *m = (void *)p;
		if (m->pid != getpid() && m->mask == FAN_MODIFY) {
			all++;
			kind = m->event_len > 24 ? p[24] : 0;
		}
	}
	return all * 10 + kind;
}

/* Who else hears that cgroup.events changes. */
static void changes_told(void)
{
	if (geteuid() || !ready())
		return;
	T(mkdir(at("a"), 0755));
	int dir = inotify_init1(IN_NONBLOCK), above = inotify_init1(IN_NONBLOCK);
	T(inotify_add_watch(dir, at("a"), IN_ALL_EVENTS));
	T(inotify_add_watch(above, at("."), IN_ALL_EVENTS));
	pid_t p = child();
	T(setn("a/cgroup.procs", p));
	ms(100);
	T(named(dir));
	int fd = open(at("a/cgroup.events"), O_RDONLY);
	T(set("a/cgroup.freeze", "1"));
	ms(100);
	Y(named(dir) > 0);
	T(named(above));
	int paths = fanotify_init(FAN_NONBLOCK, O_RDONLY), files = fanotify_init(FAN_REPORT_FID | FAN_NONBLOCK, 0);
	int names = fanotify_init(FAN_REPORT_DFID_NAME | FAN_NONBLOCK, 0);
	T(fanotify_mark(paths, FAN_MARK_ADD, FAN_MODIFY, AT_FDCWD, at("a/cgroup.events")));
	T(fanotify_mark(files, FAN_MARK_ADD, FAN_MODIFY, AT_FDCWD, at("a/cgroup.events")));
	T(fanotify_mark(names, FAN_MARK_ADD, FAN_MODIFY | FAN_EVENT_ON_CHILD, AT_FDCWD, at("a")));
	T(set("a/cgroup.freeze", "0"));
	ms(100);
	T(by_others(paths));
	T(by_others(files));
	T(by_others(names));
	Y(named(dir) > 0);
	kill(p, SIGKILL);
	waitpid(p, NULL, 0);
	ms(100);
	Y(named(dir) > 0);
	close(fd);
	/* A group's own watches do not end with it. */
	T(rmdir(at("a")));
	ms(50);
	T(inotify_rm_watch(dir, 1));
	close(dir), close(above), close(paths), close(files), close(names);
	done();
}

/* Milliseconds of cpu.stat. */
static long used(const char *dir)
{
	char name[64];
	sprintf(name, "%scpu.stat", dir);
	const char *t = get(name);
	return strncmp(t, "usage_usec ", 11) ? -1 : atol(t + 11) / 1000;
}

static void burn(int milliseconds)
{
	struct timespec t;
	do {
		for (volatile int i = 0; i < 1000000; i++)
			;
		clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
	} while (t.tv_sec * 1000 + t.tv_nsec / 1000000 < milliseconds);
}

static int near(long n, long want)
{
	return n >= want - 20 && n <= want + 60;
}

/* CPU time counts for the group in which it was used, and for those above, also after the end of who used it. */
static void cpu(void)
{
	if (geteuid() || !ready())
		return;
	T(mkdir(at("a"), 0755));
	T(mkdir(at("a/b"), 0755));
	T(access(at("a/cpu.max"), F_OK));
	Y(used("a/") == 0);
	int go[2], st;
	T(pipe(go));
	pid_t p = fork();
	if (p == 0) {
		char c;
		read(go[0], &c, 1);
		burn(200);
		read(go[0], &c, 1);
		burn(300);
		_exit(0);
	}
	T(setn("a/b/cgroup.procs", p));
	write(go[1], "x", 1);
	for (int i = 0; i < 500 && used("a/b/") < 195; i++)
		ms(10);
	Y(near(used("a/b/"), 200) && near(used("a/"), 200) && near(used(""), 200));
	T(setn("a/cgroup.procs", p));
	write(go[1], "x", 1);
	waitpid(p, &st, 0);
	Y(near(used("a/b/"), 200));
	Y(near(used("a/"), 300));
	T(rmdir(at("a/b")));
	Y(near(used("a/"), 300) && near(used(""), 300));
	T(rmdir(at("a")));
	Y(near(used(""), 300));
	done();
}

static int as(int uid, int (*f)(void))
{
	pid_t p = fork();
	if (p == 0) {
		if (setresgid(uid, uid, uid) || setresuid(uid, uid, uid))
			_exit(99);
		_exit(f() < 0 ? errno : 0);
	}
	int st;
	waitpid(p, &st, 0);
	return WEXITSTATUS(st);
}

static int makes(void)
{
	return mkdir(at("a/theirs"), 0755);
}
static int joins(void)
{
	return setn("a/theirs/cgroup.procs", 0);
}
static int enters(void)
{
	return setn("a/cgroup.procs", 0);
}
static int freezes(void)
{
	return set("a/cgroup.freeze", "0");
}
static int gives(void)
{
	return chown(at("a/theirs"), 0, -1);
}
static int opens_up(void)
{
	return chmod(at("a/theirs/cgroup.procs"), 0666);
}
static int removes(void)
{
	return rmdir(at("a/theirs"));
}

/* A subtree is handed to a user by chown(2), as cgroup-v2.rst's delegation has it. */
static void delegation(void)
{
	if (geteuid() || !ready())
		return;
	T(mkdir(at("a"), 0755));
	T(as(1000, makes));
	T(chown(at("a"), 1000, 1000));
	T(chown(at("a/cgroup.procs"), 1000, 1000));
	T(chown(at("a/cgroup.subtree_control"), 1000, -1));
	struct stat st;
	T(stat(at("a"), &st));
	T(st.st_mode);
	T(st.st_uid);
	T(st.st_gid);
	T(stat(at("a/cgroup.subtree_control"), &st));
	T(st.st_mode);
	T(st.st_uid);
	T(st.st_gid);
	T(as(1000, makes));
	T(stat(at("a/theirs/cgroup.freeze"), &st));
	T(st.st_mode);
	T(st.st_uid);
	T(st.st_gid);
	/* Who comes from outside must be let in by the group above both. */
	T(as(1000, enters));
	T(as(1000, joins));
	T(as(1000, freezes));
	T(as(1000, gives));
	T(as(1000, opens_up));
	T(stat(at("a/theirs/cgroup.procs"), &st));
	T(st.st_mode);
	T(chmod(at("a"), 0700));
	T(stat(at("a"), &st));
	T(st.st_mode);
	T(as(1001, removes));
	T(as(1000, removes));
	T(chmod(at("a/cgroup.events"), 0400));
	T(stat(at("a/cgroup.events"), &st));
	T(st.st_mode);
	T(rmdir(at("a")));
	T(mkdir(at("a"), 0755));
	T(stat(at("a"), &st));
	T(st.st_mode);
	T(st.st_uid);
	T(rmdir(at("a")));
	done();
}

static const struct check list[] = {
	CHECK(tree), CHECK(moving), CHECK(born_into), CHECK(killing), CHECK(freezing), CHECK(namespace), CHECK(pids),
	CHECK(changes), CHECK(changes_told), CHECK(cpu), CHECK(delegation),
};
MAIN(list)
