"""Run `allready bench` on the GPUs of one machine in every way that needs some, and keep what it reported.

    python benchmarks/record_gpu_bench.py OUT_DIR [--gpus 2] [--seconds 285] [--scenes no_p2p,plain]

Writes OUT_DIR/SCENE.json (what a test needs of report.json), the table of nccl-tests' shape, `plain.json` (our loop
beside a plain one with CUDA events, 1 KiB to 1 GiB) and `summary.json`.  A scene that would start after `--seconds` is
left out and named in the summary; each has a time limit of its own.
"""

import argparse
import json
import os
import platform
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

SWEEP = ["all_reduce", "--min", "1K", "--max", "1G", "--factor", "4", "--budget", "14"]
LARGE = ["all_reduce", "--min", "64M", "--max", "1G", "--factor", "4", "--budget", "8"]
SCENES: dict[str, tuple[list[str], dict[str, str], float]] = {  # words, variables, limit in seconds
    "no_p2p": ([*LARGE, "--ask-nccl"], {"NCCL_P2P_DISABLE": "1"}, 60),
    "all": (["all", "--min", "1K", "--max", "1G", "--factor", "8", "--budget", "25", "--ask-nccl"], {}, 90),
    "plain": ([], {}, 130),
    "no_nvls": ([*LARGE, "--ask-nccl"], {"NCCL_NVLS_ENABLE": "0"}, 60),
    "isolate": (["all_reduce", "--min", "256M", "--max", "256M", "--budget", "5", "--isolate"], {}, 110),
    "nccl_path": ([*SWEEP, "--path", "nccl"], {}, 60),
    "pairs": (["pairs"], {}, 60),
    "bisect": (["bisect"], {}, 60),
    "graph": ([*SWEEP, "--path", "nccl", "--cuda-graph"], {}, 60),
    "predict": (["predict", "--params", "1e9", "--dtype", "bf16", "--strategy", "ddp", "--budget", "10"], {}, 60),
}
"""In the order of what would be missed most."""
KEPT_FACTS = ("gpu", "software", "env", "bus")


def ended(argv: list[str], env: dict[str, str], log: Path, limit_s: float) -> int | None:
    """Run it; None where it had to be killed, with all that it started."""
    with log.open("w") as stream:
        process = subprocess.Popen(argv, env=env, stdout=stream, stderr=subprocess.STDOUT, start_new_session=True)
        try:
            return process.wait(timeout=limit_s)
        except subprocess.TimeoutExpired:
            return None
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def kept(report: dict[str, Any]) -> dict[str, Any]:
    """What a test needs: no paths, no names of this machine."""
    runs = report["collectives"]["runs"] if report.get("collectives") else []
    return {
        "status": report["status"],
        "verdict": report["verdict"],
        "findings": [f for f in report["findings"] if f["code"].startswith(("BEN", "ENV010", "GPU", "COL"))],
        "not_checked": report["not_checked"],
        "collectives": {**(report["collectives"] or {}), "runs": runs},
        "world": report["world"],
        "facts": {node: {key: facts.get(key) for key in KEPT_FACTS} for node, facts in report["facts"].items()},
    }


def record(name: str, out: Path, gpus: int, seconds: float) -> dict[str, Any]:
    """One scene."""
    words, variables, limit_s = SCENES[name]
    env = {**os.environ, **variables}
    log, began = out / f"{name}.log", time.monotonic()
    if name == "plain":
        program = str(Path(__file__).with_name("bench_on_one_gpu.py"))
        argv = [sys.executable, program, str(out / "plain.json"), "--gpus", str(gpus), "--seconds", str(seconds)]
        code = ended(argv, env, log, limit_s)
        return {"exit_code": code, "seconds": round(time.monotonic() - began, 1)}
    with tempfile.TemporaryDirectory() as folder:
        report, table = Path(folder) / "report.json", out / f"{name}.nccl_tests.json"
        argv = [sys.executable, "-m", "allready", "bench", *words, "--backend", "nccl"]
        argv += ["--nproc-per-node", str(gpus), "--json", str(report), "--report-dir", folder]
        argv += ["--nccl-json", str(table)] if name in {"all", "nccl_path"} else []
        code = ended(argv, env, log, limit_s)
        found: dict[str, Any] = {"exit_code": code, "seconds": round(time.monotonic() - began, 1)}
        if report.exists():
            body = kept(json.loads(report.read_text()))
            (out / f"{name}.json").write_text(json.dumps(body, separators=(",", ":")) + "\n")
            verdict = body["verdict"] or {}
            found |= {"status": body["status"], "verdict": verdict.get("code"), "codes": _codes(body)}
    return found


def _codes(body: dict[str, Any]) -> list[str]:
    return [finding["code"] for finding in body["findings"]]


def main() -> int:
    """All scenes that there is time for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--gpus", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=285.0)
    parser.add_argument("--plain-seconds", type=float, default=60.0)
    parser.add_argument("--scenes", default=",".join(SCENES))
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    began = time.monotonic()
    summary: dict[str, Any] = {"python": platform.python_version(), "cpus": os.cpu_count(), "gpus": args.gpus}
    scenes: dict[str, Any] = {}
    for name in args.scenes.split(","):
        left_s = args.seconds - (time.monotonic() - began)
        if left_s < (args.plain_seconds + 25 if name == "plain" else 25):
            scenes[name] = "left out: no time"
        else:
            scenes[name] = record(name, args.out, args.gpus, args.plain_seconds)
        sys.stdout.write(f"{time.monotonic() - began:6.1f} s  {name}: {scenes[name]}\n")
        sys.stdout.flush()
        (args.out / "summary.json").write_text(json.dumps(summary | {"scenes": scenes}, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
