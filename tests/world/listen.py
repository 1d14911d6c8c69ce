# SPDX-License-Identifier: Apache-2.0
"""TCP and UDP services on every address of a namespace, one port each."""
import socket
import struct
import threading

from .dnsd import BACKLOG, IP_PKTINFO, IPV6_PKTINFO, IPV6_RECVPKTINFO, RECEIVE_BYTES, SO_RCVBUFFORCE, _send_from
from .threads import go_first


def echo(conn, _local, _peer):
    while True:
        data = conn.recv(1 << 16)
        if not data:
            break
        conn.sendall(data)


class TcpService:
    """Calls @serve(connection, local address, peer address) in a thread for each caller.

    With @address only that one is served, otherwise every IPv4 and IPv6 address.
    """

    def __init__(self, netns, port, serve=echo, address=None):
        self.connections = []  # (local address, peer) of everyone who came
        self._serve = serve
        self._closed = False
        self._socks = []
        self._threads = []
        self.port = port
        targets = [address] if address else ["0.0.0.0", "::"]
        for target in targets:
            family = socket.AF_INET6 if ":" in target else socket.AF_INET
            sock = netns.socket(family, socket.SOCK_STREAM)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:
                sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            sock.bind((target, self.port))
            self.port = sock.getsockname()[1]
            sock.listen(BACKLOG)
            self._socks.append(sock)
            self._threads.append(_background(self._accept, sock))

    def _accept(self, listener):
        go_first()
        while not self._closed:
            try:
                conn, peer = listener.accept()
            except OSError:
                return
            self.connections.append((conn.getsockname()[0], peer))
            threading.Thread(target=self._run, args=(conn, peer), daemon=True).start()

    def _run(self, conn, peer):
        go_first()
        with conn:
            try:
                self._serve(conn, conn.getsockname()[0], peer)
            except OSError:
                pass  # the caller left

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        self.close()

    def close(self):
        self._closed = True
        _close(self._socks, self._threads)


class UdpService:
    """Answers each datagram with what @reply(data) returns, from the asked address."""

    def __init__(self, netns, port, reply=lambda data: data):
        self.datagrams = []  # (local address, peer, data)
        self._reply = reply
        self._socks = []
        self._threads = []
        for family, target in ((socket.AF_INET, "0.0.0.0"), (socket.AF_INET6, "::")):
            sock = netns.socket(family, socket.SOCK_DGRAM)
            sock.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, RECEIVE_BYTES)
            if family == socket.AF_INET6:
                sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
                sock.setsockopt(socket.IPPROTO_IPV6, IPV6_RECVPKTINFO, 1)
            else:
                sock.setsockopt(socket.IPPROTO_IP, IP_PKTINFO, 1)
            sock.bind((target, port))
            self._socks.append(sock)
            self._threads.append(_background(self._serve, sock))

    def _serve(self, sock):
        go_first()
        while True:
            try:
                data, control, _, peer = sock.recvmsg(65535, 256)
            except OSError:
                return
            if not control:
                return
            local = _local_address(control)
            self.datagrams.append((local, peer, data))
            reply = self._reply(data)
            if reply is not None:
                try:
                    _send_from(sock, reply, local, peer)
                except OSError:
                    pass  # the sender left

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        self.close()

    def close(self):
        _close(self._socks, self._threads)


def _background(function, *args):
    thread = threading.Thread(target=function, args=args, daemon=True)
    thread.start()
    return thread


def _close(socks, threads):
    """The ports are free when this returns: a thread that waits on one holds it."""
    for sock in socks:
        try:
            sock.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass  # a datagram socket is not connected, but its reader wakes up
    for thread in threads:
        thread.join(2)
    for sock in socks:
        sock.close()


def _local_address(control):
    for level, kind, data in control:
        if level == socket.IPPROTO_IP and kind == IP_PKTINFO:
            return socket.inet_ntop(socket.AF_INET, data[8:12])
        if level == socket.IPPROTO_IPV6 and kind == IPV6_PKTINFO:
            return socket.inet_ntop(socket.AF_INET6, data[:16])
    raise OSError(f"no address in {struct.calcsize('P')}-byte control data")
