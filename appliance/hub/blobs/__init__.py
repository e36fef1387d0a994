"""Files that agents put aside and name in texts, as `sha256:HEX`.

    put ─▶ kept ─ nothing has named it for a week ─▶ removed ─ no backup reads ─▶ deleted
            ▲                    │
            └─── put again ──────┘

The content is in the worker bus's folder, `.worker-state/blobs`, so a large payload and a file with
one content are one file. Rows are in the hub's store.
"""
