"""What it costs to judge a running job by what NCCL logged of its calls (NCCL_DEBUG_SUBSYS=COLL), with made-up logs.

    python benchmarks/nccl_logs.py [--calls 50000] [--ranks 512]

One node reads the logs of its eight ranks; node 0 joins what the agents of all nodes made of theirs.
"""

import argparse
import platform
import tempfile
import time
from pathlib import Path

import msgspec
from msgspec.structs import replace

from allready.live.monitor.job_state import JobState
from allready.live.monitor.run_evidence import run_evidence_of
from allready.live.node.nccl_logs import NcclLogs
from allready.model import NodeEvidence, NodeStatus, RankEvidence, RankStatus, World, WorldNode

PER_NODE = 8
CALLS = (("AllReduce", 25_000_000), ("AllReduce", 13_107_200), ("AllGather", 4096), ("ReduceScatter", 8192))
LINE = "gpu{node}:{pid}:{pid} [0] NCCL INFO "
INIT = (
    "ncclCommInitRankConfig comm {comm} rank {rank} nranks {ranks} cudaDev 0 busId 60 commId 0xabcdef - Init {what}\n"
)
CALL = (
    "{name}: opCount {at:x} sendbuff 0x7f{at:08x}00 recvbuff 0x7f{at:08x}00 count {count} datatype 7 op 0 root 0 "
    "comm {comm} [nranks={ranks}] stream 0x55810000\n"
)


def write_log(path: Path, rank: int, ranks: int, calls: int) -> None:
    """The log of one rank in one communicator of all."""
    head = LINE.format(node=rank // PER_NODE, pid=1000 + rank)
    comm = f"0x{0x5000 + rank:x}"
    lines = [head + INIT.format(comm=comm, rank=rank, ranks=ranks, what=what) for what in ("START", "COMPLETE")]
    for at in range(calls):
        name, count = CALLS[at % len(CALLS)]
        lines.append(head + CALL.format(name=name, at=at, count=count, comm=comm, ranks=ranks))
    path.write_text("".join(lines))


def read_node(folder: Path, node: int, ranks: int, calls: int) -> tuple[dict[int, str], int, float, float]:
    """Records of one node's ranks, bytes of their logs, processor time of reading them, and of asking again."""
    own = range(node * PER_NODE, min(ranks, (node + 1) * PER_NODE))
    paths = {rank: folder / f"nccl.{rank}.log" for rank in own}
    for rank, path in paths.items():
        write_log(path, rank, ranks, calls)
    asked = {rank: (path, True) for rank, path in paths.items()}
    logs, times = NcclLogs(), []
    for _ in range(2):
        began = time.process_time()
        logs.ask(asked, 0.0, may_read=True)
        records = logs.records(600.0)
        times.append(time.process_time() - began)
    num_bytes = sum(path.stat().st_size for path in paths.values())
    for path in paths.values():
        path.unlink()
    return records, num_bytes, times[0], times[1]


def answer_of(node: int, records: dict[int, str]) -> NodeEvidence:
    """What the agent of a node sends, without anything else."""
    ranks = tuple(RankEvidence(rank=r, status=RankStatus(rank=r), nccl_record=text) for r, text in records.items())
    status = NodeStatus(node_rank=node, name=f"gpu{node}", ranks=tuple(r.status for r in ranks))
    return NodeEvidence(node_rank=node, number=1, time_s=0.0, status=status, ranks=ranks)


def wire_bytes(answer: NodeEvidence) -> int:
    """What the records add to the message."""
    bare = replace(answer, ranks=tuple(replace(r, nccl_record="") for r in answer.ranks))
    return len(msgspec.json.encode(answer)) - len(msgspec.json.encode(bare))


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--calls", type=int, default=50_000)
    parser.add_argument("--ranks", type=int, default=512)
    args = parser.parse_args()

    import allready.evidence.lines.scan
    import allready.evidence.log  # noqa: F401

    with tempfile.TemporaryDirectory() as folder:
        answers, first = [], None
        for node in range(-(-args.ranks // PER_NODE)):
            found = read_node(Path(folder), node, args.ranks, args.calls)
            first = first or found
            answers.append(answer_of(node, found[0]))
    assert first is not None
    _, num_bytes, read_s, again_s = first
    world = World(
        num_nodes=len(answers),
        world_size=args.ranks,
        nodes=tuple(
            WorldNode(node_rank=a.node_rank, name=a.status.name, ranks=tuple(r.rank for r in a.ranks)) for a in answers
        ),
    )
    board, joins = JobState(), []
    began = time.process_time()
    for answer in answers:
        board.take_answer(answer, 0.0)
    taken_s = time.process_time() - began
    for _ in range(2):
        began = time.process_time()
        run = run_evidence_of(
            board, world, now=0.0, stopping_s=None, lags=(), shift=None, digests=(), kept=(), ends=False
        )
        joins.append(time.process_time() - began)
    assert not run.mismatches
    print(f"machine  {platform.machine()}, Python {platform.python_version()}")
    print(f"node     {PER_NODE} logs of {args.calls} calls, {num_bytes / 2**20:.0f} MiB: read in {read_s:.2f} s of CPU")
    print(f"         asked again: {again_s * 1e3:.1f} ms; sent: {wire_bytes(answers[0])} B")
    print(f"node 0   {args.ranks} ranks: {sum(map(wire_bytes, answers)) / 1e6:.2f} MB, taken in {taken_s * 1e3:.0f} ms")
    print(f"         joined and compared in {joins[0] * 1e3:.0f} ms, again in {joins[1] * 1e3:.0f} ms of CPU")


if __name__ == "__main__":
    main()
