"""Triggers: rules as rows, run when an envelope is inserted. Pure: what to do, not the doing.

    when  to, from, type (patterns), tags (all of them), headers (equal)
    do    enrich   add headers, tags or payload fields before anybody sees the envelope
          notify   a new envelope to another stream, with a reference to this one
          route    a copy of this one to another stream
          emit     count it under a name, and log it; no envelope
          webhook  hand it to the outbox

A rule fires at most once in its cooldown; what it misses meanwhile is not made up for.
What a rule sends carries a hop count, and an envelope that made `hops_max` hops fires no
rule: rules that feed each other end. A rule that fails time after time is left out for a
while. Nothing here can fail an insert.
"""

import hashlib
import re
from collections.abc import Iterable, Sequence
from typing import Annotated, Any

import msgspec
from msgspec import Meta, Struct, field

from appliance.courier.policy import is_name, matches

SYSTEM = "system/courier"
HOPS = "courier-hops"
FAILURES_MAX = 5
ID_MAX = 200
OFF_MS = 60_000.0
_template = re.compile(r"\$\{env\.([A-Za-z0-9_.\-]+)\}")

Name = Annotated[str, Meta(min_length=1, max_length=200)]
Env = dict[str, Any]


class When(Struct, frozen=True, forbid_unknown_fields=True, rename={"from_": "from"}):
    to: str | None = None
    from_: str | None = None
    type: str | None = None
    tags: list[str] = []
    headers: dict[str, Any] = {}


class Notify(Struct, frozen=True, forbid_unknown_fields=True, tag_field="action", tag="notify"):
    to: Name
    payload: dict[str, Any] = {}
    type: str = "notify"
    headers: dict[str, Any] = {}


class RouteTo(Struct, frozen=True, forbid_unknown_fields=True, tag_field="action", tag="route"):
    to: Name


class Enrich(Struct, frozen=True, forbid_unknown_fields=True, tag_field="action", tag="enrich"):
    headers: dict[str, Any] = {}
    payload: dict[str, Any] = {}
    tags: list[str] = []


class Emit(Struct, frozen=True, forbid_unknown_fields=True, tag_field="action", tag="emit"):
    name: Annotated[str, Meta(pattern="^[a-z][a-z0-9_.]{0,63}$")]


class Webhook(Struct, frozen=True, forbid_unknown_fields=True, tag_field="action", tag="webhook"):
    to: Name
    payload: dict[str, Any] = {}


Action = Notify | RouteTo | Enrich | Emit | Webhook


class Limits(Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    cooldown_ms: Annotated[int, Meta(ge=0)] = 0


class Rule(Struct, frozen=True, forbid_unknown_fields=True):
    """One row of [[courier.triggers]]."""

    id: Name
    do: Annotated[list[Action], Meta(min_length=1, max_length=16)]
    when: When = When()
    limits: Limits = field(default_factory=Limits)
    enabled: bool = True


class Effect(Struct, frozen=True):
    """What a firing rule wants done: an envelope to `to`, or a name to count."""

    rule: str
    action: str
    to: str
    envelope: Env


class Verdict(Struct, frozen=True):
    """Whether a rule fires for an envelope, and if not, why."""

    rule: str
    fires: bool
    why: str
    actions: list[str]


class State:
    """What a rule remembers between two inserts."""

    __slots__ = ("failures", "fired", "fired_at", "off_until", "suppressed")

    def __init__(self) -> None:
        self.fired_at: float | None = None
        self.fired = self.suppressed = self.failures = 0
        self.off_until = 0.0


class Engine:
    def __init__(self, rules: Sequence[Rule], hops_max: int) -> None:
        self.rules = tuple(rules)
        self.states = {rule.id: State() for rule in rules}
        self._hops_max = hops_max

    def for_stream(self, stream: str) -> tuple[Rule, ...]:
        """Rules that an insert into this stream may fire; most streams have none."""
        return tuple(
            rule
            for rule in self.rules
            if rule.enabled and (rule.when.to is None or matches(rule.when.to, stream))
        )

    def verdicts(self, stream: str, env: Env, now: float) -> list[Verdict]:
        """What would happen; changes nothing."""
        return [
            Verdict(rule.id, not why, why or "it matches", [_tag(action) for action in rule.do])
            for rule in self.rules
            for why in (self._why_not(rule, stream, env, now),)
        ]

    def fire(
        self, rules: Iterable[Rule], stream: str, env: Env, now: float
    ) -> tuple[Env | None, list[Effect]]:
        """The enriched envelope if a rule changed it, and what else is to be done."""
        changed: Env | None = None
        firing = []
        for rule in rules:
            why = self._why_not(rule, stream, env, now)
            if not why:
                state = self.states[rule.id]
                state.fired += 1
                state.fired_at = now
                firing.append(rule)
            elif why == COOLING:
                self.states[rule.id].suppressed += 1
        for rule in firing:
            for action in rule.do:
                if isinstance(action, Enrich):
                    changed = _enriched(changed or env, env, action)
        final = changed or env
        effects = [
            effect
            for rule in firing
            for place, action in enumerate(rule.do)
            if (effect := _effect(rule, place, action, stream, final)) is not None
        ]
        return changed, effects

    def settle(self, rule_id: str, well: bool, now: float) -> None:
        """Tell how an effect of a rule went: a rule that keeps failing rests for a while."""
        state = self.states[rule_id]
        state.failures = 0 if well else state.failures + 1
        if state.failures >= FAILURES_MAX:
            state.off_until = now + OFF_MS
            state.failures = 0

    def _why_not(self, rule: Rule, stream: str, env: Env, now: float) -> str:
        when, state = rule.when, self.states[rule.id]
        headers = env.get("headers") or {}
        if not rule.enabled:
            return "it is switched off"
        for name, glob, value in (
            ("to", when.to, stream),
            ("from", when.from_, env.get("from")),
            ("type", when.type, env.get("type")),
        ):
            if glob is not None and (not isinstance(value, str) or not matches(glob, value)):
                return f"{name} differs"
        if not set(when.tags) <= set(env.get("tags") or ()):
            return "tags are missing"
        for name, wanted in when.headers.items():
            if headers.get(name) != wanted:
                return f"header {name} differs"
        if hops_of(env) >= self._hops_max:
            return f"it made {hops_of(env)} hops, as many as allowed"
        if state.fired_at is not None and now - state.fired_at < rule.limits.cooldown_ms:
            return COOLING
        return "it failed too often and rests" if state.off_until > now else ""


COOLING = "it is cooling down"
NO_OUTBOX = "a webhook goes through the outbox, and the outbox is off here"


def of_type(rules: tuple[Rule, ...], type_: str) -> tuple[Rule, ...]:
    """Those that an envelope of this type may fire: found without reading all of it."""
    return tuple(rule for rule in rules if rule.when.type is None or matches(rule.when.type, type_))


def hops_of(env: Env) -> int:
    headers = env.get("headers")
    hops = headers.get(HOPS, 0) if isinstance(headers, dict) else 0
    return hops if isinstance(hops, int) and hops > 0 else 0


def check(rules: Sequence[Rule], webhooks: bool) -> list[str]:
    """What is wrong with a table of rules; nothing is an empty list. `webhooks`: there is an
    outbox to send them."""
    problems = []
    seen: set[str] = set()
    for rule in rules:
        if rule.id in seen:
            problems.append(f"{rule.id}: this id is used twice")
        seen.add(rule.id)
        if rule.when == When():
            problems.append(f"{rule.id}: `when` is empty, so every envelope would fire it")
        for action in rule.do:
            if isinstance(action, Webhook) and not webhooks:
                problems.append(f"{rule.id}: {NO_OUTBOX}")
            target = getattr(action, "to", None)
            if isinstance(action, Webhook) or target is None:
                continue
            if "*" in target:
                problems.append(f"{rule.id}: {_tag(action)} needs one stream, not a pattern")
            elif not is_name(_template.sub("x", target)):
                problems.append(f"{rule.id}: {_tag(action)} names no stream")
    return problems


def _tag(action: Action) -> str:
    return str(action.__struct_config__.tag)


def _effect(rule: Rule, place: int, action: Action, stream: str, env: Env) -> Effect | None:
    if isinstance(action, Enrich):
        return None
    if isinstance(action, Emit):
        return Effect(rule.id, "emit", action.name, {})
    headers = {**(env.get("headers") or {}), HOPS: hops_of(env) + 1}
    if isinstance(action, RouteTo):
        to = _target(action.to, env)
        return Effect(rule.id, "route", to, {**env, "to": to, "headers": headers})
    payload = {"ref": env.get("id"), "stream": stream, **filled(action.payload, env)}
    if isinstance(action, Webhook):
        return Effect(rule.id, "webhook", action.to, payload)
    to = _target(action.to, env)
    notice = {
        "id": _notice_id(f"n-{env.get('id')}-{rule.id}-{place}"),
        "ts": env.get("ts"),
        "from": SYSTEM,
        "to": to,
        "type": action.type,
        "refs": [env.get("id")],
        "tags": [SYSTEM],
        "headers": {**filled(action.headers, env), HOPS: hops_of(env) + 1},
        "payload": {"title": f"{env.get('type')} for {stream}", **payload},
    }
    if env.get("corr") is not None:
        notice["corr"] = env["corr"]
    return Effect(rule.id, "notify", to, notice)


def _target(template: str, env: Env) -> str:
    """A stream's name; empty, and so refused, when the envelope has no text in that place."""
    to = filled(template, env)
    return to if isinstance(to, str) else ""


def _notice_id(text: str) -> str:
    """The same for the same envelope, and never longer than an id may be."""
    if len(text) <= ID_MAX:
        return text
    return f"n-{hashlib.sha256(text.encode()).hexdigest()}"


def _enriched(env: Env, source: Env, action: Enrich) -> Env:
    new = dict(env)
    if action.headers:
        new["headers"] = {**(new.get("headers") or {}), **filled(action.headers, source)}
    if action.payload and isinstance(new.get("payload"), dict):
        new["payload"] = {**new["payload"], **filled(action.payload, source)}
    if action.tags:
        tags = list(new.get("tags") or [])
        new["tags"] = tags + [tag for tag in filled(action.tags, source) if tag not in tags]
    return new


def filled(template: Any, env: Env) -> Any:
    """`template` with every `${env.path}` replaced; one that stands alone keeps its type."""
    if isinstance(template, dict):
        return {name: filled(value, env) for name, value in template.items()}
    if isinstance(template, list):
        return [filled(value, env) for value in template]
    if not isinstance(template, str):
        return template
    alone = _template.fullmatch(template)
    if alone:
        return _look(env, alone[1])
    return _template.sub(lambda found: _text(_look(env, found[1])), template)


def _look(env: Env, path: str) -> Any:
    value: Any = env
    for name in path.split("."):
        if not isinstance(value, dict) or name not in value:
            return None
        value = value[name]
    return value


def _text(value: Any) -> str:
    if value is None:
        return ""
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()
