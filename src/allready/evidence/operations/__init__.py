"""The operations of all ranks, from COLL lines: joined by communicator and counted by rank."""

from allready.evidence.operations.join import KnownCommunicator, OperationsJoin, join_operations

__all__ = ["KnownCommunicator", "OperationsJoin", "join_operations"]
