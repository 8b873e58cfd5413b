# PostgreSQL in directory $1: a query takes more than there is, beside others.
cd "$1" || exit
PATH=$(ls -d /usr/lib/postgresql/*/bin | tail -n 1):$PATH
initdb -D d -k -A trust -U me >/dev/null 2>init.err || { tail -n 3 init.err; exit 1; }
cat >>d/postgresql.conf <<C
listen_addresses = ''
unix_socket_directories = '$1'
shared_buffers = 24MB
fsync = off
jit = off
autovacuum = off
C
q() { psql -h "$1" -U me -At postgres -c "$2" 2>&1; }
postgres -D d >log 2>&1 &
until [ "$(q "$1" 'select 1')" = 1 ]; do sleep 0.05; done
q "$1" "create table t as select i, repeat(md5(i::text), 30) s from generate_series(1, 20000) i"
sum="select count(*), md5(string_agg(md5(s), '' order by i)) from t"
q "$1" "$sum"
q "$1" "select array_length(array_agg(repeat(s, 3)), 1) from t, generate_series(1, 40)" | tail -n 1
until [ "$(q "$1" 'select 1')" = 1 ]; do sleep 0.05; done
q "$1" "$sum"
kill -INT $!
wait $!
echo "postmaster: $?"
pg_checksums -D d --check | grep -i bad | tr -s ' '
grep -oE '[a-z]+ process \(PID [0-9]+\) was terminated by signal 9' log | sed 's/ (.*)//'
