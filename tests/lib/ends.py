"""What both ends of tests/stack use: results as lines, and steps that both wait for.

    python3 ends.py FILE CASE inside|outside

runs a function of a file of tests/stack.d: `CASE_inside` or `CASE_outside`.
"""

import ctypes
import errno
import hashlib
import importlib.util
import os
import select
import socket
import struct
import subprocess
import sys
import time

OUT4, IN4, OUT6, IN6 = "10.77.0.1", "10.77.0.2", "fd77::1", "fd77::2"


def say(what, value):
    # In one piece: threads speak, too.
    sys.stdout.write(f"{what}: {value}\n")
    sys.stdout.flush()


def T(what, f, *more):
    """Says what a call gives, or the name of its error."""
    try:
        v = f(*more)
    except TimeoutError as e:
        v = "timed out" if e.errno is None else errno.errorcode[e.errno]
    except OSError as e:
        v = errno.errorcode.get(e.errno, str(e))
    say(what, v)
    return v


def step():
    """Goes on when the other end is here, too."""
    print("@", flush=True)
    sys.stdin.readline()


def digest(data):
    return len(data), hashlib.sha256(data).hexdigest()[:12]


def pattern(n, seed=1):
    block = hashlib.sha512(str(seed).encode()).digest() * 1024
    return (block * (n // len(block) + 1))[:n]


def receive_all(s, limit=None):
    parts, n = [], 0
    while limit is None or n < limit:
        b = s.recv(min(1 << 20, (limit - n) if limit else 1 << 20))
        if not b:
            break
        parts.append(b)
        n += len(b)
    return b"".join(parts)


NAMES = {"IN": 1, "PRI": 2, "OUT": 4, "ERR": 8, "HUP": 16, "RDNORM": 64, "RDBAND": 128, "WRNORM": 256, "RDHUP": 0x2000}


def poll(s, seconds=0, wanted=0xFFFF):
    p = select.poll()
    p.register(s, wanted & 0x21DF | 0x2000)
    got = p.poll(seconds * 1000)
    bits = got[0][1] if got else 0
    return "|".join(n for n, b in NAMES.items() if bits & b) or "-"


def until(s, wanted, seconds=10):
    """Waits for one of these."""
    p = select.poll()
    p.register(s, sum(NAMES[w] for w in wanted.split("|")))
    return bool(p.poll(seconds * 1000))


def family(six):
    return (socket.AF_INET6, OUT6, IN6) if six else (socket.AF_INET, OUT4, IN4)


def server(address, port, backlog=16, **options):
    f = socket.AF_INET6 if ":" in address else socket.AF_INET
    s = socket.socket(f, socket.SOCK_STREAM)
    s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    s.bind((address, port))
    s.listen(backlog)
    s.settimeout(30)
    return s


def attempt(address, port, seconds=30):
    return socket.create_connection((address, port), seconds)


def client(address, port):
    """A connection, once the other end listens; its calls wait."""
    until = time.time() + 10
    while True:
        try:
            s = attempt(address, port)
            s.settimeout(None)
            return s
        except ConnectionRefusedError:
            if time.time() > until:
                raise
            time.sleep(0.02)


def linger(s, seconds=0):
    s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, seconds))


CLONE_NEWNET = 0x40000000
libc = ctypes.CDLL(None, use_errno=True)


def apart():
    """This process goes to a namespace of its own, with a loopback that is up."""
    if libc.unshare(CLONE_NEWNET):
        raise OSError(ctypes.get_errno(), "unshare")
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)


class Namespace:
    """Another one."""

    def __init__(self):
        own = os.readlink("/proc/self/ns/net")
        self.p = subprocess.Popen(["unshare", "--net", "sleep", "100"])
        while os.readlink(f"/proc/{self.p.pid}/ns/net") == own:
            time.sleep(0.01)
        self.pid = str(self.p.pid)
        self.run("ip", "link", "set", "lo", "up")

    def words(self, words):
        return ["nsenter", f"--net=/proc/{self.pid}/ns/net", *words]

    def run(self, *words):
        return subprocess.run(self.words(words), capture_output=True, text=True)

    def python(self, code):
        return subprocess.Popen(self.words(["python3", "-c", code]), stdout=subprocess.PIPE, text=True)

    def close(self):
        self.p.kill()
        self.p.wait()


def main():
    path, case, end = sys.argv[1:]
    spec = importlib.util.spec_from_file_location("case", path)
    module = importlib.util.module_from_spec(spec)
    sys.modules["ends"] = sys.modules["__main__"]
    spec.loader.exec_module(module)
    getattr(module, f"{case}_{end}")()


if __name__ == "__main__":
    main()
