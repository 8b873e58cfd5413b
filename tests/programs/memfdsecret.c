/* memfd_secret(2): memory that only its mappings show. */
#define AREA "memfdsecret"
#include "check.h"
#include <sys/ptrace.h>
#include <sys/vfs.h>

static int secret(unsigned flags)
{
	return syscall(447, flags);
}
static char *map(int fd, size_t len)
{
	return mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
}
static int sized(size_t len)
{
	int fd = secret(0);
	if (ftruncate(fd, len))
		say("sized", "failed: %s", strerrorname_np(errno));
	return fd;
}

static void making(void)
{
	int fd = secret(0);
	Y(fd >= 0);
	T(secret(1));
	T(secret(2));
	T(secret(O_CLOEXEC | 1));
	T(fcntl(fd, F_GETFD));
	T(fcntl(secret(O_CLOEXEC), F_GETFD));
	T(fcntl(fd, F_GETFL) & O_ACCMODE);
	struct stat st;
	T(fstat(fd, &st));
	T(st.st_mode);
	T(st.st_size);
	T(st.st_nlink);
	T(st.st_uid);
	struct statfs fs;
	T(fstatfs(fd, &fs));
	T(fs.f_type);
	char link[64], to[64] = "";
	sprintf(link, "/proc/self/fd/%d", fd);
	T(readlink(link, to, sizeof to - 1));
	S(to, strlen(to));
	T(open(link, O_RDWR));
	T(open(link, O_RDONLY));
	T(open(link, O_PATH) >= 0);
	T(truncate(link, 4096));
	T(truncate(link, 8192));
	T(fstat(fd, &st));
	T(st.st_size);
}

static void contents(void)
{
	int fd = sized(8192), other = open("/dev/zero", O_RDONLY), p[2];
	char b[16];
	T(pipe(p));
	T(read(fd, b, 1));
	T(write(fd, b, 1));
	T(pread(fd, b, 1, 0));
	T(pwrite(fd, b, 1, 0));
	T(lseek(fd, 0, SEEK_SET));
	T(lseek(fd, 0, SEEK_END));
	T(fallocate(fd, 0, 0, 4096));
	T(fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, 4096));
	T(fsync(fd));
	T(splice(fd, NULL, p[1], NULL, 1, 0));
	T(syscall(SYS_sendfile, p[1], fd, NULL, 1));
	T(syscall(SYS_copy_file_range, other, NULL, fd, NULL, 1, 0));
	struct pollfd pf = { fd, POLLIN | POLLOUT };
	T(poll(&pf, 1, 0));
	T(pf.revents);
	T(fchmod(fd, 0644));
	T(futimens(fd, NULL));
	T(ioctl(fd, FIONREAD, b));
	T(execveat(fd, "", (char *[]){ "x", NULL }, NULL, AT_EMPTY_PATH));
}

static void sizes(void)
{
	int fd = secret(0);
	T(ftruncate(fd, -1));
	T(ftruncate(fd, 0));
	T(ftruncate(fd, 5000));
	T(ftruncate(fd, 5000));
	T(ftruncate(fd, 0));
	T(ftruncate(fd, 4096));
	T(ftruncate(fd, 8192));
	char *p = map(fd, 16384);
	Y(p != MAP_FAILED);
	p[0] = 'a', p[8191] = 'b';
	T(p[0]);
	T(CHILD(p[8192] = 1));
	struct stat st;
	T(fstat(fd, &st));
	T(st.st_size);
}

static void seals(void)
{
	int fd = secret(0);
	T(fcntl(fd, F_GET_SEALS));
	T(fcntl(fd, F_ADD_SEALS, F_SEAL_SEAL));
	T(fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE));
	T(fcntl(fd, F_ADD_SEALS, 0x10000));
}

#define FAILS(...) (mmap(__VA_ARGS__) == MAP_FAILED ? -1 : 0)

static void mapping(void)
{
	int fd = sized(8192);
	T(FAILS(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, 0));
	T(FAILS(NULL, 4096, PROT_READ, MAP_PRIVATE, fd, 0));
	T(FAILS(NULL, 4096, PROT_READ | PROT_EXEC, MAP_SHARED, fd, 0));
	T(FAILS(NULL, 4096, PROT_READ, MAP_SHARED, fd, 0));
	T(FAILS(NULL, 4096, PROT_READ, MAP_SHARED | MAP_POPULATE, fd, 0));
	T(FAILS(NULL, 4096, PROT_NONE, MAP_SHARED_VALIDATE, fd, 0));
	char *p = map(fd, 8192), *q = map(fd, 8192);
	Y(p != MAP_FAILED && q != MAP_FAILED);
	strcpy(p, "hello");
	S(q, 5);
	T(mprotect(p, 4096, PROT_READ | PROT_EXEC));
	T(mprotect(p, 4096, PROT_READ));
	T(CHILD(p[0] = 1));
	T(mprotect(p, 4096, PROT_READ | PROT_WRITE));
	T(madvise(p, 4096, MADV_DONTNEED));
	T(madvise(p, 4096, MADV_REMOVE));
	T(madvise(p, 4096, MADV_FREE));
	T(madvise(p, 4096, MADV_PAGEOUT));
	T(madvise(p, 4096, MADV_DODUMP));
	T(madvise(p, 4096, MADV_DONTDUMP));
	T(madvise(p, 4096, 22 /* POPULATE_READ */));
	T(madvise(p, 4096, 23 /* POPULATE_WRITE */));
	T(mlock(p, 4096));
	T(munlock(p, 4096));
	T(madvise(p, 4096, MADV_DONTNEED));
	T(madvise(p, 4096, MADV_REMOVE));
	T(msync(p, 4096, MS_SYNC));
	S(p, 5);
	char *r = mremap(p, 8192, 4096, 0);
	Y(r != MAP_FAILED);
	S(r, 5);
	r = mremap(q, 8192, 16384, MREMAP_MAYMOVE);
	Y(r != MAP_FAILED);
	S(r, 5);
	/* The file goes on with its mappings. */
	close(fd);
	S(r, 5);
	T(munmap(r, 16384));
}

static void by_system_calls(void)
{
	int fd = sized(8192), p[2], in = open("/dev/zero", O_RDONLY);
	char *s = map(fd, 8192), b[16] = "";
	strcpy(s, "hello");
	T(pipe(p));
	/* One's own calls read and write there. */
	T(write(p[1], s, 5));
	T(read(p[0], b, 5));
	S(b, 5);
	T(read(in, s, 3));
	S(s, 5);
	T(open(s + 4096, O_RDONLY));
	T(stat("/", (struct stat *)(s + 4096)));
	T(uname((void *)(s + 1000)));
	/* What would keep its pages does not get them. */
	struct iovec v = { s, 5 };
	T(vmsplice(p[1], &v, 1, 0));
	T(vmsplice(p[1], &v, 1, SPLICE_F_GIFT));
	T(write(p[1], "xyz", 3));
	T(vmsplice(p[0], &v, 1, 0));
	S(s, 5);
}

static int tried(pid_t pid, char *s)
{
	char b[8] = "";
	struct iovec l = { b, 5 }, r = { s, 5 }, over = { s - 4, 8 };
	int a = syscall(SYS_process_vm_readv, pid, &l, 1, &r, 1, 0) < 0 ? errno : 0;
	int w = syscall(SYS_process_vm_writev, pid, &l, 1, &r, 1, 0) < 0 ? errno : 0;
	char path[64];
	sprintf(path, "/proc/%d/mem", pid);
	int m = open(path, O_RDWR);
	int pr = pread(m, b, 5, (long)s) < 0 ? errno : 0, pw = pwrite(m, b, 5, (long)s) < 0 ? errno : 0;
	close(m);
	say("tried", "readv %d, writev %d, mem %d %d %d", a, w, m >= 0, pr, pw);
	(void)over;
	return b[0];
}

static void by_others(void)
{
	int fd = sized(8192), st;
	char *s = map(fd, 8192);
	strcpy(s, "hello");
	T(tried(getpid(), s));
	pid_t p = fork();
	if (p == 0) {
		/* A child has the mapping. */
		s[5] = '!';
		raise(SIGSTOP);
		_exit(s[0] == 'h' ? 7 : 8);
	}
	waitpid(p, &st, WUNTRACED);
	S(s, 6);
	T(tried(p, s));
	T(ptrace(PTRACE_SEIZE, p, 0, 0));
	T(ptrace(PTRACE_INTERRUPT, p, 0, 0));
	waitpid(p, &st, 0);
	T(ptrace(PTRACE_PEEKDATA, p, s, 0));
	T(ptrace(PTRACE_POKEDATA, p, s, 0));
	T(tried(p, s));
	T(ptrace(PTRACE_DETACH, p, 0, 0));
	kill(p, SIGCONT);
	waitpid(p, &st, 0);
	T(WEXITSTATUS(st));
	/* What lies before it can be read up to there. */
	char *two = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	strcpy(two + 4090, "public");
	T(mmap(two + 4096, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, 0) == two + 4096);
	char b[16] = "";
	struct iovec l = { b, 12 }, r = { two + 4090, 12 };
	T(syscall(SYS_process_vm_readv, getpid(), &l, 1, &r, 1, 0));
	S(b, 12);
}

static long locked(void)
{
	char line[256];
	long n = -1;
	FILE *f = fopen("/proc/self/status", "r");
	while (fgets(line, sizeof line, f))
		sscanf(line, "VmLck: %ld", &n);
	fclose(f);
	return n;
}

static void limits(void)
{
	int fd = sized(16384);
	T(locked());
	char *p = map(fd, 8192);
	T(locked());
	T(CHILD(_exit(locked())));
	T(munmap(p, 8192));
	T(locked());
	p = map(fd, 4096);
	struct rlimit few = { 8192, 8192 };
	T(setrlimit(RLIMIT_MEMLOCK, &few));
	drop_root();
	T(FAILS(NULL, 8192, PROT_READ, MAP_SHARED, fd, 0));
	T(FAILS(NULL, 4096, PROT_READ, MAP_SHARED, fd, 0));
	T(FAILS(NULL, 4096, PROT_READ, MAP_SHARED, fd, 0));
	T(FAILS(NULL, 4096, PROT_READ, MAP_PRIVATE, fd, 0));
	T(locked());
	T(munlock(p, 4096));
	T(locked());
	T(FAILS(NULL, 4096, PROT_READ, MAP_SHARED, fd, 0));
	few.rlim_cur = 0;
	T(setrlimit(RLIMIT_MEMLOCK, &few));
	T(FAILS(NULL, 4096, PROT_READ, MAP_SHARED, fd, 0));
	/* Making one needs no limit. */
	Y(secret(0) >= 0);
}

static void shown(void)
{
	int fd = sized(8192);
	char *p = map(fd, 8192), line[512], name[32];
	memset(p, 1, 4096);
	sprintf(name, "%lx-", (long)p);
	FILE *f = fopen("/proc/self/smaps", "r");
	int on = 0;
	while (fgets(line, sizeof line, f)) {
		if (strchr(line, '-') && strchr("0123456789abcdef", line[0]))
			on = !strncmp(line, name, strlen(name));
		if (on && !strncmp(line, "VmFlags", 7))
			Y(strstr(line, " lo") && strstr(line, " dd") && strstr(line, " sh"));
		if (on && strchr(line, '/'))
			say("name", "%s", strchr(line, '/'));
	}
	fclose(f);
}

static const struct check list[] = {
	CHECK(making), CHECK(contents), CHECK(sizes), CHECK(seals), CHECK(mapping), CHECK(by_system_calls), CHECK(by_others),
	CHECK(limits), CHECK(shown),
};
MAIN(list)
