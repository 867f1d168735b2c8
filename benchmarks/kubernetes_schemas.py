"""Whether examples/kubernetes fits the schemas of JobSet and PyTorchJob, unknown fields included.

    python benchmarks/kubernetes_schemas.py CRD.yaml...                validate; exit code 1 where one does not fit
    python benchmarks/kubernetes_schemas.py --record FILE CRD.yaml...  also keep what the manifests use, for the tests

The files are the CustomResourceDefinitions of releases: `kubectl get crd jobsets.jobset.x-k8s.io -o yaml`.
"""

import argparse
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import yaml

MANIFESTS = Path(__file__).parents[1] / "examples" / "kubernetes"
KEPT = ("type", "required", "enum", "minimum", "maximum", "pattern", "maxLength")

Schemas = dict[str, Any]


def schemas_of(definition: Any) -> Iterator[tuple[str, Any]]:
    """`group/version kind` -> schema, of each version."""
    spec = definition["spec"]
    for version in spec["versions"]:
        schema = _strict(version["schema"]["openAPIV3Schema"])
        schema["properties"]["metadata"] = {"type": "object"}  # the server's own
        yield f"{spec['group']}/{version['name']} {spec['names']['kind']}", schema


def _strict(schema: Any) -> Any:
    """In the words of JSON Schema, with fields forbidden that the server would drop."""
    if schema.pop("x-kubernetes-int-or-string", False):
        return {"type": ["integer", "string"]}
    found = {key: schema[key] for key in KEPT if key in schema}
    if "properties" in schema:
        found["properties"] = {name: _strict(inner) for name, inner in schema["properties"].items()}
        found["additionalProperties"] = bool(schema.get("x-kubernetes-preserve-unknown-fields", False))
    if isinstance(schema.get("additionalProperties"), dict):
        found["additionalProperties"] = _strict(schema["additionalProperties"])
    if "items" in schema:
        found["items"] = _strict(schema["items"])
    return found


def manifests() -> Iterator[tuple[str, str, Any]]:
    """File, `group/version kind`, and the document."""
    for path in sorted(MANIFESTS.glob("*.yaml")):
        for document in yaml.safe_load_all(path.read_text()):
            yield path.name, f"{document['apiVersion']} {document['kind']}", document


def used(schema: Any, document: Any) -> Any:
    """The part of a schema that a document goes through; of the fields beside it the names alone."""
    found = {key: value for key, value in schema.items() if key not in {"properties", "items"}}
    if isinstance(document, dict) and "properties" in schema:
        found["properties"] = {
            name: used(inner, document[name]) if name in document else {}
            for name, inner in schema["properties"].items()
        }
    if isinstance(document, list) and "items" in schema:
        found["items"] = _joined([used(schema["items"], one) for one in document])
    return found


def _joined(parts: list[Any]) -> Any:
    first, *others = parts or [{}]
    for other in others:
        for key, value in other.items():
            if isinstance(value, dict) and isinstance(first.get(key), dict):
                first[key] = _joined([first[key], value])
            else:
                first.setdefault(key, value)
    return first


def main() -> int:
    """Validate, and record."""
    parser = argparse.ArgumentParser(description="manifests against their schemas")
    parser.add_argument("definitions", nargs="+", type=Path, metavar="CRD")
    parser.add_argument("--record", type=Path, metavar="FILE")
    arguments = parser.parse_args()
    known = {
        kind: schema for path in arguments.definitions for kind, schema in schemas_of(yaml.safe_load(path.read_text()))
    }
    recorded: Schemas = {}
    wrong = 0
    for file, kind, document in manifests():
        if kind not in known:
            sys.stdout.write(f"{file}: {kind}: no schema given\n")
            continue
        errors = list(jsonschema.Draft202012Validator(known[kind]).iter_errors(document))
        wrong += len(errors)
        sys.stdout.write(f"{file}: {kind}: {len(errors)} errors\n")
        sys.stdout.writelines(f"  {'.'.join(map(str, e.path))}: {e.message[:200]}\n" for e in errors)
        part = used(known[kind], document)
        recorded[kind] = _joined([recorded[kind], part]) if kind in recorded else part
    if arguments.record:
        arguments.record.write_text(json.dumps(recorded, sort_keys=True) + "\n")
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
