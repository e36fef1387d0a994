"""Request and reply: python request_reply.py serve | ask NUMBER

A request names the stream for its reply in `headers`; the reply has the request's id in `corr`.
"""

import signal
import sys

from agentlip.sdk import Consumer, Producer, envelope, find_hub


def serve():
    consumer = Consumer(find_hub, "skills/double")
    signal.signal(signal.SIGTERM, lambda *_: consumer.stop())
    with Producer(find_hub) as producer:

        def answer(request):
            reply = envelope("doubled", 2 * request["payload"], id=f"r-{request['id']}")
            producer.send(request["headers"]["reply_to"], {**reply, "corr": request["id"]})

        consumer.run(answer)
    consumer.close()


def ask(number):
    request = envelope("double", number)
    reply_to = f"replies/{request['id']}"
    with Producer(find_hub) as producer, Consumer(find_hub, reply_to) as replies:
        producer.send("skills/double", {**request, "headers": {"reply_to": reply_to}})
        for reply in replies:
            reply.ack()
            break
    return reply.envelope["payload"]


print(ask(int(sys.argv[2])) if sys.argv[1] == "ask" else serve())
