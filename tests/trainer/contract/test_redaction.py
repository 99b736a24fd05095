"""Values of secrets are found in whatever way they were written."""

from __future__ import annotations

import base64
import html
import io
import json
from urllib.parse import quote, quote_plus

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainer.contract.redaction import RedactingStream, Redactor

VALUE = 'p@ss/w+rd &"quoted" ü'
REDACT = Redactor({"TOKEN": VALUE})
SHOWN = "[secret TOKEN]"


@pytest.mark.parametrize(
    "written",
    [
        VALUE,
        json.dumps(VALUE)[1:-1],
        json.dumps(VALUE, ensure_ascii=False)[1:-1],
        repr(VALUE)[1:-1],
        quote(VALUE),
        quote(VALUE, safe=""),
        quote(VALUE, safe="").lower(),
        quote_plus(VALUE),
        html.escape(VALUE),
        VALUE.encode().hex(),
        VALUE.encode().hex().upper(),
    ],
)
def test_every_way_of_writing_it_is_found(written: str) -> None:
    assert REDACT.text(f"before {written} after") == f"before {SHOWN} after"


@pytest.mark.parametrize("before", ["", "u", "us", "use", "user:"])
def test_it_is_found_inside_base64(before: str) -> None:
    """As in an Authorization header: where the value begins decides how it is written."""
    coded = base64.b64encode(f"{before}{VALUE}:more".encode()).decode()
    redacted = REDACT.text(f"Authorization: Basic {coded}")
    assert SHOWN in redacted
    left = redacted.removeprefix("Authorization: Basic ").split(SHOWN)
    assert sum(map(len, left)) <= len(coded) - len(VALUE)


def test_other_text_is_left_alone() -> None:
    text = "reward 0.25, password, p@ss/w"
    assert REDACT.text(text) is text
    assert not Redactor({})
    assert Redactor({}).text(text) is text


def test_of_two_values_that_contain_each_other_the_longer_one_is_named() -> None:
    redact = Redactor({"SHORT": "12345678", "LONG": "12345678-abcdef"})
    assert redact.text("12345678-abcdef 12345678") == "[secret LONG] [secret SHORT]"


def test_a_value_of_several_lines_is_found_line_by_line() -> None:
    redact = Redactor({"KEY": "-----BEGIN KEY-----\nMIIEvQIBADANBgkq\n-----END KEY-----"})
    assert redact.text("line: MIIEvQIBADANBgkq") == "line: [secret KEY]"


def test_a_json_line_keeps_its_numbers() -> None:
    redact = Redactor({"PIN": "12345678"})
    line = '{"values": {"loss": 0.12345678, "12345678": 1}, "text": "it is 12345678"}'
    assert json.loads(redact.json_line(line)) == {
        "values": {"loss": 0.12345678, "[secret PIN]": 1}, "text": "it is [secret PIN]",
    }  # fmt: skip
    assert redact.json_line("no json 12345678") == "no json [secret PIN]"


def test_masking_keeps_every_byte_in_its_place() -> None:
    data = f"ä {VALUE} {quote(VALUE)} end".encode()
    masked = REDACT.masked(data)
    assert len(masked) == len(data)
    assert masked.startswith("ä *".encode())
    assert masked.endswith(b"* end")
    assert VALUE.encode() not in masked


def test_a_stream_finds_a_value_that_comes_in_pieces() -> None:
    out = io.StringIO()
    stream = RedactingStream(out, REDACT)
    for letter in f"it is {VALUE}\nand ":
        stream.write(letter)
        stream.flush()
    assert out.getvalue() == f"it is {SHOWN}\n"
    stream.write(f"again {VALUE}")
    stream.finish()
    assert out.getvalue() == f"it is {SHOWN}\nand again {SHOWN}"


HALF = VALUE[: len(VALUE) // 2]
REST = VALUE[len(VALUE) // 2 :]


@pytest.mark.parametrize(
    ("written", "left"),
    [
        (f"found {HALF}", f"found {SHOWN}"),
        (f"found {HALF}…, expected a number", f"found {SHOWN}…, expected a number"),
        (f"input_value='{HALF}...{REST}', input_type=str", f"input_value='{SHOWN}...{SHOWN}', input_type=str"),
        (f"'{HALF}'\n", f"'{SHOWN}'\n"),
        (f"{REST} is refused", f"{SHOWN} is refused"),
        (f"…{REST} {VALUE} {HALF}", f"…{SHOWN} {SHOWN} {SHOWN}"),
        (quote(VALUE)[:14] + "…", f"{SHOWN}…"),
    ],
)
def test_what_a_cut_left_of_it_is_found(written: str, left: str) -> None:
    assert REDACT.text(written) == left
    assert json.loads(REDACT.json_line(json.dumps([written]))) == [left]


def test_what_text_shares_with_a_value_by_chance_stays() -> None:
    redact = Redactor({"JUDGE": "https://judge.example.org/v1?key=abcdef"})
    for text in ("https://huggingface.co", "see https://judges.example.org", "at example.org/v2?key=abcdef1"):
        assert redact.text(text) == text
    assert redact.text("https://judge.example.org/v1?ke") == "[secret JUDGE]"


@pytest.mark.parametrize("before", range(0, 60, 7))
def test_a_long_line_without_an_end_gives_no_half_away(before: int) -> None:
    """What a stream holds back has a limit; a value may lie across it."""
    out = io.StringIO()
    stream = RedactingStream(out, REDACT)
    for piece in ("x" * ((1 << 16) - before), " ", VALUE[:3], VALUE[3:], "y" * 40, VALUE, "z" * (1 << 17)):
        stream.write(piece)
    stream.finish()
    text = out.getvalue()
    assert text == f"{'x' * ((1 << 16) - before)} {SHOWN}{'y' * 40}{SHOWN}{'z' * (1 << 17)}"


@given(value=st.text(min_size=8, max_size=40).filter(lambda v: len(v.strip()) >= 8), around=st.text(max_size=20))
def test_no_json_document_gives_a_value_away(value: str, around: str) -> None:
    redact = Redactor({"S": value})
    for ascii_only in (True, False):
        line = json.dumps({"message": f"{around}{value}{around}"}, ensure_ascii=ascii_only)
        assert value not in json.loads(redact.json_line(line))["message"]
