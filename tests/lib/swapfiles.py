"""Fills files in memory or shared memory, and looks whether all of it is still there.

    swapfiles.py MB KIND ...       file, memfd, shared, sysv; all at once, each with a process that shares it

Prints `whole` for each kind.
"""
import ctypes, hashlib, mmap, os, random, sys

PAGE = 4096


def contents(i, gen):
    return hashlib.blake2b(b"%d %d" % (i, gen), digest_size=32).digest() * 32 + bytes(PAGE - 1024)


class File:
    """Reads and writes, of whole pages, of parts, and of all at once."""

    def __init__(self, pages):
        self.fd = os.open("/tmp/file%d" % os.getpid(), os.O_RDWR | os.O_CREAT, 0o600)

    def put(self, i, data):
        assert os.pwrite(self.fd, data[:1000], i * PAGE) == 1000
        assert os.pwrite(self.fd, data[1000:], i * PAGE + 1000) == PAGE - 1000

    def get(self, i):
        return os.pread(self.fd, PAGE, i * PAGE)

    def all(self, pages):
        return os.pread(self.fd, pages * PAGE, 0)


class Mapped:
    def __init__(self, m):
        self.m = m

    def put(self, i, data):
        self.m[i * PAGE : (i + 1) * PAGE] = data

    def get(self, i):
        return self.m[i * PAGE : (i + 1) * PAGE]

    def all(self, pages):
        """By a call, which has much of it at once."""
        r, w = os.pipe()
        if os.fork() == 0:
            os.close(r)
            view = memoryview(self.m)
            for at in range(0, pages * PAGE, 1 << 20):
                left = view[at : min(at + (1 << 20), pages * PAGE)]
                while left:
                    left = left[os.write(w, left) :]
            os._exit(0)
        os.close(w)
        with os.fdopen(r, "rb") as f:
            data = f.read()
        os.wait()
        return data


def memfd(pages):
    fd = os.memfd_create("swapped")
    os.ftruncate(fd, pages * PAGE)
    return Mapped(mmap.mmap(fd, pages * PAGE))


def sysv(pages):
    libc = ctypes.CDLL(None, use_errno=True)
    libc.shmat.restype = ctypes.c_void_p
    id = libc.shmget(0, ctypes.c_size_t(pages * PAGE), 0o1600)
    at = libc.shmat(id, None, 0)
    libc.shmctl(id, 0, None)
    return Mapped(memoryview((ctypes.c_char * (pages * PAGE)).from_address(at)).cast("B"))


KINDS = {"file": File, "memfd": memfd, "shared": lambda n: Mapped(mmap.mmap(-1, n * PAGE)), "sysv": sysv}


def look(kind, pages):
    m = KINDS[kind](pages)
    gen = [0] * pages
    for i in range(pages):
        m.put(i, contents(i, 0))
    child = os.fork()
    if child == 0:
        assert all(m.get(i) == contents(i, 0) for i in range(pages - 1, -1, -1))
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    r = random.Random(kind)
    for _ in range(2 * pages):
        i = r.randrange(pages)
        if r.random() < 0.5:
            gen[i] += 1
            m.put(i, contents(i, gen[i]))
        else:
            assert bytes(m.get(i)) == contents(i, gen[i]), (kind, i)
    data = m.all(pages)
    assert len(data) == pages * PAGE, (kind, len(data))
    assert all(data[i * PAGE : (i + 1) * PAGE] == contents(i, gen[i]) for i in range(pages)), kind
    os.write(1, b"whole\n")


pages = int(sys.argv[1]) * 256
children = []
for kind in sys.argv[2:]:
    pid = os.fork()
    if pid == 0:
        try:
            look(kind, pages)
        except BaseException as e:
            os.write(1, f"{kind}: {type(e).__name__} {e}\n".encode())
            os._exit(1)
        os._exit(0)
    children.append(pid)
sys.exit(any(os.waitpid(pid, 0)[1] for pid in children))
