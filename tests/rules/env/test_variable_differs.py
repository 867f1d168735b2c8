import pytest

from allready.model import EnvFacts, FactMissing, Severity
from allready.model.fill import phrases_of
from allready.text.catalog import say_value
from tests.cases import cases
from tests.fleets import check, fleet
from tests.rules.env.made import on_all, variables


@cases(
    ("name", "severity"),
    [
        ("NCCL_ALGO", Severity.ERROR),
        ("NCCL_PROTO", Severity.ERROR),
        ("NCCL_MAX_NCHANNELS", Severity.ERROR),
        ("NCCL_P2P_LEVEL", Severity.ERROR),
        ("NCCL_SHM_DISABLE", Severity.ERROR),
        ("NCCL_IB_DISABLE", Severity.ERROR),
        ("NCCL_NET_PLUGIN", Severity.ERROR),
        ("NCCL_NVLS_ENABLE", Severity.ERROR),
        ("TORCH_NCCL_BLOCKING_WAIT", Severity.ERROR),
        ("TORCH_DISTRIBUTED_DEBUG", Severity.ERROR),
        ("TORCH_DIST_USE_NCCL2", Severity.ERROR),
        ("XLA_FLAGS", Severity.ERROR),
        ("JAX_ENABLE_X64", Severity.ERROR),
        ("TORCH_NCCL_TRACE_BUFFER_SIZE", Severity.WARNING),
        ("PYTHONHASHSEED", Severity.WARNING),
        ("NCCL_IB_TIMEOUT", Severity.WARNING),
        ("CUDA_DEVICE_MAX_CONNECTIONS", Severity.WARNING),
        ("NCCL_WHATEVER_COMES_NEXT", Severity.WARNING),
    ],
)
def test_names_variable_and_node_as_gravely_as_it_is(name: str, severity: Severity) -> None:
    env = {**on_all(4, **{name: "1"}), 3: variables(**{name: "0"})}
    [hit] = check("ENV002", fleet(4, env=env)).hits
    assert (hit.culprits.nodes, hit.culprits.variables, hit.severity) == ((3,), (name,), severity)
    assert hit.values["command"] == f"export {name}=1"


@cases(
    "name",
    [
        "NCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME", "NCCL_IB_HCA", "CUDA_VISIBLE_DEVICES", "NCCL_DEBUG_FILE",
        "NCCL_TOPO_FILE", "OMP_NUM_THREADS", "LD_LIBRARY_PATH", "TORCH_HOME", "TORCH_EXTENSIONS_DIR",
        "TORCHINDUCTOR_CACHE_DIR", "NCCL_DEBUG", "NCCL_DEBUG_SUBSYS", "JAX_PROCESS_ID", "TORCHELASTIC_RUN_ID",
        "NCCL_HOSTID", "TORCH_NCCL_DEBUG_INFO_TEMP_FILE", "JAX_COMPILATION_CACHE_DIR", "CUDA_HOME", "TORCH_LOGS",
        "HIP_VISIBLE_DEVICES", "UCX_NET_DEVICES", "NCCL_RAS_ADDR", "MKL_NUM_THREADS", "GLOO_LOG_LEVEL",
        "NCCL_TIMEOUT",
    ],
)  # fmt: skip
def test_lets_each_node_have_its_own(name: str) -> None:
    assert check("ENV002", fleet(3, env={1: variables(**{name: "eth7"})})).state == "clear"


def test_a_value_may_be_the_very_text_that_stands_for_none() -> None:
    [hit] = check("ENV002", fleet(3, env={1: variables(NCCL_ALGO="(unset)")})).hits
    assert hit.culprits.nodes == (1,)
    [hit] = check("ENV002", fleet(3, env={n: variables(NCCL_ALGO="(unset)") for n in (0, 1)})).hits
    assert hit.values["command"] == "export NCCL_ALGO='(unset)'"
    assert say_value(phrases_of(hit.values)["split"], "zh") == "(unset) [0,1], （未设置）[2]"


def test_counts_unset_as_a_value() -> None:
    [hit] = check("ENV002", fleet(4, env={2: variables(NCCL_ALGO="Ring")})).hits
    assert hit.culprits.nodes == (2,)
    assert hit.values["split"] == "(unset) [0,1,3], Ring [2]"
    assert hit.values["command"] == "unset NCCL_ALGO"


def test_blames_no_node_on_a_tie_but_names_the_variable() -> None:
    [hit] = check("ENV002", fleet(2, env={1: variables(NCCL_ALGO="Ring")})).hits
    assert (hit.culprits.nodes, hit.culprits.variables) == ((), ("NCCL_ALGO",))
    assert hit.values["command"] == "unset NCCL_ALGO | export NCCL_ALGO=Ring"


def test_tells_empty_from_unset() -> None:
    [hit] = check("ENV002", fleet(3, env={1: variables(NCCL_ALGO="")})).hits
    assert hit.values["split"] == "(unset) [0,2], (empty) [1]"


def test_makes_one_finding_of_each_variable_the_gravest_first() -> None:
    env = {0: variables(NCCL_IB_TIMEOUT="22", NCCL_PROTO="Simple", NCCL_ALGO="Ring")}
    hits = check("ENV002", fleet(3, env=env)).hits
    assert [h.culprits.variables[0] for h in hits] == ["NCCL_ALGO", "NCCL_PROTO", "NCCL_IB_TIMEOUT"]


def test_does_not_mind_the_order_of_xla_flags_nor_where_dumps_go() -> None:
    env = {
        0: variables(XLA_FLAGS="--xla_a=1 --xla_b=2 --xla_dump_to=/tmp/node0"),
        1: variables(XLA_FLAGS=" --xla_b=2  --xla_a=1 --xla_dump_to=/tmp/node1"),
    }
    assert check("ENV002", fleet(2, env=env)).state == "clear"
    env[1] = variables(XLA_FLAGS="--xla_b='2 --xla_a=1")  # an unclosed quote is no reason to fall over
    assert check("ENV002", fleet(2, env=env)).state == "hit"


def test_shows_where_long_values_differ() -> None:
    same = "--xla_some_flag=true " * 20
    env = {0: variables(NCCL_NET_PLUGIN=same + "A"), 1: variables(NCCL_NET_PLUGIN=same + "B")}
    [hit] = check("ENV002", fleet(2, env=env)).hits
    assert str(hit.values["split"]) == "…ag=true A [0], …ag=true B [1]"
    assert hit.values["command"] == "export NCCL_NET_PLUGIN=... | export NCCL_NET_PLUGIN=..."


def test_quotes_what_is_typed_into_a_shell() -> None:
    [hit] = check("ENV002", fleet(3, env={**on_all(3, NCCL_ALGO="^Tree; reboot"), 2: variables()})).hits
    assert hit.values["command"] == "export NCCL_ALGO='^Tree; reboot'"


@pytest.mark.thorough
def test_ends_soon_when_every_node_has_variables_of_its_own() -> None:
    env = {n: EnvFacts(variables={f"NCCL_MADE_UP_{n}_{i}": "1" for i in range(25)}) for n in range(300)}
    hits = check("ENV002", fleet(300, env=env)).hits
    assert 0 < len(hits) <= 64


def test_is_clear_when_all_nodes_agree() -> None:
    assert check("ENV002", fleet(4, env=on_all(4, NCCL_ALGO="Ring", XLA_FLAGS="--a"))).state == "clear"


def test_says_which_node_it_could_not_check() -> None:
    outcome = check("ENV002", fleet(2, env={1: FactMissing("not sent")}))
    assert (outcome.state, outcome.unchecked) == ("not_checked", {1: "not sent"})
