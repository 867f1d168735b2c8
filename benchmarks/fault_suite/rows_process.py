"""B and C: faults of processes during the run, and ranks that do not do the same."""

from collections.abc import Callable
from dataclasses import replace

from fault_suite.scenario import Answer, Expected, Pick, Row, Setup

DEAD = ("DEAD",)
STUCK = ("CPU-STUCK",)
BUSY = ("CPU-BUSY",)
FLOW = ("DESYNC-FLOW",)
ARGS = ("DESYNC-ARGS",)


def struck(
    *kinds: str,
    classes: tuple[str, ...],
    args: tuple[str, ...] = (),
    statuses: tuple[str, ...] = ("fault",),
    script: str = "train.py",
) -> Callable[[Pick], Setup]:
    """A fault of the injector in a random rank at a random step; several kinds are doses."""

    def make(pick: Pick) -> Setup:
        layout = pick.layout(3, 1) if script == "train_jax.py" else pick.layout()
        rank, step, kind = pick.rank(layout), pick.step(), pick.dose(kinds)
        name, _, rest = kind.partition(" ")
        expected = Expected(answers=(Answer(classes=classes, ranks=(rank,)),), statuses=statuses)
        fault = f"{name} rank={rank} step={step} {rest}".strip()
        return Setup(
            layout=layout,
            script=script,
            script_args=args,
            faults=(fault,),
            expected=expected,
            dose=kind if len(kinds) > 1 else "",
            victim=f"rank {rank}",
        )

    return make


def scripted(
    *flags: str, classes: tuple[str, ...], statuses: tuple[str, ...] = ("fault",), victim_0: bool = False
) -> Callable[[Pick], Setup]:
    """A fault in the script itself; `{rank}` and `{step}` in the flags are filled in."""

    def make(pick: Pick) -> Setup:
        layout = pick.layout()
        rank, step = 0 if victim_0 else pick.rank(layout), pick.step()
        args = tuple(flag.format(rank=rank, step=step) for flag in flags)
        expected = Expected(answers=(Answer(classes=classes, ranks=(rank,)),), statuses=statuses)
        return Setup(layout=layout, script_args=args, mark=(rank, step), expected=expected, victim=f"rank {rank}")

    return make


def _long_work(pick: Pick) -> Setup:
    """Rank 0 saves under a barrier, or a rank computes alone: named as waited for, not called a fault."""
    if pick.dose(("save", "compute")) == "save":
        make = scripted("--save-at", "{step}", "--save-s", "25", classes=BUSY, statuses=("waiting",), victim_0=True)
        return replace(make(pick), dose="save")
    make = struck("busy duration_s=25", classes=BUSY, statuses=("waiting",))
    return replace(make(pick), dose="compute")


def _stalled_storage(pick: Pick) -> Setup:
    """State D is no state to work in; a read that can be interrupted looks like any long read, and may be one."""
    if pick.dose(("disk", "read")) == "disk":
        # A local disk may take its time with a checkpoint: it is waited for, by name, for half a minute.
        return replace(struck("disk", classes=STUCK)(pick), dose="disk", limit_s=45)
    made = struck("read", classes=(*STUCK, *BUSY), statuses=("fault", "waiting"))(pick)
    return replace(made, dose="read")


def _both_send(pick: Pick) -> Setup:
    layout = pick.layout()
    rank, step = pick.rank(layout), pick.step()
    pair = tuple(sorted((rank, rank ^ 1)))
    if pick.dose(("both send first", "tag")) == "tag":
        made = struck("tag", classes=ARGS, args=("--pattern", "p2p"))(pick)
        victim = int(made.victim.split()[1])
        answers = (
            Answer(classes=(*ARGS, *FLOW), ranks=(victim,)),
            Answer(classes=(*ARGS, *FLOW), ranks=tuple(sorted((victim, victim ^ 1)))),
        )
        return replace(made, expected=Expected(answers=answers), dose="tag")
    flags = ("--pattern", "both_send", "--flip-rank", str(rank), "--flip-at", str(step))
    answer = Answer(classes=(*ARGS, *FLOW), ranks=pair)
    return Setup(
        layout=layout,
        script_args=flags,
        mark=(rank, step),
        expected=Expected(answers=(answer,)),
        dose="both send first",
        victim=f"ranks {pair[0]} and {pair[1]}",
    )


def _group_order(pick: Pick) -> Setup:
    """Two groups in opposite order on one of four ranks; or, in a circle of pairs, on one of three."""
    if pick.dose(("one of four", "circle")) == "circle":
        layout = pick.layout(3, 1)
        step = pick.step()
        flags = ("--pattern", "ring", "--flip-rank", "1", "--flip-at", str(step))
        answer = Answer(classes=FLOW, ranks=(1,))
        return Setup(
            layout=layout,
            script_args=flags,
            mark=(1, step),
            expected=Expected(answers=(answer,)),
            dose="circle",
            victim="rank 1",
        )
    flags = ("--pattern", "groups", "--flip-rank", "{rank}", "--flip-at", "{step}")
    return replace(scripted(*flags, classes=FLOW)(pick), dose="one of four")


def _skip_psum(pick: Pick) -> Setup:
    """All calls are alike, so the others take the next call for the missing one, until the victim has no more."""
    made = struck("skip", classes=FLOW, args=("--steps", "220"), script="train_jax.py")(pick)
    return replace(made, limit_s=35)


def _compile_alone(pick: Pick) -> Setup:
    layout = pick.layout(3, 1)
    rank, step = pick.rank(layout), pick.step()
    # Some 20 s on one CPU: a compilation of two seconds is no news, and no rank should be reported of it.
    args = ("--compile-rank", str(rank), "--compile-at", str(step), "--compile-layers", "12000")
    expected = Expected(answers=(Answer(classes=BUSY, ranks=(rank,)),), statuses=("waiting",))
    return Setup(
        layout=layout,
        script="train_jax.py",
        script_args=args,
        mark=(rank, step),
        expected=expected,
        victim=f"rank {rank}",
    )


LOADER = ("--loader", "1")
FLIP = ("--flip-rank", "{rank}", "--flip-at", "{step}")

PROCESS = (
    Row(id="B01", title="SIGKILL", make=struck("kill", "kill where=inside", classes=DEAD), core=True),
    Row(id="B02", title="SIGSTOP", make=struck("sigstop", "sigstop where=op", classes=STUCK), core=True),
    Row(
        id="B03", title="a rank ends early, exit code 0", core=True,
        make=scripted("--fewer-rank", "{rank}", "--flip-at", "{step}", classes=(*FLOW, *DEAD)),
    ),
    Row(id="B04", title="exception on one rank", make=struck("exception", classes=DEAD)),
    Row(
        id="B05", title="exception caught and ignored, batch skipped", core=True,
        make=scripted("--tolerant", *FLIP, classes=FLOW),
    ),
    Row(
        id="B06", title="exception handler calls a barrier", standard=False,
        make=scripted("--tolerant", "--handler-barrier", *FLIP, classes=FLOW),
    ),
    Row(id="B07", title="killed for memory", make=struck("oom limit_bytes=64M", classes=DEAD), needs=("memory",)),
    Row(
        id="B08", title="DataLoader worker stopped or killed",
        make=struck("loader how=stop", "loader how=kill", classes=(*STUCK, *DEAD), args=LOADER),
    ),
    Row(id="B09", title="long work of one rank under a barrier", make=_long_work, core=True),
    Row(
        id="B10", title="storage stalls (D state, or a read)", standard=False,
        make=_stalled_storage,
    ),
    Row(id="B11", title="lock deadlock in one rank", make=struck("lock", classes=STUCK), core=True),
    Row(id="B12", title="GIL held by native code", make=struck("gil", classes=STUCK)),
    Row(id="B13", title="abort or segfault", make=struck("abort", "segfault", classes=DEAD), standard=False),
    Row(id="B14", title="GPU kernel spins", make=struck("kill", classes=("HW-HANG",)), standard=False, needs=("gpu",)),
    Row(
        id="B01J", title="SIGKILL, JAX", make=struck("kill", classes=DEAD, script="train_jax.py"), framework="jax",
        needs=("jax",),
    ),
    Row(
        id="B02J", title="SIGSTOP, JAX", make=struck("sigstop", classes=STUCK, script="train_jax.py"), framework="jax",
        needs=("jax",),
    ),
)  # fmt: skip

DESYNC = (
    Row(id="C01", title="a collective is skipped", make=struck("skip op=all_reduce", classes=FLOW), core=True),
    Row(id="C02", title="one collective more", make=struck("extra op=all_reduce", classes=FLOW), standard=False),
    Row(id="C03", title="order swapped", make=struck("swap op=all_reduce", classes=FLOW), core=True),
    Row(
        id="C04", title="shape differs", core=True,
        make=struck("shape op=all_reduce elements=-64", "shape op=all_reduce factor=2", classes=ARGS),
    ),
    Row(id="C05", title="dtype differs, same bytes", make=struck("dtype op=all_reduce", classes=ARGS), core=True),
    Row(id="C06", title="wrong root", make=struck("root op=broadcast", classes=(*ARGS, *FLOW)), standard=False),
    Row(
        id="C07", title="all_to_all splits disagree",
        make=struck("splits op=all_to_all_single", classes=ARGS, args=("--pattern", "all_to_all")),
    ),
    Row(id="C08", title="send and receive do not meet", make=_both_send),
    Row(id="C09", title="two groups in opposite order", make=_group_order, core=True),
    Row(
        id="C10", title="new_group on a subset", standard=False,
        make=scripted("--pattern", "subset", *FLIP, classes=FLOW),
    ),
    Row(
        id="C01J", title="a psum is skipped, JAX", make=_skip_psum,
        framework="jax", needs=("jax",),
    ),
    Row(id="C11J", title="one process compiles alone, JAX", make=_compile_alone, framework="jax", needs=("jax",)),
)  # fmt: skip

ROWS = (*PROCESS, *DESYNC)
