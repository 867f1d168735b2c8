"""What torch's own analyser of flight-recorder dumps says, and what ours says, on recorded runs.

    python benchmarks/compare_torchfrtrace.py RECORDED_FOLDER [--save FILE] [--docs docs/flight-recorder.md]

RECORDED_FOLDER holds one folder per run with its dumps (fr_*) and truth.json, which says what was injected.  Each run's
dumps are copied to a folder of their own, in both orders, since the analyser takes the first file as right (two answers
in one cell), and `python -m torch.distributed.flight_recorder.fr_trace` is run on it, without and with
--allow-incomplete-ranks.  One more run has a dump that was cut.
Needs torch 2.9 or later (measured with the version in the result).  `--docs` rewrites the table in the page.
"""

import argparse
import json
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.judging.joined import Joined, joined_dumps

from allready import __version__
from allready.evidence.flight.reader import read_dump
from allready.model import ranges

MARK = "<!-- table of compare_torchfrtrace.py -->"
LIMIT_S = 120
FOLDERS = ("/dev/shm", None)  # noqa: S108 - tmpfs lists files by age, so that their order can be chosen


def torch_says(dumps: Sequence[Path], *options: str) -> str:
    """Torch's answer in one line: each different accusation with its count, or how it failed."""
    parent = next(p for p in FOLDERS if p is None or Path(p).is_dir())
    with tempfile.TemporaryDirectory(dir=parent) as folder:
        for path in dumps:
            shutil.copy(path, folder)
        done = subprocess.run(
            [sys.executable, "-m", "torch.distributed.flight_recorder.fr_trace", folder, *options],
            capture_output=True,
            text=True,
            timeout=LIMIT_S,
            check=False,
        )
    text = done.stdout + done.stderr
    if done.returncode != 0:
        return "stops: " + text.strip().splitlines()[-1].replace("tabulate is not installed.", "").strip()
    found: list[str] = []
    for block in re.split(r"(?m)^(?=Not all ranks|Collective sequence|We cannot decide|Input/output mismatch)", text):
        seq = re.search(r"sequence number: (\d+)", block)
        group = re.search(r"group info: (\S+)", block)
        where = f"#{seq[1]} of {group[1]}: " if seq and group else ""
        missing = re.search(r"missing ranks: \{([^}]*)\}", block)
        culprits = re.findall(r"Culprit rank (\d+); Error type: (\w+)", block)
        if missing:
            found.append(f"{where}rank {missing[1]} missing")
        elif culprits:
            kinds = ", ".join(sorted({kind for _, kind in culprits}))
            found.append(f"{where}culprit rank {', '.join(sorted(r for r, _ in culprits))} ({kinds})")
        elif block.startswith("We cannot decide"):
            found.append('"we cannot decide what\'s wrong"')
        elif block.startswith("Input/output mismatch"):
            found.append(f"{where}input/output mismatch")
    told = "; ".join(f"{f} ({found.count(f)} times)" if found.count(f) > 1 else f for f in dict.fromkeys(found))
    return told or "nothing wrong"


def we_say(joined: Joined) -> str:
    """Our answer in one line, from the dumps alone."""
    parts = []
    for mismatch in joined.mismatches:
        odd = f"rank {ranges(mismatch.odd)}" if mismatch.odd else "ranks (a tie)"
        what = (
            "other arguments"
            if mismatch.shift is None
            else f"{abs(mismatch.shift)} operation " + ("more" if mismatch.shift > 0 else "less")
        )
        usual = next((o for r, o in mismatch.by_rank.items() if r not in mismatch.odd), None)
        other = next((o for r, o in mismatch.by_rank.items() if r in mismatch.odd), None)
        if usual is not None and other is not None:
            what += f" ({other.name} of {other.num_elements} where the others did {usual.name} of {usual.num_elements})"
        parts.append(f"#{mismatch.seq} of {mismatch.group}: {odd} made {what}")
    waited_for: dict[tuple[str, ...], list[int]] = {}
    for root in joined.roots:
        waited_for.setdefault(tuple(_waits_for(joined, root)), []).append(root)
    parts += [f"rank {ranges(roots)}: {'; '.join(waits)}" for waits, roots in waited_for.items()]
    return "; ".join(parts) or "nothing wrong"


def _waits_for(joined: Joined, root: int) -> Iterator[str]:
    """What others wait in for `root`, group by group."""
    for progress in joined.progress:
        callers = [rank for rank, group, ranks in joined.waits if group == progress.group and root in ranks]
        if not callers:
            continue
        stuck = progress.positions[callers[0]].stuck
        assert stuck is not None
        where = f", {Path(stuck.site.file).name}:{stuck.site.line}" if stuck.site else ""
        group = f"{progress.group}:{progress.label}" if progress.label else progress.group
        operation = f"#{stuck.seq} of {group} ({stuck.name} of {stuck.num_elements}{where})"
        who = f"rank {ranges(callers)} {'waits' if len(callers) == 1 else 'wait'}"
        if root in progress.positions:
            yield f"did not enter {operation}, where {who}"
        else:
            yield f"{progress.absent.get(root)}; {who} in {operation}"


def compared(folder: Path, truth: Mapping[str, Any]) -> dict[str, Any] | None:
    """Both answers on one run; None without dumps."""
    dumps = sorted(folder.glob("fr_*"))
    if not dumps:
        return None
    orders = [dumps, dumps[::-1]]
    readings = [read_dump(p.read_bytes(), p.name, name_hint=p.name) for p in dumps]
    joined = joined_dumps([d for r in readings for d in r.dumps])
    ours = sorted({*joined.roots, *(r for m in joined.mismatches for r in m.odd)})
    return {
        "run": folder.name,
        "dumps": [p.name for p in dumps],
        "truth": {
            "class": truth["fault_class"],
            "ranks": truth.get("culprit_ranks", []),
            "nodes": truth.get("culprit_nodes", []),
        },
        "torch": list(dict.fromkeys(torch_says(o) for o in orders)),
        "torch_incomplete": list(dict.fromkeys(torch_says(o, "--allow-incomplete-ranks") for o in orders)),
        "ours": we_say(joined),
        "our_ranks": ours,
    }


def table(rows: Sequence[Mapping[str, Any]]) -> str:
    """The rows as Markdown."""
    heads = (
        "run (dumps of ranks)",
        "injected",
        "torchfrtrace",
        "with --allow-incomplete-ranks",
        "allready, dumps alone",
    )
    lines = [f"| {' | '.join(heads)} |", "|" + "---|" * len(heads)]
    for row in rows:
        truth = row["truth"]
        who = f"rank {ranges(truth['ranks'])}" if truth["ranks"] else ", ".join(truth["nodes"])
        with_dumps = ranges(int(name.removeprefix("fr_")) for name in row["dumps"])
        cells = [
            f"{row['run']} ({with_dumps})",
            f"{truth['class']} {who}",
            " / ".join(row["torch"]),
            " / ".join(row["torch_incomplete"]),
            row["ours"],
        ]
        lines.append("| " + " | ".join(cell.replace("|", "\\|").replace("<", "&lt;") for cell in cells) + " |")
    return "\n".join(lines)


def main() -> int:
    """Compare, print, save."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("recorded", type=Path)
    parser.add_argument("--save", type=Path)
    parser.add_argument("--docs", type=Path)
    args = parser.parse_args()
    truth = json.loads((args.recorded / "truth.json").read_text(encoding="utf-8"))
    with tempfile.TemporaryDirectory() as made:
        cut = Path(made) / "dataloader_stall, fr_0 cut"
        shutil.copytree(args.recorded / "dataloader_stall", cut)
        (cut / "fr_0").chmod(0o600)
        (cut / "fr_0").write_bytes((args.recorded / "dataloader_stall" / "fr_0").read_bytes()[:3000])
        cut_row = compared(cut, truth["dataloader_stall"])
    rows = [row for name in sorted(truth) for row in (compared(args.recorded / name, truth[name]),) if row is not None]
    rows += [cut_row] if cut_row is not None else []
    version = subprocess.run(
        [sys.executable, "-c", "import torch; print(torch.__version__)"],
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=True,
    ).stdout.strip()
    sys.stdout.write(f"torch {version}, allready {__version__}\n\n{table(rows)}\n")
    if args.save:
        result = {"torch": version, "allready": __version__, "python": sys.version.split()[0], "runs": rows}
        args.save.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    if args.docs:
        before, _, rest = args.docs.read_text(encoding="utf-8").partition(MARK)
        after = rest.rpartition(MARK)[2]
        args.docs.write_text(f"{before}{MARK}\n{table(rows)}\n{MARK}{after}", encoding="utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
