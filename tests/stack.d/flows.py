"""What is told of connections that rules know (conntrack -E)."""

import re

from ends import *


def listen(*words):
    p = subprocess.Popen(["stdbuf", "-oL", "conntrack", "-E", *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    # Until it is in its groups, of which nobody tells.
    time.sleep(1)
    return p


def told(p):
    time.sleep(0.5)
    p.terminate()
    text = p.communicate()[0]

    def plain(l):
        l = re.sub(r"(\[\w+\]\s+\w+\s+\d+) \d+", r"\1", l)
        l = re.sub(r"sport=(\d{5})|dport=(\d{5})", lambda m: m.group()[:6] + "PORT", l)
        l = re.sub(r" \[USERSPACE\].*", "", l)
        return " ".join(l.split())

    # (Who closes at once may acknowledge with that.)
    for l in map(plain, text.splitlines()):
        if "CLOSE_WAIT" not in l:
            say("   ", l)


def rules():
    subprocess.run(["nft", "-f", "-"], text=True, check=True, input="""table ip t {
        chain o {
            type filter hook output priority 0
            ct state new counter
        }
        chain i {
            type filter hook input priority 0
            ct state established counter
        }
    }""")


def events_inside():
    rules()
    p = listen()
    step()
    c = client(OUT4, 5301)
    c.sendall(b"hello")
    say("answer", receive_all(c))
    c.close()
    step()
    say("stream", "")
    told(p)
    p = listen("-p", "udp")
    u = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    u.settimeout(5)
    for _ in range(2):
        u.sendto(b"x", (OUT4, 5302))
        T("datagram", u.recv, 9)
    subprocess.run("conntrack -D -p udp".split(), capture_output=True)
    say("datagrams", "")
    told(p)
    p = listen("-e", "DESTROY")
    u.sendto(b"x", (OUT4, 5302))
    T("datagram", u.recv, 9)
    subprocess.run("conntrack -D -p udp".split(), capture_output=True)
    say("only what has gone", "")
    told(p)
    subprocess.run("nft flush ruleset".split(), check=True)


def events_outside():
    s = server(OUT4, 5301)
    u = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    u.bind((OUT4, 5302))
    u.settimeout(30)
    step()
    c, _ = s.accept()
    c.sendall(c.recv(9))
    c.close()
    step()
    for _ in range(3):
        b, a = u.recvfrom(9)
        u.sendto(b, a)
