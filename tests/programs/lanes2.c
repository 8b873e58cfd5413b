/* Code that is called often, and then goes, changes, or is looked at: a sandbox may have patched it. */
#define AREA "lanes2"
#include "check.h"
#include <dlfcn.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/ptrace.h>

#define OFTEN 600

/* nop; mov $nr, %eax; syscall; ret: the call at 6. (Of a page's first byte nothing is known before it.) */
#define P_CODE(nr) { 0x90, 0xb8, (nr), 0, 0, 0, 0x0f, 0x05, 0xc3 }
/* mov %edi, %eax; syscall; ret, padding: the call at 4, the padding's last seven bytes at 9. */
static const unsigned char k_code[16] = { 0x90, 0x90, 0x89, 0xf8, 0x0f, 0x05, 0xc3, 0x66, 0x0f, 0x1f, 0x84, 0, 0, 0, 0, 0 };

typedef long (*fn)(long);

static unsigned char *page(int prot)
{
	return mmap(NULL, 4096, prot, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
}

/* k_code, and behind it a function that gives 77: who runs through the padding gets there. */
static void put_k(unsigned char *p)
{
	static const unsigned char next[] = { 0xb8, 77, 0, 0, 0, 0xc3 };
	memcpy(p, k_code, sizeof k_code);
	memcpy(p + 16, next, sizeof next);
}

static int often(unsigned char *p, long nr)
{
	int same = 0;
	long is = syscall(nr);
	for (int i = 0; i < OFTEN; i++)
		same += ((fn)p)(nr) == is;
	return same;
}

static volatile long hits, at_ip, si_code;
static void note(int s, siginfo_t *i, void *p)
{
	ucontext_t *u = p;
	(void)s;
	hits++;
	si_code = i->si_code;
	at_ip = u->uc_mcontext.gregs[REG_RIP];
}

static void handle(int s, void (*f)(int, siginfo_t *, void *))
{
	struct sigaction a = { .sa_sigaction = f, .sa_flags = SA_SIGINFO | SA_NODEFER };
	sigaction(s, &a, NULL);
}

/* One address, code that is written again and again. */
static void rewritten(void)
{
	unsigned char *p = page(PROT_READ | PROT_WRITE);
	int wrong = 0, numbers[] = { SYS_getpid, SYS_getppid, SYS_getuid, SYS_gettid };
	handle(SIGTRAP, note);
	for (int round = 0; round < 12; round++) {
		int nr = numbers[round % 4];
		unsigned char code[] = P_CODE(nr);
		mprotect(p, 4096, PROT_READ | PROT_WRITE);
		if (round % 3 == 2)
			put_k(p);
		else
			memcpy(p, code, sizeof code);
		mprotect(p, 4096, PROT_READ | PROT_EXEC);
		wrong += often(p, nr) != OFTEN;
		/* The program's own int3, where the call was. */
		int call = round % 3 == 2 ? 4 : 6;
		mprotect(p, 4096, PROT_READ | PROT_WRITE);
		wrong += p[call] != 0x0f || p[call + 1] != 0x05;
		p[call] = 0xcc;
		p[call + 1] = 0x90;
		mprotect(p, 4096, PROT_READ | PROT_EXEC);
		hits = 0;
		((fn)p)(nr);
		wrong += hits != 1 || at_ip != (long)(p + call + 1);
	}
	T(wrong);
}

/* Other code at an address that a call had been at: mapped over, unmapped and mapped, dropped. */
static void replaced(void)
{
	int wrong = 0;
	handle(SIGTRAP, note);
	handle(SIGSEGV, note);
	for (int way = 0; way < 3; way++) {
		unsigned char *p = page(PROT_READ | PROT_WRITE), code[] = P_CODE(SYS_getpid);
		memcpy(p, code, sizeof code);
		put_k(p + 64);
		mprotect(p, 4096, PROT_READ | PROT_EXEC);
		wrong += often(p, SYS_getpid) + often(p + 64, SYS_getppid) != 2 * OFTEN;
		if (way == 1)
			munmap(p, 4096);
		if (way == 2) {
			madvise(p, 4096, MADV_DONTNEED);
			wrong += p[6] != 0 || p[68] != 0;
			mprotect(p, 4096, PROT_READ | PROT_WRITE);
		} else {
			mmap(p, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
		}
		/* int3 at both calls, and in the padding; then returns. */
		static const unsigned char traps[] = { 0xcc, 0xc3 };
		memset(p, 0x90, 4096);
		memcpy(p + 6, traps, 2);
		memcpy(p + 68, traps, 2);
		memcpy(p + 73, traps, 2);
		mprotect(p, 4096, PROT_READ | PROT_EXEC);
		int at[] = { 0, 64, 72 }, trap[] = { 6, 68, 73 };
		for (int i = 0; i < 3; i++) {
			hits = 0;
			((fn)(p + at[i]))(SYS_getpid);
			wrong += hits != 1 || at_ip != (long)(p + trap[i] + 1);
		}
		/* What faults there says so. */
		mprotect(p, 4096, PROT_READ | PROT_WRITE);
		memset(p, 0xf4, 4096); /* hlt */
		mprotect(p, 4096, PROT_READ | PROT_EXEC);
		munmap(p, 4096);
	}
	T(wrong);
}

/* The same library at the same place, another, and the first again. */
static void libraries(void)
{
	char dir[4096], path[2][4200], cmd[9000];
	getcwd(dir, sizeof dir);
	int numbers[] = { SYS_getpid, SYS_getppid };
	for (int i = 0; i < 2; i++) {
		snprintf(path[i], sizeof path[i], "%s/lib%d.s", dir, i);
		FILE *f = fopen(path[i], "w");
		fprintf(f, ".globl call\n.type call, @function\ncall: %s mov $%d, %%eax\n syscall\n ret\n.section .note.GNU-stack\n",
			i ? "nop; nop;" : "", numbers[i]);
		fclose(f);
		snprintf(cmd, sizeof cmd, "gcc -shared -nostdlib -o %s/lib%d.so %s", dir, i, path[i]);
		if (system(cmd))
			_exit(50);
		snprintf(path[i], sizeof path[i], "%s/lib%d.so", dir, i);
	}
	int wrong = 0;
	for (int round = 0; round < 8; round++) {
		void *h = dlopen(path[round & 1], RTLD_NOW);
		if (!h)
			_exit(51);
		wrong += often(dlsym(h, "call"), numbers[round & 1]) != OFTEN;
		dlclose(h);
	}
	T(wrong);
}

static unsigned char *shared_code;
static volatile int stop, changing;
static volatile long made;
static void *caller(void *number)
{
	long nr = (long)number, is = syscall(nr), bad = 0;
	while (!stop) {
		for (int i = 0; i < 50; i++)
			bad += ((fn)(shared_code + (nr == SYS_getpid ? 0 : 64)))(nr) != is;
		made += 50;
	}
	return (void *)bad;
}

/* A page with a call of each kind, and threads that make them. */
static const unsigned char getpid_code[] = P_CODE(SYS_getpid);
static pthread_t callers[3];
static int n_callers;

static void start_callers(const long *numbers, int n)
{
	shared_code = page(PROT_READ | PROT_WRITE);
	memcpy(shared_code, getpid_code, sizeof getpid_code);
	put_k(shared_code + 64);
	mprotect(shared_code, 4096, PROT_READ | PROT_EXEC);
	n_callers = n;
	for (int i = 0; i < n; i++)
		pthread_create(&callers[i], NULL, caller, (void *)numbers[i]);
}

/* How many answers were wrong. */
static long stop_callers(void)
{
	long bad = 0;
	stop = 1;
	for (int i = 0; i < n_callers; i++) {
		void *r;
		pthread_join(callers[i], &r);
		bad += (long)r;
	}
	return bad;
}

/* Threads call while the page is made writable, moved there and back, and written by a debugger's way. */
static void beside_threads(void)
{
	long numbers[] = { SYS_getpid, SYS_getppid, SYS_getppid }, bad = 0;
	start_callers(numbers, 3);
	int mem = open("/proc/self/mem", O_RDWR);
	for (int round = 0; round < 30; round++) {
		long from = made;
		while (made < from + 1500)
			sched_yield();
		if (round % 2 == 0)
			bad += mprotect(shared_code, 4096, PROT_READ | PROT_WRITE | PROT_EXEC) != 0;
		else
			bad += pwrite(mem, "\x90", 1, (off_t)shared_code + 64) != 1;
		bad += memcmp(shared_code, getpid_code, sizeof getpid_code) || memcmp(shared_code + 66, k_code + 2, 13);
		if (round % 2 == 0)
			bad += mprotect(shared_code, 4096, PROT_READ | PROT_EXEC) != 0;
	}
	bad += stop_callers();
	close(mem);
	T(bad);
}

/* The same, and the pages of the table are mapped meanwhile. */
static void the_table(void)
{
	long numbers[] = { SYS_getpid, SYS_getppid };
	start_callers(numbers, 2);
	while (made < 20000)
		sched_yield();
	char *low = mmap((void *)0x3fc00000, 0x200000, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
	Y(low == (void *)0x3fc00000);
	memset(low, 0x5a, 0x200000);
	for (long from = made; made < from + 2000;)
		sched_yield();
	T(stop_callers());
	Y(memcmp(shared_code, getpid_code, sizeof getpid_code) == 0);
}

/* A single-stepping program: each step is an instruction of its own. */
static unsigned char *step_base;
static int steps[64], n_steps;
static long step_ax[64];
static void step(int s, siginfo_t *i, void *p)
{
	ucontext_t *u = p;
	long at = u->uc_mcontext.gregs[REG_RIP] - (long)step_base;
	(void)s;
	if (at < 0 || at >= 4096) {
		u->uc_mcontext.gregs[REG_EFL] &= ~0x100L;
		return;
	}
	if (n_steps < 60) {
		step_ax[n_steps] = u->uc_mcontext.gregs[REG_RAX];
		steps[n_steps++] = at * 10 + (i->si_code == TRAP_TRACE ? 0 : i->si_code == TRAP_BRKPT ? 1 : 2);
	}
}

static long with_steps(unsigned char *p, long nr)
{
	long r;
	n_steps = 0;
	asm volatile("pushf; orl $0x100, (%%rsp); popf; call *%1; pushf; andl $~0x100, (%%rsp); popf"
		     : "=a"(r) : "r"(p), "D"(nr) : "rcx", "r11", "rdx", "rsi", "memory", "cc");
	return r;
}

static void single_steps(void)
{
	/* Each of the forms that can be displaced, and a bare call. */
	static const unsigned char forms[][24] = {
		{ 0x90, 0xb8, SYS_getppid, 0, 0, 0, 0x0f, 0x05, 0x90, 0xc3 },
		{ 0x89, 0xf8, 0xbf, 0, 0, 0, 0, 0x0f, 0x05, 0x90, 0xc3 },
		{ 0x89, 0xf8, 0x41, 0xba, 0, 0, 0, 0, 0x0f, 0x05, 0x90, 0xc3 },
		{ 0x90, 0x48, 0xc7, 0xc0, SYS_getppid, 0, 0, 0, 0x0f, 0x05, 0x90, 0xc3 },
		{ 0x89, 0xf8, 0x4c, 0x8b, 0x4c, 0x24, 0x08, 0x0f, 0x05, 0x90, 0xc3 },
	};
	handle(SIGTRAP, step);
	int wrong = 0;
	step_base = page(PROT_READ | PROT_WRITE);
	for (int i = 0; i < 5; i++)
		memcpy(step_base + 64 * i, forms[i], sizeof forms[i]);
	put_k(step_base + 64 * 5);
	mprotect(step_base, 4096, PROT_READ | PROT_EXEC);
	for (int i = 0; i < 6; i++) {
		wrong += often(step_base + 64 * i, SYS_getppid) != OFTEN;
		long r = with_steps(step_base + 64 * i, SYS_getppid);
		wrong += r != getppid();
		char line[512];
		int at = 0;
		for (int k = 0; k < n_steps; k++)
			at += sprintf(line + at, " %d.%s", steps[k] - 640 * i, step_ax[k] == getppid() ? "done" : step_ax[k] == SYS_getppid ? "nr" : "");
		line[at] = 0;
		say("steps", "%s", line);
	}
	T(wrong);
}

/* A timer's signals at every instruction: what is shown is the program's own. */
static volatile long foreign, storms;
static void storm(int s, siginfo_t *i, void *p)
{
	ucontext_t *u = p;
	unsigned char *ip = (void *)u->uc_mcontext.gregs[REG_RIP];
	(void)s; (void)i;
	storms++;
	if (ip >= step_base && ip < step_base + 4096) {
		long at = (ip - step_base) % 64;
		/* Where an instruction begins: P's 0, 1, 6, 8; K's 0.. 2, 4, 6. */
		int k = (ip - step_base) >= 64;
		foreign += k ? at > 6 || at == 3 || at == 5 : at != 0 && at != 1 && at != 6 && at != 8;
	} else if ((unsigned long)ip >= 0x7ff000000000UL || (unsigned long)ip - 0x3fc00000 < 0x200000) {
		foreign++;
	}
}

static void storm_of_signals(void)
{
	step_base = page(PROT_READ | PROT_WRITE);
	unsigned char code[] = P_CODE(SYS_getppid);
	memcpy(step_base, code, sizeof code);
	put_k(step_base + 64);
	mprotect(step_base, 4096, PROT_READ | PROT_EXEC);
	handle(SIGALRM, storm);
	struct itimerval v = { { 0, 211 }, { 0, 211 } };
	long bad = 0, is = getppid();
	setitimer(ITIMER_REAL, &v, NULL);
	while (storms < 1500)
		for (int i = 0; i < 40; i++)
			bad += ((fn)step_base)(0) != is || ((fn)(step_base + 64))(SYS_getppid) != is;
	memset(&v, 0, sizeof v);
	setitimer(ITIMER_REAL, &v, NULL);
	T(bad);
	T(foreign);
}

/* What the kernel reads of it. */
static void reads(void)
{
	unsigned char *p = page(PROT_READ | PROT_WRITE), code[] = P_CODE(SYS_getpid), got[96];
	memcpy(p, code, sizeof code);
	put_k(p + 64);
	mprotect(p, 4096, PROT_READ | PROT_EXEC);
	T(often(p, SYS_getpid) + often(p + 64, SYS_getppid));
	struct iovec l = { got, 96 }, r = { p, 96 };
	T(syscall(SYS_process_vm_readv, getpid(), &l, 1, &r, 1, 0));
	S(got, 96);
	int fd = memfd_create("x", 0), fds[2];
	pipe(fds);
	memset(got, 0, sizeof got);
	T(write(fd, p, 96));
	T(pread(fd, got, 96, 0));
	S(got, 96);
	memset(got, 0, sizeof got);
	T(write(fds[1], p, 96));
	T(read(fds[0], got, 96));
	S(got, 96);
	struct iovec v[3] = { { "ab", 2 }, { p, 80 }, { "cd", 2 } };
	T(pwritev(fd, v, 3, 0));
	T(pread(fd, got, 84, 0));
	S(got, 84);
	/* Long ones go another way. */
	char *big = malloc(200000);
	struct iovec w[2] = { { big, 100000 }, { p, 4096 } };
	memset(big, 1, 200000);
	T(pwritev(fd, w, 2, 0));
	T(pread(fd, got, 96, 100000));
	S(got, 96);
	T(CHILD(
		struct iovec l2 = { got, 96 };
		memset(got, 0, 96);
		if (process_vm_readv(getppid(), &l2, 1, &r, 1, 0) != 96 || memcmp(got, code, sizeof code) || memcmp(got + 68, k_code + 4, 8))
			_exit(1)));
}

/* Children of all kinds, and programs in their place. */
static void children(void)
{
	unsigned char *p = page(PROT_READ | PROT_WRITE), code[] = P_CODE(SYS_getpid);
	memcpy(p, code, sizeof code);
	put_k(p + 64);
	mprotect(p, 4096, PROT_READ | PROT_EXEC);
	T(often(p, SYS_getpid) + often(p + 64, SYS_getppid));
	handle(SIGTRAP, note);
	for (int round = 0; round < 4; round++) {
		T(CHILD(
			if (often(p, SYS_getpid) + often(p + 64, SYS_getppid) != 2 * OFTEN) _exit(1);
			mprotect(p, 4096, PROT_READ | PROT_WRITE);
			if (memcmp(p, code, sizeof code) || memcmp(p + 64, k_code, 15)) _exit(2);
			p[6] = 0xcc; p[7] = 0xc3;
			mprotect(p, 4096, PROT_READ | PROT_EXEC);
			hits = 0;
			((fn)p)(0);
			if (hits != 1 || at_ip != (long)p + 7) _exit(3)));
		T(often(p, SYS_getpid) + often(p + 64, SYS_getppid));
	}
	unsigned char *q = page(PROT_READ | PROT_WRITE);
	memcpy(q, code, sizeof code);
	mprotect(q, 4096, PROT_READ | PROT_EXEC);
	T(often(q, SYS_getpid));
	T(madvise(q, 4096, MADV_DONTFORK));
	T(CHILD(
		unsigned char *n = mmap(q, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
		memset(n, 0x90, 16); n[6] = 0xcc; n[7] = 0xc3;
		mprotect(n, 4096, PROT_READ | PROT_EXEC);
		hits = 0;
		((fn)n)(0);
		if (hits != 1 || at_ip != (long)n + 7) _exit(1)));
	for (int i = 0; i < 3; i++) {
		pid_t v = vfork();
		if (v == 0) {
			if (((fn)p)(0) != ((fn)(p + 64))(SYS_getpid))
				_exit(9);
			execl("/bin/sh", "sh", "-c", "exit 7", NULL);
			_exit(8);
		}
		int st;
		waitpid(v, &st, 0);
		T(WEXITSTATUS(st));
		T(often(p, SYS_getpid));
	}
}

/* A thread that was stopped anywhere in it goes on there, however it is stopped. */
static void *stopped_caller(void *p)
{
	(void)p;
	long bad = 0, is = getppid();
	while (!stop)
		for (int i = 0; i < 100; i++)
			bad += ((fn)shared_code)(SYS_getppid) != is || syscall(SYS_getpid) != getpid();
	return (void *)bad;
}
static void stopped(void)
{
	shared_code = page(PROT_READ | PROT_WRITE);
	put_k(shared_code);
	mprotect(shared_code, 4096, PROT_READ | PROT_EXEC);
	T(CHILD(
		pthread_t t[2];
		void *r;
		pid_t parent = getpid();
		for (int i = 0; i < 2; i++) pthread_create(&t[i], NULL, stopped_caller, NULL);
		pid_t helper = fork();
		if (helper == 0) {
			for (int i = 0; i < 60; i++) { kill(parent, SIGSTOP); usleep(500); kill(parent, SIGCONT); usleep(700); }
			_exit(0);
		}
		int st; waitpid(helper, &st, 0);
		stop = 1;
		for (int i = 0; i < 2; i++) { pthread_join(t[i], &r); if (r) _exit(2); }));
}

static const struct check all[] = {
	CHECK(rewritten), CHECK(replaced), CHECK(libraries), CHECK(beside_threads), CHECK(the_table), CHECK(single_steps),
	CHECK(storm_of_signals), CHECK(reads), CHECK(children), CHECK(stopped),
};
MAIN(all)
