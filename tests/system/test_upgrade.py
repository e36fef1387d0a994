"""The image of the next version on the volume of this one, and back.

The next version is this image with one more migration of the hub: no old image is needed.
"""

import io
import json
import tarfile

import pytest

from appliance.kernel.migration import load, newest
from tests.support.programs import next_step
from tests.system.box import Box, message

pytestmark = [pytest.mark.container, pytest.mark.slow]
TAG = "agentlip:test-next"
PACKAGES = "/opt/agentlip/lib/python3.11/site-packages/agentlip"
NEWEST = newest(load("hub"))


@pytest.fixture(scope="module")
def next_image(engine, image):
    steps = next_step("hub", "CREATE TABLE x_new (a INTEGER);")
    lines = [f"FROM {image}", *(f"COPY {name} {PACKAGES}/migrations/{name}" for name in steps)]
    context = io.BytesIO()
    with tarfile.open(fileobj=context, mode="w") as archive:
        for name, text in {"Dockerfile": "\n".join(lines) + "\n", **steps}.items():
            member = tarfile.TarInfo(name)
            member.size, member.mode = len(text), 0o644
            archive.addfile(member, io.BytesIO(text.encode()))
    context.seek(0)
    engine.images.build(fileobj=context, custom_context=True, tag=TAG, rm=True)
    yield TAG
    engine.images.remove(TAG, force=True)


@pytest.fixture
def next_box(next_image):
    made = []

    def make(volume, *words):
        made.append(Box(next_image, volume, *words))
        return made[-1]

    yield make
    for each in made:
        each.remove()


def stop(appliance):
    appliance.signal("SIGTERM")
    assert appliance.exit_code() == 0
    appliance.remove()


def texts(appliance, topic):
    status, reply = appliance.request("GET", f"/api/v1/messages?topic_id={topic}")
    assert status == 200, reply
    return {each["id"]: each["content_raw"] for each in reply["messages"]}


def answer(output):
    return json.loads(output.strip().splitlines()[-1])


def test_next_image_upgrades_a_filled_volume_and_the_previous_one_takes_it_back(
    box, next_box, volume
):
    path = volume()
    previous = box(path).start()
    topic = previous.topic()
    for number in range(50):
        posted = previous.request("POST", "/api/v1/messages", message(topic, f"text {number}"))
        assert posted[0] == 201
    kept = texts(previous, topic)
    stop(previous)

    code, output = next_box(path, "agentlip", "upgrade", "--check", "--json").run()
    assert (code, answer(output)["result"]) == (0, "possible"), output
    upgraded = next_box(path).start()
    assert texts(upgraded, topic) == kept
    upgraded.request("POST", "/api/v1/messages", message(topic, "after the upgrade"))
    upgraded.sh("agentlip doctor --all --strict")
    listed = json.loads(upgraded.sh("agentlip backup list --json"))
    (made,) = [each for each in listed if each["reason"] == "before-migration"]
    stop(upgraded)

    code, output = box(path).run()
    assert code == 2, output
    assert "newer program" in output
    restore = ("agentlip", "backup", "restore", made["name"], "--yes")
    code, output = box(path, *restore).run()
    assert code == 0, output
    again = box(path).start()
    assert texts(again, topic) == kept
    assert again.request("POST", "/api/v1/messages", message(topic, "goes on"))[0] == 201
    check = json.loads(again.sh("agentlip upgrade --check --json"))
    hub = next(each for each in check["plan"]["stores"] if each["store"] == "hub")
    assert (check["result"], hub["schema"]) == ("nothing", NEWEST)
