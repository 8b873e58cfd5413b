/* System V IPC: shared memory, semaphores, message queues. */
#define AREA "sysv"
#include "check.h"
#include <sys/ipc.h>
#include <sys/msg.h>
#include <sys/sem.h>
#include <sys/shm.h>

static int own_key(int n)
{
	return 0x10000000 + getpid() * 16 + n;
}

static long fails(void *p)
{
	return p == (void *)-1 ? -1 : 0;
}

static long attaches(int id)
{
	struct shmid_ds d;
	return shmctl(id, IPC_STAT, &d) ? -1 : (long)d.shm_nattch;
}

static void memory(void)
{
	struct shmid_ds d;
	int k = own_key(1);
	T(shmget(k, 8192, 0600));
	int id = shmget(k, 8000, IPC_CREAT | IPC_EXCL | 0640);
	Y(id >= 0);
	T(shmget(k, 8192, IPC_CREAT | IPC_EXCL | 0600));
	Y(shmget(k, 100, 0600) == id);
	T(shmget(k, 9000, 0600));
	T(shmget(IPC_PRIVATE, 0, 0600));
	T(shmctl(id, IPC_STAT, &d));
	T(d.shm_segsz);
	T(d.shm_perm.mode);
	T(d.shm_nattch);
	Y(d.shm_cpid == getpid() && d.shm_lpid == 0 && d.shm_atime == 0 && d.shm_ctime > 0);
	Y(d.shm_perm.__key == k && d.shm_perm.uid == geteuid());
	char *p = shmat(id, NULL, 0);
	Y(p != (void *)-1);
	T(p[0] + p[8191]);
	strcpy(p, "shared");
	char *q = shmat(id, NULL, SHM_RDONLY);
	S(q, 6);
	T(attaches(id));
	T(mprotect(q, 4096, PROT_READ | PROT_WRITE));
	T(CHILD(strcpy(p, "by a child"); _exit(attaches(id))));
	T(attaches(id));
	S(q, 10);
	T(fails(shmat(id, p, 0)));
	T(fails(shmat(id, p + 1, 0)));
	T(fails(shmat(id, NULL, SHM_REMAP)));
	T(shmat(id, p + 100, SHM_RND | SHM_REMAP) == p);
	T(fails(shmat(12345678, NULL, 0)));
	T(fails(shmat(-1, NULL, 0)));
	T(shmdt(p + 1));
	T(shmdt(p + 4096));
	T(shmdt(q));
	T(shmdt(q));
	shmctl(id, IPC_STAT, &d);
	Y(d.shm_lpid == getpid() && d.shm_dtime > 0);
	d.shm_perm.mode = 0604;
	T(shmctl(id, IPC_SET, &d));
	shmctl(id, IPC_STAT, &d);
	T(d.shm_perm.mode);
	T(CHILD(drop_root(); if (getuid() == 65534) _exit(fails(shmat(id, NULL, 0)) == -1 ? errno : 0); _exit(EACCES)));
	T(CHILD(drop_root(); if (getuid() == 65534) _exit(shmctl(id, IPC_RMID, NULL) == -1 ? errno : 0); _exit(EPERM)));
	T(shmctl(id, IPC_RMID, NULL));
	T(shmget(k, 0, 0));
	shmctl(id, IPC_STAT, &d);
	T(d.shm_perm.mode);
	T(d.shm_perm.__key);
	S(p, 10);
	T(CHILD(char *r = shmat(id, NULL, 0); _exit(r != (void *)-1 && !strcmp(r, "by a child"))));
	T(shmdt(p));
	T(shmctl(id, IPC_STAT, &d));
	T(shmctl(id, IPC_RMID, NULL));
	T(shmctl(0x7fffffff, IPC_STAT, &d));
	T(shmctl(-1, IPC_STAT, &d));
	id = shmget(IPC_PRIVATE, 4096, 0600);
	T(shmctl(id, 999, &d));
	T(shmctl(id, IPC_STAT, (void *)8));
	struct shminfo i;
	T(shmctl(0, IPC_INFO, (void *)&i) >= 0);
	T(i.shmmin);
	p = shmat(id, NULL, 0);
	/* Part of it unmapped: the rest is still attached. */
	shmctl(id, IPC_RMID, NULL);
	T(CHILD(execl("/bin/true", "true", NULL)));
	T(attaches(id));
	T(munmap(p, 4096));
	T(attaches(id));
}

static int val(int id, int n)
{
	return semctl(id, n, GETVAL);
}

static long op(int id, int n, int d, int flags)
{
	struct sembuf b = { n, d, flags };
	return semop(id, &b, 1);
}

static void semaphores(void)
{
	int k = own_key(2);
	struct semid_ds d;
	T(semget(k, 1, 0600));
	T(semget(k, 0, IPC_CREAT | 0600));
	T(semget(k, -1, IPC_CREAT | 0600));
	T(semget(k, 40000, IPC_CREAT | 0600));
	int id = semget(k, 3, IPC_CREAT | 0600);
	Y(id >= 0);
	T(semget(k, 4, 0600));
	Y(semget(k, 0, 0600) == id);
	T(val(id, 0));
	T(op(id, 0, 2, 0));
	T(val(id, 0));
	T(op(id, 0, -3, IPC_NOWAIT));
	T(op(id, 0, 0, IPC_NOWAIT));
	T(op(id, 1, 0, 0));
	T(op(id, 3, 1, 0));
	T(op(id, 0, 32766, 0));
	struct sembuf two[2] = { { 0, -1, 0 }, { 1, -1, IPC_NOWAIT } };
	T(semop(id, two, 2));
	T(val(id, 0));
	two[1].sem_op = 1;
	T(semop(id, two, 2));
	T(val(id, 0) * 10 + val(id, 1));
	T(semop(id, two, 0));
	T(semop(id, two, 501));
	T(semop(id, (void *)8, 1));
	T(semop(-1, two, 1));
	T(semop(12345678, two, 1));
	struct timespec t = { 0, 20000000 }, bad = { 0, -1 };
	two[0].sem_num = 2;
	long long s = now_ms();
	T(semtimedop(id, two, 1, &t));
	Y(now_ms() - s >= 20);
	T(semtimedop(id, two, 1, &bad));
	T(semctl(id, 0, SETVAL, 7));
	T(semctl(id, 0, SETVAL, -1));
	T(semctl(id, 0, SETVAL, 32768));
	T(semctl(id, 3, SETVAL, 1));
	T(semctl(id, 3, GETVAL));
	Y(semctl(id, 0, GETPID) == getpid());
	unsigned short v[3] = { 1, 2, 3 };
	T(semctl(id, 0, SETALL, v));
	memset(v, 0, sizeof v);
	T(semctl(id, 0, GETALL, v));
	T(v[0] * 100 + v[1] * 10 + v[2]);
	T(semctl(id, 0, IPC_STAT, &d));
	T(d.sem_nsems);
	T(d.sem_perm.mode);
	Y(d.sem_otime > 0 && d.sem_ctime > 0);
	T(semctl(id, 0, 999, 0));
	T(semctl(-1, 0, GETVAL));
	/* SEM_UNDO. */
	T(CHILD(op(id, 0, 5, SEM_UNDO); op(id, 1, -1, SEM_UNDO); op(id, 2, 4, 0); _exit(val(id, 0))));
	T(val(id, 0) * 100 + val(id, 1) * 10 + val(id, 2));
	T(CHILD(op(id, 0, 5, SEM_UNDO); semctl(id, 0, SETVAL, 3)));
	T(val(id, 0));
	T(CHILD(op(id, 0, -3, SEM_UNDO); kill(getpid(), SIGKILL)));
	T(val(id, 0));
	/* Waiting. */
	semctl(id, 0, SETVAL, 0);
	pid_t c = fork();
	if (!c)
		_exit(op(id, 0, -2, 0) == 0 ? 3 : 4);
	ms(20);
	T(semctl(id, 0, GETNCNT));
	T(semctl(id, 0, GETZCNT));
	T(op(id, 0, 1, 0));
	ms(10);
	T(waitpid(c, NULL, WNOHANG));
	T(op(id, 0, 1, 0));
	int st;
	waitpid(c, &st, 0);
	T(WEXITSTATUS(st));
	T(val(id, 0));
	semctl(id, 0, SETVAL, 1);
	c = fork();
	if (!c)
		_exit(op(id, 0, 0, 0) == 0 ? 5 : 6);
	ms(20);
	T(semctl(id, 0, GETZCNT));
	T(op(id, 0, -1, 0));
	waitpid(c, &st, 0);
	T(WEXITSTATUS(st));
	c = fork();
	if (!c)
		_exit(op(id, 0, -1, 0) == -1 && errno == EIDRM ? 7 : 8);
	ms(20);
	T(semctl(id, 0, IPC_RMID));
	waitpid(c, &st, 0);
	T(WEXITSTATUS(st));
	T(op(id, 0, 1, 0));
	T(semctl(id, 0, IPC_RMID));
}

static void on(int s)
{
	(void)s;
}

static void interrupted(void)
{
	int id = semget(IPC_PRIVATE, 1, 0600), q = msgget(IPC_PRIVATE, 0600);
	struct sigaction a = { .sa_handler = on, .sa_flags = SA_RESTART };
	struct { long type; char text[8]; } m;
	sigaction(SIGUSR1, &a, NULL);
	for (int i = 0; i < 2; i++) {
		pid_t c = fork();
		if (!c) {
			ms(20);
			kill(getppid(), SIGUSR1);
			_exit(0);
		}
		if (i)
			T(msgrcv(q, &m, 8, 0, 0));
		else
			T(op(id, 0, -1, 0));
		waitpid(c, NULL, 0);
	}
	semctl(id, 0, IPC_RMID);
	msgctl(q, IPC_RMID, NULL);
}

static void messages(void)
{
	struct { long type; char text[9000]; } m = { 5, "five" };
	struct msqid_ds d;
	int k = own_key(3), st;
	T(msgget(k, 0600));
	int q = msgget(k, IPC_CREAT | 0600);
	Y(q >= 0);
	T(msgget(k, IPC_CREAT | IPC_EXCL | 0600));
	T(msgsnd(q, &m, 5, 0));
	m.type = 3, strcpy(m.text, "three");
	T(msgsnd(q, &m, 6, 0));
	m.type = 0;
	T(msgsnd(q, &m, 6, 0));
	m.type = 1;
	T(msgsnd(q, &m, 8193, 0));
	T(msgsnd(q, &m, -1, 0));
	T(msgsnd(q, (void *)8, 1, 0));
	T(msgsnd(-1, &m, 1, 0));
	T(msgctl(q, IPC_STAT, &d));
	T(d.msg_qnum);
	T(d.__msg_cbytes);
	T(d.msg_qbytes);
	Y(d.msg_lspid == getpid() && d.msg_lrpid == 0 && d.msg_stime > 0);
	T(msgrcv(q, &m, 3, 3, IPC_NOWAIT));
	T(msgrcv(q, &m, 3, 3, IPC_NOWAIT | MSG_NOERROR));
	S(m.text, 3);
	T(msgrcv(q, &m, 100, 3, IPC_NOWAIT));
	T(msgrcv(q, &m, 100, -4, IPC_NOWAIT));
	T(msgrcv(q, &m, 100, 5, IPC_NOWAIT | MSG_EXCEPT));
	T(msgrcv(q, &m, 100, -9, IPC_NOWAIT));
	T(m.type);
	S(m.text, 5);
	T(msgrcv(q, &m, -1, 0, IPC_NOWAIT));
	T(msgrcv(q, &m, 100, 0, IPC_NOWAIT));
	T(msgrcv(q, &m, 0, 0, IPC_NOWAIT));
	m.type = 1;
	T(msgsnd(q, &m, 0, 0));
	T(msgrcv(q, &m, 0, 0, IPC_NOWAIT));
	for (int i = 0; i < 2; i++)
		T(msgsnd(q, &m, 8192, IPC_NOWAIT));
	T(msgsnd(q, &m, 1, IPC_NOWAIT));
	pid_t c = fork();
	if (!c) {
		m.type = 9;
		_exit(msgsnd(q, &m, 1, 0) == 0 ? 3 : 4);
	}
	ms(20);
	T(waitpid(c, NULL, WNOHANG));
	T(msgrcv(q, &m, 9000, 0, 0));
	waitpid(c, &st, 0);
	T(WEXITSTATUS(st));
	T(msgrcv(q, &m, 9000, 9, 0));
	T(msgrcv(q, &m, 9000, 0, 0));
	c = fork();
	if (!c)
		_exit(msgrcv(q, &m, 100, 7, 0) == 2 ? 5 : 6);
	ms(20);
	m.type = 6;
	msgsnd(q, &m, 1, 0);
	ms(10);
	T(waitpid(c, NULL, WNOHANG));
	m.type = 7;
	msgsnd(q, &m, 2, 0);
	waitpid(c, &st, 0);
	T(WEXITSTATUS(st));
	msgctl(q, IPC_STAT, &d);
	d.msg_qbytes = 10;
	T(msgctl(q, IPC_SET, &d));
	T(msgsnd(q, &m, 20, IPC_NOWAIT));
	d.msg_qbytes = 1 << 20;
	T(CHILD(drop_root(); if (getuid() == 65534) _exit(msgctl(q, IPC_SET, &d) == -1 ? errno : 0); _exit(EPERM)));
	T(CHILD(drop_root(); if (getuid() == 65534) _exit(msgsnd(q, &m, 1, IPC_NOWAIT) == -1 ? errno : 0); _exit(EACCES)));
	c = fork();
	if (!c)
		_exit(msgrcv(q, &m, 100, 77, 0) == -1 && errno == EIDRM ? 7 : 8);
	ms(20);
	T(msgctl(q, IPC_RMID, NULL));
	waitpid(c, &st, 0);
	T(WEXITSTATUS(st));
	T(msgrcv(q, &m, 100, 0, 0));
	T(msgctl(q, 999, &d));
	struct msginfo i;
	T(msgctl(0, IPC_INFO, (void *)&i) >= 0);
	T(i.msgmax);
}

static void cooperation(void)
{
	/* Counting in shared memory, guarded by a semaphore. */
	int sem = semget(IPC_PRIVATE, 1, 0600), shm = shmget(IPC_PRIVATE, 4096, 0600);
	volatile int *n = shmat(shm, NULL, 0);
	semctl(sem, 0, SETVAL, 1);
	shmctl(shm, IPC_RMID, NULL);
	for (int k = 0; k < 4; k++)
		if (!fork()) {
			for (int i = 0; i < 200; i++) {
				op(sem, 0, -1, SEM_UNDO);
				int v = *n;
				if (i % 20 == 0)
					sched_yield();
				*n = v + 1;
				op(sem, 0, 1, SEM_UNDO);
			}
			_exit(0);
		}
	while (wait(NULL) > 0) {}
	T(*n);
	T(val(sem, 0));
	semctl(sem, 0, IPC_RMID);
}

/* A setting of the ipc namespace, as a path. */
static char *setting(const char *name)
{
	static char path[100];
	sprintf(path, "/proc/sys/kernel/%s", name);
	return path;
}
static long set(const char *name, const char *text)
{
	int fd = open(setting(name), O_WRONLY);
	if (fd < 0)
		return -1;
	long n = write(fd, text, strlen(text));
	int e = errno;
	close(fd);
	errno = e;
	return n;
}
static void shows(const char *name)
{
	char b[200] = "";
	int fd = open(setting(name), O_RDONLY);
	long n = read(fd, b, sizeof b);
	close(fd);
	bytes(name, b, n > 0 ? n : 0);
}

/* What a namespace allows (/proc/sys/kernel). */
static void limited(void)
{
	static const char *const names[] = { "shmmax", "shmall", "shmmni", "msgmax", "msgmnb", "msgmni", "sem",
		"shm_next_id", "sem_next_id", "msg_next_id" };
	if (unshare(CLONE_NEWIPC))
		return;
	for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
		struct stat s = { 0 };
		shows(names[i]);
		T(stat(setting(names[i]), &s));
		T(s.st_mode);
	}
	T(set("msgmni", "2"));
	shows("msgmni");
	T(set("msgmni", "-1"));
	T(set("msgmni", "32769"));
	T(set("msgmni", "x"));
	T(set("msgmnb", "50\n"));
	T(set("msgmax", "40"));
	int q = msgget(IPC_PRIVATE, 0600);
	Y(q >= 0 && msgget(IPC_PRIVATE, 0600) >= 0);
	T(msgget(IPC_PRIVATE, 0600));
	struct msqid_ds d;
	msgctl(q, IPC_STAT, &d);
	T(d.msg_qbytes);
	struct { long type; char text[100]; } m = { 1 };
	T(msgsnd(q, &m, 41, IPC_NOWAIT));
	T(msgsnd(q, &m, 40, IPC_NOWAIT));
	T(msgsnd(q, &m, 11, IPC_NOWAIT));
	struct msginfo mi;
	Y(msgctl(0, IPC_INFO, (void *)&mi) == 1);
	T(mi.msgmni); T(mi.msgmax); T(mi.msgmnb); T(mi.msgpool); T(mi.msgtql);
	T(set("sem", "10 20 5 3"));
	shows("sem");
	T(semget(IPC_PRIVATE, 11, 0600));
	int s = semget(IPC_PRIVATE, 10, 0600);
	Y(s >= 0 && semget(IPC_PRIVATE, 9, 0600) >= 0);
	T(semget(IPC_PRIVATE, 2, 0600));
	Y(semget(IPC_PRIVATE, 1, 0600) >= 0);
	T(semctl(s, 0, IPC_RMID));
	Y((s = semget(IPC_PRIVATE, 10, 0600)) >= 0);
	T(semget(IPC_PRIVATE, 1, 0600));
	struct sembuf b[6] = { { 0, 1, 0 } };
	T(semop(s, b, 6));
	T(semop(s, b, 1));
	struct seminfo si;
	Y(semctl(0, 0, IPC_INFO, &si) == 2);
	T(si.semmni); T(si.semmns); T(si.semmsl); T(si.semopm); T(si.semmnu); T(si.semmap); T(si.semume);
	T(set("sem", "11 21 6 40000"));
	shows("sem");
	T(set("shmmax", "8192"));
	T(set("shmall", "3"));
	T(shmget(IPC_PRIVATE, 8193, 0600));
	int h = shmget(IPC_PRIVATE, 8192, 0600);
	T(shmget(IPC_PRIVATE, 8192, 0600));
	T(set("shmmni", "2"));
	Y(shmget(IPC_PRIVATE, 4096, 0600) >= 0);
	T(set("shmall", "100"));
	T(shmget(IPC_PRIVATE, 1, 0600));
	struct shminfo hi;
	Y(shmctl(0, IPC_INFO, (void *)&hi) >= 1);
	T(hi.shmmax); T(hi.shmmni); T(hi.shmseg); T(hi.shmall);
	T(shmctl(h, IPC_RMID, NULL));
	T(CHILD(drop_root(); _exit(set("shmmax", "1") < 0 ? errno : 0)));
	T(CHILD(drop_root(); _exit(set("shm_next_id", "1") < 0 ? errno : 0)));
}

/* The identifier that the next object is to have, and the objects of a namespace. */
static void next_ids(void)
{
	char line[400];
	if (unshare(CLONE_NEWIPC))
		return;
	T(set("shm_next_id", "-1"));
	T(set("shm_next_id", "98765"));
	shows("shm_next_id");
	int a = shmget(0x1234, 5000, IPC_CREAT | 0640);
	T(a);
	shows("shm_next_id");
	T(set("shm_next_id", "98765"));
	Y(shmget(IPC_PRIVATE, 1, 0600) != a);
	T(set("msg_next_id", "77"));
	T(msgget(0x77, IPC_CREAT | 0604));
	T(set("sem_next_id", "88"));
	T(semget(0x88, 3, IPC_CREAT | 0666));
	shmat(a, NULL, 0);
	static const char *const files[] = { "shm", "msg", "sem" };
	for (int i = 0; i < 3; i++) {
		sprintf(line, "/proc/sysvipc/%s", files[i]);
		FILE *f = fopen(line, "r");
		for (int n = 0; f && fgets(line, sizeof line, f); n++) {
			/* Times and processes are not the same each time. */
			int many = 0, at = 0;
			if (n > 0 && i == 0)
				sscanf(line, "%*d %*d %*o %*u%n %*d %*d %d", &at, &many);
			else if (n > 0)
				sscanf(line, i == 1 ? "%*d %*d %*o %*u %*u%n" : "%*d %*d %*o %*u %*u %*u %*u %*u%n", &at);
			say(files[i], "%ld: %.*s: %d", (long)strlen(line), at ? at : (int)strlen(line) - 1, line, many);
		}
		if (f)
			fclose(f);
	}
}

static const struct check all[] = {
	CHECK(limited), CHECK(next_ids),
	CHECK(memory), CHECK(semaphores), CHECK(interrupted), CHECK(messages), CHECK(cooperation),
};
MAIN(all)
