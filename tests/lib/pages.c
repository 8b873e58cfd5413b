/* Touches memory by a plan of random numbers, and looks whether all of it is still there.
 *
 *   pages SEED ROUNDS MB       up to MB of pages are in use at a time, in mappings of 16 MB to 1 GB
 *
 * Prints a sum that depends on the seed alone, or what is wrong. */
#define _GNU_SOURCE
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define PAGE 4096
#define MAPS 6
static uint64_t state;
static uint64_t next(void) {
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return state;
}

static struct map {
    unsigned char *at;
    size_t pages;
    /* The byte that each page begins with; 0: not touched. */
    unsigned char *want;
    size_t used;
} maps[MAPS];

static void make(struct map *m, int shared) {
    m->pages = (16 << (next() % 7)) * 256UL;
    m->at = mmap(0, m->pages * PAGE, PROT_READ | PROT_WRITE,
                 MAP_ANONYMOUS | (shared ? MAP_SHARED : MAP_PRIVATE) | (next() % 2 ? MAP_NORESERVE : 0), -1, 0);
    if (m->at == MAP_FAILED) perror("mmap"), exit(1);
    m->want = calloc(m->pages, 1);
    m->used = 0;
}

static void drop(struct map *m) {
    for (size_t i = 0; i < m->pages; i++)
        if (m->want[i] && (m->at[i * PAGE] != m->want[i] || m->at[i * PAGE + 4095] != m->want[i]))
            printf("page %zu of %zu: %d, %d for %d\n", i, m->pages, m->at[i * PAGE], m->at[i * PAGE + 4095], m->want[i]), exit(1);
    munmap(m->at, m->pages * PAGE);
    free(m->want);
}

int main(int argc, char **argv) {
    if (argc < 4) return 2;
    state = strtoull(argv[1], 0, 10) * 0x9e3779b97f4a7c15ULL + 1;
    size_t rounds = atol(argv[2]), most = atol(argv[3]) * 256UL, used = 0;
    uint64_t sum = 0;
    for (int i = 0; i < MAPS; i++) make(&maps[i], i == 0);
    for (size_t r = 0; r < rounds; r++) {
        struct map *m = &maps[next() % MAPS];
        size_t at = next() % m->pages, n = next() % 4 ? 1 : next() % 64;
        unsigned char b = next() % 255 + 1;
        if (used + n > most || next() % 400 == 0) {
            sum += m->used;
            used -= m->used;
            drop(m);
            make(m, m == maps);
            continue;
        }
        int by_call = next() % 8 == 0;
        for (; n && at < m->pages; n--, at++) {
            used += !m->want[at];
            m->used += !m->want[at];
            m->want[at] = b;
            if (by_call) {
                /* By the kernel. */
                int p[2];
                unsigned char buf[PAGE];
                memset(buf, b, sizeof buf);
                if (pipe(p) || write(p[1], buf, PAGE) != PAGE || read(p[0], m->at + at * PAGE, PAGE) != PAGE)
                    perror("pipe"), exit(1);
                close(p[0]), close(p[1]);
            } else {
                m->at[at * PAGE] = m->at[at * PAGE + 4095] = b;
            }
        }
        if (next() % 4096 == 0) {
            /* A child sees what there is. */
            pid_t child = fork();
            if (!child) {
                for (int i = 0; i < MAPS; i++) drop(&maps[i]);
                _exit(0);
            }
            int status;
            waitpid(child, &status, 0);
            if (status) printf("a child: %x\n", status), exit(1);
        }
    }
    for (int i = 0; i < MAPS; i++) {
        sum += maps[i].used;
        drop(&maps[i]);
    }
    printf("%lu\n", sum);
}
