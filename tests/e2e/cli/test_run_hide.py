# SPDX-License-Identifier: Apache-2.0
"""--hide and --hide-preset credentials: what the command can't read, by whichever name."""
import os
import pathlib
import re
import shutil

import pytest

LIST = pathlib.Path(__file__).resolve().parents[3] / "profiles" / "credentials.txt"
ALWAYS = (".ssh/id_ed25519", ".ssh/deep/er/key", ".aws/credentials", ".aws/sso/cache/x.json", ".config/gcloud/credentials.db",
          ".config/gh/hosts.yml", ".azure/msal_token_cache.json", ".kube/config", ".netrc", ".git-credentials", ".docker/config.json",
          ".mozilla/firefox/p/logins.json", ".config/google-chrome/Default/Cookies", ".bash_history", ".zsh_history", ".python_history",
          ".local/share/keyrings/login.keyring", ".gnupg/private-keys-v1.d/x.key", ".password-store/site.gpg", ".pgpass", ".vault-token",
          ".config/Bitwarden CLI/data.json", ".local/share/fish/fish_history", ".claude/.credentials.json", ".codex/auth.json",
          ".claude/projects/p/session.jsonl", ".codex/sessions/2026/11/x.jsonl", ".gemini/tmp/p/chats/x.jsonl",
          ".copilot/config.json", ".mcp-auth/mcp-remote-1/x_tokens.json", ".factory/auth.json", ".qwen/oauth_creds.json", ".augment/session.json",
          ".config/pnpm/auth.ini", ".config/dart/pub-credentials.json", ".ivy2/.credentials", ".doppler/.doppler.yaml", ".gitcookies")
IF = {".npmrc": ("//registry.npmjs.org/:_authToken=needle\n", "registry=https://registry.npmjs.org/\n"),
      ".pypirc": ("[pypi]\npassword = needle\n", "[distutils]\nindex-servers = pypi\n"),
      ".cargo/credentials.toml": ('[registry]\ntoken = "needle"\n', "[registry]\n"),
      ".gitconfig": ("[url \"https://needle@github.com/\"]\n\tinsteadOf = x\n", "[user]\n\temail = me@needle.test\n"),
      ".config/pip/pip.conf": ("[global]\nindex-url = https://me:needle@pypi.test/simple\n", "[global]\ntimeout = 60\n"),
      ".config/nix/nix.conf": ("access-tokens = github.com=needle\n", "experimental-features = flakes\n"),
      ".condarc": ("channels: [https://conda.test/t/needle/main]\n", "channels: [conda-forge]\n"),
      ".m2/settings.xml": ("<password>needle</password>", "<settings/>")}
OPEN = (".ssh/known_hosts", ".docker/daemon.json", ".config/git/ignore", ".profile", ".claude/settings.json", "project/README")

# Prints each file below the arguments that has the needle, by its name.
SEEK = r"""
import os, sys
for top in sys.argv[1:]:
    for folder, _, files in os.walk(top) if os.path.isdir(top) else [(os.path.dirname(top), [], [os.path.basename(top)])]:
        for name in files:
            try:
                if b"needle" in open(os.path.join(folder, name), "rb").read():
                    print(os.path.join(folder, name))
            except OSError as e:
                print(type(e).__name__, os.path.join(folder, name), file=sys.stderr)
"""


class Home:
    def __init__(self, world, user):
        self.world, self.user, self.path = world, user, world.workdir(user)
        self.project = self.make("project")
        self.who = world.user(user)

    def own(self, path):
        shutil.chown(path, self.user, self.user)
        return path

    def make(self, name):
        for part in reversed([self.path / name, *(self.path / name).parents]):
            if not part.exists():
                part.mkdir()
                self.own(part)
        return self.path / name

    def put(self, name, text="needle\n"):
        self.make(pathlib.Path(name).parent)
        (self.path / name).write_text(text)
        return self.own(self.path / name)

    def seen(self, *tops, options=(), cwd=None, env=None, **rest):
        """The files with the needle that a sandbox reads, below the home unless said otherwise."""
        done = self.world.run("/usr/bin/python3", "-ISc", SEEK, *(tops or [self.path]), user=self.user, cwd=cwd or self.project,
                              env={"HOME": str(self.path), **(env or {})}, options=options, **rest)
        assert done.code == 0, done
        return {line.removeprefix(f"{self.path}/") for line in done.text.splitlines()}

    def run(self, *argv, options=(), cwd=None, env=None, **rest):
        return self.world.run(*argv, user=self.user, cwd=cwd or self.project, options=options,
                              env={"HOME": str(self.path), **(env or {})}, **rest)


@pytest.fixture
def home(world, user):
    return Home(world, user)


SHOW = ("--hide-preset", "none")


def test_credentials_are_hidden_and_all_else_is_not(home):
    for name in ALWAYS + OPEN:
        home.put(name)
    assert home.seen() == set(OPEN)
    assert home.seen(options=SHOW) == set(ALWAYS + OPEN), "positive control"
    assert home.seen(env={"WEIR_HIDE_PRESET": "none"}) == set(ALWAYS + OPEN)


def test_what_a_linked_config_leads_to_is_hidden(home):
    """Many keep the directory in a repository, and have a link to it in their home."""
    for name in ("dotfiles/gh/hosts.yml", "dotfiles/git/credentials", "dotfiles/git/ignore"):
        home.put(name)
    (home.path / ".config").symlink_to("dotfiles")
    assert home.seen() == {"dotfiles/git/ignore"}
    assert len(home.seen(options=SHOW)) == 3, "positive control"


def test_what_is_mounted_below_a_hidden_directory_is_hidden_elsewhere_too(home):
    home.put("elsewhere/sso/token"), home.put("elsewhere/free"), home.make(".aws/sso")
    assert home.seen(mounts=(f"mount --bind {home.path}/elsewhere/sso {home.path}/.aws/sso",)) == {"elsewhere/free"}


def test_nothing_is_said_and_nothing_can_be_written(home):
    home.put(".ssh/id_rsa"), home.put(".netrc")
    done = home.run("sh", "-c", "cd; ls -A .ssh; cat .netrc; touch .ssh/x; echo y > .netrc; rm -f .netrc; mv .ssh .x; umount .ssh; exit 0")
    assert done.out == b"" and "weir: " not in done.messages, done
    assert (home.path / ".netrc").read_text() == "needle\n" and os.listdir(home.path / ".ssh") == ["id_rsa"]


@pytest.mark.parametrize("name", IF)
def test_a_file_is_hidden_where_it_holds_a_token(home, name):
    home.put(name, IF[name][0])
    assert home.seen() == set() and home.seen(options=SHOW) == {name}
    home.put(name, IF[name][1] + "# needle\n")
    assert home.seen() == {name}


def test_what_variables_lead_to_is_hidden(home):
    env = {"KUBECONFIG": f"{home.put('a/kube')}:{home.put('b/kube')}", "AWS_SHARED_CREDENTIALS_FILE": str(home.put("c")),
           "GNUPGHOME": str(home.put("g/key").parent), "XDG_CONFIG_HOME": str(home.put("xdg/gh/hosts.yml").parents[1]),
           "DOCKER_CONFIG": str(home.put("docker/config.json").parent), "HISTFILE": str(home.put("typed")), "NETRC": "/dev/null"}
    assert home.seen(env=env) == set()
    assert len(home.seen()) == 7, "positive control"


def test_variables_with_a_relative_path_or_a_colon_lead_to_nothing(home):
    home.put("project/secrets/kube"), home.put("a:b/key.json")
    env = {"KUBECONFIG": "secrets/kube", "GOOGLE_APPLICATION_CREDENTIALS": f"{home.path}/a:b/key.json"}
    assert home.seen(env=env) == set()
    assert home.seen() == {"project/secrets/kube", "a:b/key.json"}, "positive control"


def test_what_is_locked_can_be_unlocked_by_nobody(home):
    """The command has its caller's rights: what the caller may open again, the command may."""
    home.put(".netrc").chmod(0), home.put(".pgpass").chmod(0)
    script = "cd; chmod 600 .netrc .pgpass; cat .netrc .pgpass; exit 0"
    done = home.run("sh", "-c", script, options=("--rw", str(home.path)))
    assert done.code == 0 and done.out == b"", done
    done = home.run("sh", "-c", script, options=("--rw", str(home.path), *SHOW))
    assert done.text == 2 * "needle\n", "positive control"


def test_however_much_lies_in_a_directory_all_links_of_it_are_found(home):
    """An earlier command may have made the directory, with so much in it that nobody would look at all of it."""
    gh, deep = home.make(".config/gh"), home.make(".config/gh/" + "/".join("abcdefgh"))
    for n in range(3000):
        (gh / f"file{n}").touch()
    for n in range(20):
        (gh / f"link{n}").symlink_to(home.put(f"elsewhere/{n}"))
    (deep / "link").symlink_to(home.put("elsewhere/deep"))
    os.link(home.put("elsewhere/hard"), deep / "hard")
    assert home.seen() == set()
    assert len(home.seen(options=SHOW)) == 44, "positive control"  # each of the 22, and its link


@pytest.mark.parametrize("locked, mode", [(".aws", 0o100), (".aws", 0), (".kube/cache", 0), (".local", 0)])
def test_a_directory_that_cannot_be_looked_through_starts_nothing(home, locked, mode):
    """Its owner's command could open it, and what it leads to is not known. Root reads all."""
    for name in (".aws/credentials", ".kube/cache/x", ".local/share/keyrings/login.keyring"):
        home.put(name)
    (home.path / locked).chmod(mode)
    done = home.run("true")
    assert done.code == (0 if home.user == "root" else 125), done
    assert home.user == "root" or f"'{home.path}/{locked}'" in done.messages and "Permission denied" in done.messages, done
    assert home.run("true", options=SHOW).code == 0


@pytest.mark.parametrize("link", [".docker", ".ssh/id"])
def test_a_link_that_weir_cannot_follow_starts_nothing(home, link):
    """The kernel can. This one is too long, with what follows."""
    target = str(home.put("elsewhere/config.json").parent)
    home.make(".ssh")
    (home.path / link).symlink_to("/" * (4095 - len(target)) + target)
    assert (home.path / link / "config.json").exists(), "positive control"
    done = home.run("true")
    assert done.code == 125 and f"'{home.path}/{link}" in done.messages and "File name too long" in done.messages, done
    assert home.run("true", options=SHOW).code == 0


def test_a_variable_that_names_no_place_starts_everything(home):
    """A key itself, in the place of its name; a descriptor, which is none of a file system's."""
    home.put(".netrc")
    for value in "x" * 3000, "/dev/fd/0", "/dev/stdin", f"{home.path}/.netrc/x", "/proc/self/fd/77":
        assert home.run("true", env={"GOOGLE_APPLICATION_CREDENTIALS": value, "KUBECONFIG": value}).code == 0, value


def test_hard_links_of_what_is_named_are_hidden_too(home):
    os.link(home.put("vault/deep/key"), home.path / "elsewhere")
    assert home.seen(options=("--hide", str(home.path / "vault"))) == set()
    assert home.seen() == {"vault/deep/key", "elsewhere"}, "positive control"


def test_a_password_in_a_helper_of_gits_is_hidden(home):
    home.put(".gitconfig", "[credential]\n\thelper = \"!f() { echo password=needle; }; f\"\n")
    assert home.seen() == set()


def test_known_hosts_stays_and_nothing_else_of_its_directory(home):
    home.put(".ssh/known_hosts"), home.put(".ssh/config"), home.put(".ssh/known_hosts.old")
    for options in (), ("--rw", home.path):
        assert home.seen(options=options) == {".ssh/known_hosts"}
        done = home.run("sh", "-c", "echo x > ~/.ssh/known_hosts", options=options)
        assert done.code != 0 and (home.path / ".ssh/known_hosts").read_text() == "needle\n", done
    (home.path / ".ssh/known_hosts").unlink()
    (home.path / ".ssh/known_hosts").symlink_to("config")
    assert home.seen() == set()


# ---- other names ----

def test_symbolic_links_lead_to_nothing(home):
    """The place itself is one, on the way to it is one, in it is one."""
    home.put("dotfiles/netrc"), home.put("dotfiles/aws/credentials"), home.put("dotfiles/ssh/id"), home.put("dotfiles/keys/a/b")
    (home.path / ".netrc").symlink_to("dotfiles/netrc")
    (home.path / ".aws").symlink_to(home.path / "dotfiles/aws")
    home.make(".ssh")
    (home.path / ".ssh/id").symlink_to("../dotfiles/ssh/id")
    (home.path / ".ssh/keys").symlink_to("../dotfiles/keys")
    for link in (".netrc", ".aws", ".ssh/id", ".ssh/keys"):
        os.chown(home.path / link, home.who.uid, home.who.gid, follow_symlinks=False)
    for options in (), ("--rw", home.path):
        assert home.seen(options=options) == set(), options
        assert home.seen(home.path / ".netrc", home.path / ".aws/credentials", options=options) == set()
    assert len(home.seen(options=SHOW)) >= 4


def test_a_link_leads_to_no_file_that_somebody_else_gave_the_user_alone(home, world):
    """As an orchestrator gives secrets. What all may read, and directories of others, have nothing to do with credentials."""
    given = world.workdir(home.user)
    home.make(".ssh")
    for name, mode in ("key", 0o440), ("public", 0o444), ("dir/file", 0o440):
        (given / name).parent.mkdir(exist_ok=True)
        (given / name).write_text("needle")
        os.chown(given / name, 0, home.who.gid), (given / name).chmod(mode)
        (home.path / ".ssh" / name.split("/")[0]).symlink_to(given / name.split("/")[0])
    shown = {f"{given}/public", f"{given}/dir/file"} if home.user != "root" else set()
    assert home.seen(home.path, given) == shown
    assert len(home.seen(given, options=SHOW)) == 3, "positive control"


def test_hard_links_of_it_are_hidden_too(home):
    os.link(home.put(".ssh/id"), home.path / "project/copy")
    os.link(home.put(".netrc"), home.make("deep/er") / "netrc")
    assert home.seen() == set()
    assert home.seen(options=("--rw", home.path)) == set()
    assert len(home.seen(options=SHOW)) == 4


def test_a_hard_link_that_cannot_be_found_starts_nothing(home, world):
    other = world.workdir(home.user)
    os.link(home.put(".netrc"), other / "elsewhere")
    done = home.run("touch", "started")
    assert done.code == 125 and "hard links" in done.messages and not (home.project / "started").exists(), done
    assert home.seen(home.path, other, options=("--hide", other / "elsewhere")) == set()
    assert home.seen(home.path, other, cwd=other) == set()
    assert home.seen(home.path, other, options=("--ro", home.path / ".netrc")) == {".netrc", str(other / "elsewhere")}


def test_in_another_mount_it_is_hidden_too(home, world):
    home.put(".aws/credentials"), home.put(".aws/sso/token"), home.put(".netrc"), home.put("plain")
    whole, part, below, file = (world.workdir() for _ in range(4))
    (file / "f").touch()
    mounts = [f"mount --bind {home.path} {whole}", f"mount --bind {home.path}/.aws {part}",
              f"mount --bind {home.path}/.aws/sso {below}", f"mount --bind {home.path}/.netrc {file}/f"]
    tops = (home.path, whole, part, below, file)
    assert home.seen(*tops, mounts=mounts) == {"plain", f"{whole}/plain"}
    assert home.seen(*tops, mounts=mounts, options=("--rw", whole)) == {"plain", f"{whole}/plain"}
    assert len(home.seen(*tops, mounts=mounts, options=SHOW)) == 12


def test_a_file_that_is_mounted_in_its_place_is_hidden_with_where_it_is_from(home, world):
    """As container engines give secrets."""
    secrets = world.workdir(home.user)
    (secrets / "netrc").write_text("needle")
    home.put(".netrc", "plain")
    mounts = [f"mount --bind {secrets}/netrc {home.path}/.netrc"]
    for options in (), ("--rw", home.path), ("--rw", secrets):
        assert home.seen(home.path, secrets, mounts=mounts, options=options) == set()
    assert len(home.seen(home.path, secrets, mounts=mounts, options=SHOW)) == 2


@pytest.mark.parametrize("spelling", ["{}/../{n}", "{}//", "{}/./", "/proc/self/root{}", "{l}"])
def test_however_the_home_is_spelled(home, world, spelling):
    home.put(".netrc"), home.put(".ssh/id")
    link = world.workdir(home.user) / "link"
    link.symlink_to(home.path)
    spelled = spelling.format(home.path, n=home.path.name, l=link)
    assert home.seen(home.path, link, f"/proc/self/root{home.path}", f"/proc/1/root{home.path}", env={"HOME": spelled}) == set()


def test_the_home_as_working_directory(home):
    home.put(".netrc"), home.put(".ssh/id")
    for options in (), ("--rw", "."), ("--rw", home.path):
        assert home.seen(".", cwd=home.path, options=options) == set()
    assert home.seen(".", cwd=home.path, options=SHOW) == {"./.netrc", "./.ssh/id"}


def test_the_passwd_entrys_home_is_meant_whatever_the_variable_says(world):
    """Who may be ordinary, and have no entry."""
    user = world.user("weir-test")
    file = pathlib.Path(user.home) / f".kube-{os.getpid()}"
    place = pathlib.Path(user.home) / ".vault-token"
    if place.exists():
        pytest.skip("the user has one")
    place.write_text("needle")
    os.chown(place, user.uid, user.gid)
    try:
        for env in ({"HOME": "/nonexistent"}, {"HOME": ""}, {}):
            assert world.run("cat", place, user="weir-test", env=env).out == b""
            assert world.run("cat", place, user="weir-test", env=env, options=SHOW).out == b"needle"
    finally:
        place.unlink()
    assert not file.exists()


def test_what_a_command_renames_is_hidden_from_the_next_one(home):
    """The directories on the way can't be moved while they are writable."""
    home.put(".config/gh/hosts.yml"), home.put(".docker/config.json"), home.put(".aws/credentials")
    script = "cd; mv .config x; mv .docker y; mv .aws z; mv .docker/config.json w; ln .docker/config.json v; cp -r .config u; exit 0"
    home.run("sh", "-c", script, options=("--rw", home.path))
    assert home.seen() == set() and len(home.seen(options=SHOW)) == 3


def test_a_second_mount_in_the_sandbox_shows_none(home):
    home.put("project/.secret/x"), home.put("project/.secret/y"), home.put("project/z")
    options = ("--hide", home.path / "project/.secret", "--rw", home.path / "project", "--rw", home.path)
    assert home.seen(options=options) == {"project/z"}


# ---- what is named ----

def test_a_path_that_is_named_is_hidden(home):
    home.put("project/.env"), home.put("vault/a/b"), home.put("plain")
    assert home.seen(options=("--hide", ".env", "--hide", home.path / "vault")) == {"plain"}
    assert home.seen(env={"WEIR_HIDE": f".env:{home.path}/vault"}) == {"plain"}
    assert home.seen(options=("--hide", home.path / "vault/a", *SHOW)) == {"project/.env", "plain"}


def test_what_is_too_much_to_look_through_starts_nothing(home):
    key = ".aws/" + "d/" * 70 + "key"
    home.put(key)
    done = home.run("true")
    assert done.code == 125 and "too much lies in it: name parts of it with --hide, or show it with --ro" in done.messages, done
    assert home.seen(options=("--ro", home.path / ".aws")) == {key}


def test_a_path_that_is_not_there_starts_nothing(home):
    done = home.run("true", options=("--hide", "no-such"))
    assert done.code == 2 and "--hide" in done.messages and "no-such" in done.messages, done


@pytest.mark.parametrize("option", ["--rw", "--ro"])
def test_what_is_named_otherwise_is_shown(home, option):
    home.put(".ssh/id"), home.put(".ssh/deploy"), home.put(".aws/config"), home.put(".aws/credentials"), home.put(".aws/cli/cache/x")
    assert home.seen(options=(option, home.path / ".ssh/deploy", option, home.path / ".aws/cli")) == {".ssh/deploy", ".aws/cli/cache/x"}
    assert home.seen(options=(option, home.path / ".ssh")) == {".ssh/id", ".ssh/deploy"}
    assert home.seen(options=("--rw", home.path, option, home.path / ".ssh/deploy")) == {".ssh/deploy"}
    done = home.run("sh", "-c", "echo x >> ~/.aws/cli/cache/x", options=(option, home.path / ".aws/cli"))
    assert (done.code == 0) == (option == "--rw"), done
    done = home.run("sh", "-c", "touch ~/.aws/y ~/.aws/cli/y", options=(option, home.path / ".aws/cli"))
    assert done.code != 0 and not (home.path / ".aws/y").exists()


def test_a_project_alone_of_a_home(home):
    home.put("project/x"), home.put("y"), home.put("other/z")
    assert home.seen(options=("--hide", home.path)) == {"project/x"}
    done = home.run("sh", "-c", "touch new; touch ../new; ls -A ..", options=("--hide", home.path))
    assert done.text == "project\n" and (home.project / "new").exists() and not (home.path / "new").exists(), done


def test_a_working_directory_that_is_hidden_starts_nothing(home):
    for name in ".aws", ".aws/sso":
        done = home.run("touch", "started", cwd=home.make(name))
        assert done.code == 2 and "which is hidden" in done.messages, done
    assert home.run("true", cwd=home.path / ".aws", options=("--rw", home.path / ".aws")).code == 0
    done = home.run("true", options=("--hide", "."))
    assert done.code == 2, done


@pytest.mark.parametrize("options", [("--hide", "/"), ("--hide", "/dev/null"), ("--ro", "/proc"), ("--ro", "/run"), ("--ro", "/dev/null"),
                                     ("--hide", ".x", "--rw", ".x"), ("--hide", ".x", "--ro", ".x")])
def test_what_cannot_be_is_told(home, options):
    home.put("project/.x")
    done = home.run("touch", "started", options=options)
    assert done.code == 2 and options[0] in done.messages and not (home.project / "started").exists(), done


def test_a_path_of_tmp_is_shown_when_it_is_named(home, world):
    folder = pathlib.Path("/tmp") / f"weir-test-{os.getpid()}-{world.number()}"
    folder.mkdir()
    (folder / "x").write_text("needle")
    try:
        assert home.run("cat", folder / "x").code == 1
        assert home.run("cat", folder / "x", options=("--ro", folder)).out == b"needle"
        assert home.run("touch", folder / "y", options=("--ro", folder)).code == 1
    finally:
        shutil.rmtree(folder)


def test_configuration_says_it_too(home, world):
    etc = world.workdir()
    (etc / "config.yaml").write_text(f"hide: [{home.path}/vault]\nhide_preset: none\nro: {home.path}/vault/open\n")
    home.put("vault/x"), home.put("vault/open"), home.put(".netrc")
    mounts = ("mkdir -p /etc/weir", f"mount --bind {etc} /etc/weir")
    assert home.seen(mounts=mounts) == {"vault/open", ".netrc"}


def test_it_means_nothing_on_the_host(world):
    for option in ("--hide", "/x"), ("--hide-preset", "none"), ("--ro", "/x"):
        done = world.weir("run", "--uid", "61000", *option, "--", "true")
        assert done.code == 2 and f"{option[0]} means nothing with --uid" in done.messages, done


def test_the_machines_own_secrets_are_hidden_from_roots_sandboxes(world):
    assert world.run("cat", "/etc/shadow").out == b""
    assert b"root:" in world.run("cat", "/etc/shadow", options=SHOW).out, "positive control"
    assert b"root:" in world.run("cat", "/etc/passwd").out


COVERS = {
    "a device": "mount --bind /dev/null {0}/.netrc",
    "a pipe": "mkfifo {0}/pipe; mount --bind {0}/pipe {0}/.netrc",
    "a kind that shows no files": "mount -t devpts none {0}/.ssh",
    "one that cannot be copied": "mount -t tmpfs none {0}/.ssh; mount --make-unbindable {0}/.ssh",
    "overlays on one another": "mkdir -p {0}/a {0}/b {0}/c {0}/d; mount -t overlay -o lowerdir={0}/a:{0}/b none {0}/c; "
                               "mount -t overlay -o lowerdir={0}/c:{0}/d none {0}/.ssh",
}


@pytest.mark.parametrize("what", COVERS)
def test_what_a_mount_covers_stays_covered_where_the_mount_cannot_be_shown(world, what):
    """Root's sandboxes have the file system below each mount by itself."""
    top = world.workdir()
    (top / ".netrc").write_text("needle")
    (top / ".ssh").mkdir()
    (top / ".ssh/key").write_text("needle")
    covers = COVERS[what].format(top)
    done = world.run("grep", "-r", "needle", top, mounts=[covers], options=SHOW)
    left = ".netrc" if ".ssh" in covers else ".ssh/key"
    assert [line.split(":")[0] for line in done.text.splitlines()] == [f"{top}/{left}"], done


def test_a_mount_that_another_one_covers_hides_nothing_of_that(world):
    top, other = world.workdir(), world.workdir()
    for directory in (top / "a", other / "a"):
        directory.mkdir()
    (other / "a/file").write_text("needle")
    mounts = [f"mount -t tmpfs none {top}/a; mount --bind {other} {top}"]
    assert world.run("cat", top / "a/file", mounts=mounts).out == b"needle"


def test_each_line_of_the_list_is_right():
    lines = [re.split(r" {2,}", line.strip()) for line in LIST.read_text().splitlines() if line and line[0] != "#"]
    assert len(lines) > 100 and len({line[0] for line in lines}) == len(lines)
    for path, how, reason in lines:
        assert re.match(r"~/[^/]|/etc/|/var/|\$[A-Za-z]", path) and not path.endswith("/") and reason
        assert re.fullmatch(r"-|links|keep:[\w.]+|if:[^ ]+", how), path
