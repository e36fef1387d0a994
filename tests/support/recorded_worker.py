"""A worker process that records each run. Its arguments: KIND URL TOKEN STREAM FILE

KIND is `handler`, `loop`, `asyncio`, or `plain` for a client that knows only the frames of the
specification.
"""

import asyncio
import json
import sys
from urllib.parse import urlsplit

from tests.support import recorded_runs

LEASE_MS = 2000


def work(file, env):
    recorded_runs.work(file, env["id"], env["payload"]["seconds"])


def plain(url, token, stream, file):
    from websockets.sync.client import connect

    path = f"/v1/subscribe?stream={stream}&credit=1&leaseMs={LEASE_MS}"
    headers = {"Authorization": f"Bearer {token}"}
    with connect(url.replace("http", "ws", 1) + path, additional_headers=headers) as socket:
        for text in socket:
            frame = json.loads(text)
            if "deliver" in frame:
                work(file, frame["deliver"])
                socket.send(json.dumps({"ack": frame["deliver"]["id"], "credit": 1}))


def main(kind, url, token, stream, file):
    if kind == "plain":
        return plain(url, token, stream, file)
    from appliance.sdk.courier import Consumer
    from appliance.sdk.courier_aio import AsyncConsumer
    from appliance.sdk.discovery import Endpoint

    def locate():
        return Endpoint("127.0.0.1", urlsplit(url).port, token=token)

    async def run_async():
        async def handle(env):
            await asyncio.to_thread(work, file, env)

        async with AsyncConsumer(locate, stream, lease_ms=LEASE_MS) as consumer:
            await consumer.run(handle)

    if kind == "asyncio":
        return asyncio.run(run_async())
    consumer = Consumer(locate, stream, lease_ms=LEASE_MS)
    if kind == "handler":
        return consumer.run(lambda env: work(file, env))
    for delivery in consumer:
        work(file, delivery.envelope)
        delivery.ack()
    return None


if __name__ == "__main__":
    main(*sys.argv[1:])
