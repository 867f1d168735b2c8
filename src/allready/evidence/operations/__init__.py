"""The operations of all ranks, from COLL lines: joined by communicator and counted by rank."""

from allready.evidence.operations.join import Communicator, OperationsJoin, join_operations

__all__ = ["Communicator", "OperationsJoin", "join_operations"]
