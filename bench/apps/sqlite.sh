. /bench/apps/lib.sh
n=$(of 100000)
timed "sqlite: insert in one transaction" sqlite3 db "create table t(a integer primary key, b text);
    with recursive c(x) as (select 1 union all select x + 1 from c where x < $n)
    insert into t select x, hex(randomblob(16)) from c;"
timed "sqlite: index and scan" sqlite3 db "create index i on t(b); select count(*) from t where b like '%AB%';"
{
    echo "pragma synchronous=off;"
    for i in $(seq "$(of 1000)"); do echo "insert into t(b) values('$i');"; done
} >many
timed "sqlite: 1,000 transactions" sqlite3 db ".read many"
