"""What is read becomes a struct, or one line says the file, the line, the field and what it must be."""

from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import pytest
from msgspec import Meta, field

from r2med.errors import DataError, SpecError
from r2med.store.typed import (
    Typed,
    convert,
    json_bytes,
    line_of,
    parse_json,
    parse_toml,
    plain,
    read_json,
    read_toml,
    require,
    write_json,
)


class Arm(Typed):
    depth: int
    ends: tuple[float, float] = (0.0, 1.0)


class Study(Typed):
    name: Annotated[str, Meta(min_length=1)] = "study"
    seed: int = 0
    share: Annotated[float, Meta(ge=0, le=1)] = 0.5
    samples: Annotated[int, Meta(ge=1)] = 1
    price: Annotated[float, Meta(gt=0)] = 1.0
    kind: Literal["fast", "exact"] = "fast"
    models: tuple[str, ...] = ()
    folder: Path | None = None
    device: str | tuple[str, ...] = ""
    quiet: bool | None = None
    arms: dict[str, Arm] = field(default_factory=dict)
    steps: tuple[Arm, ...] = ()

    def __post_init__(self) -> None:
        require(self.seed != 13, "seed", "must not be 13")


class Kept(Typed, tag_field="format", tag=3):
    rows: tuple[int, ...] = ()


WRONG: list[tuple[Any, str]] = [
    ({"name": 3}, "name must be a text that is not empty, not 3"),
    ({"name": ""}, "name must be a text that is not empty, not ''"),
    ({"seed": True}, "seed must be a whole number, not True"),
    ({"seed": 13}, "seed must not be 13"),
    ({"share": 2}, "share must be a number from 0 to 1, not 2"),
    ({"samples": 0}, "samples must be a whole number of at least 1, not 0"),
    ({"price": 0}, "price must be a number above 0, not 0"),
    ({"kind": "slow"}, "kind must be one of exact, fast, not 'slow'"),
    ({"models": "a"}, "models must be a list of texts, not 'a'"),
    ({"models": ["a", 2]}, "models must be a list of texts, not ['a', 2]"),
    ({"folder": ""}, "folder must be a path, not ''"),
    ({"device": 3}, "device must be a text or a list of texts, not 3"),
    ({"quiet": "no"}, "quiet must be true or false, not 'no'"),
    ({"arms": []}, "arms must be a table, not []"),
    ({"arms": {"a": {"depth": 1}, "b": {"depth": "x"}}}, "arms.b.depth must be a whole number, not 'x'"),
    ({"arms": {"a": {"dept": 1}}}, "arms.a.dept is not a known key; did you mean depth?"),
    ({"arms": {"a": {}}}, "arms.a.depth is missing"),
    ({"steps": [{"depth": 1}, {"depth": 1.5}]}, "steps[1].depth must be a whole number, not 1.5"),
    ({"steps": [{"depth": 1, "ends": [1, 2, 3]}]}, "steps[0].ends must be a list of 2 numbers, not [1, 2, 3]"),
    ({"sede": 1}, "sede is not a known key; did you mean seed?"),
    ([], "must be a table, not []"),
    ({"models": list(range(99))}, f"models must be a list of texts, not {str(list(range(99)))[:117]}..."),
]


@pytest.mark.parametrize(("value", "message"), WRONG, ids=[message for _, message in WRONG])
def test_an_error_names_the_field_and_what_it_must_be(value: Any, message: str) -> None:
    with pytest.raises(SpecError) as caught:
        convert(value, Study, "study", SpecError)
    assert str(caught.value) == f"study: {message}"


def test_right_values_are_converted() -> None:
    study = convert({"models": ["a"], "folder": "~/x", "share": 1, "arms": {"a": {"depth": 5}}}, Study)
    assert study.models == ("a",)
    assert study.folder == Path.home() / "x"
    assert type(study.share) is float
    assert study.arms["a"] == Arm(5)


TOML = """seed = 1
[arms.a]
depth = 5
# [arms.c]
[arms."b.1"]
depth = "x"
[[steps]]
depth = 1
[[steps]]
depth = 2
ends = 3
"""


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (TOML, """s.toml:6: [arms.b.1] depth must be a whole number, not 'x'"""),
        (TOML.replace('"x"', "1"), "s.toml:11: [steps[1]] ends must be a list of 2 numbers, not 3"),
        ("\n\nsede = 1", "s.toml:3: sede is not a known key; did you mean seed?"),
        ("[arms.a]\n", "s.toml:1: [arms.a] depth is missing"),
    ],
)
def test_an_error_names_the_line_of_toml(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(DataError) as caught:
        parse_toml(text, Study, "s.toml")
    assert str(caught.value) == message


def test_a_file_that_cannot_be_read_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"none\.toml: no such file; write one$"):
        read_toml(tmp_path / "none.toml", Study, advice="write one")
    with pytest.raises(DataError, match="cannot be read: Is a directory"):
        read_json(tmp_path, Study)
    (tmp_path / "latin.toml").write_bytes(b"name = '\xff'")
    with pytest.raises(DataError, match="cannot be read: not UTF-8"):
        read_toml(tmp_path / "latin.toml", Study)
    (tmp_path / "a.toml").write_text("= 3")
    with pytest.raises(DataError, match=r"a\.toml: not readable as TOML: .*line 1"):
        read_toml(tmp_path / "a.toml", Study)


@pytest.mark.parametrize("content", [b'{"rows": [1,\n', b'{"rows":\n nope}', b"{}\n x"])
def test_broken_json_names_its_line(content: bytes) -> None:
    with pytest.raises(DataError, match=r"^a\.json:2: not readable as JSON: "):
        parse_json(content, Kept, "a.json")


@pytest.mark.parametrize("content", [b"{}", b'{"format": 2}', b'{"format": 2, "lines": []}', b'{"format": "x"}'])
def test_a_file_of_another_format_is_refused(content: bytes) -> None:
    with pytest.raises(DataError, match=r"a\.json: format is .*: another version of r2med wrote this; make it again$"):
        parse_json(content, Kept, "a.json")


def test_what_is_written_is_read_again(tmp_path: Path) -> None:
    write_json(tmp_path / "kept.json", Kept((1, 2)))
    assert read_json(tmp_path / "kept.json", Kept) == Kept((1, 2))
    assert (tmp_path / "kept.json").read_text() == '{\n  "format": 3,\n  "rows": [\n    1,\n    2\n  ]\n}\n'


def test_numbers_and_paths_are_written_plainly() -> None:
    assert plain({"a": np.float64(0.5), "b": Path("x"), 3: np.arange(2)}) == {"a": 0.5, "b": "x", "3": [0, 1]}
    assert json_bytes({"a": float("nan")}) == b'{"a":null}'


def test_the_line_of_a_value_that_is_not_written_is_that_of_its_table() -> None:
    assert line_of("x = 1", ("a", "b")) == 1
    assert line_of("x = 1\n[a]\ny = 2\n[a.b]", ("a", "b", "z")) == 4
