from msgspec.structs import replace

from allready.facts.software import spawns
from allready.model import Fleet, LaunchFacts, ScriptFacts
from tests.cases import cases
from tests.fleets import check, fleet

SPAWN = "import torch.multiprocessing as mp\n\nif __name__ == '__main__':\n    mp.spawn(main, args=(2,), nprocs=2)\n"


def of(source: str, nproc: int = 2) -> Fleet:
    facts = ScriptFacts(path="train.py", sha256="0" * 64, size_bytes=len(source), spawns=spawns(source))
    launch = {n: replace(fleet(2).per_node(LaunchFacts)[0][n], nproc_per_node=nproc) for n in (0, 1)}
    return fleet(2, script={0: facts, 1: facts}, launch=launch)


def test_a_script_that_starts_its_own_ranks_is_named_with_the_line() -> None:
    [hit] = check("ENV011", of(SPAWN)).hits
    assert hit.values == {"path": "train.py", "call": "4: mp.spawn", "nproc": 2}
    assert not hit.culprits


@cases(
    ("source", "found"),
    [
        ("import torch\ntorch.multiprocessing.spawn(f)", ("2: torch.multiprocessing.spawn",)),
        ("from torch.multiprocessing import spawn\nspawn(f, nprocs=8)", ("2: spawn",)),
        ("xmp.spawn(f)", ("1: xmp.spawn",)),
        ("notebook_launcher(f, num_processes=2)", ("1: notebook_launcher",)),
        ("rng.spawn(4)", ()),  # numpy's generators
        ("pool.spawn_workers()", ()),
        ("multiprocessing.set_start_method('spawn')", ()),
        ("x = 'mp.spawn(f)'", ()),
        (SPAWN + "rank = int(os.environ['LOCAL_RANK'])", ()),  # it does so only without a launcher
        ("mp.spawn(", ()),
        ("\0", ()),
        ("", ()),
    ],
)
def test_which_calls_start_ranks(source: str, found: tuple[str, ...]) -> None:
    assert spawns(source) == found


def test_one_rank_per_node_is_how_such_a_script_is_started() -> None:
    assert check("ENV011", of(SPAWN, nproc=1)).state == "clear"
    assert check("ENV011", of("print(1)")).state == "clear"


def test_without_a_script_there_is_nothing_to_check() -> None:
    assert check("ENV011", fleet(2)).hits == ()
