"""Settings of devices (net.ipv4.conf): what is told, and what packets meet."""

from ends import *

CONF = "/proc/sys/net/ipv4/conf"


def read(name):
    try:
        return open(f"{CONF}/{name}").read().strip()
    except OSError as e:
        return errno.errorcode[e.errno]


def write(name, value):
    try:
        with open(f"{CONF}/{name}", "w") as f:
            f.write(str(value))
        return read(name)
    except OSError as e:
        return errno.errorcode[e.errno]


def conf_outside():
    pass


def conf_inside():
    other = Namespace()
    words = f"link add v0 type veth peer name v1 netns {other.pid}"
    say("a pair", subprocess.run(["ip", *words.split()]).returncode)
    for words in "address add 172.30.0.1/24 dev v0", "link set v0 up":
        say(words, subprocess.run(["ip", *words.split()]).returncode)
    for words in "address add 172.30.0.2/24 dev v1", "address add 10.99.0.2/32 dev v1", "link set v1 up":
        say(words, other.run("ip", *words.split()).returncode)
    say("devices", sorted(os.listdir(CONF)))
    # (Linux's are as those of the machine's first namespace.)
    write("all/forwarding", 0)
    for name in "all", "default", "v0", "lo":
        say(name, (read(f"{name}/forwarding"), write(f"{name}/rp_filter", 0)))
    say("none", read("nope/forwarding"))
    # What is set for all is set for each, and for those to come.
    say("all", write("all/forwarding", 1))
    say("each", [read(f"{n}/forwarding") for n in ("default", "v0", "eth0", "lo", "../ip_forward")])
    say("one", (write("v0/forwarding", 0), read("all/forwarding"), read("eth0/forwarding")))
    subprocess.run(["ip", "link", "add", "d0", "type", "veth", "peer", "name", "d1"])
    say("a new one", read("d0/forwarding"))
    say("default", write("default/forwarding", 0))
    subprocess.run(["ip", "link", "add", "d2", "type", "veth", "peer", "name", "d3"])
    say("newer", (read("d0/forwarding"), read("d2/forwarding")))
    subprocess.run(["ip", "link", "set", "d0", "name", "renamed"])
    say("renamed", (read("renamed/forwarding"), read("d0/forwarding")))
    subprocess.run(["ip", "link", "del", "renamed"])
    say("gone", read("renamed/forwarding"))
    say("no number", write("v0/rp_filter", "x"))
    say("large", write("v0/rp_filter", 1 << 31))
    # By which device what comes may come.
    r = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    r.bind(("", 5000))
    r.settimeout(0.7)

    def comes(what, source):
        code = f"""
import socket
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.bind(("{source}", 0))
s.sendto(b"x", ("172.30.0.1", 5000))"""
        other.python(code).wait()
        try:
            say(what, r.recvfrom(9)[1][0])
        except TimeoutError:
            say(what, "nothing")

    for value in 0, 1, 2:
        say("rp_filter", write("v0/rp_filter", value))
        comes("by the way there", "172.30.0.2")
        comes("without a way there", "10.99.0.2")
        say("a way", subprocess.run(["ip", "route", "add", "10.99.0.0/24", "dev", "v0"]).returncode)
        comes("by the way there", "10.99.0.2")
        say("another way", subprocess.run(["ip", "route", "replace", "10.99.0.0/24", "dev", "eth0"]).returncode)
        comes("by another way", "10.99.0.2")
        subprocess.run(["ip", "route", "del", "10.99.0.0/24"])
    say("all's is stricter", (write("v0/rp_filter", 0), write("all/rp_filter", 1)))
    comes("without a way there", "10.99.0.2")
    say("all's is off", write("all/rp_filter", 0))
    comes("without a way there", "10.99.0.2")
    # Who may be sent on.
    third = Namespace()
    words = f"link add w0 type veth peer name w1 netns {third.pid}"
    say("a pair", subprocess.run(["ip", *words.split()]).returncode)
    for words in "address add 172.31.0.1/24 dev w0", "link set w0 up":
        say(words, subprocess.run(["ip", *words.split()]).returncode)
    for words in "address add 172.31.0.2/24 dev w1", "link set w1 up", "route add default via 172.31.0.1":
        say(words, third.run("ip", *words.split()).returncode)
    say("way", other.run(*"ip route add default via 172.30.0.1".split()).returncode)
    for v0, w0 in (0, 0), (1, 0), (0, 1), (1, 1):
        say("forwarding", (write("v0/forwarding", v0), write("w0/forwarding", w0)))
        say("ping", other.run(*"ping -c 1 -W 1 172.31.0.2".split()).returncode)
    third.close()
    other.close()
