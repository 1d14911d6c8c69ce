# SPDX-License-Identifier: Apache-2.0
"""Print src/schema.ts: the schemas of docs/openapi.yaml as TypeScript has them. A test compares both.

    python3 sdk/typescript/schema.py > sdk/typescript/src/schema.ts
"""
import json
import pathlib
import re
import textwrap

import yaml

OPENAPI = pathlib.Path(__file__).resolve().parents[2] / "docs" / "openapi.yaml"
PLAIN = {"string": "string", "integer": "number", "number": "number", "boolean": "boolean", "null": "null"}


def comment(text, indent=""):
    if not text:
        return ""
    lines = textwrap.wrap(re.sub(r"\s+", " ", text).strip(), 112)
    if len(lines) == 1:
        return f"{indent}/** {lines[0]} */\n"
    return f"{indent}/**\n" + "".join(f"{indent} * {line}\n" for line in lines) + f"{indent} */\n"


def union(types):
    return " | ".join(dict.fromkeys(types))


def members(schema, indent):
    text = ""
    for name, one in schema["properties"].items():
        mark = "" if name in schema.get("required", ()) else "?"
        text += comment(one.get("description"), indent) + f"{indent}{name}{mark}: {type_of(one, indent)};\n"
    return text


def type_of(schema, indent=""):
    """A schema that isn't known is `unknown`, never `any`."""
    if "$ref" in schema:
        return schema["$ref"].rsplit("/", 1)[1]
    if "const" in schema:
        return json.dumps(schema["const"])
    if "enum" in schema:
        return union(map(json.dumps, schema["enum"]))
    if "oneOf" in schema and "type" not in schema:
        return union(type_of(one, indent) for one in schema["oneOf"])
    if "allOf" in schema:
        return " & ".join(type_of(one, indent) for one in schema["allOf"])
    kinds = schema.get("type", ())
    kinds = [kinds] if isinstance(kinds, str) else list(kinds)
    return union(kind_of(kind, schema, indent) for kind in kinds) or "unknown"


def kind_of(kind, schema, indent):
    if kind == "array":
        one = type_of(schema.get("items", {}), indent)
        return f"readonly ({one})[]" if "|" in one else f"readonly {one}[]"
    if kind == "object" and "properties" in schema:
        return "{\n" + members(schema, indent + "\t") + indent + "}"
    if kind == "object":
        more = schema.get("additionalProperties")
        return f"Record<string, {type_of(more, indent) if isinstance(more, dict) else 'unknown'}>"
    return PLAIN[kind]


def document():
    text = ("// SPDX-License-Identifier: Apache-2.0\n"
            "// Made by schema.py from docs/openapi.yaml. Times are RFC 3339, UTC; null is what is not known.\n")
    for name, schema in yaml.safe_load(OPENAPI.read_text(encoding="utf-8"))["components"]["schemas"].items():
        body = type_of(schema)
        text += "\n" + comment(schema.get("description"))
        text += f"export interface {name} {body}\n" if body.startswith("{") and body.endswith("\n}") else f"export type {name} = {body};\n"
    return text


if __name__ == "__main__":
    print(document(), end="")
