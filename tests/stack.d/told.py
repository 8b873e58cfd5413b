"""What programs are told of the devices."""

import fcntl
import re
import socket
import struct
import subprocess

from ends import *


def command(*words):
    r = subprocess.run(words, capture_output=True, text=True)
    text = re.sub(r"[0-9a-f]{2}(:[0-9a-f]{2}){5}", "MAC", r.stdout)
    text = re.sub(r"(?m)@if\d+|link-netnsid \d+|qlen \d+|noqueue|valid_lft \S+|preferred_lft \S+|numtxqueues \d+|nodad|uid \d+|^ *cache *$|from :: |metric \d+", "", text)
    for l in text.splitlines():
        if "fe80" not in l and "ff00" not in l:
            say(" ".join(words), " ".join(l.split()))


def devices_inside():
    command("ip", "-o", "address")
    command("ip", "-o", "link")
    command("ip", "route")
    command("ip", "-6", "route")
    command("ip", "route", "get", OUT4)
    command("ip", "route", "get", "192.0.2.9")
    command("ip", "-6", "route", "get", OUT6)
    s = socket.socket()
    req = struct.pack("16s24x", b"eth0")
    for name, number in ("index", 0x8933), ("mtu", 0x8921), ("address", 0x8915), ("mask", 0x891B), ("broadcast", 0x8919):
        say(name, fcntl.ioctl(s, number, req)[16:24])
    say("flags", hex(struct.unpack("H", fcntl.ioctl(s, 0x8913, req)[16:18])[0]))
    say("mac", len(set(fcntl.ioctl(s, 0x8927, req)[18:24])) > 1)
    say("names", socket.if_nameindex())
    for l in open("/proc/net/route"):
        say("route", l.split())
    say("devices", sorted(l.split(":")[0].strip() for l in open("/proc/net/dev") if ":" in l))
    for l in sorted(open("/proc/net/if_inet6")):
        if not l.startswith("fe80"):
            say("if_inet6", l.split()[:4])


def devices_outside():
    pass


def in_tables_inside():
    """Our sockets in /proc/net."""
    s = server("0.0.0.0", 4300)
    c = client(OUT4, 4000)
    for l in open("/proc/net/tcp"):
        f = l.split()
        if f[0] != "sl":
            port = int(f[1].split(":")[1], 16)
            say("tcp", (f[1].split(":")[0], port if port < 30000 else "some", f[2], f[3]))
    step()


def in_tables_outside():
    s = server(OUT4, 4000)
    c, _ = s.accept()
    step()
