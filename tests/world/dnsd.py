# SPDX-License-Identifier: Apache-2.0
"""A DNS server that says whatever a test tells it to, on every address of the world.

    dns.add("api.ok.test", "93.10.0.1", "2a01:93::1", ttl=60)
    dns.add("www.ok.test", cname="api.ok.test")
    dns.on("odd.ok.test", lambda q: q.answer("93.10.0.2", rcode="SERVFAIL"))
    dns.on("*.pkg.test", lambda q: q.answer("93.10.0.3"))
    dns.count("evil.test") == 0

A function given to on() gets a Query and returns bytes to send, a dns.message, a list of
those, or None to stay silent. It runs in a thread of its own: it may sleep.
"""
import concurrent.futures
import dataclasses
import ipaddress
import selectors
import socket
import struct
import threading
import time

import dns.flags
import dns.message
import dns.rcode
import dns.rdatatype
import dns.rrset

from .threads import go_first

IP_PKTINFO = 8
IPV6_RECVPKTINFO = 49
IPV6_PKTINFO = 50
SO_RCVBUFFORCE = 33
# What a busy machine has not read yet must not be lost: who asked would ask again, after a second or more.
BACKLOG, RECEIVE_BYTES = 4096, 4 << 20


@dataclasses.dataclass
class Query:
    """One query as it arrived, and the means to answer it."""
    name: str           # lower case, no trailing dot
    type: str
    server: str         # the address that was asked
    client: str
    port: int           # of the client
    tcp: bool
    raw: bytes
    message: dns.message.Message
    when: float
    send: object        # send(bytes, source=None): source spoofs another server (UDP)

    def answer(self, *addresses, cname=None, ttl=300, rcode="NOERROR", owner=None, records=()):
        """A reply with these addresses (of the asked family), CNAME and extra records.

        @records: (owner, ttl, type, text) as a zone file has them.
        """
        reply = dns.message.make_response(self.message)
        reply.flags |= dns.flags.RA
        reply.set_rcode(dns.rcode.from_text(rcode))
        name = owner or str(self.message.question[0].name)
        if cname:
            reply.answer.append(dns.rrset.from_text(name, ttl, "IN", "CNAME", _dot(cname)))
            name = _dot(cname)
        for address in addresses:
            kind = "A" if ipaddress.ip_address(address).version == 4 else "AAAA"
            if kind == self.type:
                reply.answer.append(dns.rrset.from_text(name, ttl, "IN", kind, address))
        for record_owner, record_ttl, kind, text in records:
            reply.answer.append(dns.rrset.from_text(_dot(record_owner), record_ttl, "IN", kind, text))
        return reply


def _dot(name):
    return name if name.endswith(".") else name + "."


@dataclasses.dataclass
class _Record:
    addresses: tuple
    cname: str
    ttl: int
    records: tuple


class DnsServer:
    """Listens on port 53, UDP and TCP, both families, of the namespace @netns."""

    def __init__(self, netns):
        self._netns = netns
        self._names = {}
        self._log = []
        self._lock = threading.Lock()
        self._pool = concurrent.futures.ThreadPoolExecutor(32, "dns", go_first)
        self._selector = selectors.DefaultSelector()
        self._wake, self._woken = socket.socketpair()
        self._selector.register(self._woken, selectors.EVENT_READ, None)
        for family, any_address in ((socket.AF_INET, "0.0.0.0"), (socket.AF_INET6, "::")):
            self._listen(family, any_address)
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    # what tests use

    def add(self, name, *addresses, cname=None, ttl=300, records=()):
        """Answer for @name; "*.x" is everything below x."""
        self._names[name.lower().rstrip(".")] = _Record(addresses, cname, ttl, tuple(records))

    def on(self, name, function):
        """Let @function answer for @name."""
        self._names[name.lower().rstrip(".")] = function

    def queries(self, name=None, type=None):
        """What was asked so far: for @name, or for anything below it with "*.name"."""
        with self._lock:
            log = list(self._log)
        if name is not None:
            name = name.lower().rstrip(".")
            log = [q for q in log if q.name == name
                   or (name.startswith("*.") and q.name.endswith(name[1:]))]
        return [q for q in log if type is None or q.type == type]

    def count(self, name=None, type=None, settle=0.02):
        time.sleep(settle)
        return len(self.queries(name, type))

    def close(self):
        self._wake.close()
        self._thread.join(2)
        for key in list(self._selector.get_map().values()):
            key.fileobj.close()
        self._selector.close()
        self._pool.shutdown(wait=False, cancel_futures=True)

    # what serves

    def _listen(self, family, any_address):
        for kind in (socket.SOCK_DGRAM, socket.SOCK_STREAM):
            sock = self._netns.socket(family, kind)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:
                sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            if kind == socket.SOCK_DGRAM:
                sock.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, RECEIVE_BYTES)
                if family == socket.AF_INET:
                    sock.setsockopt(socket.IPPROTO_IP, IP_PKTINFO, 1)
                else:
                    sock.setsockopt(socket.IPPROTO_IPV6, IPV6_RECVPKTINFO, 1)
            sock.bind((any_address, 53))
            if kind == socket.SOCK_STREAM:
                sock.listen(BACKLOG)
            serve = self._read_udp if kind == socket.SOCK_DGRAM else self._accept
            self._selector.register(sock, selectors.EVENT_READ, serve)

    def _serve(self):
        go_first()
        while True:
            for key, _ in self._selector.select():
                if key.data is None:
                    return
                try:
                    key.data(key.fileobj)
                except OSError:
                    pass  # the asker left; the next one is served

    def _read_udp(self, sock):
        raw, control, _, peer = sock.recvmsg(4096, 256)
        local = peer[0]
        for level, kind, data in control:
            if level == socket.IPPROTO_IP and kind == IP_PKTINFO:
                local = socket.inet_ntop(socket.AF_INET, data[8:12])
            elif level == socket.IPPROTO_IPV6 and kind == IPV6_PKTINFO:
                local = socket.inet_ntop(socket.AF_INET6, data[:16])

        def send(reply, source=None):
            _send_from(sock, reply, source or local, peer)

        self._handle(raw, local, peer, False, send)

    def _accept(self, listener):
        conn, peer = listener.accept()
        self._pool.submit(self._serve_tcp, conn, peer)

    def _serve_tcp(self, conn, peer):
        lock = threading.Lock()

        def send(reply, source=None):
            with lock:
                conn.sendall(struct.pack("!H", len(reply)) + reply)

        with conn:
            conn.settimeout(10)
            stream = conn.makefile("rb")
            try:
                while True:
                    head = stream.read(2)
                    if len(head) < 2:
                        return
                    raw = stream.read(struct.unpack("!H", head)[0])
                    self._handle(raw, conn.getsockname()[0], peer, True, send, wait=True)
            except OSError:
                return

    def _handle(self, raw, server, peer, tcp, send, wait=False):
        try:
            message = dns.message.from_wire(raw, ignore_trailing=True)
            question = message.question[0]
        except Exception:  # whatever is wrong with it, the log shows that it came
            with self._lock:
                self._log.append(Query("?", "?", server, peer[0], peer[1], tcp, raw, None,
                                       time.monotonic(), send))
            return
        query = Query(str(question.name).lower().rstrip("."), dns.rdatatype.to_text(question.rdtype),
                      server, peer[0], peer[1], tcp, raw, message, time.monotonic(), send)
        with self._lock:
            self._log.append(query)
        entry = self._find(query.name)
        if callable(entry):
            job = self._pool.submit(self._answer, query, entry)
            if wait:
                job.result()
        else:
            self._answer(query, entry)

    def _find(self, name):
        if name in self._names:
            return self._names[name]
        labels = name.split(".")
        for i in range(1, len(labels)):
            entry = self._names.get("*." + ".".join(labels[i:]))
            if entry is not None:
                return entry
        return None

    def _answer(self, query, entry):
        if callable(entry):
            replies = entry(query)
        elif entry is None:
            replies = query.answer(rcode="NXDOMAIN")
        else:
            replies = self._from_record(query, entry)
        if replies is None:
            return
        for reply in replies if isinstance(replies, (list, tuple)) else [replies]:
            query.send(reply if isinstance(reply, bytes) else reply.to_wire(max_size=65535))

    def _from_record(self, query, record):
        addresses, records = record.addresses, list(record.records)
        if record.cname:
            target = self._find(record.cname.lower().rstrip("."))
            addresses = target.addresses if isinstance(target, _Record) else ()
        wanted = [r for r in records if r[2] == query.type]
        return query.answer(*addresses, cname=record.cname, ttl=record.ttl, records=wanted)


def _send_from(sock, payload, source, peer):
    if sock.family == socket.AF_INET:
        info = struct.pack("I4s4s", 0, socket.inet_aton(source), b"\0" * 4)
        control = [(socket.IPPROTO_IP, IP_PKTINFO, info)]
    else:
        info = socket.inet_pton(socket.AF_INET6, source) + struct.pack("I", 0)
        control = [(socket.IPPROTO_IPV6, IPV6_PKTINFO, info)]
    sock.sendmsg([payload], control, 0, peer)
