import re
from functools import cache
from html.parser import HTMLParser

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from allready.model import (
    BenchPoint,
    Collectives,
    Confidence,
    Culprits,
    Evidence,
    FaultClass,
    Finding,
    Report,
    Severity,
)
from allready.report.html import render
from allready.report.words import culprits
from tests.cases import cases
from tests.clock import timed
from tests.report.hostile import PAYLOADS, changed
from tests.report.made_up import absent_report, faulty_report, healthy_report, unknown_report

REPORTS = {
    "healthy": healthy_report(), "faulty": faulty_report(), "absent": absent_report(), "unknown": unknown_report(),
    "one node": healthy_report(1),
}  # fmt: skip


class Seen(HTMLParser):
    """Tags with the names of their attributes, in order, the addresses, and the visible text."""

    def __init__(self, page: str) -> None:
        super().__init__(convert_charrefs=True)
        self.shape: list[tuple[str, tuple[str, ...]]] = []
        self.addresses: list[str] = []
        self.ids: list[str] = []
        self.text = ""
        self.scripts: list[str] = []
        self._inside: list[str] = []
        self.unclosed: list[str] = []
        self.feed(page)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.shape.append((tag, tuple(name for name, _ in attrs)))
        self.addresses += [value or "" for name, value in attrs if name in {"src", "href", "action", "data", "srcset"}]
        self.ids += [value or "" for name, value in attrs if name == "id"]
        if tag not in {"meta", "br", "link", "img"}:
            self._inside.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self._inside
        assert self._inside.pop() == tag

    def handle_data(self, data: str) -> None:
        if self._inside and self._inside[-1] == "script":
            self.scripts.append(data)
        elif self._inside and self._inside[-1] != "style":
            self.text += data

    @property
    def vocabulary(self) -> set[tuple[str, str]]:
        return {(tag, name) for tag, names in self.shape for name in names} | {(tag, "") for tag, _ in self.shape}


@cache
def allowed() -> set[tuple[str, str]]:
    return set().union(*(Seen(render(report)).vocabulary for report in (*REPORTS.values(), faulty_report(80))))


@cache
def plain(name: str) -> list[tuple[str, tuple[str, ...]]]:
    return Seen(render(changed(REPORTS[name], lambda s: s + "x"))).shape


@cases("name", REPORTS)
@cases("language", ["en", "zh"])
def test_the_page_is_well_formed_and_asks_the_network_for_nothing(name: str, language: str) -> None:
    page = render(REPORTS[name], language=language)
    seen = Seen(page)
    assert seen.shape.count(("script", ())) == 1
    assert len(seen.scripts) == 1
    assert all(re.fullmatch(r"#f\d+|#c-[A-Z]{3}\d{3}", a) and a[1:] in seen.ids for a in seen.addresses)
    without_hashes = re.sub(r"sha256-[\w+/=]+", "", page)  # whose letters are any
    assert not re.search(r"https?:|//[a-z]|url\(|@import|javascript:", without_hashes)
    assert "default-src 'none'" in page
    assert not {"link", "img", "iframe", "object", "embed", "form", "base"} & {tag for tag, _ in seen.shape}
    assert not any(attribute.startswith("on") or attribute == "style" for _, attribute in seen.vocabulary)
    assert len(seen.ids) == len(set(seen.ids))


@pytest.mark.parametrize("language", ["en", "zh"])
def test_both_languages_are_in_the_page_and_one_is_shown_first(language: str) -> None:
    page = render(absent_report(), language=language)
    assert f'data-lang="{language}"' in page
    text = Seen(page).text
    assert "node 2 (gpu2) did not report within 5.0 s: 3 of 4 nodes are here" in text
    assert "节点 2 (gpu2) 在 5.0 秒内没有报到：4 个节点中已到 3 个" in text


def test_a_faulty_report_says_who_what_and_why() -> None:
    text = Seen(render(faulty_report())).text
    for part in (
        "NET901",
        "START-PATH",
        "node 2 (gpu2)",
        "0 (gpu0) → 2 (gpu2)",
        "iptables -I INPUT",
        "found after 2.1 s",
        "10.0.0.3:40002 silent for 2.0 s (11 of 12)",
        "nccl_init",
        "0-4,6,7",
        "do_signal_stop",
        "train.py:12 main",
        "docker0",
        "stuck at 9000 B, passed 64 1400 B",
        "check --nnodes 4",
    ):
        assert part in text


def test_only_the_node_that_differs_is_marked() -> None:
    page = render(faulty_report())
    assert re.findall(r'<td class="odd">([^<]*)</td>', page) == ["docker0"]
    assert 'class="odd"' not in render(healthy_report())


def test_a_node_links_to_the_findings_that_name_it() -> None:
    page = render(faulty_report())
    assert '<a href="#f1">NET901</a>' in page
    assert '<a href="#f2">ENV901</a>' in page


def test_the_healthy_report_has_the_table_and_the_curve() -> None:
    page = render(healthy_report())
    assert page.count("<polyline") == 1
    assert page.count('class="point"') == 10
    assert "643 GB/s" in Seen(page).text


def test_one_point_or_no_bus_draws_no_curve() -> None:
    report = healthy_report(2)
    assert report.collectives is not None
    run = report.collectives.runs[0]
    silent = tuple(
        BenchPoint(size_bytes=2**p, time_s=1e-5, algbw_gb_per_s=1.0, busbw_gb_per_s=0.0, num_errors=0, num_iterations=1)
        for p in range(4)
    )
    for points in (run.points[:1], silent):
        page = render(replace(report, collectives=Collectives(runs=(replace(run, points=points),))))
        assert "<polyline" not in page
        assert "algbw" in page


def test_every_table_head_is_a_head_and_states_are_not_told_by_colour_alone() -> None:
    page = render(faulty_report())
    assert re.findall(r"<th(?! scope=)", page) == ["<th"] * page.count("<thead")
    assert re.findall(r'<td class="o-bad" title="[^"]*"[^>]*>(.)</td>', page) == list("FSFFFFF")


@pytest.mark.thorough
@cases("payload", PAYLOADS)
@cases("name", REPORTS)
def test_no_strangers_text_becomes_markup(name: str, payload: str) -> None:
    page = render(changed(REPORTS[name], lambda s: s + payload))
    assert Seen(page).shape == plain(name)
    assert "\x1b" not in page
    assert "\u202e" not in page
    page.encode("utf-8")


@pytest.mark.thorough
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.text(min_size=1, max_size=60), st.sampled_from(sorted(REPORTS)))
def test_no_text_at_all_becomes_markup(payload: str, name: str) -> None:
    assert Seen(render(changed(REPORTS[name], lambda s: s + payload))).shape == plain(name)


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.one_of(st.sampled_from(PAYLOADS), st.text(min_size=1, max_size=60)), st.sampled_from(sorted(REPORTS)))
@example("GPU001", "absent")
def test_whatever_stands_everywhere_the_page_has_only_our_tags(payload: str, name: str) -> None:
    seen = Seen(render(changed(REPORTS[name], lambda s: payload, everywhere=True), language="zh"))
    assert seen.vocabulary <= allowed()
    assert len(seen.scripts) == 1
    assert all(re.fullmatch(r"#f\d+|#c-[A-Z]{3}\d{3}", address) for address in seen.addresses)  # a code has a page


def test_facts_of_another_shape_are_said_to_be_so() -> None:
    broken = replace(healthy_report(2), facts={0: {"net": {"interfaces": 7}, "host": None, "later": 1}, 1: {}})
    assert "Expected `array`" in Seen(render(broken)).text


def test_a_part_of_the_roll_draws_nobody_as_absent() -> None:
    report = absent_report()
    assert report.roll is not None
    assert render(report).count("dot gone") == 1
    assert "dot gone" not in render(replace(report, roll=replace(report.roll, partial=True)))


def test_sixteen_nodes_stay_small() -> None:
    assert len(render(faulty_report(16)).encode()) < 300_000


@pytest.mark.thorough
@pytest.mark.parametrize("made", [pytest.param(healthy_report, marks=pytest.mark.slow), faulty_report])
def test_512_nodes_are_drawn_quickly_and_not_all_of_them(made: object) -> None:
    assert callable(made)
    report: Report = made(512)
    page, took_s = timed(lambda: render(report), enough_s=3)
    assert took_s < 3
    assert len(page.encode()) < 5_000_000
    text = Seen(page).text
    assert "512" in text
    if made is faulty_report:
        assert "511 / 511" in text
        assert re.findall(r'<td class="odd">([^<]*)</td>', page) == ["docker0"]


def test_findings_of_one_rule_stand_together_and_all_of_them_are_there() -> None:
    def busy(node: int) -> Finding:
        return Finding(
            code="LIM005",
            severity=Severity.WARNING,
            fault_class=FaultClass.ENV_LIMIT,
            confidence=Confidence.CERTAIN,
            culprits=Culprits(nodes=(node,)),
            title="Few CPUs",
            message=f"node {node} has 2 CPUs",
            remedy="more CPUs",
        )

    report = faulty_report()
    page = render(replace(report, findings=(*report.findings, *map(busy, range(4)))))
    assert page.count("<article") == len(report.findings) + 1
    text = Seen(page).text
    assert "×4" in text
    assert "3 more of the same" in text
    assert all(f"node {n} has 2 CPUs" in text for n in range(4))


def test_evidence_of_many_rows_is_folded_and_equal_rows_are_one() -> None:
    report = faulty_report()
    many = tuple(Evidence(source=f"probe {n}", text=f"silent {n // 20}") for n in range(40))
    first = replace(report.findings[0], evidence=many)
    table = render(replace(report, findings=(first, *report.findings[1:]))).partition('class="evidence"')[2]
    assert table.partition("</table>")[0].count("<tr>") == 1 + 2
    assert "… +16" in table.partition("</table>")[0]
    assert render(report).count("<summary>… +4</summary>") == 1  # 12 rows, 8 of them open


def test_many_links_of_one_node_are_one_chip() -> None:
    world = faulty_report(16).world
    out = tuple((2, n) for n in range(16) if n != 2)
    back = tuple((n, 2) for n in range(16) if n != 2)
    assert culprits(Culprits(links=out), world, "en") == ("15 links 2 (gpu2) → 0,1,3-15",)
    assert len(culprits(Culprits(links=(*out, *back, (5, 6))), world, "en")) == 3
    assert len(culprits(Culprits(links=((0, 1), (1, 0))), world, "en")) == 2


def test_codes_link_to_their_pages_which_are_in_the_file_in_both_languages() -> None:
    page = render(absent_report())
    assert '<a href="#c-JOB001">JOB001</a>' in page.partition("<h1")[0]
    assert re.search(r'<details class="page" id="c-JOB001">', page)
    text = Seen(page).text
    assert "What it checks" in text
    assert "检查内容" in text


def test_nothing_is_wider_than_a_narrow_screen() -> None:
    """What can be seen without a browser: tables and wide drawings scroll in their own box, and no box has a width."""
    for report in (*REPORTS.values(), faulty_report(80)):
        page = render(report)
        tables = [page[: found.start()].rpartition("<div")[2] for found in re.finditer(r"<table", page)]
        assert all(head.startswith(' class="scroll') for head in tables)
    css = page.partition("<style>")[2].partition("</style>")[0]
    assert re.search(r"body \{[^}]*overflow-wrap: anywhere", css)
    assert re.search(r"\nsvg \{[^}]*max-width: 100%", css)
    for rule in re.findall(r"([^{}]+)\{([^}]*min-width: (\d+)px[^}]*)\}", css):
        assert int(rule[2]) <= 360 or ".scroll" in rule[0], rule
