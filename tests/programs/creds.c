/* Ids, capabilities, permission checks. What needs root is skipped by others, so run both as the same user. */
#define AREA "creds"
#include "check.h"
#include <grp.h>
#include <linux/capability.h>
#include <sys/fsuid.h>

static void same_ids(void)
{
	uid_t r, e, s;
	gid_t a, b, c;
	T(getresuid(&r, &e, &s));
	Y(r == getuid() && e == geteuid() && s == e);
	T(getresgid(&a, &b, &c));
	Y(a == getgid() && b == getegid() && c == b);
	T(setuid(getuid()));
	T(seteuid(getuid()));
	T(setreuid(-1, -1));
	T(setresuid(-1, -1, -1));
	T(setgid(getgid()));
	T(setresgid(-1, -1, -1));
	T(setuid(-1));
	T(setgid(-1));
	Y(setfsuid(-1) == (int)geteuid());
	Y(setfsgid(-1) == (int)getegid());
	T(syscall(SYS_getresuid, (void *)8, &e, &s));
	T(getgroups(0, NULL) >= 0);
	T(getgroups(-1, NULL));
	T(setgroups(1 << 20, NULL));
}

static void dropped(void)
{
	/* From here on everything is an ordinary user's. */
	drop_root();
	uid_t me = getuid();
	gid_t mine = getgid();
	T(setuid(me));
	T(setuid(0));
	T(seteuid(0));
	T(setreuid(0, -1));
	T(setresuid(-1, -1, 0));
	T(setgid(0));
	T(setresgid(0, 0, 0));
	T(setgroups(0, NULL));
	T(setresuid(me, me, me));
	T(setresgid(mine, mine, mine));
	Y(setfsuid(0) == (int)me);
	Y(setfsuid(-1) == (int)me);
	T(setpriority(PRIO_PROCESS, 0, -5));
	T(chown(".", 0, 0));
	T(mknod("dev", S_IFCHR | 0600, 0x103));
	T(acct(NULL));
	T(swapoff("x"));
	T(umount("/"));
	T(syscall(SYS_pivot_root, "/", "/"));
	struct rlimit r;
	getrlimit(RLIMIT_NOFILE, &r);
	r.rlim_max++;
	T(setrlimit(RLIMIT_NOFILE, &r));
	T(prctl(PR_CAPBSET_DROP, 5));
	T(prctl(PR_SET_SECUREBITS, 1));
}

static long caps(int pid, uint64_t *effective, uint64_t *permitted)
{
	struct __user_cap_header_struct h = { _LINUX_CAPABILITY_VERSION_3, pid };
	struct __user_cap_data_struct d[2];
	memset(d, 0, sizeof d);
	long r = syscall(SYS_capget, &h, d);
	*effective = d[0].effective | (uint64_t)d[1].effective << 32;
	*permitted = d[0].permitted | (uint64_t)d[1].permitted << 32;
	return r;
}

static void capabilities(void)
{
	struct __user_cap_header_struct h = { 0, 0 };
	struct __user_cap_data_struct d[2];
	uint64_t e, p;
	T(syscall(SYS_capget, &h, NULL));
	T(h.version == _LINUX_CAPABILITY_VERSION_3);
	h.version = 12345;
	T(syscall(SYS_capget, &h, d));
	T(caps(0, &e, &p));
	Y((e != 0) == (geteuid() == 0));
	T(caps(999999999, &e, &p));
	T(caps(-1, &e, &p));
	drop_root();
	T(caps(0, &e, &p));
	T(e);
	T(p);
	h.version = _LINUX_CAPABILITY_VERSION_3;
	memset(d, 0, sizeof d);
	T(syscall(SYS_capset, &h, d));
	d[0].effective = d[0].permitted = 1;
	T(syscall(SYS_capset, &h, d));
	h.pid = getppid();
	T(syscall(SYS_capset, &h, d));
	T(prctl(PR_CAPBSET_READ, 0) >= 0);
	T(prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_IS_SET, 0, 0, 0));
	T(prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_RAISE, 0, 0, 0));
	T(prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0));
}

static void as_root(void)
{
	uint64_t e, p;
	if (geteuid() != 0) {
		say("root", "skipped");
		return;
	}
	T(CHILD(_exit(seteuid(1000) == 0 && geteuid() == 1000 && getuid() == 0 && seteuid(0) == 0)));
	T(CHILD(seteuid(1000); caps(0, &e, &p); _exit(e == 0 && p != 0)));
	T(CHILD(setuid(1000); caps(0, &e, &p); _exit(e == 0 && p == 0 && setuid(0) == -1)));
	T(CHILD(prctl(PR_SET_KEEPCAPS, 1); setuid(1000); caps(0, &e, &p); _exit(e == 0 && p != 0)));
	T(CHILD(setresuid(1, 2, 3); uid_t a, b, c; getresuid(&a, &b, &c); _exit(a == 1 && b == 2 && c == 3)));
	T(CHILD(setresuid(1, 2, 3); _exit(setresuid(3, 1, 2) == 0 && setresuid(4, -1, -1) == -1)));
	T(CHILD(setreuid(1, 2); uid_t a, b, c; getresuid(&a, &b, &c); _exit(c == 2)));
	gid_t g[3] = { 30, 10, 20 }, got[8];
	T(CHILD(_exit(setgroups(3, g) == 0 && getgroups(8, got) == 3 && got[0] + got[1] + got[2] == 60)));
	T(CHILD(setgroups(3, g); _exit(getgroups(2, got) == -1 ? errno : 0)));
	close(open("f", O_CREAT | O_RDWR, 0640));
	T(chown("f", 1000, 30));
	T(CHILD(setgroups(3, g); setgid(5); setuid(6); _exit(open("f", O_RDONLY) >= 0 && open("f", O_RDWR) == -1)));
	T(CHILD(setgroups(0, NULL); setgid(5); setuid(6); _exit(open("f", O_RDONLY) == -1 ? errno : 0)));
	T(CHILD(setfsuid(1000); int fd = open("new", O_CREAT | O_RDWR, 0600); struct stat s; fstat(fd, &s); _exit(s.st_uid == 1000)));
	T(CHILD(seteuid(6); _exit(access("f", W_OK) == 0 && faccessat(AT_FDCWD, "f", W_OK, AT_EACCESS) == -1)));
	chmod("f", 06755);
	T(chown("f", 7, 8));
	struct stat s;
	stat("f", &s);
	T(s.st_mode & 07777);
	T(s.st_uid * 100 + s.st_gid);
	/* A set-user-id program; /tmp may be mounted nosuid. */
	char dir[] = "/var/tmp/check-XXXXXX";
	if (!mkdtemp(dir) || chmod(dir, 0755) || chdir(dir))
		say("mkdtemp", "failed");
	int in = open("/bin/sleep", O_RDONLY), out = open("suid", O_CREAT | O_WRONLY, 0755);
	char b[65536];
	for (int n; (n = read(in, b, sizeof b)) > 0;)
		write(out, b, n);
	close(out);
	chown("suid", 1234, 0);
	chmod("suid", 04755);
	T(CHILD(
		pid_t c = fork();
		if (!c) {
			setuid(1000);
			execl("suid", "suid", "5", NULL);
			_exit(9);
		}
		ms(150);
		char path[64];
		sprintf(path, "/proc/%d/status", c);
		FILE *f = fopen(path, "r");
		int r = 0, u, v;
		while (f && fgets(b, sizeof b, f))
			if (sscanf(b, "Uid: %d %d", &u, &v) == 2)
				r = (u == 1000) * 2 + (v == 1234);
		kill(c, SIGKILL);
		_exit(r)));
	T(CHILD(
		pid_t c = fork();
		if (!c) {
			prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
			setuid(1000);
			execl("suid", "suid", "5", NULL);
			_exit(9);
		}
		ms(150);
		char path[64];
		sprintf(path, "/proc/%d/status", c);
		FILE *f = fopen(path, "r");
		int r = 0, u, v;
		while (f && fgets(b, sizeof b, f))
			if (sscanf(b, "Uid: %d %d", &u, &v) == 2)
				r = (u == 1000) * 2 + (v == 1234);
		kill(c, SIGKILL);
		_exit(r)));
	T(CHILD(
		pid_t c = fork();
		if (!c) {
			setuid(1000);
			alarm(1);
			for (;;) pause();
		}
		ms(30);
		unlink("suid");
		rmdir(dir);
		setuid(2000);
		_exit(kill(c, SIGTERM) == -1 ? errno : 0)));
}

static void signals_between_users(void)
{
	drop_root();
	pid_t c = fork();
	if (!c)
		for (;;)
			pause();
	T(kill(c, 0));
	T(kill(c, SIGTERM));
	int st;
	waitpid(c, &st, 0);
	T(WTERMSIG(st));
}

static void inherited(void)
{
	drop_root();
	T(umask(077));
	T(CHILD(_exit(umask(0))));
	T(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0));
	T(CHILD(_exit(prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0))));
	int st;
	pid_t c = fork();
	if (!c) {
		execl("/bin/sh", "sh", "-c", "test $(umask) = 0077 && grep -q 'NoNewPrivs:.1' /proc/self/status", NULL);
		_exit(9);
	}
	waitpid(c, &st, 0);
	T(WEXITSTATUS(st));
	T(prctl(PR_GET_SECUREBITS));
	T(prctl(PR_GET_KEEPCAPS));
}

static const struct check all[] = {
	CHECK(same_ids), CHECK(dropped), CHECK(capabilities), CHECK(as_root), CHECK(signals_between_users),
	CHECK(inherited),
};
MAIN(all)
