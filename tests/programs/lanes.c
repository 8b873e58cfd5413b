/* System calls that are made often from the same place: a sandbox may patch it. Nothing of that may show. */
#define AREA "lanes"
#include "check.h"
#include <asm/prctl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>

#define OFTEN 600

/* A call whose number is loaded right before it, by the instruction that a patch displaces. */
#define PLAIN(nr) ({ long r_; \
	asm volatile("mov %1, %%eax\n\tsyscall" : "=&a"(r_) : "i"(nr) : "rcx", "r11", "memory"); r_; })

/* A call with nothing before it that could be displaced, but padding behind. */
long bare(long nr, long a, long b);
extern char bare_end;
asm(".text\n.p2align 4\n.globl bare\nbare:\n\tmov %rdi, %rax\n\tmov %rsi, %rdi\n\tmov %rdx, %rsi\n\tsyscall\n"
    "\ttest %rax, %rax\n\tjs 1f\n\tret\n1:\tmov $-1, %rax\n\tret\n\t.p2align 5\nbare_end:\n\tud2\n");

static void numbers(void)
{
	int same = 0;
	for (int i = 0; i < OFTEN; i++)
		same += PLAIN(SYS_getpid) == getpid() && syscall(SYS_gettid) == getpid() && getuid() == geteuid();
	T(same);
	T(CHILD(for (int i = 0; i < OFTEN; i++) if (PLAIN(SYS_getpid) == getppid() || PLAIN(SYS_gettid) != PLAIN(SYS_getpid)) _exit(1)));
	/* A number in 64 bits, and one that there is not. */
	long wide = 0x100000000L | SYS_getpid, r;
	for (int i = 0; i < OFTEN; i++)
		asm volatile("syscall" : "=a"(r) : "a"(wide) : "rcx", "r11", "memory");
	Y(r == getpid());
	same = 0;
	for (int i = 0; i < OFTEN; i++)
		same += syscall(499) == -1 && errno == ENOSYS && syscall(SYS_read, -1, 0, 0) == -1 && errno == EBADF;
	T(same);
}

static void numbers_of_bare_calls(void)
{
	int same = 0;
	for (int i = 0; i < OFTEN; i++) {
		same += bare(SYS_getpid, 0, 0) == getpid() && bare(SYS_getppid, 0, 0) == getppid();
		same += bare(SYS_lseek, -1, 0) == -1 && bare(499, 0, 0) == -1;
	}
	T(same);
	unsigned char code[64] = { 0 };
	int fd = open("/proc/self/mem", O_RDWR), n = &bare_end - (char *)bare;
	Y(pread(fd, code, n, (off_t)bare) == n);
	S(code, n);
	/* As a debugger sets a breakpoint, in the padding. */
	Y(pwrite(fd, "\xcc", 1, (off_t)(&bare_end - 1)) == 1);
	Y(bare(SYS_getpid, 0, 0) == getpid());
	Y(((unsigned char *)&bare_end)[-1] == 0xcc);
	for (int i = 0; i < OFTEN; i++)
		same += bare(SYS_getpid, 0, 0) == getpid();
	T(same);
	T(CHILD(for (int i = 0; i < OFTEN; i++) if (bare(SYS_getppid, 0, 0) != getppid()) _exit(1)));
	close(fd);
}

static void *thread_numbers(void *p)
{
	(void)p;
	long bad = 0;
	long tid = syscall(SYS_gettid);
	for (int i = 0; i < 20 * OFTEN; i++)
		bad += PLAIN(SYS_gettid) != tid || PLAIN(SYS_getpid) != getpid() || PLAIN(SYS_getppid) != getppid();
	return (void *)bad;
}

static void threads(void)
{
	pthread_t t[4];
	for (int round = 0; round < 4; round++) {
		long bad = 0;
		for (int i = 0; i < 4; i++)
			pthread_create(&t[i], NULL, thread_numbers, NULL);
		for (int i = 0; i < 4; i++) {
			void *r;
			pthread_join(t[i], &r);
			bad += (long)r;
		}
		T(bad);
	}
}

/* All registers but rax, rcx and r11, and the flags, are as before. */
static void registers(void)
{
	static unsigned long before[14], after[14];
	int wrong = 0;
	for (int nr = 0; nr < 3; nr++) {
		for (int i = 0; i < OFTEN; i++) {
			for (int k = 0; k < 14; k++)
				before[k] = 0x1111000000000000UL * (k + 1) + i;
			/* CF, PF, AF, ZF, SF, OF in turns. */
			before[13] = 0x202 | (i & 1) | (i & 2) << 1 | (i & 4) << 2 | (i & 8) << 3 | (i & 16) << 3 | (i & 32) << 6;
			long number = nr == 0 ? SYS_getpid : nr == 1 ? SYS_getppid : SYS_sched_yield;
			asm volatile(
				"mov %0, %%rax; mov %1, %%rcx; mov %2, %%r11\n\t"
				"push %%rbx; push %%rbp; push %%r12; push %%r13; push %%r14; push %%r15; push %%r11\n\t"
				"push 104(%%rcx); popf\n\t"
				"mov (%%rcx), %%rbx; mov 8(%%rcx), %%rdx; mov 16(%%rcx), %%rsi; mov 24(%%rcx), %%rdi\n\t"
				"mov 32(%%rcx), %%rbp; mov 40(%%rcx), %%r8; mov 56(%%rcx), %%r10; mov 64(%%rcx), %%r12\n\t"
				"mov 72(%%rcx), %%r13; mov 80(%%rcx), %%r14; mov 88(%%rcx), %%r15\n\t"
				"mov 8(%%rsp), %%r9\n\t"
				"mov 8(%%rsp), %%r9; syscall\n\t"
				"mov (%%rsp), %%rcx; pushf; pop 104(%%rcx)\n\t"
				"mov %%rbx, (%%rcx); mov %%rdx, 8(%%rcx); mov %%rsi, 16(%%rcx); mov %%rdi, 24(%%rcx)\n\t"
				"mov %%rbp, 32(%%rcx); mov %%r8, 40(%%rcx); mov %%r10, 56(%%rcx); mov %%r12, 64(%%rcx)\n\t"
				"mov %%r13, 72(%%rcx); mov %%r14, 80(%%rcx); mov %%r15, 88(%%rcx)\n\t"
				"pop %%r11; pop %%r15; pop %%r14; pop %%r13; pop %%r12; pop %%rbp; pop %%rbx"
				:: "r"(number), "r"(before), "r"(after)
				: "rax", "rcx", "rdx", "rsi", "rdi", "r8", "r9", "r10", "r11", "memory", "cc");
			for (int k = 0; k < 14; k++)
				if (k != 6 && k != 12)
					wrong += before[k] != after[k];
		}
	}
	T(wrong);
}

static volatile long hits, outside;
extern char __executable_start, etext;
static void *libc_start, *libc_end;

/* Where a signal stops code, it is code of the program's. */
static void look(int s, siginfo_t *i, void *p)
{
	(void)s; (void)i;
	ucontext_t *u = p;
	char *ip = (char *)u->uc_mcontext.gregs[REG_RIP];
	hits++;
	int in_program = ip >= &__executable_start && ip < &etext;
	int in_libc = (void *)ip >= libc_start && (void *)ip < libc_end;
	outside += !in_program && !in_libc;
}

static void find_libc(void)
{
	FILE *f = fopen("/proc/self/maps", "r");
	char line[512];
	while (fgets(line, sizeof line, f)) {
		unsigned long a, b;
		char perms[8];
		if (sscanf(line, "%lx-%lx %7s", &a, &b, perms) == 3 && strstr(line, "libc.so") && strchr(perms, 'x')) {
			libc_start = (void *)a;
			libc_end = (void *)b;
		}
	}
	fclose(f);
}

static void interrupted(void)
{
	find_libc();
	struct sigaction a = { .sa_sigaction = look, .sa_flags = SA_SIGINFO | SA_RESTART };
	sigaction(SIGALRM, &a, NULL);
	struct itimerval t = { { 0, 300 }, { 0, 300 } };
	setitimer(ITIMER_REAL, &t, NULL);
	long wrong = 0;
	int fds[2];
	pipe(fds);
	while (hits < 500)
		for (int i = 0; i < 100; i++) {
			wrong += PLAIN(SYS_getpid) != getpid();
			wrong += PLAIN(SYS_getppid) != getppid();
			wrong += bare(SYS_getppid, 0, 0) != getppid() || bare(SYS_gettid, 0, 0) != getpid();
			char c = i, d = 0;
			wrong += write(fds[1], &c, 1) != 1 || read(fds[0], &d, 1) != 1 || d != c;
			wrong += lseek(fds[0], 0, SEEK_SET) != -1 || errno != ESPIPE;
			/* What the dynamic linker does for the first calls is its own. */
			outside *= hits > 3;
		}
	struct itimerval off = { 0 };
	setitimer(ITIMER_REAL, &off, NULL);
	T(wrong);
	T(outside);
}

/* A call that a signal restarts, or not. */
static int pipe_fds[2];
static void *write_later(void *p)
{
	pthread_t main_thread = *(pthread_t *)p;
	ms(20);
	pthread_kill(main_thread, SIGUSR1);
	ms(20);
	write(pipe_fds[1], "x", 1);
	return NULL;
}

static void blocked(void)
{
	char c;
	pthread_t self = pthread_self(), t;
	pipe(pipe_fds);
	for (int i = 0; i < OFTEN; i++) {
		write(pipe_fds[1], "a", 1);
		read(pipe_fds[0], &c, 1);
	}
	for (int restart = 0; restart < 2; restart++) {
		struct sigaction a = { .sa_sigaction = look, .sa_flags = SA_SIGINFO | (restart ? SA_RESTART : 0) };
		sigaction(SIGUSR1, &a, NULL);
		hits = 0;
		pthread_create(&t, NULL, write_later, &self);
		T(read(pipe_fds[0], &c, 1));
		T(hits);
		pthread_join(t, NULL);
	}
}

/* A jump straight to the instruction, and code that reads itself. */
static void straight(void)
{
	long r = 0, same = 0;
	for (int i = 0; i < OFTEN; i++)
		asm volatile("mov %1, %%eax\n1:\tsyscall" : "=&a"(r) : "i"(SYS_getpid) : "rcx", "r11", "memory");
	for (int i = 0; i < OFTEN; i++) {
		asm volatile("mov %1, %%eax\n\tcmp $0, %2\n\tjne 2f\n\tmov %3, %%eax\n2:\tsyscall"
			     : "=&a"(r) : "i"(SYS_getppid), "r"((int)(i % 3 == 1)), "i"(SYS_getpid) : "rcx", "r11", "memory", "cc");
		same += r == (i % 3 == 1 ? getppid() : getpid());
	}
	T(same);
	int fd = open("/proc/self/mem", O_RDONLY);
	unsigned char code[2];
	long found = 0;
	for (unsigned char *p = (void *)straight; p < (unsigned char *)straight + 4096 && p < (unsigned char *)&etext; p++)
		if (pread(fd, code, 2, (off_t)p) == 2)
			found += code[0] == 0x0f && code[1] == 0x05;
	Y(found >= 2);
	close(fd);
}

static unsigned char *code_page(int nr)
{
	unsigned char *p = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	unsigned char code[] = { 0x90, 0xb8, nr, 0, 0, 0, 0x0f, 0x05, 0xc3 };
	memcpy(p, code, sizeof code);
	mprotect(p, 4096, PROT_READ | PROT_EXEC);
	return p;
}

static long often(unsigned char *p)
{
	long r = 0;
	for (int i = 0; i < OFTEN; i++)
		r = ((long (*)(void))p)();
	return r;
}

/* Code that is moved, changed, and mapped anew. */
static void changed(void)
{
	unsigned char *p = code_page(SYS_getpid);
	Y(often(p) == getpid());
	unsigned char *q = mmap(NULL, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	Y(mremap(p, 4096, 4096, MREMAP_MAYMOVE | MREMAP_FIXED, q) == q);
	Y(often(q) == getpid());
	T(mprotect(q, 4096, PROT_READ | PROT_WRITE));
	S(q, 9);
	q[2] = SYS_getppid;
	T(mprotect(q, 4096, PROT_READ | PROT_EXEC));
	Y(often(q) == getppid());
	T(munmap(q, 4096));
	p = mmap(q, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
	unsigned char code[] = { 0xb8, 7, 0, 0, 0, 0xc3 };
	memcpy(p, code, sizeof code);
	mprotect(p, 4096, PROT_READ | PROT_EXEC);
	T(often(p));
	/* Everything that lies low is the program's own. */
	p = code_page(SYS_getpid);
	often(p);
	char *low = mmap((void *)0x3fc00000, 0x200000, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
	Y(low == (void *)0x3fc00000);
	int zero = 1;
	for (int i = 0; i < 0x200000; i++)
		zero &= low[i] == 0;
	T(zero);
	memset(low, 0xa5, 0x200000);
	Y(often(p) == getpid() && often(code_page(SYS_getppid)) == getppid());
	T(CHILD(if (often(p) != getpid() || low[0xc0000] != (char)0xa5) _exit(1)));
}

/* Children begin with their parent's places, and go on with their own. */
static void children(void)
{
	unsigned char *p = code_page(SYS_getpid);
	often(p);
	T(CHILD(
		unsigned char *q = code_page(SYS_getppid);
		if (often(p) != getpid() || often(q) != getppid()) _exit(1);
		if (CHILD(if (often(p) != getpid() || often(q) != getppid()) _exit(1))) _exit(2);
		munmap(p, 4096)));
	unsigned char *q = code_page(SYS_getppid);
	Y(often(p) == getpid() && often(q) == getppid());
	pid_t v = vfork();
	if (v == 0)
		_exit(often(p) == PLAIN(SYS_getpid) ? 5 : 6);
	int st;
	waitpid(v, &st, 0);
	T(WEXITSTATUS(st));
	Y(often(p) == getpid());
}

static void ids(void)
{
	for (int i = 0; i < OFTEN; i++)
		getuid(), geteuid(), getgid(), getegid();
	if (geteuid() == 0) {
		T(setresgid(-1, 77, -1));
		T(getegid());
		T(getgid());
		T(setresuid(11, 22, 33));
	}
	Y(getuid() == PLAIN(SYS_getuid) && geteuid() == PLAIN(SYS_geteuid));
	say("ids", geteuid() == 22 ? "%s" : "%s, not root", getuid() == 11 || getuid() == geteuid() ? "right" : "wrong");
}

/* The segment base that nobody but Wine uses. */
static void gs(void)
{
	static unsigned long area[64];
	area[1] = 0x1234;
	for (int i = 0; i < OFTEN; i++)
		syscall(SYS_getpid);
	unsigned long got = 1;
	T(syscall(SYS_arch_prctl, ARCH_GET_GS, &got));
	Y(got == 0);
	T(syscall(SYS_arch_prctl, ARCH_SET_GS, area));
	for (int i = 0; i < OFTEN; i++)
		syscall(SYS_getpid);
	asm volatile("mov %%gs:8, %0" : "=r"(got));
	Y(got == 0x1234);
	Y(syscall(SYS_getpid) == getpid() && PLAIN(SYS_getppid) == getppid());
	T(syscall(SYS_arch_prctl, ARCH_SET_GS, 0));
	Y(syscall(SYS_getpid) == getpid());
}

static volatile int filtered;
static void *until_filtered(void *p)
{
	(void)p;
	while (PLAIN(SYS_getpid) > 0) {}
	filtered = 1;
	return NULL;
}

/* A filter sees calls that were answered without it before; in all threads. */
static void filters(void)
{
	struct sock_filter f[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, 0),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_getpid, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | 77),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog prog = { 4, f };
	pthread_t t;
	pthread_create(&t, NULL, until_filtered, NULL);
	for (int i = 0; i < OFTEN; i++)
		PLAIN(SYS_getpid);
	prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
	T(syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC, &prog));
	T(PLAIN(SYS_getpid));
	pthread_join(t, NULL);
	T(filtered);
	Y(PLAIN(SYS_gettid) > 0);
}

static const struct check all[] = {
	CHECK(numbers), CHECK(numbers_of_bare_calls), CHECK(threads), CHECK(registers), CHECK(interrupted), CHECK(blocked), CHECK(straight),
	CHECK(changed), CHECK(children), CHECK(ids), CHECK(gs), CHECK(filters),
};
MAIN(all)
