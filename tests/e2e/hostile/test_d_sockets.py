# SPDX-License-Identifier: Apache-2.0
"""D: transports, socket families and namespaces."""
import os
import platform
import socket
import subprocess

import pytest

from world import expect
from world.world import HOST4, HOST6


def test_D1_quic_to_an_allowed_name_is_refused_and_tcp_works(attack, site, user):
    name, quic, tcp = attack.probe(["lookup", site.name], ["udp", site.v4, 443, "\xc3\0\0\0\1"],
                                   ["https", site.v4, 443, site.name], allow=(f"{site.name}:tcp/443",), user=user)
    assert name.result == "ok"
    expect.udp_refused(quic)
    assert tcp.result == "ok"
    assert {p.proto for p in attack.packets} == {"tcp"}


def test_D4_there_is_no_io_uring(attack, attack_program, user):
    done = attack.run(attack_program, "uring", user=user)
    assert done.text.strip() in expect.CALL_REFUSALS, done


ICMP = [("AF_INET", "SOCK_DGRAM", 1), ("AF_INET6", "SOCK_DGRAM", 58), ("AF_INET", "SOCK_RAW", 1),
        ("AF_INET6", "SOCK_RAW", 58)]


def test_D6_there_are_no_icmp_sockets(attack, user):
    for answer in attack.probe(*[["new_socket", *numbers] for numbers in ICMP], user=user):
        expect.call_refused(answer)


def test_D6_ping_reaches_nothing(attack, user):
    done = attack.run("/usr/bin/python3", "-c", PING, user=user)
    assert done.code == 0 and "ok" not in done.text, done
    attack.assert_silent()


PING = """
import socket, struct
for family, kind, protocol, target in ((2, 2, 1, '93.1.1.1'), (10, 2, 58, '2a01:93::1')):
    try:
        s = socket.socket(family, kind, protocol)
        s.sendto(struct.pack('!BBHHH', 8 if family == 2 else 128, 0, 0, 1, 1) + b'secret', (target, 0))
        s.settimeout(0.3)
        s.recv(100)
        print('ok')
    except OSError as e:
        print(e)
"""

RAW = [("D7", "AF_INET", "SOCK_RAW", 255), ("D7", "AF_INET6", "SOCK_RAW", 255), ("D7", "AF_PACKET", "SOCK_RAW", 768),
       ("D7", "AF_PACKET", "SOCK_DGRAM", 768), ("D7", "AF_PACKET", "SOCK_RAW", 0),
       ("D8", 40, "SOCK_STREAM", 0), ("D8", 40, "SOCK_DGRAM", 0), ("D8", 40, "SOCK_SEQPACKET", 0),
       ("D10", 38, "SOCK_SEQPACKET", 0), ("D10", 31, "SOCK_RAW", 1), ("D10", 39, "SOCK_RAW", 0),
       ("D10", 29, "SOCK_RAW", 1), ("D10", 42, "SOCK_DGRAM", 0), ("D10", 44, "SOCK_RAW", 0),
       ("D10", 30, "SOCK_SEQPACKET", 0), ("D10", 21, "SOCK_DGRAM", 0), ("D10", 17, 10, 0),
       ("D10", 43, "SOCK_STREAM", 0),
       ("D10", 4, "SOCK_DGRAM", 0), ("D10", 5, "SOCK_DGRAM", 0), ("D10", 24, "SOCK_STREAM", 0),
       ("D10", 33, "SOCK_DGRAM", 0),
       ("D10", 15, "SOCK_RAW", 2), ("D10", 45, "SOCK_RAW", 0), ("D10", 41, "SOCK_DGRAM", 0)]


def test_sockets_of_other_kinds_cannot_be_made(attack, user):
    for (case, *numbers), answer in zip(RAW, attack.probe(*[["new_socket", *numbers] for _, *numbers in RAW], user=user)):
        assert answer.result in expect.CALL_REFUSALS, (case, numbers, dict(answer))


NETLINK = {0: "route", 6: "xfrm", 12: "netfilter", 15: "uevent", 16: "generic", 4: "sock_diag", 9: "audit", 10: "fib"}


def test_D10_netlink_changes_nothing(attack, user):
    """Reading may work; a message that would change something is refused."""
    for name, answer in zip(NETLINK.values(), attack.probe(*[["netlink_change", protocol] for protocol in NETLINK], user=user)):
        assert answer.result != "ok", (name, dict(answer))


SYSTEM_CALLS = [("D4", "io_uring_setup", (425, 8, 0)), ("D4", "io_uring_enter", (426, 0, 0)),
                ("D4", "io_uring_register", (427, 0, 0)), ("D16", "setns", (308, 0, 0x40000000)),
                ("D14", "unshare user", (272, 0x10000000, 0)), ("D14", "unshare net", (272, 0x40000000, 0)),
                ("D14", "unshare user and net", (272, 0x50000000, 0)),
                ("D10", "bpf", (321, 0, 0, 0)), ("D10", "perf_event_open", (298, 0, 0, 0)),
                ("D10", "add_key", (248, 0, 0, 0)), ("D10", "init_module", (175, 0, 0, 0)),
                ("D10", "kexec_load", (246, 0, 0, 0)), ("D10", "mount", (165, 0, 0, 0))]


@pytest.mark.skipif(platform.machine() != "x86_64", reason="the numbers are those of x86_64")
def test_system_calls_that_make_ways_out_are_refused(attack, attack_program, user):
    said = attack.calls(attack_program, *[("syscall", *numbers) for *_, numbers in SYSTEM_CALLS], user=user)
    for (case, name, _), (word, _) in zip(SYSTEM_CALLS, said):
        allowed = expect.CALL_REFUSALS | {"ENOSPC", "EUSERS"}
        if name in ("setns", "mount", "bpf", "perf_event_open", "add_key", "init_module", "kexec_load"):
            allowed |= {"EBADF", "EFAULT", "EINVAL"}
        assert word in allowed, (case, name, word)


# The same socket() by the 32-bit entry (359 socket, 102 socketcall, 425 io_uring_setup) and by x32 numbers.
OTHER_ABI = [("D8", "int80", (359, 40, 1, 0)), ("D7", "int80", (359, 17, 3, 0)), ("D10", "int80", (359, 38, 5, 0)),
             ("D4", "int80", (425, 8, 0, 0)), ("D8", "x32", (41, 40, 1, 0)), ("D10", "x32", (41, 38, 5, 0)),
             ("D4", "x32", (425, 8, 0, 0)), ("D1", "int80", (359, 2, 2, 0)), ("D14", "int80", (310, 0x10000000, 0, 0))]


@pytest.mark.skipif(platform.machine() != "x86_64", reason="the conventions are those of x86_64")
def test_the_other_calling_conventions_open_nothing(attack, attack_program, has_int80, user):
    """Refused by an errno, or killed: an ABI that the filter doesn't know is not a way around it."""
    said = attack.calls(attack_program, *[(how, *numbers) for _, how, numbers in OTHER_ABI], user=user)
    for (case, how, numbers), (word, status) in zip(OTHER_ABI, said):
        if numbers[1] == 2 and how == "int80" and has_int80:  # an AF_INET socket is fine; it is filtered like any other
            continue
        assert word != "ok" and (status != "0" or word in expect.CALL_REFUSALS | {"ENOSPC"}), (case, how, numbers, word, status)


def test_D12_inherited_descriptors_do_not_arrive(attack, world, user):
    """A socket that was connected before is a way out: connect() it elsewhere."""
    with world.host.socket(socket.AF_INET, socket.SOCK_STREAM) as s:
        s.connect(("93.1.2.3", 7007))
        os.set_inheritable(s.fileno(), True)
        done = attack.run("/bin/ls", "-l", "/proc/self/fd", user=user, pass_fds=(s.fileno(),))
    assert done.code == 0 and "socket:" not in done.text, done


RECONNECT = """
import ctypes, socket, struct, sys
s = socket.socket(fileno=int(sys.argv[1]))
libc = ctypes.CDLL(None, use_errno=True)
print('connected', s.family, libc.connect(s.fileno(), struct.pack('HHQ', 0, 0, 0), 16))
s.connect(('93.6.6.6', 7007))
s.sendall(b'secret')
print('out', s.recv(100))
"""


@pytest.mark.parametrize("number", [0, 1, 2])
def test_D12_a_socket_as_standard_stream_is_no_way_out(attack, world, user, number):
    with world.host.socket(socket.AF_INET, socket.SOCK_STREAM) as s:
        s.connect(("93.1.2.3", 7007))
        streams = {name: subprocess.PIPE for name in ("stdin", "stdout", "stderr")}
        streams[("stdin", "stdout", "stderr")[number]] = s
        done = attack.run("/usr/bin/python3", "-c", RECONNECT, number, user=user, **streams)
    assert b"out" not in done.out and done.code != 0, done
    assert [p for p in attack.packets if p.dst == "93.6.6.6"] == []


def test_D13_programs_gain_no_privileges(attack, user):
    done = attack.run("cat", "/proc/self/status", user=user)
    status = dict(line.split(":\t", 1) for line in done.text.splitlines() if ":\t" in line)
    assert status["NoNewPrivs"] == "1" and status["Seccomp"] == "2"
    for name in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"):
        assert int(status[name], 16) == 0, name


NAMESPACES = ["unshare -r true", "unshare -rn true", "unshare -n true", "bwrap --dev-bind / / true",
              "bwrap --unshare-net --dev-bind / / true"]


def test_D14_namespaces_inside_cannot_be_made(attack, user):
    done = attack.run("sh", "-c", 'for line; do $line && echo "made: $line"; done; echo tried', "sh", *NAMESPACES, user=user)
    assert done.text == "tried\n", done


OPTIONS = [("SO_MARK", 1, 36, 0x1234), ("SO_BINDTODEVICE", 1, 25, "lo"), ("IP_TRANSPARENT", 0, 19, 1),
           ("IPV6_TRANSPARENT", 41, 75, 1), ("SO_PRIORITY 7", 1, 12, 7), ("SO_RCVBUFFORCE", 1, 33, 1 << 30),
           ("IP_OPTIONS, a source route", 0, 4, "\x83\x07\x04\x5d\x01\x01\x01\x00"), ("IP_FREEBIND", 0, 15, 1),
           ("IP_TOS", 0, 1, 0x10), ("IP_TTL", 0, 2, 1)]


def test_D15_no_option_of_a_socket_opens_a_denied_address(attack, user):
    probes = [["with_option", *option, "93.9.9.9", 7007, kind] for _, *option in OPTIONS for kind in ("SOCK_STREAM", "SOCK_DGRAM")]
    for probe, answer in zip(probes, attack.probe(*probes, user=user)):
        assert answer.result != "ok" and answer.ms < expect.FAST_MS, (probe, dict(answer))
    attack.assert_silent()


def test_D15_options_that_routes_depend_on_are_refused(attack, user):
    """SO_MARK, SO_BINDTODEVICE to another link, IP_TRANSPARENT."""
    for answer in attack.probe(*[["set_option", *option] for option in ((1, 36, 1), (1, 25, "up0"), (0, 19, 1))], user=user):
        assert answer.result in ("EPERM", "ENODEV", "EACCES"), dict(answer)


def test_D16_no_namespace_can_be_entered(attack, user):
    paths = ["/proc/1/ns/net", "/proc/self/ns/net", "/proc/1/ns/user", "/proc/1/ns/mnt"]
    for path, answer in zip(paths, attack.probe(*[["setns", path, 0] for path in paths], user=user)):
        assert answer.result in ("EPERM", "EACCES", "EINVAL", "ENOENT", "ENOSYS"), (path, dict(answer))
    answer = attack.run("nsenter", "-t", "1", "-n", "true", user=user)
    assert answer.code != 0, answer


def test_D16_the_network_namespace_is_not_the_hosts(attack, world, user):
    inside = attack.run("readlink", "/proc/self/ns/net", user=user).text
    outside = world.command("readlink", "/proc/self/ns/net").text
    assert inside and inside != outside


LISTEN = """
import socket, sys
s = socket.create_server(('::', 4190), family=socket.AF_INET6, dualstack_ipv6=True)
print('up', flush=True)
s.settimeout(50)
try:
    print('reached by', s.accept()[1], flush=True)
except TimeoutError:
    print('nobody', flush=True)
"""


def test_D19_nobody_gets_in(world, user):
    """Neither from the internet nor from the host, by the host's or the sandbox's addresses."""
    own = world.probe(["own_addresses"], user=user).addresses
    with world.run_start("/usr/bin/python3", "-c", LISTEN, user=user) as inside:
        assert inside.line() == "up"
        for address in (HOST4, HOST6, "127.0.0.1", "::1", *own):
            for where in (world.internet, world.host):
                with where.socket(socket.AF_INET6 if ":" in address else socket.AF_INET,
                                  socket.SOCK_STREAM) as s:
                    s.settimeout(0.3)
                    with pytest.raises(OSError):
                        s.connect((address, 4190))
        assert inside.process.poll() is None


def test_D19_the_sandbox_reaches_its_own_listeners(world, user):
    four, six = world.probe(["loopback", "127.0.0.1"], ["loopback", "::1"], user=user)
    assert four.data == six.data == "inside"


def test_D19_the_sandbox_reaches_a_listener_on_its_own_address(world, user):
    own = world.probe(["own_addresses"], user=user).addresses
    for address in own:
        if not address.startswith("fe80"):
            assert world.probe(["loopback", address], user=user).data == "inside"
