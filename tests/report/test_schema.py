"""The JSON Schema of report.json: it is the model's, and every recorded report is valid by it."""

import json
import lzma
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from allready.model import Report
from allready.report import schema
from allready.report.json_report import encode
from tests.cases import cases
from tests.report.made_up import absent_report, faulty_report, healthy_report, unknown_report
from tests.report.made_up_run import stuck_report, whole_report
from tests.report.test_course import COURSE

FIXTURES = Path(__file__).resolve().parents[1] / "fixtures"
SHIPPED: dict[str, Any] = json.loads(schema.FILE.read_text(encoding="utf-8"))
KINDS = {
    "object": dict, "array": list, "string": str, "boolean": bool, "null": type(None),
}  # fmt: skip


def wrong(value: Any, part: dict[str, Any], place: str = "") -> Iterator[str]:
    """Why `value` is not valid by `part`: the words of JSON Schema that ours uses; any other fails."""
    unknown = part.keys() - {
        "$schema", "$defs", "$ref", "title", "description", "type", "enum", "const", "anyOf", "properties", "required",
        "additionalProperties", "propertyNames", "items", "prefixItems", "minItems", "maxItems",
    }  # fmt: skip
    assert not unknown, unknown
    if "$ref" in part:
        yield from wrong(value, SHIPPED["$defs"][part["$ref"].rpartition("/")[2]], place)
        return
    if "anyOf" in part and all(list(wrong(value, one, place)) for one in part["anyOf"]):
        yield f"{place}: {value!r:.60} is none of {len(part['anyOf'])}"
    if ("const" in part and value != part["const"]) or ("enum" in part and value not in part["enum"]):
        yield f"{place}: {value!r:.60}"
    kinds = part.get("type")
    if kinds is not None and not any(_is(value, kind) for kind in ([kinds] if isinstance(kinds, str) else kinds)):
        yield f"{place}: {value!r:.60} is no {kinds}"
    if isinstance(value, dict):
        yield from _wrong_keys(value, part, place)
    if isinstance(value, list):
        yield from _wrong_items(value, part, place)


def _wrong_keys(value: dict[str, Any], part: dict[str, Any], place: str) -> Iterator[str]:
    known, other = part.get("properties", {}), part.get("additionalProperties", True)
    yield from (f"{place}: {key} is missing" for key in part.get("required", ()) if key not in value)
    for key, inner in value.items():
        one = known.get(key, other)
        if isinstance(one, dict):
            yield from wrong(inner, one, f"{place}.{key}")
        elif one is False:
            yield f"{place}: {key}"


def _wrong_items(value: list[Any], part: dict[str, Any], place: str) -> Iterator[str]:
    first, rest = part.get("prefixItems", []), part.get("items", True)
    for number, inner in enumerate(value):
        one = first[number] if number < len(first) else rest
        if isinstance(one, dict):
            yield from wrong(inner, one, f"{place}[{number}]")
        elif one is False:
            yield f"{place}: too long"
    if not part.get("minItems", 0) <= len(value) <= part.get("maxItems", len(value)):
        yield f"{place}: {len(value)} items"


def _is(value: Any, kind: str) -> bool:
    if kind in {"number", "integer"}:
        return isinstance(value, int if kind == "integer" else (int, float)) and not isinstance(value, bool)
    return isinstance(value, KINDS[kind])


def recorded() -> dict[str, bytes]:
    """Every report.json that lies in the fixtures, also in archives."""
    found = {
        str(p.relative_to(FIXTURES)): p.read_bytes() for p in FIXTURES.rglob("*.json") if _is_report(p.read_bytes())
    }
    for path in FIXTURES.rglob("*.tar.xz"):
        with tarfile.open(fileobj=lzma.open(path)) as archive:
            for member in archive:
                file = archive.extractfile(member) if member.name.endswith(".json") and member.size < 1 << 24 else None
                if file is not None and _is_report(data := file.read()):
                    found[f"{path.name}/{member.name}"] = data
    return found


def _is_report(data: bytes) -> bool:
    return b'"allready.report/1"' in data[:200]


def test_the_shipped_file_is_the_models() -> None:
    assert schema.FILE.read_text(encoding="utf-8") == schema.text(), "python -m allready.report.schema writes it"


@pytest.mark.thorough
def test_every_recorded_report_is_valid() -> None:
    reports = recorded()
    assert len(reports) >= 10
    problems = {name: [*wrong(json.loads(data), SHIPPED)][:3] for name, data in reports.items()}
    assert {name: why for name, why in problems.items() if why} == {}


MADE = {
    "healthy": healthy_report(), "faulty": faulty_report(), "absent": absent_report(), "unknown": unknown_report(),
    "stuck": stuck_report(), "whole": whole_report(), "course": replace(healthy_report(), course=COURSE),
    "not finite": replace(healthy_report(), duration_s=float("nan")),
}  # fmt: skip


@cases("name", MADE)
def test_what_is_written_is_valid(name: str) -> None:
    assert [*wrong(json.loads(encode(MADE[name])), SHIPPED)] == []


@cases(
    ("key", "value"),
    [("status", "fine"), ("schema", "other/1"), ("findings", {}), ("duration_s", "1 s"), ("world", None)],
)
def test_what_is_no_report_is_not_valid(key: str, value: object) -> None:
    body = json.loads(encode(healthy_report()))
    assert [*wrong(body | {key: value}, SHIPPED)]
    del body[key]
    assert [*wrong(body, SHIPPED)]


def test_unknown_keys_of_later_versions_are_allowed() -> None:
    assert [*wrong(json.loads(encode(healthy_report())) | {"new": 1}, SHIPPED)] == []


def test_it_names_every_key_of_a_report() -> None:
    assert set(SHIPPED["$defs"]["Report"]["properties"]) == set(Report.__struct_encode_fields__)
