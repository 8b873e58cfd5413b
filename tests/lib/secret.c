/* Has a secret in memory, and gives it up in one way.
 *
 *   secret WAY MARKED SEED      MARKED: 0 ordinary memory, 1 Palloc, 2 prctl, 3 by who started it, 4 it opens a file that is
 *                               confidential
 *
 * The secret is words of a generator, so that it is nowhere but where this puts it. Says "had" when it has it and "gone" when it
 * has given it up, and waits for a byte of its input after each. */
#define _GNU_SOURCE
#include "cloister.h"
#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define PAGE 4096
/* More than what is freed and kept for the next to come. */
#define SIZE (900 * PAGE)
static char *mine, *other;
static int marked;

static char *get(void)
{
	if (marked == 1)
		return Palloc(SIZE - 64);
	char *p = mmap(0, SIZE, 3, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	return p == MAP_FAILED ? 0 : p;
}

static void fill(char *at, uint64_t seed)
{
	for (size_t page = 0; page < SIZE / PAGE; page++) {
		uint64_t x = seed;
		volatile uint64_t *w = (uint64_t *)(at - ((uintptr_t)at & (PAGE - 1)) + page * PAGE);
		for (int i = 8; i < 24; i++) {
			x ^= x << 13, x ^= x >> 7, x ^= x << 17;
			w[i] = x;
		}
	}
}

static void say(const char *what)
{
	char c;
	if (write(1, what, strlen(what)) < 0 || read(0, &c, 1) < 0)
		_exit(3);
}

/* Sends all of it, and takes it back elsewhere. */
static void through(int in, int out)
{
	char *from = (char *)((uintptr_t)mine & -PAGE), *to = (char *)((uintptr_t)other & -PAGE);
	for (size_t at = PAGE; at < SIZE; at += PAGE) {
		if (write(in, from + at, PAGE) != PAGE)
			perror("write"), _exit(4);
		for (size_t n = 0; n < PAGE;) {
			ssize_t got = read(out, to + at + n, PAGE - n);
			if (got <= 0)
				perror("read"), _exit(4);
			n += got;
		}
	}
	/* And some that nobody takes. */
	if (write(in, from + PAGE, PAGE) != PAGE)
		_exit(4);
	close(in), close(out);
}

static void drop(char *at)
{
	if (marked == 1)
		/* Not Pfree, which overwrites it itself. */
		munmap((char *)((uintptr_t)at & -PAGE), SIZE);
	else
		munmap(at, SIZE);
}

int main(int argc, char **argv)
{
	if (argc < 4)
		return 2;
	const char *way = argv[1];
	marked = atoi(argv[2]);
	uint64_t seed = strtoull(argv[3], 0, 0);
	if (marked == 2 && prctl(PR_SET_CONFIDENTIAL, 1, 0, 0, 0))
		return perror("prctl"), 2;
	if (marked == 4 && open("/shown/key", O_RDONLY) < 0)
		return perror("/shown/key"), 2;
	if (prctl(PR_GET_CONFIDENTIAL, 0, 0, 0, 0) != (marked >= 2))
		return fputs("marked otherwise\n", stderr), 2;
	mine = get(), other = get();
	if (!mine || !other)
		return perror("memory"), 2;
	fill(mine, seed);
	say("had\n");
	if (!strcmp(way, "kill"))
		kill(getpid(), SIGKILL);
	if (!strcmp(way, "exit"))
		_exit(0);
	if (!strcmp(way, "exec"))
		execl("/bin/sh", "sh", "-c", "echo gone; read x", (char *)0), _exit(3);
	if (!strcmp(way, "stay"))
		say("gone\n");
	if (!strcmp(way, "advice"))
		madvise((char *)((uintptr_t)mine & -PAGE), SIZE, MADV_DONTNEED);
	if (!strcmp(way, "fork")) {
		pid_t p = fork();
		if (!p) {
			/* Copies, some by each. */
			fill(mine, seed), _exit(0);
		}
		fill(mine, seed);
		waitpid(p, 0, 0);
		p = fork();
		if (!p)
			fill(mine, seed), kill(getpid(), SIGKILL);
		waitpid(p, 0, 0);
	}
	if (!strcmp(way, "pageout")) {
		madvise((char *)((uintptr_t)mine & -PAGE), SIZE, MADV_PAGEOUT);
		FILE *f = fopen("/proc/self/status", "r");
		char line[200];
		while (fgets(line, 200, f))
			if (!strncmp(line, "VmSwap:", 7))
				fputs(line, stderr);
	}
	int p[2];
	if (!strcmp(way, "pipe") && !pipe(p))
		through(p[1], p[0]);
	if (!strcmp(way, "unix") && !socketpair(AF_UNIX, SOCK_STREAM, 0, p))
		through(p[0], p[1]);
	if (!strcmp(way, "tcp")) {
		int l = socket(AF_INET, SOCK_STREAM, 0);
		struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
		socklen_t n = sizeof a;
		p[0] = socket(AF_INET, SOCK_STREAM, 0);
		if (bind(l, (void *)&a, n) || listen(l, 1) || getsockname(l, (void *)&a, &n) || connect(p[0], (void *)&a, n))
			return perror("tcp"), 2;
		p[1] = accept(l, 0, 0);
		through(p[0], p[1]);
		close(l);
	}
	if (!strcmp(way, "file")) {
		char *from = (char *)((uintptr_t)mine & -PAGE);
		FILE *f = fopen("/dev/shm/secret", "w+");
		if (!f || write(fileno(f), from, SIZE) != SIZE || pread(fileno(f), other, PAGE, PAGE) != PAGE)
			return perror("file"), 2;
		unlink("/dev/shm/secret");
		fclose(f);
	}
	drop(mine), drop(other);
	say("gone\n");
	return 0;
}
