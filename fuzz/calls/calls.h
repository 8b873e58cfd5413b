// A fuzzer of system calls that runs inside a sandbox: what its files share. See `run` for how it is used.
#pragma once
#define _GNU_SOURCE
#include <setjmp.h>
#include <stdint.h>
#include <sys/types.h>

typedef uint64_t u64;
enum { PAGE = 4096, THREADS = 3, ARENA = 96 * PAGE, RING = 16 };

// What a descriptor is, as far as the fuzzer remembers.
enum fd_kind { ANY, REG, DIR_, PATH_, PIPE, SOCK, LISTEN, EVENT, TIMER, SIGFD, EPOLL, INOTIFY, MEMFD, PIDFD, PTY, NS, PROC, DEV, QUEUE, RULESET, FD_KINDS };
// What else calls give, and calls take.
enum id_kind { PIDS, SHM, SEM, MSG, POSIX_TIMER, MAPPING, WATCH, AIO, ID_KINDS };

// The kinds of arguments. Those of the second line have a list of values.
enum kind {
    NONE, FD, DIRFD, PATH, NAME, BUF, LEN, STRUCT, ID, PID, TID, UID, SIG, INT, NUM, OFFSET, MODE, ADDR, MAPLEN, PORT, FDPAIR, ARGV, NSEC,
    CODE, STACK, WORD_OR_NOT,
    BITS, ONE,
};
// Structs, for STRUCT. Each has a size in `struct_sizes`.
enum what {
    S_BYTES, S_TIMESPEC, S_ITIMERSPEC, S_TIMEVAL, S_ITIMERVAL, S_SIGSET, S_SIGACTION, S_SIGINFO, S_SIGEVENT, S_STACK, S_RLIMIT, S_CAPHEAD,
    S_CAPS, S_SEMBUF, S_MSG, S_MSGHDR, S_MMSGHDR, S_IOV, S_SOCKADDR, S_EPEV, S_POLLFDS, S_FDSET, S_CLONE, S_OPENHOW, S_FPROG, S_FLOCK, S_WORD,
    S_LEN, S_PSIGSET, S_SHMID, S_IDS, S_SCHED, S_OPTION, S_MQATTR, S_RULESET, S_RULE, S_IOCB, S_IOCBS, S_BPF, S_KINDS,
};

struct arg {
    uint8_t kind;
    const u64 *v;
};
struct call {
    uint16_t nr;
    // How often it is made, of 16; calls that end or confine their caller are rare.
    uint8_t weight;
    // What the result is: an fd_kind, or 64 + an id_kind; 255 for nothing.
    uint8_t gives;
    const char *name;
    struct arg a[6];
};
extern const struct call calls[];
extern const int call_count;

struct thread {
    u64 seed;
    volatile u64 done;
    int tid, index, chosen_count, budget;
    // Indices into `calls`: each process leaves most calls out, so that the others meet more often.
    uint16_t chosen[512];
    u64 args[6];
    sigjmp_buf out;
    // Where the thread's structs lie.
    uint8_t *arena;
};

// One process's; a fork copies it.
struct pools {
    int fds[FD_KINDS][RING];
    u64 ids[ID_KINDS][RING];
    const char *paths[256];
    // The first ones are the system's, the rest the session's own.
    int path_count, system_paths;
};
extern struct pools pools;
// What was made and what of it succeeded, by index into `calls`, of all processes. (A fuzzer may break it: it is only told.)
struct tally { volatile u64 made, well; };
extern struct tally *tally;
extern char *program;

u64 rnd(struct thread *t);
static inline u64 below(struct thread *t, u64 n) { return rnd(t) % n; }
static inline int one_in(struct thread *t, u64 n) { return rnd(t) % n == 0; }
u64 number(struct thread *t);
u64 argument(struct thread *t, const struct call *c, int i);
void learn(struct thread *t, const struct call *c, u64 result);
void add_fd(struct thread *t, enum fd_kind k, int fd);
void add_id(struct thread *t, enum id_kind k, u64 id);
void open_files(struct thread *t, const char *shm, const char *volume, int victim);
void session(u64 seed, char role, const char *base, const char *volume, int victim) __attribute__((noreturn));
void go_on(u64 seed) __attribute__((noreturn));
u64 make(u64 nr, const u64 a[6]);
void on_fault_go_on(void);
void restorer(void);
void any_handler(int);
int victim_main(const char *a, const char *b, int uid);
