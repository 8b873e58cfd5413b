// Files in one directory: files DIR. DIR/data is made if it is not there.
#include "bench.h"

#define LARGE (16 << 20)
static char known[4096], fresh[4096];
static char *buffer;
static size_t size;
static int fd;
static off_t at;

static void open_close(long n) {
    for (long i = 0; i < n; i++) {
        int f = open(known, O_RDONLY);
        check(f >= 0, known);
        close(f);
    }
}

static void stat_it(long n) {
    struct stat s;
    for (long i = 0; i < n; i++) check(stat(known, &s) == 0, known);
}

static void create_unlink(long n) {
    for (long i = 0; i < n; i++) {
        int f = open(fresh, O_CREAT | O_EXCL | O_WRONLY, 0600);
        check(f >= 0, fresh);
        close(f);
        check(unlink(fresh) == 0, fresh);
    }
}

// One after the other through the file, and again from its start.
static void next(void) {
    at += size;
    if (at + (off_t)size > LARGE) {
        at = 0;
        check(lseek(fd, 0, SEEK_SET) == 0, "lseek");
    }
}

static void reads(long n) {
    for (long i = 0; i < n; i++) {
        check(read(fd, buffer, size) == (ssize_t)size, "read");
        next();
    }
}

static void writes(long n) {
    for (long i = 0; i < n; i++) {
        check(write(fd, buffer, size) == (ssize_t)size, "write");
        next();
    }
}

static void fill(const char *name) {
    int f = open(name, O_CREAT | O_WRONLY | O_TRUNC, 0600);
    check(f >= 0, name);
    for (int i = 0; i < LARGE >> 20; i++) check(write(f, buffer, 1 << 20) == 1 << 20, "write");
    close(f);
}

static void sizes(const char *name, int flags, const char *what, void (*f)(long)) {
    static const int each[] = {1, 1 << 10, 4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20};
    for (unsigned i = 0; i < sizeof each / sizeof *each; i++) {
        char line[64];
        size = each[i];
        at = 0;
        fd = open(name, flags);
        check(fd >= 0, name);
        snprintf(line, sizeof line, "%s@%d", what, each[i]);
        ns(line, f);
        close(fd);
    }
}

int main(int argc, char **argv) {
    const char *dir = argc > 1 ? argv[1] : ".";
    struct stat s;
    // Aligned: the processor copies to odd addresses at another speed.
    buffer = aligned_alloc(4096, 1 << 20);
    check(buffer != NULL, "aligned_alloc");
    memset(buffer, 1, 1 << 20);
    snprintf(known, sizeof known, "%s/data", dir);
    snprintf(fresh, sizeof fresh, "%s/fresh-%d", dir, getpid());
    if (stat(known, &s) != 0) fill(known);
    ns("open+close", open_close);
    ns("stat", stat_it);
    ns("create+unlink", create_unlink);
    sizes(known, O_RDONLY, "read", reads);
    fill(fresh);
    sizes(fresh, O_WRONLY, "write", writes);
    unlink(fresh);
    return 0;
}
