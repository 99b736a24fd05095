"""Files as users have them: each format read, recognised and mapped; faults named by line; versions known by content."""

from __future__ import annotations

import gzip
import io
import json
import os
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from trainer.contract.dataset import Mapping, Shares, problem_uid, split_of_uid
from trainer.contract.events import cleaned
from trainer.core.errors import DatasetError
from trainer.data.importers.imports import import_file, inspect
from trainer.data.importers.records import read
from trainer.data.importers.report import json_text
from trainer.data.importers.sources import sources_of

ROWS = [{"question": f"{a}+{b}?", "answer": f"so {a + b}\n#### {a + b}"} for a in range(12) for b in range(12)]
Importer = Callable[..., dict[str, Any]]


@pytest.fixture
def looked(tmp_path: Path) -> Callable[..., dict[str, Any]]:
    """``looked(rows)``: what is found in a JSONL file of these rows."""

    def look(rows: list[dict[str, Any]], mapping: Mapping | None = None) -> dict[str, Any]:
        path = tmp_path / "rows.jsonl"
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
        return inspect(path, path.name, scratch=tmp_path, mapping=mapping)

    return look


@pytest.fixture
def imported(tmp_path: Path, looked: Callable[..., dict[str, Any]]) -> Importer:
    """``imported(rows, **mapping changes)``: the report of an import of these rows."""
    count = iter(range(100))

    def run(rows: list[dict[str, Any]], *, others: Any = (), **changes: Any) -> dict[str, Any]:
        recognised = looked(rows)["recognised"]
        mapping = Mapping.model_validate({**recognised, **changes})
        out = tmp_path / f"out-{next(count)}"
        report = import_file(tmp_path / "rows.jsonl", "rows.jsonl", out=out, mapping=mapping, others=others)
        return {**report, "path": out / "rows.parquet"}

    return run


def values(path: Path, name: str, scratch: Path) -> list[dict[str, Any] | None]:
    return [record.value for source in sources_of(path, name, scratch=scratch) for record in read(source).records]


def write_table(path: Path, rows: list[dict[str, Any]]) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    pq.write_table(pa.Table.from_pylist(rows), path)


NESTED = [{"prompt": "2+3", "reward_model": {"ground_truth": "5", "style": "rule"}, "extra": [1, 2]}] * 3
TEXTS = {
    "a.jsonl": "".join(json.dumps(r) + "\n" for r in NESTED),
    "a.json": json.dumps(NESTED, indent=2),
    "lines.json": "".join(json.dumps(r) + "\n" for r in NESTED),
    "columns.json": json.dumps({key: [row[key] for row in NESTED] for key in NESTED[0]}),
    "wrapped.json": json.dumps({"version": "1", "data": NESTED}),
}


@pytest.mark.parametrize(("name", "frame"), [("a.jsonl", "%s\n"), ("a.json", "[%s]"), ("b.json", "%s")])
@pytest.mark.parametrize("opening", ['{"a": ', "["])
def test_a_row_that_is_nested_too_deeply_is_named(name: str, frame: str, opening: str, tmp_path: Path) -> None:
    closing = "}" if opening[0] == "{" else "]"
    path = tmp_path / name
    # An unwritable character has every text of the answer looked at, level by level.
    row = f'{{"question": "1+1?\\u0000", "answer": "2", "metadata": {opening * 600}1{closing * 600}}}'
    path.write_text(frame % row)
    [found] = json.loads(json_text(inspect(path, name, scratch=tmp_path)))["rows"]
    assert found["problem"] == "nested too deeply: expected at most 64 levels of lists and objects"


@pytest.mark.parametrize("zipped", [False, True], ids=["plain", "gz"])
@pytest.mark.parametrize("name", list(TEXTS))
def test_texts_of_objects_are_read(name: str, zipped: bool, tmp_path: Path) -> None:
    data = b"\xef\xbb\xbf" + TEXTS[name].encode()  # with a mark at the start, as some editors write it
    path = tmp_path / (name + ".gz" * zipped)
    path.write_bytes(gzip.compress(data) if zipped else data)
    assert values(path, path.name, tmp_path) == NESTED


@pytest.mark.parametrize("zipped", [False, True], ids=["plain", "gz"])
@pytest.mark.parametrize(("name", "delimiter"), [("a.csv", ","), ("a.csv", ";"), ("a.tsv", "\t")])
def test_delimited_texts_are_read(name: str, delimiter: str, zipped: bool, tmp_path: Path) -> None:
    text = f'question{delimiter}answer\n"two\nlines"{delimiter}5\nwhat{delimiter}"say ""6"""\n'
    path = tmp_path / (name + ".gz" * zipped)
    path.write_bytes(gzip.compress(text.encode()) if zipped else text.encode())
    expected = [{"question": "two\nlines", "answer": "5"}, {"question": "what", "answer": 'say "6"'}]
    assert values(path, path.name, tmp_path) == expected


@pytest.mark.parametrize("zipped", [False, True], ids=["plain", "gz"])
def test_parquet_with_nested_structs_is_read(zipped: bool, tmp_path: Path) -> None:
    write_table(tmp_path / "a.parquet", NESTED)
    path = tmp_path / "a.parquet"
    if zipped:
        path = tmp_path / "a.parquet.gz"
        path.write_bytes(gzip.compress((tmp_path / "a.parquet").read_bytes()))
    assert values(path, path.name, tmp_path) == NESTED


def saved_to_disk(folder: Path) -> None:
    from datasets import Dataset, DatasetDict

    DatasetDict({"train": Dataset.from_list(ROWS[:5]), "test": Dataset.from_list(ROWS[5:8])}).save_to_disk(folder)


@pytest.mark.parametrize("pack", ["folder", "tar", "tar.gz", "zip"])
def test_save_to_disk_folders_keep_their_splits(pack: str, tmp_path: Path) -> None:
    saved_to_disk(tmp_path / "gsm")
    path, name = tmp_path / "gsm", "gsm"
    if pack.startswith("tar"):
        path = tmp_path / f"gsm.{pack}"
        with tarfile.open(path, "w:gz" if pack.endswith("gz") else "w") as packed:
            packed.add(tmp_path / "gsm", arcname="gsm")
    elif pack == "zip":
        path = tmp_path / "gsm.zip"
        with zipfile.ZipFile(path, "w") as packed_zip:
            for file in (tmp_path / "gsm").rglob("*"):
                packed_zip.write(file, file.relative_to(tmp_path))
    name = path.name
    found = sources_of(path, name, scratch=tmp_path)
    assert [source.split for source in found] == ["train", "test"]
    assert values(path, name, tmp_path) == ROWS[:8]


def test_archives_that_climb_or_link_are_refused_whole(tmp_path: Path) -> None:
    for member in ("../out.arrow", "/etc/out.arrow"):
        with zipfile.ZipFile(tmp_path / "a.zip", "w") as packed:
            packed.writestr(member, "x")
        with pytest.raises(DatasetError, match="leads out of the archive; nothing was unpacked"):
            sources_of(tmp_path / "a.zip", "a.zip", scratch=tmp_path)
    with tarfile.open(tmp_path / "a.tar", "w") as tar:
        link = tarfile.TarInfo("state.json")
        link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
        tar.addfile(link)
    with pytest.raises(DatasetError, match="is a link or device"):
        sources_of(tmp_path / "a.tar", "a.tar", scratch=tmp_path)


def test_what_cannot_be_read_says_what_it_is_and_what_is_accepted(tmp_path: Path) -> None:
    def refusal(name: str, data: bytes) -> str:
        path = tmp_path / "file"
        path.write_bytes(data)
        with pytest.raises(DatasetError) as caught:
            values(path, name, tmp_path)
        return str(caught.value)

    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as packed:
        packed.writestr("a.jsonl", "{}")
    assert "holds no save_to_disk folder" in refusal("a.zip", buffer.getvalue())
    assert "unpack it and bring the file itself" in refusal("a.jsonl", buffer.getvalue())
    assert "accepted are JSONL" in refusal("a.xlsx", b"x")
    assert "UTF-16 text, expected UTF-8" in refusal("a.csv", "a,b\n".encode("utf-16"))
    assert "does not begin as a Parquet file" in refusal("a.parquet", b"hello")
    assert "cannot be unpacked" in refusal("a.jsonl.gz", b"no gzip")
    assert refusal("a.json", b'[{"a": 1},\n{"a": 2}\n{"a": 3}]').startswith(
        "a.json, line 3: expected a comma or the end of the array"
    )
    assert "a.json, line 2: no JSON" in refusal("a.json", b'[{"a": 1},\n{"a": nope}]')
    cut = gzip.compress(TEXTS["a.jsonl"].encode() * 1000)[:-20]
    assert "ends too early" in refusal("a.jsonl.gz", cut)
    assert "repeated columns ['a']" in refusal("a.csv", b"a,a\n1,2\n")


def test_archives_and_folders_that_are_damaged_say_how(tmp_path: Path) -> None:
    def refusal(name: str, data: bytes) -> str:
        path = tmp_path / name
        path.write_bytes(data)
        with pytest.raises(DatasetError) as caught:
            values(path, name, tmp_path)
        return str(caught.value)

    def packed(**files: str) -> bytes:
        buffer = io.BytesIO()
        with zipfile.ZipFile(buffer, "w") as out:
            for name, text in files.items():
                out.writestr(f"{name}.json", text)
        return buffer.getvalue()

    assert "expected state.json to be an object with a list '_data_files'" in refusal("a.zip", packed(state="[1]"))
    assert "state.json is no JSON" in refusal("a.zip", packed(state="{"))
    assert "expected a 'filename'" in refusal("a.zip", packed(state='{"_data_files": [{}]}'))
    assert "names 'b.arrow', but it is missing" in refusal(
        "a.zip", packed(state='{"_data_files": [{"filename": "b.arrow"}]}')
    )
    assert "a list 'splits', found 5" in refusal("a.zip", packed(dataset_dict='{"splits": 5}'))
    assert "its folder is missing" in refusal("a.zip", packed(dataset_dict='{"splits": ["train"]}'))
    encrypted = bytearray(packed(state="{}"))
    for mark, flags in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        encrypted[encrypted.find(mark) + flags] |= 1
    assert "is encrypted" in refusal("a.zip", bytes(encrypted))
    changed = bytearray(gzip.compress(TEXTS["a.jsonl"].encode() * 1000))
    changed[40:-40:7] = b"\x5a" * len(changed[40:-40:7])
    assert refusal("a.jsonl.gz", bytes(changed)).startswith("a.jsonl.gz ")
    write_table(tmp_path / "t.parquet", NESTED)
    assert "cannot be unpacked" in refusal("a.parquet.gz", gzip.compress((tmp_path / "t.parquet").read_bytes())[:-9])
    assert "found no CSV" in refusal("a.csv", b"a,b\r1,2\r")


def test_rows_with_values_that_python_cannot_hold_are_broken_and_the_others_read(tmp_path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    days = pa.array([0, 10**15], pa.timestamp("ms"))  # 1970, and the year 33658
    pq.write_table(pa.table({"question": ["a", "b"], "day": days}), tmp_path / "a.parquet")
    found = [record for source in sources_of(tmp_path / "a.parquet", "a.parquet", scratch=tmp_path)
             for record in read(source).records]  # fmt: skip
    assert [(one.line, one.value is None) for one in found] == [(1, False), (2, True)]
    assert found[1].problem.startswith("a value that cannot be read: ")


def test_what_no_database_stores_is_shown_as_a_replacement_character(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    rows = [{"question": "a\0\ud800", "answer": "1", "bad\0name": 1}, {"question": "b\0", "answer": "2"}]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    found = tool("inspect", path)
    assert found["rows"][0]["prompt"][0]["content"] == "a\ufffd\ufffd"
    assert [one["path"] for one in found["columns"]] == ["question", "answer"]
    mapping = Mapping.model_validate({**found["mapping"], "skip_broken": True})
    import_file(path, "a.jsonl", out=tmp_path / "out", mapping=mapping)
    report = json.loads((tmp_path / "out/report.json").read_text())
    assert report == cleaned(report)
    assert report["characters"] == {"b": 2, "\ufffd": 2}
    assert report["broken"]["examples"][0]["text"].startswith('{"question": "a\\u0000\ufffd"')


def tool(*arguments: Any) -> Any:
    """The last line that ``python -m trainer dataset …`` prints."""
    done = subprocess.run(
        [sys.executable, "-m", "trainer", "dataset", *map(str, arguments)], capture_output=True, check=True
    )
    return json.loads(done.stdout.splitlines()[-1])


def test_long_json_arrays_are_read_in_pieces(tmp_path: Path) -> None:
    rows = [{"question": "x" * 5000 + str(i), "n": i} for i in range(600)]  # 3 MB, windows of 1 MB
    (tmp_path / "a.json").write_text(json.dumps(rows, indent=1))
    assert values(tmp_path / "a.json", "a.json", tmp_path) == rows


def test_broken_rows_are_named_by_line_with_what_was_found(tmp_path: Path) -> None:
    good = json.dumps(ROWS[0]).encode()
    lines = [good, b'{"question": "a"', b"[1, 2]", b'{"question": "caf\xe9", "answer": "#### 1"}', b'{"answer": "#### 1"}', b"",
             b'{"question": "\\ud800", "answer": "#### 1"}', good.replace(b"0+0", b"0+9")]  # fmt: skip
    path = tmp_path / "rows.jsonl"
    path.write_bytes(b"\n".join(lines))
    mapping = Mapping.model_validate(inspect(path, "rows.jsonl", scratch=tmp_path)["recognised"])
    with pytest.raises(DatasetError, match=r"rows.jsonl, line 2: no JSON: .* and 4 more; repair the file"):
        import_file(path, "rows.jsonl", out=tmp_path / "out", mapping=mapping)
    assert not (tmp_path / "out/rows.parquet").exists()
    broken = json.loads((tmp_path / "out/report.json").read_text())["broken"]
    assert [one["line"] for one in broken["examples"]] == [2, 3, 4, 5, 7]
    assert broken["examples"][0]["text"] == '{"question": "a"'
    assert broken["examples"][2]["problem"] == "not UTF-8: byte 0xe9 at position 18"
    skipping = mapping.model_copy(update={"skip_broken": True})
    report = import_file(path, "rows.jsonl", out=tmp_path / "out", mapping=skipping)
    assert (report["rows"], report["broken"]["count"]) == (2, 5)


def test_a_csv_row_with_too_few_columns_is_named_by_its_first_line(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text('question,answer\n"a\nb",1\nonly\nc,3\n')
    found = list(read(sources_of(path, "a.csv", scratch=tmp_path)[0]).records)
    assert [(record.line, record.problem) for record in found] == [
        (2, ""),
        (4, "expected 2 columns as in line 1, found 1"),
        (5, ""),
    ]


FORMATS: list[tuple[str, dict[str, Any], str | None, str, str]] = [
    ("gsm8k", {"question": "q", "answer": "a\n#### 1,234"}, "1234", "int", "a\n#### 1,234"),
    ("math", {"problem": "q", "solution": "so \\boxed{\\frac{1}{2}}", "level": "5", "type": "Algebra"}, "\\frac{1}{2}",
     "expr", "so \\boxed{\\frac{1}{2}}"),
    ("math500", {"problem": "q", "answer": "x^2", "solution": "s", "subject": "Algebra", "unique_id": "u/1"}, "x^2", "expr", "s"),
    ("math500", {"problem": "q", "answer": 33, "id": 1}, "33", "int", ""),
    ("dapo", {"prompt": [{"role": "user", "content": "q\nAnswer:"}], "data_source": "math_dapo", "ability": "MATH",
              "reward_model": {"ground_truth": "34", "style": "rule"}, "extra_info": {"index": "7"}}, "34", "int", ""),
    ("openr1", {"problem": "q", "solution": "s", "answer": "\\pi", "problem_type": "Algebra", "question_type": "proof",
                "uuid": "u", "generations": ["<think>t</think>g"], "correctness_math_verify": [True],
                "messages": [{"role": "user", "content": "q"}, {"role": "assistant", "content": "trace"}]},
     "\\pi", "expr", "trace"),
    ("verl", {"data_source": "x", "prompt": [{"role": "user", "content": "q"}], "ability": "qa",
              "reward_model": {"style": "rule", "ground_truth": ["Paris", "paris city"]},
              "extra_info": {"split": "test", "index": 3}},
     '["Paris", "paris city"]', "string", ""),
    ("verl", {"data_source": "x", "prompt": [{"role": "user", "content": "q"}], "reward_model": {"ground_truth": "[1, 2]"}},
     "[1, 2]", "list", ""),
    ("verl", {"data_source": "x", "prompt": [{"role": "user", "content": "q"}], "reward_model": {"ground_truth": 2.5}},
     "2.5", "float", ""),
    ("prompt", {"prompt": "q", "ground_truth": "12"}, "12", "int", ""),
    ("sft", {"messages": [{"role": "user", "content": "q"}, {"role": "assistant", "content": "a"}]}, None, "string", "a"),
    ("sft", {"prompt": "q", "completion": "a"}, None, "string", "a"),
    ("preference", {"prompt": "q", "chosen": "good", "rejected": "bad"}, None, "string", "good"),
    ("rlvr", {"messages": [{"role": "user", "content": "q"}], "ground_truth": "7", "dataset": "gsm8k"}, "7", "int", ""),
    ("human_eval", {"task_id": "H/0", "prompt": "def f():", "entry_point": "f", "canonical_solution": "  pass",
                    "test": "assert f"}, None, "program", "  pass"),
    ("choice", {"question": "q", "choices": ["red", "blue"], "answer": 1}, "B", "choice", ""),
    ("choice", {"question": "q", "options": {"A": "red", "B": "blue"}, "answer": "blue"}, "B", "choice", ""),
    ("choice", {"question": "q", "choices": {"label": ["A", "B"], "text": ["red", "blue"]}, "answerKey": "A"}, "A", "choice", ""),
    ("reasoning_gym", {"question": "q", "answer": "cat", "metadata": {"source_dataset": "spell_backward"}}, "cat", "gym", ""),
    ("reasoning_gym", {"question": "q", "answer": "cat", "metadata": '{"source_dataset": "ab"}'}, "cat", "gym", ""),
    ("code", {"prompt": "add", "test_cases": {"inputs": ["1 2"], "outputs": ["3"]}, "solution": "print(3)"}, None, "program",
     "print(3)"),
    ("by_hand", {"task text": "q", "the answer": "5"}, "5", "int", ""),
]  # fmt: skip


@pytest.mark.parametrize(
    ("format", "row", "answer", "kind", "completion"), FORMATS, ids=[f"{i}-{f[0]}" for i, f in enumerate(FORMATS)]
)
def test_formats_are_recognised_by_their_columns(
    format: str,
    row: dict[str, Any],
    answer: str | None,
    kind: str,
    completion: str,
    looked: Callable[..., dict[str, Any]],
) -> None:
    found = looked([row])
    assert found["format"] == format
    [shown] = found["rows"]
    assert (shown["answer"], shown["answer_type"], shown["completion"] or "") == (answer, kind, completion)
    assert shown["prompt"][-1]["role"] == "user"
    assert shown["check"] is None or shown["check"]["right"] is True


def test_what_formats_bring_besides_is_kept(looked: Callable[..., dict[str, Any]]) -> None:
    verl = looked([FORMATS[6][1]])["rows"][0]
    assert (verl["split"], verl["id"], verl["meta"]["data_source"]) == ("test", "3", "x")
    choice = looked([FORMATS[15][1]])["rows"][0]
    assert choice["prompt"][0]["content"] == "q\nA. red\nB. blue"
    assert looked([FORMATS[12][1]])["rows"][0]["meta"] == {"rejected": "bad"}


def test_a_mapping_by_hand_reaches_into_structs_and_lists(looked: Callable[..., dict[str, Any]]) -> None:
    row = {
        "in": {"turns": [{"text": "first"}, {"text": "2+3"}]},
        "out": '{"final": "5"}',
        "who": "Be brief.",
        "part": "dev",
    }
    mapping = Mapping(
        prompt="in.turns.1.text",
        answer="out.final",
        system="who",
        split="part",
        suffix="\nAnswer:",
        meta=("in.turns.0.text",),
    )
    [shown] = looked([row], mapping)["rows"]
    assert shown["prompt"] == [
        {"role": "system", "content": "Be brief."}, {"role": "user", "content": "2+3\nAnswer:"},
    ]  # fmt: skip
    assert (shown["answer"], shown["split"], shown["meta"]) == ("5", "validation", {"in.turns.0.text": "first"})


def test_the_preview_has_twenty_rows_and_shows_broken_ones(looked: Callable[..., dict[str, Any]]) -> None:
    shown = looked([*ROWS[:10], {"question": ""}, *ROWS[10:]])["rows"]
    assert len(shown) == 20
    assert shown[10]["problem"] == "the prompt column 'question' is empty"


def test_the_same_content_is_the_same_version_whatever_the_file(imported: Importer, tmp_path: Path) -> None:
    first = imported(ROWS)
    path = tmp_path / "again.json"
    path.write_text(json.dumps(ROWS))
    mapping = Mapping.model_validate(inspect(path, path.name, scratch=tmp_path)["recognised"])
    again = import_file(path, path.name, out=tmp_path / "again", mapping=mapping)
    assert again["content_hash"] == first["content_hash"]
    assert imported(ROWS[:-1])["content_hash"] != first["content_hash"]
    assert imported(ROWS, shares={"train": 1, "validation": 0, "test": 0})["content_hash"] != first["content_hash"]


def test_splits_come_from_the_problem_and_not_from_its_place(imported: Importer) -> None:
    import pyarrow.parquet as pq

    def splits(report: dict[str, Any]) -> dict[str, str]:
        rows = pq.read_table(report["path"], columns=["uid", "split"]).to_pylist()
        return {row["uid"]: row["split"] for row in rows}

    forward, backward = imported(ROWS), imported(ROWS[::-1])
    assert splits(forward) == splits(backward)
    assert sum(forward["splits"].values()) == 144
    # Literal: a change of the rule would move test problems into training.
    assert [split_of_uid(f"{i:016x}", Shares()) for i in range(8)] == EXPECTED_SPLITS
    assert (
        problem_uid([{"role": "system", "content": "s"}, {"role": "user", "content": " What\n IS it? "}])
        == EXPECTED_UID
    )


EXPECTED_SPLITS = ["validation", "train", "train", "test", "train", "train", "train", "train"]
EXPECTED_UID = "972539ab3de5b4d5"


def test_copies_of_a_problem_are_found_and_never_straddle_splits(imported: Importer) -> None:
    rows = [
        {"question": "2+3?", "answer": "#### 5", "split": "train"},
        {"question": "2+3?", "answer": "#### 5", "split": "train"},
        {"question": " 2+3?  ", "answer": "so\n#### 5", "split": "test"},
        {"question": "2+3?", "answer": "#### 6", "split": "train"},
        {"question": "1+1?", "answer": "#### 2", "split": "train"},
    ]
    kept = imported(rows, duplicates="keep")
    assert kept["splits"] == {"train": 1, "validation": 0, "test": 4}
    assert kept["moved_between_splits"] == 3
    found = kept["duplicates"]
    assert (found["exact"], found["normalised"], found["conflicting"], found["dropped"]) == (1, 3, 1, 0)
    assert [(one["line"], one["repeats"]["line"], one["other_answer"]) for one in found["examples"]] == [
        (2, 1, False), (3, 1, False), (4, 1, True),
    ]  # fmt: skip
    dropped = imported(rows)
    assert (dropped["rows"], dropped["problems"], dropped["duplicates"]["dropped"]) == (3, 2, 2)


def test_missing_splits_can_be_taken_from_train(imported: Importer) -> None:
    rows = [{**row, "split": "train"} for row in ROWS]
    assert imported(rows)["splits"] == {"train": 144, "validation": 0, "test": 0}
    carved = imported(rows, carve=["validation"])["splits"]
    assert carved["test"] == 0
    assert 0 < carved["validation"] < 40


def test_gold_answers_are_held_against_themselves(imported: Importer) -> None:
    rows = [{"problem": "a", "answer": "5"}, {"problem": "b", "answer": "about 5"}, {"problem": "c", "answer": ""}]
    report = imported(rows, answer_type="int")
    assert report["gold_check"]["failed"]["examples"] == [
        {
            "file": "rows.jsonl",
            "line": 2,
            "answer": "about 5",
            "type": "int",
            "why": "the gold answer is no whole number",
        }
    ]
    assert report["gold_check"]["decided_by"] == {"int": 2}
    assert [one["line"] for one in report["empty_gold"]["examples"]] == [3]


def test_overlap_with_other_versions_is_counted_by_split(imported: Importer) -> None:
    first = imported([{**row, "split": "test"} for row in ROWS[:10]])
    others = [{"id": 7, "name": "held out", "path": first["path"]}]
    second = imported([{**row, "split": "train"} for row in ROWS[5:30]], others=others)
    assert second["overlaps"] == [
        {"id": 7, "name": "held out", "shared": [{"split": "train", "other_split": "test", "count": 5}]}
    ]


def test_lengths_and_characters_are_counted(imported: Importer) -> None:
    report = imported([{"prompt": "é" * 20, "answer": "1"}, {"prompt": "b" * 100, "answer": "2"}])
    assert report["characters"] == {"é": 1, "b": 2}
    lengths = report["prompt_chars"]
    assert (lengths["min"], lengths["max"], lengths["longest"]) == (20, 100, {"file": "rows.jsonl", "line": 2})
    assert [(one["from"], one["count"]) for one in lengths["histogram"] if one["count"]] == [(16, 1), (64, 1)]


@pytest.mark.slow
def test_memory_does_not_grow_with_the_rows(tmp_path: Path) -> None:
    import subprocess
    import sys

    def peak(rows: int) -> int:
        path = tmp_path / f"{rows}.jsonl"
        with path.open("w") as file:
            for i in range(rows):
                file.write(json.dumps({"question": f"{i} and {'x' * 2000}", "answer": f"#### {i}"}) + "\n")
        command = [sys.executable, "-m", "trainer", "dataset", "import", str(path), "--out", str(tmp_path / f"o{rows}")]
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        _, status, usage = os.wait4(process.pid, 0)
        assert status == 0
        return usage.ru_maxrss

    # 40 MB of text more cost no more than a few bytes a row; 200 bytes of bookkeeping and some slack of the allocator.
    assert peak(30_000) - peak(10_000) < 20_000
