// Arguments by their kinds, half of them valid; and what results teach.
#include "calls.h"
#include <fcntl.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <netinet/in.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stddef.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <time.h>

struct pools pools;

u64 rnd(struct thread *t) {
    t->seed ^= t->seed << 13, t->seed ^= t->seed >> 7, t->seed ^= t->seed << 17;
    return t->seed * 0x2545f4914f6cdd1dul >> 8;
}

// A number at which things go wrong.
u64 number(struct thread *t) {
    static const u64 v[] = {0, 1, 2, 3, 4, 7, 8, 16, 64, 100, 255, 256, 1000, 1023, 1024, 4095, 4096, 4097, 65535, 65536, 1 << 20, 0x7fffffff, 0x80000000, 0xffffffff,
        1ul << 32, 1ul << 40, 1ul << 46, 1ul << 47, (1ul << 47) - PAGE, 0x7ffe00000000, 0x7ffe10000000, 0x7ffe40000000, 1ul << 62, ~0ul >> 1, 1ul << 63, ~0ul, -2ul, -PAGE, -100ul};
    switch (below(t, 8)) {
    case 0: return rnd(t) << 8 | below(t, 256);
    case 1: return v[below(t, sizeof v / sizeof *v)] + below(t, 5) - 2;
    case 2: case 3: return v[below(t, sizeof v / sizeof *v)];
    default: return below(t, 16);
    }
}

static u64 from(struct thread *t, const u64 *list) { return list[1 + below(t, list[0])]; }
static u64 bits(struct thread *t, const u64 *list) {
    u64 v = 0;
    for (int n = below(t, 4); n >= 0; n--) v |= from(t, list);
    return one_in(t, 40) ? v | 1ul << below(t, 64) : v;
}

static u64 descriptor(struct thread *t, enum fd_kind k) {
    if (one_in(t, 20)) return one_in(t, 3) ? number(t) : below(t, 256);
    if (k == ANY || one_in(t, 8)) k = below(t, FD_KINDS);
    int fd = pools.fds[k][below(t, RING)];
    return fd >= 0 ? fd : pools.fds[below(t, FD_KINDS)][below(t, RING)];
}
static u64 id(struct thread *t, enum id_kind k) { return one_in(t, 10) ? number(t) : pools.ids[k][below(t, RING)]; }
static u64 process(struct thread *t) {
    switch (below(t, 12)) {
    case 0: return 0;
    case 1: return number(t);
    case 2: return one_in(t, 4) ? -1ul : 1;
    case 3: return one_in(t, 4) ? -id(t, PIDS) : below(t, 64);
    default: return id(t, PIDS);
    }
}
static u64 user(struct thread *t) { return from(t, (const u64[]){8, 0, 1, 1000, 1001, 1002, 65534, -1ul, 100000}); }
static u64 file_offset(struct thread *t) { return one_in(t, 12) ? number(t) : below(t, 4) * PAGE + (one_in(t, 2) ? below(t, PAGE) : 0); }

// Room for a struct: sometimes ends where memory ends, sometimes it is none at all.
static uint8_t *room(struct thread *t, u64 size) {
    if (one_in(t, 60)) return (uint8_t *)number(t);
    if (size > 16 * PAGE) size = 16 * PAGE;
    u64 at = below(t, ARENA - size);
    // The last page of each sixteen is not there.
    if (one_in(t, 10) && size < PAGE) at = (at / (16 * PAGE) * 16 + 15) * PAGE - size + below(t, 4);
    else if (!one_in(t, 4)) at &= ~7ul;
    return t->arena + (at + size > ARENA ? 0 : at);
}
static void *put(struct thread *t, const void *src, u64 size) {
    uint8_t *p = room(t, size);
    // (Not where it could be somebody's code or stack.)
    if (p < t->arena || p + size > t->arena + ARENA) return p;
    memcpy(p, src, size);
    if (one_in(t, 12) && size) p[below(t, size)] ^= 1 << below(t, 8);
    return p;
}

static struct timespec soon(struct thread *t) {
    struct timespec s = {0, below(t, 3) * 1000000 + below(t, 1000)};
    if (one_in(t, 12)) s.tv_sec = number(t);
    if (one_in(t, 12)) s.tv_nsec = number(t);
    return s;
}
static struct iovec *iovs(struct thread *t) {
    struct iovec v[8];
    for (int i = 0; i < 8; i++) {
        u64 n = one_in(t, 20) ? number(t) : one_in(t, 3) ? below(t, 3 * PAGE) : below(t, 64);
        v[i] = (struct iovec){room(t, n), n};
        if (one_in(t, 10)) v[i].iov_base = (void *)id(t, MAPPING);
    }
    return put(t, v, sizeof v);
}
static u64 address(struct thread *t, struct sockaddr_storage *s) {
    memset(s, 0, sizeof *s);
    u64 port = htons(4000 + below(t, 8));
    switch (below(t, 6)) {
    case 0: {
        struct sockaddr_in *a = (void *)s;
        *a = (struct sockaddr_in){AF_INET, port, {htonl(one_in(t, 6) ? number(t) : INADDR_LOOPBACK)}, {0}};
        return sizeof *a;
    }
    case 1: {
        struct sockaddr_in6 *a = (void *)s;
        a->sin6_family = AF_INET6, a->sin6_port = port, a->sin6_addr = in6addr_loopback;
        return sizeof *a;
    }
    case 2: s->ss_family = AF_NETLINK; return 12;
    case 3: s->ss_family = number(t); return below(t, sizeof *s);
    default: {
        struct sockaddr_un *a = (void *)s;
        a->sun_family = AF_UNIX;
        if (one_in(t, 2)) {
            a->sun_path[1] = 'a' + below(t, 4);
            return 4;
        }
        const char *p = pools.paths[below(t, pools.path_count)];
        strncpy(a->sun_path, p, sizeof a->sun_path - 1);
        return one_in(t, 4) ? below(t, sizeof *a) : offsetof(struct sockaddr_un, sun_path) + strlen(a->sun_path) + 1;
    }
    }
}
// Of a program that may run, of two descriptors, or of numbers.
static void *bpf_attr(struct thread *t) {
    static const u64 insns[][4] = {{0x1000000b7, 0x95}, {0x1000000b7, 0x411261, 0x300010215, 0x95}, {0xb7, 0x95}, {0x95}};
    unsigned a[38] = {15, 1 + below(t, 4)};
    const u64 *p = insns[below(t, 4)];
    switch (below(t, 3)) {
    case 0: *(const u64 **)(a + 2) = p, *(const char **)(a + 4) = "GPL"; break;
    case 1: a[0] = descriptor(t, DIR_), a[1] = descriptor(t, ANY), a[2] = 6, a[3] = below(t, 8), a[4] = descriptor(t, ANY); break;
    default: for (int i = 0; i < 8; i++) a[i] = number(t);
    }
    return put(t, a, sizeof a);
}
static struct msghdr message(struct thread *t) {
    struct msghdr m = {.msg_iov = iovs(t), .msg_iovlen = one_in(t, 20) ? number(t) : below(t, 8)};
    struct sockaddr_storage s;
    if (one_in(t, 2)) m.msg_namelen = address(t, &s), m.msg_name = put(t, &s, sizeof s);
    union { struct cmsghdr h; char b[256]; } c = {0};
    int kind = below(t, 6), n = 1 + below(t, 8);
    if (kind == 0) return m;
    u64 len = kind < 4 ? n * sizeof(int) : 12;
    c.h = (struct cmsghdr){CMSG_LEN(len), SOL_SOCKET, kind < 4 ? SCM_RIGHTS : kind == 4 ? SCM_CREDENTIALS : below(t, 8)};
    for (int i = 0; i < n; i++) ((int *)CMSG_DATA(&c.h))[i] = kind < 4 ? descriptor(t, ANY) : one_in(t, 2) ? process(t) : user(t);
    if (one_in(t, 10)) c.h.cmsg_len = number(t);
    m.msg_control = put(t, &c, sizeof c);
    m.msg_controllen = one_in(t, 10) ? number(t) : CMSG_SPACE(len);
    return m;
}
static void *program_of_filter(struct thread *t) {
    struct sock_filter f[8];
    int n = 1 + below(t, 7);
    for (int i = 0; i < n; i++) {
        f[i] = (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, below(t, 17) * 4);
        if (one_in(t, 3)) f[i] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_K | (below(t, 5) << 4), below(t, 500), below(t, 3), below(t, 3));
        if (one_in(t, 6)) f[i] = (struct sock_filter){rnd(t), rnd(t), rnd(t), number(t)};
    }
    static const u64 ends[] = {0x7fff0000, 0x7fff0000, 0x7fff0000, 0x7ffc0000, 0x50001, 0x30000, 0x80000000, 0};
    f[n] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, ends[below(t, 8)]);
    struct sock_fprog p = {n + 1, put(t, f, sizeof f)};
    return put(t, &p, sizeof p);
}

// A kernel's struct sigaction.
struct ksigaction { void (*handler)(int); u64 flags; void (*restorer)(void); u64 mask; };

static void *small_struct(struct thread *t, enum what w) {
    u64 v[16];
    for (int i = 0; i < 16; i++) v[i] = one_in(t, 3) ? number(t) : below(t, 16);
    switch (w) {
    case S_TIMESPEC: { struct timespec s = soon(t); return put(t, &s, sizeof s); }
    case S_ITIMERSPEC: { struct timespec s[2] = {soon(t), soon(t)}; return put(t, s, sizeof s); }
    case S_TIMEVAL: case S_ITIMERVAL: { struct timespec s[2] = {soon(t), soon(t)}; s[0].tv_nsec /= 1000, s[1].tv_nsec /= 1000; return put(t, s, sizeof s); }
    // (Mostly without what wakes a thread that waits.)
    case S_SIGSET: v[0] = (one_in(t, 2) ? 1ul << below(t, 64) : rnd(t) & rnd(t)) & ~(one_in(t, 20) ? 0 : 1ul << 9); return put(t, v, 8);
    case S_PSIGSET: v[0] = (u64)small_struct(t, S_SIGSET), v[1] = 8; return put(t, v, 16);
    case S_SIGACTION: {
        struct ksigaction a = {one_in(t, 2) ? any_handler : (void *)below(t, 2), 0x04000000 | (rnd(t) & 0xd8000007), restorer, rnd(t) & rnd(t) & rnd(t)};
        if (one_in(t, 20)) a.handler = (void *)number(t);
        return put(t, &a, sizeof a);
    }
    case S_SIGINFO: { int s[32] = {below(t, 65), 0, -(int)below(t, 8)}; if (one_in(t, 8)) s[2] = number(t); s[4] = process(t); return put(t, s, sizeof s); }
    case S_SIGEVENT: { int s[16] = {number(t), 0, below(t, 65), (int[]){0, 1, 2, 4}[below(t, 4)], id(t, PIDS)}; return put(t, s, sizeof s); }
    case S_STACK: v[0] = (u64)room(t, 8 * PAGE), v[1] = one_in(t, 2) ? 0 : number(t), v[2] = one_in(t, 2) ? 8 * PAGE : number(t); return put(t, v, 24);
    case S_RLIMIT: return put(t, v, 16);
    case S_CAPHEAD: { unsigned s[2] = {(unsigned[]){0x20080522, 0x20080522, 0x20071026, 0x19980330, 7}[below(t, 5)], one_in(t, 2) ? 0 : process(t)}; return put(t, s, 8); }
    case S_CAPS: { unsigned s[6]; for (int i = 0; i < 6; i++) s[i] = one_in(t, 2) ? -1u : rnd(t); return put(t, s, 24); }
    case S_SEMBUF: { short s[12]; for (int i = 0; i < 12; i += 3) s[i] = below(t, 4), s[i + 1] = (int)below(t, 5) - 2, s[i + 2] = (int[]){04000, 04000, 014000, 010000, 0}[below(t, 5)]; return put(t, s, 24); }
    case S_EPEV: { struct { unsigned e; u64 d; } __attribute__((packed)) s = {rnd(t) & 0xf000201f, id(t, PIDS)}; return put(t, &s, 12); }
    case S_CLONE: {
        u64 flags = 0;
        for (int i = below(t, 4); i > 0; i--) flags |= (u64[]){0x1000, 0x200, 0x400, 0x2000, 0x8000, 0x20000, 0x02000000, 0x10000000, 0x20000000, 0x40000000, 0x4000000, 0x100000000, 0x200000000}[below(t, 13)];
        u64 c[11] = {flags, (u64)room(t, 4), (u64)room(t, 4), (u64)room(t, 4), one_in(t, 3) ? below(t, 70) : 17, 0, 0, 0, 0, 0, 0};
        if (one_in(t, 8)) c[8] = (u64)room(t, 16), c[9] = below(t, 3), c[10] = descriptor(t, REG);
        return put(t, c, 88);
    }
    case S_OPENHOW: { u64 h[4] = {rnd(t) & 03777700 & rnd(t), one_in(t, 2) ? 0600 : 0, one_in(t, 2) ? below(t, 64) : 0, 0}; if (one_in(t, 2)) h[0] &= ~0100ul, h[1] = 0; return put(t, h, 32); }
    case S_IOCB: {
        struct { u64 data; unsigned key, rw; uint16_t op; int16_t prio; unsigned fd; u64 buf, len, off, reserved; unsigned flags, resfd; } r = {
            number(t), one_in(t, 8), one_in(t, 4) ? 1u << below(t, 8) : 0, (int[]){0, 0, 1, 1, 2, 3, 5, 5, 5, 6, 7, 8, 9}[below(t, 13)], one_in(t, 6) ? rnd(t) : 0, descriptor(t, ANY), 0, 0, 0, one_in(t, 20), below(t, 4) & rnd(t), descriptor(t, EVENT)};
        if (r.op == 5) r.buf = one_in(t, 8) ? number(t) : below(t, 0x4000);
        else if (r.op != 2 && r.op != 3) r.buf = (u64)room(t, 64), r.len = one_in(t, 6) ? number(t) : below(t, 64), r.off = one_in(t, 6) ? number(t) : below(t, 100);
        return put(t, &r, sizeof r);
    }
    case S_IOCBS: { void *l[4]; for (int i = 0; i < 4; i++) l[i] = small_struct(t, S_IOCB); return put(t, l, sizeof l); }
    case S_FLOCK: { struct flock f = {.l_type = below(t, 4), .l_whence = below(t, 3), .l_start = one_in(t, 6) ? number(t) : below(t, 100), .l_len = one_in(t, 6) ? number(t) : below(t, 100)}; return one_in(t, 2) ? put(t, &f, sizeof f) : (void *)(one_in(t, 2) ? descriptor(t, ANY) : number(t)); }
    // A futex's, an offset or an id: on few addresses, so that they meet.
    case S_WORD: { unsigned *p = (unsigned *)(t->arena + (one_in(t, 2) ? 0 : ARENA / 2) + 8 * below(t, 8)); if (one_in(t, 2)) *p = below(t, 4); return one_in(t, 4) ? 0 : p; }
    case S_LEN: { int n = one_in(t, 6) ? (int)number(t) : 128; return put(t, &n, 4); }
    case S_SHMID: return one_in(t, 3) ? (void *)below(t, 64) : put(t, v, sizeof v);
    case S_MQATTR: { u64 a[8] = {one_in(t, 2) ? 0 : 04000, one_in(t, 8) ? number(t) : 1 + below(t, 10), one_in(t, 8) ? number(t) : 1 + below(t, 128)}; return put(t, a, sizeof a); }
    case S_RULESET: { u64 a[3] = {one_in(t, 6) ? number(t) : rnd(t) & 0xffff, below(t, 4), one_in(t, 2) ? 0 : below(t, 4)}; return put(t, a, sizeof a); }
    // A directory's, packed; or a port's.
    case S_RULE: { u64 a[2] = {one_in(t, 6) ? number(t) : rnd(t) & 0xffff, one_in(t, 2) ? descriptor(t, one_in(t, 2) ? PATH_ : DIR_) : below(t, 65536)}; if (one_in(t, 3)) a[0] &= 3; return put(t, a, sizeof a); }
    case S_BPF: return bpf_attr(t);
    case S_SCHED: { int p = one_in(t, 2) ? 0 : (int)number(t); return put(t, &p, 4); }
    case S_OPTION: { int o[32] = {one_in(t, 2) ? (int)number(t) : (int)below(t, 2), below(t, 3)}; return put(t, o, sizeof o); }
    default: return put(t, v, sizeof v);
    }
}
static void *any_struct(struct thread *t, enum what w) {
    switch (w) {
    case S_MSG: { u64 m[64] = {below(t, 4)}; return put(t, m, sizeof m); }
    case S_MSGHDR: { struct msghdr m = message(t); return put(t, &m, sizeof m); }
    case S_MMSGHDR: {
        struct mmsghdr m[4] = {0};
        for (int i = 0; i < 4; i++) m[i].msg_hdr = message(t);
        return put(t, m, sizeof m);
    }
    case S_IOV: return iovs(t);
    case S_SOCKADDR: { struct sockaddr_storage s; address(t, &s); return put(t, &s, sizeof s); }
    case S_POLLFDS: { struct pollfd p[16]; for (int i = 0; i < 16; i++) p[i] = (struct pollfd){descriptor(t, ANY), rnd(t), 0}; return put(t, p, sizeof p); }
    case S_FDSET: { u64 s[16]; for (int i = 0; i < 16; i++) s[i] = rnd(t) & rnd(t); return one_in(t, 3) ? 0 : put(t, s, sizeof s); }
    case S_FPROG: return program_of_filter(t);
    default: return one_in(t, 20) ? 0 : small_struct(t, w);
    }
}

// Bytes: random, or some struct.
static u64 bytes(struct thread *t) {
    switch (below(t, 4)) {
    case 0: return (u64)any_struct(t, 1 + below(t, S_KINDS - 1));
    case 1: { char text[64]; static const char *const s[] = {"1", "0\n", "-1", "0 1000 1\n", "deny", "max", "99999999999999999999", "+cpu", "lowerdir=.,upperdir=sub,workdir=sub2", "size=1m,mode=777"};
        memset(text, 0, sizeof text); strcpy(text, s[below(t, 10)]); return (u64)put(t, text, strlen(text) + 1); }
    case 2: return one_in(t, 8) ? id(t, MAPPING) : (u64)room(t, 4 * PAGE);
    default: return (u64)room(t, below(t, 512));
    }
}
static u64 path(struct thread *t) {
    char text[PAGE + 64];
    const char *p = pools.paths[one_in(t, 3) ? below(t, pools.system_paths) : pools.system_paths + below(t, pools.path_count - pools.system_paths)];
    u64 n = strlen(p) + 1;
    memcpy(text, p, n);
    switch (below(t, 24)) {
    case 0: memset(text, "/xa."[below(t, 4)], n = PAGE - 1 + below(t, 3)); text[n - 1] = 0; break;
    case 1: text[below(t, n)] = rnd(t); text[n] = 0, n++; break;
    case 2: return bytes(t);
    case 3: memcpy(text + n - 1, (char *[]){"/", "/.", "/..", "/x"}[below(t, 4)], 4); n += 4; text[n - 1] = 0; break;
    case 4: {
        char *e = text; memcpy(e, "/proc/self/fd/", 14); e += 14; u64 fd = descriptor(t, ANY) & 255;
        if (fd >= 100) *e++ = '0' + fd / 100;
        if (fd >= 10) *e++ = '0' + fd / 10 % 10;
        *e++ = '0' + fd % 10, *e++ = 0, n = e - text;
        break;
    }
    }
    return (u64)put(t, text, n);
}
static u64 name(struct thread *t, int type) {
    static const char *const names[] = {"user.a", "user.b", "trusted.a", "security.capability", "system.posix_acl_access", "user.", "x"};
    static const char *const types[] = {"tmpfs", "proc", "sysfs", "overlay", "devpts", "mqueue", "cgroup2", "cgroup", "ext4", "bind", "ramfs"};
    static const char *const queues[] = {"q1", "q2", "q3", "q4", "/", "."};
    static const char *const keys[] = {"keyring", "user", "logon", "big_key", "nosuch"};
    if (type == 3) return (u64)put(t, keys[below(t, 5)], 8);
    if (type == 2) return (u64)put(t, queues[below(t, 6)], 3);
    const char *s = type ? types[below(t, 11)] : names[below(t, 7)];
    return (u64)put(t, s, strlen(s) + 1);
}
static u64 strings(struct thread *t) {
    static char seed[20];
    for (int i = 0; i < 8; i++) seed[i] = 'a' + below(t, 16);
    char *v[6] = {"calls", "-x", seed, 0, 0, 0};
    if (one_in(t, 3)) for (int i = 0; i < 4; i++) v[i] = (char *)bytes(t);
    return (u64)put(t, v, sizeof v);
}

u64 argument(struct thread *t, const struct call *c, int i) {
    const struct arg *a = &c->a[i];
    u64 v = (u64)a->v;
    if (one_in(t, 80)) return number(t);
    switch (a->kind) {
    case FD: return descriptor(t, v);
    case DIRFD: return one_in(t, 2) ? (u64)AT_FDCWD : descriptor(t, DIR_);
    case PATH: return path(t);
    case NAME: return name(t, v);
    case BUF: return bytes(t);
    case LEN: return one_in(t, 16) ? number(t) : one_in(t, 3) ? below(t, 2 * PAGE) : below(t, 128);
    case STRUCT: return (u64)any_struct(t, v);
    case WORD_OR_NOT: return one_in(t, 4) ? (u64)any_struct(t, S_WORD) : 0;
    case ID: return id(t, v);
    case PID: case TID: return process(t);
    case UID: return user(t);
    case SIG: return one_in(t, 3) ? 0 : one_in(t, 3) ? 32 + below(t, 34) : one_in(t, 2) ? 10 + 2 * below(t, 2) : below(t, 32);
    case INT: return one_in(t, 6) ? number(t) : below(t, 20);
    case NUM: return number(t);
    case OFFSET: return file_offset(t);
    case MODE: return one_in(t, 2) ? 0777 : below(t, 010000) | (one_in(t, 2) ? below(t, 16) << 12 : 0);
    case ADDR: return one_in(t, 8) ? number(t) : one_in(t, 3) ? 0 : one_in(t, 3) ? (u64)t->arena + below(t, ARENA / PAGE) * PAGE : id(t, MAPPING) + below(t, 4) * PAGE;
    case MAPLEN: return one_in(t, 16) ? number(t) : one_in(t, 8) ? below(t, 4096) * PAGE : (1 + below(t, 16)) * PAGE - (one_in(t, 8) ? below(t, PAGE) : 0);
    case FDPAIR: return (u64)room(t, 8);
    case ARGV: return one_in(t, 8) ? 0 : strings(t);
    case BITS: return bits(t, a->v);
    case ONE: return one_in(t, 30) ? number(t) : from(t, a->v);
    default: return 0;
    }
}

void add_fd(struct thread *t, enum fd_kind k, int fd) { pools.fds[k][below(t, RING)] = fd; }
void add_id(struct thread *t, enum id_kind k, u64 v) { pools.ids[k][below(t, RING)] = v; }

void learn(struct thread *t, const struct call *c, u64 result) {
    if (result > -4096ul) return;
    if (c->nr == SYS_pipe || c->nr == SYS_pipe2 || c->nr == SYS_socketpair) {
        const int *p = (const int *)t->args[c->nr == SYS_socketpair ? 3 : 0];
        if ((uint8_t *)p < t->arena || (uint8_t *)p >= t->arena + ARENA) return;
        for (int i = 0; i < 2; i++) add_fd(t, c->nr == SYS_socketpair ? SOCK : PIPE, p[i]);
    } else if (c->nr == SYS_io_setup) {
        const u64 *p = (const u64 *)t->args[1];
        if ((uint8_t *)p >= t->arena && (uint8_t *)p < t->arena + ARENA) add_id(t, AIO, *p);
    } else if (c->gives >= 64 && c->gives != 255) {
        add_id(t, c->gives - 64, result);
    } else if (c->gives != 255 && result < 1024) {
        if (c->nr == SYS_fcntl && t->args[1] != 0 && t->args[1] != 1030) return;
        add_fd(t, c->gives, result);
    }
}
