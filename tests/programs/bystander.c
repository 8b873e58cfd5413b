// Somebody who only wants to work beside others: every 20 ms a fork, a read, a thread's start and an exec, each timed.
// It tells the longest of each, and fails where one took more than it may.
//
//   bystander [-u UID] [-s SECONDS] [-l MILLISECONDS] [-q] [-t FILE]
//
// Without -s it goes on until SIGTERM. -q tells nothing but what was too long. With -t it also cuts a file short, which
// others may map, and makes it longer again. Exit status 1 if something was, 2 if
// something did not work. For whoever tests what others do to it: tests/limits, tests/hostile, fuzzers.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static volatile sig_atomic_t over;
static void stop(int s) { (void)s, over = 1; }

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1e3 + t.tv_nsec / 1e6;
}

// How the last child ended, where that was wrong.
static int how;
static int ended(pid_t p) {
    int st;
    while (waitpid(p, &st, 0) < 0)
        if (errno != EINTR) return -1;
    if (WIFEXITED(st) && WEXITSTATUS(st) == 7) return 0;
    errno = 0, how = st;
    return -1;
}
static int do_fork(void) {
    pid_t p = fork();
    if (p == 0) _exit(7);
    return p < 0 ? -1 : ended(p);
}
static int do_read(void) {
    char b[4096];
    int fd = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
    if (fd < 0) return -1;
    int r = read(fd, b, sizeof b) == sizeof b ? 0 : -1;
    close(fd);
    return r;
}
static void *body(void *p) { return p; }
static int do_thread(void) {
    pthread_t t;
    void *r = 0;
    if ((errno = pthread_create(&t, 0, body, &t))) return -1;
    return pthread_join(t, &r) || r != &t ? -1 : 0;
}
static int do_exec(void) {
    pid_t p = fork();
    if (p == 0) {
        execl("/proc/self/exe", "bystander", "-7", (char *)0);
        _exit(64 + errno);
    }
    return p < 0 ? -1 : ended(p);
}

static const char *cut;
static int do_truncate(void) {
    int fd = open(cut, O_RDWR | O_CREAT | O_CLOEXEC, 0644);
    if (fd < 0) return -1;
    int r = ftruncate(fd, 0) || pwrite(fd, "x", 1, 8191) != 1 ? -1 : 0;
    close(fd);
    return r;
}

int main(int argc, char **argv) {
    static const struct {
        const char *name;
        int (*run)(void);
    } all[] = {{"fork", do_fork}, {"read", do_read}, {"thread", do_thread}, {"exec", do_exec}, {"truncate", do_truncate}};
    double most[5] = {0}, limit = 500, seconds = 1e9;
    int quiet = 0, bad = 0, failed = 0, c, rounds = 0;
    uid_t uid = getuid();
    while ((c = getopt(argc, argv, "u:s:l:qt:7")) != -1) switch (c) {
        case 'u': uid = atoi(optarg); break;
        case 's': seconds = atof(optarg); break;
        case 'l': limit = atof(optarg); break;
        case 'q': quiet = 1; break;
        case 't': cut = optarg; break;
        case '7': return 7;
        default: return 2;
        }
    if (uid != getuid() && setuid(uid)) return perror("bystander: setuid"), 2;
    struct sigaction a = {.sa_handler = stop};
    sigaction(SIGTERM, &a, 0);
    for (double end = now() + seconds * 1e3; !over && now() < end; rounds++) {
        for (int i = 0; i < (cut ? 5 : 4); i++) {
            double t = now();
            if (all[i].run() && !over) {
                if (!failed++) printf("bystander: %s: %s, a child's status %#x (exit with 64 and more: execve's errno)\n", all[i].name, strerror(errno), how);
            }
            t = now() - t;
            if (t > most[i]) most[i] = t;
        }
        usleep(20000);
    }
    for (int i = 0; i < 5; i++) bad |= most[i] > limit;
    char also[32] = "";
    if (cut) snprintf(also, sizeof also, " truncate %.0f", most[4]);
    if (!quiet || bad)
        printf("bystander: %d rounds, longest fork %.0f read %.0f thread %.0f exec %.0f%s ms%s\n", rounds, most[0], most[1],
            most[2], most[3], also, bad ? ": TOO LONG" : "");
    return failed ? 2 : bad;
}
