# The memory experiments of ContainerVisor's paper (figures 8 to 10): whole runs, since sysbench fills its block
# before it measures.
. /bench/apps/lib.sh

# run NAME BLOCK TOTAL, in megabytes.
run() {
    timed "$1" sysbench memory --threads=1 --memory-block-size="$2M" --memory-total-size="$3M" run
}

for mb in 32 64 128 256 512; do
    block=$(of $mb)
    run "sysbench: 8 GB, by size of a block (MB)@$mb" "$block" "$(of 8192)"
    run "sysbench: a block written once, by its size (MB)@$mb" "$block" "$block"
done
for mb in 512 1024 2048 4096 8192; do
    run "sysbench: a block of 512 MB, by all that is written (MB)@$mb" "$(of 512)" "$(of $mb)"
done
