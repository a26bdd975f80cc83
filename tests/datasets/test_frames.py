"""Pickled frames become StereoSet's schema; anything else in a pickle is refused before it runs.

frames/ holds two small frames with made-up rows that pandas 1.5.3 pickled the way the public files were made.
"""

import io
import json
import os
import pickle
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from evaluator.datasets.frames import convert, example, read_frame

FRAMES = Path(__file__).parent / "frames"
INTRA, INTER = FRAMES / "df_intrasentence_xx.pkl", FRAMES / "df_intersentence_xx.pkl"


def test_frames_become_stereosets_schema(tmp_path: Path) -> None:
    convert(INTRA, INTER, tmp_path / "out.json")
    found = json.loads((tmp_path / "out.json").read_text(encoding="utf-8"))
    assert found.keys() == {"version", "data"}
    assert [e["id"] for e in found["data"]["intersentence"]] == ["inter0", "inter1", "inter2"]
    assert [e["id"] for e in found["data"]["intrasentence"]] == ["intra0", "intra2"]
    assert found["data"]["intersentence"][1] == {
        "id": "inter1",
        "target": "Köchin",
        "bias_type": "profession",
        "context": "Kontext 1.",
        "sentences": [
            {"sentence": "Satz 1, a.", "id": "inter1a", "gold_label": "stereotype"},
            {"sentence": "Satz 1, b.", "id": "inter1b", "gold_label": "anti-stereotype"},
            {"sentence": "Satz 1, c.", "id": "inter1c", "gold_label": "unrelated"},
        ],
        "target_original": "cook",
    }
    assert found["data"]["intrasentence"][1]["sentences"] == [
        {"sentence": "Satz 2 mit Wort21.", "id": "intra2a", "gold_label": "stereotype", "word": "Wort21"},
        {"sentence": "Satz 2 mit Wort22.", "id": "intra2b", "gold_label": "anti-stereotype", "word": "Wort22"},
        {"sentence": "Satz 2 mit Wort23.", "id": "intra2c", "gold_label": "unrelated", "word": "Wort23"},
    ]


def test_the_schema_is_that_of_the_files_converted_elsewhere(tmp_path: Path, data_dir: Path) -> None:
    convert(INTRA, INTER, tmp_path / "out.json")
    found = json.loads((tmp_path / "out.json").read_text(encoding="utf-8"))
    known = json.loads((data_dir / "stereoset" / "dev_de.json").read_text(encoding="utf-8"))
    assert list(found) == list(known)
    assert list(found["data"]) == list(known["data"])
    for kind in found["data"]:
        ours, theirs = found["data"][kind][0], known["data"][kind][0]
        assert list(ours) == list(theirs)
        assert list(ours["sentences"][0]) == list(theirs["sentences"][0])


def old_frame(monkeypatch: pytest.MonkeyPatch) -> bytes:
    """A frame as pandas before 1.3 pickled it: the manager's state is a tuple, its labels an Index."""

    def stand_in(module: str, name: str) -> Any:
        parts = module.split(".")
        for i in range(1, len(parts) + 1):
            whole = ".".join(parts[:i])
            if i == len(parts) or whole not in sys.modules:
                monkeypatch.setitem(sys.modules, whole, ModuleType(whole))
        made = type(name, (), {"__module__": module})
        setattr(sys.modules[module], name, made)
        return made

    frame = stand_in("pandas.core.frame", "DataFrame")
    manager = stand_in("pandas.core.internals.managers", "BlockManager")
    index = stand_in("pandas.core.indexes.base", "Index")

    def new_index(kind: type, state: dict[str, Any]) -> Any:
        raise NotImplementedError

    new_index.__module__, new_index.__qualname__ = "pandas.core.indexes.base", "_new_Index"
    sys.modules["pandas.core.indexes.base"]._new_Index = new_index  # type: ignore[attr-defined]

    class Labels:
        def __init__(self, values: list[Any]) -> None:
            self.values = values

        def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
            return new_index, (index, {"data": np.array(self.values, dtype=object), "name": None})

    manager.__getstate__ = lambda self: self.state
    blocks = [
        {"values": np.array([["a1", "a2"], ["c1", "c2"]], dtype=object), "mgr_locs": slice(0, 4, 2)},
        {"values": np.array([["b1", "b2"]], dtype=object), "mgr_locs": np.array([1])},
    ]
    axes = [Labels(["a", "b", "c"]), Labels([0, 1])]
    inner = manager()
    inner.state = (axes, [], [], {"0.14.1": {"axes": axes, "blocks": blocks}})
    outer = frame()
    outer.__dict__ = {"_mgr": inner, "_typ": "dataframe", "_metadata": [], "attrs": {}}
    return pickle.dumps(outer, protocol=4)


def test_frames_of_older_pandas_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    data = old_frame(monkeypatch)
    assert read_frame(io.BytesIO(data)) == [{"a": "a1", "b": "b1", "c": "c1"}, {"a": "a2", "b": "b2", "c": "c2"}]


class Calls:
    def __init__(self, function: Callable[..., Any], *arguments: Any) -> None:
        self.call = function, arguments

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        return self.call


@pytest.mark.parametrize(
    ("function", "arguments"),
    [(os.mkdir, ("{}",)), (eval, ("__import__('os').mkdir('{}')",)), (np.save, ("{}", 1)), (open, ("{}", "w"))],
)
@pytest.mark.parametrize("protocol", [0, 2, 5])
def test_a_pickle_can_call_nothing_else(
    tmp_path: Path, function: Callable[..., Any], arguments: tuple[Any, ...], protocol: int
) -> None:
    target = tmp_path / "made"
    filled = [a.format(target) if isinstance(a, str) else a for a in arguments]
    data = pickle.dumps({"_mgr": Calls(function, *filled)}, protocol=protocol)
    with pytest.raises(pickle.UnpicklingError, match="is not allowed in a data frame"):
        read_frame(io.BytesIO(data))
    assert list(tmp_path.iterdir()) == []


def test_a_pickle_of_something_else_is_refused() -> None:
    with pytest.raises(pickle.UnpicklingError, match="a list instead of a data frame"):
        read_frame(io.BytesIO(pickle.dumps([1, 2])))


def test_rows_without_a_word_or_with_a_strange_label_are_refused() -> None:
    row = read_frame(INTRA.open("rb"))[0]
    with pytest.raises(ValueError, match="example 'intra0': column c2_word is nan instead of a string"):
        example({**row, "c2_word": float("nan")}, words=True)
    with pytest.raises(ValueError, match="example 'intra0': unknown label 'related'"):
        example({**row, "c3_gold_label": "related"}, words=True)
    with pytest.raises(ValueError, match="column target_original is None"):
        example({key: value for key, value in row.items() if key != "target_original"}, words=True)
