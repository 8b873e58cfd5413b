"""Two network namespaces with a pair of devices between them, for tests/stack and tests/wire."""

import os
import subprocess
import time

OUT4, IN4, OUT6, IN6 = "10.77.0.1", "10.77.0.2", "fd77::1", "fd77::2"


def ip(pid, *words):
    r = subprocess.run(["nsenter", f"--net=/proc/{pid}/ns/net", "ip", *words], check=True, capture_output=True, text=True)
    return r.stdout


def veth(pid, device, peer, peer_device, mtu):
    ip(pid, "link", "add", device, "mtu", str(mtu), "type", "veth", "peer", "name", peer_device, "mtu", str(mtu), "netns", str(peer))


class Pair:
    """Two namespaces and a pair of devices between them."""

    def __init__(self, mtu=1500):
        self.namespaces(2)
        veth(self.out, "out0", self.inner, "eth0", mtu)
        self.configure()

    def namespaces(self, n):
        self.holders = [subprocess.Popen(["unshare", "--net", "sleep", "1000"]) for _ in range(n)]
        self.out, self.inner = (h.pid for h in self.holders[:2])
        own = os.readlink("/proc/self/ns/net")
        for h in self.holders:
            while os.readlink(f"/proc/{h.pid}/ns/net") == own:
                time.sleep(0.005)

    def configure(self):
        for pid, device, four, six in (self.out, "out0", OUT4, OUT6), (self.inner, "eth0", IN4, IN6):
            ip(pid, "link", "set", "lo", "up")
            ip(pid, "address", "add", f"{four}/24", "broadcast", "+", "dev", device)
            ip(pid, "-6", "address", "add", f"{six}/64", "dev", device, "nodad")
            ip(pid, "link", "set", device, "up")
        for pid, device in (self.out, "out0"), (self.inner, "eth0"):
            while "state UP" not in ip(pid, "link", "show", device):
                time.sleep(0.005)
        ip(self.inner, "route", "add", "default", "via", OUT4)
        ip(self.inner, "-6", "route", "add", "default", "via", OUT6)

    def close(self):
        for h in self.holders:
            h.kill()
            h.wait()


class Relayed(Pair):
    """A third namespace between the two, where a relay (tests/lib/relay.c) passes frames on as it is told."""

    def __init__(self, relay, seed, words, mtu=1500):
        self.namespaces(3)
        middle = self.holders[2].pid
        veth(self.out, "out0", middle, "left", mtu)
        veth(self.inner, "eth0", middle, "right", mtu)
        for device in "left", "right":
            # Nobody speaks there but the relay.
            ip(middle, "link", "set", device, "addrgenmode", "none")
            ip(middle, "link", "set", device, "up")
        self.relay = subprocess.Popen(["nsenter", f"--net=/proc/{middle}/ns/net", relay, str(seed), "left", "right", *words], stdout=subprocess.PIPE, text=True)
        if self.relay.stdout.readline() != "ready\n":
            raise RuntimeError("the relay does not start")
        self.configure()

    def close(self):
        self.relay.terminate()
        self.told = self.relay.stdout.read()
        self.relay.wait()
        super().close()
