#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""two_hellos HOST PORT FIRST SECOND [early] [major=N]: a ClientHello for FIRST without a key share, and, when the server asks for
another one, a second for SECOND; the first in a record of the version N.1. Prints what the server says to each: retry, hello, alert, reset, end."""
import socket
import struct
import sys

RETRY = bytes.fromhex("cf21ad74e59a6111be1d8c021e65b891c2a211167abb8c5e079e09e2c8a8339c")
# Any point of the curve will do for a key share: P-384's own base point.
POINT = bytes.fromhex("04"
                      "aa87ca22be8b05378eb1c71ef320ad746e1d3b628ba79b9859f741e082542a385502f25dbf55296c3a545e3872760ab7"
                      "3617de4a96262c6f5d9e98bf9292dc29f8f41dbd289a147ce9da3113b5f0b8c00a60b1ce1d7e819d7a431d7c90ea0e5f")
P384 = 0x18


def extension(kind, body):
    return struct.pack("!HH", kind, len(body)) + body


def vector(body):
    return struct.pack("!H", len(body)) + body


def hello(name, share=b"", cookie=b"", early=False):
    found = [extension(0, vector(b"\0" + vector(name.encode()))), extension(10, vector(struct.pack("!H", P384))),
             extension(13, vector(struct.pack("!5H", 0x0403, 0x0804, 0x0805, 0x0806, 0x0401))), extension(43, b"\2\3\4"),
             extension(51, vector(struct.pack("!H", P384) + vector(share) if share else b""))]
    found += [extension(42, b"")] * early + ([extension(44, cookie)] if cookie else [])
    body = b"\3\3" + b"R" * 32 + b"\x20" + b"S" * 32 + struct.pack("!4H", 6, 0x1301, 0x1302, 0x1303) + b"\1\0"
    body += vector(b"".join(found))
    return b"\x16\3\1" + vector(b"\1" + struct.pack("!I", len(body))[1:] + body)


def read(s, size):
    data = b""
    while len(data) < size:
        more = s.recv(size - len(data))
        if not more:
            raise EOFError
        data += more
    return data


def answer(s):
    """(what the server's next record but a ChangeCipherSpec is, its bytes)"""
    try:
        while (head := read(s, 5))[0] == 20:
            read(s, 1)
        body = read(s, int.from_bytes(head[3:], "big"))
    except EOFError:
        return "end", b""
    except OSError:
        return "reset", b""
    if head[0] == 21:
        return "alert", body
    return ("retry" if RETRY in body else "hello"), body


def cookie_of(retry):
    """What a server wants to hear again."""
    at = 4 + 2 + 32 + 1 + retry[38] + 3 + 2
    while at + 4 <= len(retry):
        kind, size = struct.unpack_from("!HH", retry, at)
        if kind == 44:
            return retry[at + 4:at + 4 + size]
        at += 4 + size
    return b""


def main():
    host, port, first, second, *words = sys.argv[1:]
    early = "early" in words
    major = int(([word[6:] for word in words if word.startswith("major=")] or ["3"])[0])
    begin = b"\x16" + bytes([major]) + hello(first, early=early)[2:]
    with socket.create_connection((host, int(port)), 9) as s:
        s.sendall(begin + b"\x17\3\3\0\x30" + b"E" * 48 if early else begin)
        said, body = answer(s)
        print(said)
        if said == "retry":
            s.sendall(b"\x14\3\3\0\1\1" + hello(second, POINT, cookie_of(body)))
            print(answer(s)[0])


main()
