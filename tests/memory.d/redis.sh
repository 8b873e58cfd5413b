# redis, filled with $1 MB, beside one that has little; then all is read back, if it is still there. With $2, half
# of it changes while a child saves all to that directory, and what was saved is read back as well.
cd "$(mktemp -d)" || exit
start() { # start NAME: gives its number as $started
    redis-server --port 0 --unixsocket "$PWD/$1.sock" --save '' --dir "${2:-.}" --dbfilename d.rdb --daemonize no >"$1.log" &
    started=$!
    until [ "$(redis-cli -s "$1.sock" ping 2>&1)" = PONG ]; do sleep 0.05; done
}
ask() { name=$1; shift; redis-cli -s "$name.sock" "$@"; }
fill() { ask full eval "for i = $1, $n, $2 do redis.call('set', 'k' .. i, string.rep(string.char($3 + i % 26), 10200) .. i) end return 'filled'" 0; }
count() { # count BYTE: of the odd ones
    ask full eval "local n = 0 for i = 1, $n do
        if redis.call('get', 'k' .. i) == string.rep(string.char((i % 2 == 1 and $1 or 97) + i % 26), 10200) .. i then n = n + 1 end
    end return n / $n * 100" 0
}
n=$(($1 * 100))
start beside
beside=$started
ask beside set it well >/dev/null
start full "${2:-}"
full=$started
fill 1 1 97 >out 2>&1
grep -oE '^filled|Server closed the connection' out
if kill -0 $full 2>/dev/null; then
    odd=97
    if [ -n "${2:-}" ]; then
        ask full bgsave >/dev/null
        odd=65
        fill 1 2 $odd >/dev/null
        while ask full info persistence | grep -q rdb_bgsave_in_progress:1; do sleep 0.1; done
        ask full info persistence | grep -o 'rdb_last_bgsave_status:.*' | tr -d '\r'
    fi
    echo "$(count $odd) % is right"
    ask full shutdown nosave
fi
wait $full 2>/dev/null
echo "filled: $?"
if [ -n "${2:-}" ]; then
    start full "$2"
    while ask full info persistence | grep -q ^loading:1; do sleep 0.1; done
    echo "$(count 97) % is right"
    ask full shutdown nosave
fi
echo "beside: $(ask beside get it)"
ask beside shutdown nosave
wait $beside
