"""The broker's operations on messages: accept, push, ack. `registry.py` manages meshes.

Broker.accept(member, item) -> (status, body)          one send
Broker.accept_many(member, items) -> [(status, body)]  several, in as few commits as possible
"""

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

from appliance.broker import metrics, queries, retention, validation, wire, writes
from appliance.broker.access import NONCES_MAX, Environ, Signatures
from appliance.broker.directory import Directory
from appliance.broker.dispatch import Dispatch, MemberRunsElsewhere
from appliance.broker.member_connection import MemberConnection
from appliance.broker.rows import MemberRow, MeshRow
from appliance.broker.settings import BrokerSettings
from appliance.broker.validation import Command, DedupeRecord
from appliance.broker.writes import AcceptResult, Claim
from appliance.kernel.auth import Principal
from appliance.kernel.batch import Call, CallOutcome
from appliance.kernel.clock import Clock, iso
from appliance.kernel.errors import ApplianceError, Unavailable
from appliance.kernel.log import Log
from appliance.kernel.steady_clock import SteadyClock
from appliance.kernel.store import Store
from appliance.kernel.token_bucket import TokenBucket
from appliance.mesh.instance import MemberInstance, note_copy

Answer = tuple[int, dict[str, Any]]
BATCHES_MAX = 100  # per round of the Deliverer
MENTIONS_MAX = 50  # members named in one message's meta.mentions
WINDOW_MAX = 256  # unacked deliveries for one connection
LEASE_SECONDS = 30.0  # an unacked delivery is repeated after this time
CLAIM_MAX = 500  # deliveries claimed in one transaction


class Broker:
    """One per process. Call `open` before serving requests: the class loads the stored state."""

    def __init__(
        self, store: Store, dispatch: Dispatch, settings: BrokerSettings, clock: Clock, log: Log
    ) -> None:
        self.store = store
        self.dispatch = dispatch
        self.settings = settings
        self.clock = clock
        self.log = log
        self.directory = Directory()
        self.signatures = Signatures(lambda: self.directory, clock)
        self.steady = SteadyClock(store, clock, log)
        self.epoch = ""
        self._buckets: dict[str, TokenBucket] = {}  # by mesh

    def open(self) -> None:
        """Load ids, nonces and meshes; end an earlier process's leases."""
        self.store.seed_ids(self.store.read(queries.last_history))
        self.steady.open()
        self.epoch = self.store.read(queries.epoch)
        used = self.store.read(queries.used_nonces, self.clock.now_ms(), NONCES_MAX)
        self.signatures.restore(
            self.store.read(queries.broker_id), used, self.store.read(queries.signed_after)
        )
        self.reload()
        with suppress(Unavailable):  # the disk is full: the leases expire later
            self.store.write(writes.release_all)

    def reload(self) -> None:
        """Read meshes and members from the store after a change."""
        self.directory = self.store.read(queries.directory)
        metrics.misconfigured.set(
            sum(
                retention.is_misconfigured(
                    mesh.dedupe_mode, mesh.dedupe_retention_days, mesh.message_retention_days
                )
                for mesh in self.directory.by_id.values()
            )
        )
        for connection in list(self.dispatch.connections()):
            mesh = self.directory.by_id[connection.mesh.id]
            connection.mesh = mesh
            recipients = self.directory.recipients(mesh.id, connection.pubkey)
            self.dispatch.change_recipients(connection, recipients)

    # -- accepting ---------------------------------------------------------------------------

    def accept(self, member: str, item: Any) -> Answer:
        """Accept one send from `member`, an authenticated public key. Never raises for an item's
        faults: the answer is a status and a body (contract, §7)."""
        return self.accept_many(member, [item])[0]

    def accept_many(self, member: str, items: Sequence[Any]) -> list[Answer]:
        """Accept several sends, in order. An item is an AcceptItem, raw JSON or a mapping."""
        answers: dict[int, Answer] = {}
        admitted: dict[int, Command] = {}
        for index, item in enumerate(items):
            try:
                command = self._admit(member, item)
                answer = self._limit(command)
            except ApplianceError as error:
                answer = self._refusal(error)
            if answer is None:
                admitted[index] = command
            else:
                answers[index] = answer
        outcomes = self._write(list(admitted.values()))
        for (index, command), outcome in zip(admitted.items(), outcomes, strict=True):
            answers[index] = self._answer(command, outcome)
        self.save_nonces()
        return [answers[index] for index in range(len(items))]

    def unknown(self, command: wire.UnknownQuery, member: str) -> wire.UnknownIds:
        """Return unknown ids. Raises MeshNotFound, NotAMember or MemberIsRevoked."""
        mesh = self.directory.mesh(command.mesh)
        self.directory.member(mesh.id, member)
        ids = self.store.read(queries.unknown_ids, mesh.id, command.client_message_ids)
        return wire.UnknownIds(ids)

    def _admit(self, member: str, item: Any) -> Command:
        """Check one item (B1): no transaction is open, nothing is stored."""
        send = wire.decode(item)
        mesh = self.directory.mesh(send.mesh)
        sender = self.directory.member(mesh.id, member)
        digest, meta = validation.digest_of(send)
        mentions = validation.mentions_of(send.meta, MENTIONS_MAX)
        return Command(mesh, sender, send, digest, meta, mentions)

    def _limit(self, command: Command) -> Answer | None:
        """Refuse sends above the rate limit, but answer for an id that is known already (B0). None:
        it is within the limit."""
        mesh_id = command.mesh.id
        bucket = self._bucket(mesh_id)
        wait = 0.0 if bucket is None else bucket.charge(1, self.clock.monotonic())
        if not wait:
            return None
        record = self.store.read(queries.dedupe_record, mesh_id, command.send.client_message_id)
        if record is None:
            raise wire.MeshBusy(retry_after=max(wait, 0.001))
        return self._duplicate_answer(command, record)

    def _bucket(self, mesh_id: str) -> TokenBucket | None:
        """Return a mesh's rate limit, with bursts of one second; None: there is no limit."""
        rate = float(self.settings.rate_per_second)
        if rate > 0 and mesh_id not in self._buckets:
            self._buckets[mesh_id] = TokenBucket(rate, rate, self.clock.monotonic())
        return self._buckets.get(mesh_id)

    def _write(self, commands: list[Command]) -> list[CallOutcome]:
        """Write all in one transaction; if that fails because of one command, each separately.
        Then a command that fails stops later commands to the same destination, to keep their
        order."""
        if not commands:
            return []
        try:
            [outcome] = self._write_with_nonces((writes.accept_many, (commands,)))
            return [CallOutcome(result) for result in outcome.unwrap()]
        except Exception as error:
            if isinstance(error, Unavailable) or len(commands) == 1:
                return [CallOutcome(error=error) for _ in commands]
        outcomes: list[CallOutcome] = []
        failed: dict[tuple[str, str, str], CallOutcome] = {}
        for command in commands:
            send = command.send
            to = (send.mesh, send.destination_kind, send.destination_ref)
            outcome = failed.get(to) or self._write([command])[0]
            if outcome.error is not None:
                failed[to] = outcome
            outcomes.append(outcome)
        return outcomes

    # -- signatures --------------------------------------------------------------------------

    def find_signer(self, environ: Environ) -> Callable[[bytes], Principal] | None:
        """Verify like `signatures.request`, but store the nonce before the request runs, so that
        nobody can replay it after a crash. Refuse the request if the nonce can't be stored."""
        return self.signatures.request(environ, self._write_with_nonces)

    def save_nonces(self) -> None:
        """Store the nonces from sends that were refused before a transaction. Does nothing while
        the disk is full."""
        with suppress(Unavailable):
            self._write_with_nonces()

    def _write_with_nonces(self, *calls: Call) -> list[CallOutcome]:
        """Write the nonces that are not stored yet, then the calls."""
        used, self.signatures.unsaved = self.signatures.unsaved, []
        nonces: list[Call] = [(writes.remember_nonces, (used,))] if used else []
        if not nonces and not calls:
            return []
        try:
            outcomes = self.store.write_many([*nonces, *calls])
            for outcome in outcomes[: len(nonces)]:
                outcome.unwrap()
        except BaseException:
            self.signatures.unsaved += used
            raise
        return outcomes[len(nonces) :]

    def _answer(self, command: Command, outcome: CallOutcome) -> Answer:
        error = outcome.error
        if isinstance(error, ApplianceError):
            return self._refusal(error)
        if error is not None:
            self.log.error("a send could not be stored", error)
            return self._refusal(ApplianceError("the message could not be stored"))
        result: AcceptResult = outcome.result
        if result.is_new and result.record is not None:
            metrics.accepts.labels("first").inc()
            receipt = wire.Receipt(
                result.record.broker_message_id,
                command.send.client_message_id,
                result.record.history_id,
            )
            return 201, receipt.to_body()
        if (bucket := self._bucket(command.mesh.id)) is not None:
            bucket.give_back(1, self.clock.monotonic())
        if result.record is None:
            send = command.send
            details = {"kind": send.destination_kind, "ref": send.destination_ref[:100]}
            return self._refusal(wire.NoSuchDestination(details=details))
        return self._duplicate_answer(command, result.record)

    def _duplicate_answer(self, command: Command, record: DedupeRecord) -> Answer:
        try:
            receipt = validation.duplicate_receipt(command, record)
        except wire.ClientMessageIdReused as error:
            metrics.mismatches.inc()
            return self._refusal(error)
        metrics.accepts.labels("duplicate").inc()
        return 200, receipt.to_body()

    def _refusal(self, error: ApplianceError) -> Answer:
        metrics.accepts.labels(error.kind).inc()
        return error.status, error.to_item_body()

    # -- connections -------------------------------------------------------------------------

    def connect(
        self,
        kind: str,
        mesh: MeshRow,
        member: MemberRow,
        push: Callable[[list[Claim]], None],
        send_event: Callable[[dict[str, Any]], None],
        close: Callable[[int, str], None],
        instance: MemberInstance | None = None,
    ) -> MemberConnection:
        """Register that member's connection. The caller calls `disconnect` when it ends."""
        connection = MemberConnection(
            f"{kind}-{next(self.dispatch.numbers)}",
            kind,
            mesh,
            member.pubkey,
            self.directory.recipients(mesh.id, member.pubkey),
            WINDOW_MAX,
            push,
            send_event,
            close,
            instance,
            self.clock.now_ms(),
        )
        self.dispatch.attach(connection)
        return connection

    def refuse_copy(self, mesh: MeshRow, member: MemberRow, instance: MemberInstance) -> None:
        """Raise MemberRunsElsewhere if the member is connected from another machine or
        workspace. That connection goes on and is informed, and the doctor reports both."""
        if mesh.concurrency == "allow_concurrent":
            return
        for other in self.dispatch.connections_of(mesh.id, member.pubkey):
            if other.instance is None or other.instance == instance:
                continue
            first, since, refused = other.instance.name, iso(other.since_ms), instance.name
            both = {"mesh": mesh.slug, "running_on": first, "refused": refused}
            if other.refused != instance:
                key = member.pubkey[:16]
                self.log.warning("a member's copy was refused", member=key, **both)
            other.refused = instance
            event = {"type": "event", "event": "member_runs_elsewhere", "member": member.pubkey}
            other.send_event(event | both)
            where = f"{mesh.slug}:{member.pubkey}"
            with suppress(Unavailable):
                self.store.write(note_copy, where, member.pubkey, first, refused)
            raise MemberRunsElsewhere(
                f"the member runs on {first} since {since}; {refused} is refused",
                details={"running_on": first, "since": since, "refused": refused},
            )

    def disconnect(self, connection: MemberConnection) -> None:
        """Release a connection's unacked deliveries for the member's next connection."""
        self.release(connection.owner, self.dispatch.detach(connection))

    def release(self, owner: str, ids: Sequence[int]) -> None:
        if not ids:
            return
        try:
            self.store.write(writes.release, owner, ids)
        except Unavailable:
            return  # their leases expire later
        metrics.deliveries.labels("released").inc(len(ids))
        self.dispatch.mark_all_ready()

    def deliver_batch(self) -> bool:
        """Write all connections' acks and claims in one commit, then push claimed deliveries.
        Return False if there was nothing to do."""
        acks, demands = self.dispatch.next_batch(CLAIM_MAX)
        if not acks and not demands:
            return False
        try:
            acked, claims = self.store.write(
                writes.ack_and_claim, acks, demands, int(LEASE_SECONDS * 1000)
            )
        except BaseException:
            self.dispatch.put_back(acks, demands)
            raise
        metrics.deliveries.labels("acked").inc(acked)
        metrics.deliveries.labels("late_ack").inc(len(acks) - acked)
        metrics.deliveries.labels("pushed").inc(len(claims))
        for owner, ids in self.dispatch.assign(demands, claims):
            self.release(owner, ids)
        return bool(claims) or self.dispatch.has_work

    def expire_leases(self) -> int:
        rows = self.store.write(writes.expire_leases, CLAIM_MAX)
        self.dispatch.expire(rows)
        metrics.deliveries.labels("expired").inc(len(rows))
        self.dispatch.mark_all_ready()
        return len(rows)
