"""What people install with, names, and the newer protocols: each served by Linux and asked from inside, and the other
way. The registries are small ones of our own, at the other end of the pair."""

import contextlib
import hashlib
import io
import json
import os
import subprocess
import tarfile
import threading
import zipfile
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer

from ends import *
from served import *

# Long ones, and what they say on the wire is the Sentry's, whatever the platform.
PLATFORM = "notify"
# Debian's own: its packages have modules that another Python does not see.
PYTHON = "/usr/bin/python3"


class Files(ThreadingHTTPServer):
    """A directory by HTTP, IPv4 and IPv6."""

    address_family = socket.AF_INET6
    daemon_threads = True
    request_queue_size = 64

    def __init__(self, directory):
        class Handler(SimpleHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def __init__(self, *args):
                super().__init__(*args, directory=str(directory))

            def log_message(self, *args):
                pass

        super().__init__(("::", PORT), Handler)


@contextlib.contextmanager
def files(d):
    s = Files(d)
    threading.Thread(target=s.serve_forever, daemon=True).start()
    try:
        yield
    finally:
        s.shutdown()
        s.server_close()


def without(*prefixes):
    """The environment, but for these settings."""
    return {k: v for k, v in os.environ.items() if not k.lower().startswith(prefixes)}


def tar_of(path, members):
    with tarfile.open(path, "w:gz") as t:
        for name, data in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            t.addfile(info, io.BytesIO(data))


@contextlib.contextmanager
def debian(d):
    """A repository with one package."""
    tree = d / "tree"
    (tree / "DEBIAN").mkdir(parents=True)
    control = "Package: there\nVersion: 1.2\nArchitecture: all\nMaintainer: n <n@example.org>\nDescription: a small one\n"
    (tree / "DEBIAN/control").write_text(control)
    (tree / "usr/share/there").mkdir(parents=True)
    (tree / "usr/share/there/data").write_bytes(pattern(4_000_000))
    subprocess.run(["dpkg-deb", "--build", "--root-owner-group", tree, d / "there.deb"], check=True, capture_output=True)
    data = (d / "there.deb").read_bytes()
    of = f"Filename: ./there.deb\nSize: {len(data)}\nSHA256: {hashlib.sha256(data).hexdigest()}\n"
    (d / "Packages").write_text(control + of + "\n")
    with files(d):
        yield


def asked_by_apt(four, six, d):
    for name, host in ("apt", four), ("apt6", f"[{six}]"):
        root = d / name
        for p in "state/lists/partial", "cache/archives/partial", "etc/apt.conf.d", "etc/preferences.d", "log":
            (root / p).mkdir(parents=True)
        (root / "status").write_text("")
        (root / "list").write_text(f"deb [trusted=yes] http://{host}:{PORT}/ ./\n")
        options = {
            "Dir::State": root / "state", "Dir::State::status": root / "status", "Dir::Cache": root / "cache", "Dir::Log": root / "log",
            "Dir::Etc": root / "etc", "Dir::Etc::SourceList": root / "list", "Dir::Etc::SourceParts": "-", "APT::Sandbox::User": "root",
            "Acquire::Retries": "0", "Acquire::http::Proxy": "false",
        }
        apt = ["apt-get", "-q", *(w for k, v in options.items() for w in ("-o", f"{k}={v}"))]
        told(f"{name} update", [*apt, "update"], keep=lambda b: b"Get:" in b)
        told(f"{name} download", [*apt, "download", "there"], cwd=root, keep=lambda _: None)
        told(f"{name} unpacked", ["dpkg-deb", "--fsys-tarfile", root / "there_1.2_all.deb"], keep=lambda b: len(b) > 4_000_000)
        told(f"{name} none", [*apt, "download", "nobody"], cwd=root, keep=lambda _: None)


def apt_inside():
    """apt: an index, a package, one that there is not."""
    in_turn("inside", debian, asked_by_apt)


def apt_outside():
    in_turn("outside", debian, asked_by_apt)


@contextlib.contextmanager
def pythons(d):
    """A simple index (PEP 503) with a package and what it requires."""
    for name, requires in ("there", ["behind"]), ("behind", []):
        at = d / "simple" / name
        at.mkdir(parents=True)
        wheel = f"{name}-1.2-py3-none-any.whl"
        info = f"{name}-1.2.dist-info"
        meta = f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.2\n" + "".join(f"Requires-Dist: {r}\n" for r in requires)
        with zipfile.ZipFile(at / wheel, "w") as z:
            z.writestr(f"{name}.py", f"said = '{name}'\n")
            z.writestr(f"{name}_data", pattern(2_000_000))
            z.writestr(f"{info}/METADATA", meta)
            z.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nGenerator: n\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
            z.writestr(f"{info}/RECORD", "")
        (at / "index.html").write_text(f'<a href="{wheel}">{wheel}</a>\n')
    with files(d):
        yield


def asked_by_pip(four, six, d):
    for name, host in ("pip", four), ("pip6", f"[{six}]"):
        index = f"http://{host}:{PORT}/simple/"
        env = {**without("pip_", "http"), "PIP_CONFIG_FILE": os.devnull, "PIP_NO_INPUT": "1", "PIP_ROOT_USER_ACTION": "ignore"}
        pip = [PYTHON, "-m", "pip", "install", "-q", "--no-cache-dir", "--disable-pip-version-check", "--trusted-host", host.strip("[]"), "-i", index]
        told(f"{name} install", [*pip, "--target", d / name, "there"], env=env)
        told(f"{name} imported", [PYTHON, "-c", "import there, behind; print(there.said, behind.said)"], cwd=d / name)
        told(f"{name} none", [*pip, "--target", d / "none", "nobody"], env=env, keep=lambda _: None)


def pip_inside():
    """pip: a package and what it requires."""
    in_turn("inside", pythons, asked_by_pip)


def pip_outside():
    in_turn("outside", pythons, asked_by_pip)


@contextlib.contextmanager
def nodes(d):
    """A registry of npm's, with a package and what it requires."""
    for name, requires in ("there", {"behind": "^1.0.0"}), ("behind", {}):
        package = {"name": name, "version": "1.2.0", "main": "index.js", "dependencies": requires}
        script = f"module.exports = '{name}';\n".encode()
        members = {"package/package.json": json.dumps(package).encode(), "package/index.js": script, "package/data": pattern(1_000_000)}
        tar_of(d / f"{name}.tgz", members)
        digest = hashlib.sha1((d / f"{name}.tgz").read_bytes()).hexdigest()
        dist = {"shasum": digest, "tarball": f"http://localhost:{PORT}/{name}.tgz"}
        about = {"name": name, "dist-tags": {"latest": "1.2.0"}, "versions": {"1.2.0": {**package, "dist": dist}}}
        (d / name).write_text(json.dumps(about))
    with files(d):
        yield


def asked_by_npm(four, _, d):
    env = {**without("npm_", "http"), "npm_config_userconfig": os.devnull, "HOME": str(d)}
    words = ["npm", "--registry", f"http://{four}:{PORT}/", "--replace-registry-host=always", "--cache", d / "cache", "--no-audit", "--no-fund", "--fetch-retries=0", "--loglevel=error"]
    told("install", [*words, "install", "--prefix", d, "there"], env=env, keep=lambda _: None, seconds=90)
    told("used", ["node", "-p", "require('there') + require('behind')"])
    told("none", [*words, "view", "nobody"], env=env, keep=lambda _: None, seconds=90)


def npm_inside():
    """npm: a package and what it requires."""
    in_turn("inside", nodes, asked_by_npm)


def npm_outside():
    in_turn("outside", nodes, asked_by_npm)


@contextlib.contextmanager
def names(d):
    records = "".join(f"host-record=h{n}.example,10.1.0.{n},fd01::{n:x}\n" for n in range(1, 60))
    records += "".join(f"txt-record=long.example,{n:03}{'t' * 200}\n" for n in range(20))
    records += "cname=alias.example,h7.example\naddress=/.nothing.example/\n"
    (d / "conf").write_text(f"port={PORT}\nno-resolv\nno-hosts\nno-daemon\nlocal=/example/\nuser=root\n{records}")
    with daemon(["dnsmasq", "-C", d / "conf"], PORT):
        yield


def asked_of_names(four, six, d):
    for what, at in ("four", four), ("six", six):
        dig = ["dig", "+tries=2", "+time=5", "-p", str(PORT), f"@{at}"]
        for words in "h7.example A", "h7.example AAAA", "alias.example A", "none.example A", "-x 10.1.0.9":
            told(f"{what} {words}", [*dig, "+short", *words.split()])
        told(f"{what} by TCP", [*dig, "+tcp", "+short", "h9.example"])
        told(f"{what} long", [*dig, "+bufsize=512", "+short", "long.example", "TXT"], keep=lambda b: len(b.splitlines()))
        told(f"{what} large", [*dig, "+bufsize=4096", "+ignore", "+short", "long.example", "TXT"], keep=lambda b: len(b.splitlines()))
        (d / "many").write_text("".join(f"h{n}.example A\n" for n in range(1, 60)))
        told(f"{what} many", [*dig, "+short", "-f", "many"], keep=digest)


def dig_inside():
    """dig: datagrams, what is cut and asked again by TCP, large answers that are fragmented."""
    in_turn("inside", names, asked_of_names)


def dig_outside():
    in_turn("outside", names, asked_of_names)


GRPC = """
import concurrent.futures, hashlib, sys, threading, time
import grpc
what, where = sys.argv[1:]

class All(grpc.GenericRpcHandler):
    def service(self, details):
        kind = details.method
        if kind == "/t/one":
            return grpc.unary_unary_rpc_method_handler(lambda m, c: m[::-1])
        if kind == "/t/many":
            return grpc.unary_stream_rpc_method_handler(lambda m, c: (bytes([n % 251]) * 20000 for n in range(int(m))))
        if kind == "/t/both":
            return grpc.stream_stream_rpc_method_handler(lambda i, c: (m + b"!" for m in i))
        if kind == "/t/slow":
            def slow(m, c):
                time.sleep(5)
                return m
            return grpc.unary_unary_rpc_method_handler(slow)

if what == "serve":
    s = grpc.server(concurrent.futures.ThreadPoolExecutor(16))
    s.add_generic_rpc_handlers((All(),))
    s.add_insecure_port(where)
    s.start()
    s.wait_for_termination()
with grpc.insecure_channel(where, options=[("grpc.enable_http_proxy", 0)]) as c:
    one = c.unary_unary("/t/one")
    print("one", one(b"abc"), hashlib.sha256(one(b"xyz" * 1000000)).hexdigest()[:8])
    print("many", hashlib.sha256(b"".join(c.unary_stream("/t/many")(b"200"))).hexdigest()[:8])
    print("both", sum(len(m) for m in c.stream_stream("/t/both")(b"m" * n for n in range(300))))
    calls = [one.future(b"%d" % n) for n in range(200)]
    print("at once", sum(f.result() == (b"%d" % n)[::-1] for n, f in enumerate(calls)))
    try:
        c.unary_unary("/t/slow")(b"m", timeout=0.3)
    except grpc.RpcError as e:
        print("slow", e.code().name)
    try:
        c.unary_unary("/t/none")(b"m")
    except grpc.RpcError as e:
        print("none", e.code().name)
"""


@contextlib.contextmanager
def grpc(d):
    with daemon([PYTHON, "-c", GRPC, "serve", f"[::]:{PORT}"], PORT):
        yield


def asked_by_grpc(four, six, d):
    for what, at in ("four", four), ("six", f"[{six}]"):
        told(what, [PYTHON, "-c", GRPC, "ask", f"{at}:{PORT}"])


def grpc_inside():
    """gRPC: calls, streams both ways, many at once, deadlines."""
    in_turn("inside", grpc, asked_by_grpc)


def grpc_outside():
    in_turn("outside", grpc, asked_by_grpc)


WEBSOCKETS = """
const [what, host, port] = process.argv.slice(1);
const WebSocket = require('/usr/share/nodejs/ws'), crypto = require('crypto');
if (what == 'serve') {
  const s = new WebSocket.Server({port: +port, host: '::'});
  s.on('connection', c => {
    c.on('message', (m, binary) => { if (String(m) == 'all') s.clients.forEach(o => o.send('to all')); else c.send(m, {binary}); });
  });
} else {
  const open = () => new Promise((ok, bad) => { const w = new WebSocket(`ws://${host}:${port}`); w.on('open', () => ok(w)); w.on('error', bad); });
  const next = w => new Promise(ok => w.once('message', m => ok(m)));
  (async () => {
    const w = await open();
    for (const n of [0, 1, 125, 126, 65535, 65536, 3000000]) {
      const m = Buffer.alloc(n, 'x'); w.send(m);
      const got = Buffer.from(await next(w));
      console.log(n, got.equals(m));
    }
    const pong = new Promise(ok => w.once('pong', ok)); w.ping('p'); console.log('pong', String(await pong));
    const all = await Promise.all([...Array(30)].map(open)), told = Promise.all(all.map(next));
    w.send('all'); console.log('told', (await told).map(String).join() == Array(30).fill('to all').join());
    const closed = new Promise(ok => w.once('close', (code, why) => ok(code + String(why)))); w.close(1000, 'over');
    console.log('closed', await closed);
    all.forEach(o => o.terminate());
  })().catch(e => { console.log(String(e)); process.exit(1); });
}
"""


@contextlib.contextmanager
def websockets(d):
    with daemon(["node", "-e", WEBSOCKETS, "serve", "-", str(PORT)], PORT):
        yield


def asked_by_websockets(four, six, d):
    for what, at in ("four", four), ("six", f"[{six}]"):
        told(what, ["node", "-e", WEBSOCKETS, "ask", at, str(PORT)])


def websockets_inside():
    """node's WebSockets: frames of all sizes, pings, one message to many, closes."""
    in_turn("inside", websockets, asked_by_websockets)


def websockets_outside():
    in_turn("outside", websockets, asked_by_websockets)


QUIC = """
import asyncio, os, ssl, sys
sys.path.insert(0, os.environ["AIOQUIC"])
from aioquic.asyncio import connect, serve
from aioquic.quic.configuration import QuicConfiguration
what, where, port, d = sys.argv[1:]

def echo(reader, writer):
    async def go():
        data = await reader.read()
        writer.write(data[::-1])
        writer.write_eof()
    asyncio.ensure_future(go())

async def serves():
    c = QuicConfiguration(is_client=False, alpn_protocols=["t"])
    c.load_cert_chain(d + "/cert", d + "/key")
    await serve(where, int(port), configuration=c, stream_handler=echo)
    t = await asyncio.start_server(lambda r, w: w.close(), "127.0.0.1", int(port))
    await asyncio.Event().wait()

async def asks():
    c = QuicConfiguration(is_client=True, alpn_protocols=["t"], verify_mode=ssl.CERT_NONE)
    async with connect(where, int(port), configuration=c) as q:
        async def one(n):
            reader, writer = await q.create_stream()
            m = bytes([n]) * (n * n * 1000 + 1)
            writer.write(m)
            writer.write_eof()
            return await reader.read() == m[::-1]
        await q.ping()
        print("streams", sum(await asyncio.gather(*(one(n) for n in range(20)))))
        print("large", await one(40))
        q.change_connection_id()
        print("after", await one(3))

asyncio.run(serves() if what == "serve" else asks())
"""


@contextlib.contextmanager
def quic(d):
    certificate(d)
    with daemon([PYTHON, "-c", QUIC, "serve", "::", str(PORT), str(d)], PORT):
        yield


def asked_by_quic(four, six, d):
    for what, at in ("four", four), ("six", six):
        told(what, [PYTHON, "-c", QUIC, "ask", at, str(PORT), str(d)])


def quic_inside():
    """QUIC: many streams at once, a large one, another connection's name."""
    in_turn("inside", quic, asked_by_quic)


def quic_outside():
    in_turn("outside", quic, asked_by_quic)


JAVA = r"""
import com.sun.net.httpserver.HttpServer;
import java.net.*;
import java.net.http.*;
import java.security.*;
import java.security.cert.X509Certificate;
import java.util.*;
import java.util.concurrent.*;
import java.util.stream.*;
import javax.net.ssl.*;

public class Web {
    static String sum(byte[] b) throws Exception {
        return b.length + " " + HexFormat.of().formatHex(MessageDigest.getInstance("SHA-256").digest(b)).substring(0, 12);
    }
    public static void main(String[] a) throws Exception {
        if (a[0].equals("serve")) {
            HttpServer s = HttpServer.create(new InetSocketAddress("::", Integer.parseInt(a[1])), 64);
            s.createContext("/echo", x -> { byte[] b = x.getRequestBody().readAllBytes(); x.sendResponseHeaders(200, b.length); x.getResponseBody().write(b); x.close(); });
            s.setExecutor(Executors.newFixedThreadPool(8));
            s.start();
            return;
        }
        // (The name in the certificate is nobody's.)
        System.setProperty("jdk.internal.httpclient.disableHostnameVerification", "true");
        SSLContext all = SSLContext.getInstance("TLS");
        all.init(null, new TrustManager[] {new X509TrustManager() {
            public void checkClientTrusted(X509Certificate[] c, String s) {}
            public void checkServerTrusted(X509Certificate[] c, String s) {}
            public X509Certificate[] getAcceptedIssuers() { return new X509Certificate[0]; }
        }}, null);
        HttpClient c = HttpClient.newBuilder().version(HttpClient.Version.HTTP_2).sslContext(all).build();
        HttpResponse<byte[]> r = c.send(HttpRequest.newBuilder(URI.create(a[1] + "/large")).build(), HttpResponse.BodyHandlers.ofByteArray());
        System.out.println(r.version() + " " + sum(r.body()));
        List<CompletableFuture<HttpResponse<String>>> many = IntStream.range(0, 100)
            .mapToObj(n -> c.sendAsync(HttpRequest.newBuilder(URI.create(a[1] + "/small?" + n)).build(), HttpResponse.BodyHandlers.ofString()))
            .collect(Collectors.toList());
        int well = 0;
        for (var f : many) if (f.get().statusCode() == 200 && f.get().version() == HttpClient.Version.HTTP_2) well++;
        System.out.println(well);
    }
}
"""


@contextlib.contextmanager
def java_server(d):
    (d / "Web.java").write_text(JAVA)
    with daemon(["java", d / "Web.java", "serve", str(PORT)], PORT):
        yield


def asked_by_java(four, six, d):
    (d / "Web.java").write_text(JAVA)
    for what, url in ("four", f"https://{four}:{PORT + 1}"), ("six", f"https://[{six}]:{PORT + 1}"):
        told(what, ["java", d / "Web.java", "ask", url], seconds=100)


def asked_of_java(four, six, d):
    (d / "body").write_bytes(pattern(3_000_000))
    for at in f"http://{four}:{PORT}", f"http://[{six}]:{PORT}":
        curl = ["curl", "-s", "--max-time", "40"]
        told("a large one", [*curl, "--data-binary", "@body", f"{at}/echo"], keep=digest)
        told("many", [*curl, "-Z", "--parallel-max", "10", "-d", "word", *[f"{at}/echo?{n}" for n in range(100)]], keep=digest)


def java_inside():
    """Java's HTTP/2 client with many requests at once, and its server."""
    in_turn("inside", nginx, asked_by_java)
    in_turn("inside", java_server, asked_of_java)


def java_outside():
    in_turn("outside", nginx, asked_by_java)
    in_turn("outside", java_server, asked_of_java)
