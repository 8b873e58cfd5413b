// One user takes all that it can get of one resource; then root and another user still can work, and a bystander was
// never kept waiting. `tests/limits` runs it; natively it would take as much of the machine.
//
//   hogs BYSTANDER [RESOURCE...]
//
// For each resource a line: what ended the hog (or `time`), and how the others did. Exit status 1 if one did not.
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <linux/filter.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <linux/seccomp.h>
#include <pthread.h>
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
#include <sys/mount.h>
#include <sys/msg.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/sem.h>
#include <sys/shm.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <time.h>
#include <unistd.h>

enum { HOG = 1000, BYSTANDER = 1001, OTHER = 1002 };
// How long a hog takes, seconds.
static double hog_time = 1.0;
static double deadline;
static long count;

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec + t.tv_nsec / 1e9;
}
// Whether the hog shall go on.
static int more(void) {
    count++;
    return now() < deadline;
}
static void many_files(void) {
    struct rlimit r;
    getrlimit(RLIMIT_NOFILE, &r);
    r.rlim_cur = r.rlim_max;
    setrlimit(RLIMIT_NOFILE, &r);
}
static int socket_pair(int type, int s[2]) { return socketpair(AF_UNIX, type, 0, s); }

static int send_file(int s, int fd, int n) {
    char c = 0, b[CMSG_SPACE(sizeof(int) * 253)] = {0};
    struct iovec v = {&c, 1};
    struct msghdr m = {.msg_iov = &v, .msg_iovlen = 1, .msg_control = b, .msg_controllen = CMSG_SPACE(sizeof(int) * n)};
    struct cmsghdr *h = CMSG_FIRSTHDR(&m);
    h->cmsg_level = SOL_SOCKET, h->cmsg_type = SCM_RIGHTS, h->cmsg_len = CMSG_LEN(sizeof(int) * n);
    for (int i = 0; i < n; i++) memcpy(CMSG_DATA(h) + i * sizeof(int), &fd, sizeof fd);
    return sendmsg(s, &m, MSG_DONTWAIT | MSG_NOSIGNAL);
}

// Each gives the errno that ended it, 0 for the time.
static int tasks(void) {
    do {
        pid_t p = fork();
        if (p < 0) return errno;
        if (p == 0) for (;;) pause();
    } while (more());
    return 0;
}
static void *sleeper(void *p) { for (;;) pause(); return p; }
static int threads(void) {
    pthread_attr_t a;
    pthread_attr_init(&a);
    pthread_attr_setstacksize(&a, 16384);
    do {
        pthread_t t;
        int e = pthread_create(&t, &a, sleeper, 0);
        if (e) return e;
    } while (more());
    return 0;
}
static int zombies(void) {
    do {
        pid_t p = fork();
        if (p < 0) return errno;
        if (p == 0) _exit(0);
    } while (more());
    return 0;
}
static int in_flight(void) {
    many_files();
    do {
        int s[2];
        if (socket_pair(SOCK_STREAM, s)) return errno;
        for (int i = 0; i < 64; i++)
            if (send_file(s[0], 0, 253) < 0) {
                if (errno == EAGAIN) break;
                while (send_file(s[0], 0, 1) >= 0) {}
                return errno;
            }
    } while (more());
    return 0;
}
static int namespaces(void) {
    many_files();
    do {
        pid_t p = fork();
        int st;
        if (p < 0) return errno;
        if (p == 0) {
            if (unshare(CLONE_NEWUSER)) _exit(errno);
            for (int i = 0; i < 60; i++)
                if (unshare(CLONE_NEWUTS | CLONE_NEWIPC | CLONE_NEWNET) || open("/proc/self/ns/net", O_RDONLY) < 0) break;
            for (;;) pause();
        }
        usleep(10000);
        if (waitpid(p, &st, WNOHANG) == p && WIFEXITED(st)) return WEXITSTATUS(st);
    } while (more());
    return 0;
}
static int semaphores(void) {
    do
        if (semget(IPC_PRIVATE, 32000, 0600) < 0) return errno;
    while (more());
    return 0;
}
static int undo(void) {
    int id = semget(IPC_PRIVATE, 32000, 0600);
    struct sembuf op = {0, 1, SEM_UNDO};
    do {
        pid_t p = fork();
        if (p < 0) return errno;
        if (p == 0) {
            semop(id, &op, 1);
            for (;;) pause();
        }
    } while (more());
    return 0;
}
static int messages(void) {
    struct { long t; char c[1]; } m = {1, {0}};
    do {
        int id = msgget(IPC_PRIVATE, 0600);
        if (id < 0) return errno;
        while (!msgsnd(id, &m, count % 2, IPC_NOWAIT)) {}
        if (errno != EAGAIN) return errno;
    } while (more());
    return 0;
}
static int segments(void) {
    do
        if (shmget(IPC_PRIVATE, 4096, 0600) < 0) return errno;
    while (more());
    return 0;
}
// Four processes, so that the descriptors of one are no limit.
static int by_four(int (*one)(void)) {
    int p[2], e = 0;
    // Once used, the pipe has its memory, before all is taken.
    if (pipe(p) || write(p[1], &e, sizeof e) < 0 || read(p[0], &e, sizeof e) < 0) return errno;
    int n = 0;
    for (int i = 0; i < 4; i++) {
        pid_t k = fork();
        if (k < 0) e = errno;
        n += k > 0;
        if (k == 0) {
            int r = one();
            if (write(p[1], &r, sizeof r)) {}
            for (;;) pause();
        }
    }
    for (int i = 0; i < n; i++) {
        int r;
        if (read(p[0], &r, sizeof r) == sizeof r && r) e = r;
    }
    return e;
}
static int one_pipes(void) {
    static char b[1 << 20];
    many_files();
    do {
        int p[2];
        if (pipe2(p, O_NONBLOCK)) return errno;
        fcntl(p[1], F_SETPIPE_SZ, 1 << 20);
        if (write(p[1], b, sizeof b) < 0) return errno;
    } while (more());
    return 0;
}
static int pipes(void) { return by_four(one_pipes); }
static int one_sockets(void) {
    static char b[1 << 20];
    int n = 1 << 22;
    many_files();
    do {
        int s[2];
        if (socket_pair(SOCK_STREAM, s)) return errno;
        for (int i = 0; i < 2; i++) {
            setsockopt(s[i], SOL_SOCKET, SO_SNDBUF, &n, sizeof n);
            if (send(s[i], b, sizeof b, MSG_DONTWAIT) < 0 && errno != EAGAIN) return errno;
        }
    } while (more());
    return 0;
}
static int sockets(void) { return by_four(one_sockets); }
static int one_datagrams(void) {
    many_files();
    do {
        int s[2];
        if (socket_pair(SOCK_DGRAM, s)) return errno;
        while (send(s[0], "x", 1, MSG_DONTWAIT) == 1) {}
        if (errno != EAGAIN) return errno;
    } while (more());
    return 0;
}
static int datagrams(void) { return by_four(one_datagrams); }
static int one_tcp(void) {
    static char b[1 << 20];
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof a;
    many_files();
    int l = socket(AF_INET, SOCK_STREAM, 0);
    if (bind(l, (void *)&a, sizeof a) || listen(l, 4096) || getsockname(l, (void *)&a, &len)) return errno;
    do {
        int s = socket(AF_INET, SOCK_STREAM, 0);
        if (s < 0 || connect(s, (void *)&a, sizeof a)) return errno;
        int t = accept(l, 0, 0);
        if (t < 0) return errno;
        if (send(s, b, sizeof b, MSG_DONTWAIT) < 0 || send(t, b, sizeof b, MSG_DONTWAIT) < 0) return errno;
    } while (more());
    return 0;
}
static int tcp(void) { return by_four(one_tcp); }
static int one_udp(void) {
    static char b[60000];
    many_files();
    do {
        struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
        socklen_t len = sizeof a;
        int s = socket(AF_INET, SOCK_DGRAM, 0);
        if (s < 0 || bind(s, (void *)&a, sizeof a) || getsockname(s, (void *)&a, &len)) return errno;
        for (int i = 0; i < 4; i++) sendto(s, b, sizeof b, MSG_DONTWAIT, (void *)&a, sizeof a);
    } while (more());
    return 0;
}
static int udp(void) { return by_four(one_udp); }
static int netlink(void) {
    int s = socket(AF_NETLINK, SOCK_RAW, 0);
    struct { struct nlmsghdr h; struct rtgenmsg g; } r = {{sizeof r, RTM_GETLINK, NLM_F_REQUEST | NLM_F_DUMP, 1, 0}, {AF_UNSPEC}};
    do
        if (send(s, &r, sizeof r, MSG_DONTWAIT) < 0) return errno;
    while (more());
    return 0;
}
static char dir[64];
static int in_dir(void) {
    snprintf(dir, sizeof dir, "/tmp/hog.%d", getpid());
    return mkdir(dir, 0777) || chdir(dir) ? errno : 0;
}
static int symlinks(void) {
    char to[4000], n[32];
    memset(to, 'x', sizeof to - 1), to[sizeof to - 1] = 0;
    for (int e = in_dir(); e;) return e;
    do {
        snprintf(n, sizeof n, "l%ld", count);
        if (symlink(to, n)) return errno;
    } while (more());
    return 0;
}
static int files(void) {
    char n[32];
    for (int e = in_dir(); e;) return e;
    do {
        snprintf(n, sizeof n, "f%ld", count);
        if (mknod(n, S_IFREG | 0600, 0)) return errno;
    } while (more());
    return 0;
}
static int links(void) {
    char n[256];
    for (int e = in_dir(); e;) return e;
    mknod("f", S_IFREG | 0600, 0);
    do {
        snprintf(n, sizeof n, "%0200ld", count);
        if (link("f", n)) return errno;
    } while (more());
    return 0;
}
static int xattrs(void) {
    char n[32], v[60000];
    memset(v, 'x', sizeof v);
    for (int e = in_dir(); e;) return e;
    do {
        snprintf(n, sizeof n, "f%ld", count);
        if (mknod(n, S_IFREG | 0600, 0) || setxattr(n, "user.x", v, sizeof v, 0)) return errno;
    } while (more());
    return 0;
}
static int nests(void) {
    for (int e = in_dir(); e;) return e;
    do
        if (mkdir("d", 0700) || chdir("d")) return errno;
    while (more());
    return 0;
}
static int one_epoll(void) {
    many_files();
    int e = epoll_create1(0);
    do {
        int f = eventfd(0, 0);
        struct epoll_event ev = {.events = EPOLLIN};
        if (f < 0 || epoll_ctl(e, EPOLL_CTL_ADD, f, &ev)) return errno;
        for (int i = 0; i < 16; i++) {
            int d = dup(f);
            if (d < 0 || epoll_ctl(e, EPOLL_CTL_ADD, d, &ev)) return errno;
        }
    } while (more());
    return 0;
}
static int epolls(void) { return by_four(one_epoll); }
static int inotifies(void) {
    char n[300];
    for (int e = in_dir(); e;) return e;
    many_files();
    memset(n, 'x', 250), n[250] = 0;
    do {
        int i = inotify_init1(0);
        if (i < 0) return errno;
        if (inotify_add_watch(i, ".", IN_ALL_EVENTS) < 0) return errno;
        for (int k = 0; k < 100; k++) snprintf(n + 240, 10, "%d", k), mknod(n, S_IFREG | 0600, 0), unlink(n);
    } while (more());
    return 0;
}
static int watches(void) {
    char n[32];
    for (int e = in_dir(); e;) return e;
    int i = inotify_init1(0);
    do {
        snprintf(n, sizeof n, "f%ld", count);
        if (mknod(n, S_IFREG | 0600, 0) || inotify_add_watch(i, n, IN_MODIFY) < 0) return errno;
    } while (more());
    return 0;
}
static int file_locks(void) {
    for (int e = in_dir(); e;) return e;
    int f = open("f", O_RDWR | O_CREAT, 0600);
    do {
        struct flock l = {.l_type = F_WRLCK, .l_start = count * 2, .l_len = 1};
        if (fcntl(f, F_SETLK, &l)) return errno;
    } while (more());
    return 0;
}
static int one_timers(void) {
    do {
        timer_t t;
        struct sigevent ev = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGUSR1};
        if (timer_create(CLOCK_MONOTONIC, &ev, &t)) return errno;
    } while (more());
    return 0;
}
static int timers(void) { return by_four(one_timers); }
static int signals(void) {
    sigset_t s;
    union sigval v = {0};
    sigfillset(&s);
    sigprocmask(SIG_BLOCK, &s, 0);
    do
        if (sigqueue(getpid(), SIGRTMIN, v)) return errno;
    while (more());
    return 0;
}
static int one_areas(void) {
    char *p = mmap(0, 1ul << 32, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (p == MAP_FAILED) return errno;
    do
        if (mprotect(p + count * 8192, 4096, PROT_READ | PROT_WRITE)) return errno;
    while (more() && count < (1 << 19) - 1);
    return 0;
}
static int areas(void) { return by_four(one_areas); }
// Copies of many areas.
static int forks(void) {
    char *p = mmap(0, 60000 * 8192ul, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (p == MAP_FAILED) return errno;
    for (int i = 0; i < 30000; i++)
        if (mprotect(p + i * 8192ul, 4096, PROT_READ | PROT_WRITE)) return errno;
    deadline = now() + hog_time * 3;
    return tasks();
}
// Texts and names that open files remember.
static int one_texts(void) {
    char b[1];
    many_files();
    char *p = mmap(0, 4000 * 8192ul, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (p == MAP_FAILED) return errno;
    for (int i = 0; i < 4000; i++) mprotect(p + i * 8192ul, 4096, PROT_READ | PROT_WRITE);
    do {
        int f = open("/proc/self/maps", O_RDONLY);
        if (f < 0 || read(f, b, 1) < 0) return errno;
    } while (more());
    return 0;
}
static int texts(void) { return by_four(one_texts); }
static int one_listings(void) {
    char b[1024];
    many_files();
    do {
        int f = open("/usr/bin", O_RDONLY | O_DIRECTORY);
        if (f < 0 || syscall(SYS_getdents64, f, b, sizeof b) < 0) return errno;
    } while (more());
    return 0;
}
static int listings(void) { return by_four(one_listings); }
// Connections that nobody accepts.
static int backlogs(void) {
    many_files();
    do {
        struct sockaddr_un a = {.sun_family = AF_UNIX};
        int l = socket(AF_UNIX, SOCK_STREAM, 0), len = snprintf(a.sun_path + 1, 20, "hog%ld", count) + 3;
        if (l < 0 || bind(l, (void *)&a, len) || listen(l, 4096)) return errno;
        for (int i = 0; i < 4096; i++) {
            int s = socket(AF_UNIX, SOCK_STREAM, 0);
            if (s < 0 || connect(s, (void *)&a, len)) return errno;
            close(s);
        }
    } while (more());
    return 0;
}
static int terminals(void) {
    many_files();
    do
        if (open("/dev/ptmx", O_RDWR | O_NOCTTY) < 0) return errno;
    while (more());
    return 0;
}
static int tables(void) {
    many_files();
    struct rlimit r;
    getrlimit(RLIMIT_NOFILE, &r);
    if (dup2(0, r.rlim_cur - 1) < 0) return errno;
    return tasks();
}
static int filters(void) {
    static struct sock_filter f[4096];
    for (int i = 0; i < 4095; i++) f[i] = (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, 0);
    f[4095] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
    struct sock_fprog prog = {4096, f};
    do {
        pid_t p = fork();
        if (p < 0) return errno;
        if (p == 0) {
            prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
            for (int i = 0; i < 6; i++) prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &prog);
            for (;;) pause();
        }
    } while (more());
    return 0;
}
static int one_memfds(void) {
    many_files();
    do
        if (memfd_create("x", 0) < 0) return errno;
    while (more());
    return 0;
}
static int memfds(void) { return by_four(one_memfds); }
static int mounts(void) {
    if (unshare(CLONE_NEWUSER | CLONE_NEWNS)) return errno;
    mkdir("/tmp/hog.m", 0777);
    do
        if (syscall(SYS_mount, "none", "/tmp/hog.m", "tmpfs", 0, "size=4k")) return errno;
    while (more());
    return 0;
}
// A tree of many mounts, in what may be a namespace of one's own: /tmp/hog.m, and /tmp/hog.d to show it.
static int many_mounts(int doubled) {
    char p[64];
    many_files();
    prctl(PR_SET_DUMPABLE, 1);
    if (unshare(CLONE_NEWUSER | CLONE_NEWNS)) return errno;
    // A namespace is made by who has numbers.
    static const char *const maps[][2] = {{"setgroups", "deny"}, {"uid_map", "0 1000 1"}, {"gid_map", "0 1000 1"}};
    for (int i = 0; i < 3; i++) {
        snprintf(p, sizeof p, "/proc/self/%s", maps[i][0]);
        if (write(open(p, O_WRONLY), maps[i][1], strlen(maps[i][1])) < 0) return errno;
    }
    mkdir("/tmp/hog.m", 0777), mkdir("/tmp/hog.d", 0777);
    if (mount("none", "/tmp/hog.m", "tmpfs", 0, "size=1m")) return errno;
    for (int i = 0; i < doubled; i++) snprintf(p, sizeof p, "/tmp/hog.m/%d", i), mkdir(p, 0777);
    for (int i = 0; i < doubled; i++) {
        snprintf(p, sizeof p, "/tmp/hog.m/%d", i);
        if (mount("/tmp/hog.m", p, 0, MS_BIND | MS_REC, 0)) return errno;
    }
    return 0;
}
// Copies of it that are on no tree any more, each held by one file.
static int detached_copies(void) {
    do {
        if (mount("/tmp/hog.m", "/tmp/hog.d", 0, MS_BIND | MS_REC, 0)) return errno;
        if (open("/tmp/hog.d", O_PATH | O_DIRECTORY) < 0) return errno;
        if (umount2("/tmp/hog.d", MNT_DETACH)) return errno;
    } while (more());
    return 0;
}
static int mounts_cut(void) {
    int e = many_mounts(13);
    return e ? e : detached_copies();
}
// Mounts that came from a namespace above stay together.
static int mounts_kept(void) {
    int e = many_mounts(13);
    if (e) return e;
    if (unshare(CLONE_NEWUSER | CLONE_NEWNS)) return errno;
    return detached_copies();
}
// Files of the host's, which the whole sandbox has so many descriptors for. `/host-files` is a volume; only by name.
static int host_files(void) {
    many_files();
    do {
        pid_t p = fork();
        if (p < 0) return errno;
        if (p > 0) {
            int st;
            // It stops once it has all that it can get, and ends where that is nothing.
            if (waitpid(p, &st, WUNTRACED) != p) return errno;
            if (!WIFSTOPPED(st)) return WIFEXITED(st) ? WEXITSTATUS(st) : ECHILD;
            continue;
        }
        char n[64];
        for (int i = 0; i < 400; i++) {
            snprintf(n, sizeof n, "/host-files/%d.%d", getpid(), i);
            if (open(n, O_RDWR | O_CREAT, 0600) >= 0) continue;
            int e = errno;
            if (!access(n, F_OK)) printf("host_files: %s was made by an open that failed\n", n), fflush(stdout);
            if (i == 0) _exit(e);
            break;
        }
        raise(SIGSTOP);
        for (;;) pause();
    } while (more());
    return 0;
}
// A chain of directories, in the last of which it is: each keeps the one above, and no descriptor is open.
static int host_chain(void) {
    if (chdir("/host-files")) return errno;
    do {
        if (mkdir("d", 0777) || chdir("d")) return errno;
    } while (more());
    return 0;
}
// Watches of files that others have looked up.
static int watcher, watch_error;
static int watch_one(const char *path, const struct stat *st, int kind, struct FTW *at) {
    (void)st, (void)kind, (void)at;
    if (inotify_add_watch(watcher, path, IN_MODIFY) < 0 && errno == ENFILE) return watch_error = errno, 1;
    return !more();
}
static int host_watches(void) {
    watcher = inotify_init();
    nftw("/usr", watch_one, 20, FTW_PHYS);
    return watch_error;
}
// Many who send to all that they may, among many that have ended.
static void *sends(void *p) {
    while (now() < deadline) kill(-1, (long)p);
    for (;;) pause();
}
static int everybody(void) {
    pthread_attr_t a;
    pthread_attr_init(&a);
    pthread_attr_setstacksize(&a, 65536);
    for (int i = 0; i < 8000; i++) {
        pid_t p = fork();
        if (p < 0) break;
        if (p == 0) _exit(0);
    }
    deadline = now() + 4 * hog_time;
    for (long i = 0; i < 400; i++) {
        pthread_t t;
        // 0 asks only; a process that ignores SIGWINCH takes no notice.
        if (pthread_create(&t, &a, sends, (void *)(i % 2 ? 0L : (long)SIGWINCH))) break;
    }
    while (more()) usleep(1000);
    return 0;
}
// Timers that tell nobody, as fast as can be.
static int silent_timers(void) {
    struct sigevent none = {.sigev_notify = SIGEV_NONE};
    struct itimerspec fast = {{0, 1}, {0, 1}};
    do {
        timer_t t;
        if (timer_create(CLOCK_MONOTONIC, &none, &t)) {
            if (fork() == 0) continue;
            sleep(2);
            return EAGAIN;
        }
        timer_settime(t, 0, &fast, 0);
    } while (more());
    return 0;
}
// Who wait for many words at once, all the same one, and begin again.
struct waitv { uint64_t value, address; uint32_t flags, reserved; };
static uint32_t word;
static void *waits(void *p) {
    struct waitv v[128];
    for (int i = 0; i < 128; i++) v[i] = (struct waitv){0, (uintptr_t)&word, 0x82, 0};
    while (now() < deadline) {
        struct timespec t;
        clock_gettime(CLOCK_MONOTONIC, &t);
        t.tv_nsec += 20000000;
        if (t.tv_nsec >= 1000000000) t.tv_sec++, t.tv_nsec -= 1000000000;
        syscall(449, v, 128, 0, &t, CLOCK_MONOTONIC);
    }
    for (;;) pause();
    return p;
}
static int crowds(void) {
    pthread_attr_t a;
    pthread_attr_init(&a);
    pthread_attr_setstacksize(&a, 65536);
    deadline = now() + 4 * hog_time;
    for (int i = 0; i < 800; i++) {
        pthread_t t;
        if (pthread_create(&t, &a, waits, 0)) break;
    }
    while (more()) usleep(1000);
    return 0;
}
#define H(f) {#f, f}
static const struct { const char *name; int (*run)(void); } hogs[] = {H(tasks), H(threads), H(zombies), H(in_flight),
    H(namespaces), H(semaphores), H(undo), H(messages), H(segments), H(pipes), H(sockets), H(datagrams), H(tcp), H(udp),
    H(netlink), H(symlinks), H(files), H(links), H(xattrs), H(nests), H(epolls), H(inotifies), H(watches), H(file_locks),
    H(timers), H(signals), H(areas), H(forks), H(texts), H(listings),
    H(backlogs), H(terminals), H(tables), H(filters), H(memfds), H(mounts), H(mounts_cut), H(mounts_kept),
    H(everybody), H(silent_timers), H(crowds),
    H(host_files), H(host_chain), H(host_watches)};
static int needs_volume(int (*run)(void)) { return run == host_files || run == host_chain || run == host_watches; }

static void *thread(void *p) { return p; }
// What somebody needs who works: a word for what does not, or nothing.
static const char *works(void) {
    int p[2], s[2], st, id;
    char c;
    pid_t k = fork();
    if (k == 0) execl("/proc/self/exe", "hogs", "-7", (char *)0), _exit(8);
    if (k < 0) return "fork";
    if (waitpid(k, &st, 0) != k || !WIFEXITED(st) || WEXITSTATUS(st) != 7) return "exec";
    pthread_t t;
    if ((errno = pthread_create(&t, 0, thread, 0)) || pthread_join(t, 0)) return "thread";
    if (pipe(p) || write(p[1], "x", 1) != 1 || read(p[0], &c, 1) != 1) return "pipe";
    if (socket_pair(SOCK_STREAM, s) || write(s[0], "x", 1) != 1 || read(s[1], &c, 1) != 1) return "socket";
    if (send_file(s[0], 0, 1) < 0) return "SCM_RIGHTS";
    if ((id = semget(IPC_PRIVATE, 1, 0600)) < 0 || semctl(id, 0, IPC_RMID)) return "semget";
    if ((id = msgget(IPC_PRIVATE, 0600)) < 0 || msgctl(id, IPC_RMID, 0)) return "msgget";
    if ((id = shmget(IPC_PRIVATE, 4096, 0600)) < 0 || shmctl(id, IPC_RMID, 0)) return "shmget";
    char n[64];
    snprintf(n, sizeof n, "/tmp/works.%d", getpid());
    int f = open(n, O_RDWR | O_CREAT | O_EXCL, 0600);
    if (f < 0) return "file";
    if (write(f, "x", 1) != 1) return "write";
    struct flock l = {.l_type = F_WRLCK, .l_len = 1};
    if (fcntl(f, F_SETLK, &l)) return "lock";
    int i = inotify_init1(0);
    if (i < 0 || inotify_add_watch(i, n, IN_MODIFY) < 0) return "inotify";
    if (unlink(n)) return "unlink";
    int e = epoll_create1(0);
    struct epoll_event ev = {.events = EPOLLIN};
    if (e < 0 || epoll_ctl(e, EPOLL_CTL_ADD, p[0], &ev)) return "epoll";
    timer_t tm;
    struct sigevent sv = {.sigev_notify = SIGEV_NONE};
    if (timer_create(CLOCK_MONOTONIC, &sv, &tm)) return "timer";
    char *m = mmap(0, 1 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (m == MAP_FAILED) return "mmap";
    memset(m, 1, 1 << 20);
    // A thread that was joined may still be there for a moment.
    for (int k = 0; unshare(CLONE_NEWUSER | CLONE_NEWUTS); usleep(10000))
        if (errno != EINVAL || k++ == 100) return "unshare";
    return 0;
}
// Runs it as somebody; 0 where all works.
static int try_as(uid_t uid, char *out, size_t n) {
    int p[2], st;
    if (pipe(p)) return -1;
    double t = now();
    pid_t k = fork();
    if (k < 0) return snprintf(out, n, "fork: %s", strerror(errno)), -1;
    if (k == 0) {
        if (uid && setuid(uid)) _exit(9);
        alarm(20);
        const char *w = works();
        char b[100] = "";
        if (w) snprintf(b, sizeof b, "%s: %s", w, strerrorname_np(errno));
        if (write(p[1], b, strlen(b) + 1)) {}
        _exit(w != 0);
    }
    close(p[1]);
    char b[100] = "";
    if (read(p[0], b, sizeof b - 1) <= 0) snprintf(b, sizeof b, "killed");
    close(p[0]);
    waitpid(k, &st, 0);
    snprintf(out, n, "%s", b[0] ? b : "works");
    if (now() - t > 5 && !b[0]) snprintf(out, n, "works after %.1f s", now() - t);
    return b[0] != 0 || now() - t > 5;
}

static int one(const char *bystander, const char *name, int (*run)(void)) {
    int p[2], e = -1, st, bad = 0;
    if (pipe(p)) return 1;
    pid_t b = fork();
    if (b == 0) {
        dup2(2, 1);
        execl(bystander, "bystander", "-q", "-u", "1001", (char *)0);
        _exit(9);
    }
    pid_t h = fork();
    if (h == 0) {
        setpgid(0, 0);
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (setgid(HOG) || setuid(HOG)) _exit(9);
        int is_slow = run == tasks || run == threads || run == mounts_cut || run == mounts_kept || needs_volume(run);
        deadline = now() + hog_time * (is_slow ? 5 : 1);
        int r[2] = {run(), 0};
        r[1] = count;
        if (write(p[1], r, sizeof r)) {}
        for (;;) pause();
    }
    setpgid(h, h);
    close(p[1]);
    int r[2] = {-1, 0};
    if (read(p[0], r, sizeof r) == sizeof r) e = r[0];
    close(p[0]);
    char root[120], other[120];
    bad |= try_as(0, root, sizeof root);
    bad |= try_as(OTHER, other, sizeof other);
    kill(b, SIGTERM);
    waitpid(b, &st, 0);
    bad |= !WIFEXITED(st) || WEXITSTATUS(st);
    const char *by = !WIFEXITED(st) ? "killed" : WEXITSTATUS(st) == 0 ? "in time" : WEXITSTATUS(st) == 1 ? "TOO LATE" : "FAILED";
    // All of the user's, but for what is in other groups.
    pid_t k = fork();
    if (k == 0) {
        if (setgid(HOG) || setuid(HOG)) _exit(9);
        kill(-1, SIGKILL);
        _exit(0);
    }
    if (k > 0) waitpid(k, 0, 0);
    kill(-h, SIGKILL), kill(h, SIGKILL);
    while (waitpid(h, 0, 0) < 0 && errno == EINTR) {}
    printf("%-11s hog %s (%d), root %s, other %s, bystander %s\n", name,
        e < 0 ? "killed" : e ? strerrorname_np(e) : "time", r[1], root, other, by);
    fflush(stdout);
    if (system("rm -rf /tmp/hog.* 2>/dev/null")) {}
    for (int i = 0; i < 40000; i++) {
        struct shmid_ds s;
        struct semid_ds m;
        struct msqid_ds q;
        int id;
        if (i < 32000 && (id = shmctl(i, SHM_STAT, &s)) >= 0) shmctl(id, IPC_RMID, 0);
        if (i < 32000 && (id = semctl(i, 0, SEM_STAT, &m)) >= 0) semctl(id, 0, IPC_RMID);
        if (i < 32000 && (id = msgctl(i, MSG_STAT, (void *)&q)) >= 0) msgctl(id, IPC_RMID, 0);
        if (i >= 2000 && strcmp(name, "messages") && strcmp(name, "segments") && strcmp(name, "semaphores")) break;
    }
    return bad;
}

int main(int argc, char **argv) {
    if (argc == 2 && !strcmp(argv[1], "-7")) return 7;
    if (argc < 2) return 2;
    if (getenv("HOG_TIME")) hog_time = atof(getenv("HOG_TIME"));
    setvbuf(stdout, 0, _IOLBF, 0);
    int bad = 0;
    // Orphans of the hogs are waited for here.
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    for (size_t i = 0; i < sizeof hogs / sizeof *hogs; i++) {
        int wanted = argc == 2 && !needs_volume(hogs[i].run);
        for (int k = 2; k < argc; k++) wanted |= !strcmp(argv[k], hogs[i].name);
        if (!wanted) continue;
        bad |= one(argv[1], hogs[i].name, hogs[i].run);
        while (waitpid(-1, 0, WNOHANG) > 0) {}
        // The allocator's free memory goes back to the host once nothing has ended for a second: the next begins with little.
        usleep(1400 * 1000);
    }
    return bad;
}
