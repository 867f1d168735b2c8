"""The numbers of docs/scale.md: sizes of the messages and CPU time of node 0 for N nodes, from a made-up fleet.

python benchmarks/scale_estimate.py --nodes 4096
"""

import argparse
import sys
import time
from pathlib import Path

import msgspec

from allready.facts.exchange import from_json, to_json
from allready.judging.engine import judge
from allready.messaging.wire import encode
from allready.preflight.check.report_series import ReportSeries, plain

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from tests.fleets import fleet

REPEAT = 500


def main() -> int:
    """Print one figure a line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=4096)
    num_nodes = parser.parse_args().nodes
    evidence = fleet(num_nodes, reach=None, collectives=None, why_not={"reach": "left out", "collectives": "left out"})
    facts = to_json(evidence.nodes[num_nodes - 1])
    began = time.process_time()
    for _ in range(REPEAT):
        from_json(msgspec.json.decode(msgspec.json.encode(facts)))
    decode_s = (time.process_time() - began) / REPEAT
    began = time.process_time()
    judge(evidence)
    judge_s = time.process_time() - began
    report = plain(ReportSeries().judge(evidence, waiting=False, visible_since=None))
    result_bytes = len(encode("result", report))
    figures = {
        "facts of one node, as sent": f"{len(encode('facts', facts))} B",
        "decoding them": f"{decode_s * 1e3:.3f} ms",
        f"all rules over {num_nodes} nodes": f"{judge_s:.2f} s CPU",
        "result as JSON": f"{len(msgspec.json.encode(report))} B",
        "result as sent": f"{result_bytes} B, {result_bytes * num_nodes / 1e6:.0f} MB to all",
    }
    sys.stdout.write("".join(f"{name:32} {figure}\n" for name, figure in figures.items()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
