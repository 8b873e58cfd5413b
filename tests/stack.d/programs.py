"""Programs that people run, across the pair of devices: each served by Linux and asked from inside, and the other way."""

import contextlib
import os
import re
import shutil
import socket
import subprocess
import threading
import time
from pathlib import Path

from ends import *
from served import *


def asked_of_web(four, six, d):
    for what, url in ("http", f"http://{four}:{PORT}"), ("http6", f"http://[{six}]:{PORT}"), ("https", f"https://{four}:{PORT + 1}"), ("https6", f"https://[{six}]:{PORT + 1}"):
        curl = ["curl", "-sk", "--max-time", "40"]
        told(f"{what} small", [*curl, "-w", "%{http_code} %{http_version} %{num_connects}", f"{url}/small"])
        told(f"{what} large", [*curl, f"{url}/large"], keep=digest)
        told(f"{what} a range", [*curl, "-r", "1000000-1999999", f"{url}/large"], keep=digest)
        told(f"{what} none", [*curl, "-o", "none", "-w", "%{http_code}", f"{url}/none"])
        many = [f"{url}/small?{n}" for n in range(60)]
        told(f"{what} many at once", [*curl, "-Z", "--parallel-max", "12", *many], keep=digest)
    told("slowly", ["curl", "-s", "--limit-rate", "8M", f"http://{four}:{PORT}/large"], keep=digest)
    told("wget", ["wget", "-q", "-O", "-", f"http://{four}:{PORT}/large"], keep=digest)
    told("git clone", ["git", "clone", "-q", f"http://{four}:{PORT}/code.git", "got"])
    told("git log", ["git", "-C", "got", "log", "--format=%T %s", "origin/main"])
    for url in f"https://{four}:{PORT + 1}", f"https://[{six}]:{PORT + 1}":
        words = ["h2load", "-n", "2000", "-c", "8", "-m", "20", f"{url}/small"]
        told("h2load", words, keep=lambda b: re.findall(rb"requests: .*, (\d+) succeeded, (\d+) failed", b))
    status, out, err = run(["wrk", "-t1", "-c16", "-d1", f"http://{four}:{PORT}/small"])
    counted = re.search(rb"(\d+) requests in", out)
    say("wrk", (status, int(counted[1]) > 100 if counted else err, b"errors" in out or b"Non-2xx" in out))


def web_inside():
    """nginx: HTTP and HTTP/2 with TLS, IPv4 and IPv6, by curl, wget, git and wrk."""
    in_turn("inside", nginx, asked_of_web)


def web_outside():
    in_turn("outside", nginx, asked_of_web)


@contextlib.contextmanager
def sshd(d):
    for key in "host", "user":
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", d / key], check=True)
    Path("/run/sshd").mkdir(exist_ok=True)
    (d / "authorized").write_text((d / "user.pub").read_text())
    (d / "config").write_text(f"""
Port {PORT}
HostKey {d}/host
AuthorizedKeysFile {d}/authorized
StrictModes no
UsePAM no
PermitRootLogin yes
PidFile none
Subsystem sftp internal-sftp
""")
    tree = d / "tree"
    for n in range(40):
        (tree / f"d{n % 4}").mkdir(parents=True, exist_ok=True)
        (tree / f"d{n % 4}/f{n}").write_bytes(pattern(1000 * n + 7, n))
    (d / "large").write_bytes(pattern(12_000_000, 5))
    (d / "rsyncd").write_text(f"use chroot = no\n[tree]\npath = {tree}\n[up]\npath = {d}/up\nread only = no\nuid = 0\ngid = 0\n")
    (d / "up").mkdir()
    # The other end asks for the key, and where all is.
    keys = server("::", PORT + 2)
    give = threading.Thread(target=hand_over, args=(keys, d), daemon=True)
    give.start()
    with daemon([shutil.which("sshd", path="/usr/sbin:/usr/bin"), "-D", "-e", "-f", d / "config"], PORT):
        with daemon(["rsync", "--daemon", "--no-detach", f"--port={PORT + 1}", f"--config={d}/rsyncd"], PORT + 1):
            yield
    keys.close()


def hand_over(listener, d):
    with contextlib.suppress(OSError):
        s, _ = listener.accept()
        s.sendall(f"{d}\n{(d / 'user').read_text()}".encode())
        s.close()


def all_of(d):
    files = sorted(p for p in Path(d).rglob("*") if p.is_file())
    return len(files), digest(b"".join(p.name.encode() + p.read_bytes() for p in files))


def asked_by_ssh(four, six, d):
    there, key = receive_all(client(four, PORT + 2)).decode().split("\n", 1)
    (d / "key").write_text(key)
    (d / "key").chmod(0o600)
    options = ["-q", "-i", str(d / "key"), "-o", "StrictHostKeyChecking=no", "-o", "UserKnownHostsFile=/dev/null", "-o", "BatchMode=yes"]
    ssh = ["ssh", "-p", str(PORT), *options]
    told("a command", [*ssh, f"root@{four}", "echo said; exit 3"])
    told("by IPv6", [*ssh, f"root@{six}", "echo six"])
    told("what goes in", [*ssh, f"root@{four}", "sha256sum"], input=pattern(5_000_000, 2))
    told("a terminal", [*ssh, "-tt", f"root@{four}", "tty >/dev/null && stty size"], stdin=subprocess.DEVNULL)
    scp = ["scp", "-P", str(PORT), *options]
    told("scp from", [*scp, f"root@{four}:{there}/large", "got"])
    say("got", digest((d / "got").read_bytes()))
    (d / "mine").write_bytes(pattern(9_000_000, 9))
    told("scp to", [*scp, "mine", f"root@{four}:{there}/came"])
    told("came", [*ssh, f"root@{four}", f"cat {there}/came"], keep=digest)
    told("rsync by ssh", ["rsync", "-a", "-e", " ".join(ssh), f"root@{four}:{there}/tree/", "copy/"])
    say("copied", all_of("copy"))
    (d / "copy/d1/f1").write_bytes(b"changed")
    told("rsync back", ["rsync", "-a", "--checksum", "-e", " ".join(ssh), "copy/", f"root@{four}:{there}/back/"])
    told("rsync's daemon", ["rsync", "-a", f"rsync://{four}:{PORT + 1}/tree/", "other/"])
    say("copied", all_of("other"))
    told("rsync to it", ["rsync", "-a", "mine", f"rsync://[{six}]:{PORT + 1}/up/"])
    told("it is there", [*ssh, f"root@{four}", f"cat {there}/up/mine"], keep=digest)
    forwards = subprocess.Popen([*ssh, "-N", "-L", f"{PORT + 9}:127.0.0.1:{PORT + 1}", f"root@{four}"])
    wait_for("127.0.0.1", PORT + 9)
    told("forwarded", ["rsync", "-a", f"rsync://127.0.0.1:{PORT + 9}/tree/", "third/"])
    say("copied", all_of("third"))
    # (A signal that comes between ssh's look at its flag and its poll(2) is not seen: not SIGTERM.)
    forwards.kill()
    forwards.wait()


def ssh_inside():
    """sshd and rsync's daemon: commands, terminals, copies both ways, forwarded ports."""
    in_turn("inside", sshd, asked_by_ssh)


def ssh_outside():
    in_turn("outside", sshd, asked_by_ssh)


@contextlib.contextmanager
def redis(d):
    words = ["redis-server", "--port", str(PORT), "--bind", "0.0.0.0", "::", "--protected-mode", "no", "--save", "", "--dir", str(d)]
    with daemon(words, PORT):
        yield


def asked_of_redis(four, six, d):
    for at in four, six:
        cli = ["redis-cli", "-h", at, "-p", str(PORT)]
        told("set", [*cli, "set", "k", "v"])
        told("get", [*cli, "get", "k"])
        commands = b"".join(b"*3\r\n$3\r\nSET\r\n$6\r\nk%05d\r\n$4\r\n%04d\r\n" % (n, n % 10000) for n in range(50000))
        told("a pipe", [*cli, "--pipe"], input=commands, keep=lambda b: b.split(b"\n")[-2:])
        told("large", [*cli, "-x", "set", "large"], input=pattern(4_000_000))
        told("large again", [*cli, "get", "large"], keep=digest)
        told("benchmark", ["redis-benchmark", "-h", at, "-p", str(PORT), "-n", "5000", "-P", "8", "-c", "20", "-t", "set,get,lpush", "--csv"], keep=lambda b: b.count(b"\n"))
        told("keys", [*cli, "dbsize"])
        told("gone", [*cli, "flushall"])


def redis_inside():
    """redis, with pipelines."""
    in_turn("inside", redis, asked_of_redis)


def redis_outside():
    in_turn("outside", redis, asked_of_redis)


@contextlib.contextmanager
def measured(d):
    with daemon(["iperf3", "-s", "-p", str(PORT)], PORT):
        yield


def asked_of_iperf(four, six, d):
    import json

    for what, words in (
        ("up", ["-c", four]),
        ("down", ["-c", four, "-R"]),
        ("8 up", ["-c", four, "-P", "8"]),
        ("8 down", ["-c", six, "-P", "8", "-R"]),
        ("both", ["-c", six, "--bidir"]),
        ("datagrams up", ["-c", four, "-u", "-b", "20M", "-l", "1200"]),
        ("datagrams down", ["-c", six, "-u", "-b", "20M", "-l", "1200", "-R"]),
    ):
        # (The server ends a test some time after its client has: until then it is busy, then it closes its listener
        # for a moment, which resets who has come.)
        for _ in range(20):
            status, out, _ = run(["iperf3", "-p", str(PORT), "-t", "1", "-J", *words])
            said = json.loads(out or b"{}")
            if said.get("end", {}).get("streams"):
                break
            time.sleep(0.1)
        end = said.get("end", {})
        last = end.get("sum_received") or end.get("sum") or {}
        # (What a busy machine moves in a second is not told.)
        say(what, (status, said.get("error"), len(end.get("streams", [])), last.get("bytes", 0) > 1_000_000))


def iperf_inside():
    """iperf3: both ways, 1 and 8 streams, datagrams."""
    in_turn("inside", measured, asked_of_iperf)


def iperf_outside():
    in_turn("outside", measured, asked_of_iperf)


NODE = """
const http2 = require('http2'), net = require('net'), fs = require('fs'), crypto = require('crypto');
const [what, d, host, port] = process.argv.slice(1);
const sum = b => [b.length, crypto.createHash('sha256').update(b).digest('hex').slice(0, 12)];
if (what == 'serve') {
  const s = http2.createSecureServer({key: fs.readFileSync(d + '/key'), cert: fs.readFileSync(d + '/cert')});
  s.on('stream', (st, h) => {
    if (h[':path'] == '/echo') { st.respond({':status': 200}); st.pipe(st); }
    else { st.respond({':status': 200, 'x-n': h[':path']}); st.end(Buffer.alloc(100000, h[':path'])); }
  });
  s.listen(+port, '::');
  // Messages of two ends at once, as websockets have them.
  net.createServer(c => { c.setNoDelay(); c.on('data', b => c.write(b)); c.on('error', () => 0); }).listen(+port + 1, '::');
} else {
  const c = http2.connect(`https://[${host}]:${port}`, {rejectUnauthorized: false});
  const get = path => new Promise((ok, bad) => {
    const r = c.request({':path': path}), parts = [];
    r.on('data', b => parts.push(b)); r.on('end', () => ok(sum(Buffer.concat(parts)))); r.on('error', bad); r.end();
  });
  const post = n => new Promise((ok, bad) => {
    const r = c.request({':path': '/echo', ':method': 'POST'}), parts = [];
    r.on('data', b => parts.push(b)); r.on('end', () => ok(sum(Buffer.concat(parts)))); r.on('error', bad);
    r.end(Buffer.alloc(n, 'x'));
  });
  const chat = n => new Promise((ok, bad) => {
    const s = net.connect(+port + 1, host); let left = n, got = 0;
    s.setNoDelay(); s.on('error', bad); s.on('data', b => { got += b.length; if (--left) s.write('m'.repeat(100)); else s.end(); });
    s.on('close', () => ok(got)); s.write('m'.repeat(100));
  });
  (async () => {
    console.log(JSON.stringify(await get('/one')));
    console.log(JSON.stringify(await Promise.all([...Array(50).keys()].map(n => get('/' + n)))));
    console.log(JSON.stringify(await Promise.all([1, 1000, 100000, 3000000].map(post))));
    console.log(JSON.stringify(await Promise.all([...Array(20).keys()].map(() => chat(50)))));
    c.close();
  })().catch(e => { console.log(String(e)); process.exit(1); });
}
"""


@contextlib.contextmanager
def node(d):
    certificate(d)
    with daemon(["node", "-e", NODE, "serve", str(d), "-", str(PORT)], PORT):
        yield


def asked_of_node(_, six, d):
    told("node", ["node", "-e", NODE, "ask", str(d), six, str(PORT)], keep=lambda b: [digest(l) for l in b.splitlines()])


def node_inside():
    """node's HTTP/2 with many streams, and small messages both ways."""
    in_turn("inside", node, asked_of_node)


def node_outside():
    in_turn("outside", node, asked_of_node)


@contextlib.contextmanager
def postgres(d):
    bin = Path("/usr/lib/postgresql") / max(os.listdir("/usr/lib/postgresql"), key=int) / "bin"
    data = d / "data"
    data.mkdir()
    shutil.chown(data, "postgres", "postgres")
    as_user = ["setpriv", "--reuid=postgres", "--regid=postgres", "--clear-groups"]
    subprocess.run([*as_user, bin / "initdb", "-D", data, "-A", "trust", "-N", "-U", "postgres"], check=True, capture_output=True, cwd="/")
    with open(data / "pg_hba.conf", "a") as f:
        f.write("host all all 0.0.0.0/0 trust\nhost all all ::/0 trust\n")
    words = [*as_user, bin / "postgres", "-D", data, "-p", str(PORT), "-k", "", "-c", "listen_addresses=*", "-c", "fsync=off"]
    with daemon(words, PORT, cwd="/"):
        # It answers before it takes questions.
        until = time.time() + 20
        while run(["psql", "-h", "127.0.0.1", "-p", str(PORT), "-U", "postgres", "-c", "select 1"])[0] and time.time() < until:
            time.sleep(0.1)
        yield


def asked_of_postgres(four, six, d):
    for at in four, six:
        psql = ["psql", "-qAt", "-h", at, "-p", str(PORT), "-U", "postgres"]
        told("made", [*psql, "-c", "drop table if exists t; create table t as select n, repeat(md5(n::text), 20) s from generate_series(1, 20000) n"])
        told("asked", [*psql, "-c", "select count(*), sum(length(s)) from t"])
        told("all", [*psql, "-c", "select * from t order by n"], keep=digest)
        rows = b"".join(b"%d\t%s\n" % (n, b"x" * 200) for n in range(20001, 40001))
        told("copied in", [*psql, "-c", "copy t from stdin"], input=rows)
        told("counted", [*psql, "-c", "select count(*) from t"])
        told("cancelled", [*psql, "-c", "set statement_timeout = 200; select pg_sleep(20)"])


def postgres_inside():
    """PostgreSQL and psql."""
    in_turn("inside", postgres, asked_of_postgres)


def postgres_outside():
    in_turn("outside", postgres, asked_of_postgres)


def scans_inside():
    """nmap of this host, from outside: what is open, closed, and whether it is up."""
    tcp = [server(IN4, p) for p in (5401, 5403)]
    u = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    u.bind((IN4, 5402))
    step()
    step()
    say("still listens", [s.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN) for s in tcp])
    # And of the other one, from here.
    scan("-sT", "-p", "5404-5406", OUT4)
    scan("-sS", "-p", "5404-5406", OUT4)
    step()


def scans_outside():
    step()
    for words in ("-sT -p 5400-5404", "-sS -p 5400-5404", "-sF -p 5400-5404", "-sA -p 5400-5404", "-sU -p 5402,5410", "-sn"):
        scan(*words.split(), IN4)
    s = server(OUT4, 5405)
    step()
    step()
    s.close()


def scan(*words):
    r = subprocess.run(["nmap", "-n", "--max-retries", "3", "--host-timeout", "20s", *words], capture_output=True, text=True)
    told = [l for l in r.stdout.splitlines() if l and not l.startswith(("Starting", "Nmap done", "Host is up", "MAC"))]
    say(" ".join(words), told)
