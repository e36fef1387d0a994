"""The page behind a link of a mail or a webhook: the question, with a button for each choice.

A visit changes nothing, because programs that check mails open links too. No script is needed. A
button sends the link itself, so no other page can make a browser answer.
"""

from html import escape

from appliance.hub.ask import wire

HEADERS = {
    "content-security-policy": (
        "default-src 'none'; style-src 'self'; form-action 'self'; base-uri 'none';"
        " frame-ancestors 'none'"
    ),
    # A form on a page without a referrer has no origin either, and would be refused.
    "referrer-policy": "same-origin",
}
_PAGE = """<!doctype html>
<html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>A question for you</title><meta name="robots" content="noindex">
<link rel="stylesheet" href="../ui/theme.css"><link rel="stylesheet" href="../ui/ui.css">
<body><div id="app"><main><section class="page narrow"><h1>{asker} asks</h1>
<article class="ask"><p class="text">{text}</p>{facts}{answer}</article>
{note}</section></main></div></body></html>
"""


def mail_text(ask: wire.Ask, url: str) -> str:
    lines = [f"{ask.asker} asks:", "", ask.text, "", *_facts(ask)]
    if ask.choices:
        lines.append("Choices: " + " | ".join(ask.choices))
    return "\n".join(
        [*lines, "", "To answer, open this page and choose. A visit answers nothing.", url]
    )


def render(ask: wire.Ask, note: str = "", *, answers: bool = True) -> bytes:
    """Render the page. `answers`: whether the reader may answer."""
    return _PAGE.format(
        asker=escape(ask.asker),
        text=escape(ask.text),
        facts="".join(f'<p class="soft">{escape(fact)}</p>' for fact in _facts(ask)),
        answer=(_form(ask) if answers else "") if ask.state == "waiting" else _outcome(ask),
        note=f'<p role="status">{escape(note)}</p>' if note else "",
    ).encode()


def _facts(ask: wire.Ask) -> list[str]:
    facts = []
    if ask.blocks:
        facts.append("Blocks: " + ", ".join(ask.blocks))
    if ask.deadline:
        facts.append(f"Deadline: {ask.deadline}, then: {ask.default or 'no answer'}")
    return facts


def _form(ask: wire.Ask) -> str:
    """Return the form, which is sent to the page's address, which contains the link."""
    buttons = "".join(
        f'<button name="answer" value="{escape(choice)}">{escape(choice)}</button> '
        for choice in ask.choices
    ) or (
        '<textarea name="answer" rows="3" maxlength="8000" required aria-label="Your answer">'
        '</textarea> <button class="primary">Answer</button>'
    )
    return f'<form method="post" class="bar">{buttons}</form>'


def _outcome(ask: wire.Ask) -> str:
    answer = "" if ask.answer is None else f": {ask.answer}"
    who = f"{ask.state}{answer} ({ask.answered_by}, {ask.settled_at})"
    return f"<p><strong>{escape(who)}</strong></p>"
