// Files of every kind, and names for them.
#include "calls.h"
#include <arpa/inet.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/inotify.h>
#include <sys/ipc.h>
#include <sys/mman.h>
#include <sys/msg.h>
#include <sys/sem.h>
#include <sys/shm.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/timerfd.h>
#include <sys/types.h>
#include <unistd.h>

static void name(const char *p) {
    if (pools.path_count < 256) pools.paths[pools.path_count++] = strdup(p);
}
static void name_in(const char *dir, const char *p) {
    char b[512];
    snprintf(b, sizeof b, "%s/%s", dir, p);
    name(b);
}

// What each directory has: the same names, of a file system of its own.
static void fill(const char *dir) {
    static const char *const files[] = {"a", "b", "sub/a", "sub/b", "big"};
    static const char *const more[] = {"sub", "sub2", "sub/deep", "link", "dangling", "loop", "fifo", "sock", "new", "new2", "sub/new", "sub2/new", "exe", "link/a", "."};
    if (chdir(dir)) return;
    mkdir("sub", 0777), mkdir("sub2", 0777), mkdir("sub/deep", 0777);
    for (int i = 0; i < 5; i++) {
        int fd = open(files[i], O_CREAT | O_RDWR, 0666);
        char b[PAGE];
        memset(b, 'a' + i, sizeof b);
        if (fd >= 0) write(fd, b, 100 + i * 900), i == 4 && ftruncate(fd, 1 << 20), close(fd);
        name_in(dir, files[i]);
    }
    symlink("sub", "link"), symlink("nothing", "dangling"), symlink("loop", "loop"), mkfifo("fifo", 0666), mknod("sock", S_IFSOCK | 0666, 0);
    int fd = open("exe", O_CREAT | O_WRONLY, 0755);
    if (fd >= 0) dprintf(fd, "#!%s -x seed\n", program), close(fd);
    for (unsigned i = 0; i < sizeof more / sizeof *more; i++) name_in(dir, more[i]);
}

static void names(int victim) {
    static const char *const all[] = {"", "/proc/self/mem", "/proc/self/maps", "/proc/self/status", "/proc/self/stat", "/proc/self/fd", "/proc/self/task", "/proc/self/environ", "/proc/self/cmdline", "/proc/self/comm", "/proc/self/exe", "/proc/self/cwd",
        "/proc/self/oom_score_adj", "/proc/self/mountinfo", "/proc/self/mounts", "/proc/self/uid_map", "/proc/self/gid_map", "/proc/self/setgroups", "/proc/self/smaps", "/proc/self/pagemap", "/proc/self/ns/net", "/proc/self/ns/user",
        "/proc/self/ns/mnt", "/proc/self/ns/pid", "/proc/self/ns/ipc", "/proc/self/fdinfo", "/proc/self/limits", "/proc/self/io", "/proc/self/timers", "/proc/self/auxv", "/proc/self/cgroup", "/proc/self/wchan", "/proc/self/stack",
        "/proc/thread-self/comm", "/proc/thread-self/fd", "/proc/meminfo", "/proc/stat", "/proc/cpuinfo", "/proc/uptime", "/proc/loadavg", "/proc/version", "/proc/filesystems", "/proc/net/tcp", "/proc/net/unix", "/proc/net/dev", "/proc/net/route",
        "/proc/sys/kernel/pid_max", "/proc/sys/kernel/hostname", "/proc/sys/fs/file-nr", "/proc/sys", "/proc/sysvipc/shm", "/proc/sysvipc/sem", "/proc/sysvipc/msg", "/proc/locks", "/proc/1/status", "/proc/1/environ", "/proc/1/fd",
        "/sys/devices/system/cpu/online", "/sys/class/net", "/sys/fs/cgroup", "/sys/fs/cgroup/cgroup.procs", "/sys/kernel/mm", "/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom", "/dev/tty", "/dev/ptmx", "/dev/pts/0",
        "/dev/pts/1", "/dev/pts", "/dev/fd/0", "/dev/stdin", "/dev/mqueue/q", "/dev/mqueue", "/etc/passwd", "/bin/true", "/bin/sh", "/usr/lib", "/etc/nothing"};
    for (unsigned i = 0; i < sizeof all / sizeof *all; i++) name(all[i]);
    // (Looked at, never named as what may be taken away: no other user's file is.)
    static const char *const others[] = {"status", "mem", "maps", "environ", "fd", "fd/3", "exe", "cwd", "root", "comm", "oom_score_adj", "ns/user", "ns/mnt", "task", "timers", "uid_map", "smaps"};
    char b[64];
    for (unsigned i = 0; victim && i < sizeof others / sizeof *others; i++) snprintf(b, sizeof b, "/proc/%d/%s", victim, others[i]), name(b);
}

static void keep(struct thread *t, enum fd_kind k, int fd) {
    if (fd >= 0) add_fd(t, k, fd);
}
static void keep_all(struct thread *t) {
    static const struct { const char *path; int flags; enum fd_kind kind; } all[] = {
        {"a", O_RDWR, REG}, {"b", O_RDONLY, REG}, {"big", O_RDWR, REG}, {"sub/a", O_RDWR | O_APPEND, REG}, {".", O_RDONLY, DIR_}, {"sub", O_RDONLY, DIR_}, {"sub", O_PATH, DIR_}, {"sub2", O_RDONLY, DIR_},
        {"a", O_PATH, PATH_}, {"link", O_PATH | O_NOFOLLOW, PATH_}, {"fifo", O_RDWR | O_NONBLOCK, PIPE}, {".", O_TMPFILE | O_RDWR, REG}, {"/proc/self/mem", O_RDWR, PROC}, {"/proc/self/maps", O_RDONLY, PROC},
        {"/proc/self/status", O_RDONLY, PROC}, {"/proc/self/fd", O_RDONLY, DIR_}, {"/proc", O_RDONLY, DIR_}, {"/proc/self/task", O_RDONLY, DIR_}, {"/proc/stat", O_RDONLY, PROC}, {"/proc/self/oom_score_adj", O_RDWR, PROC},
        {"/proc/self/uid_map", O_RDWR, PROC}, {"/proc/self/comm", O_RDWR, PROC}, {"/sys/devices/system/cpu/online", O_RDONLY, PROC}, {"/dev/null", O_RDWR, DEV}, {"/dev/zero", O_RDWR, DEV}, {"/dev/full", O_RDWR, DEV},
        {"/dev/urandom", O_RDWR, DEV}, {"/dev/ptmx", O_RDWR | O_NOCTTY, PTY}, {"/proc/self/ns/user", O_RDONLY, NS}, {"/proc/self/ns/net", O_RDONLY, NS}, {"/proc/self/ns/mnt", O_RDONLY, NS}, {"/proc/self/ns/pid", O_RDONLY, NS},
        {"/proc/self/ns/uts", O_RDONLY, NS}, {"/proc/self/exe", O_RDONLY, REG}, {"/etc/passwd", O_RDONLY, REG}};
    for (unsigned i = 0; i < sizeof all / sizeof *all; i++) keep(t, all[i].kind, open(all[i].path, all[i].flags, 0600));
    int p[2], flags = one_in(t, 2) ? O_NONBLOCK : 0;
    for (int i = 0; i < 2; i++)
        if (!pipe2(p, flags)) keep(t, PIPE, p[0]), keep(t, PIPE, p[1]);
    for (int i = 0; i < 3; i++)
        if (!socketpair(AF_UNIX, (int[]){SOCK_STREAM, SOCK_DGRAM, SOCK_SEQPACKET}[i] | flags, 0, p)) keep(t, SOCK, p[0]), keep(t, SOCK, p[1]);
    for (int i = 0; i < 8; i++) keep(t, SOCK, socket((int[]){1, 1, 2, 2, 10, 10, 16, 2}[i], (int[]){1, 2, 1, 2, 1, 2, 3, 1}[i] | SOCK_NONBLOCK, 0));
    for (int i = 0; i < 2; i++) {
        struct sockaddr_in a = {AF_INET, htons(4000 + below(t, 8)), {htonl(INADDR_LOOPBACK)}, {0}};
        int l = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0), s = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
        bind(l, (void *)&a, sizeof a), listen(l, 4), connect(s, (void *)&a, sizeof a);
        keep(t, LISTEN, l), keep(t, SOCK, s), keep(t, SOCK, accept(l, 0, 0));
    }
    sigset_t set;
    sigemptyset(&set), sigaddset(&set, SIGUSR2);
    keep(t, EVENT, eventfd(1, EFD_NONBLOCK)), keep(t, EVENT, eventfd(0, EFD_SEMAPHORE)), keep(t, TIMER, timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK)), keep(t, SIGFD, signalfd(-1, &set, SFD_NONBLOCK));
    keep(t, EPOLL, epoll_create1(0)), keep(t, EPOLL, epoll_create1(0)), keep(t, INOTIFY, inotify_init1(IN_NONBLOCK)), keep(t, MEMFD, memfd_create("m", MFD_ALLOW_SEALING)), keep(t, PIDFD, syscall(SYS_pidfd_open, getpid(), 0));
    int m = memfd_create("n", 0);
    if (!ftruncate(m, 8 * PAGE)) add_id(t, MAPPING, (u64)mmap(0, 8 * PAGE, 3, MAP_SHARED, m, 0));
    keep(t, MEMFD, m);
    int master = posix_openpt(O_RDWR | O_NOCTTY | O_NONBLOCK);
    if (master >= 0 && !unlockpt(master)) keep(t, PTY, master), keep(t, PTY, open(ptsname(master), O_RDWR | O_NOCTTY | O_NONBLOCK));
}

// Opens files in the current directory, in one of tmpfs and in one of the host's, and learns names, processes and ids.
void open_files(struct thread *t, const char *shm, const char *volume, int victim) {
    char cwd[256];
    memset(pools.fds, -1, sizeof pools.fds);
    if (!getcwd(cwd, sizeof cwd)) _exit(3);
    names(victim);
    pools.system_paths = pools.path_count;
    if (shm) fill(shm);
    if (volume) fill(volume);
    fill(cwd);
    static const char *const own[] = {"a", "b", "sub", "sub/a", "sub2", "link", "link/b", "loop", "fifo", "sock", "new", "new2", "sub/new", "sub2/new", "exe", ".", "sub/.."};
    for (unsigned i = 0; i < sizeof own / sizeof *own; i++) name(own[i]);
    for (int k = 0; k < ID_KINDS; k++) for (int i = 0; i < RING; i++) pools.ids[k][i] = below(t, 4);
    keep_all(t);
    for (int i = 0; i < 3; i++) add_id(t, PIDS, getpid());
    if (victim) add_id(t, PIDS, victim);
    for (int i = 0; i < 6; i++) {
        void *p = mmap(0, 16 * PAGE, PROT_READ | PROT_WRITE | (i == 0 ? PROT_EXEC : 0), (i % 2 ? MAP_SHARED : MAP_PRIVATE) | MAP_ANONYMOUS, -1, 0);
        if (p != MAP_FAILED) add_id(t, MAPPING, (u64)p);
    }
    add_id(t, SHM, shmget(IPC_PRIVATE, 4 * PAGE, 0600)), add_id(t, SEM, semget(IPC_PRIVATE, 4, 0600)), add_id(t, MSG, msgget(IPC_PRIVATE, 0600));
}
