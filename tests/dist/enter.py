#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""enter.py ROOT PROGRAM ARGUMENT...: become the program, with this folder as the root of a mount namespace of its own.

A chroot won't do: the kernel makes no user namespace in one.
"""
import ctypes
import os
import sys

CLONE_NEWNS, MS_BIND, MS_REC, MS_SLAVE, MNT_DETACH = 0x20000, 0x1000, 0x4000, 1 << 19, 2

libc = ctypes.CDLL(None, use_errno=True)


def call(function, *words):
    if getattr(libc, function)(*(word.encode() if isinstance(word, str) else word for word in words)) != 0:
        raise OSError(ctypes.get_errno(), f"{function}{words}")


def main():
    root, *argv = sys.argv[1:]
    call("unshare", CLONE_NEWNS)
    call("mount", "none", "/", None, MS_REC | MS_SLAVE, None)
    call("mount", root, root, None, MS_BIND | MS_REC, None)
    for name in ("proc", "dev", "sys"):
        os.makedirs(f"{root}/{name}", exist_ok=True)
        call("mount", f"/{name}", f"{root}/{name}", None, MS_BIND | MS_REC, None)
    os.chdir(root)
    call("pivot_root", ".", ".")
    call("umount2", ".", MNT_DETACH)
    os.chdir("/")
    os.execv(argv[0], argv)


main()
