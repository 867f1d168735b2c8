"""By which names and addresses a machine knows itself."""

import pytest

from allready.facts import netlink
from allready.launch.identity import own_addresses, own_identity

OF_A_CABLE = ("127.0.0.1", "169.254.7.1", "10.0.0.7", "::1", "fe80::a8bb:ccff:fe00:7", "fd00::7")


@pytest.fixture(autouse=True)
def _of_a_cable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(netlink, "addresses", lambda *, timeout_s: OF_A_CABLE)


def test_a_machine_knows_itself_by_a_link_local_address() -> None:
    own = own_identity()
    known = ("169.254.7.1", "[fe80::a8bb:ccff:fe00:7]", "fe80::a8bb:ccff:fe00:7%eth0", "10.0.0.7")
    assert [own.has_address(word) for word in known] == [True] * 4
    assert not own.has_address("169.254.7.2")
    assert not own.has_address("127.0.0.1")


def test_others_are_told_the_address_that_leads_furthest_first() -> None:
    assert own_addresses() == ("10.0.0.7", "fd00::7", "169.254.7.1")
