/* Sockets: UNIX, TCP and UDP over loopback. */
#define AREA "sockets"
#include "check.h"
#include <arpa/inet.h>
#include <linux/sockios.h>
#include <net/if.h>
#include <netinet/in.h>
#include <netinet/tcp.h>

static int revents(int fd, int events)
{
	struct pollfd p = { fd, events };
	poll(&p, 1, 0);
	return p.revents;
}

static socklen_t name(struct sockaddr_un *u, const char *path)
{
	memset(u, 0, sizeof *u);
	u->sun_family = AF_UNIX;
	strcpy(u->sun_path, path);
	return offsetof(struct sockaddr_un, sun_path) + strlen(path) + 1;
}

static socklen_t abstract(struct sockaddr_un *u, const char *what)
{
	memset(u, 0, sizeof *u);
	u->sun_family = AF_UNIX;
	sprintf(u->sun_path + 1, "check-%d-%s", getpid(), what);
	return offsetof(struct sockaddr_un, sun_path) + 1 + strlen(u->sun_path + 1);
}

static struct sockaddr_in inet_addr_of(int port)
{
	struct sockaddr_in a = { .sin_family = AF_INET, .sin_port = htons(port) };
	a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	return a;
}

static void creation(void)
{
	T(socket(AF_UNIX, SOCK_STREAM, 0));
	T(socket(AF_INET, SOCK_STREAM, 0));
	T(socket(AF_INET, SOCK_DGRAM, 0));
	T(socket(AF_INET6, SOCK_STREAM, 0) >= 0);
	T(socket(99, SOCK_STREAM, 0));
	T(socket(-1, SOCK_STREAM, 0));
	T(socket(AF_UNIX, 99, 0));
	T(socket(AF_UNIX, 7, 0));
	T(socket(AF_UNIX, SOCK_STREAM, 99));
	T(socket(AF_INET, SOCK_STREAM, IPPROTO_UDP));
	T(socket(AF_INET, SOCK_SEQPACKET, 0));
	T(socket(AF_UNIX, SOCK_STREAM | 0x100, 0));
	int s = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	T(fcntl(s, F_GETFD));
	T(fcntl(s, F_GETFL) & O_NONBLOCK ? 1 : 0);
	T(fcntl(s, F_GETFL) & O_ACCMODE);
	struct stat st;
	T(fstat(s, &st));
	T(S_ISSOCK(st.st_mode));
	T(lseek(s, 0, SEEK_SET));
	int v[2];
	T(socketpair(AF_INET, SOCK_STREAM, 0, v));
	T(socketpair(AF_UNIX, SOCK_STREAM, 0, (int *)8));
	T(socketpair(AF_UNIX, 99, 0, v));
	T(CHILD(drop_root(); _exit(socket(AF_INET, SOCK_RAW, IPPROTO_TCP) == -1 ? errno : 0)));
	T(CHILD(drop_root(); _exit(socket(AF_PACKET, SOCK_RAW, 0) == -1 ? errno : 0)));
}

static void stream_pair(void)
{
	int v[2], n;
	char b[32] = "";
	T(socketpair(AF_UNIX, SOCK_STREAM, 0, v));
	T(write(v[0], "hello", 5));
	T(send(v[0], " world", 6, 0));
	T(ioctl(v[1], FIONREAD, &n));
	T(n);
	T(recv(v[1], b, 5, MSG_PEEK));
	T(read(v[1], b, 32));
	S(b, 11);
	T(recv(v[1], b, 1, MSG_DONTWAIT));
	T(revents(v[1], POLLIN | POLLOUT));
	T(send(v[0], "x", 1, MSG_OOB) == 1 || errno == EOPNOTSUPP);
	recv(v[1], b, 32, MSG_DONTWAIT);
	T(shutdown(v[0], SHUT_WR));
	T(read(v[1], b, 1));
	T(revents(v[1], POLLIN | POLLRDHUP | POLLOUT));
	T(send(v[0], "x", 1, MSG_NOSIGNAL));
	T(CHILD(send(v[0], "x", 1, 0)));
	T(write(v[1], "back", 4));
	T(read(v[0], b, 32));
	T(shutdown(v[0], 9));
	close(v[1]);
	T(read(v[0], b, 1));
	T(revents(v[0], POLLIN | POLLOUT));
	T(socketpair(AF_UNIX, SOCK_STREAM, 0, v));
	write(v[0], "unread", 6);
	close(v[1]);
	T(recv(v[0], b, 1, 0));
	T(send(v[0], "x", 1, MSG_NOSIGNAL));
	T(recv(v[0], b, 1, 0));
	socketpair(AF_UNIX, SOCK_STREAM, 0, v);
	write(v[0], "left", 4);
	close(v[0]);
	T(read(v[1], b, 32));
	T(read(v[1], b, 32));
	T(recv(v[1], b, 0, 0));
}

static void message_pairs(void)
{
	char b[16] = "", big[300000] = "";
	int v[2];
	for (int kind = SOCK_DGRAM; kind; kind = kind == SOCK_DGRAM ? SOCK_SEQPACKET : 0) {
		say("kind", "%s", kind == SOCK_DGRAM ? "dgram" : "seqpacket");
		T(socketpair(AF_UNIX, kind, 0, v));
		T(send(v[0], "one", 3, 0));
		T(send(v[0], "three", 5, 0));
		T(send(v[0], "", 0, 0));
		T(recv(v[1], b, 16, 0));
		T(recv(v[1], b, 2, MSG_TRUNC));
		T(recv(v[1], b, 16, 0));
		T(recv(v[1], b, 16, MSG_DONTWAIT));
		struct iovec i = { b, 2 };
		struct msghdr m = { .msg_iov = &i, .msg_iovlen = 1 };
		send(v[0], "long", 4, 0);
		T(recvmsg(v[1], &m, 0));
		T(m.msg_flags);
		T(send(v[0], big, sizeof big, 0));
		int n = 0;
		while (send(v[0], b, 1, MSG_DONTWAIT) == 1)
			n++;
		Y(errno == EAGAIN);
		Y(n > 5);
		T(revents(v[0], POLLOUT));
		while (recv(v[1], b, 1, MSG_DONTWAIT) == 1)
			n--;
		T(n);
		T(revents(v[0], POLLOUT));
		close(v[1]);
		T(send(v[0], "x", 1, MSG_NOSIGNAL));
		T(recv(v[0], b, 1, MSG_DONTWAIT));
		T(CHILD(send(v[0], "x", 1, 0); _exit(errno == EPIPE)));
		close(v[0]);
	}
}

static void named(void)
{
	struct sockaddr_un a, b;
	char buf[16];
	struct stat st;
	socklen_t l = name(&a, "s"), n = sizeof b;
	int s = socket(AF_UNIX, SOCK_STREAM, 0), c = socket(AF_UNIX, SOCK_STREAM, 0);
	T(connect(c, (void *)&a, l));
	T(listen(s, 5));
	T(bind(s, (void *)&a, l));
	T(bind(s, (void *)&a, l));
	T(bind(c, (void *)&a, l));
	T(stat("s", &st));
	T(S_ISSOCK(st.st_mode));
	T(st.st_mode & 0777);
	T(connect(c, (void *)&a, l));
	T(accept(s, NULL, NULL));
	T(listen(s, 5));
	T(getsockname(s, (void *)&b, &n));
	T(n);
	S(b.sun_path, 2);
	T(connect(c, (void *)&a, l));
	T(connect(c, (void *)&a, l));
	T(revents(s, POLLIN));
	n = sizeof b;
	int x = accept(s, (void *)&b, &n);
	Y(x >= 0);
	T(n);
	T(b.sun_family);
	n = sizeof b;
	T(getpeername(c, (void *)&b, &n));
	S(b.sun_path, 2);
	n = sizeof b;
	T(getpeername(x, (void *)&b, &n));
	T(n);
	T(write(c, "hi", 2));
	T(read(x, buf, 16));
	n = 4;
	T(getsockname(s, (void *)&b, &n));
	T(n);
	n = -1;
	T(getsockname(s, (void *)&b, &n));
	T(unlink("s"));
	int d = socket(AF_UNIX, SOCK_STREAM, 0);
	T(connect(d, (void *)&a, l));
	put("file", "");
	l = name(&a, "file");
	T(connect(d, (void *)&a, l));
	T(bind(d, (void *)&a, l));
	l = name(&a, "no/such");
	T(bind(d, (void *)&a, l));
	a.sun_family = AF_INET;
	T(bind(d, (void *)&a, l));
	T(bind(d, (void *)&a, 1));
	T(bind(d, (void *)&a, 200));
	T(bind(d, (void *)8, 20));
	T(open("s", O_RDWR));
	l = name(&a, "t");
	bind(d, (void *)&a, l);
	T(open("t", O_RDWR));
	int g = socket(AF_UNIX, SOCK_DGRAM, 0);
	T(connect(g, (void *)&a, l));
	T(listen(g, 1));
	T(accept(g, NULL, NULL));
	close(d);
	d = socket(AF_UNIX, SOCK_STREAM, 0);
	T(connect(d, (void *)&a, l));
	T(bind(d, (void *)&a, l));
	char longest[109];
	memset(longest, 'a', 108), longest[108] = 0;
	memcpy(a.sun_path, longest, 108);
	T(bind(d, (void *)&a, sizeof a));
	T(access(longest, F_OK));
}

static void abstract_names(void)
{
	struct sockaddr_un a, b;
	socklen_t l = abstract(&a, "x"), n = sizeof b;
	int s = socket(AF_UNIX, SOCK_STREAM, 0), c = socket(AF_UNIX, SOCK_STREAM, 0), d = socket(AF_UNIX, SOCK_STREAM, 0);
	T(connect(c, (void *)&a, l));
	T(bind(s, (void *)&a, l));
	T(bind(d, (void *)&a, l));
	listen(s, 0);
	T(connect(c, (void *)&a, l - 1));
	T(connect(c, (void *)&a, l));
	getsockname(s, (void *)&b, &n);
	Y(n == l && !memcmp(&a, &b, n));
	fcntl(d, F_SETFL, O_NONBLOCK);
	T(connect(d, (void *)&a, l));
	close(s);
	T(bind(d, (void *)&a, l));
	/* Autobind: five digits. */
	int e = socket(AF_UNIX, SOCK_DGRAM, 0);
	sa_family_t f = AF_UNIX;
	T(bind(e, (void *)&f, sizeof f));
	n = sizeof b;
	getsockname(e, (void *)&b, &n);
	T(n);
	T(b.sun_path[0]);
}

static void datagrams(void)
{
	struct sockaddr_un a, b, from;
	socklen_t la = name(&a, "a"), lb = name(&b, "b"), n = sizeof from;
	char buf[16];
	int x = socket(AF_UNIX, SOCK_DGRAM, 0), y = socket(AF_UNIX, SOCK_DGRAM, 0), z = socket(AF_UNIX, SOCK_DGRAM, 0);
	T(sendto(x, "m", 1, 0, (void *)&b, lb));
	T(bind(y, (void *)&b, lb));
	T(sendto(x, "m", 1, 0, (void *)&b, lb));
	T(recvfrom(y, buf, 16, 0, (void *)&from, &n));
	T(n);
	bind(x, (void *)&a, la);
	T(sendto(x, "mm", 2, 0, (void *)&b, lb));
	n = sizeof from;
	T(recvfrom(y, buf, 16, 0, (void *)&from, &n));
	S(from.sun_path, 2);
	T(send(x, "m", 1, 0));
	T(connect(x, (void *)&b, lb));
	T(send(x, "m", 1, 0));
	T(recv(y, buf, 16, 0));
	T(connect(y, (void *)&a, la));
	T(sendto(z, "m", 1, 0, (void *)&b, lb));
	T(connect(z, (void *)&b, lb));
	close(y);
	T(send(x, "m", 1, 0));
	T(send(x, "m", 1, 0));
	sa_family_t none = AF_UNSPEC;
	T(connect(x, (void *)&none, sizeof none));
	T(send(x, "m", 1, 0));
}

static long send_fds(int s, int *fds, int n, int flags)
{
	char space[CMSG_SPACE(300 * sizeof(int))] = "";
	struct iovec i = { "F", 1 };
	struct msghdr m = { .msg_iov = &i, .msg_iovlen = 1, .msg_control = space, .msg_controllen = CMSG_SPACE(n * sizeof(int)) };
	struct cmsghdr *c = CMSG_FIRSTHDR(&m);
	c->cmsg_level = SOL_SOCKET, c->cmsg_type = SCM_RIGHTS, c->cmsg_len = CMSG_LEN(n * sizeof(int));
	memcpy(CMSG_DATA(c), fds, n * sizeof(int));
	return sendmsg(s, &m, flags);
}

/* Receives; gives the number of descriptors, the first in *fd, msg_flags in *mf. */
static long receive_fds(int s, int room, int flags, int *fd, int *mf)
{
	char space[CMSG_SPACE(300 * sizeof(int))] = "", b[8];
	struct iovec i = { b, 8 };
	struct msghdr m = { .msg_iov = &i, .msg_iovlen = 1, .msg_control = space, .msg_controllen = room < 0 ? 0 : CMSG_SPACE(room * sizeof(int)) };
	long r = recvmsg(s, &m, flags);
	*mf = m.msg_flags;
	if (r < 0)
		return r;
	struct cmsghdr *c = CMSG_FIRSTHDR(&m);
	if (!c)
		return 0;
	memcpy(fd, CMSG_DATA(c), sizeof(int));
	return (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);
}

static void rights(void)
{
	int v[2], fd[300], got = -1, mf;
	char b[16] = "";
	socketpair(AF_UNIX, SOCK_STREAM, 0, v);
	int f = open("f", O_CREAT | O_RDWR, 0644);
	write(f, "abcdef", 6);
	fd[0] = f, fd[1] = 0;
	T(send_fds(v[0], fd, 2, 0));
	T(receive_fds(v[1], 4, 0, &got, &mf));
	T(mf);
	T(got);
	T(lseek(got, 2, SEEK_SET));
	T(read(f, b, 2));
	S(b, 2);
	T(fcntl(got, F_GETFD));
	T(send_fds(v[0], fd, 1, 0));
	T(receive_fds(v[1], 4, MSG_CMSG_CLOEXEC, &got, &mf));
	T(fcntl(got, F_GETFD));
	T(send_fds(v[0], fd, 2, 0));
	T(receive_fds(v[1], 1, 0, &got, &mf) > 0);
	T(send_fds(v[0], fd, 2, 0));
	T(receive_fds(v[1], -1, 0, &got, &mf));
	T(mf);
	T(send_fds(v[0], fd, 1, 0));
	T(read(v[1], b, 8));
	fd[0] = 99;
	T(send_fds(v[0], fd, 1, 0));
	fd[0] = -1;
	T(send_fds(v[0], fd, 1, 0));
	for (int i = 0; i < 300; i++)
		fd[i] = f;
	T(send_fds(v[0], fd, 254, 0));
	T(send_fds(v[0], fd, 253, 0));
	T(receive_fds(v[1], 253, 0, &got, &mf));
	close_range(10, ~0U, 0);
	/* A read ends after the bytes that descriptors came with. */
	write(v[0], "123", 3);
	send_fds(v[0], fd, 1, 0);
	write(v[0], "456", 3);
	T(recv(v[1], b, 16, 0));
	T(recv(v[1], b, 16, 0));
	T(recv(v[1], b, 16, MSG_DONTWAIT));
	/* A socket in flight through itself. */
	T(send_fds(v[0], v, 2, 0));
	T(receive_fds(v[1], 2, 0, &got, &mf));
	T(send_fds(v[0], v, 2, 0));
	close(v[0]), close(v[1]);
	/* A file is closed when the message that holds it is never read. */
	int p[2];
	pipe(p);
	socketpair(AF_UNIX, SOCK_DGRAM, 0, v);
	send_fds(v[0], &p[1], 1, 0);
	close(p[1]);
	T(revents(p[0], POLLIN));
	close(v[0]), close(v[1]);
	T(revents(p[0], POLLIN));
	T(read(p[0], b, 1));
	/* To another process. */
	socketpair(AF_UNIX, SOCK_SEQPACKET, 0, v);
	pid_t c = fork();
	if (!c) {
		int n = open("new", O_CREAT | O_RDWR, 0644);
		write(n, "from the child", 14);
		send_fds(v[1], &n, 1, 0);
		_exit(0);
	}
	T(receive_fds(v[0], 1, 0, &got, &mf));
	waitpid(c, NULL, 0);
	T(pread(got, b, 14, 0));
	S(b, 14);
}

static void credentials(void)
{
	int v[2], on = 1;
	struct ucred u;
	socklen_t l = sizeof u;
	char space[256] = "", b[8];
	struct iovec i = { b, 8 };
	socketpair(AF_UNIX, SOCK_DGRAM, 0, v);
	T(getsockopt(v[0], SOL_SOCKET, SO_PEERCRED, &u, &l));
	Y(u.pid == getpid() && u.uid == geteuid() && u.gid == getegid());
	T(setsockopt(v[1], SOL_SOCKET, SO_PASSCRED, &on, sizeof on));
	send(v[0], "x", 1, 0);
	struct msghdr m = { .msg_iov = &i, .msg_iovlen = 1, .msg_control = space, .msg_controllen = sizeof space };
	T(recvmsg(v[1], &m, 0));
	struct cmsghdr *c = CMSG_FIRSTHDR(&m);
	Y(c && c->cmsg_type == SCM_CREDENTIALS);
	struct ucred *got = (void *)CMSG_DATA(c);
	Y(got->pid == getpid() && got->uid == getuid());
	T(CHILD(send(v[0], "x", 1, 0)));
	m.msg_controllen = sizeof space;
	recvmsg(v[1], &m, 0);
	Y(got->pid != getpid() && got->pid > 0);
	T(CHILD(drop_root();
		struct { struct cmsghdr h; struct ucred u; } s = { { CMSG_LEN(sizeof u), SOL_SOCKET, SCM_CREDENTIALS },
			{ 1, getuid(), getgid() } };
		struct msghdr w = { .msg_iov = &i, .msg_iovlen = 1, .msg_control = &s, .msg_controllen = CMSG_SPACE(sizeof u) };
		_exit(sendmsg(v[0], &w, 0) == -1 ? errno : 0)));
	int s = socket(AF_UNIX, SOCK_STREAM, 0);
	l = sizeof u;
	T(getsockopt(s, SOL_SOCKET, SO_PEERCRED, &u, &l));
	T(u.pid);
	T((int)u.uid);
}

static int listener(struct sockaddr_in *a, int backlog)
{
	int s = socket(AF_INET, SOCK_STREAM, 0);
	socklen_t l = sizeof *a;
	*a = inet_addr_of(0);
	bind(s, (void *)a, sizeof *a);
	listen(s, backlog);
	getsockname(s, (void *)a, &l);
	return s;
}

static void tcp(void)
{
	struct sockaddr_in a, b, c;
	socklen_t l = sizeof b;
	char buf[32] = "";
	int s = listener(&a, 5), x = socket(AF_INET, SOCK_STREAM, 0);
	Y(ntohs(a.sin_port) >= 1024);
	T(revents(x, POLLIN | POLLOUT));
	T(send(x, "x", 1, MSG_NOSIGNAL));
	T(recv(x, buf, 1, 0));
	T(getpeername(x, (void *)&b, &l));
	T(connect(x, (void *)&a, sizeof a));
	T(connect(x, (void *)&a, sizeof a));
	l = sizeof b;
	int y = accept4(s, (void *)&b, &l, SOCK_CLOEXEC);
	T(fcntl(y, F_GETFD));
	l = sizeof c;
	T(getsockname(x, (void *)&c, &l));
	Y(l == 16 && !memcmp(&b, &c, 16));
	T(getpeername(x, (void *)&c, &l));
	Y(!memcmp(&a, &c, 8));
	T(write(x, "hello", 5));
	T(recv(y, buf, 32, MSG_PEEK));
	T(recv(y, buf, 3, 0));
	T(read(y, buf, 32));
	T(recv(y, buf, 1, MSG_DONTWAIT));
	T(revents(y, POLLIN | POLLOUT | POLLRDHUP));
	T(shutdown(x, SHUT_WR));
	ms(5);
	T(revents(y, POLLIN | POLLOUT | POLLRDHUP));
	T(read(y, buf, 32));
	T(write(y, "late", 4));
	ms(5);
	T(read(x, buf, 32));
	T(CHILD(write(x, "x", 1)));
	T(send(x, "x", 1, MSG_NOSIGNAL));
	close(y);
	ms(5);
	T(read(x, buf, 32));
	T(revents(x, POLLIN | POLLOUT));
	T(shutdown(x, SHUT_RDWR));
	T(bind(x, (void *)&a, sizeof a));
	int z = socket(AF_INET, SOCK_STREAM, 0);
	T(bind(z, (void *)&a, sizeof a));
	T(listen(s, 10));
	T(shutdown(z, SHUT_RD));
	T(accept(z, NULL, NULL));
	close(s);
	T(connect(z, (void *)&a, sizeof a));
	int err = -1;
	l = sizeof err;
	T(getsockopt(z, SOL_SOCKET, SO_ERROR, &err, &l));
	T(err);
	b = inet_addr_of(1);
	b.sin_family = 99;
	T(connect(z, (void *)&b, sizeof b));
	T(connect(z, (void *)&b, 4));
	T(bind(z, (void *)&b, sizeof b));
	b.sin_family = AF_INET;
	b.sin_addr.s_addr = htonl(0x01020304);
	T(bind(z, (void *)&b, sizeof b));
	T(CHILD(drop_root(); b = inet_addr_of(80); int q = socket(AF_INET, SOCK_STREAM, 0);
		_exit(bind(q, (void *)&b, sizeof b) == -1 ? errno : 0)));
}

static void tcp_reset(void)
{
	struct sockaddr_in a;
	char b[8];
	int s = listener(&a, 5), x = socket(AF_INET, SOCK_STREAM, 0);
	connect(x, (void *)&a, sizeof a);
	int y = accept(s, NULL, NULL);
	write(x, "unread", 6);
	ms(5);
	close(y);
	ms(5);
	T(revents(x, POLLIN | POLLOUT | POLLRDHUP));
	T(recv(x, b, 8, 0));
	T(recv(x, b, 8, 0));
	T(send(x, "x", 1, MSG_NOSIGNAL));
	x = socket(AF_INET, SOCK_STREAM, 0);
	connect(x, (void *)&a, sizeof a);
	y = accept(s, NULL, NULL);
	struct linger l = { 1, 0 };
	T(setsockopt(y, SOL_SOCKET, SO_LINGER, &l, sizeof l));
	close(y);
	ms(5);
	T(recv(x, b, 8, 0));
	x = socket(AF_INET, SOCK_STREAM, 0);
	connect(x, (void *)&a, sizeof a);
	y = accept(s, NULL, NULL);
	close(y);
	ms(5);
	T(send(x, "x", 1, MSG_NOSIGNAL));
	ms(5);
	T(send(x, "x", 1, MSG_NOSIGNAL));
	x = socket(AF_INET, SOCK_STREAM, 0);
	connect(x, (void *)&a, sizeof a);
	ms(5);
	close(s);
	ms(5);
	T(recv(x, b, 8, 0));
}

static void nonblocking(void)
{
	struct sockaddr_in a;
	socklen_t l = sizeof(int);
	int err = -1, s = listener(&a, 5), x = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
	char b[4];
	fcntl(s, F_SETFL, O_NONBLOCK);
	T(accept(s, NULL, NULL));
	T(connect(x, (void *)&a, sizeof a));
	struct pollfd p = { x, POLLOUT };
	T(poll(&p, 1, 1000));
	T(p.revents);
	T(getsockopt(x, SOL_SOCKET, SO_ERROR, &err, &l));
	T(err);
	T(connect(x, (void *)&a, sizeof a));
	T(connect(x, (void *)&a, sizeof a));
	p.fd = s, p.events = POLLIN;
	T(poll(&p, 1, 1000));
	int y = accept(s, NULL, NULL);
	T(fcntl(y, F_GETFL) & O_NONBLOCK ? 1 : 0);
	T(recv(x, b, 1, 0));
	static char big[1 << 16];
	long total = 0, r;
	while ((r = send(x, big, sizeof big, 0)) > 0)
		total += r;
	Y(errno == EAGAIN && total >= 65536);
	T(revents(x, POLLOUT));
	long got = 0;
	while (got < total && (r = recv(y, big, sizeof big, 0)) > 0)
		got += r;
	Y(got == total);
	ms(5);
	T(revents(x, POLLOUT));
	close(s);
	int z = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
	T(connect(z, (void *)&a, sizeof a));
	p.fd = z, p.events = POLLOUT;
	poll(&p, 1, 1000);
	T(p.revents);
	T(getsockopt(z, SOL_SOCKET, SO_ERROR, &err, &l));
	T(err);
}

static void timeouts(void)
{
	int v[2];
	char b[4];
	struct timeval t = { 0, 50000 }, o;
	socklen_t l = sizeof o;
	static char big[1 << 20];
	socketpair(AF_UNIX, SOCK_STREAM, 0, v);
	T(setsockopt(v[0], SOL_SOCKET, SO_RCVTIMEO, &t, sizeof t));
	T(getsockopt(v[0], SOL_SOCKET, SO_RCVTIMEO, &o, &l));
	T(o.tv_usec / 10000);
	long long s = now_ms();
	T(recv(v[0], b, 1, 0));
	Y(now_ms() - s >= 45);
	T(read(v[0], b, 1));
	T(setsockopt(v[0], SOL_SOCKET, SO_SNDTIMEO, &t, sizeof t));
	Y(send(v[0], big, sizeof big, 0) > 10000);
	T(send(v[0], big, sizeof big, 0));
	t.tv_usec = 1000000;
	T(setsockopt(v[0], SOL_SOCKET, SO_RCVTIMEO, &t, sizeof t));
	T(setsockopt(v[0], SOL_SOCKET, SO_RCVTIMEO, &t, 4));
	struct sockaddr_in a;
	int q = listener(&a, 1);
	t.tv_usec = 30000;
	setsockopt(q, SOL_SOCKET, SO_RCVTIMEO, &t, sizeof t);
	T(accept(q, NULL, NULL));
}

static void waiting_for_all(void)
{
	int v[2], st;
	char b[16] = "";
	socketpair(AF_UNIX, SOCK_STREAM, 0, v);
	pid_t c = fork();
	if (!c) {
		for (int i = 0; i < 5; i++) {
			ms(10);
			write(v[0], "xy", 2);
		}
		_exit(0);
	}
	T(recv(v[1], b, 8, MSG_WAITALL));
	close(v[0]);
	T(recv(v[1], b, 8, MSG_WAITALL));
	waitpid(c, &st, 0);
	struct sockaddr_in a;
	int s = listener(&a, 1), x = socket(AF_INET, SOCK_STREAM, 0);
	connect(x, (void *)&a, sizeof a);
	int y = accept(s, NULL, NULL);
	c = fork();
	if (!c) {
		for (int i = 0; i < 5; i++) {
			write(x, "xy", 2);
			ms(10);
		}
		_exit(0);
	}
	close(x);
	T(recv(y, b, 9, MSG_WAITALL));
	T(recv(y, b, 9, MSG_WAITALL));
	waitpid(c, &st, 0);
	/* A blocking send of much goes on until all is taken. */
	static char big[4 << 20];
	socketpair(AF_UNIX, SOCK_STREAM, 0, v);
	c = fork();
	if (!c) {
		long n = 0, r;
		close(v[0]);
		while ((r = read(v[1], big, 100000)) > 0)
			n += r;
		_exit(n == sizeof big ? 7 : 8);
	}
	T(send(v[0], big, sizeof big, 0));
	close(v[0]);
	waitpid(c, &st, 0);
	T(WEXITSTATUS(st));
}

static void udp(void)
{
	struct sockaddr_in a = inet_addr_of(0), b = inet_addr_of(0), from;
	socklen_t l = sizeof a;
	char buf[16] = "", big[70000] = "";
	int x = socket(AF_INET, SOCK_DGRAM, 0), y = socket(AF_INET, SOCK_DGRAM, 0), n = -1;
	T(bind(y, (void *)&b, sizeof b));
	getsockname(y, (void *)&b, &l);
	T(send(x, "m", 1, 0));
	T(sendto(x, "hello", 5, 0, (void *)&b, sizeof b));
	T(sendto(x, "", 0, 0, (void *)&b, sizeof b));
	T(sendto(x, "third", 5, 0, (void *)&b, sizeof b));
	l = sizeof from;
	T(recvfrom(y, buf, 16, 0, (void *)&from, &l));
	T(l);
	getsockname(x, (void *)&a, &l);
	Y(from.sin_port == a.sin_port && from.sin_addr.s_addr == htonl(INADDR_LOOPBACK));
	T(recv(y, buf, 16, 0));
	T(ioctl(y, FIONREAD, &n));
	T(n);
	T(recv(y, buf, 2, MSG_TRUNC | MSG_PEEK));
	T(recv(y, buf, 2, 0));
	T(recv(y, buf, 16, MSG_DONTWAIT));
	T(sendto(x, big, 65507, 0, (void *)&b, sizeof b));
	T(recv(y, big, sizeof big, 0));
	T(sendto(x, big, 65508, 0, (void *)&b, sizeof b));
	T(connect(x, (void *)&b, sizeof b));
	T(send(x, "c", 1, 0));
	T(recv(y, buf, 16, 0));
	T(listen(x, 1));
	T(accept(x, NULL, NULL));
	close(y);
	T(send(x, "c", 1, 0));
	ms(5);
	T(send(x, "c", 1, 0));
	sa_family_t none = AF_UNSPEC;
	T(connect(x, (void *)&none, sizeof none));
	T(getpeername(x, (void *)&from, &l));
	T(sendto(x, "c", 1, 0, (void *)&b, sizeof b));
	b.sin_port = 0;
	T(sendto(x, "c", 1, 0, (void *)&b, sizeof b));
	T(sendto(x, "c", 1, 0, (void *)&b, 4));
	T(shutdown(x, SHUT_RD));
	int z = socket(AF_INET, SOCK_DGRAM, 0), w = socket(AF_INET, SOCK_DGRAM, 0);
	b = inet_addr_of(0);
	bind(z, (void *)&b, sizeof b);
	l = sizeof b;
	getsockname(z, (void *)&b, &l);
	T(bind(w, (void *)&b, sizeof b));
	int on = 1;
	setsockopt(z, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
	setsockopt(w, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
	T(bind(w, (void *)&b, sizeof b));
}

static long option(int s, int level, int what)
{
	int v = -99;
	socklen_t l = sizeof v;
	return getsockopt(s, level, what, &v, &l) ? -1 : v;
}

static long set(int s, int level, int what, int v)
{
	return setsockopt(s, level, what, &v, sizeof v);
}

static void options(void)
{
	int t = socket(AF_INET, SOCK_STREAM, 0), u = socket(AF_INET, SOCK_DGRAM, 0), x = socket(AF_UNIX, SOCK_STREAM, 0);
	T(option(t, SOL_SOCKET, SO_TYPE));
	T(option(u, SOL_SOCKET, SO_TYPE));
	T(option(t, SOL_SOCKET, SO_DOMAIN));
	T(option(x, SOL_SOCKET, SO_DOMAIN));
	T(option(t, SOL_SOCKET, SO_PROTOCOL));
	T(option(u, SOL_SOCKET, SO_PROTOCOL));
	T(option(t, SOL_SOCKET, SO_ACCEPTCONN));
	T(listen(t, 1));
	T(option(t, SOL_SOCKET, SO_ACCEPTCONN));
	T(option(t, SOL_SOCKET, SO_REUSEADDR));
	T(set(t, SOL_SOCKET, SO_REUSEADDR, 5));
	T(option(t, SOL_SOCKET, SO_REUSEADDR));
	T(set(t, SOL_SOCKET, SO_KEEPALIVE, 1));
	T(option(t, SOL_SOCKET, SO_KEEPALIVE));
	T(set(t, SOL_SOCKET, SO_SNDBUF, 20000));
	T(option(t, SOL_SOCKET, SO_SNDBUF));
	T(set(t, SOL_SOCKET, SO_RCVBUF, 1));
	T(option(t, SOL_SOCKET, SO_RCVBUF));
	T(option(x, SOL_SOCKET, SO_SNDBUF));
	T(option(u, SOL_SOCKET, SO_RCVBUF));
	T(set(u, SOL_SOCKET, SO_BROADCAST, 1));
	T(option(u, SOL_SOCKET, SO_BROADCAST));
	T(set(t, IPPROTO_TCP, TCP_NODELAY, 1));
	T(option(t, IPPROTO_TCP, TCP_NODELAY));
	T(set(t, IPPROTO_TCP, TCP_KEEPIDLE, 77));
	T(option(t, IPPROTO_TCP, TCP_KEEPIDLE));
	T(set(t, IPPROTO_TCP, TCP_KEEPIDLE, 0));
	T(option(t, IPPROTO_TCP, TCP_MAXSEG) > 0);
	T(option(t, IPPROTO_TCP, 999));
	T(set(u, IPPROTO_TCP, TCP_NODELAY, 1));
	T(set(x, IPPROTO_TCP, TCP_NODELAY, 1));
	T(set(u, IPPROTO_IP, IP_TTL, 5));
	T(option(u, IPPROTO_IP, IP_TTL));
	T(set(u, IPPROTO_IP, IP_TTL, 300));
	T(set(t, IPPROTO_IP, IP_TOS, 16));
	T(option(t, IPPROTO_IP, IP_TOS));
	T(option(t, SOL_SOCKET, 999));
	T(set(t, SOL_SOCKET, 999, 1));
	T(set(t, SOL_SOCKET, SO_TYPE, 1));
	T(setsockopt(t, SOL_SOCKET, SO_REUSEADDR, "x", 1));
	T(setsockopt(t, SOL_SOCKET, SO_REUSEADDR, (void *)8, 4));
	T(setsockopt(t, SOL_SOCKET, SO_REUSEADDR, "xxxx", -1));
	T(setsockopt(t, 9999, 1, "xxxx", 4));
	struct linger g = { 1, 7 };
	socklen_t l = sizeof g;
	T(setsockopt(t, SOL_SOCKET, SO_LINGER, &g, sizeof g));
	T(getsockopt(t, SOL_SOCKET, SO_LINGER, &g, &l));
	T(g.l_onoff * 10 + g.l_linger);
	int v;
	l = 2;
	T(getsockopt(t, SOL_SOCKET, SO_TYPE, &v, &l));
	T(l);
	l = -1;
	T(getsockopt(t, SOL_SOCKET, SO_TYPE, &v, &l));
	T(getsockopt(t, SOL_SOCKET, SO_TYPE, &v, (void *)8));
	struct tcp_info ti;
	l = sizeof ti;
	T(getsockopt(t, IPPROTO_TCP, TCP_INFO, &ti, &l));
	T(ti.tcpi_state);
	T(set(x, SOL_SOCKET, SO_RCVLOWAT, 10));
	T(option(x, SOL_SOCKET, SO_RCVLOWAT));
	T(set(x, SOL_SOCKET, SO_PRIORITY, 3));
	T(option(x, SOL_SOCKET, SO_PRIORITY));
}

static void many_messages(void)
{
	int v[2];
	char b[4][8];
	struct mmsghdr m[4];
	struct iovec i[4], o[4];
	memset(m, 0, sizeof m);
	socketpair(AF_UNIX, SOCK_DGRAM, 0, v);
	for (int k = 0; k < 4; k++) {
		o[k].iov_base = "abcdefg", o[k].iov_len = k + 1;
		m[k].msg_hdr.msg_iov = &o[k], m[k].msg_hdr.msg_iovlen = 1;
	}
	T(sendmmsg(v[0], m, 3, 0));
	T(m[2].msg_len);
	for (int k = 0; k < 4; k++) {
		i[k].iov_base = b[k], i[k].iov_len = 2;
		m[k].msg_hdr.msg_iov = &i[k];
	}
	T(recvmmsg(v[1], m, 4, MSG_WAITFORONE, NULL));
	T(m[0].msg_len * 100 + m[1].msg_len * 10 + m[2].msg_len);
	T(m[2].msg_hdr.msg_flags);
	T(recvmmsg(v[1], m, 4, MSG_DONTWAIT, NULL));
	struct timespec t = { 0, 10000000 };
	send(v[0], "x", 1, 0);
	T(recvmmsg(v[1], m, 1, 0, &t));
	t.tv_nsec = -1;
	T(recvmmsg(v[1], m, 1, 0, &t));
	m[0].msg_hdr.msg_iovlen = 1025;
	T(sendmmsg(v[0], m, 1, 0));
	T(sendmsg(v[0], &m[0].msg_hdr, 0));
	T(sendmsg(v[0], (void *)8, 0));
	m[0].msg_hdr.msg_iovlen = 1, m[0].msg_hdr.msg_namelen = -1, m[0].msg_hdr.msg_name = b;
	T(sendmsg(v[0], &m[0].msg_hdr, 0));
	T(recvmsg(v[0], &m[0].msg_hdr, MSG_DONTWAIT));
	struct iovec none = { NULL, 0 };
	struct msghdr e = { .msg_iov = &none, .msg_iovlen = 0 };
	T(sendmsg(v[0], &e, 0));
	T(recvmsg(v[1], &e, 0));
}

static void interrupted(void)
{
	int v[2];
	char b;
	struct sigaction a = { .sa_handler = (void (*)(int))getpid };
	struct timeval t = { 5, 0 };
	sigaction(SIGUSR1, &a, NULL);
	socketpair(AF_UNIX, SOCK_STREAM, 0, v);
	for (int k = 0; k < 3; k++) {
		a.sa_flags = k ? SA_RESTART : 0;
		sigaction(SIGUSR1, &a, NULL);
		if (k == 2)
			setsockopt(v[0], SOL_SOCKET, SO_RCVTIMEO, &t, sizeof t);
		pid_t c = fork();
		if (!c) {
			ms(30);
			kill(getppid(), SIGUSR1);
			ms(30);
			write(v[1], "x", 1);
			_exit(0);
		}
		T(recv(v[0], &b, 1, 0));
		waitpid(c, NULL, 0);
		recv(v[0], &b, 1, MSG_DONTWAIT);
	}
}

static void ipv6(void)
{
	struct sockaddr_in6 a = { .sin6_family = AF_INET6, .sin6_addr = IN6ADDR_LOOPBACK_INIT };
	socklen_t l = sizeof a;
	char b[8];
	int s = socket(AF_INET6, SOCK_STREAM, 0);
	int x = socket(AF_INET6, SOCK_STREAM, 0);
	T(option(s, IPPROTO_IPV6, IPV6_V6ONLY));
	T(bind(s, (void *)&a, sizeof a));
	listen(s, 1);
	getsockname(s, (void *)&a, &l);
	T(l);
	T(connect(x, (void *)&a, sizeof a));
	int y = accept(s, NULL, NULL);
	T(write(x, "six", 3));
	T(read(y, b, 8));
	/* IPv4 through an IPv6 wildcard. */
	struct sockaddr_in6 any = { .sin6_family = AF_INET6 };
	int w = socket(AF_INET6, SOCK_STREAM, 0), c = socket(AF_INET, SOCK_STREAM, 0);
	T(bind(w, (void *)&any, sizeof any));
	listen(w, 1);
	getsockname(w, (void *)&any, &l);
	struct sockaddr_in f = inet_addr_of(ntohs(any.sin6_port));
	T(connect(c, (void *)&f, sizeof f));
	l = sizeof any;
	y = accept(w, (void *)&any, &l);
	Y(IN6_IS_ADDR_V4MAPPED(&any.sin6_addr));
	T(bind(socket(AF_INET6, SOCK_DGRAM, 0), (void *)&f, sizeof f));
}

static void interfaces(void)
{
	struct ifreq r = { .ifr_name = "lo" };
	int s = socket(AF_INET, SOCK_DGRAM, 0);
	T(ioctl(s, SIOCGIFINDEX, &r));
	T(r.ifr_ifindex);
	T(ioctl(s, SIOCGIFFLAGS, &r));
	T(r.ifr_flags & (IFF_UP | IFF_LOOPBACK));
	T(ioctl(s, SIOCGIFADDR, &r));
	Y(((struct sockaddr_in *)&r.ifr_addr)->sin_addr.s_addr == htonl(INADDR_LOOPBACK));
	T(ioctl(s, SIOCGIFMTU, &r));
	T(r.ifr_mtu);
	strcpy(r.ifr_name, "nope0");
	T(ioctl(s, SIOCGIFINDEX, &r));
	T(if_nametoindex("lo"));
	int own = 0;
	T(ioctl(s, SIOCSPGRP, (int[]){ getpid() }));
	T(ioctl(s, FIOGETOWN, &own));
	Y(own == getpid());
}

static void *connects(void *p)
{
	int x = socket(AF_INET, SOCK_STREAM, 0);
	long r = connect(x, p, sizeof(struct sockaddr_in));
	char b[4];
	if (!r && write(x, "ping", 4) == 4)
		r = read(x, b, 4);
	close(x);
	return (void *)r;
}

static void servers(void)
{
	struct sockaddr_in a;
	int s = listener(&a, 50), st;
	pthread_t t[20];
	void *r;
	long sum = 0;
	pid_t c = fork();
	if (!c) {
		for (int i = 0; i < 20; i++) {
			char b[4];
			int y = accept(s, NULL, NULL);
			if (read(y, b, 4) == 4)
				write(y, "pong", 4);
			close(y);
		}
		_exit(0);
	}
	for (int i = 0; i < 20; i++)
		pthread_create(&t[i], NULL, connects, &a);
	for (int i = 0; i < 20; i++) {
		pthread_join(t[i], &r);
		sum += (long)r;
	}
	T(sum);
	waitpid(c, &st, 0);
	T(WEXITSTATUS(st));
}

#ifndef IP_LOCAL_PORT_RANGE
#define IP_LOCAL_PORT_RANGE 51
#endif

/* A socket that gets one of four ports where it asks for none. */
static int of_four(int first)
{
	int s = socket(AF_INET, SOCK_STREAM, 0);
	if (set(s, IPPROTO_IP, IP_LOCAL_PORT_RANGE, (first + 3) << 16 | first))
		return -1;
	return s;
}

static int port_of(int s)
{
	struct sockaddr_in a = { 0 };
	socklen_t l = sizeof a;
	getsockname(s, (void *)&a, &l);
	return ntohs(a.sin_port);
}

/* How many of five connections to a listener begin from four ports, from which on; each has a port of its own. */
static int five(int *s, int first, struct sockaddr_in *to)
{
	int n = 0, seen = 0;
	for (int i = 0; i < 5; i++) {
		s[i] = of_four(first);
		if (connect(s[i], (void *)to, sizeof *to)) {
			Y(errno == EADDRNOTAVAIL);
			continue;
		}
		n++;
		seen |= 1 << (port_of(s[i]) - first);
	}
	say("ports", "%x", seen);
	return n;
}

static void ports(void)
{
	struct sockaddr_in a, b, at = inet_addr_of(0);
	int la = listener(&a, 50), lb = listener(&b, 50), first = 33000 + getpid() % 1600 * 16, s[5], t[5], on = 1;
	T(five(s, first, &a));
	T(five(t, first, &b));
	/* What is over makes room, when both have closed and no longer wait: a reset does not wait. */
	struct linger none = { 1, 0 };
	setsockopt(s[2], SOL_SOCKET, SO_LINGER, &none, sizeof none);
	int gone = port_of(s[2]);
	close(s[2]);
	s[2] = of_four(first);
	T(connect(s[2], (void *)&a, sizeof a));
	Y(port_of(s[2]) == gone);
	/* Nobody binds what a connection has, but at another address; or both share it. */
	int x = socket(AF_INET, SOCK_STREAM, 0), y = of_four(first), z = of_four(first);
	at.sin_port = htons(gone);
	T(bind(x, (void *)&at, sizeof at));
	at.sin_port = 0;
	T(bind(y, (void *)&at, sizeof at));
	at.sin_addr.s_addr = htonl(INADDR_LOOPBACK + 1);
	T(bind(z, (void *)&at, sizeof at));
	Y(port_of(z) >= first && port_of(z) <= first + 3);
	set(s[2], SOL_SOCKET, SO_REUSEADDR, 1);
	set(x, SOL_SOCKET, SO_REUSEADDR, 1);
	at = inet_addr_of(0);
	at.sin_port = htons(gone);
	T(bind(x, (void *)&at, sizeof at));
	T(connect(x, (void *)&a, sizeof a));
	T(connect(x, (void *)&b, sizeof b));
	/* No connection is given what somebody bound. */
	first += 4;
	x = socket(AF_INET, SOCK_STREAM, 0);
	at.sin_port = htons(first + 1);
	T(bind(x, (void *)&at, sizeof at));
	T(five(s, first, &a));
	/* A port for two. */
	y = socket(AF_INET, SOCK_STREAM, 0), z = socket(AF_INET, SOCK_STREAM, 0);
	at.sin_port = htons(first + 5);
	set(y, SOL_SOCKET, SO_REUSEADDR, 1);
	set(z, SOL_SOCKET, SO_REUSEADDR, 1);
	T(bind(y, (void *)&at, sizeof at));
	T(bind(z, (void *)&at, sizeof at));
	T(connect(y, (void *)&a, sizeof a));
	T(connect(z, (void *)&a, sizeof a));
	T(connect(z, (void *)&b, sizeof b));
	(void)la, (void)lb, (void)on;
}

static void ports_later(void)
{
	struct sockaddr_in a, to = inet_addr_of(0), any = { .sin_family = AF_INET }, got;
	socklen_t l = sizeof got;
	int l4 = listener(&a, 5), first = 33000 + getpid() % 1600 * 16, x = of_four(first), on = 1;
	T(option(x, IPPROTO_IP, IP_LOCAL_PORT_RANGE) == ((first + 3) << 16 | first));
	T(set(x, IPPROTO_IP, IP_LOCAL_PORT_RANGE, 5 << 16 | 6));
	T(set(x, IPPROTO_IP, IP_LOCAL_PORT_RANGE, 6));
	T(set(x, IPPROTO_IP, IP_LOCAL_PORT_RANGE, 6 << 16));
	x = of_four(first);
	T(set(x, IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, 1));
	T(bind(x, (void *)&to, sizeof to));
	T(port_of(x));
	T(bind(x, (void *)&to, sizeof to));
	T(connect(x, (void *)&a, sizeof a));
	Y(port_of(x) >= first && port_of(x) <= first + 3);
	T(bind(x, (void *)&to, sizeof to));
	x = of_four(first);
	T(set(x, IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, 1));
	T(bind(x, (void *)&to, sizeof to));
	T(listen(x, 1));
	Y(port_of(x) >= first && port_of(x) <= first + 3);
	getsockname(x, (void *)&got, &l);
	Y(got.sin_addr.s_addr == htonl(INADDR_LOOPBACK));
	/* A connection that is refused gives up what it was not told to bind. */
	struct sockaddr_in closed;
	int c = listener(&closed, 1);
	close(c);
	x = of_four(first);
	T(connect(x, (void *)&closed, sizeof closed));
	getsockname(x, (void *)&got, &l);
	Y(got.sin_addr.s_addr == 0);
	T(bind(x, (void *)&to, sizeof to));
	T(connect(x, (void *)&closed, sizeof closed));
	getsockname(x, (void *)&got, &l);
	Y(got.sin_addr.s_addr == htonl(INADDR_LOOPBACK));
	T(bind(x, (void *)&to, sizeof to));
	T(connect(x, (void *)&a, sizeof a));
	x = socket(AF_INET, SOCK_STREAM, 0);
	to.sin_port = htons(first + 9);
	T(bind(x, (void *)&to, sizeof to));
	T(connect(x, (void *)&closed, sizeof closed));
	T(port_of(x) == first + 9);
	T(bind(x, (void *)&to, sizeof to));
	T(connect(x, (void *)&a, sizeof a));
	sa_family_t nobody = AF_UNSPEC;
	T(connect(x, (void *)&nobody, sizeof nobody));
	T(port_of(x) == first + 9);
	getsockname(x, (void *)&got, &l);
	Y(got.sin_addr.s_addr == htonl(INADDR_LOOPBACK));
	x = socket(AF_INET, SOCK_STREAM, 0);
	T(connect(x, (void *)&a, sizeof a));
	T(connect(x, (void *)&nobody, sizeof nobody));
	getsockname(x, (void *)&got, &l);
	Y(got.sin_addr.s_addr == 0);
	T(bind(x, (void *)&any, sizeof any));
	T(listen(x, 1));
	T(shutdown(x, SHUT_RD));
	T(bind(x, (void *)&any, sizeof any));
	(void)l4, (void)on;
}

static const struct check all[] = {
	CHECK(creation), CHECK(stream_pair), CHECK(message_pairs), CHECK(named), CHECK(abstract_names),
	CHECK(datagrams), CHECK(rights), CHECK(credentials), CHECK(tcp), CHECK(tcp_reset), CHECK(nonblocking),
	CHECK(timeouts), CHECK(waiting_for_all), CHECK(udp), CHECK(options), CHECK(many_messages),
	CHECK(interrupted), CHECK(ipv6), CHECK(interfaces), CHECK(servers),
	CHECK(ports), CHECK(ports_later),
};
MAIN(all)
