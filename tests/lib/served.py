"""Servers at one end of the pair, asked from the other: first Linux's end serves, then the inner one."""

import contextlib
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from ends import IN4, IN6, OUT4, OUT6, pattern, say, step

PORT = 8100
ADDRESSES = {"outside": (OUT4, OUT6), "inside": (IN4, IN6)}


def run(words, seconds=60, **more):
    """A program's status and what it says."""
    try:
        r = subprocess.run(words, capture_output=True, timeout=seconds, **more)
    except subprocess.TimeoutExpired:
        return "does not end", b"", b""
    return r.returncode, r.stdout, r.stderr


def told(what, words, keep=lambda b: b.decode(errors="replace").strip(), **more):
    """Says a program's status and what is kept of its output."""
    status, out, err = run(words, **more)
    say(what, (status, keep(out)))
    if status:
        print(f"{what}: {err.decode(errors='replace')[-300:]}", file=sys.stderr)


def wait_for(address, port):
    until = time.time() + 20
    while True:
        try:
            return socket.create_connection((address, port), 1).close()
        except OSError:
            if time.time() > until:
                raise
            time.sleep(0.02)


@contextlib.contextmanager
def daemon(words, port, **more):
    """A server in the foreground, from when it answers."""
    log = tempfile.TemporaryFile()
    p = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=log, stderr=log, **more)
    try:
        wait_for("127.0.0.1", port)
        yield p
    except OSError:
        log.seek(0)
        print(log.read().decode(errors="replace")[-600:], file=sys.stderr)
        raise
    finally:
        p.send_signal(signal.SIGTERM)
        try:
            p.wait(10)
        except subprocess.TimeoutExpired:
            p.kill()
            p.wait()


def in_turn(side, serve, ask):
    """Served by Linux's end, then by the inner one: `serve(directory)` is entered, the other end calls `ask`."""
    for server in "outside", "inside":
        with tempfile.TemporaryDirectory() as d:
            os.chmod(d, 0o755)
            if side == server:
                with serve(Path(d)):
                    step()
                    step()
            else:
                step()
                os.chdir(d)
                ask(*ADDRESSES[server], Path(d))
                os.chdir("/")
                step()
        step()


def certificate(d):
    words = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN=there"
    subprocess.run([*words.split(), "-keyout", d / "key", "-out", d / "cert"], check=True, capture_output=True)


@contextlib.contextmanager
def nginx(d):
    certificate(d)
    (d / "www").mkdir()
    (d / "www/large").write_bytes(pattern(20_000_000))
    (d / "www/small").write_bytes(b"a small one\n")
    repository = d / "www/code.git"
    subprocess.run(["git", "init", "-q", "--bare", repository], check=True)
    work = d / "work"
    who = ["-c", "user.name=n", "-c", "user.email=e"]
    fixed = {**os.environ, "GIT_AUTHOR_DATE": "2020-01-01T00:00:00Z", "GIT_COMMITTER_DATE": "2020-01-01T00:00:00Z"}
    subprocess.run(["git", "init", "-q", "-b", "main", work], check=True)
    (work / "file").write_bytes(pattern(3_000_000))
    subprocess.run(["git", "add", "."], cwd=work, check=True)
    subprocess.run(["git", *who, "commit", "-qm", "one"], cwd=work, check=True, env=fixed)
    subprocess.run(["git", "push", "-q", repository, "main:main"], cwd=work, check=True)
    subprocess.run(["git", "--git-dir", repository, "update-server-info"], check=True)
    (d / "nginx.conf").write_text(f"""
daemon off; pid {d}/pid; error_log {d}/errors; worker_processes 2; user root;
events {{ worker_connections 256; }}
http {{
  access_log off; sendfile on; client_max_body_size 50m;
  client_body_temp_path {d}/body; proxy_temp_path {d}/proxy; fastcgi_temp_path {d}/fastcgi;
  uwsgi_temp_path {d}/uwsgi; scgi_temp_path {d}/scgi;
  server {{ listen {PORT}; listen [::]:{PORT} ipv6only=on; root {d}/www; }}
  server {{ listen {PORT + 1} ssl http2; listen [::]:{PORT + 1} ssl http2 ipv6only=on;
           ssl_certificate {d}/cert; ssl_certificate_key {d}/key; root {d}/www; }}
}}
""")
    with daemon(["nginx", "-c", d / "nginx.conf"], PORT):
        yield
