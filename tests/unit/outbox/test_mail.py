"""Mail as a target, with a real mail server: what it takes, refuses, and leaves unanswered."""

import shutil
import socket

import msgspec
import pytest

from appliance.kernel.config import BadSettings
from appliance.kernel.errors import Invalid
from appliance.outbox import wire
from appliance.outbox.destination import BadDestination
from appliance.outbox.mail import MailTarget
from appliance.outbox.settings import MailSettings
from appliance.outbox.target import Delivered, Outgoing, RetryLater, Undeliverable
from tests.support.mailserver import mail_server
from tests.support.tls import make_certificate

HOST = "127.0.0.1"
OPS = "ops@example.com"


@pytest.fixture(scope="module")
def shared_server(tmp_path_factory):
    with mail_server(tmp_path_factory.mktemp("mail")) as mail_process:
        yield mail_process


@pytest.fixture
def server(shared_server):
    shared_server.reset()
    return shared_server


def target_of(server, **settings):
    values = {
        "host": HOST, "port": server.port, "security": "none", "sender": "agent@example.org",
        "allow": ("@example.com",), **settings,
    }  # fmt: skip
    return MailTarget(msgspec.structs.replace(MailSettings(), **values), "ws-1")


def send_of(to=OPS, body="grüße\n.dot\n", **more):
    values = {
        "mesh": "default", "client_message_id": "id-1", "fingerprint": b"\0" * 32,
        "destination_kind": "queue", "destination_ref": f"mailto:{to}", "reply_to_id": None,
        "priority": "next", "meta": {"subject": "Grüße 😀"}, "body": body, "attempt": 1,
        "accepted_ms": 0, "target": "mail", **more,
    }  # fmt: skip
    return Outgoing(**values)


def test_mail_arrives_unchanged_at_all_recipients(server):
    result = target_of(server).deliver(send_of(f"{OPS},b@example.com"))
    (mail,) = server.mails
    assert result == Delivered(broker_message_id=mail.id)
    assert (mail.sender, mail.recipients) == ("agent@example.org", [OPS, "b@example.com"])
    assert mail.message["Subject"] == "Grüße 😀"
    assert mail.message["To"] == f"{OPS}, b@example.com"
    assert mail.message["From"] == "Agentlip <agent@example.org>"
    assert mail.text.replace("\r\n", "\n") == "grüße\n.dot\n"
    assert f"MAIL agent@example.org SIZE={len(mail.raw)}" in server.commands


def test_retried_mail_has_the_same_bytes(server):
    target = target_of(server)
    target.deliver(send_of())
    target.deliver(send_of(attempt=2))
    target.deliver(send_of(client_message_id="id-2", reply_to_id="id-1"))
    first, second, third = server.mails
    assert first.raw == second.raw
    assert third.id != first.id
    assert third.message["In-Reply-To"] == first.id


@pytest.mark.parametrize(
    ("rules", "kind", "words"),
    [
        ({"data": "250 OK"}, Delivered, ""),
        ({"data": "451 later please"}, RetryLater, "451: later please"),
        ({"data": "554 5.7.1 spam"}, Undeliverable, "554: 5.7.1 spam"),
        ({"data": "530 log in"}, RetryLater, "530"),
        ({"data": "421 leaving"}, RetryLater, "421"),
        ({"data": "lose"}, RetryLater, "after the mail was sent"),
        ({"rcpt": {OPS: "550 no such user"}}, Undeliverable, "550: no such user"),
        ({"rcpt": {OPS: "450 greylisted"}}, RetryLater, "450: greylisted"),
        ({"rcpt": {OPS: "421 leaving"}}, RetryLater, "421: leaving"),
        ({"mail": "550 who are you"}, RetryLater, "550: who are you"),
        ({"mail": "552 too large"}, Undeliverable, "552: too large"),
        ({"greet": "554 not today"}, RetryLater, "554: not today"),
        ({"data": "554 " + "a\x07b" * 300}, Undeliverable, "554: a b"),
    ],
)
def test_smtp_replies_map_to_results(server, rules, kind, words):
    server.rule(**rules)
    result = target_of(server).deliver(send_of())
    assert isinstance(result, kind), result
    reason = "" if isinstance(result, Delivered) else result.reason
    assert words in reason
    assert len(reason) <= 200
    assert reason.isprintable()


@pytest.mark.parametrize(
    ("answers", "kind"),
    [
        ({OPS: "550 unknown"}, Undeliverable),
        ({"b@example.com": "451 later"}, RetryLater),
        ({OPS: "451 later", "b@example.com": "550 unknown"}, Undeliverable),
        ({OPS: "550 unknown", "b@example.com": "451 later"}, Undeliverable),
    ],
)
def test_one_refused_recipient_stops_the_mail(server, answers, kind):
    server.rule(rcpt=answers)
    assert isinstance(target_of(server).deliver(send_of(f"{OPS},b@example.com")), kind)
    assert server.mails == []
    assert "DATA" not in server.commands


def test_silent_or_unreachable_server_is_retried(server, monkeypatch):
    server.rule(data="hang")
    monkeypatch.setattr("appliance.outbox.mail.REPLY_SECONDS", 0.2)
    result = target_of(server).deliver(send_of())
    assert "in time after the mail was sent" in result.reason
    server.kill()
    assert "refused the connection" in target_of(server).deliver(send_of()).reason
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        result = target_of(server, port=port).deliver(send_of())
        assert result == RetryLater("the mail server did not respond in time")

    def unknown(*_address, **_options):
        raise socket.gaierror

    monkeypatch.setattr(socket, "getaddrinfo", unknown)
    assert "gaierror" in target_of(server, host="mail.example.com").deliver(send_of()).reason


@pytest.mark.parametrize(
    "address",
    [
        "169.254.169.254",
        "93.184.216.34",  # not without encryption
    ],
)
def test_server_with_a_forbidden_address_gets_nothing(server, monkeypatch, address):
    monkeypatch.setattr("appliance.outbox.mail._peer_of", lambda _server: address)
    assert isinstance(target_of(server).deliver(send_of()), RetryLater)
    assert server.commands == []


# -- TLS and login -----------------------------------------------------------------------------


@pytest.fixture
def certificate(tmp_path):
    if shutil.which("openssl") is None:
        pytest.skip("openssl is not installed")
    return make_certificate(tmp_path, HOST, "IP")


@pytest.mark.parametrize("security", ["starttls", "tls"])
def test_mail_is_sent_over_tls_with_login(tmp_path, certificate, security):
    secret = tmp_path / "password.txt"
    password = "correct horse"
    secret.write_text(f"{password}\n")
    flags = (f"--{security}", *certificate, "--login", "agent", password)
    with mail_server(tmp_path / "mail", *flags) as server:
        more = {"security": security, "user": "agent", "password_file": str(secret)}
        target = target_of(server, ca_file=str(certificate[0]), **more)
        assert isinstance(target.deliver(send_of()), Delivered)
        (mail,) = server.mails
        assert (mail.login, mail.tls) == ("agent", True)

        server.rule(rcpt={OPS: f"550 your password is {password}"})
        result = target.deliver(send_of())
        assert result == Undeliverable("550: your password is ***", "550")
        server.rule()

        secret.write_text("another\n")  # the next mail reads it again
        result = target.deliver(send_of())
        assert result == RetryLater("the mail server refused the login (535)")
        secret.unlink()
        assert target.deliver(send_of()) == RetryLater("mail.password_file can't be read")

        stranger = target_of(server, security=security)
        assert "TLS" in stranger.deliver(send_of()).reason
        secret.write_text(password)
        other = target_of(server, ca_file=str(certificate[0]), **{**more, "host": "localhost"})
        assert "TLS" in other.deliver(send_of()).reason
        assert len(server.mails) == 1


def test_missing_starttls_stops_before_the_login(server, tmp_path):
    secret = tmp_path / "password.txt"
    secret.write_text("password")
    target = target_of(server, security="starttls", user="a", password_file=str(secret))
    result = target.deliver(send_of())
    assert isinstance(result, RetryLater)
    assert "STARTTLS" in result.reason
    assert server.commands == ["EHLO"]


# -- in the outbox -----------------------------------------------------------------------------


def test_a_send_to_an_address_goes_by_mail_without_naming_a_target(outbox, server):
    outbox.targets["mail"] = target_of(server)
    assert outbox.send("hi", "k", f"mailto:{OPS.upper()}", meta={"subject": "s"})[0] == 202
    outbox.round()
    (mail,) = server.mails
    row = outbox.row("k")
    assert (row.status, row.target, row.to) == ("done", "mail", "mailto:OPS@example.com")
    assert row.broker_message_id == mail.id
    listed = outbox.service.list_sends(wire.ListQuery(to="mailto:OPS@example.com"))
    assert [mail_process.client_message_id for mail_process in listed.sends] == ["k"]
    assert outbox.send("hi", "k", "OPS@example.com", meta={"subject": "s"}, target="mail")[0] == 200


def test_invalid_mail_is_refused_before_its_id_is_used(outbox, server, monkeypatch):
    monkeypatch.setattr("appliance.outbox.mail.RECIPIENTS_MAX", 2)
    outbox.targets["mail"] = target_of(server)
    to = f"mailto:{OPS}"
    for words, error in (
        ({"to": "mailto:eve@evil.test"}, wire.MailNotAllowed),
        ({"to": f"{to},eve@evil.test"}, wire.MailNotAllowed),
        ({"to": "mailto:eve@sub.example.com"}, wire.MailNotAllowed),
        ({"to": f"{to},b@example.com,c@example.com"}, Invalid),
        ({"to": "mailto:x\r\ny@example.com"}, BadDestination),
        ({"to": to, "meta": {"subject": "a\r\nBcc: eve@evil.test"}}, Invalid),
        ({"to": to, "meta": {"bcc": "eve@evil.test"}}, Invalid),
    ):
        with pytest.raises(error):
            outbox.send(**{"message": "hi", "key": "k", **words})
    assert outbox.statuses() == {}
    outbox.send("hi", "k", to)
    with pytest.raises(Invalid):
        outbox.admin.redrive(
            wire.Redrive(id="k", auto=True, patch=wire.Patch(meta={"subject": "a\nb"}))
        )


def test_shortened_allow_list_applies_to_pending_mail(outbox, server):
    outbox.targets["mail"] = target_of(server)
    outbox.send("hi", "k", f"mailto:{OPS}")
    outbox.targets["mail"] = target_of(server, allow=("b@example.com",))
    outbox.round()
    assert outbox.statuses() == {"k": "pending"}
    assert server.commands == []


@pytest.mark.parametrize(
    "settings",
    [
        {"sender": ""},
        {"sender": "a@x.org>\r\nDATA"},
        {"user": "a"},
        {"password_file": "/nowhere"},
        {"user": "a", "password_file": "/nowhere"},
        {"ca_file": "/nowhere"},
        {"allow": ("example.com",)},
        {"allow": ("@",)},
    ],
)
def test_invalid_mail_settings_stop_the_start(settings):
    values = {"host": HOST, "sender": "agent@example.org", **settings}
    with pytest.raises(BadSettings, match=r"mail\."):
        MailTarget(msgspec.structs.replace(MailSettings(), **values), "ws-1")


@pytest.fixture
def mailing(outbox, server):
    outbox.service.targets["mail"] = target_of(server)
    return outbox


def queue_mails(mailing, count, domain="example.com"):
    for number in range(count):
        mailing.send(to=f"mailto:u{number}@{domain}", key=f"{domain}-{number}", target="mail")


def test_mails_of_one_destination_share_a_connection(mailing, server):
    queue_mails(mailing, 10)
    mailing.round()
    assert set(mailing.statuses().values()) == {"done"}
    assert len({mail.id for mail in server.mails}) == 10
    assert server.commands.count("EHLO") == 1


def test_refused_mail_stops_no_other_mail_of_its_connection(mailing, server):
    server.rule(rcpt={"u1@example.com": "550 unknown", "u3@example.com": "451 later"})
    queue_mails(mailing, 6)
    for _ in range(3):
        mailing.round()
    ended = {f"example.com-{number}": "done" for number in range(6)}
    assert mailing.statuses() == {**ended, "example.com-1": "dead", "example.com-3": "pending"}
    assert len(server.mails) == 4


@pytest.mark.parametrize("data", ["cut", "lose"])
def test_connection_that_ends_during_a_mail_is_not_used_for_the_next(mailing, server, data):
    queue_mails(mailing, 3)
    server.rule(data=data)
    mailing.round()
    server.rule()
    for _ in range(3):
        mailing.clock.pass_seconds(60)
        mailing.round()
    assert set(mailing.statuses().values()) == {"done"}
    assert len({mail.id for mail in server.mails}) == 3


def test_server_that_ends_each_connection_after_a_mail_gets_all(mailing, server):
    server.rule(rset="421 too many mails in this connection")
    queue_mails(mailing, 3)
    mailing.round()
    assert set(mailing.statuses().values()) == {"done"}
    assert server.commands.count("EHLO") == 3
