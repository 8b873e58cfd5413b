/* fanotify(7): groups, marks, events, permissions. */
#define AREA "fanotify"
#include "check.h"
#include <sys/fanotify.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/sendfile.h>
#include <sys/statfs.h>
#include <sys/xattr.h>

#ifndef FAN_REPORT_TARGET_FID
#define FAN_REPORT_TARGET_FID 0x1000
#endif
#ifndef FAN_REPORT_PIDFD
#define FAN_REPORT_PIDFD 0x80
#endif
#ifndef FAN_MARK_EVICTABLE
#define FAN_MARK_EVICTABLE 0x200
#endif
#ifndef FAN_MARK_IGNORE
#define FAN_MARK_IGNORE 0x400
#endif
#ifndef FAN_REPORT_FD_ERROR
#define FAN_REPORT_FD_ERROR 0x2000
#endif
#ifndef FAN_RENAME
#define FAN_RENAME 0x10000000
#endif
#define DFID_NAME (FAN_REPORT_DIR_FID | FAN_REPORT_NAME)
#define ALL_FID (FAN_REPORT_FID | DFID_NAME)

static int init(unsigned flags, unsigned event_flags) { return syscall(SYS_fanotify_init, flags, event_flags); }
static int mark(int g, unsigned flags, uint64_t mask, const char *path)
{
	return syscall(SYS_fanotify_mark, g, flags, mask, AT_FDCWD, path);
}

static const struct { uint64_t bit; const char *name; } names[] = {
	{ FAN_ACCESS, "access" }, { FAN_MODIFY, "modify" }, { FAN_ATTRIB, "attrib" },
	{ FAN_CLOSE_WRITE, "close-write" }, { FAN_CLOSE_NOWRITE, "close" }, { FAN_OPEN, "open" },
	{ FAN_MOVED_FROM, "from" }, { FAN_MOVED_TO, "to" }, { FAN_CREATE, "create" }, { FAN_DELETE, "delete" },
	{ FAN_DELETE_SELF, "delete-self" }, { FAN_MOVE_SELF, "move-self" }, { FAN_OPEN_EXEC, "exec" },
	{ FAN_Q_OVERFLOW, "overflow" }, { FAN_OPEN_PERM, "open?" }, { FAN_ACCESS_PERM, "access?" },
	{ FAN_OPEN_EXEC_PERM, "exec?" }, { FAN_RENAME, "rename" }, { FAN_ONDIR, "dir" },
};
static char *text(char *at, uint64_t mask)
{
	char *start = at;
	*at = 0;
	for (size_t i = 0; i < sizeof names / sizeof *names; i++)
		if (mask & names[i].bit)
			at += sprintf(at, "%s%s", at == start ? "" : "+", names[i].name);
	return start;
}

/* What a handle is of. */
struct known { const char *name; int kind; unsigned char bytes[64]; unsigned len; };
static struct known known[16];
static int knows;
static void know(const char *path)
{
	struct { struct file_handle h; unsigned char b[128]; } f = { { .handle_bytes = 128 } };
	int id;
	if (name_to_handle_at(AT_FDCWD, path, &f.h, &id, 0x200)) {
		say("know", "failed: %s", strerrorname_np(errno));
		return;
	}
	struct known *k = &known[knows++ % 16];
	k->name = path;
	k->kind = f.h.handle_type;
	k->len = f.h.handle_bytes;
	memcpy(k->bytes, f.h.f_handle, k->len);
}
static const char *whose(const struct file_handle *h)
{
	for (int i = knows > 16 ? 16 : knows; i--;)
		if (known[i].len == h->handle_bytes && known[i].kind == h->handle_type &&
		    !memcmp(known[i].bytes, h->f_handle, h->handle_bytes))
			return known[i].name;
	return "?";
}
static uint64_t fsid_of(const char *path)
{
	struct statfs s;
	uint64_t n = 0;
	statfs(path, &s);
	memcpy(&n, &s.f_fsid, 8);
	return n;
}

/* Reads what there is, and says it in one line. */
static char said[1900];
static void events(const char *what, int g, const char *fs)
{
	static char buf[65536] __attribute__((aligned(8)));
	char *out = said;
	*out = 0;
	fcntl(g, F_SETFL, O_NONBLOCK);
	for (;;) {
		ssize_t n = read(g, buf, sizeof buf);
		if (n <= 0)
			break;
		for (char *p = buf; p < buf + n;) {
			struct fanotify_event_metadata *m = (void *)p;
			char t[200], place[PATH_MAX], fdname[64];
			out += sprintf(out, "[%s", text(t, m->mask));
			if (m->vers != 3 || m->reserved || m->metadata_len != 24)
				out += sprintf(out, " head %d %d %d", m->vers, m->reserved, m->metadata_len);
			out += sprintf(out, " %s", m->pid == getpid() ? "own" : m->pid == 0 ? "nobody" : m->pid == gettid() ? "thread" : "other");
			if (m->fd >= 0) {
				sprintf(fdname, "/proc/self/fd/%d", m->fd);
				ssize_t l = readlink(fdname, place, sizeof place - 1);
				place[l < 0 ? 0 : l] = 0;
				out += sprintf(out, " %s", strrchr(place, '/') ? strrchr(place, '/') + 1 : place);
				close(m->fd);
			} else if (m->fd != -1)
				out += sprintf(out, " fd %d", m->fd);
			for (char *r = p + m->metadata_len; r < p + m->event_len;) {
				struct fanotify_event_info_header *h = (void *)r;
				if (!h->len)
					break;
				if (h->info_type == 4) {
					int fd = *(int *)(r + 4);
					char one[64], line[64] = "";
					sprintf(one, "/proc/self/fdinfo/%d", fd);
					FILE *f = fopen(one, "r");
					int pid = -7;
					while (f && fgets(line, sizeof line, f))
						sscanf(line, "Pid: %d", &pid);
					if (f)
						fclose(f);
					out += sprintf(out, " pidfd:%s", fd < 0 ? "none" : pid == getpid() ? "own" : "other");
					close(fd);
				} else {
					struct fanotify_event_info_fid *i = (void *)r;
					struct file_handle *fh = (void *)i->handle;
					char *name = (char *)fh->f_handle + fh->handle_bytes;
					uint64_t id;
					memcpy(&id, &i->fsid, 8);
					out += sprintf(out, " %d:%s", h->info_type, whose(fh));
					if (name < r + h->len && h->info_type != 1 && h->info_type != 3)
						out += sprintf(out, "/%s", name);
					if (fs && id != fsid_of(fs))
						out += sprintf(out, " other fs");
				}
				r += h->len;
			}
			out += sprintf(out, "]");
			p += m->event_len;
			if (out > said + 1500)
				break;
		}
	}
	say(what, "%s", said);
}
static int make(const char *name)
{
	int fd = open(name, O_CREAT | O_EXCL | O_WRONLY, 0644);
	return fd < 0 ? -1 : close(fd);
}
static void add(const char *name)
{
	int fd = open(name, O_WRONLY | O_APPEND);
	write(fd, "x", 1);
	close(fd);
}
static void look(const char *name)
{
	char b[8];
	int fd = open(name, O_RDONLY);
	read(fd, b, sizeof b);
	close(fd);
}
static void list(const char *name)
{
	DIR *d = opendir(name);
	while (d && readdir(d)) {}
	if (d)
		closedir(d);
}

static void inits(void)
{
	static const unsigned flags[] = {
		0, 1, 2, 4, 8, 0xc, 0x10, 0x20, 0x40, 0x80, 0x100, 0x180, 0x200, 0x400, 0x600, 0x800, 0xc00, 0xe00,
		0x1000, 0x1200, 0x1c00, 0x1e00, 0x204, 0x208, 0x404, 0x280, 0x2000, 0x2200, 0x8000, 0x10000, 1u << 31,
	};
	char what[40];
	for (size_t i = 0; i < sizeof flags / sizeof *flags; i++) {
		sprintf(what, "init %#x", flags[i]);
		int fd = init(flags[i], 0), e = errno;
		report(what, fd < 0 ? -1 : 0, e);
		if (fd >= 0)
			close(fd);
	}
	static const unsigned modes[] = { 0, 1, 2, 3, O_APPEND, O_NONBLOCK, O_CLOEXEC, O_LARGEFILE, O_NOATIME, O_SYNC,
					  O_DSYNC, O_CREAT, O_TRUNC, O_DIRECT, O_PATH, O_DIRECTORY, O_NOFOLLOW };
	for (size_t i = 0; i < sizeof modes / sizeof *modes; i++) {
		sprintf(what, "mode %#x", modes[i]);
		int fd = init(0, modes[i]), e = errno;
		report(what, fd < 0 ? -1 : 0, e);
		if (fd >= 0)
			close(fd);
	}
	int g = init(3, 0);
	T(fcntl(g, F_GETFD));
	T(fcntl(g, F_GETFL) & ~O_LARGEFILE);
	char b[32];
	T(read(g, b, 24));
	T(read(g, b, 3));
	T(pread(g, b, 24, 0));
	T(lseek(g, 5, SEEK_SET));
	int n = 7;
	T(ioctl(g, FIONREAD, &n));
	T(n);
	T(ioctl(g, TCGETS, b));
	struct pollfd p = { g, POLLIN | POLLOUT, 0 };
	T(poll(&p, 1, 0));
	T(mmap(NULL, 4096, PROT_READ, MAP_SHARED, g, 0) == MAP_FAILED ? errno : 0);
	ssize_t l = readlink("/proc/self/fd/3", b, sizeof b);
	S(b, l);
	T(fcntl(g, F_SETFL, O_ASYNC));
	T(fcntl(g, F_GETFL) & ~O_LARGEFILE);
}

static void marks(void)
{
	int g = init(0, 0), c = init(4, 0), pre = init(8, 0), f = init(FAN_REPORT_FID, 0), n = init(ALL_FID, 0);
	int t = init(ALL_FID | FAN_REPORT_TARGET_FID, 0), d = init(FAN_REPORT_DIR_FID, 0);
	put("f", "text");
	mkdir("d", 0755);
	symlink("f", "l");
	symlink("none", "dangling");
	T(mark(g, 0, FAN_OPEN, "f"));
	T(mark(g, 1, 0, "f"));
	T(mark(g, 2, 0, "f"));
	T(mark(g, 3, FAN_OPEN, "f"));
	T(mark(g, 0x81, FAN_OPEN, "f"));
	T(mark(g, 0x80, 0, "f"));
	T(mark(g, 0x80, FAN_OPEN, NULL));
	T(mark(g, 0x84, 0, NULL));
	T(mark(g, 0x90, 0, NULL));
	T(mark(g, 0x180, 0, NULL));
	T(mark(g, 0x880, 0, NULL));
	T(mark(g, 1 | 0x800, FAN_OPEN, "f"));
	T(mark(g, 1 | 0x110, FAN_OPEN, "f"));
	T(mark(g, 1, 1ULL << 32, "f"));
	T(mark(g, 1, 0x2000, "f"));
	T(mark(g, 1, FAN_Q_OVERFLOW, "f"));
	T(mark(g, 1, 0x8000, "f"));
	T(mark(n, 1, 0x8000, "f"));
	T(mark(g, 1, 0x100000, "f"));
	T(mark(c, 1, 0x100000, "f"));
	T(mark(g, 1, FAN_OPEN_PERM, "f"));
	T(mark(c, 1, FAN_OPEN_PERM, "f"));
	T(mark(pre, 1, FAN_ACCESS_PERM | FAN_OPEN_EXEC_PERM, "f"));
	T(mark(c, 1, FAN_OPEN_PERM, "/proc/self/status"));
	T(mark(g, 1, FAN_OPEN, "/proc/self/status"));
	T(mark(g, 1, FAN_CREATE, "d"));
	T(mark(g, 1, FAN_ATTRIB, "f"));
	T(mark(f, 1, FAN_CREATE, "d"));
	T(mark(f, 1, FAN_CREATE, "f"));
	T(mark(t, 1, FAN_CREATE, "f"));
	T(mark(t, 1, FAN_OPEN | FAN_ONDIR, "f"));
	T(mark(t, 1, FAN_OPEN | FAN_EVENT_ON_CHILD, "f"));
	T(mark(t, 1, FAN_OPEN, "f"));
	T(mark(f, 1, FAN_RENAME, "d"));
	T(mark(d, 1, FAN_RENAME, "d"));
	T(mark(n, 1, FAN_RENAME, "d"));
	T(mark(n, 1, FAN_RENAME, "f"));
	T(mark(f, 1 | FAN_MARK_MOUNT, FAN_CREATE, "."));
	T(mark(f, 1 | FAN_MARK_MOUNT, FAN_ATTRIB, "."));
	T(mark(g, 1 | FAN_MARK_MOUNT, FAN_OPEN, "."));
	T(mark(g, 2 | FAN_MARK_MOUNT, FAN_OPEN, "."));
	T(mark(g, 1 | FAN_MARK_FILESYSTEM, FAN_OPEN, "."));
	T(mark(g, 2 | FAN_MARK_FILESYSTEM, FAN_OPEN, "."));
	T(mark(g, 2 | FAN_MARK_FILESYSTEM, FAN_OPEN, "."));
	T(mark(g, 1 | FAN_MARK_FILESYSTEM, FAN_CREATE, "."));
	T(mark(g, 2, FAN_OPEN, "f"));
	T(mark(g, 1, FAN_OPEN, "f"));
	T(mark(g, 2, FAN_OPEN, "f"));
	T(mark(g, 2, FAN_OPEN, "f"));
	T(mark(g, 1, FAN_OPEN, "none"));
	T(mark(g, 1, FAN_OPEN, "dangling"));
	T(mark(g, 1 | FAN_MARK_DONT_FOLLOW, FAN_OPEN, "dangling"));
	T(mark(g, 1 | FAN_MARK_ONLYDIR, FAN_OPEN, "f"));
	T(mark(g, 1 | FAN_MARK_ONLYDIR, FAN_OPEN, "l"));
	T(mark(g, 1 | FAN_MARK_ONLYDIR, FAN_OPEN, "d"));
	T(mark(g, 1, FAN_OPEN, ""));
	T(mark(g, 1, FAN_OPEN, (char *)8));
	T(mark(-1, 1, FAN_OPEN, "f"));
	T(mark(0, 1, FAN_OPEN, "f"));
	T(mark(-1, 1, 0, "f"));
	T(mark(-1, 1, 0x2000, "f"));
	/* (Nobody would answer.) */
	close(c);
	close(pre);
	int fd = open("f", O_RDONLY), dir = open("d", O_RDONLY), path = open("f", O_PATH), p[2];
	pipe(p);
	T(syscall(SYS_fanotify_mark, g, 1, (uint64_t)FAN_OPEN, fd, NULL));
	T(syscall(SYS_fanotify_mark, g, 1, (uint64_t)FAN_OPEN, dir, NULL));
	T(syscall(SYS_fanotify_mark, g, 1 | FAN_MARK_ONLYDIR, (uint64_t)FAN_OPEN, fd, NULL));
	T(syscall(SYS_fanotify_mark, g, 1, (uint64_t)FAN_OPEN, path, NULL));
	T(syscall(SYS_fanotify_mark, g, 1, (uint64_t)FAN_OPEN, AT_FDCWD, NULL));
	T(syscall(SYS_fanotify_mark, g, 1, (uint64_t)FAN_OPEN, -1, NULL));
	T(syscall(SYS_fanotify_mark, g, 1, (uint64_t)FAN_OPEN, dir, "none"));
	T(syscall(SYS_fanotify_mark, g, 1, (uint64_t)FAN_OPEN, fd, "x"));
	T(syscall(SYS_fanotify_mark, g, 1 | FAN_MARK_MOUNT, (uint64_t)FAN_OPEN, p[0], NULL));
	T(mark(g, 1 | FAN_MARK_EVICTABLE, FAN_OPEN, "d"));
	T(mark(g, 1 | FAN_MARK_EVICTABLE | FAN_MARK_MOUNT, FAN_OPEN, "d"));
	mkdir("e", 0755);
	T(mark(g, 1 | FAN_MARK_EVICTABLE, FAN_OPEN, "e"));
	T(mark(g, 1 | FAN_MARK_EVICTABLE, FAN_ACCESS, "e"));
	T(mark(g, 1, FAN_ACCESS, "e"));
	T(mark(g, 1 | FAN_MARK_EVICTABLE, FAN_ACCESS, "e"));
	T(mark(g, 1 | FAN_MARK_IGNORED_MASK | FAN_MARK_IGNORE, FAN_OPEN, "f"));
	T(mark(g, 1 | FAN_MARK_IGNORED_MASK, FAN_OPEN, "f"));
	T(mark(g, 1 | FAN_MARK_IGNORED_MASK, FAN_ONDIR, "f"));
	T(mark(g, 1 | FAN_MARK_IGNORE, FAN_OPEN, "f"));
	T(mark(g, 1 | FAN_MARK_IGNORED_MASK, FAN_OPEN, "f"));
	T(mark(g, 1 | FAN_MARK_IGNORE, FAN_OPEN, "d"));
	T(mark(g, 1 | FAN_MARK_IGNORE, FAN_OPEN | FAN_ONDIR, "f"));
	T(mark(g, 1 | FAN_MARK_IGNORE | FAN_MARK_IGNORED_SURV_MODIFY, FAN_OPEN, "d"));
	T(mark(g, 1 | FAN_MARK_IGNORE | FAN_MARK_IGNORED_SURV_MODIFY, FAN_OPEN, "f"));
	T(mark(g, 1 | FAN_MARK_IGNORE, FAN_OPEN, "f"));
	T(mark(g, 1 | FAN_MARK_IGNORE | FAN_MARK_MOUNT, FAN_OPEN, "f"));
	T(mark(g, 1 | FAN_MARK_IGNORED_MASK | FAN_MARK_MOUNT, FAN_OPEN, "f"));
	T(mark(g, 2 | FAN_MARK_IGNORED_MASK | FAN_MARK_MOUNT, FAN_OPEN, "f"));
	chmod("f", 0);
	T(CHILD(drop_root(); _exit(mark(g, 1, FAN_OPEN, "f") ? errno : 0)));
	T(CHILD(drop_root(); _exit(mark(g, 1, FAN_OPEN, "d") ? errno : 0)));
	T(CHILD(drop_root(); _exit(mark(g, 1 | FAN_MARK_MOUNT, FAN_OPEN, "d") ? errno : 0)));
	char line[64] = "";
	FILE *i = fopen("/proc/self/fdinfo/3", "r");
	int shown = 0;
	while (fgets(line, sizeof line, i)) {
		shown += !strncmp(line, "fanotify ino:", 13);
		if (!strncmp(line, "fanotify flags:", 15))
			S(line, strlen(line));
	}
	T(shown);
}

static void by_fd(void)
{
	int g = init(0, O_RDONLY);
	put("f", "text");
	mkdir("d", 0755);
	put("d/x", "text");
	uint64_t all = FAN_OPEN | FAN_ACCESS | FAN_MODIFY | FAN_CLOSE | FAN_OPEN_EXEC;
	T(mark(g, 1, all, "f"));
	look("f");
	events("look", g, NULL);
	add("f");
	events("add", g, NULL);
	truncate("f", 2);
	events("truncate", g, NULL);
	int fd = open("f", O_RDWR);
	events("open", g, NULL);
	ftruncate(fd, 1);
	events("ftruncate", g, NULL);
	fallocate(fd, 0, 0, 10);
	events("fallocate", g, NULL);
	char b[8];
	pread(fd, b, 1, 1000);
	events("the end", g, NULL);
	read(fd, b, 1);
	events("read", g, NULL);
	pwrite(fd, "x", 1, 0);
	events("pwrite", g, NULL);
	pwrite(fd, "x", 0, 0);
	events("nothing", g, NULL);
	fchmod(fd, 0600);
	events("chmod", g, NULL);
	int to = open("other", O_CREAT | O_RDWR, 0600);
	lseek(fd, 0, SEEK_SET);
	sendfile(to, fd, NULL, 4);
	events("sendfile", g, NULL);
	loff_t from = 0, at = 0;
	copy_file_range(to, &from, fd, &at, 2, 0);
	events("copy_file_range", g, NULL);
	void *m = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	*(volatile char *)m = 'x';
	munmap(m, 4096);
	events("mapped", g, NULL);
	int du = dup(fd);
	close(fd);
	events("a copy stays", g, NULL);
	close(du);
	events("closed", g, NULL);
	int path = open("f", O_PATH);
	close(path);
	events("a place", g, NULL);
	stat("f", (struct stat *)said);
	rename("f", "g");
	events("renamed", g, NULL);
	look("g");
	events("look again", g, NULL);
	link("g", "h");
	look("h");
	events("by the link", g, NULL);
	unlink("g");
	unlink("h");
	events("unlinked", g, NULL);
	/* Directories. */
	T(mark(g, 1, all, "d"));
	list("d");
	look("d/x");
	events("not asked for", g, NULL);
	T(mark(g, 1, FAN_ONDIR, "d"));
	list("d");
	events("a directory", g, NULL);
	look("d/x");
	events("not its files", g, NULL);
	T(mark(g, 1, FAN_EVENT_ON_CHILD, "d"));
	look("d/x");
	events("its files", g, NULL);
	mkdir("d/sub", 0755);
	list("d/sub");
	events("its directories", g, NULL);
	T(mark(g, 2, FAN_ONDIR, "d"));
	list("d/sub");
	list("d");
	look("d/x");
	events("files alone", g, NULL);
	rename("d/x", "x");
	look("x");
	events("moved away", g, NULL);
	rename("x", "d/y");
	add("d/y");
	events("moved there", g, NULL);
	fd = open("d/y", O_RDONLY);
	unlink("d/y");
	read(fd, b, 1);
	close(fd);
	events("unlinked", g, NULL);
	symlink("y", "d/s");
	mkfifo("d/p", 0600);
	fd = open("d/p", O_RDWR);
	write(fd, "x", 1);
	read(fd, b, 1);
	close(fd);
	events("a FIFO", g, NULL);
	T(mark(g, 0x80, 0, NULL));
	make("d/z");
	events("flushed", g, NULL);
}

static void merging(void)
{
	int g = init(2, 0);
	put("f", "text");
	put("g", "text");
	T(mark(g, 1, FAN_OPEN | FAN_CLOSE | FAN_ACCESS, "f"));
	T(mark(g, 1, FAN_OPEN | FAN_CLOSE | FAN_ACCESS, "g"));
	look("f");
	look("f");
	look("g");
	look("f");
	int n;
	T(ioctl(g, FIONREAD, &n));
	T(n);
	struct pollfd p = { g, POLLIN | POLLOUT | POLLRDNORM, 0 };
	T(poll(&p, 1, 0));
	T(p.revents);
	char b[100];
	T(read(g, b, 23));
	T(read(g, b, 24));
	events("rest", g, NULL);
	T(CHILD(look("f"); _exit(0)));
	look("f");
	T(CHILD(look("f"); _exit(0)));
	events("processes", g, NULL);
	look("f");
	look("g");
	T(read(g, b, 100));
	T(read(g, b, 100));
	look("f");
	T(read(g, (char *)8, 100));
	T(read(g, b, 100));
}

static void ignoring(void)
{
	int g = init(2, 0);
	put("f", "text");
	mkdir("d", 0755);
	put("d/x", "text");
	put("d/y", "text");
	T(mark(g, 1, FAN_OPEN | FAN_ACCESS | FAN_EVENT_ON_CHILD, "d"));
	T(mark(g, 1 | FAN_MARK_IGNORED_MASK, FAN_OPEN, "d/x"));
	look("d/x");
	look("d/y");
	events("one of its files", g, NULL);
	add("d/x");
	look("d/x");
	events("after a change", g, NULL);
	T(mark(g, 1 | FAN_MARK_IGNORED_MASK | FAN_MARK_IGNORED_SURV_MODIFY, FAN_OPEN, "d/x"));
	add("d/x");
	look("d/x");
	events("that survives", g, NULL);
	int fd = open("d/y", O_WRONLY);
	events("an open", g, NULL);
	T(mark(g, 1 | FAN_MARK_IGNORED_MASK, FAN_OPEN, "d/y"));
	close(fd);
	look("d/y");
	events("while it was written", g, NULL);
	T(mark(g, 2 | FAN_MARK_IGNORED_MASK, FAN_OPEN, "d/x"));
	look("d/x");
	events("taken back", g, NULL);
	T(mark(g, 1 | FAN_MARK_IGNORED_MASK | FAN_MARK_IGNORED_SURV_MODIFY, FAN_ACCESS, "d"));
	look("d/x");
	list("d");
	events("of the directory", g, NULL);
	/* With flags. */
	int h = init(2, 0);
	T(mark(h, 1, FAN_OPEN | FAN_ONDIR | FAN_EVENT_ON_CHILD, "d"));
	T(mark(h, 1 | FAN_MARK_IGNORE | FAN_MARK_IGNORED_SURV_MODIFY, FAN_OPEN, "d"));
	list("d");
	look("d/x");
	events("neither", h, NULL);
	T(mark(h, 1 | FAN_MARK_IGNORE | FAN_MARK_IGNORED_SURV_MODIFY, FAN_ONDIR, "d"));
	list("d");
	look("d/x");
	events("directories", h, NULL);
	T(mark(h, 1 | FAN_MARK_IGNORE | FAN_MARK_IGNORED_SURV_MODIFY, FAN_EVENT_ON_CHILD, "d"));
	list("d");
	look("d/x");
	events("and files", h, NULL);
	/* By the mount. */
	int m = init(2, 0);
	T(mark(m, 1 | FAN_MARK_MOUNT, FAN_OPEN, "."));
	T(mark(m, 1 | FAN_MARK_IGNORED_MASK, FAN_OPEN, "f"));
	look("f");
	look("d/x");
	events("the mount", m, NULL);
	close(m);
}

static void by_handle(const char *what, unsigned flags)
{
	current = what;
	knows = 0;
	mkdir(what, 0755);
	chdir(what);
	put("f", "text");
	mkdir("d", 0755);
	put("d/x", "text");
	mkdir("e", 0755);
	int g = init(flags | 2, 0);
	know(".");
	know("f");
	know("d");
	know("e");
	know("d/x");
	uint64_t all = FAN_OPEN | FAN_ACCESS | FAN_MODIFY | FAN_CLOSE | FAN_ATTRIB | FAN_CREATE | FAN_DELETE |
		       FAN_MOVE | FAN_DELETE_SELF | FAN_MOVE_SELF | FAN_ONDIR | FAN_EVENT_ON_CHILD;
	T(mark(g, 1, all, "."));
	T(mark(g, 1, all, "d"));
	look("f");
	events("look", g, ".");
	add("f");
	events("add", g, ".");
	truncate("f", 2);
	chmod("f", 0600);
	events("change", g, ".");
	list(".");
	events("list", g, ".");
	list("d");
	events("list d", g, ".");
	list("e");
	events("list e", g, ".");
	chmod("d", 0700);
	chmod("e", 0700);
	chmod(".", 0755);
	events("chmod", g, ".");
	make("new");
	events("make", g, ".");
	mkdir("dir", 0700);
	rmdir("dir");
	events("mkdir, rmdir", g, ".");
	symlink("f", "s");
	mkfifo("p", 0600);
	unlink("s");
	unlink("p");
	events("symlink, mkfifo", g, ".");
	rename("f", "g");
	events("rename", g, ".");
	rename("g", "d/g");
	events("rename away", g, ".");
	rename("d/x", "e/x");
	events("rename out", g, ".");
	rename("e/x", "d/x");
	events("rename in", g, ".");
	rename("e", "d/e");
	events("rename a directory", g, ".");
	rename("d/g", "new");
	events("rename over", g, ".");
	link("new", "hard");
	unlink("hard");
	events("link, unlink", g, ".");
	rename("d/e", "e");
	rename("d", "e/d");
	events("rename itself", g, ".");
	unlink("e/d/x");
	events("unlink", g, ".");
	rmdir("e/d");
	events("rmdir", g, ".");
	/* One file. */
	int one = init(flags | 2, 0);
	put("one", "text");
	know("one");
	T(mark(one, 1, FAN_OPEN | FAN_ATTRIB | FAN_DELETE_SELF | FAN_MOVE_SELF, "one"));
	look("one");
	chmod("one", 0600);
	rename("one", "two");
	look("two");
	unlink("two");
	events("one file", one, ".");
	close(g);
	close(one);
	chdir("..");
}
static void fid(void) { by_handle("fid", FAN_REPORT_FID); }
static void dir_fid(void) { by_handle("dir_fid", FAN_REPORT_DIR_FID); }
static void both_fids(void) { by_handle("both_fids", FAN_REPORT_FID | FAN_REPORT_DIR_FID); }
static void dfid_name(void) { by_handle("dfid_name", DFID_NAME); }
static void all_fids(void) { by_handle("all_fids", ALL_FID); }
static void target(void) { by_handle("target", ALL_FID | FAN_REPORT_TARGET_FID); }

static void renames(void)
{
	int g = init(DFID_NAME | 2, 0), h = init(ALL_FID | FAN_REPORT_TARGET_FID | 2, 0), b = init(DFID_NAME | 2, 0);
	mkdir("a", 0755);
	mkdir("b", 0755);
	mkdir("c", 0755);
	put("a/f", "text");
	know("a");
	know("b");
	know("c");
	know("a/f");
	T(mark(g, 1, FAN_RENAME | FAN_ONDIR, "a"));
	T(mark(h, 1, FAN_RENAME, "a"));
	T(mark(h, 1, FAN_RENAME, "b"));
	T(mark(b, 1, FAN_RENAME, "b"));
	rename("a/f", "a/g");
	events("within", g, ".");
	events("within, child", h, ".");
	rename("a/g", "b/h");
	events("from", g, ".");
	events("from, to, child", h, ".");
	events("to", b, ".");
	rename("b/h", "c/i");
	events("from the other", h, ".");
	rename("c/i", "a/j");
	events("to the first", g, ".");
	events("to, child", h, ".");
	mkdir("a/d", 0755);
	rename("a/d", "c/d");
	events("a directory", g, ".");
	events("not asked for", h, ".");
}

static void wide(void)
{
	/* A file system of its own. */
	T(CHILD(if (unshare(CLONE_NEWNS) || mkdir("m", 0755) || mount("t", "m", "tmpfs", 0, NULL)) _exit(9); _exit(0)));
	if (unshare(CLONE_NEWNS))
		return;
	mount(NULL, "/", NULL, 0x44000, NULL);
	mkdir("m", 0755);
	mkdir("bind", 0755);
	T(mount("t", "m", "tmpfs", 0, NULL));
	put("m/f", "text");
	mkdir("m/d", 0755);
	put("m/d/x", "text");
	T(mount("m/d", "bind", NULL, 4096, NULL));
	int s = init(2, 0), m = init(2, 0), f = init(ALL_FID | 2, 0), i = init(FAN_REPORT_FID | 2, 0);
	know("m");
	know("m/f");
	know("m/d");
	know("m/d/x");
	uint64_t some = FAN_OPEN | FAN_ACCESS | FAN_MODIFY;
	uint64_t all = some | FAN_CREATE | FAN_DELETE | FAN_MOVE | FAN_DELETE_SELF | FAN_ATTRIB;
	T(mark(s, 1 | FAN_MARK_FILESYSTEM, some | FAN_ONDIR, "m/d"));
	T(mark(m, 1 | FAN_MARK_MOUNT, some, "bind"));
	T(mark(f, 1 | FAN_MARK_FILESYSTEM, all | FAN_ONDIR, "m/f"));
	T(mark(i, 1 | FAN_MARK_FILESYSTEM, all, "m/f"));
	look("m/f");
	look("m/d/x");
	list("m/d");
	events("the file system", s, NULL);
	events("the mount", m, NULL);
	events("by handles", f, "m");
	events("by fid", i, "m");
	look("bind/x");
	events("the file system", s, NULL);
	events("the mount", m, NULL);
	events("by handles", f, "m");
	truncate("bind/x", 1);
	make("m/new");
	rename("m/new", "m/d/newer");
	unlink("bind/newer");
	mkdir("m/e", 0755);
	rmdir("m/e");
	events("the file system", s, NULL);
	events("the mount", m, NULL);
	events("by handles", f, "m");
	events("by fid", i, "m");
	T(mark(f, 1 | FAN_MARK_IGNORE | FAN_MARK_IGNORED_SURV_MODIFY, FAN_OPEN | FAN_EVENT_ON_CHILD, "m/d"));
	look("m/d/x");
	events("but its files", f, "m");
	umount("bind");
	T(mark(m, 0x90, 0, NULL));
	close(s);
	close(m);
	close(f);
	close(i);
	T(umount("m"));
}

static void programs(void)
{
	int in = open("/proc/self/exe", O_RDONLY), out = open("prog", O_CREAT | O_WRONLY, 0755);
	static char buf[1 << 20];
	for (ssize_t n; (n = read(in, buf, sizeof buf)) > 0;)
		write(out, buf, n);
	close(out);
	close(in);
	int g = init(2, 0);
	T(mark(g, 1, FAN_OPEN_EXEC, "prog"));
	look("prog");
	events("an open", g, NULL);
	CHILD(close(1); close(2); execl("./prog", "prog", "nothing.of.that.name", NULL); _exit(99));
	events("run", g, NULL);
	T(mark(g, 1, FAN_OPEN | FAN_CLOSE, "prog"));
	CHILD(close(1); close(2); execl("./prog", "prog", "nothing.of.that.name", NULL); _exit(99));
	events("run, with opens", g, NULL);
	put("script", "#!/bin/true\n");
	chmod("script", 0755);
	T(mark(g, 1, FAN_OPEN_EXEC, "script"));
	T(CHILD(execl("./script", "script", NULL); _exit(99)));
	events("a script", g, NULL);
}

/* Answers questions in a child: allows or denies by turns of `answers`. */
static pid_t judge(int g, const char *answers)
{
	pid_t p = fork();
	if (p)
		return p;
	char b[4096] __attribute__((aligned(8)));
	for (; *answers;) {
		ssize_t n = read(g, b, sizeof b);
		if (n <= 0)
			_exit(1);
		for (char *at = b; at < b + n;) {
			struct fanotify_event_metadata *m = (void *)at;
			if (m->mask & (FAN_OPEN_PERM | FAN_ACCESS_PERM | FAN_OPEN_EXEC_PERM)) {
				struct fanotify_response r = { m->fd, *answers == 'y' ? FAN_ALLOW : FAN_DENY };
				if (*answers == 'e')
					r.response |= EBUSY << 24;
				write(g, &r, sizeof r);
				answers += *answers != 0;
			}
			if (m->fd >= 0)
				close(m->fd);
			at += m->event_len;
		}
	}
	_exit(0);
}
static int opens(const char *name, int flags)
{
	int fd = open(name, flags);
	if (fd >= 0)
		close(fd);
	return fd < 0 ? -1 : 0;
}

static void permission(void)
{
	int g = init(FAN_CLASS_CONTENT, O_RDONLY), st;
	put("f", "text");
	mkdir("d", 0755);
	put("d/x", "text");
	int before = open("f", O_RDONLY);
	T(mark(g, 1, FAN_OPEN_PERM | FAN_ACCESS_PERM, "f"));
	pid_t p = judge(g, "nyyn");
	T(opens("f", O_RDONLY));
	T(opens("f", O_RDWR));
	int fd = open("f", O_RDONLY);
	Y(fd >= 0);
	char b[8];
	T(read(fd, b, 4));
	waitpid(p, &st, 0);
	T(st);
	p = judge(g, "yn");
	T(pread(fd, b, 2, 0));
	T(read(fd, b, 2));
	waitpid(p, &st, 0);
	/* Opened before anybody could forbid. */
	T(read(before, b, 2));
	T(write(fd, "x", 1));
	p = judge(g, "yny");
	T(opens("f", O_RDONLY | O_PATH));
	T(opens("f", O_WRONLY | O_TRUNC));
	struct stat s;
	stat("f", &s);
	T(s.st_size);
	put("g", "gg");
	T(opens("f", O_WRONLY | O_TRUNC));
	stat("f", &s);
	T(s.st_size);
	T(opens("f", O_RDONLY));
	waitpid(p, &st, 0);
	T(mark(g, 0x80, 0, NULL));
	T(opens("f", O_RDONLY));
	/* Directories. */
	T(mark(g, 1, FAN_OPEN_PERM | FAN_ACCESS_PERM | FAN_ONDIR | FAN_EVENT_ON_CHILD, "d"));
	p = judge(g, "nyny");
	T(opens("d/x", O_RDONLY));
	T(opens("d", O_RDONLY) );
	T(opens("d", O_RDONLY | O_DIRECTORY));
	T(opens("d/x", O_WRONLY));
	waitpid(p, &st, 0);
	p = judge(g, "yyyn");
	int d = open("d", O_RDONLY);
	T(syscall(SYS_getdents64, d, said, 1000) > 0);
	T(open("d/new", O_CREAT | O_RDWR, 0600) >= 0);
	T(opens("d/newer", O_CREAT | O_RDWR));
	waitpid(p, &st, 0);
	T(access("d/newer", F_OK));
	close(d);
}

static void programs_asked(void)
{
	int in = open("/proc/self/exe", O_RDONLY), out = open("prog", O_CREAT | O_WRONLY, 0755), st;
	static char buf[1 << 20];
	for (ssize_t n; (n = read(in, buf, sizeof buf)) > 0;)
		write(out, buf, n);
	close(out);
	close(in);
	int g = init(FAN_CLASS_PRE_CONTENT, O_RDONLY);
	T(mark(g, 1, FAN_OPEN_EXEC_PERM, "prog"));
	T(opens("prog", O_RDONLY));
	pid_t p = judge(g, "nye");
	T(CHILD(close(1); close(2); execl("./prog", "prog", "nothing.of.that.name", NULL); _exit(errno)));
	T(CHILD(close(1); close(2); execl("./prog", "prog", "nothing.of.that.name", NULL); _exit(errno)) == EPERM);
	T(CHILD(close(1); close(2); execl("./prog", "prog", "nothing.of.that.name", NULL); _exit(errno)));
	waitpid(p, &st, 0);
	T(mark(g, 1, FAN_OPEN_PERM, "prog"));
	p = judge(g, "en");
	T(opens("prog", O_RDONLY));
	T(opens("prog", O_RDONLY));
	waitpid(p, &st, 0);
}

static void answers(void)
{
	int g = init(FAN_CLASS_CONTENT | 2, O_RDONLY), st;
	put("f", "text");
	T(mark(g, 1, FAN_OPEN_PERM, "f"));
	struct fanotify_response r = { -1, FAN_ALLOW };
	T(write(g, &r, sizeof r));
	r.fd = 77;
	T(write(g, &r, sizeof r));
	T(write(g, &r, 7));
	r.response = 0;
	T(write(g, &r, sizeof r));
	r.response = 3;
	T(write(g, &r, sizeof r));
	r.response = FAN_ALLOW | 0x10;
	T(write(g, &r, sizeof r));
	r.response = FAN_DENY | EPERM << 24;
	T(write(g, &r, sizeof r));
	r.response = FAN_ALLOW | 0x100;
	T(write(g, &r, sizeof r));
	struct { struct fanotify_response r; uint8_t type, pad; uint16_t len; uint32_t rule[3]; } a =
		{ { -1, FAN_ALLOW | 0x20 }, 1, 0, 16, { 0 } };
	T(write(g, &a, sizeof a));
	T(write(g, &a, sizeof a - 1));
	a.type = 2;
	T(write(g, &a, sizeof a));
	T(write(g, (char *)8, 8));
	/* A writer that is bigger than an answer. */
	r = (struct fanotify_response){ 77, FAN_ALLOW };
	T(write(g, &a, 8));
	/* Who asked may be killed, but not interrupted. */
	struct pollfd w = { g, POLLIN, 0 };
	pid_t p = fork();
	if (!p) {
		signal(SIGUSR1, (void (*)(int))getpid);
		_exit(opens("f", O_RDONLY) ? errno : 0);
	}
	T(poll(&w, 1, 2000));
	kill(p, SIGUSR1);
	ms(50);
	T(waitpid(p, &st, WNOHANG));
	kill(p, SIGKILL);
	T(waitpid(p, &st, 0) == p);
	T(WTERMSIG(st));
	T(poll(&w, 1, 0));
	/* The same of one that was read. */
	p = fork();
	if (!p)
		_exit(opens("f", O_RDONLY) ? errno : 0);
	T(poll(&w, 1, 2000));
	struct fanotify_event_metadata m;
	T(read(g, &m, sizeof m));
	char t[100];
	say("asked", "%s", text(t, m.mask));
	Y(m.pid == p);
	kill(p, SIGKILL);
	waitpid(p, &st, 0);
	r = (struct fanotify_response){ m.fd, FAN_ALLOW };
	T(write(g, &r, sizeof r));
	T(write(g, &r, sizeof r));
	close(m.fd);
	/* When the group goes, all is allowed. */
	pid_t q[3];
	for (int i = 0; i < 3; i++) {
		q[i] = fork();
		if (!q[i]) {
			close(g);
			_exit(opens("f", O_RDONLY) ? errno : 0);
		}
	}
	for (int i = 0; i < 200; i++, ms(5)) {
		int n = 0;
		ioctl(g, FIONREAD, &n);
		if (n == 72)
			break;
	}
	T(read(g, &m, sizeof m));
	close(g);
	for (int i = 0; i < 3; i++) {
		waitpid(q[i], &st, 0);
		T(st);
	}
	T(opens("f", O_RDONLY));
}

static void order(void)
{
	/* Higher classes are asked first; who is told hears only of what was allowed. */
	int n = init(2, 0), c = init(FAN_CLASS_CONTENT, 0), p = init(FAN_CLASS_PRE_CONTENT, 0), st;
	put("f", "text");
	T(mark(n, 1, FAN_OPEN, "f"));
	T(mark(c, 1, FAN_OPEN_PERM, "f"));
	T(mark(p, 1, FAN_OPEN_PERM, "f"));
	pid_t a = judge(p, "nyy");
	T(opens("f", O_RDONLY));
	events("nothing", n, NULL);
	pid_t b = judge(c, "ny");
	T(opens("f", O_RDONLY));
	events("nothing", n, NULL);
	T(opens("f", O_RDONLY));
	events("told", n, NULL);
	waitpid(a, &st, 0);
	T(st);
	waitpid(b, &st, 0);
	T(st);
}

static void descriptors(void)
{
	put("f", "text");
	static const int flags[] = { O_RDONLY, O_WRONLY, O_RDWR, O_RDONLY | O_CLOEXEC, O_RDWR | O_APPEND, O_RDONLY | O_NONBLOCK };
	for (size_t i = 0; i < sizeof flags / sizeof *flags; i++) {
		int g = init(2, flags[i]);
		struct fanotify_event_metadata m;
		mark(g, 1, FAN_OPEN, "f");
		opens("f", O_RDONLY);
		T(read(g, &m, sizeof m));
		T(fcntl(m.fd, F_GETFL) & ~O_LARGEFILE);
		T(fcntl(m.fd, F_GETFD));
		char b[4];
		T(read(m.fd, b, 4));
		T(write(m.fd, "t", 1));
		close(m.fd);
		events("its use is not told", g, NULL);
		close(g);
	}
	/* No descriptor to be had. */
	int g = init(2, 0);
	mark(g, 1, FAN_OPEN, "f");
	opens("f", O_RDONLY);
	struct rlimit l = { g + 1, 100 };
	setrlimit(RLIMIT_NOFILE, &l);
	struct fanotify_event_metadata m;
	T(read(g, &m, sizeof m));
	T(read(g, &m, sizeof m));
	/* A program that runs cannot be opened for writing. */
	l.rlim_cur = 100;
	setrlimit(RLIMIT_NOFILE, &l);
	int w = init(2, O_RDWR);
	mark(w, 1, FAN_OPEN, "/proc/self/exe");
	opens("/proc/self/exe", O_RDONLY);
	T(read(w, &m, sizeof m));
	T(read(w, &m, sizeof m));
	/* A directory. */
	int d = init(2, O_RDONLY);
	mkdir("d", 0755);
	mark(d, 1, FAN_OPEN | FAN_ONDIR, "d");
	opens("d", O_RDONLY);
	T(read(d, &m, sizeof m));
	char t[100];
	say("mask", "%s", text(t, m.mask));
	struct stat st;
	T(fstat(m.fd, &st));
	T(S_ISDIR(st.st_mode));
}

static void pids(void)
{
	int g = init(FAN_REPORT_PIDFD | 2, 0), t = init(FAN_REPORT_TID | 2, 0), f = init(FAN_REPORT_PIDFD | FAN_REPORT_FID | 2, 0);
	put("f", "text");
	know("f");
	T(mark(g, 1, FAN_OPEN, "f"));
	T(mark(t, 1, FAN_OPEN, "f"));
	T(mark(f, 1, FAN_OPEN, "f"));
	opens("f", O_RDONLY);
	events("own", g, NULL);
	events("own thread", t, NULL);
	events("with fid", f, ".");
	T(CHILD(opens("f", O_RDONLY); _exit(0)));
	events("gone", g, NULL);
	events("its thread", t, NULL);
	pid_t p = fork();
	if (!p) {
		opens("f", O_RDONLY);
		pause();
	}
	struct pollfd w = { g, POLLIN, 0 };
	poll(&w, 1, 2000);
	ms(20);
	events("there", g, NULL);
	kill(p, SIGKILL);
	waitpid(p, NULL, 0);
	struct { struct fanotify_event_metadata m; char i[100]; } e;
	opens("f", O_RDONLY);
	T(read(g, &e, 24));
	T(read(g, &e, 31));
	T(read(g, &e, 32));
}

static void unprivileged(void)
{
	chmod(".", 0777);
	put("f", "text");
	chmod("f", 0666);
	know("f");
	know(".");
	T(CHILD(drop_root();
		T(init(0, 0)); T(init(4, 0)); T(init(FAN_REPORT_FID | 0x10, 0)); T(init(FAN_REPORT_FID | 0x20, 0));
		T(init(FAN_REPORT_FID | FAN_REPORT_TID, 0)); T(init(FAN_REPORT_FID | FAN_REPORT_PIDFD, 0));
		T(init(1u << 31, 0)); T(init(FAN_REPORT_NAME, 0)); T(init(FAN_REPORT_FID | 0x40, 0));
		int g = init(ALL_FID | 2, 0);
		Y(g >= 0);
		T(mark(g, 1, FAN_OPEN | FAN_EVENT_ON_CHILD, "."));
		T(mark(g, 1 | FAN_MARK_MOUNT, FAN_OPEN, "."));
		T(mark(g, 1 | FAN_MARK_FILESYSTEM, FAN_OPEN, "."));
		T(mark(g, 1, FAN_OPEN_PERM, "."));
		look("f");
		events("own", g, ".");
		CHILD(look("f"));
		events("another's", g, ".");
		_exit(0)));
	char text[32] = "";
	int s = open("/proc/sys/fs/fanotify/max_user_groups", O_RDONLY);
	read(s, text, 31);
	S(text, strlen(text));
	s = open("/proc/sys/fs/fanotify/max_queued_events", O_RDONLY);
	memset(text, 0, 32);
	read(s, text, 31);
	S(text, strlen(text));
	T(access("/proc/sys/fs/fanotify/max_user_marks", F_OK));
	T(access("/proc/sys/user/max_fanotify_groups", F_OK));
	T(access("/proc/sys/user/max_fanotify_marks", F_OK));
	T(CHILD(setrlimit(RLIMIT_NOFILE, &(struct rlimit){ 1000, 1000 }); setresuid(54321, 54321, 54321);
		int n = 0; while (init(FAN_REPORT_FID, 0) >= 0) n++; T(n); _exit(errno)));
}

static void overflow(void)
{
	int g = init(FAN_REPORT_FID | FAN_REPORT_DIR_FID | FAN_REPORT_NAME | 2, 0);
	mkdir("d", 0755);
	T(mark(g, 1, FAN_CREATE, "d"));
	char name[32];
	for (int i = 0; i < 16390; i++) {
		sprintf(name, "d/%d", i);
		mknod(name, S_IFREG | 0600, 0);
	}
	int n = 0;
	T(ioctl(g, FIONREAD, &n));
	T(n);
	static char b[1 << 20];
	long all = 0, lost = 0, last = 0;
	for (ssize_t r; (r = read(g, b, sizeof b)) > 0;)
		for (char *p = b; p < b + r; p += ((struct fanotify_event_metadata *)p)->event_len) {
			struct fanotify_event_metadata *m = (void *)p;
			all++;
			last = m->mask & FAN_Q_OVERFLOW;
			if (last) {
				lost++;
				T(m->fd);
				T(m->pid);
				T(m->event_len);
				T(m->mask);
			}
		}
	T(all);
	T(lost);
	T(last);
	mknod("d/again", S_IFREG | 0600, 0);
	T(read(g, b, sizeof b) > 24);
}

static void attributes(void)
{
	int g = init(ALL_FID | 2, 0);
	put("f", "text");
	know("f");
	know(".");
	T(mark(g, 1, FAN_ATTRIB | FAN_MODIFY | FAN_ACCESS | FAN_EVENT_ON_CHILD, "."));
	chmod("f", 0600);
	events("chmod", g, ".");
	chown("f", getuid(), getgid());
	events("chown", g, ".");
	chown("f", -1, -1);
	events("chown nothing", g, ".");
	setxattr("f", "user.x", "y", 1, 0);
	events("setxattr", g, ".");
	removexattr("f", "user.x");
	events("removexattr", g, ".");
	utimensat(AT_FDCWD, "f", NULL, 0);
	events("times", g, ".");
	struct timespec atime[2] = { { 1, 0 }, { 0, UTIME_OMIT } }, mtime[2] = { { 0, UTIME_OMIT }, { 1, 0 } };
	utimensat(AT_FDCWD, "f", atime, 0);
	events("access time", g, ".");
	utimensat(AT_FDCWD, "f", mtime, 0);
	events("time of change", g, ".");
	truncate("f", 1);
	events("truncate", g, ".");
	link("f", "g");
	events("link", g, ".");
	unlink("g");
	events("unlink", g, ".");
}

/* What a reader's Landlock domain denies it, events do not give it. */
static void domain(void)
{
	enum { EXECUTE = 1, WRITE = 2, READ = 4, TRUNCATE = 1 << 14 };
	static const struct { const char *what; uint64_t denied; unsigned flags; } ways[] = {
		{ "nothing denied", EXECUTE, O_RDWR }, { "reading denied", READ, O_RDONLY },
		{ "reading denied, told", READ, O_RDONLY | FAN_REPORT_FD_ERROR << 16 },
		{ "writing denied", WRITE, O_RDWR }, { "writing denied, reads", WRITE, O_RDONLY },
		{ "truncating denied", TRUNCATE, O_RDWR },
	};
	put("f", "text");
	for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
		int g = init(ways[i].flags >> 16 | 2, ways[i].flags & 0xffff);
		mark(g, 1, FAN_OPEN, "f");
		close(open("f", O_RDONLY));
		int p = fork();
		if (!p) {
			uint64_t fs = ways[i].denied;
			int rules = syscall(444, &fs, sizeof fs, 0);
			prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
			if (syscall(446, rules, 0))
				say(ways[i].what, "no domain");
			struct fanotify_event_metadata m = { .fd = -1000 };
			ssize_t n = read(g, &m, sizeof m);
			say(ways[i].what, "%zd %s, %s", n, n < 0 ? strerrorname_np(errno) : "",
			    m.fd >= 0 ? "a file" : strerrorname_np(-m.fd) ? strerrorname_np(-m.fd) : "none");
			say(ways[i].what, "truncate: %d", m.fd >= 0 ? ftruncate(m.fd, 2) : 0);
			fflush(stdout);
			_exit(0);
		}
		waitpid(p, NULL, 0);
		close(g);
	}
}

/* How many marks a group has, by its fdinfo. */
static int marks_of(int g)
{
	char name[64], line[512];
	int n = 0;
	sprintf(name, "/proc/self/fdinfo/%d", g);
	FILE *f = fopen(name, "r");
	while (f && fgets(line, sizeof line, f))
		n += !strncmp(line, "fanotify ino:", 13) || !strncmp(line, "fanotify sdev:", 14) ||
		     !strncmp(line, "fanotify mnt_id:", 16);
	if (f)
		fclose(f);
	return n;
}

/* A file's marks end with its last user, a file system's with its last mount. */
static void ends(void)
{
	if (geteuid() || unshare(CLONE_NEWNS) || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL))
		return;
	char name[64];
	mkdir("m", 0755);
	T(mount("t", "m", "tmpfs", 0, NULL));
	put("m/f", "text");
	know("m/f");
	know("m");
	int file = init(FAN_REPORT_FID | 2, 0), whole = init(FAN_REPORT_FID | 2, 0);
	T(mark(file, 1, FAN_MODIFY | FAN_DELETE_SELF | FAN_ATTRIB, "m/f"));
	T(mark(whole, 0x101, FAN_DELETE_SELF | FAN_ONDIR, "m"));
	int fd = open("m/f", O_RDWR);
	unlink("m/f");
	events("unlink while it is open", file, "m");
	events("unlink, of the whole", whole, "m");
	write(fd, "x", 1);
	events("write", file, "m");
	T(marks_of(file));
	close(fd);
	events("close", file, "m");
	events("close, of the whole", whole, "m");
	T(marks_of(file));
	/* A mark of one that has no name; by two names. */
	put("m/f", "text");
	know("m/f");
	fd = open("m/f", O_RDWR);
	unlink("m/f");
	sprintf(name, "/proc/self/fd/%d", fd);
	T(mark(file, 1, FAN_DELETE_SELF, name));
	close(fd);
	events("a late mark", file, "m");
	events("a late mark, of the whole", whole, "m");
	put("m/f", "text");
	know("m/f");
	link("m/f", "m/g");
	T(mark(file, 1, FAN_DELETE_SELF, "m/f"));
	unlink("m/f");
	events("one of two names", file, "m");
	unlink("m/g");
	events("both names", file, "m");
	events("both names, of the whole", whole, "m");
	put("m/f", "text");
	know("m/f");
	unlink("m/f");
	mkdir("m/d", 0755);
	know("m/d");
	rmdir("m/d");
	events("unlink, rmdir, of the whole", whole, "m");
	/* The last mount. */
	put("m/f", "text");
	T(mark(file, 1, FAN_MODIFY, "m/f"));
	T(mark(file, 0x101, FAN_MODIFY, "m"));
	T(marks_of(file));
	T(marks_of(whole));
	T(umount("m"));
	T(marks_of(file));
	T(marks_of(whole));
	events("umount", file, NULL);
	T(mark(file, 2, FAN_MODIFY, "m"));
	T(mark(file, 0x102, FAN_MODIFY, "m"));
	T(mark(file, 0x12, FAN_MODIFY, "m"));
}

static const struct check all[] = {
	CHECK(inits), CHECK(marks), CHECK(by_fd), CHECK(merging), CHECK(ignoring), CHECK(fid), CHECK(dir_fid),
	CHECK(both_fids), CHECK(dfid_name), CHECK(all_fids), CHECK(target), CHECK(renames), CHECK(wide), CHECK(programs),
	CHECK(permission), CHECK(programs_asked), CHECK(answers), CHECK(order), CHECK(descriptors), CHECK(pids),
	CHECK(unprivileged), CHECK(overflow), CHECK(attributes), CHECK(domain), CHECK(ends),
};
MAIN(all)
