"""Generated from what the subsystems declare: `just settings`."""

import msgspec

NEEDS: dict[str, tuple[str, ...]] = {
    "a2a": ("hub", "entries"),
    "agents": ("hub",),
    "ask": ("hub",),
    "blobs": ("hub",),
    "catchup": ("hub",),
    "entries": ("hub",),
    "export": ("hub",),
    "hooks": ("inbox",),
    "incoming": ("hub",),
    "mcp": ("hub",),
    "network": ("inbox",),
    "plugins": ("hub",),
    "webhooks": ("hub", "outbox"),
}
"""The roles that a role needs."""


class Roles(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    a2a: bool = True  # work from agents elsewhere, over A2A; needs `hub` and `entries`
    agents: bool = True  # reports, pauses and turns of agents that are woken; needs `hub`
    ask: bool = True  # questions to people; needs `hub`
    backup: bool = True  # backups on a schedule, and over HTTP
    blobs: bool = True  # files that agents put and name in texts; needs `hub`
    broker: bool = True  # mesh broker, for members here and elsewhere
    bus: bool = True  # the worker bus in .worker-state, over HTTP and for tools
    catchup: bool = True  # catch-ups, topic states, handoff notes, pins; needs `hub`
    courier: bool = True  # envelope streams between programs
    entries: bool = True  # inboxes of senders: addressed messages and receipts; needs `hub`
    export: bool = True  # segments, snapshots and reports for the hub's log; needs `hub`
    hooks: bool = True  # commands that run on inbox events; needs `inbox`
    hub: bool = True  # channels, topics, messages, events and search
    inbox: bool = True  # messages received from meshes
    incoming: bool = True  # signed webhooks from other services; needs `hub`
    jobs: bool = True  # jobs with a schedule, and the runs that batch jobs report
    mcp: bool = True  # tools for agents at `/mcp`; needs `hub`
    network: bool = False  # network agents that this appliance keeps; needs `inbox`
    outbox: bool = True  # sends to meshes, webhooks and mail, stored until delivered
    plugins: bool = True  # plugins that process hub messages; needs `hub`
    relay: bool = False  # identity, contacts and presence for the agent network
    webhooks: bool = True  # hub event delivery to URLs; needs `hub` and `outbox`
