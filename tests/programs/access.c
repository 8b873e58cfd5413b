/* Who may do what to whom. Needs root (others skip it), and a place where set-user-id bits count.
 *
 * `matrix`: each actor does each call to each target, and to files and System V objects. The other checks are about
 * moments: a program with more rights that starts while others look, signal, or share something with it. */
#define AREA "access"
#include "check.h"
#include <grp.h>
#include <linux/capability.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/auxv.h>
#include <sys/fsuid.h>
#include <sys/mount.h>
#include <sys/msg.h>
#include <sys/sem.h>
#include <sys/shm.h>
#include <sys/xattr.h>

enum { A = 1000, B = 1001 };
static char dir[] = "/var/tmp/access-XXXXXX";
static char program[64], text[4096];

/* ---- Programs with owners: copies of this one. `--wait` tells that it runs, and sleeps. */

static void copy(const char *to, int uid, int gid, int mode)
{
	int in = open("/proc/self/exe", O_RDONLY), out = open(to, O_CREAT | O_TRUNC | O_WRONLY, 0700);
	char b[65536];
	for (int n; (n = read(in, b, sizeof b)) > 0;)
		write(out, b, n);
	close(in);
	if (fchown(out, uid, gid) || fchmod(out, mode))
		say("copy", "failed: %s", strerrorname_np(errno));
	close(out);
}

static int begin(void)
{
	if (geteuid() != 0) {
		say("root", "skipped");
		return 0;
	}
	if (!mkdtemp(dir) || chmod(dir, 0755) || chdir(dir)) {
		say("mkdtemp", "failed");
		return 0;
	}
	setgroups(0, NULL);
	/* What root has here and there. */
	struct __user_cap_header_struct h = { _LINUX_CAPABILITY_VERSION_3, 0 };
	struct __user_cap_data_struct d[2];
	syscall(SYS_capget, &h, d);
	d[0].effective = d[0].permitted &= ~(1u << 24);
	prctl(PR_CAPBSET_DROP, 24);
	if (syscall(SYS_capset, &h, d))
		say("capset", "failed: %s", strerrorname_np(errno));
	sprintf(program, "%s/prog", dir);
	return 1;
}

static void end(void)
{
	chdir("/");
	nftw(dir, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

static void ids(int uid, int gid)
{
	setresgid(gid, gid, gid);
	setresuid(uid, uid, uid);
	prctl(PR_SET_DUMPABLE, 1);
}

static void keep(int uid, uint64_t caps)
{
	struct __user_cap_header_struct h = { _LINUX_CAPABILITY_VERSION_3, 0 };
	struct __user_cap_data_struct d[2] = { { caps, caps, 0 }, { caps >> 32, caps >> 32, 0 } };
	prctl(PR_SET_KEEPCAPS, 1);
	setresgid(uid, uid, uid);
	setresuid(uid, uid, uid);
	if (syscall(SYS_capset, &h, d))
		say("capset", "failed: %s", strerrorname_np(errno));
	prctl(PR_SET_DUMPABLE, 1);
}

static void own_namespace(void)
{
	char t[50];
	sprintf(t, "0 %d 1", A);
	ids(A, A);
	if (unshare(CLONE_NEWUSER) || write_text("/proc/self/uid_map", t) ||
	    write_text("/proc/self/setgroups", "deny") || write_text("/proc/self/gid_map", t))
		say("unshare", "failed: %s", strerrorname_np(errno));
}

static void run(const char *p, int ready)
{
	dup2(ready, 9);
	execl(p, p, "--wait", NULL);
	_exit(97);
}

static pid_t started(void (*as)(int))
{
	int p[2];
	char c;
	if (pipe(p))
		return -1;
	pid_t child = fork();
	if (!child) {
		alarm(20);
		close(p[0]);
		setpgid(0, 0);
		as(p[1]);
		write(p[1], "!", 1);
		close(p[1]);
		for (;;)
			pause();
	}
	close(p[1]);
	read(p[0], &c, 1);
	close(p[0]);
	return child;
}

static void finished(pid_t p)
{
	kill(p, SIGKILL);
	waitpid(p, NULL, 0);
}

/* ---- The matrix */

static void as_root(int r) { (void)r; }
static void as_a(int r) { (void)r; ids(A, A); }
static void as_b(int r) { (void)r; ids(B, B); }
static void as_a_group_b(int r) { (void)r; ids(A, B); }
static void as_capable(int r) { (void)r; keep(A, 1 << 5 | 1 << 19 | 1 << 23); }
static void as_hidden(int r) { (void)r; ids(A, A); prctl(PR_SET_DUMPABLE, 0); }
static void as_inside(int r) { (void)r; own_namespace(); }
static void as_mixed(int r) { (void)r; setresgid(A, A, A); setresuid(B, A, A); prctl(PR_SET_DUMPABLE, 1); }
static void as_powerless(int r) { (void)r; keep(0, 0); }
static void as_overriding(int r) { (void)r; keep(A, 1 << 1 | 1 << 21); }
static void as_suid(int r) { ids(A, A); run("suid", r); }
static void as_sgid(int r) { ids(A, A); run("sgid", r); }
static void as_unreadable(int r) { ids(A, A); run("unreadable", r); }
static void as_plain(int r) { ids(A, A); run("plain", r); }
static void as_nnp(int r) { ids(A, A); prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); run("suid", r); }
static void as_inside_suid(int r) { own_namespace(); run("suid", r); }
static void as_inside_plain(int r) { own_namespace(); run("plain", r); }
static void as_inside_unreadable(int r) { own_namespace(); run("unreadable", r); }

struct who { const char *name; void (*as)(int); };
static const struct who actors[] = {
	{ "root", as_root }, { "a", as_a }, { "b", as_b }, { "capable", as_capable }, { "inside", as_inside },
	{ "mixed", as_mixed }, { "powerless", as_powerless },
};
static const struct who targets[] = {
	{ "root", as_root }, { "a", as_a }, { "b", as_b }, { "a:b", as_a_group_b }, { "capable", as_capable },
	{ "hidden", as_hidden }, { "inside", as_inside }, { "mixed", as_mixed }, { "suid", as_suid },
	{ "sgid", as_sgid }, { "unreadable", as_unreadable }, { "plain", as_plain }, { "nnp", as_nnp },
	{ "inside-suid", as_inside_suid }, { "inside-plain", as_inside_plain },
	{ "inside-unreadable", as_inside_unreadable },
};

static char line[4096];
static void note(const char *what, long r)
{
	int e = errno;
	sprintf(line + strlen(line), " %s=%s", what, r >= 0 ? "ok" : strerrorname_np(e));
}
#define N(name, e) do { errno = 0; note(name, (long)(e)); } while (0)

static void flush(const char *who, const char *whom, const char *what)
{
	char h[100];
	sprintf(h, "%s>%s %s", who, whom, what);
	say(h, "%s", line);
	line[0] = 0;
}

static void signals_to(pid_t p)
{
	siginfo_t i = { 0 };
	i.si_signo = SIGURG;
	i.si_code = SI_QUEUE;
	int f = syscall(SYS_pidfd_open, p, 0);
	N("kill0", kill(p, 0));
	N("kill", kill(p, SIGURG));
	N("cont", kill(p, SIGCONT));
	N("tgkill", syscall(SYS_tgkill, p, p, SIGURG));
	N("queue", syscall(SYS_rt_sigqueueinfo, p, SIGURG, &i));
	N("tgqueue", syscall(SYS_rt_tgsigqueueinfo, p, p, SIGURG, &i));
	N("pidfd", syscall(SYS_pidfd_send_signal, f, SIGURG, NULL, 0));
	N("group", kill(-p, SIGURG));
	N("setpgid", setpgid(p, p));
	N("getpgid", getpgid(p));
	N("getsid", getsid(p));
	close(f);
}

static void memory_of(pid_t p)
{
	struct iovec l = { text, 1 }, r = { (void *)0x1000, 1 };
	void *head;
	size_t n;
	int f = syscall(SYS_pidfd_open, p, 0);
	N("vm_read", syscall(SYS_process_vm_readv, p, &l, 1, &r, 1, 0));
	N("vm_write", syscall(SYS_process_vm_writev, p, &l, 1, &r, 1, 0));
	N("getfd", syscall(SYS_pidfd_getfd, f, 1, 0));
	N("robust", syscall(SYS_get_robust_list, p, &head, &n));
	N("setns", syscall(SYS_setns, f, CLONE_NEWUTS));
	close(f);
}

static void schedule(pid_t p)
{
	struct sched_param s = { 0 };
	struct rlimit l;
	unsigned long cpu = 1;
	struct __user_cap_header_struct h = { _LINUX_CAPABILITY_VERSION_3, p };
	struct __user_cap_data_struct d[2];
	N("getsched", sched_getscheduler(p));
	N("batch", sched_setscheduler(p, SCHED_BATCH, &s));
	N("other", sched_setscheduler(p, SCHED_OTHER, &s));
	N("idle", sched_setscheduler(p, SCHED_IDLE, &s));
	N("unidle", sched_setscheduler(p, SCHED_OTHER, &s));
	N("param", sched_setparam(p, &s));
	N("affinity", syscall(SYS_sched_setaffinity, p, sizeof cpu, &cpu));
	N("nice+", setpriority(PRIO_PROCESS, p, 5));
	N("nice-", setpriority(PRIO_PROCESS, p, 3));
	N("ioprio", syscall(SYS_ioprio_set, 1, p, 2 << 13 | 4));
	N("prlimit", prlimit(p, RLIMIT_CORE, NULL, &l));
	l.rlim_cur = 0;
	N("setlimit", prlimit(p, RLIMIT_CORE, &l, NULL));
	N("capget", syscall(SYS_capget, &h, d));
}

static long reads(pid_t p, const char *name)
{
	sprintf(text, "/proc/%d/%s", p, name);
	int f = open(text, O_RDONLY), e;
	long r = f < 0 ? -1 : strcmp(name, "mem") ? read(f, text, 1) : 0;
	e = errno;
	close(f);
	errno = e;
	return r;
}

static long writes(pid_t p, const char *name, const char *what)
{
	sprintf(text, "/proc/%d/%s", p, name);
	return write_text(text, what);
}

static void proc_of(pid_t p)
{
	static const char *const files[] = {
		"environ", "auxv", "maps", "smaps", "smaps_rollup", "mem", "io", "personality", "status", "stat",
		"statm", "cmdline", "limits", "comm", "cgroup", "mountinfo", "fdinfo/1", "uid_map", "oom_score_adj",
	};
	static const char *const links[] = { "cwd", "root", "exe", "fd/1", "ns/user", "ns/mnt" };
	for (size_t i = 0; i < sizeof files / sizeof *files; i++)
		N(files[i], reads(p, files[i]));
	for (size_t i = 0; i < sizeof links / sizeof *links; i++) {
		sprintf(text, "/proc/%d/%s", p, links[i]);
		N(links[i], readlink(text, line + 3000, 100));
		sprintf(text, "/proc/%d/%s", p, links[i]);
		int f = open(text, O_PATH);
		N("open", f);
		close(f);
	}
	char task[40];
	sprintf(task, "task/%d/comm", p);
	N("comm=", writes(p, "comm", "x"));
	N("task/comm=", writes(p, task, "x"));
	N("oom+", writes(p, "oom_score_adj", "500"));
	N("oom-", writes(p, "oom_score_adj", "100"));
	N("oom--", writes(p, "oom_score_adj", "-100"));
	N("uid_map=", writes(p, "uid_map", "0 0 1"));
	N("setgroups=", writes(p, "setgroups", "deny"));
}

/* Whose the files are, and whether `stat` tells where things lie. */
static void owners_of(pid_t p)
{
	static const char *const files[] = { "", "environ", "fd", "fdinfo", "task", "ns", "exe", "maps", "status" };
	struct stat s;
	for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
		sprintf(text, "/proc/%d/%s", p, files[i]);
		int r = lstat(text, &s);
		sprintf(line + strlen(line), " %s=%d:%d", files[i], r ? -1 : (int)s.st_uid, r ? -1 : (int)s.st_gid);
	}
	sprintf(text, "/proc/%d/stat", p);
	FILE *f = fopen(text, "r");
	long long v = -1;
	if (f && fgets(text, sizeof text, f)) {
		char *at = strrchr(text, ')');
		for (int i = 2; at && i < 26; i++)
			at = strchr(at + 1, ' ');
		v = at ? atoll(at) : -2;
	}
	sprintf(line + strlen(line), " code=%s", v > 1 ? "shown" : "hidden");
	if (f)
		fclose(f);
}

static void matrix(void)
{
	if (!begin())
		return;
	copy("plain", 0, 0, 0755);
	copy("suid", B, B, 04755);
	copy("sgid", 0, B, 02755);
	copy("unreadable", 0, 0, 0711);
	for (size_t i = 0; i < sizeof actors / sizeof *actors; i++)
		for (size_t k = 0; k < sizeof targets / sizeof *targets; k++) {
			pid_t t = started(targets[k].as);
			CHILD(
				const char *me = actors[i].name; const char *it = targets[k].name;
				actors[i].as(-1);
				signals_to(t); flush(me, it, "signals");
				memory_of(t); flush(me, it, "memory");
				schedule(t); flush(me, it, "scheduling");
				proc_of(t); flush(me, it, "proc");
				owners_of(t); flush(me, it, "owners"));
			finished(t);
		}
	end();
}

/* ---- Files: each actor to files of each kind. */

struct object { const char *name; int uid, gid, mode; };
static const struct object objects[] = {
	{ "root-644", 0, 0, 0644 }, { "root-666", 0, 0, 0666 }, { "a-600", A, A, 0600 }, { "a-644", A, A, 0644 },
	{ "b-660", B, A, 0660 }, { "b-006", B, B, 0606 }, { "a-suid", A, A, 04755 }, { "b-sgid", B, A, 02775 },
	{ "a-000", A, A, 0 }, { "b-070", B, A, 0070 },
};

static void made(const char *at, const struct object *o)
{
	unlink(at);
	int f = open(at, O_CREAT | O_EXCL | O_RDWR, 0600);
	if (f < 0 || write(f, "x", 1) != 1 || fchown(f, o->uid, o->gid) || fchmod(f, o->mode))
		say("made", "failed: %s", strerrorname_np(errno));
	fsetxattr(f, "user.x", "1", 1, 0);
	close(f);
}

static long opens(const char *p, int flags)
{
	int f = open(p, flags, 0600), e = errno;
	close(f);
	errno = e;
	return f;
}

static void touch_file(const char *p, const char *d)
{
	char n[100];
	struct timespec old[2] = { { 1, 0 }, { 2, 0 } };
	N("read", opens(p, O_RDONLY));
	N("write", opens(p, O_WRONLY));
	N("rdwr", opens(p, O_RDWR));
	N("noatime", opens(p, O_RDONLY | O_NOATIME));
	N("access", faccessat(AT_FDCWD, p, R_OK | W_OK, AT_EACCESS));
	N("x", faccessat(AT_FDCWD, p, X_OK, AT_EACCESS));
	N("real", access(p, R_OK));
	N("getxattr", getxattr(p, "user.x", n, 1));
	N("setxattr", setxattr(p, "user.y", "1", 1, 0));
	N("trusted", setxattr(p, "trusted.y", "1", 1, 0));
	N("security", setxattr(p, "security.y", "1", 1, 0));
	N("times", utimensat(AT_FDCWD, p, old, 0));
	N("now", utimensat(AT_FDCWD, p, NULL, 0));
	N("same", chown(p, -1, -1));
	N("chgrp", chown(p, -1, A));
	N("chmod", chmod(p, 0640));
	N("chown", chown(p, A, -1));
	sprintf(n, "%s/link", d);
	N("link", link(p, n));
	sprintf(n, "%s/moved", d);
	N("rename", rename(p, n));
	N("unlink", unlink(n));
}

static void files(void)
{
	static const struct object dirs[] = {
		{ "open", 0, 0, 0777 }, { "sticky", 0, 0, 01777 }, { "sticky-b", B, B, 01777 }, { "closed", A, A, 0755 },
	};
	if (!begin())
		return;
	for (size_t i = 0; i < sizeof actors / sizeof *actors; i++)
		for (size_t k = 0; k < sizeof dirs / sizeof *dirs; k++)
			for (size_t o = 0; o < sizeof objects / sizeof *objects; o++) {
				char p[100];
				mkdir("d", 0700);
				sprintf(p, "d/%s", objects[o].name);
				made(p, &objects[o]);
				chown("d", dirs[k].uid, dirs[k].gid);
				chmod("d", dirs[k].mode);
				CHILD(actors[i].as(-1); touch_file(p, "d");
				      strcat(strcpy(p, dirs[k].name), "/"); flush(actors[i].name, strcat(p, objects[o].name), "file"));
				nftw("d", remove_one, 16, FTW_DEPTH | FTW_PHYS);
			}
	end();
}

/* What a write, and all that counts as one, leaves of set-id bits and file capabilities. */
static void left_of(const char *what, const struct object *o, void (*as)(int), long (*change)(const char *))
{
	struct stat s;
	char n[60];
	made("f", o);
	setxattr("f", "security.capability", "\1\0\0\2\0\4\0\0\0\0\0\0\0\0\0\0\0\0\0\0", 20, 0);
	int r = CHILD(as(-1); _exit(change("f") < 0 ? errno : 0));
	stat("f", &s);
	sprintf(n, "%s %s", what, o->name);
	say(n, "%d %o %s", r, s.st_mode & 07777, getxattr("f", "security.capability", n + 40, 20) > 0 ? "capable" : "plain");
	unlink("f");
}

static long change_write(const char *p) { return write_text(p, "y"); }
static long change_nothing(const char *p) { return write_text(p, ""); }
static long change_truncate(const char *p) { return truncate(p, 5); }
static long change_same(const char *p) { return truncate(p, 1); }
static long change_opened(const char *p) { return opens(p, O_WRONLY | O_TRUNC); }
static long change_ftruncate(const char *p) { return ftruncate(open(p, O_RDWR), 3); }
static long change_allocate(const char *p) { return fallocate(open(p, O_RDWR), 0, 0, 9000); }
static long change_keep(const char *p) { return fallocate(open(p, O_RDWR), FALLOC_FL_KEEP_SIZE, 0, 9000); }
static long change_punch(const char *p)
{
	return fallocate(open(p, O_RDWR), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, 4096);
}
static long change_chown(const char *p) { return chown(p, -1, -1); }
static long change_group(const char *p) { return chown(p, -1, A); }
static long change_mode(const char *p) { return chmod(p, 07777); }
static long change_copy(const char *p)
{
	int in = open("in", O_RDONLY);
	return copy_file_range(in, NULL, open(p, O_RDWR), NULL, 1, 0);
}
static long change_vector(const char *p)
{
	struct iovec v = { "z", 1 };
	return pwritev(open(p, O_RDWR), &v, 1, 0);
}
static long change_mapped(const char *p)
{
	char *m = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, open(p, O_RDWR), 0);
	return m == MAP_FAILED ? -1 : (*m = 'q', msync(m, 4096, MS_SYNC));
}

static void privileges_of_files(void)
{
	static const struct object kinds[] = {
		{ "06777", B, B, 06777 }, { "06767", B, B, 06767 }, { "a-06777", A, A, 06777 }, { "b:a-02777", B, A, 02777 },
		{ "b:a-02767", B, A, 02767 }, { "0777", B, B, 0777 },
	};
	static const struct { const char *name; long (*f)(const char *); } changes[] = {
		{ "write", change_write }, { "nothing", change_nothing }, { "truncate", change_truncate },
		{ "same size", change_same }, { "O_TRUNC", change_opened }, { "ftruncate", change_ftruncate },
		{ "fallocate", change_allocate }, { "keep size", change_keep }, { "punch", change_punch },
		{ "chown", change_chown }, { "chgrp", change_group }, { "chmod", change_mode }, { "copy", change_copy },
		{ "pwritev", change_vector }, { "mapped", change_mapped },
	};
	if (!begin())
		return;
	put("in", "text");
	for (size_t c = 0; c < sizeof changes / sizeof *changes; c++)
		for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++) {
			char n[60];
			sprintf(n, "a %s", changes[c].name);
			left_of(n, &kinds[k], as_a, changes[c].f);
			sprintf(n, "root %s", changes[c].name);
			left_of(n, &kinds[k], as_root, changes[c].f);
			sprintf(n, "inside %s", changes[c].name);
			left_of(n, &kinds[k], as_inside, changes[c].f);
		}
	end();
}

/* Whose rights count is who writes, not who opened. */
static void written_by_another(void)
{
	static const struct object kinds[] = { { "", B, B, 06777 }, { "", 0, 0, 04755 } };
	if (!begin())
		return;
	put("in", "text");
	for (int how = 0; how < 7; how++)
		for (int k = 0; k < 2; k++) {
			struct stat s;
			made("f", &kinds[k]);
			int f = open("f", O_RDWR);
			CHILD(
				ids(A, A);
				if (how == 0) write(f, "y", 1);
				if (how == 1) ftruncate(f, 4);
				if (how == 2) fallocate(f, 0, 0, 100);
				if (how == 3) pwrite(f, "y", 1, 1);
				int in = open("in", O_RDONLY);
				int q[2];
				if (how == 4) sendfile(f, in, NULL, 2);
				if (how == 5) copy_file_range(in, NULL, f, NULL, 2, 0);
				if (how == 6 && !pipe(q) && write(q[1], "xy", 2)) splice(q[0], NULL, f, NULL, 2, 0));
			fstat(f, &s);
			T(s.st_mode & 07777);
			close(f);
			unlink("f");
		}
	end();
}

/* `fs.protected_*`: what Linux does at the level that is set here, which another machine has otherwise. */
static int level(const char *name)
{
	char p[100], b[8] = "0";
	sprintf(p, "/proc/sys/fs/protected_%s", name);
	int f = open(p, O_RDONLY);
	read(f, b, 7);
	close(f);
	return atoi(b);
}

static int refused(const char *what, long r, int expected)
{
	int e = r < 0 ? errno : 0;
	if (e != expected)
		say(what, "%s instead of %s", strerrorname_np(e), strerrorname_np(expected));
	return e == expected;
}

static int tries(const char *name, void (*as)(int), int expected, long (*f)(const char *), const char *path)
{
	int r = CHILD(as(-1); errno = 0; _exit(!refused(name, f(path), expected)));
	return r == 0;
}

static long follows(const char *p) { return opens(p, O_RDONLY); }
static long reopens(const char *p) { return opens(p, O_RDWR | O_CREAT | O_NONBLOCK); }
static long plainly(const char *p) { return opens(p, O_RDWR | O_NONBLOCK); }
static long exclusively(const char *p) { return opens(p, O_RDWR | O_CREAT | O_EXCL); }
static long links(const char *p) { char n[100]; sprintf(n, "own/%d", getuid()); unlink(n); return link(p, n); }
static long through(const char *p) { char n[100]; sprintf(n, "%s/file", p); return opens(n, O_RDONLY); }

static void sticky(void)
{
	static const struct { const char *name; int uid; int mode; } dirs[] = {
		{ "shared", 0, 01777 }, { "mine", A, 01777 }, { "loose", 0, 0777 }, { "group", 0, 01775 },
	};
	int bad = 0;
	if (!begin())
		return;
	int l = level("symlinks"), h = level("hardlinks"), r = level("regular"), f = level("fifos");
	mkdir("own", 0777);
	chmod("own", 0777);
	put("target", "x");
	for (size_t i = 0; i < sizeof dirs / sizeof *dirs; i++)
		mkdir(dirs[i].name, 0700), chmod(dirs[i].name, 0755);
	for (size_t i = 0; i < sizeof dirs / sizeof *dirs; i++) {
		char p[5][100];
		static const char *const n[] = { "link", "regular", "fifo", "socket", "dirlink" };
		chown(dirs[i].name, dirs[i].uid, A);
		chmod(dirs[i].name, dirs[i].mode);
		for (int k = 0; k < 5; k++)
			sprintf(p[k], "%s/%s", dirs[i].name, n[k]);
		symlink("../target", p[0]);
		put(p[1], "x");
		mkfifo(p[2], 0666);
		mknod(p[3], S_IFSOCK | 0666, 0);
		symlink("../loose", p[4]);
		put("loose/file", "x");
		for (int k = 0; k < 5; k++) {
			lchown(p[k], B, B);
			if (k > 0 && k < 4)
				chmod(p[k], 0666);
		}
		int trap = (dirs[i].mode & 01002) == 01002;
		int group = (dirs[i].mode & 01022) == 01020;
		void (*all[])(int) = { as_root, as_a, as_b };
		for (int a = 0; a < 3; a++) {
			int other = a != 2;
			bad += !tries("symlink", all[a], trap && other && l ? EACCES : 0, follows, p[0]);
			bad += !tries("on the way", all[a], 0, through, p[4]);
			bad += !tries("regular", all[a], other && (trap && r || group && r > 1) ? EACCES : 0, reopens, p[1]);
			bad += !tries("regular plainly", all[a], 0, plainly, p[1]);
			bad += !tries("exclusively", all[a], EEXIST, exclusively, p[1]);
			bad += !tries("fifo", all[a], other && (trap && f || group && f > 1) ? EACCES : 0, reopens, p[2]);
			bad += !tries("socket", all[a], trap && other ? EACCES : ENXIO, reopens, p[3]);
			bad += !tries("hard link", all[a], 0, links, p[1]);
			bad += !tries("link of fifo", all[a], a == 1 && h ? EPERM : 0, links, p[2]);
			bad += !tries("link of link", all[a], a == 1 && h ? EPERM : 0, links, p[0]);
			chmod(p[1], 04666);
			bad += !tries("link of set-uid", all[a], a == 1 && h ? EPERM : 0, links, p[1]);
			chmod(p[1], 0644);
			bad += !tries("link of unwritable", all[a], a == 1 && h ? EPERM : 0, links, p[1]);
			chmod(p[1], 0666);
		}
	}
	Y(bad == 0);
	T(access("/proc/sys/fs/protected_symlinks", F_OK));
	/* They are the machine's root's, by its number. */
	static void (*const whom[])(int) = { as_a, as_inside, as_overriding, as_powerless };
	for (int i = 0; i < 4; i++) {
		T(CHILD(whom[i](-1); _exit(opens("/proc/sys/fs/protected_symlinks", O_RDONLY) < 0 ? errno : 0)));
		T(CHILD(whom[i](-1); _exit(opens("/proc/sys/fs/protected_symlinks", O_WRONLY) < 0 ? errno : 0)));
	}
	end();
}

/* File systems that show a namespace's belong to who owns that namespace. */
static void mounts(void)
{
	static const char *const types[] = { "mqueue", "proc", "tmpfs", "cgroup2", "devpts" };
	static const struct { const char *name; int flags; } spaces[] = {
		{ "none", 0 }, { "ipc", CLONE_NEWIPC }, { "net", CLONE_NEWNET }, { "pid", CLONE_NEWPID },
		{ "cgroup", CLONE_NEWCGROUP },
	};
	if (!begin())
		return;
	for (size_t i = 0; i < sizeof spaces / sizeof *spaces; i++) {
		for (size_t k = 0; k < sizeof types / sizeof *types; k++) {
			int r = CHILD(
				own_namespace();
				if (unshare(CLONE_NEWNS | spaces[i].flags))
					_exit(200);
				_exit(CHILD(_exit(mount("x", "/proc", types[k], 0, NULL) ? errno : 0))));
			sprintf(line + strlen(line), " %s=%s", types[k], strerrorname_np(r));
		}
		flush("inside", spaces[i].name, "mount");
	}
	end();
}

/* POSIX ACLs, which only Linux can set: natively files are made beside this program, in a sandbox they are there. */
struct entry { uint16_t tag, bits; uint32_t id; };
static void listed(const char *p, int uid, int gid, const struct entry *e, int n)
{
	char raw[4 + 8 * 8] = { 2 };
	memcpy(raw + 4, e, n * sizeof *e);
	chown(p, uid, gid);
	if (setxattr(p, "system.posix_acl_access", raw, 4 + n * sizeof *e, 0))
		say("setxattr", "failed: %s", strerrorname_np(errno));
}

static void as_group_b(int r) { (void)r; gid_t g = B; setgroups(1, &g); ids(1002, 1002); }
static void as_nobody(int r) { (void)r; ids(1003, 1003); }

static void acl(void)
{
	enum { USER = 2, GROUP = 8, MASK = 16, OTHER = 32 };
	static const struct entry lists[][7] = {
		{ { 1, 6, -1 }, { USER, 6, A }, { 4, 4, -1 }, { MASK, 6, -1 }, { OTHER, 0, -1 } },
		{ { 1, 6, -1 }, { USER, 6, A }, { 4, 4, -1 }, { MASK, 4, -1 }, { OTHER, 0, -1 } },
		{ { 1, 6, -1 }, { USER, 0, A }, { 4, 4, -1 }, { MASK, 4, -1 }, { OTHER, 4, -1 } },
		{ { 1, 6, -1 }, { 4, 0, -1 }, { GROUP, 6, B }, { MASK, 6, -1 }, { OTHER, 4, -1 } },
		{ { 1, 7, -1 }, { USER, 7, A }, { 4, 0, -1 }, { GROUP, 5, B }, { MASK, 7, -1 }, { OTHER, 0, -1 } },
		{ { 1, 0, -1 }, { USER, 7, A }, { 4, 7, -1 }, { MASK, 0, -1 }, { OTHER, 7, -1 } },
	};
	static const struct who whom[] = {
		{ "root", as_root }, { "a", as_a }, { "b", as_b }, { "group b", as_group_b }, { "nobody", as_nobody },
		{ "inside", as_inside }, { "capable", as_overriding },
	};
	enum { COUNT = sizeof lists / sizeof *lists };
	char base[200], p[300], q[300];
	int n = readlink("/proc/self/exe", base, sizeof base - 10);
	if (geteuid() != 0 || n < 0) {
		say("root", "skipped");
		return;
	}
	base[n] = 0;
	strcpy(strrchr(base, '/'), "/acl");
	setgroups(0, NULL);
	sprintf(p, "%s/probe", base);
	mkdir(base, 0755);
	put(p, "x");
	if (!setxattr(p, "system.posix_acl_access", "\2\0\0", 4, 0) || errno == EINVAL)
		for (int i = 0; i < COUNT; i++) {
			int k = 0;
			while (k < 7 && lists[i][k].tag)
				k++;
			sprintf(p, "%s/file%d", base, i);
			put(p, "x");
			listed(p, i == 5 ? A : 0, B, lists[i], k);
			sprintf(p, "%s/dir%d", base, i);
			mkdir(p, 0755);
			sprintf(q, "%s/inner", p);
			put(q, "x");
			chmod(q, 0644);
			listed(p, 0, B, lists[i], k);
		}
	/* As they are; then changed by root, which keeps the list and moves its mask. */
	static const int modes[] = { -1, 0640, 0666, 0060 };
	for (int m = 0; m < 4; m++)
		for (int i = 0; i < COUNT; i++) {
			sprintf(p, "%s/file%d", base, i);
			sprintf(q, "%s/dir%d/inner", base, i);
			struct stat s;
			stat(p, &s);
			if (m && m != i % 4)
				continue;
			if (m)
				chmod(p, modes[m]);
			for (size_t w = 0; w < sizeof whom / sizeof *whom; w++)
				CHILD(
					char at[20];
					whom[w].as(-1);
					N("read", opens(p, O_RDONLY));
					N("write", opens(p, O_WRONLY));
					N("x", faccessat(AT_FDCWD, p, X_OK, AT_EACCESS));
					N("in", opens(q, O_RDONLY));
					N("real", access(p, R_OK));
					*strrchr(q, '/') = 0;
					N("list", opens(q, O_RDONLY | O_DIRECTORY));
					strcat(q, "/new");
					N("make", opens(q, O_RDWR | O_CREAT));
					unlink(q);
					sprintf(at, "list%d", i);
					flush(whom[w].name, at, m ? "changed" : "as it is"));
			if (m)
				chmod(p, s.st_mode & 07777);
		}
}

/* ---- System V objects, and credentials over sockets. */

static void sysv(void)
{
	static const int modes[] = { 0600, 0660, 0666, 0640 };
	if (!begin())
		return;
	for (size_t i = 0; i < sizeof actors / sizeof *actors; i++)
		for (size_t m = 0; m < sizeof modes / sizeof *modes; m++)
			for (int owner = 0; owner < 2; owner++) {
				int q = -1, s = -1, h = -1;
				CHILD(_exit(0));
				setresgid(owner ? B : A, owner ? B : A, 0);
				setresuid(-1, owner ? B : A, 0);
				q = msgget(IPC_PRIVATE, modes[m]);
				s = semget(IPC_PRIVATE, 1, modes[m]);
				h = shmget(IPC_PRIVATE, 4096, modes[m]);
				setresuid(0, 0, 0);
				setresgid(0, 0, 0);
				CHILD(
					struct msqid_ds d; struct semid_ds e; struct shmid_ds g; char w[40];
					struct sembuf up = { 0, 1, IPC_NOWAIT };
					struct { long t; char c; } b = { 1, 'x' };
					actors[i].as(-1);
					N("msgstat", msgctl(q, IPC_STAT, &d));
					N("snd", msgsnd(q, &b, 1, IPC_NOWAIT));
					N("rcv", msgrcv(q, &b, 1, 0, IPC_NOWAIT));
					N("semval", semctl(s, 0, GETVAL));
					N("semset", semctl(s, 0, SETVAL, 1));
					N("semop", semop(s, &up, 1));
					N("semstat", semctl(s, 0, IPC_STAT, &e));
					N("shmro", (long)shmat(h, NULL, SHM_RDONLY));
					N("shmrw", (long)shmat(h, NULL, 0));
					N("shmstat", shmctl(h, IPC_STAT, &g));
					N("lock", shmctl(h, SHM_LOCK, NULL));
					N("semset", semctl(s, 0, IPC_SET, &e));
					N("shmrm", shmctl(h, IPC_RMID, NULL));
					N("semrm", semctl(s, 0, IPC_RMID));
					N("msgrm", msgctl(q, IPC_RMID, NULL));
					sprintf(w, "%s-%o", owner ? "b" : "a", modes[m]);
					flush(actors[i].name, w, "sysv"));
				shmctl(h, IPC_RMID, NULL);
				semctl(s, 0, IPC_RMID);
				msgctl(q, IPC_RMID, NULL);
			}
	end();
}

static long claims(int s, int pid, int uid, int gid)
{
	char b[CMSG_SPACE(sizeof(struct ucred))] = { 0 };
	struct iovec v = { "x", 1 };
	struct msghdr m = { .msg_iov = &v, .msg_iovlen = 1, .msg_control = b, .msg_controllen = sizeof b };
	struct cmsghdr *c = CMSG_FIRSTHDR(&m);
	c->cmsg_level = SOL_SOCKET;
	c->cmsg_type = SCM_CREDENTIALS;
	c->cmsg_len = CMSG_LEN(sizeof(struct ucred));
	*(struct ucred *)CMSG_DATA(c) = (struct ucred){ pid, uid, gid };
	return sendmsg(s, &m, 0);
}

static void sockets(void)
{
	if (!begin())
		return;
	for (size_t i = 0; i < sizeof actors / sizeof *actors; i++)
		CHILD(
			int s[2]; struct ucred u; socklen_t n = sizeof u; char w[60];
			socketpair(AF_UNIX, SOCK_DGRAM, 0, s);
			actors[i].as(-1);
			N("own", claims(s[0], getpid(), getuid(), getgid()));
			N("effective", claims(s[0], getpid(), geteuid(), getegid()));
			N("a", claims(s[0], getpid(), A, A));
			N("b", claims(s[0], getpid(), B, B));
			N("root", claims(s[0], getpid(), 0, 0));
			N("init", claims(s[0], 1, getuid(), getgid()));
			N("nobody", claims(s[0], 0, getuid(), getgid()));
			socketpair(AF_UNIX, SOCK_STREAM, 0, s);
			getsockopt(s[0], SOL_SOCKET, SO_PEERCRED, &u, &n);
			sprintf(w, "%d:%d", u.uid, u.gid);
			flush(actors[i].name, w, "socket"));
	end();
}

/* ---- Programs with more rights. `--tell` exits with what it got. */

static int tell(void)
{
	struct __user_cap_header_struct h = { _LINUX_CAPABILITY_VERSION_3, 0 };
	struct __user_cap_data_struct d[2];
	syscall(SYS_capget, &h, d);
	return (geteuid() != getuid()) | (getegid() != getgid()) << 1 | (d[0].permitted != 0) << 2 |
	       (d[0].effective != 0) << 3 | prctl(PR_GET_DUMPABLE) << 4 | (int)getauxval(AT_SECURE) << 5;
}

static void owned_programs(void)
{
	copy("plain", 0, 0, 0755);
	copy("suid", B, B, 04755);
	copy("suid-root", 0, 0, 04755);
	copy("sgid", 0, B, 02755);
	copy("sgid-no-x", 0, B, 02745);
	copy("both", B, B, 06755);
	copy("own", A, A, 06755);
	copy("unreadable", 0, 0, 0711);
}

static void as_effective(int r) { (void)r; setresgid(A, B, B); setresuid(A, B, B); }
static void as_real_root(int r) { (void)r; setresuid(0, A, A); }
static void as_few(int r) { (void)r; keep(0, 1 << 5); }
static void as_setuid(int r) { (void)r; keep(A, 1 << 7); }

static void raised(void)
{
	static const char *const programs[] = {
		"plain", "suid", "suid-root", "sgid", "sgid-no-x", "both", "own", "unreadable",
	};
	static const struct who more[] = {
		{ "root", as_root }, { "a", as_a }, { "b", as_b }, { "capable", as_capable }, { "inside", as_inside },
		{ "mixed", as_mixed }, { "powerless", as_powerless }, { "effective", as_effective },
		{ "real root", as_real_root }, { "few", as_few }, { "setuid", as_setuid }, { "a:b", as_a_group_b },
	};
	if (!begin())
		return;
	owned_programs();
	/* 0: as it is; 1: no new privileges; 2: root and working directory shared with another process. */
	for (int how = 0; how < 3; how++)
		for (size_t i = 0; i < sizeof more / sizeof *more; i++) {
			char w[60];
			for (size_t k = 0; k < sizeof programs / sizeof *programs; k++) {
				int st = 0, flags = how == 2 ? CLONE_FS : 0;
				pid_t c = syscall(SYS_clone, flags | SIGCHLD, 0, 0, 0, 0);
				if (!c) {
					more[i].as(-1);
					if (how == 1)
						prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
					execl(programs[k], programs[k], "--tell", NULL);
					_exit(97);
				}
				waitpid(c, &st, 0);
				sprintf(line + strlen(line), " %s=%x", programs[k], WEXITSTATUS(st));
			}
			flush(more[i].name, how == 0 ? "" : how == 1 ? "nnp" : "shared", "exec");
		}
	end();
}

/* Set-id bits count on mounts of one's own namespace only. */
static void as_elsewhere(int r) { (void)r; own_namespace(); unshare(CLONE_NEWNS); }

static void other_mounts(void)
{
	static const char *const programs[] = { "plain", "suid", "sgid", "suid-root" };
	if (!begin())
		return;
	owned_programs();
	pid_t t = started(as_elsewhere);
	for (int i = 0; i < 4; i++) {
		char p[100];
		sprintf(p, "/proc/%d/root%s/%s", t, dir, programs[i]);
		int r = CHILD(ids(A, A); execl(p, p, "--tell", NULL); _exit(97));
		say(programs[i], "%x", r);
		int m = memfd_create("x", 0);
		int in = open(programs[i], O_RDONLY);
		while (sendfile(m, in, NULL, 1 << 20) > 0) {}
		fchown(m, B, B);
		fchmod(m, 06755);
		r = CHILD(ids(A, A); sprintf(p, "/proc/self/fd/%d", m); execl(p, p, "--tell", NULL); _exit(97));
		say("memfd", "%x", r);
	}
	finished(t);
	end();
}

/* A thread makes all others lose what they could gain, while one of them runs a program that gains. The program must
 * not run with rights and with the filter. */
static volatile int go;
static int wait_for;
static void *synchronise(void *x)
{
	struct sock_filter f = BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
	struct sock_fprog prog = { 1, &f };
	(void)x;
	prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
	while (!go) {}
	long long t = 0;
	struct timespec a, b;
	clock_gettime(CLOCK_MONOTONIC, &a);
	do {
		clock_gettime(CLOCK_MONOTONIC, &b);
		t = (b.tv_sec - a.tv_sec) * 1000000LL + (b.tv_nsec - a.tv_nsec) / 1000;
	} while (t < wait_for);
	syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC, &prog);
	for (;;)
		pause();
}

static void filter_and_exec(void)
{
	int bad = 0, strange = 0, neither = 0;
	if (!begin())
		return;
	owned_programs();
	long long until = now_ms() + 6000;
	for (int i = 0; i < 200 && now_ms() < until; i++) {
		wait_for = i % 40 * 100;
		int r = CHILD(
			pthread_t t;
			ids(A, A);
			go = 0;
			pthread_create(&t, NULL, synchronise, NULL);
			ms(1);
			go = 1;
			execl("suid", "suid", "--race", NULL);
			_exit(97));
		bad += r == 3;
		strange += r > 3;
		neither += r == 0;
	}
	Y(bad == 0);
	Y(strange == 0);
	Y(neither == 0);
	end();
}

/* Files in /proc that were opened before the process gained show nothing of what it is now. */
static void opened_before(void)
{
	static const char *const names[] = {
		"environ", "auxv", "maps", "smaps", "smaps_rollup", "mem", "io", "personality", "status", "stat",
		"cmdline", "limits", "comm", "statm", "fdinfo/1",
	};
	enum { COUNT = sizeof names / sizeof *names };
	if (!begin())
		return;
	owned_programs();
	CHILD(
		int p[2]; int q[2]; int f[COUNT]; char c;
		ids(A, A);
		pipe(p); pipe(q);
		pid_t t = fork();
		if (!t) {
			char *argv[] = { "suid", "--wait", NULL };
			char *env[] = { "SECRET=1", NULL };
			read(q[0], &c, 1);
			dup2(p[1], 9);
			execve("suid", argv, env);
			_exit(97);
		}
		sprintf(text, "/proc/%d", t);
		int d = open(text, O_PATH);
		int fds = openat(d, "fd", O_RDONLY | O_DIRECTORY);
		for (int i = 0; i < COUNT; i++)
			f[i] = openat(d, names[i], O_RDONLY);
		write(q[1], "!", 1);
		read(p[0], &c, 1);
		for (int i = 0; i < COUNT; i++) {
			int mem = !strcmp(names[i], "mem");
			errno = 0;
			int n = pread(f[i], text, sizeof text, mem ? 0x400000 : 0);
			sprintf(line + strlen(line), " %s=%s%s", names[i], n < 0 ? strerrorname_np(errno) : n ? "some" : "none",
				n > 0 && memmem(text, n, "SECRET", 6) ? "!" : "");
			close(f[i]);
		}
		flush("a", "suid", "read");
		for (int i = 0; i < COUNT; i++) {
			int g = openat(d, names[i], O_RDONLY);
			note(names[i], g < 0 || !strcmp(names[i], "mem") ? g : read(g, text, 1));
			close(g);
		}
		flush("a", "suid", "open");
		N("fd", getdents64(fds, text, sizeof text));
		N("fd/1", readlinkat(fds, "1", text, 100));
		N("fd/1", openat(fds, "1", O_RDONLY));
		N("exe", readlinkat(d, "exe", text, 100));
		N("exe", openat(d, "exe", O_RDONLY));
		N("ns", readlinkat(d, "ns/mnt", text, 100));
		flush("a", "suid", "links");
		finished(t));
	end();
}

/* The signal of a child's end: `--parent` tells which one came. */
static volatile int came;
static void on_signal(int s) { came = s; }

static int parent(int ready)
{
	signal(SIGUSR1, on_signal);
	signal(SIGCHLD, on_signal);
	write(ready, "!", 1);
	for (int i = 0; i < 500 && !came; i++)
		ms(10);
	return came;
}

static void exit_signal(void)
{
	static const char *const programs[] = { NULL, "plain", "suid" };
	if (!begin())
		return;
	owned_programs();
	for (int i = 0; i < 3; i++) {
		int p[2];
		pipe(p);
		int r = CHILD(
			char c;
			ids(A, A);
			signal(SIGUSR1, on_signal);
			signal(SIGCHLD, on_signal);
			pid_t t = syscall(SYS_clone, SIGUSR1, 0, 0, 0, 0);
			if (!t) {
				read(p[0], &c, 1);
				_exit(0);
			}
			dup2(p[1], 9);
			if (programs[i])
				execl(programs[i], programs[i], "--parent", NULL);
			_exit(parent(9)));
		close(p[0]);
		close(p[1]);
		say(programs[i] ? programs[i] : "none", "%s", r < 65 ? sigabbrev_np(r) : "?");
	}
	/* A child without a signal is an ordinary one after execve. */
	for (int i = 0; i < 2; i++)
		T(CHILD(
			pid_t t = syscall(SYS_clone, 0, 0, 0, 0, 0);
			if (!t) {
				if (i)
					execl("plain", "plain", "--tell", NULL);
				_exit(0);
			}
			siginfo_t s;
			ms(100);
			int st;
			_exit(waitpid(t, &st, 0) == t ? 0 : errno)));
	/* The parent's death is told only if the parent may signal. */
	int p[2];
	pipe(p);
	T(CHILD(
		pid_t m = fork();
		if (!m) {
			pid_t c = fork();
			if (!c) {
				prctl(PR_SET_PDEATHSIG, SIGKILL);
				write(p[1], "1", 1);
				ms(300);
				write(p[1], "2", 1);
				_exit(0);
			}
			char b;
			read(p[0], &b, 1);
			setuid(A);
			_exit(0);
		}
		waitpid(m, NULL, 0);
		char b = 0;
		close(p[1]);
		read(p[0], &b, 1);
		_exit(b)));
	end();
}

/* What makes memory private: `prctl(PR_GET_DUMPABLE)` after changes of ids. */
static void dumpable(void)
{
	if (!begin())
		return;
	T(CHILD(setfsuid(A); _exit(prctl(PR_GET_DUMPABLE))));
	T(CHILD(setfsgid(A); _exit(prctl(PR_GET_DUMPABLE))));
	T(CHILD(seteuid(A); _exit(prctl(PR_GET_DUMPABLE))));
	T(CHILD(setresuid(A, -1, -1); _exit(prctl(PR_GET_DUMPABLE))));
	T(CHILD(setegid(A); prctl(PR_SET_DUMPABLE, 1); _exit(prctl(PR_GET_DUMPABLE))));
	T(CHILD(unshare(CLONE_NEWUSER); _exit(prctl(PR_GET_DUMPABLE))));
	T(CHILD(ids(A, A); unshare(CLONE_NEWUSER); _exit(prctl(PR_GET_DUMPABLE))));
	T(CHILD(gid_t g = A; setgroups(1, &g); _exit(prctl(PR_GET_DUMPABLE))));
	T(CHILD(prctl(PR_SET_DUMPABLE, 0); _exit(CHILD(_exit(prctl(PR_GET_DUMPABLE))))));
	T(CHILD(if (!vfork()) { setfsuid(A); _exit(0); } _exit(prctl(PR_GET_DUMPABLE))));
	T(prctl(PR_SET_DUMPABLE, 2));
	T(CHILD(prctl(PR_SET_PDEATHSIG, 9); setfsuid(A); int s = 1; prctl(PR_GET_PDEATHSIG, &s); _exit(s)));
	end();
}

static const struct check all[] = {
	CHECK(matrix), CHECK(files), CHECK(privileges_of_files), CHECK(written_by_another), CHECK(sticky), CHECK(acl), CHECK(sysv),
	CHECK(sockets), CHECK(mounts), CHECK(raised), CHECK(other_mounts),
	CHECK(filter_and_exec), CHECK(opened_before), CHECK(exit_signal), CHECK(dumpable),
};

int main(int argc, char **argv)
{
	if (argc > 1 && !strcmp(argv[1], "--wait")) {
		alarm(20);
		write(9, "!", 1);
		close(9);
		for (;;)
			pause();
	}
	if (argc > 1 && !strcmp(argv[1], "--tell"))
		return tell();
	if (argc > 1 && !strcmp(argv[1], "--race"))
		return (geteuid() != getuid()) | (prctl(PR_GET_SECCOMP) == 2) << 1;
	if (argc > 1 && !strcmp(argv[1], "--parent"))
		return parent(9);
	return run_all(argc, argv, all, sizeof all / sizeof *all);
}
