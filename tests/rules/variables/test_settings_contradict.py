from tests.cases import cases
from tests.rules.variables.made import clear, here, hits, script, settings, values

CODE = "VAR024"


@cases(
    "made, counts",
    [
        ({"TORCH_NCCL_BLOCKING_WAIT": "1", "TORCH_NCCL_ASYNC_ERROR_HANDLING": "1"}, "TORCH_NCCL_BLOCKING_WAIT"),
        ({"NCCL_BLOCKING_WAIT": "1", "NCCL_ASYNC_ERROR_HANDLING": "1"}, "TORCH_NCCL_BLOCKING_WAIT"),
        ({"NCCL_BLOCKING_WAIT": "1", "TORCH_NCCL_BLOCKING_WAIT": "0"}, "TORCH_NCCL_BLOCKING_WAIT=0"),
        ({"NCCL_ALGO": "NVLS", "NCCL_NVLS_ENABLE": "0"}, "NCCL_NVLS_ENABLE"),
        ({"NCCL_NET": "IB", "NCCL_IB_DISABLE": "1"}, "NCCL_IB_DISABLE"),
        ({"NCCL_MIN_CTAS": "32", "NCCL_MAX_CTAS": "16"}, "NCCL_MAX_CTAS"),
        ({"NCCL_SOCKET_NTHREADS": "16", "NCCL_NSOCKS_PERTHREAD": "8"}, "16 x 8 <= 64"),
        ({"XLA_PYTHON_CLIENT_MEM_FRACTION": "0.5", "XLA_CLIENT_MEM_FRACTION": "0.5"}, None),
    ],
)
def test_says_which_one_counts(made: dict[str, str], counts: str) -> None:
    assert values(CODE, here(**made))["counts"] == counts


@cases(
    "made",
    [
        {"TORCH_NCCL_BLOCKING_WAIT": "0", "TORCH_NCCL_ASYNC_ERROR_HANDLING": "1"},
        {"NCCL_BLOCKING_WAIT": "1", "TORCH_NCCL_BLOCKING_WAIT": "true"},
        {"NCCL_ALGO": "Ring", "NCCL_NVLS_ENABLE": "0"},
        {"NCCL_MIN_CTAS": "16", "NCCL_MAX_CTAS": "32"},
        {"NCCL_SOCKET_NTHREADS": "4", "NCCL_NSOCKS_PERTHREAD": "4"},
        {"NCCL_NET": "Socket", "NCCL_IB_DISABLE": "1"},
        {"RANK": "7", "WORLD_SIZE": "8", "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "1"},
    ],
)
def test_settings_that_go_together(made: dict[str, str]) -> None:
    assert clear(CODE, here(**made))


def test_names_both_lines() -> None:
    made = script("export NCCL_NET=IB", "export NCCL_IB_DISABLE=1")
    [hit] = hits(CODE, made)
    assert (hit.values["line"], hit.values["other_line"]) == (1, 2)
    assert hit.culprits.variables == ("NCCL_NET", "NCCL_IB_DISABLE")


def test_the_last_assignment_counts() -> None:
    assert clear(CODE, script("export NCCL_NET=IB", "export NCCL_IB_DISABLE=1", "export NCCL_IB_DISABLE=0"))


def test_ranks_are_numbered_from_0() -> None:
    found = values(CODE, here(RANK="8", WORLD_SIZE="8"))
    assert (found["name"], found["least"], found["either"]) == ("RANK", "WORLD_SIZE", None)
    assert clear(CODE, script("export RANK=$SLURM_PROCID WORLD_SIZE=8"))


POD = """\
apiVersion: v1
kind: Pod
spec:
  containers:
  - name: a
    env: [{name: NCCL_IB_DISABLE, value: "1"}]
  - name: b
    envFrom: [{configMapRef: {name: common}}]
    env: [{name: NCCL_NET, value: IB}]
---
apiVersion: v1
kind: ConfigMap
metadata: {name: common}
data: {NCCL_IB_DISABLE: "0"}
"""


def test_containers_have_environments_of_their_own() -> None:
    assert clear(CODE, settings(("pod.yaml", POD)))
    found = values(CODE, settings(("pod.yaml", POD.replace('NCCL_IB_DISABLE: "0"', 'NCCL_IB_DISABLE: "1"'))))
    assert (found["name"], found["line"], found["other_line"]) == ("NCCL_NET", 9, 14)


STAGES = """\
FROM cuda AS base
ENV NCCL_IB_DISABLE=1
FROM cuda AS tools
ENV NCCL_NET=IB
FROM {stage} AS final
ENV NCCL_NET=IB
"""


def test_stages_of_an_image_have_what_they_begin_from() -> None:
    assert values(CODE, settings(("Dockerfile", STAGES.format(stage="BASE"))))["line"] == 6
    assert clear(CODE, settings(("Dockerfile", STAGES.format(stage="--platform=linux/arm64 tools"))))


def test_services_of_compose_are_told_apart() -> None:
    one = "services:\n  a: {environment: {NCCL_IB_DISABLE: '1'}}\n  b: {environment: [NCCL_NET=IB]}\n"
    assert clear(CODE, settings(("compose.yaml", one)))
    assert values(CODE, settings(("compose.yaml", one.replace("[NCCL_NET=IB]", "[NCCL_NET=IB, NCCL_IB_DISABLE=1]"))))
    shared = "env: {NCCL_IB_DISABLE: '1'}\njobs:\n  train:\n    env: {NCCL_NET: IB}\n"
    assert values(CODE, settings(("workflow.yaml", shared)))["name"] == "NCCL_NET", "what is outside is inherited"
