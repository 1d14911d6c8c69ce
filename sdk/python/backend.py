# SPDX-License-Identifier: Apache-2.0
"""Build the wheel and the sdist (PEP 517) with the standard library alone; two builds of one tree have the same bytes.

    python3 backend.py DIRECTORY        both of them

SOURCE_DATE_EPOCH is the time of every file in them.
"""
import base64
import gzip
import hashlib
import io
import os
import pathlib
import re
import sys
import tarfile
import time
import zipfile

HERE = pathlib.Path(__file__).resolve().parent
VERSION = re.search(r'^__version__ = "(.*)"$', (HERE / "weir/__init__.py").read_text(encoding="utf-8"), re.M).group(1)
NAME = f"weir-{VERSION}"
INFO = f"{NAME}.dist-info"
SOURCE = ("README.md", "backend.py", "pyproject.toml")
METADATA = f"""Metadata-Version: 2.1
Name: weir
Version: {VERSION}
Summary: Guarded processes and containers: they reach what their policy lists, and nothing else
License: Apache-2.0
Requires-Python: >=3.9
Classifier: License :: OSI Approved :: Apache Software License
Classifier: Operating System :: POSIX :: Linux
Classifier: Typing :: Typed
Description-Content-Type: text/markdown

"""


def _moment():
    """1980 is the oldest year of a zip."""
    return max(int(os.environ.get("SOURCE_DATE_EPOCH", "0")), 315532800)


def _modules():
    return sorted(path.relative_to(HERE).as_posix() for path in (HERE / "weir").iterdir() if path.suffix == ".py" or path.name == "py.typed")


def _metadata():
    return (METADATA + (HERE / "README.md").read_text(encoding="utf-8")).encode()


def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    files = {name: (HERE / name).read_bytes() for name in _modules()}
    files[f"{INFO}/METADATA"] = _metadata()
    files[f"{INFO}/WHEEL"] = b"Wheel-Version: 1.0\nGenerator: weir\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
    record = "".join(f"{name},sha256={base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b'=').decode()},{len(data)}\n"
                     for name, data in files.items())
    files[f"{INFO}/RECORD"] = f"{record}{INFO}/RECORD,,\n".encode()
    name = f"{NAME}-py3-none-any.whl"
    with zipfile.ZipFile(pathlib.Path(wheel_directory) / name, "w", zipfile.ZIP_DEFLATED) as wheel:
        for path, data in files.items():
            entry = zipfile.ZipInfo(path, time.gmtime(_moment())[:6])
            entry.compress_type, entry.external_attr, entry.create_system = zipfile.ZIP_DEFLATED, 0o100644 << 16, 3
            wheel.writestr(entry, data)
    return name


def build_sdist(sdist_directory, config_settings=None):
    files = {name: (HERE / name).read_bytes() for name in (*SOURCE, *_modules())}
    files["PKG-INFO"] = _metadata()
    name = f"{NAME}.tar.gz"
    with open(pathlib.Path(sdist_directory) / name, "wb") as out, \
            gzip.GzipFile("", "wb", 9, out, mtime=_moment()) as packed, tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for path, data in sorted(files.items()):
            entry = tarfile.TarInfo(f"{NAME}/{path}")
            entry.size, entry.mtime, entry.mode = len(data), _moment(), 0o644
            tar.addfile(entry, io.BytesIO(data))
    return name


if __name__ == "__main__":
    os.makedirs(sys.argv[1], exist_ok=True)
    print(build_wheel(sys.argv[1]), build_sdist(sys.argv[1]))
