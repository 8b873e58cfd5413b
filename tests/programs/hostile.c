// A hostile program: its children attack the stub that runs them, while a sibling counts and checks itself.
// Afterwards the sandbox must still work, and the sibling must have noticed nothing. Where the program runs
// natively, the attacks only hit unmapped memory.
//
//   hostile [SEED [ATTACK]]
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <ucontext.h>
#include <unistd.h>

// The stub's layout: crates/stub.
#define TEXT 0x7ffe00000000ul
#define TEXT_LEN 0x2000ul
#define COMMAND 0x7ffe10000000ul
#define VDSO 0x7ffe20000000ul
#define READ_SLOTS 0x7ffe38000000ul
#define READ_SLOTS_LEN 0x80000ul
#define AREAS 0x7ffe40000000ul
#define AREA_LEN 0x8000ul
#define EVENT_NR 0x1c15

static uint64_t seed;
static uint64_t rnd(void) {
    seed ^= seed << 13, seed ^= seed >> 7, seed ^= seed << 17;
    return seed;
}

// A value that an attacker would try.
static uint64_t value(void) {
    static const uint64_t v[] = {0, 1, 2, 3, 12, 0x100, 0x101, 11, 31, 4096, 0x7fffffff, 0xffffffff, TEXT, TEXT + 0x1000, COMMAND,
        AREAS, AREAS + AREA_LEN, AREAS + 0x100, AREAS + AREA_LEN + 0x400, AREAS + AREA_LEN + 0x7c00, 1ul << 47, ~0ul, ~0ul << 47};
    switch (rnd() % 4) {
    case 0: return rnd();
    case 1: return rnd() % 1024;
    case 2: return AREAS + rnd() % (4 * AREA_LEN);
    default: return v[rnd() % (sizeof v / sizeof *v)];
    }
}

static sigjmp_buf out;
static void on_fault(int s) { siglongjmp(out, s); }

// Goes on after faults and after the 100 ms that each single try has.
static void guard(void) {
    static char stack[65536];
    stack_t ss = {.ss_sp = stack, .ss_size = sizeof stack};
    sigaltstack(&ss, 0);
    struct sigaction sa = {.sa_handler = on_fault, .sa_flags = SA_ONSTACK | SA_NODEFER};
    int s[] = {SIGSEGV, SIGBUS, SIGILL, SIGTRAP, SIGFPE, SIGSYS, SIGALRM};
    for (unsigned i = 0; i < sizeof s / sizeof *s; i++) sigaction(s[i], &sa, 0);
}
static void timer(int ms) {
    struct itimerval t = {.it_value = {ms / 1000, ms % 1000 * 1000}};
    setitimer(ITIMER_REAL, &t, 0);
}

// Jumps to `at` with these registers. `rsp` too where `stack` is not 0.
static void __attribute__((noinline)) jump(uint64_t at, const uint64_t r[14], uint64_t stack) {
    static uint64_t regs[16];
    memcpy(regs, r, 14 * 8);
    regs[14] = at;
    regs[15] = stack;
    __asm__ volatile(
        "lea %0, %%rax\n"
        "mov 8(%%rax), %%rbx\n mov 16(%%rax), %%rcx\n mov 24(%%rax), %%rdx\n mov 32(%%rax), %%rsi\n mov 40(%%rax), %%rdi\n"
        "mov 56(%%rax), %%r8\n mov 64(%%rax), %%r9\n mov 72(%%rax), %%r10\n mov 80(%%rax), %%r12\n mov 88(%%rax), %%r13\n"
        "mov 96(%%rax), %%r14\n mov 104(%%rax), %%r15\n mov 112(%%rax), %%r11\n"
        "cmpq $0, 120(%%rax)\n je 1f\n mov 120(%%rax), %%rsp\n 1:\n"
        "mov 0(%%rax), %%rax\n jmp *%%r11\n"
        : : "m"(regs) : "memory");
    __builtin_unreachable();
}

static void jumps(void) {
    guard();
    for (uint64_t at = TEXT + rnd() % 4; at < TEXT + 0x300; at += 1 + rnd() % 5) {
        uint64_t r[14];
        for (int i = 0; i < 14; i++) r[i] = value();
        if (sigsetjmp(out, 1) == 0) {
            timer(30);
            jump(at, r, rnd() % 3 ? 0 : value());
        }
        timer(0);
    }
    _exit(0);
}

// The addresses of the stub's `syscall` instructions.
static int sites(uint64_t *s, int max) {
    volatile int n = 0;
    for (volatile uint64_t at = TEXT; at < TEXT + 0x600 && n < max; at++)
        if (sigsetjmp(out, 1) == 0 && *(uint8_t *)at == 0x0f && *(uint8_t *)(at + 1) == 5) s[n++] = at;
    return n;
}

// Calls from the stub's own instruction.
static void calls_of(const uint64_t *nrs, int count, int times) {
    static uint64_t s[64];
    guard();
    int n = sites(s, 64);
    for (volatile int i = 0; i < times; i++) {
        uint64_t r[14];
        for (int j = 0; j < 14; j++) r[j] = value();
        r[0] = count ? nrs[rnd() % count] : rnd() % 500;
        volatile uint64_t at = n ? s[rnd() % n] : TEXT;
        if (sigsetjmp(out, 1) == 0) {
            timer(30);
            jump(at, r, 0);
        }
        timer(0);
    }
    _exit(0);
}
static void events(void) {
    static const uint64_t nr[] = {EVENT_NR};
    calls_of(nr, 1, 40);
}
static void events_once(void) {
    static const uint64_t nr[] = {EVENT_NR};
    calls_of(nr, 1, 1);
}
static void own_calls(void) {
    static const uint64_t nr[] = {SYS_futex, SYS_rt_sigreturn, SYS_mmap, SYS_munmap, SYS_mprotect, SYS_madvise, SYS_clone,
        SYS_sigaltstack, SYS_seccomp, EVENT_NR};
    calls_of(nr, sizeof nr / sizeof *nr, 10);
}
static void any_calls(void) { calls_of(0, 0, 3); }
static void exits(void) {
    static const uint64_t nr[] = {SYS_exit};
    calls_of(nr, 1, 1);
}
static void no_event_nr(void) {
    for (int i = 0; i < 200; i++) {
        long r = syscall(EVENT_NR, value(), value(), value(), value(), value(), value());
        if (r != -1 || errno != ENOSYS) _exit(9);
    }
    _exit(0);
}

static void scribble(uint64_t from, uint64_t len, int how) {
    guard();
    for (volatile uint64_t p = from; p < from + len; p += 8) {
        if (sigsetjmp(out, 1)) {
            p = (p & ~4095ul) + 4096 - 8;
            continue;
        }
        *(volatile uint64_t *)p = how == 0 ? rnd() : how == 1 ? 0 : how == 2 ? ~0ul : value();
        if (how == 3 && rnd() % 64 == 0) getppid();
    }
}
static void areas(void) {
    scribble(AREAS, 4 * AREA_LEN, rnd() % 4);
    getpid();
    fork();
    _exit(0);
}
static void text(void) {
    scribble(TEXT, TEXT_LEN, 0);
    scribble(COMMAND, 0x2000, 0);
    scribble(VDSO, 0x8000, 0);
    syscall(SYS_munmap, TEXT, 0x2000);
    syscall(SYS_mprotect, TEXT, 0x2000, 7);
    syscall(SYS_mprotect, AREAS, 0x10000, 0);
    syscall(SYS_munmap, AREAS, 0x100000);
    mmap((void *)COMMAND, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
    mmap((void *)AREAS, 65536, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
    syscall(SYS_mremap, TEXT, 4096, 4096, 3, 0x10000000);
    syscall(SYS_madvise, AREAS, 0x10000, MADV_DONTNEED);
    scribble(TEXT, TEXT_LEN, 0);
    _exit(0);
}

// Threads that come and go while another writes what a new one says of itself.
static volatile int stop;
static void *writer(void *p) {
    (void)p;
    while (!stop)
        for (int a = 1; a < 12; a++)
            for (int off = 0x20; off < 0x50; off += 4)
                *(volatile uint32_t *)(AREAS + a * AREA_LEN + off) = value();
    return 0;
}
// The words that a new thread and its maker write: each is kept at a value that holds up who waits for it,
// or misleads.
static uint32_t kept[4];
// Areas 1 to 12 are there once so many threads were at the same time.
enum { MADE = 12 };
static void *keeper(void *p) {
    (void)p;
    while (!stop)
        for (int a = 1; a < MADE; a++) {
            volatile uint32_t *w = (volatile uint32_t *)(AREAS + a * AREA_LEN);
            if (kept[0] != ~1u) w[0x20 / 4] = kept[0];
            if (kept[1] != ~1u) w[0x28 / 4] = kept[1];
            if (kept[2] != ~1u) w[0x30 / 4] = kept[2];
            if (kept[3] != ~1u) w[0x48 / 4] = kept[3];
        }
    return 0;
}
static void *quick(void *p) { return p; }
static void *stays(void *p) {
    pause();
    return p;
}
static pthread_barrier_t all_here;
static void *meet(void *p) {
    pthread_barrier_wait(&all_here);
    return p;
}
static void make_areas(void) {
    static uint64_t s[64];
    if (!sites(s, 64)) _exit(0);
    pthread_t t[MADE - 1];
    pthread_barrier_init(&all_here, 0, MADE);
    for (int i = 0; i < MADE - 1; i++) if (pthread_create(&t[i], 0, meet, 0)) _exit(0);
    pthread_barrier_wait(&all_here);
    for (int i = 0; i < MADE - 1; i++) pthread_join(t[i], 0);
}
static void race(void) {
    guard();
    if (sigsetjmp(out, 1)) _exit(1);
    timer(1000);
    pthread_t w, t;
    make_areas();
    pthread_create(&w, 0, writer, 0);
    for (int i = 0; i < 50; i++) {
        if (pthread_create(&t, 0, quick, 0)) break;
        pthread_join(t, 0);
    }
    stop = 1;
    _exit(0);
}

static void starts_as(const uint32_t how[4]) {
    guard();
    if (sigsetjmp(out, 1)) _exit(1);
    pthread_t w, t;
    make_areas();
    memcpy(kept, how, sizeof kept);
    pthread_create(&w, 0, keeper, 0);
    // Those that stay leave none at rest that could serve instead of a new one.
    for (int i = 0; i < 300; i++) {
        int stay = i < MADE - 2;
        if (pthread_create(&t, 0, stay ? stays : quick, 0)) break;
        if (!stay) pthread_join(t, 0);
    }
    stop = 1;
    _exit(0);
}

static void starts(void) {
    static const uint32_t how[][4] = {{0, ~1u, ~1u, ~1u}, {1, ~1u, ~1u, ~1u}, {1, -24, ~1u, ~1u}, {1, ~1u, ~1u, -11},
        {~1u, ~1u, 2, ~1u}, {1, 5, 3, 4}};
    starts_as(how[rnd() % 6]);
}
// Nobody learns of the new thread's listener: the Sentry gives up after a while.
static void starts_late(void) {
    static const uint32_t how[4] = {~1u, 0, ~1u, ~1u};
    starts_as(how);
}

// All that lies in the stub's range, whatever it is.
static void all_of_it(void) {
    static uint64_t s[64];
    guard();
    if (!sites(s, 64)) _exit(0);
    for (volatile uint64_t at = TEXT; at < 0x7fff00000000ul; at += 0x20000)
        if (sigsetjmp(out, 1) == 0) {
            if (at < AREAS || at >= AREAS + 8 * AREA_LEN) *(volatile uint64_t *)at = value(), _exit(9);
        }
    _exit(0);
}

// A thread that writes all areas while this one has signals, faults and calls.
static void *__attribute__((noreturn)) area_writer(void *p) {
    (void)p;
    for (;;) {
        uint64_t at = AREAS + (rnd() % (4 * AREA_LEN) & ~7ul);
        *(volatile uint64_t *)at = value();
    }
}
static void stack_race(void) {
    guard();
    pthread_t w;
    pthread_create(&w, 0, area_writer, 0);
    volatile int n = 0;
    if (sigsetjmp(out, 1)) n++;
    timer(5);
    while (n < 40) {
        kill(getpid(), SIGALRM);
        *(volatile int *)8 = 1;
    }
    _exit(0);
}

// Frames of our own: first the Sentry's, then the host's, by the stub's rt_sigreturn.
static void frames(void) {
    guard();
    static uint64_t page[1024] __attribute__((aligned(64)));
    for (volatile int i = 0; i < 40; i++) {
        for (int j = 0; j < 1024; j++) page[j] = value();
        if (sigsetjmp(out, 1) == 0) {
            timer(30);
            uint64_t r[14] = {SYS_rt_sigreturn};
            static uint8_t code[] = {0x0f, 0x05, 0x0f, 0x0b};
            jump((uint64_t)code, r, (uint64_t)&page[i]);
        }
    }
    _exit(0);
}

// A frame of our own in the thread's area, with FP state at its very end; then an event that makes the Sentry
// push a signal frame from it.
static void fp_frames(void) {
    static uint64_t s[64];
    guard();
    int n = sites(s, 64);
    if (!n) _exit(0);
    for (volatile int i = 0; i < 60; i++) {
        uint64_t area = AREAS + AREA_LEN, uc = area + 0x1000, info = area + 0x2000;
        if (sigsetjmp(out, 1) == 0) {
            timer(30);
            uint64_t room = i % 2 ? 512 : 64 * (8 + rnd() % 40);
            *(uint64_t *)(uc + 40 + 8 * 23) = area + AREA_LEN - room;
            *(uint32_t *)(area + AREA_LEN - room + 464) = 0x46505853;
            *(uint32_t *)(area + AREA_LEN - room + 480) = i % 3 ? rnd() : 832;
            *(uint64_t *)(uc + 40 + 8 * 15) = (uint64_t)&n;     // rsp
            *(uint64_t *)(uc + 40 + 8 * 16) = i % 5 ? 1 : 0;    // rip
            *(uint32_t *)(info + 8) = 1;
            *(uint64_t *)(info + 16) = 8;
            uint64_t r[14] = {EVENT_NR, 0, 0, uc, info, i % 4 ? SIGSEGV : SIGSYS};
            jump(s[rnd() % n], r, 0);
        }
        timer(0);
    }
    _exit(0);
}

// Faults that never were, at any address.
static void faults(void) {
    static uint64_t s[64];
    guard();
    int n = sites(s, 64);
    if (!n) _exit(0);
    for (volatile int i = 0; i < 300; i++) {
        uint64_t area = AREAS + AREA_LEN, uc = area + 0x1000, info = area + 0x2000;
        if (sigsetjmp(out, 1) == 0) {
            timer(30);
            for (int j = 0; j < 24; j++) *(uint64_t *)(uc + 40 + 8 * j) = value();
            *(uint64_t *)(uc + 40 + 8 * 15) = (uint64_t)&n;
            *(uint32_t *)(info + 8) = rnd() % 6;
            *(uint64_t *)(info + 16) = value();
            *(uint32_t *)(info + 28) = rnd() % 8 ? 0xc000003e : value();
            static const int sig[] = {SIGSEGV, SIGSEGV, SIGBUS, SIGSYS, SIGILL, SIGTRAP, SIGFPE};
            uint64_t r[14] = {EVENT_NR, 0, 0, uc, info, sig[rnd() % 7]};
            jump(s[rnd() % n], r, 0);
        }
        timer(0);
    }
    _exit(0);
}

static void spin_call(void) {
    for (;;) {
        getppid();
        if (rnd() % 7 == 0) { *(volatile uint64_t *)&stop = 0; }
    }
}
// A frame that is valid and blocks every signal: the Sentry's kick reaches this thread no more.
static void masked(int calls) {
    guard();
    static uint64_t s[64];
    int n = sites(s, 64);
    if (!n) _exit(0);
    static char stack[65536] __attribute__((aligned(64)));
    ucontext_t *uc = (ucontext_t *)(stack + 32768);
    memset(uc, 0, sizeof *uc);
    memset(&uc->uc_sigmask, 0xff, 8);
    greg_t *g = uc->uc_mcontext.gregs;
    g[REG_RIP] = (greg_t)(calls ? (void *)spin_call : (void *)_exit);
    g[REG_RSP] = (greg_t)(stack + 30000 - 8) & ~15l;
    g[REG_RSP] -= 8;
    g[REG_EFL] = 0x202;
    ((uint16_t *)&g[REG_CSGSFS])[0] = 0x33;
    ((uint16_t *)&g[REG_CSGSFS])[3] = 0x2b;
    static uint8_t spin[] __attribute__((aligned(4096))) = {0xeb, 0xfe};
    mprotect(spin, 4096, PROT_READ | PROT_WRITE | PROT_EXEC);
    if (calls == 0) g[REG_RIP] = (greg_t)spin;
    uint64_t r[14] = {SYS_rt_sigreturn};
    jump(s[rnd() % n], r, (uint64_t)uc);
}
static void masked_spin(void) { masked(0); }
static void masked_calls(void) { masked(1); }

// Has patched code changed, which the thread that takes no kick may stand in, while a file is mapped that tests/hostile's
// bystander cuts short. (Some tries: each page is patched a few times only.)
static void *masked_thread(void *p) {
    masked(0);
    return p;
}
static void holds(void) {
    int fd = open("/var/tmp/bystander", O_RDONLY);
    volatile char *m = mmap(0, 8192, PROT_READ, MAP_SHARED, fd, 0);
    pthread_t t;
    guard();
    if (fd >= 0 && sigsetjmp(out, 1) == 0) (void)m[0];
    for (int i = 0; i < 20000; i++) getppid();
    pthread_create(&t, 0, masked_thread, 0);
    usleep(100000);
    void *page = (void *)((uint64_t)getppid & ~4095ul);
    for (int i = 0; i < 3; i++) {
        mprotect(page, 8192, PROT_READ | PROT_WRITE | PROT_EXEC);
        mprotect(page, 8192, PROT_READ | PROT_EXEC);
        for (int j = 0; j < 20000; j++) getppid();
        if (fd >= 0 && sigsetjmp(out, 1) == 0) (void)m[0];
    }
    _exit(0);
}

// Read slots, and changes of an epoll, which it forges: counts, numbers, and more than there is.
static void *read_slots_writer(void *p) {
    guard();
    if (sigsetjmp(out, 1)) return p;
    while (!stop) {
        uint64_t slot = READ_SLOTS + 0x1000 + rnd() % 12 * 2048;
        switch (rnd() % 4) {
        case 0: *(volatile uint64_t *)slot ^= rnd() & 0xfffff00; break;
        case 1: *(volatile uint64_t *)slot = value(); break;
        case 2: *(volatile uint32_t *)(READ_SLOTS + rnd() % 3 * 4) = rnd() % 2 ? rnd() : rnd() % 12; break;
        default: *(volatile uint64_t *)(READ_SLOTS + 0x100 + (rnd() % 0xb00 & ~7ul)) = rnd() % 2 ? rnd() : 0x500000001ul + rnd() % 3; break;
        }
    }
    return p;
}
static void read_slots(void) {
    int s[2], t[2], ep = epoll_create1(0);
    char b[4096];
    struct epoll_event e = {.events = EPOLLIN}, got[4];
    socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, s);
    socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, t);
    for (int i = 0; i < 400; i++) {
        recv(s[0], b, 64, 0);
        epoll_ctl(ep, EPOLL_CTL_ADD, s[0], &e);
        epoll_ctl(ep, EPOLL_CTL_DEL, s[0], &e);
    }
    // With a second thread only reads are answered there; else what is written here is taken, too.
    pthread_t w;
    int threads = rnd() % 2;
    if (threads) pthread_create(&w, 0, read_slots_writer, 0);
    else guard();
    for (int i = 0; i < 3000; i++) {
        if (!threads && sigsetjmp(out, 1)) break;
        if (!threads && i % 3 == 0) scribble(READ_SLOTS + (rnd() % READ_SLOTS_LEN & ~7ul), 64, rnd() % 4);
        if (!threads && i % 7 == 0) scribble(READ_SLOTS, 0xc00, rnd() % 4);
        if (write(s[1], b, rnd() % 900) < 0 && errno == EAGAIN) while (recv(s[0], b, sizeof b, 0) > 0) {}
        epoll_ctl(ep, EPOLL_CTL_ADD, s[0], &e);
        epoll_wait(ep, got, 4, 0);
        recv(s[0], b, rnd() % 900, 0);
        recv(s[0], b, rnd() % 900, 0);
        epoll_ctl(ep, rnd() % 4, t[0], &e);
        if (i % 500 == 250 && fork() == 0) break;
    }
    stop = 1;
    _exit(0);
}

// Everything that is mapped, and then all of memory.
static void everything(void) {
    int pid = fork();
    if (pid == 0) {
        scribble(AREAS, 8 * AREA_LEN, 0);
        for (uint64_t at = 0x10000; at && at < 1ul << 47; at += 1ul << 40) syscall(SYS_munmap, at, 1ul << 40);
        _exit(0);
    }
    char name[64];
    FILE *f = fopen("/proc/self/maps", "r");
    static struct { uint64_t a, b; } m[200];
    int n = 0;
    unsigned long a, b;
    while (f && n < 200 && fscanf(f, "%lx-%lx %63s %*[^\n]", &a, &b, name) == 3)
        if (name[1] == 'w') m[n].a = a, m[n].b = b, n++;
    for (int i = 0; i < n; i++)
        for (uint64_t p = m[i].a; p < m[i].b; p += 8) *(volatile uint64_t *)p = p * 0x9e3779b97f4a7c15ul;
    _exit(0);
}

static const struct { const char *name; void (*run)(void); int times; } attacks[] = {
    {"jumps", jumps, 6}, {"events", events, 6}, {"events-once", events_once, 40}, {"own-calls", own_calls, 30},
    {"any-calls", any_calls, 20}, {"exits", exits, 4}, {"no-event-nr", no_event_nr, 1}, {"areas", areas, 12}, {"read-slots", read_slots, 8}, {"text", text, 2},
    {"race", race, 6}, {"stack-race", stack_race, 6}, {"frames", frames, 6}, {"masked-spin", masked_spin, 3}, {"holds", holds, 2},
    {"masked-calls", masked_calls, 3}, {"everything", everything, 2}, {"fp-frames", fp_frames, 4}, {"faults", faults, 8}, {"starts", starts, 8},
    {"starts-late", starts_late, 1},    {"all-of-it", all_of_it, 1},
};

// Counts, checks its own memory, makes calls, takes signals, has threads.
static volatile sig_atomic_t ticks;
static void tick(int s) { (void)s; ticks++; }
static void *adder(void *p) { for (int i = 0; i < 1000; i++) __sync_fetch_and_add((long *)p, 1); return 0; }
static long long now_ms(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000ll + t.tv_nsec / 1000000;
}
// How long a fork or the start of a thread may take, whatever the others do: a machine's load, not their limits.
enum { SERVED_MS = 2000, SOME = 8 };
static void good(int report, int done) {
    static uint64_t mem[65536];
    struct sigaction sa = {.sa_handler = tick, .sa_flags = SA_RESTART};
    sigaction(SIGALRM, &sa, 0);
    struct itimerval t = {{0, 10000}, {0, 10000}};
    setitimer(ITIMER_REAL, &t, 0);
    for (int i = 0; i < 65536; i++) mem[i] = i * 7;
    uint64_t rounds = 0;
    int me = getpid(), flags = fcntl(done, F_GETFL);
    fcntl(done, F_SETFL, flags | O_NONBLOCK);
    char c;
    while (read(done, &c, 1) != 0) {
        for (int i = 0; i < 65536; i++)
            if (mem[i] != i * 7 + rounds) dprintf(report, "memory of the sibling was changed\n"), _exit(1);
            else mem[i]++;
        rounds++;
        if (getpid() != me || syscall(SYS_gettid) != me) dprintf(report, "the sibling is somebody else\n"), _exit(1);
        long sum = 0;
        long long began = now_ms();
        // More than rest for the next to come, processes as well.
        pthread_t th[SOME];
        for (int i = 0; i < SOME; i++)
            {
                int e = pthread_create(&th[i], 0, adder, &sum);
                if (e) dprintf(report, "no thread: %s\n", strerror(e)), _exit(1);
            }
        for (int i = 0; i < SOME; i++) pthread_join(th[i], 0);
        if (sum != SOME * 1000) dprintf(report, "threads of the sibling do not add up\n"), _exit(1);
        int p[SOME], st, go[2];
        if (pipe(go)) dprintf(report, "no pipe\n"), _exit(1);
        for (int i = 0; i < SOME; i++) {
            p[i] = fork();
            if (p[i] == 0) close(go[1]), read(go[0], &c, 1), _exit(42);
        }
        close(go[0]), close(go[1]);
        for (int i = 0; i < SOME; i++)
            if (waitpid(p[i], &st, 0) != p[i] || WEXITSTATUS(st) != 42) dprintf(report, "a fork of the sibling failed\n"), _exit(1);
        if (now_ms() - began > SERVED_MS) dprintf(report, "the sibling waited %lld ms\n", now_ms() - began), _exit(1);
    }
    dprintf(report, "sibling: fine%s\n", ticks > 0 && rounds > 0 ? "" : ", but it was never run");
    _exit(0);
}

int main(int argc, char **argv) {
    uint64_t start = argc > 1 ? strtoull(argv[1], 0, 0) : 1;
    const char *only = argc > 2 ? argv[2] : 0;
    setvbuf(stdout, 0, _IOLBF, 0);
    int done[2];
    if (pipe(done)) return 2;
    int sibling = fork();
    if (sibling == 0) {
        close(done[1]);
        good(1, done[0]);
    }
    close(done[0]);
    for (unsigned a = 0; a < sizeof attacks / sizeof *attacks; a++) {
        if (only && strcmp(only, attacks[a].name)) continue;
        int hung = 0, wrong = 0;
        for (int i = 0; i < attacks[a].times; i++) {
            int p = fork();
            if (p < 0) return perror("fork"), 2;
            if (p == 0) {
                close(done[1]);
                int null = open("/dev/null", O_WRONLY);
                dup2(null, 1), dup2(null, 2);
                setpgid(0, 0);
                seed = (start * 1000 + a * 100 + i) * 0x9e3779b97f4a7c15ul | 1;
                for (int j = 0; j < 9; j++) rnd();
                // Ordinary calls are among the attacks: they may neither kill the others nor fill the sandbox.
                struct rlimit few = {30, 30};
                setrlimit(RLIMIT_NPROC, &few);
                // (Each with a user of its own: what an earlier one left behind does not count.)
                int user = 54321 + a * 100 + i;
                if (geteuid() == 0 && (setgid(user) || setuid(user))) _exit(9);
                attacks[a].run();
                _exit(0);
            }
            setpgid(p, p);
            // At most 3 seconds; then it must be possible to kill it.
            int st, r = 0;
            for (int t = 0; t < 300 && (r = waitpid(p, &st, WNOHANG)) == 0; t++) usleep(t < 20 ? 1000 : 10000);
            if (r == 0) {
                hung++;
                kill(-p, SIGKILL);
                kill(p, SIGKILL);
                if (waitpid(p, &st, 0) != p) wrong++;
            } else if (WIFEXITED(st) && WEXITSTATUS(st) == 9) {
                wrong++;
            }
            kill(-p, SIGKILL);
        }
        fprintf(stderr, "%s: %d times, %d had to be killed\n", attacks[a].name, attacks[a].times, hung);
        printf("%s: %s\n", attacks[a].name, wrong ? "wrong" : "survived");
    }
    close(done[1]);
    int st;
    if (waitpid(sibling, &st, 0) != sibling || st != 0) printf("the sibling ended with %x\n", st);
    // The sandbox works as before.
    FILE *f = popen("echo a shell runs; cat /proc/self/comm; seq 3 | tail -1", "r");
    char line[100];
    while (f && fgets(line, sizeof line, f)) fputs(line, stdout);
    printf("status %d\n", f ? pclose(f) : -1);
    return 0;
}
