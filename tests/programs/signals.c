/* Signals: sending, handlers, masks, restarting, waiting. */
#define AREA "signals"
#include "check.h"
#include <setjmp.h>

static volatile int count, last, code, value, order[32];
static volatile pid_t from;
static sigjmp_buf back;

static void on(int s)
{
	if (count < 32)
		order[count] = s;
	count++;
	last = s;
}

static void on_info(int s, siginfo_t *i, void *c)
{
	(void)c;
	on(s);
	code = i->si_code, from = i->si_pid, value = i->si_value.sival_int;
}

static void handle(int s, int flags)
{
	struct sigaction a = { .sa_handler = on, .sa_flags = flags };
	if (flags & SA_SIGINFO)
		a.sa_sigaction = on_info;
	sigaction(s, &a, NULL);
}

static void block(int s)
{
	sigset_t m;
	sigemptyset(&m);
	sigaddset(&m, s);
	sigprocmask(SIG_BLOCK, &m, NULL);
}

static void unblock_all(void)
{
	sigset_t m;
	sigemptyset(&m);
	sigprocmask(SIG_SETMASK, &m, NULL);
}

static void sent_by_kill(void)
{
	handle(SIGUSR1, SA_SIGINFO);
	T(kill(getpid(), SIGUSR1));
	T(count);
	T(last);
	T(code);
	Y(from == getpid());
	T(raise(SIGUSR1));
	T(count);
	T(code);
	union sigval v = { .sival_int = 77 };
	T(sigqueue(getpid(), SIGUSR1, v));
	T(code);
	T(value);
	T(CHILD(kill(getppid(), SIGUSR1)));
	T(count);
	Y(from != getpid());
	T(kill(getpid(), 0));
	T(kill(999999999, SIGUSR1));
	T(kill(999999999, 99));
	T(kill(getpid(), 99));
	T(kill(-999999, 99));
	T(syscall(SYS_tgkill, getpid(), 999999999, 99));
	T(syscall(SYS_tgkill, 0, 999999999, 99));
	T(syscall(SYS_tkill, 999999999, 99));
	T(kill(getpid(), 65));
	T(kill(getpid(), -1));
	T(syscall(SYS_tgkill, getpid(), gettid(), SIGUSR1));
	T(code);
	T(syscall(SYS_tgkill, getpid(), 0, SIGUSR1));
	T(syscall(SYS_tgkill, 1, gettid(), 0));
	T(syscall(SYS_tkill, gettid(), 99));
	T(count);
}

static void actions(void)
{
	struct sigaction a = { .sa_handler = on, .sa_flags = SA_RESTART }, o;
	T(sigaction(SIGUSR1, &a, NULL));
	T(sigaction(SIGUSR1, NULL, &o));
	Y(o.sa_handler == on && o.sa_flags & SA_RESTART);
	T(sigaction(SIGKILL, &a, NULL));
	T(sigaction(SIGSTOP, &a, NULL));
	T(sigaction(SIGKILL, NULL, &o));
	T(sigaction(0, &a, NULL));
	T(sigaction(65, &a, NULL));
	T(syscall(SYS_rt_sigaction, SIGUSR1, NULL, NULL, 4));
	T(syscall(SYS_rt_sigaction, SIGUSR1, (void *)8, NULL, 8));
	T(signal(SIGUSR1, SIG_IGN) == on);
	T(kill(getpid(), SIGUSR1));
	T(count);
	a.sa_flags = SA_RESETHAND;
	sigaction(SIGUSR2, &a, NULL);
	raise(SIGUSR2);
	T(count);
	sigaction(SIGUSR2, NULL, &o);
	Y(o.sa_handler == SIG_DFL);
	/* The rest of it stays. */
	a.sa_flags = SA_RESETHAND | SA_SIGINFO | SA_RESTART, sigaddset(&a.sa_mask, SIGHUP);
	sigaction(SIGUSR2, &a, NULL);
	raise(SIGUSR2);
	sigaction(SIGUSR2, NULL, &o);
	Y(o.sa_handler == SIG_DFL);
	T(o.sa_flags);
	T(sigismember(&o.sa_mask, SIGHUP));
	T(CHILD(raise(SIGUSR2)));
}

static void defaults(void)
{
	T(CHILD(raise(SIGTERM)));
	T(CHILD(raise(SIGKILL)));
	T(CHILD(raise(SIGUSR1)));
	T(CHILD(raise(SIGCHLD)));
	T(CHILD(raise(SIGURG)));
	T(CHILD(raise(SIGWINCH)));
	T(CHILD(raise(SIGCONT)));
	T(CHILD(raise(SIGPWR)));
	T(CHILD(raise(SIGRTMIN)));
	T(CHILD(raise(SIGALRM)));
	struct rlimit none = { 0, 0 };
	setrlimit(RLIMIT_CORE, &none);
	T(CHILD(abort()));
	T(CHILD(raise(SIGQUIT)));
	T(CHILD(signal(SIGABRT, SIG_IGN); abort()));
	T(CHILD(block(SIGABRT); abort()));
	T(CHILD(signal(SIGTERM, SIG_IGN); raise(SIGTERM); _exit(3)));
}

static void masks(void)
{
	sigset_t m, o, p;
	handle(SIGUSR1, 0);
	handle(SIGUSR2, 0);
	sigemptyset(&m);
	sigaddset(&m, SIGUSR1);
	T(sigprocmask(SIG_BLOCK, &m, &o));
	T(sigismember(&o, SIGUSR1));
	raise(SIGUSR1);
	raise(SIGUSR1);
	T(count);
	sigpending(&p);
	T(sigismember(&p, SIGUSR1));
	T(sigismember(&p, SIGUSR2));
	raise(SIGUSR2);
	T(count);
	T(sigprocmask(SIG_UNBLOCK, &m, NULL));
	T(count);
	sigpending(&p);
	T(sigismember(&p, SIGUSR1));
	T(sigprocmask(99, &m, NULL));
	T(sigprocmask(99, NULL, &o));
	sigfillset(&m);
	T(sigprocmask(SIG_SETMASK, &m, NULL));
	sigprocmask(SIG_SETMASK, NULL, &o);
	T(sigismember(&o, SIGKILL));
	T(sigismember(&o, SIGSTOP));
	T(sigismember(&o, SIGTERM));
	T(syscall(SYS_rt_sigprocmask, SIG_BLOCK, &m, NULL, 4));
	T(syscall(SYS_rt_sigpending, &m, 9));
	T(CHILD(sigset_t q; sigprocmask(SIG_BLOCK, NULL, &q); _exit(sigismember(&q, SIGTERM))));
	raise(SIGUSR1);
	T(CHILD(sigset_t q; sigpending(&q); _exit(sigismember(&q, SIGUSR1))));
}

static volatile int depth, deepest;
static void nested(int s)
{
	depth++;
	if (depth > deepest)
		deepest = depth;
	if (count++ < 3)
		raise(s);
	depth--;
}

static void in_handlers(void)
{
	struct sigaction a = { .sa_handler = nested };
	sigaction(SIGUSR1, &a, NULL);
	raise(SIGUSR1);
	T(count);
	T(deepest);
	count = deepest = 0;
	a.sa_flags = SA_NODEFER;
	sigaction(SIGUSR1, &a, NULL);
	raise(SIGUSR1);
	T(count);
	T(deepest);
	sigset_t m;
	sigprocmask(SIG_SETMASK, NULL, &m);
	T(sigismember(&m, SIGUSR1));
}

static void mask_seen(int s)
{
	sigset_t m;
	sigprocmask(SIG_SETMASK, NULL, &m);
	value = sigismember(&m, s) * 100 + sigismember(&m, SIGUSR2) * 10 + sigismember(&m, SIGTERM);
	on(s);
}

static void handler_mask(void)
{
	struct sigaction a = { .sa_handler = mask_seen };
	sigaddset(&a.sa_mask, SIGUSR2);
	sigaction(SIGUSR1, &a, NULL);
	raise(SIGUSR1);
	T(value);
	a.sa_flags = SA_NODEFER;
	sigaction(SIGUSR1, &a, NULL);
	raise(SIGUSR1);
	T(value);
	block(SIGTERM);
	raise(SIGUSR1);
	T(value);
}

static void changes_mask(int s, siginfo_t *i, void *c)
{
	(void)s, (void)i;
	sigaddset(&((ucontext_t *)c)->uc_sigmask, SIGUSR2);
}

static void context_mask(void)
{
	struct sigaction a = { .sa_sigaction = changes_mask, .sa_flags = SA_SIGINFO };
	sigset_t m;
	sigaction(SIGUSR1, &a, NULL);
	raise(SIGUSR1);
	sigprocmask(SIG_SETMASK, NULL, &m);
	T(sigismember(&m, SIGUSR2));
	T(sigismember(&m, SIGUSR1));
}

static void queueing(void)
{
	handle(SIGRTMIN, SA_SIGINFO);
	handle(SIGRTMIN + 1, SA_SIGINFO);
	handle(SIGUSR1, SA_SIGINFO);
	sigset_t m;
	sigfillset(&m);
	sigprocmask(SIG_SETMASK, &m, NULL);
	for (int i = 0; i < 3; i++) {
		sigqueue(getpid(), SIGRTMIN + 1, (union sigval){ .sival_int = i });
		sigqueue(getpid(), SIGRTMIN, (union sigval){ .sival_int = i });
		sigqueue(getpid(), SIGUSR1, (union sigval){ .sival_int = i });
	}
	siginfo_t i;
	sigset_t w;
	sigemptyset(&w);
	sigaddset(&w, SIGRTMIN);
	T(sigwaitinfo(&w, &i) == SIGRTMIN);
	T(i.si_value.sival_int);
	sigemptyset(&m);
	/* All handlers' frames are pushed before any of them runs. */
	sigprocmask(SIG_SETMASK, &m, NULL);
	T(count);
	for (int n = 0; n < count; n++)
		say("order", "%d", order[n] >= SIGRTMIN ? order[n] - SIGRTMIN + 100 : order[n]);
	T(sigqueue(999999999, SIGRTMIN, (union sigval){ 0 }));
	T(sigqueue(getpid(), 0, (union sigval){ 0 }));
	T(sigqueue(getpid(), 70, (union sigval){ 0 }));
	siginfo_t fake = { .si_code = SI_USER };
	T(syscall(SYS_rt_sigqueueinfo, getppid(), SIGURG, &fake));
	fake.si_code = -5;
	T(syscall(SYS_rt_sigqueueinfo, getpid(), SIGRTMIN, &fake));
	T(code);
}

static void waiting(void)
{
	sigset_t m;
	siginfo_t i;
	struct timespec zero = { 0, 0 }, soon = { 0, 20000000 }, bad = { 0, -1 };
	handle(SIGUSR2, 0);
	sigemptyset(&m);
	sigaddset(&m, SIGUSR1);
	sigprocmask(SIG_BLOCK, &m, NULL);
	T(sigtimedwait(&m, &i, &zero));
	T(sigtimedwait(&m, &i, &soon));
	T(sigtimedwait(&m, &i, &bad));
	raise(SIGUSR1);
	T(sigtimedwait(&m, &i, &zero));
	T(i.si_signo);
	T(i.si_code);
	pid_t p = fork();
	if (!p) {
		ms(20);
		kill(getppid(), SIGUSR1);
		_exit(0);
	}
	T(sigwaitinfo(&m, &i));
	Y(i.si_pid == p);
	waitpid(p, NULL, 0);
	p = fork();
	if (!p) {
		ms(20);
		kill(getppid(), SIGUSR2);
		_exit(0);
	}
	T(sigwaitinfo(&m, &i));
	waitpid(p, NULL, 0);
	T(count);
	sigset_t empty;
	sigemptyset(&empty);
	count = 0;
	p = fork();
	if (!p) {
		ms(20);
		kill(getppid(), SIGUSR2);
		_exit(0);
	}
	T(sigsuspend(&empty));
	T(count);
	waitpid(p, NULL, 0);
	sigprocmask(SIG_SETMASK, NULL, &empty);
	T(sigismember(&empty, SIGUSR1));
	T(syscall(SYS_rt_sigsuspend, &m, 4));
}

static pid_t later(int sig, int after)
{
	pid_t p = fork();
	if (!p) {
		ms(after);
		kill(getppid(), sig);
		ms(30);
		_exit(0);
	}
	return p;
}

/* What an interrupted call does with and without SA_RESTART. */
static void interrupted_read(void)
{
	int p[2];
	char b;
	for (int restart = 0; restart < 2; restart++) {
		handle(SIGUSR1, restart ? SA_RESTART : 0);
		pipe(p);
		pid_t c = fork();
		if (!c) {
			ms(30);
			kill(getppid(), SIGUSR1);
			ms(30);
			write(p[1], "x", 1);
			_exit(0);
		}
		T(read(p[0], &b, 1));
		waitpid(c, NULL, 0);
		T(count);
	}
}

static void interrupted_sleeps(void)
{
	struct timespec t = { 5, 0 }, left = { 0, 0 };
	handle(SIGUSR1, SA_RESTART);
	pid_t p = later(SIGUSR1, 30);
	T(nanosleep(&t, &left));
	Y(left.tv_sec == 4 && left.tv_nsec > 0);
	waitpid(p, NULL, 0);
	p = later(SIGUSR1, 30);
	T(clock_nanosleep(CLOCK_MONOTONIC, 0, &t, &left));
	waitpid(p, NULL, 0);
	p = later(SIGUSR1, 30);
	T(poll(NULL, 0, 5000));
	waitpid(p, NULL, 0);
	p = later(SIGUSR1, 30);
	struct timeval tv = { 5, 0 };
	T(select(0, NULL, NULL, NULL, &tv));
	Y(tv.tv_sec == 4);
	waitpid(p, NULL, 0);
	p = later(SIGUSR1, 30);
	T(pause());
	waitpid(p, NULL, 0);
	p = later(SIGUSR1, 30);
	T(waitpid(p, NULL, 0) == p);
	T(count);
	signal(SIGUSR1, SIG_IGN);
	long long start = now_ms();
	t.tv_sec = 0, t.tv_nsec = 150000000;
	p = later(SIGUSR1, 30);
	T(nanosleep(&t, &left));
	Y(now_ms() - start >= 150);
	waitpid(p, NULL, 0);
}

static void stopped_sleep(void)
{
	pid_t p = fork();
	if (!p) {
		struct timespec t = { 0, 120000000 };
		long long s = now_ms();
		int r = nanosleep(&t, NULL), q = poll(NULL, 0, 10), e = now_ms() - s >= 120;
		_exit(r == 0 && q == 0 && e ? 5 : 6);
	}
	int st;
	ms(30);
	kill(p, SIGSTOP);
	T(waitpid(p, &st, WUNTRACED) == p);
	T(WIFSTOPPED(st) ? WSTOPSIG(st) : -1);
	kill(p, SIGCONT);
	T(waitpid(p, &st, WCONTINUED) == p);
	T(WIFCONTINUED(st) ? 1 : 0);
	waitpid(p, &st, 0);
	T(WEXITSTATUS(st));
}

/* A call can be interrupted as often as one likes. */
static void interrupted_often(void)
{
	int p[2], st;
	T(pipe(p));
	pid_t k = fork();
	if (k == 0) {
		char b;
		close(p[1]);
		_exit(read(p[0], &b, 1) == 1 ? 7 : 1);
	}
	for (int i = 0; i < 6000; i++) {
		kill(k, SIGSTOP);
		waitpid(k, &st, WUNTRACED);
		kill(k, SIGCONT);
	}
	T(write(p[1], "x", 1));
	T(waitpid(k, &st, 0) == k);
	T(st);
}

static void stopping(void)
{
	siginfo_t i;
	int st;
	handle(SIGCHLD, SA_SIGINFO | SA_RESTART);
	pid_t p = fork();
	if (!p) {
		signal(SIGTERM, SIG_DFL);
		for (;;)
			pause();
	}
	kill(p, SIGSTOP);
	T(waitid(P_PID, p, &i, WSTOPPED));
	T(i.si_code);
	T(i.si_status);
	T(code);
	kill(p, SIGTERM);
	ms(20);
	T(waitpid(p, &st, WNOHANG));
	kill(p, SIGCONT);
	waitpid(p, &st, 0);
	T(WIFSIGNALED(st) ? WTERMSIG(st) : -1);
	p = fork();
	if (!p) {
		for (;;)
			pause();
	}
	kill(p, SIGSTOP);
	waitpid(p, &st, WUNTRACED);
	kill(p, SIGKILL);
	waitpid(p, &st, 0);
	T(WTERMSIG(st));
	p = fork();
	if (!p) {
		setpgid(0, 0);
		raise(SIGTSTP);
		_exit(4);
	}
	waitpid(p, &st, WUNTRACED);
	T(WIFSTOPPED(st) ? WSTOPSIG(st) : WEXITSTATUS(st));
	kill(p, SIGCONT);
	waitpid(p, &st, 0);
	T(WEXITSTATUS(st));
}

static void child_signals(void)
{
	siginfo_t i;
	sigset_t m;
	sigemptyset(&m);
	sigaddset(&m, SIGCHLD);
	sigprocmask(SIG_BLOCK, &m, NULL);
	pid_t p = fork();
	if (!p)
		_exit(3);
	T(sigwaitinfo(&m, &i));
	Y(i.si_pid == p);
	T(i.si_code);
	T(i.si_status);
	waitpid(p, NULL, 0);
	p = fork();
	if (!p) {
		pause();
	}
	kill(p, SIGTERM);
	sigwaitinfo(&m, &i);
	T(i.si_code);
	T(i.si_status);
	waitpid(p, NULL, 0);
	unblock_all();
	signal(SIGCHLD, SIG_IGN);
	p = fork();
	if (!p)
		_exit(3);
	T(waitpid(p, NULL, 0));
	struct sigaction a = { .sa_handler = on, .sa_flags = SA_NOCLDWAIT };
	sigaction(SIGCHLD, &a, NULL);
	p = fork();
	if (!p)
		_exit(3);
	while (waitpid(p, NULL, 0) < 0 && errno == EINTR) {}
	Y(errno == ECHILD);
	T(count);
	count = 0;
	a.sa_flags = SA_NOCLDSTOP | SA_RESTART;
	sigaction(SIGCHLD, &a, NULL);
	p = fork();
	if (!p)
		for (;;)
			pause();
	kill(p, SIGSTOP);
	waitpid(p, NULL, WUNTRACED);
	T(count);
	kill(p, SIGKILL);
	waitpid(p, NULL, 0);
	T(count);
}

static int on_alt;
static char *alt;
static void check_stack(int s)
{
	char here;
	on(s);
	on_alt = &here > alt && &here < alt + 65536;
	stack_t o;
	sigaltstack(NULL, &o);
	value = o.ss_flags;
	stack_t n = { .ss_sp = alt, .ss_size = 65536 };
	code = sigaltstack(&n, NULL) ? errno : 0;
}

static void alternate_stack(void)
{
	stack_t o;
	alt = malloc(65536);
	stack_t s = { .ss_sp = alt, .ss_size = 65536 };
	T(sigaltstack(NULL, &o));
	T(o.ss_flags);
	T(sigaltstack(&s, &o));
	struct sigaction a = { .sa_handler = check_stack };
	sigaction(SIGUSR1, &a, NULL);
	raise(SIGUSR1);
	T(on_alt);
	a.sa_flags = SA_ONSTACK;
	sigaction(SIGUSR1, &a, NULL);
	raise(SIGUSR1);
	T(on_alt);
	T(value);
	T(code);
	T(sigaltstack(NULL, &o));
	T(o.ss_flags);
	T(o.ss_size);
	s.ss_size = 100;
	T(sigaltstack(&s, NULL));
	s.ss_flags = 99;
	T(sigaltstack(&s, NULL));
	s.ss_flags = SS_DISABLE;
	T(sigaltstack(&s, NULL));
	T(CHILD(sigaltstack(NULL, &o); _exit(o.ss_flags == SS_DISABLE)));
	s.ss_flags = 1 << 31, s.ss_size = 65536;
	T(sigaltstack(&s, NULL));
	raise(SIGUSR1);
	T(on_alt);
	T(value);
}

static int overflow(int n)
{
	volatile char b[4096];
	b[0] = n;
	return overflow(n + 1) + b[0];
}

static void jump(int s)
{
	last = s;
	siglongjmp(back, 1);
}

static void stack_overflow(void)
{
	stack_t s = { .ss_sp = malloc(65536), .ss_size = 65536 };
	sigaltstack(&s, NULL);
	struct sigaction a = { .sa_handler = jump, .sa_flags = SA_ONSTACK };
	sigaction(SIGSEGV, &a, NULL);
	if (!sigsetjmp(back, 1))
		overflow(0);
	T(last);
	T(CHILD(signal(SIGSEGV, on); overflow(0)));
}

static volatile long where, trap_number, trap_address;
static void on_trap(int s, siginfo_t *i, void *c)
{
	greg_t *g = ((ucontext_t *)c)->uc_mcontext.gregs;
	trap_number = g[REG_TRAPNO], trap_address = g[REG_CR2];
	last = s, code = i->si_code, where = (long)i->si_addr;
	siglongjmp(back, 1);
}

static void hardware(void)
{
	struct sigaction a = { .sa_sigaction = on_trap, .sa_flags = SA_SIGINFO };
	sigaction(SIGFPE, &a, NULL);
	sigaction(SIGILL, &a, NULL);
	sigaction(SIGTRAP, &a, NULL);
	sigaction(SIGSEGV, &a, NULL);
	volatile int zero = 0, one = 1;
	if (!sigsetjmp(back, 1))
		value = one / zero;
	T(last * 1000 + code);
	if (!sigsetjmp(back, 1))
		__asm__ volatile("ud2");
	T(last * 1000 + code);
	Y(where != 0);
	if (!sigsetjmp(back, 1))
		__asm__ volatile("int3");
	T(last * 1000 + code);
	if (!sigsetjmp(back, 1))
		__asm__ volatile("hlt");
	T(last * 1000 + code);
	if (!sigsetjmp(back, 1))
		*(volatile char *)0x8000000000000000UL = 1;
	T(last * 1000 + code);
	T(where);
	if (!sigsetjmp(back, 1))
		*(volatile char *)16 = 1;
	T(last * 1000 + code);
	T(where);
	T(trap_number);
	T(trap_address);
	if (!sigsetjmp(back, 1))
		__asm__ volatile("ud2");
	T(trap_number);
	if (!sigsetjmp(back, 1))
		__asm__ volatile("int3");
	T(trap_number);
	if (!sigsetjmp(back, 1))
		__asm__ volatile("hlt");
	T(trap_number);
	if (!sigsetjmp(back, 1))
		value = one / zero;
	T(trap_number);
	if (!sigsetjmp(back, 1))
		raise(SIGFPE);
	T(trap_number);
	T(CHILD(signal(SIGSEGV, SIG_IGN); *(volatile char *)16 = 1));
	T(CHILD(block(SIGSEGV); *(volatile char *)16 = 1));
	T(CHILD(signal(SIGFPE, SIG_DFL); value = one / zero));
}

static volatile double keep = 1.5;
static void uses_fp(int s)
{
	volatile double x = 3.25;
	for (int i = 0; i < 10; i++)
		x = x * 1.01 + i;
	__asm__ volatile("pxor %%xmm0, %%xmm0; pxor %%xmm7, %%xmm7; pcmpeqd %%xmm15, %%xmm15" ::: "xmm0", "xmm7", "xmm15");
	on(s);
}

static void fp_state(void)
{
	signal(SIGUSR1, uses_fp);
	register double a = keep, b = keep * 2, c = keep * 3;
	int me = getpid();
	for (int i = 0; i < 5; i++) {
		__asm__ volatile("" : "+x"(a), "+x"(b), "+x"(c));
		syscall(SYS_kill, me, SIGUSR1);
		__asm__ volatile("" : "+x"(a), "+x"(b), "+x"(c));
	}
	T((a + b + c) * 10);
	T(count);
}

static void pipes(void)
{
	int p[2];
	pipe(p);
	close(p[0]);
	T(CHILD(write(p[1], "x", 1)));
	signal(SIGPIPE, SIG_IGN);
	T(write(p[1], "x", 1));
	handle(SIGPIPE, SA_SIGINFO);
	T(write(p[1], "x", 1));
	T(count);
	T(code);
}

static void alarms(void)
{
	handle(SIGALRM, SA_SIGINFO);
	T(alarm(100) > 0);
	T(alarm(0));
	T(alarm(0));
	struct itimerval t = { { 0, 10000 }, { 0, 10000 } }, o;
	T(setitimer(ITIMER_REAL, &t, NULL));
	while (count < 3)
		pause();
	T(code);
	memset(&t, 0, sizeof t);
	T(setitimer(ITIMER_REAL, &t, &o));
	T(o.it_interval.tv_usec);
	T(getitimer(ITIMER_REAL, &o));
	T(o.it_value.tv_usec + o.it_value.tv_sec);
	t.it_value.tv_usec = 1000000;
	T(setitimer(ITIMER_REAL, &t, NULL));
	T(setitimer(9, &t, NULL));
	t.it_value.tv_usec = 0, t.it_value.tv_sec = 50;
	setitimer(ITIMER_REAL, &t, NULL);
	T(CHILD(getitimer(ITIMER_REAL, &o); _exit(o.it_value.tv_sec)));
	handle(SIGVTALRM, 0);
	count = 0;
	struct itimerval v = { { 0, 0 }, { 0, 20000 } };
	T(setitimer(ITIMER_VIRTUAL, &v, NULL));
	long long end = now_ms() + 5000;
	while (!count && now_ms() < end) {}
	T(count);
}

static pthread_t worker_thread;
static volatile int worker_tid, worker_got;
static void on_thread(int s)
{
	(void)s;
	worker_got = gettid() == worker_tid ? 1 : 2;
}
static void *worker(void *p)
{
	(void)p;
	worker_tid = gettid();
	while (!worker_got)
		ms(5);
	return NULL;
}

static void threads(void)
{
	signal(SIGUSR1, on_thread);
	pthread_create(&worker_thread, NULL, worker, NULL);
	while (!worker_tid)
		ms(1);
	T(pthread_kill(worker_thread, SIGUSR1));
	pthread_join(worker_thread, NULL);
	T(worker_got);
	/* A process signal goes to the thread that does not block it. */
	worker_got = worker_tid = 0;
	pthread_create(&worker_thread, NULL, worker, NULL);
	while (!worker_tid)
		ms(1);
	block(SIGUSR1);
	kill(getpid(), SIGUSR1);
	pthread_join(worker_thread, NULL);
	T(worker_got);
	worker_got = worker_tid = 0;
	pthread_create(&worker_thread, NULL, worker, NULL);
	while (!worker_tid)
		ms(1);
	T(syscall(SYS_tgkill, getpid(), worker_tid, 0));
	worker_got = 1;
	pthread_join(worker_thread, NULL);
	T(CHILD(pthread_create(&worker_thread, NULL, worker, NULL); raise(SIGKILL)));
}

static void after_exec(void)
{
	/* Ignored stays ignored, handled becomes default; the mask and what is pending stay. */
	int p[2];
	char b[256];
	pipe(p);
	pid_t c = fork();
	if (!c) {
		signal(SIGUSR1, SIG_IGN);
		signal(SIGUSR2, on);
		block(SIGTERM);
		raise(SIGTERM);
		dup2(p[1], 1);
		execl("/bin/sh", "sh", "-c",
		      "while read k v; do case $k in Sig[BIC]*|SigPnd:|ShdPnd:) echo $k $v;; esac; done < /proc/$$/status",
		      NULL);
		_exit(9);
	}
	close(p[1]);
	int n = 0, r;
	while ((r = read(p[0], b + n, sizeof b - n)) > 0)
		n += r;
	waitpid(c, NULL, 0);
	b[n < 255 ? n : 255] = 0;
	for (char *l = strtok(b, "\n"); l; l = strtok(NULL, "\n")) {
		/* The shell's own handlers are its affair. */
		unsigned long long m = strtoull(strchr(l, ' ') ?: "0", NULL, 16);
		*strchrnul(l, ':') = 0;
		if (strcmp(l, "SigCgt"))
			say(l, "%llx", m & ((1 << 9) | (1 << 11) | (1 << 14)));
	}
}

/* A sleep that is interrupted as often as a sender likes. */
static void woken_often(void)
{
	int p[2];
	char c = 0;
	pipe(p);
	pid_t me = getpid(), k = fork();
	if (k == 0) {
		for (int i = 0; i < 20000; i++) {
			kill(me, SIGCONT);
			if (i % 4 == 0)
				sched_yield();
		}
		write(p[1], "x", 1);
		_exit(0);
	}
	T(read(p[0], &c, 1));
	T(waitpid(k, NULL, 0) == k);
}

/* Real-time signals that nobody takes are bounded by RLIMIT_SIGPENDING. */
static void queue_limit(void)
{
	struct rlimit r = { 40, 40 };
	union sigval v = { 0 };
	sigset_t s;
	sigemptyset(&s);
	sigaddset(&s, SIGRTMIN);
	sigaddset(&s, SIGUSR1);
	sigprocmask(SIG_BLOCK, &s, NULL);
	T(setrlimit(RLIMIT_SIGPENDING, &r));
	int n = 0;
	while (n < 1000 && sigqueue(getpid(), SIGRTMIN, v) == 0)
		n++;
	T(errno == EAGAIN);
	Y(n > 20 && n <= 40);
	T(kill(getpid(), SIGUSR1));
	T(kill(getpid(), SIGRTMIN));
	struct timespec t = { 0, 0 };
	sigdelset(&s, SIGUSR1);
	int got = 0;
	while (sigtimedwait(&s, NULL, &t) == SIGRTMIN)
		got++;
	Y(got == n);
	T(sigqueue(getpid(), SIGRTMIN, v));
}

/* A signal that ends a process does not wait for a thread that sleeps uninterruptibly. */
static void fatal_at_once(void)
{
	long long t = now_ms();
	T(CHILD(
		pid_t me = getpid();
		if (vfork() == 0) {
			kill(me, SIGTERM);
			ms(3000);
			_exit(0);
		}));
	Y(now_ms() - t < 2000);
	/* Stopped: it ends when it goes on. */
	pid_t k = fork();
	int st;
	if (k == 0) {
		raise(SIGSTOP);
		_exit(5);
	}
	T(waitpid(k, &st, WUNTRACED) == k && WIFSTOPPED(st));
	kill(k, SIGTERM);
	ms(20);
	T(waitpid(k, &st, WNOHANG));
	kill(k, SIGCONT);
	T(waitpid(k, &st, 0) == k && WIFSIGNALED(st) ? WTERMSIG(st) : -1);
}

/* What looks like a timer's signal counts, too: anybody may send it. */
static void forged_timer(void)
{
	T(CHILD(
		struct rlimit r = { 50, 50 };
		setrlimit(RLIMIT_SIGPENDING, &r);
		sigset_t all;
		sigfillset(&all), sigprocmask(SIG_BLOCK, &all, NULL);
		siginfo_t i = { .si_signo = SIGRTMIN, .si_code = SI_TIMER };
		int n = 0;
		while (n < 200 && syscall(SYS_rt_sigqueueinfo, getpid(), SIGRTMIN, &i) == 0) n++;
		_exit(n <= 50 && errno == EAGAIN)));
}

/* A thread's number stands for its process. */
static volatile int other_thread;
static void *has_number(void *p)
{
	other_thread = syscall(SYS_gettid);
	read(*(int *)p, &(char){ 0 }, 1);
	return NULL;
}
static void by_thread(void)
{
	int p[2];
	pthread_t t;
	sigset_t s;
	siginfo_t i = { .si_code = SI_QUEUE }, got = { 0 };
	pipe(p);
	sigemptyset(&s);
	sigaddset(&s, SIGUSR1);
	pthread_sigmask(SIG_BLOCK, &s, NULL);
	pthread_create(&t, NULL, has_number, p);
	while (!other_thread)
		usleep(1000);
	i.si_value.sival_int = 77;
	T(syscall(SYS_rt_sigqueueinfo, other_thread, SIGUSR1, &i));
	struct timespec none = { 0, 0 };
	T(sigtimedwait(&s, &got, &none) == SIGUSR1 ? got.si_value.sival_int : -1);
	T(syscall(SYS_rt_sigqueueinfo, 0, SIGUSR1, &i));
	T(syscall(SYS_rt_sigqueueinfo, -1, SIGUSR1, &i));
	T(syscall(SYS_rt_sigqueueinfo, 999999, SIGUSR1, &i));
	T(kill(other_thread, SIGUSR1));
	T(sigtimedwait(&s, &got, &none) == SIGUSR1);
	write(p[1], "x", 1);
	pthread_join(t, NULL);
}

static const struct check all[] = {
	CHECK(by_thread),
	CHECK(forged_timer), CHECK(sent_by_kill), CHECK(actions), CHECK(defaults), CHECK(masks), CHECK(in_handlers),
	CHECK(handler_mask), CHECK(context_mask), CHECK(queueing), CHECK(waiting), CHECK(interrupted_read),
	CHECK(interrupted_sleeps), CHECK(stopped_sleep), CHECK(interrupted_often), CHECK(stopping), CHECK(child_signals),
	CHECK(alternate_stack), CHECK(stack_overflow), CHECK(hardware), CHECK(fp_state), CHECK(pipes),
	CHECK(alarms), CHECK(threads), CHECK(after_exec),
	CHECK(woken_often), CHECK(queue_limit), CHECK(fatal_at_once),
};
MAIN(all)
