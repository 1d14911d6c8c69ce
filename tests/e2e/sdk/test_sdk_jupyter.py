# SPDX-License-Identifier: Apache-2.0
"""Jupyter: %%weir in a real IPython shell, and a guarded kernel below a real notebook server."""
import pytest

pytest.importorskip("ipykernel")
pytest.importorskip("notebook")

LOOK = "import socket\ntry: socket.getaddrinfo({name!r}, 1); print('found')\nexcept OSError: print('none')"


def test_a_cell_is_a_guarded_process(sdk, site, denied):
    [[out, err, status], [bad, code]] = sdk(f"""
import contextlib, io
from IPython.core.interactiveshell import InteractiveShell
shell = InteractiveShell.instance()
shell.run_line_magic("load_ext", "weir")
def cell(line, text):
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        shell.run_cell_magic("weir", line, text)
    return out.getvalue(), err.getvalue(), shell.user_ns["_exit_code"]
say(*cell("--profile none --allow {site.name} --upstream " + upstream, {LOOK.format(name=site.name) + chr(10) + LOOK.format(name=denied.name)!r}))
say(*cell("--allow a..b", "pass")[1:])
""", env={"IPYTHONDIR": "/tmp"})
    assert (out, status) == ("found\nnone\n", 0) and f"refused: {denied.name}" in err and "--allow " in err
    assert "a..b" in bad and code == 125


# What a person's browser does: a notebook's server starts the kernel, and runs cells in it over a web socket.
NOTEBOOK = r"""
import http.client, pathlib, tempfile, uuid
import websockets
home = os.environ["HOME"]
from weir import jupyter
jupyter.print = lambda *_: None
assert jupyter.main(["install", "--profile", "none", "--allow", ALLOW, "--upstream", upstream]) == 0
server = subprocess.Popen([sys.executable, "-m", "notebook", "--no-browser", "--allow-root", "--ip=127.0.0.1", "--port=PORT", "--port-retries=0",
                           "--NotebookApp.token=", "--NotebookApp.password=", "--NotebookApp.disable_check_xsrf=True",
                           f"--notebook-dir={os.getcwd()}"], stdout=subprocess.DEVNULL, stderr=open("log", "w"))
def call(method, path, body=None):
    c = http.client.HTTPConnection("127.0.0.1", PORT, timeout=60)
    try:
        c.request(method, path, body and json.dumps(body), {"Content-Type": "application/json"})
        text = c.getresponse().read()
        return json.loads(text) if text else None
    finally:
        c.close()
while True:
    try:
        specs = call("GET", "/api/kernelspecs"); break
    except OSError:
        assert server.poll() is None, open("log").read()
        time.sleep(0.1)
kernel = call("POST", "/api/kernels", {"name": "weir-none"})["id"]
async def cell(ws, code, interrupt=False):
    number = uuid.uuid4().hex
    await ws.send(json.dumps({"header": {"msg_id": number, "msg_type": "execute_request", "username": "", "session": "s", "version": "5.3", "date": ""},
        "parent_header": {}, "metadata": {}, "channel": "shell", "content": {"code": code, "silent": False, "store_history": False,
        "user_expressions": {}, "allow_stdin": False, "stop_on_error": False}}))  # else the kernel drops what comes right behind
    out, reply, idle = "", None, False
    while True:
        message = json.loads(await ws.recv())
        if message["parent_header"].get("msg_id") != number:
            continue
        kind, content = message["msg_type"], message["content"]
        if kind == "stream":
            out += content["text"]
            if interrupt and "begun" in out:
                interrupt = False
                await asyncio.get_running_loop().run_in_executor(None, call, "POST", f"/api/kernels/{kernel}/interrupt")
        elif kind == "execute_reply":
            reply = content["status"] + " " + content.get("ename", "")
        idle = idle or kind == "status" and content["execution_state"] == "idle"
        if idle and reply:  # by two sockets, in either order
            return out, reply
async def main():
    async with websockets.connect(f"ws://127.0.0.1:{PORT}/api/kernels/{kernel}/channels", max_size=None, open_timeout=60) as ws:
        for code, interrupt in CELLS:  # a cell after the other
            say(*await asyncio.wait_for(cell(ws, code, interrupt), 60))
asyncio.run(main())
call("DELETE", f"/api/kernels/{kernel}")
server.terminate(); server.wait()
"""


@pytest.mark.parametrize("user", ["weir-test"])
def test_a_notebook_s_kernel_is_guarded(world, sdk, user, site, denied):
    """The allowed name is the control; the kernel's network is its own, and it ends with its server."""
    home, folder = world.workdir(user), world.workdir(user)
    cells = [("print(6 * 7)", False), (LOOK.format(name=site.name), False), (LOOK.format(name=denied.name), False),
             ("import os; print(os.listdir('/sys/class/net'), os.environ['WEIR_SANDBOX'][:4])", False),
             ("import time\nprint('begun', flush=True)\ntime.sleep(600)", True), ("print('still here')", False)]
    port = 18000 + world.number() % 1000
    code = f"ALLOW, PORT, CELLS = {site.name!r}, {port}, {cells!r}\n" + NOTEBOOK.replace("--port=PORT", f"--port={port}")
    with world.capture() as capture:
        said = sdk("import warnings; warnings.simplefilter('ignore')\n" + code, user=user, cwd=folder,
                   env={"HOME": str(home), "JUPYTER_RUNTIME_DIR": str(home / "runtime"), "JUPYTER_DATA_DIR": str(home / "data"),
                        "PYTHONWARNINGS": "ignore", "TMPDIR": str(world.workdir(user))}, timeout=120)
        assert {q.name for q in world.dns.queries()} >= {site.name} and denied.name not in {q.name for q in world.dns.queries()}
        assert not {denied.v4, denied.v6} & {p.dst for p in capture.packets()}
    assert [out for out, _ in said[:3]] == ["42\n", "found\n", "none\n"], said
    assert "run-" in said[3][0] and said[4] == ["begun\n", "error KeyboardInterrupt"] and said[5] == ["still here\n", "ok "], said
    assert world.leftovers() == []


# The door to the kernel's first socket, opened outside. The command leaves a link to a socket of the machine's there.
DOOR = r"""
import contextlib, pathlib, socket, tempfile
from weir import jupyter
folder = pathlib.Path(tempfile.mkdtemp())
inside, outside = folder / "inside", folder / "machine.sock"
inside.mkdir()
async def main():
    heard = {}
    def serve(name):
        async def on_client(reader, writer):
            heard[name] = (await reader.read(64)).decode()
            writer.close()
        return on_client
    machine = await asyncio.start_unix_server(serve("machine"), outside)
    result = weir.run(["sh", "-c", "ln -s $1 $2/k-1 && readlink $2/k-1", "sh", str(outside), str(inside)], rw=[inside], upstream=upstream)
    assert result.stdout.strip() == str(outside), result
    with contextlib.closing(socket.create_server(("127.0.0.1", 0))) as free:
        port = free.getsockname()[1]
    doors = jupyter._Doors(inside)
    await doors.open({"ip": "127.0.0.1", **dict.fromkeys(jupyter.PORTS, 0), jupyter.PORTS[0]: port})
    _, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(b"secret")
    await asyncio.sleep(0.5)
    say(heard)
    (inside / "k-1").unlink()
    kernel = await asyncio.start_unix_server(serve("kernel"), inside / "k-1")
    while "kernel" not in heard:
        await asyncio.sleep(0.02)
    say(heard)
    writer.close()
    doors.close(), machine.close(), kernel.close()
asyncio.run(asyncio.wait_for(main(), 60))
"""


def test_a_kernel_leads_its_server_to_no_socket_of_the_machine(sdk):
    assert sdk(DOOR) == [[{}], [{"kernel": "secret"}]]
