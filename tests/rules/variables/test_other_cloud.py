from allready.model import Severity
from tests.rules.variables.made import clear, here, hits, settings

CODE = "VAR028"


def at(cloud: str | None, **variables: str) -> object:
    return hits(CODE, settings(here=variables, cloud=cloud))


def test_what_ends_the_job_is_an_error() -> None:
    [hit] = hits(CODE, settings(here={"FI_PROVIDER": "efa"}, cloud="gcp"))
    assert (hit.severity, hit.values["cloud"], hit.values["here"]) == (Severity.ERROR, "aws", "gcp")


def test_what_has_no_effect_is_information() -> None:
    [hit] = hits(CODE, settings(here={"NCCL_FASTRAK_IFNAME": "eth1"}, cloud="aws"))
    assert hit.severity is None


def test_at_home_they_are_right() -> None:
    assert not at("aws", FI_PROVIDER="efa", FI_EFA_USE_DEVICE_RDMA="1")
    assert not at("gcp", NCCL_FASTRAK_IFNAME="eth1", NCCL_NET="FasTrak")


def test_without_a_known_cloud_nothing_is_claimed() -> None:
    assert not at(None, FI_PROVIDER="efa")
    assert clear(CODE, here(FI_PROVIDER="efa"))


def test_an_image_may_serve_several() -> None:
    assert clear(CODE, settings(("Dockerfile", "FROM x\nENV FI_PROVIDER=efa\n"), cloud="gcp"))
