"""The broker's verbs: accept, push, ack. Managing meshes is `registry.py`'s business.

Broker.accept(member, item) -> (status, body)          one send
Broker.accept_many(member, items) -> [(status, body)]  several, in as few commits as possible
Broker.subscribe_local(mesh, member, callback)         deliveries in this process
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any

from appliance.broker import metrics, queries, retention, validation, wire, writes
from appliance.broker.access import Signatures
from appliance.broker.directory import Directory, MemberRow, MeshRow
from appliance.broker.dispatch import Dispatch, Receiver
from appliance.broker.rate_limit import Limiter
from appliance.broker.settings import BrokerSettings
from appliance.broker.validation import Command, Known
from appliance.broker.webhook_caller import Caller
from appliance.broker.writes import Claim, UsedNonce, Verdict
from appliance.kernel.auth import Principal
from appliance.kernel.batch import Call, Outcome
from appliance.kernel.clock import Clock
from appliance.kernel.errors import ApplianceError, Unavailable
from appliance.kernel.kept_times import KeptTimes
from appliance.kernel.log import Log
from appliance.kernel.store import Store
from appliance.web.errors import status_of

Answer = tuple[int, dict[str, Any]]
TURNS_MAX = 100  # of one round of the Deliverer


class Broker:
    """One per process. `open` reads what is stored; nothing is served before."""

    def __init__(
        self,
        store: Store,
        dispatch: Dispatch,
        settings: BrokerSettings,
        clock: Clock,
        log: Log,
        hook_caller: Caller | None = None,
    ) -> None:
        self.store = store
        self.dispatch = dispatch
        self.settings = settings
        self.clock = clock
        self.log = log
        self.hook_caller = hook_caller
        self.directory = Directory()
        self.signatures = Signatures(lambda: self.directory, settings, clock)
        self.jumps = KeptTimes(
            store, clock, log, "deliveries", writes.move_times, writes.end_impossible_waits,
            settings.wait_ms_max, metrics.clock_jumps,
        )  # fmt: skip
        self._limiter = Limiter(settings.rate_per_second)

    def open(self) -> None:
        """Ids go on above those that are stored; leases of connections that are gone end."""
        self.store.seed_ids(self.store.read(queries.last_history))
        with suppress(Unavailable):  # with a full disk they are moved later
            self.jumps.resume()
        used = self.store.read(queries.used_nonces, self.clock.now_ms(), self.settings.nonces_max)
        self.signatures.restore(
            self.store.read(queries.broker_id), [UsedNonce(*one) for one in used]
        )
        self.reload()
        if self.store.read(queries.has_leases):
            with suppress(Unavailable):  # with a full disk they run out by themselves
                self.store.write(writes.release_all)

    def reload(self) -> None:
        """Take meshes and members from the store, after a change of them."""
        settings = self.settings
        self.directory = self.store.read(
            queries.directory, settings.meshes_max, settings.members_max
        )
        metrics.misconfigured.set(
            sum(
                retention.is_misconfigured(
                    mesh.dedupe_mode, mesh.dedupe_retention_days, mesh.message_retention_days
                )
                for mesh in self.directory.by_id.values()
            )
        )
        for receiver in list(self.dispatch.everybody()):
            mesh = self.directory.by_id[receiver.mesh.id]
            receiver.mesh = mesh
            recipients = self.directory.recipients(mesh.id, receiver.pubkey)
            self.dispatch.change_recipients(receiver, recipients)

    def check_clock(self) -> None:
        """Before times are compared with the clock or stored."""
        if self.jumps.check():
            self.reload()

    # -- accepting ---------------------------------------------------------------------------

    def accept(self, member: str, item: Any) -> Answer:
        """One send of `member` (its public key), who is known to be that. Never raises for what
        the item says: status and body are those of the contract, §7."""
        return self.accept_many(member, [item])[0]

    def accept_many(self, member: str, items: Sequence[Any]) -> list[Answer]:
        """The same for several, in order; an item is an AcceptItem or a mapping."""
        self.check_clock()
        answers: list[Answer | None] = [None] * len(items)
        admitted: list[tuple[int, Command]] = []
        for place, item in enumerate(items):
            try:
                admitted.append((place, self._admit(member, item)))
            except ApplianceError as error:
                answers[place] = self._refused(error)
        self._limit(admitted, answers)
        waiting = [(place, command) for place, command in admitted if answers[place] is None]
        for (place, command), outcome in zip(
            waiting, self._write([command for _, command in waiting]), strict=True
        ):
            answers[place] = self._answer(command, outcome)
        return [answer for answer in answers if answer is not None]

    def _admit(self, member: str, item: Any) -> Command:
        """Phase B1: no transaction is open, nothing is stored."""
        said = wire.decoded(item)
        mesh = self.directory.mesh(said.mesh)
        sender = self.directory.member(mesh.id, member)
        digest, meta = validation.digest_of(said, self.settings)
        return Command(
            mesh.id,
            said.client_message_id,
            digest,
            said.destination_kind,
            said.destination_ref,
            said.reply_to_id or None,
            said.priority,
            meta,
            said.body,
            validation.mentions_of(said.meta, self.settings.mentions_max),
            sender.pubkey,
            sender.name,
            retention.keeps_ms(mesh.dedupe_mode, mesh.dedupe_retention_days),
            self.jumps.total_ms,
        )

    def _limit(self, admitted: Sequence[tuple[int, Command]], answers: list[Answer | None]) -> None:
        """Only who would be refused by the limit is looked up before: a known id never is."""
        now = self.clock.monotonic()
        over = [
            (place, command)
            for place, command in admitted
            if not self._limiter.take(command.mesh_id, 1, now)
        ]
        if not over:
            return
        ids = [(command.mesh_id, command.client_message_id) for _, command in over]
        try:
            known = self.store.read(queries.known_many, ids)
        except ApplianceError as error:
            known = []
            for place, _ in over:
                answers[place] = self._refused(error)
        for (place, command), found in zip(over, known, strict=False):
            if found is not None:
                answers[place] = self._known(command, found)
            else:
                wait = max(self._limiter.wait_seconds(command.mesh_id, now), 0.001)
                answers[place] = self._refused(wire.MeshBusy(retry_after=wait))

    def _write(self, commands: list[Command]) -> list[Outcome]:
        """All in one transaction; when a fault of one has undone it, each in its own."""
        if not commands:
            return []
        most = self.settings.subscribers_max
        try:
            verdicts = self._write_with_nonces((writes.accept_many, (commands, most)))
            return [Outcome(verdict) for verdict in verdicts]
        except Unavailable as error:
            return [Outcome(error=error) for _ in commands]
        except Exception as error:
            if len(commands) == 1:
                return [Outcome(error=error)]
        try:
            return self.store.write_many([(writes.accept, (one, most)) for one in commands])
        except Unavailable as error:
            return [Outcome(error=error) for _ in commands]

    # -- signatures --------------------------------------------------------------------------

    def signed_change(self, environ: Mapping[str, Any]) -> Callable[[bytes], Principal] | None:
        """As `signatures.request`, for what changes something: the nonce is stored before that."""
        verify = self.signatures.request(environ)

        def verify_and_store(body: bytes) -> Principal:
            assert verify is not None
            principal = verify(body)
            self.save_nonces()
            return principal

        return None if verify is None else verify_and_store

    def save_nonces(self) -> None:
        """Store the nonces that no send has taken along."""
        if self.signatures.unsaved:
            self._write_with_nonces()

    def _write_with_nonces(self, *calls: Call) -> Any:
        """The nonces not stored yet, then the calls; the result of the last. Raises its error."""
        used, self.signatures.unsaved = self.signatures.unsaved, []
        nonces: list[Call] = [(writes.remember_nonces, (used,))] if used else []
        stored = False
        try:
            outcomes = self.store.write_many([*nonces, *calls])
            stored = not used or outcomes[0].error is None
        finally:
            if not stored:
                self.signatures.unsaved += used
        return outcomes[-1].unwrap()

    def _answer(self, command: Command, outcome: Outcome) -> Answer:
        error = outcome.error
        if isinstance(error, ApplianceError):
            return self._refused(error)
        if error is not None:
            self.log.error("a send could not be stored", error)
            return self._refused(ApplianceError("the message could not be stored"))
        verdict: Verdict = outcome.result
        if verdict.first and verdict.known is not None:
            metrics.accepts.labels("first").inc()
            made = wire.Receipt(
                verdict.known.broker_message_id,
                command.client_message_id,
                verdict.known.history_id,
            )
            return 201, made.told()
        self._limiter.give_back(command.mesh_id, 1, self.clock.monotonic())
        if verdict.known is None:
            details = {"kind": command.kind, "ref": command.ref[:100]}
            return self._refused(wire.NoSuchDestination(details=details))
        return self._known(command, verdict.known)

    def _known(self, command: Command, known: Known) -> Answer:
        try:
            told = validation.answer_known(command, known)
        except wire.KeyReused as error:
            metrics.mismatches.inc()
            return self._refused(error)
        metrics.accepts.labels("duplicate").inc()
        return 200, told.told()

    def _refused(self, error: ApplianceError) -> Answer:
        metrics.accepts.labels(error.kind).inc()
        return wire.refused(error, status_of(error) if error.kind != "internal" else 500)

    # -- receiving ---------------------------------------------------------------------------

    def receiver(
        self,
        kind: str,
        mesh: MeshRow,
        member: MemberRow,
        take: Callable[[list[Claim]], None],
        say: Callable[[dict[str, Any]], None],
        close: Callable[[int, str], None],
    ) -> Receiver:
        """A connection of that member, attached; the caller detaches it when it ends."""
        receiver = Receiver(
            self.dispatch.next_number(),
            kind,
            mesh,
            member.pubkey,
            self.directory.recipients(mesh.id, member.pubkey),
            self.settings.window_max,
            take,
            say,
            close,
        )
        self.dispatch.attach(receiver)
        return receiver

    def leave(self, receiver: Receiver) -> None:
        """What it held goes to the member's next connection at once."""
        held = self.dispatch.detach(receiver)
        self.release(receiver.owner, held)

    def release(self, owner: str, ids: Sequence[int], pause_ms: int = 0) -> None:
        if not ids:
            return
        self.check_clock()
        try:
            self.store.write(writes.release, owner, list(ids), pause_ms)
        except Unavailable:
            return  # their leases run out by themselves
        metrics.deliveries.labels("released").inc(len(ids))
        self.dispatch.feed_all()

    def turn(self) -> bool:
        """Write acks and claims of all receivers in one commit, hand out what was claimed."""
        self.check_clock()
        acks, wants = self.dispatch.next_turn(self.settings.claim_max)
        if not acks and not wants:
            return False
        lease_ms = int(self.settings.lease_seconds * 1000)
        try:
            done, claims = self.store.write(writes.turn, acks, wants, lease_ms)
        except BaseException:
            self.dispatch.give_back(acks, wants)
            raise
        metrics.deliveries.labels("acked").inc(done)
        metrics.deliveries.labels("late_ack").inc(len(acks) - done)
        metrics.deliveries.labels("pushed").inc(len(claims))
        for owner, ids in self.dispatch.deal(wants, claims):
            self.release(owner, ids)
        return bool(claims) or self.dispatch.has_work

    def expire_leases(self) -> int:
        self.check_clock()
        rows = self.store.write(writes.expire_leases, self.settings.claim_max)
        self.dispatch.expire(rows)
        metrics.deliveries.labels("expired").inc(len(rows))
        self.dispatch.feed_all()
        return len(rows)
