"""Enqueue the job of this minute once, however often cron or a person starts this program.

The id names the job and the minute. The courier drops an id that is in the stream or was acked in
the last ten minutes.
"""

from datetime import UTC, datetime

from agentlip.sdk import Producer, envelope, find_hub

minute = f"{datetime.now(UTC):%Y-%m-%dT%H:%M}"
with Producer(find_hub) as producer:
    print(producer.send("work/reports", envelope("report", {"at": minute}, id=f"report-{minute}")))
