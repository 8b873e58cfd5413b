// The ends of tests/siege, and who attacks.
//
//   siege serve PORT COUNT           answers with what comes, at as many ports from this one on; prints "ready"
//   siege pour PORT                  sends without end to all who connect; tells each second how many there are
//   siege echo PORT                  the same as serve for datagrams
//   siege visit ADDRESS PORT COUNT TOTAL AT-ONCE
//                                    so many connections, a few bytes there and back by each: "TOTAL lost LOST SECONDS"
//   siege hold ADDRESS PORT COUNT TOTAL ROUNDS
//                                    keeps so many open: "held N lost LOST, round trips MEDIAN us, WORST us", until its input ends
//   siege dawdle ADDRESS PORT N      connects so often and reads nothing, until its input ends; "ready" before
//   siege flood ADDRESS PORT N       so many SYNs from addresses that nobody has
//   siege scan ADDRESS FROM TO       connects to each port: "open N refused N silent N"
//   siege ping ADDRESS PORT SECONDS  datagrams there and back: "N lost LOST, MEDIAN us, WORST us"
//   siege lead PORT HOW              answers datagrams, and does otherwise what a leader should not:
//                                    see `hows`
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/ip.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { SIZE = 8, PATIENCE = 30 };

static int must(int r, const char *what) {
    if (r < 0) {
        perror(what);
        exit(1);
    }
    return r;
}

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec + t.tv_nsec / 1e9;
}

static struct sockaddr_in address(const char *ip, int port) {
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons(port)};
    must(inet_pton(AF_INET, ip, &a.sin_addr) == 1 ? 0 : -1, ip);
    return a;
}

static int tcp(void) { return must(socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0), "socket"); }

static int listener(int port) {
    int s = tcp(), on = 1;
    struct sockaddr_in a = address("0.0.0.0", port);
    setsockopt(s, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    must(bind(s, (void *)&a, sizeof a), "bind");
    must(listen(s, 1024), "listen");
    return s;
}

static int udp(int port) {
    int s = must(socket(AF_INET, SOCK_DGRAM, 0), "socket");
    struct sockaddr_in a = address("0.0.0.0", port);
    must(bind(s, (void *)&a, sizeof a), "bind");
    return s;
}

static void watch(int e, int fd, uint32_t events) {
    struct epoll_event v = {.events = events, .data.fd = fd};
    must(epoll_ctl(e, EPOLL_CTL_ADD, fd, &v), "epoll_ctl");
}

static void say_ready(void) {
    puts("ready");
    fflush(stdout);
}

static void serve(int port, int count, int pours) {
    static char block[65536];
    static char listens[1 << 20];
    int e = epoll_create1(0), held = 0;
    for (int i = 0; i < count; i++) {
        int l = listener(port + i);
        listens[l] = 1;
        watch(e, l, EPOLLIN);
    }
    say_ready();
    struct epoll_event v[256];
    double told = now();
    for (;;) {
        int n = epoll_wait(e, v, 256, pours ? 200 : -1);
        for (int i = 0; i < n; i++) {
            int fd = v[i].data.fd, c;
            if (listens[fd]) {
                while ((c = accept4(fd, NULL, NULL, SOCK_NONBLOCK)) >= 0) {
                    watch(e, c, pours ? EPOLLOUT | EPOLLET : EPOLLIN);
                    held++;
                }
                continue;
            }
            ssize_t k = 0;
            if (pours)
                while ((k = send(fd, block, sizeof block, MSG_NOSIGNAL)) > 0) {}
            else if ((k = recv(fd, block, sizeof block, 0)) > 0)
                k = send(fd, block, k, MSG_NOSIGNAL);
            if (k == 0 || (k < 0 && errno != EAGAIN && errno != ENOBUFS)) {
                close(fd);
                held--;
            }
        }
        if (pours && now() - told > 0.2) {
            printf("%d\n", held);
            fflush(stdout);
            told = now();
        }
    }
}

static void echo(int s) {
    char b[2048];
    struct sockaddr_in a;
    socklen_t n = sizeof a;
    ssize_t k = recvfrom(s, b, sizeof b, 0, (void *)&a, &n);
    if (k >= 0) sendto(s, b, k, 0, (void *)&a, n);
}

// A connection of a visitor: what it waits for, and until when.
static struct visit {
    double until;
    int said;
} visits[1 << 20];

static int begin(int e, const char *ip, int port) {
    int s = tcp();
    struct sockaddr_in a = address(ip, port);
    if (connect(s, (void *)&a, sizeof a) < 0 && errno != EINPROGRESS) {
        close(s);
        return -1;
    }
    visits[s] = (struct visit){now() + PATIENCE, 0};
    watch(e, s, EPOLLOUT);
    return s;
}

// What has happened there: 1 the answer is there, 0 not yet, -1 it is lost.
static int go_on(int e, int s) {
    char b[SIZE], expected[SIZE];
    memset(expected, s, sizeof expected);
    if (!visits[s].said) {
        if (send(s, expected, SIZE, MSG_NOSIGNAL) != SIZE) return -1;
        visits[s].said = 1;
        struct epoll_event v = {.events = EPOLLIN, .data.fd = s};
        epoll_ctl(e, EPOLL_CTL_MOD, s, &v);
        return 0;
    }
    ssize_t n = recv(s, b, SIZE, 0);
    return n == SIZE && !memcmp(b, expected, SIZE) ? 1 : n < 0 && errno == EAGAIN ? 0 : -1;
}

// Ends those that have waited too long.
static int give_up(int *all, int n) {
    int lost = 0;
    for (int i = 0; i < n; i++)
        if (all[i] >= 0 && visits[all[i]].until < now()) {
            close(all[i]);
            all[i] = -1;
            lost++;
        }
    return lost;
}

static int compare(const void *a, const void *b) { return (*(double *)a > *(double *)b) - (*(double *)a < *(double *)b); }

// Visits, with `keep` connections that stay.
static int visit(const char *ip, int port, int count, int total, int at_once, int *keep, int *kept) {
    int e = epoll_create1(0), begun = 0, ended = 0, lost = 0, open = 0;
    int *all = malloc(sizeof *all * at_once);
    for (int i = 0; i < at_once; i++) all[i] = -1;
    double looked = now();
    while (ended < total) {
        for (int i = 0; i < at_once && open < at_once && begun < total; i++)
            if (all[i] < 0) {
                all[i] = begin(e, ip, port + begun++ % count);
                if (all[i] < 0) lost++, ended++;
                else open++;
            }
        struct epoll_event v[256];
        int n = epoll_wait(e, v, 256, 100);
        for (int i = 0; i < n; i++) {
            int s = v[i].data.fd, r = go_on(e, s), j = 0;
            if (!r) continue;
            while (all[j] != s) j++;
            all[j] = -1;
            epoll_ctl(e, EPOLL_CTL_DEL, s, NULL);
            if (r > 0 && keep) keep[(*kept)++] = s;
            else close(s);
            if (r < 0) lost++;
            ended++, open--;
        }
        if (now() - looked > 1) {
            int k = give_up(all, at_once);
            lost += k, ended += k, open -= k;
            looked = now();
        }
    }
    close(e);
    return lost;
}

static void hold(const char *ip, int port, int count, int total, int rounds) {
    int *keep = malloc(sizeof *keep * total), kept = 0;
    int lost = visit(ip, port, count, total, 64, keep, &kept);
    double *took = malloc(sizeof *took * rounds);
    char b[SIZE] = {0};
    for (int i = 0; i < kept; i++) fcntl(keep[i], F_SETFL, 0);
    for (int i = 0; i < rounds && kept; i++) {
        int s = keep[(uint64_t)i * 7919 % kept];
        double began = now();
        if (send(s, b, SIZE, MSG_NOSIGNAL) != SIZE || recv(s, b, SIZE, MSG_WAITALL) != SIZE) lost++;
        took[i] = now() - began;
    }
    qsort(took, rounds, sizeof *took, compare);
    printf("held %d lost %d, round trips %.1f us, %.0f us\n", kept, lost, took[rounds / 2] * 1e6, took[rounds - 1] * 1e6);
    fflush(stdout);
    while (read(0, b, 1) > 0) {}
}

static void dawdle(const char *ip, int port, int n) {
    char b;
    for (int i = 0; i < n; i++) {
        int s = tcp();
        struct sockaddr_in a = address(ip, port);
        fcntl(s, F_SETFL, 0);
        must(connect(s, (void *)&a, sizeof a), "connect");
    }
    say_ready();
    while (read(0, &b, 1) > 0) {}
}

static uint32_t sum(const void *p, int n, uint32_t s) {
    for (const uint16_t *w = p; n > 1; n -= 2) s += *w++;
    return s;
}

// Every sixteenth is of an address of the same network, whom nobody answers for.
static void flood(const char *ip, int port, int n) {
    int s = must(socket(AF_INET, SOCK_RAW, IPPROTO_RAW), "socket");
    struct sockaddr_in to = address(ip, 0);
    struct {
        struct iphdr ip;
        struct tcphdr tcp;
        uint8_t mss[4];
    } p = {
        .ip = {.version = 4, .ihl = 5, .ttl = 64, .protocol = 6, .tot_len = htons(sizeof p)},
        .tcp = {.dest = htons(port), .doff = 6, .syn = 1, .window = htons(65535)},
        .mss = {2, 4, 5, 0xb4},
    };
    p.ip.daddr = to.sin_addr.s_addr;
    uint64_t r = 88172645463325252;
    for (int i = 0; i < n; i++) {
        r ^= r << 13, r ^= r >> 7, r ^= r << 17;
        uint32_t own = ntohl(to.sin_addr.s_addr) & ~0xffu;
        p.ip.saddr = htonl(i % 16 ? 0xc6120000 | (r & 0x1ffff) : own | (3 + (r & 0x7f)));
        p.tcp.source = htons(1024 + (r >> 20) % 60000);
        p.tcp.seq = r >> 32;
        p.tcp.check = 0;
        uint16_t pseudo[] = {htons(6), htons(sizeof p.tcp + 4)};
        uint32_t c = sum(&p.tcp, sizeof p.tcp + 4, sum(pseudo, 4, sum(&p.ip.saddr, 8, 0)));
        while (c >> 16) c = (c & 0xffff) + (c >> 16);
        p.tcp.check = ~c;
        if (sendto(s, &p, sizeof p, 0, (void *)&to, sizeof to) < 0 && errno == ENOBUFS) usleep(100);
    }
}

static void scan(const char *ip, int from, int to) {
    int open = 0, refused = 0, silent = 0;
    for (int port = from; port <= to; port++) {
        int s = tcp(), error = 0;
        socklen_t n = sizeof error;
        struct sockaddr_in a = address(ip, port);
        if (connect(s, (void *)&a, sizeof a) < 0 && errno == EINPROGRESS) {
            struct pollfd f = {s, POLLOUT, 0};
            if (poll(&f, 1, 5000) <= 0) error = ETIMEDOUT;
            else getsockopt(s, SOL_SOCKET, SO_ERROR, &error, &n);
        } else {
            error = errno;
        }
        if (!error) open++;
        else if (error == ECONNREFUSED) refused++;
        else silent++;
        close(s);
    }
    printf("open %d refused %d silent %d\n", open, refused, silent);
}

static void ping(const char *ip, int port, double seconds) {
    static double took[1 << 20];
    int s = must(socket(AF_INET, SOCK_DGRAM, 0), "socket"), n = 0, lost = 0;
    struct sockaddr_in a = address(ip, port);
    struct timeval limit = {5, 0};
    setsockopt(s, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    must(connect(s, (void *)&a, sizeof a), "connect");
    double end = now() + seconds;
    while (now() < end && n < 1 << 20) {
        int b = n;
        double began = now();
        send(s, &b, sizeof b, 0);
        do
            if (recv(s, &b, sizeof b, 0) < 0) {
                lost += errno != ECONNREFUSED;
                b = n;
                usleep(1000);
            }
        while (b != n);
        took[n++] = now() - began;
    }
    qsort(took, n, sizeof *took, compare);
    printf("%d lost %d, %.0f us, %.0f us\n", n, lost, n ? took[n / 2] * 1e6 : 0, n ? took[n - 1] * 1e6 : 0);
}

// ---- A leader that does what it should not.

static int leads_at;

static void *answer(void *of) {
    for (;;) echo(*(int *)of);
    return NULL;
}

static void *compute(void *of) {
    for (;;) *(volatile int *)of;
    return NULL;
}

static void nothing(int n) { (void)n; }

// It is stopped and goes on.
static void stopped(void) {
    pid_t p = fork();
    if (!p) answer(&leads_at);
    for (;;) {
        usleep(3000);
        kill(p, SIGSTOP);
        usleep(3000);
        kill(p, SIGCONT);
    }
}

static void killed(void) {
    for (;;) {
        pid_t p = fork();
        if (!p) answer(&leads_at);
        usleep(20000);
        kill(p, SIGKILL);
        waitpid(p, NULL, 0);
    }
}

// Another thread replaces the program.
static char *own_arguments[5];
static void replaced(void) {
    pthread_t t;
    pthread_create(&t, NULL, answer, &leads_at);
    usleep(20000);
    execv("/proc/self/exe", own_arguments);
    must(-1, "execv");
}

static void interrupted(void) {
    struct itimerval each = {{0, 700}, {0, 700}};
    signal(SIGALRM, nothing);
    setitimer(ITIMER_REAL, &each, NULL);
    answer(&leads_at);
}

static void hurried(void) {
    for (unsigned n = 0;; n++) {
        struct timeval limit = {0, 100 + n % 40 * 100};
        setsockopt(leads_at, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
        echo(leads_at);
    }
}

// It comes back late.
static void absent(void) {
    for (unsigned n = 0;; n++) {
        echo(leads_at);
        double until = now() + 0.0004;
        while (n % 64 == 63 && now() < until) {}
    }
}

static void many(void) {
    pthread_t t;
    static int x;
    for (int i = 0; i < 3; i++) pthread_create(&t, NULL, answer, &leads_at);
    pthread_create(&t, NULL, compute, &x);
    answer(&leads_at);
}

static const struct {
    const char *name;
    void (*run)(void);
} hows[] = {{"stopped", stopped}, {"killed", killed}, {"replaced", replaced}, {"interrupted", interrupted},
            {"hurried", hurried}, {"absent", absent}, {"many", many}};

static void lead(int port, const char *how) {
    // One that an earlier program of this process has made stays.
    char *made = getenv("SIEGE");
    char number[16];
    leads_at = made ? atoi(made) : udp(port);
    snprintf(number, sizeof number, "%d", leads_at);
    setenv("SIEGE", number, 1);
    if (!made) say_ready();
    for (size_t i = 0; i < sizeof hows / sizeof *hows; i++)
        if (!strcmp(hows[i].name, how)) hows[i].run();
    exit(2);
}

int main(int n, char **v) {
    struct rlimit files;
    getrlimit(RLIMIT_NOFILE, &files);
    files.rlim_cur = files.rlim_max;
    setrlimit(RLIMIT_NOFILE, &files);
    signal(SIGPIPE, SIG_IGN);
#define IS(name, arguments) (n == 2 + (arguments) && !strcmp(v[1], name))
    if (IS("serve", 2)) serve(atoi(v[2]), atoi(v[3]), 0);
    else if (IS("pour", 1)) serve(atoi(v[2]), 1, 1);
    else if (IS("echo", 1)) {
        int s = udp(atoi(v[2]));
        say_ready();
        answer(&s);
    } else if (IS("visit", 5)) {
        double began = now();
        int total = atoi(v[5]), lost = visit(v[2], atoi(v[3]), atoi(v[4]), total, atoi(v[6]), NULL, NULL);
        printf("%d lost %d %.1f\n", total, lost, now() - began);
    } else if (IS("hold", 5)) hold(v[2], atoi(v[3]), atoi(v[4]), atoi(v[5]), atoi(v[6]));
    else if (IS("dawdle", 3)) dawdle(v[2], atoi(v[3]), atoi(v[4]));
    else if (IS("flood", 3)) flood(v[2], atoi(v[3]), atoi(v[4]));
    else if (IS("scan", 3)) scan(v[2], atoi(v[3]), atoi(v[4]));
    else if (IS("ping", 3)) ping(v[2], atoi(v[3]), atof(v[4]));
    else if (IS("lead", 2)) {
        memcpy(own_arguments, v, sizeof *v * 4);
        lead(atoi(v[2]), v[3]);
    } else return 2;
    return 0;
}
