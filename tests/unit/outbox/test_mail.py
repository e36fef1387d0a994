"""Mail as a target, with a real mail server: what it takes, refuses, and leaves unanswered."""

import shutil
import socket
import subprocess

import msgspec
import pytest

from appliance.kernel.config import BadSettings
from appliance.kernel.errors import Invalid
from appliance.outbox import wire
from appliance.outbox.destination import BadDestination
from appliance.outbox.mail import MailTarget
from appliance.outbox.settings import MailSettings
from appliance.outbox.target import Delivered, Later, Outgoing, Refused
from tests.support.mailserver import mail_server

NAME = "mail.example.com"
OPS = "ops@example.com"


@pytest.fixture(scope="module")
def one_server(tmp_path_factory):
    with mail_server(tmp_path_factory.mktemp("mail")) as one:
        yield one


@pytest.fixture
def server(one_server):
    one_server.reset()
    return one_server


def target_of(server, resolver=None, tls=None, **settings):
    values = {
        "host": NAME, "port": server.port, "security": "none", "sender": "agent@example.org",
        "allow": ("@example.com",), **settings,
    }  # fmt: skip
    return MailTarget(
        msgspec.structs.replace(MailSettings(), **values),
        "ws-1",
        resolver or (lambda _host, _port: ["127.0.0.1"]),
        tls,
    )


def send_of(to=OPS, body="grüße\n.dot\n", **more):
    values = {
        "mesh": "default", "client_message_id": "id-1", "fingerprint": b"\0" * 32,
        "destination_kind": "queue", "destination_ref": f"mailto:{to}", "reply_to_id": None,
        "priority": "next", "meta": {"subject": "Grüße 😀"}, "body": body, "attempt": 1,
        "accepted_ms": 0, "target": "mail", **more,
    }  # fmt: skip
    return Outgoing(**values)


def test_a_letter_arrives_as_it_was_written_for_all_its_recipients(server):
    result = target_of(server).deliver(send_of(f"{OPS},b@example.com"))
    (mail,) = server.mails
    assert result == Delivered(broker_message_id=mail.id)
    assert (mail.sender, mail.recipients) == ("agent@example.org", [OPS, "b@example.com"])
    assert mail.message["Subject"] == "Grüße 😀"
    assert mail.message["To"] == f"{OPS}, b@example.com"
    assert mail.message["From"] == "Agentlip <agent@example.org>"
    assert mail.text.replace("\r\n", "\n") == "grüße\n.dot\n"
    assert f"MAIL agent@example.org SIZE={len(mail.raw)}" in server.commands


def test_the_same_send_is_the_same_letter_again(server):
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
        ({"data": "451 later please"}, Later, "451: later please"),
        ({"data": "554 5.7.1 spam"}, Refused, "554: 5.7.1 spam"),
        ({"data": "530 log in"}, Later, "530"),
        ({"data": "421 leaving"}, Later, "421"),
        ({"data": "lose"}, Later, "after the letter"),
        ({"rcpt": {OPS: "550 no such user"}}, Refused, "550: no such user"),
        ({"rcpt": {OPS: "450 greylisted"}}, Later, "450: greylisted"),
        ({"rcpt": {OPS: "421 leaving"}}, Later, "421: leaving"),
        ({"mail": "550 who are you"}, Later, "550: who are you"),
        ({"mail": "552 too large"}, Refused, "552: too large"),
        ({"greet": "554 not today"}, Later, "554: not today"),
        ({"data": "554 " + "a\x07b" * 300}, Refused, "554: a b"),
    ],
)
def test_what_answers_mean(server, rules, kind, words):
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
        ({OPS: "550 unknown"}, Refused),
        ({"b@example.com": "451 later"}, Later),
        ({OPS: "451 later", "b@example.com": "550 unknown"}, Refused),
        ({OPS: "550 unknown", "b@example.com": "451 later"}, Refused),
    ],
)
def test_when_one_recipient_is_refused_nobody_gets_it(server, answers, kind):
    server.rule(rcpt=answers)
    assert isinstance(target_of(server).deliver(send_of(f"{OPS},b@example.com")), kind)
    assert server.mails == []
    assert "DATA" not in server.commands


def test_a_letter_without_an_answer_goes_again_under_its_message_id(server):
    target = target_of(server)
    server.rule(data="cut")
    result = target.deliver(send_of())
    assert isinstance(result, Later)
    assert "after the letter" in result.reason
    server.rule()
    assert isinstance(target.deliver(send_of(attempt=2)), Delivered)
    first, second = server.mails
    assert first.id == second.id


def test_a_server_that_is_silent_or_not_there_is_tried_again(server):
    server.rule(data="hang")
    result = target_of(server, reply_seconds=0.2).deliver(send_of())
    assert "in time after the letter" in result.reason
    server.kill()
    assert "nothing listens" in target_of(server).deliver(send_of()).reason
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        result = target_of(server, port=port, reply_seconds=0.2).deliver(send_of())
        assert result == Later("the mail server did not answer in time")

    def unknown(_host, _port):
        raise socket.gaierror

    assert "resolved" in target_of(server, unknown).deliver(send_of()).reason


@pytest.mark.parametrize(
    ("addresses", "settings"),
    [
        (["127.0.0.1"], {"allow_loopback": False}),
        (["127.0.0.1", "10.0.0.1"], {}),
        (["169.254.169.254"], {"allow_private": True}),
        (["127.0.0.1", "93.184.216.34"], {}),  # not without encryption
    ],
)
def test_a_server_is_not_called_when_one_of_its_addresses_is_not_allowed(
    server, addresses, settings
):
    result = target_of(server, lambda _host, _port: addresses, **settings).deliver(send_of())
    assert isinstance(result, Later)
    assert server.commands == []


def test_the_next_address_is_tried_and_the_name_is_asked_for_once(server):
    asked = []

    def resolver(host, port):
        asked.append((host, port))
        return ["127.0.0.2", "127.0.0.1"]  # nothing listens at the first

    assert isinstance(target_of(server, resolver).deliver(send_of()), Delivered)
    assert asked == [(NAME, server.port)]


# -- TLS and login -----------------------------------------------------------------------------


@pytest.fixture
def certificate(tmp_path):
    if shutil.which("openssl") is None:
        pytest.skip("openssl is not installed")
    key, certificate = tmp_path / "key.pem", tmp_path / "certificate.pem"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1",
         "-nodes", "-days", "2", "-subj", f"/CN={NAME}", "-addext", f"subjectAltName=DNS:{NAME}",
         "-keyout", key, "-out", certificate],
        check=True, capture_output=True,
    )  # fmt: skip
    return certificate, key


@pytest.mark.parametrize("security", ["starttls", "tls"])
def test_over_tls_and_logged_in(tmp_path, certificate, security):
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
        assert result == Refused("550: your password is ***", "550")
        server.rule()

        secret.write_text("another\n")  # it is read anew
        result = target.deliver(send_of())
        assert result == Later("the mail server did not take our login (535)")
        secret.unlink()
        assert target.deliver(send_of()) == Later("mail.password_file can't be read")

        stranger = target_of(server, security=security)
        assert "TLS" in stranger.deliver(send_of()).reason
        secret.write_text(password)
        other = target_of(server, ca_file=str(certificate[0]), **{**more, "host": "localhost"})
        assert "TLS" in other.deliver(send_of()).reason
        assert len(server.mails) == 1


def test_nothing_is_said_in_the_clear_when_the_server_has_no_starttls(server, tmp_path):
    secret = tmp_path / "password.txt"
    secret.write_text("password")
    target = target_of(server, security="starttls", user="a", password_file=str(secret))
    result = target.deliver(send_of())
    assert isinstance(result, Later)
    assert "STARTTLS" in result.reason
    assert server.commands == []


def test_a_login_that_the_server_does_not_offer_is_said(server, tmp_path):
    secret = tmp_path / "password.txt"
    secret.write_text("password")
    result = target_of(server, user="a", password_file=str(secret)).deliver(send_of())
    assert "no login that we know" in result.reason


# -- in the outbox -----------------------------------------------------------------------------


def test_a_send_to_an_address_goes_by_mail_without_naming_a_target(house, server):
    house.targets["mail"] = target_of(server)
    assert house.send("hi", "k", f"mailto:{OPS.upper()}", meta={"subject": "s"})[0] == 202
    house.round()
    (mail,) = server.mails
    row = house.row("k")
    assert (row.status, row.target, row.to) == ("done", "mail", "mailto:OPS@example.com")
    assert row.broker_message_id == mail.id
    found = house.outbox.list_sends(wire.ListQuery(to="mailto:OPS@example.com"))
    assert [one.client_message_id for one in found.sends] == ["k"]
    assert house.send("hi", "k", "OPS@example.com", meta={"subject": "s"}, target="mail")[0] == 200


def test_refusals_kill_and_the_rest_is_tried_again_as_the_same_letter(house, server):
    house.targets["mail"] = target_of(server)
    server.rule(rcpt={"gone@example.com": "550 5.1.1 no such user"}, data="cut")
    house.send("a", "k1", "mailto:gone@example.com")
    house.send("b", "k2", f"mailto:{OPS}")
    house.round()
    assert house.statuses() == {"k1": "dead", "k2": "pending"}
    assert house.row("k1").last_error == "550: 5.1.1 no such user"
    server.rule()
    house.clock.pass_seconds(5)
    house.round()
    assert house.statuses() == {"k1": "dead", "k2": "done"}
    assert len({mail.id for mail in server.mails}) == 1


def test_what_no_mail_can_be_is_refused_before_its_id_is_used(house, server):
    house.targets["mail"] = target_of(server, recipients_max=2, message_bytes_max=10)
    to = f"mailto:{OPS}"
    for words, error in (
        ({"to": "mailto:eve@evil.test"}, wire.MailNotAllowed),
        ({"to": f"{to},eve@evil.test"}, wire.MailNotAllowed),
        ({"to": "mailto:eve@sub.example.com"}, wire.MailNotAllowed),
        ({"to": f"{to},b@example.com,c@example.com"}, Invalid),
        ({"to": "mailto:x\r\ny@example.com"}, BadDestination),
        ({"to": to, "meta": {"subject": "a\r\nBcc: eve@evil.test"}}, Invalid),
        ({"to": to, "meta": {"bcc": "eve@evil.test"}}, Invalid),
        ({"to": to, "message": "x" * 11}, wire.MessageTooLarge),
    ):
        with pytest.raises(error):
            house.send(**{"message": "hi", "key": "k", **words})
    assert house.statuses() == {}
    house.send("hi", "k", to)
    with pytest.raises(Invalid):
        house.operator.requeue(
            wire.Requeue(id="k", auto=True, patch=wire.Patch(meta={"subject": "a\nb"})), "operator"
        )


def test_without_a_server_mail_is_refused_with_what_to_do(house):
    with pytest.raises(wire.NoSuchTarget) as refused:
        house.send("hi", "k", f"mailto:{OPS}")
    assert "[mail]" in refused.value.hint


def test_an_allow_list_that_became_shorter_holds_for_what_waits(house, server):
    house.targets["mail"] = target_of(server)
    house.send("hi", "k", f"mailto:{OPS}")
    house.targets["mail"] = target_of(server, allow=("b@example.com",))
    house.round()
    assert house.statuses() == {"k": "pending"}
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
def test_settings_that_no_mail_can_be_sent_with_are_refused_at_the_start(settings):
    values = {"host": NAME, "sender": "agent@example.org", **settings}
    with pytest.raises(BadSettings, match=r"mail\."):
        MailTarget(msgspec.structs.replace(MailSettings(), **values), "ws-1")


def test_whom_the_settings_allow():
    def places(to, *allow):
        settings = msgspec.structs.replace(
            MailSettings(), host=NAME, sender="a@example.org", allow=allow
        )
        try:
            return MailTarget(settings, "ws-1").place(to) is not None
        except wire.MailNotAllowed:
            return False

    assert not places("mailto:a@x.org")
    assert places("mailto:A@x.org", "a@X.org")
    assert not places("mailto:b@x.org", "a@x.org")
    assert places("mailto:b@x.org", "@X.ORG")
    assert places("mailto:b@x.org", "*")


def test_a_slow_domain_keeps_no_other_waiting(server):
    target = target_of(server, allow=("*",))
    assert target.place("mailto:a@example.com,b@x.org")[2] == "mail://example.com"
    assert target.place("mailto:b@x.org")[2] == "mail://x.org"
