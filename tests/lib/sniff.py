"""Writes down whom packets are for that come by a device, for tests/policy.

    python3 sniff.py DEVICE FILE

A line each: protocol, destination, port (0 where there is none); "ready" on standard output once it looks.
"""

import socket
import struct
import sys


def told(frame):
    kind = struct.unpack(">H", frame[12:14])[0]
    body = frame[14:]
    if kind == 0x806:
        return f"arp {socket.inet_ntoa(body[24:28])} 0"
    if kind == 0x800:
        header = (body[0] & 15) * 4
        protocol, to = body[9], socket.inet_ntoa(body[16:20])
        rest = body[header:]
        if struct.unpack(">H", body[6:8])[0] & 0x1FFF:
            return f"fragment {to} 0"
    elif kind == 0x86DD:
        protocol, to, rest = body[6], socket.inet_ntop(socket.AF_INET6, body[24:40]), body[40:]
    else:
        return f"type-{kind:x} - 0"
    name = {6: "tcp", 17: "udp", 1: "icmp", 58: "icmp6", 2: "igmp", 0: "options"}.get(protocol, f"protocol-{protocol}")
    if protocol == 58 and rest[0] in (133, 134, 135, 136, 143):
        name = "neighbours"
    port = struct.unpack(">H", rest[2:4])[0] if protocol in (6, 17) else 0
    return f"{name} {to} {port}"


def main():
    device, path = sys.argv[1:]
    s = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))
    s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 8 << 20)
    s.bind((device, 0))
    out = open(path, "a")
    print("ready", flush=True)
    while True:
        frame, where = s.recvfrom(70000)
        if where[2] == socket.PACKET_OUTGOING:
            continue
        out.write(told(frame) + "\n")
        out.flush()


main()
