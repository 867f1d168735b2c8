"""Words of a process that suffers from another one's end are distinguished from a process's own errors."""

import pytest

from allready.signatures.peers import has_lost_or_missed_peer, is_closed_by_peer
from tests.cases import cases
from tests.clock import cpu_s

CLOSED = (
    "RuntimeError: [gloo/transport/tcp/pair.cc:553] Connection closed by peer [10.0.0.1]:40001",
    "RuntimeError: [gloo/transport/tcp/pair.cc:537] Read error [10.0.0.1]:14471: Connection reset by peer",
    "ncclRemoteError: socketProgress: Connection closed by remote peer gpu01<40000>",
)
LOST = (
    "torch.distributed.DistBackendError: NCCL error in: x.hpp:219, remote process exited or there was a network error",
    "torch.distributed.DistNetworkError: Broken pipe",
    "torch.distributed.DistNetworkError: failed to recv, got 0 bytes",
    "jax.errors.JaxRuntimeError: UNAVAILABLE: The following tasks are unhealthy (stopped sending heartbeats):",
    "torch.distributed.DistStoreError: the store at 10.0.0.1:29500 was closed",
    "gpu1:1:2 [0] transport/net_ib.cc NCCL WARN NET/IB : Got completion from peer 10.0.0.2<4> with status=12 error",
    "RuntimeError: [Rank 0]: Ranks 2 failed to pass monitoredBarrier in 1800000 ms",
)
MISSED = (
    "RuntimeError: [gloo/transport/tcp/unbound_buffer.cc:81] Timed out waiting 9000ms for recv operation to complete",
    "torch.distributed.DistStoreError: wait timeout after 300000ms, keys: /default_pg/0",
    "XlaRuntimeError: DEADLINE_EXCEEDED: Barrier timed out",
    "ConnectionRefusedError: [Errno 111] Connection refused",
)
OWN = (
    "ValueError: bad sample in shard 17",
    "torch.OutOfMemoryError: CUDA out of memory.",
    "torch.distributed.DistBackendError: NCCL error: ncclUnhandledCudaError: Call to CUDA function failed.",
)


def test_each_kind_of_words_is_known() -> None:
    said = {text: (is_closed_by_peer(text), has_lost_or_missed_peer(text)) for text in (*CLOSED, *LOST, *MISSED, *OWN)}
    assert said == {
        **dict.fromkeys(CLOSED, (True, True)),
        **dict.fromkeys(LOST, (False, True)),
        **dict.fromkeys(MISSED, (False, True)),
        **dict.fromkeys(OWN, (False, False)),
    }


@cases("words", ["store ", "tasks ", "task ", "NET/IB "])
@pytest.mark.thorough
def test_the_time_that_a_line_takes_grows_as_the_line(words: str) -> None:
    """Where a word begins a message again and again that never comes."""

    def spent_s(num: int) -> float:
        return cpu_s(lambda: has_lost_or_missed_peer(words * num))

    assert spent_s(8_000) < 24 * spent_s(1_000)  # 8 times, and 64 times where every beginning looks at the whole rest
