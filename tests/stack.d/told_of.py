"""What is told of sockets, devices and neighbours: sock_diag by `ss`, /proc/net, /sys/class/net."""

import ctypes
import errno
import os
import re
import socket
import subprocess
import time

from ends import *

PORT = 8000


def lines(*words, drop=()):
    r = subprocess.run(words, capture_output=True, text=True)
    if r.returncode:
        say("fails", (words, r.returncode, r.stderr.strip()[:200]))
    out = []
    for l in r.stdout.splitlines():
        # Numbers of inodes, processes and sockets are each system's own.
        l = re.sub(r"ino:\d+|sk:\w+|cgroup:\S+|pid=\d+|fd=\d+|<->", "", l)
        l = re.sub(r"timer:\(\S*\)|uid:\d+", "", l)
        out.append(" ".join(l.split()))
    return out


def sockets_inside():
    """`ss` of listeners, connections and datagram sockets."""
    l = server("0.0.0.0", PORT, 7)
    l6 = socket.socket(socket.AF_INET6)
    l6.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
    l6.bind(("::", PORT + 1))
    l6.listen(3)
    step()
    a, _ = l.accept()
    time.sleep(0.2)
    c = client(OUT4, PORT)
    c6 = client(OUT6, PORT)
    u = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    u.bind((IN4, PORT + 2))
    k = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    k.bind((IN4, PORT + 3))
    k.connect((OUT4, PORT + 4))
    u6 = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
    u6.bind(("::", PORT + 5))
    r = socket.socket(socket.AF_INET, socket.SOCK_RAW, 17)
    step()
    time.sleep(0.3)
    for words in "-tln", "-tlne", "-tn", "-uan", "-uane", "-wan", "-tulnp":
        for x in sorted(lines("ss", "-H", words)):
            # Whom a port was chosen for.
            say("ss " + words, re.sub(r":(3[2-9]|[45]\d|60)\d{3}\b", ":port", x))
    for words in ("state", "established"), ("state", "close-wait"), ("sport", "=", str(PORT)):
        for x in sorted(lines("ss", "-Htn", *words)):
            say("ss " + " ".join(words), re.sub(r":(3[2-9]|[45]\d|60)\d{3}\b", ":port", x))
    info = " ".join(lines("ss", "-Htni", "dst", OUT4))
    say("info", [w for w in ("wscale:", "mss:1448", "pmtu:1500", "cwnd:", "bytes_received:5") if w in info])
    for name in "tcp", "tcp6", "udp", "udp6", "raw":
        rows = [x.split() for x in open("/proc/net/" + name).read().splitlines()[1:]]
        for x in sorted((x[1], x[2][:-4], x[3], x[4]) for x in rows):
            say(name, (x[0] if x[1][:8] == "00000000" or int(x[0][-4:], 16) < 9000 else x[0][:-4], *x[1:]))
    # What is closed and who is an orphan is counted for all of a machine.
    summary = [x for x in lines("ss", "-s") if x.startswith("TCP:")]
    say("summary", [re.findall(r"estab \d+", x) for x in summary])
    stat = open("/proc/net/sockstat").read()
    say("sockstat", (re.findall(r"TCP: inuse (\d+)", stat), re.findall(r"(?:UDP|RAW): inuse \d+", stat)))
    say("established", [x.split()[9] for x in open("/proc/net/snmp") if x.startswith("Tcp:")])
    step()


def sockets_outside():
    step()
    a = client(IN4, PORT)
    a.sendall(b"unread")
    b = client(IN4, PORT)
    s, s6 = server(OUT4, PORT), server(OUT6, PORT)
    x, _ = s.accept()
    y, _ = s6.accept()
    x.sendall(b"bytes")
    y.shutdown(socket.SHUT_WR)
    step()
    step()


def unix_inside():
    """`ss -x`."""
    path = f"/tmp/told-of-{os.getpid()}"
    l = socket.socket(socket.AF_UNIX)
    l.bind(path)
    l.listen(5)
    a = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    a.bind("\0told-of")
    c = socket.socket(socket.AF_UNIX)
    c.connect(path)
    s, _ = l.accept()
    c.send(b"unread")
    p, q = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    for words in "-xl", "-xa":
        for x in sorted(lines("ss", "-H", words)):
            x = re.sub(r"told-of-\d+ ", "path ", x)
            if "path" in x or "told-of" in x:
                say("ss " + words, re.sub(r"\b\d{4,}\b", "N", x))
    say("proc", sorted(x.split()[-1].replace(path, "path") for x in open("/proc/net/unix") if "told-of" in x))
    os.unlink(path)


def unix_outside():
    pass


def neighbours_inside():
    step()
    u = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    u.sendto(b"x", (OUT4, PORT))
    u6 = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
    u6.sendto(b"x", (OUT6, PORT))
    u.sendto(b"x", ("10.77.0.99", PORT))
    time.sleep(0.3)
    step()
    for l in sorted(lines("ip", "neighbour", "show")):
        if "fe80" not in l:
            say("ip neighbour", re.sub(r"([0-9a-f]{2}:){5}[0-9a-f]{2}", "MAC", l).replace("DELAY", "REACHABLE").replace("STALE", "REACHABLE"))
    for l in sorted(open("/proc/net/arp").read().splitlines()):
        say("arp", re.sub(r"([1-9a-f][0-9a-f]|0[1-9a-f]):([0-9a-f]{2}:){4}[0-9a-f]{2}", "MAC", " ".join(l.split())))
    step()


def neighbours_outside():
    u = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    u.bind((OUT4, PORT))
    u6 = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
    u6.bind((OUT6, PORT))
    step()
    step()
    step()


def sysfs():
    """The devices of this namespace at /sys, as only a mount of one's own shows them."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.unshare(0x20000)  # CLONE_NEWNS
    libc.mount(b"none", b"/", None, 0x44000, None)  # MS_REC | MS_PRIVATE
    if libc.mount(b"sysfs", b"/sys", b"sysfs", 0, None):
        say("sysfs", errno.errorcode[ctypes.get_errno()])


def devices_shown_inside():
    sysfs()
    step()
    names = "address addr_len broadcast carrier duplex flags ifindex mtu operstate type tx_queue_len speed".split()
    say("all", sorted(os.listdir("/sys/class/net")))
    for device in "lo", "eth0":
        for n in names:
            T(f"{device} {n}", lambda: re.sub(r"..:..:..:..:..:(?!00|ff)..", "MAC", open(f"/sys/class/net/{device}/{n}").read()))
        say("statistics", sorted(os.listdir(f"/sys/class/net/{device}/statistics")))
    T("no device", os.listdir, "/sys/class/net/none")

    def count(name):
        return int(open(f"/sys/class/net/eth0/statistics/{name}").read())

    def proc():
        row = next(l for l in open("/proc/net/dev") if "eth0" in l).replace("eth0:", "").split()
        return int(row[0]), int(row[1]), int(row[8]), int(row[9])

    def mib(group, name):
        rows = [l.split() for l in open("/proc/net/snmp") if l.startswith(group + ":")]
        return int(rows[1][rows[0].index(name)])

    before = count("tx_packets"), count("rx_bytes"), proc(), mib("Udp", "OutDatagrams"), mib("Udp", "InDatagrams"), mib("Icmp", "InDestUnreachs")
    u = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    u.bind((IN4, PORT))
    for n in range(20):
        u.sendto(b"x" * 1000, (OUT4, PORT))
        u.recv(2000)
    u.sendto(b"x", (OUT4, PORT + 9))
    time.sleep(0.2)
    after = count("tx_packets"), count("rx_bytes"), proc(), mib("Udp", "OutDatagrams"), mib("Udp", "InDatagrams"), mib("Icmp", "InDestUnreachs")
    say("packets", 21 <= after[0] - before[0] < 40)
    say("bytes", 20 * 1042 <= after[1] - before[1] < 20 * 1042 + 4000)
    say("proc", [20000 < x - y < 30000 if i % 2 == 0 else 20 <= x - y < 40 for i, (x, y) in enumerate(zip(after[2], before[2]))])
    say("datagrams", (after[3] - before[3], after[4] - before[4], after[5] - before[5]))
    link = lines("ip", "-s", "link", "show", "eth0")
    say("ip -s link", [x.isdigit() and int(x) > 0 for x in link[3].split()[:2]])
    for l in sorted(" ".join(l.split()) for l in open("/proc/net/ipv6_route")):
        # Reference counts are the kernel's own.
        f = l.split()
        if not f[0].startswith(("fe80", "ff00")) and f[9] == "eth0":
            say("ipv6_route", (f[0], f[1], f[4], f[5], f[8][-2:]))
    step()


def devices_shown_outside():
    u = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    u.bind((OUT4, PORT))
    step()
    for _ in range(20):
        b, who = u.recvfrom(2000)
        u.sendto(b, who)
    step()


def tools_inside():
    """ping, traceroute and tracepath, where they are installed."""
    step()
    for words in (
        "ping -n -c 1 -W 2 10.77.0.1",
        "ping -n -c 1 -W 5 10.77.0.99",
        "ping -n -c 1 -W 2 -t 1 198.51.100.2",
        "ping -n -c 1 -W 2 -M do -s 1400 198.51.100.2",
        "ping -n -c 1 -W 2 -M do -s 2000 10.77.0.1",
        "ping -n -c 1 -W 2 -b 10.77.0.255",
        "ping -n -6 -c 1 -W 2 fd77::1",
        "ping -n -6 -c 1 -W 2 -t 1 2001:db8:51::2",
        "ping -n -6 -c 1 -W 2 -I eth0 ff02::1",
        "traceroute -n -m 3 -q 1 -w 1 10.77.0.1",
        "traceroute -n -m 3 -q 1 -w 1 198.51.100.1",
        "traceroute -n -I -m 3 -q 1 -w 1 198.51.100.1",
        "traceroute -n -6 -m 3 -q 1 -w 1 2001:db8:51::1",
        "tracepath -n -m 3 10.77.0.1",
        "tracepath -n -m 2 198.51.100.2",
        "tracepath -n -6 -m 3 fd77::1",
    ):
        try:
            r = subprocess.run(words.split(), capture_output=True, text=True, timeout=30)
        except FileNotFoundError:
            say(words, "is not installed")
            continue
        except subprocess.TimeoutExpired:
            say(words, "does not end")
            continue
        out = (r.stdout + r.stderr).replace("\n", " | ")
        out = re.sub(r"\d+(\.\d+)?ms|\d+\.\d+(/\d+\.\d+)* ms|time[= ]\S+|\d+ ms|asymm +\d+|%eth0|fe80:[0-9a-f:]+", "", out)
        say(words, (r.returncode, " ".join(out.split())))
    step()


def tools_outside():
    from importlib.util import module_from_spec, spec_from_file_location
    from pathlib import Path

    spec = spec_from_file_location("errors", Path(sys.argv[1]).parent / "errors.py")
    errors = module_from_spec(spec)
    spec.loader.exec_module(errors)
    errors.beyond()
    step()
    step()
