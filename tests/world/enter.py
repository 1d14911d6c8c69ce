# SPDX-License-Identifier: Apache-2.0
"""Steps by which a child becomes who a test wants, before its program runs: enter.c does them in one exec().

    argv(["net", path], ["nsenter", …])         adjacent ones are done by one program
    user(1000, 1000, caps=("net_raw",))         the step that leaves these capabilities and no others
"""
import pathlib
import shlex
import subprocess

CAPS = ("chown dac_override dac_read_search fowner fsetid kill setgid setuid setpcap linux_immutable net_bind_service net_broadcast "
        "net_admin net_raw ipc_lock ipc_owner sys_module sys_rawio sys_chroot sys_ptrace sys_pacct sys_admin sys_boot sys_nice "
        "sys_resource sys_time sys_tty_config mknod lease audit_write audit_control setfcap mac_override mac_admin syslog wake_alarm "
        "block_suspend audit_read perfmon bpf checkpoint_restore").split()
_program = None


def compile_in(folder):
    """For all worlds of this process."""
    global _program
    if _program and pathlib.Path(_program).exists():
        return
    program = folder / "enter"
    subprocess.run(["cc", "-O1", "-Wall", "-D_GNU_SOURCE", "-o", program, pathlib.Path(__file__).with_name("enter.c")], check=True)
    _program = str(program)


def argv(step, words):
    """What does @step and then runs @words; one program where those begin with steps too. Only after compile_in()."""
    assert _program
    words = [str(word) for word in words]
    return [_program, *map(str, step), *(words[1:] if words[:1] == [_program] else ["--", *words])]


def net(path, words):
    """@words in the network namespace @path."""
    return argv(["net", path], words) if _program else ["nsenter", f"--net={path}", "--", *words]


def _mask(caps):
    return f"{sum(1 << CAPS.index(name) for name in caps):x}"


def user(uid, gid, groups=(), bounding=None, inheritable=()):
    """The step. @bounding: the names of capabilities that there may be, None for all; @inheritable are ambient too."""
    numbers = ",".join(map(str, groups)) or "-"
    return ["user", uid, gid, numbers, "f" * 16 if bounding is None else _mask(bounding), _mask(inheritable)]


def binds(script):
    """The steps of a shell script that only binds a path to another. None: it does more."""
    steps = []
    for line in script.split("; "):
        if not line.startswith("mount --bind ") or set("$`|&><*?\\") & set(line):
            return None
        words = shlex.split(line)
        if len(words) != 4:
            return None
        steps += ["bind", *words[2:]]
    return ["mounts", *steps]
