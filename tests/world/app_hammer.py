# SPDX-License-Identifier: Apache-2.0
"""Runs as the app: asks for names and connects to addresses, over and over, until its stdin ends and one was reached,
or 10 s later.

argv: the DNS server, then NAME=ADDRESS or ADDRESS each. Prints {"target": [successes, failures]}.
For every target there is a look-up, a new connection, one that is kept, and a datagram.
"""
import json
import os
import select
import socket
import struct
import sys
import time

PORT = 7007


def query(name, ident):
    labels = b"".join(bytes([len(x)]) + x.encode() for x in name.split("."))
    return struct.pack("!HHHHHH", ident, 0x0100, 1, 0, 0, 0) + labels + b"\0\0\1\0\1"


def family(address):
    return socket.AF_INET6 if ":" in address else socket.AF_INET


def look_up(server, name):
    with socket.socket(family(server), socket.SOCK_DGRAM) as s:
        s.settimeout(0.2)
        s.sendto(query(name, os.getpid() & 0xFFFF), (server, 53))
        return s.recv(2048)[3] & 15 == 0


def talk(sock):
    sock.sendall(b"x")
    return sock.recv(10) == b"x"


def connect(address):
    s = socket.socket(family(address), socket.SOCK_STREAM)
    s.settimeout(0.2)
    try:
        s.connect((address, PORT))
        return s
    except OSError:
        s.close()
        raise


def kept(address, connections):
    s = connections.pop(address, None) or connect(address)
    try:
        done = talk(s)
    except OSError:
        s.close()
        raise
    connections[address] = s
    return done


def fresh(address, _):
    with connect(address) as s:
        return talk(s)


def datagram(address, _):
    with socket.socket(family(address), socket.SOCK_DGRAM) as s:
        s.settimeout(0.02)
        s.sendto(b"x", (address, PORT))
        return s.recv(10) == b"x"


def main():
    server, targets = sys.argv[1], [t.rpartition("=") for t in sys.argv[2:]]
    counts = {address: [0, 0] for _, _, address in targets}
    connections = {}
    print("up", flush=True)
    end = None
    while end is None or (time.monotonic() < end and not any(good for good, _ in counts.values())):
        for name, _, address in targets:
            for step in (fresh, kept, datagram):
                try:
                    if name:
                        look_up(server, name)
                    counts[address][not step(address, connections)] += 1
                except OSError:
                    counts[address][1] += 1
        time.sleep(0.0005)
        if end is None and select.select([0], [], [], 0)[0]:
            end = time.monotonic() + 60
    print(json.dumps(counts), flush=True)


main()
