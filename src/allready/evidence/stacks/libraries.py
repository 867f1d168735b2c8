"""Whose file a frame is in: the user's own code, a library, or native code."""

from allready.model import Frame
from allready.patterns import compiled

_STANDARD = {
    "abc", "asyncio", "atexit", "codecs", "collections", "concurrent", "contextlib", "copy", "copyreg", "csv",
    "ctypes", "dataclasses", "encodings", "enum", "functools", "gzip", "http", "importlib", "inspect", "io", "json",
    "linecache", "logging", "lzma", "multiprocessing", "os", "pathlib", "pickle", "posixpath", "queue", "random", "re",
    "runpy", "selectors", "shutil", "signal", "socket", "socketserver", "ssl", "struct", "subprocess", "tarfile",
    "tempfile", "threading", "tokenize", "traceback", "typing", "unittest", "urllib", "uuid", "warnings", "weakref",
    "xml", "xmlrpc", "zipfile", "zipimport", "_bootsubprocess", "site", "ast", "hashlib", "configparser", "argparse",
}  # fmt: skip
_PACKAGES = {
    "torch", "torchvision", "torchaudio", "torchdata", "torch_xla", "triton", "jax", "jaxlib", "flax", "optax", "orbax",
    "numpy", "scipy", "pandas", "sklearn", "pyarrow", "h5py", "zarr", "PIL", "cv2", "transformers", "accelerate",
    "deepspeed", "lightning", "pytorch_lightning", "lightning_fabric", "lightning_utilities", "datasets", "tokenizers",
    "huggingface_hub", "hf_transfer", "safetensors", "peft", "trl", "evaluate", "requests", "urllib3", "httpx",
    "httpcore", "aiohttp", "botocore", "boto3", "s3transfer", "s3fs", "fsspec", "gcsfs", "aiobotocore", "google",
    "grpc", "tensorflow", "tensorboard", "tensorboardX", "wandb", "mlflow", "ray", "xformers", "flash_attn", "apex",
    "megatron", "webdataset", "streaming", "sentencepiece", "tiktoken", "nltk", "spacy", "hydra", "omegaconf", "click",
    "typer", "fire", "absl", "tqdm", "psutil", "vllm", "composer", "nemo", "numba", "cupy", "dill", "multiprocess",
    "cloudpickle", "msgpack", "zmq", "tenacity", "einops", "timm", "ignite", "horovod", "bitsandbytes",
    "transformer_engine", "nvidia", "pydantic", "yaml", "lmdb", "decord", "av", "joblib", "filelock", "rich",
}  # fmt: skip
_NATIVE = r"(?:\.so(?:\.[\d.]+)?$|\.(?:c|cc|cpp|cu|h|hpp|S)$|^kernel$|^\[|^$)"
_GENERATED = ("torchinductor_", "/triton_cache/", "/.triton/")
_TYPED_IN = ("<stdin>", "<ipython", "<cell")
_OWN = r"(?:^|/)allready/(?:live|launch)/"  # the wrapper around a rank's script, wherever it is installed
_INTERPRETER = r"(?:^|/)(?:python[\d.]*|libpython[\w.]*|pypy[\d.]*)$"
_INSTALLED = r"(?:site|dist)-packages/"
_STANDARD_PATH = r"/lib(?:64)?/python\d[\d.]*/"


CALLS = ("torch/distributed/distributed_c10d.py", "torch/distributed/nn/functional.py")
"""Where functions of torch.distributed are that programs call."""


def package_path(file: str) -> str:
    """The path below the folder of packages: `torch/cuda/__init__.py` for any way a tool shortens it."""
    path = file.replace("\\", "/")
    for pattern in (compiled(_INSTALLED), compiled(_STANDARD_PATH)):
        match = None
        for match in pattern.finditer(path):  # noqa: B007 -- the last one counts
            pass
        if match is not None:
            return path[match.end() :]
    return path


def is_native(frame: Frame) -> bool:
    """A C, C++ or kernel frame."""
    return bool(compiled(_NATIVE).search(frame.file) or compiled(_INTERPRETER).search(frame.file))


def is_users(frame: Frame) -> bool:
    """Python code that is neither the standard library's nor an installed package's."""
    file = frame.file.replace("\\", "/")
    if file.startswith(_TYPED_IN):
        return True
    if (
        is_native(frame)
        or file.startswith("<")
        or compiled(_OWN).search(file)
        or compiled(_INSTALLED).search(file)
        or compiled(_STANDARD_PATH).search(file)
    ):
        return False
    if any(part in file for part in _GENERATED):
        return False
    if file.startswith("/"):
        return True
    first = file.partition("/")[0]
    return first.removesuffix(".py") not in _STANDARD if first.endswith(".py") else first not in _STANDARD | _PACKAGES
