from allready.model import EnvFacts, FactMissing
from tests.fleets import check, fleet
from tests.rules.gpu.made_up import gpus, launched, launched_on


def test_names_the_node_whose_devices_list_a_gpu_twice() -> None:
    [hit] = check("GPU004", launched_on(fleet(2), 1, devices=("1", "1"))).hits
    assert (hit.culprits.nodes, hit.culprits.variables) == ((1,), ())
    assert hit.values["by"] == "--devices 1,1"


def test_sees_that_an_index_and_a_uuid_are_the_same_gpu() -> None:
    twice = gpus(visible=(), visible_devices="0,GPU-0000-0")
    [hit] = check("GPU004", fleet(2, gpu={0: twice})).hits
    assert hit.culprits.variables == ("CUDA_VISIBLE_DEVICES",)
    assert hit.values["by"] == "CUDA_VISIBLE_DEVICES 0,GPU-0000-0"


def test_names_both_nodes_that_would_take_the_same_gpus_of_one_machine() -> None:
    [hit] = check("GPU004", fleet(2, gpu={0: gpus(0, num=4), 1: gpus(0, num=4)})).hits
    assert hit.culprits.nodes == (0, 1)
    assert hit.values["gpu"] == "GPU-0000-0, GPU-0000-1"


def test_two_nodes_may_share_a_machine_with_different_gpus() -> None:
    shared = fleet(2, gpu={0: gpus(0, num=4), 1: gpus(0, num=4)})
    apart = launched_on(launched_on(shared, 0, devices=("0", "1")), 1, devices=("2", "3"))
    assert check("GPU004", apart).state == "clear"
    limited = {r: gpus(0, num=4, visible=v, visible_devices=d) for r, v, d in ((0, (0, 1), "0,1"), (1, (2, 3), "2,3"))}
    assert check("GPU004", fleet(2, gpu=limited)).state == "clear"


def test_sharing_is_no_fault_with_gloo_or_when_it_was_asked_for() -> None:
    shared = fleet(2, gpu={0: gpus(0, num=4), 1: gpus(0, num=4)})
    assert check("GPU004", launched(shared, backend="gloo")).state == "clear"
    asked = EnvFacts(variables={"NCCL_MULTI_RANK_GPU_ENABLE": "1"})
    allowed = fleet(2, gpu={0: gpus(0, num=4), 1: gpus(0, num=4)}, env={0: asked, 1: asked})
    assert check("GPU004", allowed).state == "clear"


def test_nodes_that_nccl_takes_for_different_hosts_share_a_gpu_on_purpose() -> None:
    shared = {n: gpus(0, num=1) for n in range(3)}

    def state(*hosts: str) -> str:
        env = {n: EnvFacts(variables={"NCCL_HOSTID": host} if host else {}) for n, host in enumerate(hosts)}
        return check("GPU004", fleet(3, gpu=shared, env=env)).state

    assert state("a", "b", "c") == "clear"
    assert [state("a", "b", "a"), state("a", "", ""), state("a", "a", "a")] == ["hit"] * 3


def test_slices_of_one_gpu_are_not_the_same_gpu() -> None:
    slices = {n: gpus(0, num=1, visible=(0,), visible_devices=f"MIG-{n}") for n in range(2)}
    assert check("GPU004", fleet(2, gpu=slices)).state == "clear"


def test_explains_the_hidden_gpus_before_their_number_does() -> None:
    from allready.judging.engine import judge

    findings, _ = judge(fleet(1, gpu={0: gpus(visible=(), visible_devices="0,0")}))
    assert findings[0].code == "GPU004"
    assert "GPU002" in {f.code for f in findings}


def test_is_clear_on_healthy_nodes() -> None:
    assert check("GPU004", fleet(4)).state == "clear"


def test_says_which_node_it_could_not_check() -> None:
    outcome = check("GPU004", fleet(2, gpu={1: FactMissing("no NVML")}))
    assert (outcome.state, outcome.unchecked) == ("not_checked", {1: "no NVML"})
