# What the applications' scripts share: source it. They run as root in a bundle, in an empty directory of the
# root, and print "name<TAB>value<TAB>unit" lines. BENCH_PART is the share of the full size.
set -eu
PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin:/usr/local/go/bin
HOME=/root
LANG=C
export PATH HOME LANG
work=$(mktemp -d /bench/root/app.XXXXXX)
cd "$work"
# What still runs ends with the container.
trap 'status=$?; kill $(jobs -p) 2>/dev/null || true; cd /; rm -rf "$work"; exit $status' EXIT

# of N: the part of N that this run does, at least 1.
of() { awk -v n="$1" -v p="${BENCH_PART:-1}" 'BEGIN { m = int(n * p); print m < 1 ? 1 : m }'; }

# timed NAME COMMAND...: its time in milliseconds; what it prints is lost, unless it fails.
timed() {
    local name=$1 start status=0
    shift
    start=${EPOCHREALTIME/./}
    "$@" >"$work.out" 2>&1 || status=$?
    local end=${EPOCHREALTIME/./}
    if [ "$status" != 0 ]; then
        printf '%s\tfailed\tstatus %s: %s\n' "$name" "$status" "$(tail -n 1 "$work.out" | tr '\t' ' ')"
    else
        printf '%s\t%s.%03d\tms\n' "$name" $(((end - start) / 1000)) $(((end - start) % 1000))
    fi
    rm -f "$work.out"
}

# until_up PORT: waits for somebody who listens there.
until_up() {
    local i
    for i in $(seq 200); do
        (exec 3<>"/dev/tcp/127.0.0.1/$1") 2>/dev/null && return
        sleep 0.05
    done
    echo "nobody listens at port $1" >&2
    exit 1
}
