# SPDX-License-Identifier: Apache-2.0
"""HTTP and HTTPS for every name and address of the world.

Any path answers with JSON: the Host and SNI by which the server was reached, its address
and port. Below a mounted prefix there are files (`mount("/simple", folder)`), and below
/git/ the bare repositories of `git_root`, by git's own smart HTTP backend.
Certificates come from the world's own CA, made for each name when it is first asked for.
"""
import email
import http.server
import itertools
import json
import mimetypes
import os
import pathlib
import ssl
import subprocess
import threading
import urllib.parse

from .expect import PATIENCE
from .listen import TcpService


class Authority:
    """A certificate authority with one key for itself and one for all its servers."""

    def __init__(self, folder):
        self.folder = pathlib.Path(folder)
        self.cert = self.folder / "ca.pem"
        self._key = self.folder / "ca.key"
        self.leaf_key = self.folder / "leaf.key"
        self._contexts = {}
        self._numbers = itertools.count()
        self._lock = threading.Lock()
        for key in (self._key, self.leaf_key):
            self._openssl("genpkey", "-algorithm", "EC", "-pkeyopt", "ec_paramgen_curve:P-256",
                          "-out", key)
        self._openssl("req", "-x509", "-new", "-key", self._key, "-out", self.cert, "-days", "30",
                      "-subj", "/CN=Test world CA", "-addext", "keyUsage=critical,keyCertSign,cRLSign")

    def _openssl(self, *args):
        subprocess.run(["openssl", *map(str, args)], check=True, capture_output=True)

    def context(self, name):
        """A server context with a certificate for @name, a DNS name or an address."""
        name = name.lower()
        with self._lock:
            if name not in self._contexts:
                self._contexts[name] = self._make(name)
            return self._contexts[name]

    def _make(self, name):
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self.certificate(name), self.leaf_key)
        return context

    def certificate(self, name):
        """A file with a new certificate for @name; leaf_key is its key."""
        is_address = ":" in name or name.replace(".", "").isdigit()
        cert = self.folder / f"leaf-{next(self._numbers)}.pem"
        self._openssl("req", "-x509", "-new", "-CA", self.cert, "-CAkey", self._key,
                      "-key", self.leaf_key, "-out", cert, "-days", "30", "-subj", "/CN=server",
                      "-addext", "basicConstraints=critical,CA:FALSE",
                      "-addext", f"subjectAltName={'IP' if is_address else 'DNS'}:{name}")
        return cert

    def wrap(self, conn):
        """TLS over @conn with the certificate that the client's SNI asks for.

        Return: the TLS socket and the SNI, or None. Without one the certificate is
        for the address that was reached. A client that leaves is an OSError, of which
        its own test hears.
        """
        asked, conn_address = [], conn.getsockname()[0]

        def choose(sock, name, _context):
            asked.append(name)
            sock.context = self.context(name or conn_address)

        base = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        base.sni_callback = choose
        tls = base.wrap_socket(conn, server_side=True)
        if not asked:
            raise ConnectionAbortedError("the client left before it had asked")
        return tls, asked[0]


class WebServer:
    """One TcpService per port; `requests` has (scheme, sni, host, address, port, path)."""

    def __init__(self, netns, authority, git_root, plain=(80, 8080), tls=(443, 8443)):
        self.requests = []
        self.authority = authority
        self.git_root = git_root
        self._mounts = {}
        self._services = [TcpService(netns, port, self._plain) for port in plain]
        self._services += [TcpService(netns, port, self._tls) for port in tls]

    def mount(self, prefix, folder):
        self._mounts[prefix.rstrip("/") + "/"] = pathlib.Path(folder)

    def reached(self, name=None, address=None):
        """Requests that came for @name (Host or SNI) or to @address."""
        return [r for r in list(self.requests)
                if (name is None or name in (r["sni"], r["host"]))
                and (address is None or address == r["address"])]

    def close(self):
        for service in self._services:
            service.close()

    def _plain(self, conn, local, peer):
        self._talk(conn, None, "http", local)

    def _tls(self, conn, local, peer):
        conn.settimeout(PATIENCE)
        tls, sni = self.authority.wrap(conn)
        with tls:
            self._talk(tls, sni, "https", local)
            tls.unwrap()  # say goodbye, or the client takes the end for an attack

    def _talk(self, conn, sni, scheme, local):
        conn.settimeout(PATIENCE)
        server = self

        class Handler(_Handler):
            web = server
            info = {"scheme": scheme, "sni": sni, "address": local, "port": _port(conn)}

        try:
            Handler(conn, conn.getpeername(), None)
        except OSError:
            pass


def _port(conn):
    return conn.getsockname()[1]


class _Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    web = None
    info = None

    def log_message(self, *args):
        pass

    def _serve(self):
        host = urllib.parse.urlsplit("//" + (self.headers.get("Host") or "")).hostname
        seen = dict(self.info, host=host, path=self.path, method=self.command)
        self.web.requests.append(seen)
        path = urllib.parse.urlsplit(self.path)
        if path.path.startswith("/git/"):
            return self._git(path)
        for prefix, folder in self.web._mounts.items():
            if path.path.startswith(prefix):
                return self._file(folder, urllib.parse.unquote(path.path[len(prefix):]))
        if path.path.startswith("/bytes/"):
            return self._bytes(int(path.path[7:]))
        length = int(self.headers.get("Content-Length") or 0)
        if length:
            seen["body_size"] = len(self.rfile.read(length))
        return self._send(200, "application/json", json.dumps(seen).encode())

    do_GET = do_HEAD = do_POST = do_PUT = _serve

    def _send(self, code, kind, body, headers=()):
        self.send_response(code)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        for name, value in headers:
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def _bytes(self, count):
        self.send_response(200)
        self.send_header("Content-Length", str(count))
        self.end_headers()
        block = bytes(range(256)) * 256
        while count > 0:
            self.wfile.write(block[:count])
            count -= len(block)

    def _file(self, folder, name):
        path = (folder / name).resolve()
        if not path.is_relative_to(folder.resolve()) or not path.exists():
            return self._send(404, "text/plain", b"no such file\n")
        if path.is_dir():
            links = "".join(f'<a href="{p.name}{"/" if p.is_dir() else ""}">{p.name}</a>\n'
                            for p in sorted(path.iterdir()))
            return self._send(200, "text/html", links.encode())
        kind = mimetypes.guess_type(path.name)[0] or "application/octet-stream"
        return self._send(200, kind, path.read_bytes())

    def _git(self, path):
        length = int(self.headers.get("Content-Length") or 0)
        env = {"GIT_PROJECT_ROOT": str(self.web.git_root), "GIT_HTTP_EXPORT_ALL": "1",
               "PATH_INFO": path.path[4:], "QUERY_STRING": path.query,
               "REQUEST_METHOD": self.command, "PATH": os.environ["PATH"],
               "CONTENT_TYPE": self.headers.get("Content-Type", ""),
               "CONTENT_LENGTH": str(length), "REMOTE_ADDR": "client",
               "GIT_CONFIG_COUNT": "1", "GIT_CONFIG_KEY_0": "safe.directory",
               "GIT_CONFIG_VALUE_0": "*"}
        done = subprocess.run(["git", "http-backend"], input=self.rfile.read(length), env=env,
                              capture_output=True, check=False)
        head, _, body = done.stdout.partition(b"\r\n\r\n")
        headers = email.message_from_bytes(head)
        code = int((headers["Status"] or "200").split()[0])
        kept = [(k, v) for k, v in headers.items() if k not in ("Status", "Content-Type")]
        return self._send(code, headers["Content-Type"] or "text/plain", body, kept)
