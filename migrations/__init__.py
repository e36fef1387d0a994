"""The schemas as numbered SQL, a folder per store; `appliance/kernel/schema.py` applies them."""
