"""Is a script torch's or JAX's?  A cheap scan of what it imports; nothing is executed."""

import ast
import warnings
from pathlib import Path

MAX_BYTES = 1 << 20
_TORCH = {"torch", "lightning", "pytorch_lightning", "deepspeed", "accelerate", "transformers", "torchvision"}
_JAX = {"jax", "flax", "optax", "orbax", "equinox", "haiku", "maxtext"}


def framework_of(path: str, *, is_module: bool = False) -> str:
    """ "jax" if the file imports JAX or a library on top of it, and nothing of torch; else "torch".

    What cannot be read or parsed is "torch", too: then torch's launcher works as it always did.  `is_module` searches
    for `a.b` as a/b.py or a/b/__main__.py below the working directory.
    """
    file = _file(path, is_module)
    try:
        if file is None or not file.is_file():  # a pipe would never end
            return "torch"
        with file.open("rb") as source, warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about the script's own text: its ranks print them
            tree = ast.parse(source.read(MAX_BYTES))
    except (OSError, SystemError, SyntaxError, ValueError, RecursionError, MemoryError):
        return "torch"
    roots = _imported(tree)
    return "jax" if roots & _JAX and not roots & _TORCH else "torch"


def _file(path: str, is_module: bool) -> Path | None:
    if not is_module:
        return Path(path)
    base = Path(*path.split("."))
    return next((file for file in (base.with_suffix(".py"), base / "__main__.py") if file.is_file()), None)


def _imported(tree: ast.AST) -> set[str]:
    roots: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            roots |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            roots.add(node.module.partition(".")[0])
    return roots
