# SPDX-License-Identifier: Apache-2.0
"""weir.isolated_run: with a daemon and without, closed where it can't be guarded, and gone when its caller is."""
import json
import subprocess

import pytest
from seccomp import refuse

from world.program import is_alive
from world.sidecar import wait_for

ALLOWED = ("huggingface.co", "pubmed.ncbi.nlm.nih.gov", "pypi.org")
FETCH = "import sys, urllib.request\nfor url in sys.argv[1:]:\n try: print(urllib.request.urlopen(url, timeout=20).status)\n" \
        " except Exception as e: print(type(e).__name__)\n"
EVIL = "api.evil.example"


@pytest.fixture(scope="session")
def hosts(world):
    """Sites of the profiles, and two that no profile has."""
    return {name: world.site(name) for name in (*ALLOWED, EVIL, "mine.test")}


@pytest.fixture
def state(world, user):
    return {"WEIR_STATE_DIR": str(world.workdir(user) / "state")}


def test_a_notebook_reaches_its_hosts_and_evil_is_refused_at_once(world, sdk, hosts, user, state):
    """The refusal is a row and a review task, of the analysis; the allowed host is the control."""
    with world.capture() as capture:
        [[code, out, refused, tested, secret], [denies], [tasks], [twin, tested_too]] = sdk(f"""
words = [sys.executable, "-c", {FETCH!r}, "https://huggingface.co/", "https://{EVIL}/"]
r = weir.isolated_run(words, egress_profile="notebook", analysis_id="analysis-8", upstream=upstream)
say(r.returncode, r.stdout, [x.name for x in r.refused], [r.self_test.allowed, r.self_test.duration_ms], "weir-self-test" in r.stderr)
say([(d.remote_ip, d.name, d.packets) for d in weir.get_recent_egress_denies(hours=24) if d.name == {EVIL!r}])
say(json.loads(subprocess.check_output([os.environ["WEIR_PROGRAM"], "review", "list", "--json", "--sandbox", "analysis-8"])))
a = asyncio.run(aio.isolated_run(words, "notebook", "analysis-8", repin_interval=60, upstream=upstream))
say(a.stdout, a.self_test is not None)
""", user=user, env=state)
        arrived = {p.dst for p in capture.packets()}
    assert (code, out, secret) == (0, "200\nURLError\n", False) and EVIL in refused
    assert tested[0] == "huggingface.co:443" and tested[1] > 0
    assert [row[:2] for row in denies] == [[None, EVIL]] and EVIL in [task["destination"] for task in tasks]
    assert (twin, tested_too) == (out, True)
    assert not {hosts[EVIL].v4, hosts[EVIL].v6} & arrived and {hosts["huggingface.co"].v4, hosts["huggingface.co"].v6} & arrived


@pytest.mark.parametrize("what, words", [
    ("no netfilter", ""),
    ("the denied host is reached", "self_test_denied='pypi.org:443'"),
    ("the allowed host is not reached", f"self_test_allowed='{EVIL}:443'"),
])
def test_what_cannot_be_guarded_does_not_run(world, sdk, hosts, user, state, what, words):
    folder = world.workdir(user)
    code = (refuse("netfilter") if not words else "") + f"""
for run in (weir.isolated_run, lambda *w, **k: asyncio.run(aio.isolated_run(*w, **k))):
    try:
        run(["touch", "begun"], "default", upstream=upstream, {words})
    except weir.EgressSetupError as error:
        say(error.status, error.reason)
"""
    said = sdk(code, cwd=folder, user=user, env=state)
    assert len(said) == 2 and all(status == "failed_safety_setup" and reason for status, reason in said)
    assert list(folder.iterdir()) == []
    sdk(f"weir.isolated_run(['touch', 'begun'], 'default', upstream=upstream)", cwd=folder, user=user, env=state)
    assert [path.name for path in folder.iterdir()] == ["begun"]


def test_a_command_cannot_say_that_it_was_not_guarded(sdk, hosts, state):
    """What was said is taken before it begins; and one that ends with Weir's own status has run all the same."""
    said = sdk("""
r = weir.isolated_run(["sh", "-c", "for p in /tmp/weir-self-test-*/*; do echo failed x >$p; echo failed x >&2; done; exit 125"], upstream=upstream)
say(r.returncode, r.stderr, r.self_test is not None)
""", env={**state, "TMPDIR": "/tmp"})
    assert said == [[125, "failed x\n", True]]


@pytest.mark.parametrize("words", ["self_test_denied='pypi.org:443'", "env={'PATH': '/nowhere'}, hide=[os.path.dirname(sys.executable)]"],
                         ids=["failed", "nothing said"])
@pytest.mark.parametrize("capture", [True, False])
def test_without_a_verdict_there_is_no_result(world, sdk, hosts, state, words, capture):
    """Whether standard error is captured or not. That it is the caller's without is the control."""
    said = sdk(f"""
how = dict(upstream=upstream, capture={capture})
r = weir.isolated_run(["/bin/true"], **how)
say(r.self_test is not None, r.stderr)
try:
    say(weir.isolated_run(["/bin/true"], **how, {words}).returncode)
except weir.EgressSetupError as error:
    say(error.status)
say([name for name in os.listdir(os.environ["TMPDIR"]) if "self-test" in name])
""", env={**state, "TMPDIR": str(world.workdir())})
    assert said == [[True, ""], ["failed_safety_setup"], [[]]]


@pytest.mark.parametrize("guarded", [False, True])
def test_without_the_filter_the_self_test_fails(world, sdk, hosts, guarded):
    """The same probe, in a world that answers NXDOMAIN for the names that nobody has."""
    code = f"""
from weir.egress import DENIED, PROBE
from weir._verdict import Verdict
with Verdict(None) as verdict:
    words = [sys.executable, "-IS", PROBE, verdict.path, "pypi.org:443", DENIED, "--", "/bin/echo", "'begun'"]
    if {guarded}:
        done = weir.run(words, allow=["pypi.org"], upstream=upstream, rw=[verdict.directory])
    else:
        done = subprocess.run(words, stdout=subprocess.PIPE, text=True)
say(done.stdout, verdict.said.decode())
"""
    [[out, said]] = sdk(code, resolv_conf=True)
    if guarded:
        assert out == "'begun'\n" and said.startswith("ok ")
    else:
        assert out == "" and said.startswith("failed no filter refuses what is sent to 203.0.113.1")


def test_words_that_isolated_run_decides_are_faults(sdk, hosts, state):
    """Nothing is overwritten: neither profile and id, nor a policy that another word adds to. The self-test is refused in each run."""
    said = sdk("""
policy = {"egress": [{"action": "allow", "target": "mine.test", "ports": [443]}]}
for words in (dict(profile="none", id="x"), dict(policy="file.yaml", repin_interval="6h"),
              dict(policy={"egress": [], "dns": "live"}, repin_interval="6h"), dict(fail_on_deny=True)):
    for run in (weir.isolated_run, lambda *w, **k: asyncio.run(aio.isolated_run(*w, **k))):
        try:
            say(run(["true"], upstream=upstream, **words).returncode)
        except weir.InputError as error:
            say(error.faults)
for policy in (policy, weir.NetworkPolicy.from_wire(policy)):
    r = weir.isolated_run(["getent", "hosts", "mine.test"], policy=policy, repin_interval="6h", upstream=upstream)
    say(r.returncode)
say([r.returncode for r in [weir.isolated_run(["getent", "hosts", "mine.test"], upstream=upstream)]])
""", env=state)
    assert [len(faults[0]) for faults in said[:8]] == [2, 2, 1, 1, 1, 1, 1, 1]
    assert said[8:] == [[0], [0], [[2]]]


def test_what_the_self_test_sent_is_not_the_command_s(sdk, hosts, state):
    said = sdk("""
r = weir.isolated_run(["sh", "-c", "exit 3"], upstream=upstream)
say(r.returncode, len(r.refused), bool(r.report["refusals"]))
for command in ("exit 3", "getent hosts denied.test; exit 3"):
    try:
        weir.isolated_run(["sh", "-c", command], upstream=upstream, check=True)
    except weir.Refused as error:
        say("refused", [one.name for one in error.result.refused])
    except subprocess.CalledProcessError as error:
        say("failed", error.returncode)
""", env=state)
    assert said == [[3, 0, True], ["failed", 3], ["refused", ["denied.test"]]]


@pytest.mark.parametrize("user", ["root"])
def test_without_a_daemon_a_user_and_a_group_are_entered_before(world, sdk, hosts, tree, user, state):
    group = tree.cgroup("job")
    started = sdk.start(f"""
r = weir.isolated_run(["sh", "-c", "id -u; getent hosts {EVIL}; read line"], uid=61990, cgroup={str(group.path)!r},
                      socket="/nowhere.sock", analysis_id="other", upstream=upstream, cwd="/", capture=False)
say([d.name for d in weir.get_recent_egress_denies() if d.name == {EVIL!r}])
""", env=state)
    assert started.line() == "61990", started.wait()
    assert (group.path / "cgroup.procs").read_text().split()
    done = started.wait(input=b"\n")
    assert done.code == 0 and json.loads(done.text.splitlines()[-1]) == [[EVIL]], done


class OnHost:
    """Programs with the package on the daemon's host."""

    def __init__(self, sdk, daemon):
        self.sdk, self.daemon = sdk, daemon
        self.env = {**daemon._env, **sdk.environment({"WEIR_PROGRAM": str(daemon.program)}), "HOME": "/root",
                    "SSL_CERT_FILE": str(sdk.world.ca.cert)}

    def start(self, code):
        return subprocess.Popen(self.daemon.host.ns.command(*self.sdk.argv(code)), env=self.env, cwd="/", stdout=subprocess.PIPE,
                                stderr=subprocess.PIPE, start_new_session=True)

    def __call__(self, code):
        process = self.start(code)
        out, err = process.communicate(timeout=60)
        assert process.returncode == 0, err.decode()
        return [json.loads(line) for line in out.decode().splitlines()]


@pytest.fixture
def on_host(sdk, host):
    return OnHost(sdk, host.daemon("--state-dir", host.folder / "state"))


def test_under_the_daemon_a_user_is_guarded_and_let_go(world, on_host, host, hosts):
    uid = 61000 + world.number()
    [[code, out, uids, tested], [left], [closed]] = on_host(f"""
words = [sys.executable, "-c", "import os\\nprint(os.getuid())\\n" + {FETCH!r}, "https://huggingface.co/", "https://{EVIL}/"]
r = weir.isolated_run(words, "notebook", analysis_id="job", uid={uid})
say(r.returncode, r.stdout, [x.name for x in r.refused], r.self_test.allowed)
say([one["id"] for one in weir.Client().sandboxes()])
try:
    weir.isolated_run(["true"], "notebook", uid={uid}, self_test_denied="pypi.org:443", self_test_allowed="")
    say("ran")
except weir.EgressSetupError as error:
    say(error.status)
""")
    assert (code, out, left) == (0, f"{uid}\n200\nURLError\n", []) and EVIL in uids and tested == "huggingface.co:443"
    assert closed == "failed_safety_setup"


def test_under_the_daemon_nothing_outlives_its_caller(world, on_host, tree):
    """SIGKILL of the caller: the process ends, the group goes, the daemon lets go."""
    group = tree.path / "job"
    process = on_host.start(f"weir.isolated_run(['sh', '-c', 'while :; do sleep 1; done'], 'none', analysis_id='job', cgroup={str(group)!r}, uid=61991)")

    def members():
        return [int(pid) for pid in (group / "cgroup.procs").read_text().split()] if group.is_dir() else []
    pids = wait_for(lambda: on_host.daemon.names() == ["job"] and members())
    process.kill()
    process.communicate()
    wait_for(lambda: not any(is_alive(pid) for pid in pids) and not group.exists() and on_host.daemon.names() == [])
