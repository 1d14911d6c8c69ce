#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Write down the first bytes that real TLS clients send: hellos/PROGRAM.bin.

Runs each program that is installed, in a network namespace of its own, against a
listener that keeps what comes and closes. Needs root; run it again after an upgrade."""
import os
import pathlib
import shutil
import socket
import subprocess
import sys
import tempfile
import threading

HERE = pathlib.Path(__file__).resolve().parent
NAME, PORT = "name.hello.test", 443
URL = f"https://{NAME}/"
JAVA = f'class H {{ public static void main(String[] a) throws Exception {{ new java.net.URL("{URL}").openStream(); }} }}'
GO = f'package main\nimport "net/http"\nfunc main() {{ http.Get("{URL}") }}\n'
CLIENTS = {
    "openssl": ["openssl", "s_client", "-connect", f"{NAME}:{PORT}", "-servername", NAME],
    "openssl-tls12": ["openssl", "s_client", "-tls1_2", "-connect", f"{NAME}:{PORT}", "-servername", NAME],
    "curl": ["curl", "-s", URL],
    "wget": ["wget", "-q", "-t1", URL],
    "gnutls": ["gnutls-cli", "--insecure", NAME],
    "git": ["git", "ls-remote", URL],
    "python": ["/usr/bin/python3", "-c", f"import urllib.request as u; u.urlopen('{URL}')"],
    "node": ["node", "-e", f"fetch('{URL}').catch(() => 0)"],
    "java": ["java", "H.java"],
    "go": ["go", "run", "h.go"],
    "chromium": ["chromium", "--headless", "--no-sandbox", "--disable-gpu", "--user-data-dir=profile", URL],
}


def whole(data):
    """All records of the first handshake message are there."""
    message, at = b"", 0
    while len(data) >= at + 5:
        size = int.from_bytes(data[at + 3:at + 5], "big")
        message += data[at + 5:at + 5 + size]
        at += 5 + size
    return len(message) >= 4 and len(message) >= 4 + int.from_bytes(message[1:4], "big")


def keep(listener, found):
    while True:
        try:
            conn, _ = listener.accept()
        except OSError:  # shut down: the program has ended
            return
        conn.settimeout(5)
        data = b""
        try:
            while not whole(data) and (more := conn.recv(65536)):
                data += more
        except TimeoutError:
            pass
        conn.close()
        if whole(data) and NAME.encode() in data:
            found.setdefault("hello", data)


def capture(program, argv, folder):
    found = {}
    with socket.create_server(("127.0.0.1", PORT)) as listener:
        threading.Thread(target=keep, args=(listener, found), daemon=True).start()
        env = {**os.environ, "HOME": str(folder), "GOFLAGS": "-mod=mod", "GOCACHE": str(folder / "go"), "GOTOOLCHAIN": "local"}
        try:
            subprocess.run(argv, cwd=folder, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                           stderr=subprocess.DEVNULL, timeout=60)
        except subprocess.TimeoutExpired:
            pass
        listener.shutdown(socket.SHUT_RDWR)
    if "hello" in found:
        (HERE / f"{program}.bin").write_bytes(found["hello"])
    print(program, len(found.get("hello", b"")))


def main():
    if len(sys.argv) == 1:
        script = ("ip link set lo up; mount --bind $0 /etc/hosts; exec /usr/bin/python3 $1 inside")
        with tempfile.NamedTemporaryFile("w") as hosts:
            hosts.write(f"127.0.0.1 localhost {NAME}\n")
            hosts.flush()
            sys.exit(subprocess.call(["unshare", "--net", "--mount", "sh", "-c", script, hosts.name, __file__]))
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        (folder / "H.java").write_text(JAVA)
        (folder / "h.go").write_text(GO)
        for program, argv in CLIENTS.items():
            if shutil.which(argv[0]):
                capture(program, argv, folder)


main()
