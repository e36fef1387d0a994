"""Reads data from damaged files: one page reader and one engine for every `agentlip recover`."""
