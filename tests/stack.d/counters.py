"""What /proc/net/snmp and netstat count of TCP and UDP: how far each counter goes for what happens once."""

import os
import socket
import subprocess
import time

from ends import *

PORT = 8300
SHOWN = (
    "ActiveOpens PassiveOpens AttemptFails EstabResets OutRsts EmbryonicRsts TCPAbortOnClose TCPAbortOnData TCPAbortOnTimeout "
    "TCPSynRetrans TCPTimeouts SyncookiesSent SyncookiesRecv SyncookiesFailed TCPReqQFullDoCookies TCPKeepAlive TCPFastOpenActive"
).split()
# How often depends on time.
SOME = "ListenOverflows ListenDrops RetransSegs TCPLossProbes".split()


def counters():
    found = {}
    for f in "snmp", "netstat":
        rows = [l.split() for l in open("/proc/net/" + f)]
        for names, values in zip(rows[::2], rows[1::2]):
            if names[0] in ("Tcp:", "TcpExt:"):
                found.update(zip(names[1:], map(int, values[1:])))
            elif names[0] == "Udp:":
                found.update(zip(["Udp" + n for n in names[1:]], map(int, values[1:])))
    return found


class Told:
    """Says which counters went on since it was asked last."""

    def __init__(self):
        self.before = counters()

    def __call__(self, what, without=()):
        time.sleep(0.15)
        now = counters()
        went = {n: now[n] - self.before[n] for n in SHOWN if now[n] != self.before[n] and n not in without}
        some = [n for n in SOME if now[n] != self.before[n] and n not in without]
        segments = [now[n] > self.before[n] for n in ("InSegs", "OutSegs", "TCPOrigDataSent", "TCPDelivered")]
        say(what, (went, some, segments))
        self.before = now


def rule(*words):
    subprocess.run(["nft", *" ".join(words).split()], check=True)


def counters_inside():
    """Connections made and refused, resets of all kinds, time-outs, cookies, full queues, datagrams that were lost."""
    told = Told()
    step()
    T("refused", attempt, OUT4, PORT + 1)
    told("refused")
    c = attempt(OUT4, PORT)
    told("connected")
    c.sendall(b"x" * 5000)
    say("answer", len(receive_all(c, 5000)))
    told("data")
    step()
    T("reset", c.recv, 10)
    told("reset by the peer")
    c = attempt(OUT4, PORT)
    step()
    poll(c, 2, 1)
    c.close()
    told("closed with something unread")
    c = attempt(OUT4, PORT)
    c.close()
    step()
    time.sleep(0.2)
    told("what comes after the close")
    c = attempt(OUT4, PORT)
    c.shutdown(socket.SHUT_WR)
    say("end", c.recv(10))
    c.close()
    told("closed in order")
    l = server(IN4, PORT + 2)
    step()
    a, _ = l.accept()
    told("accepted")
    step()
    told("somebody was refused")
    # (A peer whose answer nobody takes.)
    s = socket.socket()
    s.setsockopt(socket.IPPROTO_TCP, socket.TCP_SYNCNT, 1)
    T("nobody", s.connect, (OUT4, PORT + 3))
    told("nobody answers")
    s = attempt(OUT4, PORT)
    s.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    s.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 1)
    s.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 30)
    time.sleep(1.3)
    told("kept alive")
    s.close()
    step()
    told("over")
    with open("/proc/sys/net/ipv4/tcp_syncookies", "w") as f:
        f.write("2")
    step()
    l.accept()[0].close()
    told("by a cookie")
    with open("/proc/sys/net/ipv4/tcp_syncookies", "w") as f:
        f.write("1")
    full = server(IN4, PORT + 4, 0)
    step()
    step()
    told("full", without=("PassiveOpens", "EstabResets", "OutRsts", "ActiveOpens", "EmbryonicRsts", "AttemptFails"))
    u = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    u.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    u.bind((IN4, PORT + 5))
    before = counters()
    step()
    step()
    u.setblocking(False)
    got = 0
    while poll(u, 0, 1) != "-":
        u.recv(2000)
        got += 1
    now = counters()
    went = {n: now["Udp" + n] - before["Udp" + n] for n in ("InDatagrams", "InErrors", "RcvbufErrors", "NoPorts", "OutDatagrams")}
    say("datagrams", (went["InErrors"] == went["RcvbufErrors"] == 100 - got, went["InDatagrams"] == got, went["NoPorts"], 0 < got < 100))


def counters_outside():
    rule("add table ip t")
    rule("add chain ip t c { type filter hook input priority 0 ; }")
    rule(f"add rule ip t c tcp dport {PORT + 3} drop")
    l = server(OUT4, PORT)
    step()
    a, _ = l.accept()
    a.sendall(receive_all(a, 5000))
    step()
    linger(a)
    a.close()
    a, _ = l.accept()
    a.sendall(b"unread")
    step()
    receives_all = lambda: T("told", a.recv, 10)
    receives_all()
    a.close()
    a, _ = l.accept()
    say("end", a.recv(10))
    step()
    a.sendall(b"late")
    time.sleep(0.1)
    a.close()
    a, _ = l.accept()
    say("end", a.recv(10))
    a.close()
    step()
    c = client(IN4, PORT + 2)
    step()
    T("refused", attempt, IN4, PORT + 6)
    a, _ = l.accept()
    say("end", a.recv(10))
    a.close()
    step()
    step()
    client(IN4, PORT + 2).close()
    step()
    waiting = []
    for _ in range(4):
        s = socket.socket()
        s.setblocking(False)
        s.connect_ex((IN4, PORT + 4))
        waiting.append(s)
        time.sleep(0.1)
    time.sleep(1.5)
    step()
    step()
    u = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    for _ in range(100):
        u.sendto(b"d" * 1000, (IN4, PORT + 5))
        time.sleep(0.001)
    u.sendto(b"nobody", (IN4, PORT + 7))
    time.sleep(0.2)
    step()
