"""What guides for distributed training export, five kinds of them: each folk and each old name is found."""

import re
from collections.abc import Iterable
from pathlib import Path

from allready.judging.engine import judge
from allready.judging.loading import load
from allready.model import Settings, SoftwareFacts
from allready.variables import table
from allready.variables.presets import NAMES
from tests.cases import cases
from tests.fleets import check, fleet
from tests.rules.variables.made import net, rdma, script, settings, software

TWO_MACHINES = (
    "export NCCL_DEBUG=INFO", "export NCCL_DEBUG_SUBSYS=ALL",
    "export NCCL_SOCKET_TIMEOUT=60000", "export NCCL_CONNECT_TIMEOUT=60000",
    "export NCCL_IB_TIMEOUT=23", "export NCCL_IB_RETRY_CNT=7",
    "export NCCL_IB_DISABLE=0", "export NCCL_NET_GDR_LEVEL=2", "export NCCL_IB_HCA=mlx5",
    "export NCCL_SOCKET_IFNAME=ib0", "export NCCL_IB_GID_INDEX=3",
    "export TORCH_DISTRIBUTED_DEBUG=DETAIL", "export NCCL_BLOCKING_WAIT=1",
    "export PYTORCH_CUDA_ALLOC_CONF=max_split_size_mb:128",
)  # fmt: skip
JAX_START = (
    "export MASTER_ADDR=10.10.1.16", "export MASTER_PORT=29500", "export RANK=0", "export WORLD_SIZE=4",
    "export LOCAL_RANK=0", "export NODE_RANK=0",
    "export JAX_DEBUG_NANS=True", "export JAX_DEBUG_INFS=True", "export JAX_LOG_COMPILES=True",
)  # fmt: skip
LARGE_TENSORS = (
    "export NCCL_TIMEOUT=1800  # half an hour", "export NCCL_SOCKET_IFNAME=eth0", "export NCCL_IB_DISABLE=0",
    "export NCCL_P2P_DISABLE=0", "export NCCL_ASYNC_ERROR_HANDLING=1", "export TORCH_NCCL_TRACE_BUFFER_SIZE=16384",
    "export NCCL_IB_HCA=mlx5_0", "export NCCL_IB_TIMEOUT=22", "export NCCL_BUFFSIZE=8388608",
)  # fmt: skip
FILTERS = (
    "export NCCL_SOCKET_IFNAME=eth", "export NCCL_SOCKET_IFNAME==eth0", "export NCCL_SOCKET_IFNAME=^docker",
    "export NCCL_SOCKET_IFNAME=^=docker0", "export NCCL_IB_HCA=mlx5", "export NCCL_IB_HCA==mlx5_0:1,mlx5_1:1",
    "export NCCL_IB_HCA=^=mlx5_1,mlx5_4", "NCCL_DEBUG=INFO python -m torch.distributed.run train.py",
    "export NCCL_DEBUG_FILE=/tmp/nccl-log.%h.%p.txt",
)  # fmt: skip
LAUNCHER = (
    "export NCCL_TIMEOUT=1800", "export NCCL_BLOCKING_WAIT=1", "export NCCL_ASYNC_ERROR_HANDLING=1",
    "export NCCL_IB_DISABLE=1", "export NCCL_P2P_DISABLE=1", "export CUDA_LAUNCH_BLOCKING=1",
    "export TORCH_DISTRIBUTED_DEBUG=DETAIL",
)  # fmt: skip


def found(made: Settings) -> set[tuple[str, str]]:
    """(code, variable) of everything that lint finds with a present torch."""
    machine = fleet(
        1,
        settings=made,
        net={0: net("eth0")},
        rdma={0: rdma("mlx5_0", "mlx5_1")},
        software={0: software(torch="2.13.0", nccl="2.28.9")},
    )
    findings, _ = judge(machine, [rule for rule in load().values() if rule.area == "variables"])
    return {(f.code, name) for f in findings for name in f.culprits.variables[:1]}


@cases(
    "lines, expected",
    [
        (
            TWO_MACHINES,
            {
                ("VAR001", "NCCL_SOCKET_TIMEOUT"), ("VAR001", "NCCL_CONNECT_TIMEOUT"), ("VAR004", "NCCL_BLOCKING_WAIT"),
                ("VAR004", "PYTORCH_CUDA_ALLOC_CONF"), ("VAR017", "NCCL_SOCKET_IFNAME"), ("VAR022", "NCCL_DEBUG"),
                ("VAR022", "TORCH_DISTRIBUTED_DEBUG"), ("VAR022", "NCCL_BLOCKING_WAIT"),
            },
        ),
        (JAX_START, {("VAR022", "JAX_DEBUG_NANS"), ("VAR022", "JAX_DEBUG_INFS"), ("VAR022", "JAX_LOG_COMPILES")}),
        (
            LARGE_TENSORS,
            {
                ("VAR001", "NCCL_TIMEOUT"), ("VAR004", "NCCL_ASYNC_ERROR_HANDLING"),
                ("VAR004", "TORCH_NCCL_TRACE_BUFFER_SIZE"),
            },
        ),
        (FILTERS, {("VAR019", "NCCL_SOCKET_IFNAME"), ("VAR022", "NCCL_DEBUG")}),
        (
            LAUNCHER,
            {
                ("VAR001", "NCCL_TIMEOUT"), ("VAR004", "NCCL_BLOCKING_WAIT"), ("VAR004", "NCCL_ASYNC_ERROR_HANDLING"),
                ("VAR021", "NCCL_IB_DISABLE"), ("VAR022", "CUDA_LAUNCH_BLOCKING"),
                ("VAR024", "NCCL_ASYNC_ERROR_HANDLING"),
            },
        ),
    ],
)  # fmt: skip
def test_every_folk_and_every_old_name_is_found(lines: Iterable[str], expected: set[tuple[str, str]]) -> None:
    assert expected <= found(script(*lines))


PAGE = (Path(__file__).resolve().parents[2] / "docs" / "env.md").read_text(encoding="utf-8")
TABLE = PAGE.partition("## What guides export")[2]
ROWS = re.findall(r"^\| ([A-Z0-9_]+(?:, [A-Z0-9_]+)*) \| (.+) \|$", TABLE, re.MULTILINE)


def test_the_page_has_every_variable_of_the_guides_with_its_finding() -> None:
    listed = {name: text for names, text in ROWS for name in names.split(", ")}
    blocks = (TWO_MACHINES, JAX_START, LARGE_TENSORS, FILTERS, LAUNCHER)
    exported = {re.split(r"[ =]", line.removeprefix("export "))[0] for block in blocks for line in block}
    assert exported - {"NODE_RANK"} <= listed.keys()
    for name, text in listed.items():
        row = table.load()[name]
        assert ("VAR001" in text) == row.is_folk, name
        assert ("VAR004" in text) == bool(row.deprecated), name
    assert set(re.findall(r"VAR\d{3}", PAGE)) <= load().keys()
    assert set(re.findall(r"`([a-z_-]+)`", "".join(t.partition("preset")[2] for _, t in ROWS))) <= set(NAMES)


def test_the_same_in_a_guide() -> None:
    text = "# Guide\n\n```bash\n" + "\n".join(LAUNCHER) + "\n```\n"
    names = {name for code, name in found(settings(("guide.md", text))) if code == "VAR001"}
    assert names == {"NCCL_TIMEOUT"}


def test_where_no_version_is_known_every_old_name_is_found_with_the_release_that_replaced_it() -> None:
    """A guide is read on any machine: what this one has installed is of no account."""
    text = "# Guide\n\n```bash\n" + "\n".join((*TWO_MACHINES, *LARGE_TENSORS, *LAUNCHER)) + "\n```\n"
    made = settings(("guide.md", text))
    hits = check("VAR004", fleet(1, settings=made, software={0: SoftwareFacts(versions={})})).hits
    replaced = {hit.values["name"]: (hit.values["owner"], hit.values["version"], hit.values["instead"]) for hit in hits}
    assert replaced == {
        "NCCL_BLOCKING_WAIT": ("torch", "2.2.0", "TORCH_NCCL_BLOCKING_WAIT"),
        "NCCL_ASYNC_ERROR_HANDLING": ("torch", "2.2.0", "TORCH_NCCL_ASYNC_ERROR_HANDLING"),
        "TORCH_NCCL_TRACE_BUFFER_SIZE": ("torch", "2.8.0", "TORCH_FR_BUFFER_SIZE"),
        "PYTORCH_CUDA_ALLOC_CONF": ("torch", "2.9.0", "PYTORCH_ALLOC_CONF"),
    }
    old = check("VAR004", fleet(1, settings=made, software={0: software(torch="2.4.1", nccl="2.20.5")})).hits
    assert {hit.values["name"] for hit in old} == {"NCCL_BLOCKING_WAIT", "NCCL_ASYNC_ERROR_HANDLING"}


def test_what_is_right_in_them_is_left_alone() -> None:
    accused = {name for _, name in found(script(*TWO_MACHINES, *LARGE_TENSORS))}
    assert not accused & {
        "NCCL_IB_TIMEOUT",
        "NCCL_IB_RETRY_CNT",
        "NCCL_NET_GDR_LEVEL",
        "NCCL_BUFFSIZE",
        "NCCL_P2P_DISABLE",
    }
