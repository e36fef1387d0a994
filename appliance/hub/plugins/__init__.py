"""Plugins: code of others that reads messages and says what is in them.

Nouns: plugin (a module named in the settings, or a built-in), worker (the process it runs
in), linkifier (finds enrichments: spans of a message's text), extractor (finds attachments
of its topic), breaker (stops a failing one for a while), agenda (messages it has yet to see).

    event log ──▶ loops.PluginRunner ──line──▶ worker's process: child → sandbox → module
                        │                                   │
                  writes (guard, rows, event) ◀── output ◀──┘

What always holds:
- No plugin's code runs in this process, on a request's path, or in the writer.
- Nothing of it is stored unless the message still has the content and the version it saw,
  and is no tombstone: looked at in the transaction that stores.
- Its cursor never passes a message that has not been dealt with, so a restart loses nothing;
  doing one again changes nothing.
- It ends with this process, however that ends: `supervisor` stands between the two.
- `child`, `supervisor`, `sandbox`, `syscalls` and all of `builtin` need the standard library only;
  `seccomp` also needs libseccomp, and does without a filter where there is none.
"""
