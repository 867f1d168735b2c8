"""NCCL's lines of which a few are enough: each process prints them for each channel or communicator, and no reader
takes anything from them but that the process was there."""

import re

_SAYS_NOTHING = re.compile(
    rb"NCCL INFO (?:Trees? |Ring |Pattern |=+|\+ |threadThresholds|Setting affinity|NVLS |P2P Chunksize|Check P2P|"
    rb"isAll|New proxy|Latency/AlgBw|Max NThreads|CC O|Intra|\[Proxy |Symmetric|Dynamic)"
)


def says_nothing(form: bytes) -> bool:
    """Whether a line of NCCL's, with or without its numbers, is one of these."""
    return _SAYS_NOTHING.search(form) is not None
