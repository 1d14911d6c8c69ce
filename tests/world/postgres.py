# SPDX-License-Identifier: Apache-2.0
"""PostgreSQL servers of the test's own: on a unix socket, and over TCP in a namespace where that is wanted; stopped, killed
and started again."""
import atexit
import contextlib
import os
import pathlib
import pwd
import shutil
import signal
import subprocess
import tempfile
import time

from .program import children, is_alive

FIELD, ROW = "\x1f", "\x1e"
_templates = {}


def binaries():
    """Where Debian keeps the server's programs; None where there is no server."""
    found = sorted(pathlib.Path("/usr/lib/postgresql").glob("*/bin/initdb"))
    return found[-1].parent if found else None


def _folder():
    who = pwd.getpwnam("postgres")
    folder = pathlib.Path(tempfile.mkdtemp(prefix=f"weir-pg-{os.getpid()}-"))  # a socket's path has to be short
    os.chown(folder, who.pw_uid, who.pw_gid)
    folder.chmod(0o755)
    return folder


def _template():
    """A cluster that nobody has used, made once: copying it takes a tenth of the time."""
    key = os.getpid()
    if key not in _templates:
        folder = _templates[key] = _folder()
        atexit.register(shutil.rmtree, folder, ignore_errors=True)
        _as_postgres(binaries() / "initdb", "-D", folder / "data", "-U", "weir", "-A", "trust", "-E", "UTF8", "--no-sync",
                     "--locale=C.UTF-8")
    return _templates[key] / "data"


def _as_postgres(*argv, **options):
    who = pwd.getpwnam("postgres")
    options.setdefault("check", True)
    return subprocess.run([str(a) for a in argv], user=who.pw_uid, group=who.pw_gid, extra_groups=[], cwd="/",
                          capture_output=True, text=True, **options)


class _Asked:
    """What has a conninfo."""

    def psql(self, sql, check=True, timeout=60, user=None):
        conninfo = self.conninfo if user is None else f"{self.conninfo} user={user}"
        return subprocess.run([str(binaries() / "psql"), "-X", "-q", "-A", "-t", "-F", FIELD, "-R", ROW, conninfo,
                               "-v", "ON_ERROR_STOP=1", "-c", sql], capture_output=True, check=check, timeout=timeout)

    def rows(self, sql):
        """Each as a tuple of texts; NULL is ''."""
        out = self.psql(sql).stdout.decode().removesuffix("\n")
        return [tuple(row.split(FIELD)) for row in out.split(ROW)] if out else []

    def value(self, sql):
        """One number, or None while there is no such table."""
        done = self.psql(sql, check=False)
        return int(done.stdout.decode().strip() or 0) if done.returncode == 0 else None


class Database(_Asked):
    """A database of its own on a server that others use as well; its roles go with it."""

    def __init__(self, server, name, roles=()):
        self.server, self.name, self.roles = server, name, roles
        server.psql(f"CREATE DATABASE {name} TEMPLATE template0")

    @property
    def conninfo(self):
        return self.server.conninfo.replace("dbname=postgres", f"dbname={self.name}")

    def end(self):
        self.server.psql(f"DROP DATABASE {self.name} WITH (FORCE)")
        for role in self.roles:
            self.server.psql(f"DROP ROLE IF EXISTS {role}")


class Postgres(_Asked):
    """@netns: a world.netns.NetNs in which it listens on @listen (a text as listen_addresses has it) as well. @hba: lines of
    pg_hba.conf that stand before those of the unix socket. @settings: more of postgresql.conf."""

    def __init__(self, netns=None, listen="", hba=(), settings=None, start=True):
        self.bin = binaries()
        self.folder = _folder()
        self.netns, self.listen = netns, listen
        self.settings = {"shared_buffers": "16MB", "max_connections": "20", "fsync": "off", "max_wal_size": "64MB",
                         **(settings or {})}
        self.process = None
        _as_postgres("cp", "-a", _template(), self.folder / "data")
        rules = [*hba, "local all all trust", "local replication all trust"]
        self.write("data/pg_hba.conf", "\n".join(rules) + "\n")
        if start:
            self.start()

    def write(self, name, text, mode=0o600):
        """A file of the server's in its folder."""
        path = self.folder / name
        path.write_text(text)
        who = pwd.getpwnam("postgres")
        os.chown(path, who.pw_uid, who.pw_gid)
        path.chmod(mode)
        return path

    def run(self, *argv, **options):
        """A program as the server's user."""
        return _as_postgres(*argv, **options)

    @property
    def conninfo(self):
        return f"host={self.folder} user=weir dbname=postgres"

    def start(self, wait=True):
        who = pwd.getpwnam("postgres")
        argv = [str(self.bin / "postgres"), "-D", str(self.folder / "data"), "-k", str(self.folder),
                "-c", f"listen_addresses={self.listen}"]
        for key, value in self.settings.items():
            argv += ["-c", f"{key}={value}"]
        drop = ["setpriv", f"--reuid={who.pw_uid}", f"--regid={who.pw_gid}", "--clear-groups", *argv]
        with open(self.folder / "log", "ab") as log:
            self.process = subprocess.Popen(self.netns.command(*drop) if self.netns else drop, cwd="/", stdout=log, stderr=log,
                                            start_new_session=True)
        end = time.monotonic() + 60
        while wait and self.psql("SELECT 1", check=False).returncode != 0:
            assert time.monotonic() < end and self.process.poll() is None, (self.folder / "log").read_text()[-2000:]
            time.sleep(0.02)

    def signal(self, number):
        """To every process of the server; each has a session of its own."""
        everybody = [self.process.pid, *self.children()]
        for each in everybody:
            with contextlib.suppress(ProcessLookupError):
                os.kill(each, number)
        return everybody

    def children(self):
        return children(self.process.pid)

    def kill(self):
        """As when the power goes: every process of the server at once."""
        everybody = self.signal(signal.SIGKILL)
        self.process.wait()
        while any(is_alive(pid) for pid in everybody):  # they hold its memory, and it starts on nobody else's
            time.sleep(0.005)

    def stop(self):
        if self.process and self.process.poll() is None:
            self.process.send_signal(signal.SIGQUIT)
            self.process.wait(60)

    def end(self):
        if self.process and self.process.poll() is None:
            self.signal(signal.SIGCONT)
        self.stop()
        shutil.rmtree(self.folder)
