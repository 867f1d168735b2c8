from msgspec.structs import replace

from allready.judging.engine import judge
from allready.model import GpuFacts, GpuProcess, NodeFacts
from tests.fleets import GIB, check, fleet
from tests.rules.collective.made_up import stage, state, stopped_at

ERROR = (
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 64.00 GiB. GPU 1 has a total capacity of 139.80 GiB"
)


def test_names_the_rank_that_ran_out_of_memory() -> None:
    bad = stage("allocate", "failed", state(1, "exited", exit_code=1, error=ERROR), finished=(0, 2, 3))
    [hit] = check("COL006", fleet(2, collectives=stopped_at(bad))).hits
    assert (hit.culprits.ranks, hit.culprits.nodes) == ((1,), (0,))


def test_gives_way_to_the_process_that_holds_the_memory() -> None:
    bad = stage("allocate", "failed", state(1, "exited", exit_code=1, error=ERROR), finished=(0, 2, 3))
    made = fleet(2, collectives=stopped_at(bad))
    node: NodeFacts = made.nodes[0]
    assert isinstance(node.gpu, GpuFacts)
    holder = GpuProcess(pid=7, user="bob", command="python", used_bytes=120 * GIB)
    full = replace(node.gpu, gpus=(node.gpu.gpus[0], replace(node.gpu.gpus[1], processes=(holder,))))
    findings, _ = judge(replace(made, nodes={**made.nodes, 0: replace(node, gpu=full)}))
    assert [f.code for f in findings][:2] == ["GPU001", "COL006"]


def test_an_rdma_registration_that_fails_is_another_matter() -> None:
    bad = stage("nccl_init", "failed", state(1, error="ibv_reg_mr failed with error Cannot allocate memory"))
    assert check("COL006", fleet(2, collectives=stopped_at(bad))).state == "clear"


def test_is_clear_when_every_stage_ended_well() -> None:
    assert check("COL006", fleet(2)).state == "clear"


def test_is_not_checked_when_the_collectives_did_not_run() -> None:
    assert check("COL006", fleet(2, collectives=None)).state == "not_checked"
