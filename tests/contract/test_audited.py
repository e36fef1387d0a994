"""Every operation, tool, socket request and command is an administrative act or is known not to be.

A new one fails here until somebody has decided: the flag `audited`, or a line below.
"""

import pytest
from typer.main import get_command

from appliance.audit.log.commands import ALWAYS, WHILE_STOPPED
from appliance.cli import app
from appliance.cli_daemon import app as daemon_app
from appliance.hub.requests import OPERATIONS
from ops.write_paths import whole_appliance

# What agents and people do with messages, envelopes, sends, subscriptions and their own keys.
USE = {
    "POST /api/v1/channels", "POST /api/v1/topics", "PATCH /api/v1/topics/{topic_id}",
    "POST /api/v1/messages", "PATCH /api/v1/messages/{message_id}", "POST /api/v1/messages/batch",
    "POST /api/v1/topics/{topic_id}/attachments", "POST /api/v1/asks",
    "POST /api/v1/incoming/{name}", "POST /a2a/{name}", "POST /api/v1/sign-in",
    "POST /api/v1/blobs", "PUT /api/v1/blobs/{ref}",
    "POST /bus/v1/messages", "POST /bus/v1/acks", "POST /bus/v1/claims",
    "POST /bus/v1/claims/renew", "POST /bus/v1/claims/release", "POST /bus/v1/heartbeats",
    "POST /bus/v1/workers/{task}/state",
    "POST /broker/v1/accept", "POST /broker/v1/accept/batch", "POST /broker/v1/accept/unknown",
    "PUT /broker/v1/meshes/{mesh}/topics/{place}/subscribers/{subscriber}",
    "DELETE /broker/v1/meshes/{mesh}/topics/{place}/subscribers/{subscriber}",
    "PUT /broker/v1/meshes/{mesh}/queues/{place}/subscribers/{subscriber}",
    "DELETE /broker/v1/meshes/{mesh}/queues/{place}/subscribers/{subscriber}",
    "POST /api/v1/network/group-send",
    "POST /v1/send", "POST /v1/send/batch", "POST /v1/topic/post", "POST /v1/topic/subscribe",
    "POST /v1/topic/unsubscribe", "POST /v1/profile", "POST /v1/heartbeat", "POST /v1/hooks/act",
    "POST /network/inbox", "POST /v1/enqueue", "POST /v1/enqueue/batch", "POST /v1/receive",
    "POST /v1/ack", "POST /v1/nack", "POST /v1/extend",
    "POST /api/v1/jobs/runs", "POST /verify/send", "POST /verify/confirm",
    "POST /registry/agents", "POST /registry/agents/{agent}/rotate-key", "POST /contacts/request",
    "POST /registry/agents/{agent}/recover", "DELETE /registry/agents/{agent}/recover",
    "POST /contacts/{agent}/accept", "POST /contacts/{agent}/deny", "DELETE /contacts/{agent}",
    "POST /groups", "DELETE /groups/{group}", "POST /groups/{group}/invite",
    "POST /groups/{group}/accept", "POST /groups/{group}/decline", "POST /groups/{group}/leave",
    "POST /groups/{group}/transfer", "DELETE /groups/{group}/members/{agent}",
    "PUT /presence", "POST /relay/send", "POST /relay/inbox/{agent}/ack", "POST /mcp",
    "POST /api/v1/inbox/acknowledge", "POST /api/v1/agents/{agent}/report",
    "POST /api/v1/inbox/decline", "POST /api/v1/topics/{topic_id}/follow",
    "POST /api/v1/topics/{topic_id}/unfollow",
    "POST /api/v1/topics/{topic_id}/resolve", "POST /api/v1/topics/{topic_id}/reopen",
    "POST /api/v1/topics/{topic_id}/handoff", "POST /api/v1/messages/{message_id}/pin",
    "POST /api/v1/messages/{message_id}/unpin",
}  # fmt: skip
TOOLS_OF_USE = {
    "post_message", "create_topic", "create_channel", "edit_message", "delete_message",
    "ask_person", "claim_task", "renew_claim", "complete_task", "bus_send", "courier_enqueue",
    "release_claim", "change_task_state", "send_heartbeat", "bus_ack",
    "courier_receive", "courier_ack", "inbox_subscribe", "outbox_send", "acknowledge",
    "write_handoff", "put_file", "network_group_send",
}  # fmt: skip
SOCKET_REQUESTS = {
    "channel.create", "topic.create", "topic.rename", "message.create", "message.edit",
    "message.delete", "message.move", "attachment.add",
}  # fmt: skip
# Groups of commands that read, use the appliance, or send requests that it records.
REQUESTS_AND_READS = {
    "agentlip agent", "agentlip ask", "agentlip attachment", "agentlip bus", "agentlip channel",
    "agentlip courier", "agentlip erase", "agentlip get", "agentlip put",
    "agentlip inbox", "agentlip incoming", "agentlip jobs", "agentlip msg", "agentlip network",
    "agentlip outbox", "agentlip plugin", "agentlip report", "agentlip topic", "agentlip webhook",
    "agentlip worker", "agentlip archive", "agentlip config", "agentlip mcp", "agentlip audit",
    "agentlip broker", "agentlip forecast", "agentlip log", "agentlip maintenance",
    "agentlip notify", "agentlip top", "agentlip ceiling",
}  # fmt: skip
OTHERS = {
    "agentlip version", "agentlip init", "agentlip status", "agentlip ui", "agentlip listen",
    "agentlip search", "agentlip re-enrich", "agentlip catch-up",
    "agentlip pause", "agentlip resume", "agentlip pauses",
    "agentlip doctor bundle", "agentlip doctor list", "agentlip doctor explain",
    "agentlip doctor repair rebuild",
    "agentlip mesh create", "agentlip mesh list", "agentlip mesh update", "agentlip mesh keygen",
    "agentlip mesh add-member", "agentlip mesh members", "agentlip mesh rename-member",
    "agentlip mesh add-topic", "agentlip mesh topics", "agentlip mesh subscribe",
    "agentlip mesh unsubscribe", "agentlip mesh webhooks", "agentlip mesh add-webhook",
    "agentlip mesh update-webhook",
    "agentlip mesh remove-webhook", "agentlip identity show", "agentlip identity rotate",
    "agentlip relay pending", "agentlip relay approve",
    "agentlip relay revoke", "agentlip relay broadcast", "agentlip relay keys",
    "agentlip relay serve", "agentlip relay admins list", "agentlip relay audit",
    "agentlip backup targets", "agentlip backup verify", "agentlip backup list",
    "agentlip backup show", "agentlip export segments",
    "agentlip export snapshot", "agentlip export verify", "agentlip token list",
    "agentlipd up", "agentlipd down", "agentlipd restart", "agentlipd status", "agentlipd logs",
}  # fmt: skip
IN_THE_REPAIR = {"agentlip doctor repair"}  # a group, whose commands apply one plan


def commands(command, path):
    names = getattr(command, "list_commands", None)
    if names is None:
        yield path
        return
    for name in names(None):
        yield from commands(command.get_command(None, name), f"{path} {name}")


@pytest.fixture(scope="module")
def offered():
    """The operations and tools of an appliance with all roles, by their names."""
    with whole_appliance() as whole:
        operations = {
            f"{method} {route.path}": operation
            for route in whole.routes()
            for method, operation in route.operations.items()
        }
        mcp = next(part for part in whole.subsystems if part.name == "mcp")
        (route,) = mcp.routes()
        return operations, route.resource._tools


@pytest.fixture
def operations(offered):
    return offered[0]


@pytest.fixture
def tools(offered):
    return offered[1]


def every_command():
    return {
        *commands(get_command(app), "agentlip"),
        *commands(get_command(daemon_app), "agentlipd"),
    }


def test_every_operation_that_changes_something_is_decided(operations):
    changing = {name for name in operations if not name.startswith("GET ")}
    audited = {name for name, operation in operations.items() if operation.audited}
    assert len(audited) > 45
    assert changing - audited == USE
    assert audited <= changing


def test_every_operation_of_an_admin_scope_is_audited(operations):
    loose = {
        name
        for name, operation in operations.items()
        if (operation.scope or "").endswith((":admin", ":repair"))
        and not name.startswith("GET ")
        and not operation.audited
    }
    assert loose == set()


def test_every_tool_and_socket_request_is_decided(tools):
    changing = {name for name, tool in tools.items() if tool.changes != "nothing"}
    audited = {name for name, tool in tools.items() if tool.audited}
    assert audited == {
        "outbox_drop", "job_run", "network_request", "network_answer", "network_remove",
        "network_confirm",
        "network_group_create", "network_group_change", "network_change_key", "network_recover",
    }  # fmt: skip
    assert changing - audited == TOOLS_OF_USE
    assert set(OPERATIONS) == SOCKET_REQUESTS


def test_every_command_is_decided():
    known = every_command()
    acts = (ALWAYS | WHILE_STOPPED) - IN_THE_REPAIR
    assert acts <= known
    rest = known - acts - OTHERS
    assert {name for name in rest if " ".join(name.split()[:2]) not in REQUESTS_AND_READS} == set()
    assert known >= OTHERS
    groups = {" ".join(name.split()[:2]) for name in rest}
    assert groups == REQUESTS_AND_READS
