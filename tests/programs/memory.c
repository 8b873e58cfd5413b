/* Mappings, protection, faults, copying across bad memory. */
#define AREA "memory"
#include "check.h"
#include <elf.h>
#include <sys/auxv.h>
#include <sys/prctl.h>
#include <setjmp.h>
#include <sys/syscall.h>

#define PAGE 4096L
#define RW (PROT_READ | PROT_WRITE)
#define ANON (MAP_PRIVATE | MAP_ANONYMOUS)

static sigjmp_buf back;
static volatile int fault_signal, fault_code;
static void *volatile fault_addr;

static void on_fault(int s, siginfo_t *i, void *c)
{
	(void)c;
	fault_signal = s, fault_code = i->si_code, fault_addr = i->si_addr;
	siglongjmp(back, 1);
}

static void catch_faults(void)
{
	struct sigaction a = { .sa_sigaction = on_fault, .sa_flags = SA_SIGINFO };
	sigaction(SIGSEGV, &a, NULL);
	sigaction(SIGBUS, &a, NULL);
}

/* The signal and code of a fault: 0 if none, else signal * 10 + code. */
static int touch(volatile char *p, int write)
{
	if (sigsetjmp(back, 1))
		return fault_addr == (void *)p ? fault_signal * 10 + fault_code : -2;
	if (write)
		*p = 1;
	else
		(void)*p;
	return 0;
}

static char *map(long pages)
{
	return mmap(NULL, pages * PAGE, RW, ANON, -1, 0);
}

static void basics(void)
{
	catch_faults();
	char *p = map(4);
	Y(p != MAP_FAILED);
	Y(((long)p & (PAGE - 1)) == 0);
	T(p[0] + p[PAGE] + p[4 * PAGE - 1]);
	memset(p, 7, 4 * PAGE);
	T(p[3 * PAGE]);
	T(munmap(p + PAGE, PAGE));
	T(touch(p + PAGE, 0));
	T(touch(p + 2 * PAGE, 0));
	T(munmap(p + PAGE, PAGE));
	T(munmap(p + 1, PAGE));
	T(munmap(p, 0));
	T(munmap(p, 1));
	T(touch(p, 1));
	T(munmap((void *)-PAGE, PAGE));
	T(touch(NULL, 0));
	T(touch(NULL, 1));
}

static long fails(void *p)
{
	return p == MAP_FAILED ? -1 : 0;
}

static void bad_arguments(void)
{
	int r, w, p[2];
	put("f", "abc");
	r = open("f", O_RDONLY), w = open("f", O_WRONLY);
	pipe(p);
	T(fails(mmap(NULL, 0, RW, ANON, -1, 0)));
	T(fails(mmap(NULL, PAGE, RW, MAP_ANONYMOUS, -1, 0)));
	T(fails(mmap(NULL, PAGE, RW, MAP_PRIVATE, 99, 0)));
	T(fails(mmap(NULL, PAGE, PROT_READ, MAP_PRIVATE, p[0], 0)));
	T(fails(mmap(NULL, PAGE, PROT_READ, MAP_PRIVATE, w, 0)));
	T(fails(mmap(NULL, PAGE, RW, MAP_SHARED, r, 0)));
	T(fails(mmap(NULL, PAGE, RW, MAP_PRIVATE, r, 0)));
	T(fails(mmap(NULL, PAGE, PROT_READ, MAP_SHARED, r, 0)));
	T(fails(mmap(NULL, PAGE, PROT_READ, MAP_PRIVATE, r, 1)));
	T(fails(mmap((void *)1, PAGE, RW, ANON | MAP_FIXED, -1, 0)));
	T(fails(mmap((void *)(1UL << 47), PAGE, RW, ANON | MAP_FIXED, -1, 0)));
	T(fails(mmap(NULL, 1UL << 47, RW, ANON, -1, 0)));
	T(fails(mmap(NULL, -PAGE, RW, ANON, -1, 0)));
	T(fails(mmap(NULL, PAGE, RW, MAP_SHARED_VALIDATE | 0x800000, r, 0)));
	T(fails(mmap(NULL, PAGE, PROT_READ, MAP_PRIVATE, r, LONG_MAX & ~(PAGE - 1))));
	char *m = map(1);
	T(mprotect(m + 1, PAGE, PROT_READ));
	T(mprotect(m, PAGE, 0x100));
	T(mprotect(m, 0, PROT_READ));
	munmap(m, PAGE);
	T(mprotect(m, PAGE, PROT_READ));
	T(madvise(m, PAGE, MADV_DONTNEED));
	T(msync(m, PAGE, MS_SYNC));
	T(mlock(m, PAGE));
}

static void fixed(void)
{
	catch_faults();
	char *p = map(4);
	memset(p, 5, 4 * PAGE);
	T(mmap(p + PAGE, PAGE, RW, ANON | MAP_FIXED, -1, 0) == p + PAGE);
	T(p[PAGE]);
	T(p[2 * PAGE]);
	T(fails(mmap(p + PAGE, PAGE, RW, ANON | MAP_FIXED_NOREPLACE, -1, 0)));
	munmap(p + PAGE, PAGE);
	T(mmap(p + PAGE, PAGE, RW, ANON | MAP_FIXED_NOREPLACE, -1, 0) == p + PAGE);
	munmap(p, 4 * PAGE);
	T(mmap(p, PAGE, RW, ANON, -1, 0) == p);
	T(mmap(p + 1, PAGE, RW, ANON, -1, 0) != MAP_FAILED);
}

static void protection(void)
{
	catch_faults();
	char *p = map(3);
	p[PAGE] = 9;
	T(mprotect(p + PAGE, PAGE, PROT_READ));
	T(touch(p + PAGE, 0));
	T(touch(p + PAGE, 1));
	T(touch(p, 1));
	T(mprotect(p + PAGE, PAGE, PROT_NONE));
	T(touch(p + PAGE, 0));
	T(mprotect(p, 3 * PAGE, RW));
	T(p[PAGE]);
	T(touch(p + PAGE, 1));
	/* A hole in the middle: what is before it changes. */
	munmap(p + PAGE, PAGE);
	T(mprotect(p, 3 * PAGE, PROT_READ));
	T(touch(p, 1));
	T(touch(p + 2 * PAGE, 1));
	char *q = mmap(NULL, PAGE, PROT_NONE, ANON, -1, 0);
	T(touch(q, 0));
	T(mprotect(q, PAGE, PROT_WRITE));
	T(touch(q, 1));
}

static int call(void *code)
{
	if (sigsetjmp(back, 1))
		return -fault_signal * 10 - fault_code;
	return ((int (*)(void))code)();
}

static void execution(void)
{
	catch_faults();
	static const unsigned char code[] = { 0xb8, 42, 0, 0, 0, 0xc3 };
	char *p = map(1);
	memcpy(p, code, sizeof code);
	say("no exec", "%d", call(p));
	T(mprotect(p, PAGE, PROT_READ | PROT_EXEC));
	say("exec", "%d", call(p));
	T(mprotect(p, PAGE, RW));
	p[1] = 43;
	T(mprotect(p, PAGE, PROT_READ | PROT_EXEC));
	say("changed", "%d", call(p));
	int fd = open("code", O_CREAT | O_RDWR, 0755);
	write(fd, code, sizeof code);
	char *f = mmap(NULL, PAGE, PROT_READ | PROT_EXEC, MAP_PRIVATE, fd, 0);
	say("file", "%d", call(f));
	char *w = mmap(NULL, PAGE, RW | PROT_EXEC, ANON, -1, 0);
	memcpy(w, code, sizeof code);
	say("rwx", "%d", call(w));
	w[1] = 44;
	say("rwx again", "%d", call(w));
}

static void remapping(void)
{
	catch_faults();
	char *p = map(4);
	memset(p, 3, 4 * PAGE);
	T(mremap(p, 4 * PAGE, 2 * PAGE, 0) == p);
	T(touch(p + 3 * PAGE, 0));
	char *q = mremap(p, 2 * PAGE, 64 * PAGE, MREMAP_MAYMOVE);
	Y(q != MAP_FAILED);
	T(q[2 * PAGE - 1]);
	T(q[2 * PAGE]);
	char *to = map(8);
	T(mremap(q, PAGE, PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, to) == to);
	T(to[0]);
	T(touch(q, 0));
	T(fails(mremap(to + 1, PAGE, PAGE, 0)));
	T(fails(mremap(to, PAGE, 0, 0)));
	T(fails(mremap(to, PAGE, PAGE, 0x100)));
	T(fails(mremap(to, PAGE, PAGE, MREMAP_FIXED, q)));
	T(fails(mremap(to, 2 * PAGE, 2 * PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, to + PAGE)));
	T(fails(mremap((void *)(1UL << 30), PAGE, 2 * PAGE, MREMAP_MAYMOVE)));
	T(fails(mremap(to, 100 * PAGE, 200 * PAGE, MREMAP_MAYMOVE)));
	mmap(to + PAGE, PAGE, PROT_READ, ANON | MAP_FIXED, -1, 0);
	T(fails(mremap(to, PAGE, 2 * PAGE, 0)));
	int fd = memfd_create("m", 0);
	ftruncate(fd, 4 * PAGE);
	char *s = mmap(NULL, 2 * PAGE, RW, MAP_SHARED, fd, 0);
	s[0] = 11;
	char *twin = mremap(s, 0, PAGE, MREMAP_MAYMOVE);
	Y(twin != MAP_FAILED && twin != s);
	T(twin[0]);
	twin[1] = 12;
	T(s[1]);
	char *grown = mremap(s, 2 * PAGE, 4 * PAGE, MREMAP_MAYMOVE);
	pwrite(fd, "x", 1, 3 * PAGE);
	T(grown[3 * PAGE]);
	char *volatile d = map(1);
	d[0] = 5;
	char *volatile e = (char *)syscall(SYS_mremap, d, PAGE, PAGE, MREMAP_MAYMOVE | MREMAP_DONTUNMAP, 0);
	T(fails(e));
	if (e != MAP_FAILED)
		T(d[0] * 10 + e[0]);
}

static void advice(void)
{
	char *p = map(4);
	memset(p, 1, 4 * PAGE);
	T(madvise(p + PAGE, PAGE, MADV_DONTNEED));
	T(p[0] * 100 + p[PAGE] * 10 + p[2 * PAGE]);
	T(madvise(p, 4 * PAGE, MADV_WILLNEED));
	T(madvise(p, 4 * PAGE, MADV_SEQUENTIAL));
	T(madvise(p, 4 * PAGE, MADV_RANDOM));
	T(madvise(p, 4 * PAGE, MADV_NORMAL));
	T(madvise(p, 4 * PAGE, MADV_FREE));
	T(madvise(p, 4 * PAGE, 99));
	T(madvise(p + 1, PAGE, MADV_DONTNEED));
	T(madvise(p, 0, MADV_DONTNEED));
	T(madvise(p, 4 * PAGE, MADV_DONTFORK));
	T(CHILD(catch_faults(); _exit(touch(p, 0) == SIGSEGV * 10 + SEGV_MAPERR)));
	T(madvise(p, 4 * PAGE, MADV_DOFORK));
	memset(p, 1, 4 * PAGE);
	T(CHILD(_exit(p[0])));
	T(madvise(p, PAGE, MADV_WIPEONFORK));
	T(CHILD(_exit(p[0] * 10 + p[PAGE])));
	T(madvise(p, PAGE, MADV_KEEPONFORK));
	T(CHILD(_exit(p[0] * 10 + p[PAGE])));
	T(madvise(p, 4 * PAGE, MADV_POPULATE_WRITE));
	T(madvise(p, 4 * PAGE, MADV_COLD));
	T(madvise(p, 4 * PAGE, MADV_PAGEOUT));
	T(p[3 * PAGE]);
	T(madvise(p, 4 * PAGE, MADV_DONTDUMP));
	int fd = memfd_create("m", 0);
	ftruncate(fd, 2 * PAGE);
	char *s = mmap(NULL, 2 * PAGE, RW, MAP_SHARED, fd, 0);
	memset(s, 2, 2 * PAGE);
	T(madvise(s, PAGE, MADV_DONTNEED));
	T(s[0]);
	T(madvise(s, PAGE, MADV_REMOVE));
	T(s[0] * 10 + s[PAGE]);
	char *v = mmap(NULL, 2 * PAGE, RW, MAP_PRIVATE, fd, 0);
	v[PAGE] = 9;
	T(madvise(v, 2 * PAGE, MADV_DONTNEED));
	T(v[PAGE]);
	munmap(p + PAGE, PAGE);
	T(madvise(p, 4 * PAGE, MADV_DONTNEED));
	T(p[0] + p[2 * PAGE]);
}

static void residency(void)
{
	unsigned char v[4];
	char *p = map(4);
	p[0] = 1, p[2 * PAGE] = 1;
	T(mincore(p, 4 * PAGE, v));
	T(v[0] & 1);
	T(v[2] & 1);
	T(mincore(p + 1, PAGE, v));
	T(mincore(p, PAGE, (void *)8));
	T(mlock(p, PAGE));
	T(munlock(p, PAGE));
	T(mlock2(p, PAGE, 2));
	T(mlockall(0));
	T(munlockall());
	T(msync(p, 4 * PAGE, MS_ASYNC));
	T(msync(p, 4 * PAGE, MS_ASYNC | MS_SYNC));
	T(msync(p + 1, PAGE, MS_SYNC));
	munmap(p + PAGE, PAGE);
	T(mincore(p, 4 * PAGE, v));
	T(msync(p, 4 * PAGE, MS_SYNC));
	T(mlock(p, 4 * PAGE));
}

static void file_private(void)
{
	char b[8] = "";
	put("f", "abcdef");
	int fd = open("f", O_RDWR);
	char *p = mmap(NULL, PAGE, RW, MAP_PRIVATE, fd, 0);
	S(p, 8);
	p[0] = 'X';
	pread(fd, b, 6, 0);
	S(b, 6);
	pwrite(fd, "ZZ", 2, 2);
	p[7] = 'q';
	T(p[0]);
	close(fd);
	T(p[1]);
	T(CHILD(p[1] = 'c'; _exit(p[1] == 'c')));
	T(p[1]);
}

static void file_shared(void)
{
	char b[8] = "";
	put("f", "abcdef");
	int fd = open("f", O_RDWR);
	char *p = mmap(NULL, PAGE, RW, MAP_SHARED, fd, 0), *q = mmap(NULL, PAGE, PROT_READ, MAP_SHARED, fd, 0);
	p[0] = 'X';
	pread(fd, b, 6, 0);
	S(b, 6);
	S(q, 6);
	pwrite(fd, "ZZ", 2, 2);
	S(p, 6);
	T(msync(p, PAGE, MS_SYNC));
	p[10] = 'n';
	struct stat s;
	fstat(fd, &s);
	T(s.st_size);
	ftruncate(fd, 20);
	T(CHILD(p[5] = 'C'));
	T(p[5]);
	T(CHILD(int g = open("f", O_RDWR); pwrite(g, "G", 1, 4)));
	T(q[4]);
	char *priv = mmap(NULL, PAGE, RW, MAP_PRIVATE, fd, 0);
	p[1] = 'v';
	T(priv[1]);
	priv[2] = 'w';
	T(p[2]);
}

static void end_of_file(void)
{
	catch_faults();
	put("f", "abcdef");
	int fd = open("f", O_RDWR);
	char *p = mmap(NULL, 3 * PAGE, RW, MAP_SHARED, fd, 0), *v = mmap(NULL, 3 * PAGE, RW, MAP_PRIVATE, fd, 0);
	T(p[6]);
	T(touch(p + PAGE, 0));
	T(touch(p + PAGE, 1));
	T(touch(v + PAGE, 0));
	T(touch(v + PAGE, 1));
	ftruncate(fd, 2 * PAGE);
	T(touch(p + PAGE, 1));
	T(touch(p + 2 * PAGE, 0));
	T(touch(v + PAGE, 1));
	ftruncate(fd, 3);
	T(touch(p + PAGE, 0));
	T(touch(v + PAGE, 0));
	T(p[2]);
	T(p[3]);
	char b[4];
	T(read(fd, p + PAGE, 3));
	T(write(fd, p + PAGE, 3));
	T(pread(fd, b, 3, 0));
	S(b, 3);
	int e = open("empty", O_CREAT | O_RDWR, 0644);
	char *z = mmap(NULL, PAGE, PROT_READ, MAP_PRIVATE, e, 0);
	T(touch(z, 0));
}

static void across_fork(void)
{
	char *p = map(2), *s = mmap(NULL, PAGE, RW, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	p[0] = 1, s[0] = 1;
	T(CHILD(p[0]++; s[0]++; _exit(p[0] * 10 + s[0])));
	T(p[0] * 10 + s[0]);
	int go[2];
	pipe(go);
	pid_t c = fork();
	if (!c) {
		char b;
		read(go[0], &b, 1);
		_exit(p[0] * 10 + s[0]);
	}
	p[0] = 5, s[0] = 6;
	write(go[1], "x", 1);
	int st;
	waitpid(c, &st, 0);
	T(WEXITSTATUS(st));
	/* Three generations share and separate. */
	T(CHILD(p[1] = 2; int r = CHILD(p[1]++; s[1] = 9; _exit(p[1])); _exit(r * 10 + p[1])));
	T(p[1] * 10 + s[1]);
	T(CHILD(munmap(s, PAGE)));
	T(s[0]);
	long sum = 0;
	char *big = map(1000);
	for (int i = 0; i < 1000; i++)
		big[i * PAGE] = i % 7;
	T(CHILD(for (int i = 0; i < 1000; i += 2) big[i * PAGE]++; long t = 0;
		for (int i = 0; i < 1000; i++) t += big[i * PAGE]; _exit(t % 100)));
	for (int i = 0; i < 1000; i++)
		sum += big[i * PAGE];
	T(sum);
}

static void bad_buffers(void)
{
	char *p = map(2);
	int fd[2], f = open("f", O_CREAT | O_RDWR, 0644);
	pipe(fd);
	memset(p, 'a', 2 * PAGE);
	munmap(p + PAGE, PAGE);
	T(write(f, p + PAGE - 3, 6));
	T(pread(f, p + PAGE - 2, 3, 0));
	T(write(fd[1], p + PAGE - 3, 6));
	char b[16];
	fcntl(fd[0], F_SETFL, O_NONBLOCK);
	T(read(fd[0], b, 16) >= 0);
	mprotect(p, PAGE, PROT_READ);
	T(pread(f, p, 1, 0));
	T(pwrite(f, p, 1, 0));
	mprotect(p, PAGE, PROT_NONE);
	T(pwrite(f, p, 1, 0));
	T(read(f, (void *)-1L, 1));
	T(write(f, (void *)(1UL << 47), 1));
	T(pipe((void *)8));
	T(syscall(SYS_clock_gettime, CLOCK_REALTIME, (void *)8));
	T(uname((void *)8));
	T(syscall(SYS_stat, (void *)-1L, p));
	T(syscall(SYS_open, p + PAGE, 0));
	/* A path that ends exactly at the end of its page. */
	char *q = map(2);
	munmap(q + PAGE, PAGE);
	strcpy(q + PAGE - 2, "f");
	T(open(q + PAGE - 2, O_RDONLY) >= 0);
	q[PAGE - 1] = 'f';
	T(open(q + PAGE - 2, O_RDONLY));
}

static void heap(void)
{
	char *start = sbrk(0);
	Y(start != (void *)-1);
	char *p = sbrk(3 * PAGE);
	Y(p == start);
	p[3 * PAGE - 1] = 4;
	T(p[0]);
	Y(sbrk(-3 * PAGE) != (void *)-1);
	Y(sbrk(0) == start);
	p = sbrk(3 * PAGE);
	T(p[3 * PAGE - 1]);
	Y(sbrk(1L << 46) == (void *)-1);
	struct rlimit r = { 1 << 20, RLIM_INFINITY };
	T(setrlimit(RLIMIT_DATA, &r));
	Y(sbrk(64 << 20) == (void *)-1);
	T(fails(mmap(NULL, 64 << 20, RW, ANON, -1, 0)));
	struct rlimit as = { 1 << 30, RLIM_INFINITY };
	r.rlim_cur = RLIM_INFINITY;
	setrlimit(RLIMIT_DATA, &r);
	T(setrlimit(RLIMIT_AS, &as));
	T(fails(mmap(NULL, 2L << 30, PROT_NONE, ANON, -1, 0)));
	T(fails(mmap(NULL, 1 << 20, PROT_NONE, ANON, -1, 0)));
}

static int deep(int n)
{
	volatile char b[1000];
	b[0] = n;
	return n ? deep(n - 1) + b[0] - b[0] + 1 : 0;
}

static void stack(void)
{
	T(deep(4000));
	T(CHILD(deep(100000000)));
	struct rlimit r;
	getrlimit(RLIMIT_STACK, &r);
	r.rlim_cur = 1 << 20;
	T(setrlimit(RLIMIT_STACK, &r));
	T(CHILD(deep(2000)));
}

static void grows_down(void)
{
	catch_faults();
	char *area = mmap(NULL, 512 * PAGE, PROT_NONE, ANON, -1, 0);
	munmap(area, 512 * PAGE);
	char *p = mmap(area + 500 * PAGE, PAGE, RW, ANON | MAP_GROWSDOWN | MAP_FIXED, -1, 0);
	Y(p == area + 500 * PAGE);
	T(touch(p - 1, 1));
	T(touch(p - 3 * PAGE, 1));
}

static void double_mapping(void)
{
	int fd = memfd_create("ring", 0);
	ftruncate(fd, 2 * PAGE);
	char *a = mmap(NULL, 4 * PAGE, PROT_NONE, ANON, -1, 0);
	mmap(a, 2 * PAGE, RW, MAP_SHARED | MAP_FIXED, fd, 0);
	mmap(a + 2 * PAGE, 2 * PAGE, RW, MAP_SHARED | MAP_FIXED, fd, 0);
	strcpy(a + 2 * PAGE - 3, "round");
	S(a, 2);
	S(a + 2 * PAGE - 3, 6);
	a[PAGE] = 7;
	T(a[3 * PAGE]);
	T(CHILD(a[PAGE] = 8));
	T(a[3 * PAGE]);
	mmap(a, PAGE, RW, MAP_SHARED | MAP_FIXED, fd, PAGE);
	T(a[0]);
}

static void many(void)
{
	/* Mappings that cannot merge. */
	char *p = mmap(NULL, 2000 * PAGE, PROT_READ, ANON, -1, 0);
	int bad = 0;
	for (int i = 0; i < 2000; i += 2)
		bad += mprotect(p + i * PAGE, PAGE, RW) != 0;
	T(bad);
	for (int i = 0; i < 2000; i += 2)
		p[i * PAGE] = i % 100;
	long sum = 0;
	for (int i = 0; i < 2000; i++)
		sum += p[i * PAGE];
	T(sum);
	T(munmap(p, 2000 * PAGE));
	for (int i = 0; i < 300; i++) {
		char *q = map(1 + i % 5);
		q[0] = 1;
		if (i % 3)
			munmap(q, (1 + i % 5) * PAGE);
	}
	T(fails(mmap(NULL, 1L << 40, PROT_NONE, ANON | MAP_NORESERVE, -1, 0)));
}

static volatile int racing = 1;
static void *racer(void *p)
{
	long n = 0;
	while (racing) {
		((volatile char *)p)[n % 16 * PAGE]++;
		n++;
	}
	return NULL;
}

static void threads(void)
{
	char *p = map(16);
	pthread_t t[2];
	for (int i = 0; i < 2; i++)
		pthread_create(&t[i], NULL, racer, p);
	int bad = 0;
	for (int i = 0; i < 200; i++) {
		bad += madvise(p, 16 * PAGE, MADV_DONTNEED) != 0;
		char *q = map(8);
		q[i % 8 * PAGE] = 1;
		bad += munmap(q, 8 * PAGE) != 0;
		if (i % 20 == 0)
			bad += CHILD(_exit(0)) != 0;
	}
	racing = 0;
	for (int i = 0; i < 2; i++)
		pthread_join(t[i], NULL);
	T(bad);
}

static volatile long contended[8 * 512];
static volatile int contend;

static void *contender(void *arg)
{
	while (contend)
		for (int i = 0; i < 8; i++)
			__atomic_add_fetch(&contended[i * 512], 1, __ATOMIC_RELAXED);
	return arg;
}

/* Every fork makes all threads fault at the same words. */
static void faults_at_once(void)
{
	pthread_t t[4];
	int st, bad = 0;
	contend = 1;
	for (int i = 0; i < 4; i++)
		pthread_create(&t[i], NULL, contender, NULL);
	for (int i = 0; i < 60; i++) {
		pid_t p = fork();
		if (p == 0)
			_exit(0);
		waitpid(p, &st, 0);
		bad |= st;
	}
	contend = 0;
	for (int i = 0; i < 4; i++)
		pthread_join(t[i], NULL);
	T(bad);
}

static void other_process(void)
{
	char *p = map(2), b[16] = "";
	strcpy(p, "remote");
	struct iovec l = { b, 7 }, r = { p, 7 };
	T(process_vm_readv(getpid(), &l, 1, &r, 1, 0));
	S(b, 6);
	b[0] = 'R';
	T(process_vm_writev(getpid(), &l, 1, &r, 1, 0));
	S(p, 6);
	r.iov_base = (void *)8;
	T(process_vm_readv(getpid(), &l, 1, &r, 1, 0));
	T(process_vm_readv(getpid(), &l, 1, &r, 1, 1));
	T(process_vm_readv(999999999, &l, 1, &r, 1, 0));
	r.iov_base = p;
	for (int dumpable = 0; dumpable <= 1; dumpable++) {
		int ready[2];
		pipe(ready);
		pid_t c = fork();
		if (c == 0) {
			drop_root();
			prctl(PR_SET_DUMPABLE, dumpable);
			write(ready[1], "x", 1);
			pause();
			_exit(0);
		}
		read(ready[0], b, 1);
		T(CHILD(drop_root(); _exit(process_vm_readv(c, &l, 1, &r, 1, 0) == 7)));
		kill(c, SIGKILL);
		waitpid(c, NULL, 0);
	}
	T(syscall(SYS_membarrier, 0, 0, 0) > 0);
	T(syscall(SYS_membarrier, 99, 0, 0));
}

static void maps_file(void)
{
	char line[512], want[32];
	int found = 0, heapseen = 0, stackseen = 0;
	char *p = mmap(NULL, 3 * PAGE, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	mprotect(p + PAGE, PAGE, PROT_NONE);
	free(malloc(10));
	sbrk(PAGE);
	sprintf(want, "%lx-%lx ---p", (long)p + PAGE, (long)p + 2 * PAGE);
	FILE *f = fopen("/proc/self/maps", "r");
	Y(f != NULL);
	while (f && fgets(line, sizeof line, f)) {
		found += !strncmp(line, want, strlen(want));
		heapseen += strstr(line, "[heap]") != NULL;
		stackseen += strstr(line, "[stack]") != NULL;
	}
	fclose(f);
	f = fopen("/proc/self/smaps", "r");
	static const char *fields[] = { "Rss", "Pss", "Shared_Clean", "Private_Dirty", "Anonymous", "LazyFree", "AnonHugePages",
		"ShmemPmdMapped", "FilePmdMapped", "Shared_Hugetlb", "Private_Hugetlb", "Swap", "SwapPss", "Locked" };
	unsigned seen = 0;
	while (f && fgets(line, sizeof line, f))
		for (unsigned i = 0; i < sizeof fields / sizeof *fields; i++)
			if (!strncmp(line, fields[i], strlen(fields[i])) && line[strlen(fields[i])] == ':' && strstr(line, " kB\n")) seen |= 1u << i;
	say("fields of smaps", "%#x", seen);
	T(found);
	Y(heapseen > 0);
	T(stackseen);
}

#ifndef MAP_DROPPABLE
#define MAP_DROPPABLE 8
#endif

static void droppable(void)
{
	int kind = MAP_DROPPABLE | MAP_ANONYMOUS;
	T(mmap(NULL, PAGE, RW, kind | MAP_LOCKED, -1, 0) == MAP_FAILED ? -errno : 0);
	T(mmap(NULL, PAGE, RW, kind | MAP_GROWSDOWN, -1, 0) == MAP_FAILED ? -errno : 0);
	T(mmap(NULL, PAGE, RW, kind | MAP_HUGETLB, -1, 0) == MAP_FAILED ? -errno : 0);
	int fd = memfd_create("m", 0);
	ftruncate(fd, PAGE);
	T(mmap(NULL, PAGE, RW, MAP_DROPPABLE, fd, 0) == MAP_FAILED ? -errno : 0);
	char *p = mmap(NULL, 4 * PAGE, RW, kind, -1, 0);
	Y(p != MAP_FAILED);
	memset(p, 7, 4 * PAGE);
	T(p[0] + p[3 * PAGE]);
	T(madvise(p, PAGE, MADV_KEEPONFORK));
	T(madvise(p, PAGE, MADV_DODUMP));
	T(madvise(p, PAGE, MADV_DONTDUMP));
	T(madvise(p, PAGE, MADV_WIPEONFORK));
	T(mlock(p, PAGE));
	T(munlock(p, PAGE));
	T(CHILD(_exit(p[0] + p[3 * PAGE])));
	T(CHILD(p[PAGE] = 5; if (CHILD(_exit(p[0] + p[PAGE]))) _exit(1); _exit(p[PAGE])));
	T(mprotect(p, PAGE, PROT_READ));
	T(CHILD(_exit(p[0] + p[PAGE])));
	T(p[0]);
	T(mprotect(p, PAGE, RW));
	char *q = mremap(p, 4 * PAGE, 8 * PAGE, MREMAP_MAYMOVE);
	Y(q != MAP_FAILED);
	T(q[2 * PAGE]);
	T(CHILD(_exit(q[2 * PAGE])));
	T(madvise(q, PAGE, MADV_KEEPONFORK));
	T(munmap(q, 8 * PAGE));
}

/* As a C library does that has random numbers from the vDSO. */
typedef ssize_t (*random_fn)(void *, size_t, unsigned, void *, size_t);

static random_fn find_random(void)
{
	const char *base = (const char *)getauxval(AT_SYSINFO_EHDR);
	if (!base)
		return NULL;
	const Elf64_Ehdr *e = (const void *)base;
	const Elf64_Phdr *h = (const void *)(base + e->e_phoff);
	const Elf64_Dyn *dyn = NULL;
	long bias = 0;
	for (int i = 0; i < e->e_phnum; i++) {
		if (h[i].p_type == PT_LOAD)
			bias = (long)base + h[i].p_offset - h[i].p_vaddr;
		if (h[i].p_type == PT_DYNAMIC)
			dyn = (const void *)(base + h[i].p_offset);
	}
	const Elf64_Sym *syms = NULL;
	const char *names = NULL;
	for (; dyn && dyn->d_tag; dyn++) {
		if (dyn->d_tag == DT_SYMTAB)
			syms = (const void *)(dyn->d_un.d_ptr + bias);
		if (dyn->d_tag == DT_STRTAB)
			names = (const void *)(dyn->d_un.d_ptr + bias);
	}
	/* The symbols end where their names begin. */
	for (const Elf64_Sym *s = syms; s && (const char *)(s + 1) <= names; s++)
		if (!strcmp(names + s->st_name, "__vdso_getrandom"))
			return (random_fn)(s->st_value + bias);
	return NULL;
}

static void random_numbers(void)
{
	random_fn get = find_random();
	struct { unsigned size, prot, flags, reserved[13]; } params = { 0 };
	Y(get != NULL);
	if (!get)
		return;
	T(get(NULL, 0, 0, &params, ~0UL));
	T(params.prot);
	T(params.flags);
	Y(params.size > 0 && params.size <= PAGE);
	char *state = mmap(NULL, PAGE, params.prot, params.flags, -1, 0);
	Y(state != MAP_FAILED);
	unsigned char a[32], b[32], *c = mmap(NULL, PAGE, RW, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	T(get(a, 32, 0, state, params.size));
	T(get(b, 32, 0, state, params.size));
	Y(memcmp(a, b, 32));
	T(get(a, 5000000, 0xff00, state, params.size) < 0);
	/* It has begun to give them out beside the kernel. */
	int used = 0;
	for (unsigned i = 0; i < params.size; i++)
		used |= state[i];
	Y(used);
	int same = 0;
	for (int round = 0; round < 20; round++) {
		same += CHILD(_exit(get(c, 32, 0, state, params.size) != 32 || get(c + 32, 32, 0, state, params.size) != 32));
		get(a, 32, 0, state, params.size);
		get(b, 32, 0, state, params.size);
		same += !memcmp(a, c, 32) || !memcmp(b, c + 32, 32) || !memcmp(a, c + 32, 32) || !memcmp(c, c + 32, 32);
	}
	T(same);
}

/* NUMA policies, on a machine of one node. */
#define NODES(...) (unsigned long[]){ __VA_ARGS__ }
static long set_mempolicy(unsigned long mode, const void *nodes, unsigned long n)
{
	return syscall(SYS_set_mempolicy, mode, nodes, n);
}

static void told(const char *what, unsigned long addr, unsigned long flags)
{
	int mode = 99;
	unsigned long mask[2] = { 77, 77 };
	errno = 0;
	long r = syscall(SYS_get_mempolicy, &mode, mask, 128, addr, flags);
	say(what, "%ld %s: %d %lx %lx", r, r ? strerrorname_np(errno) : "", mode, mask[0], mask[1]);
}

static void numa_maps_of(unsigned long at)
{
	char line[512], policy[64];
	unsigned long start;
	FILE *f = fopen("/proc/self/numa_maps", "r");
	while (f && fgets(line, sizeof line, f))
		if (sscanf(line, "%lx %63s", &start, policy) == 2 && start == at)
			say("numa_maps", "%s", policy);
	if (f)
		fclose(f);
}

static void numa(void)
{
	enum { DEFAULT, PREFERRED, BIND, INTERLEAVE, LOCAL, MANY, STATIC = 1 << 15, RELATIVE = 1 << 14, BALANCING = 1 << 13 };
	static const struct {
		unsigned long mode, nodes, n;
	} ways[] = {
		{ DEFAULT, 0, 0 }, { DEFAULT, 1, 8 }, { PREFERRED, 0, 0 }, { PREFERRED, 1, 8 }, { PREFERRED, 2, 8 }, { PREFERRED | STATIC, 0, 0 },
		{ BIND, 1, 2 }, { BIND, 1, 1 }, { BIND, 0, 8 }, { BIND, 2, 8 }, { BIND, 3, 8 }, { BIND | STATIC, 3, 8 }, { BIND | RELATIVE, 4, 8 },
		{ BIND | STATIC | RELATIVE, 1, 8 }, { BIND | BALANCING, 1, 8 }, { INTERLEAVE | BALANCING, 1, 8 }, { INTERLEAVE, 1, 64 },
		{ INTERLEAVE, 1, 65 }, { LOCAL, 0, 0 }, { LOCAL, 1, 8 }, { LOCAL | STATIC, 0, 0 }, { MANY, 1, 8 }, { 99, 1, 8 },
	};
	char what[64];
	drop_root();
	told("at first", 0, 0);
	for (unsigned i = 0; i < sizeof ways / sizeof *ways; i++) {
		set_mempolicy(DEFAULT, NULL, 0);
		errno = 0;
		long r = set_mempolicy(ways[i].mode, NODES(ways[i].nodes, 0), ways[i].n);
		snprintf(what, sizeof what, "%#lx %lx of %ld", ways[i].mode, ways[i].nodes, ways[i].n);
		say(what, "%ld %s", r, r ? strerrorname_np(errno) : "");
		told(what, 0, 0);
		told(what, 0, 1);
	}
	T(set_mempolicy(BIND, (void *)8, 8));
	T(set_mempolicy(BIND, NODES(1), 1UL << 40));
	T(set_mempolicy(BIND, NODES(1), 8));
	told("allowed", 0, 4);
	told("allowed and more", 0, 5);
	told("unknown flags", 0, 8);
	told("an address without its flag", 4096, 0);
	T(syscall(SYS_get_mempolicy, NULL, NULL, 0, 0, 0));
	T(syscall(SYS_get_mempolicy, NULL, NODES(0), 0, 0, 0));
	T(syscall(SYS_get_mempolicy, (void *)8, NULL, 0, 0, 0));
	T(syscall(SYS_get_mempolicy, NULL, (void *)8, 8, 0, 0));
	T(CHILD(int m; _exit(syscall(SYS_get_mempolicy, &m, NULL, 0, 0, 0) ? 99 : m)));
	set_mempolicy(DEFAULT, NULL, 0);
	char *p = mmap(NULL, 8 * 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	unsigned long at = (unsigned long)p;
	told("memory", at, 2);
	T(syscall(SYS_mbind, p + 4096, 4096, BIND, NODES(1), 8, 0));
	T(syscall(SYS_mbind, p + 8192, 4096, INTERLEAVE | STATIC, NODES(3), 8, 3));
	told("memory", at, 2);
	told("bound", at + 4096, 2);
	told("bound", at + 4097, 3);
	told("interleaved", at + 8192, 2);
	told("none", 4096, 2);
	numa_maps_of(at);
	numa_maps_of(at + 4096);
	T(CHILD(int m; _exit(syscall(SYS_get_mempolicy, &m, NULL, 0, p + 4096, 2) ? 99 : m)));
	T(syscall(SYS_mbind, p + 1, 4096, BIND, NODES(1), 8, 0));
	T(syscall(SYS_mbind, p, 4096, BIND, NODES(1), 8, 16));
	T(syscall(SYS_mbind, p, 4096, BIND, NODES(1), 8, 4));
	T(syscall(SYS_mbind, p, 4096, BIND, NODES(2), 8, 0));
	T(syscall(SYS_mbind, p, 0, BIND, NODES(1), 8, 0));
	T(syscall(SYS_mbind, p, -1L, BIND, NODES(1), 8, 0));
	munmap(p + 5 * 4096, 4096);
	T(syscall(SYS_mbind, p, 8 * 4096, LOCAL, NULL, 0, 0));
	told("after a hole", at, 2);
	T(syscall(SYS_mbind, p + 4 * 4096, 4 * 4096, DEFAULT, NULL, 0, 1));
	told("default around a hole", at + 4 * 4096, 2);
	T(syscall(SYS_mbind, p + 4 * 4096, 2 * 4096, DEFAULT, NULL, 0, 0));
	T(syscall(SYS_mbind, p + 5 * 4096, 4096, DEFAULT, NULL, 0, 0));
	T(syscall(SYS_mbind, p, 4096, BIND | BALANCING, NODES(3), 8, 0));
	told("more nodes than there are", at, 2);
	T(syscall(SYS_get_mempolicy, NULL, NODES(0), -1L, p, 2));
	T(syscall(SYS_mbind, p, 4096, LOCAL, NULL, 0, 0));
	T(syscall(450, p + 4096, 4096, 0, 0));
	T(syscall(450, p + 4096, 4096, 1, 0));
	T(syscall(450, p + 4096, 4096, 0, 1));
	T(syscall(450, p + 8192, 4096, 0, 0));
	T(syscall(450, p + 6 * 4096, 4096, 0, 0));
	int status[4] = { 9, 9, 9, 9 };
	p[0] = 1;
	T(syscall(SYS_move_pages, 0, 3, (void *[]){ p, p + 6 * 4096, p + 5 * 4096 }, NULL, status, 0));
	say("status", "%d %d %d", status[0], status[1], status[2]);
	T(syscall(SYS_move_pages, 0, 1, (void *[]){ p }, (int[]){ 0 }, status, 2));
	T(syscall(SYS_move_pages, 0, 1, (void *[]){ p }, (int[]){ 5 }, status, 2));
	T(syscall(SYS_move_pages, 0, 1, (void *[]){ p }, NULL, status, 1));
	T(syscall(SYS_move_pages, 0, 1, (void *[]){ p }, NULL, status, 4));
	T(syscall(SYS_move_pages, 999999, 1, (void *[]){ p }, NULL, status, 0));
	T(syscall(SYS_migrate_pages, 0, 8, NODES(1), NODES(1)));
	T(syscall(SYS_migrate_pages, 0, 8, NODES(1), NODES(2)));
	T(syscall(SYS_migrate_pages, 0, 8, NODES(1), NODES(0)));
	T(syscall(SYS_migrate_pages, 999999, 8, NODES(1), NODES(1)));
}

/* What process_vm_readv(2) looks at, and in which order. */
static long across(pid_t pid, void *l, long l_len, void *r, long r_len)
{
	struct iovec a = { l, l_len }, b = { r, r_len };
	return syscall(SYS_process_vm_readv, pid, &a, 1, &b, 1, 0);
}
static void across_processes(void)
{
	char from[100] = "bytes", to[100] = "";
	pid_t me = getpid();
	T(across(me, to, 6, from, 6));
	T(across(me, to, -1, from, 6));
	T(across(me, to, 6, from, -1));
	T(across(me, to, -1, from, -1));
	T(across(999999, to, -1, from, 6));
	T(across(999999, to, 6, from, -1));
	T(across(999999, to, 6, from, 6));
	T(across(999999, to, 0, from, 6));
	T(across(999999, to, 0, from, -1));
	T(across(me, (void *)-1, 6, from, 6));
	T(across(me, to, 6, (void *)-1, 6));
	T(syscall(SYS_process_vm_readv, me, NULL, 0, NULL, 0, 0));
	T(syscall(SYS_process_vm_readv, me, NULL, 1, NULL, 1, 0));
	T(syscall(SYS_process_vm_readv, me, NULL, 1025, NULL, 1, 0));
	struct iovec a = { to, 6 };
	T(syscall(SYS_process_vm_readv, 999999, &a, 1, NULL, 1, 0));
	T(syscall(SYS_process_vm_readv, 999999, &a, 1, &a, 1025, 0));
}

/* What of an area is locked, as smaps tells it. */
static void locked_area(void)
{
	char line[512], want[32];
	int here = 0;
	char *p = mmap(NULL, 8 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (mlock(p, 8 * PAGE))
		return;
	sprintf(want, "%lx-", (long)p);
	FILE *f = fopen("/proc/self/smaps", "r");
	while (fgets(line, sizeof line, f)) {
		char *dash = strchr(line, '-');
		if (dash && dash < line + 17)
			here = !strncmp(line, want, strlen(want));
		if (here && (!strncmp(line, "Rss:", 4) || !strncmp(line, "Locked:", 7)))
			say("line", "%.*s", (int)strcspn(line, "\n"), line);
	}
	fclose(f);
}

/* Mappings of /dev/zero. */
static long maps(int fd, int prot, int flags, long offset)
{
	char *p = mmap(NULL, 2 * PAGE, prot, flags, fd, offset);
	if (p == MAP_FAILED)
		return -1;
	errno = 0;
	return mprotect(p, PAGE, PROT_READ | PROT_WRITE) ? -1 : p[PAGE - 1];
}
static void zero_device(void)
{
	int r = open("/dev/zero", O_RDONLY), w = open("/dev/zero", O_WRONLY), rw = open("/dev/zero", O_RDWR);
	T(maps(r, PROT_READ, MAP_PRIVATE, 0));
	T(maps(r, PROT_READ | PROT_WRITE, MAP_PRIVATE, 5 * PAGE));
	T(maps(r, PROT_READ, MAP_SHARED, 0));
	T(maps(r, PROT_READ | PROT_WRITE, MAP_SHARED, 0));
	T(maps(w, PROT_WRITE, MAP_SHARED, 0));
	T(maps(w, PROT_WRITE, MAP_PRIVATE, 0));
	T(maps(rw, PROT_READ, MAP_SHARED, 0));
	T(mmap(NULL, 0, PROT_READ, MAP_PRIVATE, r, 0) == MAP_FAILED ? -errno : 0);
	T(mmap(NULL, PAGE, PROT_READ, 0, r, 0) == MAP_FAILED ? -errno : 0);
	char *p = mmap(NULL, 2 * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, rw, 0);
	char *q = mmap(NULL, 2 * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, rw, 0);
	char *own = mmap(NULL, 2 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE, rw, 0);
	close(rw);
	p[PAGE] = 1, own[PAGE] = 1;
	T(CHILD(p[PAGE]++, own[PAGE]++; _exit(p[PAGE] * 10 + own[PAGE])));
	T(p[PAGE] * 10 + own[PAGE]);
	T(q[PAGE]);
}

/* What random devices tell. */
static void of_devices(void)
{
	int fd = open("/dev/urandom", O_RDONLY), n = 0, null = open("/dev/null", O_RDWR);
	T(ioctl(fd, 0x80045200, &n));
	Y(n == 256);
	T(ioctl(fd, 0x80045200, 8));
	T(ioctl(fd, 0x1234, &n));
	T(ioctl(null, 0x80045200, &n));
	T(CHILD(drop_root(); _exit(ioctl(fd, 0x40045201, &n) ? errno : 0)));
	T(CHILD(drop_root(); _exit(ioctl(fd, 0x5204) ? errno : 0)));
	T(CHILD(drop_root(); _exit(ioctl(fd, 0x5207) ? errno : 0)));
}

/* vm.max_map_count, which set-ups of large programs raise. */
static void map_count(void)
{
	const char *name = "/proc/sys/vm/max_map_count";
	char was[32] = "", is[32] = "";
	int fd = open(name, O_RDONLY);
	read(fd, was, 31);
	T(may_change() ? set_to(name, "1262144") : 7);
	pread(fd, is, 31, 0);
	T(may_change() ? atoi(is) : 1262144);
	T(set_to(name, "-1"));
	T(set_to(name, "2147483648"));
	T(set_to(name, "many"));
	T(set_to(name, was) > 0);
	memset(is, 0, sizeof is), pread(fd, is, 31, 0);
	T(strcmp(is, was));
	T(CHILD(drop_root(); _exit(open(name, O_WRONLY) == -1 && errno == EACCES)));
}

static const struct check all[] = {
	CHECK(zero_device), CHECK(of_devices),
	CHECK(across_processes), CHECK(locked_area),
	CHECK(basics), CHECK(bad_arguments), CHECK(fixed), CHECK(protection), CHECK(execution),
	CHECK(remapping), CHECK(advice), CHECK(residency), CHECK(file_private), CHECK(file_shared),
	CHECK(end_of_file), CHECK(across_fork), CHECK(bad_buffers), CHECK(heap), CHECK(stack),
	CHECK(grows_down), CHECK(double_mapping), CHECK(many), CHECK(threads), CHECK(faults_at_once), CHECK(other_process),
	CHECK(numa), CHECK(maps_file), CHECK(droppable), CHECK(random_numbers), CHECK(map_count),
};
MAIN(all)
