"""Defines the settings in [bus]."""

from typing import Annotated

import msgspec
from msgspec import Meta

TopicName = Annotated[str, Meta(pattern="^([^/]{1,100}/.{1,200})?$")]


class BusSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """[bus]: the appliance's work for its workspace's worker bus."""

    retention_days: Annotated[float, Meta(gt=0, le=36_500)] = 30.0  # messages that all have read
    ask_reviews: bool = False  # ask a person for each review; the answer decides the review
    export: bool = True  # keep .worker-state/bus.jsonl up to date, for people and git
    hub_topic: TopicName = ""  # hub topic, as CHANNEL/TITLE, that gets worker states
