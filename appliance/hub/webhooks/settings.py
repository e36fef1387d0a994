"""Defines [webhooks]: allowed event receivers."""

import msgspec


class WebhookSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Receivers of events. Registering a webhook needs the scope `hub:admin`."""

    allow_loopback: bool = True  # allow receivers on this machine, also over plain HTTP
    allow_private: bool = False  # allow receivers in private networks, such as 10.0.0.0/8
    allow_http: bool = False  # allow unencrypted HTTP to other machines
