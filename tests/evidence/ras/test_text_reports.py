"""RAS's text reports: tables, Errors and Warnings of NCCL 2.24 to 2.30."""

from allready.evidence.ras import is_ras, read_ras
from allready.evidence.reading import Reading
from allready.model.fill import in_english

HEAD = """NCCL version 2.27.5 compiled with CUDA 12.9
CUDA runtime version 12090, driver version 12080

Job summary
===========

  Nodes  Processes         GPUs  Processes     GPUs
(total)   per node  per process    (total)  (total)
      4          8            1         32       32

Communicators... (0.00s)
=============

Group     Comms     Nodes     Ranks     Ranks     Ranks    Status  Errors
    #  in group  per comm  per node  per comm  in group
    0         1         4         8        32        32   RUNNING  {errors}

Errors
======

{body}
"""


def read(errors: str, body: str) -> Reading:
    text = HEAD.format(errors=errors, body=body)
    assert is_ras(text.encode())
    reading = read_ras(text.encode(), "ras.txt")
    assert reading.source.num_unknown == 0, reading.source.unknown_examples
    return reading


def test_a_job_without_trouble_has_its_size_and_nothing_else() -> None:
    (answer,) = read("OK", "Warnings\n========\n").ras
    (group,) = answer.groups
    assert (group.size, group.label) == (32, "RUNNING OK")
    assert not group.positions
    assert not group.absent


def test_one_outlier_gives_the_others_the_number_that_is_left() -> None:
    (answer,) = read(
        "MISMATCH",
        """Warnings
========

#0-0 (009af77880f95e8b) MISMATCH
  Communicator ranks have different AllReduce operation counts
  31 ranks have launched up to operation 6650
  Rank 13 has launched up to operation 6649 -- GPU 5 managed by process 4017 on node 172.16.64.213
""",
    ).ras
    (group,) = answer.groups
    assert group.group == "0x9af77880f95e8b"
    assert group.size == 32
    assert group.positions[13].enqueued == 6649
    assert {p.enqueued for r, p in group.positions.items() if r != 13} == {6650}
    assert len(group.positions) == 32
    assert answer.hosts[group.group, 13] == ("172.16.64.213", 4017)


def test_named_ranks_below_a_plural_line_get_its_number() -> None:
    (answer,) = read(
        "MISMATCH",
        """Warnings
========

#0-0 (0x9af77880f95e8b) MISMATCH
  Communicator ranks have different collective operation counts
  30 ranks have launched up to operation 12
  2 ranks have not launched any operations
  Rank 3 -- GPU 3 managed by process 11 on node 10.0.0.1
  Rank 4 -- GPU 4 managed by process 12 on node 10.0.0.1
""",
    ).ras
    (group,) = answer.groups
    assert {r for r, p in group.positions.items() if p.enqueued == 0} == {3, 4}
    assert sum(1 for p in group.positions.values() if p.enqueued == 12) == 30


def test_two_unnamed_halves_give_nobody_a_number() -> None:
    (answer,) = read(
        "MISMATCH",
        """Warnings
========

#0-0 (009af77880f95e8b) MISMATCH
  Communicator ranks have different AllReduce operation counts
  16 ranks have launched up to operation 10
  16 ranks have launched up to operation 9
""",
    ).ras
    assert not answer.groups[0].positions


def test_ranks_are_compared_only_where_every_differing_counter_is_known() -> None:
    (answer,) = read(
        "MISMATCH",
        """Warnings
========

#0-0 (009af77880f95e8b) MISMATCH
  Communicator ranks have different AllGather operation counts
  16 ranks have launched up to operation 10
  16 ranks have launched up to operation 9

  Communicator ranks have different AllReduce operation counts
  31 ranks have launched up to operation 5
  Rank 2 has launched up to operation 4 -- GPU 2 managed by process 9 on node 10.0.0.1
""",
    ).ras
    assert not answer.groups[0].positions


def test_dead_processes_are_found_with_their_ranks() -> None:
    (answer,) = read(
        "INCOMPLETE",
        """INCOMPLETE
  Missing communicator data from 2 job processes
  Process 3487984 on node 172.16.64.213 managing GPU 5
  Process 3487985 on node 172.16.64.213 managing GPU 6

DEAD
  1 job process is considered dead (unreachable via the RAS network)
  Process 3487984 on node 172.16.64.213 managing GPU 5

#0-0 (cf264af53edbe986) INCOMPLETE
  Missing communicator data from 2 ranks
  Rank 21 -- GPU 5 managed by process 3487984 on node 172.16.64.213
  Rank 22 -- GPU 6 managed by process 3487985 on node 172.16.64.213

Warnings
========

TIMEOUT
  Encountered 2 communication timeouts while gathering communicator data
""",
    ).ras
    (group,) = answer.groups
    assert group.absent == {21: "considered dead", 22: "unresponsive"}
    assert answer.dead == [("172.16.64.213", 3487984)]
    assert in_english(answer.problem) == "Encountered 2 communication timeouts while gathering communicator data"


def test_a_list_of_missing_ranks_counts_against_the_others() -> None:
    (answer,) = read(
        "INCOMPLETE,MISMATCH",
        """#0-0 (cf264af53edbe986) INCOMPLETE
  Missing communicator data from 3 ranks
  The missing ranks: 1,7-8

Warnings
========

#0-0 (cf264af53edbe986) MISMATCH
  Communicator ranks have different AllReduce operation counts
  28 ranks have launched up to operation 100
  Rank 5 has launched up to operation 99 -- [process information not found]
""",
    ).ras
    (group,) = answer.groups
    assert group.absent == {1: "missing", 7: "missing", 8: "missing"}
    assert len(group.positions) == 29
    assert group.positions[5].enqueued == 99


def test_missing_ranks_without_names_leave_the_others_unknown() -> None:
    (answer,) = read(
        "INCOMPLETE,MISMATCH",
        """#0-0 (cf264af53edbe986) INCOMPLETE
  Missing communicator data from 16 ranks

Warnings
========

#0-0 (cf264af53edbe986) MISMATCH
  Communicator ranks have different AllReduce operation counts
  15 ranks have launched up to operation 100
  Rank 5 has launched up to operation 99 -- GPU 1 managed by process 1 on node 10.0.0.1
""",
    ).ras
    assert set(answer.groups[0].positions) == {5}


def test_status_words_of_ranks_without_data_make_them_missing() -> None:
    (answer,) = read(
        "MISMATCH",
        """Warnings
========

#0-0 (cf264af53edbe986) MISMATCH
  Communicator ranks have different status
  31 ranks have status RUNNING
  Rank 0 has status NOCOMM -- GPU 0 managed by process 8 on node 10.0.0.1
""",
    ).ras
    assert answer.groups[0].absent == {0: "missing"}


def test_reported_errors_become_events_and_positions() -> None:
    reading = read(
        "ERROR,MISMATCH",
        """#0-0 (cf264af53edbe986) ERROR
  Asynchronous errors on 3 ranks
  2 ranks reported Remote process error
  Rank 1 -- GPU 1 managed by process 2 on node 10.0.0.1
  Rank 2 -- GPU 2 managed by process 3 on node 10.0.0.1
  Rank 5 reported System error -- GPU 5 managed by process 6 on node 10.0.0.1

Warnings
========

#0-0 (cf264af53edbe986) MISMATCH
  Communicator ranks have different AllReduce operation counts
  31 ranks have launched up to operation 2
  Rank 5 has launched up to operation 1 -- GPU 5 managed by process 6 on node 10.0.0.1
""",
    )
    (group,) = reading.ras[0].groups
    assert group.positions[5].error == "unhandled system error"
    assert group.positions[1].error == "remote process exited or there was a network error"
    assert group.positions[0].error is None
    assert [e.values["comm_rank"] for e in reading.events] == ["1", "2", "5"]
    assert reading.events[2].values["process"] == "6"


def test_two_reports_in_one_file_are_two_answers() -> None:
    text = HEAD.format(errors="OK", body="Warnings\n========\n")
    reading = read_ras(f"OK\n{text}\n--- again ---\n{text}".encode(), "two.txt")
    assert len(reading.ras) == 2
    assert reading.source.unknown_examples == ("--- again ---",)


def test_tables_of_an_uneven_job_are_known() -> None:
    text = """NCCL version 2.24.3 compiled with CUDA 12.8
CUDA runtime version 12080, driver version 12080

Job summary
===========

  Nodes  Processes         GPUs
          per node  per process
      3          8            1
      1          7            1

  Nodes  Processes         GPUs
(total)    (total)      (total)
      4         31           31

The outlier node:
  Node 172.16.64.213 running processes 3487984,3487985

Communicators... (0.00s)
=============

Group     Comms     Nodes     Ranks     Ranks     Ranks    Status  Errors
    #  in group  per comm  per node  per comm  in group
    0         1         4       7-8        32        31   RUNNING  INCOMPLETE

Errors
======

#0-0 (cf264af53edbe986) INCOMPLETE
  Missing communicator data from 1 rank
  The missing rank: 21
"""
    reading = read_ras(text.encode(), "r")
    assert reading.source.num_unknown == 0, reading.source.unknown_examples
    assert reading.ras[0].groups[0].absent == {21: "missing"}
    assert reading.ras[0].groups[0].size == 32
