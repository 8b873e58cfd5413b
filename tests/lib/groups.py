"""Control groups and their memory, from inside a sandbox: each function is a case of tests/memory.

  groups.py CASE        prints what it saw; a line that begins with "!" is wrong
"""

import mmap
import os
import select
import shutil
import signal
import subprocess
import sys
import time

MB = 1 << 20
TREE = "/tmp/c"
LIB = os.path.dirname(os.path.abspath(__file__))


def check(holds, *what):
    if not holds:
        print("!", *what, flush=True)


class Group:
    """A group; its files are read and written by name, with "_" for "."."""

    def __init__(self, path, **words):
        self.path = f"{TREE}/{path}"
        os.mkdir(self.path)
        for name, value in words.items():
            self.write(name.replace("_", "."), value)

    def write(self, name, value):
        with open(f"{self.path}/{name}", "w") as f:
            f.write(str(value))

    def read(self, name):
        with open(f"{self.path}/{name}") as f:
            return f.read().strip()

    def number(self, name="memory.current"):
        return int(self.read(name))

    def events(self, name="memory.events"):
        return {k: int(v) for k, v in (line.split() for line in self.read(name).splitlines())}

    def run(self, *words, **more):
        """Starts a program in it."""
        return subprocess.Popen(words, preexec_fn=lambda: self.write("cgroup.procs", 0), **more)

    def python(self, text, *words, **more):
        more.setdefault("stdout", subprocess.PIPE)
        return self.run("python3", "-Sc", text, *words, text=True, stdin=subprocess.PIPE, **more)

    def holder(self, mb, fill="x"):
        """A process that has so much, and keeps it until its input ends."""
        p = self.python(f"b = bytearray(b'{fill}') * ({mb} << 20); print(len(b), flush=True); input()")
        p.stdout.readline()
        return p

    def remove(self):
        """As soon as the last of its processes is gone."""
        for _ in range(1000):
            try:
                return os.rmdir(self.path)
            except OSError:
                time.sleep(0.01)
        print("!", self.path, "stays")


class Waiter:
    """An open file that is polled, and what was written to it."""

    def __init__(self, path, text, mask):
        self.fd = os.open(path, os.O_RDWR if text else os.O_RDONLY)
        if text:
            os.write(self.fd, text)
        self.poll = select.poll()
        self.poll.register(self.fd, mask)

    def told(self, ms=0):
        """What it is told within so long, without what is always so."""
        events = 0
        for _, e in self.poll.poll(ms):
            events |= e
        return events

    def read(self):
        return os.pread(self.fd, 4096, 0).decode()


def soon(what, is_so):
    """Whether it becomes so."""
    for _ in range(500):
        if is_so():
            return True
        time.sleep(0.01)
    check(False, "not so:", what)
    return False


def end(*processes):
    for p in processes:
        p.kill()
        p.wait()


def limit():
    """The group's hog ends; a larger process beside it, and one in a group beside it, do not."""
    big, other = Group("big"), Group("other", memory_max="20M")
    beside, sibling = big.holder(40), other.holder(10)
    a = Group("a", memory_max="16M")
    for text in [
        "b = bytearray(b'x' * (40 << 20))",
        "import mmap; m = mmap.mmap(-1, 40 << 20)\nfor i in range(0, len(m), 4096): m[i] = 1",
        "import os; os.read(os.open('/dev/zero', 0), 40 << 20)",
    ]:
        check(a.python(text).wait() == -9, text)
    check(a.run("dd", "if=/dev/zero", "of=/dev/shm/x", "bs=1M", "count=40", stderr=subprocess.DEVNULL).wait() == -9, "dd")
    e = a.events()
    check(e["oom_kill"] == 4 and e["oom"] >= 4 and e["max"] >= 4, e)
    check(beside.poll() is None and sibling.poll() is None, "a bystander ended")
    check(big.events()["oom_kill"] == other.events()["oom_kill"] == 0, "events of others")
    check(a.number("memory.peak") <= 16 * MB, a.number("memory.peak"))
    # The file stays, and counts, until it is removed.
    check(8 * MB < a.number() <= 16 * MB and "shmem 0\n" not in a.read("memory.stat"), a.number())
    os.unlink("/dev/shm/x")
    check(soon("the file's memory is back", lambda: a.number() < MB), a.number())
    end(beside, sibling)
    for g in (a, big, other):
        g.remove()
    print("limit")


def nested():
    """The nearest limit holds, and the one above for all below together."""
    a = Group("a", memory_max="32M")
    a.write("cgroup.subtree_control", "+memory")
    b, c = Group("a/b", memory_max="12M"), Group("a/c")
    check(b.python("b = bytearray(b'x' * (20 << 20))").wait() == -9, "b's own limit")
    check(b.events()["oom_kill"] == 1 and c.events()["oom_kill"] == 0, b.events())
    check(a.events()["oom_kill"] == 1 and a.events("memory.events.local")["oom"] == 0, a.events())
    one = c.holder(8)
    # Together they have more than their parent allows: the larger one goes, whoever asked.
    two = c.python("b = bytearray(b'x' * (40 << 20))")
    check(two.wait() == -9 and one.poll() is None, two.returncode, one.poll())
    check(a.events("memory.events.local")["oom"] >= 1 and c.events()["oom_kill"] == 1, a.events(), c.events())
    # No process beside groups that have the controller; and it is not taken back while it is used.
    try:
        a.write("cgroup.procs", os.getpid())
        check(False, "a process in an inner group")
    except OSError as e:
        check(e.errno == 16, e)
    deep = Group("a/b/deep")
    check(not os.path.exists(f"{deep.path}/memory.max"), "a file of a controller that is not given")
    end(one)
    for g in (deep, b, c, a):
        g.remove()
    print("nested")


def together():
    """memory.oom.group: all of the group end, but who must not."""
    a = Group("a", memory_max="24M", memory_oom_group=1)
    kept = a.python("""
open('/proc/self/oom_score_adj', 'w').write('-1000'); print(1, flush=True); input()""")
    kept.stdout.readline()
    others = [a.holder(2) for _ in range(3)]
    hog = a.python("b = bytearray(b'x' * (40 << 20))")
    check([p.wait() for p in (hog, *others)] == [-9] * 4, "not all ended")
    check(kept.poll() is None, "who is never ended")
    e = a.events()
    check(e["oom_group_kill"] >= 1 and e["oom_kill"] == 4, e)
    end(kept)
    a.remove()
    print("together")


def lowered():
    """A limit that is lowered is kept at once: by what nobody touched, by swap, by an end."""
    a = Group("a")
    p = a.python("import mmap; m = mmap.mmap(-1, 64 << 20); m[0] = 1; print(1, flush=True); input()")
    p.stdout.readline()
    a.write("memory.max", "16M")
    check(a.number() <= 16 * MB and p.poll() is None, a.number())
    end(p)
    p = a.holder(12)
    a.write("memory.max", "8M")
    check(p.wait() == -9 and a.events()["oom_kill"] == 1, a.events())
    check(soon("all is back", lambda: a.number() < MB // 4), a.number())
    a.remove()
    print("lowered")


def moved():
    """What a process has made stays with its group; what that leaves counts above it."""
    up = Group("up")
    up.write("cgroup.subtree_control", "+memory")
    a, b = Group("up/a"), Group("up/b")
    p = a.python("""
b = bytearray(b'x') * (8 << 20); open('/dev/shm/y', 'wb').write(b); print(1, flush=True)
input(); c = bytearray(b'x') * (8 << 20); print(2, flush=True); input()""")
    p.stdout.readline()
    had = a.number()
    check(had >= 16 * MB, had)
    b.write("cgroup.procs", p.pid)
    p.stdin.write("\n"), p.stdin.flush()
    p.stdout.readline()
    check(8 * MB <= b.number() < 10 * MB and abs(a.number() - had) < MB, a.number(), b.number())
    end(p)
    check(soon("only the file is left", lambda: a.number() < 9 * MB and b.number() < MB // 4), a.number(), b.number())
    a.remove()
    check(8 * MB <= up.number() < 9 * MB, up.number())
    # A group of the same name begins anew.
    check(Group("up/a").number() == 0, "a new group")
    os.unlink("/dev/shm/y")
    check(soon("nothing is left", lambda: up.number() < MB // 4), up.number())
    os.rmdir(f"{TREE}/up/a")
    b.remove()
    # The controller is taken back while processes have memory: that counts above from then on.
    c = Group("up/c")
    p = c.holder(8)
    up.write("cgroup.subtree_control", "-memory")
    check(not os.path.exists(f"{c.path}/memory.max") and 8 * MB <= up.number(), up.number())
    up.write("cgroup.subtree_control", "+memory")
    check(c.number() == 0, "what was made before is not the new controller's")
    end(p)
    check(soon("nothing is left", lambda: up.number() < MB // 4), up.number())
    c.remove(), up.remove()
    print("moved")


def swapped():
    """Beyond its limit a group goes to swap, up to its own part of it."""
    a = Group("a", memory_max="16M")
    want = subprocess.run([f"{LIB}/pages", "3", "8000", "40"], capture_output=True).stdout
    p = a.run(f"{LIB}/pages", "3", "8000", "40", stdout=subprocess.PIPE)
    most = swap = 0
    while p.poll() is None:
        most, swap = max(most, a.number()), max(swap, a.number("memory.swap.current"))
        time.sleep(0.01)
    check(p.returncode == 0 and p.stdout.read() == want, p.returncode)
    check(most <= 16 * MB and swap > 8 * MB and a.events()["oom_kill"] == 0, most, swap, a.events())
    check(a.number("memory.swap.peak") >= swap, a.number("memory.swap.peak"))
    check(soon("no swap is left", lambda: a.number("memory.swap.current") == 0), a.number("memory.swap.current"))
    a.write("memory.swap.max", "4M")
    events = Waiter(f"{a.path}/memory.swap.events", b"", select.POLLPRI)
    events.read()
    check(events.told() == 0, "nothing has happened yet")
    hog = a.python("import os; b = bytearray(os.urandom(24 << 20)); print(1)")
    check(hog.wait() == -9 and a.number("memory.swap.peak") >= 4 * MB, hog.returncode)
    check(events.told(1000) & select.POLLPRI, "that swap had no room is told")
    check("\nfail 0" not in events.read(), events.read())
    a.write("memory.swap.max", 0)
    check(soon("no swap is left", lambda: a.number("memory.swap.current") == 0))
    check(a.python("b = bytearray(b'x' * (24 << 20))").wait() == -9, "no swap")
    check(a.number("memory.swap.current") == 0, "swap that is not allowed")
    a.remove()
    print("swapped")


def stalled():
    """A group that thrashes has lost time, and so have those above it; its sibling has not."""
    def lost(g, line=0):
        return int(g.read("memory.pressure").splitlines()[line].rsplit("=")[-1])

    up = Group("up")
    up.write("cgroup.subtree_control", "+memory")
    a, b = Group("up/a", memory_max="16M"), Group("up/b", memory_max="16M")
    beside = b.holder(4)
    check(lost(a) == 0 and lost(b) == 0, lost(a), lost(b))
    check(a.read("memory.pressure").startswith("some avg10=0.00 avg60=0.00 avg300=0.00 total=0\nfull avg10="))
    alarm = b"some 100000 1000000\0"
    own, whole, besides = (Waiter(p, alarm, select.POLLPRI | select.POLLERR)
                           for p in (f"{a.path}/memory.pressure", "/proc/pressure/memory", f"{b.path}/memory.pressure"))
    check(not own.told() and not besides.told(), "told before anything was lost")
    hog = a.python("""
import time
b = bytearray(24 << 20)
end = time.monotonic() + 3
while time.monotonic() < end:
    for i in range(0, len(b), 4096): b[i] = 1""")
    check(own.told(3000) == select.POLLPRI and whole.told(1000) == select.POLLPRI, "who waits is not told")
    check(not own.told(100), "told twice in a window")
    check(hog.wait() == 0, hog.returncode)
    check(not besides.told(), "the sibling has lost nothing")
    check(lost(a) > 300000 and lost(b) == 0 and lost(up) >= lost(a) >= lost(a, 1) > 0, lost(a), lost(b), lost(up))
    end(beside)
    a.remove()
    check(own.told(1000) == select.POLLPRI | select.POLLERR, "that the group is gone is told")
    up.write("cgroup.subtree_control", "-memory")
    check(besides.told(1000) == select.POLLPRI | select.POLLERR, "that the controller is gone is told")
    for g in (b, up): g.remove()
    print("stalled")


def peaks():
    """An open memory.peak forgets when it is written to; no other one does."""
    a = Group("a")
    end(a.holder(16))
    check(soon("little is left", lambda: a.number() < 2 * MB), a.number())
    first, second, never = (Waiter(f"{a.path}/memory.peak", text, 0) for text in (b"x", b"x", b""))
    since = lambda w: int(w.read())
    check(since(first) < 2 * MB and since(second) < 2 * MB, since(first), since(second))
    check(since(never) >= 16 * MB and a.number("memory.peak") >= 16 * MB, since(never))
    p = a.holder(6)
    os.write(second.fd, b"reset\n")
    end(p)
    check(soon("little is left", lambda: a.number() < 2 * MB), a.number())
    os.write(second.fd, b"0")
    check(6 * MB <= since(first) < 16 * MB and since(second) < 2 * MB, since(first), since(second))
    check(since(never) >= 16 * MB, since(never))
    a.remove()
    print("peaks")


def reclaimed():
    """memory.reclaim and memory.high send out what is there; memory.min and low keep it."""
    a = Group("a")
    p = a.holder(24)
    a.write("memory.reclaim", "8M")
    check(a.number() <= 20 * MB and a.number("memory.swap.current") > 0, a.number())
    try:
        a.write("memory.reclaim", "1G")
        check(False, "more than there is")
    except OSError as e:
        check(e.errno == 11, e)
    end(p)
    a.write("memory.high", "8M")
    p = a.holder(24)
    # (Less than what is worth a round may stay.)
    check(soon("down to high", lambda: a.number() <= 8 * MB + MB // 2), a.number())
    check(a.events()["high"] >= 1 and a.events()["oom"] == 0 and p.poll() is None, a.events())
    end(p)
    a.remove()
    # Two beside each other, above their parent's limit: the protected one keeps what it has.
    up = Group("up", memory_max="48M")
    up.write("cgroup.subtree_control", "+memory")
    for word in ("min", "low"):
        kept, other = Group("up/kept", **{f"memory_{word}": "24M"}), Group("up/other")
        p = kept.holder(20)
        q = other.run(f"{LIB}/thrash", "1", "2", "50", "20000", stdout=subprocess.PIPE)
        check(q.wait() == 0 and q.stdout.read() == b"whole\n", q.returncode)
        # (What is low gives way where nothing else went for a while.)
        most = MB if word == "low" else 0
        check(kept.number("memory.swap.current") <= most and kept.number() >= 20 * MB - most, word, kept.number())
        check(other.number("memory.swap.peak") > 0, "the other was not sent out")
        end(p)
        kept.remove(), other.remove()
    # What is only low goes where nothing else is left.
    kept = Group("up/kept", memory_low="48M")
    p = kept.holder(40)
    q = kept.holder(24)
    check(p.poll() is None and q.poll() is None and kept.events()["oom"] == 0, kept.events())
    check(kept.events()["low"] >= 1 and kept.number("memory.swap.current") > 0, kept.events())
    end(p, q)
    kept.remove(), up.remove()
    print("reclaimed")


def held_up():
    """Without swap, who makes memory above high is slowed down, not ended; others are not."""
    a = Group("a", memory_high="8M")
    p = a.python("""
b = []
while True: b.append(bytearray(b'x' * 65536)); print(len(b), flush=True)""")
    time.sleep(3)
    n = a.number()
    check(p.poll() is None and 7 * MB <= n < 24 * MB, p.poll(), n)
    check(a.events()["high"] >= 1 and a.events()["oom_kill"] == 0, a.events())
    start = time.monotonic()
    end(p)
    check(time.monotonic() - start < 1, "who is held up ends at once")
    a.remove()
    print("held_up")


def words():
    """What the files take, and what they refuse."""
    a = Group("a")
    for value, want in [("1M", "1048576"), ("4097", "4096"), ("max", "max"), ("0x10000", "65536"), ("-1", OSError), ("1q", OSError), ("9223372036854771712", "max"), ("1G\n", str(1 << 30))]:
        for name in ("max", "high", "min", "low", "swap.max", "swap.high"):
            try:
                a.write(f"memory.{name}", value)
                got = a.read(f"memory.{name}")
                check(want == got, name, value, got)
            except OSError as e:
                check(want is OSError and e.errno == 22, name, value, e)
    for value, fine in [("1", 1), ("0", 1), ("2", 0), ("x", 0)]:
        try:
            a.write("memory.oom.group", value)
            check(fine, "oom.group", value)
        except OSError as e:
            check(not fine and e.errno == 22, value, e)
    for value in ("x", "max", "1M swappiness=201", "1M some=1"):
        try:
            a.write("memory.reclaim", value)
            check(False, "reclaim", value)
        except OSError as e:
            check(e.errno == 22, value, e)
    for name in ("current", "events", "stat"):
        try:
            a.write(f"memory.{name}", "1")
            check(False, name)
        except OSError as e:
            check(e.errno in (13, 22), name, e)
    a.write("memory.max", "max")
    a.remove()
    # Root's own are the container's.
    total = next(int(line.split()[1]) for line in open("/proc/meminfo") if line.startswith("MemTotal:"))
    check(int(open(f"{TREE}/memory.max").read()) == total << 10, "root")
    above = open(f"{TREE}/cgroup.controllers").read().split()
    check(above == ["cpuset", "cpu", "memory", "pids"], above)
    # As scripts give all that there is; what is the host's says that nothing is limited.
    up = Group("up")
    with open(f"{TREE}/cgroup.subtree_control", "w") as f:
        f.write(" ".join("+" + c for c in above))
    up.write("cgroup.subtree_control", " ".join("+" + c for c in above))
    low = Group("up/low")
    check(low.read("cgroup.controllers").split() == above, low.read("cgroup.controllers"))
    check((low.read("cpu.max"), low.read("cpu.weight"), low.read("cpuset.cpus")) == ("max 100000", "100", ""), "cpu")
    check(low.read("cpuset.cpus.effective") == open(f"{TREE}/cpuset.cpus.effective").read().strip(), "cpuset")
    low.write("cpu.weight", "39"), low.write("cpu.max", "max")
    check(low.read("cpu.weight") == "39", low.read("cpu.weight"))
    for name, value in (("cpu.max", "50000 100000"), ("cpuset.cpus", "0")):
        try:
            low.write(name, value)
            check(False, name)
        except OSError as e:
            check(e.errno == 95, name, e)
    low.remove()
    up.write("cgroup.subtree_control", "-cpu -cpuset")
    check(up.read("cgroup.subtree_control") == "memory pids", up.read("cgroup.subtree_control"))
    up.remove()
    print("words")


def programs():
    """Real programs, each in a group of its own that it fills; beside them one in a group, and one that is larger."""
    beside, big = Group("beside", memory_max="60M"), Group("big")
    larger = big.holder(80)
    server = ["redis-server", "--save", "", "--port", "0", "--unixsocket"]
    ask = lambda at, *words: subprocess.run(["redis-cli", "-s", at, *words], capture_output=True, text=True).stdout.strip()
    kept = beside.run(*server, "/tmp/beside", stdout=subprocess.DEVNULL) if shutil.which("redis-server") else None
    if kept:
        soon("an answer", lambda: ask("/tmp/beside", "set", "it", "well") == "OK")
    hogs = [
        (sys.executable, 48, ["-Sc", "d = {}\nfor i in range(10 ** 9): d[i] = str(i)"]),
        ("dd", 32, ["if=/dev/zero", "of=/dev/shm/x", "bs=1M", "count=100"]),
        ("node", 120, ["-e", "const all = []; for (;;) all.push(Buffer.alloc(1 << 20, 1))"]),
        ("redis-server", 32, [*server[1:], "/tmp/full"]),
    ]
    for name, mb, words in hogs:
        if not shutil.which(name):
            continue
        g = Group("hog", memory_max=f"{mb}M")
        p = g.run(name, *words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        if name == "redis-server":
            soon("an answer", lambda: ask("/tmp/full", "ping") == "PONG")
            ask("/tmp/full", "eval", "for i = 1, 6000 do redis.call('set', i, string.rep('x', 10000) .. i) end", "0")
        e = (p.wait(), g.events()["oom_kill"], g.number("memory.peak") <= mb * MB)
        check(e == (-9, 1, True), name, e)
        if name == "dd":
            os.unlink("/dev/shm/x")
        check(soon(f"the memory of {name} is back", lambda: g.number() < MB), g.number())
        g.remove()
    check(larger.poll() is None and big.events()["oom_kill"] == beside.events()["oom_kill"] == 0, "a bystander")
    if kept:
        check(ask("/tmp/beside", "get", "it") == "well", "an answer is wrong")
        end(kept)
    end(larger)
    beside.remove()
    big.remove()
    print("programs")


def storm():
    """Groups that come and go, limits that change, processes that move: nothing is lost, and nothing stays."""
    import random

    random.seed(int(sys.argv[2]) if len(sys.argv) > 2 else 1)
    up = Group("up", memory_max="64M")
    up.write("cgroup.subtree_control", "+memory")
    groups = {n: Group(f"up/{n}") for n in range(4)}
    jobs = []
    until = time.monotonic() + 12
    made = ended = 0
    while time.monotonic() < until:
        if len(jobs) < 4:
            seed = str(random.randrange(1 << 20))
            p = groups[random.choice(list(groups))].run(f"{LIB}/pages", seed, "3000", "14", stdout=subprocess.PIPE)
            jobs.append((p, seed))
            made += 1
        n = random.choice(list(groups))
        what = random.randrange(6)
        try:
            if what == 0:
                groups[n].write("memory.max", random.choice(["24M", "32M", "max"]))
            elif what == 1:
                groups[n].write("memory.high", random.choice(["16M", "max", "24M"]))
            elif what == 2 and jobs:
                groups[n].write("cgroup.procs", random.choice(jobs)[0].pid)
            elif what == 3:
                os.rmdir(groups[n].path)
                groups[n] = Group(f"up/{n}")
            elif what == 4:
                groups[n].write("memory.reclaim", "2M")
            else:
                groups[n].write("memory.swap.max", random.choice(["16M", "max"]))
        except OSError as e:
            check(e.errno in (3, 11, 16, 19), what, e)
        for job in list(jobs):
            if job[0].poll() is not None:
                jobs.remove(job)
                ended += job[0].returncode == -9
                want = subprocess.run([f"{LIB}/pages", job[1], "3000", "14"], stdout=subprocess.PIPE)
                check(want.returncode == 0, "outside of all groups", want.returncode)
                want = want.stdout
                got = job[0].stdout.read()
                check(job[0].returncode == -9 or got == want, job[1], job[0].returncode, got, want)
    end(*(j[0] for j in jobs))
    check(made >= 5, made)
    check(soon("nothing is left", lambda: up.number() == 0 and up.number("memory.swap.current") == 0), up.number(), up.number("memory.swap.current"))
    for g in groups.values():
        check(g.number() == 0, g.path, g.number())
        g.remove()
    up.remove()
    print("storm")


os.makedirs(TREE, exist_ok=True)
subprocess.run(["mount", "-t", "cgroup2", "c", TREE], check=True)
with open(f"{TREE}/cgroup.subtree_control", "w") as f:
    f.write("+memory +pids")
globals()[sys.argv[1]]()
