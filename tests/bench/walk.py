#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""The walks of docs/architecture.md, measured: which functions of which files run below a function.

    meson setup traced -Doptimization=0 -Dwerror=false "-Dc_args=['-finstrument-functions','-U_FORTIFY_SOURCE','-Wno-cpp']"
    ninja -C traced weir
    tests/bench/walk.py wrap traced DIR            # DIR/weir runs traced/weir and notes each function that it enters
    WEIR=DIR/weir pytest tests/e2e/…               # something that takes the walk
    tests/bench/walk.py show traced DIR FUNCTION   # the last time that FUNCTION ran; --all: each time, one line

Functions that are inline in a header are left out: they are read where they are called.
"""
import collections
import pathlib
import re
import struct
import subprocess
import sys

SOURCE = r"""
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>
#define APART __attribute__((no_instrument_function))
struct entry { uint64_t function; uint32_t pid, is_exit; };
static struct { _Atomic uint64_t count; struct entry at[]; } *trace;
enum { MAX = 4 << 20 };
APART __attribute__((constructor)) static void begin(void)
{
	const char *path = getenv("WALK_TRACE");
	int fd = path ? open(path, O_RDWR | O_CLOEXEC) : -1;

	if (fd < 0)
		return;
	trace = mmap(NULL, 8 + sizeof(struct entry) * MAX, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (trace == MAP_FAILED)
		trace = NULL;
	close(fd);
}
APART static void note(void *function, uint32_t is_exit)
{
	uint64_t i = trace ? trace->count++ : MAX;

	if (i < MAX)
		trace->at[i] = (struct entry){ (uint64_t)function, (uint32_t)syscall(SYS_getpid), is_exit };
}
APART void __cyg_profile_func_enter(void *function, void *caller) { note(function, 0); }
APART void __cyg_profile_func_exit(void *function, void *caller) { note(function, 1); }
"""
SIZE = 8 + 16 * (4 << 20)
BASE = 0x555555554000       # of a program without address randomisation


def wrap(build, directory):
    directory.mkdir(exist_ok=True)
    library, trace, program = directory / "walk.so", directory / "trace", directory / "weir"
    subprocess.run(["cc", "-O1", "-shared", "-fPIC", "-x", "c", "-o", library, "-"], input=SOURCE, text=True, check=True)
    trace.write_bytes(b"")
    with trace.open("r+b") as file:
        file.truncate(SIZE)
    trace.chmod(0o666)
    program.write_text(f"#!/bin/sh\nexport LD_PRELOAD={library.resolve()} WALK_TRACE={trace.resolve()}\n"
                       f'exec setarch -R {(build / "weir").resolve()} "$@"\n')
    program.chmod(0o755)


def read(build, directory):
    """For each process, (function, file, is exit) in their order."""
    with (directory / "trace").open("rb") as file:
        count = min(struct.unpack("<Q", file.read(8))[0], (SIZE - 8) // 16)
        entries = list(struct.iter_unpack("<QII", file.read(16 * count)))
    addresses = sorted({e[0] - BASE for e in entries})
    found = subprocess.run(["addr2line", "-f", "-e", build / "weir"], input="\n".join(map(hex, addresses)),
                           capture_output=True, text=True, check=True).stdout.splitlines()
    names = {a: (found[2 * i], found[2 * i + 1].split(":")[0].split("/src/")[-1]) for i, a in enumerate(addresses)}
    processes = collections.defaultdict(list)
    for function, pid, is_exit in entries:
        processes[pid].append((*names[function - BASE], is_exit))
    return processes


def walks(entries, start):
    """Each time that @start ran: the functions below it, in the order in which each ran first."""
    for first, (name, _, is_exit) in enumerate(entries):
        if name != start or is_exit:
            continue
        depth, seen = 0, {}
        for entry in entries[first:]:
            depth += -1 if entry[2] else 1
            if not entry[2]:
                seen[entry[:2]] = True
            if depth == 0:
                break
        yield list(seen)


def show(build, directory, start, each):
    source = pathlib.Path(__file__).resolve().parents[2] / "src"
    inline = {n for h in source.rglob("*.h") for n in re.findall(r"static inline[^;{]*?\b(\w+)\(", h.read_text())}
    for pid, entries in read(build, directory).items():
        taken = [[w for w in walk if w[0] not in inline] for walk in walks(entries, start)]
        for walk in taken if each else taken[-1:]:
            files = collections.Counter(file for _, file in walk)
            print(f"{start} of process {pid}: {len(walk)} functions in {len(files)} files")
            for file, count in [] if each else files.most_common():
                print(f"{count:5}  {file}: {' '.join(n for n, f in walk if f == file)}")


if __name__ == "__main__":
    order, *rest = [a for a in sys.argv[1:] if a != "--all"]
    if order == "wrap":
        wrap(*map(pathlib.Path, rest))
    else:
        show(pathlib.Path(rest[0]), pathlib.Path(rest[1]), rest[2], "--all" in sys.argv)
