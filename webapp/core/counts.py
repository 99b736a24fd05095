"""Numbers with the noun that they count, for texts that Python makes; templates have `pluralize`."""


def counted(count: int, one: str, many: str = "") -> str:
    """1 and "row" -> "1 row"; 2 and "row" -> "2 rows". `many` is for what takes more than an s: "row has", "rows have"."""
    return f"{count} {one if count == 1 else many or one + 's'}"
