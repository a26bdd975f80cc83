"""The table of data sets: complete, pinned to the published digests, and where its files are looked for."""

import hashlib
from pathlib import Path

import pytest

from evaluator.datasets.registry import cache_folder, dataset, datasets, locate
from evaluator.vocabulary import DataSource
from evaluator_serving.errors import InputError

NAMES = [
    "gest-demo",
    "gest",
    "gest-1.1",
    "stereoset-en",
    "stereoset-de",
    "stereoset-fr",
    "stereoset-es",
    "stereoset-tr",
    "crows-pairs",
    "crows-revised",
    "crows-negation",
    "crows-antistereotype",
    "stereoset-genderswap",
    "stereoset-genderswap-filtered",
    "slovak-gender",
    "eurogest",
    "winobias",
]


def test_all_named_data_sets_are_there() -> None:
    assert list(datasets()) == NAMES


def test_digests_are_those_of_the_public_table(data_dir: Path) -> None:
    lines = (data_dir / "SHA256.tsv").read_text().splitlines()[1:]
    published = {(repository, path): digest for repository, path, digest in (line.split("\t") for line in lines)}
    pinned = {(s.repository, s.path): s.sha256 for d in datasets().values() for f in d.files for s in f.sources}
    # StereoSet's own repository is not in that table, the English frames are not needed beside dev.json; EuroGEST's files lie
    # in the data folder as they are at their source
    for name in ("gest_translations_gender_insensitive.csv", "gest_translations_gender_sensitive.csv"):
        digest = hashlib.sha256((data_dir / "eurogest" / name).read_bytes()).hexdigest()
        assert pinned.pop(("JacquelineRowe/EuroGEST", f"data/{name}")) == digest
    for name in ("prompt_scaffolds.json", "punc_map.json"):
        digest = hashlib.sha256((data_dir / "eurogest" / name).read_bytes()).hexdigest()
        assert pinned.pop(("JacquelineRowe/EuroGEST", f"evaluate_models/configs/{name}")) == digest
    assert {key[1] for key in pinned.keys() - published.keys()} == {"data/dev.json", "data/test_terms.txt"}
    assert {Path(key[1]).name for key in published.keys() - pinned.keys()} == {
        "df_intrasentence_en.pkl",
        "df_intersentence_en.pkl",
    }
    assert {key: pinned[key] for key in published.keys() & pinned.keys()} == {
        key: published[key] for key in published.keys() & pinned.keys()
    }


def test_unknown_names_are_refused() -> None:
    with pytest.raises(InputError, match=r"unknown data set 'gets': choose from gest-demo, gest, gest-1\.1, "):
        dataset("gets")


def test_locate_prefers_the_folder_then_the_environment_then_the_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("EVALUATOR_DATA", raising=False)
    monkeypatch.setenv("EVALUATOR_CACHE", str(tmp_path / "cache"))
    assert cache_folder() == tmp_path / "cache" / "data"
    for place in ("cache/data", "environment", "folder"):
        (tmp_path / place / "gest").mkdir(parents=True)
        (tmp_path / place / "gest" / "gest.csv").touch()
    assert locate("gest", DataSource()) == {"gest/gest.csv": tmp_path / "cache/data/gest/gest.csv"}
    monkeypatch.setenv("EVALUATOR_DATA", str(tmp_path / "environment"))
    assert locate("gest", DataSource()) == {"gest/gest.csv": tmp_path / "environment/gest/gest.csv"}
    assert locate("gest", DataSource(tmp_path / "folder")) == {"gest/gest.csv": tmp_path / "folder/gest/gest.csv"}


def test_absent_files_are_named_with_the_remedy(tmp_path: Path) -> None:
    with pytest.raises(InputError) as caught:
        locate("winobias", DataSource(tmp_path))
    path = tmp_path / "winobias" / "pro_stereotyped_type1.txt.dev"
    remedy = "run `evaluator data fetch winobias` or give --data DIR with a folder that contains it"
    assert str(caught.value) == f"data set winobias: no such file: {path}: {remedy}"


def test_locate_finds_everything_in_the_public_layout(data_dir: Path) -> None:
    for name in NAMES:
        assert all(path.is_file() for path in locate(name, DataSource(data_dir)).values())
