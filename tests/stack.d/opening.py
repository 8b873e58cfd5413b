"""TCP Fast Open (tcp(7)): bytes that go with a SYN, by calls, TCP_INFO and what packet sockets see."""

import errno
import os
import socket
import struct
import threading
import time

from ends import *

PORT = 4700
FASTOPEN, CONNECT, KEY, NO_COOKIE = 23, 30, 33, 34
FAST = 0x20000000
TCP = socket.IPPROTO_TCP
SETTING = "/proc/sys/net/ipv4/tcp_fastopen"


def put(path, value):
    with open(path, "w") as f:
        f.write(value)


def put_key(value):
    """The setting's file, which takes all in one write."""
    try:
        fd = os.open(SETTING + "_key", os.O_WRONLY)
        os.write(fd, value.encode())
        os.close(fd)
    except OSError as e:
        return errno.errorcode[e.errno]
    return open(SETTING + "_key").read().strip()


def early(s):
    """Whether bytes went with the SYN, and why not."""
    info = s.getsockopt(TCP, socket.TCP_INFO, 8)
    return bool(info[5] & 32), info[7] >> 1 & 3


def listener(address, port, length):
    s = server(address, port)
    s.setsockopt(TCP, FASTOPEN, length)
    return s


def new(address):
    return socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET)


def fast_told_inside():
    """Settings and options."""
    say("setting", open(SETTING).read().strip())
    say("mode", oct(os.stat(SETTING + "_key").st_mode & 0o777))
    for key in ("1-2-3-4", "a1a1a1a1-b2b2b2b2-c3c3c3c3-d4d4d4d4,1-2-3-4", "1-2-3", "x", "1-2-3-4,5", "0-0-0-ffffffff"):
        say(key, put_key(key))

    def states(what, s):
        for name in FASTOPEN, CONNECT, NO_COOKIE:
            for value in 0, 1, 2, 5000, -1:
                T(f"{what} {name} {value}", lambda: s.setsockopt(TCP, name, value))
            T(f"{what} {name}", lambda: s.getsockopt(TCP, name))
        for key in b"", b"k" * 3, b"k" * 15, b"k" * 16, b"k" * 31, b"l" * 16 + b"m" * 16, b"n" * 33:
            T(f"{what} key {len(key)}", lambda: s.setsockopt(TCP, KEY, key))
        for room in 64, 32, 16, 5:
            T(f"{what} key", lambda: s.getsockopt(TCP, KEY, room))

    a = socket.socket()
    T("no key", lambda: a.getsockopt(TCP, KEY, 64))
    states("new", a)
    a.close()
    s = server("127.0.0.1", PORT)
    states("listens", s)
    c = new(IN4)
    c.connect(("127.0.0.1", PORT))
    states("connected", c)
    c.close()
    put(SETTING, "2")
    c = new(IN4)
    T("off", lambda: c.setsockopt(TCP, CONNECT, 1))
    T("off", lambda: c.sendto(b"x", FAST, ("127.0.0.1", PORT)))
    put(SETTING, "1027")
    t = server("127.0.0.1", PORT + 1, 7)
    say("all that listen", t.getsockopt(TCP, FASTOPEN))
    put(SETTING, "1")
    # Within the host: as without.
    for flags in 0, socket.MSG_DONTWAIT:
        c = new(IN4)
        T("inside", lambda: c.sendto(b"hello", FAST | flags, ("127.0.0.1", PORT)))
        p, _ = s.accept()
        T("again", lambda: c.sendto(b" again", FAST, ("127.0.0.1", PORT)))
        T("and again", lambda: c.sendto(b" again", FAST, ("127.0.0.1", PORT)))
        c.close()
        say("came", receive_all(p))
        p.close()
    c = new(IN4)
    c.setsockopt(TCP, CONNECT, 1)
    T("connect", lambda: c.connect(("127.0.0.1", PORT)))
    T("to nobody", lambda: new(IN4).sendto(b"x", FAST, ("127.0.0.1", 1)))
    T("nowhere", lambda: new(IN4).sendto(b"x", FAST))
    T("plainly nowhere", lambda: new(IN4).send(b"x"))


def fast_told_outside():
    pass


class Look(threading.Thread):
    """The SYNs that pass: which way, how long their payload is, whether they have the option and a cookie."""

    def __init__(self):
        super().__init__(daemon=True)
        self.p = socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM, socket.htons(3))
        self.p.bind(("eth0", 3))
        self.p.settimeout(0.1)
        self.seen, self.over = [], False
        self.start()

    def run(self):
        while not self.over:
            try:
                b, a = self.p.recvfrom(4000)
            except TimeoutError:
                continue
            six = a[1] == 0x86DD
            if (b[6] if six else b[9]) != 6:
                continue
            at = 40 if six else (b[0] & 15) * 4
            total = 40 + struct.unpack_from("!H", b, 4)[0] if six else struct.unpack_from("!H", b, 2)[0]
            t = b[at:total]
            if not t[13] & 2:
                continue
            length = (t[12] >> 4) * 4
            options, o = [], t[20:length]
            while o:
                n = 1 if o[0] in (0, 1) else o[1]
                if o[0] == 34:
                    options.append("cookie" if n > 2 else "asks")
                o = o[n:]
            self.seen.append((["comes", "leaves"][a[2] == 4], "SYN-ACK" if t[13] & 16 else "SYN", len(t) - length, options))

    def told(self):
        time.sleep(0.2)
        self.over = True
        self.join()
        return self.seen


def cut_short(c, out):
    """A send of 3000 bytes, of which 1000 can be read: what it gives."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.mmap.restype = ctypes.c_void_p
    libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
    at = libc.mmap(None, ctypes.c_size_t(8192), 3, 0x22, -1, ctypes.c_size_t(0))
    libc.munmap(at + 4096, 4096)
    to = struct.pack("<HHI", socket.AF_INET6, socket.htons(PORT), 0) if ":" in out else struct.pack("<HH", socket.AF_INET, socket.htons(PORT))
    to += socket.inet_pton(socket.AF_INET6 if ":" in out else socket.AF_INET, out) + bytes(8)
    n = libc.sendto(c.fileno(), ctypes.c_void_p(at + 3096), ctypes.c_size_t(3000), FAST, to, len(to))
    return n if n >= 0 else errno.errorcode[ctypes.get_errno()]


def fast_client_inside():
    """Clients of a Linux that takes it."""
    for six in False, True:
        _, out, _ = family(six)
        for n in range(3):
            step()
            look = Look()
            step()
            c = new(out)
            T("sendto", lambda: c.sendto(b"a" * 3000, FAST, (out, PORT)))
            say("early", early(c))
            say("answer", c.recv(100))
            T("again", lambda: c.sendto(b"b", FAST, (out, PORT)))
            c.close()
            say("seen", look.told())
        # Without waiting.
        step()
        c = new(out)
        c.setblocking(False)
        T("not waiting", lambda: c.sendto(b"a" * 3000, FAST, (out, PORT)))
        until(c, "OUT")
        T("more", lambda: c.sendto(b"b" * 10, FAST, (out, PORT)))
        T("yet more", lambda: c.sendto(b"b" * 10, FAST, (out, PORT)))
        T("connect", lambda: c.connect((out, PORT)))
        say("early", early(c))
        c.close()
        # By an option of connect.
        step()
        c = new(out)
        c.setsockopt(TCP, CONNECT, 1)
        T("connect", lambda: c.connect((out, PORT)))
        # (Who waits here waits for good.)
        c.setblocking(False)
        T("connect again", lambda: c.connect((out, PORT)))
        c.setblocking(True)
        T("peer", c.getpeername)
        say("poll", poll(c))
        T("recv", lambda: c.recv(1, socket.MSG_DONTWAIT))
        T("send", lambda: c.send(b"c" * 100))
        say("early", early(c))
        say("poll", (until(c, "IN"), poll(c)))
        say("answer", c.recv(100))
        c.close()
        # That never sends.
        for end in "close", "shutdown":
            c = new(out)
            c.setsockopt(TCP, CONNECT, 1)
            T("connect", lambda: c.connect((out, PORT)))
            if end == "shutdown":
                T(end, lambda: c.shutdown(socket.SHUT_WR))
                say("poll", poll(c))
                T("send", lambda: c.send(b"x"))
            c.close()
        # As a plain connect that is given up.
        c = new(out)
        c.setblocking(False)
        T("connect", lambda: c.connect(("fd77::99" if six else "10.77.0.99", PORT)))
        T("shutdown", lambda: c.shutdown(socket.SHUT_WR))
        say("poll", poll(c))
        T("send", lambda: c.send(b"x"))
        c.close()
        # Without a cookie.
        step()
        c = new(out)
        c.setsockopt(TCP, NO_COOKIE, 1)
        T("no cookie", lambda: c.sendto(b"d" * 100, FAST, (out, PORT)))
        say("early", early(c))
        say("answer", c.recv(100))
        c.close()
        # Of memory that ends.
        step()
        c = new(out)
        say("cut", cut_short(c, out))
        say("early", early(c))
        say("answer", c.recv(100))
        c.close()
        # To nobody.
        for n in 100, 3000:
            c = new(out)
            c.setsockopt(TCP, NO_COOKIE, 1)
            T("refused", lambda: c.sendto(b"d" * n, FAST, (out, PORT + 1)))
            T("error", lambda: c.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR))
            c.setblocking(False)
            T("again", lambda: c.connect((out, PORT + 1)))
            c.close()
        # To where nothing answers.
        c = new(out)
        c.setsockopt(TCP, NO_COOKIE, 1)
        c.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, struct.pack("ll", 0, 300_000))
        began = time.time()
        T("in time", lambda: c.sendto(b"d" * 3000, FAST, ("fd77::99" if six else "10.77.0.99", PORT)))
        say("took", 0.2 < time.time() - began < 0.55)
        c.close()
    step()


def fast_client_outside():
    put(SETTING, "3")
    for six in False, True:
        _, out, _ = family(six)
        s = listener(out, PORT, 5)

        def serve(n):
            c, _ = s.accept()
            say("came", len(receive_all(c, n)))
            c.send(b"answer")
            receive_all(c)
            c.close()

        for n in range(3):
            step()
            step()
            serve(3000)
        step()
        c, _ = s.accept()
        say("came", len(receive_all(c)) > 1000)
        c.close()
        step()
        serve(100)
        step()
        serve(100)
        step()
        serve(1000)
        s.close()
    step()


def take_one(s):
    """A connection that asks, is not answered, and goes."""
    look = Look()
    step()
    c, _ = s.accept()
    say("early", early(c))
    say("came", receive_all(c))
    c.close()
    say("seen", look.told())


def fast_serve_inside():
    """A server of Linux's clients."""
    put(SETTING, "3")
    put_key("1-2-3-4")
    for six in False, True:
        _, _, own = family(six)
        s = listener(own, PORT, 2)
        for n in range(3):
            look = Look()
            step()
            c, _ = s.accept()
            say("early", early(c))
            say("came", c.recv(4000))
            c.send(b"answer")
            say("end", receive_all(c))
            c.close()
            say("seen", look.told())
        # Another key: old cookies are good no more; then the old one as the second.
        for key in b"k" * 16, b"l" * 16 + b"k" * 16:
            for n in range(2):
                s.setsockopt(TCP, KEY, key)
                take_one(s)
        # Closed, with the option off, and without need of cookies.
        for length, setting in (0, 3), (5, 1), (5, 0x203):
            s.setsockopt(TCP, FASTOPEN, length)
            put(SETTING, str(setting))
            take_one(s)
        put(SETTING, "3")
        s.close()
        # A reset before it is accepted, and one after.
        s = listener(own, PORT + 1, 2)
        step()
        step()
        for n in range(2):
            c, _ = s.accept()
            step()
            time.sleep(0.1)
            T("read", lambda: len(c.recv(4000)))
            T("read", lambda: c.recv(4000))
            c.close()
        s.close()


def fast_serve_outside():
    for six in False, True:
        _, _, own = family(six)

        def say_to(port, data):
            c = new(own)
            T("sent", lambda: c.sendto(data, FAST, (own, port)))
            return c

        for n in range(3):
            step()
            c = say_to(PORT, b"question")
            say("early", early(c))
            say("answer", c.recv(100))
            c.close()
        for n in range(4 + 3):
            step()
            c = say_to(PORT, b"question")
            say("early", early(c))
            c.close()
        step()
        for n in range(2):
            c = say_to(PORT + 1, b"question")
            linger(c)
            c.close()
        step()
        step()
        step()
