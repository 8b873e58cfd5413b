/* keyrings(7): add_key, request_key, keyctl. */
#define AREA "keys"
#include "check.h"
#include <linux/keyctl.h>

#ifndef KEYCTL_MOVE
#define KEYCTL_MOVE 30
#define KEYCTL_MOVE_EXCL 1
#define KEYCTL_CAPABILITIES 31
#endif
#define K(...) syscall(SYS_keyctl, __VA_ARGS__)
#define ADD(type, desc, p, len, ring) syscall(SYS_add_key, type, desc, p, (size_t)(len), ring)
#define REQUEST(type, desc, callout, ring) syscall(SYS_request_key, type, desc, callout, ring)
#define THREAD KEY_SPEC_THREAD_KEYRING
#define PROCESS KEY_SPEC_PROCESS_KEYRING
#define SESSION KEY_SPEC_SESSION_KEYRING
#define USERS KEY_SPEC_USER_KEYRING
#define USERS_SESSION KEY_SPEC_USER_SESSION_KEYRING

/* What is to be a key's number, but not which. */
static long key;
#define MADE(e) do { errno = 0; key = (long)(e); int e_ = errno; report(#e, key > 0 ? 1 : key, e_); } while (0)
#define IS(e, k) do { errno = 0; long r_ = (long)(e); int e_ = errno; report(#e " is " #k, r_ == -1 ? -1 : r_ == (k), e_); } while (0)

static void session(void)
{
	K(KEYCTL_JOIN_SESSION_KEYRING, NULL);
}

/* A key as it is described, without its number. */
static void describe(const char *what, int k)
{
	char b[300] = "";
	errno = 0;
	long n = K(KEYCTL_DESCRIBE, k, b, sizeof b);
	if (n < 0)
		report(what, n, errno);
	else
		say(what, "%ld %s", n, b);
}
#define D(k) describe(#k, k)

/* Its line in /proc/keys, without its number and its use. */
static void line(const char *what, int k)
{
	char l[600], flags[8], left[8], rest[500];
	unsigned id, use;
	FILE *f = fopen("/proc/keys", "r");
	int seen = 0;
	while (f && fgets(l, sizeof l, f))
		if (sscanf(l, "%x %7s %u %7s %[^\n]", &id, flags, &use, left, rest) == 5 && (int)id == k) {
			say(what, "%s %s %s", flags, left, rest);
			seen = 1;
		}
	if (!seen)
		say(what, "none");
	if (f)
		fclose(f);
}
#define L(k) line(#k, k)

static void makes(void)
{
	session();
	MADE(ADD("user", "check:a", "payload", 7, SESSION));
	long first = key;
	D(key);
	L(key);
	char b[20] = "................";
	T(K(KEYCTL_READ, key, b, 16));
	S(b, 16);
	T(K(KEYCTL_READ, key, NULL, 0));
	memset(b, '.', 16);
	T(K(KEYCTL_READ, key, b, 3));
	S(b, 16);
	T(K(KEYCTL_READ, key, 8, 16));
	IS(ADD("user", "check:a", "other", 5, SESSION), first);
	T(K(KEYCTL_READ, first, b, 16));
	S(b, 5);
	IS(REQUEST("user", "check:a", NULL, 0), first);
	IS(K(KEYCTL_SEARCH, SESSION, "user", "check:a", 0), first);
	T(K(KEYCTL_SEARCH, SESSION, "user", "check:b", 0));
	T(K(KEYCTL_SEARCH, SESSION, "logon", "check:a", 0));
	T(K(KEYCTL_SEARCH, SESSION, "nosuch", "check:a", 0));
	T(K(KEYCTL_SEARCH, first, "user", "check:a", 0));
	T(K(KEYCTL_UPDATE, first, "third", 5));
	T(K(KEYCTL_UPDATE, first, "x", 4097));
	T(K(KEYCTL_UPDATE, first, NULL, 0));
	T(K(KEYCTL_UPDATE, first, 8, 5));
	T(K(KEYCTL_UPDATE, SESSION, "x", 1));
	T(K(KEYCTL_READ, first, b, 16));
	S(b, 5);
	MADE(ADD("logon", "check:l", "secret", 6, SESSION));
	T(K(KEYCTL_READ, key, b, 16));
	D(key);
	L(key);
	T(K(KEYCTL_UPDATE, key, "s", 1));
	L(key);
	MADE(ADD("keyring", "check:r", NULL, 0, SESSION));
	D(key);
	L(key);
	long ring = key;
	MADE(ADD("user", "in", "x", 1, ring));
	int list[4] = { 7, 7, 7, 7 };
	T(K(KEYCTL_READ, ring, list, sizeof list));
	Y(list[0] == key && list[1] == 7);
	T(K(KEYCTL_READ, ring, list, 3));
	T(K(KEYCTL_READ, ring, list, 2));
	T(K(KEYCTL_READ, ring, NULL, 0));
	T(K(KEYCTL_READ, SESSION, NULL, 0));
	T(K(KEYCTL_READ, SESSION, list, 4));
	L(ring);
	MADE(ADD("keyring", "check:r", NULL, 0, SESSION));
	Y(key != ring);
	T(K(KEYCTL_READ, key, NULL, 0));
	ms(50);
	D(ring);
}

static void refuses(void)
{
	session();
	char name[5000];
	T(ADD("nosuch", "a", "x", 1, SESSION));
	T(ADD("trusted", "a", "x", 1, SESSION));
	T(ADD("", "a", "x", 1, SESSION));
	T(ADD(".user", "a", "x", 1, SESSION));
	T(ADD("a type with a name that is too long for it", "a", "x", 1, SESSION));
	T(ADD(8, "a", "x", 1, SESSION));
	T(ADD(NULL, "a", "x", 1, SESSION));
	T(ADD("user", 8, "x", 1, SESSION));
	T(ADD("user", NULL, "x", 1, SESSION));
	T(ADD("user", "", "x", 1, SESSION));
	T(ADD("user", "a", NULL, 1, SESSION));
	T(ADD("user", "a", "x", 0, SESSION));
	T(ADD("user", "a", "x", 1 << 20, SESSION));
	T(ADD("user", "a", "x", 1, 0));
	T(ADD("user", "a", "x", 1, -6));
	T(ADD("user", "a", "x", 1, -7));
	T(ADD("user", "a", "x", 1, -8));
	T(ADD("user", "a", "x", 1, -9));
	T(ADD("user", "a", "x", 1, 1));
	T(ADD("keyring", ".a", NULL, 0, SESSION));
	T(ADD("keyring", "a", "x", 1, SESSION));
	T(ADD("logon", "a", "x", 1, SESSION));
	T(ADD("logon", ":a", "x", 1, SESSION));
	MADE(ADD("user", ".a", "x", 1, SESSION));
	T(ADD("user", "a", "x", 1, key));
	T(ADD("nosuch", "a", "x", 1, key));
	memset(name, 'n', sizeof name);
	name[4096] = 0;
	T(ADD("user", name, "x", 1, SESSION));
	name[4095] = 0;
	MADE(ADD("user", name, "x", 1, SESSION));
	char *big = calloc(1, 1 << 20);
	T(ADD("user", "big", big, 32768, SESSION));
	MADE(ADD("user", "big", big, 32767, SESSION));
	T(K(KEYCTL_READ, key, big, 1 << 20));
	T(REQUEST("user", "none", NULL, 0));
	T(REQUEST("nosuch", "none", NULL, 0));
	T(REQUEST("user", "", NULL, 0));
	T(REQUEST("user", 8, NULL, 0));
	T(REQUEST("user", "none", 8, 0));
	T(REQUEST("user", "none", NULL, -9));
	T(K(99));
	T(K(KEYCTL_DH_COMPUTE, 0, 0, 0, 0));
	T(K(32, 0, 0, 0));
	T(K(KEYCTL_INSTANTIATE, 1, "a", 1, 0));
	T(K(KEYCTL_INSTANTIATE, 1, NULL, 0, 0));
	T(K(KEYCTL_INSTANTIATE, 1, "a", 1 << 20, 0));
	T(K(KEYCTL_NEGATE, 1, 1, 0));
	T(K(KEYCTL_REJECT, 1, 1, ENOKEY, 0));
	T(K(KEYCTL_REJECT, 1, 1, 0, 0));
	T(K(KEYCTL_REJECT, 1, 1, 4095, 0));
	T(K(KEYCTL_REJECT, 1, 1, 512, 0));
	T(K(KEYCTL_REJECT, 1, 1, 516, 0));
	T(K(KEYCTL_ASSUME_AUTHORITY, -1));
	T(K(KEYCTL_ASSUME_AUTHORITY, 0));
	T(K(KEYCTL_ASSUME_AUTHORITY, 5));
	unsigned char caps[6] = { 9, 9, 9, 9, 9, 9 };
	T(K(KEYCTL_CAPABILITIES, caps, 1));
	T(caps[1]);
	T(K(KEYCTL_CAPABILITIES, caps, 4));
	T(caps[0] & 0xe3);
	T(caps[1] & 3);
	T(caps[3] * 10 + caps[4]);
	T(K(KEYCTL_CAPABILITIES, NULL, 0));
	T(K(KEYCTL_CAPABILITIES, 8, 2));
	T(K(KEYCTL_GET_SECURITY, SESSION, NULL, 0));
	T(K(KEYCTL_GET_SECURITY, 1, NULL, 0));
	T(K(KEYCTL_DESCRIBE, 1, NULL, 0));
	T(K(KEYCTL_READ, 1, NULL, 0));
}

static void special(void)
{
	session();
	T(K(KEYCTL_GET_KEYRING_ID, THREAD, 0));
	T(K(KEYCTL_GET_KEYRING_ID, PROCESS, 0));
	MADE(K(KEYCTL_GET_KEYRING_ID, THREAD, 1));
	long t = key;
	D(THREAD);
	IS(K(KEYCTL_GET_KEYRING_ID, THREAD, 0), t);
	MADE(K(KEYCTL_GET_KEYRING_ID, PROCESS, 1));
	long p = key;
	Y(t != p);
	D(PROCESS);
	D(SESSION);
	D(USERS);
	D(USERS_SESSION);
	L(t);
	L(p);
	T(K(KEYCTL_READ, USERS_SESSION, NULL, 0));
	int in[1];
	T(K(KEYCTL_READ, USERS_SESSION, in, 4));
	IS(K(KEYCTL_GET_KEYRING_ID, USERS, 0), in[0]);
	T(K(KEYCTL_GET_KEYRING_ID, -6, 1));
	T(K(KEYCTL_GET_KEYRING_ID, -7, 1));
	T(K(KEYCTL_GET_KEYRING_ID, -8, 1));
	T(K(KEYCTL_GET_KEYRING_ID, -9, 1));
	T(K(KEYCTL_GET_KEYRING_ID, 0, 1));
	/* Thread before process before session. */
	MADE(ADD("user", "same", "s", 1, SESSION));
	long s = key;
	IS(REQUEST("user", "same", NULL, 0), s);
	MADE(ADD("user", "same", "p", 1, PROCESS));
	IS(REQUEST("user", "same", NULL, 0), key);
	MADE(ADD("user", "same", "t", 1, THREAD));
	IS(REQUEST("user", "same", NULL, 0), key);
	T(K(KEYCTL_REVOKE, THREAD));
	T(K(KEYCTL_GET_KEYRING_ID, THREAD, 0));
	T(K(KEYCTL_GET_KEYRING_ID, THREAD, 1));
	T(ADD("user", "same", "t", 1, THREAD));
}

static void sessions(void)
{
	MADE(K(KEYCTL_JOIN_SESSION_KEYRING, NULL));
	long a = key;
	MADE(K(KEYCTL_JOIN_SESSION_KEYRING, NULL));
	Y(a != key);
	T(K(KEYCTL_JOIN_SESSION_KEYRING, ""));
	T(K(KEYCTL_JOIN_SESSION_KEYRING, ".a"));
	T(K(KEYCTL_JOIN_SESSION_KEYRING, 8));
	MADE(K(KEYCTL_JOIN_SESSION_KEYRING, "check-session"));
	long named = key;
	D(SESSION);
	MADE(K(KEYCTL_JOIN_SESSION_KEYRING, "check-session"));
	Y(key != named);
	named = key;
	/* With search permission it is joined. */
	T(K(KEYCTL_SETPERM, SESSION, 0x3f1b0000));
	T(K(KEYCTL_JOIN_SESSION_KEYRING, "check-session"));
	int st = CHILD(K(KEYCTL_JOIN_SESSION_KEYRING, NULL); _exit(K(KEYCTL_JOIN_SESSION_KEYRING, "check-session") == named));
	T(st);
	T(K(KEYCTL_REVOKE, SESSION));
	T(K(KEYCTL_GET_KEYRING_ID, SESSION, 0));
	T(CHILD(_exit(K(KEYCTL_JOIN_SESSION_KEYRING, "check-session") > 0)));
	MADE(K(KEYCTL_JOIN_SESSION_KEYRING, NULL));
}

static void links(void)
{
	session();
	MADE(ADD("keyring", "a", NULL, 0, SESSION));
	long a = key;
	MADE(ADD("keyring", "b", NULL, 0, SESSION));
	long b = key;
	MADE(ADD("user", "u", "x", 1, a));
	long u = key;
	T(K(KEYCTL_LINK, u, b));
	T(K(KEYCTL_LINK, u, b));
	L(u);
	L(b);
	T(K(KEYCTL_LINK, u, u));
	T(K(KEYCTL_LINK, 1, b));
	T(K(KEYCTL_LINK, u, 1));
	T(K(KEYCTL_LINK, a, a));
	T(K(KEYCTL_LINK, a, b));
	T(K(KEYCTL_LINK, b, a));
	T(K(KEYCTL_LINK, SESSION, a));
	T(K(KEYCTL_UNLINK, a, b));
	T(K(KEYCTL_UNLINK, a, b));
	T(K(KEYCTL_UNLINK, u, u));
	T(K(KEYCTL_UNLINK, 1, b));
	T(K(KEYCTL_UNLINK, u, a));
	T(K(KEYCTL_READ, u, NULL, 0));
	/* The last one. */
	T(K(KEYCTL_UNLINK, u, b));
	ms(50);
	D(u);
	MADE(ADD("user", "m", "x", 1, a));
	u = key;
	T(K(KEYCTL_MOVE, u, a, b, 0));
	T(K(KEYCTL_MOVE, u, a, b, 0));
	T(K(KEYCTL_MOVE, u, b, b, 0));
	T(K(KEYCTL_MOVE, u, b, a, 2));
	MADE(ADD("user", "m", "y", 1, a));
	T(K(KEYCTL_MOVE, u, b, a, KEYCTL_MOVE_EXCL));
	T(K(KEYCTL_MOVE, u, b, a, 0));
	ms(50);
	D(key);
	T(K(KEYCTL_READ, a, NULL, 0));
	T(K(KEYCTL_MOVE, a, SESSION, b, 0));
	T(K(KEYCTL_MOVE, b, SESSION, a, 0));
	T(K(KEYCTL_CLEAR, b));
	ms(50);
	D(a);
	T(K(KEYCTL_CLEAR, b));
	T(K(KEYCTL_CLEAR, u));
	MADE(ADD("user", "c", "x", 1, b));
	T(K(KEYCTL_CLEAR, key));
	IS(K(KEYCTL_SEARCH, SESSION, "user", "c", b), key);
	IS(K(KEYCTL_SEARCH, SESSION, "user", "c", SESSION), key);
	T(K(KEYCTL_READ, SESSION, NULL, 0));
	IS(REQUEST("user", "c", NULL, THREAD), key);
	T(K(KEYCTL_READ, THREAD, NULL, 0));
	IS(K(KEYCTL_SEARCH, SESSION, "keyring", "b", 0), b);
	IS(K(KEYCTL_SEARCH, b, "keyring", "b", 0), b);
}

/* How deep they may be. */
static void depth(void)
{
	session();
	long r[12] = { K(KEYCTL_GET_KEYRING_ID, SESSION, 0) };
	int made = 0;
	for (int i = 1; i < 12; i++) {
		char n[10];
		sprintf(n, "r%d", i);
		r[i] = ADD("keyring", n, NULL, 0, r[i - 1]);
		if (r[i] < 0) {
			say("stops", "%d %s", i, strerrorname_np(errno));
			break;
		}
		made = i;
	}
	T(made);
	for (int i = made; i > 0; i--) {
		MADE(ADD("user", "deep", "x", 1, r[i]));
		T(K(KEYCTL_SEARCH, SESSION, "user", "deep", 0) > 0);
		K(KEYCTL_UNLINK, key, r[i]);
	}
	for (int i = 1; i < made; i++)
		T(K(KEYCTL_LINK, r[i], PROCESS));
	MADE(ADD("keyring", "top", NULL, 0, THREAD));
	long top = key;
	for (int i = 1; i <= made; i++)
		T(K(KEYCTL_LINK, r[i], top));
	for (int i = 1; i <= made; i++)
		T(K(KEYCTL_LINK, top, r[i]));
}

static void permissions(void)
{
	session();
	MADE(ADD("user", "p", "x", 1, SESSION));
	T(K(KEYCTL_SETPERM, key, 0x40000000));
	T(K(KEYCTL_SETPERM, key, 0x3f3f3f3f));
	D(key);
	unsigned one[] = { 0x01, 0x02, 0x04, 0x08, 0x10, 0x20 };
	for (int i = 0; i < 6; i++) {
		MADE(ADD("user", "p", "x", 1, SESSION));
		T(K(KEYCTL_SETPERM, key, one[i] << 24));
		say("right", "%x", one[i]);
		T(K(KEYCTL_DESCRIBE, key, NULL, 0));
		T(K(KEYCTL_READ, key, NULL, 0));
		T(K(KEYCTL_UPDATE, key, "y", 1));
		T(K(KEYCTL_SEARCH, SESSION, "user", "p", 0) > 0);
		T(REQUEST("user", "p", NULL, 0) > 0);
		T(K(KEYCTL_LINK, key, PROCESS));
		T(K(KEYCTL_SET_TIMEOUT, key, 0));
		T(ADD("user", "p", "z", 1, SESSION) > 0);
		T(K(KEYCTL_REVOKE, key));
		T(K(KEYCTL_UNLINK, key, SESSION));
		K(KEYCTL_CLEAR, PROCESS);
	}
	MADE(ADD("keyring", "pr", NULL, 0, SESSION));
	long ring = key;
	MADE(ADD("user", "in", "x", 1, ring));
	T(K(KEYCTL_SETPERM, ring, 0x37000000));
	/* It may not be searched: nothing in it is possessed. */
	T(REQUEST("user", "in", NULL, 0));
	T(K(KEYCTL_READ, key, NULL, 0));
	T(K(KEYCTL_SEARCH, ring, "user", "in", 0));
	D(key);
	T(K(KEYCTL_READ, ring, NULL, 0));
	T(K(KEYCTL_SETPERM, ring, 0x3b000000));
	T(ADD("user", "in2", "x", 1, ring));
	T(K(KEYCTL_UNLINK, key, ring));
	T(K(KEYCTL_CLEAR, ring));
	L(ring);
	T(K(KEYCTL_SETPERM, ring, 0));
	T(K(KEYCTL_DESCRIBE, ring, NULL, 0));
	L(ring);
	T(K(KEYCTL_SETPERM, ring, 0x3f000000));
	T(K(KEYCTL_UNLINK, ring, SESSION));
}

static void owners(void)
{
	session();
	MADE(ADD("user", "o", "x", 1, SESSION));
	long k = key;
	T(K(KEYCTL_CHOWN, k, -1, -1));
	T(K(KEYCTL_CHOWN, 1, -1, -1));
	T(K(KEYCTL_CHOWN, k, getuid(), getgid()));
	T(K(KEYCTL_CHOWN, 1, 0, 0));
	T(CHILD(
		setresgid(1000, 1000, 1000); setresuid(1000, 1000, 1000);
		_exit(K(KEYCTL_CHOWN, k, 1000, -1) ? errno : 0)));
	T(K(KEYCTL_CHOWN, k, 1000, 1001));
	D(k);
	T(K(KEYCTL_SETPERM, k, 0x3f3f0000));
	/* As its owner, in its group, as another: what may be, possessed or not. */
	unsigned perms[] = { 0x00030000, 0x00000300, 0x00000003, 0x00010203, 0x01000002 };
	for (int i = 0; i < 5; i++) {
		K(KEYCTL_SETPERM, k, perms[i] | 0x20000000);
		say("permissions", "%x", perms[i]);
		for (int uid = 1000; uid < 1002; uid++)
			for (int gid = 1000; gid < 1003; gid++) {
				int r = CHILD(
					gid_t more = 1001;
					K(KEYCTL_JOIN_SESSION_KEYRING, NULL);
					setgroups(gid == 1002, &more);
					setresgid(gid, gid, gid); setresuid(uid, uid, uid);
					_exit((K(KEYCTL_DESCRIBE, k, NULL, 0) > 0) | (K(KEYCTL_READ, k, NULL, 0) > 0) << 1));
				say("sees", "%d %d: %d", uid, gid, r);
			}
	}
	T(K(KEYCTL_CHOWN, k, 0, 0));
	D(k);
}

static void ends(void)
{
	session();
	MADE(ADD("user", "e", "xyz", 3, SESSION));
	long k = key;
	T(K(KEYCTL_SET_TIMEOUT, k, 100));
	L(k);
	T(K(KEYCTL_SET_TIMEOUT, k, 0));
	L(k);
	T(K(KEYCTL_SET_TIMEOUT, k, 3 * 3600 + 100));
	L(k);
	T(K(KEYCTL_UPDATE, k, "x", 1));
	L(k);
	T(K(KEYCTL_SET_TIMEOUT, k, 40 * 24 * 3600));
	L(k);
	T(K(KEYCTL_SET_TIMEOUT, k, 1));
	ms(1100);
	D(k);
	L(k);
	T(K(KEYCTL_READ, k, NULL, 0));
	T(K(KEYCTL_UPDATE, k, "x", 1));
	T(K(KEYCTL_LINK, k, PROCESS));
	T(K(KEYCTL_SEARCH, SESSION, "user", "e", 0));
	T(REQUEST("user", "e", NULL, 0));
	T(K(KEYCTL_SET_TIMEOUT, k, 100));
	T(K(KEYCTL_REVOKE, k));
	IS(ADD("user", "e", "new", 3, SESSION), k);
	D(k);
	T(K(KEYCTL_REVOKE, k));
	D(k);
	L(k);
	T(K(KEYCTL_READ, k, NULL, 0));
	T(K(KEYCTL_REVOKE, k));
	T(K(KEYCTL_SEARCH, SESSION, "user", "e", 0));
	T(REQUEST("user", "e", NULL, 0));
	MADE(ADD("user", "e", "new", 3, SESSION));
	Y(key != k);
	T(K(KEYCTL_INVALIDATE, key));
	ms(50);
	D(key);
	T(K(KEYCTL_SEARCH, SESSION, "user", "e", 0));
	T(K(KEYCTL_READ, SESSION, NULL, 0));
	MADE(ADD("keyring", "er", NULL, 0, SESSION));
	long r = key;
	MADE(ADD("user", "e", "x", 1, r));
	T(K(KEYCTL_REVOKE, r));
	L(r);
	ms(50);
	D(key);
	T(ADD("user", "e", "x", 1, r));
	T(K(KEYCTL_LINK, SESSION, r));
	T(K(KEYCTL_UNLINK, r, SESSION));
	T(K(KEYCTL_INVALIDATE, 1));
	T(K(KEYCTL_INVALIDATE, SESSION));
	ms(50);
	T(K(KEYCTL_GET_KEYRING_ID, SESSION, 0));
	T(K(KEYCTL_READ, SESSION, NULL, 0));
	MADE(K(KEYCTL_JOIN_SESSION_KEYRING, NULL));
}

/* No program makes keys like these. */
static void requests(void)
{
	session();
	T(K(KEYCTL_SET_REQKEY_KEYRING, -1));
	T(K(KEYCTL_SET_REQKEY_KEYRING, 6));
	T(K(KEYCTL_SET_REQKEY_KEYRING, 8));
	T(K(KEYCTL_SET_REQKEY_KEYRING, -2));
	T(K(KEYCTL_GET_KEYRING_ID, THREAD, 0));
	T(K(KEYCTL_SET_REQKEY_KEYRING, 1));
	T(K(KEYCTL_GET_KEYRING_ID, THREAD, 0) > 0);
	T(K(KEYCTL_SET_REQKEY_KEYRING, 3));
	T(K(KEYCTL_SET_REQKEY_KEYRING, -1));
	/* ENOENT where the program is missing, else it finds nothing. */
	T(REQUEST("user", "rq", "callout", 0) == -1 && (errno == ENOKEY || errno == ENOENT));
	T(REQUEST("user", "rq", "callout", 0));
	T(REQUEST("user", "rq", NULL, 0));
	T(K(KEYCTL_SEARCH, SESSION, "user", "rq", 0));
	int list[2];
	T(K(KEYCTL_READ, SESSION, list, 8));
	D(list[0]);
	T(K(KEYCTL_READ, list[0], NULL, 0));
	T(K(KEYCTL_LINK, list[0], PROCESS));
	IS(ADD("user", "rq", "x", 1, SESSION), list[0]);
	IS(REQUEST("user", "rq", NULL, 0), list[0]);
	L(list[0]);
	T(REQUEST("keyring", "rq", "callout", 0));
	T(REQUEST("user", "rq2", "callout", PROCESS) == -1 && (errno == ENOKEY || errno == ENOENT));
	T(K(KEYCTL_READ, PROCESS, NULL, 0));
	T(CHILD(_exit(K(KEYCTL_SET_REQKEY_KEYRING, -1))));
}

static void *in_thread(void *p)
{
	long *w = p;
	w[0] = K(KEYCTL_GET_KEYRING_ID, THREAD, 0);
	w[1] = K(KEYCTL_GET_KEYRING_ID, PROCESS, 0);
	w[2] = K(KEYCTL_GET_KEYRING_ID, SESSION, 0);
	w[3] = REQUEST("user", "mine", NULL, 0);
	return NULL;
}

static void threads(void)
{
	session();
	pthread_t t;
	long w[4], p, s = K(KEYCTL_GET_KEYRING_ID, SESSION, 0);
	pthread_create(&t, NULL, in_thread, w);
	pthread_join(t, NULL);
	Y(w[0] == -1 && w[1] == -1 && w[2] == s);
	long own = K(KEYCTL_GET_KEYRING_ID, THREAD, 1);
	p = K(KEYCTL_GET_KEYRING_ID, PROCESS, 1);
	MADE(ADD("user", "mine", "x", 1, THREAD));
	pthread_create(&t, NULL, in_thread, w);
	pthread_join(t, NULL);
	Y(w[0] > 0);
	Y(w[0] != own);
	Y(w[1] == p);
	Y(w[2] == s);
	T(w[3]);
	T(CHILD(_exit(K(KEYCTL_GET_KEYRING_ID, THREAD, 0) == -1 && errno == ENOKEY)));
	T(CHILD(_exit(K(KEYCTL_GET_KEYRING_ID, PROCESS, 0) == -1 && errno == ENOKEY)));
	T(CHILD(_exit(K(KEYCTL_GET_KEYRING_ID, SESSION, 0) == s)));
	T(CHILD(_exit(REQUEST("user", "mine", NULL, 0) == -1 && errno == ENOKEY)));
}

/* execve keeps the session. */
static void programs(void)
{
	session();
	if (K(KEYCTL_GET_KEYRING_ID, SESSION, 0) < 0)
		say("no", "session");
	ADD("user", "for:program", "x", 1, SESSION);
	/* The possessor alone sees these. */
	K(KEYCTL_SETPERM, ADD("user", "for:process", "x", 1, PROCESS), 0x3f000000);
	K(KEYCTL_SETPERM, ADD("user", "for:thread", "x", 1, THREAD), 0x3f000000);
	K(KEYCTL_SETPERM, ADD("user", "for:session", "x", 1, SESSION), 0x3f000000);
	for (int i = 0; i < 2; i++)
		T(CHILD(
			if (i) {
				K(KEYCTL_SETPERM, ADD("user", "for:thread", "x", 1, THREAD), 0x3f000000);
				K(KEYCTL_SETPERM, ADD("user", "for:process", "x", 1, PROCESS), 0x3f000000);
			}
			execl("/bin/sh", "sh", "-c", "grep -c 'for:program\\|for:process\\|for:thread\\|for:session' /proc/keys; exit 3", NULL)));
}

static void users(void)
{
	session();
	K(KEYCTL_GET_KEYRING_ID, THREAD, 1);
	D(THREAD);
	setresgid(1001, 1001, 1001);
	D(THREAD);
	setresuid(1000, 1000, 1000);
	D(THREAD);
	D(USERS);
	D(USERS_SESSION);
	D(SESSION);
	MADE(ADD("user", "u", "x", 1, SESSION));
	D(key);
	MADE(ADD("user", "u", "x", 1, USERS));
	IS(REQUEST("user", "u", NULL, USERS_SESSION) > 0, 1);
	/* The user's own are found by way of his session. */
	MADE(ADD("user", "uu", "x", 1, USERS));
	T(REQUEST("user", "uu", NULL, 0));
	T(K(KEYCTL_LINK, USERS, SESSION));
	IS(REQUEST("user", "uu", NULL, 0), key);
	T(K(KEYCTL_CHOWN, key, 0, -1));
	T(K(KEYCTL_CLEAR, USERS));
	T(K(KEYCTL_JOIN_SESSION_KEYRING, NULL) > 0);
	MADE(ADD("user", "c", "x", 1, SESSION));
	T(K(KEYCTL_CHOWN, key, 1001, -1));
	T(K(KEYCTL_CHOWN, key, -1, 1002));
	T(K(KEYCTL_CHOWN, key, 1000, 1001));
}

static void quota(void)
{
	session();
	setresgid(1234, 1234, 1234);
	setresuid(1234, 1234, 1234);
	char *big = calloc(1, 32767), name[20];
	session();
	MADE(ADD("user", "a", big, 15000, SESSION));
	T(ADD("user", "b", big, 15000, SESSION));
	T(ADD("user", "a", big, 25000, SESSION));
	T(K(KEYCTL_READ, key, NULL, 0));
	T(ADD("user", "a", big, 15001, SESSION) == key);
	T(K(KEYCTL_REVOKE, key));
	MADE(ADD("user", "b", big, 15000, SESSION));
	T(K(KEYCTL_CLEAR, SESSION));
	ms(100);
	int n = 0;
	for (; n < 400; n++) {
		sprintf(name, "n%d", n);
		errno = 0;
		if (ADD("user", name, "x", 1, SESSION) < 0)
			break;
	}
	/* What the user already had depends on who else ran. */
	Y(n > 150 && n < 200);
	T(errno);
	T(ADD("keyring", "r", NULL, 0, SESSION));
	T(K(KEYCTL_JOIN_SESSION_KEYRING, NULL) > 0);
}

static void restricted(void)
{
	session();
	MADE(ADD("keyring", "r", NULL, 0, SESSION));
	long r = key;
	MADE(ADD("user", "u", "x", 1, r));
	long u = key;
	T(K(KEYCTL_RESTRICT_KEYRING, u, NULL, NULL));
	T(K(KEYCTL_RESTRICT_KEYRING, r, "user", NULL));
	T(K(KEYCTL_RESTRICT_KEYRING, r, NULL, "x"));
	T(K(KEYCTL_RESTRICT_KEYRING, r, "user", "x"));
	T(K(KEYCTL_RESTRICT_KEYRING, r, "nosuch", "x"));
	T(K(KEYCTL_RESTRICT_KEYRING, 1, NULL, NULL));
	T(K(KEYCTL_RESTRICT_KEYRING, r, NULL, NULL));
	T(K(KEYCTL_RESTRICT_KEYRING, r, NULL, NULL));
	T(ADD("user", "v", "x", 1, r));
	T(ADD("user", "u", "y", 1, r));
	T(K(KEYCTL_UPDATE, u, "y", 1));
	T(K(KEYCTL_LINK, SESSION, r));
	MADE(ADD("user", "w", "x", 1, SESSION));
	T(K(KEYCTL_LINK, key, r));
	T(K(KEYCTL_MOVE, key, SESSION, r, 0));
	T(K(KEYCTL_UNLINK, u, r));
	T(K(KEYCTL_READ, r, NULL, 0));
}

static void to_parent(void)
{
	session();
	long before = K(KEYCTL_GET_KEYRING_ID, SESSION, 0);
	T(CHILD(_exit(K(KEYCTL_SESSION_TO_PARENT) ? errno : 0)));
	IS(K(KEYCTL_GET_KEYRING_ID, SESSION, 0), before);
	T(CHILD(
		session(); ADD("user", "from:child", "x", 1, SESSION);
		_exit(K(KEYCTL_SESSION_TO_PARENT) ? errno : 0)));
	IS(K(KEYCTL_GET_KEYRING_ID, SESSION, 0), before);
	T(REQUEST("user", "from:child", NULL, 0) > 0);
	T(CHILD(
		setresuid(1000, 1000, 1000);
		session(); _exit(K(KEYCTL_SESSION_TO_PARENT) ? errno : 0)));
}

static void persistent(void)
{
	session();
	MADE(K(KEYCTL_GET_PERSISTENT, -1, SESSION));
	D(key);
	L(key);
	IS(K(KEYCTL_GET_PERSISTENT, 0, SESSION), key);
	T(K(KEYCTL_READ, SESSION, NULL, 0));
	T(K(KEYCTL_GET_PERSISTENT, -1, 0));
	T(K(KEYCTL_GET_PERSISTENT, -1, key) > 0);
	MADE(ADD("user", "k", "x", 1, SESSION));
	T(K(KEYCTL_GET_PERSISTENT, -1, key));
	MADE(K(KEYCTL_GET_PERSISTENT, 1000, SESSION));
	D(key);
	setresuid(1000, 1000, 1000);
	T(K(KEYCTL_GET_PERSISTENT, 0, SESSION));
	T(K(KEYCTL_GET_PERSISTENT, 1001, SESSION));
	T(K(KEYCTL_GET_PERSISTENT, -1, SESSION) > 0);
}

static void namespaces(void)
{
	session();
	T(K(KEYCTL_JOIN_SESSION_KEYRING, "check-ns") > 0);
	T(K(KEYCTL_SETPERM, SESSION, 0x3f3f3f3f));
	long s = K(KEYCTL_GET_KEYRING_ID, SESSION, 0);
	MADE(ADD("user", "n", "x", 1, SESSION));
	K(KEYCTL_SETPERM, key, 0x3f3f3f3f);
	T(unshare(CLONE_NEWUSER));
	IS(K(KEYCTL_GET_KEYRING_ID, SESSION, 0), s);
	D(key);
	L(key);
	T(K(KEYCTL_READ, key, NULL, 0));
	D(USERS);
	T(K(KEYCTL_CHOWN, key, 5, -1));
	put("/proc/self/setgroups", "deny");
	put("/proc/self/uid_map", "7 0 1");
	put("/proc/self/gid_map", "8 0 1");
	D(key);
	L(key);
	D(USERS);
	T(K(KEYCTL_CHOWN, key, 7, 8));
	T(K(KEYCTL_JOIN_SESSION_KEYRING, "check-ns") > 0);
	Y(K(KEYCTL_GET_KEYRING_ID, SESSION, 0) != s);
	D(SESSION);
}

static void settings(void)
{
	const char *list[] = { "maxkeys", "maxbytes", "root_maxkeys", "root_maxbytes", "gc_delay", "persistent_keyring_expiry" };
	for (int i = 0; i < 6; i++) {
		char p[80], b[20] = "";
		struct stat s = { 0 };
		sprintf(p, "/proc/sys/kernel/keys/%s", list[i]);
		int fd = open(p, O_RDONLY), n = read(fd, b, 19);
		fstat(fd, &s);
		close(fd);
		b[n > 0 ? n - 1 : 0] = 0;
		say(list[i], "%s %o", b, s.st_mode);
	}
	setresgid(4321, 4321, 4321);
	setresuid(4321, 4321, 4321);
	T(write_text("/proc/sys/kernel/keys/maxkeys", "5\n"));
	session();
	ADD("user", "a", "12345", 5, SESSION);
	char l[200];
	FILE *f = fopen("/proc/key-users", "r");
	while (fgets(l, sizeof l, f)) {
		int uid, use, keys, made, counted, bytes, maxk, maxb;
		if (sscanf(l, "%d: %d %d/%d %d/%d %d/%d", &uid, &use, &keys, &made, &counted, &maxk, &bytes, &maxb) == 8 && uid == 4321)
			say("4321", "%d %d %d %d %d %d", keys, made, counted, maxk, bytes, maxb);
	}
}

/* Threads and processes that do what they like with the same keyrings. */
static volatile int over;
static void *does_anything(void *p)
{
	unsigned x = (unsigned)(long)p;
	int ring[] = { THREAD, PROCESS, SESSION, USERS, USERS_SESSION }, known[16] = { 0 };
	char name[16];
	while (!over) {
		int *k = &known[rand_r(&x) % 16], r = rand_r(&x) % 3 ? ring[rand_r(&x) % 5] : known[rand_r(&x) % 16];
		sprintf(name, "any:%d", rand_r(&x) % 20);
		switch (rand_r(&x) % 16) {
		case 0: case 1: *k = ADD("user", name, name, 5, r); break;
		case 2: case 3: *k = ADD("keyring", name, NULL, 0, r); break;
		case 4: K(KEYCTL_LINK, *k, r); break;
		case 5: K(KEYCTL_UNLINK, *k, r); break;
		case 6: K(KEYCTL_MOVE, *k, r, ring[rand_r(&x) % 5], 0); break;
		case 7: K(KEYCTL_REVOKE, *k); break;
		case 8: K(KEYCTL_INVALIDATE, *k); break;
		case 9: K(KEYCTL_SEARCH, r, "user", name, 0); break;
		case 10: K(KEYCTL_CLEAR, r); break;
		case 11: K(KEYCTL_JOIN_SESSION_KEYRING, rand_r(&x) % 2 ? NULL : name); break;
		case 12: K(KEYCTL_SET_TIMEOUT, *k, rand_r(&x) % 2); break;
		case 13: K(KEYCTL_SETPERM, *k, 0x3f3f0000 | rand_r(&x) & 0x3f3f); break;
		case 14: *k = REQUEST("user", name, rand_r(&x) % 9 ? NULL : "x", 0); break;
		case 15: if (fork() == 0) { K(KEYCTL_SESSION_TO_PARENT); _exit(0); } while (waitpid(-1, NULL, WNOHANG) > 0) {} break;
		}
	}
	return NULL;
}

static void storm(void)
{
	setresgid(2345, 2345, 2345);
	setresuid(2345, 2345, 2345);
	session();
	for (int i = 0; i < 3; i++)
		if (fork() == 0) {
			pthread_t t[3];
			for (long j = 0; j < 3; j++)
				pthread_create(&t[j], NULL, does_anything, (void *)(i * 3 + j + 1));
			ms(1500);
			over = 1;
			for (int j = 0; j < 3; j++)
				pthread_join(t[j], NULL);
			_exit(0);
		}
	while (wait(NULL) > 0) {}
	K(KEYCTL_CLEAR, USERS);
	K(KEYCTL_CLEAR, USERS_SESSION);
	say("storm", "over");
}

static const struct check list[] = {
	CHECK(makes), CHECK(refuses), CHECK(special), CHECK(sessions), CHECK(links), CHECK(depth), CHECK(permissions), CHECK(owners),
	CHECK(ends), CHECK(requests), CHECK(threads), CHECK(programs), CHECK(users), CHECK(quota), CHECK(restricted), CHECK(to_parent),
	CHECK(persistent), CHECK(storm), CHECK(namespaces), CHECK(settings),
};
MAIN(list)
