// Holds memory, and tells how it is: holder NAME MB. It writes its number in DIR/NAME.pid, waits for DIR/go,
// fills MB megabytes, and looks at all of them once; then it writes "done" or what is wrong to DIR/NAME.done,
// and waits. DIR is /shown.
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static void say(const char *name, const char *suffix, const char *text)
{
	char path[256], tmp[300];
	snprintf(path, sizeof path, "/shown/%s.%s", name, suffix);
	snprintf(tmp, sizeof tmp, "%s.new", path);
	int fd = open(tmp, O_WRONLY | O_CREAT | O_TRUNC, 0666);
	if (fd < 0 || write(fd, text, strlen(text)) < 0)
		_exit(3);
	close(fd);
	rename(tmp, path);
}

static uint64_t word(uint64_t seed, size_t i)
{
	return (seed + i) * 0x9e3779b97f4a7c15;
}

int main(int argc, char **argv)
{
	if (argc != 3)
		return 2;
	const char *name = argv[1];
	size_t words = strtoull(argv[2], NULL, 10) << 17;
	uint64_t seed = (uint64_t)getpid() << 32;
	char text[64];
	snprintf(text, sizeof text, "%d", getpid());
	say(name, "pid", text);
	while (access("/shown/go", F_OK))
		usleep(5000);
	uint64_t *m = mmap(NULL, words * 8, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (m == MAP_FAILED)
		return 4;
	for (size_t i = 0; i < words; i++)
		m[i] = word(seed, i);
	size_t wrong = 0;
	say(name, "filled", "yes");
	while (access("/shown/look", F_OK))
		usleep(5000);
	for (size_t i = 0; i < words; i++)
		wrong += m[i] != word(seed, i);
	snprintf(text, sizeof text, wrong ? "%zu words are wrong" : "whole", wrong);
	say(name, "done", text);
	for (;;)
		pause();
}
