/* seccomp(2): modes, filters, what they answer, who inherits them. */
#define AREA "seccomp"
#include "check.h"
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>

#define LOAD(field) BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, field))
#define LOADK(k) BPF_STMT(BPF_LD | BPF_W | BPF_ABS, k)
#define RET(k) BPF_STMT(BPF_RET | BPF_K, k)
/* Answers a for a system call, else allows. */
#define ONLY(n, a) { LOAD(nr), BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, n, 0, 1), RET(a), RET(SECCOMP_RET_ALLOW) }

static long sec(unsigned op, unsigned flags, void *args)
{
	return syscall(SYS_seccomp, op, flags, args);
}

static long install(struct sock_filter *f, unsigned short len, unsigned flags)
{
	struct sock_fprog p = { len, f };
	return sec(SECCOMP_SET_MODE_FILTER, flags, &p);
}
#define INSTALL(...) ({ struct sock_filter f_[] = __VA_ARGS__; install(f_, sizeof f_ / sizeof *f_, 0); })
#define INSTALL_FLAGS(flags, ...) ({ struct sock_filter f_[] = __VA_ARGS__; \
	install(f_, sizeof f_ / sizeof *f_, flags); })

static void nnp(void)
{
	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))
		say("nnp", "failed");
}

static void status(const char *what)
{
	char line[256];
	FILE *f = fopen("/proc/self/status", "r");
	while (f && fgets(line, sizeof line, f))
		if (!strncmp(line, "Seccomp", 7) || !strncmp(line, "NoNewPrivs", 10)) {
			line[strcspn(line, "\n")] = 0;
			say(what, "%s", line);
		}
	if (f)
		fclose(f);
}

static void permission(void)
{
	drop_root();
	T(prctl(PR_GET_SECCOMP));
	T(INSTALL({ RET(SECCOMP_RET_ALLOW) }));
	struct sock_fprog p = { 1, (void *)8 };
	T(sec(SECCOMP_SET_MODE_FILTER, 0, &p));
	T(sec(SECCOMP_SET_MODE_FILTER, 0, (void *)8));
	p.len = 0;
	T(sec(SECCOMP_SET_MODE_FILTER, 0, &p));
	p.len = 4097;
	T(sec(SECCOMP_SET_MODE_FILTER, 0, &p));
	nnp();
	p.len = 1;
	T(sec(SECCOMP_SET_MODE_FILTER, 0, &p));
	T(INSTALL({ RET(SECCOMP_RET_ALLOW) }));
	T(prctl(PR_GET_SECCOMP));
	T(prctl(PR_SET_SECCOMP, SECCOMP_MODE_STRICT));
	T(prctl(PR_SET_SECCOMP, 3));
	status("one");
	struct sock_filter f[] = { RET(SECCOMP_RET_ALLOW) };
	p.filter = f;
	T(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &p));
	status("two");
	T(sec(SECCOMP_SET_MODE_STRICT, 1, NULL));
	T(sec(SECCOMP_SET_MODE_STRICT, 0, &p));
	T(sec(SECCOMP_SET_MODE_FILTER, 1u << 31, &p));
	T(sec(99, 0, NULL));
}

static void malformed(void)
{
	nnp();
	T(INSTALL({ LOADK(0) }));
	T(INSTALL({ LOADK(64), RET(SECCOMP_RET_ALLOW) }));
	T(INSTALL({ LOADK(2), RET(SECCOMP_RET_ALLOW) }));
	T(INSTALL({ BPF_STMT(BPF_LD | BPF_H | BPF_ABS, 0), RET(SECCOMP_RET_ALLOW) }));
	T(INSTALL({ BPF_STMT(BPF_LD | BPF_B | BPF_IND, 0), RET(SECCOMP_RET_ALLOW) }));
	T(INSTALL({ LOADK(SKF_AD_OFF), RET(SECCOMP_RET_ALLOW) }));
	T(INSTALL({ BPF_STMT(BPF_ALU | BPF_DIV | BPF_K, 0), RET(SECCOMP_RET_ALLOW) }));
	T(INSTALL({ BPF_STMT(BPF_ALU | BPF_MOD | BPF_K, 3), RET(SECCOMP_RET_ALLOW) }));
	T(INSTALL({ BPF_STMT(BPF_ALU | BPF_XOR | BPF_K, 3), RET(SECCOMP_RET_ALLOW) }));
	T(INSTALL({ BPF_STMT(BPF_ALU | BPF_LSH | BPF_K, 32), RET(SECCOMP_RET_ALLOW) }));
	T(INSTALL({ BPF_STMT(BPF_ST, 16), RET(SECCOMP_RET_ALLOW) }));
	T(INSTALL({ BPF_STMT(BPF_LD | BPF_MEM, 0), RET(SECCOMP_RET_ALLOW) }));
	T(INSTALL({ BPF_STMT(BPF_ST, 0), BPF_STMT(BPF_LD | BPF_MEM, 0), RET(SECCOMP_RET_ALLOW) }));
	T(INSTALL({ BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, 0, 1, 0), RET(SECCOMP_RET_ALLOW) }));
	T(INSTALL({ BPF_JUMP(BPF_JMP | BPF_JA, 1, 0, 0), RET(SECCOMP_RET_ALLOW) }));
	T(INSTALL({ BPF_JUMP(BPF_JMP | BPF_JA, -2u, 0, 0), RET(SECCOMP_RET_ALLOW) }));
	T(INSTALL({ BPF_STMT(BPF_RET | BPF_X, 0) }));
	T(INSTALL({ { 0xffff, 0, 0, 0 }, RET(SECCOMP_RET_ALLOW) }));
}

static void errnos(void)
{
	nnp();
	T(INSTALL(ONLY(SYS_getuid, SECCOMP_RET_ERRNO | EDOM)));
	T(syscall(SYS_getuid));
	T(syscall(SYS_getgid) >= 0);
	T(INSTALL(ONLY(SYS_getuid, SECCOMP_RET_ERRNO | ERANGE)));
	T(syscall(SYS_getuid));
	T(INSTALL(ONLY(SYS_getgid, SECCOMP_RET_ERRNO | 0)));
	T(syscall(SYS_getgid));
	T(INSTALL(ONLY(SYS_geteuid, SECCOMP_RET_ERRNO | 0xffff)));
	T(syscall(SYS_geteuid) == -4095 || errno == 4095);
	T(INSTALL(ONLY(SYS_getppid, SECCOMP_RET_TRACE | 5)));
	T(syscall(SYS_getppid));
	T(INSTALL(ONLY(SYS_getpgrp, SECCOMP_RET_LOG)));
	T(syscall(SYS_getpgrp) > 0);
	T(INSTALL(ONLY(SYS_getegid, SECCOMP_RET_USER_NOTIF)));
	T(syscall(SYS_getegid));
	/* A number that no system call has. */
	T(INSTALL(ONLY(5000, SECCOMP_RET_ERRNO | EXDEV)));
	T(syscall(5000));
	T(syscall(5001));
	/* Arguments, both halves. */
	T(INSTALL({ LOAD(nr), BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_lseek, 0, 5),
		LOADK(offsetof(struct seccomp_data, args[1])), BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, 0x89abcdef, 0, 3),
		LOADK(offsetof(struct seccomp_data, args[1]) + 4), BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, 0x01234567, 0, 1),
		RET(SECCOMP_RET_ERRNO | EBADE), RET(SECCOMP_RET_ALLOW) }));
	T(syscall(SYS_lseek, 77, 0x0123456789abcdef, 0));
	T(syscall(SYS_lseek, 77, 0x0123456689abcdef, 0));
	T(syscall(SYS_lseek, 77, 0x0123456789abcdee, 0));
	/* Architecture and arithmetic. */
	T(INSTALL({ LOAD(arch), BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, AUDIT_ARCH_X86_64, 1, 0), RET(SECCOMP_RET_KILL),
		LOAD(nr), BPF_STMT(BPF_ALU | BPF_ADD | BPF_K, 1), BPF_STMT(BPF_MISC | BPF_TAX, 0),
		BPF_STMT(BPF_LD | BPF_IMM, SYS_getpgid + 1), BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_X, 0, 0, 1),
		RET(SECCOMP_RET_ERRNO | EL2HLT), RET(SECCOMP_RET_ALLOW) }));
	T(syscall(SYS_getpgid, 0));
	/* 0 for a session whose leader is in another pid namespace. */
	T(syscall(SYS_getsid, 0) >= 0);
}

static void inherited(void)
{
	nnp();
	T(INSTALL(ONLY(SYS_getuid, SECCOMP_RET_ERRNO | EDOM)));
	T(CHILD(_exit(syscall(SYS_getuid) == -1 && errno == EDOM ? 7 : 8)));
	T(CHILD(INSTALL(ONLY(SYS_getuid, SECCOMP_RET_ERRNO | ERANGE)); syscall(SYS_getuid); _exit(errno)));
	T(syscall(SYS_getuid));
	T(CHILD(execl("/bin/sh", "sh", "-c", "grep -q '^Seccomp:[^0-9]*2$' /proc/self/status && exit 5; exit 6", NULL)));
}

static volatile siginfo_t seen;
static volatile greg_t seen_rax, seen_rip;
static void on_sys(int s, siginfo_t *i, void *u)
{
	ucontext_t *c = u;
	memcpy((void *)&seen, i, sizeof seen);
	seen_rax = c->uc_mcontext.gregs[REG_RAX];
	seen_rip = c->uc_mcontext.gregs[REG_RIP];
	c->uc_mcontext.gregs[REG_RAX] = 4242;
}

static void traps(void)
{
	nnp();
	struct sigaction a = { .sa_sigaction = on_sys, .sa_flags = SA_SIGINFO };
	sigaction(SIGSYS, &a, NULL);
	T(INSTALL(ONLY(SYS_getuid, SECCOMP_RET_TRAP | 33)));
	T(syscall(SYS_getuid));
	T(seen.si_signo);
	T(seen.si_code);
	T(seen.si_errno);
	T(seen.si_syscall == SYS_getuid);
	Y(seen.si_arch == AUDIT_ARCH_X86_64);
	Y(seen_rip == (greg_t)(long)seen.si_call_addr);
	T(seen_rax == SYS_getuid);
	T(CHILD(signal(SIGSYS, SIG_DFL); syscall(SYS_getuid)));
	T(CHILD(signal(SIGSYS, SIG_IGN); syscall(SYS_getuid)));
	T(CHILD(sigset_t s; sigfillset(&s); sigprocmask(SIG_BLOCK, &s, NULL); syscall(SYS_getuid)));
}

static void *calls_getuid(void *p)
{
	syscall(SYS_getuid);
	return p;
}

static void kills(void)
{
	nnp();
	signal(SIGSYS, SIG_IGN);
	struct rlimit none = { 0, 0 };
	setrlimit(RLIMIT_CORE, &none);
	T(CHILD(INSTALL(ONLY(SYS_getuid, SECCOMP_RET_KILL_PROCESS)); syscall(SYS_getuid)));
	T(CHILD(INSTALL(ONLY(SYS_getuid, SECCOMP_RET_KILL_THREAD)); syscall(SYS_getuid)));
	T(CHILD(INSTALL(ONLY(SYS_getuid, 0x12340000)); syscall(SYS_getuid)));
	/* A thread of several alone; the process goes on. */
	T(CHILD(
		INSTALL(ONLY(SYS_getuid, SECCOMP_RET_KILL_THREAD));
		pthread_t t;
		pthread_create(&t, NULL, calls_getuid, NULL);
		pthread_join(t, NULL);
		_exit(3)));
	T(CHILD(
		INSTALL(ONLY(SYS_getuid, SECCOMP_RET_KILL_PROCESS));
		pthread_t t;
		pthread_create(&t, NULL, calls_getuid, NULL);
		pthread_join(t, NULL);
		_exit(3)));
	/* The sternest answer counts. */
	T(CHILD(
		INSTALL(ONLY(SYS_getuid, SECCOMP_RET_KILL_PROCESS));
		INSTALL(ONLY(SYS_getuid, SECCOMP_RET_ERRNO | EDOM));
		syscall(SYS_getuid)));
	T(CHILD(
		INSTALL({ BPF_STMT(BPF_LD | BPF_IMM, 5), BPF_STMT(BPF_LDX | BPF_IMM, 0), BPF_STMT(BPF_ALU | BPF_DIV | BPF_X, 0),
			RET(SECCOMP_RET_ALLOW) });
		syscall(SYS_getuid)));
	T(CHILD(prctl(PR_SET_SECCOMP, SECCOMP_MODE_STRICT); syscall(SYS_exit, 9)));
	T(CHILD(prctl(PR_SET_SECCOMP, SECCOMP_MODE_STRICT); syscall(SYS_getpid)));
	T(CHILD(sec(SECCOMP_SET_MODE_STRICT, 0, NULL); syscall(SYS_exit_group, 9)));
}

static int gate[2];
static void *other(void *p)
{
	char c;
	if (p)
		INSTALL(ONLY(SYS_getgid, SECCOMP_RET_ERRNO | ELNRNG));
	write(gate[1], "x", 1);
	read(gate[0], &c, 1);
	errno = 0;
	syscall(SYS_getuid);
	return (void *)(long)errno;
}

static void tsync(void)
{
	pthread_t t;
	int up[2], down[2];
	void *r;
	char c;
	nnp();
	for (long own = 0; own < 2; own++) {
		int a[2], b[2];
		pipe(a);
		pipe(b);
		gate[0] = a[0];
		gate[1] = b[1];
		pthread_create(&t, NULL, other, (void *)own);
		read(b[0], &c, 1);
		long n = INSTALL_FLAGS(SECCOMP_FILTER_FLAG_TSYNC, ONLY(SYS_getuid, SECCOMP_RET_ERRNO | EDOM));
		say("tsync", "%s", n == 0 ? "done" : n > 0 && n != getpid() ? "another thread" : "failed");
		T(INSTALL_FLAGS(SECCOMP_FILTER_FLAG_TSYNC | (1 << 4), ONLY(SYS_getuid, SECCOMP_RET_ERRNO | EDOM)));
		T(syscall(SYS_getuid) == -1);
		write(a[1], "x", 1);
		pthread_join(t, &r);
		T((long)r);
	}
	(void)up, (void)down;
	status("after");
}

static void available(void)
{
	unsigned list[] = { SECCOMP_RET_KILL_PROCESS, SECCOMP_RET_KILL_THREAD, SECCOMP_RET_TRAP, SECCOMP_RET_ERRNO,
		SECCOMP_RET_TRACE, SECCOMP_RET_LOG, SECCOMP_RET_ALLOW, 0x12340000, 1 };
	for (unsigned i = 0; i < sizeof list / sizeof *list; i++)
		T(sec(SECCOMP_GET_ACTION_AVAIL, 0, &list[i]));
	T(sec(SECCOMP_GET_ACTION_AVAIL, 1, list));
	T(sec(SECCOMP_GET_ACTION_AVAIL, 0, (void *)8));
}

/* Chains are bounded. */
static void bound(void)
{
	nnp();
	struct sock_filter f[4000];
	for (int i = 0; i < 4000; i++)
		f[i] = (struct sock_filter)RET(SECCOMP_RET_ALLOW);
	int n = 0;
	while (n < 100 && install(f, 4000, 0) == 0)
		n++;
	T(n);
	T(install(f, 4000, 0));
	T(CHILD(_exit(4)));
}

static const struct check list[] = {
	CHECK(permission), CHECK(malformed), CHECK(errnos), CHECK(inherited), CHECK(traps), CHECK(kills), CHECK(tsync),
	CHECK(available), CHECK(bound),
};
MAIN(list)
