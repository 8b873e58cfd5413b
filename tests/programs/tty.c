/* Pseudo-terminals: line discipline, signals, job control, ioctls. */
#define AREA "tty"
#include "check.h"
#include <sys/mount.h>
#include <termios.h>

static int slave_of(int m)
{
	char name[64];
	if (grantpt(m) || unlockpt(m) || ptsname_r(m, name, sizeof name))
		return -1;
	return open(name, O_RDWR | O_NOCTTY);
}

static int pair(int *m)
{
	*m = posix_openpt(O_RDWR | O_NOCTTY);
	return slave_of(*m);
}

/* What waits on a side, after it had time to come. */
static void shown(const char *what, int fd)
{
	char b[512];
	ms(10);
	int old = fcntl(fd, F_GETFL);
	fcntl(fd, F_SETFL, old | O_NONBLOCK);
	errno = 0;
	int n = read(fd, b, sizeof b), e = errno;
	fcntl(fd, F_SETFL, old);
	if (n < 0)
		report(what, n, e);
	else
		bytes(what, b, n);
}

#define SHOWN(fd) shown(#fd, fd)

static void type(int m, const char *s)
{
	if (write(m, s, strlen(s)) != (ssize_t)strlen(s))
		say("type", "short");
}

static void raw(int s)
{
	struct termios t;
	tcgetattr(s, &t);
	cfmakeraw(&t);
	tcsetattr(s, TCSANOW, &t);
}

static void opening(void)
{
	char name[64];
	struct stat st;
	int m = posix_openpt(O_RDWR | O_NOCTTY), n = -1;
	Y(m >= 0);
	T(ioctl(m, TIOCGPTN, &n));
	sprintf(name, "/dev/pts/%d", n);
	T(stat(name, &st));
	T(S_ISCHR(st.st_mode));
	T(open(name, O_RDWR | O_NOCTTY));
	T(unlockpt(m));
	int s = open(name, O_RDWR | O_NOCTTY);
	Y(s >= 0);
	T(isatty(s));
	T(isatty(m));
	char *t = ttyname(s);
	Y(t && !strcmp(t, name));
	int p = ioctl(m, TIOCGPTPEER, O_RDWR | O_NOCTTY);
	Y(p >= 0);
	T(isatty(p));
	T(write(p, "x", 1));
	SHOWN(m);
	int pipefd[2];
	pipe(pipefd);
	T(isatty(pipefd[0]));
	T(lseek(s, 0, SEEK_SET));
	struct termios a;
	T(tcgetattr(s, &a));
	T(a.c_iflag);
	T(a.c_oflag);
	T(a.c_lflag);
	T(a.c_cflag & (CSIZE | CREAD | PARENB | CSTOPB));
	T(a.c_cc[VMIN] * 100 + a.c_cc[VEOF]);
	T(cfgetospeed(&a) == B38400);
	T(fcntl(s, F_GETFL) & O_ACCMODE);
	close(m);
	T(stat(name, &st));
	T(open(name, O_RDWR | O_NOCTTY) == -1);
}

static void canonical(void)
{
	int m, s = pair(&m);
	char b[64] = "";
	int n;
	type(m, "hello\n");
	T(read(s, b, sizeof b));
	S(b, 6);
	SHOWN(m);
	type(m, "no newline");
	SHOWN(s);
	T(ioctl(s, FIONREAD, &n));
	T(n);
	type(m, "\x7f\x7f!\n");
	SHOWN(s);
	SHOWN(m);
	type(m, "kill this\x15 kept\n");
	SHOWN(s);
	SHOWN(m);
	type(m, "one two three\x17" "four\n");
	SHOWN(s);
	SHOWN(m);
	type(m, "two lines\nat once\n");
	T(read(s, b, sizeof b));
	T(read(s, b, 3));
	T(read(s, b, sizeof b));
	SHOWN(m);
	type(m, "part\x04");
	T(read(s, b, sizeof b));
	type(m, "\x04");
	T(read(s, b, sizeof b));
	type(m, "a\rb\n");
	SHOWN(s);
	SHOWN(m);
	type(m, "\x01\x02\x1b[A\n");
	SHOWN(s);
	SHOWN(m);
	type(m, "\x16\x03lit\n");
	SHOWN(s);
	SHOWN(m);
	type(m, "tab\there\n");
	SHOWN(s);
	SHOWN(m);
	type(m, "\xc3\xa9\x7f\n");
	SHOWN(s);
	T(tcflush(s, TCIFLUSH));
	type(m, "gone");
	ms(10);
	T(tcflush(s, TCIFLUSH));
	type(m, "new\n");
	SHOWN(s);
}

static void output(void)
{
	int m, s = pair(&m);
	struct termios t;
	T(write(s, "a\nb\n", 4));
	SHOWN(m);
	tcgetattr(s, &t);
	t.c_oflag &= ~ONLCR;
	T(tcsetattr(s, TCSANOW, &t));
	T(write(s, "a\nb\n", 4));
	SHOWN(m);
	t.c_oflag |= OCRNL | ONLRET;
	tcsetattr(s, TCSADRAIN, &t);
	T(write(s, "a\rb\r", 4));
	SHOWN(m);
	t.c_oflag = OPOST | OLCUC;
	tcsetattr(s, TCSADRAIN, &t);
	T(write(s, "upper", 5));
	SHOWN(m);
	t.c_oflag = 0;
	tcsetattr(s, TCSADRAIN, &t);
	T(write(s, "a\nb\r", 4));
	SHOWN(m);
	t.c_oflag = OPOST | TAB3;
	tcsetattr(s, TCSADRAIN, &t);
	T(write(s, "a\tb", 3));
	SHOWN(m);
}

static void modes(void)
{
	int m, s = pair(&m);
	struct termios t, o;
	char b[16] = "";
	tcgetattr(s, &t);
	o = t;
	t.c_lflag &= ~ECHO;
	tcsetattr(s, TCSANOW, &t);
	type(m, "secret\n");
	SHOWN(m);
	SHOWN(s);
	t.c_lflag |= ECHONL;
	tcsetattr(s, TCSANOW, &t);
	type(m, "secret\n");
	SHOWN(m);
	SHOWN(s);
	raw(s);
	type(m, "x\x03\x04\r");
	SHOWN(m);
	SHOWN(s);
	tcgetattr(s, &t);
	t.c_cc[VMIN] = 0, t.c_cc[VTIME] = 0;
	tcsetattr(s, TCSANOW, &t);
	T(read(s, b, 4));
	t.c_cc[VTIME] = 1;
	tcsetattr(s, TCSANOW, &t);
	long long start = now_ms();
	T(read(s, b, 4));
	Y(now_ms() - start >= 90);
	t.c_cc[VMIN] = 3, t.c_cc[VTIME] = 0;
	tcsetattr(s, TCSANOW, &t);
	pid_t c = fork();
	if (!c) {
		for (int i = 0; i < 3; i++) {
			ms(15);
			write(m, "k", 1);
		}
		_exit(0);
	}
	T(read(s, b, 16));
	waitpid(c, NULL, 0);
	t.c_cc[VTIME] = 1;
	tcsetattr(s, TCSANOW, &t);
	type(m, "z");
	T(read(s, b, 16));
	t.c_iflag = IXON;
	tcsetattr(s, TCSANOW, &t);
	type(m, "\x13");
	ms(10);
	fcntl(s, F_SETFL, O_RDWR | O_NONBLOCK);
	T(write(s, "held", 4));
	type(m, "\x11");
	ms(10);
	T(write(s, "free", 4));
	SHOWN(m);
	fcntl(s, F_SETFL, O_RDWR);
	t = o;
	t.c_iflag |= INLCR | IGNCR;
	tcsetattr(s, TCSANOW, &t);
	type(m, "a\rb\n\x04");
	SHOWN(s);
	t.c_iflag = ISTRIP | IUCLC;
	t.c_lflag |= IEXTEN;
	tcsetattr(s, TCSANOW, &t);
	type(m, "AB\xe1\n");
	SHOWN(s);
	T(tcsetattr(s, 77, &t));
	T(tcsetattr(99, TCSANOW, &t));
	T(tcgetattr(0, &t) == 0 || errno == ENOTTY || errno == EIO);
	T(tcsendbreak(s, 0));
	T(tcdrain(s));
	T(tcflow(s, TCOOFF));
	T(tcflow(s, TCOON));
	T(tcflow(s, 99));
	T(tcflush(s, 99));
}

static void sizes(void)
{
	int m, s = pair(&m);
	struct winsize w = { 1, 2, 3, 4 };
	T(ioctl(s, TIOCGWINSZ, &w));
	T(w.ws_row * 100 + w.ws_col);
	w.ws_row = 24, w.ws_col = 80;
	T(ioctl(m, TIOCSWINSZ, &w));
	T(ioctl(s, TIOCGWINSZ, &w));
	T(w.ws_row * 100 + w.ws_col);
	T(ioctl(s, TIOCGWINSZ, 8));
	int n = 5;
	T(ioctl(s, TIOCOUTQ, &n));
	T(n);
	T(ioctl(s, TIOCGETD, &n));
	T(n);
	T(ioctl(m, TIOCGPTLCK, &n));
	T(n);
	T(ioctl(s, TIOCGPTN, &n));
	T(ioctl(s, 0x5499, &n));
	T(ioctl(s, TIOCEXCL));
	T(ioctl(s, TIOCGEXCL, &n));
	T(n);
	T(ioctl(s, TIOCNXCL));
	T(CHILD(drop_root(); _exit(ioctl(s, TIOCSTI, "x") == -1 ? errno : 0)) > 0);
}

static volatile int got;
static void on(int s)
{
	got = s;
}

/* Runs a session leader with the terminal as its own; gives its exit status. */
#define SESSION(s, ...) CHILD(setsid(); ioctl(s, TIOCSCTTY, 0); __VA_ARGS__)

static void sessions(void)
{
	int m, s = pair(&m);
	pid_t g;
	T(ioctl(s, TIOCGPGRP, &g));
	T(ioctl(s, TIOCGSID, &g));
	T(ioctl(s, TIOCNOTTY));
	T(CHILD(_exit(ioctl(s, TIOCSCTTY, 0) == -1 ? errno : 0)));
	T(CHILD(setsid(); _exit(open("/dev/tty", O_RDWR) == -1 ? errno : 0)));
	T(CHILD(setsid(); _exit(ioctl(s, TIOCSCTTY, 0) == -1 ? errno : 0)));
	T(SESSION(s, _exit(tcgetpgrp(s) == getpid() && tcgetsid(s) == getpid())));
	T(SESSION(s, int t = open("/dev/tty", O_RDWR); _exit(t >= 0 && write(t, "via tty", 7) == 7)));
	SHOWN(m);
	close(s);
	s = slave_of(m);
	/* Opening without O_NOCTTY takes it. */
	char name[64];
	ptsname_r(m, name, sizeof name);
	T(CHILD(setsid(); int t = open(name, O_RDWR); _exit(tcgetsid(t) == getpid())));
	T(CHILD(setsid(); int t = open(name, O_RDWR | O_NOCTTY); _exit(tcgetsid(t) == -1 ? errno : 0)));
	T(SESSION(s, _exit(tcsetpgrp(s, 999999) == -1 ? errno : 0)));
	T(SESSION(s, _exit(tcsetpgrp(s, -5) == -1 ? errno : 0)));
	T(SESSION(s, int m2, s2 = pair(&m2); _exit(tcsetpgrp(s2, getpid()) == -1 ? errno : 0)));
	T(SESSION(s, pid_t c = fork(); if (!c) { ms(30); _exit(0); } setpgid(c, c);
		int r = tcsetpgrp(s, c) == 0 && tcgetpgrp(s) == c; kill(c, SIGKILL); _exit(r)));
	T(SESSION(s, signal(SIGHUP, SIG_IGN); int r = ioctl(s, TIOCNOTTY) == 0; _exit(r * 10 + (open("/dev/tty", O_RDWR) == -1))));
	/* Who does not lead the session gives it up for itself alone, and for its children. */
	T(SESSION(s, int r = CHILD(ioctl(s, TIOCNOTTY); int lost = (open("/dev/tty", O_RDWR) == -1) + 2 * (tcgetsid(s) == -1);
			_exit(10 * lost + CHILD(_exit(open("/dev/tty", O_RDWR) == -1 && ioctl(s, TIOCNOTTY) == -1))));
		_exit(2 * r + (open("/dev/tty", O_RDWR) >= 0 && tcgetsid(s) == getpid()))));
	T(SESSION(s, _exit(CHILD(ioctl(s, TIOCNOTTY); int m2, s2 = pair(&m2); setsid(); ioctl(s2, TIOCSCTTY, 0);
		_exit(2 * (open("/dev/tty", O_RDWR) >= 0) + (tcgetsid(s2) == getpid()))))));
}

static void keyboard_signals(void)
{
	int m, s = pair(&m), go[2];
	char b;
	pipe(go);
	static const struct { const char *key; int sig; } keys[] = { { "\x03", SIGINT }, { "\x1c", SIGQUIT }, { "\x1a", SIGTSTP } };
	for (int i = 0; i < 3; i++) {
		pid_t c = fork();
		if (!c) {
			setsid();
			ioctl(s, TIOCSCTTY, 0);
			signal(keys[i].sig, on);
			write(go[1], "x", 1);
			for (int n = 0; !got && n < 200; n++)
				ms(10);
			_exit(got);
		}
		read(go[0], &b, 1);
		type(m, "pending");
		SHOWN(m);
		type(m, keys[i].key);
		int st;
		waitpid(c, &st, 0);
		T(WEXITSTATUS(st));
		SHOWN(m);
		SHOWN(s);
		close(s);
		s = slave_of(m);
	}
	struct winsize w = { 10, 20, 0, 0 };
	pid_t c = fork();
	if (!c) {
		setsid();
		ioctl(s, TIOCSCTTY, 0);
		signal(SIGWINCH, on);
		write(go[1], "x", 1);
		for (int n = 0; !got && n < 200; n++)
			ms(10);
		_exit(got);
	}
	read(go[0], &b, 1);
	ioctl(m, TIOCSWINSZ, &w);
	int st;
	waitpid(c, &st, 0);
	T(WEXITSTATUS(st));
}

static void hang_up(void)
{
	int m, s = pair(&m), go[2], st;
	char b[8];
	pipe(go);
	pid_t c = fork();
	if (!c) {
		close(m);
		setsid();
		ioctl(s, TIOCSCTTY, 0);
		signal(SIGHUP, on);
		write(go[1], "x", 1);
		for (int n = 0; !got && n < 200; n++)
			ms(10);
		int r = read(s, b, 1), w = write(s, "x", 1);
		_exit(got * 10 + (r == 0) * 2 + (w == -1 && errno == EIO));
	}
	read(go[0], b, 1);
	close(m);
	waitpid(c, &st, 0);
	T(WEXITSTATUS(st));
	T(read(s, b, 1));
	T(write(s, "x", 1));
	struct pollfd p = { s, POLLIN | POLLOUT };
	T(poll(&p, 1, 0));
	T(p.revents);
	struct termios t;
	T(tcgetattr(s, &t));
	/* The other way: the slave is closed. */
	s = pair(&m);
	write(s, "last", 4);
	close(s);
	p.fd = m;
	poll(&p, 1, 0);
	T(p.revents);
	T(read(m, b, 8));
	T(read(m, b, 8));
	poll(&p, 1, 0);
	T(p.revents);
	s = slave_of(m);
	poll(&p, 1, 0);
	T(p.revents);
	/* The leader's end hangs up for its group. */
	c = fork();
	if (!c) {
		setsid();
		ioctl(s, TIOCSCTTY, 0);
		if (!fork()) {
			signal(SIGHUP, on);
			write(go[1], "x", 1);
			for (int n = 0; !got && n < 200; n++)
				ms(10);
			b[0] = got;
			write(go[1], b, 1);
			_exit(0);
		}
		read(go[0], b, 1);
		_exit(0);
	}
	waitpid(c, NULL, 0);
	read(go[0], b, 1);
	T(b[0]);
}

static void background(void)
{
	int m, s = pair(&m);
	/* A child in a group of its own, not the terminal's. */
#define BEHIND(...) SESSION(s, \
	pid_t c = fork(); \
	if (!c) { setpgid(0, 0); __VA_ARGS__; _exit(0); } \
	setpgid(c, c); \
	int st; waitpid(c, &st, WUNTRACED); \
	int r = WIFSTOPPED(st) ? 200 - WSTOPSIG(st) : WEXITSTATUS(st); \
	kill(c, SIGKILL); _exit(r))
	char b;
	T(BEHIND(read(s, &b, 1)));
	T(BEHIND(signal(SIGTTIN, SIG_IGN); _exit(read(s, &b, 1) == -1 ? errno : 0)));
	T(BEHIND(_exit(write(s, "x", 1))));
	T(BEHIND(struct termios t; tcgetattr(s, &t); t.c_lflag |= TOSTOP; signal(SIGTTOU, SIG_IGN);
		tcsetattr(s, TCSANOW, &t); signal(SIGTTOU, SIG_DFL); write(s, "x", 1)));
	T(BEHIND(struct termios t; tcgetattr(s, &t); tcsetattr(s, TCSANOW, &t)));
	T(BEHIND(tcsetpgrp(s, getpid())));
	T(BEHIND(signal(SIGTTOU, SIG_IGN); tcsetpgrp(s, getpid()); _exit(tcgetpgrp(s) == getpid())));
	T(BEHIND(sigset_t q; sigemptyset(&q); sigaddset(&q, SIGTTOU); sigprocmask(SIG_BLOCK, &q, NULL);
		_exit(tcsetpgrp(s, getpid()) == 0)));
	/* An orphaned group gets an error instead. */
	int go[2];
	pipe(go);
	pid_t c = fork();
	if (!c) {
		setsid();
		ioctl(s, TIOCSCTTY, 0);
		signal(SIGHUP, SIG_IGN);
		if (!fork()) {
			setpgid(0, 0);
			if (!fork()) {
				ms(50);
				int r = read(s, &b, 1);
				b = r == -1 ? errno : 0;
				write(go[1], &b, 1);
				_exit(0);
			}
			_exit(0);
		}
		wait(NULL);
		ms(150);
		_exit(0);
	}
	read(go[0], &b, 1);
	T(b);
	waitpid(c, NULL, 0);
}

static void polling(void)
{
	int m, s = pair(&m), n;
	struct pollfd p[2] = { { m, POLLIN | POLLOUT }, { s, POLLIN | POLLOUT } };
	T(poll(p, 2, 0));
	T(p[0].revents * 100 + p[1].revents);
	type(m, "x");
	ms(10);
	poll(p, 2, 0);
	T(p[0].revents * 100 + p[1].revents);
	type(m, "\n");
	ms(10);
	poll(p, 2, 0);
	T(p[0].revents * 100 + p[1].revents);
	T(ioctl(s, FIONREAD, &n));
	T(n);
	SHOWN(m);
	int on = 1;
	T(ioctl(m, TIOCPKT, &on));
	write(s, "data", 4);
	SHOWN(m);
	tcflush(s, TCIFLUSH);
	SHOWN(m);
	SHOWN(m);
	T(ioctl(s, TIOCPKT, &on));
	/* A blocked reader is woken. */
	char b[8];
	s = pair(&m);
	p[0].fd = m;
	pid_t c = fork();
	if (!c) {
		ms(20);
		type(m, "wake\n");
		_exit(0);
	}
	T(read(s, b, 8));
	waitpid(c, NULL, 0);
	c = fork();
	if (!c) {
		ms(20);
		write(s, "up", 2);
		_exit(0);
	}
	p[0].events = POLLIN;
	SHOWN(m);
	T(poll(p, 1, 2000));
	waitpid(c, NULL, 0);
}

static void much(void)
{
	int m, s = pair(&m), st;
	raw(s);
	static char b[100000];
	pid_t c = fork();
	if (!c) {
		memset(b, 'q', sizeof b);
		_exit(write(s, b, sizeof b) == sizeof b ? 3 : 4);
	}
	long n = 0, r;
	while (n < (long)sizeof b && (r = read(m, b, 5000)) > 0)
		n += r;
	T(n);
	waitpid(c, &st, 0);
	T(WEXITSTATUS(st));
	c = fork();
	if (!c) {
		memset(b, 'w', sizeof b);
		_exit(write(m, b, 20000) == 20000 ? 5 : 6);
	}
	n = 0;
	while (n < 20000 && (r = read(s, b, 5000)) > 0)
		n += r;
	T(n);
	waitpid(c, &st, 0);
	T(WEXITSTATUS(st));
}

static void shell(void)
{
	int m, s = pair(&m), st;
	pid_t c = fork();
	if (!c) {
		close(m);
		setsid();
		ioctl(s, TIOCSCTTY, 0);
		dup2(s, 0), dup2(s, 1), dup2(s, 2);
		execl("/bin/sh", "sh", "-c", "read x; echo got $x; stty -echo 2>/dev/null; read y; echo and $y; tty | sed 's/[0-9]*$/N/'", NULL);
		_exit(9);
	}
	close(s);
	type(m, "first\n");
	char b[512];
	int n = 0, r;
	while (n < 300 && (memmem(b, n, "got first", 9) == NULL) && (r = read(m, b + n, 100)) > 0)
		n += r;
	ms(300);
	type(m, "second\n");
	while ((r = read(m, b + n, 100)) > 0)
		n += r;
	bytes("all", b, n);
	waitpid(c, &st, 0);
	T(WEXITSTATUS(st));
}

static int has_terminal(void)
{
	int t = open("/dev/tty", O_RDWR | O_NOCTTY);
	if (t >= 0)
		close(t);
	return t >= 0;
}

/* Whether the program itself, which nobody asked to lead a session, took a terminal by opening it. */
static int first_took;

static void open_as_first(void)
{
	int m = posix_openpt(O_RDWR | O_NOCTTY), t;
	char name[64];
	if (m < 0 || unlockpt(m) || ptsname_r(m, name, sizeof name))
		return;
	int had = has_terminal();
	t = open(name, O_RDWR);
	first_took = !had && has_terminal();
	close(t);
	close(m);
}

/* Which opens give a session's leader its terminal (tty_open_proc_set_tty). */
static void controlling(void)
{
	static const struct {
		const char *what;
		int flags;
	} ways[] = {
		{ "O_RDWR", O_RDWR }, { "O_RDONLY", O_RDONLY }, { "O_WRONLY", O_WRONLY }, { "O_ACCMODE", O_ACCMODE },
		{ "O_NOCTTY", O_RDWR | O_NOCTTY }, { "O_PATH", O_PATH }, { "O_NONBLOCK", O_RDWR | O_NONBLOCK },
	};
	char name[64], other[64];
	int m, m2, s;
	for (unsigned i = 0; i < sizeof ways / sizeof *ways; i++) {
		s = pair(&m);
		ptsname_r(m, name, sizeof name);
		say(ways[i].what, "%d", CHILD(setsid(); open(name, ways[i].flags); _exit(has_terminal())));
		say(ways[i].what, "by no leader: %d", CHILD(open(name, ways[i].flags); _exit(tcgetsid(s) == getsid(0))));
		close(s);
		close(m);
	}
	s = pair(&m);
	int s2 = pair(&m2);
	ptsname_r(m, name, sizeof name);
	ptsname_r(m2, other, sizeof other);
	T(CHILD(setsid(); open(name, O_RDWR); open(other, O_RDWR); _exit((tcgetsid(s) == getpid()) + 2 * (tcgetsid(s2) == getpid()))));
	/* Another session's. */
	T(CHILD(setsid(); open(name, O_RDWR); _exit(CHILD(setsid(); open(name, O_RDWR); _exit(has_terminal())))));
	/* Opened again without O_NOCTTY after it was let go. */
	T(CHILD(setsid(); open(name, O_RDWR); signal(SIGHUP, SIG_IGN); ioctl(s, TIOCNOTTY); int no = has_terminal(); open(other, O_RDWR);
		_exit(no + 2 * has_terminal())));
	T(CHILD(setsid(); open("/dev/ptmx", O_RDWR); _exit(has_terminal())));
	T(CHILD(setsid(); open("/dev/null", O_RDWR); _exit(has_terminal())));
	int m3, s3 = pair(&m3);
	T(CHILD(setsid(); ioctl(m3, TIOCGPTPEER, O_RDWR); _exit(has_terminal())));
	close(s3);
	T(first_took);
}

/* Nobody comes to another's terminal by a node of his own. */
static void strangers(void)
{
	char name[64], path[64];
	int m, s = pair(&m), old = posix_openpt(O_RDWR | O_NOCTTY);
	ptsname_r(m, name, sizeof name);
	/* A mount of devpts says which mode what is on it has. */
	mkdir("p", 0755);
	snprintf(path, sizeof path, "p/%s", name + strlen("/dev/pts/"));
	T(CHILD(
		if (unshare(CLONE_NEWUSER | CLONE_NEWNS) == 0 && mount("devpts", "p", "devpts", 0, "mode=666") == 0)
			_exit(open(path, O_RDWR | O_NOCTTY) < 0 ? errno : 0);
		_exit(ENOENT)));
	close(s);
	close(m);
	/* The node of a terminal that is gone is not the next one's, which may have its number. */
	ptsname_r(old, name, sizeof name);
	int node = open(name, O_PATH);
	snprintf(path, sizeof path, "/proc/self/fd/%d", node);
	close(old);
	s = pair(&m);
	int s2 = pair(&old);
	T(open(path, O_RDWR | O_NOCTTY));
	close(s), close(s2);
}

static const struct check all[] = {
	CHECK(strangers), CHECK(opening), CHECK(canonical), CHECK(output), CHECK(modes), CHECK(sizes), CHECK(sessions), CHECK(controlling),
	CHECK(keyboard_signals), CHECK(hang_up), CHECK(background), CHECK(polling), CHECK(much), CHECK(shell),
};
int main(int argc, char **argv)
{
	open_as_first();
	return run_all(argc, argv, all, sizeof all / sizeof *all);
}
