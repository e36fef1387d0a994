"""Connects the runner of jobs with other subsystems."""

from collections.abc import Sequence

from appliance.ask.subsystem import AskSubsystem
from appliance.host import Host
from appliance.integrations.hooks_inbox import OwnUrl
from appliance.integrations.jobs_ask import HubJobAsks
from appliance.jobs.subsystem import JobsNeeds
from appliance.kernel.auth import TokenBook
from appliance.kernel.subsystem import Subsystem
from appliance.web.settings import HttpSettings


def jobs_needs(host: Host, book: TokenBook, parts: Sequence[Subsystem | None]) -> JobsNeeds:
    """`parts`: the subsystems that are built; more may follow."""
    ask = next((part for part in parts if isinstance(part, AskSubsystem)), None)
    url = OwnUrl(host.section(HttpSettings).host, host.served)
    return JobsNeeds(book, url, None if ask is None else HubJobAsks(ask.asks), parts)
