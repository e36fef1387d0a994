"""Enqueue a job for later: python delayed_job.py SECONDS TEXT"""

import sys

from agentlip.sdk import Producer, envelope, find_hub

with Producer(find_hub) as producer:
    job = envelope("reminder", {"text": sys.argv[2]}, delayMs=int(float(sys.argv[1]) * 1000))
    print(producer.send("work/reminders", job))
