# busybox's shell and tools: a static program that is every program.
set -u
cd "$(mktemp -d)"
busybox sh -c '
for i in 1 2 3; do echo $i; done | busybox tr 1-3 a-c
echo $((6*7)); x=$(busybox seq 5 | busybox awk "{s+=\$1} END {print s}"); echo $x
mkdir -p a/b; echo hello >a/b/f; busybox cp -r a c; busybox find c | busybox sort
busybox tar c a | busybox gzip | busybox zcat | busybox tar t
busybox sed s/l/L/g a/b/f; busybox md5sum a/b/f; busybox stat -c "%s %a %F" a/b/f
busybox sh -c "exit 5"; echo $?
(trap "echo got; exit 3" TERM; busybox sleep 10 & wait) & p=$!; busybox usleep 200000; kill $p; wait $p; echo $?
busybox dd if=/dev/zero bs=1k count=100 2>/dev/null | busybox wc -c
busybox sort -r a/b/f /etc/passwd | busybox head -2
busybox vi --help 2>&1 | busybox head -1
busybox ls -la / | busybox wc -l >/dev/null
busybox printf "%s\n" x y | busybox xargs -n1 busybox echo item
busybox timeout 1 busybox sleep 5; echo $?
busybox nproc; busybox id -u; busybox hostname
busybox mkfifo p; (busybox cat <p | busybox rev) & echo abc >p; wait
busybox ash -c "kill -SEGV \$\$"; echo $?
'
