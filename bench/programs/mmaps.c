// mmap as the number of mappings grows (Exp1), and as their size grows (Exp2); nothing is ever unmapped.
//
//   mmaps counts FILE     4, 16, 64 KB; anonymous, private, shared: the mean of the first 5,000 to 500,000
//   mmaps sizes FILE      1 KB to 1 MB, 25,000 mappings each
#include "bench.h"

static const char *kinds[] = {"anonymous", "private", "shared"};
static int file, kind;
static size_t size;
static long last;
static const long *points;
static char form[64];

// A pass that takes longer tells what it has, and that the rest was left.
#define LONGEST 10e9

static void name_of(char *to, size_t room, long point) {
    snprintf(to, room, form, kinds[kind], point);
}

static void pass(void) {
    int flags = kind == 0 ? MAP_PRIVATE | MAP_ANONYMOUS : kind == 1 ? MAP_PRIVATE : MAP_SHARED;
    char name[64], why[96];
    double start = now();
    long point = 0;
    for (long i = 0; i < last; i++) {
        void *p = mmap(NULL, size, PROT_READ | PROT_WRITE, flags, kind == 0 ? -1 : file, 0);
        int late = i % 256 == 0 && now() - start > LONGEST;
        if (p == MAP_FAILED || late) {
            if (late)
                snprintf(why, sizeof why, "stopped after %ld mappings: too slow", i);
            else if (errno == ENOMEM && i > 65000 && i <= 65536)
                snprintf(why, sizeof why, "stopped after %ld mappings: vm.max_map_count", i);
            else
                snprintf(why, sizeof why, "%s after %ld mappings", strerror(errno), i);
            for (; points[point]; point++) {
                name_of(name, sizeof name, points[point]);
                failed(name, why);
            }
            return;
        }
        if (i + 1 == points[point]) {
            name_of(name, sizeof name, points[point]);
            report(name, (now() - start) / (i + 1), "ns");
            point++;
        }
    }
}

static void counts(void) {
    static const long sizes[] = {4, 16, 64};
    static long each[] = {5000, 10000, 25000, 50000, 100000, 200000, 500000, 0};
    for (int i = 0; each[i]; i++) each[i] = part(each[i]);
    points = each;
    last = each[6];
    for (int s = 0; s < 3; s++)
        for (kind = 0; kind < 3; kind++) {
            size = sizes[s] << 10;
            snprintf(form, sizeof form, "%ld KB, %%s@%%ld", sizes[s]);
            in_child(pass);
        }
}

static void sizes(void) {
    static long point[2];
    points = point;
    last = part(25000);
    for (kind = 0; kind < 3; kind++)
        for (size = 1 << 10; size <= 1 << 20; size *= 2) {
            // The name carries the size, not the count.
            snprintf(form, sizeof form, "%%s@%zu", size);
            point[0] = last;
            in_child(pass);
        }
}

int main(int argc, char **argv) {
    check(argc > 2, "mmaps counts|sizes FILE");
    file = open(argv[2], O_RDWR);
    check(file >= 0, argv[2]);
    if (strcmp(argv[1], "counts") == 0)
        counts();
    else
        sizes();
    return 0;
}
