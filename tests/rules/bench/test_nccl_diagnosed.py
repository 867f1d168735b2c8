"""NCCL's own diagnostics: recorded ones of two ranks on one H200 (2.32.3), and bad lines by that library's formats."""

from pathlib import Path

from msgspec.structs import replace

from allready.evidence.log.nccl import diagnostic_of
from allready.model import Collectives, NcclDiagnostic
from allready.preflight.collectives.nccl_words import NcclWords
from tests.fleets import check, fleet, healthy_collectives

RECORDED = Path(__file__).parents[2] / "fixtures" / "bench" / "nccl_2_32_3.txt"
# Not recorded: made from the format strings in libnccl 2.32.3.
SLOW = "n:1 NCCL DIAG [INFO] net bw: write rank 1 (gpu01): 98.1 Gbit/s, >30% off median 391.5 Gbit/s in comm 0x1f"
PARTLY = "n:1 NCCL DIAG [INFO]   p2p: only 54/56 GPU-to-GPU peer accesses passed verification"
MISMATCH = (
    "n:1 NCCL DIAG [INFO]   p2p: write mismatch src=0 expected=0x0000000000000001 got=0x0000000000000000 verify=0x0"
)


def hits(*lines: NcclDiagnostic) -> list[tuple[str, tuple[int, ...], str]]:
    run = replace(healthy_collectives(2).runs[0], diagnostics=lines)
    found = check("BEN009", fleet(2, collectives=Collectives(runs=(run,)))).hits
    return [(str(hit.severity), hit.culprits.ranks, str(hit.values["ok"])) for hit in found]


def read(*lines: str) -> tuple[NcclDiagnostic, ...]:
    return tuple(found for line in lines if (found := diagnostic_of(line)) is not None)


def test_recorded_diagnostics_without_a_fault_are_information() -> None:
    lines = read(*RECORDED.read_text().splitlines())
    assert [line.check for line in lines if line.level == "OK"] == [
        "net bw", "p2p", "GPU inventory", "CUDA driver version", "ECC", "NCCL environment", "Xid/SXid",
        "NVIDIA graphics driver version", "Paths",
    ]  # fmt: skip
    assert {line.kind for line in lines} == {""}
    assert hits(*lines) == [("info", (), "9")]


def test_a_slow_network_names_its_rank() -> None:
    assert hits(*read(SLOW)) == [("warning", (1,), "0")]


def test_wrong_data_between_gpus_are_an_error_that_names_nobody() -> None:
    assert hits(*read(PARTLY, MISMATCH)) == [("error", (), "0")] * 2


def test_a_run_that_did_not_ask_nccl_says_nothing() -> None:
    assert hits() == []


def test_the_output_of_a_rank_is_read_in_any_pieces_each_line_once() -> None:
    text = RECORDED.read_bytes()
    whole = [(line.choice, line.diagnostic) for line in NcclWords().feed(text)]
    choices = {(c.operation, c.size_bytes): (c.algorithm, c.protocol) for c, _ in whole if c is not None}
    assert choices["AllReduce", 1024] == ("RING", "LL")
    assert choices["AllReduce", 2097152] == ("RING", "LL128")
    assert choices["AllReduce", 16777216] == ("RING", "SIMPLE")
    assert len([1 for _, diagnostic in whole if diagnostic]) == 12
    words = NcclWords()
    pieces = [line for at in range(0, len(text), 7) for line in words.feed(text[at : at + 7])]
    assert [(line.choice, line.diagnostic) for line in pieces] == whole
    assert list(words.feed(text)) == []
