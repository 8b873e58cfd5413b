/* PROCMAP_QUERY of /proc/PID/maps: one mapping by an address. */
#define AREA "mapquery"
#include "check.h"
#include <sys/sysmacros.h>

struct query {
	uint64_t size, flags, addr, start, end, kinds, page_size, offset, ino;
	uint32_t major, minor, name_size, build_id_size;
	uint64_t name_at, build_id_at;
};

#define QUERY _IOWR('f', 17, struct query)
#define R 1
#define W 2
#define X 4
#define SHARED 8
#define NEXT 0x10
#define OF_FILE 0x20

static int maps = -1;
static char *area;

/* Six pages: private, a hole, read-only, shared, of a file from its second page on, a hole. */
static void own(void)
{
	static char page[4096 * 3];
	int fd = open("f", O_CREAT | O_RDWR, 0644);
	write(fd, page, sizeof page);
	maps = open("/proc/self/maps", O_RDONLY);
	area = mmap(NULL, 6 * 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	munmap(area, 6 * 4096);
	mmap(area, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
	mmap(area + 2 * 4096, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
	mmap(area + 3 * 4096, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
	mmap(area + 4 * 4096, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE | MAP_FIXED, fd, 4096);
}

/* The page of the area that is found, or -1 and the error. */
static int page_of(int at, unsigned flags)
{
	struct query q = { .size = sizeof q, .flags = flags, .addr = (uint64_t)area + at };
	if (ioctl(maps, QUERY, &q))
		return -1;
	return (q.start - (uint64_t)area) / 4096;
}

static void found(void)
{
	own();
	T(page_of(0, 0));
	T(page_of(5, 0));
	T(page_of(4096, 0));
	T(page_of(4096, NEXT));
	T(page_of(0, NEXT));
	T(page_of(0, X));
	T(page_of(0, X | NEXT));
	T(page_of(0, R | W | NEXT));
	T(page_of(4096, R | W | NEXT));
	T(page_of(0, SHARED | NEXT));
	T(page_of(0, SHARED));
	T(page_of(2 * 4096, W));
	T(page_of(0, OF_FILE | NEXT));
	T(page_of(4 * 4096, OF_FILE));
	T(page_of(4 * 4096, OF_FILE | W));
	T(page_of(0, 0x40));
}

static void told(void)
{
	own();
	for (int i = 0; i < 5; i++) {
		char name[PATH_MAX] = "";
		struct query q = { .size = sizeof q, .addr = (uint64_t)area + i * 4096, .name_size = sizeof name, .name_at = (uint64_t)name };
		T(ioctl(maps, QUERY, &q));
		T((q.end - q.start) / 4096);
		T(q.kinds);
		T(q.page_size);
		if (i != 3)
			T(q.offset);
		T(q.name_size > 1 ? strcmp(name + strlen(name) - 2, "/f") == 0 : 0);
	}
	struct query q = { .size = sizeof q, .addr = (uint64_t)area + 4 * 4096 };
	struct stat s;
	stat("f", &s);
	T(ioctl(maps, QUERY, &q));
	Y(q.ino == s.st_ino);
	T(q.name_size);
	/* What has a name of the kernel's. */
	char name[32] = "";
	q = (struct query){ .size = sizeof q, .addr = (uint64_t)name, .name_size = 32, .name_at = (uint64_t)name };
	T(ioctl(maps, QUERY, &q));
	T(q.name_size);
	S(name, 8);
	/* Too little room, and none. */
	q.name_size = 7, q.size = sizeof q;
	T(ioctl(maps, QUERY, &q));
	q = (struct query){ .size = sizeof q, .addr = (uint64_t)area, .name_size = 1, .name_at = (uint64_t)name };
	T(ioctl(maps, QUERY, &q));
	T(q.name_size);
}

static void build_id(void)
{
	char id[64] = "";
	own();
	struct query q = { .size = sizeof q, .addr = (uint64_t)strlen, .build_id_size = sizeof id, .build_id_at = (uint64_t)id };
	T(ioctl(maps, QUERY, &q));
	T(q.build_id_size);
	int sum = 0;
	for (unsigned i = 0; i < q.build_id_size; i++)
		sum = sum * 31 + id[i];
	T(sum);
	q.build_id_size = 19;
	T(ioctl(maps, QUERY, &q));
	q.build_id_size = 64, q.addr = (uint64_t)area;
	T(ioctl(maps, QUERY, &q));
	T(q.build_id_size);
	q.build_id_size = 64, q.addr = (uint64_t)area + 4 * 4096;
	T(ioctl(maps, QUERY, &q));
	T(q.build_id_size);
}

static void refused(void)
{
	struct { struct query q; char more[32]; } m = { 0 };
	own();
	m.q.addr = (uint64_t)area;
	T(ioctl(maps, QUERY, &m));
	m.q.size = 23;
	T(ioctl(maps, QUERY, &m));
	m.q.size = 24;
	T(ioctl(maps, QUERY, &m));
	T(m.q.start);
	m.q.size = 40;
	T(ioctl(maps, QUERY, &m));
	Y(m.q.start == (uint64_t)area);
	T(m.q.kinds);
	m.q.size = sizeof m;
	T(ioctl(maps, QUERY, &m));
	m.more[3] = 1;
	T(ioctl(maps, QUERY, &m));
	m.q.size = 4097;
	T(ioctl(maps, QUERY, &m));
	m.q.size = sizeof m.q, m.q.name_size = 4;
	T(ioctl(maps, QUERY, &m));
	m.q.name_size = 0, m.q.name_at = 8;
	T(ioctl(maps, QUERY, &m));
	m.q.name_at = 0, m.q.build_id_size = 4;
	T(ioctl(maps, QUERY, &m));
	T(ioctl(maps, QUERY, (void *)8));
	T(ioctl(maps, _IO('f', 18), &m));
	int others[] = { open("/proc/self/smaps", O_RDONLY), open("/proc/self/status", O_RDONLY) };
	T(ioctl(others[0], QUERY, &m));
	T(ioctl(others[1], QUERY, &m));
	/* Of a process that has ended. */
	char name[40];
	pid_t p = fork();
	if (!p)
		for (;;)
			pause();
	sprintf(name, "/proc/%d/maps", p);
	int gone = open(name, O_RDONLY);
	memset(&m, 0, sizeof m), m.q.size = sizeof m.q, m.q.addr = (uint64_t)area;
	T(ioctl(gone, QUERY, &m));
	kill(p, SIGKILL), waitpid(p, NULL, 0);
	T(ioctl(gone, QUERY, &m));
}

static const struct check all[] = { CHECK(found), CHECK(told), CHECK(build_id), CHECK(refused) };
MAIN(all)
