# SPDX-License-Identifier: Apache-2.0
"""A file system that finds each file under any case of its letters, as those of Windows and macOS do, while the kernel
takes each spelling for a name of its own: what containers and virtual machines there mount (virtiofs, 9p, CIFS).

    python3 nocase.py BACKING WHERE [spelled]   mounts itself in this mount namespace, and serves until it is unmounted;
                                                spelled: each spelling has an inode number of its own, where servers give none
"""
import ctypes
import os
import stat
import struct
import sys

LIBC = ctypes.CDLL(None, use_errno=True)
ROOT = 1
ENOENT, ENOSYS = 2, 38
LOOKUP, FORGET, GETATTR, SETATTR, MKNOD, MKDIR, UNLINK, RMDIR, RENAME, OPEN, READ, WRITE, STATFS, RELEASE = 1, 2, 3, 4, 8, 9, 10, 11, 12, 14, 15, 16, 17, 18
INIT, OPENDIR, READDIR, RELEASEDIR, CREATE, BATCH_FORGET, RENAME2 = 26, 27, 28, 29, 35, 42, 45
FLUSH, DESTROY, ACCESS = 25, 38, 34
CLONE_NEWNS = 0x20000


class Server:
    """Inodes are the backing ones, or count what was asked for; a node is found by its path there, which is one whatever the spelling."""

    def __init__(self, backing, fd, spelled):
        self.backing, self.fd, self.paths = backing, fd, {ROOT: ""}
        self.numbers = {} if spelled else None

    def real(self, node, name=None):
        path = os.path.join(self.backing, self.paths[node])
        if name is None:
            return path
        spelled = [e for e in os.listdir(path) if e.lower() == name.decode().lower()]
        return os.path.join(path, spelled[0] if spelled else name.decode())

    def attr(self, st, node):
        return struct.pack("<QQQQQQIIIIIIIIII", st.st_ino if self.numbers is None else node, st.st_size, st.st_blocks, int(st.st_atime), int(st.st_mtime), int(st.st_ctime),
                           0, 0, 0, st.st_mode, st.st_nlink, st.st_uid, st.st_gid, 0, 4096, 0)

    def entry(self, parent, name, path=None):
        path = path or self.real(parent, name)
        st = os.lstat(path)
        node = st.st_ino if self.numbers is None else self.numbers.setdefault((parent, name), len(self.numbers) + ROOT + 1)
        self.paths[node] = os.path.relpath(path, self.backing)
        return struct.pack("<QQQQII", node, 0, 0, 0, 0, 0) + self.attr(st, node)

    def attributes(self, node):
        return struct.pack("<QII", 0, 0, 0) + self.attr(os.lstat(self.real(node)), node)

    def answer(self, op, node, uid, gid, body):
        name = body.split(b"\0")[0]
        if op == INIT:
            return struct.pack("<IIIIHHIIHHI7I", 7, 31, 65536, 0, 12, 12, 65536, 1, 0, 0, 0, *[0] * 7)
        if op == LOOKUP:
            return self.entry(node, name)
        if op == GETATTR:
            return self.attributes(node)
        if op == SETATTR:
            valid, _, _, size = struct.unpack("<IIQQ", body[:24])
            mode, _, uid, gid = struct.unpack("<4I", body[68:84])
            if valid & 8:
                os.truncate(self.real(node), size)
            if valid & 6:
                os.chown(self.real(node), uid if valid & 2 else -1, gid if valid & 4 else -1)
            if valid & 1:
                os.chmod(self.real(node), stat.S_IMODE(mode))
            return self.attributes(node)
        if op in (OPEN, OPENDIR):
            os.close(os.open(self.real(node), os.O_RDONLY))
            return struct.pack("<QII", 0, 1, 0)
        if op == CREATE:
            _, mode, _, _ = struct.unpack("<IIII", body[:16])
            name = body[16:].split(b"\0")[0]
            path = self.real(node, name)
            os.close(os.open(path, os.O_CREAT | os.O_WRONLY, stat.S_IMODE(mode)))
            os.chown(path, uid, gid)
            return self.entry(node, name, path) + struct.pack("<QII", 0, 1, 0)
        if op == MKNOD:
            name = body[16:].split(b"\0")[0]
            path = self.real(node, name)
            os.mknod(path, struct.unpack("<I", body[:4])[0])
            os.chown(path, uid, gid)
            return self.entry(node, name, path)
        if op == MKDIR:
            name = body[8:].split(b"\0")[0]
            path = self.real(node, name)
            os.mkdir(path, stat.S_IMODE(struct.unpack("<I", body[:4])[0]))
            os.chown(path, uid, gid)
            return self.entry(node, name, path)
        if op in (UNLINK, RMDIR):
            (os.unlink if op == UNLINK else os.rmdir)(self.real(node, name))
            return b""
        if op in (RENAME, RENAME2):
            head = 8 if op == RENAME else 16
            old, new = body[head:].split(b"\0")[:2]
            os.rename(self.real(node, old), self.real(struct.unpack("<Q", body[:8])[0], new))
            return b""
        if op == READ:
            _, offset, size = struct.unpack("<QQI", body[:20])
            with open(self.real(node), "rb") as file:
                file.seek(offset)
                return file.read(size)
        if op == WRITE:
            _, offset, size = struct.unpack("<QQI", body[:20])
            with open(self.real(node), "r+b") as file:
                file.seek(offset)
                file.write(body[40:40 + size])
            return struct.pack("<II", size, 0)
        if op == READDIR:
            _, offset, size = struct.unpack("<QQI", body[:20])
            said = b""
            for i, name in enumerate(sorted(os.listdir(self.real(node)))):
                st = os.lstat(os.path.join(self.real(node), name))
                one = struct.pack("<QQII", st.st_ino, i + 1, len(name.encode()), st.st_mode >> 12) + name.encode()
                one += b"\0" * (-len(one) % 8)
                if i >= offset and len(said) + len(one) <= size:
                    said += one
            return said
        if op == STATFS:
            return struct.pack("<QQQQQIIII6I", 1 << 20, 1 << 20, 1 << 20, 1000, 1000, 4096, 255, 4096, 0, *[0] * 6)
        if op in (RELEASE, RELEASEDIR, FLUSH, ACCESS):
            return b""
        raise OSError(ENOSYS, "")

    def serve(self):
        while True:
            try:
                request = os.read(self.fd, 1 << 18)
            except OSError:
                return  # unmounted
            size, op, unique, node, uid, gid, _, _ = struct.unpack("<IIQQIIII", request[:40])
            if op in (FORGET, BATCH_FORGET, DESTROY):
                continue
            error, said = 0, b""
            try:
                said = self.answer(op, node, uid, gid, request[40:size])
            except OSError as e:
                error = e.errno
            except KeyError:
                error = ENOENT
            os.write(self.fd, struct.pack("<IiQ", 16 + len(said), -error, unique) + said)


def mounting(backing, where, *spelled):
    """The shell line that mounts @backing so at @where, for the commands of one mount namespace."""
    return " ".join(map(str, ("/usr/bin/python3", os.path.abspath(__file__), backing, where, *spelled)))


def main(backing, where, *spelled):
    fd = os.open("/dev/fuse", os.O_RDWR)
    apart, mounted = os.pipe(), os.pipe()
    if os.fork() == 0:
        os.setsid()
        for stream in range(3):
            os.dup2(os.open("/dev/null", os.O_RDWR), stream)
        # In a mount namespace without the mount, so that the mount ends with the last command that sees it, and the server with the mount.
        if LIBC.unshare(CLONE_NEWNS) == 0:
            os.write(apart[1], b".")
            os.close(mounted[1])
            os.read(mounted[0], 1)
            Server(backing, fd, spelled).serve()
        os._exit(0)
    os.close(apart[1])
    options = f"fd={fd},rootmode=40000,user_id=0,group_id=0,allow_other,default_permissions"
    if os.read(apart[0], 1) != b"." or LIBC.mount(b"nocase", where.encode(), b"fuse", 0, options.encode()) < 0:
        sys.exit(f"cannot mount: {os.strerror(ctypes.get_errno())}")


if __name__ == "__main__":
    main(*sys.argv[1:])
