"""Ranks that did not come to a call of the runtime library, by what became of them."""

from collections.abc import Iterator

from allready.judging.overdue import late, missed
from allready.judging.places import num_ranks
from allready.judging.registry import Layer, Rule
from allready.judging.stated import said
from allready.model import MAKINGS, Confidence, FaultClass, Hit, MemberState, RemedyStep, RuntimeFailure, Severity
from allready.rules.runtime._seen import hit_of, in_state, raised


@Rule(
    code="RTM001",
    severity=Severity.ERROR,
    fault_class=FaultClass.DEAD,
    layer=Layer.PROCESS_END,
    title="A rank's process ended during collectives",
    message="{who} ended without leaving the job[[; {waiting} waited for {who:it/them} in {call}]]",
    remedy=(
        RemedyStep(
            explanation="read the end of the log of {who}: a crash, an exit, a signal (SIGKILL is mostly the kernel's"
            " OOM killer); the other ranks can go on by allready.recover"
        ),
        RemedyStep(shared="oom_kills"),
    ),
)
def rank_died(runtime: RuntimeFailure) -> Iterator[Hit]:
    """
    ## What it checks
    Ranks whose connection to the job's hub broke without a goodbye.  The kernel closes it the moment the process ends.
    ## Why it matters
    The other ranks wait in the collective until their time-out; only neighbors of the dead rank get an error earlier.
    ## Check by hand
    `dmesg | grep -i kill` on its node; the exit code in the launcher's log.
    ## When it is harmless
    When the rank was ended on purpose and the others go on without it.
    """
    dead = in_state(runtime, MemberState.DIED)
    if dead:
        yield hit_of(runtime, dead)


@Rule(
    code="RTM004",
    severity=Severity.ERROR,
    fault_class=FaultClass.DESYNC_FLOW,
    layer=Layer.DESYNC,
    title="A rank left the job while others still called collectives",
    message="{who} left the job while others still called collectives[[ ({call})]][[; waiting: {waiting}]]",
    remedy="let all ranks make the same number of collective calls before the end; compare the lengths of their "
    "data sets and loops",
)
def rank_left(runtime: RuntimeFailure) -> Iterator[Hit]:
    """
    ## What it checks
    Ranks that ended cleanly while another rank still waits for them.
    ## Why it matters
    A rank that has fewer batches than the others ends earlier; the others wait for it until their time-out.
    ## Check by hand
    Print the number of steps on every rank.
    ## When it is harmless
    Never.
    """
    left = in_state(runtime, MemberState.LEFT)
    if left:
        yield hit_of(runtime, left)


@Rule(
    code="RTM002",
    severity=Severity.ERROR,
    fault_class=FaultClass.DEAD,
    layer=Layer.PROCESS_END,
    title="A rank raised an exception outside of the collective",
    message="{who} raised an exception[[: {error}]][[; {waiting} waited for {who:it/them} in {call}]]",
    remedy="fix the error of {who}; the other ranks failed because of it",
)
def rank_raised(runtime: RuntimeFailure) -> Iterator[Hit]:
    """
    ## What it checks
    Ranks that reported an exception of their own code, or wrong arguments of a call, by `allready.recover`
    or at the end of the process.
    ## Why it matters
    Without the report the other ranks wait for it until their time-out.
    ## Check by hand
    The traceback in the log of the rank that is named.
    ## When it is harmless
    When the script catches the exception, recovers and goes on.
    """
    culprits = raised(runtime)
    if culprits:
        yield hit_of(runtime, culprits)


@Rule(
    code="RTM003",
    severity=Severity.ERROR,
    fault_class=FaultClass.CPU_STUCK,
    layer=Layer.STALL,
    title="A rank sends no heartbeat",
    message="{who} {who:sends/send} no heartbeat: stopped, without CPU time, or cut off from the network"
    "[[; {waiting} waited for {who:it/them} in {call}]]",
    remedy=(
        RemedyStep(explanation="check that the node of {who} answers at all"),
        RemedyStep(shared="process_state"),
        RemedyStep(shared="let_go_on"),
    ),
)
def rank_silent(runtime: RuntimeFailure) -> Iterator[Hit]:
    """
    ## What it checks
    Ranks that are connected and from which nothing came, neither heartbeat nor answer, for
    `answer_within`.  The heartbeat comes from a thread of its own, so a rank that is only busy gives it.
    ## Why it matters
    A stopped process keeps its connections open, so no error shows it; the other ranks wait.
    ## Check by hand
    `ps -o pid,stat,wchan:20,cmd -C python` on its node.
    ## When it is harmless
    When a library holds the interpreter's lock for longer than `answer_within`; then raise it.
    """
    silent = in_state(runtime, MemberState.SILENT)
    if silent:
        yield hit_of(runtime, silent, confidence=Confidence.LIKELY)


@Rule(
    code="RTM005",
    severity=Severity.ERROR,
    fault_class=FaultClass.CPU_BUSY,
    layer=Layer.STALL,
    title="A rank did not enter the collective in time",
    message="{who} {who:is/are} alive and did not enter [[{call}|the call]] in time[[; waiting: {waiting}]]",
    remedy=(
        RemedyStep(
            explanation="if {who} {who:does/do} something legitimate instead (evaluation, checkpoint), give the "
            "call in which the others wait a timeout of its own: with allready.phase(...) around it on all ranks, in "
            "JAX the timeout of the barrier"
        ),
        RemedyStep(shared="stack"),
    ),
)
def rank_not_arrived(runtime: RuntimeFailure) -> Iterator[Hit]:
    """
    ## What it checks
    Ranks that answer, and have entered fewer calls than the others when the deadline passed, or when the backend gave
    an error after the others had waited for a second.  Of plain collectives (DDP's among them), which the library does
    not see: ranks that have begun fewer operations of a group, or fewer makings of groups (`dist.new_group`, a device
    mesh), by torch's own count, and are inside of none.  Sends and receives count too, so that is likely and not
    certain.
    ## Why it matters
    It is busy with something else, blocked, or skipped the call; the others cannot tell.
    ## Check by hand
    `py-spy dump --pid PID` of the rank that is named.
    ## When it is harmless
    When it would have come a little later; then the timeout is too short.
    """
    ranks, plain = late(runtime), missed(runtime)
    if not ranks or not runtime.is_lone:
        return
    if plain is None:
        yield hit_of(runtime, ranks)
        return
    is_making = plain.begun.group == MAKINGS
    form = "the making of group #{number}" if is_making else "plain collective #{number} of group {group}"
    yield hit_of(
        runtime,
        ranks,
        confidence=Confidence.LIKELY,
        call=said(form, number=plain.number, group=plain.begun.group),
        waiting=num_ranks(plain.waiting),
    )


@Rule(
    code="RTM009",
    severity=Severity.ERROR,
    fault_class=FaultClass.START_ABSENT,
    layer=Layer.ABSENCE,
    title="A rank did not come to form the group",
    message="{who} did not come to form the group[[; waiting: {waiting}]]",
    remedy=(
        RemedyStep(
            explanation="read the log of {who}: was it started, did its imports or its data take long, does it reach "
            "MASTER_ADDR and MASTER_PORT of the others"
        ),
        RemedyStep(shared="stack"),
    ),
)
def rank_absent(runtime: RuntimeFailure) -> Iterator[Hit]:
    """
    ## What it checks
    Ranks that did not come to `allready.init_process_group` within `start_timeout`, or are alive and did not come to
    `allready.recover`, where the others cannot form a group without them.
    ## Why it matters
    torch's own start waits for up to half an hour, and does not say for whom.
    ## Check by hand
    `ps -fC python` on its node; the launcher's log; `nc -vz MASTER_ADDR MASTER_PORT` from its node.
    ## When it is harmless
    When it would have come a little later; then `start_timeout`, or the timeout of `recover`, is too short.
    """
    absent = [*in_state(runtime, MemberState.ABSENT), *in_state(runtime, MemberState.AWAY)]
    if absent:
        yield hit_of(runtime, absent, waiting=num_ranks(runtime.survivors))
