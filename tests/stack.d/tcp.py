"""Connections: both directions, both families, how they begin and end."""

import errno
import fcntl
import os
import select
import socket
import struct
import subprocess
import threading
import time

from ends import *

PORT = 4000
MUCH = 20_000_000


def both(f):
    """For IPv4 and IPv6."""
    for six in False, True:
        f(*family(six))


def reads_out_inside():
    """A client inside takes much from a server outside."""

    def one(_, out, own):
        c = client(out, PORT)
        say("names", (c.getsockname()[0], c.getpeername()[:2]))
        say("got", digest(receive_all(c)))
        c.close()

    both(one)


def reads_out_outside():
    def one(_, out, own):
        s = server(out, PORT)
        step_less = s.accept()[0]
        step_less.sendall(pattern(MUCH))
        step_less.close()
        s.close()

    both(one)


def writes_out_inside():
    def one(_, out, own):
        c = client(out, PORT)
        c.sendall(pattern(MUCH, 2))
        c.shutdown(socket.SHUT_WR)
        say("answer", receive_all(c))

    both(one)


def writes_out_outside():
    def one(_, out, own):
        s = server(out, PORT)
        c, _ = s.accept()
        n = digest(receive_all(c))
        say("got", n)
        c.sendall(str(n).encode())
        c.close()
        s.close()

    both(one)


def serves_inside():
    """A server inside, clients outside: many at once, echoes both ways at the same time."""

    def one(_, out, own):
        s = server(own, PORT, 64)
        step()

        def echo(c):
            while b := c.recv(65536):
                c.sendall(b)
            c.shutdown(socket.SHUT_WR)
            c.close()

        threads = []
        for _ in range(20):
            c, who = s.accept()
            say("from", who[0])
            threads.append(threading.Thread(target=echo, args=(c,)))
            threads[-1].start()
        for t in threads:
            t.join()
        s.close()

    both(one)


def serves_outside():
    def one(_, out, own):
        step()
        sums = []

        def talk(n):
            c = client(own, PORT)
            data = pattern(500_000 + n, n)
            t = threading.Thread(target=lambda: (c.sendall(data), c.shutdown(socket.SHUT_WR)))
            t.start()
            back = receive_all(c)
            t.join()
            sums.append(back == data)

        threads = [threading.Thread(target=talk, args=(n,)) for n in range(20)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        say("same", sums)

    both(one)


def refusals_inside():
    def one(f, out, own):
        T("refused", attempt, out, 4009)
        s = socket.socket(f)
        s.setblocking(False)
        say("begins", errno.errorcode[s.connect_ex((out, 4009))])
        until(s, "OUT")
        say("polls", poll(s))
        say("error", errno.errorcode[s.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)])
        say("error", s.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR))
        T("peer", s.getpeername)
        T("send", s.send, b"x")
        T("recv", s.recv, 1)
        s.close()
        # Nobody has this address.
        nobody = out.rsplit(":" if ":" in out else ".", 1)[0] + (":99" if ":" in out else ".99")
        T("no neighbour", attempt, nobody, 1)
        T("no network", attempt, "192.0.2.1" if ":" not in out else "2001:db8::1", 1, 2)

    both(one)


def refusals_outside():
    pass


def nonblocking_inside():
    def one(f, out, own):
        step()
        s = socket.socket(f)
        s.setblocking(False)
        say("begins", errno.errorcode[s.connect_ex((out, PORT))])
        until(s, "OUT")
        say("polls", poll(s))
        say("error", s.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR))
        T("again", s.connect, (out, PORT))
        T("again", s.connect, (out, PORT))
        T("empty", s.recv, 1)
        step()
        until(s, "IN")
        say("polls", poll(s))
        T("peek", s.recv, 100, socket.MSG_PEEK)
        T("part", s.recv, 2)
        T("rest", s.recv, 100)
        T("empty", s.recv, 1)
        n = 0
        while True:
            try:
                n += s.send(b"x" * 65536)
            except BlockingIOError:
                # What is on its way may make room once more.
                time.sleep(0.2)
                if "OUT" not in poll(s):
                    break
        say("filled", n > 50_000)
        say("polls", poll(s))
        step()
        until(s, "OUT")
        say("polls", poll(s))
        s.setblocking(True)
        s.shutdown(socket.SHUT_WR)
        step()
        say("polls", poll(s))
        T("end", s.recv, 10)
        say("polls", poll(s))
        say(
            "state",
            s.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)[0] in (6, 7),
        )
        s.close()

    both(one)


def nonblocking_outside():
    def one(f, out, own):
        s = server(out, PORT)
        step()
        c, _ = s.accept()
        step()
        c.sendall(b"hello")
        step()
        n = receive_all(c)
        say("some", len(n) > 50_000)
        c.close()
        time.sleep(0.2)
        step()
        s.close()

    both(one)


def half_closed_inside():
    """The orders of shutting down, seen from inside."""
    for who in "inside first", "outside first", "both":
        c = client(OUT4, PORT)
        step()
        if who != "outside first":
            c.shutdown(socket.SHUT_WR)
            T("send", c.send, b"x", socket.MSG_NOSIGNAL)
        if who != "both":
            until(c, "RDHUP")
        say("polls", poll(c) if who != "both" else "")
        T("recv", c.recv, 100)
        if who == "outside first":
            T("send", c.send, b"still")
            c.shutdown(socket.SHUT_WR)
        T("recv", c.recv, 100)
        T("peer", lambda: c.getpeername() and True)
        T("shutdown", c.shutdown, socket.SHUT_RD)
        step()
        T("again", c.shutdown, socket.SHUT_RDWR)
        say("polls", poll(c))
        c.close()


def half_closed_outside():
    s = server(OUT4, PORT)
    for who in "inside first", "outside first", "both":
        c, _ = s.accept()
        step()
        if who == "inside first":
            say("recv", c.recv(100))
            c.sendall(b"after")
            c.shutdown(socket.SHUT_WR)
        else:
            c.shutdown(socket.SHUT_WR)
        say("recv", receive_all(c))
        step()
        time.sleep(0.2)
        c.close()


def resets_inside():
    # The other side closes with bytes unread.
    c = client(OUT4, PORT)
    c.sendall(b"unread")
    step()
    until(c, "HUP")
    say("polls", poll(c))
    T("recv", c.recv, 10)
    T("recv", c.recv, 10)
    T("send", c.send, b"x", socket.MSG_NOSIGNAL)
    T("peer", c.getpeername)
    c.close()
    # It resets while this one has bytes unread.
    c = client(OUT4, PORT)
    step()
    until(c, "HUP")
    say("polls", poll(c))
    T("recv", c.recv, 10)
    T("recv", c.recv, 10)
    T("send", c.send, b"x", socket.MSG_NOSIGNAL)
    c.close()
    # SO_ERROR tells it once.
    c = client(OUT4, PORT)
    step()
    until(c, "HUP")
    say("error", errno.errorcode[c.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)])
    T("recv", c.recv, 10)
    T("send", c.send, b"x", socket.MSG_NOSIGNAL)
    c.close()
    # Writes to one that is gone.
    c = client(OUT4, PORT)
    step()
    until(c, "RDHUP")
    T("recv", c.recv, 10)
    T("send", c.send, b"x", socket.MSG_NOSIGNAL)
    until(c, "HUP")
    T("send", c.send, b"x", socket.MSG_NOSIGNAL)
    T("recv", c.recv, 10)
    c.close()
    # Resets from here: unread bytes, and a linger of zero.
    c = client(OUT4, PORT)
    until(c, "IN")
    c.close()
    c = client(OUT4, PORT)
    linger(c)
    step()
    c.close()
    step()


def resets_outside():
    s = server(OUT4, PORT)
    c, _ = s.accept()
    step()
    until(c, "IN")
    c.close()
    c, _ = s.accept()
    c.sendall(b"bytes")
    linger(c)
    step()
    time.sleep(0.2)
    c.close()
    c, _ = s.accept()
    linger(c)
    step()
    c.close()
    c, _ = s.accept()
    step()
    c.close()
    c, _ = s.accept()
    c.sendall(b"for nobody")
    until(c, "HUP")
    say("polls", poll(c))
    T("recv", c.recv, 10)
    c.close()
    c, _ = s.accept()
    step()
    until(c, "HUP")
    T("recv", c.recv, 10)
    c.close()
    step()


def accepting_inside():
    """What a listener inside shows."""
    s = server(IN4, PORT, 3)
    say("polls", poll(s))
    step()
    until(s, "IN")
    time.sleep(0.3)
    say("polls", poll(s))
    s.setblocking(False)
    got = []
    for _ in range(3):
        until(s, "IN", 5)
        c, who = s.accept()
        got.append(c)
        say("from", who[0])
        say("ends", (c.getsockname(), c.getpeername()[0]))
        until(c, "IN")
        say("first", c.recv(100))
    T("no more", s.accept)
    T("reset before", lambda: None)
    step()
    time.sleep(0.2)
    for c in got:
        say("polls", poll(c))
        c.close()
    # Reset before it is accepted.
    step()
    time.sleep(0.2)
    until(s, "IN", 2)
    c, _ = s.accept()
    T("was reset", c.recv, 10)
    s.close()
    step()


def accepting_outside():
    step()
    all = [client(IN4, PORT) for _ in range(3)]
    for i, c in enumerate(all):
        c.sendall(b"%d" % i)
    step()
    for c in all:
        c.shutdown(socket.SHUT_WR)
    step()
    c = client(IN4, PORT)
    linger(c)
    c.close()
    step()
    T("closed", attempt, IN4, PORT)


def options_inside():
    import socket as k

    step()
    c = client(OUT4, PORT)
    t = k.IPPROTO_TCP
    say("maxseg", c.getsockopt(t, k.TCP_MAXSEG))
    say("mtu", c.getsockopt(k.IPPROTO_IP, 14))
    for name in "TCP_NODELAY", "TCP_CORK", "TCP_KEEPIDLE", "TCP_KEEPINTVL", "TCP_KEEPCNT", "TCP_SYNCNT", "TCP_LINGER2", "TCP_DEFER_ACCEPT", "TCP_USER_TIMEOUT", "TCP_NOTSENT_LOWAT":
        n = getattr(k, name)
        T(name, c.getsockopt, t, n)
        T(name + " set", c.setsockopt, t, n, 1)
        T(name, c.getsockopt, t, n)
    say("congestion", c.getsockopt(t, k.TCP_CONGESTION, 16).rstrip(b"\0") in (b"cubic", b"bbr"))
    T("reno", c.setsockopt, t, k.TCP_CONGESTION, b"reno")
    say("congestion", c.getsockopt(t, k.TCP_CONGESTION, 16).rstrip(b"\0"))
    info = c.getsockopt(t, k.TCP_INFO, 104)
    say("state", info[0])
    say("options", info[5])
    say("snd_mss", struct.unpack_from("I", info, 16))
    say("pmtu", struct.unpack_from("I", info, 60))
    say("advmss", struct.unpack_from("I", info, 84))
    say("rtt", 0 < struct.unpack_from("I", info, 68)[0] < 500_000)
    s = k.socket()
    say("maxseg before", s.getsockopt(t, k.TCP_MAXSEG))
    s.setsockopt(t, k.TCP_MAXSEG, 500)
    s.connect((OUT4, PORT))
    say("maxseg", s.getsockopt(t, k.TCP_MAXSEG))
    s.sendall(b"x" * 5000)
    s.close()
    step()


def options_outside():
    s = server(OUT4, PORT)
    step()
    c, _ = s.accept()
    d, _ = s.accept()
    say("mss", d.getsockopt(socket.IPPROTO_TCP, socket.TCP_MAXSEG))
    say("got", len(receive_all(d)))
    step()


def corked_inside():
    """What leaves when: NODELAY, CORK, MSG_MORE."""
    c = client(OUT4, PORT)
    c.setsockopt(socket.IPPROTO_TCP, socket.TCP_CORK, 1)
    for _ in range(5):
        c.send(b"ab")
    time.sleep(0.05)
    c.setsockopt(socket.IPPROTO_TCP, socket.TCP_CORK, 0)
    step()
    step()
    c.send(b"head", socket.MSG_MORE)
    c.send(b"tail")
    step()
    c.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    step()
    c.close()


def corked_outside():
    s = server(OUT4, PORT)
    c, _ = s.accept()
    until(c, "IN")
    say("first", c.recv(100))
    step()
    step()
    until(c, "IN")
    say("second", c.recv(100))
    step()
    step()


def binding_inside():
    step()
    s = socket.socket()
    T("own", s.bind, (IN4, 4100))
    T("taken", socket.socket().bind, (IN4, 4100))
    T("taken any", socket.socket().bind, ("0.0.0.0", 4100))
    T("other address", socket.socket().bind, ("127.0.0.1", 4100))
    T("not ours", socket.socket().bind, (OUT4, 4100))
    T("connect", s.connect, (OUT4, PORT))
    say("name", s.getsockname())
    # From the loopback address nothing leaves.
    l = socket.socket()
    l.bind(("127.0.0.1", 0))
    T("from loopback", l.connect, (OUT4, PORT))
    # To our own address, by memory.
    own = server("0.0.0.0", 4200)
    c = client(IN4, 4200)
    a, who = own.accept()
    say("ourselves", (who[0], a.getsockname(), c.getsockname()[0]))
    d = socket.socket()
    T("disconnect", d.connect, (OUT4, PORT))
    step()


def binding_outside():
    s = server(OUT4, PORT)
    step()
    a, who = s.accept()
    say("from", who)
    b, who = s.accept()
    say("from", who[0])
    step()


def many_inside():
    """Connections one after the other, and many at once."""
    step()
    for _ in range(500):
        c = client(OUT4, PORT)
        c.sendall(b"q")
        if c.recv(1) != b"a":
            say("bad", _)
        c.close()
    all = [client(OUT4, PORT) for _ in range(300)]
    for c in all:
        c.sendall(b"q")
    say("answers", sum(c.recv(1) == b"a" for c in all))
    for c in all:
        c.close()
    step()


def many_outside():
    s = server(OUT4, PORT, 512)
    step()
    import selectors

    sel = selectors.DefaultSelector()
    sel.register(s, selectors.EVENT_READ)
    done = 0
    while done < 800:
        for key, _ in sel.select(20):
            if key.fileobj is s:
                c, _ = s.accept()
                sel.register(c, selectors.EVENT_READ)
            else:
                b = key.fileobj.recv(10)
                if b:
                    key.fileobj.sendall(b"a")
                else:
                    sel.unregister(key.fileobj)
                    key.fileobj.close()
                    done += 1
    say("done", done)
    step()


def timeouts_inside():
    """Idle, then on: nothing is lost; a blocked send is woken; SO_RCVTIMEO."""
    c = client(OUT4, PORT)
    c.settimeout(0.2)
    T("waits", c.recv, 1)
    c.settimeout(None)
    c.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, struct.pack("ll", 0, 100_000))
    T("rcvtimeo", c.recv, 1)
    c.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, struct.pack("ll", 0, 300_000))
    n = 0
    try:
        while True:
            n += c.send(b"x" * 1_000_000)
    except BlockingIOError:
        say("sndtimeo", n > 100_000)
    c.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, struct.pack("ll", 0, 0))
    step()
    c.sendall(b"x" * 3_000_000)
    c.close()


def timeouts_outside():
    s = server(OUT4, PORT)
    c, _ = s.accept()
    step()
    time.sleep(0.5)
    say("all", len(receive_all(c)) > 3_000_000)


def vectors_inside():
    c = client(OUT4, PORT)
    say("sent", c.sendmsg([b"ab", b"", b"cd" * 1000, b"e"]))
    f = os.memfd_create("f")
    os.write(f, pattern(3_000_000, 7))
    os.lseek(f, 0, 0)
    n = 0
    while n < 3_000_000:
        n += os.sendfile(c.fileno(), f, None, 3_000_000 - n)
    say("file", n)
    r, w = os.pipe()
    os.write(w, b"by a pipe")
    say("splice", os.splice(r, c.fileno(), 100))
    c.shutdown(socket.SHUT_WR)
    say("splice in", os.splice(c.fileno(), w, 5))
    say("pipe", os.read(r, 100))
    b = [bytearray(3), bytearray(100)]
    say("vector", c.recvmsg_into(b)[0])
    say("bytes", (bytes(b[0]), bytes(b[1][:4])))
    say("waitall", len(c.recv(1_000_000, socket.MSG_WAITALL)))


def vectors_outside():
    s = server(OUT4, PORT)
    c, _ = s.accept()
    c.settimeout(None)
    say("got", digest(receive_all(c)))
    c.sendall(b"12345")
    time.sleep(0.1)
    c.sendall(b"abcdefg")
    time.sleep(0.1)
    c.sendall(b"x" * 1_000_000)
    c.close()


def recycles_inside():
    """Whoever closed first waits; a new connection between the same ends may begin meanwhile."""
    s = server(IN4, PORT)
    step()
    for _ in range(3):
        c, who = s.accept()
        say("from", who)
        c.shutdown(socket.SHUT_WR)
        say("end", receive_all(c))
        c.close()
        step()
    # The same the other way around.
    for _ in range(2):
        c = socket.socket()
        c.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        c.bind((IN4, 4444))
        T("connect", c.connect, (OUT4, PORT))
        say("end", receive_all(c))
        c.close()
        step()
    s.close()
    T("again", lambda: bool(server(IN4, PORT)))
    t = socket.socket()
    T("taken", t.bind, (IN4, 4444))


def recycles_outside():
    s = server(OUT4, PORT)
    step()
    for _ in range(3):
        c = socket.socket()
        c.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        c.bind((OUT4, 5555))
        T("connect", c.connect, (IN4, PORT))
        say("end", receive_all(c))
        c.close()
        step()
    for _ in range(2):
        c, who = s.accept()
        say("from", who)
        c.shutdown(socket.SHUT_WR)
        say("end", receive_all(c))
        c.close()
        step()


def last_words_inside():
    """Who ends while what was sent last is not acknowledged has it sent again all the same."""
    c = client(OUT4, PORT)
    step()
    c.sendall(pattern(3000))
    c.close()


def last_words_outside():
    s = server(OUT4, PORT)
    c, _ = s.accept()
    c.settimeout(20)
    words = ["INPUT", "-p", "tcp", "--dport", str(PORT), "-j", "DROP"]
    subprocess.run(["iptables", "-A", *words], check=True)
    step()
    time.sleep(0.8)
    subprocess.run(["iptables", "-D", *words], check=True)
    T("got", lambda: digest(receive_all(c)))


def urgent_inside():
    """Urgent bytes both ways (MSG_OOB)."""

    def one(_, out, own):
        c = client(out, PORT)
        for inline in 0, 1:
            c.setsockopt(socket.SOL_SOCKET, socket.SO_OOBINLINE, inline)
            say("marked", urgent_mark(c))
            c.send(b"abc!", socket.MSG_OOB)
            c.send(b"def")
            step()
            say("polls", poll(c, 5, 2))
            time.sleep(0.05)
            T("byte", c.recv, 9, socket.MSG_OOB)
            T("again", c.recv, 9, socket.MSG_OOB)
            T("read", c.recv, 99)
            say("marked", urgent_mark(c))
            T("read", c.recv, 99)
            say("marked", urgent_mark(c))
            step()
        c.close()

    both(one)


def urgent_outside():
    def one(_, out, own):
        s = server(out, PORT)
        c, _ = s.accept()
        for inline in 0, 1:
            c.send(b"uvw", socket.MSG_OOB)
            c.send(b"xyz")
            step()
            say("polls", poll(c, 5, 2))
            time.sleep(0.05)
            T("byte", c.recv, 9, socket.MSG_OOB)
            T("read", c.recv, 99)
            T("read", c.recv, 99)
            step()
        c.close()
        s.close()

    both(one)


def urgent_mark(s):
    """SIOCATMARK."""
    return struct.unpack("i", fcntl.ioctl(s, 0x8905, bytes(4)))[0]


def lingers_inside():
    """A close that waits for a peer that reads later, or not at all."""

    def one(_, out, own):
        for seconds, waits in (5, True), (1, True), (0, False):
            c = client(out, PORT)
            c.setblocking(False)
            try:
                while True:
                    c.send(pattern(100_000))
                    time.sleep(0.002)
            except BlockingIOError:
                pass
            linger(c, seconds)
            t = time.time()
            step()
            c.close()
            took = time.time() - t
            say("waits", (seconds, waits, took < seconds + 0.5, took > 0.25))
            step()

    both(one)


def lingers_outside():
    def one(_, out, own):
        s = server(out, PORT)
        for n in range(3):
            c, _ = s.accept()
            step()
            if n == 0:
                time.sleep(0.4)
                T("all", lambda: len(receive_all(c)) > 100_000)
            step()
            if n == 2:
                until(c, "ERR|HUP")
                say("polls", "ERR" in poll(c) or "HUP" in poll(c))
            c.close()
        s.close()

    both(one)


def defers_inside():
    """TCP_DEFER_ACCEPT: a server inside accepts who says something, and others late."""

    def one(_, out, own):
        s = server(own, PORT)
        s.setsockopt(socket.IPPROTO_TCP, socket.TCP_DEFER_ACCEPT, 1)
        step()
        step()
        say("silent", until(s, "IN", 0.3))
        step()
        t = time.time()
        c, _ = s.accept()
        say("soon", time.time() - t < 0.3)
        T("said", c.recv, 9)
        c.close()
        t = time.time()
        step()
        c, _ = s.accept()
        say("late", 0.7 < time.time() - t < 4)
        T("said", c.recv, 9)
        c.close()
        s.close()

    both(one)


def defers_outside():
    def one(_, out, own):
        step()
        a = client(own, PORT)
        step()
        step()
        a.send(b"hello")
        T("end", a.recv, 9)
        step()
        b = client(own, PORT)
        time.sleep(1.3)
        b.send(b"late")
        T("end", b.recv, 9)

    both(one)


def windows_outside():
    s = server(OUT4, PORT)
    step()
    for _ in range(4):
        c, _ = s.accept()
        c.recv(1)
        c.close()


def windows_inside():
    """Of buffers that nobody has set and that somebody has: the scale that is agreed on."""
    step()
    path = "/proc/sys/net/ipv4/tcp_rmem"

    def one(what, size=0):
        s = socket.socket()
        if size:
            s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, size)
        say("buffer", s.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF))
        s.connect((OUT4, PORT))
        say(what, s.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 104)[6] >> 4)
        s.close()

    one("own", 20_000)
    # (What a kernel begins with differs.)
    for words in "4096 540000 15728640", "0 1 2", "4096 100000 33554432", "4096 131072 6291456":
        try:
            with open(path, "w") as f:
                f.write(words)
            say("written", open(path).read().split())
        except OSError as e:
            say("refused", errno.errorcode[e.errno])
            continue
        one(words)


def records_outside():
    p = socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM, socket.htons(0x800))
    s = server(OUT4, PORT)
    step()
    c, _ = s.accept()
    while c.recv(10_000):
        pass
    p.setblocking(False)
    while True:
        try:
            b, _ = p.recvfrom(100_000)
        except BlockingIOError:
            break
        h = b[(b[0] & 15) * 4:]
        if b[9] != 6 or struct.unpack(">H", h[2:4])[0] != PORT:
            continue
        data = struct.unpack(">H", b[2:4])[0] - (b[0] & 15) * 4 - (h[12] >> 4) * 4
        if data:
            say("segment", (data, "PSH" if h[13] & 8 else "-"))


def records_inside():
    """Which bytes go in one segment, when, and which end a write: MSG_MORE, MSG_EOR, TCP_CORK, TCP_NODELAY."""
    step()
    more, eor = socket.MSG_MORE, socket.MSG_EOR
    c = client(OUT4, PORT)

    def tell(name, value):
        c.setsockopt(socket.IPPROTO_TCP, name, value)

    def write(*sizes):
        for size, flags in sizes:
            c.send(b"x" * size, flags)
        time.sleep(0.05)

    tell(socket.TCP_NODELAY, 1)
    write((100, more), (50, 0))
    # What nothing follows goes at last, and is the end of a write then.
    write((110, more))
    time.sleep(0.5)
    write((400, more | eor), (401, more | eor), (402, more | eor), (60, 0))
    write((120, more))
    tell(socket.TCP_NODELAY, 1)
    time.sleep(0.05)
    tell(socket.TCP_CORK, 1)
    write((40, 0), (41, 0))
    tell(socket.TCP_CORK, 0)
    time.sleep(0.05)
    tell(socket.TCP_NODELAY, 0)
    write((70, 0))
    c.close()


def tuned_outside():
    s = server(OUT4, PORT)
    step()
    c, _ = s.accept()
    step()
    n = 0
    while n < 1_000_000:
        n += len(c.recv(100_000))
    step()
    c.close()


def tuned_inside():
    """Settings of connections to come."""
    at = "/proc/sys/net/ipv4/"

    def put(name, value):
        try:
            with open(at + name, "w") as f:
                f.write(value)
        except OSError as e:
            return errno.errorcode[e.errno]
        return open(at + name).read().split()

    for name, *values in (
        ("tcp_slow_start_after_idle", "0", "256", "1"),
        ("tcp_synack_retries", "2", "256", "5"),
        ("tcp_early_retrans", "0", "5", "3"),
        ("tcp_reordering", "5", "x", "0", "-3", "3"),
        ("tcp_keepalive_time", "0x10", "010", "-0x3", "08", "+3", "0x", "7200"),
        ("tcp_orphan_retries", "3", "0"),
        ("tcp_dsack", "0", "1"),
        ("tcp_tso_win_divisor", "0", "3"),
        ("tcp_min_tso_segs", "0", "4", "2"),
        ("tcp_pacing_ss_ratio", "1001", "150", "200"),
        ("tcp_pacing_ca_ratio", "110", "120"),
        ("tcp_moderate_rcvbuf", "0", "1"),
        ("tcp_congestion_control", "nosuch", "reno"),
        ("tcp_rmem", "4096 131072 6291456", "5000", "4096 100000", "1 2 3 4", "4096 131072"),
        ("tcp_notsent_lowat", "-1", "4294967296", "20000"),
    ):
        say(name, [put(name, v) for v in values])
    step()
    c = client(OUT4, PORT)
    say("congestion", c.getsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, 16).rstrip(b"\0"))
    say("the option", c.getsockopt(socket.IPPROTO_TCP, 25))
    c.setblocking(False)
    sent = 0
    while sent < 1_000_000:
        try:
            sent += c.send(bytes(min(100_000, 1_000_000 - sent)))
        except BlockingIOError:
            break
    say("held back", sent < 1_000_000)
    step()
    # Each time that little is unsent it may be written to again.
    while sent < 1_000_000:
        if not poll(c, select.POLLOUT, 5000):
            say("not woken", sent)
            break
        try:
            sent += c.send(bytes(min(100_000, 1_000_000 - sent)))
        except BlockingIOError:
            pass
    say("sent", sent)
    step()
    c.setblocking(True)
    say("end", c.recv(1))
