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
import zipfile

import pytest

from world.run import start, finish


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

    def run(self, *argv, preset=None, env=None, **options):
        more = ("--rw-preset", preset) if preset else ()
        return self.world.run(*argv, allow=(f"{self.site.name}:443",), options=more, user=self.user, cwd=self.project,
                              env={"HOME": str(self.home), **(env or {})}, **options)

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


def test_pip(shop):
    info = {"six-1.0.dist-info/METADATA": "Metadata-Version: 2.1\nName: six\nVersion: 1.0\n",
            "six-1.0.dist-info/WHEEL": "Wheel-Version: 1.0\nGenerator: t\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
            "six-1.0.dist-info/RECORD": "", "six.py": "x = 1\n"}
    shop.put("simple/six/six-1.0-py3-none-any.whl", zipped(info))
    argv = ("/usr/bin/python3", "-m", "pip", "download", "--no-deps", "--disable-pip-version-check", "--cert",
            shop.world.ca.cert, "--index-url", f"{shop.url}/simple", "six")
    done = shop.run(*argv, preset="pip")
    assert done.code == 0 and (shop.project / "six-1.0-py3-none-any.whl").exists(), done
    assert "not writable" not in done.messages and (shop.home / ".cache" / "pip").is_dir(), done


@needs("npm")
def test_npm(shop):
    package = tar({"package/package.json": '{"name": "six", "version": "1.0.0"}', "package/index.js": "6\n"})
    integrity = "sha512-" + base64.b64encode(hashlib.sha512(package).digest()).decode()
    version = {"name": "six", "version": "1.0.0",
               "dist": {"tarball": f"{shop.url}/tarballs/six-1.0.0.tgz", "integrity": integrity}}
    shop.put("npm/six", json.dumps({"name": "six", "dist-tags": {"latest": "1.0.0"}, "versions": {"1.0.0": version}}))
    shop.put("tarballs/six-1.0.0.tgz", package)
    shop.write("package.json", '{"name": "project", "version": "1.0.0"}')
    done = shop.run("npm", "install", "--no-audit", "--no-fund", "--no-update-notifier", "--fetch-retries", "0",
                    "--cafile", shop.world.ca.cert, "--registry", f"{shop.url}/npm/", "six", preset="npm")
    assert done.code == 0 and (shop.project / "node_modules" / "six" / "index.js").exists(), done
    assert shop.kept(".npm"), done


@needs("go")
def test_go(shop):
    module = "six.test/six"
    shop.put(f"{module}/@v/list", "v1.0.0\n")
    shop.put(f"{module}/@v/v1.0.0.info", '{"Version": "v1.0.0", "Time": "2024-01-01T00:00:00Z"}')
    shop.put(f"{module}/@v/v1.0.0.mod", f"module {module}\n")
    shop.put(f"{module}/@v/v1.0.0.zip", zipped({f"{module}@v1.0.0/go.mod": f"module {module}\n",
                                                f"{module}@v1.0.0/six.go": "package six\n\nconst Six = 6\n"}))
    shop.write("go.mod", f"module project.test\n\ngo 1.19\n\nrequire {module} v1.0.0\n")
    shop.write("main.go", f'package main\n\nimport "{module}"\n\nfunc main() {{ println(six.Six) }}\n')
    env = {"GOPROXY": shop.url, "GOSUMDB": "off", "GOFLAGS": "-mod=mod", "CGO_ENABLED": "0"}
    done = shop.run("go", "run", ".", preset="go", env=env)
    assert done.code == 0 and done.messages.strip().endswith("6"), done
    assert shop.kept("go/pkg/mod/cache") and shop.kept(".cache/go-build"), done


def toolchain():
    """cargo and rustc themselves: rustup's cargo would want a home of its own."""
    if not os.access("/root", os.R_OK):
        return None
    for folder in sorted(pathlib.Path("/root/.rustup/toolchains").glob("*/bin")) + [pathlib.Path("/usr/bin")]:
        if (folder / "cargo").exists():
            return folder
    return None


@pytest.mark.skipif(not toolchain(), reason="cargo is not installed")
def test_cargo(world, site):
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
    done = shop.run(toolchain() / "cargo", "fetch", preset="cargo", env=env)
    assert done.code == 0 and shop.kept(".cargo/registry"), done


def test_apt(world, site):
    shop = Shop(world, site, "root")
    folder = world.workdir() / "six"
    (folder / "DEBIAN").mkdir(parents=True)
    (folder / "DEBIAN" / "control").write_text("Package: six-of-weir\nVersion: 1\nArchitecture: all\n"
                                               "Maintainer: t <t@t.test>\nDescription: six\n")
    deb = shop.files / "six_1_all.deb"
    assert finish(start(["dpkg-deb", "--build", "--root-owner-group", str(folder), str(deb)])).code == 0
    content = deb.read_bytes()
    shop.put("Packages", (folder / "DEBIAN" / "control").read_text() +
             f"Filename: ./{deb.name}\nSize: {len(content)}\nSHA256: {hashlib.sha256(content).hexdigest()}\n")
    shop.write("sources.list", f"deb [trusted=yes] {shop.url} ./\n")
    options = ["-o", f"Dir::Etc::sourcelist={shop.project}/sources.list", "-o", "Dir::Etc::sourceparts=-",
               "-o", f"Acquire::https::CAInfo={world.ca.cert}", "-o", "APT::Sandbox::User=root",
               "-o", "Acquire::Languages=none"]
    script = 'apt-get -q "$@" update && apt-get -q "$@" download six-of-weir'
    # The machine's own lists stay as they are.
    mounts = [f"mount -t tmpfs none {path}" for path in ("/var/lib/apt", "/var/cache/apt", "/var/log/apt")]
    done = shop.run("sh", "-c", script, "sh", *options, preset="apt", mounts=(*mounts, "mkdir -p /var/lib/apt/lists/partial "
                                                                              "/var/cache/apt/archives/partial"))
    assert done.code == 0 and list(shop.project.glob("six-of-weir_1_all.deb")), done


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
