// One fuzzing process: some threads that make calls, one that changes the memory which these are about.
#include "calls.h"
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <ucontext.h>
#include <unistd.h>

// A call site for each number, as programs have them: what is asked often, the sandbox may patch.
__asm__(".text\n.p2align 5\ncall_sites: .set nr, 0\n.rept 512\n.p2align 5\nmov %rcx, %r10\nmov $nr, %eax\nsyscall\nret\n.set nr, nr + 1\n.endr\n"
        // One whose child comes back on the caller's own stack ends there.
        "vfork_site: mov $58, %eax\nsyscall\ntest %eax, %eax\njnz 1f\nmov $60, %eax\nxor %edi, %edi\nsyscall\n1: ret\n"
        // Other ways into a kernel: x32's, and 32-bit code's.
        "x32_site: mov %rcx, %r10\nmov $0x40000000, %eax\nsyscall\nret\n"
        "int80_site: push %rbx\nmov $20, %eax\nxor %ebx, %ebx\nint $0x80\npop %rbx\nret\n"
        "fuzz_restorer: mov $15, %eax\nsyscall\n");
extern char call_sites[], vfork_site[], x32_site[], int80_site[], fuzz_restorer[];
void restorer(void) { __asm__ volatile("jmp fuzz_restorer"); }
typedef u64 site(u64, u64, u64, u64, u64, u64);

static struct thread threads[THREADS];
static __thread struct thread *self;
static __thread int in_child;

u64 make(u64 nr, const u64 a[6]) {
    char *at = nr == SYS_vfork ? vfork_site : nr < 512 ? call_sites + 32 * nr : x32_site;
    return ((site *)at)(a[0], a[1], a[2], a[3], a[4], a[5]);
}

void any_handler(int s) { (void)s; }
static void on_fault(int s, siginfo_t *i, void *c) {
    (void)s, (void)c;
    // One that somebody sent says nothing about this thread.
    if (i->si_code <= 0 || !self) return;
    siglongjmp(self->out, 1);
}
void on_fault_go_on(void) {
    struct sigaction a = {.sa_sigaction = on_fault, .sa_flags = SA_SIGINFO | SA_NODEFER};
    int s[] = {SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGTRAP};
    for (int i = 0; i < 5; i++) sigaction(s[i], &a, 0);
    struct sigaction k = {.sa_handler = any_handler};
    sigaction(SIGUSR1, &k, 0), sigaction(SIGUSR2, &k, 0), sigaction(SIGPIPE, &k, 0), sigaction(SIGALRM, &k, 0), sigaction(SIGXFSZ, &k, 0);
}

static void choose(struct thread *t) {
    t->chosen_count = 0;
    int most = 1 + below(t, 4);
    for (int i = 0; i < call_count; i++)
        if (one_in(t, most))
            for (int w = 0; w < calls[i].weight && t->chosen_count < 512; w += 2) t->chosen[t->chosen_count++] = i;
    if (!t->chosen_count) t->chosen[t->chosen_count++] = 0;
    // (More than there is room for: other calls were last.)
    for (int i = 0; most == 1 && i < 512; i++) t->chosen[i] = below(t, call_count);
}

// What a thread that shares our memory runs, on a stack of the arena.
static void clone_child(void) {
    for (int i = 0; i < 20; i++) {
        u64 a[6] = {i, 0, 0, 0, 0, 0};
        make((int[]){SYS_gettid, SYS_sched_yield, SYS_getppid, SYS_sched_yield}[i % 4], a);
    }
    u64 a[6] = {0};
    for (;;) make(SYS_exit, a);
}
static u64 stack_for_clone(struct thread *t) {
    u64 *top = (u64 *)(t->arena + (2 + 16 * below(t, ARENA / PAGE / 16) + below(t, 8)) * PAGE);
    top[-1] = (u64)clone_child, top[-2] = 0;
    return (u64)(top - 1);
}

// The arguments that would end the fuzzer rather than the kernel's patience.
static void tame(struct thread *t, const struct call *c) {
    u64 *a = t->args;
    switch (c->nr) {
    case SYS_clone:
        // Sharing memory needs a stack.
        a[1] = a[0] & 0x100 ? stack_for_clone(t) : 0;
        a[0] &= ~0x4000ul | (a[0] & 0x100 ? 0 : 0x4000);
        break;
    case SYS_mmap: if (a[1] > 64ul << 20 && a[1] < 1ul << 40) a[1] = 1 << 20; break;
    // A file system as a whole is remounted for everybody.
    case SYS_mount: if (a[3] & MS_REMOUNT) a[3] |= MS_BIND; break;
    case SYS_mremap: if (a[2] > 64ul << 20 && a[2] < 1ul << 40) a[2] = 1 << 20; break;
    // Of limits only lower ones: what root takes else is its own.
    case SYS_setrlimit: case SYS_prlimit64: if (one_in(t, 2)) a[0] = c->nr == SYS_prlimit64 ? 0 : 4; break;
    // What wakes threads that wait.
    case SYS_rt_sigaction: if (a[0] == SIGUSR1 && !one_in(t, 20)) a[0] = SIGUSR2; break;
    case SYS_exit: case SYS_exit_group: if (!one_in(t, 4)) a[0] &= 255; break;
    }
}

static void child(struct thread *t, int budget) {
    in_child = 1;
    t->seed ^= 0x9e3779b97f4a7c15ul * (u64)syscall(SYS_getpid);
    t->budget = budget > 60 ? 60 : budget;
    choose(t);
}

static void fuzz(struct thread *t) {
    self = t;
    sigsetjmp(t->out, 0);
    while (t->budget-- > 0) {
        t->done++;
        if (one_in(t, 400)) ((site *)int80_site)(0, 0, 0, 0, 0, 0);
        const struct call *c = &calls[t->chosen[below(t, t->chosen_count)]];
        for (int i = 0; i < 6; i++) t->args[i] = argument(t, c, i);
        tame(t, c);
        int left = t->budget, forks = c->nr == SYS_fork || c->nr == SYS_clone || c->nr == SYS_clone3;
        u64 r = make(one_in(t, 500) ? 1000 : c->nr, t->args);
        tally[c - calls].made++, tally[c - calls].well += r < -4095ul;
        if (forks && r == 0) child(t, left / 4);
        else learn(t, c, r);
        if (forks && r < 4096) t->budget -= t->budget / 4;
    }
    if (in_child) _exit(0);
}
static void *thread_main(void *p) {
    fuzz(p);
    return 0;
}

// Words, permissions and whole pages change while calls look at them. Threads that wait for long are woken.
static void *changes(void *p) {
    struct thread *t = p;
    static u64 before[THREADS];
    self = t;
    sigsetjmp(t->out, 0);
    for (u64 n = 0;; n++) {
        for (int i = 0; i < 40; i++) {
            u64 *w = (u64 *)(t->arena + below(t, ARENA / 8) * 8);
            if (below(t, ARENA) > 8) *w = one_in(t, 2) ? number(t) : *w + 1;
        }
        uint8_t *page = t->arena + below(t, ARENA / PAGE) * PAGE;
        switch (below(t, 10)) {
        case 0: mprotect(page, PAGE, (int[]){PROT_NONE, PROT_READ}[below(t, 2)]); break;
        case 1: madvise(page, PAGE, MADV_DONTNEED); break;
        case 2: munmap(page, PAGE); break;
        }
        usleep(200 + below(t, 2000));
        // The holes stay.
        for (int i = 0; i < ARENA / PAGE; i++)
            if (i % 16 != 15 && page == t->arena + i * PAGE && mprotect(page, PAGE, PROT_READ | PROT_WRITE) && errno == ENOMEM)
                mmap(page, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
        if (n % 4) continue;
        for (int i = 0; i < THREADS; i++) {
            if (before[i] == threads[i].done && threads[i].tid) syscall(SYS_tgkill, getpid(), threads[i].tid, SIGUSR1);
            before[i] = threads[i].done;
        }
    }
    return 0;
}

static uint8_t *make_arena(void) {
    uint8_t *a = mmap(0, ARENA + PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (a == MAP_FAILED) _exit(3);
    for (int i = 15; i < ARENA / PAGE; i += 16) munmap(a + i * PAGE, PAGE);
    munmap(a + ARENA, PAGE);
    return a;
}
static void limits(char role) {
    struct { int what; u64 most; } l[] = {{RLIMIT_NOFILE, 200}, {RLIMIT_FSIZE, 16 << 20}, {RLIMIT_AS, 1 << 30}, {RLIMIT_CORE, 0}, {RLIMIT_MEMLOCK, 8 << 20}, {RLIMIT_NPROC, role == 'R' ? 1000 : 150}, {RLIMIT_CPU, 20}};
    for (unsigned i = 0; i < sizeof l / sizeof *l; i++) setrlimit(l[i].what, &(struct rlimit){l[i].most, l[i].most});
}
static void write_file(const char *p, const char *text) {
    int fd = open(p, O_WRONLY);
    if (fd >= 0) write(fd, text, strlen(text)), close(fd);
}

// Goes on in a child; the caller waits for it, and everything ends with either.
static void in_child_of_this(void) {
    pid_t p = fork();
    if (p < 0) _exit(3);
    if (p == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        return;
    }
    int st;
    for (pid_t q; (q = waitpid(-1, &st, 0)) != p && (q > 0 || errno == EINTR);) {}
    _exit(0);
}
// Who the session is: 'U' a user among others, 'R' root in namespaces of its own, 'N' root of a user namespace.
static void become(char role) {
    int all = CLONE_NEWPID | CLONE_NEWNS | CLONE_NEWIPC | CLONE_NEWNET | CLONE_NEWUTS | CLONE_NEWCGROUP;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    setsid();
    if (role == 'U') {
        if (setgroups(0, 0) || setgid(1000) || setuid(1000)) _exit(3);
        return;
    }
    int uid = getuid();
    if (role == 'N' && uid == 0) {
        if (setgroups(0, 0) || setgid(1000) || setuid(1000)) _exit(3);
        uid = 1000;
        prctl(PR_SET_DUMPABLE, 1);
    }
    if (unshare(all | (role == 'N' ? CLONE_NEWUSER : 0))) _exit(4);
    if (role == 'N') {
        char m[40];
        snprintf(m, sizeof m, "0 %d 1\n", uid);
        write_file("/proc/self/setgroups", "deny"), write_file("/proc/self/uid_map", m), write_file("/proc/self/gid_map", m);
    }
    // A new pid namespace's first process only waits.
    in_child_of_this(), in_child_of_this();
    mount(0, "/", 0, MS_REC | MS_PRIVATE, 0), mount("proc", "/proc", "proc", 0, 0);
}
// What those may change who own the files that all see: their own directories only.
static void others_are_read_only(const char *const own[3]) {
    static const char *const trees[] = {"/", "/dev", "/dev/shm", "/dev/mqueue", "/tmp", "/fz"};
    for (int i = 0; i < 3; i++)
        if (*own[i]) mount(own[i], own[i], 0, MS_BIND, 0);
    for (unsigned i = 0; i < sizeof trees / sizeof *trees; i++)
        if (mount(0, trees[i], 0, MS_REMOUNT | MS_BIND | MS_RDONLY, 0) && i == 0) _exit(6);
}

void session(u64 seed, char role, const char *base, const char *volume, int victim) {
    static char dir[256], shm[256], vol[256];
    umask(0);
    snprintf(dir, sizeof dir, "%s/%016lx", base, seed), snprintf(shm, sizeof shm, "/dev/shm/fz.%016lx", seed), snprintf(vol, sizeof vol, "%s/%016lx", volume, seed);
    // In an ordinary user's sandbox all sessions are that user's, who owns what the victim's and the bystander's directories lie in.
    int owns_all = role == 'R' || getuid() != 0;
    become(role);
    limits(role);
    // One of three places is home: tmpfs, the root's overlay, a directory of the host's.
    mkdir(dir, 0777), mkdir(shm, 0777);
    if (*volume) mkdir(vol, 0777);
    if (owns_all) others_are_read_only((const char *const[]){dir, shm, *volume ? vol : ""});
    if (chdir(seed % 3 == 0 ? shm : seed % 3 == 1 && *volume ? vol : dir)) _exit(5);
    on_fault_go_on();
    uint8_t *arena = make_arena();
    struct thread changing = {.seed = seed * 77 + 1, .arena = arena};
    struct thread *t = &threads[0];
    t->seed = seed | 1, t->arena = arena;
    for (int i = 0; i < 20; i++) rnd(t);
    open_files(t, shm, *volume ? vol : 0, role == 'U' ? victim : 0);
    choose(t);
    int calls_each = 200 + below(t, 1500);
    for (int i = 0; i < THREADS; i++) {
        if (i) threads[i] = *t;
        threads[i].seed = (seed + i) * 0x9e3779b97f4a7c15ul | 1, threads[i].index = i, threads[i].budget = calls_each;
    }
    pthread_t p, others[THREADS];
    t->tid = gettid();
    pthread_create(&p, 0, changes, &changing);
    for (int i = 1; i < THREADS; i++) pthread_create(&others[i], 0, thread_main, &threads[i]);
    fuzz(t);
    _exit(0);
}

// The program that a session's execve starts: a few calls more, without the others' memory.
void go_on(u64 seed) {
    struct thread *t = &threads[0];
    on_fault_go_on();
    t->seed = seed | 1, t->arena = make_arena(), t->budget = 60;
    open_files(t, 0, 0, 0);
    choose(t);
    fuzz(t);
    _exit(0);
}
