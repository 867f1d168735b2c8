"""What the whole suite shares: the count of lab tests that this machine could not run, said loudly at the end."""

import gc
import signal
from collections import Counter

import pytest

from tests import cases

NO_LAB = "no lab on this machine"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--case", default="", metavar="TEXT", help="of tables of cases run only those with TEXT in the name"
    )


def pytest_configure(config: pytest.Config) -> None:
    """A shell ignores Ctrl-C for what it runs in the background, and every command of a test would inherit that."""
    if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    cases.only = str(config.getoption("--case"))


def pytest_collection_finish() -> None:
    """The tests stay to the end: a search for garbage need not go through them again and again."""
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
