from tests.rules.variables.made import clear, here, software, values

CODE = "VAR006"
LATER = {"TORCH_FR_DUMP_ON_TIMEOUT": "1"}


def test_an_older_version_does_not_read_it() -> None:
    found = values(CODE, here(**LATER), software=software(torch="2.13.0+cu130"))
    assert (found["owner"], found["found"], found["version"]) == ("torch", "2.13.0", "2.15.0")


def test_the_version_that_brought_it_does() -> None:
    assert clear(CODE, here(**LATER), software=software(torch="2.15.0"))


def test_without_a_version_nothing_is_claimed() -> None:
    assert clear(CODE, here(**LATER), software=software())


def test_nccl_has_a_version_of_its_own() -> None:
    made = here(NCCL_NETDEVS_POLICY="ALL")
    assert clear(CODE, made, software=software(nccl="2.28.9"))
    assert values(CODE, made, software=software(nccl="2.21.5"))["version"] == "2.28.3"
