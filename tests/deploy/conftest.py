"""What the tests of deploy/ share: its files as they are built, and the tools that judge them."""

import os
import shutil
import subprocess
from collections.abc import Callable
from importlib.metadata import distribution
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
Documents = list[dict[str, Any]]


def tool(name: str, package: str) -> str:
    """The program that a Python package brings along."""
    beside = Path(str(distribution(package).locate_file(""))).parents[2] / "bin" / name
    found = shutil.which(str(beside)) or shutil.which(name)
    assert found, f"{package} has no {name}"
    return found


def run(*command: str | Path, text: str | None = None) -> tuple[int, str]:
    """Exit code and all output of a program."""
    done = subprocess.run(list(map(str, command)), input=text, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout + done.stderr


@pytest.fixture(scope="session")
def built() -> Callable[[str], Documents]:
    """The documents that kustomize makes of a folder of deploy/kuberay; skips without kubectl."""
    kubectl = shutil.which("kubectl")
    if kubectl is None:
        pytest.skip("kubectl isn't installed: its kustomize builds the manifests")
    known: dict[str, str] = {}

    def build(folder: str) -> Documents:
        if folder not in known:
            code, text = run(kubectl, "kustomize", DEPLOY / "kuberay" / folder)
            assert code == 0, text
            known[folder] = text
        return list(yaml.load_all(known[folder], Loader=yaml.CSafeLoader))

    return build


@pytest.fixture(scope="session")
def definitions() -> dict[str, Any]:
    """Kind → version v1 of KubeRay's definition, from ../shared/schemas (EVALUATOR_SCHEMAS); skips where they are absent."""
    folder = Path(os.environ.get("EVALUATOR_SCHEMAS", ROOT.parent / "shared" / "schemas"))
    found = {}
    for kind in ("RayJob", "RayCluster"):
        path = folder / f"ray.io_{kind.lower()}s.yaml"
        if not path.is_file():
            pytest.skip(f"no {path}: set EVALUATOR_SCHEMAS to a folder that holds KubeRay's definitions")
        definition = yaml.load(path.read_text(encoding="utf8"), Loader=yaml.CSafeLoader)
        (found[kind],) = (version for version in definition["spec"]["versions"] if version["name"] == "v1")
    return found


@pytest.fixture(scope="session")
def schemas(definitions: dict[str, Any]) -> dict[str, Any]:
    """Kind → KubeRay's schema of it."""
    return {kind: closed(version["schema"]["openAPIV3Schema"]) for kind, version in definitions.items()}


def closed(schema: Any) -> Any:
    """A schema that refuses unknown fields, as `kubectl apply` does."""
    if isinstance(schema, list):
        return [closed(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    made = {key: closed(value) for key, value in schema.items()}
    kept = schema.get("x-kubernetes-preserve-unknown-fields") or schema.get("x-kubernetes-embedded-resource")
    if isinstance(schema.get("properties"), dict) and "additionalProperties" not in schema and not kept:
        made["additionalProperties"] = False
    return made
