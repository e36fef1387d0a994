"""Work in asyncio until SIGTERM."""

import asyncio
import signal

from agentlip.sdk import AsyncConsumer, find_hub


async def remind(job):
    await asyncio.sleep(0)  # other tasks run meanwhile
    print("remind:", job["payload"]["text"], flush=True)


async def main():
    async with AsyncConsumer(find_hub, "work/reminders") as consumer:
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, consumer.stop)
        await consumer.run(remind)


asyncio.run(main())
