from collections.abc import Iterator, Mapping

from msgspec import Struct

from allready import model
from allready.judging.registry import Applies, Layer, Rule
from allready.judging.run_signs import evidence, who
from allready.judging.signs import Sign
from allready.judging.stated import said, stated

ID_WAIT = "torch.store_get_failed"


@Rule(
    code="STA002",
    severity=model.Severity.BLOCKER,
    fault_class=model.FaultClass.DESYNC_FLOW,
    layer=Layer.ABSENCE,
    applies=Applies.OFFLINE,
    unless=(Sign.PROCESS_END,),
    title="Ranks wait to initialize a communicator that others never started, in the middle of the job",
    message="{absent} never started communicator {comm} of {nranks} ranks; {waiting} waited in it in the middle of the "
    "job",
    remedy=(
        model.RemedyStep(
            explanation="the first collective of a group creates its communicator: check which group {absent} used "
            "then; all ranks must use their groups in the same order"
        ),
        model.RemedyStep(
            explanation="`device_id=` in init_process_group creates communicators eagerly, where a wrong order shows "
            "at the start"
        ),
    ),
)
def later_communicator(run: model.RunEvidence) -> Iterator[model.Hit]:
    """
    ## What it checks
    NCCL's "Init START" and "Init COMPLETE" lines by the communicator's id: one that some ranks started and none
    completed, although the same processes had completed another one before.
    ## Why it matters
    torch creates a group's communicator at the first collective of the group. Where ranks use two groups in opposite
    order, or one skips a group, the first ones wait here, and no operation of theirs is recorded.
    ## Check by hand
    `grep "Init START"` over the NCCL logs, and search an id that only some of them contain. A rank that waits for
    another group's id in the store logs "is setting up NCCL communicator and retrieving ncclUniqueId".
    ## When it is harmless
    When the logs of the missing ranks were not given to diagnose, or were copied while a communicator was being
    created.
    """
    waits = {e.values.get("rank"): e for e in run.events if e.signature == ID_WAIT}
    for name, one in _begun(run).items():
        absent = tuple(r for r in range(one.nranks) if r not in one.ranks) if one.nranks == run.expected_ranks else ()
        elsewhere: list[model.Event] = [waits[str(r)] for r in absent if str(r) in waits]
        is_seen = all(r in {p.rank for p in run.processes} for r in absent)
        yield model.Hit(
            # A rank that waits itself, in another group, is not the only one at fault.
            culprits=model.Culprits(ranks=absent if is_seen and not elsewhere else ()),
            values={
                "waiting": who(run, one.in_job) if one.in_job else f"rank {model.ranges(one.ranks)} of it",
                "comm": name,
                "nranks": one.nranks,
                "absent": who(run, absent) if absent else said("{num} of them", num=one.nranks - len(one.ranks)),
            },
            confidence=model.Confidence.LIKELY if elsewhere else model.Confidence.POSSIBLE,
            evidence=(
                *(
                    stated(source, "rank {rank} of {group}: Init START without Init COMPLETE", rank=rank, group=name)
                    for rank, source in sorted(one.ranks.items())[:6]
                ),
                *(evidence(event.origin, event.text, event.time_s) for event in elsewhere[:3]),
            ),
            fault_time=model.clock_time(one.started_s),
        )
        return


class _Begun(Struct):
    """A communicator that no rank completed: its ranks that started it, with their logs, and their ranks in the job."""

    nranks: int
    ranks: dict[int, str] = {}
    in_job: list[int] = []
    started_s: float | None = None

    def add(self, process: model.ProcessRecord, comm: model.CommRecord) -> None:
        self.ranks[comm.rank] = process.sources[0] if process.sources else ""
        if process.rank is not None:
            self.in_job.append(process.rank)
        if comm.started_s is not None:
            self.started_s = comm.started_s if self.started_s is None else min(self.started_s, comm.started_s)


def _begun(run: model.RunEvidence) -> Mapping[str, _Begun]:
    """By id, those that are incomplete in processes which had completed another one."""
    found: dict[str, _Begun] = {}
    completed: set[str] = set()
    for process in run.processes:
        was_before = any(comm.init_completed for comm in process.comms)
        for comm in process.comms:
            if comm.comm_id is None or not comm.init_started:
                continue
            if comm.init_completed:
                completed.add(comm.comm_id)
            elif was_before and not comm.destroyed:
                found.setdefault(comm.comm_id, _Begun(comm.nranks)).add(process, comm)
    return {name: one for name, one in found.items() if name not in completed and len(one.ranks) < one.nranks}
