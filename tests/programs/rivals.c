/* Two who change the same files at the same time: tests/volumes runs a role or two, inside and on the host. Roles:
 *   make KIND DIR       makes the file `x` (a directory, a FIFO, a link) as uid 1000, again and again, until there is `stop`
 *   swap DIR SECONDS    puts root's `victim` in its place, as uid 1000: `taken` if that became its own
 *   own DIR SECONDS     root gives a file away and takes it back, while its user sets u+s: `kept` if the bit stays
 *   lend DIR SECONDS    root does that alone: the user is elsewhere (`set`), or there is none
 *   set DIR             sets u+s, as uid 1000, until there is `stop`
 *   run DIR SECONDS     as `own`, while the user runs the file: `raised` if it ever was root's
 * and `safe` otherwise. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static void be_user(void) {
    if (setgid(1000) || setuid(1000)) exit(9);
}
static int stopped(void) { return !access("stop", F_OK); }
static void stop(void) { close(open("stop", O_CREAT | O_WRONLY, 0666)); }
static int say(const char *word) {
    puts(word);
    return 0;
}

static int make(const char *kind) {
    be_user();
    for (long n = 0; n % 20 || !stopped(); n++) {
        if (*kind == 'd') mkdir("x", 0755);
        else if (*kind == 'f') mknod("x", S_IFIFO | 0644, 0);
        else symlink("nowhere", "x");
    }
    return 0;
}

static int swap(int seconds) {
    struct stat old, s;
    lstat("victim", &old);
    be_user();
    int taken = 0;
    for (time_t end = time(0) + seconds; !taken && time(0) <= end;) {
        if (!renameat2(AT_FDCWD, "victim", AT_FDCWD, "x", RENAME_EXCHANGE)) {
            usleep(2000);
            taken = !lstat("x", &s) && s.st_ino == old.st_ino && s.st_uid == 1000;
            renameat2(AT_FDCWD, "victim", AT_FDCWD, "x", RENAME_EXCHANGE);
        }
        remove("x");
    }
    stop();
    return say(taken ? "taken" : "safe");
}

static int set(void) {
    be_user();
    for (long n = 0; n % 50 || !stopped(); n++) chmod("tool", 04755);
    return 0;
}

static void copy_self(void) {
    struct stat s;
    off_t at = 0;
    unlink("tool");
    int from = open("/proc/self/exe", O_RDONLY), to = open("tool", O_CREAT | O_WRONLY, 0755);
    fstat(from, &s);
    while (at < s.st_size && sendfile(to, from, &at, 1 << 20) > 0);
    close(from), close(to);
    chown("tool", 1000, 1000);
}

static int lend(int seconds) {
    struct stat s;
    int kept = 0;
    long n = 0;
    for (time_t end = time(0) + seconds; !kept && time(0) <= end; n++) {
        chown("tool", 1000, 1000);
        usleep(n % 100);
        if (chown("tool", 0, 0)) return say(strerror(errno));
        usleep(200);
        stat("tool", &s);
        kept = s.st_uid == 0 && s.st_mode & S_ISUID;
        if (kept) {
            /* A Gofer that came later sees that itself, and takes the bit away. */
            usleep(200000);
            stat("tool", &s);
            kept = s.st_mode & S_ISUID;
        }
    }
    stop();
    return say(kept ? "kept" : "safe");
}

static int own(int seconds) {
    copy_self();
    pid_t user = fork();
    if (!user) _exit(set());
    lend(seconds);
    waitpid(user, 0, 0);
    return 0;
}

/* The user runs it three times for each time that root takes it. */
static int run(int seconds) {
    int go[2], at[2], status, raised = 0;
    char c;
    copy_self();
    if (pipe(go) || pipe(at)) return 2;
    pid_t user = fork();
    if (!user) {
        be_user();
        close(go[1]);
        while (read(go[0], &c, 1) == 1) {
            chmod("tool", 04755);
            write(at[1], "x", 1);
            for (int i = 0; i < 3; i++) {
                pid_t p = vfork();
                if (!p) {
                    execl("tool", "payload", (char *)0);
                    _exit(1);
                }
                waitpid(p, &status, 0);
                raised |= WIFEXITED(status) && WEXITSTATUS(status) == 42;
            }
            write(at[1], "y", 1);
        }
        _exit(raised);
    }
    close(go[0]);
    long n = 0;
    for (time_t end = time(0) + seconds; time(0) <= end; n++) {
        write(go[1], "g", 1);
        read(at[0], &c, 1);
        for (volatile int i = 0; i < n % 300 * 60; i++);
        chown("tool", 0, 0);
        read(at[0], &c, 1);
        chown("tool", 1000, 1000);
    }
    close(go[1]);
    waitpid(user, &status, 0);
    return say(WEXITSTATUS(status) ? "raised" : "safe");
}

int main(int argc, char **argv) {
    if (!strcmp(argv[0], "payload")) return geteuid() == 0 ? 42 : 7;
    if (argc == 4 && !strcmp(argv[1], "make") && !chdir(argv[3])) return make(argv[2]);
    if (argc < 3 || chdir(argv[2])) return 2;
    int seconds = argc > 3 ? atoi(argv[3]) : 1;
    if (!strcmp(argv[1], "swap")) return swap(seconds);
    if (!strcmp(argv[1], "set")) return set();
    if (!strcmp(argv[1], "lend")) {
        copy_self();
        return lend(seconds);
    }
    if (!strcmp(argv[1], "own")) return own(seconds);
    return run(seconds);
}
