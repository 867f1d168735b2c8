from allready.evidence.lines.coll import op_name, parse
from allready.evidence.reading import OpShape
from tests.cases import cases

NCCL = (
    "gpu01:4711:4790 [3] NCCL INFO AllReduce: opCount 1f sendbuff 0x7f41 recvbuff 0x7f42 count 1048576 datatype 9 "
    "op 4 root 0 comm 0x55aa [nranks=8] stream 0x5618"
)


def shape(line: str) -> OpShape:
    found = parse(line.encode())
    assert found is not None
    return found.shape


def test_reads_everything_an_operation_line_says() -> None:
    found = parse(NCCL.encode())
    assert found is not None
    assert (found.host, found.pid, found.comm, found.nranks, found.front) == ("gpu01", 4711, "0x55aa", 8, b"")
    assert found.shape == OpShape(name="all_reduce", count=1048576, dtype="bfloat16", redop="avg", root=0)
    assert [NCCL[a:b] for a, b in found.variable] == ["1f", "7f41", "7f42", "5618"]


@cases(
    ("old", "new", "change"),
    [
        ("AllReduce", "Send", {"name": "send"}),
        ("AllReduce", "Recv", {"name": "recv"}),
        ("AllReduce", "ReduceScatter", {"name": "reduce_scatter"}),
        ("AllReduce", "Broadcast", {"name": "broadcast"}),
        ("AllReduce", "Reduce", {"name": "reduce"}),
        ("AllReduce", "AlltoAll", {"name": "all_to_all"}),
        ("AllReduce", "Gather", {"name": "gather"}),
        ("AllReduce", "Scatter", {"name": "scatter"}),
        ("AllReduce", "PutSignal", {"name": "put_signal"}),
        ("root 0", "root 5", {"root": 5}),
        ("root 0", "root -1", {"root": -1}),
        ("datatype 9", "datatype 11", {"dtype": "float8_e5m2"}),
        ("datatype 9", "datatype 99", {"dtype": "datatype99"}),
        ("op 4", "op 0", {"redop": "sum"}),
        ("op 4", "op 7", {"redop": "user7"}),
        ("[nranks=8] ", "", {}),
        ("stream 0x5618", "stream (nil)", {}),
        ("sendbuff 0x7f41", "sendbuff (nil)", {}),
        ("stream 0x5618", "stream 0x5618\r", {}),
    ],
)
def test_knows_every_form_of_the_line(old: str, new: str, change: dict[str, object]) -> None:
    usual = {"name": "all_reduce", "count": 1048576, "dtype": "bfloat16", "redop": "avg", "root": 0}
    assert old in NCCL
    assert shape(NCCL.replace(old, new)) == OpShape(**(usual | change))  # type: ignore[arg-type]


def test_reads_what_rccl_adds() -> None:
    line = NCCL.replace("count 1048576", "acc 0x7f77 count 1048576") + " task 12 globalrank 5"
    found = parse(line.encode())
    assert found is not None
    assert found.rank == 5
    assert [line[a:b] for a, b in found.variable] == ["1f", "7f41", "7f42", "7f77", "5618", "12"]


@cases(
    "front",
    [
        "0: ", "[default3]:", "[rank3]:", "[1,0]<stdout>:", "[2025-03-01 12:34:56] ", "2025-03-01T12:34:56.123456789Z ",
        "worker-1  | ", "3: [2025-03-01 12:34:56.123456] ", " 10%|# | 1/10 [00:01<00:09]\r", "[12:34:56] ",
    ],
)  # fmt: skip
def test_whatever_stands_before_belongs_to_nobody(front: str) -> None:
    found = parse((front + NCCL).encode())
    assert found is not None
    assert (found.host, found.pid, found.front) == ("gpu01", 4711, front.encode())


def test_knows_the_date_and_what_changes_in_it() -> None:
    line = "[2025-03-01 12:34:56.789] " + NCCL
    found = parse(line.encode())
    assert found is not None
    assert found.date is not None
    start, fraction, end = found.date
    assert (line[start : start + 19], line[fraction:end]) == ("2025-03-01 12:34:56", "789")
    assert [line[a:b] for a, b in found.variable][:7] == ["2025", "03", "01", "12", "34", "56", "789"]


@cases(
    "line",
    [
        "", NCCL[:100], NCCL.replace("count", "cnt"), NCCL.replace(":4711:", ":"),
        NCCL + "gpu01:4711:4711 [0] NCCL INFO",
        NCCL.replace("1f", "1 f"), NCCL.replace("INFO", "WARN"), NCCL.replace("gpu01", ""),
        NCCL.replace("gpu01", "g" * 300),
        "x" * 2000 + NCCL, NCCL.replace("1f", "1" * 40), NCCL.replace("0x7f41", "0x7f\x0041"),
    ],
)  # fmt: skip
def test_damaged_lines_are_no_operations(line: str) -> None:
    assert parse(line.encode()) is None


def test_two_torn_lines_give_the_second_one() -> None:
    found = parse((NCCL[:60] + NCCL.replace("4711", "9999")).encode())
    assert found is not None
    assert found.pid == 9999


def test_unknown_names_are_written_as_the_others() -> None:
    assert op_name("AllToAllV2") == "all_to_all_v2"
