# redis-server and redis-benchmark; a background save (fork and copy-on-write); a restart.
set -u
p=$((47000 + $(id -u) % 100))
start() { redis-server --port $p --unixsocket s.sock --save '' --daemonize no --logfile log --dbfilename d.rdb "$@" & pid=$!
    for _ in $(seq 100); do [ "$(redis-cli -s s.sock ping 2>/dev/null)" = PONG ] && return; sleep 0.05; done; echo "no answer"; cat log; }
start
redis-cli -p $p set a 1
redis-cli -p $p incr a
redis-cli -p $p lpush l x y z
redis-cli -p $p lrange l 0 -1
redis-cli -s s.sock eval 'local s = 0 for i = 1, 1000 do s = s + i redis.call("set", "k" .. i, string.rep("v", 500)) end return s' 0
redis-benchmark -p $p -q -n 2000 -c 20 -P 4 -t set,get,incr,lpush --csv | cut -d, -f1
redis-benchmark -s s.sock -q -n 1000 -c 50 -t ping --csv | cut -d, -f1
redis-cli -p $p bgsave
for _ in $(seq 100); do redis-cli -p $p info persistence | grep -q 'rdb_bgsave_in_progress:0' && break; sleep 0.05; done
redis-cli -p $p info persistence | grep -o "rdb_last_bgsave_status:ok"
redis-cli -p $p dbsize
redis-cli -p $p shutdown nosave
wait $pid
echo "server: $?"
start --appendonly yes
redis-cli -p $p get k7 | md5sum
redis-cli -p $p config get appendonly
redis-cli -p $p set b 2
redis-cli -p $p shutdown
wait $pid
echo "server: $?"
ls -d appendonlydir
