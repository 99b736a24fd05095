"""What is too large to draw is made smaller with a note, and what is no number stays visible."""

from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st

from trainer.contract import drawn
from trainer.contract import events as ev

AXES = ev.Axes(iteration=3)


def test_a_histogram_counts_every_value_and_names_those_without_a_place() -> None:
    found = drawn.histogram(AXES, "r", [0.0, 0.24, 0.25, 1.0, math.nan, math.inf, -math.inf, math.nan], bins=4)
    assert found.edges == [0.0, 0.25, 0.5, 0.75, 1.0]
    assert found.counts == [2, 1, 0, 1]
    assert found.nonfinite == {"nan": 2, "inf": 1, "-inf": 1}


def test_equal_values_and_no_values_are_histograms_too() -> None:
    assert drawn.histogram(AXES, "r", [3.0, 3.0], bins=2).edges == [2.5, 3.0, 3.5]
    assert drawn.histogram(AXES, "r", []).counts == [0] * 20
    assert drawn.histogram(AXES, "r", [math.nan]).nonfinite == {"nan": 1}
    assert sum(drawn.histogram(AXES, "r", [1e300, 1.0000000001e300]).counts) == 2
    assert sum(drawn.histogram(AXES, "r", [1.0, math.nextafter(1.0, 2.0)]).counts) == 2


def test_a_histogram_with_too_many_bins_gets_wider_ones() -> None:
    event = ev.Histogram(axes=AXES, key="k", edges=[float(i) for i in range(1202)], counts=[1] * 1201)
    small = drawn.bounded(event)
    assert (len(small.counts), small.counts[:2], small.counts[-1]) == (401, [3, 3], 1)
    assert (small.edges[0], small.edges[1], small.edges[-1]) == (0.0, 3.0, 1201.0)
    assert small.note == "3 of 1201 bins in each"


def test_a_million_cells_become_ten_thousand_means_and_a_nan_is_not_averaged_away() -> None:
    z = [[float(r)] * 1000 for r in range(1000)]
    z[995][17] = math.nan
    names = [str(i) for i in range(1000)]
    small = drawn.heatmap(AXES, "k", x=names, y=names, z=z)
    assert (len(small.y), len(small.x)) == (100, 100)
    assert small.z[0][0] == 4.5
    assert small.z[99][1] is None
    assert small.nonfinite == [(99, 1, "nan")]
    assert small.y[1] == "10 … 19"
    assert small.note == "each cell is the mean of up to 10 × 10 of the 1000 × 1000 that were sent"


def test_a_hundred_thousand_rows_become_a_thousand() -> None:
    small = drawn.table(AXES, "k", columns=["a", "b"], rows=[[i, math.inf if i == 2 else "x"] for i in range(100_000)])
    assert len(small.rows) == 1000
    assert small.rows[2] == [2, None]
    assert small.nonfinite == [(2, 1, "inf")]
    assert small.note == "the first 1000 of 100000 rows"


def test_a_table_of_long_cells_ends_where_a_million_characters_are_reached() -> None:
    small = drawn.bounded(drawn.table(AXES, "k", columns=["a"], rows=[["x" * 5000]] * 600))
    assert (len(small.rows), len(small.rows[0][0])) == (250, 4000)
    assert small.note == "the first 250 of 600 rows; cells cut to 4000 characters"


def test_a_text_of_five_megabytes_is_cut() -> None:
    small = drawn.bounded(drawn.text(AXES, "k", "a\0" * 2_500_000))
    assert len(small.text) == 200_000
    assert small.text[:2] == "a\ufffd"
    assert small.note == "the first 200000 of 5000000 characters"


def test_points_that_are_no_numbers_survive_thinning() -> None:
    points = [(float(i), float(i)) for i in range(50_000)]
    points[777] = (777.0, math.nan)
    small = drawn.scatter(AXES, "k", points, labels=[f"p{i}" for i in range(50_000)])
    assert len(small.x) == 3000
    [(place, name, kind)] = small.nonfinite
    assert (name, kind, small.x[place], small.y[place], small.labels[place]) == ("y", "nan", 777.0, None, "p777")


@given(
    st.lists(st.lists(st.one_of(st.none(), st.floats(), st.text(max_size=4)), min_size=2, max_size=2), max_size=6),
    st.lists(st.tuples(st.floats(), st.floats()), max_size=6),
)
def test_what_the_makers_make_survives_json_and_is_small_enough_already(rows, points) -> None:  # type: ignore[no-untyped-def]
    for event in (
        drawn.table(AXES, "k", columns=["a", "b"], rows=rows),
        drawn.scatter(AXES, "k", points),
        drawn.histogram(AXES, "k", [x for x, _ in points]),
        drawn.text(AXES, "k", "".join(str(v) for row in rows for v in row)),
    ):
        assert drawn.bounded(event) == event
        assert type(event).model_validate_json(event.model_dump_json()) == event
