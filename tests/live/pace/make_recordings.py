"""Makes the recordings of tests/fixtures/live_pace, by root: `python -m tests.live.pace.make_recordings [NAME...]`.

Each takes about twenty seconds.  Look at the machine first: other load is recorded as well.
"""

import contextlib
import json
import lzma
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from allready.lab import Lab
from allready.lab.faults import Fault, LinkDown, MtuBlackHole, OneWayDrop, RandomLoss, SlowLink

from .replay import FIXTURES
from .watched import Watched, watched

BEFORE_S, AFTER_S = 4.0, 11.0
SOCKETS_EVERY_S = 1.95
"""As agents do; the rest is reported each time."""
Put = Callable[[Lab, Watched], AbstractContextManager[object]]


@dataclass(frozen=True, kw_only=True)
class Case:
    """`put`: the fault, from its beginning to its end; `base`: what holds from the start of the job on."""

    put: Put = lambda lab, job: contextlib.nullcontext()
    num_nodes: int = 4
    size: int = 25_000
    base: Sequence[Fault] = ()


def of_links(*faults: Fault) -> Put:
    @contextlib.contextmanager
    def put(lab: Lab, job: Watched) -> Iterator[None]:
        with contextlib.ExitStack() as stack:
            for fault in faults:
                stack.enter_context(lab.apply(fault))
            yield

    return put


def cut(node: int, peers: Sequence[int]) -> Put:
    return of_links(*(OneWayDrop(source=a, target=b) for p in peers if p != node for a, b in ((node, p), (p, node))))


def of_pace(always_s: float = 0.0, turn_s: float = 0.0, rank: int | None = None) -> Put:
    @contextlib.contextmanager
    def put(lab: Lab, job: Watched) -> Iterator[None]:
        job.slow_down(always_s, turn_s, rank)
        yield

    return put


def beside(act: Callable[[Lab, Watched, threading.Event], None]) -> Put:
    @contextlib.contextmanager
    def put(lab: Lab, job: Watched) -> Iterator[None]:
        ended = threading.Event()
        thread = threading.Thread(target=act, args=(lab, job, ended))
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join(30)

    return put


def pulses(lab: Lab, job: Watched, ended: threading.Event) -> None:
    while not ended.is_set():
        job.stop(1)
        time.sleep(0.3)
        job.stop(1, signal.SIGCONT)
        ended.wait(0.7)


def flap(lab: Lab, job: Watched, ended: threading.Event) -> None:
    while not ended.is_set():
        with lab.apply(LinkDown(node=2)):
            ended.wait(1.5)
        ended.wait(1.5)


@contextlib.contextmanager
def mixed(lab: Lab, job: Watched) -> Iterator[None]:
    job.slow_down(0.06, rank=0)
    with lab.apply(SlowLink(node=2, rate_mbit_per_s=10)):
        yield


@contextlib.contextmanager
def stopped(lab: Lab, job: Watched) -> Iterator[None]:
    job.stop(1)
    yield


def slow(node: int = 2, mbit: float = 10, **changes: Any) -> Put:
    return of_links(SlowLink(node=node, rate_mbit_per_s=mbit, **changes))


CASES: Mapping[str, Case] = {
    "healthy": Case(),
    "heavy": Case(size=2_500_000),
    "half": Case(put=slow(mbit=50), size=100_000, base=[SlowLink(node=n, rate_mbit_per_s=100) for n in (0, 1, 3)]),
    "slow10": Case(put=slow()),
    "slow1": Case(put=slow(mbit=1)),
    "slow10out": Case(put=slow(1, direction="out")),
    "slow10in": Case(put=slow(1, direction="in")),
    "slow3": Case(put=slow(1), num_nodes=3),
    "slow2": Case(put=slow(1), num_nodes=2),
    "slow2out": Case(put=slow(1, direction="out"), num_nodes=2),
    "slowall": Case(put=of_links(*(SlowLink(node=n, rate_mbit_per_s=20) for n in range(4)))),
    "loss1": Case(put=of_links(RandomLoss(node=2, percent=1))),
    "loss5": Case(put=of_links(RandomLoss(node=2, percent=5))),
    "down": Case(put=of_links(LinkDown(node=2))),
    "black": Case(put=cut(2, range(4))),
    "black0": Case(put=cut(0, range(4))),
    "pair": Case(put=cut(1, [2])),
    "oneway": Case(put=of_links(OneWayDrop(source=1, target=2))),
    "mtu": Case(put=of_links(MtuBlackHole(node=2, limit_bytes=1200)), size=250_000),
    "flap": Case(put=beside(flap)),
    "quota20": Case(put=lambda lab, job: job.cpu_quota(1, 0.05)),
    "quota50": Case(put=lambda lab, job: job.cpu_quota(1, 0.1)),
    "pulses": Case(put=beside(pulses)),
    "stopbig": Case(put=stopped, size=2_500_000),
    "loader": Case(put=of_pace(0.06, rank=3)),
    "k3": Case(put=of_pace(0.006, rank=0)),
    "rotate": Case(put=of_pace(turn_s=0.05)),
    "uniform": Case(put=of_pace(0.04)),
    "mixed": Case(put=mixed),
}
"""The job computes for about 24 ms, so that 10 Mbit/s make its 150 kB a turn take 0.12 s."""


def record(name: str, folder: Path, *, before_s: float = BEFORE_S, after_s: float = AFTER_S) -> dict[str, Any]:
    """Run one case; returns what the fixture holds."""
    case = CASES[name]
    with contextlib.ExitStack() as stack:
        lab = stack.enter_context(Lab.up(case.num_nodes, name=f"pace-{name}", state_dir=folder / "labs"))
        for fault in case.base:
            stack.enter_context(lab.apply(fault))
        job = stack.enter_context(watched(lab, folder / "job", case.num_nodes, size=case.size))
        job.watch(before_s)
        with case.put(lab, job):
            fault_s = time.time()
            job.watch(after_s)
    return {"name": name, "fault_s": fault_s, "history": {n: list(_thinned(w)) for n, w in job.history.items()}}


def _thinned(words: Sequence[Any]) -> Iterator[Any]:
    last_s = 0.0
    for word in words:
        if word.time_s - last_s >= SOCKETS_EVERY_S:
            last_s = word.time_s
        else:
            word = msgspec.structs.replace(word, sockets=(), links=())
        yield _lean(msgspec.structs.asdict(word))


def _lean(value: Any) -> Any:
    if isinstance(value, dict):
        return {k: _lean(v) for k, v in value.items() if v not in (None, (), "")}
    if isinstance(value, list | tuple):
        return [_lean(v) for v in value]
    return round(value, 6) if isinstance(value, float) else value


def main(names: Sequence[str]) -> None:
    FIXTURES.mkdir(parents=True, exist_ok=True)
    for name in names or CASES:
        with tempfile.TemporaryDirectory() as folder:
            data = json.dumps(record(name, Path(folder)), separators=(",", ":")).encode()
        packed = lzma.compress(data, preset=9 | lzma.PRESET_EXTREME)
        (FIXTURES / f"{name}.json.xz").write_bytes(packed)


if __name__ == "__main__":
    main(sys.argv[1:])
