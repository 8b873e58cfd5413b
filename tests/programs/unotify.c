/* seccomp_unotify(2): calls that a listener answers. */
#define AREA "unotify"
#include "check.h"
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/epoll.h>
#include <sys/ptrace.h>

#ifndef SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV
#define SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV (1UL << 5)
#endif
#ifndef SECCOMP_IOCTL_NOTIF_SET_FLAGS
#define SECCOMP_IOCTL_NOTIF_SET_FLAGS SECCOMP_IOW(4, __u64)
#endif
#define NEW SECCOMP_FILTER_FLAG_NEW_LISTENER
#define LOAD(field) BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, field))
#define RET(k) BPF_STMT(BPF_RET | BPF_K, k)
#define ONLY(n, a) { LOAD(nr), BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, n, 0, 1), RET(a), RET(SECCOMP_RET_ALLOW) }
#define INSTALL(flags, ...) ({ struct sock_filter f_[] = __VA_ARGS__; \
	struct sock_fprog p_ = { sizeof f_ / sizeof *f_, f_ }; (int)syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, flags, &p_); })
#define LISTEN(nr) INSTALL(NEW, ONLY(nr, SECCOMP_RET_USER_NOTIF))

static void nnp(void)
{
	prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
}

static int send_fd(int s, int fd)
{
	char c = 'x', b[CMSG_SPACE(sizeof fd)] = { 0 };
	struct iovec v = { &c, 1 };
	struct msghdr m = { .msg_iov = &v, .msg_iovlen = 1, .msg_control = b, .msg_controllen = sizeof b };
	struct cmsghdr *h = CMSG_FIRSTHDR(&m);
	*h = (struct cmsghdr) { .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS, .cmsg_len = CMSG_LEN(sizeof fd) };
	memcpy(CMSG_DATA(h), &fd, sizeof fd);
	return sendmsg(s, &m, 0);
}

static int receive_fd(int s)
{
	char c, b[CMSG_SPACE(sizeof(int))] = { 0 };
	struct iovec v = { &c, 1 };
	struct msghdr m = { .msg_iov = &v, .msg_iovlen = 1, .msg_control = b, .msg_controllen = sizeof b };
	int fd = -1;
	if (recvmsg(s, &m, 0) == 1 && CMSG_FIRSTHDR(&m))
		memcpy(&fd, CMSG_DATA(CMSG_FIRSTHDR(&m)), sizeof fd);
	return fd;
}

/* A child that installs a listener for a call, passes it, closes its own, and runs a body. */
struct target {
	pid_t pid;
	int fd, sock;
};

static struct target start(int nr, unsigned long flags, void (*body)(int sock))
{
	struct target t;
	int sv[2];
	socketpair(AF_UNIX, SOCK_SEQPACKET, 0, sv);
	t.pid = fork();
	if (t.pid == 0) {
		close(sv[0]);
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		nnp();
		int l = INSTALL(NEW | flags, ONLY(nr, SECCOMP_RET_USER_NOTIF));
		send_fd(sv[1], l);
		close(l);
		body(sv[1]);
		_exit(0);
	}
	close(sv[1]);
	t.fd = receive_fd(sv[0]);
	t.sock = sv[0];
	return t;
}

static int finish(struct target *t)
{
	int st = 0;
	waitpid(t->pid, &st, 0);
	close(t->fd);
	close(t->sock);
	return WIFEXITED(st) ? WEXITSTATUS(st) : 1000 + WTERMSIG(st);
}

static struct seccomp_notif n;
static int get(int fd)
{
	memset(&n, 0, sizeof n);
	return ioctl(fd, SECCOMP_IOCTL_NOTIF_RECV, &n);
}

static int answer(int fd, long val, int error, unsigned flags)
{
	struct seccomp_notif_resp r = { n.id, val, error, flags };
	return ioctl(fd, SECCOMP_IOCTL_NOTIF_SEND, &r);
}

static int add_fd(int fd, int src, unsigned flags, int newfd, unsigned fd_flags)
{
	struct seccomp_notif_addfd a = { n.id, flags, src, newfd, fd_flags };
	return ioctl(fd, SECCOMP_IOCTL_NOTIF_ADDFD, &a);
}

static void tell(int sock, long r)
{
	long w[2] = { r, r == -1 ? errno : 0 };
	write(sock, w, sizeof w);
}

/* What the target saw. */
static void heard(struct target *t, const char *what)
{
	long w[2];
	if (read(t->sock, w, sizeof w) != sizeof w)
		say(what, "nothing");
	else
		report(what, w[0], w[1]);
}

static int events(int fd)
{
	struct pollfd p = { fd, POLLIN | POLLOUT | POLLRDNORM | POLLWRNORM | POLLPRI, 0 };
	poll(&p, 1, 0);
	return p.revents;
}

/* Waits until the child sleeps in its call. */
static int wait_in(int fd)
{
	struct pollfd p = { fd, POLLIN, 0 };
	poll(&p, 1, 5000);
	return p.revents;
}

static void one_call(int sock)
{
	errno = 0;
	tell(sock, syscall(SYS_getppid, 1, 2, 3, 4, 5, 0x123456789abcdef0));
}

static void two_calls(int sock)
{
	one_call(sock);
	one_call(sock);
}

static void flags(void)
{
	unsigned short sizes[4] = { 0, 0, 0, 77 };
	T(syscall(SYS_seccomp, SECCOMP_GET_NOTIF_SIZES, 0, sizes));
	T(sizes[0]);
	T(sizes[1]);
	T(sizes[2]);
	T(sizes[3]);
	T(syscall(SYS_seccomp, SECCOMP_GET_NOTIF_SIZES, 1, sizes));
	T(syscall(SYS_seccomp, SECCOMP_GET_NOTIF_SIZES, 0, 8));
	unsigned a = SECCOMP_RET_USER_NOTIF;
	T(syscall(SYS_seccomp, SECCOMP_GET_ACTION_AVAIL, 0, &a));
	nnp();
	T(INSTALL(NEW | SECCOMP_FILTER_FLAG_TSYNC, { RET(SECCOMP_RET_ALLOW) }));
	T(INSTALL(SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV, { RET(SECCOMP_RET_ALLOW) }));
	T(INSTALL(1 << 6, { RET(SECCOMP_RET_ALLOW) }));
	T(syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, NEW, 8));
	T(INSTALL(NEW | SECCOMP_FILTER_FLAG_TSYNC, { BPF_STMT(BPF_RET | BPF_X, 0) }));
	T(INSTALL(NEW, { BPF_STMT(BPF_RET | BPF_X, 0) }));
	struct rlimit r = { 3, 3 }, old;
	getrlimit(RLIMIT_NOFILE, &old);
	r.rlim_max = old.rlim_max;
	setrlimit(RLIMIT_NOFILE, &r);
	T(INSTALL(NEW, { RET(SECCOMP_RET_ALLOW) }));
	setrlimit(RLIMIT_NOFILE, &old);
	T(prctl(PR_GET_SECCOMP));
	T(INSTALL(NEW | SECCOMP_FILTER_FLAG_TSYNC | SECCOMP_FILTER_FLAG_TSYNC_ESRCH | SECCOMP_FILTER_FLAG_LOG |
		SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV, { RET(SECCOMP_RET_ALLOW) }));
	T(INSTALL(NEW, { RET(SECCOMP_RET_ALLOW) }));
	T(INSTALL(0, { RET(SECCOMP_RET_ALLOW) }));
	T(prctl(PR_GET_SECCOMP));
	T(CHILD(_exit(INSTALL(NEW, { RET(SECCOMP_RET_ALLOW) }) == -1 ? errno : 0)));
	close(3);
	T(INSTALL(NEW, { RET(SECCOMP_RET_ALLOW) }));
}

static void permission(void)
{
	drop_root();
	T(INSTALL(NEW, { RET(SECCOMP_RET_ALLOW) }));
	T(open("/dev/null", O_RDONLY));
}

static void file(void)
{
	nnp();
	int l = LISTEN(SYS_getppid);
	char b[100] = "";
	T(readlink("/proc/self/fd/3", b, sizeof b - 1));
	T(l);
	S(b, strlen(b));
	T(fcntl(l, F_GETFD));
	T(fcntl(l, F_GETFL) & O_ACCMODE);
	T(fcntl(l, F_SETFL, O_NONBLOCK));
	T(read(l, b, 8));
	T(write(l, b, 8));
	T(lseek(l, 0, SEEK_CUR));
	T(pread(l, b, 8, 0));
	struct stat s;
	T(fstat(l, &s));
	T(s.st_mode);
	T(ioctl(l, TCGETS, b));
	T(ioctl(l, SECCOMP_IOCTL_NOTIF_RECV, 8));
	T(ioctl(l, SECCOMP_IOCTL_NOTIF_SEND, 8));
	T(ioctl(l, SECCOMP_IOCTL_NOTIF_ID_VALID, 8));
	T(ioctl(l, SECCOMP_IOCTL_NOTIF_ADDFD, 8));
	T(ioctl(l, SECCOMP_IOCTL_NOTIF_SET_FLAGS, 8));
	T(ioctl(l, SECCOMP_IOCTL_NOTIF_SET_FLAGS, 1));
	T(ioctl(l, SECCOMP_IOCTL_NOTIF_SET_FLAGS, 0));
	n.pid = 1;
	T(ioctl(l, SECCOMP_IOCTL_NOTIF_RECV, &n));
	memset(&n, 0, sizeof n);
	n.id = 5;
	T(answer(l, 0, 0, 0));
	T(answer(l, 0, 0, 2));
	T(answer(l, 1, 0, SECCOMP_USER_NOTIF_FLAG_CONTINUE));
	T(answer(l, 0, 1, SECCOMP_USER_NOTIF_FLAG_CONTINUE));
	T(answer(l, 0, 0, SECCOMP_USER_NOTIF_FLAG_CONTINUE));
	T(ioctl(l, SECCOMP_IOCTL_NOTIF_ID_VALID, &n.id));
	T(ioctl(l, SECCOMP_IOR(2, __u64), &n.id));
	T(ioctl(l, SECCOMP_IOWR(9, __u64), &n.id));
	T(add_fd(l, 0, 0, 0, 0));
	T(add_fd(l, 0, 0, 5, 0));
	T(add_fd(l, 0, 4, 0, 0));
	T(add_fd(l, 0, 0, 0, O_NONBLOCK));
	T(add_fd(l, 99, 0, 0, 0));
	T(add_fd(l, open("/", O_PATH), 0, 0, 0));
	struct { struct seccomp_notif_addfd a; long more; } big = { .a = { 5, 0, 0, 0, 0 } };
	T(ioctl(l, _IOC(_IOC_WRITE, SECCOMP_IOC_MAGIC, 3, sizeof big), &big));
	big.more = 1;
	T(ioctl(l, _IOC(_IOC_WRITE, SECCOMP_IOC_MAGIC, 3, sizeof big), &big));
	T(ioctl(l, _IOC(_IOC_READ, SECCOMP_IOC_MAGIC, 3, 20), &big));
	T(ioctl(l, _IOC(0, SECCOMP_IOC_MAGIC, 3, 4096), &big));
	T(events(l));
	T(fcntl(l, F_SETFL, O_ASYNC));
}

static void answers(void)
{
	struct target t = start(SYS_getppid, 0, one_call);
	T(t.fd >= 0);
	T(get(t.fd));
	T(n.pid == t.pid);
	T(n.flags);
	T(n.data.nr == SYS_getppid);
	T(n.data.arch == AUDIT_ARCH_X86_64);
	T(n.data.instruction_pointer != 0);
	T(n.data.args[0] * 10000 + n.data.args[1] * 1000 + n.data.args[2] * 100 + n.data.args[3] * 10 + n.data.args[4]);
	T(n.data.args[5] == 0x123456789abcdef0);
	T(ioctl(t.fd, SECCOMP_IOCTL_NOTIF_ID_VALID, &n.id));
	T(ioctl(t.fd, SECCOMP_IOR(2, __u64), &n.id));
	T(answer(t.fd, 4711, 0, 0));
	heard(&t, "value");
	T(ioctl(t.fd, SECCOMP_IOCTL_NOTIF_ID_VALID, &n.id));
	T(answer(t.fd, 4711, 0, 0));
	T(add_fd(t.fd, 0, 0, 0, 0));
	T(finish(&t));

	t = start(SYS_getppid, 0, one_call);
	get(t.fd);
	T(answer(t.fd, 77, -EXDEV, 0));
	heard(&t, "error wins");
	T(finish(&t));
	t = start(SYS_getppid, 0, one_call);
	get(t.fd);
	T(answer(t.fd, 0, 5, 0));
	heard(&t, "error above zero");
	T(finish(&t));
	t = start(SYS_getppid, 0, one_call);
	get(t.fd);
	T(answer(t.fd, -7, 0, 0));
	heard(&t, "value below zero");
	T(finish(&t));
	t = start(SYS_getppid, 0, one_call);
	get(t.fd);
	T(answer(t.fd, 0x1122334455667788, 0, 0));
	heard(&t, "long");
	T(finish(&t));
}

static void calls_ppid(int sock)
{
	tell(sock, syscall(SYS_getppid) > 0);
}

static void continues(void)
{
	struct target t = start(SYS_getppid, 0, calls_ppid);
	get(t.fd);
	T(answer(t.fd, 0, 0, SECCOMP_USER_NOTIF_FLAG_CONTINUE));
	heard(&t, "parent's");
	T(finish(&t));
}

/* Calls that never leave the process where they are answered beside the kernel. */
static void hot_body(int sock)
{
	int nr, good = 0;
	read(sock, &nr, sizeof nr);
	for (int i = 0; i < 3000; i++)
		good += syscall(nr, 0, 0, 0, 0, 0, 0) == 1000 + i;
	tell(sock, good);
}

static void hot_calls(void)
{
	int list[] = { SYS_getpid, SYS_gettid, SYS_getuid, SYS_getppid, SYS_sched_yield, SYS_rt_sigprocmask, SYS_futex, SYS_umask,
		SYS_getcpu, SYS_clock_gettime, SYS_time };
	for (unsigned i = 0; i < sizeof list / sizeof *list; i++) {
		struct target t = start(list[i], 0, hot_body);
		write(t.sock, &list[i], sizeof list[i]);
		for (int c = 0; c < 3000; c++) {
			if (get(t.fd) || n.data.nr != list[i] || answer(t.fd, 1000 + c, 0, 0)) {
				say("hot", "%u: %d", i, c);
				break;
			}
		}
		heard(&t, "hot");
		finish(&t);
	}
}

/* The filter comes when the calls were often made already. */
static void late_filter(void)
{
	int sv[2];
	socketpair(AF_UNIX, SOCK_SEQPACKET, 0, sv);
	pid_t p = fork();
	if (p == 0) {
		nnp();
		int bad = 0;
		for (int i = 0; i < 5000; i++)
			bad += syscall(SYS_getuid) != getuid() || syscall(SYS_getppid) == 555;
		int l = LISTEN(SYS_getppid);
		send_fd(sv[1], l);
		close(l);
		for (int i = 0; i < 500; i++)
			bad += syscall(SYS_getppid) != 555;
		_exit(bad != 0);
	}
	int l = receive_fd(sv[0]), i = 0;
	while (i < 500 && !get(l) && !answer(l, 555, 0, 0))
		i++;
	T(i);
	int st;
	waitpid(p, &st, 0);
	T(st);
}

static void polls(void)
{
	struct target t = start(SYS_getppid, 0, two_calls);
	int ep = epoll_create1(0);
	struct epoll_event e = { EPOLLIN | EPOLLOUT | EPOLLET, { .u32 = 7 } }, got = { 0 };
	T(epoll_ctl(ep, EPOLL_CTL_ADD, t.fd, &e));
	T(wait_in(t.fd));
	T(events(t.fd));
	T(epoll_wait(ep, &got, 1, 1000));
	T(got.events);
	T(get(t.fd));
	T(events(t.fd));
	T(epoll_wait(ep, &got, 1, 1000));
	T(got.events);
	T(answer(t.fd, 1, 0, 0));
	heard(&t, "first");
	T(epoll_wait(ep, &got, 1, 1000));
	T(got.events);
	T(wait_in(t.fd));
	T(get(t.fd));
	T(answer(t.fd, 2, 0, 0));
	heard(&t, "second");
	struct pollfd p = { t.fd, 0, 0 };
	T(poll(&p, 1, 5000));
	T(p.revents);
	T(epoll_wait(ep, &got, 1, 1000));
	T(got.events);
	T(get(t.fd));
	T(events(t.fd));
	T(finish(&t));
}

/* The filter lives in a grandchild. */
static void forks_on(int sock)
{
	char c;
	if (fork() == 0) {
		read(sock, &c, 1);
		_exit(0);
	}
}

static void hangs_up(void)
{
	struct target t = start(SYS_getppid, 0, forks_on);
	int st;
	waitpid(t.pid, &st, 0);
	ms(50);
	T(events(t.fd));
	write(t.sock, "x", 1);
	struct pollfd p = { t.fd, 0, 0 };
	T(poll(&p, 1, 5000));
	T(p.revents);
	T(get(t.fd));
	/* A zombie has none. */
	t = start(SYS_getppid, 0, one_call);
	get(t.fd);
	answer(t.fd, 3, 0, 0);
	p.fd = t.fd;
	T(poll(&p, 1, 5000));
	T(p.revents);
	T(finish(&t));
}

static void *receiver(void *p)
{
	struct seccomp_notif m = { 0 };
	int r = ioctl((long)p, SECCOMP_IOCTL_NOTIF_RECV, &m);
	return (void *)(long)(r ? errno : 0);
}

static void reads_one(int sock)
{
	char c;
	read(sock, &c, 1);
}

static void receiver_sees_end(void)
{
	struct target t = start(SYS_getppid, 0, reads_one);
	pthread_t p;
	void *r;
	pthread_create(&p, NULL, receiver, (void *)(long)t.fd);
	ms(50);
	write(t.sock, "x", 1);
	pthread_join(p, &r);
	T((long)r);
	T(finish(&t));
}

static void closed(void)
{
	struct target t = start(SYS_getppid, 0, two_calls);
	wait_in(t.fd);
	close(t.fd);
	heard(&t, "fresh");
	heard(&t, "later");
	T(finish(&t));
	t = start(SYS_getppid, 0, one_call);
	get(t.fd);
	int other = dup(t.fd);
	close(t.fd);
	T(answer(other, 8, 0, 0));
	heard(&t, "duplicate");
	T(finish(&t));
	close(other);
	t = start(SYS_getppid, SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV, one_call);
	get(t.fd);
	close(t.fd);
	heard(&t, "received");
	T(finish(&t));
}

static volatile int hits;
static void on_usr(int s)
{
	hits += s == SIGUSR1;
}

static void with_handler(int sock)
{
	struct sigaction a = { .sa_handler = on_usr };
	sigaction(SIGUSR1, &a, NULL);
	errno = 0;
	long r = syscall(SYS_getppid);
	tell(sock, r);
	tell(sock, hits);
}

static void with_restart(int sock)
{
	struct sigaction a = { .sa_handler = on_usr, .sa_flags = SA_RESTART };
	sigaction(SIGUSR1, &a, NULL);
	tell(sock, syscall(SYS_getppid));
	tell(sock, hits);
}

static void signals(void)
{
	/* Before it is received. */
	struct target t = start(SYS_getppid, 0, with_handler);
	T(wait_in(t.fd));
	kill(t.pid, SIGUSR1);
	heard(&t, "EINTR");
	heard(&t, "hits");
	T(finish(&t));
	/* After. */
	t = start(SYS_getppid, 0, with_handler);
	get(t.fd);
	kill(t.pid, SIGUSR1);
	heard(&t, "EINTR");
	T(answer(t.fd, 1, 0, 0));
	T(ioctl(t.fd, SECCOMP_IOCTL_NOTIF_ID_VALID, &n.id));
	heard(&t, "hits");
	T(finish(&t));
	/* Made again. */
	t = start(SYS_getppid, 0, with_restart);
	get(t.fd);
	__u64 first = n.id;
	kill(t.pid, SIGUSR1);
	T(get(t.fd));
	T(n.id == first);
	T(answer(t.fd, 12, 0, 0));
	heard(&t, "restarted");
	heard(&t, "hits");
	T(finish(&t));
	/* One that was not received leaves a reception that finds nothing. */
	t = start(SYS_getppid, 0, with_restart);
	T(wait_in(t.fd));
	kill(t.pid, SIGUSR1);
	ms(100);
	T(get(t.fd));
	T(answer(t.fd, 13, 0, 0));
	T(get(t.fd));
	heard(&t, "restarted");
	heard(&t, "hits");
	T(finish(&t));
}

static void killable(void)
{
	struct target t = start(SYS_getppid, SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV, with_handler);
	T(wait_in(t.fd));
	kill(t.pid, SIGUSR1);
	heard(&t, "fresh");
	heard(&t, "hits");
	T(finish(&t));
	t = start(SYS_getppid, SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV, with_handler);
	get(t.fd);
	kill(t.pid, SIGUSR1);
	ms(50);
	T(ioctl(t.fd, SECCOMP_IOCTL_NOTIF_ID_VALID, &n.id));
	T(answer(t.fd, 14, 0, 0));
	heard(&t, "received");
	heard(&t, "hits");
	T(finish(&t));
	t = start(SYS_getppid, SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV, with_handler);
	get(t.fd);
	kill(t.pid, SIGKILL);
	T(finish(&t));
	T(answer(t.fd, 14, 0, 0));
}

static void stopped(void)
{
	struct target t = start(SYS_getppid, 0, calls_ppid);
	int st = 0;
	get(t.fd);
	__u64 first = n.id;
	kill(t.pid, SIGSTOP);
	T(waitpid(t.pid, &st, WUNTRACED) == t.pid);
	T(WIFSTOPPED(st));
	T(ioctl(t.fd, SECCOMP_IOCTL_NOTIF_ID_VALID, &n.id));
	kill(t.pid, SIGCONT);
	T(get(t.fd));
	T(n.id == first);
	T(answer(t.fd, 15, 0, 0));
	heard(&t, "after the stop");
	T(finish(&t));
}

static void dies(void)
{
	struct target t = start(SYS_getppid, 0, one_call);
	get(t.fd);
	kill(t.pid, SIGKILL);
	int st;
	waitpid(t.pid, &st, 0);
	T(ioctl(t.fd, SECCOMP_IOCTL_NOTIF_ID_VALID, &n.id));
	T(answer(t.fd, 0, 0, 0));
	T(add_fd(t.fd, 0, 0, 0, 0));
	T(events(t.fd));
}

static void fault(void)
{
	struct target t = start(SYS_getppid, 0, one_call);
	void *ro = mmap(NULL, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	T(ioctl(t.fd, SECCOMP_IOCTL_NOTIF_RECV, ro));
	T(events(t.fd));
	T(get(t.fd));
	T(answer(t.fd, 21, 0, 0));
	heard(&t, "told again");
	T(finish(&t));
}

static void *answers_one(void *p)
{
	int fd = (long)p;
	get(fd);
	answer(fd, 31, 0, 0);
	return NULL;
}

static void reads_descriptors(int sock)
{
	tell(sock, syscall(SYS_getppid));
	for (int fd = 3; fd < 12; fd++)
		if (fd != sock && fcntl(fd, F_GETFD) >= 0) {
			tell(sock, fd - sock);
			tell(sock, fcntl(fd, F_GETFD));
		}
	tell(sock, 1000);
}

static void add_fds(void)
{
	struct target t = start(SYS_getppid, 0, reads_descriptors);
	int null = open("/dev/null", O_RDONLY);
	wait_in(t.fd);
	n.id = 0;
	T(add_fd(t.fd, null, 0, 0, 0));
	get(t.fd);
	T(add_fd(t.fd, null, 0, 0, 0) >= 0);
	T(add_fd(t.fd, null, 0, 0, O_CLOEXEC) >= 0);
	T(add_fd(t.fd, null, SECCOMP_ADDFD_FLAG_SETFD, 11, 0));
	T(add_fd(t.fd, null, SECCOMP_ADDFD_FLAG_SETFD, 11, O_CLOEXEC));
	T(add_fd(t.fd, null, SECCOMP_ADDFD_FLAG_SETFD, 0x7fffffff, 0));
	T(add_fd(t.fd, null, SECCOMP_ADDFD_FLAG_SETFD, -1, 0));
	T(ioctl(t.fd, SECCOMP_IOCTL_NOTIF_ID_VALID, &n.id));
	T(answer(t.fd, 33, 0, 0));
	for (int i = 0; i < 8; i++)
		heard(&t, "has");
	T(finish(&t));
}

static void opens(int sock)
{
	struct rlimit r = { 6, 6 };
	char c;
	int fd = syscall(SYS_openat, AT_FDCWD, "/none/such", O_RDONLY);
	tell(sock, fd >= 0);
	tell(sock, read(fd, &c, 1));
	tell(sock, c);
	setrlimit(RLIMIT_NOFILE, &r);
	errno = 0;
	while (dup(1) >= 0) {}
	tell(sock, syscall(SYS_openat, AT_FDCWD, "/none/such", O_RDONLY));
}

static void add_fd_as_reply(void)
{
	int p[2];
	pipe(p);
	write(p[1], "k", 1);
	struct target t = start(SYS_openat, 0, opens);
	get(t.fd);
	T(add_fd(t.fd, p[0], SECCOMP_ADDFD_FLAG_SEND, 0, 0) >= 0);
	T(answer(t.fd, 0, 0, 0));
	heard(&t, "opened");
	heard(&t, "read");
	heard(&t, "byte");
	get(t.fd);
	T(add_fd(t.fd, p[0], SECCOMP_ADDFD_FLAG_SEND, 0, 0));
	T(ioctl(t.fd, SECCOMP_IOCTL_NOTIF_ID_VALID, &n.id));
	T(add_fd(t.fd, p[0], SECCOMP_ADDFD_FLAG_SEND | SECCOMP_ADDFD_FLAG_SETFD, 900, 0));
	T(add_fd(t.fd, p[0], SECCOMP_ADDFD_FLAG_SEND | SECCOMP_ADDFD_FLAG_SETFD, 1, 0));
	heard(&t, "in place");
	T(finish(&t));
}

/* The stopped caller cannot do it; a signal ends the wait. */
static void add_fd_interrupted(void)
{
	struct target t = start(SYS_getppid, SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV, one_call);
	get(t.fd);
	T(add_fd(t.fd, 0, 0, 0, 0) >= 0);
	kill(t.pid, SIGSTOP);
	T(add_fd(t.fd, 0, 0, 0, 0) >= 0);
	T(answer(t.fd, 41, 0, 0));
	int st;
	waitpid(t.pid, &st, WUNTRACED);
	kill(t.pid, SIGCONT);
	heard(&t, "in the end");
	T(finish(&t));
}

static void interrupted_recv(void)
{
	nnp();
	int l = LISTEN(SYS_getppid);
	struct sigaction a = { .sa_handler = on_usr };
	sigaction(SIGUSR1, &a, NULL);
	pid_t me = getpid();
	pid_t p = fork();
	if (p == 0) {
		ms(100);
		kill(me, SIGUSR1);
		_exit(0);
	}
	T(get(l));
	T(hits);
	waitpid(p, NULL, 0);
	a.sa_flags = SA_RESTART;
	sigaction(SIGUSR1, &a, NULL);
	p = fork();
	if (p == 0) {
		ms(100);
		kill(me, SIGUSR1);
		ms(50);
		_exit(syscall(SYS_getppid) == 6 ? 5 : 4);
	}
	T(get(l));
	T(hits);
	T(answer(l, 6, 0, 0));
	int st;
	waitpid(p, &st, 0);
	T(WEXITSTATUS(st));
}

/* One process, its thread and its child: the oldest call first. */
static int shared;
static void *thread_calls(void *p)
{
	return (void *)syscall(SYS_getppid);
}

static void within(void)
{
	nnp();
	shared = LISTEN(SYS_getppid);
	pthread_t t;
	void *r;
	pthread_create(&t, NULL, thread_calls, NULL);
	T(get(shared));
	T(n.pid != getpid());
	T(answer(shared, 51, 0, 0));
	pthread_join(t, &r);
	T((long)r);
	pthread_create(&t, NULL, answers_one, (void *)(long)shared);
	T(syscall(SYS_getppid));
	pthread_join(t, NULL);
	pid_t p = fork();
	if (p == 0)
		_exit(syscall(SYS_getppid));
	T(get(shared));
	T(n.pid == p);
	T(answer(shared, 52, 0, 0));
	int st;
	waitpid(p, &st, 0);
	T(WEXITSTATUS(st));
}

static void several(void)
{
	nnp();
	int l = LISTEN(SYS_getppid), st;
	pid_t p[3];
	struct seccomp_notif m[3];
	for (int i = 0; i < 3; i++) {
		int before = i;
		p[i] = fork();
		if (p[i] == 0)
			_exit(syscall(SYS_getppid));
		wait_in(l);
		T(get(l));
		m[before] = n;
	}
	T(m[0].pid == p[0] && m[1].pid == p[1] && m[2].pid == p[2]);
	T(m[1].id - m[0].id);
	T(m[2].id - m[1].id);
	for (int i = 2; i >= 0; i--) {
		n = m[i];
		T(answer(l, 60 + i, 0, 0));
	}
	for (int i = 0; i < 3; i++) {
		waitpid(p[i], &st, 0);
		T(WEXITSTATUS(st));
	}
}

/* Which action wins. */
static void precedence(void)
{
	struct { unsigned first, second; } list[] = {
		{ SECCOMP_RET_USER_NOTIF, SECCOMP_RET_ERRNO | EXDEV }, { SECCOMP_RET_ERRNO | EXDEV, SECCOMP_RET_USER_NOTIF },
		{ SECCOMP_RET_USER_NOTIF, SECCOMP_RET_TRACE }, { SECCOMP_RET_USER_NOTIF, SECCOMP_RET_LOG },
		{ SECCOMP_RET_USER_NOTIF, SECCOMP_RET_USER_NOTIF }, { SECCOMP_RET_TRACE, SECCOMP_RET_USER_NOTIF },
		{ SECCOMP_RET_USER_NOTIF, SECCOMP_RET_KILL_PROCESS }, { SECCOMP_RET_USER_NOTIF, SECCOMP_RET_TRAP },
		{ SECCOMP_RET_USER_NOTIF | 5, SECCOMP_RET_ALLOW },
	};
	for (unsigned i = 0; i < sizeof list / sizeof *list; i++) {
		int sv[2];
		socketpair(AF_UNIX, SOCK_SEQPACKET, 0, sv);
		pid_t p = fork();
		if (p == 0) {
			nnp();
			int l = INSTALL(NEW, ONLY(SYS_getppid, list[i].first));
			INSTALL(0, ONLY(SYS_getppid, list[i].second));
			send_fd(sv[1], l);
			close(l);
			errno = 0;
			_exit(syscall(SYS_getppid) == 9 ? 99 : errno);
		}
		int l = receive_fd(sv[0]), st;
		struct pollfd f = { l, POLLIN, 0 };
		poll(&f, 1, 1000);
		T(f.revents);
		if (f.revents & POLLIN && get(l) == 0)
			answer(l, 9, 0, 0);
		waitpid(p, &st, 0);
		T(WIFEXITED(st) ? WEXITSTATUS(st) : 1000 + WTERMSIG(st));
		close(l);
		close(sv[0]);
		close(sv[1]);
	}
}

static void traced(void)
{
	int sv[2], st;
	socketpair(AF_UNIX, SOCK_SEQPACKET, 0, sv);
	pid_t p = fork();
	if (p == 0) {
		nnp();
		int l = LISTEN(SYS_getppid);
		send_fd(sv[1], l);
		close(l);
		ptrace(PTRACE_TRACEME);
		raise(SIGSTOP);
		INSTALL(0, ONLY(SYS_getpgrp, SECCOMP_RET_TRACE));
		tell(sv[1], syscall(SYS_getpgrp));
		_exit(3);
	}
	int l = receive_fd(sv[0]);
	waitpid(p, &st, 0);
	T(ptrace(PTRACE_SETOPTIONS, p, 0, PTRACE_O_TRACESECCOMP | PTRACE_O_TRACESYSGOOD));
	ptrace(PTRACE_CONT, p, 0, 0);
	waitpid(p, &st, 0);
	T(st >> 8 == (SIGTRAP | PTRACE_EVENT_SECCOMP << 8));
	/* The tracer makes another call of it, which the listener is asked about. */
	struct user_regs_struct { unsigned long r15, r14, r13, r12, rbp, rbx, r11, r10, r9, r8, rax, rcx, rdx, rsi, rdi, orig_rax, rip, cs,
		flags, rsp, ss, fs_base, gs_base, ds, es, fs, gs; } r;
	ptrace(PTRACE_GETREGS, p, 0, &r);
	r.orig_rax = SYS_getppid;
	ptrace(PTRACE_SETREGS, p, 0, &r);
	ptrace(PTRACE_SYSCALL, p, 0, 0);
	T(get(l));
	T(n.data.nr == SYS_getppid);
	T(answer(l, 71, 0, 0));
	waitpid(p, &st, 0);
	T(st >> 8 == (SIGTRAP | 0x80));
	ptrace(PTRACE_GETREGS, p, 0, &r);
	T(r.rax);
	ptrace(PTRACE_CONT, p, 0, 0);
	struct target t = { p, l, sv[0] };
	heard(&t, "result");
	waitpid(p, &st, 0);
	T(WEXITSTATUS(st));
}

static void executes(int sock)
{
	execl("/bin/sh", "sh", "-c", "echo $PPID; exit 5", NULL);
}

/* Over execve. */
static void after_exec(void)
{
	int o[2];
	pipe(o);
	struct target t;
	int keep = dup(1);
	dup2(o[1], 1);
	t = start(SYS_getppid, 0, executes);
	dup2(keep, 1);
	int i = 0;
	struct pollfd p = { t.fd, POLLIN, 0 };
	while (poll(&p, 1, 5000) > 0 && p.revents & POLLIN && get(t.fd) == 0 && answer(t.fd, 4242, 0, 0) == 0)
		i++;
	char b[32] = "";
	read(o[0], b, 31);
	T(i > 0);
	S(b, 4);
	T(finish(&t));
}

/* The listener replaces itself in its own caller. */
static void *replaces(void *p)
{
	int fd = (long)p;
	get(fd);
	return (void *)(long)(add_fd(fd, 0, SECCOMP_ADDFD_FLAG_SETFD, fd, 0) == fd);
}

static void replaced(void)
{
	nnp();
	int l = LISTEN(SYS_getppid);
	pthread_t t;
	void *r;
	pthread_create(&t, NULL, replaces, (void *)(long)l);
	T(syscall(SYS_getppid));
	pthread_join(t, &r);
	T((long)r);
	T(events(l) & POLLHUP);
	T(ioctl(l, SECCOMP_IOCTL_NOTIF_RECV, &n) == -1 && errno != EFAULT);
	T(syscall(SYS_getppid));
}

/* Who listens in a pid namespace sees only what is in it. */
static void namespaces(void)
{
	struct target t = start(SYS_getppid, 0, two_calls);
	T(CHILD(
		if (unshare(CLONE_NEWUSER | CLONE_NEWPID))
			_exit(99);
		_exit(CHILD(get(t.fd); answer(t.fd, 17, 0, 0); _exit(n.pid == 0 ? 7 : 8)))));
	heard(&t, "from outside");
	get(t.fd);
	T(n.pid == t.pid);
	T(answer(t.fd, 18, 0, 0));
	heard(&t, "from here");
	T(finish(&t));
}

/* Many threads answer, many processes ask and are killed. */
static volatile int over;
static void *server(void *p)
{
	int fd = (long)p;
	unsigned x = (unsigned)(long)&x;
	struct pollfd f = { fd, POLLIN, 0 };
	while (!over) {
		struct seccomp_notif m = { 0 };
		if (poll(&f, 1, 20) <= 0 || ioctl(fd, SECCOMP_IOCTL_NOTIF_RECV, &m)) {
			if (f.revents & POLLHUP)
				break;
			continue;
		}
		struct seccomp_notif_resp r = { m.id, 5, 0, 0 };
		struct seccomp_notif_addfd a = { m.id, rand_r(&x) % 2 * SECCOMP_ADDFD_FLAG_SEND, 0, 0, O_CLOEXEC };
		if (rand_r(&x) % 4 == 0)
			ioctl(fd, SECCOMP_IOCTL_NOTIF_ADDFD, &a);
		ioctl(fd, SECCOMP_IOCTL_NOTIF_ID_VALID, &m.id);
		if (rand_r(&x) % 8)
			ioctl(fd, SECCOMP_IOCTL_NOTIF_SEND, &r);
	}
	return NULL;
}

static void asks(int sock)
{
	struct sigaction a = { .sa_handler = on_usr, .sa_flags = SA_RESTART };
	sigaction(SIGUSR1, &a, NULL);
	for (int i = 0; i < 6; i++)
		if (fork() == 0)
			break;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	for (;;)
		syscall(SYS_getppid);
}

static void storm(void)
{
	signal(SIGUSR1, on_usr);
	for (int round = 0; round < 8; round++) {
		struct target t = start(SYS_getppid, round % 2 * SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV, asks);
		pthread_t s[4];
		over = 0;
		for (int i = 0; i < 4; i++)
			pthread_create(&s[i], NULL, server, (void *)(long)t.fd);
		for (int i = 0; i < 20; i++) {
			ms(5);
			kill(t.pid, SIGUSR1);
			pthread_kill(s[i % 4], SIGUSR1);
		}
		if (round % 4 < 2)
			close(t.fd);
		kill(t.pid, SIGKILL);
		over = 1;
		for (int i = 0; i < 4; i++)
			pthread_join(s[i], NULL);
		waitpid(t.pid, NULL, 0);
		close(t.fd);
		close(t.sock);
	}
	say("storm", "over");
}

static void text(const char *path, const char *want)
{
	char b[300] = "";
	int fd = open(path, O_RDONLY);
	read(fd, b, sizeof b - 1);
	close(fd);
	for (char *l = strtok(b, "\n"); l; l = strtok(NULL, "\n"))
		if (!*want || !strncmp(l, want, strlen(want)))
			say(path, "%s", l);
}

static void proc(void)
{
	text("/proc/sys/kernel/seccomp/actions_avail", "");
	text("/proc/sys/kernel/seccomp/actions_logged", "");
	struct stat s;
	T(stat("/proc/sys/kernel/seccomp/actions_avail", &s));
	T(s.st_mode);
	T(stat("/proc/sys/kernel/seccomp/actions_logged", &s));
	T(s.st_mode);
	T(write_text("/proc/sys/kernel/seccomp/actions_logged", "nothing\n"));
	T(write_text("/proc/sys/kernel/seccomp/actions_logged", "allow\n"));
	drop_root();
	T(write_text("/proc/sys/kernel/seccomp/actions_logged", "kill_process\n"));
	nnp();
	LISTEN(SYS_getppid);
	FILE *f = fopen("/proc/self/status", "r");
	char line[200];
	while (fgets(line, sizeof line, f))
		if (!strncmp(line, "Seccomp", 7)) {
			line[strcspn(line, "\n")] = 0;
			say("status", "%s", line);
		}
}

/* Threads that end meanwhile stand against nothing. */
static void *ends(void *p)
{
	INSTALL(0, { RET(SECCOMP_RET_ALLOW) });
	return p;
}

static void tsync(void)
{
	nnp();
	pthread_t t;
	pthread_create(&t, NULL, ends, NULL);
	pthread_join(t, NULL);
	ms(50);
	int l = INSTALL(NEW | SECCOMP_FILTER_FLAG_TSYNC | SECCOMP_FILTER_FLAG_TSYNC_ESRCH, ONLY(SYS_getppid, SECCOMP_RET_USER_NOTIF));
	T(l);
	pthread_create(&t, NULL, answers_one, (void *)(long)l);
	T(syscall(SYS_getppid));
	pthread_join(t, NULL);
}

static const struct check list[] = {
	CHECK(flags), CHECK(permission), CHECK(file), CHECK(answers), CHECK(continues), CHECK(hot_calls), CHECK(late_filter), CHECK(polls),
	CHECK(hangs_up), CHECK(receiver_sees_end), CHECK(closed), CHECK(signals), CHECK(killable), CHECK(stopped), CHECK(dies), CHECK(fault),
	CHECK(add_fds), CHECK(add_fd_as_reply), CHECK(add_fd_interrupted), CHECK(interrupted_recv), CHECK(within), CHECK(several),
	CHECK(precedence), CHECK(traced), CHECK(after_exec), CHECK(replaced), CHECK(namespaces), CHECK(storm), CHECK(proc), CHECK(tsync),
};
MAIN(list)
