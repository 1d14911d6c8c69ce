# SPDX-License-Identifier: Apache-2.0
"""A process of its own that takes any number of connections and reads what comes: sink.py PORT."""
import selectors
import socket
import sys

listener = socket.create_server(("", int(sys.argv[1])), backlog=4096)
listener.setblocking(False)
poll = selectors.DefaultSelector()
poll.register(listener, selectors.EVENT_READ)
print("up", flush=True)
while True:
    for key, _ in poll.select():
        try:
            if key.fileobj is listener:
                poll.register(listener.accept()[0], selectors.EVENT_READ)
            elif not key.fileobj.recv(65536):
                raise EOFError
        except BlockingIOError:
            pass
        except (EOFError, OSError):
            poll.unregister(key.fileobj)
            key.fileobj.close()
