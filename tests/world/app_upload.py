# SPDX-License-Identifier: Apache-2.0
"""Runs as the app: COUNT connections to ADDRESS PORT, on each of which it sends without end, a little at a time. What the
other end resets is not opened again. Prints "up" when all are open; argv: ADDRESS PORT COUNT."""
import select
import socket
import sys
import time

address, port, count = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
connections = []
for _ in range(count):
    connections.append(socket.create_connection((address, port), 10))
    time.sleep(0.001)
for s in connections:
    s.setblocking(False)
print("up", flush=True)
while connections:
    for s in list(connections):
        try:
            s.send(b"x" * 1000)
        except BlockingIOError:
            pass
        except OSError:
            connections.remove(s)
            s.close()
    time.sleep(0.02)
print("all cut", flush=True)
select.select([sys.stdin], [], [], 60)
