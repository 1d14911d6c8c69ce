# SPDX-License-Identifier: Apache-2.0
"""`weir learn`: public names are open, and the policy that comes out is the smallest one under which the command works."""
import contextlib
import pathlib
import re
import shutil
import subprocess

import pytest
import yaml

from world.browser import CHROMIUM

ROOT = pathlib.Path(__file__).resolve().parents[3]
LOUD = "LEARNING: THIS IS NO FENCE"


class Learner:
    """Learns and runs commands in one directory of a user's."""

    def __init__(self, world, user):
        self.world, self.user, self.cwd = world, user, world.workdir(user)
        self.file = self.cwd / "policy.yaml"

    def learn(self, *argv, options=("-o", "policy.yaml"), upstream="5.100.53.53", **rest):
        return self.world.weir("learn", "--no-config", "--upstream", upstream, *map(str, options), "--", *map(str, argv), user=self.user,
                               cwd=self.cwd, **rest)

    def run(self, *argv, **rest):
        return self.world.run(*argv, options=("--no-config", "--policy", "policy.yaml"), user=self.user, cwd=self.cwd, **rest)

    @property
    def text(self):
        return self.file.read_text()

    @property
    def rules(self):
        return {rule["target"]: rule.get("ports") for rule in yaml.safe_load(self.text)["egress"]}

    def check(self):
        done = self.world.weir("policy", "check", self.file)
        assert done.code == 0 and "error" not in done.messages, (done, self.text)


@pytest.fixture
def learner(world):
    return Learner(world, "weir-test")


def fetch(*urls):
    return "sh", "-c", "; ".join(f"curl -so /dev/null {url}" for url in urls) + "; true"


def test_what_was_used_is_allowed_and_nothing_else(world, site, denied, user):
    learner = Learner(world, user)
    argv = fetch(f"https://{site.name}/", f"https://{site.name}/", f"http://{site.name}:8080/")
    done = learner.learn(*argv, options=("-o", "policy.yaml", "--quiet"))
    assert done.code == 0 and LOUD in done.messages, done
    learner.check()
    assert learner.rules == {site.name: ["tcp/443", "tcp/8080"]}, learner.text
    size = r"[0-9.]+ (bytes|kB)"
    budget = re.search(rf'comment: "(?:curl: )?3 connections, {size} sent, {size} received"\}}  # (budget: {{sent: \d+K, received: \d+K}})$',
                       learner.text, re.M)
    assert budget, learner.text
    # what is proposed can be put into the rule as it stands there, and is enough
    learner.file.write_text(learner.text.replace(', comment: "', f', {budget[3]}, comment: "'))
    learner.check()
    assert "budget" not in learner.run(*argv).messages
    again = learner.run("sh", "-c", f"curl -sS https://{site.name}/; curl -sS https://{denied.name}/")
    assert again.text.count('"host"') == 1 and denied.name in again.messages and "refused" in again.messages, again


def test_a_rule_names_the_program(world, learner, site):
    """Where it can still be found when the event arrives: on a busy machine the next try may."""
    texts = []
    while len(texts) < 30 and not any('comment: "curl: 1 connection, ' in text for text in texts):
        texts.append(learner.learn(*fetch(f"https://{site.name}/"), options=()).text)
    assert 'comment: "curl: 1 connection, ' in texts[-1], texts


def test_the_policy_goes_to_standard_output_and_the_status_is_the_commands(world, learner, site):
    done = learner.learn("sh", "-c", f"curl -so /dev/null https://{site.name}/; exit 7", options=())
    assert done.code == 7 and list(yaml.safe_load(done.text)) == ["egress"] and site.name in done.text, done


def test_what_stays_closed(world, learner, site, denied):
    """Counted outside, beside the site that is open; each is in the policy as a comment."""
    rebound, doh = f"rebound-{world.number()}.test", "dns.google"
    world.dns.add(rebound, "10.1.2.3")
    world.site(doh)
    ceiling = learner.cwd / "ceiling.yaml"
    ceiling.write_text(f"defaultAction: allow\negress:\n  - {{action: deny, target: {denied.name}}}\n")
    with world.capture() as capture:
        done = learner.learn(*fetch(f"https://{site.name}/", f"http://{rebound}/", "http://169.254.169.254/", f"https://{doh}/",
                                    f"https://{denied.name}/", f"https://{denied.v4}:7007/", f"https://{site.name}:7443/"),
                             options=("-o", "policy.yaml", "--ceiling", "ceiling.yaml"))
        to = {(p.dst, p.dport) for p in capture.packets() if p.dst != "5.100.53.53"}
    assert to <= {(site.v4, 443), (site.v6, 443)} and to, (to, done)
    assert world.dns.count(doh) == world.dns.count(denied.name) == 0 and world.dns.count(rebound) > 0
    learner.check()
    assert learner.rules == {site.name: ["tcp/443"]}, learner.text
    notes = [line for line in learner.text.splitlines() if line.startswith("#")]
    for what in (denied.name, doh, "169.254.169.254", f"{denied.v4} tcp/7007", f"tcp/7443: the rule does not list this port; --allow {site.name}:tcp/7443"):
        assert any(what in line for line in notes), (what, learner.text)


TWO_NAMES = """
import socket, ssl, sys
allowed, denied = sys.argv[1:]

def hello(name):
    out = ssl.MemoryBIO()
    try: ssl.create_default_context().wrap_bio(ssl.MemoryBIO(), out, server_hostname=name).do_handshake()
    except ssl.SSLWantReadError: return out.read()

s = socket.create_connection((allowed, 443), 50)
s.sendall(hello(allowed) + hello(denied))
try: print(s.recv(65536)[:1])
except OSError as e: print(e)
s = socket.create_connection((allowed, 80), 50)
answers = s.makefile('rb')
for name in allowed, denied:
    s.sendall(f'GET / HTTP/1.1\\r\\nHost: {name}\\r\\n\\r\\n'.encode())
    print(answers.readline()[:12])
    fields = dict(line.strip().lower().split(b': ') for line in iter(answers.readline, b'\\r\\n'))
    answers.read(int(fields[b'content-length']))
"""


def test_what_passes_before_a_refused_name_is_not_learned_for_it(world, learner, site, denied):
    """Both names on one connection."""
    (learner.cwd / "ceiling.yaml").write_text(f"defaultAction: allow\negress:\n  - {{action: deny, target: {denied.name}}}\n")
    done = learner.learn("/usr/bin/python3", "-c", TWO_NAMES, site.name, denied.name,
                         options=("-o", "policy.yaml", "--ceiling", "ceiling.yaml"))
    assert "HTTP/1.1 200" in done.text and "HTTP/1.1 403" in done.text and world.web.reached(denied.name) == [], done
    learner.check()
    assert learner.rules == {site.name: ["tcp/80", "tcp/443"]}, learner.text


def test_any_port(world, learner, site):
    argv = ("sh", "-c", f"echo x | nc -N -w 40 {site.name} 7007")
    learner.learn(*argv, options=("-o", "policy.yaml", "--any-port"))
    learner.check()
    assert learner.rules == {site.name: ["tcp/7007"]}, learner.text
    assert learner.run(*argv).code == 0


def test_the_command_cannot_raise_the_ceiling(learner):
    """For the next time that somebody learns below it."""
    for name, text in (("ceiling.yaml", "extends: [below/more.yaml]\n"), ("below/more.yaml", "egress:\n  - {action: allow, target: a.example}\n")):
        (learner.cwd / name).parent.mkdir(exist_ok=True)
        (learner.cwd / name).write_text(text)
    subprocess.run(["chown", "-R", "weir-test:", learner.cwd], check=True)
    raised = "'defaultAction: allow'"
    script = f"echo {raised} > ceiling.yaml; echo {raised} > below/more.yaml; mv below gone; rm ceiling.yaml; touch here; true"
    done = learner.learn("sh", "-c", script, options=("-o", "policy.yaml", "--ceiling", "ceiling.yaml"))
    assert done.code == 0 and (learner.cwd / "here").exists(), done
    assert "defaultAction" not in (learner.cwd / "ceiling.yaml").read_text() + (learner.cwd / "below/more.yaml").read_text()


def test_below_a_ceiling_that_lists(world, learner, site, denied):
    (learner.cwd / "ceiling.yaml").write_text(f"egress:\n  - {{action: allow, target: {site.name}}}\n")
    learner.learn(*fetch(f"https://{site.name}/", f"https://{denied.name}/"), options=("-o", "policy.yaml", "--ceiling", "ceiling.yaml"))
    assert set(learner.rules) == {site.name} and world.dns.count(denied.name) == 0, learner.text
    (learner.cwd / "ceiling.yaml").write_text(f"egress:\n  - {{action: deny, target: {site.name}}}\n")
    done = learner.learn("true", options=("--ceiling", "ceiling.yaml"))
    assert done.code == 2 and "the ceiling allows no name" in done.messages, done


@pytest.mark.parametrize("options, why", [
    (("--diff", "p.yaml", "-o", "q.yaml"), "--diff writes no policy"), (("--uid", "1"), "means nothing with --uid"),
    (("--audit",), "--audit means nothing"), (("-x",), "'-x' is not an option"), (("-o",), "-o needs a value: FILE"),
    (("--ceiling", "missing.yaml"), "missing.yaml"), (("--policy", "p.yaml", "-o", "full.yaml"), "--policy names another one")])
def test_what_is_asked_wrongly_changes_nothing(world, learner, options, why):
    for name in ("p.yaml", "full.yaml"):
        (learner.cwd / name).write_text("egress: []\n")
        shutil.chown(learner.cwd / name, learner.user)
    done = learner.learn("touch", "started", options=options)
    assert done.code == 2 and why in done.messages and not (learner.cwd / "started").exists(), done
    assert (learner.cwd / "full.yaml").read_text() == "egress: []\n"


# --- merging and differences ---

def test_learning_again_changes_nothing_and_adds_where_it_belongs(world, learner):
    names = sorted(world.site(f"{letter}-{world.number()}.sort.test").name for letter in "abc")
    a, b, c = (f"https://{name}/" for name in names)
    learner.learn(*fetch(b))
    learner.file.write_text(learner.text.replace("egress:\n", "egress:\n  # the one in the middle\n"))
    before = learner.text
    done = learner.learn(*fetch(b, b))
    assert learner.text == before and "learned 0 rules more" in done.messages, done
    learner.learn(*fetch(c, b))
    learner.learn(*fetch(a, c))
    learner.check()
    assert list(learner.rules) == names, learner.text
    assert "  # the one in the middle\n  - {action: allow, target: \"" + names[1] in learner.text
    assert [line for line in before.splitlines() if line not in learner.text.splitlines()] == []
    last = learner.text
    learner.learn(*fetch(c, b, a))
    assert learner.text == last


def test_a_port_more_of_a_name_that_is_there(world, learner, site):
    learner.learn(*fetch(f"https://{site.name}/"))
    learner.learn(*fetch(f"http://{site.name}/"))
    learner.check()
    done = learner.run("sh", "-c", f"curl -sS https://{site.name}/ http://{site.name}/")
    assert done.text.count('"host"') == 2, (done, learner.text)


def test_a_deny_of_the_policy_stays(world, learner, denied):
    learner.file.write_text(f"egress:\n  - {{action: deny, target: {denied.name}}}\n")
    before = learner.text
    done = learner.learn(*fetch(f"https://{denied.name}/"))
    assert learner.text == before and world.dns.count(denied.name) == 0, done


def test_the_difference_to_a_policy(world, learner, site, denied):
    learner.file.write_text(f"egress:\n  - {{action: allow, target: {site.name}, ports: [443]}}\n"
                            f"  - {{action: allow, target: unused.test, ports: [443]}}\n")
    before = learner.text
    done = learner.learn(*fetch(f"https://{site.name}/", f"https://{denied.name}/"), options=("--diff", "policy.yaml"))
    needed, unused = done.text.split("could go, nothing used it:\n")
    assert needed.startswith(f"would be needed:\n  - {{action: allow, target: \"{denied.name}\", ports: [tcp/443], comment: "), done
    assert "unused.test" in unused and "policy.yaml:3" in unused and site.name not in done.text and learner.text == before, done


# --- the file ---

@pytest.mark.parametrize("before", ["egress:\n  # mine\n  - {action: allow, target: before.test}\n", ""])
def test_a_full_disk_leaves_the_file_and_prints_the_policy(world, learner, site, before):
    """With room, the same command writes it."""
    who = world.user(learner.user)
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size=64k,uid={who.uid},gid={who.gid},mode=700", "none", learner.cwd], check=True)
    try:
        learner.file.write_text(before)
        shutil.chown(learner.file, learner.user)
        with contextlib.suppress(OSError), (learner.cwd / "fill").open("wb", buffering=0) as fill:
            while fill.write(b"x" * 4096):
                pass
        done = learner.learn(*fetch(f"https://{site.name}/"))
        assert done.code == 125 and "No space left" in done.messages and learner.text == before, done
        assert f'target: "{site.name}"' in done.text and sorted(p.name for p in learner.cwd.iterdir()) == ["fill", "policy.yaml"], done
        (learner.cwd / "fill").unlink()
        assert learner.learn(*fetch(f"https://{site.name}/")).code == 0 and site.name in learner.rules
        assert before in learner.text or not before
    finally:
        subprocess.run(["umount", "-l", learner.cwd], check=True)


def test_the_file_is_replaced_as_a_whole_with_its_owner_and_mode(world, learner, site):
    """Who has the old file open goes on reading the old policy."""
    before = "egress:\n  - {action: allow, target: before.test, ports: [443]}\n"
    learner.file.write_text(before)
    shutil.chown(learner.file, learner.user, learner.user)
    learner.file.chmod(0o640)
    with learner.file.open() as old:
        assert learner.learn(*fetch(f"https://{site.name}/")).code == 0 and set(learner.rules) >= {"before.test", site.name}
        assert old.read() == before
    st = learner.file.stat()
    assert st.st_mode & 0o7777 == 0o640 and st.st_uid == world.user(learner.user).uid
    assert [path.name for path in learner.cwd.iterdir()] == ["policy.yaml"]
    # A group that the user isn't in can't be kept: the user's own may do what anybody may.
    shutil.chown(learner.file, learner.user, "root")
    learner.file.chmod(0o664)
    assert learner.learn(*fetch(f"http://{site.name}/")).code == 0 and "tcp/80" in learner.text, learner.text
    assert learner.file.stat().st_mode & 0o7777 == 0o644 and learner.file.stat().st_gid == st.st_gid


@pytest.mark.parametrize("what, why", [("link", "it is a link"), ("hard link", "it has another name"), ("directory", "Is a directory"),
                                       ("closed", "its directory can't be written to")])
def test_what_cannot_be_replaced_is_refused_before_the_command_starts(world, what, why):
    learner = Learner(world, "weir-test")
    folder, other = learner.cwd / "folder", learner.cwd / "other.yaml"
    folder.mkdir()
    other.write_text("egress: []\n")
    path = folder / "policy.yaml"
    {"link": lambda: path.symlink_to(other), "hard link": lambda: path.hardlink_to(other), "directory": path.mkdir,
     "closed": lambda: (path.write_text(""), shutil.chown(path, learner.user), folder.chmod(0o555))}[what]()
    if what != "closed":
        shutil.chown(folder, learner.user)
    shutil.chown(other, learner.user)
    done = learner.learn("touch", "started", options=("-o", path))
    assert done.code == 2 and why in done.messages and not (learner.cwd / "started").exists(), done
    assert other.read_text() == "egress: []\n"


def test_a_descriptor_is_no_output(world):
    """Nothing could be read from it and replaced; nor is it open where the command has ended."""
    learner = Learner(world, "weir-test")
    run = f"exec '{world.weir_path}' learn --no-config -o"
    for output, why in (("/dev/fd/3 3>out", "it is a descriptor"), ("/proc/self/fd/3 3>out", "it is a descriptor"), (">(cat >out)", "it is a descriptor")):
        done = world.command("bash", "-c", f"{run} {output} -- touch started", user=learner.user, cwd=learner.cwd)
        assert done.code == 2 and why in done.messages and not (learner.cwd / "started").exists(), (output, done)


@pytest.mark.parametrize("before", ["egress:\n  - {action: allow, target: before.test, ports: [443]}\n", ""])
def test_what_a_person_edits_meanwhile_stays(world, learner, site, denied, before):
    """As an editor does it: another file in its place. A deny that comes meanwhile counts, and so does an allow."""
    other = world.site(f"other-{world.number()}.test")
    learner.file.write_text(before)
    shutil.chown(learner.file, learner.user)
    script = fetch(*(f"https://{one.name}/" for one in (site, denied, other)))[2] + "; echo ready; read line"
    with world.start([world.weir_path, "learn", "--no-config", "--upstream", "5.100.53.53", "-o", "policy.yaml", "--", "sh", "-c", script],
                     user=learner.user, cwd=learner.cwd) as started:
        assert started.line() == "ready"
        edited = f"egress:\n  # mine\n  - {{action: deny, target: {denied.name}}}\n  - {{action: allow, target: {site.name}}}\n"
        (learner.cwd / "new").write_text(edited)
        shutil.chown(learner.cwd / "new", learner.user)
        (learner.cwd / "new").rename(learner.file)
        done = started.wait(b"\n")
    assert done.code == 0, done
    learner.check()
    assert set(line for line in edited.splitlines()) <= set(learner.text.splitlines()), learner.text
    assert [rule["target"] for rule in yaml.safe_load(learner.text)["egress"]].count(site.name) == 1
    assert set(rule["target"] for rule in yaml.safe_load(learner.text)["egress"]) == {site.name, denied.name, other.name}, learner.text


def test_what_is_no_policy_any_more_stays(world, learner, site):
    with world.start([world.weir_path, "learn", "--no-config", "--upstream", "5.100.53.53", "-o", "policy.yaml", "--", "sh", "-c",
                      fetch(f"https://{site.name}/")[2] + "; echo ready; read line"], user=learner.user, cwd=learner.cwd) as started:
        assert started.line() == "ready"
        learner.file.write_text("egress: [unfinished")
        done = started.wait(b"\n")
    assert done.code == 125 and learner.text == "egress: [unfinished" and f'target: "{site.name}"' in done.text, done


# --- what was not seen ---

LOOK_UP = """
import socket, struct
server = [line.split()[1] for line in open("/etc/resolv.conf") if line.startswith("nameserver")][0]
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.settimeout(60); s.connect((server, 53))
for i in range(1100):
    s.send(struct.pack("!6H", i, 256, 1, 0, 0, 0) + b"\\5n%04d\\4many\\4test\\0\\0\\1\\0\\1" % i); s.recv(512)
"""
AT_ONCE = """
import socket, sys
flows = [socket.create_connection((sys.argv[1], 80)) for i in range(80)]
for f in flows: f.sendall(f"GET / HTTP/1.0\\r\\nHost: {sys.argv[1]}\\r\\n\\r\\n".encode())
for f in flows: assert f.recv(1)
"""


def test_what_was_not_seen_is_said(world, learner, site):
    """More different names in a window than the engine remembers. Many connections to one name are seen."""
    world.dns.add("*.many.test", "93.1.1.1")
    (learner.cwd / "window.yaml").write_text("limits: {event_window: 3600}\n")
    options = ("-o", "policy.yaml", "--policy", "window.yaml", "--quiet")
    done = learner.learn("/usr/bin/python3", "-IS", "-c", AT_ONCE, site.name, options=("-o", "policy.yaml", "--quiet"))
    assert done.code == 0 and "too many" not in done.messages + learner.text and "80 connections" in learner.text, (done, learner.text)
    learner.file.unlink()
    done = learner.learn("/usr/bin/python3", "-IS", "-c", LOOK_UP, options=options[2:])
    count = re.search(r"(\d+) connections and lookups were too many to be seen", done.messages)
    assert done.code == 0 and count and int(count[1]) >= 1100 - 1024, done
    assert f"# {count[1]} connections and lookups more were too many to be seen:\n# rules may be missing.\n" in done.text, done


# --- the smallest policy that a person would write ---

def test_a_profile_whose_hosts_were_all_used_takes_their_place(world, learner, site):
    pip = [rule["target"] for rule in yaml.safe_load((ROOT / "profiles/pip.yaml").read_text())["egress"]]
    for name in pip:
        world.site(name)
    learner.learn(*fetch(f"https://{pip[0]}/", f"https://{site.name}/"))
    assert set(learner.rules) == {pip[0], site.name} and "extends" not in learner.text, learner.text
    learner.file.unlink()
    learner.learn(*fetch(*(f"https://{name}/" for name in pip), f"https://{site.name}/"))
    learner.check()
    assert yaml.safe_load(learner.text)["extends"] == ["pip"] and set(learner.rules) == {site.name}, learner.text
    done = learner.run(*fetch(*(f"https://{name}/" for name in pip)))
    assert "refused" not in done.messages, done


def test_a_profile_that_is_named_is_extended(world, learner, site):
    learner.learn(*fetch(f"https://{site.name}/"), options=("-o", "policy.yaml", "--profile", "npm"))
    assert yaml.safe_load(learner.text)["extends"] == ["npm"] and set(learner.rules) == {site.name}, learner.text
    learner.check()


def test_what_a_person_decides_is_a_comment(world, learner):
    """A wildcard with its siblings, telemetry with its source, names that were only looked up."""
    n = world.number()
    names = [world.site(f"{letter}.cdn-{n}.test").name for letter in "abc"]
    world.site("o1.ingest.sentry.io")
    only = world.site(f"only-{n}.test").name
    learner.learn("sh", "-c", fetch(*(f"https://{name}/" for name in (*names, "o1.ingest.sentry.io")))[2] + f"; getent ahosts {only}")
    learner.check()
    assert set(learner.rules) == set(names), learner.text
    notes = [line.lstrip("# ") for line in learner.text.splitlines() if line.startswith("#")]
    assert f'- {{action: allow, target: "*.cdn-{n}.test", ports: [tcp/443]}}' in notes, learner.text
    assert f"Not allowed, for you to decide: instead of {', '.join(names)}" in notes
    assert any("telemetry of Sentry, https://" in line for line in notes) and any('target: "o1.ingest.sentry.io"' in line for line in notes)
    assert only in notes
    # what is proposed can be taken as it stands there
    [proposal] = [line for line in notes if "*.cdn" in line]
    learner.file.write_text(f"egress:\n  {proposal}\n")
    learner.check()


def test_the_list_of_telemetry_has_a_source_in_each_line():
    lines = [line for line in (ROOT / "profiles/telemetry.txt").read_text().splitlines() if not line.startswith("#")]
    assert len(lines) > 15 and all(re.fullmatch(r"[a-z0-9.-]+\.[a-z]+ +# [A-Z][^#,]+, https://\S+", line) for line in lines), lines


# --- programs ---

def test_a_page_in_chromium(world, learner):
    if not CHROMIUM:
        pytest.skip("needs chromium")
    n = world.number()
    main, part = world.site(f"page-{n}.test"), world.site(f"part-{n}.test")
    folder = world.workdir()
    world.web.mount(f"/page-{n}", folder)
    (folder / "index.html").write_text(f'<body><script src="https://{part.name}/page-{n}/part.js"></script></body>')
    (folder / "part.js").write_text('document.body.append("the part is " + "here")')
    argv = [CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
            "--disable-component-update", "--disable-sync", "--disable-dev-shm-usage", "--ignore-certificate-errors",
            "--user-data-dir=profile", "--dump-dom", f"https://{main.name}/page-{n}/index.html"]
    assert "the part is here" in learner.learn(*argv).text
    learner.check()
    assert {main.name, part.name} <= set(learner.rules), learner.text
    assert "the part is here" in learner.run(*argv).text


NOTEBOOK = """
import nbclient, nbformat
nb = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell("import urllib.request as u; print(u.urlopen('https://{name}/').read())")])
print(nbclient.execute(nb).cells[0].outputs[0].text)
"""


def test_a_notebook(world, learner, site):
    pytest.importorskip("nbclient")
    argv = ("/usr/bin/python3", "-c", NOTEBOOK.format(name=site.name))
    done = learner.learn(*argv, options=("-o", "policy.yaml", "--home", "tmp"))
    assert '"host"' in done.text, done
    learner.check()
    assert learner.rules == {site.name: ["tcp/443"]}, learner.text
    done = learner.world.run(*argv, options=("--no-config", "--policy", "policy.yaml", "--home", "tmp"), user=learner.user, cwd=learner.cwd)
    assert '"host"' in done.text, done


def test_git(world, learner, site):
    world.repository()
    assert learner.learn("git", "clone", "-q", f"https://{site.name}/git/tree.git", "one").code == 0
    learner.check()
    assert learner.rules == {site.name: ["tcp/443"]} and learner.run("git", "clone", "-q", f"https://{site.name}/git/tree.git", "two").code == 0


# --- hostile ---

HOSTILE = ['x"}, {action: allow, target: "evil.test', "a\n  - {action: allow, target: evil.test}", "]}\n#", "*/ --> ' %s \\u000a", "\x1b[2J",
           "a: b # c", "- x", "&a *a !!python/object"]


@pytest.mark.parametrize("word", HOSTILE)
def test_names_and_programs_inject_nothing(world, learner, site, word):
    """A process calls itself @word, looks it up, shows it as a server name and as a Host; the policy is a list of one rule all the same."""
    script = f"""
import ctypes, socket, ssl, struct
word = {word!r}
ctypes.CDLL(None).prctl(15, word.encode()[:15], 0, 0, 0)
s = socket.create_connection(("{site.name}", 443), 20)
c = ssl.create_default_context(); c.check_hostname = False; c.verify_mode = 0
c.wrap_socket(s, server_hostname="{site.name}").sendall(b"GET / HTTP/1.0\\r\\nHost: {site.name}\\r\\n\\r\\n")
raw = word.encode()[:63]
query = struct.pack("!6H", 7, 256, 1, 0, 0, 0) + bytes([len(raw)]) + raw + b"\\4test\\0" + struct.pack("!2H", 1, 1)
u = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); u.settimeout(20)
server = [line.split()[1] for line in open("/etc/resolv.conf") if line.startswith("nameserver")][0]
u.sendto(query, (server, 53)); u.recv(512)
for name in (word.encode(),):
    h = socket.create_connection(("{site.name}", 80), 20)
    h.sendall(b"GET / HTTP/1.1\\r\\nHost: " + name.replace(b"\\n", b"") + b"\\r\\n\\r\\n"); h.recv(4096)
"""
    done = learner.learn("/usr/bin/python3", "-IS", "-c", script)
    assert done.code == 0, done
    learner.check()
    document = yaml.safe_load(learner.text)
    assert list(document) == ["egress"] and [rule["target"] for rule in document["egress"]] == [site.name], learner.text
    assert document["egress"][0]["ports"] in (["tcp/443"], ["tcp/80", "tcp/443"]) and "\x1b" not in learner.text
    assert all(line.startswith(("#", "egress:", "  - {action: allow, target: ")) for line in learner.text.splitlines()), learner.text


# --- from what was stored ---

def test_what_a_store_has_beside_the_policy_in_force(world, learner, site, denied):
    """What was refused would be needed, what nothing used could go; nothing runs."""
    learner.file.write_text(f"egress:\n  - {{action: allow, target: {site.name}, ports: [443]}}\n"
                            f"  - {{action: allow, target: unused.test, ports: [443]}}\n")
    world.run(*fetch(f"https://{site.name}/", f"https://{denied.name}/"), user=learner.user, cwd=learner.cwd,
              options=("--no-config", "--policy", "policy.yaml", "--state-dir", "store", "--id", "a-run"))
    done = world.weir("learn", "--from", "store", "--since", "7d", "--diff", "policy.yaml", user=learner.user, cwd=learner.cwd)
    needed, unused = done.text.split("could go, nothing used it:\n")
    assert done.code == 0 and f'target: "{denied.name}", comment: "refused 2 times"' in needed and site.name not in done.text, done
    assert "unused.test" in unused and "policy.yaml:3" in unused and LOUD not in done.messages, done
    done = world.weir("learn", "--from", "store", "--sandbox", "a-run", user=learner.user, cwd=learner.cwd)
    assert [rule["target"] for rule in yaml.safe_load(done.text)["egress"]] == [site.name], done
    done = world.weir("learn", "--from", "store", "--sandbox", "another", user=learner.user, cwd=learner.cwd)
    assert yaml.safe_load(done.text)["egress"] == [], done


@pytest.mark.parametrize("options, why", [(("--from", "nowhere"), "nowhere"), (("--from", "x", "--", "true"), "one argument too many"),
                                          (("--since", "7d", "--", "true"), "--since goes with --from alone")])
def test_a_store_that_is_asked_wrongly(world, learner, options, why):
    done = world.weir("learn", *options, user=learner.user, cwd=learner.cwd)
    assert done.code in (2, 125) and why in done.messages and done.text == "", done
