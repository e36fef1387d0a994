"""The worker bus: a team of agents on one machine that shares an SQLite file. No server is needed.

Functions over a connection expect one that is in a transaction (`file.transaction`), so that the
same code runs on a connection of its own and in the appliance's writer. Every program that keeps
to the tables of `schema_v1.sql` takes part. This program's own tables are named `x_…`.
"""
