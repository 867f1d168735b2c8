"""One rank of a test job: a TrainLoop whose state is checked in every step, with a fault in one of them."""

import os
import time
from datetime import timedelta
from typing import Any

from tests.runtime.rank import ME, SIZE, plan, say, say_recovered, strike


class Loop:
    """Each step adds its number to the state, by a collective; the state after n steps is therefore known."""

    def __init__(self) -> None:
        import torch

        import allready

        self.members = tuple(range(SIZE))
        self.faults = list(plan.get("faults", []))
        self.state = torch.zeros(1000)
        self.num_steps = int(plan["steps"])
        self.timeout = timedelta(seconds=float(plan.get("timeout_s", 2.0)))
        self.loop = allready.TrainLoop(
            10**6, on_recovery=self.take_over, after_step=self.after_step, min_ranks=1, recover_timeout=20
        )

    def strike(self, step: int, *, after: bool) -> None:
        due = [f for f in self.faults if f["rank"] == ME and f["step"] <= step and bool(f.get("after")) is after]
        for fault in due:
            self.faults.remove(fault)
            strike(fault, self.members)

    def train_step(self, step: int) -> None:
        import torch

        import allready

        self.strike(step, after=False)
        values = torch.full((1000,), float(step * SIZE + ME))
        allready.safe_all_reduce(values, timeout=self.timeout)
        expected = float(sum(step * SIZE + m for m in self.members))
        if values[0].item() != expected or values[-1].item() != expected:
            say("wrong", step=step, got=values[0].item(), expected=expected)
            os._exit(9)
        self.state += float(step)
        if self.state[0].item() != step * (step + 1) / 2:
            say("wrong", step=step, state=self.state[0].item())
            os._exit(9)
        time.sleep(float(plan.get("pace_s", 0.0)))
        if plan.get("always_raises") == ME and step >= 10:
            raise ValueError("made by the test")

    def after_step(self, step: int) -> None:
        import allready

        if step % 5 == 0:
            self.strike(step, after=True)
            allready.safe_barrier(timeout=self.timeout)
            say("followed", step=step)
        if step >= self.num_steps and len(self.members) >= int(plan.get("least", 0)):
            self.loop.num_steps = step

    def take_over(self, recovery: Any, step: int) -> None:
        import allready

        self.members = recovery.members
        allready.safe_broadcast(self.state, recovery.source, timeout=self.timeout)
        say_recovered(recovery, step)


def main() -> None:
    import torch

    import allready

    torch.set_num_threads(1)
    allready.init_process_group(
        init_method=f"tcp://127.0.0.1:{plan['port']}",
        rank=ME,
        world_size=SIZE,
        timeout=timedelta(seconds=float(plan.get("timeout_s", 2.0))),
        start_timeout=timedelta(seconds=100),
    )
    say("started", is_outside=allready.is_outside())
    loop = Loop()
    end = loop.loop.run(loop.train_step)
    say("done", steps=end.step)
    allready.finish(timeout=10)
    allready.finish()  # once more, as in a script's own `finally`
    allready.destroy_process_group()  # once more is no error: the work is saved


if __name__ == "__main__":
    try:
        main()
    except Exception as error:
        say("ended", error=type(error).__name__, text=str(error))
        raise
