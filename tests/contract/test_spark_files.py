"""What Spark's jobs ship with: an image that stays apart, and manifests that Kubernetes takes."""

import json
import re
import subprocess
import sys

import pytest
import yaml

from tests.contract.test_walls import ROOT, tracked


def test_spark_and_java_never_enter_the_appliances_image_or_environment():
    appliance = (ROOT / "Dockerfile").read_text()
    for word in ("spark", "openjdk", "java"):
        assert word not in appliance.lower()
        for lock in ("appliance", "dev", "build"):
            assert word not in (ROOT / f"requirements/{lock}.txt").read_text().lower()


def test_image_holds_jobs_that_tests_run():
    def pins(name):
        text = (ROOT / f"requirements/{name}.txt").read_text()
        return set(re.findall(r"(?m)^(\S+==\S+)", text))

    assert pins("spark") - pins("spark-test") == set()
    assert any(pin.startswith("pyspark==4.") for pin in pins("spark"))


def test_documented_exit_codes_are_those_of_the_code():
    text = (ROOT / "docs/reference/spark.md").read_text()
    output = {int(code) for code in re.findall(r"(?m)^\| (\d+) \|", text)}
    code = "import spark.errors as e; print([k.exit_code for k in e.JobError.__subclasses__()])"
    results = json.loads(subprocess.check_output([sys.executable, "-c", code], cwd=ROOT, text=True))
    assert output == {0, 70, *results}


# -- Kubernetes -------------------------------------------------------------------------


def documents(name):
    return [each for each in yaml.safe_load_all((ROOT / "ops/spark" / name).read_text()) if each]


MANIFESTS = ["storage.yaml", "account.yaml", "job.yaml", "cluster.yaml", "cluster-s3.yaml"]


def pods(name):
    for each in documents(name):
        spec = each.get("spec", {})
        spec = spec.get("jobTemplate", {}).get("spec", spec)
        if "template" in spec:
            yield spec["template"]["spec"]


def test_every_manifest_is_checked_here():
    files = [path.name for path in tracked("ops/spark/*.yaml") if path.parent.name != "jobs"]
    assert sorted(files) == sorted([*MANIFESTS, "compose.yaml", "compose-s3.yaml"])


@pytest.mark.parametrize("name", ["job.yaml", "cluster.yaml", "cluster-s3.yaml"])
def test_job_is_deleted_and_applied_again_without_its_account(name):
    """A job can't be changed, and the roles of running ones must not go with it."""
    kinds = {each["kind"] for each in documents(name)}
    assert kinds <= {"Job", "CronJob", "ConfigMap"}
    accounts = [pod.get("serviceAccountName") for pod in pods(name)]
    named = {each["metadata"]["name"] for each in documents("account.yaml")}
    assert set(filter(None, accounts)) <= named


@pytest.mark.spark
@pytest.mark.parametrize("name", MANIFESTS)
def test_kubernetes_takes_the_manifest(name):
    """Against Kubernetes' own schemas; a field that it does not know is an error."""
    import kubernetes_validate as validate

    assert documents(name)
    template = [each["data"]["pod.yaml"] for each in documents(name) if each["kind"] == "ConfigMap"]
    for each in [*documents(name), *map(yaml.safe_load, template)]:
        validate.validate(each, validate.latest_version(), strict=True)


@pytest.mark.parametrize("name", ["job.yaml", "cluster.yaml", "cluster-s3.yaml"])
def test_pods_have_no_privilege_and_name_arguments_that_the_main_takes(name):
    results = list(pods(name))
    assert results
    for pod in results:
        assert pod["securityContext"]["runAsUser"] == 185
        for container in [*pod.get("initContainers", []), *pod["containers"]]:
            secured = container["securityContext"]
            assert secured["readOnlyRootFilesystem"] is True
            assert secured["capabilities"] == {"drop": ["ALL"]}
            assert "memory" in container["resources"]["limits"]
            files = ("spark/run.py", "spark/request.py")
            known = "".join((ROOT / file).read_text() for file in files)
            for word in container["args"][1:]:
                assert f'"{word.split("=")[0]}"' in known
            assert container["args"][0] in {"ingest", "activity", "audit"}
