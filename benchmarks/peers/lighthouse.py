"""torchft's lighthouse with its command line's defaults, but for the join timeout: lighthouse.py JOIN_MS FILE."""

import sys
import time
from pathlib import Path

from torchft.coordination import LighthouseServer

server = LighthouseServer(
    bind="127.0.0.1:0", min_replicas=2, join_timeout_ms=int(sys.argv[1]), quorum_tick_ms=100, heartbeat_timeout_ms=5000
)
half = Path(sys.argv[2] + ".half")
half.write_text(server.address())
half.rename(sys.argv[2])
time.sleep(3600)
