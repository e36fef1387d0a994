"""Runs of batch jobs: a job reports its run when it ends, and the latest of each job is shown."""
