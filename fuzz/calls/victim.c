// Somebody with memory and files that must never change while others do what they can.
#include "calls.h"
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/shm.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/prctl.h>
#include <unistd.h>

enum { WORDS = 1 << 20, FILES = 24, SIZE = 5000 };
static volatile sig_atomic_t over;
static void stop(int s) { (void)s, over = 1; }
static u64 mix(u64 x) { return (x ^ x >> 31) * 0x7fb5d329728ea185ul + 1; }

static int bad(const char *what, long which) {
    printf("victim: TOUCHED: %s %ld\n", what, which);
    fflush(stdout);
    return 1;
}
static void content(int i, char *b) {
    for (int j = 0; j < SIZE; j++) b[j] = mix(i * SIZE + j) >> 20;
}
static int same(const struct stat *a, const struct stat *b) {
    return a->st_ino == b->st_ino && a->st_size == b->st_size && a->st_mode == b->st_mode && a->st_uid == b->st_uid && a->st_nlink == b->st_nlink && a->st_mtim.tv_sec == b->st_mtim.tv_sec &&
           a->st_mtim.tv_nsec == b->st_mtim.tv_nsec && a->st_ctim.tv_sec == b->st_ctim.tv_sec && a->st_ctim.tv_nsec == b->st_ctim.tv_nsec;
}
static int words(const u64 *p, long n) {
    for (long i = 0; i < n; i++)
        if (p[i] != mix(i)) return 0;
    return 1;
}
static int open_fds(void) {
    int n = 0;
    for (int i = 0; i < 256; i++) n += fcntl(i, F_GETFD) >= 0;
    return n;
}

// In two directories (the second may be missing), as `uid` if it is not -1. Ends with 0 at SIGTERM.
int victim_main(const char *a, const char *b, int uid) {
    static char path[2 * FILES][256], now[SIZE + 1], then[SIZE];
    static struct stat st[2 * FILES];
    int dirs = *b ? 2 : 1;
    if (uid >= 0 && (setgid(uid) || setuid(uid))) return perror("victim: setuid"), 2;
    u64 *own = mmap(0, WORDS * 8, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0), *shared = mmap(0, WORDS, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    int shm = shmget(IPC_PRIVATE, WORDS, 0600), p[2], s[2];
    u64 *sysv = shmat(shm, 0, 0);
    if (own == MAP_FAILED || shared == MAP_FAILED || sysv == (void *)-1 || pipe(p) || socketpair(AF_UNIX, SOCK_DGRAM, 0, s) || write(p[1], "pipe", 4) != 4 || send(s[0], "sock", 4, 0) != 4) return perror("victim"), 2;
    for (long i = 0; i < WORDS; i++) own[i] = mix(i);
    memcpy(shared, own, WORDS), memcpy(sysv, own, WORDS);
    for (int i = 0; i < dirs * FILES; i++) {
        snprintf(path[i], sizeof path[i], "%s/%d", i < FILES ? a : b, i);
        int fd = open(path[i], O_CREAT | O_EXCL | O_RDWR, 0600);
        content(i, then);
        if (fd < 0 || write(fd, then, SIZE) != SIZE || close(fd) || stat(path[i], &st[i])) return perror(path[i]), 2;
    }
    signal(SIGTERM, stop);
    int fds = open_fds(), rounds = 0;
    printf("victim: ready\n"), fflush(stdout);
    for (; !over; rounds++) {
        if (!words(own, WORDS)) return bad("private memory", 0);
        if (!words(shared, WORDS / 8)) return bad("shared memory", 0);
        if (!words(sysv, WORDS / 8)) return bad("System V memory", 0);
        for (int i = 0; i < dirs * FILES; i++) {
            struct stat n;
            int fd = open(path[i], O_RDONLY);
            if (fd < 0) return bad(strerror(errno), i);
            long got = read(fd, now, sizeof now);
            content(i, then);
            if (got != SIZE || memcmp(now, then, SIZE)) return bad("a file's content", i);
            if (fstat(fd, &n) || !same(&st[i], &n)) return bad("a file's attributes", i);
            close(fd);
        }
        struct shmid_ds d;
        if (shmctl(shm, IPC_STAT, &d) || d.shm_nattch != 1 || (d.shm_perm.mode & 0777) != 0600) return bad("a System V segment", 0);
        if (open_fds() != fds) return bad("descriptors", open_fds());
        if (uid >= 0 && (getuid() != (uid_t)uid || geteuid() != (uid_t)uid)) return bad("credentials", getuid());
        if (prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0)) return bad("no_new_privs", 0);
        usleep(100000);
    }
    char c[8];
    if (read(p[0], c, 8) != 4 || memcmp(c, "pipe", 4)) return bad("a pipe", 0);
    if (recv(s[1], c, 8, 0) != 4 || memcmp(c, "sock", 4)) return bad("a socket", 0);
    shmctl(shm, IPC_RMID, 0);
    printf("victim: untouched in %d rounds\n", rounds);
    return 0;
}
