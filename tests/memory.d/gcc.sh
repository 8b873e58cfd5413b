# make -j4 of four large units, then of what is missing, one by one.
cd "$(mktemp -d)" || exit
for k in 0 1 2 3; do
    for i in $(seq 120); do
        echo "int g${k}_$i(int a, int b) { int s = 0; for (int i = 0; i < a; i++) { s += a * i + b; if (s % ($i + 3) == 0) s ^= i; } return s + $i; }"
    done >f$k.c
done
printf 'all: f0.o f1.o f2.o f3.o\n%%.o: %%.c\n\tgcc -O2 -c -o $@ $<\n' >Makefile
make -s -k -j4 2>log
echo "make: $?"
grep -v 'Killed signal terminated program cc1$' log | grep -ci 'error:'
make -s 2>&1
echo "again: $?"
cat f?.o | sha256sum
