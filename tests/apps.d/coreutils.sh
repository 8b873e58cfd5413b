# coreutils, one after the other.
set -u
seq 1000 >n
sort -R --random-source=n n | sort -n | cmp - n && echo sorted
sort --parallel=2 -S 100k -r n | head -2
split -l 300 n part. && ls part.*
shuf -n 5 -i 1-5 | sort
cp -a n m && cmp n m && mv m k && ln -s k s && ln k h && stat -c '%h %s %a' k
install -m 751 n ins && stat -c %a ins
mkdir -p a/b/c && rmdir -p a/b/c && ls -d a 2>&1
df . >/dev/null && echo df
du -s --apparent-size -B1 n | cut -f1
head -c 100k /dev/urandom >r && sum=$(sha256sum r) && cp --reflink=auto --sparse=always r r2 && sha256sum r2 | sed s/r2/r/ | grep -c "$sum"
truncate -s 1M big && stat -c %s big && dd if=big of=big2 bs=64k status=none && cmp big big2 && echo same
tac n | head -1; paste n n | tail -1; comm -12 n <(seq 1 2 1000 | sort) 2>/dev/null | wc -l; join <(seq 3) <(seq 2 4); tr a-z A-Z <<<abc; od -An -tx1 <<<abc; base64 <<<abc; cksum n; fold -w 5 <<<abcdefghij; nl n | tail -1; wc n; uniq -c <<<x; expand <<<"	x"; factor 1234567890; numfmt --to=si 123456; printf '%05.1f\n' 3.14159; tsort <<<'a b'; cut -c1-3 <<<abcdef
date -u -d @1000000000; env -i A=b env; id -u; nproc; pwd | wc -l; realpath s | sed 's,.*/,,'; readlink s; basename /a/b; dirname /a/b; uname -s; tty; test -w n && echo w; timeout 0.2 sleep 5; echo $?
(sleep 0.2; echo x >>log) & tail -f log 2>/dev/null --pid=$! ; wait; cat log
mkfifo p; cat p & echo fifo >p; wait
mktemp -p . XXXX >tmpname; rm "$(cat tmpname)" tmpname && echo mktemp; stdbuf -o0 echo std; nice -n 5 nice; nohup echo nohup 2>/dev/null
chmod u=rwx,go= n && ls -l n | cut -c1-10; touch -d '1999-12-31 23:59:59' n && stat -c %Y n; rm -f part.* && ls
ls /proc/self/fd | wc -l >/dev/null; yes | head -3; tee t1 <<<tee; cat t1; sync t1; rm -r . 2>/dev/null; echo $?; ls /nonexistent 2>&1; cat /; echo $?; shred -u t1; pr -l 10 -h x <<<a | wc -l; who >/dev/null; uptime >/dev/null; echo $?
