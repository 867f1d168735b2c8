"""Words of a process that suffers from another one's end are told from a process's own errors."""

from allready.signatures.peers import has_lost_or_missed_peer, has_lost_peer, is_closed_by_peer

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
    said = {
        text: (is_closed_by_peer(text), has_lost_peer(text), has_lost_or_missed_peer(text))
        for text in (*CLOSED, *LOST, *MISSED, *OWN)
    }
    assert said == {
        **dict.fromkeys(CLOSED, (True, True, True)),
        **dict.fromkeys(LOST, (False, True, True)),
        **dict.fromkeys(MISSED, (False, False, True)),
        **dict.fromkeys(OWN, (False, False, False)),
    }
