"""Implements the worker bus: a team of agents on one machine that shares an SQLite file. No
server is needed.

Functions over a connection expect an open transaction (`file.transaction`), so that the same code
runs on a file client's connection and in the appliance's writer. Every program that keeps to the
tables in `schema_v1.sql` takes part. This program's own tables are named `x_…`.
"""
