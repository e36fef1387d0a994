"""Generated from what the subsystems declare: `just settings`."""

COMMANDS = {
    "Workspace": {
        "ui": ("appliance.ui.cli:app", "Open the web UI, signed in."),
        "doctor": ("doctor.cli:app", "Check the workspace and its hub for problems."),
    },
    "Messages": {
        "catch-up": (
            "appliance.hub.catchup.cli:app",
            "Show what waits for you: questions, claims, entries, pinned messages, changed topics.",
        ),
        "channel": (
            "appliance.hub.cli:channels",
            "Channels: groups of topics, one per project or team.",
        ),
        "topic": ("appliance.hub.cli:topics", "Topics: threads in a channel."),
        "msg": ("appliance.hub.cli:messages", "Messages: send, read, edit, delete and move them."),
        "attachment": (
            "appliance.hub.cli_attachments:app",
            "Attachments: links, files and facts of a topic.",
        ),
        "listen": ("appliance.hub.cli_listen:app", "Follow the event stream."),
        "search": ("appliance.hub.cli_search:app", "Search messages, best match first."),
        "inbox": (
            "appliance.inbox.cli:app",
            "Messages that wait for you in this hub (--mine), and messages of meshes.",
        ),
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
    "Teams of agents, without a server": {
        "bus": (
            "appliance.bus.cli:app",
            "A team of agents on one machine: messages, claims, cursors.",
        ),
        "worker": (
            "appliance.bus.cli_worker:app",
            "Tasks of a team of agents, each with a branch and a worktree.",
        ),
    },
    "Other appliances": {
        "mesh": (
            "appliance.broker.cli:meshes",
            "Manage meshes of the broker: members, topics, queues, subscriptions, webhooks.",
        ),
        "broker": ("appliance.broker.cli:app", "Inspect the broker: status, history."),
        "identity": (
            "appliance.identity.cli:app",
            "The member key: the identity of this appliance in meshes.",
        ),
        "network": (
            "appliance.mailbox.cli:app",
            "An agent of the network: contacts, encrypted messages, keys.",
        ),
        "outbox": (
            "appliance.outbox.cli:app",
            "Messages to meshes and mail: send, inspect, redrive, drop, prune.",
        ),
        "relay": (
            "appliance.relay.cli:app",
            "The relay of the agent network: admins, approval, revocation, broadcasts.",
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
            "The audit log: what administrators did, in a chain of hashes.",
        ),
        "backup": (
            "appliance.backup.cli:app",
            "Backups of the whole workspace: create, verify, prune, restore, copies elsewhere.",
        ),
        "export": (
            "appliance.export.cli:app",
            "Export: the logs as closed segments, the tables as a snapshot.",
        ),
        "archive": (
            "appliance.export.cli_archive:app",
            "The archive of old segments: verify, search.",
        ),
        "report": (
            "appliance.export.cli_report:app",
            "Reports from the results of the Spark jobs.",
        ),
        "jobs": (
            "appliance.jobs.cli:app",
            "Jobs: scheduled and requested work, and the latest runs that jobs reported.",
        ),
        "forecast": (
            "appliance.operations.cli_forecast:app",
            "Show in how many days each disk is full, which stores grow, and what can be reduced.",
        ),
        "log": ("appliance.operations.cli_log:app", "The log level of the running appliance."),
        "maintenance": (
            "appliance.operations.cli_maintenance:app",
            "Maintenance mode: clients can read, and their writes get 503 with Retry-After.",
        ),
        "notify": (
            "appliance.operations.cli_notify:app",
            "Messages to the operator, whose destinations are in [notify] of the settings.",
        ),
        "top": (
            "appliance.operations.cli_top:app",
            "Show rates, queues, lags, connections and the delay of the event loop, until Ctrl-C.",
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
