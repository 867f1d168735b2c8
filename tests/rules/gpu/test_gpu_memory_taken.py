from allready.model import Confidence, FactMissing, GpuProcess, Severity
from tests.fleets import GIB, check, fleet
from tests.rules.gpu.made_up import gpu, gpus, launched

MIB = 2**20


def holder(used: int | None, pid: int = 4242) -> GpuProcess:
    return GpuProcess(pid=pid, user="bob", command="python old_train.py", used_bytes=used)


def test_names_the_process_that_holds_most_of_a_gpu() -> None:
    taken = gpus(1, gpus=(gpu(0, memory_used_bytes=101 * GIB, processes=(holder(100 * GIB),)), gpu(1)))
    [hit] = check("GPU001", fleet(2, gpu={1: taken})).hits
    assert (hit.culprits.nodes, hit.severity, hit.confidence) == ((1,), Severity.ERROR, Confidence.CERTAIN)
    assert (hit.values["gpus"], hit.values["taken"]) == ("0", "100 GiB")
    assert hit.values["holders"] == "pid 4242 (bob, python old_train.py)"


def test_warns_about_some_gigabytes() -> None:
    [hit] = check("GPU001", fleet(2, gpu={0: gpus(gpus=(gpu(0, processes=(holder(8 * GIB),)), gpu(1)))})).hits
    assert hit.severity is Severity.WARNING


def test_sees_memory_whose_process_lives_in_another_container() -> None:
    [hit] = check("GPU001", fleet(1, gpu={0: gpus(gpus=(gpu(0, memory_used_bytes=90 * GIB), gpu(1)))})).hits
    assert (hit.values["holders"], hit.confidence) == (None, Confidence.LIKELY)
    assert hit.severity is Severity.ERROR


def test_does_not_mind_what_the_driver_and_a_desktop_keep() -> None:
    desktop = gpu(0, memory_total_bytes=8 * GIB, memory_used_bytes=700 * MIB, processes=(holder(400 * MIB),))
    assert check("GPU001", fleet(1, gpu={0: gpus(gpus=(desktop, gpu(1, memory_used_bytes=GIB)))})).state == "clear"


def test_does_not_mind_gpus_that_the_job_will_not_take() -> None:
    taken = gpu(1, memory_used_bytes=130 * GIB, processes=(holder(130 * GIB),))
    made = fleet(1, gpu={0: gpus(gpus=(gpu(0), taken))})
    assert check("GPU001", launched(made, nproc_per_node=1)).state == "clear"
    assert check("GPU001", launched(made, nproc_per_node=1, devices=("1",))).state == "hit"
    assert check("GPU001", launched(made, backend="gloo")).state == "clear"


def test_is_clear_on_healthy_nodes() -> None:
    assert check("GPU001", fleet(4)).state == "clear"


def test_says_which_node_it_could_not_check() -> None:
    outcome = check("GPU001", fleet(2, gpu={1: FactMissing("NVML: unknown error")}))
    assert (outcome.state, outcome.unchecked) == ("not_checked", {1: "NVML: unknown error"})
