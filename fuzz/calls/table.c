// Every call that is fuzzed, with the kinds of its arguments. `run` compares the names with what the Sentry implements.
#include "calls.h"
#include <sys/syscall.h>

#define LIST(...) (const u64[]){sizeof((const u64[]){__VA_ARGS__}) / sizeof(u64), __VA_ARGS__}
#define BITS(...) {BITS, LIST(__VA_ARGS__)}
#define ONE(...) {ONE, LIST(__VA_ARGS__)}
#define F(k) {FD, (const u64 *)(k)}
#define S(k) {STRUCT, (const u64 *)(k)}
#define I(k) {ID, (const u64 *)(k)}
#define FDANY {FD, 0}
#define AT {DIRFD, 0}
#define P {PATH, 0}
#define N_ {NAME, 0}
#define B {BUF, 0}
#define L {LEN, 0}
#define PID_ {PID, 0}
#define TID_ {TID, 0}
#define UID_ {UID, 0}
#define SIG_ {SIG, 0}
#define INT_ {INT, 0}
#define NUM_ {NUM, 0}
#define OFF {OFFSET, 0}
#define MODE_ {MODE, 0}
#define ADDR_ {ADDR, 0}
#define ML {MAPLEN, 0}
#define PAIR {FDPAIR, 0}
#define ARGV_ {ARGV, 0}
#define CODE_ {CODE, 0}
#define STACK_ {STACK, 0}
#define TS S(S_TIMESPEC)
#define W S(S_WORD)
// Mostly none.
#define W0 {WORD_OR_NOT, 0}
#define OUT 255
#define GIVES(id) (64 + (id))

#define OPEN_FLAGS BITS(0, 1, 2, 0100, 0200, 0400, 01000, 02000, 04000, 010000, 040000, 0100000, 0200000, 0400000, 01000000, 02000000, 010000000, 020200000)
#define AT_FLAGS BITS(0, 0x100, 0x200, 0x400, 0x800, 0x1000, 0x2000, 0x4000)
#define CLOCK ONE(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 11, 100, -6ul, -2ul, -14ul)
#define PROT BITS(0, 1, 2, 3, 3, 4, 5, 7, 0x01000000, 0x02000000)
#define MAP_FLAGS BITS(1, 2, 2, 0x20, 0x22, 0x21, 0x22, 0x10, 0x100000, 0x100, 0x2000, 0x4000, 0x8000, 0x20000, 0x40000, 0x40, 0x80000, 3, 8)
#define MSG_FLAGS BITS(0, 0x40, 0x40, 0x40, 1, 2, 4, 0x20, 0x80, 0x100, 0x2000, 0x4000, 0x8000, 0x10000, 0x20000000, 0x40000000)
#define CLONE_FLAGS \
    BITS(0, 17, 0x100, 0x200, 0x400, 0x800, 0x10000, 0x2000, 0x4000, 0x8000, 0x20000, 0x40000, 0x80000, 0x100000, 0x200000, 0x800000, 0x1000000, \
        0x02000000, 0x04000000, 0x08000000, 0x10000000, 0x20000000, 0x40000000, 0x1000)
#define NS_FLAGS BITS(0, 0x80, 0x200, 0x400, 0x800, 0x10000, 0x40000, 0x20000, 0x02000000, 0x04000000, 0x08000000, 0x10000000, 0x20000000, 0x40000000)
#define FCNTL ONE(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 15, 16, 36, 37, 38, 1024, 1025, 1026, 1029, 1030, 1031, 1032, 1033, 1034, 1035, 1036, 1037, 1038)
#define IOCTL \
    ONE(0x5401, 0x5402, 0x5403, 0x5404, 0x5405, 0x5409, 0x540a, 0x540b, 0x540e, 0x540f, 0x5410, 0x5411, 0x5412, 0x5413, 0x5414, 0x541b, 0x541c, 0x5420, 0x5421, \
        0x5422, 0x5423, 0x5424, 0x5425, 0x5428, 0x5429, 0x5441, 0x5450, 0x5451, 0x5452, 0x5460, 0x80045430, 0x40045431, 0x80045432, 0x80045438, 0x80045439, 0x80045440, \
        0x8901, 0x8902, 0x8903, 0x8904, 0x8905, 0x8906, 0x8907, 0x8910, 0x8912, 0x8913, 0x8914, 0x8915, 0x8916, 0x891b, 0x8921, 0x8927, 0x8933, 0x8940, 0x8946, \
        0xb701, 0xb702, 0xb703, 0xb704, 0x80086601, 0x40086602, 0x801c581f, 0x401c5820, 0xc0686611, 0x40049409, 0x4020940d, 0xc0189436, 0x6601, 0xc020660b, 0xc0045877, 0x80085200, 0x40045201, \
        0x1260, 0x80081272, 0x40187013, 0xc0502100, 0xc0182101, 0x40082102, 0x40182103, 0x40082104)
#define PRCTL ONE(1, 2, 3, 4, 5, 6, 7, 8, 9, 13, 14, 15, 16, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 33, 34, 35, 36, 37, 38, 39, 40, 41, 42, 47, 53, 59, 62, 65, 0x59616d61, 0x53564d41)
// Requests of ptrace(2), and what their words may mean.
#define PTRACE_REQ \
    ONE(0, 1, 2, 3, 4, 5, 6, 7, 7, 7, 8, 9, 9, 12, 13, 14, 15, 16, 16, 17, 21, 24, 24, 30, 31, 32, 33, 0x4200, 0x4201, 0x4202, 0x4203, 0x4204, 0x4205, 0x4206, \
        0x4206, 0x4207, 0x4208, 0x4209, 0x420a, 0x420b, 0x420c, 0x420d, 0x420e, 0x420f, 0x4210, 0x4211, 0x4212)
#define PTRACE_ADDR B
#define PTRACE_DATA BITS(0, 0, 1, 2, 4, 8, 0x10, 0x20, 0x40, 0x80, 0x100000, 9, 10, 18, 19)
#define LEVELS ONE(1, 1, 1, 0, 6, 17, 41, 270, 255)
#define FUTEX_OPS ONE(0, 1, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 128, 129, 131, 132, 133, 134, 135, 136, 137, 138, 139, 140, 256, 9 + 256, 137 + 256)
#define KEY_TYPE {NAME, (const u64 *)3}
#define KEYRING ONE(-1ul, -2ul, -3ul, -3ul, -4ul, -5ul, -7ul, 0, 1)
#define XFLAGS BITS(0, 1, 2)
#define SEEK ONE(0, 1, 2, 3, 4)
#define RWF BITS(0, 1, 2, 4, 8, 0x10, 0x20)

#define C(nr, weight, gives, ...) {SYS_##nr, weight, gives, #nr, {__VA_ARGS__}}
#define X(number, nr, weight, gives, ...) {number, weight, gives, #nr, {__VA_ARGS__}}

const struct call calls[] = {
    // Files.
    C(read, 16, OUT, FDANY, B, L), C(write, 16, OUT, FDANY, B, L), C(open, 16, ANY, P, OPEN_FLAGS, MODE_), C(close, 6, OUT, FDANY),
    C(stat, 8, OUT, P, B), C(fstat, 8, OUT, FDANY, B), C(lstat, 8, OUT, P, B), C(lseek, 8, OUT, FDANY, OFF, SEEK),
    C(pread64, 8, OUT, FDANY, B, L, OFF), C(pwrite64, 8, OUT, FDANY, B, L, OFF), C(readv, 8, OUT, FDANY, S(S_IOV), INT_), C(writev, 8, OUT, FDANY, S(S_IOV), INT_),
    C(preadv, 8, OUT, FDANY, S(S_IOV), INT_, OFF, NUM_), C(pwritev, 8, OUT, FDANY, S(S_IOV), INT_, OFF, NUM_),
    C(preadv2, 8, OUT, FDANY, S(S_IOV), INT_, OFF, ONE(0, 0, -1ul), RWF), C(pwritev2, 8, OUT, FDANY, S(S_IOV), INT_, OFF, ONE(0, 0, -1ul), RWF),
    C(access, 8, OUT, P, BITS(0, 1, 2, 4)), C(fsync, 4, OUT, FDANY), C(fdatasync, 4, OUT, FDANY), C(truncate, 8, OUT, P, OFF), C(ftruncate, 8, OUT, FDANY, OFF),
    C(getdents, 8, OUT, F(DIR_), B, L), C(getdents64, 8, OUT, F(DIR_), B, L), C(getcwd, 8, OUT, B, L), C(chdir, 3, OUT, P), C(fchdir, 3, OUT, F(DIR_)),
    C(rename, 8, OUT, P, P), C(mkdir, 8, OUT, P, MODE_), C(rmdir, 8, OUT, P), C(creat, 8, REG, P, MODE_), C(link, 8, OUT, P, P), C(unlink, 8, OUT, P),
    C(symlink, 8, OUT, P, P), C(readlink, 8, OUT, P, B, L), C(chmod, 6, OUT, P, MODE_), C(fchmod, 6, OUT, FDANY, MODE_), C(chown, 4, OUT, P, UID_, UID_),
    C(fchown, 4, OUT, FDANY, UID_, UID_), C(lchown, 4, OUT, P, UID_, UID_), C(umask, 2, OUT, MODE_), C(utime, 4, OUT, P, B), C(utimes, 4, OUT, P, B),
    C(mknod, 8, OUT, P, MODE_, NUM_), C(statfs, 4, OUT, P, B), C(fstatfs, 4, OUT, FDANY, B), C(sync, 1, OUT), C(syncfs, 1, OUT, FDANY),
    C(setxattr, 6, OUT, P, N_, B, L, XFLAGS), C(lsetxattr, 6, OUT, P, N_, B, L, XFLAGS), C(fsetxattr, 6, OUT, FDANY, N_, B, L, XFLAGS),
    C(getxattr, 6, OUT, P, N_, B, L), C(lgetxattr, 6, OUT, P, N_, B, L), C(fgetxattr, 6, OUT, FDANY, N_, B, L), C(listxattr, 6, OUT, P, B, L),
    C(llistxattr, 6, OUT, P, B, L), C(flistxattr, 6, OUT, FDANY, B, L), C(removexattr, 6, OUT, P, N_), C(lremovexattr, 6, OUT, P, N_), C(fremovexattr, 6, OUT, FDANY, N_),
    C(openat, 16, ANY, AT, P, OPEN_FLAGS, MODE_), C(openat2, 12, ANY, AT, P, S(S_OPENHOW), ONE(24, 24, 24, 24, 0, 8, 32, 4096, 4097, -1ul)),
    C(mkdirat, 8, OUT, AT, P, MODE_), C(mknodat, 8, OUT, AT, P, MODE_, NUM_), C(fchownat, 4, OUT, AT, P, UID_, UID_, AT_FLAGS), C(futimesat, 4, OUT, AT, P, B),
    C(newfstatat, 8, OUT, AT, P, B, AT_FLAGS), C(unlinkat, 8, OUT, AT, P, AT_FLAGS), C(renameat, 8, OUT, AT, P, AT, P), C(linkat, 8, OUT, AT, P, AT, P, ONE(0, 0, 0x400, 0x1000)),
    C(symlinkat, 8, OUT, P, AT, P), C(readlinkat, 8, OUT, AT, P, B, L), C(fchmodat, 6, OUT, AT, P, MODE_), C(faccessat, 6, OUT, AT, P, BITS(0, 1, 2, 4)),
    C(renameat2, 8, OUT, AT, P, AT, P, BITS(0, 1, 2, 4)), C(faccessat2, 6, OUT, AT, P, BITS(0, 1, 2, 4), AT_FLAGS), X(452, fchmodat2, 6, OUT, AT, P, MODE_, AT_FLAGS),
    C(utimensat, 6, OUT, AT, P, S(S_ITIMERSPEC), AT_FLAGS), C(statx, 8, OUT, AT, P, AT_FLAGS, BITS(0, 0x7ff, 0xfff, 0x1000), B), C(fallocate, 8, OUT, FDANY, BITS(0, 1, 2, 3, 8, 0x10, 0x20, 0x40), OFF, OFF),
    C(copy_file_range, 8, OUT, F(REG), W0, F(REG), W0, L, BITS(0, 0, 1)), C(sendfile, 8, OUT, FDANY, F(REG), W0, L),
    C(sync_file_range, 3, OUT, FDANY, OFF, OFF, BITS(0, 1, 2, 4)), C(readahead, 3, OUT, FDANY, OFF, L), C(fadvise64, 3, OUT, FDANY, OFF, L, ONE(0, 1, 2, 3, 4, 5, 6)),
    C(flock, 6, OUT, FDANY, ONE(1, 2, 4, 5, 6, 8, 12)), C(chroot, 1, OUT, P), C(pivot_root, 2, OUT, P, P),
    C(mount, 4, OUT, P, P, {NAME, (const u64 *)1}, BITS(0, 1, 2, 4, 8, 16, 32, 0x400, 0x1000, 0x2000, 0x4000, 0x5000, 0x20000, 0x40000, 0x80000, 0x100000, 0x1000000), B),
    C(umount2, 4, OUT, P, BITS(0, 1, 2, 4, 8)),
    C(open_tree, 4, ANY, AT, P, BITS(0, 1, 1, 02000000, 0x100, 0x1000, 0x8000)),
    C(move_mount, 6, OUT, AT, P, AT, P, BITS(0, 1, 4, 4, 0x10, 0x40, 0x40, 0x100, 0x200)),
    C(fsopen, 4, ANY, {NAME, (const u64 *)1}, BITS(0, 1)), C(fspick, 4, ANY, AT, P, BITS(0, 1, 2, 4, 8)),
    C(fsconfig, 8, OUT, FDANY, ONE(0, 1, 1, 2, 3, 4, 5, 6, 6, 7, 8, 9), N_, B, ONE(0, 0, 0, 1, 3, -100ul, -1ul)),
    C(fsmount, 6, ANY, FDANY, BITS(0, 1), BITS(0, 1, 2, 4, 8, 0x10, 0x20, 0x80, 0x100000, 0x200000)),
    X(442, mount_setattr, 4, OUT, AT, P, BITS(0, 0x100, 0x1000, 0x8000), B, ONE(32, 32, 32, 0, 31, 40, 4096, 4097)),
    X(467, open_tree_attr, 4, ANY, AT, P, BITS(0, 1, 0x1000, 0x8000), B, ONE(0, 32, 32, 40, 4097)),
    C(quotactl, 1, OUT, ONE(0x80000100, 0x80000700, 255), P, NUM_, B), X(443, quotactl_fd, 1, OUT, FDANY, ONE(0x80000100, 3), NUM_, B),
    X(451, cachestat, 3, OUT, FDANY, B, B, ONE(0, 0, 1)), C(remap_file_pages, 3, OUT, ADDR_, ML, ONE(0, 0, 1), NUM_, BITS(0, 0x10000)),
    C(name_to_handle_at, 4, OUT, AT, P, B, B, BITS(0, 1, 0x200, 0x400, 0x1000)), C(open_by_handle_at, 4, ANY, AT, B, OPEN_FLAGS),
    X(457, statmount, 4, OUT, B, B, L, ONE(0, 0, 0, 1)), X(458, listmount, 4, OUT, B, B, L, ONE(0, 0, 1, 2)),
    // Descriptors.
    C(poll, 8, OUT, S(S_POLLFDS), INT_, ONE(0, 0, 1, 5, 20, -1ul)), C(ppoll, 8, OUT, S(S_POLLFDS), INT_, TS, S(S_SIGSET), ONE(8, 8, 8, 0, 16)),
    C(select, 8, OUT, ONE(0, 8, 64, 64, 128, 1024, 70000, -1ul), S(S_FDSET), S(S_FDSET), S(S_FDSET), S(S_TIMEVAL)),
    C(pselect6, 8, OUT, ONE(0, 8, 64, 64, 128, 1024, -1ul), S(S_FDSET), S(S_FDSET), S(S_FDSET), TS, S(S_PSIGSET)),
    C(ioctl, 16, OUT, FDANY, IOCTL, B), C(fcntl, 12, ANY, FDANY, FCNTL, S(S_FLOCK)), C(pipe, 6, OUT, PAIR), C(pipe2, 8, OUT, PAIR, BITS(0, 04000, 02000000, 040000, 0200)),
    C(dup, 4, ANY, FDANY), C(dup2, 4, ANY, FDANY, FDANY), C(dup3, 4, ANY, FDANY, FDANY, BITS(0, 02000000)), C(close_range, 1, OUT, FDANY, FDANY, BITS(0, 2, 4)),
    C(splice, 8, OUT, F(PIPE), W0, FDANY, W0, L, BITS(0, 1, 2, 4, 8)), C(tee, 8, OUT, F(PIPE), F(PIPE), L, BITS(0, 1, 2, 4, 8)), C(vmsplice, 8, OUT, F(PIPE), S(S_IOV), INT_, BITS(0, 1, 2, 4, 8)),
    C(epoll_create, 3, EPOLL, INT_), C(epoll_create1, 3, EPOLL, BITS(0, 02000000)), C(epoll_ctl, 16, OUT, F(EPOLL), ONE(1, 1, 2, 3, 4), FDANY, S(S_EPEV)),
    C(epoll_wait, 8, OUT, F(EPOLL), B, INT_, ONE(0, 0, 1, 5, 20, -1ul)), C(epoll_pwait, 8, OUT, F(EPOLL), B, INT_, ONE(0, 0, 1, 5, 20, -1ul), S(S_SIGSET), ONE(8, 8, 0, 16)),
    C(epoll_pwait2, 8, OUT, F(EPOLL), B, INT_, TS, S(S_SIGSET), ONE(8, 8, 0, 16)), C(eventfd, 3, EVENT, INT_), C(eventfd2, 3, EVENT, INT_, BITS(0, 1, 04000, 02000000)),
    C(timerfd_create, 3, TIMER, CLOCK, BITS(0, 04000, 02000000)), C(timerfd_settime, 8, OUT, F(TIMER), BITS(0, 1, 2), S(S_ITIMERSPEC), B), C(timerfd_gettime, 4, OUT, F(TIMER), B),
    C(signalfd, 3, SIGFD, F(SIGFD), S(S_SIGSET), ONE(8, 8, 0)), C(signalfd4, 3, SIGFD, F(SIGFD), S(S_SIGSET), ONE(8, 8, 0), BITS(0, 04000, 02000000)), C(inotify_init, 3, INOTIFY),
    C(inotify_init1, 3, INOTIFY, BITS(0, 04000, 02000000)), C(inotify_add_watch, 8, GIVES(WATCH), F(INOTIFY), P, BITS(0xfff, 1, 2, 4, 8, 0x10, 0x100, 0x200, 0x400, 0x01000000, 0x02000000, 0x10000000, 0x20000000, 0x80000000)),
    C(fanotify_init, 6, INOTIFY, BITS(0, 1, 2, 4, 8, 0x10, 0x20, 0x40, 0x80, 0x100, 0x200, 0x400, 0x800, 0x1000, 0x2000), BITS(0, 1, 2, 02000, 04000, 02000000)),
    C(fanotify_mark, 8, OUT, F(INOTIFY), BITS(1, 1, 2, 4, 8, 0x10, 0x20, 0x40, 0x80, 0x100, 0x200, 0x400), BITS(0xfff, 0x1000, 0x8000, 0x10000, 0x20000, 0x40000, 0x8000000, 0x10000000, 0x40000000), AT, P),
    C(inotify_rm_watch, 4, OUT, F(INOTIFY), I(WATCH)), C(memfd_create, 4, MEMFD, N_, BITS(0, 1, 2, 4, 8, 16)), X(447, memfd_secret, 2, MEMFD, ONE(0, 0, 02000000, 1)), C(pidfd_open, 4, PIDFD, PID_, BITS(0, 04000, 0200)),
    C(process_madvise, 4, OUT, F(PIDFD), S(S_IOV), ONE(0, 1, 2, 3, 8, 1024, 1025), ONE(3, 4, 8, 20, 21, 25, 100), BITS(0, 0, 1)), C(process_mrelease, 2, OUT, F(PIDFD), BITS(0, 0, 1)),
    C(pidfd_getfd, 4, ANY, F(PIDFD), FDANY, BITS(0, 0, 1)), C(pidfd_send_signal, 4, OUT, F(PIDFD), SIG_, S(S_SIGINFO), BITS(0, 0, 1, 2, 4)),
    // Asynchronous I/O. A context's word begins as 0, mostly.
    C(io_setup, 2, OUT, ONE(0, 1, 1, 2, 8, 100, 1000, 65536, -1ul), W), C(io_destroy, 1, OUT, I(AIO)), C(io_submit, 12, OUT, I(AIO), ONE(0, 1, 2, 3, 4, -1ul), S(S_IOCBS)),
    C(io_cancel, 4, OUT, I(AIO), S(S_IOCB), W), C(io_getevents, 8, OUT, I(AIO), ONE(0, 0, 1, 2, -1ul), ONE(0, 1, 4, 8, 1000), B, TS),
    C(io_pgetevents, 6, OUT, I(AIO), ONE(0, 0, 1, 2), ONE(0, 1, 4, 8, 1000), B, TS, S(S_PSIGSET)),
    C(io_uring_setup, 6, OUT, ONE(0, 1, 2, 8, 64, 32768, 32769), B), C(io_uring_enter, 8, OUT, FDANY, ONE(0, 0, 1, 2, 8, -1ul), ONE(0, 0, 1), BITS(0, 1, 2, 4, 8, 16, 32), B, ONE(0, 8, 24)),
    C(io_uring_register, 8, OUT, FDANY, ONE(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 29, 30, 100), B, ONE(0, 1, 2, 4, 16, 32)),
    // Memory.
    C(mmap, 12, GIVES(MAPPING), ADDR_, ML, PROT, MAP_FLAGS, FDANY, OFF), C(mprotect, 8, OUT, ADDR_, ML, PROT), C(munmap, 6, OUT, ADDR_, ML), C(brk, 1, OUT, ADDR_),
    C(mremap, 6, GIVES(MAPPING), ADDR_, ML, ML, BITS(0, 1, 2, 4), ADDR_), C(msync, 4, OUT, ADDR_, ML, BITS(0, 1, 2, 4)), C(mincore, 4, OUT, ADDR_, ML, B),
    C(madvise, 8, OUT, ADDR_, ML, ONE(0, 1, 2, 3, 4, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 100)), C(mlock, 3, OUT, ADDR_, ML), C(mlock2, 3, OUT, ADDR_, ML, BITS(0, 1)),
    C(munlock, 3, OUT, ADDR_, ML), X(462, mseal, 1, OUT, ADDR_, ML, ONE(0, 0, 0, 1)), C(mlockall, 1, OUT, BITS(0, 1, 2, 4)), C(munlockall, 2, OUT), C(pkey_mprotect, 4, OUT, ADDR_, ML, PROT, ONE(-1ul, 0, 1)),
    C(process_vm_readv, 6, OUT, PID_, S(S_IOV), INT_, S(S_IOV), INT_, ONE(0, 0, 0, 1)), C(process_vm_writev, 4, OUT, PID_, S(S_IOV), INT_, S(S_IOV), INT_, ONE(0, 0, 0, 1)),
    C(set_mempolicy, 3, OUT, ONE(0, 1, 2, 3, 4, 5, 6, 7, 0x2001, 0x2002, 0x4002, 0x8003), W0, ONE(0, 1, 2, 64, 65, 1025, 32769, -1ul)), C(get_mempolicy, 3, OUT, W, W0, ONE(0, 1, 2, 64, 65, 1025, 32769, -1ul), ADDR_, BITS(0, 1, 2, 4)),
    C(mbind, 4, OUT, ADDR_, ML, ONE(0, 1, 2, 3, 4, 5, 6, 7, 0x2001, 0x2002, 0x4002, 0x8003), W0, ONE(0, 1, 2, 64, 65, 1025, 32769, -1ul), BITS(0, 1, 2, 4)), C(migrate_pages, 2, OUT, PID_, ONE(0, 2, 64, 1025), W, W),
    C(move_pages, 3, OUT, PID_, ONE(0, 1, 2, 8, 512, 0x100000, -1ul), B, B, B, BITS(0, 2, 4)), X(450, set_mempolicy_home_node, 2, OUT, ADDR_, ML, ONE(0, 0, 1, 1024), ONE(0, 0, 1)),
    C(membarrier, 3, OUT, BITS(0, 1, 2, 4, 8, 16, 32, 64, 128, 256, 512), ONE(0, 0, 1), INT_),
    // Signals and processes.
    C(rt_sigaction, 6, OUT, SIG_, S(S_SIGACTION), B, ONE(8, 8, 8, 0)), C(rt_sigprocmask, 6, OUT, ONE(0, 1, 2, 3), S(S_SIGSET), B, ONE(8, 8, 8, 0)), C(rt_sigreturn, 1, OUT), C(rt_sigpending, 3, OUT, B, ONE(8, 4, 0, 9)),
    C(rt_sigtimedwait, 4, OUT, S(S_SIGSET), B, TS, ONE(8, 8, 0)), C(rt_sigqueueinfo, 4, OUT, PID_, SIG_, S(S_SIGINFO)), C(rt_tgsigqueueinfo, 4, OUT, PID_, TID_, SIG_, S(S_SIGINFO)),
    C(rt_sigsuspend, 2, OUT, S(S_SIGSET), ONE(8, 8, 0)), C(sigaltstack, 3, OUT, S(S_STACK), B), C(pause, 1, OUT), C(kill, 3, OUT, PID_, SIG_), C(tkill, 4, OUT, TID_, SIG_), C(tgkill, 4, OUT, PID_, TID_, SIG_),
    C(clone, 5, GIVES(PIDS), CLONE_FLAGS, STACK_, W, W, ONE(0)), C(clone3, 5, GIVES(PIDS), S(S_CLONE), ONE(88, 88, 88, 64, 80, 0, 96, 4096, 4097, -1ul)), C(fork, 4, GIVES(PIDS)), C(vfork, 3, GIVES(PIDS)),
    C(execve, 1, OUT, P, ARGV_, ARGV_), C(execveat, 1, OUT, AT, P, ARGV_, ARGV_, AT_FLAGS), C(exit, 1, OUT, INT_), C(exit_group, 1, OUT, INT_),
    C(wait4, 6, OUT, PID_, W, BITS(1, 1, 2, 8, 0x20000000, 0x40000000, 0x80000000), B), C(waitid, 6, OUT, ONE(0, 1, 2, 3, 4), PID_, B, BITS(1, 1, 2, 4, 8, 0x1000000, 0x20000000), B),
    C(setpgid, 4, OUT, PID_, PID_), C(getpgid, 3, OUT, PID_), C(getsid, 3, OUT, PID_), C(setsid, 2, OUT), C(getpid, 4, OUT), C(gettid, 4, OUT), C(getppid, 4, OUT), C(getpgrp, 3, OUT), C(set_tid_address, 1, OUT, W),
    C(set_robust_list, 1, OUT, S(S_BYTES), ONE(24, 24, 0)), C(get_robust_list, 2, OUT, TID_, B, S(S_LEN)), C(restart_syscall, 2, OUT), C(getcpu, 3, OUT, W, W, ADDR_), C(sched_yield, 6, OUT),
    C(unshare, 2, OUT, NS_FLAGS), C(setns, 3, OUT, F(NS), NS_FLAGS), C(prctl, 6, OUT, PRCTL, NUM_, B, NUM_, NUM_), C(arch_prctl, 1, OUT, ONE(0x1001, 0x1003, 0x1004, 0x1011, 0x1012, 0x3001, 0x5001), B), C(personality, 2, OUT, ONE(0, -1ul, 0x40000, 8, 0x20000, 0x400000, 0x4000000, 0x6400008)),
    C(seccomp, 1, OUT, ONE(1, 1, 2, 3, 0), BITS(0, 1, 2, 4, 8, 16, 32), S(S_FPROG)), C(futex, 12, OUT, W, FUTEX_OPS, INT_, TS, W, NUM_),
    C(futex_waitv, 4, OUT, B, ONE(0, 1, 2, 3, 8, 128, 129), BITS(0, 0, 1), TS, CLOCK), X(454, futex_wake, 4, OUT, W, INT_, NUM_, BITS(0, 2, 2, 128)),
    X(455, futex_wait, 4, OUT, W, INT_, INT_, BITS(0, 2, 2, 128), TS, CLOCK), X(456, futex_requeue, 4, OUT, B, BITS(0, 0, 1), NUM_, NUM_),
    // Keys: their numbers are not known to the fuzzer, but keyrings are, and names.
    C(add_key, 4, OUT, KEY_TYPE, N_, B, L, KEYRING), C(request_key, 3, OUT, KEY_TYPE, N_, W0, ONE(0, 0, -1ul, -2ul, -3ul)),
    C(keyctl, 8, OUT, INT_, KEYRING, B, L, KEYRING), C(keyctl, 6, OUT, ONE(0, 2, 3, 5, 6, 7, 8, 9, 11, 15, 21, 29, 30), KEYRING, KEYRING, B, L),
    // Credentials.
    C(getuid, 3, OUT), C(getgid, 2, OUT), C(geteuid, 2, OUT), C(getegid, 2, OUT), C(setuid, 1, OUT, UID_), C(setgid, 1, OUT, UID_), C(setreuid, 1, OUT, UID_, UID_), C(setregid, 1, OUT, UID_, UID_), C(setresuid, 1, OUT, UID_, UID_, UID_),
    C(setresgid, 1, OUT, UID_, UID_, UID_), C(getresuid, 2, OUT, W, W, W), C(getresgid, 2, OUT, W, W, W), C(setfsuid, 1, OUT, UID_), C(setfsgid, 1, OUT, UID_), C(getgroups, 2, OUT, INT_, B), C(setgroups, 1, OUT, INT_, B),
    C(capget, 3, OUT, S(S_CAPHEAD), S(S_CAPS)), C(capset, 1, OUT, S(S_CAPHEAD), S(S_CAPS)),
    // Limits, time, the system.
    C(getrlimit, 3, OUT, INT_, B), C(setrlimit, 2, OUT, ONE(0, 2, 4, 8, 10, 11, 12, 13, 14, 15, 16), S(S_RLIMIT)), C(prlimit64, 3, OUT, PID_, ONE(0, 2, 4, 8, 10, 11, 12, 13, 14, 15, 16), S(S_RLIMIT), B), C(getrusage, 3, OUT, ONE(0, 1, -1ul, 2), B),
    C(syslog, 3, OUT, ONE(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11), B, L), C(ustat, 2, OUT, NUM_, B), C(sysfs, 2, OUT, ONE(0, 1, 2, 3, 4), B, B),
    C(times, 2, OUT, B), C(sysinfo, 2, OUT, B), C(uname, 2, OUT, B), C(sethostname, 2, OUT, B, L), C(setdomainname, 2, OUT, B, L), C(getrandom, 4, OUT, B, L, BITS(0, 1, 2, 4)), C(gettimeofday, 3, OUT, B, B), C(time, 3, OUT, W),
    C(nanosleep, 3, OUT, TS, B), C(clock_nanosleep, 3, OUT, CLOCK, BITS(0, 0, 1), TS, B), C(clock_gettime, 4, OUT, CLOCK, B), C(clock_getres, 3, OUT, CLOCK, B), C(clock_settime, 2, OUT, CLOCK, TS), C(adjtimex, 2, OUT, B), C(clock_adjtime, 2, OUT, CLOCK, B),
    C(settimeofday, 2, OUT, S(S_TIMEVAL), B), C(vhangup, 1, OUT),
    C(reboot, 1, OUT, ONE(0xfee1dead, 0xfee1dead, 1), ONE(672274793, 0), ONE(0, 0x89abcdef, 12345), B),
    C(bpf, 2, ANY, ONE(5, 5, 8, 9, 11, 13, 15, 16, 0, 28), S(S_BPF), ONE(152, 48, 32, 64, 8, 4, 16, 0, 4096, 4097)),
    X(444, landlock_create_ruleset, 2, RULESET, S(S_RULESET), ONE(24, 24, 16, 8, 32, 0), ONE(0, 0, 0, 0, 1, 2, 4)), X(445, landlock_add_rule, 3, OUT, F(RULESET), ONE(1, 1, 2, 3), S(S_RULE), ONE(0, 0, 0, 1)),
    X(446, landlock_restrict_self, 1, OUT, F(RULESET), ONE(0, 0, 0, 1)),
    X(459, lsm_get_self_attr, 2, OUT, ONE(0, 100, 105), B, W, ONE(0, 0, 1, 2)), X(460, lsm_set_self_attr, 2, OUT, ONE(0, 100), B, L, ONE(0, 0, 1)),
    X(461, lsm_list_modules, 2, OUT, B, W, ONE(0, 0, 1)),
    C(getitimer, 2, OUT, ONE(0, 1, 2, 3), B), C(setitimer, 3, OUT, ONE(0, 1, 2, 3), S(S_ITIMERVAL), B), C(alarm, 2, OUT, ONE(0, 1)), C(timer_create, 5, OUT, CLOCK, S(S_SIGEVENT), S(S_LEN)), C(timer_settime, 6, OUT, INT_, BITS(0, 1), S(S_ITIMERSPEC), B),
    C(timer_gettime, 3, OUT, INT_, B), C(timer_getoverrun, 3, OUT, INT_), C(timer_delete, 3, OUT, INT_), C(getpriority, 2, OUT, ONE(0, 1, 2, 3), PID_), C(setpriority, 2, OUT, ONE(0, 1, 2, 3), PID_, INT_),
    C(sched_setparam, 2, OUT, PID_, S(S_SCHED)), C(sched_getparam, 2, OUT, PID_, B), C(sched_setscheduler, 2, OUT, PID_, ONE(0, 1, 2, 3, 5, 6), S(S_SCHED)), C(sched_getscheduler, 2, OUT, PID_), C(sched_setattr, 2, OUT, PID_, B, ONE(0, 0, 0, 1)), C(sched_getattr, 2, OUT, PID_, B, ONE(0, 48, 56, 64, 4096, 4097), ONE(0, 0, 0, 1)), C(sched_get_priority_max, 1, OUT, INT_),
    C(sched_get_priority_min, 1, OUT, INT_), C(sched_rr_get_interval, 2, OUT, PID_, B), C(sched_setaffinity, 2, OUT, PID_, L, B), C(sched_getaffinity, 2, OUT, PID_, L, B), C(ioprio_set, 2, OUT, ONE(1, 2, 3), PID_, NUM_), C(ioprio_get, 2, OUT, ONE(1, 2, 3), PID_),
    // Sockets.
    C(socket, 8, SOCK, ONE(1, 1, 2, 2, 10, 16, 17, 40), BITS(1, 1, 2, 3, 5, 04000, 02000000), ONE(0, 0, 0, 6, 17, 1, 15, 58)), C(socketpair, 6, OUT, ONE(1, 1, 1, 2, 16), BITS(1, 1, 2, 5, 04000, 02000000), ONE(0, 0, 1), PAIR),
    C(connect, 8, OUT, F(SOCK), S(S_SOCKADDR), L), C(accept, 6, SOCK, F(LISTEN), B, S(S_LEN)), C(accept4, 6, SOCK, F(LISTEN), B, S(S_LEN), BITS(0, 04000, 02000000)), C(bind, 8, OUT, F(SOCK), S(S_SOCKADDR), L), C(listen, 6, OUT, F(SOCK), INT_),
    C(sendto, 8, OUT, F(SOCK), B, L, MSG_FLAGS, S(S_SOCKADDR), L), C(recvfrom, 8, OUT, F(SOCK), B, L, MSG_FLAGS, B, S(S_LEN)), C(sendmsg, 10, OUT, F(SOCK), S(S_MSGHDR), MSG_FLAGS), C(recvmsg, 10, OUT, F(SOCK), S(S_MSGHDR), MSG_FLAGS),
    C(sendmmsg, 6, OUT, F(SOCK), S(S_MMSGHDR), INT_, MSG_FLAGS), C(recvmmsg, 6, OUT, F(SOCK), S(S_MMSGHDR), INT_, MSG_FLAGS, TS), C(shutdown, 3, OUT, F(SOCK), ONE(0, 1, 2, 3)), C(getsockname, 4, OUT, F(SOCK), B, S(S_LEN)),
    C(getpeername, 4, OUT, F(SOCK), B, S(S_LEN)), C(setsockopt, 10, OUT, F(SOCK), LEVELS, INT_, S(S_OPTION), ONE(4, 4, 4, 8, 16, 1, 0, 20, 128)), C(getsockopt, 10, OUT, F(SOCK), LEVELS, INT_, B, S(S_LEN)),
    // System V.
    C(shmget, 4, GIVES(SHM), ONE(0, 1, 2, 3), ML, BITS(0600, 01000, 02000, 0400, 0666)), C(shmat, 4, GIVES(MAPPING), I(SHM), ADDR_, BITS(0, 010000, 020000, 040000, 0100000)), C(shmdt, 4, OUT, ADDR_), C(shmctl, 6, OUT, I(SHM), ONE(0, 1, 2, 3, 11, 12, 13, 14, 15), S(S_SHMID)),
    C(semget, 4, GIVES(SEM), ONE(0, 1, 2, 3), INT_, BITS(0600, 01000, 02000, 0666)), C(semop, 6, OUT, I(SEM), S(S_SEMBUF), INT_), C(semtimedop, 6, OUT, I(SEM), S(S_SEMBUF), INT_, TS), C(semctl, 6, OUT, I(SEM), INT_, ONE(0, 1, 2, 3, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20), S(S_SHMID)),
    C(msgget, 4, GIVES(MSG), ONE(0, 1, 2, 3), BITS(0600, 01000, 02000, 0666)), C(msgsnd, 6, OUT, I(MSG), S(S_MSG), L, BITS(04000, 04000, 0)), C(msgrcv, 6, OUT, I(MSG), B, L, INT_, BITS(04000, 04000, 010000, 020000, 040000, 0)), C(msgctl, 6, OUT, I(MSG), ONE(0, 1, 2, 3, 11, 12, 13), S(S_SHMID)),
    C(mq_open, 6, QUEUE, {NAME, (const u64 *)2}, BITS(2, 2, 0100, 0100, 0200, 04000, 1, 0), MODE_, S(S_MQATTR)), C(mq_unlink, 2, OUT, {NAME, (const u64 *)2}),
    C(mq_timedsend, 8, OUT, F(QUEUE), B, ONE(0, 1, 4, 64, 128, 8192), INT_, TS), C(mq_timedreceive, 8, OUT, F(QUEUE), B, ONE(1, 64, 128, 8192, 8192), W, TS),
    C(mq_notify, 6, OUT, F(QUEUE), S(S_SIGEVENT)), C(mq_getsetattr, 4, OUT, F(QUEUE), S(S_MQATTR), S(S_MQATTR)),
    C(ptrace, 6, OUT, PTRACE_REQ, PID_, PTRACE_ADDR, PTRACE_DATA),
    // What is not implemented, or is no call.
    C(bpf, 1, OUT, INT_, B, L), C(userfaultfd, 1, OUT, INT_), C(perf_event_open, 1, OUT, B, PID_, INT_, FDANY, INT_),
    C(name_to_handle_at, 1, OUT, AT, P, B, W, INT_), C(io_setup, 1, OUT, INT_, W), C(rseq, 1, OUT, B, INT_, INT_, INT_), C(kcmp, 4, OUT, PID_, PID_, ONE(0, 1, 2, 3, 4, 5, 6, 7, 8), FDANY, FDANY), X(469, no_call, 1, OUT, NUM_, NUM_, NUM_, NUM_, NUM_, NUM_),
};
const int call_count = sizeof calls / sizeof *calls;
