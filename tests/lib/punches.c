/* Looks at every page that a process gives back to the host, whether a secret is still in it.
 *
 *   punches PID SEED      the secret is tests/lib/secret.c's
 *
 * Traces all threads of the process: before holes are punched into files, before memory is unmapped or thrown away, and before
 * its end, what is to go is searched. Says "traces" when it does, and how many pages of each kind had it when the process has ended:
 * "punched N unmapped N left N". */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/falloc.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <unistd.h>

#define OPTIONS (PTRACE_O_TRACESYSGOOD | PTRACE_O_TRACECLONE | PTRACE_O_TRACEEXIT)
#define PIECE (1 << 20)
static uint64_t want[2];
static pid_t pid;
static long punched, unmapped, left;
static char buf[PIECE];

static long pages_with(size_t n)
{
	long found = 0;
	for (size_t page = 0; page < n; page += 4096) {
		uint64_t *w = (uint64_t *)(buf + page);
		for (size_t i = 0; i + 1 < 512 && page + i * 8 < n; i++)
			if (w[i] == want[0] && w[i + 1] == want[1]) {
				found++;
				break;
			}
	}
	memset(buf, 0, n);
	return found;
}

/* What a part of a file has. */
static long of_file(int fd, off_t at, off_t end)
{
	long found = 0;
	while (at < end && (at = lseek(fd, at, SEEK_DATA)) >= 0 && at < end) {
		off_t to = lseek(fd, at, SEEK_HOLE);
		for (to = to < end ? to : end; at < to;) {
			ssize_t n = pread(fd, buf, to - at < PIECE ? to - at : PIECE, at);
			if (n <= 0)
				return found;
			found += pages_with(n);
			at += n;
		}
	}
	return found;
}

static long of_memory(uint64_t at, uint64_t end)
{
	long found = 0;
	for (; at < end; at += PIECE) {
		size_t len = end - at < PIECE ? end - at : PIECE;
		struct iovec to = {buf, len}, from = {(void *)at, len};
		ssize_t n = process_vm_readv(pid, &to, 1, &from, 1, 0);
		if (n > 0)
			found += pages_with(n);
	}
	return found;
}

/* All that it has itself, without the memory file. */
static long of_all(void)
{
	char path[64], line[512];
	snprintf(path, 64, "/proc/%d/maps", pid);
	FILE *f = fopen(path, "r");
	long found = 0;
	while (f && fgets(line, 512, f)) {
		uint64_t at, end;
		char prot[8];
		if (sscanf(line, "%lx-%lx %7s", &at, &end, prot) == 3 && prot[0] == 'r' && prot[3] == 'p') {
			long n = of_memory(at, end);
			if (n)
				fprintf(stderr, "%ld in %s", n, line);
			found += n;
		}
	}
	if (f)
		fclose(f);
	return found;
}

static int opened(int fd)
{
	char path[64];
	snprintf(path, 64, "/proc/%d/fd/%d", pid, fd);
	return open(path, O_RDONLY | O_CLOEXEC);
}

static void entered(pid_t t)
{
	struct user_regs_struct r;
	if (ptrace(PTRACE_GETREGS, t, 0, &r))
		return;
	if (r.orig_rax == SYS_fallocate && r.rsi & FALLOC_FL_PUNCH_HOLE) {
		int fd = opened(r.rdi);
		punched += of_file(fd, r.rdx, r.rdx + r.r10);
		close(fd);
	} else if (r.orig_rax == SYS_munmap || (r.orig_rax == SYS_madvise && r.rdx == MADV_DONTNEED)) {
		/* (What is not the memory file, which has its contents elsewhere, too.) */
		if (r.rsi < (1UL << 30))
			unmapped += of_memory(r.rdi, r.rdi + r.rsi);
	} else if (r.orig_rax == SYS_exit_group) {
		left += of_all();
	}
}

static int seize_all(void)
{
	char path[64];
	snprintf(path, 64, "/proc/%d/task", pid);
	int news = 0;
	DIR *d = opendir(path);
	for (struct dirent *e; d && (e = readdir(d));)
		if (atoi(e->d_name) > 0 && !ptrace(PTRACE_SEIZE, atoi(e->d_name), 0, OPTIONS))
			ptrace(PTRACE_INTERRUPT, atoi(e->d_name), 0, 0), news++;
	if (d)
		closedir(d);
	return news;
}

int main(int argc, char **argv)
{
	if (argc < 3)
		return 2;
	pid = atoi(argv[1]);
	uint64_t x = strtoull(argv[2], 0, 0);
	for (int i = 0; i < 2; i++) {
		x ^= x << 13, x ^= x >> 7, x ^= x << 17;
		want[i] = x;
	}
	if (argc > 3) {
		/* Only what is there now: of the process, and of its memory files. */
		long in_files = 0;
		char path[64], name[256];
		snprintf(path, 64, "/proc/%d/fd", pid);
		DIR *d = opendir(path);
		for (struct dirent *e; d && (e = readdir(d));) {
			char link[400];
			snprintf(link, 400, "%s/%s", path, e->d_name);
			ssize_t n = readlink(link, name, 255);
			name[n > 0 ? n : 0] = 0;
			int fd = strstr(name, "memfd:") ? opened(atoi(e->d_name)) : -1;
			if (fd >= 0)
				in_files += of_file(fd, 0, lseek(fd, 0, SEEK_END)), close(fd);
		}
		printf("memory %ld itself %ld\n", in_files, of_all());
		return 0;
	}
	int all = seize_all();
	/* Those that came meanwhile. */
	while (all && seize_all())
		;
	if (!all)
		return perror("trace"), 1;
	puts("traces"), fflush(stdout);
	static char inside[1 << 22];
	for (;;) {
		int status;
		pid_t t = waitpid(-1, &status, __WALL);
		if (t < 0)
			break;
		if (!WIFSTOPPED(status)) {
			if (t >= 0 && t < (1 << 22))
				inside[t] = 0;
			continue;
		}
		int sig = WSTOPSIG(status), event = status >> 16;
		if (sig == (SIGTRAP | 0x80)) {
			inside[t] = !inside[t];
			if (inside[t])
				entered(t);
			sig = 0;
		} else if (event) {
			/* PTRACE_EVENT_STOP of a group stop, of a new thread, or an end. */
			sig = 0;
		}
		ptrace(PTRACE_SYSCALL, t, 0, sig);
	}
	printf("punched %ld unmapped %ld left %ld\n", punched, unmapped, left);
	return 0;
}
