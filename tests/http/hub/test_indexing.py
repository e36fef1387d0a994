"""What another program finds in `messages_fts` while messages come in without a pause."""

import threading

from tests.support.servedhub import serve
from tests.support.until import until

POSTERS = 3
MARKS = 4


def test_the_index_follows_a_load_that_never_pauses(tmp_path):
    with serve(tmp_path) as hub:
        _, topic_id = hub.channel_with_topic("general")
        messages = [{"topic_id": topic_id, "sender": "me", "content_raw": "words"}] * 50
        stop = threading.Event()

        def post():
            client = hub.connect()
            while not stop.is_set():
                assert client.post("/api/v1/messages/batch", {"messages": messages}).status == 200
            client.close()

        posters = [threading.Thread(target=post) for _ in range(POSTERS)]
        for poster in posters:
            poster.start()
        try:
            for _ in range(MARKS):
                ((newest,),) = hub.rows("SELECT coalesce(max(rowid), 0) + 1 FROM messages")
                until(lambda newest=newest: hub.rows("SELECT indexed FROM x_fts")[0][0] >= newest)
                assert all(poster.is_alive() for poster in posters)
        finally:
            stop.set()
            for poster in posters:
                poster.join()
