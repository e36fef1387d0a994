"""Print the dead letters of all streams, and exit with 1 if there are any: for cron or a job."""

import sys

from agentlip.sdk.http import HubClient

from agentlip.sdk import find_hub

hub = HubClient(find_hub)
streams = [row["id"] for row in hub.get("/v1/stats")["streams"] if row["stats"]["dead"]]
for stream in streams:
    for letter in hub.get("/v1/peek", stream=stream, state="dead")["envelopes"]:
        print(stream, letter["id"], letter["reason"], letter.get("error", ""))
hub.close()
sys.exit(1 if streams else 0)
