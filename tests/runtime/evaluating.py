"""Training jobs with evaluations, under the runtime library or with plain torch, and faults in them.

As a program: a plan per line on standard input, what became of the job per line on standard output.  It imports torch
once; each rank is a fork of it.
"""

import faulthandler
import json
import os
import random
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

SIZE = 4
STEPS = 18
EVERY = 6
BATCHES = 4
SAMPLES = 8
WAIT_S = 3.0
"""The deadline of evaluations; a stopped rank stays stopped until the others are done."""
LONG_S = 8.0
"""The deadline of training, and of all that plain torch does."""
FAULTS = ("skip", "raise", "stop", "die")
LIMIT_S = 180.0
"""Of a job whose ranks all end: with forty programs on two CPUs a good one takes longer than a minute."""
TITLES = {
    "skip": "rank skips the evaluation",
    "raise": "rank raises in evaluation",
    "stop": "rank stopped in evaluation",
    "die": "rank dies in the last barrier",
}


def fault_of(kind: str, seed: int) -> dict[str, Any]:
    """Where a fault of this kind strikes in the job of this seed."""
    chance = random.Random(f"{kind} {seed}")
    return {
        "kind": "skip-collective" if kind == "skip" and chance.random() < 0.5 else kind,
        "rank": chance.randrange(SIZE),
        "step": chance.randrange(EVERY, STEPS, EVERY),
        "batch": chance.randrange(BATCHES),
        "again": chance.random() < 0.5,  # "raise": as long as batches are large
        "after_s": chance.choice([0.0, 0.0, chance.uniform(0.0, 0.05)]),
    }


# one rank


class Trainer:
    """What both ways of training have in common."""

    def __init__(self, plan: dict[str, Any], rank: int) -> None:
        import torch

        self.plan, self.rank = plan, rank
        self.faults: list[dict[str, Any]] = [f for f in plan["faults"] if f["rank"] == rank]
        generator = torch.Generator().manual_seed(plan["seed"])
        self.inputs = torch.randn(STEPS, SIZE, SAMPLES, 4, generator=generator)
        self.targets = self.inputs.sum(-1, keepdim=True) + 0.1 * torch.randn(
            STEPS, SIZE, SAMPLES, 1, generator=generator
        )
        self.losses: dict[int, float] = {}
        self.outcomes: list[dict[str, Any]] = []
        self.records: list[dict[str, Any]] = []
        self.step = 0

    def batches(self) -> list[Any]:
        import torch

        numbers = torch.arange(BATCHES).repeat_interleave(SAMPLES).view(BATCHES, SAMPLES)
        return [(self.inputs[n, self.rank], self.targets[n, self.rank], numbers[n]) for n in range(BATCHES)]

    def due(self, kind: str, **where: int) -> dict[str, Any] | None:
        """The fault of this kind that strikes here, if there is one; it strikes once."""
        for fault in self.faults:
            if fault["kind"] == kind and all(fault[name] == value for name, value in where.items()):
                if kind != "poison" and not (kind == "raise" and fault["again"]):
                    self.faults.remove(fault)
                self.say(fault=kind)
                return fault
        return None

    def say(self, **values: Any) -> None:
        os.write(self.plan["pipe"], (json.dumps({"rank": self.rank, **values}) + "\n").encode())

    def train_step(self, model: Any, optimizer: Any) -> None:
        optimizer.zero_grad()
        loss = (model(self.inputs[self.step, self.rank]) - self.targets[self.step, self.rank]).pow(2).mean()
        loss.backward()
        optimizer.step()
        self.losses[self.step] = loss.item()

    def evaluate_batch(self, model: Any, batch: Any) -> dict[str, float]:
        import torch
        import torch.distributed as dist

        import allready

        here = {"step": self.step, "batch": int(batch[2][0])}
        is_large = len(batch[0]) > SAMPLES // 2
        if (is_large and self.due("raise", **here)) or self.due("poison", **here):
            raise ValueError("made by the test")
        if self.due("stop", **here):
            os.kill(os.getpid(), signal.SIGSTOP)
        with torch.no_grad():
            loss = (model(batch[0]) - batch[1]).pow(2).mean()
        if not self.due("skip-collective", **here):
            if self.plan["plain"]:
                dist.all_reduce(loss)
            elif self.plan.get("alone"):
                return {"loss": loss.item()}
            else:
                allready.safe_all_reduce(loss)
        return {"loss": loss.item() / dist.get_world_size()}

    def die_in_last_barrier(self) -> None:
        fault = self.due("die")
        if fault is not None:
            threading.Timer(fault["after_s"], os.kill, (os.getpid(), signal.SIGKILL)).start()


def made_model() -> Any:
    """The same on every rank."""
    import torch

    model = torch.nn.Linear(4, 1)
    torch.nn.init.zeros_(model.weight)
    torch.nn.init.zeros_(model.bias)
    return model


def train(plan: dict[str, Any], rank: int) -> None:
    """A rank under the runtime library."""
    import torch
    import torch.distributed as dist
    from torch.nn.parallel import DistributedDataParallel

    import allready

    trainer = Trainer(plan, rank)
    where, long = f"tcp://127.0.0.1:{plan['port']}", timedelta(seconds=LONG_S)
    allready.init_process_group(
        init_method=where, rank=rank, world_size=SIZE, timeout=long, answer_within=timedelta(seconds=2)
    )
    model = DistributedDataParallel(made_model())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)

    def take_over(recovery: allready.Recovery) -> None:
        nonlocal model
        if not recovery.is_same_group:
            model = DistributedDataParallel(model.module)
        for parameter in model.parameters():
            dist.broadcast(parameter.data, recovery.source)
        trainer.step = max(recovery.steps)

    @allready.resilient_evaluation(
        timeout=timedelta(seconds=WAIT_S),
        sync_timeout=timedelta(seconds=WAIT_S),
        on_recovery=take_over,
        min_ranks=2,
        recover_timeout=timedelta(seconds=20),
        communicates=not plan.get("alone"),
        record=lambda values, step: trainer.records.append({"step": step, **values}),
    )
    def evaluate(batch: Any) -> dict[str, float]:
        return trainer.evaluate_batch(model.module, batch)

    while trainer.step < STEPS:
        try:
            trainer.train_step(model, optimizer)
            allready.safe_barrier()
            trainer.step += 1
        except Exception as error:  # noqa: BLE001 - as in the documents
            take_over(allready.recover(error, step=trainer.step, min_ranks=2, timeout=timedelta(seconds=20)))
            continue
        if trainer.step % EVERY == 0 and not trainer.due("skip", step=trainer.step):
            found = evaluate(trainer.batches(), step=trainer.step)
            trainer.outcomes.append({"step": found.step, **found.records()})
    trainer.say(saved=True, losses=trainer.losses, outcomes=trainer.outcomes, records=trainer.records)
    trainer.die_in_last_barrier()
    failure = allready.finish(timeout=timedelta(seconds=LONG_S))
    verdict = None if failure is None else failure.verdict
    trainer.say(done=True, last=None if verdict is None else [verdict.code, list(verdict.culprits.ranks)])


def strike_in_step(trainer: Trainer) -> None:
    """The faults of a loop."""
    import torch

    if trainer.due("crash", step=trainer.step):
        raise ValueError("made by the test")
    if trainer.due("kill", step=trainer.step):
        os.kill(os.getpid(), signal.SIGKILL)
    if trainer.due("signal", step=trainer.step):
        os.kill(os.getpid(), signal.SIGTERM)
    if trainer.due("two-signals", step=trainer.step):
        for after_s in (0.1, 0.4, 1.6):  # the second is the first one again, passed on by a launcher
            threading.Timer(after_s, os.kill, (os.getpid(), signal.SIGINT)).start()
    if trainer.due("signal-again", step=trainer.step):
        for _ in range(2):  # as a scheduler and a launcher send it
            os.kill(os.getpid(), signal.SIGTERM)
            time.sleep(0.2)
    if trainer.due("sleep", step=trainer.step):
        time.sleep(5.0)
    if trainer.due("fork", step=trainer.step):
        loader = torch.utils.data.DataLoader(torch.arange(4), num_workers=2)
        trainer.say(loaded=len([batch for batch in loader]))  # noqa: C416 - its workers are ended by signals


def train_in_loop(plan: dict[str, Any], rank: int) -> None:
    """A rank whose training is a `TrainLoop`."""
    import torch
    import torch.distributed as dist
    from torch.nn.parallel import DistributedDataParallel

    import allready

    trainer = Trainer(plan, rank)
    allready.init_process_group(
        init_method=f"tcp://127.0.0.1:{plan['port']}",
        rank=rank,
        world_size=SIZE,
        timeout=timedelta(seconds=60),
        answer_within=timedelta(seconds=2),
    )
    model = DistributedDataParallel(made_model())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)

    def train_step(step: int) -> None:
        trainer.step = step
        strike_in_step(trainer)
        trainer.train_step(model, optimizer)

    def take_over(recovery: allready.Recovery, step: int) -> None:
        nonlocal model
        if not recovery.is_same_group:
            model = DistributedDataParallel(model.module)
        for parameter in model.parameters():
            dist.broadcast(parameter.data, recovery.source)
        trainer.say(recovered=recovery.rank, size=recovery.world_size, step=step)

    def after_step(step: int) -> None:
        if step % EVERY == 0:
            trainer.step = step
            found = loop.evaluate(lambda batch: trainer.evaluate_batch(model.module, batch), trainer.batches())
            trainer.outcomes.append({"step": found.step, **found.records()})

    def save(step: int) -> None:
        trainer.say(saved=True, step=step, losses=trainer.losses, outcomes=trainer.outcomes, records=[])

    loop = allready.TrainLoop(STEPS, on_recovery=take_over, after_step=after_step, min_ranks=2, save=save)
    end = loop.run(train_step)
    allready.finish(timeout=timedelta(seconds=LONG_S))
    trainer.say(done=True, last=None)
    sys.exit(end.exit_code)


def train_plain(plan: dict[str, Any], rank: int) -> None:
    """The same without the library."""
    import torch
    import torch.distributed as dist
    from torch.nn.parallel import DistributedDataParallel

    trainer = Trainer(plan, rank)
    where = f"tcp://127.0.0.1:{plan['port']}"
    dist.init_process_group("gloo", init_method=where, rank=rank, world_size=SIZE, timeout=timedelta(seconds=LONG_S))
    model = DistributedDataParallel(made_model())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    while trainer.step < STEPS:
        trainer.train_step(model, optimizer)
        trainer.step += 1
        if trainer.step % EVERY == 0 and not trainer.due("skip", step=trainer.step):
            found = [trainer.evaluate_batch(model.module, batch)["loss"] for batch in trainer.batches()]
            trainer.outcomes.append({"step": trainer.step, "eval/loss": sum(found) / BATCHES})
    trainer.say(saved=True, losses=trainer.losses, outcomes=trainer.outcomes, records=[])
    trainer.die_in_last_barrier()
    dist.barrier()
    dist.destroy_process_group()
    trainer.say(done=True, last=None)


# the job


def run_job(plan: dict[str, Any], limit_s: float) -> dict[str, Any]:
    """Fork the ranks and wait for them; what they said, and how each ended (None: it had to be killed)."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    read_end, write_end = os.pipe()
    given = {**plan, "port": port, "pipe": write_end}
    with tempfile.TemporaryFile() as errors:
        ranks = [_fork(given, rank, errors.fileno()) for rank in range(SIZE)]
        os.close(write_end)
        reader = _Reader(read_end)
        stopped = [f["rank"] for f in plan["faults"] if f["kind"] == "stop"]
        ends = wait_for(ranks, [r for r in range(SIZE) if r not in stopped], limit_s)
        for rank in stopped:
            os.kill(ranks[rank], signal.SIGCONT)
        ends |= wait_for(ranks, stopped, limit_s)
        said = reader.end()
        errors.seek(0)
        text = errors.read().decode(errors="replace")
    return {"plan": plan, "ends": [ends[r] for r in range(SIZE)], "said": said, "errors": text[-3000:]}


class _Reader:
    """Reads all that ranks say, so that none blocks in saying it."""

    def __init__(self, descriptor: int) -> None:
        self._lines: list[bytes] = []
        self._file = os.fdopen(descriptor, "rb")
        self._thread = threading.Thread(target=lambda: self._lines.extend(self._file), daemon=True)
        self._thread.start()

    def end(self) -> list[dict[str, Any]]:
        self._thread.join(10.0)
        self._file.close()
        return [json.loads(line) for line in self._lines]


def _fork(plan: dict[str, Any], rank: int, errors: int) -> int:
    pid = os.fork()
    if pid:
        return pid
    code = 1
    os.dup2(errors, 2)
    os.dup2(errors, 1)
    faulthandler.enable()
    try:
        (train_in_loop if plan.get("loop") else train_plain if plan["plain"] else train)(plan, rank)
        code = 0
    except SystemExit as end:
        code = int(end.code or 0)
    except BaseException:  # noqa: BLE001 - shown as the interpreter would
        sys.excepthook(*sys.exc_info())
        sys.last_value = sys.exc_info()[1]  # as the interpreter does before it ends
    finally:
        import atexit

        atexit._run_exitfuncs()
        os._exit(code)


def wait_for(ranks: list[int], which: list[int], limit_s: float) -> dict[int, int | None]:
    """How each of these processes ended; None: it had to be killed."""
    ends: dict[int, int | None] = {}
    until_s = time.monotonic() + limit_s
    while len(ends) < len(which):
        for rank in which:
            if rank not in ends:
                pid, status = os.waitpid(ranks[rank], os.WNOHANG)
                if pid:
                    ends[rank] = os.waitstatus_to_exitcode(status)
                elif time.monotonic() > until_s:
                    os.kill(ranks[rank], signal.SIGABRT)  # its threads' stacks are shown
                    time.sleep(1.0)
                    os.kill(ranks[rank], signal.SIGKILL)
                    os.waitpid(ranks[rank], 0)
                    ends[rank] = None
        time.sleep(0.01)
    return ends


def main() -> None:
    """Run every plan that comes."""
    import torch
    import torch._dynamo
    import torch.distributed.rendezvous
    import torch.nn.parallel

    import allready.runtime.evaluation  # noqa: F401 - all of these before the forks
    from allready.judging.loading import load_area

    load_area("runtime")

    torch.set_num_threads(1)
    for line in sys.stdin:
        found = run_job(json.loads(line), LIMIT_S)
        sys.stdout.write(json.dumps(found) + "\n")
        sys.stdout.flush()


# what must hold


def oracle(seed: int) -> tuple[list[list[float]], dict[int, float]]:
    """Losses by step and rank, and the result of each evaluation, of one process that has all data."""
    import torch

    trainer = Trainer({"seed": seed, "faults": []}, 0)
    model = made_model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    losses, results = [], {}
    for step in range(STEPS):
        optimizer.zero_grad()
        of_ranks = [(model(trainer.inputs[step, r]) - trainer.targets[step, r]).pow(2).mean() for r in range(SIZE)]
        torch.stack(of_ranks).mean().backward()
        optimizer.step()
        losses.append([loss.item() for loss in of_ranks])
        if (step + 1) % EVERY == 0:
            with torch.no_grad():
                found = (model(trainer.inputs[:BATCHES]) - trainer.targets[:BATCHES]).pow(2).mean()
            results[step + 1] = found.item()
    return losses, results


EXPECTED = {
    "skip": {"evaluation_failed": 1.0, "attempts": 0, "coverage": 0.0, "code": "RTM005"},
    "skip-collective": {"evaluation_failed": 0.0, "attempts": 2, "coverage": 1.0, "code": "RTM007"},
    "raise": {"evaluation_failed": 0.0, "attempts": 2, "coverage": 1.0, "code": "RTM002"},
    "stop": {"evaluation_failed": 0.0, "attempts": 2, "coverage": 0.75, "code": "RTM003"},
    "poison": {"evaluation_failed": 0.0, "attempts": 4, "code": "RTM002"},  # raises whatever the size is
}


def finishes(found: dict[str, Any]) -> bool:
    """Whether every rank but a stopped or dead one did all its steps and ended well."""
    lost = [f["rank"] for f in found["plan"]["faults"] if f["kind"] in {"stop", "die"}]
    done = {event["rank"] for event in found["said"] if event.get("done")}
    return all(r in done and found["ends"][r] == 0 for r in range(SIZE) if r not in lost)


def problems(found: dict[str, Any]) -> list[str]:
    """All that is wrong with a job under the runtime library that had at most one fault per evaluation."""
    faults = found["plan"]["faults"]
    lost = {f["rank"]: f for f in faults if f["kind"] == "stop"}
    dead = {f["rank"] for f in faults if f["kind"] == "die"}
    wrong = [] if finishes(found) else [f"did not finish: ends {found['ends']}: {found['errors'][-600:]}"]
    wrong += [f"rank {r} woke up and did not end by an error" for r in lost if found["ends"][r] in {0, None}]
    saved = {e["rank"]: e for e in found["said"] if e.get("saved")}
    first_loss = min((f["step"] for f in lost.values()), default=STEPS)
    losses, results = oracle(found["plan"]["seed"])
    for rank, event in saved.items():
        for step in range(first_loss):
            if abs(event["losses"][str(step)] - losses[step][rank]) > 1e-3 * max(1.0, losses[step][rank]):
                wrong.append(f"rank {rank}, step {step}: the loss is not as without a fault")
    by_step = {f["step"]: f for f in faults if f["kind"] in EXPECTED}
    for step in range(EVERY, STEPS + 1, EVERY):
        fault = by_step.get(step)
        asked = [r for r in saved if not (fault and fault["kind"] == "skip" and fault["rank"] == r)]
        said = [[o for o in saved[r]["outcomes"] if o["step"] == step] for r in asked]
        if not said or any(s != said[0] or len(s) != 1 for s in said):
            wrong.append(f"step {step}: not one outcome on all ranks: {said}")
            continue
        wrong += [f"step {step}: {text}" for text in _unexpected(found, said[0][0], fault, results[step])]
        records = [o for r in saved for o in saved[r]["records"] if o["step"] == step]
        if records != said[0] and not (step < first_loss < STEPS and 0 in lost):
            wrong.append(f"step {step}: recorded was {records}")
    ends = [e["last"] for e in found["said"] if e.get("done")]
    if any(e not in ([None, ["RTM001", sorted(dead)]] if dead else [None]) for e in ends):
        wrong.append(f"the end of the job: {ends}")
    return wrong


def _unexpected(
    found: dict[str, Any], outcome: dict[str, Any], fault: dict[str, Any] | None, loss: float
) -> Iterator[str]:
    seen = {
        "evaluation_failed": outcome["eval/evaluation_failed"],
        "attempts": outcome["eval/attempts"],
        "coverage": outcome["eval/coverage"],
        "code": outcome.get("eval/verdict", "").partition(":")[0],
        "culprits": outcome.get("eval/culprits", ""),
    }
    expected = {"evaluation_failed": 0.0, "attempts": 1, "coverage": 1.0, "code": "", "culprits": ""}
    if fault is not None:
        expected |= {**EXPECTED[fault["kind"]], "culprits": str(fault["rank"])}
        if fault["kind"] == "poison":
            expected["coverage"] = fault["batch"] / BATCHES
        if found["plan"].get("alone"):  # the group knows nothing of it
            left_out = 1 if fault["kind"] == "poison" else 0
            expected |= {"attempts": 1, "coverage": 1 - left_out / SIZE / BATCHES, "code": "", "culprits": ""}
    if seen != expected:
        yield f"{seen} instead of {expected}"
    is_full = all(f["step"] > outcome["step"] for f in found["plan"]["faults"] if f["kind"] == "stop")
    is_known = is_full and (fault is None or fault["kind"] == "raise")  # a rank that left out a call mixed up two sums
    if is_known and abs(outcome["eval/loss"] - loss) > 1e-3 * max(1.0, loss):
        yield f"the result is {outcome['eval/loss']} instead of {loss}"


# the other side


class Jobs:
    """Runs jobs in such a program."""

    def __init__(self, process: "subprocess.Popen[bytes]") -> None:
        self._process = process

    def run(self, *, seed: int, faults: list[dict[str, Any]], plain: bool = False, **more: Any) -> dict[str, Any]:
        plan = {"seed": seed, "faults": faults, "plain": plain, **more}
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write((json.dumps(plan) + "\n").encode())
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        assert line, "the program that runs jobs has ended"
        found: dict[str, Any] = json.loads(line)
        return found


@contextmanager
def jobs() -> Iterator[Jobs]:
    """Start the program, and end it."""
    with subprocess.Popen(
        [sys.executable, "-m", "tests.runtime.evaluating"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        cwd=Path(__file__).resolve().parents[2],
        env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(sys.path)},
    ) as process:
        try:
            yield Jobs(process)
        finally:
            assert process.stdin is not None
            process.stdin.close()
            try:
                process.wait(90)
            except subprocess.TimeoutExpired:
                process.kill()


if __name__ == "__main__":
    main()
