# SPDX-License-Identifier: Apache-2.0
"""G34: what else a developer's desk has, beside G33's variables and files: agents, buses, displays, container engines, multiplexers
with what was copied, editors' sockets, memory that is shared by System V and POSIX names, descriptors that are open, a crash's core.

Real programs where Debian has small ones (ssh-agent, gpg-agent, dbus-daemon, tmux), else a server that says its text to whoever
connects, as the place of the real one. The thief connects to each, speaks each protocol, reads all that it can. Without Weir it
finds everything; under the defaults nothing.
"""
import json
import os
import subprocess

import pytest

PYTHON = "/usr/bin/python3"

# Below the runtime directory, /run, /tmp and the home; "@": abstract.
SERVED = {
    "docker": "/run/docker.sock", "docker desktop": "{home}/.docker/desktop/docker.sock", "podman": "{run}/podman/podman.sock",
    "systemd of the user": "{run}/systemd/private", "keyring control": "{run}/keyring/control", "keyring's ssh": "{run}/keyring/ssh",
    "wayland": "{run}/wayland-0", "X11": "/tmp/.X11-unix/X7", "X11, abstract": "@/tmp/.X11-unix/X7-{pid}", "pulse": "{run}/pulse/native",
    "vscode": "{run}/vscode-ipc-1.sock", "vscode's git": "/tmp/vscode-git-1.sock", "emacs": "{run}/emacs1/server",
    "screen": "/run/screen/S-me/1.tty", "at-spi, abstract": "@/tmp/dbus-{pid}", "the system's bus": "/run/dbus/system_bus_socket",
    "nscd": "/run/nscd/socket", "varlink": "/run/systemd/resolve/io.systemd.Resolve", "containerd": "/run/containerd/containerd.sock",
    "1Password": "{home}/.1password/agent.sock",
}
REAL = {"ssh-agent": "{run}/ssh-agent", "gpg-agent": "{home}/.gnupg/its own choice", "dbus": "{run}/bus", "tmux": "/tmp/tmux-1/default"}
FILES = ("/var/lib/systemd/coredump/core.cc.1.2.3", "{home}/.viminfo", "{home}/.local/state/nvim/shada/main.shada",
         "{home}/.local/share/klipper/history2.lst", "{home}/.local/share/copyq/copyq_tab.dat", "{home}/.cache/cliphist/db",
         "{home}/.local/share/atuin/history.db", "{home}/.config/Code/User/globalStorage/state.vscdb",
         "{home}/.local/share/tmux/resurrect/pane_contents.tar.gz", "{home}/.config/JetBrains/IDEA2/c.kdbx", "{home}/.android/adbkey")
MEMORY = ("System V memory", "System V messages", "/dev/shm", "descriptor of a file", "descriptor of memory", "descriptor of a pipe",
          "descriptor of a socket")

# The desk: starts all of it, says "up", then starts a command for each line and says what that printed.
DESK = r"""
import atexit, ctypes, json, os, socket, subprocess, sys, threading, time
served, real, key = json.loads(sys.argv[1]), json.loads(sys.argv[2]), sys.argv[3]
libc = ctypes.CDLL(None, use_errno=True)
libc.shmat.restype = ctypes.c_void_p
quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, "stdin": subprocess.DEVNULL}
def needle(label): return f"needle({label})".encode()
def serve(s, label):
    while True:
        c = s.accept()[0]
        try: c.sendall(needle(label)); c.recv(99); c.close()
        except OSError: pass
for path in [*served.values(), *real.values()]:
    if path[0] != "@": os.makedirs(os.path.dirname(path), exist_ok=True)
for label, path in served.items():
    s = socket.socket(socket.AF_UNIX)
    s.bind("\0" + path[1:] if path[0] == "@" else path); s.listen(64)
    if path[0] != "@": os.chmod(path, 0o777)
    threading.Thread(target=serve, args=(s, label), daemon=True).start()
children = [subprocess.Popen(["ssh-agent", "-D", "-a", real["ssh-agent"]], **quiet),
            subprocess.Popen(["dbus-daemon", "--session", "--nofork", "--nopidfile", "--print-address=1", "--address=unix:path=" + real["dbus"]],
                             **{**quiet, "stdout": subprocess.PIPE})]
atexit.register(lambda: [c.terminate() for c in children])
children[1].stdout.readline()
os.chmod(os.path.dirname(real["gpg-agent"]), 0o700)
children.append(subprocess.Popen(["gpg-agent", "--homedir", os.path.dirname(real["gpg-agent"]), "--daemon", "sleep", "1000"], **quiet))
subprocess.run(["tmux", "-S", real["tmux"], "-f", "/dev/null", "new", "-d", "exec sleep 1000"], check=True)
atexit.register(subprocess.run, ["tmux", "-S", real["tmux"], "kill-server"], **quiet)
subprocess.run(["tmux", "-S", real["tmux"], "set-buffer", needle("tmux")], check=True)
while subprocess.run(["ssh-add", "-q", key], env={**os.environ, "SSH_AUTH_SOCK": real["ssh-agent"]}, **quiet).returncode: time.sleep(0.02)
os.unlink(key); os.unlink(key + ".pub")
gpg = subprocess.run(["gpgconf", "--homedir", os.path.dirname(real["gpg-agent"]), "--list-dirs", "agent-socket"], capture_output=True, text=True).stdout.strip()
while not os.path.exists(gpg): time.sleep(0.02)
text = needle("System V memory")
shm = libc.shmget(0, 4096, 0o1666); ctypes.memmove(libc.shmat(shm, None, 0), text, len(text))
msg = libc.msgget(0, 0o1666)
atexit.register(lambda: (libc.shmctl(shm, 0, None), libc.msgctl(msg, 0, None)))
def opened():
    text = needle("System V messages")
    libc.msgsnd(msg, ctypes.create_string_buffer((1).to_bytes(8, "little") + text), len(text), 0o4000)
    file = os.open("secret", os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o600); os.unlink("secret"); os.write(file, needle("descriptor of a file"))
    memory = os.memfd_create("x"); os.write(memory, needle("descriptor of memory"))
    pipe, end = os.pipe(); os.write(end, needle("descriptor of a pipe")); os.close(end)
    a, b = socket.socketpair(); a.sendall(needle("descriptor of a socket")); a.close()
    return [file, memory, pipe, b.detach()]
with open(f"/dev/shm/weir-test-{os.getpid()}", "wb") as f: f.write(needle("/dev/shm"))
atexit.register(os.unlink, f.name)
print(json.dumps([gpg, shm, msg]), flush=True)
for line in sys.stdin:
    fds = opened()
    done = subprocess.run(json.loads(line), stdin=subprocess.DEVNULL, capture_output=True, pass_fds=fds, check=False)
    for fd in fds: os.close(fd)
    print(json.dumps([done.returncode, done.stdout.decode(), done.stderr.decode()]), flush=True)
"""

THIEF = r"""
import concurrent.futures, ctypes, json, os, re, socket, subprocess, sys
home, sockets, shm, msg = sys.argv[1], json.loads(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4])
found = set()
def take(data):
    found.update(m.decode() for m in re.findall(rb"needle\((.*?)\)", data))
for fd in os.listdir("/proc/self/fd"):
    if int(fd) > 2:
        try:
            if re.match(r"pipe|socket", os.readlink("/proc/self/fd/" + fd)): take(os.read(int(fd), 999))
            else: take(os.pread(int(fd), 999, 0))
        except OSError: pass
# Each is asked in the protocols of GnuPG's agents and of D-Bus, and by the programs for ssh-agent and tmux.
ASK = (b"GETINFO version\n", b"\0AUTH EXTERNAL %s\r\n" % str(os.getuid()).encode().hex().encode())
def ask(path, say):
    s = socket.socket(socket.AF_UNIX); s.settimeout(10)
    try:
        s.connect("\0" + path[1:] if path[0] == "@" else path)
        s.sendall(say); s.shutdown(socket.SHUT_WR)
        data = s.recv(4096)
        take(data)
        if data.startswith(b"OK Pleased"): found.add("gpg-agent")
        if re.match(rb"OK [0-9a-f]{32}|REJECTED", data): found.add("dbus")
    except OSError: pass
with concurrent.futures.ThreadPoolExecutor(40) as pool:
    for path in sockets:
        for root in ("",) if path[0] == "@" else ("", "/proc/self/root", "/proc/1/root"):
            for say in ASK: pool.submit(ask, root + path, say)
for path in sockets:
    for program in ["tmux", "-S", path, "show-buffer"], ["ssh-add", "-l"]:
        if program[0][:3] in path:
            take(subprocess.run(program, stdin=subprocess.DEVNULL, capture_output=True, env={**os.environ, "SSH_AUTH_SOCK": path}).stdout)
for top in home, "/run", "/tmp", "/var/tmp", "/dev/shm", "/dev/mqueue", "/var/lib/systemd":
    for folder, _, files in os.walk(top):
        for name in files:
            try:
                fd = os.open(os.path.join(folder, name), os.O_RDONLY | os.O_NONBLOCK)
                take(os.read(fd, 1 << 20)); os.close(fd)
            except OSError: pass
libc = ctypes.CDLL(None, use_errno=True)
libc.shmat.restype = ctypes.c_void_p
at = libc.shmat(shm, None, 0o10000)
if at not in (None, ctypes.c_void_p(-1).value): take(ctypes.string_at(at, 999))
buffer = ctypes.create_string_buffer(999)
size = libc.msgrcv(msg, buffer, 900, 0, 0o4000)
if size > 0: take(buffer.raw)
print(json.dumps(sorted(found)))
"""


class Desk:
    """Everything is up; steal() starts the thief, with these options of `weir run` or without Weir."""

    def __init__(self, world, user):
        who, self.home = world.user(user), world.workdir(user)
        self.world, run = world, f"/run/user/{who.uid}"

        def fill(places):
            return {k: v.format(run=run, home=self.home, pid=os.getpid()) for k, v in places.items()}
        served, real = fill(SERVED), fill(REAL)
        self.sockets = [*served.values(), *real.values()]
        self.files = fill({name: name for name in FILES})
        project = self.home / "project"
        project.mkdir()
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "needle(ssh-agent)", "-f", self.home / "key"], check=True)
        for name, path in self.files.items():
            if path.startswith(str(self.home)):
                os.makedirs(os.path.dirname(path), exist_ok=True)
                with open(path, "w", encoding="ascii") as f:
                    f.write(f"needle({name})")
        subprocess.run(["chown", "-R", f"{who.uid}:{who.gid}", self.home], check=True)
        core = FILES[0]
        mounts = ("mount -t tmpfs -o mode=0777 t /run", f"mkdir -p {run}", f"chown {who.uid} {run}", "mount -t tmpfs -o mode=1777 t /tmp",
                  "mount -t tmpfs -o mode=0755 t /var/lib/systemd", f"mkdir {os.path.dirname(core)}", f"echo 'needle({core})' >{core}")
        self.started = world.start([PYTHON, "-ISc", DESK, json.dumps(served), json.dumps(real), self.home / "key"], user=user, cwd=project,
                                   env={"HOME": str(self.home), "SSH_AUTH_SOCK": real["ssh-agent"], "XDG_RUNTIME_DIR": run,
                                        "DBUS_SESSION_BUS_ADDRESS": f"unix:path={real['dbus']}"}, mounts=mounts)
        line = self.started.line()
        assert line, self.started.wait()
        gpg, *self.ids = json.loads(line)
        self.sockets.append(gpg)

    def steal(self, *options, weir=True):
        argv = [PYTHON, "-ISc", THIEF, self.home, json.dumps(self.sockets), *self.ids]
        if weir:
            argv = [self.world.weir_path, *self.world.run_args(argv, (), (), options, "5.100.53.53")]
        self.started.say(json.dumps([str(word) for word in argv]) + "\n")
        code, out, err = json.loads(self.started.line())
        assert code == 0, (out, err)
        return set(json.loads(out))


@pytest.fixture
def desk(world, user):
    made = Desk(world, user)
    yield made
    made.started.process.stdin.close()
    made.started.process.wait(60)


def test_G34_a_thief_at_a_developers_desk_finds_nothing_under_the_defaults(desk):
    everything = {*SERVED, *REAL, *FILES, *MEMORY}
    assert desk.steal(weir=False) == everything, "positive control"
    assert desk.steal() == set()
    assert desk.steal("--rw", desk.home) == set()
    assert desk.steal("--hide-preset", "none", "--env", "all") == set(FILES), "positive control of what is hidden"
