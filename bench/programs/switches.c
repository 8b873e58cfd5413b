// Hand-overs between processes and between threads.
#include "bench.h"
#include <linux/futex.h>
#include <pthread.h>
#include <sys/socket.h>

static int ask[2], answer[2];

static void ping(long n) {
    char c = 0;
    for (long i = 0; i < n; i++) {
        check(write(ask[1], &c, 1) == 1, "write");
        check(read(answer[0], &c, 1) == 1, "read");
    }
}

// The other process: sends back what it gets.
static pid_t echo(int from, int to, int other) {
    pid_t p = fork();
    check(p >= 0, "fork");
    if (p == 0) {
        char c;
        close(other);
        while (read(from, &c, 1) == 1)
            if (write(to, &c, 1) != 1) break;
        _exit(0);
    }
    return p;
}

static void pipes(void) {
    check(pipe(ask) == 0 && pipe(answer) == 0, "pipe");
    pid_t p = echo(ask[0], answer[1], ask[1]);
    us("pipe ping-pong", ping);
    close(ask[1]);
    waitpid(p, NULL, 0);
}

static void sockets(void) {
    int s[2];
    check(socketpair(AF_UNIX, SOCK_STREAM, 0, s) == 0, "socketpair");
    pid_t p = echo(s[1], s[1], s[0]);
    ask[1] = answer[0] = s[0];
    us("socket pair ping-pong", ping);
    close(s[0]);
    close(s[1]);
    waitpid(p, NULL, 0);
}

static volatile int turn;

static void wait_turn(int mine) {
    int t;
    while ((t = __atomic_load_n(&turn, __ATOMIC_ACQUIRE)) != mine) {
        if (t == 2) pthread_exit(NULL);
        syscall(SYS_futex, &turn, FUTEX_WAIT_PRIVATE, t, NULL, NULL, 0);
    }
}

static void give(int other) {
    __atomic_store_n(&turn, other, __ATOMIC_RELEASE);
    syscall(SYS_futex, &turn, FUTEX_WAKE_PRIVATE, 2, NULL, NULL, 0);
}

static void *partner(void *unused) {
    for (;;) {
        // Ends the thread when there are no more turns.
        wait_turn(1);
        give(0);
    }
    return unused;
}

static void futex_turns(long n) {
    for (long i = 0; i < n; i++) {
        give(1);
        wait_turn(0);
    }
}

static void futexes(void) {
    pthread_t t;
    check(pthread_create(&t, NULL, partner, NULL) == 0, "pthread_create");
    us("futex ping-pong", futex_turns);
    give(2);
    pthread_join(t, NULL);
}

static void wake_nobody(long n) {
    static int word;
    for (long i = 0; i < n; i++) syscall(SYS_futex, &word, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
}

// A token round a ring of threads: context switches as lmbench counts them.
#define RING 8
static int ring[RING][2];

static void *member(void *arg) {
    long me = (long)arg;
    char c;
    while (read(ring[me][0], &c, 1) == 1)
        if (write(ring[(me + 1) % RING][1], &c, 1) != 1) break;
    return NULL;
}

static void round_ring(long n) {
    char c = 0;
    for (long i = 0; i < n; i++) {
        check(write(ring[1][1], &c, 1) == 1, "write");
        check(read(ring[0][0], &c, 1) == 1, "read");
    }
}

static void rings(void) {
    pthread_t t[RING];
    for (int i = 0; i < RING; i++) check(pipe(ring[i]) == 0, "pipe");
    for (long i = 1; i < RING; i++) check(pthread_create(&t[i], NULL, member, (void *)i) == 0, "pthread_create");
    if (wanted("context switch, 8 threads")) report("context switch, 8 threads", until(round_ring) / 1000 / RING, "us");
    for (int i = 1; i < RING; i++) {
        close(ring[i][1]);
        pthread_join(t[i], NULL);
    }
}

static void *nothing(void *unused) { return unused; }

static void threads(long n) {
    for (long i = 0; i < n; i++) {
        pthread_t t;
        check(pthread_create(&t, NULL, nothing, NULL) == 0, "pthread_create");
        pthread_join(t, NULL);
    }
}

int main(void) {
    pipes();
    sockets();
    futexes();
    us("futex wake, nobody waits", wake_nobody);
    rings();
    us("thread create + join", threads);
    return 0;
}
