# SPDX-License-Identifier: Apache-2.0
"""Jupyter: `%load_ext weir` gives `%%weir`, a cell as a guarded process; `python -m weir.jupyter install` a guarded kernel.

HOW THE KERNEL WORKS
A notebook's server makes a connection file with five ports of its loopback and connects to them. A guarded kernel has a
loopback of its own. So `python -m weir.jupyter kernel FILE` starts the kernel in its sandbox with unix sockets in a directory
that only the two know, listens on the five ports itself, and passes bytes on; ZeroMQ's are the same on both.
"""
from __future__ import annotations

import argparse
import asyncio
import contextlib
import errno
import json
import os
import pathlib
import secrets
import shlex
import shutil
import signal
import socket
import stat
import sys
import tempfile
from typing import Any, AsyncIterator, Dict, Iterator, List, Optional, Sequence, Tuple

from ._errors import InputError, WeirError
from ._run import run

PORTS = ("shell_port", "iopub_port", "stdin_port", "control_port", "hb_port")
SPEC = "weir-{profile}"


def _options(words: Sequence[str], name: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog=name, description="Run a cell guarded: it is the standard input of COMMAND (python3 -).")
    parser.add_argument("--profile", action="append", default=[], metavar="NAME")
    parser.add_argument("--allow", action="append", default=[], metavar="TARGET")
    parser.add_argument("--policy", metavar="FILE")
    parser.add_argument("--upstream", action="append", default=[], metavar="ADDR")
    parser.add_argument("--timeout", type=float, metavar="SECONDS")
    parser.add_argument("command", nargs="*")
    return parser.parse_args(words)


def run_cell(line: str, cell: str) -> int:
    """`%%weir [--profile NAME] [--allow TARGET] [--policy FILE] [-- COMMAND]`: what it says, and what was refused, is printed."""
    try:
        asked = _options(shlex.split(line), "%%weir")
    except SystemExit:
        return 2
    try:
        result = run(asked.command or [sys.executable or "python3", "-"], input=cell, timeout=asked.timeout, profile=asked.profile,
                     allow=asked.allow, policy=asked.policy, upstream=asked.upstream)
    except WeirError as error:
        print("\n".join(error.faults) if isinstance(error, InputError) else error, file=sys.stderr)
        return 125
    sys.stdout.write(result.stdout)
    sys.stderr.write(result.stderr)
    for one in result.refused:
        print(f"refused: {one}" + (f"; --allow {one.allow} would let it through" if one.allow else ""), file=sys.stderr)
    return result.returncode


def load_ipython_extension(shell: Any) -> None:
    """`%load_ext weir`."""
    def weir(line: str, cell: str) -> None:
        status = run_cell(line, cell)
        shell.user_ns["_exit_code"] = status
        if status:
            print(f"the cell ended with {status}", file=sys.stderr)
    shell.register_magic_function(weir, "cell", "weir")


def install(profile: str = "notebook", words: Sequence[str] = (), prefix: Optional[str] = None) -> pathlib.Path:
    """Write the kernel spec "weir-PROFILE", of the user or below @prefix. @words: more options for `kernel`. Return: its directory."""
    base = pathlib.Path(prefix) / "share/jupyter" if prefix else pathlib.Path(os.environ.get("JUPYTER_DATA_DIR", "~/.local/share/jupyter"))
    folder = base.expanduser() / "kernels" / SPEC.format(profile=profile)
    folder.mkdir(parents=True, exist_ok=True)
    spec = {"argv": [sys.executable, "-m", "weir.jupyter", "kernel", "--profile", profile, *words, "{connection_file}"],
            "display_name": f"Python 3 (weir, {profile})", "language": "python", "interrupt_mode": "message", "metadata": {"debugger": False}}
    (folder / "kernel.json").write_text(json.dumps(spec, indent=1) + "\n", encoding="utf-8")
    return folder


async def _pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Until one side ends."""
    with contextlib.suppress(OSError, asyncio.IncompleteReadError):
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
    with contextlib.suppress(OSError):
        writer.close()


@contextlib.contextmanager
def _held(path: str) -> Iterator[str]:
    """A path that leads to the socket which is at @path now. OSError: none is, for a guarded kernel may put a link to one of the
    machine's there."""
    fd = os.open(path, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        if not stat.S_ISSOCK(os.fstat(fd).st_mode):
            raise OSError(errno.ENOTSOCK, os.strerror(errno.ENOTSOCK), path)
        yield f"/proc/self/fd/{fd}"
    finally:
        os.close(fd)


async def _open(path: str) -> Tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Who comes before the kernel waits for it."""
    while True:
        try:
            with _held(path) as socket_path:
                return await asyncio.open_unix_connection(socket_path)
        except OSError:
            await asyncio.sleep(0.02)


class _Doors:
    """The ports of a connection file, open; each leads to a unix socket that the kernel makes."""

    def __init__(self, folder: pathlib.Path) -> None:
        self._folder = folder
        self._servers: List[asyncio.AbstractServer] = []

    async def open(self, connection: Dict[str, Any]) -> None:
        for number, name in enumerate(PORTS, 1):
            path = f"{self._folder}/k-{number}"

            async def on_client(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, path: str = path) -> None:
                inner, outer = await _open(path)
                await asyncio.gather(_pass_on(reader, outer), _pass_on(inner, writer))
            self._servers.append(await asyncio.start_server(on_client, connection["ip"], connection[name], family=socket.AF_INET))

    def close(self) -> None:
        for server in self._servers:
            server.close()


@contextlib.asynccontextmanager
async def _doors(connection: Dict[str, Any], folder: pathlib.Path) -> AsyncIterator[None]:
    doors = _Doors(folder)
    try:
        await doors.open(connection)
        yield
    finally:
        doors.close()


async def _kernel(asked: argparse.Namespace) -> int:
    from .aio import Popen  # only here: the magic needs no asyncio
    connection = json.loads(pathlib.Path(asked.file).read_text(encoding="utf-8"))
    if connection.get("transport", "tcp") != "tcp":
        raise InputError([f"{asked.file}: the transport is not tcp"])
    folder = pathlib.Path(tempfile.mkdtemp(prefix="weir-kernel-"))
    try:
        inner: Dict[str, Any] = {**connection, "transport": "ipc", "ip": f"{folder}/k"}
        inner.update((name, number) for number, name in enumerate(PORTS, 1))
        file = folder / f"connection-{secrets.token_hex(4)}.json"
        file.write_text(json.dumps(inner), encoding="utf-8")
        words = [sys.executable, "-m", "ipykernel_launcher", "-f", str(file)]
        # The kernel would look for the server's process, which it can't see, and end.
        environment = {name: value for name, value in os.environ.items() if name != "JPY_PARENT_PID"}
        # Who started this ends it by SIGTERM, or has the kernel end.
        task = asyncio.current_task()
        assert task
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
        async with _doors(connection, folder), await Popen.start(
                words, profile=asked.profile, allow=asked.allow, policy=asked.policy, upstream=asked.upstream, rw=[folder],
                home="tmp", env=environment, set_env={"IPYTHONDIR": "/tmp/ipython"}) as process:
            return (await process.result()).returncode
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def main(words: Optional[Sequence[str]] = None) -> int:
    """`python -m weir.jupyter install|kernel`."""
    parser = argparse.ArgumentParser(prog="python -m weir.jupyter")
    verbs = parser.add_subparsers(dest="verb", required=True)
    for name, says in (("install", "write the kernel spec"), ("kernel", "what the kernel spec starts")):
        verb = verbs.add_parser(name, help=says)
        verb.add_argument("--allow", action="append", default=[], metavar="TARGET")
        verb.add_argument("--policy", metavar="FILE")
        verb.add_argument("--upstream", action="append", default=[], metavar="ADDR")
        if name == "install":
            verb.add_argument("--profile", default="notebook", metavar="NAME")
            verb.add_argument("--prefix", metavar="DIR")
        else:
            verb.add_argument("--profile", action="append", default=[], metavar="NAME")
            verb.add_argument("file")
    asked = parser.parse_args(words)
    if asked.verb == "install":
        more = [word for name in ("allow", "upstream") for value in getattr(asked, name) for word in (f"--{name}", value)]
        print(install(asked.profile, [*more, *(["--policy", os.path.abspath(asked.policy)] if asked.policy else [])], asked.prefix))
        return 0
    try:
        return asyncio.run(_kernel(asked))
    except asyncio.CancelledError:
        return 128 + signal.SIGTERM
    except WeirError as error:
        print(error, file=sys.stderr)
        return 125


if __name__ == "__main__":
    sys.exit(main())
