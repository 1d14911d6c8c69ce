# SPDX-License-Identifier: Apache-2.0
"""A filter of system calls for a program in Python and all that it starts, in its own words: refuse("netfilter") is code."""

CODE = r"""
import ctypes, platform, struct
calls = {"x86_64": (41, 272, 56), "aarch64": (198, 97, 220)}[platform.machine()]
def refuse(what):
    # nr at 0, the low halves of the arguments at 16, 24, 32
    socket, unshare, clone = calls
    load, jump, mask, ret = 0x20, 0x15, 0x54, 0x06
    allow, refused = (ret, 0, 0, 0x7fff0000), (ret, 0, 0, 0x00050000 | (93 if what == "netfilter" else 1))
    if what == "netfilter":  # socket(AF_NETLINK, …, NETLINK_NETFILTER)
        rows = [(load, 0, 0, 0), (jump, 0, 4, socket), (load, 0, 0, 16), (jump, 0, 2, 16), (load, 0, 0, 32), (jump, 1, 0, 12), allow, refused]
    else:  # CLONE_NEWUSER; clone3() hides its flags, and is not there (ENOSYS)
        rows = [(load, 0, 0, 0), (jump, 6, 0, 435), (jump, 1, 0, unshare), (jump, 0, 2, clone), (load, 0, 0, 16), (0x45, 1, 0, 0x10000000),
                allow, refused, (ret, 0, 0, 0x00050000 | 38)]
    program = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *row) for row in rows))
    libc = ctypes.CDLL(None, use_errno=True)
    class Filter(ctypes.Structure):
        _fields_ = [("size", ctypes.c_ushort), ("rows", ctypes.c_void_p)]
    filter = Filter(len(rows), ctypes.addressof(program))
    assert libc.prctl(38, 1, 0, 0, 0) == 0 and libc.prctl(22, 2, ctypes.byref(filter)) == 0, ctypes.get_errno()
"""


def refuse(what):
    """Code that has the kernel refuse @what from then on: netfilter's sockets, or user namespaces."""
    return f"{CODE}\nrefuse({what!r})\n"
