"""Devices, addresses, routes and neighbours that programs make and change: iproute2's words, frames between namespaces
that are inside, and what netlink tells."""

import fcntl
import re
import subprocess
import threading

from ends import *

NOISE = r"[0-9a-f]{2}(:[0-9a-f]{2}){5}|fe80::\S+|qlen \d+|numtxqueues \d+|numrxqueues \d+|valid_lft \S+|preferred_lft \S+|proto kernel_ll|tentative|link-netnsid \d+|@if\d+|uid \d+|group default"


def tidy(text):
    return [" ".join(re.sub(NOISE, lambda m: "MAC" if ":" in m.group() and len(m.group()) == 17 else "", l).split()) for l in text.splitlines()]


def ip(*words):
    r = subprocess.run(["ip", *words], capture_output=True, text=True)
    what = "ip " + " ".join(w for w in words if not w.isdigit())
    say(what, r.returncode)
    for l in tidy(r.stdout) + tidy(r.stderr):
        say("   ", l)


def device(name):
    """One that is alone, but for a far end that is up. (Not every kernel has dummies.)"""
    subprocess.run(["ip", "link", "add", name, "type", "veth", "peer", "name", name + "far"], check=True)
    # Nothing is said of it.
    subprocess.run(["ip", "link", "set", name + "far", "addrgenmode", "none"], capture_output=True)
    subprocess.run(["ip", "link", "set", name + "far", "up"], check=True)


def settle():
    """Until IPv6 has its addresses."""
    until = time.time() + 5
    while time.time() < until and "tentative" in subprocess.run(["ip", "-6", "address"], capture_output=True, text=True).stdout:
        time.sleep(0.05)


def made_inside():
    apart()
    device("d0")
    ip("link", "add", "d0", "type", "veth", "peer", "name", "y")
    ip("link", "add", "type", "veth")
    ip("link", "add", "v0", "type", "veth", "peer", "name", "v1")
    ip("link", "add", "v2", "type", "veth", "peer", "name", "v1")
    ip("link", "add", "b0", "type", "bridge")
    ip("link", "add", "x", "type", "nothing")
    ip("link", "add", "name-that-is-too-long", "type", "bridge")
    ip("link", "add", "a/b", "type", "bridge")
    ip("link", "show")
    ip("link", "set", "v0", "up")
    ip("link", "show", "v0")
    ip("link", "set", "v1", "up")
    ip("link", "set", "v0", "master", "b0")
    ip("link", "set", "b0", "master", "b0")
    ip("link", "set", "v1", "master", "d0")
    ip("link", "set", "d0", "up", "mtu", "1400")
    ip("link", "set", "d0", "mtu", "10")
    ip("link", "set", "d0", "address", "02:00:00:00:00:01")
    ip("link", "set", "d0", "address", "01:00:00:00:00:01")
    ip("link", "set", "d0", "name", "v0")
    ip("link", "set", "d0", "down", "name", "d9")
    ip("link", "set", "d0", "up")
    ip("link", "set", "lo", "mtu", "1000")
    ip("link", "set", "b0", "up")
    ip("link", "show", "master", "b0")
    ip("link", "show", "type", "veth")
    ip("link", "show")
    ip("link", "set", "v0", "nomaster")
    ip("link", "del", "v1")
    ip("link", "del", "b0")
    ip("link", "del", "lo")
    ip("link", "del", "gone")
    ip("link", "show")
    say("names", socket.if_nameindex())
    ip("rule")
    ip("-6", "rule")


def loopback_inside():
    """A namespace whose loopback has an address before it is up, as bubblewrap makes it."""
    libc.unshare(CLONE_NEWNET)
    ip("address", "show")
    ip("address", "add", "127.0.0.1/8", "dev", "lo")
    ip("address", "add", "127.0.0.1/8", "dev", "lo")
    ip("address", "show")
    t = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
    T("bound", t.bind, ("lo", 3))
    t.setblocking(False)
    T("down", t.recv, 100)
    T("down", t.send, bytes(60))
    ip("link", "set", "lo", "up")
    ip("address", "show")
    T("refused", socket.create_connection, ("127.0.0.1", 80))
    say("up", poll(t))
    ip("link", "set", "lo", "down")
    say("poll", poll(t))
    T("down", t.recv, 100)
    ip("address", "show")
    ip("netns", "list")


def loopback_outside():
    pass


def made_outside():
    pass


def addressed_inside():
    apart()
    device("d0")
    ip("address", "add", "10.1.0.1/24", "dev", "d0")
    ip("address", "add", "10.1.0.1/24", "dev", "d0")
    ip("route")
    ip("link", "set", "d0", "up")
    settle()
    ip("route")
    ip("address", "add", "10.1.0.2/24", "broadcast", "+", "dev", "d0")
    ip("address", "add", "10.2.0.1/16", "dev", "d0", "label", "d0:x")
    ip("address", "add", "10.3.0.1/32", "dev", "lo")
    ip("address", "add", "fd01::1/64", "dev", "d0", "nodad")
    ip("address", "add", "fd01::1/64", "dev", "d0", "nodad")
    ip("address", "add", "10.9.0.1/33", "dev", "d0")
    ip("address", "add", "10.9.0.1/24", "dev", "nothing")
    ip("address", "show")
    ip("-4", "address", "show", "dev", "d0")
    ip("route")
    ip("-6", "route")
    ip("address", "del", "10.7.0.1/24", "dev", "d0")
    ip("address", "del", "10.1.0.1/24", "dev", "d0")
    ip("address", "show", "dev", "d0")
    ip("route")
    ip("link", "set", "d0", "down")
    ip("address", "show", "dev", "d0")
    ip("route")
    ip("-6", "route")
    ip("link", "set", "d0", "up")
    settle()
    ip("route")
    ip("address", "flush", "dev", "d0")
    ip("-4", "address", "show")
    s = socket.socket()
    T("bound", s.bind, ("10.3.0.1", 80))
    T("not bound", socket.socket().bind, ("10.1.0.1", 80))


def addressed_outside():
    pass


def routed_inside():
    apart()
    device("d0")
    device("d1")
    ip("route", "add", "10.5.0.0/16", "dev", "d0")
    ip("link", "set", "d0", "up")
    ip("link", "set", "d1", "up")
    ip("address", "add", "10.1.0.1/24", "dev", "d0")
    ip("address", "add", "fd01::1/64", "dev", "d0", "nodad")
    ip("route", "add", "10.5.0.0/16", "dev", "d0")
    ip("route", "add", "10.5.0.0/16", "dev", "d1")
    ip("route", "add", "10.5.0.0/16", "dev", "d1", "metric", "5")
    ip("route", "append", "10.5.0.0/16", "dev", "d1")
    ip("route", "replace", "10.5.0.0/16", "dev", "d1")
    ip("route", "change", "10.6.0.0/16", "dev", "d1")
    ip("route", "add", "10.6.0.1/16", "dev", "d1")
    ip("route", "add", "default", "via", "10.1.0.254")
    ip("route", "add", "10.7.0.0/16", "via", "10.77.0.254")
    ip("route", "add", "10.7.0.0/16", "via", "10.77.0.254", "dev", "d1")
    ip("route", "add", "10.7.0.0/16", "via", "10.77.0.254", "dev", "d1", "onlink")
    ip("route", "add", "blackhole", "10.8.0.0/16")
    ip("route", "add", "unreachable", "10.9.0.0/16", "metric", "3")
    ip("route", "add", "10.10.0.0/16", "dev", "d0", "src", "10.1.0.1", "mtu", "1300")
    ip("route", "add", "10.11.0.0/16", "dev", "d0", "src", "10.99.0.1")
    ip("route", "add", "10.12.0.0/16", "dev", "d0", "scope", "link", "proto", "static")
    ip("route")
    ip("route", "show", "dev", "d1")
    ip("route", "get", "10.5.1.1")
    ip("route", "get", "10.44.1.1")
    ip("-6", "route", "add", "fd05::/32", "dev", "d0")
    ip("-6", "route", "add", "fd05::/32", "dev", "d0")
    ip("-6", "route", "add", "default", "via", "fd01::2")
    ip("-6", "route", "add", "fd06::/32", "via", "fd02::2")
    ip("-6", "route")
    ip("route", "del", "10.5.0.0/16", "metric", "5")
    ip("route", "del", "10.5.0.0/16")
    ip("route", "del", "10.55.0.0/16")
    ip("route", "del", "blackhole", "10.8.0.0/16")
    ip("route", "del", "default")
    ip("-6", "route", "del", "default")
    ip("route")
    ip("-6", "route")
    ip("link", "del", "d0")
    ip("route")
    ip("neighbour", "add", "10.5.0.9", "lladdr", "02:00:00:00:00:09", "dev", "d1", "nud", "permanent")
    ip("neighbour", "add", "10.5.0.9", "lladdr", "02:00:00:00:00:09", "dev", "d1", "nud", "permanent")
    ip("neighbour", "replace", "10.5.0.9", "lladdr", "02:00:00:00:00:0a", "dev", "d1", "nud", "permanent")
    ip("neighbour")
    ip("neighbour", "del", "10.5.0.9", "dev", "d1")
    ip("neighbour", "del", "10.5.0.9", "dev", "d1")
    ip("neighbour")


def routed_outside():
    pass


SERVER = """
import socket, hashlib
s = socket.create_server(("%s", 4000), family=%s)
print("ready", flush=True)
c, a = s.accept()
h, n = hashlib.sha256(), 0
while b := c.recv(1 << 16):
    h.update(b); n += len(b)
c.sendall(("%%d %%s" %% (n, h.hexdigest())).encode())
c.close()
"""


def transfer(ns, address, n=8 << 20):
    six = ":" in address
    p = ns.python(SERVER % (address, "socket.AF_INET6" if six else "socket.AF_INET"))
    p.stdout.readline()
    s = socket.create_connection((address, 4000), 10)
    data = pattern(n)
    s.sendall(data)
    s.shutdown(socket.SHUT_WR)
    told = s.recv(200).decode().split()
    import hashlib

    say("transferred", (int(told[0]) == n, told[1] == hashlib.sha256(data).hexdigest()))
    p.wait()


def ping(*words):
    r = subprocess.run(["ping", "-c2", "-i0.2", "-W2", *words], capture_output=True, text=True)
    m = re.search(r"(\d+) packets transmitted, (\d+) received", r.stdout)
    say("ping " + words[-1], (r.returncode, m and m.groups()))


def joined_inside():
    """Two namespaces with a veth between them."""
    apart()
    other = Namespace()
    ip("link", "add", "v0", "type", "veth", "peer", "name", "eth0", "netns", other.pid)
    ip("address", "add", "10.1.0.1/24", "dev", "v0")
    ip("address", "add", "fd01::1/64", "dev", "v0", "nodad")
    ip("link", "set", "v0", "up")
    ip("link", "show", "v0")
    other.run("ip", "address", "add", "10.1.0.2/24", "dev", "eth0")
    other.run("ip", "address", "add", "fd01::2/64", "dev", "eth0", "nodad")
    other.run("ip", "link", "set", "eth0", "up")
    ip("link", "show", "v0")
    ping("10.1.0.2")
    ping("-s", "4000", "10.1.0.2")
    ping("fd01::2")
    ping("10.1.0.3")
    transfer(other, "10.1.0.2")
    transfer(other, "fd01::2")
    r = subprocess.run(["ip", "neighbour", "show", "10.1.0.2"], capture_output=True, text=True)
    say("neighbour", re.sub(NOISE, "MAC", r.stdout).split()[:4])
    T("refused", socket.create_connection, ("10.1.0.2", 4999), 5)
    u = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    u.connect(("10.1.0.2", 4999))
    u.settimeout(5)
    u.send(b"x")
    T("refused", u.recv, 10)
    for l in tidy(other.run("ip", "-4", "address").stdout):
        say("there", l)
    # Moved back, under another name.
    other.run("ip", "link", "set", "eth0", "netns", str(os.getpid()), "name", "back")
    for l in tidy(other.run("ip", "link").stdout):
        say("there", l)
    ip("link", "show", "back")
    ip("link", "set", "back", "netns", other.pid)
    other.close()
    until = time.time() + 5
    while time.time() < until and "v0" in dict((b, a) for a, b in socket.if_nameindex()):
        time.sleep(0.05)
    ip("link", "show")


def joined_outside():
    pass


def bridged_inside():
    """Three namespaces at a bridge, which has an address itself."""
    apart()
    ip("link", "add", "br0", "type", "bridge")
    ip("address", "add", "10.1.0.254/24", "dev", "br0")
    ip("link", "set", "br0", "up")
    ip("link", "show", "br0")
    all = [Namespace() for _ in range(3)]
    for n, ns in enumerate(all, 1):
        ip("link", "add", f"p{n}", "type", "veth", "peer", "name", "eth0", "netns", ns.pid)
        ip("link", "set", f"p{n}", "master", "br0", "up")
        ns.run("ip", "link", "set", "eth0", "up")
        ns.run("ip", "address", "add", f"10.1.0.{n}/24", "dev", "eth0")
    ip("link", "show", "br0")
    ip("link", "show", "p1")
    for n in 1, 2, 3:
        ping(f"10.1.0.{n}")
    for there in 2, 3, 254:
        r = all[0].run("ping", "-c2", "-i0.2", "-W2", f"10.1.0.{there}")
        say("across", (there, r.returncode))
    transfer(all[1], "10.1.0.2")
    p = all[2].python(SERVER % ("10.1.0.3", "socket.AF_INET"))
    p.stdout.readline()
    r = all[0].run("python3", "-c", "import socket;s=socket.create_connection(('10.1.0.3',4000),10);s.sendall(b'x'*3000000);s.shutdown(1);print(s.recv(100).decode().split()[0])")
    say("across", r.stdout.strip())
    r = subprocess.run(["bridge", "fdb", "show", "br", "br0"], capture_output=True, text=True)
    say("ports", sorted({l.split()[2] for l in r.stdout.splitlines() if "permanent" not in l}))
    r = subprocess.run(["bridge", "link"], capture_output=True, text=True)
    for l in tidy(r.stdout):
        say("link", l)
    # Out of the bridge, it is alone.
    ip("link", "set", "p3", "nomaster")
    r = all[0].run("ping", "-c1", "-W1", "10.1.0.3")
    say("apart", r.returncode)
    ip("link", "del", "br0")
    ip("link", "show", "p1")
    for ns in all:
        ns.close()


def bridged_outside():
    pass


KINDS = {16: "NEWLINK", 17: "DELLINK", 20: "NEWADDR", 21: "DELADDR", 24: "NEWROUTE", 25: "DELROUTE", 28: "NEWNEIGH", 29: "DELNEIGH"}


def listen(groups):
    s = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0)
    s.bind((0, groups))
    s.settimeout(0.3)
    return s


def news(s):
    got = []
    try:
        while True:
            b, a = s.recvfrom(65536)
            kind = struct.unpack("H", b[4:6])[0]
            got.append((KINDS.get(kind, kind), a[1]))
    except TimeoutError:
        return got


def announced_inside():
    apart()
    links, v4, v6, routes = listen(1), listen(0x10), listen(0x100), listen(0x40)
    quiet = listen(0)
    T("group", quiet.setsockopt, 270, 1, 0)
    T("group", quiet.setsockopt, 270, 1, 5)
    T("group", quiet.setsockopt, 270, 2, 5)
    T("group", quiet.setsockopt, 270, 1, 1000)
    say("name", links.getsockname()[1])
    run = lambda *w: subprocess.run(["ip", *w], check=True)
    run("link", "add", "d0", "type", "veth", "peer", "name", "d1")
    run("address", "add", "10.1.0.1/24", "dev", "d0")
    run("link", "set", "d0", "up")
    run("route", "add", "10.5.0.0/16", "dev", "d0")
    run("route", "del", "10.5.0.0/16", "dev", "d0")
    run("address", "del", "10.1.0.1/24", "dev", "d0")
    run("link", "del", "d0")
    # How often a device is told of is the kernel's affair; the first and the last are not.
    got = news(links)
    say("links", (got[0], got[-1], sorted({k for k, _ in got})))
    say("addresses", news(v4))
    say("quiet", news(quiet))
    # Those who do not read lose some, and are told once.
    small = listen(1)
    small.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4000)
    for i in range(20):
        run("link", "add", "d0", "type", "veth", "peer", "name", "d1")
        run("link", "del", "d0")
    say("poll", poll(small))
    small.setblocking(False)
    kinds = []
    try:
        while True:
            small.recv(65536)
    except OSError as e:
        kinds.append(errno.errorcode[e.errno])
    try:
        while True:
            small.recv(65536)
            kinds.append("message") if "message" not in kinds else None
    except OSError as e:
        kinds.append(errno.errorcode[e.errno])
    say("overrun", kinds)
    # Without the right nothing changes.
    pid = os.fork()
    if pid == 0:
        os.setuid(1000)
        ip("link", "add", "d2", "type", "veth")
        ip("address", "add", "10.1.0.1/24", "dev", "lo")
        ip("route", "add", "10.1.0.0/24", "dev", "lo")
        os._exit(0)
    os.waitpid(pid, 0)


def announced_outside():
    pass


def controlled_inside():
    """The old ioctls."""
    apart()
    device("d0")
    s = socket.socket()
    req = lambda name, v: struct.pack("16s24s", name.encode(), v)
    inet = lambda a: struct.pack("HH4s8x", socket.AF_INET, 0, socket.inet_aton(a))
    T("address", fcntl.ioctl, s, 0x8916, req("d0", inet("10.1.2.3")))
    ip("-4", "address", "show", "dev", "d0")
    T("mask", fcntl.ioctl, s, 0x891C, req("d0", inet("255.255.255.0")))
    T("bad mask", fcntl.ioctl, s, 0x891C, req("d0", inet("255.0.255.0")))
    ip("-4", "address", "show", "dev", "d0")
    fcntl.ioctl(s, 0x8914, req("d0", struct.pack("H", 0x1043)))
    ip("route")
    rt = lambda to, via, mask, flags, metric=0: struct.pack("Q16s16s16sHHIQQHHIQQQQ", 0, inet(to), inet(via), inet(mask), flags, 0, 0, 0, 0, metric, 0, 0, 0, 0, 0, 0)[:120]
    T("route", fcntl.ioctl, s, 0x890B, rt("10.9.0.0", "10.1.2.1", "255.255.0.0", 3))
    T("route", fcntl.ioctl, s, 0x890B, rt("10.9.0.1", "10.1.2.1", "255.255.0.0", 3))
    T("route", fcntl.ioctl, s, 0x890B, rt("10.10.0.1", "10.1.2.1", "0.0.0.0", 7, 5))
    ip("route")
    T("route", fcntl.ioctl, s, 0x890C, rt("10.9.0.0", "10.1.2.1", "255.255.0.0", 3))
    T("route", fcntl.ioctl, s, 0x890C, rt("10.9.0.0", "10.1.2.1", "255.255.0.0", 3))
    fcntl.ioctl(s, 0x8922, req("d0", struct.pack("i", 1300)))
    T("mtu", fcntl.ioctl, s, 0x8922, req("d0", struct.pack("i", -1)))
    fcntl.ioctl(s, 0x8914, req("d0", struct.pack("H", 0x1002)))
    fcntl.ioctl(s, 0x8923, req("d0", b"e5"))
    T("mac", fcntl.ioctl, s, 0x8924, req("e5", struct.pack("H6B", 1, 2, 0, 0, 0, 0, 7)))
    T("nothing", fcntl.ioctl, s, 0x8914, req("d0", b""))
    ip("link", "show")


def controlled_outside():
    pass


def taken_inside():
    """What can be changed of a device that the sandbox was given."""
    ip("address", "add", "10.88.0.2/24", "dev", "eth0")
    ip("-4", "address", "show", "dev", "eth0")
    ip("route")
    ip("route", "add", "10.99.0.0/16", "via", OUT4)
    ip("link", "set", "eth0", "mtu", "1400")
    step()
    ping(OUT4)
    ping("10.88.0.1")
    step()
    s = client("10.88.0.1", 4000)
    say("from", s.getsockname()[0])
    say("said", s.recv(10))
    ip("address", "del", "10.88.0.2/24", "dev", "eth0")
    ip("route", "del", "10.99.0.0/16")
    ip("-4", "address", "show", "dev", "eth0")
    ip("route", "del", "default")
    T("no way", socket.create_connection, ("192.0.2.1", 80), 5)
    ip("route", "add", "default", "via", OUT4)
    ip("route")
    ip("link", "set", "eth0", "down")
    T("down", socket.create_connection, (OUT4, 4000), 5)
    ip("link", "set", "eth0", "up")
    ip("route", "add", "default", "via", OUT4)
    ip("route")
    until = time.time() + 5
    while time.time() < until and subprocess.run(["ping", "-c1", "-W1", OUT4], capture_output=True).returncode:
        pass
    ping(OUT4)


def taken_outside():
    subprocess.run(["ip", "address", "add", "10.88.0.1/24", "dev", "out0"], check=True)
    step()
    s = server("10.88.0.1", 4000)
    step()
    c, a = s.accept()
    say("from", a[0])
    c.sendall(b"hello")
    c.close()
    time.sleep(3)


def forwarded_inside():
    """A namespace between two others."""
    apart()
    a, b = Namespace(), Namespace()
    with open("/proc/sys/net/ipv4/ip_forward", "w") as f:
        f.write("0")
    for n, ns in (1, a), (2, b):
        ip("link", "add", f"v{n}", "type", "veth", "peer", "name", "eth0", "netns", ns.pid)
        ip("link", "set", f"v{n}", "up")
        ns.run("ip", "link", "set", "eth0", "up")
        for net, length in (f"10.{n}.0.", 24), (f"fd0{n}::", 64):
            ip("address", "add", f"{net}1/{length}", "dev", f"v{n}", *(["nodad"] if ":" in net else []))
            ns.run("ip", "address", "add", f"{net}2/{length}", "dev", "eth0", *(["nodad"] if ":" in net else []))
            ns.run("ip", "route", "add", "default", "via", f"{net}1")
    across = lambda *w: a.run("ping", "-c1", "-W1", *w)
    say("off", across("10.2.0.2").returncode)
    for name in "net/ipv4/ip_forward", "net/ipv6/conf/all/forwarding":
        with open("/proc/sys/" + name, "w") as f:
            f.write("1")
        say(name, open("/proc/sys/" + name).read().strip())
    # IPv6 waits for its neighbours.
    for to in "10.2.0.2", "fd02::2":
        until = time.time() + 5
        while time.time() < until and across(to).returncode:
            pass
        r = across(to)
        say(to, (r.returncode, re.findall(r"ttl=\d+", r.stdout)))
    r = across("-t1", "10.2.0.2")
    say("one hop", [l for l in r.stdout.splitlines() if "From" in l])
    r = across("10.3.0.2")
    say("no way", [l for l in r.stdout.splitlines() if "From" in l])
    r = a.run("ping", "-c1", "-W1", "-Mdo", "-s1400", "10.2.0.2")
    say("large", r.returncode)
    b.run("ip", "link", "set", "eth0", "mtu", "1300")
    ip("link", "set", "v2", "mtu", "1300")
    r = a.run("ping", "-c2", "-i0.2", "-W1", "-Mdo", "-s1400", "10.2.0.2")
    say("too large", [l for l in r.stdout.splitlines() if "From" in l][:1])
    p = b.python(SERVER % ("10.2.0.2", "socket.AF_INET"))
    p.stdout.readline()
    r = a.run("python3", "-c", "import socket;s=socket.create_connection(('10.2.0.2',4000),10);s.sendall(b'x'*3000000);s.shutdown(1);print(s.recv(100).decode().split()[0])")
    say("across", r.stdout.strip())
    a.close()
    b.close()


def forwarded_outside():
    pass


TUNSETIFF, TUNSETPERSIST, TUNGETFEATURES, TUNGETIFF = 0x400454CA, 0x400454CB, 0x800454CF, 0x800454D2
TUN, TAP, NO_PI = 1, 2, 0x1000


def tun_node():
    if not os.path.exists("/dev/net/tun"):
        os.makedirs("/dev/net", exist_ok=True)
        os.mknod("/dev/net/tun", 0o20666, os.makedev(10, 200))


def ip_sum(h):
    n = sum(struct.unpack(f"!{(len(h) + 1) // 2}H", h + b"\0" * (len(h) % 2)))
    while n >> 16:
        n = (n & 0xFFFF) + (n >> 16)
    return ~n & 0xFFFF


def ping_answered(fd, ethernet):
    """Answers one echo request as 10.1.0.2, and questions for its address."""
    for _ in range(20):
        b = bytearray(os.read(fd, 2000))
        at = 14 if ethernet else 0
        if ethernet and b[12:14] == b"\x08\x06":
            mac = b"\2\0\0\0\0\7"
            os.write(fd, b[6:12] + mac + b[12:20] + b"\0\2" + mac + b[38:42] + b[22:28] + b[28:32])
            continue
        if b[at] >> 4 != 4 or b[at + 9] != 1:
            continue
        say("sum", (ip_sum(bytes(b[at : at + 20])), ip_sum(bytes(b[at + 20 :]))))
        if ethernet:
            b[0:6], b[6:12] = b[6:12], b[0:6]
        b[at + 12 : at + 16], b[at + 16 : at + 20] = b[at + 16 : at + 20], b[at + 12 : at + 16]
        b[at + 20] = 0
        b[at + 22 : at + 24] = b"\0\0"
        b[at + 22 : at + 24] = struct.pack("!H", ip_sum(bytes(b[at + 20 :])))
        os.write(fd, bytes(b))
        return


def tunnelled_inside():
    """Devices whose frames this program reads and writes."""
    apart()
    tun_node()
    fd = os.open("/dev/net/tun", os.O_RDWR)
    T("nothing", os.read, fd, 100)
    T("nothing", os.write, fd, bytes(100))
    T("features", lambda: struct.unpack("I", fcntl.ioctl(fd, TUNGETFEATURES, bytes(4)))[0] & 0x7003)
    ifr = lambda name, flags: struct.pack("16sH22x", name, flags)
    T("neither", fcntl.ioctl, fd, TUNSETIFF, ifr(b"t0", NO_PI))
    say("name", fcntl.ioctl(fd, TUNSETIFF, ifr(b"t%d", TAP | NO_PI))[:4])
    T("again", fcntl.ioctl, fd, TUNSETIFF, ifr(b"t1", TAP | NO_PI))
    say("told", fcntl.ioctl(fd, TUNGETIFF, bytes(40))[:18])
    other = os.open("/dev/net/tun", os.O_RDWR)
    T("busy", fcntl.ioctl, other, TUNSETIFF, ifr(b"t0", TAP | NO_PI))
    T("another kind", fcntl.ioctl, other, TUNSETIFF, ifr(b"t0", TUN | NO_PI))
    T("down", os.write, fd, bytes(100))
    ip("link", "show", "t0")
    ip("link", "set", "t0", "addrgenmode", "none", "up")
    ip("address", "add", "10.1.0.1/24", "dev", "t0")
    ip("link", "show", "t0")
    T("short", os.write, fd, bytes(10))
    p = subprocess.Popen(["ping", "-c1", "-W5", "10.1.0.2"], stdout=subprocess.PIPE, text=True)
    ping_answered(fd, True)
    say("ping", (p.wait(), re.findall(r"ttl=\d+", p.stdout.read())))
    # UDP out: its checksum is whole.
    u = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    u.sendto(b"hello", ("10.1.0.2", 9))
    while True:
        b = os.read(fd, 2000)
        if b[12:14] == b"\x08\0" and b[23] == 17:
            break
    pseudo = b[26:34] + b"\0\x11" + b[38:40]
    say("udp", (b[42:], ip_sum(pseudo + b[34:])))
    os.set_blocking(fd, False)
    T("no more", os.read, fd, 100)
    os.close(fd)
    ip("link", "show", "t0")
    # IP packets, with what is said before each.
    fd = other
    say("name", fcntl.ioctl(fd, TUNSETIFF, ifr(b"", TUN))[:5])
    ip("address", "add", "10.1.0.1/24", "dev", "tun0")
    ip("link", "set", "tun0", "up")
    ip("-4", "address", "show", "dev", "tun0")
    u = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    u.bind(("0.0.0.0", 900))
    u.sendto(b"hello", ("10.1.0.2", 9))
    while (b := os.read(fd, 2000))[2:4] != b"\x08\0":
        pass
    say("packet", (b[:4], b[4], b[16:24], b[32:]))
    h = struct.pack("!BBHHHBBH4s4s", 0x45, 0, 33, 7, 0, 64, 17, 0, socket.inet_aton("10.1.0.2"), socket.inet_aton("10.1.0.1"))
    h = h[:10] + struct.pack("!H", ip_sum(h)) + h[12:]
    T("written", os.write, fd, b"\0\0\x08\0" + h + struct.pack("!HHHH", 9, 900, 13, 0) + b"there")
    u.settimeout(5)
    T("received", u.recvfrom, 100)
    s = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
    s.bind(("tun0", 3))
    say("bound", s.getsockname())
    u.sendto(b"seen", ("10.1.0.2", 9))
    f = b"\0"
    while f[0] >> 4 != 4:
        f, a = s.recvfrom(100)
    say("seen", (f[0], len(f), f[28:], a))
    # One that stays.
    fcntl.ioctl(fd, TUNSETPERSIST, 1)
    os.close(fd)
    ip("link", "show", "tun0")
    ip("tuntap", "del", "dev", "tun0", "mode", "tun")
    ip("tuntap", "add", "dev", "tap7", "mode", "tap")
    ip("link", "show", "tap7")
    ip("link", "del", "tap7")


def tunnelled_outside():
    pass


VNET_HDR = 0x4000
TUNSETOFFLOAD, TUNGETVNETHDRSZ, TUNSETVNETHDRSZ = 0x400454D0, 0x800454D7, 0x400454D8
TUNSETVNETLE, TUNGETVNETLE = 0x400454DC, 0x800454DD


def udp_packet(payload, to=900, partial=False):
    """From 10.1.0.2 to 10.1.0.1; with the sum of its pseudo header only, or with none."""
    a, b = socket.inet_aton("10.1.0.2"), socket.inet_aton("10.1.0.1")
    h = struct.pack("!BBHHHBBH4s4s", 0x45, 0, 28 + len(payload), 7, 0, 64, 17, 0, a, b)
    h = h[:10] + struct.pack("!H", ip_sum(h)) + h[12:]
    pseudo = ~ip_sum(a + b + struct.pack("!HH", 17, 8 + len(payload))) & 0xFFFF
    return h + struct.pack("!HHHH", 9, to, 8 + len(payload), pseudo if partial else 0) + payload


def offloads_inside():
    """What a program and its device tell each other of sums and super-segments."""
    apart()
    tun_node()
    fd = os.open("/dev/net/tun", os.O_RDWR)
    ifr = lambda name, flags: struct.pack("16sH22x", name, flags)
    word = lambda n: struct.pack("i", n)
    for name, cmd in [("size", TUNGETVNETHDRSZ), ("offload", TUNSETOFFLOAD)]:
        T("nothing's " + name, fcntl.ioctl, fd, cmd, word(0))
    say("name", fcntl.ioctl(fd, TUNSETIFF, ifr(b"", TUN | NO_PI | VNET_HDR))[:18])
    size = lambda: struct.unpack("i", fcntl.ioctl(fd, TUNGETVNETHDRSZ, word(0)))[0]
    say("size", size())
    for n in (9, 0, -1, 12, 10):
        T(f"size {n}", fcntl.ioctl, fd, TUNSETVNETHDRSZ, word(n))
        say("size", size())
    le = lambda: struct.unpack("i", fcntl.ioctl(fd, TUNGETVNETLE, word(7)))[0]
    say("order", le())
    T("order", fcntl.ioctl, fd, TUNSETVNETLE, word(1))
    say("order", le())
    for n in (0x100, 2, 6, 9, 1, 0x11, 0x21, 0x61, 0, 0xF):
        T(f"offload {n:#x}", fcntl.ioctl, fd, TUNSETOFFLOAD, n)
    ip("address", "add", "10.1.0.1/24", "dev", "tun0")
    ip("link", "set", "tun0", "up")
    u = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    u.bind(("0.0.0.0", 900))
    u.settimeout(5)

    def out():
        while (b := os.read(fd, 70000))[10] >> 4 != 4:
            pass
        return b

    u.sendto(b"hello", ("10.1.0.2", 9))
    b = out()
    # Unfinished: the sum of the pseudo header.
    say("unfinished", (b[:10], len(b), b[36:38] == udp_packet(b"hello", partial=True)[26:28]))
    u.sendto(b"hello", ("10.1.0.2", 9))
    T("short", os.read, fd, 9)
    T("offload", fcntl.ioctl, fd, TUNSETOFFLOAD, 0)
    u.sendto(b"hello", ("10.1.0.2", 9))
    b = out()
    say("finished", (b[:10], ip_sum(b[22:30] + struct.pack("!HH", 17, 13) + b[30:])))
    hdr = lambda *w: struct.pack("BBHHHH", *w)
    p = udp_packet(b"there", partial=True)
    for name, h in [
        ("needs a sum", hdr(1, 0, 0, 0, 20, 6)),
        ("a right one", hdr(2, 0, 0, 0, 0, 0)),
        ("beyond its end", hdr(1, 0, 0, 0, 32, 6)),
        ("headers beyond its end", hdr(0, 0, 100, 0, 0, 0)),
        ("no pieces", hdr(0, 1, 0, 0, 0, 0)),
        ("of another kind", hdr(0, 7, 0, 100, 0, 0)),
    ]:
        T(name, os.write, fd, h + p)
        if name in ("needs a sum", "a right one"):
            T("received", u.recvfrom, 100)
    T("too short", os.write, fd, bytes(10))
    # A datagram of three.
    p = udp_packet(b"x" * 1000 + b"y" * 1000 + b"z" * 500, partial=True)
    T("three", os.write, fd, hdr(1, 5, 28, 1000, 20, 6) + p)
    for _ in range(3):
        r = u.recv(3000)
        say("one", (len(r), r[:1]))
    fcntl.ioctl(fd, TUNSETVNETHDRSZ, word(20))
    T("longer", os.write, fd, bytes(20) + udp_packet(b"there"))
    T("received", u.recvfrom, 100)
    # TCP's, as the program takes it.
    for offload in (0, 0xF):
        T("offload", fcntl.ioctl, fd, TUNSETOFFLOAD, offload)
        sent_by_tcp(fd, offload)


def sent_by_tcp(fd, offload):
    """A connection to a peer that this is itself: of what comes, how long it is."""
    s = socket.socket()
    s.setblocking(False)
    s.connect_ex(("10.1.0.2", 80 + offload))
    me, peer = None, 1000

    def answer(flags, ack, options=b""):
        a, b = socket.inet_aton("10.1.0.2"), socket.inet_aton("10.1.0.1")
        t = struct.pack("!HHIIBBHHH", 80 + offload, me, peer, ack, (20 + len(options)) << 2, flags, 65535, 0, 0) + options
        t = t[:16] + struct.pack("!H", ip_sum(a + b + struct.pack("!HH", 6, len(t)) + t)) + t[18:]
        h = struct.pack("!BBHHHBBH4s4s", 0x45, 0, 20 + len(t), 7, 0, 64, 6, 0, a, b)
        os.write(fd, bytes(20) + h[:10] + struct.pack("!H", ip_sum(h)) + h[12:] + t)

    got, lens, right = 0, [], True
    while got < 14000:
        b = os.read(fd, 70000)
        h, p = b[:10], b[20:]
        if p[0] >> 4 != 4 or p[9] != 6:
            continue
        t = p[20:]
        me, seq = struct.unpack("!H2xI", t[:8])
        if t[13] & 2:
            first = seq + 1
            answer(0x12, first, b"\2\4\x05\xb4")
            peer += 1
            s.setblocking(True)
            s.sendall(b"d" * 14000)
            continue
        data = len(t) - (t[12] >> 4) * 4
        if not data:
            continue
        if not h[0] & 1:
            right &= ip_sum(p[12:20] + struct.pack("!HH", 6, len(t)) + t) == 0
        got = max(got, seq + data - first)
        lens.append(data)
        answer(0x10, first + got)
    say("tcp", (right, max(lens) > 1460, all(n == 1460 for n in lens[:-1]) or offload != 0))
    s.close()


def offloads_outside():
    pass
