# What looks at the machine and at processes: each must find what it looks for, in the form that it reads.
# Figures are the machine's own: their names and numbers are compared, not what they say.
set -u
names() { sed 's/[0-9][0-9.,]*/N/g' | tr -s ' '; }
lscpu | grep -E '^(Architecture|CPU\(s\)|On-line|Vendor|Model name|Thread|Core|Socket|NUMA)' | tr -s ' '; lscpu -p | grep -v '^#' | cut -d, -f1-4
lscpu -C | awk '{print $1, $2, $4, $6}' | grep -v ^L3
lsblk >lsblk.out 2>&1; echo "lsblk $?"
free | awk '{print $1, NF}'; vmstat | awk '{print NF}'; vmstat -s | sed 's/ *[0-9]* //' | head -n 9
ps -eo pid,ppid,stat,pcpu,pmem,rss,nlwp,tty,comm >ps.out; echo "ps $? $(grep -c ' ps$' ps.out)"
top -bn1 | head -n 1 | cut -d' ' -f1; echo "top $?"
for tool in iostat 'mpstat -P ALL' numastat 'lstopo-no-graphics --no-io --no-caches' 'pidstat' 'htop --version' 'lsof -p $$'; do
    command -v "${tool%% *}" >/dev/null || { echo "left out: ${tool%% *} is not installed"; continue; }
    eval "$tool" >tool.out 2>tool.err; echo "${tool%% *} $? $(grep -ciE 'fail|error|abort|invalid' tool.err)"
done
lstopo-no-graphics --no-io --no-caches --of console 2>/dev/null | grep -cE ' (Core|PU) '
for f in cgroups diskstats interrupts softirqs partitions pressure/cpu pressure/io pressure/memory net/snmp net/netstat net/sockstat net/sockstat6 \
    net/protocols net/dev net/softnet_stat net/snmp6 sys/fs/file-nr self/numa_maps self/sched self/schedstat self/stat self/io; do
    [ -r "/proc/$f" ] && cat "/proc/$f" >/dev/null; echo "$f $?"
done
head -n 1 /proc/cgroups; head -n 1 /proc/partitions; names </proc/pressure/memory; head -n 1 /proc/net/protocols; sed -n 's/^\(Tcp\|Udp\|Ip\): [A-Z].*/&/p' /proc/net/snmp
awk '{ print NF, $13 }' /proc/net/softnet_stat; awk '{ print NF, ($1 > 0), $2 }' /proc/sys/fs/file-nr
command -v numactl >/dev/null && { numactl --show | names; numactl --hardware | grep -E '^(available|node 0 cpus|node distances)'; numactl --interleave=all --cpunodebind=0 numactl --show | head -n 2; numactl --membind=1 true 2>&1; }
grep -oE '^(pgpgin|pgpgout|pswpin|pswpout|pgfault|pgmajfault|oom_kill) ' /proc/vmstat; grep -oE '^(Ip6InOctets|Ip6OutOctets|Icmp6InErrors|Udp6InDatagrams|UdpLite6InErrors) ' /proc/net/snmp6
cut -d' ' -f1-3 /proc/net/sockstat | names; stat -c '%a %n' /proc/self/{pagemap,stack,numa_maps,sched,schedstat}
cat /sys/devices/system/cpu/cpu0/topology/{core_cpus,thread_siblings,package_cpus}_list /sys/devices/system/cpu/cpu0/cache/index*/{level,type}
cat /sys/devices/system/node/node0/{cpumap,cpulist,distance}; names </sys/devices/system/node/node0/meminfo | grep -E 'Mem(Total|Free)'
ls -d /sys/dev/block /sys/class/{power_supply,thermal,block,net}
cat >p.py <<'P'
import mmap, os, struct
m = mmap.mmap(-1, 4 * 4096)
m[0] = 1; m[2 * 4096] = 1
import ctypes
at = ctypes.addressof(ctypes.c_char.from_buffer(m))
with open('/proc/self/pagemap', 'rb', buffering=0) as f:
    there = struct.unpack('4Q', os.pread(f.fileno(), 32, at // 4096 * 8))
    print([p >> 63 for p in there])
    for n, o in [(7, 0), (8, 3)]:
        try: os.pread(f.fileno(), n, o); print('read')
        except OSError as e: print(e)
    print(os.pread(f.fileno(), 8, 0) == bytes(8), os.pread(f.fileno(), 8, 1 << 50))
try:
    import psutil as p
    print(len(p.cpu_times(percpu=True)) == p.cpu_count(), p.virtual_memory().total > 0, p.swap_memory().percent >= 0, p.boot_time() > 0, 'lo' in p.net_io_counters(pernic=True), 'lo' in p.net_if_stats(), type(p.disk_partitions()), p.Process().memory_info().rss > 0, len(p.Process().memory_maps()) > 0, p.Process().cpu_times().user >= 0)
    p.disk_io_counters(); p.cpu_freq(); p.cpu_stats(); p.sensors_battery(); p.Process().io_counters(); p.net_connections()
except ImportError: print('left out: psutil is not installed')
P
/usr/bin/python3 p.py
