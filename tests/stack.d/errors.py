"""The error queue (IP_RECVERR), and the path's MTU, as datagram sockets see them."""

import errno
import os
import socket
import struct
import subprocess
import time

from ends import *

PORT = 7000
IP, IP6 = socket.IPPROTO_IP, socket.IPPROTO_IPV6
RECVERR, RECVERR6, MTU_DISCOVER, MTU, MTU_DISCOVER6, MTU6 = 11, 25, 10, 14, 23, 24
ERRQUEUE = 0x2000
BEYOND4, BEYOND6 = "198.51.100.2", "2001:db8:51::2"


def dgram(f=socket.AF_INET, errors=True):
    s = socket.socket(f, socket.SOCK_DGRAM)
    if errors:
        want(s)
    s.settimeout(10)
    return s


def want(s):
    if s.family == socket.AF_INET:
        s.setsockopt(IP, RECVERR, 1)
    else:
        s.setsockopt(IP6, RECVERR6, 1)


def address(b):
    f = struct.unpack("H", b[:2])[0]
    if f == socket.AF_INET:
        return socket.inet_ntoa(b[4:8])
    if f == socket.AF_INET6:
        return socket.inet_ntop(socket.AF_INET6, b[8:24])
    return f"family {f}"


def told(s, size=2000, quiet=False):
    """The first of its error queue."""
    try:
        data, extra, flags, who = s.recvmsg(size, 500, ERRQUEUE)
    except OSError as e:
        say("queue", errno.errorcode[e.errno])
        return
    what = []
    for level, kind, v in extra:
        if (level, kind) in ((IP, RECVERR), (IP6, RECVERR6)):
            e, origin, t, code, _, info, _ = struct.unpack("IBBBBII", v[:16])
            what.append((level, errno.errorcode[e], origin, t, code, info, address(v[16:]), len(v)))
        else:
            what.append((level, kind, v if kind not in (8, 50) else len(v)))
    say("queue", (digest(data) if len(data) > 30 and not quiet else len(data) if quiet else data, flags, who[:2], what))


def pending(s):
    e = s.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
    say("SO_ERROR", errno.errorcode.get(e, e))


def both(f):
    for six in False, True:
        f(*family(six))


def queues_inside():
    def one(f, out, own):
        lo = "::1" if ":" in out else "127.0.0.1"
        for to in out, lo:
            s = dgram(f)
            s.setblocking(True)
            told(s)
            T("send", s.sendto, b"to nobody", (to, PORT + 9))
            say("comes", until(s, "ERR"))
            say("polls", poll(s))
            told(s)
            say("polls", poll(s))
            pending(s)
            told(s)
            # It is an error of the next call, too.
            s.sendto(b"again", (to, PORT + 9))
            until(s, "ERR")
            T("recv", s.recv, 10)
            say("polls", poll(s))
            told(s, 2)
            # Two of them: the error is that of the next one.
            s.sendto(b"first", (to, PORT + 9))
            until(s, "ERR")
            pending(s)
            T("send", s.sendto, b"second", (to, PORT + 8))
            time.sleep(0.2)
            told(s)
            say("polls", poll(s))
            pending(s)
            told(s)
            # Switched off, it is empty.
            s.sendto(b"third", (to, PORT + 9))
            until(s, "ERR")
            s.setsockopt(IP if f == socket.AF_INET else IP6, RECVERR if f == socket.AF_INET else RECVERR6, 0)
            told(s)
            pending(s)
            # Connected, with what came along.
            c = dgram(f)
            for o in (12, 13) if f == socket.AF_INET else (51, 66):
                c.setsockopt(IP if f == socket.AF_INET else IP6, o, 1)
            c.connect((to, PORT + 9))
            c.send(b"x" * 1000)
            until(c, "ERR")
            told(c, quiet=to == lo)
            T("send", c.send, b"more")
        c = socket.socket(f)
        c.setblocking(True)
        told(c)

    both(one)
    # An IPv6 socket's IPv4.
    s = dgram(socket.AF_INET6)
    s.setsockopt(IP, RECVERR, 1)
    s.sendto(b"mapped", ("::ffff:" + OUT4, PORT + 9))
    until(s, "ERR")
    told(s)


def queues_outside():
    pass


def full_inside():
    """The queue takes no more than the receive buffer."""
    s = dgram()
    s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    for n in range(200):
        try:
            s.sendto(b"x", ("127.0.0.1", PORT + 9))
        except OSError:
            pass
    n = 0
    try:
        while True:
            s.recvmsg(10, 200, ERRQUEUE)
            n += 1
    except BlockingIOError:
        pass
    say("some", 2 < n < 100)


def full_outside():
    pass


def too_large_inside():
    """What does not fit the device."""

    def one(f, out, own):
        level, disc, mtu = (IP, MTU_DISCOVER, MTU) if f == socket.AF_INET else (IP6, MTU_DISCOVER6, MTU6)
        room = 1472 if f == socket.AF_INET else 1452
        step()
        s = dgram(f)
        T("not connected", s.getsockopt, level, mtu)
        for how in 0, 1, 2, 3, 4, 5:
            T(f"discover {how}", s.setsockopt, level, disc, how)
            T("fits", s.sendto, b"x" * room, (out, PORT))
            T("too large", s.sendto, b"x" * (room + 1), (out, PORT))
            told(s)
        s.connect((out, PORT))
        T("mtu", s.getsockopt, level, mtu)
        s.setsockopt(level, disc, 2)
        T("send", s.send, b"x" * 2000)
        told(s)
        pending(s)
        s.setsockopt(level, disc, 3)
        T("longest", s.send, b"x" * 65507)
        told(s)
        T("too long", s.send, b"x" * 65530)
        told(s)
        T("much too long", s.send, b"x" * 65536)
        told(s)
        c = dgram(f, errors=False)
        c.setsockopt(level, disc, 2)
        T("without errors", c.sendto, b"x" * 2000, (out, PORT))
        told(c)
        c.connect(("::1" if ":" in out else "127.0.0.1", PORT))
        say("loopback's mtu", c.getsockopt(level, mtu) >= 65535)
        step()

    both(one)


def too_large_outside():
    for f, out, _ in family(False), family(True):
        s = socket.socket(f, socket.SOCK_DGRAM)
        s.bind((out, PORT))
        step()
        step()


def beyond():
    """A network behind this host, by a smaller MTU."""
    for words in (
        "link add a0 mtu 1300 type veth peer name b0 mtu 1300",
        "link set a0 up",
        "link set b0 up",
        "address add 198.51.100.1/24 dev a0",
        "-6 address add 2001:db8:51::1/64 dev a0 nodad",
        "neighbour add 198.51.100.2 lladdr 02:00:00:00:00:99 dev a0",
        "-6 neighbour add 2001:db8:51::2 lladdr 02:00:00:00:00:99 dev a0",
    ):
        subprocess.run(["ip", *words.split()], check=True)
    for name in "ipv4/ip_forward", "ipv6/conf/all/forwarding":
        with open("/proc/sys/net/" + name, "w") as f:
            f.write("1")


def routers_inside():
    """What routers tell: no more hops, too large."""
    step()
    for f, to in (socket.AF_INET, BEYOND4), (socket.AF_INET6, BEYOND6):
        level, disc, mtu, ttl = (IP, MTU_DISCOVER, MTU, 2) if f == socket.AF_INET else (IP6, MTU_DISCOVER6, MTU6, 16)
        s = dgram(f)
        s.setsockopt(level, ttl, 1)
        s.sendto(b"one hop", (to, PORT))
        until(s, "ERR")
        told(s)
        pending(s)
        s.setsockopt(level, ttl, 64)
        s.setsockopt(level, disc, 2)
        T("too large", s.sendto, b"x" * 1400, (to, PORT))
        say("comes", until(s, "ERR"))
        told(s, quiet=True)
        T("again", s.sendto, b"x" * 1400, (to, PORT))
        told(s)
        T("fits", s.sendto, b"x" * 1240, (to, PORT))
        c = dgram(f, errors=False)
        c.connect((to, PORT))
        T("mtu", c.getsockopt, level, mtu)
        c.setsockopt(level, disc, 0)
        T("in fragments", c.send, b"x" * 1400)
        c.setsockopt(level, disc, 3)
        T("probe", c.send, b"x" * 1400)
        until(c, "ERR", 1)
        say("polls", poll(c))
        pending(c)


def routers_outside():
    beyond()
    step()


def nobody_inside():
    """A neighbour that does not answer."""
    s = dgram(socket.AF_INET)
    s.sendto(b"to nobody", ("10.77.0.99", PORT))
    say("comes", until(s, "ERR"))
    told(s)
    c = dgram(socket.AF_INET, errors=False)
    c.connect(("10.77.0.98", PORT))
    c.send(b"x")
    say("comes", until(c, "ERR", 5))
    s = dgram(socket.AF_INET6)
    s.sendto(b"to nobody", ("fd77::99", PORT))
    say("comes", until(s, "ERR"))
    told(s)


def nobody_outside():
    pass


def pings_inside():
    """Ping and raw sockets."""
    with open("/proc/sys/net/ipv4/ping_group_range", "w") as f:
        f.write("0 0")
    step()
    for f, to, out in (socket.AF_INET, BEYOND4, OUT4), (socket.AF_INET6, BEYOND6, OUT6):
        four = f == socket.AF_INET
        level, ttl = (IP, 2) if four else (IP6, 16)
        icmp = socket.IPPROTO_ICMP if four else socket.IPPROTO_ICMPV6
        echo = struct.pack("!BBHHH", 8 if four else 128, 0, 0, 0x1234, 7) + b"payload"
        for kind in socket.SOCK_DGRAM, socket.SOCK_RAW:
            s = socket.socket(f, kind, icmp)
            s.settimeout(5)
            s.setsockopt(level, ttl, 1)
            s.sendto(echo, (to, 0))
            say("not told", until(s, "ERR", 0.3))
            pending(s)
            want(s)
            s.sendto(echo, (to, 0))
            say("comes", until(s, "ERR"))
            try:
                data, extra, flags, who = s.recvmsg(2000, 500, ERRQUEUE)
                # A ping socket's number is its own.
                data = data[:4] * (kind == socket.SOCK_RAW) + data[6:]
                say("queue", (data, flags, who[:2], [v[:16] for _, _, v in extra if len(v) > 16]))
            except OSError as e:
                say("queue", errno.errorcode[e.errno])
            pending(s)
            if kind == socket.SOCK_DGRAM:
                s.setsockopt(level, ttl, 64)
                s.sendto(echo, (out, 0))
                T("echo", lambda: s.recv(100)[6:])
                T("no echo", s.sendto, b"\0" * 8, (out, 0))
                T("short", s.sendto, b"\x08", (out, 0))
                s.setsockopt(level, 10 if four else 23, 2)
                T("too large", s.sendto, echo + b"x" * 2000, (out, 0))
                told(s)
                s.connect((out, 0))
                T("mtu", s.getsockopt, level, 14 if four else 24)
    # Raw, of another protocol.
    s = socket.socket(socket.AF_INET, socket.SOCK_RAW, 17)
    want(s)
    s.settimeout(5)
    head = struct.pack("!HHHH", 1111, PORT + 9, 12, 0)
    s.sendto(head + b"raw!", (OUT4, 0))
    say("comes", until(s, "ERR"))
    told(s)
    s.setsockopt(IP, MTU_DISCOVER, 2)
    T("too large", s.sendto, b"x" * 2000, (OUT4, 0))
    told(s)
    s = socket.socket(socket.AF_INET, socket.SOCK_RAW, 255)
    want(s)
    T("whole, too large", s.sendto, b"\x45" + b"\0" * 1999, (OUT4, 0))
    told(s)


def pings_outside():
    beyond()
    step()
    time.sleep(4)
