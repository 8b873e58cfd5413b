/* Confidential memory, for programs in Cloister.
 *
 *     char *key = Palloc(4096);
 *     ...
 *     Pfree(key);
 *
 * What is in it is overwritten as soon as it is given up: by Pfree, by munmap, by the end of the process however it ends.
 * Cloister does not swap it out (the host may, if it swaps the sandbox), and it is in no core file. So are its copies by fork(2), and what the kernel holds of it (pipes, sockets,
 * files in memory).
 *
 * Elsewhere than in Cloister it is as good as the kernel allows: locked, if that may be, kept out of core files, and
 * overwritten by Pfree; confidential_is_kept() tells. All of it is in this file. */
#ifndef CLOISTER_H
#define CLOISTER_H

#include <errno.h>
#include <stddef.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>

/* madvise(2): what is and comes in a range is confidential. Other kernels: EINVAL. */
#define MADV_CONFIDENTIAL 0x436c6f01
/* prctl(2), with 1: all memory of the process is, of its children, and of the programs that it becomes. */
#define PR_SET_CONFIDENTIAL 0x436c6f01
/* prctl(2): whether it is. */
#define PR_GET_CONFIDENTIAL 0x436c6f02

#define CLOISTER_PAGE ((size_t)4096)

/* Before the memory that Palloc gives: how much is mapped. */
struct cloister_head {
	size_t mapped;
	size_t unused;
};

/* Whether the kernel keeps what is promised above. */
static inline int confidential_is_kept(void)
{
	int saved = errno;
	int kept = prctl(PR_GET_CONFIDENTIAL, 0, 0, 0, 0) >= 0;
	errno = saved;
	return kept;
}

/* Makes whole pages confidential: [at, at + len), both multiples of the page size. 0, or -1 with errno: EINVAL where the
 * kernel cannot, ENOMEM where something that is swapped out finds no room. */
static inline int confidential(void *at, size_t len)
{
	return madvise(at, len, MADV_CONFIDENTIAL);
}

/* So many bytes of confidential memory, zeros, aligned to 16; NULL with errno where there are none. */
static inline void *Palloc(size_t size)
{
	struct cloister_head *head;
	size_t mapped = (size + sizeof *head + CLOISTER_PAGE - 1) & ~(CLOISTER_PAGE - 1);
	if (mapped < size) {
		errno = ENOMEM;
		return NULL;
	}
	head = (struct cloister_head *)mmap(NULL, mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (head == (struct cloister_head *)MAP_FAILED)
		return NULL;
	if (confidential(head, mapped) != 0) {
		int saved = errno;
		if (saved != EINVAL) {
			munmap(head, mapped);
			errno = saved;
			return NULL;
		}
		/* Another kernel. */
		(void)mlock(head, mapped);
		(void)madvise(head, mapped, MADV_DONTDUMP);
		errno = saved = 0;
	}
	head->mapped = mapped;
	return head + 1;
}

/* Gives up what Palloc gave; NULL is nothing. */
static inline void Pfree(void *at)
{
	struct cloister_head *head;
	size_t mapped;
	if (at == NULL)
		return;
	head = (struct cloister_head *)at - 1;
	mapped = head->mapped;
	memset(head, 0, mapped);
	__asm__ __volatile__("" : : "r"(head) : "memory");
	munmap(head, mapped);
}

#endif
