/* Core files (core(5)): which signals leave one, where, what is in it. */
#define AREA "cores"
#include "check.h"
#include <elf.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/procfs.h>
#include <sys/user.h>

#ifndef NT_FILE
#define NT_FILE 0x46494c45
#endif

static void no_more_than(rlim_t n)
{
	struct rlimit l = { n, RLIM_INFINITY };
	setrlimit(RLIMIT_CORE, &l);
}

/* How a child ends that runs this: its signal, whether it left a core, and what file there is. */
static int ended;
static void ends(const char *what, void (*f)(void))
{
	pid_t p = fork();
	if (p == 0) {
		f();
		_exit(0);
	}
	siginfo_t i = { 0 };
	waitid(P_PID, p, &i, WEXITED | WNOWAIT);
	waitpid(p, &ended, 0);
	struct stat st = { 0 };
	int there = lstat("core", &st);
	say(what, "%s %d, core %s, told %d; file %s %o %s", WIFSIGNALED(ended) ? "signal" : "exit", WIFSIGNALED(ended) ? WTERMSIG(ended) : WEXITSTATUS(ended),
	    WIFSIGNALED(ended) && WCOREDUMP(ended) ? "yes" : "no", i.si_code, there ? "none" : S_ISREG(st.st_mode) ? "regular" : "other", st.st_mode & 07777,
	    there ? "-" : st.st_size >= 8192 ? "large" : st.st_size ? "small" : "empty");
}

static volatile char *volatile nowhere;
static void null_write(void) { *nowhere = 1; }
static void divides(void) { __asm__ volatile("xor %%ecx, %%ecx; xor %%edx, %%edx; mov $1, %%eax; idiv %%ecx" ::: "eax", "ecx", "edx"); }
static void undefined(void) { __asm__ volatile("ud2"); }
static void breakpoint(void) { __asm__ volatile("int3"); }
static void beyond_end(void)
{
	int fd = open("empty", O_RDWR | O_CREAT, 0600);
	*(volatile char *)mmap(0, 4096, PROT_READ, MAP_SHARED, fd, 0);
}
static int by;
static void by_signal(void) { raise(by); ms(1000); }

static void signals(void)
{
	no_more_than(RLIM_INFINITY);
	ends("segv", null_write), unlink("core");
	ends("fpe", divides), unlink("core");
	ends("ill", undefined), unlink("core");
	ends("trap", breakpoint), unlink("core");
	ends("bus", beyond_end), unlink("core");
	ends("abort", abort), unlink("core");
	int all[] = { SIGHUP, SIGINT, SIGQUIT, SIGILL, SIGTRAP, SIGABRT, SIGBUS, SIGFPE, SIGKILL, SIGSEGV, SIGPIPE, SIGTERM, SIGSTKFLT, SIGXCPU, SIGXFSZ, SIGVTALRM, SIGPROF, SIGIO, SIGPWR, SIGSYS, SIGRTMIN };
	for (unsigned i = 0; i < sizeof all / sizeof *all; i++) {
		char what[20];
		by = all[i];
		snprintf(what, sizeof what, "raise %d", by);
		ends(what, by_signal), unlink("core");
	}
}

static void not_allowed(void)
{
	struct sock_filter code[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, 0), BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_getppid, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS | 7), BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog f = { 4, code };
	prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
	prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &f);
	syscall(SYS_getppid);
}
static void *sleeps_and_writes(void *p)
{
	ms(50);
	*nowhere = 1;
	return p;
}
static void *writes_null(void *p)
{
	pthread_barrier_wait(p);
	*nowhere = 1;
	return p;
}
static void all_at_once(void)
{
	pthread_barrier_t b;
	pthread_t t[8];
	pthread_barrier_init(&b, 0, 9);
	for (int i = 0; i < 8; i++)
		pthread_create(&t[i], 0, writes_null, &b);
	writes_null(&b);
}
static void *makes_null(void *p)
{
	*nowhere = 1;
	return p;
}
static void not_the_main_one(void)
{
	pthread_t t;
	prctl(PR_SET_NAME, "main");
	pthread_create(&t, 0, makes_null, 0);
	pthread_join(t, 0);
}
static void main_one_has_ended(void)
{
	pthread_t t;
	pthread_create(&t, 0, sleeps_and_writes, 0);
	syscall(SYS_exit, 0);
}

static void limits(void)
{
	rlim_t all[] = { 0, 1, 4095, 4096, 5000, 8192, 100000, RLIM_INFINITY };
	for (unsigned i = 0; i < sizeof all / sizeof *all; i++) {
		char what[30];
		no_more_than(all[i]);
		snprintf(what, sizeof what, "at most %ld", (long)all[i]);
		ends(what, null_write);
		struct stat st = { 0 };
		stat("core", &st);
		Y(all[i] > 8192 || (rlim_t)st.st_size <= all[i]);
		unlink("core");
	}
}

static void not_dumpable(void)
{
	prctl(PR_SET_DUMPABLE, 0);
	null_write();
}
static void masked(void)
{
	umask(0777);
	null_write();
}
static void as_user(void)
{
	drop_root();
	prctl(PR_SET_DUMPABLE, 1);
	null_write();
}
static void changed_user(void)
{
	drop_root();
	null_write();
}
static void in_no_directory(void)
{
	mkdir("gone", 0777), chdir("gone"), rmdir("../gone");
	null_write();
}

static void files(void)
{
	no_more_than(RLIM_INFINITY);
	ends("not dumpable", not_dumpable), unlink("core");
	ends("umask", masked), unlink("core");
	chmod(".", 0777);
	if (geteuid() == 0) {
		ends("another user", as_user);
		struct stat st = { 0 };
		stat("core", &st);
		Y(st.st_uid == 65534);
		unlink("core");
		ends("changed user", changed_user), unlink("core");
		put("core", "root's"), chmod("core", 0666);
		ends("another's file", as_user), unlink("core");
	}
	put("core", "before"), chmod("core", 0600);
	ends("an old one", null_write), unlink("core");
	put("core", "before"), chmod("core", 0644);
	ends("a readable one", null_write), unlink("core");
	put("core", "before"), chmod("core", 0600), link("core", "other");
	ends("a linked one", null_write), unlink("core"), unlink("other");
	symlink("to", "core");
	ends("a link", null_write); T(access("to", F_OK)); unlink("core");
	mkdir("core", 0700);
	ends("a directory", null_write), rmdir("core");
	mkfifo("core", 0600);
	int r = open("core", O_RDONLY | O_NONBLOCK);
	ends("a fifo", null_write), close(r), unlink("core");
	ends("no directory", in_no_directory);
}

static void filter(void)
{
	char text[40] = "";
	int fd = open("/proc/self/coredump_filter", O_RDWR);
	T(read(fd, text, 30));
	S(text, 10);
	const char *const words[] = { "0x7f", "33", "033", "0", "0xffffffff", "x", "", "4294967296", "-1", "7 8", "0x33\n" };
	for (unsigned i = 0; i < sizeof words / sizeof *words; i++) {
		errno = 0;
		long n = write_text("/proc/self/coredump_filter", words[i]);
		report(words[i], n, errno);
		pread(fd, text, 30, 0);
		S(text, 9);
	}
	write_text("/proc/self/coredump_filter", "0x3");
	T(CHILD({ pread(fd, text, 30, 0); S(text, 9); }));
	pid_t p = fork();
	if (!p) {
		out_fd = 1;
		execl("/bin/cat", "cat", "/proc/self/coredump_filter", NULL);
		_exit(9);
	}
	int st;
	waitpid(p, &st, 0);
	T(st);
}

/* The file that a child has left. */
static char *image;
static size_t size;
static void load(void)
{
	struct stat st = { 0 };
	int fd = open("core", O_RDONLY);
	fstat(fd, &st);
	size = st.st_size;
	image = fd < 0 ? MAP_FAILED : mmap(0, size ? size : 1, PROT_READ, MAP_PRIVATE, fd, 0);
	close(fd);
	if (image == MAP_FAILED)
		say("load", "no core"), _exit(1);
}
static Elf64_Phdr *program(int n) { return (Elf64_Phdr *)(image + ((Elf64_Ehdr *)image)->e_phoff) + n; }
static int programs(void) { return ((Elf64_Ehdr *)image)->e_phnum; }
static Elf64_Phdr *segment_of(const volatile void *at)
{
	for (int i = 0; i < programs(); i++) {
		Elf64_Phdr *p = program(i);
		if (p->p_type == PT_LOAD && (uint64_t)at >= p->p_vaddr && (uint64_t)at < p->p_vaddr + p->p_memsz)
			return p;
	}
	return NULL;
}
static void *memory(const volatile void *at)
{
	Elf64_Phdr *p = segment_of(at);
	uint64_t in = p ? (uint64_t)at - p->p_vaddr : 0;
	return p && in < p->p_filesz ? image + p->p_offset + in : NULL;
}
/* The nth note of a kind, and how many there are. */
static Elf64_Nhdr *note(uint32_t type, int n, int *count)
{
	Elf64_Phdr *p = program(0);
	Elf64_Nhdr *found = NULL;
	*count = 0;
	for (uint64_t at = p->p_offset; at + sizeof(Elf64_Nhdr) <= p->p_offset + p->p_filesz;) {
		Elf64_Nhdr *h = (Elf64_Nhdr *)(image + at);
		if (h->n_type == type && (*count)++ == n)
			found = h;
		at += sizeof *h + (h->n_namesz + 3 & ~3u) + (h->n_descsz + 3 & ~3u);
	}
	return found;
}
static void *described(Elf64_Nhdr *h) { return h ? (char *)h + sizeof *h + (h->n_namesz + 3 & ~3u) : NULL; }

static void header(void)
{
	no_more_than(RLIM_INFINITY);
	ends("segv", null_write);
	load();
	Elf64_Ehdr *e = (Elf64_Ehdr *)image;
	S((char *)e->e_ident, 16);
	T(e->e_type); T(e->e_machine); T(e->e_version); T(e->e_entry); T(e->e_phoff); T(e->e_shoff); T(e->e_flags);
	T(e->e_ehsize); T(e->e_phentsize); T(e->e_shnum); T(e->e_shstrndx);
	Y(e->e_phnum > 5 && e->e_phnum < 100);
	Elf64_Phdr *n = program(0);
	T(n->p_type); T(n->p_flags); T(n->p_vaddr); T(n->p_paddr); T(n->p_memsz); T(n->p_align);
	Y(n->p_offset == e->e_phoff + e->e_phnum * sizeof(Elf64_Phdr));
	int loads = 0, aligned = 1, ordered = 1, within = 1;
	uint64_t before = 0, end = 0;
	for (int i = 1; i < programs(); i++) {
		Elf64_Phdr *p = program(i);
		loads += p->p_type == PT_LOAD && p->p_align == 4096 && p->p_paddr == 0;
		aligned &= p->p_offset % 4096 == 0 && p->p_filesz % 4096 == 0 && p->p_filesz <= p->p_memsz;
		ordered &= p->p_vaddr >= before, before = p->p_vaddr + p->p_memsz;
		if (p->p_offset + p->p_filesz > end)
			end = p->p_offset + p->p_filesz;
	}
	Y(loads == e->e_phnum - 1); Y(aligned); Y(ordered); Y(end == size);
}

static void kinds(void)
{
	no_more_than(RLIM_INFINITY);
	ends("segv", null_write);
	load();
	Elf64_Phdr *p = program(0);
	for (uint64_t at = p->p_offset; at + sizeof(Elf64_Nhdr) <= p->p_offset + p->p_filesz;) {
		Elf64_Nhdr *h = (Elf64_Nhdr *)(image + at);
		int varies = h->n_type == NT_FILE || h->n_type == NT_AUXV || h->n_type == NT_X86_XSTATE;
		/* (What of the CPU's state there is more is the machine's.) */
		if (h->n_type <= 6 || h->n_type > 0x10000 || h->n_type == NT_X86_XSTATE)
			say("note", "%s %x, %d bytes", (char *)(h + 1), h->n_type, varies ? h->n_descsz > 0 : h->n_descsz);
		at += sizeof *h + (h->n_namesz + 3 & ~3u) + (h->n_descsz + 3 & ~3u);
	}
}

extern char known_place[];
static void with_registers(void)
{
	static const char text[16] = "sixteen of bytes";
	__asm__ volatile("movdqu (%0), %%xmm3\n mov $0x1122334455667788, %%rbx\n mov $0x99, %%r12\n mov $0xaabb, %%r15\n mov $0x77, %%rcx\n"
			 ".globl known_place\nknown_place: ud2"
			 :: "r"(text) : "rbx", "r12", "r15", "rcx", "xmm3");
}

static void registers(void)
{
	int n;
	no_more_than(RLIM_INFINITY);
	ends("ill", with_registers);
	load();
	struct elf_prstatus *s = described(note(NT_PRSTATUS, 0, &n));
	struct user_regs_struct *r = (void *)&s->pr_reg;
	T(n);
	T(s->pr_cursig); T(s->pr_info.si_signo); T(s->pr_info.si_code); T(s->pr_sigpend); T(s->pr_sighold); T(s->pr_fpvalid);
	Y(s->pr_ppid == getpid()); Y(s->pr_pgrp == getpgrp()); Y(s->pr_sid == getsid(0)); Y(s->pr_pid > 0);
	say("rbx", "%llx", r->rbx), say("r12", "%llx", r->r12), say("r15", "%llx", r->r15), say("rcx", "%llx", r->rcx);
	Y(r->rip == (uint64_t)known_place);
	say("cs", "%llx %llx", r->cs, r->ss);
	Y((long)r->orig_rax == -1); Y(r->fs_base != 0);
	struct user_fpregs_struct *f = described(note(NT_PRFPREG, 0, &n));
	S((char *)f->xmm_space + 48, 16);
	say("mxcsr", "%x, control %x", f->mxcsr, f->cwd);
	char *x = described(note(NT_X86_XSTATE, 0, &n));
	S(x + 160 + 48, 16);
	Y((x[512] & 2) == 2);
	siginfo_t *i = described(note(NT_SIGINFO, 0, &n));
	T(i->si_signo); T(i->si_code); T(i->si_errno); Y(i->si_addr == known_place);
	struct elf_prpsinfo *p = described(note(NT_PRPSINFO, 0, &n));
	T(p->pr_state); T(p->pr_sname); T(p->pr_zomb); T(p->pr_nice); Y(p->pr_uid == getuid()); Y(p->pr_gid == getgid()); Y(p->pr_ppid == getpid());
	S(p->pr_fname, 6);
	Y(strstr(p->pr_psargs, "cores") != NULL);
	uint64_t *a = described(note(NT_AUXV, 0, &n));
	for (; a && *a; a += 2)
		if (*a == AT_PAGESZ || *a == AT_CLKTCK)
			say("auxv", "%ld %ld", (long)a[0], (long)a[1]);
}

static int pipes[2];
static volatile int counted;
static void *reads(void *p)
{
	char b;
	__atomic_add_fetch(&counted, 1, __ATOMIC_SEQ_CST);
	read(pipes[0], &b, 1);
	return p;
}
static void *loops(void *p)
{
	__atomic_add_fetch(&counted, 1, __ATOMIC_SEQ_CST);
	for (;;)
		__asm__ volatile("mov $0x5151, %%r13" ::: "r13");
}
static void *sleeps(void *p)
{
	__atomic_add_fetch(&counted, 1, __ATOMIC_SEQ_CST);
	ms(100000);
	return p;
}
static void many_threads(void)
{
	pthread_t t[6];
	pipe(pipes);
	void *(*all[6])(void *) = { reads, loops, sleeps, reads, loops, sleeps };
	for (int i = 0; i < 6; i++)
		pthread_create(&t[i], 0, all[i], 0);
	while (counted < 6)
		ms(1);
	ms(20);
	null_write();
}

static void who(const char *what, void (*f)(void))
{
	int n;
	ends(what, f);
	load();
	struct elf_prpsinfo *p = described(note(NT_PRPSINFO, 0, &n));
	struct elf_prstatus *s = described(note(NT_PRSTATUS, 0, &n));
	say(what, "%d threads, %d %d '%s' %s", n, p->pr_state, p->pr_sname, p->pr_fname, s->pr_pid == p->pr_pid ? "main" : "another");
	siginfo_t *i = described(note(NT_SIGINFO, 0, &n));
	say(what, "signal %d, code %d, %d", i->si_signo, i->si_code, i->si_errno);
	if (i->si_signo == SIGSYS)
		say(what, "call %d %x, rax %lld %lld", i->si_syscall, i->si_arch, ((struct user_regs_struct *)&s->pr_reg)->rax, ((struct user_regs_struct *)&s->pr_reg)->orig_rax);
	unlink("core");
}
static void whose(void)
{
	no_more_than(RLIM_INFINITY);
	who("a filter", not_allowed);
	who("not the main one", not_the_main_one);
	who("the main one has ended", main_one_has_ended);
	for (int i = 0; i < 10; i++)
		ends("all at once", all_at_once), unlink("core");
}

static void threads(void)
{
	int n, m;
	no_more_than(RLIM_INFINITY);
	ends("threads", many_threads);
	load();
	note(NT_PRSTATUS, 0, &n); T(n);
	note(NT_PRFPREG, 0, &n); T(n);
	note(NT_PRPSINFO, 0, &n); T(n);
	note(NT_SIGINFO, 0, &n); T(n);
	int of_loops = 0, distinct = 1, signal = 1, in_call = 0;
	for (int i = 0; i < 7; i++) {
		struct elf_prstatus *s = described(note(NT_PRSTATUS, i, &n));
		struct user_regs_struct *r = (void *)&s->pr_reg;
		of_loops += r->r13 == 0x5151;
		in_call += (long)r->orig_rax == SYS_read || (long)r->orig_rax == SYS_clock_nanosleep;
		signal &= s->pr_cursig == SIGSEGV;
		for (int j = 0; j < i; j++)
			distinct &= s->pr_pid != ((struct elf_prstatus *)described(note(NT_PRSTATUS, j, &m)))->pr_pid;
	}
	T(of_loops); T(in_call); T(distinct); T(signal);
}

static char global[5000] = "a global";
static volatile char *anonymous, *untouched, *left_out, *shared, *sparse, *of_file, *written_file, *own_text;
static void fills(void)
{
	int fd = open("mapped", O_RDWR | O_CREAT | O_TRUNC, 0600);
	ftruncate(fd, 3 * 4096), pwrite(fd, "from the file", 14, 4096);
	strcpy(global + 4500, "changed");
	strcpy((char *)anonymous, "anonymous"), anonymous[9 * 4096] = 'n';
	strcpy((char *)left_out, "left out"), madvise((void *)left_out, 4096, MADV_DONTDUMP);
	strcpy((char *)shared, "shared");
	if (sparse)
		sparse[800l << 20] = 's';
	mmap((void *)of_file, 3 * 4096, PROT_READ, MAP_PRIVATE | MAP_FIXED, fd, 0);
	mmap((void *)written_file, 3 * 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_FIXED, fd, 0);
	written_file[2 * 4096] = 'w';
	null_write();
}
static volatile char *room(size_t n, int how) { return mmap(0, n, PROT_READ | PROT_WRITE, how | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0); }
static void told(const char *what, const volatile char *at)
{
	Elf64_Phdr *p = segment_of(at);
	say(what, "%s, flags %d, %ld of %ld", p ? "there" : "none", p ? p->p_flags : 0, p ? (long)p->p_filesz : 0, p ? (long)p->p_memsz : 0);
}
static void rooms(void)
{
	/* Each apart from the others, so that they are not one. */
	volatile char **all[] = { &anonymous, &untouched, &left_out, &shared, &sparse, &of_file, &written_file };
	size_t sizes[] = { 10 * 4096, 4 * 4096, 4096, 4096, 1ul << 30, 3 * 4096, 3 * 4096 };
	for (int i = 0; i < 7; i++) {
		*all[i] = room(sizes[i] + 8192, i == 3 ? MAP_SHARED : MAP_PRIVATE) + 4096;
		mprotect((void *)(*all[i] - 4096), 4096, PROT_NONE), mprotect((void *)(*all[i] + sizes[i]), 4096, PROT_NONE);
	}
}

static void contents(void)
{
	no_more_than(RLIM_INFINITY);
	rooms();
	ends("fills", fills);
	load();
	told("anonymous", anonymous), told("untouched", untouched), told("left out", left_out), told("shared", shared);
	told("sparse", sparse), told("of a file", of_file), told("of a file, written", written_file);
	S((char *)memory(global), 9); S((char *)memory(global + 4500), 8);
	S((char *)memory(anonymous), 10); T(*(char *)memory(anonymous + 9 * 4096)); T(*(char *)memory(anonymous + 4096));
	T(*(char *)memory(sparse + (800l << 20))); T(*(char *)memory(sparse + (700l << 20)));
	S((char *)memory(written_file + 4096), 14); T(*(char *)memory(written_file + 2 * 4096));
	struct stat st;
	stat("core", &st);
	Y(st.st_size > 1l << 30); Y(st.st_blocks * 512 < 20l << 20);
	int n;
	uint64_t *f = described(note(NT_FILE, 0, &n));
	Y(f[0] > 2); T(f[1]);
	char *names = (char *)(f + 2 + 3 * f[0]);
	int of_mapped = 0, at = 0, of_program = 0;
	for (unsigned i = 0; i < f[0]; i++, names += strlen(names) + 1) {
		uint64_t *e = f + 2 + 3 * i;
		of_program |= strstr(names, "cores") != NULL;
		if (strstr(names, "/mapped"))
			of_mapped++, at |= e[0] == (uint64_t)of_file && e[1] == e[0] + 3 * 4096 && e[2] == 0;
	}
	T(of_mapped); T(at); T(of_program);
}

static const char *filter_is;
static void filtered(void)
{
	write_text("/proc/self/coredump_filter", filter_is);
	fills();
}
static void filters(void)
{
	no_more_than(RLIM_INFINITY);
	rooms();
	munmap((void *)sparse, 1 << 30), sparse = NULL;
	const char *all[] = { "0", "1", "2", "4", "8", "0x10", "0x33", "0x7f" };
	for (unsigned i = 0; i < sizeof all / sizeof *all; i++) {
		filter_is = all[i];
		ends(all[i], filtered);
		load();
		told("anonymous", anonymous), told("shared", shared), told("of a file", of_file), told("of a file, written", written_file);
		unlink("core");
	}
}

static void names(void)
{
	char pattern[200] = "", pid[40];
	int fd = open("/proc/sys/kernel/core_pattern", O_RDONLY);
	read(fd, pattern, 199), close(fd);
	S(pattern, 5);
	no_more_than(RLIM_INFINITY);
	if (!may_change() || geteuid()) {
		/* On Linux the setting is the machine's: this is what it would say. */
		static const char *const would[] = { "c.%e.%s.%u: c.cores.11.0", "%%x%: %x", "c%q%h.: ca.host.", "c%d: c1", "c%i=%p: same", "sub/c: sub/c", "none/c: none", "|/bin/cat: none, core no", "c: c and its pid" };
		for (unsigned i = 0; i < sizeof would / sizeof *would; i++)
			say("pattern", "%s", would[i]);
		return;
	}
	sethostname("a.host", 6), mkdir("sub", 0777);
	struct { const char *pattern, *is; } all[] = { { "c.%e.%s.%u", "c.cores.11.0" }, { "%%x%", "%x" }, { "c%q%h.", "ca.host." }, { "c%d", "c1" }, { "c%i=%p", 0 }, { "sub/c", "sub/c" }, { "none/c", "" }, { "|/bin/cat", "" } };
	for (unsigned i = 0; i < sizeof all / sizeof *all; i++) {
		write_text("/proc/sys/kernel/core_pattern", all[i].pattern);
		pid_t p = fork();
		if (!p)
			null_write();
		int st;
		waitpid(p, &st, 0);
		char same[60];
		snprintf(same, sizeof same, "c%d=%d", p, p);
		const char *is = all[i].is ? all[i].is : same, *shown = all[i].is ? all[i].is : "same";
		int there = *is && !access(is, F_OK);
		say("pattern", "%s: %s%s", all[i].pattern, there ? shown : "none", all[i].pattern[0] == '|' ? WCOREDUMP(st) ? ", core yes" : ", core no" : "");
		unlink(is);
	}
	write_text("/proc/sys/kernel/core_pattern", "c"), write_text("/proc/sys/kernel/core_uses_pid", "1");
	pid_t p = fork();
	if (!p)
		null_write();
	int st;
	waitpid(p, &st, 0);
	snprintf(pid, sizeof pid, "c.%d", p);
	say("pattern", "c: %s", access(pid, F_OK) ? "none" : "c and its pid");
	write_text("/proc/sys/kernel/core_pattern", "core"), write_text("/proc/sys/kernel/core_uses_pid", "0");
}

static const struct check all[] = {
	CHECK(signals), CHECK(limits), CHECK(files), CHECK(filter), CHECK(header), CHECK(kinds), CHECK(registers), CHECK(threads), CHECK(whose),
	CHECK(contents), CHECK(filters), CHECK(names),
};
MAIN(all)
