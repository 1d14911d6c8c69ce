# SPDX-License-Identifier: Apache-2.0
"""docs/openapi.yaml, read once and by the parser in C: the one in Python takes a third of a second in each file that asks."""
import pathlib

import yaml

LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
OPENAPI = yaml.load((pathlib.Path(__file__).resolve().parents[2] / "docs/openapi.yaml").read_text(encoding="utf-8"), LOADER)
