"""What torch and JAX answer in a process of their own: real children with made-up modules, and the real JAX."""

import os
import threading
from pathlib import Path
from typing import Any

import msgspec
import pytest

from allready.facts.import_probe import import_in_child
from allready.facts.imports import collect_imports
from allready.model import FactMissing, GpuFacts, Import, ImportFacts, NodeFacts
from allready.proc.process import all_pids, environ_of
from allready.report.facts_table import rows
from tests.clock import Stopwatch
from tests.facts.saved_host import SavedHost

pytestmark = pytest.mark.jobs

CUDA = "class version: cuda, hip = '12.8', None\nclass cuda:\n    device_count = staticmethod(lambda: {count})\n"
TWO_GPUS = CUDA.format(count=2) + (
    "    can_device_access_peer = staticmethod(lambda a, b: a > b)\n"
    "    get_device_name = staticmethod(lambda n: 'NVIDIA H200')\n"
)
NO_GPU = CUDA.format(count=0) + (
    "    @staticmethod\n    def init():\n        raise RuntimeError('Error 802: system not yet initialized')\n"
)


def asked(folder: Path, text: str, *, timeout_s: float = 30.0, devices: bool = True) -> Import:
    """What became of a torch that is this text."""
    folder.mkdir()
    (folder / "torch.py").write_text(text)
    environ = {**os.environ, "PYTHONPATH": str(folder), folder.name: "1"}
    answer = import_in_child("import:torch:devices" if devices else "import:torch", environ, timeout_s=timeout_s)
    return msgspec.convert({**answer, "module": "torch"}, Import)


def test_modules_that_misbehave_are_told_apart(tmp_path: Path) -> None:
    flood = "import os\nfor _ in range(300): os.write(2, b'x' * 2**20)\n"
    told = {
        "garbage": (
            "import os\nfor _ in range(999): print('{\"outcome\": 7}', '\\x00')\nos.write(1, b'\\xff')",
            "imported",
        ),
        "flood": (flood, "imported"),
        "flood_and_fail": (f"{flood}raise ImportError('libcudart')", "failed"),
        "silent_exit": ("import os; os._exit(0)", "died"),
        "sys_exit": ("import sys; sys.exit(0)", "failed"),
        "crash": ("import os; os.kill(os.getpid(), 11)", "died"),
        # A process that it leaves behind holds its pipes open; that is no hang of the import.
        "fork": ("import os, time\nif not os.fork(): time.sleep(600)", "imported"),
    }
    started = Stopwatch()
    found = {name: asked(tmp_path / name, text, devices=False).outcome for name, (text, _) in told.items()}
    assert found == {name: outcome for name, (_, outcome) in told.items()}
    assert started.s < 30.0 * 2, "nothing waited for its deadline more than once"
    assert [pid for pid in all_pids() if "fork" in environ_of(pid)] == []


def test_one_that_waits_in_c_is_silent_although_the_signal_ends_its_wait(tmp_path: Path) -> None:
    found = asked(tmp_path / "hang", "import ctypes\nctypes.PyDLL(None).sleep(600)\n", timeout_s=3.0, devices=False)
    assert (found.outcome, found.recent_cpu_s, found.versions) == ("silent", 0.0, {})


def test_asking_for_devices_is_a_step_of_its_own(tmp_path: Path) -> None:
    two = asked(tmp_path / "two", TWO_GPUS).devices
    assert two is not None
    assert (two.outcome, two.platform, two.names, two.peers_off) == (
        "answered",
        "cuda",
        ("NVIDIA H200",) * 2,
        ((0, 1),),
    )
    none = asked(tmp_path / "none", NO_GPU).devices
    assert none is not None
    assert (none.names, none.error) == ((), "RuntimeError: Error 802: system not yet initialized")
    ends = {
        "failed": CUDA.format(count="1 // 0"),
        "died": f"import os\n{CUDA.format(count='os.kill(os.getpid(), 11)')}",
        "silent": f"import time\n{CUDA.format(count='time.sleep(600)')}",
    }
    for outcome, text in ends.items():
        one = asked(tmp_path / outcome, text, timeout_s=4.0 if outcome == "silent" else 30.0)
        assert one.outcome == "imported"
        assert one.versions["torch-cuda"] == "12.8"
        assert one.devices is not None
        assert one.devices.outcome == outcome
        if outcome == "silent":
            assert "torch.py" in one.devices.stack[0]
    assert asked(tmp_path / "unasked", TWO_GPUS, devices=False).devices is None


def test_a_flag_that_the_real_jax_does_not_know_ends_it_when_it_is_asked() -> None:
    environ = {**os.environ, "JAX_PLATFORMS": "cpu", "XLA_FLAGS": "--xla_nonsense=1"}
    one = msgspec.convert({**import_in_child("import:jax:devices", environ, timeout_s=60.0), "module": "jax"}, Import)
    if one.outcome == "absent":
        pytest.skip("JAX is not installed")
    assert one.outcome == "imported"
    assert one.devices is not None
    assert one.devices.outcome == "died"
    assert "xla_nonsense" in (one.devices.error or "")


def test_gpus_are_used_only_when_somebody_asks_for_it() -> None:
    """Which question each module is asked, by the files in /dev and by --use-gpus."""

    class Recorder(SavedHost):
        def probe(self, name: str, *, timeout_s: float) -> Any:
            questions.append(name)
            return {"outcome": "absent"}

    for names, use_gpus, expected in (
        (["null", "tty"], False, {"import:torch", "import:jax:cpu"}),
        (["null", "nvidia0", "nvidiactl"], False, {"import:torch", "import:jax"}),
        (["null", "accel0"], False, {"import:torch", "import:jax"}),
        ([], False, {"import:torch", "import:jax"}),
        (["null", "nvidia0"], True, {"import:torch:devices", "import:jax:devices"}),
    ):
        questions: list[str] = []
        collect_imports(Recorder({"dirs": {"/dev": names}}), timeout_s=9.0, use_gpus=use_gpus)
        assert set(questions) == expected, names


def test_one_that_is_not_seen_in_time_takes_nothing_from_the_other() -> None:
    held = threading.Event()

    class Slow(SavedHost):
        def probe(self, name: str, *, timeout_s: float) -> Any:
            if "jax" in name:
                held.wait(30)
            return {"outcome": "died", "exit_code": 0}

    try:
        found = collect_imports(Slow({}), timeout_s=0.5)
    finally:
        held.set()
    assert [(one.module, one.outcome) for one in found.modules] == [("torch", "died"), ("jax", "silent")]


def test_devices_have_a_row(tmp_path: Path) -> None:
    one = asked(tmp_path / "two", TWO_GPUS)
    facts = NodeFacts(imports=ImportFacts(modules=(one,)), gpu=GpuFacts(gpus=()), host=FactMissing("no"))
    texts = [row.values[0].text for row in rows({0: dict(facts.items())}) if row.label.key == "fact_devices"]
    assert texts == ["cuda · 2 × NVIDIA H200 · P2P 0 / 1"]
