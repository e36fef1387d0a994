"""Computes an admin's checklist before an approval. Pure."""

from appliance.kernel.blank import printable
from appliance.relay import wire
from appliance.relay.rows import AgentRow

# The best known services. An admin sees every other address's domain.
DISPOSABLE = frozenset({
    "10minutemail.com", "dispostable.com", "fakeinbox.com", "getnada.com", "guerrillamail.com",
    "maildrop.cc", "mailinator.com", "mailnesia.com", "mintemail.com", "sharklasers.com",
    "temp-mail.org", "tempmail.com", "throwawaymail.com", "trashmail.com", "yopmail.com",
})  # fmt: skip
BURST_MAX = 2  # other agents with one address within a day
LIKE_ADMINS = ("admin", "root", "relay", "system", "support", "security")


def is_disposable(email: str) -> bool:
    """Return whether an address is disposable, including subdomains."""
    domain = email.lower().rpartition("@")[2]
    labels = domain.split(".")
    return any(".".join(labels[at:]) in DISPOSABLE for at in range(len(labels)))


def describe(agent: wire.PendingAgent) -> str:
    """Describe a waiting agent for an admin, without characters that terminals interpret."""
    marks = {True: "ok", False: "NO", None: "??"}
    lines = [
        f"{agent.name}  {agent.owner_email}  {agent.endpoint}",
        f"  key {agent.fingerprint}, registered {agent.created_at}",
        *(f"  {marks[item.good]}  {item.name}: {item.note}" for item in agent.checklist),
        f"  approved by {len(agent.approvals)} of {agent.approvals_needed} admins"
        f" {' '.join(agent.approvals)}".rstrip(),
    ]
    return "\n".join(printable(line, "?") for line in lines)


def checklist(agent: AgentRow, same_email: int, same_address: int) -> list[wire.ChecklistItem]:
    """Return the checklist. `same_email`, `same_address`: other agents with this owner, or from
    this client."""
    domain = agent.owner_email.rpartition("@")[2]
    misleading = any(word in agent.name for word in LIKE_ADMINS)
    reached = None if agent.reach_problem is None else not agent.reach_problem
    return [
        wire.ChecklistItem("email-domain", not is_disposable(agent.owner_email), domain),
        wire.ChecklistItem(
            "endpoint",
            reached,
            agent.reach_problem or ("reachable" if reached else "not tried yet"),
        ),
        wire.ChecklistItem(
            "name", not misleading, "looks like an admin's" if misleading else agent.name
        ),
        wire.ChecklistItem("duplicate-email", same_email == 0, f"{same_email} other agents"),
        wire.ChecklistItem(
            "burst", same_address <= BURST_MAX, f"{same_address} others with its address in a day"
        ),
    ]
