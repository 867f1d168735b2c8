from allready.judging.loading import load
from allready.model import Severity
from tests.cases import cases
from tests.rules.variables.made import clear, here, hits, script, values

CODE = "VAR003"


@cases(
    "name", ["NCCL_A_NAME_OF_TOMORROW", "TORCH_NCCL_BRAND_NEW_SWITCH", "GLOO_ENTIRELY_NEW", "TORCH_FR_SOMETHING_ELSE"]
)
def test_names_of_known_families_that_no_list_has(name: str) -> None:
    assert values(CODE, here(**{name: "1"}))["name"] == name


def test_is_only_information() -> None:
    assert load()[CODE].severity is Severity.INFO
    assert hits(CODE, here(NCCL_A_NAME_OF_TOMORROW="1"))[0].severity is None


@cases(
    "name, instead",
    [
        ("NCCL_COMM_TIMEOUT", "init_process_group(timeout=...)"),
        ("NCCL_NUM_CHANNELS", "NCCL_MIN_CTAS"),
        ("NCCL_INTERFACE", "NCCL_SOCKET_IFNAME"),
        ("GLOO_IFNAME", "GLOO_SOCKET_IFNAME"),
        ("NCCL_USE_IB", "NCCL_IB_DISABLE=0"),
        ("TORCH_NCCL_WATCHDOG_TIMEOUT", "torch.distributed.init_process_group(timeout=...)"),
    ],
)
def test_a_name_that_promises_something_is_a_warning_with_what_does_it(name: str, instead: str) -> None:
    [found] = hits(CODE, here(**{name: "1"}))
    assert found.severity is Severity.WARNING
    assert instead in str(found.values["instead"])


@cases("name", ["NCCL_TESTS_HOME", "NCCL_BUILD_DIR", "NCCL_FASTRAK_ANYTHING", "NCCL_HOME", "NCCL_VERSION"])
def test_plugins_and_build_systems_are_known(name: str) -> None:
    assert clear(CODE, here(**{name: "1"}))


@cases("name", ["MY_VARIABLE", "TORCH_HOME", "CUDA_ANYTHING", "JAX_A_NEW_OPTION", "OMP_SOMETHING"])
def test_other_families_are_open(name: str) -> None:
    assert clear(CODE, here(**{name: "1"}))


def test_a_misspelt_name_is_another_finding() -> None:
    assert clear(CODE, here(NCCL_DEUBG="INFO"))


def test_a_variable_of_the_script_itself() -> None:
    assert clear(CODE, script("NCCL_OPTS=(-x NCCL_ALGO=Ring)", 'mpirun "${NCCL_OPTS[@]}" ./a.out'))
    assert values(CODE, script("export NCCL_OPTS=1", "echo $NCCL_OPTS"))["family"] == "NCCL"
