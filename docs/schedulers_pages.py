"""Page of the schedulers, from their tables: `python docs/schedulers_pages.py` writes it, `--check` compares.

English to `schedulers.md`, Chinese to `zh/schedulers.md` below the folder.  What a table cannot say (how it is written)
stands here, by scheduler.
"""

import argparse
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from allready.launch.schedulers import SCHEDULERS, Scheduler, SchedulerVariable

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
    "openmpi": "mpirun -np 16 --map-by ppr:8:node -x MASTER_ADDR=gpu01 allready check\n"
    "mpirun -np 2 --map-by ppr:1:node --bind-to none -x MASTER_ADDR=gpu01 allready check --nproc-per-node 8",
    "pals": "mpiexec -n 16 --ppn 8 --env MASTER_ADDR=$(head -1 $PBS_NODEFILE) allready check",
    "jsrun": "jsrun -n 16 -r 8 --env MASTER_ADDR=gpu01 allready check",
    "kubernetes-pytorchjob": "allready check",
    "kubernetes-leaderworkerset": "allready check --nproc-per-node 8",
    "skypilot": "allready check",
    "aws-batch": "allready check --nproc-per-node 8",
    "kubernetes-pytorchjob-v1": "allready check --nproc-per-node 8",
    "kubernetes-indexed-job": "allready check --nnodes 4 --nproc-per-node 8 --master-addr JOB-0.SERVICE",
    "mpich": "mpiexec -n 16 -ppn 8 -genv MASTER_ADDR gpu01 allready check",
    "slurm-prolog": "allready check --stages roll,facts --wait 20 --nproc-per-node 1",
    "slurm": "srun --nodes 2 --ntasks-per-node 8 allready check\n"
    "srun --nodes 2 --ntasks-per-node 1 allready check --nproc-per-node 8",
    "pbs": "pbsdsh -- $PBS_O_WORKDIR/.venv/bin/allready check --nproc-per-node 8",
    "lsf": "blaunch allready check --nproc-per-node 8",
    "kubernetes-pytorchjob-elastic": "allready check --nnodes 2 --node-rank 0",
    "environment": "MASTER_ADDR=gpu01 NNODES=2 NODE_RANK=0 allready check --nproc-per-node 8",
}

_NOTES: dict[str, dict[str, str]] = {
    "kubernetes-pytorchjob-elastic": {
        "en": "`allready run` meets the other pods at PET_RDZV_ENDPOINT and takes MIN:MAX. A check needs one number of "
        "nodes and this one's rank: a range ends with exit code 2.",
        "zh": "`allready run` 在 PET_RDZV_ENDPOINT 与其他 Pod 会合，接受 MIN:MAX。"
        "检查需要确定的节点数和本节点的编号：给出范围时以退出码 2 结束。",
    },
    "kubernetes-leaderworkerset": {
        "en": "One group of a LeaderWorkerSet is one job; the leader is node 0.",
        "zh": "LeaderWorkerSet 的一个组就是一个作业；leader 是节点 0。",
    },
    "aws-batch": {
        "en": "The main node becomes node 0, whatever its index; those before it move up. A job of one node has none "
        "of these variables.",
        "zh": "主节点总是节点 0，与其索引无关；排在它前面的节点依次后移。单节点作业没有这些变量。",
    },
    "slurm": {
        "en": "In a batch script or a shell of `salloc`, of several nodes and without `srun`, the command runs on one "
        "node only: it ends with exit code 2 and names the `srun` to put before it. `--nnodes 1` is this node alone. "
        "Steps of a job that run at once have ids and ports of their own (job 4711, 4711.1, ...), unless `--nnodes` is "
        "given. A step over all parts of a heterogeneous job (`srun --het-group=0-1`) is one job of all their nodes.",
        "zh": "在多节点作业的批处理脚本或 `salloc` 的 shell 中，没有 `srun` 时命令只在一个节点上执行："
        "此时以退出码 2 结束，并给出应加在前面的 `srun`。"
        "`--nnodes 1` 表示只用本节点。同一作业中同时运行的各个 step 有各自的标识和端口（作业 4711、4711.1……），"
        "给出 `--nnodes` 时除外。"
        "覆盖异构作业所有部分的 step（`srun --het-group=0-1`）是一个包含其全部节点的作业。",
    },
    "slurm-prolog": {
        "en": "For `Prolog=` with `PrologFlags=Alloc`, so that it runs on all nodes of a job at once: see "
        "[examples/slurm](../examples/slurm/prolog.sh). A prolog that fails drains its node.",
        "zh": "用于 `Prolog=`，并设 `PrologFlags=Alloc`，使它同时在作业的所有节点上运行：见 "
        "[examples/slurm](../../examples/slurm/prolog.sh)。prolog 失败会使节点进入 drain 状态。",
    },
    "pbs": {
        "en": "Different hosts of the file are the nodes, in its order. A job script runs on the first of them: start "
        "the command on all by `pbsdsh`, by MPI, or from the script by "
        '`allready run --hosts "$(uniq $PBS_NODEFILE | paste -sd,)"`.',
        "zh": "该文件中不同的主机就是各节点，顺序不变。作业脚本只在第一个节点上执行：请用 `pbsdsh`、"
        "MPI 在所有节点上启动，或在脚本中用 "
        '`allready run --hosts "$(uniq $PBS_NODEFILE | paste -sd,)"`。',
    },
    "lsf": {
        "en": "Different hosts of the list are the nodes, in its order. With one slot per host (`-R span[ptile=1]`) "
        "`blaunch` starts the command once on each.",
        "zh": "列表中不同的主机就是各节点，顺序不变。每台主机一个 slot 时（`-R span[ptile=1]`），"
        "`blaunch` 在每台上启动一次。",
    },
}

_INTRO_EN = """\
`allready check` finds out from the environment who this node is. Flags win over variables; of several variables the
first that is set wins. The schedulers are looked for in the order of this page, and the first that fits is taken: what
started this process comes before the allocation that it runs in. The report's `launch` facts say where each value
came from.

Where only ranks are known (MPI, plain variables), the number of nodes and the node rank follow from rank, world size
and ranks per node, if every node has the same number of ranks and they are numbered node by node; otherwise give
`--nnodes` and `--node-rank`. Where processes are started per rank, local rank 0 acts for its node, and the others end
at once with exit code 0. Where the launcher binds each of these processes to its own CPUs or GPUs, local rank 0 takes
over the bindings of all: each rank gets the CPUs of its process, and the GPUs of all are visible to every rank.

A launcher that is not on this page is never taken for one node: where no number of nodes is known and a variable
speaks for several (`*_NUM_NODES`, `*_NNODES`, `*_NODE_COUNT`, `*_WORKER_NUM`, `WORLD_SIZE` above 1, `*_NODE_RANK`
or `PMIX_RANK` above 0, the number of a process beside how many there are, as in `X_RANK` and `X_NUM_PROCS`, a list or
file of several hosts, `TF_CONFIG`), or the master's address is another machine's, the command ends with exit
code 2, names the variable and asks for `--nnodes`, `--node-rank` and `--master-addr`, or `--nnodes 1`.

Some names have another meaning as well: `RANK` or `PE` alone, `RANK` beside `SIZE`, `PROC_ID` beside `NPROCS`,
`SVD_RANK` beside `SVD_SIZE`, a number that is equal to the count. They are asked about where another variable is a
launcher's too (`LOCAL_RANK`, `WORLD_SIZE`, `MASTER_ADDR`, `PMIX_NAMESPACE`, or `X_LOCAL_RANK`, a host or a port under
the same prefix); else the command takes this node alone and prints a line that names the variable and the flags.

Examples to copy, batch scripts and manifests, are in [examples](../examples/README.md).

The tables are tested with the variables that these schedulers set, not on a cluster of every kind. This page is
written by `python docs/schedulers_pages.py` from `src/allready/launch/schedulers.py`."""

_INTRO_ZH = """\
`allready check` 从环境变量得知本节点的身份。命令行参数优先于变量；同一项有多个变量时，取第一个已设置的。
按本页的顺序逐一识别调度系统，取第一个符合的：直接启动本进程的，优先于它所在的资源分配。
报告中 `launch` 一项写明每个值来自哪里。

只知道 rank 时（MPI、普通变量），节点数和节点编号由 rank、进程总数和单节点进程数推算，
前提是各节点进程数相同，且 rank 按节点依次编号；否则请给出 `--nnodes` 和 `--node-rank`。
按 rank 启动进程时，由本地 rank 0 代表所在节点，其余进程立即以退出码 0 结束。
若启动器把每个进程绑定到各自的 CPU 或 GPU，本地 rank 0 会接管所有进程的绑定：每个 rank 使用其进程的 CPU，
所有 GPU 对每个 rank 可见。

不在本页上的启动器绝不会被当作单节点：节点数未知，而某个变量表明有多个节点时
（`*_NUM_NODES`、`*_NNODES`、`*_NODE_COUNT`、`*_WORKER_NUM`、大于 1 的 `WORLD_SIZE`、
大于 0 的 `*_NODE_RANK` 或 `PMIX_RANK`、
同一前缀的进程编号与进程总数（如 `X_RANK` 与 `X_NUM_PROCS`）、
含多台主机的列表或文件、`TF_CONFIG`），或者 master 的地址属于另一台机器时，
命令以退出码 2 结束，写明该变量，并要求给出 `--nnodes`、`--node-rank` 和 `--master-addr`，或 `--nnodes 1`。

有些名字另有含义：单独的 `RANK` 或 `PE`、`RANK` 与 `SIZE`、`PROC_ID` 与 `NPROCS`、
`SVD_RANK` 与 `SVD_SIZE`、等于总数的编号。
如果还有其他变量也像是启动器所设（`LOCAL_RANK`、`WORLD_SIZE`、`MASTER_ADDR`、`PMIX_NAMESPACE`，
或同一前缀的 `X_LOCAL_RANK`、主机或端口），同样要求说明；否则只按本节点处理，并打印一行，写明该变量和应加的参数。

可直接复制的批处理脚本和清单见 [examples](../../examples/README.md)。

这些表用各调度系统所设的变量测试过，但没有在每一种集群上实测。本页由
`python docs/schedulers_pages.py` 根据 `src/allready/launch/schedulers.py` 生成。"""

_WORDS = {
    "en": {
        "language": "en",
        "title": "Schedulers and variables",
        "other": "中文版：[调度系统与变量](zh/schedulers.md)",
        "intro": _INTRO_EN,
        "found": "Found by", "absent": ", and without", "flag": "in place of", "variables": "variables, best first",
        "hosts": "nodes, their number and node 0", "main": "which node is node 0",
        "number": "unless 0", "before_hash": "up to #", "first_word": "the first of the list",
        "endpoint_host": "its host", "endpoint_port": "its port", "file": "a file, one host per line",
        "pairs": "host slots host slots", "words": "host host", "nodelist": "a Slurm node list",
        "per_rank": "Processes are started per rank.",
        "per_node": "Processes are started per node.",
        "shift": "The port is MASTER_PORT + {shift}, because {name} itself holds MASTER_PORT.",
        "and": ", ", "colon": ": ", "stop": ".", "blank": " ",
        "local_rank": "local rank", "rank": "rank", "world_size": "world size",
        "nodelist_first": "the first host of the list", "tasks_here": "the entry of this node",
        "port_of_id": "20000 + its last four digits",
    },
    "zh": {
        "language": "zh",
        "title": "调度系统与变量",
        "other": "English: [Schedulers and variables](../schedulers.md)",
        "intro": _INTRO_ZH,
        "found": "识别依据", "absent": "，且没有", "flag": "对应参数", "variables": "变量，优先者在前",
        "hosts": "各节点、节点数和节点 0", "main": "哪个节点是节点 0",
        "number": "不为 0 时", "before_hash": "# 之前的部分", "first_word": "列表中的第一个",
        "endpoint_host": "其中的主机", "endpoint_port": "其中的端口", "file": "文件，每行一台主机",
        "pairs": "主机 slot 数 主机 slot 数", "words": "主机 主机", "nodelist": "Slurm 节点列表",
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
    if scheduler.name in _NOTES:
        yield from ("", _NOTES[scheduler.name][words["language"]])
    yield from ("", "```console", COMMANDS[scheduler.name], "```", "")
    yield f"| {words['flag']} | {words['variables']} |"
    yield "| --- | --- |"
    for name, variables in scheduler.fields.items():
        shown = f"`{_FLAGS[name]}`" if name in _FLAGS else words[name]
        yield f"| {shown} | {', '.join(_variable(v, words) for v in variables)} |"
    if scheduler.hosts:
        yield f"| {words['hosts']} | {', '.join(_variable(v, words) for v in scheduler.hosts)} |"
    if scheduler.main_node:
        yield f"| {words['main']} | `{scheduler.main_node}` |"


def _names(names: Sequence[str], words: dict[str, str]) -> str:
    return words["and"].join(f"`{name}`" for name in names)


def _variable(variable: SchedulerVariable, words: dict[str, str]) -> str:
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
