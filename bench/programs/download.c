// Downloads over TCP, 1 MB to 1 GB.
//
//   download                  a server of its own, over the loopback
//   download serve            prints its port, serves until its standard input ends
//   download from PORT        the client of such a server
#include "bench.h"
#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>

static char block[64 << 10];

static int listener(int *port) {
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof a;
    int s = socket(AF_INET, SOCK_STREAM, 0);
    check(s >= 0, "socket");
    check(bind(s, (void *)&a, len) == 0, "bind");
    check(listen(s, 8) == 0, "listen");
    check(getsockname(s, (void *)&a, &len) == 0, "getsockname");
    *port = ntohs(a.sin_port);
    return s;
}

// Each connection asks for a number of bytes, eight bytes in this machine's order.
static void answer(int s) {
    int c = accept(s, NULL, NULL);
    check(c >= 0, "accept");
    long want = 0;
    if (recv(c, &want, sizeof want, MSG_WAITALL) == sizeof want)
        while (want > 0) {
            ssize_t n = send(c, block, want < (long)sizeof block ? (size_t)want : sizeof block, MSG_NOSIGNAL);
            if (n <= 0) break;
            want -= n;
        }
    close(c);
}

static void get(int port, long bytes) {
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK), .sin_port = htons(port)};
    int s = socket(AF_INET, SOCK_STREAM, 0);
    check(s >= 0, "socket");
    check(connect(s, (void *)&a, sizeof a) == 0, "connect");
    check(send(s, &bytes, sizeof bytes, 0) == sizeof bytes, "send");
    for (long got = 0; got < bytes;) {
        ssize_t n = recv(s, block, sizeof block, 0);
        check(n > 0, "recv");
        got += n;
    }
    close(s);
}

static void all_sizes(int port) {
    static const long sizes[] = {1, 10, 100, 1000};
    get(port, 1 << 20);
    for (int i = 0; i < 4; i++) {
        long bytes = part(sizes[i] * 1000000);
        char name[32];
        double start = now();
        get(port, bytes);
        snprintf(name, sizeof name, "download@%ld", sizes[i] * 1000000);
        report(name, bytes / ((now() - start) / 1e9) / 1e6, "MB/s");
    }
}

int main(int argc, char **argv) {
    int port, s;
    if (argc > 2 && strcmp(argv[1], "from") == 0) {
        all_sizes(atoi(argv[2]));
        return 0;
    }
    s = listener(&port);
    if (argc > 1) {
        printf("%d\n", port);
        fflush(stdout);
        struct pollfd p[2] = {{.fd = s, .events = POLLIN}, {.fd = 0, .events = POLLIN}};
        while (poll(p, 2, -1) > 0 && !p[1].revents)
            if (p[0].revents) answer(s);
        return 0;
    }
    pid_t server = fork();
    check(server >= 0, "fork");
    if (server == 0)
        for (;;) answer(s);
    all_sizes(port);
    kill(server, 9);
    waitpid(server, NULL, 0);
    return 0;
}
