# SPDX-License-Identifier: Apache-2.0
"""--rw-preset with the real programs, each against a mirror in the test world: they work, and what they keep for the
next time is in the home directory."""
import base64
import hashlib
import io
import json
import os
import pathlib
import shutil
import tarfile
import tempfile
import zipfile

import pytest

from world.run import start, finish
from world.world import RESOLVER4


class Shop:
    """A home, a project and a folder that a name of this test serves at /shop/."""

    def __init__(self, world, site, user):
        self.world, self.site, self.user = world, site, user
        self.home, self.project, self.files = world.workdir(user), world.workdir(user), world.workdir()
        self.prefix = f"/shop-{world.number()}"
        self.url = f"https://{site.name}{self.prefix}"
        world.web.mount(self.prefix, self.files)

    def put(self, path, content):
        file = self.files / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content if isinstance(content, bytes) else content.encode())

    def write(self, path, text):
        file = self.project / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
        for made in (file, file.parent):
            shutil.chown(made, self.user, self.user)

    def learn(self, argv, env, preset, **rest):
        """What @argv needs, learned from what it does in a copy of the project and an empty home. Return: the policy."""
        copy, home, policy = self.world.workdir(), self.world.workdir(self.user), self.world.workdir(self.user) / "policy.yaml"
        shutil.copytree(self.project, copy / "project")
        self.world.command("chown", "-R", f"{self.user}:", copy)
        done = self.world.weir("learn", "--no-config", "--upstream", RESOLVER4, "-o", policy, "--rw-preset", preset, "--", *argv,
                               user=self.user, cwd=copy / "project", env={"HOME": str(home), **(env or {})}, **rest)
        checked = self.world.weir("policy", "check", policy)
        assert done.code == 0 and checked.code == 0, (done, checked, policy.read_text())
        assert f'target: "{self.site.name}", ports: [tcp/' in policy.read_text(), policy.read_text()
        return policy

    def run(self, *argv, preset=None, env=None, ports="443", options=(), **rest):
        more = ("--rw-preset", preset) if preset else ()
        if options[:1] == ("learn",):
            policy = self.learn(argv, env, options[1], **rest)
            return self.world.run(*argv, options=("--policy", policy, "--rw-preset", options[1]), user=self.user, cwd=self.project,
                                  env={"HOME": str(self.home), **(env or {})}, **rest)
        return self.world.run(*argv, allow=(f"{self.site.name}:{ports}",), options=(*more, *options), user=self.user,
                              cwd=self.project, env={"HOME": str(self.home), **(env or {})}, **rest)

    def kept(self, path):
        """Files below a folder of the home."""
        return [p for p in (self.home / path).rglob("*") if p.is_file()]


@pytest.fixture
def shop(world, site, user):
    return Shop(world, site, user)


def tar(files):
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz") as archive:
        for name, text in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(text)
            archive.addfile(member, io.BytesIO(text.encode()))
    return out.getvalue()


def zipped(files):
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        for name, text in files.items():
            archive.writestr(name, text)
    return out.getvalue()


def needs(program):
    return pytest.mark.skipif(not shutil.which(program, path="/usr/local/bin:/usr/bin:/bin"),
                              reason=f"{program} is not installed")


# "learn": under the policy that `weir learn` wrote of the same command
EITHER = pytest.mark.parametrize("way", ["--rw-preset", "--profile", "learn"])


@EITHER
def test_pip(shop, way):
    info = {"six-1.0.dist-info/METADATA": "Metadata-Version: 2.1\nName: six\nVersion: 1.0\n",
            "six-1.0.dist-info/WHEEL": "Wheel-Version: 1.0\nGenerator: t\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
            "six-1.0.dist-info/RECORD": "", "six.py": "x = 1\n"}
    shop.put("simple/six/six-1.0-py3-none-any.whl", zipped(info))
    argv = ("/usr/bin/python3", "-m", "pip", "download", "--no-deps", "--disable-pip-version-check", "--cert",
            shop.world.ca.cert, "--index-url", f"{shop.url}/simple", "six")
    done = shop.run(*argv, options=(way, "pip"))
    assert done.code == 0 and (shop.project / "six-1.0-py3-none-any.whl").exists(), done
    assert "not writable" not in done.messages, done
    assert (shop.home / (".cache/pip" if way != "--profile" else ".local/state/weir/pip/PIP_CACHE_DIR")).is_dir(), done


@needs("npm")
@EITHER
def test_npm(shop, way):
    package = tar({"package/package.json": '{"name": "six", "version": "1.0.0"}', "package/index.js": "6\n"})
    integrity = "sha512-" + base64.b64encode(hashlib.sha512(package).digest()).decode()
    version = {"name": "six", "version": "1.0.0",
               "dist": {"tarball": f"{shop.url}/tarballs/six-1.0.0.tgz", "integrity": integrity}}
    shop.put("npm/six", json.dumps({"name": "six", "dist-tags": {"latest": "1.0.0"}, "versions": {"1.0.0": version}}))
    shop.put("tarballs/six-1.0.0.tgz", package)
    shop.write("package.json", '{"name": "project", "version": "1.0.0"}')
    done = shop.run("npm", "install", "--no-audit", "--no-fund", "--no-update-notifier", "--fetch-retries", "0",
                    "--cafile", shop.world.ca.cert, "--registry", f"{shop.url}/npm/", "six", options=(way, "npm"))
    assert done.code == 0 and (shop.project / "node_modules" / "six" / "index.js").exists(), done
    assert shop.kept(".npm" if way != "--profile" else ".local/state/weir/npm/npm_config_cache"), done


@needs("go")
@EITHER
def test_go(shop, way):
    module = "six.test/six"
    shop.put(f"{module}/@v/list", "v1.0.0\n")
    shop.put(f"{module}/@v/v1.0.0.info", '{"Version": "v1.0.0", "Time": "2024-01-01T00:00:00Z"}')
    shop.put(f"{module}/@v/v1.0.0.mod", f"module {module}\n")
    shop.put(f"{module}/@v/v1.0.0.zip", zipped({f"{module}@v1.0.0/go.mod": f"module {module}\n",
                                                f"{module}@v1.0.0/six.go": "package six\n\nconst Six = 6\n"}))
    shop.write("go.mod", f"module project.test\n\ngo 1.19\n\nrequire {module} v1.0.0\n")
    shop.write("main.go", f'package main\n\nimport "{module}"\n\nfunc main() {{ println(six.Six) }}\n')
    env = {"GOPROXY": shop.url, "GOSUMDB": "off", "GOFLAGS": "-mod=mod", "CGO_ENABLED": "0"}
    done = shop.run("go", "run", ".", options=(way, "go"), env=env)
    assert done.code == 0 and done.messages.strip().endswith("6"), done
    places = (("go/pkg/mod/cache", ".cache/go-build") if way != "--profile" else
              (".local/state/weir/go/GOMODCACHE", ".local/state/weir/go/GOCACHE"))
    assert all(shop.kept(place) for place in places), done


def toolchain():
    """cargo and rustc themselves: rustup's cargo would want a home of its own."""
    if not os.access("/root", os.R_OK):
        return None
    for folder in sorted(pathlib.Path("/root/.rustup/toolchains").glob("*/bin")) + [pathlib.Path("/usr/bin")]:
        if (folder / "cargo").exists():
            return folder
    return None


@pytest.mark.skipif(not toolchain(), reason="cargo is not installed")
@EITHER
def test_cargo(world, site, way):
    shop = Shop(world, site, "root")  # whose toolchain it may be
    crate = tar({"sixy-1.0.0/Cargo.toml": '[package]\nname = "sixy"\nversion = "1.0.0"\nedition = "2021"\n',
                 "sixy-1.0.0/src/lib.rs": "pub const SIX: u8 = 6;\n"})
    shop.put("index/config.json", json.dumps({"dl": f"{shop.url}/crates/{{crate}}-{{version}}.crate"}))
    shop.put("index/si/xy/sixy", json.dumps({"name": "sixy", "vers": "1.0.0", "deps": [], "features": {}, "yanked": False,
                                             "cksum": hashlib.sha256(crate).hexdigest()}) + "\n")
    shop.put("crates/sixy-1.0.0.crate", crate)
    shop.write("Cargo.toml", '[package]\nname = "project"\nversion = "0.1.0"\nedition = "2021"\n\n'
                             '[dependencies]\nsixy = "1"\n')
    shop.write("src/main.rs", "fn main() {}\n")
    shop.write(".cargo/config.toml", '[source.crates-io]\nreplace-with = "mirror"\n\n'
                                     f'[source.mirror]\nregistry = "sparse+{shop.url}/index/"\n')
    env = {"CARGO_HTTP_CAINFO": str(shop.world.ca.cert), "RUSTC": str(toolchain() / "rustc")}
    done = shop.run(toolchain() / "cargo", "fetch", options=(way, "cargo"), env=env)
    assert done.code == 0 and shop.kept(".cargo/registry" if way != "--profile" else ".local/state/weir/cargo/CARGO_HOME/registry"), done


@pytest.fixture
def archive(shop):
    """A small archive, as /etc/apt names one. Return: the mounts that show it there."""
    folder = shop.world.workdir() / "six"
    (folder / "DEBIAN").mkdir(parents=True)
    (folder / "DEBIAN" / "control").write_text("Package: six-of-weir\nVersion: 1\nArchitecture: all\n"
                                               "Maintainer: t <t@t.test>\nDescription: six\n")
    deb = shop.files / "six_1_all.deb"
    assert finish(start(["dpkg-deb", "--build", "--root-owner-group", str(folder), str(deb)])).code == 0
    content = deb.read_bytes()
    shop.put("Packages", (folder / "DEBIAN" / "control").read_text() +
             f"Filename: ./{deb.name}\nSize: {len(content)}\nSHA256: {hashlib.sha256(content).hexdigest()}\n")
    etc = shop.world.workdir(shop.user)
    for name in ("apt.conf.d", "sources.list.d", "preferences.d", "trusted.gpg.d"):
        (etc / name).mkdir(mode=0o755)
    (etc / "sources.list").write_text(f"deb [trusted=yes] http://{shop.site.name}{shop.prefix} ./\n")
    return f"mount --bind {etc} /etc/apt",


def listing(*folders):
    return {path: path.stat().st_mtime_ns for folder in folders for path in pathlib.Path(folder).rglob("*")}


APT = ("apt-get -q update && apt-get -q download six-of-weir && apt-get -q -y install --download-only six-of-weir && "
       "apt-cache policy six-of-weir")


def test_apt(shop, archive):
    machine = listing("/var/lib/apt", "/var/cache/apt", "/var/log/apt")
    argv = ("sh", "-c", APT)
    done = shop.run(*argv, ports="80", mounts=archive)
    assert done.code != 0 and "E: " in done.messages and not list(shop.project.iterdir()), done
    for way in ({"preset": "apt"}, {"options": ("--profile", "apt")}, {"options": ("learn", "apt")}):
        done = shop.run(*argv, ports="80", mounts=archive, **way)
        assert done.code == 0 and "Candidate: 1" in done.text and list(shop.project.glob("six-of-weir_1_all.deb")), done
        kept = [file.name for file in shop.kept(".local/state/weir/apt/own/cache/archives") if file.suffix == ".deb"]
        assert kept == ["six-of-weir_1_all.deb"] and "W:" not in done.messages, done
        next(shop.project.glob("*.deb")).unlink()
        shutil.rmtree(shop.home / ".local")
    assert machine == listing("/var/lib/apt", "/var/cache/apt", "/var/log/apt")


def test_apt_finds_its_configuration_in_a_home_below_tmp(shop, archive):
    with tempfile.TemporaryDirectory(dir="/tmp") as home:
        shutil.chown(home, shop.user, shop.user)
        done = shop.run("sh", "-c", "apt-config dump Dir::State::lists; : > $APT_CONFIG", preset="apt", env={"HOME": home}, mounts=archive)
        assert f'Dir::State::lists "{home}/.local/state/weir/apt/own/lists' in done.text and "cannot create" in done.messages, done


def test_apt_says_at_once_that_it_cannot_install(shop, archive):
    done = shop.run("apt-get", "-q", "-y", "install", "six-of-weir", preset="apt", ports="80", mounts=archive)
    assert done.code == 100 and "apt can't install or remove packages in a sandbox" in done.messages.splitlines()[0], done
    assert done.messages.index("can't install") < done.messages.index("E: "), done
    done = shop.run("sh", "-c", "apt-get -q update; apt-get -q -y install six-of-weir", preset="apt", ports="80", mounts=archive)
    assert done.code == 100 and "packages can't be installed in a sandbox" in done.messages, done


def test_without_a_preset_the_caches_cannot_be_written(shop):
    (shop.home / ".npm").mkdir()
    shutil.chown(shop.home / ".npm", shop.user, shop.user)
    assert shop.run("touch", f"{shop.home}/.npm/x").code != 0
    assert shop.run("touch", f"{shop.home}/.npm/x", preset="npm").code == 0


def test_a_preset_opens_neither_programs_nor_configuration(shop):
    for path in (".cargo/bin", ".cargo/registry", ".config", "go/bin"):
        folder = shop.home / path
        folder.mkdir(parents=True)
    world, who = shop.world, shop.user
    world.command("chown", "-R", f"{who}:", shop.home)
    for preset in ("cargo", "go", "npm", "pip"):
        for path in (".cargo/bin/x", ".cargo/config.toml", ".npmrc", ".config/x", "go/bin/x", ".bashrc"):
            done = shop.run("touch", f"{shop.home}/{path}", preset=preset)
            assert done.code != 0 and not (shop.home / path).exists(), (preset, path)


def test_the_programs_own_variable_names_the_place(shop):
    cache = shop.home / "elsewhere"
    done = shop.run("touch", f"{cache}/x", preset="pip", env={"PIP_CACHE_DIR": str(cache)})
    assert done.code == 0 and (cache / "x").exists() and not (shop.home / ".cache").exists(), done


def test_an_unknown_preset_is_an_error(world):
    done = world.run("true", options=("--rw-preset", "gem"))
    assert done.code == 2 and "'gem' is not one of" in done.messages, done


# --- what a profile brings along ---

@pytest.mark.parametrize("name, variables", [("pip", ["PIP_CACHE_DIR"]), ("npm", ["npm_config_cache"]), ("go", ["GOPATH", "GOCACHE"]),
                                             ("cargo", ["CARGO_HOME"])])
def test_a_profile_brings_a_place_of_its_own(shop, name, variables):
    script = "".join(f'echo kept > "${v}/x" && ' for v in variables) + "cat $HOME/.npm/x"
    users = shop.home / ".npm"
    users.mkdir()
    (users / "x").write_text("the user's\n")
    shop.world.command("chown", "-R", f"{shop.user}:", shop.home)
    done = shop.run("sh", "-c", script + " && ! touch $HOME/.npm/planted", options=("--profile", name))
    assert done.code == 0 and done.text == "the user's\n", done
    for variable in variables:
        assert (shop.home / f".local/state/weir/{name}/{variable}/x").read_text() == "kept\n"
    done = shop.run("sh", "-c", f'cat "${variables[0]}/x"', options=("--profile", name))
    assert done.text == "kept\n", done
    assert not (users / "planted").exists()


def test_in_a_place_of_its_own_nothing_is_held(shop):
    """What runs later outside runs there in sandboxes alone, and an agent writes its settings."""
    for text in ("one", "two"):
        done = shop.run("sh", "-c", f'mkdir -p "$XDG_CONFIG_HOME/opencode/.vscode" && echo {text} > "$XDG_CONFIG_HOME/opencode/opencode.json"; echo x > opencode.json',
                        options=("--profile", "opencode"))
        assert done.code == (0 if text == "one" else 2), done
        told = [line for line in done.messages.splitlines() if "is new or has changed" in line]
        assert len(told) == (1 if text == "one" else 0) and all("/XDG_CONFIG_HOME/" not in line for line in told), done
    place = shop.home / ".local/state/weir/opencode/XDG_CONFIG_HOME"
    assert (place / "opencode/opencode.json").read_text() == "two\n"


def test_what_the_caller_names_counts_before_the_profile(shop):
    script = 'echo "$npm_config_cache"; touch $HOME/.npm/x'
    assert shop.run("sh", "-c", script, preset="npm", options=("--profile", "npm")).text == "\n"
    assert (shop.home / ".npm/x").exists()
    done = shop.run("sh", "-c", 'echo "$npm_config_cache"', options=("--profile", "npm", "--set-env", "npm_config_cache=/tmp/mine"))
    assert done.text == "/tmp/mine\n", done
    done = shop.run("sh", "-c", 'echo "$npm_config_cache"', env={"npm_config_cache": "/tmp/mine"},
                    options=("--profile", "npm", "--pass-env", "npm_config_cache"))
    assert done.text == "/tmp/mine\n" and not (shop.home / ".local/state/weir/npm/npm_config_cache").exists(), done


def test_a_home_that_cannot_be_written_to_ends_nothing(shop):
    done = shop.run("sh", "-c", 'mkdir "$npm_config_cache" && touch "$npm_config_cache/x"', env={"HOME": "/proc"},
                    options=("--profile", "npm"))
    assert done.code == 0 and "what npm_config_cache names is not kept" in done.messages, done


def test_what_ships_with_weir_is_extended_in_silence(shop):
    """`weir learn` writes such policies. What the profile's programs need isn't passed."""
    shop.write("policy.yaml", "extends: [pip]\n")
    done = shop.run("sh", "-c", 'echo "$PIP_CACHE_DIR"', options=("--policy", "policy.yaml"))
    assert done.code == 0 and done.text == "\n" and "ignoring" not in done.messages, done


def test_only_a_named_profile_brings_something(shop):
    """Not a policy, which may be anybody's, nor what it extends."""
    for text in ("extends: [own]", "run: {pass_env: [A_TOKEN], own: [A_PLACE]}"):
        shop.write("policy.yaml", text + "\n")
        shop.write("home/.config/weir/profiles/own.yaml", "run: {pass_env: [A_TOKEN], own: [A_PLACE]}\n")
        env = {"A_TOKEN": "needle", "HOME": f"{shop.project}/home"}
        shop.world.command("chown", "-R", f"{shop.user}:", shop.project)
        for given in (("--policy", "policy.yaml"), ("--profile", "./policy.yaml")):
            done = shop.run("sh", "-c", 'echo "$A_TOKEN$A_PLACE"', env=env, options=given)
            if shop.user != "root":  # whose profiles are those of the passwd entry's home
                assert done.code == 0 and "`run` counts in a profile that --profile names" in done.messages, done
            assert "needle" not in done.text and "/" not in done.text, done
    if shop.user != "root":
        done = shop.run("sh", "-c", 'echo "$A_TOKEN"; touch "$A_PLACE/x"', env=env, options=("--profile", "own"))
        assert done.code == 0 and done.text == "needle\n", done
        done = shop.run("env", env=env, options=("--profile", "own", "--env", "none"))
        assert "needle" not in done.text and "A_PLACE=" in done.text, done


@pytest.mark.parametrize("text, says", [
    ("run: {own: [a-b]}", "run.own[0]: 'a-b' is not the name of a variable"), ("run: {pass_env: A}", "run.pass_env: 'A' is not a list"),
    ("run: {rw: [/]}", "'rw' is not a key that is known here: there are own, pass_env, set_env, rw_preset"), ("run: []", "run: a list stands here"),
    ("run: {set_env: [A]}", "run.set_env[0]: 'A' is not NAME=VALUE"), ("run: {rw_preset: [1]}", "run.rw_preset[0]: '1' is not a text")])
def test_a_fault_in_what_a_profile_brings_is_told(shop, text, says):
    shop.write("policy.yaml", text + "\n")
    done = shop.world.weir("policy", "check", shop.project / "policy.yaml")
    assert done.code != 0 and says in done.messages, done


def test_a_throw_away_home(shop):
    (shop.home / ".npmrc").write_text("color=false\n")
    script = ('touch $HOME/.bashrc $HOME/.npm-x && mkdir -p $HOME/.npm && touch $HOME/.npm/x && ls -A $HOME; '
              'echo "$HOME $npm_config_cache$XDG_CACHE_HOME"')
    for more in ((), ("--profile", "npm"), ("--rw-preset", "npm")):
        done = shop.run("sh", "-c", script, options=("--home", "tmp", *more), env={"XDG_CACHE_HOME": f"{shop.home}/.cache"})
        assert done.code == 0 and done.text == ".bashrc\n.npm\n.npm-x\n/tmp/home \n", done
        assert [p.name for p in shop.home.iterdir()] == [".npmrc"]
    done = shop.run("sh", "-c", "echo $HOME", options=("--home", "tmp", "--env", "none"))
    assert done.text == "/tmp/home\n", done
