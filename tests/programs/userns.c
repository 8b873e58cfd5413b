/* User namespaces, and what their administrators may: made by an ordinary user, as root's too. */
#define AREA "userns"
#include "check.h"
#include <arpa/inet.h>
#include <linux/if_addr.h>
#include <linux/rtnetlink.h>
#include <net/if.h>
#include <sys/statvfs.h>
#include <linux/capability.h>
#include <linux/sched.h>
#include <net/if.h>
#include <netinet/in.h>
#include <grp.h>
#include <sys/fsuid.h>
#include <sys/ipc.h>
#include <sys/mount.h>
#include <sys/sem.h>
#include <sys/shm.h>
#include <sys/utsname.h>

static int set(const char *path, const char *text)
{
	return write_text(path, text);
}

static void show(const char *path)
{
	char b[512];
	int fd = open(path, O_RDONLY);
	int n = fd < 0 ? -1 : read(fd, b, sizeof b - 1);
	if (n < 0)
		say(path, "-1 %s", strerrorname_np(errno));
	else
		bytes(path, b, n);
	close(fd);
}

static char text[100];
static const char *map(unsigned in, unsigned out, unsigned n)
{
	sprintf(text, "%u %u %u\n", in, out, n);
	return text;
}

/* Root of a namespace of one's own, where one is nobody outside. */
static void become(void)
{
	drop_root();
	prctl(PR_SET_DUMPABLE, 1);
	uid_t u = getuid();
	gid_t g = getgid();
	if (unshare(CLONE_NEWUSER) || set("/proc/self/setgroups", "deny") ||
	    set("/proc/self/uid_map", map(0, u, 1)) || set("/proc/self/gid_map", map(0, g, 1)))
		say("become", "failed: %s", strerrorname_np(errno));
}

static void caps(const char *what)
{
	struct __user_cap_header_struct h = { _LINUX_CAPABILITY_VERSION_3, 0 };
	struct __user_cap_data_struct d[2] = { 0 };
	syscall(SYS_capget, &h, d);
	say(what, "%x %x %x", d[0].effective, d[0].permitted, d[0].inheritable);
}

static void maps(void)
{
	drop_root();
	prctl(PR_SET_DUMPABLE, 1);
	uid_t u = getuid();
	gid_t g = getgid();
	caps("before");
	T(set("/proc/self/uid_map", map(0, u, 1)));
	T(set("/proc/self/setgroups", "deny"));
	T(unshare(CLONE_NEWUSER));
	caps("after");
	T(getuid());
	T(getgid());
	T(geteuid());
	show("/proc/self/uid_map");
	show("/proc/self/gid_map");
	show("/proc/self/projid_map");
	show("/proc/self/setgroups");
	T(setuid(0));
	T(setgroups(0, NULL));
	T(set("/proc/self/uid_map", ""));
	T(set("/proc/self/uid_map", "x"));
	T(set("/proc/self/uid_map", "0 0"));
	T(set("/proc/self/uid_map", "0 0 0"));
	T(set("/proc/self/uid_map", "0 0 1 1"));
	T(set("/proc/self/uid_map", "0 0 1"));
	T(set("/proc/self/uid_map", map(0, u, 2)));
	T(set("/proc/self/uid_map", "0 0 5\n2 9 1"));
	T(set("/proc/self/uid_map", map(5, u, 1)));
	T(set("/proc/self/uid_map", map(5, u, 1)));
	T(getuid());
	T(set("/proc/self/gid_map", map(6, g, 1)));
	T(set("/proc/self/setgroups", "denied"));
	T(set("/proc/self/setgroups", "what"));
	T(set("/proc/self/setgroups", "deny\n"));
	T(set("/proc/self/setgroups", "allow"));
	show("/proc/self/setgroups");
	T(set("/proc/self/gid_map", map(6, g, 1)));
	T(set("/proc/self/setgroups", "deny"));
	T(getgid());
	T(setgroups(0, NULL));
	T(setuid(0));
	T(setuid(5));
	T(setresuid(-1, 7, -1));
	T(setfsuid(7));
	T(setfsuid(-1));
	caps("in");
	T(unshare(CLONE_NEWUSER));
	T(getuid());
	T(set("/proc/self/uid_map", "1 5 1"));
	T(getuid());
	show("/proc/self/uid_map");
	T(access("/proc/1/ns/user", F_OK));
	T(open("/proc/1/ns/user", O_RDONLY));
}

static void parent_maps(void)
{
	if (geteuid() != 0) {
		T(unshare(CLONE_NEWUSER));
		return;
	}
	int up[2], down[2];
	pipe(up), pipe(down);
	struct clone_args a = { .flags = CLONE_NEWUSER, .exit_signal = SIGCHLD };
	pid_t p = syscall(SYS_clone3, &a, sizeof a);
	char c;
	if (p == 0) {
		T(getuid());
		write(up[1], "x", 1);
		read(down[0], &c, 1);
		T(getuid());
		T(getgid());
		show("/proc/self/uid_map");
		show("/proc/self/gid_map");
		gid_t l[3] = { 3, 1, 2 };
		T(setgroups(3, l));
		gid_t m[8];
		T(getgroups(8, m));
		say("groups", "%d %d %d", m[0], m[1], m[2]);
		l[0] = 5000;
		T(setgroups(1, l));
		T(setresgid(10, 10, 10));
		T(setresuid(10, 10, 10));
		caps("as user");
		T(setuid(5000));
		struct stat st;
		T(stat("/", &st));
		T(st.st_uid);
		T(stat("f", &st));
		T(st.st_uid);
		T(st.st_gid);
		T(open("f", O_WRONLY) >= 0);
		T(open("g", O_WRONLY));
		write(up[1], "x", 1);
		read(down[0], &c, 1);
		_exit(0);
	}
	char path[64];
	read(up[0], &c, 1);
	sprintf(path, "/proc/%d/uid_map", p);
	T(set(path, "0 100000 1000\n1000 200000 1\n"));
	sprintf(path, "/proc/%d/gid_map", p);
	T(set(path, "0 300000 1000"));
	put("f", "x");
	T(chown("f", 100010, 300010));
	T(chmod("f", 0600));
	put("g", "x");
	write(down[1], "x", 1);
	read(up[0], &c, 1);
	sprintf(path, "/proc/%d/status", p);
	FILE *f = fopen(path, "r");
	char line[256];
	while (fgets(line, sizeof line, f))
		if (!strncmp(line, "Uid", 3) || !strncmp(line, "Gid", 3) || !strncmp(line, "Groups", 6))
			bytes("status", line, strlen(line));
	T(kill(p, 0));
	write(down[1], "x", 1);
	int st;
	T(waitpid(p, &st, 0) == p);
}

static void files(void)
{
	put("/tmp/roots-own", "x");
	chmod("/tmp/roots-own", 0600);
	become();
	T(getuid());
	struct stat st;
	put("mine", "x");
	T(stat("mine", &st));
	T(st.st_uid);
	T(st.st_gid);
	T(stat("/", &st));
	T(st.st_uid);
	T(chown("mine", 0, 0));
	T(chown("mine", 1, -1));
	T(chown("mine", -1, 1));
	T(chmod("mine", 0));
	T(open("mine", O_RDWR) >= 0);
	T(chown("/", 0, 0));
	T(chmod("/", 0755));
	T(unlink("/tmp/roots-own") == 0 || geteuid() == 0);
	T(mknod("dev", S_IFCHR | 0600, 0x103));
	T(mknod("fifo", S_IFIFO | 0600, 0));
	T(chroot("."));
	T(chdir("/"));
	T(stat("mine", &st));
	T(unshare(CLONE_NEWUSER));
}

static void elsewhere(void)
{
	become();
	caps("root");
	T(unshare(CLONE_NEWUTS));
	T(sethostname("inside", 6));
	struct utsname u;
	uname(&u);
	S(u.nodename, strlen(u.nodename));
	T(setdomainname("dom", 3));
	show("/proc/sys/kernel/hostname");
	T(set("/proc/sys/kernel/domainname", "other"));
	show("/proc/sys/kernel/domainname");
	pid_t p = fork();
	if (p == 0) {
		/* The initial namespaces are not its own. */
		T(setpriority(PRIO_PROCESS, 0, -5));
		struct rlimit r = { 1 << 20, 1 << 21 };
		T(setrlimit(RLIMIT_NOFILE, &r));
		T(mount("t", "/mnt", "tmpfs", 0, NULL));
		T(kill(1, 0));
		struct timespec t = { 1, 0 };
		T(clock_settime(CLOCK_REALTIME, &t));
		_exit(0);
	}
	waitpid(p, NULL, 0);
	T(unshare(CLONE_NEWIPC));
	T(unshare(CLONE_NEWNET));
	T(unshare(CLONE_NEWPID));
	T(unshare(CLONE_NEWNS));
	T(unshare(CLONE_NEWCGROUP));
}

static void uts(void)
{
	struct utsname a, b;
	uname(&a);
	become();
	T(sethostname("no", 2));
	pid_t p = fork();
	if (p == 0) {
		T(unshare(CLONE_NEWUTS));
		T(sethostname("child", 5));
		uname(&b);
		S(b.nodename, strlen(b.nodename));
		_exit(0);
	}
	waitpid(p, NULL, 0);
	uname(&b);
	Y(!strcmp(a.nodename, b.nodename));
}

static void ipc(void)
{
	become();
	int outside = shmget(0x1234567, 4096, IPC_CREAT | 0600);
	Y(outside >= 0);
	T(unshare(CLONE_NEWIPC));
	T(shmget(0x1234567, 4096, 0600));
	int id = shmget(0x1234567, 4096, IPC_CREAT | IPC_EXCL | 0600);
	T(id);
	struct shmid_ds d;
	T(shmctl(id, IPC_STAT, &d));
	T(d.shm_perm.uid);
	T(d.shm_perm.cuid);
	Y(d.shm_cpid == getpid());
	d.shm_perm.uid = 3;
	T(shmctl(id, IPC_SET, &d));
	T(semget(5, 1, IPC_CREAT | 0600));
	T(semop(0, &(struct sembuf){ 0, 1, SEM_UNDO }, 1));
	Y(semctl(0, 0, GETPID) == getpid());
	T(semctl(0, 0, GETVAL));
}

static int flags(int *f)
{
	struct ifreq r = { .ifr_name = "lo" };
	int s = socket(AF_INET, SOCK_DGRAM, 0);
	int e = ioctl(s, SIOCGIFFLAGS, &r);
	*f = r.ifr_flags;
	close(s);
	return e;
}

static int up(int on)
{
	struct ifreq r = { .ifr_name = "lo" };
	int s = socket(AF_INET, SOCK_DGRAM, 0);
	ioctl(s, SIOCGIFFLAGS, &r);
	r.ifr_flags = on ? r.ifr_flags | IFF_UP : r.ifr_flags & ~IFF_UP;
	int e = ioctl(s, SIOCSIFFLAGS, &r), n = errno;
	close(s);
	errno = n;
	return e;
}

static void network(void)
{
	become();
	int f;
	struct sockaddr_in a = { AF_INET, htons(7777), { htonl(INADDR_LOOPBACK) } };
	struct sockaddr_un n = { AF_UNIX, "\0namespaces" };
	int before = socket(AF_UNIX, SOCK_STREAM, 0), listener = socket(AF_INET, SOCK_STREAM, 0);
	T(bind(before, (void *)&n, 12));
	T(listen(before, 1));
	T(bind(listener, (void *)&a, sizeof a));
	T(listen(listener, 1));
	T(up(1));
	T(unshare(CLONE_NEWNET));
	T(flags(&f));
	T(f);
	int s = socket(AF_UNIX, SOCK_STREAM, 0);
	T(connect(s, (void *)&n, 12));
	T(bind(s, (void *)&n, 12));
	s = socket(AF_INET, SOCK_STREAM, 0);
	T(connect(s, (void *)&a, sizeof a));
	T(bind(s, (void *)&a, sizeof a));
	a.sin_port = htons(80);
	a.sin_addr.s_addr = 0;
	T(bind(s, (void *)&a, sizeof a));
	T(up(1));
	T(flags(&f));
	T(f);
	a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	T(listen(s, 1));
	int c = socket(AF_INET, SOCK_STREAM, 0);
	T(connect(c, (void *)&a, sizeof a));
	c = socket(AF_INET, SOCK_STREAM, 0);
	a.sin_port = htons(7777);
	T(connect(c, (void *)&a, sizeof a));
	/* Sockets stay in the namespace that they were made in. */
	T(fcntl(listener, F_SETFL, O_NONBLOCK));
	T(accept(listener, NULL, NULL));
	T(up(0));
	T(flags(&f));
	T(f);
	show("/proc/sys/net/ipv4/ip_unprivileged_port_start");
	show("/proc/net/tcp6");
}

/* What bubblewrap does: binds made read-only, and a loopback interface of its own. */
static void bubblewrap(void)
{
	become();
	T(unshare(CLONE_NEWNS | CLONE_NEWNET));
	T(mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL));
	mkdir("b", 0755);
	T(mount("/", "b", NULL, MS_BIND | MS_REC, NULL));
	struct statvfs v;
	T(statvfs("b", &v));
	unsigned long now = (v.f_flag & ST_NOSUID ? MS_NOSUID : 0) | (v.f_flag & ST_NODEV ? MS_NODEV : 0) | (v.f_flag & ST_NOEXEC ? MS_NOEXEC : 0);
	T(mount(NULL, "b", NULL, MS_SILENT | MS_REMOUNT | MS_BIND | MS_RDONLY | now, NULL));
	T(open("b/new", O_CREAT | O_WRONLY, 0644));
	T(mount("/proc", "b", NULL, MS_BIND | MS_REC, NULL));
	T(statvfs("b", &v));
	Y(v.f_flag & ST_RELATIME);
	/* How access times go is locked. */
	T(mount(NULL, "b", NULL, MS_REMOUNT | MS_BIND | MS_NOSUID | MS_NODEV | MS_NOEXEC | MS_NOATIME, NULL));
	T(mount(NULL, "b", NULL, MS_REMOUNT | MS_BIND | MS_NOSUID | MS_NODEV | MS_NOEXEC | MS_RDONLY, NULL));
	int s = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE);
	struct { struct nlmsghdr h; struct ifaddrmsg a; struct rtattr r1; struct in_addr i1; struct rtattr r2; struct in_addr i2; } q = {
		{ sizeof q, RTM_NEWADDR, NLM_F_REQUEST | NLM_F_ACK | NLM_F_CREATE | NLM_F_EXCL, 1, 0 },
		{ AF_INET, 8, IFA_F_PERMANENT, RT_SCOPE_HOST, if_nametoindex("lo") },
		{ 8, IFA_LOCAL }, { htonl(INADDR_LOOPBACK) }, { 8, IFA_ADDRESS }, { htonl(INADDR_LOOPBACK) } };
	struct { struct nlmsghdr h; struct nlmsgerr e; char more[200]; } got;
	for (int i = 0; i < 2; i++) {
		T(send(s, &q, sizeof q, 0));
		Y(recv(s, &got, sizeof got, 0) > 0 && got.h.nlmsg_type == NLMSG_ERROR);
		T(got.e.error);
	}
	struct { struct nlmsghdr h; struct ifinfomsg i; } l = { { sizeof l, RTM_NEWLINK, NLM_F_REQUEST | NLM_F_ACK, 2, 0 },
		{ AF_UNSPEC, 0, 0, if_nametoindex("lo"), IFF_UP, IFF_UP } };
	T(send(s, &l, sizeof l, 0));
	Y(recv(s, &got, sizeof got, 0) > 0 && got.h.nlmsg_type == NLMSG_ERROR);
	T(got.e.error);
}

static void mounts(void)
{
	become();
	T(mount("t", ".", "tmpfs", 0, NULL));
	T(unshare(CLONE_NEWNS));
	T(mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL));
	mkdir("m", 0755);
	T(mount("t", "m", "tmpfs", 0, NULL));
	put("m/f", "x");
	struct stat st;
	T(stat("m/f", &st));
	T(st.st_uid);
	T(chown("m/f", 0, 0));
	T(mount(NULL, "m", NULL, MS_REMOUNT | MS_RDONLY, NULL));
	T(open("m/f", O_RDWR));
	T(mount(NULL, "m", NULL, MS_REMOUNT | MS_BIND | MS_NOSUID, NULL));
	T(mount("m", "m", NULL, MS_BIND, NULL));
	T(umount("m"));
	T(umount("m"));
	T(umount("/proc"));
	T(umount2("/proc", MNT_DETACH));
	T(mount("d", "m", "devtmpfs", 0, NULL));
	T(mount("d", "m", "nosuchfs", 0, NULL));
	T(mount("t", "m", "tmpfs", 0, "uid=0,gid=0"));
	T(umount("m"));
	T(mount("t", "m", "tmpfs", 0, "uid=5"));
	T(mount("/proc", "m", NULL, MS_BIND, NULL));
	T(mount("/proc", "m", NULL, MS_BIND | MS_REC, NULL));
	T(umount2("m", MNT_DETACH));
	/* A namespace as a mount. */
	put("ns", "");
	T(mount("/proc/self/ns/uts", "ns", NULL, MS_BIND, NULL));
	struct stat a, b;
	stat("ns", &a), stat("/proc/self/ns/uts", &b);
	Y(a.st_ino == b.st_ino && a.st_dev == b.st_dev);
	T(unshare(CLONE_NEWUTS));
	int fd = open("ns", O_RDONLY);
	stat("/proc/self/ns/uts", &b);
	Y(a.st_ino != b.st_ino);
	T(setns(fd, CLONE_NEWUTS));
	T(mount("/proc/self/ns/mnt", "ns", NULL, MS_BIND, NULL));
	T(umount("ns"));
}

/* What a lazy unmount, or the end of a namespace, leaves to who has a file in it: each mount on its own, but for those
 * that are locked to what they cover. */
static void looks(int a, const char *what)
{
	struct stat st;
	say(what, "b/inner %s", fstatat(a, "b/inner", &st, 0) ? strerrorname_np(errno) : "there");
	say(what, "b %s", fstatat(a, "b", &st, 0) ? strerrorname_np(errno) : "there");
}

static void lazy(void)
{
	become();
	T(unshare(CLONE_NEWNS));
	T(mount("t", ".", "tmpfs", 0, NULL));
	int here = open("/proc/self/cwd", O_PATH);
	char top[64];
	sprintf(top, "/proc/self/fd/%d", here);
	T(chdir(top));
	mkdir("a", 0755), mkdir("c", 0755);
	T(mount("u", "a", "tmpfs", 0, NULL));
	mkdir("a/b", 0755);
	T(mount("v", "a/b", "tmpfs", 0, NULL));
	mkdir("a/b/inner", 0755);
	int a = open("a", O_PATH | O_DIRECTORY), b = open("a/b", O_PATH | O_DIRECTORY);
	looks(a, "before");
	T(umount2("a", MNT_DETACH));
	looks(a, "detached");
	struct stat st;
	T(fstatat(b, "inner", &st, 0));
	struct stat up, self;
	fstatat(b, "..", &up, 0), fstatat(b, ".", &self, 0);
	Y(up.st_ino == self.st_ino && up.st_dev == self.st_dev);
	T(rmdir("a"));
	mkdir("a", 0755);
	/* A namespace that ends while its parent has a file of it. */
	pid_t p = syscall(SYS_clone, CLONE_FILES | SIGCHLD, 0, 0, 0, 0);
	if (p == 0) {
		if (unshare(CLONE_NEWNS) || mount("u", "a", "tmpfs", 0, NULL) || mkdir("a/b", 0755))
			_exit(1);
		if (mount("v", "a/b", "tmpfs", 0, NULL) || mkdir("a/b/inner", 0755))
			_exit(2);
		_exit(dup2(open("a", O_PATH | O_DIRECTORY), 100) == 100 ? 0 : 3);
	}
	int status = 0;
	waitpid(p, &status, 0);
	T(status);
	a = 100;
	ms(100);
	looks(a, "ended");
	/* Locked mounts stay. */
	T(mount("u", "a", "tmpfs", 0, NULL));
	mkdir("a/b", 0755), mkdir("a/b/under", 0755);
	T(mount("v", "a/b", "tmpfs", 0, NULL));
	mkdir("a/b/inner", 0755);
	T(unshare(CLONE_NEWUSER | CLONE_NEWNS));
	T(umount2("a", MNT_DETACH));
	T(mount("a", "c", NULL, MS_BIND | MS_REC, NULL));
	a = open("c", O_PATH | O_DIRECTORY);
	T(mount("w", "c/b/inner", "tmpfs", 0, NULL));
	mkdir("c/b/inner/top", 0755);
	T(umount2("c", MNT_DETACH));
	looks(a, "locked");
	T(fstatat(a, "b/under", &st, 0));
	T(fstatat(a, "b/inner/top", &st, 0));
}

/* A devpts of one's own is one's own. */
static void terminals(void)
{
	become();
	T(unshare(CLONE_NEWNS));
	mkdir("p", 0755);
	T(mount("d", "p", "devpts", 0, "newinstance"));
	struct stat st;
	T(stat("p", &st));
	say("p", "%u:%u %o", st.st_uid, st.st_gid, st.st_mode);
	T(stat("p/ptmx", &st));
	say("p/ptmx", "%u:%u %o", st.st_uid, st.st_gid, st.st_mode);
	T(chmod("p/ptmx", 0666));
	int m = open("p/ptmx", O_RDWR | O_NOCTTY);
	Y(m >= 0);
	T(stat("p/0", &st));
	say("p/0", "%u:%u %o", st.st_uid, st.st_gid, st.st_mode);
	T(stat("p/00", &st));
	T(stat("p/+0", &st));
	/* A remount holds for what is there. */
	T(mount(NULL, "p", NULL, MS_REMOUNT, "ptmxmode=640,max=1"));
	T(stat("p/ptmx", &st) ? -1 : st.st_mode);
	T(open("p/ptmx", O_RDWR | O_NOCTTY));
	T(mount(NULL, "p", NULL, MS_REMOUNT, "ptmxmode=604,max=2"));
	T(stat("p/ptmx", &st) ? -1 : st.st_mode);
	int m2 = open("p/ptmx", O_RDWR | O_NOCTTY);
	Y(m2 >= 0);
	T(open("p/ptmx", O_RDWR | O_NOCTTY));
	close(m);
	Y(open("p/ptmx", O_RDWR | O_NOCTTY) >= 0);
	T(mount(NULL, "p", NULL, MS_REMOUNT, "max=0"));
	Y(open("p/ptmx", O_RDWR | O_NOCTTY) >= 0);
	T(mount(NULL, "p", NULL, MS_REMOUNT, "colour=1,mode=600"));
	T(stat("p/ptmx", &st) ? -1 : st.st_mode);
}

static void signals(void)
{
	int pi[2];
	pipe(pi);
	pid_t p = fork();
	if (p == 0) {
		become();
		write(pi[1], "x", 1);
		pause();
	}
	char c;
	read(pi[0], &c, 1);
	pid_t q = fork();
	if (q == 0) {
		drop_root();
		prctl(PR_SET_DUMPABLE, 1);
		/* The same user outside made it: it has all rights in it. */
		char path[64];
		sprintf(path, "/proc/%d/ns/user", p);
		int fd = open(path, O_RDONLY);
		Y(fd >= 0);
		uid_t o = 0;
		T(ioctl(fd, 0xb704, &o));
		Y(o == getuid());
		T(ioctl(fd, 0xb703));
		int up = ioctl(fd, 0xb702);
		Y(up >= 0);
		struct stat a, b;
		fstat(up, &a), stat("/proc/self/ns/user", &b);
		Y(a.st_ino == b.st_ino);
		T(ioctl(up, 0xb702));
		T(setns(fd, CLONE_NEWUTS));
		T(setns(fd, CLONE_NEWUSER));
		caps("entered");
		T(getuid());
		T(setns(fd, CLONE_NEWUSER));
		T(setns(up, CLONE_NEWUSER));
		T(kill(p, SIGTERM));
		_exit(0);
	}
	waitpid(q, NULL, 0);
	siginfo_t i = { 0 };
	T(waitid(P_PID, p, &i, WEXITED));
	T(i.si_status);
}

static void exec_caps(void)
{
	drop_root();
	prctl(PR_SET_DUMPABLE, 1);
	uid_t u = getuid();
	if (getenv("USERNS_STAGE")) {
		caps("after exec");
		T(getuid());
		return;
	}
	setenv("USERNS_STAGE", "1", 1);
	T(0);
	pid_t p = fork();
	if (p == 0) {
		T(unshare(CLONE_NEWUSER));
		FILE *f;
		execlp("grep", "grep", "Cap[PE]", "/proc/self/status", NULL);
		_exit(1);
	}
	waitpid(p, NULL, 0);
	p = fork();
	if (p == 0) {
		T(unshare(CLONE_NEWUSER));
		T(set("/proc/self/uid_map", map(0, u, 1)));
		execlp("grep", "grep", "Cap[PE]", "/proc/self/status", NULL);
		_exit(1);
	}
	waitpid(p, NULL, 0);
	p = fork();
	if (p == 0) {
		T(unshare(CLONE_NEWUSER));
		T(set("/proc/self/uid_map", map(0, u, 1)));
		execlp("id", "id", "-u", NULL);
		_exit(1);
	}
	waitpid(p, NULL, 0);
}

static void refused(void)
{
	pthread_t t;
	pthread_create(&t, NULL, (void *(*)(void *))pause, NULL);
	T(unshare(CLONE_NEWUSER));
	T(unshare(CLONE_THREAD));
	pid_t p = fork();
	if (p == 0) {
		int depth = 0;
		drop_root();
		while (unshare(CLONE_NEWUSER) == 0)
			depth++;
		report("unmapped", depth, errno);
		T(-1);
		_exit(0);
	}
	waitpid(p, NULL, 0);
	p = fork();
	if (p == 0) {
		mkdir("root", 0755);
		if (geteuid() == 0) {
			T(chroot("root"));
			T(unshare(CLONE_NEWUSER));
		}
		_exit(0);
	}
	waitpid(p, NULL, 0);
	p = fork();
	if (p == 0) {
		drop_root();
		prctl(PR_SET_DUMPABLE, 1);
		int depth = 0;
		uid_t u = getuid();
		gid_t g = getgid();
		while (unshare(CLONE_NEWUSER) == 0 && depth < 50) {
			depth++;
			set("/proc/self/setgroups", "deny");
			if (set("/proc/self/uid_map", map(0, u, 1)) || set("/proc/self/gid_map", map(0, g, 1)))
				say("map", "%d %s", depth, strerrorname_np(errno));
			u = g = 0;
		}
		report("too deep", -1, errno);
		T(depth);
		_exit(0);
	}
	waitpid(p, NULL, 0);
}

static void messages(void)
{
	int sv[2], on = 1;
	socketpair(AF_UNIX, SOCK_DGRAM, 0, sv);
	setsockopt(sv[0], SOL_SOCKET, SO_PASSCRED, &on, sizeof on);
	drop_root();
	uid_t u = getuid();
	pid_t p = fork();
	char buf[8], ctl[128];
	struct iovec io = { buf, 2 };
	struct msghdr m = { .msg_iov = &io, .msg_iovlen = 1, .msg_control = ctl, .msg_controllen = sizeof ctl };
	if (p == 0) {
		become();
		write(sv[1], "in", 2);
		struct cmsghdr *c = CMSG_FIRSTHDR(&m);
		struct ucred me = { getpid(), 0, 0 };
		m.msg_controllen = CMSG_SPACE(sizeof me);
		c->cmsg_level = SOL_SOCKET, c->cmsg_type = SCM_CREDENTIALS, c->cmsg_len = CMSG_LEN(sizeof me);
		memcpy(CMSG_DATA(c), &me, sizeof me);
		T(sendmsg(sv[1], &m, 0));
		me.uid = 1;
		memcpy(CMSG_DATA(c), &me, sizeof me);
		T(sendmsg(sv[1], &m, 0));
		struct ucred peer;
		socklen_t n = sizeof peer;
		T(getsockopt(sv[1], SOL_SOCKET, SO_PEERCRED, &peer, &n));
		Y(peer.uid == 0 || peer.uid == 65534);
		_exit(0);
	}
	waitpid(p, NULL, 0);
	for (int i = 0; i < 2; i++) {
		m.msg_controllen = sizeof ctl;
		T(recvmsg(sv[0], &m, MSG_DONTWAIT));
		struct ucred *c = (void *)CMSG_DATA(CMSG_FIRSTHDR(&m));
		Y(c->uid == u && c->pid == p);
	}
}

/* Who went into a namespace of its own does not look into its user's other processes any more. */
static void looking(void)
{
	drop_root();
	prctl(PR_SET_DUMPABLE, 1);
	char path[64];
	sprintf(path, "/proc/%d/environ", getpid());
	if (!fork()) {
		Y(open(path, O_RDONLY) >= 0);
		T(unshare(CLONE_NEWUSER));
		T(open(path, O_RDONLY));
		_exit(0);
	}
	wait(NULL);
	int p = fork();
	if (!p) {
		unshare(CLONE_NEWUSER);
		prctl(PR_SET_DUMPABLE, 1);
		pause();
	}
	usleep(50000);
	/* Its maker is who administers it. */
	sprintf(path, "/proc/%d/environ", p);
	Y(open(path, O_RDONLY) >= 0);
	kill(p, SIGKILL);
	wait(NULL);
}

/* The mounts below this directory: in which order, of which type, and with which options. */
static void show_mounts(void)
{
	char line[1024], here[PATH_MAX], where[1024], type[64], opts[1024];
	FILE *f = fopen("/proc/self/mounts", "r");
	if (!f || !getcwd(here, sizeof here))
		return;
	while (fgets(line, sizeof line, f)) {
		if (sscanf(line, "%*s %1023s %63s %1023s", where, type, opts) != 3 || strncmp(where, here, strlen(here)))
			continue;
		/* Kernels differ in whether they can count inodes otherwise. */
		char *inodes = strstr(opts, ",inode64");
		if (inodes)
			memmove(inodes, inodes + 8, strlen(inodes + 8) + 1);
		say(where + strlen(here), "%s %s", type, opts);
	}
	fclose(f);
}

static void mount_options(void)
{
	struct stat st;
	become();
	T(unshare(CLONE_NEWNS));
	T(mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL));
	for (const char *d = "abcdez"; *d; d++)
		mkdir((char[]){ *d, 0 }, 0755);
	T(mount("t", "z", "tmpfs", 0, "size=64k,mode=1750,nr_inodes=7"));
	mkdir("z/in", 0755);
	mkdir("z/out", 0755);
	T(mount("t", "a", "tmpfs", MS_NOSUID, "mode=700"));
	T(mount("t", "z/in", "tmpfs", MS_RDONLY, NULL));
	T(mount("t", "e", "tmpfs", 0, "mode=7"));
	T(mount("d", "b", "devpts", 0, "newinstance,gid=0,mode=0620,ptmxmode=0666"));
	T(mount("d", "c", "devpts", MS_NOEXEC, NULL));
	T(mount("d", "d", "devpts", 0, "max=7,uid=0"));
	T(mount("b", "z/out", NULL, MS_BIND, NULL));
	T(mount("d", "z/out", "devpts", 0, "colour=1"));
	T(mount("d", "z/out", "devpts", 0, "mode=9"));
	T(mount("d", "z/out", "devpts", 0, "gid=77"));
	show_mounts();
	T(stat("b/ptmx", &st) ? -1 : st.st_mode);
	T(stat("c/ptmx", &st) ? -1 : st.st_mode);
	T(stat("c", &st) ? -1 : st.st_mode);
	T(mount(NULL, "b", NULL, MS_REMOUNT, "mode=600,ptmxmode=640"));
	T(mount(NULL, "z", NULL, MS_REMOUNT, "size=128k"));
	/* A copy is in the tree's order. */
	T(unshare(CLONE_NEWNS));
	show_mounts();
}

static const struct check list[] = {
	CHECK(mount_options), CHECK(maps), CHECK(parent_maps), CHECK(files), CHECK(elsewhere), CHECK(uts), CHECK(ipc), CHECK(network),
	CHECK(bubblewrap), CHECK(mounts), CHECK(lazy), CHECK(terminals), CHECK(signals), CHECK(exec_caps), CHECK(refused), CHECK(looking), CHECK(messages),
};
MAIN(list)
