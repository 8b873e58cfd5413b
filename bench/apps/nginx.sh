. /bench/apps/lib.sh
mkdir -p html tmp
head -c 4096 /dev/zero | tr '\0' x >html/page
head -c 1048576 /dev/zero | tr '\0' x >html/big
cat >conf <<C
daemon off; master_process off; worker_processes 1; user root; pid $work/pid; error_log $work/log;
events { worker_connections 256; }
http {
    access_log off;
    client_body_temp_path $work/tmp/a; proxy_temp_path $work/tmp/b; fastcgi_temp_path $work/tmp/c;
    uwsgi_temp_path $work/tmp/d; scgi_temp_path $work/tmp/e;
    server { listen 127.0.0.1:8199; root $work/html; location /big { sendfile on; tcp_nopush on; } }
}
C
nginx -c "$work/conf" -p "$work" >out 2>&1 &
until_up 8199
wrk -t 1 -c 16 -d "$(of 3)" http://127.0.0.1:8199/page | awk '/Requests\/sec/ { printf "nginx, 4 KB by wrk\t%s\t/s\n", $2 }'
wrk -t 1 -c 8 -d "$(of 3)" http://127.0.0.1:8199/big | awk '/Requests\/sec/ { printf "nginx, 1 MB by sendfile and wrk\t%s\t/s\n", $2 }'
