"""Plugins: third-party code that reads messages and extracts data from them.

Nouns: plugin (a module named in the settings, or a built-in), worker (the process it runs
in), linkifier (finds enrichments: spans of a message's text), extractor (finds attachments
of its topic), breaker (pauses a failing plugin), pending messages (those it has yet to process).

    event log ──▶ loops.PluginRunner ──line──▶ worker's process: child → sandbox → module
                        │                                   │
                  writes (guard, rows, event) ◀── output ◀──┘

Invariants:
- No plugin code runs in this process, during a request, or in the writer.
- A result is stored only if the message still has the content and version the plugin saw and
  is not deleted. The transaction that stores it checks this.
- The cursor never passes an unprocessed message, so a restart loses nothing; processing one again
  changes nothing.
- A plugin ends with this process, however that ends; `supervisor` ensures it.
- `child`, `supervisor`, `sandbox`, `syscalls` and all of `builtin` need the standard library only;
  `seccomp` also needs libseccomp; without it, no filter is installed or claimed.
"""
