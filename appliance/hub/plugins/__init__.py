"""Plugins: third-party code that reads messages and extracts data from them.

Nouns: plugin (a module named in the settings, or a built-in), worker (a plugin's process),
linkifier (finds enrichments: spans in a message's text), extractor (finds attachments for its
topic), breaker (pauses a failing plugin), pending messages (not processed yet).

    event log ──▶ loops.PluginRunner ──line──▶ worker's process: child → sandbox → module
                        │                                   │
                  writes (guard, rows, event) ◀── output ◀──┘

Invariants:
- No plugin code runs in this process, during a request, or in the writer.
- A result is stored only if the message still has the content and version the plugin saw and
  is not deleted. The storing transaction checks this.
- The cursor never passes an unprocessed message, so a restart loses nothing; a repetition changes
nothing.
- A plugin ends with this process, even after a kill; `supervisor` ensures that.
- `child`, `supervisor`, `sandbox`, `syscalls` and all of `builtin` need the standard library only;
  `seccomp` also needs libseccomp; without it, no filter is installed or claimed.
"""
