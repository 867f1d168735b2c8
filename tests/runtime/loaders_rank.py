"""One rank of a test job that evaluates what loaders give of unknown length, or which raise."""

import json
import sys
from collections.abc import Iterator
from typing import Any

plan = json.loads(sys.argv[1])
ME, SIZE = int(plan["rank"]), int(plan["size"])


def say(event: str, **values: Any) -> None:
    sys.stdout.write(json.dumps({"event": event, **values}) + "\n")
    sys.stdout.flush()


def main() -> None:
    import torch
    import torch.distributed as dist

    import allready

    torch.set_num_threads(1)
    where = f"tcp://127.0.0.1:{plan['port']}"
    allready.init_process_group(init_method=where, rank=ME, world_size=SIZE, start_timeout=100)
    raised: list[int] = []

    def loader() -> Iterator[Any]:
        for number in range(4):
            yield torch.full((2,), float(number))

    def broken() -> Iterator[Any]:
        for number in range(4):
            if ME == 1 and number == 2:
                raise OSError("made by the test")
            yield torch.full((2,), float(number))

    class Unknown(list[Any]):
        def __len__(self) -> int:
            if ME == 1:
                raise NotImplementedError("made by the test")
            return super().__len__()

    def mean(batch: Any) -> dict[str, float]:
        if ME == 1 and float(batch[0]) == 2.0 and not raised:
            raised.append(1)
            raise ValueError("made by the test")
        loss = batch.mean()
        dist.all_reduce(loss)
        return {"loss": loss.item() / SIZE}

    def alone(batch: Any) -> dict[str, float]:
        return {"loss": batch.mean().item()}

    for name, found in (
        ("once", allready.resilient_evaluation(mean, loader)),
        ("broken", allready.resilient_evaluation(mean, broken)),
        ("unknown", allready.resilient_evaluation(alone, Unknown(loader()), sync_timeout=20)),
        ("alone", allready.resilient_evaluation(alone, broken, communicates=False)),
    ):
        say(name, **{field: getattr(found, field) for field in ("coverage", "is_partial", "has_failed", "attempts")})
        say(f"{name} errors", ranks=sorted(found.errors), metrics=found.metrics)
    allready.finish()


main()
