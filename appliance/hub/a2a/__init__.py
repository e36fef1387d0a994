"""Work for agents here, from agents elsewhere: the Agent2Agent protocol (A2A) 1.0, over JSON-RPC.

The settings name the agents that take work. A task is a topic in one channel; each message from the
caller is an entry in the agent's inbox. No table has tasks: a task's state follows from the states
of its entries and from an ask that waits for the caller (`states.py`).
"""
