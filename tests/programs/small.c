/* Small calls: kcmp, process_madvise, process_mrelease, syslog, ustat, sysfs, mseal; files of pressure. */
#define AREA "small"
#include "check.h"
#include <linux/capability.h>
#include <linux/kcmp.h>
#include <sys/epoll.h>
#include <sys/klog.h>
#include <sys/sem.h>
#include <sys/statfs.h>
#include <sys/sysmacros.h>

static long kcmp(pid_t a, pid_t b, int type, unsigned long x, unsigned long y)
{
	return syscall(SYS_kcmp, a, b, type, x, y);
}
static int pidfd_of(pid_t p)
{
	return syscall(SYS_pidfd_open, p, 0);
}

static void *sleeps(void *p)
{
	*(volatile int *)p = gettid();
	pause();
	return p;
}

static void compared(void)
{
	pid_t me = getpid(), c;
	int a = open("/dev/null", O_RDONLY), b = dup(a), other = open("/dev/null", O_RDONLY);
	T(kcmp(me, me, KCMP_FILE, a, b));
	Y(kcmp(me, me, KCMP_FILE, a, other) > 0);
	Y(kcmp(me, me, KCMP_FILE, a, other) + kcmp(me, me, KCMP_FILE, other, a) == 3);
	T(kcmp(me, me, KCMP_FILE, 99, a));
	T(kcmp(me, me, KCMP_FILE, a, 99));
	for (int type = KCMP_VM; type <= KCMP_SYSVSEM; type++)
		T(kcmp(me, me, type, 0, 0));
	T(kcmp(me, me, 8, 0, 0));
	T(kcmp(me, me, -1, 0, 0));
	T(kcmp(me, 4000000, KCMP_VM, 0, 0));
	T(kcmp(4000000, me, 99, 0, 0));
	T(kcmp(0, me, KCMP_VM, 0, 0));
	c = fork();
	if (c == 0) {
		pause();
		_exit(0);
	}
	ms(20);
	T(kcmp(me, c, KCMP_FILE, a, a));
	Y(kcmp(me, c, KCMP_VM, 0, 0) > 0);
	Y(kcmp(me, c, KCMP_FILES, 0, 0) > 0);
	Y(kcmp(me, c, KCMP_FS, 0, 0) > 0);
	Y(kcmp(me, c, KCMP_SIGHAND, 0, 0) > 0);
	T(kcmp(me, c, KCMP_IO, 0, 0));
	T(kcmp(me, c, KCMP_SYSVSEM, 0, 0));
	struct sembuf op = { 0, 1, SEM_UNDO };
	int s = semget(IPC_PRIVATE, 1, 0600);
	semop(s, &op, 1);
	Y(kcmp(me, c, KCMP_SYSVSEM, 0, 0) > 0);
	semctl(s, 0, IPC_RMID);
	kill(c, SIGKILL);
	waitpid(c, NULL, 0);
	volatile int tid = 0;
	pthread_t t;
	pthread_create(&t, NULL, sleeps, (void *)&tid);
	while (!tid)
		ms(1);
	for (int type = KCMP_VM; type <= KCMP_SIGHAND; type++)
		T(kcmp(me, tid, type, 0, 0));
	/* What an epoll descriptor watches. */
	int p[2], e = epoll_create1(0);
	pipe(p);
	struct epoll_event ev = { .events = EPOLLIN };
	T(epoll_ctl(e, EPOLL_CTL_ADD, p[0], &ev));
	struct kcmp_epoll_slot slot = { e, p[0], 0 };
	T(kcmp(me, me, KCMP_EPOLL_TFD, p[0], (unsigned long)&slot));
	Y(kcmp(me, me, KCMP_EPOLL_TFD, p[1], (unsigned long)&slot) > 0);
	slot.toff = 1;
	T(kcmp(me, me, KCMP_EPOLL_TFD, p[0], (unsigned long)&slot));
	slot = (struct kcmp_epoll_slot){ p[0], p[0], 0 };
	T(kcmp(me, me, KCMP_EPOLL_TFD, p[0], (unsigned long)&slot));
	slot.efd = 99;
	T(kcmp(me, me, KCMP_EPOLL_TFD, p[0], (unsigned long)&slot));
	T(kcmp(me, me, KCMP_EPOLL_TFD, p[0], 8));
	T(CHILD(
		if (setresuid(1234, 1234, 1234)) _exit(1);
		_exit(kcmp(me, getpid(), KCMP_VM, 0, 0) == -1 ? errno : 0);
	));
}

static long advise(int fd, const struct iovec *v, unsigned long n, int advice, unsigned flags)
{
	return syscall(SYS_process_madvise, fd, v, n, advice, flags);
}

static void advised(void)
{
	long page = 4096;
	char *m = mmap(NULL, 8 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	struct iovec v[3] = { { m, page }, { m + 2 * page, 2 * page }, { m + 5 * page, 0 } };
	int me = pidfd_of(getpid());
	memset(m, 7, 8 * page);
	T(advise(me, v, 3, MADV_COLD, 0));
	T(advise(me, v, 3, MADV_PAGEOUT, 0));
	T(advise(me, v, 2, MADV_WILLNEED, 0));
	T(m[0]);
	T(advise(me, v, 3, MADV_COLD, 1));
	T(advise(me, v, 3, 12345, 0));
	T(advise(me, v, 1025, MADV_COLD, 0));
	T(advise(me, (void *)8, 1, MADV_COLD, 0));
	T(advise(99, v, 1, MADV_COLD, 0));
	T(advise(0, v, 1, MADV_COLD, 0));
	T(advise(me, v, 0, MADV_COLD, 0));
	/* As far as it goes. */
	munmap(m + 2 * page, page);
	T(advise(me, v, 3, MADV_COLD, 0));
	T(advise(me, v + 1, 1, MADV_COLD, 0));
	v[0].iov_base = m + 1;
	T(advise(me, v, 1, MADV_COLD, 0));
	v[0].iov_base = m;
	v[1].iov_len = -1;
	T(advise(me, v, 2, MADV_COLD, 0));
	v[1].iov_len = page;
	pid_t c = fork();
	if (c == 0) {
		pause();
		_exit(0);
	}
	int other = pidfd_of(c);
	T(advise(other, v, 1, MADV_COLD, 0));
	T(advise(other, v, 1, MADV_PAGEOUT, 0));
	T(advise(other, v, 1, MADV_DONTNEED, 0));
	T(advise(other, v, 1, MADV_FREE, 0));
	T(CHILD(
		if (setresuid(1234, 1234, 1234)) _exit(1);
		_exit(advise(other, v, 1, MADV_COLD, 0) == -1 ? errno : 0);
	));
	T(syscall(SYS_process_mrelease, other, 1));
	T(syscall(SYS_process_mrelease, other, 0));
	T(syscall(SYS_process_mrelease, 99, 0));
	T(syscall(SYS_process_mrelease, 0, 0));
	kill(c, SIGKILL);
	waitpid(c, NULL, 0);
	T(advise(other, v, 1, MADV_COLD, 0));
	T(syscall(SYS_process_mrelease, other, 0));
}

static void logged(void)
{
	static char b[1 << 22];
	Y(klogctl(10, NULL, 0) > 0);
	Y(klogctl(3, b, sizeof b) > 0);
	Y(b[0] == '<' && strchr("01234567", b[1]) && b[2] == '>' && b[3] == '[');
	T(klogctl(0, NULL, 0));
	T(klogctl(1, NULL, 0));
	T(klogctl(2, NULL, 10));
	T(klogctl(3, NULL, 10));
	T(klogctl(3, b, -1));
	T(klogctl(3, b, 0));
	T(klogctl(11, b, 0));
	T(klogctl(-1, b, 0));
	T(klogctl(8, b, 0));
	T(klogctl(8, b, 9));
	T(klogctl(3, (void *)8, 4096));
	/* By those who may. */
	T(CHILD(
		if (setresuid(1234, 1234, 1234)) _exit(1);
		_exit(klogctl(3, b, 100) == -1 ? errno : 0);
	));
	T(CHILD(
		if (setresuid(1234, 1234, 1234)) _exit(1);
		_exit(klogctl(99, b, 100) == -1 ? errno : 0);
	));
}

struct old_stat {
	int free;
	unsigned long inodes;
	char name[6], pack[6];
};

static void old(void)
{
	struct stat st;
	struct statfs fs;
	struct old_stat u;
	memset(&u, 7, sizeof u);
	T(stat("/proc/self", &st));
	T(statfs("/proc/self", &fs));
	T(syscall(SYS_ustat, (unsigned)st.st_dev, &u));
	Y(u.free == (int)fs.f_bfree);
	T(u.name[0]);
	T(u.pack[0]);
	T(syscall(SYS_ustat, 0xfffff, &u));
	T(syscall(SYS_ustat, (unsigned)st.st_dev, NULL));
	long n = syscall(SYS_sysfs, 3);
	char name[64];
	Y(n > 3);
	T(syscall(SYS_sysfs, 2, syscall(SYS_sysfs, 1, "tmpfs"), name));
	S(name, (long)strlen(name));
	T(syscall(SYS_sysfs, 2, n, name));
	T(syscall(SYS_sysfs, 2, 0, NULL));
	T(syscall(SYS_sysfs, 1, "nosuchfs"));
	T(syscall(SYS_sysfs, 1, NULL));
	T(syscall(SYS_sysfs, 0));
	T(syscall(SYS_sysfs, 4));
}

#define SYS_MSEAL 462
static long seal(void *p, size_t n)
{
	return syscall(SYS_MSEAL, p, n, 0UL);
}
static char *pages(int n, int prot)
{
	return mmap(NULL, n * 4096, prot, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
}
/* Whether the mapping at p is told to be sealed. */
static int is_told(void *p)
{
	FILE *f = fopen("/proc/self/smaps", "r");
	char line[512];
	unsigned long a, b, at = (unsigned long)p;
	int here = 0, told = -1;
	while (fgets(line, sizeof line, f))
		if (sscanf(line, "%lx-%lx ", &a, &b) == 2)
			here = a <= at && at < b;
		else if (here && !strncmp(line, "VmFlags:", 8))
			told = strstr(line, " sl") != NULL;
	fclose(f);
	return told;
}

static void sealed(void)
{
	char *p = pages(10, PROT_READ | PROT_WRITE), *q;
	memset(p, 'x', 10 * 4096);
	T(syscall(SYS_MSEAL, p, 4096, 1UL));
	T(seal(p + 1, 4096));
	T(seal(p, 0));
	T(seal(p, -1UL));
	T(seal(p, -4096UL));
	T(munmap(p + 8 * 4096, 4096));
	T(seal(p + 6 * 4096, 4 * 4096));
	T(seal(p + 2 * 4096, 2 * 4096));
	T(seal(p + 2 * 4096, 2 * 4096));
	T(is_told(p));
	T(is_told(p + 2 * 4096));
	T(is_told(p + 4 * 4096));
	/* Nothing of a range goes where a part is sealed. */
	T(munmap(p, 10 * 4096));
	Y(p[0] == 'x' && p[3 * 4096] == 'x');
	T(mprotect(p + 2 * 4096, 4096, PROT_READ));
	T(mprotect(p + 2 * 4096, 4096, PROT_READ | PROT_WRITE));
	T(mprotect(p + 1 * 4096, 3 * 4096, PROT_READ));
	T(CHILD(p[4096] = 1));
	T(CHILD(p[3 * 4096] = 1));
	T(mprotect(p + 4096, 4096, PROT_READ | PROT_WRITE));
	T(mmap(p + 3 * 4096, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == MAP_FAILED ? -1L : 0L);
	T(mremap(p + 2 * 4096, 4096, 2 * 4096, MREMAP_MAYMOVE) == MAP_FAILED ? -1L : 0L);
	T(mremap(p + 2 * 4096, 2 * 4096, 4096, 0) == MAP_FAILED ? -1L : 0L);
	T(mremap(p + 2 * 4096, 4096, 4096, 0) == MAP_FAILED ? -1L : 0L);
	q = pages(2, PROT_READ);
	T(mremap(q, 4096, 4096, MREMAP_MAYMOVE | MREMAP_FIXED, p + 3 * 4096) == MAP_FAILED ? -1L : 0L);
	/* Advice: only what would empty memory that cannot be written. */
	T(madvise(p + 2 * 4096, 4096, MADV_DONTNEED));
	T(p[2 * 4096]);
	T(madvise(p + 3 * 4096, 4096, MADV_DONTFORK));
	T(madvise(p + 3 * 4096, 4096, MADV_DOFORK));
	T(seal(q, 4096));
	T(madvise(q, 4096, MADV_WILLNEED));
	T(madvise(q, 4096, MADV_DONTNEED));
	T(madvise(q, 4096, MADV_FREE));
	T(madvise(q, 4096, MADV_DONTFORK));
	T(madvise(q, 4096, MADV_WIPEONFORK));
	T(madvise(q, 4096, MADV_DONTDUMP));
	T(madvise(q, 2 * 4096, MADV_DONTNEED));
	T(mlock(q, 4096));
	T(munlock(q, 4096));
	int fd = memfd_create("m", 0);
	ftruncate(fd, 4 * 4096);
	char *f = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, 0);
	f[0] = 7;
	T(mprotect(f, 4096, PROT_READ));
	T(seal(f, 4096));
	T(madvise(f, 4096, MADV_DONTNEED));
	T(f[0]);
	f = mmap(NULL, 4096, PROT_READ, MAP_SHARED, fd, 0);
	T(seal(f, 4096));
	T(madvise(f, 4096, MADV_DONTNEED));
	/* A child has the seals, and gives what it writes to nobody. */
	T(CHILD(_exit(munmap(p + 2 * 4096, 4096) ? errno : 0)));
	T(CHILD(p[3 * 4096] = 9));
	T(p[3 * 4096]);
	/* The break cannot go below one. */
	char *b = sbrk(0);
	b = (char *)(((unsigned long)b + 4095) & ~4095UL);
	T(brk(b + 3 * 4096));
	T(seal(b + 4096, 4096));
	T(brk(b + 2 * 4096));
	T(brk(b));
	Y(sbrk(0) == b + 2 * 4096);
}

/* remap_file_pages, as Linux emulates it; cachestat; quotas that there are not. */
static void remapped(void)
{
	int fd = memfd_create("m", 0);
	char page[4096];
	for (int i = 0; i < 8; i++) {
		memset(page, 'a' + i, sizeof page);
		if (write(fd, page, sizeof page) != sizeof page)
			return;
	}
	char *p = mmap(NULL, 8 * 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	T(syscall(SYS_remap_file_pages, p, 4096, 1, 0, 0));
	T(syscall(SYS_remap_file_pages, p, 0, 0, 0, 0));
	T(syscall(SYS_remap_file_pages, p, 4095, 0, 0, 0));
	T(syscall(SYS_remap_file_pages, p, -4096ul, 0, 0, 0));
	T(syscall(SYS_remap_file_pages, p, 4096, 0, -1ul, 0));
	T(syscall(SYS_remap_file_pages, 0, 4096, 0, 0, 0));
	T(syscall(SYS_remap_file_pages, p, 16 * 4096, 0, 0, 0));
	T(syscall(SYS_remap_file_pages, p, 4096, 0, 7, 0));
	T(syscall(SYS_remap_file_pages, p + 4096 + 5, 2 * 4096, 0, 3, 0x10000));
	char s[] = { p[0], p[4096], p[2 * 4096], p[3 * 4096], 0 };
	S(s, 4);
	p[0] = 'X';
	T(pread(fd, s, 1, 7 * 4096));
	S(s, 1);
	/* Over what was moved before. */
	T(syscall(SYS_remap_file_pages, p, 4 * 4096, 0, 0, 0));
	S(p + 3 * 4096, 1);
	mprotect(p + 4096, 4096, PROT_READ);
	T(syscall(SYS_remap_file_pages, p, 4 * 4096, 0, 1, 0));
	T(syscall(SYS_remap_file_pages, p + 4096, 4096, 0, 5, 0));
	S(p + 4096, 1);
	char *q = mmap(NULL, 4 * 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, 0);
	T(syscall(SYS_remap_file_pages, q, 4096, 0, 1, 0));
	q = mmap(NULL, 4 * 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	q[4096] = 's';
	T(syscall(SYS_remap_file_pages, q, 4096, 0, 1, 0));
	S(q, 1);
}

static void cached(void)
{
	struct { uint64_t off, len; } r = { 0, 0 };
	uint64_t c[5] = { 9, 9, 9, 9, 9 };
	int fd = memfd_create("m", 0);
	T(ftruncate(fd, 100 * 4096));
	T(pwrite(fd, "x", 1, 5 * 4096));
	T(pwrite(fd, "x", 1, 9 * 4096));
	T(syscall(451, fd, &r, c, 0));
	T(c[0]);
	T(c[1] + c[2] + c[3] + c[4]);
	r.off = 5 * 4096 + 100;
	r.len = 4;
	T(syscall(451, fd, &r, c, 0));
	T(c[0]);
	r.off = 6 * 4096;
	r.len = 3 * 4096;
	T(syscall(451, fd, &r, c, 0));
	T(c[0]);
	r.len++;
	T(syscall(451, fd, &r, c, 0));
	T(c[0]);
	T(syscall(451, fd, &r, c, 1));
	T(syscall(451, 999, &r, c, 0));
	T(syscall(451, fd, (void *)1, c, 0));
	T(syscall(451, fd, &r, (void *)1, 0));
	if (geteuid() == 0) {
		int other = open("/etc/passwd", O_RDONLY);
		drop_root();
		T(syscall(451, other, &r, c, 0));
	}
}

static void quotas(void)
{
	T(syscall(SYS_quotactl, 0x80000103, NULL, 0, NULL));
	T(syscall(SYS_quotactl, 0x80000100, NULL, 0, NULL));
	T(syscall(SYS_quotactl, 0x80000700, NULL, 0, NULL));
	T(syscall(SYS_quotactl, 0x80000700, "/nothing", 0, NULL));
	T(syscall(SYS_quotactl, 0x80000700, "/etc/passwd", 0, NULL));
	T(syscall(SYS_quotactl, 0x80000700, (void *)1, 0, NULL));
	T(syscall(443, 999, 0x80000700, 0, NULL));
	T(syscall(443, 999, 0x80000703, 0, NULL));
	int fd = open("/proc", O_RDONLY);
	T(syscall(443, fd, 0x80000703, 0, NULL));
	T(syscall(443, fd, 0x80000700, 0, NULL));
}

/* Names of memory. A kernel without them (CONFIG_ANON_VMA_NAME) refuses all: what follows then holds, too. */
static int without_names;
static long name(void *at, size_t len, const char *n)
{
	long r = prctl(0x53564d41, 0, at, len, n);
	return r < 0 ? -errno : r;
}

/* How often a text is in a file. */
static int times(const char *path, const char *text)
{
	static char b[1 << 18];
	int fd = open(path, O_RDONLY), n = 0;
	size_t len = 0;
	for (ssize_t r; (r = read(fd, b + len, sizeof b - 1 - len)) > 0;)
		len += r;
	b[len] = 0;
	close(fd);
	for (char *p = b; (p = strstr(p, text)); p++)
		n++;
	return n;
}
#define N(e) Y(without_names || (e))

static void named(void)
{
	char *p = mmap(NULL, 8 * 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	mprotect(p, 8 * 4096, PROT_READ);
	mprotect(p + 4096, 6 * 4096, PROT_READ | PROT_WRITE);
	without_names = name(p, 4096, "probe") == -EINVAL;
	N(name(p, 4096, NULL) == 0);
	N(name(p + 4096, 6 * 4096, "first") == 0);
	N(times("/proc/self/maps", "[anon:first]\n") == 1);
	N(times("/proc/self/smaps", "[anon:first]\n") == 1);
	/* Another name cuts, the same one joins. */
	N(name(p + 2 * 4096, 4096, "second: a b") == 0);
	N(times("/proc/self/maps", "[anon:first]\n") == 2);
	N(times("/proc/self/maps", "[anon:second: a b]\n") == 1);
	N(CHILD(_exit(times("/proc/self/maps", "[anon:first]\n") == 2)) == 1);
	N(name(p + 2 * 4096, 4095, "first") == 0);
	N(times("/proc/self/maps", "[anon:first]\n") == 1);
	N(name(p + 4096, 6 * 4096, NULL) == 0);
	N(times("/proc/self/maps", "[anon:first]\n") == 0);
	/* What cannot be a name, or have one. */
	char longer[90];
	memset(longer, 'x', sizeof longer);
	longer[79] = 0;
	N(name(p, 4096, longer) == 0);
	longer[79] = 'x';
	longer[80] = 0;
	N(name(p, 4096, longer) == -EINVAL);
	N(name(p, 4096, "a[b") == -EINVAL);
	N(name(p, 4096, "a$") == -EINVAL);
	N(name(p, 4096, "a\n") == -EINVAL);
	N(name(p, 4096, (char *)1) == -EFAULT);
	N(name(p + 1, 4096, "x") == -EINVAL);
	N(name(p, 0, "x") == 0);
	N(name(p, -1ul, "x") == -EINVAL);
	N(prctl(0x53564d41, 1, p, 4096, "x") == -1 && errno == EINVAL);
	int fd = open("/proc/self/exe", O_RDONLY);
	char *f = mmap(NULL, 4096, PROT_READ, MAP_PRIVATE, fd, 0);
	N(name(f, 4096, "x") == -EBADF);
	munmap(p + 4 * 4096, 4096);
	N(name(p + 3 * 4096, 3 * 4096, "holes") == -ENOMEM);
	N(times("/proc/self/maps", "[anon:holes]\n") == 2);
	char *q = mmap(NULL, 4096, PROT_READ, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	N(name(q, 4096, "shared") == 0);
	N(times("/proc/self/maps", "[anon_shmem:shared]\n") == 1);
}

/* Opens a file of /proc/pressure, writes this, says what poll(2) says before and after, and writes once more. */
static void press(const char *name, const char *text, int n)
{
	char path[60];
	snprintf(path, sizeof path, "/proc/pressure/%s", name);
	int fd = open(path, O_RDWR | O_NONBLOCK);
	struct pollfd p = { fd, POLLIN | POLLOUT | POLLPRI | POLLRDNORM, 0 };
	T(poll(&p, 1, 0));
	say("before", "%x", p.revents);
	bytes("text", text, n);
	T(write(fd, text, n));
	T(poll(&p, 1, 0));
	say("after", "%x", p.revents);
	T(write(fd, "some 100000 2000000", 20));
	T(write(fd, "some 100000 2000000", 0));
	close(fd);
}

static void pressed(void)
{
	static const char *const texts[] = {
		"some 100000 2000000", "full 100000 2000000\n", "some 2000000 2000000 ", "full\t1 4000000x",
		"some 0 2000000", "some 2000001 2000000", "some 1 10000001", "some 100000 0", "some 1 10000000",
		" some 1 2000000", "SOME 1 2000000", "some", "some 1", "some 1 2000000 and more text than there is room for",
		"some 1 4296967296", "some -1 2000000", "some 1000000000000 2000000", "someone 1 2000000", "full1 2000000",
		"", "x", "some 1 2000000\0full",
	};
	/* Windows that are no multiples of 2 s are for CAP_SYS_RESOURCE, of who opened the file. */
	struct __user_cap_header_struct h = { _LINUX_CAPABILITY_VERSION_3, 0 };
	struct __user_cap_data_struct d[2];
	syscall(SYS_capget, &h, d);
	d[0].effective &= ~(1u << CAP_SYS_RESOURCE);
	syscall(SYS_capset, &h, d);
	int fd = open("/proc/pressure/memory", O_RDONLY);
	T(write(fd, "some 1 2000000", 15));
	struct stat s;
	fstat(fd, &s);
	say("mode", "%o", s.st_mode);
	for (unsigned i = 0; i < sizeof texts / sizeof *texts; i++) {
		press(i % 3 ? "memory" : i % 2 ? "io" : "cpu", texts[i], strlen(texts[i]) + 1);
		press("memory", texts[i], strlen(texts[i]));
	}
	close(fd);
	for (unsigned window = 500000; window <= 4000000; window += 500000) {
		char text[60];
		press("memory", text, sprintf(text, "some 1000 %u", window) + 1);
	}
}

/* What the kernel says that it has. */
static void configured(void)
{
	static const char *const names[] = { "SYSVIPC", "USER_NS", "PID_NS", "NET_NS", "TIME_NS", "CHECKPOINT_RESTORE", "EVENTFD",
		"AIO", "IO_URING", "TMPFS", "VETH", "TUN", "AF_UNIX_OOB", "SECURITY_LANDLOCK" };
	char line[200], want[64];
	struct stat s;
	if (stat("/proc/config.gz", &s))
		return;
	T(s.st_mode);
	for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
		FILE *f = popen("gzip -cd /proc/config.gz", "r");
		int n = 0;
		sprintf(want, "CONFIG_%s=y\n", names[i]);
		while (fgets(line, sizeof line, f))
			n += !strcmp(line, want);
		say(names[i], "%d, exit status %d", n, pclose(f));
	}
}

/* Settings that are the same at first everywhere. */
static void settings(void)
{
	static const char *const names[] = { "kernel/sched_rr_timeslice_ms", "kernel/sched_rt_period_us",
		"kernel/sched_rt_runtime_us", "fs/overflowuid", "fs/overflowgid" };
	char path[100], b[100];
	for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
		sprintf(path, "/proc/sys/%s", names[i]);
		int fd = open(path, O_RDONLY);
		long n = read(fd, b, sizeof b);
		close(fd);
		bytes(names[i], b, n > 0 ? n : 0);
	}
}

static const struct check all[] = {
	CHECK(pressed),
	CHECK(configured), CHECK(settings), CHECK(named), CHECK(remapped), CHECK(cached), CHECK(quotas),
	CHECK(compared), CHECK(advised), CHECK(logged), CHECK(old), CHECK(sealed),
};
MAIN(all)
