import re

from allready.judging.loading import load
from allready.model import FactMissing, Severity
from allready.variables import table
from allready.variables.versions import is_read
from tests.cases import cases
from tests.fleets import check, fleet
from tests.rules.env.made import on_all


def test_says_that_nothing_reads_it_and_what_does() -> None:
    [hit] = check("ENV007", fleet(4, env=on_all(4, NCCL_TIMEOUT="3600"))).hits
    assert (hit.culprits.nodes, hit.culprits.variables) == ((), ("NCCL_TIMEOUT",))
    assert hit.values["split"] == "3600 [0-3]"
    assert "init_process_group(timeout=" in str(hit.values["instead"])


def test_is_only_information() -> None:
    assert load()["ENV007"].severity is Severity.INFO


@cases("name", ["NCCL_DEBUG", "NCCL_ASYNC_ERROR_HANDLING", "NCCL_A_NAME_OF_TOMORROW", "MY_TIMEOUT"])
def test_accuses_no_name_that_may_be_read(name: str) -> None:
    assert check("ENV007", fleet(2, env=on_all(2, **{name: "1"}))).state == "clear"


def test_never_advises_another_name_that_nothing_reads() -> None:
    unread = {name: row for name, row in table.load().items() if not is_read(row)}
    assert len(unread) > 30
    assert not {word for row in unread.values() for word in re.findall(r"[A-Z0-9_]{5,}", row.use)} & set(unread)


def test_is_clear_when_all_are_real() -> None:
    assert check("ENV007", fleet(4)).state == "clear"


def test_says_which_node_it_could_not_check() -> None:
    assert check("ENV007", fleet(2, env={1: FactMissing("not sent")})).unchecked == {1: "not sent"}
