"""Jobs in which no rank moves and no record says why: that much is reported, whatever the ranks wait for."""

import textwrap

import pytest

from tests.agent.jobs import Job, wait_for

BEGIN = {
    "torch": """
        import torch, torch.distributed as dist
        dist.init_process_group("gloo")
        values = torch.ones(4)
        for step in range(30): dist.all_reduce(values)
    """,
    "jax": """
        import jax, jax.numpy as jnp
        double = jax.jit(lambda v: v * 2)
        for step in range(30): double(jnp.ones(4)).block_until_ready()
    """,
}
STANDS = {
    "native": "import ctypes; ctypes.CDLL(None).sleep(600)",
    "lock": """
        import fcntl, os
        lock = open(os.path.join(os.path.dirname(__file__), "lock"))
        fcntl.flock(lock, fcntl.LOCK_EX)
    """,
    "retry": """
        import time
        while True:
            try: open("/nonexistent/data")
            except OSError as error: time.sleep(1)
    """,
    # The main thread of torch's loader comes back every 5 s, and waits again.
    "loader of torch": """
        import time, torch
        class Data(torch.utils.data.IterableDataset):
            def __iter__(self):
                while True: time.sleep(0.5)
                yield 1
        for batch in torch.utils.data.DataLoader(Data(), num_workers=1): dist.all_reduce(values)
    """,
    "loader of jax": """
        import queue, threading, time
        batches = queue.Queue()
        def work():
            while True: time.sleep(0.5)
        threading.Thread(target=work, daemon=True).start()
        double(batches.get())
    """,
}
GOES_ON = """
    import time, torch
    class Data(torch.utils.data.IterableDataset):
        def __iter__(self):
            while True:
                time.sleep(3)
                yield 1
    for batch in torch.utils.data.DataLoader(Data(), num_workers=1): pass
"""
"""A slow file server: one line, no operation, next to no processor; but batches come."""


@pytest.mark.slow
@pytest.mark.torch
@pytest.mark.jax
@pytest.mark.timeout(300)
def test_where_nothing_moves_that_is_told_in_torch_and_in_jax_and_never_of_a_slow_loader(job: Job) -> None:
    import fcntl

    (job.folder / "lock").touch()
    nodes = {}
    with (job.folder / "lock").open() as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        for framework, begin in BEGIN.items():
            for name, text in {**STANDS, "goes on": GOES_ON}.items():
                if name.partition(" of ")[2] not in {"", framework} or (name, framework) == ("goes on", "jax"):
                    continue
                label = f"{framework} {name}"
                script = job.script(textwrap.dedent(begin) + textwrap.dedent(text), f"{label.replace(' ', '_')}.py")
                nodes[label] = job.start(
                    "--nproc-per-node",
                    "1",
                    *(["--framework", "jax"] if framework == "jax" else []),
                    script,
                    env={"JAX_PLATFORMS": "cpu"},
                )
        assert len(nodes) == 9
        quiet = nodes.pop("torch goes on")

        def silent() -> set[str]:
            said = {name: (node.report_dir / "report.json") for name, node in nodes.items()}
            return {name for name, path in said.items() if not path.exists() or "LIV014" not in path.read_text()}

        wait_for(lambda: not silent(), 200.0)
        assert "LIV014" not in (quiet.report_dir / "report.json").read_text()
