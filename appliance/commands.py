"""Generated from what the subsystems declare: `just settings`."""

COMMANDS = {
    "Workspace": {
        "ui": ("appliance.ui.cli:app", "Open the web UI, signed in."),
        "doctor": ("doctor.cli:app", "Check the workspace and its hub for problems."),
    },
    "Messages": {
        "agent": (
            "appliance.hub.agents.cli:app",
            "Agents that are woken by their inbox: run, status, pause, resume, report, logs.",
        ),
        "put": (
            "appliance.hub.blobs.cli:put_app",
            "Store a file once, by its hash, and print its reference for messages.",
        ),
        "get": ("appliance.hub.blobs.cli:get_app", "Write a file's content, and check its hash."),
        "erase": (
            "appliance.hub.blobs.cli:erase_app",
            "Erase a file now, although messages may name it.",
        ),
        "pause": (
            "appliance.hub.bounds.cli:pausing",
            "Pause a name, the agents in a topic, or all agents.",
        ),
        "resume": ("appliance.hub.bounds.cli:resuming", "End a pause."),
        "pauses": (
            "appliance.hub.bounds.cli:listing",
            "List the pauses, with their cause, beginning, end and reason.",
        ),
        "ceiling": (
            "appliance.hub.bounds.cli:ceilings",
            "Limits for a name on a UTC day: set, list, remove.",
        ),
        "catch-up": (
            "appliance.hub.catchup.cli:app",
            "Show what waits for you: questions, claims, entries, pinned messages, changed topics.",
        ),
        "channel": (
            "appliance.hub.cli:channels",
            "Channels: topic groups, one per project or team.",
        ),
        "topic": ("appliance.hub.cli:topics", "Topics: threads in a channel."),
        "msg": ("appliance.hub.cli:messages", "Messages: send, read, edit, delete and move them."),
        "attachment": (
            "appliance.hub.cli_attachments:app",
            "Attachments: a topic's links, files and facts.",
        ),
        "listen": ("appliance.hub.cli_listen:app", "Follow the event stream."),
        "search": ("appliance.hub.cli_search:app", "Search messages, best match first."),
        "inbox": ("appliance.inbox.cli:app", "Your hub entries (--mine), and mesh messages."),
    },
    "People": {
        "ask": (
            "appliance.hub.ask.cli:app",
            "Questions to people, which are answered exactly once.",
        )
    },
    "Work for consumers": {
        "courier": (
            "appliance.courier.cli:app",
            "Envelopes: enqueue, subscribe, inspect streams, dead letters, rules.",
        )
    },
    "Agent teams, without a server": {
        "bus": (
            "appliance.bus.cli:app",
            "An agent team on one machine: messages, claims, cursors.",
        ),
        "worker": (
            "appliance.bus.cli_worker:app",
            "An agent team's tasks, each with a branch and a worktree.",
        ),
    },
    "Other appliances": {
        "mesh": (
            "appliance.broker.cli:meshes",
            "Manage the broker's meshes: members, topics, queues, subscriptions, webhooks.",
        ),
        "broker": ("appliance.broker.cli:app", "Inspect the broker: status, history."),
        "identity": (
            "appliance.identity.cli:app",
            "The member key: this appliance's identity in meshes.",
        ),
        "network": (
            "appliance.mailbox.cli:app",
            "An agent in the network: contacts, encrypted messages, keys.",
        ),
        "outbox": (
            "appliance.outbox.cli:app",
            "Messages to meshes and mail: send, inspect, redrive, drop, prune.",
        ),
        "relay": (
            "appliance.relay.cli:app",
            "The agent network's relay: admins, approval, revocation, broadcasts.",
        ),
    },
    "Extensions": {
        "incoming": ("appliance.hub.incoming.cli:app", "Signed webhooks from other services."),
        "plugin": ("appliance.hub.plugins.cli:app", "Plugins: their state and results."),
        "re-enrich": (
            "appliance.hub.plugins.cli:re_enrich_app",
            "Reprocess the event log with plugins.",
        ),
        "webhook": (
            "appliance.hub.webhooks.cli:app",
            "Webhooks: events for HTTP receivers, and their delivery.",
        ),
        "mcp": (
            "appliance.mcp.cli:app",
            "Serve MCP to an agent on standard input and output, for the running hub.",
        ),
    },
    "Administration": {
        "audit": (
            "appliance.audit.cli:app",
            "The audit log: what administrators did, in a hash chain.",
        ),
        "backup": (
            "appliance.backup.cli:app",
            "Workspace backups: create, verify, prune, restore, copies elsewhere.",
        ),
        "export": (
            "appliance.export.cli:app",
            "Export: the logs as closed segments, the tables as a snapshot.",
        ),
        "archive": (
            "appliance.export.cli_archive:app",
            "The old segments' archive: verify, search.",
        ),
        "report": ("appliance.export.cli_report:app", "Reports from the Spark jobs' results."),
        "jobs": (
            "appliance.jobs.cli:app",
            "Jobs: scheduled and requested work, and the latest runs that jobs reported.",
        ),
        "forecast": (
            "appliance.operations.cli_forecast:app",
            "Show in how many days each disk is full, which stores grow, and what can be reduced.",
        ),
        "log": ("appliance.operations.cli_log:app", "The running appliance's log level."),
        "maintenance": (
            "appliance.operations.cli_maintenance:app",
            "Maintenance mode: clients can read, and their writes get 503 with Retry-After.",
        ),
        "notify": (
            "appliance.operations.cli_notify:app",
            "Messages to the operator, sent to the destinations in the [notify] settings.",
        ),
        "top": (
            "appliance.operations.cli_top:app",
            "Show rates, queues, lags, connections and event loop delay, until Ctrl-C.",
        ),
        "recover": (
            "appliance.recovery.cli:app",
            "Copy a damaged store's readable rows into a new file.",
        ),
        "token": ("appliance.tokens.cli:app", "Tokens: create, list, revoke, rotate."),
        "migrate": (
            "appliance.upgrade.cli:migrate_app",
            "Migrate a workspace's stores to this version's schema.",
        ),
        "config": ("doctor.cli_config:app", "Settings, and where each comes from."),
    },
}
