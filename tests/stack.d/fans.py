"""Packet sockets that share what comes (PACKET_FANOUT), and rings of frames to be sent (PACKET_TX_RING)."""

import ctypes
import mmap

from ends import *

SOL_PACKET, VERSION, RX_RING, TX_RING, LOSS, FANOUT, HAS_OFF, STATS, DATA = 263, 10, 5, 13, 14, 18, 19, 21, 22
KIND = 0x88B5


def pair():
    """Two devices of our own, without IPv6."""
    subprocess.run("ip link add w0 type veth peer name w1".split(), check=True)
    for d in "w0", "w1":
        open(f"/proc/sys/net/ipv6/conf/{d}/disable_ipv6", "w").write("1")
        subprocess.run(f"ip link set {d} up".split(), check=True)


def looks(device="w1", protocol=KIND):
    s = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
    s.bind((device, protocol))
    s.setblocking(False)
    return s


def frame(n, kind=KIND):
    return b"\xff" * 6 + b"\x02\0\0\0\0\x07" + struct.pack("!H", kind) + bytes([n]) * 50


def ip(n, source, dest, back=False):
    a, b = bytes([10, 9, 9, 1]), bytes([10, 9, 9, 2])
    if back:
        a, b, source, dest = b, a, dest, source
    head = struct.pack("!BBHHHBBH", 0x45, 0, 48, n, 0, 64, 17, 0) + a + b
    return b"\xff" * 6 + b"\x02\0\0\0\0\x07\x08\0" + head + struct.pack("!HHHH", source, dest, 28, 0) + bytes([n]) * 20


def got(all):
    time.sleep(0.3)
    lists = []
    for s in all:
        one = []
        while True:
            try:
                one.append(s.recv(200)[-1])
            except BlockingIOError:
                break
        lists.append(one)
    return lists


def join(s, id, kind, flags=0, most=None):
    v = id | kind << 16 | flags << 24
    value = struct.pack("I", v) if most is None else struct.pack("II", v, most)
    try:
        s.setsockopt(SOL_PACKET, FANOUT, value)
    except OSError as e:
        return errno.errorcode[e.errno]
    return hex(s.getsockopt(SOL_PACKET, FANOUT))


def program(code):
    b = b"".join(struct.pack("HBBI", *i) for i in code)
    buf = ctypes.create_string_buffer(b, len(b))
    return struct.pack("HxxxxxxQ", len(code), ctypes.addressof(buf)), buf


def fans_inside():
    pair()
    out = looks("w0")

    def send(frames):
        for f in frames:
            out.send(f)

    s = looks()
    say("alone", hex(s.getsockopt(SOL_PACKET, FANOUT)))
    T("statistics", s.getsockopt, SOL_PACKET, STATS, 24)
    say("kinds", [join(looks(), 90 + k, k) for k in (0, 1, 2, 3, 4, 5, 6, 8, 9)])
    say("flags", [join(looks(), 70 + i, 0, f) for i, f in enumerate((0x10, 0x40, 1))])
    say("rolls twice", join(looks(), 5, 3, 0x10))
    say("short", join(looks(), 5, 1, most=1 << 17))
    unbound = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
    say("not bound", join(unbound, 6, 1))
    # Turns.
    all = [looks() for _ in range(3)]
    say("joins", [join(a, 7, 1) for a in all])
    say("again", join(all[0], 8, 1))
    say("another kind", join(looks(), 7, 0))
    say("other flags", join(looks(), 7, 1, 0x10))
    say("another device", join(looks("w0"), 7, 1))
    say("another protocol", join(looks(protocol=3), 7, 1))
    T("bind", all[0].bind, ("w0", KIND))
    send(frame(n) for n in range(9))
    say("turns", got(all))
    all.pop(1).close()
    send(frame(n) for n in range(4))
    say("two", sorted(len(v) for v in got(all)))
    for a in all:
        a.close()
    # A limit.
    few = [looks() for _ in range(3)]
    say("limit", [join(a, 9, 1, most=2) for a in few])
    # By both ends, whichever way.
    all = [looks(protocol=0x800) for _ in range(4)]
    say("joins", [join(a, 10, 0) for a in all])
    send(ip(n, 1000, 2000, n % 2) for n in range(8))
    say("one gets all", sorted(len(v) for v in got(all)))
    send(ip(n, 1000 + n, 2000) for n in range(200))
    say("all get some", all_some(got(all)))
    # Processors and queues: one.
    for kind in 5,:
        all = [looks() for _ in range(2)]
        say("joins", [join(a, 20 + kind, kind) for a in all])
        send(frame(n) for n in range(4))
        say("queue", got(all))
    # By a program, which sees what follows the link header.
    all = [looks() for _ in range(3)]
    say("joins", [join(a, 30, 6) for a in all])
    send([frame(5)])
    say("without", got(all))
    value, keep = program([(0x30, 0, 0, 0), (0x16, 0, 0, 0)])
    T("program", all[1].setsockopt, SOL_PACKET, DATA, value)
    send(frame(n) for n in (0, 1, 2, 4, 8))
    say("chooses", got(all))
    T("of another kind", few[0].setsockopt, SOL_PACKET, DATA, value)
    # The first that has room: one with a small buffer, then another.
    all = [looks() for _ in range(2)]
    all[0].setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2304)
    say("joins", [join(a, 40, 3) for a in all])
    send(frame(n) for n in range(20))
    a, b = got(all)
    say("rolls", (0 < len(a) < 10, len(a) + len(b), [len(all[0].getsockopt(SOL_PACKET, STATS, 24))]))
    # An id that nobody has.
    s = looks()
    say("unique", join(s, 0, 1, 0x20)[:4])
    say("with an id", join(looks(), 3, 1, 0x20))
    # What a member sends the group does not see; another one does.
    a, b = looks("w0", 3), looks("w0", 3)
    say("joins", [join(x, 50, 1) for x in (a, b)])
    a.send(frame(1))
    say("own", got([a, b]))
    out.send(frame(2))
    say("others'", sum(len(v) for v in got([a, b])))


def all_some(lists):
    return sum(len(v) for v in lists), min(len(v) for v in lists) > 20


def fans_outside():
    pass


def sends_rings_inside():
    pair()
    for version in range(3):
        say("version", version)
        sees = looks()
        s = looks("w0", 0)
        s.setsockopt(SOL_PACKET, VERSION, version)
        words = [4096, 2, 1024, 8]
        if version == 2:
            T("blocks", s.setsockopt, SOL_PACKET, TX_RING, struct.pack("IIIIIII", *words, 60, 0, 0))
            words += [0, 0, 0]
        ask = struct.pack(f"{len(words)}I", *words)
        T("ring", s.setsockopt, SOL_PACKET, TX_RING, ask)
        T("twice", s.setsockopt, SOL_PACKET, TX_RING, ask)
        T("later", s.setsockopt, SOL_PACKET, LOSS, 1)
        T("later", s.setsockopt, SOL_PACKET, VERSION, 1)
        T("later", s.setsockopt, SOL_PACKET, HAS_OFF, 1)
        say("is not", s.getsockopt(SOL_PACKET, HAS_OFF))
        m = mmap.mmap(s.fileno(), 8192)
        T("the other", s.setsockopt, SOL_PACKET, RX_RING, ask)
        head = 48 if version == 2 else 32
        at, length, mac = [(0, 8, 16), (0, 4, 12), (20, 16, 24)][version]

        def put(i, data, n=None, status=1, offset=head):
            f = 1024 * i
            m[f + offset : f + offset + len(data)] = data
            m[f + length : f + length + 4] = struct.pack("I", len(data) if n is None else n)
            m[f + at : f + at + 4] = struct.pack("I", status)

        def status():
            return [struct.unpack("I", m[1024 * i + at :][:4])[0] for i in range(8)]

        T("nothing", s.send, b"")
        put(0, frame(1))
        put(1, frame(2))
        put(3, frame(9))
        T("two", s.send, b"")
        say("status", status())
        say("came", got([sees])[0])
        put(2, frame(3))
        T("goes on", s.send, b"this is nothing")
        say("status", status())
        say("came", got([sees])[0])
        put(4, frame(4), 5000)
        T("too long", s.send, b"")
        say("status", status())
        put(4, frame(4), 5)
        T("too short", s.send, b"")
        say("status", status())
        put(4, frame(5))
        T("right", s.send, b"")
        say("came", got([sees])[0])
        T("poll", poll, s)
        T("busy", s.setsockopt, SOL_PACKET, TX_RING, bytes(len(ask)))
        m.close()
        T("away", s.setsockopt, SOL_PACKET, TX_RING, bytes(len(ask)))
        T("plain", s.send, frame(6))
        say("came", got([sees])[0])
    # Both rings lie in one piece, received ones first; PACKET_LOSS goes on behind what is wrong.
    sees, s = looks(), looks("w0", 0)
    s.setsockopt(SOL_PACKET, VERSION, 1)
    T("loss", s.setsockopt, SOL_PACKET, LOSS, 1)
    T("offsets", s.setsockopt, SOL_PACKET, HAS_OFF, 1)
    T("receive", s.setsockopt, SOL_PACKET, RX_RING, struct.pack("IIII", 4096, 1, 1024, 4))
    T("send", s.setsockopt, SOL_PACKET, TX_RING, struct.pack("IIII", 4096, 2, 1024, 8))
    m = mmap.mmap(s.fileno(), 12288)
    s.bind(("w0", KIND))

    def put(i, data, n=None, offset=100):
        f = 4096 + 1024 * i
        m[f + offset : f + offset + len(data)] = data
        m[f + 12 : f + 14] = struct.pack("H", offset)
        m[f + 4 : f + 8] = struct.pack("I", len(data) if n is None else n)
        m[f : f + 4] = struct.pack("I", 1)

    put(0, frame(1))
    put(1, frame(2), 9000)
    put(2, frame(3), offset=200)
    T("three", s.send, b"")
    say("status", [struct.unpack("I", m[4096 + 1024 * i :][:4])[0] for i in range(4)])
    say("came", got([sees])[0])
    sees.send(frame(7))
    time.sleep(0.3)
    say("received", (struct.unpack("I", m[:4])[0] & 1, m[:200].count(bytes([7]) * 50)))
    # The length is looked at before the place.
    s = looks("w0", 0)
    s.setsockopt(SOL_PACKET, VERSION, 1)
    s.setsockopt(SOL_PACKET, HAS_OFF, 1)
    s.setsockopt(SOL_PACKET, TX_RING, struct.pack("IIII", 4096, 2, 1024, 8))
    m = mmap.mmap(s.fileno(), 8192)
    for what, n, offset in ("both", 993, 8), ("place", 64, 8), ("end", 64, 961), ("last", 64, 960):
        m[12:14], m[4:8], m[:4] = struct.pack("H", offset), struct.pack("I", n), struct.pack("I", 1)
        T(what, s.send, b"")
        say("status", struct.unpack("I", m[:4])[0])


def sends_rings_outside():
    pass
