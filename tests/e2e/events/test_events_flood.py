# SPDX-License-Identifier: Apache-2.0
"""A flood of denials hides no other one: it is a row, and its review task is open, while the flood goes on."""
import sqlite3
import time

import pytest

from world.sidecar import wait_for

# Queries for names of @format, @rate a second, until it is killed.
ASK = """
import socket, struct, sys, time
form, rate = sys.argv[1], int(sys.argv[2])
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.connect(("127.0.0.1", 53))
s.setblocking(False)
began, i = time.monotonic(), 0
while True:
    while i < (time.monotonic() - began) * rate:
        name = b"".join(bytes([len(l)]) + l.encode() for l in (form % i).split("."))
        try:
            s.send(struct.pack(">HHHHHH", i & 0xffff, 0x100, 1, 0, 0, 0) + name + b"\\0\\0\\1\\0\\1")
        except OSError:
            pass
        i += 1
    try:
        while True:
            s.recv(2048)
    except OSError:
        time.sleep(0.005)
"""
# Datagrams to the ports of @address in turn, until it is killed.
SCAN = """
import socket, sys
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
i = 0
while True:
    try:
        s.sendto(b"x", (sys.argv[1], 1000 + i % 60000))
    except OSError:
        pass
    i += 1
"""


def read(storing, sql, *args):
    try:
        with sqlite3.connect(f"file:{storing.host.folder}/state/events.db?mode=ro", uri=True) as db:
            return db.execute(sql, args).fetchall()
    except sqlite3.OperationalError:
        return []


def is_reported(storing, sandbox, destination):
    """The row is there, and the task is open."""
    return (read(storing, "SELECT 1 FROM event WHERE sandbox = ? AND ? IN (name, remote_ip)", sandbox, destination) and
            read(storing, "SELECT 1 FROM review WHERE sandbox = ? AND destination = ? AND state = 1", sandbox, destination))


def is_told_soon(storing, sandbox, destination):
    wait_for(lambda: is_reported(storing, sandbox, destination), step=0.05)


def all_is_accounted_for(storing, sandbox):
    def same():
        counters = storing.status(sandbox)["counters"]
        ((rows, packets),) = read(storing, "SELECT count(*), coalesce(sum(packets), 0) FROM event WHERE sandbox = ? AND action = 2", sandbox)
        return packets == counters["queries_denied"] + counters["packets_denied"] and rows
    return wait_for(same, step=0.2)


@pytest.mark.parametrize("form", ["n%d.flood.test", "n%d.test"])
def test_a_flood_of_names_hides_no_other_one(storing, pod, other, form):
    storing.attach("noisy", pod)
    storing.attach("calm", other)
    began = time.monotonic()
    flood = pod.start("/usr/bin/python3", "-c", ASK, form, 900)
    # the ten seconds' worth that a quiet sandbox has is used up
    wait_for(lambda: storing.status("noisy")["counters"]["events_dropped"] > 500)
    pod.probe(["dns", "api.evil.example"])
    is_told_soon(storing, "noisy", "api.evil.example")
    other.probe(["dns", "n1.flood.test"])
    is_told_soon(storing, "calm", "n1.flood.test")
    flood.kill()
    pod.probe(["dns", "after.flood.test"])
    is_told_soon(storing, "noisy", "after.flood.test")
    took = time.monotonic() - began
    rows = all_is_accounted_for(storing, "noisy")
    assert rows < 200 + 21 * (took + 5), (rows, took)


def test_a_scan_of_ports_hides_no_other_address(storing, pod, other):
    storing.attach("noisy", pod)
    storing.attach("calm", other)
    scan = pod.start("/usr/bin/python3", "-c", SCAN, "93.9.9.9")
    wait_for(lambda: storing.status("noisy")["counters"]["packets_lost"] > 5000)
    pod.probe(["tcp", "94.9.9.9", 443])
    is_told_soon(storing, "noisy", "94.9.9.9")
    other.probe(["tcp", "93.9.9.9", 443])
    is_told_soon(storing, "calm", "93.9.9.9")
    scan.kill()
    pod.probe(["tcp", "95.9.9.9", 443])
    is_told_soon(storing, "noisy", "95.9.9.9")
    all_is_accounted_for(storing, "noisy")
