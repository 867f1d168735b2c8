"""The JSON Schema of report.json, from the model: `python -m allready.report.schema` writes the shipped file."""

import inspect
import json
import sys
from pathlib import Path
from typing import Any

import msgspec

from allready.model import SCHEMA, Report

FILE = Path(__file__).with_name("report.schema.json")
DRAFT = "https://json-schema.org/draft/2020-12/schema"


def schema() -> dict[str, Any]:
    """As a draft 2020-12 schema.  A number that is not finite is written as null, so every number may be null."""
    body: dict[str, Any] = msgspec.json.schema(Report)
    report = body["$defs"]["Report"]
    report["properties"]["schema"] = {"const": SCHEMA}
    report["required"] = ["schema", *report["required"]]
    made: dict[str, Any] = _nullable(body)
    return {"$schema": DRAFT, "title": "report.json of allready", **made}


def text() -> str:
    """The file's content."""
    return json.dumps(schema(), indent=1, ensure_ascii=False) + "\n"


def _nullable(part: Any) -> Any:
    if isinstance(part, list):
        return [_nullable(item) for item in part]
    if not isinstance(part, dict):
        return part
    found = {key: _nullable(value) for key, value in part.items() if key != "default"}
    if isinstance(docstring := found.get("description"), str):
        # Python before 3.13 and msgspec before 0.23 keep a docstring's indentation: the file is the same with all.
        found["description"] = inspect.cleandoc(docstring)
    if found.get("type") == "number":
        found["type"] = ["number", "null"]
    return found


if __name__ == "__main__":
    FILE.write_text(text(), encoding="utf-8")
    sys.stdout.write(f"{FILE}\n")
