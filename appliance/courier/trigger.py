"""Triggers: rules that run when an envelope is enqueued. Pure: returns effects, doesn't run them.

    when  to, from, type (patterns), tags (all must be present), headers (must be equal)
    do    enrich   add headers, tags or payload fields before the envelope is enqueued
          notify   send a new envelope, with a reference to this one, to another stream
          route    send a copy of the envelope to another stream
          emit     count and log it under a name
          webhook  send a webhook through the outbox

A rule fires at most once in its cooldown; matches during the cooldown are dropped. Envelopes from
rules carry a hop count, and an envelope with `hops_max` hops fires no rule, so loops of rules end.
A firing with an action that failed counts as failed, and begins a cooldown only if another action
was done.
A rule that fails FAILURES_MAX times in a row pauses for PAUSE_MS. Enqueuing never fails because of
a trigger.
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
PAUSE_MS = 60_000.0
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


class WebhookAction(
    Struct, frozen=True, forbid_unknown_fields=True, tag_field="action", tag="webhook"
):
    to: Name
    payload: dict[str, Any] = {}


Action = Notify | RouteTo | Enrich | Emit | WebhookAction


class RuleLimits(Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    cooldown_ms: Annotated[int, Meta(ge=0)] = 0


class TriggerRule(Struct, frozen=True, forbid_unknown_fields=True):
    """One row in [[courier.triggers]]."""

    id: Name
    do: Annotated[list[Action], Meta(min_length=1, max_length=16)]
    when: When = When()
    limits: RuleLimits = field(default_factory=RuleLimits)


class Effect(Struct, frozen=True):
    """A fired rule's effect: an envelope or webhook for `to`, or a count under the name `to`."""

    rule: str
    action: str
    to: str
    envelope: Env


class RuleState:
    """A rule's state between two envelopes.

    Not a `CircuitBreaker`: after a pause a rule fires for every envelope in a batch and may fail
    FAILURES_MAX times again, where a breaker allows one call and opens with its first failure.
    """

    __slots__ = ("failed", "failures", "fired", "fired_at", "paused_until", "suppressed")

    def __init__(self) -> None:
        self.fired_at: float | None = None
        self.fired = self.suppressed = self.failures = self.failed = 0
        self.paused_until = 0.0


class TriggerEngine:
    def __init__(self, rules: Sequence[TriggerRule], hops_max: int) -> None:
        self.rules = tuple(rules)
        self.states = {rule.id: RuleState() for rule in rules}
        self._hops_max = hops_max

    def for_stream(self, stream: str) -> tuple[TriggerRule, ...]:
        """Return rules that envelopes for this stream can fire. Most streams have none."""
        return tuple(
            rule for rule in self.rules if rule.when.to is None or matches(rule.when.to, stream)
        )

    def fire(
        self, rules: Iterable[TriggerRule], stream: str, env: Env, now: float
    ) -> tuple[Env | None, list[Effect]]:
        """Return the enriched envelope, or None if no rule changed it; and the effects."""
        changed: Env | None = None
        firing = []
        for rule in rules:
            state = self.states[rule.id]
            if not self._matches(rule, stream, env) or state.paused_until > now:
                continue
            if state.fired_at is not None and now - state.fired_at < rule.limits.cooldown_ms:
                state.suppressed += 1
                continue
            state.fired += 1
            state.fired_at = now
            firing.append(rule)
        for rule in firing:
            for action in rule.do:
                if isinstance(action, Enrich):
                    changed = _enrich(changed or env, env, action)
        final = changed or env
        effects = [
            effect
            for rule in firing
            for index, action in enumerate(rule.do)
            if (effect := _effect(rule, index, action, stream, final)) is not None
        ]
        return changed, effects

    def record_failure(self, rule_id: str, *, acted: bool) -> None:
        """Count a firing as failed. Without an action that was done it begins no cooldown."""
        state = self.states[rule_id]
        state.fired, state.failed = state.fired - 1, state.failed + 1
        state.fired_at = state.fired_at if acted else None

    def record_outcome(self, rule_id: str, succeeded: bool, now: float) -> None:
        """Count an effect's outcome, and pause a rule that keeps failing."""
        state = self.states[rule_id]
        state.failures = 0 if succeeded else state.failures + 1
        if state.failures >= FAILURES_MAX:
            state.paused_until = now + PAUSE_MS
            state.failures = 0

    def _matches(self, rule: TriggerRule, stream: str, env: Env) -> bool:
        """Return whether all conditions hold, and the envelope has not passed too many rules."""
        when = rule.when
        headers = env.get("headers") or {}
        for glob, value in (
            (when.to, stream), (when.from_, env.get("from")), (when.type, env.get("type")),
        ):  # fmt: skip
            if glob is not None and (not isinstance(value, str) or not matches(glob, value)):
                return False
        if not set(when.tags) <= set(env.get("tags") or ()):
            return False
        if any(headers.get(name) != wanted for name, wanted in when.headers.items()):
            return False
        return hops_of(env) < self._hops_max


NO_OUTBOX = "webhook actions need the outbox, which is disabled"


def of_type(rules: tuple[TriggerRule, ...], type_: str) -> tuple[TriggerRule, ...]:
    """Return the rules that an envelope with this type can fire. Doesn't need the whole
    envelope."""
    return tuple(rule for rule in rules if rule.when.type is None or matches(rule.when.type, type_))


def hops_of(env: Env) -> int:
    headers = env.get("headers")
    hops = headers.get(HOPS, 0) if isinstance(headers, dict) else 0
    return hops if isinstance(hops, int) and hops > 0 else 0


def check(rules: Sequence[TriggerRule], webhooks: bool) -> list[str]:
    """Return a rule table's problems. `webhooks`: whether the outbox can send webhooks."""
    problems = []
    seen: set[str] = set()
    for rule in rules:
        if rule.id in seen:
            problems.append(f"{rule.id}: another rule has this id")
        seen.add(rule.id)
        if rule.when == When():
            problems.append(f"{rule.id}: `when` is empty, so every envelope would fire the rule")
        for action in rule.do:
            if isinstance(action, WebhookAction) and not webhooks:
                problems.append(f"{rule.id}: {NO_OUTBOX}")
            target = getattr(action, "to", None)
            if isinstance(action, WebhookAction) or target is None:
                continue
            if "*" in target:
                problems.append(f"{rule.id}: {_tag(action)} needs one stream, not a pattern")
            elif not is_name(_template.sub("x", target)):
                problems.append(f"{rule.id}: {_tag(action)} needs a stream name")
    return problems


def _tag(action: Action) -> str:
    return str(action.__struct_config__.tag)


def _effect(rule: TriggerRule, index: int, action: Action, stream: str, env: Env) -> Effect | None:
    if isinstance(action, Enrich):
        return None
    if isinstance(action, Emit):
        return Effect(rule.id, "emit", action.name, {})
    headers = {**(env.get("headers") or {}), HOPS: hops_of(env) + 1}
    if isinstance(action, RouteTo):
        to = _target_stream(action.to, env)
        return Effect(rule.id, "route", to, {**env, "to": to, "headers": headers})
    payload = {"ref": env.get("id"), "stream": stream, **fill_template(action.payload, env)}
    if isinstance(action, WebhookAction):
        return Effect(rule.id, "webhook", action.to, payload)
    to = _target_stream(action.to, env)
    notice = {
        "id": _notice_id(f"n-{env.get('id')}-{rule.id}-{index}"),
        "ts": env.get("ts"),
        "from": SYSTEM,
        "to": to,
        "type": action.type,
        "refs": [env.get("id")],
        "tags": [SYSTEM],
        "headers": {**fill_template(action.headers, env), HOPS: hops_of(env) + 1},
        "payload": {"title": f"{env.get('type')} for {stream}", **payload},
    }
    if env.get("corr") is not None:
        notice["corr"] = env["corr"]
    return Effect(rule.id, "notify", to, notice)


def _target_stream(template: str, env: Env) -> str:
    """Return a stream's name; empty, and so invalid, if the envelope has no text in that field."""
    to = fill_template(template, env)
    return to if isinstance(to, str) else ""


def _notice_id(text: str) -> str:
    """Return a notice's id: always equal for one envelope, and at most ID_MAX characters."""
    if len(text) <= ID_MAX:
        return text
    return f"n-{hashlib.sha256(text.encode()).hexdigest()}"


def _enrich(env: Env, source: Env, action: Enrich) -> Env:
    new = dict(env)
    if action.headers:
        new["headers"] = {**(new.get("headers") or {}), **fill_template(action.headers, source)}
    if action.payload and isinstance(new.get("payload"), dict):
        new["payload"] = {**new["payload"], **fill_template(action.payload, source)}
    if action.tags:
        tags = list(new.get("tags") or [])
        new["tags"] = tags + [tag for tag in fill_template(action.tags, source) if tag not in tags]
    return new


def fill_template(template: Any, env: Env) -> Any:
    """Replace every `${env.path}` in `template`. If nothing else is in the text, the value's type
    is kept."""
    if isinstance(template, dict):
        return {name: fill_template(value, env) for name, value in template.items()}
    if isinstance(template, list):
        return [fill_template(value, env) for value in template]
    if not isinstance(template, str):
        return template
    whole = _template.fullmatch(template)
    if whole:
        return _lookup(env, whole[1])
    return _template.sub(lambda match: _text(_lookup(env, match[1])), template)


def _lookup(env: Env, path: str) -> Any:
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
