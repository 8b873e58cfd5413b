# tar with its compressors; sparse files, links, times, attributes.
set -eu
mkdir -p t/a/b t/c
for i in $(seq 100); do seq $((i * 50)) >t/a/f$i; done
ln -s ../a/f1 t/c/link
ln t/a/f2 t/c/hard
mkfifo t/c/fifo
truncate -s 3M t/sparse
echo x | dd of=t/sparse bs=1 seek=2000000 conv=notrunc status=none
chmod 640 t/a/f3
touch -d 2001-02-03T04:05:06 t/a/f4
find t -exec touch -h -d 2020-01-01 {} +
for z in gzip xz zstd bzip2; do
    tar -c --sparse --sort=name --use-compress-program=$z -f t.$z t
    mkdir out.$z
    tar -x -f t.$z -C out.$z
    (cd out.$z && tar -c --sort=name --sparse t | md5sum)
    diff -r --no-dereference t/a out.$z/t/a
    stat -c '%n %a %h %s %F %Y' out.$z/t/a/f3 out.$z/t/c/hard out.$z/t/c/fifo out.$z/t/sparse
    readlink out.$z/t/c/link
done
xz -T2 -k -c t/a/f100 t/a/f99 | xz -dc | md5sum
zstd -T2 -q -c t.gzip | zstd -dqc | cmp - t.gzip && echo same
gzip -t t.gzip && gzip -l <t.gzip | wc -l
tar -cf - t | tar -tf - | sort | md5sum
