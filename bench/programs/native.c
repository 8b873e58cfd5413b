// Runs a program natively, in the place of a container runtime: its own network namespace with a loopback that
// is up, its own processes (all end with the first), a root directory with an empty tmpfs; no filter, no limits.
//
//   native ROOT own|host PROGRAM [ARGUMENT]...
#include "bench.h"
#include <net/if.h>
#include <sched.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/socket.h>

static void loopback_up(void) {
    struct ifreq r = {0};
    int s = socket(AF_INET, SOCK_DGRAM, 0);
    check(s >= 0, "socket");
    strcpy(r.ifr_name, "lo");
    check(ioctl(s, SIOCGIFFLAGS, &r) == 0, "SIOCGIFFLAGS");
    r.ifr_flags |= IFF_UP;
    check(ioctl(s, SIOCSIFFLAGS, &r) == 0, "SIOCSIFFLAGS");
    close(s);
}

int main(int argc, char **argv) {
    check(argc > 3, "native ROOT own|host PROGRAM");
    int own = strcmp(argv[2], "own") == 0;
    check(unshare(CLONE_NEWPID | CLONE_NEWNS | CLONE_NEWIPC | CLONE_NEWUTS | (own ? CLONE_NEWNET : 0)) == 0, "unshare");
    if (own) loopback_up();
    pid_t p = fork();
    check(p >= 0, "fork");
    if (p == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        // As runtimes do; a session has a share of the CPUs of its own, as their cgroups have.
        setsid();
        check(chroot(argv[1]) == 0 && chdir("/") == 0, argv[1]);
        check(mount("tmpfs", "/bench/inner", "tmpfs", MS_NOSUID | MS_NODEV, "mode=755") == 0, "/bench/inner");
        check(mount("proc", "/proc", "proc", 0, NULL) == 0, "/proc");
        execv(argv[3], argv + 3);
        check(0, argv[3]);
    }
    int status = -1;
    check(waitpid(p, &status, 0) == p, "waitpid");
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}
