from allready.model import Confidence
from tests.cases import cases
from tests.rules.variables.made import clear, here, hits, script, values

CODE = "VAR002"


@cases(
    "wrong, right",
    [
        ("NCCL_DEUBG", "NCCL_DEBUG"),
        ("NCCL_SOCKET_IFNAMES", "NCCL_SOCKET_IFNAME"),
        ("NCLL_DEBUG", "NCCL_DEBUG"),
        ("nccl_debug", "NCCL_DEBUG"),
        ("NCCL_DISABLE_IB", "NCCL_IB_DISABLE"),
        ("NCCL_P2P_DISABLED", "NCCL_P2P_DISABLE"),
        ("TORCH_NCCL_BLOCKNG_WAIT", "TORCH_NCCL_BLOCKING_WAIT"),
        ("CUDA_VISIBLE_DEVICE", "CUDA_VISIBLE_DEVICES"),
        ("GLOO_SOCKET_INFAME", "GLOO_SOCKET_IFNAME"),
        ("NCCL_NVLS", "NCCL_NVLS_ENABLE"),
        ("NCCL_ENABLE_MONITORING", "TORCH_NCCL_ENABLE_MONITORING"),
        ("NCCL_HEARTBEAT_TIMEOUT", "TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC"),
        ("ACCELERATE_MIXED_PRECISON", "ACCELERATE_MIXED_PRECISION"),
        ("FSDP_SHARDING_STRATGY", "FSDP_SHARDING_STRATEGY"),
        ("DS_SKIP_CUDA_CHEK", "DS_SKIP_CUDA_CHECK"),
        ("DEEPSPEED_TIMEOUTS", "DEEPSPEED_TIMEOUT"),
        ("HF_HUB_OFLINE", "HF_HUB_OFFLINE"),
        ("TOKENIZER_PARALLELISM", "TOKENIZERS_PARALLELISM"),
        ("WANDB_PROJET", "WANDB_PROJECT"),
        ("NCCL_IB_RETRY_COUNT", "NCCL_IB_RETRY_CNT"),
        ("NCCL_SOCKET_INTERFACE", "NCCL_SOCKET_IFNAME"),
        ("JAX_COORDINATOR_ADDR", "JAX_COORDINATOR_ADDRESS"),
        ("PYTORCH_ALLOCATOR_CONFIG", "PYTORCH_ALLOC_CONF"),
        ("TORCH_DISTRIBUTED_DEBUG_LEVEL", "TORCH_DISTRIBUTED_DEBUG"),
        ("WORLDSIZE", "WORLD_SIZE"),
        ("LOCALRANK", "LOCAL_RANK"),
    ],
)
def test_names_the_right_one(wrong: str, right: str) -> None:
    assert values(CODE, script(f"export {wrong}=1"))["near"] == right


def test_in_this_environment_the_right_one_can_be_typed() -> None:
    found = values(CODE, here(NCCL_SOCKET_IFNAMES="eth0,eth1"))
    assert found["command"] == "unset NCCL_SOCKET_IFNAMES; export NCCL_SOCKET_IFNAME=eth0,eth1"


@cases(
    "name",
    [
        "NCCL_DEBUG", "NCCL_HOME", "NCCL_VERSION", "NODE_RANK", "MASTER_PORT", "LOCAL_RANK", "CUDA_HOME", "CUDA_PATH",
        "NCCL_TESTS_HOME", "NUM_NODES", "WORLD", "RANKS", "TORCH_HOME", "TORCH_CUDA_ARCH_LIST", "OMPI_COMM_WORLD_RANK",
        "UCX_HOME", "SLURM_NODEID", "PATH", "HOME", "MY_RANK",
        "HF_MODEL_ID", "DS_STAGE", "WANDB_PROJECT", "DATA_DIR", "HF_DATASETS",
    ],
)  # fmt: skip
def test_leaves_names_of_others_alone(name: str) -> None:
    assert clear(CODE, here(**{name: "1"}))


@cases("name", ["NCCL_PCI_DISABLE", "NCCL_GDR_ENABLE"])
def test_another_word_of_these_names_is_no_slip(name: str) -> None:
    assert clear(CODE, here(**{name: "1"}))


def test_is_certain_of_families_that_are_known_completely() -> None:
    assert hits(CODE, here(NCCL_DEBG="INFO"))[0].confidence is Confidence.CERTAIN
    assert hits(CODE, here(CUDA_VISIBLE_DEVICE="0"))[0].confidence is Confidence.LIKELY


def test_a_folk_name_is_not_misspelt() -> None:
    assert clear(CODE, here(NCCL_TIMEOUT="1", NCCL_CONNECT_TIMEOUT="1"))


def test_a_name_that_the_script_itself_uses() -> None:
    assert clear(CODE, script("WORLDSIZE=8", "export WORLDSIZE", "torchrun --nproc-per-node $WORLDSIZE train.py"))
