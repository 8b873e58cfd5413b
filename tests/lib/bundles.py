"""Bundles, runtimes and what they leave behind: shared by tests/oci, tests/abuse and bench/scale.

The command under test is copied to a directory of the test's own: whatever process has the copy as its
program (the monitor, the Sentry, the Gofer and the stub processes have, all being copies of one process) is
the test's, and must be gone in the end.
"""

import copy
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent.parent
CAPS = ["CAP_CHOWN", "CAP_DAC_OVERRIDE", "CAP_FOWNER", "CAP_KILL", "CAP_SETUID", "CAP_SETGID", "CAP_MKNOD"]


def left_out(text):
    """Ends a test that cannot run here."""
    print(f"{Path(sys.argv[0]).name}: left out: {text}")
    raise SystemExit(0)


def cloister():
    """The command: $CLOISTER, or the release build."""
    if "CLOISTER" in os.environ:
        return Path(os.environ["CLOISTER"]).resolve()
    subprocess.run(["cargo", "build", "--release", "-p", "cli"], cwd=HERE.parent, check=True)
    target = Path(os.environ.get("CARGO_TARGET_DIR", HERE.parent / "target"))
    return (target / "release/cloister").resolve()


def config(args=("true",)):
    """A bundle's config.json: root's shell in namespaces of its own."""
    quiet = ["nosuid", "noexec", "nodev"]
    mount = lambda at, kind, options: {"destination": at, "type": kind, "source": kind, "options": options}
    return {
        "ociVersion": "1.0.2",
        "process": {
            "terminal": False, "user": {"uid": 0, "gid": 0}, "args": list(args), "cwd": "/",
            "env": ["PATH=/bin"], "noNewPrivileges": True,
            "capabilities": {s: list(CAPS) for s in ["bounding", "effective", "permitted"]},
        },
        "root": {"path": "rootfs", "readonly": False},
        "hostname": "box",
        "mounts": [
            mount("/proc", "proc", []),
            mount("/dev", "tmpfs", ["nosuid", "strictatime", "mode=755", "size=65536k"]),
            mount("/dev/pts", "devpts", ["nosuid", "noexec", "newinstance", "ptmxmode=0666", "mode=0620", "gid=5"]),
            mount("/dev/shm", "tmpfs", quiet + ["mode=1777", "size=65536k"]),
        ],
        "linux": {"namespaces": [{"type": t} for t in ["pid", "network", "ipc", "uts", "mount"]]},
    }


def sh(script):
    return ["sh", "-c", script]


class Result:
    def __init__(self, status, out, err):
        self.status, self.out, self.err = status, out, err

    def __repr__(self):
        return f"status {self.status}\nout: {self.out[-600:]}\nerr: {self.err[-600:]}"


class Runtime:
    """A runtime, with options that come before the command, and a state directory of its own."""

    def __init__(self, name, program, state, options=()):
        self.name, self.program, self.state = name, str(program), Path(state)
        self.options = [f"--root={self.state}", *options]

    def argv(self, *args):
        return [self.program, *self.options, *map(str, args)]

    def __call__(self, *args, timeout=60, **more):
        more.setdefault("stdin", subprocess.DEVNULL)
        p = subprocess.Popen(self.argv(*args), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                             errors="replace", **more)
        try:
            out, err = p.communicate(timeout=timeout)
        except subprocess.TimeoutExpired:
            p.kill()
            p.communicate()
            raise AssertionError(f"{self.name} {args} took longer than {timeout} s") from None
        return Result(p.returncode, out, err)

    def quietly(self, *args, **more):
        """With its streams closed to us: what runs on may keep them."""
        more.setdefault("stdin", subprocess.DEVNULL)
        more.setdefault("stdout", subprocess.DEVNULL)
        with tempfile.TemporaryFile("w+") as err:
            status = subprocess.run(self.argv(*args), stderr=err, timeout=60, **more).returncode
            err.seek(0)
            return Result(status, "", err.read())

    def state_of(self, name):
        r = self("state", name)
        return json.loads(r.out) if r.status == 0 else None

    def status(self, name):
        s = self.state_of(name)
        return s["status"] if s else None

    def until(self, name, status, seconds=10):
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            if (now := self.status(name)) == status:
                return
            time.sleep(0.01)
        raise AssertionError(f"{name} is {now}, not {status}")


class Place:
    """A directory of the test's own, with the command and a root file system of busybox."""

    def __init__(self, name):
        self.dir = Path(tempfile.mkdtemp(prefix=f"cloister-{name}.", dir="/var/tmp"))
        self.dir.chmod(0o755)
        self.program = self.dir / "cloister"
        shutil.copy(cloister(), self.program)
        self.program.chmod(0o755)
        self.rootfs = self.dir / "rootfs"
        self.make_root(self.rootfs)
        self.number = 0
        self.before = self.footprint()

    @staticmethod
    def make_root(at):
        busybox = shutil.which("busybox")
        if not busybox:
            left_out("needs busybox (Debian's busybox-static)")
        for d in ["bin", "etc", "tmp", "root", "var", "proc", "sys", "dev", "home"]:
            (at / d).mkdir(parents=True)
        shutil.copy(busybox, at / "bin/busybox")
        for applet in subprocess.run([busybox, "--list"], capture_output=True, text=True).stdout.split():
            if applet != "busybox":
                (at / "bin" / applet).symlink_to("busybox")
        (at / "etc/passwd").write_text("root:x:0:0:root:/root:/bin/sh\nmail:x:8:8::/home:/bin/sh\n")
        (at / "etc/group").write_text("root:x:0:\nmail:x:8:\n")
        (at / "tmp").chmod(0o1777)

    def bundle(self, cfg, rootfs=None):
        """A new bundle: `cfg` is a dictionary, or the file's very bytes."""
        self.number += 1
        b = self.dir / f"bundle{self.number}"
        b.mkdir()
        (b / "rootfs").symlink_to(rootfs or self.rootfs)
        if isinstance(cfg, dict):
            cfg = copy.deepcopy(cfg)
            # Runtimes differ in whether the root may be a link.
            if cfg.get("root", {}).get("path") == "rootfs":
                cfg["root"]["path"] = str(rootfs or self.rootfs)
            cfg = json.dumps(cfg).encode()
        (b / "config.json").write_bytes(cfg)
        return b

    def own_root(self):
        """A root file system that the caller may change."""
        self.number += 1
        to = self.dir / f"root{self.number}"
        shutil.copytree(self.rootfs, to, symlinks=True)
        (to / "tmp").chmod(0o1777)
        return to

    def processes(self):
        """Those that run the test's copy of the command."""
        found = {}
        for p in Path("/proc").iterdir():
            if p.name.isdigit():
                try:
                    if os.readlink(p / "exe").removesuffix(" (deleted)") == str(self.program):
                        state = (p / "stat").read_text().rpartition(")")[2].split()[0]
                        if state not in "ZX":
                            found[int(p.name)] = (p / "status").read_text().splitlines()[0][6:]
                except OSError:
                    pass
        return found

    def footprint(self):
        """What the host has that a runtime could leave behind."""
        cgroups = set()
        for top, _, _ in os.walk("/sys/fs/cgroup"):
            cgroups.add(top)
        return {
            "mounts": [m for m in Path("/proc/self/mountinfo").read_text().splitlines() if str(self.dir) in m],
            "cgroups": {c for c in cgroups if re.search(rf"[/-](conf|abuse|scale)-{os.getpid()}(?![0-9])", c)},
        }

    def left(self, states=()):
        """What is there now and was not at the start; waits a little for what is ending."""
        end = time.monotonic() + 5
        while True:
            found = []
            if p := self.processes():
                found.append(f"processes {p}")
            now = self.footprint()
            for what in ["mounts", "cgroups"]:
                if extra := set(now[what]) - set(self.before[what]):
                    found.append(f"{what} {sorted(extra)[:4]}")
            for s in states:
                if Path(s).is_dir() and (names := os.listdir(s)):
                    found.append(f"state {names[:5]}")
            if not found or time.monotonic() > end:
                return found
            time.sleep(0.02)

    def close(self):
        for pid in self.processes():
            try:
                os.kill(pid, 9)
            except OSError:
                pass
        time.sleep(0.05)
        # (Trees that are too deep for Python.)
        # What a container may have left mounted there is not the test's.
        subprocess.run(["rm", "-rf", "--one-file-system", self.dir])
