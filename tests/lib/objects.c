/* Holds memory of the kernel's in objects.
 *
 *   objects pipes|sockets MB       as much as it says, or as it can; then it ends
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

int main(int argc, char **argv) {
    static char b[65536];
    struct rlimit r;
    if (argc < 3) return 2;
    int pipes = *argv[1] == 'p';
    long most = atol(argv[2]) << 20, n = 0, w;
    getrlimit(RLIMIT_NOFILE, &r);
    r.rlim_cur = r.rlim_max;
    setrlimit(RLIMIT_NOFILE, &r);
    /* The largest of those beside it, also where the kernel's memory does not count. */
    memset(malloc(8 << 20), 1, 8 << 20);
    while (n < most) {
        int fd[2];
        if (pipes ? pipe2(fd, O_NONBLOCK) : socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, fd)) return perror(argv[1]), 1;
        if (pipes) fcntl(fd[1], F_SETPIPE_SZ, 1 << 20);
        long before = n;
        while ((w = write(fd[pipes], b, sizeof b)) > 0) n += w;
        if (n == before) return perror("write"), 1;
    }
    return 0;
}
