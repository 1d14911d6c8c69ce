# SPDX-License-Identifier: Apache-2.0
"""What arrived on a link: the proof of a refusal is that nothing did."""
import dataclasses
import ipaddress
import socket
import struct
import time

from .dnsd import SO_RCVBUFFORCE

ETH_P_ALL = 3
PACKET_OUTGOING = 4
SOL_PACKET = 263
PACKET_STATISTICS = 6
IPPROTO_NAMES = {1: "icmp", 2: "igmp", 6: "tcp", 17: "udp", 58: "icmp6"}


@dataclasses.dataclass(frozen=True)
class Packet:
    """One packet, as far as tests look into it."""
    proto: str          # tcp udp icmp icmp6 igmp, a protocol number as text, or "0x88cc"
    src: str = ""
    dst: str = ""
    sport: int = 0      # of ICMP: the type
    dport: int = 0
    flags: int = 0      # of TCP
    payload: bytes = b""

    def is_noise(self):
        """What kernels say by themselves on any link: neighbours, routers, groups."""
        return (self.proto == "0x806" or self.proto == "igmp"
                or (self.proto == "icmp6" and self.sport in (130, 131, 132, 133, 134, 135, 136, 143)))


def parse(frame):
    """A Packet from an Ethernet frame."""
    kind = struct.unpack_from("!H", frame, 12)[0]
    body = frame[14:]
    if kind == 0x0800 and len(body) >= 20:
        header, number = (body[0] & 15) * 4, body[9]
        src, dst = body[12:16], body[16:20]
    elif kind == 0x86DD and len(body) >= 40:
        header, number = 40, body[6]
        src, dst = body[8:24], body[24:40]
        if number == 0 and len(body) >= 42:  # hop-by-hop, as MLD has it
            header, number = header + 8 * (body[41] + 1), body[40]
    else:
        return Packet(hex(kind), payload=bytes(body))
    names = {"proto": IPPROTO_NAMES.get(number, str(number)),
             "src": str(ipaddress.ip_address(src)), "dst": str(ipaddress.ip_address(dst))}
    rest = body[header:]
    if number in (6, 17) and len(rest) >= 8:
        names["sport"], names["dport"] = struct.unpack_from("!HH", rest)
        names["payload"] = bytes(rest[8:])
        if number == 6 and len(rest) >= 20:
            names["flags"] = rest[13]
            names["payload"] = bytes(rest[(rest[12] >> 4) * 4:])
    elif rest:
        names["sport"], names["payload"] = rest[0], bytes(rest)
    return Packet(**names)


class Capture:
    """Everything that came in on @link of @netns since this was made.

    Frames wait in the socket's buffer and are read when somebody asks, so a capture
    costs nothing while it runs. A buffer that ran over is an error, never a zero.
    @earlier: ports of connections that were there before. What the kernel says on those by itself, the
    acknowledgement of the other side's end, may come at any time and is left out.
    """

    def __init__(self, netns, link, earlier=()):
        self._seen, self._earlier = [], earlier
        self._sock = netns.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)  # nothing comes before bind()
        self._sock.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, 16 << 20)
        self._sock.bind((link, ETH_P_ALL))
        self._sock.setblocking(False)

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        self.close()

    def close(self):
        self._sock.close()

    def read(self):
        """Take what waits in the buffer: a test of many minutes would fill it."""
        while True:
            try:
                frame, where = self._sock.recvfrom(65600)
            except BlockingIOError:
                break
            if where[2] != PACKET_OUTGOING:
                self._seen.append(parse(frame))
        lost = struct.unpack("II", self._sock.getsockopt(SOL_PACKET, PACKET_STATISTICS, 8))[1]
        if lost:
            raise AssertionError(f"the capture lost {lost} packets")

    def packets(self, settle=0.03, **want):
        """Packets whose fields equal @want, noise left out, after @settle seconds."""
        time.sleep(settle)
        self.read()
        return [p for p in self._seen if not p.is_noise() and not self._is_of_before(p)
                and all(getattr(p, field) == value for field, value in want.items())]

    def _is_of_before(self, p):
        return p.proto == "tcp" and p.sport in self._earlier and not p.flags & 2 and not p.payload

    def count(self, predicate=None, settle=0.03, **want):
        """How many packets match the fields @want and the function @predicate."""
        return sum(1 for p in self.packets(settle, **want) if predicate is None or predicate(p))
