"""`python -m allready.signatures`: write the tables once more as JSON, which loads twenty times faster."""

import json
import sys
import tomllib
from pathlib import Path

from allready.signatures.table import COPY, digest, sources


def copy() -> str:
    """What the file should hold."""
    texts = sources()
    tables = {family: tomllib.loads(text.decode()) for family, text in texts.items()}
    return json.dumps({"digest": digest(texts), "tables": tables}, ensure_ascii=False, separators=(",", ":")) + "\n"


def main() -> int:
    """Write the copy beside the tables."""
    target = Path(__file__).with_name(COPY)
    target.write_text(copy(), encoding="utf-8")
    sys.stdout.write(f"{target.name}: {target.stat().st_size} bytes\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
