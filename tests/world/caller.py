# SPDX-License-Identifier: Apache-2.0
"""A process with a name that asks for what is denied, and keeps its sockets.

    caller = Caller(app.start, "first")     app: a Pod, a Member, …
    caller("dns", "evil.test")              once more: ("udp", address, port), ("tls", address, port, name) …
    caller.pid                              as the host has it
"""
import itertools
import json
import os
import pathlib
import sqlite3
import time

from .sidecar import wait_for
from .threads import LEADERLESS

CODE = r"""
import ctypes, json, socket, ssl, struct, sys
ctypes.CDLL(None).prctl(15, sys.argv[1].encode("utf-8", "surrogateescape"))
kept = []
def question(name):
    labels = b"".join(bytes([len(l)]) + l for l in name.encode().split(b"."))
    return struct.pack(">HHHHHH", 7, 0x100, 1, 0, 0, 0) + labels + b"\0\0\1\0\1"
def server():
    for line in open("/etc/resolv.conf"):
        if line.startswith("nameserver"):
            return line.split()[1], 53
def dns(name):
    s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    kept.append(s)
    s.settimeout(10)
    s.connect(server())
    s.send(question(name))
    s.recv(512)
def dns_tcp(name):
    s = socket.create_connection(server(), 10)
    kept.append(s)
    s.sendall(struct.pack(">H", len(question(name))) + question(name))
    s.recv(512)
def udp(address, port):
    s = socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET, socket.SOCK_DGRAM)
    kept.append(s)
    try:
        s.sendto(b"x", (address, port))
    except OSError:
        pass
def tcp(address, port):
    s = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    kept.append(s)
    s.connect_ex((address, port))
def tls(address, port, name):
    s = socket.create_connection((address, port), 10)
    kept.append(s)
    c = ssl.create_default_context()
    i, o = ssl.MemoryBIO(), ssl.MemoryBIO()
    t = c.wrap_bio(i, o, server_hostname=name)
    try:
        t.do_handshake()
    except ssl.SSLWantReadError:
        pass
    s.sendall(o.read())
    s.recv(100)
def serve():
    for line in sys.stdin:
        what, *arguments = json.loads(line)
        globals()[what](*arguments)
        print("done", flush=True)
"""
_numbers = itertools.count(1)


class Caller:
    def __init__(self, start, name=None, leaderless=False, **options):
        name = f"c{os.getpid() % 10000}-{next(_numbers)}" if name is None else name
        self.name = name if isinstance(name, str) else name.decode("utf-8", "surrogateescape")
        code = LEADERLESS + CODE + ("goes_on(serve)" if leaderless else "serve()")
        self.started = start("/usr/bin/python3", "-c", code, self.name, **options)

    def __call__(self, *what):
        self.started.say(json.dumps(what) + "\n")
        assert self.started.line() == "done", what

    @property
    def pid(self):
        def found():
            for comm in pathlib.Path("/proc").glob("[0-9]*/comm"):
                try:
                    if comm.read_bytes()[:-1] == self.name.encode("utf-8", "surrogateescape"):
                        return int(comm.parent.name)
                except OSError:
                    continue
            return None
        return wait_for(found)

    def close(self):
        self.started.kill()


def rows(folder):
    """(name or address, port) → {(pid, command)} of the store's denials."""
    found = {}
    try:
        with sqlite3.connect(f"file:{folder}/events.db?mode=ro", uri=True) as db:
            for name, address, port, pid, command in db.execute(
                    "SELECT name, remote_ip, remote_port, pid, command FROM event WHERE action = 2"):
                found.setdefault((name or address, port), set()).add((pid, command))
    except sqlite3.OperationalError:
        pass
    return found


def until_known(folder, caller, ask, tries=12):
    """@ask has @caller denied something new and says what: (name or address, port). Where this machine is so slow that it
    was not found out, again. Return: the command."""
    pid = caller.pid
    for number in range(tries):
        where = ask(number)
        got = wait_for(lambda: rows(folder).get(where), step=0.05)
        assert {p for p, _ in got} <= {pid, None}, (where, got, pid)
        commands = {c for p, c in got if p == pid}
        if commands:
            assert len(commands) == 1
            return commands.pop()
        time.sleep(0.2)
    raise AssertionError(f"{where}: never known")
