# SPDX-License-Identifier: Apache-2.0
"""The HTTP API alone, over a policy in memory (api_driver.c), started and told what happens."""
import json
import os
import pathlib
import re
import socket
import subprocess
import time

from .built import DRIVERS
from .replay import TOKEN_HEADER, request

TOKEN = "T0ken-for-tests"


class Api:
    def __init__(self, *options, token=TOKEN):
        self.token = token
        args = [*options, *([f"token={token}"] if token else [])]
        self.process = subprocess.Popen([DRIVERS / "api_driver", *args], stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.port = int(self.process.stdout.readline().split()[1])
        self.url = f"http://127.0.0.1:{self.port}"

    def __enter__(self):
        return self

    def __exit__(self, *_):
        """Also the test that it ends well: no leak, no fault that a sanitizer saw."""
        _, complaints = self.process.communicate(timeout=60)
        assert (self.process.returncode, complaints) == (0, "")

    def tell(self, *words):
        self.process.stdin.write(" ".join(map(str, words)) + "\n")
        self.process.stdin.flush()
        return self.process.stdout.readline().rstrip("\n")

    def event(self, name, action="deny"):
        self.tell("event", action, (name if isinstance(name, bytes) else name.encode()).hex())

    def log(self):
        return json.loads(self.tell("log"))

    def request(self, method, path, body=None, headers=None, token=None, timeout=60):
        """(status, headers, text); with the token unless headers are given."""
        if headers is None:
            token = self.token if token is None else token
            headers = {TOKEN_HEADER: token} if token else {}
        return request(self.url, method, path, body, headers, timeout)

    def status(self, method, path, body=None, **options):
        return self.request(method, path, body, **options)[0]

    def json(self, path, **options):
        status, _, text = self.request("GET", path, **options)
        assert status == 200, text
        return json.loads(text)

    def connect(self, host="127.0.0.1", source=None):
        return socket.create_connection((host, self.port), timeout=60, source_address=source and (source, 0))

    def raw(self, data, close_writing=True):
        """What comes back for these bytes, up to the end of the connection."""
        with self.connect() as s:
            try:
                s.sendall(data)
                if close_writing:
                    s.shutdown(socket.SHUT_WR)
            except OSError:
                pass
            return read_all(s)

    def metric(self, name, labels=""):
        text = self.request("GET", "/metrics")[2]
        found = re.search(rf"^weir_{re.escape(name)}{{[^\n]*{re.escape(labels)}[^\n]*}} (\d+)$", text, re.M)
        return int(found.group(1)) if found else None

    def descriptors(self):
        return len(os.listdir(f"/proc/{self.process.pid}/fd"))

    def cpu_seconds(self):
        fields = pathlib.Path(f"/proc/{self.process.pid}/stat").read_text().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def read_all(s):
    data = b""
    try:
        while chunk := s.recv(65536):
            data += chunk
    except (ConnectionResetError, BrokenPipeError):
        pass
    return data


def until(condition, seconds=60):
    """Poll; the last value of the condition."""
    end = time.monotonic() + seconds
    while not (value := condition()) and time.monotonic() < end:
        time.sleep(0.02)
    return value


class Events:
    """A reader of /events."""

    def __init__(self, api, headers=(), receive_buffer=None, source=None):
        self.socket = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        if receive_buffer:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        self.socket.settimeout(60)
        if source:
            self.socket.bind((source, 0))
        self.socket.connect(("127.0.0.1", api.port))
        lines = [f"{TOKEN_HEADER}: {api.token}", *(f"{k}: {v}" for k, v in dict(headers).items())]
        self.socket.sendall(("GET /events HTTP/1.0\r\nHost: x\r\n" + "\r\n".join(lines) + "\r\n\r\n").encode())
        self.buffer = b""
        self.head = self._until(b"\r\n\r\n").decode()
        self.code = int(self.head.split()[1])

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.socket.close()

    def _until(self, mark):
        while mark not in self.buffer:
            chunk = self.socket.recv(65536)
            if not chunk:
                raise EOFError(self.buffer)
            self.buffer += chunk
        part, self.buffer = self.buffer.split(mark, 1)
        return part

    def block(self):
        """The lines of the next block, comments among them."""
        return self._until(b"\n\n").decode().split("\n")

    def next(self):
        """The next event: (id, action, its data)."""
        while True:
            fields = dict(line.split(": ", 1) for line in self.block() if not line.startswith(":"))
            if "data" in fields:
                return fields["id"], fields["event"], json.loads(fields["data"])
