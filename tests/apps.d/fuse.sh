# File systems that programs serve: bindfs, squashfuse, fuse-overlayfs, sshfs. In mounts of their own.
if [ "$(id -u)" != 0 ] || ! : <>/dev/fuse; then
    # (fusermount3 opens /dev/fuse as the user, whom a machine may not let.)
    echo "skip: fuse wants root, and /dev/fuse"
    exit 0
fi 2> /dev/null
if [ "${1:-}" != within ]; then
    exec unshare -m --propagation private bash "$0" within
fi
mkdir a b c l u w m far
echo one > a/x && cp /bin/true a/true && ln -s x a/link && mkdir -p a/d/e

echo "== bindfs"
bindfs a b || exit 1
ls b b/d
cat b/x b/link
echo two >> b/x && cat a/x
b/true && echo runs
dd if=/dev/zero of=b/big bs=1M count=8 status=none && cmp a/big b/big && stat -c '%s %A' b/big
cp b/big b/copy && sha256sum < b/copy
truncate -s 1000 b/copy && stat -c %s a/copy
mv b/copy b/d/moved && ln b/x b/hard && stat -c %h b/x && rm b/big b/hard && ls a a/d
chmod 640 b/x && stat -c %A a/x
touch -d @1000 b/x && stat -c %Y a/x
mkfifo b/fifo && { echo through > b/fifo & cat b/fifo; wait; }
python3 - <<'P'
import mmap, os
f = os.open("b/mapped", os.O_RDWR | os.O_CREAT)
os.ftruncate(f, 10000)
m = mmap.mmap(f, 10000)
m[9990:9995] = b"tail!"
m.flush()
print(open("a/mapped", "rb").read()[9990:9995])
m[0:4] = b"head"
m.close()
os.close(f)
print(open("a/mapped", "rb").read()[:4])
P
gcc -o b/prog -x c - <<'C' && b/prog
#include <stdio.h>
int main(void) { puts("compiled there"); }
C
(cd b && git init -q repo && cd repo && git config user.email a@b && git config user.name n && echo x > f && git add f && git commit -qm first && git log --oneline | wc -l && git fsck && git gc -q && git status --short)
(cd b && sqlite3 db 'create table t(a); insert into t values(1),(2); select sum(a) from t; pragma integrity_check;')
tar cf b/all.tar -C a x d && tar tf b/all.tar | sort
find b -name e
gcc -O1 -o exercise "$APPS_D/fuse/exercise.c"
for seed in 1 2 3; do
    ./exercise b/random 2000 $seed
    ./exercise b/random 2000 $seed held
done
grep -c fuse /proc/mounts
fusermount3 -u b && ls b

echo "== squashfuse"
mksquashfs /usr/share/perl5 p.sqfs -quiet -no-progress > /dev/null
squashfuse p.sqfs c && diff -r c /usr/share/perl5 && echo same
touch c/x 2>&1 | sed 's/.*: //'
umount c

echo "== fuse-overlayfs"
echo low > l/f; echo gone > l/g
fuse-overlayfs -o lowerdir=l,upperdir=u,workdir=w m 2> /dev/null && cat m/f
echo up > m/f && rm m/g && mkdir m/d && mv m/f m/d/ && cat m/d/f && find m | sort
umount m
find u ! -name "*g" | sort

echo "== sshfs"
printf '#!/bin/sh\nexec /usr/lib/openssh/sftp-server\n' > ssh && chmod 755 ssh
sshfs -o ssh_command="$PWD/ssh" somewhere:"$PWD/a" far && cat far/x
echo three > far/y && cat a/y && mv far/y far/z && ls far && rm far/z
dd if=/dev/urandom of=far/big bs=1M count=4 status=none && cmp far/big a/big && echo equal
umount far

echo "== a server that dies"
bindfs -f a b & server=$!
while ! mountpoint -q b; do sleep 0.1; done
exec 5< b/x
kill -9 $server
wait $server 2> /dev/null
cat b/x 2>&1 | sed 's/.*: //'
cat <&5 2>&1 | sed 's/.*: //'
exec 5<&-
umount b && ls b
