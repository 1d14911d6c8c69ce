#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""What programs do at a denied name that is answered with NXDOMAIN, or with an address where connections are refused.

    bench_denied.py [--rounds 3] [--only NAME] [--json FILE]

Each figure is the median of how long `weir run` of the program took until it had failed, the start of the sandbox
(about 40 ms) included; beside it stand the last words of the program. The programs run as people call them, with the retries that they have
by themselves. Servers and names are those of tests/world. Needs root.
"""
import argparse
import json
import pathlib
import re
import shutil
import statistics
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from world.world import World  # noqa: E402

WAYS = ("nxdomain", "refuse")
NAME = "registry.denied.test"
JAVA = """
import java.net.URI; import java.net.http.*;
class Get { public static void main(String[] a) throws Exception {
    System.out.println(HttpClient.newHttpClient().send(HttpRequest.newBuilder(URI.create(a[0])).build(), HttpResponse.BodyHandlers.ofString()).statusCode()); } }
"""
GO = """
package main
import ("fmt"; "net/http"; "os")
func main() { r, err := http.Get(os.Args[1]); if err != nil { fmt.Println(err); os.Exit(1) }; fmt.Println(r.Status); os.Exit(1) }
"""
REQUESTS = "import requests, sys; print(requests.get(sys.argv[1]).status_code)"
URLLIB = "import urllib.request as u, sys; print(u.urlopen(sys.argv[1]).status)"
FETCH = "fetch(process.argv[1]).then(r => r.text()).then(console.log, e => { console.error(String(e.cause)); process.exit(1) })"
CHROMIUM = ("chromium", "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update",
            "--no-first-run", "--user-data-dir=/tmp/c", "--dump-dom")


def programs(folder):
    """What it is called, and its command."""
    for scheme in "https", "http":
        url = f"{scheme}://{NAME}/"
        yield f"curl {scheme}", ("curl", "-sS", url)
        yield f"npm view {scheme}", ("npm", "view", "left-pad", f"--registry={url}", "--cache=/tmp/npm")
        yield f"pip download {scheme}", ("/usr/bin/python3", "-m", "pip", "download", "six", "-i", f"{url}simple", "-d", "/tmp/pip", "--no-cache-dir")
        yield f"git ls-remote {scheme}", ("git", "ls-remote", f"{url}a.git")
        yield f"node fetch {scheme}", ("node", "-e", FETCH, url)
        yield f"python requests {scheme}", ("/usr/bin/python3", "-c", REQUESTS, url)
        yield f"python urllib {scheme}", ("/usr/bin/python3", "-c", URLLIB, url)
        yield f"java HttpClient {scheme}", ("java", str(folder / "Get.java"), url)
        yield f"go http.Get {scheme}", (str(folder / "get"), url)
        yield f"wget {scheme}", ("wget", "-O-", url)
        yield f"chromium {scheme}", (*CHROMIUM, url)
    yield "git over ssh", ("git", "ls-remote", f"git@{NAME}:a.git")
    yield "git protocol", ("git", "ls-remote", f"git://{NAME}/a.git")
    yield "psql", ("psql", "-h", NAME, "-U", "a", "b")
    yield "ping", ("ping", "-c1", NAME)
    yield "getent", ("getent", "hosts", NAME)


def last_words(done):
    lines = [line for line in f"{done.text}\n{done.messages}".splitlines() if line.strip() and not line.startswith("weir") and "--allow" not in line]
    errors = [line for line in lines if re.search(r"(?i)error|refused|denied|could not|cannot|forbidden|reset|unknown|alert|not known|failed", line)]
    return (errors or lines or [""])[0].strip()[:110]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", default="")
    parser.add_argument("--json")
    args = parser.parse_args()
    found = {}
    with World() as world:
        folder = world.workdir()
        (folder / "Get.java").write_text(JAVA)
        (folder / "get.go").write_text(GO)
        if shutil.which("go"):
            world.command("go", "build", "-o", str(folder / "get"), str(folder / "get.go"), cwd=folder, timeout=300)
        for _ in range(args.rounds):
            for what, argv in programs(folder):
                if args.only not in what or not shutil.which(argv[0]):
                    continue
                for way in WAYS:
                    done = world.run(*argv, options=("--denied-names", way, "--no-config"), cwd=folder, timeout=200)
                    row = found.setdefault(what, {}).setdefault(way, {"ms": []})
                    row["ms"].append(round(done.seconds * 1000))
                    row.update(code=done.code, says=last_words(done))
        assert world.dns.count(NAME) == 0
    for what, ways in found.items():
        print(f"{what:24}" + "".join(f" {statistics.median(row['ms']):8.0f} ms" for row in ways.values()))
        for way, row in ways.items():
            print(f"    {way:9} {row['code']:3} {row['says']}")
    if args.json:
        pathlib.Path(args.json).write_text(json.dumps(found, indent=1), encoding="utf-8")


if __name__ == "__main__":
    main()
