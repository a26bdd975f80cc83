"""Whether another machine has the same local folder, without reading all of it."""

import shutil
from pathlib import Path

from evaluator_serving.weights.folders import BLOCK, glance, lacking


def test_the_same_weights_look_the_same_wherever_they_lie(tmp_path: Path) -> None:
    here, there, other, empty = (tmp_path / name for name in ("here", "there", "other", "empty"))
    for folder in (here, empty):
        folder.mkdir()
    (here / "model.safetensors").write_bytes(bytes(range(256)) * (BLOCK // 64))
    shutil.copytree(here, there)
    (there / "README.md").write_text("what isn't weights doesn't count")
    shutil.copytree(here, other)
    with (other / "model.safetensors").open("r+b") as file:  # another checkpoint: as large, other numbers
        file.seek(BLOCK + 5)
        file.write(b"other")
    seen = glance(here)
    assert seen == glance(there) != glance(other)
    assert glance(empty) == glance(tmp_path / "nowhere") == ""
    asked = {name: (tmp_path / name, seen) for name in ("there", "other", "empty", "nowhere", "here")}
    assert lacking(asked) == ("empty", "nowhere", "other")


def test_one_file_is_known_by_its_content_not_its_name(tmp_path: Path) -> None:
    for name, content in (("a.gguf", b"x" * 10), ("b.gguf", b"x" * 10), ("c.gguf", b"y" * 10)):
        (tmp_path / name).write_bytes(content)
    assert glance(tmp_path / "a.gguf") == glance(tmp_path / "b.gguf") != glance(tmp_path / "c.gguf")
