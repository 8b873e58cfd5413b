"""A small internet in a network namespace of its own, for tests/net: hosts with names, and a name server that can lie.

    python3 world.py DIRECTORY

is run in the namespace. It writes the questions that the name server was asked to DIRECTORY/asked, one a line, and
"ready" to standard output. The addresses are of networks for documentation, and look public.
"""

import http.server
import os
import socket
import socketserver
import struct
import subprocess
import sys
import threading
import time
from pathlib import Path

GOOD, OTHER, EVIL, SERVER = "203.0.113.10", "203.0.113.11", "203.0.113.66", "203.0.113.53"
PRIVATE, METADATA = "10.9.8.7", "169.254.169.254"
GOOD6 = "2001:db8:1::10"
# Names, and their addresses; what is not here does not exist.
NAMES = {
    "good.test": [GOOD],
    "other.test": [OTHER],
    "evil.test": [EVIL],
    "a.wild.test": [GOOD],
    "wild.test": [GOOD],
    "shared.test": [EVIL],
    "inner.test": [PRIVATE],
    "meta.test": [METADATA],
    "loop.test": ["127.0.0.1"],
    "mixed.test": [PRIVATE, GOOD],
    "six.test": [GOOD6],
    "many.test": [f"203.0.113.{n}" for n in range(100, 200)],
}
CNAMES = {"www.good.test": "good.test", "trick.test": "inner.test"}


def encoded(name):
    return b"".join(bytes([len(p)]) + p.encode() for p in name.split(".")) + b"\0"


def answer(query, log, by_tcp):
    ident, flags, count = struct.unpack(">HHH", query[:6])
    at, labels = 12, []
    while query[at]:
        labels.append(query[at + 1 : at + 1 + query[at]].decode("latin-1"))
        at += 1 + query[at]
    kind = struct.unpack(">H", query[at + 1 : at + 3])[0]
    question = query[12 : at + 5]
    name = ".".join(labels).lower()
    log.write(f"{name} {kind} {len(query)}\n")
    log.flush()
    records, owner = [], name
    if name == "silent.test":
        return None
    while owner in CNAMES:
        data = encoded(CNAMES[owner])
        records.append(encoded(owner) + struct.pack(">HHIH", 5, 1, 30, len(data)) + data)
        owner = CNAMES[owner]
    found = NAMES.get(owner)
    for a in found or []:
        six = ":" in a
        if kind == (28 if six else 1):
            data = socket.inet_pton(socket.AF_INET6 if six else socket.AF_INET, a)
            records.append(encoded(owner) + struct.pack(">HHIH", kind, 1, 30, len(data)) + data)
    if kind == 16 and found:
        data = b"\x05hello"
        records.append(encoded(owner) + struct.pack(">HHIH", 16, 1, 30, len(data)) + data)
    body = b"".join(records)
    cut = not by_tcp and len(body) > 1000
    rcode = 0 if found else 3
    head = struct.pack(">HHHHHH", ident, 0x8180 | rcode | (0x200 if cut else 0), 1, 0 if cut else len(records), 0, 0)
    return head + question + (b"" if cut else body)


def dns(place):
    log = open(place / "asked", "a")

    def udp():
        s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        s.bind((SERVER, 53))
        while True:
            q, who = s.recvfrom(4096)
            # Somebody else's answer comes first: it must not be believed.
            a = answer(q, log, False)
            if a:
                s.sendto(struct.pack(">H", (struct.unpack(">H", a[:2])[0] + 1) & 0xFFFF) + a[2:], who)
                s.sendto(a, who)

    class Tcp(socketserver.BaseRequestHandler):
        def handle(self):
            f = self.request.makefile("rwb")
            while head := f.read(2):
                q = f.read(struct.unpack(">H", head)[0])
                a = answer(q, log, True)
                f.write(struct.pack(">H", len(a)) + a)
                f.flush()

    socketserver.ThreadingTCPServer.allow_reuse_address = True
    server = socketserver.ThreadingTCPServer((SERVER, 53), Tcp)
    threading.Thread(target=udp, daemon=True).start()
    threading.Thread(target=server.serve_forever, daemon=True).start()


class Http(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        if self.path.startswith("/bytes/"):
            n = int(self.path[7:])
            self.send_response(200)
            self.send_header("Content-Length", str(n))
            self.end_headers()
            block = b"x" * 65536
            while n > 0:
                self.wfile.write(block[: min(n, 65536)])
                n -= 65536
            return
        text = f"{self.server.server_address[0]} hears {self.client_address[0]}\n".encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def do_POST(self):
        left, total = int(self.headers["Content-Length"]), 0
        while left > 0:
            got = len(self.rfile.read(min(left, 1 << 20)))
            left, total = left - got, total + got
        text = f"{total}\n".encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, *_):
        pass


class Server(http.server.ThreadingHTTPServer):
    def handle_error(self, *_):
        """Clients that reset connections are what is tested."""


class Http6(Server):
    address_family = socket.AF_INET6


def echo(address):
    s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    s.bind((address, 7))
    while True:
        data, who = s.recvfrom(65536)
        s.sendto(data.upper(), who)


def main():
    place = Path(sys.argv[1])
    for a in GOOD, OTHER, EVIL, SERVER, PRIVATE, METADATA:
        subprocess.run(["ip", "address", "add", f"{a}/32", "dev", "lo"], check=True)
    subprocess.run(["ip", "-6", "address", "add", f"{GOOD6}/128", "dev", "lo", "nodad"], check=True)
    dns(place)
    for a in GOOD, OTHER, EVIL, PRIVATE, METADATA:
        for port in 80, 8080:
            server = Server((a, port), Http)
            threading.Thread(target=server.serve_forever, daemon=True).start()
        threading.Thread(target=echo, args=(a,), daemon=True).start()
    threading.Thread(target=Http6((GOOD6, 80), Http).serve_forever, daemon=True).start()
    print("ready", flush=True)
    while os.getppid() != 1:
        time.sleep(1)


main()
