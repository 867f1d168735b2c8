"""One node's eyes: ranks, their processes, sockets, links and GPUs as `NodeStatus` and `NodeEvidence`."""
