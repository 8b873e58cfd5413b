/* FUSE (fuse(4)): a file system that a program inside serves to others, spoken as the protocol lies on the wire. */
#define AREA "fuse"
#include "check.h"
#include <linux/fuse.h>
#include <sys/mount.h>
#include <sys/sendfile.h>
#include <sys/statfs.h>
#include <sys/sysmacros.h>
#include <sys/xattr.h>

/* What the server and who asks share. */
static struct shared {
	volatile int count[64];		/* requests */
	volatile int fail[64];		/* errors to answer with */
	volatile int hang[64];		/* never answers */
	volatile int slow[64];		/* ms */
	struct fuse_in_header last[64];
	char body[64][512];
	volatile double entry_valid, attr_valid;
	volatile unsigned open_flags, init_flags, max_write, minor;
	volatile int bad;		/* a kind of wrong answer to LOOKUP */
	volatile unsigned long long interrupted;
	volatile int die, releases, forgets, max_file;
} *sh;

#define NODES 64
#define SIZE (1 << 20)
static struct node {
	unsigned mode, uid, gid, nlink, rdev;
	unsigned long long size, mtime;
	char *data;
	char xname[32], xvalue[64];
	struct { char name[64]; unsigned long long node; } names[40];
} nodes[NODES];
static int fuse_fd, last_node = 1;

static void attr_of(int n, struct fuse_attr *a)
{
	struct node *o = &nodes[n];
	*a = (struct fuse_attr){ .ino = n, .size = o->size, .blocks = (o->size + 511) / 512, .mtime = o->mtime, .atime = 1000, .ctime = 3000, .mode = o->mode,
		.nlink = o->nlink, .uid = o->uid, .gid = o->gid, .rdev = o->rdev, .blksize = 4096 };
}
static void reply(unsigned long long unique, int error, const void *p, size_t n)
{
	static char out[SIZE + 64];
	struct fuse_out_header *h = (void *)out;
	*h = (struct fuse_out_header){ sizeof *h + n, -error, unique };
	memcpy(out + sizeof *h, p, n);
	(void)!write(fuse_fd, out, h->len);
}
static int find(int dir, const char *name)
{
	for (int i = 0; i < 40; i++)
		if (nodes[dir].names[i].node && !strcmp(nodes[dir].names[i].name, name))
			return i;
	return -1;
}
static int add(int dir, const char *name, int node)
{
	for (int i = 0; i < 40; i++)
		if (!nodes[dir].names[i].node) {
			snprintf(nodes[dir].names[i].name, 64, "%s", name);
			nodes[dir].names[i].node = node;
			return 0;
		}
	return ENOSPC;
}
static int make(int dir, const char *name, unsigned mode, const struct fuse_in_header *h)
{
	int n = ++last_node;
	nodes[n] = (struct node){ .mode = mode, .uid = h->uid, .gid = h->gid, .nlink = S_ISDIR(mode) ? 2 : 1, .mtime = 2000, .data = calloc(1, SIZE) };
	add(dir, name, n);
	return n;
}
static void entry_out(int n, struct fuse_entry_out *e)
{
	*e = (struct fuse_entry_out){ .nodeid = n, .generation = 7 };
	e->entry_valid = sh->entry_valid, e->attr_valid = sh->attr_valid;
	e->entry_valid_nsec = (sh->entry_valid - e->entry_valid) * 1e9, e->attr_valid_nsec = (sh->attr_valid - e->attr_valid) * 1e9;
	attr_of(n, &e->attr);
}
static void entry(const struct fuse_in_header *h, int n)
{
	struct fuse_entry_out e;
	entry_out(n, &e);
	if (sh->bad == 1)
		e.nodeid = 1;
	if (sh->bad == 2)
		e.attr.mode &= ~S_IFMT;
	if (sh->bad == 3)
		e.attr.size = 1ULL << 63;
	reply(h->unique, 0, &e, sh->bad == 4 ? sizeof e - 8 : sh->bad == 5 ? sizeof e + 8 : sizeof e);
}
static void attrs(const struct fuse_in_header *h)
{
	struct fuse_attr_out a = { .attr_valid = sh->attr_valid };
	a.attr_valid_nsec = (sh->attr_valid - a.attr_valid) * 1e9;
	attr_of(h->nodeid, &a.attr);
	reply(h->unique, 0, &a, sizeof a);
}

static void answer(const struct fuse_in_header *h, char *b)
{
	struct node *o = &nodes[h->nodeid < NODES ? h->nodeid : 0];
	int i, n, dir;
	switch (h->opcode) {
	case FUSE_INIT: {
		struct fuse_init_in *in = (void *)b;
		struct fuse_init_out out = { .major = sh->bad == 9 ? 6 : 7, .minor = sh->minor, .max_readahead = in->max_readahead, .flags = sh->init_flags & in->flags, .max_write = sh->max_write };
		reply(h->unique, 0, &out, sizeof out);
		return;
	}
	case FUSE_LOOKUP:
		if (!strcmp(b, "dev") && find(1, b) < 0)
			nodes[make(1, b, S_IFCHR | 0666, h)].rdev = makedev(1, 3);
		if (!strcmp(b, "strange") && find(1, b) < 0)
			nodes[make(1, b, S_IFREG | 0666, h)].uid = 5;
		i = find(h->nodeid, b);
		if (i < 0)
			reply(h->unique, ENOENT, 0, 0);
		else
			entry(h, o->names[i].node);
		return;
	case FUSE_GETATTR: attrs(h); return;
	case FUSE_SETATTR: {
		struct fuse_setattr_in *s = (void *)b;
		if (s->valid & FATTR_MODE) o->mode = s->mode;
		if (s->valid & FATTR_UID) o->uid = s->uid;
		if (s->valid & FATTR_GID) o->gid = s->gid;
		if (s->valid & FATTR_MTIME) o->mtime = s->mtime;
		if (s->valid & FATTR_SIZE) {
			if (s->size < o->size)
				memset(o->data + s->size, 0, o->size - s->size);
			o->size = s->size;
		}
		attrs(h);
		return;
	}
	case FUSE_READLINK: reply(h->unique, 0, o->data, o->size); return;
	case FUSE_SYMLINK: {
		char *target = b + strlen(b) + 1;
		n = make(h->nodeid, b, S_IFLNK | 0777, h);
		nodes[n].size = strlen(target), strcpy(nodes[n].data, target);
		entry(h, n);
		return;
	}
	case FUSE_MKNOD: {
		struct fuse_mknod_in *in = (void *)b;
		n = make(h->nodeid, b + sizeof *in, in->mode, h);
		nodes[n].rdev = in->rdev;
		entry(h, n);
		return;
	}
	case FUSE_MKDIR: entry(h, make(h->nodeid, b + sizeof(struct fuse_mkdir_in), S_IFDIR | ((struct fuse_mkdir_in *)b)->mode, h)); return;
	case FUSE_CREATE: {
		struct { struct fuse_entry_out e; struct fuse_open_out o; } out = { .o = { .fh = 77, .open_flags = sh->open_flags } };
		n = make(h->nodeid, b + sizeof(struct fuse_create_in), ((struct fuse_create_in *)b)->mode, h);
		entry_out(n, &out.e);
		reply(h->unique, 0, &out, sizeof out);
		return;
	}
	case FUSE_UNLINK: case FUSE_RMDIR:
		i = find(h->nodeid, b);
		n = i < 0 ? 0 : o->names[i].node;
		for (int k = 0; n && h->opcode == FUSE_RMDIR && k < 40; k++)
			if (nodes[n].names[k].node) {
				reply(h->unique, ENOTEMPTY, 0, 0);
				return;
			}
		if (n)
			o->names[i].node = 0, nodes[n].nlink--;
		reply(h->unique, n ? 0 : ENOENT, 0, 0);
		return;
	case FUSE_RENAME: case FUSE_RENAME2: {
		char *from = b + (h->opcode == FUSE_RENAME ? sizeof(struct fuse_rename_in) : sizeof(struct fuse_rename2_in)), *to = from + strlen(from) + 1;
		unsigned flags = h->opcode == FUSE_RENAME ? 0 : ((struct fuse_rename2_in *)b)->flags;
		dir = *(unsigned long long *)b, i = find(h->nodeid, from);
		int j = find(dir, to);
		if (i < 0 || (flags & 1 && j >= 0)) {
			reply(h->unique, i < 0 ? ENOENT : EEXIST, 0, 0);
			return;
		}
		n = o->names[i].node;
		if (flags & 2 && j >= 0) {
			o->names[i].node = nodes[dir].names[j].node, nodes[dir].names[j].node = n;
		} else {
			if (j >= 0)
				nodes[nodes[dir].names[j].node].nlink--, nodes[dir].names[j].node = 0;
			o->names[i].node = 0, add(dir, to, n);
		}
		reply(h->unique, 0, 0, 0);
		return;
	}
	case FUSE_LINK:
		n = *(unsigned long long *)b;
		nodes[n].nlink++, add(h->nodeid, b + 8, n);
		entry(h, n);
		return;
	case FUSE_OPEN: case FUSE_OPENDIR: {
		struct fuse_open_out out = { .fh = 70 + h->nodeid, .open_flags = h->opcode == FUSE_OPEN ? sh->open_flags : 0 };
		reply(h->unique, 0, &out, sizeof out);
		return;
	}
	case FUSE_READ: {
		struct fuse_read_in *in = (void *)b;
		size_t left = in->offset < o->size ? o->size - in->offset : 0;
		reply(h->unique, 0, o->data + in->offset, left < in->size ? left : in->size);
		return;
	}
	case FUSE_WRITE: {
		struct fuse_write_in *in = (void *)b;
		struct fuse_write_out out = { .size = in->size };
		if (in->offset + in->size > (sh->max_file ? sh->max_file : SIZE)) {
			reply(h->unique, ENOSPC, 0, 0);
			return;
		}
		memcpy(o->data + in->offset, in + 1, in->size);
		if (o->size < in->offset + in->size)
			o->size = in->offset + in->size;
		o->mtime++;
		reply(h->unique, 0, &out, sizeof out);
		return;
	}
	case FUSE_STATFS: {
		struct fuse_statfs_out out = { .st = { .blocks = 1000, .bfree = 600, .bavail = 500, .files = 64, .ffree = 60, .bsize = 4096, .namelen = 255, .frsize = 4096 } };
		reply(h->unique, 0, &out, sizeof out);
		return;
	}
	case FUSE_RELEASE: case FUSE_RELEASEDIR: sh->releases++, reply(h->unique, 0, 0, 0); return;
	case FUSE_SETXATTR: {
		struct fuse_setxattr_in *in = (void *)b;
		char *name = b + 8;
		if ((in->flags & XATTR_CREATE && *o->xname) || (in->flags & XATTR_REPLACE && !*o->xname)) {
			reply(h->unique, in->flags & XATTR_CREATE ? EEXIST : ENODATA, 0, 0);
			return;
		}
		snprintf(o->xname, sizeof o->xname, "%s", name);
		snprintf(o->xvalue, sizeof o->xvalue, "%.*s", in->size, name + strlen(name) + 1);
		reply(h->unique, 0, 0, 0);
		return;
	}
	case FUSE_GETXATTR: case FUSE_LISTXATTR: {
		struct fuse_getxattr_in *in = (void *)b;
		int list = h->opcode == FUSE_LISTXATTR;
		if (!list && (!*o->xname || strcmp(o->xname, (char *)(in + 1)))) {
			reply(h->unique, ENODATA, 0, 0);
			return;
		}
		const char *v = list ? o->xname : o->xvalue;
		size_t len = list ? (*o->xname ? strlen(v) + 1 : 0) : strlen(v);
		struct fuse_getxattr_out out = { .size = len };
		if (in->size && in->size < len)
			reply(h->unique, ERANGE, 0, 0);
		else
			reply(h->unique, 0, in->size ? (void *)v : &out, in->size ? len : sizeof out);
		return;
	}
	case FUSE_REMOVEXATTR:
		reply(h->unique, *o->xname && !strcmp(o->xname, b) ? 0 : ENODATA, 0, 0);
		*o->xname = 0;
		return;
	case FUSE_READDIR: {
		struct fuse_read_in *in = (void *)b;
		char out[4096];
		size_t at = 0;
		for (unsigned long long k = in->offset; k < 42; k++) {
			const char *name = k == 0 ? "." : k == 1 ? ".." : o->names[k - 2].name;
			n = k < 2 ? (int)h->nodeid : (int)o->names[k - 2].node;
			size_t len = FUSE_DIRENT_ALIGN(FUSE_NAME_OFFSET + strlen(name));
			if (!n)
				continue;
			if (at + len > in->size || at + len > sizeof out)
				break;
			struct fuse_dirent *d = (void *)(out + at);
			memset(d, 0, len);
			*d = (struct fuse_dirent){ n, k + 1, strlen(name), nodes[n].mode >> 12 };
			memcpy(d->name, name, d->namelen);
			if (sh->bad == 6)
				d->name[0] = '/';
			at += len;
		}
		reply(h->unique, 0, out, at);
		return;
	}
	case FUSE_FALLOCATE: {
		struct fuse_fallocate_in *in = (void *)b;
		if (in->mode & 2)
			memset(o->data + in->offset, 0, in->length);
		else if (!(in->mode & 1) && o->size < in->offset + in->length)
			o->size = in->offset + in->length;
		reply(h->unique, 0, 0, 0);
		return;
	}
	case FUSE_LSEEK: {
		struct fuse_lseek_in *in = (void *)b;
		struct fuse_lseek_out out = { in->whence == SEEK_DATA ? 4096 : 8192 };
		reply(h->unique, in->offset >= o->size ? ENXIO : 0, &out, in->offset >= o->size ? 0 : sizeof out);
		return;
	}
	case FUSE_IOCTL: {
		struct fuse_ioctl_in *in = (void *)b;
		struct { struct fuse_ioctl_out o; char d[64]; } out = { .o = { .result = in->in_size ? 5 : 6 } };
		memset(out.d, 'z', in->out_size);
		if (in->in_size)
			memcpy(out.d, in + 1, in->in_size);
		if (in->cmd == 0x7801)
			out.o.result = -EXDEV;
		reply(h->unique, 0, &out, sizeof out.o + in->out_size);
		return;
	}
	case FUSE_FSYNC: case FUSE_FSYNCDIR: case FUSE_FLUSH: case FUSE_ACCESS: reply(h->unique, 0, 0, 0); return;
	}
	reply(h->unique, ENOSYS, 0, 0);
}

static void serve(void)
{
	static char buf[SIZE + (64 << 10)];
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	for (;;) {
		ssize_t n = read(fuse_fd, buf, sizeof buf);
		if (n < 0 && (errno == EINTR || errno == EAGAIN || errno == ENOENT))
			continue;
		if (n <= 0)
			_exit(0);
		struct fuse_in_header *h = (void *)buf;
		int op = h->opcode;
		size_t kept = n - sizeof *h < 512 ? n - sizeof *h : 512;
		sh->last[op] = *h;
		memcpy(sh->body[op], buf + sizeof *h, kept);
		sh->count[op]++;
		buf[n] = 0;
		if (op == FUSE_FORGET || op == FUSE_BATCH_FORGET) {
			sh->forgets++;
			continue;
		}
		if (op == FUSE_INTERRUPT) {
			sh->interrupted = *(unsigned long long *)(h + 1);
			if (sh->interrupted == sh->last[FUSE_MKDIR].unique)
				reply(sh->interrupted, EINTR, 0, 0);
			continue;
		}
		if (sh->die == op)
			_exit(0);
		if (sh->slow[op])
			ms(sh->slow[op]);
		if (sh->hang[op])
			continue;
		if (sh->fail[op])
			reply(h->unique, sh->fail[op], 0, 0);
		else
			answer(h, (char *)(h + 1));
	}
}

static pid_t server;
static void unmounted(void)
{
	mkdir("m", 0755);
	unshare(CLONE_NEWNS);
	mount("none", "/", 0, MS_REC | MS_PRIVATE, 0);
	sh = mmap(0, sizeof *sh, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	sh->max_write = 65536, sh->minor = 31, sh->entry_valid = sh->attr_valid = 100;
	sh->init_flags = FUSE_ASYNC_READ | FUSE_BIG_WRITES;
	fuse_fd = open("/dev/fuse", O_RDWR | O_CLOEXEC);
	nodes[1] = (struct node){ .mode = S_IFDIR | 0755, .nlink = 2, .mtime = 2000 };
}
static int mount_with(const char *more)
{
	char opts[300];
	snprintf(opts, sizeof opts, "fd=%d,rootmode=40000,user_id=0,group_id=0%s", fuse_fd, more);
	return mount("src", "m", "fuse.sub", MS_NOSUID | MS_NODEV, opts);
}
static void served(void)
{
	server = fork();
	if (!server)
		serve();
}
static void start(const char *more)
{
	unmounted();
	if (fuse_fd < 0 || mount_with(more))
		say("start", "failed: %s", strerrorname_np(errno));
	served();
}
#define COUNT(op, e) do { int c_ = sh->count[op]; errno = 0; long r_ = (long)(e); int e_ = errno; \
	report(#e, r_, e_); say(#e, #op " %d", sh->count[op] - c_); } while (0)

static void show(const char *what, const char *path)
{
	struct stat s;
	if (lstat(path, &s))
		say(what, "%s", strerrorname_np(errno));
	else
		say(what, "ino %ld mode %o nlink %ld uid %d gid %d rdev %lx size %ld blk %ld blocks %ld times %ld %ld %ld", s.st_ino, s.st_mode, s.st_nlink, s.st_uid, s.st_gid,
		    s.st_rdev, s.st_size, s.st_blksize, s.st_blocks, s.st_atime, s.st_mtime, s.st_ctime);
}
static void list(const char *path)
{
	char all[1024] = "";
	DIR *d = opendir(path);
	struct dirent *e;
	while (d && (e = readdir(d)))
		snprintf(all + strlen(all), 100, "%s:%ld:%d ", e->d_name, e->d_ino, e->d_type);
	say("list", "%s", d ? all : strerrorname_np(errno));
	closedir(d);
}
static void text(const char *what, const char *path)
{
	char b[100] = "";
	int fd = open(path, O_RDONLY);
	ssize_t n = read(fd, b, 99);
	say(what, "%ld %s", n, fd < 0 || n < 0 ? strerrorname_np(errno) : b);
	close(fd);
}

static void device(void)
{
	char b[70000], small[100];
	unmounted();
	struct pollfd p = { fuse_fd, POLLIN | POLLOUT };
	T(read(fuse_fd, b, sizeof b));
	T(write(fuse_fd, b, 16));
	T(poll(&p, 1, 0));
	say("poll", "%x", p.revents);
	T(lseek(fuse_fd, 0, SEEK_SET));
	struct stat st;
	fstat(fuse_fd, &st);
	say("stat", "%o %lx", st.st_mode & S_IFMT, st.st_rdev);
	T(ioctl(fuse_fd, 0x1234, b));
	int two = open("/dev/fuse", O_RDWR), no = -1;
	T(ioctl(two, _IOR(229, 0, uint32_t), &fuse_fd));
	T(mount_with(""));
	T(mount_with(""));
	T(ioctl(two, _IOR(229, 0, uint32_t), &no));
	no = 1;
	T(ioctl(two, _IOR(229, 0, uint32_t), &no));
	T(ioctl(two, _IOR(229, 0, uint32_t), &fuse_fd));
	T(ioctl(two, _IOR(229, 0, uint32_t), &fuse_fd));
	T(poll(&p, 1, 0));
	say("poll", "%x", p.revents);
	T(read(fuse_fd, small, sizeof small));
	T(read(fuse_fd, b, 8191));
	T(read(fuse_fd, b, sizeof b) > 40);
	struct fuse_in_header *h = (void *)b;
	struct fuse_init_in *in = (void *)(h + 1);
	say("init", "op %d node %lld uid %d pid %d major %d, enough %d", h->opcode, (long long)h->nodeid, h->uid, h->pid, in->major, in->minor >= 31 && in->max_readahead);
	T(poll(&p, 1, 0));
	say("poll", "%x", p.revents);
	fcntl(fuse_fd, F_SETFL, O_RDWR | O_NONBLOCK);
	T(read(fuse_fd, b + 1000, 60000));
	struct fuse_out_header bad = { 16, 0, 4242 };
	T(write(fuse_fd, &bad, 8));
	T(write(fuse_fd, &bad, 16));
	bad.len = 17;
	T(write(fuse_fd, &bad, 16));
	bad = (struct fuse_out_header){ 16, 5, h->unique };
	T(write(fuse_fd, &bad, 16));
	bad.error = -512;
	T(write(fuse_fd, &bad, 16));
	bad = (struct fuse_out_header){ 16, 99, 0 };
	T(write(fuse_fd, &bad, 16));
	struct { struct fuse_out_header h; struct fuse_init_out o; } ok = { { sizeof ok, 0, h->unique }, { 7, 31, 65536, 0, .max_write = 65536 } };
	T(write(two, &ok, sizeof ok));
	T(write(fuse_fd, &ok, sizeof ok) == sizeof ok);
	T(write(fuse_fd, &ok, sizeof ok));
	T(read(fuse_fd, b, 60000));
	T(read(fuse_fd, b, 65536 + 80));
	struct iovec v[2] = { { b, 40 }, { b + 40, 69000 } };
	T(readv(fuse_fd, v, 2));
	T(umount2("m", 0));
	T(read(fuse_fd, b, sizeof b));
	T(poll(&p, 1, 0));
	say("poll", "%x", p.revents);
	bad = (struct fuse_out_header){ 16, 0, 4242 };
	T(write(fuse_fd, &bad, 16));
}

static int mounts(const char *type, const char *opts)
{
	return mount("src", "m", type, 0, opts);
}
static void options(void)
{
	char o[200], line[500];
	unmounted();
	int other = open("/dev/null", O_RDWR);
	T(mounts("fuse", ""));
	T(mounts("fuse", "rootmode=40000,user_id=0,group_id=0"));
	const char *bad[] = { "rootmode=40000,user_id=0", "rootmode=40000,group_id=0", "user_id=0,group_id=0", "rootmode=0,user_id=0,group_id=0", "rootmode=x,user_id=0,group_id=0",
		"rootmode=40000,user_id=-1,group_id=0", "rootmode=40000,user_id=0,group_id=0,nonsense", "rootmode=40000,user_id=0,group_id=0,max_read=x",
		"rootmode=40000,user_id=0,group_id=0,allow_other=1", "rootmode=40000,user_id=0,group_id=0,blksize=512" };
	for (unsigned i = 0; i < sizeof bad / sizeof *bad; i++) {
		snprintf(o, sizeof o, "fd=%d,%s", fuse_fd, bad[i]);
		errno = 0;
		int r = mounts("fuse", o);
		say("bad", "%s: %d %s", bad[i], r, strerrorname_np(errno));
	}
	snprintf(o, sizeof o, "fd=%d,rootmode=40000,user_id=0,group_id=0", other);
	T(mounts("fuse", o));
	T(mounts("fuse", "fd=999,rootmode=40000,user_id=0,group_id=0"));
	T(mounts("fuse", "fd=x,rootmode=40000,user_id=0,group_id=0"));
	T(mounts("tmpfs.x", ""));
	snprintf(o, sizeof o, "fd=%d,rootmode=40000,user_id=0,group_id=0", fuse_fd);
	T(mounts("fuse.", o));
	snprintf(o, sizeof o, "fd=%d,rootmode=40000,user_id=0,group_id=0,subtype=y", fuse_fd);
	T(mounts("fuse.x", o));
	T(mounts("nofuse.x", ""));
	snprintf(o, sizeof o, "fd=%d,rootmode=040000,user_id=3,group_id=4,default_permissions,allow_other,max_read=8192", fuse_fd);
	T(mounts("fuse.some.kind", o));
	FILE *f = fopen("/proc/self/mountinfo", "r");
	while (fgets(line, sizeof line, f))
		if (strstr(line, " fuse."))
			say("mountinfo", "%s", strstr(line, " - "));
	fclose(f);
	f = fopen("/proc/self/mounts", "r");
	while (fgets(line, sizeof line, f))
		if (strstr(line, " fuse."))
			say("mounts", "%s", strstr(line, " fuse."));
	int known = 0;
	f = fopen("/proc/filesystems", "r");
	while (fgets(line, sizeof line, f))
		known |= !strcmp(line, "nodev\tfuse\n");
	Y(known);
	served();
	struct statfs s;
	T(statfs("m", &s));
	say("statfs", "%lx %ld %ld %ld %ld %ld %ld %ld", s.f_type, s.f_bsize, s.f_blocks, s.f_bfree, s.f_bavail, s.f_files, s.f_ffree, s.f_namelen);
	T(mount(0, "m", 0, MS_REMOUNT | MS_RDONLY, "fd=3"));
	T(mount(0, "m", 0, MS_REMOUNT | MS_RDONLY, 0));
	T(mkdir("m/d", 0755));
}

static void names(void)
{
	start("");
	show("root", "m");
	T(mkdir("m/d", 0750));
	show("dir", "m/d");
	say("mkdir", "mode %o umask %o uid %d", ((struct fuse_mkdir_in *)sh->body[FUSE_MKDIR])->mode, ((struct fuse_mkdir_in *)sh->body[FUSE_MKDIR])->umask, sh->last[FUSE_MKDIR].uid);
	Y(sh->last[FUSE_MKDIR].pid == getpid());
	T(mkdir("m/d", 0750));
	T(rmdir("m/none"));
	put("m/f", "hello");
	struct fuse_create_in *c = (void *)sh->body[FUSE_CREATE];
	say("create", "mode %o umask %o", c->mode, c->umask);
	text("f", "m/f");
	show("file", "m/f");
	T(open("m/f", O_CREAT | O_EXCL, 0644));
	T(open("m/f/x", O_RDONLY));
	T(open("m/none", O_RDONLY));
	T(link("m/f", "m/d/g"));
	show("linked", "m/f");
	text("g", "m/d/g");
	T(link("m/d", "m/e"));
	T(link("/dev/null", "m/e"));
	T(symlink("d/g", "m/s"));
	show("symlink", "m/s");
	text("s", "m/s");
	char to[100] = "";
	T(readlink("m/s", to, sizeof to));
	S(to, 3);
	T(mknod("m/fifo", S_IFIFO | 0600, 0));
	T(mknod("m/null", S_IFCHR | 0666, makedev(1, 3)));
	show("fifo", "m/fifo");
	show("device", "m/null");
	T(open("m/null", O_RDWR));
	T(open("m/fifo", O_RDWR | O_NONBLOCK) >= 0);
	list("m");
	list("m/d");
	T(rmdir("m/d"));
	T(rename("m/f", "m/h"));
	T(access("m/f", F_OK));
	text("h", "m/h");
	T(rename("m/h", "m/d/h"));
	T(syscall(SYS_renameat2, AT_FDCWD, "m/d/h", AT_FDCWD, "m/d/g", 1));
	T(syscall(SYS_renameat2, AT_FDCWD, "m/d/h", AT_FDCWD, "m/s", 2));
	text("s", "m/s");
	T(syscall(SYS_renameat2, AT_FDCWD, "m/s", AT_FDCWD, "m/t", 4));
	T(rename("m/s", "m/d/g"));
	T(rename("m/d", "m/d/in"));
	T(rename("m/d", "/tmp/elsewhere"));
	T(unlink("m/d"));
	T(unlink("m/d/g"));
	T(unlink("m/d/h"));
	T(rmdir("m/d"));
	T(rmdir("m/d"));
	list("m");
	T(open("m", O_TMPFILE | O_RDWR, 0600));
	int d = open("m", O_RDONLY | O_DIRECTORY);
	T(openat(d, "fifo", O_PATH) >= 0);
	T(fsync(d));
	T(lseek(d, 2, SEEK_SET));
	char b[2000];
	T(syscall(SYS_getdents64, d, b, sizeof b) > 0);
	T(syscall(SYS_getdents64, d, b, sizeof b));
	T(lseek(d, 0, SEEK_SET));
	T(syscall(SYS_getdents64, d, b, 40));
	T(syscall(SYS_getdents64, d, b, 10));
	sh->bad = 6;
	int e = open("m", O_RDONLY | O_DIRECTORY);
	T(syscall(SYS_getdents64, e, b, sizeof b));
	char longer[2000];
	memset(longer, 'x', sizeof longer);
	memcpy(longer, "m/", 2), longer[1030] = 0;
	T(mkdir(longer, 0700));
}

static void cached(void)
{
	struct stat s;
	start("");
	mkdir("m/d", 0755), put("m/f", "x");
	COUNT(FUSE_LOOKUP, stat("m/f", &s));
	COUNT(FUSE_LOOKUP, stat("m/f", &s));
	COUNT(FUSE_GETATTR, stat("m/f", &s));
	COUNT(FUSE_GETATTR, stat("m/f", &s));
	sh->entry_valid = sh->attr_valid = 0;
	mkdir("m/e", 0755), put("m/g", "x");
	COUNT(FUSE_LOOKUP, stat("m/g", &s));
	COUNT(FUSE_LOOKUP, stat("m/g", &s));
	COUNT(FUSE_GETATTR, stat("m/g", &s));
	COUNT(FUSE_GETATTR, stat("m/g", &s));
	COUNT(FUSE_LOOKUP, stat("m/none", &s));
	COUNT(FUSE_LOOKUP, stat("m/none", &s));
	COUNT(FUSE_LOOKUP, open("m/new", O_CREAT | O_RDWR, 0600) >= 0);
	COUNT(FUSE_CREATE, open("m/new2", O_CREAT | O_RDWR, 0600) >= 0);
	COUNT(FUSE_CREATE, open("m/new2", O_CREAT | O_RDWR, 0600) >= 0);
	COUNT(FUSE_LOOKUP, open("m/e", O_RDONLY) >= 0);
	COUNT(FUSE_OPENDIR, open("m/e", O_RDONLY) >= 0);
	COUNT(FUSE_LOOKUP, chdir("m/e"));
	COUNT(FUSE_LOOKUP, stat(".", &s));
	chdir("../..");
	sh->entry_valid = sh->attr_valid = 100;
	stat("m/d", &s), stat("m", &s);
	struct { struct fuse_out_header h; struct fuse_notify_inval_entry_out e; char name[2]; } gone = { { sizeof(struct fuse_out_header) + sizeof gone.e + 2, FUSE_NOTIFY_INVAL_ENTRY, 0 }, { 1, 1 }, "d" };
	COUNT(FUSE_LOOKUP, write(fuse_fd, &gone, gone.h.len) > 0);
	COUNT(FUSE_LOOKUP, stat("m/d", &s));
	COUNT(FUSE_LOOKUP, stat("m/d", &s));
	gone.e.namelen = 2;
	T(write(fuse_fd, &gone, gone.h.len));
	gone.e.namelen = 1, gone.e.parent = 50;
	T(write(fuse_fd, &gone, gone.h.len));
	struct { struct fuse_out_header h; struct fuse_notify_inval_inode_out i; } other = { { sizeof other, FUSE_NOTIFY_INVAL_INODE, 0 }, { 2, 0, 0 } };
	COUNT(FUSE_GETATTR, stat("m/d", &s));
	COUNT(FUSE_GETATTR, write(fuse_fd, &other, sizeof other) > 0);
	COUNT(FUSE_GETATTR, stat("m/d", &s));
	other.i.ino = 50;
	T(write(fuse_fd, &other, sizeof other));
	other.h.len = 20;
	T(write(fuse_fd, &other, 20));
}

static void attributes(void)
{
	struct stat s;
	start("");
	put("m/f", "0123456789");
	T(chmod("m/f", 0640));
	show("chmod", "m/f");
	T(chown("m/f", 12, 34));
	show("chown", "m/f");
	T(truncate("m/f", 4));
	show("shorter", "m/f");
	text("shorter", "m/f");
	T(truncate("m/f", 8));
	text("longer", "m/f");
	int fd = open("m/f", O_RDWR);
	T(ftruncate(fd, 2));
	struct fuse_setattr_in *in = (void *)sh->body[FUSE_SETATTR];
	say("ftruncate", "valid %x fh %d size %d", in->valid & (FATTR_FH | FATTR_SIZE), in->valid & FATTR_FH ? (int)in->fh > 70 : -1, (int)in->size);
	fstat(fd, &s);
	say("fstat", "%ld", s.st_size);
	struct timespec t[2] = { { 5, 6 }, { 7, 8 } };
	T(utimensat(AT_FDCWD, "m/f", t, 0));
	say("times", "valid %x %lld.%d %lld.%d", in->valid & 0x30, (long long)in->atime, in->atimensec, (long long)in->mtime, in->mtimensec);
	t[0].tv_nsec = UTIME_OMIT;
	T(utimensat(AT_FDCWD, "m/f", t, 0));
	say("times", "valid %x", in->valid & 0x30);
	T(open("m/f", O_WRONLY | O_TRUNC) >= 0);
	show("truncated", "m/f");
	sh->fail[FUSE_SETATTR] = EPERM;
	T(chmod("m/f", 0600));
	sh->fail[FUSE_SETATTR] = ENOSYS;
	T(chmod("m/f", 0600));
	T(truncate("m/f", 1));
	sh->fail[FUSE_SETATTR] = 0;
	T(chmod("m/f", 04755));
	T(setxattr("m/f", "user.a", "value", 5, XATTR_CREATE));
	T(setxattr("m/f", "user.a", "value", 5, XATTR_CREATE));
	char v[100] = "";
	T(getxattr("m/f", "user.a", v, sizeof v));
	S(v, 5);
	T(getxattr("m/f", "user.a", v, 0));
	T(getxattr("m/f", "user.a", v, 2));
	T(getxattr("m/f", "user.b", v, sizeof v));
	memset(v, 0, sizeof v);
	T(listxattr("m/f", v, sizeof v));
	S(v, 7);
	T(listxattr("m/f", v, 0));
	T(removexattr("m/f", "user.a"));
	T(removexattr("m/f", "user.a"));
	T(listxattr("m/f", v, sizeof v));
	sh->fail[FUSE_GETXATTR] = sh->fail[FUSE_LISTXATTR] = sh->fail[FUSE_SETXATTR] = ENOSYS;
	T(getxattr("m/f", "user.a", v, sizeof v));
	T(listxattr("m/f", v, sizeof v));
	T(setxattr("m/f", "user.a", "value", 5, 0));
	sh->fail[FUSE_GETXATTR] = sh->fail[FUSE_LISTXATTR] = sh->fail[FUSE_SETXATTR] = 0;
	T(getxattr("m/f", "user.a", v, sizeof v));
}

static void rights(void)
{
	start("");
	put("m/f", "secret"), chmod("m/f", 0600), mkdir("m/d", 0700);
	T(access("m/f", X_OK));
	say("access", "%d mask %x", sh->count[FUSE_ACCESS], *(unsigned *)sh->body[FUSE_ACCESS]);
	T(chdir("m/d"));
	say("chdir", "mask %x", *(unsigned *)sh->body[FUSE_ACCESS]);
	chdir("../..");
	sh->fail[FUSE_ACCESS] = EACCES;
	T(access("m/f", R_OK));
	T(access("m/f", F_OK));
	T(chdir("m/d"));
	T(open("m/f", O_RDONLY) >= 0);
	sh->fail[FUSE_ACCESS] = ENOSYS;
	T(access("m/f", R_OK));
	sh->fail[FUSE_ACCESS] = EACCES;
	T(access("m/f", R_OK));
	T(execl("m/f", "f", NULL));
	chmod("m/f", 0644);
	T(execl("m/f", "f", NULL));
	struct stat s;
	struct statfs f;
	CHILD(drop_root(); T(stat("m", &s)); T(stat("m/f", &s)); T(open("m/f", O_RDONLY)); T(access("m", F_OK)); T(statfs("m", &f)); say("statfs", "%lx %ld", f.f_type, f.f_blocks);
	      T(chdir("m")); T(open("m", O_RDONLY)); T(setxattr("m/f", "user.a", "b", 1, 0)); T(umount2("m", 0)));
}
static void for_all(void)
{
	start(",allow_other");
	chmod("m", 0700), put("m/f", "secret"), chmod("m/f", 0600);
	CHILD(drop_root(); show("root", "m"); text("f", "m/f"); T(mkdir("m/d", 0700)); show("d", "m/d"); say("who", "%d %d", sh->last[FUSE_MKDIR].uid, sh->last[FUSE_MKDIR].gid));
}
static void by_mode(void)
{
	start(",allow_other,default_permissions");
	chmod("m", 0711), put("m/f", "secret"), chmod("m/f", 0600), put("m/g", "open"), mkdir("m/sticky", 0777), chmod("m/sticky", 01777), put("m/sticky/x", "");
	CHILD(drop_root(); T(open("m/f", O_RDONLY)); text("g", "m/g"); T(open("m/g", O_WRONLY)); T(mkdir("m/d", 0700)); T(opendir("m") ? 1 : 0); T(unlink("m/sticky/x"));
	      T(access("m/f", R_OK)); T(chmod("m/g", 0777)); T(mkdir("m/sticky/mine", 0700)); T(rmdir("m/sticky/mine")); say("access", "%d", sh->count[FUSE_ACCESS]));
	sh->attr_valid = 0;
	put("m/h", "x"), chmod("m/h", 0644);
	CHILD(drop_root(); text("h", "m/h"));
	T(chmod("m/h", 0));
	CHILD(drop_root(); text("h", "m/h"));
}

static void data(void)
{
	char b[200000], c[200000];
	start("");
	for (unsigned i = 0; i < sizeof b; i++)
		b[i] = 'a' + i % 23;
	int fd = open("m/f", O_RDWR | O_CREAT, 0644);
	COUNT(FUSE_WRITE, write(fd, b, sizeof b));
	T(pread(fd, c, sizeof c, 0));
	Y(!memcmp(b, c, sizeof b));
	T(pread(fd, c, 10, 199995));
	T(pread(fd, c, 10, 200000));
	T(pread(fd, c, 10, 1 << 30));
	T(lseek(fd, 0, SEEK_END));
	T(pwrite(fd, "XYZ", 3, 5));
	T(pread(fd, c, 10, 3));
	S(c, 10);
	struct fuse_write_in *in = (void *)sh->body[FUSE_WRITE];
	say("write", "fh %d offset %lld size %d flags %x", (int)in->fh, (long long)in->offset, in->size, in->write_flags);
	int other = open("m/f", O_RDWR | O_APPEND);
	T(write(other, "end", 3));
	T(lseek(other, 0, SEEK_CUR));
	T(pread(fd, c, 10, 199998));
	S(c, 5);
	T(lseek(fd, 0, SEEK_DATA));
	T(lseek(fd, 0, SEEK_HOLE));
	T(lseek(fd, 1 << 20, SEEK_DATA));
	T(fallocate(fd, 0, 0, 210000));
	struct stat s;
	fstat(fd, &s);
	say("size", "%ld", s.st_size);
	T(fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, 4));
	T(pread(fd, c, 6, 0));
	S(c, 6);
	T(fallocate(fd, FALLOC_FL_COLLAPSE_RANGE, 0, 4096));
	T(fsync(fd));
	T(fdatasync(fd));
	say("sync", "%d flags %x", sh->count[FUSE_FSYNC], ((struct fuse_fsync_in *)sh->body[FUSE_FSYNC])->fsync_flags);
	sh->fail[FUSE_FSYNC] = EIO;
	T(fsync(fd));
	sh->fail[FUSE_FSYNC] = ENOSYS;
	T(fsync(fd));
	int flushed = sh->count[FUSE_FLUSH];
	int third = dup(fd);
	T(close(third));
	say("flush", "%d", sh->count[FUSE_FLUSH] - flushed);
	sh->fail[FUSE_FLUSH] = EDQUOT;
	third = dup(fd);
	T(close(third));
	sh->fail[FUSE_FLUSH] = 0;
	sh->fail[FUSE_WRITE] = ENOSPC;
	T(write(fd, b, 10));
	sh->fail[FUSE_WRITE] = 0;
	sh->fail[FUSE_READ] = EIO;
	int fresh = open("m/f", O_RDONLY);
	T(read(fresh, c, 10));
	sh->fail[FUSE_READ] = 0;
	T(read(fresh, c, 10));
	sh->fail[FUSE_OPEN] = EMFILE;
	T(open("m/f", O_RDONLY));
	sh->fail[FUSE_OPEN] = ENOSYS;
	T(open("m/f", O_RDONLY));
	sh->fail[FUSE_OPEN] = 0;
	T(ioctl(fd, 0x7801, 0));
	T(ioctl(fd, 0x7802, 0));
	char arg[8] = "abcdefg";
	T(ioctl(fd, _IOR('x', 3, char[4]), arg));
	S(arg, 8);
	T(ioctl(fd, _IOWR('x', 4, char[8]), arg));
	S(arg, 8);
	T(ioctl(fd, _IOW('x', 5, char[8]), (void *)8));
	sh->fail[FUSE_IOCTL] = ENOSYS;
	T(ioctl(fd, 0x7802, 0));
	T(close(fd) + close(other) + close(fresh));
	ms(50);
	say("releases", "%d", sh->releases);
	T(sendfile(open("out", O_RDWR | O_CREAT, 0600), open("m/f", O_RDONLY), 0, 1000));
}

static void direct(void)
{
	char b[10000] = "";
	start("");
	put("m/f", "0123456789");
	sh->open_flags = FOPEN_DIRECT_IO;
	int fd = open("m/f", O_RDWR);
	COUNT(FUSE_READ, pread(fd, b, 4, 0));
	say("read", "%lld %d", (long long)((struct fuse_read_in *)sh->body[FUSE_READ])->offset, ((struct fuse_read_in *)sh->body[FUSE_READ])->size);
	COUNT(FUSE_READ, pread(fd, b, 4, 2));
	COUNT(FUSE_READ, pread(fd, b, 100, 8));
	COUNT(FUSE_READ, pread(fd, b, 100, 10));
	COUNT(FUSE_READ, pread(fd, b, 100, 5000));
	T(mmap(0, 4096, PROT_READ, MAP_SHARED, fd, 0) == MAP_FAILED);
	T(mmap(0, 4096, PROT_READ, MAP_PRIVATE, fd, 0) == MAP_FAILED);
	sh->open_flags = FOPEN_NONSEEKABLE;
	fd = open("m/f", O_RDWR);
	T(lseek(fd, 1, SEEK_SET));
	T(pread(fd, b, 1, 0));
	T(read(fd, b, 3));
	S(b, 3);
	sh->open_flags = FOPEN_STREAM;
	fd = open("m/f", O_RDWR);
	T(lseek(fd, 1, SEEK_SET));
	sh->open_flags = 0;
	fd = open("m/f", O_RDWR);
	COUNT(FUSE_READ, pread(fd, b, 4, 0));
	COUNT(FUSE_READ, pread(fd, b, 4, 2));
	int keeps = open("m/f", O_RDONLY);
	T(pread(keeps, b, 10, 0));
	S(b, 10);
}

static void mapped(void)
{
	start("");
	int fd = open("m/f", O_RDWR | O_CREAT, 0644);
	char page[4096];
	for (int i = 0; i < 20; i++) {
		memset(page, 'a' + i, sizeof page);
		write(fd, page, sizeof page);
	}
	write(fd, "tail", 4);
	char *p = mmap(0, 22 * 4096, PROT_READ, MAP_PRIVATE, fd, 0);
	say("private", "%c%c%c %s", p[0], p[4096 * 7 + 5], p[20 * 4096 - 1], p + 20 * 4096);
	T(CHILD(signal(SIGBUS, SIG_DFL); if (p[21 * 4096]) _exit(1)));
	char *w = mmap(0, 22 * 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	w[4096 * 3] = '!';
	say("shared", "%c%c", w[4096 * 3], w[4096 * 3 + 1]);
	char c[10] = "";
	T(pread(fd, c, 3, 4096 * 3));
	S(c, 3);
	say("also", "%c", p[4096 * 3]);
	int before = sh->count[FUSE_WRITE];
	T(msync(w, 22 * 4096, MS_SYNC));
	Y(sh->count[FUSE_WRITE] > before);
	say("cache", "%x", ((struct fuse_write_in *)sh->body[FUSE_WRITE])->write_flags & FUSE_WRITE_CACHE);
	T(pwrite(fd, "????", 4, 4096 * 5));
	say("written", "%.5s %.5s", w + 4096 * 5, p + 4096 * 5);
	w[4096 * 9] = '#', w[20 * 4096 + 1] = 'A';
	T(munmap(w, 22 * 4096));
	T(close(fd));
	T(munmap(p, 22 * 4096));
	fd = open("m/f", O_RDONLY);
	T(pread(fd, c, 3, 4096 * 9));
	S(c, 3);
	T(pread(fd, c, 9, 20 * 4096));
	S(c, 4);
	p = mmap(0, 4096, PROT_READ, MAP_SHARED, fd, 4096 * 2);
	say("before", "%c", *p);
	sh->fail[FUSE_READ] = EIO;
	char *bad = mmap(0, 4096 * 20, PROT_READ, MAP_SHARED, open("m/f", O_RDONLY), 0);
	T(CHILD(signal(SIGBUS, SIG_DFL); if (bad[4096 * 15]) _exit(1)));
	T(write(open("out", O_RDWR | O_CREAT, 0600), bad + 4096 * 15, 10));
	sh->fail[FUSE_READ] = 0;
	T(write(open("out", O_RDWR | O_CREAT, 0600), bad + 4096 * 15, 10));
	char *s = mmap(0, 4096 * 21, PROT_READ, MAP_SHARED, fd, 0);
	say("end", "%c", s[4096 * 20]);
	T(truncate("m/f", 4096 * 3 + 1));
	T(CHILD(signal(SIGBUS, SIG_DFL); if (s[4096 * 4]) _exit(1)));
	say("cut", "%c%d", s[4096 * 3], s[4096 * 3 + 1]);
	T(mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0) == MAP_FAILED);
	T(mlock(s, 4096 * 2));
	T(madvise(s, 4096 * 3, MADV_POPULATE_READ));
	char fork_shows = 0;
	T(CHILD(_exit(s[4096])));
}

static void runs(void)
{
	start("");
	char b[65536];
	int from = open("/bin/true", O_RDONLY), to = open("m/true", O_WRONLY | O_CREAT, 0755);
	ssize_t n;
	while ((n = read(from, b, sizeof b)) > 0)
		if (write(to, b, n) != n)
			break;
	Y(n == 0);
	T(CHILD(execl("m/true", "true", NULL); _exit(77)));
	T(close(to));
	T(CHILD(execl("m/true", "true", NULL); _exit(77)));
	put("m/script", "#!/bin/sh\nexit 5\n"), chmod("m/script", 0755);
	T(CHILD(execl("m/script", "script", NULL); _exit(77)));
	chmod("m/script", 0644);
	T(CHILD(execl("m/script", "script", NULL); _exit(errno)));
}

static void wrong(void)
{
	struct stat s;
	start("");
	sh->entry_valid = sh->attr_valid = 0;
	mkdir("m/d", 0755), put("m/f", "x");
	for (int i = 2; i <= 5; i++) {
		char what[20];
		sh->bad = i;
		errno = 0;
		int r = stat("m/f", &s);
		snprintf(what, sizeof what, "bad %d", i);
		report(what, r, errno);
	}
	sh->bad = 0;
	T(stat("m/f", &s));
	for (int e = 1; e < 133; e += 13) {
		sh->fail[FUSE_MKDIR] = e;
		errno = 0;
		int r = mkdir("m/x", 0700);
		report("mkdir", r, errno);
	}
	sh->fail[FUSE_LOOKUP] = EIO;
	T(stat("m/f", &s));
	sh->fail[FUSE_LOOKUP] = ESTALE;
	T(stat("m/f", &s));
	sh->fail[FUSE_LOOKUP] = 0;
	int fd = open("m/f", O_RDONLY);
	sh->die = FUSE_MKDIR, sh->fail[FUSE_MKDIR] = 0;
	close(fuse_fd);
	T(mkdir("m/y", 0700));
	T(stat("m/f", &s));
	T(stat("m", &s));
	T(read(fd, &s, 1));
	T(open("m/f", O_RDONLY));
	T(close(fd));
	T(umount2("m", 0));
	T(stat("m", &s));
}
static void misled(void)
{
	struct stat s;
	start("");
	sh->entry_valid = sh->attr_valid = 0;
	put("m/f", "x");
	sh->bad = 1;
	T(stat("m/f", &s));
	sh->bad = 0;
	T(stat("m/f", &s));
	T(stat("m", &s));
	T(mkdir("m/d", 0700));
}
static void refused(void)
{
	struct stat s;
	unmounted();
	sh->bad = 9;
	T(mount_with(""));
	served();
	T(stat("m", &s));
}

/* What real servers and their users met, beside what the other checks look at. */
static void opens(void)
{
	char b[300000];
	struct stat s;
	start("");
	put("m/f", "0123456789");
	sh->fail[FUSE_OPEN] = EACCES;
	T(open("m/f", O_WRONLY | O_TRUNC));
	sh->fail[FUSE_OPEN] = 0;
	text("kept", "m/f");
	T(mknod("m/n", S_IFREG | 0640, 0));
	show("mknod", "m/n");
	say("mknod", "create %d mknod %d", sh->count[FUSE_CREATE], sh->count[FUSE_MKNOD]);
	int fd = open("m/c", O_CREAT | O_WRONLY | O_APPEND | O_NOCTTY | O_CLOEXEC, 0600);
	say("create", "%o", ((struct fuse_create_in *)sh->body[FUSE_CREATE])->flags & ~0100000);
	T(write(fd, "x", 1));
	say("write", "%o", ((struct fuse_write_in *)sh->body[FUSE_WRITE])->flags & ~0100000);
	fd = open("m/c", O_RDWR | O_CLOEXEC | O_SYNC | O_EXCL);
	say("open", "%o", ((struct fuse_open_in *)sh->body[FUSE_OPEN])->flags & ~0100000);
	COUNT(FUSE_FSYNC, write(fd, "yz", 2));
	say("fsync", "%x", ((struct fuse_fsync_in *)sh->body[FUSE_FSYNC])->fsync_flags);
	fd = open("m/c", O_RDWR | O_DSYNC);
	COUNT(FUSE_FSYNC, write(fd, "yz", 2));
	say("fsync", "%x", ((struct fuse_fsync_in *)sh->body[FUSE_FSYNC])->fsync_flags);
	T(futimens(fd, 0));
	say("now", "%x", ((struct fuse_setattr_in *)sh->body[FUSE_SETATTR])->valid & 0x1b0);
	T(setxattr("m/f", "system.posix_acl_access", "v", 1, 0) == 0 || errno == EINVAL || errno == EOPNOTSUPP);
	T(setxattr("m/f", "ceph.quota", "v", 1, 0));
	T(getxattr("m/f", "ceph.quota", b, 10));
	sh->fail[FUSE_LINK] = ENOSYS;
	T(link("m/f", "m/l"));
	sh->fail[FUSE_LINK] = 0;
	memset(b, 'w', sizeof b);
	fd = open("m/big", O_CREAT | O_RDWR, 0600);
	sh->max_file = 100000;
	T(write(fd, b, sizeof b));
	T(lseek(fd, 0, SEEK_CUR));
	T(fstat(fd, &s));
	say("size", "%ld", s.st_size);
	sh->max_file = 0;
	fd = open("m/sparse", O_CREAT | O_RDWR, 0600);
	T(posix_fallocate(fd, 0, 8192));
	char *p = mmap(0, 8192, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	p[5000] = 'p';
	T(munmap(p, 8192));
	T(pread(fd, b, 1, 5000));
	S(b, 1);
	fd = open("m/f", O_RDONLY | O_DIRECT);
	COUNT(FUSE_READ, pread(fd, b, 4, 0));
	COUNT(FUSE_READ, pread(fd, b, 4, 0));
	struct statfs f;
	T(statfs("m", &f));
	say("statfs", "%ld %ld", f.f_bsize, f.f_frsize);
	sh->fail[FUSE_SETATTR] = 0;
}
/* Whoever serves it decides. */
static void decides(void)
{
	start(",allow_other");
	put("m/f", "x");
	CHILD(drop_root(); T(chmod("m/f", 06755)); show("f", "m/f"); T(chown("m/f", 1, 2)); struct timespec t[2] = { { 1, 0 }, { 2, 0 } };
	      T(utimensat(AT_FDCWD, "m/f", t, 0)); show("f", "m/f"));
}
/* Whoever is killed gives back what it was given. */
static void given_back(void)
{
	int st;
	start("");
	sh->entry_valid = sh->attr_valid = 0;
	put("m/f", "x");
	sh->slow[FUSE_OPEN] = 200;
	int before = sh->releases;
	pid_t p = fork();
	if (!p) {
		close(fuse_fd);
		open("m/f", O_RDONLY);
		pause();
	}
	int opens = sh->count[FUSE_OPEN];
	while (sh->count[FUSE_OPEN] == opens)
		ms(1);
	ms(50);
	kill(p, SIGKILL);
	waitpid(p, &st, 0);
	ms(400);
	say("releases", "%d", sh->releases - before);
}
/* A page that never comes holds up nobody else. */
static void bystanders(void)
{
	int pipe_fd[2], sv[2];
	start("");
	put("m/f", "x"), truncate("m/f", 100000);
	int fd = open("m/f", O_RDONLY);
	char *p = mmap(0, 100000, PROT_READ, MAP_PRIVATE, fd, 0);
	pipe(pipe_fd), socketpair(AF_UNIX, SOCK_STREAM, 0, sv);
	sh->hang[FUSE_READ] = 1;
	pid_t a = fork();
	if (!a) {
		close(fuse_fd);
		write(pipe_fd[1], p + 50000, 100);
		_exit(0);
	}
	pid_t b = fork();
	if (!b) {
		close(fuse_fd);
		write(sv[1], p + 70000, 100);
		_exit(0);
	}
	ms(200);
	struct pollfd f[2] = { { pipe_fd[0], POLLIN }, { sv[0], POLLIN } };
	T(poll(f, 2, 100));
	T(write(sv[1], "z", 1));
	char c;
	T(read(sv[0], &c, 1));
	T(kill(a, SIGKILL) + kill(b, SIGKILL));
	close(fuse_fd);
	kill(server, SIGKILL);
	int st;
	T(waitpid(a, &st, 0) == a);
	T(waitpid(b, &st, 0) == b);
	T(write(pipe_fd[1], "z", 1));
	T(read(pipe_fd[0], &c, 1));
}
static void exits(void)
{
	start("");
	put("m/f", "x");
	sh->slow[FUSE_FLUSH] = 150;
	int before = sh->count[FUSE_FLUSH], st;
	long long t = now_ms();
	pid_t p = fork();
	if (!p) {
		open("m/f", O_RDWR);
		_exit(3);
	}
	T(waitpid(p, &st, 0) == p);
	say("exit", "%d, flushed %d, waited %s", WEXITSTATUS(st), sh->count[FUSE_FLUSH] - before, now_ms() - t >= 140 ? "yes" : "no");
	sh->init_flags = 0;
}
/* What is no server's business to mask. */
static void masks(void)
{
	unmounted();
	sh->init_flags |= FUSE_DONT_MASK;
	mount_with("");
	served();
	umask(027);
	T(mkdir("m/d", 0777));
	T(close(open("m/f", O_CREAT | O_RDWR, 0666)));
	say("modes", "%o %o, umask %o", ((struct fuse_mkdir_in *)sh->body[FUSE_MKDIR])->mode, ((struct fuse_create_in *)sh->body[FUSE_CREATE])->mode,
	    ((struct fuse_mkdir_in *)sh->body[FUSE_MKDIR])->umask);
}
/* A server that moves requests and answers by splice(2). */
static void spliced(void)
{
	int in[2], out[2];
	unmounted();
	T(mount_with(""));
	if (!(server = fork())) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		pipe(in), pipe(out);
		fcntl(in[0], F_SETPIPE_SZ, 1 << 18), fcntl(out[0], F_SETPIPE_SZ, 1 << 18);
		int real = fuse_fd;
		static char b[1 << 17];
		for (;;) {
			ssize_t n = splice(real, 0, in[1], 0, 1 << 17, 0);
			if (n < 0)
				_exit(0);
			if (read(in[0], b, n) != n)
				_exit(1);
			struct fuse_in_header *h = (void *)b;
			sh->count[h->opcode]++;
			if (h->opcode == FUSE_FORGET || h->opcode == FUSE_BATCH_FORGET)
				continue;
			b[n] = 0;
			fuse_fd = out[1];
			answer(h, (char *)(h + 1));
			struct fuse_out_header o;
			int waiting;
			ioctl(out[0], FIONREAD, &waiting);
			if (splice(out[0], 0, real, 0, waiting, 0) != waiting)
				_exit(2);
		}
	}
	put("m/f", "spliced");
	text("f", "m/f");
	list("m");
	char b[70000], c[70000];
	memset(b, 'q', sizeof b);
	int fd = open("m/f", O_RDWR);
	T(write(fd, b, sizeof b));
	T(pread(fd, c, sizeof c, 0));
	Y(!memcmp(b, c, sizeof b));
}

static void on_alarm(int s) { (void)s; }
static void interrupts(void)
{
	start("");
	put("m/f", "x");
	struct sigaction a = { .sa_handler = on_alarm };
	sigaction(SIGALRM, &a, 0);
	struct itimerval t = { { 0 }, { 0, 50000 } };
	sh->hang[FUSE_MKDIR] = 1;
	setitimer(ITIMER_REAL, &t, 0);
	T(mkdir("m/d", 0700));
	Y(sh->interrupted == sh->last[FUSE_MKDIR].unique);
	sh->hang[FUSE_MKDIR] = 0;
	T(mkdir("m/d", 0700));
	sh->slow[FUSE_MKNOD] = 150;
	setitimer(ITIMER_REAL, &t, 0);
	T(mknod("m/n", S_IFIFO | 0600, 0));
	sh->hang[FUSE_SYMLINK] = 1;
	pid_t p = fork();
	if (!p) {
		close(fuse_fd);
		symlink("a", "m/s");
		_exit(0);
	}
	while (!sh->count[FUSE_SYMLINK])
		ms(1);
	T(kill(p, SIGKILL));
	int st;
	sh->hang[FUSE_READLINK] = 1;
	ms(50);
	struct stat s;
	T(stat("m/f", &s));
	T(kill(server, SIGKILL));
	close(fuse_fd);
	T(waitpid(p, &st, 0) == p);
	Y(WIFSIGNALED(st) && WTERMSIG(st) == SIGKILL);
	T(stat("m/f/none", &s));
}

static void ends(void)
{
	struct stat s;
	start("");
	put("m/f", "x");
	int fd = open("m/f", O_RDONLY);
	T(umount2("m", 0));
	T(umount2("m", MNT_DETACH));
	T(stat("m/f", &s));
	char c;
	T(read(fd, &c, 1));
	T(close(fd));
	int st;
	T(waitpid(server, &st, 0) == server);
	Y(WIFEXITED(st));
}
static void by_force(void)
{
	struct stat s;
	start("");
	put("m/f", "x");
	int fd = open("m/f", O_RDONLY);
	T(umount2("m", MNT_FORCE));
	T(stat("m/f", &s));
	T(fsync(fd));
	T(close(fd));
	T(umount2("m", MNT_FORCE));
	T(umount2("m", 0));
}

static void in_a_namespace(void)
{
	mkdir("m", 0777), chmod("m", 0777), chmod(".", 0777), mkdir("pts", 0777);
	unshare(CLONE_NEWNS);
	mount("none", "/", 0, MS_REC | MS_PRIVATE, 0);
	mkdir("t", 0755), mount("none", "t", "tmpfs", 0, 0);
	T(mknod("t/device", S_IFCHR | 0666, makedev(10, 229)));
	chmod("t/device", 0666);
	sh = mmap(0, sizeof *sh, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	CHILD(
		drop_root();
		prctl(PR_SET_DUMPABLE, 1);
		T(unshare(CLONE_NEWUSER | CLONE_NEWNS));
		write_text("/proc/self/setgroups", "deny"); write_text("/proc/self/uid_map", "0 65534 1"); write_text("/proc/self/gid_map", "0 65534 1");
		sh->max_write = 65536; sh->minor = 31; sh->entry_valid = sh->attr_valid = 100;
		nodes[1] = (struct node){ .mode = S_IFDIR | 0755, .nlink = 2, .mtime = 2000 };
		T((fuse_fd = open("t/device", O_RDWR | O_CLOEXEC)) >= 0);
		char o[100];
		snprintf(o, sizeof o, "fd=%d,rootmode=40000,user_id=1,group_id=0", fuse_fd);
		T(mount("src", "m", "fuse", 0, o));
		snprintf(o, sizeof o, "fd=%d,rootmode=40000,user_id=0,group_id=0", fuse_fd);
		T(mount("src", "m", "fuse", 0, o));
		served();
		show("root", "m");
		put("m/f", "x");
		show("f", "m/f");
		T(chmod("m/f", 04755));
		T(mknod("m/null", S_IFCHR | 0666, makedev(1, 3)));
		show("dev", "m/dev");
		T(open("m/dev", O_RDWR));
		show("strange", "m/strange");
		T(chown("m/f", 0, 1));
		T(mount("devpts", "pts", "devpts", 0, "newinstance,ptmxmode=0666"));
		T(open("pts/ptmx", O_RDWR | O_NOCTTY) >= 0);
		T(open("pts/0", O_RDWR | O_NOCTTY) >= 0 || errno == EIO);
		T(umount2("m", 0)));
}

static const struct check all[] = {
	CHECK(device), CHECK(options), CHECK(names), CHECK(cached), CHECK(attributes), CHECK(rights), CHECK(for_all), CHECK(by_mode), CHECK(data), CHECK(direct),
	CHECK(mapped), CHECK(runs), CHECK(wrong), CHECK(misled), CHECK(refused), CHECK(opens), CHECK(decides), CHECK(given_back), CHECK(bystanders), CHECK(exits), CHECK(masks), CHECK(spliced), CHECK(interrupts), CHECK(ends), CHECK(by_force), CHECK(in_a_namespace),
};
MAIN(all)
