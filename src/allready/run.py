"""`python -m allready.run ...` is `allready run ...`, as `python -m torch.distributed.run` is `torchrun`."""

import sys

from allready.cli.main import entry

if __name__ == "__main__":
    sys.argv.insert(1, "run")
    entry()
