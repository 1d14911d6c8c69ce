# SPDX-License-Identifier: Apache-2.0
"""Programs that lie about where their packets come from, or have them go round; to be run where something guards them."""

# Sends from addresses that are not this machine's, to listeners here and to what is allowed, and lets the listeners answer.
LIES = r"""
import json, socket, sys
far, ends, allowed, named = (json.loads(a) for a in sys.argv[1:5])
transparent = sys.argv[5] == "1"
for family, own in enumerate(ends):
    with socket.socket(socket.AF_INET6 if family else socket.AF_INET, socket.SOCK_DGRAM) as s:
        s.connect((far[family], 9))
        own.append(s.getsockname()[0])
V4, V6, UDP, TCP = socket.AF_INET, socket.AF_INET6, socket.SOCK_DGRAM, socket.SOCK_STREAM
OPTIONS = {V4: [(0, 15), (0, 19)], V6: [(41, 78), (41, 75)]}
heard = []
def liar(family, kind, protocol, option, port):
    s = socket.socket(family, kind, protocol)
    s.setblocking(False)
    s.setsockopt(1, 2, 1)
    s.setsockopt(*option, 1)
    s.bind((far[family == V6], port))
    return s
def say(s, to, port, data=b"LIE"):
    try: s.sendto(data, (to, port))
    except OSError: pass
def udp(family, option, end, port):
    victim = socket.socket(family, UDP)
    victim.settimeout(0.1)
    victim.bind((end, 0))
    try: s = liar(family, UDP, 0, option, port)
    except OSError: return
    say(s, end, victim.getsockname()[1])
    for _ in range(2):
        say(victim, far[family == V6], port, b"ANSWER")
        try: heard.append(victim.recvfrom(99)[0].decode())
        except OSError: pass
    for to in (end, allowed[family == V6], named[family == V6]):
        for p in (53, 5353, 7000):
            say(s, to, p)
def tcp(family, option, end, port):
    victim = socket.socket(family, TCP)
    victim.bind((end, 0))
    victim.listen()
    for to, p in ((end, victim.getsockname()[1]), (allowed[family == V6], 7000), (named[family == V6], 53)):
        try: s = liar(family, TCP, 0, option, port)
        except OSError: return
        s.connect_ex((to, p))
        s.close()
def ping(family, option, end, port):
    try: s = liar(family, UDP, 1 if family == V4 else 58, option, 0)
    except OSError: return
    for to in (end, allowed[family == V6], named[family == V6]):
        say(s, to, 0, (b"\x08" if family == V4 else b"\x80") + bytes(7) + b"LIE")
port = 7000
for family in (V4, V6):
    for option in OPTIONS[family][:2 if transparent else 1]:
        for end in ends[family == V6]:
            for attempt in (udp, tcp, ping):
                attempt(family, option, end, 5353 if port == 7000 else 7000)
            port = 5353 if port == 7000 else 7000
print(json.dumps(heard))
"""

# Sends what has options, alone and on a flow that stands. Only what has some goes to port 5353, or says OPTION.
DETOURS = r"""
import json, socket, struct, sys
allowed, other, named = (json.loads(a) for a in sys.argv[1:4])
V4, V6, UDP, TCP = socket.AF_INET, socket.AF_INET6, socket.SOCK_DGRAM, socket.SOCK_STREAM
def segments(*last_first):
    n = len(last_first)
    return (41, 57, struct.pack("!BBBBBBH", 0, 2 * n, 4, n - 1, n - 1, 0, 0) + b"".join(socket.inet_pton(V6, a) for a in last_first))
OPTIONS = {V4: [(0, 4, o) for o in (b"\1\1\1\1", b"\7\7\4\0\0\0\0\0", b"\x44\x08\x05\x00\0\0\0\0", b"\x94\4\0\0",
                                    b"\1\x83\7\4" + socket.inet_aton(allowed[0]), b"\1\x89\7\4" + socket.inet_aton(allowed[0]))],
           V6: [segments(allowed[1], other[1]), segments(other[1], allowed[1]), segments(allowed[1], allowed[1])]}
took = 0
for family in (V4, V6):
    to, name = allowed[family == V6], named[family == V6]
    for option in OPTIONS[family]:
        for kind in (UDP, TCP):
            for where, port in ((to, 5353), (name, 53)):
                s = socket.socket(family, kind)
                s.settimeout(0.05)
                try:
                    s.setsockopt(*option)
                    took += 1
                    s.connect((where, port))
                    s.send(b"OPTION")
                except OSError: pass
                s.close()
            s = socket.socket(family, kind)
            s.settimeout(2)
            try:
                s.connect((to, 7000))
                s.send(b"open")
                assert s.recv(99) == b"open"
                s.settimeout(0.05)
                s.setsockopt(*option)
                s.send(b"OPTION")
            except OSError: pass
            s.close()
print(took)
"""

# An open flow to a port of this host without a socket at either end: deaf to what comes (IP_MINTTL), both give up what they
# have said (TCP_USER_TIMEOUT), and neither says so.
DEAF = r"""
import json, os, select, socket, sys
server = socket.create_server(("127.0.0.1", int(sys.argv[1])))
client = socket.create_connection(server.getsockname())
other, _ = server.accept()
port = client.getsockname()[1]
for s in (client, other):
    s.setsockopt(0, 21, 255)
    s.setsockopt(6, 18, 1)
for s in (client, other):
    s.send(b"x")
for s in (client, other):
    p = select.poll()
    p.register(s, 0)
    assert p.poll(20000), "it lives"
    s.close()
server.close()
print(port)
"""
OVER = r"""
import errno, json, socket, sys
s = socket.socket()
s.setsockopt(1, 2, 1)
s.bind(("127.0.0.1", int(sys.argv[2])))
s.settimeout(1)
try:
    s.connect(("127.0.0.1", int(sys.argv[1])))
    print(json.dumps(s.recv(9).decode()))
except OSError as e:
    print(json.dumps(errno.errorcode.get(e.errno, "timeout")))
"""
