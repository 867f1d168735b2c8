"""What the whole suite shares: which tests are quick, and the count of those that this machine could not run.

A test needs no list to be left out where it cannot run or takes long: its markers decide, and the fixtures that start
jobs, nodes or laboratories set theirs.  `pytest --fast` (`make test-fast`) runs the rest.
"""

import contextlib
import functools
import gc
import importlib
import importlib.util
import os
import re
import signal
import sys
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import is_hypothesis_test, settings
from xdist.remote import Producer
from xdist.scheduler import LoadFileScheduling

from tests import cases

settings.register_profile("suite", deadline=None)  # 200 ms of a busy machine are no mistake of ours
settings.load_profile("suite")

ROOT = Path(__file__).resolve().parents[1]
NO_LAB = "no lab on this machine"
FRAMEWORKS = ("torch", "jax")
NOT_FAST = {"torch", "jax", "lab", "gpu", "slow", "jobs", "thorough"}
ALL_MARKED = re.compile(rf"^pytestmark = .*\bmark\.(?:{'|'.join(NOT_FAST)})\b", re.MULTILINE)
NEVER_FAST = {"recorded", "gpu"}
"""Folders of tests."""
JOBS = {"job", "job3", "make_node", "make_lab", "ranks", "sshd", "heard", "slurm"}
"""Fixtures that start processes of a job."""


STARTS_NOTHING = {"rules", "signatures", "text", "judging", "report", "variables", "model"}
"""Folders whose tests start no processes."""
FEW = 3
"""Files."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--fast", action="store_true", help="only tests that need no torch, JAX, root or seconds of time")
    parser.addoption(
        "--case", default="", metavar="TEXT", help="of tables of cases run only those with TEXT in the name"
    )


def pytest_configure(config: pytest.Config) -> None:
    """A shell ignores Ctrl-C for what it runs in the background, and every command of a test would inherit that."""
    if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    cases.only = str(config.getoption("--case"))
    if config.getoption("--fast"):  # as on a machine without them, so that a test that needs one fails here as well
        sys.modules.update(dict.fromkeys(FRAMEWORKS))  # type: ignore[arg-type]


def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    """One more than there are CPUs, since most tests wait for real jobs; the fast ones do not.

    A few files whose tests start nothing are done before other processes have collected theirs.
    """
    files = [(config.invocation_params.dir / arg.partition("::")[0]).resolve() for arg in config.args]
    if 0 < len(files) <= FEW and all(_starts_nothing(file) for file in files):
        return 0
    return len(os.sched_getaffinity(0)) + (0 if config.getoption("--fast") else 1)


def _starts_nothing(file: Path) -> bool:
    tests = ROOT / "tests"
    return file.is_file() and file.is_relative_to(tests) and file.relative_to(tests).parts[0] in STARTS_NOTHING


class ByFile(LoadFileScheduling):  # type: ignore[misc]
    """The tests of a file in one process, which makes what they share once; so do all that read the parsed sources."""

    def _split_scope(self, nodeid: str) -> str:
        return _share(str(super()._split_scope(nodeid)))


@functools.cache
def _share(file: str) -> str:
    return "sources" if "from tests.text." in (ROOT / file).read_text(encoding="utf-8") else file


def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> LoadFileScheduling | None:
    """For the fast tests, whose time is that of the processor; tests that wait for jobs are dealt out one by one."""
    return ByFile(config, log) if config.getoption("--fast") else None


@pytest.hookimpl(tryfirst=True)
def pytest_collection(session: pytest.Session) -> None:
    """The processes share the work of compiling: in a fresh checkout each would compile every test.

    Each imports a part of its own first and then those of the others, which these have left compiled meanwhile.
    """
    gc.disable()  # what is collected stays: see pytest_collection_finish
    worker = getattr(session.config, "workerinput", None)
    if worker is None or sys.dont_write_bytecode:
        return
    number, count = int(worker["workerid"].removeprefix("gw")), int(worker["workercount"])
    files = [file for arg in session.config.args for file in Path(arg).rglob("test_*.py")]
    files = [file for file in files if not pytest_ignore_collect(file, session.config)]
    files.sort(key=lambda file: (-file.stat().st_size, file))  # so that the parts take equally long
    for part in range(number, number + count):
        for file in files[part % count :: count]:
            with contextlib.suppress(Exception, pytest.skip.Exception):  # it comes again where it is collected
                importlib.import_module(".".join(file.resolve().relative_to(ROOT).with_suffix("").parts))


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """With --fast neither folders nor files of which no test is quick, which are not even compiled then."""
    if not config.getoption("--fast"):
        return None
    is_test = collection_path.suffix == ".py" and collection_path.name.startswith("test_")
    all_marked = is_test and ALL_MARKED.search(collection_path.read_text(encoding="utf-8")) is not None
    return True if all_marked or collection_path.name in NEVER_FAST else None


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    for item in items:
        if JOBS & set(getattr(item, "fixturenames", ())):
            item.add_marker("jobs")
        many_random = isinstance(item, pytest.Function) and is_hypothesis_test(item.obj)
        if "recorded" in item.path.parts or many_random:
            item.add_marker("thorough")
    if config.getoption("--fast"):
        quick: list[pytest.Item] = []
        left_out: list[pytest.Item] = []
        for item in items:
            (left_out if NOT_FAST & {mark.name for mark in item.iter_markers()} else quick).append(item)
        config.hook.pytest_deselected(items=left_out)
        items[:] = quick


def pytest_runtest_setup(item: pytest.Item) -> None:
    for framework in FRAMEWORKS:
        if item.get_closest_marker(framework) is not None and importlib.util.find_spec(framework) is None:
            pytest.skip(f"{framework} is not installed")


def pytest_collection_finish() -> None:
    """The tests stay to the end: a search for garbage need not go through them again and again."""
    gc.enable()
    gc.collect()
    gc.freeze()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    # From the reports and not from a counter: with xdist the tests run in other processes.
    skipped = [str(r.longrepr) for r in terminalreporter.stats.get("skipped", []) if NO_LAB in str(r.longrepr)]
    if skipped:
        reasons = Counter(text.partition(NO_LAB)[2].strip(": ')") for text in skipped)
        reason = reasons.most_common(1)[0][0]
        terminalreporter.section("lab", yellow=True, bold=True)
        terminalreporter.write_line(f"lab tests skipped: {len(skipped)} ({reason})", yellow=True, bold=True)
