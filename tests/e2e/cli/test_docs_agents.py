# SPDX-License-Identifier: Apache-2.0
"""What docs/agents.md shows can be done as it stands there."""
import json
import pathlib
import re
import shlex
import shutil

import pytest
import yaml

ROOT = pathlib.Path(__file__).resolve().parents[3]
TEXT = (ROOT / "docs/agents.md").read_text()
SERVERS = re.findall(r'^```json\n({"command".*?)^```', TEXT, re.M | re.S)
[SHELL] = re.findall(r"^```sh\n(.*?)^```", TEXT, re.M | re.S)
STARTS = re.findall(r"^    (weir (?:run|learn) .*)$", TEXT, re.M)


def programs(world, user, **texts):
    """A directory for PATH with weir and these scripts."""
    folder = world.workdir(user)
    (folder / "weir").write_text(f'#!/bin/sh\nexec {world.weir_path} "$@"\n')
    for name, text in texts.items():
        (folder / name).write_text(text)
    for file in folder.iterdir():
        file.chmod(0o755)
    return folder


def run(world, user, argv, path):
    home = world.workdir(user)
    (home / "Documents").mkdir()
    (home / "Documents" / "letter").write_text("dear you\n")
    argv = [str(home) + word[1:] if word.startswith("~") else word for word in argv]
    env = {"HOME": str(home), "PATH": f"{path}:/usr/bin:/bin", "WEIR_UPSTREAM": "5.100.53.53"}
    cwd = world.workdir(user)
    (cwd / "policy.yaml").write_text("egress: []\n")
    shutil.chown(cwd / "policy.yaml", user)
    return world.command(*argv, user=user, cwd=cwd, env=env, input=b"a question\n")


@pytest.mark.parametrize("line", STARTS)
def test_an_agent_starts(world, user, line):
    words = shlex.split(line)
    agent = words[words.index("--") + 1]
    path = programs(world, user, **{agent: "#!/bin/sh\necho started\n"})
    if "tty" in words:
        words = ["script", "-qec", shlex.join(words), "/dev/null"]
    done = run(world, user, words, path)
    assert done.code == 0 and "started" in done.text.splitlines(), done


def test_what_is_hidden_from_an_agent_is_hidden(world, user):
    """And its project, and what the profile keeps for it, are not."""
    script = "#!/bin/sh\ncat ~/Documents/letter 2>/dev/null || echo hidden\ntouch written $CLAUDE_CONFIG_DIR/kept && echo written\n"
    path = programs(world, user, claude=script)
    lines = {line: run(world, user, shlex.split(line), path) for line in STARTS if line.startswith("weir run --profile claude-code ")}
    hiding = [line for line in lines if "--hide" in line]
    assert len(hiding) == 2 and len(lines) > 3
    for line, done in lines.items():
        if "tty" not in line:
            assert done.code == 0 and done.text.splitlines() == ["hidden" if line in hiding else "dear you", "written"], (line, done)


@pytest.mark.parametrize("text", SERVERS)
def test_a_server_talks_to_its_agent(world, user, site, denied, text):
    server = json.loads(text)
    args = [word.replace("api.example.com", site.name) for word in server["args"]]
    script = (f"#!/bin/sh\nread line; echo heard $line\ncurl -so /dev/null https://{site.name}/ && echo reached\n"
              f"curl -so /dev/null https://{denied.name}/ || echo refused\n")
    path = programs(world, user, **{args[args.index("--") + 1]: script})
    done = run(world, user, [server["command"], *args], path)
    assert done.code == 0 and done.text == "heard a question\nreached\nrefused\n" and done.err == b"", done
    assert world.dns.count(denied.name) == 0


def test_a_command_of_an_agents_is_one_argument(world, user):
    path = programs(world, user, **{"weir-shell": SHELL})
    done = run(world, user, ["weir-shell", "echo 'a b' | tr a-z A-Z; test -w . && ! touch /usr/x 2>/dev/null && echo inside"], path)
    assert done.code == 0 and done.text == "A B\ninside\n", done


def test_the_table_says_what_the_profiles_do():
    rows = dict(re.findall(r"^\| `([a-z-]+)` \| (.*)$", TEXT, re.M))
    for name in ("claude-code", "codex", "gemini-cli"):
        brought = yaml.safe_load((ROOT / f"profiles/{name}.yaml").read_text())["run"]
        assert set(re.findall(r"`([A-Z_]+)`", rows[name])) == set(brought["pass_env"])
        assert set(re.findall(rf"`{name}/([A-Z_]+)`", rows[name])) == set(brought["own"])
    assert set(rows) == {"claude-code", "codex", "gemini-cli", "opencode", "aider"}


CHROMIUM = (ROOT / "profiles/chromium.yaml").read_text()


@pytest.mark.skipif(not shutil.which("chromium"), reason="chromium is not installed")
def test_a_browser_starts_as_its_profile_says(world, site):
    wrapper = "\n".join(line[4:] for line in CHROMIUM.splitlines() if line.startswith("#   #!") or line.startswith("#   exec"))
    path = programs(world, "weir-test", browser=wrapper + "\n")
    done = world.run(path / "browser", "--ignore-certificate-errors", "--dump-dom", f"https://{site.name}/", user="weir-test",
                     allow=(f"{site.name}:443",), options=("--profile", "chromium"))
    assert done.code == 0 and f'"host": "{site.name}"' in done.text, done
    said = set(re.findall(r"--[a-z-]+", CHROMIUM.split("As a wrapper")[0]))
    assert said <= set(re.findall(r"--[a-z-]+", wrapper)), said
