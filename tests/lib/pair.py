"""Two network namespaces with a pair of devices between them, for tests/stack and bench/network."""

import os
import subprocess
import time

OUT4, IN4, OUT6, IN6 = "10.77.0.1", "10.77.0.2", "fd77::1", "fd77::2"


def ip(pid, *words):
    r = subprocess.run(["nsenter", f"--net=/proc/{pid}/ns/net", "ip", *words], check=True, capture_output=True, text=True)
    return r.stdout


class Pair:
    """Two namespaces and a pair of devices between them."""

    def __init__(self, mtu=1500):
        self.holders = [subprocess.Popen(["unshare", "--net", "sleep", "1000"]) for _ in range(2)]
        self.out, self.inner = (h.pid for h in self.holders)
        own = os.readlink("/proc/self/ns/net")
        for pid in self.out, self.inner:
            while os.readlink(f"/proc/{pid}/ns/net") == own:
                time.sleep(0.005)
        ip(self.out, "link", "add", "out0", "mtu", str(mtu), "type", "veth", "peer", "name", "eth0", "mtu", str(mtu), "netns", str(self.inner))
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
