# sqlite3: rollback journal and write-ahead log (shared memory), two processes at once.
set -u
sqlite3 a.db 'create table t(x integer primary key, y text); with recursive c(n) as (select 1 union all select n+1 from c where n<20000) insert into t select n, hex(n*n) from c; select count(*), sum(x), max(y) from t;'
sqlite3 a.db 'create index i on t(y); select x from t where y = hex(144*144); pragma integrity_check; delete from t where x%3=0; vacuum; select count(*) from t;'
sqlite3 w.db 'pragma journal_mode=wal; create table t(p, n);'
for p in 1 2 3; do
    (for n in $(seq 10); do echo "insert into t values($p, $n);"; done | sqlite3 -cmd '.timeout 20000' w.db) &
done
wait
sqlite3 w.db 'select p, sum(n), count(*) from t group by p order by p; pragma wal_checkpoint(truncate);'
sqlite3 w.db .dump | sort | md5sum
sqlite3 a.db .schema
sqlite3 w.db 'begin exclusive; select 1;' 'select * from nothing;'
echo $?
