"""docs/checklists.md names only findings, commands and options that exist, the same in both languages."""

import re
from pathlib import Path

from allready.cli.completion import all_commands
from allready.judging.loading import AREAS, load

DOCS = Path(__file__).parents[1] / "docs"
PAGES = (DOCS / "checklists.md", DOCS / "zh" / "checklists.md")
CODE = re.compile(r"\b[A-Z]{3}\d{3}\b")


def rows(page: Path) -> list[str]:
    """What does each item."""
    lines = [line for line in page.read_text(encoding="utf-8").splitlines() if line.startswith("| ")]
    return [line.split("|")[2].strip() for line in lines if "---" not in line]


def test_every_code_and_area_is_one_of_ours() -> None:
    wrong = [f"{page.name}: {code}" for page in PAGES for code in CODE.findall(page.read_text()) if code not in load()]
    areas = re.findall(r"\blog_[a-z]+\b|(?<=area )[a-z_]+", PAGES[0].read_text())
    assert not wrong
    assert areas
    assert set(areas) <= set(AREAS) | {rule.area for rule in load().values()}


def test_every_command_and_option_is_one_of_ours() -> None:
    commands = {c.words: {s for option in c.options for s in option.spellings} for c in all_commands()}
    wrong = []
    shown = [text for row in rows(PAGES[0]) for text in re.findall(r"`allready ([^`]+)`", row)]
    assert len(shown) > 30
    for text in shown:
        words = text.split(" -- ")[0].split()
        name = tuple(words[:2]) if tuple(words[:2]) in commands else (words[0],)
        options = {word for word in words if word.startswith("--")}
        if name not in commands or not options <= commands[name]:
            wrong.append(text)
    assert not wrong


def test_both_languages_name_the_same() -> None:
    english, chinese = (rows(page) for page in PAGES)
    assert len(english) == len(chinese)
    found = [(CODE.findall(row), re.findall(r"`[^`]+`", row)) for row in english]
    assert found == [(CODE.findall(row), re.findall(r"`[^`]+`", row)) for row in chinese]


NOTHING_TO_CHECK = ("`allready bundle`",)
"""How a row begins that asks for files only."""


def test_every_row_that_asks_for_a_check_a_variable_or_an_item_has_a_code_of_ours() -> None:
    known = load()
    for page in PAGES:
        bare = [row for row in rows(page) if not any(code in known for code in CODE.findall(row))]
        headings = {"what does it", "由什么来做"}
        assert [row for row in bare if row not in headings and not row.startswith(NOTHING_TO_CHECK)] == [], page.name


def test_every_variable_that_a_row_names_is_one_that_lint_and_explain_know() -> None:
    from allready.variables.table import load as variables

    items = [line.split("|")[1] for line in PAGES[0].read_text().splitlines() if line.startswith("| ")]
    names = {
        name for item in items for name in re.findall(r"\b(?:NCCL|TORCH|JAX|CUDA|PYTORCH|OMP|MASTER)_[A-Z_]+\b", item)
    }
    assert len(names) > 15
    assert {name for name in names if name not in variables()} == set()


ASKED = (
    "ping", "telnet", "nc -zv", "29500", "netstat", "ufw", "MTU", "ibstat", "ibportstate", "NTP", "torch_extensions",
    "Gloo", "nvidia-smi", "device_count", "pstree", "pdb", "tee", "OMP_NUM_THREADS", "ip route get", "docker0",
    "shm-size", "memlock", "P2P", "NUMA", "Init COMPLETE", "80 %", "free -h", "num_workers", "pin_memory",
    "RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "SeqNum", "W&B", "NCCL_DEBUG_FILE", "NCCL_DEBUG_SUBSYS",
    "NCCL_SOCKET_IFNAME", "NCCL_IB_HCA", "NCCL_TIMEOUT", "NCCL_SOCKET_TIMEOUT", "NCCL_CONNECT_TIMEOUT",
    "NCCL_IB_TIMEOUT", "NCCL_IB_RETRY_CNT", "NCCL_BUFFSIZE", "NCCL_NET_GDR_LEVEL", "NCCL_BLOCKING_WAIT",
    "NCCL_ASYNC_ERROR_HANDLING", "TORCH_NCCL_TRACE_BUFFER_SIZE", "PYTORCH_CUDA_ALLOC_CONF", "CUDA_LAUNCH_BLOCKING",
    "DeepSpeed", "ifconfig", "TORCH_DISTRIBUTED_DEBUG", "JAX_DEBUG_NANS", "JAX_DEBUG_INFS", "JAX_LOG_COMPILES",
)  # fmt: skip
"""Tools, variables and words by which guides ask for something."""


def test_what_guides_ask_for_is_on_both_pages_and_every_row_says_what_does_it() -> None:
    for page in PAGES:
        items = [line.split("|")[1] for line in page.read_text(encoding="utf-8").splitlines() if line.startswith("| ")]
        assert [word for word in ASKED if not any(word in item for item in items)] == [], page.name
        silent = [row for row in rows(page)[1:] if not re.search(r"`allready|[A-Z]{3}\d{3}|\]\(", row)]
        assert [row for row in silent if row not in {"what does it", "由什么来做"}] == [], page.name
