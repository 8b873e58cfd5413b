/* bpf(2), as far as it decides which devices a control group may use: programs are checked, attached, asked, run. */
#define AREA "bpf"
#include "check.h"
#include "groups.h"
#include <linux/bpf.h>
#include <sys/sysmacros.h>

#ifndef BPF_F_PREORDER
#define BPF_F_PREORDER (1U << 6)
#endif

static int group(const char *name)
{
	return open(at(name), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
}

#define I(c, d, s, o, i) ((struct bpf_insn){ .code = (c), .dst_reg = (d), .src_reg = (s), .off = (o), .imm = (i) })
#define MOV(d, i) I(BPF_ALU64 | BPF_MOV | BPF_K, d, 0, 0, i)
#define MOVR(d, s) I(BPF_ALU64 | BPF_MOV | BPF_X, d, s, 0, 0)
#define ALU(op, d, i) I(BPF_ALU64 | (op) | BPF_K, d, 0, 0, i)
#define ALU32(op, d, i) I(BPF_ALU | (op) | BPF_K, d, 0, 0, i)
#define ALUR(op, d, s) I(BPF_ALU64 | (op) | BPF_X, d, s, 0, 0)
#define LDX(size, d, s, o) I(BPF_LDX | BPF_MEM | (size), d, s, o, 0)
#define JMP(op, d, i, o) I(BPF_JMP | (op) | BPF_K, d, 0, o, i)
#define JMPR(op, d, s, o) I(BPF_JMP | (op) | BPF_X, d, s, o, 0)
#define EXIT I(BPF_JMP | BPF_EXIT, 0, 0, 0, 0)
#define PROG(...) ((struct bpf_insn[]){ __VA_ARGS__ })
#define LOAD(...) load(PROG(__VA_ARGS__), sizeof(PROG(__VA_ARGS__)) / sizeof(struct bpf_insn))

static long sys(int cmd, void *a, unsigned size)
{
	return syscall(SYS_bpf, cmd, a, size);
}

static union bpf_attr for_load(struct bpf_insn *p, unsigned n)
{
	union bpf_attr a;
	memset(&a, 0, sizeof(a));
	a.prog_type = BPF_PROG_TYPE_CGROUP_DEVICE;
	a.insns = (unsigned long)p;
	a.insn_cnt = n;
	a.license = (unsigned long)"Apache";
	return a;
}

static int load(struct bpf_insn *p, unsigned n)
{
	union bpf_attr a = for_load(p, n);
	return sys(BPF_PROG_LOAD, &a, sizeof(a));
}

/* Whether it is taken: the number of the descriptor is nobody's business. */
static int taken(int fd)
{
	if (fd < 0)
		return -1;
	close(fd);
	return 0;
}

#define OK(...) do { \
	errno = 0; \
	long r_ = taken(LOAD(__VA_ARGS__)); \
	int e_ = errno; \
	report(#__VA_ARGS__, r_, e_); \
} while (0)

static int all(int answer)
{
	return LOAD(MOV(0, answer), EXIT);
}

/* All but one character device. */
static int all_but(int major, int minor, int access)
{
	return LOAD(LDX(BPF_W, 2, 1, 0), LDX(BPF_W, 4, 1, 4), LDX(BPF_W, 5, 1, 8), MOVR(3, 2), ALU32(BPF_AND, 2, 0xffff),
		    ALU32(BPF_RSH, 3, 16), JMP(BPF_JNE, 2, BPF_DEVCG_DEV_CHAR, 5), ALU32(BPF_AND, 3, access),
		    JMP(BPF_JEQ, 3, 0, 3), JMP(BPF_JNE, 4, major, 2), JMP(BPF_JNE, 5, minor, 1),
		    JMP(BPF_JA, 0, 0, 2), MOV(0, 1), EXIT, MOV(0, 0), EXIT);
}

static int attach(int fd, int prog, unsigned flags, int old)
{
	union bpf_attr a;
	memset(&a, 0, sizeof(a));
	a.target_fd = fd;
	a.attach_bpf_fd = prog;
	a.attach_type = BPF_CGROUP_DEVICE;
	a.attach_flags = flags;
	a.replace_bpf_fd = old;
	return sys(BPF_PROG_ATTACH, &a, sizeof(a));
}

static int detach(int fd, int prog)
{
	union bpf_attr a;
	memset(&a, 0, sizeof(a));
	a.target_fd = fd;
	a.attach_bpf_fd = prog;
	a.attach_type = BPF_CGROUP_DEVICE;
	return sys(BPF_PROG_DETACH, &a, sizeof(a));
}

static unsigned ids[80], asked, flags_told;
static int query(int fd, unsigned room, unsigned flags)
{
	union bpf_attr a;
	memset(&a, 0, sizeof(a));
	memset(ids, 0, sizeof(ids));
	a.query.target_fd = fd;
	a.query.attach_type = BPF_CGROUP_DEVICE;
	a.query.query_flags = flags;
	a.query.attach_flags = 0x55;
	a.query.prog_ids = room ? (unsigned long)ids : 0;
	a.query.prog_cnt = room;
	int r = sys(BPF_PROG_QUERY, &a, sizeof(a));
	asked = a.query.prog_cnt;
	flags_told = a.query.attach_flags;
	return r;
}

static struct bpf_prog_info info;
static unsigned info_len;
static int tell(int prog, unsigned len)
{
	union bpf_attr a;
	memset(&a, 0, sizeof(a));
	memset(&info, 0, sizeof(info));
	a.info.bpf_fd = prog;
	a.info.info_len = len;
	a.info.info = (unsigned long)&info;
	int r = sys(BPF_OBJ_GET_INFO_BY_FD, &a, sizeof(a));
	info_len = a.info.info_len;
	return r;
}

static unsigned id_of(int prog)
{
	return tell(prog, sizeof(info)) ? 0 : info.id;
}

static int by_id(unsigned id)
{
	union bpf_attr a;
	memset(&a, 0, sizeof(a));
	a.prog_id = id;
	return sys(BPF_PROG_GET_FD_BY_ID, &a, sizeof(a));
}

/* What is no program. */
static void refused(void)
{
	OK(MOV(0, 1), EXIT);
	OK(MOV(0, 0), EXIT);
	OK(EXIT);
	OK(MOV(0, 2), EXIT);
	OK(MOV(0, -1), EXIT);
	OK(MOV(0, 1));
	OK(JMP(BPF_JA, 0, 0, 5), MOV(0, 1), EXIT);
	OK(JMP(BPF_JA, 0, 0, 1), MOV(0, 1), MOV(0, 1), EXIT);
	OK(JMP(BPF_JA, 0, 0, -1), MOV(0, 1), EXIT);
	OK(MOV(0, 1), JMP(BPF_JA, 0, 0, -2), EXIT);
	OK(MOVR(0, 2), EXIT);
	OK(MOVR(0, 1), EXIT);
	OK(MOVR(0, 10), EXIT);
	OK(MOV(10, 0), MOV(0, 1), EXIT);
	OK(MOV(11, 0), MOV(0, 1), EXIT);
	OK(MOVR(2, 12), MOV(0, 1), EXIT);
	OK(MOV(0, 1), ALU(BPF_DIV, 0, 0), EXIT);
	OK(MOV(0, 1), ALU(BPF_MOD, 0, 0), EXIT);
	OK(MOV(0, 1), ALU(BPF_LSH, 0, 64), EXIT);
	OK(MOV(0, 1), ALU(BPF_RSH, 0, -1), EXIT);
	OK(MOV(0, 1), ALU32(BPF_RSH, 0, 32), EXIT);
	OK(MOV(0, 1), ALU32(BPF_RSH, 0, 31), EXIT);
	OK(I(BPF_ALU64 | BPF_MOV | BPF_K, 0, 1, 0, 1), EXIT);
	OK(I(BPF_ALU64 | BPF_MOV | BPF_K, 0, 0, 8, 1), EXIT);
	OK(I(BPF_ALU64 | BPF_ADD | BPF_X, 0, 0, 0, 1), EXIT);
	OK(MOV(0, 1), I(BPF_JMP | BPF_EXIT, 1, 0, 0, 0));
	OK(MOV(0, 1), I(BPF_JMP | BPF_EXIT, 0, 0, 0, 7));
	OK(I(0xff, 0, 0, 0, 0), MOV(0, 1), EXIT);
	OK(I(0xe7, 0, 0, 0, 0), MOV(0, 1), EXIT);
	OK(I(BPF_JMP | BPF_CALL, 0, 0, 0, 99999), MOV(0, 1), EXIT);
}

/* What a program may load, and of what it may reckon. */
static void contexts(void)
{
	OK(LDX(BPF_W, 0, 1, 0), MOV(0, 1), EXIT);
	OK(LDX(BPF_H, 0, 1, 0), MOV(0, 1), EXIT);
	OK(LDX(BPF_H, 0, 1, 2), MOV(0, 1), EXIT);
	OK(LDX(BPF_B, 0, 1, 0), MOV(0, 1), EXIT);
	OK(LDX(BPF_B, 0, 1, 3), MOV(0, 1), EXIT);
	OK(LDX(BPF_DW, 0, 1, 0), MOV(0, 1), EXIT);
	OK(LDX(BPF_W, 0, 1, 4), MOV(0, 1), EXIT);
	OK(LDX(BPF_H, 0, 1, 4), MOV(0, 1), EXIT);
	OK(LDX(BPF_B, 0, 1, 8), MOV(0, 1), EXIT);
	OK(LDX(BPF_W, 0, 1, 8), MOV(0, 1), EXIT);
	OK(LDX(BPF_W, 0, 1, 12), MOV(0, 1), EXIT);
	OK(LDX(BPF_W, 0, 1, -4), MOV(0, 1), EXIT);
	OK(LDX(BPF_W, 0, 1, 2), MOV(0, 1), EXIT);
	OK(LDX(BPF_W, 0, 2, 0), MOV(0, 1), EXIT);
	OK(MOV(2, 0), LDX(BPF_W, 0, 2, 0), MOV(0, 1), EXIT);
	OK(I(BPF_STX | BPF_MEM | BPF_W, 1, 1, 0, 0), MOV(0, 1), EXIT);
	OK(I(BPF_ST | BPF_MEM | BPF_W, 1, 0, 0, 7), MOV(0, 1), EXIT);
	OK(MOVR(6, 1), LDX(BPF_W, 0, 6, 0), MOV(0, 1), EXIT);
	/* What it answers must be known to be 0 or 1. */
	OK(LDX(BPF_W, 0, 1, 0), EXIT);
	OK(LDX(BPF_W, 0, 1, 0), ALU(BPF_AND, 0, 1), EXIT);
	OK(LDX(BPF_W, 0, 1, 0), ALU(BPF_AND, 0, 3), EXIT);
	OK(LDX(BPF_W, 0, 1, 0), ALU(BPF_RSH, 0, 31), EXIT);
	OK(LDX(BPF_W, 0, 1, 0), ALU32(BPF_RSH, 0, 31), EXIT);
	OK(LDX(BPF_W, 2, 1, 0), MOV(0, 1), JMP(BPF_JEQ, 2, 3, 1), MOV(0, 0), EXIT);
	OK(LDX(BPF_W, 2, 1, 0), MOV(0, 1), JMP(BPF_JEQ, 2, 3, 1), MOV(0, 2), EXIT);
	/* In one way it is not there. */
	OK(LDX(BPF_W, 2, 1, 0), JMP(BPF_JEQ, 2, 3, 1), MOV(0, 0), EXIT);
	OK(I(BPF_LD | BPF_IMM | BPF_DW, 0, 0, 0, 1), I(0, 0, 0, 0, 0), EXIT);
	OK(I(BPF_LD | BPF_IMM | BPF_DW, 0, 0, 0, 1), I(0, 0, 0, 0, 1), EXIT);
	OK(I(BPF_LD | BPF_IMM | BPF_DW, 0, 0, 0, 1), EXIT);
	OK(I(BPF_LD | BPF_IMM | BPF_DW, 0, 0, 0, 1), I(0, 1, 0, 0, 0), EXIT);
	OK(JMP(BPF_JA, 0, 0, 1), I(BPF_LD | BPF_IMM | BPF_DW, 0, 0, 0, 1), I(0, 0, 0, 0, 0), EXIT);
	OK(MOV(0, 1), I(BPF_ALU | BPF_END | BPF_TO_BE, 0, 0, 0, 16), ALU(BPF_AND, 0, 1), EXIT);
	OK(MOV(0, 1), I(BPF_ALU | BPF_END | BPF_TO_BE, 0, 0, 0, 17), ALU(BPF_AND, 0, 1), EXIT);
	OK(MOV(0, 1), ALUR(BPF_ADD, 0, 3), EXIT);
	OK(MOV(0, 1), JMPR(BPF_JEQ, 0, 3, 0), EXIT);
	OK(MOV(0, 1), ALU(BPF_NEG, 0, 0), ALU(BPF_NEG, 0, 0), EXIT);
}

/* The call's own arguments. */
static void words(void)
{
	static struct bpf_insn one[] = { MOV(0, 1), EXIT };
	static char big[5000];
	union bpf_attr a = for_load(one, 2);
	T(sys(BPF_PROG_LOAD, NULL, sizeof(a)));
	T(sys(BPF_PROG_LOAD, &a, 0));
	T(sys(BPF_PROG_LOAD, &a, 8));
	T(taken(sys(BPF_PROG_LOAD, &a, 48)));
	memcpy(big, &a, sizeof(a));
	T(taken(sys(BPF_PROG_LOAD, big, 4096)));
	T(sys(BPF_PROG_LOAD, big, 4097));
	big[4000] = 1;
	T(sys(BPF_PROG_LOAD, big, 4096));
	T(sys(9999, &a, sizeof(a)));
	T(sys(-1, &a, sizeof(a)));
	a.prog_type = 9999;
	T(sys(BPF_PROG_LOAD, &a, sizeof(a)));
	a = for_load(one, 0);
	T(sys(BPF_PROG_LOAD, &a, sizeof(a)));
	a = for_load(one, 1000001);
	T(sys(BPF_PROG_LOAD, &a, sizeof(a)));
	a = for_load(NULL, 2);
	T(sys(BPF_PROG_LOAD, &a, sizeof(a)));
	a = for_load(one, 2);
	a.license = 0;
	T(sys(BPF_PROG_LOAD, &a, sizeof(a)));
	a = for_load(one, 2);
	a.prog_flags = 1 << 30;
	T(sys(BPF_PROG_LOAD, &a, sizeof(a)));
	a = for_load(one, 2);
	a.prog_flags = BPF_F_STRICT_ALIGNMENT;
	T(taken(sys(BPF_PROG_LOAD, &a, sizeof(a))));
	a = for_load(one, 2);
	strcpy(a.prog_name, "na-me");
	T(sys(BPF_PROG_LOAD, &a, sizeof(a)));
	memset(a.prog_name, 'a', 16);
	T(sys(BPF_PROG_LOAD, &a, sizeof(a)));
	strcpy(a.prog_name, "na.me_1");
	int fd = sys(BPF_PROG_LOAD, &a, sizeof(a));
	T(tell(fd, sizeof(info)));
	S(info.name, 16);
	close(fd);
	a = for_load(one, 2);
	a.log_level = 99;
	T(sys(BPF_PROG_LOAD, &a, sizeof(a)));
	a.log_level = 1;
	T(sys(BPF_PROG_LOAD, &a, sizeof(a)));
	static char log[4096];
	a.log_buf = (unsigned long)log;
	a.log_size = sizeof(log);
	T(taken(sys(BPF_PROG_LOAD, &a, sizeof(a))));
	Y(strstr(log, "processed") != NULL);
	a.log_level = 0;
	T(sys(BPF_PROG_LOAD, &a, sizeof(a)));
	a = for_load(one, 2);
	a.expected_attach_type = BPF_CGROUP_DEVICE;
	T(taken(sys(BPF_PROG_LOAD, &a, sizeof(a))));
}

/* How runtimes find out whether programs can be attached, and one put in another's place. */
static void probed(void)
{
	static struct bpf_insn one[] = { MOV(0, 0), EXIT };
	if (!ready())
		return;
	union bpf_attr a = for_load(one, 2);
	a.prog_type = BPF_PROG_TYPE_CGROUP_SKB;
	a.expected_attach_type = BPF_CGROUP_INET_INGRESS;
	int fd = sys(BPF_PROG_LOAD, &a, sizeof(a)), g = group("."), nul = open("/dev/null", O_RDONLY);
	T(fd >= 0);
	T(tell(fd, sizeof(info)));
	T(info.type);
	T(attach(g, fd, 0, 0));
	for (int where = 0; where < 3; where++) {
		memset(&a, 0, sizeof(a));
		a.target_fd = where == 0 ? -1 : where == 1 ? nul : g;
		a.attach_bpf_fd = fd;
		a.attach_type = where == 2 ? BPF_CGROUP_DEVICE : BPF_CGROUP_INET_INGRESS;
		a.attach_flags = BPF_F_REPLACE;
		T(sys(BPF_PROG_ATTACH, &a, sizeof(a)));
	}
	memset(&a, 0, sizeof(a));
	a.target_fd = nul;
	a.attach_bpf_fd = all(1);
	a.attach_type = BPF_CGROUP_DEVICE;
	a.attach_flags = BPF_F_ALLOW_MULTI | BPF_F_REPLACE;
	a.replace_bpf_fd = -1;
	T(sys(BPF_PROG_ATTACH, &a, sizeof(a)));
	memset(&a, 0, sizeof(a));
	a.query.target_fd = g;
	a.query.attach_type = BPF_CGROUP_INET_INGRESS;
	T(sys(BPF_PROG_QUERY, &a, sizeof(a)));
	T(a.query.prog_cnt);
	T(CHILD(T(setuid(1000)); a = for_load(one, 2); a.prog_type = BPF_PROG_TYPE_CGROUP_SKB; T(sys(BPF_PROG_LOAD, &a, sizeof(a)))));
	done();
}

/* What is told of a program. */
static void told(void)
{
	int a = all(1), b = all(0);
	T(a >= 0 && b >= 0);
	T(fcntl(a, F_GETFD));
	T(fcntl(a, F_GETFL));
	char c;
	T(read(a, &c, 1));
	T(write(a, &c, 1));
	T(lseek(a, 0, SEEK_SET));
	char link[64], name[64];
	sprintf(link, "/proc/self/fd/%d", a);
	memset(name, 0, sizeof(name));
	T(readlink(link, name, 63));
	S(name, strlen(name));
	T(tell(a, sizeof(info)));
	T(info.type);
	Y(info.id != 0);
	T(info.created_by_uid);
	T(info.nr_map_ids);
	T(info.gpl_compatible);
	T(info.verified_insns);
	T(info.xlated_prog_len);
	Y(info.load_time != 0);
	T(info.btf_id);
	T(info_len == sizeof(info));
	T(tell(a, 8));
	T(info_len);
	T(info.type);
	T(tell(-1, sizeof(info)));
	T(tell(0, sizeof(info)));
	unsigned x = id_of(a), y = id_of(b);
	Y(x != y);
	int again = by_id(x);
	Y(again >= 0);
	Y(id_of(again) == x);
	T(fcntl(again, F_GETFD));
	close(a);
	Y(id_of(again) == x);
	close(again);
	T(by_id(x));
	T(by_id(0));
	union bpf_attr n;
	memset(&n, 0, sizeof(n));
	n.start_id = y - 1;
	T(sys(BPF_PROG_GET_NEXT_ID, &n, sizeof(n)));
	Y(n.next_id == y);
	n.start_id = 0x7fffffff;
	T(sys(BPF_PROG_GET_NEXT_ID, &n, sizeof(n)));
	close(b);
}

/* Attached, asked, taken off. */
static void attached(void)
{
	if (!ready())
		return;
	int g = group("."), p = all(1), q = all(0), r = all(1);
	unsigned idp = id_of(p), idq = id_of(q);
	T(query(g, 0, 0));
	T(asked);
	T(flags_told);
	T(attach(g, p, 0, 0));
	T(query(g, 0, 0));
	T(asked);
	T(flags_told);
	T(query(g, 8, 0));
	Y(ids[0] == idp);
	/* One for another. */
	T(attach(g, q, 0, 0));
	T(query(g, 8, 0));
	T(asked);
	Y(ids[0] == idq);
	T(attach(g, p, BPF_F_ALLOW_MULTI, 0));
	T(attach(g, p, BPF_F_ALLOW_OVERRIDE, 0));
	T(detach(g, -1));
	T(detach(g, q));
	T(query(g, 8, 0));
	T(asked);
	/* Several. */
	T(attach(g, p, BPF_F_ALLOW_MULTI, 0));
	T(attach(g, p, BPF_F_ALLOW_MULTI, 0));
	T(attach(g, q, BPF_F_ALLOW_MULTI, 0));
	T(query(g, 8, 0));
	T(asked);
	T(flags_told);
	Y(ids[0] == idp && ids[1] == idq);
	T(query(g, 1, 0));
	T(asked);
	Y(ids[0] == idp);
	T(query(g, 1, BPF_F_QUERY_EFFECTIVE));
	T(asked);
	T(query(g, 8, BPF_F_QUERY_EFFECTIVE));
	T(asked);
	Y(ids[0] == idp && ids[1] == idq);
	T(query(g, 8, 1 << 9));
	/* One in another's place. */
	T(attach(g, r, BPF_F_ALLOW_MULTI | BPF_F_REPLACE, p));
	T(query(g, 8, 0));
	T(asked);
	Y(ids[0] == id_of(r) && ids[1] == idq);
	T(attach(g, p, BPF_F_ALLOW_MULTI | BPF_F_REPLACE, p));
	T(attach(g, p, BPF_F_ALLOW_MULTI | BPF_F_REPLACE, -1));
	T(attach(g, p, BPF_F_ALLOW_MULTI | BPF_F_REPLACE, g));
	T(attach(g, p, BPF_F_REPLACE, r));
	T(attach(g, r, BPF_F_ALLOW_MULTI | BPF_F_REPLACE, r));
	T(attach(g, p, BPF_F_ALLOW_MULTI | BPF_F_ALLOW_OVERRIDE, 0));
	T(attach(g, p, 1 << 10, 0));
	T(attach(g, -1, 0, 0));
	T(attach(g, g, 0, 0));
	T(attach(-1, p, 0, 0));
	T(attach(p, p, 0, 0));
	int file = open(at("cgroup.procs"), O_RDONLY), elsewhere = open("/", O_RDONLY);
	T(attach(file, p, 0, 0));
	T(attach(elsewhere, p, 0, 0));
	T(query(elsewhere, 0, 0));
	T(detach(g, -1));
	T(detach(g, p));
	T(detach(g, q));
	T(detach(g, r));
	T(detach(g, r));
	T(query(g, 8, 0));
	T(asked);
	T(flags_told);
	/* It is the group's, too. */
	T(attach(g, p, 0, 0));
	close(p);
	int again = by_id(idp);
	Y(again >= 0);
	close(again);
	done();
	close(g);
	T(query(elsewhere, 0, 0));
}

/* How groups above and below are heard. */
static void inherited(void)
{
	if (!ready())
		return;
	T(mkdir(at("a"), 0755));
	T(mkdir(at("a/b"), 0755));
	int g = group("."), a = group("a"), b = group("a/b");
	int p = all(1), q = all(0);
	/* Nobody below may have one. */
	T(attach(g, p, 0, 0));
	T(attach(a, q, 0, 0));
	T(attach(b, q, BPF_F_ALLOW_MULTI, 0));
	T(query(b, 8, BPF_F_QUERY_EFFECTIVE));
	T(asked);
	T(query(b, 8, 0));
	T(asked);
	T(detach(g, p));
	/* Those below go before. */
	T(attach(g, p, BPF_F_ALLOW_OVERRIDE, 0));
	T(attach(a, q, BPF_F_ALLOW_OVERRIDE, 0));
	T(query(b, 8, BPF_F_QUERY_EFFECTIVE));
	T(asked);
	Y(ids[0] == id_of(q));
	T(attach(b, p, 0, 0));
	T(query(b, 8, BPF_F_QUERY_EFFECTIVE));
	T(asked);
	T(detach(b, p));
	T(detach(a, q));
	T(detach(g, p));
	/* All are heard. */
	T(attach(g, p, BPF_F_ALLOW_MULTI, 0));
	T(attach(a, q, BPF_F_ALLOW_OVERRIDE, 0));
	T(attach(b, q, 0, 0));
	T(query(b, 8, BPF_F_QUERY_EFFECTIVE));
	T(asked);
	T(detach(b, q));
	T(attach(b, q, BPF_F_ALLOW_MULTI, 0));
	T(query(b, 8, BPF_F_QUERY_EFFECTIVE));
	T(asked);
	T(detach(b, q));
	T(detach(a, q));
	T(detach(g, p));
	T(rmdir(at("a/b")));
	/* A group that was removed. */
	T(attach(b, p, 0, 0));
	T(query(b, 0, 0));
	T(rmdir(at("a")));
	done();
}

static int opens(const char *name, int flags)
{
	int fd = open(name, flags);
	if (fd < 0)
		return -1;
	close(fd);
	return 0;
}

/* What the programs decide. */
static void decided(void)
{
	if (!ready())
		return;
	mkdir("d", 0755);
	T(mount("d", "d", "tmpfs", 0, NULL));
	T(mknod("d/null", S_IFCHR | 0666, makedev(1, 3)));
	T(chmod("d/null", 0666));
	T(mkdir(at("a"), 0755));
	int g = group("."), a = group("a");
	int nul = open("d/null", O_RDWR);
	int no_null = all_but(1, 3, BPF_DEVCG_ACC_READ | BPF_DEVCG_ACC_WRITE | BPF_DEVCG_ACC_MKNOD);
	int no_write = all_but(1, 3, BPF_DEVCG_ACC_WRITE), no_node = all_but(1, 5, BPF_DEVCG_ACC_MKNOD), none = all(0);
	Y(no_null >= 0 && no_write >= 0 && no_node >= 0 && none >= 0);
	T(write_text(at("a/cgroup.procs"), "0"));
	T(opens("d/null", O_RDWR));
	T(attach(g, no_null, BPF_F_ALLOW_MULTI, 0));
	T(opens("d/null", O_RDONLY));
	T(opens("d/null", O_WRONLY));
	T(opens("d/null", O_PATH));
	T(opens("/dev/zero", O_RDONLY));
	T(access("d/null", R_OK));
	T(access("d/null", W_OK));
	T(access("d/null", F_OK));
	T(access("d/null", X_OK));
	T(truncate("d/null", 0));
	T(mknod("d/null2", S_IFCHR | 0666, makedev(1, 3)));
	T(mknod("d/zero", S_IFCHR | 0666, makedev(1, 5)));
	T(mknod("d/white", S_IFCHR, 0));
	T(mknod("d/fifo", S_IFIFO | 0600, 0));
	/* What is open stays. */
	T(write(nul, "x", 1));
	char link[64];
	sprintf(link, "/proc/self/fd/%d", nul);
	T(opens(link, O_RDWR));
	T(detach(g, no_null));
	T(opens("d/null", O_RDWR));
	/* A right at a time. */
	T(attach(g, no_write, BPF_F_ALLOW_MULTI, 0));
	T(opens("d/null", O_RDONLY));
	T(opens("d/null", O_WRONLY));
	T(opens("d/null", O_RDWR));
	T(access("d/null", R_OK));
	T(access("d/null", W_OK));
	T(mknod("d/null3", S_IFCHR | 0666, makedev(1, 3)));
	T(attach(a, no_node, 0, 0));
	T(mknod("d/zero2", S_IFCHR | 0666, makedev(1, 5)));
	T(opens("d/zero", O_RDWR));
	T(opens("d/null", O_WRONLY));
	/* Its mode is asked first. */
	T(chmod("d/null", 0));
	T(CHILD(T(setuid(1000)); T(opens("d/null", O_WRONLY)); T(mknod("d/n", S_IFCHR, makedev(1, 3)))));
	T(attach(a, none, 0, 0));
	T(opens("d/zero", O_RDONLY));
	T(opens("/dev/null", O_RDONLY));
	T(opens("/", O_RDONLY));
	T(mknod("d/block", S_IFBLK | 0600, makedev(7, 0)));
	T(opens("d/fifo", O_RDWR));
	T(write_text(at("cgroup.procs"), "0"));
	T(opens("d/zero", O_RDONLY));
	T(rmdir(at("a")));
	T(write_text(at("../cgroup.procs"), "0"));
	T(opens("d/null", O_WRONLY));
	umount("d");
	done();
}

/* The instructions: each program answers 1 if it reckons as it should. */
static int gives(int prog)
{
	int g = group(".");
	if (prog < 0)
		return -1;
	if (attach(g, prog, 0, 0))
		return -2;
	int r = opens("/dev/null", O_RDONLY) ? 0 : 1;
	detach(g, prog);
	close(prog);
	close(g);
	return r;
}

#define GIVES(text, ...) do { \
	errno = 0; \
	long r_ = gives(LOAD(__VA_ARGS__)); \
	int e_ = errno; \
	report(text, r_, r_ < 0 ? e_ : 0); \
} while (0)
#define IS(v, ...) GIVES(#v " " #__VA_ARGS__, __VA_ARGS__, MOV(0, 1), JMP(BPF_JEQ, 2, v, 1), MOV(0, 0), EXIT)
#define JUMPS(op, x, y) GIVES(#x " " #op " " #y, MOV(2, x), MOV(0, 1), JMP(op, 2, y, 1), MOV(0, 0), EXIT)
#define JUMPS32(op, x, y) GIVES("32 bits: " #x " " #op " " #y, MOV(2, x), MOV(0, 1), \
	I(BPF_JMP32 | (op) | BPF_K, 2, 0, 1, y), MOV(0, 0), EXIT)
#define JUMPSR(op, x, y) GIVES("registers: " #x " " #op " " #y, MOV(2, x), MOV(3, y), MOV(0, 1), \
	JMPR(op, 2, 3, 1), MOV(0, 0), EXIT)

static void reckons(void)
{
	if (!ready())
		return;
	T(write_text(at("cgroup.procs"), "0"));
	IS(7, MOV(2, 3), ALU(BPF_ADD, 2, 4));
	IS(-1, MOV(2, 3), ALU(BPF_SUB, 2, 4));
	IS(12, MOV(2, 3), ALU(BPF_MUL, 2, 4));
	IS(2, MOV(2, 9), ALU(BPF_DIV, 2, 4));
	IS(1, MOV(2, 9), ALU(BPF_MOD, 2, 4));
	IS(13, MOV(2, 9), ALU(BPF_OR, 2, 4));
	IS(8, MOV(2, 9), ALU(BPF_AND, 2, 12));
	IS(5, MOV(2, 9), ALU(BPF_XOR, 2, 12));
	IS(36, MOV(2, 9), ALU(BPF_LSH, 2, 2));
	IS(2, MOV(2, 9), ALU(BPF_RSH, 2, 2));
	IS(-3, MOV(2, -9), ALU(BPF_ARSH, 2, 2));
	IS(9, MOV(2, -9), ALU(BPF_NEG, 2, 0));
	IS(0, MOV(2, 9), MOV(3, 0), ALUR(BPF_DIV, 2, 3));
	IS(9, MOV(2, 9), MOV(3, 0), ALUR(BPF_MOD, 2, 3));
	IS(1, MOV(2, 1), MOV(3, 64), ALUR(BPF_LSH, 2, 3));
	/* 32 bits: the others are 0. */
	IS(1, MOV(2, -1), ALU32(BPF_RSH, 2, 31));
	IS(1, MOV(2, -1), ALU32(BPF_ADD, 2, 0), ALU(BPF_RSH, 2, 31));
	IS(0, MOV(2, -1), I(BPF_ALU | BPF_MOV | BPF_X, 2, 2, 0, 0), ALU(BPF_RSH, 2, 32));
	IS(-1, MOV(2, -1));
	IS(0, MOV(2, -1), ALU32(BPF_MOV, 2, -1), ALU(BPF_RSH, 2, 32));
	IS(1, I(BPF_LD | BPF_IMM | BPF_DW, 2, 0, 0, 0), I(0, 0, 0, 0, 1), ALU(BPF_RSH, 2, 32));
	IS(-1, MOV(2, 0xff), I(BPF_ALU64 | BPF_MOV | BPF_X, 2, 2, 8, 0));
	IS(-4, MOV(2, -9), I(BPF_ALU64 | BPF_DIV | BPF_K, 2, 0, 1, 2));
	IS(-1, MOV(2, -9), I(BPF_ALU64 | BPF_MOD | BPF_K, 2, 0, 1, 2));
	IS(0x3412, MOV(2, 0x1234), I(BPF_ALU | BPF_END | BPF_TO_BE, 2, 0, 0, 16));
	IS(0x1234, I(BPF_ALU64 | BPF_MOV | BPF_K, 2, 0, 0, 0x51234), I(BPF_ALU | BPF_END | BPF_TO_LE, 2, 0, 0, 16));
	IS(0x78563412, MOV(2, 0x12345678), I(BPF_ALU64 | BPF_END, 2, 0, 0, 32));
	JUMPS(BPF_JEQ, 3, 3);
	JUMPS(BPF_JEQ, 3, 4);
	JUMPS(BPF_JNE, 3, 4);
	JUMPS(BPF_JGT, -1, 3);
	JUMPS(BPF_JGT, 3, 3);
	JUMPS(BPF_JGE, 3, 3);
	JUMPS(BPF_JLT, 3, -1);
	JUMPS(BPF_JLE, 3, 3);
	JUMPS(BPF_JSGT, -1, 3);
	JUMPS(BPF_JSGE, 3, -3);
	JUMPS(BPF_JSLT, -1, 3);
	JUMPS(BPF_JSLE, 4, 3);
	JUMPS(BPF_JSET, 6, 3);
	JUMPS(BPF_JSET, 8, 3);
	JUMPS32(BPF_JSLT, -1, 3);
	JUMPS32(BPF_JEQ, -1, -1);
	JUMPSR(BPF_JGT, 5, 3);
	JUMPSR(BPF_JSLT, -5, 3);
	/* What a program is told. */
	IS(1, LDX(BPF_W, 2, 1, 4));
	IS(3, LDX(BPF_W, 2, 1, 8));
	IS(2 << 16 | 2, LDX(BPF_W, 2, 1, 0));
	IS(2, LDX(BPF_H, 2, 1, 0));
	IS(2, LDX(BPF_B, 2, 1, 2));
	write_text(at("../cgroup.procs"), "0");
	done();
}

/* Who may. */
static void others(void)
{
	static struct bpf_insn one[] = { MOV(0, 1), EXIT };
	if (!ready())
		return;
	int g = group("."), p = all(1), q = all(1);
	unsigned id = id_of(p);
	T(CHILD(
		T(setuid(1000));
		T(load(one, 2));
		T(tell(p, sizeof(info)));
		T(by_id(id));
		T(query(g, 0, 0));
		T(query(0, 0, 0));
		T(attach(0, p, 0, 0));
		T(attach(g, p, BPF_F_ALLOW_MULTI, 0));
		T(attach(g, q, BPF_F_ALLOW_MULTI | BPF_F_REPLACE, p));
		T(detach(g, -1));
		T(detach(g, p));
		T(detach(g, q));
		T(sys(9999, NULL, 0));
		union bpf_attr a = for_load(one, 2);
		T(sys(BPF_PROG_LOAD, &a, 8));
		a.prog_type = 9999;
		T(sys(BPF_PROG_LOAD, &a, sizeof(a)));
		T(sys(BPF_PROG_GET_NEXT_ID, &a, sizeof(a)));
		memset(&a, 0, sizeof(a));
		T(sys(BPF_PROG_GET_NEXT_ID, &a, sizeof(a)));
	));
	T(query(g, 0, 0));
	T(asked);
	T(detach(g, q));
	T(detach(g, p));
	T(CHILD(
		if (unshare(CLONE_NEWUSER)) T(-1);
		T(load(one, 2));
		T(by_id(id));
		T(query(g, 0, 0));
	));
	close(p);
	done();
}

/* So many. */
static void many(void)
{
	if (!ready())
		return;
	int g = group("."), n = 0, p[80];
	for (n = 0; n < 80; n++) {
		p[n] = all(1);
		if (p[n] < 0 || attach(g, p[n], BPF_F_ALLOW_MULTI, 0))
			break;
	}
	T(n);
	T(attach(g, p[n], BPF_F_ALLOW_MULTI, 0));
	T(query(g, 80, 0));
	T(asked);
	for (int i = 0; i < n; i++)
		if (detach(g, p[i]))
			T(i);
	done();
}

static const struct check list[] = {
	CHECK(refused), CHECK(contexts), CHECK(words), CHECK(probed), CHECK(told), CHECK(attached), CHECK(inherited), CHECK(decided),
	CHECK(reckons), CHECK(others), CHECK(many),
};
MAIN(list)
