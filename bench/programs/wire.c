// Two programs at the ends of a pair of devices: wire serve | wire TEST ADDRESS SECONDS.
//
// TEST: download, upload (bytes by one connection, GB/s), requests (round trips of one byte by TCP, us),
// datagrams (the same by UDP), connections (a second, each with one byte both ways). One line: a figure.
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { PORT = 5400 };
static char block[256 << 10];

static void must(int ok, const char *what) {
    if (!ok) {
        perror(what);
        exit(1);
    }
}

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec + t.tv_nsec / 1e9;
}

// The first byte of a connection says what it is for.
static void serve_one(int c) {
    char kind;
    int on = 1;
    setsockopt(c, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    if (recv(c, &kind, 1, 0) != 1) return;
    ssize_t n;
    if (kind == 'd')
        while (send(c, block, sizeof block, MSG_NOSIGNAL) > 0) {}
    else if (kind == 'u')
        while (recv(c, block, sizeof block, 0) > 0) {}
    else
        while ((n = recv(c, block, 1, 0)) == 1) send(c, block, 1, MSG_NOSIGNAL);
}

static void serve(void) {
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons(PORT)};
    int s = socket(AF_INET, SOCK_STREAM, 0), u = socket(AF_INET, SOCK_DGRAM, 0), on = 1;
    setsockopt(s, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    must(bind(s, (void *)&a, sizeof a) == 0 && bind(u, (void *)&a, sizeof a) == 0, "bind");
    must(listen(s, 1024) == 0, "listen");
    signal(SIGCHLD, SIG_IGN);
    if (fork() == 0)
        for (;;) {
            socklen_t len = sizeof a;
            ssize_t n = recvfrom(u, block, 64, 0, (void *)&a, &len);
            if (n >= 0) sendto(u, block, n, 0, (void *)&a, len);
        }
    puts("ready");
    fflush(stdout);
    for (;;) {
        int c = accept(s, NULL, NULL);
        if (c < 0) continue;
        char kind;
        // Short ones are served here: a process each would be what is measured.
        if (recv(c, &kind, 1, MSG_PEEK) == 1 && kind == 'c') {
            recv(c, &kind, 1, 0);
            send(c, &kind, 1, MSG_NOSIGNAL);
            close(c);
        } else {
            if (fork() == 0) {
                close(s);
                serve_one(c);
                exit(0);
            }
            close(c);
        }
    }
}

static int dial(const char *address, int type, char kind) {
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons(PORT)};
    int on = 1, s = socket(AF_INET, type, 0);
    must(inet_pton(AF_INET, address, &a.sin_addr) == 1, "address");
    must(connect(s, (void *)&a, sizeof a) == 0, "connect");
    if (type == SOCK_STREAM) {
        setsockopt(s, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
        must(send(s, &kind, 1, 0) == 1, "send");
    }
    return s;
}

int main(int argc, char **argv) {
    if (argc == 2 && !strcmp(argv[1], "serve")) serve();
    must(argc == 4, "usage: wire serve | wire TEST ADDRESS SECONDS");
    const char *test = argv[1], *address = argv[2];
    double seconds = atof(argv[3]), began, amount = 0;
    signal(SIGPIPE, SIG_IGN);
    if (!strcmp(test, "connections")) {
        began = now();
        while (now() - began < seconds) {
            int s = dial(address, SOCK_STREAM, 'c');
            char b;
            must(recv(s, &b, 1, 0) == 1, "recv");
            struct linger l = {1, 0};
            setsockopt(s, SOL_SOCKET, SO_LINGER, &l, sizeof l);
            close(s);
            amount++;
        }
        printf("%.0f a second\n", amount / (now() - began));
    } else if (!strcmp(test, "download") || !strcmp(test, "upload")) {
        int s = dial(address, SOCK_STREAM, test[0]);
        began = now();
        while (now() - began < seconds) {
            ssize_t n = test[0] == 'd' ? recv(s, block, sizeof block, 0) : send(s, block, sizeof block, 0);
            must(n > 0, test);
            amount += n;
        }
        printf("%.2f GB/s\n", amount / 1e9 / (now() - began));
    } else {
        int s = dial(address, !strcmp(test, "requests") ? SOCK_STREAM : SOCK_DGRAM, 'r');
        char b = 'x';
        for (int i = 0; i < 200; i++) must(send(s, &b, 1, 0) == 1 && recv(s, &b, 1, 0) == 1, test);
        began = now();
        while (now() - began < seconds) {
            must(send(s, &b, 1, 0) == 1 && recv(s, &b, 1, 0) == 1, test);
            amount++;
        }
        printf("%.2f us\n", (now() - began) / amount * 1e6);
    }
    return 0;
}
