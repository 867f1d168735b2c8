"""Page of the schedulers, from their tables: `python docs/schedulers_pages.py` writes it, `--check` compares.

English to `schedulers.md`, Chinese to `zh/schedulers.md` below the folder.  What a table cannot say (how to type it)
stands here, by scheduler.
"""

import argparse
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from allready.launch.schedulers import SCHEDULERS, Scheduler, Variable

FILES = {"en": "schedulers.md", "zh": "zh/schedulers.md"}

_FLAGS = {
    "num_nodes": "--nnodes",
    "node_rank": "--node-rank",
    "nproc_per_node": "--nproc-per-node",
    "master_addr": "--master-addr",
    "master_port": "--master-port",
    "job_id": "--job-id",
}

COMMANDS = {
    "torchrun": "torchrun --nnodes 2 --node-rank 0 --nproc-per-node 8 --master-addr gpu01 --no-python allready check",
    "openmpi": "mpirun -np 16 --map-by ppr:8:node -x MASTER_ADDR=gpu01 allready check",
    "kubernetes-pytorchjob": "allready check",
    "kubernetes-pytorchjob-v1": "allready check --nproc-per-node 8",
    "kubernetes-indexed-job": "allready check --nnodes 4 --nproc-per-node 8 --master-addr JOB-0.SERVICE",
    "mpich": "mpiexec -n 16 -ppn 8 -genv MASTER_ADDR gpu01 allready check",
    "slurm": "srun --nodes 2 --ntasks-per-node 8 allready check\n"
    "srun --nodes 2 --ntasks-per-node 1 allready check --nproc-per-node 8",
    "environment": "MASTER_ADDR=gpu01 NNODES=2 NODE_RANK=0 allready check --nproc-per-node 8",
}

_INTRO_EN = """\
`allready check` finds out from the environment who this node is. Flags win over variables; of several variables the
first that is set wins. The schedulers are looked for in the order of this page, and the first that fits is taken: what
started this process comes before the allocation that it runs in. The report's `launch` facts say where each value
came from.

Where only ranks are known (MPI, plain variables), the number of nodes and the node rank follow from rank, world size
and ranks per node, if every node has the same number of ranks and they are numbered node by node; otherwise give
`--nnodes` and `--node-rank`. Where processes are started per rank, local rank 0 acts for its node, and the others end
at once with exit code 0.

The tables are tested with the variables that these schedulers set, not on a cluster of every kind. This page is
written by `python docs/schedulers_pages.py` from `src/allready/launch/schedulers.py`."""

_INTRO_ZH = """\
`allready check` 从环境变量得知本节点的身份。命令行参数优先于变量；同一项有多个变量时，取第一个已设置的。
按本页的顺序逐一识别调度系统，取第一个符合的：直接启动本进程的，优先于它所在的资源分配。
报告中 `launch` 一项写明每个值来自哪里。

只知道 rank 时（MPI、普通变量），节点数和节点编号由 rank、进程总数和单节点进程数推算，
前提是各节点进程数相同，且 rank 按节点依次编号；否则请给出 `--nnodes` 和 `--node-rank`。
按 rank 启动进程时，由本地 rank 0 代表所在节点，其余进程立即以退出码 0 结束。

这些表用各调度系统所设的变量测试过，但没有在每一种集群上实测。本页由
`python docs/schedulers_pages.py` 根据 `src/allready/launch/schedulers.py` 生成。"""

_WORDS = {
    "en": {
        "title": "Schedulers and variables",
        "other": "中文版：[调度系统与变量](zh/schedulers.md)",
        "intro": _INTRO_EN,
        "found": "Found by", "absent": ", and without", "flag": "in place of", "variables": "variables, best first",
        "per_rank": "Processes are started per rank.",
        "per_node": "Processes are started per node.",
        "shift": "The port is MASTER_PORT + {shift}, because {name} itself holds MASTER_PORT.",
        "and": ", ", "colon": ": ", "stop": ".", "blank": " ",
        "local_rank": "local rank", "rank": "rank", "world_size": "world size",
        "nodelist_first": "the first host of the list", "tasks_here": "the entry of this node",
        "port_of_id": "20000 + its last four digits",
    },
    "zh": {
        "title": "调度系统与变量",
        "other": "English: [Schedulers and variables](../schedulers.md)",
        "intro": _INTRO_ZH,
        "found": "识别依据", "absent": "，且没有", "flag": "对应参数", "variables": "变量，优先者在前",
        "per_rank": "按 rank 启动进程。",
        "per_node": "按节点启动进程。",
        "shift": "端口为 MASTER_PORT + {shift}，因为 {name} 自己占用 MASTER_PORT。",
        "and": "、", "colon": "：", "stop": "。", "blank": "",
        "local_rank": "本地 rank", "rank": "rank", "world_size": "进程总数",
        "nodelist_first": "列表中的第一个主机", "tasks_here": "本节点对应的一项",
        "port_of_id": "20000 加末四位数字",
    },
}  # fmt: skip


def page(language: str) -> str:
    """The whole page in "en" or "zh"."""
    words = _WORDS[language]
    lines = [f"# {words['title']}", "", words["other"], "", words["intro"]]
    for scheduler in SCHEDULERS:
        lines += ["", f"## {scheduler.name}", "", *_section(scheduler, words)]
    return "\n".join(lines) + "\n"


def _section(scheduler: Scheduler, words: dict[str, str]) -> Iterator[str]:
    found = f"{words['found']}{words['colon']}{_names(scheduler.detect, words)}"
    if scheduler.absent:
        found += f"{words['absent']} {_names(scheduler.absent, words)}"
    yield f"{found}{words['stop']}{words['blank']}{words['per_rank' if scheduler.per_rank else 'per_node']}"
    if scheduler.port_shift:
        yield words["shift"].format(shift=scheduler.port_shift, name=scheduler.name)
    yield from ("", "```console", COMMANDS[scheduler.name], "```", "")
    yield f"| {words['flag']} | {words['variables']} |"
    yield "| --- | --- |"
    for name, variables in scheduler.fields.items():
        shown = f"`{_FLAGS[name]}`" if name in _FLAGS else words[name]
        yield f"| {shown} | {', '.join(_variable(v, words) for v in variables)} |"


def _names(names: Sequence[str], words: dict[str, str]) -> str:
    return words["and"].join(f"`{name}`" for name in names)


def _variable(variable: Variable, words: dict[str, str]) -> str:
    how = words.get(variable.kind)
    return f"`{variable.name}`" + (f" ({how})" if how else "")


def main(argv: Sequence[str] | None = None) -> int:
    """Write both pages, or with `--check` only compare: 0 when nothing differs, else 1 and a line for each file."""
    parser = argparse.ArgumentParser(prog="python docs/schedulers_pages.py", description="pages of the schedulers")
    parser.add_argument("folder", nargs="?", type=Path, default=Path(__file__).parent, help="where to, instead of docs")
    parser.add_argument("--check", action="store_true", help="change nothing; exit 1 when a page is stale")
    arguments = parser.parse_args(argv)
    stale = 0
    for language, name in FILES.items():
        path, wanted = arguments.folder / name, page(language).encode()
        if path.is_file() and path.read_bytes() == wanted:
            continue
        stale += 1
        sys.stdout.write(f"stale: {path}\n")
        if not arguments.check:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(wanted)
    return 1 if arguments.check and stale else 0


if __name__ == "__main__":
    sys.exit(main())
