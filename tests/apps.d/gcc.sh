# gcc, g++ and make -j: programs with threads, built and run.
set -eu
mkdir src
cat >Makefile <<'M'
OBJ = $(patsubst src/%.c,%.o,$(wildcard src/*.c))
prog: $(OBJ)
	gcc -pthread -o $@ $(OBJ)
%.o: src/%.c
	gcc -O1 -Wall -pthread -c -o $@ $<
M
for i in $(seq 12); do
    echo "int f$i(int x) { int s = 0; for (int i = 0; i < x; i++) s += i * $i; return s; }" >src/f$i.c
done
cat >src/main.c <<'C'
#include <pthread.h>
#include <stdio.h>
int f1(int), f12(int);
static pthread_mutex_t m = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t c = PTHREAD_COND_INITIALIZER;
static long sum; static int turn;
static __thread int local;
static void *run(void *p) {
    long me = (long)p;
    for (int i = 0; i < 2000; i++) {
        pthread_mutex_lock(&m); sum += me; local++; pthread_mutex_unlock(&m);
    }
    pthread_mutex_lock(&m);
    while (turn != me) pthread_cond_wait(&c, &m);
    printf("thread %ld local %d\n", me, local);
    turn++;
    pthread_cond_broadcast(&c);
    pthread_mutex_unlock(&m);
    return (void *)(me * 2);
}
int main(void) {
    pthread_t t[16]; long r = 0;
    for (long i = 0; i < 16; i++) pthread_create(&t[i], 0, run, (void *)i);
    for (int i = 0; i < 16; i++) { void *v; pthread_join(t[i], &v); r += (long)v; }
    printf("%ld %ld %d %d\n", sum, r, f1(100), f12(100));
    return 3;
}
C
make -s -j2
./prog && s=0 || s=$?
echo "prog: $s"
cat >x.cc <<'C'
#include <iostream>
#include <stdexcept>
#include <thread>
#include <vector>
#include <atomic>
int main() {
    std::atomic<int> n{0};
    std::vector<std::thread> v;
    for (int i = 0; i < 8; i++) v.emplace_back([&] { try { throw std::runtime_error("x"); } catch (std::exception &) { n++; } });
    for (auto &t : v) t.join();
    std::cout << n << std::endl;
}
C
g++ -O1 -pthread -o x x.cc
./x
gcc -static -O1 -o st -x c - <<'C'
#include <stdio.h>
#include <stdlib.h>
#include <signal.h>
#include <unistd.h>
static void on(int s) { printf("signal %d\n", s); fflush(stdout); _exit(9); }
int main(void) { signal(SIGSEGV, on); *(volatile int *)8 = 1; }
C
./st && s=0 || s=$?
echo "st: $s"
make -s
echo 'int f3(int x) { return x; }' >src/f3.c
touch -d '+2 seconds' src/f3.c
make -n | wc -l
