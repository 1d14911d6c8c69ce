# SPDX-License-Identifier: Apache-2.0
"""A PostgreSQL server of the test's own: on a unix socket alone, killed and started again as wanted."""
import os
import pathlib
import pwd
import shutil
import signal
import subprocess
import tempfile
import time


def binaries():
    """Where Debian keeps the server's programs; None where there is no server."""
    found = sorted(pathlib.Path("/usr/lib/postgresql").glob("*/bin/initdb"))
    return found[-1].parent if found else None


class Postgres:
    def __init__(self):
        self.bin = binaries()
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="weir-pg-"))  # a socket's path has to be short
        self.who = pwd.getpwnam("postgres")
        os.chown(self.folder, self.who.pw_uid, self.who.pw_gid)
        self.folder.chmod(0o755)
        self.process = None
        self._as(self.bin / "initdb", "-D", self.folder / "data", "-U", "weir", "-A", "trust", "-E", "UTF8", "--no-sync",
                 "--locale=C.UTF-8")
        self.start()

    def _as(self, *argv, **options):
        options.setdefault("check", True)
        return subprocess.run([str(a) for a in argv], user=self.who.pw_uid, group=self.who.pw_gid, extra_groups=[],
                              cwd="/", capture_output=True, text=True, **options)

    @property
    def conninfo(self):
        return f"host={self.folder} user=weir dbname=postgres"

    def start(self):
        log = open(self.folder / "log", "ab")
        self.process = subprocess.Popen(
            [str(self.bin / "postgres"), "-D", str(self.folder / "data"), "-k", str(self.folder), "-c", "listen_addresses=",
             "-c", "shared_buffers=16MB", "-c", "max_connections=20"], user=self.who.pw_uid, group=self.who.pw_gid,
            extra_groups=[], cwd="/", stdout=log, stderr=log, start_new_session=True)
        log.close()
        end = time.monotonic() + 30
        while self.psql("SELECT 1", check=False).returncode != 0:
            assert time.monotonic() < end and self.process.poll() is None, (self.folder / "log").read_text()
            time.sleep(0.05)

    def psql(self, sql, check=True, tuples=True):
        return subprocess.run([str(self.bin / "psql"), "-X", "-q", "-A", "-t", "-F", "\x1f", "-R", "\x1e", self.conninfo,
                               "-v", "ON_ERROR_STOP=1", "-c", sql], capture_output=True, check=check, timeout=60)

    def rows(self, sql):
        """Each as a tuple of texts; NULL is ''."""
        out = self.psql(sql).stdout.decode().removesuffix("\n")
        return [tuple(row.split("\x1f")) for row in out.split("\x1e")] if out else []

    def value(self, sql):
        """One number, or None while there is no such table."""
        done = self.psql(sql, check=False)
        return int(done.stdout.decode().strip() or 0) if done.returncode == 0 else None

    def kill(self):
        """As when the power goes: every process of the server at once."""
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()

    def stop(self):
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGQUIT)
            self.process.wait(30)

    def end(self):
        if self.process:
            self.stop()
        shutil.rmtree(self.folder)
