// Two programs at the ends of a pair of devices: one serves, the other measures.
//
//   wire serve [cpu]             prints "ready"; with "cpu" what its transfers took of the machine's CPU
//   wire all ADDRESS [cpu]       bytes by one connection both ways, round trips by TCP and UDP, connections a second
//   wire scale ADDRESS           round trips beside other connections that are open
//   wire hold ADDRESS COUNT      opens as many connections, prints "ready", waits
//
// Who has the host's /proc/stat is told "cpu": of each transfer it prints the seconds of CPU, of all on the machine, for a GB.
#include "bench.h"
#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/socket.h>

enum { PORT = 5400, SMALL = 64, MOST = 10000 };
static char block[256 << 10];
static int tells_cpu;

// Seconds of CPU that the machine has spent.
static double cpu(void) {
    unsigned long long user, nice, system, idle, wait, irq, soft, steal;
    FILE *f = fopen("/proc/stat", "r");
    check(f != NULL, "/proc/stat");
    int n = fscanf(f, "cpu %llu %llu %llu %llu %llu %llu %llu %llu", &user, &nice, &system, &idle, &wait, &irq, &soft, &steal);
    fclose(f);
    check(n == 8, "/proc/stat");
    return (double)(user + nice + system + irq + soft + steal) / sysconf(_SC_CLK_TCK);
}

static double seconds(void) { return setting("BENCH_PART", 1) * 2 + 0.02; }

static void tell_cpu(const char *name, double began, double bytes) {
    if (!tells_cpu || bytes < 1e6) return;
    char line[64];
    snprintf(line, sizeof line, "%s, CPU for a GB", name);
    report(line, (cpu() - began) / (bytes / 1e9) * 1e3, "ms");
}

// The first byte of a connection says what it is for.
static void serve_one(int c) {
    char kind;
    int on = 1;
    setsockopt(c, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    if (recv(c, &kind, 1, 0) != 1) return;
    ssize_t n;
    double began = cpu(), bytes = 0;
    if (kind == 'd') {
        while ((n = send(c, block, sizeof block, MSG_NOSIGNAL)) > 0) bytes += n;
        tell_cpu("download", began, bytes);
    } else if (kind == 'u') {
        while ((n = recv(c, block, sizeof block, 0)) > 0) bytes += n;
        tell_cpu("upload", began, bytes);
    } else {
        while ((n = recv(c, block, SMALL, 0)) > 0) send(c, block, n, MSG_NOSIGNAL);
    }
}

static void many_files(void) {
    struct rlimit r = {MOST + 1000, MOST + 1000};
    if (setrlimit(RLIMIT_NOFILE, &r) == 0) return;
    getrlimit(RLIMIT_NOFILE, &r);
    r.rlim_cur = r.rlim_max;
    setrlimit(RLIMIT_NOFILE, &r);
}

static void serve(void) {
    static int held[MOST + 100];
    size_t holds = 0;
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons(PORT)};
    int s = socket(AF_INET, SOCK_STREAM, 0), u = socket(AF_INET, SOCK_DGRAM, 0), on = 1;
    setsockopt(s, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    check(bind(s, (void *)&a, sizeof a) == 0 && bind(u, (void *)&a, sizeof a) == 0, "bind");
    check(listen(s, 1024) == 0, "listen");
    many_files();
    signal(SIGCHLD, SIG_IGN);
    if (fork() == 0)
        for (;;) {
            socklen_t len = sizeof a;
            ssize_t n = recvfrom(u, block, SMALL, 0, (void *)&a, &len);
            if (n >= 0) sendto(u, block, n, 0, (void *)&a, len);
        }
    puts("ready");
    fflush(stdout);
    for (;;) {
        int c = accept(s, NULL, NULL);
        char kind;
        if (c < 0 || recv(c, &kind, 1, MSG_PEEK) != 1) {
            close(c);
        } else if (kind == 'c') {
            // Short ones are served here: a process each would be what is measured.
            recv(c, &kind, 1, 0);
            send(c, &kind, 1, MSG_NOSIGNAL);
            close(c);
        } else if (kind == 'h') {
            send(c, &kind, 1, MSG_NOSIGNAL);
            if (holds < sizeof held / sizeof *held) held[holds++] = c;
        } else if (fork() == 0) {
            close(s);
            serve_one(c);
            exit(0);
        } else {
            close(c);
        }
    }
}

static int dial(const char *address, int type, char kind) {
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons(PORT)};
    int on = 1, s = socket(AF_INET, type, 0);
    check(s >= 0, "socket");
    check(inet_pton(AF_INET, address, &a.sin_addr) == 1, address);
    check(connect(s, (void *)&a, sizeof a) == 0, "connect");
    if (type == SOCK_STREAM) {
        setsockopt(s, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
        check(send(s, &kind, 1, 0) == 1, "send");
    }
    return s;
}

static void transfer(const char *address, const char *name) {
    int s = dial(address, SOCK_STREAM, name[0]);
    double began = now(), cpu_began = cpu(), bytes = 0;
    while (now() - began < seconds() * 1e9) {
        ssize_t n = name[0] == 'd' ? recv(s, block, sizeof block, 0) : send(s, block, sizeof block, 0);
        check(n > 0, name);
        bytes += n;
    }
    report(name, bytes / 1e6 / ((now() - began) / 1e9), "MB/s");
    tell_cpu(name, cpu_began, bytes);
    close(s);
    // Until its server has told.
    usleep(50000);
}

static double round_trips(int s, size_t size, const char *what) {
    for (int i = 0; i < 50; i++) check(send(s, block, size, 0) == (ssize_t)size && recv(s, block, size, 0) == (ssize_t)size, what);
    double began = now(), count = 0;
    for (; now() - began < seconds() * 1e9; count++)
        check(send(s, block, size, 0) == (ssize_t)size && recv(s, block, size, 0) == (ssize_t)size, what);
    return (now() - began) / count / 1e3;
}

static void all(const char *address) {
    transfer(address, "download");
    transfer(address, "upload");
    int s = dial(address, SOCK_STREAM, 'r');
    report("round trip of a byte by TCP", round_trips(s, 1, "TCP"), "us");
    close(s);
    s = dial(address, SOCK_DGRAM, 'r');
    report("round trip of 64 bytes by UDP", round_trips(s, SMALL, "UDP"), "us");
    close(s);
    double began = now(), count = 0;
    for (; now() - began < seconds() * 1e9; count++) {
        s = dial(address, SOCK_STREAM, 'c');
        check(recv(s, block, 1, 0) == 1, "recv");
        // No TIME_WAIT: the ports would be used up.
        struct linger l = {1, 0};
        setsockopt(s, SOL_SOCKET, SO_LINGER, &l, sizeof l);
        close(s);
    }
    report("connections", count / ((now() - began) / 1e9), "/s");
}

static void hold(const char *address, int count) {
    for (int i = 0; i < count; i++) check(recv(dial(address, SOCK_STREAM, 'h'), block, 1, 0) == 1, "hold");
}

static void scale(const char *address) {
    int open = 0, s = dial(address, SOCK_STREAM, 'r');
    for (int n = 10; n <= MOST; n *= n == 10 ? 100 : 10) {
        int want = n < 100 ? n : (int)part(n);
        hold(address, want > open ? want - open : 0);
        open = want > open ? want : open;
        char name[64];
        snprintf(name, sizeof name, "round trip, by open connections@%d", n);
        report(name, round_trips(s, 1, "TCP"), "us");
    }
}

int main(int argc, char **argv) {
    check(argc > 1, "usage: wire serve|all|scale|hold");
    tells_cpu = argc > 2 && !strcmp(argv[argc - 1], "cpu");
    signal(SIGPIPE, SIG_IGN);
    if (!strcmp(argv[1], "serve")) serve();
    check(argc > 2, "an address is missing");
    many_files();
    if (!strcmp(argv[1], "all")) all(argv[2]);
    if (!strcmp(argv[1], "scale")) scale(argv[2]);
    if (!strcmp(argv[1], "hold")) {
        check(argc > 3, "a count is missing");
        hold(argv[2], atoi(argv[3]));
        puts("ready");
        fflush(stdout);
        pause();
    }
    return 0;
}
