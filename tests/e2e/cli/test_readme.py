# SPDX-License-Identifier: Apache-2.0
"""What README, the manual and docs/host-firewall.md show can be done as it stands there: options, policy, questions."""
import pathlib
import re
import shlex
import shutil

import pytest

README = (pathlib.Path(__file__).resolve().parents[3] / "README.md").read_text(encoding="utf-8")
LINES = re.findall(r"^    (weir .*)$", README, re.M)
# a command of the host's is test_cli_run.py's
RUNS = [line for line in LINES if line.startswith("weir run") and "--cgroup" not in line]
ROOT = pathlib.Path(__file__).resolve().parents[3]
MANUAL = [line for page in sorted((ROOT / "man").iterdir()) for line in
          re.findall(r"^(?:\.Dl )?(?:\$ )?(weir (?:run|learn|policy) .*)$", page.read_text(encoding="utf-8").replace("\\e\n", ""), re.M)]
MANUAL_RUNS = [line for line in MANUAL if " -- " in line and "--cgroup" not in line]
POLICY = re.search(r"^    # policy\.yaml\n((?:    .*\n)+)", README, re.M).group(1)


@pytest.fixture
def project(world, user):
    """A working directory with README's policy, below a home directory with a cache and a key."""
    folder = world.workdir(user)
    (folder / "policy.yaml").write_text(re.sub(r"^    ", "", POLICY, flags=re.M))
    cache = world.workdir(user) / ".cache" / "agent"
    cache.mkdir(parents=True)
    (cache.parents[1] / ".ssh").mkdir()
    (cache.parents[1] / ".ssh" / "id_deploy").touch()
    (cache.parents[1] / "Documents").mkdir()
    (folder / ".env").write_text("KEY=1\n")
    shutil.chown(folder / "policy.yaml", user)
    return folder, str(cache.parents[1])


def test_the_recipes_are_found():
    assert len(RUNS) >= 6 and len(LINES) - len(RUNS) >= 2, LINES


@pytest.mark.parametrize("line", RUNS + MANUAL_RUNS)
def test_a_recipe_starts_its_command(world, user, project, line):
    folder, home = project
    words = [word.replace("~", home).replace("/etc/company/egress.yaml", "policy.yaml") for word in shlex.split(line)[1:]]
    done = world.weir(*words[:words.index("--")], "--upstream", "5.100.53.53", "--", "true", cwd=folder,
                      env={"HOME": home}, user=user)
    assert done.code == 0 and (done.out == b"" or "--diff" in words), done


def test_what_was_refused_is_decided_later(world, user, project):
    keep, *rest = [line for line in LINES if "--state-dir refused" in line]
    words = shlex.split(keep)[1:]
    done = world.weir(*words[:words.index("--")], "--upstream", "5.100.53.53", "--", "getent", "hosts", "refused.test", cwd=project[0], user=user)
    assert done.code == 2, done
    for line in rest:
        done = world.weir(*shlex.split(line)[1:], *(["--yes"] if "accept" in line else []), cwd=project[0], user=user)
        assert done.code == 0 and "refused.test" in done.text + done.messages, done
    assert len(rest) == 3 and "refused.test" in (project[0] / "policy.yaml").read_text()


@pytest.mark.parametrize("line", [line for line in LINES if line.startswith("weir policy")])
def test_a_question_about_the_policy_is_answered(world, user, project, line):
    done = world.weir(*shlex.split(line)[1:], cwd=project[0], user=user)
    assert done.code == 0, done
    if "explain" in line:
        assert "allow" in done.text and "deny" in done.text and "policy.yaml" in done.text, done


@pytest.mark.parametrize("line", [line for line in MANUAL if line.startswith("weir policy")])
def test_a_question_of_the_manual_s_is_answered(world, user, project, line):
    done = world.weir(*shlex.split(line)[1:], cwd=project[0], user=user)
    assert done.code == (1 if "diff" in line else 0) and done.text, done


def test_a_policy_with_a_name_is_what_host_firewall_says(world):
    user = "weir-test"
    page = (ROOT / "docs/host-firewall.md").read_text(encoding="utf-8")
    text = re.search(r"^    # /etc/weir/profiles/team\.yaml\n((?:    .*\n)+)", page, re.M)[1]
    home = world.workdir(user)
    profiles = home / ".config/weir/profiles"
    profiles.mkdir(parents=True)
    (profiles / "team.yaml").write_text(re.sub(r"^    ", "", text, flags=re.M))
    for path in (home / ".config", profiles.parent, profiles, profiles / "team.yaml"):
        shutil.chown(path, user)
    asks = re.findall(r"^    weir (policy .*)$", page, re.M)
    done = [world.weir(*shlex.split(line), cwd=home, user=user, env={"HOME": str(home)}) for line in asks if "team" in line]
    assert [one.code for one in done] == [0, 0], done
    assert re.findall(r"^\S+: (allow|deny)$", done[1].text, re.M) == ["allow", "deny", "deny"], done


JAVA = 'public class H { public static void main(String[] a) throws Exception { new java.net.URL(a[0]).openStream(); } }'
PIP = "/usr/bin/python3 -m pip download --disable-pip-version-check --retries 1 --no-cache-dir six"


@pytest.mark.parametrize("who, command", [
    ("git", "git ls-remote https://refused.test/x"),
    ("curl", "curl -sS https://refused.test/"),
    ("pip", PIP),
    ("npm", "npm view six --fetch-retries=0 --registry=https://refused.test/"),
    ("Java", "java H.java https://refused.test/"),
    ("go", "env GO111MODULE=on GOPROXY=https://refused.test go mod download x.test/y@v1.0.0"),
], ids=lambda value: value.split(" ")[0])
def test_a_refused_name_reads_as_readme_says(world, who, command):
    row = next(line for line in README.splitlines() if line.endswith("| no rule allows the name |"))
    words = re.search(rf"`([^`]+)` \([^)]*\b{who}\b", row).group(1)
    folder = world.workdir()
    (folder / "H.java").write_text(JAVA)
    done = world.run(*shlex.split(command), cwd=folder, env={"HOME": str(folder)})
    assert done.code != 0 and words in done.text + done.messages, done
    assert "no rule allows it" in done.messages, done


def test_the_session_is_what_is_said(world, user):
    """How often a name is asked for is the resolver's choice."""
    command, *shown = re.search(r"^    \$ (weir run .*\n(?:    .*\n)+)", README, re.M).group(1).replace("\n    ", "\n").splitlines()
    words = shlex.split(command)[1:]
    done = world.weir(*words[:words.index("--")], "--upstream", "5.100.53.53", *words[words.index("--"):], cwd=world.workdir(user), user=user)
    said = [line for line in done.messages.splitlines() if "working directory" not in line]
    assert done.code == 6 and done.out == b"", done
    assert [re.sub(r"\d times?", "N", line) for line in said] == [re.sub(r"\d times?", "N", line) for line in shown]


def test_the_manuals_worked_example_is_decided_as_it_says(world):
    page = (pathlib.Path(__file__).resolve().parents[3] / "man" / "weir-policy.5").read_text(encoding="utf-8")
    shown = re.search(r"^With this policy\n\.Bd[^\n]*\n(.*?)^\.Ed\n(.*?)^\.El", page, re.M | re.S)
    rows = re.findall(r"^\.It (\S+) Ta (allow|deny) Ta", shown[2], re.M)
    folder = world.workdir()
    (folder / "policy.yaml").write_text(shown[1])
    done = world.weir("policy", "explain", "--policy", "policy.yaml", *(asked for asked, _ in rows), cwd=folder)
    assert len(rows) >= 6 and re.findall(r"^(\S+): (allow|deny)$", done.text, re.M) == rows, done
