"""Groups, broadcasts, and sockets of one device."""

import errno
import os
import socket
import struct
import time

from ends import *

PORT = 6000
ANY4 = "0.0.0.0"
GROUP, OTHER = "239.1.2.3", "239.1.2.4"
GROUP6, WIDE6 = "ff02::1234", "ff05::1234"
IP, IP6 = socket.IPPROTO_IP, socket.IPPROTO_IPV6
UNICAST_IF, MULTICAST_ALL, MULTICAST_ALL6 = 50, 49, 29
JOIN, LEAVE = 42, 45


def eth():
    return next(i for i, n in socket.if_nameindex() if n != "lo")


def dgram(f=socket.AF_INET, address=None, port=0):
    s = socket.socket(f, socket.SOCK_DGRAM)
    s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    if address is not None:
        s.bind((address, port))
    s.settimeout(0.5)
    return s


def mreq(group, interface=ANY4):
    return socket.inet_aton(group) + socket.inet_aton(interface)


def mreqn(group, index, address=ANY4):
    return mreq(group, address) + struct.pack("i", index)


def mreq6(group, index):
    return socket.inet_pton(socket.AF_INET6, group) + struct.pack("i", index)


def group_req(group, index):
    if ":" in group:
        a = struct.pack("HHI", socket.AF_INET6, 0, 0) + socket.inet_pton(socket.AF_INET6, group)
    else:
        a = struct.pack("HH", socket.AF_INET, 0) + socket.inet_aton(group)
    return struct.pack("I4x", index) + a.ljust(128, b"\0")


def join(s, group=GROUP, interface=ANY4):
    s.setsockopt(IP, socket.IP_ADD_MEMBERSHIP, mreq(group, interface))


def igmp():
    """The groups of each device, as /proc has them."""
    lines, device = [], None
    for l in open("/proc/net/igmp").read().splitlines()[1:]:
        f = l.split()
        if not l.startswith("\t"):
            device = f[1]
        else:
            lines.append((device, f[0], f[1]))
    return sorted(lines)


def joining_inside():
    i = eth()
    s = dgram()
    A, D = socket.IP_ADD_MEMBERSHIP, socket.IP_DROP_MEMBERSHIP
    for name, o, v in [
        ("by route", A, mreq(GROUP)),
        ("again", A, mreq(GROUP)),
        ("again by address", A, mreq(GROUP, IN4)),
        ("again by index", A, mreqn(GROUP, i)),
        ("on lo", A, mreq(GROUP, "127.0.0.1")),
        ("by index", A, mreqn(OTHER, i)),
        ("no such address", A, mreq(GROUP, "192.0.2.1")),
        ("no such index", A, mreqn(GROUP, 99)),
        ("no group", A, mreq("10.0.0.1")),
        ("short", A, b"1234567"),
        ("all hosts", A, mreq("224.0.0.1")),
    ]:
        T(name, s.setsockopt, IP, o, v)
    say("igmp", igmp())
    for name, o, v in [
        ("not a member", D, mreq("239.9.9.9")),
        ("of another address", D, mreq(OTHER, "192.0.2.1")),
        ("by route", D, mreq(GROUP)),
        ("again", D, mreq(GROUP)),
        ("by address", D, mreq(OTHER, IN4)),
        ("of lo", D, mreqn(GROUP, 1)),
        ("no group", D, mreq("10.0.0.1")),
        ("short", D, b"1234567"),
    ]:
        T("drop " + name, s.setsockopt, IP, o, v)
    say("igmp", igmp())
    T("JOIN", s.setsockopt, IP, JOIN, group_req(GROUP, 0))
    T("JOIN again", s.setsockopt, IP, JOIN, group_req(GROUP, i))
    T("JOIN six", s.setsockopt, IP, JOIN, group_req(GROUP6, i))
    T("JOIN short", s.setsockopt, IP, JOIN, group_req(GROUP, i)[:100])
    T("LEAVE", s.setsockopt, IP, LEAVE, group_req(GROUP, i))
    T("LEAVE again", s.setsockopt, IP, LEAVE, group_req(GROUP, i))
    r = [n for n in range(30) if attempt_join(s, f"239.3.3.{n}")]
    say("most", len(r))
    t = dgram()
    join(t, "239.3.3.1")
    say("two sockets", [l for l in igmp() if l[1] == "010303EF"])
    s.close()
    say("one closed", igmp())
    t.close()
    say("both closed", igmp())
    c = socket.socket(socket.AF_INET)
    T("a stream", c.setsockopt, IP, A, mreq(GROUP))
    T("a stream", c.setsockopt, IP, socket.IP_MULTICAST_IF, socket.inet_aton(IN4))


def attempt_join(s, group):
    try:
        join(s, group)
        return True
    except OSError as e:
        say("full", errno.errorcode[e.errno])
        return False


def joining_outside():
    pass


def joining_six_inside():
    i = eth()
    s = dgram(socket.AF_INET6)
    A, D = socket.IPV6_JOIN_GROUP, socket.IPV6_LEAVE_GROUP
    for name, o, v in [
        ("by index", A, mreq6(GROUP6, i)),
        ("again", A, mreq6(GROUP6, i)),
        ("again without index", A, mreq6(GROUP6, 0)),
        ("without index", A, mreq6(WIDE6, 0)),
        ("on lo", A, mreq6(GROUP6, 1)),
        ("no such index", A, mreq6("ff05::77", 99)),
        ("no group", A, mreq6("fd00::1", i)),
        ("short", A, b"1" * 19),
        ("leave", D, mreq6(GROUP6, i)),
        ("leave again", D, mreq6(GROUP6, i)),
        ("leave without index", D, mreq6(WIDE6, 0)),
        ("leave no group", D, mreq6("fd00::1", i)),
        ("JOIN", JOIN, group_req(WIDE6, i)),
        ("JOIN again", JOIN, group_req(WIDE6, 0)),
        ("JOIN four", JOIN, group_req(GROUP, i)),
        ("LEAVE", LEAVE, group_req(WIDE6, i)),
    ]:
        T(name, s.setsockopt, IP6, o, v)
    T("of IPv4", s.setsockopt, IP, socket.IP_ADD_MEMBERSHIP, mreq(GROUP))
    c = socket.socket(socket.AF_INET6)
    T("a stream", c.setsockopt, IP6, A, mreq6(GROUP6, i))


def joining_six_outside():
    pass


def choices_inside():
    """IP_MULTICAST_IF and its kin, as they are set and told."""
    i = eth()
    s = dgram()

    def four(what, o, v, size=4):
        T(what, s.setsockopt, IP, o, v)
        T(what + " is", s.getsockopt, IP, o, size)

    four("IF by address", socket.IP_MULTICAST_IF, socket.inet_aton(IN4))
    four("IF by index", socket.IP_MULTICAST_IF, mreqn(ANY4, i))
    four("IF by both", socket.IP_MULTICAST_IF, mreqn(ANY4, i, IN4))
    four("IF mreq", socket.IP_MULTICAST_IF, mreq(ANY4, "127.0.0.1"))
    four("IF unknown", socket.IP_MULTICAST_IF, socket.inet_aton("192.0.2.1"))
    four("IF bad index", socket.IP_MULTICAST_IF, mreqn(ANY4, 99))
    four("IF short", socket.IP_MULTICAST_IF, b"abc")
    four("IF none", socket.IP_MULTICAST_IF, b"\0" * 4)
    for v in 0, 1, 255, 256, -1, -2:
        four(f"TTL {v}", socket.IP_MULTICAST_TTL, struct.pack("i", v))
    four("TTL byte", socket.IP_MULTICAST_TTL, b"\x07")
    for v in 0, 1, 2:
        four(f"LOOP {v}", socket.IP_MULTICAST_LOOP, struct.pack("i", v))
    for v in 0, 1, 2:
        four(f"ALL {v}", MULTICAST_ALL, struct.pack("i", v))
    for v in i, 99, 0:
        four(f"UNICAST_IF {v}", UNICAST_IF, struct.pack("!i", v))
    s = dgram(socket.AF_INET6)
    for name, o, values in [
        ("IF", socket.IPV6_MULTICAST_IF, (i, 99, 1, 0)),
        ("HOPS", socket.IPV6_MULTICAST_HOPS, (0, 5, 256, -1, -2)),
        ("LOOP", socket.IPV6_MULTICAST_LOOP, (0, 1, 2)),
        ("ALL", MULTICAST_ALL6, (0, 1)),
    ]:
        for v in values:
            T(f"v6 {name} {v}", s.setsockopt, IP6, o, v)
            T(f"v6 {name} is", s.getsockopt, IP6, o)


def choices_outside():
    pass


def tell(s):
    """What it receives in half a second."""
    got = []
    try:
        while True:
            got.append(s.recv(100))
    except TimeoutError:
        pass
    return got


def told_groups_inside():
    """Groups' datagrams from outside go to each member of the port."""
    a, b, c, d = (dgram(socket.AF_INET, ANY4, PORT) for _ in range(4))
    e = dgram(socket.AF_INET, GROUP, PORT)
    f = dgram(socket.AF_INET, IN4, PORT)
    v = dgram(socket.AF_INET6, "::", PORT)
    a.setsockopt(IP, socket.IP_PKTINFO if hasattr(socket, "IP_PKTINFO") else 8, 1)
    a.setsockopt(IP, 12, 1)
    join(a)
    join(b)
    join(b, OTHER)
    c.setsockopt(IP, MULTICAST_ALL, 0)
    join(d)
    d.setsockopt(IP, socket.IP_DROP_MEMBERSHIP, mreq(GROUP))
    step()
    step()
    data, extra, flags, who = a.recvmsg(100, 200)
    say("a", (data, who[0], sorted((k, x[8:] if k == 8 else x) for _, k, x in extra)))
    for name, s in ("a", a), ("b", b), ("c", c), ("d", d), ("e", e), ("f", f), ("v", v):
        say(name, tell(s))
    # Nobody is in the group any longer.
    for s in a, b:
        s.setsockopt(IP, socket.IP_DROP_MEMBERSHIP, mreq(GROUP))
    step()
    step()
    for name, s in ("a", a), ("b", b), ("d", d), ("e", e):
        say(name, tell(s))
    step()


def told_groups_outside():
    s = dgram()
    s.setsockopt(IP, socket.IP_MULTICAST_IF, socket.inet_aton(OUT4))
    s.setsockopt(IP, socket.IP_MULTICAST_TTL, 9)
    step()
    time.sleep(0.2)
    for data, group in (b"one", GROUP), (b"two", OTHER), (b"three", "239.7.7.7"):
        s.sendto(data, (group, PORT))
    step()
    step()
    s.sendto(b"four", (GROUP, PORT))
    s.sendto(b"five", (OTHER, PORT))
    step()
    step()


def told_six_inside():
    i = eth()
    a, b, c = (dgram(socket.AF_INET6, "::", PORT) for _ in range(3))
    for o in 49, 51:
        a.setsockopt(IP6, o, 1)
    a.setsockopt(IP6, socket.IPV6_JOIN_GROUP, mreq6(GROUP6, i))
    b.setsockopt(IP6, socket.IPV6_JOIN_GROUP, mreq6(WIDE6, i))
    c.setsockopt(IP6, MULTICAST_ALL6, 0)
    step()
    step()
    data, extra, flags, who = a.recvmsg(100, 200)
    say("a", (data, sorted((k, x[:16] if k == 50 else x) for _, k, x in extra)))
    for name, s in ("a", a), ("b", b), ("c", c):
        say(name, tell(s))
    step()


def told_six_outside():
    i = eth()
    s = dgram(socket.AF_INET6)
    s.setsockopt(IP6, socket.IPV6_MULTICAST_HOPS, 7)
    step()
    time.sleep(0.2)
    s.sendto(b"one", (GROUP6, PORT, 0, i))
    s.setsockopt(IP6, socket.IPV6_MULTICAST_IF, i)
    s.sendto(b"two", (WIDE6, PORT))
    step()
    step()


def tell_groups_inside():
    """Datagrams to groups from inside: outside gets them, and members here."""
    step()
    s = dgram(socket.AF_INET, ANY4, 0)
    m = dgram(socket.AF_INET, ANY4, PORT)
    m.setsockopt(IP, 8, 1)
    join(m)
    T("by route", s.sendto, b"by route", (GROUP, PORT))
    data, extra, flags, who = m.recvmsg(100, 200)
    say("looped", (data, who[0], [x[8:] for _, k, x in extra]))
    s.setsockopt(IP, socket.IP_MULTICAST_TTL, 5)
    T("ttl", s.sendto, b"ttl 5", (GROUP, PORT))
    s.setsockopt(IP, socket.IP_MULTICAST_TTL, 0)
    T("no ttl", s.sendto, b"only here", (GROUP, PORT))
    say("looped", tell(m))
    s.setsockopt(IP, socket.IP_MULTICAST_TTL, 1)
    s.setsockopt(IP, socket.IP_MULTICAST_LOOP, 0)
    T("no loop", s.sendto, b"not here", (GROUP, PORT))
    say("looped", tell(m))
    s.setsockopt(IP, socket.IP_MULTICAST_LOOP, 1)
    # By the loopback device, where m is no member.
    s.setsockopt(IP, socket.IP_MULTICAST_IF, socket.inet_aton("127.0.0.1"))
    T("on lo", s.sendto, b"on lo", (GROUP, PORT))
    say("got", tell(m))
    join(m, GROUP, "127.0.0.1")
    T("on lo", s.sendto, b"on lo for members", (GROUP, PORT))
    data, who = m.recvfrom(100)
    say("got", (data, who[0]))
    b = dgram(socket.AF_INET, "127.0.0.1", 0)
    T("from 127.0.0.1", b.sendto, b"bound", (GROUP, PORT))
    data, who = m.recvfrom(100)
    say("got", (data, who[0]))
    c = dgram()
    c.connect((GROUP, PORT))
    say("connected", (c.getsockname()[0], c.getpeername()))
    T("send", c.send, b"connected")
    say("got", tell(m))
    T("answer", m.sendto, b"to a connected one", c.getsockname())
    T("not from the peer", c.recv, 100)
    # IPv6
    i = eth()
    s = dgram(socket.AF_INET6)
    m = dgram(socket.AF_INET6, "::", PORT)
    m.setsockopt(IP6, socket.IPV6_JOIN_GROUP, mreq6(GROUP6, i))
    T("six", s.sendto, b"six", (GROUP6, PORT, 0, i))
    say("looped", tell(m))
    s.setsockopt(IP6, socket.IPV6_MULTICAST_LOOP, 0)
    s.setsockopt(IP6, socket.IPV6_MULTICAST_HOPS, 3)
    T("six", s.sendto, b"six not here", (GROUP6, PORT, 0, i))
    say("looped", tell(m))
    step()


def tell_groups_outside():
    i = eth()
    s = dgram(socket.AF_INET, ANY4, PORT)
    s.setsockopt(IP, 12, 1)
    join(s, GROUP, OUT4)
    v = dgram(socket.AF_INET6, "::", PORT)
    v.setsockopt(IP6, 51, 1)
    v.setsockopt(IP6, socket.IPV6_JOIN_GROUP, mreq6(GROUP6, i))
    step()
    step()
    s.settimeout(0.2)
    v.settimeout(0.2)
    for x in s, v:
        try:
            while True:
                data, extra, flags, who = x.recvmsg(100, 200)
                say("got", (data, who[0] if x is s else "", extra))
        except TimeoutError:
            pass


def broadcasts_here_inside():
    """Broadcasts come back to this host, and go to each socket of the port."""
    a, b = (dgram(socket.AF_INET, ANY4, PORT) for _ in range(2))
    a.setsockopt(IP, 8, 1)
    c = dgram(socket.AF_INET, IN4, PORT)
    d = dgram(socket.AF_INET, "10.77.0.255", PORT)
    s = dgram()
    T("not allowed", s.sendto, b"x", ("127.255.255.255", PORT))
    T("not allowed", s.connect, ("10.77.0.255", PORT))
    s.setsockopt(socket.SOL_SOCKET, socket.SO_BROADCAST, 1)
    for to in "10.77.0.255", "255.255.255.255", "127.255.255.255":
        T("send", s.sendto, to.encode(), (to, PORT))
        data, extra, flags, who = a.recvmsg(100, 200)
        say("got", (data, who[0], [x[8:] for _, k, x in extra]))
        say("b", tell(b))
        say("c", tell(c))
        say("d", tell(d))


def broadcasts_here_outside():
    pass


def devices_of_sockets_inside():
    """SO_BINDTODEVICE."""
    B = 25
    s = dgram()
    T("none", s.getsockopt, socket.SOL_SOCKET, B, 20)
    T("unknown", s.setsockopt, socket.SOL_SOCKET, B, b"nodevice")
    T("eth0", s.setsockopt, socket.SOL_SOCKET, B, b"eth0")
    T("is", s.getsockopt, socket.SOL_SOCKET, B, 20)
    T("small", s.getsockopt, socket.SOL_SOCKET, B, 3)
    T("index", s.getsockopt, socket.SOL_SOCKET, 62)
    T("IF of another", s.setsockopt, IP, socket.IP_MULTICAST_IF, mreqn(ANY4, 1))
    T("off", s.setsockopt, socket.SOL_SOCKET, B, b"")
    T("is", s.getsockopt, socket.SOL_SOCKET, B, 20)
    lo, e, every = (dgram(socket.AF_INET, None) for _ in range(3))
    lo.setsockopt(socket.SOL_SOCKET, B, b"lo\0")
    e.setsockopt(socket.SOL_SOCKET, B, b"eth0\0")
    for n, x in enumerate((lo, e, every)):
        x.bind((ANY4, PORT + n))
    l = server(ANY4, PORT + 9)
    l.setsockopt(socket.SOL_SOCKET, B, b"lo")
    step()
    step()
    for x in lo, e, every:
        say("got", tell(x))
    x = dgram()
    for n in range(3):
        T("from here", x.sendto, b"from here", ("127.0.0.1", PORT + n))
    for x in lo, e, every:
        say("got", tell(x))
    T("by lo", lo.sendto, b"by lo", (OUT4, PORT))
    T("by eth0", e.sendto, b"by eth0", (OUT4, PORT))
    T("by eth0 to lo", e.sendto, b"nowhere", ("127.0.0.1", PORT + 2))
    say("got", tell(every))
    u = dgram()
    u.setsockopt(IP, UNICAST_IF, struct.pack("!i", 1))
    T("UNICAST_IF lo", u.sendto, b"by lo", (OUT4, PORT))
    u.setsockopt(IP, UNICAST_IF, struct.pack("!i", eth()))
    T("UNICAST_IF eth0", u.sendto, b"by UNICAST_IF", (OUT4, PORT))
    c = socket.socket()
    c.setsockopt(socket.SOL_SOCKET, B, b"eth0")
    T("connect by eth0", c.connect, (OUT4, PORT))
    step()


def devices_of_sockets_outside():
    s = dgram(socket.AF_INET, OUT4, PORT)
    l = server(OUT4, PORT)
    step()
    for n in range(3):
        s.sendto(b"from outside", (IN4, PORT + n))
    T("a listener on lo", attempt, IN4, PORT + 9)
    step()
    step()
    say("got", tell(s))
