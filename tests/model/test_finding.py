import json
from enum import Enum

import pytest
from msgspec import Struct
from msgspec.structs import fields

from allready import model
from allready.model import Confidence, Culprits, FaultClass, Hit, Severity

CLASSES = {name: thing for name, thing in vars(model).items() if isinstance(thing, type)}
STRUCTS = {name: thing for name, thing in CLASSES.items() if issubclass(thing, Struct) and thing is not Struct}


def test_severities_can_be_compared() -> None:
    assert [s.weight for s in Severity] == [0, 1, 2, 3]
    assert Severity.BLOCKER.weight > Severity.ERROR.weight > Severity.WARNING.weight > Severity.INFO.weight


def test_confidences_can_be_compared() -> None:
    assert Confidence.CERTAIN.weight > Confidence.LIKELY.weight > Confidence.POSSIBLE.weight


def test_the_fault_classes_are_those_of_the_contract() -> None:
    contract = (
        "START-ABSENT START-NAME START-PATH ENV-LIMIT ENV-MISMATCH CPU-BUSY CPU-STUCK DESYNC-FLOW DESYNC-ARGS DEAD "
        "HW-HANG NET-BROKEN SLOW-COMP SLOW-COMM SLOW-MIXED SLOW-NOCULPRIT HEALTHY"
    )
    assert [str(c) for c in FaultClass] == contract.split()


def test_culprits_are_true_when_somebody_is_named() -> None:
    assert not Culprits()
    assert all([Culprits(nodes=(0,)), Culprits(ranks=(0,)), Culprits(links=((0, 1),)), Culprits(variables=("X",))])


def test_data_are_frozen() -> None:
    assert len(STRUCTS) > 70
    assert [name for name, thing in STRUCTS.items() if not thing.__struct_config__.frozen] == []
    with pytest.raises(AttributeError):
        Hit().values = {}  # type: ignore[misc]


def test_enumerations_are_plain_text_in_json() -> None:
    for name, thing in CLASSES.items():
        if issubclass(thing, Enum):
            assert json.loads(json.dumps([*thing])) == [str(m) for m in thing], name


def test_numbers_with_a_dimension_carry_their_unit_in_the_name() -> None:
    """A float is seconds, a rate or a ratio; the name must say which."""
    units = ("_s", "_w", "_share", "_bytes", "_gb_per_s", "_gbit_per_s", "_mbit_per_s")
    for name, thing in STRUCTS.items():
        for item in fields(thing):
            if "float" in str(item.type):
                assert item.name.endswith(units), f"{name}.{item.name}"
