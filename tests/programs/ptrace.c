/* ptrace(2): tracers and tracees. */
#define AREA "ptrace"
#include "check.h"
#include <linux/audit.h>
#include <linux/elf.h>
#include <linux/filter.h>
#include <linux/ptrace.h>
#include <linux/seccomp.h>
#include <sys/user.h>

#define P(req, pid, addr, data) syscall(SYS_ptrace, (long)(req), (long)(pid), (long)(addr), (long)(data))

static void status(const char *what, int st)
{
	if (WIFSTOPPED(st))
		say(what, "stopped %d event %d%s", WSTOPSIG(st) & 0x7f, st >> 16, st >> 8 & 0x80 && st >> 16 == 0 ? " good" : "");
	else if (WIFSIGNALED(st))
		say(what, "killed %d", WTERMSIG(st));
	else if (WIFEXITED(st))
		say(what, "exited %d", WEXITSTATUS(st));
	else
		say(what, "%x", st);
}

static int wait_for(const char *what, pid_t p)
{
	int st = 0;
	pid_t r;
	while ((r = waitpid(p, &st, __WALL)) < 0 && errno == EINTR) {}
	if (r != p)
		say(what, "wait failed: %s", strerrorname_np(errno));
	else
		status(what, st);
	return st;
}

/* A child that is traced and has stopped itself; its body follows. */
#define TRACED(...) ({ pid_t c_ = fork(); \
	if (c_ == 0) { P(PTRACE_TRACEME, 0, 0, 0); raise(SIGSTOP); __VA_ARGS__; _exit(0); } \
	wait_for("start", c_); c_; })

static struct user_regs_struct regs_of(pid_t p)
{
	struct user_regs_struct r;
	memset(&r, 0, sizeof r);
	if (P(PTRACE_GETREGS, p, 0, &r))
		say("regs", "failed: %s", strerrorname_np(errno));
	return r;
}

static void end(pid_t p)
{
	kill(p, SIGKILL);
	wait_for("end", p);
}

static void line_of(pid_t p, const char *file, const char *name)
{
	char path[64], line[256];
	snprintf(path, sizeof path, "/proc/%d/%s", p, file);
	FILE *f = fopen(path, "r");
	while (f && fgets(line, sizeof line, f))
		if (!strncmp(line, name, strlen(name))) {
			line[strcspn(line, "\n")] = 0;
			for (char *t = line; *t; t++)
				if (*t == '\t')
					*t = ' ';
			say(file, "%s", line);
		}
	if (f)
		fclose(f);
}

static void traceme(void)
{
	pid_t p = fork();
	if (p == 0) {
		T(P(PTRACE_TRACEME, 0, 0, 0));
		T(P(PTRACE_TRACEME, 0, 0, 0));
		raise(SIGUSR1);
		_exit(7);
	}
	wait_for("usr1", p);
	line_of(p, "status", "State");
	siginfo_t si;
	T(P(PTRACE_GETSIGINFO, p, 0, &si));
	Y(si.si_signo == SIGUSR1 && si.si_code == SI_TKILL && si.si_pid == p);
	T(P(PTRACE_CONT, p, 0, 0));
	wait_for("exit", p);
	p = fork();
	if (p == 0) {
		P(PTRACE_TRACEME, 0, 0, 0);
		raise(SIGUSR1);
		_exit(7);
	}
	wait_for("usr1", p);
	T(P(PTRACE_CONT, p, 0, SIGUSR2));
	wait_for("usr2", p);
	T(P(PTRACE_CONT, p, 0, 0));
	T(waitpid(p, NULL, 0));
	T(P(PTRACE_CONT, p, 0, 0));
	T(P(PTRACE_TRACEME, 0, 0, 0));
}

static void errors(void)
{
	long word;
	pid_t p = fork();
	if (p == 0) {
		pause();
		_exit(0);
	}
	T(P(PTRACE_ATTACH, getpid(), 0, 0));
	T(P(PTRACE_ATTACH, 0, 0, 0));
	T(P(PTRACE_ATTACH, -1, 0, 0));
	T(P(PTRACE_ATTACH, 0x3ffffff, 0, 0));
	T(P(PTRACE_SEIZE, getpid(), 0, 0));
	T(P(PTRACE_SEIZE, p, 1, 0));
	T(P(PTRACE_SEIZE, p, 0, 1 << 10));
	T(P(PTRACE_SEIZE, p, 0, -1));
	T(P(PTRACE_CONT, p, 0, 0));
	T(P(PTRACE_KILL, p, 0, 0));
	T(P(PTRACE_INTERRUPT, p, 0, 0));
	T(P(PTRACE_DETACH, p, 0, 0));
	T(P(PTRACE_PEEKDATA, p, &word, &word));
	T(P(9999, p, 0, 0));
	T(P(PTRACE_ATTACH, p, 0, 0));
	T(P(PTRACE_ATTACH, p, 0, 0));
	T(P(PTRACE_SEIZE, p, 0, 0));
	wait_for("attached", p);
	T(P(9999, p, 0, 0));
	T(P(PTRACE_CONT, p, 0, 65));
	T(P(PTRACE_CONT, p, 0, -1));
	T(P(PTRACE_DETACH, p, 0, 65));
	T(P(PTRACE_SYSCALL, p, 0, 1000));
	T(P(PTRACE_SETOPTIONS, p, 0, 1 << 10));
	T(P(PTRACE_SETOPTIONS, p, 0, PTRACE_O_TRACESYSGOOD));
	T(P(PTRACE_INTERRUPT, p, 0, 0));
	T(P(PTRACE_LISTEN, p, 0, 0));
	T(P(PTRACE_PEEKDATA, p, 8, &word));
	T(P(PTRACE_PEEKDATA, p, &word, 8));
	T(P(PTRACE_POKEDATA, p, 8, 1));
	T(P(PTRACE_POKETEXT, p, -8L, 1));
	T(P(PTRACE_PEEKUSR, p, 1, &word));
	T(P(PTRACE_PEEKUSR, p, sizeof(struct user) + 16, &word));
	T(P(PTRACE_PEEKUSR, p, -8L, &word));
	T(P(PTRACE_POKEUSR, p, 3, 0));
	T(P(PTRACE_POKEUSR, p, offsetof(struct user, u_tsize), 0));
	T(P(PTRACE_POKEUSR, p, sizeof(struct user) + 16, 0));
	T(P(PTRACE_GETREGS, p, 0, 8));
	T(P(PTRACE_SETREGS, p, 0, 8));
	T(P(PTRACE_GETFPREGS, p, 0, 8));
	T(P(PTRACE_SETFPREGS, p, 0, 8));
	T(P(PTRACE_GETSIGINFO, p, 0, 8));
	T(P(PTRACE_SETSIGINFO, p, 0, 8));
	T(P(PTRACE_GETSIGMASK, p, 4, &word));
	T(P(PTRACE_GETSIGMASK, p, 8, 8));
	T(P(PTRACE_SETSIGMASK, p, 16, &word));
	T(P(PTRACE_GETEVENTMSG, p, 0, 8));
	T(P(PTRACE_GET_SYSCALL_INFO, p, 88, 8));
	T(P(PTRACE_SINGLEBLOCK, p, 0, 100));
	T(P(18, p, 0, &word));
	T(P(19, p, 0, &word));
	end(p);
	T(P(PTRACE_CONT, p, 0, 0));
	T(P(PTRACE_ATTACH, p, 0, 0));
	p = fork();
	if (p == 0)
		_exit(0);
	siginfo_t si;
	waitid(P_PID, p, &si, WEXITED | WNOWAIT);
	T(P(PTRACE_ATTACH, p, 0, 0));
	T(P(PTRACE_SEIZE, p, 0, 0));
	T(P(PTRACE_CONT, p, 0, 0));
	waitpid(p, NULL, 0);
}

static volatile long there = 0x1122334455667788;
static const long constant = 0x0102030405060708;

static void memory(void)
{
	pid_t p = TRACED(if (there != 42) _exit(1); if (*(volatile const long *)&constant != 7) _exit(2); _exit(3));
	long word = 0;
	T(P(PTRACE_PEEKDATA, p, &there, &word));
	say("word", "%lx", word);
	T(P(PTRACE_PEEKTEXT, p, &constant, &word));
	say("word", "%lx", word);
	T(P(PTRACE_POKEDATA, p, &there, 42));
	T(P(PTRACE_POKETEXT, p, &constant, 7));
	T(P(PTRACE_PEEKDATA, p, (char *)&there + 1, &word));
	say("word", "%lx", word & 0xffffffff);
	say("own", "%lx %lx", there, constant);
	T(P(PTRACE_CONT, p, 0, 0));
	wait_for("exit", p);
}

static __attribute__((noinline)) void marked(void)
{
	__asm__ volatile("mov $0x1234, %%r12; mov $0x77, %%r13; int3; nop; cmp $99, %%r12; jne 1f; mov $60, %%eax; mov $9, %%edi; syscall; 1: ud2" ::: "r12", "r13", "rax", "rdi");
}

static void registers(void)
{
	pid_t p = TRACED(marked());
	T(P(PTRACE_CONT, p, 0, 0));
	wait_for("int3", p);
	siginfo_t si;
	memset(&si, 0, sizeof si);
	T(P(PTRACE_GETSIGINFO, p, 0, &si));
	say("info", "%d %d %d", si.si_signo, si.si_code, si.si_errno);
	struct user_regs_struct r = regs_of(p);
	say("regs", "r12 %llx r13 %llx cs %llx ss %llx ds %llx es %llx fs %llx gs %llx", r.r12, r.r13, r.cs, r.ss, r.ds, r.es, r.fs, r.gs);
	say("orig", "%lld", (long long)r.orig_rax);
	Y(r.fs_base != 0);
	say("gs_base", "%llx", r.gs_base);
	long word = 0;
	T(P(PTRACE_PEEKUSR, p, offsetof(struct user, regs.r13), &word));
	say("r13", "%lx", word);
	T(P(PTRACE_PEEKUSR, p, offsetof(struct user, regs.rip), &word));
	Y((unsigned long)word == r.rip);
	T(P(PTRACE_PEEKTEXT, p, r.rip - 1, &word));
	say("int3", "%lx", word & 0xffff);
	T(P(PTRACE_SETREGS, p, 0, &r));
#define POKE(reg, v) T(P(PTRACE_POKEUSR, p, offsetof(struct user, regs.reg), v))
	POKE(cs, 0x33);
	POKE(ss, 0x2b);
	POKE(ds, 0);
	POKE(es, 0);
	POKE(fs, 0);
	POKE(gs, 0);
	POKE(cs, 0);
	POKE(ss, 0);
	POKE(cs, 0x10);
	POKE(ds, 0x10);
	POKE(fs, 8);
	POKE(fs_base, r.fs_base);
	POKE(gs_base, r.gs_base);
	POKE(fs_base, -1L);
	POKE(gs_base, 1L << 63);
	POKE(eflags, r.eflags);
	POKE(eflags, r.eflags | 0x3000);
	T(P(PTRACE_PEEKUSR, p, offsetof(struct user, regs.eflags), &word));
	Y((unsigned long)word == r.eflags);
	POKE(orig_rax, -1L);
	POKE(r12, 99);
	for (int i = 0; i < 8; i++) {
		word = 1;
		T(P(PTRACE_PEEKUSR, p, offsetof(struct user, u_debugreg) + 8 * i, &word));
		say("debug", "%d %lx", i, word);
	}
	T(P(PTRACE_POKEUSR, p, offsetof(struct user, u_debugreg) + 48, 0));
	T(P(PTRACE_POKEUSR, p, offsetof(struct user, u_debugreg) + 56, 0));
	T(P(PTRACE_POKEUSR, p, offsetof(struct user, u_debugreg) + 32, 0));
	T(P(PTRACE_PEEKUSR, p, offsetof(struct user, start_code), &word));
	say("other", "%lx", word);
	T(P(PTRACE_ARCH_PRCTL, p, &word, 0x1003));
	Y((unsigned long)word == r.fs_base);
	T(P(PTRACE_ARCH_PRCTL, p, r.fs_base, 0x1002));
	T(P(PTRACE_ARCH_PRCTL, p, -1L, 0x1002));
	T(P(PTRACE_ARCH_PRCTL, p, 0, 7));
	T(P(PTRACE_CONT, p, 0, 0));
	wait_for("exit", p);
}

static long regset(int req, pid_t p, int type, void *b, size_t n, size_t *got)
{
	struct iovec v = { b, n };
	long r = P(req, p, type, &v);
	*got = v.iov_len;
	return r;
}

static unsigned xsave_size(void)
{
	unsigned a = 0xd, b, c = 0, d;
	__asm__ volatile("cpuid" : "+a"(a), "=b"(b), "+c"(c), "=d"(d));
	return b;
}

static void sets(void)
{
	static unsigned char x[1 << 16], y[1 << 16], f[512];
	size_t n;
	pid_t p = TRACED({
		double want[2] = { 0, 0 };
		__asm__ volatile("int3; movupd %%xmm3, %0" : "=m"(want) : : "xmm3");
		_exit(want[0] == 2.5 && want[1] == -1.0 ? 5 : 6);
	});
	T(P(PTRACE_CONT, p, 0, 0));
	wait_for("int3", p);
	T(regset(PTRACE_GETREGSET, p, NT_PRSTATUS, x, sizeof x, &n));
	say("n", "%zu", n);
	struct user_regs_struct r = regs_of(p);
	Y(memcmp(x, &r, sizeof r) == 0);
	T(regset(PTRACE_GETREGSET, p, NT_PRSTATUS, x, 16, &n));
	say("n", "%zu", n);
	T(regset(PTRACE_GETREGSET, p, NT_PRSTATUS, x, 15, &n));
	T(regset(PTRACE_GETREGSET, p, NT_PRSTATUS, (void *)8, 16, &n));
	T(regset(PTRACE_SETREGSET, p, NT_PRSTATUS, &r, sizeof r, &n));
	T(regset(PTRACE_SETREGSET, p, NT_PRSTATUS, &r, 16, &n));
	T(regset(PTRACE_GETREGSET, p, NT_PRFPREG, f, sizeof f, &n));
	say("n", "%zu", n);
	T(regset(PTRACE_GETREGSET, p, NT_X86_XSTATE, x, sizeof x, &n));
	Y(n == xsave_size());
	unsigned long long xcr0, has;
	memcpy(&xcr0, x + 464, 8);
	memcpy(&has, x + 512, 8);
	unsigned lo, hi;
	__asm__ volatile("xgetbv" : "=a"(lo), "=d"(hi) : "c"(0));
	Y(xcr0 == (lo | (unsigned long long)hi << 32));
	Y((has & ~xcr0) == 0);
	Y(memcmp(x, f, 416) == 0);
	size_t m = n;
	memcpy(y, x, n);
	T(regset(PTRACE_SETREGSET, p, NT_X86_XSTATE, x, m, &n));
	Y(n == m);
	T(regset(PTRACE_SETREGSET, p, NT_X86_XSTATE, x, m - 8, &n));
	T(regset(PTRACE_SETREGSET, p, NT_X86_XSTATE, x, m - 1, &n));
	T(regset(PTRACE_GETREGSET, p, NT_X86_XSTATE, y, 576, &n));
	say("n", "%zu", n);
	y[512 + 7] = 0x80;
	T(regset(PTRACE_SETREGSET, p, NT_X86_XSTATE, y, m, &n));
	memcpy(y, x, m);
	y[512 + 20] = 1;
	T(regset(PTRACE_SETREGSET, p, NT_X86_XSTATE, y, m, &n));
	memcpy(y, x, m);
	y[512] |= 2;
	y[27] = 0x80;
	T(regset(PTRACE_SETREGSET, p, NT_X86_XSTATE, y, m, &n));
	memcpy(y, x, m);
	double v[2] = { 2.5, -1.0 };
	y[512] |= 2;
	memcpy(y + 160 + 3 * 16, v, 16);
	T(regset(PTRACE_SETREGSET, p, NT_X86_XSTATE, y, m, &n));
	struct user_fpregs_struct fp;
	T(P(PTRACE_GETFPREGS, p, 0, &fp));
	Y(memcmp((char *)fp.xmm_space + 48, v, 16) == 0);
	say("cwd", "%x %x", fp.cwd, fp.mxcsr);
	T(P(PTRACE_SETFPREGS, p, 0, &fp));
	fp.mxcsr = 0x80000000;
	T(P(PTRACE_SETFPREGS, p, 0, &fp));
	T(regset(PTRACE_SETREGSET, p, NT_PRFPREG, f, 8, &n));
	T(regset(PTRACE_GETREGSET, p, 0x201, x, 64, &n));
	T(regset(PTRACE_GETREGSET, p, 0x7777, x, 64, &n));
	T(P(PTRACE_GETREGSET, p, NT_PRSTATUS, 8));
	T(P(PTRACE_CONT, p, 0, 0));
	wait_for("exit", p);
}

static void calls(void)
{
	pid_t p = TRACED({
		syscall(SYS_getppid, 1, 2, 3, 4, 5, 6);
		long a = syscall(SYS_getuid);
		long b = syscall(SYS_getgid);
		long c = syscall(SYS_close, -1);
		syscall(5000);
		_exit(a == 77 && b == -1 && c == -1 ? 4 : 5);
	});
	T(P(PTRACE_SETOPTIONS, p, 0, PTRACE_O_TRACESYSGOOD));
	struct ptrace_syscall_info i;
	T(P(PTRACE_GET_SYSCALL_INFO, p, sizeof i, &i));
	say("op", "%d", i.op);
	for (int n = 0; n < 9; n++) {
		T(P(PTRACE_SYSCALL, p, 0, 0));
		int st = wait_for("call", p);
		if (!WIFSTOPPED(st))
			return;
		struct user_regs_struct r = regs_of(p);
		unsigned long msg = 9;
		T(P(PTRACE_GETEVENTMSG, p, 0, &msg));
		memset(&i, 0, sizeof i);
		T(P(PTRACE_GET_SYSCALL_INFO, p, sizeof i, &i));
		say("stop", "nr %lld msg %lu op %d arch %x", (long long)r.orig_rax, msg, i.op, i.arch);
		Y(i.instruction_pointer == r.rip && i.stack_pointer == r.rsp);
		siginfo_t si;
		T(P(PTRACE_GETSIGINFO, p, 0, &si));
		say("info", "%d %x", si.si_signo, si.si_code);
		Y(si.si_pid == p);
		if (i.op == PTRACE_SYSCALL_INFO_ENTRY) {
			say("entry", "nr %lld rax %lld", (long long)i.entry.nr, (long long)r.rax);
			if (i.entry.nr == SYS_getppid)
				say("args", "%lld %lld %lld %lld %lld %lld", (long long)i.entry.args[0], (long long)i.entry.args[1], (long long)i.entry.args[2],
					(long long)i.entry.args[3], (long long)i.entry.args[4], (long long)i.entry.args[5]);
			if (i.entry.nr == SYS_getgid)
				T(P(PTRACE_POKEUSR, p, offsetof(struct user, regs.orig_rax), -1L));
		} else {
			say("exit", "error %d", i.exit.is_error);
			if (r.orig_rax != SYS_getppid && r.orig_rax != SYS_getuid)
				say("exit", "value %lld", (long long)i.exit.rval);
			if (r.orig_rax == SYS_getuid)
				T(P(PTRACE_POKEUSR, p, offsetof(struct user, regs.rax), 77));
		}
	}
	T(P(PTRACE_GET_SYSCALL_INFO, p, 0, &i));
	T(P(PTRACE_GET_SYSCALL_INFO, p, 10, &i));
	T(P(PTRACE_CONT, p, 0, 0));
	wait_for("exit", p);
}

/* Without PTRACE_O_TRACESYSGOOD; arguments and number changed; emulated calls. */
static void changed(void)
{
	pid_t p = TRACED({
		char b[4] = "abc";
		long a = syscall(SYS_getpid);
		long w = syscall(SYS_write, -1, b, 3);
		_exit(a == 1234 && w == 3 ? 6 : 7);
	});
	int null = open("/dev/null", O_WRONLY);
	(void)null;
	T(P(PTRACE_SYSEMU, p, 0, 0));
	wait_for("emulated", p);
	struct user_regs_struct r = regs_of(p);
	say("nr", "%lld %lld", (long long)r.orig_rax, (long long)r.rax);
	r.rax = 1234;
	T(P(PTRACE_SETREGS, p, 0, &r));
	T(P(PTRACE_SYSCALL, p, 0, 0));
	wait_for("its exit", p);
	T(P(PTRACE_SYSCALL, p, 0, 0));
	wait_for("write", p);
	r = regs_of(p);
	say("nr", "%lld %lld", (long long)r.orig_rax, (long long)r.rdi);
	int fds[2];
	r.rdi = 1;
	r.orig_rax = SYS_dup;
	T(P(PTRACE_SETREGS, p, 0, &r));
	T(P(PTRACE_SYSCALL, p, 0, 0));
	wait_for("dup", p);
	r = regs_of(p);
	Y((long)r.rax >= 0);
	say("nr", "%lld", (long long)r.orig_rax);
	r.rax = 3;
	T(P(PTRACE_SETREGS, p, 0, &r));
	T(P(PTRACE_CONT, p, 0, 0));
	wait_for("exit", p);
}

static void handler(int s)
{
	(void)s;
}

static void delivery(void)
{
	pid_t p = TRACED({
		signal(SIGUSR1, handler);
		signal(SIGUSR2, SIG_IGN);
		raise(SIGUSR2);
		raise(SIGCHLD);
		raise(SIGUSR1);
		raise(SIGTERM);
		raise(SIGHUP);
	});
	T(P(PTRACE_CONT, p, 0, 0));
	wait_for("ignored", p);
	T(P(PTRACE_CONT, p, 0, SIGUSR2));
	wait_for("chld", p);
	T(P(PTRACE_CONT, p, 0, SIGCHLD));
	wait_for("usr1", p);
	siginfo_t si;
	T(P(PTRACE_GETSIGINFO, p, 0, &si));
	si.si_code = SI_QUEUE;
	T(P(PTRACE_SETSIGINFO, p, 0, &si));
	T(P(PTRACE_GETSIGINFO, p, 0, &si));
	say("code", "%d", si.si_code);
	T(P(PTRACE_CONT, p, 0, SIGUSR1));
	wait_for("term", p);
	unsigned long long mask = 0;
	T(P(PTRACE_GETSIGMASK, p, 8, &mask));
	say("mask", "%llx", mask);
	mask = -1ull;
	T(P(PTRACE_SETSIGMASK, p, 8, &mask));
	T(P(PTRACE_GETSIGMASK, p, 8, &mask));
	say("mask", "%llx", mask);
	mask = 0;
	T(P(PTRACE_SETSIGMASK, p, 8, &mask));
	kill(p, SIGURG);
	kill(p, SIGRTMIN);
	kill(p, SIGRTMIN);
	struct ptrace_peeksiginfo_args a = { 0, PTRACE_PEEKSIGINFO_SHARED, 8 };
	siginfo_t many[8];
	long n = P(PTRACE_PEEKSIGINFO, p, &a, many);
	say("peek", "%ld", n);
	for (int i = 0; i < n; i++)
		say("peek", "%d %d", many[i].si_signo, many[i].si_code);
	a.off = 2;
	T(P(PTRACE_PEEKSIGINFO, p, &a, many));
	a.off = 10;
	T(P(PTRACE_PEEKSIGINFO, p, &a, many));
	a.off = 0;
	a.flags = 0;
	T(P(PTRACE_PEEKSIGINFO, p, &a, many));
	a.flags = 2;
	T(P(PTRACE_PEEKSIGINFO, p, &a, many));
	a.flags = 0;
	a.nr = -1;
	T(P(PTRACE_PEEKSIGINFO, p, &a, many));
	T(P(PTRACE_PEEKSIGINFO, p, 8, many));
	T(P(PTRACE_CONT, p, 0, 0));
	wait_for("next", p);
	T(P(PTRACE_CONT, p, 0, 0));
	wait_for("next", p);
	T(P(PTRACE_CONT, p, 0, 0));
	wait_for("next", p);
	T(P(PTRACE_CONT, p, 0, 0));
	wait_for("next", p);
	T(P(PTRACE_CONT, p, 0, SIGHUP));
	wait_for("end", p);
}

static void step(void)
{
	pid_t p = TRACED({
		__asm__ volatile("int3; mov $1, %%eax; mov $2, %%ecx; mov $39, %%eax; syscall; nop; nop" ::: "rax", "rcx", "r11");
		raise(SIGUSR1);
		_exit(8);
	});
	T(P(PTRACE_CONT, p, 0, 0));
	wait_for("int3", p);
	unsigned long at = regs_of(p).rip;
	for (int i = 0; i < 6; i++) {
		T(P(PTRACE_SINGLESTEP, p, 0, 0));
		wait_for("step", p);
		struct user_regs_struct r = regs_of(p);
		siginfo_t si;
		P(PTRACE_GETSIGINFO, p, 0, &si);
		say("at", "%llu code %d tf %llx", r.rip - at, si.si_code, r.eflags & 0x100);
	}
	T(P(PTRACE_CONT, p, 0, 0));
	wait_for("usr1", p);
	T(P(PTRACE_CONT, p, 0, 0));
	wait_for("exit", p);
	p = TRACED({
		signal(SIGUSR1, handler);
		raise(SIGUSR1);
		_exit(9);
	});
	T(P(PTRACE_CONT, p, 0, 0));
	wait_for("usr1", p);
	T(P(PTRACE_SINGLESTEP, p, 0, SIGUSR1));
	wait_for("handler", p);
	Y(regs_of(p).rip == (unsigned long)handler);
	siginfo_t si;
	T(P(PTRACE_GETSIGINFO, p, 0, &si));
	say("info", "%d %x", si.si_signo, si.si_code);
	T(P(PTRACE_CONT, p, 0, 0));
	wait_for("exit", p);
}

static void attached(void)
{
	int fds[2];
	if (pipe(fds))
		return;
	pid_t p = fork();
	if (p == 0) {
		char c;
		close(fds[1]);
		_exit(read(fds[0], &c, 1) == 1 && c == 'x' ? 3 : 4);
	}
	ms(50);
	T(P(PTRACE_ATTACH, p, 0, 0));
	wait_for("attached", p);
	line_of(p, "status", "State");
	struct user_regs_struct r = regs_of(p);
	say("regs", "orig %lld rax %lld", (long long)r.orig_rax, (long long)r.rax);
	siginfo_t si;
	T(P(PTRACE_GETSIGINFO, p, 0, &si));
	say("info", "%d %x %d", si.si_signo, si.si_code, si.si_pid);
	T(P(PTRACE_SETREGS, p, 0, &r));
	T(P(PTRACE_SETOPTIONS, p, 0, PTRACE_O_TRACESYSGOOD));
	T(P(PTRACE_SYSCALL, p, 0, 0));
	wait_for("read again", p);
	r = regs_of(p);
	say("regs", "orig %lld rax %lld", (long long)r.orig_rax, (long long)r.rax);
	T(P(PTRACE_SYSCALL, p, 0, 0));
	ms(20);
	kill(p, SIGWINCH);
	wait_for("read's end", p);
	r = regs_of(p);
	say("regs", "orig %lld rax %lld", (long long)r.orig_rax, (long long)r.rax);
	T(P(PTRACE_SYSCALL, p, 0, 0));
	wait_for("winch", p);
	T(P(PTRACE_DETACH, p, 0, 0));
	line_of(p, "status", "TracerPid");
	T(write(fds[1], "x", 1));
	wait_for("exit", p);
	p = fork();
	if (p == 0) {
		pause();
		_exit(0);
	}
	T(P(PTRACE_ATTACH, p, 0, 0));
	wait_for("attached", p);
	T(P(PTRACE_DETACH, p, 0, SIGTERM));
	wait_for("end", p);
}

static void seized(void)
{
	pid_t p = fork();
	if (p == 0) {
		for (;;)
			pause();
	}
	ms(30);
	T(P(PTRACE_SEIZE, p, 0, PTRACE_O_TRACESYSGOOD));
	T(waitpid(p, NULL, WNOHANG | __WALL));
	T(P(PTRACE_CONT, p, 0, 0));
	T(P(PTRACE_INTERRUPT, p, 0, 0));
	wait_for("interrupted", p);
	siginfo_t si;
	T(P(PTRACE_GETSIGINFO, p, 0, &si));
	say("info", "%d %x", si.si_signo, si.si_code);
	T(P(PTRACE_CONT, p, 0, 0));
	kill(p, SIGSTOP);
	wait_for("stop signal", p);
	T(P(PTRACE_CONT, p, 0, SIGSTOP));
	wait_for("stopped", p);
	T(P(PTRACE_GETSIGINFO, p, 0, &si));
	say("info", "%d %x", si.si_signo, si.si_code);
	line_of(p, "status", "State");
	T(P(PTRACE_LISTEN, p, 0, 0));
	T(P(PTRACE_CONT, p, 0, 0));
	T(waitpid(p, NULL, WNOHANG | __WALL));
	kill(p, SIGCONT);
	wait_for("continued", p);
	T(P(PTRACE_CONT, p, 0, 0));
	wait_for("cont signal", p);
	T(P(PTRACE_CONT, p, 0, SIGCONT));
	ms(20);
	T(P(PTRACE_INTERRUPT, p, 0, 0));
	wait_for("interrupted", p);
	T(P(PTRACE_LISTEN, p, 0, 0));
	T(P(PTRACE_INTERRUPT, p, 0, 0));
	wait_for("again", p);
	T(P(PTRACE_CONT, p, 0, 0));
	T(P(PTRACE_KILL, p, 0, 0));
	wait_for("end", p);
}

/* A child that has stopped itself, and then ends with 4. */
static pid_t stopped(void)
{
	pid_t p = fork();
	if (p == 0) {
		raise(SIGSTOP);
		_exit(4);
	}
	T(waitpid(p, NULL, WUNTRACED) == p);
	return p;
}

/* A stop of the group, with PTRACE_ATTACH's kind of tracer. */
static void group(void)
{
	pid_t p = TRACED(raise(SIGTSTP); _exit(3));
	T(P(PTRACE_CONT, p, 0, 0));
	wait_for("tstp", p);
	T(P(PTRACE_CONT, p, 0, SIGSTOP));
	wait_for("group", p);
	siginfo_t si;
	T(P(PTRACE_GETSIGINFO, p, 0, &si));
	memset(&si, 0, sizeof si);
	T(P(PTRACE_CONT, p, 0, 0));
	wait_for("exit", p);
	p = stopped();
	T(P(PTRACE_ATTACH, p, 0, 0));
	wait_for("attached", p);
	T(P(PTRACE_DETACH, p, 0, 0));
	ms(30);
	line_of(p, "status", "State");
	kill(p, SIGCONT);
	wait_for("exit", p);
	p = stopped();
	T(P(PTRACE_SEIZE, p, 0, 0));
	wait_for("seized", p);
	T(P(PTRACE_LISTEN, p, 0, 0));
	kill(p, SIGCONT);
	wait_for("continued", p);
	T(P(PTRACE_DETACH, p, 0, 0));
	wait_for("exit", p);
}

static void waits(void)
{
	pid_t p = TRACED(raise(SIGUSR1); _exit(3));
	T(P(PTRACE_CONT, p, 0, 0));
	siginfo_t si;
	memset(&si, 0, sizeof si);
	T(waitid(P_PID, p, &si, WEXITED | WNOWAIT));
	say("info", "%d %d %d", si.si_signo, si.si_code, si.si_status);
	memset(&si, 0, sizeof si);
	T(waitid(P_PID, p, &si, WSTOPPED | WNOWAIT));
	say("info", "%d %d %d", si.si_signo, si.si_code, si.si_status);
	int st;
	T(waitpid(p, &st, WNOHANG) == p);
	status("told", st);
	T(waitpid(p, &st, WNOHANG));
	T(P(PTRACE_CONT, p, 0, 0));
	memset(&si, 0, sizeof si);
	T(waitid(P_PID, p, &si, WEXITED));
	say("info", "%d %d %d", si.si_signo, si.si_code, si.si_status);
	T(waitpid(p, &st, WNOHANG));
}

static void on_child(int s, siginfo_t *i, void *c)
{
	(void)s, (void)c;
	say("sigchld", "%d %d", i->si_code, i->si_status);
}

static void sigchld(void)
{
	struct sigaction a = { .sa_sigaction = on_child, .sa_flags = SA_SIGINFO | SA_RESTART };
	sigaction(SIGCHLD, &a, NULL);
	pid_t p = TRACED(raise(SIGUSR1); _exit(3));
	T(P(PTRACE_CONT, p, 0, 0));
	wait_for("usr1", p);
	T(P(PTRACE_CONT, p, 0, 0));
	wait_for("exit", p);
	a.sa_flags |= SA_NOCLDSTOP;
	sigaction(SIGCHLD, &a, NULL);
	p = TRACED(raise(SIGUSR1); _exit(3));
	T(P(PTRACE_CONT, p, 0, 0));
	wait_for("usr1", p);
	T(P(PTRACE_CONT, p, 0, 0));
	wait_for("exit", p);
}

static int empty(void *x)
{
	(void)x;
	return 5;
}

static void birth(const char *what, pid_t p, int options)
{
	unsigned long child = 0;
	T(P(PTRACE_SETOPTIONS, p, 0, options));
	T(P(PTRACE_CONT, p, 0, 0));
	int st = wait_for(what, p);
	while (WIFSTOPPED(st) && !(st >> 16)) {
		P(PTRACE_CONT, p, 0, 0);
		st = wait_for(what, p);
	}
	if (!WIFSTOPPED(st))
		return;
	T(P(PTRACE_GETEVENTMSG, p, 0, &child));
	struct user_regs_struct r = regs_of(p);
	say("regs", "rax %lld", (long long)r.rax);
	siginfo_t si;
	T(P(PTRACE_GETSIGINFO, p, 0, &si));
	say("info", "%d %x", si.si_signo, si.si_code);
	wait_for("child", child);
	P(PTRACE_GETSIGINFO, child, 0, &si);
	say("info", "%d %x %d", si.si_signo, si.si_code, si.si_pid);
	r = regs_of(child);
	say("regs", "rax %lld orig %lld", (long long)r.rax, (long long)r.orig_rax);
	T(P(PTRACE_CONT, child, 0, 0));
	if (st >> 16 == PTRACE_EVENT_VFORK) {
		wait_for("child's end", child);
		T(P(PTRACE_CONT, p, 0, 0));
		wait_for("vfork done", p);
		unsigned long again = 0;
		T(P(PTRACE_GETEVENTMSG, p, 0, &again));
		Y(again == child);
		T(P(PTRACE_CONT, p, 0, 0));
	} else {
		wait_for("child's end", child);
		T(P(PTRACE_CONT, p, 0, 0));
		st = wait_for("parent", p);
		if (WIFSTOPPED(st))
			T(P(PTRACE_CONT, p, 0, 0));
		else
			return;
	}
	st = wait_for("parent", p);
	while (WIFSTOPPED(st)) {
		P(PTRACE_CONT, p, 0, 0);
		st = wait_for("parent", p);
	}
}

static void births(void)
{
	static char stack[65536] __attribute__((aligned(16)));
	int all = PTRACE_O_TRACEFORK | PTRACE_O_TRACEVFORK | PTRACE_O_TRACECLONE | PTRACE_O_TRACEVFORKDONE;
	birth("fork", TRACED(pid_t c = fork(); if (!c) _exit(2); waitpid(c, NULL, 0)), all);
	birth("vfork", TRACED(pid_t c = vfork(); if (!c) _exit(2); waitpid(c, NULL, 0)), all);
	birth("clone", TRACED(pid_t c = clone(empty, stack + sizeof stack, SIGUSR1, NULL); waitpid(c, NULL, __WALL)), all);
	birth("none", TRACED(pid_t c = fork(); if (!c) _exit(2); waitpid(c, NULL, 0)), 0);
	T(waitpid(-1, NULL, WNOHANG | __WALL));
	birth("untraced", TRACED(pid_t c = clone(empty, stack + sizeof stack, SIGCHLD | CLONE_UNTRACED, NULL); waitpid(c, NULL, __WALL)), all);
}

static void *thread(void *x)
{
	int *fd = x;
	char c;
	if (read(*fd, &c, 1)) {}
	return NULL;
}

static void threads(void)
{
	int fds[2];
	if (pipe(fds))
		return;
	pid_t p = TRACED({
		pthread_t t;
		pthread_create(&t, NULL, thread, &fds[0]);
		pthread_join(t, NULL);
		ms(100);
		_exit(6);
	});
	T(P(PTRACE_SETOPTIONS, p, 0, PTRACE_O_TRACECLONE));
	T(P(PTRACE_CONT, p, 0, 0));
	wait_for("clone", p);
	unsigned long tid = 0;
	T(P(PTRACE_GETEVENTMSG, p, 0, &tid));
	Y(tid != (unsigned long)p);
	T(P(PTRACE_CONT, p, 0, 0));
	wait_for("thread", tid);
	T(P(PTRACE_CONT, tid, 0, 0));
	T(syscall(SYS_tgkill, p, tid, SIGUSR1));
	wait_for("usr1", tid);
	T(P(PTRACE_CONT, tid, 0, 0));
	T(write(fds[1], "x", 1));
	wait_for("thread's end", tid);
	T(waitpid(tid, NULL, __WALL));
	wait_for("exit", p);
}

static void events(void)
{
	pid_t p = TRACED(_exit(3));
	unsigned long msg = 0;
	T(P(PTRACE_SETOPTIONS, p, 0, PTRACE_O_TRACEEXIT | PTRACE_O_TRACEEXEC));
	T(P(PTRACE_CONT, p, 0, 0));
	wait_for("exit event", p);
	T(P(PTRACE_GETEVENTMSG, p, 0, &msg));
	say("msg", "%lx", msg);
	T(P(PTRACE_CONT, p, 0, 0));
	wait_for("exit", p);
	p = TRACED(raise(SIGTERM));
	T(P(PTRACE_SETOPTIONS, p, 0, PTRACE_O_TRACEEXIT | PTRACE_O_TRACEEXEC));
	T(P(PTRACE_CONT, p, 0, 0));
	wait_for("term", p);
	T(P(PTRACE_CONT, p, 0, SIGTERM));
	wait_for("exit event", p);
	T(P(PTRACE_GETEVENTMSG, p, 0, &msg));
	say("msg", "%lx", msg);
	T(P(PTRACE_CONT, p, 0, 0));
	wait_for("exit", p);
	p = TRACED(execl("/bin/true", "true", NULL));
	T(P(PTRACE_SETOPTIONS, p, 0, PTRACE_O_TRACEEXEC | PTRACE_O_TRACESYSGOOD));
	T(P(PTRACE_SYSCALL, p, 0, 0));
	wait_for("execve", p);
	T(P(PTRACE_SYSCALL, p, 0, 0));
	wait_for("exec event", p);
	struct user_regs_struct r = regs_of(p);
	say("regs", "rax %lld orig %lld", (long long)r.rax, (long long)r.orig_rax);
	T(P(PTRACE_GETEVENTMSG, p, 0, &msg));
	Y(msg == (unsigned long)p);
	T(P(PTRACE_SYSCALL, p, 0, 0));
	wait_for("execve's end", p);
	r = regs_of(p);
	say("regs", "rax %lld orig %lld rbx %lld", (long long)r.rax, (long long)r.orig_rax, (long long)r.rbx);
	T(P(PTRACE_CONT, p, 0, 0));
	wait_for("exit", p);
	p = TRACED(execl("/bin/true", "true", NULL));
	T(P(PTRACE_CONT, p, 0, 0));
	wait_for("exec trap", p);
	siginfo_t si;
	T(P(PTRACE_GETSIGINFO, p, 0, &si));
	say("info", "%d %d", si.si_signo, si.si_code);
	Y(si.si_pid == p);
	T(P(PTRACE_CONT, p, 0, 0));
	wait_for("exit", p);
}

static void *execs(void *x)
{
	(void)x;
	execl("/bin/true", "true", NULL);
	return NULL;
}

static void exec_thread(void)
{
	pid_t p = TRACED(pthread_t t; pthread_create(&t, NULL, execs, NULL); pause());
	T(P(PTRACE_SETOPTIONS, p, 0, PTRACE_O_TRACEEXEC | PTRACE_O_TRACECLONE));
	T(P(PTRACE_CONT, p, 0, 0));
	wait_for("clone", p);
	unsigned long tid = 0, msg = 0;
	T(P(PTRACE_GETEVENTMSG, p, 0, &tid));
	T(P(PTRACE_CONT, p, 0, 0));
	wait_for("thread", tid);
	T(P(PTRACE_CONT, tid, 0, 0));
	wait_for("exec", p);
	T(P(PTRACE_GETEVENTMSG, p, 0, &msg));
	Y(msg == tid);
	T(P(PTRACE_CONT, tid, 0, 0));
	T(P(PTRACE_CONT, p, 0, 0));
	wait_for("exit", p);
	T(waitpid(-1, NULL, __WALL));
}

static void filters(void)
{
	struct sock_filter f[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, 0),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_getppid, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_TRACE | 0x123),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog prog = { 4, f };
	pid_t p = TRACED({
		prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
		prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &prog);
		long a = syscall(SYS_getppid);
		long b = syscall(SYS_getppid);
		long c = syscall(SYS_getppid);
		_exit((a > 0) | (b == 55) << 1 | (c == -1 && errno == ENOSYS) << 2);
	});
	unsigned long msg = 0;
	struct ptrace_syscall_info i;
	T(P(PTRACE_SETOPTIONS, p, 0, PTRACE_O_TRACESECCOMP));
	T(P(PTRACE_CONT, p, 0, 0));
	wait_for("first", p);
	T(P(PTRACE_GETEVENTMSG, p, 0, &msg));
	say("msg", "%lx", msg);
	memset(&i, 0, sizeof i);
	Y(P(PTRACE_GET_SYSCALL_INFO, p, sizeof i, &i) >= 84);
	say("op", "%d nr %lld data %x", i.op, (long long)i.seccomp.nr, i.seccomp.ret_data);
	struct user_regs_struct r = regs_of(p);
	say("regs", "rax %lld orig %lld", (long long)r.rax, (long long)r.orig_rax);
	struct sock_filter got[8];
	if (geteuid() == 0) {
		memset(got, 0, sizeof got);
		T(P(PTRACE_SECCOMP_GET_FILTER, p, 0, 0));
		T(P(PTRACE_SECCOMP_GET_FILTER, p, 0, got));
		Y(memcmp(got, f, sizeof f) == 0);
		T(P(PTRACE_SECCOMP_GET_FILTER, p, 1, got));
		T(P(PTRACE_SECCOMP_GET_FILTER, p, 0, 8));
		unsigned long long meta[2] = { 0, 9 };
		T(P(PTRACE_SECCOMP_GET_METADATA, p, 16, meta));
		say("flags", "%llx", meta[1]);
		T(P(PTRACE_SECCOMP_GET_METADATA, p, 7, meta));
		meta[0] = 3;
		T(P(PTRACE_SECCOMP_GET_METADATA, p, 16, meta));
	}
	T(P(PTRACE_CONT, p, 0, 0));
	wait_for("second", p);
	T(P(PTRACE_POKEUSR, p, offsetof(struct user, regs.orig_rax), -1L));
	T(P(PTRACE_POKEUSR, p, offsetof(struct user, regs.rax), 55));
	T(P(PTRACE_CONT, p, 0, 0));
	wait_for("third", p);
	T(P(PTRACE_SETOPTIONS, p, 0, 0));
	T(P(PTRACE_POKEUSR, p, offsetof(struct user, regs.orig_rax), -1L));
	T(P(PTRACE_CONT, p, 0, 0));
	wait_for("exit", p);
	p = TRACED({
		prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
		prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &prog);
		_exit(syscall(SYS_getppid) == -1 && errno == ENOSYS ? 1 : 2);
	});
	T(P(PTRACE_CONT, p, 0, 0));
	wait_for("no option", p);
	p = TRACED(_exit(0));
	T(P(PTRACE_SECCOMP_GET_FILTER, p, 0, got) == -1 && (errno == EACCES || errno == EINVAL));
	T(P(PTRACE_GET_RSEQ_CONFIGURATION, p, 24, got));
	T(P(PTRACE_GET_RSEQ_CONFIGURATION, p, 8, got));
	T(P(0x4211, p, 32, got));
	T(P(0x4211, p, 8, got));
	end(p);
}

/* The tracer is not the parent. */
static void stranger(void)
{
	int fds[2];
	if (pipe(fds))
		return;
	pid_t p = fork();
	if (p == 0) {
		char c;
		if (read(fds[0], &c, 1)) {}
		_exit(9);
	}
	int st;
	pid_t t = fork();
	if (t == 0) {
		T(P(PTRACE_SEIZE, p, 0, PTRACE_O_TRACEEXIT));
		T(waitpid(p, NULL, WNOHANG));
		if (write(fds[1], "x", 1)) {}
		wait_for("tracer: event", p);
		T(P(PTRACE_CONT, p, 0, 0));
		siginfo_t si;
		T(waitid(P_PID, p, &si, WEXITED | WNOWAIT));
		ms(100);
		/* Its parent sees it now. */
		say("tracer", "waits");
		_exit(waitpid(p, NULL, 0) == p && waitpid(p, NULL, WNOHANG) < 0 ? 0 : 1);
	}
	ms(80);
	T(waitpid(p, &st, WNOHANG));
	while (waitpid(p, &st, 0) < 0 && errno == EINTR) {}
	wait_for("tracer", t);
	status("parent", st);
	/* It ends without having let go. */
	p = fork();
	if (p == 0) {
		ms(200);
		_exit(4);
	}
	t = fork();
	if (t == 0) {
		T(P(PTRACE_ATTACH, p, 0, 0));
		wait_for("tracer: attached", p);
		_exit(0);
	}
	wait_for("tracer", t);
	wait_for("parent", p);
	p = fork();
	if (p == 0) {
		ms(5000);
		_exit(4);
	}
	t = fork();
	if (t == 0) {
		T(P(PTRACE_SEIZE, p, 0, PTRACE_O_EXITKILL));
		_exit(0);
	}
	wait_for("tracer", t);
	wait_for("parent", p);
}

static void killed(void)
{
	pid_t p = TRACED(_exit(0));
	T(kill(p, SIGKILL));
	wait_for("stopped one", p);
	p = TRACED(for (;;) getppid());
	T(P(PTRACE_SYSCALL, p, 0, 0));
	wait_for("call", p);
	T(P(PTRACE_KILL, p, 0, 0));
	wait_for("kill", p);
	p = TRACED(for (;;) ;);
	T(P(PTRACE_CONT, p, 0, 0));
	ms(10);
	T(P(PTRACE_KILL, p, 0, 0));
	wait_for("running one", p);
	p = TRACED(pause());
	T(P(PTRACE_SETOPTIONS, p, 0, PTRACE_O_TRACEEXIT));
	T(P(PTRACE_CONT, p, 0, 0));
	T(kill(p, SIGKILL));
	wait_for("with event", p);
	unsigned long msg = 0;
	T(P(PTRACE_GETEVENTMSG, p, 0, &msg));
	say("msg", "%lx", msg);
	T(P(PTRACE_CONT, p, 0, 0));
	wait_for("end", p);
}

static void rights(void)
{
	if (geteuid() != 0)
		return;
	pid_t root = fork();
	if (root == 0) {
		pause();
		_exit(0);
	}
	pid_t p = fork();
	if (p == 0) {
		drop_root();
		T(P(PTRACE_ATTACH, root, 0, 0));
		T(P(PTRACE_SEIZE, root, 0, 0));
		T(P(PTRACE_TRACEME, 0, 0, 0));
		pid_t c = fork();
		if (c == 0) {
			prctl(PR_SET_DUMPABLE, 0, 0, 0, 0);
			ms(3000);
			_exit(0);
		}
		ms(50);
		T(P(PTRACE_SEIZE, c, 0, 0));
		kill(c, SIGKILL);
		waitpid(c, NULL, 0);
		c = TRACED(_exit(0));
		T(P(PTRACE_SETOPTIONS, c, 0, PTRACE_O_SUSPEND_SECCOMP));
		struct sock_filter f[4];
		T(P(PTRACE_SECCOMP_GET_FILTER, c, 0, f));
		end(c);
		_exit(0);
	}
	int st;
	while (waitpid(p, &st, 0) == p && WIFSTOPPED(st))
		P(PTRACE_CONT, p, 0, 0);
	status("user", st);
	end(root);
	/* A set-uid program under a tracer without privileges. */
	put("ids", "");
	if (system("cp /usr/bin/id ./id && chmod 4755 ./id")) {}
	p = fork();
	if (p == 0) {
		drop_root();
		pid_t c = fork();
		if (c == 0) {
			P(PTRACE_TRACEME, 0, 0, 0);
			execl("./id", "id", "-u", NULL);
			_exit(9);
		}
		wait_for("exec", c);
		line_of(c, "status", "Uid");
		T(P(PTRACE_CONT, c, 0, 0));
		wait_for("exit", c);
		_exit(0);
	}
	wait_for("set-uid", p);
}

static const struct check list[] = {
	CHECK(traceme), CHECK(errors), CHECK(memory), CHECK(registers), CHECK(sets), CHECK(calls), CHECK(changed), CHECK(delivery),
	CHECK(step), CHECK(attached), CHECK(seized), CHECK(group), CHECK(waits), CHECK(sigchld), CHECK(births), CHECK(threads),
	CHECK(events), CHECK(exec_thread), CHECK(filters), CHECK(stranger), CHECK(killed), CHECK(rights),
};
MAIN(list)
