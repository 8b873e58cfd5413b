"""Rules for packets (netfilter): nft's and iptables' words, what rules do to packets that stay, come, leave and are sent
on, translations, and what is known of connections."""

import re
import subprocess
import threading

from ends import *

SO_ORIGINAL_DST = 80


def tool(*words, input=None, quiet=False):
    r = subprocess.run(words, capture_output=True, text=True, input=input)
    if quiet and r.returncode == 0:
        return r
    say(" ".join(words), r.returncode)
    for l in r.stdout.splitlines() + r.stderr.splitlines():
        if not l.startswith("#"):
            say("   ", l.rstrip())
    return r


def nft(text, status=0):
    """Makes rules, which are seldom told of."""
    r = subprocess.run(["nft", "-f", "-"], capture_output=True, text=True, input=text)
    say("nft -f", r.returncode)
    assert r.returncode == status, r.stderr
    for l in r.stderr.splitlines():
        say("   ", l.rstrip())


def connections(*words):
    """Those that there are, without what is never the same."""
    r = subprocess.run(["conntrack", *words], capture_output=True, text=True)
    say(f"conntrack {' '.join(words)}", r.returncode)
    def plain(l):
        l = re.sub(r"^(\S+ +\d+) \d+", r"\1", l)
        l = re.sub(r"sport=(\d{5})|dport=(\d{5})", lambda m: m.group()[:6] + "PORT", l)
        return " ".join(l.split())

    for l in sorted(map(plain, r.stdout.splitlines())):
        say("   ", l)


def original(s, six=False):
    level = socket.IPPROTO_IPV6 if six else socket.IPPROTO_IP
    a = s.getsockopt(level, SO_ORIGINAL_DST, 28 if six else 16)
    port = struct.unpack("!H", a[2:4])[0]
    ip = socket.inet_ntop(socket.AF_INET6, a[8:24]) if six else socket.inet_ntoa(a[4:8])
    return ip, port


def answering(address, port, n=1, six=False):
    """A server that says of each of so many connections where it was to go, and gives back twice what it gets."""
    s = server(address, port)

    def serve():
        for _ in range(n):
            c, a = s.accept()
            say("accepted", (c.getsockname()[:2], a[0]))
            T("original", original, c, six)
            c.sendall(c.recv(100) * 2)
            c.close()
        s.close()

    t = threading.Thread(target=serve)
    t.start()
    return t


def ask(address, port, seconds=5):
    """What a server there answers."""
    try:
        s = socket.create_connection((address, port), seconds)
        s.sendall(b"hello")
        v = s.getpeername()[:2], s.recv(100)
        s.close()
    except TimeoutError as e:
        v = "timed out" if e.errno is None else errno.errorcode[e.errno]
    except OSError as e:
        v = errno.errorcode.get(e.errno, str(e))
    say(f"asked {address} {port}", v)


def asks_a_name():
    """A name server behind another port: its answers come from where was asked."""
    server = name_server(5353)
    c = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    c.settimeout(5)
    c.sendto(b"name", ("127.0.0.1", 53))
    T("answer", c.recvfrom, 100)
    say("question", server())


def name_server(port):
    """One that answers a question at a port of the loopback; what is given back waits until it has, and says what it
    was asked, and from where."""
    u = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    u.bind(("127.0.0.1", port))
    asked = []

    def serve():
        d, a = u.recvfrom(100)
        asked.append((d, a[0]))
        u.sendto(d + b"!", a)

    t = threading.Thread(target=serve)
    t.start()

    def done():
        t.join()
        return asked

    return done


def datagram(address, port, data=b"x"):
    """What becomes of two datagrams to a port: the second tells what came of the first."""
    f = socket.AF_INET6 if ":" in address else socket.AF_INET
    u = socket.socket(f, socket.SOCK_DGRAM)
    u.connect((address, port))
    T(f"datagram to {port}", u.send, data)
    say("poll", poll(u, 0.3, 1))
    T("again", u.send, data)
    u.close()


def words_inside():
    """What programs are told: each makes rules and reads them again."""
    apart()
    tool("nft", "list", "ruleset")
    tool("nft", "add", "table", "t")
    tool("nft", "add", "table", "t")
    tool("nft", "create", "table", "t")
    tool("nft", "add", "chain", "t", "c", "{ type filter hook input priority 0; policy drop; }")
    tool("nft", "add", "chain", "t", "u")
    tool("nft", "-e", "-a", "add", "rule", "t", "c", "udp", "dport", "53", "accept")
    tool("nft", "-e", "-a", "add", "chain", "t", "echoed")
    tool("nft", "add", "rule", "t", "c", "tcp", "dport", "{ 22, 80-90 }", "accept")
    tool("nft", "add", "rule", "t", "c", "ip", "saddr", "10.0.0.0/8", "counter", "jump", "u")
    tool("nft", "add", "rule", "t", "u", "meta", "mark", "set", "0x2a")
    tool("nft", "insert", "rule", "t", "c", "ct", "state", "invalid", "drop")
    tool("nft", "add", "rule", "t", "c", "limit", "rate", "10/second", "burst", "5", "packets", "accept")
    tool("nft", "add", "rule", "t", "nowhere", "accept")
    tool("nft", "add", "rule", "t", "c", "jump", "nowhere")
    tool("nft", "add", "rule", "t", "u", "jump", "u")
    tool("nft", "delete", "chain", "t", "u")
    tool("nft", "-a", "list", "table", "t")
    tool("nft", "delete", "rule", "t", "c", "handle", "99")
    tool("nft", "add", "set", "t", "s", "{ type ipv4_addr; flags interval; }")
    tool("nft", "add", "element", "t", "s", "{ 10.0.0.0/8, 192.0.2.1 }")
    tool("nft", "add", "element", "t", "s", "{ 10.1.0.0/16 }")
    tool("nft", "get", "element", "t", "s", "{ 10.2.3.4 }")
    tool("nft", "get", "element", "t", "s", "{ 11.2.3.4 }")
    tool("nft", "add", "map", "t", "m", "{ type inet_service : verdict; }")
    tool("nft", "add", "element", "t", "m", "{ 80 : jump u, 81 : drop }")
    tool("nft", "add", "rule", "t", "c", "tcp", "dport", "vmap", "@m")
    tool("nft", "delete", "set", "t", "s")
    tool("nft", "list", "sets")
    tool("nft", "delete", "map", "t", "m")
    nft("add table t2\nadd chain t2 c\nadd rule t2 nowhere accept\n", 1)
    tool("nft", "list", "tables")
    tool("nft", "flush", "chain", "t", "c")
    tool("nft", "list", "chain", "t", "c")
    tool("nft", "delete", "table", "t")
    tool("nft", "delete", "table", "t")
    tool("nft", "list", "ruleset")
    for table in "filter", "nat", "mangle", "raw":
        tool("iptables", "-t", table, "-S")
    tool("iptables", "-N", "OWN")
    tool("iptables", "-A", "OWN", "-p", "tcp", "-m", "multiport", "--dports", "80,443", "-j", "RETURN")
    tool("iptables", "-A", "INPUT", "-m", "conntrack", "--ctstate", "ESTABLISHED,RELATED", "-j", "ACCEPT")
    tool("iptables", "-A", "INPUT", "-s", "10.0.0.0/8", "-i", "lo", "-j", "OWN")
    tool("iptables", "-A", "OUTPUT", "-m", "owner", "--uid-owner", "1000", "-j", "REJECT", "--reject-with", "icmp-host-prohibited")
    tool("iptables", "-I", "OUTPUT", "-p", "icmp", "--icmp-type", "echo-request", "-m", "limit", "--limit", "5/min", "-j", "LOG", "--log-prefix", "ping ")
    tool("iptables", "-t", "nat", "-A", "POSTROUTING", "-s", "172.17.0.0/16", "!", "-o", "docker0", "-j", "MASQUERADE")
    tool("iptables", "-t", "nat", "-A", "PREROUTING", "-m", "addrtype", "--dst-type", "LOCAL", "-p", "tcp", "--dport", "8080", "-j", "DNAT", "--to-destination", "172.17.0.2:80")
    tool("iptables", "-t", "mangle", "-A", "OUTPUT", "-p", "udp", "-j", "MARK", "--set-mark", "7")
    tool("iptables", "-X", "OWN")
    tool("iptables", "-N", "FULL")
    tool("iptables", "-A", "FULL", "-j", "RETURN")
    tool("iptables", "-X", "FULL")
    tool("iptables", "-F", "FULL")
    tool("iptables", "-X", "FULL")
    tool("iptables", "-D", "INPUT", "9")
    tool("iptables", "-C", "INPUT", "-s", "10.0.0.0/8", "-i", "lo", "-j", "OWN")
    tool("iptables", "-C", "INPUT", "-s", "11.0.0.0/8", "-j", "OWN")
    tool("iptables", "-P", "FORWARD", "DROP")
    tool("iptables-save")
    tool("iptables", "-L", "-n", "-v", "--line-numbers")
    tool("ip6tables", "-A", "INPUT", "-p", "tcp", "--dport", "22", "-j", "DROP")
    tool("ip6tables-save")
    tool("iptables", "-D", "INPUT", "2")
    tool("iptables", "-S")
    tool("iptables-restore", input="*filter\n:INPUT ACCEPT [0:0]\n:OWN - [0:0]\n-A INPUT -p tcp --dport 1 -j OWN\nCOMMIT\n")
    tool("iptables", "-S")
    tool("iptables-restore", input="*filter\n-A NOWHERE -j ACCEPT\nCOMMIT\n")
    tool("iptables", "-F")
    tool("iptables", "-X")
    tool("iptables", "-S")
    # Others may not.
    tool("setpriv", "--reuid", "1000", "--clear-groups", "nft", "list", "ruleset")


def words_outside():
    pass


def stays_inside():
    """What passes by the loopback device."""
    apart()
    nft("""
table inet t {
  set ports { type inet_service; elements = { 81, 82 } }
  chain in { type filter hook input priority 0
    iifname "lo" tcp dport 80 counter
    ct state established,related counter accept
    tcp dport @ports counter reject with tcp reset
    tcp dport 83 counter drop
    udp dport 84 counter reject
    udp dport 86 counter reject with icmpx admin-prohibited
    tcp dport 87 counter reject with icmpx host-unreachable
  }
  chain out { type filter hook output priority 0
    udp dport 85 counter drop
    tcp dport 88 counter reject with tcp reset
    tcp dport 89 counter reject
    meta skuid 1000 counter
  }
  chain lead { type nat hook output priority -100
    ip daddr 127.0.0.1 tcp dport 8000 counter redirect to :9000
    tcp dport 8001 dnat ip to 127.0.0.9:9001
    ip6 daddr ::1 tcp dport 8000 redirect to :9000
    udp dport 53 redirect to :5353
  }
}
""")
    for address, six in ("127.0.0.1", False), ("::1", True):
        t = answering(address, 9000, 2, six)
        ask(address, 8000)
        ask(address, 9000)
        t.join()
        for port in 81, 82, 87, 88, 89, 90:
            ask(address, port, 2)
        ask(address, 83, 0.5)
        for port in 84, 85, 86, 91:
            datagram(address, port)
    t = answering("127.0.0.9", 9001)
    ask("127.0.0.1", 8001)
    t.join()
    asks_a_name()
    subprocess.run(["ping", "-c", "1", "-W", "2", "127.0.0.1"], stdout=subprocess.DEVNULL)
    tool("nft", "list", "chain", "inet", "t", "lead")
    # A connection goes on while rules change.
    s = server("127.0.0.1", 70)
    a = socket.create_connection(("127.0.0.1", 70))
    b, _ = s.accept()
    a.sendall(pattern(300_000))
    say("through", digest(receive_all(b, 300_000)))
    tool("nft", "flush", "ruleset")
    b.sendall(pattern(300_000, 2))
    say("without rules", digest(receive_all(a, 300_000)))
    nft("table t { chain c { type filter hook output priority 0; tcp dport 70 drop; }\n }")
    a.settimeout(0.5)
    b.settimeout(0.5)
    a.sendall(b"lost")
    T("dropped", b.recv, 10)
    tool("nft", "flush", "ruleset")
    b.settimeout(10)
    T("sent again", b.recv, 10)
    T("not there", original, a)


def stays_outside():
    pass


def counted_inside():
    """Counters of rules and what is known of connections."""
    apart()
    nft("table t { chain c { type filter hook output priority 0; ct state new counter\n tcp flags & (fin|syn) != 0 counter\n ct direction reply counter; }\n }")
    t = answering("127.0.0.1", 9000)
    ask("127.0.0.1", 9000)
    t.join()
    time.sleep(0.1)
    datagram("127.0.0.1", 9)
    connections("-L")
    say("count", subprocess.run(["conntrack", "-C"], capture_output=True, text=True).stdout.strip())
    r = subprocess.run(["nft", "list", "chain", "t", "c"], capture_output=True, text=True)
    new, ends, replies = map(int, re.findall(r"packets (\d+)", r.stdout))
    # (Whether an acknowledgement goes alone is a matter of time.)
    say("counters", (new, ends, replies in (5, 6)))
    connections("-D", "-p", "udp")
    connections("-L")
    connections("-F")
    connections("-L")


def counted_outside():
    pass


def related_inside():
    """What refuses a packet is related to its connection, and comes under the name that was asked for."""
    apart()
    nft("""
table inet t {
  chain lead { type nat hook output priority -100
    ip daddr 127.0.0.5 udp dport 100 dnat ip to 127.0.0.6:200
    ip daddr 127.0.0.5 tcp dport 100-101 dnat ip to 127.0.0.6:200
    ip daddr 127.0.0.5 tcp dport 102 dnat ip to 127.0.0.6:202
  }
  chain in { type filter hook input priority 0
    ct state related counter accept
    ct state invalid counter drop
    udp dport 200 counter reject
    udp dport 201 counter reject with icmpx admin-prohibited
    tcp dport 200 counter reject
    tcp dport 202 counter reject with tcp reset
    ct state established counter
  }
  chain out { type filter hook output priority 0
    ct state related ct direction reply counter
    ct state related ct direction original counter
    ct state new counter
  }
}
""")
    datagram("127.0.0.5", 100)
    datagram("127.0.0.6", 201)
    for port in 100, 102:
        ask("127.0.0.5", port, 2)
    u = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    u.setsockopt(socket.IPPROTO_IP, 11, 1)
    u.sendto(b"x", ("127.0.0.5", 100))
    say("poll", poll(u, 0.5, select.POLLERR))
    data, control, flags, name = u.recvmsg(100, 200, 0x2000)
    for level, kind, v in control:
        say("error", (level, kind, struct.unpack_from("=IBBB", v), socket.inet_ntoa(v[20:24]), name))
    for c in "in", "out":
        r = subprocess.run(["nft", "list", "chain", "inet", "t", c], capture_output=True, text=True)
        for l in r.stdout.splitlines():
            say(c, l.strip())


def related_outside():
    pass


class Log:
    """A socket that is told of packets."""

    def __init__(self):
        self.s = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 12)
        self.s.bind((0, 0))
        self.s.settimeout(3)

    def config(self, group, family, **attrs):
        """Asks for a change of a group: the error's name."""
        kinds = {"command": (1, "B"), "mode": (2, ">IBx"), "size": (3, ">I"), "timeout": (4, ">I"), "threshold": (5, ">I"), "flags": (6, ">H")}
        body = struct.pack("=BBH", family, 0, socket.htons(group))
        for name, value in attrs.items():
            kind, form = kinds[name]
            data = struct.pack(form, *(value if isinstance(value, tuple) else (value,)))
            body += struct.pack("=HH", 4 + len(data), kind) + data + bytes(-len(data) % 4)
        self.s.send(struct.pack("=IHHII", 16 + len(body), 0x401, 5, 7, 0) + body)
        e = -struct.unpack_from("=i", self.s.recv(4096), 16)[0]
        return errno.errorcode.get(e, e)

    def packets(self, n):
        """So many, as what is told of each; of the payload the bytes that are the same each time."""
        told = []
        while len(told) < n:
            try:
                d = self.s.recv(65536)
            except TimeoutError:
                told.append("nothing")
                break
            while len(d) >= 16:
                size, kind = struct.unpack_from("=IH", d)
                if kind == 0x400:
                    family, _, group = struct.unpack_from("=BBH", d, 16)
                    told.append((family, socket.ntohs(group), self.attributes(d[20:size])))
                d = d[(size + 3) & ~3:]
        return told

    def attributes(self, d):
        all = {}
        while len(d) >= 4:
            size, kind = struct.unpack_from("=HH", d)
            data, kind = d[4:size], kind & 0x3FFF
            # (Nothing is told here of a frame's header, nor when it came.)
            if kind == 9:
                at = (data[0] & 15) * 4 if data[0] >> 4 == 4 else 40
                data = (len(data), data[at + 2:at + 4].hex(), data[at + 8:at + 12])
            if kind not in (3, 8, 15, 16, 17):
                all[kind] = data
            d = d[(size + 3) & ~3:]
        return sorted(all.items())


def logged_inside():
    """Rules that tell of packets to those who listen to a group."""
    apart()
    l, other = Log(), Log()
    say("family", l.config(0, 2, command=3))
    say("not bound", l.config(5, 0, mode=(0, 2)))
    say("let go", l.config(5, 0, command=2))
    say("bind", l.config(5, 0, command=1))
    say("again", l.config(5, 0, command=1))
    say("another's", other.config(5, 0, command=1))
    say("another's mode", other.config(5, 0, mode=(0, 2)))
    say("bind one of its own", other.config(6, 0, command=1))
    say("mode", l.config(5, 0, mode=(0, 2)))
    say("no such mode", l.config(5, 0, mode=(0, 3)))
    say("now", (l.config(5, 0, threshold=1, timeout=1), l.config(5, 0, flags=3), other.config(6, 0, threshold=1)))
    nft("""
table inet t {
  chain out { type filter hook output priority 0
    udp dport 100 log group 5 prefix "leaves"
    udp dport 101 log group 6 snaplen 30
    udp dport 102 log group 7 drop
    udp dport 103 meta mark set 9 log group 5
  }
  chain in { type filter hook input priority 0
    udp dport 100 log group 6 prefix "comes in"
  }
}
""")
    u = [socket.socket(f, socket.SOCK_DGRAM) for f in (socket.AF_INET, socket.AF_INET6)]
    for n in range(2):
        u[0].sendto(b"data", ("127.0.0.1", 100))
        say("leaves", l.packets(1))
        say("comes", other.packets(1))
    u[1].sendto(b"data", ("::1", 100))
    say("leaves", l.packets(1))
    say("comes", other.packets(1))
    u[0].sendto(b"much data", ("127.0.0.1", 101))
    say("cut", other.packets(1))
    T("to nobody", u[0].sendto, b"x", ("127.0.0.1", 102))
    u[0].sendto(b"x", ("127.0.0.1", 103))
    say("marked", l.packets(1))
    say("only what is known", l.config(5, 0, mode=(0, 1)))
    u[0].sendto(b"x", ("127.0.0.1", 103))
    say("marked", l.packets(1))
    say("a part", l.config(5, 0, mode=(24, 2)))
    u[0].sendto(b"xyz", ("127.0.0.1", 103))
    say("marked", l.packets(1))
    tool("iptables-legacy", "-A", "OUTPUT", "-p", "udp", "--dport", "104", "-j", "NFLOG", "--nflog-group", "5", "--nflog-prefix", "old table")
    u[0].sendto(b"x", ("127.0.0.1", 104))
    say("by an old table", l.packets(1))
    say("let go", l.config(5, 0, command=2))
    say("taken over", other.config(5, 0, command=1))
    say("threshold", other.config(5, 0, threshold=1))
    u[0].sendto(b"x", ("127.0.0.1", 103))
    say("marked", other.packets(1))
    other.s.close()
    say("closed", l.config(5, 0, command=1))


def logged_outside():
    pass


class Heard:
    """What `nft monitor` tells."""

    def __init__(self):
        self.p = subprocess.Popen(["stdbuf", "-oL", "nft", "monitor"], stdout=subprocess.PIPE, text=True)

    def until_generation(self):
        """Says what a change has brought."""
        for l in self.p.stdout:
            l = l.rstrip()
            m = re.match(r"# new generation (\d+) by process \d+ \((\w+)\)", l)
            say("heard", m.groups() if m else l)
            if m:
                return

    def close(self):
        self.p.kill()
        self.p.wait()


def monitored_inside():
    """Those who listen are told of changes."""
    apart()
    u = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 12)
    T("group 0", u.setsockopt, 270, 1, 0)
    T("the last group", u.setsockopt, 270, 1, 9)
    T("no such group", u.setsockopt, 270, 1, 32)
    T("beyond", u.setsockopt, 270, 1, 33)
    others = """
import socket
u = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 12)
for f in lambda: u.setsockopt(270, 1, 7), lambda: u.bind((0, 1)), lambda: u.bind((0, 0)):
    try: print(f())
    except OSError as e: print(e.errno)
"""
    r = subprocess.run(["setpriv", "--reuid", "1000", "--clear-groups", "python3", "-c", others], capture_output=True, text=True)
    say("others", r.stdout.split())
    heard = Heard()
    # (It listens soon.)
    time.sleep(1)

    def does(*words):
        tool("nft", *words)
        heard.until_generation()

    does("add", "table", "t")
    does("add", "chain", "t", "c", "{ type filter hook input priority 0; }")
    does("add", "rule", "t", "c", "tcp", "dport", "80", "counter", "accept")
    does("add", "rule", "t", "c", "ip", "saddr", "{ 192.0.2.7, 192.0.2.8 }", "drop")
    does("add", "set", "t", "s", "{ type ipv4_addr; }")
    does("add", "element", "t", "s", "{ 192.0.2.1, 192.0.2.2 }")
    does("delete", "element", "t", "s", "{ 192.0.2.1 }")
    does("insert", "rule", "t", "c", "tcp", "dport", "81", "drop")
    does("replace", "rule", "t", "c", "handle", "2", "tcp", "dport", "82", "drop")
    tool("nft", "delete", "rule", "t", "c", "handle", "99")
    does("flush", "chain", "t", "c")
    does("add", "chain", "t", "c", "{ policy drop; }")
    does("rename", "chain", "t", "c", "other")
    does("delete", "chain", "t", "other")
    nft("""
table ip t2 {
  set a { type inet_service; elements = { 1, 2 }
  }
  chain x { tcp dport @a drop; jump y; }
  chain y { accept; }
}
""")
    heard.until_generation()
    does("flush", "ruleset")
    heard.close()


def monitored_outside():
    pass


def comes_outside():
    step()
    for six in False, True:
        f, out, inner = family(six)
        for port in 80, 81, 82, 83, 8080:
            ask(inner, port, 2)
        datagram(inner, 84)
        datagram(inner, 85)
    T("large", lambda: subprocess.run(["ping", "-c", "1", "-W", "2", "-s", "4000", IN4], stdout=subprocess.DEVNULL).returncode)
    step()


def comes_inside():
    """What comes from outside: to another port, refused, dropped."""
    nft("""
table inet t {
  chain pre { type nat hook prerouting priority -100; iifname "eth0" tcp dport 80 redirect to :8080; }
  chain in { type filter hook input priority 0; policy drop
    ct state established,related accept
    iifname "lo" accept
    icmpv6 type { nd-neighbor-solicit, nd-neighbor-advert, nd-router-advert } accept
    tcp dport 8080 accept
    tcp dport 81 reject with tcp reset
    tcp dport 82 reject
    udp dport 84 reject
    icmp type echo-request accept
  }
}
""")
    t = [answering(family(six)[2], 8080, 2, six) for six in (False, True)]
    step()
    for one in t:
        one.join()
    step()


def leaves_outside():
    s = [answering(OUT4, 7000), answering(OUT4, 7001), answering(OUT6, 7000, six=True)]
    u = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    u.settimeout(20)
    u.bind(("", 6700))
    step()
    for t in s:
        t.join()
    T("to all", u.recvfrom, 9)
    step()


def leaves_inside():
    """What leaves: to another one, to this host instead (as meshes do), not at all; by who sends it."""
    nft("""
table inet t {
  chain out { type nat hook output priority -100
    ip daddr 192.0.2.1 tcp dport 80 dnat ip to 10.77.0.1:7000
    ip6 daddr 2001:db8::1 tcp dport 80 dnat ip6 to [fd77::1]:7000
    meta skuid 1337 return
    tcp dport 443 redirect to :15001
    udp dport 53 redirect to :5300
  }
  chain filter { type filter hook output priority 0
    tcp dport 25 reject
    udp dport 26 drop
    icmp type echo-request ip daddr 192.0.2.7 drop
  }
}
""")
    step()
    b = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    b.setsockopt(socket.SOL_SOCKET, socket.SO_BROADCAST, 1)
    b.bind(("", 6701))
    T("to all", b.sendto, b"all", ("255.255.255.255", 6700))
    ask("192.0.2.1", 80)
    ask(OUT4, 7001)
    ask("2001:db8::1", 80)
    t = answering("127.0.0.1", 15001, 2)
    ask("192.0.2.5", 443)
    ask(OUT4, 443)
    t.join()
    t = answering("::1", 15001, six=True)
    ask("2001:db8::5", 443)
    t.join()
    say("by 1337", subprocess.run(["setpriv", "--reuid", "1337", "--clear-groups", "python3", "-c", f"""
import socket
try: socket.create_connection(("{OUT4}", 443), 3); print("there")
except OSError as e: print(e)"""], capture_output=True, text=True).stdout.strip())
    ask(OUT4, 25, 2)
    datagram(OUT4, 26)
    server = name_server(5300)
    c = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    c.settimeout(5)
    c.connect(("192.0.2.53", 53))
    T("sent", c.send, b"name")
    T("answer", c.recvfrom, 100)
    say("question", server())
    T("ping", lambda: subprocess.run(["ping", "-c", "1", "-W", "1", "192.0.2.7"], capture_output=True).returncode)
    step()


def on_outside():
    before_one_behind()


def before_one_behind():
    t = answering(OUT4, 7000, 2)
    step()
    t.join()
    ask(IN4, 8080)
    ask(IN4, 81, 2)
    datagram(IN4, 5000, b"to one behind")
    step()


def on_inside():
    one_behind("iptables")


def one_behind(iptables):
    """Docker's way: one in a namespace behind this one goes out by this one's address, and is reached by a port of
    it."""
    other = Namespace()
    words = f"link add v0 type veth peer name v1 netns {other.pid}"
    say("a pair", subprocess.run(["ip", *words.split()]).returncode)
    tool("ip", "address", "add", "172.30.0.1/24", "dev", "v0")
    tool("ip", "link", "set", "v0", "up")
    for words in ("address add 172.30.0.2/24 dev v1", "link set v1 up", "route add default via 172.30.0.1"):
        say(words, other.run("ip", *words.split()).returncode)
    with open("/proc/sys/net/ipv4/ip_forward", "w") as f:
        f.write("1")
    tool(iptables, "-P", "FORWARD", "DROP")
    tool(iptables, "-A", "FORWARD", "-i", "v0", "-p", "tcp", "--dport", "9", "-j", "REJECT")
    tool(iptables, "-A", "FORWARD", "-i", "v0", "-p", "tcp", "--dport", "10", "-j", "REJECT", "--reject-with", "tcp-reset")
    tool(iptables, "-A", "FORWARD", "-i", "v0", "-j", "ACCEPT")
    tool(iptables, "-A", "FORWARD", "-m", "conntrack", "--ctstate", "RELATED,ESTABLISHED", "-j", "ACCEPT")
    tool(iptables, "-A", "FORWARD", "-o", "v0", "-m", "conntrack", "--ctstate", "DNAT", "-j", "ACCEPT")
    tool(iptables, "-t", "nat", "-A", "POSTROUTING", "-s", "172.30.0.0/24", "!", "-o", "v0", "-j", "MASQUERADE")
    tool(iptables, "-t", "nat", "-A", "PREROUTING", "-p", "tcp", "--dport", "8080", "-m", "addrtype", "--dst-type", "LOCAL", "-j", "DNAT", "--to-destination", "172.30.0.2:80")
    tool(iptables, "-t", "nat", "-A", "PREROUTING", "-p", "udp", "--dport", "5000", "-j", "DNAT", "--to-destination", "172.30.0.2")
    tool(iptables, "-t", "nat", "-A", "OUTPUT", "-p", "tcp", "--dport", "8080", "-j", "DNAT", "--to-destination", "172.30.0.2:80")
    # A service's address, behind which is this host itself.
    tool(iptables, "-t", "nat", "-A", "PREROUTING", "-i", "v0", "-d", "10.96.0.1", "-p", "tcp", "--dport", "443", "-j", "DNAT", "--to-destination", "10.77.0.2:6443")
    service = answering("10.77.0.2", 6443)
    serves = other.python("""
import socket
s = socket.socket(); s.setsockopt(1, 2, 1); s.bind(("", 80)); s.listen()
u = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); u.bind(("", 5000)); u.settimeout(10)
print("ready", flush=True)
for _ in range(2):
    c, a = s.accept(); c.sendall(c.recv(100) * 2); c.close(); print("from", a[0])
d, a = u.recvfrom(100); print("datagram", d, a[0])
""")
    say("behind", serves.stdout.readline().strip())
    ask(IN4, 8080)
    step()
    asks = other.python(f"""
import errno, socket, subprocess
def ask(address, port):
    try:
        s = socket.create_connection((address, port), 3); s.sendall(b"behind"); print(port, s.recv(100)); s.close()
    except OSError as e: print(port, errno.errorcode.get(e.errno, e))
ask("{OUT4}", 7000)
ask("{OUT4}", 7000)
ask("10.96.0.1", 443)
ask("{OUT4}", 7)
ask("{OUT4}", 9)
ask("{OUT4}", 10)
u = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
u.settimeout(3)
u.connect(("{OUT4}", 9999))
u.send(b"x")
try: u.recv(9)
except OSError as e: print("datagram", errno.errorcode.get(e.errno, e))
print("ping", subprocess.run(["ping", "-c", "1", "-W", "2", "{OUT4}"], capture_output=True).returncode)
""")
    for l in asks.communicate()[0].splitlines():
        say("behind", l)
    service.join()
    step()
    for l in serves.communicate()[0].splitlines():
        say("behind", l)
    connections("-L", "-p", "tcp", "--state", "TIME_WAIT")
    other.close()
