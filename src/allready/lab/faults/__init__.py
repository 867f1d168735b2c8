"""Faults as data: what the lab can do to its nodes.  `FAULTS` has them all by name."""

from allready.lab.faults.base import Fault
from allready.lab.faults.catalog import FAULTS, from_file, from_mapping, from_words
from allready.lab.faults.filters import (
    DataPortsDropped,
    IdleForgotten,
    MtuBlackHole,
    OneWayDrop,
    PortDropped,
    RandomLoss,
)
from allready.lab.faults.launch import DoNotStart, StartLate
from allready.lab.faults.links import InterfaceMtu, LinkDown, SecondInterface, SlowLink
from allready.lab.faults.machine import HostsEntry, HostsLoopback, HostsMissing, TinyShm

__all__ = [
    "FAULTS",
    "DataPortsDropped",
    "DoNotStart",
    "Fault",
    "HostsEntry",
    "HostsLoopback",
    "HostsMissing",
    "IdleForgotten",
    "InterfaceMtu",
    "LinkDown",
    "MtuBlackHole",
    "OneWayDrop",
    "PortDropped",
    "RandomLoss",
    "SecondInterface",
    "SlowLink",
    "StartLate",
    "TinyShm",
    "from_file",
    "from_mapping",
    "from_words",
]
