"""The Hugging Face Trainer with a tiny model made here and random tokens: nothing is downloaded.

`pip install transformers accelerate`, then `allready run --nproc-per-node 2 hf_trainer.py --output /tmp/tiny`
"""

import argparse

import torch
from torch.utils.data import Dataset
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments, set_seed


class RandomTokens(Dataset[dict[str, torch.Tensor]]):
    """64 sequences of 16 tokens, always the same ones."""

    def __init__(self) -> None:
        self.tokens = torch.randint(0, 100, (64, 16), generator=torch.Generator().manual_seed(0))

    def __len__(self) -> int:
        return len(self.tokens)

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        return {"input_ids": self.tokens[index], "labels": self.tokens[index]}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--output", required=True, help="a folder for checkpoints")
    parser.add_argument("--steps", type=int, default=12)
    options = parser.parse_args()

    set_seed(0)
    shape = {"vocab_size": 100, "n_positions": 16, "n_embd": 16, "n_layer": 2, "n_head": 2}
    model = GPT2LMHeadModel(GPT2Config(**shape, bos_token_id=0, eos_token_id=0))
    arguments = TrainingArguments(
        output_dir=options.output,
        max_steps=options.steps,
        per_device_train_batch_size=4,
        per_device_eval_batch_size=4,
        eval_strategy="steps",
        eval_steps=6,
        save_steps=6,
        logging_steps=6,
        use_cpu=True,
        report_to=[],
        seed=0,
    )
    data = RandomTokens()
    trainer = Trainer(model=model, args=arguments, train_dataset=data, eval_dataset=data)
    trainer.train()
    found = trainer.evaluate()
    print(f"rank {trainer.args.process_index} of {trainer.args.world_size} eval_loss {found['eval_loss']:.5f}")
    if torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()
