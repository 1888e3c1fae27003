"""The manifests of the Kubernetes page: valid by its schemas, and true of a real worker started as they say."""

import re
import shlex
import signal
import socket
import subprocess
import urllib.error
import urllib.request
from pathlib import Path

import jsonschema
import kubernetes_validate
import pytest
import yaml

import holdfast
from holdfast import agent, events as ev
from tests.cli.test_terminal import COMMAND, ENVIRONMENT
from tests.waiting import until

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "kubernetes.md"
MANIFESTS = [
    yaml.safe_load(block) for block in re.findall(r"^```yaml\n(.*?)^```", PAGE.read_text("utf-8"), re.S | re.M)
]
BY_KIND = {one["kind"]: one for one in MANIFESTS}
OLDEST, NEWEST = "1.29", "1.37"

TEXT, NUMBER = {"type": "string", "minLength": 1}, {"type": "integer", "minimum": 0}


def exactly(**fields):
    """An object that has these fields and no others."""
    return {"type": "object", "properties": fields, "required": list(fields), "additionalProperties": False}


NAMED = exactly(name={"type": "string", "pattern": r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"})
FOREIGN = {
    "ScaledObject": exactly(
        apiVersion={"const": "keda.sh/v1alpha1"},
        kind={"const": "ScaledObject"},
        metadata=NAMED,
        spec=exactly(
            scaleTargetRef=NAMED,
            minReplicaCount=NUMBER,
            maxReplicaCount=NUMBER,
            pollingInterval=NUMBER,
            cooldownPeriod=NUMBER,
            triggers={
                "type": "array",
                "minItems": 1,
                "items": exactly(
                    type={"const": "prometheus"},
                    metricType={"enum": ["AverageValue", "Value"]},
                    metadata=exactly(serverAddress=TEXT, query=TEXT, threshold={"type": "string", "pattern": r"^\d+$"}),
                ),
            },
        ),
    ),
    "Cluster": exactly(
        apiVersion={"const": "postgresql.cnpg.io/v1"},
        kind={"const": "Cluster"},
        metadata=NAMED,
        spec=exactly(
            instances={"type": "integer", "minimum": 1},
            storage=exactly(size={"type": "string", "pattern": r"^\d+[KMGT]i$"}),
            bootstrap=exactly(initdb=exactly(database=TEXT, owner=TEXT)),
            postgresql=exactly(
                synchronous=exactly(
                    method={"enum": ["any", "first"]},
                    number={"type": "integer", "minimum": 1},
                    dataDurability={"enum": ["required", "preferred"]},
                ),
                parameters={"type": "object", "additionalProperties": {"type": "string"}},
            ),
        ),
    ),
}
"""Kinds that Kubernetes does not define, as far as the page uses them; names and values are those of their makers."""


@pytest.mark.parametrize("version", [OLDEST, NEWEST])
@pytest.mark.parametrize("manifest", MANIFESTS, ids=lambda one: one["kind"])
def test_every_manifest_is_valid(manifest, version):
    if manifest["kind"] in FOREIGN:
        jsonschema.validate(manifest, FOREIGN[manifest["kind"]])
    else:
        kubernetes_validate.validate(manifest, version, strict=True)


def test_a_wrong_manifest_is_refused():
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(BY_KIND["Deployment"] | {"spec": {"replica": 2}}, NEWEST, strict=True)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(BY_KIND["Cluster"] | {"spec": {"instances": 3}}, FOREIGN["Cluster"])


def worker():
    [container] = BY_KIND["Deployment"]["spec"]["template"]["spec"]["containers"]
    return container


def option(name):
    return worker()["args"][worker()["args"].index(name) + 1]


def test_the_manifests_agree_with_each_other():
    assert [one["kind"] for one in MANIFESTS] == ["Cluster", "Deployment", "PodDisruptionBudget", "ScaledObject"]
    deployment, pod = BY_KIND["Deployment"], BY_KIND["Deployment"]["spec"]["template"]
    labels = pod["metadata"]["labels"]
    assert deployment["spec"]["selector"]["matchLabels"] == labels
    assert BY_KIND["PodDisruptionBudget"]["spec"]["selector"]["matchLabels"] == labels
    assert BY_KIND["ScaledObject"]["spec"]["scaleTargetRef"]["name"] == deployment["metadata"]["name"]
    [port] = worker()["ports"]
    assert option("--health") == f"0.0.0.0:{port['containerPort']}"
    for probe in ("livenessProbe", "readinessProbe"):
        assert worker()[probe]["httpGet"]["port"] == port["name"]
    grace = int(option("--grace").removesuffix("s"))
    assert grace < pod["spec"]["terminationGracePeriodSeconds"]
    secret = next(one for one in worker()["env"] if "valueFrom" in one)["valueFrom"]["secretKeyRef"]
    assert secret == {"name": f"{BY_KIND['Cluster']['metadata']['name']}-app", "key": "uri"}
    [trigger] = BY_KIND["ScaledObject"]["spec"]["triggers"]
    assert int(trigger["metadata"]["threshold"]) < int(option("--concurrency"))


@agent
def double(task: holdfast.Task, x: int) -> int:
    return 2 * x


def test_the_metric_that_keda_asks_for_is_one_that_workers_send():
    [trigger] = BY_KIND["ScaledObject"]["spec"]["triggers"]
    name, labels = re.search(r"(holdfast_\w+)\{(.+?)\}", trigger["metadata"]["query"]).groups()
    with holdfast.open("memory:") as app:
        app.start(double, {"x": 1}, id="a")
        told = app.metrics()
    asked = dict(re.findall(r'(\w+)=~?"([^"]+)"', labels))
    assert asked.keys() == {"queue", "state"}
    for state in asked["state"].split("|"):
        assert re.search(rf'^{name}\{{namespace="",queue="{asked["queue"]}",state="{state}"\}} \d', told, re.M)


AGENTS = """
import time
from pathlib import Path
from holdfast import Task, agent

def hold(seconds: float) -> str:
    Path("holding").touch()
    time.sleep(seconds)
    return "held"

@agent
def patient(task: Task) -> str:
    task.step(hold, 2.0)
    return task.step(hold, 600.0)
"""


def environment(address):
    """The variables of the container, as the kubelet sets them: $(NAME) stands for one that came before."""
    found = {}
    for one in worker()["env"]:
        value = one.get("value", address)
        found[one["name"]] = re.sub(r"\$\((\w+)\)", lambda name: found[name[1]], value)
    return found


def probe(name, port):
    asked = worker()[name]
    try:
        with urllib.request.urlopen(
            f"http://127.0.0.1:{port}{asked['httpGet']['path']}", timeout=asked["timeoutSeconds"]
        ) as answer:
            return answer.status
    except urllib.error.HTTPError as error:
        return error.code
    except OSError:
        return 0


def test_a_worker_started_as_the_deployment_says_answers_its_probes_and_drains_within_the_grace(postgres_url, tmp_path):
    (tmp_path / "agents.py").write_text(AGENTS)
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    given = [one.replace(":8080", f":{port}") for one in worker()["args"]]
    variables = environment(postgres_url) | {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:9"}
    assert variables["HOLDFAST_URL"] == f"{postgres_url}?wait_seconds=60"
    allowed = BY_KIND["Deployment"]["spec"]["template"]["spec"]["terminationGracePeriodSeconds"]
    with (tmp_path / "log").open("w") as log, holdfast.open(postgres_url) as app:
        app.start("patient", id="p")
        process = subprocess.Popen([*COMMAND, *given], cwd=tmp_path, env=ENVIRONMENT | variables, stderr=log)
        try:
            until((tmp_path / "holding").exists)
            until(lambda: probe("readinessProbe", port) == 200)
            assert probe("livenessProbe", port) == 200
            process.send_signal(signal.SIGTERM)
            until(lambda: probe("readinessProbe", port) == 503)
            assert probe("livenessProbe", port) == 200
            assert process.wait(allowed) == 0, (tmp_path / "log").read_text()
        finally:
            process.kill()
            process.wait()
        assert (
            app.get("p").status == "pending"
            and sum(isinstance(one.event, ev.StepCompleted) for one in app.events("p")) == 1
        )


def test_what_is_tried_without_a_cluster_is_what_the_deployment_runs():
    [block] = re.findall(r"^```sh\n(.*?)^```", PAGE.read_text("utf-8"), re.S | re.M)
    line = shlex.split(block.splitlines()[0].removesuffix("&"))
    assert line[0] == "holdfast" and set(line[1:]) <= set(worker()["args"])
