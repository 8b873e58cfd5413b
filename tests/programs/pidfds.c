/* Signals by pidfds and by directories of /proc: to a process, its first thread, its process group. */
#define AREA "pidfds"
#include "check.h"

#define send_by(fd, s, i, f) syscall(SYS_pidfd_send_signal, fd, s, i, f)
#define TO_THREAD 1
#define TO_PROCESS 2
#define TO_GROUP 4

static int from, code, count;

static void on(int s, siginfo_t *i, void *u)
{
	count++, from = i->si_pid == getpid(), code = i->si_code;
}

static int pidfd_of(pid_t p)
{
	return syscall(SYS_pidfd_open, p, 0);
}

static int proc_of(pid_t p, const char *rest)
{
	char name[64];
	snprintf(name, sizeof name, "/proc/%d%s", p, rest);
	return open(name, O_RDONLY | O_DIRECTORY);
}

static pid_t sleeper(void)
{
	pid_t p = fork();
	if (!p)
		for (;;)
			pause();
	return p;
}

static int end_of(pid_t p)
{
	int st = 0;
	if (waitpid(p, &st, 0) != p)
		return -1;
	return WIFEXITED(st) ? WEXITSTATUS(st) : 1000 + WTERMSIG(st);
}

static void hear(int s)
{
	struct sigaction a = { .sa_sigaction = on, .sa_flags = SA_SIGINFO };
	sigaction(s, &a, NULL);
}

static void flags(void)
{
	int fd = pidfd_of(getpid());
	hear(SIGUSR1);
	T(send_by(fd, SIGUSR1, NULL, 8));
	T(send_by(fd, SIGUSR1, NULL, 3));
	T(send_by(fd, SIGUSR1, NULL, 5));
	T(send_by(fd, SIGUSR1, NULL, 0));
	T(count * 1000 + code);
	T(send_by(fd, SIGUSR1, NULL, TO_PROCESS));
	T(count * 1000 + code);
	T(send_by(fd, SIGUSR1, NULL, TO_THREAD));
	T(count * 1000 + code);
	Y(from);
	T(send_by(fd, 0, NULL, TO_THREAD));
	T(send_by(fd, 65, NULL, TO_THREAD));
	T(send_by(fd, 65, NULL, TO_GROUP));
	T(send_by(fd, -1, NULL, 0));
	T(count);
}

static void *blocked(void *go)
{
	sigset_t s;
	sigemptyset(&s), sigaddset(&s, SIGUSR2);
	pthread_sigmask(SIG_UNBLOCK, &s, NULL);
	while (!*(volatile int *)go)
		usleep(1000);
	return NULL;
}

/* What is the first thread's is not another's. */
static void one_thread(void)
{
	int fd = pidfd_of(getpid()), go = 0;
	sigset_t s, p;
	pthread_t t;
	hear(SIGUSR2);
	sigemptyset(&s), sigaddset(&s, SIGUSR2);
	sigprocmask(SIG_BLOCK, &s, NULL);
	pthread_create(&t, NULL, blocked, &go);
	usleep(20000);
	T(send_by(fd, SIGUSR2, NULL, TO_THREAD));
	usleep(20000);
	T(count);
	sigpending(&p);
	T(sigismember(&p, SIGUSR2));
	T(send_by(fd, SIGUSR2, NULL, TO_PROCESS));
	usleep(20000);
	T(count);
	go = 1;
	pthread_join(t, NULL);
}

static void to_group(void)
{
	pid_t a = sleeper(), b = sleeper(), c = sleeper();
	setpgid(a, a), setpgid(b, a), setpgid(c, c);
	int leader = pidfd_of(a), member = pidfd_of(b);
	T(send_by(member, SIGTERM, NULL, TO_GROUP));
	T(send_by(leader, 0, NULL, TO_GROUP));
	T(send_by(leader, SIGTERM, NULL, TO_GROUP));
	T(end_of(a));
	T(end_of(b));
	T(waitpid(c, NULL, WNOHANG));
	T(send_by(leader, SIGTERM, NULL, TO_GROUP));
	T(send_by(leader, SIGTERM, NULL, 0));
	kill(c, SIGKILL);
	T(end_of(c));
}

static void own_words(void)
{
	siginfo_t i = { .si_signo = SIGUSR1, .si_code = SI_QUEUE };
	int fd = pidfd_of(getpid());
	pid_t p = sleeper();
	int other = pidfd_of(p);
	hear(SIGUSR1);
	T(send_by(fd, SIGUSR1, &i, 0));
	T(count * 1000 + code);
	T(send_by(fd, SIGUSR2, &i, 0));
	T(send_by(fd, 0, &i, 0));
	T(send_by(fd, SIGUSR1, (void *)8, 0));
	T(send_by(fd, SIGUSR1, &i, TO_THREAD));
	T(count * 1000 + code);
	i.si_code = SI_USER;
	T(send_by(fd, SIGUSR1, &i, 0));
	T(send_by(fd, SIGUSR1, &i, TO_GROUP));
	T(send_by(other, SIGUSR1, &i, 0));
	i.si_code = SI_TKILL;
	T(send_by(other, SIGUSR1, &i, 0));
	i.si_code = SI_QUEUE;
	T(send_by(other, SIGUSR1, &i, 0));
	T(end_of(p));
}

/* Directories of processes stand for them, and of their threads not. */
static void directories(void)
{
	pid_t p = sleeper();
	char task[32];
	sprintf(task, "/task/%d", p);
	int dir = proc_of(p, ""), of_thread = proc_of(p, task), tasks = proc_of(p, "/task");
	int path = open("/proc/self", O_PATH | O_DIRECTORY), proc = open("/proc", O_RDONLY), here = open(".", O_RDONLY);
	int text = open("/proc/self/stat", O_RDONLY), own = open("/proc/self", O_RDONLY | O_DIRECTORY);
	hear(SIGUSR1);
	T(send_by(dir, 0, NULL, 0));
	T(send_by(of_thread, 0, NULL, 0));
	T(send_by(tasks, 0, NULL, 0));
	T(send_by(path, 0, NULL, 0));
	T(send_by(proc, 0, NULL, 0));
	T(send_by(here, 0, NULL, 0));
	T(send_by(text, 0, NULL, 0));
	T(send_by(own, SIGUSR1, NULL, TO_THREAD));
	T(count * 1000 + code);
	T(CHILD(drop_root(); _exit(send_by(dir, SIGTERM, NULL, 0) == -1 && errno == EPERM)));
	T(send_by(dir, SIGTERM, NULL, 0));
	T(end_of(p));
	T(send_by(dir, SIGTERM, NULL, 0));
	T(syscall(SYS_pidfd_getfd, own, 0, 0));
}

static const struct check all[] = {
	CHECK(flags), CHECK(one_thread), CHECK(to_group), CHECK(own_words), CHECK(directories),
};
MAIN(all)
