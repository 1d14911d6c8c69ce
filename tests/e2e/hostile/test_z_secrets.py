# SPDX-License-Identifier: Apache-2.0
"""G33: a thief in a sandbox, on a developer's machine.

The machine has each credential that developers have: in the environment, in files, behind sockets and agents, in the
kernel's keyring, in other processes. Each has a text of its own. The thief reads what can be read and asks what can be asked,
and prints what it found. Without Weir it finds all; under the defaults nothing.
"""
import contextlib
import os
import pathlib
import shutil
import subprocess

import pytest

PYTHON = "/usr/bin/python3"

VARIABLES = ("GITHUB_TOKEN", "GH_TOKEN", "GITLAB_TOKEN", "NPM_TOKEN", "NODE_AUTH_TOKEN", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY",
             "AWS_SESSION_TOKEN", "AZURE_CLIENT_SECRET", "GOOGLE_API_KEY", "OPENAI_API_KEY", "ANTHROPIC_API_KEY", "HF_TOKEN",
             "CARGO_REGISTRY_TOKEN", "TWINE_PASSWORD", "PGPASSWORD", "MYSQL_PWD", "DB_PASS", "VAULT_TOKEN", "SLACK_WEBHOOK_URL",
             "CI_JOB_TOKEN", "DOCKER_AUTH_CONFIG", "REDISCLI_AUTH", "GPG_PASSPHRASE", "SENTRY_DSN", "DJANGO_SECRET_KEY", "JWT", "WEIR_TOKEN")
URLS = {"DATABASE_URL": "postgres://me:{}@db.test/x", "HTTPS_PROXY": "http://me:{}@proxy.test:3128", "PIP_INDEX_URL": "https://{}@pypi.test/",
        "JDBC": "jdbc:mysql://db.test/x?password={}", "BLOB": "AccountName=a;AccountKey={}"}
FILES = (".ssh/id_rsa", ".ssh/id_ed25519", ".ssh/config", ".aws/credentials", ".aws/sso/cache/t.json", ".config/gcloud/credentials.db",
         ".config/gh/hosts.yml", ".config/hub", ".config/glab-cli/config.yml", ".azure/tokens.json", ".kube/config", ".netrc",
         ".git-credentials", ".config/git/credentials", ".docker/config.json", ".config/containers/auth.json", ".npmrc", ".yarnrc.yml",
         ".pypirc", ".config/pip/pip.conf", ".cargo/credentials.toml", ".gem/credentials", ".m2/settings.xml", ".gradle/gradle.properties",
         ".composer/auth.json", ".terraform.d/credentials.tfrc.json", ".vault-token", ".pgpass", ".my.cnf", ".s3cfg", ".config/rclone/rclone.conf",
         ".cache/huggingface/token", ".gnupg/private-keys-v1.d/k.key", ".password-store/a.gpg", ".local/share/keyrings/login.keyring",
         ".local/share/kwalletd/kdewallet.kwl", ".config/op/config", ".mozilla/firefox/x.default/logins.json",
         ".config/google-chrome/Default/Login Data", ".config/chromium/Default/Cookies", ".bash_history", ".zsh_history", ".python_history",
         ".psql_history", ".local/share/fish/fish_history", ".node_repl_history", ".Xauthority", ".claude/.credentials.json",
         ".codex/auth.json", ".gemini/oauth_creds.json", ".local/share/opencode/auth.json", "elsewhere/kube", "elsewhere/history",
         ".authinfo", ".curlrc", ".wgetrc", ".config/configstore/firebase-tools.json", ".config/openstack/clouds.yaml", ".config/argocd/config",
         ".tsh/keys/k", ".step/secrets/k", ".local/share/mkcert/rootCA-key.pem", ".acme.sh/account.conf", ".sentryclirc",
         ".ansible/galaxy_token", ".purple/accounts.xml", ".muttrc", ".config/borg/keys/k", ".cursor/mcp.json", ".continue/config.json",
         ".Rhistory")
ELSEWHERE = {"KUBECONFIG": "elsewhere/kube", "HISTFILE": "elsewhere/history"}

THIEF = r"""
import ctypes, json, os, re, socket, sys
home, sockets, other, key = sys.argv[1], sys.argv[2:-2], sys.argv[-2], sys.argv[-1]
found = set()

def take(data):
    found.update(m.decode(errors="replace") for m in re.findall(rb"needle\((.*?)\)", data))

def read(path, size=1 << 20):
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY)
    except OSError:
        return
    try:
        take(os.read(fd, size))
    except OSError:
        pass
    finally:
        os.close(fd)

take(b"\0".join(k + b"=" + v for k, v in os.environb.items()))
tops = [home, "/proc/self/root" + home, "/proc/1/root" + home, "/proc/1/cwd", "/proc/self/cwd", "/tmp", "/var/tmp", "/run", "/dev/shm", "."]
for top in tops:
    for folder, _, files in os.walk(top):
        for name in files:
            read(os.path.join(folder, name))
for name in os.listdir("/proc"):
    if name.isdigit() and int(name) != os.getpid():
        for file in "environ", "cmdline":
            read(f"/proc/{name}/{file}")
        try:
            for fd in os.listdir(f"/proc/{name}/fd"):
                if name == other or os.path.islink("/proc/1/fd"):
                    read(f"/proc/{name}/fd/{fd}")
        except OSError:
            pass
for path in sockets:
    for address in path, "/proc/self/root" + path, "\0" + path:
        s = socket.socket(socket.AF_UNIX)
        s.settimeout(2)
        try:
            s.connect(address)
            take(s.recv(1000))
        except OSError:
            pass
libc = ctypes.CDLL(None, use_errno=True)
buf = ctypes.create_string_buffer(1000)
if libc.syscall(250, 11, int(key), buf, 1000, 0) > 0:
    take(buf.raw)
print(json.dumps(sorted(found)))
"""

SERVE = r"""
import os, socket, sys, threading
def serve(address, text):
    s = socket.socket(socket.AF_UNIX)
    s.bind(address)
    if address[0] != "\0":
        os.chmod(address, 0o777)
    s.listen(16)
    while True:
        c = s.accept()[0]
        c.sendall(text.encode())
        c.close()
for pair in sys.argv[1:]:
    label, path = pair.split("=", 1)
    threading.Thread(target=serve, args=("\0" + path if label == "abstract" else path, f"needle(socket {label})"), daemon=True).start()
f = open(sys.argv[1].split("=", 1)[1] + ".file", "w+")
f.write("needle(file of another process)")
f.flush()
os.unlink(f.name)
print("up", flush=True)
sys.stdin.read()
"""

# Starts what follows with a key in the session's keyring; its number takes the place of KEY.
KEYED = r"""
import ctypes, os, sys
libc = ctypes.CDLL(None, use_errno=True)
libc.syscall(250, 1, b"weir-test")
text = b"needle(key of the kernel)"
key = libc.syscall(248, b"user", b"weir-test", text, len(text), -3)
argv = [str(key) if a == "KEY" else a for a in sys.argv[1:]]
os.execvp(argv[0], argv)
"""


def needle(label):
    return f"needle({label})"


@pytest.fixture
def machine(world, user):
    """(what the thief is started with, the environment, all that there is to be found in it and in files, and elsewhere)"""
    who, home = world.user(user), world.workdir(user)

    def own(path):
        os.chown(path, who.uid, who.gid)
    for name in FILES:
        (home / name).parent.mkdir(parents=True, exist_ok=True)
        (home / name).write_text(f"token password //a.test/:_authToken=x npmAuthToken: x https://me:pw@a.test/ {needle('~/' + name)}\n")
    for folder, folders, files in os.walk(home):
        for name in [".", *folders, *files]:
            own(os.path.join(folder, name))
    project = home / "project"
    project.mkdir()
    own(project)
    private = pathlib.Path("/tmp") / f"weir-test-{os.getpid()}-{world.number()}"
    private.mkdir()
    own(private)
    (private / "krb5cc").write_text(needle("tickets in /tmp"))
    own(private / "krb5cc")
    places = {"agent": home / ".ssh/agent", "gpg": home / ".gnupg/S.gpg-agent", "project": project / "s", "tmp": private / "s",
              "abstract": f"weir-test-{os.getpid()}-{world.number()}"}
    env = {name: needle(f"${name}") for name in VARIABLES}
    env |= {name: form.format(needle(f"${name}")) for name, form in URLS.items()}
    env |= {name: str(home / file) for name, file in ELSEWHERE.items()}
    env |= {"HOME": str(home), "SSH_AUTH_SOCK": str(places["agent"])}
    here = {f"${name}" for name in (*VARIABLES, *URLS)} | {f"~/{name}" for name in FILES}
    there = {f"socket {label}" for label in places} | {"tickets in /tmp", "variable of another process", "argument of another process",
                                                       "file of another process", "key of the kernel"}
    with contextlib.ExitStack() as stack:
        stack.callback(shutil.rmtree, private)
        server = stack.enter_context(world.start([PYTHON, "-ISc", SERVE, *(f"{k}={v}" for k, v in places.items()),
                                                  f"ignored=/nonexistent/{needle('argument of another process')}"], user=user,
                                                 env={"PLAIN": needle("variable of another process")}, stderr=subprocess.DEVNULL))
        assert server.line() == "up"
        thief = [PYTHON, "-ISc", THIEF, home, *places.values(), server.pid, "KEY"]
        yield thief, {"cwd": project, "env": env, "user": user}, here, there


def steal(world, machine, *options, weir=True):
    thief, how, *_ = machine
    argv = thief
    if weir:
        argv = [world.weir_path, *world.run_args(thief, (), (), options, "5.100.53.53")]
    done = world.command(PYTHON, "-ISc", KEYED, *argv, timeout=600, **how)
    assert done.code == 0, done
    return set(done.json())


def test_G33_a_thief_finds_nothing_under_the_defaults(world, machine):
    *_, here, there = machine
    assert steal(world, machine) == set()
    assert steal(world, machine, "--env", "all", "--hide-preset", "none") == here - {"$WEIR_TOKEN"}
    assert steal(world, machine, weir=False) >= here | there, "positive control"


@pytest.mark.parametrize("options", [("--rw", "~"), ("--rw", "~", "--env", "none"), ("--hide", "~"), ("--uplink", "none")])
def test_G33_nor_with_a_writable_home_and_other_options(world, machine, options):
    _, how, *_ = machine
    assert steal(world, machine, *(how["env"]["HOME"] if word == "~" else word for word in options)) == set()


def test_G33_what_is_named_is_all_that_is_found(world, machine):
    _, how, *_ = machine
    home = pathlib.Path(how["env"]["HOME"])
    options = ("--pass-env", "GH_TOKEN", "--ro", home / ".config/gh", "--ro", home / ".ssh/id_rsa")
    assert steal(world, machine, *options) == {"$GH_TOKEN", "~/.config/gh/hosts.yml", "~/.ssh/id_rsa"}
