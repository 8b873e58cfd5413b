"""Datagrams."""

import errno
import socket
import struct
import time

from ends import *

PORT = 5000


def both(f):
    for six in False, True:
        f(*family(six))


def dgram(f, address="", port=0):
    s = socket.socket(f, socket.SOCK_DGRAM)
    if port or address:
        s.bind((address, port))
    s.settimeout(10)
    return s


SIZES = [0, 1, 100, 1400, 1452, 1453, 1472, 1473, 2000, 8000, 9000, 40000, 65000, 65507]


def echoes_inside():
    def one(f, out, own):
        step()
        s = dgram(f)
        for n in SIZES:
            data = pattern(n, n)
            s.sendto(data, (out, PORT))
            b, who = s.recvfrom(70000)
            say(f"echo of {n}", (b == data, len(b), who[:2]))
        T("too large", s.sendto, b"x" * (65508 if f == socket.AF_INET else 65528), (out, PORT))
        say("name", s.getsockname()[0])
        c = dgram(f)
        c.connect((out, PORT))
        say("connected name", c.getsockname()[0])
        c.send(b"connected")
        say("echo", c.recv(100))
        step()

    both(one)


def echoes_outside():
    def one(f, out, own):
        s = dgram(f, out, PORT)
        step()
        b = b""
        while b != b"connected":
            b, who = s.recvfrom(70000)
            s.sendto(b, who)
        step()

    both(one)


def served_inside():
    def one(f, out, own):
        s = dgram(f, "::" if ":" in own else "0.0.0.0", PORT)
        step()
        for n in SIZES:
            b, who = s.recvfrom(70000)
            say("got", (len(b), who[0]))
            s.sendto(b, who)
        step()

    both(one)


def served_outside():
    def one(f, out, own):
        step()
        s = dgram(f)
        for n in SIZES:
            data = pattern(n, n)
            s.sendto(data, (own, PORT))
            say(f"echo of {n}", s.recv(70000) == data)
        # Nobody at this port.
        c = dgram(f)
        c.connect((own, PORT + 1))
        c.send(b"x")
        T("refused", c.recv, 10)
        step()

    both(one)


def unreachable_inside():
    def one(f, out, own):
        c = dgram(f)
        c.connect((out, 5009))
        T("send", c.send, b"x")
        T("recv", c.recv, 10)
        T("send", c.send, b"x")
        until(c, "ERR")
        say("polls", poll(c))
        say("error", errno.errorcode[c.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)])
        say("polls", poll(c))
        # Not connected: not told.
        s = dgram(f)
        s.sendto(b"x", (out, 5009))
        s.settimeout(0.3)
        T("recv", s.recv, 10)

    both(one)


def unreachable_outside():
    pass


def segments_inside():
    """UDP_SEGMENT: one send, many datagrams."""
    step()
    s = dgram(socket.AF_INET)
    s.setsockopt(socket.IPPROTO_UDP, 103, 1000)
    T("sent", s.sendto, pattern(10_500), (OUT4, PORT))
    T("small", s.sendto, b"small", (OUT4, PORT))
    s.setsockopt(socket.IPPROTO_UDP, 103, 0)
    T("by message", s.sendmsg, [pattern(3000)], [(socket.IPPROTO_UDP, 103, struct.pack("H", 1200))], 0, (OUT4, PORT))
    step()


def segments_outside():
    s = dgram(socket.AF_INET, OUT4, PORT)
    step()
    for _ in range(11 + 1 + 3):
        say("got", digest(s.recv(70000)))
    step()


def messages_inside():
    """What comes along with a datagram."""
    s = dgram(socket.AF_INET, "0.0.0.0", PORT)
    s.setsockopt(socket.IPPROTO_IP, 8, 1)  # PKTINFO
    s.setsockopt(socket.IPPROTO_IP, 12, 1)  # RECVTTL
    s.setsockopt(socket.IPPROTO_IP, 13, 1)  # RECVTOS
    v = dgram(socket.AF_INET6, "::", PORT + 1)
    for o in 49, 51, 66:  # RECVPKTINFO, RECVHOPLIMIT, RECVTCLASS
        v.setsockopt(socket.IPPROTO_IPV6, o, 1)
    step()
    for x in s, v, v:
        data, extra, flags, who = x.recvmsg(4, 1000)
        say("got", (data, flags, who[0]))
        for level, kind, value in sorted(extra):
            say("extra", (level, kind, value[4:] if kind in (8,) else value if kind not in (50,) else value[:16]))
    step()


def messages_outside():
    step()
    s = dgram(socket.AF_INET)
    s.setsockopt(socket.IPPROTO_IP, socket.IP_TTL, 33)
    s.setsockopt(socket.IPPROTO_IP, socket.IP_TOS, 0x10)
    s.sendto(b"more than four", (IN4, PORT))
    v = dgram(socket.AF_INET6)
    v.setsockopt(socket.IPPROTO_IPV6, 16, 44)
    v.setsockopt(socket.IPPROTO_IPV6, 67, 0x20)
    time.sleep(0.1)
    v.sendto(b"six", (IN6, PORT + 1))
    time.sleep(0.1)
    s.sendto(b"mapped", (IN4, PORT + 1))
    step()


def marks_inside():
    """What the other side sees of our options."""
    step()
    s = dgram(socket.AF_INET)
    s.setsockopt(socket.IPPROTO_IP, socket.IP_TTL, 17)
    s.setsockopt(socket.IPPROTO_IP, socket.IP_TOS, 0x18)
    s.sendto(b"a", (OUT4, PORT))
    s = dgram(socket.AF_INET6)
    s.setsockopt(socket.IPPROTO_IPV6, 16, 19)
    s.setsockopt(socket.IPPROTO_IPV6, 67, 0x40)
    s.sendto(b"b", (OUT6, PORT))
    time.sleep(0.1)  # Its neighbour is asked for first.
    m = dgram(socket.AF_INET6)
    m.sendto(b"c", ("::ffff:" + OUT4, PORT))
    say("mapped", m.getsockname()[0])
    # DF, and what is larger than the device's MTU.
    d = dgram(socket.AF_INET)
    d.setsockopt(socket.IPPROTO_IP, 10, 2)
    T("too large", d.sendto, b"x" * 1473, (OUT4, PORT))
    T("fits", d.sendto, b"x" * 1472, (OUT4, PORT))
    d.setsockopt(socket.IPPROTO_IP, 10, 0)
    T("fragments", d.sendto, b"x" * 1473, (OUT4, PORT))
    step()


def marks_outside():
    s = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
    s.bind(("::", PORT))
    s.settimeout(10)
    s.setsockopt(socket.IPPROTO_IP, 12, 1)
    s.setsockopt(socket.IPPROTO_IP, 13, 1)
    for o in 51, 66:
        s.setsockopt(socket.IPPROTO_IPV6, o, 1)
    step()
    for _ in range(5):
        data, extra, flags, who = s.recvmsg(2000, 1000)
        say("got", (len(data), who[0]))
        for level, kind, value in sorted(extra):
            say("extra", (level, kind, value))
    step()


def broadcasts_inside():
    s = dgram(socket.AF_INET)
    T("not allowed", s.sendto, b"x", ("10.77.0.255", PORT))
    s.setsockopt(socket.SOL_SOCKET, socket.SO_BROADCAST, 1)
    step()
    T("allowed", s.sendto, b"to all", ("10.77.0.255", PORT))
    T("limited", s.sendto, b"to all here", ("255.255.255.255", PORT))
    r = dgram(socket.AF_INET, "0.0.0.0", PORT)
    step()
    say("got", r.recv(100))
    step()


def broadcasts_outside():
    s = dgram(socket.AF_INET, "0.0.0.0", PORT)
    step()
    say("got", s.recv(100))
    say("got", s.recv(100))
    s.setsockopt(socket.SOL_SOCKET, socket.SO_BROADCAST, 1)
    step()
    s.sendto(b"back to all", ("10.77.0.255", PORT))
    step()
