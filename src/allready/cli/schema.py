"""`allready schema`: the JSON Schema of report.json, as it is shipped beside the code that writes reports."""

import argparse
import sys
from importlib import resources

from allready.cli.main import EXIT_HEALTHY
from allready.cli.output import deliver_json

EPILOG = """\
  allready schema                     print it
  allready schema --json FILE         write it to FILE
  python -c "import jsonschema, json; jsonschema.validate(json.load(open('report.json')), json.load(open('FILE')))"
Later versions may add keys; none is changed or taken away.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Where to write it."""
    parser.add_argument("--json", metavar="FILE", help="write the schema to FILE (- for standard output)")


def run(args: argparse.Namespace) -> int:
    """Print it; 0."""
    text = (resources.files("allready.report") / "report.schema.json").read_text(encoding="utf-8")
    if args.json and args.json != "-":
        import json

        deliver_json(args.json, json.loads(text))
    else:
        sys.stdout.write(text)
    return EXIT_HEALTHY
