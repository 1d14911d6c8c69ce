# SPDX-License-Identifier: Apache-2.0
"""Runs inside a sandbox and tries things. Needs nothing but Python's own modules.

Reads a JSON list of probes (with the argument "lines": a list a line), each [name, argument, …] with
an optional object of named arguments at its end, and prints one JSON object per probe:
    result   what came of it, in one word: ok, refused, reset, timeout, or an errno name
    ms       how long that took
and whatever the probe adds.
"""
# Without socket and json, which import as much again as Python itself: there are thousands of probes.
import _json
import _socket as socket
import errno
import os
import struct
import sys
import time

TIMEOUT = 10.0
TYPES = {"A": 1, "NS": 2, "CNAME": 5, "SOA": 6, "NULL": 10, "PTR": 12, "MX": 15, "TXT": 16,
         "AAAA": 28, "SRV": 33, "SVCB": 64, "HTTPS": 65, "AXFR": 252, "ANY": 255}
RCODES = {0: "NOERROR", 1: "FORMERR", 2: "SERVFAIL", 3: "NXDOMAIN", 4: "NOTIMP", 5: "REFUSED"}
GAI = {getattr(socket, n): n for n in dir(socket) if n.startswith("EAI_")}


class Socket(socket.socket):
    """What the probes need of socket.socket."""

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        self.close()

    def accept(self):
        fd, address = self._accept()
        return Socket(self.family, self.type, self.proto, fd), address


def addresses_of(name, port, family=0):
    """As bytes a name is taken as it is, and the codec for others is not imported."""
    return socket.getaddrinfo(name.encode() if name.isascii() else name, port, family, socket.SOCK_STREAM)


def create_connection(address, timeout):
    """To the first address that answers; otherwise what the last one said."""
    last = None
    for family, kind, protocol, _, where in addresses_of(*address):
        s = Socket(family, kind, protocol)
        try:
            s.settimeout(timeout)
            s.connect(where)
            return s
        except OSError as e:
            s.close()
            last = e
    raise last


class Json:
    """As json has it."""
    strict, object_hook, object_pairs_hook, parse_constant, memo = True, None, None, None, {}
    parse_float, parse_int = float, int

    def read(self, text):
        return _json.make_scanner(self)(text.strip(), 0)[0]

    @staticmethod
    def write(value):
        return "".join(_json.make_encoder(None, None, _json.encode_basestring_ascii, None, ": ", ", ", False, False, True)(value, 0))


def word(e):
    """One word for an exception."""
    if isinstance(e, TimeoutError) and e.errno is None:
        return "timeout"
    if isinstance(e, socket.gaierror):
        return GAI.get(e.errno, str(e.errno))
    if type(e).__module__ == "ssl":
        return "tls"
    if e.errno == errno.ECONNREFUSED:
        return "refused"
    if e.errno == errno.ECONNRESET:
        return "reset"
    return errno.errorcode.get(e.errno, str(e.errno))


def family_of(address):
    return socket.AF_INET6 if ":" in address else socket.AF_INET


def tcp(address, port, send=None, read=True, scope=0):
    """Connect; then send, and read what comes: data, its end, or a reset."""
    with Socket(family_of(address), socket.SOCK_STREAM) as s:
        s.settimeout(TIMEOUT)
        s.connect((address, port, 0, scope) if ":" in address else (address, port))
        if send is None:
            return {"result": "ok"}
        s.sendall(send.encode("latin-1"))
        if not read:
            return {"result": "ok"}
        data = s.recv(65536)
        return {"result": "ok" if data else "closed", "data": data.decode("latin-1")}


def udp(address, port, data="hello", wait=0.3, broadcast=False, connect=False, scope=0):
    """Send a datagram and wait a little for an answer. sent: no answer came."""
    with Socket(family_of(address), socket.SOCK_DGRAM) as s:
        s.settimeout(wait)
        if broadcast:
            s.setsockopt(socket.SOL_SOCKET, socket.SO_BROADCAST, 1)
        target = (address, port, 0, scope) if ":" in address else (address, port)
        if connect:
            s.connect(target)
            s.send(data.encode("latin-1"))
        else:
            s.sendto(data.encode("latin-1"), target)
        try:
            return {"result": "ok", "data": s.recv(65536).decode("latin-1")}
        except TimeoutError:
            return {"result": "sent"}


def lookup(name, port=0, family=0):
    """What programs do: getaddrinfo()."""
    found = addresses_of(name, port, family)
    return {"result": "ok", "addresses": sorted({f[4][0] for f in found})}


def connect(name, port, send=None):
    """Look up and connect, address after address, as programs do."""
    with create_connection((name, port), TIMEOUT) as s:
        if send is None:
            return {"result": "ok", "address": s.getpeername()[0]}
        s.settimeout(5 * TIMEOUT)  # somebody may have to be asked first
        s.sendall(send.encode("latin-1"))
        data = s.recv(65536).decode("latin-1")
        return {"result": "ok" if data else "closed", "data": data, "address": s.getpeername()[0]}


def https(address, port, sni, host=None, path="/"):
    """A TLS connection to @address that says @sni, and a request that says @host."""
    import socket as whole
    import ssl
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    with whole.create_connection((address, port), TIMEOUT) as raw:
        with context.wrap_socket(raw, server_hostname=sni) as s:
            s.sendall(f"GET {path} HTTP/1.0\r\nHost: {host or sni}\r\n\r\n".encode())
            data = b""
            while True:
                more = s.recv(65536)
                if not more:
                    return {"result": "ok" if data else "closed", "data": data.decode("latin-1")}
                data += more


def encode_name(name):
    """Wire form; a name given as a list has its labels taken as they are."""
    labels = name if isinstance(name, list) else [x for x in name.split(".") if x]
    return b"".join(bytes([len(x)]) + x.encode("latin-1") for x in labels) + b"\0"


def query(name, kind, ident=0x1234, edns=True, options=b""):
    opt = b"\0" + struct.pack("!HHIH", 41, 1232, 0, len(options)) + options if edns else b""
    head = struct.pack("!HHHHHH", ident, 0x0100, 1, 0, 0, 1 if edns else 0)
    return head + encode_name(name) + struct.pack("!HH", TYPES.get(kind, kind), 1) + opt


def read_name(m, at):
    labels, end = [], None
    while True:
        size = m[at]
        if size >= 0xC0:
            end = end or at + 2
            at = (size & 0x3F) << 8 | m[at + 1]
        elif size == 0:
            return ".".join(labels), end or at + 1
        else:
            labels.append(m[at + 1:at + 1 + size].decode("latin-1"))
            at += 1 + size


def read_reply(m):
    ident, flags, questions, answers, authority, extra = struct.unpack_from("!HHHHHH", m)
    names = {v: k for k, v in TYPES.items()}
    reply = {"result": RCODES.get(flags & 15, str(flags & 15)), "id": ident, "aa": bool(flags & 0x400),
             "tc": bool(flags & 0x200), "answers": [], "soa": False, "ede": [], "question": ""}
    at = 12
    for _ in range(questions):
        reply["question"], at = read_name(m, at)
        at += 4
    for i in range(answers + authority + extra):
        _, at = read_name(m, at)
        kind, _, ttl, size = struct.unpack_from("!HHIH", m, at)
        data, at = m[at + 10:at + 10 + size], at + 10 + size
        if kind == 6 and answers <= i < answers + authority:
            reply["soa"] = True
        elif kind == 41:
            reply["ede"] += edns_errors(data)
        elif i < answers:
            text = data.hex()
            if kind in (1, 28):
                text = socket.inet_ntop(socket.AF_INET if kind == 1 else socket.AF_INET6, data)
            reply["answers"].append([names.get(kind, kind), text, ttl])
    reply["addresses"] = [a[1] for a in reply["answers"] if a[0] in ("A", "AAAA")]
    return reply


def edns_errors(data):
    """Extended DNS error codes among the options."""
    codes, at = [], 0
    while at + 4 <= len(data):
        code, size = struct.unpack_from("!HH", data, at)
        if code == 15 and size >= 2:
            codes.append(struct.unpack_from("!H", data, at + 4)[0])
        at += 4 + size
    return codes


def dns(name, kind="A", server="127.0.0.1", transport="udp", port=53, source_port=0, edns=True):
    """One query, by hand, to any server."""
    message = query(name, kind, edns=edns)
    if transport == "tcp":
        replies = dns_tcp(server, port, [message])
        return replies[0] if replies else {"result": "closed"}
    with Socket(family_of(server), socket.SOCK_DGRAM) as s:
        s.settimeout(TIMEOUT)
        s.bind(("::" if ":" in server else "0.0.0.0", source_port))
        s.sendto(message, (server, port))
        reply, peer = s.recvfrom(65535)
        return dict(read_reply(reply), server=peer[0])


def dns_option(name, code, text, ident=0x1234):
    """A query with an EDNS option of the client's own."""
    data = text.encode("latin-1")
    message = query(name, "A", ident, options=struct.pack("!HH", code, len(data)) + data)
    with Socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
        s.settimeout(TIMEOUT)
        s.sendto(message, ("127.0.0.1", 53))
        reply = s.recv(65535)
        return dict(read_reply(reply), echoed=data in reply)


def dns_flood(count, suffix):
    """Many queries for as many names, and what became of them, until nothing more comes."""
    results = {}
    with Socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
        s.connect(("127.0.0.1", 53))
        s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 22)
        s.setblocking(False)
        sent, answered, end = 0, 0, time.monotonic() + TIMEOUT
        while answered < count and time.monotonic() < end:
            for _ in range(min(50, count - sent)):
                s.send(query(f"n{sent}{suffix}", "A", sent & 0xFFFF))
                sent += 1
            time.sleep(0.001)
            try:
                while True:
                    code = RCODES.get(s.recv(2048)[3] & 15)
                    results[code] = results.get(code, 0) + 1
                    answered, end = answered + 1, time.monotonic() + TIMEOUT
            except BlockingIOError:
                pass
    return {"result": "ok", "answered": answered, "rcodes": results}


def dns_connections(count):
    """Many idle TCP connections to the resolver; does UDP still answer?"""
    socks = []
    try:
        for _ in range(count):
            try:
                socks.append(create_connection(("127.0.0.1", 53), TIMEOUT))
            except ConnectionError:
                pass  # one of them is closed for each that is too many
        return dns("api.ok.test")
    finally:
        for s in socks:
            s.close()


def dns_raw(data, server="127.0.0.1", wait=1.0):
    """Hexadecimal bytes as one datagram."""
    with Socket(family_of(server), socket.SOCK_DGRAM) as s:
        s.settimeout(wait)
        s.sendto(bytes.fromhex(data), (server, 53))
        reply = s.recv(65535)
        return {"result": RCODES.get(reply[3] & 15, str(reply[3] & 15)), "size": len(reply)}


def dns_tcp(server, port, messages, pieces=None):
    """Messages on one connection, in one segment unless cut into @pieces bytes."""
    stream = b"".join(struct.pack("!H", len(m)) + m for m in messages)
    with create_connection((server, port), TIMEOUT) as s:
        s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        step = pieces or len(stream)
        for i in range(0, len(stream), step):
            s.sendall(stream[i:i + step])
            if pieces:
                time.sleep(0.002)
        replies, have = [], b""
        while len(replies) < len(messages):
            more = s.recv(65536)
            if not more:
                break
            have += more
            while len(have) >= 2 and len(have) >= 2 + struct.unpack_from("!H", have)[0]:
                size = struct.unpack_from("!H", have)[0]
                replies.append(read_reply(have[2:2 + size]))
                have = have[2 + size:]
        return replies


def dns_pipeline(names, server="127.0.0.1", pieces=None):
    messages = [query(n, "A", ident=i + 1) for i, n in enumerate(names)]
    replies = dns_tcp(server, 53, messages, pieces)
    return {"result": "ok", "replies": {r["id"]: r for r in replies}}


def new_socket(family, kind, protocol=0):
    """Can such a socket be made?"""
    numbers = [getattr(socket, x) if isinstance(x, str) else x for x in (family, kind, protocol)]
    Socket(*numbers).close()
    return {"result": "ok"}


def other_transport(address, port, kind, protocol):
    """Connect with a transport that isn't TCP, by number."""
    number = getattr(socket, kind) if isinstance(kind, str) else kind
    with Socket(family_of(address), number, protocol) as s:
        s.settimeout(TIMEOUT)
        s.connect((address, port))
        if number == socket.SOCK_DGRAM:
            s.send(b"hello")
        return {"result": "ok"}


def pieces(address, port, data, size):
    """Hexadecimal bytes, @size at a time; what comes back, in one word."""
    data = bytes.fromhex(data)
    with Socket(family_of(address), socket.SOCK_STREAM) as s:
        s.settimeout(TIMEOUT)
        s.connect((address, port))
        s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for i in range(0, len(data), size):
            s.sendall(data[i:i + size])
            if size < len(data):
                time.sleep(0.001)
        reply = s.recv(4096)
        if not reply:
            return {"result": "closed"}
        return {"result": "alert" if reply[0] == 21 else "ok", "data": reply.hex()}


def two_requests(address, port, first, second):
    """Two requests on one connection, the second after the first one's answer."""
    data = ""
    with create_connection((address, port), TIMEOUT) as s:
        for host in (first, second):
            s.sendall(f"GET / HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())
            data += s.recv(65536).decode("latin-1")
    return {"result": "ok", "data": data}


def fast_open(address, port):
    """TCP with data in its first packet."""
    with Socket(family_of(address), socket.SOCK_STREAM) as s:
        s.sendto(b"secret", 0x20000000, (address, port))
        return {"result": "ok", "data": s.recv(100).decode()}


def big_datagram(address, port, size):
    with Socket(family_of(address), socket.SOCK_DGRAM) as s:
        s.sendto(b"s" * size, (address, port))
        return {"result": "ok"}


def by_device(address, port):
    """Bound to each link that there is, one after the other."""
    results = {}
    for _, name in socket.if_nameindex():
        for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM):
            with Socket(family_of(address), kind) as s:
                s.settimeout(0.5)
                try:
                    s.setsockopt(socket.SOL_SOCKET, 25, name.encode() + b"\0")
                    s.connect((address, port))
                    s.send(b"secret")
                    results[f"{name} {kind}"] = "ok"
                except OSError as e:
                    results[f"{name} {kind}"] = word(e)
    return {"result": "ok", "by_device": results}


def to_self_by(device, address, port, kind="SOCK_DGRAM"):
    """Bound to a link, to an address of this machine: nothing of it may leave there."""
    with Socket(family_of(address), getattr(socket, kind)) as s:
        s.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, device.encode() + b"\0")
        s.settimeout(0.5)
        s.connect((address, port))
        s.send(b"leaves")
        return {"result": "sent"}


def bind(port, address="0.0.0.0"):
    with Socket(family_of(address), socket.SOCK_STREAM) as s:
        s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        s.bind((address, port))
        s.listen()
        return {"result": "ok"}


def call(number, *args):
    """A system call by number."""
    import ctypes
    libc = ctypes.CDLL(None, use_errno=True)
    words = [ctypes.c_char_p(a.encode()) if isinstance(a, str) else ctypes.c_long(a) for a in args]
    if libc.syscall(ctypes.c_long(number), *words) < 0:
        raise OSError(ctypes.get_errno(), "syscall")
    return {"result": "ok"}


def steal(pid):
    """Another process's descriptors, by pidfd_getfd()."""
    import ctypes
    libc = ctypes.CDLL(None, use_errno=True)
    pidfd = libc.syscall(ctypes.c_long(434), ctypes.c_long(pid), ctypes.c_long(0))
    if pidfd < 0:
        raise OSError(ctypes.get_errno(), "pidfd_open")
    for number in range(64):
        if libc.syscall(ctypes.c_long(438), ctypes.c_long(pidfd), ctypes.c_long(number), ctypes.c_long(0)) >= 0:
            return {"result": "ok", "descriptor": number}
    raise OSError(ctypes.get_errno(), "pidfd_getfd")


def flow(address, port, seconds):
    """A connection that stays open, and a new one after a while."""
    with create_connection((address, port), TIMEOUT) as s:
        time.sleep(seconds)
        s.sendall(b"still")
        data = s.recv(100).decode()
        return {"result": attempt("tcp", [address, port], {})["result"], "old": data}


def join(group):
    """Become a member of a multicast group."""
    with Socket(family_of(group), socket.SOCK_DGRAM) as s:
        if ":" in group:
            member = socket.inet_pton(socket.AF_INET6, group) + struct.pack("I", 0)
            s.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_JOIN_GROUP, member)
        else:
            member = socket.inet_aton(group) + socket.inet_aton("0.0.0.0")
            s.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, member)
        time.sleep(0.2)
        return {"result": "ok"}


def own_addresses():
    """The addresses that this network namespace has, loopback left out."""
    found = set()
    with open("/proc/net/fib_trie", encoding="ascii") as f:
        lines = f.read().splitlines()
    for line, after in zip(lines, lines[1:]):
        if "|--" in line and "host LOCAL" in after:
            found.add(line.split()[-1])
    with open("/proc/net/if_inet6", encoding="ascii") as f:
        for line in f:
            found.add(socket.inet_ntop(socket.AF_INET6, bytes.fromhex(line.split()[0])))
    return {"result": "ok", "addresses": sorted(found - {"127.0.0.1", "::1"})}


def netlink_change(protocol):
    """A request that would change something: refused by socket(), send() or the reply."""
    requests = {0: (16, struct.pack("BxHiII", 0, 0, 1, 0, 0xFFFFFFFF)),  # RTM_NEWLINK: lo down
                12: (10 << 8 | 0, b"\0\0\0\0")}                       # NFT_MSG_NEWTABLE
    kind, body = requests.get(protocol, (0x4242, b"\0" * 16))
    with Socket(socket.AF_NETLINK, socket.SOCK_RAW, protocol) as s:
        s.settimeout(0.5)
        s.bind((0, 0))
        s.send(struct.pack("IHHII", 16 + len(body), kind, 5, 1, 0) + body)
        reply = s.recv(8192)
    length, kind, _, _, _, code = struct.unpack_from("IHHIIi", reply)
    if kind == 2 and code:
        raise OSError(-code, "netlink")
    return {"result": "ok", "type": kind}


def _option(value):
    return value.encode("latin-1") if isinstance(value, str) else value


def set_option(level, number, value):
    with Socket() as s:
        s.setsockopt(level, number, _option(value))
    return {"result": "ok"}


def with_option(level, number, value, address, port, kind):
    """Connect or send after an option was set, whether that worked or not."""
    for family, target in ((socket.AF_INET, address), (socket.AF_INET6, "::ffff:" + address)):
        with Socket(family, getattr(socket, kind)) as s:
            s.settimeout(TIMEOUT)
            try:
                s.setsockopt(level, number, _option(value))
            except OSError:
                pass
            try:
                s.connect((target, port))
                if kind == "SOCK_DGRAM":
                    s.send(b"secret")
                return {"result": "ok", "family": family}
            except OSError as e:
                last = e
    raise last


def unix(path, kind="SOCK_STREAM", send="hello"):
    """Connect to a unix socket; a leading @ is an abstract name."""
    with Socket(socket.AF_UNIX, getattr(socket, kind)) as s:
        s.settimeout(TIMEOUT)
        s.connect("\0" + path[1:] if path.startswith("@") else path)
        s.send(send.encode())
        return {"result": "ok"}


def setns(path, kind=0x40000000):
    import ctypes
    libc = ctypes.CDLL(None, use_errno=True)
    fd = os.open(path, os.O_RDONLY)
    if libc.setns(fd, kind) < 0:
        raise OSError(ctypes.get_errno(), "setns")
    return {"result": "ok"}


def write(path, text="x", mode="w"):
    with open(path, mode) as f:
        f.write(text)
    return {"result": "ok"}


def read(path):
    with open(path) as f:
        return {"result": "ok", "data": f.read(65536)}


def readlink(path):
    return {"result": "ok", "data": os.readlink(path)}


def listdir(path):
    return {"result": "ok", "names": sorted(os.listdir(path))}


def kill(pid, number):
    os.kill(pid, number)
    return {"result": "ok"}


def loopback(address="127.0.0.1"):
    """A server and a client of one sandbox."""
    with Socket(family_of(address), socket.SOCK_STREAM) as server:
        server.bind((address, 0))
        server.listen()
        with create_connection(server.getsockname()[:2], TIMEOUT) as client:
            conn = server.accept()[0]
            conn.sendall(b"inside")
            conn.close()
            return {"result": "ok", "data": client.recv(64).decode()}


_flows = []


def flow_open(address, port):
    """A connection that stays open between lines; flow_say() speaks on it."""
    _flows.append(create_connection((address, port), TIMEOUT))
    return {"result": "ok", "flow": len(_flows) - 1}


def flow_say(number, text):
    try:
        _flows[number].sendall(text.encode())
        return {"result": "got" if _flows[number].recv(999) else "closed"}
    except OSError as e:
        return {"result": type(e).__name__}


def again(name, *args, times=2, **options):
    """The same probe several times; the last answer, and all results."""
    results = []
    for _ in range(times):
        answer = attempt(name, args, options)
        results.append(answer["result"])
    return dict(answer, results=results)


def attempt(name, args, options):
    began = time.monotonic()
    try:
        answer = globals()[name](*args, **options)
    except OSError as e:
        answer = {"result": word(e), "error": str(e)}
    answer["ms"] = round((time.monotonic() - began) * 1000, 2)
    return answer


def answer_all(probes):
    for name, *args in probes:
        options = args.pop() if args and isinstance(args[-1], dict) else {}
        print(Json.write(attempt(name, args, options)), flush=True)


def main():
    if sys.argv[1:] != ["lines"]:
        answer_all(Json().read(sys.stdin.read()))
        return
    for line in sys.stdin:
        answer_all(Json().read(line))


main()
