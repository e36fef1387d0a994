"""The image of the next version on the volume of the one before, and back.

The next version is this image with one more migration of the hub.
"""

import io
import json
import tarfile

import pytest

from tests.support.other_versions import next_step
from tests.system.box import Box, message, stop

pytestmark = [pytest.mark.container, pytest.mark.slow]
PACKAGES = "/opt/agentlip/lib/python3.11/site-packages/agentlip"


def build(engine, tag, instructions, add):
    """Builds `tag` from a context that `add` fills."""
    context = io.BytesIO()
    with tarfile.open(fileobj=context, mode="w") as archive:
        add_text(archive, "Dockerfile", "\n".join(instructions) + "\n")
        add(archive)
    context.seek(0)
    engine.images.build(fileobj=context, custom_context=True, tag=tag, rm=True, forcerm=True)


def add_text(archive, name, text):
    member = tarfile.TarInfo(name)
    member.size, member.mode = len(text), 0o644
    archive.addfile(member, io.BytesIO(text.encode()))


@pytest.fixture(scope="module")
def next_image(engine, image):
    steps = next_step("hub", "CREATE TABLE x_new (a INTEGER);")
    lines = [f"FROM {image}", *(f"COPY {name} {PACKAGES}/migrations/{name}" for name in steps)]
    tag = f"{image}-next"
    build(engine, tag, lines, lambda to: [add_text(to, *each) for each in steps.items()])
    yield tag
    engine.images.remove(tag, force=True)


@pytest.fixture
def box_of(volume):
    """Makes containers of any image; they go before their volumes do."""
    made = []

    def make(image, volume, *words):
        made.append(Box(image, volume, *words))
        return made[-1]

    yield make
    for each in made:
        each.remove()


def texts(appliance, topic):
    status, reply = appliance.request("GET", f"/api/v1/messages?topic_id={topic}")
    assert status == 200, reply
    return {each["id"]: each["content_raw"] for each in reply["messages"]}


def answer(output):
    return json.loads(output.strip().splitlines()[-1])


def schemas(appliance):
    """The migrations of each store, by the program that runs."""
    plan = json.loads(appliance.sh("agentlip migrate --plan --json"))
    return {each["store"]: each["schema"] for each in plan["stores"]}


def events(appliance):
    status, reply = appliance.request("GET", "/api/v1/events?after=0&limit=1000")
    assert status == 200, reply
    return reply["events"]


def test_newer_image_upgrades_a_filled_volume_and_the_older_one_takes_it_back(
    image, next_image, volume, box_of
):
    path = volume()
    previous = box_of(image, path).start()
    topic = previous.topic()
    for number in range(50):
        posted = previous.request("POST", "/api/v1/messages", message(topic, f"text {number}"))
        assert posted[0] == 201
    kept, log, before = texts(previous, topic), events(previous), schemas(previous)
    stop(previous)

    code, output = box_of(next_image, path, "agentlip", "migrate", "--plan", "--json").run()
    assert code == 0, output
    assert answer(output)["steps"] > 0
    upgraded = box_of(next_image, path).start()
    assert (texts(upgraded, topic), events(upgraded)) == (kept, log)
    assert schemas(upgraded) != before
    upgraded.request("POST", "/api/v1/messages", message(topic, "after the upgrade"))
    upgraded.sh("agentlip doctor --all --strict")
    listed = json.loads(upgraded.sh("agentlip backup list --json"))
    (made,) = [each for each in listed if each["reason"] == "before-migration"]
    stop(upgraded)

    code, output = box_of(image, path).run()
    assert code == 2, output
    assert "newer program" in output
    restore = ("agentlip", "backup", "restore", made["name"], "--yes")
    code, output = box_of(image, path, *restore).run()
    assert code == 0, output
    again = box_of(image, path).start()
    assert (texts(again, topic), events(again)) == (kept, log)
    assert again.request("POST", "/api/v1/messages", message(topic, "goes on"))[0] == 201
    assert schemas(again) == before
    assert json.loads(again.sh("agentlip migrate --plan --json"))["steps"] == 0
