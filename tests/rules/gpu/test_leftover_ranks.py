from msgspec.structs import replace

from allready.model import FactMissing, GpuFacts, GpuProcess, Leftover, Severity, UsageFacts
from tests.fleets import GIB, check, commands, fleet, healthy_node

LEFT = UsageFacts(leftovers=(Leftover(pid=4242, rank="3", user="alice", command="python train.py"),))


def gpus(pid: int) -> GpuFacts:
    healthy = healthy_node(0, 1).gpu
    assert isinstance(healthy, GpuFacts)
    holder = GpuProcess(pid=pid, user="alice", command="python train.py", used_bytes=40 * GIB)
    return replace(healthy, gpus=(replace(healthy.gpus[0], processes=(holder,)), *healthy.gpus[1:]))


def test_a_leftover_rank_that_holds_gpu_memory_is_a_warning() -> None:
    [hit] = check("GPU009", fleet(1, usage={0: LEFT}, gpu={0: gpus(4242)})).hits
    assert (hit.severity, hit.values["taken"]) == (Severity.WARNING, "40 GiB")
    assert "kill 4242" in commands("GPU009", hit)


def test_one_that_holds_nothing_may_be_a_helper_and_is_information() -> None:
    [hit] = check("GPU009", fleet(1, usage={0: LEFT}, gpu={0: gpus(7)})).hits
    assert hit.severity is None


def test_a_machine_without_gpus_is_looked_at_as_well() -> None:
    [hit] = check("GPU009", fleet(1, usage={0: LEFT}, gpu={0: FactMissing("no NVML")})).hits
    assert hit.culprits.nodes == (0,)


def test_a_holder_whose_launcher_lives_is_clear() -> None:
    assert check("GPU009", fleet(1, usage={0: UsageFacts()}, gpu={0: gpus(4242)})).state == "clear"


def test_says_which_node_it_could_not_check() -> None:
    assert check("GPU009", fleet(1, usage={0: FactMissing("no /proc")})).unchecked == {0: "no /proc"}
