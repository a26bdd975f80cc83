"""The documentation's site: `make docs` builds it without a warning, and what is generated is there."""

import html
import re
import runpy
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import evaluator
from evaluator.cli import COMMANDS
from evaluator.tasks import known_tasks

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site, built as `make docs` does but in another folder."""
    folder = tmp_path_factory.mktemp("site")
    (target,) = re.findall(r"^docs: setup\n((?:\t.+\n)+)", (ROOT / "Makefile").read_text(), re.MULTILINE)
    config = (ROOT / "zensical.toml").read_text("utf8")
    for relative, absolute in {
        'base_path = ["."]': f'base_path = ["{ROOT}"]',
        'paths = [".", "serving", "kernels"]': f'paths = ["{ROOT}", "{ROOT}/serving", "{ROOT}/kernels"]',
    }.items():
        assert relative in config
        config = config.replace(relative, absolute)
    (folder / "zensical.toml").write_text(config, "utf8")
    shutil.copytree(ROOT / "docs", folder / "docs")
    recipe = target.replace("$(BIN)/python", sys.executable).replace("$(BIN)/zensical", f"{sys.executable} -m zensical")
    done = subprocess.run(recipe, shell=True, cwd=folder, capture_output=True, text=True)
    told = [line for line in (done.stdout + done.stderr).splitlines() if not line.startswith("Build ")]
    assert (done.returncode, told) == (0, ["No issues found"])
    return folder / "site"


@pytest.mark.slow
def test_pages_that_are_generated_hold_the_code(site: Path) -> None:
    commands = (site / "cli" / "index.html").read_text("utf8")
    assert {f"evaluator-{name}" for name in COMMANDS} <= set(re.findall(r'id="([\w-]+)"', commands))
    assert "--fail-if" in commands
    functions = re.sub(r"<[^>]+>", "", (site / "api" / "index.html").read_text("utf8"))
    for name in set(evaluator.__all__) - {"__version__"}:
        assert f"evaluator.{name}" in functions
    assert "resamples" in functions
    assert "evaluator.compare(run, baseline=first)" in re.sub(
        r"<[^>]+>", "", (site / "notebook" / "index.html").read_text("utf8")
    )


@pytest.mark.slow
def test_nothing_is_loaded_from_elsewhere(site: Path) -> None:
    for page in site.rglob("*.html"):
        loaded = re.findall(r'<(?:script|link|img)\b[^>]*?(?:src|href)="(https?:[^"]+)"', page.read_text("utf8"))
        assert not loaded, page


def test_formulas_are_mathematics_without_a_script() -> None:
    """What is left of LaTeX in a formula's text would be read as it stands."""
    formulas = runpy.run_path(str(ROOT / "docs" / "formulas.py"))
    texts = "".join(page.read_text("utf8") for page in sorted((ROOT / "docs").rglob("*.md")))
    blocks = re.findall(r"```math\n(.+?)```", texts, re.DOTALL)
    assert len(blocks) >= 6
    for block in blocks:
        made = formulas["fence"](block, "math", "math", {}, None)
        said = html.unescape(re.sub(r"<[^>]+>", "", made))
        assert "<math" in made
        assert not re.search(r"[\\{}&]", said), said
        assert made.count("<mtr>") == (block.count(r"\\") + 1 if "aligned" in block else 0)
    assert "LMS=1002n(#[xstereotype>xunrelated]" in re.sub(
        r"<[^>]+>|\s",
        "",
        html.unescape(formulas["fence"](next(block for block in blocks if "LMS" in block), "math", "math", {}, None)),
    )


def test_every_page_is_in_the_contents_and_every_task_on_a_page() -> None:
    contents = (ROOT / "zensical.toml").read_text("utf8")
    pages = {str(page.relative_to(ROOT / "docs")) for page in (ROOT / "docs").rglob("*.md")}
    assert set(re.findall(r'"([\w/-]+\.md)"', contents)) == pages | {"cli.md", "parameters.md"}
    measures = "".join(page.read_text("utf8") for page in (ROOT / "docs" / "measures").glob("*.md"))
    for known in known_tasks():
        name = known.name.removesuffix("LANGUAGE")
        assert f"`{name}" in measures, f"no page in docs/measures names {name}"
