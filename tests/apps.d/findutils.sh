# find, xargs and a deep tree.
set -eu
d=.
for i in $(seq 40); do d=$d/dir$i; done
mkdir -p "$d"
for i in $(seq 200); do mkdir -p "w$((i % 20))"; echo $i >"w$((i % 20))/f$i"; done
find . -type d | wc -l
# (Of what is made in one moment a busy machine makes two.)
touch -d 2001-01-01 w7/f*
find . -type f -size -2 -newer w7/f7 -o -name 'f1*' | sort | md5sum
find . -type f -print0 | sort -z | xargs -0 -n 7 -P 2 cat | sort -n | md5sum
find w3 -type f -exec rm {} +
find w4 -delete
find . -empty | sort
ln -s . loop
find -L . -maxdepth 3 2>/dev/null | wc -l
find /usr/bin -maxdepth 1 -type f -perm -4000 | sort | md5sum
find /etc -name '*.conf' 2>/dev/null | sort | md5sum
find . -path './dir1' -prune -o -type f -printf '%p %s %m %n\n' | sort | md5sum
rm -rf dir1
ls | wc -l
