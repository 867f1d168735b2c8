from tests.cases import cases
from tests.rules.variables.made import clear, hits, settings, values

CODE = "VAR035"


def dockerfile(*lines: str) -> str:
    return "\n".join(("FROM nvcr.io/nvidia/pytorch:24.08-py3", *lines)) + "\n"


@cases(
    "line",
    [
        "RUN export NCCL_IB_TIMEOUT=22",
        "RUN NCCL_IB_TIMEOUT=22",
        'RUN ["bash", "-c", "export NCCL_IB_TIMEOUT=22"]',
        "RUN --mount=type=cache,target=/root/.cache export NCCL_IB_TIMEOUT=22 && true",
        "RUN <<EOT\nexport NCCL_IB_TIMEOUT=22\nEOT",
        "ONBUILD RUN export NCCL_IB_TIMEOUT=22",
        "ARG NCCL_IB_TIMEOUT=22",
    ],
)
def test_names_the_line_that_sets_a_variable_for_the_build_only(line: str) -> None:
    made = settings(("Dockerfile", dockerfile(line)))
    found = values(CODE, made)
    assert (found["name"], found["file"]) == ("NCCL_IB_TIMEOUT", "Dockerfile")
    assert found["line"] == (3 if "<<" in line else 2)
    [hit] = hits(CODE, made)
    assert hit.culprits.variables == ("NCCL_IB_TIMEOUT",)


@cases(
    "line",
    [
        "ENV NCCL_IB_TIMEOUT=22",
        "RUN export NCCL_IB_TIMEOUT=22 && python train.py",
        "RUN NCCL_DEBUG=INFO python -c 'import torch'",
        "RUN export MAX_JOBS=8 TORCH_CUDA_ARCH_LIST=9.0",
        "RUN export DEBIAN_FRONTEND=noninteractive",
        "ARG NCCL_VERSION=2.21.5",
        "ARG CUDA_VISIBLE_DEVICES=0",
        "ARG NCCL_IB_TIMEOUT=22\nENV NCCL_IB_TIMEOUT=${NCCL_IB_TIMEOUT}",
        "RUN echo 'export NCCL_IB_TIMEOUT=22' >> /etc/profile.d/nccl.sh",
        "RUN pip install torch  # export NCCL_IB_TIMEOUT=22",
    ],
)
def test_a_step_that_uses_its_variables_and_what_only_builds_need_are_no_finding(line: str) -> None:
    assert clear(CODE, settings(("Dockerfile", dockerfile(line))))


def test_other_files_have_no_build() -> None:
    assert clear(CODE, settings(("train.sh", "export NCCL_IB_TIMEOUT=22\n")))


@cases("code", ["VAR003", "VAR002", "VAR022"])
def test_what_a_step_of_the_build_needs_is_not_judged_as_part_of_a_job(code: str) -> None:
    lines = ("RUN NCCL_DEBUG=INFO CUDA_LAUNCH_BLOCKING=1 python test.py", "RUN NCCL_HOMEDIR=/x NCCL_DEBUGG=1 make")
    assert clear(code, settings(("Dockerfile", dockerfile(*lines))))


def test_a_name_that_nothing_reads_is_one_in_a_step_of_the_build_as_well() -> None:
    made = settings(("Dockerfile", dockerfile("RUN export NCCL_SOCKET_TIMEOUT=9 && python train.py")))
    assert values("VAR001", made)["line"] == 2
