# SPDX-License-Identifier: Apache-2.0
"""Print docs/python-reference.md: what the package offers, from its signatures and docstrings. A test compares both.

    python3 sdk/python/reference.py > docs/python-reference.md
"""
import inspect
import pathlib
import re
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

import weir  # noqa: E402
from weir import aio  # noqa: E402


def text_of(thing):
    return inspect.cleandoc(thing.__doc__ or "")


def signature_of(thing):
    """Types as they are written in the source; what is of the package stands without its module."""
    try:
        text = str(inspect.signature(thing))
    except (TypeError, ValueError):
        return "(...)"
    text = text.replace("<factory>", "[]")
    text = re.sub(r"(?<=[:>] )'([^']*)'", r"\1", re.sub(r'(?<=[:>] )"([^"]*)"', r"\1", text))
    text = re.sub(r"\b(?:weir|typing|subprocess)\.(?:_?\w+\.)?(?=[A-Z])", "", text)
    return text.replace("(self, ", "(").replace("(self)", "()")


def members_of(cls):
    """Those of bases that aren't offered themselves as well."""
    own = [one for one in cls.__mro__ if one is cls or one.__name__.startswith("_") and one.__module__.startswith("weir")]
    for name, member in ((name, member) for one in own for name, member in vars(one).items()):
        if name.startswith("_"):
            continue
        function = member.__func__ if isinstance(member, (classmethod, staticmethod)) else member
        if inspect.isfunction(function):
            yield name, signature_of(function).replace("(cls, ", "(").replace("(cls)", "()"), text_of(function)
        elif isinstance(member, property):
            yield name, "", text_of(member.fget)


def entry(name, thing):
    lines = [f"### `{name}`", ""]
    if inspect.isclass(thing):
        bases = [base for base in thing.__bases__ if base is not object and not base.__name__.startswith("_")]
        signature = "" if issubclass(thing, dict) or hasattr(thing, "__required_keys__") else signature_of(thing)
        lines = [f"### `class {name}{f'({bases[0].__name__})' if bases else ''}`", ""]
        own = text_of(thing) if thing.__doc__ and not thing.__doc__.startswith(f"{thing.__name__}(") else ""
        lines += [own, ""] if own else []
        lines += ["```python", f"{name}{signature}", "```", ""] if signature else []
        for member, its, text in members_of(thing):
            lines += [f"- `{member}{its}`" + (f": {' '.join(text.split())}" if text else "")]
    else:
        lines += ["```python", f"{name}{signature_of(thing)}", "```", "", text_of(thing)]
    return "\n".join(lines).rstrip() + "\n"


def document():
    parts = ["# The package `weir`, name by name\n", "Made by `sdk/python/reference.py` from the package. [python.md](python.md) says how to use it.\n", "## `weir`\n"]
    parts += [entry(name, getattr(weir, name)) for name in sorted(weir.__all__, key=str.lower)]
    parts += ["## `weir.aio`\n", text_of(aio) + "\n"]
    parts += [entry(name, thing) for name, thing in sorted(vars(aio).items(), key=lambda pair: pair[0].lower())
              if not name.startswith("_") and getattr(thing, "__module__", "") == "weir.aio"]
    return "\n".join(parts)


if __name__ == "__main__":
    print(document(), end="")
