from tests.cases import cases
from tests.rules.variables.made import clear, settings, software, values

CODE = "VAR032"
CALL = "import torch.distributed as dist\n\ndist.init_process_group({})\n"
WITH = settings(("train.py", CALL.format("'nccl', device_id=device")))


@cases("torch", ["2.6.0", "2.7.0+cu128"])
def test_releases_that_hang(torch: str) -> None:
    found = values(CODE, WITH, software=software(torch=torch))
    assert (found["file"], found["line"], found["found"]) == ("train.py", 3, torch.partition("+")[0])


@cases("torch", ["2.5.1", "2.7.1", "2.8.0", "2.15.0"])
def test_other_releases(torch: str) -> None:
    assert clear(CODE, WITH, software=software(torch=torch))


def test_without_a_version_nothing_is_claimed() -> None:
    assert clear(CODE, WITH, software=software())


@cases("arguments", ["'nccl'", "'gloo', device_id=device", ""])
def test_calls_that_do_not_hang(arguments: str) -> None:
    assert clear(CODE, settings(("train.py", CALL.format(arguments))), software=software(torch="2.6.0"))
