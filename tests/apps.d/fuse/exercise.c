/* Reads, writes, cuts, maps and syncs a file at random, and compares it with what it must have. Also with a mapping that stays.
 *
 *   exercise FILE OPERATIONS SEED [held]
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <errno.h>
#define MAX (300 << 10)
static char want[MAX], got[MAX];
static long size;
static unsigned long long r;
static unsigned rnd(unsigned n) { r = r * 6364136223846793005ULL + 1442695040888963407ULL; return (r >> 33) % n; }
static void die(int i, const char *what, long at) { printf("op %d %s at %ld: %s\n", i, what, at, strerror(errno)); exit(1); }
static void check(int i, const char *what, const char *p, long off, long n)
{
	for (long k = 0; k < n; k++)
		if (p[k] != want[off + k]) die(i, what, off + k);
}
int main(int c, char **v)
{
	int n = atoi(v[2]);
	r = atoi(v[3]) * 2654435761u + 7;
	int keep = c > 4;
	int fd = open(v[1], O_RDWR | O_CREAT | O_TRUNC, 0644);
	char *held = keep ? mmap(0, MAX, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0) : 0;
	for (int i = 0; i < n; i++) {
		long off = rnd(MAX), len = rnd(rnd(8) ? 9000 : 70000) + 1;
		switch (rnd(10)) {
		case 0: case 1:
			if (off + len > MAX) len = MAX - off;
			for (long k = 0; k < len; k++) want[off + k] = 'a' + rnd(26);
			if (pwrite(fd, want + off, len, off) != len) die(i, "write", off);
			if (off + len > size) size = off + len;
			break;
		case 2: case 3: {
			long m = off < size ? (len < size - off ? len : size - off) : 0;
			if (pread(fd, got, len, off) != m) die(i, "read count", off);
			check(i, "read", got, off, m);
			break;
		}
		case 4:
			if (ftruncate(fd, off)) die(i, "truncate", off);
			if (off < size) memset(want + off, 0, size - off);
			size = off;
			break;
		case 5: case 6: {
			if (!size) break;
			off %= size;
			if (len > size - off) len = size - off;
			long page = off & ~4095L;
			char *p = held ? held + page : mmap(0, len + off - page, PROT_READ, rnd(2) ? MAP_SHARED : MAP_PRIVATE, fd, page);
			if (p == MAP_FAILED) die(i, "map", off);
			check(i, "mapread", p + off - page, off, len);
			if (!held) munmap(p, len + off - page);
			break;
		}
		case 7: case 8: {
			if (!size) break;
			off %= size;
			if (len > size - off) len = size - off;
			long page = off & ~4095L;
			char *p = held ? held + page : mmap(0, len + off - page, PROT_READ | PROT_WRITE, MAP_SHARED, fd, page);
			if (p == MAP_FAILED) die(i, "map", off);
			for (long k = 0; k < len; k++) p[off - page + k] = want[off + k] = 'A' + rnd(26);
			if (rnd(4) == 0 && msync(p, len + off - page, MS_SYNC)) die(i, "msync", off);
			if (!held) munmap(p, len + off - page);
			break;
		}
		case 9:
			switch (rnd(4)) {
			case 0: close(fd), fd = open(v[1], O_RDWR); break;
			case 1: fsync(fd); break;
			case 2: { int o = open(v[1], O_RDONLY); long m = read(o, got, MAX); if (m != size) die(i, "whole", m); check(i, "reopened", got, 0, m); close(o); break; }
			case 3: if (off + len > MAX) len = MAX - off;
				if (posix_fallocate(fd, off, len)) break;
				if (off + len > size) size = off + len;
				break;
			}
		}
		struct stat s;
		fstat(fd, &s);
		if (s.st_size != size) die(i, "size", off);
	}
	puts("as it must be");
}
