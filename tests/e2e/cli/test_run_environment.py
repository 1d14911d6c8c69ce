# SPDX-License-Identifier: Apache-2.0
"""--env, --pass-env and --set-env: which variables the command gets, and what is said of the others."""
import pathlib
import re

import pytest

LIST = pathlib.Path(__file__).resolve().parents[3] / "profiles" / "environment.txt"

TOKEN = "abcdefghijklmnopqrstuvwxyz0123456789"
SECRETS = {
    "GITHUB_TOKEN": "x", "npm_config_//registry.npmjs.org/:_authToken": "x", "aws_secret_access_key": "x", "AWS_PROFILE": "x",
    "OPENAI_API_KEY": "x", "OPENAI_API_KEY_2": "x", "MY_SECRET_THING": "x", "PGPASSWORD": "x", "DB_PASS": "x", "MYSQL_PWD": "x",
    "LDAP_BIND_PW": "x", "WALLET_MNEMONIC": "x", "GPG_PASSPHRASE": "x", "GH_PAT": "x", "SSH_AUTH_SOCK": "/x", "GOOGLE_APPLICATION_CREDENTIALS": "/x", "DOCKER_AUTH_CONFIG": "x",
    "SLACK_WEBHOOK_URL": "x", "KUBECONFIG": "/x", "OTEL_EXPORTER_OTLP_HEADERS": "x", "GIT_CONFIG_VALUE_0": "x",
    "DATABASE_URL": "postgres://me:pw@db.test/x", "REDIS": "redis://:pw@db.test", "PIP_INDEX_URL": "https://me:pw@pypi.test/simple",
    "https_proxy": "http://me:p@ss@proxy.test:3128", "http_proxy": "me:pw@proxy.test:3128", "CI_REPOSITORY": "https://tok@git.test/r",
    "SLASH": "mysql://me:p/w@db.test/x", "LIST_OF": "http://a.test,amqp://me:pw@q.test", "GO_MYSQL": "me:pw@tcp(db.test:3306)/x",
    "JDBC": "jdbc:postgresql://db.test/x?user=me&PASSWORD=pw", "STORAGE": "AccountName=a;AccountKey=b==;", "SAS": "https://a.test/x?a=b&sig=c",
    "NOTE": f"ghp_{TOKEN}", "LATER": f"token ghp_{TOKEN}", "PEM": "-----BEGIN RSA PRIVATE KEY-----\nabc", "SESSION": f"eyJ{TOKEN}.x",
    "CURL_EXTRA": "-H 'Authorization: Basic x'",
}
PLAIN = {
    "LANG": "C.UTF-8", "LC_ALL": "C.UTF-8", "TERM": "xterm-256color", "EDITOR": "vi", "GOPATH": "/go", "CARGO_HOME": "/c",
    "TOKENIZERS_PARALLELISM": "false", "CLAUDE_CODE_MAX_OUTPUT_TOKENS": "1", "no_proxy": "localhost,127.0.0.1",
    "GIT_SSH_URL": "ssh://git@git.test:22/r.git", "GIT_REMOTE": "git@git.test:me/r.git", "URL": "https://a.test:8443/x?y=z",
    "MAIL": "me@mail.test", "TEXT": "ghp_tools", "TASK": "task-1 disk-2", "KEYBOARD": "us", "MONKEY": "1", "COMPASS": "n",
    "http_proxy": "http://proxy.test:3128", "EMPTY": "", "XDG_SESSION_ID": "2", "OLDPWD": "/", "AWS_REGION": "eu", "SPACES": "a b: c@d", "TIMES": "10:20",
}


def variables(done):
    assert done.code == 0, done
    return dict(v.split("=", 1) for v in done.text.split("\0") if v)


@pytest.fixture
def inside(world, user):
    def run(env, *options, code=0):
        done = world.run("env", "-0", user=user, env=env, options=options)
        assert done.code == code, done
        return done
    return run


def test_what_looks_like_a_secret_is_kept_back(inside):
    done = inside(SECRETS)
    assert not set(variables(done)) & set(SECRETS) and not any(v in done.text for v in SECRETS.values() if len(v) > 8)
    told = done.messages.splitlines()
    assert len(told) == 1 and "--pass-env NAME" in told[0] and "--env all" in told[0], done
    names = told[0].partition("secrets: ")[2].partition(" and ")[0].split(", ")
    assert len(names) == 12 and set(names) < set(SECRETS) and f"and {len(SECRETS) - 12} more" in told[0], done
    assert set(SECRETS.items()) <= set(variables(inside(SECRETS, "--env", "all")).items()), "positive control"


@pytest.mark.parametrize("name", SECRETS)
def test_each_of_them(world, name):
    assert name not in variables(world.run("env", "-0", env={name: SECRETS[name]}))
    assert variables(world.run("env", "-0", env={name: SECRETS[name]}, options=("--pass-env", name)))[name] == SECRETS[name]


def test_all_else_is_passed_without_a_word(inside):
    done = inside(PLAIN)
    assert set(PLAIN.items()) <= set(variables(done).items()) and done.err == b"", done


def test_one_that_is_named_is_passed(inside):
    env = {"GITHUB_TOKEN": "a", "AWS_ROLE": "b", "AWS_PROFILE": "c", "OTHER_TOKEN": "d"}
    done = inside(env, "--pass-env", "GITHUB_TOKEN", "--pass-env=AWS_*")
    assert {n: variables(done).get(n) for n in env} == {"GITHUB_TOKEN": "a", "AWS_ROLE": "b", "AWS_PROFILE": "c", "OTHER_TOKEN": None}
    assert re.fullmatch("weir: kept from the command[^:]*: OTHER_TOKEN; .*\n", done.messages), done
    assert variables(inside(env, "--env", "none", "--pass-env", "AWS_PROFILE")) == {"AWS_PROFILE": "c"}


def test_one_that_is_named_and_missing_is_told_even_quietly(inside):
    done = inside({"GITHUB_TOKEN": "a"}, "--quiet", "--pass-env", "NO_SUCH", "--pass-env", "NO_SUCH_*")
    assert done.messages == "weir: --pass-env NO_SUCH: there is no such variable\n", done


def test_none_passes_nothing(inside):
    assert variables(inside({"A": "b"}, "--env", "none")) == {}
    assert variables(inside({"A": "b"}, "--env", "none", "--set-env", "C=d=e", "--set-env", "F=")) == {"C": "d=e", "F": ""}


def test_one_that_is_set_takes_the_place_of_the_callers(inside):
    got = variables(inside({"A": "b", "A_TOKEN": "x"}, "--set-env", "A=c", "--set-env", "A_TOKEN=y"))
    assert got["A"] == "c" and got["A_TOKEN"] == "y"


def test_the_working_directory_is_the_sandboxes(world, user):
    folder = world.workdir(user)
    assert variables(world.run("env", "-0", user=user, cwd=folder, env={"PWD": "/nonexistent"}))["PWD"] == str(folder)


@pytest.mark.parametrize("mode", ["default", "all"])
def test_weirs_own_variables_stay_outside(inside, mode):
    env = {"WEIR_TOKEN": "s3cret", "WEIR_ENV": mode, "WEIR_QUIET": "1", "A": "b"}
    done = inside(env)
    assert {n for n in variables(done) if n.startswith("WEIR_")} == {"WEIR_SANDBOX"} and variables(done)["A"] == "b", done
    assert variables(inside(env, "--pass-env", "WEIR_TOKEN"))["WEIR_TOKEN"] == "s3cret"


def test_variables_and_files_say_it_too(world, user):
    env = {"WEIR_PASS_ENV": "A_TOKEN B_*", "WEIR_SET_ENV": "C=d e\nF=g", "A_TOKEN": "1", "B_TOKEN": "2", "C_TOKEN": "3"}
    got = variables(world.run("env", "-0", user=user, env=env))
    assert [got.get(n) for n in ("A_TOKEN", "B_TOKEN", "C_TOKEN", "C", "F")] == ["1", "2", None, "d e", "g"]
    etc = world.workdir()
    (etc / "config.yaml").write_text("env: none\npass_env: [A_TOKEN]\nset_env: [C=d, 'F=g h']\n")
    mounts = ("mkdir -p /etc/weir", f"mount --bind {etc} /etc/weir")
    got = variables(world.run("env", "-0", user=user, env={"A_TOKEN": "1"}, mounts=mounts))
    assert got == {"A_TOKEN": "1", "C": "d", "F": "g h"}
    (etc / "config.yaml").write_text("env: some\nset_env: [=x]\npass_env: [a=b]\n")
    done = world.run("touch", "started", user=user, mounts=mounts)
    assert done.code == 2 and all(f"/etc/weir/config.yaml:{n}:" in done.messages for n in (1, 2, 3)), done


@pytest.mark.parametrize("options", [("--env", "some"), ("--set-env", "s3cret"), ("--set-env", "=s3cret"), ("--pass-env", "A=s3cret"),
                                     ("--pass-env", "")])
def test_bad_usage_is_status_2_and_shows_no_value(inside, options):
    done = inside({}, *options, code=2)
    assert options[0] in done.messages and ("s3cret" not in done.messages or options[1] == "s3cret"), done


def test_a_variable_for_the_commands_loader_is_not_for_weirs_programs(world, user):
    """A library from where an earlier command wrote would run in what starts the command as well."""
    folder = world.workdir(user)
    (folder / "x.c").write_text('#include <stdio.h>\n#include <stdlib.h>\n#include <string.h>\nextern char *program_invocation_name;\n'
                                '__attribute__((constructor)) static void loaded(void) { char b[512]; FILE *f = fopen("/proc/self/comm", "r");\n'
                                'if (f && fgets(b, sizeof(b), f)) { fprintf(stderr, "in %s", b); fclose(f); } }\n')
    assert world.command("cc", "-shared", "-fPIC", "-D_GNU_SOURCE", "-o", folder / "x.so", folder / "x.c").code == 0
    done = world.run("cat", "/dev/null", user=user, options=("--set-env", f"LD_PRELOAD={folder}/x.so"))
    assert done.code == 0 and done.messages == "in cat\n", done


def test_a_caller_without_an_environment(world, user):
    done = world.command("env", "-i", world.weir_path, "run", "--", "/usr/bin/env", "-0", user=user)
    assert set(variables(done)) == {"WEIR_SANDBOX", "GIT_DISCOVERY_ACROSS_FILESYSTEM", "npm_config_fetch_retry_mintimeout",
                                    "npm_config_fetch_retry_maxtimeout"}, done


def test_each_line_of_the_list_has_a_kind_and_a_reason():
    lines = [re.split(r" {2,}", line.strip()) for line in LIST.read_text().splitlines() if line and line[0] != "#"]
    assert len(lines) > 50 and all(len(line) == 3 and line[0] in ("name", "pass", "token", "text") for line in lines)
    assert len({tuple(line[:2]) for line in lines}) == len(lines)


def test_nothing_in_proc_shows_what_was_kept_back(world, user):
    """Neither of PID 1 nor of anything else that the command sees."""
    script = ("import os\nfor p in os.listdir('/proc'):\n for f in 'environ cmdline'.split():\n  try: print(open(f'/proc/{p}/{f}').read())\n"
              "  except OSError: pass\n")
    env = {"A_TOKEN": "needle-1", "WEIR_TOKEN": "needle-2"}
    done = world.run("/usr/bin/python3", "-c", script, user=user, env=env)
    assert "PATH=" in done.text and "needle" not in done.text, done
    assert "needle-1" in world.run("/usr/bin/python3", "-c", script, user=user, env=env, options=("--env", "all")).text
