// What the measuring programs share. Each prints lines of three columns, separated by tabs:
//
//   name <TAB> value <TAB> unit           a measurement; "@N" at the end of a name makes it a point of a series
//   name <TAB> failed <TAB> why           what could not be measured
//
// BENCH_BUDGET_MS is how long one measurement may take, BENCH_PART the share of the counts of those that use
// up memory (1 is all of them). With BENCH_LINE only the measurement of that name is made, for about three times
// the budget, and "rounds <TAB> count" told of it: a profile is to show nothing else. (Programs that make a
// series make all of it.)
#pragma once
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static inline double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1e9 + t.tv_nsec;
}

static inline void check(int ok, const char *what) {
    if (!ok) {
        fprintf(stderr, "%s: %s\n", what, strerror(errno));
        exit(1);
    }
}

static inline double setting(const char *name, double otherwise) {
    const char *s = getenv(name);
    return s ? atof(s) : otherwise;
}

static inline double budget(void) { return setting("BENCH_BUDGET_MS", 50) * 1e6; }

// A count that uses up memory, in the size asked for.
static inline long part(long n) {
    long m = (long)(n * setting("BENCH_PART", 1));
    return m < 1 ? 1 : m;
}

static inline void report(const char *name, double value, const char *unit) {
    printf("%s\t%.2f\t%s\n", name, value, unit);
    fflush(stdout);
}

static inline void failed(const char *name, const char *why) {
    printf("%s\tfailed\t%s\n", name, why);
    fflush(stdout);
}

static inline int wanted(const char *name) {
    const char *only = getenv("BENCH_LINE");
    return !only || strcmp(only, name) == 0;
}

static inline void rounds(long n) {
    if (getenv("BENCH_LINE")) report("rounds", n, "");
}

// Repeats f(n) with growing n until a batch takes the budget; the earlier batches are the warm-up.
static inline double until(void (*f)(long)) {
    long all = 0;
    for (long n = 1;;) {
        double start = now();
        f(n);
        double took = now() - start;
        all += n;
        if (took >= budget()) {
            rounds(all);
            return took / n;
        }
        double grow = took > 0 ? 1.2 * budget() / took : 10;
        n = (long)(n * (grow > 10 ? 10 : grow)) + 1;
    }
}

static inline void ns(const char *name, void (*f)(long)) {
    if (wanted(name)) report(name, until(f), "ns");
}

static inline void us(const char *name, void (*f)(long)) {
    if (wanted(name)) report(name, until(f) / 1000, "us");
}

// Runs f in a child: what it uses up is gone afterwards. False if it failed.
static inline int in_child(void (*f)(void)) {
    fflush(stdout);
    pid_t p = fork();
    check(p >= 0, "fork");
    if (p == 0) {
        f();
        fflush(stdout);
        _exit(0);
    }
    int status = -1;
    check(waitpid(p, &status, 0) == p, "waitpid");
    return status == 0;
}
