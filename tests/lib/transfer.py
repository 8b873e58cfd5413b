"""The ends of tests/wire: transfer.py serve | transfer.py CLIENT-ADDRESS BYTES TURNS.

The client takes so many bytes and then gives as many, each by a connection of its own and so many times; each line tells
which, the seconds that it took, and what arrived. All send by CUBIC, whatever is the host's default: algorithms that do not
take losses for congestion are another comparison.
"""

import os
import socket
import sys
import threading
import time

from ends import client, digest, pattern, server

PORT = 4000
CONGESTION = os.environ.get("CONGESTION", "cubic").encode()


def choose(c):
    c.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, CONGESTION)


def receive(c, most):
    """What comes until the end; into one buffer, so that its pages are there."""
    b = bytearray(most + 1)
    v, n = memoryview(b), 0
    while n < most + 1 and (got := c.recv_into(v[n:])):
        n += got
    return b[:n]


def answer(c):
    choose(c)
    kind, n, seed = c.makefile("rb", buffering=0).readline().split()
    if kind == b"take":
        c.sendall(pattern(int(n), int(seed)))
    else:
        c.sendall(repr(digest(receive(c, int(n)))).encode())
    c.shutdown(socket.SHUT_WR)
    c.recv(1)
    c.close()


def serve():
    s = server("::", PORT)
    s.settimeout(None)
    print("ready", flush=True)
    while True:
        c, _ = s.accept()
        threading.Thread(target=answer, args=(c,), daemon=True).start()


def transfer(address, kind, n, seed):
    data = pattern(n, seed)
    began = time.monotonic()
    c = client(address, PORT)
    choose(c)
    c.sendall(f"{kind} {n} {seed}\n".encode())
    if kind == "give":
        c.sendall(data)
        c.shutdown(socket.SHUT_WR)
        said = receive(c, 100).decode()
        took = time.monotonic() - began
    else:
        got = receive(c, n)
        took = time.monotonic() - began
        said = repr(digest(got))
    c.close()
    right = said == repr(digest(data))
    print(kind, f"{took:.4f}", "right" if right else f"WRONG {said}", flush=True)


def main():
    if sys.argv[1] == "serve":
        serve()
    address, n, turns = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    for kind in "take", "give":
        for i in range(turns):
            transfer(address, kind, n, i)


main()
