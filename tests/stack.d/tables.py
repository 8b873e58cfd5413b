"""The old tables of rules: the socket options that iptables-legacy uses, its own words, and what packets meet."""

import re
import subprocess
import sys
from pathlib import Path

from ends import *

sys.path.insert(0, str(Path(__file__).resolve().parent))

from rules import answering, ask, asks_a_name, before_one_behind, connections, datagram, one_behind, tool  # noqa: E402

LIBC = ctypes.CDLL(None, use_errno=True)
ACCEPT, DROP, QUEUE, RETURN = -2, -1, -4, -5
PRE, IN, FORWARD, OUT, POST = range(5)
VALID = {"filter": [IN, FORWARD, OUT], "nat": [PRE, IN, OUT, POST], "mangle": [PRE, IN, FORWARD, OUT, POST], "raw": [PRE, OUT],
         "security": [IN, FORWARD, OUT]}


class Six:
    level, size, header, match, target = 41, 168, 136, 68, 69
    family = socket.AF_INET6

    @staticmethod
    def ip(flags=0, not_=0, protocol=0, input=b"", **_):
        names = input.ljust(16, b"\0") + bytes(16) + (b"\xff" * len(input)).ljust(16, b"\0") + bytes(16)
        return bytes(64) + names + struct.pack("=HBBB3x", protocol, 0, flags, not_)

    @staticmethod
    def entry(ip, target, next):
        return ip + struct.pack("=IHHI4xQQ", 0, target, next, 0, 7, 8)


class Four:
    level, size, header, match, target = 0, 112, 84, 66, 67
    family = socket.AF_INET

    @staticmethod
    def ip(source=bytes(4), mask=bytes(4), flags=0, not_=0, protocol=0, input=b""):
        names = input.ljust(16, b"\0") + bytes(16) + (b"\xff" * len(input)).ljust(16, b"\0") + bytes(16)
        return source + bytes(4) + mask + bytes(4) + names + struct.pack("=HBB", protocol, flags, not_)

    @staticmethod
    def entry(ip, target, next):
        return ip + struct.pack("=IHHIQQ", 0, target, next, 0, 7, 8)


def part(name, info=b"", revision=0, size=None):
    size = 32 + len(info) if size is None else size
    return struct.pack("=H29sB", size, name, revision) + info


def verdict(v, size=40):
    return part(b"", struct.pack("=i4x", v), size=size)


ERROR = part(b"ERROR", b"ERROR".ljust(32, b"\0"))


def entry(of, target, matches=b"", target_offset=None, next=None, **ip):
    t = of.size + len(matches) if target_offset is None else target_offset
    n = of.size + len(matches) + len(target) if next is None else next
    return of.entry(of.ip(**ip), t, n) + matches + target


def option(s, level, name, value, size=None):
    """Asks with a value: the value afterwards and its length, or an error's name."""
    b = ctypes.create_string_buffer(value, len(value))
    n = ctypes.c_int(len(value) if size is None else size)
    if LIBC.getsockopt(s.fileno(), level, name, b, ctypes.byref(n)):
        return errno.errorcode[ctypes.get_errno()]
    return b.raw, n.value


def change(s, level, name, value, size=None):
    if LIBC.setsockopt(s.fileno(), level, name, value, len(value) if size is None else size):
        return errno.errorcode[ctypes.get_errno()]
    return "done"


def info(of, s, table):
    r = option(s, of.level, 64, table.ljust(84, b"\0"))
    if isinstance(r, str):
        return r
    words = struct.unpack("=13I", r[0][32:])
    return r[0][:32].rstrip(b"\0"), "%x" % words[0], words[1:6], words[6:11], words[11:]


def entries(of, s, table, size):
    return option(s, of.level, 65, struct.pack("=32sI4x", table, size) + bytes(size))


def replacement(of, table, all, begins, policies, number=None, counters=None, size=None, hooks=None):
    """The value that replaces a table, and where the other one's counters come to."""
    blob = b"".join(all)
    old = ctypes.create_string_buffer(16 * 64)
    valid = VALID.get(table.decode(errors="replace"), [IN, FORWARD, OUT])
    at = [sum(map(len, all[:n])) for n in range(len(all))]
    five = lambda d: [at[d[h]] if isinstance(d.get(h), int) and d[h] < len(at) else d.get(h) or 0 for h in range(5)]
    head = struct.pack("=32s3I5I5II", table, sum(1 << h for h in valid) if hooks is None else hooks,
                       len(all) if number is None else number, len(blob) if size is None else size,
                       *five(begins), *five(policies), 4 if counters is None else counters)
    return head + struct.pack("=Q", ctypes.addressof(old)) + blob, old


def told(of, blob):
    """Entries without what Linux leaves of the asker's memory."""
    at, all = 0, []
    while at < len(blob):
        t, n, hooks = struct.unpack_from("=HHI", blob, at + (88 if of is Four else 140))
        packets, bytes_ = struct.unpack_from("=QQ", blob, at + (96 if of is Four else 152))
        parts, p = [], at + of.size
        while p < at + n:
            size, name, revision = struct.unpack_from("=H29sB", blob, p)
            name = name.split(b"\0")[0]
            parts.append((size, name.decode(), revision, blob[p + 32:p + size].hex()))
            p += max(size, 32)
        all.append((t, n, hooks, packets, bytes_, blob[at:at + of.header].rstrip(b"\0").hex(), parts))
        at += n
    return all


FIRST = {IN: 0, FORWARD: 1, OUT: 2}


def raw(of):
    return socket.socket(of.family, socket.SOCK_RAW, 255)


def values_inside():
    """The options' values, good ones and bad ones."""
    apart()
    for of in Four, Six:
        s = raw(of)
        for table in b"filter", b"nat", b"mangle", b"raw", b"security", b"", b"nope", b"x" * 32:
            say(table, info(of, s, table))
            path = "/proc/net/ip_tables_names" if of is Four else "/proc/net/ip6_tables_names"
            say("names", open(path).read().split())
        say("short", option(s, of.level, 64, b"filter".ljust(83, b"\0")))
        say("long", option(s, of.level, 64, b"filter".ljust(85, b"\0")))
        size = info(of, s, b"filter")[4][1]
        r = entries(of, s, b"filter", size)
        say("length", r[1])
        say("head", r[0][:40])
        for e in told(of, r[0][40:]):
            say("entry", e)
        say("another size", entries(of, s, b"filter", size + 8))
        say("no such", entries(of, s, b"nope", size))
        say("another length", option(s, of.level, 65, struct.pack("=32sI4x", b"filter", size) + bytes(size + 8)))
        say("no head", option(s, of.level, 65, bytes(39)))
        for name, revision in (b"tcp", 0), (b"tcp", 1), (b"conntrack", 3), (b"nothing", 0), (b"MARK", 2):
            for o in of.match, of.target:
                say((name, revision, o == of.target), option(s, of.level, o, struct.pack("=29sB", name, revision)))
        say("revision's length", option(s, of.level, of.match, bytes(31)))
        for n in range(63, 72):
            # (Two of them are IPv6's own.)
            if of is Six and n in (66, 67, 70):
                continue
            say(f"option {n}", option(s, of.level, n, bytes(4)))
            say(f"change {n}", change(s, of.level, n, b"\0" * 4))
        for kind in socket.SOCK_STREAM, socket.SOCK_DGRAM, socket.SOCK_RAW:
            o = socket.socket(of.family, kind, 255 if kind == socket.SOCK_RAW else 0)
            say("of other sockets", info(of, o, b"filter"))
            say("at another level", info(Four if of is Six else Six, o, b"filter"))
        counts = struct.pack("=32sI4x", b"filter", 4) + struct.pack("=8Q", *range(1, 9))
        say("counters", change(s, of.level, 65, counts))
        say("again", change(s, of.level, 65, counts))
        say("counted", [e[3:5] for e in told(of, entries(of, s, b"filter", size)[0][40:])])
        for table, n, more in (b"filter", 3, 6), (b"filter", 4, 9), (b"nope", 4, 8), (b"filter", 0, 0), (b"filter", 5, 10):
            value = struct.pack("=32sI4x", table, n) + bytes(8 * more)
            say(("counters", table, n, more), change(s, of.level, 65, value))


def values_outside():
    pass


def blobs_inside():
    """Tables that are replaced; most of them are refused."""
    apart()
    for of in Four, Six:
        s = raw(of)
        ok = lambda v=ACCEPT: entry(of, verdict(v))
        end = entry(of, ERROR)
        base = [ok(), ok(DROP), ok(), end]
        say("size", info(of, s, b"filter")[4])

        def put(what, all, begins=FIRST, policies=None, **how):
            table = how.pop("table", b"filter")
            n = info(of, s, table)
            now = n[4][0] if not isinstance(n, str) else 4
            v, old = replacement(of, table, all, begins, begins if policies is None else policies, counters=how.pop("counters", now), **how)
            r = change(s, of.level, 64, v)
            say(what, r)
            if r == "done":
                say("old", struct.unpack_from(f"={2 * now}Q", old.raw))
                size = info(of, s, table)[4][1]
                for e in told(of, entries(of, s, table, size)[0][40:]):
                    say("   ", e)
                put("back", [ok() for _ in VALID[table.decode()]] + [end], {h: n for n, h in enumerate(VALID[table.decode()])}, table=table) if what != "back" else None

        put("policies", base)
        put("too few counters", base, counters=3)
        put("no counters", base, counters=0)
        put("many counters", base, counters=0x7fffffff)
        put("no such table", base, table=b"nope")
        put("other hooks", base, hooks=0x1f)
        put("fewer hooks", base, hooks=2)
        put("no hooks", base, hooks=0)
        put("fewer entries said", base, number=3)
        put("more entries said", base, number=5)
        put("cut", base, size=sum(map(len, base)) - 8)
        put("odd size", base, size=sum(map(len, base)) - 1)
        put("longer than it is", base, size=sum(map(len, base)) + 8)
        put("huge", base, size=0xfffffff0)
        put("nothing", [], size=0, number=0)
        put("begin nowhere", base, {IN: 0, FORWARD: 1, OUT: 1 << 20})
        put("policy nowhere", base, FIRST, {IN: 0, FORWARD: 1, OUT: 4})
        put("begin twice", base, {IN: 0, FORWARD: 0, OUT: 2})
        put("begin unsorted", base, {IN: 1, FORWARD: 0, OUT: 2})
        put("policy is no verdict", [ok(), ok(), end, end], FIRST)
        put("policy returns", [ok(), ok(RETURN), ok(), end])
        put("policy queues", [ok(), ok(QUEUE), ok(), end])
        put("policy with a condition", [entry(of, verdict(ACCEPT), input=b"lo"), ok(), ok(), end])
        put("without an end", base[:3])
        one = {IN: 0, FORWARD: 2, OUT: 3}
        rest = [ok(), ok(), ok(), end]
        pol = {IN: 1, FORWARD: 2, OUT: 3}
        for v in 0, 1, -1, -2, -3, -4, -5, -6, -(1 << 31), 8, (1 << 31) - 1:
            put(f"verdict {v}", [entry(of, verdict(v), input=b"lo"), *rest], one, pol)
        size = len(ok())
        put("to itself", [entry(of, verdict(-1), input=b"lo"), *rest], one, pol)
        for n in range(6):
            where = [0, size, 2 * size, 3 * size, 4 * size, 4 * size + len(end)][n]
            # (The first of a table cannot be led to: no verdict says so.)
            put(f"jump to entry {n}", [entry(of, verdict(where), input=b"lo"), *rest], one, pol)
            put(f"goto entry {n}", [entry(of, verdict(where), input=b"lo", flags=2 if of is Four else 4), *rest], one, pol)
        chain = lambda name: entry(of, part(b"ERROR", name.ljust(32, b"\0")))
        begin = 5 * size  # Of what follows a jump, four policies, and a chain's name.
        own = [entry(of, verdict(4 * size + len(end)), input=b"l"), *rest[:3], chain(b"OWN"), entry(of, verdict(DROP), protocol=6), ok(RETURN), end]
        put("a chain", own, one, pol)
        put("a chain without an end", own[:6] + [end], one, pol)
        put("a chain that leads to itself", own[:5] + [entry(of, verdict(4 * size + len(end))), ok(RETURN), end], one, pol)
        put("a chain that nobody uses", rest[:3] + [chain(b"OWN"), ok(RETURN), end])
        put("a circle that nobody uses", rest[:3] + [chain(b"OWN"), entry(of, verdict(3 * size + len(end))), end])
        put("unconditional jump", [entry(of, verdict(4 * size + len(end))), *own[1:]], one, pol)
        put("a long name", rest[:3] + [entry(of, part(b"ERROR", b"x" * 32))])
        put("a short end", rest[:3] + [entry(of, part(b"ERROR", b"x".ljust(24, b"\0")))])
        put("a long end", rest[:3] + [entry(of, part(b"ERROR", b"x".ljust(40, b"\0")))])
        first = lambda *a, **k: [entry(of, *a, **k), *rest]
        put("no target", first(b""), one, pol)
        put("short entry", first(verdict(ACCEPT), next=of.size + 24), one, pol)
        put("odd entry", first(verdict(ACCEPT), next=of.size + 41), one, pol)
        put("target in the header", first(verdict(ACCEPT), target_offset=of.size - 8), one, pol)
        put("target behind", first(verdict(ACCEPT), target_offset=of.size + 16), one, pol)
        put("short target", first(verdict(ACCEPT, size=31)), one, pol)
        put("empty target", first(verdict(ACCEPT, size=32)), one, pol)
        put("long target", first(verdict(ACCEPT, size=48)), one, pol)
        put("verdict's revision", first(part(b"", struct.pack("=i4x", ACCEPT), 1)), one, pol)
        put("more behind", first(verdict(ACCEPT) + bytes(8)), one, pol)
        for flags in range(1, 256) if of is Four else (1, 2, 4, 8, 128):
            if flags & (flags - 1) == 0:
                put(f"flags {flags}", first(verdict(ACCEPT), flags=flags), one, pol)
                put(f"inversions {flags}", first(verdict(ACCEPT), not_=flags), one, pol)
        tcp = struct.pack("=4HBBBB4x", 0, 65535, 80, 90, 0, 0, 0, 0)
        on = dict(protocol=6, flags=0 if of is Four else 1)
        match = lambda name, info, revision=0, size=None, **k: first(verdict(ACCEPT), part(name, info, revision, size), **k)
        put("tcp", match(b"tcp", tcp, **on), one, pol)
        put("tcp of all protocols", match(b"tcp", tcp), one, pol)
        put("tcp of all but TCP", match(b"tcp", tcp, not_=0x40, **on), one, pol)
        put("tcp in another revision", match(b"tcp", tcp, 1, **on), one, pol)
        put("mark in another revision", match(b"mark", bytes(16), 0, **on), one, pol)
        put("no such match", match(b"tcpp", tcp, **on), one, pol)
        put("a name without an end", match(b"t" * 29, tcp, **on), one, pol)
        put("short tcp", match(b"tcp", tcp[:8], **on), one, pol)
        put("long tcp", match(b"tcp", tcp + bytes(8), **on), one, pol)
        put("odd match", match(b"tcp", tcp, size=44, **on), one, pol)
        put("match behind", match(b"tcp", tcp, size=56, **on), one, pol)
        put("empty match", match(b"tcp", tcp, size=31, **on), one, pol)
        put("tcp's inversions", match(b"tcp", tcp[:11] + b"\x10" + tcp[12:], **on), one, pol)
        put("two matches", first(verdict(ACCEPT), part(b"tcp", tcp) + part(b"comment", b"words".ljust(256, b"\0")), **on), one, pol)
        put("limit", match(b"limit", struct.pack("=IIQIIIIQ", 1000, 5, 9, 9, 9, 9, 0, 9), **on), one, pol)
        put("limit without a burst", match(b"limit", struct.pack("=IIQIIIIQ", 1000, 0, 9, 9, 9, 9, 0, 9), **on), one, pol)
        put("statistic", match(b"statistic", struct.pack("=HHIIIQ", 1, 0, 3, 0, 0, 9), **on), one, pol)
        put("state", match(b"state", struct.pack("=I4x", 6), **on), one, pol)
        put("owner of what comes", match(b"owner", struct.pack("=IIIIBB6x", 1, 1, 0, 0, 1, 0)), one, pol)
        put("multiport", match(b"multiport", struct.pack("=BB15H15BB", 1, 2, 80, 443, *[0] * 28, 0), 1, **on), one, pol)
        put("multiport of all", match(b"multiport", struct.pack("=BB15H15BB", 1, 2, 80, 443, *[0] * 28, 0), 1), one, pol)
        target = lambda name, info=b"", revision=0, **k: first(part(name, info, revision), **k)
        put("mark", target(b"MARK", struct.pack("=II", 7, 255), 2), one, pol)
        put("mark's length", target(b"MARK", bytes(16), 2), one, pol)
        put("no such target", target(b"MARKK", bytes(8), 2), one, pol)
        put("log", target(b"LOG", struct.pack("=BB30s", 4, 0, b"words")), one, pol)
        put("reject", target(b"REJECT", struct.pack("=I4x", 0)), one, pol)
        put("reject how", target(b"REJECT", struct.pack("=I4x", 77)), one, pol)
        reset = struct.pack("=I4x", 7 if of is Four else 6)
        put("reset of all", target(b"REJECT", reset), one, pol)
        put("reset", target(b"REJECT", reset, **on), one, pol)
        nat = struct.pack("=IIIIHH4x", 1, 0, 0, 0, 0, 0) if of is Four else bytes(40)
        put("masquerade in a filter", target(b"MASQUERADE", nat), one, pol)
        put("raw's", target(b"NOTRACK"), one, pol)
        n4 = {PRE: 0, IN: 2, OUT: 3, POST: 4}
        p4 = {PRE: 1, IN: 2, OUT: 3, POST: 4}
        put("nat that comes", [entry(of, part(b"MASQUERADE", nat)), ok(), ok(), ok(), ok(), end], n4, p4, table=b"nat")
        put("nat that leaves", [ok(), ok(), ok(), entry(of, part(b"MASQUERADE", nat), input=b""), ok(), end],
            {PRE: 0, IN: 1, OUT: 2, POST: 3}, {PRE: 0, IN: 1, OUT: 2, POST: 4}, table=b"nat")
        put("redirect", [entry(of, part(b"REDIRECT", nat)), ok(), ok(), ok(), ok(), end], n4, p4, table=b"nat")
        put("reject in a nat", [entry(of, part(b"REJECT", bytes(8))), ok(), ok(), ok(), ok(), end], n4, p4, table=b"nat")
        put("untracked", [entry(of, part(b"NOTRACK")), ok(), ok(), end], {PRE: 0, OUT: 2}, {PRE: 1, OUT: 2}, table=b"raw")


def blobs_outside():
    pass


def rights_inside():
    """Who has not the right to administer a namespace may ask nothing."""
    apart()
    code = """
import os, socket, ctypes, errno
libc = ctypes.CDLL(None, use_errno=True)
s = [socket.socket(f, k) for f in (2, 10) for k in (1, 2)]
%s
for one in s:
    for level in 0, 41:
        for n in 64, 65, 66, 67, 68, 69:
            b, l = ctypes.create_string_buffer(100), ctypes.c_int(7)
            r = libc.getsockopt(one.fileno(), level, n, b, ctypes.byref(l))
            if level != 41 or n not in (66, 67): print(level, n, r and errno.errorcode[ctypes.get_errno()])
            r = libc.setsockopt(one.fileno(), level, n, b, 7)
            if level != 41 or n not in (66, 67): print(level, n, r and errno.errorcode[ctypes.get_errno()])
for f in "names", "matches", "targets":
    try: print(len(open(f"/proc/net/ip_tables_{f}").read()) > 0)
    except OSError as e: print(errno.errorcode[e.errno])
"""
    r = subprocess.run(["python3", "-c", code % "os.setuid(1000)"], capture_output=True, text=True)
    for l in r.stdout.splitlines() + r.stderr.splitlines():
        say("another", l)
    r = subprocess.run(["setpriv", "--bounding-set", "-net_admin", "iptables-legacy", "-S"], capture_output=True, text=True)
    say("iptables-legacy", (r.returncode, r.stderr.splitlines()[:1]))
    r = subprocess.run(["unshare", "-Urn", "sh", "-c", "iptables-legacy -A INPUT -j DROP; iptables-legacy -S; cat /proc/net/ip_tables_names; stat -c '%U %a' /proc/net/ip_tables_names"], capture_output=True, text=True)
    say("a namespace of his own", (r.returncode, r.stdout, r.stderr))
    say("not here", info(Four, raw(Four), b"filter"))


def rights_outside():
    pass


def legacy(*words, **more):
    return tool("iptables-legacy", *words, **more)


def tables_inside():
    """iptables-legacy's own words."""
    apart()
    for table in "filter", "nat", "mangle", "raw", "security", "nope":
        legacy("-t", table, "-S")
    legacy("-N", "OWN")
    legacy("-N", "OWN")
    legacy("-A", "OWN", "-p", "tcp", "-m", "multiport", "--dports", "80,443,1000:2000", "-j", "RETURN")
    legacy("-A", "INPUT", "-m", "conntrack", "--ctstate", "ESTABLISHED,RELATED", "-j", "ACCEPT")
    legacy("-A", "INPUT", "-m", "state", "--state", "INVALID", "-j", "DROP")
    legacy("-A", "INPUT", "!", "-s", "10.0.0.0/8", "-i", "l+", "!", "-p", "udp", "-j", "OWN")
    legacy("-A", "INPUT", "-f", "-j", "DROP")
    legacy("-A", "INPUT", "-p", "tcp", "--tcp-flags", "SYN,ACK", "SYN", "!", "--sport", "1:5", "-m", "comment", "--comment", "some words", "-g", "OWN")
    legacy("-A", "OUTPUT", "-m", "owner", "--uid-owner", "1000", "-j", "REJECT", "--reject-with", "icmp-host-prohibited")
    legacy("-I", "OUTPUT", "-p", "icmp", "--icmp-type", "echo-request", "-m", "limit", "--limit", "5/min", "-j", "LOG", "--log-prefix", "ping ")
    legacy("-A", "OUTPUT", "-m", "statistic", "--mode", "nth", "--every", "3", "--packet", "0", "-j", "ACCEPT")
    legacy("-A", "OUTPUT", "-m", "mark", "--mark", "0x5/0xff", "-m", "length", "--length", "100:200", "-j", "DROP")
    legacy("-A", "OUTPUT", "-m", "iprange", "--dst-range", "10.0.0.1-10.0.0.9", "-m", "pkttype", "--pkt-type", "unicast", "-j", "DROP")
    legacy("-A", "OUTPUT", "-p", "tcp", "-j", "REJECT", "--reject-with", "tcp-reset")
    legacy("-A", "OUTPUT", "-j", "REJECT", "--reject-with", "tcp-reset")
    legacy("-A", "OUTPUT", "-j", "MASQUERADE")
    legacy("-A", "OUTPUT", "-j", "NOWHERE")
    legacy("-A", "OWN", "-j", "OWN")
    legacy("-t", "nat", "-A", "POSTROUTING", "-s", "172.17.0.0/16", "!", "-o", "docker0", "-j", "MASQUERADE")
    legacy("-t", "nat", "-A", "POSTROUTING", "-p", "tcp", "-j", "MASQUERADE", "--to-ports", "1000-2000", "--random")
    legacy("-t", "nat", "-A", "POSTROUTING", "-o", "eth0", "-j", "SNAT", "--to-source", "10.0.0.1-10.0.0.5:1024-2048")
    legacy("-t", "nat", "-A", "PREROUTING", "-m", "addrtype", "--dst-type", "LOCAL", "-p", "tcp", "--dport", "8080", "-j", "DNAT", "--to-destination", "172.17.0.2:80")
    legacy("-t", "nat", "-A", "OUTPUT", "!", "-d", "127.0.0.0/8", "-m", "addrtype", "--dst-type", "LOCAL", "--limit-iface-out", "-p", "udp", "-j", "REDIRECT", "--to-ports", "53")
    legacy("-t", "nat", "-A", "INPUT", "-j", "REDIRECT")
    legacy("-t", "mangle", "-A", "OUTPUT", "-p", "udp", "-j", "MARK", "--set-xmark", "0x7/0xff")
    legacy("-t", "mangle", "-A", "PREROUTING", "-j", "CONNMARK", "--restore-mark", "--mask", "0xff")
    legacy("-t", "raw", "-A", "PREROUTING", "-p", "udp", "--dport", "53", "-j", "CT", "--notrack")
    legacy("-t", "raw", "-A", "OUTPUT", "-j", "NFLOG", "--nflog-group", "5", "--nflog-prefix", "raw")
    legacy("-X", "OWN")
    legacy("-N", "FULL")
    legacy("-A", "FULL", "-j", "RETURN")
    legacy("-X", "FULL")
    legacy("-E", "FULL", "EMPTY")
    legacy("-F", "EMPTY")
    legacy("-X", "EMPTY")
    legacy("-D", "INPUT", "9")
    legacy("-R", "INPUT", "2", "-s", "192.0.2.1", "-c", "17", "1700", "-j", "DROP")
    legacy("-C", "INPUT", "-s", "192.0.2.1", "-j", "DROP")
    legacy("-C", "INPUT", "-s", "11.0.0.0/8", "-j", "OWN")
    legacy("-P", "FORWARD", "DROP")
    tool("iptables-legacy-save", "-c")
    for table in "filter", "nat", "mangle", "raw":
        legacy("-t", table, "-L", "-n", "-v", "--line-numbers")
    legacy("-Z", "INPUT", "2")
    legacy("-L", "INPUT", "-n", "-v")
    saved = subprocess.run(["iptables-legacy-save", "-c"], capture_output=True, text=True).stdout
    for t in "filter", "nat", "mangle", "raw":
        legacy("-t", t, "-F")
        legacy("-t", t, "-X")
    legacy("-P", "FORWARD", "ACCEPT")
    tool("iptables-legacy-save")
    tool("iptables-legacy-restore", "-c", input=saved)
    again = subprocess.run(["iptables-legacy-save", "-c"], capture_output=True, text=True).stdout
    plain = lambda t: [l for l in t.splitlines() if not l.startswith("#")]
    say("the same again", plain(saved) == plain(again))
    tool("iptables-legacy-restore", input="*filter\n-A NOWHERE -j ACCEPT\nCOMMIT\n")
    tool("iptables-legacy-restore", "--noflush", input="*filter\n:NEW - [0:0]\n-A NEW -j ACCEPT\nCOMMIT\n")
    legacy("-S")
    six = lambda *w: tool("ip6tables-legacy", *w)
    six("-A", "INPUT", "-p", "tcp", "--dport", "22", "!", "-s", "fd00::/8", "-j", "DROP")
    six("-A", "INPUT", "-p", "icmpv6", "--icmpv6-type", "echo-request", "-j", "REJECT", "--reject-with", "icmp6-adm-prohibited")
    six("-t", "nat", "-A", "PREROUTING", "-p", "tcp", "--dport", "80", "-j", "DNAT", "--to-destination", "[fd00::1]:8080")
    six("-t", "nat", "-A", "POSTROUTING", "-j", "MASQUERADE")
    six("-t", "mangle", "-A", "FORWARD", "-m", "conntrack", "--ctstate", "NEW", "-j", "MARK", "--set-mark", "1")
    tool("ip6tables-legacy-save")
    # nf_tables knows nothing of them.
    tool("nft", "list", "ruleset")


def tables_outside():
    pass


def counters(*words):
    """What rules have counted."""
    for l in subprocess.run(["iptables-legacy", *words, "-L", "-n", "-v", "-x"], capture_output=True, text=True).stdout.splitlines():
        say("counted", " ".join(l.split()))


def passing_inside():
    """What passes by the loopback device, by old tables and new ones."""
    apart()
    legacy("-N", "PORTS")
    legacy("-N", "DEEPER")
    legacy("-A", "INPUT", "-i", "lo", "-p", "tcp", "-j", "PORTS")
    legacy("-A", "INPUT", "-p", "tcp", "--dport", "90", "-j", "DROP")
    legacy("-A", "INPUT", "-i", "eth+", "-j", "DROP")
    legacy("-A", "PORTS", "-p", "tcp", "--dport", "91", "-j", "RETURN")
    legacy("-A", "PORTS", "-p", "tcp", "--dport", "82:83", "-g", "DEEPER")
    legacy("-A", "PORTS", "-p", "tcp", "-m", "multiport", "--dports", "81,84", "-j", "REJECT", "--reject-with", "tcp-reset")
    legacy("-A", "DEEPER", "-p", "tcp", "--dport", "82", "-j", "REJECT", "--reject-with", "icmp-host-unreachable")
    legacy("-A", "OUTPUT", "-p", "udp", "--dport", "85", "-j", "DROP")
    legacy("-A", "OUTPUT", "-p", "udp", "--dport", "86", "-j", "REJECT", "--reject-with", "icmp-admin-prohibited")
    legacy("-A", "OUTPUT", "!", "-d", "127.0.0.0/8", "-p", "udp", "-j", "ACCEPT")
    legacy("-A", "OUTPUT", "-m", "owner", "--uid-owner", "1000", "-j", "DROP")
    legacy("-t", "nat", "-A", "OUTPUT", "-d", "127.0.0.1", "-p", "tcp", "--dport", "8000", "-j", "REDIRECT", "--to-ports", "9000")
    legacy("-t", "nat", "-A", "OUTPUT", "-p", "tcp", "--dport", "8001", "-j", "DNAT", "--to-destination", "127.0.0.9:9001")
    legacy("-t", "nat", "-A", "OUTPUT", "-p", "udp", "--dport", "53", "-j", "REDIRECT", "--to-ports", "5353")
    legacy("-t", "mangle", "-A", "OUTPUT", "-p", "tcp", "--dport", "87", "-j", "MARK", "--set-mark", "0x57")
    legacy("-t", "security", "-A", "OUTPUT", "-m", "mark", "--mark", "0x57", "-j", "DROP")
    legacy("-t", "raw", "-A", "OUTPUT", "-p", "udp", "--dport", "88", "-j", "CT", "--notrack")
    legacy("-A", "OUTPUT", "-m", "conntrack", "--ctstate", "UNTRACKED", "-j", "REJECT")
    tool("nft", "add", "table", "t")
    tool("nft", "add", "chain", "t", "c", "{ type filter hook output priority 10; }")
    tool("nft", "add", "rule", "t", "c", "tcp", "dport", "89", "drop")
    t = answering("127.0.0.1", 9000, 2)
    ask("127.0.0.1", 8000)
    ask("127.0.0.1", 9000)
    t.join()
    t = answering("127.0.0.9", 9001)
    ask("127.0.0.1", 8001)
    t.join()
    for port in 81, 82, 83, 84, 91:
        ask("127.0.0.1", port, 2)
    for port in 87, 89, 90:
        ask("127.0.0.1", port, 0.5)
    for port in 85, 86, 88, 92:
        datagram("127.0.0.1", port)
    asks_a_name()
    for table in "filter", "nat", "security", "raw":
        say("table", table)
        for l in subprocess.run(["iptables-legacy", "-t", table, "-L", "-n", "-v", "-x"], capture_output=True, text=True).stdout.splitlines():
            # (How often is asked again in a second, and what answers what, is a matter of time.)
            if not re.search(r"dpt:(87|90)|^Chain (IN|OUT|PRE|POST)|PORTS .* lo ", l):
                say("counted", " ".join(l.split()))
    connections("-L", "-p", "tcp", "--state", "TIME_WAIT")


def passing_outside():
    pass


def exact_inside():
    """Packets and bytes are counted as they pass, and kept while rules are changed."""
    apart()
    legacy("-A", "OUTPUT", "-p", "udp", "--dport", "9")
    legacy("-A", "OUTPUT", "-p", "udp", "--dport", "10", "-j", "DROP")
    legacy("-A", "INPUT", "-p", "udp", "-s", "127.0.0.1", "-j", "ACCEPT")
    legacy("-P", "FORWARD", "DROP")
    r = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    r.bind(("127.0.0.1", 9))
    u = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    for n in range(5):
        u.sendto(b"x" * n, ("127.0.0.1", 9))
        T("received", r.recv, 9)
        T("dropped", u.sendto, b"y", ("127.0.0.1", 10))
    counters()
    # A change keeps what others count.
    legacy("-I", "OUTPUT", "1", "-p", "udp", "--dport", "11")
    u.sendto(b"more", ("127.0.0.1", 9))
    counters()
    legacy("-Z", "OUTPUT", "2")
    counters()
    legacy("-L", "OUTPUT", "-Z", "-n", "-v", "-x")
    counters()


def exact_outside():
    pass


def docker_outside():
    before_one_behind()


def docker_inside():
    one_behind("iptables-legacy")


MESH = """*nat
:ISTIO_INBOUND - [0:0]
:ISTIO_IN_REDIRECT - [0:0]
:ISTIO_OUTPUT - [0:0]
:ISTIO_REDIRECT - [0:0]
-A PREROUTING -p tcp -j ISTIO_INBOUND
-A OUTPUT -p tcp -j ISTIO_OUTPUT
-A ISTIO_INBOUND -p tcp -m tcp --dport 15008 -j RETURN
-A ISTIO_INBOUND -p tcp -m tcp --dport 22 -j RETURN
-A ISTIO_INBOUND -p tcp -j ISTIO_IN_REDIRECT
-A ISTIO_IN_REDIRECT -p tcp -j REDIRECT --to-ports 15006
-A ISTIO_OUTPUT -s 127.0.0.6/32 -o lo -j RETURN
-A ISTIO_OUTPUT ! -d 127.0.0.1/32 -o lo -p tcp -m tcp ! --dport 15008 -m owner --uid-owner 1337 -j ISTIO_IN_REDIRECT
-A ISTIO_OUTPUT -o lo -m owner ! --uid-owner 1337 -j RETURN
-A ISTIO_OUTPUT -m owner --uid-owner 1337 -j RETURN
-A ISTIO_OUTPUT ! -d 127.0.0.1/32 -o lo -p tcp -m tcp ! --dport 15008 -m owner --gid-owner 1337 -j ISTIO_IN_REDIRECT
-A ISTIO_OUTPUT -o lo -m owner ! --gid-owner 1337 -j RETURN
-A ISTIO_OUTPUT -m owner --gid-owner 1337 -j RETURN
-A ISTIO_OUTPUT -d 127.0.0.1/32 -j RETURN
-A ISTIO_OUTPUT -j ISTIO_REDIRECT
-A ISTIO_REDIRECT -p tcp -j REDIRECT --to-ports 15001
COMMIT
"""


def by_proxy(address, port):
    """What the mesh's own user is answered there."""
    code = f"""
import socket
try:
    s = socket.create_connection(("{address}", {port}), 3); s.sendall(b"proxy"); print(s.recv(99))
except OSError as e: print(e)"""
    r = subprocess.run(["setpriv", "--reuid", "1337", "--clear-groups", "python3", "-c", code], capture_output=True, text=True)
    say(f"the proxy asks {address} {port}", r.stdout.strip())


def mesh_outside():
    t = answering(OUT4, 7000, 2)
    step()
    for port in 80, 9090, 22:
        ask(IN4, port, 2)
    step()
    t.join()
    step()


def mesh_inside():
    """Istio's rules: what comes and what leaves goes to a proxy first, but for the proxy's own."""
    tool("iptables-legacy-restore", input=MESH)
    comes = answering(IN4, 15006, 3)
    plain = answering(IN4, 22)
    step()
    plain.join()
    step()
    leaves = answering("127.0.0.1", 15001, 2)
    ask("192.0.2.5", 443)
    ask(OUT4, 7000)
    leaves.join()
    by_proxy(OUT4, 7000)
    by_proxy(OUT4, 7000)
    # The proxy asks its own application by its address: that is what comes, too.
    by_proxy(IN4, 80)
    comes.join()
    own = answering("127.0.0.1", 8080)
    ask("127.0.0.1", 8080)
    own.join()
    step()
    r = subprocess.run(["iptables-legacy", "-t", "nat", "-L", "ISTIO_OUTPUT", "-n", "-v", "-x"], capture_output=True, text=True)
    for l in r.stdout.splitlines():
        say("counted", " ".join(l.split()))
