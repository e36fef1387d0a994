"""Apply each payment exactly once: the id and the change are written in one transaction.

Delivery is at least once. A job that comes again finds its id in the table and changes nothing.
"""

import signal
import sqlite3
import sys

from agentlip.sdk import Consumer, find_hub

database = sqlite3.connect(sys.argv[1])
database.execute("CREATE TABLE IF NOT EXISTS done (id TEXT PRIMARY KEY)")
database.execute("CREATE TABLE IF NOT EXISTS balance (account TEXT PRIMARY KEY, cents INTEGER)")
consumer = Consumer(find_hub, "work/payments")
signal.signal(signal.SIGTERM, lambda *_: consumer.stop())


def pay(job):
    account, cents = job["payload"]["account"], job["payload"]["cents"]
    with database:  # one transaction
        added = database.execute("INSERT OR IGNORE INTO done VALUES (?)", (job["id"],)).rowcount
        if added:
            database.execute(
                "INSERT INTO balance VALUES (?, ?)"
                " ON CONFLICT (account) DO UPDATE SET cents = cents + excluded.cents",
                (account, cents),
            )


consumer.run(pay)
consumer.close()
