"""Fewer points for a chart, without losing what one looks for.

Iterations fall into buckets of a power of two, counted from zero and not from the first point. So the choice inside a
bucket never depends on what lies outside it: the same data give the same picture, and new points at the end leave the
older ones where they are until the width doubles.
"""

from collections.abc import Sequence

# A point as stored: iteration, value, and a `NonFinite` code, where zero means that the value is a number. A plain
# tuple, as the database gives it, because there are ten thousand of them in a series.
Reading = tuple[int, float | None, int]


KEPT_PER_BUCKET = 4  # first, lowest, highest, last


def reduce(points: Sequence[Reading], max_points: int) -> Sequence[Reading]:
    """At most `max_points` finite points of a series in ascending order of iteration, as a subsequence.

    Kept of every bucket: the first, lowest, highest and last finite point, and the first of each kind of non-finite
    one. The lowest and highest of the whole series, its first and last point, and a single NaN are thereby always
    there.
    """
    if max_points < KEPT_PER_BUCKET:
        raise ValueError(f"max_points is {max_points}; at least {KEPT_PER_BUCKET} are needed")
    if len(points) <= max_points:
        return points
    shift = _shift([point[0] for point in points], max_points // KEPT_PER_BUCKET)
    kept: list[Reading] = []
    start = 0
    bucket = points[0][0] >> shift
    for index, point in enumerate(points):
        if point[0] >> shift != bucket:
            kept.extend(_of_bucket(points[start:index]))
            start, bucket = index, point[0] >> shift
    kept.extend(_of_bucket(points[start:]))
    return kept


def _shift(buckets: list[int], wanted: int) -> int:
    """By how many bits to shift the iterations so that at most `wanted` buckets hold points."""
    shift = 0
    while len(buckets) > wanted:
        shift += 1
        buckets = list(dict.fromkeys(bucket >> 1 for bucket in buckets))
    return shift


def _of_bucket(points: Sequence[Reading]) -> list[Reading]:
    if len(points) <= 2:
        return list(points)
    keep: set[int] = set()
    kinds: set[int] = set()
    finite = first = None
    low = high = 0
    for index, (_iteration, value, nonfinite) in enumerate(points):
        if value is None:
            if nonfinite not in kinds:
                kinds.add(nonfinite)
                keep.add(index)
            continue
        if first is None:
            first = low = high = index
        elif value < points[low][1]:  # type: ignore[operator]
            low = index
        elif value > points[high][1]:  # type: ignore[operator]
            high = index
        finite = index
    if first is not None and finite is not None:
        keep.update((first, low, high, finite))
    return [points[index] for index in sorted(keep)]
