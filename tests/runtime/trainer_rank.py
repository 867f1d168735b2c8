"""One rank that trains by the trainer of another project, with our callback; a fault or a signal in the middle."""

import json
import os
import signal
import sys
import types
from datetime import timedelta
from pathlib import Path
from typing import Any

plan = json.loads(sys.argv[1])
ME, SIZE, STEPS = int(plan["rank"]), int(plan["size"]), 12
os.environ |= {
    "RANK": str(ME), "LOCAL_RANK": str(ME), "WORLD_SIZE": str(SIZE), "LOCAL_WORLD_SIZE": str(SIZE),
    "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(plan["port"]), "HF_HUB_OFFLINE": "1", "ACCELERATE_USE_CPU": "1",
    "NODE_RANK": "0",
}  # fmt: skip


CALLBACKS: list[Any] = []
OUT = os.fdopen(os.dup(1), "w")
os.dup2(2, 1)  # trainers print


def say(event: str, **values: Any) -> None:
    OUT.write(json.dumps({"event": event, **values}) + "\n")
    OUT.flush()


def strike(step: int) -> None:
    if step == 5 and plan["victim"] == ME:
        os.kill(os.getpid(), getattr(signal, plan["signal"]))


def hugging_face() -> int:
    import torch
    import transformers

    from allready.integrations import hugging_face_callback

    class Model(torch.nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.linear = torch.nn.Linear(4, 1)
            self.num_steps = 0

        def forward(self, x: Any, labels: Any) -> dict[str, Any]:
            self.num_steps += 1
            strike(self.num_steps)
            return {"loss": ((self.linear(x) - labels) ** 2).mean()}

    rows = [{"x": torch.ones(4) * n, "labels": torch.ones(1)} for n in range(64)]
    arguments = transformers.TrainingArguments(
        output_dir=plan["where"],
        max_steps=STEPS,
        per_device_train_batch_size=2,
        use_cpu=True,
        report_to=[],
        save_strategy="no",
        disable_tqdm=True,
        logging_strategy="no",
    )
    CALLBACKS[0:] = [hugging_face_callback()]
    trainer = transformers.Trainer(model=Model(), args=arguments, train_dataset=rows, callbacks=CALLBACKS)
    trainer.train()
    return int(trainer.state.global_step)


def lightning() -> int:
    import lightning.pytorch as pl
    import torch

    from allready.integrations import lightning_callback

    class Module(pl.LightningModule):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.linear = torch.nn.Linear(4, 1)

        def training_step(self, batch: Any, number: int) -> Any:
            strike(number + 1)
            return self.linear(batch).mean()

        def configure_optimizers(self) -> Any:
            return torch.optim.SGD(self.parameters(), lr=0.01)

    loader = torch.utils.data.DataLoader(torch.ones(64, 4), batch_size=2)
    CALLBACKS[0:] = [lightning_callback()]
    trainer = pl.Trainer(
        accelerator="cpu",
        strategy="ddp",
        devices=SIZE,
        max_steps=STEPS,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        callbacks=CALLBACKS,
        default_root_dir=plan["where"],
    )
    trainer.fit(Module(), loader)
    return int(trainer.global_step)


def shape_of(module: str, base: str) -> None:
    """Stands for a package that is not installed: the class that callbacks of its trainer derive from."""
    names = module.split(".")
    for at in range(len(names)):
        sys.modules[".".join(names[: at + 1])] = types.ModuleType(names[at])
    setattr(sys.modules[module], base, type(base, (), {}))


def one_step(number: int) -> None:
    import torch
    import torch.distributed as dist

    strike(number)
    dist.all_reduce(torch.ones(4))  # as DDP's backward does


def hugging_face_calls() -> int:
    """The calls of Hugging Face's trainer, in their order, with their arguments."""
    shape_of("transformers", "TrainerCallback")
    from allready.integrations import hugging_face_callback

    CALLBACKS[0:] = [hugging_face_callback()]
    (callback,) = CALLBACKS
    arguments, state, more = object(), types.SimpleNamespace(global_step=0), {"model": None, "optimizer": None}
    control = types.SimpleNamespace(should_save=False, should_training_stop=False)
    callback.on_train_begin(arguments, state, control, **more)
    while state.global_step < STEPS and not control.should_training_stop:
        one_step(state.global_step + 1)
        state.global_step += 1
        callback.on_step_end(arguments, state, control, **more)
        if control.should_save:
            (Path(plan["where"]) / f"checkpoint-{state.global_step}").mkdir(parents=True, exist_ok=True)
    callback.on_train_end(arguments, state, control, **more)
    return int(state.global_step)


def lightning_calls() -> int:
    """The same of Lightning's."""
    shape_of("lightning.pytorch", "Callback")
    from allready.integrations import lightning_callback

    CALLBACKS[0:] = [lightning_callback()]
    (callback,) = CALLBACKS
    trainer, module, step = types.SimpleNamespace(should_stop=False), object(), 0
    callback.on_train_start(trainer, module)
    try:
        while step < STEPS and not trainer.should_stop:
            one_step(step + 1)
            step += 1
            callback.on_train_batch_end(trainer, module, None, None, step - 1)
    except BaseException as error:
        callback.on_exception(trainer, module, error)
        raise
    callback.on_train_end(trainer, module)
    return step


def main() -> None:
    import torch

    import allready
    from allready.integrations import agreed_failures

    torch.set_num_threads(1)
    allready.init_process_group(timeout=timedelta(seconds=20), start_timeout=timedelta(seconds=100))
    say("started")
    try:
        with agreed_failures():
            steps = globals()[plan["trainer"]]()
    except allready.CollectiveFailed as failure:
        verdict = failure.verdict
        say(
            "failed",
            is_default=signal.getsignal(signal.SIGTERM) is signal.SIG_DFL,
            code=None if verdict is None else verdict.code,
            culprits=None if verdict is None else verdict.culprits.ranks,
        )
        os._exit(3)
    is_default = signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    say(
        "done",
        steps=steps,
        exit_code=CALLBACKS[0].exit_code,
        is_default=is_default,
        saved=sorted(p.name for p in Path(plan["where"]).glob("checkpoint-*")),
    )
    allready.finish(timeout=timedelta(seconds=20))


main()
