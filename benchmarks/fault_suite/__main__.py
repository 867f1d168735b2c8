"""`python benchmarks/fault_suite`."""

import sys
from pathlib import Path

sys.path[0] = str(Path(__file__).resolve().parents[1])  # the folder that has the package, instead of the package

from side_by_side import use_this_checkout

use_this_checkout()

from fault_suite.command import main

if __name__ == "__main__":
    sys.exit(main())
