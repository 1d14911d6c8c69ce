# SPDX-License-Identifier: Apache-2.0
"""Network namespaces that nobody has to clean up.

A namespace here has no name and no process: it lives as long as somebody holds its
descriptor, so it goes with the test process, however that one ends. A thread can be
inside one without the rest of the process: setns() on a network namespace is per
thread, and a socket stays in the namespace in which it was made.
"""
import contextlib
import ctypes
import ipaddress
import os
import pathlib
import socket
import subprocess
import threading
import time

from . import enter
from .expect import PATIENCE

CLONE_NEWNET = 0x40000000
_libc = ctypes.CDLL(None, use_errno=True)


def _call(name, *args):
    if getattr(_libc, name)(*args) < 0:
        code = ctypes.get_errno()
        raise OSError(code, f"{name}: {os.strerror(code)}")


class NetNs:
    """A fresh network namespace with loopback up."""

    def __init__(self):
        self.fd = -1
        error = []

        def make():
            try:
                _call("unshare", CLONE_NEWNET)
                self.fd = os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
            except OSError as e:
                error.append(e)

        thread = threading.Thread(target=make)
        thread.start()
        thread.join()
        if error:
            raise error[0]

    @property
    def path(self):
        """A path that other processes (nsenter, ip) can open while we live."""
        return f"/proc/{os.getpid()}/fd/{self.fd}"

    @contextlib.contextmanager
    def entered(self):
        """The calling thread is inside this namespace for the block."""
        home = os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
        try:
            _call("setns", self.fd, CLONE_NEWNET)
            yield self
        finally:
            _call("setns", home, CLONE_NEWNET)
            os.close(home)

    def socket(self, family, kind, protocol=0):
        with self.entered():
            return socket.socket(family, kind, protocol)

    def ip(self, *lines, family=None):
        """Lines for `ip -batch`, all of which are tried and have to succeed. Addresses are local when this returns.
        @family: of the lines that show none."""
        with self.entered():  # a child is where the thread is that starts it
            done = subprocess.run(["ip", *([f"-{family}"] if family else []), "-force", "-batch", "-"], input="\n".join(lines) + "\n", text=True,
                                  check=False, capture_output=True)
        if done.returncode:
            raise OSError(f"ip -batch: {done.stderr}")
        for line in lines:
            if line.startswith("address add ") and line.endswith(" nodad"):
                self._wait_local(line.split()[2].split("/")[0])

    def _wait_local(self, address, seconds=PATIENCE):
        """The kernel puts in an IPv6 address's route a moment after the address: until then answers to it are lost."""
        wanted = ipaddress.ip_address(address).packed.hex() + " 80 "
        end = time.monotonic() + seconds
        with self.entered():
            while wanted not in pathlib.Path("/proc/thread-self/net/ipv6_route").read_text(encoding="ascii"):
                if time.monotonic() > end:
                    raise OSError(f"{address} is not local after {seconds} s")
                time.sleep(0.001)

    def sysctl(self, **settings):
        """net settings, dots in a name written as double underscores."""
        with self.entered():
            for name, value in settings.items():
                path = "/proc/sys/net/" + name.replace("__", "/")
                with open(path, "w", encoding="ascii") as f:
                    f.write(str(value))

    def command(self, *argv):
        """The argv that runs @argv in here."""
        return enter.net(self.path, argv)

    def close(self):
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1
