// The keeper: inside the sandbox it starts a victim, a bystander and sessions of fuzzers, one after the other in each
// slot, and looks at how they end. `run` starts it, outside, and looks at the sandbox's memory.
//
//   calls SEED SECONDS ROLES DIRECTORY VOLUME BYSTANDER     VOLUME and BYSTANDER may be empty
//   calls --names                                           the calls that are fuzzed
//
// ROLES has a letter for each slot: U a user of its own, R root in namespaces, N root of a user namespace.
#include "calls.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

// How long a session may go on, until it is ended; and how long its end may take. Seconds. (What hangs hangs for ever;
// what does not may get no CPU for tens of seconds: see docs/decisions/0018.)
static const double LONGEST = 2, END = 120;

char *program;
struct tally *tally;
static int failed;
static struct slot { pid_t pid; double since, dying; int killed; u64 seed; char role; } slots[16];
static int slot_count;
static u64 not_begun;
static pid_t victim, bystander;

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec + t.tv_nsec / 1e9;
}
static void say(const char *what, long a, u64 b) {
    printf("%s %ld %016lx\n", what, a, b);
    fflush(stdout);
}
static u64 mixed(u64 seed, u64 slot, u64 n) {
    u64 x = seed * 0x9e3779b97f4a7c15ul + slot * 0xbf58476d1ce4e5b9ul + n + 1;
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9ul, x = (x ^ x >> 27) * 0x94d049bb133111ebul;
    return x ^ x >> 31;
}

static pid_t begin(void) {
    fflush(stdout);
    pid_t p = fork();
    if (p < 0) perror("keeper: fork"), exit(2);
    return p;
}
static void silent(void) {
    int n = open("/dev/null", O_RDWR);
    dup2(n, 0), dup2(n, 1), dup2(n, 2);
    for (int i = 3; i < 64; i++) close(i);
}
static pid_t start_victim(const char *dir, const char *volume) {
    char a[256], b[256] = "";
    snprintf(a, sizeof a, "%s/victim", dir), mkdir(a, 0700);
    if (*volume) snprintf(b, sizeof b, "%s/victim", volume), mkdir(b, 0700);
    int uid = getuid() ? -1 : 1002;
    if (uid > 0) chown(a, uid, uid), *b && chown(b, uid, uid);
    pid_t p = begin();
    if (p == 0) _exit(victim_main(a, b, uid));
    return p;
}
static pid_t start_bystander(const char *path) {
    if (!*path) return 0;
    pid_t p = begin();
    if (p == 0) {
        if (getuid()) execl(path, "bystander", "-l", "1e9", (char *)0);
        else execl(path, "bystander", "-l", "1e9", "-u", "1001", (char *)0);
        perror(path), _exit(2);
    }
    return p;
}
// As an ordinary user's, the sessions' places are theirs to lock: they are opened again.
static void start_session(struct slot *s, u64 seed, char role, const char *base, const char *volume) {
    *s = (struct slot){0, now(), 0, 0, seed, role};
    chmod(base, 0777);
    if (*volume) chmod(volume, 0777);
    s->pid = begin();
    if (s->pid == 0) silent(), session(seed, role, base, volume, victim);
}

// Ends all processes of the fuzzers' user that have left their session.
static void end_users(void) {
    if (getuid()) return;
    pid_t p = begin();
    if (p == 0) {
        if (setgid(1000) || setuid(1000)) _exit(1);
        kill(-1, SIGKILL);
        _exit(0);
    }
    int st;
    while (waitpid(p, &st, 0) < 0 && errno == EINTR) {}
}
static void other_ended(pid_t p, int st) {
    if (p != victim && p != bystander) return;
    say(p == victim ? "FAILED: the victim ended, status" : "FAILED: the bystander ended, status", st, 0);
    failed = 1;
    if (p == victim) victim = 0;
    else bystander = 0;
}
// Of a process that does not end, what the kernel says.
static void tell_state(pid_t p) {
    char path[64], line[256];
    DIR *d;
    snprintf(path, sizeof path, "/proc/%d/task", p), d = opendir(path);
    for (struct dirent *e; d && (e = readdir(d));) {
        if (!atoi(e->d_name)) continue;
        snprintf(path, sizeof path, "/proc/%d/task/%s/status", p, e->d_name);
        FILE *f = fopen(path, "r");
        while (f && fgets(line, sizeof line, f))
            if (!strncmp(line, "Name", 4) || !strncmp(line, "S", 1)) line[strcspn(line, "\n")] = ' ', printf("    %s", line);
        if (f) fclose(f);
        printf("\n");
    }
    if (d) closedir(d);
    fflush(stdout);
}
// Takes note of who has ended; a session that was ended must be gone soon.
static void look(void) {
    int st;
    for (pid_t p; (p = waitpid(-1, &st, WNOHANG)) > 0;) {
        int mine = 0;
        for (int i = 0; i < slot_count; i++)
            if (slots[i].pid == p) slots[i].pid = 0, mine = 1;
        if (mine && WIFEXITED(st) && WEXITSTATUS(st) > 2 && WEXITSTATUS(st) < 7 && not_begun++ < 10) say("a session did not begin", WEXITSTATUS(st), 0);
        if (!mine) other_ended(p, st);
    }
    // While the keeper itself did not run, the others may not have run either.
    static double looked;
    double t = now(), passed = t - looked < 0.1 ? t - looked : 0.1;
    looked = t;
    for (int i = 0; i < slot_count; i++) {
        struct slot *s = &slots[i];
        if (!s->pid) continue;
        if (s->killed) s->dying += passed;
        else if (t - s->since > LONGEST) kill(s->pid, SIGKILL), s->killed = 1;
        if (s->dying > END && s->killed == 1) say("FAILED: a session does not end: process", s->pid, s->seed), failed = 1, s->killed = 2, tell_state(s->pid);
    }
}
static void finish(pid_t *p) {
    int st;
    pid_t q = *p;
    if (!q) return;
    *p = 0;
    kill(q, SIGTERM);
    for (double limit = now() + END; waitpid(q, &st, WNOHANG) != q; usleep(5000))
        if (now() > limit) {
            say("FAILED: the victim or the bystander does not end: process", q, 0), failed = 1, tell_state(q);
            return;
        }
    if (st) say("FAILED: it ended with status", st, 0), failed = 1;
}
static void command(const char *script, const char *a, const char *b) {
    pid_t p = begin();
    if (p == 0) execlp("sh", "sh", "-c", script, a, b, (char *)0), _exit(127);
    int st;
    while (waitpid(p, &st, 0) < 0 && errno == EINTR) {}
}
// What sessions have left: in an hour it is more than can be removed at the end. (No chmod -R: a session may have left a
// link to the whole tree in the place of its directory, and that of a sandbox in memory is copied by it.)
#define OPEN_ALL "find \"$@\" -type d ! -perm -700 -exec chmod u+rwx {} \\; 2>/dev/null; "
static void sweep(const char *base, const char *volume) {
    command("set -- /dev/shm/fz.* \"$0\"/* ${1:+\"$1\"/*}; " OPEN_ALL "rm -rf \"$@\"", base, volume);
}
// The same, also where its owner may not enter, and what the victim had.
static void remove_all(const char *dir, const char *volume) {
    command("set -- /dev/shm/fz.* \"$0\"/f \"$0\"/victim ${1:+\"$1\"/f \"$1\"/victim}; " OPEN_ALL "rm -rf \"$@\"; ipcrm -a", dir, volume);
}

static void told(const char *what) {
    char b[64];
    printf("%s\n", what), fflush(stdout);
    while (read(0, b, sizeof b) < 0 && errno == EINTR) {}
}
static u64 fuzz_for(double seconds, u64 seed, const char *roles, const char *base, const char *volume) {
    double end = now() + seconds;
    u64 sessions = 0, last = 0;
    slot_count = strlen(roles);
    while (now() < end && !failed) {
        look();
        for (int i = 0; i < slot_count; i++)
            if (!slots[i].pid) start_session(&slots[i], mixed(seed, i, sessions++), roles[i], base, volume);
        usleep(5000);
        if (sessions / 256 != last) last = sessions / 256, end_users(), sweep(base, volume);
    }
    for (int i = 0; i < slot_count; i++)
        if (slots[i].pid) kill(slots[i].pid, SIGKILL), slots[i].killed = 1;
    end_users();
    for (double limit = now() + END + 2; now() < limit && !failed; usleep(5000)) {
        int left = 0;
        look();
        for (int i = 0; i < slot_count; i++) left += slots[i].pid != 0;
        if (!left) break;
    }
    return sessions;
}

// How many processes there are besides the keeper, and the shell that waits for it.
static int others(int say_so) {
    int n = 0;
    DIR *d = opendir("/proc");
    for (struct dirent *e; d && (e = readdir(d));) {
        int p = atoi(e->d_name);
        if (!p || p == getpid() || p == getppid()) continue;
        n++;
        if (say_so) say("FAILED: a process is left:", p, 0), tell_state(p);
    }
    closedir(d);
    return n;
}
// With everybody killed, nobody but the keeper is there soon.
static void processes(void) {
    for (double limit = now() + END; others(0) && now() < limit; usleep(5000)) look();
    if (others(1)) failed = 1;
}
static void tell(u64 sessions) {
    u64 made = 0, well = 0;
    for (int i = 0; i < call_count; i++) made += tally[i].made, well += tally[i].well;
    printf("sessions %lu (%lu did not begin), calls %lu, of which %lu succeeded\n", sessions, not_begun, made, well);
    // Few are made by many where something keeps them from it, and nothing is tried.
    if (not_begun > 8 + sessions / 16 || (sessions > 100 && made < 10 * sessions)) say("FAILED: hardly any calls were made", made, 0), failed = 1;
    printf("never succeeded:");
    for (int i = 0; i < call_count; i++)
        if (!tally[i].well) printf(" %s(%lu)", calls[i].name, tally[i].made);
    printf("\n");
}
static int keeper(char **a) {
    u64 seed = strtoul(a[0], 0, 0);
    double seconds = atof(a[1]);
    const char *roles = a[2], *dir = a[3], *volume = a[4];
    char base[256], of_volume[256] = "";
    umask(0);
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    snprintf(base, sizeof base, "%s/f", dir);
    mkdir(dir, 0755), mkdir(base, 0777);
    if (*volume) snprintf(of_volume, sizeof of_volume, "%s/f", volume), mkdir(of_volume, 0777);
    // Twice: what is kept for the next one is there after the first.
    u64 sessions = 0;
    for (int round = 0; round < 2 && !failed; round++) {
        told(round ? "warm" : "cold");
        victim = start_victim(dir, volume), bystander = start_bystander(a[5]);
        sessions += fuzz_for(round ? seconds : seconds / 8 < 10 ? seconds / 8 : 10, mixed(seed, 99, round), roles, base, of_volume);
        finish(&bystander), finish(&victim);
        remove_all(dir, volume);
        mkdir(base, 0777);
        if (*volume) mkdir(of_volume, 0777);
        look();
    }
    tell(sessions), processes();
    told("ended");
    return failed;
}

int main(int argc, char **argv) {
    static char self[256];
    tally = mmap(0, call_count * sizeof *tally, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    program = self;
    if (readlink("/proc/self/exe", self, sizeof self - 1) < 0) return 2;
    if (argc == 2 && !strcmp(argv[1], "--names")) {
        for (int i = 0; i < call_count; i++) printf("%s\n", calls[i].name);
        return 0;
    }
    if (argc >= 3 && !strcmp(argv[1], "-x")) {
        u64 seed = 1;
        for (const char *p = argv[2]; *p; p++) seed = seed * 31 + *p;
        go_on(seed);
    }
    // It takes away what is not its own: in a sandbox only.
    if (argc != 7 || !getenv("IN_SANDBOX")) return 2;
    return keeper(argv + 1);
}
