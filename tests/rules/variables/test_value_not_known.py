from tests.cases import cases
from tests.rules.variables.made import clear, here, values

CODE = "VAR012"


@cases(
    "name, value",
    [
        ("NCCL_DEBUG", "VERBOSE"),
        ("NCCL_DEBUG", "DEBUG"),
        ("NCCL_DEBUG_SUBSYS", "INIT, NET"),
        ("NCCL_P2P_LEVEL", "nvl"),
        ("NCCL_ALGO", "Rings"),
        ("NCCL_PROTO", "LL,LL256"),
        ("TORCH_DISTRIBUTED_DEBUG", "TRACE"),
    ],
)
def test_words_that_are_not_accepted(name: str, value: str) -> None:
    assert values(CODE, here(**{name: value}))["accepted"]


@cases(
    "name, value",
    [
        ("NCCL_DEBUG", "INFO"),
        ("NCCL_DEBUG", "warn"),
        ("NCCL_DEBUG_SUBSYS", "INIT,NET"),
        ("NCCL_DEBUG_SUBSYS", "^COLL"),
        ("NCCL_P2P_LEVEL", "NVL"),
        ("NCCL_P2P_LEVEL", "3"),
        ("NCCL_ALGO", "Ring,Tree"),
        ("NCCL_ALGO", "^NVLS"),
        ("NCCL_ALGO", "allreduce:tree,ring;allgather:ring"),
        ("NCCL_PROTO", "^LL128"),
        ("TORCH_DISTRIBUTED_DEBUG", "OFF"),
        ("TORCH_DISTRIBUTED_DEBUG", "detail"),
        ("TORCH_CPP_LOG_LEVEL", "INFO"),
        ("OMP_PROC_BIND", "true"),
        ("NCCL_NETDEVS_POLICY", "MAX:2"),
    ],
)
def test_words_that_are(name: str, value: str) -> None:
    assert clear(CODE, here(**{name: value}))


def test_a_wrong_case_is_named_with_the_right_one() -> None:
    assert values(CODE, here(NCCL_P2P_LEVEL="nvl"))["better"] == "NVL"


def test_the_word_is_shown_with_its_blanks() -> None:
    assert values(CODE, here(NCCL_DEBUG_SUBSYS="INIT, NET"))["part"] == "' NET'"
