"""The schemas as numbered SQL, a folder per store; `appliance/workspace/schema.py` applies them."""
