"""Explicit congestion notification (net.ipv4.tcp_ecn), by TCP_INFO and what packet sockets see."""

import socket
import struct
import threading

from ends import *

ECN = "/proc/sys/net/ipv4/tcp_ecn"


def agreed(s):
    """Whether both ends use it, and whether the peer's packets can be marked."""
    options = s.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 8)[5]
    return bool(options & 8), bool(options & 16)


def ask(address, port):
    c = client(address, port)
    c.sendall(b"hello")
    c.recv(9)
    v = agreed(c)
    c.close()
    return v


def answer(s):
    c, _ = s.accept()
    c.recv(9)
    c.sendall(b"world")
    c.recv(1)
    v = agreed(c)
    c.close()
    return v


def ecn_inside():
    s = server(IN4, 5000)
    say("at first", open(ECN).read().strip())
    for value in 0, 1, 2:
        open(ECN, "w").write(str(value))
        say("set", open(ECN).read().strip())
        for who in 0, 1, 2:
            step()
            say("asks", ask(OUT4, 5001))
            say("answers", answer(s))
            step()
    T("less", lambda: open(ECN, "w", buffering=1).write("-1\n"))


def ecn_outside():
    s = server(OUT4, 5001)
    for value in 0, 1, 2:
        for who in 0, 1, 2:
            open(ECN, "w").write(str(who))
            step()
            say("answers", answer(s))
            say("asks", ask(IN4, 5000))
            step()


def bits_inside():
    """What of a connection can be marked, as it leaves and comes."""
    open(ECN, "w").write("1")
    p = socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM, socket.htons(3))
    p.bind(("eth0", 3))
    seen = []

    def look():
        while True:
            b, a = p.recvfrom(2000)
            if a[1] != 0x800 or b[9] != 6:
                continue
            h = (b[0] & 15) * 4
            t = b[h:]
            flags, n = t[13], struct.unpack("!H", b[2:4])[0] - h - (t[12] >> 4) * 4
            seen.append((["comes", "leaves"][a[2] == 4], flags & 0xC2, b[1] & 3, n))
            if flags & 4:
                return

    t = threading.Thread(target=look)
    t.start()
    step()
    c = client(OUT4, 5002)
    c.sendall(b"x" * 100)
    c.recv(200)
    linger(c)
    c.close()
    t.join()
    # Pure acknowledgements come as they like.
    for v in [v for v in seen if v[1] & 2 or v[3]]:
        say("segment", v)
    say("others", sorted({v[:3] for v in seen if not (v[1] & 2 or v[3])}))


def bits_outside():
    s = server(OUT4, 5002)
    step()
    c, _ = s.accept()
    c.recv(200)
    c.sendall(b"y" * 100)
    until(c, "IN")


def names_inside():
    """The settings of devices."""
    root = "/proc/sys/net"

    def read(name):
        try:
            return open(f"{root}/{name}").read().strip()
        except OSError as e:
            return errno.errorcode[e.errno]

    def write(name, value):
        try:
            fd = os.open(f"{root}/{name}", os.O_WRONLY)
            try:
                os.write(fd, str(value).encode())
            finally:
                os.close(fd)
            return read(name)
        except OSError as e:
            return errno.errorcode[e.errno]

    # A pair of devices of our own: what the others are like is the machine's affair.
    subprocess.run(["ip", "link", "add", "p0", "type", "veth", "peer", "name", "p1"], check=True)
    ours = set("""accept_local accept_redirects accept_source_route arp_accept arp_announce arp_filter arp_ignore arp_notify
        bootp_relay disable_policy disable_xfrm forwarding log_martians mc_forwarding medium_id promote_secondaries proxy_arp
        proxy_arp_pvlan route_localnet rp_filter secure_redirects send_redirects shared_media src_valid_mark tag""".split())
    say("names", sorted(ours & set(os.listdir(f"{root}/ipv4/conf/p0"))) == sorted(ours))
    for name in "arp_ignore", "arp_announce", "log_martians", "send_redirects", "tag":
        say(name, (write(f"ipv4/conf/p0/{name}", 1), read(f"ipv4/conf/p1/{name}"), write(f"ipv4/conf/p0/{name}", 0)))
    # A new default changes those that were not set, and have no address.
    say("default", write("ipv4/conf/default/arp_notify", 1))
    say("follows", (read("ipv4/conf/p0/arp_notify"), write("ipv4/conf/p1/arp_notify", 0), read("ipv4/conf/all/arp_notify")))
    say("default", write("ipv4/conf/default/arp_notify", 2))
    say("follows", (read("ipv4/conf/p0/arp_notify"), read("ipv4/conf/p1/arp_notify")))
    for name in "accept_ra", "autoconf", "dad_transmits", "hop_limit", "accept_redirects", "router_solicitations", "max_addresses":
        say(name, [read(f"ipv6/conf/{d}/{name}") for d in ("default", "p0", "lo")])
    say("lo", [read(f"ipv6/conf/lo/{n}") for n in ("accept_dad", "use_tempaddr", "mtu", "forwarding")])
    say("accept_ra", (write("ipv6/conf/p0/accept_ra", 2), read("ipv6/conf/p1/accept_ra")))
    say("forwarding", (write("ipv6/conf/all/forwarding", 1), read("ipv6/conf/p0/forwarding"), read("ipv6/conf/default/forwarding")))
    write("ipv6/conf/all/forwarding", 0)
    say("words", (write("ipv6/conf/p0/accept_ra", "x"), write("ipv6/conf/p0/mtu", 1000), read("ipv6/conf/p0/nothing")))
    # IPv6 can be taken away.
    for words in "link set p0 up", "link set p1 up", "address add 2001:db8::1/64 dev p0":
        subprocess.run(["ip", *words.split()], check=True)

    def addresses(device):
        r = subprocess.run(["ip", "-6", "-o", "address", "show", "dev", device], capture_output=True, text=True)
        return sorted(l.split()[3][:6] for l in r.stdout.splitlines())

    say("addresses", (addresses("p0"), addresses("lo")))
    say("none", (write("ipv6/conf/p0/disable_ipv6", 1), addresses("p0"), addresses("p1")))
    r = subprocess.run(["ip", "address", "add", "2001:db8::1/64", "dev", "p0"], capture_output=True, text=True)
    say("add", r.returncode)
    say("again", (write("ipv6/conf/p0/disable_ipv6", 0), addresses("p0")))
    say("all", (write("ipv6/conf/all/disable_ipv6", 1), read("ipv6/conf/lo/disable_ipv6"), addresses("lo"), addresses("p1")))
    for kind in socket.SOCK_STREAM, socket.SOCK_DGRAM:
        s = socket.socket(socket.AF_INET6, kind)
        T("connect", s.connect, ("::1", 9))
        T("bind", s.bind, ("::1", 0))
        T("any", s.bind, ("::", 0))
    say("back", (write("ipv6/conf/all/disable_ipv6", 0), addresses("lo")))
    s = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
    T("bind", s.bind, ("::1", 0))
    # The next address of a network takes the first one's place, or goes with it.
    for value in 0, 1:
        say("promote", write("ipv4/conf/p0/promote_secondaries", value))
        for last in 1, 2, 3:
            subprocess.run(["ip", "address", "add", f"172.29.0.{last}/24", "dev", "p0"], check=True)
        subprocess.run(["ip", "address", "del", "172.29.0.1/24", "dev", "p0"], check=True)
        r = subprocess.run(["ip", "-4", "-o", "address", "show", "dev", "p0"], capture_output=True, text=True)
        say("left", [(l.split()[3], "secondary" in l) for l in r.stdout.splitlines()])


def names_outside():
    pass


def localnet_inside():
    """Who may be asked for, and what 127.0.0.0/8 is to others."""
    other = Namespace()
    root = "/proc/sys/net/ipv4/conf"

    def write(name, value):
        open(f"{root}/{name}", "w").write(str(value))

    subprocess.run(f"ip link add v0 type veth peer name v1 netns {other.pid}".split(), check=True)
    for words in "address add 172.30.0.1/24 dev v0", "link set v0 up", "address add 10.98.0.1/32 dev lo":
        subprocess.run(["ip", *words.split()], check=True)
    for words in "address add 172.30.0.2/24 dev v1", "link set v1 up", "route add 10.98.0.0/24 dev v1":
        other.run("ip", *words.split())
    for value in 0, 1, 2, 8:
        write("v0/arp_ignore", value)
        other.run(*"ip neighbour flush dev v1".split())
        say("arp_ignore", value)
        for to in "172.30.0.1", "10.98.0.1":
            other.run(*f"ip neighbour del {to} dev v1".split())
            say(to, other.run(*f"ping -c 1 -W 1 {to}".split()).returncode)
    write("v0/arp_ignore", 0)
    # Rules send what comes to 127.0.0.1, as kube-proxy's do.
    subprocess.run(["nft", "-f", "-"], text=True, check=True, input="""table ip t {
        chain c {
            type nat hook prerouting priority -100
            tcp dport 6000 dnat to 127.0.0.1:6001
        }
    }""")
    s = server("127.0.0.1", 6001)
    code = "import socket\\ntry: socket.create_connection(('172.30.0.1', 6000), 1); print('connected')\\nexcept OSError as e: print(type(e).__name__)"
    for value in 0, 1, 0:
        write("v0/route_localnet", value)
        p = other.python(code.replace("\\n", "\n"))
        say("route_localnet", (value, p.communicate()[0].strip()))
    subprocess.run("nft flush ruleset".split(), check=True)
    s.close()
    other.close()


def localnet_outside():
    pass


def stamped_inside():
    """When what is sent by TCP goes, and when the peer has it."""
    c = client(OUT4, 5003)
    flags = 2 | 16 | 128 | 256 | 512 | 2048
    c.setsockopt(socket.SOL_SOCKET, 37, flags)

    def told():
        got = []
        until(c, "ERR", 1)
        time.sleep(0.1)
        while True:
            try:
                b, control, f, _ = c.recvmsg(100, 500, 0x2000 | socket.MSG_DONTWAIT)
            except BlockingIOError:
                return sorted(got, key=lambda v: (v[1], {1: 0, 0: 1, 2: 2}[v[0]]))
            e = [d for level, kind, d in control if (level, kind) == (0, 11)][0]
            stamped = any((level, kind) == (1, 37) for level, kind, _ in control)
            got.append((*struct.unpack("II", e[8:16]), len(b), stamped))

    for n in 1, 1000, 100_000, 5:
        c.sendall(b"x" * n)
        # A send that goes in pieces tells of the last one.
        say("told", (n, told()[-3:]))
    c.setsockopt(socket.SOL_SOCKET, 37, 16 | 512)
    c.sendall(b"some data")
    say("told", told())
    c.close()


def stamped_outside():
    s = server(OUT4, 5003)
    c, _ = s.accept()
    receive_all(c)


def asked_inside():
    """Settings of TCP that say what connections ask for, and which addresses may be bound."""

    def write(name, value):
        try:
            fd = os.open(f"/proc/sys/net/{name}", os.O_WRONLY)
            try:
                os.write(fd, str(value).encode())
            finally:
                os.close(fd)
            return open(f"/proc/sys/net/{name}").read().strip()
        except OSError as e:
            return errno.errorcode[e.errno]

    s = server(IN4, 5004)
    for name in "tcp_timestamps", "tcp_sack", "tcp_window_scaling":
        say(name, write(f"ipv4/{name}", 0))
        step()
        c = client(OUT4, 5005)
        c.sendall(b"x")
        c.recv(1)
        say("asks", c.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 6)[5] & 7)
        c.close()
        c, _ = s.accept()
        c.recv(1)
        say("answers", c.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 6)[5] & 7)
        c.close()
        step()
        write(f"ipv4/{name}", 1)
    for name, values in ("tcp_syn_retries", (0, 1, 128, 127)), ("tcp_retries2", (-1, 0, 256, 255)), ("tcp_sack", (-1, 256)):
        say(name, [write(f"ipv4/{name}", v) for v in values])
    # How long a SYN is sent again.
    write("ipv4/tcp_syn_retries", 1)
    subprocess.run(["ip", "neighbour", "replace", "10.77.0.9", "lladdr", "02:00:00:00:00:99", "dev", "eth0"], check=True)
    began = time.time()
    T("nobody", attempt, "10.77.0.9", 9)
    say("seconds", round(time.time() - began))
    for kind in socket.SOCK_STREAM, socket.SOCK_DGRAM:
        for value in 0, 1:
            say("any address", write("ipv4/ip_nonlocal_bind", value))
            T("bind", socket.socket(socket.AF_INET, kind).bind, ("10.66.66.66", 0))
            say("of IPv6, too", write("ipv6/ip_nonlocal_bind", value))
            T("bind", socket.socket(socket.AF_INET6, kind).bind, ("fd66::66", 0))


def asked_outside():
    s = server(OUT4, 5005)
    for _ in range(3):
        step()
        c, _ = s.accept()
        c.sendall(c.recv(1))
        c.close()
        c = client(IN4, 5004)
        c.sendall(b"x")
        c.close()
        step()
