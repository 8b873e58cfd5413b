// A network between two devices, as bad as it is told to be: relay SEED LEFT RIGHT [NAME=VALUE]...
//
//   loss=PERCENT        frames that are lost               corrupt=PERCENT   frames with one bit turned
//   duplicate=PERCENT   frames that come twice             delay=MS          what each frame takes, one way
//   reorder=PERCENT,MS  frames that take so much longer    rate=MBIT         bits a second (0: as they come)
//   queue=BYTES         room before the rate               mtu=BYTES         larger packets vanish, untold
//   only=right|left     the other direction takes the delay and the rate alone
//
// What happens to a frame follows from the seed, its direction and its name alone: of a connection's bytes, the how
// manieth connection it is, which segment, and how often that came before; of others, their number. So two ends that
// send the same lose the same. The devices' large frames are cut here, so that what is lost is what a wire would lose. On SIGTERM a line tells what was done: frames that came,
// and of them how many were lost, turned, doubled, late, without room and too large. "ready" is the first line.
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <linux/if_packet.h>
#include <linux/virtio_net.h>
#include <net/ethernet.h>
#include <net/if.h>
#include <poll.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#ifndef PACKET_IGNORE_OUTGOING
#define PACKET_IGNORE_OUTGOING 23
#endif

enum { HEADER = 14, MOST = 70000, SEGMENT_MOST = 16384 };

static struct {
    double loss, corrupt, duplicate, reorder, late, delay, rate;
    double queue;
    long mtu;
    const char *only;
} o = {.queue = 1e9, .mtu = 1 << 20};

static struct way {
    int from, to;
    uint64_t seed, number, name;
    // When the wire is free again, in ns.
    double busy;
    long came, lost, turned, doubled, late, full, large;
    int is_bad;
} ways[2];

static void must(int ok, const char *what) {
    if (!ok) {
        perror(what);
        exit(1);
    }
}

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1e9 + t.tv_nsec;
}

// splitmix64: the n-th number of a seed.
static uint64_t mix(uint64_t z) {
    z += 0x9e3779b97f4a7c15;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
    z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
    return z ^ (z >> 31);
}

static double chance(struct way *w, int what) {
    return (mix(w->seed ^ mix(w->name * 8 + what)) >> 11) * (100.0 / (1ull << 53));
}

// Connections, as one direction sees them, and how often which segment came.
enum { FLOWS = 4096, SEGMENTS = 1 << 22, UNIT = 1400 };
struct flow {
    uint64_t ends;
    uint32_t first, others;
};
static struct flow flows[2][FLOWS];
static int known[2];
static struct {
    uint64_t key, times;
} segments[SEGMENTS];

static uint32_t get32(const unsigned char *p) { return (uint32_t)p[0] << 24 | p[1] << 16 | p[2] << 8 | p[3]; }

// How often this was asked before.
static uint64_t times(uint64_t key) {
    size_t i = mix(key) % SEGMENTS;
    for (size_t n = 0; n < SEGMENTS; n++, i = (i + 1) % SEGMENTS)
        if (!segments[i].key || segments[i].key == key) {
            segments[i].key = key;
            return segments[i].times++;
        }
    return 0;
}

static uint64_t name_of(struct way *w, const unsigned char *frame, int len) {
    int d = w - ways, six = (frame[HEADER] >> 4) == 6, tcp = HEADER + (six ? 40 : (frame[HEADER] & 15) * 4);
    int kind = frame[12] << 8 | frame[13];
    if ((kind != ETH_P_IP && kind != ETH_P_IPV6) || frame[HEADER + (six ? 6 : 9)] != 6 || len < tcp + 20) return mix(w->number);
    uint32_t seq = get32(frame + tcp + 4);
    uint64_t ends = mix(get32(frame + tcp));
    for (int i = HEADER + (six ? 8 : 12); i < tcp; i += 4) ends = mix(ends ^ get32(frame + i));
    struct flow *f = NULL;
    for (int i = known[d] - 1; i >= 0 && !f; i--)
        if (flows[d][i].ends == ends) f = &flows[d][i];
    if (frame[tcp + 13] & 2 && (!f || f->first != seq) && known[d] < FLOWS) {
        f = &flows[d][known[d]++];
        *f = (struct flow){ends, seq, 0};
    }
    if (!f) return mix(w->number);
    uint64_t nth = f - flows[d], data = len - tcp - (frame[tcp + 12] >> 4) * 4;
    if (!data) return mix(mix(nth * 2) ^ f->others++);
    uint64_t key = mix(mix(nth * 2 + 1) ^ (seq - f->first) / UNIT) * 2 + d;
    return mix(key ^ mix(times(key | 1)));
}

// Frames on their way: a heap by the time when they arrive, then by the order in which they left.
struct flying {
    double at;
    uint64_t order;
    int to, len;
    unsigned char *bytes;
};
static struct flying *heap;
static size_t flying, room;

static int is_before(const struct flying *a, const struct flying *b) {
    return a->at < b->at || (a->at == b->at && a->order < b->order);
}

static void push(struct flying f) {
    if (flying == room) {
        room = room ? 2 * room : 1024;
        heap = realloc(heap, room * sizeof *heap);
        must(heap != NULL, "realloc");
    }
    size_t i = flying++;
    for (; i > 0 && is_before(&f, &heap[(i - 1) / 2]); i = (i - 1) / 2) heap[i] = heap[(i - 1) / 2];
    heap[i] = f;
}

static struct flying pop(void) {
    struct flying top = heap[0], last = heap[--flying];
    size_t i = 0;
    for (;;) {
        size_t c = 2 * i + 1;
        if (c >= flying) break;
        if (c + 1 < flying && is_before(&heap[c + 1], &heap[c])) c++;
        if (!is_before(&heap[c], &last)) break;
        heap[i] = heap[c];
        i = c;
    }
    heap[i] = last;
    return top;
}

static void fly(struct way *w, const unsigned char *frame, int len, double at) {
    static uint64_t order;
    unsigned char *copy = malloc(len);
    must(copy != NULL, "malloc");
    memcpy(copy, frame, len);
    push((struct flying){at, order++, w->to, len, copy});
}

// A frame of the wire's size.
static void forward(struct way *w, unsigned char *frame, int len) {
    double t = now(), departs = t, at;
    w->came++;
    w->number++;
    w->name = name_of(w, frame, len);
    if (len - HEADER > o.mtu && w->is_bad) {
        w->large++;
        return;
    }
    if (o.rate > 0) {
        double a_byte = 8e3 / o.rate, begins = w->busy > t ? w->busy : t;
        if ((begins - t) / a_byte + len > o.queue) {
            w->full++;
            return;
        }
        departs = w->busy = begins + len * a_byte;
    }
    at = departs + o.delay * 1e6;
    if (!w->is_bad) {
        fly(w, frame, len, at);
        return;
    }
    if (chance(w, 0) < o.loss) {
        w->lost++;
        return;
    }
    if (chance(w, 1) < o.corrupt) {
        uint64_t where = mix(w->seed ^ w->name) % ((len - HEADER) * 8);
        frame[HEADER + where / 8] ^= 1 << where % 8;
        w->turned++;
    }
    if (chance(w, 2) < o.reorder) {
        at += o.late * 1e6;
        w->late++;
    }
    fly(w, frame, len, at);
    if (chance(w, 3) < o.duplicate) {
        fly(w, frame, len, at);
        w->doubled++;
    }
}

static uint32_t sum(uint32_t s, const unsigned char *p, int len) {
    for (; len > 1; p += 2, len -= 2) s += p[0] << 8 | p[1];
    if (len) s += p[0] << 8;
    return s;
}

static uint16_t fold(uint32_t s) {
    while (s >> 16) s = (s & 0xffff) + (s >> 16);
    return ~s;
}

static void put16(unsigned char *p, unsigned v) {
    p[0] = v >> 8;
    p[1] = v;
}

// One piece of a large segment of TCP, `done` bytes behind its begin.
static void piece(struct way *w, const unsigned char *frame, int tcp, int data, int done, int len, int number, int is_last) {
    unsigned char p[MOST];
    int six = (frame[HEADER] >> 4) == 6, n = data - tcp + len;
    memcpy(p, frame, data);
    memcpy(p + data, frame + data + done, len);
    uint32_t pseudo = 6 + n;
    if (six) {
        put16(p + HEADER + 4, tcp - HEADER - 40 + n);
        pseudo = sum(pseudo, p + HEADER + 8, 32);
    } else {
        unsigned char *ip = p + HEADER;
        put16(ip + 2, tcp - HEADER + n);
        put16(ip + 4, (ip[4] << 8 | ip[5]) + number);
        put16(ip + 10, 0);
        put16(ip + 10, fold(sum(0, ip, tcp - HEADER)));
        pseudo = sum(pseudo, ip + 12, 8);
    }
    uint32_t seq = htonl(get32(p + tcp + 4) + done);
    memcpy(p + tcp + 4, &seq, 4);
    if (!is_last) p[tcp + 13] &= ~(1 | 8);
    if (done) p[tcp + 13] &= ~0x80;
    put16(p + tcp + 16, 0);
    put16(p + tcp + 16, fold(sum(pseudo, p + tcp, n)));
    forward(w, p, data + len);
}

static void take(struct way *w, struct virtio_net_hdr *h, unsigned char *frame, int len) {
    int kind = h->gso_type & ~VIRTIO_NET_HDR_GSO_ECN;
    if (kind == VIRTIO_NET_HDR_GSO_TCPV4 || kind == VIRTIO_NET_HDR_GSO_TCPV6) {
        int tcp = h->csum_start, data = tcp + (frame[tcp + 12] >> 4) * 4;
        if (data > len || h->gso_size == 0 || h->gso_size > SEGMENT_MOST) return;
        for (int done = 0; done < len - data; done += h->gso_size) {
            int left = len - data - done, n = left < h->gso_size ? left : h->gso_size;
            piece(w, frame, tcp, data, done, n, done / h->gso_size, left == n);
        }
        return;
    }
    if (kind != VIRTIO_NET_HDR_GSO_NONE) return;
    if (h->flags & VIRTIO_NET_HDR_F_NEEDS_CSUM) {
        int start = h->csum_start, at = start + h->csum_offset;
        if (at + 2 > len) return;
        uint16_t s = fold(sum(0, frame + start, len - start));
        put16(frame + at, s ? s : 0xffff);
    }
    forward(w, frame, len);
}

static int open_device(const char *name) {
    int fd = socket(AF_PACKET, SOCK_RAW | SOCK_NONBLOCK, 0), on = 1, much = 64 << 20;
    must(fd >= 0, "socket");
    must(setsockopt(fd, SOL_PACKET, PACKET_VNET_HDR, &on, sizeof on) == 0, "PACKET_VNET_HDR");
    must(setsockopt(fd, SOL_PACKET, PACKET_IGNORE_OUTGOING, &on, sizeof on) == 0, "PACKET_IGNORE_OUTGOING");
    must(setsockopt(fd, SOL_SOCKET, SO_RCVBUFFORCE, &much, sizeof much) == 0, "SO_RCVBUFFORCE");
    must(setsockopt(fd, SOL_SOCKET, SO_SNDBUFFORCE, &much, sizeof much) == 0, "SO_SNDBUFFORCE");
    struct sockaddr_ll a = {.sll_family = AF_PACKET, .sll_protocol = htons(ETH_P_ALL), .sll_ifindex = if_nametoindex(name)};
    must(bind(fd, (void *)&a, sizeof a) == 0, name);
    return fd;
}

static void receive(struct way *w) {
    static unsigned char bytes[sizeof(struct virtio_net_hdr) + MOST];
    struct virtio_net_hdr h;
    for (int i = 0; i < 64; i++) {
        ssize_t n = recv(w->from, bytes, sizeof bytes, 0);
        if (n < 0 && (errno == EAGAIN || errno == ENETDOWN)) return;
        if (n < (ssize_t)(sizeof h + HEADER)) continue;
        memcpy(&h, bytes, sizeof h);
        take(w, &h, bytes + sizeof h, n - sizeof h);
    }
}

static void arrive(struct flying f) {
    unsigned char bytes[sizeof(struct virtio_net_hdr) + MOST] = {0};
    memcpy(bytes + sizeof(struct virtio_net_hdr), f.bytes, f.len);
    // (A full device loses it, as a wire would.)
    if (send(f.to, bytes, sizeof(struct virtio_net_hdr) + f.len, 0) < 0 && errno != ENETDOWN && errno != EAGAIN) perror("send");
    free(f.bytes);
}

static void parse(const char *a) {
    double v, m;
    if (sscanf(a, "loss=%lf", &v) == 1) o.loss = v;
    else if (sscanf(a, "corrupt=%lf", &v) == 1) o.corrupt = v;
    else if (sscanf(a, "duplicate=%lf", &v) == 1) o.duplicate = v;
    else if (sscanf(a, "delay=%lf", &v) == 1) o.delay = v;
    else if (sscanf(a, "reorder=%lf,%lf", &v, &m) == 2) o.reorder = v, o.late = m;
    else if (sscanf(a, "rate=%lf", &v) == 1) o.rate = v;
    else if (sscanf(a, "queue=%lf", &v) == 1) o.queue = v;
    else if (sscanf(a, "mtu=%lf", &v) == 1) o.mtu = v;
    else if (strncmp(a, "only=", 5) == 0) o.only = a + 5;
    else {
        fprintf(stderr, "relay: %s?\n", a);
        exit(2);
    }
}

static void report(void) {
    for (int i = 0; i < 2; i++) {
        struct way *w = &ways[i];
        printf("%s came=%ld lost=%ld turned=%ld doubled=%ld late=%ld full=%ld large=%ld\n", i ? "left" : "right", w->came,
               w->lost, w->turned, w->doubled, w->late, w->full, w->large);
    }
    fflush(stdout);
}

int main(int n, char **v) {
    if (n < 4) {
        fprintf(stderr, "usage: relay SEED LEFT RIGHT [NAME=VALUE]...\n");
        return 2;
    }
    for (int i = 4; i < n; i++) parse(v[i]);
    sigset_t ends;
    sigemptyset(&ends);
    sigaddset(&ends, SIGTERM);
    sigprocmask(SIG_BLOCK, &ends, NULL);
    int signals = signalfd(-1, &ends, 0), left = open_device(v[2]), right = open_device(v[3]);
    prctl(PR_SET_TIMERSLACK, 1);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    for (int i = 0; i < 2; i++) {
        ways[i] = (struct way){.from = i ? right : left, .to = i ? left : right, .seed = mix(strtoull(v[1], NULL, 0) * 2 + i)};
        ways[i].is_bad = !o.only || strcmp(o.only, i ? "left" : "right") == 0;
    }
    puts("ready");
    fflush(stdout);
    struct pollfd p[3] = {{left, POLLIN, 0}, {right, POLLIN, 0}, {signals, POLLIN, 0}};
    for (;;) {
        double wait = flying ? heap[0].at - now() : 1e9;
        if (wait < 0) wait = 0;
        struct timespec t = {wait / 1e9, (long)wait % 1000000000};
        ppoll(p, 3, &t, NULL);
        if (p[2].revents) break;
        receive(&ways[0]);
        receive(&ways[1]);
        for (double until = now(); flying && heap[0].at <= until;) arrive(pop());
    }
    report();
    return 0;
}
