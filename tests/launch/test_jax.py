import json
import os
import random
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from allready.agent.jax_meeting import probe
from allready.launch import jax_rank
from allready.launch.backoff import Backoff
from allready.launch.jax import coordinator_ports, jax_environment, listening, local_devices
from allready.launch.jax_rendezvous import SOCKET, GiveUpError, Orders, meet
from allready.launch.request import RankCommand, RunRequest
from allready.model.addresses import split_endpoint
from tests.cases import cases
from tests.launch.jax_agents import Agents

pytestmark = pytest.mark.jobs

QUICK = RunRequest(
    command=RankCommand(target="t.py"),
    nproc_per_node=2,
    jax_timeout_s=10.0,
    jax_backoff=Backoff(base_s=0.2, most_s=0.5),
)
IMPATIENT = RunRequest(
    command=RankCommand(target="t.py"),
    nproc_per_node=2,
    jax_attempts=2,
    jax_timeout_s=1.5,
    jax_backoff=Backoff(base_s=0.2, most_s=0.2),
)
NODES = (("gpu01", 1), ("gpu02", 1))

SUM = """
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P
devices = jax.devices()
sharding = NamedSharding(Mesh(np.array(devices), ("all",)), P("all"))
values = np.arange(1, len(devices) + 1, dtype=np.float32)
array = jax.make_array_from_callback(values.shape, sharding, lambda i: values[i])
print("SUM", float(jax.jit(lambda x: x.sum(), out_shardings=NamedSharding(sharding.mesh, P()))(array)), flush=True)
print("COUNT", jax.process_count(), jax.process_index(), flush=True)
"""
PLAIN = "import jax\njax.distributed.initialize()\n"
RUNNER = """
import sys, runpy
from allready.launch import jax_rank
jax_rank.install()
runpy.run_path(sys.argv[1], run_name="__main__")
"""


class Ranks:
    """Real rank processes; whatever happens, they end with the test."""

    def __init__(self, folder: Path, agents: Agents, request: RunRequest = QUICK) -> None:
        self.folder = folder
        self.ports = agents.ports
        self.agents = agents
        self.request = request
        self.processes: list[subprocess.Popen[str]] = []

    def start(self, process: int, script: str, **environ: str) -> subprocess.Popen[str]:
        file = self.folder / f"rank{process}.py"
        file.write_text(script)
        added = jax_environment(
            self.request,
            process_id=process,
            local_rank=process,
            num_processes=2,
            host="127.0.0.1",
            port=self.ports[0],
            run_dir=self.agents.run_dirs[process],
        )
        child = subprocess.Popen(
            [sys.executable, "-c", RUNNER, str(file)],
            env={**os.environ, "JAX_PLATFORMS": "cpu", **added, **environ},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        self.processes.append(child)
        return child

    def end(self) -> None:
        for child in self.processes:
            if child.poll() is None:
                os.killpg(child.pid, signal.SIGKILL)
            child.communicate(timeout=10)


@pytest.fixture
def ranks(tmp_path: Path) -> Iterator[Ranks]:
    with Agents(QUICK, NODES) as agents:
        made = Ranks(tmp_path, agents)
        try:
            yield made
        finally:
            made.end()


def ended(child: subprocess.Popen[str], timeout_s: float = 60.0) -> tuple[int, str, str]:
    out, err = child.communicate(timeout=timeout_s)
    return child.returncode, out, err


def both_summed(children: list[subprocess.Popen[str]]) -> list[str]:
    errors = []
    for child in children:
        code, out, err = ended(child)
        assert code == 0, err
        assert "SUM 3.0" in out
        assert "COUNT 2 " in out
        errors.append(err)
    return errors


@contextmanager
def stale_coordinator(port: int) -> Iterator[None]:
    """A coordinator of another run, as JAX itself opens it: gRPC, willing to share its port."""
    code = (
        "import sys, time\nfrom jax._src.lib import _jax\n"
        f"s = _jax.get_distributed_runtime_service('[::]:{port}', 2)\nprint('up', flush=True)\nsys.stdin.read()\n"
    )
    child = subprocess.Popen(
        [sys.executable, "-c", code],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        start_new_session=True,
    )
    try:
        assert child.stdout is not None
        assert child.stdout.readline() == "up\n"
        yield
    finally:
        child.kill()
        child.communicate(timeout=10)


# Real JAX


@pytest.mark.jax
def test_initialize_without_arguments_finds_everybody(ranks: Ranks) -> None:
    errors = both_summed([ranks.start(p, PLAIN + SUM) for p in (0, 1)])
    assert not any("allready" in err for err in errors)


@pytest.mark.jax
def test_initialize_with_the_scripts_own_arguments(ranks: Ranks) -> None:
    own = coordinator_ports()[0]
    script = (
        "import os\nfrom jax.distributed import initialize\nimport jax\n"
        f"initialize('127.0.0.1:{own}', 2, int(os.environ['JAX_PROCESS_ID']), initialization_timeout=30)\n"
        "from jax._src.distributed import global_state\n"
        f"assert global_state.coordinator_address == '127.0.0.1:{own}'\n"
    )
    errors = both_summed([ranks.start(p, script + SUM) for p in (0, 1)])
    assert all(f"coordinator_address=127.0.0.1:{own}" in err and "the script's value holds" in err for err in errors)


@pytest.mark.jax
def test_a_coordinator_that_comes_late_is_waited_for_and_named(ranks: Ranks) -> None:
    late = ranks.start(1, PLAIN + SUM)
    assert late.stderr is not None
    said = late.stderr.readline()
    assert "process 0 (gpu01) is missing, 1 of 2 are here (" in said
    both_summed([ranks.start(0, PLAIN + SUM), late])


@pytest.mark.jax
def test_nobody_joins_a_stale_coordinator_on_the_old_port(ranks: Ranks) -> None:
    with stale_coordinator(ranks.ports[0]):
        check = "from jax._src.distributed import global_state\nprint('AT', global_state.coordinator_address)\n"
        children = [ranks.start(p, PLAIN + check + SUM) for p in (0, 1)]
        for child in children:
            code, out, err = ended(child)
            assert code == 0, err
            assert f"AT 127.0.0.1:{ranks.ports[1]}" in out


@pytest.mark.jax
def test_a_stale_coordinator_on_the_scripts_own_port_is_a_failed_attempt_until_it_ends(ranks: Ranks) -> None:
    own = coordinator_ports()[0]
    script = f"import jax, os\njax.distributed.initialize('127.0.0.1:{own}', 2, int(os.environ['JAX_PROCESS_ID']))\n"
    with stale_coordinator(own):
        children = [ranks.start(p, script + SUM) for p in (0, 1)]
        assert children[0].stderr is not None
        seen = ""
        while "is held by another program" not in seen:
            line = children[0].stderr.readline()
            assert line, seen
            seen += line
    both_summed(children)


@pytest.mark.jax
def test_a_first_attempt_that_jax_itself_gives_up_is_repeated_by_all(ranks: Ranks) -> None:
    script = (
        "import jax, jax.errors\nfrom jax._src import distributed\n"
        "state, calls = distributed.global_state, []\nreal = state.initialize\n"
        "def initialize(*args, **kwargs):\n"
        "    calls.append(args)\n"
        "    if len(calls) == 1:\n"
        "        state.client = object()\n"
        "        raise jax.errors.JaxRuntimeError('UNAVAILABLE: the network was away')\n"
        "    return real(*args, **kwargs)\n"
        "state.initialize = initialize\njax.distributed.initialize()\nprint('CALLS', len(calls))\n"
    )
    for child in [ranks.start(p, script + SUM) for p in (0, 1)]:
        code, out, err = ended(child)
        assert code == 0, err
        assert "CALLS 2" in out
        assert "attempt 1 of 5: UNAVAILABLE: the network was away; again in" in err


@pytest.mark.jax
def test_a_missing_process_is_named_at_once_and_the_end_is_jaxs_own_error(tmp_path: Path) -> None:
    script = (
        "import jax, time\nstart = time.monotonic()\n"
        "try:\n    jax.distributed.initialize()\nexcept jax.errors.JaxRuntimeError as error:\n"
        "    print('ERROR', error)\n    print('AFTER', time.monotonic() - start)\n"
    )
    with Agents(IMPATIENT, NODES) as agents:
        ranks = Ranks(tmp_path, agents, IMPATIENT)
        try:
            code, out, err = ended(ranks.start(0, script))
        finally:
            ranks.end()
    assert code == 0, err
    assert "attempt 1 of 2: process 1 (gpu02) is missing, 1 of 2 are here; again in" in err
    assert "ERROR DEADLINE_EXCEEDED: jax.distributed.initialize: process 1 (gpu02) is missing" in out
    assert "after 2 attempts" in out
    after = re.search(r"AFTER ([\d.]+)", out)
    assert after is not None
    assert 3.0 <= float(after[1]) < 15


@pytest.mark.jax
def test_wrong_arguments_are_left_to_jax(ranks: Ranks) -> None:
    for call, words in (
        ("jax.distributed.initialize(process_id=7)", "process_id"),
        ("jax.distributed.initialize(no_such=1)", "no_such"),
    ):
        code, _, err = ended(ranks.start(0, f"import jax\n{call}\n"))
        assert code == 1
        assert words in err.splitlines()[-1]


@pytest.mark.jax
def test_without_orders_or_with_garbage_the_script_runs_unchanged(tmp_path: Path) -> None:
    file = tmp_path / "t.py"
    file.write_text(
        "import jax, os\ninitialize = jax.distributed.initialize\n"
        "print('wrapped' if hasattr(initialize, '__wrapped__') else 'plain', os.environ.get('ALLREADY_JAX'))\n"
    )
    for text, note in (("", False), ("{}", True)):
        done = subprocess.run(
            [sys.executable, "-c", RUNNER, str(file)],
            capture_output=True,
            text=True,
            timeout=60,
            check=True,
            env={**os.environ, "JAX_PLATFORMS": "cpu", "ALLREADY_JAX": text},
        )
        assert done.stdout.split()[0] == "plain"
        assert ("not wrapped" in done.stderr) == note


# The meeting, without JAX


def orders(process: int, number: int, agents: Agents, node: int = 0, **more: Any) -> Orders:
    address = f"127.0.0.1:{agents.ports[0]}"
    return Orders(process=process, num_processes=number, address=address, run_dir=agents.run_dirs[node], **more)


def request_of(attempts: int = 2, timeout_s: float = 2.0) -> RunRequest:
    return RunRequest(
        command=RankCommand(target="t.py"),
        jax_attempts=attempts,
        jax_timeout_s=timeout_s,
        jax_backoff=Backoff(base_s=0.1, most_s=0.1, jitter=0.0),
    )


class Process(threading.Thread):
    """One process of a meeting, in a thread."""

    def __init__(self, own: Orders, delay_s: float = 0.0, **more: Any) -> None:
        super().__init__()
        self.own, self.delay_s, self.more = own, delay_s, more
        self.answer: tuple[str, int] | None = None
        self.error: Exception | None = None

    def run(self) -> None:
        time.sleep(self.delay_s)
        try:
            self.answer = meet(self.own, **self.more)
        except GiveUpError as error:
            self.error = error


def met(threads: list[Process]) -> list[Process]:
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
        assert not thread.is_alive()
    return threads


def test_many_processes_of_several_nodes_meet_in_any_order() -> None:
    with Agents(request_of(timeout_s=20.0), [("a", 8), ("b", 8), ("c", 8)]) as agents:
        threads = met(
            [Process(orders(p, 24, agents, p // 8), delay_s=random.Random(p).random() * 0.5) for p in range(24)]
        )
        assert {thread.answer for thread in threads} == {(f"127.0.0.1:{agents.ports[0]}", 0)}
        listener = listening(agents.ports[0])  # the port is free for JAX
        assert listener is not None
        listener.close()


def test_all_get_the_same_reason_when_one_never_comes(capsys: pytest.CaptureFixture[str]) -> None:
    with Agents(request_of(), [("a", 2), ("b", 2)]) as agents:
        threads = met([Process(orders(p, 4, agents, p // 2)) for p in (0, 1, 3)])
    assert {str(thread.error) for thread in threads} == {str(threads[0].error)}
    assert "process 2 (b) is missing, 3 of 4 are here after 2 attempts" in str(threads[0].error)
    said = [line for line in capsys.readouterr().err.splitlines() if "attempt 1 of 2" in line]
    assert len(said) == 3, "every process says it once"
    assert said[0].endswith("attempt 1 of 2: process 2 (b) is missing, 3 of 4 are here; again in 0.1 s")


def test_a_script_that_waits_longer_is_given_its_time() -> None:
    with Agents(request_of(timeout_s=0.5), [("a", 2)]) as agents:
        start = time.monotonic()
        with pytest.raises(GiveUpError, match="attempts"):
            meet(orders(0, 2, agents), patience_s=2.5)
    assert time.monotonic() - start >= 2.5


def test_attempts_that_jax_itself_used_up_count() -> None:
    with Agents(request_of(timeout_s=20.0), [("a", 2)]) as agents:
        threads = met([Process(orders(p, 2, agents), failed=p) for p in (0, 1)])
        assert [thread.answer for thread in threads] == [(f"127.0.0.1:{agents.ports[0]}", 1)] * 2
        again = met([Process(orders(p, 2, agents), failed=2) for p in (1, 0)])
        assert [thread.answer for thread in again] == [(f"127.0.0.1:{agents.ports[0]}", 2)] * 2


def test_two_groups_of_a_script_meet_at_their_own_coordinators() -> None:
    ports = [coordinator_ports()[0] for _ in (0, 1)]
    with Agents(request_of(timeout_s=20.0), [("a", 4)]) as agents:
        threads = met(
            [Process(orders(p, 2, agents, coordinator=f"127.0.0.1:{port}")) for port in ports for p in (0, 1)]
        )
    assert [t.answer for t in threads] == [(f"127.0.0.1:{port}", 0) for port in ports for _ in (0, 1)]


def test_process_0_listens_where_the_script_binds_it() -> None:
    other, bound = coordinator_ports()[:2]
    with Agents(request_of(timeout_s=1.5), [("a", 2)]) as agents:
        own: dict[str, Any] = {"coordinator": f"127.0.0.1:{other}", "bind": f"0.0.0.0:{bound}"}
        threads = met([Process(orders(p, 2, agents, **own)) for p in (0, 1)])
    assert all(f"nothing listens at 127.0.0.1:{other}" in str(thread.error) for thread in threads), "as told"


def test_a_process_that_ended_is_missing_again() -> None:
    """It closed its connection silently, as a killed one does."""
    with Agents(request_of(timeout_s=1.5), [("a", 2)]) as agents:
        host = Process(orders(0, 2, agents))
        host.start()
        with socket.socket(socket.AF_UNIX) as sock:
            sock.connect(f"{agents.run_dirs[0]}/{SOCKET}")
            sock.sendall(json.dumps({"process": 1, "num_processes": 2}).encode() + b"\n")
            assert sock.recv(65536)
        host.join(20)
    assert "process 1 (a) is missing" in str(host.error)


def test_a_process_that_cannot_reach_process_0_says_why() -> None:
    with Agents(request_of(timeout_s=1.5), [("a", 1), ("b", 1)], tokens=("t0", "t1")) as agents:
        threads = met([Process(orders(p, 2, agents, p)) for p in (0, 1)])
    for thread in threads:
        assert "process 1 (b) does not reach process 0 (a): another program answers at" in str(thread.error)


def test_ports_that_are_all_held_are_told() -> None:
    with Agents(request_of(timeout_s=1.5), [("a", 2)]) as agents:
        held = [listening(port) for port in agents.ports]
        threads = met([Process(orders(p, 2, agents)) for p in (0, 1)])
        for sock in held:
            assert sock is not None
            sock.close()
    assert f"process 0 (a): port {agents.ports[0]}, " in str(threads[1].error)
    assert "is held by another program" in str(threads[1].error)


def test_garbage_at_the_socket_neither_counts_nor_hurts() -> None:
    with Agents(request_of(timeout_s=20.0), [("a", 2)]) as agents:
        for data in (
            b"GET / HTTP/1.1\r\n\r\n",
            b"{" * 500 + b"\n",
            b"[1]\nnull\n",
            b"\xff\x00" * 60_000,
            b'{"process": true, "num_processes": 2}\n',
            b'{"process": -1, "num_processes": 2}\n',
        ):
            with socket.socket(socket.AF_UNIX) as sock, suppress(OSError):
                sock.connect(f"{agents.run_dirs[0]}/{SOCKET}")
                sock.settimeout(5)
                sock.sendall(data)
                assert sock.recv(100) == b""
        threads = met([Process(orders(p, 2, agents)) for p in (0, 1)])
    assert [thread.answer for thread in threads] == [(f"127.0.0.1:{agents.ports[0]}", 0)] * 2


def test_an_agent_that_is_gone_is_an_error_that_says_so(tmp_path: Path) -> None:
    with pytest.raises(GiveUpError, match="the agent of this node does not answer"):
        meet(Orders(process=1, num_processes=2, address="127.0.0.1:1", run_dir=str(tmp_path)))


def test_a_port_that_is_shared_by_its_holder_counts_as_taken() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as holder:
        holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        holder.bind(("127.0.0.1", 0))
        holder.listen()
        assert listening(holder.getsockname()[1]) is None


async def test_a_path_that_is_silent_is_told_from_a_port_that_is_not_open() -> None:
    port = coordinator_ports()[0]
    assert await probe(f"127.0.0.1:{port}", "mine") == f"nothing listens at 127.0.0.1:{port}"
    with socket.socket() as full:  # its queue is full: further connections get no answer
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        first = [socket.socket() for _ in range(4)]
        for sock in first:
            sock.setblocking(False)
            sock.connect_ex(full.getsockname())
        assert "no answer from" in await probe(f"127.0.0.1:{full.getsockname()[1]}", "mine")
        for sock in first:
            sock.close()


OWN = Orders(process=3, num_processes=8, address="a:1", run_dir="/dev/shm/a b", backoff=Backoff(most_s=5.0))


def test_waits_grow_by_two_with_jitter_up_to_the_most() -> None:
    for attempt, middle in enumerate((1.0, 2.0, 4.0, 5.0, 5.0)):
        waits = [OWN.backoff.wait_s(attempt) for _ in range(200)]
        assert all(0.75 * middle <= wait <= 1.25 * middle for wait in waits)
        assert max(waits) - min(waits) > 0.2 * middle
    assert OWN.backoff.wait_s(100_000) <= 6.25


def test_orders_survive_the_environment() -> None:
    assert Orders.from_json(OWN.to_json()) == OWN
    for text in ("null", "{}", "[]", '{"backoff": []}', OWN.to_json().replace("0.25", '"x"')):
        with pytest.raises(ValueError):
            Orders.from_json(text)


def test_addresses_of_both_families_are_understood() -> None:
    assert split_endpoint("gpu07:1234") == ("gpu07", 1234)
    assert split_endpoint("[::1]:7") == ("::1", 7)
    wrong = ("nonsense", ":5", "[]:5", "a:0", "a:70000", "a:000029500000", "a:" + 5_000 * "1", "a:b", "")
    assert [split_endpoint(text) for text in wrong] == len(wrong) * [None]


# What the agent prepares


def test_the_environment_has_what_jax_and_scripts_read() -> None:
    request = RunRequest(command=RankCommand(target="t"), nproc_per_node=4)
    added = jax_environment(
        request, process_id=5, local_rank=1, num_processes=8, host="a", port=7, run_dir="/r", num_gpus=8
    )
    assert added["JAX_COORDINATOR_ADDRESS"] == "a:7"
    assert (added["JAX_NUM_PROCESSES"], added["JAX_PROCESS_ID"]) == ("8", "5")
    assert added["JAX_LOCAL_DEVICE_IDS"] == "2,3"
    again = Orders.from_json(added[jax_rank.VARIABLE])
    assert (again.attempts, again.timeout_s, again.backoff) == (5, 10.0, Backoff(most_s=30.0))
    assert (again.process, again.num_processes, again.run_dir) == (5, 8, "/r")
    grouped = RunRequest(command=RankCommand(target="t"), nproc_per_node=2, devices=("0,1", "2,3"))
    assert (
        jax_environment(
            grouped, process_id=1, local_rank=1, num_processes=2, host="a", port=7, run_dir="/r", num_gpus=2
        )["JAX_LOCAL_DEVICE_IDS"]
        == "2,3"
    )
    kept = jax_environment(
        request,
        process_id=5,
        local_rank=1,
        num_processes=8,
        host="a",
        port=7,
        run_dir="/r",
        num_gpus=8,
        environ={"JAX_LOCAL_DEVICE_IDS": "0"},
    )
    assert "JAX_LOCAL_DEVICE_IDS" not in kept


@pytest.mark.jax
def test_jax_reads_what_is_set_for_it() -> None:
    distributed = pytest.importorskip("jax._src.distributed")
    source = Path(distributed.__file__).read_text()
    assert "JAX_COORDINATOR_ADDRESS" in source
    assert "JAX_LOCAL_DEVICE_IDS" in source


@cases(
    ("local_rank", "nproc", "gpus", "expected"),
    [(0, 1, 8, ()), (1, 2, 0, (1,)), (1, 8, 8, (1,)), (1, 2, 8, (4, 5, 6, 7)), (2, 3, 8, (2,)), (3, 4, 2, (1,))],
)
def test_local_gpus_are_shared_out(local_rank: int, nproc: int, gpus: int, expected: tuple[int, ...]) -> None:
    assert local_devices(local_rank, nproc, gpus) == expected


def test_ports_are_free_distinct_and_below_the_ephemeral_ones() -> None:
    ports = coordinator_ports()
    assert len(set(ports)) == 5
    first = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    assert first <= 16_000 or max(ports) < first
