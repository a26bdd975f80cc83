"""Keys and tokens are in nothing that a run leaves or says, also where servers repeat them in what they say went wrong."""

import contextlib
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import ClassVar

import polars as pl
import psutil
import pytest

from tests.local_server import Handler, LocalServer
from tests.scoring.made_up import write_data

PLANTED = {
    "HF_TOKEN": "hf_plantedPLANTEDplanted0123456789",
    "OPENAI_API_KEY": "sk-planted-endpoint-0123456789",
    "AWS_ACCESS_KEY_ID": "AKIAPLANTEDPLANTED00",
    "AWS_SECRET_ACCESS_KEY": "planted/secret+of/aws0123456789abcdefghi",
    "GOOGLE_BEARER_TOKEN": "planted-google-0123456789",
    "AZURE_STORAGE_ACCOUNT_KEY": "cGxhbnRlZC1henVyZS0wMTIzNDU2Nzg5",
    "DEEPL_AUTH_KEY": "planted-deepl-0123456789:fx",
    "ODDLY_CALLED": "planted-oddly-called-0123456789",
}


class Echo(Handler):
    """A server that fails and says with what it was asked, in every way that clients look at."""

    shown: ClassVar[set[str]] = set()
    go: ClassVar[threading.Event] = threading.Event()
    """Nobody has an answer before it is set."""

    def echo(self) -> None:
        self.body()
        asked = self.headers.get("authorization", "")
        Echo.shown.add(asked)
        Echo.go.wait(120)
        words = f"you came with Authorization: {asked}"
        self.responses = {403: (words, "")}
        said = {"error": {"message": words, "code": asked}, "message": words}
        self.answer(403, said, {"content-type": "application/json", "x-error-message": words})

    do_GET = do_HEAD = do_POST = do_PUT = echo


@pytest.fixture(scope="module")
def echo() -> Iterator[str]:
    """The server's address."""
    with LocalServer(Echo) as server:
        yield server.url
    server.server_close()


def found_in(folder: Path) -> list[str]:
    """Planted values in the files of a folder, also in the columns of Parquet files, which are compressed."""
    found = []
    for path in (path for path in folder.rglob("*") if path.is_file()):
        try:
            content = path.read_bytes()
        except FileNotFoundError:  # Ray's agents tidy up
            continue
        if path.suffix == ".parquet":
            content += pl.read_parquet(path).write_json().encode()
        found += [f"{name} in {path}" for name, value in PLANTED.items() if value.encode() in content]
    return found


def watched(command: list[str], environment: dict[str, str], until: str = "") -> tuple[str, set[str]]:
    """What a command says, and the titles of all its processes.

    The server answers when a title that begins with `until` was seen: what is short-lived stays until then.
    """
    titles: set[str] = set()
    Echo.go.clear()
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        said: list[str] = []
        reader = threading.Thread(target=lambda: said.append(process.stdout.read() if process.stdout else ""))
        reader.start()
        while process.poll() is None:
            with contextlib.suppress(psutil.Error):
                for one in [psutil.Process(process.pid), *psutil.Process(process.pid).children(recursive=True)]:
                    with contextlib.suppress(psutil.Error):
                        titles.add(" ".join(one.cmdline()))
            if any(title.startswith(until) for title in titles):
                Echo.go.set()
            time.sleep(0.1)
        reader.join()
    return said[0], titles


def check(tmp_path: Path, said: str, titles: set[str]) -> None:
    """None of the planted values is anywhere."""
    assert not [name for name, value in PLANTED.items() if value in said], said
    assert not [title for title in titles for value in PLANTED.values() if value in title]
    assert not found_in(tmp_path)


def environment(tmp_path: Path, echo: str) -> dict[str, str]:
    folders = {"HF_HOME": str(tmp_path / "hf"), "EVALUATOR_CACHE": str(tmp_path / "cache"), "TMPDIR": str(tmp_path / "tmp")}
    (tmp_path / "tmp").mkdir()
    kept = {key: value for key, value in os.environ.items() if key != "HF_HUB_OFFLINE"}
    clouds = {"AWS_ENDPOINT_URL": echo, "GOOGLE_BASE_URL": echo, "AZURE_STORAGE_ENDPOINT": echo}
    account = {"AZURE_STORAGE_ACCOUNT_NAME": "account"}
    return kept | PLANTED | folders | clouds | account | {"HF_ENDPOINT": echo, "COLUMNS": "1000"}


def test_a_failing_hub_and_a_failing_endpoint_show_no_key(echo: str, tmp_path: Path) -> None:
    out = tmp_path / "run"
    models = ["--model", "tiny/private", "--model", f"{echo}/v1#chat"]
    extra = ["--extra", "retries=0", "--extra", "key_env=ODDLY_CALLED"]
    command = [sys.executable, "-m", "evaluator", "run", "gest-who", *models, *extra, "--limit", "2"]
    command += ["--data", str(write_data(tmp_path / "data")), "--out", str(out), "--debug"]
    said, titles = watched(command, environment(tmp_path, echo))
    assert f"Bearer {PLANTED['HF_TOKEN']}" in Echo.shown, "the hub wasn't asked"
    assert f"Bearer {PLANTED['ODDLY_CALLED']}" in Echo.shown, "the endpoint wasn't asked"
    assert "[ODDLY_CALLED]" in said, said
    assert "Traceback" in said
    assert (out / "run.json").is_file()
    check(tmp_path, said, titles)


@pytest.mark.parametrize(
    ("url", "signed"),
    [
        ("s3://bucket/run", "AWS4-HMAC-SHA256 "),
        ("gs://bucket/run", f"Bearer {PLANTED['GOOGLE_BEARER_TOKEN']}"),
        ("az://container/run", "SharedKey account:"),
    ],
)
def test_a_failing_storage_shows_no_key(echo: str, url: str, signed: str, tmp_path: Path) -> None:
    pytest.importorskip("obstore")
    command = [sys.executable, "-m", "evaluator", "status", url, "--debug"]
    said, titles = watched(command, environment(tmp_path, echo))
    assert any(signed in asked for asked in Echo.shown)
    assert "refuses access (HTTP 403" in said
    check(tmp_path, said, titles)


@pytest.mark.slow
@pytest.mark.ray
def test_rays_actors_show_no_key(echo: str, tmp_path: Path) -> None:
    short = Path(tempfile.mkdtemp(prefix="ray-"))  # Ray's sockets want a short path
    sweep = tmp_path / "sweep.toml"
    sweep.write_text(
        f'tasks = ["gest-who"]\nlimit = 2\ndata = "{write_data(tmp_path / "data")}"\n'
        f'[[models]]\nmodel = "{echo}/v1#one"\n[[models]]\nmodel = "{echo}/v1#two"\n'
        "[defaults]\nextra = { retries = 0 }\n"
    )
    command = [sys.executable, "-m", "evaluator", "sweep", str(sweep), "--out", str(tmp_path / "run"), "--ray", "local"]
    said, titles = watched([*command, "--debug"], environment(tmp_path, echo) | {"TMPDIR": str(short)}, until="ray::RayWorker")
    assert f"Bearer {PLANTED['OPENAI_API_KEY']}" in Echo.shown, said
    assert any(title.startswith("ray::RayWorker") for title in titles), titles
    assert list(short.rglob("worker-*.err")), "Ray's own logs are searched, too"
    assert not found_in(short)
    shutil.rmtree(short, ignore_errors=True)  # Ray's agents end a little later, and write until then
    check(tmp_path, said, titles)


def test_what_is_secret_and_what_is_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from evaluator.scoring.record import provenance
    from evaluator_serving.errors import EngineError, InputError, in_words
    from evaluator_serving.secrets import redacted

    file = tmp_path / "credentials.json"
    file.write_text("{}")
    values = {"MY_API_TOKEN": "abcdefgh12", "GOOGLE_APPLICATION_CREDENTIALS": str(file), "TOKENIZERS_PARALLELISM": "maybe-not"}
    for name, value in {**values, "SHORT_KEY": "true"}.items():
        monkeypatch.setenv(name, value)
    text = f"abcdefgh12 {file} maybe-not true hf_{'a' * 30} Authorization: Bearer xyzxyzxyz https://x/y?sv=1&sig=a%2Bb%2Fcdefg%3D&se=2"
    shown = f"[MY_API_TOKEN] {file} maybe-not true [secret] Authorization: Bearer [secret] https://x/y?sv=1&sig=[secret]&se=2"
    assert redacted(text) == shown
    for name in ("PGPASSWORD", "OPENAI_APIKEY", "GITHUB_PAT", "SSH_PASSPHRASE", "DB_PASS"):
        monkeypatch.setenv(name, "planted-value-of-it")
        assert redacted("it is planted-value-of-it") == f"it is [{name}]"
        monkeypatch.delenv(name)
    for name in ("MONKEY", "COMPASS", "PATTERN", "TOKENIZERS_PATH"):
        monkeypatch.setenv(name, "planted-value-of-it")
        assert redacted("it is planted-value-of-it") == "it is planted-value-of-it"
    for url, safe in {
        "http://bob:s3cret@proxy:3128/": "http://[secret]@proxy:3128/",
        "HTTPS://bob:p@ss,w:rd@hub.example.com/a@b": "HTTPS://[secret]@hub.example.com/a@b",
        "git+https://glpat-0123456789@git.example.com/x": "git+https://[secret]@git.example.com/x",
        "socks5h://bob:s3cret@proxy:1080": "socks5h://[secret]@proxy:1080",
        "abfss://runs@team.dfs.core.windows.net/a": "abfss://runs@team.dfs.core.windows.net/a",
        '{"url": "http://127.0.0.1:80", "mail": "a@b"} http://h/a@b:c@d': '{"url": "http://127.0.0.1:80", "mail": "a@b"} http://h/a@b:c@d',
        "https://b.s3/x?X-Amz-Security-Token=abcdefgh%2F&x=1": "https://b.s3/x?X-Amz-Security-Token=[secret]&x=1",
    }.items():
        assert redacted(url) == safe
    for error in (InputError(text), EngineError(text), OSError(text), KeyError(text)):
        assert "abcdefgh12" not in in_words(error)
    assert str(InputError(text)) == shown
    assert provenance(["evaluator", "run", "--extra", text])["command"][-1] == shown
