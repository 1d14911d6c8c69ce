# SPDX-License-Identifier: Apache-2.0
"""The table of verbs, `weir help`, the manual pages and the completions say the same thing."""
import json
import pathlib
import re
import shutil
import subprocess

import pytest

MAN = pathlib.Path(__file__).resolve().parents[3] / "man"
VERBS = ("run", "learn", "sidecar", "daemon", "attach", "detach", "ps", "status", "policy", "profile", "events", "denies",
         "review", "render", "teardown", "doctor", "container", "inject", "completion", "version", "help")


@pytest.fixture
def table(world):
    return {verb["name"]: verb for verb in world.weir("help", "--json").json()}


def page(verb):
    """The page of a verb; small ones are explained in weir(1)."""
    own = MAN / f"weir-{verb}.1"
    # learn takes run's options besides its own
    besides = page("run") if verb == "learn" else ""
    return (own if own.exists() else MAN / "weir.1").read_text() + besides


def options(verb):
    return {option["name"] for option in verb["options"]}


def test_the_table_has_every_verb(table):
    assert set(table) == set(VERBS)


def test_help_lists_every_verb_and_weir_1_explains_it(world, table):
    overview, weir1 = world.weir("help").text, (MAN / "weir.1").read_text()
    for name, verb in table.items():
        assert re.search(rf"^  {name} +{re.escape(verb['help'])}$", overview, re.M), name
        assert re.search(rf"^\.It Cm {name}\b", weir1, re.M), name


def test_help_and_weir_1_are_in_the_same_groups(world, table):
    overview, weir1 = world.weir("help").text, (MAN / "weir.1").read_text()
    groups = list(dict.fromkeys(verb["group"] for verb in table.values()))
    assert groups == ["run a command", "guard a container", "guard a host", "policies", "what happened", "this program"]
    for group in groups:
        want = [name for name, verb in table.items() if verb["group"] == group]
        [part] = re.findall(rf"^{group}:\n((?:  .*\n)+)", overview, re.M)
        assert re.findall(r"^  (\S+)", part, re.M) == want
        [part] = re.findall(rf"^{group.capitalize()}:\n\.Bl(.*?)^\.El", weir1, re.M | re.S)
        assert re.findall(r"^\.It Cm (\w+)", part, re.M) == want


# What means the same, as each verb of before called it: the older word is taken, and not shown.
OLDER = [("sidecar", "policy-file", "policy"), ("sidecar", "sandbox-id", "id"),
         ("sidecar", "dns-upstream", "upstream"), ("sidecar", "dns-upstream-timeout", "upstream-timeout"),
         ("sidecar", "dns-upstream-probe", "upstream-probe"), ("daemon", "dns-upstream", "upstream"),
         ("sidecar", "dns-upstream-probe-interval", "upstream-probe-interval"),
         ("daemon", "dns-upstream-timeout", "upstream-timeout")]


@pytest.mark.parametrize("verb, older, name", OLDER)
def test_an_older_name_of_an_option_is_taken_and_not_shown(world, table, verb, older, name):
    assert name in options(table[verb]) and older not in options(table[verb])
    for option in (older, name):
        # told by the newer name: it is known, and its value is missing
        done = world.weir(verb, f"--{option}")
        assert done.code == 2 and f"--{name} needs a value" in done.messages, done
    done = world.weir(verb, f"--{older}x", "y")
    assert done.code == 2 and f"'--{older}x' is not an option" in done.messages, done


@pytest.mark.parametrize("variable", ["WEIR_DNS_UPSTREAM_TIMEOUT", "WEIR_UPSTREAM_TIMEOUT"])
def test_a_variable_of_an_older_name_is_taken(world, variable):
    done = world.command(str(world.weir_path), "sidecar", "--mode", "none", env={"PATH": "/usr/bin", variable: "x"})
    assert done.code == 2 and variable in done.messages, done


def test_what_means_the_same_is_called_the_same(table):
    """One argument and one sentence's subject for each name; these name two things on purpose."""
    seen = {}
    for verb in table.values():
        for option in verb["options"]:
            seen.setdefault(option["name"], set()).add(option["argument"])
    several = {name: arguments for name, arguments in seen.items() if len(arguments) > 1}
    assert set(several) <= {"id", "uid", "from"}, several
    assert not {name for name in seen if name.startswith("dns-") or name.endswith("-file") and name != "token-file"}


@pytest.mark.parametrize("args, said", [
    (("rnu",), "'rnu' is not a verb; did you mean `weir run`?"), (("rn",), "'rn' is not a verb; did you mean `weir run`?"), (("xx",), "'xx' is not a verb; `weir help` lists them"),
    (("run", "--is", "a", "--", "true"), "'--is' is not an option here; did you mean --id?"), (("run", "--rx", "/", "--", "true"), "'--rx' is not an option here\n"),
    (("run", "--alow", "a.test", "--", "true"), "'--alow' is not an option here; did you mean --allow?"),
    (("run", "--profile", "gihub", "--", "true"), "there is no profile of this name; did you mean github?"),
    (("run", "--profile", "x", "--", "true"), "there is no profile of this name; `weir profile list` shows them"),
    (("help", "policy", "exlpain"), "help: 'exlpain' is one argument too many"), (("help", "run", "policy"), "'policy' is one argument")])
def test_a_word_that_is_mistyped_is_named_with_what_was_meant(world, args, said):
    done = world.weir(*args)
    assert done.code == 2 and said in done.messages and not done.text, done


def test_the_word_behind_a_verb_has_its_help(world):
    assert world.weir("help", "policy", "explain").text == world.weir("help", "policy").text != ""


@pytest.mark.parametrize("verb", VERBS)
def test_help_and_manual_list_the_same_options(world, table, verb):
    text = world.weir("help", verb).text
    assert set(re.findall(r"^  --([a-z0-9-]+)", text, re.M)) == options(table[verb])
    assert set(re.findall(r"^\.It Fl -([a-z0-9-]+)", page(verb), re.M)) == (
        options(table[verb]) or (set() if (MAN / f"weir-{verb}.1").exists() else {"json"}))


def test_the_synopsis_of_run_has_every_option(table):
    synopsis = re.search(r"^\.Sh SYNOPSIS\n(.*?)^\.Sh", page("run"), re.M | re.S).group(1)
    assert set(re.findall(r"^\.Op Fl -([a-z0-9-]+)", synopsis, re.M)) == options(table["run"])


def test_the_manual_names_the_words_of_an_option(table):
    for verb in table.values():
        for option in verb["options"]:
            words = option["argument"] or ""
            if "|" in words:
                entry = re.search(rf"^\.It Fl -{option['name']} Cm (.*)$", page(verb["name"]), re.M)
                assert entry and entry.group(1) == words.replace("|", " | "), option


@pytest.mark.parametrize("words", [("policy", "explain"), ("review", "accept"), ("profile", "show"), ("completion", "bash")],
                         ids=" ".join)
def test_help_behind_a_verbs_own_word_is_the_verbs(world, words):
    for option in ("--help", "-h"):
        done = world.weir(*words, option)
        assert done.code == 0 and done.text == world.weir("help", words[0]).text


@pytest.mark.parametrize("verb", VERBS)
def test_help_is_the_same_in_both_forms_and_fits_a_terminal(world, verb):
    text = world.weir("help", verb).text
    assert text.startswith(f"usage: weir {verb}") and world.weir(verb, "--help").text == text == world.weir(verb, "-h").text
    assert [line for line in text.splitlines() if len(line) > 80] == []


def test_the_manual_is_clean():
    if not shutil.which("mandoc"):
        pytest.skip("mandoc is not installed")
    done = subprocess.run(["mandoc", "-Tlint", "-W", "warning", *sorted(MAN.iterdir())], text=True, capture_output=True)
    assert done.returncode == 0 and done.stdout == "", done.stdout


def test_every_page_is_named_by_weir_1():
    text = (MAN / "weir.1").read_text()
    for path in MAN.iterdir():
        assert path.name == "weir.1" or f".Xr {path.stem} {path.suffix[1:]}" in text, path.name


@pytest.mark.parametrize("words", [("version", "--json"), ("help", "run", "--jso"), ("version", "x"), ("help", "rum"),
                                   ("completion",), ("completion", "tcsh")])
def test_bad_usage_is_status_2(world, words):
    done = world.weir(*words)
    assert done.code == (0 if words == ("version", "--json") else 2), done
    assert done.code or json.loads(done.text)["version"]


BASH = 'COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _weir; printf "%s\\n" "${COMPREPLY[@]}"'
FISH = "weir completion fish | source; complete -C $argv[1]"
# An interactive zsh in a terminal, where Tab is pressed; what it is about to offer is printed on the way. It is
# ready when its line editor reads: what is typed before that may be taken by the terminal.
ZSH = """
zmodload zsh/zpty
zpty inner zsh -f -i
zpty -w inner 'PROMPT= RPROMPT=; stty -echo'
zpty -w inner 'autoload -U compinit && compinit -D -u && eval "$(weir completion zsh)"'
zpty -w inner 'compadd() {
	if [[ ${@[1,(i)(-|--)]} == *-(O|A|D)\\ * ]]; then builtin compadd "$@"; return; fi
	local -a hits; builtin compadd -A hits "$@"; print -rl -- "" "match "$^hits; builtin compadd "$@"
}
ended() { print -r -- "<e""nd>"; exit }
comppostfuncs=(ended)
zle-line-init() { print -r -- "<rea""dy>" }; zle -N zle-line-init
bindkey "^I" complete-word'
zpty -r inner line '*<ready>*'
zpty -w -n inner "$1"$'\\t'
zpty -r inner line '*<end>*'
print -r -- "$line"
"""


def complete(world, shell, line):
    """What @shell offers for the last word of @line."""
    if not shutil.which(shell):
        pytest.skip(f"{shell} is not installed")
    env = {"PATH": f"{world.weir_path.parent}:/usr/bin:/bin", "HOME": str(world.workdir())}
    if shell == "bash":
        script = world.weir("completion", "bash").text + BASH
        done = world.command("bash", "--norc", "-c", script, "bash", *line.split(" "), env=env)
    elif shell == "zsh":
        done = world.command("zsh", "-f", "-c", ZSH, "zsh", line, env=env)
    else:
        done = world.command("fish", "--no-config", "-c", FISH, line, env=env)
    assert done.code == 0 and done.err == b"", done
    if shell == "zsh":
        return set(re.findall(r"^match (.*?)\r?$", done.text, re.M))
    return {word.split("\t")[0] for word in done.text.splitlines() if word}


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
@pytest.mark.parametrize("line, offered", [
    ("weir ", {"run", "policy", "doctor", "help"}),
    ("weir do", {"doctor"}),
    ("weir run --rep", {"--report", "--report-format"}),
    ("weir run --uplink ", {"relay", "none"}),
    ("weir run --profile not", {"notebook"}),
    ("weir run --policy /etc/hostn", {"/etc/hostname"}),
    ("weir run --quiet -- setpri", {"setpriv"}),
    ("weir run --allow a.test setpri", {"setpriv"}),
    ("weir policy ch", {"check"}),
    ("weir policy check --prof", {"--profile"}),
    ("weir completion z", {"zsh"}),
])
def test_a_shell_offers_what_fits(world, shell, line, offered):
    got, begun = complete(world, shell, line), line.rpartition(" ")[2]
    if shell == "zsh" and "/" in begun:  # it names the last part alone
        offered, begun = {word.rpartition("/")[2] for word in offered}, begun.rpartition("/")[2]
    assert offered <= got and all(word.startswith(begun) for word in got), got


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
@pytest.mark.parametrize("line", ["weir run true --rep", "weir run --allow a.test true --rep", "weir run -- true --rep"])
def test_behind_the_command_a_shell_offers_no_option_of_ours(world, shell, line):
    assert not {"--report", "--report-format"} & complete(world, shell, line)


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_completion_is_valid_and_has_every_verb_and_option(world, table, shell):
    text = world.weir("completion", shell).text
    for verb in table.values():
        assert verb["name"] in text
        for name in options(verb):
            assert ("-l " if shell == "fish" else "--") + name in text, name
    if shutil.which(shell):  # not every machine has all three
        done = subprocess.run([shell, "-n"], input=text, text=True, capture_output=True)
        assert done.returncode == 0 and done.stderr == "", done.stderr
