from allready.model import FactMissing
from tests.fleets import check, fleet
from tests.rules.env.test_import_fails import imports


def test_another_nccl_than_the_one_built_with() -> None:
    versions = {"torch": "2.13.0+cu130", "nccl-built": "2.28.9", "nccl-loaded": "2.18.3"}
    path = "/usr/lib/x86_64-linux-gnu/libnccl.so.2"
    [hit] = check("ENV014", fleet(2, imports={1: imports(versions=versions, libraries=(path,))})).hits
    assert (hit.culprits.nodes, hit.values["path"]) == ((1,), path)


def test_its_own_nccl_or_none_is_clear() -> None:
    same = {"nccl-built": "2.28.9", "nccl-loaded": "2.28.9"}
    for versions in (same, {"nccl-built": "2.28.9"}, {}):
        assert check("ENV014", fleet(1, imports={0: imports(versions=versions)})).state == "clear", versions


def test_says_which_node_it_could_not_check() -> None:
    assert check("ENV014", fleet(1, imports={0: FactMissing("no python")})).unchecked == {0: "no python"}


def test_a_torch_without_nccl_is_clear() -> None:
    cpu = imports(versions={"torch": "2.13.0+cpu", "nccl-loaded": "2.18.3"})
    assert check("ENV014", fleet(1, imports={0: cpu})).state == "clear"
