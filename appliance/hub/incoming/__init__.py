"""Incoming webhooks: signed requests from other services, which become messages or envelopes.

Nouns: endpoint (a name with a template, a secret and a target), delivery (one request), delivery id
(the sender's, or made from the signed content), event (what a template reads in a payload).

    request ─size─▶ body ─signature, time─▶ verified ─template─▶ event ─one commit─▶ accepted 201
       │ 400, 415     │ 401, also for an unknown name  │ 400     └─known id─▶ the first reply, 200

Invariants:
- Nothing in a body is decoded before its signature is verified.
- A delivery id and the message are in one transaction, so a repeated delivery makes no second one.
- An unknown name and a wrong signature get the same response, after the same work.
"""
