. /bench/apps/lib.sh
bin=$(ls -d /usr/lib/postgresql/*/bin | tail -n 1)
chmod 755 "$work"
mkdir data sock
chown -R postgres: data sock
as() { setpriv --reuid=postgres --regid=postgres --clear-groups env HOME="$work" "$@"; }
timed "PostgreSQL initdb" as "$bin/initdb" -D "$work/data" -A trust -U postgres --no-sync
as "$bin/postgres" -D "$work/data" -k "$work/sock" -p 5499 -c fsync=off -c shared_buffers=32MB >log 2>&1 &
until_up 5499
# It listens before it is done with starting up, and refuses who comes meanwhile.
until "$bin/pg_isready" -q -h "$work/sock" -p 5499; do sleep 0.02; done
as "$bin/pgbench" -h "$work/sock" -p 5499 -U postgres -i -s 1 -q postgres >init 2>&1 || { tail -n 1 init >&2; exit 1; }
as "$bin/pgbench" -h "$work/sock" -p 5499 -U postgres -T "$(of 3)" -c 4 -n postgres 2>/dev/null |
    awk '/^tps/ { printf "pgbench, 4 clients\t%s\t/s\n", $3 }'
