import pytest

from allready.facts.env import collect_env
from allready.redaction import REDACTED, redact
from tests.cases import cases
from tests.facts.saved_host import SavedHost


@cases(
    ("name", "value"),
    [
        ("NCCL_IB_PKEY", "0x7fff"),  # the number of a partition
        ("NCCL_IB_HCA", "=mlx5_0:1,mlx5_1:1"),
        ("NCCL_TOPO_FILE", "/opt/very/long/path/with/Many2Segments/and/more/Segments3/topo.xml"),
        ("CUDA_VISIBLE_DEVICES", "GPU-8932f937-d72c-4106-c12f-20bd9faed9f6"),
        ("CUDA_VISIBLE_DEVICES", "MIG-8932f937-d72c-4106-c12f-20bd9faed9f6"),
        ("XLA_FLAGS", "--xla_gpu_enable_latency_hiding_scheduler=true --xla_gpu_graph_level=0"),
        ("NCCL_COMM_ID", "[fe80::1%eth0]:5000"),
        ("PYTORCH_CUDA_ALLOC_CONF", "expandable_segments:True,max_split_size_mb:512"),
        ("TORCH_NCCL_TRACE_BUFFER_SIZE", "2000"),
        ("LD_LIBRARY_PATH", "/usr/local/cuda-12.8/targets/x86_64-linux/lib:/opt/nvidia/nsight"),
        ("JAX_COORDINATOR_ADDRESS", "http://10.0.0.1:8476"),
    ],
)
def test_leaves_honest_values_alone(name: str, value: str) -> None:
    assert redact(name, value) == value


@cases(
    ("name", "value"),
    [
        ("TORCH_HUB_TOKEN", "x"),
        ("JAX_API_KEY", "x"),
        ("NCCL_FOO_SECRET", "x"),
        ("torch_password", "x"),
        ("TORCH_AWS_ACCESSKEY", "x"),
        ("FI_AUTH_KEY", "x"),
        ("TORCH_HOME", "hf_abcdefghijklmnopqrstuvwx"),
        ("TORCH_HOME", "AKIAIOSFODNN7EXAMPLE"),
        ("TORCH_HOME", "ghp_16C7e42F292c6912E7710c838347Ae178B4a"),
        ("TORCH_HOME", "sk-proj-abcdefghijklmnop1234"),
        ("TORCH_HOME", "0123456789abcdef0123456789abcdef01234567"),
        ("TORCH_HOME", "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.abc"),
        ("TORCH_HOME", "wJalrXUtnFEMI1K7MDENG0bPxRfi9CYEXAMPLEKEYabcdef=="),
    ],
)
def test_hides_what_looks_like_a_secret(name: str, value: str) -> None:
    assert redact(name, value) == REDACTED


def test_hides_only_the_secret_part() -> None:
    assert redact("JAX_PROXY", "http://ann:s3cret@proxy:3128/x") == f"http://{REDACTED}@proxy:3128/x"
    assert redact("XLA_FLAGS", "--a=1 --token=abc --b=2") == f"--a=1 --token={REDACTED} --b=2"
    assert redact("TORCH_X", "Authorization: Bearer abc") == f"Authorization: Bearer {REDACTED}"


def test_takes_the_families_and_nothing_else() -> None:
    environ = {
        "NCCL_DEBUG": "INFO",
        "TORCH_NCCL_ASYNC_ERROR_HANDLING": "1",
        "OMP_NUM_THREADS": "8",
        "PYTHONHASHSEED": "0",
        "LD_PRELOAD": "x.so",
        "GLOO_SOCKET_IFNAME": "eth0",
        "HOME": "/root",
        "MASTER_ADDR": "a",
        "RANK": "0",
        "AWS_SECRET_ACCESS_KEY": "x",
        "HF_TOKEN": "x",
        "PATH": "/bin",
        "TORCHX": "no",
        "TF_XLA_FLAGS": "y",
    }
    found = collect_env(SavedHost({"environ": environ})).variables
    assert set(found) == {
        "NCCL_DEBUG",
        "TORCH_NCCL_ASYNC_ERROR_HANDLING",
        "OMP_NUM_THREADS",
        "PYTHONHASHSEED",
        "LD_PRELOAD",
        "GLOO_SOCKET_IFNAME",
        "TF_XLA_FLAGS",
    }


@pytest.mark.thorough
def test_caps_values_and_their_number() -> None:
    environ = {f"NCCL_X{i:04}": "v " * 5000 for i in range(1000)}
    found = collect_env(SavedHost({"environ": environ})).variables
    assert len(found) == 400
    assert max(map(len, found.values())) == 1024


def test_counts_nccls_configuration_files_as_environment() -> None:
    files = {
        "/etc/nccl.conf": "# comment\nNCCL_IB_DISABLE=1\r\nNCCL_DEBUG=INFO\nNCCL_X =1\nPATH=/evil\nnoequals\n",
        "/home/ann/.nccl.conf": "NCCL_DEBUG=TRACE\n",
        "/site/nccl.conf": "NCCL_DEBUG=VERSION\n",
    }

    def ask(**environ: str) -> dict[str, str]:
        return collect_env(SavedHost({"files": files, "environ": {"HOME": "/home/ann", **environ}})).variables

    assert ask() == {"NCCL_DEBUG": "TRACE", "NCCL_IB_DISABLE": "1"}
    assert ask(NCCL_DEBUG="WARN")["NCCL_DEBUG"] == "WARN"
    assert ask(NCCL_CONF_FILE="/site/nccl.conf")["NCCL_DEBUG"] == "VERSION"
