# SPDX-License-Identifier: Apache-2.0
"""The package for Node, built by tsc: it says what docs/openapi.yaml says, and works with a sidecar, a daemon and containers."""
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys

import pytest

from world.apid import TOKEN, Api
from world.engine_api import ApiEngine
from world.openapi import OPENAPI

ROOT = pathlib.Path(__file__).resolve().parents[3]
SDK = ROOT / "sdk/typescript"
METHODS = ("get", "post", "put", "patch", "delete")
# The document itself and a person's page, which no program asks for by this package.
NOT_ASKED = {"openapi", "page"}
RULE = {"action": "allow", "target": "a.test", "ports": [443]}


@pytest.fixture(scope="session")
def built(tmp_path_factory):
    """A folder that has the package below sdk/."""
    folder = tmp_path_factory.mktemp("node")
    subprocess.run(["tsc", "-p", SDK, "--outDir", folder / "sdk"], check=True)
    (folder / "package.json").write_text('{"type": "module"}')
    return folder


@pytest.fixture(scope="session")
def node(built):
    """node("say(1)", env) runs a module that has the package's exports. Return: what it said, a list for each say()."""
    def run(code, way=(), **env):
        script = built / "program.js"
        script.write_text("import { ApiError, Client, Sandbox, SetupError } from './sdk/index.js';\n"
                          "const say = (...values) => console.log(JSON.stringify(values));\n" + code)
        done = subprocess.run([*way, shutil.which("node"), script], env={**os.environ, **env}, capture_output=True, text=True,
                              timeout=120, check=False)
        assert done.returncode == 0, done
        return [json.loads(line) for line in done.stdout.splitlines()]
    return run


def test_the_types_are_those_of_the_schemas():
    made = subprocess.check_output([sys.executable, SDK / "schema.py"], text=True)
    assert made == (SDK / "src/schema.ts").read_text(encoding="utf-8"), "python3 sdk/typescript/schema.py > sdk/typescript/src/schema.ts"


def test_who_accepts_says_how_long_and_which_rule_was_shown(node):
    said = node("""
import { createServer } from "node:http";
const server = createServer(async (request, answer) => {
    let body = "";
    for await (const part of request) body += part;
    say(request.url, body);
    answer.end("{}");
}).listen(0, "127.0.0.1", async () => {
    const client = new Client(`http://127.0.0.1:${server.address().port}`), rule = { action: "allow", target: "a.test" };
    for (const asked of [undefined, { who: "me" }, { for: "10m" }, { rule }, { who: "me", for: "10m", rule }, { rule: null }])
        await client.acceptReview(7, asked);
    server.close();
    server.closeAllConnections();
});
""")
    rule = {"action": "allow", "target": "a.test"}
    assert [(url, json.loads(body or "null")) for url, body in said] == [
        ("/review/7/accept", None), ("/review/7/accept?who=me", None), ("/review/7/accept", {"for": "10m"}),
        ("/review/7/accept", {"rule": rule}), ("/review/7/accept?who=me", {"for": "10m", "rule": rule}), ("/review/7/accept", None)]


def test_each_operation_has_a_method():
    source = (SDK / "src/client.ts").read_text(encoding="utf-8")
    asked = {(method, re.sub(r"\$\{[^}]*\}", "{}", path))
             for method, path in re.findall(r'this\.(?:ask|text|json)(?:<[^(]*>)?\("([A-Z]+)", ["`]([^"`]+)["`]', source)}
    wanted = {(method.upper(), re.sub(r"\{[^}]*\}", "{}", path)) for path, item in OPENAPI["paths"].items() for method in METHODS
              if item.get(method, {}).get("operationId", "openapi") not in NOT_ASKED
              and not path.startswith("/sandboxes/{sandbox}/")}
    assert asked == wanted
    below = {path.removeprefix("/sandboxes/{sandbox}") for path in OPENAPI["paths"] if path.startswith("/sandboxes/{sandbox}/")}
    assert below <= set(OPENAPI["paths"]), "what is asked below a sandbox is asked with the same methods"


def test_the_version_is_that_of_weir():
    assert f"version: '{json.loads((SDK / 'package.json').read_text())['version']}'" in (ROOT / "meson.build").read_text()


PROGRAM = """import { Client, Sandbox } from "./sdk/index.js";
const client = new Client("/run/x");
export const mode: Promise<string> = client.getPolicy().then((status) => status.mode);
void Sandbox.create({ image: "x", networkPolicy: { egress: [{ action: "allow", target: "a.test", ports: [443, "tcp/22"] }] } });
void client.patchPolicy([{ action: "perhaps", target: "a.test" }]);  // fault
void Sandbox.create({ networkPolicy: {} });                          // fault
void client.getPolicy().then((status) => status.moode);              // fault
"""


def test_a_program_is_held_to_the_types(built):
    """What the types forbid doesn't compile, and what they allow does."""
    (built / "use.ts").write_text(PROGRAM)
    shown = re.findall(r"^```ts\n(.*?)^```", (SDK / "README.md").read_text(encoding="utf-8"), re.M | re.S)
    for n, text in enumerate(shown):
        (built / f"readme{n}.ts").write_text(text.replace('"weir-sdk"', '"./sdk/index.js"'))
    shutil.copy(SDK / "src/node.d.ts", built)
    (built / "console.d.ts").write_text("declare const console: Record<'log' | 'error', (...values: unknown[]) => void>;")
    options = json.loads((SDK / "tsconfig.json").read_text())["compilerOptions"]
    (built / "tsconfig.json").write_text(json.dumps({"compilerOptions": {**options, "noEmit": True, "rootDir": "."},
                                                     "files": ["node.d.ts", "console.d.ts", "use.ts", *(f"readme{n}.ts" for n in range(len(shown)))]}))
    done = subprocess.run(["tsc", "-p", built], capture_output=True, text=True, check=False)
    lines = {int(line) for line in re.findall(r"use\.ts\((\d+),", done.stdout)}
    assert len(shown) == 2 and "readme" not in done.stdout, done.stdout
    assert lines == {n for n, line in enumerate(PROGRAM.splitlines(), 1) if "// fault" in line}, done.stdout


def test_a_sidecar_s_policy_is_read_patched_and_replaced(node):
    with Api() as api:
        said = node(f"""
const client = new Client(process.env.API, {{ token: {json.dumps(TOKEN)} }});
say(await client.health(), await client.isHealthy());
await client.setPolicy({{ egress: [{json.dumps(RULE)}] }});
await client.patchPolicy([{{ action: "deny", target: "b.test" }}, {{ action: "allow", target: "ü.test" }}]);
say((await client.getPolicy()).policy.egress.map((rule) => rule.target));
await client.deleteRules(["b.test", "a.test"]);
say((await client.getPolicy()).policy.egress.length);
say((await client.setPolicy(null)).mode, (await client.status()).version, (await client.metrics()).includes("weir_info"));
for (const [what, one] of [["policy", client], ["token", new Client(process.env.API)], ["nobody", new Client("/nowhere/weir.sock")]])
    await one.setPolicy({{ egress: [{{ action: "perhaps", target: "a.test" }}] }}).catch((error) =>
        say(what, error instanceof ApiError, error.status, error.text));
""", API=api.url)
    assert said[0] == ["ok", True] and said[1][0][0] == "b.test" and len(said[1][0]) == 3 and said[2] == [1]
    assert said[3][0] == "deny_all" and said[3][2] is True
    assert [one[:3] for one in said[4:]] == [["policy", True, 400], ["token", True, 401], ["nobody", True, 0]]
    assert said[6][3].endswith("; is `weir daemon` running?") and "weir daemon" not in said[5][3]
    assert "unsupported action" in said[4][3]


def test_events_come_as_they_happen_and_after_an_id(node):
    with Api() as api:
        process = f"""
const client = new Client(process.env.API, {{ token: {json.dumps(TOKEN)} }});
const stream = await client.events({{ lastEventId: "0" }});
for await (const event of stream) {{ say(event.action, event.data.name, event.id !== ""); if (event.data.name === "two.test") break; }}
say((await client.denies({{ name: "*.test" }})).denies.length, (await client.countDenies({{ since: "1h" }})).packets);
"""
        api.event("one.test")
        api.event("two.test")
        said = node(process, API=api.url)
    assert [one[1] for one in said[:-1]][-2:] == ["one.test", "two.test"] and said[0][0] == "deny" and said[-1][1] == 2


@pytest.fixture(scope="module")
def docker(world):
    with ApiEngine(world, "docker") as engine:
        yield engine


def test_a_sandbox_is_made_patched_and_closed(docker, node, site, denied):
    allowed, refused = (f"http://{name}/" for name in (site.name, denied.name))
    said = node(f"""
const volumes = ["/usr:/usr:ro", "/etc/alternatives:/etc/alternatives:ro"];
const sandbox = await Sandbox.create({{ image: "app:test", guard: "sidecar", volumes,
    networkPolicy: {{ egress: [{{ action: "allow", target: {json.dumps(site.name)} }}] }} }});
const fetch = async (url) => {{ const r = await sandbox.run(["curl", "-sS", "-o", "/dev/null", "-w", "%{{http_code}}", url]); return [r.exitCode, r.stdout]; }};
say(await fetch({json.dumps(allowed)}), await fetch({json.dumps(refused)}));
const both = await sandbox.run(["sh", "-c", "head -c 300000 /dev/zero | tr '\\\\0' x; echo $V >&2; exit 7"], {{ env: {{ V: "err" }} }});
say(both.exitCode, both.stdout.length, both.stderr);
say((await sandbox.run(["sh", "-c", "exec >/dev/null 2>&1; sleep 0.5; exit 3"])).exitCode);
say((await sandbox.denies()).some((event) => event.name === {json.dumps(denied.name)}), (await sandbox.status()).fullIsolation);
await sandbox.patchPolicy([{{ action: "allow", target: {json.dumps(denied.name)} }}]);
say(await fetch({json.dumps(refused)}), (await sandbox.policy()).egress.length);
say(typeof (await sandbox.close()), await sandbox.close() >= 0);
await Sandbox.create({{ image: "app:test", networkPolicy: {{ egress: [{{ action: "allow", target: "*.com" }}] }} }}).catch((error) =>
    say(error instanceof SetupError, error.status, error.code, error.message));
await Sandbox.create({{ image: "app:test", guard: "sidecar", command: ["/nowhere/program"] }}).catch((error) =>
    say(error instanceof SetupError, error.code, error.message));
await Sandbox.create({{ image: "app:test", weir: "/nowhere/weir" }}).catch((error) => say(error instanceof SetupError, error.code));
""", way=docker.host.ns.command(), WEIR_PROGRAM=str(docker.world.weir_path), **docker.variables)
    assert said[0][0] == [0, "200"] and said[0][1][0] != 0, said
    assert said[1] == [7, 300000, "err\n"] and said[2] == [3] and said[3] == [True, True]
    assert said[4] == [[0, "200"], 2] and said[5] == ["number", True]
    assert said[6][:3] == [True, "failed_safety_setup", 2] and "*.com" in said[6][3]
    assert said[7][:2] == [True, 127] and "/nowhere/program" in said[7][2]
    assert said[8] == [True, 125]
    docker.nothing_left()


def test_a_program_that_ends_without_a_word_leaves_no_sandbox(docker, node):
    """As one that is killed does: its end of the pipe closes."""
    said = node("""
const sandbox = await Sandbox.create({ image: "app:test", guard: "sidecar", volumes: ["/usr:/usr:ro"] });
say(sandbox.id, sandbox.container.length);
process.exit(0);
""", way=docker.host.ns.command(),
                WEIR_PROGRAM=str(docker.world.weir_path), **docker.variables)
    assert said[0][1] == 64
    docker.nothing_left()
