"""Fixtures shared by all tests, and how they are spread over processes (`make test`; plain pytest runs in one)."""

import gc
import os
import re
import signal
import sys
from collections.abc import Callable, Generator, Iterator
from importlib.util import find_spec
from pathlib import Path
from textwrap import dedent
from typing import Any

import hypothesis
import pytest

# Processes that run beside each other share the cores. Libraries read this when they are imported: before any test is.
if workers := int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", 0)):
    os.environ["OMP_NUM_THREADS"] = str(max(1, (os.cpu_count() or 1) // workers))

# Each chunk is on disk at once, so that tests find it there; tests/scoring/test_commits.py has the default.
os.environ.setdefault("EVALUATOR_COMMIT", "0")

# Ray ends workers where a machine's memory is nearly used up, though it be by others: here by tests that run beside.
os.environ.setdefault("RAY_memory_monitor_refresh_ms", "0")
# And it ends a process in which a call to a cluster was still under way when that was shut down, a minute later and without a
# word: whatever test runs there then.
os.environ.setdefault("RAY_gcs_rpc_server_reconnect_timeout_s", "7200")

# Helper modules beside this file (tiny_models) can be imported by every test; pytest's importlib mode adds no paths.
sys.path.insert(0, str(Path(__file__).parent))
# So can the programs of benchmarks/.
sys.path.append(str(Path(__file__).parents[1] / "benchmarks"))


# What a test finds must not hang on how busy the machine is (Hypothesis allows 200 ms an example), nor on which examples it
# happened to draw. `--hypothesis-profile default` draws others, as long as it likes.
hypothesis.settings.register_profile(
    "steady", deadline=None, derandomize=True, database=None, suppress_health_check=[hypothesis.HealthCheck.too_slow]
)
hypothesis.settings.load_profile("steady")


ALONE = ("ray", "vllm", "alone")
"""Marks of tests of which one runs at a time: clusters, engines with threads of their own, what fills the machine."""


def _everything(config: pytest.Config) -> bool:
    """Whether a -m expression was given, though it be empty. The processes of `make test` are told by the first one."""
    if hasattr(config, "workerinput"):
        return bool(config.workerinput["everything"])
    return bool(config.getoption("-m")) or any(a.startswith("-m") for a in config.invocation_params.args)


ABSENT = {name: pytest.mark.skip(f"{name} is not installed") for name in ("ray", "vllm") if not find_spec(name)}
"""What a test with the mark of a package that is not there gets."""


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave slow tests out unless a -m expression was given (`-m ''` runs everything), and skip what has no package."""
    for item in items:
        for name in ABSENT.keys() & {mark.name for mark in item.iter_markers()}:
            item.add_marker(ABSENT[name])
    if not _everything(config):
        config.hook.pytest_deselected(items=[item for item in items if item.get_closest_marker("slow")])
        items[:] = [item for item in items if not item.get_closest_marker("slow")]


def pytest_collection_finish() -> None:
    """What the libraries' imports made stays: collecting garbage among it again and again took a sixth of the tests' time."""
    gc.collect()
    gc.freeze()


def pytest_unconfigure() -> None:
    """Let it go as usual when the process ends."""
    gc.unfreeze()


class Spread:
    """Only where tests run in several processes: each takes a file at a time, so that what its tests share is made once."""

    @staticmethod
    @pytest.hookimpl(optionalhook=True)
    def pytest_configure_node(node: Any) -> None:
        """Tell a process what it can't see on its own command line."""
        node.workerinput["everything"] = _everything(node.config)

    @staticmethod
    @pytest.hookimpl(tryfirst=True)  # before xdist reads the groups
    def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
        """Tests that run alone count as one file, and long files begin first."""
        for item in items:
            if any(item.get_closest_marker(name) for name in ALONE):
                item.add_marker(pytest.mark.xdist_group("alone"))
        long = {item.path for item in items if item.get_closest_marker("slow")}
        items.sort(key=lambda item: (item.get_closest_marker("xdist_group") is None, item.path not in long))

    @staticmethod
    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
        """xdist's scheduler of groups, with a file as the group of every other test."""
        from xdist.scheduler.loadgroup import LoadGroupScheduling

        class ByFile(LoadGroupScheduling):
            def _split_scope(self, nodeid: str) -> str:
                return super()._split_scope(nodeid).split("::")[0]

        return ByFile(config, log)


def pytest_configure(config: pytest.Config) -> None:
    """Take part in spreading the tests where it was asked for (-n), in the first process and in the others."""
    if config.getoption("numprocesses", None) or hasattr(config, "workerinput"):
        config.pluginmanager.register(Spread())


MAY_SKIP = re.compile("GPU|CUDA|GEMMA|mount a tmpfs|root to mount|TeX|Azurite")
"""Skips that are no failure even in CI: hardware, rights, TeX, npm's registry and a 250 MB model that CI may not have."""


def _fail_skip(report: pytest.TestReport | pytest.CollectReport) -> None:
    """With EVALUATOR_FAIL_SKIPS a skip is a failure: in CI it would hide a missing piece."""
    if os.environ.get("EVALUATOR_FAIL_SKIPS") and report.skipped and not hasattr(report, "wasxfail"):
        reason = str(report.longrepr)
        if not MAY_SKIP.search(reason):
            report.outcome = "failed"
            report.longrepr = f"skipped where nothing may be missing: {reason}"


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """A test that skips."""
    report = yield
    _fail_skip(report)
    return report


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(
    collector: pytest.Collector,
) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    """A module that skips as a whole (pytest.importorskip)."""
    report = yield
    _fail_skip(report)
    return report


@pytest.fixture(scope="session")
def data_dir() -> Path:
    """The folder of public data sets (EVALUATOR_DATA, else ../shared/data beside the checkout); skips where it is absent."""
    default = Path(__file__).resolve().parents[2] / "shared" / "data"
    folder = Path(os.environ.get("EVALUATOR_DATA", default))
    if not (folder / "gest" / "gest.csv").is_file():
        pytest.skip(f"no public data at {folder}: set EVALUATOR_DATA to a folder that holds it")
    return folder


@pytest.fixture
def command(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Any:
    """`evaluator ARGUMENTS` in this process, see tests/commands.py."""
    from tests.commands import command

    return command(monkeypatch, capsys)


@pytest.fixture
def own_cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache of the test's own."""
    folder = tmp_path_factory.mktemp("cache")
    monkeypatch.setenv("EVALUATOR_CACHE", str(folder))
    return folder


@pytest.fixture(scope="module")
def module_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """An empty cache for the tests of a file."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("EVALUATOR_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture
def install_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Put a package with one module and these entry points (`name = module:attribute`) of a group on the path."""
    monkeypatch.syspath_prepend(str(tmp_path))

    def put(package: str, module: str, code: str, *entries: str, group: str) -> None:
        info = tmp_path / f"{package.replace('-', '_')}-1.5.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.5\n")
        (info / "entry_points.txt").write_text("\n".join([f"[{group}]", *entries, ""]))
        (tmp_path / f"{module}.py").write_text(dedent(code))
        monkeypatch.delitem(sys.modules, module, raising=False)

    return put


@pytest.fixture
def interruptible() -> Iterator[None]:
    """A process that heeds Ctrl-C, as a terminal's does: those that run tests side by side ignore it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)
