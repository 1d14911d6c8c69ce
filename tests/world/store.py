# SPDX-License-Identifier: Apache-2.0
"""A store with events in it, written by the writer that control uses (tests/drivers/store_driver.c)."""
import json
import pathlib
import signal
import sqlite3
import subprocess

from .built import DRIVERS


class Store:
    def __init__(self, folder, max_bytes=0, way=()):
        self.folder = pathlib.Path(folder)
        self.process = subprocess.Popen([*way, DRIVERS / "store_driver", folder, str(max_bytes)],
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.process.returncode is None:
            self.end()

    def say(self, order):
        self.process.stdin.write(order + "\n")
        self.process.stdin.flush()

    def __call__(self, order):
        self.say(order)
        return self.process.stdout.readline().strip()

    def put(self, name="", sandbox="sb-1", action="deny", address="-", port=0, rule="-", command="-", packets=1, ago=0,
            allowable=True, like="-"):
        """One event. @name may be bytes, of any value."""
        text = name if isinstance(name, bytes) else name.encode()
        self(f"like {like}")
        self(f"put {sandbox} {action} {address} {port} {rule} {command} {packets} {ago} {int(allowable)} "
             f"{text.hex() or '-'}")

    def drain(self):
        self("drain")

    def state(self):
        return json.loads(self("state"))

    def rows(self, sql, *args):
        db = sqlite3.connect(f"file:{self.folder}/events.db", uri=True)
        try:
            return db.execute(sql, args).fetchall()
        finally:
            db.close()

    def write(self, sql):
        """As somebody else who has the file open."""
        db = sqlite3.connect(f"file:{self.folder}/events.db", uri=True, timeout=10)
        try:
            with db:
                db.execute(sql)
        finally:
            db.close()

    def kill(self):
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()
        self.process.stdin.close()
        self.process.stdout.close()

    def end(self):
        self.process.stdin.close()
        self.process.stdout.close()
        assert self.process.wait(60) == 0
