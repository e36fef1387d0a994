"""Defines the metrics of the issuer's tokens and sign-ins."""

from appliance.kernel.metrics import counter

REASONS = ("malformed", "key", "algorithm", "signature", "time", "issuer", "audience", "name")
tokens = counter("oidc_tokens_total", "Access tokens by outcome", ("outcome",),
                 zeros=("accepted", "unreachable", *REASONS))  # fmt: skip
refreshes = counter("oidc_refreshes_total", "Attempts to fetch the issuer's keys", ("outcome",),
                    zeros=("done", "failed"))  # fmt: skip
sign_ins = counter("oidc_sign_ins_total", "People's sign-ins by outcome", ("outcome",),
                   zeros=("done", "refused", "not_invited"))  # fmt: skip
