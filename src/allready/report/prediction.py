"""The answer of `bench predict`, for terminal and HTML."""

from collections.abc import Iterator, Mapping

from allready import units
from allready.model import CurveGap, Prediction
from allready.report.pieces import Block, Gap, grid, line
from allready.report.safe import plain
from allready.report.words import t

BASES: Mapping[str, str] = {
    "measured": "predict_measured", "between": "predict_between", "below": "predict_below", "above": "predict_above",
}  # fmt: skip
HEADS: Mapping[str, str] = {"ddp": "predict_head_ddp", "fsdp": "predict_head_fsdp"}
COLUMNS = ("predict_operation", "bench_size", "predict_count", "predict_each", "predict_all", "predict_basis")


def rows(prediction: Prediction, language: str) -> list[tuple[str, ...]]:
    """The cells of the predicted collectives, in the order of `COLUMNS`."""
    return [
        (
            plain(c.operation, most=40),
            units.size(c.size_bytes),
            str(c.count),
            units.time(c.time_s),
            units.time(c.count * c.time_s),
            t(BASES[c.basis], language) if c.basis in BASES else plain(c.basis, most=40),
        )
        for c in prediction.collectives
    ]


def head(prediction: Prediction, language: str) -> str:
    """For what was predicted: strategy, model, ranks."""
    return t(
        HEADS.get(prediction.strategy, "predict_head_ddp"),
        language,
        params=units.count_of_many(prediction.num_params),
        dtype=plain(prediction.dtype, most=20),
        count=prediction.world_size,
        bucket=units.size(prediction.bucket_bytes),
        accum=prediction.grad_accum,
    )


def lines(prediction: Prediction, language: str) -> list[str]:
    """The answer and what it stands on, or why there is none."""
    p = prediction
    if p.gaps:
        ordered = sorted(p.gaps, key=lambda gap: gap.size_bytes)
        return [_gap(gap, language) for gap in {gap.operation: gap for gap in ordered}.values()]
    found = [
        t("predict_step", language, time=units.time(p.step_s)),
        t("predict_timeout", language, time=units.time(p.timeout_s)),
    ]
    if any(c.basis == "above" for c in p.collectives):
        found.append(t("predict_note_above", language))
    if p.world_size != p.measured_ranks:
        found.append(t("predict_note_world", language, count=p.measured_ranks))
    if p.dtype != p.measured_dtype:
        found.append(t("predict_note_dtype", language, dtype=plain(p.measured_dtype, most=20)))
    return found


def _gap(gap: CurveGap, language: str) -> str:
    operation = plain(gap.operation, most=40)
    if gap.largest_bytes is None:
        return t("predict_no_curve", language, operation=operation)
    size, largest = units.size(gap.size_bytes), units.size(gap.largest_bytes)
    return t("predict_gap", language, operation=operation, size=size, largest=largest)


def compose(prediction: Prediction, language: str) -> Iterator[Block]:
    """`bench predict` on a terminal."""
    yield Gap()
    yield line(head(prediction, language), lead=t("predict_title", language), style="bold")
    if prediction.collectives:
        yield grid([t(name, language) for name in COLUMNS], rows(prediction, language), right={1, 2, 3, 4})
    yield from (line(text, indent=2) for text in lines(prediction, language))
