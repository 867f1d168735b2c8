"""All tests; of the few that fail while others run beside them, whether they fail alone as well.

    python tools/again.py [pytest's options]

Many tests watch real jobs, nodes and networks, on a machine that several of them share: what such a test waits for may
come too late.  A test that fails is therefore played once more with nothing beside it, and counts as failed if it fails
again; one that passes then is named at the end, so that an unreliable test stays in sight.
"""

import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
FAILED = ROOT / ".pytest_cache" / "v" / "cache" / "lastfailed"
MAX_DISTURBED = 6
"""More failures than that are no disturbance."""
ALL_S, AGAIN_S = 3600.0, 900.0
TESTS_FAILED = 1


def main(options: list[str]) -> int:
    """Run all, then what failed; the exit code of pytest."""
    FAILED.unlink(missing_ok=True)
    code = _pytest(options, ALL_S)
    failed = _failed()
    if code != TESTS_FAILED or not 0 < len(failed) <= MAX_DISTURBED:
        return code
    sys.stdout.write(f"\nOnce more, with nothing beside it: {', '.join(failed)}\n")
    sys.stdout.flush()
    code = _pytest([*options, "--numprocesses", "0", *failed], AGAIN_S)
    if code == 0:
        sys.stdout.write("".join(f"PASSED ALONE, failed beside others: {name}\n" for name in failed))
    return code


def _pytest(words: list[str], limit_s: float) -> int:
    return subprocess.run([sys.executable, "-m", "pytest", *words], cwd=ROOT, check=False, timeout=limit_s).returncode


def _failed() -> list[str]:
    try:
        return sorted(json.loads(FAILED.read_text()))
    except (OSError, ValueError):
        return []


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
