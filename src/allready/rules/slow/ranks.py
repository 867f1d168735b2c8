"""A rank that is slower than the others, by what holds it up."""

from collections.abc import Iterator
from statistics import median

from msgspec.structs import replace

from allready.judging.analysis import Analysis
from allready.judging.registry import Layer, Rule
from allready.judging.stated import stated
from allready.model import HOSTS, PROCESSES, Confidence, Culprits, FaultClass, Hit, Live, RemedyStep, Severity
from allready.rules.slow._blame import blame, is_no_chance, rank_hit, ranks_of
from allready.rules.slow._pace import (
    others_queued,
    paused_share,
    percent,
    percents,
    queued_share,
    share_in,
    throttled_share,
    usual_site,
)


@Rule(
    code="SLW006",
    severity=Severity.ERROR,
    fault_class=FaultClass.SLOW_COMP,
    layer=Layer.PACE,
    title="One rank has a consistently longer compute time per iteration",
    message="{who} {who:computes/compute} longer than the others[[ ({site})]]; they wait for {who:it/them} {share} "
    "of the time, by {late} ms at the median; no cause outside of the process was found",
    remedy=(
        RemedyStep(
            explanation="profile it against another rank: its share of the work, its loader",
            each=PROCESSES,
            where="{on}",
            command="py-spy record -d 30 -o rank.svg --pid {pid}",
        ),
        RemedyStep(
            explanation="check neighbours on its CPUs and the clocks of its GPU",
            each=HOSTS,
            where="{on}",
            command="top -b -n 1 | head -20; nvidia-smi -q -d CLOCK,PERFORMANCE",
        ),
    ),
)
def rank_slow(case: Analysis, live: Live) -> Iterator[Hit]:
    """
    ## What it checks
    When each rank entered each operation, on synchronized clocks: for how much of the time most ranks had entered and
    one had not, steadily, without its longest waits, and against how often each rank would be last by chance.
    ## Why it matters
    Collectives run at the pace of the slowest rank; every other rank looks busy in communication and only waits.
    ## Check by hand
    Compare creation times of the same operation in all ranks' flight records.
    ## When it is harmless
    When the rank has more work by design. Up to a fifth of the time it is reported as information only.
    """
    slow = case.of(blame).because("")
    if slow:
        is_sure = slow[0].computes_longer and is_no_chance(slow)
        confidence = Confidence.CERTAIN if is_sure else Confidence.LIKELY
        yield rank_hit(case, slow, confidence, site=usual_site(live, ranks_of(slow)))


@Rule(
    code="SLW004",
    severity=Severity.ERROR,
    fault_class=FaultClass.SLOW_COMP,
    layer=Layer.PACE,
    title="One rank waits for its data, and all others wait for it",
    message="{who} {who:is/are} in data loading in {loading} of samples[[ ({site})]]; the others wait for "
    "{who:it/them} {share} of the time",
    remedy=(
        RemedyStep(
            explanation="see where the loader waits", each=PROCESSES, where="{on}", command="py-spy dump --pid {pid}"
        ),
        RemedyStep(
            explanation="make it as fast as the others': number of workers, prefetch_factor, the disk or shard it "
            "reads, its transforms",
            each=HOSTS,
            where="{on}",
            command="iostat -x 1 5",
        ),
    ),
)
def rank_loading(case: Analysis, live: Live) -> Iterator[Hit]:
    """
    ## What it checks
    When each rank entered each operation, and whether the late rank's main thread was waiting for its DataLoader
    meanwhile.
    ## Why it matters
    Collectives run at the pace of the slowest rank; one slow shard or disk slows the whole job.
    ## Check by hand
    `py-spy dump --pid PID` a few times on the late rank and on another one.
    ## When it is harmless
    When the shards differ by design and the loss is accepted.
    """
    slow = case.of(blame).because("loading")
    if slow:
        share = {r: share_in(live, r, "loading") or 0.0 for r in ranks_of(slow)}
        yield rank_hit(
            case,
            slow,
            Confidence.CERTAIN if len(share) == 1 and is_no_chance(slow) else Confidence.LIKELY,
            form="in data loading in {share} of samples",
            shares=share,
            loading=percents(share.values()),
            site=usual_site(live, share),
        )


@Rule(
    code="SLW003",
    severity=Severity.ERROR,
    fault_class=FaultClass.SLOW_COMP,
    layer=Layer.PACE,
    title="One rank is stopped and continued repeatedly, and all others wait for it",
    message="{who} {who:is/are} stopped {paused} of the time (SIGSTOP and SIGCONT); the others wait for {who:it/them} "
    "{share} of the time",
    remedy=RemedyStep(
        explanation="find what stops it (a batch system that suspends, a debugger, a checkpointing or power tool)",
        each=PROCESSES,
        where="{on}",
        command="timeout 10 strace -p {pid} -e trace=none -e signal=all; grep State /proc/{pid}/status",
    ),
)
def rank_paused(case: Analysis, live: Live) -> Iterator[Hit]:
    """
    ## What it checks
    When each rank entered each operation, and whether its process was found stopped (state T) for parts of the last
    seconds.
    ## Why it matters
    Collectives run at the pace of the slowest rank. Stops of a fraction of a second show in no log, and in no profile
    of the rank itself.
    ## Check by hand
    `grep State /proc/PID/status`, repeated.
    ## When it is harmless
    When it is stopped on purpose, for example with a debugger.
    """
    slow = case.of(blame).because("paused")
    if slow:
        paused = {r: paused_share(live, r) for r in ranks_of(slow)}
        yield rank_hit(
            case,
            slow,
            Confidence.CERTAIN,
            "/proc",
            form="stopped {share} of the time",
            shares=paused,
            paused=percents(paused.values()),
        )


@Rule(
    code="SLW002",
    severity=Severity.ERROR,
    fault_class=FaultClass.SLOW_COMP,
    layer=Layer.PACE,
    title="A CPU quota throttles one rank, and all others wait for it",
    message="{who} {who:is/are} throttled {throttled} of the time by the CPU quota of {who:its cgroup/their cgroups}; "
    "the others wait for {who:it/them} {share} "
    "of the time",
    remedy=(
        RemedyStep(
            explanation="find the quota",
            each=PROCESSES,
            where="{on}",
            command="cat /proc/{pid}/cgroup; cat /sys/fs/cgroup/cpu.max /sys/fs/cgroup/cpu.stat",
        ),
        RemedyStep(
            explanation="raise or remove it (`docker update --cpus`, resources.limits.cpu in Kubernetes), or start "
            "fewer threads and loader workers",
            each=HOSTS,
            where="{on}",
        ),
    ),
)
def rank_throttled(case: Analysis, live: Live) -> Iterator[Hit]:
    """
    ## What it checks
    When each rank entered each operation, on synchronized clocks, and how much of the time the kernel throttled the
    rank's cgroup (nr_throttled, throttled_time).
    ## Why it matters
    Collectives run at the pace of the slowest rank. A quota stops all threads of the rank for the rest of each period
    of 100 ms, however idle the machine is.
    ## Check by hand
    `cat /sys/fs/cgroup/cpu.stat` of the rank's cgroup, twice: `nr_throttled` grows.
    ## When it is harmless
    When the job should run within that quota and its speed is accepted.
    """
    slow = case.of(blame).because("throttled")
    if slow:
        share = {r: throttled_share(live, r) for r in ranks_of(slow)}
        yield rank_hit(
            case,
            slow,
            Confidence.CERTAIN,
            "cpu.stat",
            form="throttled {share} of the time",
            shares=share,
            throttled=percents(share.values()),
        )


@Rule(
    code="SLW013",
    severity=Severity.ERROR,
    fault_class=FaultClass.SLOW_COMP,
    layer=Layer.PACE,
    title="One rank waits in the run queue for a CPU, and all others wait for it",
    message="{who} {who:waits/wait} in the run queue: {who:its main thread is runnable and gets/their main threads "
    "are runnable and get} no CPU {queued} of the time (the "
    "others: {rest}); the others wait for {who:it/them} {share} of the time, by {late} ms at the median",
    remedy=(
        RemedyStep(
            explanation="find what else runs on its CPUs and move it away, or bind the rank to CPUs of its own",
            each=PROCESSES,
            where="{on}",
            command="taskset -pc {pid}; ps -eLo psr,pcpu,pid,comm --sort=-pcpu | head",
        ),
        RemedyStep(
            explanation="too many threads or loader workers of its own, or two ranks bound to the same CPUs, look the "
            "same"
        ),
    ),
)
def runqueue_wait(case: Analysis, live: Live) -> Iterator[Hit]:
    """
    ## What it checks
    When each rank entered each operation, and for how much of the time its main thread was ready to run while no CPU
    was free (the second number of /proc/PID/task/PID/schedstat), against the ranks that are not late.
    ## Why it matters
    Collectives run at the pace of the slowest rank; another process on the CPUs of one rank slows the whole job. A rank
    that is bound to its CPUs cannot move away, however idle the rest of the machine is.
    ## Check by hand
    `cat /proc/PID/task/PID/schedstat` twice: the second number grows by up to 1e9 (ns) a second; `taskset -pc PID`; `ps
    -eLo psr,pcpu,pid,comm --sort=-pcpu | head`.
    ## When it is harmless
    When the other process is wanted there, for example a monitoring tool, and the loss is accepted.
    """
    slow = case.of(blame).because("queued")
    if slow:
        queued = {r: queued_share(live, r) or 0.0 for r in ranks_of(slow)}
        yield rank_hit(
            case,
            slow,
            Confidence.CERTAIN,
            "schedstat",
            form="waited for a CPU {share} of the time",
            shares=queued,
            queued=percents(queued.values()),
            rest=percent(median(others_queued(live, queued))),
        )


@Rule(
    code="SLW005",
    severity=Severity.ERROR,
    fault_class=FaultClass.SLOW_COMP,
    layer=Layer.PACE,
    title="CPU contention slows one rank, and all ranks wait for it",
    message="{who} {who:shares its/share their} CPUs: processes on {who:its node/their nodes} wait for a free CPU "
    "{pressure} of the time, on the other "
    "nodes hardly ever; the others wait for {who:this rank/these ranks} {share} of the time, by {late} ms at the "
    "median",
    remedy=RemedyStep(
        explanation="find what else runs on its CPUs, move it away, or bind the rank to CPUs of its own",
        each=PROCESSES,
        where="{on}",
        command="cat /proc/pressure/cpu; taskset -pc {pid}; top -b -n 1 | head -20",
    ),
)
def cpu_contention(case: Analysis, live: Live) -> Iterator[Hit]:
    """
    ## What it checks
    When each rank entered each operation, and the share of time in which processes of each node wait for a CPU (PSI).
    ## Why it matters
    Collectives run at the pace of the slowest rank; another process on one node slows the whole job.
    ## Check by hand
    `cat /proc/pressure/cpu` on the node and on another one, `top`.
    ## When it is harmless
    When the other process is wanted there, for example a monitoring tool, and the loss is accepted.
    """
    slow = case.of(blame).because("contention")
    if slow:
        node_of = live.node_of_rank()
        pressure = {n: live.statuses[n].cpu_pressure_share or 0.0 for n in sorted({node_of[r] for r in ranks_of(slow)})}
        hit = rank_hit(case, slow, Confidence.LIKELY, pressure=percents(pressure.values()))
        shown = (
            stated(
                "/proc/pressure/cpu",
                "{share} of the time some process waits for a CPU",
                share=percent(share),
                node_rank=node,
            )
            for node, share in pressure.items()
        )
        yield replace(hit, evidence=(*shown, *hit.evidence))


@Rule(
    code="SLW014",
    severity=Severity.INFO,
    fault_class=FaultClass.SLOW_NOCULPRIT,
    layer=Layer.PACE,
    title="All ranks wait for a free CPU, and some of them longer",
    message="ranks wait for a free CPU {queued} of the time at the median; that the others wait for {who} {share} of "
    "the time may be because of that",
    remedy=RemedyStep(
        explanation="run fewer processes and threads on these machines, or give the job CPUs of its own; what else "
        "runs there:",
        each=HOSTS,
        where="{on}",
        elsewhere="every node",
        command="ps -eLo psr,pcpu,pid,comm --sort=-pcpu | head; cat /proc/pressure/cpu",
    ),
)
def cpus_busy(case: Analysis, live: Live) -> Iterator[Hit]:
    """
    ## What it checks
    Whether the main threads of most ranks are ready to run for a quarter of the time or more while no CPU is free, and
    a rank that the others wait for waits for a CPU itself for as long as would explain half of that.
    ## Why it matters
    On a machine that has too much to do, which rank is late says nothing about that rank.
    ## Check by hand
    `cat /proc/PID/task/PID/schedstat` twice: the second number grows by up to 1e9 (ns) a second.
    ## When it is harmless
    When the job may be slower than it could be.
    """
    late = case.of(blame).crowd
    if late:
        shares = [share for rank in live.ranks() if (share := queued_share(live, rank)) is not None]
        hit = rank_hit(case, late, Confidence.LIKELY, queued=percent(median(shares)))
        yield replace(hit, culprits=Culprits())
