# SPDX-License-Identifier: Apache-2.0
"""The profiles that ship: each compiles, each host has the tool that needs it and where that is written, and
`policy check` says what Weir can't hold them to."""
import pathlib
import re

import pytest
import yaml

PROFILES = pathlib.Path(__file__).resolve().parents[3] / "profiles"
NAMES = sorted(path.stem for path in PROFILES.glob("*.yaml"))
# by the words of whoever asked for these
DEFAULT = {"pubmed.ncbi.nlm.nih.gov", "eutils.ncbi.nlm.nih.gov", "api.semanticscholar.org", "api.openalex.org", "clinicaltrials.gov",
           "rest.uniprot.org", "ebi.ac.uk", "pypi.org", "files.pythonhosted.org", "github.com", "raw.githubusercontent.com",
           "api.github.com"}
NOTEBOOK = {"huggingface.co", "cdn-lfs.huggingface.co"}
AGENTS = ("aider", "claude-code", "codex", "gemini-cli", "opencode")
SOURCED = ("apt", "cargo", "chromium", "github", "go", "model-apis", "npm", "pip", *AGENTS)
READ_ONLY = "a program with a token can write there, and Weir can't see that in TLS"


def rules(name):
    return yaml.safe_load((PROFILES / f"{name}.yaml").read_text())["egress"]


def test_every_profile_is_known_and_listed(world):
    assert set(NAMES) == {"none", "default", "notebook", *SOURCED}
    assert {p["name"] for p in world.weir("profile", "list", "--json").json()} == set(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_it_compiles_as_it_stands_there(world, name):
    done = world.weir("policy", "check", "--profile", name)
    assert done.code == 0 and "error" not in done.messages and "warning" not in done.messages, done
    assert world.weir("profile", "show", name).text == (PROFILES / f"{name}.yaml").read_text()


@pytest.mark.parametrize("name", NAMES)
def test_each_host_is_one_host_with_its_ports_and_the_reason(name):
    for rule in rules(name):
        assert set(rule) == {"action", "target", "ports", "comment"}, rule
        assert rule["action"] == "allow" and re.fullmatch(r"[a-z0-9-]+(\.[a-z0-9-]+)+", rule["target"]), rule
        assert rule["ports"] == (["tcp/80", "tcp/443"] if name == "apt" else ["tcp/443"]), rule
        assert len(rule["comment"]) > 10, rule


@pytest.mark.parametrize("name", SOURCED)
def test_each_host_has_a_source(name):
    for rule in rules(name):
        tool, _, source = rule["comment"].partition(", https://")
        assert tool and re.fullmatch(r"[a-z0-9.-]+/\S*", source), rule
    targets = [rule["target"] for rule in rules(name)]
    assert len(targets) == len(set(targets)) > (name != "aider")


def test_those_that_were_asked_for_are_what_was_asked_for():
    assert {rule["target"] for rule in rules("default")} == DEFAULT
    assert {rule["target"] for rule in rules("notebook")} == NOTEBOOK and rules("none") == []


@pytest.mark.parametrize("name, hosts", [
    ("default", {"pypi.org", "github.com", "api.github.com"}), ("notebook", {"pypi.org", "github.com", "api.github.com", "huggingface.co"}),
    ("pip", {"pypi.org"}), ("npm", {"registry.npmjs.org", "registry.yarnpkg.com"}), ("cargo", {"crates.io"}),
    ("github", {"github.com", "api.github.com"})])
def test_check_says_what_can_be_written_to(world, name, hosts):
    """As hints: what ships is meant; in a file of one's own it is a warning."""
    done = world.weir("policy", "check", "--profile", name)
    said = set(re.findall(rf"hint: '([^']+)' is a known way out \([^)]+\): {READ_ONLY}", done.messages))
    assert said == hosts, done
    file = world.folder / f"own-{name}.yaml"
    file.write_text((PROFILES / f"{name}.yaml").read_text().replace("extends: [default]\n", ""))
    done = world.weir("policy", "check", file)
    assert set(re.findall(rf"warning: '([^']+)' is a known way out \([^)]+\): {READ_ONLY}", done.messages)) == {
        host for host in hosts if host in {rule["target"] for rule in rules(name)}}, done


def test_check_says_what_takes_files_and_what_fetches(world):
    done = world.weir("policy", "check", "--profile", "model-apis")
    for host in ("api.openai.com", "api.anthropic.com", "api.mistral.ai", "generativelanguage.googleapis.com"):
        assert f"hint: '{host}' is a known way out ({host}): its file upload" in done.messages
    assert "'proxy.golang.org' is a known way out" in world.weir("policy", "check", "--profile", "go").messages


def test_check_of_a_file_says_nothing_about_what_it_extends(world):
    file = world.folder / "extends.yaml"
    file.write_text("extends: [default]\negress: [{action: allow, target: gist.github.com}, {action: allow, target: '*.own.test'}]\n")
    done = world.weir("policy", "check", file)
    assert done.code == 0 and "built-in:" not in done.messages and done.messages.count("\n") == 2, done
    assert "warning: 'gist.github.com' is a known way out" in done.messages and "hint: '*.own.test' covers" in done.messages, done
    assert {f["file"] for f in world.weir("policy", "check", "--json", file).json()["faults"]} == {str(file)}


def test_the_threat_model_says_so_too():
    text = " ".join((PROFILES.parent / "docs/threat-model.md").read_text().split())
    assert "Hosts that a profile means to be read only (pypi.org, github.com) can be written to" in text


def test_a_run_with_a_profile_is_not_bothered_with_it(world):
    done = world.weir("run", "--no-config", "--profile", "github", "--", "true")
    assert done.code == 0 and "way out" not in done.messages, done


# --- agents ---

@pytest.mark.parametrize("name", AGENTS)
def test_an_agents_profile_says_when_it_was_read_and_what_it_can_leak(world, name):
    text = world.weir("profile", "show", name).text
    assert re.search(r"Read\s(# )?on 2026-11-23", text.replace("\n", " ")) and "# What can leak: " in text, text
    run = yaml.safe_load(text)["run"]
    for key in run:
        assert re.search(rf"^  {key}: \[.*\]  # https://", text, re.M), key
    said = world.weir("policy", "explain", "--profile", name, "a.test").text
    for key in run["pass_env"]:
        assert re.search(rf"^the profile {name} gives `weir run`: is passed, where it is set,.*\b{key}\b", said, re.M), said
    assert f"# Besides, the profile {name} gives `weir run`: " in world.weir("policy", "show", "--profile", name).text


KEYS = ("ANTHROPIC_API_KEY", "OPENAI_API_KEY", "GEMINI_API_KEY", "GITHUB_TOKEN")
TAKES = {"claude-code": {"ANTHROPIC_API_KEY"}, "codex": {"OPENAI_API_KEY"}, "gemini-cli": {"GEMINI_API_KEY"},
         "opencode": set(KEYS[:3]), "aider": set(KEYS[:3])}
AGENT = """
for key in {keys}; do eval "[ -z \\"\\$$key\\" ] || echo key $key"; done
for place in {own}; do eval "echo made > \\"\\$$place/made\\""; done
cat ~/.claude/.credentials.json ~/.codex/auth.json ~/.claude/settings.json
for file in ~/.claude/settings.json ~/.codex/auth.json ~/.bashrc ~/planted; do (echo planted > $file) 2>/dev/null; done
for host in {hosts}; do curl -so /dev/null --max-time 20 "https://$host/" && echo reached $host; done; true
"""


@pytest.mark.parametrize("name", AGENTS)
def test_an_agent_has_its_hosts_its_key_and_a_place_of_its_own(world, user, denied, name):
    rest = yaml.safe_load((PROFILES / f"{name}.yaml").read_text())
    own, hosts = rest["run"].get("own", []), [rule["target"] for rule in rest["egress"]]
    for host in hosts:
        world.site(host)
    home, project = world.workdir(user), world.workdir(user)
    for file, text in ((".claude/.credentials.json", "needle"), (".claude/settings.json", "settings"), (".codex/auth.json", "needle")):
        (home / file).parent.mkdir(exist_ok=True)
        (home / file).write_text(text)
    world.command("chown", "-R", f"{user}:", home)
    script = AGENT.format(keys=" ".join(KEYS), own=" ".join(own), hosts=" ".join([*hosts, denied.name]))
    done = world.run("sh", "-c", script, options=("--profile", name), user=user, cwd=project,
                     env={"HOME": str(home), **dict.fromkeys(KEYS, "needle-key")})
    lines = done.text.replace("settings", "").split("\n")
    assert {line[4:] for line in lines if line.startswith("key ")} == TAKES[name], done
    assert {line[8:] for line in lines if line.startswith("reached ")} == set(hosts), done
    assert world.dns.count(denied.name) == 0 and "needle" not in done.text and "settings" in done.text, done
    for place in own:
        assert (home / f".local/state/weir/{name}/{place}/made").read_text() == "made\n"
    assert "planted" not in "".join(p.read_text() for p in home.rglob("*") if p.is_file()) and not (home / "planted").exists()
