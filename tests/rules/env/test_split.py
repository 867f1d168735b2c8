from allready.judging.majority import Split
from allready.judging.node_split import assign, brief, cut, exports, members, some


def test_writes_many_runs_of_numbers_short() -> None:
    assert members([3, 1, 2, 7]) == "1-3,7"
    assert members(range(0, 100, 2)) == "0,2,4,6,8,10,… +44"
    assert members([1, 2, *range(4, 14, 2), 20]) == "1,2,4,6,8,10,12,… +1"  # two that follow one another are one run
    assert members([*range(0, 12, 2), 20, 21, 22, 30]) == "0,2,4,6,8,10,… +4"


def test_writes_many_groups_short() -> None:
    assert brief(Split.by({0: "a", 1: "a", 2: ""})) == "a [0,1], (empty) [2]"
    assert brief(Split.by({n: n for n in range(10)})) == "0 [0], 1 [1], 2 [2], 3 [3], … +6"


def test_cuts_values_where_they_differ() -> None:
    long = "x" * 100
    assert cut(["short", "values"]) == ["short", "values"]
    assert cut([long + "1" + long, long + "2" + long], 20) == ["…xxxxxxxx1xxxxxxxxxxx…", "…xxxxxxxx2xxxxxxxxxxx…"]
    assert cut([long], 20) == ["x" * 20 + "…"]
    assert cut([long, long + "y"], 20) == ["…xxxxxxxx", "…xxxxxxxxy"]


def test_gives_commands_that_a_shell_takes() -> None:
    assert assign("A", None) == "unset A"
    assert assign("A", "(unset)") == "export A='(unset)'"
    assert assign("A", "b c") == "export A='b c'"
    assert assign("A", "http://(redacted)@x") == "export A=..."
    assert exports("V", {0: "eth0", 1: "eth0"}) == [("export V=eth0", (0, 1))]
    assert exports("V", {0: "eth0", 1: "eth0", 2: "ens3"}) == [("export V=eth0", (0, 1)), ("export V=ens3", (2,))]
    assert exports("V", {}, (0, 2)) == [("export V=IFNAME", (0, 2))]
    assert exports("V", {0: "a;b"}) == [("export V='a;b'", (0,))]


def test_shows_the_odd_ones_first() -> None:
    values = dict.fromkeys(range(100), 1)
    assert some(values, (90, 95), most=4) == [0, 1, 90, 95]
    assert some(values, range(50), most=3) == [0, 1, 2]
