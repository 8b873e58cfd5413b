"""Packet sockets: what they see of a device and of the loopback, rings, filters, frames that a program makes."""

import ctypes
import fcntl
import mmap
import re
import subprocess

from ends import *

ALL, IPV4 = 3, 0x800
SOL_PACKET = 263
PORT = 4700
KINDS = ["host", "broadcast", "multicast", "other", "outgoing"]
lo, eth = "lo", "eth0"


def raw(device=eth, protocol=ALL, kind=socket.SOCK_RAW):
    s = socket.socket(socket.AF_PACKET, kind, 0)
    s.bind((device, protocol))
    s.settimeout(5)
    return s


def filter_of(code):
    b = b"".join(struct.pack("HBBI", *i) for i in code)
    buf = ctypes.create_string_buffer(b, len(b))
    return struct.pack("HxxxxxxQ", len(code), ctypes.addressof(buf)), buf


def attach(s, code):
    v, keep = filter_of(code)
    s.setsockopt(socket.SOL_SOCKET, 26, v)


# UDP over IPv4 from or to our port; the first number is where the IP header begins.
def our_udp(at, most=0x40000):
    return [(0x30, 0, 0, at + 9), (0x15, 0, 6, 17), (0x28, 0, 0, at + 20), (0x15, 3, 0, PORT), (0x28, 0, 0, at + 22), (0x15, 1, 0, PORT), (0x06, 0, 0, 0), (0x06, 0, 0, most), (0x06, 0, 0, 0)]


def told(frame, a, at=14):
    name, protocol, kind, hardware, mac = a
    ip = frame[at:]
    return name, hex(protocol), KINDS[kind], hardware, len(mac), len(frame), socket.inet_ntoa(ip[12:16]), socket.inet_ntoa(ip[16:20]), struct.unpack("!HHH", ip[20:26]), ip[28:]


def exchange(n=2):
    """n datagrams come in and go back."""
    s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    s.bind(("0.0.0.0", PORT))
    s.settimeout(5)
    step()
    for i in range(n):
        d, a = s.recvfrom(100)
        s.sendto(b"back " + d, a)
    step()
    s.close()


def exchange_outside(n=2):
    s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    s.bind((OUT4, PORT))
    s.settimeout(5)
    step()
    for i in range(n):
        s.sendto(b"there %d" % i, (IN4, PORT))
        s.recv(100)
    step()
    s.close()


def everything(s, at=14):
    got = []
    s.settimeout(0.2)
    try:
        while True:
            got.append(told(*s.recvfrom(2000), at))
    except TimeoutError:
        pass
    return got


def sees_a_device_inside():
    socks = {
        "raw": (raw(), 14),
        "cooked": (raw(kind=socket.SOCK_DGRAM), 0),
        "one protocol": (raw(protocol=IPV4), 14),
        "all devices": (raw(device=""), 14),
        "nothing": (raw(protocol=0), 14),
        "the other device": (raw(device=lo), 14),
        "no outgoing": (raw(), 14),
    }
    for s, at in socks.values():
        attach(s, our_udp(at))
    socks["no outgoing"][0].setsockopt(SOL_PACKET, 23, 1)
    exchange()
    for name, (s, at) in socks.items():
        for l in everything(s, at):
            say(name, l)
        say(name, [n for n in struct.unpack("II", s.getsockopt(SOL_PACKET, 6, 8))])
        say(name, struct.unpack("II", s.getsockopt(SOL_PACKET, 6, 8)))


def sees_a_device_outside():
    exchange_outside()


def sees_the_loopback_inside():
    socks = [raw(device=lo), raw(device=lo, kind=socket.SOCK_DGRAM), raw(device=lo, protocol=IPV4)]
    for s, at in zip(socks, (14, 0, 14)):
        attach(s, our_udp(at))
    a = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    a.bind(("127.0.0.1", PORT))
    b = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    b.bind(("127.0.0.1", 4701))
    b.sendto(b"hello", ("127.0.0.1", PORT))
    a.sendto(b"you too", ("127.0.0.1", 4701))
    for s, at in zip(socks, (14, 0, 14)):
        for l in everything(s, at):
            say("seen", l)
    # ICMP: an echo and its answer.
    s = raw(device=lo, protocol=IPV4)
    attach(s, [(0x30, 0, 0, 23), (0x15, 0, 1, 1), (0x06, 0, 0, 1000), (0x06, 0, 0, 0)])
    subprocess.run(["ping", "-c1", "-s20", "127.0.0.1"], capture_output=True)
    s.settimeout(0.3)
    for i in range(2):
        f, a = s.recvfrom(2000)
        say("echo", (a[2], f[34], len(f), f[14:16], f[22:24]))
    say("mac", f[:14])


def sees_the_loopback_outside():
    pass


def sees_streams_inside():
    """A connection over the loopback: what it says and how it begins and ends. How it is acknowledged is TCP's affair."""
    for family, address, kind, at in (socket.AF_INET, "127.0.0.1", IPV4, 34), (socket.AF_INET6, "::1", 0x86DD, 54):
        t = raw(device=lo, protocol=kind)
        s = socket.create_server((address, PORT), family=family)
        c = socket.create_connection((address, PORT))
        d, a = s.accept()
        c.sendall(b"question")
        d.recv(100)
        d.sendall(b"the answer")
        c.recv(100)
        c.close()
        d.recv(100)
        d.close()
        s.close()
        T("refused", socket.create_connection, (address, PORT))
        t.settimeout(0.3)
        first = {}
        try:
            while True:
                f, _ = t.recvfrom(2000)
                source, to, seq, ack, off, flags = struct.unpack("!HHIIBB", f[at : at + 14])
                data = f[at + (off >> 4) * 4 :]
                if PORT not in (source, to):
                    continue
                whose = "client" if to == PORT else "server"
                if flags & 2:
                    first[whose] = seq
                if flags & 7 or data:
                    at_most = 0 if flags & 4 else seq - first.get(whose, seq)
                    say("segment", (whose, flags, at_most, data))
        except TimeoutError:
            pass


def sees_streams_outside():
    pass


def cuts_and_tells_inside():
    s = raw()
    attach(s, our_udp(14, 60))
    s.setsockopt(SOL_PACKET, 8, 1)
    t = raw(kind=socket.SOCK_DGRAM)
    attach(t, our_udp(0))
    t.setsockopt(SOL_PACKET, 8, 1)
    u = raw()
    attach(u, our_udp(14))
    exchange(1)
    for name, x in ("raw", s), ("cooked", t):
        for i in range(2):
            data, anc, flags, a = x.recvmsg(50, 200)
            say(name, (len(data), flags, a[1:4]))
            for level, kind, v in anc:
                w = struct.unpack("IIIHHHH", v)
                # What is known of the checksum is the device's.
                say("aux", (level, kind, w[0] & ~0x88, *w[1:]))
    say("peek", len(u.recv(30, socket.MSG_PEEK)))
    say("trunc", u.recv_into(bytearray(30), 30, socket.MSG_TRUNC))
    say("poll", poll(u))
    say("inq", struct.unpack("i", fcntl.ioctl(u, 0x541B, b"1234")))
    u.recv(100)
    say("poll", poll(u))
    u.setblocking(False)
    T("empty", u.recv, 10)


def cuts_and_tells_outside():
    exchange_outside(1)


def ring_of(version, s):
    s.setsockopt(SOL_PACKET, 10, version)
    say("header", header(s, version))
    if version < 2:
        s.setsockopt(SOL_PACKET, 5, struct.pack("IIII", 4096, 4, 512, 32))
        return mmap.mmap(s.fileno(), 16384)
    s.setsockopt(SOL_PACKET, 5, struct.pack("IIIIIII", 8192, 4, 512, 64, 60, 16, 0))
    return mmap.mmap(s.fileno(), 32768)


def header(s, version):
    buf, n = ctypes.c_int(version), ctypes.c_int(4)
    r = ctypes.CDLL(None, use_errno=True).getsockopt(s.fileno(), SOL_PACKET, 11, ctypes.byref(buf), ctypes.byref(n))
    return r, buf.value


def frames(m, version):
    if version < 2:
        for i in range(6):
            f = m[512 * i : 512 * i + 512]
            if version == 0:
                status, length, snap, mac, net, sec, sub = struct.unpack("QIIHHII", f[:28])
            else:
                status, length, snap, mac, net, sec, sub = struct.unpack("IIIHHII", f[:24])
            say("frame", (status & 0x57, length, snap, mac, net, abs(sec - time.time()) < 60 if status else sec))
            if status:
                say("address", (f[32:36], struct.unpack("HBB", f[40:44])))
                say("data", (f[mac + 12 : mac + 14], f[net : net + 4], f[net + 28 : net + snap - 14]))
        return
    for i in range(4):
        b = m[8192 * i : 8192 * i + 8192]
        v, priv, status, packets, first, length, seq = struct.unpack("IIIIIIQ", b[:32])
        if not status:
            say("block", "the kernel's")
            continue
        say("block", (v, priv, status, packets, first, length, seq))
        at = first
        for _ in range(packets):
            following, sec, nsec, snap, plen, pstatus, mac, net = struct.unpack("IIIIIIHH", b[at : at + 28])
            say("packet", (following, snap, plen, pstatus & 0x57, mac, net, abs(sec - time.time()) < 60))
            say("address", (b[at + 48 : at + 52], struct.unpack("HBB", b[at + 56 : at + 60])))
            say("data", (b[at + mac + 12 : at + mac + 14], b[at + net + 28 : at + net + snap - 14]))
            at += following


def ring(version):
    s = raw(protocol=0)
    attach(s, our_udp(14))
    m = ring_of(version, s)
    say("poll", poll(s))
    s.bind((eth, ALL))
    exchange(3)
    say("comes", until(s, "IN"))
    time.sleep(0.2)
    frames(m, version)
    say("statistics", struct.unpack("III"[: 2 + version // 2], s.getsockopt(SOL_PACKET, 6, 12)))
    s.setblocking(False)
    T("a read", s.recv, 100)
    T("another", s.setsockopt, SOL_PACKET, 5, struct.pack("IIIIIII", 4096, 1, 512, 8, 0, 0, 0))
    T("version", s.setsockopt, SOL_PACKET, 10, 0)
    # Given back, they are filled again.
    for i in range(8 if version < 2 else 4):
        at = 512 * i if version < 2 else 8192 * i + 8
        m[at : at + 4] = bytes(4)
    say("poll", poll(s))
    m.close()
    T("away", s.setsockopt, SOL_PACKET, 5, bytes(28))
    T("mapped", mmap.mmap, s.fileno(), 4096)
    s.close()


def rings_inside():
    for version in range(3):
        say("version", version)
        ring(version)


def rings_outside():
    for version in range(3):
        exchange_outside(3)


def full_ring_inside():
    """A ring that nobody empties."""
    s = raw(protocol=0)
    attach(s, our_udp(14))
    s.setsockopt(SOL_PACKET, 10, 1)
    s.setsockopt(SOL_PACKET, 5, struct.pack("IIII", 4096, 1, 2048, 2))
    m = mmap.mmap(s.fileno(), 4096)
    s.bind((eth, ALL))
    exchange(4)
    time.sleep(0.1)
    say("statistics", struct.unpack("II", s.getsockopt(SOL_PACKET, 6, 8)))
    m[0:4] = bytes(4)
    exchange(1)
    time.sleep(0.1)
    say("status", [struct.unpack("I", m[a : a + 4])[0] & 7 for a in (0, 2048)])
    say("statistics", struct.unpack("II", s.getsockopt(SOL_PACKET, 6, 8)))


def full_ring_outside():
    exchange_outside(4)
    exchange_outside(1)


def ip_sum(h):
    n = sum(struct.unpack(f"!{len(h) // 2}H", h))
    while n >> 16:
        n = (n & 0xFFFF) + (n >> 16)
    return struct.pack("!H", ~n & 0xFFFF)


def udp_frame(to, mac, source, dest, data, port=PORT):
    h = struct.pack("!BBHHHBBH4s4s", 0x45, 0, 28 + len(data), 7, 0, 64, 17, 0, socket.inet_aton(source), socket.inet_aton(dest))
    h = h[:10] + ip_sum(h) + h[12:]
    return to + mac + b"\x08\x00" + h + struct.pack("!HHHH", port, port, 8 + len(data), 0) + data


def mac_of(device):
    s = socket.socket()
    return fcntl.ioctl(s, 0x8927, struct.pack("16s24x", device.encode()))[18:24]


def sends_inside():
    s, other = raw(), raw()
    attach(s, our_udp(14))
    attach(other, our_udp(14))
    own = mac_of(eth)
    step()
    frame = udp_frame(b"\xff" * 6, own, IN4, OUT4, b"made by hand")
    T("sent", s.send, frame)
    T("cooked", raw(kind=socket.SOCK_DGRAM).sendto, udp_frame(b"", b"", IN4, OUT4, b"without a header")[2:], (eth, IPV4, 0, 0, b"\xff" * 6))
    T("to all", socket.socket(socket.AF_PACKET, socket.SOCK_RAW).sendto, udp_frame(b"\xff" * 6, own, "0.0.0.0", "255.255.255.255", b"who am I"), (eth, 0))
    step()
    s.settimeout(0.2)
    got = [len(x) for x in (s.recv(100), s.recv(100))]
    say("itself", got)
    say("another", [l[2:] for l in everything(other)])
    T("short", s.send, b"123")
    T("long", s.send, bytes(1515))
    T("longest", s.send, b"\xff" * 6 + own + b"\x88\xb5" + bytes(1500))
    u = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
    T("unbound", u.send, frame)
    T("loopback", u.sendto, udp_frame(bytes(6), bytes(6), "127.0.0.1", "127.0.0.1", b"x"), (lo, 0))
    # ARP: the answer is a frame that no other socket brings.
    a = raw(protocol=0x806)
    a.send(b"\xff" * 6 + own + struct.pack("!HHHBBH6s4s6s4s", 0x806, 1, 0x800, 6, 4, 1, own, socket.inet_aton(IN4), bytes(6), socket.inet_aton(OUT4)))
    while True:
        f, at = a.recvfrom(100)
        if f[20:22] == b"\0\2":
            break
    say("answer", (at[2], f[28:32] == socket.inet_aton(OUT4), f[32:38] == own))


def sends_outside():
    s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    s.bind(("0.0.0.0", PORT))
    s.settimeout(5)
    t = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
    t.bind(("out0", ALL))
    attach(t, our_udp(14))
    step()
    step()
    T("came", s.recvfrom, 100)
    T("came", s.recvfrom, 100)
    say("frames", [(l[2], l[6:]) for l in everything(t)])


def refused_inside():
    s = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
    T("name", s.getsockname)
    s.bind((eth, ALL))
    n = s.getsockname()
    say("name", (n[:4], len(n[4])))
    T("peer", s.getpeername)
    T("kind", socket.socket, socket.AF_PACKET, socket.SOCK_STREAM)
    T("kind", socket.socket, socket.AF_PACKET, socket.SOCK_SEQPACKET)
    T("listen", s.listen)
    T("shutdown", s.shutdown, 2)
    T("flags", s.recv, 10, socket.MSG_OOB)
    for name, v in (10, 3), (10, -1), (12, 16), (12, -1), (8, 1), (9, 5), (17, 1), (23, 2), (23, 1), (99, 1):
        T(f"option {name} {v}", s.setsockopt, SOL_PACKET, name, v)
    for name in 8, 9, 10, 12, 14, 15, 17, 20, 23, 99:
        T(f"option {name}", s.getsockopt, SOL_PACKET, name)
    T("extensions", s.getsockopt, socket.SOL_SOCKET, 48)
    for version in 0, 1, 2:
        s.setsockopt(SOL_PACKET, 10, version)
        for req in (4096, 1, 512, 8), (4096, 1, 512, 7), (4095, 1, 512, 8), (4096, 1, 500, 8), (4096, 0, 0, 1), (0, 1, 512, 8), (4096, 1, 32, 128), (4096, 1, 8192, 0), (4096, 1, 64, 64), (4096, 1, 80, 51):
            more = (0, 0, 0) if version == 2 else ()
            T(f"ring {version} {req}", s.setsockopt, SOL_PACKET, 5, struct.pack(f"{4 + len(more)}I", *req, *more))
            s.setsockopt(SOL_PACKET, 5, bytes(28 if version == 2 else 16))
    T("short", s.setsockopt, SOL_PACKET, 5, bytes(16))
    T("private", s.setsockopt, SOL_PACKET, 5, struct.pack("7I", 4096, 1, 512, 8, 0, 4000, 0))
    T("private", s.setsockopt, SOL_PACKET, 5, struct.pack("7I", 4096, 1, 512, 8, 0, 0xFFFFFFFF, 0))
    T("unmapped", mmap.mmap, s.fileno(), 4096)
    for code in [(0x06, 0, 0, 0)], [(0x00, 0, 0, 1)], [(0x15, 0, 1, 0), (0x06, 0, 0, 0)], [(0x60, 0, 0, 1), (0x16, 0, 0, 0)], [(0x20, 0, 0, 0xFFFFF040), (0x16, 0, 0, 0)], [(0x20, 0, 0, 0xFFFFF030), (0x16, 0, 0, 0)]:
        T(f"filter {code}", attach, s, code)
    T("none", s.setsockopt, socket.SOL_SOCKET, 26, struct.pack("HxxxxxxQ", 0, 0))
    T("nowhere", s.setsockopt, socket.SOL_SOCKET, 26, struct.pack("HxxxxxxQ", 1, 8))
    T("size", s.setsockopt, socket.SOL_SOCKET, 26, bytes(8))
    T("detach", s.setsockopt, socket.SOL_SOCKET, 27, 0)
    T("detach", s.setsockopt, socket.SOL_SOCKET, 27, 0)
    T("lock", s.setsockopt, socket.SOL_SOCKET, 44, 1)
    T("locked", attach, s, [(0x06, 0, 0, 0)])
    T("locked", s.setsockopt, socket.SOL_SOCKET, 44, 0)
    index = socket.if_nametoindex(eth)
    for m in (index, 0, 0), (index, 1, 0), (77, 1, 0), (index, 2, 0):
        for name in 1, 2, 2:
            T(f"member {m[1:]} {name}", s.setsockopt, SOL_PACKET, name, struct.pack("iHH8x", *m))
    T("member", s.setsockopt, SOL_PACKET, 1, bytes(8))
    T("bind", s.bind, ("nothing", 0))
    lib = ctypes.CDLL(None, use_errno=True)
    for a in struct.pack("HHiHBB8s", 17, 0, 77, 0, 0, 0, b""), struct.pack("HHiHBB", 17, 0, 1, 0, 0, 0), struct.pack("HHiHBB8s", 2, 0, 1, 0, 0, 0, b""):
        r = lib.bind(s.fileno(), a, len(a))
        say("bind", (r, errno.errorcode.get(ctypes.get_errno())))
    for l in open("/proc/net/packet").read().splitlines()[1:]:
        f = l.split()
        say("packet", (*f[1:4], f[5], f[7]))


def refused_outside():
    pass


def tools_inside():
    """tcpdump, as people use it."""
    for device, words in (eth, ["-c4"]), ("any", ["-c4"]), (eth, ["-c4", "-w", "/tmp/packets.pcap"]), (eth, ["-c4", "-U", "--immediate-mode"]):
        # -Z: who drops root may not write everywhere.
        p = subprocess.Popen(["tcpdump", "-Z", "root", "-n", "-t", "-i", device, *words, f"udp port {PORT}"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        while "listening on" not in (l := p.stderr.readline()):
            if not l:
                break
        exchange(2)
        out, err = p.communicate(timeout=20)
        if "-w" in words:
            out = subprocess.run(["tcpdump", "-n", "-t", "-r", "/tmp/packets.pcap"], capture_output=True, text=True).stdout
        for l in out.splitlines():
            say(device, " ".join(re.sub(r"ip-proto-17", "UDP", l).split()))
        for l in err.splitlines():
            if "kernel" in l or "captured" in l:
                say(device, l)
        say("status", p.returncode)


def tools_outside():
    for _ in range(4):
        exchange_outside(2)
