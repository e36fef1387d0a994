"""Work until SIGTERM: ack a job when its handler returns, try again later when it raises."""

import signal
import sys

from agentlip.sdk import Consumer, find_hub

consumer = Consumer(find_hub, "work/reminders", say=lambda text: print(text, file=sys.stderr))
signal.signal(signal.SIGTERM, lambda *_: consumer.stop())


@consumer.handler
def remind(job):
    print("remind:", job["payload"]["text"], flush=True)


consumer.run()
consumer.close()
