# SPDX-License-Identifier: Apache-2.0
"""Runs as an app with NET_RAW: sends packets of every odd kind, all of them with the marker.

argv: seed, count, marker, the pod's addresses (v4, v6), then places to send to.
Prints how many the kernel took.
"""
import random
import socket
import struct
import sys

chance = random.Random(int(sys.argv[1]))
count, marker = int(sys.argv[2]), sys.argv[3].encode()
own4, own6 = sys.argv[4:6]
places4 = [p for p in sys.argv[6:] if ":" not in p]
places6 = [p for p in sys.argv[6:] if ":" in p]
PORTS = (53, 53, 80, 443, 853, 7007, 15353, 15354, 18080, 0, 65535)


def port():
    return chance.choice(PORTS) if chance.random() < 0.8 else chance.randrange(65536)


def segment(proto):
    """A transport header that may be whole, and the marker."""
    if proto == socket.IPPROTO_TCP:
        head = struct.pack("!HHIIBBHHH", port(), port(), chance.getrandbits(32), chance.getrandbits(32), 0x50,
                           chance.choice((2, 2, 16, 24, 17, 4, 20, 18, 0, 255)), 1024, 0, 0)
    elif proto == socket.IPPROTO_UDP:
        head = struct.pack("!HHHH", port(), port(), 8 + len(marker), 0)
    elif proto in (1, 58):
        head = struct.pack("!BBHHH", chance.choice((0, 3, 5, 8, 11, 13, 1, 2, 4, 128, 129, 133, 134, 135, 136, 143)),
                           chance.randrange(4), 0, 1, 1)
    else:
        head = chance.randbytes(8)
    return head + marker


def proto():
    return chance.choice((6, 6, 17, 17, 1, 58, 2, 4, 41, 47, 50, 89, 132, 136, chance.randrange(256)))


def packet4():
    number, target = proto(), chance.choice(places4)
    source = chance.choice((own4, own4, own4, "9.9.9.9", "127.0.0.1", "127.0.0.11", "0.0.0.0", target))
    body = segment(number)
    options = b"" if chance.random() < 0.8 else chance.choice((b"\x01\x01\x01\x00", b"\x94\x04\0\0", b"\x83\x07\x04" + socket.inet_aton(target) + b"\0"))
    fragment = 0 if chance.random() < 0.8 else chance.choice((0x2000, 0x2001, 1, 3, 0x4000))
    head = struct.pack("!BBHHHBBH4s4s", 0x45 + len(options) // 4, 0, 20 + len(options) + len(body),
                       chance.getrandbits(16), fragment, chance.choice((64, 1, 255)), number, 0,
                       socket.inet_aton(source), socket.inet_aton(target)) + options
    return socket.AF_INET, head + body, target


def packet6():
    number, target = proto(), chance.choice(places6)
    source = chance.choice((own6, own6, own6, "2620:fe::9", "::1", "fe80::1", target))
    body, first = segment(number), number
    extra = chance.random()
    if extra < 0.1:
        body, first = struct.pack("!BBHI", number, 0, chance.choice((0, 1, 8)), 7) + body, 44
    elif extra < 0.2:
        body, first = bytes([number, 0, 1, 4, 0, 0, 0, 0]) + body, 0
    elif extra < 0.25:
        body, first = bytes([number, 0, 1, 4, 0, 0, 0, 0]) + body, 60
    head = struct.pack("!IHBB", 0x60000000, len(body), first, 64) + socket.inet_pton(socket.AF_INET6, source)
    return socket.AF_INET6, head + socket.inet_pton(socket.AF_INET6, target) + body, target


def main():
    raw = {socket.AF_INET: socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_RAW),
           socket.AF_INET6: socket.socket(socket.AF_INET6, socket.SOCK_RAW, socket.IPPROTO_RAW)}
    raw[socket.AF_INET].setsockopt(socket.SOL_SOCKET, socket.SO_BROADCAST, 1)
    taken = 0
    for _ in range(count):
        family, packet, target = packet4() if chance.random() < 0.6 else packet6()
        try:
            if chance.random() < 0.2:  # a mark of one's own
                raw[family].setsockopt(socket.SOL_SOCKET, 36, chance.choice((0, 1, 0x77656972)))
            raw[family].sendto(packet, (target, 0))
            taken += 1
        except OSError:
            pass
    print(taken)


main()
