. /bench/apps/lib.sh
redis-server --port 6399 --save '' --appendonly no --daemonize no --dir . >log 2>&1 &
until_up 6399
redis-benchmark -p 6399 -t set,get -n "$(of 30000)" -c 20 --csv 2>/dev/null | tr -d '"' |
    awk -F, '$1 == "SET" || $1 == "GET" { printf "redis %s\t%s\t/s\n", $1, $2 }'
