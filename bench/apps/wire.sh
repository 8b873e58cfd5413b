# Programs at the ends of a pair of devices: wire.sh PROGRAM serve | wire.sh PROGRAM tell ADDRESS. Who serves prints "ready".
. /bench/apps/lib.sh
ready() { until_up "$1" && echo ready && wait; }
case "$1 $2" in
"nginx serve")
    mkdir -p html tmp
    head -c 4096 /dev/zero | tr '\0' x >html/page
    truncate -s "$(of 1073741824)" html/large
    cat >conf <<C
daemon off; master_process off; worker_processes 1; user root; pid $work/pid; error_log $work/log;
events { worker_connections 1024; }
http {
    access_log off; sendfile on; tcp_nopush on; keepalive_requests 100000000;
    client_body_temp_path $work/tmp/a; proxy_temp_path $work/tmp/b; fastcgi_temp_path $work/tmp/c;
    uwsgi_temp_path $work/tmp/d; scgi_temp_path $work/tmp/e;
    server { listen 8199; root $work/html; }
}
C
    nginx -c "$work/conf" -p "$work" >out 2>&1 &
    ready 8199
    ;;
"nginx tell")
    url=http://$3:8199
    curl -sS -o /dev/null -w 'nginx, 1 GB by curl\t%{speed_download}\tB/s\n' "$url/large"
    wrk -t 1 -c 16 -d "$(of 3)" "$url/page" | awk '/Requests\/sec/ { printf "nginx, 4 KB by wrk, kept alive\t%s\t/s\n", $2 }'
    wrk -t 1 -c 16 -d "$(of 3)" -H 'Connection: close' "$url/page" |
        awk '/Requests\/sec/ { printf "nginx, 4 KB by wrk, a connection each\t%s\t/s\n", $2 }'
    ;;
"redis serve")
    redis-server --port 6399 --bind 0.0.0.0 --protected-mode no --save '' --appendonly no --daemonize no --dir . >log 2>&1 &
    ready 6399
    ;;
"redis tell")
    for p in 1 16; do
        redis-benchmark -h "$3" -p 6399 -t set,get -n "$(of $((50000 * p)))" -c 20 -P $p --csv 2>/dev/null | tr -d '"' |
            awk -F, -v p=$p '$1 == "SET" || $1 == "GET" { printf "redis %s, -P %d\t%s\t/s\n", $1, p, $2 }'
    done
    ;;
"iperf3 serve")
    iperf3 -s >log 2>&1 &
    sleep 0.5
    echo ready
    wait
    ;;
"iperf3 tell")
    for p in 1 8; do
        for way in "" -R; do
            iperf3 -c "$3" -t "$(of 3)" -P $p $way --json |
                awk -v p=$p -v way="${way:-to it}" '/"sum_received"/ { sum = 1 } sum && /bits_per_second/ { v = $2 + 0; sum = 0 }
                    END { sub("-R", "from it", way); printf "iperf3, %d streams, %s\t%f\tMB/s\n", p, way, v / 8e6 }'
        done
    done
    ;;
esac
