// Simple system calls, by the ways that they can take: calls DIR, where DIR is a bind-mounted host directory.
#include "bench.h"
#include <linux/filter.h>
#include <linux/futex.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <signal.h>
#include <stddef.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/utsname.h>

#ifndef SECCOMP_USER_NOTIF_FD_SYNC_WAKE_UP  // Linux 6.6
#define SECCOMP_IOCTL_NOTIF_SET_FLAGS _IOW('!', 4, __u64)
#define SECCOMP_USER_NOTIF_FD_SYNC_WAKE_UP 1UL
#endif

static long pid;
static int fd, host_fd;
static char missing[4096];

static void getpid_instruction(long n) {
    for (long i = 0; i < n; i++) {
        long r = SYS_getpid;
        __asm__ volatile("syscall" : "+a"(r) : : "rcx", "r11", "memory");
        if (r != pid) check(0, "getpid");
    }
}

// glibc's syscall(): "syscall" follows a register move there, the call site that is harder to patch.
static void getpid_generic(long n) {
    for (long i = 0; i < n; i++) check(syscall(SYS_getpid) == pid, "getpid");
}

static void getpid_wrapper(long n) {
    for (long i = 0; i < n; i++) check(getpid() == pid, "getpid");
}

static void getppid_wrapper(long n) {
    for (long i = 0; i < n; i++) getppid();
}

static void getpgid_own(long n) {
    for (long i = 0; i < n; i++) getpgid(0);
}

static void block_and_unblock(long n) {
    sigset_t one, old;
    sigemptyset(&one);
    sigaddset(&one, SIGUSR1);
    for (long i = 0; i < n; i++) {
        check(sigprocmask(SIG_BLOCK, &one, &old) == 0, "sigprocmask");
        check(sigprocmask(SIG_SETMASK, &old, NULL) == 0, "sigprocmask");
    }
}

static void futex_wake_nobody(long n) {
    static int word;
    for (long i = 0; i < n; i++) check(syscall(SYS_futex, &word, FUTEX_WAKE | FUTEX_PRIVATE_FLAG, 1, NULL, NULL, 0) == 0, "futex");
}

static void names(long n) {
    struct utsname u;
    for (long i = 0; i < n; i++) check(uname(&u) == 0, "uname");
}

// As threads of Rust programs and of Go's do when they begin and end: is there one, then it is set, then taken away.
static void signal_stack(long n) {
    static char memory[65536];
    stack_t mine = {.ss_sp = memory, .ss_size = sizeof memory}, none = {.ss_flags = SS_DISABLE}, old;
    for (long i = 0; i < n; i++) {
        check(sigaltstack(NULL, &old) == 0 && old.ss_flags == SS_DISABLE, "sigaltstack");
        check(sigaltstack(&mine, NULL) == 0, "sigaltstack");
        check(sigaltstack(&none, NULL) == 0, "sigaltstack");
    }
}

static void yield(long n) {
    for (long i = 0; i < n; i++) sched_yield();
}

static void clock_vdso(long n) {
    struct timespec t;
    for (long i = 0; i < n; i++) clock_gettime(CLOCK_MONOTONIC, &t);
}

static void clock_call(long n) {
    struct timespec t;
    for (long i = 0; i < n; i++) check(syscall(SYS_clock_gettime, CLOCK_MONOTONIC, &t) == 0, "clock_gettime");
}

static void seek(long n) {
    for (long i = 0; i < n; i++) check(lseek(fd, 0, SEEK_SET) == 0, "lseek");
}

static void get_flags(long n) {
    for (long i = 0; i < n; i++) check(fcntl(fd, F_GETFL) >= 0, "fcntl");
}

// A sandbox's kernel has the file's descriptor and asks the host.
static void host_read(long n) {
    char c;
    for (long i = 0; i < n; i++) check(pread(host_fd, &c, 1, 0) == 1, "pread");
}

// Only who sees the host's paths can tell that a file still is not there (unless that is remembered).
static void gofer_lookup(long n) {
    for (long i = 0; i < n; i++) check(access(missing, F_OK) != 0, "access");
}

static void create_name(long n) {
    static long serial;
    char name[4200];
    for (long i = 0; i < n; i++) {
        snprintf(name, sizeof name, "%s-%ld", missing, serial++);
        check(access(name, F_OK) != 0, "access");
    }
}

enum { END = 1 };
static volatile int *listener;

static void told(long n) {
    for (long i = 0; i < n; i++) check(syscall(SYS_getppid, 0) == pid, "getppid");
}

static void ask(void) {
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_getppid, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_USER_NOTIF),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog filter = {sizeof code / sizeof *code, code};
    prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
    *listener = syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_NEW_LISTENER, &filter);
    if (*listener < 0) return;
    ns("bare hand-over, seccomp notification", told);
    syscall(SYS_getppid, END);
}

// What the host takes for a seccomp notification and its answer, if nothing at all is done for it: no call that
// another process answers can be cheaper on one CPU. Left out where there are no listeners.
static void bare_handover(void) {
    listener = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    check(listener != MAP_FAILED, "mmap");
    // The child's listener is this process', too.
    pid_t child = syscall(SYS_clone, CLONE_FILES | SIGCHLD, 0, 0, 0, 0);
    check(child >= 0, "clone");
    if (child == 0) {
        ask();
        fflush(stdout);
        _exit(0);
    }
    while (*listener == 0) usleep(100);
    if (*listener > 0) ioctl(*listener, SECCOMP_IOCTL_NOTIF_SET_FLAGS, SECCOMP_USER_NOTIF_FD_SYNC_WAKE_UP);
    for (int end = *listener < 0; !end;) {
        struct seccomp_notif n = {0};
        if (ioctl(*listener, SECCOMP_IOCTL_NOTIF_RECV, &n) != 0) break;
        struct seccomp_notif_resp r = {.id = n.id, .val = pid};
        ioctl(*listener, SECCOMP_IOCTL_NOTIF_SEND, &r);
        end = n.data.args[0] == END;
    }
    waitpid(child, 0, 0);
}

int main(int argc, char **argv) {
    const char *dir = argc > 1 ? argv[1] : ".";
    char name[4096];
    pid = getpid();
    fd = open("/proc/self/exe", O_RDONLY);
    check(fd >= 0, "/proc/self/exe");
    snprintf(name, sizeof name, "%s/data", dir);
    host_fd = open(name, O_RDONLY);
    check(host_fd >= 0, name);
    snprintf(missing, sizeof missing, "%s/missing", dir);
    ns("getpid, instruction", getpid_instruction);
    ns("getpid, syscall()", getpid_generic);
    ns("getpid, wrapper", getpid_wrapper);
    ns("getppid", getppid_wrapper);
    ns("getpgid(0)", getpgid_own);
    ns("sigprocmask, block and put back", block_and_unblock);
    ns("futex wake, nobody waits", futex_wake_nobody);
    ns("uname", names);
    ns("sigaltstack, three times", signal_stack);
    ns("sched_yield", yield);
    ns("clock_gettime, vDSO", clock_vdso);
    ns("clock_gettime, call", clock_call);
    ns("Sentry call: lseek", seek);
    ns("Sentry call: fcntl", get_flags);
    ns("host call: pread 1 B", host_read);
    ns("known missing file", gofer_lookup);
    ns("Gofer call: new missing file", create_name);
    if (wanted("bare hand-over, seccomp notification")) bare_handover();
    return 0;
}
