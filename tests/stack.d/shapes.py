"""iptables' matches and targets about headers, by both of its ways to the kernel."""

import re

from ends import *


def tool(which, words, quiet=True):
    r = subprocess.run([which, "-w", *words.split()], capture_output=True, text=True)
    if not quiet or r.returncode:
        say(words, (r.returncode, r.stderr.splitlines()[:1]))
    return r


def counted(which, table, chain):
    """How many packets each rule of a chain has met."""
    r = tool(which, f"-t {table} -nvxL {chain}")
    return [int(l.split()[0]) for l in r.stdout.splitlines()[2:]]


def kinds():
    for which in "iptables", "iptables-legacy":
        say("by", which)
        yield which
        for table in "mangle", "filter":
            subprocess.run([which, "-w", "-t", table, "-F"], capture_output=True)


def headers_inside():
    for which in kinds():
        u = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        for rule in (
            "ttl --ttl-eq 64", "ttl --ttl-eq 63", "ttl --ttl-lt 10", "ttl --ttl-gt 10", "ttl ! --ttl-eq 64", "tos --tos 0x10/0xff",
            "tos ! --tos 0x10/0xff", "tos --tos 0x08/0x08", "dscp --dscp 4", "dscp ! --dscp 4", "dscp --dscp-class AF41",
            "quota --quota 100", "quota ! --quota 100",
        ):
            name, rest = rule.split(" ", 1)
            tool(which, f"-A OUTPUT -p udp -m {name} {rest}")
        for ttl, tos in (64, 0), (5, 0), (63, 0x10), (64, 0x88):
            u.setsockopt(socket.IPPROTO_IP, socket.IP_TTL, ttl)
            u.setsockopt(socket.IPPROTO_IP, socket.IP_TOS, tos)
            u.sendto(b"12345678", (OUT4, 5200))
        say("counted", counted(which, "filter", "OUTPUT"))
        r = tool(which, "-S OUTPUT")
        say("told", r.stdout.splitlines())
        tool(which, "-A OUTPUT -p udp -m dscp --dscp 64", quiet=False)
        tool(which, "-A OUTPUT -p udp -m tcpmss --mss 5", quiet=False)
        tool(which, "-A OUTPUT -p udp -j TCPMSS --set-mss 500", quiet=False)
        tool(which, "-A OUTPUT -p tcp -j TCPMSS --set-mss 500", quiet=False)
        tool(which, "-A OUTPUT -p tcp ! --syn -j TCPMSS --set-mss 500", quiet=False)
        tool(which, "-t mangle -A PREROUTING -p tcp --syn -j TCPMSS --clamp-mss-to-pmtu", quiet=False)
        tool(which, "-t mangle -A PREROUTING -p tcp --syn -j TCPMSS --set-mss 500", quiet=False)


def headers_outside():
    pass


def mss_inside():
    for which in kinds():
        for target, size in ("--set-mss 900", 0), ("--clamp-mss-to-pmtu", 0), ("--clamp-mss-to-pmtu", 1100), ("--set-mss 9000", 0):
            tool(which, f"-t mangle -A POSTROUTING -p tcp --syn -j TCPMSS {target}")
            tool(which, "-t mangle -A OUTPUT -p tcp --syn -m tcpmss --mss 1400:1500")
            tool(which, "-t mangle -A OUTPUT -p tcp --syn -m tcpmss ! --mss 1400:1500")
            if size:
                subprocess.run(f"ip route add {OUT4}/32 dev eth0 mtu {size}".split(), check=True)
            step()
            c = client(OUT4, 5201)
            say(f"{target} {size}", receive_all(c))
            c.close()
            say("asked", counted(which, "mangle", "OUTPUT"))
            if size:
                subprocess.run(f"ip route del {OUT4}/32 dev eth0 mtu {size}".split(), check=True)
            tool(which, "-t mangle -F")


def mss_outside():
    s = server(OUT4, 5201)
    for _ in range(8):
        step()
        c, _ = s.accept()
        info = c.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 20)
        c.sendall(str(struct.unpack("I", info[16:20])[0]).encode())
        c.close()
